"""A report on a decision log: one HTML page with pictures, for an operator."""

import itertools
import os
import threading
from array import array
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torchonline.core.checks import instance_of, positive_integer, within
from torchonline.core.draws import OwnDraws
from torchonline.core.files import replace_file
from torchonline.core.ops import of_chosen
from torchonline.feedback.log import pages
from torchonline.metrics.by_arm import MeanByArm
from torchonline.metrics.by_time import ValueByTime
from torchonline.metrics.drift import DriftAlarm
from torchonline.metrics.histogram import LoggedProbabilities, LogHistogram
from torchonline.metrics.sample_size import EffectiveSampleSize
from torchonline.metrics.shares import MOST_SHOWN, ActionShares
from torchonline.policies.arm_ids import by_place
from torchonline.policies.chosen import predicted
from torchonline.policies.policy import Policy
from torchonline.report_page import page_of

# Points of the curves, and the most encoder versions that are told apart.
POINTS, MOST_VERSIONS = 64, 1000

# Groups of predictions for the picture of calibration, and rounds that fix their ends.
GROUPS, ROUNDS_FOR_GROUPS = 10, 2000


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
    and encoder versions. It is one file without scripts, which loads nothing from elsewhere. docs/monitoring.md explains each
    picture. Matplotlib draws them.

    Rewards count as they may be learnt, so a decision whose attribution window closed without a reward counts with the log's
    default reward.

    *Reward over time.* With an attribution window, defaults are known later than rewards, so that in the order known the first
    rewards are too high. So the curve and the alarm take the rewards in the order of the decisions, up to the first decision that
    is open. Without a window, a lost reward would stop them: they take the rewards in the order known, and delays that depend on
    the reward can raise an alarm.

    *With a policy*, in its present state, the page also shows the effective sample size of the log for that policy, the widths
    of its confidence intervals, and its predictions beside the rewards. If the policy has learnt these very rewards, the last
    picture is better than the policy is on new decisions. The policy learns nothing. The caller's random numbers stay as they
    are. Decisions for an arm that was removed from the policy are left out of these pictures. Elsewhere the page names actions
    as the log does, by their ids.

    *The alarm* compares each window of rewards with the first one, or with the one after the last alarm. With a fixed ``window``
    and ``alpha``, all reports on one growing log make the same comparisons, so ``alpha`` bounds the probability of a false alarm
    in any of them.

    The log is read in pages, twice for decisions and once for rewards. Memory: O(page_size) decisions, the window, and a count
    for each action; with an attribution window also 8 bytes for each decision, and the rewards that came before those of earlier
    decisions. Decisions that are logged meanwhile are left out, and so are all rewards from the first reward of such a decision
    on. The file is written aside, synced and renamed, so a reader never sees a part of it.

    Args:
        log: a :class:`~torchonline.feedback.DecisionLog`, or any object with ``read(after, limit)``, ``decisions(after, limit)``
            and ``counts()`` that return what those of a DecisionLog do. An attribute ``window`` that is not None says that each
            decision closes.
        path: of the page. An existing file is replaced.
        policy: a :class:`Policy`, :class:`~torchonline.DisjointArms` or another policy with a scaler, or a
            :class:`~torchonline.models.BanditHead`, without ``batch_shape``. None leaves its pictures out.
        encoder: version whose features fit the policy; its pictures are then about the decisions of this version. None if all
            do, as where logged inputs are raw.
        window: number of rewards in a window of the drift alarm.
        alpha: probability of a false drift alarm, in (0, 1).
        title: of the page.
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
    replace_file(path, page_of(summary, title).encode(), beside)
    return path


class Version(NamedTuple):
    """Decisions of one encoder version."""

    name: str
    decisions: int
    first: float
    last: float


