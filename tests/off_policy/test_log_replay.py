"""Tests of replay against simulated truths, with wrong weights as counterexamples."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor

from torchonline import (
    OFUL,
    AnytimeHeavyTailUCB,
    DisjointArms,
    RidgeRegression,
    SharedRadiusSelector,
    ThompsonSampling,
)
from torchonline.off_policy import propensities, replay, self_normalised_mean

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
        # Of different lengths, so that no arms tie.
        arms[torch.arange(len(family)), arm, 2 * arm + site] = 1.0 - 1e-3 * arm
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
    """Each learner of a batch does the same as a loop over its families."""
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
    batched = policy((4,))
    choices = replay(batched, arms, actions, rewards, family, orders)
    for number, order in enumerate(orders):
        alone, expected = policy(), torch.full_like(actions, -1)
        for group in order:
            rows = (family == group).nonzero().squeeze(1)
            expected[rows] = alone.select(arms[rows])
            for row in rows:
                if expected[row] == actions[row]:
                    alone.step(arms[row], actions[row], rewards[row])
        assert torch.equal(choices[number], expected)
        assert (expected == -1).any()
        assert batched.estimator.rounds[number] == alone.estimator.rounds
        torch.testing.assert_close(batched.estimator.theta_hat[number], alone.estimator.theta_hat)
        single = policy()
        assert torch.equal(replay(single, arms, actions, rewards, family, order), expected)
        assert torch.equal(single.estimator.theta_hat, alone.estimator.theta_hat)


def test_replay_of_a_batch_learns_from_no_round_that_taught_nothing() -> None:
    """An invalid reward in a round that no learner learns from raises no error."""
    random = torch.Generator().manual_seed(0)
    arms = torch.randn(12, 2, 2, generator=random, dtype=torch.float64)
    actions = torch.randint(2, (12,), generator=random)
    rewards = torch.randn(12, generator=random, dtype=torch.float64)
    rewards[5] = 1e30
    groups = torch.arange(12)
    orders = torch.stack([torch.randperm(12, generator=random) for _ in range(2)])
    alone = [
        replay(AnytimeHeavyTailUCB(2, noise="symmetric"), arms, actions, rewards, groups, order) for order in orders
    ]
    batched = replay(
        AnytimeHeavyTailUCB(2, noise="symmetric", batch_shape=(2,)), arms, actions, rewards, groups, orders
    )
    assert torch.equal(batched, torch.stack(alone))


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


def test_replay_is_for_rules_on_the_cpu() -> None:
    elsewhere = OFUL(6, device="meta")
    with pytest.raises(ValueError, match=r"^policy: expected a policy on the CPU, got one on meta"):
        replay(elsewhere, torch.eye(3, 6).expand(4, 3, 6), ONES, torch.ones(4), 0 * ONES, torch.tensor([0]))
    for other in (RidgeRegression(6), SharedRadiusSelector(RidgeRegression(6)), DisjointArms(RidgeRegression(6), 3)):
        wanted = rf"^policy: expected a rule of choice, such as UCB, got {type(other).__name__}$"
        with pytest.raises(TypeError, match=wanted):
            replay(other, torch.eye(3, 6).expand(4, 3, 6), ONES, torch.ones(4), 0 * ONES, torch.tensor([0]))


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
    ],
)
def test_propensities_refuse_what_is_no_log(call, error: type[Exception], name: str) -> None:
    with pytest.raises(error, match=f"^{name}: expected"):
        call()
