"""Online gradient descent (Zinkevich, ICML 2003)."""

import math

import torch
from torch import Tensor

from torchonline.convex.learner import ConvexLearner
from torchonline.core.checks import one_of, positive_size
from torchonline.core.ops import along, assign_, count_, real, sqrt
from torchonline.linalg import in_ball

SCHEDULES = ("sqrt", "constant")


class OGD(ConvexLearner):
    r"""Online gradient descent on a Euclidean ball, or without bounds: what one tunes a step size for.

    A round::

        gradients, _ = torchonline.gradients(loss, learner, x, y)
        learner.step(gradients)

    .. math:: x_{t+1} = \Pi(x_t - \eta_tg_t),\qquad \eta_t = \eta/\sqrt t \text{ or } \eta,\qquad x_1 = 0,

    where :math:`\Pi` takes the nearest point of the ball :math:`\|x\| \le R`.

    Guarantee, for any gradients and each u in the ball: with the constant step size

    .. math:: \sum_{t\le T}\langle g_t, x_t - u\rangle \le \frac{\|u\|^2}{2\eta} + \frac\eta2\sum_{t\le T}\|g_t\|^2,

    in particular :math:`\|u\|G\sqrt T` at :math:`\eta = \|u\|/(G\sqrt T)`, which asks for what is not known; with
    :math:`\eta/\sqrt t`, at most :math:`2R^2\sqrt T/\eta + (\eta/2)\sum_t\|g_t\|^2/\sqrt t`, for a ball. Without one the
    decreasing steps promise nothing.

    Cost of a round: O(d).

    Args:
        dim: d, number of coordinates.
        step_size: :math:`\eta > 0`, in units of the decision over those of the gradient.
        schedule: ``"sqrt"`` for :math:`\eta/\sqrt t`, or ``"constant"``.
        radius_bound: R > 0; ``inf`` for no bound.
        batch_shape: ``*B``, independent learners in one module.
        dtype: torch.float64 or torch.float32, of the state.
        device: where the state lives.
        validate: whether values are checked in each call.

    Shape:
        - gradients: ``(*B, d)`` or ``(*B, 1, d)``; decision: ``(*B, d)``; rounds: ``(*B)``.

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
        batch_shape: tuple[int, ...] = (),
        dtype: torch.dtype = torch.float64,
        device: torch.device | str | None = None,
        validate: bool = True,
    ) -> None:
        super().__init__(dim, batch_shape=batch_shape, dtype=dtype, device=device, validate=validate)
        self.step_size = positive_size("step_size", step_size, dtype)
        self.schedule = one_of("schedule", schedule, SCHEDULES)
        self.is_constant = schedule == "constant"
        self.radius_bound = positive_size("radius_bound", radius_bound, dtype, besides=(math.inf,))
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
