"""What every private learner promises: nothing leaks by an error, a file, a copy or the clock, and no count is lost."""

import copy
import inspect
import io
import itertools
import json
import math
import os
import pickle
import re
import subprocess
import sys
import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.contract.matrix import quick_params
from tests.fake_device import environment
from tests.private_learners import (
    CASES,
    DIM,
    FRANK_WOLFE,
    HORIZON,
    PROMISE,
    PrivateCase,
    differences,
    gradients_for,
    published,
    record_for,
    run,
    snapshot,
    without_tags,
)
from tests.private_tools import KnownNoise, queries_of
from torchonline import DPHDB, DPTOFW
from torchonline.baselines import LocalMD, NoisySFW, NoisySGD
from torchonline.baselines.private import noisy_sgd
from torchonline.export import released, to_program, to_torchscript
from torchonline.privacy import gaussian_epsilon, prefix_sum
from torchonline.privacy.accounting import GaussianEvent, NonPrivateEvent
from torchonline.privacy.learners.base import SECRET
from torchonline.privacy.learners.vertex_choice import NoisyVertex
from torchonline.privacy.mechanisms.discrete import DiscreteTree
from torchonline.testing.gradients_and_cost import collect

EACH = pytest.mark.parametrize("case", quick_params(CASES))
PRIVATE = [case for case in CASES if dict(case.options).get("epsilon") != math.inf]
EACH_PRIVATE = pytest.mark.parametrize("case", quick_params(PRIVATE))
EACH_FRANK_WOLFE = pytest.mark.parametrize("case", quick_params(FRANK_WOLFE))


@EACH
def test_looking_changes_nothing(case: PrivateCase) -> None:
    learner = case.build()
    run(learner, 3)
    before = snapshot(learner)
    twin, public = learner.released(), learner.public_state()
    inputs = twin.example()
    looked = [learner(*inputs), twin(*inputs), *twin.buffers(), *public.values()]
    if hasattr(learner, "predict"):
        looked += [learner.predict(), queries_of(learner)]
    repr(learner), learner.privacy_spent(1e-3), learner.privacy_ledger()
    assert differences(before, snapshot(learner)) == []
    # What was handed out is a copy.
    for value in looked:
        value.zero_()
    assert differences(before, snapshot(learner)) == []


@EACH_FRANK_WOLFE
def test_a_wrong_shape_is_refused_and_changes_nothing(case: PrivateCase) -> None:
    for batch_shape in ((), (2,)):
        learner = case.build(batch_shape=batch_shape, validate=False)
        run(learner, 3)
        before, good = snapshot(learner), gradients_for(learner)
        wrong = {
            "a string": "x",
            "a ragged list": [[1.0], [1.0, 2.0]],
            "a list of strings": ["1.0", "2.0"],
            "integers": good.to(torch.int64),
            "complex numbers": good.to(torch.complex128),
            "a feature too few": good[..., 1:],
            "a query too few": good[..., :1, :],
            "a dimension too many": good.unsqueeze(0),
            "no dimension": good.sum(),
            "on another device": good.to("meta"),
        }
        for kind, value in wrong.items():
            with pytest.raises((TypeError, ValueError), match=r"^gradients: expected"):
                learner.step(value)
            assert differences(before, snapshot(learner)) == [], kind


BAD_RECORDS = {
    "NaN": lambda g: g * torch.nan,
    "one NaN": lambda g: torch.cat([g[..., :-1], g[..., -1:] * torch.nan], -1),
    "infinity": lambda g: g / 0.0,
    "two infinities that cancel": lambda g: torch.full_like(g, torch.inf),
    "norm 1e6": lambda g: g / g.norm() * 1e6,
    "norm 1e300": lambda g: g / g.norm() * 1e300,
    "norm 1e-300": lambda g: g / g.norm() * 1e-300,
    "denormal": lambda g: torch.full_like(g, 5e-324),
    "zero": lambda g: g * 0.0,
    "bfloat16": lambda g: g.to(torch.bfloat16),
    "float16": lambda g: (g * 1e9).to(torch.float16),
    "none": lambda g: None,
}


@EACH_FRANK_WOLFE
@pytest.mark.parametrize("kind", BAD_RECORDS)
def test_any_record_is_a_step(case: PrivateCase, kind: str) -> None:
    """It is learnt from without an error, and the sum that noise is added to moves by no more than the clip."""
    learner, twin = case.build(validate=True), case.build()
    for each in (learner, twin):
        run(each, 3)
    for name in without_tags(learner.state()):
        getattr(learner, name).copy_(getattr(twin, name))
    for each in (learner, twin):
        sources_of(each)
    record = BAD_RECORDS[kind](gradients_for(learner))
    before = exact_sum(learner).clone()
    learner.step(record)
    twin.step(None)
    assert int(learner.rounds) == int(twin.rounds) == 4
    moved = float(torch.linalg.vector_norm((exact_sum(learner) - before), learner.clip_norm))
    assert moved <= learner.clip * (1.0 + 1e-12)
    if kind in ("NaN", "one NaN", "infinity", "two infinities that cancel", "none", "zero", "float16"):
        assert moved == 0.0
        assert torch.equal(learner.predict(), twin.predict())
    if kind in ("norm 1e6", "norm 1e300"):
        assert moved > 0.999 * learner.clip
    assert all(bool(torch.isfinite(value.double()).all()) for name, value in learner.state().items())


