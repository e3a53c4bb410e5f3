"""Tables of estimates."""

import re

import pytest
import torch

from torchonline.command_line.evaluation import Table, evaluate_head
from torchonline.models import BanditHead, recommended_policy
from torchonline.off_policy import BanditLog, confidence_interval, doubly_robust, improvement

pytestmark = pytest.mark.filterwarnings("ignore::torchonline.off_policy.OverlapWarning")
ROW = re.compile(r"^(.*?) {2,}(\S+)   (\S+) to (\S+?)(?:   (.*))?$")


def head_and_log(n: int, scale: float = 1.0) -> tuple[BanditHead, BanditLog]:
    generator = torch.Generator().manual_seed(0)
    context = torch.randn(n, 2, generator=generator, dtype=torch.float64)
    action = torch.randint(2, (n,), generator=generator)
    reward = scale * torch.bernoulli(torch.sigmoid(context[:, 0] * (2 * action - 1)), generator=generator)
    log = BanditLog(arms=2, action=action, reward=reward, probability=[0.5] * n, context=context)
    return BanditHead(torch.nn.Identity(), recommended_policy(2, actions=2, scale=False)), log


def rows(text: str) -> dict[str, tuple[str, ...]]:
    return {match[1]: match.groups("")[1:] for line in text.splitlines() if (match := ROW.match(line))}


def test_new_minus_old_is_the_improvement_of_the_doubly_robust_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    head, log = head_and_log(300)
    kept = []

    def keep(*given: object) -> object:
        kept.append(doubly_robust(*given))
        return kept[-1]

    monkeypatch.setattr("torchonline.command_line.evaluation.doubly_robust", keep)
    found = rows(str(evaluate_head(head, log, 0.05, None)))
    gain = improvement(kept[0])
    value, low, high, note = found["new minus old"]
    assert float(value) == pytest.approx(gain.value, abs=1e-3)
    assert [float(low), float(high)] == pytest.approx(list(confidence_interval(gain)), abs=2e-3)
    assert note == ""
    old, new = float(found["as logged"][0]), float(found["doubly robust"][0])
    assert float(value) == pytest.approx(new - old, abs=2e-3)


def test_new_minus_old_is_that_of_ips_without_a_doubly_robust_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **options: object) -> None:
        raise ValueError("no")

    head, log = head_and_log(300)
    monkeypatch.setattr("torchonline.command_line.evaluation.predicted_rewards", fail)
    found = rows(str(evaluate_head(head, log, 0.05, None)))
    assert float(found["new minus old"][0]) == pytest.approx(
        float(found["IPS"][0]) - float(found["as logged"][0]), abs=2e-3
    )


def test_heavy_tails_have_a_note() -> None:
    head, log = head_and_log(12)
    found = rows(str(evaluate_head(head, log, 0.05, None)))
    assert re.fullmatch(
        r"heavy tail: one round has \d+% of the variance; rewards are assumed to be in \[0, 1\]", found["IPS"][3]
    )
    head, log = head_and_log(12, scale=3.0)
    unknown, known = (rows(str(evaluate_head(head, log, 0.05, bounds))) for bounds in (None, (0.0, 3.0)))
    assert unknown["new minus old"][1:3] == ("-inf", "inf")
    assert unknown["new minus old"][3].endswith("; give reward_range for finite bounds")
    low, high = (float(end) for end in known["new minus old"][1:3])
    assert -3.0 <= low < high <= 3.0


def test_the_row_as_logged_is_the_plain_mean() -> None:
    _, log = head_and_log(300)
    value, low, high, _ = rows(str(Table(log, 0.05)))["as logged"]
    half = 1.96 * float(log.reward.std()) / 300**0.5
    assert float(value) == pytest.approx(float(log.reward.mean()), abs=1e-3)
    assert [float(low), float(high)] == pytest.approx([float(value) - half, float(value) + half], abs=2e-3)
