"""Alarm for drift, with a stated rate of false alarms."""

import math
import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torchonline.core.checks import check_values, positive_integer, sizes, within
from torchonline.metrics.base import ExactMetric, check_rounds, level_of_caller, of_one_rank
from torchonline.metrics.plots import axes_or_new

# Comparisons that a plot can show.
KEPT = 256


class DriftWarning(UserWarning):
    """Warning of :class:`DriftAlarm` that values have changed."""


class DriftReport(NamedTuple):
    r"""Report of :class:`DriftAlarm` on the rounds so far, for each stream.

    Attributes:
        rounds: number of values, ``()``, int64.
        comparisons: number of windows compared with the first one, ``()``, int64.
        drifted: whether there was an alarm, ``(*B)``, bool. Once True, it stays True.
        drifted_at: number of values when the first alarm came, ``(*B)``, int64; 0 without an alarm.
        reference: mean of the first window, ``(*B)``; NaN before it is complete.
        latest: mean of the last complete window after the first, ``(*B)``; NaN before there is one.
        ratio: the larger statistic of the last comparison over the threshold, ``(*B)``: 1 or more is an alarm. NaN before the
            first comparison.
    """

    rounds: Tensor
    comparisons: Tensor
    drifted: Tensor
    drifted_at: Tensor
    reference: Tensor
    latest: Tensor
    ratio: Tensor


