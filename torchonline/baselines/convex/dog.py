"""DoG: distance over gradients (Ivgi, Hinder and Carmon, ICML 2023)."""

import torch
from torch import Tensor

from torchonline.baselines.convex.distance import DistanceLearner, farthest
from torchonline.core.ops import along, assign_, count_, dot, increase_, maximum, number, or_one, sqrt
from torchonline.linalg import in_ball


class DistanceOverGradients(DistanceLearner):
    """Base class of DoG and DoWG: their statistics and their move."""

    largest_distance: Tensor
    gradient_square_sum: Tensor

    def _initial_state(self) -> dict[str, Tensor | None]:
        state, distance = super()._initial_state(), torch.tensor(self.initial_distance, dtype=torch.float64)
        return state | {"largest_distance": distance, "gradient_square_sum": torch.zeros((), dtype=torch.float64)}

    def _move_(self, gradients: Tensor) -> None:
        """Take a step of the size of the distance over the root of the sum of squares."""
        r, x = number(self.largest_distance), self.decision
        # If the sum of squares is 0, or underflows to 0, divide the gradient by 1.
        step = along(self.step_scale * r / sqrt(or_one(number(self.gradient_square_sum))), x) * gradients
        x = in_ball(x - step, farthest(x))
        assign_(self.decision, x)
        assign_(self.largest_distance, maximum(r, number(sqrt(dot(x, x)))))


class DoG(DistanceOverGradients):
    r"""DoG: steps by the distance from the start over the root of summed gradients.

    .. math:: x_{t+1} = x_t - c\,\frac{r_t}{\sqrt{G_t}}\,g_t,\qquad r_t = \max\{r_0, \max_{s\le t}\|x_s\|\},\qquad
              G_t = \sum_{s\le t}\|g_s\|^2,\qquad x_1 = 0,

    with :math:`r_0` = ``initial_distance`` and c = ``step_scale``.

    Guarantee. For any gradients, every u and every T, with :math:`D = \max_{t\le T+1}\|x_t - u\|` and :math:`r = r_{T+1}`,

    .. math:: \sum_{t\le T}r_t\langle g_t, x_t - u\rangle \le \Big(\frac{2D}c + cr\Big)r\sqrt{G_T}

    (as in the reference, recalled; the proof holds on every sequence). The bound weights rounds by :math:`r_t`, and D is
    unbounded: an adversary can make it grow forever. Hence no regret bound follows. For convex losses drawn at random from one
    distribution, the paper bounds the loss of the average of the iterates with the weights :math:`r_t`, for a version with
    smaller steps. The decision is the last iterate; averaging, which the authors call crucial, is left to the user.

    Decisions do not depend on the unit of the loss. They are clipped at length 1e75 (1e9 in float32). Cost of a round: O(d).

    Args:
        dim: number of coordinates d.
        initial_distance: :math:`r_0 > 0`, the length of the first step, far below the length of the comparator.
        step_scale: c > 0, which multiplies all steps. The paper uses 1, and advises against other values.
        batch_shape, dtype, device, validate: options of all learners, see :class:`~torchonline.core.learner.Learner`.

    Shape:
        - ``largest_distance`` r, ``gradient_square_sum`` G: ``(*B)``.

    Example:
        >>> learner = DoG(2)
        >>> for _ in range(1000):
        ...     learner.step(learner.predict() - torch.tensor([3.0, 4.0]))  # the gradient of |x - (3, 4)|^2 / 2
        >>> bool((learner.predict() - torch.tensor([3.0, 4.0])).norm() < 0.01)
        True

    Reference:
        Ivgi, Hinder and Carmon, DoG is SGD's best friend: a parameter-free dynamic step size schedule, ICML 2023. The update and
        the default 1e-6 are those of the authors' code (github.com/formll/dog), which takes :math:`10^{-6}(1 + \|c\|)` around a
        start c. What differs: nothing is added to G, where that code adds 1e-8; the largest length.
    """

    def _observe(self, gradients: Tensor, values: Tensor | None) -> None:
        count_(self.rounds)
        increase_(self.gradient_square_sum, dot(gradients, gradients))
        self._move_(gradients)
