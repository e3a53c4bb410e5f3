"""What a shared learner costs: processor time of decisions and syncs, bytes on the wire, and a model of 1000 ranks.

The first table is measured, on one machine and gloo. Each process decides among ten arms by AnytimeHeavyTailUCB, one decision
after the other, and queues what it observes. All sync every hundred rounds of a process. Every process has one thread. All
settings take turns, ``--repeats`` times, and each shows the fastest of its turns. Times are processor times, so that it matters
little how many cores there are and who else uses them. Rounds a second are those of all processes, if each had a core of its own
and the network took no time: the first process's decisions and sync, one after the other.

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

from torchonline import AnytimeHeavyTailUCB
from torchonline.distributed import SharedLearner

ARMS, EVERY = 10, 100
WAYS = ("leader", "all", "sums")
LIMIT = 3000  # seconds that the processes may take
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


def play(shared: SharedLearner, arms: Tensor, noise: Tensor) -> tuple[float, float]:
    """Play a hundred rounds and sync; return the processor time of the decisions and of the sync."""
    start = time.process_time()
    for each, error in zip(arms, noise.tolist(), strict=True):
        k = shared.select(each)
        shared.observe(each, k, float(each[k, 0]) + error)
    middle = time.process_time()
    shared.sync()
    return middle - start, time.process_time() - middle


def measure(dim: int, way: str, syncs: int, group: Any, counter: Counter) -> list[float]:
    """Return seconds of decisions and of a sync, collectives and bytes of a sync, of this process."""
    shared = SharedLearner(AnytimeHeavyTailUCB(dim, noise_scale=0.5), learn_on=way, group=group)
    generator = torch.Generator().manual_seed(shared.ranks.rank)
    rows = torch.nn.functional.normalize(
        torch.randn(EVERY, ARMS, dim, generator=generator, dtype=torch.float64), dim=-1
    )
    noise = 0.5 * torch.randn(EVERY, generator=generator, dtype=torch.float64)
    for _ in range(3):
        play(shared, rows, noise)
    counter.calls = counter.bytes = 0
    times = [play(shared, rows, noise) for _ in range(syncs)]
    return [*(sum(each) / syncs for each in zip(*times, strict=True)), counter.calls / syncs, counter.bytes / syncs]


def one_rank(rank: int, folder: Path, worlds: list[int], dims: list[int], syncs: int, repeats: int) -> None:
    """Measure all settings in turn, with the first so many processes. The others wait."""
    torch.set_num_threads(1)
    place, limit = f"file://{folder}/store", timedelta(seconds=LIMIT)
    distributed.init_process_group("gloo", init_method=place, rank=rank, world_size=max(worlds), timeout=limit)
    groups = [(world, distributed.new_group(list(range(world)))) for world in worlds]
    counter, found = Counter(), []
    for _ in range(repeats):
        for dim in dims:
            for way in WAYS:
                for world, group in groups:
                    if rank < world:
                        found.append([dim, way, world, measure(dim, way, syncs, group, counter)])
                    distributed.barrier()
    (folder / f"{rank}.json").write_text(json.dumps(found))
    distributed.destroy_process_group()


def measured(worlds: list[int], dims: list[int], syncs: int, repeats: int) -> list[list[str]]:
    """Start the processes, and return the rows of the first table."""
    with tempfile.TemporaryDirectory() as folder:
        arguments = json.dumps([folder, worlds, dims, syncs, repeats])
        command = [sys.executable, __file__, "--rank"]
        started = [subprocess.Popen([*command, str(rank), arguments]) for rank in range(max(worlds))]
        try:
            for process in started:
                process.wait(LIMIT)
        finally:
            for process in started:
                process.kill()
                process.wait()
        turns = [json.loads((Path(folder) / f"{rank}.json").read_text()) for rank in range(max(worlds))]
    best = [fastest(found) for found in turns]
    head = [
        "d",
        "way",
        "processes",
        "decisions",
        "sync, first",
        "sync, last",
        "rounds a second",
        "ratio",
        "messages",
        "bytes",
    ]
    rows = [head, ["---"] * len(head)]
    for dim in dims:
        for way in WAYS:
            alone = 0.0
            for world in worlds:
                (decisions, sync, calls, sent), (_, last, *_) = (best[rank][dim, way, world] for rank in (0, world - 1))
                rate = world * EVERY / (decisions + sync)
                alone = alone or rate
                times = (f"{1e3 * value:.1f}" for value in (decisions, sync, last))
                row = [str(dim), f'`"{way}"`', str(world), *times, f"{rate:,.0f}", f"{rate / alone:.2f}"]
                rows.append([*row, f"{calls:.1f}", f"{sent:,.0f}"])
    return rows


def fastest(turns: list[Any]) -> dict[tuple[int, str, int], list[float]]:
    """Return the smallest of each number of each setting."""
    best: dict[tuple[int, str, int], list[float]] = {}
    for dim, way, world, found in turns:
        before = best.get((dim, way, world), found)
        best[dim, way, world] = list(map(min, before, found))
    return best


def seconds_of(call: Callable[[], object], repeats: int) -> float:
    """Return the processor time of the fastest of some calls."""
    best = math.inf
    for _ in range(repeats):
        start = time.process_time()
        call()
        best = min(best, time.process_time() - start)
    return best


def learning_costs(dim: int, rows: int, repeats: int) -> tuple[float, float]:
    """Return the seconds of a block besides its rounds, and of a round in a block."""
    policy = AnytimeHeavyTailUCB(dim, noise_scale=0.5)
    arms = torch.nn.functional.normalize(torch.randn(rows, 1, dim, dtype=torch.float64), dim=-1)
    k, reward = torch.zeros(rows, dtype=torch.int64), torch.randn(rows, dtype=torch.float64)
    policy.learn(arms, k, reward)
    block = seconds_of(lambda: policy.learn(arms[:1], k[:1], reward[:1], block_size=1), repeats)
    whole = seconds_of(lambda: policy.learn(arms, k, reward, block_size=rows), repeats)
    return block, max(whole - block, 0.0) / (rows - 1)


def modelled(dims: list[int], rows: int, repeats: int) -> list[list[str]]:
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
        folder, *rest = json.loads(sys.argv[3])
        one_rank(int(sys.argv[2]), Path(folder), *rest)
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--worlds", type=int, nargs="+", default=[1, 2, 4], help="numbers of processes, from small to large"
    )
    parser.add_argument("--syncs", type=int, default=20, help="of a setting and turn")
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--output", type=Path, default=Path("outputs"))
    parser.add_argument("--smoke", action="store_true", help="two syncs of each, to see that it runs")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    syncs, repeats = (2, 1) if options.smoke else (options.syncs, options.repeats)
    dims, far, rows = ([4], [4, 8], 64) if options.smoke else ([32, 128], [32, 128, 512], MOST)

    first = text_of(measured(options.worlds, dims, syncs, repeats))
    print(f"Milliseconds of {EVERY} decisions and of the sync after them, by process:\n\n{first}")
    second = text_of(modelled(far, rows, min(repeats, 5)))
    print(f"Milliseconds of a sync of {RANKS} ranks with {ROUNDS} rounds each, modelled:\n\n{second}")
    (options.output / "scaling.md").write_text(f"{first}\n{second}")


if __name__ == "__main__":
    main()
