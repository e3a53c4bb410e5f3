"""FreeGrad (Mhammedi and Koolen, COLT 2020): no learning rate, no bound on the comparator, none on the gradients, O(d)."""

import math

import torch
from torch import Tensor

from torchonline.convex.learner import ConvexLearner
from torchonline.core.checks import LARGEST, positive_size
from torchonline.core.ops import (
    along,
    assign_,
    at_most,
    column,
    count_,
    dot,
    exp,
    increase_,
    largest,
    log,
    maximum,
    minimum,
    or_one,
    roundoff,
    sqrt,
    where,
)


class FreeGrad(ConvexLearner):
    r"""Online linear optimisation on all of :math:`R^d`, adaptive to the comparator's length and to the gradients' scale.

    A round, for the caller::

        x = learner.predict()
        learner.step(gradient)    # of the round's loss at x

    The update, from the first gradient that is not 0: with :math:`n = \|S\|` and, at that gradient,
    :math:`h = h_1 = \|g\|`, :math:`V = h_1^2`, :math:`S = 0`,

    .. math:: h' = \max\{h, \|g\|\},\quad \tilde g = g\,h/h',\quad S \leftarrow S + \tilde g,\quad
              V \leftarrow V + \|\tilde g\|^2,\quad h \leftarrow h',

    .. math:: x = -\epsilon\,S\,\frac{h_1^2\,(2V + hn)}{2(V+hn)^2\sqrt V}\,\exp\frac{n^2}{2V + 2hn} = -\nabla_S\Phi,\qquad
              \Phi = \frac{\epsilon h_1^2}{\sqrt V}\exp\frac{n^2}{2V + 2hn}.

    Until then x = 0. With ``lipschitz`` = G, :math:`h = h_1 = G` and :math:`V = G^2` from the start and for good, and what is
    longer than G is cut to it. ``clipped`` counts the rounds in which :math:`\tilde g` was not g.

    A first gradient that happens to be tiny would make :math:`h_1^2/h` so small that nothing is learnt for long. Therefore,
    where G is not known, a gradient at least twice as long as all those since the last start together starts the update anew:
    it is the first one, and what was learnt is forgotten. ``restarts=False`` never does.

    Guarantee. No step lets the wealth fall short: :math:`\langle\tilde g, x\rangle \le \Phi - \Phi'` for any
    :math:`\|\tilde g\| \le h`, and :math:`\Phi` falls in h. So for every sequence and every T

    .. math:: \sum_t\langle\tilde g_t, x_t\rangle \le \epsilon h_1 - \Phi_T .

    For any u, with :math:`U = \|u\|` and final V and h, and :math:`\ln_+ = \max\{\ln, 0\}`, therefore

    .. math:: \sum_t\langle g_t, x_t - u\rangle \le \epsilon h_1
              + U\max\Bigl\{2\sqrt{V\ln\bigl(1 + \tfrac{4U^2V^2}{\epsilon^2h_1^4}\bigr)},\
                            4h\ln_+\tfrac{4hU\sqrt V}{\epsilon h_1^2}\Bigr\} + (\max_t\|x_t\| + U)(h - h_1).

    The last term is the price of what is cut, since :math:`\|g_t - \tilde g_t\| \le h_t - h_{t-1}`: x is bounded by nothing
    here, and one late gradient much longer than all before can cost much. With ``lipschitz`` it is
    :math:`\sum_t\|g_t-\tilde g_t\|(\|x_t\|+U)`: 0 if no gradient is longer. After restarts, with V and :math:`h_1` of the last
    start, it is :math:`(2\max_t\|x_t\| + U)h`: what came between two starts is at most half as long, in all, as the gradient
    that ended it, so that all before the last start is a geometric series. Convex losses have regret of at most the sum on the
    left.

    The update is recalled from memory of the paper and not read again. The first inequality is proved in
    docs/parameter_free.md, for every V > 0, and in the tests; the bound follows from it by :math:`\sup_n(Un - \Phi)`.

    A loss of other units, f for cf (and cG for G), leaves all decisions as they are; ``initial_scale`` is their unit of length.
    Numbers are kept as ratios, so that gradients of length 1e-100 and 1e100 may meet in one stream. A decision can grow like
    an exponential of the round while gradients agree; one that would be longer than the largest number that a step takes,
    5.6e102 (7.0e12 in float32), is about as long as that instead, where the guarantee ends.

    Cost of a round: O(d) time; two vectors.

    Args:
        dim: d, number of coordinates.
        initial_scale: :math:`\epsilon > 0`, the unit of length: what is wagered on the comparator being far away. It is
            paid, times a gradient's length, if the comparator is 0, and otherwise counts by a logarithm.
        lipschitz: G > 0, a bound on the length of the gradients, if one is known; None if not.
        restarts: whether a gradient that outweighs all before starts anew; of no effect with ``lipschitz``.
        batch_shape: ``*B``, independent learners in one module.
        dtype: torch.float64 or torch.float32, of the state.
        device: where the state lives.
        validate: whether values are checked in each call.

    Shape:
        - ``decision``, x, and ``gradient_sum``, S: ``(*B, d)``.
        - ``root_energy``, :math:`\sqrt V`; ``longest``, h; ``first``, :math:`h_1`; ``length_sum``, of the gradients since the
          start: ``(*B)``; all 0 until there is a gradient.
        - ``rounds``, ``clipped``: ``(*B)``, int64.

    Example:
        >>> learner = FreeGrad(2)
        >>> target = torch.tensor([3.0, -50.0]).double()
        >>> for _ in range(2000):
        ...     learner.step((learner.predict() - target).sign())  # of the distance to the target, coordinate by coordinate
        >>> bool((learner.predict() - target).norm() < 3.0)
        True

    Reference:
        Mhammedi and Koolen, Lipschitz and comparator-norm adaptivity in online learning, COLT 2020. Not here: the
        constraint on x by which the paper pays for late long gradients. The rule of the restarts, which is simpler than the
        paper's, and the logarithms of the bound are this library's own.
    """

    statistics_depend_on = ("initial_scale", "lipschitz", "restarts")

    gradient_sum: Tensor
    root_energy: Tensor
    longest: Tensor
    first: Tensor
    length_sum: Tensor
    clipped: Tensor

    def __init__(
        self,
        dim: int,
        *,
        initial_scale: float = 1.0,
        lipschitz: float | None = None,
        restarts: bool = True,
        batch_shape: tuple[int, ...] = (),
        dtype: torch.dtype = torch.float64,
        device: torch.device | str | None = None,
        validate: bool = True,
    ) -> None:
        super().__init__(dim, batch_shape=batch_shape, dtype=dtype, device=device, validate=validate)
        self.initial_scale = positive_size("initial_scale", initial_scale, dtype)
        self.lipschitz = None if lipschitz is None else positive_size("lipschitz", lipschitz, dtype)
        if not isinstance(restarts, bool):
            raise TypeError(f"restarts: expected True or False, got {type(restarts).__name__}")
        self.restarts = restarts
        self.grows = lipschitz is None
        # What a gradient counts for against the sum of those before it, which has to be 0 for the first one of all.
        self.weight = 0.5 if restarts and self.grows else 0.0
        self.log_scale = math.log(self.initial_scale)
        # In single and in double precision: the state may not stay in the type it has now.
        self.log_largest = (math.log(LARGEST[torch.float32]), math.log(LARGEST[torch.float64]))
        self._create_buffers()

    def _initial_state(self) -> dict[str, Tensor | None]:
        start = torch.tensor(self.lipschitz or 0.0, dtype=torch.float64)
        return super()._initial_state() | {
            "gradient_sum": torch.zeros(self.dim, dtype=torch.float64),
            "root_energy": start,
            "longest": start,
            "first": start,
            "length_sum": start,
            "clipped": torch.zeros((), dtype=torch.int64),
        }

    def _observe(self, gradients: Tensor, values: Tensor | None) -> None:
        length = euclidean(gradients)
        starts = self.weight * length >= self.length_sum
        longest = where(starts, length, self.longest)
        first = where(starts, length, self.first)
        root_energy = where(starts, length, self.root_energy)
        total = where(column(starts), 0.0 * self.gradient_sum, self.gradient_sum)
        length_sum = where(starts, length, self.length_sum + length)

        reach = maximum(longest, length)
        kept = longest / or_one(reach)
        total = total + along(kept, gradients) * gradients
        root_energy = hypotenuse(root_energy, kept * length)
        increase_(self.clipped, length > longest)
        count_(self.rounds)
        if self.grows:
            longest = reach
        assign_(self.gradient_sum, total)
        assign_(self.root_energy, root_energy)
        assign_(self.longest, longest)
        assign_(self.first, first)
        assign_(self.length_sum, length_sum)
        self._decide_(total, or_one(root_energy), or_one(longest), or_one(first))

    def _decide_(self, total: Tensor, root_energy: Tensor, longest: Tensor, first: Tensor) -> None:
        """Take the decision of a state, in ratios: n^2/V and V/h^2 may be far out of range, their roots q and p are not."""
        direction = total / along(root_energy, total)
        p, q = root_energy / longest, euclidean(direction)
        r = p / (p + q)  # V / (V + hn)
        exponent = self.log_scale + 2.0 * log(first) - log(longest) - log(root_energy) + 0.5 * q * q * r
        ceiling = self.log_largest[0] if roundoff(total) > 1e-12 else self.log_largest[1]
        factor = 0.5 * (1.0 + r) / (p + q) * exp(at_most(exponent, ceiling))
        # From 0, so that no gradient leaves 0 and not -0.
        assign_(self.decision, 0.0 - along(factor, total) * direction)


def euclidean(x: Tensor) -> Tensor:
    """The length of each learner's vector, ``(*B, d)`` to ``(*B)``, where its square would overflow or vanish too."""
    peak = or_one(largest(abs(x)))
    scaled = x / along(peak, x)
    return peak * sqrt(dot(scaled, scaled))


def hypotenuse(x: Tensor, y: Tensor) -> Tensor:
    """The root of ``x^2 + y^2`` for numbers from 0 on, likewise."""
    ratio = minimum(x, y) / or_one(maximum(x, y))
    return maximum(x, y) * sqrt(1.0 + ratio * ratio)
