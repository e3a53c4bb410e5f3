"""Private Poisson regression of doctor visits, in one pass over 4,657 persons.

The RAND Health Insurance Experiment assigned insurance plans to families at random; see
`torchonline.datasets.health_insurance`. Here a record is one person: the number of outpatient doctor visits in a year
(`mdvis`), plan, age, sex, income and health. A Poisson regression with rate 3 exp(x'theta) takes one step for each person
and publishes theta after each step. The learner is `DPTOFW` on a Euclidean ball, for epsilon from 0.1 to 10 and delta = 1 /
(10 n). Held-out families measure the prediction by the mean Poisson deviance 2 [y log(y / m) - y + m], beside predictions
without features and fits without privacy.

Protected: the whole record of one person, in everything that one run publishes, which is n states in a row. The script takes
only the first year of each person in the file, because a second year would be a second participation. Families are not
protected; the script prints their epsilon. A fixed seed shuffles the persons without looking at records.

Public: the number of persons, the family of each person (in this file groups of equal site, plan and income stand for
families), the held-out families, the plans on offer, and all constants of this script. The ranges that scale the features
are not read from the data, see RANGES. Clip, radius and steps are those that did best for simulated people, for each epsilon
separately, with nothing from the file but the number of persons. Even so, the author of this script had seen the file: no
epsilon covers the choice of the features, of the constant 3 and of the grid.

Not private: the held-out deviances, their comparison, and the runs with several noise seeds on the same persons. These are
research on a public data set, which no epsilon covers. Noise from a known seed protects nobody. With secret records, publish
one run, without a seed, and nothing else.

The loss. exp(z) - y z has the gradient (exp(z) - y) x, which is long for a person with many visits. Clipping this gradient
to length C would give the gradient of another convex loss, whose residual exp(z) - y stops growing at C / |x|: a Poisson
regression after Huber. Persons with many visits then count for less, and rates come out too low. The learner, however, clips
the combination t grad(theta_t) - (t - 1) grad(theta_{t-1}), which is not the gradient of any loss. For comparison the script
therefore also fits the Huber loss, without noise.

    python examples/health_insurance_private.py [--smoke] [--output outputs/health_insurance_private]    # a few minutes
"""

import argparse
import inspect
import itertools
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, fields
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

from torchonline import DPTOFW
from torchonline.datasets import health_insurance
from torchonline.off_policy import bootstrap_means
from torchonline.privacy import gaussian_epsilon, gaussian_mu, noise_source
from torchonline.privacy.accounting import Ledger

# Runs are seeded to come again, which the library warns of.
warnings.filterwarnings("ignore", message="seed: expected None")

# Visits per person and year, predicted by theta = 0. A round number: the National Ambulatory Medical Care Survey counts 2.8
# visits to doctor's offices in 1993 and 3.0 in 1992 and in 1997.
USUAL = 3.0
# Logarithm of the median family income in 1974, 12,840 dollars (Census report P60-101).
LOG_INCOME = math.log(12840.0)
# Range of each feature, which is mapped to [-1, 1] and clipped.
RANGES = {
    "coinsurance": (0.0, 1.0),  # share, by contract 0, 25, 25, 50 or 95 %
    "deductible": (0.0, 1.0),  # indicator
    "age": (0.0, 62.0),  # only persons under 62 could enrol
    "child": (0.0, 1.0),  # indicator
    "female": (0.0, 1.0),  # indicator
    "log income": (LOG_INCOME - 1.0, LOG_INCOME + 1.0),
    "diseases": (0.0, 25.0),  # a guess of a high number
    "health": (0.0, 100.0),  # by the definition of the index
}
COLUMNS = ("xage", "child", "female", "linc", "disea", "xghindx", "mdvis")
COINSURANCE = torch.tensor([0.0, 0.25, 0.25, 0.5, 0.95, 0.0], dtype=torch.float64)  # by plan of `health_insurance`
DEDUCTIBLE = 5
NAMES = ("constant", *RANGES)
DIM = len(NAMES)
MOST_VISITS = 20.0  # most visits of a person in the private mean: one in two and a half weeks
EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)
RADII, CLIPS, STEP_SCALES = (1.0, 2.0), (4.0, 8.0, 16.0, 32.0), (0.5, 1.0)


