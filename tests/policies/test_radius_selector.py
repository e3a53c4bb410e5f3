"""The master over radii: a reference from the definitions, its guarantee, choices, files, batches and refusals."""

import copy
import io
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.learners import close, differences, snapshot
from tests.reference.adaptive import AdaptiveReference
from torchonline import (
    UCB,
    AdaptiveRidgeRegression,
    DisjointArms,
    HeavyTailRegression,
    RadiusSelector,
    RidgeRegression,
    RobustRidgeRegression,
    StandardScaler,
)
from torchonline.export import to_program, to_torchscript

pytestmark = pytest.mark.fast

D = torch.float64
DIM, ARMS, SCALES = 3, 4, (1.0, 0.3, 0.05)
RULES = ("ucb", "exp4")
every_rule = pytest.mark.parametrize("rule", RULES)
ESTIMATORS: dict[str, Callable[..., Any]] = {
    "ridge": lambda **o: RidgeRegression(DIM, noise_scale=0.5, **o),
    "heavy tail": lambda **o: HeavyTailRegression(DIM, noise_scale=0.5, **o),
    "adaptive": lambda **o: AdaptiveRidgeRegression(DIM, **o),
    "robust": lambda **o: RobustRidgeRegression(DIM, window=16, **o),
}
every_estimator = pytest.mark.parametrize("build", ESTIMATORS.values(), ids=ESTIMATORS)


