"""Heavy-tailed regression that forgets exponentially, for drift."""

import math
from typing import Any, Unpack

from torch import Tensor

from torchonline.bandits.heavy_tail import HeavyTailRegression
from torchonline.core.checks import positive_integer, within
from torchonline.core.ops import along, dot, log, matvec, trace
from torchonline.core.options import LearnerOptions, arguments_of
from torchonline.core.precision_matrix import add_outer_, scale_, subtract_outers_
from torchonline.linalg import coordinate_vector


class DiscountedHeavyTailRegression(HeavyTailRegression):
    r"""Heavy-tailed regression that forgets exponentially, for drift: a heuristic.

    A round is one of :class:`HeavyTailRegression`; after it, with :math:`\gamma` = ``discount``,

    .. math:: V \leftarrow \gamma V + (1-\gamma)\lambda\,d\,e_je_j^\top,\qquad
              A \leftarrow \gamma^2 A + (1-\gamma^2)\lambda\,d\,e_je_j^\top,\qquad j = t \bmod d.

    The coordinate vectors :math:`e_j` take turns, as observations of reward 0, to keep the ridge from fading. A round of age n
    weighs :math:`\gamma^n` in :math:`\hat\theta`. In the radius, :math:`d\log(\operatorname{tr}A/(\lambda d))`, which is at
    least :math:`\log\det(A/\lambda)`, takes the place of ``logdet``, and each round multiplies ``bias`` by :math:`\gamma`.

    Guarantee: none, whether the parameter moves or not (docs/drift.md). ``restart_every`` of :class:`HeavyTailRegression`, which
    starts anew, has a theorem.

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
        differs: the regression; the ridge, which there is renewed in all coordinates at once; and the newest round, which there
        weighs 1 and here :math:`\gamma`.
    """

    statistics_depend_on = (*HeavyTailRegression.statistics_depend_on, "discount")

    def __init__(
        self,
        dim: int,
        *,
        discount: float,
        noise: str = "moment",
        moment_order: float = 2.0,
        noise_scale: float = 1.0,
        theta_bound: float = 1.0,
        ridge: float | None = None,
        delta: float = 0.01,
        radius_scale: float = 1.0,
        **options: Unpack[LearnerOptions],
    ) -> None:
        inherited: Any = arguments_of(locals()) | options
        del inherited["discount"], inherited["options"]
        # Set before the base class writes the options down.
        memory = max(2, positive_integer("dim", dim))
        self.discount = within("discount", discount, 0.0, 1.0)
        if memory * (1.0 - self.discount) > 1.0 + 1e-9:  # the ridge would fade between two turns
            raise ValueError(f"discount: expected at least {1.0 - 1.0 / memory:g}, {memory} rounds, got {discount}")
        super().__init__(**inherited)
        self.turn_weight = math.sqrt(dim * (1.0 - self.discount) * self.ridge)

    def _learn_round(self, x: Tensor, reward: Tensor, noise_scale: Tensor) -> None:
        self._observe(x, reward, noise_scale)
        # Forget a little of everything, but not the ridge.
        theta_hat, P, A, fading = self.theta_hat, self.P, self.A, self.discount
        # P and theta_hat do not depend on the scale.
        scale_(self._precision(), fading)
        scale_(self._weighted_precision(), fading * fading)
        self.bias[...] = fading * self.bias

        # A reward of 0 in the direction whose turn it is, with the weight that all directions have lost.
        a = self.turn_weight * coordinate_vector(self.rounds % self.dim, theta_hat)
        rho = 1.0 + fading
        Wa, Ra, Pa = matvec(self.V_inv, a), matvec(self.A_inv, a), matvec(P, a)
        quadratic, rho_aRa, root_rho = dot(a, Wa), rho * dot(a, Ra), math.sqrt(rho)
        h = Wa / along(1.0 + quadratic, a)
        theta_hat -= along(dot(a, theta_hat), a) * h
        half = 0.5 * (dot(a, Pa) + rho)
        subtract_outers_(P, h, Pa - along(half, a) * h)
        add_outer_(self._precision(), a, Wa, quadratic)
        add_outer_(self._weighted_precision(), root_rho * a, root_rho * Ra, rho_aRa)
        # A running sum of logarithms would keep its rounding errors for ever.
        self.logdet[...] = self.dim * log(trace(A) / (self.dim * self.ridge))
