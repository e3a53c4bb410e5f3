"""What a file hears of NaN, infinity and numbers out of range leaves no trace, and is not said to be learnt."""

import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.docs.script_modules import script_modules
from tests.learners import round_of
from torchonline import (
    DPTOFW,
    OFUL,
    UCB,
    AnytimeHeavyTailUCB,
    DisjointArms,
    FixedArms,
    FreeGrad,
    LocalGLB,
    MsMwC,
    RidgeRegression,
    ScaledPolicy,
    SharedRadiusSelector,
    StandardScaler,
    bandit,
)
from torchonline.core.checks import LARGEST, passes
from torchonline.core.ops import assign_, exp
from torchonline.export import to_program, to_torchscript
from torchonline.models import BanditHead

DIM = 2
NAN = math.nan


def double(*values: Any) -> Tensor:
    return torch.tensor(values[0] if len(values) == 1 else values, dtype=torch.float64)


# A round: the chosen arm is the second.
X, K, ONE, YES = double((0.0, 0.0), (1.0, 0.5)), torch.tensor(1), double(1.0), torch.tensor(True)
ARMS, MASK = torch.eye(2, dtype=torch.float64).unsqueeze(0), torch.ones(1, 2, dtype=torch.bool)


@pytest.fixture(scope="module")
def poison() -> Iterator[Any]:
    with script_modules("files", "poison") as modules:
        yield modules.poison


def head(**options: Any) -> BanditHead:
    return BanditHead(nn.Linear(5, 3).double(), OFUL(3), **options)


def disjoint() -> DisjointArms:
    return DisjointArms(RidgeRegression(4), actions=4, scaler=StandardScaler(3))


# One for each way through the code; examples/files/poison.py plays all learners.
LEARNERS: dict[str, tuple[Any, Tensor | None]] = {
    "policy with a link": (lambda: LocalGLB(3, feature_bound=10.0), None),
    "arms": (lambda: disjoint(), None),
    "shared": (lambda: SharedRadiusSelector(RidgeRegression(3)), None),
    "fixed": (lambda: FixedArms(OFUL(3), torch.eye(3)), None),
    "convex": (lambda: FreeGrad(3), None),
    "head": (lambda: head(), torch.ones(4, 5).double()),
    "head on a scaler": (
        lambda: head(actions=4, scaler=StandardScaler(5, intercept=False)),
        torch.ones(5).double(),
    ),
}


@pytest.mark.parametrize("name", LEARNERS)
def test_500_poisoned_rounds_leave_no_trace(name: str, poison: Any) -> None:
    make, example = LEARNERS[name]
    assert poison.results(make(), example, 500) == ("0 wrong, state equal", "0 wrong, state equal")


def test_values_pass_where_the_eager_check_lets_them() -> None:
    for dtype, largest in LARGEST.items():
        values = torch.tensor([0.0, -largest, largest, 1.001 * largest, -math.inf, NAN], dtype=dtype)
        assert passes(values).tolist() == [True] * 3 + [False] * 3
        assert torch.jit.script(passes)(values).tolist() == passes(values).tolist()


def test_a_round_that_outweighs_all_is_refused_where_the_eager_step_refuses_it() -> None:
    """Its features can be squared, but the inverse would be lost in rounding."""
    program, script, eager = to_program(OFUL(DIM)).module(), to_torchscript(OFUL(DIM)), OFUL(DIM)
    for scale, learnt in ((1e30, False), (1e9, False), (1e3, True)):
        assert bool(program(scale * X, K, ONE, YES, ARMS, MASK)[1]) == bool(script.step(scale * X, K, ONE)) == learnt
        if learnt:
            eager.step(scale * X, K, ONE)
        else:
            with pytest.raises(ValueError, match="inputs: expected a round that adds less"):
                eager.step(scale * X, K, ONE)
    assert torch.equal(script.estimator.rounds, eager.estimator.rounds)
    # AnytimeHeavyTailUCB weighs long features down.
    eager, script = AnytimeHeavyTailUCB(DIM), to_torchscript(AnytimeHeavyTailUCB(DIM))
    eager.step(1e30 * X, K, ONE)
    assert bool(script.step(1e30 * X, K, ONE))


class Exploding(RidgeRegression):
    """Its state overflows where the reward is large."""

    def _observe(self, x: Tensor, reward: Tensor, noise_scale: Tensor) -> None:
        assign_(self.logdet, exp(reward))
        theta_hat = self.theta_hat
        theta_hat += x


def test_a_state_that_would_overflow_is_put_back_for_each_learner_alone() -> None:
    policy = UCB(Exploding(DIM, batch_shape=(3,)))
    program, script = to_program(policy).module(), to_torchscript(policy)
    past, reward = (X.expand(3, 2, DIM), K.expand(3)), double(1.0, 1000.0, 2.0)
    arms, mask = ARMS.expand(3, 1, 2, DIM).clone(), torch.ones(3, 1, 2, dtype=torch.bool)
    choices, learnt = program(*past, reward, torch.ones(3, dtype=torch.bool), arms, mask)
    assert learnt.tolist() == script.step(*past, reward).tolist() == [True, False, True]
    assert choices.shape == (3, 1)
    for state in (dict(program.named_buffers())["policy.estimator.theta_hat"], script.estimator.theta_hat):
        assert state[:, 0].tolist() == [1.0, 0.0, 1.0]


