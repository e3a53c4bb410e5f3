"""Guards of the private learners: threads, interruptions, copies and loads never replay noise, lose a record or a count."""

import copy
import functools
import io
import math
import pickle
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.interruption import interrupted, is_free, lines_of
from tests.private_learners import (
    CASES,
    DIM,
    HORIZON,
    PROMISE,
    PrivateCase,
    differences,
    record_for,
    run,
    snapshot,
)
from tests.private_tools import KnownNoise, queries_of
from torchonline import DPHDB, DPPOFW, DPTOFW
from torchonline.baselines import DPFTRL, DPUCB, LocalMD, NoisySFW
from torchonline.privacy import prefix_sum
from torchonline.privacy.learners.bandit import PrivateBandit
from torchonline.privacy.learners.base import SECRET, PrivateLearner

REMEDY = r"state: expected the whole state of \w+, .*call load_state_dict\(\) or construct a new learner"
EACH = pytest.mark.parametrize("case", CASES, ids=str)
# A step of each kind: noise on the sum, on the choice, a tree that merges, batches that end, and both bandits.
KINDS = [case for case in CASES if case.cls in (DPFTRL, NoisySFW, LocalMD, DPUCB, DPHDB, DPPOFW)]
KINDS += [case for case in CASES if case.cls is DPTOFW and dict(case.options) in ({}, {"mechanism": "honaker"})]
EACH_KIND = pytest.mark.parametrize("case", KINDS, ids=str)


class Silent(KnownNoise):
    """Noise of 0, whatever the law."""

    def discrete_normal(self, shape: tuple[int, ...], sigma: int) -> Tensor:
        return torch.zeros(shape, dtype=torch.int64)

    def generalized_gaussian(self, shape: tuple[int, ...], order: float) -> Tensor:
        return self.normal(shape)


def silence(learner: Any) -> Any:
    """Take the noise away, so that two learners on one stream have one state."""
    for module in learner.modules():
        for holder in (module, *(getattr(module, name, None) for name in ("noise", "mechanism"))):
            if hasattr(holder, "source"):
                vars(holder).update(source=Silent())
    return learner


def state_of(learner: Any) -> dict[str, Tensor]:
    """All that evolves, torn or not."""
    return {name: value.clone() for name, value in learner.state().items()}


def looks(learner: Any, *, steps: bool = True) -> Iterator[Callable[[], Any]]:
    """All calls that read the state, and those that write it."""
    if steps:
        yield lambda: learner.step(None)
    yield learner.public_state
    yield learner.released
    yield learner.state_dict
    if isinstance(learner, PrivateBandit):
        x = torch.ones((*learner.batch_shape, DIM))
        yield lambda: learner.select(x)
        yield lambda: learner(x)
    else:
        yield learner.predict
        yield functools.partial(queries_of, learner)
        yield learner
    if hasattr(learner, "average"):
        yield learner.average


def refuses(learner: Any) -> bool:
    """Whether a learner refuses all calls by name, and so do its copies."""
    for each in (learner, copy.deepcopy(learner), pickle.loads(pickle.dumps(learner))):
        before = state_of(each)
        for look in looks(each):
            with pytest.raises(RuntimeError, match=REMEDY):
                look()
        assert differences(before, state_of(each)) == []
    return True


# The step at which all batches of NoisySFW and LocalMD end and the trees merge many nodes.
BEFORE = 15


