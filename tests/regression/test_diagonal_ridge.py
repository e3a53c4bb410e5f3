"""``DiagonalRidgeRegression``, sparse features, and the limit on d x d matrices."""

import math
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from scipy import sparse
from torch import Tensor

from tests.interruption import interrupted
from torchonline import (
    OFUL,
    UCB,
    AdaptiveRidgeRegression,
    DiagonalRidgeRegression,
    DisjointArms,
    EpsilonGreedy,
    LocalGLMRegression,
    Logistic,
    RidgeRegression,
    ScaledPolicy,
    StandardScaler,
    ThompsonSampling,
    bandit,
)
from torchonline.core.sparse import SparseRows
from torchonline.models import BanditHead
from torchonline.policies.policy import Policy
from torchonline.regression.estimator import Estimator

D = 12
pytestmark = [
    pytest.mark.filterwarnings("ignore:Sparse CSR tensor support:UserWarning"),
    pytest.mark.filterwarnings("ignore:Sparse invariant checks:UserWarning"),
]


def rows(count: int, dim: int = D, density: float = 0.25, seed: int = 0) -> Any:
    """Sparse rows, some of them without an entry."""
    return sparse.random(count, dim, density, "csr", random_state=seed)


def slow(x: np.ndarray, rewards: np.ndarray, ridge: float, noise_scale: float) -> tuple[np.ndarray, np.ndarray, float]:
    """Return theta, the variances and the radius at scale 1, by d x d matrices whose other entries are dropped."""
    d = x.shape[1]
    theta, covariance, squares, gain = np.zeros(d), np.eye(d) / ridge, 0.0, 0.0
    for t, (a, r) in enumerate(zip(x, rewards, strict=True), 1):
        gain += r
        residual = r - gain / t - a @ theta
        squares += residual**2
        q = a @ covariance @ a
        theta = theta + covariance @ a * residual / (1.0 + q)
        updated = covariance - np.outer(covariance @ a, covariance @ a) / (1.0 + q)
        covariance = np.diag(np.diag(updated))
    return theta, np.diag(covariance), math.sqrt((squares + noise_scale**2) / (len(x) + 1))


def test_a_slow_version_agrees() -> None:
    x, rewards = rows(60).toarray(), np.random.default_rng(1).normal(size=60)
    learner = DiagonalRidgeRegression(D, ridge=0.7, noise_scale=0.3, radius_scale=2.0)
    learner.step(x, rewards)
    theta, variances, scale = slow(x, rewards, 0.7, 0.3)
    np.testing.assert_allclose(learner.theta_hat, theta, atol=1e-12)
    np.testing.assert_allclose(learner.variances, variances, atol=1e-12)
    assert float(learner.radius()) == pytest.approx(2.0 * scale)
    np.testing.assert_allclose(learner(x), x @ theta + rewards.mean(), atol=1e-12)
    np.testing.assert_allclose(learner.width(x[:, :]) ** 2, x**2 @ variances, atol=1e-12)


def test_features_that_never_occur_together_are_learnt_as_by_full_ridge_regression() -> None:
    """On rewards minus the level, which a mean of 0 makes 0 in every round."""
    x = torch.eye(D, dtype=torch.float64)[torch.arange(40) % D]
    sign = torch.tensor([1.0, -1.0], dtype=torch.float64)
    learner, full = DiagonalRidgeRegression(D, ridge=2.0), RidgeRegression(D, ridge=2.0)
    for t in range(40):
        reward = sign[t % 2] * (1.0 + t % 5)
        learner.step(x[t], reward)
        full.step(x[t], reward - learner.gain / learner.seen)
    torch.testing.assert_close(learner.theta_hat, full.theta_hat)
    torch.testing.assert_close(learner.variances, full.V_inv.diagonal())
    torch.testing.assert_close(learner.width_matrix(), full.V_inv)


def test_a_number_added_to_all_rewards_is_added_to_all_predictions() -> None:
    x, rewards = rows(50).toarray(), np.random.default_rng(2).normal(size=50)
    one, other = DiagonalRidgeRegression(D), DiagonalRidgeRegression(D)
    one.step(x, rewards)
    other.step(x, rewards + 100.0)
    torch.testing.assert_close(other(x), one(x) + 100.0)
    torch.testing.assert_close(other.radius(), one.radius())


