"""The public convex learners, found by walking the public API, and how tests build and feed them.

A learner is covered the moment it is exported. If its constructor needs an argument that no other learner needs, name a
value for it in ``REQUIRED``; if it has options that change its path through the code, name them in ``VARIANTS``.
"""

import functools
import inspect
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tests.convex_toys import Descent, Mixture
from tests.learners import public_classes
from torchonline.convex.domains import Box, CrossPolytope, Simplex
from torchonline.convex.learner import ConvexLearner


def damped(gradient: Tensor) -> Tensor:
    """A hint of our own, by a function that only tensors know."""
    return torch.tanh(0.5 * gradient)


DIM = 3
BOX = Box(torch.tensor([-0.1, -1.0, 0.0], dtype=torch.float64), torch.tensor([0.1, 0.5, 0.3], dtype=torch.float64))
BATCH_SHAPES: tuple[tuple[int, ...], ...] = ((), (2,))
# One learner and a batch on NumPy views, and a batch on tensors, as large ones run.
LAYOUTS: list[dict[str, Any]] = [{"batch_shape": ()}, {"batch_shape": (2,)}, {"batch_shape": (2,), "views": False}]
REQUIRED: dict[str, Any] = {
    "dim": DIM,
    "experts": DIM,
    "lipschitz": 1.0,
    "horizon": 256,
    "rate": 0.02,
    "ranges": (1.0, 2.0, 4.0),
    "radius_bound": 0.5,
}
# What a state depends on, and values that others would have learnt it with.
OTHERS: dict[str, tuple[Any, ...]] = {
    "dim": (DIM + 1,),
    "experts": (DIM + 1,),
    "lipschitz": (1.5,),
    "horizon": (4096,),
    "rate": (0.03,),
    "ranges": ((1.0, 2.0, 5.0), (1.0, 2.0)),
    "radius_bound": (7.0,),
    "length_scale": (3.0,),
    "gradient_scale": (3.0,),
    "step_size": (3.0,),
    "step_scale": (3.0,),
    "initial_distance": (3.0,),
    "momentum": (0.5,),
    "smoothness": (3.0,),
    "prior": ((1.0, 1.0, 3.0),),
    "restarts": (True, False),
    "domain": (Simplex(DIM, radius=2.0), None),
    "per_coordinate": (True, False),
    "initial_wealth": (3.0,),
    "preset": ("default", "paper", "scaled", "tight"),
    "meta": ("values", "linear", "paper"),
    "schedule": ("sqrt", "constant", "recursive", "minimum"),
    "form": ("eigen", "frozen", "sketch", "norm", "diagonal"),
}
# The options that change the path through the code; a class that is not named comes as it is.
VARIANTS: dict[str, list[dict[str, Any]]] = {
    "OONS": [
        {},
        {"radius_bound": 0.5},
        {"radius_bound": 0.5, "preset": "paper", "hint": "zero"},
        {"preset": "scaled", "hint": torch.tensor([0.1, -0.2, 0.3]), "length_scale": 2.0},
        {"radius_bound": 0.5, "preset": "tight", "form": "frozen"},
        {"form": "frozen"},
        {"radius_bound": 0.5, "form": "sketch", "sketch_size": 2},
        {"hint": damped},
        {"domain": BOX, "form": "frozen"},
        {"domain": Simplex(DIM)},
    ],
    "MsMwC": [{}, {"rate": (0.02, 0.1, 0.5), "prior": (1.0, 2.0, 3.0), "preset": "paper"}],
    "MsMwCMaster": [{}, {"preset": "paper"}],
    "CAOONS": [
        {},
        {"horizon": None, "form": "frozen"},
        {"meta": "linear", "preset": "tight", "horizon": None, "form": "sketch", "sketch_size": 2},
        {"meta": "paper", "preset": "paper", "length_scale": 0.25},
        {"domain": BOX, "length_scale": 0.05},
    ],
    "CLAOONS": [
        {},
        {"gradient_scale": 1.0, "length_scale": 0.5},
        {"preset": "paper"},
        {"form": "sketch", "sketch_size": 2},
        {"domain": CrossPolytope(DIM), "length_scale": 0.05},
    ],
    "FreeGrad": [{}, {"lipschitz": 1.0}, {"restarts": False}, {"per_coordinate": True}],
    "OGD": [{}, {"schedule": "constant", "radius_bound": 0.5}],
    "AdaGrad": [{}, {"radius_bound": 0.5}, {"form": "diagonal"}, {"form": "diagonal", "radius_bound": 0.5}],
    "OptimisticOMD": [{}, {"smoothness": 1.0}],
    "OFTRL": [{}, {"smoothness": 1.0}, {"schedule": "minimum"}],
    "ScaleFreeCoinBetting": [{}, {"lipschitz": 1.0, "radius_bound": 0.5}],
    "ParameterFreeMirrorDescent": [{}, {"hint": "zero", "radius_bound": 0.5}],
}