def exact_sum(learner: Any) -> Tensor:
    """The noisy sum, or the secret one, in the units of the contributions."""
    if isinstance(learner.noise, NoisyVertex):
        return learner.secret_sum
    return learner.noise.value(learner.noisy_sum)


class Laws(KnownNoise):
    """Known noise, whatever the law."""

    def discrete_normal(self, shape: tuple[int, ...], sigma: int) -> Tensor:
        return self.normal(shape).to(torch.int64)

    def generalized_gaussian(self, shape: tuple[int, ...], order: float) -> Tensor:
        return self.normal(shape)


def sources_of(learner: Any) -> None:
    """No more noise, so that what a record does can be seen."""
    for holder in (learner, learner.noise):
        vars(holder).update(source=Laws())
    for name, value in learner.state().items():
        if name.startswith((SECRET, "noisy")) and name != "secret_sum":
            value.zero_()


@pytest.mark.parametrize("case", quick_params([case for case in CASES if case.horizon is not None]))
def test_the_budget_ends(case: PrivateCase) -> None:
    learner = case.build()
    run(learner, HORIZON)
    before = snapshot(learner)
    record = record_for(learner)
    for arguments in (record, (None,), (record[0] * torch.nan, *record[1:])):
        with pytest.raises(RuntimeError, match=f"at most {HORIZON} steps"):
            learner.step(*arguments)
    assert differences(before, snapshot(learner)) == []
    with pytest.raises(RuntimeError, match="reset: expected a new learner"):
        learner.reset()
    assert differences(before, snapshot(learner)) == []


@EACH
def test_what_is_spent_grows_to_the_promise(case: PrivateCase) -> None:
    learner = case.build()
    assert learner.privacy_spent(1e-3) == 0.0
    spent = []
    for step in range(HORIZON):
        learner.step(*((None,) if step % 3 else record_for(learner)))
        spent.append(learner.privacy_spent(1e-3))
    if learner.epsilon == math.inf:
        assert spent == [math.inf] * HORIZON
        return
    assert spent == sorted(spent)
    # Where batches are released, nothing is before the first has ended.
    assert (spent[0] > 0.0) == (case.cls.__name__ not in ("FLIPHAT", "LocalMD", "NoisySFW"))
    at_the_end = learner.ledger_after(learner.horizon).epsilon(1e-3)
    assert spent[-1] <= at_the_end <= 1.0
    assert spent[-1] == at_the_end or (case.horizon is None and 0.7 < spent[-1] < 0.9)
    if dict(case.options).get("mechanism") != "paper":
        assert at_the_end > 0.999
    assert learner.privacy_spent(1e-6) > spent[-1]
    for delta in (0.0, 1.0, math.nan):
        with pytest.raises(ValueError, match="delta: expected"):
            learner.privacy_spent(delta)


@EACH
def test_what_is_spent_does_not_depend_on_the_records(case: PrivateCase) -> None:
    one, other = case.build(), case.build()
    run(one, 7)
    for _ in range(7):
        other.step(None)
    assert one.privacy_spent(1e-3) == other.privacy_spent(1e-3)


@EACH_PRIVATE
def test_noise_is_fresh_in_every_learner_and_follows_no_global_seed(case: PrivateCase) -> None:
    decisions = []
    for _ in range(2):
        torch.manual_seed(0)
        decisions.append(run(case.build(), HORIZON))
    assert not torch.equal(decisions[0], decisions[1])
    before = torch.get_rng_state()
    run(case.build(), 3)
    assert torch.equal(before, torch.get_rng_state())


def copies(learner: Any, case: PrivateCase) -> dict[str, Any]:
    """A learner loaded, copied and pickled."""
    loaded = case.build()
    loaded.load_state_dict(learner.state_dict())
    file = io.BytesIO()
    torch.save(learner, file)
    file.seek(0)
    return {
        "load_state_dict": loaded,
        "deepcopy": copy.deepcopy(learner),
        "pickle": pickle.loads(pickle.dumps(learner)),
        "torch.save": torch.load(file, weights_only=False),
    }


@pytest.mark.slow
@EACH_PRIVATE
def test_noise_is_never_replayed(case: PrivateCase) -> None:
    """From one state and with the same records, the original and each of its copies go different ways; with a seed too."""
    for seed in (None, 3) if "noise_source" not in dict(case.options) else (None,):
        learner = case.build(seed=seed)
        run(learner, 5)
        state = snapshot(learner)
        ways = {name: run(each, HORIZON - 5) for name, each in copies(learner, case).items()}
        ways["original"] = run(learner, HORIZON - 5)
        for one, other in ((a, b) for a in ways for b in ways if a < b):
            assert not torch.equal(ways[one], ways[other]), (one, other)
        assert int(state["rounds"]) == 5


