"""OONS: an optimistic online Newton step that adapts to how well gradients can be guessed."""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from torchonline.convex.learner import checked_hint
from torchonline.convex.optimistic_newton import PRESETS, OptimisticNewton
from torchonline.core.backend import as_array, in_python, may_hold
from torchonline.core.checks import (
    check_shape,
    check_state_dtype,
    check_values,
    one_of,
    positive_size,
    sizes,
)
from torchonline.core.inputs import check_tensor
from torchonline.core.ops import (
    assign_,
    dot,
    increase_,
    maximum,
    number,
    sqrt,
)
from torchonline.linalg import no_longer


class OONS(OptimisticNewton):
    r"""OONS: an optimistic online Newton step, for a known bound on gradients and on the comparator.

    A round, for the caller::

        gradients, _ = torchonline.gradients(loss, learner, x, y)    # or a formula, at learner.predict()
        learner.step(gradients)

    The update is that of :mod:`torchonline.convex.optimistic_newton`, with R = ``radius_bound``, :math:`\ell = R` and z = 2
    ``lipschitz``. A hint :math:`m_t` is a guess of the next gradient; the better it is, the less is paid.

    Guarantee. On every sequence of gradients no longer than ``lipschitz``, for every u in the ball and every T,

    .. math::
        \sum_{t \le T}\langle g_t, x_t - u\rangle \le{}& \Big(1 + \frac{2\delta(1 + \delta)}{\text{kappa}}\Big)\frac{1}{\eta_T}
        \ln\frac{\det\bar A_T}{\det\bar A_0}
        + \frac{\text{kappa}^2}{4(\text{kappa} - (1 + \delta)^2)}\sum_t\eta_t\langle u, e_t\rangle^2 \\
        &+ \tfrac12(\rho_1 + \text{look}\,\eta_1z^2)\|u\|^2 + 2R^2(\rho_T - \rho_1),

    where :math:`\bar A_T = \rho_1I + \sum_{t \le T}\eta_tv_tv_t^\top`, :math:`\bar A_0 = \rho_1I` and :math:`\delta` =
    kappa/cap. By default that is of order :math:`d\ln T\,(R\sqrt{\sum_t\|g_t - m_t\|^2} + GR)`. Where losses are drawn with
    variances :math:`\sigma_t^2` around convex, L-smooth expectations that drift by :math:`\Sigma_t`, and hints are the last
    gradients, the expected regret is of order :math:`R\sqrt{\sigma^2_{1:T} + \Sigma^2_{1:T}} + LR^2 + GR`, times powers of
    :math:`d\ln T` (Theorem 3.1 of the reference; docs/parameter_free.md has the proofs with constants). If losses are convex,
    the sum bounds the regret. Where ``clipped`` counts, the bound is about the gradients as cut.

    An unbounded domain, ``radius_bound=math.inf``, has :math:`\ell` = ``initial_radius``, no projection, and for :math:`R_t`
    the largest :math:`\|x'_s\| + \|m_s\|/\rho_s` so far. The bound holds for every u, with
    :math:`\tfrac12(\|u\| + X)^2(\rho_T - \rho_1)` for its last term, X the largest :math:`\|x'_t\|`, and, for the preset
    ``"paper"``, :math:`1 + (1 + \delta)^2/\text{look}` for its first factor. X and :math:`\eta_T` are known afterwards only,
    so that no rate in T follows.

    Cost of a round: ``"eigen"``, O(d^3), one eigendecomposition, exact. ``"frozen"``, O(d^2), and O(d^3) in rounds that leave
    the ball and some ten more in all: the multiple of I is held, or doubled, and the bound holds with :math:`2R^2(2c - c_1)`
    for its last term, c the largest multiple that was asked for; where none is above :math:`c_1`, as with a constant ridge,
    that term is 0. ``"sketch"``, O(dr + r^3) for r = ``sketch_size``: the bound holds with :math:`2R^2` times what the sketch
    has lost of the spectrum more.

    Args:
        dim: d.
        lipschitz: G > 0, the length of the longest gradient. Hints are cut to it. A gradient further than 2G from its hint is
            moved towards it, and counted.
        radius_bound: R > 0, of the ball of decisions, a number or one for each learner, ``(*B)``; ``inf`` for no ball.
        initial_radius: :math:`\ell` > 0, about the size of what is looked for, where there is no ball.
        preset: ``"default"``: kappa, cap, look 9, 18, 2.25 and an adaptive ridge; ``"tight"``: with the ridge z/R; ``"scaled"``:
            32, 64, 4 and z/R; ``"paper"``: 32, 64, 4 and :math:`4z^2`. The last is no ratio of anything: with it decisions
            change when all losses, and ``lipschitz``, are multiplied by a number. With the others they do not.
        hint: ``"last"``, the gradient before; ``"zero"``; a tensor, ``(d)`` or ``(*B, d)``; or a function of a round's gradient,
            ``(*B, d)`` to the same, that is called in its step. :meth:`set_hint` sets the next one.
        form: ``"eigen"``, ``"frozen"`` or ``"sketch"``.
        sketch_size: directions that the sketch keeps.
        batch_shape: ``*B``, independent learners in one module.
        dtype: torch.float64 or torch.float32, of the state.
        device: where the state lives.
        validate: whether values are checked in each call.

    Shape:
        - ``decision`` :math:`x_t`, ``center`` :math:`x'_t`, ``hint`` :math:`m_t`: ``(*B, d)``.
        - ``energy`` :math:`V_t`, ``rate`` :math:`\eta_t`, ``rounds``, ``clipped``: ``(*B)``.
        - ``curvature``: a part with :math:`A_t`, which is no confidence set.

    Example:
        >>> learner = OONS(2, lipschitz=1.0, radius_bound=1.0)
        >>> for _ in range(100):
        ...     learner.step(torch.tensor([0.6, -0.8]))  # a linear loss, lowest at (-0.6, 0.8)
        >>> learner.predict()
        tensor([-0.6000,  0.8000], dtype=torch.float64)

    Reference:
        Wang, Barik, Zhao and Tan, Parameter-free algorithms for the Stochastically Extended Adversarial model, Algorithm 1.
        What differs: smaller constants that the proof allows, the ridge, :math:`z_t` in place of its last value, and the
        forms.
    """

    statistics_depend_on = (
        "lipschitz",
        "radius_bound",
        "initial_radius",
        "kappa",
        "cap",
        "look",
        "ridge_number",
        "keeps_hint",
    )
    starts_apart = ("rate", "hint", "reach")

    if TYPE_CHECKING:  # an annotation of None would hide the buffer from TorchScript
        reach: Tensor | None
    scale: Tensor

    def __init__(
        self,
        dim: int,
        *,
        lipschitz: float,
        radius_bound: float | tuple[float, ...] | Tensor = math.inf,
        initial_radius: float = 1.0,
        preset: str = "default",
        hint: str | Tensor | Callable[[Tensor], Tensor] = "last",
        form: str = "eigen",
        sketch_size: int = 16,
        batch_shape: tuple[int, ...] = (),
        dtype: torch.dtype = torch.float64,
        device: torch.device | str | None = None,
        validate: bool = True,
    ) -> None:
        check_state_dtype(dtype)
        lipschitz = positive_size("lipschitz", lipschitz, dtype)
        initial_radius = positive_size("initial_radius", initial_radius, dtype)
        batch_shape = sizes("batch_shape", batch_shape)
        radius = radii("radius_bound", radius_bound, batch_shape, dtype)
        is_bounded = bool(radius.isfinite().all())
        length = radius if is_bounded else torch.full_like(radius, initial_radius)
        super().__init__(
            dim,
            length=length,
            scale=torch.full_like(length, 2.0 * lipschitz),
            constants=PRESETS[one_of("preset", preset, tuple(PRESETS))],
            form=form,
            sketch_size=sketch_size,
            batch_shape=batch_shape,
            dtype=dtype,
            device=device,
            validate=validate,
        )
        self.lipschitz = lipschitz
        self.initial_radius = initial_radius
        self.is_bounded = is_bounded
        self.radius_bound: Any = tuple(radius.flatten().tolist()) if batch_shape else radius.item()
        self.preset = preset
        self.start_hint, self._hint_of = self._hints(hint)
        self._create_buffers()
        self._begin_()

    def _hints(self, hint: Any) -> "tuple[Tensor, tuple[Callable[[Tensor], Tensor], ...]]":
        """The first hint, ``(*B, d)``, and the function that gives the others, if one does."""
        nothing = torch.zeros(*self.batch_shape, self.dim, dtype=torch.float64)
        self.keeps_hint = isinstance(hint, Tensor) or hint == "zero"
        if isinstance(hint, Tensor):
            hint = check_tensor("hint", hint, nothing).detach().cpu()
            if hint.shape != (self.dim,):
                check_shape("hint", hint, nothing.shape)
            check_values("hint", hint)
            return nothing + no_longer(hint, torch.tensor(self.lipschitz, dtype=torch.float64)), ()
        if isinstance(hint, str):
            one_of("hint", hint, ("last", "zero"))
            return nothing, ()
        if not callable(hint):
            raise TypeError(f"hint: expected 'last', 'zero', a tensor or a function, got {type(hint).__name__}")
        self.is_scriptable = self.is_exportable = False
        return nothing, (hint,)

    def reset(self) -> None:
        super().reset()
        self._begin_()

    def _begin_(self) -> None:
        """Take the first decision, which follows the first hint."""
        with torch.no_grad():
            if self.keeps_hint:
                self._decide_()

    def _initial_state(self) -> dict[str, Tensor | None]:
        reach = None if self.is_bounded else self._first["length"]
        return super()._initial_state() | {"hint": self.start_hint, "reach": reach}

    def _tables(self) -> dict[str, Tensor]:
        return super()._tables() | {"scale": torch.full(self.batch_shape, 2.0 * self.lipschitz, dtype=torch.float64)}

    def _set_hint_in_python(self, hint: Any) -> None:
        self._tell(self._set_hint_, checked_hint(hint, self.decision, self.validate))

    @torch.jit.export
    @in_python(_set_hint_in_python)
    def set_hint(self, hint: Tensor) -> None:
        """Say what the next gradient is expected to be, in place of what the ``hint`` of the constructor says.

        It may depend on all that is known before that gradient. The decision follows it.

        Args:
            hint: ``(*B, d)``. One longer than ``lipschitz`` is cut. It is for the next round, or until the next call where the
                constructor's is a tensor or ``"zero"``.

        Raises:
            TypeError: ``hint`` is no floating-point tensor.
            ValueError: its shape, device or values are wrong. No buffer has changed.
        """
        self._set_hint_(hint)

    def _set_hint_(self, hint: Tensor) -> None:
        with torch.no_grad():
            assign_(self.hint, self._cut(hint.detach().to(self.decision.dtype)))
            self._decide_()

    def _cut(self, hint: Tensor) -> Tensor:
        """A hint, no longer than gradients are."""
        return no_longer(hint, 0.5 * number(self.scale))

    def _observe(self, gradients: Tensor, values: Tensor | None) -> None:
        hint = self._cut(self._next_hint(gradients))
        error, scale = gradients - self.hint, number(self.scale)
        far = number(dot(error, error)) > scale * scale * (1.0 + 1e-6)
        if may_hold(far):
            increase_(self.clipped, far)
        self._learn_(no_longer(error, scale), number(self.length) if self.is_bounded else None)
        if not self.keeps_hint:
            assign_(self.hint, hint)
        self._decide_()

    def _next_hint_in_python(self, gradients: Any) -> Any:
        if not self._hint_of:
            return gradients
        given = gradients if isinstance(gradients, Tensor) else torch.from_numpy(gradients)
        # A copy: what the function returns may lie in the memory that the step writes.
        hint = checked_hint(self._hint_of[0](given.clone()), given, self.validate).detach().clone()
        return hint if isinstance(gradients, Tensor) else as_array(hint)

    @in_python(_next_hint_in_python)
    def _next_hint(self, gradients: Tensor) -> Tensor:
        """Return the next hint: the gradients, or what the function of the constructor makes of them. No function is compiled."""
        return gradients

    def _decide_(self) -> None:
        """Take the next decision."""
        scale = number(self.scale)
        ridge = self._ridge(scale)
        if self.reach is None:
            length = number(self.length)
            self._play_(ridge, scale, length, length)
        else:
            farthest = sqrt(dot(self.center, self.center)) + sqrt(dot(self.hint, self.hint)) / ridge
            assign_(self.reach, maximum(number(self.reach), number(farthest)))
            self._play_(ridge, scale, number(self.reach), None)


def radii(name: str, value: Any, batch_shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """The radius of each learner's domain, a number for all or finite ones for each: ``(*B)``, float64."""
    if not isinstance(value, (Tensor, tuple, list)):
        return torch.full(batch_shape, positive_size(name, value, dtype, besides=(math.inf,)), dtype=torch.float64)
    try:
        radius = torch.as_tensor(value).detach().to("cpu", torch.float64)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"{name}: expected a number above 0, or one for each learner, got {value!r}") from error
    check_shape(name, radius, batch_shape)
    for size in radius.flatten().tolist():
        positive_size(name, size, dtype)
    return radius
