"""Rules of `learn`, under the numbers of those of `step`: many rounds, learnt at once, or in order where there are no blocks."""

import copy
import io
import itertools
import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from tests.bad_arguments import bad_logs, bad_steps, complaint
from tests.contract.gradients import Encoder, assert_right_or_refused, collect
from tests.contract.matrix import rule
from tests.contract.script import saved_and_loaded, script
from tests.contract.state import addresses
from tests.learners import (
    BATCH_SHAPES,
    DIM,
    Case,
    by_name,
    close,
    differences,
    estimator_of,
    round_of,
    snapshot,
    snapshot_of_script,
)
from torchonline.regression.estimator import Estimator

# Rounds in a log, and in a block where a size is given.
ROUNDS, SIZE = 13, 4


def log_of(case: Case, batch_shape: tuple[int, ...] = (), seed: int = 0, rounds: int = ROUNDS) -> dict[str, Tensor]:
    """What `learn` gets: rounds of the usual stream."""
    stream, at = case.stream(rounds, batch_shape=batch_shape, seed=seed), len(batch_shape)
    arms = torch.stack([round_.arms[..., :2, :] for round_ in stream], at)
    action = torch.full((*batch_shape, rounds), 1)
    features = {"inputs": arms, "action": action} if case.decides else {"x": arms[..., 0, :]}
    return features | {
        case.response: torch.stack([round_.reward for round_ in stream], at),
        "noise_scale": torch.stack([round_.noise_scale for round_ in stream], at),
    }


def part(log: dict[str, Tensor], at: int, rows: Any) -> dict[str, Tensor]:
    """Some rounds of a log, whose rounds are in dimension ``at``."""
    return {name: value.index_select(at, torch.as_tensor(rows, dtype=torch.int64)) for name, value in log.items()}


def assert_close(one: Any, other: Any, tolerance: float = 1e-9) -> None:
    theirs = snapshot(other)
    for name, value in snapshot(one).items():
        close(value, theirs[name], tolerance)


@rule(7)
def a_log_without_blocks_is_its_rounds_in_order(case: Case) -> None:
    """Bit for bit what `step` learns, in calls of any size; one round too, and no round at all. With blocks, they are counted."""
    for batch_shape in BATCH_SHAPES:
        for size in (None, SIZE):
            learner, twin = case.build(batch_shape=batch_shape), case.build(batch_shape=batch_shape)
            has_blocks, epoch = estimator_of(learner).has_blocks, estimator_of(learner).restart_every or 1000
            log = log_of(case, batch_shape)
            learner.learn(**log, block_size=size)
            one = part(log_of(case, batch_shape, 1), len(batch_shape), [0])
            learner.learn(**{name: value.squeeze(len(batch_shape)) for name, value in one.items()})
            if not has_blocks:
                twin.step(**log)
                twin.step(**one)
                assert differences(snapshot(twin), snapshot(learner)) == []
            assert bool((estimator_of(learner).rounds == (ROUNDS + 1) % epoch).all())
            before = snapshot(learner)
            learner.learn(**part(log, len(batch_shape), []), block_size=size)
            assert differences(before, snapshot(learner)) == []


@rule(7)
def a_log_of_a_batch_is_so_many_logs(case: Case) -> None:
    """Each learner of a batch does as it would alone; with a mask, as with its own rounds; without a round it keeps all bits."""
    log, batched, masked = log_of(case, (3,)), case.build(batch_shape=(3,)), case.build(batch_shape=(3,))
    mask = torch.rand(3, ROUNDS) < 0.6
    mask[0], mask[2] = True, False
    start = snapshot(masked)
    batched.learn(**log, block_size=SIZE)
    masked.learn(**log, block_size=SIZE, mask=mask)
    for i in range(3):
        single, own = case.build(), {name: value[i] for name, value in log.items()}
        single.learn(**own, block_size=SIZE)
        chosen = case.build()
        for first in range(0, ROUNDS, SIZE):
            rows = torch.arange(ROUNDS)[first : first + SIZE]
            chosen.learn(**part(own, 0, rows[mask[i, rows]]), block_size=SIZE)
        for alone, all_of_them in ((single, snapshot(batched)), (chosen, snapshot(masked))):
            for name, value in snapshot(alone).items():
                whole = all_of_them[name]
                close(value, whole[i] if whole.dim() > value.dim() else whole)
    for name, value in snapshot(masked).items():
        if not name.endswith("constants"):
            assert torch.equal(value[2], start[name][2])


