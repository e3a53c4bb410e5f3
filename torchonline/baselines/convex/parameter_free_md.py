"""Parameter-free mirror descent (Jacobsen and Cutkosky, COLT 2022), with hints."""

import math

import torch
from torch import Tensor

from torchonline.baselines.convex.coin_betting import most
from torchonline.convex.learner import ConvexLearner
from torchonline.core.checks import one_of, positive_size
from torchonline.core.ops import along, assign_, count_, dot, expm1, increase_, log, log1p, minimum, or_one, sqrt, where
from torchonline.linalg import with_length_at_most

HINTS = ("last", "zero")


class ParameterFreeMirrorDescent(ConvexLearner):
    r"""Mirror descent without a step size or a bound on the comparator, whose regret grows with the changes of the gradient.

    A round::

        gradients, _ = torchonline.gradients(loss, learner, x, y)
        learner.step(gradients)

    With the hint :math:`m_t = g_{t-1}`, :math:`m_1 = 0`, and Z = 2G, G = ``lipschitz``; or :math:`m_t = 0` and Z = G,

    .. math:: x_t = \arg\min_x \Big\langle\sum_{s<t}g_s + m_t, x\Big\rangle + \psi_t(x),\qquad
              \psi_t(x) = 3\int_0^{\|x\|}\min_{\eta\le1/Z}\Big[\frac{\ln(r/\alpha_t + 1)}\eta + \eta V_t\Big]dr,

    .. math:: V_t = 4Z^2 + \sum_{s<t}\|g_s - m_s\|^2,\qquad \alpha_t = \frac{\varepsilon Z}{\sqrt{V_t}\ln^2(V_t/Z^2)}.

    In closed form, with :math:`\theta` minus the sum of gradients and hint, and :math:`n = \|\theta\|`,

    .. math:: x_t = \frac{\alpha_t\theta}n\,(e^a - 1),\qquad
              a = \frac{n^2}{36V_t} \text{ if } n \le \frac{6V_t}Z, \text{ else } \frac n{3Z} - \frac{V_t}{Z^2}.

    A gradient longer than G is cut to length G and counted in ``clipped``.

    Guarantee, for any (cut) gradients, each u and all T at once,

    .. math:: \sum_{t\le T}\langle g_t, x_t - u\rangle \le 4Z\varepsilon
              + 6\|u\|\max\Big\{\sqrt{V_{T+1}\ell},\,Z\ell\Big\},\qquad \ell = \ln(\|u\|/\alpha_{T+1} + 1).

    For ``hint="zero"`` this is Theorem 1 of the reference. For ``"last"`` it is the same by the same proof: with :math:`y_t` the
    minimiser without a hint, and D the Bregman divergence, the regret of optimistic follow the regularised leader is at most

    .. math:: \psi_{T+1}(u) + \sum_{t\le T}\big(\langle g_t - m_t, x_t - y_{t+1}\rangle - D_{\psi_t}(y_{t+1}, x_t)
              - (\psi_{t+1} - \psi_t)(y_{t+1})\big),

    and the terms of the sum are those that the proof bounds, with :math:`g_t - m_t` for the gradient: of the two points it asks
    nothing, as we remember it (the tests find no two on a line where the bound fails), and of that vector to be no longer than
    Z. Decisions end at length R, or :math:`10^{200}\varepsilon` (:math:`10^{24}\varepsilon` in float32), and the guarantee is
    for u no longer than that.

    Cost of a round: O(d).

    Args:
        dim: d, number of coordinates.
        initial_scale: :math:`\varepsilon > 0`, in units of the decision: 4Z times it is the most that can be lost.
        lipschitz: G > 0, a bound on the length of gradients.
        hint: ``"last"``, or ``"zero"``.
        radius_bound: R > 0, of a ball that decisions and comparators are in; ``inf`` for no bound.
        batch_shape: ``*B``, independent learners in one module.
        dtype: torch.float64 or torch.float32, of the state.
        device: where the state lives.
        validate: whether values are checked in each call.

    Shape:
        - gradients: ``(*B, d)`` or ``(*B, 1, d)``; decision; total, the sum of gradients over Z; hint, m over Z: ``(*B, d)``.
        - energy, :math:`V/Z^2`; rounds; clipped: ``(*B)``.

    Example:
        >>> learner = ParameterFreeMirrorDescent(2, lipschitz=5.0)
        >>> for _ in range(1000):
        ...     learner.step(learner.predict() - torch.tensor([3.0, 4.0]))  # the gradient of |x - (3, 4)|^2 / 2
        >>> bool((learner.predict() - torch.tensor([3.0, 4.0])).norm() < 0.1)
        True

    Reference:
        Jacobsen and Cutkosky, Parameter-free mirror descent, COLT 2022: Algorithm 4, with Theorem 1; its constants are from
        memory and from a published reimplementation. What differs: the hints, the cut, and the end of the decisions. The paper
        reaches changes of the gradient in another way, by implicit updates with the whole last loss, whose gradient at the new
        point is the hint; here it is the gradient that was seen, at the last point.
    """

    statistics_depend_on = ("initial_scale", "lipschitz", "optimism", "radius_bound")
    argument_of = {"optimism": "hint"}

    total: Tensor
    hint: Tensor
    energy: Tensor
    clipped: Tensor

    def __init__(
        self,
        dim: int,
        *,
        initial_scale: float = 1.0,
        lipschitz: float,
        hint: str = "last",
        radius_bound: float = math.inf,
        batch_shape: tuple[int, ...] = (),
        dtype: torch.dtype = torch.float64,
        device: torch.device | str | None = None,
        validate: bool = True,
    ) -> None:
        super().__init__(dim, batch_shape=batch_shape, dtype=dtype, device=device, validate=validate)
        self.initial_scale = positive_size("initial_scale", initial_scale, dtype)
        self.lipschitz = positive_size("lipschitz", lipschitz, dtype)
        self.optimism = 1.0 if one_of("hint", hint, HINTS) == "last" else 0.0
        self.error_bound = (1.0 + self.optimism) * self.lipschitz
        self.radius_bound = positive_size("radius_bound", radius_bound, dtype, besides=(math.inf,))
        self._create_buffers()

    def _initial_state(self) -> dict[str, Tensor | None]:
        return super()._initial_state() | {
            "total": torch.zeros(self.dim, dtype=torch.float64),
            "hint": torch.zeros(self.dim, dtype=torch.float64),
            "energy": torch.tensor(4.0, dtype=torch.float64),
            "clipped": torch.zeros((), dtype=torch.int64),
        }

    def _observe(self, gradients: Tensor, values: Tensor | None) -> None:
        total = self.total
        count_(self.rounds)
        length = sqrt(dot(gradients, gradients))
        increase_(self.clipped, length > self.lipschitz)
        # From here on Z is the unit of gradients.
        g = with_length_at_most(gradients, length, self.lipschitz) / self.error_bound
        error = g - self.hint
        increase_(self.energy, dot(error, error))
        total += g
        hint = self.optimism * g
        assign_(self.hint, hint)
        theta = -(total + hint)
        n, V = sqrt(dot(theta, theta)), self.energy
        depth = log(V)
        longest = min(self.radius_bound, self.initial_scale * most(theta))
        alpha = self.initial_scale / (sqrt(V) * depth * depth)
        exponent = where(n <= 6.0 * V, n * n / (36.0 * V), n / 3.0 - V)
        size = alpha * expm1(minimum(exponent, log1p(longest / alpha)))
        assign_(self.decision, along(size / or_one(n), theta) * theta)