@EACH_KIND
def test_an_interrupted_step_is_untouched_or_finished_or_refused(case: PrivateCase) -> None:
    """At any line: nothing has happened before the clock moved; after it the step counts, is finished or is refused."""
    learner = silence(case.build())
    run(learner, BEFORE)
    good, saved = state_of(learner), learner.state_dict()
    record = record_for(learner)
    done = silence(copy.deepcopy(learner))
    lines = lines_of(lambda: done.step(*record))
    whole, spent = state_of(done), {BEFORE: learner.privacy_spent(1e-3, 2), BEFORE + 1: done.privacy_spent(1e-3)}
    seen = {"untouched": 0, "finished": 0, "refused": 0}
    for line in sorted({*range(0, lines, max(1, lines // 120)), *range(lines - 12, lines)}):
        each = silence(copy.deepcopy(learner))
        state = state_of(each)
        assert interrupted(lambda each=each: each.step(*record), line, at_with=False)
        assert is_free(each._lock)
        assert torch.is_grad_enabled()
        rounds = int(each.rounds)
        # The interruption is no run more, and what was taken is booked.
        assert each.privacy_ledger().events == (done if rounds > BEFORE else each).privacy_ledger().events
        assert each.privacy_spent(1e-3) == spent[rounds]
        assert int(each.continuations) == 2
        if rounds == BEFORE:
            assert differences(state, state_of(each)) == []
            each.step(*record)
            assert differences(whole, state_of(each)) == []
            seen["untouched"] += 1
        elif not each._is_torn:
            assert differences(whole, state_of(each)) == []
            seen["finished"] += 1
        else:
            assert rounds == BEFORE + 1
            seen["refused"] += 1
            if seen["refused"] % 10 == 1:
                assert refuses(each)
            each.load_state_dict(saved)
            assert (int(each.rounds), int(each.furthest), int(each.continuations)) == (BEFORE, BEFORE + 1, 3)
            assert {name.rpartition(".")[-1] for name in differences(good, state_of(each))} <= {
                "furthest",
                "continuations",
            }
            each.step(*record)
    assert seen["untouched"] > 0
    assert seen["refused"] > 0


@EACH
def test_a_step_that_fails_is_refused_until_a_state_is_loaded(case: PrivateCase) -> None:
    """An error of the noise source in the middle of a step, such as one of the operating system."""
    learner = case.build()
    run(learner, BEFORE)
    saved, record = snapshot(learner), record_for(learner)
    name = "_move" if hasattr(learner, "_move") else "_learn"
    kept = getattr(learner, name)

    def fails(*arguments: Any) -> None:
        kept(*arguments)
        raise OSError("no randomness")

    vars(learner)[name] = fails
    with pytest.raises(OSError, match="no randomness"):
        learner.step(*record)
    vars(learner).pop(name)
    assert int(learner.rounds) == BEFORE + 1
    assert refuses(learner)
    with pytest.raises(RuntimeError, match="expected a new learner"):
        learner.reset()
    repr(learner), learner.privacy_spent(1e-3), learner.privacy_ledger()
    # A load that is refused, or interrupted, changes nothing of that.
    with pytest.raises(RuntimeError, match="expected"):
        learner.load_state_dict({**saved, "rounds": torch.tensor(learner.horizon + 1)})
    assert interrupted(lambda: learner.load_state_dict(saved), 150, at_with=False)
    assert refuses(learner)
    learner.load_state_dict(saved)
    run(learner, HORIZON - BEFORE)
    assert (int(learner.rounds), int(learner.continuations)) == (HORIZON, 2)


@EACH
def test_a_step_that_is_refused_leaves_the_learner_as_it_was(case: PrivateCase) -> None:
    learner = case.build()
    run(learner, 3)
    before = state_of(learner)
    wrong: list[tuple[Any, ...]] = [("x",), (torch.ones(5, 5, 5),), (torch.ones(DIM, device="meta"),)]
    for arguments in wrong:
        more = (torch.tensor(0), torch.tensor(1.0)) if isinstance(learner, PrivateBandit) else ()
        with pytest.raises((TypeError, ValueError), match="expected"):
            learner.step(*arguments, *more)
        assert differences(before, state_of(learner)) == []
    if case.horizon is not None:
        run(learner, HORIZON - 3)
        with pytest.raises(RuntimeError, match="the privacy budget is spent"):
            learner.step(None)
    assert not learner._is_torn
    learner.public_state()


@EACH_KIND
def test_an_interrupted_load_is_undone_or_refused_and_forgets_no_count(case: PrivateCase) -> None:
    learner, other = case.build(), case.build()
    run(learner, 9)
    run(other, 4)
    saved = other.state_dict()
    for assign in (False, True):
        lines = lines_of(lambda assign=assign: copy.deepcopy(learner).load_state_dict(saved, assign=assign))
        for line in range(0, lines, max(1, lines // 40)):
            each = copy.deepcopy(learner)
            before = state_of(each)
            interrupted(lambda each=each, assign=assign: each.load_state_dict(saved, True, assign), line, at_with=False)
            rounds, furthest, runs = each._counts()
            assert (rounds in (4, 9), furthest, runs >= 2) == (True, 9, True)
            if each._is_torn:
                assert refuses(each)
            elif rounds == 9:
                clock = {"continuations", "furthest", "rounds"}
                assert [name for name in differences(before, state_of(each)) if name not in clock] == []
                assert goes_on_or_wants_a_state(each)
            else:
                # The whole state came over, that of all arms too.
                apart = differences(state_of(other), state_of(each))
                assert {name.rpartition(".")[-1] for name in apart} <= {"continuations", "furthest"}
                assert goes_on_or_wants_a_state(each)
            each.load_state_dict(saved)
            assert int(each.rounds) == 4
            run(each, 1)


def goes_on_or_wants_a_state(learner: Any) -> bool:
    """Whether a learner takes two steps, or refuses the first by name and changes nothing."""
    before = learner.state_dict()
    try:
        run(learner, 2)
    except RuntimeError as error:
        return "call load_state_dict()" in str(error) and differences(before, learner.state_dict()) == []
    return True


# ---------------------------------------------------------------------------------------------- threads


def in_threads(*calls: Callable[[], None]) -> None:
    """Run all calls at once, each in a thread of its own, with switches as often as there can be."""
    errors: list[BaseException] = []

    def guarded(call: Callable[[], None]) -> None:
        try:
            call()
        except BaseException as error:
            errors.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=guarded, args=(call,)) for call in calls]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert errors == []


def steps_until_the_end(learner: Any, record: tuple[Any, ...], taken: list[int]) -> Callable[[], None]:
    """Take steps until the budget is spent."""

    def call() -> None:
        while True:
            try:
                learner.step(*record)
            except RuntimeError as error:
                assert "the privacy budget is spent" in str(error)  # noqa: PT017
                return
            taken.append(1)

    return call


@EACH
def test_threads_share_one_clock(case: PrivateCase) -> None:
    """Four threads that learn, while others look and copy: as many steps as the horizon has, in the ledger and in the state."""
    learner, alone = case.build(horizon=200), case.build(horizon=200)
    taken: list[int] = []
    copied: list[Any] = []
    record = record_for(learner)

    def look() -> None:
        while int(learner.rounds) < 200:
            for call in looks(learner, steps=False):
                call()
            assert learner.privacy_ledger().notes == ()

    def copies() -> None:
        while len(copied) < 5:
            copied.append(copy.deepcopy(learner))
            copied.append(pickle.loads(pickle.dumps(learner)))

    in_threads(*(steps_until_the_end(learner, record, taken) for _ in range(4)), look, copies)
    assert len(taken) == int(learner.rounds) == 200
    assert (int(learner.furthest), int(learner.continuations)) == (0, 1)
    run(alone, 200)
    assert learner.privacy_ledger().events == alone.privacy_ledger().events
    for each in copied:
        assert int(each.continuations) == 1 + (int(each.rounds) > 0)
        if isinstance(each, DPHDB):
            warm = [min(max(int(each.rounds) - k * each.warmup, 0), each.warmup) for k in range(each.arm_count)]
            after = int(each.rounds) - (each.arm_count - 1) * each.warmup
            is_warm = int(each.rounds) <= each.arm_count * each.warmup
            assert [int(arm.rounds) for arm in each.arms] == (warm if is_warm else [after] * each.arm_count)


@pytest.mark.parametrize("case", [case for case in CASES if not issubclass(case.cls, PrivateBandit)], ids=str)
def test_threads_lose_no_record_and_no_noise(case: PrivateCase) -> None:
    """Each of four threads adds vectors of its own: the sums hold them all, and each step drew its noise once."""
    if case.cls in (NoisySFW, LocalMD) or "secret_sum" in case.build().state():
        return  # their sums are of a batch, or the next test's
    learner = silence(case.build(horizon=64, **({} if case.cls is DPFTRL else {"step_scale": 1.0})))
    vectors = torch.eye(4, DIM, dtype=torch.float64) / 64.0
    taken: list[int] = []

    def learns(vector: Tensor) -> Callable[[], None]:
        def call() -> None:
            for _ in range(16):
                learner.step(vector.expand(learner.points, DIM))
                taken.append(1)

        return call

    in_threads(*map(learns, vectors))
    assert len(taken) == int(learner.rounds) == 64
    mechanism = learner.noise
    torch.testing.assert_close(mechanism.value(learner.noisy_sum), 16.0 * vectors.sum(0), rtol=0.0, atol=1e-5)
    asked = [shape for shape in mechanism.source.asked if shape]
    assert len(asked) == (0 if mechanism.name in ("none", "discrete") else 64)


def test_threads_lose_no_record_of_a_bandit() -> None:
    bandit = silence(DPUCB(DIM, arms=4, horizon=64, epsilon=1.0, delta=1e-3))
    vectors = 0.5 * torch.eye(4, DIM, dtype=torch.float64)

    def learns(k: int) -> Callable[[], None]:
        return lambda: [bandit.step(vectors[k], torch.tensor(k), torch.tensor(0.5)) for _ in range(16)] and None

    in_threads(*map(learns, range(4)))
    v = torch.cat([vectors, torch.full((4, 1), 0.5, dtype=torch.float64)], -1)
    products = 16.0 * v[:, bandit.upper[0]] * v[:, bandit.upper[1]]
    torch.testing.assert_close(bandit.noisy_sum, products, rtol=0.0, atol=1e-12)
    assert len(bandit.noise.source.asked) == 64


def test_threads_share_a_prefix_sum() -> None:
    sums = prefix_sum("sqrt", 64, (DIM,), clip=1.0, epsilon=1.0, delta=1e-3)
    in_threads(*(lambda: [sums.step(None) for _ in range(16)] and None for _ in range(4)))
    assert len(sums.noisy_rows.unique(dim=0)) == int(sums.rounds) == 64


# ---------------------------------------------------------------------------------------------- copies, loads, files


def continuations(learner: Any) -> set[int]:
    """The counts of a learner and of its parts."""
    return {int(learner.continuations), *(int(part.continuations) for part in learner.parts().values())}


@EACH
def test_each_copy_is_one_continuation_of_each_part(case: PrivateCase) -> None:
    learner = case.build()
    run(learner, 20)
    for _ in range(2):
        loaded = case.build()
        loaded.load_state_dict(learner.state_dict())
        assigned = case.build()
        assigned.load_state_dict(learner.state_dict(), assign=True)
        inside = torch.nn.ModuleDict({"learner": learner})
        nested = torch.nn.ModuleDict({"learner": case.build()})
        nested.load_state_dict(inside.state_dict())
        file = io.BytesIO()
        torch.save(inside, file)
        file.seek(0)
        made = {
            "load": loaded,
            "assign": assigned,
            "load of a module": nested["learner"],
            "deepcopy": copy.deepcopy(learner),
            "deepcopy of a module": copy.deepcopy(inside)["learner"],
            "copy": copy.copy(learner),
            "pickle": pickle.loads(pickle.dumps(learner)),
            "save of a module": torch.load(file, weights_only=False)["learner"],
        }
        for name, each in made.items():
            assert continuations(each) == {max(continuations(learner)) + 1}, name
            pointers = {value.data_ptr() for value in each.buffers()}
            assert not pointers & {value.data_ptr() for value in learner.buffers()}, name
            assert each.source is not learner.source
        learner = made["pickle"]


def test_a_copy_of_an_overwritten_state_forgets_nothing() -> None:
    """Zeros were written over all buffers, the clock among them: the copies still know of 20 steps."""
    learner = DPTOFW(DIM, **PROMISE)
    run(learner, 20)
    for value in learner.state().values():
        value.zero_()
    for each in (copy.deepcopy(learner), pickle.loads(pickle.dumps(learner))):
        assert (int(each.rounds), int(each.furthest), int(each.continuations)) == (0, 20, 2)


def test_a_load_that_leaves_the_learner_out_is_no_continuation() -> None:
    parent = torch.nn.ModuleDict({"learner": DPTOFW(DIM, **PROMISE), "other": torch.nn.Linear(1, 1)})
    run(parent["learner"], 3)
    parent.load_state_dict({"other.weight": torch.ones(1, 1)}, strict=False)
    assert (int(parent["learner"].continuations), int(parent["learner"].rounds)) == (1, 3)


def test_names_of_0_1_0_are_loaded() -> None:
    former = {"secret_gradient_sum": "secret_gradients", "secret_iterate_sum": "secret_path"}
    learner, other = LocalMD(DIM, **PROMISE), LocalMD(DIM, **PROMISE)
    run(learner, 7)
    state = learner.state_dict()
    other.load_state_dict({former.get(name, name): value for name, value in state.items()})
    assert (
        differences({name: state[name] for name in former}, {name: other.state_dict()[name] for name in former}) == []
    )
    assert (int(other.rounds), int(other.continuations)) == (7, 2)
    assert not any(name in former.values() for name in other.public_state())


def test_no_file_holds_the_seed() -> None:
    seed = 0x123456789ABCDE
    for build in (DPTOFW, lambda dim, **options: DPHDB(dim, arms=2, warmup=2, **options)):
        learner = build(DIM, seed=seed, **PROMISE)
        run(learner, 3)
        assert seed.to_bytes(7, "little") not in pickle.dumps(learner)
        assert "seed" not in vars(learner)["_arguments"]


def test_no_secret_of_a_part_is_public() -> None:
    for mechanism in ("blt", "tree", "gumbel"):
        bandit = DPHDB(DIM, arms=2, warmup=2, mechanism=mechanism, **PROMISE)
        run(bandit, 6)
        assert any(SECRET in name for name in bandit.state())
        assert not any(SECRET in name for name in bandit.public_state())


# ---------------------------------------------------------------------------------------------- records, options, repr


def test_lists_and_arrays_are_records() -> None:
    rows = [[0.3, -0.2, 0.1], [0.1, 0.0, 0.2]]
    learners = [silence(DPTOFW(DIM, **PROMISE)) for _ in range(4)]
    for learner, record in zip(
        learners, (torch.tensor(rows), rows, np.array(rows), torch.tensor(rows).double()), strict=True
    ):
        learner.step(record)
    for learner in learners[1:]:
        torch.testing.assert_close(learner.predict(), learners[0].predict(), rtol=0.0, atol=1e-6)
    bandits = [silence(DPUCB(DIM, arms=2, **PROMISE)) for _ in range(3)]
    bandits[0].step(torch.tensor(rows[0], dtype=torch.float64), torch.tensor(1), torch.tensor(0.5))
    bandits[1].step(rows[0], 1, 0.5)
    bandits[2].step(np.array(rows[0]), np.int64(1), np.float32(0.5))
    for bandit in bandits[1:]:
        assert differences(state_of(bandits[0]), state_of(bandit)) == []


@pytest.mark.parametrize("huge", [2**60 + 1, 10**30, 10**400, -(10**400)])
def test_no_integer_is_too_large_to_be_a_record(huge: int) -> None:
    """An error would tell of the value: what no float holds counts as nothing, or is cut."""
    learner = silence(DPTOFW(DIM, **PROMISE))
    learner.step([[huge, 0, 0], [0, 0, 0]])
    learner.step([[huge, 0.5, 0], [0, 0, 0]])
    assert int(learner.rounds) == 2
    bandit, twin = (silence(DPUCB(DIM, arms=2, **PROMISE)) for _ in range(2))
    bandit.step([0.1, 0.2, 0.3], 1, huge)
    bandit.step([0.1, 0.2, 0.3], huge, 0.5)
    bandit.step([[0.1, 0.2, 0.3]], [huge], [0.5])
    twin.step([0.1, 0.2, 0.3], 1, math.copysign(1.0, huge) if abs(huge) < 10**300 else math.nan)
    twin.step(None)
    twin.step(None)
    assert differences(state_of(twin), state_of(bandit)) == []


@EACH
def test_a_missing_record_does_the_work_of_any_other(case: PrivateCase) -> None:
    """Line by line, so that the time of a step does not tell who is missing, nor what a record holds."""
    learner = silence(case.build())
    run(learner, BEFORE)
    record = record_for(learner)
    lines = []
    for way in (record, (None,), tuple(0 * value for value in record), (1e9 * record[0], *record[1:])):
        twin = silence(copy.deepcopy(learner))
        lines.append(trace_of(functools.partial(twin.step, *way)))
    assert len(lines[0]) > 50
    assert all(each == lines[0] for each in lines)


def trace_of(call: Any) -> list[tuple[str, int]]:
    """Each line of the library that a call executes, in order."""
    seen: list[tuple[str, int]] = []

    def local(frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            seen.append((frame.f_code.co_filename, frame.f_lineno))
        return local

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        return local if "torchonline" in frame.f_code.co_filename else None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return seen


def test_a_masked_entry_contributes_nothing() -> None:
    """An error would tell that the entry is missing, and the number under the mask is no record."""
    learner, other = (silence(DPTOFW(DIM, **PROMISE)) for _ in range(2))
    learner.step(np.ma.masked_array([[0.5] * DIM, [0.1] * DIM], mask=[[True, False, False], [False] * 3]))
    other.step([[math.nan] * DIM, [0.1] * DIM])
    assert differences(state_of(other), state_of(learner)) == []
    bandit, twin = (silence(DPUCB(DIM, arms=2, **PROMISE)) for _ in range(2))
    bandit.step([0.1, 0.2, 0.3], np.ma.masked_array(1, mask=True), 0.5)
    bandit.step([0.1, 0.2, 0.3], 1, np.ma.masked_array(0.5, mask=True))
    bandit.step([0.1, 0.2, 0.3], 1, np.ma.masked_array(1, mask=True))
    for _ in range(3):
        twin.step(None)
    assert differences(state_of(twin), state_of(bandit)) == []


@EACH
def test_a_repr_shows_the_promise_and_the_place(case: PrivateCase) -> None:
    text = repr(case.build(batch_shape=(2,)))
    for part in (f"dim={DIM}", f"horizon={case.horizon}", "delta=0.001", "adjacency='replace_one'", "batch_shape=(2,)"):
        assert part in text
    assert f"epsilon={dict(case.options).get('epsilon', 1.0):g}" in text
    assert "dtype=torch.float" in text
    assert "device='cpu'" in text
    assert "seed" not in text
    assert " at 0x" not in text
    for name, value in case.options:
        assert f"{name}={value:g}" in text if isinstance(value, float) else f"{name}={value!r}" in text
    if dict(case.options).get("noise_source", "torch") == "torch":
        seeded = repr(case.build(seed=7))
        assert "no protection against anybody who knows the seed" in seeded
        assert "seed=7" not in seeded


def test_a_missing_promise_is_an_error_that_names_it() -> None:
    for cls, options in ((DPTOFW, {}), (DPPOFW, {}), (NoisySFW, {}), (LocalMD, {}), (DPHDB, {"arms": 2, "warmup": 3})):
        for name in PROMISE:
            kept = {key: value for key, value in PROMISE.items() if key != name}
            with pytest.raises(TypeError, match=f"missing .*'{name}'"):
                cls(DIM, **kept, **options)
        with pytest.raises(TypeError, match="unexpected keyword argument 'horizons'"):
            cls(DIM, **PROMISE, **options, horizons=3)
    with pytest.raises(ValueError, match=r"dtype: expected torch\.float64"):
        DPUCB(DIM, arms=2, dtype=torch.float32, **PROMISE)


def test_what_follows_from_the_options_is_fixed_too() -> None:
    learner = DPTOFW(DIM, **PROMISE)
    bandit = DPHDB(DIM, arms=2, warmup=3, **PROMISE)
    noise = prefix_sum("blt", 9, (), clip=1.0, epsilon=1.0, delta=1e-3)
    for made, name in (
        (learner, "clip_norm"),
        (bandit, "feature_norm"),
        (noise, "clip"),
        (bandit.arms[0], "clip"),
    ):
        with pytest.raises(
            AttributeError, match=f"{name}: expected .*, which the noise is made for, got 7.0; construct another"
        ):
            setattr(made, name, 7.0)
    assert issubclass(type(noise), PrivateLearner)


def test_a_subclass_with_a_constructor_of_its_own_is_fixed_too() -> None:
    """Whatever it takes: otherwise noise would be made for one promise, and the ledger say another."""

    class Mine(DPTOFW):
        def __init__(self, dim: int, **options: Any) -> None:
            super().__init__(dim, **options)

    learner = Mine(DIM, **PROMISE)
    for name in (*PROMISE, "adjacency", "clip", "scheme"):
        with pytest.raises(AttributeError, match=f"^{name}: expected .*which the noise is made for"):
            setattr(learner, name, 7.0)
