"""Times and memory beside rivals: small rounds, large decisions, batches, new arms, imports.

    pip install ".[benchmarks]"
    python examples/benchmarks/speed.py    # some minutes, on one thread

The contestants of a table take turns in short blocks of one process, so that only their ratios mean something. Memory is what a
process of its own needs beyond its inputs. "NumPy" is the same choice written down in NumPy, without checks, locks or copies.
"""

import argparse
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from torchonline import OFUL, AnytimeHeavyTailUCB, DisjointArms, LocalGLB, RidgeRegression, bandit
from torchonline.export import to_torchscript

Play = Callable[[], Any]
REWARD = 0.3
THREADS = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def unit_rows(count: int, dim: int, *batch: int) -> np.ndarray:
    """Return random rows of length 1."""
    rows = np.random.default_rng(0).standard_normal((*batch, count, dim))
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def numpy_oful(dim: int, arms: int) -> Play:
    """OFUL with its default radius in ten lines."""
    x, V_inv, theta, logdet = unit_rows(arms, dim), np.eye(dim), np.zeros(dim), 0.0

    def play() -> None:
        nonlocal theta, logdet
        radius = math.sqrt(0.25 * (logdet + 2.0 * math.log(100.0)) + 1.0)
        chosen = x[int((x @ theta + radius * np.sqrt(np.einsum("kd,kd->k", x @ V_inv, x))).argmax())]
        product = V_inv @ chosen
        quadratic = chosen @ product
        theta = theta + product * ((REWARD - chosen @ theta) / (1.0 + quadratic))
        V_inv[...] -= np.outer(product, product / (1.0 + quadratic))
        logdet += math.log1p(quadratic)

    return play


def vw(dim: int, arms: int) -> Play | None:
    """Vowpal Wabbit's bandit, on texts that were written before."""
    try:
        from vowpalwabbit import pyvw
    except ImportError:
        return None
    workspace = pyvw.Workspace(f"--cb_explore {arms} --epsilon 0.05 --quiet")
    texts = ["| " + " ".join(f"x{i}:{value:.4f}" for i, value in enumerate(row)) for row in unit_rows(512, dim)]
    t = 0

    def play() -> None:
        nonlocal t
        chances = workspace.predict(texts[t % 512])
        k = chances.index(max(chances))
        workspace.learn(f"{k + 1}:{-REWARD}:{chances[k]} {texts[t % 512]}")
        t += 1

    return play


def rounds_of(policy: Any, inputs: torch.Tensor, reward: Any = REWARD) -> Play:
    """Rounds of a policy, each with the next inputs."""
    t, rows = 0, list(inputs)

    def play() -> None:
        nonlocal t
        x = rows[t % len(rows)]
        policy.step(x, policy.select(x), reward)
        t += 1

    return play


def of_arms(policy: Any, arms: int, **options: Any) -> Play:
    return rounds_of(policy, torch.from_numpy(unit_rows(arms, policy.dim, 1)), **options)


def of_contexts(policy: Any, dim: int, *batch: int, **options: Any) -> Play:
    return rounds_of(policy, torch.from_numpy(unit_rows(512, dim, *batch)).movedim(-2, 0).contiguous(), **options)


def in_turn(plays: dict[str, Play | None], blocks: int, seconds: float = 0.002) -> dict[str, tuple[float, float]]:
    """Return the least and the median time of a call in microseconds, over blocks that take turns."""
    found: dict[str, list[float]] = {name: [] for name, play in plays.items() if play is not None}
    counts = {name: max(1, int(seconds / min(timed(plays[name], 1) for _ in range(5)))) for name in found}
    for _ in range(blocks):
        for name in found:
            found[name].append(1e6 * timed(plays[name], counts[name]))
    return {name: (min(times), statistics.median(times)) for name, times in found.items()}


def timed(play: Any, count: int) -> float:
    """Return the seconds of a call, as the mean of some."""
    start = time.perf_counter()
    for _ in range(count):
        play()
    return (time.perf_counter() - start) / count


def taught(policy: Any, inputs: np.ndarray) -> Any:
    """Return a policy after a thousand rounds."""
    generator = np.random.default_rng(1)
    for row in torch.from_numpy(inputs[:1000]):
        is_context = policy.item_dims == 1
        x = row if is_context else row.unsqueeze(0)
        policy.step(x, int(generator.integers(policy.actions)) if is_context else 0, float(generator.random()))
    return policy