def test_a_new_arm_starts_at_the_mean_of_all_arms() -> None:
    arms = DisjointArms(DiagonalRidgeRegression(D), actions=2)
    for _ in range(50):
        arms.step(torch.eye(D)[0], 0, 0.8)
    assert arms.predict(torch.eye(D)[1])[1].item() == pytest.approx(0.8)
    assert (arms.estimator.seen == 50).all()
    assert arms.estimator.rounds.tolist() == [50, 0]


@pytest.mark.parametrize("size", [1e-12, 1e7])
def test_variances_stay_positive_and_fall(size: float) -> None:
    learner = DiagonalRidgeRegression(3)
    for t in range(30):
        before = learner.variances.clone()
        learner.step([size, size * (t % 2), 0.0], 1.0)
        assert (learner.variances > 0.0).all()
        assert (learner.variances <= before).all()


# Sparse features.

ESTIMATORS: dict[str, Any] = {
    "diagonal": lambda: DiagonalRidgeRegression(D),
    "diagonal in float32": lambda: DiagonalRidgeRegression(D, dtype=torch.float32),
    "diagonal in epochs": lambda: DiagonalRidgeRegression(D, restart_every=7),
    "ridge": lambda: RidgeRegression(D),
    "adaptive": lambda: AdaptiveRidgeRegression(D),
    "logistic": lambda: LocalGLMRegression(D, link=Logistic(), feature_bound=10.0),
}
POLICIES: dict[str, Any] = {
    "diagonal": lambda: DisjointArms(UCB(DiagonalRidgeRegression(D)), actions=3),
    "epsilon": lambda: DisjointArms(EpsilonGreedy(DiagonalRidgeRegression(D)), actions=3),
    "ridge": lambda: DisjointArms(RidgeRegression(D), actions=3),
    "bandit": lambda: bandit(D, actions=3),
    "head": lambda: BanditHead(torch.nn.Identity(), bandit(D, actions=3, scale=False)),
}
OF_ARMS: dict[str, Any] = {
    "diagonal": lambda: UCB(DiagonalRidgeRegression(D)),
    "ridge": lambda: OFUL(D),
    "scaled": lambda: ScaledPolicy(RidgeRegression(D + 1), StandardScaler(D)),
}


def forms(x: Any) -> list[Any]:
    """The same sparse rows in all forms that are accepted."""
    dense = torch.from_numpy(x.toarray())
    return [
        x,
        sparse.csr_array(x),
        x.tocsc(),
        x.tocoo(),
        dense.to_sparse(),
        dense.to_sparse_csr(),
        dense.to_sparse_csc(),
    ]


