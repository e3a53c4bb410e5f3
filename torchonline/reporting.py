"""HTML report on a decision log: one page with pictures, for an operator."""

import base64
import io
import itertools
import math
import os
import threading
from array import array
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jinja2 import Environment, StrictUndefined
from torch import Tensor

from torchonline.core.axes import plain_label
from torchonline.core.checks import instance_of, positive_integer, within
from torchonline.core.files import replace_file
from torchonline.core.generators import OwnDraws
from torchonline.core.ops import of_chosen
from torchonline.feedback.log import pages
from torchonline.metrics.by_arm import MeanByArm
from torchonline.metrics.by_time import ValueByTime
from torchonline.metrics.drift import DriftAlarm
from torchonline.metrics.histogram import LoggedProbabilities, LogHistogram
from torchonline.metrics.plots import draw_bands
from torchonline.metrics.sample_size import EffectiveSampleSize
from torchonline.metrics.shares import MOST_SHOWN, ActionShares
from torchonline.policies.arm_ids import by_place
from torchonline.policies.chosen import predicted
from torchonline.policies.policy import Policy

# Number of points of a curve, and largest number of encoder versions that are shown separately.
POINTS, MOST_VERSIONS = 64, 1000
# Number of prediction groups in the calibration picture, and number of rounds that determine their boundaries.
GROUPS, ROUNDS_FOR_GROUPS = 10, 2000
# Paul Tol's bright and light schemes, ordered so that neighbours differ.
COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#ee8866", "#99ddff", "#44bb99", "#9a6324")
# Matplotlib's settings are global to the process.
DRAWING = threading.Lock()
STYLE: dict[str, Any] = {
    "figure.figsize": (5.4, 3.1),
    "figure.constrained_layout.use": True,
    "font.size": 9.5,
    "font.family": "sans-serif",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "0.45",
    "axes.labelcolor": "0.2",
    "xtick.color": "0.35",
    "ytick.color": "0.35",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "0.9",
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "lines.linewidth": 1.6,
    "svg.fonttype": "path",
    "svg.hashsalt": "torchonline",
}
# Ticks of the delay axis.
TICKS = {1e-3: "1 ms", 1e-2: "10 ms", 0.1: "0.1 s", 1.0: "1 s", 10.0: "10 s", 60.0: "1 min", 600.0: "10 min"}
TICKS |= {3600.0: "1 h", 36000.0: "10 h", 86400.0: "1 d", 864000.0: "10 d", 8640000.0: "100 d"}


