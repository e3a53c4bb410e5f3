"""Time of a step of each parameter-free learner.

Each learner plays its own stream of Huber losses with noise and drift. The steps of all compared learners are timed in
alternation, on one thread, with precomputed gradients. The script prints ratios of medians:

- at d = 32 relative to a step of OFUL: OONS in each form, without a ball and in the ball of radius 2|u|, which it seldom
  leaves; CLA-OONS, FreeGrad and the baselines. Target: OONS, frozen, takes at most twice an OFUL step.
- CA-OONS with 14 learners relative to one OONS of the same form, for d = 2, 8 and 32 and both metas, and its parts: 14 OONS
  in one batch, and the weights over them. Target: at most three times.
- at d = 32 relative to the update of OGD in two lines of NumPy: the cost of checks, buffers and counters.
- late steps of a long run relative to early ones, and bytes of buffers.

It prints tables and verdicts, and draws the times of a step.

    OMP_NUM_THREADS=1 python examples/papers/parameter_free_speed.py    # two minutes; seconds with --quick
"""

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import torch
from experiment import Experiment, Job, Results, listed, table

from torchonline import CAOONS, CLAOONS, OFUL, OONS, FreeGrad, MsMwCMaster
from torchonline.baselines import OFTRL, OGD, AdaGrad, CoinBetting, OptimisticOMD, ParameterFreeMirrorDescent
from torchonline.environments import SEAStream

DIM, DIMS, FORMS, METAS = 32, (2, 8, 32), ("eigen", "frozen", "sketch"), ("linear", "values")
HORIZON = 2**14  # gives 14 learners
NUMPY = "OGD in NumPy"


def stream_of(dim: int, batch_shape: tuple[int, ...] = ()) -> SEAStream:
    return SEAStream(dim, loss="huber", sigma=0.5, drift=0.1, batch_shape=batch_shape)


class Game:
    """Convex learner with its stream; a call plays and times a round."""

    def __init__(self, learner: Any) -> None:
        self.learner, self.stream = learner, stream_of(learner.dim, learner.batch_shape)

    def __call__(self) -> float:
        points = self.learner.queries()
        gradients = self.stream.gradients(points)
        values = self.stream.values(points) if self.learner.needs_values else None
        start = time.perf_counter()
        self.learner.step(gradients, values)
        elapsed = time.perf_counter() - start
        self.stream.advance()
        return elapsed


def oful_round(dim: int) -> Callable[[], float]:
    """Return a timed step of OFUL on random unit features."""
    policy, generator = OFUL(dim), torch.Generator().manual_seed(0)
    arms = torch.nn.functional.normalize(torch.randn(997, 1, dim, generator=generator, dtype=torch.float64), dim=-1)
    rewards, rounds = arms[:, 0, 0] + 0.1, iter(range(10**9))

    def play() -> float:
        t = next(rounds) % 997
        start = time.perf_counter()
        policy.step(arms[t], 0, rewards[t])
        return time.perf_counter() - start

    return play


def numpy_round(dim: int) -> Callable[[], float]:
    """Return a timed step of OGD without checks."""
    stream, x, t = stream_of(dim), np.zeros(dim), 0

    def play() -> float:
        nonlocal x, t
        g = stream.gradients(torch.from_numpy(x)).numpy()
        start = time.perf_counter()
        t += 1
        x = x - 0.5 / math.sqrt(t) * g
        elapsed = time.perf_counter() - start
        stream.advance()
        return elapsed

    return play


def at_one_size() -> dict[str, Callable[[], float]]:
    """Return the contenders at d = 32, OFUL first."""
    told: dict[str, Any] = {"dim": DIM, "lipschitz": stream_of(DIM).lipschitz}
    ball = told | {"radius_bound": 2.0}
    learners = {
        **{f"OONS, {form}": OONS(form=form, **ball) for form in FORMS},
        **{f"OONS, {form}, no ball": OONS(form=form, **told) for form in FORMS},
        "CLA-OONS": CLAOONS(DIM),
        "CLA-OONS, sketch": CLAOONS(DIM, form="sketch"),
        "FreeGrad": FreeGrad(DIM),
        "KT": CoinBetting(**told),
        "Mirror descent": ParameterFreeMirrorDescent(**told),
        "Optimistic OMD": OptimisticOMD(smoothness=1.0, **ball),
        "OFTRL": OFTRL(smoothness=1.0, **ball),
        "OGD": OGD(DIM, step_size=0.5),
        "AdaGrad": AdaGrad(DIM),
    }
    games: dict[str, Callable[[], float]] = {name: Game(learner) for name, learner in learners.items()}
    return {"OFUL": oful_round(DIM), **games, NUMPY: numpy_round(DIM)}


def weights_round(game: Game) -> Callable[[], float]:
    """Return a timed step of CA-OONS's weights, on linear losses of its learners."""
    meta: Any = MsMwCMaster(game.learner.meta.ranges, horizon=HORIZON)

    def play() -> float:
        losses = game.learner.bases.decision @ game.learner.bases.hint[0]
        start = time.perf_counter()
        meta.step(losses)
        return time.perf_counter() - start

    return play