@dataclass
class People:
    """Persons in the order of the stream, and the held-out persons."""

    x: Tensor  # (n, d)
    visits: Tensor  # (n)
    held_x: Tensor  # (m, d)
    held_visits: Tensor  # (m)
    held_family: Tensor  # numbered from 0, (m)

    @property
    def delta(self) -> float:
        return 1.0 / (10 * len(self.x))

    def deviance(self, theta: Tensor) -> Tensor:
        """Return the deviance of each held-out person: ``(..., d)`` to ``(..., m)``."""
        z = theta @ self.held_x.T + math.log(USUAL)
        y = self.held_visits
        return 2.0 * (torch.xlogy(y, y) - y * z - y + z.exp())


@dataclass
class Setting:
    """Options of a learner besides epsilon."""

    radius_bound: float
    clip: float
    step_scale: float


DEFAULTS = Setting(**{f.name: inspect.signature(DPTOFW).parameters[f.name].default for f in fields(Setting)})


@dataclass
class Run:
    """Batch of learners, one for each seed, after the stream."""

    learner: DPTOFW
    path: Tensor  # theta after given numbers of persons, (times, seeds, d)
    cut: float  # share of clipped contributions, not public

    @property
    def theta(self) -> Tensor:
        return self.path[-1]


def features(raw: Tensor) -> Tensor:
    """Scale the columns of RANGES, add a constant: ``(..., d - 1)`` to ``(..., d)``."""
    low, high = torch.tensor(list(RANGES.values()), dtype=torch.float64).unbind(1)
    return torch.cat([torch.ones_like(raw[..., :1]), ((2.0 * raw - low - high) / (high - low)).clamp(-1.0, 1.0)], -1)


