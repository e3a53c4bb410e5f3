"""Rules 4 and 5: no gradient enters, and a step's cost and memory are constant."""

import gc
import math
import sys
import weakref
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import cycle, islice
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from torchonline.testing.rules import rule
from torchonline.testing.subject import BATCH_SHAPES, Round, Subject, is_real, on_reals, with_gradients
from torchonline.testing.tools import require, require_state, same, snapshot

# Rounds whose cost is counted. A learner may do some of its work every few rounds; a window covers whole periods.
WINDOW = 32
# Rounds before the first window, after which the early rounds of arms with a model each are forgotten.
EARLY = 74


class Encoder(torch.autograd.Function):
    """The identity, with a record of the graphs that are still alive."""

    alive: weakref.WeakSet[Any] = weakref.WeakSet()

    class Token:
        """Lives as long as the graph it was made for."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.token = Encoder.Token()
        Encoder.alive.add(ctx.token)
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return gradients[0]


def with_graph(round_: Round) -> Round:
    """Return a round whose floating-point values require grad."""
    return on_reals(lambda value: Encoder.apply(with_gradients(value)), round_)


def collect() -> None:
    """Collect garbage, and keep the survivors out of later collections."""
    gc.collect()
    gc.freeze()


@rule(4)
def no_gradient_enters(subject: Subject) -> None:
    """A learner fed from a graph keeps none of it, and learns what it learns without."""
    for batch_shape in BATCH_SHAPES:
        learner, twin = (subject.build(batch_shape=batch_shape) for _ in range(2))
        rounds, logs = subject.stream(10, batch_shape), [subject.log(n, batch_shape, 1) for n in (5, 13)]
        subject.play(twin, rounds)
        twin.step(**logs[0])
        twin.learn(**logs[1], block_size=4)
        collect()
        Encoder.alive.clear()
        subject.play(learner, [with_graph(round_) for round_ in rounds])
        learner.step(**with_graph(logs[0]))
        learner.learn(**with_graph(logs[1]), block_size=4)
        collect()
        require(len(Encoder.alive) == 0, f"{len(Encoder.alive)} graphs are alive after the rounds")
        names = [name for name, buffer in learner.named_buffers() if buffer.requires_grad]
        require(not names, f"{names} require grad")
        require_state(snapshot(twin), learner, "fed from graphs")


@rule(4)
def memory_is_flat(subject: Subject) -> None:
    """A thousand steps with tensors that require grad leave no memory behind."""
    learner, round_ = subject.build(), subject.stream(1)[0]
    calls = 500 if subject.decides else 1_500
    # Short features and the response that a new learner expects: no iterate has to be projected.
    response = subject.possible(mean_response(subject, learner)).requires_grad_()
    round_ |= {subject.response: response, "noise_scale": None}
    if is_real(round_[subject.features]):
        round_[subject.features] = (0.2 * round_[subject.features]).requires_grad_()
    arguments = subject.arguments(round_, torch.tensor(0))

    def steps(number: int) -> int:
        """Learn, and count the blocks of memory that Python holds afterwards."""
        for _ in range(number):
            if subject.decides:
                learner.select(round_["inputs"])
            learner.step(**on_reals(lambda value: 1.0 * value, arguments))
        collect()
        return sys.getallocatedblocks()

    # A leak grows in both halves; what others keep of their first calls, in one.
    before, half, end = (steps(number) for number in (200, calls, calls))
    require(
        min(half - before, end - half) < calls // 10, f"blocks of memory after {calls} calls: {before}, {half}, {end}"
    )


def mean_response(subject: Subject, learner: Any, batch_shape: tuple[int, ...] = ()) -> Tensor:
    """Return the mean response of a new learner's model."""
    estimator = learner.estimator if subject.decides else learner
    mean = estimator(torch.zeros(*estimator.batch_shape, estimator.dim, dtype=torch.float64)).detach()
    return mean.flatten(len(batch_shape)).amax(-1) if subject.decides else mean


