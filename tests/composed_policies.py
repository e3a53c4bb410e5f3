"""Learners made of a policy and a scaler, and how tests build, ask and teach them."""

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import torchonline
from tests.learners import chosen
from torchonline import (
    UCB,
    AdaptiveRidgeRegression,
    CatalogueArms,
    DisjointArms,
    EpsilonGreedy,
    FixedArms,
    HeavyTailRegression,
    HybridArms,
    LocalGLMRegression,
    RadiusSelector,
    RidgeRegression,
    RobustRidgeRegression,
    ScaledPolicy,
    SharedRadiusSelector,
    StandardScaler,
    ThompsonSampling,
)
from torchonline.models import BanditHead
from torchonline.policies.composed import ComposedPolicy
from torchonline.policies.policy import Policy
from torchonline.testing.subject import DeciderSubject

DIM, ARMS = 3, 4


class MeanPlusWidth(UCB):
    """A user's policy, with scores of its own."""

    def _scores(self, features: Tensor) -> Tensor:
        return self.estimator.predictor(features) + 0.5 * self.estimator.width(features)


@dataclass(frozen=True)
class Case:
    """A composed policy: what it stands on, and the arguments of its parts.

    ``over`` makes a policy or an estimator of so many features. ``scaler`` holds the scaler's options; None is no scaler.
    """

    name: str
    cls: type[ComposedPolicy]
    over: Callable[..., Any]
    scaler: dict[str, Any] | None = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)

    def build(self, **options: Any) -> Any:
        """A new one; ``options`` are those that all learners have."""
        scaler = None if self.scaler is None else StandardScaler(DIM, **self.scaler, **options)
        policy = self.over(DIM if scaler is None else scaler.features, **options)
        if self.cls is ScaledPolicy:
            return ScaledPolicy(policy, scaler)  # type: ignore[arg-type]
        arms = (ARMS,) if self.has_models else ()
        return self.cls(policy, *arms, scaler=scaler, **self.options)  # type: ignore[call-arg]

    decides = True

    @property
    def subject(self) -> DeciderSubject:
        """What the contract checks."""
        return _subject(str(self))

    def inputs(self, *shape: int) -> Tensor:
        """Inputs of decisions, in three units where a scaler reads them."""
        x = torch.randn(*shape, *self.item, dtype=torch.float64)
        return x if self.scaler is None else x * torch.tensor([1.0, 100.0, 0.01]) + torch.tensor([0.0, 30.0, 1.0])

    @property
    def has_models(self) -> bool:
        return issubclass(self.cls, DisjointArms)

    @property
    def item(self) -> tuple[int, ...]:
        """The shape of the inputs of a decision."""
        return (DIM,) if self.has_models else (ARMS, DIM)

    def stream(self, count: int, *, batch_shape: tuple[int, ...] = (), seed: int = 0) -> "list[Round]":
        """Rounds whose features have three units, with heavy-tailed rewards and noise scales that vary."""
        random, rounds = np.random.default_rng(seed), []
        possible = self.build().estimator.possible_reward
        for t in range(count):
            shape = (*batch_shape, *((2 + t % 4, DIM) if self.cls is ScaledPolicy else self.item))
            context = random.standard_normal(shape)
            if self.scaler is not None:
                context = context * [1.0, 100.0, 0.01] + [0.0, 30.0, 1.0]
            values = (context, random.standard_t(2.1, batch_shape), random.uniform(0.2, 2.0, batch_shape))
            context, reward, scale = (torch.from_numpy(np.asarray(value)) for value in values)
            rounds.append(Round(context, possible(reward), scale))
        return rounds

    def learn(self, policy: Any, round_: "Round", index: Tensor) -> None:
        """Teach one round."""
        policy.step(**self.arguments(round_, index))

    def arguments(self, round_: "Round", index: Tensor) -> dict[str, Tensor]:
        """What ``step`` gets in a round in which ``index`` was chosen."""
        given = {"inputs": round_.context, "action": index}
        return given | {"reward": round_.reward, "noise_scale": round_.noise_scale}

    def several(self, rounds: "list[Round]", indices: list[Tensor]) -> dict[str, Tensor]:
        """What ``step`` gets for some rounds at once. Where the numbers of arms vary, the chosen ones are the only arms."""
        dims = rounds[0].reward.dim()
        each = [self.arguments(*both) for both in zip(rounds, indices, strict=True)]
        if self.cls is ScaledPolicy:
            for one in each:
                one["inputs"] = chosen(one["inputs"], one["action"]).unsqueeze(-2)
                one["action"] = torch.zeros_like(one["action"])
        return {name: torch.stack([one[name] for one in each], dims) for name in each[0]}

    def play(self, policy: Any, rounds: "list[Round]") -> list[Tensor]:
        """Decide and learn, round by round; the decisions."""
        decisions = []
        for t, round_ in enumerate(rounds):
            torch.manual_seed(t)
            decisions.append(policy.select(round_.context))
            self.learn(policy, round_, decisions[-1])
        return decisions

    def __str__(self) -> str:
        return f"{self.cls.__name__}({self.name})"


