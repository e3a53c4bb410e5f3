"""Ridge regression and OFUL (Abbasi-Yadkori, Pal and Szepesvari, NeurIPS 2011)."""

import math
from typing import Unpack

import torch
from torch import Tensor

from torchonline.bandits.estimator import Estimator
from torchonline.bandits.policies import UCB
from torchonline.core.checks import positive, within
from torchonline.core.ops import along, dot, increase_, log1p, matvec, number, sqrt
from torchonline.core.options import LearnerOptions, arguments_of


class RidgeRegression(Estimator):
    r"""Ridge regression, one rank-one update a round, with the self-normalised confidence radius.

    .. math:: V \leftarrow V + aa^\top,\quad \hat\theta \leftarrow \hat\theta + V^{-1}a\,(\tilde r - a^\top\hat\theta),\qquad
              \text{radius} = R\sqrt{\log\det(V/\lambda) + 2\log(1/\delta)} + \sqrt\lambda\,S

    from :math:`V = \lambda I`, with :math:`a = x` and :math:`\tilde r = r`. A round whose ``noise_scale`` :math:`R_t` is given
    counts as :math:`a = xR/R_t`, :math:`\tilde r = rR/R_t`: weighted least squares. Widths are :math:`\|x\|_{V^{-1}}`.

    Guarantee. If the noise is R-sub-Gaussian given the past and x (R_t where that is given), with R = ``noise_scale``, and
    :math:`\|\theta^*\| \le` ``theta_bound``, then with probability at least 1 - ``delta``, for all rounds and all x at once,
    :math:`|x^\top(\hat\theta-\theta^*)| \le \text{radius}\cdot\text{width}(x)` (Theorem 2 of the reference). Under heavier tails
    it does not hold, and is seen to fail: use :class:`HeavyTailRegression`. ``radius_scale`` other than 1 is a heuristic.

    With ``restart_every`` the guarantee holds in each epoch in which the parameter does not move, with probability at least 1 -
    ``delta`` for that epoch alone, and says nothing of an epoch in which it does. :class:`OFUL` says what that is worth.

    Cost of a round: O(d^2) time and two d x d matrices (three in float32), whatever the round.

    Args:
        dim: d, number of features.
        noise_scale: R > 0, the sub-Gaussian scale of the noise, in units of the reward.
        theta_bound: S > 0, a bound on the norm of the true parameter.
        ridge: :math:`\lambda > 0`.
        delta: probability in (0, 1) that the confidence set ever fails.
        radius_scale: multiplies the radius.
        restart_every: rounds after which everything is forgotten, for a parameter that moves; None never forgets.
        batch_shape: ``*B``, independent learners in one module.
        dtype: torch.float64 or torch.float32, of the state.
        device: where the state lives.
        validate: whether values are checked in each call.

    Shape:
        - ``theta_hat``, ``(*B, d)``; ``V``, ``V_inv``, ``(*B, d, d)``; ``logdet``, ``rounds``, ``(*B)``. ``rounds`` counts from
          the last start.

    Example:
        >>> learner = RidgeRegression(2)
        >>> learner.step(torch.tensor([1.0, 0.0]), torch.tensor(2.0))
        >>> learner.theta_hat, learner.width(torch.eye(2))
        (tensor([1., 0.], dtype=torch.float64), tensor([0.7071, 1.0000], dtype=torch.float64))

    Reference:
        Abbasi-Yadkori, Pal and Szepesvari, Improved Algorithms for Linear Stochastic Bandits, NeurIPS 2011. What differs:
        theta_hat follows by rank-one updates; a column of the inverse is corrected every eighth round, so that rounding errors
        do not add up.
    """

    statistics_depend_on = ("noise_scale", "ridge", "restart_every")

    logdet: Tensor

    def __init__(
        self,
        dim: int,
        *,
        noise_scale: float = 1.0,
        theta_bound: float = 1.0,
        ridge: float = 1.0,
        delta: float = 0.01,
        radius_scale: float = 1.0,
        restart_every: int | None = None,
        **options: Unpack[LearnerOptions],
    ) -> None:
        super().__init__(
            dim,
            noise_scale=positive("noise_scale", noise_scale),
            theta_bound=theta_bound,
            ridge=ridge,
            radius_scale=radius_scale,
            restart_every=restart_every,
            **options,
        )
        # A round without noise would outweigh all others for ever.
        self.smallest_noise_scale = 1e-20 * self.noise_scale
        self.delta = within("delta", delta, 0.0, 1.0)
        self.log_term = -2.0 * math.log(self.delta)
        self.bias_term = math.sqrt(self.ridge) * self.theta_bound
        self._create_buffers()

    def _initial_state(self) -> dict[str, Tensor | None]:
        return super()._initial_state() | {"logdet": torch.zeros((), dtype=torch.float64)}

    @torch.jit.export
    def radius(self) -> Tensor:
        return self.radius_scale * (self.noise_scale * sqrt(number(self.logdet) + self.log_term) + self.bias_term)

    def _observe(self, x: Tensor, reward: Tensor, noise_scale: Tensor) -> None:
        theta_hat, weight = self.theta_hat, self.noise_scale / noise_scale
        a = along(weight, x) * x
        V_inv_a = matvec(self.V_inv, a)
        quadratic = dot(a, V_inv_a)
        self._check_growth(x, quadratic)
        residual = weight * reward - dot(a, theta_hat)
        theta_hat += V_inv_a * along(residual / (1.0 + quadratic), x)
        increase_(self.logdet, log1p(quadratic))  # det(V + aa') = det V (1 + a'V^-1 a)
        self._add_outer_(a, V_inv_a, quadratic)


class OFUL(UCB):
    r"""OFUL, also known as LinUCB: optimism over :class:`RidgeRegression`.

    The arguments, the guarantee and the cost are the estimator's. Regret is :math:`\tilde O(d\sqrt T)` under sub-Gaussian noise
    (Theorem 3 of the reference).

    A parameter that moves, by :math:`P = \sum_t\|\theta_{t+1}-\theta_t\|` in all over T rounds, leaves a learner that never
    forgets with regret of order T. With ``restart_every=H`` the regret against the best arm of each round is
    :math:`\tilde O(dT/\sqrt H + H^{3/2}P)`: :math:`\tilde O(d^{3/4}P^{1/4}T^{3/4})` at :math:`H = \sqrt{dT/P}`, if that is
    between 1 and T (proof: docs/drift.md; the rate in P and T is that of Zhao, Zhang, Jiang and Zhou, A Simple Approach for
    Non-stationary Linear Bandits, AISTATS 2020, in the corrected version, arXiv:2103.05324).

    Example:
        >>> policy = OFUL(2, noise_scale=0.1)
        >>> arms = torch.eye(2)
        >>> for _ in range(50):
        ...     choice = policy.select(arms)
        ...     policy.step(arms[choice], choice.double())  # the second arm pays 1, the first 0
        >>> policy.select(arms)
        tensor(1)
    """

    def __init__(
        self,
        dim: int,
        *,
        noise_scale: float = 1.0,
        theta_bound: float = 1.0,
        ridge: float = 1.0,
        delta: float = 0.01,
        radius_scale: float = 1.0,
        restart_every: int | None = None,
        batch_shape: tuple[int, ...] = (),
        dtype: torch.dtype = torch.float64,
        device: torch.device | str | None = None,
        validate: bool = True,
    ) -> None:
        super().__init__(RidgeRegression(**arguments_of(locals())))
