"""The recommended bandit, by what is known of the rewards."""

from typing import Any, Unpack

from torchonline.bandits.composed import ComposedPolicy
from torchonline.bandits.disjoint import DisjointArms
from torchonline.bandits.policies import UCB
from torchonline.bandits.ridge import RidgeRegression
from torchonline.bandits.robust import RobustRidgeRegression
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
        estimator = RidgeRegression(scaler.features, noise_scale=0.5, radius="constant", radius_scale=0.4, **options)
    else:
        estimator = RobustRidgeRegression(scaler.features, **options)
    if actions is None:
        return ScaledPolicy(UCB(estimator), scaler)
    return DisjointArms(UCB(estimator), actions, scaler=scaler)
