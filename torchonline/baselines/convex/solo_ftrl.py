"""SOLO FTRL: scale-free follow the regularised leader (Orabona and Pal, 2018)."""

import math
from typing import Unpack

import torch
from torch import Tensor

from torchonline.convex.learner import ConvexLearner
from torchonline.core.ops import along, assign_, count_, dot, increase_, or_one, sqrt
from torchonline.core.options import LearnerOptions
from torchonline.linalg import in_ball


class SOLOFTRL(ConvexLearner):
    r"""SOLO FTRL: follow the regularised leader, for any unit of the loss.

    The regularizer grows with the gradients. On a ball, or without bounds,

    .. math:: x_t = \arg\min_{\|x\|\le R}\Big\langle\sum_{s<t}g_s, x\Big\rangle + \frac{\|x\|^2}{2\ell}\sqrt{V_{t-1}}
              = \Pi\Big(-\frac{\ell}{\sqrt{V_{t-1}}}\sum_{s<t}g_s\Big),\qquad V_t = \sum_{s\le t}\|g_s\|^2,

    with :math:`\ell` = ``length_scale``, and x = 0 as long as V = 0.

    Guarantee, for any gradients, every u in the ball and every T,

    .. math:: \sum_{t\le T}\langle g_t, x_t - u\rangle \le \Big(\frac{\|u\|^2}{2\ell} + 2.75\,\ell\Big)\sqrt{V_T}
              + 3.5\min\{\ell\sqrt{T - 1}, 2R\}\max_{t\le T}\|g_t\|

    (Theorem 1 of the reference). No prior knowledge is needed. But the square of u is not optimal: with a wrong :math:`\ell` the
    bound is far from :math:`\|u\|\sqrt V`. Mirror descent with the same steps, :class:`~torchonline.baselines.AdaGrad`, is also
    scale-free, but without a ball its regret can grow like T^1.5 (docs/oons.md).

    Decisions do not depend on the unit of the loss. Cost of a round: O(d).

    Args:
        dim: number of coordinates d.
        length_scale: :math:`\ell > 0`, about the comparator's length.
        radius_bound: radius R > 0 of the ball; ``inf`` for no ball.
        batch_shape, dtype, device, validate: options of all learners, see :class:`~torchonline.core.learner.Learner`.

    Shape:
        - ``gradient_sum``: ``(*B, d)``; ``gradient_square_sum`` V: ``(*B)``.

    Example:
        >>> learner = SOLOFTRL(2, length_scale=5.0)
        >>> mean = torch.zeros(2).double()
        >>> for _ in range(1000):
        ...     mean += learner.predict() / 1000.0
        ...     learner.step((learner.predict() - torch.tensor([3.0, 4.0])).sign())
        >>> bool((mean - torch.tensor([3.0, 4.0])).norm() < 0.5)
        True

    Reference:
        Orabona and Pal, Scale-free online learning, Theoretical Computer Science 716, 2018, with a squared norm for the
        regularizer. The constants of the bound are recalled. What differs: :math:`\ell`.
    """

    statistics_depend_on = ("length_scale", "radius_bound")

    gradient_sum: Tensor
    gradient_square_sum: Tensor

    def __init__(
        self,
        dim: int,
        *,
        length_scale: float = 1.0,
        radius_bound: float = math.inf,
        **options: Unpack[LearnerOptions],
    ) -> None:
        super().__init__(dim, **options)
        self.length_scale = self._size("length_scale", length_scale)
        self.radius_bound = self._size("radius_bound", radius_bound, math.inf)
        self._create_buffers()

    def _initial_state(self) -> dict[str, Tensor | None]:
        state = super()._initial_state()
        return state | {"gradient_sum": state["decision"], "gradient_square_sum": torch.zeros((), dtype=torch.float64)}

    def _observe(self, gradients: Tensor, values: Tensor | None) -> None:
        count_(self.rounds)
        gradient_sum = self.gradient_sum
        gradient_sum += gradients
        increase_(self.gradient_square_sum, dot(gradients, gradients))
        # Subtracted from 0, so that without gradients the result is 0 and not -0.
        x = 0.0 - along(self.length_scale / sqrt(or_one(self.gradient_square_sum)), gradients) * gradient_sum
        assign_(self.decision, in_ball(x, self.radius_bound) if self.radius_bound < math.inf else x)
