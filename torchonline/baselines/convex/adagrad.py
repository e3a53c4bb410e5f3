"""AdaGrad (Duchi, Hazan and Singer, 2011; McMahan and Streeter, 2010)."""

import math
from typing import Unpack

import torch
from torch import Tensor

from torchonline.convex.learner import ConvexLearner
from torchonline.core.backend import may_hold
from torchonline.core.checks import one_of
from torchonline.core.ops import along, assign_, count_, dot, increase_, or_one, sqrt
from torchonline.core.options import LearnerOptions
from torchonline.linalg import project_ball_weighted, with_length_at_most


class AdaGrad(ConvexLearner):
    r"""AdaGrad: gradient descent with one step size, or one for each coordinate.

    From :math:`x_1 = 0`, with c = ``step_size``, the two forms are

    .. math:: x_{t+1} = \Pi\Big(x_t - \frac{c\,g_t}{\sqrt{S_t}}\Big),\quad S_t = \sum_{s\le t}\|g_s\|^2;\qquad
              x_{t+1} = \Pi_t\Big(x_t - \frac{c\,g_t}{\sqrt{S_t}}\Big),\quad S_{t,i} = \sum_{s\le t}g_{s,i}^2,

    where :math:`\Pi` projects onto the ball :math:`\|x\| \le R`, and :math:`\Pi_t` does so in the norm of the weights
    :math:`\sqrt{S_{t,i}}` (:func:`~torchonline.linalg.project_ball_weighted`). A coordinate whose gradients were all 0 does not
    move. Decisions do not change when all gradients are multiplied by a constant.

    Guarantee, for any gradients and every u in the ball, for the two forms,

    .. math:: \sum_{t\le T}\langle g_t, x_t - u\rangle \le \Big(\frac{2R^2}c + c\Big)\sqrt{S_T},\qquad
              \Big(\frac{2R^2}c + c\Big)\sum_i\sqrt{S_{T,i}},

    which is least at :math:`c = \sqrt2R`. Without a ball the same holds with half the largest :math:`\|x_t - u\|` in place of R;
    nothing bounds that distance. Cost of a round: O(d), about a hundred times more if a ``"diagonal"`` step leaves the ball.

    Args:
        dim: number of coordinates d.
        step_size: c > 0, in units of the decision.
        form: ``"norm"`` for one step size, or ``"diagonal"`` for one per coordinate.
        radius_bound: radius R > 0 of the ball; ``inf`` for no ball.
        batch_shape, dtype, device, validate: options of all learners, see :class:`~torchonline.core.learner.Learner`.

    Shape:
        - ``gradient_square_sum`` S: ``(*B)``; ``(*B, d)`` for ``"diagonal"``.

    Example:
        >>> learner = AdaGrad(2, form="diagonal", radius_bound=10.0)
        >>> for _ in range(200):
        ...     learner.step(learner.predict() - torch.tensor([3.0, 4.0]))  # the gradient of |x - (3, 4)|^2 / 2
        >>> bool((learner.predict() - torch.tensor([3.0, 4.0])).norm() < 0.01)
        True

    Reference:
        Duchi, Hazan and Singer, Adaptive subgradient methods for online learning and stochastic optimization, JMLR 12, 2011;
        McMahan and Streeter, Adaptive bound optimization for online convex optimization, COLT 2010. Nothing is added to S here.
    """

    statistics_depend_on = ("step_size", "radius_bound")
    renamed = {"energy": "gradient_square_sum"}

    gradient_square_sum: Tensor

    def __init__(
        self,
        dim: int,
        *,
        step_size: float = 1.0,
        form: str = "norm",
        radius_bound: float = math.inf,
        **options: Unpack[LearnerOptions],
    ) -> None:
        super().__init__(dim, **options)
        self.step_size = self._size("step_size", step_size)
        self.form = one_of("form", form, ("norm", "diagonal"))
        self.is_diagonal = form == "diagonal"
        self.radius_bound = self._size("radius_bound", radius_bound, math.inf)
        self._create_buffers()

    def _initial_state(self) -> dict[str, Tensor | None]:
        square_sum = torch.zeros(self.dim if self.is_diagonal else (), dtype=torch.float64)
        return super()._initial_state() | {"gradient_square_sum": square_sum}

    def _observe(self, gradients: Tensor, values: Tensor | None) -> None:
        count_(self.rounds)
        increase_(self.gradient_square_sum, gradients * gradients if self.is_diagonal else dot(gradients, gradients))
        # If the sum of squares is 0, or underflows to 0, divide the gradient by 1.
        scale = sqrt(or_one(self.gradient_square_sum))
        x = self.decision - self.step_size * (gradients / along(scale, gradients))
        if self.radius_bound < math.inf:
            length = sqrt(dot(x, x))
            if not self.is_diagonal:
                x = with_length_at_most(x, length, self.radius_bound)
            elif may_hold(length > self.radius_bound):
                x = project_ball_weighted(x, sqrt(self.gradient_square_sum), self.radius_bound)
        assign_(self.decision, x)
