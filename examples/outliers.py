"""Outliers and changes of scale: what rows that are far out cost a policy under ``StandardScaler``, and how it follows a change.

Three actions, three normal features and rewards of 0 or 1 with probability sigmoid(2 w·x), over 2000 rounds and 20 seeds. An
outlier has features of ±1e6 and a reward by chance. ``torchonline.bandit(3, "binary", 3)`` and the policy of
examples/configs/clicks.yaml play, each also with plain means and deviations, which cut no row. The first table of a policy has
the mean probability of a reward in the last 900 rounds, and its standard deviation over the seeds. The second has that of windows
before and after features have changed for good in round 1000.

    python examples/outliers.py            # about three minutes
    python examples/outliers.py --smoke    # 2 seeds, 60 rounds
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

import torchonline
from torchonline import DisjointArms, EpsilonGreedy, LocalGLMRegression, Logistic, StandardScaler
from torchonline.core.ops import along, count_, real

DIM, ACTIONS, SEEDS, ROUNDS, SIZE = 3, 3, 20, 2000, 1e6
WEIGHTS = torch.tensor([[1.0, 0.0, 0.0], [-1.0, 0.5, 0.0], [0.0, -0.5, 1.0]], dtype=torch.float64)
AGE, AGE_DEVIATION, MISSING = 40.0, 12.0, 999.0
# Of the last rounds before a change, and after it.
WINDOWS = ((-250, 0), (0, 30), (30, 60), (60, 100), (100, 500), (500, 1000))


class PlainScaler(StandardScaler):
    """A scaler whose rows enter as they are."""

    def _observe(self, x: Tensor) -> None:
        offset = x - self.mean
        count_(self.rounds)
        self.mean += offset / along(real(self.rounds, x), x)
        self.squares += offset * (x - self.mean)


def default_bandit(members: int, *, is_plain: bool) -> DisjointArms:
    """Return ``torchonline.bandit``, many at once."""
    policy = torchonline.bandit(DIM, "binary", ACTIONS, batch_shape=(members,))
    if not is_plain or policy.scaler is None:
        return policy
    own = {name: getattr(policy.scaler, name) for name in ("magnitudes", "interactions", "intercept")}
    scaler = PlainScaler(DIM, **own, batch_shape=(members,))
    one = torchonline.bandit(DIM, "binary", batch_shape=(members,)).policy
    return DisjointArms(one, ACTIONS, scaler=scaler)


def clicks(members: int, *, is_plain: bool) -> DisjointArms:
    """Return the policy of examples/configs/clicks.yaml, many at once."""
    scaler = (PlainScaler if is_plain else StandardScaler)(DIM, intercept=1.0, clip=5.0, batch_shape=(members,))
    model = LocalGLMRegression(4, link=Logistic(), theta_bound=3.0, feature_bound=9.0, batch_shape=(members,))
    return DisjointArms(EpsilonGreedy(model, epsilon=0.05), ACTIONS, scaler=scaler)


POLICIES = {"bandit": default_bandit, "clicks.yaml": clicks}
SCALERS = {"plain": True, "cuts rows": False}

# A stream makes the features of a round from normal ones, the round, that of the change, and a number in [0, 1) for each row.
Stream = Callable[[Tensor, int, int, Tensor], Tensor]


def clean(x: Tensor, t: int, change: int, chance: Tensor) -> Tensor:
    """Return the normal features."""
    return x


def outliers(count: int, *, is_late: bool) -> Stream:
    """Return features with outliers, from round 0 or from the change on."""

    def stream(x: Tensor, t: int, change: int, chance: Tensor) -> Tensor:
        return SIZE * x.sign() if 0 <= t - (change if is_late else 0) < count else x

    return stream


def ages(share: float) -> Stream:
    """Return features of which the first is an age; 999 stands for a share of them."""

    def stream(x: Tensor, t: int, change: int, chance: Tensor) -> Tensor:
        age = torch.where(chance < share, MISSING, AGE + AGE_DEVIATION * x[:, 0])
        return torch.cat([age.unsqueeze(-1), x[:, 1:]], -1)

    return stream


def changed(factor: float, shift: float) -> Stream:
    """Return features that change for good."""
    return lambda x, t, change, chance: factor * x + shift if t >= change else x


OUTLIERS: dict[str, Stream] = {
    "none": clean,
    "1 in round 0": outliers(1, is_late=False),
    "3 from round 0 on": outliers(3, is_late=False),
    "1 in round 1000": outliers(1, is_late=True),
    "10 from round 1000 on": outliers(10, is_late=True),
    "none, a feature is an age": ages(0.0),
    "1 % of the ages are 999": ages(0.01),
}
CHANGES: dict[str, Stream] = {
    "times 100": changed(100.0, 0.0),
    "times 1e6": changed(1e6, 0.0),
    "plus 100": changed(1.0, 100.0),
    "times 0.1": changed(0.1, 0.0),
}
STREAMS = OUTLIERS | CHANGES


def played(name: str, seeds: int, rounds: int, *, is_plain: bool) -> dict[str, Tensor]:
    """Return the probability of a reward in each round, by stream: one row for each seed.

    The streams of a seed have the same normal features and chances.
    """
    random, change, copies = torch.Generator().manual_seed(1), rounds // 2, len(STREAMS)
    torch.manual_seed(2)
    policy = POLICIES[name](copies * seeds, is_plain=is_plain)
    found = []
    for t in range(rounds):
        x = torch.randn(seeds, DIM, generator=random, dtype=torch.float64)
        chance, luck = torch.rand(2, seeds, generator=random, dtype=torch.float64)
        context = torch.cat([stream(x, t, change, chance) for stream in STREAMS.values()])
        action = policy.select(context)
        mean = torch.sigmoid(2.0 * x @ WEIGHTS.T).repeat(copies, 1).gather(-1, action.unsqueeze(-1)).squeeze(-1)
        is_outlier = (context.abs() == SIZE).all(-1)
        policy.step(context, action, (luck.repeat(copies) < torch.where(is_outlier, 0.5, mean)).double())
        found.append(mean)
    return dict(zip(STREAMS, torch.stack(found, -1).split(seeds), strict=True))


def of_outliers(name: str, results: dict[str, dict[str, Tensor]], last: int) -> list[list[str]]:
    """Return the table of outliers of a policy, as rows of cells."""
    rows = {words: [result[words][:, -last:].mean(-1) for result in results.values()] for words in OUTLIERS}
    cells = [[words, *(f"{float(v.mean()):.3f} ± {float(v.std()):.3f}" for v in row)] for words, row in rows.items()]
    return [[f"{name}: outliers", *results], *cells]


def of_changes(name: str, results: dict[str, dict[str, Tensor]], change: int) -> list[list[str]]:
    """Return the table of changes for a policy, as rows of cells."""
    windows = [(first, last) for first, last in WINDOWS if change + first >= 0 and last <= change]
    table = [[f"{name}: features from round 1000 on", "scaler", *(f"{first} to {last}" for first, last in windows)]]
    for words in CHANGES:
        for scaler, result in results.items():
            means = [float(result[words][:, change + first : change + last].mean()) for first, last in windows]
            table.append([words, scaler, *(f"{mean:.3f}" for mean in means)])
    return table


def printed(table: list[list[str]]) -> str:
    """Print a table, and return it."""
    lines = ["| " + " | ".join(row) + " |" for row in table]
    lines.insert(1, "|---" * len(table[0]) + "|")
    text = "\n".join(lines) + "\n"
    print(text, flush=True)
    return text


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="2 seeds, 60 rounds; round 1000 is round 30")
    parser.add_argument("--output", type=Path, help="a folder for the tables; none is written without it")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    seeds, rounds, last = (2, 60, 20) if arguments.smoke else (SEEDS, ROUNDS, 900)
    found = []
    for name in POLICIES:
        results = {scaler: played(name, seeds, rounds, is_plain=plain) for scaler, plain in SCALERS.items()}
        found += [printed(of_outliers(name, results, last)), printed(of_changes(name, results, rounds // 2))]
    if arguments.output is not None:
        arguments.output.mkdir(parents=True, exist_ok=True)
        (arguments.output / "outliers.md").write_text("\n".join(found))


if __name__ == "__main__":
    main()