@dataclass(frozen=True)
class ConvexCase:
    """A class with the options that a test builds it with."""

    cls: Any
    options: tuple[tuple[str, Any], ...] = ()

    def build(self, views: bool = True, **common: Any) -> Any:
        """A new learner, which may step on NumPy views; ``common`` are options that all have, such as ``batch_shape``."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "meta: 'paper' has regret linear in the number of rounds")
            learner = self.cls(**required(self.cls) | dict(self.options) | common)
        learner.is_small &= views
        return learner

    def stream(self, count: int, batch_shape: tuple[int, ...] = (), seed: int = 0) -> "list[Loss]":
        """:func:`stream` with losses in the dimensions of this learner, and masks and hints where it takes them."""
        return stream(count, batch_shape, dim_of(self), seed)

    def value_of(self, name: str) -> Any:
        """The value of an option."""
        options = required(self.cls) | dict(self.options)
        return options.get(name, inspect.signature(self.cls).parameters[name].default)

    def __str__(self) -> str:
        options = {name: "tensor" if isinstance(value, Tensor) else value for name, value in self.options}
        shown = ", ".join(f"{name}={getattr(value, '__name__', value)}" for name, value in options.items())
        return f"{self.cls.__name__}({shown})"


def required(cls: type) -> dict[str, Any]:
    """Values for the arguments without a default."""
    parameters = inspect.signature(cls).parameters.values()
    names = [parameter.name for parameter in parameters if parameter.default is inspect.Parameter.empty]
    unknown = set(names) - set(REQUIRED)
    if unknown:
        raise LookupError(f"{cls.__name__} needs {sorted(unknown)}: name values in tests/convex_learners.py, REQUIRED")
    return {name: REQUIRED[name] for name in names}


@functools.cache
def dim_of(case: ConvexCase) -> int:
    """The dimension of what a case builds."""
    return case.build().dim


CLASSES: list[Any] = public_classes(ConvexLearner)
# The toys keep the rules too, and show that a learner made of learners can.
CASES = [
    ConvexCase(cls, tuple(options.items()))
    for cls in (Descent, Mixture, *CLASSES)
    for options in VARIANTS.get(cls.__name__, [{}])
]


@dataclass(frozen=True)
class Loss:
    r"""A smooth convex loss of each learner, :math:`\sqrt{1+(a'x-b)^2}-1`, whose gradients are no longer than a."""

    a: Tensor
    b: Tensor
    hint: Tensor | None = None
    mask: Tensor | None = None

    def gradients(self, queries: Tensor) -> tuple[Tensor, Tensor]:
        """Its gradients and values at ``(*B, N, d)``."""
        residual = (queries.double() * self.a.unsqueeze(-2)).sum(-1) - self.b.unsqueeze(-1)
        root = torch.sqrt(1.0 + residual**2)
        return (residual / root).unsqueeze(-1) * self.a.unsqueeze(-2), root - 1.0

    def of(self, member: tuple[int, ...]) -> "Loss":
        """That of one learner of a batch."""
        return Loss(*(None if x is None else x[member] for x in (self.a, self.b, self.hint, self.mask)))


def stream(count: int, batch_shape: tuple[int, ...], dim: int, seed: int) -> list[Loss]:
    """Losses with gradients of length up to 1, longer ones now and then, ones that are 0, hints and masks."""
    random = np.random.default_rng(seed)
    losses = []
    for t in range(count):
        a = random.uniform(-1.0, 1.0, (*batch_shape, dim)) / np.sqrt(dim)
        a *= 0.0 if t % 17 == 5 else 3.0 if t % 13 == 7 else 1.0
        b = np.asarray(1.0 + random.standard_normal(batch_shape))
        hint = random.uniform(-0.5, 0.5, (*batch_shape, dim)) if t % 7 == 4 else None
        mask = random.random((*batch_shape, dim)) < 0.7 if t % 9 in (3, 6) else None
        if mask is not None:
            mask[..., t % dim] = True
        losses.append(
            Loss(
                *(None if x is None else torch.from_numpy(x).to(torch.get_default_device()) for x in (a, b, hint, mask))
            )
        )
    return losses


def prepare(learner: Any, loss: Loss, dtype: torch.dtype | None = None) -> None:
    """Say before a round what is known of it: a hint now and then, and from time to time who is available."""
    if loss.hint is not None and hasattr(learner, "set_hint"):
        learner.set_hint(loss.hint if dtype is None else loss.hint.to(dtype))
    if loss.mask is not None and hasattr(learner, "set_available"):
        learner.set_available(loss.mask)


def learn(learner: Any, loss: Loss, dtype: torch.dtype | None = None) -> Tensor:
    """One round, of inputs in a type; the decision."""
    prepare(learner, loss, dtype)
    decision = learner.predict()
    gradients, values = loss.gradients(learner.queries())
    learner.step(gradients if dtype is None else gradients.to(dtype), values if dtype is None else values.to(dtype))
    return decision


def play(learner: Any, losses: list[Loss], dtype: torch.dtype | None = None) -> list[Tensor]:
    """Decide and learn, round by round; the decisions."""
    return [learn(learner, loss, dtype) for loss in losses]
