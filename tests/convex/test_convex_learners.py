"""What every public convex learner promises: the ten rules of the contract, in eager mode, TorchScript and exported programs."""

import contextlib
import copy
import functools
import inspect
import io
import itertools
import pickle
import re
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.bad_arguments import BAD_OPTIONS, bad_preparations, bad_rounds, complaint
from tests.contract.matrix import CONVEX_EXEMPTIONS, CONVEX_RULES, Rule, convex_rule, pairs
from tests.convex_learners import (
    BATCH_SHAPES,
    CASES,
    CLASSES,
    LAYOUTS,
    OTHERS,
    VARIANTS,
    ConvexCase,
    learn,
    play,
    prepare,
    required,
)
from tests.convex_toys import Descent
from tests.fake_device import failures
from tests.learners import close, differences, same, snapshot, snapshot_of_script, takes_none
from torchonline import OONS, DivergenceWarning, FreeGrad
from torchonline.core.undo_journal import MOST_ROUNDS
from torchonline.export import to_program, to_torchscript
from torchonline.export.programs import ConvexRound
from torchonline.export.verification import ConvexTrial, undetermined
from torchonline.testing.gradients_and_cost import Encoder, calls, collect, operations
from torchonline.testing.state import addresses
from torchonline.testing.subject import numbers_of as numbers
from torchonline.testing.torchscript import saved_and_loaded
from torchonline.testing.types import INPUT_TYPES, STATE_TYPES

rule = convex_rule
NAMES = ("gradients", "values")


def taught(case: ConvexCase, count: int = 12, **common: Any) -> Any:
    """A learner that has seen some rounds."""
    learner = case.build(**common)
    play(learner, case.stream(count, learner.batch_shape))
    return learner


def round_of(case: ConvexCase, learner: Any, seed: int = 0) -> dict[str, Tensor]:
    """What ``step`` takes, by the names that errors use, of one loss more."""
    (loss,) = case.stream(1, learner.batch_shape, seed)
    return dict(zip((learner.response, "values"), loss.gradients(learner.queries()), strict=True))


def alike(learner: Any, state: dict[str, Tensor]) -> None:
    """All that the rounds determine of a learner's state is that of another."""
    loose = undetermined(learner)
    for name, value in learner.state().items():
        assert value.shape == state[name].shape
        if name not in loose:
            close(value, state[name])


def refusal(learner: Any, *arguments: Any) -> str | None:
    """Why a step is refused, if it is."""
    try:
        learner.step(*arguments)
    except ValueError as error:
        return str(error)
    return None


@rule(1, quick=True)
def looking_changes_nothing(case: ConvexCase) -> None:
    """The decision and the queries leave every buffer bit-equal, and so does what is done to what was seen."""
    for batch_shape in BATCH_SHAPES:
        for count in (0, 12):
            learner = taught(case, count, batch_shape=batch_shape)
            before = snapshot(learner)
            decision, queries = learner.predict(), learner.queries()
            assert decision.shape == (*batch_shape, learner.dim)
            assert queries.shape == (*batch_shape, learner.points, learner.dim)
            assert all(same(decision, again) for again in (learner.predict(), learner(), learner.decision))
            assert same(queries, learner.queries())
            repr(learner)
            for value in (decision, queries, learner()):
                value.fill_(torch.nan)
            assert differences(before, snapshot(learner)) == []


@rule(2, quick=True)
def a_refused_step_changes_nothing(case: ConvexCase) -> None:
    """NaN and infinity, in one number of one learner, leave every buffer bit-equal; what follows is as if nothing had been."""
    for layout in LAYOUTS:
        learner, twin = taught(case, **layout), taught(case, **layout)
        before = snapshot(learner)
        for name in (learner.response, "values") if learner.needs_values else (learner.response,):
            for bad in (torch.nan, torch.inf, -torch.inf):
                arguments = round_of(case, learner)
                arguments[name].view(-1)[-1] = bad
                with pytest.raises(ValueError, match=f"^{name}: expected finite values, got"):
                    learner.step(*arguments.values())
                assert differences(before, snapshot(learner)) == []
        losses = case.stream(12, learner.batch_shape, seed=1)
        assert all(map(same, play(learner, losses), play(twin, losses)))
        assert differences(snapshot(twin), snapshot(learner)) == []


