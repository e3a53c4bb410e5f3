"""Private bandits: the algorithms without noise, what one person can move, clocks, late rewards, files, and an audit."""

import copy
import io
import itertools
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.private_learners import differences, snapshot, without_tags
from tests.private_tools import KnownNoise
from torchonline import DPHDB, Gamma, Gaussian, Logistic
from torchonline.baselines import DPUCB
from torchonline.export import to_program, to_torchscript
from torchonline.privacy import epsilon_lower_bound
from torchonline.privacy.calibration import gaussian_epsilon, gaussian_mu, zcdp_epsilon
from torchonline.privacy.learners.base import SECRET
from torchonline.privacy.noise import NoiseSource, noise_source
from torchonline.privacy.small_steps import harmonic, harmonic_mu

INF = math.inf
DIM, ARMS, HORIZON, WARMUP = 4, 3, 60, 8


def dphdb(dim: int = DIM, **options: Any) -> DPHDB:
    return DPHDB(dim, **({"arms": ARMS, "horizon": HORIZON, "warmup": WARMUP, "epsilon": 1.0, "delta": 1e-3} | options))


def dpucb(dim: int = DIM, **options: Any) -> DPUCB:
    return DPUCB(dim, **({"arms": ARMS, "horizon": HORIZON, "epsilon": 1.0, "delta": 1e-3} | options))


BOTH = pytest.mark.parametrize("build", [dphdb, dpucb])


