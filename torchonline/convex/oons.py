"""OONS: optimistic online Newton steps that profit from good hints."""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Unpack

import torch
from torch import Tensor

from torchonline.convex.domains import Domain
from torchonline.convex.learner import HintedLearner, checked_hint
from torchonline.convex.optimistic_newton import OptimisticNewton
from torchonline.core.backend import as_array, in_python, may_hold
from torchonline.core.checks import one_for_each, one_of
from torchonline.core.ops import assign_, dot, increase_, maximum, number, sqrt
from torchonline.core.options import LearnerOptions, with_former_names
from torchonline.linalg import no_longer


class OONS(HintedLearner, OptimisticNewton):
    r"""OONS: optimistic online Newton steps, for a known ball and gradient bound.

    The update is as in :class:`~torchonline.convex.optimistic_newton.OptimisticNewton`, with :math:`R_t` = R =
    ``radius_bound``, :math:`\ell = R` and :math:`z_t` = z = 2 ``lipschitz``. A hint :math:`m_t` is a guess of the next gradient.

    Guarantee. For every sequence of gradients no longer than ``lipschitz``, every u in the ball and every T,

    .. math::
        \sum_{t \le T}\langle g_t, x_t - u\rangle \le{}& \Big(1 + \frac{2\delta(1 + \delta)}{\text{kappa}}\Big)\frac{1}{\eta_T}
        \ln\frac{\det\bar A_T}{\det\bar A_0}
        + \frac{\text{kappa}^2}{4(\text{kappa} - (1 + \delta)^2)}\sum_t\eta_t\langle u, e_t\rangle^2 \\
        &+ \tfrac12(\rho_1 + \text{look}\,\eta_1z^2)\|u\|^2 + 2R^2(\rho_T - \rho_1),

    where :math:`\bar A_T = \rho_1I + \sum_{t \le T}\eta_tv_tv_t^\top`, :math:`\bar A_0 = \rho_1I` and :math:`\delta` =
    kappa/cap. With the default preset this is of order :math:`d\ln T\,(R\sqrt{\sum_t\|g_t - m_t\|^2} + GR)`. If losses
    are convex, the sum on the left bounds the regret. In rounds that ``clipped_rounds`` counts, the bound is for the clipped
    gradients. docs/parameter_free_theory.md has the proof, and the rate for losses between stochastic and adversarial (Theorem
    3.2 of the reference; the bound on every sequence is its Theorem 3.1 with other constants).

    Without a ball, ``radius_bound=math.inf``, :math:`\ell` is ``length_scale``, nothing is projected, and :math:`R_t` is
    the largest of :math:`\ell` and all :math:`\|x'_s\| + \|m_s\|/\rho_s` so far. The bound has a different last term, and no rate
    in T follows (docs/parameter_free_theory.md).

    With a ``domain``, decisions stay in it: a :class:`~torchonline.convex.domains.Box`, ``Simplex``, ``Polytope``, a ball of norm
    1, 2 or infinity, or your own :class:`~torchonline.convex.domains.Domain`. Let :math:`x_0` be the domain's start, such as the
    middle of a box, and R the largest distance of a domain point from :math:`x_0`. The guarantee holds for every u in the domain,
    with :math:`u - x_0` in place of u: its proof needs only a convex set in the ball of radius R around :math:`x_0`
    (docs/parameter_free_theory.md). A ``radius_bound`` below R also keeps decisions in the ball of that radius around
    :math:`x_0`. The projections are exact up to rounding. They use active sets in NumPy, one learner after the other.

    On unscaled features decisions lose in nearly every round for a long time. A
    :class:`~torchonline.convex.divergence.DivergenceWarning` then appears once (docs/parameter_free.md).

    Cost of a round, by ``form``:

    - ``"eigen"``: O(d^3), two linear systems, exact. A projection solves about seven more.
    - ``"frozen"``: O(d^2), and O(d^3) in rounds that leave the ball and in about ten others in all. The multiple of I in A stays
      or doubles, which may enlarge the last term of the bound to :math:`2R^2(2c - c_1)` for the largest multiple c.
    - with a domain: O(d^3) in any form, times the number of face changes.
    - ``"sketch"``: O(dr + r^3) for r = ``sketch_size``. The bound grows by :math:`2R^2` times ``curvature.removed_spectrum``.

    Args:
        dim: number of coordinates d.
        lipschitz: G > 0, the length of the longest gradient. Hints are scaled down to it. A gradient further than 2G from its
            hint is moved towards the hint, and counted.
        radius_bound: radius R > 0 of the ball of decisions: a number, or one for each learner, ``(*B)``; ``inf`` for no ball.
        length_scale: :math:`\ell > 0`, about the length of the comparator. It matters only without a ball.
        preset: ``"default"``: kappa, cap, look 9, 18, 2.25 and an adaptive ridge; ``"tight"``: the same with the ridge
            z/R; ``"scaled"``: 32, 64, 4 and z/R; ``"paper"``: 32, 64, 4 and :math:`4z^2`, which mixes units: decisions change
            when all losses and ``lipschitz`` are multiplied by a constant.
        hint: ``"last"``, the last gradient; ``"zero"``; a tensor, ``(d)`` or ``(*B, d)``; or a function that maps a round's
            gradient, ``(*B, d)``, to the next hint. :meth:`set_hint` replaces the hint of one round, or, if ``hint`` is a tensor
            or ``"zero"``, of all rounds until the next call.
        form, sketch_size: ``"eigen"``, ``"frozen"`` or ``"sketch"``; the number of directions of the sketch.
        domain: a convex set for decisions, with ``start``, ``project``, ``extent`` and ``parameters``; None for the ball or the
            whole space. A learner with a domain is for Python only: TorchScript and torch.export refuse it.
        batch_shape, dtype, device, validate: options of all learners, see :class:`~torchonline.core.learner.Learner`.

    Shape:
        - ``centre`` :math:`x'_t`, ``hint`` :math:`m_t`: ``(*B, d)``; ``error_square_sum`` :math:`V_t`, ``rate`` :math:`\eta_t`:
          ``(*B)``; without a ball also ``decision_bound`` :math:`R_t`. The part ``curvature`` holds :math:`A_t`.

    Example:
        >>> learner = OONS(2, lipschitz=1.0, radius_bound=1.0)
        >>> for _ in range(100):
        ...     learner.step(torch.tensor([0.6, -0.8]))  # a linear loss, lowest at (-0.6, 0.8)
        >>> learner.predict()
        tensor([-0.6000,  0.8000], dtype=torch.float64)

    Reference:
        Wang, Barik, Zhao and Tan, Parameter-free algorithms for the Stochastically Extended Adversarial model, Algorithm 1.
        What differs: smaller constants, which the proof allows; the ridge; :math:`z_t` instead of its last value; the forms;
        domains around a point other than 0.
    """

    statistics_depend_on = ("lipschitz", "radius_bound", *OptimisticNewton.statistics_depend_on, "keeps_hint")
    renamed = OptimisticNewton.renamed | {"reach": "decision_bound"}
    dropped = ("length", "scale")
    starts_apart = ("rate", "hint", "decision_bound")

    if TYPE_CHECKING:  # an annotation of None would hide the buffer from TorchScript
        decision_bound: Tensor | None

    @with_former_names(initial_radius="length_scale")
    def __init__(
        self,
        dim: int,
        *,
        lipschitz: float,
        radius_bound: float | tuple[float, ...] | Tensor = math.inf,
        length_scale: float = 1.0,
        preset: str = "default",
        hint: str | Tensor | Callable[[Tensor], Tensor] = "last",
        form: str = "eigen",
        sketch_size: int = 16,
        domain: Domain | None = None,
        **options: Unpack[LearnerOptions],
    ) -> None:
        of_all: Any = {"length_scale": length_scale, "preset": preset, "form": form, "sketch_size": sketch_size}
        super().__init__(dim, domain=domain, **of_all, **options)
        self.lipschitz = self._size("lipschitz", lipschitz)
        also = (math.inf,) if isinstance(radius_bound, float) else ()
        radius = one_for_each(
            "radius_bound", radius_bound, self.batch_shape, lambda name, r: self._size(name, r, *also)
        )
        self.is_bounded = bool(radius.isfinite().all()) or domain is not None
        self.radius_bound: Any = tuple(radius.flatten().tolist()) if self.batch_shape else radius.item()
        self.start_hint, self._hint_of = self._hints(hint)
        length_unit = radius.clamp(max=self.extent) if self.is_bounded else torch.full_like(radius, self.length_scale)
        self._start_(length_unit, torch.full_like(radius, 2.0 * self.lipschitz))
        self._reset()

    def _hints(self, hint: Any) -> "tuple[Tensor, tuple[Callable[[Tensor], Tensor], ...]]":
        """Return the first hint, ``(*B, d)``, and the function for the others, if any."""
        nothing = torch.zeros(*self.batch_shape, self.dim, dtype=torch.float64)
        self.keeps_hint = isinstance(hint, Tensor) or hint == "zero"
        if isinstance(hint, Tensor):
            like = nothing if hint.dim() > 1 else nothing.new_zeros(self.dim)
            hint = checked_hint(hint, like, True).detach()
            return nothing + no_longer(hint, torch.tensor(self.lipschitz, dtype=torch.float64)), ()
        if isinstance(hint, str):
            one_of("hint", hint, ("last", "zero"))
            return nothing, ()
        if not callable(hint):
            raise TypeError(f"hint: expected 'last', 'zero', a tensor or a function, got {type(hint).__name__}")
        self.is_scriptable = self.is_exportable = False
        return nothing, (hint,)

    def _reset(self) -> None:
        super()._reset()
        if self.keeps_hint:  # the first decision uses the hint
            self._decide_()

    def _initial_state(self) -> dict[str, Tensor | None]:
        decision_bound = None if self.is_bounded else self._first["length_unit"]
        return super()._initial_state() | {"hint": self.start_hint, "decision_bound": decision_bound}

    def _tables(self) -> dict[str, Tensor]:
        return super()._tables() | {"error_bound": self._first["error_bound"]}

    def _cut_hint(self, hint: Tensor) -> Tensor:
        return no_longer(hint, 0.5 * number(self.error_bound))

    def _observe(self, gradients: Tensor, values: Tensor | None) -> None:
        error, error_bound = gradients - self.hint, number(self.error_bound)
        hint = no_longer(self._next_hint(gradients), 0.5 * error_bound)
        square, largest_square = dot(error, error), error_bound * error_bound
        if may_hold(square > largest_square):
            increase_(self.clipped_rounds, square > largest_square * (1.0 + 1e-6))
            error = no_longer(error, error_bound)
            square = dot(error, error)
        self._learn_(error, square, number(self.length_unit) if self.is_bounded else None)
        if not self.keeps_hint:
            assign_(self.hint, hint)
        self._decide_()

    def _next_hint_in_python(self, gradients: Any) -> Any:
        if not self._hint_of:
            return gradients
        given = gradients if isinstance(gradients, Tensor) else torch.from_numpy(gradients)
        # A copy, because the function's result may share memory that the step writes.
        hint = checked_hint(self._hint_of[0](given.clone()), given, self.validate).detach().clone()
        return hint if isinstance(gradients, Tensor) else as_array(hint)

    @in_python(_next_hint_in_python)
    def _next_hint(self, gradients: Tensor) -> Tensor:
        """Return the next hint: the gradients, or the constructor's function of them."""
        # TorchScript has no such function.
        return gradients

    def _decide_(self) -> None:
        error_bound, length_unit = number(self.error_bound), number(self.length_unit)
        ridge = self._ridge(error_bound, length_unit)
        if self.decision_bound is None:
            self._play_(ridge, error_bound, length_unit, length_unit, length_unit)
        else:
            farthest = sqrt(dot(self.centre, self.centre)) + sqrt(dot(self.hint, self.hint)) / ridge
            decision_bound = maximum(number(self.decision_bound), number(farthest))
            assign_(self.decision_bound, decision_bound)
            self._play_(ridge, error_bound, length_unit, decision_bound, None)