@rule(4)
def a_graph_from_before_a_step_is_never_wrong(subject: Subject) -> None:
    """Autograd refuses a backward pass through changed buffers, or it is right."""
    for batch_shape in BATCH_SHAPES if subject.takes_inputs else ():
        learner = subject.taught(5, batch_shape=batch_shape)
        log = subject.log(13, batch_shape, 1)
        for learn in (partial(learner.step, **log), partial(learner.learn, **log, block_size=4)):
            for look in (learner,) if subject.decides else (learner, learner.width):
                x = subject.stream(1, batch_shape, 2)[0][subject.features]
                x = with_gradients(x)
                torch.manual_seed(0)
                (expected,) = torch.autograd.grad(look(x).sum(), x)
                torch.manual_seed(0)
                seen = look(x)
                learn()
                try:
                    seen.sum().backward()
                except RuntimeError as error:
                    require("inplace operation" in str(error), f"autograd: {error}")
                else:
                    require(x.grad is not None and same(expected, x.grad), "a backward pass mixes old and new buffers")


@rule(4)
def inference_mode_leaves_ordinary_buffers(subject: Subject) -> None:
    """After use under inference_mode, a model can be trained through the buffers."""
    for batch_shape in BATCH_SHAPES:
        learner, twin = (subject.build(batch_shape=batch_shape) for _ in range(2))
        rounds = subject.stream(12, batch_shape)
        with torch.inference_mode():
            subject.play(learner, rounds)
        subject.play(twin, rounds)
        require_state(snapshot(twin), learner, "under inference_mode")
        names = [name for name, buffer in learner.named_buffers() if buffer.is_inference()]
        require(not names, f"{names} are inference tensors")
        x = rounds[0][subject.features]
        if is_real(x):
            learner(with_gradients(x)).sum().backward()
        subject.play(learner, rounds)


class Operations(TorchDispatchMode):
    """Counts the operations that torch runs, by name and sizes of their results."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        results = result if isinstance(result, tuple) else (result,)
        sizes = [tuple(each.shape) for each in results if hasattr(each, "shape")]
        self.counts[f"{func} {sizes}"] += 1
        return result


def operations(work: Callable[[], None]) -> Counter[str]:
    """Return the operations that torch runs during some work."""
    with Operations() as mode:
        work()
    return mode.counts


def calls(work: Callable[[], None]) -> Counter[str]:
    """Return the Python and C functions that some work calls."""
    counts: Counter[str] = Counter()

    def count(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            counts[frame.f_code.co_qualname] += 1
        elif event == "c_call":
            counts[getattr(argument, "__qualname__", repr(argument))] += 1

    # A collection of garbage calls the finalizers of others, whenever it is due.
    gc.disable()
    before = sys.getprofile()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(before)
        gc.enable()
    return counts


@rule(5)
def cost_does_not_depend_on_the_round(subject: Subject) -> None:
    """Early and hundreds of rounds later, a window calls the same functions."""
    for batch_shape in ((),) if subject.decides else BATCH_SHAPES:
        learner = subject.build(batch_shape=batch_shape, validate=False)
        usual, rounds = mean_response(subject, learner, batch_shape), []
        # Short features and expected responses: the one cost that comes and goes is that of projecting an iterate. The noise of
        # a window is undone by that of the next.
        for sign in (1.0, -1.0):
            for t, round_ in enumerate(subject.stream(WINDOW, batch_shape)):
                noise = 0.0 if subject.decides else sign * 0.1 * math.sin(t)
                round_ |= {subject.response: subject.possible(usual + noise), "noise_scale": None}
                if is_real(round_[subject.features]) and (not subject.decides or subject.inputs is None):
                    round_[subject.features] = 0.02 * round_[subject.features]
                rounds.append(round_)
        turns = cycle(rounds)

        def play(count: int, learner: Any = learner, turns: Any = turns, batch_shape: Any = batch_shape) -> None:
            for round_ in islice(turns, count):
                if subject.decides:
                    learner.select(round_["inputs"])
                learner.step(**subject.arguments(round_, torch.zeros(batch_shape, dtype=torch.int64)))

        def cost(play: Any = play) -> Counter[str]:
            return calls(lambda: play(WINDOW)) + operations(lambda: play(WINDOW))

        play(EARLY)
        shapes = {name: value.shape for name, value in snapshot(learner).items()}
        early = cost()
        play(15 * WINDOW + 22)
        late = cost()
        changed = {name: (early[name], late[name]) for name in early | late if early[name] != late[name]}
        require(early.total() > WINDOW, "nothing was called")
        require(not changed, f"calls in a window of {WINDOW}, early and late: {changed}")
        require({name: value.shape for name, value in snapshot(learner).items()} == shapes, "a buffer has grown")
