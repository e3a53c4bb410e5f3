"""Alarm for drift, with a stated rate of false alarms."""

import math
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from torchonline.core.axes import GREY, label_end, next_style
from torchonline.core.checks import (
    check_values,
    instance_of,
    integer,
    positive_integer,
    rounds_at_most,
    sizes,
    within,
)
from torchonline.metrics.base import ExactMetric, check_rounds, level_of_caller, of_one_rank
from torchonline.metrics.plots import axes_for, finished, results_of

# Windows that a plot can show.
KEPT = 256
# Identifies the line of the threshold, which several plots in the same axes share.
THRESHOLD = "torchonline: threshold"


class DriftWarning(UserWarning):
    """Warning of :class:`DriftAlarm` that values have changed."""


class DriftReport(NamedTuple):
    r"""Report of :class:`DriftAlarm` on the values so far, for each stream.

    Attributes:
        rounds: number of values, ``()``, int64.
        alarms: number of alarms, ``(*B)``, int64.
        first_at: number of values when the first alarm came, ``(*B)``, int64; 0 without an alarm.
        last_at: number of values when the last alarm came, ``(*B)``, int64; 0 without an alarm.
        reference: mean of the reference window, ``(*B)``; NaN while there is none.
        latest: mean of the last complete window, ``(*B)``; NaN before the first.
        ratio: the larger statistic of the last window over the threshold, ``(*B)``: 1 or more is an alarm. NaN if the last
            window is the reference, or there is none.
    """

    rounds: Tensor
    alarms: Tensor
    first_at: Tensor
    last_at: Tensor
    reference: Tensor
    latest: Tensor
    ratio: Tensor