@rule(2)
def any_length_is_refused_or_learnt(case: ConvexCase) -> None:
    """Gradients of 1e-300 to 1e100: what is not refused by name leaves finite numbers, and can be learnt on from."""
    for layout in LAYOUTS:
        for size in (0.0, 1e-300, 1e-100, 1e-30, 1e30, 1e100):
            learner = taught(case, 3, **layout)
            limits = {name for name, value in snapshot(learner).items() if not bool(torch.isfinite(value).all())}
            for _ in range(2):
                before = snapshot(learner)
                why = refusal(learner, *(value * size for value in round_of(case, learner).values()))
                if why is not None:
                    assert why.startswith((f"{learner.response}: expected", "values: expected"))
                    assert differences(before, snapshot(learner)) == []
                learn(learner, case.stream(1, learner.batch_shape, seed=1)[0])
                strange = {name for name, value in snapshot(learner).items() if not bool(torch.isfinite(value).all())}
                assert strange <= limits, size


@rule(2)
def a_learner_may_be_fed_its_own_buffers(case: ConvexCase) -> None:
    """What lies in the memory that a step writes means what it was when it was called."""
    for layout in LAYOUTS:
        learner, twin = taught(case, **layout), taught(case, **layout)
        for name, buffer in learner.state().items():
            arguments = round_of(case, learner)
            for kind in arguments if learner.needs_values else (learner.response,):
                if not buffer.is_floating_point() or buffer.numel() != arguments[kind].numel():
                    continue
                theirs = arguments | {kind: twin.state()[name].clone().view(arguments[kind].shape)}
                own = arguments | {kind: buffer.view(arguments[kind].shape)}
                assert refusal(twin, *theirs.values()) == refusal(learner, *own.values())
                assert differences(snapshot(twin), snapshot(learner)) == [], name
            if hasattr(learner, "set_hint") and buffer.is_floating_point() and buffer.shape == learner.decision.shape:
                twin.set_hint(twin.state()[name].clone())
                learner.set_hint(buffer)
                assert differences(snapshot(twin), snapshot(learner)) == [], name
        learner.step(*round_of(case, learner).values())
        assert differences(snapshot(twin), snapshot(learner)) != []


@rule(3, quick=True)
def a_loaded_state_continues_bit_for_bit(case: ConvexCase) -> None:
    """state_dict, through a file, into a fresh learner: the same decisions and the same bits from there on."""
    for layout in LAYOUTS:
        for dtype in STATE_TYPES:
            learner = taught(case, dtype=dtype, **layout)
            file = io.BytesIO()
            torch.save(learner.state_dict(), file)
            file.seek(0)
            fresh = case.build(dtype=dtype, **layout)
            fresh.load_state_dict(torch.load(file, weights_only=True))
            losses = case.stream(12, learner.batch_shape, seed=1)
            assert all(map(same, play(learner, losses), play(fresh, losses)))
            assert differences(snapshot(learner), snapshot(fresh)) == []


@rule(3)
def copies_are_independent(case: ConvexCase) -> None:
    """A deepcopy and a pickle go on like the original and leave it alone."""
    for layout in LAYOUTS:
        learner = taught(case, **layout)
        # What is made from the buffers, to reach them faster, is not copied: it would reach the wrong ones.
        assert abs(len(pickle.dumps(learner)) - len(pickle.dumps(case.build(**layout)))) < 100
        before, losses = snapshot(learner), case.stream(12, learner.batch_shape, seed=1)
        copies = [copy.deepcopy(learner), pickle.loads(pickle.dumps(learner))]
        decisions = [play(each, losses) for each in copies]
        assert differences(before, snapshot(learner)) == []
        own = play(learner, losses)
        for each, theirs in zip(copies, decisions, strict=True):
            assert all(map(same, own, theirs))
            assert differences(snapshot(learner), snapshot(each)) == []


@rule(3)
def buffers_are_written_in_place(case: ConvexCase) -> None:
    """Steps, resets and loads keep each buffer's object and memory, and what is served in inference mode is ordinary."""
    for layout in LAYOUTS:
        learner = case.build(**layout)
        where, start = addresses(learner), snapshot(learner)
        losses = case.stream(12, learner.batch_shape)
        play(learner, losses)
        assert differences(start, snapshot(learner)) != []
        learner.load_state_dict(start)
        play(learner, losses)
        learner.reset()
        with torch.inference_mode():
            play(learner, losses)
        assert addresses(learner) == where
        assert not any(buffer.is_inference() for buffer in learner.buffers())
        assert differences(snapshot(taught(case, **layout)), snapshot(learner)) == []


@rule(3)
def reset_forgets_everything(case: ConvexCase) -> None:
    """After a reset, a learner cannot be told from a new one."""
    for layout in LAYOUTS:
        learner, fresh = taught(case, **layout), case.build(**layout)
        learner.reset()
        assert differences(snapshot(fresh), snapshot(learner)) == []
        losses = case.stream(12, learner.batch_shape, seed=1)
        assert all(map(same, play(learner, losses), play(fresh, losses)))
        assert differences(snapshot(fresh), snapshot(learner)) == []