def close_states(one: Any, other: Any) -> None:
    """Compare all entries of two state dicts."""
    for name, value in one.state_dict().items():
        torch.testing.assert_close(other.state_dict()[name], value, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_estimators_take_sparse_rows_in_every_form(name: str) -> None:
    x, rewards = rows(40), np.random.default_rng(3).random(40)
    dense: Estimator = ESTIMATORS[name]()
    dense.step(x.toarray(), rewards)
    tolerance = {"rtol": 1e-5, "atol": 1e-6} if "float32" in name else {"rtol": 1e-9, "atol": 1e-9}
    for form in forms(x):
        learner: Estimator = ESTIMATORS[name]()
        learner.step(form, rewards)
        for key, value in dense.state_dict().items():
            torch.testing.assert_close(learner.state_dict()[key], value, **tolerance)
        for ask in ("__call__", "predictor", "width"):
            torch.testing.assert_close(getattr(learner, ask)(form), getattr(dense, ask)(x.toarray()), **tolerance)
        for ours, theirs in zip(learner.interval(form), dense.interval(x.toarray()), strict=True):
            torch.testing.assert_close(ours, theirs, **tolerance)


def test_a_restart_forgets_the_columns_that_a_row_does_not_have() -> None:
    x = rows(40)
    arms = [DisjointArms(DiagonalRidgeRegression(D, restart_every=7), actions=2) for _ in range(2)]
    one, other = ESTIMATORS["diagonal in epochs"](), ESTIMATORS["diagonal in epochs"]()
    for t in range(40):
        one.step(x[t], 0.1 * t)
        other.step(x[t].toarray()[0], 0.1 * t)
        arms[0].step(x[t], t % 2, 0.1 * t)
        arms[1].step(x[t].toarray()[0], t % 2, 0.1 * t)
    close_states(one, other)
    close_states(*arms)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_estimators_learn_a_sparse_log_as_a_dense_one(name: str) -> None:
    x, rewards = rows(40), np.random.default_rng(3).random(40)
    one, other = ESTIMATORS[name](), ESTIMATORS[name]()
    one.learn(x.toarray(), rewards, block_size=9)
    other.learn(x, rewards, block_size=9)
    for key, value in one.state_dict().items():
        torch.testing.assert_close(other.state_dict()[key], value, rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match=r"^block_size: expected an integer above 0"):
        other.learn(x, rewards, block_size=0)


@pytest.mark.parametrize("name", POLICIES)
def test_policies_on_contexts_take_sparse_rows(name: str) -> None:
    x, random = rows(60), np.random.default_rng(4)
    action, rewards = random.integers(0, 3, 60), random.random(60)
    one: Policy = POLICIES[name]()
    other: Policy = POLICIES[name]()
    for i in range(20):  # a single row with numbers, then several
        one.step(x[i].toarray()[0], int(action[i]), rewards[i])
        other.step(x[i], int(action[i]), rewards[i])
    one.step(x[20:].toarray(), action[20:], rewards[20:], noise_scale=np.full(40, 0.7))
    other.step(x[20:], action[20:], rewards[20:], noise_scale=np.full(40, 0.7))
    close_states(one, other)
    for policy, form in ((one, x.toarray()), (other, x)):
        policy.learn(form, action, rewards)
    close_states(one, other)
    dense = x.toarray()
    for form in forms(x):
        torch.testing.assert_close(other(form), one(dense))
        torch.testing.assert_close(other.predict(form), one.predict(dense))
        torch.testing.assert_close(other.probabilities(form), one.probabilities(dense))
        torch.testing.assert_close(other.interval(form)[1], one.interval(dense)[1])
    mask = [True, False, True]
    for masks in (mask, [mask] * 60, torch.tensor([mask] * 60)):
        torch.testing.assert_close(other.probabilities(x, masks), one.probabilities(dense, masks))
    if name != "epsilon":
        assert torch.equal(other.select(x), one.select(dense))
    assert other.select(x[0]).shape == (1,)
    assert other.select(x[0], mask=[False, True, False]).tolist() == [1]


@pytest.mark.parametrize("name", OF_ARMS)
def test_policies_on_arms_take_sparse_rows(name: str) -> None:
    one, other = OF_ARMS[name](), OF_ARMS[name]()
    for t in range(30):
        arms = rows(5, seed=t)
        k = int(one.select(arms.toarray()))
        torch.testing.assert_close(other(arms), one(arms.toarray()))
        one.step(arms.toarray(), k, 0.1 * k)
        other.step(arms, k, 0.1 * k)
    close_states(one, other)
    many = torch.from_numpy(np.stack([rows(5, seed=t).toarray() for t in range(6)]))
    torch.testing.assert_close(other.probabilities(many.to_sparse()), one.probabilities(many))
    for policy, form in ((one, many), (other, many.to_sparse())):
        policy.step(form, [0, 1, 2, 3, 4, 0], torch.arange(6.0))
        policy.learn(form, [0, 1, 2, 3, 4, 0], torch.arange(6.0))
    close_states(one, other)


def test_a_users_subclasses_get_all_columns() -> None:
    class Counting(DiagonalRidgeRegression):
        counts: Tensor

        def _initial_state(self) -> dict[str, Tensor | None]:
            return super()._initial_state() | {"counts": torch.zeros(self.dim, dtype=torch.float64)}

        def _observe(self, x: Any, reward: Any, noise_scale: Any) -> None:
            super()._observe(x, reward, noise_scale)
            counts = self.counts
            counts += x != 0.0

    class Stepping(DisjointArms):
        seen = 0

        def step(self, *arguments: Any, **options: Any) -> None:
            self.__dict__["seen"] = self.seen + 1
            super().step(*arguments, **options)

    x, learner = rows(20), Counting(D)
    learner.step(x, np.ones(20))
    assert torch.equal(learner.counts, torch.from_numpy((x.toarray() != 0.0).sum(0)).to(torch.float64))
    arms = Stepping(DiagonalRidgeRegression(D), actions=2)
    arms.learn(x, np.zeros(20, int), np.ones(20))
    assert (arms.seen, arms.rounds.item()) == (1, 20)


def test_a_masked_sparse_log_is_learnt_as_a_dense_one() -> None:
    arms = torch.from_numpy(np.stack([rows(5, seed=t).toarray() for t in range(30)]))
    mask, action, rewards = torch.arange(30) % 3 != 0, torch.arange(30) % 5, torch.linspace(0.0, 1.0, 30)
    makers = [OF_ARMS["diagonal"], OF_ARMS["ridge"], lambda: BanditHead(torch.nn.Linear(D, 3).double(), OFUL(3))]
    for make in makers:
        torch.manual_seed(0)
        one = make()
        torch.manual_seed(0)
        other = make()
        one.learn(arms, action, rewards, mask=mask)
        other.learn(arms.to_sparse(), action, rewards, mask=mask)
        close_states(one, other)
        assert one.rounds.item() == 20


def test_draws_of_a_posterior_have_the_scale_of_the_widths() -> None:
    policy, x = ThompsonSampling(DiagonalRidgeRegression(D)), rows(3)
    for t in range(30):
        policy.step(x.toarray(), t % 3, 0.1 * (t % 5))
    torch.manual_seed(0)
    for form in (x, torch.from_numpy(x.toarray())):
        scores = torch.stack([policy(form) for _ in range(4000)])
        wanted = policy.estimator.posterior_scale() * policy.estimator.width(x.toarray())
        torch.testing.assert_close(scores.std(0), wanted, rtol=0.05, atol=1e-6)


def test_rows_that_share_no_column_are_not_all_given_to_one_arm() -> None:
    """Before the first reward, all arms tie. Equal rows have the same arm, whatever rows are beside them."""
    policy = DisjointArms(DiagonalRidgeRegression(500), actions=4)
    x = sparse.eye_array(500, format="csr")
    chosen = policy.select(x)
    assert (torch.bincount(chosen, minlength=4) > 80).all()
    assert torch.equal(policy.select(x[300:]), chosen[300:])
    assert policy.select(x[[7]]).item() == chosen[7].item()


def test_a_wide_learner_takes_memory_for_its_numbers_alone() -> None:
    dim = 10**6
    policy = DisjointArms(UCB(DiagonalRidgeRegression(dim)), actions=3)
    columns = np.random.default_rng(0).integers(0, dim, 1500)
    x = sparse.csr_matrix((np.ones(1500), columns, np.arange(0, 1501, 5)), shape=(300, dim))  # 2.4 GB if it were dense
    policy.learn(x, np.arange(300) % 3, np.arange(300) % 2)
    k = policy.select(x)
    policy.step(x[0], k[:1], 1.0)
    assert policy.rounds.item() == 301
    assert sum(value.nbytes for value in policy.state().values()) < 50e6
    # Columns that no row has are as before.
    unseen = np.setdiff1d(np.arange(dim), x.indices)
    assert (policy.estimator.variances[:, unseen] == 1 / 3).all()


@pytest.mark.parametrize("name", ["diagonal", "ridge"])
def test_a_refused_sparse_log_changes_nothing(name: str) -> None:
    policy = POLICIES[name]()
    x, action, rewards = rows(40), np.arange(40) % 3, np.linspace(0.0, 1.0, 40)
    policy.step(x, action, rewards)
    before = {key: value.clone() for key, value in policy.state_dict().items()}
    bad = x.copy()
    bad.data[-1] = np.nan
    for call in (policy.step, policy.learn):
        with pytest.raises(ValueError, match=r"^inputs: expected finite values, got nan"):
            call(bad, action, rewards)
        with pytest.raises(ValueError, match=r"^reward: expected finite values, got inf"):
            call(x, action, np.where(np.arange(40) == 39, np.inf, rewards))
    with pytest.raises(ValueError, match=r"^inputs: expected shape"):
        policy.step(x[:, :5], action, rewards)
    with pytest.raises(ValueError, match=r"^inputs: expected shape"):
        policy.select(x[:, :5])
    with pytest.raises(ValueError, match=r"^action: expected "):
        policy.step(x[0], 3, 1.0)
    assert all(torch.equal(value, before[key]) for key, value in policy.state_dict().items())


@pytest.mark.parametrize("count", [1, 30])
def test_an_interrupted_sparse_step_changes_nothing(count: int) -> None:
    x, action, rewards = rows(count, density=0.5), np.arange(count) % 3, np.linspace(0.1, 1.0, count)

    def start() -> Any:
        policy = POLICIES["diagonal"]()
        policy.step(rows(9), np.arange(9) % 3, np.ones(9))
        return policy

    calls = 0
    original = SparseRows.compact

    class Stop(BaseException):
        pass

    policy = start()
    before = {key: value.clone() for key, value in policy.state_dict().items()}

    def stops(self: SparseRows, first: int, size: int) -> tuple[Tensor, Tensor]:
        nonlocal calls
        calls += 1
        if calls == 2 or count == 1:
            raise Stop
        return original(self, first, size)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SparseRows, "compact", stops)
        patch.setattr("torchonline.core.sparse.COMPACT_ENTRIES", 64)
        with pytest.raises(Stop):
            policy.step(x, action, rewards)
    assert all(torch.equal(value, before[key]) for key, value in policy.state_dict().items())


