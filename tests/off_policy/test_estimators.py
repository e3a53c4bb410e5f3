"""Estimators on logs with a known truth, and what they refuse."""

import itertools

import pytest
import torch
from torch import Tensor

from torchonline.off_policy import (
    BanditLog,
    Estimate,
    OverlapWarning,
    PredictedRewards,
    clipped_ips,
    direct_method,
    doubly_robust,
    importance_weights,
    ips,
    overlap,
    sndr,
    snips,
    switch,
    switch_doubly_robust,
)

FLOAT = torch.float64
LOGGING = torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.3, 0.6]], dtype=FLOAT)
MEANS = torch.tensor([[0.5, 0.9, 0.2], [0.3, 0.1, 0.8]], dtype=FLOAT)
TARGET = torch.tensor([[0.1, 0.8, 0.1], [0.3, 0.3, 0.4]], dtype=FLOAT)
# A model that is wrong.
WRONG = torch.tensor([[0.7, 0.5, 0.5], [0.4, 0.6, 0.6]], dtype=FLOAT)


def every_log(rounds: int = 2) -> list[tuple[float, BanditLog, Tensor]]:
    """Return all logs of some rounds with rewards of 0 and 1, with their probabilities and contexts."""
    logs = []
    one_round = list(itertools.product(range(2), range(3), (0.0, 1.0)))
    for outcome in itertools.product(one_round, repeat=rounds):
        chance, x, action, reward = 1.0, [], [], []
        for context, arm, paid in outcome:
            mean = float(MEANS[context, arm])
            chance *= 0.5 * float(LOGGING[context, arm]) * (mean if paid else 1.0 - mean)
            x, action, reward = [*x, context], [*action, arm], [*reward, paid]
        index = torch.tensor(x)
        log = BanditLog(arms=3, action=action, reward=reward, probability=LOGGING[index, torch.tensor(action)])
        logs.append((chance, log, index))
    return logs


@pytest.mark.filterwarnings("ignore::torchonline.off_policy.OverlapWarning")
def test_ips_and_dr_are_unbiased_and_the_others_have_the_stated_bias() -> None:
    """The mean over all 144 logs of two rounds, weighed by their probabilities."""
    truth = float((TARGET * MEANS).sum(1).mean())
    weights, tau = TARGET / LOGGING, 1.5
    clip = float((LOGGING * (weights - tau).clamp(min=0.0) * MEANS).sum(1).mean())
    large = TARGET * (weights > tau)
    of_model = float((TARGET * WRONG).sum(1).mean())
    missed = float((large * (WRONG - MEANS)).sum(1).mean())
    expected = {
        "ips": truth,
        "doubly_robust": truth,
        "clipped_ips": truth - clip,
        "direct_method": of_model,
        "switch": truth + missed,
        "switch_doubly_robust": truth + missed,
    }
    means = dict.fromkeys(expected, 0.0)
    total = 0.0
    for chance, log, x in every_log():
        total += chance
        target, q = TARGET[x], WRONG[x]
        for estimate in (
            ips(log, target),
            doubly_robust(log, target, q),
            clipped_ips(log, target, tau),
            direct_method(log, target, q),
            switch(log, target, q, tau, logging=LOGGING[x]),
            switch_doubly_robust(log, target, q, tau),
        ):
            means[estimate.method] += chance * estimate.value
    assert total == pytest.approx(1.0, rel=1e-12)
    assert means == pytest.approx(expected, rel=1e-12)
    assert abs(means["clipped_ips"] - truth) > 0.05
    assert abs(means["direct_method"] - truth) > 0.05