@rule(3)
def nothing_but_buffers_evolves(case: ConvexCase) -> None:
    """No plain number of a learner changes as it learns: a state_dict would lose it. The rounds are counted."""
    for layout in LAYOUTS:
        learner = case.build(**layout)
        before, constants = numbers(learner), tensors(learner)
        play(learner, case.stream(20, learner.batch_shape))
        assert numbers(learner) == before
        assert differences(constants, tensors(learner)) == []
        assert learner.rounds.dtype == torch.int64
        assert learner.rounds.shape == learner.batch_shape
        assert learner.rounds.flatten().tolist() == [20] * learner.rounds.numel()


def tensors(learner: nn.Module) -> dict[str, Tensor]:
    """Copies of the tensors that a learner and its parts hold besides their buffers."""
    plain = ((path, name, x) for path, module in learner.named_modules() for name, x in vars(module).items())
    return {f"{path}.{name}": value.clone() for path, name, value in plain if isinstance(value, Tensor)}


def foreign_states(case: ConvexCase) -> dict[str, dict[str, Any]]:
    """States that a learner of a case must refuse, as a whole."""
    own = snapshot(taught(case, 5))
    learner = case.build()
    entry = dict(case.build(batch_shape=(3,)).state_dict())
    kinds: dict[str, dict[str, Any]] = {
        "of a batch": entry,
        "with a name too many": own | {"strange": torch.zeros(1)},
        "with a part too many": own | {"strange.decision": torch.zeros(1)},
        "of no tensor": own | {"decision": [0.0] * learner.dim},
        "of integers": own | {"decision": own["decision"].long()},
        "of two rounds counts": own | {"rounds": own["rounds"].double()},
    }
    kinds |= {f"without {name}": {key: x for key, x in own.items() if key != name} for name in own}
    for part in learner.parts():
        inside = {name for name in own if name.startswith(f"{part}.")}
        kinds[f"without {part}"] = {name: x for name, x in own.items() if name not in inside}
        kinds[f"only {part}"] = {name: x for name, x in own.items() if name in inside}
        kinds[f"with a name too many in {part}"] = own | {f"{part}.strange": torch.zeros(1)}
    for name, value in ((name, value) for name, values in OTHERS.items() for value in values):
        if name in inspect.signature(case.cls).parameters and value != case.value_of(name):
            # A class has not all presets, and a hint that is a tensor has the dimension of its learner.
            with contextlib.suppress(ValueError):
                kinds[f"of {name}={value}"] = snapshot(case.build(**{name: value}))
    return kinds


@rule(3)
def a_state_of_other_options_is_refused(case: ConvexCase) -> None:
    """Statistics mean nothing under other options, or in part: loading them raises and changes nothing, not even a part."""
    learner = taught(case)
    before, accepted = snapshot(learner), []
    for kind, state in foreign_states(case).items():
        try:
            learner.load_state_dict(state)
        except RuntimeError:
            assert differences(before, snapshot(learner)) == [], kind
        else:
            accepted.append(kind)
            learner.load_state_dict(before)
    assert accepted == []
    # A refused load leaves nothing behind that the next one would trip over.
    fresh = case.build()
    with pytest.raises(RuntimeError):
        fresh.load_state_dict(snapshot(case.build(batch_shape=(3,))))
    fresh.load_state_dict(before)
    assert differences(before, snapshot(fresh)) == []


@rule(4)
def no_gradient_enters(case: ConvexCase) -> None:
    """Fed from a graph, a learner keeps none of it and learns the same as without."""
    for layout in LAYOUTS:
        learner, twin = case.build(**layout), case.build(**layout)
        for loss in case.stream(12, learner.batch_shape):
            learn(twin, loss)
            hint = None if loss.hint is None else Encoder.apply(loss.hint.clone().requires_grad_())
            prepare(learner, replace(loss, hint=hint))
            fed = [Encoder.apply(value.requires_grad_()) for value in loss.gradients(learner.queries())]
            learner.step(*fed)
            assert not any(look.requires_grad for look in (learner.predict(), learner.queries()))
        del fed, hint
        collect()
        assert len(Encoder.alive) == 0
        assert [name for name, buffer in learner.named_buffers() if buffer.requires_grad] == []
        assert differences(snapshot(twin), snapshot(learner)) == []