def experts_beside_one(dim: int, form: str) -> dict[str, Callable[[], float]]:
    """Return one OONS, CA-OONS with 14 learners, and its parts."""
    told: dict[str, Any] = {"dim": dim, "lipschitz": stream_of(dim).lipschitz, "form": form}
    games = {meta: Game(CAOONS(horizon=HORIZON, meta=meta, **told)) for meta in METAS}
    radii = tuple(2.0**j for j in range(1, HORIZON.bit_length()))
    batched = Game(OONS(radius_bound=radii, batch_shape=(len(radii),), **told))
    one = Game(OONS(radius_bound=2.0, **told))
    return {"OONS": one, **games, "14 OONS": batched, "weights": weights_round(games["linear"])}


def in_turn(rounds: dict[str, Callable[[], float]], repeats: int) -> dict[str, float]:
    """Return median seconds of a step, in alternation, without the first tenth."""
    times = [[play() for play in rounds.values()] for _ in range(repeats)]
    return dict(zip(rounds, np.median(times[repeats // 10 :], axis=0).tolist(), strict=True))


def one_size(repeats: int) -> dict[str, float]:
    return in_turn(at_one_size(), repeats)


def experts(dim: int, form: str, repeats: int) -> dict[str, float]:
    return in_turn(experts_beside_one(dim, form), repeats)


def long_run(steps: int) -> dict[str, list[float]]:
    """Return late over early time of a step, and bytes of buffers before and after."""
    told: dict[str, Any] = {"dim": 8, "lipschitz": stream_of(8).lipschitz}
    games = {
        "OONS, eigen": Game(OONS(radius_bound=2.0, **told)),
        "OONS, frozen": Game(OONS(radius_bound=2.0, form="frozen", **told)),
        "OONS, sketch": Game(OONS(radius_bound=2.0, form="sketch", sketch_size=4, **told)),
        "CA-OONS, linear": Game(CAOONS(horizon=HORIZON, meta="linear", **told)),
        "CLA-OONS": Game(CLAOONS(8)),
        "FreeGrad": Game(FreeGrad(8)),
    }
    held = {name: bytes_of(game) for name, game in games.items()}
    tenths = [in_turn(games, steps // 10) for _ in range(10)]
    return {name: [tenths[-1][name] / tenths[0][name], held[name], bytes_of(game)] for name, game in games.items()}


def bytes_of(game: Game) -> int:
    return sum(buffer.numel() * buffer.element_size() for buffer in game.learner.buffers())


def yes(holds: bool) -> str:
    return "yes" if holds else "NO"


def jobs(quick: bool) -> dict[str, Job]:
    repeats, steps = (20, 100) if quick else (2000, 20_000)
    return {
        "one size": Job(one_size, {"repeats": repeats}),
        **{
            f"{dim} {form}": Job(experts, {"dim": dim, "form": form, "repeats": repeats})
            for dim in DIMS
            for form in FORMS
        },
        "long run": Job(long_run, {"steps": steps}),
    }


def tables(results: Results) -> dict[str, str]:
    times = results["one size"]
    rows = [
        (name, f"{seconds / times['OFUL']:.2f}", f"{seconds / times[NUMPY]:.1f}") for name, seconds in times.items()
    ]
    verdicts = [f"FreeGrad, d = {DIM}: {times['FreeGrad'] / times[NUMPY]:.1f} times {NUMPY}"]
    for name in ("OONS, frozen", "OONS, frozen, no ball"):
        ratio = times[name] / times["OFUL"]
        verdicts.append(f"{name}, d = {DIM}: {ratio:.2f} OFUL steps; at most 2: {yes(ratio <= 2.0)}")

    parts, beside = (*METAS, "14 OONS", "weights"), []
    for dim in DIMS:
        for form in FORMS:
            row = results[f"{dim} {form}"]
            ratios = {name: row[name] / row["OONS"] for name in parts}
            beside.append((dim, form, *(f"{ratios[name]:.2f}" for name in parts)))
            for meta in METAS:
                holds = yes(ratios[meta] <= 3.0)
                verdicts.append(
                    f"CA-OONS, {meta}, {form}, d = {dim}: {ratios[meta]:.2f} steps of OONS; at most 3: {holds}"
                )
    late = [
        (name, f"{ratio:.2f}", f"{before:.0f}", f"{after:.0f}")
        for name, (ratio, before, after) in results["long run"].items()
    ]
    return {
        f"Median time of a step at d = {DIM}": table(("learner", "OFUL = 1", f"{NUMPY} = 1"), rows),
        f"Median time of a step of CA-OONS with {HORIZON.bit_length() - 1} learners, one OONS = 1": table(
            ("d", "form", *METAS, "14 OONS", "weights"), beside
        ),
        "The last tenth of a long run's steps against the first, d = 8": table(
            ("learner", "time, ratio", "bytes of buffers before", "after"), late
        ),
        "Targets": listed(verdicts),
    }


def figures(results: Results, folder: Path) -> list[Path]:
    times = results["one size"]
    path = folder / "parameter_free_speed.png"
    figure, axis = plt.subplots(figsize=(8, 5), layout="constrained")
    axis.barh(list(times)[::-1], [1e6 * seconds for seconds in times.values()][::-1])
    axis.set(xlabel=f"microseconds of a step, median, d = {DIM}", xscale="log")
    axis.grid(alpha=0.3, axis="x")
    figure.savefig(path, dpi=120)
    plt.close(figure)
    return [path]


EXPERIMENT = Experiment(__file__, jobs, tables, figures, is_timed=True, seeds="0")

if __name__ == "__main__":
    EXPERIMENT.main(__doc__)