def numpy_choice(policy: Any, inputs: np.ndarray) -> Play:
    """The policy's choice, with its numbers, in NumPy and in blocks."""
    estimator, scaler = policy.estimator, getattr(policy, "scaler", None)
    matrices = estimator.V_inv.numpy().reshape(-1, estimator.dim, estimator.dim)
    theta, offset = estimator.affine()
    centres, radii = theta.numpy().reshape(len(matrices), -1), estimator.radius().numpy().reshape(-1, 1)
    offsets = np.zeros((len(matrices), 1)) if offset is None else offset.numpy().reshape(-1, 1)
    low = -math.inf
    if scaler is not None:
        low = float(min(estimator.floor, 0.5 * estimator.gain.reshape(-1)[0] / estimator.seen.reshape(-1)[0]))
        mean, squares, n = scaler.mean.numpy(), scaler.squares.numpy(), int(scaler.rounds)

    def features(x: np.ndarray) -> np.ndarray:
        if scaler is None:
            return x
        offset = x - mean
        z = offset * (n / (n + 1.0) * math.sqrt(n)) / np.sqrt(squares + n / (n + 1.0) * offset * offset)
        z = np.clip(z, -2.5, 2.5)
        return np.concatenate([z, 0.7 * (np.abs(z) - 0.8), np.full((len(x), 1), 3.0)], 1)

    def play() -> np.ndarray:
        scores = np.empty((len(inputs), len(matrices)))
        for first in range(0, len(inputs), 1024):
            rows = features(inputs[first : first + 1024])
            widths = np.sqrt(np.einsum("knd,nd->kn", rows @ matrices, rows))
            means = np.maximum(centres @ rows.T + offsets, low)
            scores[first : first + 1024] = (means + radii * widths).T
        return scores.argmax(0) if len(matrices) == 1 else scores.argmax(1)

    return play


LARGE: dict[str, tuple[Callable[[], Any], int, int]] = {
    "contexts of bandit(20, actions=10)": (lambda: bandit(20, actions=10), 100_000, 20),
    "arms of OFUL(32)": (lambda: OFUL(32), 1_000_000, 32),
    "arms of bandit(32)": (lambda: bandit(32), 1_000_000, 32),
}


