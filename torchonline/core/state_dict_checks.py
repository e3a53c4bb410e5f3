"""Checks of a state dict before any of it is loaded."""

import math
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from torchonline.core.all_or_nothing import all_or_nothing, copied
from torchonline.core.backend import is_readable
from torchonline.core.checks import mismatch
from torchonline.core.inputs import as_plain

if TYPE_CHECKING:
    from torchonline.core.learner import Learner

# A smaller error in the product of a matrix and its inverse counts as rounding.
INVERSE_TOLERANCE = 0.01


def migrate_(learner: "Learner", state_dict: dict[str, Any], prefix: str) -> None:
    """Bring entries of an older version up to date for one learner, in place.

    Names decide, because a file may lose the version number (safetensors does).
    """
    for old, new in learner.renamed.items():
        if prefix + old in state_dict and prefix + new not in state_dict and old not in learner._buffers:
            state_dict[prefix + new] = state_dict.pop(prefix + old)
    # Constant tables were part of a state dict, and TorchScript still writes them.
    for name in (*learner.dropped, *learner._non_persistent_buffers_set):
        state_dict.pop(prefix + name, None)
    learner._migrate_(state_dict, prefix)


class _NotLoadedError(Exception):
    """Report that ``nn.Module`` has recorded an error in copying an entry."""


def load_(
    learner: "Learner",
    state_dict: dict[str, Any],
    prefix: str,
    local_metadata: Mapping[str, Any],
    strict: bool,
    missing_keys: list[str],
    unexpected_keys: list[str],
    error_msgs: list[str],
) -> None:
    """Load a learner with its parts or not at all.

    Arguments are those of ``nn.Module._load_from_state_dict``. A torn learner is whole again once all entries have been loaded.
    """
    modules = learner._with_parts(prefix)
    for part, path in modules:
        migrate_(part, state_dict, path)
    for part, _ in modules[1:]:
        part.__dict__["_is_loaded"] = True
    lists = (local_metadata, strict, missing_keys, unexpected_keys, error_msgs)
    if not any(name.startswith(prefix) for name in state_dict):  # nn.Module handles a state dict without this learner
        for part, path in modules:
            nn.Module._load_from_state_dict(part, state_dict, path, *lists)
        return
    error_msgs += (problems := learner._load_problems(state_dict, prefix))
    if problems:
        return

    def load() -> None:
        before = len(error_msgs)
        for part, path in modules:
            part._load_own(state_dict, path, *lists)
        if len(error_msgs) > before:
            raise _NotLoadedError

    buffers = [part._buffers for part, _ in modules]
    before = [dict(own) for own in buffers]
    # An assignment replaces these tensors by others, and leaves their values.
    written = () if local_metadata.get("assign_to_params_buffers", False) else before
    put_values_back = copied([value for own in written for value in own.values() if value is not None])

    def undo() -> None:
        for own, old in zip(buffers, before, strict=True):
            own.clear()
            own.update(old)
        put_values_back()

    with learner._lock, torch.no_grad(), suppress(_NotLoadedError):
        all_or_nothing(learner, undo, load)
        for part, _ in modules:
            part.__dict__["_is_torn"] = False


def load_whole(module: nn.Module, load: Any, state_dict: Mapping[str, Any], *arguments: Any, **options: Any) -> Any:
    """Load a module of several parts as a whole, or not at all.

    The state is copied first, and restored if the load is refused or interrupted. ``load`` is nn.Module's ``load_state_dict``
    of the module, and takes the other arguments.
    """
    before = {name: value.clone() for name, value in module.state_dict().items()}
    try:
        return load(state_dict, *arguments, **options)
    except BaseException:
        assign = options.get("assign", arguments[1] if len(arguments) > 1 else False)
        load(before, assign=assign)  # else into the tensors of the refused state, some of which are assigned
        raise


def load_problems(learner: "Learner", state_dict: Mapping[str, Any], prefix: str) -> list[str]:
    """Return why the entries under a prefix are not a state of a learner with parts."""
    entries = {name: value for name, value in state_dict.items() if name.startswith(prefix)}
    parts = learner.parts()
    kept = {name: x for name, x in learner._buffers.items() if name not in learner._non_persistent_buffers_set}
    buffers = {prefix + name: buffer for name, buffer in kept.items() if buffer is not None}
    inside = tuple(f"{prefix}{name}." for name in parts)
    # nn.Module would load all other entries before it refused a name that leads nowhere.
    loaded = {
        name: x
        for name, x in entries.items()
        if not name.startswith(inside) and name.removeprefix(prefix).split(".")[0] not in learner._modules
    }
    problems = _other_number_of_options(learner, loaded.get(prefix + "constants"), prefix)
    problems = problems or [problem for name in buffers | loaded if (problem := _mismatch(name, buffers, loaded))]
    problems = problems or _other_options(learner, loaded[prefix + "constants"], prefix)
    problems = problems or _broken_values(learner, loaded, prefix)
    for name, part in parts.items():
        if any(entry.startswith(f"{prefix}{name}.") for entry in entries):
            problems += part._load_problems(state_dict, f"{prefix}{name}.")
        else:
            problems.append(f"{prefix}{name}: expected the entries of this part, got none")
    return problems