def rounds(count: int, *batch: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Contexts, actions, and rewards of which some are outside of [0, 1]."""
    random = np.random.default_rng(seed)
    context = torch.from_numpy(random.standard_normal((count, *batch, DIM)))
    action = torch.from_numpy(random.integers(0, ARMS, (count, *batch)))
    reward = (
        (action % 2) * 0.4 + 0.3 + 0.2 * context[..., 0] + 0.3 * torch.from_numpy(random.standard_normal(action.shape))
    )
    return context, action, reward


def master(rule: str, build: Callable[..., Any] = ESTIMATORS["ridge"], **options: Any) -> RadiusSelector:
    return RadiusSelector(build(), ARMS, scales=SCALES, rule=rule, **options)


def taught(rule: str, count: int = 40, **options: Any) -> RadiusSelector:
    policy = master(rule, **options)
    for one in zip(*rounds(count), strict=True):
        policy.step(*one)
    return policy


class Reference:
    """The definitions in NumPy: all rounds fit anew by ridge regression, and sums over the rounds of each multiple."""

    def __init__(self, rule: str, is_adaptive: bool, reward_range: tuple[float, float] | None) -> None:
        self.rule, self.is_adaptive, self.range = rule, is_adaptive, reward_range
        self.ridge, self.arms = 1.0, [AdaptiveReference(DIM) for _ in range(ARMS)]
        for one in self.arms:
            one.residuals, one.targets = self.arms[0].residuals, self.arms[0].targets
            one.all_gaps = self.arms[0].all_gaps
        self.data: list[tuple[np.ndarray, int, float]] = []
        self.count = 1
        self.losses, self.gains = np.zeros(len(SCALES)), [[] for _ in SCALES]  # type: ignore[var-annotated]

    def estimates(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and error at multiple 1 of each arm."""
        mean, error = np.zeros(ARMS), np.zeros(ARMS)
        if self.is_adaptive:
            return np.array([one.predict(x) for one in self.arms]), np.array(
                [one.radius() * one.width(x) for one in self.arms]
            )
        for k in range(ARMS):
            rows = np.array([a for a, arm, _ in self.data if arm == k]).reshape(-1, DIM)
            V = self.ridge * np.eye(DIM) + rows.T @ rows
            mean[k] = x @ np.linalg.solve(V, rows.T @ np.array([r for _, arm, r in self.data if arm == k]))
            logdet = np.linalg.slogdet(V / self.ridge)[1]
            radius = math.sqrt(0.25 * (logdet + 2.0 * math.log(ARMS / 0.01)) + self.ridge)
            error[k] = radius * math.sqrt(x @ np.linalg.solve(V, x))
        return mean, error

    def named(self, x: np.ndarray) -> np.ndarray:
        mean, error = self.estimates(x)
        return (mean + np.array(SCALES)[:, None] * error).argmax(-1)

    def rate(self) -> float:
        return math.sqrt(math.log(len(SCALES)) / (min(ARMS, len(SCALES)) * self.count))

    def shares(self) -> np.ndarray:
        if self.rule == "exp4":
            weights = np.exp(-self.rate() * (self.losses - self.losses.min()))
            return weights / weights.sum()
        values = [
            np.mean(own) + 0.3 * math.sqrt(math.log(1 + self.count) / len(own)) if own else math.inf
            for own in self.gains
        ]
        return np.eye(len(SCALES))[np.argmax(values)]

    def gain(self, reward: float) -> float:
        if self.range is not None:
            low, high = self.range
            return min(max((reward - low) / (high - low), 0.0), 1.0)
        recent = np.array([*[r for _, _, r in self.data][-255:], reward])
        return float(np.mean(recent < reward) + 0.5 * np.mean(recent == reward))

    def step(self, x: np.ndarray, action: int, reward: float) -> None:
        gain = self.gain(reward)
        agree = self.named(x) == action
        chance = self.shares()[agree].sum() + 0.5 * self.rate()
        for s in np.flatnonzero(agree):
            self.losses[s] += (1.0 - gain) / chance
            self.gains[s].append(gain)
        self.arms[action].step(x, reward)
        self.data.append((x, action, reward))
        self.count += 1


@pytest.mark.parametrize("is_small", [True, False], ids=["on arrays", "on tensors"])
@pytest.mark.parametrize(("name", "reward_range"), [("ridge", (-0.5, 1.5)), ("adaptive", None)])
@every_rule
def test_master_is_the_reference(rule: str, name: str, reward_range: Any, is_small: bool) -> None:
    """300 rounds with arms of no one's choice in a third of them; shares, choices, chances and credits to 1e-9."""
    policy = master(rule, ESTIMATORS[name], reward_range=reward_range)
    policy.is_small = is_small
    reference = Reference(rule, name == "adaptive", reward_range)
    context, action, reward = rounds(300)
    reward = (8.0 * reward).round() / 8.0  # some are equal
    for t, x in enumerate(context):
        named = reference.named(x.numpy())
        shares = torch.from_numpy(reference.shares())
        chances = torch.zeros(ARMS, dtype=D).index_add_(0, torch.from_numpy(named), shares)
        arm = action[t]
        # Before each arm has its own rounds, arms tie.
        if t >= 4 * ARMS:
            close(policy.shares(), shares)
            close(policy.probabilities(x), chances)
            chosen = policy.select(x)
            assert chances[chosen] > 0.0
            assert rule == "exp4" or int(chosen) == named[shares.argmax()]
            arm = arm if t % 3 == 0 else chosen
        else:
            arm = torch.tensor(t % ARMS)
        policy.step(x, arm, reward[t])
        reference.step(x.numpy(), int(arm), float(reward[t]))
    if rule == "exp4":
        close(policy.losses, torch.from_numpy(reference.losses))
    else:
        close(policy.plays, torch.tensor([float(len(own)) for own in reference.gains], dtype=D))
        close(policy.gains, torch.tensor([sum(own) for own in reference.gains], dtype=D))


@every_estimator
@every_rule
def test_estimators_are_those_of_separate_arms(rule: str, build: Any) -> None:
    """The master decides and the estimators learn: what they learn is none of its business."""
    policy, plain = master(rule, build, most_actions=7), DisjointArms(build(), ARMS, most_actions=7)
    for one in zip(*rounds(30), strict=True):
        policy.step(*one)
        plain.step(*one)
    for name, value in snapshot(plain.estimator).items():  # which a compiled core may learn
        close(snapshot(policy.estimator)[name], value, 1e-12)


# Choices.


@every_rule
def test_one_multiple_is_the_policy_itself(rule: str) -> None:
    policy, plain = (
        RadiusSelector(ESTIMATORS["ridge"](), ARMS, scales=(1.0,), rule=rule),
        DisjointArms(UCB(ESTIMATORS["ridge"]()), ARMS),
    )
    for x, action, reward in zip(*rounds(40), strict=True):
        assert torch.equal(policy.select(x), plain.select(x))
        # An arm that no multiple named too.
        policy.step(x, action, reward)
        plain.step(x, action, reward)
    assert policy.shares().tolist() == [1.0]
    assert bool(policy.losses.isfinite().all())


def split(policy: RadiusSelector) -> Tensor:
    """Return a context for which the multiples name different arms."""
    probes = torch.randn(2000, DIM, dtype=D, generator=torch.Generator().manual_seed(3))
    chances = policy.probabilities(probes)
    bounds = policy._at_multiples(probes).argmax(-1)
    is_split = (bounds != bounds[:, :1]).any(-1)
    assert is_split.any()
    return probes[torch.where(is_split, chances.amax(-1), 2.0).argmin()]


@pytest.mark.parametrize("is_masked", [False, True])
@every_rule
def test_choices_have_their_probabilities(rule: str, is_masked: bool) -> None:
    """Draws follow `probabilities`, within five standard errors; the share of a multiple is a mixture's."""
    policy = taught(rule)
    x, mask, count = split(policy), None, 20_000
    if is_masked:
        mask = torch.ones(ARMS, dtype=torch.bool)
        mask[policy.probabilities(x).argmax()] = False
    chances, before = policy.probabilities(x, mask), snapshot(policy)
    many, masks = x.expand(count, DIM), None if mask is None else mask.expand(count, ARMS)
    assert float(chances.sum()) == pytest.approx(1.0)
    assert rule == "exp4" or sorted(chances.tolist())[-2:] == [0.0, 1.0]
    arms, chance = policy.select_with_probability(many, masks)
    close(chance, chances[arms])
    for drawn in (arms, policy.select(many, masks)):
        frequency = torch.bincount(drawn, minlength=ARMS) / count
        assert bool(((frequency - chances).abs() <= 5.0 * (chances * (1.0 - chances) / count).sqrt()).all())
    if mask is not None:
        assert bool((chances[~mask] == 0.0).all())
    assert differences(before, snapshot(policy)) == []


@every_rule
def test_rewards_beyond_the_range_are_cut_for_the_master_alone(rule: str) -> None:
    far, cut = (master(rule, reward_range=(0.0, 1.0)) for _ in range(2))
    x = torch.tensor([1.0, 0.0, 0.0], dtype=D)
    k = torch.tensor(int(far.probabilities(x).argmax()))
    far.step(x, k, torch.tensor(9.0))
    cut.step(x, k, torch.tensor(1.0))
    for name in ("plays", "gains", "losses"):
        assert torch.equal(far.get_buffer(name), cut.get_buffer(name))
    assert not torch.equal(far.estimator.theta_hat, cut.estimator.theta_hat)


@every_rule
def test_units_of_the_reward_do_not_matter_to_the_master(rule: str) -> None:
    """Ridge regression in other units, with the range in those units."""
    one = master(rule, reward_range=(0.0, 1.0))
    other = master(rule, lambda: RidgeRegression(DIM, noise_scale=5.0, theta_bound=10.0), reward_range=(0.0, 10.0))
    for x, k, reward in zip(*rounds(60), strict=True):
        one.step(x, k, reward)
        other.step(x, k, 10.0 * reward)
    for name in ("plays", "gains", "losses"):
        close(one.get_buffer(name), other.get_buffer(name))


class Deaf(RadiusSelector):
    """The master alone: its estimators learn the features and no rewards."""

    def _learn_arm(self, x: Any, action: Any, reward: Any, noise_scale: Any) -> None:
        super()._learn_arm(x, action, 0.0 * reward, noise_scale)


@every_rule
def test_ranks_have_no_unit(rule: str) -> None:
    """Rewards of another unit and origin have the same gains, bit for bit; so has any increasing function of them."""
    maps: list[Callable[[Tensor], Tensor]] = [lambda r: r, lambda r: 1000.0 * r - 300.0, lambda r: r**3 + r]
    policies = [Deaf(ESTIMATORS["ridge"](), ARMS, scales=SCALES, rule=rule) for _ in maps]
    context, action, reward = rounds(300)
    for map_, policy in zip(maps, policies, strict=True):
        policy.step(context, action, map_(reward))
    for policy in policies[1:]:
        for name in ("plays", "gains", "losses"):
            assert torch.equal(policies[0].get_buffer(name), policy.get_buffer(name))
        assert torch.equal(policies[0].select(context), policy.select(context)) or rule == "exp4"


@every_rule
def test_choices_follow_the_unit(rule: str) -> None:
    """Estimators whose unit follows the rewards choose the same arms in any unit: a power of two rounds nothing."""
    one, other = (master(rule, lambda n=n: AdaptiveRidgeRegression(DIM, noise_scale=n)) for n in (0.5, 512.0))
    for t, (x, _, reward) in enumerate(zip(*rounds(300), strict=True)):
        chosen = []
        for policy, unit in ((one, 1.0), (other, 1024.0)):
            torch.manual_seed(t)
            chosen.append(policy.select(x))
            policy.step(x, chosen[-1], unit * reward * (1.0 + chosen[-1]))
        assert chosen[0] == chosen[1]
    assert torch.equal(one.shares(), other.shares())


def test_a_rank_is_among_the_last_256_rewards() -> None:
    """An outlier has the gain of any other largest reward, and is forgotten."""
    policy = RadiusSelector(RidgeRegression(1), 1, scales=(1.0,))
    x, total = torch.ones(1, dtype=D), 0.0
    for t in range(600):
        policy.step(x, 0, 1e9 if t == 100 else float(t))
        # The t-th reward is the largest so far, but for the outlier while that is remembered.
        total += 1.0 - (1.5 if 100 < t < 356 else 0.5) / min(t + 1, 256)
        assert float(policy.gains) == pytest.approx(total, rel=1e-12), t


@every_rule
def test_arms_come_and_go(rule: str) -> None:
    """The master keeps its credits; K of its rate is the present number of arms."""
    policy = taught(rule, most_actions=9)
    before = [policy.get_buffer(name).clone() for name in ("plays", "gains", "losses")]
    policy.add_actions(2)
    policy.remove_actions([0])
    assert all(torch.equal(policy.get_buffer(n), b) for n, b in zip(("plays", "gains", "losses"), before, strict=True))
    x = rounds(1)[0][0]
    assert policy.probabilities(x).shape == (ARMS + 1,)
    policy.step(x, policy.select(x), 1.0)


# The guarantee of rule="exp4".


class TooSlow(RadiusSelector):
    """A rate that is 16 times too small."""

    def _rate(self, count: Tensor) -> Tensor:
        return super()._rate(count) / 16.0


class TooFast(RadiusSelector):
    """A rate that is far too large."""

    def _rate(self, count: Tensor) -> Tensor:
        return super()._rate(count) * 4096.0


TRIALS, HORIZON = 40, 1500


def opposed(cls: type[RadiusSelector]) -> RadiusSelector:
    """Return masters whose two multiples name arms 1 and 0 for ever: arm 0 is known, arm 1 is not, and none ever will be."""
    estimator = RidgeRegression(1, ridge=1e12, delta=0.5, batch_shape=(TRIALS,))
    policy = cls(estimator, 2, scales=(1.0, 0.01), rule="exp4", reward_range=(0.0, 1.0))
    one = torch.ones(TRIALS, 1, dtype=D)
    policy.step(
        one, torch.zeros(TRIALS, dtype=torch.int64), torch.full((TRIALS,), 0.5), noise_scale=torch.full((TRIALS,), 1e-8)
    )
    policy.rounds.zero_()
    policy.losses.zero_()
    return policy


def steady(policy: RadiusSelector) -> Tensor:
    """Arm 1 always loses."""
    return torch.tensor([0.0, 1.0], dtype=D).expand(TRIALS, 2)


def punishing(policy: RadiusSelector) -> Tensor:
    """The arm of the larger share loses: multiple 0 names arm 1."""
    shares = policy.shares().flip(-1)
    return 1.0 * (shares == shares.amax(-1, keepdim=True))


def excess(cls: type[RadiusSelector], adversary: Callable[[RadiusSelector], Tensor]) -> Tensor:
    """Return the played losses above those of the best multiple, of each trial."""
    policy, one = opposed(cls), torch.ones(TRIALS, 1, dtype=D)
    assert policy._at_multiples(one).argmax(-1).tolist() == [[1, 0]] * TRIALS
    paid, losses = torch.zeros(TRIALS, dtype=D), torch.zeros(TRIALS, 2, dtype=D)
    for _ in range(HORIZON):
        loss = adversary(policy)
        arm = policy.select(one)
        paid += loss.gather(-1, arm.unsqueeze(-1)).squeeze(-1)
        losses += loss
        policy.step(one, arm, 1.0 - loss.gather(-1, arm.unsqueeze(-1)).squeeze(-1))
    assert policy._at_multiples(one).argmax(-1).tolist() == [[1, 0]] * TRIALS
    return paid - losses.amin(-1)


# 4 sqrt(T min(K, M) log M), with K = M = 2.
BOUND = 4.0 * math.sqrt(HORIZON * 2.0 * math.log(2.0))


@pytest.mark.slow
@pytest.mark.parametrize(("adversary", "wrong"), [(steady, TooSlow), (punishing, TooFast)], ids=["steady", "punishing"])
def test_excess_loss_is_within_its_bound(adversary: Any, wrong: Any) -> None:
    """The mean over trials, five standard errors included; a wrong rate breaks the bound by as much."""
    for cls, is_right in ((RadiusSelector, True), (wrong, False)):
        found = excess(cls, adversary)
        error = 5.0 * float(found.std()) / math.sqrt(TRIALS)
        mean = float(found.mean())
        assert mean + error < BOUND if is_right else mean - error > BOUND, (mean, error, BOUND)


# Batches and files.


@every_rule
def test_batch_is_single_masters(rule: str) -> None:
    members, build = 3, ESTIMATORS["adaptive"]
    batched, singles = (
        master(rule, lambda: build(batch_shape=(members,))),
        [master(rule, build) for _ in range(members)],
    )
    for x, action, reward in zip(*rounds(40, members), strict=True):
        batched.step(x, action, reward)
        for i, one in enumerate(singles):
            one.step(x[i], action[i], reward[i])
    for name, value in snapshot(batched).items():
        if not name.endswith("constants"):
            close(value, torch.stack([snapshot(one)[name] for one in singles]))
    probes = rounds(5, members)[0].transpose(0, 1)
    close(batched.shares(), torch.stack([one.shares() for one in singles]))
    close(
        batched.probabilities(probes),
        torch.stack([one(p) * 0.0 + one.probabilities(p) for one, p in zip(singles, probes, strict=True)]),
    )
    assert batched.select(probes).shape == (members, 5)


@every_rule
def test_several_rounds_are_rounds_in_order(rule: str) -> None:
    one, many = taught(rule), master(rule)
    many.step(*rounds(40))
    assert differences(snapshot(one), snapshot(many)) == []


@every_rule
def test_script_agrees_with_eager(rule: str) -> None:
    """Over 100 rounds, half of them from a saved file; draws from the same seed are the same."""
    policy = master(rule)
    script: Any = to_torchscript(policy)
    for t, (x, action, reward) in enumerate(zip(*rounds(100), strict=True)):
        if t == 50:
            file = io.BytesIO()
            torch.jit.save(script, file)
            file.seek(0)
            script = torch.jit.load(file)
        if t > 8:
            close(policy.probabilities(x), script.probabilities(x))
            chosen = []
            for each in (policy, script):
                torch.manual_seed(t)
                chosen += [each.select(x), each.select_with_probability(x)[0]]
            assert chosen[:2] == chosen[2:]
        for each in (policy, script):
            each.step(x, action if t > 8 else torch.tensor(t % ARMS), reward)
    for name, value in snapshot(policy).items():
        close(script.state_dict()[name], value)


@pytest.mark.slow
@every_rule
def test_program_agrees_with_eager(rule: str) -> None:
    policy = taught(rule)
    program, policy = to_program(policy).module(), copy.deepcopy(policy)
    mask, learn = torch.ones(1, ARMS, dtype=torch.bool), torch.tensor(True)
    for x, action, reward in zip(*rounds(100, seed=1), strict=True):
        chosen = []
        torch.manual_seed(0)
        policy.step(x, action, reward)
        chosen.append(int(policy.select(x)))
        torch.manual_seed(0)
        chosen.append(int(program(x, action, reward, learn, x.unsqueeze(0), mask)[0]))
        assert chosen[0] == chosen[1]
    state = dict(program.named_buffers())
    found = [name for name in ("plays", "gains", "losses") if any(key.endswith(name) for key in state)]
    assert set(found) >= ({"plays", "gains"} if rule == "ucb" else {"losses"})
    for name in found:
        close(next(value for key, value in state.items() if key.endswith(name)), policy.get_buffer(name))


@pytest.mark.parametrize("is_scaled", [False, True])
@every_rule
def test_checkpoint_continues_bit_for_bit(rule: str, is_scaled: bool) -> None:
    policy, fresh = (
        master(rule, ESTIMATORS["robust"], scaler=StandardScaler(DIM, intercept=False) if is_scaled else None)
        for _ in range(2)
    )
    policy.step(*rounds(30))
    fresh.load_state_dict(snapshot(policy))
    for each in (policy, fresh):
        each.step(*rounds(30, seed=1))
    assert differences(snapshot(policy), snapshot(fresh)) == []


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("rule", {"rule": "ucb"}),
        ("scales", {"scales": (1.0, 0.3, 0.1)}),
        ("reward_range", {"reward_range": (0.0, 2.0)}),
        ("recent", {"reward_range": None}),
    ],
)
def test_checkpoint_of_other_options_is_refused(name: str, other: dict[str, Any]) -> None:
    policy = taught("exp4", reward_range=(0.0, 1.0))
    options = {"scales": SCALES, "rule": "exp4", "reward_range": (0.0, 1.0)} | other
    fresh = RadiusSelector(ESTIMATORS["ridge"](), ARMS, **options)
    before = snapshot(fresh)
    with pytest.raises(RuntimeError, match=name):
        fresh.load_state_dict(snapshot(policy))
    assert differences(before, snapshot(fresh)) == []