def test_a_batch_is_protected_learner_by_learner() -> None:
    script, twin = to_torchscript(OFUL(DIM, batch_shape=(2,))), OFUL(DIM, batch_shape=(2,))
    x, reward = torch.randn(2, 6, DIM).double(), torch.randn(2, 6).double()
    reward[0, 2], x[1, 4, 0] = NAN, math.inf
    learnt = script.learn(*round_of(script, x, reward))
    assert learnt.tolist() == [[t != 2 for t in range(6)], [t != 4 for t in range(6)]]
    for t in range(6):
        rows = round_of(twin, x[:, t].nan_to_num(posinf=0.0), reward[:, t].nan_to_num())
        twin.learn(*rows, mask=learnt[:, t])
    torch.testing.assert_close(script.estimator.theta_hat, twin.estimator.theta_hat, rtol=1e-12, atol=1e-12)
    assert script.estimator.rounds.tolist() == [5, 5]
    # Round by round, too.
    again = to_torchscript(OFUL(DIM, batch_shape=(2,)))
    assert torch.equal(again.step(*round_of(again, x, reward)), learnt)
    torch.testing.assert_close(again.estimator.theta_hat, twin.estimator.theta_hat, rtol=1e-9, atol=1e-9)


def test_a_poisoned_round_of_a_block_is_none() -> None:
    exported = to_program(OFUL(DIM), blocks=True, noise_scale=True)
    program, twin = exported.module(), OFUL(DIM)
    x, reward, scale = torch.randn(9, DIM).double(), torch.randn(9).double(), torch.rand(9).double() + 0.5
    learn = torch.ones(9, dtype=torch.bool)
    learn[1] = False
    good = learn.clone()
    x[3, 0], reward[5], scale[7] = NAN, 1e200, -1.0
    good[[3, 5, 7]] = False
    past, action = x.unsqueeze(-2), torch.zeros(9, dtype=torch.int64)
    choices, learnt = program(past, action, reward, learn, ARMS, MASK, scale)
    assert torch.equal(learnt, good)
    twin.learn(past[good], action[good], reward[good], noise_scale=scale[good], block_size=9)
    assert int(choices) == int(twin.select(ARMS[0]))
    state = dict(program.named_buffers())
    for name, buffer in twin.estimator.state().items():
        torch.testing.assert_close(state[f"policy.estimator.{name}"], buffer, rtol=1e-10, atol=1e-12)
    # A block that outweighs all is refused as a whole.
    before = {name: buffer.clone() for name, buffer in state.items()}
    past, reward = 1e40 * torch.ones(4, 1, DIM).double(), torch.ones(4).double()
    _, learnt = program(past, action[:4], reward, learn[2:6], ARMS, MASK, scale[:4])
    assert not bool(learnt.any())
    assert all(torch.equal(before[name], buffer) for name, buffer in program.named_buffers())


def learnt_state(script: Any, *log: Tensor) -> tuple[Tensor, list[Tensor]]:
    """What a file says to have learnt of a log, and its state; afterwards it is as it was."""
    before = [value.clone() for value in script.buffers()]
    learnt = script.learn(*log)
    state = [value.clone() for value in script.buffers()]
    for value, old in zip(script.buffers(), before, strict=True):
        value.copy_(old)
    return learnt, state


def test_a_log_with_poison_is_learnt_as_without_it() -> None:
    """By a file of one learner: the blocks are those of the good rounds."""
    x, reward, good = torch.randn(60, 3).double(), torch.randn(60).double(), torch.rand(60) < 0.8
    bad = torch.where(good, reward, NAN)
    for policy in (OFUL(3), ScaledPolicy(RidgeRegression(4), StandardScaler(3, freeze_after=5))):
        script = to_torchscript(policy)
        learnt, state = learnt_state(script, *round_of(script, x, bad))
        assert torch.equal(learnt, good)
        assert all(map(torch.equal, state, learnt_state(script, *round_of(script, x[good], reward[good]))[1]))


def test_arms_with_a_model_each_leave_out_what_is_poisoned() -> None:
    script = to_torchscript(DisjointArms(RidgeRegression(3), actions=4))
    x, reward, good = torch.randn(40, 3).double(), torch.randn(40).double(), torch.rand(40) < 0.7
    action = torch.randint(4, (40,))
    learnt, state = learnt_state(script, x, torch.where(good, action, 9), reward)
    assert torch.equal(learnt, good)
    assert all(map(torch.equal, state, learnt_state(script, x[good], action[good], reward[good])[1]))


