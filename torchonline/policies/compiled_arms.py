"""The compiled core of arms with a model each."""

from typing import Any

from torchonline.core.compiled import core_of, is_known, scorer
from torchonline.policies.early_rounds import KEPT
from torchonline.policies.rules import is_ucb
from torchonline.policies.scaler import MAGNITUDE_WEIGHT, MEAN_MAGNITUDE, PRODUCT_WEIGHT, STEP_WEIGHT
from torchonline.regression.adaptive_ridge import AdaptiveEstimator, RobustRidgeRegression

# The quantile of the last residuals is found in a time of about their number.
MOST_RESIDUALS = 1 << 10


def add_core(arms: Any, twin: Any) -> None:
    """Give ``twin``, the copy of a :class:`DisjointArms` on arrays, a core or None."""
    core = core_of_arms(arms, twin)
    score = None if core is None or not is_ucb(arms.policy) else scorer(core, arms.actions, arms.estimator.dim**2)
    twin.__dict__.update(_core=core, _score=score)


def core_of_arms(arms: Any, twin: Any) -> Any:
    """Return the core of arms, or of one learner of a batch, or None.

    ``twin`` is its copy on arrays.
    """
    batch, scaler = twin.policy.estimator, twin.scaler
    if twin.batch_dims or not all(is_known(part) for part in (arms.estimator, arms.scaler) if part is not None):
        return None
    values = vars(batch) | {"policy.rounds": twin.rounds}
    if isinstance(batch, AdaptiveEstimator):
        values["residuals"] = batch.residuals if isinstance(batch, RobustRidgeRegression) else batch.squares
        if values["residuals"].size > MOST_RESIDUALS * arms.actions:
            return None
    if twin.early is not None:
        values["early_rounds"] = 2 * KEPT - 1
    if scaler is not None:
        values |= {f"scaler.{name}": value for name, value in vars(scaler).items()}
        values |= {"magnitude_weight": MAGNITUDE_WEIGHT * scaler.magnitudes, "mean_magnitude": MEAN_MAGNITUDE}
        values |= {"product_weight": PRODUCT_WEIGHT, "step_weight": STEP_WEIGHT}
    return core_of(arms, values)