@pytest.mark.parametrize("kind", ["estimator", "arms", "arms in order"])
def test_a_sparse_step_is_whole_after_an_interrupt_anywhere(kind: str) -> None:
    count = 3 if kind == "arms in order" else 1
    x, rewards = rows(count, density=0.5), [0.3, 0.1, 0.2][:count]

    def make() -> Any:
        learner = DiagonalRidgeRegression(D) if kind == "estimator" else POLICIES["diagonal"]()
        learner.step(rows(9), *([] if kind == "estimator" else [np.arange(9) % 3]), np.ones(9))
        return learner

    def step(learner: Any) -> None:
        learner.step(x, *([] if kind == "estimator" else [[1, 2, 1][:count]]), rewards)

    whole, line = make(), 0
    step(whole)
    ends = [snapshot(make()), snapshot(whole)]
    assert any(not torch.equal(ends[0][name], ends[1][name]) for name in ends[0])
    learner = make()
    while interrupted(partial(step, learner), line, at_with=False):
        found = snapshot(learner)
        assert any(all(torch.equal(found[name], end[name]) for name in end) for end in ends), line
        line, learner = line + 1 + line // 20, make()
    assert line > 40


def snapshot(learner: Any) -> dict[str, Tensor]:
    """A copy of the state dict."""
    return {name: value.clone() for name, value in learner.state_dict().items()}