class DriftAlarm(ExactMetric):
    r"""Alarm for drift: compares windows of values with a reference window.

    The first m = ``window`` values :math:`x_1, \dots, x_m` are the reference. The j-th comparison takes the values
    :math:`y_1, \dots, y_m` of the j-th window after the reference, and their differences :math:`d_i = y_i - x_i`. There is an
    alarm if one of two statistics reaches a threshold,

    .. math:: \frac{|\sum_i d_i|}{\sqrt{\sum_i d_i^2}} \ge c \quad\text{or}\quad
              \frac{|\sum_i \operatorname{sign} d_i|}{\sqrt{\sum_i (\operatorname{sign} d_i)^2}} \ge c,
              \qquad c = \sqrt{2\log\frac{4\,e(e+1)\,j(j+1)}{\alpha}}.

    The first detects a change of the mean. The second detects a change of the typical value, even if a few huge values hide it
    from the first. Neither detects a change of the spread alone. After an alarm, the next window is the new reference, and j
    restarts at 1. The number of the reference is e, from 1.

    *Guarantee.* An alarm is false if the values from the start of its reference to the end of its window are exchangeable given
    the earlier values; for example if they are independent and identically distributed. With probability at least 1 - ``alpha``
    there is never a false alarm, for any length of the stream and any number of looks. The same holds for independent values
    whose laws repeat with period m, such as hourly values with a weekly cycle if a window is a whole number of weeks. Values may
    be unbounded, and need no moments. Proof: docs/monitoring.md.

    *Not covered.* A learner that changes its choices changes its rewards. An alarm on such rewards is right, but may show only
    the learning. Watch the rewards of a fixed policy, such as a control group, or the residuals ``reward - prediction`` of a
    fixed model. Dependent values, such as slow waves longer than the window, cause more alarms than ``alpha`` says. The absence
    of an alarm proves nothing.

    *Delay.* A change of the mean by :math:`c\,\sigma\sqrt{2/m}` is detected in the first whole window after it with probability
    about 1/2, for values with standard deviation :math:`\sigma`.

    At each alarm the metric issues a :class:`DriftWarning`. The results do not depend on how the values are split into updates.
    The metric covers one process: ``compute`` gathers nothing, and ``sync`` of several ranks raises a RuntimeError. Cost of n
    values: O(n). Memory: O(m) for each stream.

    Args:
        window: m, number of values in a window, at least c^2 of the first comparison. The statistics are at most the root of
            m, so with a window below about 50 no alarm is possible soon after the start.
        alpha: probability of any false alarm, in (0, 1), for each stream.
        batch_shape: ``*B``, batch shape of the streams.
        warn: whether to issue the warnings.

    Shape:
        - ``update(value)``: one round ``(*B)``, or n rounds in order ``(n, *B)``; floating point, of magnitude up to 5.6e102.
        - ``compute()``: a :class:`DriftReport`.

    Example:
        >>> alarm = DriftAlarm(window=100, alpha=0.01, warn=False)
        >>> generator = torch.Generator().manual_seed(0)
        >>> alarm.update(torch.rand(500, generator=generator))
        >>> alarm.compute().alarms
        tensor(0)
        >>> alarm.update(0.5 + torch.rand(100, generator=generator))
        >>> alarm.compute().last_at
        tensor(600)

    Reference:
        The bound is Hoeffding's for weighted signs, JASA 58, 1963, on differences over the root of their sum of squares, as in
        Efron, JASA 64, 1969. The threshold spends alpha over the comparisons by a union bound.
    """

    if TYPE_CHECKING:

        def __call__(self, value: Tensor) -> DriftReport: ...

    higher_is_better = None
    least = {"rounds": 0, "epoch": 0, "compared": 0, "first_at": 0, "last_at": 0}

    constants: Tensor
    reference: Tensor
    sums: Tensor
    latest: Tensor
    epoch: Tensor
    compared: Tensor
    first_at: Tensor
    last_at: Tensor
    ratios: Tensor

    def __init__(
        self, window: int = 500, alpha: float = 0.01, batch_shape: tuple[int, ...] = (), *, warn: bool = True
    ) -> None:
        super().__init__(sync_on_compute=False)
        self.window, self.alpha = positive_integer("window", window), within("alpha", alpha, 0.0, 1.0)
        self.batch_shape, self.warn = (
            sizes("batch_shape", batch_shape),
            instance_of("warn", warn, bool, "True or False"),
        )
        if self.window < (least := self.threshold(1) ** 2):
            raise ValueError(f"window: expected at least {math.ceil(least)} values for alpha = {alpha:g}, got {window}")
        zero = torch.zeros(self.batch_shape, dtype=torch.float64)
        count = zero.long()
        self._add_states(
            of_one_rank,
            # Options that the other states depend on, to be checked on loading.
            constants=torch.tensor([self.window, self.alpha], dtype=torch.float64),
            rounds=torch.zeros((), dtype=torch.int64),
            reference=zero.expand(self.window, *self.batch_shape).clone(),
            # Of the present window: sums of d, d^2, sign d and (sign d)^2, and of the values.
            sums=zero.expand(5, *self.batch_shape).clone(),
            latest=zero,  # mean of the last complete window
            epoch=count,  # number of alarms
            compared=count.clone(),  # windows since the reference began, including the reference
            first_at=count.clone(),
            last_at=count.clone(),
            # Of the i-th window in row i % KEPT, -1 where there was no comparison.
            ratios=torch.full((KEPT, *self.batch_shape), -1.0, dtype=torch.float64),
        )

    def update(self, value: Tensor) -> None:
        """Add one or more values."""
        self._refuse_synced()
        value = check_rounds("value", value, self.batch_shape).detach().to(self.reference)
        value = value.reshape(-1, *self.batch_shape)
        check_values("value", value)
        while len(value):
            place = int(self.rounds) % self.window
            part, value = value[: self.window - place], value[self.window - place :]
            last = place + len(part)
            known = self.reference[place:last]
            kept = torch.where(self.compared == 0, part, known)  # streams that need a reference
            self.reference = torch.cat([self.reference[:place], kept, self.reference[last:]])
            d = part - known
            terms = torch.stack([d, d.square(), d.sign(), d.sign().square(), part], 1)
            # Adding one by one makes the result independent of the split into updates.
            self.sums = torch.cat([self.sums.unsqueeze(0), terms]).cumsum(0)[-1].clone()
            self.rounds = self.rounds + len(part)
            if last == self.window:
                self._end_window()

    def compute(self) -> DriftReport:
        """Return a :class:`DriftReport` on all values so far.

        Means and ratio cover complete windows.
        """
        windows = int(self.rounds) // self.window
        nothing = torch.full_like(self.latest, torch.nan)
        ratio = self.ratios[(windows - 1) % KEPT]
        return DriftReport(
            self.rounds.clone(),
            self.epoch.clone(),
            self.first_at.clone(),
            self.last_at.clone(),
            torch.where(self.compared > 0, self.reference.mean(0), nothing),
            self.latest.clone() if windows else nothing,
            torch.where(ratio >= 0.0, ratio, nothing),
        )

    def forward(self, value: Tensor) -> DriftReport:
        """Add values and return the report on all values so far."""
        self.update(value)
        return self.compute()

    def recent(self) -> tuple[Tensor, Tensor]:
        """Return the last 256 windows: values at their ends, ``(p)``, and ratios.

        A ratio, ``(p, *B)``, is the larger statistic over the threshold; NaN for a reference window.
        """
        windows = int(self.rounds) // self.window
        shown = torch.arange(max(0, windows - KEPT), windows, device=self.ratios.device)
        ratios = self.ratios[shown % KEPT]
        return (shown + 1) * self.window, torch.where(ratios >= 0.0, ratios, torch.nan)

    def plot(self, val: Any = None, ax: Any = None, *, label: str | None = None) -> tuple[Any, Any]:
        """Draw the ratio of statistic and threshold, of windows or of reports.

        For a batch of learners it is the largest ratio. An alarm is a point at 1 or above.

        Args:
            val: a :class:`DriftReport`, or a list of them; None for the last windows.
            ax: matplotlib axes; None for a new figure of pyplot.
            label: of the curve, written at its end.

        Returns:
            The figure and the axes.
        """
        axes = axes_for(val, ax)
        if val is None:
            rounds, ratios = self.recent()
        else:
            reports = [val] if (several := results_of(val)) is None else several
            rounds = torch.tensor([int(report.rounds) for report in reports])
            ratios = torch.stack([report.ratio for report in reports]) if reports else self.ratios[:0]
        rounds, ratios = rounds.cpu(), ratios.cpu()
        largest = ratios.unsqueeze(-1).flatten(1).nan_to_num(-1.0).amax(1)  # -1: no stream has a ratio
        is_known = largest >= 0.0
        (line,) = axes.plot(
            rounds[is_known].numpy(), largest[is_known].numpy(), next_style(axes), marker=".", label=label
        )
        if label is not None:
            label_end(axes, line, label)
        if not any(other.get_gid() == THRESHOLD for other in axes.lines):
            axes.axhline(1.0, color=GREY, linestyle=":", linewidth=1.5, gid=THRESHOLD)
            axes.annotate("alarm", (0.01, 1.0), xycoords=axes.get_yaxis_transform(), va="bottom", color=GREY)
        axes.set_ylim(0.0, max(1.2, 1.1 * float(largest.max()), axes.get_ylim()[1]) if len(largest) else 1.2)
        axes.set_xlabel("round")
        axes.set_ylabel("statistic / threshold")
        return finished(axes)

    def threshold(self, comparison: int, alarms: int = 0) -> float:
        """Return the threshold of the j-th comparison, from 1, after ``alarms`` alarms."""
        if not 0 <= (before := integer("alarms", alarms)) < 2**53:
            raise ValueError(f"alarms: expected an integer from 0 to 2^53, got {alarms}")
        j, e = torch.tensor([rounds_at_most("comparison", comparison), before], dtype=torch.int64)
        return float(self._thresholds(j, e))

    def _thresholds(self, comparison: Tensor, alarms: Tensor) -> Tensor:
        # Two statistics with two sides each. The probabilities alpha / (e (e + 1) j (j + 1)) add up to alpha.
        j, e = comparison.double(), alarms.double() + 1.0
        return (2.0 * (4.0 * e * (e + 1.0) * j * (j + 1.0) / self.alpha).log()).sqrt()

    def _end_window(self) -> None:
        """Compare a complete window with the reference, unless it is the reference."""
        total, squares, signs, untied, values = self.sums
        means = torch.where(squares > 0.0, total.abs() / squares.sqrt(), 0.0)
        typical = torch.where(untied > 0.0, signs.abs() / untied.sqrt(), 0.0)
        is_compared = self.compared > 0
        ratio = means.maximum(typical) / self._thresholds(self.compared.clamp(min=1), self.epoch)
        is_alarm = is_compared & (ratio >= 1.0)
        self.ratios = self.ratios.clone()
        self.ratios[(int(self.rounds) // self.window - 1) % KEPT] = torch.where(is_compared, ratio, -1.0)
        before, self.latest, self.sums = self.reference, values / self.window, torch.zeros_like(self.sums)
        self.first_at = torch.where(is_alarm & (self.epoch == 0), self.rounds, self.first_at)
        self.last_at = torch.where(is_alarm, self.rounds, self.last_at)
        self.epoch = self.epoch + is_alarm.long()
        self.compared = torch.where(is_alarm, 0, self.compared + 1)
        for index in is_alarm.nonzero().tolist() if self.warn else ():
            place = tuple(index)
            text = (
                f"values have changed{f' in stream {index}' if index else ''}: after {int(self.rounds)} of them, the mean of the "
                f"last {self.window} is {float(self.latest[place]):.4g}, and {float(before.mean(0)[place]):.4g} in the window "
                f"that it is compared with. The probability of any false alarm is at most {self.alpha:g}"
            )
            warnings.warn(text, DriftWarning, stacklevel=level_of_caller())

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
