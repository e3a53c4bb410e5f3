"""Programs and files that learn blocks of rounds: they agree with `learn`, and refuse what learns in order."""

import copy
import io
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.learners import round_of
from torchonline import (
    DPTOFW,
    OFUL,
    UCB,
    AnytimeHeavyTailUCB,
    DisjointArms,
    FixedArms,
    FreeGrad,
    Gamma,
    GLMRegression,
    HeavyTailRegression,
    LocalGLB,
    LocalGLMRegression,
    RadiusSelector,
    RidgeRegression,
    ScaledPolicy,
    SharedRadiusSelector,
    StandardScaler,
)
from torchonline.export import to_program, to_torchscript
from torchonline.models import BanditHead

DIM, ARMS = 3, 4
# Numbers of rounds in the calls of a program.
SIZES = (1, 9, 2, 20)


def normal(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64)


def frozen(batch: tuple[int, ...] = ()) -> StandardScaler:
    """A scaler that has frozen."""
    scaler = StandardScaler(DIM, freeze_after=5, batch_shape=batch)
    scaler.step(3.0 * normal(*batch, 8, DIM))
    return scaler


def state_of(program: Any, path: str, module: nn.Module) -> dict[str, tuple[Tensor, Tensor]]:
    """The buffers of a program and of a module which have the same name: those that learning reads or writes."""
    own, theirs = dict(module.named_buffers()), dict(program.named_buffers())
    named = {name: theirs.get(f"{path}.{name}") for name in own if not name.startswith(("arm.", "policy.arm."))}
    return {name: (own[name], value) for name, value in named.items() if value is not None}


def assert_equal_states(program: Any, path: str, module: nn.Module) -> None:
    states = state_of(program, path, module)
    assert any(name.endswith("theta_hat") for name in states)
    for mine, theirs in states.values():
        torch.testing.assert_close(theirs, mine, rtol=1e-7, atol=1e-9)


def assert_only_looks(program: Any, *arguments: Tensor) -> None:
    """Call a program in which no round is learnt, whatever the rounds hold, and find all buffers equal."""
    before = {name: buffer.clone() for name, buffer in program.named_buffers()}
    program(*arguments)
    assert all(torch.equal(before[name], buffer) for name, buffer in program.named_buffers())


POLICIES = {
    "OFUL": lambda **o: OFUL(DIM, **o),
    "OFUL with restarts": lambda **o: OFUL(DIM, restart_every=20, **o),
    "AnytimeHeavyTailUCB": lambda **o: AnytimeHeavyTailUCB(DIM, **o),
    "LocalGLB": lambda **o: LocalGLB(DIM, theta_bound=2.0, feature_bound=12.0, **o),
}


@pytest.mark.parametrize(
    ("name", "batch"), [("OFUL", ()), ("OFUL with restarts", (2,)), ("AnytimeHeavyTailUCB", (2,)), ("LocalGLB", ())]
)
def test_a_program_learns_blocks_as_learn_does(name: str, batch: tuple[int, ...], tmp_path: Path) -> None:
    policy = POLICIES[name](batch_shape=batch)
    to_program(policy, tmp_path / "blocks.pt2", blocks=True)
    program = torch.export.load(tmp_path / "blocks.pt2").module()
    for t in range(12):
        n, decisions, arms = SIZES[t % 4], 1 + t % 3, 1 + t % 5
        past, action = normal(*batch, n, 1 + t % 3, DIM), torch.randint(1 + t % 3, (*batch, n))
        reward, learn = normal(*batch, n), torch.rand(*batch, n) < 0.7
        reward = policy.estimator.possible_reward(reward)
        offered, mask = normal(*batch, decisions, arms, DIM), torch.rand(*batch, decisions, arms) < 0.7
        mask[..., 0] = True
        choice, _ = program(past, action, reward, learn, offered, mask)
        policy.learn(past, action, reward, block_size=n, mask=learn)
        assert torch.equal(choice, policy.select(offered, mask))
    assert_equal_states(program, "policy", policy)
    nothing = torch.zeros_like(learn)
    assert_only_looks(
        program, torch.full_like(past, torch.nan), action + 99, reward + torch.inf, nothing, offered, mask
    )
    if "restarts" in name:  # a block restarts once at most
        assert int(policy.estimator.rounds.max()) < 20
        more = [torch.cat([value, value], len(batch)) for value in (past, action, reward, learn)]
        with pytest.raises((AssertionError, RuntimeError), match="20"):
            program(*more, offered, mask)


