"""Optimistic online mirror descent (Chen, Zhang, Tu, Zhao and Zhang, JMLR 2024)."""

import torch
from torch import Tensor

from torchonline.baselines.convex.oftrl import SmoothLearner
from torchonline.core.ops import along, assign_, count_, dot, increase_, sqrt
from torchonline.linalg import in_ball


class OptimisticOMD(SmoothLearner):
    r"""Optimistic online gradient descent on a ball.

    With the last gradient as the hint, :math:`m_t = g_{t-1}`, :math:`m_1 = 0`, and D = 2R,

    .. math:: x_t = \Pi(x'_t - \eta_tm_t),\qquad x'_{t+1} = \Pi(x'_t - \eta_tg_t),\qquad
              \eta_t = \frac D{\sqrt{\delta + 4G^2 + V_{t-1}}},\qquad V_t = \sum_{s\le t}\|g_s - m_s\|^2,

    from :math:`x'_1 = 0`, where :math:`\Pi` projects onto the ball :math:`\|x\| \le R`, G = ``lipschitz``,
    L = ``smoothness`` and :math:`\delta = 10D^2L^2`.

    Guarantee, if no gradient is longer than G, for every u in the ball:
    :math:`\sum_{t\le T}\langle g_t, x_t - u\rangle \le \frac32D\sqrt{\delta + 4G^2 + V_T}`. If the expected losses are
    convex and L-smooth, the expected regret is :math:`O(D\sqrt{\sigma_{1:T}^2} + D\sqrt{\Sigma_{1:T}^2} + D^2L + DG)`,
    with the two sums of :class:`~torchonline.baselines.convex.oftrl.OFTRL` (the reference). Longer gradients are not clipped.
    Cost of a round: O(d).

    Args:
        dim: number of coordinates d.
        radius_bound: radius R > 0 of the ball.
        lipschitz: bound G > 0 on the length of gradients.
        smoothness: Lipschitz constant :math:`L \ge 0` of the mean gradients; 0 if unknown. Then only the first guarantee holds.
        batch_shape, dtype, device, validate: options of all learners, see :class:`~torchonline.core.learner.Learner`.

    Shape:
        - ``centre`` x', ``hint`` m: ``(*B, d)``; ``error_square_sum`` V: ``(*B)``.

    Example:
        >>> learner = OptimisticOMD(2, radius_bound=10.0, lipschitz=15.0)
        >>> for _ in range(100):
        ...     learner.step(learner.predict() - torch.tensor([3.0, 4.0]))  # the gradient of |x - (3, 4)|^2 / 2
        >>> bool((learner.predict() - torch.tensor([3.0, 4.0])).norm() < 0.01)
        True

    Reference:
        Chen, Zhang, Tu, Zhao and Zhang, Optimistic online mirror descent for bridging stochastic and adversarial online convex
        optimization, JMLR 25, 2024, for convex and smooth functions, on a ball. Its delta is from memory.
    """

    renamed = {"center": "centre", "energy": "error_square_sum"}

    centre: Tensor
    error_square_sum: Tensor

    def _offset(self) -> float:
        return 10.0 * (self.diameter * self.smoothness) ** 2 + 4.0 * self.lipschitz**2

    def _initial_state(self) -> dict[str, Tensor | None]:
        state = super()._initial_state()
        vectors = dict.fromkeys(("hint", "centre"), state["decision"])
        return state | vectors | {"error_square_sum": torch.zeros((), dtype=torch.float64)}

    def _observe(self, gradients: Tensor, values: Tensor | None) -> None:
        count_(self.rounds)
        rate = self.diameter / sqrt(self.offset + self.error_square_sum)
        assign_(self.centre, in_ball(self.centre - along(rate, gradients) * gradients, self.radius_bound))
        error = gradients - self.hint
        increase_(self.error_square_sum, dot(error, error))
        rate = self.diameter / sqrt(self.offset + self.error_square_sum)
        assign_(self.hint, gradients)
        assign_(self.decision, in_ball(self.centre - along(rate, gradients) * gradients, self.radius_bound))
