"""Gradient descent on balls of all sizes (Chen, Luo and Wei, COLT 2021)."""

import math
from typing import Unpack

import torch
from torch import Tensor

from torchonline.convex.experts.master import MsMwCMaster
from torchonline.convex.learner import ConvexLearner
from torchonline.core.checks import rounds_at_most
from torchonline.core.ops import assign_, column, count_, dot, increase_, matvec, maximum, row_dots, sqrt
from torchonline.core.options import LearnerOptions
from torchonline.linalg import with_length_at_most


class ExpertEnsemble(ConvexLearner):
    r"""Optimistic gradient descent on balls of all sizes, weighted by MsMwC-Master.

    It is :class:`~torchonline.CAOONS` with gradient descent instead of Newton steps. There are N learners on balls of the radii
    :math:`D_j = \ell2^j`, j = 0, ..., N - 1, where :math:`\ell` = ``length_scale`` and N is the least number with
    :math:`D_{N-1} \ge \ell T`. All use the gradient at the decision, with the last gradient as the hint, :math:`m_t = g_{t-1}`,
    :math:`m_1 = 0`:

    .. math:: x_t^j = \Pi_{D_j}(z_t^j - \eta_t^jm_t),\qquad z_{t+1}^j = \Pi_{D_j}(z_t^j - \eta_t^jg_t),\qquad
              \eta_t^j = \frac{2D_j}{\sqrt{4G^2 + V_{t-1}}},\qquad V_t = \sum_{s\le t}\|g_s - m_s\|^2,

    with G = ``lipschitz``. The decision is :math:`x_t = \sum_jw_{t,j}x_t^j` with the weights of :class:`~torchonline.MsMwCMaster`
    for the losses :math:`\langle g_t, x_t^j\rangle`, the hints :math:`\langle m_t, x_t^j\rangle` and the ranges :math:`GD_j`. A
    gradient longer than G is clipped to length G and counted in ``clipped_rounds``.

    Guarantee, for any (clipped) gradients, up to round T and for every u no longer than :math:`\ell T`. With the least
    :math:`D_i \ge \|u\|`, which is at most :math:`\max\{\ell, 2\|u\|\}`,

    .. math:: \sum_t\langle g_t, x_t - u\rangle \le 3D_i\sqrt{4G^2 + V_T} + 96GD_i\Gamma_i
              + D_i\sqrt{108\,\Gamma_iV_T} + 24KG\ell,\qquad
              \Gamma_i = \ln(\sqrt N\max\{2, \sqrt T\}D_i/\ell),

    where K is the number of rates of the weights (:class:`~torchonline.baselines.OptimisticOMD` and Theorem 3 of
    docs/parameter_free_theory.md). Cost of a round: O(Nd) and O(N (N + ln T)) for the weights.

    Args:
        dim: number of coordinates d.
        lipschitz: bound G > 0 on the length of gradients.
        horizon: number of rounds T that the guarantee is for.
        length_scale: :math:`\ell > 0`, the least radius. Shorter comparators cost as much as one of this length.
        batch_shape, dtype, device, validate: options of all learners, see :class:`~torchonline.core.learner.Learner`.

    Shape:
        - ``centres`` z, ``expert_points`` x of the learners: ``(*B, N, d)``; ``hint`` m: ``(*B, d)``; ``error_square_sum`` V:
          ``(*B)``; ``meta``: a part, the weights.

    Example:
        >>> learner = ExpertEnsemble(1, lipschitz=1.0, horizon=1000)
        >>> for _ in range(1000):
        ...     learner.step((learner.predict() - 4.0).clamp(-1.0, 1.0))  # the slope of Huber's loss, lowest at 4
        >>> bool(abs(learner.predict() - 4.0) < 0.5)
        True

    Reference:
        Chen, Luo and Wei, Impossible tuning made possible: a new expert algorithm and its applications, COLT 2021, the
        application to unconstrained online learning. It is recalled; the radii, the steps and the constants are inferred from
        :class:`~torchonline.CAOONS` with ``meta="linear"`` and :class:`~torchonline.baselines.OptimisticOMD`.
    """

    statistics_depend_on = ("lipschitz", "horizon", "length_scale")

    radii: Tensor
    centres: Tensor
    expert_points: Tensor
    hint: Tensor
    error_square_sum: Tensor
    clipped_rounds: Tensor

    def __init__(
        self,
        dim: int,
        *,
        lipschitz: float,
        horizon: int,
        length_scale: float = 1.0,
        **options: Unpack[LearnerOptions],
    ) -> None:
        super().__init__(dim, **options)
        self.lipschitz = self._size("lipschitz", lipschitz)
        self.length_scale = self._size("length_scale", length_scale)
        self.horizon = rounds_at_most("horizon", horizon)
        self.levels = 1 + max(0, math.ceil(math.log2(self.horizon) - 1e-9))
        self.lengths = [self.length_scale * 2.0**j for j in range(self.levels)]
        ranges = [self.lipschitz * length for length in self.lengths]
        self._size("lipschitz * length_scale * horizon", ranges[-1])  # the largest of the losses
        self.offset = 4.0 * self.lipschitz**2
        self.meta = MsMwCMaster(ranges, horizon=self.horizon, **options)
        self._create_buffers()

    def _initial_state(self) -> dict[str, Tensor | None]:
        state, zeros = super()._initial_state(), torch.zeros(self.levels, self.dim, dtype=torch.float64)
        own = {"centres": zeros, "expert_points": zeros, "hint": state["decision"]}
        return state | own | {"error_square_sum": zeros[0, 0], "clipped_rounds": state["rounds"]}

    def _tables(self) -> dict[str, Tensor]:
        return {"radii": torch.tensor(self.lengths, dtype=torch.float64)}

    def _observe(self, gradients: Tensor, values: Tensor | None) -> None:
        count_(self.rounds)
        length = sqrt(dot(gradients, gradients))
        increase_(self.clipped_rounds, length > self.lipschitz)
        g = with_length_at_most(gradients, length, self.lipschitz)
        losses = row_dots(g[..., None, :], self.expert_points)
        centres = self._moved(self.centres, g)
        assign_(self.centres, centres)
        error = g - self.hint
        increase_(self.error_square_sum, dot(error, error))
        assign_(self.hint, g)
        points = self._moved(centres, g)
        assign_(self.expert_points, points)
        meta = self.meta
        meta._observe_and_expect(losses, row_dots(g[..., None, :], points), None)
        assign_(self.decision, matvec(points.mT, meta.decision))

    def _moved(self, centres: Tensor, g: Tensor) -> Tensor:
        """Take a step from each centre, ``(*B, N, d)``, within its ball."""
        rates = 2.0 * self.radii / column(sqrt(self.offset + self.error_square_sum))
        free = centres - rates[..., None] * g[..., None, :]
        lengths = sqrt(row_dots(free, free))
        return free * (self.radii / maximum(lengths, self.radii))[..., None]