@EACH
def test_copies_count_as_continuations(case: PrivateCase) -> None:
    """1 and one more for each load of a state that had seen a step; of an untouched one, none."""
    fresh, learner = case.build(), case.build()
    for name, each in copies(fresh, case).items():
        assert int(each.continuations) == 1, name
    run(learner, 5)
    for name, each in copies(learner, case).items():
        assert int(each.rounds) == 5, name
        assert int(each.continuations) == 2, name
        assert int(copies(each, case)["load_state_dict"].continuations) == 3, name
    assert int(learner.continuations) == 1
    run(learner, HORIZON - 5)  # by then all have released something
    if learner.epsilon < math.inf:
        twice = copies(learner, case)["deepcopy"]
        assert twice.privacy_spent(1e-3) == learner.privacy_spent(1e-3, continuations=2) > learner.privacy_spent(1e-3)
        assert twice.privacy_spent(1e-3, continuations=1) == learner.privacy_spent(1e-3)
        (event,) = twice.privacy_ledger().events
        assert event.count == 2


@EACH
def test_going_back_is_a_continuation(case: PrivateCase) -> None:
    """A learner that loads an earlier state of its own, or an untouched one, has still released what it has."""
    learner, untouched = case.build(), snapshot(case.build())
    run(learner, 5)
    early = snapshot(learner)
    run(learner, 10)
    learner.load_state_dict(early)
    assert (int(learner.rounds), int(learner.furthest), int(learner.continuations)) == (5, 15, 2)
    learner.load_state_dict(early)
    assert int(learner.continuations) == 3
    learner.load_state_dict(untouched)
    assert (int(learner.rounds), int(learner.furthest), int(learner.continuations)) == (0, 15, 4)
    alone = case.build()
    run(alone, 15)
    assert learner.privacy_spent(1e-3) == alone.privacy_spent(1e-3, continuations=4)


def test_a_fork_costs_what_the_theory_says() -> None:
    """Epsilon 1 is 1.51 for two runs from one state, and 4.05 for ten learners on one stream: n = 1000, delta 1e-3."""
    learner = DPTOFW(2, horizon=1000, epsilon=1.0, delta=1e-3)
    for _ in range(1000):
        learner.step(None)
    assert round(learner.privacy_spent(1e-3, continuations=2), 2) == 1.51
    assert round(learner.privacy_spent(1e-3, continuations=10), 2) == 4.05
    for wrong in (0, -1):
        with pytest.raises(ValueError, match="continuations: expected"):
            learner.privacy_spent(1e-3, continuations=wrong)


@EACH_PRIVATE
def test_a_child_process_draws_noise_of_its_own(case: PrivateCase) -> None:
    learner = case.build()
    run(learner, 2)
    read, write = os.pipe()
    if os.fork() == 0:
        os.write(write, pickle.dumps(run(learner, HORIZON - 2).numpy()))
        os._exit(0)
    with os.fdopen(read, "rb") as pipe:
        os.close(write)
        child = torch.from_numpy(pickle.loads(pipe.read()))
    os.wait()
    assert not torch.equal(child, run(learner, HORIZON - 2))


@EACH
def test_a_state_of_other_options_is_refused_as_a_whole(case: PrivateCase) -> None:
    learner = case.build()
    run(learner, 5)
    changes: list[dict[str, Any]] = [{"horizon": HORIZON + 1}, {"delta": 2e-3}]
    others = {
        "clip": 0.25,
        "step_scale": 0.25,
        "learning_rate": 0.25,
        "radius_bound": 2.0,
        "feature_clip": 0.25,
        "arms": 3,
    }
    changes += [{name: value} for name, value in others.items() if name in inspect.signature(case.cls).parameters]
    for change in changes + ([] if learner.epsilon == math.inf else [{"epsilon": 1.1}]):
        other = case.build(**change)
        before = snapshot(other)
        with pytest.raises(RuntimeError, match=r"learnt with|expected shape|Unexpected key|expected an entry"):
            other.load_state_dict(learner.state_dict())
        assert differences(before, snapshot(other)) == [], change
    first = next(name for name in learner.state_dict() if name != "constants")
    partial = {name: value for name, value in snapshot(learner).items() if name != first}
    other = case.build()
    before = snapshot(other)
    with pytest.raises(RuntimeError, match=r".*: expected an entry"):
        other.load_state_dict(partial)
    assert differences(before, snapshot(other)) == []


@EACH_FRANK_WOLFE
def test_public_state_is_what_was_released(case: PrivateCase) -> None:
    """No entry of it is secret, no public entry depends on the records before noise, and the names of secrets say so."""
    learner = case.build()
    run(learner, 4)
    public = learner.public_state()
    assert set(public) == {name for name in learner.state() if not name.startswith(SECRET)}
    allowed = {"theta", "theta_prev", "rounds", "tag", "furthest", "continuations", "seeded"}
    if not isinstance(learner.noise, NoisyVertex):
        allowed |= {"noisy_sum", "noisy_memory", "noisy_nodes", "noisy_rows"}
    assert set(public) <= allowed
    assert torch.equal(public["theta"], learner.predict())
    if learner.epsilon < math.inf:
        assert any(name.startswith(SECRET) for name in learner.state_dict())
    else:
        assert not any(name.startswith(SECRET) for name in learner.state_dict())


