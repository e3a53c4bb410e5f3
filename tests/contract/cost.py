"""Rule 5: the cost and memory of a step do not depend on the round."""

import gc
import sys
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from tests.contract.matrix import rule
from tests.learners import BATCH_SHAPES, DIM, Case, estimator_of, round_of, snapshot

# A learner may do some of its work every few rounds; a window covers whole periods.
WINDOW = 32


class Operations(TorchDispatchMode):
    """Counts the operations that torch runs, by name and size of their results."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        sizes = [
            tuple(each.shape) for each in (result if isinstance(result, tuple) else (result,)) if hasattr(each, "shape")
        ]
        self.counts[f"{func} {sizes}"] += 1
        return result


def operations(work: Callable[[], None]) -> Counter[str]:
    """What torch runs during some work."""
    with Operations() as mode:
        work()
    return mode.counts


def calls(work: Callable[[], None]) -> Counter[str]:
    """The Python and C functions that some work calls."""
    counts: Counter[str] = Counter()

    def count(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            counts[frame.f_code.co_qualname] += 1
        elif event == "c_call":
            counts[getattr(argument, "__qualname__", repr(argument))] += 1

    # A collection of garbage calls what others have left to be called, whenever it happens to be due.
    gc.disable()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
        gc.enable()
    return counts


def cost(work: Callable[[], None]) -> Counter[str]:
    """Both, the work being done twice."""
    return calls(work) + operations(work)


@rule(5)
def cost_does_not_depend_on_the_round(case: Case) -> None:
    """A window of rounds calls and runs the same, in the same sizes, after 10 rounds and after 1000."""
    generator = torch.Generator(torch.get_default_device()).manual_seed(0)
    chooses = hasattr(case.build(), "select")
    # A policy in a batch runs its estimator's step, which has a turn of its own.
    for batch_shape in ((),) if chooses else BATCH_SHAPES:
        learner = case.build(batch_shape=batch_shape, validate=False)
        usual = float(estimator_of(learner)(torch.zeros(*batch_shape, DIM, dtype=torch.float64)).max())

        def normal(*shape: int, batch_shape: tuple[int, ...] = batch_shape) -> Tensor:
            return torch.randn((*batch_shape, *shape), generator=generator, dtype=torch.float64)

        def learn(*rows: int, learner: Any = learner, normal: Any = normal, usual: float = usual) -> None:
            # Small features, and rewards as a new learner expects them: to bring an iterate back into its ball is the one
            # thing that costs when it happens.
            response = case.possible(usual + 0.1 * normal(*rows, *case.output_shape))
            learner.step(*round_of(learner, 0.02 * normal(*rows, DIM), response))

        def rounds(number: int, learner: Any = learner, normal: Any = normal, learn: Any = learn) -> None:
            for _ in range(number):
                if chooses:
                    learner.select(normal(4, DIM))
                learn()

        rounds(10)
        shapes = {name: value.shape for name, value in snapshot(learner).items()}
        early = cost(lambda rounds=rounds: rounds(WINDOW))
        learn(1000 - 10 - 2 * WINDOW)
        late = cost(lambda rounds=rounds: rounds(WINDOW))
        assert early.total() > WINDOW
        assert late == early
        assert {name: value.shape for name, value in snapshot(learner).items()} == shapes
