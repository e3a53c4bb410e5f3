"""Arguments that no learner may accept, made from ones that it must."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import torchonline
from tests.learners import DIM
from torchonline.convex.domains import Box, NuclearBall, Simplex
from torchonline.regression.estimator import Estimator

Bad = tuple[str, str, dict[str, Any]]

NOT_A_NUMBER = ["1", None, [1.0], True, 1j]
NOT_FINITE = [math.nan, math.inf, -math.inf]
NO_WORD = ["theory", "", "Default", None, 1.0, True]
NOT_POSITIVE = [0.0, -1.0, *NOT_FINITE, *NOT_A_NUMBER]

# For each argument of a constructor, values that no learner may take.
BAD_OPTIONS: dict[str, list[Any]] = {
    "dim": [0, -1, 1.5, True, "3", None, math.nan, (3,)],
    "outputs": [0, -1, 1.5, True, "3", None, math.nan, (3,)],
    "horizon": [0, -5, 10.5, True, "9", None],
    "restart_every": [0, -5, 10.5, True, "9", 8.0],
    "discount": [0.0, 1.0, 0.5, -0.9, *NOT_FINITE, *NOT_A_NUMBER],
    "noise_scale": [-1.0, *NOT_FINITE, *NOT_A_NUMBER],
    "theta_bound": NOT_POSITIVE,
    "feature_bound": NOT_POSITIVE,
    "ridge": NOT_POSITIVE,
    "floor": NOT_POSITIVE,
    "ceiling": NOT_POSITIVE,
    "delta": [0.0, 1.0, 2.0, -0.1, *NOT_FINITE, *NOT_A_NUMBER],
    "alpha": NOT_POSITIVE,
    "minimum_scale": NOT_POSITIVE,
    "groups": [0, -5, 10.5, True, "9"],
    "repeats": [0, -5, 10.5, True, "9", None],
    **dict.fromkeys(
        (
            "truncation",
            "radius_factor",
            "moment_factor",
            "ridge_factor",
            "scale_factor",
            "linear_factor",
            "threshold_factor",
            "warm_up_factor",
        ),
        NOT_POSITIVE,
    ),
    "moment_order": [1.0, 2.1, 0.5, 0.0, *NOT_FINITE, *NOT_A_NUMBER],
    "growth": [1.0, 0.5, 0.0, -2.0, *NOT_FINITE, *NOT_A_NUMBER],
    "noise": ["gaussian", "", "Moment", None, 1.0],
    "radius": ["theory", "", None, 1.0],
    "radius_scale": NOT_POSITIVE,
    "batch_shape": [3, "23", (0,), (-1,), (2.0,), (True,), None, {2}],
    "dtype": [torch.float16, torch.bfloat16, torch.int64, torch.complex64, "float64", np.float64, None],
    "device": ["nowhere", 1.5],
    "validate": [1, 0, None, "yes"],
    "link": ["logistic", 1.0, torch.sigmoid, torch.nn.Sigmoid(), torchonline.Logistic],
    "estimator": [None, "OFUL", torch.nn.Linear(3, 1), Estimator],
    # Of policies that draw, and of the robust regression.
    "draws": [0, -1, 1.5, True, "3", None],
    "epsilon": [0.0, 1.1, -0.1, *NOT_FINITE, *NOT_A_NUMBER],
    **{name: [-1.0, *NOT_FINITE, *NOT_A_NUMBER] for name in ("decay", "exponent")},
    **dict.fromkeys(("gamma", "temperature", "cut"), NOT_POSITIVE),
    "quantile": [0.0, 1.0, 2.0, -0.1, *NOT_FINITE, *NOT_A_NUMBER],
    **{name: [0, -1, 1.5, True, "3", None] for name in ("window", "warmup", "warm_up_rounds")},
    # Of convex learners.
    "experts": [0, -1, 1.5, True, "3", None, math.nan, (3,)],
    "sketch_size": [0, -1, 1.5, True, "3", None],
    **dict.fromkeys(("lipschitz", "length_scale", "gradient_scale", "step_size", "initial_wealth"), NOT_POSITIVE),
    **dict.fromkeys(("step_scale", "initial_distance"), NOT_POSITIVE),
    "momentum": [0.0, 1.0, 2.0, -0.1, *NOT_FINITE, *NOT_A_NUMBER],
    "radius_bound": [0.0, -1.0, math.nan, -math.inf, *NOT_A_NUMBER, (1.0, 2.0), torch.ones(3)],
    "smoothness": [-1.0, *NOT_FINITE, *NOT_A_NUMBER],
    "rate": [*NOT_POSITIVE, (0.1,), (0.1, 0.0, 0.1), (0.1, math.nan, 0.1), torch.ones(2), torch.ones(3, 1)],
    "prior": [1.0, "123", (1.0,), (1.0, 0.0, 1.0), (1.0, math.inf, 1.0), torch.ones(4)],
    "ranges": [1.0, None, "123", (), (1.0, 0.0), (1.0, math.inf), (1.0, "1"), torch.ones(()), torch.ones(2, 2)],
    **{name: [1, 0, None, "yes"] for name in ("recursive_scale", "clip_residuals", "project", "adaptive_scale")},
    "restarts": [1, 0, None, "yes"],
    "per_coordinate": [1, 0, None, "yes"],
    **dict.fromkeys(("meta", "preset", "form", "schedule"), NO_WORD),
    "constants": ["theorem", "", "Program", None, 1.0, True],
    "hint": ["first", "", None, 1.0, True],
    # Of another dimension, without a projection, of one point.
    "domain": ["simplex", 1.0, True, torch.ones(3), Simplex(4), NuclearBall(1, 3), Box(torch.ones(3), torch.ones(3))],
}


class Named(Tensor):
    """A subclass of a tensor, which has values like any other."""


def no_floats(good: Tensor, is_real: bool = False) -> dict[str, Any]:
    """What is no dense floating-point tensor on the learner's device, nor numbers to make one of.

    Tensors of integers and booleans are welcome where ``is_real``, as rewards are.
    """
    ragged = [*good.reshape(-1).tolist(), [0.0, 1.0]]
    return {
        "a string": "features",
        "a list of strings": [str(value) for value in good.reshape(-1).tolist()],
        "a ragged list": ragged,
        "a list with None": [*good.reshape(-1).tolist(), None],
        "a complex number": 1j,
        "a complex NumPy array": good.cpu().numpy().astype(np.complex128),
        "a NumPy array of objects": np.array(good.cpu().numpy(), dtype=object),
        "long integers": np.full(tuple(good.shape), 2**53 + 1, dtype=np.int64),
        "a long integer": 2**53 + 1,
        "complex numbers": good.to(torch.complex128),
        "a sparse tensor": good.to_sparse(),
        "on another device": good.to("meta"),
    } | ({} if is_real else {"integers": good.to(torch.int64), "booleans": good.to(torch.bool)})


def with_last(good: Tensor, value: float) -> Tensor:
    """A copy whose last number is another."""
    bad = good.clone()
    bad.view(-1)[-1] = value
    return bad


def no_values(good: Tensor) -> dict[str, Any]:
    """Values that no feature and no reward may have."""
    return {
        "NaN": with_last(good, torch.nan),
        "infinity": with_last(good, torch.inf),
        "minus infinity": with_last(good, -torch.inf),
        "too large": with_last(good, 1e200),
        "too small": with_last(good, -1e200),
        "NaN that requires grad": with_last(good, torch.nan).requires_grad_(),
        "NaN in a parameter": nn.Parameter(with_last(good, torch.nan)),
        "NaN in a subclass": with_last(good, torch.nan).as_subclass(Named),
        "NaN in a NumPy array": with_last(good, torch.nan).cpu().numpy(),
        "infinity in a list": with_last(good, torch.inf).tolist(),
        "NaN of half precision": with_last(good, torch.nan).half(),
        "infinity of single precision": with_last(good, torch.inf).float(),
    }


def wrong_shapes(good: Tensor, batch_dims: int, features: bool, item_dims: int = 1) -> dict[str, Tensor]:
    """Sizes that fit neither the learner nor the other arguments; a round has features of so many dimensions."""
    shapes = {"a dimension too many": good.unsqueeze(0), "two dimensions too many": good[None, None]}
    if good.dim() > 0:
        shapes |= {"no dimension": good.reshape(-1)[0], "a dimension too few": good.select(0, 0)}
    if features:
        shapes |= {"a feature too few": good[..., 1:], "a feature too many": torch.cat([good, good[..., :1]], -1)}
        shapes |= {"no feature": good[..., :0]}
        # One learner takes (d,) as one round and (n, d) as n rounds: of themselves, both are right.
        if batch_dims == 0:
            del shapes["a dimension too many" if good.dim() == item_dims else "a dimension too few"]
    if batch_dims > 0:
        shapes |= {"of a smaller batch": good[:1], "of a larger batch": torch.cat([good, good[:1]])}
    return shapes


def bad_steps(
    batch_shape: tuple[int, ...],
    rows: tuple[int, ...],
    output_shape: tuple[int, ...] = (),
    response: str = "reward",
    possible: Callable[[Tensor], Tensor] = torch.Tensor.clone,
    arms: int = 0,
) -> Iterator[Bad]:
    """Kinds of bad input to ``step``, the argument to blame, and the arguments: a policy's on so many arms, or a regression's."""
    features, item = ("inputs", (arms, DIM)) if arms else ("x", (DIM,))
    good = {
        features: torch.randn(*batch_shape, *rows, *item, dtype=torch.float64),
        # The last arm, whose features end with what is spoilt.
        **({"action": torch.full((*batch_shape, *rows), arms - 1)} if arms else {}),
        response: possible(torch.randn((*batch_shape, *rows, *output_shape), dtype=torch.float64)),
        "noise_scale": torch.rand((*batch_shape, *rows, *output_shape), dtype=torch.float64) + 0.5,
    }
    for name, value in good.items():
        kinds = no_actions(value, arms) if name == "action" else no_floats(value, name != features) | no_values(value)
        kinds |= wrong_shapes(value, len(batch_shape), name == features, len(item))
        if name != "noise_scale":
            kinds["None"] = None
        else:
            kinds["negative"] = with_last(value, -0.1)
        if rows and name != features:
            at = len(batch_shape)
            row = value.narrow(at, 0, 1)
            kinds |= {"a row too few": value.narrow(at, 1, rows[0] - 1), "a row too many": torch.cat([value, row], at)}
        if output_shape and name != features:
            kinds |= {"an output too few": value[..., 1:], "an output too many": torch.cat([value, value[..., :1]], -1)}
        for kind, bad in kinds.items():
            yield kind, name, good | {name: bad}


def no_actions(good: Tensor, arms: int) -> dict[str, Any]:
    """What is no arm of so many."""
    return {
        "a string": "all",
        "a number": 1.5,
        "True": True,
        "numbers": good.double(),
        "complex numbers": good.to(torch.complex128),
        "booleans": good.bool(),
        "32 bits": good.int(),
        "negative": with_last(good, -1),
        "too large": with_last(good, arms),
        "on another device": good.to("meta"),
    }


def bad_logs(log: dict[str, Tensor], rounds: tuple[int, ...]) -> Iterator[Bad]:
    """Kinds of bad sizes of blocks and masks of ``learn``, the argument to blame, and the arguments.

    ``log`` is what ``learn`` may be given, of ``rounds`` in shape ``(*B, n)``.
    """
    for size in (0, -1, True, 2.5, "3", np.float64(2.0), torch.tensor(3), [3]):
        yield repr(size), "block_size", log | {"block_size": size}
    mask = torch.ones(rounds, dtype=torch.bool)
    masks = {
        "a string": "all",
        "a number": 1.0,
        "True": True,
        "integers": mask.to(torch.int64),
        "numbers": mask.to(torch.float64),
        "a list of integers": mask.int().tolist(),
        "a NumPy array of bytes": mask.byte().cpu().numpy(),
        "on another device": mask.to("meta"),
        "a round too few": mask[..., 1:],
        "a round too many": torch.cat([mask, mask[..., :1]], -1),
        "with the features": mask.unsqueeze(-1).expand(*mask.shape, DIM),
        "no dimension": mask.reshape(-1)[0],
    }
    for kind, bad in masks.items():
        yield kind, "mask", log | {"mask": bad}


def bad_looks(batch_shape: tuple[int, ...]) -> Iterator[tuple[str, Any]]:
    """Kinds of what is no features to look at."""
    good = torch.randn(*batch_shape, 4, DIM, dtype=torch.float64)
    yield "None", None
    yield from no_floats(good).items()
    for kind, bad in wrong_shapes(good, len(batch_shape), features=True).items():
        # Any number of dimensions may stand between a learner's own and the features.
        if batch_shape or kind not in ("a dimension too many", "two dimensions too many", "a dimension too few"):
            yield kind, bad


def bad_selects(batch_shape: tuple[int, ...]) -> Iterator[Bad]:
    """Kinds of bad input to ``select``, the argument to blame, and the arguments."""
    arms = torch.randn(*batch_shape, 4, DIM, dtype=torch.float64)
    kinds = no_floats(arms) | no_values(arms) | wrong_shapes(arms, len(batch_shape), features=True)
    kinds |= {"None": None, "no arm": arms[..., :0, :]}
    # One learner that is given (N, K, d) is given N decisions.
    for extra in ("a dimension too many", "two dimensions too many"):
        if not batch_shape:
            del kinds[extra]
    for kind, bad in kinds.items():
        yield kind, "inputs", {"inputs": bad}
        if isinstance(bad, Tensor) and bad.dim() > 0 and bad.device.type == "cpu" and bad.layout == torch.strided:
            yield (
                f"{kind}, with a mask",
                "inputs",
                {"inputs": bad, "mask": torch.ones(bad.shape[:-1], dtype=torch.bool)},
            )
    mask = torch.ones(*batch_shape, 4, dtype=torch.bool)
    one_without = mask.clone()
    one_without.view(-1, 4)[-1] = False
    masks = {
        "a string": "all",
        "a list of integers": mask.int().tolist(),
        "a NumPy array of bytes": mask.byte().cpu().numpy(),
        "integers": mask.to(torch.int64),
        "numbers": mask.to(torch.float64),
        "bytes": mask.to(torch.uint8),
        "on another device": mask.to("meta"),
        "an arm too few": mask[..., 1:],
        "an arm too many": torch.cat([mask, mask[..., :1]], -1),
        "with the features": mask.unsqueeze(-1).expand(*mask.shape, DIM),
        "no dimension": mask.reshape(-1)[0],
        "nothing available": torch.zeros_like(mask),
        "nothing available in one decision": one_without,
    }
    for kind, bad in masks.items():
        yield kind, "mask", {"inputs": arms, "mask": bad}


def bad_rounds(learner: Any) -> Iterator[Bad]:
    """Kinds of bad input to ``step`` of a convex learner, the argument to blame, and the arguments."""
    batch, one = learner.batch_shape, learner.points == 1
    good = {
        "gradients": torch.rand(*batch, learner.points, learner.dim, dtype=torch.float64) - 0.5,
        "values": torch.rand(*batch, learner.points, dtype=torch.float64),
    }
    for name in ("gradients", "values") if learner.needs_values else ("gradients",):
        value, at = good[name], len(batch)
        point = value.narrow(at, 0, 1)
        kinds = no_floats(value, is_real=name == "values") | no_values(value) | {"None": None}
        kinds |= {"two dimensions too many": value[None, None], "no dimension": value.reshape(-1)[0]}
        kinds |= {"a query too many": torch.cat([value, point], at), "no query": value.narrow(at, 0, 0)}
        if name == "gradients" and learner.response == "gradients":
            bits = torch.zeros_like(value)
            bits[..., 0] = torch.nan
            del kinds["a sparse tensor"]  # which is made dense
            kinds |= {
                "a sparse tensor with NaN": bits.to_sparse(),
                "a sparse tensor of integers": value.to(torch.int64).to_sparse(),
                "a sparse tensor of another shape": value[..., 1:].to_sparse(),
            }
        if name == "gradients":
            kinds |= {
                "a coordinate too few": value[..., 1:],
                "a coordinate too many": value[..., [0, *range(learner.dim)]],
            }
        if batch:
            kinds |= {"of a smaller batch": value[:1], "of a larger batch": torch.cat([value, value[:1]])}
        if not one:
            kinds |= {"a query too few": value.narrow(at, 0, learner.points - 1), "without queries": point.squeeze(at)}
        for kind, bad in kinds.items():
            yield kind, learner.response if name == "gradients" else name, good | {name: bad}


def bad_preparations(learner: Any) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Kinds of bad input to what a convex learner may be told before a round: a method, its argument, and values."""
    batch = learner.batch_shape
    if hasattr(learner, "set_hint"):
        hint = torch.rand(*batch, learner.dim, dtype=torch.float64)
        shapes = {
            "a coordinate too few": hint[..., 1:],
            "a dimension too many": hint.unsqueeze(0),
            "no dimension": hint.sum(),
        }
        yield "set_hint", "hint", {"None": None} | no_floats(hint) | no_values(hint) | shapes
    if hasattr(learner, "set_available"):
        mask = torch.ones(*batch, learner.dim, dtype=torch.bool)
        yield (
            "set_available",
            "mask",
            {
                "None": None,
                "a string": "all",
                "a list of integers": mask.int().tolist(),
                "a NumPy array of bytes": mask.byte().cpu().numpy(),
                "integers": mask.long(),
                "numbers": mask.double(),
                "on another device": mask.to("meta"),
                "an expert too few": mask[..., 1:],
                "an expert too many": torch.cat([mask, mask[..., :1]], -1),
                "a dimension too many": mask.unsqueeze(0),
                "nobody": torch.zeros_like(mask),
                "nobody for one learner": mask
                & (torch.arange(mask.numel()) < learner.dim * (mask[..., 0].numel() - 1)).view_as(mask),
            },
        )


def complaint(label: str, name: str, call: Callable[[], Any]) -> list[str]:
    """Nothing if a call raises ValueError or TypeError that begins with the argument's name; what it did otherwise."""
    try:
        result = call()
    except (ValueError, TypeError) as error:
        return [] if str(error).startswith(f"{name}: expected ") else [f"{label}: {type(error).__name__}: {error}"]
    except Exception as error:
        return [f"{label}: {type(error).__name__}: {str(error).splitlines()[0]}"]
    return [f"{label}: accepted, returned {result}"]