@rule(4)
def memory_is_flat(case: ConvexCase) -> None:
    """Hundreds of steps fed with tensors that require grad leave no more behind than Python's own free lists."""
    learner = case.build()
    fed = [value.requires_grad_() for value in case.stream(1)[0].gradients(learner.queries())]

    def steps(number: int) -> int:
        """Learn, and count the blocks of memory that Python holds afterwards."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DivergenceWarning)  # gradients that turn each time are against a decision
            for step in range(number):
                learner.step(*(0.1 * (-1) ** step * value for value in fed))
        collect()
        return sys.getallocatedblocks()

    held = [steps(200) for _ in range(4)]
    # A step that keeps something keeps a block at least. What is made once, in the first round of its kind, is no growth.
    assert min(after - before for before, after in itertools.pairwise(held)) < 100


@rule(5)
def cost_does_not_depend_on_the_round(case: ConvexCase) -> None:
    """A window of rounds calls and runs nothing after 200 rounds that it does not after 10, and no more often."""
    for layout in LAYOUTS[::2]:
        learner = case.build(validate=False, **layout)
        generator = torch.Generator(torch.get_default_device()).manual_seed(0)

        def rounds(number: int, learner: Any = learner, generator: Any = generator) -> None:
            # Short ones that cancel: to bring an iterate back into its domain is the one thing that costs when it happens.
            for _ in range(number // 2):
                shape = (*learner.batch_shape, learner.points, learner.dim)
                gradients = 0.01 * torch.randn(shape, generator=generator, dtype=torch.float64)
                for sign in (1.0, -1.0):
                    learner.predict()
                    learner.queries()
                    learner.step(sign * gradients, sign * gradients[..., 0])

        rounds(10)
        shapes = {name: value.shape for name, value in snapshot(learner).items()}
        # What Python calls where a step is nothing but calls, and what torch runs, with sizes, where it is operations.
        count = calls if learner.is_small else operations
        # A large state is copied once in so many rounds, so each window holds one such copy.
        early = count(lambda rounds=rounds: rounds(MOST_ROUNDS))
        rounds(200 - 10 - 2 * MOST_ROUNDS)
        late = count(lambda rounds=rounds: rounds(MOST_ROUNDS))
        assert early.total() > MOST_ROUNDS
        # A search may take a step more in one window than in another, but calls nothing else, on nothing larger.
        assert set(late) <= set(early)
        assert late.total() < 1.05 * early.total()
        assert {name: value.shape for name, value in snapshot(learner).items()} == shapes


@rule(6)
def inputs_are_converted_to_the_state(case: ConvexCase) -> None:
    """An input of any floating-point type does what the same numbers do in the state's type, bit for bit."""
    for layout in LAYOUTS[::2]:
        for state_type, input_type in itertools.product(STATE_TYPES, INPUT_TYPES):
            learner, twin = (case.build(dtype=state_type, **layout) for _ in range(2))
            for loss in case.stream(7, learner.batch_shape):
                fed = [value.to(input_type) for value in loss.gradients(learner.queries())]
                prepare(learner, loss, input_type)
                prepare(twin, loss, input_type)
                learner.step(*fed)
                twin.step(*(value.to(state_type) for value in fed))
            assert differences(snapshot(twin), snapshot(learner)) == []
            kinds = {name: value.dtype for name, value in snapshot(learner).items()}
            assert kinds == {name: value.dtype for name, value in snapshot(case.build(dtype=state_type)).items()}
            assert {learner.predict().dtype, learner.queries().dtype} == {state_type}


@rule(6)
def single_precision_follows_double(case: ConvexCase) -> None:
    """Given the same gradients, float32 decides as float64 does, to the precision of float32."""
    for layout in LAYOUTS[::2]:
        single, double = case.build(dtype=torch.float32, **layout), case.build(**layout)
        for loss in case.stream(40, double.batch_shape):
            fed = [value.float() for value in loss.gradients(double.queries())]
            for learner in (single, double):
                prepare(learner, loss, torch.float32)
                learner.step(*fed)
            # A sketch knows small directions to half of the digits.
            loose = 10.0 if getattr(double, "form", "") == "sketch" else 1.0
            close = {"rtol": 5e-4 * loose, "atol": 5e-5 * loose}
            torch.testing.assert_close(single.predict().double(), double.predict(), **close)
            torch.testing.assert_close(single.queries().double(), double.queries(), **close)


@rule(6)
def half_precision_state_is_refused(case: ConvexCase) -> None:
    """A state moved to float16 or bfloat16 can be taught by nobody."""
    for learner in (case.build().half(), case.build().bfloat16()):
        before, arguments = snapshot(learner), round_of(case, learner)
        with pytest.raises(ValueError, match=r"^dtype: expected "):
            learner.step(*arguments.values())
        assert differences(before, snapshot(learner)) == []