def report(
    log: Any,
    path: str | Path = "report.html",
    *,
    policy: Any = None,
    encoder: str | None = None,
    window: int = 500,
    alpha: float = 0.01,
    title: str = "Decision log",
    page_size: int = 1000,
) -> Path:
    r"""Write one HTML page with pictures of a decision log, and return its path.

    The page shows: the log's counts; shares of actions, logged probabilities and the effective sample size over time; rewards by
    arm with standard errors; reward over time with the verdict of a :class:`~torchonline.metrics.DriftAlarm`; delays of feedback;
    and encoder versions. It is one file, and its content security policy forbids scripts and remote content. docs/monitoring.md
    explains each picture. Matplotlib draws them.

    Rewards count as a learner would learn them: a decision whose attribution window closed without a reward counts with the log's
    default reward.

    *Reward over time.* With an attribution window, defaults become known later than rewards, so in the order known the first
    rewards are too high. The curve and the alarm therefore use the rewards in the order of the decisions, up to the first open
    decision. Without a window, a lost reward would stop them there. They then use the rewards in the order known, and delays that
    depend on the reward can raise an alarm.

    *With a policy*, in its present state, the page also shows the effective sample size of the log for that policy, the widths
    of its confidence intervals, and its predictions against the rewards. If the policy has learnt these rewards, the last picture
    looks better than the policy is on new decisions. The policy does not learn, and the caller's random state does not change.
    These pictures omit decisions for arms that were removed from the policy. If the policy's actions have names, tables show
    them with the ids, and pictures show names of plain letters and the ids of the others. Without a policy, the page shows ids,
    as the log does.

    *The alarm* compares each window of rewards with the first window, or with the window after the last alarm. With a fixed
    ``window`` and ``alpha``, all reports on one growing log make the same comparisons, so ``alpha`` bounds the probability of a
    false alarm in any of them.

    The log is read in pages, twice for decisions and once for rewards. Memory: O(page_size) decisions, the window, and a count
    for each action; with an attribution window also 8 bytes for each decision, and the rewards that became known before the
    rewards of earlier decisions. Decisions that are logged during the call are left out, and so are all rewards from the first
    reward of such a decision on. The file is written to a temporary name, synced and renamed, so a reader never sees a partial
    file.

    Args:
        log: a :class:`~torchonline.feedback.DecisionLog`, or any object with equivalent methods ``read(after, limit)``,
            ``decisions(after, limit)`` and ``counts()``. If its attribute ``window`` is not None, every decision closes
            eventually.
        path: path of the page. An existing file is replaced.
        policy: a :class:`Policy`, :class:`~torchonline.DisjointArms` or another policy with a scaler, or a
            :class:`~torchonline.models.BanditHead`, without ``batch_shape``. None omits its pictures.
        encoder: version of the encoder whose features fit the policy; its pictures then cover the decisions of this version. None
            if all features fit, for example if logged inputs are raw.
        window: number of rewards in a window of the drift alarm.
        alpha: probability of a false drift alarm, in (0, 1).
        title: title of the page.
        page_size: number of decisions or rewards to read at once.

    Raises:
        TypeError: ``log`` lacks a method.
        ValueError: ``policy`` has a ``batch_shape``, or does not take the inputs of the log.
        ImportError: matplotlib is not installed.

    Example:
        >>> from torchonline.feedback import DecisionLog
        >>> log, policy, arms = DecisionLog(":memory:"), OFUL(2), torch.eye(2)
        >>> k, probability = policy.select_with_probability(arms)
        >>> _ = log.decide("first visitor", arms, k, probability)
        >>> _ = log.reward("first visitor", 0.5)
        >>> report(log, folder / "report.html", policy=policy).name
        'report.html'
    """
    for name in ("read", "decisions", "counts"):
        if not callable(getattr(log, name, None)):
            raise TypeError(f"log: expected an object with read, decisions and counts, got {type(log).__name__}")
    if encoder is not None:
        instance_of("encoder", encoder, str, "a string or None")
    positive_integer("window", window)
    within("alpha", alpha, 0.0, 1.0)
    instance_of("title", title, str, "a string")
    page_size, path = positive_integer("page_size", page_size), Path(path)
    summary = Summary(log, None if policy is None else Reader(policy, encoder), window, alpha, page_size)
    beside = f".{path.name}.{os.getpid()}.{threading.get_ident()}.part"
    replace_file(path, _page(summary, title).encode(), beside)
    return path


class Version(NamedTuple):
    """Decisions of one encoder version."""

    name: str
    decisions: int
    first: float
    last: float


