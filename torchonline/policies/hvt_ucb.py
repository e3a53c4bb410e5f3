"""Hvt-UCB: optimism over Huber regression."""

import torch

from torchonline.core.options import arguments_of
from torchonline.policies.rules import UCB
from torchonline.regression.estimator import NOISE_OF_UNIT_REWARDS
from torchonline.regression.huber import HuberRegression


class HvtUCB(UCB[HuberRegression]):
    r"""Hvt-UCB: optimism over :class:`HuberRegression`, with the same arguments.

    Its radius is proved, see :class:`HuberRegression`, and about 5000 in the paper's experiment. We recommend
    :class:`AnytimeHeavyTailUCB`, whose proved radius is of practical size.

    Args:
        dim: d, number of features.
        horizon: T, number of rounds that the radius covers. Later rounds have no guarantee. None if T is unknown, which costs
            regret; ``restart_every``, if given, is then the horizon.
        moment_order: p in (1, 2].
        noise_scale: :math:`\nu \ge 0`, the p-norm :math:`(E|\eta|^p)^{1/p}` of the noise, in units of the reward. 1/2 holds for
            rewards in [0, 1]; larger noise needs a larger number.
        theta_bound: S > 0, a bound on the norm of the true parameter. S = 1 allows mean rewards from -1 to 1 along features of
            length 1. Too large costs regret; too small voids the guarantee (docs/promises.md).
        feature_bound: L > 0, a bound on the norm of features. Longer ones are not refused, and void the guarantee.
        ridge: :math:`\lambda > 0`; None for the paper's d.
        delta: in (0, 1); None for the paper's 1 / (8 T). Without a horizon it covers all epochs together: an epoch of T rounds
            gets 32 ``delta`` / T, and None is 1 / 256, which gives each epoch the paper's value.
        alpha: > 0; the step is 1 / alpha of a Newton step. The paper's is 4; the guarantee is for 4/7 to 79.
        minimum_scale: :math:`\sigma_{\min} > 0`; None for the paper's 1 / sqrt(T).
        radius: "paper".
        clip_residuals: whether residuals are clipped; False for :math:`\tau = \infty`, without a guarantee.
        project: whether the estimate is projected onto the ball. The guarantee holds either way.
        adaptive_scale: whether :math:`\sigma` has its two terms in q; False for :math:`\max(\nu_t, \sigma_{\min})`, without a
            guarantee. With all three False, and ``alpha`` 1, the estimate equals ridge regression weighted by
            :math:`1/\sigma^2` (Section 4.1 of the reference).
        radius_scale: multiplies the radius, and changes :math:`\sigma` too. The guarantee is stated for 1.
        restart_every: rounds after which a learner forgets everything, for a parameter that moves; None for never. ``rounds``
            counts the rounds since the last start. A guarantee holds for each epoch separately, if the parameter does not move
            in that epoch (docs/drift.md).
        batch_shape: ``*B``, independent learners in one module.
        dtype: torch.float64 or torch.float32, of the state. Use float32 where the last digits do not matter.
        device: where the state lives.
        validate: whether each call checks values (NaN, infinity, ranges). Shapes and types are always checked. On an
            accelerator, a check of values makes the host wait for the device.

    Example:
        >>> HvtUCB(2, horizon=1000, moment_order=1.99, noise_scale=4.39).select(torch.tensor([[1.0, 0.0], [0.0, 0.5]]))
        tensor(0)
    """

    def __init__(
        self,
        dim: int,
        *,
        horizon: int | None,
        moment_order: float = 2.0,
        noise_scale: float = NOISE_OF_UNIT_REWARDS,
        theta_bound: float = 1.0,
        feature_bound: float = 1.0,
        ridge: float | None = None,
        delta: float | None = None,
        alpha: float = 4.0,
        minimum_scale: float | None = None,
        radius: str = "paper",
        clip_residuals: bool = True,
        project: bool = True,
        adaptive_scale: bool = True,
        radius_scale: float = 1.0,
        restart_every: int | None = None,
        batch_shape: tuple[int, ...] = (),
        dtype: torch.dtype = torch.float64,
        device: torch.device | str | None = None,
        validate: bool = True,
    ) -> None:
        super().__init__(HuberRegression(**arguments_of(locals())))
