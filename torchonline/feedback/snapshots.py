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
    """Facts that a snapshot holds beside the state.

    Attributes:
        position: the last position read in the log.
        log: name of the log, a random word.
        learnt: number of rounds learnt.
        skipped: number of rounds left out because another encoder computed their features.
        refused: number of rounds that the learner refused.
        refusals: the last refusals, as pairs of position and reason.
        time: time of the save, in seconds since 1970.
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
    """Write a policy's state and a position to one file atomically.

    The file is written beside ``path``, synced to the disk and renamed. A crash at any time leaves the old file or the new one.
    Only one process at a time may write to a path.

    Args:
        path: the file.
        policy: a learner, or a module that contains learners.
        snapshot: facts to save with the state; ``time`` is set to now.

    Raises:
        OSError: the file could not be written. The old file is unchanged.
    """
    instance_of("policy", policy, nn.Module, "an nn.Module")
    facts = instance_of("snapshot", snapshot, Snapshot, "a Snapshot")._replace(time=time.time())._asdict()
    facts["refusals"] = [list(entry) for entry in facts["refusals"]]
    file = io.BytesIO()
    torch.save({"format": FORMAT, "snapshot": facts, "state": policy.state_dict()}, file)
    # The state of a private learner is as secret as its records.
    replace_file(path, sealed(file.getvalue()), unfinished(path).name, is_secret=bool(private_learners(policy)))


def load_snapshot(path: str | Path, policy: nn.Module) -> Snapshot:
    """Load a snapshot's state into a policy, and return the snapshot's other facts.

    Args:
        path: a file of :func:`save_snapshot` or :func:`follow`.
        policy: a policy constructed with the same arguments as the saved one.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file is not a snapshot, or its bytes have changed. The policy does not change.
        RuntimeError: the state belongs to another kind of policy, or to one with other options. The policy does not change.

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
        warnings.warn(
            f"path: expected a snapshot with a SHA-256, got an older one without, {str(path)!r}", stacklevel=2
        )
    if not isinstance(policy, Learner):  # a learner's load is all or nothing; other modules load part by part
        copy.deepcopy(policy).load_state_dict(state)
    policy.load_state_dict(state)
    return snapshot


def unfinished(path: str | Path) -> Path:
    """Return the path of the temporary file that a crash during a save may leave."""
    path = Path(os.path.realpath(path))
    return path.with_name(path.name + ".new")
