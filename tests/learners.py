"""The public learners, found by walking the public API, and how tests build and feed them.

A learner is covered the moment it is exported. If its constructor needs an argument that no other learner needs, name a
value for it in ``REQUIRED``; if it has an option that changes its path through the code, name the values in ``VARIANTS``.
"""

import functools
import inspect
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Self, get_args

import numpy as np
import torch
from torch import Tensor, nn

import torchonline
import torchonline.baselines
from torchonline.baselines.generalized_linear.likelihood import LikelihoodEstimator
from torchonline.policies.exploration import Exploration
from torchonline.policies.rules import Rule
from torchonline.regression.estimator import Estimator
from torchonline.regression.glm.base import GeneralizedEstimator
from torchonline.testing.subject import BATCH_SHAPES, DeciderSubject, EstimatorSubject, Subject
from torchonline.testing.tools import close, differences, same, snapshot, snapshot_of_script


def cosh(z: Tensor) -> Tensor:
    """The log-partition of a link of our own, and its slope."""
    return torch.cosh(z)


def sinh(z: Tensor) -> Tensor:
    """The mean of that link."""
    return torch.sinh(z)


__all__ = [
    "BATCH_SHAPES",
    "close",
    "differences",
    "same",
    "snapshot",
    "snapshot_of_script",
]  # also of torchonline.testing

DIM = 3
REQUIRED: dict[str, Any] = {"dim": DIM, "horizon": 2000, "outputs": 2, "discount": 0.9, "feature_bound": 10.0}
PACKAGES = (torchonline, torchonline.baselines)
MEAN_ONLY = (torchonline.Greedy, Exploration)
VARIANTS: dict[str, tuple[Any, ...]] = {
    "moment_order": (1.5,),
    "noise": ("symmetric",),
    "restart_every": (8,),  # of which the window of rule 5 holds four
    "horizon": (None,),
    "floor": (0.2,),
    "repeats": (1, 2),
    "corruption": (50.0,),
    "link": (
        torchonline.Gaussian(0.5),
        torchonline.Binomial(5),
        torchonline.Poisson(),
        torchonline.Gamma(12.0, shape=2.0),
        torchonline.CustomLink(cosh, sinh, cosh, R=1.0, C_mu=12000.0),
    ),
}


@dataclass(frozen=True)
class Case:
    """A public class with the options that a test builds it with."""

    cls: type[nn.Module]
    options: tuple[tuple[str, Any], ...] = ()
    # What a policy stands on, where its constructor asks for an estimator.
    over: Self | None = None

    def build(self, **common: Any) -> nn.Module:
        """A new learner; ``common`` are options that all learners have, such as ``batch_shape``."""
        if self.over is not None:
            return self.cls(self.over.build(**common), **dict(self.options))
        return self.cls(**{name: REQUIRED[name] for name in needed(self.cls)} | dict(self.options) | common)

    @property
    def subject(self) -> Subject:
        """What the contract checks."""
        return _subject(self)

    @property
    def output_shape(self) -> tuple[int, ...]:
        """What a response is shaped like: ``()`` for a reward, ``(n,)`` for n outputs."""
        return (REQUIRED["outputs"],) if "outputs" in inspect.signature(self.cls).parameters else ()

    @property
    def decides(self) -> bool:
        """Whether it is a policy, and no regression."""
        return issubclass(self.cls, Rule)

    @property
    def response(self) -> str:
        """What ``step`` calls the response."""
        return getattr(self.cls, "response", "reward")

    def stream(self, count: int, **options: Any) -> "list[Round]":
        """:func:`stream` with responses of this learner's shape."""
        rounds = stream(count, output_shape=self.output_shape, **options)
        return [replace(round_, reward=self.possible(round_.reward)) for round_ in rounds]

    def possible(self, values: Tensor) -> Tensor:
        """What this learner may be given for a response, made of any numbers."""
        return _any_of(self).possible_reward(values) if self.output_shape == () else values

    def __str__(self) -> str:
        inside = [] if self.over is None else [str(self.over)]
        return f"{self.cls.__name__}({', '.join(inside + [f'{name}={value}' for name, value in self.options])})"


@functools.cache
def _subject(case: Case) -> Subject:
    """The subject of a case, one object for all rules."""
    return (DeciderSubject if case.decides else EstimatorSubject)(case.build, name=str(case))


@functools.cache
def _any_of(case: Case) -> Any:
    """An estimator as the case builds it."""
    return estimator_of(case.build())


def required(cls: type[nn.Module]) -> list[str]:
    """The names of the arguments without a default."""
    parameters = inspect.signature(cls).parameters.values()
    names = [parameter.name for parameter in parameters if parameter.default is inspect.Parameter.empty]
    unknown = set(names) - set(REQUIRED) - {"estimator"}
    if unknown:
        raise LookupError(f"{cls.__name__} needs {sorted(unknown)}: name values in tests/learners.py, REQUIRED")
    return names


@functools.cache
def needed(cls: type[nn.Module]) -> list[str]:
    """What is required, and room for the features of :func:`stream` where long ones are refused."""
    names = required(cls)
    built = cls(**{name: REQUIRED[name] for name in names})
    return names + (["feature_bound"] if isinstance(estimator_of(built), GeneralizedEstimator) else [])


def public_classes(*kinds: type, packages: tuple[Any, ...] = PACKAGES) -> list[type[nn.Module]]:
    """The classes of some kinds that ``torchonline`` exports, and ``torchonline.baselines``."""
    public = (getattr(package, name) for package in packages for name in package.__all__)
    return [value for value in public if isinstance(value, type) and issubclass(value, kinds) and value not in kinds]