# Refusals.


@pytest.mark.parametrize("is_large", [False, True], ids=["snapshot", "no snapshot"])
@every_rule
def test_refused_steps_change_nothing(rule: str, is_large: bool) -> None:
    """Wrong values, and features that the estimator refuses while it learns; a state too large for a snapshot too."""
    dim = 70 if is_large else DIM
    policy = RadiusSelector(RidgeRegression(dim), ARMS, scales=SCALES, rule=rule)
    x = torch.ones(dim, dtype=D)
    policy.step(x, 0, 0.5)
    before = snapshot(policy)
    # The estimator refuses the second in the middle of the step.
    huge, large, row = 1e160 * x, 1e20 * x, torch.stack([x, x])
    for arguments in (
        (x * math.nan, 0, 0.5),
        (x, ARMS, 0.5),
        (x, -1, 0.5),
        (x, 0.5, 0.5),
        (x, 0, math.nan),
        (x, 0, math.inf),
        (huge, 0, 0.5),
        (large, 1, 0.5),  # which multiples named
        (row, [0, 1], [0.5, math.nan]),
        (torch.stack([x, large]), [0, 1], [0.5, 0.5]),
        (x[:-1], 0, 0.5),
    ):
        with pytest.raises((TypeError, ValueError)):
            policy.step(*arguments)
        assert differences(before, snapshot(policy)) == []
    policy.step(x, 1, 0.5)