@rule(2, quick=True)
def a_refused_log_changes_nothing(case: Case) -> None:
    """What is wrong in the last block of many leaves every buffer bit-equal, and names the argument."""
    for batch_shape in BATCH_SHAPES:
        learner, twin = case.build(batch_shape=batch_shape), case.build(batch_shape=batch_shape)
        log, at = log_of(case, batch_shape), len(batch_shape)
        for each in (learner, twin):
            each.learn(**log)
        before = snapshot(learner)
        for name, bad in bad_last_rounds(case, estimator_of(learner), log, at):
            with pytest.raises(ValueError, match=f"^{name}: expected "):
                learner.learn(**bad, block_size=SIZE)
            assert differences(before, snapshot(learner)) == [], name
        for each in (learner, twin):
            each.learn(**log, block_size=SIZE)
        assert differences(snapshot(twin), snapshot(learner)) == []


def bad_last_rounds(
    case: Case, estimator: Any, log: dict[str, Tensor], at: int
) -> Iterator[tuple[str, dict[str, Tensor]]]:
    """An argument, and logs in whose last round it is wrong."""
    values: dict[str, list[Any]] = {name: [torch.nan, torch.inf, 1e200] for name in log if name != "action"}
    values["noise_scale"].append(-1.0)
    if case.decides:
        values["action"] = [-1, 2]
    if estimator.longest < 1e6:
        values["inputs" if case.decides else "x"].append(1.1 * estimator.longest)
    if not torch.equal(case.possible(torch.full((1,), -0.5)), torch.full((1,), -0.5)):
        values[case.response].append(-0.5)
    for name, wrong in values.items():
        for value in wrong:
            bad = log[name].clone()
            last = bad.select(at, -1)
            last[(-1,) * last.dim()] = value
            yield name, log | {name: bad}


@rule(9)
def bad_logs_are_refused_by_name(case: Case) -> None:
    """All that `step` refuses, sizes of blocks that are no sizes, and masks that are none."""
    for batch_shape in BATCH_SHAPES:
        learner = case.build(batch_shape=batch_shape)
        log = log_of(case, batch_shape)
        learner.learn(**log)
        before, wrong = snapshot(learner), []
        rounds = (*batch_shape, ROUNDS)
        options = (case.output_shape, case.response, case.possible, 4 * case.decides)
        steps = [bad_steps(batch_shape, rows, *options) for rows in ((), (3,))]
        for kind, name, arguments in itertools.chain(*steps, bad_logs(log, rounds)):
            bad = {"block_size": 2} | arguments
            wrong += complaint(f"{name} {kind} {batch_shape}", name, lambda a=bad, on=learner: on.learn(**a))
        assert wrong == []
        assert differences(before, snapshot(learner)) == []


@rule(2)
def a_log_may_lie_in_the_learner_s_own_memory(case: Case) -> None:
    """Features and rewards in the memory that the first blocks write mean what they were when `learn` was called."""
    for batch_shape in BATCH_SHAPES:
        learner, twin = case.build(batch_shape=batch_shape), case.build(batch_shape=batch_shape)
        for each in (learner, twin):
            each.learn(**log_of(case, batch_shape))
        own = estimator_of(learner)
        x, response = own.V_inv, own.theta_hat
        for form in (Tensor.detach, Tensor.numpy)[: 1 + x.is_cpu]:
            copies = x.clone(), response.clone()
            refused = [refusal(twin, *copies), refusal(learner, x, response, form)]
            assert refused[0] == refused[1]
            assert differences(snapshot(twin), snapshot(learner)) == []


def refusal(learner: Any, x: Tensor, response: Tensor, form: Any = Tensor.detach) -> str | None:
    """Why a log is refused, if it is."""
    try:
        learner.learn(*map(form, round_of(learner, x, response)), block_size=1)
    except ValueError as error:
        return str(error)
    return None