def test_matrices_with_repeated_and_unordered_entries_are_read_as_their_sum() -> None:
    x = sparse.csr_matrix((np.array([1.0, 2.0, 4.0]), np.array([3, 0, 3]), np.array([0, 3])), shape=(1, D))
    dense = torch.zeros(1, D, dtype=torch.float64)
    dense[0, 3], dense[0, 0] = 5.0, 2.0
    tensor = torch.sparse_csr_tensor(
        torch.tensor([0, 3]), torch.tensor([3, 0, 3]), torch.tensor([1.0, 2.0, 4.0]), (1, D)
    )
    for form in (x, tensor):
        assert torch.equal(DiagonalRidgeRegression(D).width(form), DiagonalRidgeRegression(D).width(dense))
    assert x.nnz == 3  # the caller's matrix is as it was


def test_other_sparse_values_are_refused_by_name() -> None:
    learner = DiagonalRidgeRegression(D)
    with pytest.raises(TypeError, match=r"^x: expected a floating-point tensor, got torch.int64"):
        learner.width(torch.eye(D, dtype=torch.int64).to_sparse())
    with pytest.raises(TypeError, match=r"^x: expected real numbers, got a sparse matrix of complex128"):
        learner.width(sparse.csr_matrix(np.eye(D, dtype=complex)))
    with pytest.raises(ValueError, match=r"^x: expected shape \(\.\.\., 12\), got \(2, 3\)"):
        learner.width(sparse.csr_matrix((2, 3)))
    with pytest.raises(TypeError, match=r"^reward: expected a dense tensor"):
        learner.learn(torch.eye(D), torch.ones(D).to_sparse())


# The limit on matrices.


@pytest.mark.parametrize("cls", [RidgeRegression, AdaptiveRidgeRegression, OFUL, LocalGLMRegression])
def test_matrices_beyond_memory_are_refused_with_their_size_and_a_remedy(cls: Any) -> None:
    options = {"link": Logistic()} if cls is LocalGLMRegression else {}
    message = r"^dim: expected at most 46340 for .*, got 100000, .* take 149 GiB; DiagonalRidgeRegression keeps"
    with pytest.raises(ValueError, match=message):
        cls(100_000, **options)


def test_a_diagonal_makes_its_matrix_only_where_it_is_small() -> None:
    with pytest.raises(
        ValueError, match=r"^dim: expected at most 46340 for DiagonalRidgeRegression, .* a d x d matrix"
    ):
        DiagonalRidgeRegression(100_000).width_matrix()