def takes_none(parameter: inspect.Parameter) -> bool:
    """Whether an argument may be None, by its annotation."""
    return type(None) in get_args(parameter.annotation)


def variants(cls: type[nn.Module]) -> Iterator[Case]:
    """A class as it comes, and once more for each option value that changes its path."""
    yield Case(cls)
    for name, parameter in inspect.signature(cls).parameters.items():
        values = VARIANTS.get(name, ())
        # A rival has no business with links of its own: one of them shows that it takes what it is given.
        if name == "link" and cls.__name__ in torchonline.baselines.__all__:
            values = values[-1:]
        # Those that fit all rounds anew, which takes time, show it in tests of their own.
        if name == "link" and issubclass(cls, LikelihoodEstimator):
            values = ()
        for value in values:
            if value is not None or takes_none(parameter):
                yield Case(cls, ((name, value),))


def estimator_of(learner: nn.Module) -> Any:
    """A policy's estimator, or the estimator itself."""
    return learner.estimator if hasattr(learner, "select") else learner


def is_plain(cls: type[nn.Module]) -> bool:
    """Whether a rival's class only names what UCB stands on."""
    own = {name for name, value in vars(cls).items() if inspect.isfunction(value)}
    return cls.__name__ in torchonline.baselines.__all__ and cls.__base__ is torchonline.UCB and own == {"__init__"}


def policies() -> Iterator[Case]:
    """Every named bandit, and every policy over every estimator of one response that it does not stand on by name.

    Greedy and what explores without the width ask an estimator for its mean only: two kinds of that will do. A rival that is UCB
    over an estimator and says nothing of its own is covered by UCB and by that estimator.
    """
    named = [cls for cls in public_classes(Rule) if "estimator" not in inspect.signature(cls).parameters]
    yield from (Case(cls) for cls in named if not is_plain(cls))
    stood_on = {(cls.__mro__[1], type(estimator_of(Case(cls).build()))) for cls in named}
    for cls in public_classes(Rule):
        if cls not in named:
            for base in public_classes(Estimator, packages=(torchonline,)):
                few = issubclass(cls, MEAN_ONLY) and base.__name__ not in ("RidgeRegression", "LocalGLMRegression")
                if (cls, base) not in stood_on and not few and not Case(base).output_shape:
                    yield replace(Case(cls), over=Case(base))


MODELS = [case for cls in public_classes(Estimator) for case in variants(cls)]
POLICIES = list(policies())
CASES = MODELS + POLICIES


@dataclass(frozen=True)
class Round:
    """One decision and its reward, or what else is learnt from it, for each learner of a batch."""

    arms: Tensor
    reward: Tensor
    noise_scale: Tensor

    def to(self, dtype: torch.dtype) -> "Round":
        return Round(self.arms.to(dtype), self.reward.to(dtype), self.noise_scale.to(dtype))


def stream(
    count: int,
    *,
    batch_shape: tuple[int, ...] = (),
    output_shape: tuple[int, ...] = (),
    dim: int = DIM,
    seed: int = 0,
) -> list[Round]:
    """Rounds with two to five arms, heavy-tailed rewards, noise scales that vary, and zero features now and then."""
    random = np.random.default_rng(seed)
    rounds = []
    for t in range(count):
        arms = random.standard_normal((*batch_shape, 2 + t % 4, dim))
        if t % 17 == 5:
            arms[...] = 0.0
        shape = (*batch_shape, *output_shape)
        values = (arms, random.standard_t(1.5, shape), random.uniform(0.2, 2.0, shape))
        device = torch.get_default_device()
        rounds.append(Round(*(torch.from_numpy(np.asarray(value)).to(device) for value in values)))
    return rounds


def chosen(arms: Tensor, index: Tensor) -> Tensor:
    """The features of the chosen arms: ``(*B, K, d)`` and ``(*B)`` to ``(*B, d)``."""
    where = index[..., None, None].expand(*index.shape, 1, arms.size(-1))
    return arms.gather(-2, where).squeeze(-2)


def decide(learner: Any, round_: Round) -> Tensor:
    """What a policy chooses, under a seed of its own; an estimator takes the first arm."""
    if not hasattr(learner, "select"):
        return torch.zeros(round_.arms.shape[:-2], dtype=torch.int64)
    torch.manual_seed(round_.arms.size(-2))
    return learner.select(round_.arms)


def round_of(learner: Any, x: Tensor, response: Tensor) -> tuple[Tensor, ...]:
    """The arguments of ``step`` and ``learn`` for features of what was chosen: to a policy they are the only arms."""
    if not hasattr(learner, "select"):
        return x, response
    return x.unsqueeze(-2), torch.zeros(x.shape[:-1], dtype=torch.int64, device=x.device), response


def teach(learner: Any, round_: Round, index: Tensor) -> None:
    """Learn from a round: a policy gets all arms and which was chosen, an estimator the features of the chosen one."""
    if hasattr(learner, "select"):
        learner.step(round_.arms, index, round_.reward, noise_scale=round_.noise_scale)
    else:
        learner.step(chosen(round_.arms, index), round_.reward, noise_scale=round_.noise_scale)


def by_name(call: Any, *arguments: Any, **options: Any) -> Any:
    """Call a method with its arguments by name, in the order of its signature."""
    names = [name for name in inspect.signature(call).parameters if name != "self"]  # a script's method names it
    return call(**dict(zip(names, arguments, strict=False)), **options)


def play(learner: Any, rounds: list[Round]) -> list[Tensor]:
    """Decide and learn, round by round; the decisions."""
    decisions = []
    for round_ in rounds:
        index = decide(learner, round_)
        teach(learner, round_, index)
        decisions.append(index)
    return decisions
