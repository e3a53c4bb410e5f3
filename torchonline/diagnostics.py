"""Diagnostics of noise assumptions; docs/noise_scale.md states their power."""

import math
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from torchonline.core.axes import GREY, axes_or_new, label_end, label_right
from torchonline.core.backend import with_keywords
from torchonline.core.checks import check_shape, positive, positive_integer, sizes, within
from torchonline.core.inputs import one_of_many
from torchonline.core.messages import counted
from torchonline.metrics.base import ExactMetric, check_finite, check_rounds, level_of_caller, of_one_rank
from torchonline.metrics.plots import check_result, finished, results_of

# Stakes of the bets: large stakes win and lose quickly, small stakes wait for rare large noise.
BETS = 2.0 ** -torch.arange(1.0, 17.0, dtype=torch.float64)

# With fewer values Hill's standard error is unreliable.
FEWEST = 10


class NoiseScaleWarning(UserWarning):
    """Warning of :class:`NoiseDiagnostic` that ``noise_scale`` looks too small."""


class NoiseReport(NamedTuple):
    r"""Report on the residuals so far, for each learner.

    Attributes:
        rounds: number of rounds, ``()``, int64.
        evidence: natural logarithm of the largest wealth so far, ``(*B)``, at least 0. If the assumption holds, the probability
            that the evidence ever reaches log(1 / a) is at most a.
        noise_scale_is_small: whether ``evidence`` is at least log(1 / alpha), ``(*B)``, bool. Once True, it stays True.
        moment_ratio: :math:`(\text{mean}\,(|\text{residual}|/\nu)^p)^{1/p}`, ``(*B)``; NaN before the first round. Do not set
            ``noise_scale`` to it: under heavy tails most samples underestimate the true moment.
        tail_index: :func:`hill_index` of the k largest :math:`|\text{residual}|/\nu`, ``(*B)``.
        tail_index_error: asymptotic standard error ``tail_index`` / sqrt(k), ``(*B)``.
        moment_seems_infinite: whether ``tail_index`` plus two standard errors is below ``moment_order``, ``(*B)``, bool. A
            heuristic.
    """

    rounds: Tensor
    evidence: Tensor
    noise_scale_is_small: Tensor
    moment_ratio: Tensor
    tail_index: Tensor
    tail_index_error: Tensor
    moment_seems_infinite: Tensor


