"""OFUL, also known as LinUCB."""

import torch

from torchonline.core.options import arguments_of
from torchonline.policies.rules import UCB
from torchonline.regression.estimator import NOISE_OF_UNIT_REWARDS
from torchonline.regression.ridge import RidgeRegression


class OFUL(UCB[RidgeRegression]):
    r"""OFUL, also known as LinUCB: optimism over :class:`RidgeRegression`.

    ``torchonline.LinUCB`` is the same class. For LinUCB with a model for each action, take ``DisjointArms(OFUL(d), actions=K)``.
    Regret is :math:`\tilde O(d\sqrt T)` under sub-Gaussian noise (docs/ridge.md). If the
    parameter moves by :math:`P = \sum_t\|\theta_{t+1}-\theta_t\|` over T rounds, the regret with ``restart_every=H``
    against the best arm of each round is :math:`\tilde O(dT/\sqrt H + H^{3/2}P)`: :math:`\tilde O(d^{3/4}P^{1/4}T^{3/4})` at
    :math:`H = \sqrt{dT/P}`, if this H is between 1 and T (docs/drift_theory.md).

    Args:
        dim: d, number of features.
        noise_scale: R > 0, the sub-Gaussian scale of the noise, in units of the reward. 1/2 holds for rewards in [0, 1]; larger
            noise needs a larger number.
        theta_bound: S > 0, a bound on the norm of the true parameter. S = 1 allows mean rewards from -1 to 1 along features of
            length 1. Too large costs regret; too small voids the guarantee (docs/promises.md).
        ridge: :math:`\lambda > 0`; V starts at :math:`\lambda I`.
        delta: probability in (0, 1) that the confidence set ever fails.
        radius: "mixture" or "classic".
        radius_scale: multiplies the radius. Other than 1 it is a heuristic.
        restart_every: rounds after which a learner forgets everything, for a parameter that moves; None for never. ``rounds``
            counts the rounds since the last start. A guarantee holds for each epoch separately, if the parameter does not move
            in that epoch (docs/drift.md).
        batch_shape: ``*B``, independent learners in one module.
        dtype: torch.float64 or torch.float32, of the state. Use float32 where the last digits do not matter.
        device: where the state lives.
        validate: whether each call checks values (NaN, infinity, ranges). Shapes and types are always checked. On an
            accelerator, a check of values makes the host wait for the device.

    Example:
        >>> policy, arms = OFUL(2, noise_scale=0.1), torch.eye(2)
        >>> policy.step(arms.expand(2, 2, 2), [0, 1], [0.0, 1.0])  # the second arm pays 1, the first 0
        >>> policy.select(arms)
        tensor(1)
    """

    def __init__(
        self,
        dim: int,
        *,
        noise_scale: float = NOISE_OF_UNIT_REWARDS,
        theta_bound: float = 1.0,
        ridge: float = 1.0,
        delta: float = 0.01,
        radius: str = "mixture",
        radius_scale: float = 1.0,
        restart_every: int | None = None,
        batch_shape: tuple[int, ...] = (),
        dtype: torch.dtype = torch.float64,
        device: torch.device | str | None = None,
        validate: bool = True,
    ) -> None:
        super().__init__(RidgeRegression(**arguments_of(locals())))