@dataclass(frozen=True)
class Round:
    """The context of a decision, arms or features, and what was paid."""

    context: Tensor
    reward: Tensor
    noise_scale: Tensor


def sampled(dim: int, **options: Any) -> Any:
    return ThompsonSampling(RidgeRegression(dim, **options), draws=20)


def seldom(dim: int, **options: Any) -> Any:
    return EpsilonGreedy(AdaptiveRidgeRegression(dim, **options), epsilon=0.5)


def robust(dim: int, **options: Any) -> Any:
    return RobustRidgeRegression(dim, window=5, warmup=2, **options)


def floored(dim: int, **options: Any) -> Any:
    return AdaptiveRidgeRegression(dim, floor=0.3, **options)


def local(dim: int, **options: Any) -> Any:
    return LocalGLMRegression(dim, feature_bound=20.0, **options)


CASES = [
    Case("ridge", ScaledPolicy, RidgeRegression, {"magnitudes": True}),
    Case("heavy tail, frozen", ScaledPolicy, HeavyTailRegression, {"freeze_after": 6}),
    Case(
        "Thompson",
        ScaledPolicy,
        sampled,
    ),
    Case("a user's policy", ScaledPolicy, lambda dim, **o: MeanPlusWidth(robust(dim, **o)), {"intercept": False}),
    Case("ridge", DisjointArms, RidgeRegression, None),
    Case("heavy tail, frozen", DisjointArms, HeavyTailRegression, {"freeze_after": 6}),
    Case("robust", DisjointArms, robust, {"magnitudes": True}),
    Case("floor", DisjointArms, floored),
    Case("local", DisjointArms, local, None),
    Case(
        "Thompson",
        DisjointArms,
        sampled,
        None,
    ),
    Case(
        "epsilon",
        DisjointArms,
        seldom,
    ),
    Case("a user's policy", DisjointArms, lambda dim, **o: MeanPlusWidth(RidgeRegression(dim, **o)), None),
    Case("ridge", HybridArms, RidgeRegression, None),
    Case(
        "embeddings, frozen",
        HybridArms,
        lambda dim, **o: EpsilonGreedy(RidgeRegression(dim, **o), epsilon=0.5),
        {"freeze_after": 6},
        {"embeddings": [[1.0, 0.0], [1.0, 1.0], [0.5, -1.0], [0.0, 2.0]]},
    ),
    Case("ucb", RadiusSelector, RidgeRegression, {"freeze_after": 6}),
    Case(
        "exp4",
        RadiusSelector,
        robust,
        None,
        {"rule": "exp4", "scales": (1.0, 0.1), "reward_range": (-2.0, 3.0)},
    ),
    Case("ucb", SharedRadiusSelector, RidgeRegression, {"freeze_after": 6}),
    Case("exp4", SharedRadiusSelector, robust, None, {"rule": "exp4", "scales": (1.0, 0.1)}),
]


@dataclass(frozen=True)
class Other:
    """A policy that is neither a rule nor composed, and inputs for its encoder."""

    cls: type[Policy]
    name: str
    make: Callable[..., Any]
    inputs: Callable[..., Tensor] | None = None
    decides = True

    def build(self, **options: Any) -> Any:
        """A new one."""
        return self.make(**options)

    @property
    def subject(self) -> DeciderSubject:
        """What the contract checks."""
        return _subject(str(self))

    def __str__(self) -> str:
        return f"{self.cls.__name__}({self.name})"


