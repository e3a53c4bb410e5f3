r"""The optimistic online Newton step, which OONS and CLA-OONS take: one round, and the play of the next.

With the hint :math:`m_t`, known before the round, and :math:`e_t = g_t - m_t`, :math:`\|e_t\| \le z_t`,

.. math::
    \eta_t &= \min\Big\{\frac{1}{\text{cap}\,R_tz_t}, \frac{1}{\ell\sqrt{V_t}}\Big\},\quad V_t = \sum_{s<t}\|e_s\|^2,\qquad
    A_t = (\rho_t + \text{look}\,\eta_tz_t^2)\,I + \sum_{s<t}\eta_sv_sv_s^\top, \\
    x_t &= \Pi_{A_t}(x'_t - A_t^{-1}m_t),\qquad s_t = \text{kappa}\,\eta_t\langle x_t, e_t\rangle,\qquad
    v_t = (1 + s_t)\,e_t, \\
    x'_{t+1} &= \Pi_{A_t}\big(x'_t - A_t^{-1}(m_t + v_t)\big),

where :math:`\Pi_A` projects on the ball of radius :math:`R_t` in the norm of A. Both projections are in one matrix, which is
factorised once.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from torchonline.convex.curvature import Curvature, EigenCurvature, FrozenCurvature, SketchCurvature
from torchonline.convex.learner import ConvexLearner
from torchonline.core.backend import may_hold
from torchonline.core.checks import one_of, positive_integer
from torchonline.core.ops import (
    along,
    assign_,
    column,
    count_,
    dot,
    increase_,
    maximum,
    number,
    sqrt,
    where,
)


class Preset(NamedTuple):
    r"""Constants of the step.

    The proof asks for kappa above :math:`(1 + \delta)^2` and look of at least :math:`(1 + \delta)^2`, where
    :math:`\delta = \text{kappa}/\text{cap} \le 1`.

    Attributes:
        kappa, cap, look: see above.
        ridge: :math:`\rho_t`: ``"paper"``, :math:`4z_1^2`, which is no length of any unit; ``"scaled"``, :math:`z_1/\ell`;
            ``"adaptive"``, :math:`\sqrt{z_1^2 + V_t}/\ell`.
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
FORMS = ("eigen", "frozen", "sketch")


class OptimisticNewton(ConvexLearner):
    r"""Base of OONS and CLA-OONS: the state and the two halves of a round. A subclass has R, z and the hints.

    Args:
        dim: d.
        length: :math:`\ell = R_1`, ``(*B)``, float64.
        scale: :math:`z_1`, ``(*B)``, float64.
        constants: of the step.
        form: how the curvature is held: ``"eigen"``, ``"frozen"`` or ``"sketch"``.
        sketch_size: directions of a sketch.
        options: those of :class:`~torchonline.convex.learner.ConvexLearner`.
    """

    center: Tensor
    hint: Tensor
    energy: Tensor
    rate: Tensor
    clipped: Tensor
    length: Tensor

    starts_apart: tuple[str, ...] = ("rate",)
    argument_of = dict.fromkeys(("kappa", "cap", "look", "ridge_number"), "preset") | {"keeps_hint": "hint"}

    def __init__(
        self, dim: int, *, length: Tensor, scale: Tensor, constants: Preset, form: str, sketch_size: int, **options: Any
    ) -> None:
        one_of("form", form, FORMS)
        dim, sketch_size = positive_integer("dim", dim), positive_integer("sketch_size", sketch_size)
        rows = 2 * sketch_size if form == "sketch" else dim
        super().__init__(dim, entries=max(rows, dim) * rows, **options)
        self.form, self.sketch_size = form, sketch_size
        self.kappa, self.cap, self.look, self.ridge = constants
        self.ridge_number = RIDGES.index(self.ridge)
        self._first = {"length": length, "rate": 1.0 / (self.cap * length * scale)}
        ridge = 4.0 * scale**2 if self.ridge == "paper" else scale / length
        self.curvature = self._curvature(ridge + self.look * self._first["rate"] * scale**2)
        # A sketch makes room every few rounds, which a program would do in each.
        self.is_exportable = form != "sketch"

    def _curvature(self, start: Tensor) -> Curvature:
        options: dict[str, Any] = {"batch_shape": self.batch_shape, "validate": self.validate, **self._initial_options}
        if self.form == "sketch":
            return SketchCurvature(self.dim, start, self.sketch_size, **options)
        return (EigenCurvature if self.form == "eigen" else FrozenCurvature)(self.dim, start, **options)

    def _initial_state(self) -> dict[str, Tensor | None]:
        zero, nothing = torch.zeros((), dtype=torch.float64), torch.zeros(self.dim, dtype=torch.float64)
        own = {"center": nothing, "hint": nothing, "energy": zero, "rate": self._first["rate"]}
        return super()._initial_state() | own | {"clipped": torch.zeros((), dtype=torch.int64)}

    def _tables(self) -> dict[str, Tensor]:
        return {"length": self._first["length"]}

    def _learn_(self, error: Tensor, radius: Tensor | None) -> None:
        """Learn from :math:`e_t`, ``(*B, d)``, no longer than :math:`z_t`: in the ball of a radius ``(*B)``, or anywhere."""
        curvature = self.curvature
        rate = number(self.rate)
        correction = self.kappa * rate * number(dot(self.decision, error))
        v = along(1.0 + correction, error) * error
        moved = self.center - curvature.solve(self.hint + v)
        if radius is not None:
            moved = self._within(moved, radius)
        assign_(self.center, moved)
        curvature.add_(along(sqrt(rate), v) * v)
        increase_(self.energy, dot(error, error))
        count_(self.rounds)

    def _ridge(self, scale: Tensor) -> Tensor:
        r""":math:`\rho_t`, ``(*B)``, by :math:`z_1`."""
        if self.ridge == "paper":
            return 4.0 * scale * scale
        if self.ridge == "scaled":
            return scale / number(self.length)
        return sqrt(scale * scale + number(self.energy)) / number(self.length)

    def _play_(self, ridge: Tensor, scale: Tensor, reach: Tensor, radius: Tensor | None) -> None:
        r"""Take the next decision, by :math:`\rho_t`, :math:`z_t` and a bound on its length; in a ball, or anywhere."""
        curvature = self.curvature
        rate = 1.0 / maximum(self.cap * reach * scale, number(self.length) * sqrt(number(self.energy)))
        assign_(self.rate, rate)
        curvature.shift_(ridge + self.look * rate * scale * scale)
        play = self.center - curvature.solve(self.hint)
        if radius is not None:
            play = self._within(play, radius)
        assign_(self.decision, play)

    def _within(self, point: Tensor, radius: Tensor) -> Tensor:
        """Points, ``(*B, d)``, projected on balls, ``(*B)``, where they lie outside."""
        outside = number(dot(point, point)) > radius * radius
        if may_hold(outside):
            return where(column(outside), self.curvature.project(point, radius), point)
        return point
