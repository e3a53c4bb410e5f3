"""What the compiled core saves: a round on NumPy views and with the core, in turn, in processor time of one thread.

    python examples/benchmarks/compiled_core.py    # a minute

Each decision has other inputs. Blocks of 32 rounds alternate between the two; of many blocks, the fastest counts, because other
work on the machine only adds.
"""

import argparse
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import torchonline
from torchonline import OFUL, DisjointArms, RidgeRegression
from torchonline.core import compiled

BLOCK = 32
# The policy, and the shape of its inputs.
CASES: dict[str, tuple[Callable[[], Any], tuple[int, ...]]] = {
    "`OFUL(2)`, 50 arms": (lambda: OFUL(2), (50, 2)),
    "`OFUL(32)`, 20 arms": (lambda: OFUL(32), (20, 32)),
    "`DisjointArms(RidgeRegression(19), 7)`": (lambda: DisjointArms(RidgeRegression(19), 7), (19,)),
    "`bandit(19, actions=7)`": (lambda: torchonline.bandit(19, actions=7), (19,)),
    '`bandit(19, "real", 7)`': (lambda: torchonline.bandit(19, "real", 7), (19,)),
}


def made(make: Callable[[], Any], inputs: list[Tensor], is_on: bool) -> Any:
    """Return a policy with a core or without, after some rounds."""
    compiled.is_on = is_on
    policy = make()
    for x in inputs[:100]:
        policy.step(x, policy.select(x), float(x.mean() > 0.0))
    return policy


def times(policy: Any, inputs: list[Tensor]) -> tuple[float, float]:
    """Return the microseconds of a select and of a step."""
    start = time.thread_time()
    choices = [policy.select(x) for x in inputs]
    middle = time.thread_time()
    for x, k in zip(inputs, choices, strict=True):
        policy.step(x, k, 0.5)
    return 1e6 * (middle - start) / len(inputs), 1e6 * (time.thread_time() - middle) / len(inputs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="few rounds, to see that it runs")
    parser.add_argument("--output", help="not used: the table is printed")
    blocks = 5 if parser.parse_args().smoke else 400
    if not compiled.is_on:
        print("no compiled core here: both columns are of NumPy views")
    torch.set_num_threads(1)
    has_core, generator = compiled.is_on, torch.Generator().manual_seed(0)
    print("| | `select`, views | core | `step`, views | core |\n|---|---|---|---|---|")
    for name, (make, shape) in CASES.items():
        inputs = list(torch.randn(1000, *shape, generator=generator, dtype=torch.float64).unbind())
        policies = [made(make, inputs, is_on) for is_on in (False, has_core)]
        fastest = [(float("inf"), float("inf"))] * 2
        for block in range(blocks):
            rounds = inputs[100 + (block * BLOCK) % 800 :][:BLOCK]
            for number, policy in enumerate(policies):
                compiled.is_on = number == 1 and has_core
                found = times(policy, rounds)
                fastest[number] = min(fastest[number][0], found[0]), min(fastest[number][1], found[1])
        (select, step), (fast_select, fast_step) = fastest
        print(f"| {name} | {select:.0f} | {fast_select:.0f} | {step:.0f} | {fast_step:.0f} |")


if __name__ == "__main__":
    main()
