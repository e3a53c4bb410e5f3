"""The learners of the benchmark: their libraries, defaults and grids. Every library has the same number of settings to tune."""

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import ours
import ridges
import rivals

Options = dict[str, Any]


@dataclass(frozen=True)
class Learner:
    """A library in the benchmark.

    ``make(dim, actions, rewards, seed, **options)`` returns a learner. If ``is_batch``, ``make(dim, actions, rewards, seeds,
    options)``, with lists, returns all members at once. Tables show the settings ``shown`` beside the default. ``features`` is
    raw for a learner that scales features itself, and ``constant`` says whether a learner needs a column of ones. A learner that
    is ``standard_only`` is not played on raw features. A learner ``by_theory`` plays on the development sets only, because it
    takes long on the largest ones.
    """

    make: Callable[..., Any]
    default: Options = field(default_factory=dict)
    shown: tuple[Options, ...] = ()
    grid: tuple[Options, ...] = ()
    package: str = "torchonline"
    features: str = "standard"
    constant: bool = True
    is_batched: bool = False
    is_linear_rival: bool = False
    by_theory: bool = False
    standard_only: bool = False
    noises: tuple[str, ...] = ("none", "pareto")

    def is_installed(self) -> bool:
        return importlib.util.find_spec(self.package) is not None


def grid(**options: tuple[Any, ...]) -> tuple[Options, ...]:
    return tuple(dict(zip(options, values, strict=True)) for values in product(*options.values()))


def setting(options: Options) -> str:
    """Return the name of a setting."""
    return ", ".join(f"{name} {value}" for name, value in options.items()).replace("explore --", "") or "default"


RADII, RIDGES = (0.1, 0.2, 0.5, 1.0), (0.1, 1.0, 10.0)
# river's learner adds 1/beta to the squared width and has radius 1; prior precision alpha is ridge times beta.
RIVER = tuple({"alpha": round(r / a**2, 6), "beta": round(1.0 / a**2, 6)} for a in RADII for r in RIDGES)
EXPLORE = ("--epsilon 0.05", "--squarecb", "--bag 5", "--softmax --lambda 10", "--cover 3")
OURS = grid(radius_scale=(0.15, 0.3, 0.6, 1.2), ridge=(0.2, 1.0, 5.0))

LEARNERS = {
    "torchonline.bandit": Learner(
        ours.TorchOnline,
        shown=({"magnitudes": False}, {"kind": "real"}),
        grid=OURS,
        features="raw",
        constant=False,
    ),
    "torchonline Greedy": Learner(ours.Greedy, features="raw", constant=False),
    "torchonline, scales known": Learner(ours.ScalesKnown, constant=False, standard_only=True),
    "VW": Learner(
        rivals.VW,
        default={"explore": EXPLORE[0]},
        shown=grid(explore=EXPLORE[1:]),
        # cover is left out: by default it was the worst on the development sets.
        grid=grid(explore=EXPLORE[:4], rate=(0.5, 2.0, 10.0)),
        package="vowpalwabbit",
        constant=False,
        is_linear_rival=True,
    ),
    "MABWiser LinUCB": Learner(
        rivals.MABWiser,
        shown=grid(alpha=(0.1, 0.5), l2_lambda=(1.0,)),
        grid=grid(alpha=RADII, l2_lambda=RIDGES),
        package="mabwiser",
        is_linear_rival=True,
    ),
    "river LinUCB": Learner(rivals.River, grid=RIVER, package="river", is_linear_rival=True),
    "NumPy LinUCB": Learner(
        ridges.LinUCB, grid=grid(alpha=RADII, ridge=RIDGES), package="numpy", is_batched=True, is_linear_rival=True
    ),
    "LinUCB, magnitudes": Learner(
        ridges.MagnitudesLinUCB,
        grid=grid(alpha=RADII, ridge=RIDGES),
        package="numpy",
        is_batched=True,
        standard_only=True,
    ),
    "neural-linear": Learner(
        rivals.NeuralLinear,
        grid=grid(rate=(1e-3, 3e-3, 1e-2), steps=(100, 200), radius=(0.0, 0.1)),
        package="torch",
    ),
    "OFUL, by its theory": Learner(ours.Head, default={"policy": "OFUL"}, by_theory=True),
    "AnytimeHeavyTailUCB, by its theory": Learner(ours.Head, default={"policy": "AnytimeHeavyTailUCB"}, by_theory=True),
    # Its link wants rewards in [0, 1].
    "LocalGLB, by its theory": Learner(
        ours.Head, default={"policy": "LocalGLB", "feature_bound": 100.0}, by_theory=True, noises=("none",)
    ),
}
# What is compared with the best rival, with the same estimators without exploration, and with the rivals' advantage.
OURS_BY_DEFAULT, GREEDY, KNOWN = "torchonline.bandit", "torchonline Greedy", "torchonline, scales known"
WITH_MAGNITUDES, NEURAL = "LinUCB, magnitudes", "neural-linear"
