"""Probabilities of choices: what they sum to, that choices follow them, and the formulas of the policies that draw."""

import io
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.learners import BATCH_SHAPES, close, differences, round_of, snapshot
from torchonline import (
    UCB,
    EpsilonGreedy,
    Greedy,
    HeavyTailRegression,
    LocalGLMRegression,
    RidgeRegression,
    Softmax,
    SquareCB,
    ThompsonSampling,
)
from torchonline.policies.rules import Rule

pytestmark = pytest.mark.fast

D = torch.float64
DRAWS = 100_000


class Reversed(UCB):
    """A user's policy: the scores in reverse, and a draw between the arms with the two best."""

    is_random = True

    def _scores(self, features: Tensor) -> Tensor:
        return -self.estimator.predictor(features)

    def distribution(self, scores: Tensor, rounds: Tensor) -> Tensor:
        ranks = scores.argsort(-1, descending=True).argsort(-1)
        chances = torch.where(scores > -math.inf, 0.5 ** (1.0 + ranks.to(scores.dtype)), 0.0)
        return chances / chances.sum(-1, keepdim=True)


POLICIES: dict[str, Callable[[Any], Rule]] = {
    "UCB": UCB,
    "Greedy": Greedy,
    "EpsilonGreedy": lambda estimator: EpsilonGreedy(estimator, epsilon=0.8, decay=0.25),
    "SquareCB": lambda estimator: SquareCB(estimator, gamma=2.0, exponent=0.3),
    "Softmax": lambda estimator: Softmax(estimator, temperature=0.4),
    "ThompsonSampling": ThompsonSampling,
    "Reversed": Reversed,
}
EXACT = [name for name in POLICIES if name != "ThompsonSampling"]


def learnt(name: str, cls: Any = RidgeRegression, **options: Any) -> Any:
    """A policy after 20 rounds."""
    policy = POLICIES[name](cls(3, **options))
    shape = (*options.get("batch_shape", ()), 20)
    policy.step(*round_of(policy, 0.5 * torch.randn(*shape, 3, dtype=D), torch.rand(shape, dtype=D)))
    return policy


