"""Normalised least mean squares: a tracker of constant step."""

import math
from typing import Unpack

from torch import Tensor

from torchonline.core.checks import positive, within
from torchonline.core.ops import along, dot, sqrt, weighted
from torchonline.core.options import LearnerOptions
from torchonline.regression.estimator import NOISE_OF_UNIT_REWARDS, Estimator


class NormalizedLMS(Estimator):
    r"""Normalised least mean squares: steps of constant size, for slow drift.

    .. math:: \hat\theta \leftarrow \hat\theta + \mu\,\frac{a\,(\tilde r - a^\top\hat\theta)}{\lambda + \|a\|^2}

    with :math:`\mu` = ``step_size``, :math:`\lambda` = ``ridge``, :math:`a = x` and :math:`\tilde r = r`. A round with its own
    ``noise_scale`` :math:`R_t` has :math:`a = xR/R_t` and :math:`\tilde r = rR/R_t`. With :math:`\mu` near 1 a prediction is
    nearly the last reward of the same features; with a small :math:`\mu` it averages about :math:`1/\mu` rewards.

    Guarantee. For every sequence of x and r, every u and every T, with :math:`w_t = 1/(\lambda + \|a_t\|^2)`,

    .. math:: \sum_t w_t\bigl(a_t^\top(\hat\theta_t - u)\bigr)^2 \le \|u\|^2/\mu + \sum_tw_t(\tilde r_t - a_t^\top u)^2:

    the prediction errors are in total no larger than the noise, for any noise. docs/drift_theory.md has the proof, and the
    bound for a parameter that moves. The confidence set always holds and is uninformative: V stays :math:`\lambda I`, the width
    is :math:`\|x\|/\sqrt\lambda`, and the radius :math:`\sqrt\lambda\,(\|\hat\theta\| + S)` with S = ``theta_bound``. So choose
    with :class:`~torchonline.Greedy`.

    Cost of a round: O(d) time, and two constant d x d matrices (three in float32).

    Args:
        dim, theta_bound, radius_scale, batch_shape, dtype, device, validate: as in :class:`Estimator`.
        step_size: :math:`\mu` in (0, 1].
        ridge: :math:`\lambda > 0`, in units of the square of a feature; small beside :math:`\|x\|^2`.
        noise_scale: R > 0; used only in rounds with their own noise scale.

    Shape:
        - ``theta_hat``, ``(*B, d)``; ``V``, ``V_inv``, ``(*B, d, d)``, which do not change; ``rounds``, ``(*B)``.

    Example:
        >>> learner, x = NormalizedLMS(2, step_size=0.5), torch.tensor([1.0, 0.0])
        >>> for reward in [1.0] * 200 + [-1.0] * 10:
        ...     learner.step(x, reward)
        >>> bool(learner(x) < -0.8)
        True

    Reference:
        Hassibi, Sayed and Kailath, H-infinity optimality of the LMS algorithm, IEEE Transactions on Signal Processing 44, 1996.
        What differs: :math:`\lambda` in the denominator; the proof is ours.
    """

    guarantee = "none"
    statistics_depend_on = ("noise_scale", "ridge", "step_size")

    def __init__(
        self,
        dim: int,
        *,
        step_size: float = 0.5,
        noise_scale: float = NOISE_OF_UNIT_REWARDS,
        theta_bound: float = 1.0,
        ridge: float = 1.0,
        radius_scale: float = 1.0,
        **options: Unpack[LearnerOptions],
    ) -> None:
        noise_scale = positive("noise_scale", noise_scale)
        super().__init__(dim, ridge, radius_scale, noise_scale, theta_bound, **options)
        self.step_size = within("step_size", step_size, 0.0, 1.0, closed=True)
        # A round without noise would outweigh all others.
        self.smallest_noise_scale = 1e-20 * self.noise_scale
        self.root_ridge = math.sqrt(self.ridge)
        self.bound = self.root_ridge * self.theta_bound
        self._create_buffers()

    def radius(self) -> Tensor:
        return self.radius_scale * (self.root_ridge * sqrt(dot(self.theta_hat, self.theta_hat)) + self.bound)

    def _observe(self, x: Tensor, reward: Tensor, noise_scale: Tensor) -> None:
        theta_hat, weight = self.theta_hat, self.noise_scale / noise_scale
        a = weighted(x, weight)
        square = dot(a, a)
        self._check_growth(x, square / self.ridge)
        step = self.step_size * (weight * reward - dot(a, theta_hat)) / (self.ridge + square)
        theta_hat += along(step, a) * a
        self._end_round_()
