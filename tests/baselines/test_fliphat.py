"""FLIPHAT: its equations in NumPy, what a person can move, the law of the choice, the clock, and an audit."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.private_tools import KnownNoise
from tests.reference.fliphat import FLIPHATReference
from torchonline.baselines import FLIPHAT
from torchonline.privacy import epsilon_lower_bound, noise_source
from torchonline.privacy.accounting import SmallStepsEvent, ZCDPEvent
from torchonline.privacy.calibration import gaussian_mu, zcdp_rho
from torchonline.privacy.noise import NoiseSource

D = torch.float64
INF = math.inf


def build(dim: int = 4, **options: Any) -> FLIPHAT:
    told = {"arms": 3, "horizon": 60, "nonzeros": 2, "episodes": 3, "epsilon": 1.0, "delta": 1e-3}
    return FLIPHAT(dim, **(told | options))


class Draws(NoiseSource):
    """A source of known draws, in the order of the algorithm."""

    name = "draws"

    def __init__(self, seed: int = 0) -> None:
        self.random = np.random.default_rng(seed)

    def next(self, law: str, count: int) -> np.ndarray:
        return getattr(self.random, law)(size=count)

    def highest(self, scores: Tensor, scale: float, law: str) -> Tensor:
        return (scores + scale * torch.from_numpy(self.next(law, scores.numel()))).argmax(-1)

    def add_normal(self, values: Any, scale: float) -> Any:
        return values + scale * torch.from_numpy(self.next("normal", values.numel()))


@pytest.mark.fast
@pytest.mark.parametrize(
    "options", [{}, {"nonzeros": 12, "feature_clip": 0.7, "reward_clip": 0.4}, {"epsilon": INF, "reward_clip": INF}]
)
def test_it_is_its_equations(options: dict[str, Any]) -> None:
    bandit = build(noise_source=Draws(), **options)
    told = {name: getattr(bandit, name) for name in ("nonzeros", "horizon", "episodes", "feature_clip", "reward_clip")}
    scale = bandit.noise_scale / 30.0  # so that records matter
    vars(bandit)["noise_scale"] = scale
    plain = FLIPHATReference(4, 3, scale=scale, noise=Draws().next, **told)
    random = np.random.default_rng(1)
    for _ in range(60):
        x, reward = random.uniform(-1.3, 1.3, 4), float(random.normal())
        k = int(bandit.select(torch.from_numpy(x)))
        assert k == plain.select(x)
        bandit.step(torch.from_numpy(x), k, reward)
        plain.step(x, k, reward)
        np.testing.assert_allclose(bandit.theta.numpy(), plain.theta, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(bandit.secret_sum.numpy(), plain.total, rtol=1e-9, atol=1e-12)
    assert bandit.ends == tuple(plain.ends)
    assert int((bandit.theta != 0.0).sum()) == bandit.nonzeros


def test_one_person_moves_an_entry_by_at_most_what_the_noise_is_for() -> None:
    """By 2 M B, which is attained; by M B if the two worlds pull different arms, or if she is there or not."""
    count, random = 4000, np.random.default_rng(3)
    x = random.choice([-1e9, -1.0, 0.0, 1e-3, 1.0, INF], size=(2, count, 4))
    reward = random.choice([-1e300, -0.3, 0.5, 1.0, math.nan], size=(2, count))
    action = random.integers(3, size=(2, count))
    sums = []
    for world in range(2):
        bandit = build(epsilon=INF, batch_shape=(count,), feature_clip=0.7, reward_clip=0.4)
        for t in range(2):  # others
            bandit.step(torch.full((count, 4), 0.3), torch.full((count,), t), torch.full((count,), 0.2))
        bandit.step(*map(torch.from_numpy, (x[world], action[world], reward[world])))
        sums.append(bandit.secret_sum.clone())
    moved = (sums[1] - sums[0]).abs().amax((-1, -2)).numpy() / (0.7 * 0.4)
    switches = action[0] != action[1]
    assert 1.99 < moved[~switches].max() <= 2.0 + 1e-12
    assert 0.99 < moved[switches].max() <= 1.0 + 1e-12
    scales = [build(adjacency=adjacency, feature_clip=0.7).noise_scale for adjacency in ("replace_one", "zero_out")]
    assert math.isclose(scales[0], 2.0 * scales[1], rel_tol=1e-6)


@pytest.mark.parametrize("nonzeros", [1, 3, 12])
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 8.0, 60.0])
def test_noise_is_enough_and_two_thirds_of_it_is_not(nonzeros: int, epsilon: float) -> None:
    """Of S choices with the range 2 s / scale and S values that move by s, in zCDP or as if all were Gaussian."""
    delta = 1e-3
    bandit = build(nonzeros=nonzeros, epsilon=epsilon, delta=delta)
    ratio = 2.0 * bandit.feature_clip * bandit.reward_clip / bandit.noise_scale
    rho = nonzeros * (2.0 * ratio) ** 2 / 8.0 + nonzeros * ratio**2 / 2.0
    most = max(zcdp_rho(epsilon, delta), 0.5 * gaussian_mu(epsilon, delta) ** 2)
    assert rho <= most
    assert rho * 1.5**2 > most
    (event,) = bandit.ledger_after(60).events
    assert isinstance(event.event, ZCDPEvent if ratio**2 > 6.0 else SmallStepsEvent)  # type: ignore[attr-defined]
    assert math.isclose(event.costs()["rho"], rho, rel_tol=1e-5)
    assert bandit.ledger_after(bandit.ends[0] - 1).events == ()
    assert 0.999 * epsilon < bandit.ledger_after(60).epsilon(delta) <= epsilon


def test_the_choice_is_the_exponential_mechanism() -> None:
    """Of two entries the larger is chosen with probability 1 / (1 + exp(-gap / scale)), and not with another scale."""
    games = 40_000
    bandit = FLIPHAT(2, arms=1, horizon=3, nonzeros=1, epsilon=1.0, delta=1e-3, batch_shape=(games,),
                     noise_source=noise_source("torch", seed=5))  # fmt: skip
    vars(bandit)["noise_scale"] = 0.5
    for _ in range(bandit.ends[0]):
        bandit.step(
            torch.tensor([1.0, -0.5]).expand(games, 2), torch.zeros(games, dtype=torch.int64), torch.ones(games)
        )
    share = float((bandit.theta[:, 0, 0] != 0.0).double().mean())
    gap = 0.5 * bandit.ends[0]
    for scale, same in ((0.5, True), (0.5 * 1.5, False), (0.5 / 1.5, False)):
        expected = 1.0 / (1.0 + math.exp(-gap / scale))
        deviation = abs(share - expected) / math.sqrt(expected * (1.0 - expected) / games)
        assert (deviation < 6.0) == same


def test_the_clock() -> None:
    """Arms take turns in the first episode, estimates change at ends only, and the last one stays."""
    bandit = build(epsilon=INF, episodes=2)
    assert bandit.ends == (14, 40)
    for t in range(60):
        assert t >= 14 or int(bandit.select(torch.ones(4, dtype=D))) == t % 3
        before = bandit.theta.clone()
        bandit.step(torch.ones(4) if t in (3, 20, 50) else None, *((t % 3, 1.0) if t in (3, 20, 50) else ()))
        assert torch.equal(before, bandit.theta) == (t + 1 not in (14, 40))
    assert bandit.theta[2].tolist() == [1 / 26, 1 / 26, 0.0, 0.0]  # the lowest of equals, of the second episode only
    masked = build()
    assert int(masked.select(torch.ones(4), torch.tensor([False, True, True]))) == 1
    for horizon in range(1, 40):
        ends = FLIPHAT(2, arms=1, horizon=horizon, epsilon=INF, delta=1e-3).ends
        assert ends[0] > 0
        assert ends[-1] <= horizon
        assert len(set(ends)) == len(ends)


def test_late_rewards_are_one_step_and_their_sum_is_cut() -> None:
    one, two = build(epsilon=INF), build(epsilon=INF)
    x = torch.tensor([[0.5, -0.2, 0.1, 0.0], [0.3, 0.4, -0.9, 1.0]], dtype=D)
    one.step(x, torch.tensor([0, 2]), torch.tensor([1.0, -0.5]))
    for row, k, reward in zip(x, (0, 2), (1.0, -0.5), strict=True):
        two.step(row, k, reward)
    torch.testing.assert_close(one.secret_sum, two.secret_sum, rtol=1e-12, atol=0.0)
    many = build(epsilon=INF)
    many.step(torch.ones(1000, 4), torch.zeros(1000, dtype=torch.int64), torch.ones(1000))
    assert float(many.secret_sum.max()) == pytest.approx(256.0, rel=1e-5)


def test_one_arm_is_shared() -> None:
    """The paper's bandit: a context for each arm, and one parameter."""
    bandit = FLIPHAT(30, arms=1, horizon=600, nonzeros=1, epsilon=20.0, delta=1e-3)
    draws = torch.Generator().manual_seed(0)
    for contexts in 2.0 * torch.rand(600, 3, 30, generator=draws, dtype=D) - 1.0:
        x = contexts[bandit(contexts).squeeze(-1).argmax(-1)]
        bandit.step(x, 0, -x[4])
    assert int(bandit.theta.argmin()) == 4


