"""Archives: the functions of a policy as programs of one file."""

import hashlib
import io
import json
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from torch import nn
from torch.export import ExportedProgram
from torch.export.pt2_archive import _package as packaging
from torch.export.pt2_archive.constants import CONSTANTS_DIR, WEIGHTS_DIR

from torchonline.core.checks import instance_of
from torchonline.core.versions import version
from torchonline.export.copies import uncompiled, uncompiled_copy
from torchonline.export.functions import FUNCTIONS, functions_of, given_to, state_of
from torchonline.export.runner import ABOUT, Runner, digest_of, is_plain
from torchonline.export.verification import (
    FixedTrial,
    PolicyTrial,
    agree_on_state,
    make_blind,
    refuse_python,
    trial_of,
)
from torchonline.features import ColumnEncoder
from torchonline.features.reader import read_schema
from torchonline.policies.arm_ids import with_ids
from torchonline.policies.policy import Policy


class Archive(NamedTuple):
    """Functions of a policy, with facts about their arguments and results.

    Attributes:
        programs: ``start``, ``select``, ``probabilities``, ``scores`` and ``step``.
        about: facts for a :class:`~torchonline.export.Runner`: names of the state's buffers, of arguments and of actions, shapes
            and dtypes.
    """

    programs: dict[str, ExportedProgram]
    about: dict[str, Any]

    def runner(self) -> Runner:
        """Return a runner of the programs."""
        return Runner({name: program.module() for name, program in self.programs.items()}, self.about)


def for_functions(module: Any, example: Any, noise_scale: bool = False) -> tuple[Policy, PolicyTrial | FixedTrial]:
    """Return a copy of a policy and its trial. Raise if it cannot be exported."""
    instance_of("noise_scale", noise_scale, bool, "True or False")
    module = uncompiled(module)
    instance_of("module", module, Policy, "a policy")
    refuse_python(module, "module", is_program=True)
    policy = uncompiled_copy(module).eval()
    trial: Any = trial_of(policy, example, noise_scale=noise_scale)
    return policy, trial


def verify_functions(policy: Any, trial: PolicyTrial | FixedTrial, runner: Runner) -> None:
    """Raise a RuntimeError if a runner differs from its policy.

    Raise a ValueError if the encoder writes a buffer, which no state would keep.
    """
    eager = uncompiled_copy(policy)
    make_blind(eager)
    trial.compare(eager, runner)
    for name, buffer in (eager.encoder if eager.has_encoder else nn.Module()).named_buffers():
        if digest_of(buffer) != digest_of(policy.encoder.get_buffer(name)):
            raise ValueError(f"module: expected an encoder that writes no buffer, got one that writes {name}")
    agree_on_state(eager, dict(eager.named_buffers()) | runner.state, trial.tolerance)


def archive_of(policy: Policy, trial: PolicyTrial | FixedTrial, shapes: Any = None) -> Archive:
    """Return the functions of a policy; ``shapes`` is as in :func:`functions_of`."""
    programs = functions_of(policy, trial, shapes)
    return Archive(programs, facts_of(policy, trial, programs["scores"]))


class SharedWeights(packaging.PT2ArchiveWriter):
    """Writer of an archive whose programs share equal tensors.

    torch's own writer (2.13) repeats the weights of an encoder for each program.
    """

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        # Records of tensors by digest, and those that stand for later ones.
        self._first: dict[tuple[str, bytes, int], str] = {}
        self._same: dict[str, str] = {}
        # How often a tensor has come in this program, because equal tensors of one program stay apart.
        self._times: Counter[bytes] = Counter()

    def count_prefix(self, prefix: str) -> int:
        # It numbers records, and a number must not come twice.
        return super().count_prefix(prefix) + sum(name.startswith(prefix) for name in self._same)

    def write_bytes(self, name: str, data: bytes) -> None:
        folder = next((one for one in (WEIGHTS_DIR, CONSTANTS_DIR) if name.startswith(one)), None)
        if folder is not None and name.endswith(".json"):
            config = json.loads(data)
            for entry in config["config"].values():
                record = folder + entry["path_name"]
                entry["path_name"] = self._same.get(record, record).removeprefix(folder)
            data = json.dumps(config).encode()
            self._times.clear()
        elif folder is not None:
            digest = hashlib.sha256(data).digest()
            first = self._first.setdefault((folder, digest, self._times[digest]), name)
            self._times[digest] += 1
            if first != name:
                self._same[name] = first
                return
        super().write_bytes(name, data)


def as_pt2(
    about: dict[str, Any],
    programs: dict[str, ExportedProgram] | None = None,
    aoti_files: Any = None,
) -> io.BytesIO:
    """Return a file in torch's PT2 format with the facts of an archive."""
    file = io.BytesIO()
    with SharedWeights(file) as writer:
        packaging._package_exported_programs(writer, programs)
        packaging._package_aoti_files(writer, aoti_files)
        packaging._package_extra_files(writer, {ABOUT: json.dumps(about)})
    file.seek(0)
    return file


def unpacked(package: bytes, folder: Path) -> list[str]:
    """Write the files of a compiled program to a folder, and return their paths."""
    with zipfile.ZipFile(io.BytesIO(package)) as archive:
        archive.extractall(folder)
    return [str(path) for path in folder.glob("**/data/aotinductor/model/*")]


def facts_of(policy: Policy, trial: PolicyTrial | FixedTrial, scores: ExportedProgram) -> dict[str, Any]:
    """Return the facts about a policy's functions that a runner needs."""
    examples, item = trial.named(trial.round_arguments()), None
    if "inputs" in examples:
        # The inputs are the last argument of the scores. An encoder may have fixed dimensions that could vary.
        inputs = [node for node in scores.graph.nodes if node.op == "placeholder"][-1].meta["val"]
        sizes = inputs.shape[len(trial.batch) + 1 :]
        item = [size if isinstance(size, int) else size.node.maybe_as_int() for size in sizes]
    owner = policy.with_ids()
    columns = next((part for part in policy.modules() if isinstance(part, ColumnEncoder)), None)
    state = list(state_of(policy))
    fixed = with_ids(uncompiled_copy(policy)).state_dict()
    for name in [*fixed]:
        # The next id changes no program.
        if name in state or name.rpartition(".")[2] == "ids_given" or not is_plain(fixed[name]):
            del fixed[name]
    return {
        "torchonline": version(),
        "learner": type(policy).__name__,
        "state": state,
        "fixed": {name: digest_of(value) for name, value in fixed.items()},
        "batch_shape": list(trial.batch),
        "item_shape": item,
        "actions": None if policy.has_arm_inputs else examples["mask"].size(-1),
        "types": {name: str(value.dtype).removeprefix("torch.") for name, value in examples.items()},
        "arguments": {name: list(given_to(function, trial)) for name, function in FUNCTIONS.items()},
        "ids": None if owner is None else owner.action_ids,
        "schema": None if columns is None else read_schema(columns.schema),
        # The keys of JSON are strings.
        "names": {} if owner is None else {str(one): name for one, name in owner.names_by_id().items()},
    }
