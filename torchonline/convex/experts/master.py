"""MsMwC-Master: multi-scale multiplicative weights without a rate to choose."""

import math
from collections.abc import Sequence
from typing import Unpack

import torch
from torch import Tensor

from torchonline.convex.experts.base import Experts, among, masked, prox_among, shares
from torchonline.core.checks import rounds_at_most
from torchonline.core.ops import assign_, clip, matvec
from torchonline.core.options import LearnerOptions


class MsMwCMaster(Experts):
    r"""MsMwC-Master: one :class:`MsMwC` over many, each at its own rate.

    Rounds are as in :class:`MsMwC`. The losses of expert j lie within a known range :math:`\pm r_j`. With the least range
    :math:`r_1`, the grid :math:`\beta_q = 1/(4\,\text{kappa}\,r_12^q)` has one rate for each q such that
    :math:`r_j \le r_12^q \le r_j\sqrt T` for some j, and for the least q with :math:`r_j \le r_12^q` for each j. Each rate has an
    inner MsMwC over the experts with :math:`r_j \le r_12^q`, all at the rate :math:`2\beta_q`. An outer MsMwC weights the inner
    ones, at the rates :math:`\beta_q`.

    Guarantee. While losses stay in their ranges, the regret against each expert i is of order

    .. math:: r_i\Gamma_i + \sqrt{\Gamma_i\textstyle\sum_t(\ell_{t,i} - h_{t,i})^2} + Kr_1,\qquad
              \Gamma_i = \ln\big(\sqrt N\max\{2, \sqrt T\}\,r_i/r_1\big),

    (Theorem 6 of Chen, Luo and Wei, which is Lemma D.1 of the paper of :class:`~torchonline.OONS`; docs/parameter_free_theory.md
    has the constants). A loss outside its range is clipped, and ``clipped_rounds`` counts the round.

    With missing experts, the bound is proved only for an expert that appears in round s and stays, over the rounds from s on, if
    the expert with the least range is always available. The bound then grows by :math:`3(s - 1)` times the largest range of the
    experts available before. Cost of a round: O(NK) for K = O(ln(max r / min r) + ln T) rates.

    Args:
        ranges: r, a positive number for each expert, in units of a loss.
        horizon: number of rounds T, for the grid. The guarantee holds in each round up to it.
        preset: ``"default"``: kappa = 6, and the rates as the prior of the outer MsMwC; ``"paper"``: 32, the squares of
            the rates, and a grid of whole powers of 2, which depends on the unit of the losses.
        batch_shape, dtype, device, validate: options of all learners, see :class:`~torchonline.core.learner.Learner`.

    Shape:
        - ``inner_log_weights``, ``(*B, K, N)``, and ``outer_log_weights``, ``(*B, K)``: logarithms of the weights of
          experts and of rates, before the hint; ``inner_weights``, ``(*B, K, N)``: weights of experts after the hint.

    Example:
        >>> learner = MsMwCMaster((1.0, 10.0, 100.0), horizon=1000)
        >>> for _ in range(300):
        ...     learner.step(torch.tensor([0.0, -5.0, 50.0]))
        >>> learner.predict().argmax()
        tensor(1)

    Reference:
        Chen, Luo and Wei, Impossible Tuning Made Possible, COLT 2021, as Algorithm 3 of the paper of :class:`~torchonline.OONS`.
        What differs: the square in the correction, which the paper's line 7 misses; the rates :math:`2\beta_q`, which it does not
        define; kappa; a grid that scales.
    """

    statistics_depend_on = ("ranges", "horizon", "kappa")
    unbounded = ("inner_log_weights",)
    renamed = Experts.renamed | {"middle": "inner_log_weights", "inner": "inner_weights", "top": "outer_log_weights"}
    dropped = ("spans", "twice")

    inner_rates: Tensor
    expert_ranges: Tensor
    inner_log_weights: Tensor
    inner_weights: Tensor
    outer_log_weights: Tensor

    def __init__(
        self,
        ranges: Sequence[float] | Tensor,
        *,
        horizon: int,
        preset: str = "default",
        **options: Unpack[LearnerOptions],
    ) -> None:
        listed = ranges.tolist() if isinstance(ranges, Tensor) else ranges
        if not isinstance(listed, (tuple, list)) or len(listed) == 0:
            raise TypeError(f"ranges: expected a number above 0 for each expert, got {ranges!r}")
        super().__init__(len(listed), preset=preset, **options)
        self.ranges, self.horizon = self._of_each("ranges", listed), rounds_at_most("horizon", horizon)
        self.grid = grid(self.ranges, self.horizon, 1.0 if preset == "paper" else min(self.ranges))
        self._create_buffers()

    def _initial_state(self) -> dict[str, Tensor | None]:
        ranges, levels = (torch.tensor(numbers, dtype=torch.float64) for numbers in (self.ranges, self.grid))
        within = ranges <= levels[:, None] * (1.0 + 1e-12)
        log_weights = torch.where(within, -within.sum(-1, keepdim=True).double().log(), -math.inf)
        prior = (-2.0 if self.preset == "paper" else -1.0) * levels.log()
        weights, outer = log_weights.exp(), torch.log_softmax(prior, -1)
        own = {"inner_log_weights": log_weights, "inner_weights": weights, "outer_log_weights": outer}
        return super()._initial_state() | own | {"decision": torch.softmax(prior, -1) @ weights}

    def _tables(self) -> dict[str, Tensor]:
        rates = 1.0 / (4.0 * self.kappa * torch.tensor(self.grid, dtype=torch.float64))
        ranges = torch.tensor(self.ranges, dtype=torch.float64)
        return {"rates": rates, "inner_rates": 2.0 * rates[:, None], "expert_ranges": ranges}

    def _cut(self, losses: Tensor) -> Tensor:
        return clip(losses, self.expert_ranges)

    def _learn_(self, losses: Tensor) -> None:
        surprise = losses - self._cut(self.hint)
        # The outer weights learn from the losses of the inner MsMwC.
        inner_losses, inner_surprise = matvec(self.inner_weights, losses), matvec(self.inner_weights, surprise)
        cost = inner_losses + self.kappa * self.rates * inner_surprise * inner_surprise
        square = self.kappa * surprise * surprise
        # With equal rates, the arg min is a normalized exponential: no root search.
        step = losses[..., None, :] + self.inner_rates * square[..., None, :]
        moved = self.inner_log_weights - self.inner_rates * step
        rows, usable = self._masks()
        assign_(self.outer_log_weights, prox_among(self.outer_log_weights, cost, self.rates, usable))
        assign_(self.inner_log_weights, among(self.inner_log_weights, moved, rows))

    def _decide_(self) -> None:
        hint = self._cut(self.hint)
        rows, usable = self._masks()
        moved = self.inner_log_weights - self.inner_rates * hint[..., None, :]
        assign_(self.inner_weights, shares(moved, rows))
        inner_hints = matvec(self.inner_weights, hint)
        outer = prox_among(self.outer_log_weights, inner_hints, self.rates, usable)
        assign_(self.decision, matvec(self.inner_weights.mT, shares(outer, usable)))

    def _masks(self) -> tuple[Tensor | None, Tensor | None]:
        """Return masks of experts, ``(*B, 1, N)``, and of rates, ``(*B, K)``, or None."""
        mask = self._mask()
        if mask is None:
            return None, None
        rows = mask[..., None, :]
        # A rate is usable if one of its experts is available.
        return rows, (masked(self.inner_log_weights, rows) > -math.inf).any(-1)


def grid(ranges: Sequence[float], horizon: int, unit: float) -> tuple[float, ...]:
    """Return the loss sizes that have a rate: ``unit`` times powers of 2, ascending."""
    first = [math.ceil(math.log2(r / unit) - 1e-9) for r in ranges]
    last = [math.floor(math.log2(r * math.sqrt(horizon) / unit) + 1e-9) for r in ranges]
    powers = {q for low, high in zip(first, last, strict=True) for q in range(low, max(low, high) + 1)}
    return tuple(unit * 2.0**q for q in sorted(powers))
