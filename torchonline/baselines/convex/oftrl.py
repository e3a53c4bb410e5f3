"""OFTRL: optimistic follow the regularised leader (Sachs et al., NeurIPS 2022)."""

from typing import Unpack

import torch
from torch import Tensor

from torchonline.convex.learner import ConvexLearner
from torchonline.core.checks import one_of
from torchonline.core.ops import along, assign_, at_least, count_, dot, increase_, number, sqrt
from torchonline.core.options import LearnerOptions
from torchonline.linalg import in_ball


class SmoothLearner(ConvexLearner):
    """Base class of optimistic learners on a ball, with known gradient scales."""

    statistics_depend_on = ("radius_bound", "lipschitz", "smoothness")

    hint: Tensor

    def __init__(
        self,
        dim: int,
        *,
        radius_bound: float,
        lipschitz: float,
        smoothness: float = 0.0,
        **options: Unpack[LearnerOptions],
    ) -> None:
        super().__init__(dim, **options)
        self.radius_bound = self._size("radius_bound", radius_bound)
        self.lipschitz = self._size("lipschitz", lipschitz)
        self.smoothness = self._size("smoothness", smoothness, 0.0)
        self.square, self.diameter = self.radius_bound**2, 2.0 * self.radius_bound
        self.offset = self._offset()
        self._create_buffers()

    def _offset(self) -> float:
        """Return the number that the sum of squared errors is added to."""
        raise NotImplementedError


class OFTRL(SmoothLearner):
    r"""OFTRL: optimistic follow the regularised leader on a ball.

    It is for convex, smooth losses between stochastic and adversarial. With the last gradient as the hint, :math:`m_t = g_{t-1}`,
    :math:`m_1 = 0`,

    .. math:: x_t = \arg\min_{\|x\|\le R}\Big\langle\sum_{s<t}g_s + m_t, x\Big\rangle + \frac{\|x\|^2}{\eta_t},\qquad
              \eta_t = \frac{R^2}{\nu + \sum_{s<t}\eta_s\|g_s - m_s\|^2},

    where :math:`\nu = 2GR + LR^2`, G = ``lipschitz`` and L = ``smoothness``. With ``schedule="minimum"``,

    .. math:: \eta_t = \min\Big\{\frac{R^2}\nu, \frac R{\sqrt{V_{t-1}}}\Big\},\qquad V_t = \sum_{s\le t}\|g_s - m_s\|^2.

    Guarantee, for any gradients and every u in the ball, with :math:`Z = \max_t\|g_t - m_t\|`, which is at most 2G if no
    gradient is longer than G:

    .. math:: \sum_{t\le T}\langle g_t, x_t - u\rangle
              \le \frac3{\sqrt2}R\Big(\sum_{t\le T}\|g_t - m_t\|^2\Big)^{1/2} + \nu + \frac{3R^2Z^2}{2\nu}.

    With ``schedule="minimum"``, if no gradient is longer than G, the sum on the left is at most
    :math:`(1 + 1/\sqrt2)R\sqrt{V_T} + \nu`: regret is at most :math:`R^2/\eta_T + \frac14\sum_t\eta_t\|g_t - m_t\|^2`, and
    :math:`\eta_t \le \sqrt2R/\sqrt{V_{t-1} + 4G^2}`.

    If the losses are convex and the expected losses L-smooth, the expected regret is
    :math:`O(R\sqrt{\sigma_{1:T}^2} + R\sqrt{\Sigma_{1:T}^2} + RG + LR^2)`, where the two sums are over the variances of gradients
    and the squared changes of their means (Theorem 5 of the reference). A wrong G or L changes :math:`\nu` only. Cost of a round:
    O(d).

    Args:
        dim: number of coordinates d.
        radius_bound: radius R > 0 of the ball.
        lipschitz: G > 0, about the length of gradients.
        smoothness: :math:`L \ge 0`, about a Lipschitz constant of the mean gradients; 0 if unknown.
        schedule: ``"recursive"``, the steps of the reference, or ``"minimum"``.
        batch_shape, dtype, device, validate: options of all learners, see :class:`~torchonline.core.learner.Learner`.

    Shape:
        - ``gradient_sum``, ``hint`` m: ``(*B, d)``; ``regularization`` :math:`R^2/\eta_t`, or, with ``"minimum"``,
          :math:`R\sqrt{V_{t-1}}`: ``(*B)``.

    Example:
        >>> learner = OFTRL(2, radius_bound=10.0, lipschitz=1.0)
        >>> for _ in range(500):
        ...     learner.step(learner.predict() - torch.tensor([3.0, 4.0]))  # the gradient of |x - (3, 4)|^2 / 2
        >>> bool((learner.predict() - torch.tensor([3.0, 4.0])).norm() < 0.01)
        True

    Reference:
        Sachs, Hadiji, van Erven and Guzman, Between stochastic and adversarial online convex optimization: improved regret bounds
        via smoothness, NeurIPS 2022, Theorem 5. What differs: R replaces the paper's diameter, because its proof needs only
        :math:`\|u\| \le R`; :math:`\nu` has 2GR, from the paper's case without smoothness, in place of :math:`RG^2`, which has
        other units; and the last term of the bound is what the paper's proof gives, where the paper prints :math:`4R^2G^2/\nu`.
        ``"minimum"`` is the step of :class:`~torchonline.OONS` in place of the paper's, with the constants that its proof needs.
    """

    renamed = {"total": "gradient_sum", "penalty": "regularization"}

    later_options = {"is_minimum": False}
    argument_of = {"is_minimum": "schedule"}

    gradient_sum: Tensor
    regularization: Tensor

    def __init__(
        self,
        dim: int,
        *,
        radius_bound: float,
        lipschitz: float,
        smoothness: float = 0.0,
        schedule: str = "recursive",
        **options: Unpack[LearnerOptions],
    ) -> None:
        self.schedule = one_of("schedule", schedule, ("recursive", "minimum"))
        self.is_minimum = schedule == "minimum"
        super().__init__(dim, radius_bound=radius_bound, lipschitz=lipschitz, smoothness=smoothness, **options)

    def _offset(self) -> float:
        return 2.0 * self.lipschitz * self.radius_bound + self.smoothness * self.radius_bound**2

    def _initial_state(self) -> dict[str, Tensor | None]:
        state = super()._initial_state()
        vectors = dict.fromkeys(("hint", "gradient_sum"), state["decision"])
        return (
            state
            | vectors
            | {"regularization": torch.tensor(0.0 if self.is_minimum else self.offset, dtype=torch.float64)}
        )

    def _observe(self, gradients: Tensor, values: Tensor | None) -> None:
        gradient_sum = self.gradient_sum
        count_(self.rounds)
        gradient_sum += gradients
        error = gradients - self.hint
        regularization = number(self.regularization)
        if self.is_minimum:
            spent = self.radius_bound * number(sqrt(dot(error, error)))
            regularization = number(sqrt(regularization * regularization + spent * spent))
            assign_(self.regularization, regularization)
            regularization = at_least(regularization, self.offset)
        else:
            increase_(self.regularization, self.square / regularization * dot(error, error))
            regularization = number(self.regularization)
        assign_(self.hint, gradients)
        free = along(self.square / regularization, gradients) * (gradient_sum + gradients) * -0.5
        assign_(self.decision, in_ball(free, self.radius_bound))