def draw(n: int, seed: int = 0) -> tuple[BanditLog, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randint(2, (n,), generator=generator)
    action = torch.multinomial(LOGGING[x], 1, generator=generator).squeeze(1)
    reward = torch.bernoulli(MEANS[x, action], generator=generator)
    log = BanditLog(arms=3, action=action, reward=reward, probability=LOGGING[x, action])
    return log, TARGET[x], WRONG[x]


def test_all_estimators_but_the_direct_method_find_the_value() -> None:
    log, target, q = draw(100_000)
    truth = float((TARGET * MEANS).sum(1).mean())
    for estimate in (ips(log, target), snips(log, target), doubly_robust(log, target, q), sndr(log, target, q)):
        error = float(estimate.terms.std()) / len(log) ** 0.5
        assert abs(estimate.value - truth) < 4.0 * error
    # A right model halves the variance, and inverted weights are seen to fail.
    model = (target, MEANS[(target[:, 0] > 0.2).long()])
    assert float(doubly_robust(log, *model).terms.var()) < 0.5 * float(ips(log, target).terms.var())
    wrong = Estimate("ips", log, 0.0 * log.reward, 1.0 / importance_weights(log, target), log.reward)
    assert abs(wrong.value - truth) > 20.0 * float(wrong.terms.std()) / len(log) ** 0.5


def test_estimates_say_what_they_are_made_of() -> None:
    log, target, q = draw(1000)
    weights = TARGET / LOGGING
    assert torch.equal(importance_weights(log, target), ips(log, target).weights)
    assert float(ips(log, target).weights.max()) == float(weights.max())
    size = float(ips(log, target).weights.sum() ** 2 / (ips(log, target).weights ** 2).sum())
    assert ips(log, target).effective_sample_size == pytest.approx(size, rel=1e-12)
    assert direct_method(log, target, q).effective_sample_size == 1000.0
    assert repr(snips(log, target)).startswith("Estimate(snips: 0.")
    for estimate in (snips(log, target), sndr(log, target, q), doubly_robust(log, target, q)):
        assert estimate.value == pytest.approx(float(estimate.terms.mean()), rel=1e-12)
    # Rewards plus a constant: SNIPS moves with them, IPS does not.
    higher = BanditLog(arms=3, action=log.action, reward=log.reward + 7.0, probability=log.probability)
    assert snips(higher, target).value - snips(log, target).value == pytest.approx(7.0, rel=1e-12)
    assert ips(higher, target).value - ips(log, target).value == pytest.approx(
        7.0 * float(ips(log, target).weights.mean())
    )
    # A constant model leaves SNDR at SNIPS.
    constant = torch.full_like(q, 0.3)
    assert sndr(log, target, constant).value == pytest.approx(snips(log, target).value, rel=1e-12)
    assert doubly_robust(log, target, 0.0 * q).value == pytest.approx(ips(log, target).value, rel=1e-12)
    assert doubly_robust(log, target, PredictedRewards(q, True)).from_past
    assert not doubly_robust(log, target, q).from_past


def log_of(counts: list[int], probabilities: list[float]) -> BanditLog:
    action = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    p = torch.tensor(probabilities, dtype=FLOAT)[action]
    return BanditLog(arms=len(counts), action=action, reward=torch.ones(len(action)), probability=p)


@pytest.mark.parametrize(
    ("counts", "logging", "target", "warns"),
    [
        # 1. Effective sample sizes of 52 and 48, of 1000 rounds; N / 100 counts from 5000 rounds on.
        ([948, 52], [0.948, 0.052], [0.0, 1.0], ""),
        ([952, 48], [0.952, 0.048], [0.0, 1.0], "effective sample size is 48, of 1000 rounds"),
        ([19_790, 210], [0.9895, 0.0105], [0.0, 1.0], ""),
        ([19_810, 190], [0.9905, 0.0095], [0.0, 1.0], "effective sample size is 190, of 20000 rounds"),
        # Of few rounds, half is enough.
        ([12, 8], [0.6, 0.4], [0.5, 0.5], ""),
        ([15, 5], [0.75, 0.25], [0.0, 1.0], "effective sample size is 5, of 20 rounds"),
        # 2. One round with 4.8 % and 5.2 % of the weight.
        ([999, 1], [0.999, 0.001], [0.952, 0.048], ""),
        ([999, 1], [0.999, 0.001], [0.948, 0.052], "one round has 5% of the weight"),
        # 3. The target plays an arm that was never logged.
        ([1000, 0], [1.0, 0.5], [0.991, 0.009], ""),
        ([1000, 0], [1.0, 0.5], [0.98, 0.02], "2% of the actions are arms that were never logged"),
        # 4. Logging probabilities that are wrong.
        ([480, 520], [0.5, 0.5], [0.1, 0.9], ""),
        ([400, 600], [0.5, 0.5], [0.1, 0.9], "the mean weight is 1.16, where it should be 1"),
    ],
)
def test_the_rule_of_overlap(counts: list[int], logging: list[float], target: list[float], warns: str) -> None:
    log, rows = log_of(counts, logging), torch.tensor(target, dtype=FLOAT).expand(sum(counts), 2)
    found = overlap(log, rows)
    problems = [text for text in found.problems if "mean weight" not in text or "mean weight" in warns]
    if not warns:
        assert problems == []
    else:
        assert any(warns in text for text in problems), found
        with pytest.warns(
            OverlapWarning, match=r"^target: expected a policy whose actions are in the log often enough"
        ):
            ips(log, rows)


def test_no_warning_where_policies_agree() -> None:
    log = log_of([60, 40], [0.6, 0.4])
    same = torch.tensor([[0.6, 0.4]], dtype=FLOAT).expand(100, 2)
    assert overlap(log, same).problems == ()
    estimate = ips(log, same)
    assert estimate.value == 1.0
    assert overlap(log, same).effective_sample_size == pytest.approx(100.0)
    few = log_of([3, 2], [0.6, 0.4])
    assert overlap(few, same[:5]).problems == ()


def test_a_log_that_says_nothing() -> None:
    log = log_of([10, 0], [1.0, 0.5])
    target = torch.tensor([[0.0, 1.0]], dtype=FLOAT).expand(10, 2)
    with pytest.warns(OverlapWarning, match="the effective sample size is 0, of 10 rounds"):
        estimate = ips(log, target)
    assert (estimate.value, estimate.effective_sample_size) == (0.0, 0.0)
    for method in (snips, lambda log, target: sndr(log, target, torch.zeros(10, 2))):
        with (
            pytest.warns(OverlapWarning, match="0, of 10 rounds"),
            pytest.raises(
                ValueError, match=r"^target: expected a probability above 0 for some logged action, got none"
            ),
        ):
            method(log, target)


def test_what_estimators_refuse() -> None:
    log, target, q = draw(50, 1)
    x = (target[:, 0] > 0.2).long()
    cases = [
        (lambda: ips(log, target[:, :2]), ValueError, r"target: expected shape \(50, 3\)"),
        (lambda: ips(log, target * 1.1), ValueError, "target: expected probabilities with rows that sum to 1"),
        (lambda: ips(log, target - torch.tensor([0.2, -0.2, 0.0])), ValueError, "target: expected probabilities"),
        (lambda: ips(log, target.long()), ValueError, "target: expected probabilities"),
        (lambda: ips(log, "softmax"), TypeError, "target: expected"),
        (lambda: ips(log, target * torch.nan), ValueError, "target: expected finite values"),
        (lambda: direct_method(log, target, q[:10]), ValueError, r"predicted: expected shape \(50, 3\)"),
        (lambda: doubly_robust(log, target, q * torch.inf), ValueError, "predicted: expected finite values"),
        (lambda: clipped_ips(log, target, 0.0), ValueError, "largest: expected a number above 0"),
        (lambda: switch_doubly_robust(log, target, q, -1.0), ValueError, "threshold: expected a number of at least 0"),
        (
            lambda: switch(log, target, q, 1.0, logging=TARGET[x]),
            ValueError,
            "logging: expected probabilities that agree",
        ),
        (lambda: switch(log, target, q, True, logging=LOGGING[x]), TypeError, "threshold: expected a number"),
    ]
    for call, error, message in cases:
        with pytest.raises(error, match=f"^{message}"):
            call()