@rule(6)
def autocast_does_not_reach_the_state(case: ConvexCase) -> None:
    """Inside a mixed-precision training step a learner computes as it does outside."""
    for layout in LAYOUTS:
        for state_type in STATE_TYPES:
            learner = case.build(dtype=state_type, **layout)
            losses = case.stream(12, learner.batch_shape)
            for loss in losses:
                with torch.autocast("cpu", dtype=torch.bfloat16):
                    prepare(learner, loss)
                    queries = learner.queries()
                fed = loss.gradients(queries)
                with torch.autocast("cpu", dtype=torch.bfloat16):
                    learner.step(*fed)
            assert differences(snapshot(taught(case, dtype=state_type, **layout)), snapshot(learner)) == []


@rule(7)
def a_batch_equals_single_learners(case: ConvexCase) -> None:
    """batch_shape (3,), on views, and (2, 2), on tensors: each member learns as one of its own."""
    for batch_shape, views in (((3,), True), ((2, 2), False)):
        batched = case.build(batch_shape=batch_shape, views=views)
        singles = {member: case.build() for member in itertools.product(*map(range, batch_shape))}
        for loss in case.stream(24, batch_shape):
            decision, queries = batched.predict(), batched.queries()
            for member, single in singles.items():
                close(single.predict(), decision[member])
                close(single.queries(), queries[member])
                learn(single, loss.of(member))
            learn(batched, loss)
        for member, single in singles.items():
            alike(single, {name: value[member] for name, value in batched.state().items()})


@rule(7)
def views_equal_tensors(case: ConvexCase) -> None:
    """One learner and a batch step the same on NumPy views of their buffers and on the buffers."""
    for batch_shape in BATCH_SHAPES:
        quick, plain = case.build(batch_shape=batch_shape), case.build(batch_shape=batch_shape, views=False)
        for loss in case.stream(40, batch_shape):
            close(learn(quick, loss), learn(plain, loss))
        alike(quick, plain.state())


@rule(8)
def script_agrees_with_eager(case: ConvexCase) -> None:
    """A hundred rounds, half of them from a saved file, and twenty of a batch: the same decisions, queries and state.

    No gradient enters, looking changes nothing, and a state_dict goes either way.
    """
    for batch_shape in BATCH_SHAPES:
        eager = case.build(batch_shape=batch_shape)
        if not eager.is_scriptable:
            with pytest.raises(ValueError, match="module: expected learners that can be compiled"):
                to_torchscript(eager)
            return
        scripted = torch.jit.script(case.build(batch_shape=batch_shape))
        for seed in (0, 1) if batch_shape == () else (0,):
            losses = case.stream(50 if batch_shape == () else 20, batch_shape, seed)
            for t, loss in enumerate(losses):
                for each in (eager, scripted):
                    prepare(each, loss)
                close(eager.queries(), scripted.queries())
                close(eager.predict(), scripted.predict())
                fed = [value.requires_grad_(t == 3) for value in loss.gradients(eager.queries())]
                for each in (eager, scripted):
                    each.step(*fed)
            before = snapshot_of_script(scripted, eager)
            for value in (scripted.predict(), scripted.queries(), scripted()):
                value.fill_(torch.nan)
            assert differences(before, snapshot_of_script(scripted, eager)) == []
            assert list(snapshot(eager)) == list(before)
            alike(eager, before)
            assert not any(buffer.requires_grad for buffer in scripted.buffers())
            scripted = saved_and_loaded(scripted)
        fresh = case.build(batch_shape=batch_shape)
        fresh.load_state_dict(scripted.state_dict())
        assert differences(snapshot_of_script(scripted, fresh), snapshot(fresh)) == []
        # A file written by TorchScript keeps the constant tables, which a state of eager mode lacks.
        found = scripted.load_state_dict(case.build(batch_shape=batch_shape).state_dict(), strict=False)
        tables = {name for name, _ in fresh.named_buffers()} - set(fresh.state_dict())
        assert (set(found.missing_keys), found.unexpected_keys) == (tables, [])
        for each in (scripted, fresh := case.build(batch_shape=batch_shape)):
            each.step(*case.stream(1, batch_shape)[0].gradients(fresh.queries()))
        alike(fresh, snapshot_of_script(scripted, fresh))


def without_a_file(learner: Any) -> torch.export.ExportedProgram:
    """The program of a round, as export makes it."""
    trial = ConvexTrial(learner)
    with torch.no_grad():
        return torch.export.export(ConvexRound(learner), trial.round_arguments(), strict=False)


