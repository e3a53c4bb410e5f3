"""Snapshots: a learner's state and its position in a log, in one file."""

import copy
import io
import os
import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from torchonline.core.checks import instance_of
from torchonline.core.files import has_seal, replace_file, sealed
from torchonline.core.learner import Learner
from torchonline.feedback.records import integer_from_0
from torchonline.privacy.composition import private_learners

FORMAT = 1


class Snapshot(NamedTuple):
    """What a snapshot says besides the state.

    Attributes:
        position: the last position of the log that was read.
        log: name of the log, a random word.
        learnt: number of rounds learnt.
        skipped: number of rounds left out because another encoder computed their features.
        refused: number of rounds that the learner refused.
        refusals: the last of them, as pairs of position and reason.
        time: seconds since 1970.
        last: id of the decision at the position.
        encoder: version of the encoder whose features were learnt; None if inputs are raw.
    """

    position: int = 0
    log: str = ""
    learnt: int = 0
    skipped: int = 0
    refused: int = 0
    refusals: tuple[tuple[int, str], ...] = ()
    time: float = 0.0
    last: str = ""
    encoder: str | None = None


def save_snapshot(path: str | Path, policy: nn.Module, snapshot: Snapshot) -> None:
    """Write a policy's state and a position in one file, whole or not at all.

    The file is written beside ``path``, forced to the disk and renamed. A crash at any time leaves the old file or the new one.
    One process at a time may write to a path.

    Args:
        path: the file.
        policy: a learner, or a module with learners in it.
        snapshot: what is to be saved with the state; ``time`` is set to now.

    Raises:
        OSError: the file could not be written. The old one is as it was.
    """
    instance_of("policy", policy, nn.Module, "an nn.Module")
    facts = instance_of("snapshot", snapshot, Snapshot, "a Snapshot")._replace(time=time.time())._asdict()
    facts["refusals"] = [list(entry) for entry in facts["refusals"]]
    file = io.BytesIO()
    torch.save({"format": FORMAT, "snapshot": facts, "state": policy.state_dict()}, file)
    # What a private learner remembers is as secret as its records.
    replace_file(path, sealed(file.getvalue()), unfinished(path).name, is_secret=bool(private_learners(policy)))


def load_snapshot(path: str | Path, policy: nn.Module) -> Snapshot:
    """Load a snapshot's state into a policy, and return what else it says.

    Args:
        path: a file of :func:`save_snapshot` or :func:`follow`.
        policy: constructed with the same arguments as the one that was saved.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is no snapshot, or its bytes are not those that were written. The policy is as it was.
        RuntimeError: the state is of another kind of policy, or of one with other options. The policy is as it was.

    Example:
        >>> save_snapshot(folder / "policy.pt", OFUL(2), Snapshot(position=7))
        >>> load_snapshot(folder / "policy.pt", OFUL(2)).position
        7
    """
    data = Path(path).read_bytes()
    try:
        is_sealed = has_seal(data)
        found: Any = torch.load(io.BytesIO(data), weights_only=True, map_location="cpu")
        facts = found["snapshot"]
        if found["format"] != FORMAT:
            raise ValueError(f"format {FORMAT} is known, not {found['format']}")
        snapshot = Snapshot(**facts | {"refusals": tuple(map(tuple, facts["refusals"]))})
        state = dict(found["state"])
        integer_from_0("position", snapshot.position)
    except Exception as error:
        raise ValueError(f"path: expected a snapshot, got {str(path)!r}: {error}") from error
    if not is_sealed:
        warnings.warn(f"path: expected a snapshot with its SHA-256, got an older one, {str(path)!r}", stacklevel=2)
    if not isinstance(
        policy, Learner
    ):  # which loads all or nothing by itself; other modules load one part after another
        copy.deepcopy(policy).load_state_dict(state)
    policy.load_state_dict(state)
    return snapshot


def unfinished(path: str | Path) -> Path:
    """Return the file that a crash in the middle of a save may leave."""
    path = Path(os.path.realpath(path))
    return path.with_name(path.name + ".new")