def head_on(make: Callable[..., Any], has_embeddings: bool = False) -> Callable[..., BanditHead]:
    """Heads with equal encoders, and an embedding of each arm or none."""

    def head(**options: Any) -> BanditHead:
        seed = torch.random.get_rng_state()
        torch.manual_seed(0)
        encoder = nn.Linear(DIM, DIM, dtype=torch.float64)
        torch.random.set_rng_state(seed)
        embeddings = torch.eye(ARMS, DIM, dtype=torch.float64) if has_embeddings else None
        return BanditHead(encoder, make(**options), actions=embeddings).eval()

    return head


def raw(*shape: int) -> Tensor:
    return torch.randn(*shape, DIM, dtype=torch.float64)


def raw_arms(*shape: int) -> Tensor:
    return torch.randn(*shape, ARMS, DIM, dtype=torch.float64)


def ridge(**options: Any) -> Any:
    return UCB(RidgeRegression(DIM, **options))


def arms_of_ridge(**options: Any) -> Any:
    return DisjointArms(RidgeRegression(DIM, **options), ARMS)


@dataclass
class ExactIndex:
    """An index of a catalogue that finds the largest inner products."""

    items: Tensor

    def __call__(self, queries: Tensor, k: int) -> Tensor:
        return (queries @ self.items.T).topk(k).indices


def catalogue(has_index: bool, **options: Any) -> CatalogueArms:
    items = torch.eye(ARMS, DIM) + 0.25
    index = ExactIndex(items) if has_index else None
    return CatalogueArms(RidgeRegression(DIM, **options), items, index, directions=2)


OTHERS = [
    Other(CatalogueArms, "all items", lambda **o: catalogue(False, **o), raw),
    Other(CatalogueArms, "index", lambda **o: catalogue(True, **o), raw),
    Other(FixedArms, "ridge", lambda **o: FixedArms(RidgeRegression(DIM, **o), torch.eye(ARMS, DIM))),
    Other(BanditHead, "ridge", head_on(ridge), raw_arms),
    Other(BanditHead, "arms", head_on(arms_of_ridge), raw),
    Other(BanditHead, "embeddings", head_on(ridge, has_embeddings=True), raw),
    Other(type(torchonline.bandit(DIM)), "bandit", lambda **o: torchonline.bandit(DIM, **o)),
    Other(type(torchonline.bandit(DIM, actions=2)), "bandit", lambda **o: torchonline.bandit(DIM, actions=ARMS, **o)),
]


@functools.cache
def _subject(name: str) -> DeciderSubject:
    """The subject of a case, one object for all rules."""
    case = next(case for case in (*CASES, *OTHERS) if str(case) == name)
    return DeciderSubject(case.build, case.inputs, name)


def use(policy: Any, batch_shape: tuple[int, ...], dtype: torch.dtype, device: str) -> list[Tensor]:
    """Ask a policy everything and teach it, with tensors of a device; the answers."""
    like: dict[str, Any] = {"device": device, "dtype": dtype}
    has_models = isinstance(policy, DisjointArms)
    reward, two = torch.zeros(batch_shape, **like), torch.zeros(*batch_shape, 2, **like)
    action, actions = (torch.zeros(each.shape, dtype=torch.int64, device=device) for each in (reward, two))
    context, many = torch.randn(*batch_shape, ARMS, DIM, **like), torch.randn(*batch_shape, 6, ARMS, DIM, **like)
    if has_models:
        context, many = torch.randn(*batch_shape, DIM, **like), torch.randn(*batch_shape, 6, DIM, **like)
    several = many.narrow(len(batch_shape), 0, 2)
    policy.step(context, action, reward)
    policy.step(several, actions, two, noise_scale=two + 1.0)
    policy.learn(several, actions, two)
    policy.learn(several, actions, two, noise_scale=two + 1.0, block_size=1)
    mask = torch.ones((*batch_shape, ARMS), dtype=torch.bool, device=device)
    seen = [policy(context), policy.select(context, mask), policy.select(many), policy.probabilities(context, mask)]
    seen += policy.select_with_probability(context)
    policy.reset()
    return seen
