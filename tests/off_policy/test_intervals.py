"""Intervals: misses counted over simulated logs, and conditions that are seen to fail."""

import math

import pytest
import torch
from torch import Tensor

from torchonline.command_line.evaluation import _row
from torchonline.off_policy import (
    BanditLog,
    Estimate,
    Interval,
    PredictedRewards,
    bootstrap_interval,
    bootstrap_values,
    clipped_ips,
    confidence_sequence,
    direct_method,
    doubly_robust,
    ips,
    normal_interval,
    sndr,
    snips,
    switch_doubly_robust,
)

pytestmark = [
    pytest.mark.filterwarnings(f"ignore::torchonline.off_policy.{name}") for name in ("OverlapWarning", "TailWarning")
]
FLOAT = torch.float64


def simulate(n: int, seed: int, *, least: float = 0.1) -> tuple[BanditLog, Tensor, Tensor]:
    """Return a log of three arms with rare rewards, the target's probabilities, and its mean rewards by round."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(n, generator=generator, dtype=FLOAT)
    logging = torch.stack([0.8 - least + 0 * x, 0.2 + 0 * x, least + 0 * x], 1)
    means = torch.stack([0.1 + 0.1 * x, 0.2 + 0 * x, 0.5 - 0.2 * x], 1)
    action = torch.multinomial(logging, 1, generator=generator).squeeze(1)
    chosen = means[torch.arange(n), action]
    reward = torch.bernoulli(chosen, generator=generator)
    target = torch.stack([0.2 + 0 * x, 0.3 * x, 0.8 - 0.3 * x], 1)
    log = BanditLog(
        arms=3, action=action, reward=reward, probability=logging[torch.arange(n), action], context=x[:, None]
    )
    return log, target, (target * means).sum(1)


def test_the_interval_of_the_bootstrap_is_that_of_resampled_groups() -> None:
    log, target, _ = simulate(300, 0)
    log = BanditLog(
        arms=3, action=log.action, reward=log.reward, probability=log.probability, groups=torch.arange(300) // 3
    )
    estimate = snips(log, target)
    values = bootstrap_values(estimate, draws=500)
    assert torch.equal(values, bootstrap_values(estimate, draws=500))
    assert not torch.equal(values, bootstrap_values(estimate, draws=500, seed=1))
    generator = torch.Generator().manual_seed(0)
    index = torch.randint(100, (500, 100), generator=generator)
    rows = (3 * index[..., None] + torch.arange(3)).flatten(1)
    w, r = estimate.weights[rows], log.reward[rows]
    torch.testing.assert_close(values, (w * r).sum(1) / w.sum(1), rtol=1e-12, atol=0.0)
    interval = bootstrap_interval(estimate, draws=500, delta=0.1)
    assert interval.lower == pytest.approx(float(values.quantile(0.05)), rel=1e-12)
    assert interval.upper == pytest.approx(float(values.quantile(0.95)), rel=1e-12)


def test_differences_of_policies_are_taken_draw_by_draw() -> None:
    log, target, _ = simulate(500, 1)
    other = target.flip(1)
    difference = bootstrap_values(ips(log, target)) - bootstrap_values(ips(log, other))
    both = Estimate(
        "ips", log, torch.zeros(500, dtype=FLOAT), ips(log, target).weights - ips(log, other).weights, log.reward
    )
    torch.testing.assert_close(difference, bootstrap_values(both), rtol=0.0, atol=1e-12)


def test_an_interval_is_short_in_print() -> None:
    assert repr(Interval(1.0 / 3.0, 1234567.0)) == "Interval(lower=0.3333, upper=1234567)"
    assert str(Interval(torch.zeros(2), torch.ones(2))) == "Interval(lower=tensor([0., 0.]), upper=tensor([1., 1.]))"


@pytest.mark.parametrize(
    ("lower", "upper", "said"),
    [
        (12345.6, 12349.9, ["12345.6", "12349.9"]),
        (-1234567.891, 999999.7, ["-1234568", "1000000"]),
        (1000.0, 1000.0, ["1000", "1000"]),
        (0.3412345, 0.3456789, ["0.3412", "0.3457"]),
        (0.5, 0.5000012345, ["0.5", "0.5000012"]),
        (1.23456e-9, 1.23999e-9, ["1.2346e-09", "1.24e-09"]),
        (12345.6, math.inf, ["12345.6", "inf"]),
        (-math.inf, math.nan, ["-inf", "nan"]),
    ],
)
def test_an_interval_has_digits_by_its_width(lower: float, upper: float, said: list[str]) -> None:
    assert repr(Interval(lower, upper)) == f"Interval(lower={said[0]}, upper={said[1]})"
    assert _row("IPS", lower, lower, upper).split()[1:] == [said[0], said[0], "to", said[1]]


@pytest.mark.parametrize("groups", [None, torch.arange(4000) // 4])
@pytest.mark.parametrize("method", [ips, snips, sndr])
def test_the_normal_interval_is_as_wide_as_that_of_the_bootstrap(method, groups: Tensor | None) -> None:
    log, target, _ = simulate(4000, 2)
    log = BanditLog(
        arms=3, action=log.action, reward=log.reward, probability=log.probability, groups=groups, context=log.context
    )
    q = torch.tensor([0.1, 0.2, 0.3], dtype=FLOAT).expand(4000, 3)
    estimate = method(log, target, q) if method is sndr else method(log, target)
    normal, draws = normal_interval(estimate), bootstrap_interval(estimate, draws=4000)
    width = normal.upper - normal.lower
    assert abs(draws.lower - normal.lower) < 0.06 * width
    assert abs(draws.upper - normal.upper) < 0.06 * width
    assert normal_interval(estimate, delta=0.2).upper - estimate.value == pytest.approx(
        width / 2 * 1.2816 / 1.96, rel=1e-3
    )


def missed(bounds, means: Tensor) -> bool:
    running = means.cumsum(0) / torch.arange(1, len(means) + 1)
    return bool(((bounds.lower > running) | (bounds.upper < running)).any())


@pytest.mark.parametrize("kind", ["ips", "bounded", "clipped", "doubly robust"])
def test_a_confidence_sequence_holds_in_all_rounds(kind: str) -> None:
    """Of 200 logs of 600 rounds at delta = 0.2, at most 40 may lose the running mean at any time."""
    failures = 0
    for seed in range(200):
        log, target, means = simulate(600, seed)
        q = PredictedRewards(torch.tensor([0.15, 0.2, 0.4], dtype=FLOAT).expand(600, 3), from_past=True)
        estimate = clipped_ips(log, target, 3.0) if kind == "clipped" else ips(log, target)
        if kind == "doubly robust":
            estimate = doubly_robust(log, target, q)
        bound = 8.0 if kind in ("bounded", "doubly robust") else None
        bounds = confidence_sequence(estimate, reward_range=(0.0, 1.0), largest_weight=bound, delta=0.2)
        failures += missed(bounds, means)
    assert failures <= 40


def test_bounds_are_lost_now_and_then_where_half_of_them_may_be() -> None:
    """One arm with rare rewards is logged every other time. At delta = 0.5, some of 200 logs lose the mean, and not half."""
    failures, n = 0, 1000
    target = torch.tensor([[0.0, 1.0]], dtype=FLOAT).expand(n, 2)
    for seed in range(200):
        generator = torch.Generator().manual_seed(seed)
        action = torch.randint(2, (n,), generator=generator)
        reward = torch.bernoulli(torch.full((n,), 0.05), generator=generator)
        log = BanditLog(arms=2, action=action, reward=reward, probability=[0.5] * n)
        bounds = confidence_sequence(ips(log, target), reward_range=(0.0, 1.0), largest_weight=2.0, delta=0.5)
        failures += missed(bounds, torch.full((n,), 0.05, dtype=FLOAT))
    assert 10 <= failures <= 100


def test_a_third_of_the_bounds_is_seen_to_fail() -> None:
    """Bounds at a third of their distance lose the mean far more often than delta."""
    failures = 0
    for seed in range(100):
        log, target, means = simulate(600, seed)
        estimate = ips(log, target)
        bounds = confidence_sequence(estimate, reward_range=(0.0, 1.0), largest_weight=8.0, delta=0.2)
        middle = estimate.terms.cumsum(0) / torch.arange(1, 601)
        failures += missed(
            type(bounds)(middle + (bounds.lower - middle) / 3.0, middle + (bounds.upper - middle) / 3.0), means
        )
    assert failures > 40


def test_wrong_weights_are_seen_to_fail() -> None:
    """Inverted weights, and logging probabilities of 1/3, lose the mean in all logs."""
    for seed in range(5):
        log, target, means = simulate(3000, seed)
        inverted = log.probability / target.gather(1, log.action.unsqueeze(1)).squeeze(1).clamp(min=0.05)
        uniform = BanditLog(arms=3, action=log.action, reward=log.reward, probability=torch.full((3000,), 1 / 3))
        for estimate in (
            Estimate("ips", log, torch.zeros(3000, dtype=FLOAT), inverted, log.reward),
            ips(uniform, target),
        ):
            bounds = confidence_sequence(estimate, reward_range=(0.0, 1.0), largest_weight=20.0)
            assert missed(bounds, means)
        right = confidence_sequence(ips(log, target), reward_range=(0.0, 1.0), largest_weight=8.0)
        assert not missed(right, means)


def test_a_logging_policy_that_learns_and_a_world_that_moves_are_covered() -> None:
    """The probability of arm 1 follows the rewards, whose means move with the round; the sequence follows the mean so far."""
    failures, n = 0, 500
    target = torch.tensor([[0.3, 0.7]], dtype=FLOAT).expand(n, 2)
    moving = torch.stack([0.6 - 0.4 * torch.arange(n) / n, 0.1 + 0.7 * torch.arange(n) / n], 1).double()
    for seed in range(200):
        generator = torch.Generator().manual_seed(seed)
        u, v = torch.rand(2, n, generator=generator, dtype=FLOAT).tolist()
        wins, plays, rows = [1.0, 1.0], [2.0, 2.0], []
        for t in range(n):
            p = min(max(wins[1] / plays[1] / (wins[0] / plays[0] + wins[1] / plays[1]), 0.1), 0.9)
            arm = int(u[t] < p)
            reward = float(v[t] < moving[t, arm])
            rows.append((arm, reward, p if arm else 1.0 - p))
            wins[arm] += reward
            plays[arm] += 1.0
        action, rewards, probability = zip(*rows, strict=True)
        log = BanditLog(arms=2, action=list(action), reward=list(rewards), probability=list(probability))
        bounds = confidence_sequence(ips(log, target), reward_range=(0.0, 1.0), largest_weight=7.0, delta=0.2)
        failures += missed(bounds, (target * moving).sum(1))
    assert failures <= 40


def test_widths_shrink_like_the_root_of_the_rounds() -> None:
    """About twice a normal interval, at 1000 rounds as at 100,000, and invariant to the scale of rewards."""
    log, target, _ = simulate(100_000, 3)
    estimate = ips(log, target)
    bounds = confidence_sequence(estimate, reward_range=(0.0, 1.0), largest_weight=8.0)
    for n in (1000, 10_000, 100_000):
        width = float(bounds.upper[n - 1] - bounds.lower[n - 1])
        normal = 3.92 * float(estimate.terms.std()) / math.sqrt(n)
        assert 1.5 < width / normal < 2.6
    scaled = BanditLog(arms=3, action=log.action, reward=100.0 * log.reward - 50.0, probability=log.probability)
    far = confidence_sequence(ips(scaled, target), reward_range=(-50.0, 50.0), largest_weight=8.0)
    torch.testing.assert_close((far.lower + 50.0) / 100.0, bounds.lower, rtol=0.0, atol=1e-6)
    torch.testing.assert_close((far.upper + 50.0) / 100.0, bounds.upper, rtol=0.0, atol=1e-6)


def slow_lower_bounds(terms: list[float], c: float, floor: float, alpha: float) -> list[float]:
    """Return the bounds by bisection, one round after another."""
    most, total, squares, bounds = floor + c, 0.0, 0.0, []
    weights = [(2.0 ** -(j + 0.5), 1.0 / ((j + 1) * (j + 2))) for j in range(24)]
    for t, term in enumerate(terms, 1):
        guess = min(max((total + min(max(0.0, floor), most)) / t, floor), most)
        total, squares = total + term, squares + ((term - guess) / c) ** 2

        def mixture(s: float, squares: float = squares) -> float:
            return sum(p * math.exp(w * s - (-math.log1p(-w) - w) * squares) for w, p in weights)

        low, high = -1e3, 1.0
        while mixture(high) < 1.0 / alpha:
            high *= 2.0
        for _ in range(200):
            middle = 0.5 * (low + high)
            low, high = (low, middle) if mixture(middle) > 1.0 / alpha else (middle, high)
        bounds.append((total - c * high) / t)
    return bounds


def test_bounds_are_those_of_a_bisection() -> None:
    log, target, _ = simulate(60, 4)
    estimate = ips(log, target)
    terms = estimate.terms.tolist()
    bounds = confidence_sequence(estimate, reward_range=(0.0, 1.0), largest_weight=8.0, delta=0.1)
    lower = torch.tensor(slow_lower_bounds(terms, 1.0, 0.0, 0.05), dtype=FLOAT)
    upper = -torch.tensor(slow_lower_bounds([-term for term in terms], 8.0, -8.0, 0.05), dtype=FLOAT)
    torch.testing.assert_close(bounds.lower, lower.clamp(0.0, 1.0), rtol=0.0, atol=1e-5)
    torch.testing.assert_close(bounds.upper, upper.clamp(0.0, 1.0), rtol=0.0, atol=1e-5)
    # Rounded outwards.
    assert bool((bounds.lower <= lower.clamp(0.0, 1.0)).all())
    assert bool((bounds.upper >= upper.clamp(0.0, 1.0)).all())


def test_a_clipped_weight_costs_width_never_coverage() -> None:
    """Clipped bounds lie within what clipping leaves: lower ones below the mean of clipped terms, upper ones above theirs."""
    log, target, _ = simulate(5000, 5, least=0.02)
    clipped = confidence_sequence(clipped_ips(log, target, 2.0), reward_range=(0.0, 1.0))
    weights = clipped_ips(log, target, 2.0).weights
    assert float(clipped.lower[-1]) < float((weights * log.reward).mean())
    assert float(clipped.upper[-1]) > 1.0 - float((weights * (1.0 - log.reward)).mean())


def test_what_a_confidence_sequence_refuses() -> None:
    log, target, _ = simulate(200, 0)
    q = torch.full((200, 3), 0.3, dtype=FLOAT)
    past, later = PredictedRewards(q, True), PredictedRewards(q, False)
    estimate, both = ips(log, target), {"reward_range": (0.0, 1.0)}
    grouped = BanditLog(
        arms=3, action=log.action, reward=log.reward, probability=log.probability, groups=torch.arange(200) // 2
    )
    late = BanditLog(
        arms=3, action=log.action, reward=log.reward, probability=log.probability, time=-torch.arange(200.0)
    )
    wild = PredictedRewards(3.0 * q + 1.0, True)
    one = BanditLog(arms=2, action=[0, 0], reward=[1.0, 0.0], probability=[0.5, 0.5], groups=[7, 7])
    halves = torch.full((2, 2), 0.5)
    none = ips(one[:1], torch.tensor([[0.0, 1.0]]))  # no logged action is the target's
    cases = [
        (
            lambda: confidence_sequence(snips(log, target), **both),
            ValueError,
            "estimate: expected an estimate by ips or clipped",
        ),
        (
            lambda: confidence_sequence(sndr(log, target, past), **both),
            ValueError,
            "estimate: expected an estimate by ips",
        ),
        (
            lambda: confidence_sequence(direct_method(log, target, past), **both),
            ValueError,
            "estimate: expected an estimate by",
        ),
        (
            lambda: confidence_sequence(switch_doubly_robust(log, target, past, 2.0), largest_weight=8.0, **both),
            ValueError,
            "estimate: expected an estimate by ips",
        ),
        (
            lambda: confidence_sequence(doubly_robust(log, target, past), **both),
            ValueError,
            "estimate: expected an estimate by",
        ),
        (
            lambda: confidence_sequence(clipped_ips(log, target, 2.0), largest_weight=8.0, **both),
            ValueError,
            "estimate: expected an estimate by ips",
        ),
        (
            lambda: confidence_sequence(doubly_robust(log, target, later), largest_weight=8.0, **both),
            ValueError,
            "estimate: expected predictions from earlier rounds",
        ),
        (
            lambda: confidence_sequence(doubly_robust(log, target, q), largest_weight=8.0, **both),
            ValueError,
            "estimate: expected predictions from earlier rounds",
        ),
        (
            lambda: confidence_sequence(doubly_robust(log, target, wild), largest_weight=8.0, **both),
            ValueError,
            "estimate: expected predicted rewards in reward_range",
        ),
        (lambda: confidence_sequence(estimate, largest_weight=4.0, **both), ValueError, "largest_weight: expected at"),
        (
            lambda: confidence_sequence(none, largest_weight=0.9, **both),
            ValueError,
            "largest_weight: expected at least 1",
        ),
        (lambda: confidence_sequence(estimate, reward_range=(0.0, 0.5)), ValueError, "reward_range: expected a range"),
        (lambda: confidence_sequence(estimate, reward_range=(0.1, 1.0)), ValueError, "reward_range: expected a range"),
        (
            lambda: confidence_sequence(estimate, reward_range=(1.0, 0.0)),
            ValueError,
            "reward_range: expected a smallest",
        ),
        (lambda: confidence_sequence(estimate, reward_range=1.0), TypeError, "reward_range: expected the smallest"),
        (lambda: confidence_sequence(estimate, delta=1.0, **both), ValueError, "delta: expected a number in"),
        (
            lambda: confidence_sequence(ips(grouped, target), **both),
            ValueError,
            "estimate: expected actions that were drawn",
        ),
        (lambda: confidence_sequence(ips(late, target), **both), ValueError, "estimate: expected a log in the order"),
        (lambda: confidence_sequence(0.5, **both), TypeError, "estimate: expected an Estimate, got float"),
        (lambda: bootstrap_interval(0.5), TypeError, "estimate: expected an Estimate, got float"),
        (lambda: normal_interval(0.5), TypeError, "estimate: expected an Estimate, got float"),
        (lambda: normal_interval(ips(log[:1], target[:1])), ValueError, "estimate: expected at least two groups"),
        (lambda: bootstrap_interval(ips(log[:1], target[:1])), ValueError, "estimate: expected at least two groups"),
        (lambda: bootstrap_interval(ips(one, halves)), ValueError, "estimate: expected at least two groups"),
        (lambda: normal_interval(ips(one, halves)), ValueError, "estimate: expected at least two groups"),
        (lambda: bootstrap_values(estimate, draws=0), ValueError, "draws: expected"),
        (lambda: bootstrap_interval(estimate, delta=0.0), ValueError, "delta: expected"),
    ]
    for call, error, message in cases:
        with pytest.raises(error, match=f"^{message}"):
            call()
    confidence_sequence(doubly_robust(log, target, past), largest_weight=8.0, **both)
    rare = BanditLog(arms=2, action=[0] * 9 + [1], reward=[1.0] * 10, probability=[0.9] * 9 + [0.1])
    with pytest.raises(
        ValueError, match=r"^estimate: expected a weight above 0 in each resample, got none in some; 1 of 10 groups"
    ):
        bootstrap_values(snips(rare, torch.tensor([[0.0, 1.0]]).expand(10, 2)))


def test_the_heaviest_weights_leave_bounds_that_say_nothing() -> None:
    """Weights of 1e50 in both ways: bounds are finite, and the range of the rewards."""
    log = BanditLog(arms=2, action=[0, 1] * 20, reward=[1.0, 0.0, 0.0, 1.0] * 10, probability=[0.5, 1e-50] * 20)
    target = torch.full((40, 2), 0.5, dtype=FLOAT)
    for bound in (None, 1e50):
        bounds = confidence_sequence(ips(log, target), reward_range=(0.0, 1.0), largest_weight=bound)
        for side in bounds:
            assert bool(((side >= 0.0) & (side <= 1.0)).all())
        assert bounds.lower[-1] <= 0.5 <= bounds.upper[-1]
