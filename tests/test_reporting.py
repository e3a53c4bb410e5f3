"""Tests of the report on a decision log: its numbers, its pictures, its page, and that it changes nothing."""

import base64
import copy
import os
import re
import stat
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import matplotlib.pyplot
import numpy as np
import pytest
import torch
from torch import nn

import torchonline
from torchonline import (
    OFUL,
    AdaptiveRidgeRegression,
    DisjointArms,
    EpsilonGreedy,
    FixedArms,
    RidgeRegression,
    SharedRadiusSelector,
    ThompsonSampling,
)
from torchonline.feedback import Decision, DecisionLog, Feedback
from torchonline.metrics import DriftAlarm
from torchonline.models import BanditHead
from torchonline.off_policy import effective_sample_size
from torchonline.reporting import Reader, Summary, pictures_of, style

matplotlib.use("Agg")

ARMS, DIM, START = 3, 2, 1.7e9


class MemoryLog:
    """A log in memory, with the three methods that a report needs, which counts what it is asked for."""

    def __init__(self, log: DecisionLog) -> None:
        self.all, self.known, self.found = log.decisions(limit=10**6), log.read(limit=10**6), log.counts()
        self.most, self.window = 0, log.window

    def decisions(self, after: int = 0, limit: int = 1000) -> list[Decision]:
        self.most = max(self.most, limit)
        return [one for one in self.all if one.number > after][:limit]

    def read(self, after: int = 0, limit: int = 1000) -> list[Feedback]:
        self.most = max(self.most, limit)
        return [one for one in self.known if one.position > after][:limit]

    def counts(self) -> dict[str, int]:
        return self.found


def filled(n: int = 240, *, policy: Any = None, inputs: Callable[[torch.Generator], Any] | None = None) -> DecisionLog:
    """A log of n decisions with rewards that come late, twice or never, under three encoder versions."""
    log, generator = DecisionLog(":memory:", window=1000.0), torch.Generator().manual_seed(0)
    policy = policy or EpsilonGreedy(RidgeRegression(DIM), epsilon=0.5)
    torch.manual_seed(0)
    for i in range(n):
        x = torch.rand(ARMS, DIM, generator=generator) if inputs is None else inputs(generator)
        action, probability = policy.select_with_probability(x)
        now = START + 10.0 * i
        log.decide(f"id {i}", x, action, probability, encoder=f"<v{3 * i // n}> $x$", time=now)
        if i % 10 or 50 < i < 230:
            log.reward(f"id {i}", float(action) + float(i % 2), time=now + 2.0)
        if i % 50 == 1:
            log.reward(f"id {i}", 1.0, time=now + 3.0)
    log.reward("nobody", 1.0, time=START + 10.0 * n)
    log.close_due(START + 1500.0)
    if n:
        log.reward("id 0", 1.0, time=START + 10.0 * n)
    return log


@pytest.fixture(scope="module")
def log() -> Iterator[DecisionLog]:
    with filled() as made:
        yield made


