"""ONNX graphs of a policy's functions."""

import logging
import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.utils._pytree import tree_map

from torchonline.core.generators import generators_left_alone
from torchonline.core.messages import listed
from torchonline.export.compiled import torch_warns_about_itself
from torchonline.export.functions import FUNCTIONS, State, given_to, shapes_for
from torchonline.export.verification import FixedTrial, PolicyTrial

aten = torch.ops.aten
# The place of the number in operators that fill a tensor.
FILLED = {aten.full.default: 1, aten.full_like.default: 1, aten.scalar_tensor.default: 0}
# Powers of two up to 2^MOST, and down to 2^-MOST.
MOST = 540


class ForONNX(torch.fx.Interpreter):
    """Run of a graph with operators that ONNX has.

    Floating-point numbers become tensors, because torch's exporter rounds numbers to single precision, but not tensors. Both
    branches of a condition run.
    """

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        if target is torch.ops.higher_order.cond:
            condition, *branches, operands = args
            yes, no = (ForONNX(branch).run(*operands) for branch in branches)
            return tree_map(lambda one, other: torch.where(condition, one, other), yes, no)
        if target is aten.frexp.Tensor:
            return mantissa(*args), None
        if target is aten.linalg_vector_norm.default and args[1] in (2.0, math.inf):
            x, power, *axes = args
            return x.abs().amax(*axes) if power == math.inf else (x * x).sum(*axes).sqrt()
        if target is aten.any.dim:  # an empty one is True as a largest number
            return args[0].to(torch.int64).sum(*args[1:]) > 0
        if target is aten.sum.dim_IntList and args[0].dtype == torch.int64:  # onnxruntime does not wrap around
            upper, lower = (part.sum(*args[1:]) for part in (args[0] >> 32, args[0] & 0xFFFFFFFF))
            return upper * (1 << 32) + lower
        if target is aten.copy.default:  # which the exporter does not broadcast
            return args[1].to(args[0].dtype).expand(args[0].shape)
        if target is aten.diagonal_scatter.default:  # torch's decomposition writes in place
            found = diagonal_scatter(*args)
            if found is not NotImplemented:
                return found
        if target is aten.where.self and args[1].dtype == torch.bool:  # which onnxruntime lacks
            return (args[0] & args[1]) | (~args[0] & args[2])
        found = super().call_function(target, args, kwargs)
        if not isinstance(found, Tensor) or not any(isinstance(one, float) for one in (*args, *kwargs.values())):
            return found
        dtype = next((one.dtype for one in args if isinstance(one, Tensor) and one.is_floating_point()), found.dtype)
        if dtype != torch.float64:
            return found
        args, kwargs = tree_map(
            lambda one: torch.tensor(one, dtype=dtype) if isinstance(one, float) else one, (args, kwargs)
        )
        if target in FILLED:
            return args[FILLED[target]].to(found.dtype).expand(found.shape)
        if target is aten.scatter.value:
            return aten.scatter.src(*args[:3], args[3].expand_as(args[2]))
        return target.overloadpacket(*args, **kwargs)


class Graph(nn.Module):
    """Program as a module, with operators that ONNX has."""

    def __init__(self, program: ExportedProgram) -> None:
        super().__init__()
        self._run = ForONNX(program.run_decompositions().module(check_guards=False)).run

    def forward(self, state: State, *arguments: Tensor) -> Any:
        return self._run(state, *arguments)


def diagonal_scatter(x: Tensor, diagonal: Tensor, offset: int = 0, one: int = 0, other: int = 1) -> Any:
    """Return square matrices, the last two dimensions, with other diagonals.

    It is ``NotImplemented`` for other arguments of ``torch.diagonal_scatter``.
    """
    last = {one % x.dim(), other % x.dim()} == {x.dim() - 2, x.dim() - 1}
    if not last or offset != 0 or x.size(-1) != x.size(-2):
        return NotImplemented
    place = torch.arange(x.size(-1), device=x.device)
    return torch.where(place == place.unsqueeze(-1), diagonal.unsqueeze(-1), x)


