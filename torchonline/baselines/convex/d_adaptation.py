"""D-Adaptation: steps by an estimated distance (Defazio, Mishchenko, 2023)."""

import torch
from torch import Tensor

from torchonline.baselines.convex.distance import DistanceLearner, farthest
from torchonline.convex.freegrad import euclidean
from torchonline.core.ops import along, assign_, at_most, count_, dot, increase_, maximum, number, or_one, where
from torchonline.linalg import with_length_at_most


class DAdaptation(DistanceLearner):
    r"""D-Adaptation: gradient descent by a lower bound on the distance.

    With the first nonzero gradient :math:`g_1`, :math:`d_1` = ``initial_distance`` and c = ``step_scale``,

    .. math:: x_{t+1} = x_t - \lambda_tg_t,\qquad \lambda_t = \frac{c\,d_t}{\|g_1\|},\qquad
              d_{t+1} = \max\Big\{d_t, \frac{-2}{\|x_{t+1}\|}\sum_{s\le t}\lambda_s\langle g_s, x_s\rangle\Big\},\qquad x_1 = 0.

    Guarantee. For any gradients, every u and every T,

    .. math:: \sum_{t\le T}\lambda_t\langle g_t, x_t - u\rangle \le \tfrac12\|u\|^2 + \tfrac12\sum_{t\le T}\lambda_t^2\|g_t\|^2,

    because it is gradient descent. The bound weights rounds by :math:`\lambda_t`, so no regret bound follows. In the paper, as we
    recall it, :math:`d_t` never exceeds the distance to the optimum of one convex loss without noise, for steps that also shrink,
    like AdaGrad's. The steps here do not shrink, and noisy or drifting gradients can make :math:`d_t` too large for good.

    Decisions do not depend on the unit of the loss. Steps, decisions and d are clipped at length 1e75 (1e9 in float32), where the
    guarantee ends. Cost of a round: O(d).

    Args:
        dim: number of coordinates d.
        initial_distance: :math:`d_1 > 0`, less than the comparator's length.
        step_scale: c > 0, the authors' ``lr``, which they advise to leave at 1.
        batch_shape, dtype, device, validate: options of all learners, see :class:`~torchonline.core.learner.Learner`.

    Shape:
        - ``distance`` d, ``first_gradient_norm``, ``numerator`` :math:`-\sum_s\lambda_s\langle g_s, x_s\rangle`: ``(*B)``.

    Example:
        >>> learner, target = DAdaptation(2), torch.tensor([3.0, 4.0]).double()
        >>> for _ in range(200):
        ...     learner.step(learner.predict() - target)  # the gradient of |x - (3, 4)|^2 / 2
        >>> bool((learner.predict() - target).norm() < 0.01)
        True

    Reference:
        Defazio and Mishchenko, Learning-rate-free learning by D-Adaptation, ICML 2023, in the form of the authors'
        ``DAdaptSGD`` without momentum and decay (github.com/facebookresearch/dadaptation, version 3.2), whose decisions a test
        matches. What differs: the largest length.
    """

    distance: Tensor
    first_gradient_norm: Tensor
    numerator: Tensor

    def _initial_state(self) -> dict[str, Tensor | None]:
        zero, distance = torch.zeros((), dtype=torch.float64), torch.tensor(self.initial_distance, dtype=torch.float64)
        return super()._initial_state() | {"distance": distance, "first_gradient_norm": zero, "numerator": zero}

    def _observe(self, gradients: Tensor, values: Tensor | None) -> None:
        count_(self.rounds)
        norm, first, d = euclidean(gradients), number(self.first_gradient_norm), number(self.distance)
        first = where(first > 0.0, first, norm)
        assign_(self.first_gradient_norm, first)
        x, largest = self.decision, farthest(gradients)
        # First the ratio of lengths: d may be large, and the first gradient small.
        unit = gradients / along(or_one(norm), gradients)
        step = along(at_most(self.step_scale * d * (norm / or_one(first)), largest), unit) * unit
        increase_(self.numerator, -dot(step, x))
        x = x - step
        length = euclidean(x)
        x = with_length_at_most(x, length, largest)
        assign_(self.decision, x)
        estimate = 2.0 * number(self.numerator) / or_one(length)
        assign_(self.distance, at_most(maximum(d, estimate), largest))
