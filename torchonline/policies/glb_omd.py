"""GLB-OMD: optimism over mirror descent on a generalized linear model."""

import torch

from torchonline.core.options import arguments_of
from torchonline.links import Link
from torchonline.policies.rules import UCB
from torchonline.regression.glm.mirror_descent import GLMRegression


class GLBOMD(UCB[GLMRegression]):
    r"""GLB-OMD: optimism over :class:`GLMRegression`, with the same arguments.

    We recommend :class:`LocalGLB`.

    Args:
        dim: d, number of features.
        link: how the mean reward depends on the predictor: one of :mod:`torchonline.links`; None for ``Logistic()``. ``step``
            refuses rewards that are impossible under the link.
        radius: "empirical", "tight" or "paper".
        theta_bound: S > 0, a bound on the norm of the true parameter. Too large costs regret; too small voids the guarantee
            (docs/promises.md).
        feature_bound: L > 0, a bound on the norm of features. ``step`` refuses longer ones. Too large costs
            :class:`GLMRegression` regret (docs/promises.md).
        ridge: :math:`\lambda > 0`; None for d.
        delta: probability in (0, 1) that the confidence set ever fails.
        radius_scale: multiplies the radius of choices; the update uses the radius of the proof. Other than 1 it is a heuristic.
        batch_shape: ``*B``, independent learners in one module.
        dtype: torch.float64 or torch.float32, of the state. The proofs are for float64.
        device: where the state lives.
        validate: whether each call checks values (NaN, infinity, ranges). Shapes and types are always checked. On an
            accelerator, a check of values makes the host wait for the device.

    Example:
        >>> policy = GLBOMD(2, link=Poisson(), theta_bound=2.0)
        >>> policy.step(torch.eye(2), 0, 0.5)
        Traceback (most recent call last):
        ValueError: reward: expected whole numbers from 0 on, as Poisson has it, got 0.5
    """

    def __init__(
        self,
        dim: int,
        *,
        link: Link | None = None,
        radius: str = "empirical",
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
        super().__init__(GLMRegression(**arguments_of(locals())))
