"""Learning and choosing on a CPU or a GPU, beside the device's matrix products.

For each size (d features, K arms, n rounds, a batch of learners) it prints rounds a second of ``learn`` in one block, of
``step`` round by round, and decisions a second of ``select``, all with ``validate=False``, which never makes the host wait. The
share of the peak counts the multiplications and additions of the block's products, 2 n d^2 each, against a square matrix
product on the same device in the same type.

    OMP_NUM_THREADS=1 python examples/benchmarks/devices.py                   # a minute; seconds with --smoke
    python examples/benchmarks/devices.py --device cuda                       # torch on the GPU
    python examples/benchmarks/devices.py --device cuda --dtype float32
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from torchonline import OFUL, AnytimeHeavyTailUCB, LocalGLB

POLICIES = {"OFUL": OFUL, "AnytimeHeavyTailUCB": AnytimeHeavyTailUCB, "LocalGLB": LocalGLB}
# The number of products with n d^2 multiplications in a block: features times matrices, and sums of squares.
PRODUCTS = {"OFUL": 1, "AnytimeHeavyTailUCB": 5, "LocalGLB": 8}
# d, K, n, batch.
SIZES = ((32, 100, 8192, 1), (128, 100, 8192, 1), (512, 1000, 8192, 1), (32, 20, 256, 64), (128, 100, 1024, 16))
SMOKE = ((8, 5, 64, 1), (8, 5, 16, 3))


def seconds(work: Callable[[], Any], device: torch.device, least: float) -> float:
    """Return the median time of a call, of five samples that take ``least`` seconds together."""

    def timed(calls: int) -> float:
        synchronize(device)
        start = time.perf_counter()
        for _ in range(calls):
            work()
        synchronize(device)
        return (time.perf_counter() - start) / calls

    timed(1)
    calls = max(1, int(least / 5.0 / max(timed(1), 1e-9)))
    return sorted(timed(calls) for _ in range(5))[2]


def synchronize(device: torch.device) -> None:
    """Wait for the device."""
    if device.type != "cpu":
        torch.accelerator.synchronize()


def peak(device: torch.device, dtype: torch.dtype, size: int, least: float) -> float:
    """Return the operations a second of a square matrix product."""
    a = torch.randn(size, size, device=device, dtype=dtype)
    return 2.0 * size**3 / seconds(lambda: a @ a, device, least)


def measured(
    name: str, size: tuple[int, int, int, int], device: torch.device, dtype: torch.dtype, least: float
) -> list[float]:
    """Return rounds a second by ``learn`` and ``step``, decisions a second, and operations a second of ``learn``."""
    d, arms, n, batched = size
    batch = () if batched == 1 else (batched,)
    options: dict[str, Any] = {"batch_shape": batch, "device": device, "dtype": dtype, "validate": False}
    policy: Any = POLICIES[name](d, **options)

    def normal(*shape: int) -> Tensor:
        return torch.nn.functional.normalize(torch.randn((*batch, *shape), device=device, dtype=dtype), dim=-1)

    # Rounds hold the chosen arm alone.
    x, reward = normal(n, 1, d), torch.rand((*batch, n), device=device, dtype=dtype)
    k, choices = torch.zeros((*batch, n), dtype=torch.int64, device=device), normal(64, arms, d)
    learn = seconds(lambda: policy.learn(x, k, reward, block_size=n), device, least)
    one, first, pay = x[..., 0, :, :].contiguous(), k[..., 0].contiguous(), reward[..., 0].contiguous()
    step = seconds(lambda: policy.step(one, first, pay), device, least)
    select = seconds(lambda: policy.select(choices), device, least)
    work = 2.0 * PRODUCTS[name] * n * d * d * batched
    return [n * batched / learn, batched / step, 64 * batched / select, work / learn]


def rounds_in_a_graph(name: str, d: int, dtype: torch.dtype, least: float) -> tuple[float, float]:
    """Return the seconds of a round, select and step, called from Python and replayed as a CUDA graph."""
    device = torch.device("cuda")
    policy: Any = POLICIES[name](d, device=device, dtype=dtype, validate=False)
    arms = torch.nn.functional.normalize(torch.randn(100, d, device=device, dtype=dtype), dim=-1)
    # What a caller writes before each replay.
    past, reward = arms[:1].clone(), torch.rand((), device=device, dtype=dtype)
    k = torch.zeros((), dtype=torch.int64, device=device)

    def play() -> None:
        policy.select(arms)
        policy.step(past, k, reward)

    eager = seconds(play, device, least)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        play()
    return eager, seconds(graph.replay, device, least)


def shown(title: str, columns: tuple[str, ...], rows: list[tuple[str, ...]], console: Console) -> str:
    """Print a table, and return it in Markdown."""
    table = Table()
    for column in columns:
        table.add_column(column, justify="left" if column == "learner" else "right")
    for row in rows:
        table.add_row(*row)
    console.print(title)
    console.print(table)
    lines = [columns, ("---",) * len(columns), *rows]
    return f"**{title}**\n\n" + "".join(f"| {' | '.join(line)} |\n" for line in lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", choices=("float64", "float32"), default="float64")
    parser.add_argument("--seconds", type=float, default=1.0, help="for each number")
    parser.add_argument("--smoke", action="store_true", help="tiny sizes")
    parser.add_argument("--output", type=Path, help="folder for devices.md")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    device, dtype = torch.device(arguments.device), getattr(torch, arguments.dtype)
    least = 0.01 if arguments.smoke else arguments.seconds
    top = peak(device, dtype, 64 if arguments.smoke else 2048, least)
    name = torch.cuda.get_device_name() if device.type == "cuda" else f"CPU, {torch.get_num_threads()} thread(s)"
    rows = []
    for size in SMOKE if arguments.smoke else SIZES:
        for policy in POLICIES:
            learn, step, select, work = measured(policy, size, device, dtype, least)
            numbers = (
                f"{learn:.3g}",
                f"{step:.3g}",
                f"{learn / step:.3g}",
                f"{select:.3g}",
                f"{100 * work / top:.1f} %",
            )
            rows.append((policy, *map(str, size), *numbers))
    console = Console(width=130)
    columns = ("learner", "d", "K", "n", "batch", "learn", "step", "learn / step", "select", "share of peak")
    text = shown(f"{name}, {arguments.dtype}, {top / 1e9:.0f} GFLOP/s in a matrix product", columns, rows, console)
    console.print("learn and step: rounds a second; select: decisions a second, 64 at a time.")
    if device.type == "cuda":
        rows = []
        for d in (32, 256):
            for policy in POLICIES:
                eager, replayed = rounds_in_a_graph(policy, d, dtype, least)
                rows.append((policy, str(d), f"{1e6 * eager:.0f}", f"{1e6 * replayed:.0f}"))
        columns = ("learner", "d", "from Python", "as a CUDA graph")
        text += "\n" + shown("One round, select and step among 100 arms, in microseconds", columns, rows, console)
    if arguments.output is not None:
        (arguments.output / "devices.md").write_text(text)


if __name__ == "__main__":
    main()