class Summary:
    """Summary of a log, with the data of the page.

    Attributes:
        counts: counts of the log, by name.
        decisions: number of decisions read.
        first, last: Unix seconds of the first and the last decision; 0 without decisions.
        actions: ids of the actions that are shown separately, in order.
        has_others: whether there are further actions, which share the last index of the metrics.
        names, labels, colours: names of the shown actions and of the others in tables, in pictures, and their colours.
        versions: encoder versions in the order of their first decision.
        shares, version_shares, probabilities, probability_by_time, weights, policy_weights: metrics of the decisions.
        rewards, rewards_by_time, alarm, delays, defaults: metrics of the rewards; the second value of ``rewards_by_time`` is the
            squared reward.
        has_window: whether ``rewards_by_time`` and ``alarm`` are in the order of the decisions, up to the first open one.
        widths, calibration: metrics of the policy; the calibration has the predictions and rewards of each group.
    """

    def __init__(self, log: Any, reader: "Reader | None", window: int, alpha: float, page_size: int) -> None:
        self.counts: dict[str, int] = dict(log.counts())
        self.has_policy = reader is not None
        self.has_window = getattr(log, "window", None) is not None
        self._numbers = array("q")  # numbers of the decisions
        # The number of decisions with rewards in order, and rewards that are ahead of that order.
        self._done, self._early = 0, dict[int, float]()
        self._look_over(log, page_size, {} if reader is None or reader.arms is None else reader.arms.names_by_id())
        places = len(self.actions) + self.has_others
        self._place = {action: i for i, action in enumerate(self.actions)}
        self.shares = ActionShares(max(1, places), points=POINTS)
        self.version_shares = ActionShares(max(1, min(len(self.versions), MOST_SHOWN + 1)), points=POINTS)
        self.probabilities = LoggedProbabilities()
        self.probability_by_time = ValueByTime("logged probability", points=POINTS)
        self.weights, self.policy_weights = EffectiveSampleSize(points=POINTS), EffectiveSampleSize(points=POINTS)
        self._add_decisions([], reader)
        for page in pages(log.decisions, "number", page_size, self._last_number):
            self._add_decisions(page, reader)
        self.rewards = MeanByArm(max(1, places), "reward")
        self.rewards_by_time = ValueByTime("reward", (2,), points=POINTS)
        self.alarm = DriftAlarm(window, alpha, warn=False)
        self.delays = LogHistogram(1e-3, 1e8, name="delay of the feedback")
        self.defaults = 0
        self.widths = ValueByTime("width of the confidence interval", points=POINTS)
        self.calibration: tuple[MeanByArm, MeanByArm] | None = None
        self._waiting: list[tuple[Tensor, Tensor]] = []
        self._add_rewards([], reader)  # torchmetrics warns about metrics without an update
        for page in pages(log.read, "position", page_size):
            known = list(itertools.takewhile(lambda one: one.number <= self._last_number, page))
            self._add_rewards(known, reader)
            if len(known) < len(page):  # stop: the alarm must see a prefix of the rewards of later reports
                break
        self._group_waiting()

    def _look_over(self, log: Any, page_size: int, names: dict[int, str]) -> None:
        """Count actions and versions in a first pass over the decisions.

        ``names`` are those of the policy's actions, by id.
        """
        seen: Counter[int] = Counter()
        versions: dict[str, list[Any]] = {}
        self._last_number = 0
        for page in pages(log.decisions, "number", page_size):
            seen.update(int(one.action) for one in page)
            for one in page:
                name = str(one.encoder)
                name = name if name in versions or len(versions) < MOST_VERSIONS else "(further versions)"
                found = versions.setdefault(name, [0, one.time, one.time])
                found[0], found[1], found[2] = found[0] + 1, min(found[1], one.time), max(found[2], one.time)
            self._last_number = page[-1].number
            if self.has_window:
                self._numbers.extend(one.number for one in page)
        self.decisions = seen.total()
        self.has_others = len(seen) > MOST_SHOWN
        self.actions = sorted(action for action, _ in seen.most_common(MOST_SHOWN))
        self.actions_seen = len(seen)
        self.most_actions = max(seen, default=0) + 1
        self.versions = [Version(name, *found) for name, found in versions.items()]
        self.first = min((version.first for version in self.versions), default=0.0)
        self.last = max((version.last for version in self.versions), default=0.0)
        others = ["others"] if self.has_others else []
        self.names = [f"{names[one]} ({one})" if one in names else str(one) for one in self.actions] + others
        self.labels = [_label(names.get(one, ""), one) for one in self.actions] + others
        self.colours = [*COLOURS[: len(self.actions)], "0.75"]

    def _places(self, page: list[Any]) -> Tensor:
        others = len(self.actions)
        return torch.tensor([self._place.get(int(one.action), others) for one in page], dtype=torch.int64)

    def _add_decisions(self, page: list[Any], reader: "Reader | None") -> None:
        self.shares.update(self._places(page))
        number = {version.name: i for i, version in enumerate(self.versions)}
        most = self.version_shares.actions - 1
        self.version_shares.update([min(number.get(str(one.encoder), most), most) for one in page])
        probability = torch.tensor([float(one.probability) for one in page], dtype=torch.float64)
        self.probabilities.update(probability)
        self.probability_by_time.update(probability)
        arms = torch.tensor([self._arms_of(one) for one in page], dtype=torch.float64)
        self.weights.update(1.0 / (arms * probability))
        if reader is not None:
            page = [one for one in page if reader.fits(one)]
            probability = torch.tensor([float(one.probability) for one in page], dtype=torch.float64)
            weight = reader.probabilities(page) / probability
            self.policy_weights.update(weight[~weight.isnan()])

    def _arms_of(self, decision: Any) -> int:
        """Return a decision's number of arms, or the best estimate from the log."""
        if decision.mask is not None:
            return int(decision.mask.sum())
        if decision.inputs.dim() == 2:  # a row for each arm
            return len(decision.inputs)
        return self.most_actions

    def _add_rewards(self, page: list[Any], reader: "Reader | None") -> None:
        reward = torch.tensor([float(one.reward) for one in page], dtype=torch.float64)
        self.rewards.update(self._places(page), reward)
        reward = self._in_order(page) if self.has_window else reward
        self.rewards_by_time.update(torch.stack([reward, reward.square()], -1))
        self.alarm.update(reward)
        self.defaults += sum(bool(one.is_default) for one in page)
        delays = [float(one.known_at) - float(one.time) for one in page if not one.is_default]
        self.delays.update(torch.tensor(delays, dtype=torch.float64))
        if reader is not None:
            page = [one for one in page if reader.fits(one)]
            mean, low, high = reader.predicted(page)
            self.widths.update(high - low)
            self._waiting.append((mean, torch.tensor([float(one.reward) for one in page], dtype=torch.float64)))
            if self.calibration is not None or sum(len(mean) for mean, _ in self._waiting) >= ROUNDS_FOR_GROUPS:
                self._group_waiting()

    def _in_order(self, page: list[Any]) -> Tensor:
        """Return the next known rewards in the order of the decisions."""
        self._early.update((one.number, float(one.reward)) for one in page)
        found = []
        while self._done < len(self._numbers) and self._numbers[self._done] in self._early:
            found.append(self._early.pop(self._numbers[self._done]))
            self._done += 1
        return torch.tensor(found, dtype=torch.float64)

    def _group_waiting(self) -> None:
        """Group predictions and rewards by similar predictions."""
        if not self._waiting:
            return
        mean, reward = (torch.cat(values) for values in zip(*self._waiting, strict=True))
        if len(mean) == 0:
            return
        self._waiting = []
        if self.calibration is None:
            self._ends = mean.quantile(torch.arange(1, GROUPS, dtype=torch.float64) / GROUPS).unique()
            self.calibration = MeanByArm(GROUPS, "prediction"), MeanByArm(GROUPS, "reward")
        group = torch.bucketize(mean, self._ends)
        for metric, value in zip(self.calibration, (mean, reward), strict=True):
            metric.update(group, value)


