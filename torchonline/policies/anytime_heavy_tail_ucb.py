"""Optimism over heavy-tailed regression, without a horizon."""

import torch

from torchonline.core.options import arguments_of
from torchonline.policies.rules import UCB
from torchonline.regression.estimator import NOISE_OF_UNIT_REWARDS
from torchonline.regression.heavy_tail import HeavyTailRegression


class AnytimeHeavyTailUCB(UCB[HeavyTailRegression]):
    r"""The library's bandit for heavy-tailed rewards.

    Optimism over :class:`HeavyTailRegression`, with the same arguments.

    Args:
        dim: d, number of features.
        noise: "moment", or "symmetric" (uses neither ``noise_scale`` nor ``moment_order``).
        moment_order: p in (1, 2]. Use 2 for finite variance. A smaller p is for noise without a variance, and is more cautious.
        noise_scale: :math:`\nu \ge 0`, the p-norm :math:`(E|\eta|^p)^{1/p}` of the noise, in units of the reward; the standard
            deviation at p = 2. 1/2 holds for rewards in [0, 1]; larger noise needs a larger number. Too large costs regret; too
            small voids the guarantee, often without a trace in the data.
        theta_bound: S > 0, a bound on the norm of the true parameter. S = 1 allows mean rewards from -1 to 1 along features of
            length 1. Too large costs regret; too small voids the guarantee (docs/promises.md).
        ridge: :math:`\lambda > 0`; None for d / S^2.
        delta: probability in (0, 1) that the confidence set ever fails.
        corrupted_rounds: K, a bound on the number of rounds whose reward may be false, as from fraud or a broken sensor.
            ``bias`` starts at :math:`\sqrt{4.5K}`, and residuals are clipped at a lower level (docs/corrupted_rewards.md).
        radius_scale: multiplies the radius, and changes the update too. Other than 1 it is a heuristic.
        restart_every: rounds after which a learner forgets everything, for a parameter that moves; None for never. ``rounds``
            counts the rounds since the last start. A guarantee holds for each epoch separately, if the parameter does not move
            in that epoch (docs/drift.md).
        batch_shape: ``*B``, independent learners in one module.
        dtype: torch.float64 or torch.float32, of the state. The proof is for float64.
        device: where the state lives.
        validate: whether each call checks values (NaN, infinity, ranges). Shapes and types are always checked. On an
            accelerator, a check of values makes the host wait for the device.

    Example:
        >>> policy, arms = AnytimeHeavyTailUCB(2, noise_scale=4.5, delta=0.05), torch.eye(2)
        >>> policy.step(arms, policy.select(arms), 0.7)
        >>> int(policy.estimator.rounds)
        1
    """

    def __init__(
        self,
        dim: int,
        *,
        noise: str = "moment",
        moment_order: float = 2.0,
        noise_scale: float = NOISE_OF_UNIT_REWARDS,
        theta_bound: float = 1.0,
        ridge: float | None = None,
        delta: float = 0.01,
        corrupted_rounds: int = 0,
        radius_scale: float = 1.0,
        restart_every: int | None = None,
        batch_shape: tuple[int, ...] = (),
        dtype: torch.dtype = torch.float64,
        device: torch.device | str | None = None,
        validate: bool = True,
    ) -> None:
        super().__init__(HeavyTailRegression(**arguments_of(locals())))