class DriftAlarm(ExactMetric):
    r"""Alarm for drift: compares each window of values with the first window.

    The first m = ``window`` values :math:`x_1, \dots, x_m` are the reference. The j-th comparison is with the values
    :math:`y_1, \dots, y_m` of the j-th window after it, pair by pair, :math:`d_i = y_i - x_i`. There is an alarm if one of two
    statistics reaches a threshold,

    .. math:: \frac{|\sum_i d_i|}{\sqrt{\sum_i d_i^2}} \ge c_j \quad\text{or}\quad
              \frac{|\sum_i \operatorname{sign} d_i|}{\sqrt{\sum_i (\operatorname{sign} d_i)^2}} \ge c_j,
              \qquad c_j = \sqrt{2\log\frac{4j(j+1)}{\alpha}}.

    The first sees a change of the mean. The second sees a change of what is typical, also where a few huge values hide it from
    the first. Neither sees a change of the spread alone.

    *Guarantee.* If the values are exchangeable, for example independent with one law, an alarm ever comes with probability at
    most ``alpha``, however long the stream is and however often one looks. The same holds for independent values whose laws
    repeat with period m, such as those of the hours of a week if a window is a whole number of weeks. Values may be unbounded,
    and need no moments. Proof: docs/monitoring.md.

    *What it does not cover.* A learner that changes its choices changes its rewards. An alarm on such rewards is right, but may
    show nothing but the learning. Watch the rewards of a policy that stays, such as those of a control group, or the residuals
    ``reward - prediction`` of a model that stays. Values that depend on one another, as in slow waves longer than the window,
    cause more alarms than ``alpha`` says. The absence of an alarm proves nothing.

    *Delay.* A change of the mean by about :math:`c_j\,\sigma\sqrt{2/m}` is found in the first window after it with probability
    1/2, for values with standard deviation :math:`\sigma`.

    At the first alarm of a stream the metric issues a :class:`DriftWarning`. The comparisons go on, with the same reference.
    ``reset`` begins anew, with a new reference and a new ``alpha``.

    The results do not depend on how the values are split into updates. They are the values of one process: ``compute`` gathers
    nothing, and ``sync`` of several ranks raises a RuntimeError. Cost of n values: O(n). Memory: O(m) for each stream.

    Args:
        window: m, number of values in a window.
        alpha: probability of a false alarm ever, in (0, 1), for each stream.
        batch_shape: ``*B``, batch shape of the streams.
        warn: whether to issue the warning.

    Shape:
        - ``update(value)``: one round ``(*B)``, or n rounds in order ``(n, *B)``; floating point, of magnitude up to 5.6e102.
        - ``compute()``: a :class:`DriftReport`.

    Example:
        >>> alarm = DriftAlarm(window=100, alpha=0.01, warn=False)
        >>> generator = torch.Generator().manual_seed(0)
        >>> alarm.update(torch.rand(500, generator=generator))
        >>> alarm.compute().drifted
        tensor(False)
        >>> alarm.update(0.5 + torch.rand(100, generator=generator))
        >>> alarm.compute().drifted_at
        tensor(600)

    Reference:
        The bound is Hoeffding's for weighted signs (JASA 58, 1963); self-normalised by Efron, JASA 64, 1969. The threshold spends
        alpha over the comparisons by a union bound.
    """

    higher_is_better = None
    least = {"rounds": 0, "alarm_at": 0}

    constants: Tensor
    reference: Tensor
    sums: Tensor
    latest: Tensor
    alarm_at: Tensor
    ratios: Tensor

    def __init__(
        self, window: int = 500, alpha: float = 0.01, batch_shape: tuple[int, ...] = (), *, warn: bool = True
    ) -> None:
        super().__init__(sync_on_compute=False)
        self.window, self.alpha = positive_integer("window", window), within("alpha", alpha, 0.0, 1.0)
        self.batch_shape, self.warn = sizes("batch_shape", batch_shape), warn
        zero = torch.zeros(self.batch_shape, dtype=torch.float64)
        self._add_states(
            of_one_rank,
            # Options that the other states depend on, to be checked on loading.
            constants=torch.tensor([self.window, self.alpha], dtype=torch.float64),
            rounds=torch.zeros((), dtype=torch.int64),
            reference=zero.expand(self.window, *self.batch_shape).clone(),
            # Of the present window: sums of d, d^2, sign d and (sign d)^2, and of the values.
            sums=zero.expand(5, *self.batch_shape).clone(),
            latest=zero,  # mean of the last complete window
            alarm_at=zero.long(),
            ratios=zero.expand(KEPT, *self.batch_shape).clone(),  # of comparison j in row (j - 1) % KEPT
        )

    def update(self, value: Tensor) -> None:
        """Add one or more values."""
        self._refuse_synced()
        value = check_rounds("value", value, self.batch_shape).detach().to(self.reference)
        value = value.reshape(-1, *self.batch_shape)
        check_values("value", value)
        before = self.alarm_at
        while len(value):
            place, window = int(self.rounds) % self.window, int(self.rounds) // self.window
            part, value = value[: self.window - place], value[self.window - place :]
            if window == 0:
                self.reference = torch.cat([self.reference[:place], part, self.reference[place + len(part) :]])
            else:
                d = part - self.reference[place : place + len(part)]
                terms = torch.stack([d, d.square(), d.sign(), d.sign().square(), part], 1)
                # Adding one by one makes the result independent of the split into updates.
                self.sums = torch.cat([self.sums.unsqueeze(0), terms]).cumsum(0)[-1].clone()
            self.rounds = self.rounds + len(part)
            if window and place + len(part) == self.window:
                self._compare(window)
        for index in ((self.alarm_at > 0) & (before == 0)).nonzero().tolist() if self.warn else ():
            reference, latest = (float(x[tuple(index)]) for x in (self.reference.mean(0), self.latest))
            text = (
                f"values have changed{f' in stream {index}' if index else ''}: after {int(self.alarm_at[tuple(index)])} of them, "
                f"the mean of the last {self.window} is {latest:.4g}, and {reference:.4g} in the first {self.window}. With "
                f"exchangeable values, an alarm ever comes with probability at most {self.alpha:g}"
            )
            warnings.warn(text, DriftWarning, stacklevel=level_of_caller())

    def compute(self) -> DriftReport:
        """Return the report on the values so far."""
        rounds = int(self.rounds)
        comparisons = max(0, rounds // self.window - 1)
        nothing = torch.full_like(self.latest, torch.nan)
        reference = self.reference.mean(0) if rounds >= self.window else nothing
        return DriftReport(
            self.rounds.clone(),
            torch.full_like(self.rounds, comparisons),
            self.alarm_at > 0,
            self.alarm_at.clone(),
            reference,
            self.latest.clone() if comparisons else nothing,
            self.ratios[(comparisons - 1) % KEPT].clone() if comparisons else nothing,
        )

    def forward(self, value: Tensor) -> DriftReport:
        """Add values and return the report on all values so far."""
        self.update(value)
        return self.compute()

    def plot(self, axes: Any = None, label: str | None = None) -> tuple[Any, Any]:
        """Draw the ratio of statistic and threshold for the last 256 comparisons.

        The largest of a fleet. An alarm is a point at 1 or above. Return the figure and the axes.
        """
        axes = axes_or_new(axes)
        comparisons = max(0, int(self.rounds) // self.window - 1)
        shown = torch.arange(max(0, comparisons - KEPT), comparisons)
        ratios = self.ratios.cpu().reshape(KEPT, -1).amax(1)[shown % KEPT]
        axes.plot(((shown + 2) * self.window).numpy(), ratios.numpy(), marker=".", label=label)
        axes.axhline(1.0, color="0.3", linestyle="--", linewidth=1.0)
        axes.set_ylim(bottom=0.0)
        axes.set_xlabel("round")
        axes.set_ylabel("statistic / threshold")
        return axes.figure, axes

    def threshold(self, comparison: int) -> float:
        """Return the threshold of the j-th comparison, counted from 1."""
        j = positive_integer("comparison", comparison)
        # Two statistics with two sides each. The probabilities alpha / (j (j + 1)) add up to alpha.
        return math.sqrt(2.0 * math.log(4.0 * j * (j + 1) / self.alpha))

    def _compare(self, comparison: int) -> None:
        """Compare a complete window with the reference, and begin the next."""
        total, squares, signs, untied, values = self.sums
        means = torch.where(squares > 0.0, total.abs() / squares.sqrt(), 0.0)
        typical = torch.where(untied > 0.0, signs.abs() / untied.sqrt(), 0.0)
        ratio = means.maximum(typical) / self.threshold(comparison)
        self.ratios = self.ratios.clone()
        self.ratios[(comparison - 1) % KEPT] = ratio
        self.alarm_at = torch.where((self.alarm_at == 0) & (ratio >= 1.0), self.rounds, self.alarm_at)
        self.latest, self.sums = values / self.window, torch.zeros_like(self.sums)

    def _problems(self, loaded: Mapping[str, Any]) -> list[str]:
        if self._is_synced or not isinstance(loaded.get("constants"), Tensor) or loaded["constants"].shape != (2,):
            return super()._problems(loaded)
        return [
            f"{name}: expected a state made with {mine:g}, got one made with {theirs:g}"
            for name, mine, theirs in zip(
                ("window", "alpha"), (self.window, self.alpha), loaded["constants"].tolist(), strict=True
            )
            if not math.isclose(mine, theirs, rel_tol=1e-6)
        ] or super()._problems(loaded)