def _label(name: str, action: int) -> str:
    """Return an action's name for a picture if its font has all letters, or its id."""
    is_plain = name.isascii() and name.isprintable() and name[:1] not in ("", "_")  # a legend hides what begins with _
    return plain_label(name) if is_plain and len(name) <= 24 else str(action)


class Reader:
    """Evaluation of a policy, in its present state, on pages of a log."""

    def __init__(self, policy: Any, encoder: str | None) -> None:
        if not isinstance(policy, Policy) or not policy.takes_inputs:
            raise TypeError(f"policy: expected a Policy on inputs, got {type(policy).__name__}")
        if policy.batch_shape:
            raise ValueError(f"policy: expected no batch_shape, got {policy.batch_shape}")
        self.policy, self.encoder = policy, encoder
        self.device, self.arms = policy._like().device, policy.with_ids()

    def fits(self, decision: Any) -> bool:
        """Return whether a decision's encoder fits and its action was not removed."""
        if self.arms is not None and self.arms.was_removed(int(decision.action)):
            return False
        return self.encoder is None or decision.encoder == self.encoder

    def probabilities(self, page: list[Any]) -> Tensor:
        """Return the policy's probabilities of the logged actions, ``(n)``.

        They are NaN if the log holds only the features of the chosen arm.
        """

        def of_group(inputs: Tensor, mask: Tensor | None, action: Tensor) -> Tensor:
            if self._is_chosen_alone(inputs):
                return torch.full((1, len(inputs)), torch.nan)
            # The policy's scores may be random.
            with OwnDraws(), torch.no_grad():
                found = self.policy.probabilities(inputs, mask)
                return of_chosen(found, self.policy._placed(action)).unsqueeze(0)

        return self._of_groups(page, of_group, 1)[0]

    def predicted(self, page: list[Any]) -> Tensor:
        """Return predictions, lower and upper bounds for the logged actions, ``(3, n)``."""

        def of_group(inputs: Tensor, mask: Tensor | None, action: Tensor) -> Tensor:
            if self._is_chosen_alone(inputs):
                inputs, action = inputs.unsqueeze(-2), torch.zeros_like(action)
            policy, x = self.policy._decider(inputs, False)
            return torch.stack(predicted(policy, x, action))

        return self._of_groups(page, of_group, 3)

    def _is_chosen_alone(self, inputs: Tensor) -> bool:
        """Return whether inputs ``(n, ...)`` are features of the chosen arms only."""
        return self.policy.has_arm_inputs and inputs.dim() == self.policy.item_dims

    def _of_groups(self, page: list[Any], call: Callable[..., Tensor], rows: int) -> Tensor:
        """Call a function on groups of a page's decisions with equal shapes."""
        found = torch.empty(rows, len(page), dtype=torch.float64)

        def kind(i: int) -> tuple[Any, ...]:
            mask = page[i].mask
            return (tuple(page[i].inputs.shape), str(page[i].inputs.dtype), () if mask is None else tuple(mask.shape))

        for _, numbers in itertools.groupby(sorted(range(len(page)), key=kind), key=kind):
            group = list(numbers)
            inputs = torch.stack([page[i].inputs for i in group]).to(self.device)
            has_mask = page[group[0]].mask is not None
            mask = torch.stack([page[i].mask for i in group]).to(self.device) if has_mask else None
            mask = mask if mask is None or self.arms is None else by_place(mask, self.arms)
            action = torch.tensor([int(page[i].action) for i in group], device=self.device)
            try:
                found[:, group] = call(inputs, mask, action).double().cpu()
            except (ValueError, RuntimeError, IndexError) as error:
                raise ValueError(
                    f"policy: expected a policy that takes the inputs and actions of the log, got an error for decision "
                    f"{page[group[0]].id!r} with inputs of shape {tuple(inputs.shape[1:])}: {error}"
                ) from error
        return found