COMPOSED: dict[str, Any] = {
    "arms": lambda **o: DisjointArms(HeavyTailRegression(DIM, **o), ARMS),
    "arms with restarts": lambda **o: DisjointArms(RidgeRegression(DIM, restart_every=20, **o), ARMS),
    "arms on a frozen scaler": lambda **o: DisjointArms(RidgeRegression(DIM + 1, **o), ARMS, scaler=frozen(**o)),
}


@pytest.mark.parametrize(
    ("name", "batch"), [("arms", ()), ("arms with restarts", (2,)), ("arms on a frozen scaler", ())]
)
def test_a_program_of_arms_learns_blocks_as_learn_does(name: str, batch: tuple[int, ...]) -> None:
    """For a batch, beside a learner for each of its members, which learns what the member learns."""
    policy = COMPOSED[name](**({"batch_shape": batch} if batch else {}))
    program = to_program(policy, blocks=True).module()
    members = [copy.deepcopy(policy)] if not batch else [COMPOSED[name]() for _ in range(batch[0])]
    for t in range(12):
        n, decisions = SIZES[t % 4], 1 + t % 3
        past, reward, learn = normal(*batch, n, DIM), normal(*batch, n), torch.rand(*batch, n) < 0.7
        action = torch.where(learn, torch.randint(ARMS, (*batch, n)), -1)
        context, mask = normal(*batch, decisions, DIM), torch.ones(*batch, decisions, ARMS, dtype=torch.bool)
        choice, _ = program(past, action, reward, learn, context, mask)
        for i, member in enumerate(members):
            own, k, r, c, chosen, taken = (
                value[i] if batch else value for value in (past, action, reward, context, choice, learn)
            )
            if bool(taken.any()):
                member.learn(own[taken], k[taken], r[taken], block_size=n)
            assert torch.equal(chosen, member.select(c))
    if not batch:
        assert_equal_states(program, "policy", members[0])
    rounds = [int(member.rounds) for member in members]
    assert dict(program.named_buffers())["policy.rounds"].reshape(-1).tolist() == rounds
    nothing = torch.zeros_like(learn)
    assert_only_looks(program, torch.full_like(past, torch.nan), action, reward, nothing, context, mask)


def test_a_program_of_a_policy_on_a_frozen_scaler_learns_blocks() -> None:
    policy = ScaledPolicy(RidgeRegression(DIM + 1), frozen())
    program = to_program(policy, blocks=True).module()
    for n in SIZES:
        past, action, reward = 3.0 * normal(n, 2, DIM), torch.randint(2, (n,)), normal(n)
        arms, learn = normal(2, 5, DIM), torch.ones(n, dtype=torch.bool)
        choice, _ = program(past, action, reward, learn, arms, torch.ones(2, 5, dtype=torch.bool))
        policy.learn(past, action, reward, block_size=n)
        assert torch.equal(choice, policy.select(arms))
    assert_equal_states(program, "policy", policy)


HEADS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "inputs for each arm": (lambda: BanditHead(nn.Linear(6, DIM), AnytimeHeavyTailUCB(DIM)), (5, 6)),
    "embeddings": (lambda: BanditHead(nn.Linear(6, DIM), OFUL(DIM), actions=torch.randn(ARMS, DIM)), (6,)),
    "a model each": (lambda: BanditHead(nn.Linear(6, DIM), OFUL(DIM), actions=ARMS), (6,)),
}


@pytest.mark.parametrize("name", HEADS)
def test_a_program_of_a_head_learns_blocks_as_learn_does(name: str) -> None:
    make, item = HEADS[name]
    head = make()
    program = to_program(head, example=torch.randn(item), blocks=True).module()
    for t in range(8):
        n, decisions, arms = SIZES[t % 4], 1 + t % 3, item[0] if len(item) > 1 else ARMS
        past, reward, learn = torch.randn(n, *item), normal(n), torch.rand(n) < 0.7
        learn[0] = True
        action = torch.where(learn, torch.randint(arms, (n,)), 1 << 40)
        inputs, mask = torch.randn(decisions, *item), torch.ones(decisions, arms, dtype=torch.bool)
        choice, _ = program(past, action, reward, learn, inputs, mask)
        head.learn(past[learn], action[learn], reward[learn], block_size=n)
        assert torch.equal(choice, head.select(inputs))
    for mine, theirs in state_of(program, "policy", head).values():
        torch.testing.assert_close(theirs, mine, rtol=1e-5, atol=1e-6)  # the encoder is in float32


MOVING = StandardScaler(2, freeze_after=3, intercept=False)


