"""Tests of replay against simulated truths, with wrong weights as counterexamples."""

import re
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor

from torchonline import OFUL, HeavyTailUCB, RidgeRegression, ThompsonSampling
from torchonline.off_policy import bootstrap_means, effective_sample_size, propensities, replay, self_normalised_mean

LOGS, FAMILIES, SIZE, ARMS = 200, 25, 8, 3
# Arms 1 and 2 are logged more often at the site where they pay less, arm 0 where it pays more.
LOGGING = torch.tensor([[0.6, 0.3, 0.1], [0.15, 0.25, 0.6]], dtype=torch.float64)
MEANS = torch.tensor([[3.0, 2.0, 2.5], [2.0, 3.0, 2.2]], dtype=torch.float64)


@dataclass
class Simulated:
    """Independent logs in a row; all rounds of a family have one arm and one shock."""

    site: Tensor
    family: Tensor
    arms: Tensor
    actions: Tensor
    rewards: Tensor

    @property
    def probability(self) -> Tensor:
        return LOGGING[self.site, self.actions]


def simulate(logs: int = LOGS, shock_scale: float = 2.0) -> Simulated:
    generator = torch.Generator().manual_seed(0)
    families = logs * FAMILIES
    family = torch.arange(families).repeat_interleave(SIZE)
    site = torch.randint(2, (families,), generator=generator)
    actions = torch.multinomial(LOGGING[site], 1, generator=generator).squeeze(1)[family]
    site = site[family]
    shock, noise = (torch.randn(n, generator=generator, dtype=torch.float64) for n in (families, families * SIZE))
    arms = torch.zeros(len(family), ARMS, 2 * ARMS, dtype=torch.float64)
    for arm in range(ARMS):
        arms[torch.arange(len(family)), arm, 2 * arm + site] = 1.0
    return Simulated(site, family, arms, actions, MEANS[site, actions] + shock_scale * shock[family] + 0.5 * noise)


def policy(batch_shape: tuple[int, ...] = ()) -> OFUL:
    # The larger radius explores more, so that more rounds match and wrong weights show.
    return OFUL(2 * ARMS, noise_scale=2.0, theta_bound=7.0, radius="classic", radius_scale=0.3, batch_shape=batch_shape)


def errors(log: Simulated, groups: Tensor, probability: Tensor) -> tuple[float, float, float]:
    """Return the errors of two means and of the mean weight, in standard errors."""
    orders = torch.arange(int(groups.max()) + 1).reshape(LOGS, -1)
    choices = replay(policy((LOGS,)), log.arms, log.actions, log.rewards, groups, orders)
    own = choices >= 0
    assert (own.sum(0) == 1).all()
    assert (own.sum(1) == FAMILIES * SIZE).all()
    truth = (MEANS[log.site.expand(LOGS, -1), choices.clamp(min=0)] * own).sum(1) / own.sum(1)
    weights = (choices == log.actions) / probability
    plain = (weights * log.rewards).sum(1) / own.sum(1)
    differences = (plain - truth, self_normalised_mean(log.rewards, weights) - truth, weights.sum(1) / own.sum(1) - 1.0)
    return tuple((d.mean() / (d.std() / LOGS**0.5)).item() for d in differences)


def test_the_value_of_a_policy_that_learns_is_found() -> None:
    log = simulate()
    assert all(abs(error) < 3.0 for error in errors(log, log.family, log.probability))


def test_with_propensities_that_were_counted_too() -> None:
    log = simulate()
    counted = propensities(log.site, log.actions, ARMS)
    assert (counted - LOGGING[log.site]).abs().max() < 0.02
    probability = counted.gather(1, log.actions.unsqueeze(1)).squeeze(1)
    assert all(abs(error) < 3.0 for error in errors(log, log.family, probability))


def test_wrong_propensities_are_seen_to_fail() -> None:
    log = simulate(shock_scale=0.3)
    assert all(abs(error) < 3.0 for error in errors(log, log.family, log.probability))
    wrong = torch.full_like(log.rewards, 1.0 / ARMS)
    assert all(abs(error) > 5.0 for error in errors(log, log.family, wrong))