@rule(3)
def a_loaded_state_learns_on_bit_for_bit(case: Case) -> None:
    """A state dict by way of a file, a deepcopy and a pickle; buffers stay where they are, and a reset forgets all."""
    for batch_shape in BATCH_SHAPES:
        for dtype in (torch.float64, torch.float32):
            learner, fresh = (case.build(batch_shape=batch_shape, dtype=dtype) for _ in range(2))
            where, start = addresses(learner), snapshot(learner)
            learner.learn(**log_of(case, batch_shape), block_size=5)
            file = io.BytesIO()
            torch.save(learner.state_dict(), file)
            file.seek(0)
            fresh.load_state_dict(torch.load(file, weights_only=True))
            copies = [fresh, copy.deepcopy(learner), pickle.loads(pickle.dumps(learner))]
            log = log_of(case, batch_shape, 1)
            for each in copies:
                each.learn(**log)
            learner.learn(**log)
            assert all(differences(snapshot(learner), snapshot(each)) == [] for each in copies)
            getattr(learner, "estimator", learner).reset()
            assert differences(start, snapshot(learner)) == []
            with torch.inference_mode():
                learner.learn(**log)
            assert addresses(learner) == where


@rule(4)
def no_gradient_enters_with_a_log(case: Case) -> None:
    """Fed from a graph, a learner keeps none of it and learns the same."""
    for batch_shape in BATCH_SHAPES:
        learner, twin = case.build(batch_shape=batch_shape), case.build(batch_shape=batch_shape)
        log = log_of(case, batch_shape)
        twin.learn(**log, block_size=SIZE)
        graphs = {
            name: Encoder.apply(value.clone().requires_grad_()) if value.is_floating_point() else value
            for name, value in log.items()
        }
        learner.learn(**graphs, block_size=SIZE)
        del graphs
        collect()
        assert len(Encoder.alive) == 0
        assert not any(buffer.requires_grad for buffer in learner.buffers())
        assert differences(snapshot(twin), snapshot(learner)) == []


@rule(6)
def logs_are_converted_to_the_state(case: Case) -> None:
    """Logs of any floating-point type, arrays of any layout, and lists do what tensors of the state's type do, bit for bit."""
    for state in (torch.float64, torch.float32):
        for given in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
            learner, twin = case.build(dtype=state), case.build(dtype=state)
            log = typed(log_of(case), given)
            learner.learn(**log, block_size=SIZE)
            twin.learn(**typed(log, state), block_size=SIZE)
            assert differences(snapshot(twin), snapshot(learner)) == []
            assert estimator_of(learner).theta_hat.dtype == state
    log, wanted = log_of(case), case.build()
    wanted.learn(**log)
    for name, way in WAYS.items():
        learner = case.build()
        learner.learn(**{key: way(value.numpy()) for key, value in log.items()})
        assert differences(snapshot(wanted), snapshot(learner)) == [], name
    features, *action, response, _ = log.values()
    features, response = features.round(), case.possible(response.clamp(-5.0, 5.0).round())
    learner, twin = case.build(), case.build()
    learner.learn(features.numpy().astype(np.int32), *action, response.to(torch.int64))
    twin.learn(features, *action, response)
    assert differences(snapshot(twin), snapshot(learner)) == []


def typed(log: dict[str, Tensor], dtype: torch.dtype) -> dict[str, Tensor]:
    """A log with its numbers, but for actions, in another type."""
    return {name: value.to(dtype) if value.is_floating_point() else value for name, value in log.items()}


def read_only(array: np.ndarray) -> np.ndarray:
    array = array.copy()
    array.flags.writeable = False
    return array


def field(array: np.ndarray) -> np.ndarray:
    """A field of records of nine bytes and more, which lies between others."""
    records = np.zeros(len(array), dtype=[("flag", "i1"), ("value", array.dtype, array.shape[1:])])
    records["value"] = array
    return records["value"]


WAYS: dict[str, Any] = {
    "an array": np.copy,
    "a list": np.ndarray.tolist,
    "read-only": read_only,
    "backwards": lambda array: array[::-1].copy()[::-1],
    "big-endian": lambda array: array.astype(array.dtype.newbyteorder(">")),
    "by columns": np.asfortranarray,
    "a field": field,
    "a list of rows": list,
}


