"""The recommended bandit, by what is known of the rewards."""

from dataclasses import dataclass, field, replace
from typing import Any, Literal, Unpack, overload

from torchonline.core.checks import instance_of, one_of, positive_integer
from torchonline.core.options import LearnerOptions
from torchonline.policies.disjoint import DisjointArms
from torchonline.policies.policy import Policy
from torchonline.policies.rules import UCB
from torchonline.policies.scaled import ScaledPolicy
from torchonline.policies.scaler import StandardScaler
from torchonline.regression.adaptive import AdaptiveRidgeRegression, RobustRidgeRegression

# Magnitudes double the features: of more than this, they cost time and save few errors.
MOST_WITH_MAGNITUDES = 48
# For the features of an encoder.
RIDGE_OF_ENCODERS = 2.0
# Appended to scaled features: the ridge shrinks an arm's level a quarter as much as its other parameters.
INTERCEPT = 2.0

BOUNDED = (
    "ridge regression whose radius follows its residuals, with a floor and without a cut, because rewards are bounded"
)
CUT = "ridge regression on residuals cut at a quantile, whose radius follows them, because rewards have no known scale"


@dataclass(frozen=True)
class Kind:
    """What to learn with from a kind of rewards, and why."""

    estimator: type[Any]
    why: str
    # The estimator that has a theorem instead.
    theorem: str
    options: dict[str, float] = field(default_factory=dict)
    # The ridge is d over the first on features and their magnitudes, d + 1 over the second without magnitudes.
    ridge_divisors: tuple[int, int] = (4, 5)


UNIT = Kind(AdaptiveRidgeRegression, BOUNDED, "LocalGLMRegression", {"floor": 0.15, "radius_scale": 0.6}, (6, 5))
KINDS = {
    "binary": replace(UNIT, options=UNIT.options | {"ceiling": 1.0}),
    "unit": UNIT,
    "count": Kind(RobustRidgeRegression, CUT, "LocalGLMRegression with link=Poisson()"),
    "real": Kind(RobustRidgeRegression, CUT, "RidgeRegression"),
    "heavy": Kind(RobustRidgeRegression, CUT, "HeavyTailRegression", {"quantile": 0.9, "radius_scale": 0.65}, (3, 3)),
}


