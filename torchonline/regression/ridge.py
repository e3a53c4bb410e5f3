"""Ridge regression and OFUL (Abbasi-Yadkori, Pal and Szepesvari, NeurIPS 2011)."""

import math
from typing import Any, Unpack

import torch
from torch import Tensor

from torchonline.core.backend import in_python
from torchonline.core.checks import one_of, positive, within
from torchonline.core.compiled import LEFT, core_of, with_core
from torchonline.core.ops import along, assign_, at_least, dot, increase_, log1p, matvec, number, sqrt, weighted
from torchonline.core.options import LearnerOptions
from torchonline.core.precision_matrix import add_squares_, gram, log_det, solved
from torchonline.core.views import NumpyView
from torchonline.regression.estimator import NOISE_OF_UNIT_REWARDS, Estimator


@with_core
class RidgeRegression(Estimator):
    r"""Ridge regression by rank-one updates, with a self-normalised confidence set.

    .. math:: V \leftarrow V + aa^\top,\quad \hat\theta \leftarrow \hat\theta + V^{-1}a\,(\tilde r - a^\top\hat\theta),\qquad
              \text{radius}^2 = R^2\bigl(\log\det(V/\lambda) + 2\log(1/\delta)\bigr) + \lambda S^2

    V starts at :math:`\lambda I`, and :math:`a = x`, :math:`\tilde r = r`. A round with its own ``noise_scale`` :math:`R_t` has
    :math:`a = xR/R_t` and :math:`\tilde r = rR/R_t`, which gives weighted least squares. Widths are :math:`\|x\|_{V^{-1}}`.

    Guarantee. Assume that the noise is R-sub-Gaussian given the past and x, with R = ``noise_scale`` (:math:`R_t` in a round that
    has its own), and that :math:`\|\theta^*\| \le` ``theta_bound``. Then with probability at least 1 - ``delta``, for all rounds
    and all x at once, :math:`|x^\top(\hat\theta-\theta^*)| \le \text{radius}\cdot\text{width}(x)` (proof: docs/ridge.md). Under
    heavier tails the set is not proved, and fails in experiments: use :class:`HeavyTailRegression`. ``radius="classic"``,
    :math:`R\sqrt{\log\det(V/\lambda) + 2\log(1/\delta)} + \sqrt\lambda\,S`, is the radius of Theorem 2 of the reference: it has
    the same guarantee, and is never smaller.

    Cost of a round: O(d^2) time and two d x d matrices (three in float32), the same in every round.

    Args:
        dim, theta_bound, ridge, radius_scale, restart_every, batch_shape, dtype, device, validate: as in :class:`Estimator`.
        noise_scale: R > 0, the sub-Gaussian scale of the noise, in units of the reward. 1/2 holds for rewards in [0, 1]; larger
            noise needs a larger number.
        delta: probability in (0, 1) that the confidence set ever fails.
        radius: "mixture" or "classic".

    Example:
        >>> learner = RidgeRegression(2)
        >>> learner.step(torch.tensor([1.0, 0.0]), torch.tensor(2.0))
        >>> learner.theta_hat, learner.width(torch.eye(2))
        (tensor([1., 0.], dtype=torch.float64), tensor([0.7071, 1.0000], dtype=torch.float64))

    Reference:
        Abbasi-Yadkori, Pal and Szepesvari, Improved Algorithms for Linear Stochastic Bandits, NeurIPS 2011. What differs: the
        default radius.
    """

    guarantee = "in all rounds"
    statistics_depend_on = ("noise_scale", "ridge", "restart_every")
    logdet: Tensor

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
        **options: Unpack[LearnerOptions],
    ) -> None:
        noise_scale = positive("noise_scale", noise_scale)
        super().__init__(dim, ridge, radius_scale, noise_scale, theta_bound, restart_every, **options)
        # A round without noise would outweigh all others forever.
        self.smallest_noise_scale = 1e-20 * self.noise_scale
        self.delta = within("delta", delta, 0.0, 1.0)
        self.radius_kind = one_of("radius", radius, ("mixture", "classic"))
        self.log_term = -2.0 * math.log(self.delta)
        self.bias_term = math.sqrt(self.ridge) * self.theta_bound
        # In units of the larger of the two, so that their squares do not overflow.
        self.unit = max(self.noise_scale, self.bias_term)
        self.squared_noise = (self.noise_scale / self.unit) ** 2
        self.squared_bias = (self.bias_term / self.unit) ** 2
        self._create_buffers()

    def _initial_state(self) -> dict[str, Tensor | None]:
        return super()._initial_state() | {"logdet": torch.zeros((), dtype=torch.float64)}

    def radius(self) -> Tensor:
        log_terms = number(self.logdet) + self.log_term
        if self.radius_kind == "classic":
            return self.radius_scale * (self.noise_scale * sqrt(log_terms) + self.bias_term)
        return self.radius_scale * (self.unit * sqrt(self.squared_noise * log_terms + self.squared_bias))

    def _observe_in_python(self, x: Any, reward: Any, noise_scale: Any) -> None:
        core = self.__dict__.get("_core")  # on NumPy views alone
        if core is None or core.learn(x, 0, reward, noise_scale) == LEFT:
            self._add_round_(x, reward, noise_scale)

    @in_python(_observe_in_python)
    def _observe(self, x: Tensor, reward: Tensor, noise_scale: Tensor) -> None:
        self._add_round_(x, reward, noise_scale)

    def _add_round_(self, x: Tensor, reward: Tensor, noise_scale: Tensor) -> None:
        theta_hat, weight = self.theta_hat, self.noise_scale / noise_scale
        a = weighted(x, weight)
        V_inv_a = matvec(self.V_inv, a)
        quadratic = dot(a, V_inv_a)
        self._check_growth(x, quadratic)
        residual = weight * reward - dot(a, theta_hat)
        theta_hat += V_inv_a * along(residual / (1.0 + quadratic), x)
        increase_(self.logdet, log1p(quadratic))  # det(V + aa') = det V (1 + a'V^-1 a)
        self._add_outer_(a, V_inv_a, quadratic)

    def _observe_block(self, x: Tensor, reward: Tensor, noise_scale: Tensor, count: Tensor) -> None:
        theta_hat, rounds, weight = self.theta_hat, self.rounds, self.noise_scale / noise_scale
        a = weight.unsqueeze(-1) * x
        residual = weight * reward - matvec(a, theta_hat)
        squares, moved = self._totals([gram(a, a), gram(a, residual.unsqueeze(-1))])
        factor, inflation = add_squares_(self._precision(), squares)
        self._check_block(inflation)
        theta_hat += solved(factor, moved).squeeze(-1)
        assign_(self.logdet, at_least(log_det(factor) - self.dim * math.log(self.ridge), 0.0))
        rounds += count

    # TorchScript does not compile the method below.

    def _complete(self, view: NumpyView) -> None:
        if not self.batch_dims:
            view.learner.__dict__["_core"] = core_of(self, vars(view.learner))
