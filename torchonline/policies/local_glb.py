"""Optimism over local steps on a generalized linear model."""

import torch

from torchonline.core.options import arguments_of
from torchonline.links import Link
from torchonline.policies.rules import UCB
from torchonline.regression.glm.local import LocalGLMRegression


class LocalGLB(UCB[LocalGLMRegression]):
    r"""The library's bandit for clicks, ratings and counts.

    Optimism over :class:`LocalGLMRegression`, with the same arguments.

    Args:
        dim: d, number of features.
        link: how the mean reward depends on the predictor: one of :mod:`torchonline.links`; None for ``Logistic()``. ``step``
            refuses rewards that are impossible under the link.
        corruption: C >= 0, a bound on the sum of all changes that an adversary makes to rewards, in units of the reward: for
            clicks, the number of false and of suppressed ones. Too small voids the guarantee. Above 0 it costs regret, even if
            there is no adversary (docs/generalized_linear.md).
        theta_bound: S > 0, a bound on the norm of the true parameter. Too large costs regret; too small voids the guarantee
            (docs/promises.md).
        feature_bound: L > 0, a bound on the norm of features. ``step`` refuses longer ones: where :math:`S\|x\|` is large, the
            interval of a predictor leaves no curvature, and the statistics would not grow. With a link whose self-concordance R
            is the same everywhere (all but ``Gamma`` and ``CustomLink``), an L that is too large costs nothing.
        ridge: :math:`\lambda > 0`; None for d / (1 + R S), which depends on L only with those two links.
        delta: probability in (0, 1) that the confidence set ever fails.
        radius_scale: multiplies the radius of choices; the update uses the radius of the proof. Other than 1 it is a heuristic.
        batch_shape: ``*B``, independent learners in one module.
        dtype: torch.float64 or torch.float32, of the state. The proofs are for float64.
        device: where the state lives.
        validate: whether each call checks values (NaN, infinity, ranges). Shapes and types are always checked. On an
            accelerator, a check of values makes the host wait for the device.

    Example:
        >>> policy, arms = LocalGLB(2, theta_bound=3.0), torch.eye(2)
        >>> action = torch.arange(100) % 2
        >>> policy.step(arms.expand(100, 2, 2), action, action)  # the second arm is always clicked
        >>> policy.select(arms)
        tensor(1)
    """

    def __init__(
        self,
        dim: int,
        *,
        link: Link | None = None,
        corruption: float = 0.0,
        theta_bound: float = 1.0,
        feature_bound: float = 1.0,
        ridge: float | None = None,
        delta: float = 0.01,
        radius_scale: float = 1.0,
        batch_shape: tuple[int, ...] = (),
        dtype: torch.dtype = torch.float64,
        device: torch.device | str | None = None,
        validate: bool = True,
    ) -> None:
        super().__init__(LocalGLMRegression(**arguments_of(locals())))