def test_learning_within_a_group_is_seen_to_fail() -> None:
    """A match reveals the family's next logged arm, which makes the weights wrong."""
    log = simulate()
    assert all(abs(error) > 5.0 for error in errors(log, torch.arange(len(log.actions)), log.probability))


def test_replay_is_select_and_step() -> None:
    """Each learner of a fleet does the same as a loop over its families."""
    log = simulate(logs=3)
    # Families of different sizes, not in order.
    keep = torch.rand(len(log.family), generator=torch.Generator().manual_seed(1)) < 0.7
    _, family = log.family[keep].unique(return_inverse=True)
    arms, actions, rewards = log.arms[keep], log.actions[keep], log.rewards[keep]
    shuffled = torch.randperm(len(family), generator=torch.Generator().manual_seed(2))
    family, arms, actions, rewards = family[shuffled], arms[shuffled], actions[shuffled], rewards[shuffled]
    orders = torch.stack(
        [torch.randperm(2 * FAMILIES, generator=torch.Generator().manual_seed(seed)) for seed in range(4)]
    )
    fleet = policy((4,))
    choices = replay(fleet, arms, actions, rewards, family, orders)
    for number, order in enumerate(orders):
        alone, expected = policy(), torch.full_like(actions, -1)
        for group in order:
            rows = (family == group).nonzero().squeeze(1)
            expected[rows] = alone.select(arms[rows])
            for row in rows:
                if expected[row] == actions[row]:
                    alone.step(arms[row, actions[row]], rewards[row])
        assert torch.equal(choices[number], expected)
        assert (expected == -1).any()
        assert fleet.estimator.rounds[number] == alone.estimator.rounds
        torch.testing.assert_close(fleet.estimator.theta_hat[number], alone.estimator.theta_hat)
        single = policy()
        assert torch.equal(replay(single, arms, actions, rewards, family, order), expected)
        assert torch.equal(single.estimator.theta_hat, alone.estimator.theta_hat)


def test_replay_of_a_fleet_learns_from_no_round_that_taught_nothing() -> None:
    """An invalid reward in a round that no learner learns from raises no error."""
    random = torch.Generator().manual_seed(0)
    arms = torch.randn(12, 2, 2, generator=random, dtype=torch.float64)
    actions = torch.randint(2, (12,), generator=random)
    rewards = torch.randn(12, generator=random, dtype=torch.float64)
    rewards[5] = 1e30
    groups = torch.arange(12)
    orders = torch.stack([torch.randperm(12, generator=random) for _ in range(2)])
    alone = [replay(HeavyTailUCB(2, noise="symmetric"), arms, actions, rewards, groups, order) for order in orders]
    fleet = replay(HeavyTailUCB(2, noise="symmetric", batch_shape=(2,)), arms, actions, rewards, groups, orders)
    assert torch.equal(fleet, torch.stack(alone))


def test_replay_takes_a_policy_that_draws() -> None:
    log = simulate(logs=1)
    sampling = ThompsonSampling(RidgeRegression(2 * ARMS, batch_shape=(2, 2)))
    orders = torch.arange(FAMILIES).expand(2, 2, FAMILIES)
    choices = replay(sampling, log.arms, log.actions, log.rewards, log.family, orders)
    assert choices.shape == (2, 2, FAMILIES * SIZE)
    matches = (choices == log.actions).sum(-1)
    assert torch.equal(sampling.estimator.rounds, matches)
    assert len(matches.unique()) > 1


def test_propensities_are_smoothed_counts() -> None:
    rng = np.random.default_rng(0)
    strata, actions = rng.integers(3, size=(500, 2)), rng.integers(4, size=500)
    ours = propensities(torch.from_numpy(strata), torch.from_numpy(actions), 4, smoothing=0.5).numpy()
    for row, stratum in zip(ours, strata, strict=True):
        inside = actions[(strata == stratum).all(1)]
        expected = [((inside == arm).sum() + 0.5) / (len(inside) + 2.0) for arm in range(4)]
        np.testing.assert_allclose(row, expected, rtol=1e-12)
    np.testing.assert_allclose(ours.sum(1), 1.0, rtol=1e-12)


