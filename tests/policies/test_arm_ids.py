"""Late rewards of arms that come and go: each reaches its own arm, or is refused by name."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import torchonline
from tests.learners import differences, snapshot
from torchonline import OFUL, DisjointArms, EpsilonGreedy, FixedArms, HybridArms, RidgeRegression
from torchonline.distributed import SharedLearner
from torchonline.export import to_program, to_torchscript
from torchonline.models import BanditHead
from torchonline.policies.arm_ids import by_place
from torchonline.policies.chosen import chosen_probability, predicted

REMOVED = r"^action: expected the id of an arm, one of 1, 2, 3, got 0, which was removed$"


def disjoint(**options: Any) -> DisjointArms:
    return DisjointArms(RidgeRegression(1, **options), 4)


def fixed(**options: Any) -> FixedArms:
    return FixedArms(OFUL(4, **options), torch.eye(4))


def head(**options: Any) -> BanditHead:
    return BanditHead(torch.nn.Identity(), disjoint(**options))


def hybrid(**options: Any) -> HybridArms:
    return HybridArms(RidgeRegression(1, **options), 4)


def scaled_head(**options: Any) -> BanditHead:
    return BanditHead(torch.nn.Linear(1, 1).double(), disjoint(**options))


MAKERS: dict[str, Callable[..., Any]] = {
    "disjoint": disjoint,
    "hybrid": hybrid,
    "fixed": fixed,
    "head": head,
    "encoder": scaled_head,
}
every_kind = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)


def arms_of(policy: Any) -> Any:
    return policy.policy if isinstance(policy, BanditHead) else policy


def remove(policy: Any, ids: Any) -> None:
    arms = arms_of(policy)
    (arms.remove_arms if isinstance(arms, FixedArms) else arms.remove_actions)(ids)


def add(policy: Any) -> list[int]:
    arms = arms_of(policy)
    return arms.add_arms(torch.ones(1, 4)) if isinstance(arms, FixedArms) else arms.add_actions()


def inputs_of(policy: Any, *shape: int) -> Tensor | None:
    """What stands before the action in a step."""
    return None if isinstance(policy, FixedArms) else torch.ones(*shape, 1, dtype=torch.float64)


def learnt(policy: Any) -> list[float]:
    """What each arm has learnt: rounds, or the diagonal of V less the ridge."""
    arms = arms_of(policy)
    if isinstance(arms, FixedArms):
        return [round(float(x @ arms.estimator.V @ x) - float(x @ x)) for x in arms.arms]
    return arms.estimator.rounds.tolist()


@every_kind
@pytest.mark.parametrize("how", ["int", "tensor", "list", "log"])
def test_a_late_reward_goes_to_the_arm_that_earned_it(make: Any, how: str) -> None:
    policy = make()
    waiting = [2, 2, 3]
    remove(policy, [0])
    if how in ("list", "log"):
        learn = policy.learn if how == "log" else policy.step
        learn(inputs_of(policy, 3), waiting, [0.5, 0.5, 0.5])
    else:
        for action in waiting:
            policy.step(inputs_of(policy), torch.tensor(action) if how == "tensor" else action, 0.5)
    assert learnt(policy) == [0, 2, 1]


@every_kind
@pytest.mark.parametrize("action", [0, torch.tensor(0), [2, 0, 3]], ids=["int", "tensor", "list"])
def test_a_reward_of_a_removed_arm_is_refused_by_name(make: Any, action: Any) -> None:
    policy = make()
    remove(policy, [0])
    before = snapshot(arms_of(policy))
    shape, reward = ((3,), [1.0, 1.0, 1.0]) if isinstance(action, list) else ((), 1.0)
    with pytest.raises(ValueError, match=REMOVED):
        policy.step(inputs_of(policy, *shape), action, reward)
    with pytest.raises(ValueError, match=REMOVED):
        policy.learn(inputs_of(policy, *shape), action, reward)
    assert differences(before, snapshot(arms_of(policy))) == []
    with pytest.raises(ValueError, match=r"^action: expected the id of an arm, one of 1, 2, 3, got 7$"):
        policy.step(inputs_of(policy), 7, 1.0)


@every_kind
def test_choices_are_ids_and_scores_are_in_their_order(make: Any) -> None:
    policy = make()
    remove(policy, [0, 2])
    assert add(policy) == [4]
    assert arms_of(policy).action_ids == [1, 3, 4]
    for k, arm in enumerate(arms_of(policy).action_ids):
        mask = torch.arange(3) == k
        assert int(policy.select(inputs_of(policy), mask)) == arm
        choice, probability = policy.select_with_probability(inputs_of(policy), mask)
        assert (int(choice), float(probability)) == (arm, 1.0)
    for _ in range(40):
        policy.step(inputs_of(policy), 3, 1.0)
    assert int(policy.predict(inputs_of(policy)).argmax()) == 1


@every_kind
def test_no_id_is_given_twice(make: Any) -> None:
    policy = make()
    remove(policy, [3])
    twin = make()
    remove(twin, [1])
    for each in (twin, copy.deepcopy(policy)):
        each.load_state_dict(policy.state_dict())
        assert arms_of(each).action_ids == [0, 1, 2]
        assert add(each) == [4]


@every_kind
def test_a_load_brings_the_ids(make: Any) -> None:
    """Also those of a state that has none; a state with wrong ones is refused, and changes nothing."""
    policy, twin = make(), make()
    if not isinstance(policy, FixedArms):
        add(twin)
    state = policy.state_dict()
    for each in (policy, twin):
        remove(each, [0])
    if isinstance(policy, FixedArms):
        twin.load_state_dict(policy.state_dict())
        assert twin.action_ids == [1, 2, 3]
    else:
        twin.load_state_dict(state)
        assert arms_of(twin).action_ids == [0, 1, 2, 3]
    bad = policy.state_dict()
    name = next(key for key in bad if key.endswith("ids"))
    for value in (
        torch.tensor([1, 2, 2]),
        torch.tensor([-1, 2, 3]),
        torch.tensor([1, 2, 9]),
        torch.tensor([1.0, 2, 3]),
    ):
        before = snapshot(arms_of(policy))
        with pytest.raises(RuntimeError, match="ids: expected 3 ascending integers"):
            policy.load_state_dict(bad | {name: value})
        assert arms_of(policy).action_ids == [1, 2, 3]
        assert differences(before, snapshot(arms_of(policy))) == []
    policy.load_state_dict(bad | {name: torch.arange(3), f"{name}_given": torch.tensor(2**62)})
    assert (arms_of(policy).action_ids, arms_of(policy).ids_so_far) == ([0, 1, 2], 2**62)
    assert by_place(torch.tensor([True, False]), arms_of(policy)).tolist() == [True, False, False]


@pytest.mark.parametrize("form", ["script", "program"])
def test_a_file_takes_the_ids_of_a_newer_state(form: str) -> None:
    """It was made before an arm was removed and another one came."""
    policy, x, one = DisjointArms(RidgeRegression(2), 3), torch.tensor([1.0, 0.5], dtype=torch.float64), torch.ones(())
    file: Any = to_torchscript(policy) if form == "script" else to_program(policy).module()
    policy.remove_actions([0])
    assert policy.add_actions(1) == [3]
    for k in policy.action_ids * 20:
        policy.step(x, k, float(k == 3))
    if form == "script":
        assert file.load_state_dict(policy.state_dict(), strict=False).unexpected_keys == []
        assert int(file.select(x)) == 3
        return
    for name, buffer in file.named_buffers():
        buffer.copy_(policy.get_buffer(name.removeprefix("policy.")))
    mask, learn = torch.ones(1, 3, dtype=torch.bool), torch.tensor(True)
    for action in (3, 0):
        choice, learnt = file(x, torch.tensor(action), one.double(), learn, x.unsqueeze(0), mask)
        assert (choice.tolist(), bool(learnt)) == ([3], action == 3)


@pytest.mark.parametrize("make", [disjoint, fixed, scaled_head], ids=["disjoint", "fixed", "head"])
def test_files_speak_ids(make: Any) -> None:
    """A file that is made after a removal chooses and learns by the same ids, and does not learn for a removed arm."""
    policy = make()
    remove(policy, [0, 2])
    example = {} if isinstance(policy, FixedArms) else {"example": torch.ones(1, dtype=torch.float64)}
    file: Any = to_torchscript(policy, **example)
    for k, arm in enumerate([1, 3]):
        mask = torch.arange(2) == k
        assert int(file.select(inputs_of(policy), mask)) == arm
        assert int(file.select_with_probability(inputs_of(policy), mask)[0]) == arm
    before = file.state_dict()
    for action, is_learnt in ((3, True), (0, False), (2, False), (4, False), (-1, False), (3, True)):
        told = file.step(inputs_of(policy), torch.tensor(action), torch.tensor(1.0, dtype=torch.float64))
        assert bool(told) == is_learnt
    assert file.state_dict().keys() == before.keys()
    twin = make()
    remove(twin, [1, 2])
    twin.load_state_dict(file.state_dict())
    assert arms_of(twin).action_ids == [1, 3]
    assert learnt(twin) == [0, 2]
    learn = torch.tensor([3, 0, 1]), torch.ones(3, dtype=torch.float64)
    assert file.learn(inputs_of(policy, 3), *learn).tolist() == [True, False, True]


def test_batches_have_common_ids() -> None:
    arms = DisjointArms(RidgeRegression(1, batch_shape=(2,)), 3)
    arms.remove_actions([0])
    arms.step(torch.ones(2, 1), torch.tensor([1, 2]), torch.ones(2))
    assert arms.estimator.rounds.tolist() == [[1, 0], [0, 1]]
    assert arms.select(torch.ones(2, 1), torch.tensor([[True, False], [False, True]])).tolist() == [1, 2]


def test_what_a_policy_says_of_a_chosen_arm_is_about_that_arm() -> None:
    arms = DisjointArms(EpsilonGreedy(RidgeRegression(1), epsilon=0.3), 3)
    arms.remove_actions([0])
    x = torch.ones(1, dtype=torch.float64)
    arms.learn(x.expand(40, 1), [2] * 40, [1.0] * 40)
    mean, _, high = predicted(arms, x, torch.tensor(2))
    assert float(mean) > 0.9
    assert float(high) < float(predicted(arms, x, torch.tensor(1))[2]) + 1.0
    assert float(chosen_probability(arms, x, torch.tensor(2))) == pytest.approx(0.85)


def test_a_user_who_removes_nothing_sees_no_ids() -> None:
    arms = disjoint()
    arms.add_actions(2)
    assert arms.action_ids == [0, 1, 2, 3, 4, 5]
    assert not any(name.startswith("ids") for name in arms.state_dict())
    assert torchonline.bandit(1, actions=2).action_ids == [0, 1]


@pytest.mark.slow
@pytest.mark.parametrize("blocks", [False, True], ids=["rounds", "blocks"])
def test_programs_speak_ids(blocks: bool) -> None:
    policy = disjoint()
    policy.remove_actions([0, 2])
    program: Any = to_program(policy, blocks=blocks).module()
    sizes = (2,) if blocks else ()
    x, action, reward = (
        torch.ones(*sizes, 1, dtype=torch.float64),
        torch.full(sizes, 3),
        torch.ones(sizes, dtype=torch.float64),
    )
    decision = torch.ones(1, 1, dtype=torch.float64), torch.tensor([[False, True]])
    choice, is_learnt = program(x, action, reward, torch.ones(sizes, dtype=torch.bool), *decision)
    assert choice.tolist() == [3]
    assert bool(is_learnt.all())
    gone = torch.zeros(sizes, dtype=torch.int64)
    _, is_learnt = program(x, gone, reward, torch.ones(sizes, dtype=torch.bool), *decision)
    assert not bool(is_learnt.any())
    state = {name.removeprefix("policy."): value for name, value in program.state_dict().items()}
    assert state["policy.estimator.rounds"].tolist() == [0, 2 if blocks else 1]


@pytest.mark.slow
def test_programs_of_fixed_arms_speak_ids() -> None:
    policy = fixed()
    policy.remove_arms([0, 2])
    program: Any = to_program(policy).module()
    one = torch.tensor(1.0, dtype=torch.float64)
    for action, wanted in ((3, True), (0, False)):
        choice, is_learnt = program(torch.tensor(action), one, torch.tensor(True), torch.tensor([False, True]))
        assert (int(choice), bool(is_learnt)) == (3, wanted)


@pytest.mark.parametrize("way", ["leader", "all", "sums"])
def test_rounds_that_wait_for_a_sync_stay_those_of_their_arms(way: str) -> None:
    arms = disjoint()
    shared, x = SharedLearner(arms, learn_on=way), torch.ones(1, dtype=torch.float64)
    for action in (2, 2, 3):
        shared.observe(x, action, 1.0)
    arms.remove_actions([1])
    assert shared.sync() == 3
    assert learnt(arms) == [0, 2, 1]
    shared.observe(x, 1, 1.0)
    with pytest.raises(ValueError, match="got 1, which was removed"):
        shared.sync()
    assert learnt(arms) == [0, 2, 1]