class NoiseDiagnostic(ExactMetric):
    r"""Test by betting of a learner's ``noise_scale``.

    In each round call ``diagnostic.update(reward - estimator(x), noise_scale=noise_scale, error=error)`` before the estimator
    learns the reward, with ``error = estimator.radius() * estimator.width(x)``.

    The null hypothesis is :math:`E[|\eta_t|^p \mid \text{past}, x_t] \le \nu_t^p`. Sixteen bets against it have the fixed stakes
    :math:`\lambda = 2^{-1}, \dots, 2^{-16}`. They pay for the part of a residual that exceeds the prediction's error bar:

    .. math:: X_t = \Big(\frac{\max(|\text{residual}_t| - \text{error}_t, 0)}{\nu_t}\Big)^p,\qquad
              \text{wealth}_t = \frac{1}{16}\sum_\lambda \prod_{s \le t} \big(1 + \lambda (X_s - 1)\big).

    When a learner's wealth reaches 1 / ``alpha``, the metric issues a :class:`NoiseScaleWarning`, once for each learner.

    Guarantee. If the null hypothesis holds for a learner, it causes a warning with probability at most ``alpha`` plus the
    learner's ``delta``, over all rounds and under optional stopping; proof: docs/noise_scale.md. In a batch each learner has its
    own ``alpha``. Without ``error`` the residual contains the prediction error, and the guarantee is only approximate. The
    absence of a warning proves nothing, and the tail index is only a heuristic.

    The results do not depend on how the rounds are split into updates. They cover the rounds of one process: each rank of a
    process group tests its own rounds, ``compute`` does not gather, and ``sync`` raises a RuntimeError. Calling the metric
    updates it and reports on all rounds so far: a report on the last batch alone would be a new bet in each batch. Cost of n
    rounds: O(n + ``largest``) for each learner. Memory does not grow.

    Args:
        moment_order: p > 0, as in the learner; 2 for a sub-Gaussian ``noise_scale``.
        batch_shape: ``*B``, batch shape of the tested learners.
        alpha: probability of a false warning, in (0, 1).
        largest: number of largest values :math:`|\text{residual}|/\nu` to keep, at least 2. Hill's k is floor(sqrt(rounds)),
            at most ``largest`` - 1.

    Shape:
        - ``update(residual, noise_scale=..., error=...)``: one round ``(*B)``, or n rounds in order ``(n, *B)``. ``noise_scale``
          and ``error`` are shaped like ``residual``; ``noise_scale`` may be a number.
        - ``compute()``: a :class:`NoiseReport`.

    Raises:
        TypeError, ValueError: as for every :class:`~torchonline.metrics.ExactMetric`; also for a ``noise_scale`` not above 0 or
            an ``error`` below 0.
        RuntimeError: a loaded state dict has another ``moment_order``, ``alpha`` or shape. The state does not change.

    Example:
        >>> diagnostic = NoiseDiagnostic()
        >>> diagnostic.update(3.0 * torch.randn(100, generator=torch.Generator().manual_seed(0)), noise_scale=3.0)
        >>> diagnostic.compute().noise_scale_is_small
        tensor(False)

    Reference:
        Testing by betting: Shafer, Journal of the Royal Statistical Society A 184, 2021; Waudby-Smith and Ramdas, Estimating
        means of bounded random variables by betting, same journal B 86, 2024. The index: Hill, Annals of Statistics 3, 1975.
    """

    if TYPE_CHECKING:

        def __call__(
            self, residual: Tensor, *, noise_scale: Tensor | float, error: Tensor | None = None
        ) -> NoiseReport: ...

    higher_is_better = None

    constants: Tensor
    log_wealth: Tensor
    evidence: Tensor
    log_moment: Tensor
    largest_logs: Tensor

    def __init__(
        self, moment_order: float = 2.0, batch_shape: tuple[int, ...] = (), alpha: float = 0.01, largest: int = 256
    ) -> None:
        super().__init__(sync_on_compute=False)
        self.moment_order = positive("moment_order", moment_order)
        self.batch_shape = sizes("batch_shape", batch_shape)
        self.alpha = within("alpha", alpha, 0.0, 1.0)
        if positive_integer("largest", largest) < 2:
            raise ValueError(f"largest: expected an integer above 1, got {largest}")
        self.largest = largest
        zero = torch.zeros(self.batch_shape, dtype=torch.float64)
        nothing = torch.full((largest, *self.batch_shape), -math.inf, dtype=torch.float64)
        self._add_states(
            of_one_rank,
            # Options that the other states depend on. Loading checks them.
            constants=torch.tensor([self.moment_order, self.alpha], dtype=torch.float64),
            rounds=torch.zeros((), dtype=torch.int64),
            log_wealth=zero.expand(len(BETS), *self.batch_shape).clone(),  # one per bet
            evidence=zero,
            log_moment=nothing[0].clone(),  # logarithm of the sum of (|residual| / nu)^p
            largest_logs=nothing,  # log(|residual| / nu), in decreasing order
        )

    @with_keywords
    def update(self, residual: Tensor, *, noise_scale: Tensor | float, error: Tensor | None = None) -> None:
        """Add one or more rounds."""
        self._refuse_synced()
        size, scale, error = self._checked(residual, noise_scale, error)
        log_ratio = size.log() - scale.log()
        log_x = self.moment_order * ((size - error).clamp(min=0.0).log() - scale.log())
        bets = BETS.to(size).reshape(-1, *[1] * len(self.batch_shape))
        # log(1 + bet (X - 1)), computed from log X because X may overflow.
        gains = torch.logaddexp(torch.log1p(-bets), bets.log() + log_x.unsqueeze(1))
        # Round-by-round addition to the old state makes the result independent of the split into updates.
        log_wealth = torch.cat([self.log_wealth.unsqueeze(0), gains]).cumsum(0)
        evidence = self.evidence.maximum((log_wealth.logsumexp(1) - math.log(len(BETS))).amax(0))
        moments = torch.cat([self.log_moment.unsqueeze(0), self.moment_order * log_ratio])
        is_new = self._is_small(evidence) & ~self._is_small(self.evidence)
        self.log_wealth, self.evidence = log_wealth[-1].clone(), evidence
        self.log_moment = moments.logcumsumexp(0)[-1].clone()
        self.largest_logs = torch.cat([self.largest_logs, log_ratio]).topk(self.largest, dim=0).values
        self.rounds = self.rounds + len(size)
        for index in is_new.nonzero().tolist():  # a single learner has the index []
            text = (
                f"noise_scale looks too small{f' for learner {index}' if index else ''}: within "
                f"{counted(int(self.rounds), 'round')} the "
                f"wealth of bets against it reached exp({evidence[tuple(index)]:.1f}). With a valid noise_scale, the wealth "
                f"reaches 1 / alpha = {1.0 / self.alpha:g} with probability at most {self.alpha:g}. With a noise_scale that "
                "is too small, the learner's guarantee is void"
            )
            warnings.warn(text, NoiseScaleWarning, stacklevel=level_of_caller())

    def compute(self) -> NoiseReport:
        """Return the report on the rounds so far."""
        k = self._hill_count()
        index = _hill(self.largest_logs, k) if k > 0 else torch.full_like(self.evidence, math.nan)
        error = index / math.sqrt(max(k, 1))
        # With too few values the verdict is False.
        infinite = (index + 2.0 * error < self.moment_order) & (k >= FEWEST)
        moment_ratio = ((self.log_moment - self.rounds.to(self.log_moment).log()) / self.moment_order).exp()
        is_small = self._is_small(self.evidence)
        return NoiseReport(self.rounds.clone(), self.evidence.clone(), is_small, moment_ratio, index, error, infinite)

    @with_keywords
    def forward(self, residual: Tensor, *, noise_scale: Tensor | float, error: Tensor | None = None) -> NoiseReport:
        """Add rounds and return the report on all rounds so far."""
        self.update(residual, noise_scale=noise_scale, error=error)
        return self.compute()

    def plot(self, val: Any = None, ax: Any = None, *, index: Any = None) -> tuple[Any, Any]:
        r"""Draw the tail of the residuals on log-log axes, or the evidence of reports.

        Without ``val``, draw the share of rounds with :math:`|\text{residual}|/\nu` of at least x, for the kept values; Hill's
        line through the largest of them; and the bound on noise under the null hypothesis,
        :math:`P(|\eta| \ge x\nu) \le x^{-p}`. Residuals also contain the prediction error, and shares of few rounds are
        uncertain, so points above the bound prove nothing. A tail flatter than the bound suggests that moments of order p are
        infinite. For a verdict with a stated error probability, see :meth:`compute`.

        With ``val``, a report of :meth:`compute` or of a call, or a list of reports, draw the evidence against the null
        hypothesis, with the line log(1 / alpha) at which it is rejected.

        Args:
            val: reports to draw; None for the tail.
            ax: matplotlib axes; None for a new pyplot figure.
            index: index of a learner in a batch, an integer or a tuple. None for a single learner.

        Returns:
            The figure and the axes.
        """
        check_result(val)
        place = one_of_many("index", index, self.batch_shape, "learners")
        axes = axes_or_new(ax)
        if val is None:
            self._draw_tail(axes, place)
        else:
            self._draw_evidence(axes, [val] if (several := results_of(val)) is None else several, place)
        return finished(axes)

    def _draw_tail(self, axes: Any, place: tuple[int, ...]) -> None:
        rounds, k = int(self.rounds), self._hill_count()
        logs = self.largest_logs.movedim(0, -1)[place].cpu()
        values = logs.exp()[:rounds]
        values = values[values > 0.01 * values[:1]]  # smaller values are not part of the tail
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel(r"x = |residual| / noise_scale")
        axes.set_ylabel("share of rounds at or above x")
        if len(values) == 0:
            return
        axes.plot(values.numpy(), [(i + 1) / rounds for i in range(len(values))], ".", markersize=4)
        p = self.moment_order
        low, high = min(1.0, float(values[-1])), 1.1 * max(1.5, float(values[0]))
        x = torch.logspace(math.log10(low), math.log10(high), 65, dtype=torch.float64, device="cpu")
        (bound,) = axes.plot(x.numpy(), x.pow(-p).clamp(max=1.0).numpy(), "-", color=GREY, linewidth=1.5)
        label_end(axes, bound, f"promise: at most $x^{{-{p:g}}}$")
        index = float(_hill(self.largest_logs, k)[place]) if k > 0 else math.nan
        if math.isfinite(index):
            start = float(logs[k].exp())
            x = torch.tensor([start, float(values[0])], dtype=torch.float64, device="cpu")
            (line,) = axes.plot(x.numpy(), (k / rounds * (x / start) ** -index).numpy(), "--", linewidth=1.5)
            label_end(axes, line, f"Hill: $x^{{-{index:.2g}}}$")

    def _draw_evidence(self, axes: Any, reports: list[Any], place: tuple[int, ...]) -> None:
        rounds = [int(report.rounds) for report in reports]
        axes.plot(rounds, [float(report.evidence[place]) for report in reports], marker=".")
        limit = axes.axhline(-math.log(self.alpha), color=GREY, linestyle="--", linewidth=1.0)
        axes.set_ylim(0.0, 1.15 * axes.dataLim.y1)
        label_right(axes, -math.log(self.alpha), f"too small\n(alpha = {self.alpha:g})", limit.get_color())
        axes.set_xlabel("round")
        axes.set_ylabel("evidence against noise_scale")

    def _hill_count(self) -> int:
        """Return Hill's k."""
        rounds = int(self.rounds)
        return min(math.isqrt(rounds), rounds - 1, self.largest - 1)

    def _is_small(self, evidence: Tensor) -> Tensor:
        return evidence >= -math.log(self.alpha)

    def _checked(self, residual: Tensor, noise_scale: Tensor | float, error: Tensor | None) -> tuple[Tensor, ...]:
        """Return absolute residual, noise scale and error as ``(n, *B)``, float64."""
        residual = check_rounds("residual", residual, self.batch_shape)
        if not isinstance(noise_scale, Tensor):
            noise_scale = torch.full_like(residual, positive("noise_scale", noise_scale), dtype=torch.float64)
        noise_scale = check_finite("noise_scale", noise_scale)
        error = torch.zeros_like(residual) if error is None else check_finite("error", error)
        check_shape("noise_scale", noise_scale, residual.shape)
        check_shape("error", error, residual.shape)
        if not bool((noise_scale > 0.0).all()):
            raise ValueError(f"noise_scale: expected values above 0, got {noise_scale.min().item():g}")
        if not bool((error >= 0.0).all()):
            raise ValueError(f"error: expected values of at least 0, got {error.min().item():g}")
        values = (residual.abs(), noise_scale, error)
        return tuple(value.detach().to(self.evidence).reshape(-1, *self.batch_shape) for value in values)

    def _problems(self, loaded: Mapping[str, Any]) -> list[str]:
        return super()._problems(loaded) or [
            f"{name}: expected a state made with {mine:g}, got one made with {theirs:g}"
            for name, mine, theirs in zip(
                ("moment_order", "alpha"), self.constants.tolist(), loaded["constants"].tolist(), strict=True
            )
            if not math.isclose(mine, theirs, rel_tol=1e-6)
        ]


