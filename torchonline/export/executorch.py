"""ExecuTorch files: the functions of a policy for phones and other devices.

A file has the methods of an archive (:mod:`torchonline.export.functions`), and a method ``about`` that returns the facts for a
:class:`~torchonline.export.Runner`, as JSON. ExecuTorch has kernels for the core operators of torch. ``REWRITTEN`` replaces other
operators, and those that ExecuTorch 1.5 computes differently from torch.
"""

import functools
import json
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.export import Dim, ExportedProgram

from torchonline.core.checks import positive_integer
from torchonline.core.files import check_path, replace_file
from torchonline.core.messages import listed, needs
from torchonline.export.archives import archive_of, for_functions, verify_functions
from torchonline.export.onnx_graphs import diagonal_scatter
from torchonline.export.runner import Runner
from torchonline.policies.policy import Policy

aten = torch.ops.aten


def to_executorch(
    module: Policy,
    path: str | Path | None = None,
    *,
    example: Tensor | None = None,
    most_decisions: int = 16,
    most_arms: int = 64,
) -> Runner:
    """Export a policy as an ExecuTorch file, with the methods of an archive.

    The methods are pure functions of the state, as in :func:`to_archive`. ``start()`` returns the first state, which is the
    policy's present one: a flat list of tensors. ``select``, ``probabilities`` and ``scores`` take the state, then their
    arguments. ``step`` returns ``learnt``, then the next state. The caller keeps the state between calls and may save it.
    Tensors must be contiguous. The file needs ExecuTorch's portable kernels and no backend.

    The file is verified on the runtime that the ``executorch`` extra installs, then written to ``path``. Lowering takes up to a
    minute or two. The runtime reserves memory for the largest call.

    Args:
        module: a policy or a policy on an encoder, whose operations ExecuTorch has.
        path: path of the file, which must end in ``.pte``; None writes no file.
        example: as in :func:`to_torchscript`. Calls must have the example's number of features and, for texts, its length.
        most_decisions: largest number of decisions in a call, at least 3, as the verification has.
        most_arms: largest number of arms, if each arm has its own features; at least 5.

    Returns:
        A runner of the file. ``Runner.load(path)`` returns one, too.

    Raises:
        ImportError: executorch is not installed.
        ValueError: ``module`` has a learner that torch.export cannot trace, or needs operations that ExecuTorch lacks, such as
            random draws or a Cholesky factor; the message lists them.
        RuntimeError: the file differs from ``module``; no file is written.

    Example:
        >>> runner = to_executorch(OFUL(2), folder / "policy.pte")  # doctest: +SKIP
        >>> arms = torch.eye(2)
        >>> k = runner.select(arms)  # doctest: +SKIP
        >>> runner.step(arms, k, 1.0)  # doctest: +SKIP
        tensor(True)
    """
    check_path(path, ".pte")
    most = {
        "decisions": _at_least(3, "most_decisions", most_decisions),
        "arms": _at_least(5, "most_arms", most_arms),
        "past_arms": most_arms,
    }
    needs("to_executorch", "executorch", "executorch")
    policy, trial = for_functions(module, example)
    shapes = tuple(_bounded(sizes, most) for sizes in trial.dynamic_shapes())
    with _executorch_is_noisy():
        archive = archive_of(policy, trial, shapes)
        archive.about["most"] = most  # calls beyond fail in the runtime without a name
        data = _lowered(archive.programs, archive.about, type(policy).__name__)
        verify_functions(policy, trial, Runner.of_executorch(data))
        if path is not None:
            replace_file(path, data)
        return Runner.of_executorch(data)


def _lowered(programs: dict[str, ExportedProgram], about: dict[str, Any], learner: str) -> bytes:
    """Return the file of programs, or raise for operators that ExecuTorch lacks."""
    from executorch.exir import to_edge

    table = torch.export.default_decompositions()
    table.update(torch._decomp.get_decompositions([aten.linalg_vector_norm.default]) | REWRITTEN)
    programs = {name: program.run_decompositions(table) for name, program in programs.items()}
    parts = [part for program in programs.values() for part in program.graph_module.modules()]
    targets = {node.target for part in parts if isinstance(part, torch.fx.GraphModule) for node in part.graph.nodes}
    operators = [target for target in targets if isinstance(target, torch._ops.OpOverload)]
    lacking = sorted({str(operator) for operator in operators if _is_lacking(operator)})
    if lacking:
        raise ValueError(
            f"module: expected operations that ExecuTorch has, got a {learner}, which needs {listed(lacking, str)}"
        )
    return bytes(to_edge(programs, constant_methods={"about": json.dumps(about)}).to_executorch().buffer)


