"""Rare clicks: which of 34 items to show in a fashion shop?

Data: the Open Bandit Dataset's sample, logs of the shop ZOZOTOWN in November 2019 that come with the package obp. Its campaign
"men" has 34 items and 20,000 logged impressions with 115 clicks. In half of them the item was uniform, in half it was chosen by
Thompson sampling. Nothing of obp is imported: only its files are read, from an installed obp or from ``--data FOLDER``.

**What the log can say itself.** Replay lets a learner choose in each logged round, and keeps the rounds in which its choice is
the logged item. With 34 items and a click in two hundred rounds, that is some three hundred rounds with one or two clicks. So no
replay of this log can rank learners, and the script shows that.

**What is simulated.** Therefore clicks are drawn from a model: a logistic regression on the real log, with an L2 penalty that is
chosen by the likelihood of days left out. Contexts (user, position) are drawn from the log's, all 34 items can be chosen, and a
click is a coin of the fitted probability. So the table says how learners fare with click rates, items and users like these, if
the logistic model is right. It does not say how they would have fared in the shop.

Features: a constant; the item's first feature (a number) and two category features; whether the user has an affinity to the
item; position; and the user's first feature. All but the constant are scaled to a norm of at most 1.

Learners are told the bound on the length of features, which ``step`` insists on, and nothing else ("default"); or theta_bound =
12, since click rates near one in two hundred need a parameter of norm 4 at least (the default of 1 promises rates above 19 %);
or also start at the click rate (``warm_start``); or first learn a log of 20,000 rounds with uniform items (``learn``).

    python examples/clicks.py    # some minutes, needs `pip install --no-deps obp`; seconds with --quick
"""

import argparse
import csv
import math
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from torch import Tensor

from torchonline import OFUL, Greedy, LocalGLB, LocalGLMRegression, RidgeRegression, ThompsonSampling
from torchonline.off_policy import replay
from torchonline.policies.policy import Policy

CAMPAIGN, BOUND = "men", 12.0
PENALTIES = (0.1, 0.3, 1.0, 3.0, 10.0)


def data_folder(given: Path | None) -> Path:
    """Return the folder of the Open Bandit Dataset's sample."""
    found = find_spec("obp")
    places = [Path(place, "dataset", "obd") for place in (found.submodule_search_locations or [] if found else [])]
    folder = next((place for place in ([given] if given else places) if (place / "random" / CAMPAIGN).is_dir()), None)
    if folder is None:
        raise SystemExit(
            f"--data: expected a folder with random/{CAMPAIGN}/{CAMPAIGN}.csv, found none"
            f"{'' if given is None else f' at {given}'}. To get it: pip install --no-deps obp"
        )
    return folder


class Log:
    """Logged impressions: features of all items, (N, K, d), the shown item and the click."""

    def __init__(self, folder: Path) -> None:
        rows: list[dict[str, str]] = []
        self.uniform: list[bool] = []
        for policy in ("random", "bts"):
            with (folder / policy / CAMPAIGN / f"{CAMPAIGN}.csv").open() as file:
                found = list(csv.DictReader(file))
            rows += found
            self.uniform += [policy == "random"] * len(found)
        with (folder / "random" / CAMPAIGN / "item_context.csv").open() as file:
            items = sorted(csv.DictReader(file), key=lambda item: int(item["item_id"]))
        self.item = torch.tensor([int(row["item_id"]) for row in rows])
        self.click = torch.tensor([float(row["click"]) for row in rows], dtype=torch.float64)
        self.day = [row["timestamp"][:10] for row in rows]
        price = torch.tensor([float(item["item_feature_0"]) for item in items], dtype=torch.float64)
        categories = [one_hot([item[name] for item in items]) for name in ("item_feature_1", "item_feature_3")]
        self._of_item = torch.cat([price.unsqueeze(1), *categories], 1)
        names = [f"user-item_affinity_{k}" for k in range(len(items))]
        self._affinity = torch.tensor([[min(float(row[name]), 1.0) for name in names] for row in rows]).double()
        self._of_user = torch.cat([one_hot([row[name] for row in rows]) for name in ("position", "user_feature_0")], 1)
        self._longest = 1.0
        self._longest = max(
            float(part[..., 1:].norm(dim=-1).max()) for part in self.arms(torch.arange(len(rows))).split(1000)
        )
        self.dim = self.arms(torch.arange(1)).size(-1)

    def arms(self, rows: Tensor) -> Tensor:
        """Return the features of all items in some rows: (...) to (..., K, d), the constant first."""
        affinity = self._affinity[rows].unsqueeze(-1)
        shape = affinity.shape[:-1]
        parts = [
            self._of_item.expand(*shape, -1),
            affinity,
            self._of_user[rows].unsqueeze(-2).expand(*shape, -1),
        ]
        return torch.cat([torch.ones_like(affinity), torch.cat(parts, -1) / self._longest], -1)

    def shown(self, rows: Tensor) -> Tensor:
        """Return the features of the logged items: (n) to (n, d)."""
        return torch.cat([self.arms(part)[torch.arange(len(part)), self.item[part]] for part in rows.split(1000)])