def read(families: int | None) -> People:
    """Return one year of each person; a fifth of the families is held out."""
    table, plan, _, _, _, person, family = health_insurance(COLUMNS).tensors
    age, child, female, income, diseases, health, visits = table.T
    columns = [COINSURANCE[plan], (plan == DEDUCTIBLE).double(), age, child, female, income, diseases, health]
    x = features(torch.stack(columns, 1))
    # The first row of each person: the rows of a person are adjacent in the file.
    first = torch.cat([torch.ones(1, dtype=torch.bool), person[1:] != person[:-1]]).nonzero().squeeze(1)
    order = torch.randperm(int(family.max()) + 1, generator=torch.Generator().manual_seed(0))[:families]
    held = first[torch.isin(family[first], order[: len(order) // 5])]
    learnt = first[torch.isin(family[first], order[len(order) // 5 :])]
    learnt = learnt[torch.randperm(len(learnt), generator=torch.Generator().manual_seed(1))]
    _, held_family = family[held].unique(return_inverse=True)
    return People(x[learnt], visits[learnt], x[held], visits[held], held_family)


def simulate(count: int, studies: int) -> tuple[Tensor, Tensor, Tensor]:
    """Simulate B studies of invented persons.

    The laws of the features are invented. The true theta has a random direction and a norm up to 1. Visits are geometric: their
    variance is m + m^2 at mean m, as for persons who differ in more than the features.

    Returns:
        Features ``(n, B, d)``, visits ``(n, B)``, and true thetas ``(B, d)``.
    """
    generator = torch.Generator().manual_seed(2)
    uniform = partial(torch.rand, count, studies, generator=generator, dtype=torch.float64)
    age, plan = 62.0 * uniform(), (len(COINSURANCE) * uniform()).long()
    income = LOG_INCOME + torch.randn(count, studies, generator=generator, dtype=torch.float64)
    columns = [COINSURANCE[plan], (plan == DEDUCTIBLE).double(), age, (age < 18.0).double(), uniform().round()]
    x = features(torch.stack([*columns, income, 25.0 * uniform(), 100.0 * uniform()], -1))
    truth = torch.randn(studies, DIM, generator=generator, dtype=torch.float64)
    length = torch.rand(studies, 1, generator=generator, dtype=torch.float64)
    truth *= length / truth.norm(dim=1, keepdim=True)
    rate = USUAL * (x * truth).sum(-1).exp() * -uniform().log()
    return x, torch.poisson(rate, generator=generator), truth


def learn(x: Tensor, visits: Tensor, epsilon: float, setting: Setting, seed: int, times: set[int] | None = None) -> Run:
    """Take one step for each person, ``(n, B, d)`` and ``(n, B)``, with B learners."""
    count, learners = visits.shape
    learner = DPTOFW(
        DIM,
        horizon=count,
        epsilon=epsilon,
        delta=1.0 / (10 * count),
        radius_bound=setting.radius_bound,
        clip=setting.clip,
        step_scale=setting.step_scale,
        seed=seed,
        batch_shape=(learners,),
    )
    path, cut = [], 0.0
    for t in range(1, count + 1):
        # `torchonline.gradients` computes this for any loss. The formula needs one product for all learners.
        features = x[t - 1].unsqueeze(-2)
        residual = USUAL * (learner.queries() * features).sum(-1).exp() - visits[t - 1].unsqueeze(-1)
        gradients = residual.unsqueeze(-1) * features
        learner.step(gradients)
        combined = t * gradients[:, 0] - (t - 1) * gradients[:, 1]
        cut += float((combined.norm(dim=-1) > setting.clip).double().mean())
        if t in (times or {count}):
            path.append(learner.predict())
    return Run(learner, torch.stack(path), cut / count)


def tune(
    count: int, studies: int, epsilon: float, clips: tuple[float, ...], advance: Callable[[], None]
) -> tuple[Setting, float]:
    """Return the setting with the least simulated deviance, and the deviance."""
    x, visits, truth = simulate(count, studies)
    rate = USUAL * (x * truth).sum(-1).exp()
    found: dict[float, Setting] = {}
    for setting in itertools.starmap(Setting, itertools.product(RADII, clips, STEP_SCALES)):
        theta = learn(x, visits, epsilon, setting, seed=3).theta
        ratio = (x * (truth - theta)).sum(-1)
        found[float((2.0 * rate * (ratio - 1.0 + (-ratio).exp())).mean())] = setting
        advance()
    return found[min(found)], min(found)


def fit(people: People, clip: float = 1e6) -> Tensor:
    """Minimise the loss over all persons, without privacy.

    Gradients are clipped to length ``clip``; the default clips none. Where exp(z) - y would exceed the clip, the loss
    continues as a straight line.
    """
    y, steepest = people.visits, clip / people.x.norm(dim=1)
    low, high = (y - steepest).clamp(min=0.0).log(), (y + steepest).log()
    theta = torch.zeros(DIM, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([theta], max_iter=1000, tolerance_grad=1e-8, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        z = people.x @ theta + math.log(USUAL)
        curved = z.clamp(low, high)
        value = (curved.exp() - y * curved + steepest * (z - curved).abs()).mean()
        value.backward()
        return value

    optimizer.step(loss)
    return theta.detach()


def private_means(people: People, epsilon: float, seeds: int, seed: int) -> Tensor:
    """Return theta ``(seeds, d)`` that predicts a private mean of the clipped visits."""
    count = len(people.visits)
    scale = MOST_VISITS / count / gaussian_mu(epsilon, people.delta)  # one person moves the mean by MOST_VISITS / n
    mean = people.visits.clamp(max=MOST_VISITS).double().mean().expand(seeds)
    mean = noise_source("torch", seed).add_normal(mean, scale)
    theta = torch.zeros(seeds, DIM, dtype=torch.float64)
    theta[:, 0] = (mean.clamp(min=0.1) / USUAL).log()
    return theta


def spread(values: Tensor) -> str:
    """Return mean and standard deviation over seeds as text."""
    return f"{values.mean():.3f} ± {values.std():.3f}"


def gain(people: People, theta: Tensor, reference: Tensor, draws: int) -> str:
    """Return the gain in deviance over a reference, with a 95 % interval by family."""
    difference = (people.deviance(reference) - people.deviance(theta)).reshape(-1, len(people.held_x)).mean(0)
    means = bootstrap_means(difference, torch.ones_like(difference), people.held_family, draws=draws)
    low, high = means.quantile(torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
    return f"{difference.mean():+.2f} ({low:+.2f} to {high:+.2f})"


def level(people: People, theta: Tensor) -> str:
    """Return predicted over actual visits of the held-out persons."""
    predicted = USUAL * (theta @ people.held_x.T).exp().mean()
    return f"{predicted / people.held_visits.mean():.2f}"


def plan_effect(theta: Tensor) -> Tensor:
    """Return the ratio of visits at 95 % coinsurance to visits with free care."""
    return (1.9 * theta[..., NAMES.index("coinsurance")]).exp()


def chosen(people: People, settings: dict[float, Setting], excess: dict[float, float]) -> Table:
    """Return a table of the settings by epsilon."""
    table = Table(title="Chosen on simulated people, and what it left there: mean deviance from the true rates")
    for column in ("epsilon", "radius_bound", "clip", "step_scale", "deviance", "mu"):
        table.add_column(column, justify="right")
    for epsilon, setting in settings.items():
        numbers = (epsilon, setting.radius_bound, setting.clip, setting.step_scale)
        mu = gaussian_mu(epsilon, people.delta)
        table.add_row(*(f"{number:g}" for number in numbers), f"{excess[epsilon]:.3f}", f"{mu:.3f}")
    return table


def compare(
    people: People,
    runs: dict[float, Run],
    silent: dict[float, Run],
    means: dict[float, Tensor],
    huber: dict[float, Tensor],
    draws: int,
) -> Table:
    """Return a table of predictions by epsilon, with and without features and noise."""
    table = Table(title="Mean Poisson deviance of persons held out, mean ± sd over noise seeds, and visits predicted")
    for column in (
        "epsilon", "private mean", "DPTOFW", "less than the private mean", "predicted / made",
        "without noise", "cut", "Huber's loss", "predicted / made",
    ):  # fmt: skip
        table.add_column(column, justify="right")
    for epsilon, run in runs.items():
        quiet = silent[epsilon]
        table.add_row(
            f"{epsilon:g}",
            spread(people.deviance(means[epsilon]).mean(-1)),
            spread(people.deviance(run.theta).mean(-1)),
            gain(people, run.theta, means[epsilon], draws),
            level(people, run.theta),
            f"{people.deviance(quiet.theta).mean():.3f}",
            f"{quiet.cut:.0%}",
            f"{people.deviance(huber[epsilon]).mean():.3f}",
            level(people, huber[epsilon]),
        )
    return table


def coefficients(runs: dict[float, Run], theta: Tensor) -> Table:
    """Return a table of coefficients and of the effect of a plan, by epsilon."""
    table = Table(title="theta, for features from -1 to 1: mean ± sd over seeds. The rate is 3 exp(x'theta)")
    for column in ("feature", *(f"epsilon {epsilon:g}" for epsilon in runs), "not private"):
        table.add_column(column, justify="left" if column == "feature" else "right")
    for k, name in enumerate(NAMES):
        table.add_row(name, *(spread(run.theta[:, k]) for run in runs.values()), f"{theta[k]:.3f}")
    effects = (spread(plan_effect(run.theta)) for run in runs.values())
    table.add_row("visits at 95 % coinsurance / free care", *effects, f"{plan_effect(theta):.3f}")
    return table


def plot_price(
    people: People,
    runs: dict[float, Run],
    curves: dict[str, Tensor],
    lines: dict[str, Tensor],
    times: list[int],
    path: Path,
) -> None:
    """Plot the deviance over epsilon and along the stream."""
    figure, axes = plt.subplots(1, 2, figsize=(13, 5), sharey=True, layout="constrained")
    epsilons = list(runs)
    for name, theta in curves.items():
        deviance = people.deviance(theta).mean(-1)
        (line,) = axes[0].plot(epsilons, deviance.mean(1), "o-", label=name)
        axes[0].fill_between(
            epsilons, deviance.amin(1), deviance.amax(1), color=line.get_color(), alpha=0.2, linewidth=0
        )
    for (name, theta), style in zip(lines.items(), (":", "--", "-."), strict=True):
        for axis in axes:
            axis.axhline(people.deviance(theta).mean(), color="black", linestyle=style, linewidth=0.9, label=name)
    for epsilon, run in runs.items():
        deviance = people.deviance(run.path).mean(-1)
        (line,) = axes[1].plot(times, deviance.mean(1), label=f"epsilon {epsilon:g}")
        axes[1].fill_between(times, deviance.amin(1), deviance.amax(1), color=line.get_color(), alpha=0.15, linewidth=0)
    axes[0].set(
        xscale="log", xlabel="epsilon", ylabel="mean Poisson deviance of persons held out", title="after all persons"
    )
    axes[1].set(xscale="log", xlabel="persons so far", title="along the stream: every state is published")
    low, high = (people.deviance(lines[name]).mean() for name in ("fit to all at once", "3 visits for all"))
    axes[0].set_ylim(low - 0.1 * (high - low), high + 1.5 * (high - low))
    for axis in axes:
        axis.legend(fontsize=8)
        axis.grid(alpha=0.3)
    figure.suptitle("mean, smallest and largest over noise seeds")
    figure.savefig(path, dpi=150)
    plt.close(figure)


def plot_coefficients(runs: dict[float, Run], theta: Tensor, path: Path) -> None:
    """Plot the effects of plans and health over epsilon."""
    figure, axis = plt.subplots(figsize=(8, 5), layout="constrained")
    for name in ("coinsurance", "female", "log income", "diseases", "health"):
        k = NAMES.index(name)
        values = torch.stack([run.theta[:, k] for run in runs.values()])
        (line,) = axis.plot(list(runs), values.mean(1), "o-", label=name)
        axis.fill_between(list(runs), values.amin(1), values.amax(1), color=line.get_color(), alpha=0.15, linewidth=0)
        axis.axhline(theta[k], color=line.get_color(), linestyle="--", linewidth=0.9)
    axis.set(
        xscale="log",
        xlabel="epsilon",
        ylabel="coefficient: mean, smallest and largest over seeds",
        title="dashed: the fit without privacy",
    )
    axis.legend(loc="upper left", ncols=2)
    axis.grid(alpha=0.3)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def of_families(run: Run) -> str:
    """Return the epsilon of families: by group privacy k persons have k times mu."""
    learner = run.learner
    mu = gaussian_mu(learner.epsilon, learner.delta)
    sizes = ", ".join(f"{gaussian_epsilon(k * mu, learner.delta):.1f} for {k}" for k in (2, 4, 8))
    return (
        f"Epsilon of whole families, where it is {learner.epsilon:g} for a person, at the same delta: {sizes} members."
    )


def main() -> None:
    """Tune on simulated persons, learn from the real ones, compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20, help="noise seeds; as many simulated studies")
    parser.add_argument("--output", type=Path, default=Path("outputs/health_insurance_private"))
    parser.add_argument("--smoke", action="store_true", help="25 families, to see that it runs")
    options = parser.parse_args()
    if options.seeds < 2:
        parser.error(f"--seeds: expected at least 2, got {options.seeds}")
    # A step has many tiny products, which more threads only slow down.
    torch.set_num_threads(1)
    seeds, families, clips, draws = (3, 25, (16.0,), 100) if options.smoke else (options.seeds, None, CLIPS, 2000)
    options.output.mkdir(parents=True, exist_ok=True)
    console = Console(width=150)

    people = read(families)
    count = len(people.x)
    console.print(
        f"{count} persons to learn from, {len(people.held_x)} of other families held out; delta = {people.delta:.2g}. "
        f"Visits of those held out: mean {people.held_visits.mean():.2f}, variance {people.held_visits.var():.1f}, "
        f"largest {people.held_visits.max():.0f}; {(people.held_visits == 0).double().mean():.0%} are 0."
    )
    x, visits = people.x.unsqueeze(1), people.visits.unsqueeze(1)
    batched = partial(learn, x.expand(-1, seeds, -1), visits.expand(-1, seeds))
    times = sorted({round(count * 2.0 ** (-k / 2)) for k in range(13)})

    settings, excess, runs, silent = {}, {}, {}, {}
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:
        grid = len(RADII) * len(STEP_SCALES)
        task = progress.add_task("tuning on simulated people", total=grid * (len(clips) * len(EPSILONS) + 1))
        for epsilon in (*EPSILONS, math.inf):
            tried = (math.inf,) if epsilon == math.inf else clips
            settings[epsilon], excess[epsilon] = tune(count, seeds, epsilon, tried, partial(progress.advance, task))
        task = progress.add_task("learning", total=2 * len(EPSILONS) + 2)
        for number, epsilon in enumerate(EPSILONS):
            runs[epsilon] = batched(epsilon, settings[epsilon], seed=10 + number, times=set(times))
            progress.advance(task)
            silent[epsilon] = learn(x, visits, math.inf, settings[epsilon], seed=0)
            progress.advance(task)
        free = learn(x, visits, math.inf, settings[math.inf], seed=0)
        progress.advance(task)
        plain = batched(1.0, DEFAULTS, seed=30)
        progress.advance(task)

    console.print(chosen(people, settings, excess))
    means = {
        epsilon: private_means(people, epsilon, seeds, seed=20 + number) for number, epsilon in enumerate(EPSILONS)
    }
    huber = {epsilon: fit(people, settings[epsilon].clip) for epsilon in EPSILONS}
    best, nobody = fit(people), torch.zeros(DIM, dtype=torch.float64)
    console.print(compare(people, runs, silent, means, huber, draws))
    for name, theta, epsilon in (
        (f"DPTOFW, its defaults (clip {DEFAULTS.clip:g}, cuts {plain.cut:.0%}), epsilon 1", plain.theta, 1.0),
        ("DPTOFW, no noise, no clip", free.theta, 10.0),
        ("fit to all at once", best, 10.0),
        ("3 visits for all", nobody, 10.0),
    ):
        console.print(
            f"{name}: deviance {people.deviance(theta).mean():.3f}, less than the private mean (epsilon {epsilon:g}) by "
            f"{gain(people, theta, means[epsilon], draws)}, predicted / made {level(people, theta)}"
        )
    console.print(coefficients(runs, best))

    one = runs[1.0]
    # Of the same run without a seed: with one it is infinite.
    spent, together = (
        Ledger("replace_one", one.learner.privacy_ledger(runs_of_one).events[:1]).epsilon(people.delta)
        for runs_of_one in (1, seeds)
    )
    console.print(of_families(one))
    steps = zip(times, people.deviance(one.path).mean((1, 2)).tolist(), strict=True)
    console.print(
        "Deviance along the stream at epsilon 1: " + ", ".join(f"{value:.2f} after {t}" for t, value in steps)
    )
    console.print(
        f"One run of epsilon 1 has spent {spent:.3f} by its ledger; all {seeds} of it, published together, would spend "
        f"{together:.2f}. {', '.join(one.learner.privacy_ledger().notes)}."
    )
    console.print(NOTE)
    stacked = {
        "DPTOFW": torch.stack([run.theta for run in runs.values()]),
        "the same without noise": torch.stack([run.theta for run in silent.values()]),
        "Huber's loss with that clip, not private": torch.stack(list(huber.values())).unsqueeze(1),
        "private mean": torch.stack(list(means.values())),
    }
    lines = {"3 visits for all": nobody, "no noise, no clip": free.theta[0], "fit to all at once": best}
    plot_price(people, runs, stacked, lines, times, options.output / "price.png")
    plot_coefficients(runs, best, options.output / "coefficients.png")
    console.print(f"written to {options.output}: price.png, coefficients.png")


NOTE = """
private mean: one prediction for all persons, which uses the whole epsilon. DPTOFW: one pass, n published states. without noise:
the same learner at epsilon infinity. cut: the share of its contributions that are longer than clip. Huber's loss: all persons at
once, no noise, each gradient clipped. Intervals resample held-out families, given the fits.
Not covered by any epsilon: this table, these plots, and the runs with several seeds. They are research on a public data set.
"""


if __name__ == "__main__":
    main()
