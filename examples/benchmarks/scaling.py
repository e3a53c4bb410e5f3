"""What a shared learner costs: rounds a second by number of processes, bytes on the wire, and a model of 1000 ranks.

The first table is measured, on one machine and gloo. Each process decides among ten arms by HeavyTailUCB, one decision after the
other, and queues what it observes. All sync every hundred rounds of a process. Every process has one thread. All settings take
turns, ``--repeats`` times, and each shows the fastest of its turns. One process has no group. Ratios say more than rounds a
second, and neither says much with more processes than idle cores.

The second table is computed: the time of one sync of 1000 ranks with ten rounds each, after a million rounds. What a round and a
block cost to learn is measured here, on one thread. The network is assumed, see ``LATENCY`` and ``BANDWIDTH``.

    python examples/benchmarks/scaling.py    # minutes; seconds with --smoke
"""

import argparse
import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, distributed

from torchonline import HeavyTailUCB
from torchonline.distributed import SharedLearner

ARMS, EVERY = 10, 100
WAYS = ("leader", "all", "sums")
LIMIT = 600  # seconds that processes may take
# Of the modelled network: seconds that a message takes besides its bytes, and bytes a second of a rank's connection.
LATENCY, BANDWIDTH = 50e-6, 1.25e9  # 10 Gbit/s
RANKS, ROUNDS, MOST = 1000, 10, 8192  # ranks, rounds of each in a sync, rows of the longest block


class Counter:
    """Count the collectives of this process, and the bytes that it gives to them."""

    def __init__(self) -> None:
        self.calls = self.bytes = 0
        for name in ("all_gather", "gather", "broadcast", "all_reduce"):
            setattr(distributed, name, self._counted(getattr(distributed, name), 1 if name == "all_gather" else 0))

    def _counted(self, collective: Callable[..., Any], place: int) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            self.calls += 1
            self.bytes += arguments[place].nbytes
            return collective(*arguments, **named)

        return call


def play(shared: SharedLearner, arms: Tensor, noise: Tensor) -> float:
    """Play a hundred rounds and sync; return the seconds of the sync."""
    for each, error in zip(arms, noise.tolist(), strict=True):
        k = shared.select(each)
        shared.observe(each[k], float(each[k, 0]) + error)
    start = time.perf_counter()
    shared.sync()
    return time.perf_counter() - start


def measure(dim: int, way: str, syncs: int, counter: Counter) -> dict[str, float]:
    """Measure this process's part of a setting."""
    shared = SharedLearner(HeavyTailUCB(dim, noise_scale=0.5), learn_on=way)
    generator = torch.Generator().manual_seed(shared.ranks.rank)
    rows = torch.nn.functional.normalize(
        torch.randn(EVERY, ARMS, dim, generator=generator, dtype=torch.float64), dim=-1
    )
    noise = 0.5 * torch.randn(EVERY, generator=generator, dtype=torch.float64)
    for _ in range(3):
        play(shared, rows, noise)
    counter.calls = counter.bytes = 0
    start = time.perf_counter()
    in_sync = sum(play(shared, rows, noise) for _ in range(syncs))
    seconds = time.perf_counter() - start
    return {
        "seconds": seconds,
        "sync": in_sync / seconds,
        "calls": counter.calls / syncs,
        "bytes": counter.bytes / syncs,
    }


def one_rank(rank: int, world: int, folder: Path, settings: list[tuple[int, str]], syncs: int, repeats: int) -> None:
    """Measure all settings in turn, in one of so many processes."""
    torch.set_num_threads(1)
    if world > 1:
        place = f"file://{folder}/store"
        distributed.init_process_group(
            "gloo", init_method=place, rank=rank, world_size=world, timeout=timedelta(minutes=5)
        )
    counter = Counter()
    found: list[Any] = [[dim, way, measure(dim, way, syncs, counter)] for _ in range(repeats) for dim, way in settings]
    (folder / f"{rank}.json").write_text(json.dumps(found))
    if world > 1:
        distributed.destroy_process_group()


def processes(world: int, syncs: int, repeats: int, dims: tuple[int, ...]) -> dict[tuple[int, str], dict[str, float]]:
    """Start so many processes; return what the fastest turn of each setting has measured, on the first rank."""
    with tempfile.TemporaryDirectory() as folder:
        numbers = [str(world), folder, str(syncs), str(repeats), ",".join(map(str, dims))]
        started = [subprocess.Popen([sys.executable, __file__, "--rank", str(rank), *numbers]) for rank in range(world)]
        try:
            for process in started:
                process.wait(LIMIT)
        finally:
            for process in started:
                process.kill()
                process.wait()
        turns = json.loads((Path(folder) / "0.json").read_text())
    best: dict[tuple[int, str], dict[str, float]] = {}
    for dim, way, found in turns:
        if (dim, way) not in best or found["seconds"] < best[dim, way]["seconds"]:
            best[dim, way] = found
    return best


