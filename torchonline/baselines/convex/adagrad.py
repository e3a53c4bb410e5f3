"""AdaGrad (Duchi, Hazan and Singer, 2011; McMahan and Streeter, 2010): step sizes from the gradients so far."""

import math

import torch
from torch import Tensor

from torchonline.convex.learner import ConvexLearner
from torchonline.core.backend import may_hold
from torchonline.core.checks import one_of, positive_size
from torchonline.core.ops import (
    along,
    assign_,
    count_,
    dot,
    increase_,
    or_one,
    sqrt,
)
from torchonline.linalg import project_ball_weighted, with_length_at_most

FORMS = ("norm", "diagonal")


class AdaGrad(ConvexLearner):
    r"""Online gradient descent with AdaGrad's step sizes, one for all coordinates or one for each.

    A round::

        gradients, _ = torchonline.gradients(loss, learner, x, y)
        learner.step(gradients)

    From :math:`x_1 = 0`, with c = ``step_size``, the two forms are

    .. math:: x_{t+1} = \Pi\Big(x_t - \frac{c\,g_t}{\sqrt{S_t}}\Big),\quad S_t = \sum_{s\le t}\|g_s\|^2;\qquad
              x_{t+1} = \Pi_t\Big(x_t - \frac{c\,g_t}{\sqrt{S_t}}\Big),\quad S_{t,i} = \sum_{s\le t}g_{s,i}^2,

    where :math:`\Pi` takes the nearest point of the ball :math:`\|x\| \le R`, and :math:`\Pi_t` the nearest one in the norm of
    the weights :math:`\sqrt{S_{t,i}}` (:func:`~torchonline.linalg.project_ball_weighted`). Where no gradient has been, there is
    no step. Gradients that are all multiplied by a number leave the decisions where they are.

    Guarantee, for any gradients and each u in the ball,

    .. math:: \sum_{t\le T}\langle g_t, x_t - u\rangle \le \Big(\frac{2R^2}c + c\Big)\sqrt{S_T},\qquad
              \Big(\frac{2R^2}c + c\Big)\sum_i\sqrt{S_{T,i}},

    least at :math:`c = \sqrt2R`. Without a ball the same holds with half the largest :math:`\|x_t - u\|` in place of R, which
    nothing bounds.

    Cost of a round: O(d); for ``"diagonal"`` where a step leaves the ball, some hundred more operations on d numbers.

    Args:
        dim: d, number of coordinates.
        step_size: c > 0, in units of the decision.
        form: ``"norm"`` for one step size, or ``"diagonal"`` for one a coordinate.
        radius_bound: R > 0; ``inf`` for no bound.
        batch_shape: ``*B``, independent learners in one module.
        dtype: torch.float64 or torch.float32, of the state.
        device: where the state lives.
        validate: whether values are checked in each call.

    Shape:
        - gradients: ``(*B, d)`` or ``(*B, 1, d)``; decision: ``(*B, d)``; rounds: ``(*B)``.
        - energy, S: ``(*B)``; ``(*B, d)`` for ``"diagonal"``.

    Example:
        >>> learner = AdaGrad(2, form="diagonal", radius_bound=10.0)
        >>> for _ in range(200):
        ...     learner.step(learner.predict() - torch.tensor([3.0, 4.0]))  # the gradient of |x - (3, 4)|^2 / 2
        >>> bool((learner.predict() - torch.tensor([3.0, 4.0])).norm() < 0.01)
        True

    Reference:
        Duchi, Hazan and Singer, Adaptive subgradient methods for online learning and stochastic optimization, JMLR 12, 2011;
        McMahan and Streeter, Adaptive bound optimization for online convex optimization, COLT 2010. What differs: nothing is
        added to S.
    """

    statistics_depend_on = ("step_size", "radius_bound")

    energy: Tensor

    def __init__(
        self,
        dim: int,
        *,
        step_size: float = 1.0,
        form: str = "norm",
        radius_bound: float = math.inf,
        batch_shape: tuple[int, ...] = (),
        dtype: torch.dtype = torch.float64,
        device: torch.device | str | None = None,
        validate: bool = True,
    ) -> None:
        super().__init__(dim, batch_shape=batch_shape, dtype=dtype, device=device, validate=validate)
        self.step_size = positive_size("step_size", step_size, dtype)
        self.form = one_of("form", form, FORMS)
        self.is_diagonal = form == "diagonal"
        self.radius_bound = positive_size("radius_bound", radius_bound, dtype, besides=(math.inf,))
        self._create_buffers()

    def _initial_state(self) -> dict[str, Tensor | None]:
        energy = torch.zeros(self.dim if self.is_diagonal else (), dtype=torch.float64)
        return super()._initial_state() | {"energy": energy}

    def _observe(self, gradients: Tensor, values: Tensor | None) -> None:
        count_(self.rounds)
        increase_(self.energy, gradients * gradients if self.is_diagonal else dot(gradients, gradients))
        # Where the sum of squares is 0, or too small to be told from it, so is the gradient: then by 1.
        scale = sqrt(or_one(self.energy))
        x = self.decision - self.step_size * (gradients / along(scale, gradients))
        if self.radius_bound < math.inf:
            length = sqrt(dot(x, x))
            if not self.is_diagonal:
                x = with_length_at_most(x, length, self.radius_bound)
            elif may_hold(length > self.radius_bound):
                x = project_ball_weighted(x, sqrt(self.energy), self.radius_bound)
        assign_(self.decision, x)