def stream(
    count: int, dim: int = DIM, arms: int = ARMS, seed: int = 0
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Contexts, some of them too long; what each arm would pay, now and then too much; which arms there are."""
    random = np.random.default_rng(seed)
    theta = random.normal(size=(arms, dim)) / dim
    for _ in range(count):
        x = random.uniform(-1.3, 1.3, dim)
        mask = random.random(arms) < 0.8
        mask[random.integers(arms)] = True
        yield x, theta @ x + 0.5 * random.normal(size=arms), mask


def tensor(value: Any) -> Tensor:
    return torch.as_tensor(value, dtype=torch.float64)


def play(bandit: Any, count: int, *, masked: bool = False, seed: int = 0) -> list[int]:
    """Play on a stream; the arms that were pulled."""
    pulled = []
    for x, rewards, mask in stream(count, seed=seed):
        k = bandit.select(tensor(x), torch.from_numpy(mask) if masked else None)
        bandit.step(tensor(x), k, tensor(rewards[int(k)]))
        pulled.append(int(k))
    return pulled


# ---------------------------------------------------------------------------------------------- the algorithms without noise


class PlainDPHDB:
    """The bandit of the paper with clipping, one record a round and no noise, as written on paper."""

    def __init__(
        self,
        mean: Callable[[Any], Any],
        *,
        clip: float,
        order: float = 2.0,
        gap: float = INF,
        unbiased: bool = True,
        scale: float = 0.5,
        radius: float = 1.0,
        local_clock: bool = True,
    ) -> None:
        self.mean, self.clip, self.order, self.gap, self.unbiased = mean, clip, order, gap, unbiased
        self.scale, self.radius, self.local_clock = scale, radius, local_clock
        self.theta, self.before, self.total = np.zeros((3, ARMS, DIM))
        self.warm = np.zeros((ARMS, DIM))
        self.t = 0

    def select(self, x: np.ndarray, mask: np.ndarray) -> int:
        x = x / max(1.0, np.abs(x).max())
        if self.t < ARMS * WARMUP:
            block = self.t // WARMUP
            return block if mask[block] else int(np.flatnonzero(mask)[0])
        warm = {k: self.mean(x @ self.warm[k]) for k in range(ARMS) if mask[k]}
        kept = [k for k in warm if warm[k] > max(warm.values()) - self.gap / 2]
        return max(kept, key=lambda k: (self.mean(x @ self.theta[k]), -k))

    def step(self, x: np.ndarray, action: int, reward: float) -> None:
        x, reward = x / max(1.0, np.abs(x).max()), min(max(reward, -1.0), 1.0)
        self.t += 1
        block = (self.t - 1) // WARMUP
        for k in range(ARMS) if block >= ARMS else [block]:
            s = self.t - (ARMS - 1) * WARMUP if block >= ARMS else self.t - block * WARMUP
            s = s if self.local_clock else self.t
            w = s if self.unbiased else s + 1
            z = x if k == action else 0.0 * x
            g = w * (self.mean(z @ self.theta[k]) - reward) * z - (w - 1) * (self.mean(z @ self.before[k]) - reward) * z
            self.total[k] += g * min(1.0, self.clip / max(1e-300, np.linalg.norm(g, self.order)))
            d = self.total[k] / w
            j = int(np.abs(d).argmax())
            vertex = np.zeros(DIM)
            vertex[j] = -self.radius * np.sign(d[j])
            self.before[k] = self.theta[k]
            self.theta[k] = self.theta[k] + min(1.0, self.scale / (s + 1)) * (vertex - self.theta[k])
        if block < ARMS and self.t % WARMUP == 0:
            self.warm[block] = self.theta[block]


def logistic(z: Any) -> Any:
    return 1.0 / (1.0 + np.exp(-z))


PLAIN: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "defaults": ({}, {"mean": lambda z: z, "clip": 1.0}),
    "logistic": ({"link": Logistic(), "clip": 0.4, "gap": 0.05}, {"mean": logistic, "clip": 0.4, "gap": 0.05}),
    "gap": ({"gap": 0.3, "radius_bound": 2.0}, {"mean": lambda z: z, "clip": 1.0, "gap": 0.3, "radius": 2.0}),
    "paper": (
        {"scheme": "paper", "step_scale": 1.0},
        {"mean": lambda z: z, "clip": 1.0, "unbiased": False, "scale": 1.0},
    ),
    "gumbel": ({"mechanism": "gumbel", "clip": 0.3}, {"mean": lambda z: z, "clip": 0.3, "order": INF}),
}


@pytest.mark.parametrize("name", PLAIN)
def test_without_noise_dphdb_is_the_plain_algorithm(name: str) -> None:
    """Arms, parameters and thetas of the warm-up, in each of 60 rounds with masks; and not if all counted global rounds."""
    options, plain = PLAIN[name]
    bandit, mine = dphdb(epsilon=INF, **options), PlainDPHDB(**plain)
    other = PlainDPHDB(**plain, local_clock=False)
    for x, rewards, mask in stream(HORIZON):
        k = int(bandit.select(tensor(x), torch.from_numpy(mask)))
        assert k == mine.select(x, mask)
        bandit.step(tensor(x), torch.tensor(k), tensor(rewards[k]))
        mine.step(x, k, rewards[k])
        other.step(x, k, rewards[k])
        np.testing.assert_allclose(torch.stack([arm.theta for arm in bandit.arms]), mine.theta, rtol=0, atol=1e-12)
        np.testing.assert_allclose(bandit.theta_warm, mine.warm, rtol=0, atol=1e-12)
    assert np.abs(other.theta - mine.theta).max() > 1e-2


def test_preselection_is_seen_to_matter() -> None:
    """With a small gap other arms are pulled than without one, and only from those that came near the best by the warm-up."""
    assert play(dphdb(epsilon=INF), HORIZON) != play(dphdb(epsilon=INF, gap=0.05), HORIZON)
    narrow = dphdb(epsilon=INF, gap=1e-9)
    play(narrow, HORIZON - 1)
    x = torch.randn(50, DIM, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    inside = x / x.abs().amax(-1, keepdim=True).clamp(min=1.0)
    assert torch.equal(narrow.select(x), (inside @ narrow.theta_warm.mT).argmax(-1))
    assert not torch.equal(narrow.select(x), narrow(x).argmax(-1))


def test_ties_go_to_the_lowest() -> None:
    bandit = dphdb(epsilon=INF, warmup=1)
    for _ in range(HORIZON - 1):
        bandit.step(None)
    assert bandit.select(torch.ones(DIM)).item() == 0
    assert bandit.select(torch.ones(DIM), torch.tensor([False, True, True])).item() == 1


@pytest.mark.parametrize("feature_clip", [1.0, 2.0])
def test_without_noise_dpucb_is_linucb(feature_clip: float) -> None:
    options = {"feature_clip": feature_clip, "reward_clip": 1.5, "theta_bound": 2.0, "noise_scale": 0.5, "ridge": 0.3}
    bandit = dpucb(epsilon=INF, alpha=0.05, **options)
    gram, moment = np.zeros((ARMS, DIM, DIM)), np.zeros((ARMS, DIM))
    ridge = 0.3 * feature_clip**2  # in the caller's units
    for t, (x, rewards, mask) in enumerate(stream(HORIZON)):
        inside = x * min(1.0, feature_clip / np.linalg.norm(x))
        inverse = np.linalg.inv(gram + ridge * np.eye(DIM))
        growth = DIM * math.log(1.0 + t * feature_clip**2 / (DIM * ridge))
        beta = 0.5 * math.sqrt(2.0 * math.log(2 * ARMS / 0.05) + growth) + 2.0 * math.sqrt(ridge)
        width = np.sqrt(np.einsum("i,kij,j->k", inside, inverse, inside))
        scores = np.einsum("kij,kj->ki", inverse, moment) @ inside + beta * width
        np.testing.assert_allclose(bandit(tensor(x)), scores, rtol=1e-9)
        # Arms that nobody has pulled tie, but for rounding.
        k = int(bandit.select(tensor(x), torch.from_numpy(mask)))
        assert mask[k]
        assert scores[k] >= scores[mask].max() - 1e-9
        bandit.step(tensor(x), torch.tensor(k), tensor(rewards[k]))
        gram[k] += np.outer(inside, inside)
        moment[k] += min(max(rewards[k], -1.5), 1.5) * inside


@BOTH
def test_batches_are_single_bandits(build: Any) -> None:
    batched, singles = build(epsilon=INF, batch_shape=(2, 2)), [build(epsilon=INF) for _ in range(4)]
    generator = torch.Generator().manual_seed(1)
    for _ in range(HORIZON):
        x = torch.rand((2, 2, DIM), generator=generator, dtype=torch.float64)
        r = torch.rand((2, 2, ARMS), generator=generator, dtype=torch.float64)
        mask = torch.rand((2, 2, ARMS), generator=generator) < 0.7
        k = batched.select(x, mask)
        batched.step(x, k, r.gather(-1, k.unsqueeze(-1)).squeeze(-1))
        for i, single in enumerate(singles):
            own, theirs = single.select(x.flatten(0, 1)[i], mask.flatten(0, 1)[i]), k.flatten()[i]
            # Arms that nobody has pulled tie, but for rounding.
            scores = single(x.flatten(0, 1)[i])
            assert own == theirs or abs(float(scores[own] - scores[theirs])) < 1e-12
            single.step(x.flatten(0, 1)[i], theirs, r.flatten(0, 1)[i, theirs])
    x = torch.rand((2, 2, 5, DIM), generator=generator, dtype=torch.float64)
    scores = torch.stack([single(x.flatten(0, 1)[i]) for i, single in enumerate(singles)])
    torch.testing.assert_close(batched(x).flatten(0, 1), scores, rtol=1e-10, atol=1e-12)
    assert batched.select(x).shape == (2, 2, 5)
    assert batched.rounds.shape == ()


# ---------------------------------------------------------------------------------------------- DP-UCB's noise


def test_the_noise_of_dpucb_is_a_mirrored_tree() -> None:
    """Draws 1, 2, ... of known noise are in the sums of the rounds whose binary form says so, of every arm, each round."""
    draws = torch.randn((HORIZON, ARMS, DIM * (DIM + 3) // 2), dtype=torch.float64)
    source = KnownNoise(draws)
    bandit = dpucb(noise_source=source)
    sigma = math.sqrt(4.5) * (1.0 + 1e-6) * math.sqrt(HORIZON.bit_length()) / gaussian_mu(1.0, 1e-3)
    assert sigma < bandit.noise.noise_scale < sigma * (1.0 + 1e-9)  # with the rounding
    exact = np.zeros((ARMS, DIM + 1, DIM + 1))
    for t, (x, rewards, _) in enumerate(stream(HORIZON), 1):
        k = int(bandit.select(tensor(x)))
        bandit.step(tensor(x), torch.tensor(k), tensor(rewards[k]))
        v = np.append(x / max(1.0, np.linalg.norm(x)), min(max(rewards[k], -1.0), 1.0))
        exact[k] += np.outer(v, v)
        noise, node = np.zeros(draws.shape[1:]), t
        while node:
            noise += sigma * draws[node - 1].numpy()
            node &= node - 1
        matrix = exact.copy()
        pairs = itertools.combinations_with_replacement(range(DIM + 1), 2)
        for j, (row, column) in enumerate(pair for pair in pairs if pair[0] < DIM):
            matrix[:, row, column] += noise[:, j]
            matrix[:, column, row] = matrix[:, row, column]
        norm = 2.0 * sigma * math.sqrt(6) * (2.0 + math.sqrt(math.log(6 * HORIZON * ARMS / 0.01)))
        assert bandit.noise_norm == pytest.approx(norm, rel=1e-9)
        shifted = matrix[:, :DIM, :DIM] + (2.0 * norm + 1.0) * np.eye(DIM)
        theta = np.linalg.solve(shifted, matrix[:, :DIM, DIM:])[..., 0]
        np.testing.assert_allclose(bandit.released().theta, theta, rtol=1e-8, atol=1e-12)
    assert source.asked == [(ARMS, 14)] * HORIZON


def test_the_original_constants_are_much_larger() -> None:
    options: dict[str, Any] = {"horizon": 10_000, "delta": 1e-4, "arms": 2}
    exact, original = dpucb(50, **options), dpucb(50, constants="original", **options)
    assert original.noise.noise_scale == pytest.approx(4.0 * math.sqrt(15) * 2.0 * math.log(4e4), rel=1e-12)
    sigma = original.noise.noise_scale
    norm = math.sqrt(2 * 15) * sigma * (4.0 * math.sqrt(50) + 2.0 * math.log(2e4 / 0.01))
    assert original.noise_norm == pytest.approx(norm, rel=1e-12)
    assert original.noise.noise_scale > 8.0 * exact.noise.noise_scale
    assert original.noise_norm > 20.0 * exact.noise_norm
    for bandit in (exact, original):
        bandit.step(None)
    assert original.privacy_spent(1e-4) < 0.1 * exact.privacy_spent(1e-4)
    dpucb(constants="original", epsilon=INF)
    with pytest.raises(ValueError, match="epsilon: expected a smaller number"):
        dpucb(constants="original", epsilon=1e5, delta=0.4)
    assert dpucb(adjacency="zero_out").noise.sensitivity == pytest.approx(math.sqrt(2.0), rel=1e-5)


def test_the_set_of_dpucb_holds_under_its_noise() -> None:
    """All parameters are in it; the radius of LinUCB, around the same estimates, misses in most runs."""
    runs = 300
    bandit = dpucb(batch_shape=(runs,), horizon=63, alpha=0.1, noise_scale=0.1, seed=0)
    plain = dpucb(horizon=63, alpha=0.1, noise_scale=0.1, epsilon=INF)
    generator = torch.Generator().manual_seed(2)
    theta = torch.randn((runs, ARMS, DIM), generator=generator, dtype=torch.float64)
    theta /= theta.norm(dim=-1, keepdim=True)
    for _ in range(63):
        x = torch.randn((runs, DIM), generator=generator, dtype=torch.float64)
        x /= 1.2 * x.norm(dim=-1, keepdim=True)
        k = bandit.select(x)
        mean = (theta @ x.unsqueeze(-1)).squeeze(-1).gather(-1, k.unsqueeze(-1)).squeeze(-1)
        bandit.step(x, k, mean + 0.02 * torch.randn(runs, generator=generator, dtype=torch.float64))
    released = bandit.released()
    # |x'(theta - theta_hat)| <= sqrt(x' bonus x) for all x: the ellipsoid's norm of the difference is at most 1.
    off = theta - released.theta
    ratio = (off * torch.linalg.solve(released.bonus, off)).sum(-1).sqrt()
    assert float(ratio.max()) <= 1.0
    of_plain = ratio * bandit.radius() / plain.radius()
    assert int((of_plain.amax(-1) > 1.0).sum()) > 0.5 * runs


def test_the_bound_on_the_noises_norm() -> None:
    """Of mirrored normal triangles, at a round of one node: as few exceed it as it says, and many exceed half of it."""
    bandit = DPUCB(8, arms=1, horizon=1, epsilon=1.0, delta=1e-3, alpha=0.6)
    games = 20_000
    rows, columns = torch.triu_indices(8, 8)
    noise = torch.zeros((games, 8, 8), dtype=torch.float64)
    draws = torch.randn((games, len(rows)), generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    noise[:, rows, columns] = noise[:, columns, rows] = bandit.noise.noise_scale * draws
    norms = torch.linalg.eigvalsh(noise)[:, -1]
    # alpha / (6 n K) = 0.1 is the share of either end that may be beyond.
    assert float((norms > bandit.noise_norm).double().mean()) < 0.1
    assert float((norms > 0.5 * bandit.noise_norm).double().mean()) > 0.1


# ---------------------------------------------------------------------------------------------- clocks and noise


def known(bandit: DPHDB) -> list[KnownNoise]:
    """Give each arm silent noise that counts how often it is asked."""
    sources = [KnownNoise() for _ in bandit.arms]
    for arm, source in zip(bandit.arms, sources, strict=True):
        vars(arm.noise).update(source=source)
    return sources


@pytest.mark.parametrize("mechanism", ["blt", "tree", "gumbel"])
def test_clocks_of_the_arms_and_who_draws_noise(mechanism: str) -> None:
    """In the warm-up the block's arm alone, then every arm once a round; what was not pulled adds exactly 0."""
    bandit = dphdb(mechanism=mechanism)
    sources = known(bandit)
    name = "secret_sum" if mechanism == "gumbel" else "noisy_sum"
    for t, (x, rewards, _) in enumerate(stream(HORIZON), 1):
        before = [getattr(arm, name).clone() for arm in bandit.arms]
        k = int(bandit.select(tensor(x)))
        bandit.step(tensor(x), torch.tensor(k), tensor(rewards[k]))
        moved = [float((getattr(arm, name) - before[i]).norm()) for i, arm in enumerate(bandit.arms)]
        assert [i for i, length in enumerate(moved) if length > 1e-14] == [k]
        warm = [min(max(t - i * WARMUP, 0), WARMUP) for i in range(ARMS)]
        local = warm if t <= ARMS * WARMUP else [t - (ARMS - 1) * WARMUP] * ARMS
        assert [int(arm.rounds) for arm in bandit.arms] == local
        assert [len(source.asked) for source in sources] == local
        if t <= ARMS * WARMUP:
            assert k == (t - 1) // WARMUP
    assert all(arm.horizon == HORIZON - (ARMS - 1) * WARMUP for arm in bandit.arms)


@pytest.mark.parametrize("mechanism", ["blt", "tree", "honaker", "sqrt", "gumbel", "laplace"])
def test_what_is_spent_is_one_arms(mechanism: str) -> None:
    """Zero before the first round, that of one learner at its own step number, and the promise in the end."""
    bandit = dphdb(mechanism=mechanism)
    n = HORIZON - (ARMS - 1) * WARMUP
    if mechanism in ("gumbel", "laplace"):
        rho = bandit.arms[0].noise.rho  # of the first step
        spent = [
            min(gaussian_epsilon(harmonic_mu(rho, step), 1e-3), zcdp_epsilon(rho * harmonic(step), 1e-3))
            for step in range(1, n + 1)
        ]
    else:
        encoder = bandit.arms[0].noise.materialize(n)[1]
        norms = encoder.square().cumsum(0).amax(-1).sqrt().tolist()
        spent = [gaussian_epsilon(gaussian_mu(1.0, 1e-3) * norm / norms[-1], 1e-3) for norm in norms]
    assert bandit.privacy_spent(1e-3) == 0.0
    for t in range(1, HORIZON + 1):
        bandit.step(None)
        local = min(t, WARMUP) if t <= ARMS * WARMUP else t - (ARMS - 1) * WARMUP
        assert bandit.privacy_spent(1e-3) == pytest.approx(spent[local - 1], rel=1e-5)
    assert 0.999 < bandit.privacy_spent(1e-3) <= 1.0


def test_what_dpucb_spends() -> None:
    bandit = dpucb()
    for t in range(1, HORIZON + 1):
        bandit.step(None)
        share = math.sqrt(t.bit_length() / HORIZON.bit_length())
        expected = gaussian_epsilon(gaussian_mu(1.0, 1e-3) * share, 1e-3)
        assert bandit.privacy_spent(1e-3) == pytest.approx(expected, rel=1e-5)
    assert bandit.privacy_spent(1e-3) <= 1.0


@BOTH
def test_the_budget_ends(build: Any) -> None:
    bandit = build()
    play(bandit, HORIZON)
    before = snapshot(bandit)
    for record in ((None,), (torch.ones(DIM), torch.tensor(0), torch.tensor(1.0))):
        with pytest.raises(RuntimeError, match=f"at most {HORIZON} steps"):
            bandit.step(*record)
    with pytest.raises(RuntimeError, match="reset: expected a new learner"):
        bandit.reset()
    assert differences(before, snapshot(bandit)) == []
    bandit.select(torch.ones(DIM))


# ---------------------------------------------------------------------------------------------- records


def after(build: Any, *rounds: tuple[Any, ...], **options: Any) -> dict[str, Tensor]:
    """The state, without noise, after 30 rounds of a stream and these."""
    bandit = build(epsilon=INF, **options)
    play(bandit, 30)
    for record in rounds:
        bandit.step(*record)
    return snapshot(bandit)


X, K, R = torch.tensor([0.3, -0.2, 0.5, 0.1]).double(), torch.tensor(1), torch.tensor(0.7).double()


@BOTH
def test_what_counts_as_nothing(build: Any) -> None:
    nothing = after(build, (None,))
    assert int(nothing["rounds"]) == 31
    assert differences(after(build), nothing) != []
    for record in [
        (X * torch.nan, K, R),
        (torch.tensor([0.1, INF, 0.0, 0.0]), K, R),
        (X, K, R * torch.nan),
        (X, K, -R / 0.0),
        (X, torch.tensor(ARMS), R),
        (X, torch.tensor(-1), R),
        (torch.zeros(0, DIM), torch.zeros(0, dtype=torch.int64), torch.zeros(0)),
        (torch.stack([X, X]), torch.tensor([-7, 99]), torch.ones(2)),
    ]:
        assert differences(after(build, record), nothing) == [], record
    assert differences(after(build, (X, K, R)), nothing) != []
    bandit = build(epsilon=INF)
    play(bandit, 30)
    assert torch.equal(bandit(X * torch.nan), bandit(X * 0.0))
    assert bandit.select(torch.full((2, DIM), INF)).tolist() == [int(bandit.select(X * 0.0))] * 2
    assert bandit.select(X, torch.zeros(ARMS, dtype=torch.bool)).item() == 0


@BOTH
def test_what_is_long_is_cut(build: Any) -> None:
    for record, cut in [
        ((X, K, torch.tensor(1e300, dtype=torch.float64)), (X, K, torch.tensor(1.0))),
        ((X, K, torch.tensor(-5.0)), (X, K, torch.tensor(-1.0))),
    ]:
        assert differences(after(build, record), after(build, cut)) == []
    norm = X.norm() if build is dpucb else X.abs().max()
    one, other = after(build, (X * 1e200, K, R)), after(build, (X / norm, K, R))
    for name in without_tags(one):
        torch.testing.assert_close(one[name], other[name], rtol=0.0, atol=1e-12)


@BOTH
def test_late_rewards_are_summed_in_one_step(build: Any) -> None:
    """Each clipped by itself, at the state of now; one step for each of them is something else."""
    records = [
        (X, torch.tensor(0), R),
        (-X, torch.tensor(1), R),
        (X.flip(0), torch.tensor(1), -R),
        (X * torch.nan, K, R),
    ]
    together = tuple(torch.stack(column) for column in zip(*records, strict=True))
    nothing, summed = after(build, (None,)), after(build, together)
    sums = [name for name in nothing if name.endswith("noisy_sum")]
    for name in sums:
        apart = sum(after(build, record)[name] - nothing[name] for record in records)
        torch.testing.assert_close(summed[name] - nothing[name], apart, rtol=0.0, atol=1e-12)
    assert int(summed["rounds"]) == 31
    steps = after(build, *records)
    assert int(steps["rounds"]) == 34
    if build is dphdb:
        assert float((steps["arms.1.noisy_sum"] - summed["arms.1.noisy_sum"]).abs().max()) > 1e-3
    one = after(build, (X.unsqueeze(0), K.unsqueeze(0), R.unsqueeze(0)))
    assert differences(one, after(build, (X, K, R))) == []


def test_late_rewards_of_other_arms_than_the_blocks_are_lost_in_the_warm_up() -> None:
    bandit, twin = dphdb(epsilon=INF), dphdb(epsilon=INF)
    for each, action in ((bandit, 1), (twin, -1)):
        for _ in range(WARMUP):
            each.step(X, torch.tensor(action), R)
    assert differences(snapshot(bandit), snapshot(twin)) == []
    bandit.step(X.expand(2, DIM), torch.tensor([0, 1]), R.expand(2))
    assert [float(arm.noisy_sum.norm()) > 0.0 for arm in bandit.arms] == [False, True, False]


@BOTH
def test_masks(build: Any) -> None:
    bandit = build(epsilon=INF)
    for t in range(HORIZON):
        mask = torch.ones(20, ARMS, dtype=torch.bool)
        mask[torch.arange(20), torch.arange(20) % ARMS] = False
        x = torch.randn(20, DIM, generator=torch.Generator().manual_seed(t), dtype=torch.float64)
        chosen = bandit.select(x, mask)
        assert bool(mask.gather(-1, chosen.unsqueeze(-1)).all())
        if isinstance(bandit, DPHDB) and t < ARMS * WARMUP:
            block = t // WARMUP
            lowest = mask.double().argmax(-1)
            assert torch.equal(chosen, torch.where(mask[:, block], block, lowest))
        else:
            scores = bandit(x).masked_fill(~mask, -INF)
            assert torch.equal(chosen, scores.argmax(-1))
        bandit.step(x[0], chosen[0], x[0, 0])


@BOTH
def test_wrong_shapes_and_types_are_refused_and_change_nothing(build: Any) -> None:
    for batch in ((), (2,)):
        bandit = build(batch_shape=batch, validate=False)
        x, k, r = torch.ones((*batch, DIM)), torch.zeros(batch, dtype=torch.int64), torch.ones(batch)
        bandit.step(x, k, r)
        before = snapshot(bandit)
        for arguments, name in [
            ((x[..., 1:], k, r), "inputs"),
            ((x.expand(1, 1, *x.shape), k, r), "inputs"),
            ((x.to(torch.int64), k, r), "inputs"),
            (("x", k, r), "inputs"),
            (([[1.0], [1.0, 2.0]], k, r), "inputs"),
            ((x.to("meta"), k, r), "inputs"),
            ((None, k, r), "inputs"),
            ((x, k.double(), r), "action"),
            ((x, 0.5, r), "action"),
            ((x, "0", r), "action"),
            ((x, None, r), "action"),
            ((x, k.expand(3, *k.shape), r), "action"),
            ((x, k.to("meta"), r), "action"),
            ((x, k, "1"), "reward"),
            ((x, k, None), "reward"),
            ((x, k, r.expand(3, *r.shape)), "reward"),
        ]:
            with pytest.raises((TypeError, ValueError), match=f"^{name}: expected"):
                bandit.step(*arguments)
        for arguments, name in [
            ((x[..., 1:],), "inputs"),
            ((x.to(torch.int64),), "inputs"),
            ((x, torch.ones((*batch, ARMS))), "mask"),
            ((x, torch.ones((*batch, ARMS + 1), dtype=torch.bool)), "mask"),
            ((x, torch.ones((*batch, ARMS), dtype=torch.bool, device="meta")), "mask"),
        ]:
            with pytest.raises((TypeError, ValueError), match=f"^{name}: expected"):
                bandit.select(*arguments)
        assert differences(before, snapshot(bandit)) == []


def test_wrong_options_are_refused() -> None:
    for options, name in [
        ({"warmup": HORIZON // ARMS + 1}, "warmup"),
        ({"warmup": 0}, "warmup"),
        ({"arms": 0}, "arms"),
        ({"gap": 0.0}, "gap"),
        ({"gap": math.nan}, "gap"),
        ({"link": "logistic"}, "link"),
        ({"link": Gamma(1.0)}, "theta_bound"),
        ({"feature_clip": INF}, "feature_clip"),
        ({"reward_clip": INF}, "reward_clip"),
        ({"clip": -1.0}, "clip"),
        ({"mechanism": "paper"}, "mechanism"),
        ({"mechanism": "tree", "noise_source": "discrete"}, "noise_source"),
        ({"participations": 0}, "participations"),
    ]:
        with pytest.raises((TypeError, ValueError), match=f"^{name}: expected"):
            dphdb(**options)
    for options, name in [
        ({"constants": "paper"}, "constants"),
        ({"alpha": 1.0}, "alpha"),
        ({"ridge": 0.0}, "ridge"),
        ({"noise_scale": -1.0}, "noise_scale"),
        ({"reward_clip": INF, "epsilon": INF}, "reward_clip"),
        ({"noise_source": "discrete"}, "noise_source"),
    ]:
        with pytest.raises((TypeError, ValueError), match=f"^{name}: expected"):
            dpucb(**options)
    dphdb(warmup=HORIZON // ARMS), dphdb(gap=INF, clip=INF, reward_clip=INF, epsilon=INF)


# ---------------------------------------------------------------------------------------------- what one person moves


def pairs(count: int) -> tuple[Any, ...]:
    """Pairs of records from what an adversary would try: corners, long and tiny ones, opposite rewards, other arms."""
    random = np.random.default_rng(4)
    scale = random.choice([1e-3, 0.3, 1.0, 1e9], size=(2, count, 1))
    x = np.where(
        random.random((2, count, 1)) < 0.5,
        random.choice([-1.0, 0.0, 1.0], size=(2, count, DIM)),
        random.normal(size=(2, count, DIM)),
    )
    x, reward = scale * x, random.choice([-1e300, -1.0, 0.2, 1.0, INF], size=(2, count))
    x[1] = np.where(random.random((count, 1)) < 0.5, x[0], x[1])
    action = random.integers(ARMS, size=(2, count))
    action[1] = np.where(random.random(count) < 0.5, action[0], action[1])
    return torch.from_numpy(x), torch.from_numpy(action), torch.from_numpy(reward)


@pytest.mark.parametrize("mechanism", ["blt", "gumbel"])
@pytest.mark.parametrize("link", [Gaussian(), Logistic()], ids=str)
def test_one_person_moves_the_sums_of_dphdb_by_at_most_twice_the_clip(mechanism: str, link: Any) -> None:
    """And by sqrt(2) of it where the two worlds pull different arms; both are reached, so that the bound is not slack."""
    count, clip = 4000, 0.7
    order = 2.0 if mechanism == "blt" else INF
    x, action, reward = pairs(count)
    sums = []
    for world in range(2):
        bandit = dphdb(epsilon=INF, batch_shape=(count,), clip=clip, mechanism=mechanism, link=link)
        for t, (others, rewards, _) in enumerate(stream(30)):
            k = torch.full((count,), t % ARMS)
            bandit.step(tensor(others).expand(count, DIM), k, tensor(rewards[t % ARMS]).expand(count))
        bandit.step(x[world], action[world], reward[world])
        sums.append(torch.stack([arm.noisy_sum for arm in bandit.arms], 1))
    moved = torch.linalg.vector_norm(sums[1] - sums[0], order, dim=-1)
    together = torch.linalg.vector_norm(moved, dim=-1)
    switches = action[0] != action[1]
    assert float(together[~switches].max()) <= 2.0 * clip * (1.0 + 1e-12)
    assert float(together[switches].max()) <= math.sqrt(2.0) * clip * (1.0 + 1e-12)
    assert float(together[~switches].max()) > 1.99 * clip
    assert float(together[switches].max()) > 1.41 * clip
    assert int((moved > 0.0).sum(-1).max()) == 2


def test_one_person_moves_the_sums_of_dpucb_by_at_most_its_sensitivity() -> None:
    """The root of 4.5, counting each entry of G twice that has a mirror image; and a pair of persons that reach it as it is."""
    count = 4000
    x, action, reward = pairs(count)
    # At an angle of 60 degrees, on either side of the diagonal, with opposite rewards.
    x[:, 0] = 0.0
    x[:, 0, :2] = torch.tensor([[math.cos(math.radians(angle)), math.sin(math.radians(angle))] for angle in (15, 75)])
    action[:, 0], reward[0, 0], reward[1, 0] = 0, 1.0, -1.0
    sums = []
    for world in range(2):
        bandit = dpucb(epsilon=INF, batch_shape=(count,))
        bandit.step(x[world], action[world], reward[world])
        sums.append(bandit.noisy_sum.clone())
    rows, columns = bandit.upper
    weight = torch.where((rows == columns) | (columns == DIM), 1.0, 2.0)
    difference = (sums[1] - sums[0]).square()
    frobenius = (weight * difference).sum((-1, -2)).sqrt()
    assert float(frobenius.max()) <= math.sqrt(4.5) * (1.0 + 1e-12)
    assert math.isclose(float(difference[0].sum()), 4.5, rel_tol=1e-6)
    # Late rewards: in two rounds, two contributions are never farther apart than in one, because rows overlap less than fully.
    products = torch.stack(sums)[:, action[0] == action[1]].sum(-2)
    assert float((weight * products[0] * products[1]).sum(-1).min()) >= -0.25 - 1e-12


# ---------------------------------------------------------------------------------------------- copies, seeds, files


@BOTH
def test_two_loads_of_a_checkpoint_draw_other_noise(build: Any) -> None:
    bandit = build(seed=5)
    play(bandit, 30)
    state = snapshot(bandit)
    file = io.BytesIO()
    torch.save(bandit, file)
    file.seek(0)
    ways = {"original": bandit, "deepcopy": copy.deepcopy(bandit), "file": torch.load(file, weights_only=False)}
    for name in ("one", "other"):
        ways[name] = build(seed=5)
        ways[name].load_state_dict(state)
    spent = bandit.privacy_spent(1e-3)
    for name, way in ways.items():
        counted = 1 if name == "original" else 2
        assert way.privacy_ledger().events[0].count == counted
        assert way.privacy_spent(1e-3) == bandit.privacy_spent(1e-3, continuations=counted) >= spent
        assert way.source.is_seeded == (name == "original")
    for _ in range(3):
        for way in ways.values():
            way.step(None)
    sums = torch.stack([noisy_sums(way) for way in ways.values()])
    assert len(sums.unique(dim=0)) == len(sums)


def noisy_sums(bandit: Any) -> Tensor:
    """The first number of each arm's."""
    if isinstance(bandit, DPUCB):
        return bandit.noisy_sum[:, 0].clone()
    return torch.stack([arm.noisy_sum[0] for arm in bandit.arms])


def test_a_state_of_other_options_is_refused_as_a_whole() -> None:
    """Not one arm is loaded, even where only the bandit or only the last arm differs."""
    learnt = dphdb()
    play(learnt, 30)
    changes: list[dict[str, Any]] = [{"gap": 1.0}, {"warmup": 9}, {"feature_clip": 2.0}, {"reward_clip": 0.5}]
    changes += [
        {"link": Logistic()},
        {"clip": 0.5},
        {"epsilon": 1.1},
        {"arms": 2},
        {"horizon": 61},
        {"mechanism": "tree"},
    ]
    for change in changes:
        other = dphdb(**change)
        before = snapshot(other)
        with pytest.raises(
            RuntimeError, match=r"Error\(s\) in loading state_dict for DPHDB:\n\t.*(learnt with|expected)"
        ):
            other.load_state_dict(snapshot(learnt))
        assert differences(before, snapshot(other)) == [], change
    for missing in ("arms.2.theta", "arms.1.", "theta_warm", ("theta_warm", "constants", "rounds", "furthest", "cont")):
        partial = {name: value for name, value in snapshot(learnt).items() if not name.startswith(missing)}
        other = dphdb()
        before = snapshot(other)
        with pytest.raises(RuntimeError, match=r"expected (an entry|the entries of this part), got none"):
            other.load_state_dict(partial)
        assert differences(before, snapshot(other)) == []
    ucb = dpucb()
    with pytest.raises(RuntimeError, match="learnt with"):
        ucb.load_state_dict(dpucb(constants="original", horizon=HORIZON).state_dict())


@BOTH
def test_going_back_is_a_continuation(build: Any) -> None:
    bandit = build()
    play(bandit, 10)
    early = snapshot(bandit)
    play(bandit, 30)
    spent = bandit.privacy_spent(1e-3, continuations=2)
    bandit.load_state_dict(early)
    assert int(bandit.rounds) == 10
    assert bandit.privacy_spent(1e-3) == spent


def test_noise_of_the_operating_system() -> None:
    for mechanism in ("blt", "gumbel"):
        bandit = dphdb(noise_source="csprng", mechanism=mechanism, batch_shape=(2,))
        for _ in range(HORIZON):
            bandit.step(None)
        assert len(bandit.released().theta.flatten(0, 1).unique(dim=0)) == 2 * ARMS


@BOTH
def test_seeds(build: Any) -> None:
    """One seed gives one run, with noise of its own for each arm and learner; it is flagged, and not shown."""
    runs = []
    for seed in (123456789, 123456789, 987654321, None, None):
        bandit = build(seed=seed, batch_shape=(2,))
        for _ in range(HORIZON):
            bandit.step(None)
        runs.append(
            torch.cat([value.flatten() for name, value in bandit.state_dict().items() if name.endswith("noisy_sum")])
        )
        text = repr(bandit) + repr(bandit.privacy_ledger())
        assert ("no protection against anybody who knows the seed" in text) == (seed is not None)
        assert "123456789" not in text
    assert torch.equal(runs[0], runs[1])
    assert len(torch.stack(runs).unique(dim=0)) == 4
    learners = runs[0].reshape(2, -1) if build is dpucb else torch.cat(list(runs[0].reshape(ARMS, 2, -1)))
    assert len(learners.unique(dim=0)) == len(learners)


@BOTH
@pytest.mark.parametrize("batch", [(), (2,)])
def test_files_hold_released_values_only(build: Any, batch: tuple[int, ...], tmp_path: Path) -> None:
    bandit = build(batch_shape=batch)
    x, r = torch.ones((*batch, DIM)), torch.ones(batch)
    for _ in range(HORIZON - 5):
        bandit.step(x, bandit.select(x), r)
    scripted = torch.jit.script(bandit)
    assert set(scripted.state_dict()) == ({"theta", "bonus"} if build is dpucb else {"theta", "theta_warm"})
    file = io.BytesIO()
    torch.jit.save(scripted, file)
    assert SECRET.encode() not in file.getvalue()
    file.seek(0)
    loaded = torch.jit.load(file)
    x = torch.randn((*batch, 6, DIM), dtype=torch.float64, generator=torch.Generator().manual_seed(6))
    mask = torch.rand((*batch, 6, ARMS), generator=torch.Generator().manual_seed(7)) < 0.6
    for module in (loaded, bandit.released()):
        assert torch.equal(module.select(x, mask), bandit.select(x, mask))
        assert torch.equal(module.select(x), bandit.select(x))
        torch.testing.assert_close(module(x), bandit(x), rtol=1e-12, atol=0.0)
    with pytest.raises(RuntimeError, match="export: expected released"):
        torch.jit.trace(bandit, (x,))
    path = tmp_path / "bandit.pt2"
    to_program(bandit, path)
    assert SECRET.encode() not in path.read_bytes()
    torch.testing.assert_close(torch.export.load(path).module()(x), bandit(x), rtol=1e-12, atol=1e-15)
    to_torchscript(bandit)


def test_public_states() -> None:
    """Of all arms, under the names of the checkpoint; what is left out is secret or constant, and what is given is a copy."""
    for bandit in (dphdb(), dphdb(mechanism="gumbel"), dpucb()):
        play(bandit, 30)
        state, public = snapshot(bandit), bandit.public_state()
        assert differences(public, {name: state[name] for name in public}) == []
        left = {name.rsplit(".", 1)[-1] for name in state if name not in public}
        assert "constants" in left
        assert [name.startswith(SECRET) for name in left - {"constants"}] == [True]
        assert not any(SECRET in name for name in public)
        for value in public.values():
            value.zero_()
        assert differences(state, snapshot(bandit)) == []


@BOTH
def test_no_cast_touches_it_and_no_gradient_enters(build: Any) -> None:
    bandit = build(**({"dtype": torch.float32} if build is dphdb else {}))
    weight = torch.ones((), requires_grad=True)
    for _ in range(3):
        bandit.step(weight * X.float(), K * 0, weight * R.float())
    before = snapshot(bandit)
    bandit.half(), bandit.to(torch.bfloat16)
    assert differences(before, snapshot(bandit)) == []
    assert not any(value.requires_grad for value in bandit.buffers())
    assert not bandit(weight * X.float()).requires_grad
    narrow = {name for name, value in before.items() if value.dtype == torch.float32}
    assert (
        narrow == {"theta_warm", *(f"arms.{k}.theta{end}" for k in range(ARMS) for end in ("", "_prev"))}
        or build is dpucb
    )


# ---------------------------------------------------------------------------------------------- an audit


class Weak(NoiseSource):
    """A source whose noise is a thirtieth of what it should be."""

    name = "weak"

    def __init__(self, source: NoiseSource) -> None:
        self.source = source

    def add_normal(self, values: Any, scale: float) -> Any:
        return self.source.add_normal(values, scale / 30.0)

    def spawn(self) -> "Weak":
        return Weak(self.source.spawn())


def audited(build: Callable[..., Any], statistic: Callable[[Any], Tensor], records: Any, weak: bool) -> float:
    """Everything after the first person is silent; the statistics are of public states, and her own action is not used."""
    seeds = itertools.count()

    def game(world: int, games: int) -> Tensor:
        source = noise_source("torch", seed=next(seeds))
        bandit = build(batch_shape=(games,), noise_source=Weak(source) if weak else source)
        x, action, reward = records[world]
        bandit.step(x.expand(games, -1), action.expand(games), reward.expand(games))
        seen = [statistic(bandit)]
        while int(bandit.rounds) < bandit.horizon:
            bandit.step(None)
            seen.append(statistic(bandit))
        return torch.cat(seen, -1)

    return epsilon_lower_bound(game, delta=1e-3, games=4000).epsilon


ONE = torch.ones(1, dtype=torch.float64)
AUDITS: dict[str, tuple[Any, Any, Any]] = {
    # In the first block she pulls its arm, and her reward has either sign: twice the clip.
    "dphdb": (
        lambda **options: DPHDB(1, arms=2, horizon=6, warmup=1, epsilon=1.0, delta=1e-3, **options),
        lambda bandit: bandit.public_state()["arms.0.noisy_sum"],
        [(ONE, torch.tensor(0), ONE[0]), (ONE, torch.tensor(0), -ONE[0])],
    ),
    # She pulls one arm or the other: both sums move by as much as they can.
    "dpucb": (
        lambda **options: DPUCB(1, arms=2, horizon=4, epsilon=1.0, delta=1e-3, **options),
        lambda bandit: bandit.public_state()["noisy_sum"].sum(-1),
        [(ONE, torch.tensor(0), ONE[0]), (ONE, torch.tensor(1), ONE[0])],
    ),
}


@pytest.mark.parametrize("name", AUDITS)
def test_an_audit_finds_no_more_than_promised_and_a_thirtieth_of_the_noise(name: str) -> None:
    build, statistic, records = AUDITS[name]
    assert audited(build, statistic, records, weak=False) < 1.0
    assert audited(build, statistic, records, weak=True) > 5.0
