"""Arms with a model each: separate estimators fed by hand, shared delta and windows, arms that come and go."""

import copy
import math
import pickle
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.interruption import interrupted
from tests.learners import by_name, close, differences, round_of, same, snapshot
from tests.reference.adaptive import RobustReference
from torchonline import (
    OFUL,
    UCB,
    AdaptiveRidgeRegression,
    DiscountedHeavyTailRegression,
    DiscountedRidgeRegression,
    DisjointArms,
    EpsilonGreedy,
    GLMRegression,
    Greedy,
    HeavyTailRegression,
    HuberRegression,
    LocalGLMRegression,
    NormalizedLMS,
    RidgeRegression,
    RobustRidgeRegression,
    ScaledPolicy,
    StandardScaler,
    SystemIdentification,
    ThompsonSampling,
)
from torchonline.core.ops import largest
from torchonline.export import to_torchscript

pytestmark = pytest.mark.fast

D = torch.float64
ARMS, DIM = 3, 2
ESTIMATORS: dict[str, Callable[..., Any]] = {
    "ridge": lambda **o: RidgeRegression(DIM, **o),
    "ridge, restarted": lambda **o: RidgeRegression(DIM, restart_every=4, **o),
    "heavy tail": lambda **o: HeavyTailRegression(DIM, **o),
    "local": lambda **o: LocalGLMRegression(DIM, feature_bound=10.0, **o),
    "links": lambda **o: GLMRegression(DIM, feature_bound=10.0, **o),
    "huber": lambda **o: HuberRegression(DIM, horizon=100, **o),
    "huber, any horizon": lambda **o: HuberRegression(DIM, horizon=None, **o),
    "discounted": lambda **o: DiscountedHeavyTailRegression(DIM, discount=0.9, **o),
    "discounted ridge": lambda **o: DiscountedRidgeRegression(DIM, discount=0.9, **o),
    "LMS": lambda **o: NormalizedLMS(DIM, **o),
}


