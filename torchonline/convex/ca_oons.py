"""CA-OONS: OONS for an unknown comparator, with learners of growing radius."""

import math
import warnings
from typing import Any, Unpack

import torch
from torch import Tensor

from torchonline.convex.domains import Domain, projectable
from torchonline.convex.experts.master import MsMwCMaster
from torchonline.convex.learner import ConvexLearner
from torchonline.convex.oons import OONS
from torchonline.core.all_or_nothing import one_at_a_time
from torchonline.core.backend import SMALL_STEP, in_python
from torchonline.core.checks import one_of, positive_integer, positive_size, rounds_at_most
from torchonline.core.ops import assign_, column, count_, matvec, real, row_dots, where
from torchonline.core.options import LearnerOptions, with_former_names

METAS = ("values", "linear", "paper")
# The number of learners without a horizon. The j-th wakes in round 2^(j-1).
LEVELS = 30


class CAOONS(ConvexLearner):
    r"""CA-OONS: comparator-adaptive optimistic online Newton steps.

    A bound on gradients is known. Let :math:`\ell` = ``length_scale``. There are N :class:`~torchonline.OONS` learners, of
    radius :math:`D_j = \ell2^j` for j = 1, ..., N, where N is the least number with :math:`D_N \ge T\max\{1, \ell\}`. An
    :class:`~torchonline.MsMwCMaster` weights them. The decision is :math:`x_t = \sum_jw_{t,j}x_t^j`. The option ``meta`` says
    which losses the weights follow:

    - ``"values"``: :math:`f_t(x_t^j) - f_t(0)`, with the last such loss as the hint. Each learner has its own gradient: N
      queries, and the origin, whose gradient is ignored but must be finite. ``step`` also needs the values of the loss.
    - ``"linear"``: :math:`\langle g_t, x_t^j\rangle` with the gradient at the decision, which all learners share: one query.
    - ``"paper"``: :math:`\langle\nabla f_t(x_t^j), x_t^j\rangle`, as printed in the paper, for comparison. If losses are not
      linear, regret is linear in T (docs/parameter_free_theory.md). It warns.

    Guarantee, with the default preset. Let :math:`D = \max\{\|u\|, \ell\} \le D_N`, and let losses be convex with
    gradients no longer than ``lipschitz``. For ``"values"``, let losses be drawn with variances :math:`\sigma_t^2` around
    convex, L-smooth expectations that drift by :math:`\Sigma_t`; then in expectation

    .. math:: \text{regret} = \tilde O\big(D\sqrt{\sigma^2_{1:T} + \Sigma^2_{1:T}} + LD^2 + GD\big).

    For ``"linear"`` the regret is deterministically :math:`\tilde O(D\sqrt{\sum_t\|g_t - g_{t-1}\|^2} + GD)`. This is the rate
    above if losses are linear, and :math:`\tilde O(GD\sqrt T)` always (Theorem 4.1 of the reference, whose equation (5) is false:
    docs/parameter_free_theory.md). For :math:`\|u\| > D_N` the regret is at most :math:`2GT\|u\|`. The logarithms are of T, N, d
    and :math:`D/\ell`. A loss that differs from the loss at the origin by more than G :math:`D_j` is clipped and counted in
    ``meta.clipped_rounds``. The guarantee then no longer holds. For a squared loss on an unbounded domain use ``"linear"``.

    With a ``domain``, learner j plays in the intersection of the domain and the ball of radius :math:`D_j` around the domain's
    start :math:`x_0`, and :math:`x - x_0`, :math:`u - x_0` and :math:`f_t(x_0)` replace x, u and :math:`f_t(0)`. The last learner
    is the first whose ball contains the domain. A domain of known size does not need CA-OONS, which is for comparators that may
    be much closer to :math:`x_0` than the size of the domain.

    Without a horizon, ``horizon=None``, there are 30 learners, and the j-th sleeps until round :math:`2^{j-1}`. This costs at
    most :math:`3G\|u\|^2/\ell` more; T is :math:`2^{30}` in the logarithms of the weights (proof: docs/parameter_free_theory.md).
    Cost of a round: as for N learners in one batch, and O(N (N + ln T)) for their weights.

    Args:
        dim: number of coordinates d.
        lipschitz: length of the longest gradient G > 0.
        horizon: number of rounds T that the guarantee is for; None for any number up to 2^30.
        meta: ``"values"``, ``"linear"`` or ``"paper"``.
        preset, form, sketch_size: as in :class:`~torchonline.OONS`. The preset ``"paper"`` also applies to the weights.
        domain: a convex set for decisions, as for :class:`~torchonline.OONS`; None for the whole space.
        length_scale: :math:`\ell > 0`, half of the smallest radius. Shorter comparators cost as much as one of this length.
        batch_shape, dtype, device, validate: options of all learners, see :class:`~torchonline.core.learner.Learner`.

    Shape:
        - Queries and gradients: ``(*B, N + 1, d)`` for ``"values"``, the origin last; ``(*B, 1, d)`` for ``"linear"``;
          ``(*B, N, d)`` for ``"paper"``. Values: the same without d.
        - ``bases``: a part, the N learners, of batch shape ``(*B, N)``; ``meta``: a part, their weights.

    Example:
        >>> learner = CAOONS(1, lipschitz=1.0, horizon=1000, meta="linear")
        >>> for _ in range(1000):
        ...     learner.step((learner.predict() - 4.0).clamp(-1.0, 1.0))  # the slope of Huber's loss, lowest at 4
        >>> bool(abs(learner.predict() - 4.0) < 0.01)
        True

    Reference:
        Wang, Barik, Zhao and Tan, Parameter-free algorithms for the Stochastically Extended Adversarial model, Algorithm 2.
        What differs: the losses of the learners, ``length_scale``, the constants, and the version without a horizon.
    """

    statistics_depend_on = ("horizon", "length_scale", "mode_number")
    sized_options = ("domain",)
    argument_of = {"mode_number": "meta"}
    dropped = ("wakes",)

    sleeping_rounds: Tensor  # before each learner wakes, (N)

    @with_former_names(scale0="length_scale")
    def __init__(
        self,
        dim: int,
        *,
        lipschitz: float,
        horizon: int | None,
        meta: str = "values",
        preset: str = "default",
        length_scale: float = 1.0,
        form: str = "eigen",
        sketch_size: int = 16,
        domain: Domain | None = None,
        **options: Unpack[LearnerOptions],
    ) -> None:
        one_of("meta", meta, METAS)
        dim, levels = positive_integer("dim", dim), LEVELS
        if horizon is not None:
            horizon = rounds_at_most("horizon", horizon)
            length_scale = positive_size("length_scale", length_scale, torch.float64)
            levels = max(1, math.ceil(math.log2(horizon / min(1.0, length_scale)) - 1e-9))
        if domain is not None:  # the last learner is the first whose ball contains the domain
            length_scale = positive_size("length_scale", length_scale, torch.float64)
            extent = projectable(domain, dim).extent()
            levels = max(1, min(levels, math.ceil(math.log2(extent / length_scale) - 1e-9)))
        points = {"values": levels + 1, "linear": 1, "paper": levels}[meta]
        super().__init__(dim, points=points, **options)
        if meta == "paper":
            text = "meta: 'paper' has regret linear in the number of rounds unless losses are linear"
            warnings.warn(text, stacklevel=3)
        self.lipschitz, self.length_scale = self._size("lipschitz", lipschitz), self._size("length_scale", length_scale)
        radii = [self.length_scale * 2.0**j for j in range(1, levels + 1)]
        ranges = [self.lipschitz * radius for radius in radii]
        self._size("lipschitz * length_scale * 2^levels", ranges[-1])  # the largest of the losses
        self.horizon, self.levels, self.grows = horizon, levels, horizon is None
        self.mode, self.mode_number, self.needs_values = meta, METAS.index(meta), meta == "values"
        self.domain = domain
        of_bases: Any = {"preset": preset, "form": form, "sketch_size": sketch_size, "domain": domain}
        of_bases |= options | {"batch_shape": (*self.batch_shape, levels)}
        radius = torch.tensor(radii, dtype=torch.float64).expand(*self.batch_shape, levels)
        self.bases = OONS(dim, lipschitz=lipschitz, radius_bound=radius, **of_bases)
        of_meta = "paper" if preset == "paper" else "default"
        self.meta = MsMwCMaster(ranges, horizon=horizon or 2**LEVELS, preset=of_meta, **options)
        self.is_exportable, self.is_scriptable = self.bases.is_exportable, self.bases.is_scriptable
        self._create_buffers()
        self.is_small = math.prod(self.batch_shape) * levels * self.dim**2 < SMALL_STEP  # in any form
        self._reset()

    def _reset(self) -> None:
        super()._reset()
        if self.grows:  # learners that are not awake in the first round are unavailable
            self.meta._set_available_(self._awake().expand_as(self.meta.available))

    def _initial_state(self) -> dict[str, Tensor | None]:
        start = {} if self.domain is None else {"decision": self.domain.start()}
        return super()._initial_state() | start

    def _tables(self) -> dict[str, Tensor]:
        return {"sleeping_rounds": 2.0 ** torch.arange(self.levels, dtype=torch.float64) - 1.0}

    def _options(self) -> list[tuple[str, float]]:
        return super()._options() + ([] if self.domain is None else self.domain.parameters())

    def _start_in_python(self) -> Any:
        zero = torch.zeros_like(self.decision)
        return zero if self.domain is None else zero + self.bases.origin

    @in_python(_start_in_python)
    def _start(self) -> Tensor:
        """Return the origin, or the start of the domain, ``(*B, d)``."""
        return torch.zeros_like(self.decision)

    @torch.jit.export
    @one_at_a_time
    def queries(self) -> Tensor:
        if self.mode == "linear":
            return self.decision.unsqueeze(-2).clone()
        points = self.bases.decision
        if self.mode == "values":
            points = torch.cat([points, self._start().unsqueeze(-2)], -2)
        return points.clone()

    def _observe(self, gradients: Tensor, values: Tensor | None) -> None:
        bases, meta = self.bases, self.meta
        if self.mode == "linear":
            gradients = gradients[..., None, :]
        if values is not None and self.mode == "values":
            gradients = gradients[..., :-1, :]
            losses = values[..., :-1] - values[..., -1:]
        else:
            losses = row_dots(gradients, bases._from_start(bases.decision))
        if self.grows:
            awake = self._awake()
            gradients = where(awake[..., None], gradients, 0.0 * gradients)
            losses = where(awake, losses, 0.0 * losses)
        bases._observe(gradients, None)
        hint = losses if self.mode == "values" else row_dots(bases.hint, bases._from_start(bases.decision))
        count_(self.rounds)
        meta._observe_and_expect(losses, hint, self._awake() if self.grows else None)
        assign_(self.decision, matvec(bases.decision.mT, meta.decision))

    def _awake(self) -> Tensor:
        """Return which learners are awake in the next round, ``(*B, N)``."""
        return column(real(self.rounds, self.sleeping_rounds)) >= self.sleeping_rounds
