"""Ridge and heavy-tailed regression that forget exponentially, for drift."""

import math
from typing import Any, Unpack

import torch
from torch import Tensor

from torchonline.core.checks import positive, positive_integer, within
from torchonline.core.ops import (
    along,
    assign_,
    at_least,
    dot,
    largest,
    log,
    matvec,
    number,
    smallest,
    sqrt,
    trace,
    weighted,
)
from torchonline.core.options import LearnerOptions, arguments_of
from torchonline.core.precision_matrix import add_outer_, scale_, subtract_outers_
from torchonline.linalg import coordinate_vector
from torchonline.regression.estimator import NOISE_OF_UNIT_REWARDS, Estimator
from torchonline.regression.heavy_tail import HeavyTailRegression


def checked_discount(dim: int, discount: Any) -> float:
    """Return a discount with a memory of at least ``dim`` rounds.

    With a shorter memory, the ridge would fade between two turns.
    """
    memory = max(2, positive_integer("dim", dim))
    discount = within("discount", discount, 0.0, 1.0)
    if memory * (1.0 - discount) > 1.0 + 1e-9:
        raise ValueError(
            f"discount: expected at least {1.0 - 1.0 / memory:g}, a memory of {memory} rounds, got {discount}"
        )
    return discount


def learn_weighted_(
    theta_hat: Tensor, P: Tensor, a: Tensor, V_inv_a: Tensor, quadratic: Tensor, error: Tensor, rho: float
) -> None:
    r"""Update the estimate and :math:`P = V^{-1}AV^{-1}` by a weighted round.

    V grows by :math:`aa^\top`, which is left to the caller, and A by :math:`\rho aa^\top`. ``quadratic`` is
    :math:`a^\top V^{-1}a` before V grows, and ``error`` the target minus :math:`a^\top\hat\theta`, ``(*B)``.
    """
    Pa = matvec(P, a)
    h = V_inv_a / along(1.0 + quadratic, a)
    theta_hat += along(error, a) * h
    half = 0.5 * (dot(a, Pa) + rho)
    subtract_outers_(P, h, Pa - along(half, a) * h)


class DiscountedEstimator(Estimator):
    r"""Base of the regressions that forget exponentially.

    A subclass calls :meth:`_set_discount` in its constructor. Its ``_observe`` calls :meth:`_fade_`, learns from the round,
    and calls :meth:`_count_squares_`. :class:`DiscountedRidgeRegression` explains the buffers.
    """

    positive_definite = (*Estimator.positive_definite, "P")

    P: Tensor
    squared_trace: Tensor
    prior: Tensor
    squared_prior: Tensor

    def _set_discount(self, discount: Any, delta: float) -> None:
        """Set the constants, given the ridge."""
        self.discount = checked_discount(self.dim, discount)
        self.log_term = -2.0 * math.log(delta)
        self.turn_weight = math.sqrt(self.dim * (1.0 - self.discount) * self.ridge)

    def _initial_state(self) -> dict[str, Tensor | None]:
        state = super()._initial_state()
        prior = torch.full((self.dim,), self.ridge, dtype=torch.float64)
        return state | {"P": state["V_inv"], "squared_trace": prior.sum(), "prior": prior, "squared_prior": prior}

    def width_matrix(self) -> Tensor:
        """Return P of ``width(x) = sqrt(x'Px)``, ``(*B, d, d)``."""
        return self.P

    def moves_of_width(self, x: Tensor) -> list[Tensor]:
        e = coordinate_vector(self.rounds % self.dim, x)
        P, V_inv = self.P, self.V_inv
        return [matvec(P, x), matvec(V_inv, x), matvec(P, e), matvec(V_inv, e)]

    def _root_growth(self) -> Tensor:
        """Return the factor of the noise scale in the radius."""
        growth = self.dim * log(number(self.squared_trace) / (self.dim * number(smallest(self.squared_prior))))
        return sqrt(at_least(growth, 0.0) + self.log_term)

    def _bias(self) -> Tensor:
        """Return the ridge's term in the radius."""
        return self.theta_bound * number(largest(self.prior / sqrt(self.squared_prior)))

    def _fade_(self) -> Tensor:
        """Discount the statistics, and renew the ridge in one coordinate in turn.

        Return the observation of 0 that renews it, ``(*B, d)``.
        """
        theta_hat, fading = self.theta_hat, self.discount
        # P and theta_hat do not depend on the scale.
        scale_(self._precision(), fading)
        e = coordinate_vector(self.rounds % self.dim, theta_hat)
        renewed = self.dim * self.ridge * (1.0 - fading) * e
        assign_(self.prior, fading * self.prior + renewed)
        assign_(self.squared_prior, fading * fading * self.squared_prior + (1.0 + fading) * renewed)

        # Observe 0 in this coordinate, with the ridge that all coordinates have lost.
        e = self.turn_weight * e
        V_inv_e = matvec(self.V_inv, e)
        quadratic = dot(e, V_inv_e)
        learn_weighted_(theta_hat, self.P, e, V_inv_e, quadratic, -dot(e, theta_hat), 1.0 + fading)
        add_outer_(self._precision(), e, V_inv_e, quadratic)
        return e

    def _count_squares_(self, a: Tensor, e: Tensor) -> None:
        """Add the observations of a round, a and that of :meth:`_fade_`, to the trace."""
        fading = self.discount
        kept = fading * fading * number(self.squared_trace)
        assign_(self.squared_trace, kept + dot(a, a) + (1.0 + fading) * dot(e, e))


