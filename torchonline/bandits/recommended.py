"""The recommended bandit, by what is known of the rewards."""

from typing import Any, Unpack

from torchonline.bandits.adaptive import AdaptiveRidgeRegression, RobustRidgeRegression
from torchonline.bandits.composed import ComposedPolicy
from torchonline.bandits.disjoint import DisjointArms
from torchonline.bandits.policies import UCB
from torchonline.bandits.scaled import ScaledPolicy
from torchonline.bandits.scaler import RunningScaler
from torchonline.core.checks import one_of
from torchonline.core.options import LearnerOptions


def bandit(
    dim: int, rewards: str = "unit", actions: int | None = None, **options: Unpack[LearnerOptions]
) -> ComposedPolicy:
    one_of("rewards", rewards, ("binary", "unit", "count", "real", "heavy"))
    scaler = RunningScaler(dim, **options)
    estimator: Any
    if rewards in ("binary", "unit"):
        estimator = AdaptiveRidgeRegression(scaler.features, **options)
    else:
        estimator = RobustRidgeRegression(scaler.features, quantile=0.9 if rewards == "heavy" else 0.95, **options)
    if actions is None:
        return ScaledPolicy(UCB(estimator), scaler)
    return DisjointArms(UCB(estimator), actions, scaler=scaler)