@pytest.mark.parametrize(
    ("error", "match", "options"),
    [
        (TypeError, "estimator: expected an Estimator, got UCB", {"estimator": UCB(RidgeRegression(DIM))}),
        (TypeError, "estimator", {"estimator": 3}),
        (TypeError, "scales", {"scales": 1.0}),
        (TypeError, "scales", {"scales": ()}),
        (TypeError, "scales", {"scales": ("a",)}),
        (ValueError, "scales", {"scales": (1.0, 0.0)}),
        (ValueError, "scales", {"scales": (1.0, -0.3)}),
        (ValueError, "scales", {"scales": (math.nan,)}),
        (ValueError, "scales", {"scales": (math.inf,)}),
        (ValueError, "rule: .*'exp3'", {"rule": "exp3"}),
        (TypeError, "reward_range", {"reward_range": 1.0}),
        (TypeError, "reward_range", {"reward_range": (0.0, 0.5, 1.0)}),
        (TypeError, "reward_range", {"reward_range": ("a", "b")}),
        (ValueError, "reward_range: expected low < high", {"reward_range": (1.0, 1.0)}),
        (ValueError, "reward_range", {"reward_range": (0.0, math.inf)}),
        (ValueError, "reward_range", {"reward_range": (math.nan, 1.0)}),
        (ValueError, "actions", {"actions": 0}),
        (ValueError, "most_actions", {"most_actions": 2}),
    ],
)
def test_bad_arguments_are_named(error: Any, match: str, options: dict[str, Any]) -> None:
    with pytest.raises(error, match=match):
        RadiusSelector(**({"estimator": RidgeRegression(DIM), "actions": ARMS} | options))


def test_options_are_fixed_after_construction() -> None:
    policy = master("exp4")
    for name, value in (("scales", (1.0,)), ("rule", "ucb"), ("reward_range", (0.0, 2.0))):
        with pytest.raises(AttributeError, match=name):
            setattr(policy, name, value)


@every_rule
def test_float32_and_batches(rule: str) -> None:
    policy = RadiusSelector(RidgeRegression(DIM, dtype=torch.float32, batch_shape=(2,)), ARMS, rule=rule)
    x, action, reward = (value.to(torch.float32) if value.is_floating_point() else value for value in rounds(1, 2))
    policy.step(x[0], action[0], reward[0])
    assert policy.shares().dtype == policy.plays.dtype == policy.probabilities(x[0]).dtype == torch.float32
    assert policy.shares().shape == (2, 5)
