"""Heavy tails: the diagnostic, the interval that it chooses, and the improvement on the logging policy."""

import copy
import pickle
import re

import pytest
import torch
from torch import Tensor

from torchonline.off_policy import (
    BanditLog,
    Estimate,
    Interval,
    TailWarning,
    bootstrap_interval,
    clipped_ips,
    confidence_interval,
    confidence_sequence,
    direct_method,
    doubly_robust,
    improvement,
    ips,
    normal_interval,
    sndr,
    snips,
    switch_doubly_robust,
)

pytestmark = pytest.mark.filterwarnings("ignore::torchonline.off_policy.OverlapWarning")
FLOAT = torch.float64
UNIT = {"reward_range": (0.0, 1.0)}


def second_arm(n: int) -> Tensor:
    return torch.tensor([[0.0, 1.0]], dtype=FLOAT).expand(n, 2)


def heavy(n: int, seed: int) -> BanditLog:
    """Return a log in which weighted rewards of arm 1 have the tail index 1.3; arm 1 has the value 1 - 0.3 / 1.3."""
    generator = torch.Generator().manual_seed(seed)
    u, coin = torch.rand(2, n, generator=generator, dtype=FLOAT)
    p = u ** (1.0 / 0.3)
    action = (coin < p).long()
    return BanditLog(arms=2, action=action, reward=action * (1.0 - p), probability=torch.where(action == 1, p, 1.0 - p))


def light(n: int, seed: int, *, shared: int = 1) -> BanditLog:
    """Return a log of a fair coin and clicks: arm 0 has the value 0.3, arm 1 has 0.5. Groups have ``shared`` rounds."""
    generator = torch.Generator().manual_seed(seed)
    action = torch.randint(2, (n,), generator=generator)
    reward = torch.bernoulli(0.3 + 0.2 * action.to(FLOAT), generator=generator)
    groups = torch.arange(n) // shared if shared > 1 else None
    return BanditLog(arms=2, action=action, reward=reward, probability=[0.5] * n, groups=groups)


def last(bounds: Interval) -> list[float]:
    return [float(end[-1]) for end in bounds]


def test_the_share_is_that_of_the_largest_squared_deviation() -> None:
    log = light(60, 0, shared=3)
    estimate = ips(log, torch.tensor([[0.2, 0.8]], dtype=FLOAT).expand(60, 2))
    terms = estimate.terms.tolist()
    mean = sum(terms) / 60
    squares = [sum(term - mean for term in terms[i : i + 3]) ** 2 for i in range(0, 60, 3)]
    assert estimate.tail_share == pytest.approx(max(squares) / sum(squares), rel=1e-9)


@pytest.mark.parametrize("count", [1, 5, 40])
def test_the_share_of_equal_terms_among_zeros_is_one_over_their_number(count: int) -> None:
    reward = torch.zeros(4000)
    reward[:count] = 1.0
    log = BanditLog(arms=2, action=torch.ones(4000).long(), reward=reward, probability=[0.5] * 4000)
    assert ips(log, second_arm(4000)).tail_share == pytest.approx(1.0 / count, rel=0.02)


@pytest.mark.parametrize("reward", [0.0, 0.1, 1e9])
def test_equal_terms_show_no_variance(reward: float) -> None:
    log = BanditLog(arms=2, action=[1] * 100, reward=[reward] * 100, probability=[0.3] * 100)
    for estimate in (ips(log, second_arm(100)), snips(log, second_arm(100))):
        assert estimate.tail_share == 1.0


def test_the_share_of_a_self_normalised_estimate_is_that_of_its_normal_interval() -> None:
    """It is a mean of w (r - value) in the limit, which a constant added to rewards does not change."""
    log = heavy(500, 1)
    moved = BanditLog(arms=2, action=log.action, reward=log.reward + 7.0, probability=log.probability)
    target = second_arm(500)
    assert snips(moved, target).tail_share == pytest.approx(snips(log, target).tail_share, rel=1e-9)
    assert ips(moved, target).tail_share != pytest.approx(ips(log, target).tail_share, rel=1e-3)


