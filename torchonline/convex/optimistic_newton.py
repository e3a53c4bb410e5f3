"""Optimistic online Newton step: the part that OONS and CLA-OONS share."""

import math
from functools import partial
from typing import Any, NamedTuple, Unpack

import numpy as np
import torch
from torch import Tensor

from torchonline.convex.curvature import Curvature, EigenCurvature, FrozenCurvature, SketchCurvature
from torchonline.convex.divergence import DivergenceWatch
from torchonline.convex.domains import Domain, projectable, projected
from torchonline.convex.learner import ConvexLearner
from torchonline.convex.projections import project_within
from torchonline.core.backend import as_array, in_python, may_hold
from torchonline.core.checks import one_of, positive_integer
from torchonline.core.ops import along, assign_, column, count_, dot, increase_, maximum, number, sqrt, where
from torchonline.core.options import LearnerOptions


class Preset(NamedTuple):
    r"""Constants of the step.

    The proof needs kappa above :math:`(1 + \delta)^2` and look of at least :math:`(1 + \delta)^2`, where
    :math:`\delta = \text{kappa}/\text{cap} \le 1`. :meth:`OptimisticNewton._ridge` has the formulas of the ridge.
    """

    kappa: float
    cap: float
    look: float
    ridge: str


PRESETS = {
    "default": Preset(9.0, 18.0, 2.25, "adaptive"),
    "paper": Preset(32.0, 64.0, 4.0, "paper"),
    "scaled": Preset(32.0, 64.0, 4.0, "scaled"),
    "tight": Preset(9.0, 18.0, 2.25, "scaled"),
}
RIDGES = ("paper", "scaled", "adaptive")
CURVATURES: dict[str, Any] = {"eigen": EigenCurvature, "frozen": FrozenCurvature, "sketch": SketchCurvature}


