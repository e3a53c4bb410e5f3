"""CLA-OONS: OONS that restarts when its radius has become too small."""

from typing import Any, Unpack

import torch
from torch import Tensor

from torchonline.convex.domains import Domain
from torchonline.convex.optimistic_newton import PRESETS, OptimisticNewton
from torchonline.core.backend import in_python, may_hold
from torchonline.core.ops import (
    along,
    assign_,
    at_most,
    dot,
    fill_,
    increase_,
    maximum,
    number,
    or_one,
    sqrt,
    where,
)
from torchonline.core.options import LearnerOptions, with_former_names


class CLAOONS(OptimisticNewton):
    r"""CLA-OONS: comparator- and Lipschitz-adaptive optimistic online Newton steps.

    The update is as in :class:`~torchonline.convex.optimistic_newton.OptimisticNewton`, with the last gradient as the hint,
    :math:`\ell = D_1`, and the largest error so far as :math:`z_t`. A longer error is clipped to :math:`z_t`:

    .. math::
        z_{t+1} = \max\{z_t, \|g_t - m_t\|\},\qquad e_t = \frac{z_t}{z_{t+1}}(g_t - m_t),\qquad
        S_t = \sum_{s \le t}\frac{\|g_s\|}{\max_{r \le s}\|g_r\|} .

    Decisions stay in the ball of radius :math:`D_t`. When :math:`D_t < D_1\sqrt{S_t}`, the radius becomes
    :math:`2D_1\sqrt{S_t}` and the learner restarts at the origin. With a ``domain``, the ball is around the domain's start
    :math:`x_0`, where the learner restarts, and decisions stay in both sets. The radius stops growing at R, the largest distance
    of a domain point from :math:`x_0`. The guarantee then holds for u in the domain, with :math:`u - x_0` in place of u and
    :math:`D_T \le \max\{D_1, \min\{R, 2D_1\sqrt{S_T}\}\}`.

    Guarantee, with the default preset. For convex losses, every u and any G :math:`\ge z_1` that no gradient exceeds in length,

    .. math::
        \text{regret} = \tilde O\big((D_1 + \|u\|^2/D_1)\sqrt{\textstyle\sum_t\|g_t - g_{t-1}\|^2} + G\,D_T + G\|u\|^3/D_1^2
        + G\|u\|^2/D_1\big), \qquad D_T \le \max\{D_1, 2D_1\sqrt{S_T}\},

    without knowledge of G or :math:`\|u\|` (Theorem 4.5 of the reference, corrected: docs/parameter_free_theory.md). The
    logarithms are of T and :math:`G/z_1`. :math:`G\,D_T` is of order :math:`GD_1\sqrt T` unless gradients vanish. In the
    stochastically extended adversarial model it is at most :math:`GD_1(1 + 2\sqrt{(\sigma_{1:T} + G_{1:T})/z_1})` in
    expectation, where :math:`\sigma_{1:T}` and :math:`G_{1:T}` sum the mean lengths of the noise and the lengths of the expected
    gradients: the reference's :math:`\sqrt{\sigma_{1:T} + G_{1:T}}`, with units. By default :math:`z_1` is the length of the
    first nonzero gradient, which costs :math:`z_1\|u\|` more. Then decisions do not depend on the unit of the loss.
    ``form="sketch"`` adds :math:`2D^2` times ``curvature.removed_spectrum`` for each start.

    This learner is included because the paper has it. In noise its regret grows almost like T for a long time: use
    :class:`~torchonline.FreeGrad` instead (docs/parameter_free_theory.md). On unscaled features it loses in nearly every round. A
    :class:`~torchonline.convex.divergence.DivergenceWarning` then appears once. Cost of a round: that of
    :class:`~torchonline.OONS`.

    Args:
        dim: number of coordinates d.
        gradient_scale: :math:`z_1`. None, the default, takes the length of the first nonzero gradient, and does not learn from
            that gradient. A number > 0 must be below or about the length of a gradient: if gradients are much shorter, the
            learner hardly moves, and the bound, whose G is at least :math:`z_1`, is vacuous.
        length_scale: first radius :math:`D_1` > 0, the unit of length.
        preset: ``"default"``: kappa, cap, look 9, 18, 2.25 and the ridge :math:`z/D_1`; ``"paper"``: 32, 64, 4, the ridge
            :math:`4z^2`, and a :math:`\max\|g\|` of at least 1.
        form, sketch_size: as in :class:`~torchonline.OONS`, without ``"frozen"``.
        domain: a convex set for decisions, as for :class:`~torchonline.OONS`; None for the whole space.
        batch_shape, dtype, device, validate: options of all learners, see :class:`~torchonline.core.learner.Learner`.

    Shape:
        - The buffers of :class:`~torchonline.OONS`, and, ``(*B)``: ``error_bound`` :math:`z_t`, ``first_error_bound``
          (:math:`z_t` at the last start), ``radius`` :math:`D_t`, ``largest_gradient_norm`` :math:`\max\|g\|`,
          ``relative_norm_sum`` :math:`S_t`, ``restart_count`` (starts after the first).

    Example:
        >>> learner = CLAOONS(1)
        >>> for _ in range(300):
        ...     learner.step((learner.predict() - 4.0).clamp(-1.0, 1.0))  # the slope of Huber's loss, lowest at 4
        >>> bool(abs(learner.predict() - 4.0) < 0.1)
        True

    Reference:
        Wang, Barik, Zhao and Tan, Parameter-free algorithms for the Stochastically Extended Adversarial model, Algorithm 4.
        What differs: the constants, a ridge with units, and a start without a known scale.
    """

    # The drift of an adaptive ridge is unbounded if the radius is much larger than the comparator.
    presets = {"default": PRESETS["tight"], "paper": PRESETS["paper"]}
    forms = ("eigen", "sketch")
    statistics_depend_on = ("gradient_scale", *OptimisticNewton.statistics_depend_on)
    renamed = OptimisticNewton.renamed | {"scale": "error_bound", "first_scale": "first_error_bound"}
    renamed |= {"longest": "largest_gradient_norm", "total": "relative_norm_sum", "starts": "restart_count"}

    first_error_bound: Tensor
    radius: Tensor
    largest_gradient_norm: Tensor
    relative_norm_sum: Tensor
    restart_count: Tensor

    @with_former_names(initial_scale="gradient_scale", initial_radius="length_scale")
    def __init__(
        self,
        dim: int,
        *,
        gradient_scale: float | None = None,
        length_scale: float = 1.0,
        preset: str = "default",
        form: str = "eigen",
        sketch_size: int = 16,
        domain: Domain | None = None,
        **options: Unpack[LearnerOptions],
    ) -> None:
        of_all: Any = {"length_scale": length_scale, "preset": preset, "form": form, "sketch_size": sketch_size}
        super().__init__(dim, domain=domain, **of_all, **options)
        # A ball that contains the domain need not grow. The state may have rounded its radius.
        self.large_enough = self.extent * (1.0 - 1e-6)
        self.gradient_scale = None if gradient_scale is None else self._size("gradient_scale", gradient_scale)
        one = torch.ones(self.batch_shape, dtype=torch.float64)
        self._start_(self.length_scale * one, (self.gradient_scale or 1.0) * one)

    def _initial_state(self) -> dict[str, Tensor | None]:
        zero = torch.zeros((), dtype=torch.float64)
        error_bound = zero + (self.gradient_scale or 0.0)
        own = {"error_bound": error_bound, "first_error_bound": error_bound, "radius": zero + self.length_scale}
        # The paper takes the longest gradient to be at least 1.
        own["largest_gradient_norm"] = zero + 1.0 if self.preset == "paper" else error_bound
        state = super()._initial_state()
        return state | own | {"relative_norm_sum": zero, "restart_count": state["rounds"]}

    def _observe(self, gradients: Tensor, values: Tensor | None) -> None:
        error = gradients - self.hint
        error_norm, gradient_norm = sqrt(dot(error, error)), sqrt(dot(gradients, gradients))
        error_bound = maximum(self.error_bound, error_norm)
        # Without a scale nothing can be learnt: the first nonzero gradient only sets the scale.
        error = error * along(self.error_bound / or_one(error_bound), error)
        increase_(self.clipped_rounds, error_bound > self.error_bound)
        self._learn_(error, dot(error, error), number(self.radius))
        is_known = self.first_error_bound > 0.0
        assign_(self.first_error_bound, where(is_known, self.first_error_bound, error_bound))
        assign_(self.error_bound, error_bound)
        assign_(self.hint, gradients)
        assign_(self.largest_gradient_norm, maximum(self.largest_gradient_norm, gradient_norm))
        increase_(self.relative_norm_sum, gradient_norm / or_one(self.largest_gradient_norm))
        length_unit = number(self.length_unit)
        needed = length_unit * sqrt(self.relative_norm_sum)
        due = (self.radius < needed) & (self.radius < self.large_enough)
        if may_hold(due):  # restart at the origin, in a larger ball
            self._go_back_(due)
            fill_(self.error_square_sum, due, 0.0)
            self.curvature.forget_(due)
            assign_(self.first_error_bound, where(due, self.error_bound, self.first_error_bound))
            assign_(self.radius, where(due, at_most(2.0 * needed, self.extent), self.radius))
            increase_(self.restart_count, due)
        # While all gradients are 0, any positive number is a valid scale.
        known = or_one(error_bound)
        ridge = self._ridge(where(error_bound > 0.0, self.first_error_bound, known), length_unit)
        radius = number(self.radius)
        self._play_(ridge, known, length_unit, radius, radius)

    def _go_back_in_python_(self, due: Any) -> None:
        fill_(self.centre, due[..., None], 0.0)
        if self.domain is not None:
            assign_(self.centre, where(due[..., None], self.origin, self.centre))

    @in_python(_go_back_in_python_)
    def _go_back_(self, due: Tensor) -> None:
        """Reset the centre to the start where ``due``, ``(*B)``."""
        fill_(self.centre, due[..., None], 0.0)