def _mismatch(name: str, buffers: Mapping[str, Tensor], loaded: Mapping[str, Any]) -> str | None:
    """Return why a loaded value cannot become the buffer of that name, or None."""
    if name not in buffers:
        return f"{name}: expected no such entry; a learner of another dtype or option may have it"
    if (why := mismatch(name, buffers[name], loaded)) is not None:
        return why
    buffer, value = buffers[name], loaded[name]
    if value.layout is not torch.strided or (value.is_meta and not buffer.is_meta):
        return f"{name}: expected a dense tensor with values, got {'a meta tensor' if value.is_meta else value.layout}"
    if value.is_floating_point() != buffer.is_floating_point() or value.is_complex():
        return f"{name}: expected {buffer.dtype}, got {value.dtype}"
    return None


def _other_number_of_options(learner: "Learner", constants: Any, prefix: str) -> list[str]:
    """Return an error if a saved state has more or fewer options than a learner."""
    if not isinstance(constants, Tensor) or constants.dim() != 1 or len(constants) == len(learner._options()):
        return []
    names = [*map(learner._argument, learner.later_options), *learner.sized_options]
    return [f"{prefix}{' or '.join(names)}: the state was learnt with another value of this option"] if names else []


def _other_options(learner: "Learner", constants: Tensor, prefix: str) -> list[str]:
    """Return an error for each option that differs from the option of a saved state."""

    def said(name: str, value: float) -> str:
        return "None" if getattr(learner, name, value) is None else f"{value:.12g}"  # None counts as 0

    found: dict[str, str] = {}  # an option of several numbers is named once
    for (name, mine), theirs in zip(learner._options(), constants.tolist(), strict=True):
        if not math.isclose(mine, theirs, rel_tol=learner.options_tolerance):
            text = f"the state was learnt with {theirs:.12g}, this learner has {said(name, mine)}"
            found.setdefault(name, f"{prefix}{learner._argument(name)}: {text}")
    return list(found.values())


def _broken_values(learner: "Learner", loaded: Mapping[str, Any], prefix: str) -> list[str]:
    """Return an error for each entry with values that the class never has."""
    problems, values, may_be_infinite = [], {}, (*learner.unbounded, "constants")
    for name, value in loaded.items():
        value = as_plain(name, value.detach())
        if not is_readable(value):
            continue
        own = name.removeprefix(prefix)
        values[own] = value
        # A count is one integer for each learner. Sums of discrete noise are vectors.
        is_count = value.dtype == torch.int64 and value.dim() <= learner.batch_dims
        if value.is_floating_point() and bool(value.isnan().any()):
            problems.append(f"{name}: expected numbers, got NaN")
        elif value.is_floating_point() and own not in may_be_infinite and bool(value.isinf().any()):
            problems.append(f"{name}: expected finite numbers, got infinity")
        elif is_count and bool((value < 0).any()):
            problems.append(f"{name}: expected counts of at least 0, got {int(value.min())}")
        elif own in learner.positive_definite and not _is_positive_definite(value):
            problems.append(f"{name}: expected a symmetric positive definite matrix, got none")
    for matrix, inverse in () if problems else learner.inverses:
        if matrix in values and inverse in values and (error := _error_of_inverse(values[matrix], values[inverse])):
            wanted = f"expected the inverse of {matrix}"
            problems.append(f"{prefix}{inverse}: {wanted}, got a matrix whose product with it is off by {error:.2g}")
    return problems


def _error_of_inverse(matrix: Tensor, inverse: Tensor) -> float:
    """Return the error of an inverse, relative to the units; 0.0 if it is rounding.

    An entry-by-entry average of states is not a state: the inverse of a mean is not the mean of the inverses.
    """
    eps, matrix, inverse = torch.finfo(matrix.dtype).eps, matrix.detach().double(), inverse.detach().double()
    scale = matrix.diagonal(dim1=-2, dim2=-1).sqrt()
    error = matrix @ inverse - torch.eye(matrix.size(-1), dtype=matrix.dtype, device=matrix.device)
    largest = (error * scale.unsqueeze(-2) / scale.unsqueeze(-1)).abs().amax((-2, -1))
    # Rounding changes an inverse by about this much.
    inflation = (matrix.diagonal(dim1=-2, dim2=-1) * inverse.diagonal(dim1=-2, dim2=-1)).amax(-1)
    is_off = largest > INVERSE_TOLERANCE + 64.0 * matrix.size(-1) * eps * inflation
    return float(torch.where(is_off, largest, 0.0).max())


def _is_positive_definite(matrix: Tensor) -> bool:
    """Return whether ``(*B, d, d)`` is symmetric positive definite, up to rounding."""
    allowed = 64.0 * matrix.size(-1) * torch.finfo(matrix.dtype).eps
    matrix = matrix.detach().double()
    scale = matrix.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None]
    if not bool(torch.isfinite(matrix).all()) or bool((abs(matrix - matrix.mT) > allowed * scale).any()):
        return False
    identity = torch.eye(matrix.size(-1), dtype=matrix.dtype, device=matrix.device)
    return bool((torch.linalg.cholesky_ex(matrix + allowed * scale * identity)[1] == 0).all())