def _page(s: Summary, title: str) -> str:
    """Return the page as text."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ImportError("report: expected matplotlib, got none; pip install matplotlib") from error
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    environment.filters |= {"whole": _whole, "number": _number, "date": _date, "duration": _duration}
    template = environment.from_string(files("torchonline").joinpath("report.html.j2").read_text("utf-8"))
    if not s.decisions:
        return template.render(s=s, title=title)
    with DRAWING, style():
        pictures = [(name, *_svg(draw)) for name, draw in pictures_of(s).items()]
    size, delays = s.weights.compute(), s.delays.compute()
    actions = zip(s.names, s.shares.compute().reshape(-1).tolist(), *_by_action(s), strict=True)
    return template.render(
        s=s,
        title=title,
        pictures=pictures,
        drift=s.alarm.compute(),
        alarms=_alarms(s) if int(s.alarm.epoch) else "",
        size=size,
        largest_gap=max(0.05, 4.0 * float(size.weight_error.nan_to_num(0.0, posinf=0.0))),
        actions=[
            (name, f"{share * s.decisions:,.0f}", f"{share:.1%}", _whole(count), _known(mean), _known(error))
            for name, share, count, mean, error in actions
        ],
        versions=[(v.name or "(none named)", _whole(v.decisions), _date(v.first), _date(v.last)) for v in s.versions],
        delays=[_whole(s.delays.rounds), *map(_duration, (delays.smallest, *delays.quantiles, delays.largest))],
    )


# Pictures. Other text from users than plain names appears in tables only, never in a picture.


def pictures_of(s: Summary) -> dict[str, Callable[[Any], str]]:
    """Return the pictures that the log has data for.

    Each title maps to a function that draws the picture on matplotlib axes and returns its caption.
    """
    has_rewards, has_test = int(s.alarm.rounds), int(s.alarm.rounds) >= 2 * s.alarm.window
    pictures = {
        "Shares of actions": (_draw_actions, True),
        "Reward by action": (_draw_reward_by_action, int(s.rewards.rounds)),
        "Reward over time": (_draw_reward, has_rewards),
        "Drift test": (_draw_drift, has_test),
        "Logged probabilities": (_draw_probabilities, True),
        "Exploration over time": (_draw_exploration, True),
        "Effective sample size": (_draw_sample_size, True),
        "Delay of the feedback": (_draw_delays, int(s.delays.rounds)),
        "Encoder versions": (_draw_versions, len(s.versions) > 1),
        "Confidence intervals": (_draw_widths, int(s.widths.rounds)),
        "Predictions beside rewards": (_draw_calibration, s.calibration is not None),
    }
    return {title: partial(draw, s) for title, (draw, is_known) in pictures.items() if is_known}


def style() -> AbstractContextManager[None]:
    """Return a context manager for matplotlib in the style of the page."""
    import matplotlib
    import matplotlib.style

    cycle = matplotlib.rcsetup.cycler(color=COLOURS)
    context: Any = matplotlib.style.context({**STYLE, "axes.prop_cycle": cycle}, after_reset=True)
    return context


def _svg(draw: Callable[[Any], str]) -> tuple[str, str]:
    """Return the caption of a picture and its SVG in base64."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    figure, file = Figure(), io.BytesIO()
    FigureCanvasSVG(figure)
    caption = draw(figure.add_subplot())
    figure.savefig(file, format="svg", metadata={"Date": None})
    return caption, base64.b64encode(file.getvalue()).decode("ascii")