@rule(8)
def a_program_agrees_with_eager(case: ConvexCase) -> None:
    """A hundred rounds (15 of a batch, some of whose learners rest now and then): the same decisions, queries and state.

    Programs take seconds to make: a class shows one learner of its first case, and a batch of its second.
    """
    if not case.build().is_exportable:
        with pytest.raises(ValueError, match=r"module: expected learners that torch.export can trace"):
            to_program(case.build())
        return
    cases = [each for each in CASES if each.cls is case.cls]
    for batch_shape, shown in (((), cases[0]), ((2,), cases[:2][-1])):
        if case != shown:
            continue
        learner, eager = case.build(batch_shape=batch_shape), ConvexRound(case.build(batch_shape=batch_shape))
        # The way through a file, which is most of the time, is that of a single learner.
        program = (to_program(learner) if batch_shape == () else without_a_file(learner)).module()
        queries = eager.learner.queries()
        for t, loss in enumerate(case.stream(100 if batch_shape == () else 15, batch_shape)):
            learn_now = torch.tensor(t % 5 != 3) if batch_shape == () else torch.arange(2) != t % 3
            arguments = (*loss.gradients(queries), learn_now)
            decision, queries, learnt = eager(*arguments)
            theirs = program(*arguments)
            close(decision, theirs[0])
            close(queries, theirs[1])
            assert torch.equal(theirs[2], learnt)
            assert torch.equal(learnt, learn_now)
        alike(eager.learner, {name.removeprefix("learner."): value for name, value in program.named_buffers()})
        # What is not learnt may be anything, and changes nothing.
        before = {name: value.clone() for name, value in program.named_buffers()}
        program(*(torch.full_like(value, torch.nan) for value in arguments[:2]), torch.zeros_like(learn_now))
        assert differences(before, dict(program.named_buffers())) == []


@rule(9, quick=True)
def bad_rounds_are_refused_by_name(case: ConvexCase) -> None:
    """ValueError or TypeError that names the argument, and every buffer bit-equal."""
    for layout in LAYOUTS:
        learner = taught(case, **layout)
        before, wrong = snapshot(learner), []
        for kind, name, arguments in bad_rounds(learner):
            wrong += complaint(f"{name} {kind} {layout}", name, lambda a=arguments, on=learner: on.step(*a.values()))
        assert wrong == []
        assert differences(before, snapshot(learner)) == []


@rule(9)
def bad_hints_are_refused_by_name(case: ConvexCase) -> None:
    """What is said before a round is checked like what is said after it."""
    for layout in LAYOUTS:
        learner = taught(case, **layout)
        before, wrong = snapshot(learner), []
        for method, argument, kinds in bad_preparations(learner):
            for kind, bad in kinds.items():
                wrong += complaint(
                    f"{method} {kind} {layout}", argument, functools.partial(getattr(learner, method), bad)
                )
        assert wrong == []
        assert differences(before, snapshot(learner)) == []


@rule(9)
def without_value_checks_shapes_and_types_still_are(case: ConvexCase) -> None:
    """validate=False is for accelerators: it lets NaN through, and nothing else; values that nobody needs are not looked at."""
    learner = case.build(validate=False)
    good = round_of(case, learner)
    with pytest.raises(ValueError, match=f"^{learner.response}: expected "):
        learner.step(torch.ones(learner.dim + 1), good["values"])
    with pytest.raises(TypeError, match=f"^{learner.response}: expected "):
        learner.step("gradients", good["values"])
    before = snapshot(learner)
    try:
        learner.step(*(torch.nan * value for value in good.values()))
    except np.linalg.LinAlgError:  # NumPy's eigendecomposition refuses NaN, and the step is undone
        assert differences(before, snapshot(learner)) == []
    else:
        assert any(bool(buffer.isnan().any()) for buffer in learner.buffers())
    if not learner.needs_values:
        case.build().step(good[learner.response], "values")


@rule(10)
def runs_on_a_device_of_its_own(case: ConvexCase) -> None:
    """Nothing meets a tensor of another device, and no value is asked for, on a device that only shapes exist on.

    Projections onto domains are exempt: they ask for values, as they run in NumPy on the host. Such learners are for Python only.
    """
    if dict(case.options).get("domain") is not None:
        assert not case.build().is_scriptable
        return
    assert failures(str(case)) == []


@pytest.mark.any_device
@pytest.mark.parametrize(("case", "rule"), pairs(CASES, CONVEX_RULES, CONVEX_EXEMPTIONS))
def test_rule(case: ConvexCase, rule: Rule, record_property: Callable[[str, object], None]) -> None:
    record_property("contract", f"{rule.number} {case}")
    rule.check(case)


def test_ten_rules_have_a_check() -> None:
    assert {rule.number for rule in CONVEX_RULES} == set(range(1, 11))