class OptimisticNewton(ConvexLearner):
    r"""Base class of OONS and CLA-OONS: their state and the two halves of a round.

    With the hint :math:`m_t`, known before the round, and :math:`e_t = g_t - m_t`, :math:`\|e_t\| \le z_t`,

    .. math::
        \eta_t &= \min\Big\{\frac{1}{\text{cap}\,R_tz_t}, \frac{1}{\ell\sqrt{V_t}}\Big\},\quad V_t = \sum_{s<t}\|e_s\|^2,\qquad
        A_t = (\rho_t + \text{look}\,\eta_tz_t^2)\,I + \sum_{s<t}\eta_sv_sv_s^\top, \\
        x_t &= \Pi_{A_t}(x'_t - A_t^{-1}m_t),\qquad s_t = \text{kappa}\,\eta_t\langle x_t, e_t\rangle,\qquad
        v_t = (1 + s_t)\,e_t, \\
        x'_{t+1} &= \Pi_{A_t}\big(x'_t - A_t^{-1}(m_t + v_t)\big),

    where :math:`\Pi_A` projects onto the ball of radius :math:`R_t` in the norm of A. Both projections use one matrix.
    A subclass takes the options of OONS, supplies :math:`R_t`, :math:`z_t` and hints, and calls :meth:`_start_`.

    With a domain, :math:`\Pi_A` projects onto the intersection of the domain and the ball of radius :math:`R_t` around its point
    :math:`x_0` = ``domain.start()``. There x and x' begin, and :math:`x_t - x_0` replaces :math:`x_t` in :math:`s_t`.
    """

    # By name: the constants of the step, and the representations of the curvature.
    presets = PRESETS
    forms = tuple(CURVATURES)

    centre: Tensor
    hint: Tensor
    error_bound: Tensor
    error_square_sum: Tensor
    rate: Tensor
    clipped_rounds: Tensor
    length_unit: Tensor
    origin: Tensor  # x_0, with a domain only

    statistics_depend_on: tuple[str, ...] = ("length_scale", "kappa", "cap", "look", "ridge_number")
    renamed = {"center": "centre", "energy": "error_square_sum", "clipped": "clipped_rounds"}
    dropped: tuple[str, ...] = ("length",)
    starts_apart: tuple[str, ...] = ("rate",)
    sized_options = ("domain",)
    argument_of = dict.fromkeys(("kappa", "cap", "look", "ridge_number"), "preset") | {"keeps_hint": "hint"}

    def __init__(
        self,
        dim: int,
        *,
        length_scale: float,
        preset: str,
        form: str,
        sketch_size: int,
        domain: Domain | None,
        **options: Unpack[LearnerOptions],
    ) -> None:
        super().__init__(dim, **options)
        self.domain = None if domain is None else projectable(domain, self.dim)
        # The largest distance of a decision from the origin, or from the start of the domain.
        self.extent = math.inf if domain is None else self._extent_of(domain)
        self.form, self.sketch_size = one_of("form", form, self.forms), positive_integer("sketch_size", sketch_size)
        self.length_scale = self._size("length_scale", length_scale)
        self.preset = one_of("preset", preset, tuple(self.presets))
        self.kappa, self.cap, self.look, self.ridge = self.presets[preset]
        self.ridge_number = RIDGES.index(self.ridge)
        # A sketch is compressed every few rounds. An exported program would compress it in every round.
        self.is_exportable = form != "sketch" and domain is None
        self.is_scriptable = domain is None
        # It compares with the origin, which a domain need not contain.
        self.watch = DivergenceWatch() if domain is None else None

    def _extent_of(self, domain: Domain) -> float:
        """Return the extent of a domain, or raise if the decisions' dtype cannot hold it."""
        extent, dtype = self._size("domain: extent", float(domain.extent())), self._initial_options["dtype"]
        rounding = torch.finfo(dtype).eps * float(domain.start().abs().max())
        if rounding > 1e-3 * extent:
            raise ValueError(
                f"domain: expected a domain nearer to 0, or wider, got an extent of {extent:.3g} around a point that {dtype} "
                f"rounds by {rounding:.3g}"
            )
        return extent

    def _start_(self, length_unit: Tensor, error_bound: Tensor) -> None:
        r"""Create the buffers, from :math:`\ell = R_1` and :math:`z_1`, ``(*B)``, float64."""
        rate = 1.0 / (self.cap * length_unit * error_bound)
        self._first = {"length_unit": length_unit, "error_bound": error_bound, "rate": rate}
        ridge = 4.0 * error_bound**2 if self.ridge == "paper" else error_bound / length_unit
        start = ridge + self.look * rate * error_bound**2
        options: Any = {"batch_shape": self.batch_shape, "validate": self.validate, **self._initial_options}
        if self.form == "sketch":
            options["size"] = self.sketch_size
        self.curvature: Curvature = CURVATURES[self.form](self.dim, start, **options)
        self._create_buffers()

    def _initial_state(self) -> dict[str, Tensor | None]:
        zero, origin = torch.zeros((), dtype=torch.float64), torch.zeros(self.dim, dtype=torch.float64)
        own = {"centre": origin, "hint": origin, "error_square_sum": zero, "rate": self._first["rate"]}
        if self.domain is not None:
            own |= dict.fromkeys(("decision", "centre"), self.domain.start())
        return super()._initial_state() | own | {"clipped_rounds": torch.zeros((), dtype=torch.int64)}

    def _tables(self) -> dict[str, Tensor]:
        origin = {} if self.domain is None else {"origin": self.domain.start()}
        return {"length_unit": self._first["length_unit"]} | origin

    def _options(self) -> list[tuple[str, float]]:
        return super()._options() + ([] if self.domain is None else self.domain.parameters())

    def _learn_(self, error: Tensor, square: Tensor, radius: Tensor | None) -> None:
        r"""Learn from :math:`e_t`, ``(*B, d)``, its squared norm, and a radius or None."""
        curvature = self.curvature
        rate = number(self.rate)
        correction = self.kappa * rate * dot(self._from_start(self.decision), error)
        v = along(1.0 + correction, error) * error
        assign_(self.centre, self._within(self.centre - curvature.solve(self.hint + v), radius))
        curvature.add_(along(sqrt(rate), v) * v)
        increase_(self.error_square_sum, square)
        count_(self.rounds)

    def _ridge(self, error_bound: Tensor, length_unit: Tensor) -> Tensor:
        r"""Return :math:`\rho_t` from :math:`z_1` and :math:`\ell`, ``(*B)``."""
        if self.ridge == "paper":
            return 4.0 * error_bound * error_bound
        if self.ridge == "scaled":
            return error_bound / length_unit
        return sqrt(error_bound * error_bound + number(self.error_square_sum)) / length_unit

    def _play_(
        self, ridge: Tensor, error_bound: Tensor, length_unit: Tensor, decision_bound: Tensor, radius: Tensor | None
    ) -> None:
        r"""Set the next decision from :math:`\rho_t, z_t, \ell, R_t` and a radius or None."""
        curvature = self.curvature
        spread = length_unit * sqrt(number(self.error_square_sum))
        rate = 1.0 / maximum(self.cap * decision_bound * error_bound, spread)
        assign_(self.rate, rate)
        curvature.set_multiple_(ridge + self.look * rate * error_bound * error_bound)
        assign_(self.decision, self._within(self.centre - curvature.solve(self.hint), radius))

    def _from_start_in_python(self, point: Any) -> Any:
        return point if self.domain is None else point - self.origin

    @in_python(_from_start_in_python)
    def _from_start(self, point: Tensor) -> Tensor:
        """Return points, ``(*B, d)``, minus the start of the domain."""
        return point

    def _within_in_python(self, point: Any, radius: Any) -> Any:
        return self._in_ball(point, radius) if self.domain is None else self._in_domain(point, radius)

    @in_python(_within_in_python)
    def _within(self, point: Tensor, radius: Tensor | None) -> Tensor:
        """Project points, ``(*B, d)``, onto the domain and onto balls of radius ``(*B)``."""
        return self._in_ball(point, radius)

    def _in_domain(self, point: Any, radius: Any) -> Any:
        """Project points, one by one, onto the domain within balls around its start."""
        domain: Any = self.domain
        points, radii, matrices, origin = (
            (as_array(x.cpu()) if isinstance(x, Tensor) else np.asarray(x)).astype(np.float64)
            for x in (point, radius, self.curvature.dense(), self.origin)
        )
        found, radii = np.empty_like(points), np.broadcast_to(radii, points.shape[:-1])
        for index in np.ndindex(points.shape[:-1]):
            if not (np.isfinite(points[index]).all() and np.isfinite(matrices[index]).all()):
                found[index] = math.nan  # only without value checks; a solver might not return
            elif radii[index] < self.extent * (1.0 - 1e-6):  # a radius may have been rounded
                project = partial(projected, domain)
                found[index] = project_within(project, points[index], matrices[index], origin, float(radii[index]))
            else:
                found[index] = projected(domain, points[index], matrices[index])
        if isinstance(point, Tensor):
            return torch.from_numpy(found).to(point)
        return found.astype(point.dtype)

    def _in_ball(self, point: Tensor, radius: Tensor | None) -> Tensor:
        """Project points, ``(*B, d)``, onto balls of radius ``(*B)``. None is a no-op."""
        if radius is None:
            return point
        outside = dot(point, point) > radius * radius
        if may_hold(outside):
            scale = column(radius)
            return where(column(outside), self.curvature.project(point / scale) * scale, point)
        return point
