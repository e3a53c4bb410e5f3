"""Learners that start anew, and the heuristic that forgets: against references, in batches, exported, refused and resumed."""

import copy
import io
import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor

import torchonline
from tests.learners import (
    DIM,
    Case,
    close,
    differences,
    play,
    public_classes,
    required,
    round_of,
    same,
    snapshot,
    stream,
)
from tests.reference.discounted import DiscountedReference
from tests.reference.follow import data, follow
from tests.reference.heavy_tail import HeavyTailReference
from tests.reference.huber import HuberReference
from tests.reference.restarts import RestartedReference
from tests.reference.ridge import RidgeReference
from torchonline import (
    OFUL,
    UCB,
    AnytimeHeavyTailUCB,
    DiscountedHeavyTailRegression,
    HeavyTailRegression,
    HuberRegression,
    HvtUCB,
    RidgeRegression,
)
from torchonline.environments import DriftingBandit, GaussianNoise, StudentT
from torchonline.export import to_program, to_torchscript
from torchonline.export.programs import only_where
from torchonline.regression.estimator import Estimator

D = torch.float64
NOISE = (0.1, 1.0, 3.0)
PAIRS: dict[str, tuple[Any, Any]] = {
    "OFUL": (OFUL, RidgeReference),
    "AnytimeHeavyTailUCB": (AnytimeHeavyTailUCB, HeavyTailReference),
    "HvtUCB": (HvtUCB, HuberReference),
}
RESTARTED = {
    "OFUL": lambda **o: OFUL(DIM, restart_every=5, **o),
    "AnytimeHeavyTailUCB": lambda **o: AnytimeHeavyTailUCB(DIM, restart_every=5, **o),
    "HvtUCB": lambda **o: HvtUCB(DIM, horizon=None, restart_every=5, **o),
    "HvtUCB, doubling": lambda **o: HvtUCB(DIM, horizon=None, radius_scale=1e-3, theta_bound=0.3, **o),
    "discounted": lambda **o: UCB(DiscountedHeavyTailRegression(DIM, discount=0.9, **o)),
}


@pytest.mark.parametrize("dim", [1, 3])
@pytest.mark.parametrize("every", [1, 7, 40])
@pytest.mark.parametrize("name", PAIRS)
def test_restarts_agree_with_reference(name: str, every: int, dim: int) -> None:
    """Through 300 restarts, 42 and 7."""
    policy, reference = PAIRS[name]
    # Where the horizon is not known, the length of an epoch is one.
    mine, theirs = ({"horizon": None}, {"horizon": every}) if name == "HvtUCB" else ({}, {})
    rounds = data(dim, seed=dim, noise=NOISE, outlier=1e6)
    restarted = RestartedReference(lambda k: (reference(dim, **theirs), every))
    follow(policy(dim, restart_every=every, **mine), restarted, rounds)
    assert restarted.starts == 1 + 300 // every


@pytest.mark.parametrize("options", [{}, {"moment_order": 1.5}, {"delta": 0.1, "minimum_scale": 0.2, "ridge": 0.1}])
def test_doubling_agrees_with_reference(options: dict[str, Any]) -> None:
    """Epochs of 64, 128, ... rounds, each with the constants of its length and its share of delta."""

    def epoch(k: int) -> tuple[HuberReference, int]:
        T = 64 * 2**k
        delta = options.get("delta", 1.0 / 256.0) * 32.0 / T
        return HuberReference(3, horizon=T, **options | {"delta": delta, "radius_scale": 1e-3}), T

    rounds = [round_ for seed in range(4) for round_ in data(3, seed=seed, noise=NOISE, outlier=1e6)]
    reference = RestartedReference(epoch)
    policy = HvtUCB(3, horizon=None, radius_scale=1e-3, **options)
    follow(policy, reference, rounds)
    assert reference.starts == 5
    assert policy.estimator.epoch_length == reference.length == 1024


def test_shares_of_delta_add_up_to_it() -> None:
    """And by default each epoch has the paper's 1 / (8 T)."""
    shares = [32.0 / (64 * 2**k) for k in range(60)]
    assert sum(shares) == pytest.approx(1.0, rel=1e-15)
    default, paper = HuberRegression(2, horizon=None), HuberRegression(2, horizon=64)
    for learner in (default, paper):
        learner.step(torch.ones(2), torch.tensor(1.0))
    close(default.radius(), paper.radius())


