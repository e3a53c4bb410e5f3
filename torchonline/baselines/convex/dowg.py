"""DoWG: distance over weighted gradients (Khaled et al., NeurIPS 2023)."""

from typing import Unpack

from torch import Tensor

from torchonline.baselines.convex.dog import DistanceOverGradients
from torchonline.core.ops import assign_, count_, dot, increase_, number
from torchonline.core.options import LearnerOptions


class DoWG(DistanceOverGradients):
    r"""DoWG: DoG with each gradient weighted by the distance at its time.

    .. math:: x_{t+1} = x_t - c\,\frac{r_t^2}{\sqrt{V_t}}\,g_t,\qquad r_t = \max\{r_0, \max_{s\le t}\|x_s\|\},\qquad
              V_t = \sum_{s\le t}r_s^2\|g_s\|^2,\qquad x_1 = 0,

    with :math:`r_0` = ``initial_distance`` and c = ``step_scale``.

    Guarantee. For any gradients, every u and every T, with :math:`D = \max_{t\le T+1}\|x_t - u\|` and :math:`r = r_{T+1}`,

    .. math:: \sum_{t\le T}r_t^2\langle g_t, x_t - u\rangle \le \Big(\frac{2D}c + cr\Big)r\sqrt{V_T}

    (by the proof for :class:`~torchonline.baselines.DoG`). The bound weights rounds by :math:`r_t^2`, and D is unbounded, so no
    regret bound follows. For one convex loss, Lipschitz or smooth, the paper bounds the loss of the average of the iterates with
    the weights :math:`r_t^2`, on a bounded domain. The decision is the last iterate; averaging is left to the user.

    Decisions do not depend on the unit of the loss. They are clipped at length 1e75 (1e9 in float32). Cost of a round: O(d).

    Args:
        dim: number of coordinates d.
        initial_distance: :math:`r_0 > 0`, the length of the first step, below the length of the comparator.
        step_scale: c > 0, which multiplies all steps; the paper has 1.
        batch_shape, dtype, device, validate: options of all learners, see :class:`~torchonline.core.learner.Learner`.

    Shape:
        - ``largest_distance`` r, ``gradient_square_sum`` :math:`V/r^2`: ``(*B)``.

    Example:
        >>> learner = DoWG(2)
        >>> for _ in range(300):
        ...     learner.step(learner.predict() - torch.tensor([3.0, 4.0]))  # the gradient of |x - (3, 4)|^2 / 2
        >>> bool((learner.predict() - torch.tensor([3.0, 4.0])).norm() < 0.01)
        True

    Reference:
        Khaled, Mishchenko and Jin, DoWG unleashed: an efficient universal parameter-free gradient descent method, NeurIPS 2023.
        The update and the default, :math:`r_0^2 = 10^{-4}`, are those of the authors' code (github.com/rka97/dowg). What differs:
        nothing is added to the root of V, where that code adds 1e-4; no projection; the largest length.
    """

    def __init__(
        self,
        dim: int,
        *,
        initial_distance: float = 0.01,
        step_scale: float = 1.0,
        **options: Unpack[LearnerOptions],
    ) -> None:
        super().__init__(dim, initial_distance=initial_distance, step_scale=step_scale, **options)

    def _observe(self, gradients: Tensor, values: Tensor | None) -> None:
        count_(self.rounds)
        increase_(self.gradient_square_sum, dot(gradients, gradients))
        before = number(self.largest_distance) * 1.0
        self._move_(gradients)
        # The sum is in units of the present distance, so that it stays in range.
        ratio = before / number(self.largest_distance)
        assign_(self.gradient_square_sum, number(self.gradient_square_sum) * ratio * ratio)