@rule(6)
def autocast_does_not_reach_logs(case: Case) -> None:
    """Inside a mixed-precision training step, a log is learnt as outside; a state in half precision learns nothing."""
    for batch_shape in BATCH_SHAPES:
        learner, twin = (case.build(batch_shape=batch_shape, dtype=torch.float32) for _ in range(2))
        log = typed(log_of(case, batch_shape), torch.float32)
        twin.learn(**log)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            learner.learn(**log)
        assert differences(snapshot(twin), snapshot(learner)) == []
        half = case.build(batch_shape=batch_shape).half()
        with pytest.raises(ValueError, match="dtype"):
            half.learn(**log)


@rule(6)
def single_precision_follows_double_in_blocks(case: Case) -> None:
    log = typed(log_of(case, rounds=40), torch.float32)
    single, double = case.build(dtype=torch.float32), case.build()
    for learner in (single, double):
        learner.learn(**log, block_size=SIZE)
    for name, value in snapshot(double).items():
        if name in single.state_dict():
            torch.testing.assert_close(single.state_dict()[name], value, rtol=5e-4, atol=5e-5, check_dtype=False)


@rule(8)
def script_learns_logs_like_eager(case: Case) -> None:
    """With a size of blocks and without, by position, with noise scales and masks, and from a saved file; a size of 0 ends."""
    for batch_shape in BATCH_SHAPES if isinstance(case.build(), Estimator) else BATCH_SHAPES[:1]:
        eager = case.build(batch_shape=batch_shape)
        scripted = script(case, batch_shape)
        mask = torch.rand(*batch_shape, ROUNDS) < 0.5
        for learner in (eager, scripted):
            for seed, (size, learnt) in enumerate(((None, None), (SIZE, None), (None, mask), (1000, mask))):
                values = log_of(case, batch_shape, seed).values()
                *rest, scale = (value.requires_grad_(value.is_floating_point()) for value in values)
                learner.learn(*rest, noise_scale=scale if seed % 2 else None, block_size=size, mask=learnt)
        theirs = snapshot_of_script(scripted, eager)
        assert not any(buffer.requires_grad for buffer in scripted.buffers())
        for name, value in snapshot(eager).items():
            close(value, theirs[name], 1e-8)
        scripted = saved_and_loaded(scripted)
        scripted.learn(*log_of(case, batch_shape, 9).values(), 3)
        eager.learn(**log_of(case, batch_shape, 9), block_size=3)
        for name, value in snapshot(eager).items():
            close(value, snapshot_of_script(scripted, eager)[name], 1e-8)
        scripted.learn(*log_of(case, batch_shape).values(), 0)
        assert bool((estimator_of(scripted).rounds > 0).any()) or estimator_of(eager).restart_every


@rule(10)
def blocks_need_no_values(case: Case) -> None:
    """Blocks of tensors without values are learnt, in fake mode and on the meta device: no branch asks for a number."""
    if not getattr(case.build(), "has_blocks", False):  # a policy's are its estimator's
        return
    shapes = {name: value.shape for name, value in snapshot(case.build(batch_shape=(2,))).items()}
    for device, place in (("meta", torch.device("meta")), (None, FakeTensorMode())):
        with place:
            learner = case.build(batch_shape=(2,), device=device, validate=False)
            log = torch.randn(2, 7, DIM), torch.randn(2, 7, *case.output_shape)
            by_name(learner.learn, *log)
            by_name(learner.learn, *log, block_size=SIZE, mask=torch.ones(2, 7, dtype=torch.bool))
            assert {name: value.shape for name, value in learner.state_dict().items()} == shapes


@rule(4)
def a_graph_from_before_a_log_is_never_wrong(case: Case) -> None:
    """A backward pass through buffers that a log has changed since is refused by autograd, or right for the old ones."""
    for batch_shape in BATCH_SHAPES:
        learner, log = case.build(batch_shape=batch_shape), log_of(case, batch_shape)
        learner.learn(**log)
        estimator = estimator_of(learner)
        for look in (estimator, estimator.width):
            x = torch.randn(*batch_shape, 4, DIM, dtype=torch.float64, requires_grad=True)
            (expected,) = torch.autograd.grad(look(x).sum(), x)
            seen = look(x)
            learner.learn(**log, block_size=SIZE)
            assert_right_or_refused(seen, x, expected)