@pytest.mark.parametrize("dim", [1, 3, 8])
@pytest.mark.parametrize(
    "options",
    [
        {"discount": 0.9},
        {"discount": 0.995, "moment_order": 1.5},
        {"discount": 0.95, "noise": "symmetric"},
        {"discount": 0.9, "theta_bound": 0.3, "ridge": 0.1, "delta": 0.9, "radius_scale": 0.1},
    ],
)
def test_discounting_agrees_with_reference(dim: int, options: dict[str, Any]) -> None:
    outlier = 1e2 if options.get("noise") == "symmetric" else 1e6
    rounds = data(dim, seed=dim, noise=NOISE, outlier=outlier)
    follow(UCB(DiscountedHeavyTailRegression(dim, **options)), DiscountedReference(dim, **options), rounds)


@pytest.mark.parametrize(("dim", "discount", "rounds"), [(1, 0.5, 10_000), (2, 0.5, 10_000), (8, 0.99, 40_000)])
def test_what_is_discounted_stays_whole(dim: int, discount: float, rounds: int) -> None:
    """Most rounds are blind in a direction: the ridge does not fade, and the matrices belong together."""
    estimator = DiscountedHeavyTailRegression(dim, discount=discount)
    generator = torch.Generator().manual_seed(0)
    identity, ridge = torch.eye(dim, dtype=D), estimator.ridge
    for chunk in range(rounds // 2000):
        x = torch.randn(2000, dim, generator=generator, dtype=D) * torch.logspace(-3, 1, dim, dtype=D)
        if chunk % 5:
            x[:, -1] = 0.0
        estimator.step(x, StudentT(2.1).sample((2000,), generator))
        V, A, inverse = estimator.V, estimator.A, torch.linalg.inv(estimator.V)
        assert torch.linalg.eigvalsh(V)[0] > ridge * discount ** (dim - 1) * (1.0 - 1e-9)
        assert torch.linalg.eigvalsh(A)[0] > ridge * discount ** (2 * dim - 2) * (1.0 - 1e-9)
        assert (V @ estimator.V_inv - identity).abs().max() < 1e-10
        assert (A @ estimator.A_inv - identity).abs().max() < 1e-10
        close(estimator.P / inverse.max(), inverse @ A @ inverse / inverse.max())
        close(estimator.logdet, dim * torch.log(A.trace() / (dim * ridge)), 1e-12)
        assert estimator.logdet >= torch.logdet(A / ridge) - 1e-9
        assert estimator.logdet > -1e-9


def test_a_memory_of_less_than_dim_rounds_is_refused() -> None:
    for dim in range(2, 50):
        DiscountedHeavyTailRegression(dim, discount=1.0 - 1.0 / dim)
    for dim, discount in ((1, 0.5), (3, 2.0 / 3.0), (4, 0.75)):
        DiscountedHeavyTailRegression(dim, discount=discount)
        with pytest.raises(ValueError, match=r"discount: expected at least 0.*, a memory of \d rounds, got 0"):
            DiscountedHeavyTailRegression(dim, discount=discount - 1e-3)


@pytest.mark.parametrize("cls", public_classes(Estimator, packages=(torchonline,)))
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_forgetting_is_a_reset_for_those_that_are_due(cls: Any, dtype: torch.dtype) -> None:
    """No buffer that a learner has is left out, and nobody else's is touched."""
    for options in ({}, {"horizon": None}) if "horizon" in required(cls) else ({},):
        case = Case(cls, tuple(options.items()))
        learner, fresh = (case.build(batch_shape=(3,), dtype=dtype) for _ in range(2))
        play(learner, [round_.to(dtype) for round_ in case.stream(9, batch_shape=(3,))])
        before = snapshot(learner)
        due = torch.tensor([False, True, False])
        twin = copy.deepcopy(learner)
        learner._forget_(due)
        twin.numpy_view().learner._forget_(due.numpy())
        for name, value in snapshot(twin).items():
            close(snapshot(learner)[name], value, 1e-13 if dtype == D else 1e-6)
        # What the next epoch inherits is its length and what depends on that.
        inherited = {"epoch_length", "tau0", "slope", "scale_floor"}
        for name, value in learner.state().items():
            assert same(value[::2], before[name][::2]), name
            assert name in inherited or same(value[1], fresh.state()[name][1]), name


@pytest.mark.parametrize("name", RESTARTED)
def test_members_start_anew_in_their_own_time(name: str) -> None:
    """Of a batch in which each learns in some rounds only, on NumPy views and on tensors: so many single learners."""
    for validate in (True, False):
        batched = RESTARTED[name](batch_shape=(3,), validate=validate)
        singles = [RESTARTED[name]() for _ in range(3)]
        batched.estimator.is_small = validate  # large batches run on tensors
        generator = torch.Generator().manual_seed(0)
        for round_ in stream(200 if "doubling" in name else 40, batch_shape=(3,)):
            learn = torch.rand(3, generator=generator) < torch.tensor([0.4, 0.7, 1.0])
            x = round_.arms[..., 0, :]
            with torch.no_grad(), only_where(learn, batched.estimator):
                batched.step(*round_of(batched, x, round_.reward), noise_scale=round_.noise_scale)
            for i in torch.nonzero(learn).flatten().tolist():
                singles[i].step(x[i, None], 0, round_.reward[i], noise_scale=round_.noise_scale[i])
        assert len(set(batched.estimator.rounds.tolist())) > 1
        for i, single in enumerate(singles):
            for key, value in single.estimator.state().items():
                close(batched.estimator.state()[key][i], value)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("batch", [(), (2,)])
@pytest.mark.parametrize("name", RESTARTED)
def test_script_starts_anew_too(name: str, batch: tuple[int, ...], dtype: torch.dtype) -> None:
    """One round a call and several; in single precision there are compensations to forget as well."""
    eager = RESTARTED[name](batch_shape=batch, dtype=dtype)
    scripted = to_torchscript(RESTARTED[name](batch_shape=batch, dtype=dtype))
    rounds = [round_.to(dtype) for round_ in stream(150, batch_shape=batch)]
    for learner in (eager, scripted):
        for round_ in rounds:
            learner.step(
                round_.arms, torch.zeros(batch, dtype=torch.int64), round_.reward, noise_scale=round_.noise_scale
            )
        x, reward = torch.stack([r.arms[..., 0, :] for r in rounds], -2), torch.stack([r.reward for r in rounds], -1)
        learner.step(*round_of(learner, x, reward))
    for key, value in snapshot(eager).items():
        close(value, snapshot(scripted)[key], 1e-9 if dtype == D else 1e-3)


@pytest.mark.parametrize(
    ("name", "batch"), [*((name, (2,)) for name in RESTARTED), ("HvtUCB", ()), ("AnytimeHeavyTailUCB", ())]
)
def test_programs_start_anew_too(name: str, batch: tuple[int, ...]) -> None:
    """In a program, where a restart is no branch; a member that does not learn does not start anew."""
    policy, program = RESTARTED[name](batch_shape=batch), to_program(RESTARTED[name](batch_shape=batch)).module()
    generator = torch.Generator().manual_seed(0)
    mask = torch.ones(*batch, 1, 2, dtype=torch.bool)
    for t, round_ in enumerate(stream(150, batch_shape=batch)):
        x, arms = round_.arms[..., 0, :], round_.arms[..., None, :2, :]
        learn = torch.rand(batch, generator=generator) < 0.8
        reward = 0.1 * round_.reward
        theirs, learnt = program(*round_of(policy, x, reward), learn, arms, mask)
        assert torch.equal(learnt, learn)
        with torch.no_grad(), only_where(learn, policy.estimator):
            policy.step(*round_of(policy, x, reward))
        assert torch.equal(policy.select(arms, mask), theirs), t
    state = dict(program.named_buffers())
    for key, value in policy.estimator.state().items():
        close(value, state[f"policy.estimator.{key}"])


@pytest.mark.parametrize("batch", [(), (2,)])
@pytest.mark.parametrize("name", RESTARTED)
def test_a_row_refused_after_a_restart_leaves_every_bit(
    name: str, batch: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All or nothing, in a step of which the tenth row is the first of a new epoch and the twelfth is refused."""
    observe = type(RESTARTED[name]().estimator)._observe

    def refuses(self: Any, x: Any, reward: Any, noise_scale: Any) -> None:
        if torch.as_tensor(reward).max() == 7.0:
            raise ValueError("reward: expected another")
        observe(self, x, reward, noise_scale)

    for dtype in (torch.float64, torch.float32):
        for is_small in (True, False):
            learner = RESTARTED[name](batch_shape=batch, dtype=dtype)
            learner.estimator.is_small = is_small
            learner.step(*round_of(learner, torch.randn(*batch, 55, DIM), torch.randn(*batch, 55)))
            before = snapshot(learner)
            x, reward = torch.randn(*batch, 12, DIM, dtype=dtype), torch.zeros(*batch, 12)
            reward[..., -1] = 7.0
            with monkeypatch.context() as patch:
                patch.setattr(type(learner.estimator), "_observe", refuses)
                learner.estimator.__dict__["_view"] = None  # a view has the methods of the time when it was made
                with pytest.raises(ValueError, match="reward: expected another"):
                    learner.step(*round_of(learner, x, reward))
            assert differences(before, snapshot(learner)) == []
            learner.step(*round_of(learner, x[..., :-1, :], reward[..., :-1]))
            assert differences(before, snapshot(learner)) != []
            if name != "discounted":
                assert learner.estimator.rounds.max() == (2 if "doubling" in name else 1)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("name", RESTARTED)
def test_a_checkpoint_in_mid_epoch_continues(name: str, dtype: torch.dtype) -> None:
    """Bit for bit; with doubling, in the second epoch."""
    learner, fresh = RESTARTED[name](dtype=dtype), RESTARTED[name](dtype=dtype)
    rounds = [round_.to(dtype) for round_ in stream(300)]
    play(learner, rounds[:83])
    file = io.BytesIO()
    torch.save(learner.state_dict(), file)
    file.seek(0)
    fresh.load_state_dict(torch.load(file, weights_only=True))
    assert all(map(same, play(learner, rounds[83:]), play(fresh, rounds[83:])))
    assert differences(snapshot(learner), snapshot(fresh)) == []


def test_a_checkpoint_of_other_epochs_is_refused() -> None:
    learners = [OFUL(2), OFUL(2, restart_every=5), OFUL(2, restart_every=6)]
    for one, other in itertools.permutations(learners, 2):
        with pytest.raises(RuntimeError, match="restart_every: the state was learnt with"):
            one.load_state_dict(other.state_dict())
    with pytest.raises(RuntimeError, match="epoch_length: expected no such entry"):
        HvtUCB(2, horizon=64).load_state_dict(HvtUCB(2, horizon=None).state_dict())
    known = HuberRegression(2, horizon=None, restart_every=9)
    assert known.horizon == 9
    with pytest.raises(RuntimeError, match=r"discount: the state was learnt with 0.9, this learner has 0.8"):
        DiscountedHeavyTailRegression(2, discount=0.8).load_state_dict(
            DiscountedHeavyTailRegression(2, discount=0.9).state_dict()
        )


RUNS, ROUNDS, DELTA = 500, 400, 0.05


def epochs_missed(policy: UCB, every: int, environment: DriftingBandit) -> Tensor:
    """For each epoch, the share of 500 runs whose confidence set failed to hold in one of its rounds."""
    estimator: Any = policy.estimator
    missed = torch.zeros(ROUNDS // every, RUNS, dtype=torch.bool)
    for t in range(ROUNDS):
        index = policy.select(environment.arms())
        theta = environment.theta
        x, reward, _ = environment.pull(index)
        policy.step(*round_of(policy, x, reward))
        # The set before the round, and the one after it unless that belongs to the next epoch.
        difference = (estimator.theta_hat - theta).unsqueeze(-1)
        moved = estimator.V @ difference
        matrix = estimator.V_inv if isinstance(estimator, RidgeRegression) else estimator.A_inv
        square = (moved.mT @ matrix @ moved).squeeze((-2, -1))
        if (t + 1) % every:
            missed[t // every] |= ~(square.sqrt() <= estimator.radius())
    return missed.double().mean(-1)


LIMIT = DELTA + 3.0 * math.sqrt(DELTA * (1.0 - DELTA) / RUNS)


@pytest.mark.parametrize("angle", [0.0, 2.0])
def test_the_set_holds_in_every_epoch_without_a_move(angle: float) -> None:
    """Whether nothing ever moves, or only between two epochs: misses of each epoch are no more than delta."""
    for cls, noise in ((AnytimeHeavyTailUCB, StudentT(2.1)), (OFUL, GaussianNoise(scale=2.0))):
        policy = cls(
            2, noise_scale=noise.moment_norm(2.0), ridge=2.0, delta=DELTA, restart_every=100, batch_shape=(RUNS,)
        )
        environment = DriftingBandit(2, 10, noise=noise, angle=angle, every=100, batch_shape=(RUNS,), seed=5)
        misses = epochs_missed(policy, 100, environment)
        assert (misses <= LIMIT).all(), misses


def test_the_set_is_seen_to_fail_where_the_parameter_moves() -> None:
    """In the middle of an epoch, of which nothing is promised: the count above would notice."""
    noise = GaussianNoise(scale=0.3)
    policy = OFUL(2, noise_scale=0.3, ridge=2.0, delta=DELTA, restart_every=100, batch_shape=(RUNS,))
    environment = DriftingBandit(2, 10, noise=noise, angle=math.pi, every=50, batch_shape=(RUNS,), seed=5)
    assert (epochs_missed(policy, 100, environment) > 0.9).all()


def regret_after(policy: UCB, environment: DriftingBandit, rounds: int, start: int) -> float:
    """Mean regret of the rounds from ``start`` on."""
    total = 0.0
    for t in range(rounds):
        x, reward, regret = environment.pull(policy.select(environment.arms()))
        policy.step(*round_of(policy, x, reward))
        total += float(regret.mean()) if t >= start else 0.0
    return total


def test_forgetting_pays_after_a_flip() -> None:
    """The parameter flips after 1000 of 2000 rounds: who forgets has at most half the regret from there on."""
    noise, batch = StudentT(2.1, scale=0.1), (20,)
    common = {"noise_scale": noise.moment_norm(2.0), "batch_shape": batch}
    regret = {}
    for name, policy in {
        "AnytimeHeavyTailUCB": AnytimeHeavyTailUCB(2, **common),
        "AnytimeHeavyTailUCB, restarted": AnytimeHeavyTailUCB(2, restart_every=400, **common),
        "discounted": UCB(DiscountedHeavyTailRegression(2, discount=0.995, **common)),
        "OFUL": OFUL(2, **common),
        "OFUL, restarted": OFUL(2, restart_every=400, **common),
    }.items():
        environment = DriftingBandit(2, 10, noise=noise, angle=math.pi, every=1000, batch_shape=batch, seed=2)
        regret[name] = regret_after(policy, environment, 2000, 1000)
    assert regret["AnytimeHeavyTailUCB, restarted"] < 0.5 * regret["AnytimeHeavyTailUCB"], regret
    assert regret["discounted"] < 0.5 * regret["AnytimeHeavyTailUCB"], regret
    assert regret["OFUL, restarted"] < 0.5 * regret["OFUL"], regret


def test_never_is_the_same_as_after_the_last_round() -> None:
    """A restart that does not come changes nothing, bit for bit."""
    for cls in (RidgeRegression, HeavyTailRegression):
        plain, patient = cls(3), cls(3, restart_every=10_000)
        for learner in (plain, patient):
            play(learner, stream(30))
        assert differences(snapshot(plain), snapshot(patient)) == ["constants"]


def test_the_bias_of_drift_is_what_the_proof_says() -> None:
    """Without noise, |x'(theta_hat - theta_t + V^-1 ridge theta_1)| <= sqrt(H L^2 + ridge) path width(x), and no less will do."""
    L, ridge, largest = 1.0, 0.5, 0.0
    generator = torch.Generator().manual_seed(0)
    for seed in range(20):
        estimator = RidgeRegression(3, ridge=ridge)
        arms = torch.nn.functional.normalize(torch.randn(40, 3, generator=generator, dtype=D), dim=-1)
        first = theta = arms[0]
        path = 0.0
        for t in range(60):
            x = arms[0] if seed % 2 else arms[t % 40]
            estimator.step(x, x @ theta)
            moved = -theta if t % 7 == 0 else theta + 0.1 * torch.randn(3, generator=generator, dtype=D)
            moved = moved / max(1.0, float(moved.norm()))
            path, theta = path + float((moved - theta).norm()), moved
            error = (arms @ (estimator.theta_hat - theta + ridge * estimator.V_inv @ first)).abs()
            bound = math.sqrt((t + 1) * L**2 + ridge) * path * estimator.width(arms)
            largest = max(largest, float((error / bound).max()))
    assert 0.9 < largest <= 1.0 + 1e-9
