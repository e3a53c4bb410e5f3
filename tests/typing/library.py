"""What editors and type checkers see of the library: a user's code, checked as it stands by mypy and pyright."""

from typing import Any, assert_type

import numpy as np
import torch
from torch import Tensor

import torchonline
from torchonline import (
    OFUL,
    OONS,
    UCB,
    AnytimeHeavyTailUCB,
    CatalogueArms,
    DisjointArms,
    EpsilonGreedy,
    FixedArms,
    Greedy,
    HeavyTailRegression,
    Logistic,
    RidgeRegression,
    ScaledPolicy,
    SquareCB,
    StandardScaler,
    ThompsonSampling,
    bandit,
)
from torchonline.off_policy import Estimate, Interval, confidence_interval, confidence_sequence
from torchonline.regression.estimator import Estimator

arms = torch.eye(2)


def scores_are_tensors() -> None:
    policy = OFUL(2)
    assert_type(policy(arms), Tensor)
    assert_type(policy.forward(arms), Tensor)
    assert_type(policy(np.eye(2)), Tensor)
    assert_type(policy([[1.0, 0.0]]), Tensor)
    assert_type(policy.select(arms), Tensor)
    assert_type(policy.select_with_probability(arms), tuple[Tensor, Tensor])
    assert_type(policy.interval(arms), tuple[Tensor, Tensor])
    assert_type(policy.number_of_actions(arms), int)
    assert_type(policy.action_ids, list[int] | None)
    policy.step([[1.0, 0.0]], 0, 1.0)
    policy.learn(arms[:, None], [0, 0], [1.0, 0.0], block_size=2)
    assert_type(policy.predict(arms), Tensor)
    assert_type(policy.dim, int)
    assert_type(policy.batch_shape, tuple[int, ...])
    assert_type(policy.rounds, Tensor)
    assert_type(policy.theta_hat, Tensor)


def an_estimator_has_its_own_type() -> None:
    assert_type(OFUL(2).estimator, RidgeRegression)
    assert_type(AnytimeHeavyTailUCB(2).estimator, HeavyTailRegression)
    assert_type(Greedy(HeavyTailRegression(2)).estimator, HeavyTailRegression)
    assert_type(Greedy(2).estimator, Estimator)
    assert_type(torchonline.baselines.MENU(2, horizon=9).estimator, torchonline.baselines.MENURegression)
    assert_type(torchonline.baselines.OFUGLB(2, horizon=9).estimator, torchonline.baselines.OFUGLBRegression)


def what_an_estimator_returns() -> None:
    estimator = RidgeRegression(2)
    assert_type(estimator(arms), Tensor)
    assert_type(estimator.width(np.eye(2)), Tensor)
    assert_type(estimator.interval(arms), tuple[Tensor, Tensor])
    assert_type(estimator.theta_hat, Tensor)
    assert_type(estimator.V_inv, Tensor)
    assert_type(estimator.logdet, Tensor)
    estimator.step([1.0, 0.0], 1.0)


def intervals_of_a_log_are_numbers_or_tensors(estimate: Estimate) -> None:
    assert_type(confidence_interval(estimate), Interval[float])
    assert_type(confidence_interval(estimate).upper, float)
    assert_type(confidence_sequence(estimate, reward_range=(0.0, 1.0)).lower, Tensor)


def a_kind_of_rewards_is_one_of_five() -> None:
    bandit(2, rewards="heavy", actions=2)
    bandit(2, rewards="clicks", actions=2)  # type: ignore[call-overload]


def a_number_of_features_will_do() -> None:
    EpsilonGreedy(2, epsilon=0.1, noise_scale=0.2)
    ThompsonSampling(2, draws=10, delta=0.1)
    SquareCB(2, gamma=3.0, ridge=2.0)
    policies: list[UCB | Greedy] = [UCB(2), OFUL(2), Greedy(2)]
    played(policies[0])


def played(policy: UCB | Greedy) -> Tensor:
    assert_type(policy.estimator, Estimator)
    return policy.select(arms)


def composed_policies() -> None:
    scaled = ScaledPolicy(Greedy(2), StandardScaler(2))
    assert_type(scaled(arms), Tensor)
    assert_type(scaled.predict(arms), Tensor)
    assert_type(scaled.theta_hat, Tensor)
    assert_type(StandardScaler(2)(arms), Tensor)
    assert_type(FixedArms(OFUL(2), arms)(), Tensor)
    assert_type(FixedArms(OFUL(2), arms).predict(), Tensor)
    assert_type(DisjointArms(OFUL(2), 3)([1.0, 0.0]), Tensor)
    assert_type(CatalogueArms(OFUL(2), arms)([1.0, 0.0]), Tensor)
    assert_type(CatalogueArms(OFUL(2), arms).items, Tensor)


def the_recommended_policy() -> None:
    assert_type(bandit(2), ScaledPolicy)
    assert_type(bandit(2, "binary", 3), DisjointArms)
    assert_type(bandit(2, actions=3), DisjointArms)
    assert_type(bandit(2, scale=False), UCB)


def other_modules() -> None:
    assert_type(Logistic()(arms), Tensor)
    assert_type(OONS(2, lipschitz=1.0, radius_bound=1.0)(), Tensor)
    assert_type(torchonline.metrics.CumulativeRegret().compute(), Tensor)
    head = torchonline.models.BanditHead(torch.nn.Identity(), OFUL(2))
    assert_type(head(arms), Tensor)
    assert_type(torchonline.models.NeuralLinearBandit(head)(arms), Tensor)
    assert_type(torchonline.links.Poisson()(arms), Tensor)
    torchonline.export.to_program(OFUL(2))


class Mine(UCB):
    """A rule of a user's own."""

    def __init__(self, dim: int, **options: Any) -> None:
        super().__init__(RidgeRegression(dim, **options))

    def _scores(self, features: Tensor) -> Tensor:
        return self.estimator(features) + self.estimator.width(features)


class Plain(Greedy[RidgeRegression]):
    """A rule on predictors and widths."""

    def scores_of(self, predictor: Tensor, width: Tensor) -> Tensor:
        return predictor + self.estimator.logdet


def mistakes() -> None:
    """Each is one: both checkers refuse a comment that is not needed."""
    OFUL(2, ridges=1.0)  # type: ignore[call-arg]
    UCB(2, ridges=1.0)  # type: ignore[call-arg]
    UCB("2")  # type: ignore[arg-type]
    RidgeRegression(dim="2")  # type: ignore[arg-type]
    torchonline.nothing  # type: ignore[attr-defined] # noqa: B018
    torchonline.baselines.MENU(2)  # type: ignore[call-arg]