def test_weighted_means() -> None:
    rng = np.random.default_rng(0)
    values, weights = rng.normal(size=50), rng.exponential(size=(2, 3, 50))
    ours = self_normalised_mean(torch.from_numpy(values), torch.from_numpy(weights))
    np.testing.assert_allclose(ours, [[np.average(values, weights=w) for w in row] for row in weights], rtol=1e-12)
    sizes = effective_sample_size(torch.from_numpy(weights))
    np.testing.assert_allclose(sizes, weights.sum(-1) ** 2 / (weights**2).sum(-1), rtol=1e-12)


def test_the_bootstrap_draws_whole_groups() -> None:
    """The standard deviation is that of a mean of groups, not of a mean of rows."""
    generator = torch.Generator().manual_seed(0)
    groups = torch.arange(400).repeat_interleave(5)
    values = torch.randn(400, generator=generator, dtype=torch.float64)[groups]
    weights = torch.ones(2, len(values), dtype=torch.float64)
    before = torch.get_rng_state()
    draws = bootstrap_means(values, weights, groups, draws=2000)
    assert torch.equal(torch.get_rng_state(), before)
    assert draws.shape == (2000, 2)
    # All rows of weights get the same resamples, up to the rounding of a matrix product.
    torch.testing.assert_close(draws[:, 0], draws[:, 1], rtol=0.0, atol=1e-12)
    assert abs(draws[:, 0].std().item() * 20.0 / values[::5].std().item() - 1.0) < 0.08
    rows = bootstrap_means(values, weights, torch.arange(len(values)), draws=2000)
    assert rows[:, 0].std() < 0.6 * draws[:, 0].std()
    assert torch.equal(draws, bootstrap_means(values, weights, groups, draws=2000))
    assert not torch.equal(draws, bootstrap_means(values, weights, groups, draws=2000, seed=1))


def test_each_resample_is_normalised_by_its_own_weights() -> None:
    """Two groups give three resamples, each divided by its own weight."""
    values, weights = torch.tensor([0.0, 1.0, 1.0], dtype=torch.float64), torch.tensor([1.0, 1.0, 2.0])
    groups = torch.tensor([0, 1, 1])
    draws = bootstrap_means(values, weights, groups)
    assert draws.unique().tolist() == [0.0, 0.75, 1.0]
    torch.testing.assert_close(bootstrap_means(values + 5.0, weights, groups), draws + 5.0)


def test_a_resample_without_weight_is_refused() -> None:
    """With weight in one of ten groups, about a third of the resamples have no mean."""
    values, groups = torch.arange(10.0), torch.arange(10)
    one = torch.zeros(10).index_fill(0, torch.tensor(0), 1.0)
    with pytest.raises(ValueError, match=r"^weights: expected some above 0 in every resample, got none for") as refusal:
        bootstrap_means(values, torch.stack([torch.ones(10), one]), groups)
    empty, means, few, count = (int(number) for number in re.findall(r"[1-9]\d*", str(refusal.value)))
    assert (means, few, count) == (4000, 1, 10)
    assert abs(empty - 2000 * 0.9**10) < 3.0 * (2000 * 0.9**10 * (1.0 - 0.9**10)) ** 0.5
    # No error if all groups have weight, or if there is only one group.
    assert torch.isfinite(bootstrap_means(values, torch.ones(10), groups)).all()
    assert (bootstrap_means(values, one, torch.zeros(10, dtype=torch.int64)) == 0.0).all()


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_weights_of_any_size(scale: float) -> None:
    """In float32 squares of small weights vanish and those of large ones overflow."""
    values, weights = torch.tensor([1.0, 2.0, 6.0]), scale * torch.tensor([1.0, 1.0, 2.0])
    torch.testing.assert_close(effective_sample_size(weights).item(), 16.0 / 6.0, rtol=1e-6, atol=0.0)
    torch.testing.assert_close(self_normalised_mean(values * 1e30, weights).item(), 3.75e30, rtol=1e-6, atol=0.0)
    torch.testing.assert_close(
        bootstrap_means(values, weights, torch.arange(3)),
        bootstrap_means(values, weights / scale, torch.arange(3)),
        rtol=1e-6,
        atol=0.0,
    )
    tiny = torch.tensor([1e-200, 1e-200], dtype=torch.float64)
    assert effective_sample_size(tiny) == 2.0