def test_exemptions_are_named_and_explained() -> None:
    known = {(case.cls.__name__, str(rule)) for case in CASES for rule in CONVEX_RULES}
    assert set(CONVEX_EXEMPTIONS) <= known, "an exemption names a learner or a rule that does not exist"
    assert all(len(reason) > 20 for reason in CONVEX_EXEMPTIONS.values())


class Peeking(Descent):
    """Counts how often it is looked at."""

    def predict(self) -> Tensor:
        self.rounds.add_(1)
        return super().predict()


class Lending(Descent):
    """Hands out its memory."""

    def predict(self) -> Tensor:
        return self.decision


class Hasty(Descent):
    """Counts a round before it looks at it."""

    def step(self, gradients: Tensor, values: Tensor | None = None) -> None:
        self.rounds.add_(1)
        super().step(gradients, values)
        self.rounds.sub_(1)


class Steep(Descent):
    """Squares what it is given."""

    def _observe(self, gradients: Tensor, values: Tensor | None) -> None:
        super()._observe(gradients * gradients * gradients * gradients, values)


class Counting(Descent):
    """Keeps a number to itself."""

    seen = 0

    def step(self, gradients: Tensor, values: Tensor | None = None) -> None:
        super().step(gradients / (1.0 + self.seen), values)
        self.seen += 1


class Rebinding(Descent):
    """Makes its buffers anew."""

    def step(self, gradients: Tensor, values: Tensor | None = None) -> None:
        super().step(gradients, values)
        self.decision = self.decision.clone()


class Stubborn(Descent):
    """Does not forget."""

    def reset(self) -> None:
        self.rounds.zero_()


class Trusting(Descent):
    """Loads what fits."""

    def _load_problems(self, state_dict: Any, prefix: str) -> list[str]:
        return []


class Hoarding(Descent):
    """Keeps all gradients."""

    def step(self, gradients: Tensor, values: Tensor | None = None) -> None:
        super().step(gradients, values)
        self.__dict__.setdefault("past", []).append(gradients)


class Slowing(Descent):
    """Does a little more in each round."""

    def _observe(self, gradients: Tensor, values: Tensor | None) -> None:
        super()._observe(gradients, values)
        for _ in range(int(self.rounds.max())):
            gradients = abs(gradients)


class Coarse(Descent):
    """Rounds what is not of its own type."""

    def step(self, gradients: Tensor, values: Tensor | None = None) -> None:
        super().step(gradients if gradients.dtype is self.decision.dtype else gradients.bfloat16(), values)


class Sociable(Descent):
    """Lets a batch learn from one another."""

    def _observe(self, gradients: Tensor, values: Tensor | None) -> None:
        super()._observe(gradients + 0.1 * gradients.sum(0), values)


class Undecided(Descent):
    """Learns otherwise on views than on tensors and in TorchScript."""

    def _observe(self, gradients: Tensor, values: Tensor | None) -> None:
        decision = self.decision
        if not torch.jit.is_scripting():
            if not isinstance(gradients, Tensor):
                decision -= 0.1 * gradients
        decision -= 0.1 * gradients
        rounds = self.rounds
        rounds += 1


class Credulous(Descent):
    """Takes what it is given."""

    def step(self, gradients: Tensor, values: Tensor | None = None) -> None:
        super().step(torch.as_tensor(gradients), values)


FAULTS = [
    (Peeking, looking_changes_nothing),
    (Lending, looking_changes_nothing),
    (Hasty, a_refused_step_changes_nothing),
    (Steep, any_length_is_refused_or_learnt),
    (Counting, nothing_but_buffers_evolves),
    (Counting, a_loaded_state_continues_bit_for_bit),
    (Rebinding, buffers_are_written_in_place),
    (Stubborn, reset_forgets_everything),
    (Trusting, a_state_of_other_options_is_refused),
    (Hoarding, no_gradient_enters),
    (Hoarding, memory_is_flat),
    (Slowing, cost_does_not_depend_on_the_round),
    (Coarse, inputs_are_converted_to_the_state),
    (Sociable, a_batch_equals_single_learners),
    (Undecided, views_equal_tensors),
    (Undecided, script_agrees_with_eager),
    (Credulous, bad_rounds_are_refused_by_name),
]


@pytest.mark.parametrize(("cls", "check"), FAULTS)
def test_a_learner_that_breaks_a_rule_is_found(cls: Any, check: Callable[[ConvexCase], None]) -> None:
    """And the one that it is made of keeps it, as the table says."""
    with pytest.raises((AssertionError, RuntimeWarning, pytest.fail.Exception)):
        check(ConvexCase(cls))


