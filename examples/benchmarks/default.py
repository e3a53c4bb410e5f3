"""The default bandit where rewards come late, have a level or are graded, and where a log is long.

    python examples/benchmarks/default.py    # ten seeds: half an hour to an hour on a core; seconds with --smoke

- clicks: the first game of docs/start.md, of 1000 visitors. All rewards of a batch are learnt after its last decision.
- digits: a small encoder is trained on 600 digits. Its features are the contexts of a bandit on the other 1197. Regret.
- segment, digits, spambase, diamonds in batches: error over 1500 rounds of raw features, where all rewards of a batch are learnt
  after its last decision. Beside it, the error if each decision is opened before the next one, and closed with its reward.
- level: three arms, two features; the right arm pays 1 more than the others, with noise of deviation 0.1, and a level is added to
  all rewards. Wrong choices of 1000.
- diamonds: five levels of the price, and 1 less a quarter of the levels missed is paid. Error over 8000 rounds, and in how many
  runs an arm that is right in a tenth of the rounds got less than a two-hundredth of the choices.
- products: three arms whose clicks depend on products of six features alone; the mean chance of a click of the arms that are
  named after 20,000 logged rounds, as a share of the best possible.
- churn, storms, portal: sets of 5000 to 8000 rounds. Error of the default, of ``interactions="all"``, of ``bins=8`` and of random
  forests: one for each arm, fitted again on all rounds at 150 and at each half as many rounds more. An arm drawn at random in 3 %
  of the rounds, and in the first 150.
- all sets with classes: the errors of 1500 rounds over those of the default in the tables of docs/benchmark.md, by the same
  seeds, without noise and with it. A geometric mean, with the standard error over the sets.
- explore: what the errors of 1500 rounds are multiplied by, if the choice is randomised, as a geometric mean over all sets with
  classes, from two seeds, with the standard error over the sets.
- learn: processor time of a log with 20 features and 10 arms, and beside the time of ``step`` on its first rounds.
"""

import argparse
import gzip
import json
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import data
import numpy as np
import torch
from learners import LEARNERS, OURS_BY_DEFAULT
from play import Job, one_thread, play
from tables import LEAST, mean_ratio

import torchonline


def played(
    policy: Any,
    contexts: Sequence[Any] | np.ndarray,
    pay: Callable[[int, int], float],
    batch: int = 1,
    opens: bool = False,
) -> list[int]:
    """Play contexts in order, learn each batch of rewards after its last decision, and return the choices.

    With ``opens``, each decision is opened before the next one.
    """
    chosen: list[int] = []
    for first in range(0, len(contexts), batch):
        rows, opened = range(first, min(first + batch, len(contexts))), []
        for i in rows:
            chosen.append(int(policy.select(contexts[i])))
            if opens:
                opened.append(policy.open(contexts[i], chosen[i]))
        for i in rows:
            if opens:
                policy.close(opened[i - first], pay(i, chosen[i]))
            else:
                policy.step(contexts[i], chosen[i], pay(i, chosen[i]))
    return chosen


