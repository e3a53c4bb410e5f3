"""The ten rules of the contract for policies made of parts: see tests/composed_policies.py for the cases."""

import copy
import io
import pickle
import sys
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from tests import fake_device
from tests.bad_arguments import bad_looks, complaint, no_floats, no_values, with_last, wrong_shapes
from tests.composed_policies import ARMS, CASES, DIM, Case
from tests.contract.cost import WINDOW, calls, operations
from tests.contract.gradients import Encoder, collect
from tests.contract.state import addresses, numbers
from tests.core.test_threads import together
from tests.interruption import interrupted, lines_of
from tests.learners import BATCH_SHAPES, close, differences, same, snapshot
from torchonline import DisjointArms, GLMRegression, RidgeRegression, ScaledPolicy, SharedRadiusSelector, StandardScaler
from torchonline.core import learner as core
from torchonline.export import to_program, to_torchscript
from torchonline.policies import disjoint
from torchonline.policies.early_rounds import KEPT

pytestmark = pytest.mark.fast

D = torch.float64
every_case = pytest.mark.parametrize("case", CASES, ids=str)
FEW = [case for case in CASES if case.name in ("ridge", "heavy tail, frozen", "robust", "ucb")]


def taught(case: Case, count: int = 9, **options: Any) -> Any:
    """A policy that has played some rounds, past the freeze of its scaler."""
    policy = case.build(**options)
    case.play(policy, case.stream(count, batch_shape=options.get("batch_shape", ())))
    return policy


def state_of_script(script: Any, policy: Any) -> dict[str, Tensor]:
    """The state of a scripted policy, without constant tables and the chosen arm's copy."""
    return {name: script.state_dict()[name].clone() for name in snapshot(policy)}


# Rule 1: looking.


def look(policy: Any, context: Tensor, first: int) -> None:
    """All that may be asked."""
    policy(context)
    arms = policy.probabilities(context).shape
    mask = torch.zeros(arms, dtype=torch.bool)
    mask[..., -1] = True
    many = context.unsqueeze(first).expand(*context.shape[:first], 6, *context.shape[first:])
    for ask in (policy.select, policy.select_with_probability, policy.probabilities):
        ask(context)
        ask(context, mask)
        ask(many)
    assert bool((policy.select(context, mask) == arms[-1] - 1).all())


@every_case
def test_looking_changes_nothing(case: Case) -> None:
    for batch_shape in BATCH_SHAPES:
        policy = case.build(batch_shape=batch_shape)
        for before in (snapshot(policy), None):
            if before is None:
                case.play(policy, case.stream(9, batch_shape=batch_shape))
                before = snapshot(policy)
            for round_ in case.stream(4, batch_shape=batch_shape, seed=1):
                look(policy, round_.context, len(batch_shape))
                look(policy, round_.context.clone().requires_grad_(), len(batch_shape))
            assert differences(before, snapshot(policy)) == []


@pytest.mark.slow
@every_case
def test_scores_are_differentiable(case: Case) -> None:
    for batch_shape in BATCH_SHAPES:
        policy = taught(case, batch_shape=batch_shape)
        # Within the clip of the scaler, which has no slope outside.
        if policy.scaler is not None:
            policy.scaler.squares *= 100.0
        context = case.stream(1, batch_shape=batch_shape, seed=2)[0].context.requires_grad_()

        def seeded(x: Tensor, policy: Any = policy) -> Tensor:
            torch.manual_seed(0)
            return policy(x)

        assert torch.autograd.gradcheck(seeded, (context,), eps=1e-7, atol=1e-4)


@every_case
def test_choices_are_the_best_scores_of_the_available(case: Case) -> None:
    """One decision and many, with and without a mask; probabilities say the same."""
    for batch_shape in ((), (2,), (2, 3)):
        policy = taught(case, batch_shape=batch_shape)
        contexts = torch.stack(
            [r.context for r in case.stream(21, batch_shape=batch_shape, seed=1)[::4]], len(batch_shape)
        )
        mask = torch.rand(policy(contexts).shape) < 0.5
        mask[..., 0] = True
        scores = policy(contexts).masked_fill(~mask, -torch.inf)
        index, p = policy.select(contexts, mask), policy.probabilities(contexts, mask)
        assert index.shape == (*batch_shape, 6)
        assert index.dtype == torch.int64
        assert p.shape == scores.shape
        close(p.sum(-1), torch.ones(p.shape[:-1], dtype=D), 1e-12)
        assert not p[~mask].any()
        assert bool(mask.gather(-1, index.unsqueeze(-1)).all())
        chance = policy.select_with_probability(contexts, mask)[1]
        assert bool((chance > 0.0).all())
        if case.is_random:
            continue
        assert torch.equal(index, scores.argmax(-1))
        assert torch.equal(p, nn.functional.one_hot(index, mask.size(-1)).to(D))
        for n in range(6):
            one = contexts.select(len(batch_shape), n)
            assert torch.equal(policy.select(one, mask.select(len(batch_shape), n)), index[..., n])
            close(policy(one).masked_fill(~mask.select(len(batch_shape), n), -torch.inf), scores[..., n, :])


# Rules 2 and 9: a step is all or nothing, and wrong arguments are named.