class DiscountedRidgeRegression(DiscountedEstimator):
    r"""Ridge regression that forgets exponentially, for a parameter that moves slowly.

    A round, with :math:`\gamma` = ``discount``, :math:`\lambda` = ``ridge`` and :math:`j = t \bmod d`:

    .. math:: V &\leftarrow \gamma V + (1-\gamma)\lambda d\,e_je_j^\top + aa^\top, \qquad
              \tilde V \leftarrow \gamma^2\tilde V + (1-\gamma^2)\lambda d\,e_je_j^\top + aa^\top, \\
              b &\leftarrow \gamma b + a\tilde r, \qquad \hat\theta = V^{-1}b, \qquad
              \text{width}(x) = \|x\|_{V^{-1}\tilde VV^{-1}},

    with :math:`a = x` and :math:`\tilde r = r`; a round with its own ``noise_scale`` :math:`R_t` has :math:`a = xR/R_t` and
    :math:`\tilde r = rR/R_t`. A round of age n weighs :math:`\gamma^n`, so the memory is 1 / (1 - ``discount``) rounds. V and
    :math:`\tilde V` start at :math:`\lambda I`. The coordinate vectors :math:`e_j` take turns to renew the ridge, which keeps
    updates of rank one. With :math:`\Lambda, \tilde\Lambda` for the ridge's share of V and :math:`\tilde V`, both diagonal,

    .. math:: \text{radius} = R\sqrt{d\log\frac{\operatorname{tr}\tilde V}{d\min_i\tilde\Lambda_{ii}} + 2\log\tfrac1\delta}
              + S\max_i\Lambda_{ii}/\tilde\Lambda_{ii}^{1/2}.

    Guarantee. Assume that the noise is R-sub-Gaussian given the past and x, with R = ``noise_scale`` (:math:`R_t` in a round
    that has its own), and that all parameters :math:`\theta_t` have norm at most S = ``theta_bound``. Then in each round, with
    probability at least 1 - ``delta``, for all x at once,

    .. math:: |x^\top(\hat\theta - \theta_t)| \le \text{radius}\cdot\text{width}(x)
              + \|x\|_{V^{-1}}\Bigl(\sum_s\gamma^{t-s}(a_s^\top(\theta_s - \theta_t))^2\Bigr)^{1/2}.

    The last term is 0 if the parameter stays. This is for each round, not for all rounds at once (proof: docs/drift_theory.md).

    Cost of a round: O(d^2) time and three d x d matrices (four in float32), the same in every round.

    Args:
        dim, theta_bound, ridge, radius_scale, batch_shape, dtype, device, validate: as in :class:`Estimator`.
        discount: :math:`\gamma`, below 1 and at least 1 - 1/d, which is a memory of d rounds; at least 1/2 for d = 1.
        noise_scale: R > 0, the sub-Gaussian scale of the noise, in units of the reward. 1/2 holds for rewards in [0, 1]; larger
            noise needs a larger number.
        delta: probability in (0, 1) that the confidence set of a round fails.

    Shape:
        - ``P`` :math:`V^{-1}\tilde VV^{-1}`, ``(*B, d, d)``; ``squared_trace`` :math:`\operatorname{tr}\tilde V`, ``(*B)``;
          ``prior``, ``squared_prior``, the diagonals of :math:`\Lambda` and :math:`\tilde\Lambda`, ``(*B, d)``.

    Example:
        >>> learner, x = DiscountedRidgeRegression(2, discount=0.95), torch.tensor([1.0, 0.0])
        >>> for reward in [1.0] * 200 + [-1.0] * 60:
        ...     learner.step(x, reward)
        >>> bool(learner(x) < -0.8)
        True

    Reference:
        Russac, Vernade and Cappe, Weighted Linear Bandits for Non-Stationary Environments, NeurIPS 2019 (D-LinUCB). What
        differs: the ridge, which the paper renews in all coordinates at once; the ridge's terms in the radius; and the claim,
        which the paper makes for all rounds at once.
    """

    guarantee = "in each round"
    statistics_depend_on = ("noise_scale", "ridge", "discount")

    def __init__(
        self,
        dim: int,
        *,
        discount: float,
        noise_scale: float = NOISE_OF_UNIT_REWARDS,
        theta_bound: float = 1.0,
        ridge: float = 1.0,
        delta: float = 0.01,
        radius_scale: float = 1.0,
        **options: Unpack[LearnerOptions],
    ) -> None:
        noise_scale = positive("noise_scale", noise_scale)
        super().__init__(dim, ridge, radius_scale, noise_scale, theta_bound, **options)
        # A round without noise would outweigh all others forever.
        self.smallest_noise_scale = 1e-20 * self.noise_scale
        self.delta = within("delta", delta, 0.0, 1.0)
        self._set_discount(discount, self.delta)
        self._create_buffers()

    def radius(self) -> Tensor:
        return self.radius_scale * (self.noise_scale * self._root_growth() + self._bias())

    def _observe(self, x: Tensor, reward: Tensor, noise_scale: Tensor) -> None:
        theta_hat, weight, fading = self.theta_hat, self.noise_scale / noise_scale, self.discount
        a, target = weighted(x, weight), weight * reward
        # Refuse before the first write.
        self._check_growth(x, dot(a, matvec(self.V_inv, a)) / fading)

        e = self._fade_()

        # Learn, and end the round.
        V_inv_a = matvec(self.V_inv, a)
        quadratic = dot(a, V_inv_a)
        learn_weighted_(theta_hat, self.P, a, V_inv_a, quadratic, target - dot(a, theta_hat), 1.0)
        self._count_squares_(a, e)
        self._add_outer_(a, V_inv_a, quadratic)