def test_light_tails_keep_the_normal_interval() -> None:
    log = light(400, 2)
    q = torch.full((400, 2), 0.4, dtype=FLOAT)
    for estimate in (ips(log, second_arm(400)), snips(log, second_arm(400)), sndr(log, second_arm(400), q)):
        bounds = confidence_interval(estimate, delta=0.1, **UNIT)
        assert bounds == normal_interval(estimate, delta=0.1)
        assert (bounds.method, bounds.note) == ("normal", "")
        assert repr(bounds).endswith(", method='normal')")
        assert estimate.tail_share < 0.02


def test_heavy_tails_take_the_confidence_sequence_of_the_weights() -> None:
    log, target = heavy(300, 3), second_arm(300)
    q = torch.full((300, 2), 0.4, dtype=FLOAT)
    expected = last(confidence_sequence(ips(log, target), **UNIT))
    for estimate in (ips(log, target), snips(log, target), doubly_robust(log, target, q)):
        bounds = confidence_interval(estimate, **UNIT)
        assert list(bounds) == pytest.approx(expected, rel=1e-9)
        assert bounds.method == "confidence_sequence"
        assert re.fullmatch(r"heavy tail: one round has \d+% of the variance", bounds.note)
        assert f"method='confidence_sequence', note='{bounds.note}'" in repr(bounds)
    for estimate in (clipped_ips(log, target, 100.0), switch_doubly_robust(log, target, q, 100.0)):
        lower, upper = confidence_interval(estimate, largest_weight=1e9, **UNIT)
        assert lower < 1.0 - 0.3 / 1.3 < upper
        assert upper > 1.0 - float((estimate.weights * (1.0 - log.reward)).mean())
    # The direct method has no weights, so what it predicts says nothing.
    assert list(confidence_interval(direct_method(log, target, q), **UNIT)) == pytest.approx([0.0, 1.0])