def bad_steps(case: Case, batch_shape: tuple[int, ...], rows: tuple[int, ...]) -> Any:
    """Kinds of bad input to ``step``, the argument to blame, and the arguments."""
    item, shape = case.item, (*batch_shape, *rows)
    good: dict[str, Tensor] = {"inputs": torch.randn(*shape, *item, dtype=D)}
    good["action"] = torch.full(shape, ARMS - 1)  # the last arm, whose features end with what is spoilt
    possible = case.build().estimator.possible_reward
    good |= {"reward": possible(torch.randn(shape, dtype=D)), "noise_scale": torch.rand(shape, dtype=D) + 0.5}
    for which, value in good.items():
        kinds: dict[str, Any] = {"a string": "all", "complex numbers": value.to(torch.complex128)}
        if which == "action":
            kinds |= {"None": None, "a number": 1.5, "numbers": value.double(), "booleans": value.bool(), "True": True}
            kinds |= {"negative": with_last(value, -1), "too large": with_last(value, ARMS), "32 bits": value.int()}
            kinds |= {"on another device": value.to("meta")}
        else:
            kinds |= no_floats(value, is_real=which != "inputs") | no_values(value)
        kinds |= wrong_shapes(value, len(batch_shape), which == "inputs", len(item))
        if which in ("inputs", "reward"):
            kinds["None"] = None
        if which == "noise_scale":
            kinds["negative"] = with_last(value, -0.1)
        for kind, bad in kinds.items():
            yield kind, which, good | {which: bad}


@pytest.mark.slow
@every_case
def test_bad_steps_are_refused_by_name(case: Case) -> None:
    for batch_shape in BATCH_SHAPES:
        policy, wrong = taught(case, batch_shape=batch_shape), []
        before = snapshot(policy)
        for rows in ((), (3,)):
            for kind, name, arguments in bad_steps(case, batch_shape, rows):
                label = f"{name} {kind} {batch_shape} {rows}"
                wrong += complaint(label, name, lambda a=arguments, on=policy: on.step(**a))
        assert wrong == []
        assert differences(before, snapshot(policy)) == []


@every_case
def test_bad_questions_are_refused_by_name(case: Case) -> None:
    name = "inputs"
    for batch_shape in BATCH_SHAPES:
        policy, wrong = taught(case, batch_shape=batch_shape), []
        before = snapshot(policy)
        shape = (*batch_shape, DIM) if case.has_models else (*batch_shape, ARMS, DIM)
        good = torch.randn(shape, dtype=D)
        bad = no_floats(good) | no_values(good) | {"None": None, "a feature too few": good[..., 1:]}
        bad |= {"no dimension": good.sum(), "no arm": torch.zeros(*batch_shape, 0, DIM)} if not case.has_models else {}
        mask = torch.ones(*batch_shape, ARMS, dtype=torch.bool)
        masks: dict[str, Any] = {"a string": "all", "integers": mask.long(), "on another device": mask.to("meta")}
        masks |= {"an arm too few": mask[..., 1:], "an arm too many": torch.cat([mask, mask[..., :1]], -1)}
        masks |= {"nothing": ~mask, "no dimension": mask.reshape(-1)[0], "a list of integers": mask.int().tolist()}
        for ask in (policy.select, policy.probabilities, policy.select_with_probability):
            for kind, value in bad.items():
                wrong += complaint(f"{ask.__name__} {kind}", name, lambda v=value, on=ask: on(v))
            for kind, value in masks.items():
                wrong += complaint(f"{ask.__name__} {kind}", "mask", lambda v=value, on=ask, x=good: on(x, v))
        if not case.has_models:
            for kind, value in bad_looks(batch_shape):
                if value is None or not isinstance(value, Tensor) or value.dim() < 2 + len(batch_shape):
                    wrong += complaint(f"forward {kind}", name, lambda v=value, on=policy: on(v))
        assert wrong == []
        assert differences(before, snapshot(policy)) == []


def test_a_round_beyond_the_dtype_blames_the_argument() -> None:
    arms, links = DisjointArms(RidgeRegression(2), 3), DisjointArms(GLMRegression(3, feature_bound=20.0), 2)
    with pytest.raises(ValueError, match=r"^inputs: expected a round that adds less than "):
        arms.step([1e60, 0.0], 1, 1.0)
    with pytest.raises(ValueError, match=r"^inputs: expected features of norm at most 20"):
        links.step([30.0, 0.0, 0.0], 1, 1.0)
    arms.add_actions(1)
    with pytest.raises(ValueError, match=r"^inputs: expected a round that adds less than "):
        arms.step([1e60, 0.0], 3, 1.0)
    assert not arms.estimator.rounds.any()


@every_case
def test_a_bad_row_among_good_ones_changes_nothing(case: Case) -> None:
    for batch_shape in BATCH_SHAPES:
        policy, twin = taught(case, batch_shape=batch_shape), taught(case, batch_shape=batch_shape)
        before, rounds = snapshot(policy), case.stream(5, batch_shape=batch_shape, seed=1)
        good = case.several(rounds, case.play(copy.deepcopy(policy), rounds))
        for name in good:
            for at in (0, 4):
                bad = good | {name: good[name].clone()}
                bad[name].select(len(batch_shape), at)[...] = -1 if name == "action" else torch.nan
                with pytest.raises(ValueError, match=f"^{name}: expected "):
                    policy.step(**bad)
                assert differences(before, snapshot(policy)) == [], name
        for each in (policy, twin):
            case.play(each, rounds)
        assert differences(snapshot(twin), snapshot(policy)) == []