@pytest.mark.parametrize("steps", [2, 40, 90])
@pytest.mark.parametrize("scale", [True, False])
def test_a_refused_round_of_an_arm_leaves_all_arms_as_they_were(scale: bool, steps: int) -> None:
    """Before, while and after early rounds are learnt again, which writes a second arm."""
    policy = bandit(3, actions=4, scale=scale)
    x = torch.randn(100, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    policy.step(x[:steps], torch.arange(steps) % 4, (torch.arange(steps) % 3 == 0).double())
    file = to_torchscript(policy)

    def state() -> dict[str, Tensor]:
        return {name: value.clone() for name, value in file.named_buffers() if not name.startswith("arm.")}

    before = state()
    assert not file.step(x[90], K, ONE, double(1e-18))  # outweighs all others
    assert not file.step(x[90] * NAN, K, ONE)
    assert all(torch.equal(value, before[name]) for name, value in state().items())
    for i in range(91, 100):
        assert file.step(x[i], torch.tensor(i % 4), ONE)
        policy.step(x[i], i % 4, 1.0)
    own = policy.state_dict()
    for name, value in state().items():
        if name in own:
            torch.testing.assert_close(value, own[name])


def test_a_file_keeps_no_copies_of_the_rounds_before() -> None:
    policy = to_torchscript(bandit(3, actions=4))
    x = torch.randn(50, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    policy.learn(x, torch.arange(50) % 4, torch.ones(50, dtype=torch.float64))
    assert policy.gathered == []
    assert policy.step(x[0], K, ONE)
    assert policy.gathered == []


def test_a_decision_that_cannot_be_made_is_no_arm() -> None:
    script, none = to_torchscript(OFUL(DIM)), torch.zeros(2, dtype=torch.bool)
    arms = torch.eye(2).expand(3, 2, 2).clone()
    arms[1, 0, 0] = NAN
    tied = int(OFUL(DIM).select(arms[0]))
    assert script.select(arms).tolist() == [tied, -1, tied]
    assert script.select(arms[0], none).item() == -1
    assert script.select(torch.zeros(3, 0, DIM)).tolist() == [-1] * 3
    assert script.probabilities(arms)[1].tolist() == [0.0, 0.0]
    for given in ((arms[1],), (arms[0], none), (torch.zeros(0, DIM),)):
        index, probability = script.select_with_probability(*given)
        assert (index.item(), probability.item()) == (-1, 0.0)


def test_hints_and_masks_of_experts_are_protected_too() -> None:
    script = to_torchscript(MsMwC(3, rate=0.02))
    before = {name: value.clone() for name, value in script.named_buffers()}
    assert not bool(script.set_hint(double(NAN, 0.0, 0.0)))
    assert not bool(script.set_available(torch.zeros(3, dtype=torch.bool)))
    assert not bool(script.step(double(math.inf, 0.0, 0.0)))
    assert all(torch.equal(value, before[name]) for name, value in script.named_buffers())
    assert bool(script.set_hint(double(0.5, 0.0, 0.0)))
    assert bool(script.set_available(torch.tensor([True, True, False])))
    assert script.predict()[2].item() == 0.0


def test_a_newer_state_goes_into_a_file() -> None:
    policy, script = disjoint(), to_torchscript(disjoint())
    for t in range(20):
        policy.step(torch.randn(3), t % 4, float(t % 2))
    script.load_state_dict(policy.state_dict(), strict=False)
    context = torch.randn(3)
    torch.testing.assert_close(script(context), policy(context))
    policy.load_state_dict(script.state_dict())


def test_a_program_counts_rounds_by_their_own_noise() -> None:
    policy = OFUL(DIM)
    program = to_program(policy, noise_scale=True).module()
    for t in range(10):
        scale = double(0.2 + 0.1 * t)
        choices, learnt = program(X, K, ONE, torch.tensor(t % 3 > 0), ARMS, MASK, scale)
        if t % 3 > 0:
            policy.step(X, K, ONE, noise_scale=scale)
        assert bool(learnt) == (t % 3 > 0)
        assert int(choices) == int(policy.select(ARMS[0]))
    assert not bool(program(X, K, ONE, YES, ARMS, MASK, double(0.0))[1])
    torch.testing.assert_close(dict(program.named_buffers())["policy.estimator.V"], policy.estimator.V)


def test_what_has_no_noise_scale_says_so() -> None:
    with pytest.raises(ValueError, match="noise_scale: expected False, got True, but FreeGrad takes no noise scale"):
        to_program(FreeGrad(2), noise_scale=True)
    with pytest.raises(ValueError, match="noise_scale: expected False, got True, but the program of a DPTOFW does not"):
        to_program(DPTOFW(2, horizon=10, epsilon=1.0, delta=0.01), noise_scale=True)
    with pytest.raises(TypeError, match="noise_scale: expected True or False, got float"):
        to_program(OFUL(2), noise_scale=0.5)  # type: ignore[arg-type]