class DiscountedHeavyTailRegression(HeavyTailRegression):
    r"""Heavy-tailed regression that forgets exponentially, for drift: a heuristic.

    A round is learnt as in :class:`HeavyTailRegression`; after it, with :math:`\gamma` = ``discount``,

    .. math:: V \leftarrow \gamma V + (1-\gamma)\lambda\,d\,e_je_j^\top,\qquad
              A \leftarrow \gamma^2 A + (1-\gamma^2)\lambda\,d\,e_je_j^\top,\qquad j = t \bmod d.

    The coordinate vectors :math:`e_j` take turns, as observations of reward 0, to keep the ridge from fading. A round of age n
    weighs :math:`\gamma^n` in :math:`\hat\theta`. In the radius, :math:`d\log(\operatorname{tr}A/(\lambda d))`, which is at
    least :math:`\log\det(A/\lambda)`, takes the place of ``logdet``, and each round multiplies ``bias`` by :math:`\gamma`.

    Guarantee: none, whether the parameter moves or not (docs/drift_theory.md). :class:`HeavyTailRegression` with
    ``restart_every`` has a theorem.

    Cost of a round: O(d^2) time and five d x d matrices (seven in float32), about twice the time of
    :class:`HeavyTailRegression`.

    Args:
        dim, noise, moment_order, noise_scale, theta_bound, ridge, delta, radius_scale, batch_shape, dtype, device, validate: as
            in :class:`HeavyTailRegression`.
        discount: :math:`\gamma`, below 1 and at least 1 - 1/d, which is a memory of d rounds; at least 1/2 for d = 1.

    Example:
        >>> learner = DiscountedHeavyTailRegression(2, discount=0.95, noise_scale=0.5)
        >>> plain, x = HeavyTailRegression(2, noise_scale=0.5), torch.tensor([1.0, 0.0])
        >>> for reward in [0.8] * 200 + [-0.8] * 60:
        ...     learner.step(x, torch.tensor(reward))
        ...     plain.step(x, torch.tensor(reward))
        >>> bool(learner(x) < -0.5), bool(plain(x) > 0.3)
        (True, True)

    Reference:
        Russac, Vernade and Cappe, Weighted Linear Bandits for Non-Stationary Environments, NeurIPS 2019 (D-LinUCB). What
        differs: the regression; the ridge, which the paper renews in all coordinates at once; and the newest round, which
        weighs 1 in the paper and :math:`\gamma` here.
    """

    guarantee = "none"
    statistics_depend_on = (*HeavyTailRegression.statistics_depend_on, "discount")

    def __init__(
        self,
        dim: int,
        *,
        discount: float,
        noise: str = "moment",
        moment_order: float = 2.0,
        noise_scale: float = NOISE_OF_UNIT_REWARDS,
        theta_bound: float = 1.0,
        ridge: float | None = None,
        delta: float = 0.01,
        radius_scale: float = 1.0,
        **options: Unpack[LearnerOptions],
    ) -> None:
        inherited: Any = arguments_of(locals()) | options
        del inherited["discount"], inherited["options"]
        # Set before the base class records the options.
        self.discount = checked_discount(dim, discount)
        super().__init__(**inherited)
        self.turn_weight = math.sqrt(dim * (1.0 - self.discount) * self.ridge)

    def moves_of_width(self, x: Tensor) -> list[Tensor]:
        e = coordinate_vector((self.rounds + 1) % self.dim, x)
        P, V_inv = self.P, self.V_inv
        return [matvec(P, x), matvec(V_inv, x), matvec(P, e), matvec(V_inv, e)]

    def _learn_round(self, x: Tensor, reward: Tensor, noise_scale: Tensor) -> None:
        self._observe(x, reward, noise_scale)
        # Discount everything but the ridge.
        theta_hat, P, A, fading = self.theta_hat, self.P, self.A, self.discount
        # P and theta_hat do not depend on the scale.
        scale_(self._precision(), fading)
        scale_(self._weighted_precision(), fading * fading)
        self.bias[...] = fading * self.bias

        # Observe 0 in one direction in turn, with the weight that all directions have lost.
        a = self.turn_weight * coordinate_vector(self.rounds % self.dim, theta_hat)
        rho = 1.0 + fading
        Wa, Ra = matvec(self.V_inv, a), matvec(self.A_inv, a)
        quadratic, rho_aRa, root_rho = dot(a, Wa), rho * dot(a, Ra), math.sqrt(rho)
        learn_weighted_(theta_hat, P, a, Wa, quadratic, -dot(a, theta_hat), rho)
        add_outer_(self._precision(), a, Wa, quadratic)
        add_outer_(self._weighted_precision(), root_rho * a, root_rho * Ra, rho_aRa)
        # A running sum of logarithms would keep its rounding errors forever.
        self.logdet[...] = self.dim * log(trace(A) / (self.dim * self.ridge))
