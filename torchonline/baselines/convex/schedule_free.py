"""Schedule-free gradient descent (Defazio et al., NeurIPS 2024)."""

from typing import Unpack

import torch
from torch import Tensor

from torchonline.convex.learner import ConvexLearner
from torchonline.core.all_or_nothing import one_at_a_time
from torchonline.core.checks import within
from torchonline.core.ops import along, assign_, count_, real
from torchonline.core.options import LearnerOptions


class ScheduleFree(ConvexLearner):
    r"""Schedule-free gradient descent: averages and momentum instead of a schedule.

    The decision x is an average. Gradients are taken at another point y, :meth:`queries`. With :math:`\eta` = ``step_size`` and
    :math:`\mu` = ``momentum``, :math:`g_t` the gradient at :math:`y_t` and :math:`x_1 = z_1 = 0`,

    .. math:: y_t = (1 - \mu)z_t + \mu x_t,\qquad z_{t+1} = z_t - \eta g_t,\qquad x_{t+1} = (1 - \tfrac1t)x_t + \tfrac1tz_{t+1}.

    Guarantee. If all gradients come from one convex function F, for every u and every T

    .. math:: F(x_{T+1}) - F(u) \le \frac1T\Big(\frac{\|z_2 - u\|^2}{2\eta} + \frac\eta2\sum_{t=2}^{T+1}\|g_t\|^2\Big),

    and the same in expectation for gradients with noise of mean 0 (the reference, recalled, from the second round on). The bound
    is on the loss of the decision, not on regret. On sequences of different losses there is no guarantee. The step size must be
    chosen. Cost of a round: O(d).

    Args:
        dim: number of coordinates d.
        step_size: :math:`\eta > 0`, in units of the decision over units of the gradient.
        momentum: :math:`\mu` in (0, 1), the weight of the average in the queries.
        batch_shape, dtype, device, validate: options of all learners, see :class:`~torchonline.core.learner.Learner`.

    Shape:
        - ``base`` z, ``query`` y: ``(*B, d)``.

    Example:
        >>> learner = ScheduleFree(2, step_size=0.5)
        >>> for _ in range(300):
        ...     learner.step(learner.queries() - torch.tensor([3.0, 4.0]))  # the gradient of |y - (3, 4)|^2 / 2
        >>> bool((learner.predict() - torch.tensor([3.0, 4.0])).norm() < 0.1)
        True

    Reference:
        Defazio, Yang, Mehta, Mishchenko, Khaled and Cutkosky, The road less scheduled, NeurIPS 2024, in the form of the authors'
        ``SGDScheduleFree`` without warm-up and decay (github.com/facebookresearch/schedule_free, version 1.4.1), whose decisions
        and queries a test matches. As in that code, the first average leaves out the start, which the paper's does not.
    """

    asks_elsewhere = True
    statistics_depend_on = ("step_size", "momentum")

    base: Tensor
    query: Tensor

    def __init__(
        self, dim: int, *, step_size: float = 1.0, momentum: float = 0.9, **options: Unpack[LearnerOptions]
    ) -> None:
        super().__init__(dim, **options)
        self.step_size = self._size("step_size", step_size)
        self.momentum = within("momentum", momentum, 0.0, 1.0)
        self._create_buffers()

    def _initial_state(self) -> dict[str, Tensor | None]:
        state = super()._initial_state()
        return state | dict.fromkeys(("base", "query"), state["decision"])

    @torch.jit.export
    @one_at_a_time
    def queries(self) -> Tensor:
        return self.query.unsqueeze(-2).clone()

    def _observe(self, gradients: Tensor, values: Tensor | None) -> None:
        count_(self.rounds)
        z = self.base
        z -= self.step_size * gradients
        x = self.decision + along(1.0 / real(self.rounds, z), z) * (z - self.decision)
        assign_(self.decision, x)
        assign_(self.query, (1.0 - self.momentum) * z + self.momentum * x)
