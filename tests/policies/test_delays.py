"""Rewards that come late or in batches: what the confidence set still covers, counted, and what it does not."""

import io
import math

import pytest
import torch
from torch import Tensor

from tests.learners import close, round_of
from torchonline import OFUL, UCB, AnytimeHeavyTailUCB
from torchonline.environments import GaussianNoise, Noise, Pareto, StudentT
from torchonline.metrics import has_missed

RUNS, DIM, ARMS, OPEN, DELTA = 300, 2, 10, 50, 0.05
LIMIT = DELTA + 3.0 * math.sqrt(DELTA * (1.0 - DELTA) / RUNS)


class World:
    """Linear rewards for 300 runs: new arms for any number of decisions, and noise."""

    def __init__(self, noise: Noise, seed: int = 0) -> None:
        self.noise, self.generator = noise, torch.Generator().manual_seed(seed)
        self.theta = self.directions(DIM)

    def directions(self, *shape: int) -> Tensor:
        draws = torch.randn((RUNS, *shape), generator=self.generator, dtype=torch.float64)
        return torch.nn.functional.normalize(draws, dim=-1)

    def decide(self, policy: UCB, count: int) -> tuple[Tensor, Tensor]:
        """``count`` decisions from the policy's state, and what they will pay: ``(runs, count, d)``, ``(runs, count)``."""
        arms = self.directions(count, ARMS, DIM)
        index = policy.select(arms)
        x = arms.take_along_dim(index[..., None, None], dim=-2).squeeze(-2)
        mean = (x @ self.theta.unsqueeze(-1)).squeeze(-1)
        return x, mean + self.noise.sample(mean.shape, self.generator)

    def is_lost(self, policy: UCB) -> Tensor:
        """Whether the parameter has left the confidence set."""
        return has_missed(policy.estimator, self.theta)


def heavy(noise: Noise, order: float = 2.0) -> AnytimeHeavyTailUCB:
    return AnytimeHeavyTailUCB(
        DIM, moment_order=order, noise_scale=noise.moment_norm(order), delta=DELTA, batch_shape=(RUNS,)
    )


def share_lost_under_delay(policy: UCB, world: World, rounds: int, largest: float = math.inf) -> float:
    """Fifty decisions are open in each run; one of them, at random, is paid in each round, and a new one made.

    What is paid more than ``largest`` never arrives: its round is x = 0, of which a learner learns nothing.
    """
    missed = world.is_lost(policy)
    assert not missed.any()
    features, rewards = world.decide(policy, OPEN)
    runs = torch.arange(RUNS)
    for _ in range(rounds):
        slot = torch.randint(OPEN, (RUNS,), generator=world.generator)
        x, reward = features[runs, slot], rewards[runs, slot]
        arrives = reward <= largest
        policy.step(*round_of(policy, torch.where(arrives.unsqueeze(-1), x, 0.0), torch.where(arrives, reward, 0.0)))
        missed |= world.is_lost(policy)
        new_x, new_reward = world.decide(policy, 1)
        features[runs, slot], rewards[runs, slot] = new_x.squeeze(1), new_reward.squeeze(1)
    return missed.double().mean().item()


@pytest.mark.parametrize(("noise", "order"), [(StudentT(2.1), 2.0), (Pareto(1.5), 1.4)])
def test_random_delays_keep_the_promise(noise: Noise, order: float) -> None:
    assert share_lost_under_delay(heavy(noise, order), World(noise), 1000) <= LIMIT


@pytest.mark.parametrize(("noise", "order"), [(StudentT(2.1), 2.0), (Pareto(1.5), 1.4)])
def test_batches_that_arrive_shuffled_keep_the_promise(noise: Noise, order: float) -> None:
    """Fifty decisions from one state; their rewards come one by one, in an order of their own in each run."""
    policy, world = heavy(noise, order), World(noise, seed=1)
    missed = world.is_lost(policy)
    for _ in range(20):
        x, reward = world.decide(policy, OPEN)
        order_of_arrival = torch.rand(RUNS, OPEN, generator=world.generator).argsort(-1)
        x = x.take_along_dim(order_of_arrival.unsqueeze(-1), dim=1)
        reward = reward.take_along_dim(order_of_arrival, dim=1)
        for row in zip(x.unbind(1), reward.unbind(1), strict=True):
            policy.step(*round_of(policy, *row))
            missed |= world.is_lost(policy)
    assert missed.double().mean() <= LIMIT


def test_oful_under_gaussian_noise_with_random_delays() -> None:
    policy = OFUL(DIM, noise_scale=1.0, delta=DELTA, batch_shape=(RUNS,))
    assert share_lost_under_delay(policy, World(GaussianNoise()), 1000) <= LIMIT


def test_rewards_lost_because_they_are_large_are_seen_to_break_it() -> None:
    assert share_lost_under_delay(heavy(GaussianNoise()), World(GaussianNoise()), 1000, largest=0.5) > 0.9


def test_a_batch_in_one_step_is_learnt_in_its_order() -> None:
    """``step`` with n rows is n steps: a batch needs no code of its own."""
    world = World(GaussianNoise())
    together, one_by_one = heavy(GaussianNoise()), heavy(GaussianNoise())
    x, reward = world.decide(together, OPEN)
    together.step(*round_of(together, x, reward))
    for row in zip(x.unbind(1), reward.unbind(1), strict=True):
        one_by_one.step(*round_of(one_by_one, *row))
    for name, value in one_by_one.state_dict().items():
        close(together.state_dict()[name], value, tolerance=1e-12)


def test_open_decisions_survive_a_checkpoint() -> None:
    """The caller's dict of open decisions, saved beside the learner's state: play goes on as if nothing had happened."""

    def serve(policy: AnytimeHeavyTailUCB, waiting: dict[int, Tensor], rounds: range) -> None:
        for t in rounds:
            arms = torch.randn(ARMS, DIM, generator=torch.Generator().manual_seed(t), dtype=torch.float64)
            waiting[t] = arms[policy.select(arms)]
            late = t - (7 * t) % 10
            if late in waiting:
                policy.step(waiting.pop(late).unsqueeze(-2), 0, torch.tensor(math.sin(late)))

    whole, first = AnytimeHeavyTailUCB(DIM), AnytimeHeavyTailUCB(DIM)
    all_waiting: dict[int, Tensor] = {}
    serve(whole, all_waiting, range(100))
    waiting: dict[int, Tensor] = {}
    serve(first, waiting, range(50))
    assert waiting
    file = io.BytesIO()
    torch.save({"policy": first.state_dict(), "waiting": waiting}, file)
    file.seek(0)
    checkpoint, resumed = torch.load(file), AnytimeHeavyTailUCB(DIM)
    resumed.load_state_dict(checkpoint["policy"])
    serve(resumed, checkpoint["waiting"], range(50, 100))
    for name, value in whole.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[name]), name
    assert checkpoint["waiting"].keys() == all_waiting.keys()
