"""One protocol: whatever decides takes the same arguments, answers in the same shapes, and refuses the calls of before."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import torchonline
from tests.learners import BATCH_SHAPES, chosen, close, differences, snapshot
from torchonline import (
    UCB,
    DisjointArms,
    EpsilonGreedy,
    FixedArms,
    Greedy,
    LocalGLB,
    RadiusSelector,
    RidgeRegression,
    ScaledPolicy,
    SharedRadiusSelector,
    Softmax,
    SquareCB,
    StandardScaler,
    ThompsonSampling,
)
from torchonline.models import BanditHead
from torchonline.policies.policy import Policy

D = torch.float64
DIM, ARMS, ROUNDS = 3, 4, 7
OF_ARMS: dict[str, Callable[..., Policy]] = {
    "UCB": lambda **o: UCB(RidgeRegression(DIM, **o)),
    "Greedy": lambda **o: Greedy(RidgeRegression(DIM, **o)),
    "ThompsonSampling": lambda **o: ThompsonSampling(RidgeRegression(DIM, **o), draws=20),
    "EpsilonGreedy": lambda **o: EpsilonGreedy(RidgeRegression(DIM, **o)),
    "SquareCB": lambda **o: SquareCB(RidgeRegression(DIM, **o)),
    "Softmax": lambda **o: Softmax(RidgeRegression(DIM, **o)),
    "LocalGLB": lambda **o: LocalGLB(DIM, feature_bound=20.0, **o),
    "ScaledPolicy": lambda **o: ScaledPolicy(RidgeRegression(DIM + 1, **o), StandardScaler(DIM, **o)),
    "bandit": lambda **o: torchonline.bandit(DIM, **o),
}
OTHERS: dict[str, Callable[..., Policy]] = {
    "DisjointArms": lambda **o: DisjointArms(RidgeRegression(DIM, **o), ARMS),
    "RadiusSelector": lambda **o: RadiusSelector(RidgeRegression(DIM, **o), ARMS),
    "bandit with actions": lambda **o: torchonline.bandit(DIM, actions=ARMS, **o),
}
WITHOUT_HEADS: dict[str, Callable[..., Policy]] = {
    "SharedRadiusSelector": lambda **o: SharedRadiusSelector(RidgeRegression(DIM, **o)),
    "FixedArms": lambda **o: FixedArms(RidgeRegression(DIM, **o), torch.eye(ARMS, DIM)),
}


def head_on(make: Callable[..., Policy], **how: Any) -> Callable[..., Policy]:
    torch.manual_seed(0)
    encoder = nn.Linear(DIM, DIM).double()
    return lambda **o: BanditHead(copy.deepcopy(encoder), make(**o), **how)


HEADS_OF_ARMS = {f"head on {name}": head_on(make) for name, make in OF_ARMS.items()}
HEADS = {f"head on {name}": head_on(make) for name, make in OTHERS.items()}
HEADS["head with embeddings"] = head_on(OF_ARMS["UCB"], actions=torch.rand(ARMS, DIM))
KINDS = OF_ARMS | OTHERS | WITHOUT_HEADS | HEADS_OF_ARMS | HEADS


def inputs_of(policy: Policy, *shape: int) -> Tensor | None:
    """Inputs of decisions of some shape."""
    if isinstance(policy, FixedArms):
        return None
    return torch.randn(*shape, *((ARMS, DIM) if policy.has_arm_inputs else (DIM,)), dtype=D)


def rounds_of(policy: Policy, *shape: int) -> tuple[Tensor | None, Tensor, Tensor]:
    """Inputs, actions and rewards that all estimators take."""
    return inputs_of(policy, *shape), torch.randint(ARMS, shape), torch.randint(2, shape).to(D)


@pytest.mark.fast
@pytest.mark.parametrize("batch", BATCH_SHAPES)
@pytest.mark.parametrize("name", KINDS)
def test_whatever_decides_answers_in_the_same_shapes(name: str, batch: tuple[int, ...]) -> None:
    policy = KINDS[name](batch_shape=batch)
    assert isinstance(policy, Policy)
    before, one = snapshot(policy), inputs_of(policy, *batch)
    assert policy.number_of_actions(one) == ARMS
    assert policy.action_ids in (None, list(range(ARMS)))
    policy.step(*rounds_of(policy, *batch))
    policy.step(*rounds_of(policy, *batch, ROUNDS), noise_scale=torch.full((*batch, ROUNDS), 2.0))
    policy.learn(*rounds_of(policy, *batch, ROUNDS), block_size=3)
    assert policy.rounds.tolist() == torch.full(batch, 1 + 2 * ROUNDS).tolist()
    after = snapshot(policy)
    for shape in (batch, (*batch, 5)) if policy.takes_inputs else (batch,):
        x, mask = inputs_of(policy, *shape), torch.ones(*shape, ARMS, dtype=torch.bool)
        mask[..., 0] = False
        action, (drawn, chance) = policy.select(x, mask=mask), policy.select_with_probability(x, mask=mask)
        probabilities, (low, high) = policy.probabilities(x, mask=mask), policy.interval(x)
        assert action.shape == drawn.shape == chance.shape == shape
        assert action.dtype == drawn.dtype == torch.int64
        assert bool(((action > 0) & (drawn > 0) & (chance > 0.0)).all())
        assert (
            policy(x).shape == policy.predict(x).shape == low.shape == high.shape == probabilities.shape == mask.shape
        )
        assert bool((low <= high).all())
        assert not bool(probabilities[..., 0].any())
        torch.testing.assert_close(probabilities.sum(-1), torch.ones(shape, dtype=D))
    assert differences(after, snapshot(policy)) == []
    policy.reset()
    assert differences(before, snapshot(policy)) == []


@pytest.mark.fast
@pytest.mark.parametrize("name", WITHOUT_HEADS)
def test_a_head_wants_a_policy_that_learns_from_rows(name: str) -> None:
    with pytest.raises(TypeError, match=r"^policy: expected one that learns from the chosen arm's features"):
        head_on(WITHOUT_HEADS[name])()


@pytest.mark.parametrize("learns", ["step", "several", "learn"])
@pytest.mark.parametrize("batch", BATCH_SHAPES)
@pytest.mark.parametrize("name", OF_ARMS | HEADS_OF_ARMS)
def test_the_chosen_row_may_be_the_only_arm(name: str, batch: tuple[int, ...], learns: str) -> None:
    """All arms of a decision, or a log without the others: the same state, bit for bit."""
    policy, twin = (KINDS[name](batch_shape=batch) for _ in range(2))
    for _ in range(3):
        arms, action, reward = rounds_of(policy, *batch, *(() if learns == "step" else (ROUNDS,)))
        rows = chosen(arms, action).unsqueeze(-2)
        for each, given in ((policy, (arms, action)), (twin, (rows, torch.zeros_like(action)))):
            (each.learn if learns == "learn" else each.step)(*given, reward)
    if batch == () and learns == "step":
        policy.step(arms, int(action), float(reward))
        twin.step(rows, 0, float(reward))
    assert differences(snapshot(policy), snapshot(twin)) == []


NEW = {
    2: "step(x.unsqueeze(-2), 0, reward)",
    1: "call step(context, action, reward)",
    0: "call step(None, action, reward)",
}


@pytest.mark.fast
@pytest.mark.parametrize("name", KINDS)
def test_the_calls_of_before_show_the_new_one_and_change_nothing(name: str) -> None:
    policy = KINDS[name]()
    policy.step(*rounds_of(policy))
    before, x, reward = snapshot(policy), torch.randn(DIM, dtype=D), torch.tensor(0.5, dtype=D)
    calls: list[Callable[[], Any]] = [lambda: policy.step(x, reward), lambda: policy.step(x, 0.5)]
    dims = (1 + policy.has_arm_inputs) if policy.takes_inputs else 0
    if dims == 0:
        calls += [lambda: policy.step(1, 0.5), lambda: policy.step(1, 0.5, 0.3), lambda: policy.step(x, 1, 0.5)]
    elif dims == 2 and not isinstance(policy, BanditHead):
        calls += [lambda: policy.step(x, 1, 0.3), lambda: policy.step(x, reward, 0.3), lambda: policy.step(x, 0.5, 0.3)]
    for call in calls:
        with pytest.raises((TypeError, ValueError)) as caught:
            call()
        assert NEW[dims] in str(caught.value), caught.value
        assert differences(before, snapshot(policy)) == []
    with pytest.raises(TypeError, match=r"^learn\(\) takes \(inputs, action, reward\), got no reward; .*call learn\("):
        policy.learn(x.expand(ROUNDS, DIM), reward.expand(ROUNDS))  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="positional argument"):
        policy.step(*rounds_of(policy), 0.3)  # type: ignore[misc]
    assert differences(before, snapshot(policy)) == []


@pytest.mark.fast
def test_a_mask_of_fixed_arms_has_a_name() -> None:
    fixed = WITHOUT_HEADS["FixedArms"]()
    before, mask = snapshot(fixed), torch.tensor([True, False, True, True])
    for ask in (fixed.select, fixed.probabilities, fixed.select_with_probability):
        with pytest.raises(TypeError, match=r"^inputs: expected None, .*; pass a mask by name: mask=\.\.\."):
            ask(mask)
    assert differences(before, snapshot(fixed)) == []


@pytest.mark.parametrize("name", [*KINDS, "head with a scaler"])
def test_a_mask_of_rounds_is_obeyed_or_refused(name: str) -> None:
    """Also by TorchScript."""
    scaled = head_on(OF_ARMS["UCB"], scaler=StandardScaler(DIM, intercept=False))
    policy = KINDS[name]() if name in KINDS else scaled()
    policy.eval()
    before, script = snapshot(policy), torch.jit.script(copy.deepcopy(policy))
    round_, mask = rounds_of(policy, ROUNDS), torch.arange(ROUNDS) % 3 == 0
    if policy.takes_mask:
        policy.learn(*round_, mask=mask)
        script.learn(*round_, mask=mask)
        assert int(policy.rounds) == int(mask.sum())
        for key, value in snapshot(policy).items():
            close(script.state_dict()[key], value)
        return
    assert name not in OF_ARMS or name in ("ScaledPolicy", "bandit")
    for call, error in ((policy.learn, TypeError), (script.learn, torch.jit.Error)):
        with pytest.raises(error, match="mask: expected None"):
            call(*round_, mask=mask)
    assert differences(before, snapshot(policy)) == []