def is_secret(name: str) -> bool:
    """Whether a buffer is, by its name."""
    return name.rpartition(".")[2].startswith(SECRET)


def numbers(data: bytes) -> set[float]:
    """All float64 numbers that a file may hold, at any offset."""
    found = set()
    for offset in range(8):
        usable = data[offset : offset + (len(data) - offset) // 8 * 8]
        found |= set(torch.frombuffer(bytearray(usable), dtype=torch.float64).tolist()) if usable else set()
    return found


@pytest.mark.slow
@EACH
def test_files_hold_released_values_only(case: PrivateCase, tmp_path: Path) -> None:
    """Read out of the archives of TorchScript and torch.export: the decision is there, and nothing secret is."""
    learner = case.build()
    run(learner, 4)
    secrets = {
        float(x)
        for name, value in learner.named_buffers()
        if is_secret(name)
        for x in value.flatten().double().tolist()
    }
    secrets -= set(published(learner).tolist())  # as NoisySFW's batch, when it has just begun
    to_torchscript(learner, tmp_path / "learner.pt")
    to_program(learner, tmp_path / "learner.pt2")
    torch.jit.save(torch.jit.script(learner), str(tmp_path / "scripted.pt"))
    for path in tmp_path.iterdir():
        with zipfile.ZipFile(path) as archive:
            data = b"".join(archive.read(name) for name in archive.namelist())
            names = " ".join(archive.namelist()).encode()
        assert SECRET.encode() not in data + names
        held = numbers(data)
        assert {x for value in learner.released().buffers() for x in value.flatten().tolist()} <= held
        assert not ((secrets - {0.0}) & held), path
    inputs = learner.released().example()
    expected = learner(*inputs)
    torch.testing.assert_close(torch.jit.load(str(tmp_path / "learner.pt"))(*inputs), expected, rtol=0.0, atol=1e-12)
    loaded = torch.export.load(str(tmp_path / "learner.pt2")).module()
    torch.testing.assert_close(loaded(*inputs), expected, rtol=0.0, atol=1e-12)
    with pytest.raises(RuntimeError, match="export: expected released"):
        torch.export.export(learner, inputs, strict=False)
    with pytest.raises(RuntimeError, match="export: expected released"):
        torch.jit.trace(learner, inputs)


@EACH_FRANK_WOLFE
def test_buffers_stay_where_they_are_and_take_no_gradient(case: PrivateCase) -> None:
    learner = case.build()
    pointers = {name: value.data_ptr() for name, value in learner.named_buffers()}
    weight = torch.ones((), dtype=torch.float64, requires_grad=True)
    for step in range(5):
        learner.step(weight * gradients_for(learner, step))
    assert {name: value.data_ptr() for name, value in learner.named_buffers()} == pointers
    assert not any(value.requires_grad for value in learner.buffers())
    with torch.inference_mode():
        learner.step(gradients_for(learner))
    assert not any(value.is_inference() for value in learner.buffers())


@EACH_FRANK_WOLFE
def test_no_cast_touches_it(case: PrivateCase) -> None:
    learner = case.build()
    run(learner, 5)
    before = snapshot(learner)
    for cast in (learner.half, learner.float, learner.bfloat16, lambda: learner.to(torch.float32)):
        assert cast() is learner
        assert differences(before, snapshot(learner)) == []
    small = case.build(dtype=torch.float32)
    assert {name for name, value in small.state().items() if value.dtype == torch.float32} == {"theta", "theta_prev"}
    run(small, 5)


@pytest.mark.parametrize(
    "case", [case for case in FRANK_WOLFE if not {"noise_source", "norm"} & set(dict(case.options))]
)
def test_a_batch_is_so_many_learners(case: PrivateCase) -> None:
    """With known noise, each member decides as it would alone; the clock is one."""
    generator = torch.Generator().manual_seed(1)
    width = 2 * DIM if hasattr(case.build(), "secret_sum") else DIM
    draws = torch.randn(64, 3, width, generator=generator, dtype=torch.float64)
    batched, singles = case.build(batch_shape=(3,)), [case.build() for _ in range(3)]
    for learner, known in [(batched, draws), *((single, draws[:, i]) for i, single in enumerate(singles))]:
        vars(learner.noise).update(source=KnownNoise(known))
    for step in range(20):
        g = gradients_for(batched, step)
        batched.step(g)
        for i, single in enumerate(singles):
            single.step(g[i])
            torch.testing.assert_close(single.predict(), batched.predict()[i], rtol=0.0, atol=1e-12)
    assert batched.rounds.shape == ()


@EACH_FRANK_WOLFE
@pytest.mark.parametrize("batch_shape", [(), (3,)])
def test_tensors_and_arrays_agree(case: PrivateCase, batch_shape: tuple[int, ...]) -> None:
    """What an accelerator or a large batch would run is what small steps on the CPU do."""
    arrays, tensors = case.build(batch_shape=batch_shape), case.build(batch_shape=batch_shape)
    vars(tensors).update(is_small=False)
    assert tensors._arrays() is None
    if isinstance(arrays.noise, DiscreteTree):
        for learner in (arrays, tensors):
            sources_of(learner)
    else:
        width = 2 * DIM if hasattr(arrays, "secret_sum") else DIM
        draws = torch.randn(64, *batch_shape, width, dtype=torch.float64)
        for learner in (arrays, tensors):
            vars(learner.noise).update(source=Laws(draws))
    for step in range(HORIZON):
        g = None if step % 5 == 4 else gradients_for(arrays, step) * (torch.nan if step % 7 == 6 else 1.0)
        for learner in (arrays, tensors):
            learner.step(g)
        for name, value in without_tags(tensors.state()).items():
            torch.testing.assert_close(getattr(arrays, name), value, rtol=1e-12, atol=1e-12)


@EACH_PRIVATE
def test_learners_of_a_batch_have_noise_of_their_own(case: PrivateCase) -> None:
    batched = case.build(batch_shape=(4,))
    for _ in range(HORIZON):
        batched.step(None)
    values = torch.cat([v.double().reshape(4, -1) for v in batched.public_state().values() if v.dim()], -1)
    assert len(values.unique(dim=0)) == 4


@EACH_FRANK_WOLFE
def test_values_are_not_looked_at(case: PrivateCase) -> None:
    learner = case.build()
    learner.step(gradients_for(learner), torch.tensor([torch.nan, torch.inf]))
    learner.step(gradients_for(learner), values="anything")
    assert int(learner.rounds) == 2


@pytest.mark.parametrize("delta", [1e-3, 0.9])
def test_a_delta_that_promises_little_warns(delta: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """1 / n is kept by whoever publishes one of n records in full."""
    monkeypatch.setattr(noisy_sgd, "calibrated_multiplier", lambda *promise: 1.0)  # which takes its time
    builds = [
        lambda delta: DPTOFW(2, horizon=1000, epsilon=1.0, delta=delta),
        lambda delta: prefix_sum("tree", 1000, (2,), clip=1.0, epsilon=1.0, delta=delta),
        lambda delta: NoisySGD(2, records=1000, epsilon=1.0, delta=delta, steps=1),
    ]
    for build in builds:
        with pytest.warns(UserWarning, match=r"delta: expected less than one over the number of people, 0.001, got"):
            build(delta)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            build(9.9e-4)
            DPTOFW(2, horizon=1000, epsilon=math.inf, delta=delta)


@EACH
def test_a_step_under_the_compiler_draws_noise_and_counts(case: PrivateCase) -> None:
    """Noise is no part of the compiled program, which would replay it."""
    torch.compiler.reset()
    learner = case.build()
    step = torch.compile(learner.step, backend="eager")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # breaks of the graph
        for _ in range(3):
            step(*record_for(learner))
    assert (int(learner.rounds), int(learner.continuations)) == (3, 1)
    other = case.build()
    run(other, 3)
    if learner.epsilon < math.inf and case.cls not in (NoisySFW, LocalMD):  # which have not released anything yet
        assert not torch.equal(published(learner), published(other))
    assert learner.privacy_ledger() == other.privacy_ledger()


def test_a_seed_warns_and_spends_everything() -> None:
    """Whoever tries ten thousand seeds against what is public finds it in seconds."""
    with pytest.warns(UserWarning, match="seed: expected None outside of tests; anybody who knows") as warned:
        seeded = DPTOFW(2, seed=1, **PROMISE)
    assert len(warned) == 1
    with pytest.warns(UserWarning, match="seed: expected None") as warned:
        bandit = DPHDB(2, arms=3, warmup=1, seed=1, **PROMISE)
    assert len(warned) == 1
    assert seeded.privacy_spent(1e-3) == bandit.privacy_spent(1e-3) == 0.0  # nothing is released yet
    seeded.step(None)
    bandit.step(None)
    assert seeded.privacy_spent(1e-3) == bandit.privacy_spent(1e-3) == math.inf
    # What the run would have spent without a seed is the first event.
    plain = DPTOFW(2, **PROMISE)
    plain.step(None)
    assert seeded.privacy_ledger().events == (*plain.privacy_ledger().events, NonPrivateEvent())
    # Its noise is still in the sums, whatever is written over the mark.
    seeded.seeded.zero_()
    loaded = DPTOFW(2, **PROMISE)
    loaded.load_state_dict(seeded.state_dict() | {"seeded": torch.tensor(1)})
    assert (
        seeded.privacy_spent(1e-3)
        == loaded.privacy_spent(1e-3)
        == copy.deepcopy(seeded).privacy_spent(1e-3)
        == math.inf
    )


def test_a_seed_is_flagged_and_not_shown() -> None:
    seeded, plain = DPTOFW(2, seed=123456789, **PROMISE), DPTOFW(2, **PROMISE)
    for text in (repr(seeded), repr(seeded.privacy_ledger())):
        assert "no protection against anybody who knows the seed" in text
        assert "123456789" not in text
    assert "seed" not in repr(plain) + repr(plain.privacy_ledger())
    assert torch.equal(run(seeded, 9), run(DPTOFW(2, seed=123456789, **PROMISE), 9))
    assert not any(bool((value == 123456789).any()) for value in seeded.state_dict().values())
    # Its noise is still in the sums of whoever goes on from it.
    loaded = DPTOFW(2, **PROMISE)
    loaded.load_state_dict(seeded.state_dict())
    for each in (loaded, copy.deepcopy(seeded)):
        assert not each.source.is_seeded
        assert "no protection" in repr(each) + repr(each.privacy_ledger())


def test_skipping_a_record_is_not_what_none_does() -> None:
    """None takes the step, draws the noise and moves the clock; the ledger then says of it what it says of a record."""
    learner = DPTOFW(2, **PROMISE)
    source = KnownNoise()
    vars(learner.noise).update(source=source)
    learner.step(None)
    assert int(learner.rounds) == 1
    assert source.asked == [(2,)]
    event = learner.noise.event(1)
    assert isinstance(event, GaussianEvent)
    assert learner.privacy_ledger().events[0].event == event


def test_what_skipping_a_record_would_cost() -> None:
    """The first of 1000 alternating records dropped, and all others a step earlier: 21 where 1 was promised."""
    noise = prefix_sum("blt", 1000, (1,), clip=1.0, epsilon=1.0, delta=1e-5)
    stream = torch.tensor([1.0, -1.0]).double().repeat(500)
    moved = stream - torch.cat([stream[1:], torch.zeros(1).double()])
    mu = float((noise.materialize(1000)[1] @ moved).norm()) / noise.noise.noise_scale
    assert round(gaussian_epsilon(mu, 1e-5)) == 21


def test_an_adaptive_stream() -> None:
    """Records chosen from what was released, against the learner: nothing but bounded contributions ever enters."""
    learner = DPTOFW(3, horizon=200, epsilon=1.0, delta=1e-3, clip=0.3, mechanism="tree")
    source = KnownNoise()
    vars(learner.noise).update(source=source)
    total = torch.zeros(3, dtype=torch.float64)
    for step in range(200):
        worst = 1e8 * (learner.predict() + 1e-3).sign() * (1 if step % 7 else torch.nan)
        learner.step(worst.expand(2, 3))
        moved = learner.noisy_sum - total
        assert float(moved.norm()) <= 0.3 * (1.0 + 1e-12)
        total = learner.noisy_sum.clone()
    assert len(source.asked) == 200
    assert math.isclose(learner.privacy_spent(1e-3), 1.0, rel_tol=1e-6)


@pytest.mark.parametrize("case", [case for case in CASES if case.options in ((), CASES[0].options)], ids=str)
def test_memory_is_flat(case: PrivateCase) -> None:
    """Hundreds of steps fed with tensors that require grad leave less behind than a block each, but for what is made once."""
    learner = case.build(horizon=2000)
    record = tuple(value.requires_grad_(value.is_floating_point()) for value in record_for(learner))

    def blocks(steps: int) -> int:
        for _ in range(steps):
            learner.step(*(1 * value for value in record))
        collect()
        return sys.getallocatedblocks()

    counts = [blocks(400) for _ in range(4)]
    assert min(later - earlier for earlier, later in itertools.pairwise(counts)) < 200


@EACH
def test_an_interrupted_step_has_been_taken(case: PrivateCase) -> None:
    """What was begun is counted: a step that fails on its way cannot be repeated as if nothing had been."""
    learner = case.build()
    run(learner, 2)

    def interrupted(*arguments: Any) -> None:
        raise KeyboardInterrupt

    hook = next(name for name in ("_move", "_learn") if hasattr(learner, name))
    setattr(learner, hook, interrupted)
    with pytest.raises(KeyboardInterrupt):
        learner.step(*record_for(learner))
    assert int(learner.rounds) == 3


def test_nothing_ties_them_to_the_cpu() -> None:
    """On a device that only shapes exist on nothing meets a tensor of another, and no value is asked for but the clock."""
    command = [sys.executable, "-m", "tests.fake_private"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {str(case): [] for case in CASES}


def test_every_argument_is_explained() -> None:
    for cls in {each.cls for each in CASES}:
        text = inspect.getdoc(cls) or ""
        explained = set(re.findall(r"\w+", " ".join(re.findall(r"^ {4,8}([\w, ]+): ", text, re.MULTILINE))))
        for name, parameter in inspect.signature(cls).parameters.items():
            assert name in explained, f"{cls.__name__}: {name}"
            assert name == "dim" or parameter.kind is inspect.Parameter.KEYWORD_ONLY
        assert ">>>" in text


@EACH
def test_a_clock_that_is_written_from_outside_is_a_run_more(case: PrivateCase) -> None:
    """As averages of weights, broadcasts and old states do: what has been released is not forgotten, nor noise repeated."""
    learner, alone = case.build(), case.build()
    run(learner, 20)
    run(alone, 20)
    for value in learner.state().values():
        value.zero_()
    assert learner.privacy_spent(1e-3) == alone.privacy_spent(1e-3, continuations=2)
    with pytest.raises(
        RuntimeError, match=r"state: expected the last state of this \w+, got buffers that were written"
    ):
        learner.step(*record_for(learner))
    learner.load_state_dict(case.build().state_dict())
    learner.step(*record_for(learner))
    assert (int(learner.rounds), int(learner.furthest)) == (1, 20)
    assert int(learner.continuations) >= 2


@EACH
def test_buffers_of_another_at_the_same_clock_are_a_run_more(case: PrivateCase) -> None:
    """As a broadcast of buffers does, which DistributedDataParallel makes in each forward pass."""
    learner, other = case.build(), case.build()
    run(learner, 5)
    run(other, 5)
    assert learner.privacy_ledger().events == other.privacy_ledger(continuations=1).events
    for buffer, theirs in zip(learner.buffers(), other.buffers(), strict=True):
        buffer.copy_(theirs)
    for _ in range(2):  # the second look counts no further run
        assert learner.privacy_ledger().events == other.privacy_ledger(continuations=2).events
    with pytest.raises(RuntimeError, match="got buffers that were written from outside"):
        run(learner, 1)
    run(other, 1)
    assert other.privacy_ledger().events == other.privacy_ledger(continuations=1).events


def test_a_process_group_of_two_ranks_is_refused(tmp_path: Path) -> None:
    """With broadcast buffers both ranks would go on from one state. A group that is over is none."""
    command = [sys.executable, "-m", "tests.two_ranks"]
    ranks = [
        subprocess.Popen(
            [*command, str(rank), str(tmp_path / "store")], stdout=subprocess.PIPE, text=True, env=environment()
        )
        for rank in range(2)
    ]
    for rank in ranks:
        said, _ = rank.communicate(timeout=300)
        lines = said.splitlines()
        assert [line.startswith("step: expected a process group of one rank, got one of 2") for line in lines[:2]] == [
            True,
            True,
        ]
        assert lines[2:] == ["rounds 0 1", "rounds 2"]


def test_a_child_process_is_a_run_more() -> None:
    learner = DPTOFW(2, **PROMISE)
    run(learner, 5)
    read, write = os.pipe()
    if os.fork() == 0:
        run(learner, 1)
        os.write(write, bytes([int(learner.continuations)]))
        os._exit(0)
    os.wait()
    assert os.read(read, 1) == b"\x02"
    os.close(read), os.close(write)
    assert int(learner.continuations) == 1  # of its child it cannot know


@EACH
def test_what_the_noise_is_made_for_cannot_be_changed(case: PrivateCase) -> None:
    """No public attribute of the learner, its mechanism, its domain or its parts. They are found, not listed."""
    learner = case.build()
    seen = dict(attributes(learner))
    wanted = {
        "horizon",
        "epsilon",
        "delta",
        "adjacency",
        "source",
        "noise.source",
        "domain.radius",
        "arms.1.noise.source",
    }
    wanted |= {"clip", "feature_clip", "reward_clip", "learning_rate", "noise_multiplier"}
    assert {path for path in wanted if has(learner, path)} <= seen.keys()
    for path, (owner, name) in seen.items():
        before = getattr(owner, name)
        with pytest.raises(AttributeError, match=f"{name}: expected"):
            setattr(owner, name, other_than(before))
        with pytest.raises(AttributeError, match=f"{name}: expected"):
            delattr(owner, name)
        assert getattr(owner, name) is before, path


def test_classes_sources_lists_and_parts_cannot_be_changed() -> None:
    """Nor a method, whose replacement would be as good as another noise."""
    learner, bandit = DPTOFW(2, **PROMISE), DPHDB(2, arms=2, warmup=2, **PROMISE)
    for owner, name in [
        *((learner, name) for name in ("points", "decisions", "step", "privacy_spent", "options_tolerance")),
        *((learner.noise, name) for name in ("law", "name", "participations", "_release", "moved")),
        *((learner.source, name) for name in ("add_normal", "is_seeded")),
        (learner.domain, "minimizer"),
    ]:
        with pytest.raises(AttributeError, match=f"{name}: expected"):
            setattr(owner, name, None)
    arm = DPHDB(2, arms=2, warmup=2, **(PROMISE | {"epsilon": math.inf})).arms[1]
    for change in (
        lambda: bandit.arms.__setitem__(1, arm),
        lambda: bandit.arms.append(arm),
        lambda: bandit.arms.extend([arm]),
        lambda: bandit.arms.insert(0, arm),
        lambda: bandit.arms.pop(0),
        lambda: bandit.arms.__delitem__(0),
    ):
        with pytest.raises(AttributeError, match="modules: expected no change"):
            change()


def test_a_bandit_knows_what_its_arms_did_without_it() -> None:
    """A step of an arm alone is refused, a load of an arm is counted and refused, and a seed of an arm is one of the bandit."""
    bandit = DPHDB(2, arms=2, warmup=2, **PROMISE)
    with pytest.raises(RuntimeError, match="step: expected a call of the bandit's step"):
        bandit.arms[0].step(torch.ones(2, 2))
    before = bandit.arms[0].state_dict()
    for _ in range(3):
        bandit.step(None)
    alone = bandit.privacy_spent(1e-3, continuations=2)
    bandit.arms[0].load_state_dict(before)
    assert bandit.privacy_spent(1e-3) == alone
    with pytest.raises(RuntimeError, match=r"state: expected 2 steps of arms\.0, got 0"):
        bandit.step(None)
    seeded = DPHDB(2, arms=2, warmup=2, seed=3, **PROMISE)
    seeded.source.renew()
    seeded.step(None)
    assert seeded.privacy_spent(1e-3) == math.inf


@pytest.mark.parametrize("options", [{}, {"epsilon": math.inf}], ids=["private", "not private"])
def test_sgd_keeps_its_seed_and_its_only_fit(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noisy_sgd, "calibrated_multiplier", lambda *promise: 1.0)
    sgd = NoisySGD(2, **({"records": 4, "steps": 2, "epsilon": 1.0, "delta": 1e-3, "seed": 0} | options))
    sgd.fit(lambda theta, x: theta @ x, torch.ones(4, 2))
    for each in (sgd, copy.deepcopy(sgd)):
        assert each.privacy_spent(1e-3) == math.inf
        assert "seeded" in repr(each)
        with pytest.raises(RuntimeError, match="fit: expected one call, got another"):
            each.fit(lambda theta, x: theta @ x, torch.ones(4, 2))


def attributes(owner: Any, path: str = "") -> Iterator[tuple[str, tuple[Any, str]]]:
    """Each public attribute that a constructor has set, of an object and of the objects of torchonline in it."""
    for name, value in (vars(owner) | vars(owner).get("_modules", {})).items():
        if name.startswith("_") or name == "training":
            continue
        if not isinstance(owner, torch.nn.ModuleList):
            yield f"{path}{name}", (owner, name)
        if name == "link":  # clipped is whatever its gradient may be
            continue
        if type(value).__module__.startswith("torchonline") or isinstance(value, torch.nn.ModuleList):
            yield from attributes(value, f"{path}{name}.")


def has(owner: Any, path: str) -> bool:
    for name in path.split("."):
        if not hasattr(owner, name):
            return False
        owner = getattr(owner, name)
    return True


def other_than(value: Any) -> Any:
    return not value if isinstance(value, bool) else 0.123 if isinstance(value, float) else object()


@EACH
def test_a_state_that_cannot_be_is_refused(case: PrivateCase) -> None:
    learner = case.build()
    run(learner, 5)
    good = snapshot(learner)
    wrong = {"rounds": -1, "furthest": learner.horizon + 1, "continuations": 0, "seeded": 2, "tag": -1}
    for name, value in wrong.items():
        other = case.build()
        with pytest.raises(RuntimeError, match=f"{name}: expected"):
            other.load_state_dict(good | {name: torch.tensor(value)})
    secret = next((name for name in good if SECRET in name), "rounds")
    for bad in (good[secret].half(), good[secret].to(torch.int32)):
        with pytest.raises(RuntimeError, match="expected torch"):
            case.build().load_state_dict(good | {secret: bad})
    taken = case.build()
    taken.load_state_dict(learner.state_dict(), assign=True)
    run(taken, 2)
    assert differences(good, snapshot(learner)) == []


class Parent(torch.nn.Module):
    """A module of somebody's own."""

    def __init__(self, learner: Any, uses: bool) -> None:
        super().__init__()
        self.learner = learner
        self.uses = uses

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.learner.predict() if self.uses else 2.0 * x


@pytest.mark.parametrize("uses", [True, False])
def test_a_module_with_a_learner_has_a_door_of_its_own(uses: bool) -> None:
    learner = DPTOFW(2, **PROMISE)
    run(learner, 4)
    parent, x = Parent(learner, uses), torch.ones(2).double()
    expected = parent(x)
    public = released(parent)
    assert parent.learner is learner
    assert set(public.state_dict()) == {"learner.theta"}
    assert torch.equal(public(x), expected)
    torch.testing.assert_close(torch.export.export(public, (x,)).module()(x), expected)
    # Scripting it would put what is public in the place of the learner, whose count would be lost.
    with pytest.raises(RuntimeError, match=r"export: expected torchonline.export.released"):
        torch.jit.script(parent)
    assert parent.learner is learner
    if uses:
        with pytest.raises(RuntimeError, match="export: expected released"):
            torch.jit.trace(parent, (x,))
        with pytest.raises(RuntimeError, match="export: expected released"):
            torch.export.export(parent, (x,), strict=False)