def test_bad_options_are_refused() -> None:
    for options, name in [
        ({"nonzeros": 0}, "nonzeros"),
        ({"nonzeros": 13}, "nonzeros"),
        ({"nonzeros": 2.0}, "nonzeros"),
        ({"episodes": 0}, "episodes"),
        ({"episodes": 4}, "episodes"),
        ({"arms": 0}, "arms"),
        ({"arms": 41}, "arms"),
        ({"reward_clip": INF}, "reward_clip"),
        ({"feature_clip": 0.0}, "feature_clip"),
        ({"participations": 2}, "participations"),
        ({"noise_source": "discrete"}, "noise_source"),
    ]:
        with pytest.raises((TypeError, ValueError), match=f"^{name}: expected"):
            build(**options)
    assert build(2, nonzeros=None).nonzeros == 6
    assert build(episodes=3).ends[0] == 6
    assert build(arms=20, episodes=None).ends == (40,)


class Weak(NoiseSource):
    """A source with half of the noise."""

    name = "weak"

    def __init__(self, source: NoiseSource) -> None:
        self.source = source

    def add_normal(self, values: Any, scale: float) -> Any:
        return self.source.add_normal(values, 0.5 * scale)

    def highest(self, scores: Tensor, scale: float, law: str) -> Tensor:
        return self.source.highest(scores, 0.5 * scale, law)