def measured(worlds: tuple[int, ...], syncs: int, repeats: int, dims: tuple[int, ...]) -> list[list[str]]:
    """Return the rows of the first table."""
    results = {world: processes(world, syncs, repeats, dims) for world in worlds}
    head = ["d", "way", *(f"{world} process{'es' * (world > 1)}" for world in worlds)]
    head += [f"ratio at {world}" for world in worlds[1:]] + ["in sync", "messages", "bytes of a rank"]
    rows = [head, ["---"] * len(head)]
    for dim in dims:
        for way in WAYS:
            found = [results[world][dim, way] for world in worlds]
            rates = [world * EVERY * syncs / each["seconds"] for world, each in zip(worlds, found, strict=True)]
            row = [str(dim), f'`"{way}"`', *(f"{rate:,.0f}" for rate in rates)]
            row += [f"{rate / rates[0]:.2f}" for rate in rates[1:]]
            last = found[-1]
            rows.append([*row, f"{100 * last['sync']:.0f} %", f"{last['calls']:.0f}", f"{last['bytes']:,.0f}"])
    return rows


def seconds_of(call: Callable[[], object], repeats: int) -> float:
    """Return the fastest of some calls."""
    best = math.inf
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return best


def learning_costs(dim: int, rows: int, repeats: int) -> tuple[float, float]:
    """Return the seconds of a block besides its rounds, and of a round in a block."""
    policy = HeavyTailUCB(dim, noise_scale=0.5)
    x = torch.nn.functional.normalize(torch.randn(rows, dim, dtype=torch.float64), dim=-1)
    reward = torch.randn(rows, dtype=torch.float64)
    policy.learn(x, reward)
    block = seconds_of(lambda: policy.learn(x[:1], reward[:1], block_size=1), repeats)
    whole = seconds_of(lambda: policy.learn(x, reward, block_size=rows), repeats)
    return block, max(whole - block, 0.0) / (rows - 1)


def modelled(dims: tuple[int, ...], rows: int, repeats: int) -> list[list[str]]:
    """Return the rows of the second table, in milliseconds."""
    table = [["d", "way", "network", "learning", "a sync", "rounds a second"], ["---"] * 6]
    total, hops = RANKS * ROUNDS, math.ceil(math.log2(RANKS))
    blocks = math.ceil(total / MOST)
    for dim in dims:
        block, row = learning_costs(dim, rows, repeats)
        state = 8 * (5 * dim * dim + dim + 4)
        rounds = 8 * total * (dim + 1)
        sums = 8 * (2 * dim * dim + dim + 2)
        header, send_state = hops * LATENCY, hops * (LATENCY + state / BANDWIDTH)
        reduce = 2 * hops * LATENCY + 2 * sums / BANDWIDTH
        costs = {
            "leader": (header + hops * LATENCY + rounds / BANDWIDTH + send_state, blocks * block + total * row),
            "all": (2 * header + hops * LATENCY + rounds / BANDWIDTH, blocks * block + total * row),
            "sums": (header + blocks * reduce + send_state, blocks * block + ROUNDS * row),
        }
        for way, (network, learning) in costs.items():
            times = (f"{1e3 * value:.1f}" for value in (network, learning, network + learning))
            table.append([str(dim), f'`"{way}"`', *times, f"{total / (network + learning):,.0f}"])
    return table


def text_of(rows: list[list[str]]) -> str:
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def main() -> None:
    if sys.argv[1:2] == ["--rank"]:
        rank, world, folder, syncs, repeats, dims = sys.argv[2:]
        settings = [(int(dim), way) for dim in dims.split(",") for way in WAYS]
        one_rank(int(rank), int(world), Path(folder), settings, int(syncs), int(repeats))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", type=int, nargs="+", default=[1, 2], help="numbers of processes")
    parser.add_argument("--syncs", type=int, default=30, help="of a setting and turn")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--output", type=Path, default=Path("outputs"))
    parser.add_argument("--smoke", action="store_true", help="two syncs of each, to see that it runs")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    syncs, repeats = (2, 1) if options.smoke else (options.syncs, options.repeats)
    dims, far, rows = ((4,), (4, 8), 64) if options.smoke else ((32, 128), (32, 128, 512), MOST)

    first = text_of(measured(tuple(options.worlds), syncs, repeats, dims))
    print(f"Rounds a second of all processes, a sync every {EVERY} rounds of a process:\n\n{first}")
    second = text_of(modelled(far, rows, repeats))
    print(f"Milliseconds of a sync of {RANKS} ranks with {ROUNDS} rounds each, modelled:\n\n{second}")
    (options.output / "scaling.md").write_text(f"{first}\n{second}")


if __name__ == "__main__":
    main()
