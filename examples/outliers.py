"""Outliers and changes of scale: what rows that are far out cost a policy under ``RunningScaler``, and how it follows a change.

Three actions, three normal features and rewards of 0 or 1 with probability sigmoid(2 w·x), over 2000 rounds and 20 seeds. The
outliers come with rewards by chance. ``torchonline.bandit(3, "binary", 3)`` and the policy of examples/configs/clicks.yaml play,
each also with plain means and deviations, which cut no row. The first table of a policy has the mean probability of a reward in
the last 1000 rounds, and its standard deviation over the seeds. The second has that of windows before and after features have
changed for good in round 1000.

    python examples/outliers.py                  # about ten minutes
    python examples/outliers.py --only bandit    # one of the policies
    python examples/outliers.py --smoke          # 2 seeds, 40 rounds
"""

import argparse
from collections.abc import Callable

import torch
from torch import Tensor

import torchonline
from torchonline import DisjointArms, EpsilonGreedy, LocalGLMRegression, Logistic, RunningScaler
from torchonline.core.ops import along, count_, real

DIM, ACTIONS, SEEDS, ROUNDS, SIZE, CHANGE = 3, 3, 20, 2000, 1e6, 1000
WEIGHTS = torch.tensor([[1.0, 0.0, 0.0], [-1.0, 0.5, 0.0], [0.0, -0.5, 1.0]], dtype=torch.float64)
AGE, AGE_DEVIATION, MISSING = 40.0, 12.0, 999.0
# Of the last rounds before a change, and after it.
WINDOWS = ((-250, 0), (0, 30), (30, 60), (60, 100), (100, 500), (500, 1000))
Features = Callable[[int, Tensor, Tensor], Tensor]


class PlainScaler(RunningScaler):
    """A scaler whose rows enter as they are."""

    def _observe(self, x: Tensor) -> None:
        offset = x - self.mean
        count_(self.rounds)
        self.mean += offset / along(real(self.rounds, x), x)
        self.squares += offset * (x - self.mean)


def default_bandit(seeds: int, *, is_plain: bool) -> DisjointArms:
    """Return ``torchonline.bandit``, one for each seed."""
    policy = torchonline.bandit(DIM, "binary", ACTIONS, batch_shape=(seeds,))
    if not is_plain or policy.scaler is None:
        return policy
    scaler = PlainScaler(DIM, magnitudes=True, intercept=policy.scaler.intercept, batch_shape=(seeds,))
    one = torchonline.bandit(DIM, "binary", batch_shape=(seeds,)).policy
    return DisjointArms(one, ACTIONS, scaler=scaler)


def clicks(seeds: int, *, is_plain: bool) -> DisjointArms:
    """Return the policy of examples/configs/clicks.yaml, one for each seed."""
    scaler = (PlainScaler if is_plain else RunningScaler)(DIM, intercept=1.0, clip=5.0, batch_shape=(seeds,))
    model = LocalGLMRegression(4, link=Logistic(), theta_bound=3.0, feature_bound=9.0, batch_shape=(seeds,))
    return DisjointArms(EpsilonGreedy(model, epsilon=0.05), ACTIONS, scaler=scaler)


SCALERS = {"plain": True, "cuts rows": False}
POLICIES = {"bandit": default_bandit, "clicks.yaml": clicks}


def as_they_are(t: int, x: Tensor, chance: Tensor) -> Tensor:
    """Return the features of a round, from normal ones."""
    return x


def ages(t: int, x: Tensor, chance: Tensor) -> Tensor:
    """Return an age instead of the first feature; 999 stands for one that is missing, in 1 % of the rows."""
    age = torch.where(chance < 0.01, MISSING, AGE + AGE_DEVIATION * x[:, 0])
    return torch.cat([age.unsqueeze(-1), x[:, 1:]], -1)


def clean_ages(t: int, x: Tensor, chance: Tensor) -> Tensor:
    """Return an age instead of the first feature, always known."""
    return ages(t, x, torch.ones_like(chance))


def scaled_by(factor: float) -> Features:
    """Return features that are multiplied from round 1000 on."""
    return lambda t, x, chance: factor * x if t >= CHANGE else x


