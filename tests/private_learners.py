"""The public private learners, found by walking the public API, and how tests build and feed them."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import torchonline
import torchonline.baselines
from tests.learners import public_classes
from tests.private_tools import queries_of
from torchonline.privacy.learners.bandit import PrivateBandit
from torchonline.privacy.learners.base import PrivateLearner
from torchonline.privacy.learners.frank_wolfe_base import PrivateFrankWolfe

DIM = 3
HORIZON = 30
PROMISE: dict[str, Any] = {"horizon": HORIZON, "epsilon": 1.0, "delta": 1e-3}


@dataclass(frozen=True)
class PrivateCase:
    """A public class with the options that a test builds it with."""

    cls: Any
    options: tuple[tuple[str, Any], ...] = ()

    def build(self, **common: Any) -> Any:
        """A new learner; ``common`` are options that all have, such as ``batch_shape``."""
        return self.cls(DIM, **(PROMISE | dict(self.options) | common))

    @property
    def horizon(self) -> int | None:
        return dict(self.options).get("horizon", HORIZON)

    def __str__(self) -> str:
        return f"{self.cls.__name__}({', '.join(f'{name}={value}' for name, value in self.options)})"


# Options that change the path through the code.
VARIANTS: dict[str, list[dict[str, Any]]] = {
    "DPTOFW": [
        {},
        {"mechanism": "tree"},
        {"mechanism": "honaker"},
        {"mechanism": "sqrt"},
        {"mechanism": "paper", "norm": 1.5},
        {"mechanism": "tree", "noise_source": "discrete"},
        {"noise_source": "csprng"},
        {"scheme": "paper", "norm": float("inf")},
        {"epsilon": float("inf")},
        {"horizon": None},
    ],
    "DPPOFW": [{}, {"mechanism": "gumbel"}, {"mechanism": "laplace", "noise_source": "csprng"}],
    "DPHDB": [
        {"arms": 2, "warmup": 3},
        {"arms": 2, "warmup": 3, "mechanism": "gumbel"},
        {"arms": 2, "warmup": 3, "horizon": None},
    ],
    "DPFTRL": [{}, {"horizon": None}],
    "DPUCB": [{"arms": 2}],
    "FLIPHAT": [{"arms": 2, "nonzeros": 3}],
}
CASES = [
    PrivateCase(cls, tuple(options.items()))
    for cls in public_classes(PrivateLearner, packages=(torchonline, torchonline.baselines))
    for options in VARIANTS.get(cls.__name__, [{}])
]
# Those that learn from gradients at two points and publish in each step: the others have tests of their own besides.
FRANK_WOLFE = [case for case in CASES if issubclass(case.cls, PrivateFrankWolfe)]


def gradients_for(learner: Any, seed: int = 0) -> Tensor:
    """Gradients of a quadratic loss at the learner's queries, of a record drawn anew for each of a batch."""
    generator = torch.Generator().manual_seed(seed)
    target = torch.randn((*learner.batch_shape, 1, learner.dim), generator=generator, dtype=torch.float64)
    return queries_of(learner).double() - target


def record_for(learner: Any, seed: int = 0) -> tuple[Tensor, ...]:
    """What ``step`` takes: gradients, or a context, its arm and what that paid."""
    if not isinstance(learner, PrivateBandit):
        return (gradients_for(learner, seed),)
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn((*learner.batch_shape, learner.dim), generator=generator, dtype=torch.float64)
    return x, learner.select(x), x.sum(-1)


def published(learner: Any) -> Tensor:
    """All real numbers that a learner has published by now, in a row."""
    values = [value.double().flatten() for value in learner.public_state().values() if value.dim()]
    return torch.cat(values)


def run(learner: Any, steps: int, seed: int = 0) -> Tensor:
    """Learn for some steps; all that is published, ``(steps, numbers)``."""
    seen = []
    for step in range(steps):
        learner.step(*record_for(learner, seed + step))
        seen.append(published(learner))
    return torch.stack(seen)


def snapshot(learner: Any) -> dict[str, Tensor]:
    """A copy of all state."""
    return {name: value.clone() for name, value in learner.state_dict().items()}


def differences(before: dict[str, Tensor], after: dict[str, Tensor]) -> list[str]:
    """The names of what is not equal bit for bit, but for tags, which are random."""
    return [name for name in without_tags(before | after) if not torch.equal(before[name], after[name])]


def without_tags(state: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: value for name, value in state.items() if name.rpartition(".")[-1] != "tag"}
