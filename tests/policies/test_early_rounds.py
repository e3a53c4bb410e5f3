"""The first rounds of a policy under a running scaler: what the statistics are made of while the scaler learns."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import torchonline
from torchonline import AdaptiveRidgeRegression, DisjointArms, RidgeRegression, ScaledPolicy, StandardScaler
from torchonline.policies.early_rounds import FIRST, KEPT, EarlyRounds

pytestmark = pytest.mark.fast

D = torch.float64
DIM, ARMS, ROUNDS = 3, 3, 80


def policy_over(estimator: Any = AdaptiveRidgeRegression, actions: int | None = ARMS, **options: Any) -> Any:
    scaler = StandardScaler(DIM, **options)
    model = estimator(scaler.features, ridge=0.5)
    return ScaledPolicy(model, scaler) if actions is None else DisjointArms(model, actions, scaler=scaler)


def stream(seed: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Raw features, actions, rewards and noise scales of some rounds."""
    random = np.random.default_rng(seed)
    rows = random.standard_normal((ROUNDS, DIM)) * [1.0, 100.0, 0.01] + [0.0, 30.0, 1.0]
    values = (rows, random.integers(ARMS, size=ROUNDS), random.random(ROUNDS), random.uniform(0.3, 1.0, ROUNDS))
    rows, actions, rewards, scales = (torch.from_numpy(value) for value in values)
    return rows, actions, rewards, scales


def learn(policy: Any, x: Tensor, arm: Tensor, reward: Tensor, **options: Any) -> None:
    """One round: of a context and an arm, or of the only arm's features."""
    round_ = (x, arm) if isinstance(policy, DisjointArms) else (x.unsqueeze(-2), torch.zeros_like(arm))
    policy.step(*round_, reward, **options)


def standardised(x: np.ndarray, rows: np.ndarray) -> np.ndarray:
    z = np.clip((x - rows.mean(0)) / rows.std(0, ddof=1), -2.5, 2.5) if len(rows) > 2 else np.zeros(DIM)
    return np.append(z, 1.0)


def features_after(rows: np.ndarray, rounds: int) -> np.ndarray:
    """The features that each round has after so many: those of the decision, or of its last renewal."""
    features = np.stack([standardised(x, rows[: t + 1]) for t, x in enumerate(rows[:rounds])])
    for n in range(3, min(rounds, 63) + 1):
        j = n - 2 ** (n.bit_length() - 1)
        features[j] = standardised(rows[j], rows[:n])
    return features