class Summary:
    """What the page shows of a log.

    Attributes:
        counts: those of the log, by name.
        decisions: number of decisions read.
        first, last: Unix seconds of the first and the last decision, or None.
        actions: numbers of the actions that are shown by themselves, in order.
        has_others: whether there are more, which share the last place of the metrics.
        versions: encoder versions in the order of their first decision.
        shares, version_shares, probabilities, probability_by_time, weights, policy_weights: of the decisions.
        rewards, rewards_by_time, alarm, delays, defaults: of the rewards; of ``rewards_by_time`` the second value is the square.
        has_window: whether ``rewards_by_time`` and ``alarm`` are in the order of the decisions, up to the first open one.
        widths, calibration: of the policy; the calibration has predictions and rewards of each group.
    """

    def __init__(self, log: Any, reader: "Reader | None", window: int, alpha: float, page_size: int) -> None:
        self.counts: dict[str, int] = dict(log.counts())
        self.has_policy = reader is not None
        self.has_window = getattr(log, "window", None) is not None
        self._numbers = array("q")  # of the decisions
        self._done, self._early = (
            0,
            dict[int, float](),
        )  # decisions with rewards in order, and rewards that are too early
        self._look_over(log, page_size)
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
        self._add_rewards([], reader)  # torchmetrics warns where nothing was ever added
        for page in pages(log.read, "position", page_size):
            known = list(itertools.takewhile(lambda one: one.number <= self._last_number, page))
            self._add_rewards(known, reader)
            if len(known) < len(page):  # the alarm sees the beginning of what later reports see
                break
        self._group_waiting()

    def _look_over(self, log: Any, page_size: int) -> None:
        """Count actions and versions in a first reading of the decisions."""
        seen: Counter[int] = Counter()
        versions: dict[str, list[Any]] = {}
        self.first: float | None = None
        self.last: float | None = None
        self._last_number = 0
        for page in pages(log.decisions, "number", page_size):
            seen.update(int(one.action) for one in page)
            for one in page:
                name = str(one.encoder)
                name = name if name in versions or len(versions) < MOST_VERSIONS else "(further versions)"
                found = versions.setdefault(name, [0, one.time, one.time])
                found[0], found[1], found[2] = found[0] + 1, min(found[1], one.time), max(found[2], one.time)
            times = [one.time for one in page]
            self.first = min([*times, *([] if self.first is None else [self.first])])
            self.last = max([*times, *([] if self.last is None else [self.last])])
            self._last_number = page[-1].number
            if self.has_window:
                self._numbers.extend(one.number for one in page)
        self.decisions = seen.total()
        self.has_others = len(seen) > MOST_SHOWN
        self.actions = sorted(action for action, _ in seen.most_common(MOST_SHOWN))
        self.actions_seen = len(seen)
        self.most_actions = max(seen, default=0) + 1
        self.versions = [Version(name, *found) for name, found in versions.items()]

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
        """Return the number of arms that a decision had, as far as the log tells."""
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
        """Return the next rewards in the order of the decisions, as far as known."""
        self._early.update((one.number, float(one.reward)) for one in page)
        found = []
        while self._done < len(self._numbers) and self._numbers[self._done] in self._early:
            found.append(self._early.pop(self._numbers[self._done]))
            self._done += 1
        return torch.tensor(found, dtype=torch.float64)

    def _group_waiting(self) -> None:
        """Put predictions and rewards into groups of like predictions."""
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


class Reader:
    """A policy in its present state, which reads pages of a log."""

    def __init__(self, policy: Any, encoder: str | None) -> None:
        if not isinstance(policy, Policy) or not policy.takes_inputs:
            raise TypeError(f"policy: expected a Policy on inputs, got {type(policy).__name__}")
        if policy.batch_shape:
            raise ValueError(f"policy: expected one without batch_shape, got {policy.batch_shape}")
        self.policy, self.encoder = policy, encoder
        self.device, self.arms = policy._like().device, policy.with_ids()

    def fits(self, decision: Any) -> bool:
        """Return whether the policy has a decision's features, and its action still."""
        if self.arms is not None and self.arms.was_removed(int(decision.action)):
            return False
        return self.encoder is None or decision.encoder == self.encoder

    def probabilities(self, page: list[Any]) -> Tensor:
        """Return the policy's probabilities of the logged actions, ``(n)``.

        They are NaN where the log holds the features of the chosen arm alone.
        """

        def of_group(inputs: Tensor, mask: Tensor | None, action: Tensor) -> Tensor:
            if self._is_chosen_alone(inputs):
                return torch.full((1, len(inputs)), torch.nan)
            # A policy whose scores are random draws them.
            with OwnDraws(), torch.no_grad():
                found = self.policy.probabilities(inputs, mask)
                return of_chosen(found, self.policy._placed(action)).unsqueeze(0)

        return self._of_groups(page, of_group, 1)[0]

    def predicted(self, page: list[Any]) -> Tensor:
        """Return predictions, lower and upper bounds of the logged actions, ``(3, n)``."""

        def of_group(inputs: Tensor, mask: Tensor | None, action: Tensor) -> Tensor:
            if self._is_chosen_alone(inputs):
                inputs, action = inputs.unsqueeze(-2), torch.zeros_like(action)
            policy, x = self.policy._decider(inputs, False)
            return torch.stack(predicted(policy, x, action))

        return self._of_groups(page, of_group, 3)

    def _is_chosen_alone(self, inputs: Tensor) -> bool:
        """Return whether inputs ``(n, ...)`` are features of the chosen arms alone."""
        return self.policy.has_arm_inputs and inputs.dim() == self.policy.item_dims

    def _of_groups(self, page: list[Any], call: Callable[..., Tensor], rows: int) -> Tensor:
        """Call a function on the decisions of a page that have one shape, together."""
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
                    f"policy: expected one that takes the inputs and actions of the log, of which decision "
                    f"{page[group[0]].id!r} has inputs of shape {tuple(inputs.shape[1:])}: {error}"
                ) from error
        return found