def _is_lacking(operator: torch._ops.OpOverload) -> bool:
    """Return whether ExecuTorch has no kernel, or one that draws other numbers."""
    is_assertion = "_assert_" in str(operator)  # ExecuTorch drops assertions of the trace
    is_random = torch.Tag.nondeterministic_seeded in operator.tags
    return is_random or (torch.Tag.core not in operator.tags and not is_assertion)


def _bounded(sizes: dict[int, Any], most: dict[str, int]) -> dict[int, Any]:
    """Return varying dimensions with upper bounds. Those of an item are fixed."""
    return {
        axis: Dim(size.__name__, min=size.min, max=most[size.__name__])
        for axis, size in sizes.items()
        if size is not Dim.AUTO
    }


def _at_least(least: int, name: str, value: Any) -> int:
    """Return an integer that reaches a bound, or raise."""
    if positive_integer(name, value) < least:
        raise ValueError(f"{name}: expected an integer of at least {least}, got {value}")
    return int(value)


@contextmanager
def _executorch_is_noisy() -> Iterator[None]:
    """Hide warnings of executorch and of its packages about their own code."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


# Rewritten operators. Each function has the signature of the operator, and may leave a call as it is.


def _frexp(x: Tensor) -> tuple[Tensor, Tensor]:
    size = x.abs()
    power = torch.floor(torch.log2(size)) + 1.0
    half = torch.floor(0.5 * power)  # one factor could overflow
    mantissa = x * torch.pow(2.0, -half) * torch.pow(2.0, half - power)
    # The logarithm is rounded.
    over, under = mantissa.abs() >= 1.0, mantissa.abs() < 0.5
    mantissa = torch.where(over, 0.5 * mantissa, torch.where(under, 2.0 * mantissa, mantissa))
    power = torch.where(over, power + 1.0, torch.where(under, power - 1.0, power))
    is_ordinary = (size > 0.0) & (size < torch.inf)
    return torch.where(is_ordinary, mantissa, x), torch.where(is_ordinary, power, 0.0).to(torch.int32)


def _shift(x: Tensor, bits: int) -> Tensor:
    return torch.div(x, 2**bits, rounding_mode="floor")


def _take(x: Tensor, index: Tensor) -> Tensor:
    return x.reshape(-1).index_select(0, index.reshape(-1)).reshape(index.shape)


def _searchsorted(ordered: Tensor, x: Tensor, **options: Any) -> Any:
    is_plain = ordered.dim() == 1 and not any(options.values())
    return (ordered < x.unsqueeze(-1)).sum(-1) if is_plain else NotImplemented


def _sort(x: Tensor, dim: int = -1, descending: bool = False) -> Any:
    return torch.topk(x, x.size(dim), dim, descending, True)


def _convert(x: Tensor, dtype: torch.dtype) -> Tensor:
    return aten._to_copy.default(x, dtype=dtype)


def _sum(x: Tensor, dim: list[int] | None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Any:
    # A sum over one dimension has a float32 accumulator, also for float64 and int64; one over two dimensions has not.
    if x.dim() == 0 or dim is None or len(dim) != 1:
        return NotImplemented
    first = dim[0] % x.dim()
    found = aten.sum.dim_IntList(x.unsqueeze(first), [first, first + 1], dtype=dtype)
    return found.unsqueeze(first) if keepdim else found


def _cat(tensors: list[Tensor], dim: int = 0) -> Any:
    # The kernel copies bytes, also of another dtype.
    dtype = functools.reduce(torch.promote_types, [x.dtype for x in tensors])
    if all(x.dtype == dtype for x in tensors):
        return NotImplemented
    return torch.cat([x.to(dtype) for x in tensors], dim)


def _with_number(name: str) -> Callable[..., Any]:
    """Return a rewriting of an operator for an argument that is a number.

    ExecuTorch rounds such a number to float32. The operator of a tensor and a number keeps it.
    """
    by_number = getattr(aten, name).Scalar

    def rewritten(x: Any, y: Any, **options: Any) -> Any:
        if not isinstance(y, Tensor) and isinstance(y, (int, float)):
            return by_number(x, y, **options)
        if isinstance(x, (int, float)) and name == "sub" and not options:
            return aten.add.Scalar(-y, x)
        if isinstance(x, (int, float)) and name in ("add", "mul") and not options:
            return by_number(y, x)
        return NotImplemented

    return rewritten


REWRITTEN: dict[Any, Callable[..., Any]] = {
    aten.frexp.Tensor: _frexp,
    aten.__rshift__.Scalar: _shift,
    aten.take.default: _take,
    aten.searchsorted.Tensor: _searchsorted,
    aten.sort.default: _sort,
    torch.ops.prims.convert_element_type.default: _convert,
    aten.sum.dim_IntList: _sum,
    aten.diagonal_scatter.default: diagonal_scatter,
    aten.cat.default: _cat,
    **{getattr(aten, name).Tensor: _with_number(name) for name in ("add", "sub", "mul", "div")},
}
