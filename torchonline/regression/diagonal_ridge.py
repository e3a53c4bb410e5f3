"""Ridge regression for wide features: a variance for each feature, and no matrix."""

from typing import Unpack

import torch
from torch import Tensor

from torchonline.core.checks import LARGEST, positive
from torchonline.core.ops import (
    along,
    at_least,
    count_,
    dot,
    increase_,
    matvec,
    number,
    real,
    rows_times,
    sqrt,
    weighted,
)
from torchonline.core.options import LearnerOptions
from torchonline.core.precision_matrix import check_matrix
from torchonline.regression.estimator import NOISE_OF_UNIT_REWARDS, Estimator


class DiagonalRidgeRegression(Estimator):
    r"""Ridge regression with the diagonal of the covariance only, for wide features.

    .. math:: \hat\theta \leftarrow \hat\theta + \frac{s \odot a\,(\tilde r - a^\top\hat\theta)}{1+q},\qquad
              s \leftarrow s - \frac{(s \odot a)^2}{1+q},\qquad q = \sum_i s_ia_i^2

    The variances s start at :math:`1/\lambda` with :math:`\lambda` = ``ridge``. Full ridge regression updates a covariance
    matrix; here s is the diagonal of the updated matrix, and the rest is dropped before the next round. With features that never
    occur together, the two are the same. A prediction is :math:`x^\top\hat\theta + \ell` with a level :math:`\ell`, the mean
    reward: there :math:`a = x` and :math:`\tilde r = r - \ell`. In a batch of arms, :math:`\ell` is the mean of the arm's own
    rewards, which starts with ``ridge`` rewards at the mean of all arms. Widths are :math:`\sqrt{\sum_i s_ix_i^2}`.

    Guarantee: none. The radius is a heuristic: ``radius_scale`` times the root mean square of the residuals, which starts with
    one residual of ``noise_scale``. The widths are too: they ignore that features occur together. :class:`RidgeRegression` has a
    theorem, and needs d x d matrices. A round with its own noise scale is learnt as :math:`a` and :math:`\tilde r`, each
    multiplied by ``noise_scale`` and divided by the round's.

    Cost of a round: O(d) time, and 2 d numbers. For sparse features on the CPU, time is in proportion to the entries other than
    0 (docs/wide.md).

    Args:
        dim, restart_every, batch_shape, dtype, device, validate: as in :class:`Estimator`.
        noise_scale: above 0, a first guess of the residuals' size, in units of the reward.
        ridge: above 0, in units of the square of a feature. The default suits indicators, features of 0 and 1.
        radius_scale: above 0, the radius in units of the residuals' root mean square.

    Shape:
        - ``theta_hat`` and ``variances``, ``(*B, d)``; ``rounds``, ``(*B)``; ``own_gain``, the sum of rewards, ``(*B)``.
        - Shared by arms, ``(*B)``: ``seen``, the number of rewards; ``gain``, their sum; ``squares``, the sum of squared
          residuals.

    Example:
        >>> learner = DiagonalRidgeRegression(100_000)
        >>> x = torch.zeros(100_000)
        >>> x[[7, 99_999]] = 1.0  # a user and an item
        >>> for reward in [0.4, 0.6] * 50:
        ...     learner.step(x, reward)
        >>> print(f"{learner(x):.2f} +- {learner.radius() * learner.width(x):.2f}")
        0.50 +- 0.00

    Reference:
        Crammer, Kulesza and Dredze, Adaptive regularization of weight vectors, NeurIPS 2009. What differs: squared loss, the
        level, and the radius, which is of this library.
    """

    guarantee = "none"
    statistics_depend_on = ("noise_scale", "ridge", "restart_every")
    positive_definite: tuple[str, ...] = ()
    inverses: tuple[tuple[str, str], ...] = ()
    pooled: tuple[str, ...] = ("seen", "gain", "squares")
    takes_one_row = True
    keeps_matrices = False
    variances: Tensor
    own_gain: Tensor
    seen: Tensor
    gain: Tensor
    squares: Tensor

    def __init__(
        self,
        dim: int,
        *,
        noise_scale: float = NOISE_OF_UNIT_REWARDS,
        ridge: float = 3.0,
        radius_scale: float = 0.3,
        restart_every: int | None = None,
        **options: Unpack[LearnerOptions],
    ) -> None:
        noise_scale = positive("noise_scale", noise_scale)
        super().__init__(dim, ridge, radius_scale, noise_scale, restart_every=restart_every, **options)
        # A round without noise would outweigh all others forever.
        self.smallest_noise_scale = 1e-20 * self.noise_scale
        # No bound on the parameter's norm is known that could clip an interval.
        self.theta_bound = LARGEST[self._initial_options["dtype"]]
        self.squared_noise = self.noise_scale**2
        # A restart changes all columns, and a subclass may have further numbers for each.
        own = ("_initial_state", "_observe", "_learn_round", "affine", "predictor", "_squared_width", "raised")
        is_plain = all(getattr(type(self), name) is getattr(DiagonalRidgeRegression, name) for name in own)
        self.has_own_columns = restart_every is None and is_plain
        self._create_buffers()

    def _initial_state(self) -> dict[str, Tensor | None]:
        zero = torch.zeros((), dtype=torch.float64)
        count = torch.zeros((), dtype=torch.int64)
        return {
            "theta_hat": torch.zeros(self.dim, dtype=torch.float64),
            "variances": torch.full((self.dim,), 1.0 / self.ridge, dtype=torch.float64),
            "own_gain": zero,
            "seen": count,
            "gain": zero.clone(),
            "squares": zero.clone(),
            "rounds": count.clone(),
        }

    def radius(self) -> Tensor:
        return self.radius_scale * self.posterior_scale()

    def posterior_scale(self) -> Tensor:
        """Return the residuals' root mean square, an estimate of the noise: ``(*B)``."""
        squares = number(self.squares)
        return sqrt((squares + self.squared_noise) / (real(self.seen, squares) + 1.0))

    def affine(self) -> tuple[Tensor, Tensor | None]:
        return self.theta_hat, self._level()

    def _level(self) -> Tensor:
        """Return the arm's mean reward, shrunk to the mean reward of all arms: ``(*B)``."""
        gain, own = number(self.gain), number(self.own_gain)
        mean = gain / at_least(real(self.seen, gain), 1.0)
        return (own + self.ridge * mean) / (real(self.rounds, own) + self.ridge)

    def width_matrix(self) -> Tensor:
        """Return the diagonal matrix of the variances, ``(*B, d, d)``, for small d."""
        check_matrix("dim", self.dim, 1, type(self).__name__)
        return torch.diag_embed(self.variances)

    def _squared_width(self, x: Tensor) -> Tensor:
        if self.batch_dims > 0 and self._is_shared(x):
            return matvec(self.variances, x * x)
        if self.batch_dims == 0:
            return rows_times(x * x, self.variances)
        return rows_times(x * x, self.variances[..., None])[..., 0]

    def _of_posterior(self, noise: Tensor) -> Tensor:
        return noise * self.variances.sqrt().unsqueeze(-2)

    def _observe(self, x: Tensor, reward: Tensor, noise_scale: Tensor) -> None:
        theta_hat, variances, weight = self.theta_hat, self.variances, self.noise_scale / noise_scale
        a = weighted(x, weight)
        s_a = variances * a
        quadratic = dot(a, s_a)
        self._check_growth(x, quadratic)
        count_(self.seen)
        self._count_round()
        increase_(self.gain, reward)
        increase_(self.own_gain, reward)
        # The level with this reward in it, so that the first reward sets the level and teaches the features nothing.
        residual = weight * (reward - self._level()) - dot(a, theta_hat)
        increase_(self.squares, residual * residual)
        theta_hat += s_a * along(residual / (1.0 + quadratic), x)
        # 1 - s a^2 / (1 + q) without the difference of two large numbers.
        variances *= (1.0 + at_least(along(quadratic, x) - s_a * a, 0.0)) / along(1.0 + quadratic, x)