def shifted_by(shift: float) -> Features:
    """Return features that are larger from round 1000 on."""
    return lambda t, x, chance: x + shift if t >= CHANGE else x


def played(policy: DisjointArms, rounds: int, outliers: dict[int, int], features: Features) -> Tensor:
    """Return the probability of a reward in each round: one row for each seed.

    ``outliers`` says how many outliers come before a round.
    """
    (seeds,) = policy.batch_shape
    random = torch.Generator().manual_seed(1)
    torch.manual_seed(2)
    found = []
    for t in range(rounds):
        for _ in range(outliers.get(t, 0)):
            far = SIZE * torch.randn(seeds, DIM, generator=random, dtype=torch.float64).sign()
            policy.step(far, policy.select(far), (torch.rand(seeds, generator=random) < 0.5).double())
        x = torch.randn(seeds, DIM, generator=random, dtype=torch.float64)
        chances = torch.rand(2, seeds, generator=random, dtype=torch.float64)
        context = features(t, x, chances[0])
        action = policy.select(context)
        mean = torch.sigmoid(2.0 * x @ WEIGHTS.T).gather(-1, action.unsqueeze(-1)).squeeze(-1)
        policy.step(context, action, (chances[1] < mean).double())
        found.append(mean)
    return torch.stack(found, -1)


def cell(values: Tensor) -> str:
    """Return the mean of seeds and its standard deviation over them."""
    return f"{float(values.mean()):.3f} ± {float(values.std()):.3f}"


OUTLIERS: dict[str, tuple[dict[int, int], Features]] = {
    "none": ({}, as_they_are),
    "1 before round 0": ({0: 1}, as_they_are),
    "3 before round 0": ({0: 3}, as_they_are),
    "1 before round 1000": ({1000: 1}, as_they_are),
    "10 before round 1000": ({1000: 10}, as_they_are),
    "none, a feature is an age": ({}, clean_ages),
    "1 % of the ages are 999": ({}, ages),
}
CHANGES: dict[str, Features] = {
    "times 100": scaled_by(100.0),
    "times 1e6": scaled_by(1e6),
    "plus 100": shifted_by(100.0),
    "times 0.1": scaled_by(0.1),
}


def of_outliers(name: str, seeds: int, rounds: int) -> list[list[str]]:
    """Return the table of outliers of a policy, as rows of cells."""
    table = [[f"{name}: outliers of size 1e6", *SCALERS]]
    for words, (outliers, features) in OUTLIERS.items():
        found = [played(POLICIES[name](seeds, is_plain=each), rounds, outliers, features) for each in SCALERS.values()]
        table.append([words, *(cell(each[:, -1000:].mean(-1)) for each in found)])
    return table


def of_changes(name: str, seeds: int, rounds: int) -> list[list[str]]:
    """Return the table of changes for a policy, as rows of cells."""
    table = [[f"{name}: features from round 1000 on", "scaler", *(f"{first} to {last}" for first, last in WINDOWS)]]
    for words, features in CHANGES.items():
        for scaler, is_plain in SCALERS.items():
            found = played(POLICIES[name](seeds, is_plain=is_plain), rounds, {}, features)
            means = [float(found[:, CHANGE + first : CHANGE + last].mean()) for first, last in WINDOWS]
            table.append([words, scaler, *(f"{mean:.3f}" for mean in means)])
    return table


def show(table: list[list[str]]) -> None:
    """Print a table."""
    lines = ["| " + " | ".join(row) + " |" for row in table]
    lines.insert(1, "|---" * len(table[0]) + "|")
    print("\n".join(lines), end="\n\n", flush=True)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="2 seeds, 40 rounds")
    parser.add_argument("--only", choices=tuple(POLICIES), help="one of the policies")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for name in [arguments.only] if arguments.only else POLICIES:
        sizes = (2, 40) if arguments.smoke else (SEEDS, ROUNDS)
        show(of_outliers(name, *sizes))
        show(of_changes(name, *sizes))


if __name__ == "__main__":
    main()