@pytest.mark.parametrize(
    ("module", "example", "why"),
    [
        (UCB(GLMRegression(2)), None, "GLMRegression has no block form"),
        (LocalGLB(2, link=Gamma(2.0)), None, "LocalGLMRegression has no block form"),
        (RadiusSelector(RidgeRegression(2), actions=2), None, "RadiusSelector has no block form"),
        (SharedRadiusSelector(RidgeRegression(2)), None, "SharedRadiusSelector has no block form"),
        (ScaledPolicy(RidgeRegression(2), MOVING), None, "the scaler has not frozen"),
        (DisjointArms(RidgeRegression(2), 2, scaler=MOVING), None, "the scaler has not frozen"),
        (BanditHead(nn.Linear(2, 2), OFUL(2), scaler=MOVING), torch.ones(3, 2), "a head with a scaler"),
        (FixedArms(OFUL(2), torch.eye(2)), None, "FixedArms has no block form"),
        (FreeGrad(2), None, "FreeGrad has no block form"),
        (DPTOFW(2, horizon=10, epsilon=1.0, delta=0.01), None, "DPTOFW has no block form"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_what_learns_in_order_is_refused(module: Any, example: Tensor | None, why: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"blocks: expected False, got True, but .*{why}"):
        to_program(module, tmp_path / "blocks.pt2", example=example, blocks=True)
    assert list(tmp_path.iterdir()) == []


def test_blocks_are_asked_for_by_a_boolean() -> None:
    with pytest.raises(TypeError, match="blocks: expected True or False, got int"):
        to_program(OFUL(2), blocks=100)  # type: ignore[arg-type]


class Drifting(RidgeRegression):
    """Ridge regression whose compiled form learns blocks, and only blocks, otherwise."""

    def _observe_block(self, x: Tensor, reward: Tensor, noise_scale: Tensor, count: Tensor) -> None:
        theta_hat = self.theta_hat
        if torch.jit.is_scripting() or torch.compiler.is_compiling():
            theta_hat += 0.01 * reward.sum(-1, keepdim=True)
        rounds = self.rounds
        rounds += count


@pytest.mark.parametrize("export", [to_torchscript, lambda module, path: to_program(module, path, blocks=True)])
def test_blocks_that_compile_to_something_else_are_refused(export: Any, tmp_path: Path) -> None:
    for module in (UCB(Drifting(2)), DisjointArms(Drifting(2), actions=2)):
        with pytest.raises(RuntimeError, match="differs"):
            export(module, tmp_path / "policy.pt2")
        assert list(tmp_path.iterdir()) == []
    to_program(UCB(Drifting(2)))  # rounds alone


def test_a_program_makes_as_many_steps_of_newton_as_it_is_verified_with() -> None:
    """Where twelve steps are too few, the eager learner would go on."""
    policy = LocalGLB(4, theta_bound=30.0, feature_bound=50.0)
    estimator: Any = policy.estimator
    estimator.blind_steps = 2
    program = to_program(policy, blocks=True).module()
    for module in (eager := copy.deepcopy(policy), policy):
        module.estimator.block_steps = 2 if module is policy else 20
    log, arms = round_of(policy, normal(30, 4), (torch.rand(30) < 0.5).double()), normal(1, 2, 4)
    program(*log, torch.ones(30, dtype=torch.bool), arms, torch.ones(1, 2, dtype=torch.bool))
    for module in (policy, eager):
        module.learn(*log, block_size=30)
    assert_equal_states(program, "policy", policy)
    # It pays for what is missing.
    assert float(policy.estimator.squared_radius) > float(eager.estimator.squared_radius)


def test_files_learn_blocks() -> None:
    """A head and arms with a model each, as scripts, beside the eager ones."""
    head = BanditHead(nn.Linear(5, DIM), LocalGLMRegression(DIM, feature_bound=20.0), actions=ARMS)
    file = io.BytesIO()
    torch.jit.save(to_torchscript(head, example=torch.randn(5)), file)
    file.seek(0)
    scripted = torch.jit.load(file)
    inputs, action, reward = torch.randn(60, 5), torch.randint(ARMS, (60,)), (torch.rand(60) < 0.5).double()
    head.learn(inputs, action, reward)
    scripted.learn(inputs, action, reward)
    head.learn(inputs, action, reward, block_size=60)
    scripted.learn(inputs, action, reward, None, 60)
    theirs = dict(scripted.named_buffers())
    for name, buffer in head.policy.policy.estimator.state().items():
        torch.testing.assert_close(theirs[f"policy.policy.estimator.{name}"], buffer, rtol=1e-5, atol=1e-6)