def large(name: str, part: int, only: str | None) -> tuple[dict[str, tuple[float, float]], float]:
    """Return the times of a large decision and of NumPy's, and the memory in MiB that one of them needs."""
    make, count, dim = LARGE[name]
    inputs = unit_rows(count // part, dim)
    policy = taught(make(), inputs)
    x = torch.from_numpy(inputs)
    plays: dict[str, Play | None] = {"torchonline": lambda: policy.select(x), "NumPy": numpy_choice(policy, inputs)}
    if only is None:
        agree = torch.from_numpy(np.asarray(plays["NumPy"]())).reshape(-1) == policy.select(x).reshape(-1)
        if agree.double().mean() < 0.999:
            raise RuntimeError(f"{name}: NumPy chooses other arms")
        return in_turn(plays, 7), 0.0
    policy.select(x[:100])
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # what was needed before does not count
    before = peak()
    plays[only]()
    return {}, peak() - before


def peak() -> float:
    """Return the largest memory of this process so far, in MiB."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM")) / 1024


def of_process(*words: str) -> str:
    """Return what Python prints in a process of its own."""
    done = subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, check=True, env=os.environ | THREADS
    )
    return done.stdout


IMPORT = "import time, sys; start = time.process_time(); exec(sys.argv[1]); print(time.process_time() - start, "
IMPORT += "next(int(line.split()[1]) for line in open('/proc/self/status') if line.startswith('VmHWM')) / 1024)"


LINES: list[str] = []


def say(line: str) -> None:
    """Print a line of a table, and keep it for the file."""
    print(line, flush=True)
    LINES.append(line)


def show(title: str, times: dict[str, tuple[float, float]], per: dict[str, int] | None = None) -> None:
    """Print times as multiples of the first."""
    say(f"\n| {title} | least, us | median, us | least, ratio |\n|---|---|---|---|")
    base = next(iter(times.values()))[0]
    for name, (least, median) in times.items():
        share = (per or {}).get(name, 1)
        say(f"| {name} | {least / share:.4g} | {median / share:.4g} | {least / share / base:.2f} |")


def small_rounds(blocks: int) -> None:
    for dim, arms in ((2, 50), (32, 20)):
        plays: dict[str, Play | None] = {"NumPy": numpy_oful(dim, arms), "OFUL": of_arms(OFUL(dim), arms)}
        if dim == 2:
            plays["AnytimeHeavyTailUCB"] = of_arms(AnytimeHeavyTailUCB(dim), arms)
            plays["LocalGLB"] = of_arms(LocalGLB(dim), arms)
        show(f"a round at {dim} x {arms}", in_turn(plays, blocks))
    plays = {"bandit(19, actions=7)": of_contexts(bandit(19, actions=7), 19), "Vowpal Wabbit": vw(19, 7)}
    show("a round of a bandit with a model for each arm", in_turn(plays, blocks))
    eager = of_contexts(bandit(8, actions=7), 8)
    script = to_torchscript(bandit(8, actions=7))
    plays = {"eager": eager, "TorchScript": of_contexts(script, 8, reward=torch.tensor(REWARD, dtype=torch.float64))}
    show("bandit(8, actions=7)", in_turn(plays, blocks))
    policy, x = OFUL(2), torch.from_numpy(unit_rows(50, 2))
    plays = {"a float": lambda: policy.step(x, 3, 0.3), "np.float64": lambda: policy.step(x, 3, np.float64(0.3))}
    show("a step of OFUL with a reward that is", in_turn(plays, blocks))
    single = x.float()
    plays = {"float64": lambda: policy.select(x), "float32": lambda: policy.select(single)}
    show("a choice of OFUL among arms in", in_turn(plays, blocks))


def batches(blocks: int) -> None:
    five, reward = (5,), torch.full((5,), REWARD, dtype=torch.float64)
    plays: dict[str, Play | None] = {
        "OFUL": of_arms(OFUL(2), 50),
        "5 of OFUL, each": rounds_of(OFUL(2, batch_shape=five), torch.from_numpy(unit_rows(50, 2, 1, 5)), reward),
    }
    show("a round of small batches", in_turn(plays, blocks), {"5 of OFUL, each": 5})
    plays = {
        "bandit(19, actions=7)": of_contexts(bandit(19, actions=7), 19),
        "5 of them, each": of_contexts(bandit(19, actions=7, batch_shape=five), 19, 5, reward=reward),
    }
    show("the same, with a model for each arm", in_turn(plays, blocks), {"5 of them, each": 5})


def new_arms(count: int, blocks: int) -> None:
    arms = DisjointArms(RidgeRegression(19), count)
    arms.add_actions()  # makes room
    arms.select(torch.ones(19))
    plays: dict[str, Play | None] = {"add_actions(1)": arms.add_actions}
    show(f"ridge regressions of 19 features at {count} arms", in_turn(plays, min(blocks, 50), 0.0))


def processes() -> None:
    """Measure in processes of their own: memory, and imports."""
    say("\n| memory of one decision, MiB | torchonline | NumPy |\n|---|---|---|")
    for name in LARGE:
        found = [float(of_process(__file__, "--memory-of", name, whose)) for whose in ("torchonline", "NumPy")]
        say(f"| {name} | {found[0]:.0f} | {found[1]:.0f} |")
    say("\n| import | processor seconds | memory, MiB |\n|---|---|---|")
    for words in ("import torch", "import torchonline", "from torchonline.models import BanditHead"):
        found = [tuple(map(float, of_process("-c", IMPORT, words).split())) for _ in range(5)]
        say(f"| `{words}` | {min(found)[0]:.2f} | {min(found)[1]:.0f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=300, help="blocks of each contestant")
    parser.add_argument("--output", type=Path, default=Path("outputs"), help="folder for speed.md")
    parser.add_argument("--smoke", action="store_true", help="a run of seconds, whose numbers mean nothing")
    parser.add_argument("--memory-of", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    threadpool_limits(1)
    if options.memory_of:
        print(large(options.memory_of[0], 1, options.memory_of[1])[1])
        return
    blocks, part = (2, 100) if options.smoke else (options.blocks, 1)
    small_rounds(blocks)
    batches(blocks)
    new_arms(10_000 // part, blocks)
    for name, (_, count, _) in LARGE.items():
        show(f"{count // part:,} {name}", large(name, part, None)[0])
    if not options.smoke:
        processes()
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "speed.md").write_text("\n".join(LINES))


if __name__ == "__main__":
    main()
