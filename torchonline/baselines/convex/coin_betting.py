"""Coin betting by the Krichevsky-Trofimov estimator (Orabona and Pal, 2016)."""

from typing import Unpack

import torch
from torch import Tensor

from torchonline.convex.learner import ConvexLearner
from torchonline.core.ops import along, assign_, at_most, count_, dot, increase_, real, roundoff, sqrt
from torchonline.core.options import LearnerOptions, with_former_names
from torchonline.linalg import with_length_at_most


def most(x: Tensor) -> float:
    """Return the factor by which a number may safely grow in the dtype of ``x``."""
    return 1e24 if roundoff(x) > 1e-12 else 1e200


class CoinBetting(ConvexLearner):
    r"""Online learning by betting, without a step size or a bound on the comparator.

    The learner bets a fraction of its wealth against each gradient, the mean of the gradients so far:

    .. math:: x_t = -\frac{W_{t-1}}{Gt}\sum_{s<t}g_s,\qquad W_t = W_{t-1} - \frac1G\langle g_t, x_t\rangle,

    from :math:`W_0 = \varepsilon`, with G = ``lipschitz`` and :math:`\varepsilon` = ``length_scale``. A gradient longer than G is
    clipped to length G and counted in ``clipped_rounds``.

    Guarantee, for any (clipped) gradients, every u and all T at once,

    .. math:: \sum_{t\le T}\langle g_t, x_t - u\rangle
              \le \|u\|G\sqrt{T\ln(1 + 24T^2\|u\|^2/\varepsilon^2)} + G\varepsilon,

    (Corollary 5 of the reference, whose constants are from memory), because the wealth is never below
    :math:`\varepsilon2^T\Gamma(\frac{T+1+n}2)\Gamma(\frac{T+1-n}2)/(\pi T!)` at :math:`n = \|\sum_tg_t\|/G`. The wealth is capped
    at :math:`10^{200}\varepsilon` (:math:`10^{24}\varepsilon` in float32, which it reaches after about eighty rounds of gradients
    that agree). Beyond the cap there is no guarantee. Cost of a round: O(d).

    Args:
        dim: number of coordinates d.
        lipschitz: bound G > 0 on the length of gradients.
        length_scale: initial wealth :math:`\varepsilon > 0`, in units of the decision: at most G times this can be lost.
        batch_shape, dtype, device, validate: options of all learners, see :class:`~torchonline.core.learner.Learner`.

    Shape:
        - ``coin_sum``, the sum of :math:`-g_t/G`: ``(*B, d)``; ``wealth`` W: ``(*B)``.

    Example:
        >>> learner = CoinBetting(2, lipschitz=5.0)
        >>> mean = torch.zeros(2).double()
        >>> for _ in range(1000):
        ...     mean += learner.predict() / 1000.0
        ...     learner.step(torch.nn.functional.normalize(learner.predict() - torch.tensor([3.0, 4.0]), dim=0))
        >>> bool((mean - torch.tensor([3.0, 4.0])).norm() < 0.5)
        True

    Reference:
        Orabona and Pal, Coin betting and parameter-free online learning, NeurIPS 2016. What differs: the clipping and the cap.
    """

    statistics_depend_on = ("lipschitz", "length_scale")
    renamed = {"total": "coin_sum", "clipped": "clipped_rounds"}

    coin_sum: Tensor
    wealth: Tensor
    clipped_rounds: Tensor

    @with_former_names(initial_wealth="length_scale")
    def __init__(
        self, dim: int, *, lipschitz: float, length_scale: float = 1.0, **options: Unpack[LearnerOptions]
    ) -> None:
        super().__init__(dim, **options)
        self.lipschitz = self._size("lipschitz", lipschitz)
        self.length_scale = self._size("length_scale", length_scale)
        self._create_buffers()

    def _initial_state(self) -> dict[str, Tensor | None]:
        state, wealth = super()._initial_state(), torch.tensor(self.length_scale, dtype=torch.float64)
        return state | {"coin_sum": state["decision"], "wealth": wealth, "clipped_rounds": state["rounds"]}

    def _observe(self, gradients: Tensor, values: Tensor | None) -> None:
        coin_sum = self.coin_sum
        count_(self.rounds)
        length = sqrt(dot(gradients, gradients))
        increase_(self.clipped_rounds, length > self.lipschitz)
        coin = with_length_at_most(gradients, length, self.lipschitz) / -self.lipschitz
        coin_sum += coin
        wealth = at_most(self.wealth + dot(coin, self.decision), self.length_scale * most(coin))
        assign_(self.wealth, wealth)
        assign_(self.decision, along(wealth / (real(self.rounds, coin) + 1.0), coin_sum) * coin_sum)
