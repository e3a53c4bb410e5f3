"""The recommended bandit for each kind of rewards."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, Unpack, overload

from torchonline.core.checks import instance_of, one_of, positive_integer
from torchonline.core.options import LearnerOptions
from torchonline.policies.disjoint import DisjointArms
from torchonline.policies.exploration import EpsilonGreedy, SquareCB
from torchonline.policies.policy import Policy
from torchonline.policies.rules import UCB, Rule, ThompsonSampling
from torchonline.policies.scaled import ScaledPolicy
from torchonline.policies.scaler import Interactions, StandardScaler
from torchonline.regression.adaptive_ridge import AdaptiveRidgeRegression, RobustRidgeRegression

# Magnitudes double the number of features. With more features than this, they cost time and save few errors.
MOST_WITH_MAGNITUDES = 48
# A decision takes K m^2 multiplications for m features. With these, m is at most 66.
MOST_WITH_ALL_PRODUCTS, MOST_WITH_PRODUCTS = 5, 10
# For the features of an encoder.
RIDGE_OF_ENCODERS = 2.0
# Appended to scaled features: the ridge shrinks an arm's intercept a ninth as much as its other parameters.
INTERCEPT = 3.0

BOUNDED = (
    "ridge regression whose radius follows its residuals, with a floor and without a cut, because rewards are bounded"
)
CUT = "ridge regression on residuals cut at a quantile, whose radius follows them, because rewards have no known scale"


Rewards = Literal["binary", "unit", "count", "real", "heavy"]
# Other words for a kind of rewards, which an error answers with ours.
MEANT = {
    **dict.fromkeys(("click", "clicks", "bernoulli", "bool", "boolean", "conversion", "logistic"), "binary"),
    **dict.fromkeys(("bounded", "probability", "beta", "graded"), "unit"),
    **dict.fromkeys(("poisson", "integer", "integers", "visits"), "count"),
    **dict.fromkeys(("gaussian", "normal", "continuous", "numeric", "float", "regression"), "real"),
    **dict.fromkeys(("money", "revenue", "heavy-tailed", "heavy_tailed", "robust", "pareto"), "heavy"),
}
Explore = Literal["optimism", "epsilon", "squarecb", "thompson"]
RULES: dict[str, Callable[[Any], Rule]] = {
    "optimism": UCB,
    "epsilon": EpsilonGreedy,
    "squarecb": SquareCB,
    "thompson": partial(ThompsonSampling, scale="theorem"),
}
# The radius over the residuals. Draws of the posterior's scale have 1.3 times the errors.
RADIUS_OF_DRAWS = 0.3


@dataclass(frozen=True)
class Kind:
    """The estimator for a kind of rewards, and the reason for it."""

    estimator: type[Any]
    why: str
    # The alternative with a theorem.
    theorem: str
    options: dict[str, float] = field(default_factory=dict)
    # The ridge is d over the first number with magnitudes, and d + 1 over the second without.
    ridge_divisors: tuple[int, int] = (4, 5)


ANY_LEVEL = {"zero_odds": 0.0, "radius_scale": 0.65}
UNIT = Kind(AdaptiveRidgeRegression, BOUNDED, "LocalGLMRegression", {"floor": 0.15, "radius_scale": 0.5}, (6, 5))
KINDS = {
    "binary": replace(UNIT, options=UNIT.options | {"ceiling": 1.0}),
    "unit": UNIT,
    "count": Kind(RobustRidgeRegression, CUT, "LocalGLMRegression with link=Poisson()", ANY_LEVEL),
    "real": Kind(RobustRidgeRegression, CUT, "RidgeRegression", ANY_LEVEL),
    "heavy": Kind(RobustRidgeRegression, CUT, "HeavyTailRegression", {"quantile": 0.9, "radius_scale": 0.5}, (3, 3)),
}


# The overloads tell type checkers which policy is returned.
@overload
def bandit(
    dim: int,
    rewards: Rewards = ...,
    *,
    actions: int | Sequence[str],
    scale: bool = ...,
    magnitudes: bool | None = ...,
    interactions: Interactions | None = ...,
    bins: int | None = ...,
    explore: Explore | None = ...,
    **options: Unpack[LearnerOptions],
) -> DisjointArms: ...
@overload
def bandit(
    dim: int,
    rewards: Rewards,
    actions: int | Sequence[str],
    *,
    scale: bool = ...,
    magnitudes: bool | None = ...,
    interactions: Interactions | None = ...,
    bins: int | None = ...,
    explore: Explore | None = ...,
    **options: Unpack[LearnerOptions],
) -> DisjointArms: ...
@overload
def bandit(
    dim: int,
    rewards: Rewards = ...,
    actions: None = ...,
    *,
    scale: Literal[True] = ...,
    magnitudes: bool | None = ...,
    interactions: Interactions | None = ...,
    bins: int | None = ...,
    explore: Explore | None = ...,
    **options: Unpack[LearnerOptions],
) -> ScaledPolicy: ...
@overload
def bandit(
    dim: int,
    rewards: Rewards = ...,
    actions: None = ...,
    *,
    scale: Literal[False],
    magnitudes: bool | None = ...,
    interactions: Interactions | None = ...,
    bins: int | None = ...,
    explore: None = ...,
    **options: Unpack[LearnerOptions],
) -> UCB: ...
@overload
def bandit(
    dim: int,
    rewards: Rewards = ...,
    actions: int | Sequence[str] | None = ...,
    *,
    scale: bool = ...,
    magnitudes: bool | None = ...,
    interactions: Interactions | None = ...,
    bins: int | None = ...,
    explore: Explore | None = ...,
    **options: Unpack[LearnerOptions],
) -> Policy: ...
def bandit(
    dim: int,
    rewards: Rewards = "unit",
    actions: int | Sequence[str] | None = None,
    *,
    scale: bool = True,
    magnitudes: bool | None = None,
    interactions: Interactions | None = None,
    bins: int | None = None,
    explore: Explore | None = None,
    **options: Unpack[LearnerOptions],
) -> Policy:
    """Return the recommended bandit for raw features and default arguments.

    The bandit standardises the features online, appends the magnitudes of up to 48 features, the products of up to 10 and a
    constant, learns a linear model by ridge regression, and plays the arm with the largest upper confidence bound. The radius
    follows the residuals. The constant is 3, so that the ridge shrinks an arm's intercept a ninth as much as its other
    parameters. While the scaler learns, the first 32 rounds are standardised again. The repr says what was chosen and why.
    Nothing needs tuning. No theorem holds, because the scaler moves and the radius is a heuristic. docs/benchmark.md compares it
    with other libraries, and docs/encoders.md puts it on an encoder. For a theorem, put the estimator that the repr names under
    :class:`UCB` or :class:`DisjointArms`.

    "binary" and "unit" use :class:`AdaptiveRidgeRegression` with radius_scale=0.5 and floor=0.15, and refuse rewards below 0;
    "binary" also refuses those above 1. The others use :class:`RobustRidgeRegression`: "count" and "real" with
    radius_scale=0.65 and zero_odds=0, "heavy" with radius_scale=0.5 and quantile=0.9.

    The predictions of "count" and "real" shrink to the mean reward of all rounds, so the level of rewards does not matter: with
    "real", adding a number to all rewards does not change the choices, up to rounding. The other predictions shrink to 0 or to
    the mean reward, depending on which has predicted better.

    Cost of a round: O(K m^2) for a decision among K arms, O(m^2) for a step. A step that clips residuals also sorts 256
    numbers. m is 2 d + 1 with magnitudes, d + 1 without them, and d without a scaler; interactions add their products. By default
    it is at most 97 with up to 48 features.

    Args:
        dim: d, number of features.
        rewards: "binary" or "unit" for rewards in [0, 1]; "count"; "real" for any unit; "heavy" for outliers that carry no
            information. The last three clip outliers. Bounded rewards that are rarely above 0 must be "binary" or "unit".
        actions: K, or the names of K actions, if every action has its own model; ``inputs`` are then contexts. None if each arm
            has its own features.
        scale: whether to standardise. False means no scaler and a ridge of 2, for features of about unit size. Keep True for
            features of an encoder too, whose size is seldom known and changes in training.
        magnitudes: whether to add the magnitudes of :class:`StandardScaler`, so that the model can prefer the middle of a
            feature's range, or its ends. None for True with up to 48 features, and False with more, where magnitudes cost time
            and save few errors. The ridge is d / 6 with magnitudes (d / 4 for "count" and "real"), and (d + 1) / 5 without them;
            for "heavy", it is d / 3 and (d + 1) / 3.
        interactions: which products of features to add, as in :class:`StandardScaler`, so that the effect of a feature can depend
            on another one. None for "all" with up to 5 features, "features" with up to 10, and none with more, where they take
            time: K m^2 grows with the fourth power of d. Naming pairs or groups of features saves time.
        bins: number of bins of each feature, as in :class:`StandardScaler`, so that the effect of a feature can have any shape.
            1, 2, 4, 8, 16 or 32; None for 1, no steps. 8 adds 7 d to m, and pays in long logs: on three sets of 5000 to 8000
            rounds, it multiplied the number of errors by 0.94, 0.74 and 0.80.
        explore: "optimism", or None: upper confidence bounds, as above; deterministic except for ties. "epsilon":
            :class:`EpsilonGreedy`; "squarecb": :class:`SquareCB`, for "binary" and "unit"; "thompson": :class:`ThompsonSampling`
            with a radius of 0.3 times the residuals in place of the posterior's scale. With "epsilon" and "squarecb", every arm
            has a positive probability, so that the log of :meth:`~Policy.select_with_probability` supports off-policy evaluation.
            The probabilities of "thompson" are averages of draws, and may be 0. On 62 real sets, "epsilon" made 1.45, "squarecb"
            1.26 and "thompson" 1.11 times as many errors as "optimism".
        batch_shape, dtype, device, validate: options of all learners, see :class:`~torchonline.core.learner.Learner`.

    Returns:
        A :class:`DisjointArms`. If ``actions`` is None, a :class:`ScaledPolicy`; with ``scale=False``, a rule such as
        :class:`UCB`.

    Raises:
        TypeError, ValueError: an argument is wrong; the error names it.

    Example:
        >>> policy = bandit(3, rewards="binary", actions=2)
        >>> context = torch.tensor([20000.0, 0.5, -3.0])  # raw features
        >>> k = policy.select(context)
        >>> policy.step(context, k, 1.0)
        >>> policy = bandit(3, actions=["home", "sale"])
        >>> policy.step(context, "sale", 1.0)
        >>> policy.name_of(policy.select(context))
        'home'
    """
    for name in options:
        if name not in LearnerOptions.__annotations__:
            raise TypeError(f"bandit() got an unexpected keyword argument {name!r}")
    kind = KINDS[one_of("rewards", rewards, tuple(KINDS), MEANT)]
    dim = features = positive_integer("dim", dim)
    scaler, ridge = None, RIDGE_OF_ENCODERS
    if instance_of("scale", scale, bool, "True or False"):
        magnitudes = dim <= MOST_WITH_MAGNITUDES if magnitudes is None else magnitudes
        if interactions is None:
            interactions = (
                "all" if dim <= MOST_WITH_ALL_PRODUCTS else "features" if dim <= MOST_WITH_PRODUCTS else False
            )
        scaler = StandardScaler(
            dim,
            magnitudes=magnitudes,
            interactions=interactions,
            bins=1 if bins is None else bins,
            intercept=INTERCEPT,
            **options,
        )
        features = scaler.features
        ridge = dim / kind.ridge_divisors[0] if magnitudes else (dim + 1) / kind.ridge_divisors[1]
    else:
        for name, value, none in (
            ("magnitudes", magnitudes, False),
            ("interactions", interactions, False),
            ("bins", bins, 1),
        ):
            if value is not None and value is not none:
                raise ValueError(f"{name}: expected None or {none} with scale=False, got {value!r}")
    rule = UCB if explore is None else RULES[one_of("explore", explore, tuple(RULES))]
    if explore == "squarecb" and rewards not in ("binary", "unit"):
        # Its gamma counts in units of 1 / reward.
        raise ValueError(f'explore: expected "squarecb" with rewards="binary" or "unit" only, got rewards="{rewards}"')
    wanted = kind.options | ({"radius_scale": RADIUS_OF_DRAWS} if explore == "thompson" else {})
    model = rule(kind.estimator(features, ridge=ridge, **wanted, **options))
    policy: Policy
    if actions is not None:
        policy = arms = DisjointArms(model, actions, scaler=scaler)
        instead = f"DisjointArms({kind.theorem}, {arms.actions})"
    elif scaler is not None:
        policy, instead = ScaledPolicy(model, scaler), f"UCB({kind.theorem})"
    else:
        policy, instead = model, f"UCB({kind.theorem})"
    told = f'rewards="{rewards}"' + ("" if explore is None else f', explore="{explore}"')
    policy.note = f"{told}: {kind.why}. A heuristic; for a theorem, and its conditions, see {instead}"
    return policy
