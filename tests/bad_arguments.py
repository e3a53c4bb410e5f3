"""Arguments that no learner may accept, made from ones that it must."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

import torchonline
from torchonline.convex.domains import Box, NuclearBall, Simplex
from torchonline.regression.estimator import Estimator
from torchonline.testing.arguments import Bad, no_floats, no_values, with_last, wrong_shapes
from torchonline.testing.tools import complaint

__all__ = ["complaint", "no_floats", "no_values", "with_last", "wrong_shapes"]  # also of torchonline.testing

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
    "corruption": [-1.0, *NOT_FINITE, *NOT_A_NUMBER],
    "zero_odds": [-1.0, *NOT_FINITE, *NOT_A_NUMBER],
    "delta": [0.0, 1.0, 2.0, -0.1, *NOT_FINITE, *NOT_A_NUMBER],
    "corrupted_rounds": [-1, 1.5, True, "3", None, math.nan],
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
    "scale": ["Posterior", "radius", "", None, 1.0, True],
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
