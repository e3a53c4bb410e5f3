"""Ctrl-C at random times: states that are neither that before a step nor that after it.

A learner plays rounds until a signal raises an exception, in the middle of whatever it does. Then its state is compared, bit for
bit, with that of a learner which has played as many rounds without signals. It goes on from the same state until the next signal.

    python examples/interrupts.py    # about five minutes; seconds with --smoke
"""

import argparse
import hashlib
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from torchonline import (
    OFUL,
    OONS,
    AnytimeHeavyTailUCB,
    DisjointArms,
    FreeGrad,
    LocalGLB,
    RidgeRegression,
    StandardScaler,
)
from torchonline.policies.policy import Policy

DIMS = (2, 64, 256, 512)
ARMS, ROUNDS = 10, 60
LEARNERS: dict[str, Callable[[int], Any]] = {
    "OFUL": OFUL,
    "AnytimeHeavyTailUCB": AnytimeHeavyTailUCB,
    "LocalGLB": LocalGLB,
    "arms with a model each, scaled": lambda d: DisjointArms(RidgeRegression(d + 1), 3, scaler=StandardScaler(d)),
    "OONS": lambda d: OONS(d, lipschitz=1.0),
    "FreeGrad": FreeGrad,
}


class Interrupt(BaseException):
    """What the signal raises."""


def play(learner: Any, number: int, table: Tensor) -> None:
    """Play the round of that number: choose and learn."""
    if isinstance(learner, Policy):
        inputs = table[number] if learner.has_arm_inputs else table[number, 0]
        learner.step(inputs, learner.select(inputs), float(number % 2))
    else:
        learner.predict()
        learner.step(table[number, 0])


def digest(learner: Any) -> bytes:
    """Return a digest of all buffers."""
    content = hashlib.sha256()
    for value in learner.state_dict().values():
        content.update(value.numpy().tobytes())
    return content.digest()


def lost(make: Callable[[int], Any], dim: int, interrupts: int) -> str:
    """Count states that are of no round, or that the learner refuses to show."""
    table = normalize(torch.randn(ROUNDS, ARMS, dim, dtype=torch.float64), dim=-1)
    twin, clock = make(dim), time.perf_counter()
    digests = [digest(twin)]
    for number in range(ROUNDS):
        play(twin, number, table)
        digests.append(digest(twin))
    most = 12.0 * (time.perf_counter() - clock) / ROUNDS
    learner, wrong = make(dim), 0
    for _ in range(interrupts):
        try:
            signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-6, most))
            while True:
                if int(learner.rounds) == ROUNDS:
                    learner.reset()
                play(learner, int(learner.rounds), table)
        except Interrupt:
            pass
        try:
            wrong += digest(learner) != digests[int(learner.rounds)]
        except RuntimeError:  # the learner says that its state is torn
            wrong += 1
            learner.reset()
    return f"{wrong} of {interrupts}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("outputs"))
    parser.add_argument("--smoke", action="store_true", help="a few signals, to see that it runs")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    random.seed(0)
    torch.set_num_threads(1)

    def handler(*_: Any) -> None:
        raise Interrupt

    signal.signal(signal.SIGALRM, handler)
    interrupts, dims = (3, DIMS[:2]) if options.smoke else (100, DIMS)
    rows = [["states lost in interrupts", *(f"d = {dim}" for dim in dims)], ["---"] * (1 + len(dims))]
    rows += [[name, *(lost(make, dim, interrupts) for dim in dims)] for name, make in LEARNERS.items()]
    text = "".join(f"| {' | '.join(row)} |\n" for row in rows)
    (options.output / "interrupts.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