def arms_and_mask(*shape: int, arms: int = 5) -> tuple[Tensor, Tensor]:
    """Arms with a mask that leaves at least one of them."""
    mask = torch.rand(*shape, arms) < 0.6
    mask[..., 1] = True
    return torch.randn(*shape, arms, 3, dtype=D), mask


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("batch_shape", [(), (2,), (2, 3)])
@pytest.mark.parametrize("name", POLICIES)
def test_probabilities_are_a_law_on_the_available_arms(
    name: str, batch_shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    """For one decision and for many, with and without a mask; and looking changes nothing."""
    policy = learnt(name, batch_shape=batch_shape, dtype=dtype)
    before = snapshot(policy)
    for rows in ((), (7,), (2, 3)):
        arms, mask = arms_and_mask(*batch_shape, *rows)
        for available in (None, mask, mask.numpy(), mask.tolist()):
            p = policy.probabilities(arms, available)
            assert p.shape == arms.shape[:-1]
            assert p.dtype == dtype
            assert bool((p >= 0.0).all())
            close(p.sum(-1), torch.ones(p.shape[:-1], dtype=dtype), 1e-6 if dtype == torch.float32 else 1e-12)
            assert available is None or not bool(p[~mask].any())
            index, chance = policy.select_with_probability(arms, available)
            assert index.shape == chance.shape == arms.shape[:-2]
            assert bool((chance > 0.0).all())
            assert available is None or bool(mask.gather(-1, index.unsqueeze(-1)).all())
            assert policy.select(arms, available).shape == index.shape
    assert differences(before, snapshot(policy)) == []


@pytest.mark.parametrize("name", EXACT)
def test_decisions_have_the_probabilities_of_their_own_arms(name: str) -> None:
    """Many decisions at once are what they are one by one, and a decision's probability is its arm's."""
    for batch_shape in BATCH_SHAPES:
        policy = learnt(name, batch_shape=batch_shape)
        arms, mask = arms_and_mask(*batch_shape, 9)
        p = policy.probabilities(arms, mask)
        for n in range(9):
            close(policy.probabilities(arms[..., n, :, :], mask[..., n, :]), p[..., n, :], 1e-12)
        index, chance = policy.select_with_probability(arms, mask)
        close(p.gather(-1, index.unsqueeze(-1)).squeeze(-1), chance, 1e-15)


def chi_square(counts: Tensor, p: Tensor) -> float:
    """The statistic over the arms that may be drawn."""
    expected = DRAWS * p[p > 0.0]
    return float(((counts[p > 0.0] - expected) ** 2 / expected).sum())


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("name", EXACT)
def test_choices_have_the_frequencies_of_their_probabilities(name: str, masked: bool) -> None:
    """Of both ways to choose: a chi-square statistic of 4 degrees is below 40 but for a share of 1e-7 of all seeds."""
    policy = learnt(name)
    arms, mask = arms_and_mask()
    available = mask if masked else None
    p = policy.probabilities(arms, available)
    many = arms.expand(DRAWS, 5, 3), available if available is None else available.expand(DRAWS, 5)
    for index in (policy.select(*many), policy.select_with_probability(*many)[0]):
        counts = torch.bincount(index, minlength=5).to(D)
        assert not bool(counts[p == 0.0].any())
        assert chi_square(counts, p) < 40.0
        if policy.is_random:  # the test has the power to tell another law
            others = torch.where(p > 0.0, p + 0.02 * torch.linspace(-1.0, 1.0, 5, dtype=D), 0.0).clamp(min=1e-9)
            assert chi_square(counts, others / others.sum()) > 40.0


def test_single_choices_follow_the_probabilities_too() -> None:
    """One decision at a time, which is computed on arrays where it can be."""
    for name in ("EpsilonGreedy", "Reversed"):
        policy = learnt(name)
        arms, _ = arms_and_mask()
        p = policy.probabilities(arms)
        counts = torch.bincount(torch.stack([policy.select(arms) for _ in range(4000)]), minlength=5)
        assert bool(((counts - 4000 * p).abs() <= 5.5 * (4000 * p * (1.0 - p)).sqrt() + 1e-9).all())


def test_thompson_sampling_estimates_its_probabilities() -> None:
    """Within six of the stated standard errors of the frequency of 10^5 choices, which has an error of its own."""
    for draws in (200, 1000):
        policy = ThompsonSampling(learnt("UCB").estimator, draws=draws)
        arms, mask = arms_and_mask()
        for available in (None, mask):
            many = None if available is None else available.expand(DRAWS, 5)
            counts = torch.bincount(policy.select(arms.expand(DRAWS, 5, 3), many), minlength=5)
            share = counts / DRAWS
            error = (share * (1.0 - share) * (1.0 / draws + 1.0 / DRAWS)).sqrt()
            p = policy.probabilities(arms, available)
            assert bool(((p - share).abs() <= 6.0 * error + 2.0 / draws).all())
            close(p * draws, (p * draws).round(), 1e-9)
        index, chance = policy.select_with_probability(arms)
        assert chance * draws >= 1.0 - 1e-9
        assert 0 <= int(index) < 5


def test_thompson_draws_of_one_decision_differ() -> None:
    """The draws that probabilities average over are independent: their variance is that of so many draws."""
    policy = ThompsonSampling(RidgeRegression(2), draws=100)
    seen = torch.stack([policy.probabilities(torch.eye(2, dtype=D))[0] for _ in range(300)])
    # Half the draws choose the first of two arms that nothing tells apart: a standard error of 0.05.
    assert 0.04 < float(seen.std()) < 0.06
    assert abs(float(seen.mean()) - 0.5) < 5.0 * 0.05 / math.sqrt(300)


def test_policies_without_draws_are_certain() -> None:
    arms, mask = arms_and_mask(50)
    for name in ("UCB", "Greedy"):
        policy = learnt(name)
        for available in (None, mask):
            p, best = policy.probabilities(arms, available), policy.select(arms, available)
            assert torch.equal(p, torch.nn.functional.one_hot(best, 5).to(D))
            index, chance = policy.select_with_probability(arms, available)
            assert torch.equal(index, best)
            assert bool((chance == 1.0).all())


def test_epsilon_falls_as_stated() -> None:
    estimator = RidgeRegression(2)
    policy = EpsilonGreedy(estimator, epsilon=0.4, decay=0.5)
    policy.step([[0.0, 1.0]], 0, 1.0)  # so that the arms do not tie
    for t in range(2, 10):
        p = policy.probabilities(torch.eye(2))
        assert p.min().item() == pytest.approx(0.4 / math.sqrt(t) / 2.0, rel=1e-12)
        policy.step([[0.0, 1.0]], 0, 1.0)
    batched = EpsilonGreedy(RidgeRegression(2, batch_shape=(2,)), epsilon=0.4, decay=0.5)
    batched.step(torch.tensor([[0.0, 1.0]]).expand(2, 1, 2), [0, 0], [1.0, 1.0])
    batched.estimator.rounds.copy_(torch.tensor([0, 3]))
    p = batched.probabilities(torch.eye(2).expand(2, 2, 2))
    close(p.amin(-1), torch.tensor([0.2, 0.1], dtype=D), 1e-12)


def test_square_cb_is_inverse_gap_weighting() -> None:
    """Every arm but the best has 1 / (K + gamma_t gap); masked arms are no arms."""
    policy = SquareCB(learnt("Greedy").estimator, gamma=3.0, exponent=0.5)
    arms, mask = arms_and_mask(50)
    gamma = 3.0 * math.sqrt(21.0)
    means = policy.estimator(arms)
    for available in (torch.ones_like(mask), mask):
        p, seen = policy.probabilities(arms, available).numpy(), means.masked_fill(~available, -math.inf).numpy()
        for row, scores in zip(p, seen, strict=True):
            best, count = int(np.argmax(scores)), int(np.isfinite(scores).sum())
            expected = 1.0 / (count + gamma * (scores[best] - scores))
            expected[best] = 0.0
            expected[best] = 1.0 - expected.sum()
            np.testing.assert_allclose(row, expected, rtol=1e-12, atol=1e-15)
            assert row[best] >= 1.0 / count - 1e-12


def test_the_gamma_of_the_theorem() -> None:
    expected = math.sqrt(5 * 1000 / (20.0 + math.log(2.0 / 0.05)))
    assert SquareCB.theorem_gamma(5, 1000, 20.0, delta=0.05) == pytest.approx(expected, rel=1e-15)
    assert SquareCB.theorem_gamma(5, 1000, 0) == pytest.approx(math.sqrt(5000 / math.log(200.0)), rel=1e-15)
    good: dict[str, Any] = {"actions": 5, "horizon": 1000, "regret": 20.0, "delta": 0.05}
    bad = {"actions": [0, 2.5, True], "horizon": [0, None], "regret": [-1.0, math.nan, "1"], "delta": [0.0, 1.0]}
    for name, values in bad.items():
        for value in values:
            with pytest.raises((ValueError, TypeError), match=f"^{name}: expected "):
                SquareCB.theorem_gamma(**good | {name: value})


def test_softmax_is_softmax_of_any_size() -> None:
    """Also where means divided by the temperature overflow, and for a tie."""
    estimator = RidgeRegression(2, dtype=torch.float32)
    estimator.theta_hat.copy_(torch.tensor([1e10, 0.0]))
    p = Softmax(estimator, temperature=1e-30).probabilities(torch.eye(2))
    assert p.tolist() == [1.0, 0.0]
    p = Softmax(estimator, temperature=1e-30).probabilities([[1.0, 0.0], [1.0, 1.0], [1.0, 0.0]], [True, True, False])
    assert p.tolist() == [0.5, 0.5, 0.0]
    policy = learnt("Softmax")
    arms, _ = arms_and_mask(9)
    close(policy.probabilities(arms), torch.softmax(policy.estimator(arms) / 0.4, -1), 1e-12)


def test_links_explore_by_means() -> None:
    policy = Softmax(LocalGLMRegression(3, feature_bound=10.0), temperature=0.5)
    policy.step(*round_of(policy, torch.randn(30, 3), torch.ones(30)))
    arms, _ = arms_and_mask()
    close(policy(arms), policy.estimator(arms))
    close(policy.probabilities(arms), torch.softmax(policy.estimator(arms) / 0.5, -1), 1e-12)


@pytest.mark.parametrize("name", [name for name in POLICIES if name != "Reversed"])
def test_files_have_the_same_probabilities(name: str) -> None:
    for batch_shape in BATCH_SHAPES:
        policy = learnt(name, HeavyTailRegression, batch_shape=batch_shape)
        file = io.BytesIO()
        torch.jit.save(torch.jit.script(policy), file)
        file.seek(0)
        script = torch.jit.load(file)
        arms, mask = arms_and_mask(*batch_shape, 4)
        for available in (None, mask):
            seen: list[Any] = []
            for module in (policy, script):
                torch.manual_seed(5)
                seen.append((module.probabilities(arms, available), *module.select_with_probability(arms, available)))
            close(seen[0][0], seen[1][0], 1e-12)
            assert torch.equal(seen[0][1], seen[1][1])
            close(seen[0][2], seen[1][2], 1e-12)
        assert differences(snapshot(policy), {name: script.state_dict()[name] for name in snapshot(policy)}) == []


def test_draws_follow_the_global_seed() -> None:
    for name in ("EpsilonGreedy", "ThompsonSampling"):
        policy, seen = learnt(name), []
        arms, _ = arms_and_mask(50)
        for seed in (0, 0, 1):
            torch.manual_seed(seed)
            seen.append((policy.select(arms), *policy.select_with_probability(arms)))
        assert all(map(torch.equal, seen[0], seen[1]))
        assert not torch.equal(seen[0][1], seen[2][1])


def test_wrong_arguments_are_named() -> None:
    policy = learnt("EpsilonGreedy")
    before = snapshot(policy)
    for ask in (policy.probabilities, policy.select_with_probability):
        for bad in (torch.ones(3), torch.ones(2, 4), torch.full((2, 3), torch.nan), "arms", torch.ones(2, 3).long()):
            with pytest.raises((ValueError, TypeError), match=r"^inputs: expected "):
                ask(bad)
        for mask in (torch.zeros(2, dtype=torch.bool), torch.ones(3, dtype=torch.bool), [1, 0], "all"):
            with pytest.raises((ValueError, TypeError), match=r"^mask: expected "):
                ask(torch.ones(2, 3), mask)
    assert differences(before, snapshot(policy)) == []


def test_a_constant_epsilon_of_one_is_uniform() -> None:
    policy = EpsilonGreedy(learnt("UCB").estimator, epsilon=1.0)
    arms, mask = arms_and_mask(20)
    p = policy.probabilities(arms, mask)
    close(p, mask.to(D) / mask.sum(-1, keepdim=True), 1e-12)
    assert repr(policy).startswith("EpsilonGreedy(\n  epsilon=1\n")


def test_extreme_options_give_probabilities() -> None:
    """Infinity times a gap of 0, or a temperature that is 0 in float32, would give NaN."""
    for policy in (
        SquareCB(RidgeRegression(2), exponent=500.0),
        SquareCB(RidgeRegression(2, dtype=torch.float32), gamma=1e40),
        Softmax(RidgeRegression(2, dtype=torch.float32), temperature=1e-50),
    ):
        for _ in range(5):
            policy.step([[0.0, 1.0]], 0, 1.0)
        assert policy.probabilities(torch.eye(2)).tolist() == pytest.approx([0.0, 1.0], abs=1e-30)