def one_hot(values: list[str]) -> Tensor:
    """Return a column for each value but the most frequent."""
    levels = sorted(set(values), key=lambda level: (-values.count(level), level))
    return torch.stack([torch.tensor([value == level for value in values]).double() for level in levels[1:]], 1)


def logistic_fit(x: Tensor, click: Tensor, penalty: float) -> Tensor:
    """Return a logistic regression with an L2 penalty on all but the constant, by Newton's method."""
    theta, ridge = torch.zeros(x.size(1), dtype=torch.float64), torch.full((x.size(1),), penalty, dtype=torch.float64)
    ridge[0] = 1e-6
    theta[0] = torch.logit(click.mean().clamp(1e-4, 1.0 - 1e-4))
    for _ in range(30):
        p = torch.sigmoid(x @ theta)
        hessian = (x * (p * (1.0 - p)).unsqueeze(1)).T @ x + ridge.diag()
        theta = theta - torch.linalg.solve(hessian, x.T @ (p - click) + ridge * theta)
    return theta


def log_loss(x: Tensor, click: Tensor, theta: Tensor) -> float:
    z = x @ theta
    return float((torch.nn.functional.softplus(z) - click * z).mean())


def fit_world(log: Log) -> tuple[Tensor, str]:
    """Return the parameter that clicks are drawn from, and how it was found."""
    rows = torch.arange(len(log.click))
    x = log.shown(rows)
    held = [torch.tensor([day == each for day in log.day]) for each in sorted(set(log.day))]

    def held_out(penalty: float) -> float:
        losses = [
            log_loss(x[h], log.click[h], logistic_fit(x[~h], log.click[~h], penalty)) * float(h.sum()) for h in held
        ]
        return sum(losses) / len(rows)

    losses = {penalty: held_out(penalty) for penalty in (*PENALTIES, 1e6)}
    penalty = min(PENALTIES, key=lambda penalty: losses[penalty])
    theta = logistic_fit(x, log.click, penalty)
    rates = torch.sigmoid(log.arms(rows[:: max(1, len(rows) // 1000)]) @ theta)
    best, mean = rates.amax(-1).mean(), rates.mean()
    text = (
        f"{len(rows)} impressions with {log.click.sum():.0f} clicks, {log.arms(rows[:1]).size(-2)} items, d = {log.dim}. "
        f"Penalty {penalty:g}: log loss on held-out days {losses[penalty]:.5f}, with one rate for all {losses[1e6]:.5f}. "
        f"The parameter has norm {theta.norm():.2f}. Fitted rates: uniform items {mean:.2%}, the best item {best:.2%}."
    )
    return theta, text


def contenders(log: Log, trials: int) -> dict[str, tuple[Callable[[], Policy], str]]:
    """Return makers of learners, and what else happens before the first round."""
    dim = log.dim
    shape: dict[str, Any] = {"batch_shape": (trials,)}
    default: dict[str, Any] = shape | {"feature_bound": 1.5}
    told: dict[str, Any] = default | {"theta_bound": BOUND}
    linear: dict[str, Any] = shape | {"noise_scale": 0.08}
    return {
        "LocalGLB, default": (lambda: LocalGLB(dim, **default), ""),
        "LocalGLB, theta_bound 12": (lambda: LocalGLB(dim, **told), ""),
        "LocalGLB, theta_bound 12, starts at the click rate": (lambda: LocalGLB(dim, **told), "warm"),
        "LocalGLB, theta_bound 12, after a log": (lambda: LocalGLB(dim, **told), "log"),
        "Greedy, theta_bound 12": (lambda: Greedy(LocalGLMRegression(dim, **told)), ""),
        "Greedy, theta_bound 12, after a log": (lambda: Greedy(LocalGLMRegression(dim, **told)), "log"),
        "Thompson, theta_bound 12": (lambda: ThompsonSampling(LocalGLMRegression(dim, **told)), ""),
        "OFUL, default": (lambda: OFUL(dim, **shape), ""),
        "OFUL, noise_scale 0.08 (heuristic)": (lambda: OFUL(dim, **linear), ""),
        "OFUL, noise_scale 0.08 (heuristic), after a log": (lambda: OFUL(dim, **linear), "log"),
        "Greedy over RidgeRegression": (lambda: Greedy(RidgeRegression(dim, **shape)), ""),
    }


def draw(log: Log, trials: int, generator: torch.Generator) -> Tensor:
    """Return the items' features in the context of a random impression, for each trial."""
    return log.arms(torch.randint(len(log.click), (trials,), generator=generator))


def chosen(arms: Tensor, index: Tensor) -> Tensor:
    return torch.take_along_dim(arms, index[..., None, None], -2).squeeze(-2)


def play(
    make: Callable[[], Policy], before: str, log: Log, theta: Tensor, rounds: int, logged: int, trials: int
) -> tuple[Tensor, Tensor, str]:
    """Return expected clicks per 1000 rounds, over all and over the last quarter, by trial, and misspecified sets."""
    torch.manual_seed(1)
    generator = torch.Generator().manual_seed(1)
    policy = make()
    estimator: Any = policy.estimator
    if before == "warm":
        start = torch.zeros_like(estimator.theta_hat)
        start[..., 0] = torch.logit(log.click.mean())
        estimator.warm_start(start, distance=10.0)
    if before == "log":
        rows, clicks = [], []
        for _ in range(logged):
            arms = draw(log, trials, generator)
            x = chosen(arms, torch.randint(arms.size(-2), (trials,), generator=generator))
            rows.append(x)
            clicks.append(torch.bernoulli(torch.sigmoid(x @ theta), generator=generator))
        first = torch.zeros(trials, logged, dtype=torch.int64)  # a logged row is the only arm of its round
        policy.learn(torch.stack(rows, 1).unsqueeze(-2), first, torch.stack(clicks, 1))
    means = torch.zeros(rounds, trials, dtype=torch.float64)
    for t in range(rounds):
        arms = draw(log, trials, generator)
        index = policy.select(arms)
        means[t] = torch.sigmoid(chosen(arms, index) @ theta)
        policy.step(arms, index, torch.bernoulli(means[t], generator=generator))
    flags = f"{int(estimator.misspecified.sum())} of {trials}" if hasattr(estimator, "misspecified") else ""
    return 1e3 * means.mean(0), 1e3 * means[-(-3 * rounds // 4) :].mean(0), flags


def replayed(log: Log, rounds: int) -> str:
    """Return what is left of the log when LocalGLB replays its uniform half."""
    rows = torch.tensor(log.uniform).nonzero().squeeze(1)[:rounds]
    policy = LocalGLB(log.dim, theta_bound=BOUND, feature_bound=1.5)
    order = torch.arange(len(rows))
    choices = replay(policy, log.arms(rows), log.item[rows], log.click[rows], order, order)
    matches = choices == log.item[rows]
    return (
        f"Replay of {len(rows)} uniform impressions: LocalGLB's choice is the logged item in {int(matches.sum())}, with "
        f"{int(log.click[rows][matches].sum())} clicks. That cannot rank learners."
    )


def markdown(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    return "\n".join("| " + " | ".join(line) + " |" for line in (header, ("---",) * len(header), *rows))


def spread(values: Tensor) -> str:
    return f"{float(values.mean()):.2f} ± {float(values.std() / math.sqrt(len(values))):.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="the folder obp/dataset/obd")
    parser.add_argument("--output", type=Path, default=Path("outputs"))
    parser.add_argument("--quick", "--smoke", action="store_true", help="a few rounds, to see that it runs")
    options = parser.parse_args()
    rounds, logged, trials, most = (30, 60, 3, 300) if options.quick else (10000, 20000, 10, 10**6)
    options.output.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    console = Console(soft_wrap=True)
    log = Log(data_folder(options.data))
    theta, facts = fit_world(log)
    makers = contenders(log, trials)
    rates = torch.sigmoid(log.arms(torch.arange(0, len(log.click), max(1, len(log.click) // 1000))) @ theta)
    rows: list[tuple[str, ...]] = [
        ("the best item", f"{1e3 * float(rates.amax(-1).mean()):.2f}", "", ""),
        ("uniform", f"{1e3 * float(rates.mean()):.2f}", "", ""),
    ]
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("learners", total=len(makers))
        for name, (make, before) in makers.items():
            whole, last, flags = play(make, before, log, theta, rounds, logged, trials)
            rows.append((name, spread(whole), spread(last), flags))
            progress.advance(task)
    texts = (
        facts,
        replayed(log, most),
        f"Simulated clicks per 1000 rounds, mean ± standard error of {trials} runs of {rounds} rounds",
        markdown(("learner", "all rounds", "last quarter", "misspecified"), rows),
    )
    console.print("\n\n".join(texts), markup=False, highlight=False)
    path = options.output / "clicks.md"
    path.write_text("\n\n".join(texts) + "\n")
    console.print(f"Written: {path}")


if __name__ == "__main__":
    main()
