"""OGD: online gradient descent (Zinkevich, ICML 2003)."""

import math
from typing import Unpack

from torch import Tensor

from torchonline.convex.learner import ConvexLearner
from torchonline.core.checks import one_of
from torchonline.core.ops import along, assign_, count_, real, sqrt
from torchonline.core.options import LearnerOptions
from torchonline.linalg import in_ball


class OGD(ConvexLearner):
    r"""Online gradient descent on a Euclidean ball, or without bounds.

    .. math:: x_{t+1} = \Pi(x_t - \eta_tg_t),\qquad \eta_t = \eta/\sqrt t \text{ or } \eta,\qquad x_1 = 0,

    where :math:`\Pi` projects onto the ball :math:`\|x\| \le R`.

    Guarantee, for any gradients and every u in the ball. With the constant step size,

    .. math:: \sum_{t\le T}\langle g_t, x_t - u\rangle \le \frac{\|u\|^2}{2\eta} + \frac\eta2\sum_{t\le T}\|g_t\|^2,

    for example :math:`\|u\|G\sqrt T` at :math:`\eta = \|u\|/(G\sqrt T)`. With :math:`\eta/\sqrt t` and a ball, the sum on the
    left is at most :math:`2R^2\sqrt T/\eta + (\eta/2)\sum_t\|g_t\|^2/\sqrt t`. Without a ball, decreasing steps have no
    guarantee. Cost of a round: O(d).

    Args:
        dim: number of coordinates d.
        step_size: :math:`\eta > 0`, in units of the decision over units of the gradient.
        schedule: ``"sqrt"`` for :math:`\eta/\sqrt t`, or ``"constant"``.
        radius_bound: radius R > 0 of the ball; ``inf`` for no ball.
        batch_shape, dtype, device, validate: options of all learners, see :class:`~torchonline.core.learner.Learner`.

    Shape:
        - ``decision`` x: ``(*B, d)``; ``rounds`` t: ``(*B)``.

    Example:
        >>> learner = OGD(2, step_size=0.5)
        >>> for _ in range(100):
        ...     learner.step(learner.predict() - torch.tensor([3.0, 4.0]))  # the gradient of |x - (3, 4)|^2 / 2
        >>> bool((learner.predict() - torch.tensor([3.0, 4.0])).norm() < 0.01)
        True

    Reference:
        Zinkevich, Online convex programming and generalized infinitesimal gradient ascent, ICML 2003.
    """

    statistics_depend_on = ("step_size", "radius_bound", "is_constant")
    argument_of = {"is_constant": "schedule"}

    def __init__(
        self,
        dim: int,
        *,
        step_size: float = 1.0,
        schedule: str = "sqrt",
        radius_bound: float = math.inf,
        **options: Unpack[LearnerOptions],
    ) -> None:
        super().__init__(dim, **options)
        self.step_size = self._size("step_size", step_size)
        self.schedule = one_of("schedule", schedule, ("sqrt", "constant"))
        self.is_constant = schedule == "constant"
        self.radius_bound = self._size("radius_bound", radius_bound, math.inf)
        self._create_buffers()

    def _observe(self, gradients: Tensor, values: Tensor | None) -> None:
        count_(self.rounds)
        if self.is_constant:
            x = self.decision - self.step_size * gradients
        else:
            x = self.decision - along(self.step_size / sqrt(real(self.rounds, gradients)), gradients) * gradients
        if self.radius_bound < math.inf:
            x = in_ball(x, self.radius_bound)
        assign_(self.decision, x)
