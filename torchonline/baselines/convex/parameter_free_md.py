"""Parameter-free mirror descent (Jacobsen and Cutkosky, COLT 2022), with hints."""

import math
from typing import Unpack

import torch
from torch import Tensor

from torchonline.baselines.convex.coin_betting import most
from torchonline.convex.learner import ConvexLearner
from torchonline.core.checks import one_of
from torchonline.core.ops import along, assign_, count_, dot, expm1, increase_, log, log1p, minimum, or_one, sqrt, where
from torchonline.core.options import LearnerOptions, with_former_names
from torchonline.linalg import with_length_at_most


class ParameterFreeMirrorDescent(ConvexLearner):
    r"""Mirror descent without a step size or a bound on the comparator.

    Its regret grows with the changes of the gradient. With the hint :math:`m_t = g_{t-1}`, :math:`m_1 = 0`, and Z = 2G,
    G = ``lipschitz``; or :math:`m_t = 0` and Z = G,

    .. math:: x_t = \arg\min_x \Big\langle\sum_{s<t}g_s + m_t, x\Big\rangle + \psi_t(x),\qquad
              \psi_t(x) = 3\int_0^{\|x\|}\min_{\eta\le1/Z}\Big[\frac{\ln(r/\alpha_t + 1)}\eta + \eta V_t\Big]dr,

    .. math:: V_t = 4Z^2 + \sum_{s<t}\|g_s - m_s\|^2,\qquad \alpha_t = \frac{\varepsilon Z}{\sqrt{V_t}\ln^2(V_t/Z^2)}.

    In closed form, with :math:`\theta` minus the sum of gradients and hint, and :math:`n = \|\theta\|`,

    .. math:: x_t = \frac{\alpha_t\theta}n\,(e^a - 1),\qquad
              a = \frac{n^2}{36V_t} \text{ if } n \le \frac{6V_t}Z, \text{ else } \frac n{3Z} - \frac{V_t}{Z^2}.

    A gradient longer than G is clipped to length G and counted in ``clipped_rounds``.

    Guarantee, for any (clipped) gradients, every u and all T at once,

    .. math:: \sum_{t\le T}\langle g_t, x_t - u\rangle \le 4Z\varepsilon
              + 6\|u\|\max\Big\{\sqrt{V_{T+1}\ell},\,Z\ell\Big\},\qquad \ell = \ln(\|u\|/\alpha_{T+1} + 1).

    This is Theorem 1 of the reference for ``hint="zero"``; the same proof holds for ``"last"`` (docs/parameter_free_theory.md).
    Decisions are clipped at length R, or at :math:`10^{200}\varepsilon` (:math:`10^{24}\varepsilon` in float32), and the
    guarantee is for u no longer than that. Cost of a round: O(d).

    Args:
        dim: number of coordinates d.
        length_scale: :math:`\varepsilon > 0`, in units of the decision: at most 4Z times this can be lost.
        lipschitz: bound G > 0 on the length of gradients.
        hint: ``"last"``, or ``"zero"``.
        radius_bound: R > 0, of a ball that contains decisions and comparators; ``inf`` for no bound.
        batch_shape, dtype, device, validate: options of all learners, see :class:`~torchonline.core.learner.Learner`.

    Shape:
        - ``gradient_sum`` and ``hint`` m, both over Z: ``(*B, d)``; ``error_square_sum`` :math:`V/Z^2`: ``(*B)``.

    Example:
        >>> learner = ParameterFreeMirrorDescent(2, lipschitz=5.0)
        >>> for _ in range(1000):
        ...     learner.step(learner.predict() - torch.tensor([3.0, 4.0]))  # the gradient of |x - (3, 4)|^2 / 2
        >>> bool((learner.predict() - torch.tensor([3.0, 4.0])).norm() < 0.1)
        True

    Reference:
        Jacobsen and Cutkosky, Parameter-free mirror descent, COLT 2022, Algorithm 4; its constants are from memory and from a
        reimplementation. What differs: the hint is the last gradient, where the paper takes the gradient of the last loss at the
        new point; and the clipping of gradients and decisions.
    """

    statistics_depend_on = ("length_scale", "lipschitz", "optimism", "radius_bound")
    argument_of = {"optimism": "hint"}
    renamed = {"total": "gradient_sum", "energy": "error_square_sum", "clipped": "clipped_rounds"}

    gradient_sum: Tensor
    hint: Tensor
    error_square_sum: Tensor
    clipped_rounds: Tensor

    @with_former_names(initial_scale="length_scale")
    def __init__(
        self,
        dim: int,
        *,
        length_scale: float = 1.0,
        lipschitz: float,
        hint: str = "last",
        radius_bound: float = math.inf,
        **options: Unpack[LearnerOptions],
    ) -> None:
        super().__init__(dim, **options)
        self.length_scale = self._size("length_scale", length_scale)
        self.lipschitz = self._size("lipschitz", lipschitz)
        self.optimism = 1.0 if one_of("hint", hint, ("last", "zero")) == "last" else 0.0
        self.error_bound = (1.0 + self.optimism) * self.lipschitz
        self.radius_bound = self._size("radius_bound", radius_bound, math.inf)
        self._create_buffers()

    def _initial_state(self) -> dict[str, Tensor | None]:
        state = super()._initial_state()
        vectors, square_sum = dict.fromkeys(("gradient_sum", "hint"), state["decision"]), torch.tensor(4.0).double()
        return state | vectors | {"error_square_sum": square_sum, "clipped_rounds": state["rounds"]}

    def _observe(self, gradients: Tensor, values: Tensor | None) -> None:
        gradient_sum = self.gradient_sum
        count_(self.rounds)
        length = sqrt(dot(gradients, gradients))
        increase_(self.clipped_rounds, length > self.lipschitz)
        # From here on, gradients are in units of Z.
        g = with_length_at_most(gradients, length, self.lipschitz) / self.error_bound
        error = g - self.hint
        increase_(self.error_square_sum, dot(error, error))
        gradient_sum += g
        hint = self.optimism * g
        assign_(self.hint, hint)
        theta = -(gradient_sum + hint)
        n, V = sqrt(dot(theta, theta)), self.error_square_sum
        depth = log(V)
        longest = min(self.radius_bound, self.length_scale * most(theta))
        alpha = self.length_scale / (sqrt(V) * depth * depth)
        exponent = where(n <= 6.0 * V, n * n / (36.0 * V), n / 3.0 - V)
        size = alpha * expm1(minimum(exponent, log1p(longest / alpha)))
        assign_(self.decision, along(size / or_one(n), theta) * theta)