class Checker(HTMLParser):
    """Parser that checks that tags are closed and that nothing is loaded or run."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.images: list[str] = []
        self.text: list[str] = []
        self.policies: list[str | None] = []
        self.feed(text)
        assert self.open == []
        assert self.policies == [
            "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
        ]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag not in ("script", "link", "iframe", "object", "b>")
        for name, value in attrs:
            assert not name.startswith("on")
            if name in ("src", "href"):
                assert value is not None
                assert value.startswith("data:image/svg+xml;base64,")
                self.images.append(base64.b64decode(value.partition(",")[2]).decode())
        if ("http-equiv", "Content-Security-Policy") in attrs:
            assert self.open == ["html", "head"]
            self.policies.append(dict(attrs)["content"])
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    @property
    def said(self) -> str:
        return " ".join(" ".join(self.text).split())


def page_of(log: Any, folder: Path, **options: Any) -> Checker:
    path = torchonline.report(log, folder / "page.html", **options)
    assert os.listdir(folder) == ["page.html"]
    return Checker(path.read_text(encoding="utf-8"))


def test_the_page_says_what_the_log_says(log: DecisionLog, tmp_path: Path) -> None:
    page = page_of(log, tmp_path, window=50, title="Shop & <b>friends</b>")
    assert page.said.startswith("Shop & <b>friends</b> ")
    counts = log.counts()
    assert (counts["late"], counts["strays"], counts["defaults"]) == (1, 1, 6)
    for name in ("decisions", "known", "open", "defaults", "duplicates", "strays"):
        assert f"{counts[name]:,} {name}" in page.said
    assert "2023-11-14 22:13:20 to 2023-11-14 22:53:10 (UTC), 39.8 min." in page.said
    # What users wrote is text.
    assert "<v0> $x$" in page.said
    assert "1 rewards came after the attribution window had closed" in page.said
    assert "1 rewards have an id that no decision has" in page.said
    for title in ("Shares of actions", "Reward by action", "Reward over time", "Drift test", "Logged probabilities"):
        assert title in page.said
    assert "Confidence intervals" not in page.said
    assert "9 rewards of decisions after the first open one are left out." in page.said
    assert "means are too high where much of the log is recent." in page.said
    assert len(page.images) == 9
    for image in page.images:
        root = ElementTree.fromstring(image)
        assert root.tag.endswith("svg")
        assert re.search(r'(href|src)="(?!#)', image) is None
        assert "<v0>" not in image
    rewards: dict[int, list[float]] = {k: [] for k in range(ARMS)}
    for known in log.read():
        rewards[known.action].append(known.reward)
    for k, values in rewards.items():
        mean, error = np.mean(values), np.std(values, ddof=1) / len(values) ** 0.5
        assert re.search(rf"\b{k} \d+ [\d.]+% {len(values)} {mean:.3g} {error:.3g}\b", page.said)


@pytest.mark.fast
def test_the_numbers_of_a_summary(log: DecisionLog) -> None:
    policy = EpsilonGreedy(RidgeRegression(DIM), epsilon=0.3)
    summary = Summary(log, Reader(policy, None), 50, 0.01, 37)
    decisions, known = log.decisions(), log.read()
    action = torch.tensor([one.action for one in decisions])
    probability = torch.tensor([one.probability for one in decisions], dtype=torch.float64)
    np.testing.assert_allclose(summary.shares.compute(), np.bincount(action) / 240)
    assert summary.probabilities.compute().smallest == probability.min()
    weights = 1.0 / (ARMS * probability)
    assert summary.weights.compute().effective == pytest.approx(float(effective_sample_size(weights)))
    of_policy = policy.probabilities(torch.stack([one.inputs for one in decisions])).gather(1, action[:, None])[:, 0]
    expected = effective_sample_size(of_policy / probability)
    assert summary.policy_weights.compute().effective == pytest.approx(float(expected))
    assert (summary.rewards.rounds, summary.alarm.rounds) == (len(known), 230) == (239, 230)  # number 231 is open
    reward = torch.tensor([one.reward for one in sorted(known, key=lambda one: one.number)[:230]], dtype=torch.float64)
    assert summary.rewards_by_time.compute()[0] == pytest.approx(float(reward.mean()))
    in_order = DriftAlarm(50, 0.01, warn=False)
    in_order.update(reward)
    torch.testing.assert_close(summary.alarm.ratios, in_order.ratios)
    assert int(summary.delays.rounds) == len(known) - 6
    assert summary.delays.compute().smallest == 2.0
    assert [(one.name, one.decisions) for one in summary.versions] == [(f"<v{i}> $x$", 80) for i in range(3)]
    assert summary.versions[1].first == START + 800.0
    assert summary.widths.rounds == len(known)
    x = torch.stack([one.inputs[one.action] for one in known])
    low, high = policy.estimator.interval(x)
    assert summary.widths.compute() == pytest.approx(float((high - low).mean()))
    assert summary.calibration is not None
    assert summary.calibration[1].compute().rounds.sum() == len(known)


def test_tables_and_pictures_show_the_names_of_a_policy(tmp_path: Path) -> None:
    names = ["<b>home</b> $x$", "_sale", "日本", "home"]
    policy = torchonline.bandit(DIM, actions=names)
    log = DecisionLog(":memory:")
    for i in range(8):
        log.decide(f"{i}", torch.ones(DIM), i % 4, 0.25)
        log.reward(f"{i}", 0.5)
    summary = Summary(log, Reader(policy, None), 500, 0.01, 1000)
    assert summary.names == [f"{name} ({k})" for k, name in enumerate(names)]
    assert summary.labels == [r"<b>home</b> \$x\$", "1", "2", "home"]
    page = page_of(log, tmp_path, policy=policy)
    assert all(name in page.said for name in summary.names)
    assert Summary(log, None, 500, 0.01, 1000).names == ["0", "1", "2", "3"]


def test_the_settings_of_matplotlib_stay(log: DecisionLog, tmp_path: Path) -> None:
    with matplotlib.rc_context({"font.size": 31.0}):
        before = dict(matplotlib.rcParams)
        torchonline.report(log, tmp_path / "page.html")
        assert dict(matplotlib.rcParams) == before
        assert matplotlib.get_backend().lower() == "agg"
    assert matplotlib.pyplot.get_fignums() == []


def drawn(summary: Summary) -> dict[str, Any]:
    figure = matplotlib.figure.Figure()
    found = {}
    with style():
        for title, draw in pictures_of(summary).items():
            found[title] = axes = figure.add_subplot()
            assert draw(axes).endswith(".")
            assert axes.get_xlabel()
            assert axes.get_ylabel()
    return found


def test_pictures_show_the_numbers(log: DecisionLog) -> None:
    summary = Summary(log, Reader(OFUL(DIM), None), 50, 0.01, 1000)
    axes = drawn(summary)
    assert len(axes) == 11
    assert axes["Shares of actions"].get_legend_handles_labels()[1] == ["0", "1", "2"]
    np.testing.assert_allclose(axes["Shares of actions"].patches[0].get_data().values, summary.shares.means()[1][:, 0])
    bars = axes["Reward by action"].containers
    np.testing.assert_allclose([bar.lines[0].get_ydata()[0] for bar in bars], summary.rewards.compute().mean)
    assert sum(axes["Logged probabilities"].patches[0].get_data().values) == 240
    assert sum(axes["Delay of the feedback"].patches[0].get_data().values) == int(summary.delays.rounds)
    sizes = {line.get_label(): line.get_ydata()[-1] for line in axes["Effective sample size"].lines}
    assert sizes["all"] == 240
    assert sizes["uniform policy"] == pytest.approx(float(summary.weights.compute().effective))
    assert sizes["given policy"] == pytest.approx(float(summary.policy_weights.compute().effective))
    np.testing.assert_allclose(axes["Drift test"].lines[0].get_ydata(), summary.alarm.recent()[1][1:])
    versions = axes["Encoder versions"].get_legend_handles_labels()[1]
    assert versions == ["1", "2", "3"]


def test_a_log_is_read_in_pages_and_any_size_gives_the_same(log: DecisionLog) -> None:
    stand_in = MemoryLog(log)
    one = Summary(stand_in, Reader(OFUL(DIM), None), 50, 0.01, 7)
    assert stand_in.most == 7
    other = Summary(log, Reader(OFUL(DIM), None), 50, 0.01, 1000)
    assert one.versions == other.versions
    for name in (
        "shares",
        "probabilities",
        "weights",
        "policy_weights",
        "rewards",
        "rewards_by_time",
        "alarm",
        "delays",
        "widths",
    ):
        states = getattr(one, name).state_dict(), getattr(other, name).state_dict()
        for key, value in states[0].items():
            torch.testing.assert_close(value, states[1][key], rtol=1e-12, atol=1e-12, equal_nan=True)


def test_an_empty_log_has_a_clear_page(tmp_path: Path) -> None:
    with DecisionLog(":memory:") as log:
        page = page_of(log, tmp_path, policy=OFUL(2))
        assert "The log holds no decisions yet." in page.said
        assert page.images == []
        log.decide("a", torch.rand(DIM), 0, 1.0)
        # Of decisions without a reward.
        page = page_of(log, tmp_path)
        assert "Drift: not tested. Two windows of 500 rewards are needed, and 0 are known." in page.said
        assert "Reward by action" not in page.said
        assert len(page.images) == 4


def test_drift_and_missing_overlap_are_found(tmp_path: Path) -> None:
    with DecisionLog(":memory:") as log:
        for i in range(120):
            log.decide(str(i), torch.ones(ARMS, DIM), 0, 1.0, time=START + i)
            log.reward(str(i), float(i >= 60) + 0.01 * (i % 7), time=START + i + 0.5)
        page = page_of(log, tmp_path, window=30)
        assert page.said.count("2023-11-14") >= 2
        assert "Drift: the rewards have changed. Alarms came at reward 90." in page.said
        assert "in about 67% of its choices the uniform policy plays what the log never played" in page.said


def test_many_actions_and_versions_are_shown_together(tmp_path: Path) -> None:
    with DecisionLog(":memory:") as log:
        for i in range(130):
            log.decide(str(i), torch.ones(1), i % 13 + (i % 13 == 12) * 5, 0.5, encoder=f"v{i}")
        summary = Summary(log, None, 50, 0.01, 1000)
        assert len(summary.actions) == 10
        assert summary.has_others
        axes = drawn(summary)
        assert axes["Shares of actions"].get_legend_handles_labels()[1][-1] == "others"
        assert axes["Encoder versions"].get_legend_handles_labels()[1][-1] == "later"
        page = page_of(log, tmp_path)
        assert "The 3 others are shown together." in page.said
        assert "80 further versions are left out." in page.said


POLICIES: dict[str, tuple[Any, Callable[[torch.Generator], Any] | None]] = {
    "disjoint": (
        DisjointArms(EpsilonGreedy(RidgeRegression(DIM), epsilon=0.5), ARMS),
        lambda g: torch.rand(DIM, generator=g),
    ),
    "thompson": (ThompsonSampling(RidgeRegression(DIM), draws=100), None),
    "master": (SharedRadiusSelector(AdaptiveRidgeRegression(DIM)), None),
    "head": (
        BanditHead(nn.Linear(4, DIM), EpsilonGreedy(RidgeRegression(DIM))),
        lambda g: torch.rand(ARMS, 4, generator=g),
    ),
}


@pytest.mark.parametrize("name", POLICIES)
def test_policies_of_all_kinds_stay_as_they_are(name: str) -> None:
    policy, inputs = POLICIES[name]
    with filled(40, policy=policy, inputs=inputs) as log:
        before, draws = copy.deepcopy(policy.state_dict()), torch.get_rng_state()
        summary = Summary(log, Reader(policy, None), 50, 0.01, 1000)
        assert torch.equal(torch.get_rng_state(), draws)
        assert all(torch.equal(value, before[key]) for key, value in policy.state_dict().items())
        assert {"Confidence intervals", "Predictions beside rewards"} <= set(pictures_of(summary))
        assert summary.policy_weights.rounds == 40


def test_features_of_the_chosen_arm_alone_give_no_probabilities_of_a_policy() -> None:
    with DecisionLog(":memory:") as log:
        for i in range(20):
            log.decide(str(i), torch.rand(DIM), i % ARMS, 0.5)
            log.reward(str(i), 1.0)
        summary = Summary(log, Reader(OFUL(DIM), None), 50, 0.01, 1000)
        assert summary.policy_weights.rounds == 0
        assert summary.widths.rounds == 20


@pytest.mark.parametrize("encoder", [None, "v9"])
def test_a_policy_that_the_log_says_nothing_of_leaves_no_nan(encoder: str | None, tmp_path: Path) -> None:
    with DecisionLog(":memory:") as log:
        for i in range(20):
            log.decide(str(i), torch.rand(DIM), i % ARMS, 0.5, encoder="v1")
            log.reward(str(i), 1.0)
        path = torchonline.report(log, tmp_path / "page.html", policy=OFUL(DIM), encoder=encoder)
        text = re.sub(r'base64,[^"]*', "", path.read_text(encoding="utf-8"))
        assert re.search(r"\bnan\b", text) is None
        assert "Policy: the log cannot be compared with the given policy." in text


@pytest.mark.parametrize("every", [1, 300])
def test_clicks_with_a_window_are_no_drift(every: int) -> None:
    generator = torch.Generator().manual_seed(0)
    clicks, delays = (
        (torch.rand(2000, generator=generator) < 0.2).tolist(),
        torch.rand(2000, generator=generator) * 40.0,
    )
    with DecisionLog(":memory:", window=400.0) as log:
        coming = sorted((i + float(delays[i]), i) for i in range(2000) if clicks[i])
        for i in range(2000):
            log.decide_many([Decision(str(i), torch.ones(1), 0, 1.0, None, "", float(i))])
            while coming and coming[0][0] <= i:
                time, number = coming.pop(0)
                log.reward(str(number), 1.0, time=time)
            if i % every == 0:
                log.close_due(float(i))
        known, order = log.read(limit=3000), [float(click) for click in clicks]
        summary = Summary(log, None, 100, 0.01, 70)
    first_open = min(set(range(2000)) - {int(one.id) for one in known})
    assert 1200 < first_open < len(known)
    assert summary.rewards.rounds == len(known)
    assert summary.alarm.rounds == first_open
    assert summary.rewards_by_time.compute()[0] == pytest.approx(sum(order[:first_open]) / first_open)
    assert summary.alarm.compute().alarms == 0
    known_first = DriftAlarm(100, 0.01, warn=False)
    known_first.update(torch.tensor([one.reward for one in known]))
    assert known_first.compute().alarms > 0  # clicks are known before the defaults


def test_rewards_end_where_decisions_were_logged_meanwhile(log: DecisionLog) -> None:
    growing = MemoryLog(log)
    growing.all, growing.window = growing.all[:100], None
    first = next(i for i, one in enumerate(growing.known) if one.number > 100)
    assert 0 < first < sum(one.number <= 100 for one in growing.known)
    for page_size in (7, 1000):
        summary = Summary(growing, None, 50, 0.01, page_size)
        assert summary.alarm.rounds == summary.rewards.rounds == first


def test_a_version_can_be_picked_for_the_policy() -> None:
    with DecisionLog(":memory:") as log:
        for i in range(20):
            log.decide(str(i), torch.rand(ARMS, 2 + i % 2), 0, 0.5, encoder=f"v{i % 2}", mask=[True, False, True])
            log.reward(str(i), 1.0)
        summary = Summary(log, Reader(OFUL(2), "v0"), 50, 0.01, 1000)
        assert summary.policy_weights.rounds == summary.widths.rounds == 10
        assert summary.weights.compute().mean_weight == 1.0  # two arms were available
        with pytest.raises(
            ValueError, match=r"^policy: expected a policy that takes the inputs .* '1' with inputs of shape \(3, 3\)"
        ):
            Summary(log, Reader(OFUL(2), None), 50, 0.01, 1000)


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"log": 3}, TypeError, "log: expected an object with read, decisions and counts, got int"),
        ({"policy": 3}, TypeError, "policy: expected a Policy on inputs, got int"),
        (
            {"policy": FixedArms(OFUL(2), torch.eye(2))},
            TypeError,
            "policy: expected a Policy on inputs, got FixedArms",
        ),
        ({"policy": OFUL(2, batch_shape=(3,))}, ValueError, r"policy: expected no batch_shape, got \(3,\)"),
        ({"policy": OFUL(5)}, ValueError, r"policy: expected a policy that takes the inputs and actions of the log"),
        ({"window": 0}, ValueError, "window: expected an integer above 0, got 0"),
        ({"window": 5}, ValueError, "window: expected at least 15 values for alpha = 0.01, got 5"),
        ({"alpha": 1.0}, ValueError, "alpha: expected a number in"),
        ({"title": 3}, TypeError, "title: expected a string, got int"),
        ({"encoder": 3}, TypeError, "encoder: expected a string or None, got int"),
        ({"page_size": 0}, ValueError, "page_size: expected an integer above 0, got 0"),
    ],
)
def test_wrong_arguments_leave_the_old_page(
    log: DecisionLog, tmp_path: Path, options: dict[str, Any], error: type[Exception], text: str
) -> None:
    path = tmp_path / "page.html"
    path.write_text("old")
    with pytest.raises(error, match=f"^{text}"):
        torchonline.report(**({"log": log, "path": path} | options))
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["page.html"]


def test_a_failed_write_leaves_the_old_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, path = DecisionLog(":memory:"), tmp_path / "page.html"
    torchonline.report(log, path)
    before = path.read_text()

    def full(number: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        torchonline.report(log, path, title="new")
    assert path.read_text() == before
    assert os.listdir(tmp_path) == ["page.html"]
    assert stat.S_IMODE(path.stat().st_mode) & 0o444 == 0o444