@pytest.mark.parametrize("is_small", [True, False])
def test_statistics_are_those_of_the_renewed_features(is_small: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """V, V^-1 and the parameter of each arm, against NumPy's sums over all rounds."""
    policy, (rows, actions, rewards, scales) = policy_over(), stream()
    if not is_small:
        monkeypatch.setattr(policy, "is_small", False)
    for t in range(ROUNDS):
        policy.step(rows[t], actions[t], rewards[t], noise_scale=scales[t])
        if t + 1 not in (1, 2, 3, 4, 7, 33, 63, 64, ROUNDS):
            continue
        weights = 0.5 / scales[: t + 1].numpy()
        features = features_after(rows.numpy(), t + 1) * weights[:, None]
        for k in range(ARMS):
            chosen = actions[: t + 1].numpy() == k
            V = 0.5 * np.eye(DIM + 1) + features[chosen].T @ features[chosen]
            theta = np.linalg.solve(V, features[chosen].T @ (weights * rewards[: t + 1].numpy())[chosen])
            np.testing.assert_allclose(policy.estimator.V[k], V, rtol=1e-9, atol=1e-9)
            np.testing.assert_allclose(policy.estimator.V_inv[k].numpy() @ V, np.eye(DIM + 1), atol=1e-9)
            np.testing.assert_allclose(policy.estimator.theta_hat[k], theta, rtol=1e-8, atol=1e-9)


def test_each_early_round_is_renewed_whenever_the_rounds_have_doubled() -> None:
    early = EarlyRounds(1, 2)
    counts = torch.arange(100)
    places = [int(early.place(n)) for n in counts if early.is_due(n)]
    assert places == [n - 2 ** (n.bit_length() - 1) for n in range(FIRST, 2 * KEPT)]
    assert torch.equal(early.is_due(counts), (counts >= FIRST) & (counts < 2 * KEPT))
    assert early.place(counts)[FIRST : 2 * KEPT].tolist() == places


@pytest.mark.parametrize("rewards", ["unit", "real", "heavy"])
@pytest.mark.parametrize("actions", [None, ARMS])
def test_renewal_counts_no_round_twice_and_keeps_the_inverse(rewards: str, actions: int | None) -> None:
    """In each kind of the recommended bandit."""
    policy, (rows, arms, values, _) = torchonline.bandit(DIM, rewards, actions), stream()
    assert policy.early is not None
    for t in range(ROUNDS):
        learn(policy, rows[t], arms[t], values[t])
    estimator = policy.estimator
    assert int(estimator.rounds.sum()) == ROUNDS
    eye = torch.eye(estimator.dim, dtype=D)
    torch.testing.assert_close(estimator.V @ estimator.V_inv, eye.expand_as(estimator.V), rtol=0.0, atol=1e-9)
    assert set(policy.early.records[..., -1].unique().tolist()) <= set(range(ARMS if actions else ROUNDS))


@pytest.mark.parametrize("actions", [None, ARMS])
@pytest.mark.parametrize("is_small", [True, False])
def test_a_batch_without_noise_scales_equals_singles(
    actions: int | None, is_small: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    batched = torchonline.bandit(DIM, actions=actions, batch_shape=(2,))
    if not is_small:
        monkeypatch.setattr(batched, "is_small", False)
    streams = [stream(seed) for seed in range(2)]
    rows, arms, rewards = (torch.stack(values) for values in list(zip(*streams, strict=True))[:3])
    for t in range(ROUNDS):
        learn(batched, rows[:, t], arms[:, t], rewards[:, t])
    for i in range(2):
        single = torchonline.bandit(DIM, actions=actions)
        for t in range(ROUNDS):
            learn(single, rows[i, t], arms[i, t], rewards[i, t])
        for name in ("theta_hat", "V", "V_inv"):
            ours, theirs = getattr(batched.estimator, name)[i], getattr(single.estimator, name)
            torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


def test_float32_keeps_its_inverse() -> None:
    policy = torchonline.bandit(DIM, actions=ARMS, dtype=torch.float32)
    rows, actions, rewards, _ = stream()
    policy.step(rows.float(), actions, rewards.float())
    V, inverse = policy.estimator.V.double(), policy.estimator.V_inv.double()
    torch.testing.assert_close(V @ inverse, torch.eye(V.size(-1), dtype=D).expand_as(V), rtol=0.0, atol=1e-4)


@pytest.mark.parametrize("actions", [None, ARMS])
def test_a_round_that_outweighs_the_others_stays(actions: int | None) -> None:
    """To take it out of V would leave rounding errors only."""
    policy, (rows, arms, rewards, _) = policy_over(actions=actions), stream()
    scale = torch.full((ROUNDS,), 0.5, dtype=D)
    scale[5] = 1e-6
    for t in range(ROUNDS):
        learn(policy, rows[t], arms[t], rewards[t], noise_scale=scale[t])
    kept = policy.early.records[5, DIM : 2 * DIM + 1]
    np.testing.assert_allclose(kept, 5e5 * standardised(rows[5].numpy(), rows[:6].numpy()), rtol=1e-9)
    V, inverse = policy.estimator.V, policy.estimator.V_inv
    assert bool((torch.linalg.eigvalsh(V) > 0.1).all())
    assert bool((torch.linalg.eigvalsh(inverse) > 0.0).all())


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_round_of_zeros_that_would_outweigh_the_others_stays(dtype: torch.dtype) -> None:
    """The first rounds have features of 0, which any weight leaves without a trace. Their new features would have one."""
    scaler = StandardScaler(DIM, intercept=False, dtype=dtype)
    policy, (rows, _, rewards, _) = ScaledPolicy(AdaptiveRidgeRegression(DIM, dtype=dtype), scaler), stream()
    scale = torch.full((ROUNDS,), 0.5, dtype=dtype)
    scale[:2] = 1e-12
    for t in range(ROUNDS):
        policy.step(rows[t, None].to(dtype), 0, rewards[t].to(dtype), noise_scale=scale[t])
    assert not policy.early.records[:2, DIM : 2 * DIM].any()
    V, inverse = policy.estimator.V.double(), policy.estimator.V_inv.double()
    torch.testing.assert_close(V @ inverse, torch.eye(DIM, dtype=D), rtol=0.0, atol=1e-4)


def test_removed_arms_take_their_early_rounds_along() -> None:
    """An arm that moves up keeps its rounds. Those of a removed arm are renewed no more, and a new arm has none."""
    policy, (rows, actions, rewards, _) = policy_over(), stream()
    policy.step(rows[:20], actions[:20], rewards[:20])
    records, V = policy.early.records.clone(), policy.estimator.V.clone()
    policy.remove_actions([0])
    policy.add_actions()
    for t in range(20):
        new, old = policy.early.records[t], records[t]
        if actions[t] == 0:
            assert torch.equal(new[:DIM], old[:DIM])
            assert not new[DIM:].any()
        else:
            assert new[-1] == actions[t] - 1
            assert torch.equal(new[:-1], old[:-1])
    torch.testing.assert_close(policy.estimator.V[:2], V[1:], rtol=0.0, atol=0.0)
    unknown = policy.estimator.V[2].clone()
    for t in range(20, ROUNDS):
        policy.step(rows[t], 1, rewards[t])
    torch.testing.assert_close(policy.estimator.V[2], unknown, rtol=0.0, atol=0.0)


def test_an_interrupted_change_of_arms_leaves_the_rounds_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    policy, (rows, actions, rewards, _) = policy_over(), stream()
    policy.step(rows[:20], actions[:20], rewards[:20])
    before = {name: buffer.clone() for name, buffer in policy.state().items()}

    def interrupt(*arguments: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(EarlyRounds, "with_arms", interrupt)
    with pytest.raises(KeyboardInterrupt):
        policy.remove_actions([0])
    after = policy.state()
    assert all(torch.equal(after[name], buffer) for name, buffer in before.items())


@pytest.mark.parametrize(
    ("column", "value", "wanted"), [(-1, 7.0, "arms from 0 to 2"), (-1, 0.5, "arms"), (0, np.inf, "finite")]
)
def test_impossible_records_are_refused(column: int, value: float, wanted: str) -> None:
    policy, (rows, actions, rewards, _) = policy_over(), stream()
    policy.step(rows[:20], actions[:20], rewards[:20])
    state = policy.state_dict()
    state["early.records"][4, column] = value
    with pytest.raises(RuntimeError, match=f"early.records: expected {wanted}"):
        policy_over().load_state_dict(state)


def test_a_subclass_that_learns_otherwise_is_not_renewed() -> None:
    class Doubled(AdaptiveRidgeRegression):
        def _observe(self, x: Tensor, reward: Tensor, noise_scale: Tensor) -> None:
            super()._observe(2.0 * x, reward, noise_scale)

    assert policy_over(Doubled).early is None
    assert policy_over(type("Same", (AdaptiveRidgeRegression,), {})).early is not None


def test_only_estimators_and_scalers_that_move_are_renewed() -> None:
    """A guarantee is about rounds in coordinates that stay, and an epoch begins without the rounds before it."""
    scaler = StandardScaler(DIM)
    restarting = AdaptiveRidgeRegression(scaler.features, restart_every=10)
    assert policy_over(RidgeRegression).early is None
    assert policy_over(freeze_after=10).early is None
    assert ScaledPolicy(restarting, scaler).early is None
    assert torchonline.bandit(DIM, actions=2, scale=False).early is None
    assert "early" in policy_over().parts()


def test_an_estimator_that_was_reset_alone_stays_positive_definite() -> None:
    """Its early rounds are gone, and cannot be taken out again."""
    policy, (rows, _, rewards, _) = policy_over(actions=None), stream()
    policy.step(rows[:16].unsqueeze(-2), [0] * 16, rewards[:16])
    policy.estimator.reset()
    for t in range(16, ROUNDS):
        policy.step(rows[t, None], 0, rewards[t])
        assert bool((torch.linalg.eigvalsh(policy.estimator.V) > 0.0).all())
        assert bool(policy.estimator.theta_hat.isfinite().all())
