"""FreeGrad: parameter-free online learning (Mhammedi and Koolen, COLT 2020)."""

import math
from typing import Unpack

import torch
from torch import Tensor

from torchonline.convex.learner import ConvexLearner
from torchonline.core.backend import may_hold
from torchonline.core.checks import LARGEST, instance_of
from torchonline.core.ops import (
    along,
    assign_,
    at_least,
    at_most,
    column,
    count_,
    dot,
    exp,
    fill_,
    increase_,
    largest,
    log,
    maximum,
    minimum,
    number,
    or_one,
    roundoff,
    sqrt,
    squarable,
    where,
)
from torchonline.core.options import LearnerOptions, with_former_names

NORMS = ("root_gradient_square_sum", "largest_gradient_norm", "first_gradient_norm", "gradient_norm_sum")


class FreeGrad(ConvexLearner):
    r"""Comparator- and Lipschitz-adaptive online linear optimisation on :math:`R^d`.

    The update. The first nonzero gradient sets :math:`h = h_1 = \|g\|`, :math:`V = h_1^2`, :math:`S = 0`. Each gradient from this
    one on updates, with :math:`n = \|S\|` and :math:`\epsilon` = ``length_scale``,

    .. math:: h' = \max\{h, \|g\|\},\quad \tilde g = g\,h/h',\quad S \leftarrow S + \tilde g,\quad
              V \leftarrow V + \|\tilde g\|^2,\quad h \leftarrow h', \tag{1}

    .. math:: x = -\epsilon\,S\,\frac{h_1^2\,(2V + hn)}{2(V+hn)^2\sqrt V}\,\exp\frac{n^2}{2V + 2hn}. \tag{2}

    Before the first nonzero gradient x = 0. With ``lipschitz`` = G, :math:`h = h_1 = G` and :math:`V = G^2` from the start, h is
    fixed, and a longer gradient is clipped to G. ``clipped_rounds`` counts the rounds in which :math:`\tilde g` differs from g.

    If G is unknown, a gradient restarts the update, as its first gradient, if it is at least twice as long as all gradients since
    the last start together. Without restarts, a tiny first gradient would hardly let the learner move for a long time.
    ``restarts=False`` turns them off.

    ``per_coordinate=True`` makes d learners, one for each coordinate, with absolute values for norms, and with
    :math:`\epsilon h_1 = W` = ``initial_wealth``. It is for linear models with features in any units: multiply feature i by
    :math:`c_i \ne 0`, and coordinate i of all decisions is divided by :math:`c_i`, so predictions do not change. Two rules make
    :math:`h_1` a fair scale. After each start a coordinate waits at 0, without learning, until the sizes of its gradients sum to
    3 times the largest, which is :math:`h_1`. While it waits, a gradient of a round with :math:`\rho = \max_j|g_j|/h_j < 1`
    counts as :math:`|g_i|/\rho`: in that round the slope of the loss is small, not the feature.

    Guarantee, for all gradients, every T and every u, with :math:`U = \|u\|`, :math:`\ln_+ = \max\{\ln, 0\}`, and V and h after T
    rounds:

    .. math:: \sum_t\langle g_t, x_t - u\rangle \le \epsilon h_1
              + U\max\Bigl\{2\sqrt{V\ln\bigl(1 + \tfrac{4U^2V^2}{\epsilon^2h_1^4}\bigr)},\
                            4h\ln_+\tfrac{4hU\sqrt V}{\epsilon h_1^2}\Bigr\} + (\max_t\|x_t\| + U)(h - h_1).

    The last term is the price of clipped gradients: one late gradient much longer than all earlier ones can cost much. With
    ``lipschitz`` it is :math:`\sum_t\|g_t-\tilde g_t\|(\|x_t\|+U)`. After restarts it is :math:`(2\max_t\|x_t\| + U)h`, with V
    and :math:`h_1` of the last start. With ``per_coordinate`` the bound is the sum of d such bounds, with :math:`|u_i|` for U, W
    for :math:`\epsilon h_1`, plus :math:`4h_1|u_i|` for the wait. If losses are convex, the sum on the left bounds the regret
    (proof: docs/parameter_free_theory.md).

    Decisions do not depend on the unit of the loss, except through W with ``per_coordinate``. A decision saturates near the
    largest number that a step accepts, 5.6e102 (7.0e12 in float32), where the guarantee ends. Cost of a round: O(d) time; two
    vectors of memory, or six with ``per_coordinate``.

    Args:
        dim: number of coordinates d.
        length_scale: :math:`\epsilon > 0`, the unit of length, about the length of the comparator. If the comparator is 0, the
            regret contains it, times a gradient's length. For other comparators it enters by a logarithm. Not with
            ``per_coordinate``.
        lipschitz: bound G > 0 on the length of gradients, or on each coordinate of them; None if unknown.
        restarts: whether a gradient that outweighs all earlier ones restarts the update. No effect with ``lipschitz``.
        per_coordinate: whether each coordinate has its own learner, which does not depend on the coordinate's scale.
        initial_wealth: W > 0, in units of the loss, with ``per_coordinate`` only. Each coordinate pays it if the comparator is 0
            there. For other comparators it enters by a logarithm. 1 suits the logistic loss.
        batch_shape, dtype, device, validate: options of all learners, see :class:`~torchonline.core.learner.Learner`.

    Shape:
        - ``gradient_sum`` S: ``(*B, d)``.
        - ``root_gradient_square_sum`` :math:`\sqrt V`, ``largest_gradient_norm`` h, ``first_gradient_norm`` :math:`h_1`,
          ``gradient_norm_sum`` (of the gradients since the start): ``(*B)``, or ``(*B, d)`` with ``per_coordinate``; 0 until
          the first gradient.

    Example:
        >>> learner = FreeGrad(2)
        >>> target = torch.tensor([3.0, -50.0]).double()
        >>> for _ in range(2000):
        ...     learner.step((learner.predict() - target).sign())  # of the distance to the target, coordinate by coordinate
        >>> bool((learner.predict() - target).norm() < 3.0)
        True

    Reference:
        Mhammedi and Koolen, Lipschitz and comparator-norm adaptivity in online learning, COLT 2020; the update is from memory.
        What differs: no constraint on x, by which the paper pays for late long gradients; a simpler restart rule; and the bound,
        whose proof is ours.
    """

    statistics_depend_on = ("length_scale", "lipschitz", "restarts")
    renamed = {"root_energy": "root_gradient_square_sum", "longest": "largest_gradient_norm"}
    renamed |= {"first": "first_gradient_norm", "length_sum": "gradient_norm_sum", "clipped": "clipped_rounds"}

    gradient_sum: Tensor
    root_gradient_square_sum: Tensor
    largest_gradient_norm: Tensor
    first_gradient_norm: Tensor
    gradient_norm_sum: Tensor
    clipped_rounds: Tensor

    @with_former_names(initial_scale="length_scale")
    def __init__(
        self,
        dim: int,
        *,
        length_scale: float = 1.0,
        lipschitz: float | None = None,
        restarts: bool = True,
        per_coordinate: bool = False,
        initial_wealth: float = 1.0,
        **options: Unpack[LearnerOptions],
    ) -> None:
        super().__init__(dim, **options)
        self.per_coordinate = instance_of("per_coordinate", per_coordinate, bool, "True or False")
        self.length_scale = self._size("length_scale", length_scale)
        self.initial_wealth = self._size("initial_wealth", initial_wealth)
        unused, value = ("length_scale", length_scale) if per_coordinate else ("initial_wealth", initial_wealth)
        if value != 1.0:
            raise ValueError(f"{unused}: expected no value with per_coordinate={per_coordinate}, got {value!r}")
        self.lipschitz = None if lipschitz is None else self._size("lipschitz", lipschitz)
        self.restarts, self.grows = instance_of("restarts", restarts, bool, "True or False"), lipschitz is None
        # A gradient restarts the update if this number times its length is at least the sum of the lengths so far. With 0, only
        # the first gradient does.
        self.restart_weight = 0.5 if restarts and self.grows else 0.0
        # For coordinates, a little less than 1/2 and 3, so that rounding does not decide ties.
        self.restart_weight *= 1.0 - per_coordinate * 2.0**-20
        self.patience = 3.0 * (1.0 - 2.0**-20)
        self.log_unit = math.log(self.initial_wealth if per_coordinate else self.length_scale)
        # In single and in double precision, because `.to()` may change the type of the state.
        self.log_largest = (math.log(LARGEST[torch.float32]), math.log(LARGEST[torch.float64]))
        # Keeps quotients by the share of a round in range.
        self.smallest_share = (1e-20, 1e-100)
        self._create_buffers()

    def _initial_state(self) -> dict[str, Tensor | None]:
        state, start = super()._initial_state(), torch.tensor(self.lipschitz or 0.0, dtype=torch.float64)
        if self.per_coordinate:
            start = start.expand(self.dim)
        norms = dict.fromkeys(NORMS, start)
        return state | {"gradient_sum": state["decision"], **norms, "clipped_rounds": state["rounds"]}

    def _options(self) -> list[tuple[str, float]]:
        unit = [("initial_wealth", self.initial_wealth)] if self.per_coordinate else []
        return super()._options() + unit

    def _observe(self, gradients: Tensor, values: Tensor | None) -> None:
        # New memory for products of long vectors would cost more than the products: the decision's serves.
        S, product = self.gradient_sum, self.decision
        if self.per_coordinate:
            gradients, norm, h, h_1, root_V = self._start_coordinates_(gradients)
        else:
            norm, h, h_1, root_V = self._start_(gradients)
        # Eq. (1), with the root of V.
        h_next = maximum(h, norm)
        kept = h / or_one(h_next)
        assign_(product, gradients)
        product *= along(kept, gradients)
        S += product
        root_V = hypotenuse(root_V, kept * norm)
        increase_(self.clipped_rounds, largest(norm > h) if self.per_coordinate else norm > h)
        count_(self.rounds)
        if self.grows:
            h = h_next
        assign_(self.root_gradient_square_sum, root_V)
        assign_(self.largest_gradient_norm, h)
        assign_(self.first_gradient_norm, h_1)
        self._decide_(or_one(root_V), or_one(h), or_one(h_1))

    def _start_(self, gradients: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Restart where a gradient outweighs all earlier ones.

        Return its length, h, :math:`h_1` and the root of V.
        """
        norm, norm_sum = euclidean(gradients), number(self.gradient_norm_sum)
        starts = self.restart_weight * norm >= norm_sum
        assign_(self.gradient_norm_sum, where(starts, norm, norm_sum + norm))
        h = where(starts, norm, number(self.largest_gradient_norm))
        h_1 = where(starts, norm, number(self.first_gradient_norm))
        root_V = where(starts, norm, number(self.root_gradient_square_sum))
        if may_hold(starts):
            fill_(self.gradient_sum, column(starts), 0.0)
        return norm, h, h_1, root_V

    def _start_coordinates_(self, gradients: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Restart coordinates where a gradient outweighs all earlier ones, and wait.

        Return gradients to learn from, their sizes, h, :math:`h_1` and the root of V.
        """
        norm, norm_sum, h, h_1 = (
            abs(gradients),
            self.gradient_norm_sum,
            self.largest_gradient_norm,
            self.first_gradient_norm,
        )
        outgrown = self.restart_weight * norm >= norm_sum
        # Ratio of this round's gradients to the longest. It divides the gradients of coordinates that have not begun.
        share = or_one(largest(minimum(norm, h) / or_one(h)))
        share = at_least(share, self.smallest_share[0] if roundoff(norm) > 1e-12 else self.smallest_share[1])
        seen = where(h_1 > 0.0, norm, norm / along(share, norm))
        norm_sum = where(outgrown, seen, norm_sum + seen)
        waits = outgrown | (h_1 == 0.0)
        h = where(outgrown, seen, where(waits, maximum(h, seen), h))
        begins = (norm_sum >= self.patience * h) & (h > 0.0)
        h_1 = where(waits, h * begins, h_1)
        root_V = where(waits, h, self.root_gradient_square_sum)
        assign_(self.gradient_norm_sum, norm_sum)
        nothing = 0.0 * gradients
        fill_(self.gradient_sum, waits, 0.0)
        return where(waits, nothing, gradients), where(waits, nothing, norm), h, h_1, root_V

    def _decide_(self, root_V: Tensor, h: Tensor, h_1: Tensor) -> None:
        """Write the decision of eq. (2)."""
        # Only ratios are formed: n^2/V and V/h^2 may be out of range.
        direction = self.decision
        assign_(direction, self.gradient_sum)
        direction /= along(root_V, direction)
        p, q = root_V / h, abs(direction) if self.per_coordinate else euclidean(direction)
        r = p / (p + q)  # V / (V + hn)
        powers = 1.0 if self.per_coordinate else 2.0
        exponent = self.log_unit + powers * log(h_1) - log(h) - log(root_V) + 0.5 * q * q * r
        ceiling = self.log_largest[0] if roundoff(direction) > 1e-12 else self.log_largest[1]
        factor = 0.5 * (1.0 + r) / (p + q) * exp(at_most(exponent, ceiling))
        direction *= along(-factor, direction)
        direction += 0.0  # -0 becomes 0


def euclidean(x: Tensor) -> Tensor:
    """Return norms, ``(*B, d)`` to ``(*B)``, even where squares overflow or vanish."""
    square, most = dot(x, x), squarable(x)
    out_of_range = (square > most) | (square < 1.0 / most)
    if may_hold(out_of_range):
        peak = or_one(number(largest(abs(x))))
        scaled = x / along(peak, x)
        return where(out_of_range, peak * number(sqrt(dot(scaled, scaled))), number(sqrt(square)))
    return number(sqrt(square))


def hypotenuse(x: Tensor, y: Tensor) -> Tensor:
    """Return ``sqrt(x^2 + y^2)`` for x, y >= 0, without overflow or underflow."""
    longer = maximum(x, y)
    ratio = minimum(x, y) / or_one(longer)
    return longer * number(sqrt(1.0 + ratio * ratio))