@pytest.mark.slow
@pytest.mark.parametrize(("batch_shape", "rows"), [((), 1), ((), 4), ((2,), 1)])
@pytest.mark.parametrize("case", FEW, ids=str)
def test_an_interrupted_step_is_all_or_nothing(case: Case, batch_shape: tuple[int, ...], rows: int) -> None:
    """At every line: bit for bit the state before, or that after. Past and in the round that the scaler freezes in."""
    for count in (5, 9):
        policy, done = taught(case, count, batch_shape=batch_shape), taught(case, count, batch_shape=batch_shape)
        start, rounds = snapshot(policy), case.stream(rows, batch_shape=batch_shape, seed=1)
        index = [torch.full(batch_shape, t % 2) for t in range(rows)]
        given = case.arguments(rounds[0], index[0]) if rows == 1 else case.several(rounds, index)
        done.step(**given)
        after, line = snapshot(done), 0
        while interrupted(lambda p=policy, a=given: p.step(**a), line):
            now = snapshot(policy)
            assert differences(start, now) == [] or differences(after, now) == [], f"torn at line {line}"
            policy.load_state_dict(start)
            line += 1 if rows == 1 and batch_shape == () else 7
        assert line > 40
        assert differences(after, snapshot(policy)) == []


@pytest.mark.slow
@pytest.mark.parametrize("batch_shape", [(), (2,)])
@pytest.mark.parametrize("case", [case for case in FEW if case.name != "ridge"], ids=str)
def test_a_large_policy_undoes_an_interrupted_step(
    case: Case, batch_shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core, "SNAPSHOT_BYTES", 0)
    monkeypatch.setattr(disjoint, "SNAPSHOT_BYTES", 0)
    for count in (5, 9):
        policy, done = taught(case, count, batch_shape=batch_shape), taught(case, count, batch_shape=batch_shape)
        start, round_ = snapshot(policy), case.stream(1, batch_shape=batch_shape, seed=1)[0]
        index = torch.zeros(batch_shape, dtype=torch.int64)
        case.learn(done, round_, index)
        after, line = snapshot(done), 0
        while interrupted(lambda p=policy, r=round_, i=index: case.learn(p, r, i), line):
            now = snapshot(policy)
            assert differences(start, now) == [] or differences(after, now) == [], f"torn at {line}"
            policy.load_state_dict(start)
            line += 3
        assert line > 40
        assert differences(after, snapshot(policy)) == []


@every_case
def test_a_policy_may_be_fed_its_own_buffers(case: Case) -> None:
    if case.name in ("local", "floor"):  # which may refuse such rewards
        return
    policy, twin = taught(case), taught(case)
    own, theirs = policy.estimator, twin.estimator
    for arm in range(2):
        x, reward = own.V_inv.reshape(-1, own.dim, own.dim)[0, :, :DIM], own.theta_hat.reshape(-1)[: own.dim]
        copied = (
            theirs.V_inv.reshape(-1, own.dim, own.dim)[0, :, :DIM].clone(),
            theirs.theta_hat.reshape(-1)[: own.dim].clone(),
        )
        first, second = (rows if case.has_models else rows[:, None].expand(-1, ARMS, DIM) for rows in (x, copied[0]))
        policy.step(first, [arm] * own.dim, reward)
        twin.step(second, [arm] * own.dim, copied[1])
        assert differences(snapshot(twin), snapshot(policy)) == []


# Rule 3: the buffers are all that is learnt.


@every_case
def test_a_loaded_state_continues_bit_for_bit(case: Case) -> None:
    """From before the scaler freezes and from after, in both precisions."""
    for batch_shape in BATCH_SHAPES:
        for dtype in (torch.float64, torch.float32):
            for count in (3, 9) if dtype == D else (9,):
                policy, file = taught(case, count, batch_shape=batch_shape, dtype=dtype), io.BytesIO()
                torch.save(policy.state_dict(), file)
                file.seek(0)
                fresh = case.build(batch_shape=batch_shape, dtype=dtype)
                fresh.load_state_dict(torch.load(file, weights_only=True))
                rounds = case.stream(9, batch_shape=batch_shape, seed=1)
                assert all(map(same, case.play(policy, rounds), case.play(fresh, rounds)))
                assert differences(snapshot(policy), snapshot(fresh)) == []


@every_case
def test_copies_are_independent(case: Case) -> None:
    for batch_shape in BATCH_SHAPES:
        policy = taught(case, batch_shape=batch_shape)
        size, fresh = len(pickle.dumps(policy)), case.build(batch_shape=batch_shape)
        assert abs(size - len(pickle.dumps(fresh))) < 300
        before, rounds = snapshot(policy), case.stream(9, batch_shape=batch_shape, seed=1)
        copies = [copy.deepcopy(policy), pickle.loads(pickle.dumps(policy))]
        decisions = [case.play(each, rounds) for each in copies]
        assert differences(before, snapshot(policy)) == []
        own = case.play(policy, rounds)
        for each, theirs in zip(copies, decisions, strict=True):
            assert all(map(same, own, theirs))
            assert differences(snapshot(policy), snapshot(each)) == []
            assert repr(each) == repr(policy)


def test_a_file_holds_the_statistics_once() -> None:
    policy = ScaledPolicy(RidgeRegression(201), StandardScaler(200))
    alone = len(pickle.dumps(policy.estimator)) + len(pickle.dumps(policy.scaler))
    assert len(pickle.dumps(policy)) < 1.1 * alone
    arms = DisjointArms(RidgeRegression(100), 8)
    assert len(pickle.dumps(arms)) < 1.1 * (9 / 8) * len(pickle.dumps(arms.estimator))