def _draw_actions(s: Summary, axes: Any) -> str:
    _draw_shares(axes, s.shares, s.labels, s.colours, "action")
    others = f" The {s.actions_seen - len(s.actions):,} others are shown together." if s.has_others else ""
    return f"In the order of the decisions.{others}"


def _draw_reward_by_action(s: Summary, axes: Any) -> str:
    count, mean, error = _by_action(s)
    shown = count.nonzero().squeeze(-1).tolist()
    for x, i in enumerate(shown):
        bar = float(error[i].nan_to_num(0.0, posinf=0.0))
        axes.errorbar([x], [float(mean[i])], [bar], fmt="o", color=s.colours[i], capsize=4, markersize=7)
    overall = float((count * mean.nan_to_num(0.0)).sum() / count.sum())  # arms without rounds have no mean
    axes.axhline(overall, color="0.5", linestyle="--", linewidth=1.0, label=f"all: {_number(overall)}")
    axes.set_xticks(range(len(shown)), [s.labels[i] for i in shown])
    axes.grid(False, axis="x")
    axes.set(xlim=(-0.6, len(shown) - 0.4), xlabel="action", ylabel="mean reward")
    axes.legend()
    return "With one standard error. Not a comparison of the arms: they were played in different contexts."


def _draw_reward(s: Summary, axes: Any) -> str:
    rounds, means = s.rewards_by_time.means()  # of the reward and of its square
    counts = rounds.diff(prepend=rounds.new_zeros(1))
    mean, square = means.unbind(-1)
    error = ((square - mean.square()).clamp(min=0.0) / counts).sqrt().numpy()
    x, y = rounds.numpy(), mean.numpy()
    axes.plot(x, y, marker=".", label="mean")
    axes.fill_between(x, y - 2.0 * error, y + 2.0 * error, alpha=0.2, linewidth=0, label="2 standard errors")
    for i, time in enumerate(_recent_alarms(s)):
        axes.axvline(time, color=COLOURS[1], label="" if i else "drift alarm")
    axes.set_xlim(left=0)
    axes.set(xlabel=_order(s), ylabel="reward")
    _thousands(axes, "x")
    axes.legend()
    verdict = "not tested yet"
    if int(s.alarm.rounds) >= 2 * s.alarm.window:
        verdict = f"alarms at reward {_alarms(s)}" if int(s.alarm.epoch) else "no alarm"
    caption = f"Drift: {verdict}. Any false alarm has probability at most {s.alarm.alpha:g}."
    if left := int(s.rewards.rounds) - int(s.alarm.rounds):
        caption += f" {left:,} rewards of decisions after the first open one are left out."
    return caption