# Type checkers learn from these which policy it is.
@overload
def bandit(
    dim: int,
    rewards: str = ...,
    *,
    actions: int,
    scale: bool = ...,
    magnitudes: bool | None = ...,
    **options: Unpack[LearnerOptions],
) -> DisjointArms: ...
@overload
def bandit(
    dim: int,
    rewards: str,
    actions: int,
    *,
    scale: bool = ...,
    magnitudes: bool | None = ...,
    **options: Unpack[LearnerOptions],
) -> DisjointArms: ...
@overload
def bandit(
    dim: int,
    rewards: str = ...,
    actions: None = ...,
    *,
    scale: Literal[True] = ...,
    magnitudes: bool | None = ...,
    **options: Unpack[LearnerOptions],
) -> ScaledPolicy: ...
@overload
def bandit(
    dim: int,
    rewards: str = ...,
    actions: None = ...,
    *,
    scale: Literal[False],
    magnitudes: bool | None = ...,
    **options: Unpack[LearnerOptions],
) -> UCB: ...
@overload
def bandit(
    dim: int,
    rewards: str = ...,
    actions: int | None = ...,
    *,
    scale: bool = ...,
    magnitudes: bool | None = ...,
    **options: Unpack[LearnerOptions],
) -> Policy: ...
def bandit(
    dim: int,
    rewards: str = "unit",
    actions: int | None = None,
    *,
    scale: bool = True,
    magnitudes: bool | None = None,
    **options: Unpack[LearnerOptions],
) -> Policy:
    """Return the recommended bandit for raw features and default arguments.

    It standardises the features as they come, adds the magnitudes of up to 48 features and a constant, learns a linear model of
    all by ridge regression, and plays the arm whose upper bound is largest, with a radius that follows the residuals. The
    constant is 2, so that the ridge shrinks the level of an arm a quarter as much as its other parameters. The first 32 rounds
    are standardised again as the scaler learns. Its repr says what was chosen and why. Nothing has to be tuned; no theorem
    holds, because the scaler moves and the radius is a heuristic.
    docs/benchmark.md compares it with other libraries, and docs/encoders.md puts it on an encoder. For a theorem, put the
    estimator that the repr names under :class:`UCB` or :class:`DisjointArms`.

    "binary" and "unit" learn by :class:`AdaptiveRidgeRegression` with radius_scale=0.6 and floor=0.15, and for "binary" with
    ceiling=1, which refuses larger rewards and changes nothing else. The others learn by
    :class:`RobustRidgeRegression` with radius_scale=0.8; for "heavy" it is 0.65, and quantile=0.9.

    The bound of an action that was never played starts from the mean reward of all rounds, or from 0 if that is more. This
    usually gets the action tried, but not if it is added beside one that pays far more than the mean. Ridge regression shrinks
    the level of an action to 0: of rewards that differ by less than a hundredth of their size, such as 1000 and 1001, it may stay
    with a worse one; subtract a typical reward. "binary" and "unit" refuse rewards below 0, and "binary" also those above 1.

    Cost of a round: O(K m^2) for a decision among K arms, O(m^2) for a step, where cutting sorts 256 numbers besides; m is
    2 d + 1 with magnitudes, d + 1 without them, and d without a scaler.

    Args:
        dim: d, number of features.
        rewards: "binary" or "unit" for rewards in [0, 1]; "count"; "real" for any unit; "heavy" for outliers that carry no
            information. Outliers of the last three are cut. Bounded rewards that are rarely above 0 must be named as such.
        actions: K, if every action has a model of its own: ``inputs`` are contexts then. None if each arm has its own
            features.
        scale: False for features that an encoder learns: there is no scaler then, and the ridge is 2.
        magnitudes: whether to add the magnitudes of :class:`StandardScaler`, so that the model can prefer the middle of a
            feature's range, or its ends. None for True with up to 48 features, and False with more, where magnitudes cost time
            and save few errors. The ridge is d / 6 with magnitudes (d / 4 for "count" and "real"), and (d + 1) / 5 without them;
            for "heavy", it is d / 3 and (d + 1) / 3.
        batch_shape, dtype, device, validate: options of all learners, see :class:`~torchonline.core.learner.Learner`.

    Returns:
        A :class:`DisjointArms`. If ``actions`` is None, a :class:`ScaledPolicy`, or a :class:`UCB` with ``scale=False``.

    Raises:
        TypeError, ValueError: an argument is wrong; the error names it.

    Example:
        >>> policy = bandit(3, rewards="binary", actions=2)
        >>> context = torch.tensor([20000.0, 0.5, -3.0])  # raw features
        >>> k = policy.select(context)
        >>> policy.step(context, k, 1.0)
    """
    for name in options:
        if name not in LearnerOptions.__annotations__:
            raise TypeError(f"bandit() got an unexpected keyword argument {name!r}")
    kind = KINDS[one_of("rewards", rewards, tuple(KINDS))]
    dim = features = positive_integer("dim", dim)
    scaler, ridge = None, RIDGE_OF_ENCODERS
    if instance_of("scale", scale, bool, "True or False"):
        magnitudes = dim <= MOST_WITH_MAGNITUDES if magnitudes is None else magnitudes
        scaler = StandardScaler(dim, magnitudes=magnitudes, intercept=INTERCEPT, **options)
        features = scaler.features
        ridge = dim / kind.ridge_divisors[0] if magnitudes else (dim + 1) / kind.ridge_divisors[1]
    elif magnitudes:
        raise ValueError(f"magnitudes: expected None or False with scale=False, got {magnitudes!r}")
    model = kind.estimator(features, ridge=ridge, **kind.options, **options)
    policy: Policy
    if actions is not None:
        policy, instead = DisjointArms(model, actions, scaler=scaler), f"DisjointArms({kind.theorem}, {actions})"
    elif scaler is not None:
        policy, instead = ScaledPolicy(model, scaler), f"UCB({kind.theorem})"
    else:
        policy, instead = UCB(model), f"UCB({kind.theorem})"
    policy.note = f'rewards="{rewards}": {kind.why}. A heuristic; for a theorem, and its conditions, see {instead}'
    return policy