@every_case
def test_buffers_are_written_in_place(case: Case) -> None:
    for batch_shape in BATCH_SHAPES:
        policy = case.build(batch_shape=batch_shape)
        before, start, rounds = addresses(policy), snapshot(policy), case.stream(8, batch_shape=batch_shape)
        case.play(policy, rounds)
        policy.step(**case.several(rounds, [torch.zeros(batch_shape, dtype=torch.int64)] * 8))
        assert differences(start, snapshot(policy)) != []
        policy.load_state_dict(start)
        policy.reset()
        with torch.inference_mode():
            case.play(policy, rounds)
        assert addresses(policy) == before
        assert not any(buffer.is_inference() for buffer in policy.buffers())


@every_case
def test_reset_forgets_everything(case: Case) -> None:
    for batch_shape in BATCH_SHAPES:
        policy, fresh = taught(case, batch_shape=batch_shape), case.build(batch_shape=batch_shape)
        policy.reset()
        assert differences(snapshot(fresh), snapshot(policy)) == []
        rounds = case.stream(9, batch_shape=batch_shape, seed=1)
        assert all(map(same, case.play(policy, rounds), case.play(fresh, rounds)))
        assert differences(snapshot(fresh), snapshot(policy)) == []


@every_case
def test_nothing_but_buffers_evolves(case: Case) -> None:
    policy = case.build()
    before = numbers(policy)
    case.play(policy, case.stream(12))
    assert numbers(policy) == before


@every_case
def test_a_state_of_other_options_is_refused(case: Case) -> None:
    policy = taught(case)
    before = snapshot(policy)
    part = next(name for name in before if name.endswith("theta_hat"))
    for blamed, state in (
        ("theta_hat: expected shape", case.build(batch_shape=(2,)).state_dict()),
        ("V_lost: expected no such entry", case.build(dtype=torch.float32).state_dict()),
        ("theta_hat: expected an entry", {name: value for name, value in before.items() if name != part}),
        ("theta_hat: expected numbers, got NaN", before | {part: before[part] * torch.nan}),
    ):
        with pytest.raises(RuntimeError, match=blamed):
            policy.load_state_dict(state)
        assert differences(before, snapshot(policy)) == []


# Rules 4 and 5: gradients, memory, cost.


@every_case
def test_no_gradient_enters(case: Case) -> None:
    for batch_shape in BATCH_SHAPES:
        policy, twin = case.build(batch_shape=batch_shape), case.build(batch_shape=batch_shape)
        rounds = case.stream(8, batch_shape=batch_shape)
        case.play(twin, rounds)
        graphs = [type(r)(*(Encoder.apply(v.clone().requires_grad_()) for v in vars(r).values())) for r in rounds]
        case.play(policy, graphs)
        policy(graphs[0].context)
        del graphs
        collect()
        assert len(Encoder.alive) == 0
        assert not any(buffer.requires_grad for buffer in policy.buffers())
        assert differences(snapshot(twin), snapshot(policy)) == []


@pytest.mark.slow
@pytest.mark.parametrize("case", FEW, ids=str)
def test_memory_is_flat(case: Case) -> None:
    policy, round_ = case.build(), case.stream(1)[0]
    index = torch.tensor(0)
    context = round_.context.clone().requires_grad_()

    def steps(count: int) -> int:
        for _ in range(count):
            policy.select(context)
            case.learn(policy, type(round_)(1.0 * context, round_.reward, round_.noise_scale), index)
        collect()
        return sys.getallocatedblocks()

    before = steps(200)
    assert steps(1000) - before < 100