def test_a_known_largest_weight_makes_the_interval_of_rare_clicks_narrow() -> None:
    n = 1000
    action = [0, 1] * (n // 2)
    reward = [float(i in (1, 501)) for i in range(n)]
    estimate = ips(BanditLog(arms=2, action=action, reward=reward, probability=[0.5] * n), second_arm(n))
    wide, narrow = confidence_interval(estimate), confidence_interval(estimate, largest_weight=2.0)
    assert narrow.upper - narrow.lower < 0.5 * (wide.upper - wide.lower)
    assert list(narrow) == pytest.approx(last(confidence_sequence(estimate, largest_weight=2.0, **UNIT)), rel=1e-9)
    # Clicks have a range that needs no argument, and the note says so.
    assert wide.note.endswith("; rewards are assumed to be in [0, 1]")
    assert confidence_interval(estimate, **UNIT).note == wide.note.split(";")[0]


@pytest.mark.parametrize(("clicks", "method"), [(9, "confidence_sequence"), (12, "normal")])
def test_the_interval_changes_at_a_share_of_a_tenth(clicks: int, method: str) -> None:
    reward = torch.zeros(1000)
    reward[:clicks] = 1.0
    log = BanditLog(arms=2, action=[1] * 1000, reward=reward, probability=[0.5] * 1000)
    assert confidence_interval(ips(log, second_arm(1000))).method == method


def test_an_unknown_range_leaves_no_finite_bounds() -> None:
    estimate = ips(heavy(300, 3), second_arm(300))
    bounds = confidence_interval(estimate)
    assert bounds == (-torch.inf, torch.inf)
    assert bounds.method == "none"
    assert bounds.note.endswith("% of the variance; give reward_range for finite bounds")


def test_heavy_tails_are_covered_where_the_normal_interval_is_too_short() -> None:
    missed, truths = torch.zeros(2, 2), (1.0 - 0.3 / 1.3, 1.0 - 0.3 / 1.3 - (0.3 / 1.3 - 0.3 / 2.3))
    for seed in range(12):
        estimate = ips(heavy(100, seed), second_arm(100))
        for row, (subject, truth) in enumerate(zip((estimate, improvement(estimate)), truths, strict=True)):
            with pytest.warns(TailWarning):
                bounds = normal_interval(subject)
            for column, (lower, upper) in enumerate((bounds, confidence_interval(subject, **UNIT))):
                missed[row, column] += not lower <= truth <= upper
    assert bool((missed[:, 0] >= 4).all())
    assert bool((missed[:, 1] == 0).all())


def test_rounds_that_are_repeated_in_a_group_add_nothing() -> None:
    """A log of groups of equal rounds has the bounds of the log of one round each."""
    log = heavy(150, 4)
    rows = torch.arange(450) // 3
    repeated = BanditLog(
        arms=2, action=log.action[rows], reward=log.reward[rows], probability=log.probability[rows], groups=rows
    )
    for largest in (None, 1e8):
        for function in (lambda x: x, improvement):
            one, three = (function(ips(x, second_arm(len(x)))) for x in (log, repeated))
            bounds = confidence_interval(three, largest_weight=largest, **UNIT)
            assert list(bounds) == pytest.approx(
                list(confidence_interval(one, largest_weight=largest, **UNIT)), rel=1e-9
            )
            assert "one group has" in bounds.note


def test_groups_of_one_round_keep_the_order_of_the_log() -> None:
    log = heavy(200, 5)
    order = torch.arange(200).flip(0)
    grouped = BanditLog(arms=2, action=log.action, reward=log.reward, probability=log.probability, groups=order)
    assert list(confidence_interval(ips(grouped, second_arm(200)), **UNIT)) == list(
        confidence_interval(ips(log, second_arm(200)), **UNIT)
    )


def test_an_improvement_is_a_mean_of_differences() -> None:
    log, target = light(400, 6), torch.tensor([[0.4, 0.6]], dtype=FLOAT).expand(400, 2)
    estimate = ips(log, target)
    gain = improvement(estimate)
    difference = (estimate.weights - 1.0) * log.reward
    assert gain.value == pytest.approx(float(difference.mean()), rel=1e-9)
    assert gain.value == pytest.approx(estimate.value - float(log.reward.mean()), rel=1e-9)
    half = 1.959964 * float(difference.std()) / 20.0
    for bounds in (normal_interval(gain), confidence_interval(gain)):
        assert list(bounds) == pytest.approx([gain.value - half, gain.value + half], rel=1e-6)
    # Much narrower than the interval of the value, because target and log mostly agree.
    value = normal_interval(estimate)
    assert half < 0.4 * (value.upper - value.lower) / 2.0
    assert repr(gain).startswith("Estimate(ips minus logged: ")
    resampled = bootstrap_interval(gain)
    assert abs(resampled.lower - (gain.value - half)) < 0.2 * half


def test_the_improvement_of_the_logging_policy_is_zero() -> None:
    log = light(300, 7)
    gain = improvement(ips(log, torch.full((300, 2), 0.5)))
    assert gain.value == 0.0
    for largest in (None, 1.0, 5.0):
        lower, upper = confidence_interval(gain, largest_weight=largest)
        assert -0.2 < lower <= 0.0 <= upper < 0.2


@pytest.mark.parametrize("largest", [None, 2.0])
@pytest.mark.parametrize("scale", [1.0, 50.0])
def test_the_confidence_sequence_of_an_improvement_holds_in_all_rounds(largest: float | None, scale: float) -> None:
    """Of 10 logs at delta = 0.5, at most 5 may lose the improvement of 0.1 at any time."""
    failures = 0
    for seed in range(10):
        log = light(100, seed)
        log = BanditLog(arms=2, action=log.action, reward=scale * (log.reward - 0.5), probability=log.probability)
        gain = improvement(ips(log, second_arm(100)))
        bounds = confidence_sequence(gain, reward_range=(-0.5 * scale, 0.5 * scale), largest_weight=largest, delta=0.5)
        failures += bool(((bounds.lower > 0.1 * scale) | (bounds.upper < 0.1 * scale)).any())
    assert failures <= 5
    assert bool((bounds.upper <= scale).all())
    assert bool((bounds.lower >= -scale).all())


def test_few_clicks_of_the_target_are_not_hidden_by_many_of_the_log() -> None:
    """The differences are those of 100 logged clicks, but the target's arm has none."""
    reward = torch.zeros(2000)
    reward[:200:2] = 1.0
    log = BanditLog(arms=2, action=[0, 1] * 1000, reward=reward, probability=[0.5] * 2000)
    assert improvement(ips(log, second_arm(2000))).tail_share == 1.0


def test_asymptotic_intervals_warn_of_heavy_tails() -> None:
    estimate = ips(heavy(100, 8), second_arm(100))
    text = r"^estimate: expected terms with a light tail, .*, got a heavy tail: one round has \d+% of the variance; take conf"
    for call in (normal_interval, lambda x: bootstrap_interval(x, draws=10)):
        with pytest.warns(TailWarning, match=text):
            bounds = call(estimate)
        assert bounds.method in ("normal", "bootstrap")


def test_an_interval_is_a_tuple_that_can_be_copied() -> None:
    bounds = Interval(0.0, 1.0, method="normal", note="why")
    lower, upper = bounds
    assert (lower, upper, len(bounds)) == (0.0, 1.0, 2)
    for other in (copy.deepcopy(bounds), pickle.loads(pickle.dumps(bounds))):
        assert (other, other.method, other.note) == (bounds, "normal", "why")
    assert repr(bounds._replace(upper=2.0)) == "Interval(lower=0, upper=2)"


def test_what_the_default_interval_refuses() -> None:
    log, target = heavy(100, 9), second_arm(100)
    estimate, q = ips(log, target), torch.full((100, 2), 0.3, dtype=FLOAT)
    one = ips(BanditLog(arms=2, action=[0], reward=[1.0], probability=[0.5]), second_arm(1))
    signed = Estimate("ips", log, torch.zeros_like(log.reward), -estimate.weights, log.reward)
    cases = [
        (lambda: confidence_interval(0.5), TypeError, "estimate: expected an Estimate, got float"),
        (lambda: confidence_interval(estimate, delta=1.0), ValueError, "delta: expected a number in"),
        (lambda: confidence_interval(estimate, reward_range=1.0), TypeError, "reward_range: expected the smallest"),
        (lambda: confidence_interval(estimate, reward_range=(0.0, 0.1)), ValueError, "reward_range: expected a range"),
        (lambda: confidence_interval(estimate, largest_weight=1.5), ValueError, "largest_weight: expected at least"),
        (lambda: confidence_interval(estimate, largest_weight="1"), TypeError, "largest_weight: expected"),
        (lambda: confidence_interval(one), ValueError, "estimate: expected at least two groups"),
        (lambda: confidence_interval(signed, **UNIT), ValueError, "estimate: expected weights of at least 0"),
        (lambda: improvement(1.0), TypeError, "estimate: expected an Estimate, got float"),
        (
            lambda: improvement(improvement(estimate)),
            ValueError,
            "estimate: expected an estimated value, got an improv",
        ),
        (
            lambda: confidence_sequence(improvement(doubly_robust(log, target, q)), largest_weight=1e9, **UNIT),
            ValueError,
            "estimate: expected an improvement by ips or clipped_ips",
        ),
    ]
    for call, error, message in cases:
        with pytest.raises(error, match=f"^{message}"):
            call()
    # Bounds are checked where they are not needed, too.
    with pytest.raises(ValueError, match=r"^reward_range: expected a range of all rewards"):
        confidence_interval(ips(light(400, 0), second_arm(400)), reward_range=(0.0, 0.5))
