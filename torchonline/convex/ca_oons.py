"""CA-OONS: OONS without a bound on the comparator, by aggregating learners of growing radius."""

import math
import warnings

import torch
from torch import Tensor

from torchonline.convex.experts.msmwc import MsMwCMaster
from torchonline.convex.learner import ConvexLearner
from torchonline.convex.oons import OONS
from torchonline.core.checks import (
    LARGEST,
    check_size,
    check_state_dtype,
    one_of,
    positive_integer,
    positive_size,
    rounds_at_most,
)
from torchonline.core.ops import assign_, column, count_, matvec, real, row_dots, where

METAS = ("values", "linear", "paper")
# Of a learner without a horizon.
LEVELS = 30


class CAOONS(ConvexLearner):
    r"""CA-OONS: an optimistic online Newton step that adapts to the comparator; only a bound on gradients is known.

    A round, for the caller::

        gradients, values = torchonline.gradients(loss, learner, x, y)    # at all points of learner.queries()
        learner.step(gradients, values)
        learner.predict()

    There are :class:`~torchonline.OONS` learners of radius :math:`D_j = \text{scale0}\cdot2^j`, j = 1, ..., N, with the N of
    :math:`D_N \ge T\max\{1, \text{scale0}\}`, and an :class:`~torchonline.MsMwCMaster` that weighs them: the decision is
    :math:`x_t = \sum_jw_{t,j}x_t^j`. What it takes for their losses, ``meta``, matters:

    - ``"values"``: :math:`f_t(x_t^j) - f_t(0)`, expected to be what they were. Each learner has its own gradient, so there
      are N queries, and the origin is one more, of which the value counts and the gradient, which must be finite, does not.
    - ``"linear"``: :math:`\langle g_t, x_t^j\rangle` with the gradient at the decision, which all learners share: one query.
    - ``"paper"``: :math:`\langle\nabla f_t(x_t^j), x_t^j\rangle`, as printed. For a loss that is not linear its regret is
      linear in T: it rewards a learner for the slope where that learner stands. It is here to be seen failing, and warns.

    Guarantee, by default. With :math:`D = \max\{\|u\|, \text{scale0}\} \le D_N`, for convex losses with gradients no longer
    than ``lipschitz``: for ``"values"``, in expectation over losses drawn with variances :math:`\sigma_t^2` around convex,
    L-smooth expectations that drift by :math:`\Sigma_t`,

    .. math:: \text{regret} = \tilde O\big(D\sqrt{\sigma^2_{1:T} + \Sigma^2_{1:T}} + LD^2 + GD\big),

    and for ``"linear"``, surely, :math:`\tilde O(D\sqrt{\sum_t\|g_t - g_{t-1}\|^2} + GD)`, which is the former if losses are
    linear, and :math:`\tilde O(GD\sqrt T)` always (Theorem 4.1 of the reference, whose equation (5) is false:
    docs/parameter_free.md). For :math:`\|u\| > D_N` it is :math:`2GT\|u\|`. The logarithms are of T, N, d and D/scale0.

    A value further from that at the origin than G :math:`D_j` is cut and counted in ``meta.clipped``: then nothing is promised;
    a squared loss on an unbounded domain wants ``"linear"``.

    Without a horizon, ``horizon=None``, there are 30 learners, and the j-th sleeps until round :math:`2^{j-1}`, which costs at
    most :math:`3G\|u\|^2/\text{scale0}` more; T is :math:`2^{30}` in the logarithms of the weights (proof:
    docs/parameter_free.md).

    Cost of a round: that of N learners at once, and O(N (N + ln T)) for their weights.

    Args:
        dim: d.
        lipschitz: G > 0, the length of the longest gradient.
        horizon: T, the number of rounds that the guarantee is for; None for any number up to 2^30.
        meta: ``"values"``, ``"linear"`` or ``"paper"``.
        preset: that of :class:`~torchonline.OONS`; ``"paper"`` also takes the paper's constants for the weights.
        scale0: half of the smallest radius, in the units of u. Comparators below it cost as much as one of that size.
        form, sketch_size: those of :class:`~torchonline.OONS`.
        batch_shape: ``*B``, independent learners in one module.
        dtype: torch.float64 or torch.float32, of the state.
        device: where the state lives.
        validate: whether values are checked in each call.

    Shape:
        - queries: ``(*B, N + 1, d)``, the origin last; ``(*B, 1, d)`` for ``"linear"``; ``(*B, N, d)`` for ``"paper"``.
          Gradients: the same; values: without d.
        - ``decision``: ``(*B, d)``; ``rounds``: ``(*B)``.
        - ``bases``: a part, the N learners, of batch shape ``(*B, N)``; ``meta``: a part, their weights.

    Example:
        >>> learner = CAOONS(1, lipschitz=1.0, horizon=1000, meta="linear")
        >>> for _ in range(1000):
        ...     learner.step((learner.predict() - 4.0).clamp(-1.0, 1.0))  # the slope of Huber's loss, lowest at 4
        >>> bool(abs(learner.predict() - 4.0) < 0.01)
        True

    Reference:
        Wang, Barik, Zhao and Tan, Parameter-free algorithms for the Stochastically Extended Adversarial model, Algorithm 2.
        What differs: the losses of the learners, ``scale0``, the constants, and what there is without a horizon.
    """

    statistics_depend_on = ("horizon", "scale0", "mode_number")
    argument_of = {"mode_number": "meta"}

    wakes: Tensor

    def __init__(
        self,
        dim: int,
        *,
        lipschitz: float,
        horizon: int | None,
        meta: str = "values",
        preset: str = "default",
        scale0: float = 1.0,
        form: str = "eigen",
        sketch_size: int = 16,
        batch_shape: tuple[int, ...] = (),
        dtype: torch.dtype = torch.float64,
        device: torch.device | str | None = None,
        validate: bool = True,
    ) -> None:
        check_state_dtype(dtype)
        lipschitz = positive_size("lipschitz", lipschitz, dtype)
        scale0 = positive_size("scale0", scale0, dtype)
        one_of("meta", meta, METAS)
        levels = LEVELS
        if horizon is not None:
            horizon = rounds_at_most("horizon", horizon)
            levels = max(1, math.ceil(math.log2(horizon / min(1.0, scale0)) - 1e-9))
        radii = [scale0 * 2.0**j for j in range(1, levels + 1)]
        check_size("lipschitz", lipschitz * radii[-1], LARGEST[dtype], dtype)
        points = {"values": levels + 1, "linear": 1, "paper": levels}[meta]
        dim = positive_integer("dim", dim)
        super().__init__(
            dim,
            points=points,
            entries=levels * dim * dim,
            batch_shape=batch_shape,
            dtype=dtype,
            device=device,
            validate=validate,
        )
        if meta == "paper":
            warnings.warn(
                "meta: 'paper' has regret linear in the number of rounds for losses that are not linear; it is for comparison",
                stacklevel=2,
            )
        self.horizon, self.scale0, self.lipschitz = horizon, scale0, lipschitz
        self.mode, self.mode_number = meta, METAS.index(meta)
        self.needs_values = meta == "values"
        self.bases = OONS(
            dim,
            lipschitz=lipschitz,
            radius_bound=torch.tensor(radii, dtype=torch.float64).expand(*self.batch_shape, levels),
            preset=preset,
            form=form,
            sketch_size=sketch_size,
            batch_shape=(*self.batch_shape, levels),
            dtype=dtype,
            device=device,
            validate=validate,
        )
        self.meta = MsMwCMaster(
            [lipschitz * radius for radius in radii],
            horizon=2**LEVELS if horizon is None else horizon,
            preset="paper" if preset == "paper" else "default",
            batch_shape=self.batch_shape,
            dtype=dtype,
            device=device,
            validate=validate,
        )
        self.levels = levels
        self.grows = horizon is None
        self.is_exportable = self.bases.is_exportable
        self._create_buffers()
        self._begin_()

    def reset(self) -> None:
        super().reset()
        self._begin_()

    def _begin_(self) -> None:
        """Let those sleep that are not awake in the first round."""
        with torch.no_grad():
            if self.grows:
                self.meta.set_available(self._awake().expand_as(self.meta.available))

    def _tables(self) -> dict[str, Tensor]:
        return {"wakes": 2.0 ** torch.arange(self.levels, dtype=torch.float64) - 1.0}

    @torch.jit.export
    def queries(self) -> Tensor:
        """The points at which the next round's gradients are wanted, ``(*B, N, d)``. Changes no state."""
        if self.mode == "linear":
            return self.decision.unsqueeze(-2).clone()
        points = self.bases.decision
        if self.mode == "values":
            points = torch.cat([points, torch.zeros_like(self.decision).unsqueeze(-2)], -2)
        return points.clone()

    def _observe(self, gradients: Tensor, values: Tensor | None) -> None:
        bases, meta = self.bases, self.meta
        if self.mode == "linear":
            gradients = gradients[..., None, :]
        if values is not None and self.mode == "values":
            gradients = gradients[..., :-1, :]
            losses = values[..., :-1] - values[..., -1:]
        else:
            losses = row_dots(gradients, bases.decision)
        if self.grows:
            awake = self._awake()
            gradients = where(awake[..., None], gradients, 0.0 * gradients)
            losses = where(awake, losses, 0.0 * losses)
        bases._observe(gradients, None)
        hint = losses if self.mode == "values" else row_dots(bases.hint, bases.decision)
        count_(self.rounds)
        meta._observe_and_expect(losses, hint, self._awake() if self.grows else None)
        assign_(self.decision, matvec(bases.decision.mT, meta.decision))

    def _awake(self) -> Tensor:
        """Which learners are awake in the next round, ``(*B, N)``."""
        return column(real(self.rounds, self.wakes)) >= self.wakes