def hill_index(values: Tensor, k: int) -> Tensor:
    r"""Return Hill's estimate of the tail index from the k largest values.

    The tail index is the a in :math:`P(X > x) \approx c\,x^{-a}`, and its estimate is

    .. math:: \hat a = \Big(\frac1k \sum_{i=1}^k \log\frac{X_{(i)}}{X_{(k+1)}}\Big)^{-1},\qquad X_{(1)} \ge X_{(2)} \ge \dots

    Moments of order below a exist. For independent values from an exact Pareto law, :math:`k a / \hat a` is Gamma(k) distributed.
    For other laws the standard error :math:`\hat a/\sqrt k` is asymptotic, and the bias depends on where the power law starts.

    Args:
        values: ``(n, *B)``, at least 0, floating point.
        k: number of largest values, from 1 to n - 1.

    Returns:
        ``(*B)``, float64. Infinite if the k + 1 largest values are equal; NaN if one of them is 0.

    Example:
        >>> hill_index(torch.tensor([1.0, 2.0, 4.0, 8.0]), k=2)  # logarithms of 4 / 2 and 8 / 2
        tensor(0.9618, dtype=torch.float64)
    """
    values = check_finite("values", values)
    if values.dim() == 0:
        raise ValueError("values: expected shape (n, ...), got ()")
    if not bool((values >= 0.0).all()):
        raise ValueError(f"values: expected values of at least 0, got {values.min().item():g}")
    if positive_integer("k", k) >= len(values):
        raise ValueError(f"k: expected an integer below the number of values, {len(values)}, got {k}")
    return _hill(values.detach().to(torch.float64).topk(k + 1, dim=0).values.log(), k)


def _hill(logs: Tensor, k: int) -> Tensor:
    """Return Hill's estimate from decreasing logarithms, ``(k + 1 or more, *B)``."""
    index = 1.0 / (logs[:k] - logs[k]).mean(0)
    return torch.where(logs[k] > -math.inf, index, math.nan)