@pytest.mark.parametrize("cls", CLASSES)
def test_a_bad_option_is_refused_by_name(cls: Any) -> None:
    for name, parameter in inspect.signature(cls).parameters.items():
        for value in BAD_OPTIONS[name]:
            if value is None and takes_none(parameter):
                continue
            with pytest.raises((ValueError, TypeError)) as caught:
                cls(**required(cls) | {name: value})
            assert str(caught.value).startswith(f"{name}: expected "), value


@pytest.mark.parametrize("cls", CLASSES)
@pytest.mark.parametrize("value", [1e-40, 1e40, 10**400])
def test_an_option_beyond_the_range_of_the_state_is_refused_by_name(cls: Any, value: float) -> None:
    """In float32 it would be infinite or 0."""
    sizes = {
        "lipschitz",
        "radius_bound",
        "length_scale",
        "gradient_scale",
        "step_size",
        "rate",
    }
    for name in sizes & set(inspect.signature(cls).parameters):
        with pytest.raises(ValueError, match=f"^{name}: expected "):
            cls(**required(cls) | {name: value}, dtype=torch.float32)


@pytest.mark.parametrize("cls", CLASSES)
def test_what_is_required_is_required(cls: Any) -> None:
    good = required(cls)
    for name in good:
        with pytest.raises(TypeError, match=name):
            cls(**{key: value for key, value in good.items() if key != name})
    with pytest.raises(TypeError, match="lambda_"):
        cls(**good, lambda_=1.0)
    first, *others = inspect.signature(cls).parameters.values()
    assert {parameter.kind for parameter in others} == {inspect.Parameter.KEYWORD_ONLY}, first
    common = ["batch_shape", "dtype", "device", "validate"]
    assert [parameter.name for parameter in others][-4:] == common


@pytest.mark.parametrize("cls", CLASSES)
def test_every_learner_says_what_it_costs_and_shows_an_example(cls: Any) -> None:
    text = inspect.getdoc(cls) or ""
    for wanted in ("Cost", "Guarantee", "Example", ">>>", "Reference", "Shape"):
        assert wanted in text, wanted
    for name in inspect.signature(cls).parameters:
        assert re.search(rf"\b{name}\b.*:", text), f"{name} is not explained"


def test_every_exported_learner_is_covered() -> None:
    covered = {case.cls.__name__ for case in CASES}
    assert covered >= {"OONS", "MsMwC", "MsMwCMaster", "CAOONS", "CLAOONS", "FreeGrad"}
    assert covered >= {"OGD", "AdaGrad", "CoinBetting", "OptimisticOMD", "OFTRL", "ParameterFreeMirrorDescent"}
    assert covered >= {
        "DAdaptation",
        "DoG",
        "DoWG",
        "ExpertEnsemble",
        "Prodigy",
        "ScaleFreeCoinBetting",
        "ScheduleFree",
    }
    assert set(VARIANTS) <= covered, "variants of a learner that does not exist"


class OnTensors(Descent):
    """A learner whose rounds call torch."""

    def _create_buffers(self) -> None:
        self.is_small = False
        super()._create_buffers()

    def _observe(self, gradients: Tensor, values: Tensor | None) -> None:
        self.decision -= torch.tanh(gradients)


def test_a_learner_may_stay_on_tensors() -> None:
    learner = OnTensors(3)
    learner.step(torch.ones(3))
    torch.testing.assert_close(learner.decision, -torch.tanh(torch.ones(3, dtype=torch.float64)))


@pytest.mark.parametrize("batch_shape", [(), (2,)])
def test_sparse_gradients_are_as_dense_ones(batch_shape: tuple[int, ...]) -> None:
    """Bit for bit, of all learners of gradients; with an entry given twice, in another type, and with a graph."""
    shown = {case.cls: case for case in reversed(CASES) if case.build().response == "gradients"}
    assert {OONS, FreeGrad} < set(shown)
    for case in shown.values():
        dense, sparse = (case.build(batch_shape=batch_shape) for _ in range(2))
        for t, loss in enumerate(case.stream(9, batch_shape)):
            gradients, values = loss.gradients(dense.queries())
            gradients = gradients * (torch.rand(gradients.shape, generator=torch.Generator().manual_seed(t)) < 0.5)
            gradients = gradients.float() if t == 4 else gradients
            given = gradients.to_sparse()
            if t == 5:  # halves add up exactly
                given = torch.sparse_coo_tensor(
                    given.indices().repeat(1, 2), 0.5 * given.values().repeat(2), given.shape, check_invariants=True
                )
            sparse.step(given.requires_grad_(t == 6), values)
            dense.step(gradients, values)
        assert differences(snapshot(dense), snapshot(sparse)) == [], case
