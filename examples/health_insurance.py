"""Choice of health insurance plans: a replay of the RAND experiment.

From 1974 to 1982 families at six sites in the United States were randomly assigned to health insurance plans. A round is one
person in one year. The arms are free care, 25 to 50 % coinsurance, 95 % coinsurance and an individual deductible. The reward
is minus the year's medical cost, whoever paid it. The costs are heavy-tailed: their Hill index is 1.6, so they do not seem
to have a variance, although the very largest costs alone do not settle it. The learners choose from age, sex, income and
baseline health. They have a parameter for each arm and feature, d = 28.

Evaluation. Each learner passes through the families in random order. It learns from the person-years in which the family was
on the plan that the learner chose; see `torchonline.off_policy.replay`. Its mean cost is the self-normalised
inverse-propensity mean over these person-years. The assignment probabilities are not in the file; they are estimated by
counts within site and year. A quarter of the families gives the noise scale, the bound on the parameter, the scale of the
features and radius_scale. The results come from the other families.

What this can show: the cost of the choices along such a stream, if given site and year the assignment is independent of
costs, and if the families who left early are like those who stayed.

What it cannot show:

1. Which plan is good. The reward counts dollars, neither health nor who pays. Cost sharing makes people use less care, so
   the cheapest plan is a strict one almost by construction, and a constant policy may well be best. No conclusion about
   welfare follows.
2. Small differences. With infinite variance the bootstrap of a mean is not consistent, so the intervals are only
   indications. The tables also have medians and means of cut costs, which measure something else.
3. A live run. The learner sees the reward of about one person-year in four, and decides all years of a family at once.
4. Attrition. Persons who left are missing from later years.
5. Whether a linear model holds. No theorem covers this stream exactly.

    python examples/health_insurance.py [--smoke] [--output outputs/health_insurance]    # a few minutes
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from torch import Tensor
from torch.nn.functional import one_hot

from torchonline import OFUL, AnytimeHeavyTailUCB, HvtUCB, RidgeRegression, ThompsonSampling
from torchonline.datasets import health_insurance
from torchonline.off_policy import bootstrap_means, effective_sample_size, propensities, replay, self_normalised_mean
from torchonline.policies.policy import Policy

ARMS = ("free", "25-50 %", "95 %", "deductible")
# Arm of each plan of `health_insurance`. 25 %, mixed and 50 % are one arm: only together were they offered at every site.
ARM_OF_PLAN = torch.tensor([0, 1, 1, 1, 2, 3])
COLUMNS = ("xage", "child", "female", "linc", "disea", "xghindx")
DIM = len(ARMS) * (1 + len(COLUMNS))
# Below the tail index of the costs that the script prints.
MOMENT_ORDER = 1.2
UNIT = 100.0  # rewards are in hundreds of dollars
SCALES = (1.0, 0.1, 0.01, 1e-3, 1e-4)
LEARNERS = ("AnytimeHeavyTailUCB", "AnytimeHeavyTailUCB, order 2", "HvtUCB", "OFUL", "LinTS")


@dataclass
class Log:
    """Log of the experiment, N person-years."""

    features: Tensor  # (N, K, d), one row per arm
    action: Tensor  # (N)
    cost: Tensor  # dollars, (N)
    propensity: Tensor  # (N, K), one per arm
    person: Tensor  # (N)
    family: Tensor  # (N)
    incomplete: Tensor  # (N), whether charges for a hospital stay are missing
    tuning: Tensor  # families, in random order
    evaluation: Tensor  # families, in random order

    def rows(self, families: Tensor) -> Tensor:
        """Return the mask of the person-years of some families, (N)."""
        return torch.isin(self.family, families)

    def weights(self, choices: Tensor) -> Tensor:
        """Return the importance weights of choices, (..., N)."""
        propensity = self.propensity.gather(1, self.action.unsqueeze(1)).squeeze(1)
        return (choices == self.action) / propensity


@dataclass
class Promises:
    """Constants for the learners, from the tuning families."""

    noise_scale: float  # moment norm of order MOMENT_ORDER
    deviation: float
    theta_bound: float
    feature_bound: float


@dataclass
class Result:
    """Result of a policy on the evaluation families."""

    weights: Tensor  # (orders, N); a policy that does not learn has one row
    shares: Tensor  # (K), shares of the arms in the person-years


def read(families: int | None) -> Log:
    """Return the log, or a random part; a quarter of the families is for tuning."""
    context, plan, cost, site, year, person, family = health_insurance((*COLUMNS, "inpmis")).tensors
    context, incomplete = context[:, :-1], context[:, -1] == 1
    action = ARM_OF_PLAN[plan]
    propensity = propensities(torch.stack((site, year), 1), action, len(ARMS))
    order = torch.randperm(int(family.max()) + 1, generator=torch.Generator().manual_seed(0))[:families]
    tuning, evaluation = order[: len(order) // 4], order[len(order) // 4 :]
    known = context[torch.isin(family, tuning)]
    context = (context - known.mean(0)) / known.std(0)
    context = torch.cat((torch.ones(len(context), 1, dtype=torch.float64), context), 1)
    # The features of arm k are the context in block k, and zeros elsewhere.
    blocks = torch.eye(len(ARMS), dtype=torch.float64).unsqueeze(-1) * context[:, None, None, :]
    return Log(blocks.flatten(2), action, cost, propensity, person, family, incomplete, tuning, evaluation)


def promises(log: Log) -> Promises:
    """Estimate moment norms and bounds by a ridge regression on the tuning families."""
    rows = log.rows(log.tuning)
    x = log.features[rows].gather(1, log.action[rows, None, None].expand(-1, 1, DIM)).squeeze(1)
    reward = -log.cost[rows] / UNIT
    theta = torch.linalg.solve(x.T @ x + torch.eye(DIM, dtype=torch.float64), x.T @ reward)
    noise = (reward - x @ theta).abs()
    return Promises(
        noise_scale=noise.pow(MOMENT_ORDER).mean().item() ** (1 / MOMENT_ORDER),
        deviation=noise.square().mean().sqrt().item(),
        theta_bound=2.0 * theta.norm().item(),
        feature_bound=log.features.norm(dim=-1).max().item(),
    )


def make_policy(name: str, radius_scale: float, told: Promises, horizon: int, orders: int) -> Policy:
    """Return a batch with one learner for each order of the families."""
    options = {"theta_bound": told.theta_bound, "radius_scale": radius_scale, "batch_shape": (orders,)}
    if name == "AnytimeHeavyTailUCB":
        return AnytimeHeavyTailUCB(DIM, moment_order=MOMENT_ORDER, noise_scale=told.noise_scale, **options)
    if name == "AnytimeHeavyTailUCB, order 2":
        return AnytimeHeavyTailUCB(DIM, moment_order=2.0, noise_scale=told.deviation, **options)
    if name == "HvtUCB":
        return HvtUCB(
            DIM,
            horizon=horizon,
            moment_order=MOMENT_ORDER,
            noise_scale=told.noise_scale,
            feature_bound=told.feature_bound,
            **options,
        )
    if name == "OFUL":
        return OFUL(DIM, noise_scale=told.deviation, **options)
    return ThompsonSampling(RidgeRegression(DIM, noise_scale=told.deviation, **options), scale="theorem")


def play(name: str, radius_scale: float, told: Promises, log: Log, families: Tensor, orders: int) -> Result:
    """Replay the families in random orders, the same for all kinds of learners."""
    torch.manual_seed(1)
    rows = log.rows(families)
    policy = make_policy(name, radius_scale, told, int(rows.sum()), orders)
    streams = torch.stack([families[torch.randperm(len(families))] for _ in range(orders)])
    choices = replay(policy, log.features, log.action, -log.cost / UNIT, log.family, streams)
    shares = one_hot(choices[:, rows], len(ARMS)).double().mean((0, 1))
    return Result(log.weights(choices) * rows, shares)


def constant(arm: int, log: Log, families: Tensor) -> Result:
    """Return the result of the policy that always chooses one arm."""
    weights = log.weights(torch.full_like(log.action, arm)) * log.rows(families)
    return Result(weights.unsqueeze(0), one_hot(torch.tensor(arm), len(ARMS)).double())


def uniform(log: Log, families: Tensor) -> Result:
    """Return the expected result of a uniform choice."""
    weights = torch.cat([constant(arm, log, families).weights for arm in range(len(ARMS))]).mean(0, keepdim=True)
    return Result(weights, torch.full((len(ARMS),), 1.0 / len(ARMS), dtype=torch.float64))


def hill(costs: Tensor, most: float = 0.2) -> tuple[Tensor, Tensor, int]:
    """Return Hill's index for each k up to a share of the costs, and one choice of k.

    The choice is that of Clauset, Shalizi and Newman: the k at which the k largest costs are closest to a Pareto law in the
    Kolmogorov-Smirnov distance.
    """
    largest = costs[costs > 0].sort(descending=True).values
    k = torch.arange(50, max(int(most * len(largest)), 60), 10)
    logs = largest.log()
    index = 1.0 / (logs.cumsum(0)[k - 1] / k - logs[k])
    distance = [
        (torch.arange(1, n + 1) / n - (largest[:n] / largest[n]) ** -alpha).abs().max()
        for n, alpha in zip(k.tolist(), index, strict=True)
    ]
    return k, index, int(torch.stack(distance).argmin())


def describe_tail(log: Log, console: Console, path: Path) -> None:
    """Print and draw the tail index of the costs."""
    figure, axis = plt.subplots(figsize=(7, 4), layout="constrained")
    for name, families in (("all families", torch.cat((log.tuning, log.evaluation))), ("tuning families", log.tuning)):
        costs = log.cost[log.rows(families)]
        k, index, best = hill(costs)
        near = index[(k >= k[best] / 2) & (k <= 2 * k[best])]
        error = index[best] / k[best].double().sqrt()
        console.print(
            f"Hill index, {name}: {index[best]:.2f} ± {error:.2f} from the {k[best]} largest costs of {len(costs)} "
            f"(closest to a Pareto law), {near.min():.2f} to {near.max():.2f} for half to twice as many, "
            f"{index[0]:.2f} ± {index[0] / k[0].double().sqrt():.2f} from the {k[0]} largest"
        )
        (line,) = axis.plot(k, index, label=name)
        axis.fill_between(
            k, index * (1 - 2 / k.sqrt()), index * (1 + 2 / k.sqrt()), alpha=0.2, linewidth=0, color=line.get_color()
        )
        axis.plot(k[best], index[best], "o", color=line.get_color())
    axis.axhline(MOMENT_ORDER, color="black", linestyle=":", label=f"moment_order {MOMENT_ORDER}")
    axis.axhline(2.0, color="black", linestyle="--", linewidth=0.8, label="variance exists above")
    axis.set(xlabel="largest costs used", ylabel="Hill index ± 2 s.e. (as if independent)", title="Tail of the costs")
    axis.legend()
    figure.savefig(path, dpi=150)
    plt.close(figure)


def describe_design(log: Log, used: Tensor, console: Console) -> None:
    """Print overlap, balance and missing data of the arms."""
    logged = log.propensity[used].gather(1, log.action[used].unsqueeze(1))
    console.print(
        "Propensities, counted by site and year: smallest of any arm "
        f"{log.propensity[used].min():.3f} ({ARMS[int(log.propensity[used].min(0).values.argmin())]}), largest weight "
        f"of a logged arm {1 / logged.min():.1f}."
    )
    context = log.features[:, 0, 1 : 1 + len(COLUMNS)]
    table = Table(
        title="The arms after weighting: features minus those of all, in standard deviations; what is missing"
    )
    for column in ("arm", *COLUMNS, "persons", "with under 3 years", "hospital charges missing"):
        table.add_column(column, justify="left" if column == "arm" else "right")
    for number, arm in enumerate(ARMS):
        weights = log.weights(torch.full_like(log.action, number)) * used
        gaps = [self_normalised_mean(column, weights) - column[used].mean() for column in context.T]
        rows = used & (log.action == number)
        years = log.person[rows].unique(return_counts=True)[1]
        table.add_row(
            arm,
            *(f"{gap:+.2f}" for gap in gaps),
            f"{len(years)}",
            f"{(years < 3).double().mean():.1%}",
            f"{log.incomplete[rows].double().mean():.2%}",
        )
    console.print(table)


def tune(told: Promises, log: Log, orders: int, advance: Callable[[], None]) -> tuple[dict[str, float], Table]:
    """Return the radius_scale with the least estimated cost in tuning, per learner."""
    table = Table(title="Mean cost on the tuning families by radius_scale (the lowest is taken)")
    table.add_column("learner", no_wrap=True)
    for scale in SCALES:
        table.add_column(f"{scale:g}", justify="right")
    chosen = {}
    for name in LEARNERS:
        costs = []
        for scale in SCALES:
            weights = play(name, scale, told, log, log.tuning, orders).weights.mean(0)
            costs.append(self_normalised_mean(log.cost, weights).item())
            advance()
        chosen[name] = SCALES[costs.index(min(costs))]
        table.add_row(name, *(f"{cost:.0f}" for cost in costs))
    return chosen, table


def weighted_median(values: Tensor, weights: Tensor) -> float:
    """Return the weighted median: the least value with half of the weight up to it."""
    order = values.argsort()
    total = weights[order].cumsum(0)
    return values[order[torch.searchsorted(total, 0.5 * total[-1])]].item()


def interval(draws: Tensor) -> tuple[float, float]:
    """Return the middle 95 % of bootstrap draws."""
    low, high = draws.quantile(torch.tensor([0.025, 0.975], dtype=draws.dtype)).tolist()
    return low, high


def compare(results: dict[str, Result], reference: str, log: Log, draws: int) -> tuple[list[Table], list[str]]:
    """Return the tables of results and the verdicts of the intervals."""
    weights = torch.stack([result.weights.mean(0) for result in results.values()])
    costs = self_normalised_mean(log.cost, weights)
    boot = bootstrap_means(log.cost, weights, log.family, draws=draws)
    ceiling = log.cost[log.rows(log.tuning)].quantile(0.99).item()
    cut = log.cost.clamp(max=ceiling)
    cut_costs, cut_boot = self_normalised_mean(cut, weights), bootstrap_means(cut, weights, log.family, draws=draws)

    names = list(results)
    base = names.index(reference)
    table = Table(title="Dollars per person-year, evaluation families; 95 % bootstrap intervals by family")
    for column in (
        "policy", "mean cost", "interval", f"minus '{reference}'", "interval", "sd over orders",
        f"mean of cost up to {ceiling:.0f}", "interval", "median",
    ):  # fmt: skip
        table.add_column(column, justify="left" if column == "policy" else "right", no_wrap=column == "policy")
    shares = Table(title="What was chosen, in % of person-years; person-years with weight and what they are worth")
    for column in ("policy", *ARMS, "matched", "effective sample size"):
        shares.add_column(column, justify="left" if column == "policy" else "right", no_wrap=column == "policy")
    for number, (name, result) in enumerate(results.items()):
        low, high = interval(boot[:, number])
        difference = boot[:, number] - boot[:, base]
        row = [f"{costs[number]:.0f}", f"{low:.0f} to {high:.0f}"]
        if number == base:
            row += ["", ""]
        else:
            row += [f"{costs[number] - costs[base]:+.0f}", "{:+.0f} to {:+.0f}".format(*interval(difference))]
        row.append(f"{self_normalised_mean(log.cost, result.weights).std():.1f}" if len(result.weights) > 1 else "")
        low, high = interval(cut_boot[:, number])
        row += [f"{cut_costs[number]:.1f}", f"{low:.0f} to {high:.0f}"]
        row.append(f"{weighted_median(log.cost, weights[number]):.1f}")
        table.add_row(name, *row)
        matched = (result.weights > 0).sum(1).double().mean()
        worth = effective_sample_size(result.weights).mean()
        shares.add_row(name, *(f"{100 * share:.0f}" for share in result.shares), f"{matched:.0f}", f"{worth:.0f}")
    differences, lines = verdicts(names, boot, cut_boot)
    return [table, shares, differences], lines


def verdicts(names: list[str], boot: Tensor, cut_boot: Tensor) -> tuple[Table, list[str]]:
    """Count the learners that differ from other policies, by intervals without 0."""
    learners = [number for number, name in enumerate(names) if name.startswith(LEARNERS)]
    pairs = [(first, second) for first in learners for second in learners if first < second]
    table = Table(title="Learners whose interval of the difference lies below 0 / above 0 / around it")
    for column in ("against", "mean cost", "cut cost"):
        table.add_column(column, justify="left" if column == "against" else "right")
    for other, name in enumerate(names):
        if other in learners:
            continue
        cells = []
        for draws in (boot, cut_boot):
            bounds = [interval(draws[:, number] - draws[:, other]) for number in learners]
            below, above = sum(high < 0 for _, high in bounds), sum(low > 0 for low, _ in bounds)
            cells.append(f"{below} / {above} / {len(bounds) - below - above}")
        table.add_row(name, *cells)
    lines = []
    for what, draws in (("mean cost", boot), ("cut cost", cut_boot)):
        bounds = [interval(draws[:, first] - draws[:, second]) for first, second in pairs]
        apart = [
            f"{names[first]} and {names[second]}"
            for (first, second), (low, high) in zip(pairs, bounds, strict=True)
            if low > 0 or high < 0
        ]
        lines.append(
            f"Learners against each other, {what}: {len(apart)} of {len(pairs)} intervals of a difference are without 0"
            + (f" ({'; '.join(apart)})." if apart else ".")
        )
    return table, lines


def running(result: Result, log: Log, orders: int) -> Tensor:
    """Return the estimate after each family of a stream, (orders, families)."""
    torch.manual_seed(1)
    curves = []
    sums = torch.zeros(2, len(result.weights), int(log.family.max()) + 1, dtype=torch.float64)
    sums[0].index_add_(1, log.family, result.weights)
    sums[1].index_add_(1, log.family, result.weights * log.cost)
    for number in range(orders):
        stream = log.evaluation[torch.randperm(len(log.evaluation))]
        total, weighted = sums[:, number % len(result.weights), stream].cumsum(1)
        curves.append(weighted / total)
    return torch.stack(curves)


def plot(results: dict[str, Result], log: Log, orders: int, path: Path) -> None:
    figure, axes = plt.subplots(1, 2, figsize=(12, 4.8), sharey=True, layout="constrained")
    for name, result in results.items():
        axis = axes[0] if name.startswith(LEARNERS) else axes[1]
        curves = running(result, log, orders)
        families = torch.arange(1, curves.size(1) + 1)
        start = curves.size(1) // 20
        low, high = curves.nanquantile(torch.tensor([0.1, 0.9], dtype=curves.dtype), dim=0)
        style = "--" if "(theory)" in name else "-"
        (line,) = axis.plot(families[start:], curves.mean(0)[start:], style, label=name)
        axis.fill_between(families[start:], low[start:], high[start:], color=line.get_color(), alpha=0.1, linewidth=0)
    for axis, title in zip(axes, ("learners", "policies that do not learn"), strict=True):
        axis.set(title=title, xlabel="families so far")
        axis.legend(fontsize=7)
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("estimated dollars per person-year so far:\nmean, 10 % to 90 % of the orders")
    figure.savefig(path, dpi=150)
    plt.close(figure)


def main() -> None:
    """Describe the log, tune, replay, compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--orders", type=int, default=10, help="random orders of the families")
    parser.add_argument("--output", type=Path, default=Path("outputs/health_insurance"))
    parser.add_argument("--smoke", action="store_true", help="120 families, to see that it runs")
    options = parser.parse_args()
    if options.orders < 1:
        parser.error(f"--orders: expected at least 1, got {options.orders}")
    # A round has many tiny products, which more threads only slow down.
    torch.set_num_threads(1)
    orders, draws, families = (2, 100, 120) if options.smoke else (options.orders, 2000, None)
    options.output.mkdir(parents=True, exist_ok=True)
    console = Console(width=150)

    log = read(families)
    used = log.rows(torch.cat((log.tuning, log.evaluation)))
    cost = log.cost[used]
    console.print(
        f"{len(cost)} person-years of {len(log.tuning)} + {len(log.evaluation)} families (tuning + evaluation). "
        f"Cost in dollars: mean {cost.mean():.0f}, sd {cost.std():.0f}, median {cost.median():.0f}, "
        f"99 % {cost.quantile(0.99):.0f}, largest {cost.max():.0f}; {(cost == 0).double().mean():.0%} are 0; the "
        f"largest 1 % of person-years make {cost.sort().values[-len(cost) // 100 :].sum() / cost.sum():.0%} of all cost."
    )
    describe_tail(log, console, options.output / "hill.png")
    told = promises(log)
    console.print(
        f"From the tuning families, in dollars: noise of norm {told.noise_scale * UNIT:.0f} at order {MOMENT_ORDER}, "
        f"{told.deviation * UNIT:.0f} at order 2 (which need not exist); theta_bound {told.theta_bound * UNIT:.0f}, twice "
        f"that of a ridge regression. Features of norm up to {told.feature_bound:.1f}, d = {DIM}."
    )
    describe_design(log, used, console)

    results: dict[str, Result] = {}
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("tuning", total=len(LEARNERS) * len(SCALES))
        scales, tuning_table = tune(told, log, orders, partial(progress.advance, task))
        for arm, name in enumerate(ARMS):
            results[f"always {name}"] = constant(arm, log, log.evaluation)
        results["uniform"] = uniform(log, log.evaluation)
        task = progress.add_task("evaluation", total=len(LEARNERS))
        for name in LEARNERS:
            for scale in sorted({1.0, scales[name]}, reverse=True):
                kind = " and ".join(["theory"] * (scale == 1.0) + ["tuned"] * (scale == scales[name]))
                results[f"{name} x {scale:g} ({kind})"] = play(name, scale, told, log, log.evaluation, orders)
            progress.advance(task)

    tables, lines = compare(results, "uniform", log, draws)
    for block in (tuning_table, *tables, *lines, NOTE):
        console.print(block)
    plot(results, log, orders, options.output / "running_cost.png")
    console.print(f"written to {options.output}: hill.png, running_cost.png")


NOTE = """
theory: the radius of the paper or theorem. The theorems of OFUL and LinTS need sub-Gaussian noise, and order 2 needs a variance;
these costs do not seem to have one. tuned: the best of the scales on the tuning families, whose estimates are as noisy as these.
A scale below 1 is a heuristic that no theorem covers.
Intervals resample families, given the choices. Without a variance such intervals are not consistent: take them as indications,
and note that there are many. Cut costs and medians are steadier, but they are not what a payer pays.
Costs are not health. Cost sharing makes people use less care, including needed care. That a strict plan is cheapest is what the
experiment was about. It does not say whom the plan serves.
"""


if __name__ == "__main__":
    main()