def _draw_drift(s: Summary, axes: Any) -> str:
    s.alarm.plot(ax=axes)
    axes.set_ylim(top=max(1.2, 1.1 * axes.dataLim.y1))
    axes.set_xlim(left=0)
    axes.set_xlabel(_order(s))
    _thousands(axes, "x")
    windows = f"Windows of {s.alarm.window:,} rewards"
    return f"{windows} against the first one, or against the one after the last alarm. An alarm comes at 1."


def _draw_probabilities(s: Summary, axes: Any) -> str:
    smallest = float(s.probabilities.compute().smallest)
    s.probabilities.draw_bars(axes)
    axes.set(xlim=(max(1e-6, 0.8 * float(s.probabilities.smallest)), 1.3), ylabel="decisions")
    _thousands(axes, "y")
    return f"Of the chosen actions. The smallest, {_number(smallest)}, gives weights up to {_number(1.0 / smallest)}."


def _draw_exploration(s: Summary, axes: Any) -> str:
    found = s.probability_by_time.by_time()
    axes.plot(found.rounds.numpy(), found.mean.numpy(), label="mean")
    axes.plot(found.rounds.numpy(), found.least.numpy(), label="smallest")
    axes.set_yscale("log")
    axes.set_ylim(top=1.3)
    axes.set(xlabel="decision", ylabel="logged probability")
    _thousands(axes, "x")
    axes.legend()
    return "Small probabilities make a log hard to learn other policies from."


def _draw_sample_size(s: Summary, axes: Any) -> str:
    axes.plot([0, s.decisions], [0, s.decisions], color="0.6", linestyle="--", linewidth=1.0, label="all")
    means = []
    for name, weights in (("uniform", s.weights), ("given", s.policy_weights)):
        if int(weights.rounds):
            weights.plot(ax=axes)
            axes.lines[-1].set_label(f"{name} policy")
            means.append(f"{_number(weights.compute().mean_weight)} for the {name} policy")
    _thousands(axes, "xy")
    axes.legend()
    return f"Mean weight {', '.join(means)}; clearly below 1, actions of that policy are missing in the log."


def _draw_delays(s: Summary, axes: Any) -> str:
    s.delays.draw_bars(axes)
    low, high = axes.get_xlim()
    ticks = {seconds: name for seconds, name in TICKS.items() if low <= seconds <= high}
    axes.set_xticks([*ticks], [*ticks.values()])
    axes.minorticks_off()
    axes.set(xlabel="time from decision to reward", ylabel="rewards")
    _thousands(axes, "y")
    quantiles = s.delays.compute().quantiles
    caption = f"Median {_duration(quantiles[2])}, 99 % within {_duration(quantiles[4])}."
    if s.defaults:
        caption += f" {s.defaults:,} decisions were closed without a reward, and are not shown."
    return caption


def _draw_versions(s: Summary, axes: Any) -> str:
    shown = s.version_shares.actions
    names = [f"{i + 1}" for i in range(shown)]
    if shown < len(s.versions):
        names[-1] = "later"
    _draw_shares(axes, s.version_shares, names, [*COLOURS, "0.75"][:shown], "version")
    return "Numbered in the order of their first decision, as in the table below."