@pytest.mark.slow
@pytest.mark.parametrize(("case", "batch_shape"), [(FEW[0], ()), (FEW[1], (2,)), (FEW[3], ()), (FEW[4], ())])
def test_cost_does_not_depend_on_the_round(case: Case, batch_shape: tuple[int, ...]) -> None:
    """A window of rounds calls and runs the same after the early rounds and after 600."""
    policy, contexts = case.build(batch_shape=batch_shape), torch.randn(WINDOW, *batch_shape, ARMS, DIM, dtype=D)
    reward, action = torch.full(batch_shape, 0.1, dtype=D), torch.zeros(batch_shape, dtype=torch.int64)

    def window(count: int = WINDOW) -> None:
        for context in contexts[:count]:
            inputs = context[..., 0, :] if case.has_models else context
            policy.select(inputs)
            policy.step(inputs, action, reward)

    def cost() -> Counter[str]:
        return calls(window) + operations(window)

    for _ in range(2 * KEPT // WINDOW):
        window()
    window(10)
    early = cost()
    for _ in range(15):
        window()
    window(22)
    assert cost() == early


# Rule 6: types.


@every_case
def test_inputs_are_converted_to_the_state(case: Case) -> None:
    for batch_shape in BATCH_SHAPES:
        for state in (torch.float64, torch.float32):
            for given in (torch.float64, torch.float32, torch.bfloat16):
                policy, twin = (case.build(batch_shape=batch_shape, dtype=state) for _ in range(2))
                rounds = [round_.to(given) for round_ in case.stream(5, batch_shape=batch_shape)]
                decisions = case.play(policy, rounds)
                assert all(map(same, decisions, case.play(twin, [round_.to(state) for round_ in rounds])))
                assert differences(snapshot(twin), snapshot(policy)) == []
                assert policy(rounds[0].context).dtype == state


@pytest.mark.parametrize("case", FEW, ids=str)
def test_single_precision_follows_double(case: Case) -> None:
    single, double = case.build(dtype=torch.float32), case.build()
    for t, round_ in enumerate(case.stream(30)):
        for policy in (single, double):
            case.learn(policy, round_.to(torch.float32), torch.tensor(t % 2))
    for name, value in snapshot(double).items():
        torch.testing.assert_close(single.state_dict()[name], value, rtol=2e-3, atol=2e-3, check_dtype=False)


@every_case
def test_half_precision_is_refused_and_autocast_does_not_reach(case: Case) -> None:
    round_ = case.stream(1)[0]
    for policy in (case.build().half(), case.build().bfloat16()):
        before = snapshot(policy)
        for call in (
            lambda p=policy: case.learn(p, round_, torch.tensor(0)),
            lambda p=policy: p.select(round_.context),
        ):
            with pytest.raises(ValueError, match="dtype"):
                call()
        assert differences(before, snapshot(policy)) == []
    for batch_shape in BATCH_SHAPES:
        policy, twin = (case.build(batch_shape=batch_shape, dtype=torch.float32) for _ in range(2))
        rounds = [each.to(torch.float32) for each in case.stream(8, batch_shape=batch_shape)]
        theirs = case.play(twin, rounds)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert all(map(same, case.play(policy, rounds), theirs))
        assert differences(snapshot(twin), snapshot(policy)) == []


# Rule 7: batches, and several rounds.


@pytest.mark.slow
@every_case
@pytest.mark.parametrize("batch_shape", [(2,), (2, 3)])
def test_a_batch_equals_singles(case: Case, batch_shape: tuple[int, ...]) -> None:
    batched, members = case.build(batch_shape=batch_shape), list(np.ndindex(*batch_shape))
    singles = {member: case.build() for member in members}
    for t, round_ in enumerate(case.stream(10, batch_shape=batch_shape)):
        torch.manual_seed(t)
        index = batched.select(round_.context)
        scores, chances = batched(round_.context), batched.probabilities(round_.context)
        for member in members:
            own = round_.of(member)
            if case.is_random != "scores":
                close(singles[member](own.context), scores[member])
                close(singles[member].probabilities(own.context), chances[member])
            case.learn(singles[member], own, index[member])
        case.learn(batched, round_, index)
    whole = snapshot(batched)
    for member in members:
        for name, value in snapshot(singles[member]).items():
            close(value, whole[name][member] if whole[name].dim() > value.dim() else whole[name])


@every_case
def test_several_rounds_equal_one_by_one(case: Case) -> None:
    for batch_shape in BATCH_SHAPES:
        at_once, in_turn = case.build(batch_shape=batch_shape), case.build(batch_shape=batch_shape)
        rounds = case.stream(9, batch_shape=batch_shape)
        indices = [torch.randint(2, batch_shape) for _ in rounds]
        given = case.several(rounds, indices)
        at_once.step(**given)
        for round_, index in zip(rounds, indices, strict=True):
            case.learn(in_turn, round_, index)
        for name, value in snapshot(in_turn).items():
            close(snapshot(at_once)[name], value, 1e-12)
        before = snapshot(at_once)
        at_once.step(**{name: value.narrow(len(batch_shape), 0, 0) for name, value in given.items()})
        assert differences(before, snapshot(at_once)) == []
        assert bool((at_once.rounds == 9).all())


# Rule 8: files.


@pytest.mark.slow
@every_case
def test_script_agrees_with_eager(case: Case) -> None:
    """A hundred rounds (20 of some batches), half from a saved file; masks, several rounds, and a state that goes back."""
    for batch_shape in BATCH_SHAPES if case in FEW else BATCH_SHAPES[:1]:
        policy = case.build(batch_shape=batch_shape)
        # A copy: a scripted module shares the buffers of its original.
        script: Any = copy.deepcopy(torch.jit.script(policy))
        for seed in (0, 1):
            rounds = case.stream(10 if batch_shape else 50, batch_shape=batch_shape, seed=seed)
            assert all(map(same, case.play(policy, rounds), case.play(script, rounds)))
            for name, value in state_of_script(script, policy).items():
                close(value, snapshot(policy)[name])
            for each in (policy, script):
                each.step(**case.several(rounds[:4], [torch.zeros(batch_shape, dtype=torch.int64)] * 4))
            context, seen = rounds[0].context, []
            mask = torch.ones(policy(context).shape, dtype=torch.bool)
            mask[..., 0] = False
            for each in (policy, script):
                torch.manual_seed(3)
                seen.append(
                    (
                        each(context),
                        each.select(context, mask),
                        each.probabilities(context, mask),
                        *each.select_with_probability(context),
                    )
                )
            for mine, theirs in zip(*seen, strict=True):
                close(mine, theirs)
            file = io.BytesIO()
            torch.jit.save(script, file)
            file.seek(0)
            script = torch.jit.load(file)
        assert not any(buffer.requires_grad for buffer in script.buffers())
        fresh = case.build(batch_shape=batch_shape)
        fresh.load_state_dict(script.state_dict())
        assert differences(state_of_script(script, policy), snapshot(fresh)) == []


@pytest.mark.slow
@pytest.mark.parametrize(("case", "batch_shape"), [(FEW[1], ()), (FEW[3], (2,)), (FEW[6], (2,))])
def test_programs_agree_over_100_rounds(case: Case, batch_shape: tuple[int, ...]) -> None:
    """`to_program` verifies 60 rounds or so itself; here a hundred more, of other features."""
    policy = case.build(batch_shape=batch_shape)
    program = to_program(policy).module()
    rounds = case.stream(100, batch_shape=batch_shape)
    learn, choice, past = torch.zeros(batch_shape, dtype=torch.bool), None, rounds[0]
    for t, round_ in enumerate(rounds):
        sizes = (policy(round_.context).shape[-1],)
        mask = torch.ones(*batch_shape, 1, *sizes, dtype=torch.bool)
        many = round_.context.unsqueeze(len(batch_shape))
        index = torch.zeros(batch_shape, dtype=torch.int64) if choice is None else choice
        given = (past.context, index, past.reward, learn, many, mask)
        if t:
            case.learn(
                policy, type(past)(past.context, past.reward, torch.full_like(past.reward, policy.noise_scale)), index
            )
        chosen, learnt = program(*given)
        assert torch.equal(learnt, learn)
        chosen = chosen.squeeze(-1)
        choice = policy.select(round_.context)
        assert torch.equal(chosen, choice), t
        learn, past = torch.ones(batch_shape, dtype=torch.bool), round_


@pytest.mark.slow
def test_files_verify_themselves() -> None:
    for case in FEW[1:4:2]:
        policy = taught(case)
        before = snapshot(policy)
        file: Any = to_torchscript(policy)
        assert differences(before, state_of_script(file, policy)) == []
        assert differences(before, snapshot(policy)) == []


# Rules 10 to 12: devices, people's values, threads.


@pytest.mark.slow
@every_case
def test_runs_on_a_device_of_its_own(case: Case) -> None:
    assert fake_device.failures(str(case)) == []


@every_case
def test_is_made_without_values(case: Case) -> None:
    names = dict(case.build().named_buffers()).keys()
    for place in (torch.device("meta"), FakeTensorMode()):
        with place:
            assert dict(case.build().named_buffers()).keys() == names
    with torch.device("meta"):
        empty = case.build()
    assert not any(value.is_cpu for value in empty.state_dict().values())


@every_case
def test_people_s_values_are_welcome(case: Case) -> None:
    """Numbers, lists and NumPy arrays do what tensors do."""
    ways: list[Any] = [Tensor.numpy, Tensor.tolist, lambda value: value.numpy().astype(object).tolist()]
    for batch_shape in BATCH_SHAPES:
        wanted, rounds = taught(case, 5, batch_shape=batch_shape), case.stream(5, batch_shape=batch_shape)
        decisions = case.play(case.build(batch_shape=batch_shape), rounds)
        for way in ways:
            policy = case.build(batch_shape=batch_shape)
            for t, (round_, index) in enumerate(zip(rounds, decisions, strict=True)):
                torch.manual_seed(t)
                assert torch.equal(policy.select(way(round_.context)), index)
                policy.step(**{name: way(value) for name, value in case.arguments(round_, index).items()})
            assert differences(snapshot(wanted), snapshot(policy)) == []


def test_threads_lose_no_round() -> None:
    for case in FEW:
        policy, rounds = case.build(), case.stream(50)

        def learn(policy: Any = policy, rounds: Any = rounds, case: Case = case) -> None:
            for round_ in rounds:
                case.learn(policy, round_, policy.select(round_.context))
                policy(round_.context)

        def copies(policy: Any = policy) -> None:
            for _ in range(20):
                twin = copy.deepcopy(policy)
                frozen = 0 if twin.scaler is None or twin.scaler.freeze_after is None else 6
                assert int(twin.estimator.rounds.sum()) in (int(twin.rounds), int(twin.rounds) - frozen)

        together(learn, learn, learn, copies)
        assert int(policy.rounds) == 150


def test_moving_works() -> None:
    """Types and back; views follow the new memory."""
    for case in FEW:
        policy, twin = taught(case), taught(case)
        policy.to(torch.float32)
        case.play(policy, case.stream(3))
        assert all(v.dtype in (torch.float32, torch.int64) for n, v in snapshot(policy).items() if "constants" not in n)
        policy.to(torch.float64).load_state_dict(twin.state_dict())
        rounds = case.stream(5, seed=1)
        assert all(map(same, case.play(policy, rounds), case.play(twin, rounds)))
        assert differences(snapshot(twin), snapshot(policy)) == []


def test_wrong_parts_are_named() -> None:
    scaler, ridge = StandardScaler(3), RidgeRegression(4)
    wrong: list[tuple[str, Any]] = [
        ("policy", lambda: ScaledPolicy(None, scaler)),
        ("policy", lambda: ScaledPolicy(nn.Linear(3, 1), scaler)),
        ("policy", lambda: ScaledPolicy(ScaledPolicy(ridge, scaler), scaler)),
        ("scaler", lambda: ScaledPolicy(ridge, None)),
        ("scaler", lambda: ScaledPolicy(ridge, StandardScaler(4))),
        ("scaler", lambda: ScaledPolicy(ridge, StandardScaler(3, batch_shape=(2,)))),
        ("scaler", lambda: ScaledPolicy(ridge, StandardScaler(3, dtype=torch.float32))),
        ("scaler", lambda: ScaledPolicy(ridge, StandardScaler(3, device="meta"))),
        ("policy", lambda: DisjointArms(None, 3)),
        ("policy", lambda: DisjointArms("OFUL", 3)),
        ("scaler", lambda: DisjointArms(ridge, 3, scaler=nn.Linear(3, 4))),
        ("scaler", lambda: DisjointArms(ridge, 3, scaler=StandardScaler(4))),
        *(("actions", lambda k=k: DisjointArms(ridge, k)) for k in (0, -1, 1.5, True, "3", None, torch.tensor(3))),
        *(("most_actions", lambda k=k: DisjointArms(ridge, 3, most_actions=k)) for k in (0, 2, 2.5, True, "3")),
    ]
    for name, make in wrong:
        with pytest.raises((TypeError, ValueError), match=f"^{name}: expected "):
            make()
    policy = ScaledPolicy(ridge, scaler)
    for name in ("policy", "scaler"):
        with pytest.raises(AttributeError, match=f"^{name}: expected "):
            setattr(policy, name, None)


# Logs: all of the rules, for `learn`.


def log_of(case: Case, count: int = 13, batch_shape: tuple[int, ...] = (), seed: int = 0) -> dict[str, Tensor]:
    """What `learn` gets: rounds of the usual stream, of arms that are drawn."""
    rounds = case.stream(count, batch_shape=batch_shape, seed=seed)
    return case.several(rounds, [torch.randint(2, batch_shape) for _ in rounds])


def part(log: dict[str, Tensor], at: int, first: int, last: int | None) -> dict[str, Tensor]:
    return {name: value.movedim(at, 0)[first:last].movedim(0, at) for name, value in log.items()}


@every_case
def test_logs_are_learnt_in_order_while_features_move(case: Case) -> None:
    """Bit for bit what `step` learns: without blocks, while a scaler moves, and by masters, which credit each round."""
    for batch_shape in BATCH_SHAPES:
        for size in (None, 4):
            policy, twin = case.build(batch_shape=batch_shape), case.build(batch_shape=batch_shape)
            log, at = log_of(case, batch_shape=batch_shape), len(batch_shape)
            frozen = None if policy.scaler is None else policy.scaler.freeze_after
            in_order = 13 if not policy.has_blocks or (policy.scaler is not None and frozen is None) else frozen or 0
            policy.learn(**part(log, at, 0, in_order), block_size=size)
            twin.step(**part(log, at, 0, in_order))
            assert differences(snapshot(twin), snapshot(policy)) == []
            # From the freeze on, one call does what calls from there on do.
            whole = case.build(batch_shape=batch_shape)
            whole.learn(**log, block_size=size)
            policy.learn(**part(log, at, in_order, None), block_size=size)
            for name, value in snapshot(whole).items():
                close(value, snapshot(policy)[name], 1e-12)
            assert bool((whole.rounds == 13).all())
            assert whole.scaler is None or bool((whole.scaler.rounds == 13).all())
            before = snapshot(whole)
            whole.learn(**part(log, at, 0, 0), block_size=size)
            assert differences(before, snapshot(whole)) == []


@pytest.mark.slow
@every_case
def test_a_bad_row_in_the_last_block_changes_nothing(case: Case) -> None:
    for batch_shape in BATCH_SHAPES:
        policy, twin = taught(case, batch_shape=batch_shape), taught(case, batch_shape=batch_shape)
        before, good = snapshot(policy), log_of(case, batch_shape=batch_shape, seed=1)
        for name in good:
            bad = good | {name: good[name].clone()}
            bad[name].select(len(batch_shape), -1)[...] = -1 if name == "action" else torch.nan
            with pytest.raises(ValueError, match=f"^{name}: expected "):
                policy.learn(**bad, block_size=3)
            assert differences(before, snapshot(policy)) == [], name
        for each in (policy, twin):
            each.learn(**good, block_size=3)
        assert differences(snapshot(twin), snapshot(policy)) == []


@pytest.mark.slow
@every_case
def test_bad_logs_are_refused_by_name(case: Case) -> None:
    for batch_shape in BATCH_SHAPES:
        policy, wrong = taught(case, batch_shape=batch_shape), []
        before, log = snapshot(policy), log_of(case, batch_shape=batch_shape)
        for rows in ((), (3,)):
            for kind, name, arguments in bad_steps(case, batch_shape, rows):
                label = f"{name} {kind} {batch_shape} {rows}"
                wrong += complaint(label, name, lambda a=arguments, on=policy: on.learn(**a, block_size=2))
        for size in (0, -1, True, 2.5, "3"):
            wrong += complaint(f"{size!r}", "block_size", lambda n=size, on=policy, a=log: on.learn(**a, block_size=n))
        assert wrong == []
        assert differences(before, snapshot(policy)) == []


@pytest.mark.slow
@every_case
def test_logs_may_lie_in_a_policy_s_own_memory(case: Case) -> None:
    """Also the counts of rounds, which are integers as indices of arms are."""
    if case.name in ("local", "floor"):  # which may refuse such rewards
        return
    policy, twin = taught(case), taught(case)
    if isinstance(policy, SharedRadiusSelector):  # a row has all arms of a decision
        return
    rows = len(policy.estimator.theta_hat.reshape(-1)[:DIM])
    for each, copied in ((policy, Tensor.detach), (twin, Tensor.clone)):
        own = each.estimator
        x = copied(own.V_inv.reshape(-1, own.dim, own.dim)[0, :rows, :DIM])
        reward = copied(own.theta_hat.reshape(-1)[:rows])
        counts = own.rounds.reshape(-1)[:rows]
        counts.clamp_(0, ARMS - 1)
        if case.has_models:
            each.learn(x, copied(counts), reward, block_size=1)
        else:
            each.learn(x.unsqueeze(-2), [0] * rows, reward, block_size=1)
    assert differences(snapshot(twin), snapshot(policy)) == []


@pytest.mark.slow
@every_case
def test_a_loaded_state_learns_logs_bit_for_bit(case: Case) -> None:
    for batch_shape in BATCH_SHAPES:
        for dtype in (torch.float64, torch.float32):
            policy, fresh = (case.build(batch_shape=batch_shape, dtype=dtype) for _ in range(2))
            policy.learn(**log_of(case, batch_shape=batch_shape), block_size=5)
            where = addresses(policy)
            fresh.load_state_dict(policy.state_dict())
            others = [fresh, copy.deepcopy(policy), pickle.loads(pickle.dumps(policy))]
            log = log_of(case, batch_shape=batch_shape, seed=1)
            for each in (policy, *others):
                each.learn(**log)
            assert all(differences(snapshot(policy), snapshot(each)) == [] for each in others)
            assert addresses(policy) == where
            policy.reset()
            assert differences(snapshot(case.build(batch_shape=batch_shape, dtype=dtype)), snapshot(policy)) == []


@pytest.mark.slow
@every_case
def test_logs_of_people_graphs_and_other_types_are_welcome(case: Case) -> None:
    """Arrays, lists, graphs and other types do what tensors do; autocast stays outside; half precision is refused."""
    ways: list[Any] = [Tensor.numpy, Tensor.tolist, lambda value: value.numpy()[::-1].copy()[::-1]]
    log, wanted = log_of(case), case.build()
    wanted.learn(**log, block_size=4)
    for way in ways:
        policy = case.build()
        policy.learn(**{name: way(value) for name, value in log.items()}, block_size=4)
        assert differences(snapshot(wanted), snapshot(policy)) == []
    policy = case.build()
    policy.learn(
        **{name: value.requires_grad_() * 1.0 if value.is_floating_point() else value for name, value in log.items()},
        block_size=4,
    )
    assert differences(snapshot(wanted), snapshot(policy)) == []
    assert not any(buffer.requires_grad for buffer in policy.buffers())
    single = {name: value.detach().float() if name != "action" else value for name, value in log.items()}
    for state in (torch.float64, torch.float32):
        policy, twin = case.build(dtype=state), case.build(dtype=state)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            policy.learn(**single, block_size=4)
        twin.learn(
            **{name: value.to(state) if name != "action" else value for name, value in single.items()}, block_size=4
        )
        assert differences(snapshot(twin), snapshot(policy)) == []
    with pytest.raises(ValueError, match="dtype"):
        case.build().half().learn(**log)


@pytest.mark.slow
@every_case
@pytest.mark.parametrize("batch_shape", [(2,), (2, 3)])
def test_a_log_of_a_batch_is_so_many_logs(case: Case, batch_shape: tuple[int, ...]) -> None:
    batched, log = case.build(batch_shape=batch_shape), log_of(case, batch_shape=batch_shape)
    batched.learn(**log, block_size=4)
    whole = snapshot(batched)
    for member in np.ndindex(*batch_shape):
        single = case.build()
        single.learn(**{name: value[member] for name, value in log.items()}, block_size=4)
        for name, value in snapshot(single).items():
            close(value, whole[name][member] if whole[name].dim() > value.dim() else whole[name])


@pytest.mark.slow
@pytest.mark.parametrize("case", FEW, ids=str)
def test_script_learns_logs_like_eager(case: Case) -> None:
    for batch_shape in BATCH_SHAPES:
        policy = case.build(batch_shape=batch_shape)
        script: Any = copy.deepcopy(torch.jit.script(policy))
        for seed, size in enumerate((None, 4, None, 1000)):
            log = log_of(case, 30, batch_shape, seed)
            policy.learn(**log, block_size=size)
            script.learn(*log.values(), size)
            for name, value in state_of_script(script, policy).items():
                close(value, snapshot(policy)[name], 1e-8)
        script.learn(*log.values(), 0)
        assert bool((script.rounds == 150).all())


@pytest.mark.slow
@pytest.mark.parametrize("batch_shape", [(), (2,)])
@pytest.mark.parametrize("case", FEW, ids=str)
def test_an_interrupted_log_is_all_or_nothing(case: Case, batch_shape: tuple[int, ...]) -> None:
    """Across the freeze of the scaler, and in blocks."""
    policy, done = taught(case, 4, batch_shape=batch_shape), taught(case, 4, batch_shape=batch_shape)
    start, log = snapshot(policy), log_of(case, 9, batch_shape, 1)
    done.learn(**log, block_size=3)
    after, line = snapshot(done), 0
    step = max(1, lines_of(lambda: copy.deepcopy(policy).learn(**log, block_size=3)) // 80)
    while interrupted(lambda: policy.learn(**log, block_size=3), line):
        now = snapshot(policy)
        assert differences(start, now) == [] or differences(after, now) == [], f"torn at line {line}"
        policy.load_state_dict(start)
        line += step
    assert line > 60
    assert differences(after, snapshot(policy)) == []
