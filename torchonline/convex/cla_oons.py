"""CLA-OONS: OONS without a bound on the comparator or on gradients, by starting anew when either has grown."""

import torch
from torch import Tensor

from torchonline.convex.optimistic_newton import PRESETS, OptimisticNewton
from torchonline.core.backend import may_hold
from torchonline.core.checks import check_state_dtype, one_of, positive_size, sizes
from torchonline.core.ops import (
    along,
    assign_,
    dot,
    fill_,
    increase_,
    maximum,
    nonzero,
    number,
    or_one,
    sqrt,
    where,
)

# The drift of an adaptive ridge is not bounded where the radius is much larger than the comparator.
CLA_PRESETS = {"default": PRESETS["tight"], "paper": PRESETS["paper"]}


class CLAOONS(OptimisticNewton):
    r"""CLA-OONS: an optimistic online Newton step that adapts to the comparator and to the size of gradients.

    A round, for the caller::

        gradients, _ = torchonline.gradients(loss, learner, x, y)    # or a formula, at learner.predict()
        learner.step(gradients)

    The update is that of :mod:`convex.optimistic_newton`, with the last gradient for a hint, :math:`\ell = D_1`, the largest
    error so far for :math:`z_t`, and, so that no error is longer than it was known to be, an error that is longer cut to it:

    .. math::
        z_{t+1} = \max\{z_t, \|g_t - m_t\|\},\qquad e_t = \frac{z_t}{z_{t+1}}(g_t - m_t),\qquad
        S_t = \sum_{s \le t}\frac{\|g_s\|}{\max_{r \le s}\|g_r\|} .

    Decisions stay in the ball of radius :math:`D_t`. When :math:`D_t < D_1\sqrt{S_t}` it becomes :math:`2D_1\sqrt{S_t}`, and
    the learner starts anew, at the origin.

    Guarantee. By default, for convex losses with gradients no longer than any G :math:`\ge z_1`, and every u, with
    :math:`e_t` the errors,

    .. math::
        \text{regret} = \tilde O\big((D_1 + \|u\|^2/D_1)\sqrt{\textstyle\sum_t\|g_t - g_{t-1}\|^2} + G\,D_T + G\|u\|^3/D_1^2
        + G\|u\|^2/D_1\big), \qquad D_T \le \max\{D_1, 2D_1\sqrt{S_T}\},

    without G or :math:`\|u\|` being known (Theorem 5.1 of the reference, corrected: docs/parameter_free.md). The logarithms
    are of T and :math:`G/z_1`. :math:`G\,D_T` is of order :math:`GD_1\sqrt T` unless gradients vanish. A sketch adds
    :math:`2D^2` times what it has lost, for each start. It is here because the paper has it. The cap of :math:`\eta` falls as
    :math:`D_t` grows, and each start empties the curvature, so that for long it steps by its ridge alone: in noise its regret
    was seen to grow almost like T for sixteen thousand rounds, to some forty times that of :class:`~torchonline.FreeGrad`
    (docs/parameter_free.md), which is also simpler and cheaper.

    Cost of a round: ``"eigen"``, O(d^3); ``"sketch"``, O(dr + r^3) for r = ``sketch_size``.

    Args:
        dim: d.
        initial_scale: :math:`z_1` > 0, below or about the length of a gradient; None for the length of the first that is not 0,
            which is then not learnt from.
        initial_radius: :math:`D_1` > 0, the length unit.
        preset: ``"default"``: kappa, cap, look 9, 18, 2.25 and the ridge :math:`z/D_1`; ``"paper"``: 32, 64, 4 and
            :math:`4z^2`, and a :math:`\max\|g\|` of at least 1.
        form: ``"eigen"`` or ``"sketch"``.
        sketch_size: directions that the sketch keeps.
        batch_shape: ``*B``, independent learners in one module.
        dtype: torch.float64 or torch.float32, of the state.
        device: where the state lives.
        validate: whether values are checked in each call.

    Shape:
        - ``decision``, ``center``, ``hint``: ``(*B, d)``.
        - ``scale`` :math:`z_t`, ``first_scale``, that of the last start, ``radius`` :math:`D_t`, ``longest``
          :math:`\max\|g\|`, ``total`` :math:`S_t`, ``energy``, ``rate``, ``rounds``, ``starts``, how often it has started anew,
          ``clipped``, rounds whose error was cut: ``(*B)``.

    Example:
        >>> learner = CLAOONS(1)
        >>> for _ in range(300):
        ...     learner.step((learner.predict() - 4.0).clamp(-1.0, 1.0))  # the slope of Huber's loss, lowest at 4
        >>> bool(abs(learner.predict() - 4.0) < 0.1)
        True

    Reference:
        Wang, Barik, Zhao and Tan, Parameter-free algorithms for the Stochastically Extended Adversarial model, Algorithm 4.
        What differs: the constants, a ridge with units, and a start without a scale.
    """

    statistics_depend_on = ("initial_scale", "initial_radius", "kappa", "cap", "look", "ridge_number")

    scale: Tensor
    first_scale: Tensor
    radius: Tensor
    longest: Tensor
    total: Tensor
    starts: Tensor

    def __init__(
        self,
        dim: int,
        *,
        initial_scale: float | None = 1.0,
        initial_radius: float = 1.0,
        preset: str = "default",
        form: str = "eigen",
        sketch_size: int = 16,
        batch_shape: tuple[int, ...] = (),
        dtype: torch.dtype = torch.float64,
        device: torch.device | str | None = None,
        validate: bool = True,
    ) -> None:
        check_state_dtype(dtype)
        scale = None if initial_scale is None else positive_size("initial_scale", initial_scale, dtype)
        radius = positive_size("initial_radius", initial_radius, dtype)
        batch_shape = sizes("batch_shape", batch_shape)
        super().__init__(
            dim,
            length=torch.full(batch_shape, radius, dtype=torch.float64),
            scale=torch.full(batch_shape, scale or 1.0, dtype=torch.float64),
            constants=CLA_PRESETS[one_of("preset", preset, tuple(CLA_PRESETS))],
            form=one_of("form", form, ("eigen", "sketch")),
            sketch_size=sketch_size,
            batch_shape=batch_shape,
            dtype=dtype,
            device=device,
            validate=validate,
        )
        self.initial_scale, self.initial_radius, self.preset = scale, radius, preset
        self._create_buffers()

    def _initial_state(self) -> dict[str, Tensor | None]:
        zero = torch.zeros((), dtype=torch.float64)
        scale = zero + (self.initial_scale or 0.0)
        own = {
            "scale": scale,
            "first_scale": scale,
            "radius": zero + self.initial_radius,
            # The paper takes the longest gradient for no shorter than 1.
            "longest": zero + 1.0 if self.preset == "paper" else scale,
            "total": zero,
        }
        return super()._initial_state() | own | {"starts": torch.zeros((), dtype=torch.int64)}

    def _observe(self, gradients: Tensor, values: Tensor | None) -> None:
        error = gradients - self.hint
        length, size = sqrt(dot(error, error)), sqrt(dot(gradients, gradients))
        scale = maximum(self.scale, length)
        # Without a scale there is nothing to learn with: the first gradient that is not 0 gives it, and no more.
        error = error * along(self.scale / nonzero(scale), error)
        increase_(self.clipped, scale > self.scale)
        self._learn_(error, number(self.radius))
        # The first scale of all, where there was none.
        assign_(self.first_scale, where(self.first_scale > 0.0, self.first_scale, scale))
        assign_(self.scale, scale)
        assign_(self.hint, gradients)
        assign_(self.longest, maximum(self.longest, size))
        increase_(self.total, size / nonzero(self.longest))
        reach = self.length * sqrt(self.total)
        due = self.radius < reach
        if may_hold(due):
            self._start_anew_(due, reach)
        # Any number will do for a scale while all has been 0.
        known = or_one(scale)
        ridge = self._ridge(where(scale > 0.0, self.first_scale, known))
        self._play_(ridge, known, number(self.radius), number(self.radius))

    def _start_anew_(self, due: Tensor, reach: Tensor) -> None:
        """Begin again at the origin, in a larger ball, in the learners that are ``due``, ``(*B)``."""
        fill_(self.center, due[..., None], 0.0)
        fill_(self.energy, due, 0.0)
        self.curvature.forget_(due)
        assign_(self.first_scale, where(due, self.scale, self.first_scale))
        assign_(self.radius, where(due, 2.0 * reach, self.radius))
        increase_(self.starts, due)
