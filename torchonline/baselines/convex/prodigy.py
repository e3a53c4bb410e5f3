"""Prodigy: Adam by an estimated distance (Mishchenko and Defazio, ICML 2024)."""

import math
from typing import Unpack

import torch
from torch import Tensor

from torchonline.baselines.convex.distance import DistanceLearner, farthest
from torchonline.core.ops import along, assign_, at_least, at_most, count_, dot, maximum, number, or_one, sqrt, total
from torchonline.core.options import LearnerOptions

# Decay of the means of gradients and of their squares, and the constant added to a root, in units of a gradient.
BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-8


class Prodigy(DistanceLearner):
    r"""Prodigy: Adam with a growing estimate of the distance as its rate.

    With :math:`\beta_1 = 0.9`, :math:`\beta_2 = 0.999`, :math:`\beta_3 = \sqrt{\beta_2}`, :math:`\epsilon = 10^{-8}`,
    :math:`d_1` = ``initial_distance`` and c = ``step_scale``, and with coordinatewise products and roots of vectors,

    .. math:: m_t &= \beta_1m_{t-1} + (1 - \beta_1)d_tg_t,\qquad v_t = \beta_2v_{t-1} + (1 - \beta_2)d_t^2g_t^2, \\
              r_t &= \beta_3r_{t-1} - d_t^2\langle g_t, x_t\rangle,\qquad s_t = \beta_3s_{t-1} + d_t^2g_t, \\
              d_{t+1} &= \max\{d_t, c\,r_t/\|s_t\|_1\},\qquad
              x_{t+1} = x_t - d_tm_t/(\sqrt{v_t} + d_{t+1}\epsilon),\qquad x_1 = 0.

    Guarantee: none that we can vouch for. The paper, as we recall it, bounds the loss of one convex function without
    noise, for versions of dual averaging and gradient descent whose means do not decay.

    Decisions depend on the unit of the loss through :math:`\epsilon` only. The decision, d and d g are clipped at 1e75 (1e9 in
    float32). Cost of a round: O(d); four vectors of memory.

    Args:
        dim: number of coordinates d.
        initial_distance: :math:`d_1 > 0`, less than the comparator's length.
        step_scale: c > 0, the authors' ``d_coef``, the number that they would tune.
        batch_shape, dtype, device, validate: options of all learners, see :class:`~torchonline.core.learner.Learner`.

    Shape:
        - ``mean_gradient`` m, ``mean_square`` v, ``weighted_sum`` s: ``(*B, d)``; ``distance`` d, ``numerator`` r: ``(*B)``.

    Example:
        >>> learner, target = Prodigy(2), torch.tensor([3.0, 4.0]).double()
        >>> for _ in range(500):
        ...     learner.step(learner.predict() - target)  # the gradient of |x - (3, 4)|^2 / 2
        >>> bool((learner.predict() - target).norm() < 0.1)
        True

    Reference:
        Mishchenko and Defazio, Prodigy: an expeditiously adaptive parameter-free learner, ICML 2024, in the form of the authors'
        ``Prodigy`` with its defaults (github.com/konstmish/prodigy, version 1.1.2), whose decisions a test matches. What differs:
        the clipping.
    """

    mean_gradient: Tensor
    mean_square: Tensor
    weighted_sum: Tensor
    distance: Tensor
    numerator: Tensor

    def __init__(
        self,
        dim: int,
        *,
        initial_distance: float = 1e-6,
        step_scale: float = 1.0,
        **options: Unpack[LearnerOptions],
    ) -> None:
        self.beta_1, self.beta_2, self.beta_3, self.epsilon = BETA_1, BETA_2, math.sqrt(BETA_2), EPSILON
        super().__init__(dim, initial_distance=initial_distance, step_scale=step_scale, **options)

    def _initial_state(self) -> dict[str, Tensor | None]:
        state, distance = super()._initial_state(), torch.tensor(self.initial_distance, dtype=torch.float64)
        vectors = dict.fromkeys(("mean_gradient", "mean_square", "weighted_sum"), state["decision"])
        return state | vectors | {"distance": distance, "numerator": torch.zeros((), dtype=torch.float64)}

    def _observe(self, gradients: Tensor, values: Tensor | None) -> None:
        count_(self.rounds)
        x, d, largest = self.decision, number(self.distance), farthest(gradients)
        step = at_least(at_most(along(d, x) * gradients, largest), -largest)
        m, v, s = self.mean_gradient, self.mean_square, self.weighted_sum
        assign_(m, self.beta_1 * m + (1.0 - self.beta_1) * step)
        assign_(v, self.beta_2 * v + (1.0 - self.beta_2) * step * step)
        assign_(s, self.beta_3 * s + along(d, x) * step)
        assign_(self.numerator, self.beta_3 * number(self.numerator) - d * number(dot(step, x)))
        estimate = self.step_scale * number(self.numerator) / or_one(number(total(abs(s))))
        after = at_most(maximum(d, estimate), largest)
        x = x - along(d, x) * m / (sqrt(v) + along(after * self.epsilon, x))
        assign_(self.distance, after)
        assign_(self.decision, at_least(at_most(x, largest), -largest))
