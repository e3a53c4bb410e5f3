"""Optimistic online mirror descent (Chen, Zhang, Tu, Zhao and Zhang, JMLR 2024)."""

import torch
from torch import Tensor

from torchonline.convex.learner import ConvexLearner
from torchonline.core.checks import positive_size
from torchonline.core.ops import along, assign_, count_, dot, increase_, sqrt
from torchonline.linalg import in_ball


class OptimisticOMD(ConvexLearner):
    r"""Optimistic online gradient descent on a ball, for losses between stochastic and adversarial: convex and smooth.

    A round::

        gradients, _ = torchonline.gradients(loss, learner, x, y)
        learner.step(gradients)

    With the last gradient for a hint, :math:`m_t = g_{t-1}`, :math:`m_1 = 0`, and D = 2R,

    .. math:: x_t = \Pi(x'_t - \eta_tm_t),\qquad x'_{t+1} = \Pi(x'_t - \eta_tg_t),\qquad
              \eta_t = \frac D{\sqrt{\delta + 4G^2 + V_{t-1}}},\qquad V_t = \sum_{s\le t}\|g_s - m_s\|^2,

    from :math:`x'_1 = 0`, where :math:`\Pi` takes the nearest point of the ball :math:`\|x\| \le R`, G = ``lipschitz``,
    L = ``smoothness`` and :math:`\delta = 10D^2L^2`.

    Guarantee, if no gradient is longer than G, for each u in the ball:
    :math:`\sum_{t\le T}\langle g_t, x_t - u\rangle \le \frac32D\sqrt{\delta + 4G^2 + V_T}`. If the expected losses are convex and
    L-smooth, the expected regret is :math:`O(D\sqrt{\sigma_{1:T}^2} + D\sqrt{\Sigma_{1:T}^2} + D^2L + DG)`, with the sums of the
    variances of gradients and of the squared changes of their means (the reference). Longer gradients are taken as they
    are.

    Cost of a round: O(d).

    Args:
        dim: d, number of coordinates.
        radius_bound: R > 0.
        lipschitz: G > 0, a bound on the length of gradients.
        smoothness: L, a Lipschitz constant of the mean gradients; 0 where none is known, for the first guarantee alone.
        batch_shape: ``*B``, independent learners in one module.
        dtype: torch.float64 or torch.float32, of the state.
        device: where the state lives.
        validate: whether values are checked in each call.

    Shape:
        - gradients: ``(*B, d)`` or ``(*B, 1, d)``; decision, x; center, x'; hint, m: ``(*B, d)``; energy, V; rounds: ``(*B)``.

    Example:
        >>> learner = OptimisticOMD(2, radius_bound=10.0, lipschitz=15.0)
        >>> for _ in range(100):
        ...     learner.step(learner.predict() - torch.tensor([3.0, 4.0]))  # the gradient of |x - (3, 4)|^2 / 2
        >>> bool((learner.predict() - torch.tensor([3.0, 4.0])).norm() < 0.01)
        True

    Reference:
        Chen, Zhang, Tu, Zhao and Zhang, Optimistic online mirror descent for bridging stochastic and adversarial online convex
        optimization, JMLR 25, 2024, for convex and smooth functions. Its delta is from memory. What differs: the domain is a
        ball.
    """

    statistics_depend_on = ("radius_bound", "lipschitz", "smoothness")

    center: Tensor
    hint: Tensor
    energy: Tensor

    def __init__(
        self,
        dim: int,
        *,
        radius_bound: float,
        lipschitz: float,
        smoothness: float = 0.0,
        batch_shape: tuple[int, ...] = (),
        dtype: torch.dtype = torch.float64,
        device: torch.device | str | None = None,
        validate: bool = True,
    ) -> None:
        super().__init__(dim, batch_shape=batch_shape, dtype=dtype, device=device, validate=validate)
        self.radius_bound = positive_size("radius_bound", radius_bound, dtype)
        self.lipschitz = positive_size("lipschitz", lipschitz, dtype)
        self.smoothness = positive_size("smoothness", smoothness, dtype, besides=(0.0,))
        self.diameter = 2.0 * self.radius_bound
        self.offset = 10.0 * (self.diameter * self.smoothness) ** 2 + 4.0 * self.lipschitz**2
        self._create_buffers()

    def _initial_state(self) -> dict[str, Tensor | None]:
        return super()._initial_state() | {
            "center": torch.zeros(self.dim, dtype=torch.float64),
            "hint": torch.zeros(self.dim, dtype=torch.float64),
            "energy": torch.zeros((), dtype=torch.float64),
        }

    def _observe(self, gradients: Tensor, values: Tensor | None) -> None:
        count_(self.rounds)
        rate = self.diameter / sqrt(self.offset + self.energy)
        center = self.center - along(rate, gradients) * gradients
        center = in_ball(center, self.radius_bound)
        error = gradients - self.hint
        increase_(self.energy, dot(error, error))
        rate = self.diameter / sqrt(self.offset + self.energy)
        x = center - along(rate, gradients) * gradients
        assign_(self.center, center)
        assign_(self.hint, gradients)
        assign_(self.decision, in_ball(x, self.radius_bound))