def _draw_widths(s: Summary, axes: Any) -> str:
    s.widths.plot(ax=axes)
    axes.lines[-1].set_label("mean, and range")
    axes.set_ylim(bottom=min(0.0, axes.dataLim.y0))
    axes.set(xlabel="reward, in the order known", ylabel="width, in units of the reward")
    _thousands(axes, "x")
    axes.legend()
    return "Of the chosen actions, by the given policy in its present state."


def _draw_calibration(s: Summary, axes: Any) -> str:
    predictions, rewards = (metric.compute() for metric in s.calibration or ())
    used = predictions.rounds.nonzero().squeeze(-1)
    x, y = predictions.mean[used], rewards.mean[used]
    error = rewards.standard_error[used].nan_to_num(0.0)
    both = torch.cat([x, y])
    ends = [float(both.min()), float(both.max())]
    axes.plot(ends, ends, color="0.5", linestyle="--", linewidth=1.0, label="perfect")
    axes.errorbar(x.numpy(), y.numpy(), 2.0 * error.numpy(), fmt="o", capsize=3, label="2 standard errors")
    axes.set(xlabel="prediction", ylabel="mean reward")
    axes.legend()
    return f"{len(used)} groups of like predictions. Too good if the policy has learnt these rewards."


# Axes and numbers.


def _draw_shares(axes: Any, metric: ActionShares, names: list[str], colours: list[str], title: str) -> None:
    from matplotlib.ticker import PercentFormatter

    rounds, shares = metric.means()
    draw_bands(axes, rounds, shares.T, names, colours)
    axes.grid(False)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, 0))
    _thousands(axes, "x")
    axes.legend(title=title, loc="center left", bbox_to_anchor=(1.0, 0.5), handlelength=1.0)


def _thousands(axes: Any, which: str) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    for letter in which:
        axis = getattr(axes, f"{letter}axis")
        axis.set_major_locator(MaxNLocator(6, integer=True))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))


def _order(s: Summary) -> str:
    return "reward, in the order of the decisions" if s.has_window else "reward, in the order known"


def _recent_alarms(s: Summary) -> list[int]:
    """Return the reward numbers of the alarms in the last 256 windows."""
    rounds, ratios = s.alarm.recent()
    return rounds[ratios >= 1.0].tolist()


def _alarms(s: Summary) -> str:
    """Return the first alarm and the last five as text."""
    first, *others = sorted({int(s.alarm.first_at), *_recent_alarms(s)})
    shown = [f"{time:,}" for time in [first, *others[-5:]]]
    gap = " ... " if len(others) > 5 else ""
    return f"{shown[0]}{',' if others else ''}{gap} {', '.join(shown[1:])}".strip()


def _by_action(s: Summary) -> list[Tensor]:
    """Return counts, means and standard errors of the rewards of each action."""
    return [value.reshape(-1) for value in s.rewards.compute()]  # torchmetrics squeezes the values of a single action


def _whole(value: Any) -> str:
    return f"{int(value):,}"


def _number(value: Any) -> str:
    number = float(value)
    return f"{number:,.0f}" if abs(number) >= 1000.0 else f"{number:.3g}"


def _known(value: Any) -> str:
    return "" if math.isnan(float(value)) else _number(value)


def _date(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):  # out of the calendar's range
        return f"{seconds:g} s"


def _duration(value: Any) -> str:
    """Format a duration in a suitable unit."""
    seconds = float(value)
    size = abs(seconds)
    for limit, unit, name in ((1.0, 1e-3, "ms"), (120.0, 1.0, "s"), (7200.0, 60.0, "min"), (172800.0, 3600.0, "h")):
        if size < limit:
            return f"{seconds / unit:.3g} {name}"
    return f"{seconds / 86400.0:,.3g} d" if size < 86400000.0 else f"{seconds / 86400.0:,.0f} d"