def mantissa(x: Tensor) -> Tensor:
    """Return the first result of ``torch.frexp``, exactly."""
    size = x.abs()
    is_ordinary = (size > 0.0) & (size <= torch.tensor(torch.finfo(x.dtype).max, dtype=x.dtype))
    power = torch.where(is_ordinary, size, 1.0).log2().floor() + 1.0
    half = (0.5 * power).floor()
    twos = torch.tensor([2.0**n for n in range(-MOST, MOST + 1)], dtype=x.dtype)
    for part in (half, power - half):
        x = x * twos[MOST - part.to(torch.int64)]
    # The logarithm may be rounded to the next power.
    return torch.where(x.abs() >= 1.0, 0.5 * x, torch.where(x.abs() < 0.5, 2.0 * x, x))


def graphs_of(programs: dict[str, ExportedProgram], trial: PolicyTrial | FixedTrial, learner: str) -> dict[str, bytes]:
    """Return the functions of a policy as ONNX graphs, without a random ``select``.

    The inputs are the state's buffers and the arguments, by name. ``start`` returns the buffers, ``select`` the ``choices``, and
    ``step`` returns ``learnt`` and ``next.NAME`` for each buffer.

    Raises:
        ValueError: the scores are random, or ONNX lacks an operation. The error names the ``learner``.
    """
    if draws(programs["scores"]):
        raise ValueError(f"module: expected a policy with deterministic scores, got {learner}")
    state, shapes = list(programs["start"].module()()), trial.named(trial.dynamic_shapes())
    graphs = {"start": _graph(programs["start"], [], state)}
    for name, function in FUNCTIONS.items():
        if draws(programs[name]):
            continue
        given = given_to(function, trial)
        with torch.no_grad(), generators_left_alone():
            program = torch.export.export(
                Graph(programs[name]),
                programs[name].example_inputs[0],
                dynamic_shapes=shapes_for(state, given, shapes),
                strict=False,
            )
        following = [f"next.{one}" for one in state] if function.changes else []
        try:
            graphs[name] = _graph(program, [*state, *given], [function.result, *following])
        except RuntimeError as error:
            if not (
                lacking := sorted(set(re.findall(r"No ONNX function found for <OpOverload\(op='([\w.]+)'", str(error))))
            ):
                raise
            wanted = f"expected operations that ONNX has, got a {learner}, which needs {listed(lacking, str)}"
            raise ValueError(f"module: {wanted}") from error
    return graphs


def draws(program: ExportedProgram) -> bool:
    """Return whether a program draws random numbers."""
    return any(_is_random(node) for node in program.graph.nodes if isinstance(node.target, torch._ops.OpOverload))


def _is_random(node: torch.fx.Node) -> bool:
    """Return whether an operator draws numbers. Dropout in evaluation does not."""
    operator: Any = node.target
    if torch.Tag.nondeterministic_seeded not in operator.tags:
        return False
    names = {argument.name: argument.default_value for argument in operator._schema.arguments}
    given = names | dict(zip(names, node.args, strict=False)) | node.kwargs
    return given.get("dropout_p") != 0.0 and given.get("train") is not False


@contextmanager
def silent(*names: str) -> Iterator[None]:
    """Hide the warnings that loggers of exporters give about their own code."""
    loggers = [logging.getLogger(name) for name in names]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _graph(program: ExportedProgram, inputs: list[str], outputs: list[str]) -> bytes:
    with torch_warns_about_itself(), generators_left_alone(), silent("torch.onnx", "onnx_ir"):
        graph: Any = torch.onnx.export(
            program, input_names=inputs, output_names=outputs, dynamo=True, optimize=False, verbose=False
        )
    return graph.model_proto.SerializeToString()