@pytest.mark.parametrize("of_values", [torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("of_weights", [torch.bfloat16, torch.float32, torch.float64])
def test_floating_types_may_differ(of_values: torch.dtype, of_weights: torch.dtype) -> None:
    rng, groups = np.random.default_rng(0), torch.arange(10)
    values, weights = torch.from_numpy(rng.normal(size=10)), torch.from_numpy(rng.exponential(size=(2, 10)))
    values, weights = values.to(of_values), weights.to(of_weights)
    for ours, exact in (
        (self_normalised_mean(values, weights), self_normalised_mean(values.double(), weights.double())),
        (effective_sample_size(weights), effective_sample_size(weights.double())),
        (bootstrap_means(values, weights, groups), bootstrap_means(values.double(), weights.double(), groups)),
    ):
        assert ours.dtype == torch.float64
        assert torch.equal(ours, exact)


ONES = torch.ones(4, dtype=torch.int64)


@pytest.mark.parametrize(
    ("changes", "error", "name"),
    [
        ({"arms": torch.zeros(6, 3)}, ValueError, "arms"),
        ({"arms": torch.zeros(6, 3, 5)}, ValueError, "arms"),
        ({"arms": torch.zeros(6, 0, 6)}, ValueError, "arms"),
        ({"arms": torch.zeros(6, 3, 6, dtype=torch.int64)}, TypeError, "arms"),
        ({"arms": torch.zeros(6, 3, 6).index_fill(0, torch.tensor(1), torch.nan)}, ValueError, "arms"),
        ({"actions": torch.zeros(6)}, TypeError, "actions"),
        ({"actions": torch.full((6,), 3)}, ValueError, "actions"),
        ({"actions": torch.zeros(5, dtype=torch.int64)}, ValueError, "actions"),
        ({"rewards": torch.zeros(5)}, ValueError, "rewards"),
        ({"rewards": torch.full((6,), torch.nan)}, ValueError, "rewards"),
        ({"rewards": ["0.0"] * 6}, TypeError, "rewards"),
        ({"groups": torch.zeros(0, dtype=torch.int64)}, ValueError, "groups"),
        ({"groups": torch.tensor([0, 0, 1, 1, 3, 3])}, ValueError, "groups"),
        ({"groups": torch.full((6,), 6)}, ValueError, "groups"),
        ({"groups": torch.full((6,), -1)}, ValueError, "groups"),
        ({"orders": torch.tensor([0, 3])}, ValueError, "orders"),
        ({"orders": torch.tensor([0, 0])}, ValueError, "orders"),
        ({"orders": torch.tensor([[0, 1]])}, ValueError, "orders"),
        ({"orders": torch.tensor(2)}, ValueError, "orders"),
        ({"orders": torch.tensor([0.0])}, TypeError, "orders"),
    ],
)
def test_replay_refuses_what_is_no_log(changes: dict, error: type[Exception], name: str) -> None:
    log = {
        "arms": torch.eye(3, 6).expand(6, 3, 6),
        "actions": torch.zeros(6, dtype=torch.int64),
        "rewards": torch.zeros(6),
        "groups": torch.tensor([0, 0, 1, 1, 2, 2]),
        "orders": torch.tensor([2, 0]),
    }
    replay(policy(), **log)
    refusing = policy()
    with pytest.raises(error, match=f"^{name}: expected"):
        replay(refusing, **(log | changes))
    assert all(torch.equal(value, policy().state_dict()[key]) for key, value in refusing.state_dict().items())


def test_replay_is_for_policies_on_the_cpu() -> None:
    elsewhere = OFUL(6, device="meta")
    with pytest.raises(ValueError, match=r"^policy: expected one on the CPU, got one on meta"):
        replay(elsewhere, torch.eye(3, 6).expand(4, 3, 6), ONES, torch.ones(4), 0 * ONES, torch.tensor([0]))
    with pytest.raises(TypeError, match=r"^policy: expected a Policy, got RidgeRegression"):
        replay(RidgeRegression(6), torch.eye(3, 6).expand(4, 3, 6), ONES, torch.ones(4), 0 * ONES, torch.tensor([0]))


@pytest.mark.parametrize(
    ("call", "error", "name"),
    [
        (lambda: propensities(ONES.double(), ONES, 2), TypeError, "strata"),
        (lambda: propensities(ONES.to(torch.complex64), ONES, 2), TypeError, "strata"),
        (lambda: propensities(ONES[:3], ONES, 2), ValueError, "strata"),
        (lambda: propensities(ONES[:, None, None], ONES, 2), ValueError, "strata"),
        (lambda: propensities(torch.zeros(4, 0, dtype=torch.int64), ONES, 2), ValueError, "strata"),
        (lambda: propensities(ONES[:2], ONES.reshape(2, 2), 2), ValueError, "actions"),
        (lambda: propensities(ONES[:1], ONES[0], 2), ValueError, "actions"),
        (lambda: propensities(ONES, ONES, 1), ValueError, "actions"),
        (lambda: propensities(ONES, ONES, 2, smoothing=-1.0), ValueError, "smoothing"),
        (lambda: self_normalised_mean(ONES, ONES.double()), TypeError, "values"),
        (lambda: self_normalised_mean(torch.ones(4), torch.ones(3)), ValueError, "values"),
        (lambda: self_normalised_mean(torch.ones(4), -torch.ones(4)), ValueError, "weights"),
        (lambda: self_normalised_mean(torch.ones(4), torch.full((4,), torch.nan)), ValueError, "weights"),
        (lambda: self_normalised_mean(torch.ones(4), torch.zeros(4)), ValueError, "weights"),
        (lambda: self_normalised_mean(torch.ones(4), torch.full((4,), torch.inf)), ValueError, "weights"),
        (lambda: self_normalised_mean(torch.tensor([1.0, torch.nan]), torch.ones(2)), ValueError, "values"),
        (lambda: self_normalised_mean(torch.tensor([1.0, -torch.inf]), torch.tensor([1.0, 0.0])), ValueError, "values"),
        (lambda: self_normalised_mean(torch.ones(0), torch.ones(0)), ValueError, "weights"),
        (lambda: effective_sample_size(torch.tensor(1.0)), ValueError, "weights"),
        (lambda: effective_sample_size(torch.tensor([torch.inf, 1.0])), ValueError, "weights"),
        (lambda: effective_sample_size(torch.tensor([[1.0, 2.0], [0.0, 0.0]])), ValueError, "weights"),
        (lambda: effective_sample_size(torch.zeros(2, 4)), ValueError, "weights"),
        (lambda: effective_sample_size(ONES), TypeError, "weights"),
        (lambda: bootstrap_means(torch.ones(4), torch.ones(4), ONES[:3]), ValueError, "groups"),
        (lambda: bootstrap_means(torch.ones(4), torch.ones(4), ONES, draws=0), ValueError, "draws"),
        (lambda: bootstrap_means(torch.full((4,), torch.nan), torch.ones(4), ONES), ValueError, "values"),
        (lambda: bootstrap_means(torch.ones(4), torch.full((4,), torch.inf), ONES), ValueError, "weights"),
        (lambda: bootstrap_means(torch.ones(4), torch.ones(4), ONES, seed=None), TypeError, "seed"),
        (lambda: bootstrap_means(torch.ones(4), torch.ones(4), ONES, seed=2**64), ValueError, "seed"),
    ],
)
def test_estimates_refuse_what_is_none(call, error: type[Exception], name: str) -> None:
    with pytest.raises(error, match=f"^{name}: expected"):
        call()
