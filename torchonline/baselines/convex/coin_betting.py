"""Coin betting with the estimator of Krichevsky and Trofimov (Orabona and Pal, NeurIPS 2016)."""

import torch
from torch import Tensor

from torchonline.convex.learner import ConvexLearner
from torchonline.core.checks import positive_size
from torchonline.core.ops import along, assign_, at_most, count_, dot, increase_, real, roundoff, sqrt
from torchonline.linalg import with_length_at_most


def most(x: Tensor) -> float:
    """How many times its initial size what doubles in each round may reach, in the type of ``x``: before it is infinite."""
    return 1e24 if roundoff(x) > 1e-12 else 1e200


class CoinBetting(ConvexLearner):
    r"""Parameter-free online learning by betting: no step size, and no bound on the comparator.

    A round::

        gradients, _ = torchonline.gradients(loss, learner, x, y)
        learner.step(gradients)

    The learner bets a part of its wealth against each gradient, as large as the mean of the gradients so far,

    .. math:: x_t = -\frac{W_{t-1}}{Gt}\sum_{s<t}g_s,\qquad W_t = W_{t-1} - \frac1G\langle g_t, x_t\rangle,

    from :math:`W_0 = \varepsilon`, with G = ``lipschitz`` and :math:`\varepsilon` = ``initial_wealth``. A gradient longer than
    G is cut to length G and counted in ``clipped``.

    Guarantee, for any (cut) gradients, each u and all T at once,

    .. math:: \sum_{t\le T}\langle g_t, x_t - u\rangle
              \le \|u\|G\sqrt{T\ln(1 + 24T^2\|u\|^2/\varepsilon^2)} + G\varepsilon,

    (Corollary 5 of the reference, whose constants are from memory), since the wealth is never below
    :math:`\varepsilon2^T\Gamma(\frac{T+1+n}2)\Gamma(\frac{T+1-n}2)/(\pi T!)` at :math:`n = \|\sum_tg_t\|/G`. While gradients
    agree, it nearly doubles in each round. It ends at :math:`10^{200}\varepsilon` (:math:`10^{24}\varepsilon` in float32, after
    some eighty rounds), and where it has, nothing is promised.

    Cost of a round: O(d).

    Args:
        dim: d, number of coordinates.
        lipschitz: G > 0, a bound on the length of gradients.
        initial_wealth: :math:`\varepsilon > 0`, in units of the decision: G times it is the most that can be lost.
        batch_shape: ``*B``, independent learners in one module.
        dtype: torch.float64 or torch.float32, of the state.
        device: where the state lives.
        validate: whether values are checked in each call.

    Shape:
        - gradients: ``(*B, d)`` or ``(*B, 1, d)``; decision: ``(*B, d)``; rounds, clipped: ``(*B)``.
        - total, the sum of :math:`-g_t/G`: ``(*B, d)``; wealth: ``(*B)``.

    Example:
        >>> learner = CoinBetting(2, lipschitz=5.0)
        >>> target, mean = torch.tensor([3.0, 4.0]).double(), torch.zeros(2).double()
        >>> for t in range(1000):
        ...     x = learner.predict()
        ...     mean += (x - mean) / (t + 1)
        ...     learner.step((x - target) / (x - target).norm())  # the gradient of |x - (3, 4)|
        >>> bool((mean - target).norm() < 0.5)
        True

    Reference:
        Orabona and Pal, Coin betting and parameter-free online learning, NeurIPS 2016. What differs: the cut, and the end of the
        wealth.
    """

    statistics_depend_on = ("lipschitz", "initial_wealth")

    total: Tensor
    wealth: Tensor
    clipped: Tensor

    def __init__(
        self,
        dim: int,
        *,
        lipschitz: float,
        initial_wealth: float = 1.0,
        batch_shape: tuple[int, ...] = (),
        dtype: torch.dtype = torch.float64,
        device: torch.device | str | None = None,
        validate: bool = True,
    ) -> None:
        super().__init__(dim, batch_shape=batch_shape, dtype=dtype, device=device, validate=validate)
        self.lipschitz = positive_size("lipschitz", lipschitz, dtype)
        self.initial_wealth = positive_size("initial_wealth", initial_wealth, dtype)
        self._create_buffers()

    def _initial_state(self) -> dict[str, Tensor | None]:
        return super()._initial_state() | {
            "total": torch.zeros(self.dim, dtype=torch.float64),
            "wealth": torch.tensor(self.initial_wealth, dtype=torch.float64),
            "clipped": torch.zeros((), dtype=torch.int64),
        }

    def _observe(self, gradients: Tensor, values: Tensor | None) -> None:
        total = self.total
        count_(self.rounds)
        length = sqrt(dot(gradients, gradients))
        increase_(self.clipped, length > self.lipschitz)
        coin = with_length_at_most(gradients, length, self.lipschitz) / -self.lipschitz
        total += coin
        wealth = at_most(self.wealth + dot(coin, self.decision), self.initial_wealth * most(coin))
        assign_(self.wealth, wealth)
        assign_(self.decision, along(wealth / (real(self.rounds, coin) + 1.0), total) * total)