def rounds(count: int = 40, possible: Any = torch.clone, seed: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Contexts, actions, rewards and noise scales."""
    random = np.random.default_rng(seed)
    values = (
        random.standard_normal((count, DIM)),
        random.integers(0, ARMS, count),
        random.standard_t(2.1, count),
        random.uniform(0.5, 2.0, count),
    )
    context, action, reward, scale = map(torch.from_numpy, values)
    return context, action, possible(reward), scale


def on_tensors(arms: DisjointArms, is_small: bool) -> DisjointArms:
    arms.is_small = is_small
    return arms


@pytest.mark.parametrize("is_small", [True, False], ids=["on arrays", "on tensors"])
@pytest.mark.parametrize("build", ESTIMATORS.values(), ids=ESTIMATORS)
def test_arms_are_separate_estimators(build: Any, is_small: bool) -> None:
    """Bit for bit on arrays; each with its share of delta."""
    arms = on_tensors(DisjointArms(build(), ARMS), is_small)
    # NormalizedLMS has no delta.
    delta = getattr(build(), "delta", None)
    singles = [build(**({} if delta is None else {"delta": delta / ARMS})) for _ in range(ARMS)]
    probes = torch.randn(9, DIM, dtype=D)
    for x, k, reward, scale in zip(*rounds(possible=build().possible_reward), strict=True):
        close(arms(probes), torch.stack([UCB(one)(probes.unsqueeze(-2)).squeeze(-1) for one in singles], -1), 1e-11)
        arms.step(x, k, reward, noise_scale=scale)
        singles[int(k)].step(x, reward, noise_scale=scale)
        for i, one in enumerate(singles):
            for name, value in snapshot(one).items():
                mine = arms.state_dict()[f"policy.estimator.{name}"]
                if name != "constants":
                    assert torch.equal(mine[i], value) if is_small else close(mine[i], value, 1e-12) is None, name
    close(arms.estimator.radius(), torch.stack([one.radius() for one in singles]), 1e-12)
    for bound, bounds in zip(
        (torch.stack([one.interval(probes)[i] for one in singles]) for i in (0, 1)),
        arms.estimator.interval(probes.expand(ARMS, 9, DIM)),
        strict=True,
    ):
        close(bound, bounds, 1e-11)


@pytest.mark.parametrize("is_small", [True, False], ids=["on arrays", "on tensors"])
def test_robust_arms_share_a_window(is_small: bool) -> None:
    """References of one arm each, whose residuals are in one list."""
    arms = on_tensors(DisjointArms(RobustRidgeRegression(DIM, window=7, warmup=3), ARMS), is_small)
    references = [RobustReference(DIM, window=7, warmup=3) for _ in range(ARMS)]
    for one in references:
        one.residuals, one.targets = references[0].residuals, references[0].targets
        one.all_gaps = references[0].all_gaps
    probes = torch.randn(9, DIM, dtype=D)
    for x, k, reward, scale in zip(*rounds(60), strict=True):
        arms.step(x, k, reward, noise_scale=scale)
        references[int(k)].step(x.numpy(), float(reward), float(scale))
        scores = torch.from_numpy(np.stack([one.scores(probes.numpy()) for one in references], -1))
        close(arms(probes), scores)
    residuals = arms.estimator.residuals
    assert torch.equal(residuals, residuals[:1].expand_as(residuals))
    assert sorted(residuals[0].tolist()) == pytest.approx(sorted(references[0].residuals[-7:]), rel=1e-9)
    assert arms.estimator.seen.tolist() == [60] * ARMS
    assert int(arms.estimator.rounds.sum()) == 60


def test_adaptive_arms_share_the_sum_of_squares() -> None:
    arms, (context, action, reward, _) = DisjointArms(AdaptiveRidgeRegression(DIM), ARMS), rounds()
    squares = 0.25
    for x, k, value in zip(context, action, reward, strict=True):
        squares += float(value - arms.predict(x)[k]) ** 2
        arms.step(x, k, value)
    close(arms.estimator.radius(), torch.full((ARMS,), 0.8 * math.sqrt(squares / 41), dtype=D))


@pytest.mark.parametrize("build", [AdaptiveRidgeRegression, RobustRidgeRegression])
def test_one_row_serves_all_arms_on_arrays(build: Any) -> None:
    """Also after somebody has taught the estimator itself, whose learners then differ in what the arms share."""
    arms, (context, action, reward, _) = DisjointArms(build(DIM), ARMS), rounds()
    for x, k, value in zip(context, action, reward, strict=True):
        arms.step(x, k, value)
    arms.select(context[0])
    view = arms.view_for(context)
    assert view is not None
    assert view.learner.takes_one_row
    close(torch.from_numpy(view.learner._scored(context[0].numpy())), arms(context[0]))
    twin = on_tensors(copy.deepcopy(arms), False)
    for each in (arms, twin):
        each.estimator.step(context[:ARMS], reward[:ARMS])
    for name, value in snapshot(arms).items():
        close(value, snapshot(twin)[name])
    assert not torch.equal(arms.estimator.spread[:1].expand(ARMS), arms.estimator.spread)
    for x in context:
        assert int(arms.select(x)) == int(arms(x).argmax()) == int(twin.select(x))


def test_batches_share_within_a_learner_only() -> None:
    arms = DisjointArms(RobustRidgeRegression(DIM, window=4, warmup=1, batch_shape=(2,)), ARMS)
    arms.step(torch.ones(2, DIM), torch.tensor([0, 2]), torch.tensor([1.0, 7.0]))
    arms.step(torch.zeros(2, DIM), torch.tensor([1, 1]), torch.tensor([2.0, 9.0]))
    # The first residual of a learner counts as 0. An arm without rounds predicts the mean reward.
    assert arms.estimator.residuals[..., 0].tolist() == [[0.0] * ARMS, [0.0] * ARMS]
    assert arms.estimator.residuals[..., 1].tolist() == [[1.0] * ARMS, [2.0] * ARMS]
    assert arms.estimator.rounds.tolist() == [[1, 1, 0], [0, 1, 1]]


@pytest.mark.parametrize("build", [ESTIMATORS["ridge"], ESTIMATORS["heavy tail"], ESTIMATORS["local"]])
def test_delta_is_shared(build: Any) -> None:
    """The radius is that of one estimator with delta / most_actions, however many arms there are now."""
    for count, most in ((3, None), (2, 10)):
        arms = DisjointArms(build(delta=0.2), count, most_actions=most)
        one = build(delta=0.2 / (most or count))
        close(arms.estimator.radius(), one.radius().expand(count), 1e-15)
        arms.add_actions(4)
        close(arms.estimator.radius(), one.radius().expand(count + 4), 1e-15)
        assert arms.most_actions == (most or count)
    assert build(delta=0.2).delta == 0.2


def test_a_pattern_is_neither_used_nor_changed() -> None:
    """What it has learnt does not count, and its own options do."""
    pattern = ThompsonSampling(RidgeRegression(DIM, ridge=3.0, noise_scale=0.1, validate=False), draws=7)
    pattern.step([[1.0, 2.0]], 0, 5.0)
    before = snapshot(pattern)
    arms = DisjointArms(pattern, ARMS)
    arms.step([1.0, 1.0], 1, 3.0)
    assert differences(before, snapshot(pattern)) == []
    assert (arms.policy.draws, arms.estimator.ridge, arms.estimator.noise_scale, arms.validate) == (7, 3.0, 0.1, False)
    assert not arms.estimator.validate
    assert arms.estimator.theta_hat[0].tolist() == [0.0, 0.0]
    assert isinstance(DisjointArms(OFUL(2, noise_scale=0.5), 2).policy, UCB)
    moved = DisjointArms(RidgeRegression(DIM).to(torch.float32), 2)
    assert moved([1.0, 1.0]).dtype == torch.float32


class Shifted(RidgeRegression):
    """Its predictor is written for rows of each learner."""

    def predictor(self, x: Tensor) -> Tensor:
        if self.batch_dims == 0:
            return x @ self.theta_hat + 1.0
        return (self.grouped(x) @ self.theta_hat[..., None]).reshape(x.shape[:-1]) + 1.0


class Lowered(RidgeRegression):
    """What it raises depends on the other rows of a learner."""

    def raised(self, predictor: Tensor) -> Tensor:
        return predictor - largest(predictor)[..., None]


class Doubled(AdaptiveRidgeRegression):
    """Its theta is not what the library's own row of a decision is multiplied by."""

    def affine(self) -> tuple[Tensor, Tensor | None]:
        theta, offset = super().affine()
        return 2.0 * theta, offset


@pytest.mark.parametrize("build", [Shifted, Lowered, Doubled])
def test_a_subclass_gets_a_row_for_each_arm(build: Callable[..., Any]) -> None:
    arms = DisjointArms(build(DIM), ARMS)
    for k, x in enumerate(torch.randn(30, DIM)):
        scores = arms(x)
        assert scores[int(arms.select(x))] == scores.max()
        arms.step(x, k % ARMS, float(k % 2))


@pytest.mark.slow
def test_an_interrupt_at_the_first_round_leaves_arms_that_learn() -> None:
    """At every line, those that make the views of the arms included."""
    line, x = 0, [1.0] * DIM
    while interrupted(partial((arms := DisjointArms(RidgeRegression(DIM), ARMS)).step, x, 1, 0.5), line):
        before = int(arms.estimator.rounds[1])
        arms.step(x, 1, 0.5)
        assert arms.estimator.rounds.tolist() == [0, before + 1, 0]
        line += 1
    assert line > 60


def test_a_subclass_may_pass_any_keywords_on() -> None:
    class Warm(RidgeRegression):
        def __init__(self, dim: int, *, temperature: float = 1.0, **anything: Any) -> None:
            super().__init__(dim, **anything)
            self.temperature = temperature

    arms = DisjointArms(Warm(DIM, temperature=3.0, ridge=7.0), ARMS)
    assert (arms.estimator.ridge, arms.estimator.temperature, arms.estimator.batch_shape) == (7.0, 3.0, (ARMS,))


def test_what_cannot_be_built_anew_is_refused_by_name() -> None:
    class Fixed(RidgeRegression):
        def __init__(self) -> None:
            super().__init__(DIM)

    with pytest.raises(TypeError, match=r"Fixed: expected a class whose constructor takes "):
        DisjointArms(Fixed(), 3)
    with pytest.raises(
        TypeError, match=r"^policy: expected a rule of choice, such as UCB, or an Estimator, got SystemIdentification"
    ):
        DisjointArms(SystemIdentification(3, 2), 3)
    with pytest.raises(
        TypeError, match=r"^policy: expected a rule of choice, such as UCB, or an Estimator, got DisjointArms"
    ):
        ScaledPolicy(DisjointArms(RidgeRegression(3), 2), StandardScaler(2))


# Arms that come and go.


def arm(arms: DisjointArms, k: int) -> dict[str, Tensor]:
    """What one arm knows."""
    state = arms.estimator.state()
    dims = arms.batch_dims
    return {name: value.select(dims, k).clone() for name, value in state.items()}


def play(arms: DisjointArms, count: int, seed: int = 0, batch_shape: tuple[int, ...] = ()) -> None:
    """Learn from rounds of all arms there are."""
    random = np.random.default_rng(seed)
    for t in range(count):
        context = torch.from_numpy(random.standard_normal((*batch_shape, arms.dim)))
        arms.select(context)
        action = np.array(arms.action_ids)[random.integers(0, arms.actions, batch_shape)]
        reward = random.standard_t(3.0, batch_shape)
        arms.step(context, torch.from_numpy(np.asarray(action)), torch.from_numpy(np.asarray(reward)))
        assert int(arms.rounds.max()) > t


MAKERS: dict[str, Callable[..., DisjointArms]] = {
    "ridge": lambda **o: DisjointArms(RidgeRegression(DIM, **o), ARMS, most_actions=9),
    "heavy tail, scaled": lambda **o: DisjointArms(
        HeavyTailRegression(DIM + 1, **o), ARMS, scaler=StandardScaler(DIM, freeze_after=5, **o)
    ),
    "robust": lambda **o: DisjointArms(RobustRidgeRegression(DIM, window=6, warmup=2, **o), ARMS),
}


@pytest.mark.parametrize("batch_shape", [(), (2,), (2, 3)])
@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_arms_come_and_go(make: Any, batch_shape: tuple[int, ...]) -> None:
    """The others stay bit for bit; new ones know nothing but what all arms share; a load and a copy follow."""
    arms = make(batch_shape=batch_shape)
    play(arms, 12, batch_shape=batch_shape)
    before = [arm(arms, k) for k in range(ARMS)]
    rounds_before, fresh = arms.rounds.clone(), make(batch_shape=batch_shape)
    arms.add_actions(2)
    assert arms.actions == 5
    assert torch.equal(arms.rounds, rounds_before)
    for k in range(ARMS):
        assert differences(before[k], arm(arms, k)) == []
    for k in (3, 4):
        for name, value in arm(arms, k).items():
            wanted = before[0][name] if name in arms.pooled else arm(fresh, 0)[name]
            assert same(value, wanted), name
    arms.remove_actions([0, 3])
    assert arms.actions == 3
    assert differences(before[1], arm(arms, 0)) == []
    assert differences(before[2], arm(arms, 1)) == []
    twin = make(batch_shape=batch_shape)
    twin.load_state_dict(arms.state_dict())
    copies = [twin, copy.deepcopy(arms), pickle.loads(pickle.dumps(arms))]
    for each in (arms, *copies):
        play(each, 8, seed=1, batch_shape=batch_shape)
        each.add_actions()
        play(each, 8, seed=2, batch_shape=batch_shape)
    for each in copies:
        assert differences(snapshot(arms), snapshot(each)) == []
    arms.reset()
    assert not arms.estimator.rounds.any()
    assert arms.actions == 4


@pytest.mark.parametrize("is_small", [True, False], ids=["on arrays", "on tensors"])
@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_arms_come_after_a_move(make: Any, is_small: bool) -> None:
    """To another type than that of the constructor, either way; then a file of it."""
    for old, new in ((torch.float64, torch.float32), (torch.float32, torch.float64)):
        arms = on_tensors(make(dtype=old), is_small)
        play(arms, 7)
        arms.to(new)
        arms.add_actions(1)
        arms.remove_actions([1])
        play(arms, 12, seed=1)
        assert arms.estimator.theta_hat.dtype == new
        assert arms([0.5] * DIM).dtype == new
        twin = make(dtype=old).to(new)
        twin.load_state_dict(arms.state_dict())
        assert differences(snapshot(arms), snapshot(twin)) == []


def test_a_file_may_be_made_after_arms_came() -> None:
    arms = MAKERS["heavy tail, scaled"]()
    play(arms, 9)
    arms.add_actions(2)
    file: Any = to_torchscript(arms)
    twin = copy.deepcopy(arms)
    for context, _, reward, _ in zip(*rounds(20), strict=True):
        index = arms.select(context)
        assert torch.equal(file.select(context), index)
        for each in (arms, file):
            each.step(context, index, reward)
    assert int(twin.rounds) == 9
    twin.load_state_dict(file.state_dict())
    for name, value in snapshot(arms).items():
        close(twin.state_dict()[name], value)


def test_wrong_arms_are_named_and_change_nothing() -> None:
    arms = MAKERS["robust"]()
    play(arms, 9)
    before = snapshot(arms)
    bad_removals: list[Any] = [
        3,
        None,
        "01",
        [3],
        [-1],
        [0, 0],
        [0, 1, 2],
        [0.5],
        [True, False],
        torch.tensor([0.0]),
    ]
    for bad in bad_removals:
        with pytest.raises((TypeError, ValueError), match=r"^actions: expected "):
            arms.remove_actions(bad)
    for bad in (0, -1, 1.5, True, "2", None):
        with pytest.raises((TypeError, ValueError), match=r"^actions: expected "):
            arms.add_actions(bad)  # type: ignore[arg-type]
    assert arms.actions == ARMS
    assert differences(before, snapshot(arms)) == []
    for good in ({2}, (1,), np.array([0]), torch.tensor([0]), range(1), iter([1])):
        twin = copy.deepcopy(arms)
        twin.remove_actions(good)
        assert twin.actions == ARMS - 1
    with pytest.raises(AttributeError, match=r"^actions: expected "):
        arms.actions = 5  # type: ignore[misc]


@pytest.mark.parametrize("change", [lambda arms: arms.add_actions(2), lambda arms: arms.remove_actions([0])])
def test_an_interrupted_change_of_arms_happens_or_does_not(change: Any) -> None:
    arms, line = MAKERS["robust"](), 0
    play(arms, 9)
    start = snapshot(arms)
    while True:
        twin = copy.deepcopy(arms)
        if not interrupted(lambda twin=twin: change(twin), line):
            break
        assert len(twin.action_ids) == twin.actions
        if twin.actions == ARMS:
            assert differences(start, snapshot(twin)) == []
        done = copy.deepcopy(arms)
        if twin.actions != ARMS:
            change(done)
        for each in (twin, done):
            play(each, 2, seed=3)
        assert differences(snapshot(done), snapshot(twin)) == [], line
        line += 5
    assert line > 50


# Scalers, masks, policies.


@pytest.mark.parametrize("is_at_once", [True, False])
@pytest.mark.parametrize("name", ["arms", "scaled", "arms, huber"])
def test_all_starts_anew_when_the_scaler_freezes(name: str, is_at_once: bool) -> None:
    """From then on: exactly a policy without a scaler that sees the frozen features. Also if the scaler began before."""
    for seen_before in (0, 2):
        scaler = StandardScaler(DIM, freeze_after=5)
        context, action, reward, scale = rounds(20)
        context = 100.0 * context + 50.0
        if seen_before:
            scaler.step(context[:seen_before])
        makers: dict[str, Any] = {
            "arms": lambda: HeavyTailRegression(DIM + 1),
            "arms, huber": lambda: HuberRegression(DIM + 1, horizon=None),
            "scaled": lambda: RidgeRegression(DIM + 1),
        }
        estimator = makers[name]()
        policy: Any = (
            ScaledPolicy(estimator, scaler) if name == "scaled" else DisjointArms(estimator, ARMS, scaler=scaler)
        )
        later = slice(5 - seen_before, None)
        parts = [slice(0, 20)] if is_at_once else [slice(t, t + 1) for t in range(20)]
        for part in parts:
            given = [context[part], action[part], reward[part], scale[part]]
            if name == "scaled":
                given[:2] = given[0].unsqueeze(-2), torch.zeros_like(given[1])
            by_name(policy.step, *(given if is_at_once else [value[0] for value in given]))
        z = scaler(context[later])
        if name == "scaled":
            plain: Any = UCB(makers[name]())
            by_name(plain.step, *round_of(plain, z, reward[later]), noise_scale=scale[later])
        else:
            plain = DisjointArms(makers[name](), ARMS)
            plain.step(z, action[later], reward[later], noise_scale=scale[later])
        for key, value in plain.estimator.state_dict().items():
            close(policy.estimator.state_dict()[key], value, 1e-12)
        assert int(policy.rounds) == 20
        assert int(scaler.rounds) == 20 + seen_before
        probes = context[later]
        rows = probes.unsqueeze(-2) if name == "scaled" else probes
        close(policy(rows), plain(z.unsqueeze(-2) if name == "scaled" else z), 1e-9)


def test_each_member_of_a_batch_freezes_in_its_own_time() -> None:
    batched = DisjointArms(
        RidgeRegression(DIM + 1, batch_shape=(2,)), ARMS, scaler=StandardScaler(DIM, freeze_after=3, batch_shape=(2,))
    )
    batched.scaler.rounds[0] = 1  # type: ignore[union-attr]
    for t in range(1, 4):
        batched.step(torch.randn(2, DIM), torch.tensor([0, 1]), torch.ones(2))
        assert batched.estimator.rounds.sum(-1).tolist() == [[1, 1], [0, 2], [1, 0]][t - 1]


def test_a_mask_hides_arms() -> None:
    for policy in (UCB, Greedy, ThompsonSampling, EpsilonGreedy):
        arms = DisjointArms(policy(RidgeRegression(DIM)), 5)
        play(arms, 20)
        contexts = torch.randn(40, DIM, dtype=D)
        mask = torch.rand(40, 5) < 0.4
        mask[:, 2] = True
        for available in (mask, mask.numpy(), mask.tolist()):
            assert bool(mask.gather(-1, arms.select(contexts, available).unsqueeze(-1)).all())
            assert not arms.probabilities(contexts, available)[~mask].any()
            index, chance = arms.select_with_probability(contexts, available)
            assert bool(mask.gather(-1, index.unsqueeze(-1)).all())
            assert bool((chance > 0.0).all())


def test_thompson_arms_draw_for_themselves() -> None:
    """Two arms that nothing tells apart are chosen half of the time, and their scores are uncorrelated."""
    arms = DisjointArms(ThompsonSampling(RidgeRegression(DIM), draws=4000), 2)
    scores = arms(torch.tensor([1.0, 0.5], dtype=D).expand(4000, DIM))
    assert abs(float(torch.corrcoef(scores.T)[0, 1])) < 0.1
    assert abs(float(arms.probabilities([1.0, 0.5])[0]) - 0.5) < 0.05


def test_actions_may_be_numbers_lists_and_arrays() -> None:
    wanted = DisjointArms(RidgeRegression(DIM), ARMS)
    wanted.step(torch.eye(2), torch.tensor([2, 0]), torch.tensor([1.0, 3.0]))
    for way in (list, tuple, np.array, torch.tensor):
        arms = DisjointArms(RidgeRegression(DIM), ARMS)
        arms.step([[1.0, 0.0], [0.0, 1.0]], way([2, 0]), [1, 3])
        assert differences(snapshot(wanted), snapshot(arms)) == []
    one = DisjointArms(RidgeRegression(DIM), ARMS)
    for x, k, reward in (([1.0, 0.0], 2, 1), ([0.0, 1.0], np.int64(0), 3.0)):
        one.step(x, k, reward)
    assert differences(snapshot(wanted), snapshot(one)) == []
    one.step(torch.zeros(0, DIM), torch.zeros(0, dtype=torch.int64), torch.zeros(0))
    assert differences(snapshot(wanted), snapshot(one)) == []


def test_one_arm_and_many() -> None:
    """A single arm is an estimator; a thousand are chosen among and taught like three."""
    arms, one = DisjointArms(RidgeRegression(DIM), 1), RidgeRegression(DIM)
    context, _, reward, _ = rounds()
    arms.step(context, torch.zeros(40, dtype=torch.int64), reward)
    one.step(context, reward)
    close(arms.estimator.theta_hat[0], one.theta_hat, 1e-15)
    assert arms.select(context[0]) == 0
    many = DisjointArms(Greedy(RidgeRegression(20)), 1000)
    many.step(torch.ones(20), 999, 5.0)
    assert many.select(torch.ones(20)) == 999
    assert int(many.estimator.rounds.sum()) == 1


def test_the_arms_scale_with_the_rewards() -> None:
    """A reward in another unit changes no choice of robust arms."""
    one, other = (DisjointArms(RobustRidgeRegression(DIM), ARMS) for _ in range(2))
    one.step([1.0, 0.0], 0, 2.0)
    other.step([1.0, 0.0], 0, 2000.0)
    for context, _, reward, _ in zip(*rounds(80), strict=True):
        index = one.select(context)
        assert torch.equal(other.select(context), index)
        one.step(context, index, reward)
        other.step(context, index, 1000.0 * reward)
    close(1000.0 * one(torch.eye(2)) / 1000.0, other(torch.eye(2)) / 1000.0)


def test_extreme_rewards_raise_no_warning() -> None:
    """Warnings are errors in these tests: overflow in an arm is as silent as in a batch, or refused."""
    for estimator in (RidgeRegression(DIM), RobustRidgeRegression(DIM), HeavyTailRegression(DIM)):
        arms = DisjointArms(estimator, ARMS)
        for reward in (1e100, -1e100, 0.0, 1e-300):
            arms.step([1e7, 1e-7], 1, reward)
            arms.step([[1e-100, 1.0], [1.0, 1.0]], [0, 2], [reward, 0.0])
            arms.select([1e100, 1e100])
            arms.probabilities([1e-200, 1e90])
            arms(torch.full((DIM,), 1e60, dtype=D))
        assert all(bool(torch.isfinite(value).all()) for value in snapshot(arms).values())


# Logs.


def log_of_arms(build: Any, arms: int, count: int, played: str, seed: int = 0) -> list[Tensor]:
    """Contexts, actions, rewards and noise scales, of arms that are played alike, one above all, or one alone."""
    context, _, reward, scale = rounds(count, build().possible_reward, seed)
    random = np.random.default_rng(seed)
    alike = random.integers(0, arms - 1, count)  # the last arm has no round
    chosen = {"alike": alike, "above all": np.where(random.uniform(size=count) < 0.7, 1, alike), "alone": 0 * alike + 1}
    return [context, torch.from_numpy(chosen[played]), reward, scale]


def singles_of(build: Any, arms: int) -> list[Any]:
    """An estimator for each arm, with its share of delta."""
    delta = getattr(build(), "delta", None)
    return [build(**({} if delta is None else {"delta": delta / arms})) for _ in range(arms)]


def assert_arms_are(arms: DisjointArms, singles: list[Any], start: dict[str, Tensor]) -> None:
    """Each arm is in the state of its single; and one without rounds, in that of the start, bit for bit."""
    state = snapshot(arms)
    for k, single in enumerate(singles):
        for name, value in snapshot(single).items():
            if name != "constants":
                mine = state[f"policy.estimator.{name}"][k]
                close(mine, value)
                if not int(single.rounds) and not single.restart_every:
                    assert torch.equal(mine, start[f"policy.estimator.{name}"][k])


@pytest.mark.slow
@pytest.mark.parametrize("is_counted", [True, False], ids=["counted", "beside each other"])
@pytest.mark.parametrize("played", ["alike", "above all", "alone"])
@pytest.mark.parametrize("build", ESTIMATORS.values(), ids=ESTIMATORS)
def test_arms_learn_logs_as_if_alone(
    build: Any, played: str, is_counted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In blocks of 30 rounds of all arms together; also where the host may not ask how many rounds each arm has."""
    if not is_counted:
        monkeypatch.setattr(DisjointArms, "_can_count", lambda self: False)
    for count in (3, 12):
        arms, singles = DisjointArms(build(), count), singles_of(build, count)
        start = snapshot(arms)
        for seed in (0, 1):
            log = log_of_arms(build, count, 70, played, seed)
            by_name(arms.learn, *log, block_size=30)
            for first in range(0, 70, 30):
                context, action, reward, scale = (values[first : first + 30] for values in log)
                for k, single in enumerate(singles):
                    own = action == k
                    if single.restart_every is None:
                        single.learn(context[own], reward[own], noise_scale=scale[own], block_size=30)
                    else:
                        single.step(context[own], reward[own], noise_scale=scale[own])
        assert_arms_are(arms, singles, start)
        assert int(arms.rounds) == 140


@pytest.mark.slow
@pytest.mark.parametrize("played", ["alike", "above all", "alone"])
@pytest.mark.parametrize("name", ["ridge", "ridge, restarted", "links", "discounted", "LMS"])
def test_sizes_of_blocks_do_not_matter_to_arms_that_are_the_same_in_any(name: str, played: str) -> None:
    """Ridge regression in blocks of any size, and what has no blocks: as after steps."""
    build = ESTIMATORS[name]
    for block_size in (None, 1, 7, 1000):
        arms, twin = DisjointArms(build(), 12), DisjointArms(build(), 12)
        log = log_of_arms(build, 12, 150, played)
        by_name(arms.learn, *log, block_size=block_size)
        by_name(twin.step, *log)
        for key, value in snapshot(twin).items():
            close(snapshot(arms)[key], value)


def test_an_arm_with_many_rounds_does_not_wait_for_the_others() -> None:
    """Its blocks follow from its own rounds: a log of one arm among others is that of the arm alone."""
    for K in (5, 40):
        arms, single = DisjointArms(HeavyTailRegression(DIM), K), HeavyTailRegression(DIM, delta=0.01 / K)
        context, _, reward, _ = rounds(300)
        arms.learn(context, [2] * 300, reward)
        single.learn(context, reward)
        for name, value in arm(arms, 2).items():
            close(value, snapshot(single)[name])


@pytest.mark.parametrize("batch_shape", [(2,), (2, 3)])
def test_each_learner_of_a_batch_has_arms_with_rounds_of_its_own(batch_shape: tuple[int, ...]) -> None:
    batched = DisjointArms(HeavyTailRegression(DIM, batch_shape=batch_shape), ARMS)
    generator = torch.Generator().manual_seed(0)
    context, reward = (torch.randn(*batch_shape, 25, *shape, generator=generator, dtype=D) for shape in ((DIM,), ()))
    action = torch.randint(0, ARMS, (*batch_shape, 25), generator=generator)
    action[0] = 1
    batched.learn(context, action, reward, block_size=10)
    for member in np.ndindex(*batch_shape):
        single = DisjointArms(HeavyTailRegression(DIM), ARMS)
        single.learn(context[member], action[member], reward[member], block_size=10)
        for name, value in snapshot(single).items():
            whole = snapshot(batched)[name]
            close(whole[member] if whole.dim() > value.dim() else whole, value)


@pytest.mark.parametrize("name", ["ridge", "robust"])
def test_arms_that_come_learn_logs_and_those_that_go_are_refused(name: str) -> None:
    arms = MAKERS[name]()
    play(arms, 6)
    arms.add_actions(2)
    twin = copy.deepcopy(arms)
    context, _, reward, _ = rounds(20)
    for ids in ([0, 1, 2, 3, 4], [1, 2, 4]):
        action = torch.tensor(ids)[torch.arange(20) % len(ids)]
        arms.learn(context, action, reward)
        twin.step(context, action, reward)
        for key, value in snapshot(twin).items():
            close(snapshot(arms)[key], value)
        if len(ids) == 5:
            for each in (arms, twin):
                each.remove_actions([0, 3])
    before = snapshot(arms)
    with pytest.raises(
        ValueError, match=r"^action: expected the id of an arm, one of 1, 2, 4, got 0, which was removed"
    ):
        arms.learn(context, torch.arange(20) % 5, reward, block_size=2)
    assert differences(before, snapshot(arms)) == []


def test_blocks_begin_when_the_scaler_has_frozen() -> None:
    """Up to there, rounds are learnt in order; from there on, arms learn blocks of features that stay as they are."""
    arms = DisjointArms(HeavyTailRegression(DIM + 1), ARMS, scaler=StandardScaler(DIM, freeze_after=10))
    bare, stepped = DisjointArms(HeavyTailRegression(DIM + 1), ARMS), copy.deepcopy(arms)
    context, action, reward, scale = rounds(40)
    arms.learn(context[:9], action[:9], reward[:9], noise_scale=scale[:9])
    stepped.step(context[:9], action[:9], reward[:9], noise_scale=scale[:9])
    assert differences(snapshot(stepped), snapshot(arms)) == []
    arms.learn(context[9:], action[9:], reward[9:], noise_scale=scale[9:], block_size=6)
    bare.learn(arms.scaler(context[10:]), action[10:], reward[10:], noise_scale=scale[10:], block_size=6)
    for k in range(ARMS):
        for name, value in arm(bare, k).items():
            close(value, arm(arms, k)[name])
    assert int(arms.rounds) == int(arms.scaler.rounds) == 40
    assert int(arms.estimator.rounds.sum()) == 30


def test_a_log_of_arms_may_be_one_round_or_none() -> None:
    arms, twin = DisjointArms(RidgeRegression(DIM), 1), DisjointArms(RidgeRegression(DIM), 1)
    arms.learn([1.0, 2.0], 0, 0.5)
    twin.step([1.0, 2.0], 0, 0.5)
    for name, value in snapshot(twin).items():
        close(snapshot(arms)[name], value)
    before = snapshot(arms)
    arms.learn(torch.zeros(0, DIM), torch.zeros(0, dtype=torch.int64), torch.zeros(0))
    assert differences(before, snapshot(arms)) == []
    arms.learn(np.ones((3, DIM), dtype=np.int64), [0, 0, 0], [True, False, True])
    assert int(arms.estimator.rounds) == 4


def test_what_an_arm_cannot_resolve_is_refused_and_the_others_forget_it_too() -> None:
    """The arm that refuses comes last: those before have learnt, and are put back."""
    arms = DisjointArms(RidgeRegression(DIM, ridge=1e-14), ARMS)
    before = snapshot(arms)
    context = torch.cat([torch.eye(DIM, dtype=D).repeat(6, 1), torch.ones(30, DIM, dtype=D)])
    action = torch.tensor([0, 0, 1, 1] * 3 + [2] * 30)
    with pytest.raises(ValueError, match=r"^inputs: expected rounds that torch.float64 can resolve together"):
        arms.learn(context, action, torch.zeros(42))
    assert differences(before, snapshot(arms)) == []
    arms.learn(context[:12], action[:12], torch.zeros(12))
    assert arms.estimator.rounds.tolist() == [6, 6, 0]


@pytest.mark.parametrize("batch", [(), (2,)])
def test_arms_are_added_in_the_room_of_earlier_ones(batch: tuple[int, ...]) -> None:
    """Forty arms, one at a time, with rounds between: as with all arms from the start, and copies have no spare room."""
    x = torch.randn(40, *batch, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    arms, all_arms = (DisjointArms(RobustRidgeRegression(2, batch_shape=batch), actions=n) for n in (3, 43))
    moved = 0
    for t in range(40):
        k = torch.full(batch, t % arms.actions)
        for policy in (arms, all_arms):
            policy.step(x[t], k, x[t, ..., 0])
        before = arms.estimator.V.data_ptr()
        assert arms.add_actions() == [3 + t]
        moved += arms.estimator.V.data_ptr() != before
        with torch.no_grad():
            torch.testing.assert_close(arms(x[t]), all_arms(x[t])[..., : 4 + t])
        if t == 20:
            arms = copy.deepcopy(arms) if batch else pickle.loads(pickle.dumps(arms))
            assert arms.estimator.V.untyped_storage().nbytes() == arms.estimator.V.nbytes
    assert moved == 40 if batch else moved < 25


def test_an_added_arm_leaves_the_room_of_a_removed_one() -> None:
    """The room of arms is dropped with them: a copy of the batch before is not written."""
    arms = DisjointArms(RidgeRegression(1), actions=3)
    arms.add_actions(2)
    before = arms.estimator
    arms.remove_actions([1])
    arms.add_actions(2)
    arms.step([1.0], 6, 1.0)
    assert arms.estimator.rounds.tolist() == [0, 0, 0, 0, 0, 1]
    assert before.rounds.tolist() == [0] * 5


def test_learners_of_a_batch_overflow_alone() -> None:
    """Without checks, numbers that overflow are infinite, as on tensors, and leave the other learners alone."""
    policy = DisjointArms(AdaptiveRidgeRegression(DIM, batch_shape=(2,), validate=False), 2)
    alone = DisjointArms(AdaptiveRidgeRegression(DIM, validate=False), 2)
    x = torch.ones(2, DIM, dtype=torch.float64)
    for _ in range(3):
        policy.step(x, [0, 1], [1.0, 0.5])
        alone.step(x[1], 1, 0.5)
        x[0] *= 1e200
    for name, value in alone.policy.estimator.state().items():
        torch.testing.assert_close(policy.policy.estimator.state()[name][1], value, rtol=1e-12, atol=1e-12)


class Summing(RidgeRegression):
    """An estimator whose constructor reads a buffer, and adds a constant for each learner of a batch."""

    def __init__(self, dim: int, **options: Any) -> None:
        super().__init__(dim, **options)
        self.register_buffer("numbers", torch.arange(self.theta_hat[..., 0].numel()))
        self.largest = int(self.numbers.max())

    def state(self) -> dict[str, Tensor]:
        return {name: buffer for name, buffer in super().state().items() if name != "numbers"}


def test_a_constructor_of_a_user_may_read_buffers() -> None:
    policy = DisjointArms(Summing(DIM), 2)
    policy.step(torch.ones(DIM), 1, 1.0)
    policy.add_actions(1)
    policy.remove_actions([0])
    policy.add_actions(2)
    estimator: Any = policy.policy.estimator
    assert (estimator.largest, estimator.numbers.tolist()) == (3, [0, 1, 2, 3])
    assert estimator.rounds.tolist() == [1, 0, 0, 0]