def clicks(seed: int, batch: int, rounds: int) -> float:
    torch.manual_seed(seed)
    # In the order of the start page: a visitor, and the luck of the click.
    draws = [(torch.rand(2), torch.rand(())) for _ in range(rounds)]
    visitors = [torch.tensor([100_000.0, 60.0]) * visitor for visitor, _ in draws]
    policy = torchonline.bandit(dim=2, rewards="binary", actions=3)

    def pay(i: int, k: int) -> float:
        return float(draws[i][1] < (0.6 if k == visitors[i][1] // 20 else 0.1))

    return sum(pay(i, k) for i, k in enumerate(played(policy, visitors, pay, batch)))


def encoded_digits(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the features and labels of 1197 digits, by an encoder that was trained on the other 600."""
    table = data.table("digits")
    x, y = torch.tensor(table.features / 16.0, dtype=torch.float32), torch.tensor(table.labels)
    torch.manual_seed(seed)
    order = torch.randperm(len(y))
    encoder = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 32), torch.nn.ReLU())
    classes = torch.nn.Linear(32, 10)
    optimizer = torch.optim.Adam([*encoder.parameters(), *classes.parameters()], 1e-2)
    for _ in range(150):
        loss = torch.nn.functional.cross_entropy(classes(encoder(x[order[:600]])), y[order[:600]])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        return encoder(x[order[600:]]).double().numpy(), y[order[600:]].numpy()


def digits(seed: int, batch: int, rounds: int) -> float:
    features, labels = encoded_digits(seed)
    features, labels = features[:rounds], labels[:rounds]
    policy = torchonline.bandit(32, rewards="binary", actions=10)
    chosen = played(policy, features, lambda i, k: float(k == labels[i]), batch)
    return float((np.array(chosen) != labels).sum())


def level(seed: int, added: float, rounds: int) -> float:
    rng = np.random.default_rng(seed)
    x, noise = rng.standard_normal((rounds, 2)), 0.1 * rng.standard_normal(rounds)
    right = (x @ rng.standard_normal((2, 3))).argmax(1)
    policy = torchonline.bandit(2, "real", actions=3)
    chosen = played(policy, x, lambda i, k: added + float(k == right[i]) + noise[i])
    return float((np.array(chosen) != right).sum())


def diamonds(seed: int, rounds: int) -> tuple[float, float]:
    stream = data.stream("diamonds", seed, rounds, "none", "raw", False)
    policy = torchonline.bandit(stream.contexts.shape[1], actions=stream.actions)
    chosen = played(policy, stream.contexts, lambda i, k: float(stream.payoffs[i, k]))
    lost = 1.0 - stream.payoffs[np.arange(len(chosen)), chosen]
    plays, right = np.bincount(chosen, minlength=stream.actions), (stream.payoffs == 1.0).mean(0)
    return float(lost.mean()), float(((right >= 0.1) & (plays < len(chosen) / 200)).any())


def products(seed: int, rounds: int) -> float:
    rng = np.random.default_rng(seed)
    weights, first, second = rng.standard_normal((15, 3)), *np.triu_indices(6, 1)
    x = rng.standard_normal((2 * rounds, 6))
    chances = 1.0 / (1.0 + np.exp(-1.5 * (x[:, first] * x[:, second]) @ weights / 15**0.5))
    action = rng.integers(0, 3, rounds)
    clicked = (rng.random(rounds) < chances[np.arange(rounds), action]).astype(float)
    policy = torchonline.bandit(6, "binary", actions=3)
    policy.learn(x[:rounds], action, clicked)
    named, chances = policy.predict(x[rounds:]).argmax(-1).numpy(), chances[rounds:]
    return float(chances[np.arange(rounds), named].mean() / chances.max(1).mean())


def forest(stream: data.Stream, seed: int, batch: int = 1) -> float:
    """Return the error of random forests, one for each arm. They know the rewards of the batches that are complete."""
    from sklearn.ensemble import RandomForestRegressor

    rng, rounds = np.random.default_rng(seed), len(stream.contexts)
    chosen = rng.integers(0, stream.actions, rounds)
    is_random, fitted = rng.random(rounds) < 0.03, 150
    while fitted < rounds:
        until = min(fitted * 3 // 2, rounds)
        now, scores = slice(fitted, until), np.zeros((until - fitted, stream.actions))
        for arm in range(stream.actions):
            (seen,) = np.nonzero(chosen[: fitted // batch * batch] == arm)
            if len(seen):
                model = RandomForestRegressor(min_samples_leaf=3, random_state=seed)
                model.fit(stream.contexts[seen], stream.payoffs[seen, arm])
                scores[:, arm] = model.predict(stream.contexts[now])
        chosen[now] = np.where(is_random[now], chosen[now], scores.argmax(1))
        fitted = until
    return float(1.0 - stream.payoffs[np.arange(rounds), chosen].mean())


def error(stream: data.Stream, seed: int, batch: int = 1, opens: bool = False, **options: Any) -> float:
    torch.manual_seed(seed)
    policy = torchonline.bandit(stream.contexts.shape[1], actions=stream.actions, **options)
    chosen = played(policy, stream.contexts, lambda i, k: float(stream.payoffs[i, k]), batch, opens)
    return float(1.0 - stream.payoffs[np.arange(len(chosen)), chosen].mean())


def late(name: str, seed: int, batch: int, rounds: int) -> tuple[float, float]:
    """Return the errors where rewards come in batches, without and with open decisions."""
    stream = data.stream(name, seed, rounds, "none", "raw", False)
    return error(stream, seed, batch), error(stream, seed, batch, opens=True)


def long(name: str, seed: int, rounds: int) -> list[float]:
    """Return the errors of the default, of all interactions, of bins, and of forests."""
    stream = data.stream(name, seed, rounds, "none", "raw", False)
    ours: list[dict[str, Any]] = [{}, {"interactions": "all"}, {"bins": 8}]
    return [*(error(stream, seed, **options) for options in ours), forest(stream, seed)]


def explored(sets: list[str], seeds: int, rounds: int) -> dict[str, list[float]]:
    """Return the factors of the errors on each set, by kind of exploration."""
    found: dict[str, list[float]] = {}
    for name in sets:
        streams = [data.stream(name, seed, rounds, "none", "raw", False) for seed in range(seeds)]
        ours = max(mean(error(stream, seed) for seed, stream in enumerate(streams)), LEAST)
        for kind in ("epsilon", "squarecb", "thompson"):
            errors = [error(stream, seed, explore=kind) for seed, stream in enumerate(streams)]
            found.setdefault(kind, []).append(max(mean(errors), LEAST) / ours)
    return found


def since_tables(sets: list[str], seeds: int, noise: str) -> list[float]:
    """Return the error on each set over that of the default in the tables of docs/benchmark.md."""
    file = Path(__file__).parents[2] / "docs" / "benchmark_runs.jsonl.gz"
    records = map(json.loads, gzip.decompress(file.read_bytes()).splitlines())
    before = {record["key"]: record["error"] for record in records}
    members, found = tuple((LEARNERS[OURS_BY_DEFAULT].default, seed) for seed in range(seeds)), []
    for name in sets:
        job = Job(name, noise, "raw", OURS_BY_DEFAULT, members, 1500)
        now = mean(record["error"] for record in play(job))
        found.append(max(now, LEAST) / max(mean(before[key] for key in job.keys), LEAST))
    return found


def learn(rounds: int, stepped: int) -> tuple[float, float]:
    """Return the processor seconds of ``learn`` on all rounds, and of ``step`` on as many, from its first rounds."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(rounds, 20, generator=generator, dtype=torch.float64) * torch.arange(1, 21) + 5.0
    action = torch.randint(10, (rounds,), generator=generator)
    reward = (torch.rand(rounds, generator=generator) < 0.3).double()
    times = []
    for name, count in (("learn", rounds), ("step", stepped)):
        policy, start = torchonline.bandit(20, actions=10), time.process_time()
        getattr(policy, name)(x[:count], action[:count], reward[:count])
        times.append((time.process_time() - start) * rounds / count)
    return times[0], times[1]


def said(values: list[float], digits: int) -> str:
    error = stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0
    return f"{mean(values):.{digits}f} ± {error:.{digits}f}"


def lines(seeds: int, smoke: bool) -> Iterator[str]:
    short = 60 if smoke else None
    for batch in (1, 100, 200):
        yield f"| clicks of 1000, batches of {batch} | {said([clicks(s, batch, short or 1000) for s in range(seeds)], 0)} |"
    for batch in (1, 40, 80, 200):
        regrets = [digits(s, batch, short or 1197) for s in range(seeds)]
        yield f"| digits, regret of 1197, batches of {batch} | {said(regrets, 0)} |"
    for name in filter(lambda name: data.SETS[name].is_installed(), ("segment", "digits", "spambase", "diamonds")):
        for batch in (40, 200):
            runs = zip(*(late(name, s, batch, short or 1500) for s in range(seeds)), strict=True)
            plain, opened = (said(list(errors), 3) for errors in runs)
            yield f"| {name}, error over 1500 rounds, batches of {batch} | {plain}; open decisions {opened} |"
    for added in (0.0, 10.0, 100.0, 1000.0):
        yield f"| level {added:g}, wrong of 1000 | {said([level(s, added, short or 1000) for s in range(seeds)], 0)} |"
    if data.SETS["diamonds"].is_installed():
        errors, lost = zip(*(diamonds(s, short or 8000) for s in range(seeds)), strict=True)
        yield f"| diamonds, error over 8000 rounds | {said(list(errors), 4)} |"
        yield f"| diamonds, runs that gave up an arm | {sum(lost):.0f} of {seeds} |"
    yield f"| products, share of the best value | {said([products(s, short or 20_000) for s in range(seeds)], 3)} |"
    for name, rounds in (("churn", 5000), ("storms", 8000), ("portal", 8000)):
        if data.SETS[name].is_installed():
            runs = zip(*(long(name, s, 2 * short if short else rounds) for s in range(seeds)), strict=True)
            default, products_too, bins, forests = (said(list(errors), 3) for errors in runs)
            others = f"all interactions {products_too}; bins {bins}; forests {forests}"
            yield f"| {name}, error over {rounds} rounds | {default}; {others} |"
    sets = ["digits"] if smoke else data.installed(data.chosen_sets(["all"]))
    for noise in data.NOISES:
        yield f"| noise {noise}, error over that of the tables | {mean_ratio(since_tables(sets, seeds, noise))} |"
    for kind, factors in explored(sets, min(seeds, 2), short or 1500).items():
        yield f"| explore={kind}, factor of the errors | {mean_ratio(factors)} |"
    together, single = learn(*(2000, 200) if smoke else (1_000_000, 20_000))
    yield f"| learn of a million rounds, seconds | {together:.1f}; by step {single:.0f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--output", type=Path, default=Path("outputs/default"))
    parser.add_argument("--smoke", action="store_true", help="60 rounds and one seed, to see that it runs")
    options = parser.parse_args()
    one_thread()
    options.output.mkdir(parents=True, exist_ok=True)
    with (options.output / "table.md").open("w") as file:
        for line in chain(
            ("| what | default |", "|---|---|"), lines(1 if options.smoke else options.seeds, options.smoke)
        ):
            print(line, flush=True)
            print(line, file=file, flush=True)


if __name__ == "__main__":
    main()