@pytest.mark.parametrize("weak", [False, True])
def test_an_audit_finds_no_more_than_promised_and_half_of_the_noise(weak: bool) -> None:
    """Others fill all entries. A person adds to one half of them and takes from the other half, or the other way round."""
    seeds, nonzeros, others = itertools.count(), 4, 99
    sides = torch.tensor([1.0, -1.0], dtype=D).repeat(nonzeros)

    def game(world: int, games: int) -> Tensor:
        source = noise_source("torch", seed=next(seeds))
        bandit = FLIPHAT(2 * nonzeros, arms=1, horizon=3, nonzeros=nonzeros, epsilon=1.0, delta=1e-3,
                         batch_shape=(games,), noise_source=Weak(source) if weak else source)  # fmt: skip
        x = torch.ones(games, 1 + others, 2 * nonzeros, dtype=D)
        x[:, 0] = sides * (1.0 - 2.0 * world)
        bandit.step(x, torch.zeros(games, 1 + others, dtype=torch.int64), torch.ones(games, 1 + others))
        bandit.step(None)
        total = 2.0 * bandit.theta[:, 0]  # two rounds
        # Close to the logarithm of the likelihoods' ratio, of values and of choices.
        ratio = total - others + bandit.noise_scale * (0.5 if weak else 1.0)
        return (sides * ratio * (total != 0.0)).sum(-1, keepdim=True)

    bound = epsilon_lower_bound(game, delta=1e-3, games=10_000).epsilon
    assert (bound > 1.0) == weak


def test_silence_is_exactly_the_noise() -> None:
    bandit = build(noise_source=KnownNoise())
    for _ in range(60):
        bandit.step(None)
    assert float(bandit.theta.abs().max()) == 0.0
