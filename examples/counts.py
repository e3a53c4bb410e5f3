"""Counts that vary more than Poisson's: who will see a doctor most often?

Data: outpatient visits in a year, from the RAND Health Insurance Experiment (``torchonline.datasets.health_insurance``): 20,190
person-years, mean 2.86, variance 20.3. A round shows the files of ten persons, and a learner names the one whom it expects to
have the most visits, say to offer a nurse's call. Then it sees that person's visits. The model is Poisson regression on age,
child, sex, income, chronic disease, general health, free care and a constant.

**Real visits.** Rounds draw ten person-years at random, with replacement, and the reward is the real number of visits of the
chosen one: nothing is simulated but the draw. The table shows the mean visits of the chosen, in the whole run and in its last
quarter, beside uniform choice and beside the best Poisson regression in hindsight, fitted to all rows. A quarter of the families
gives what the learners are told besides their defaults. The others are played with.

**Sets.** Whether a confidence set holds can only be counted where the truth is known. So here visits are drawn from the
regression fitted to all rows: from Poisson's law, and from the negative binomial law whose variance mean + a mean^2 fits the
real visits. LocalGLB chooses, with three values of ``noise_scale`` in ``step``:

- none: the variance is the mean;
- the square root of the dispersion, the mean of (visits - mean)^2 / mean. That is what quasi-Poisson regression does. For
  counts that vary more it is a heuristic: exponential moments are not bounded by the variance;
- the square root of the most visits possible, here 77. For counts from 0 to M, noise_scale = sqrt(M) keeps the guarantee
  (docs/generalized_linear_theory.md); draws are cut at M, which moves some means by a few percent.

The table has the number of runs whose set ever lost the truth, and what a user can see, for the real visits too:

- runs in which ``estimator.misspecified`` became True;
- runs with a warning of NoiseDiagnostic, which tests the promise that the variance is at most noise_scale^2 times the mean. It is
  given the upper confidence bound of the mean and the error bar of the prediction, so a kept promise causes a warning with
  probability alpha + delta at most; without error bars, and with the estimated mean, it is sooner and only approximate;
- the dispersion: the mean of (visits - mean)^2 / mean with each round's own prediction, 1 under Poisson's law.

    python examples/counts.py    # a few minutes; seconds with --quick
"""

import argparse
import math
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from torch import Tensor

from torchonline import OFUL, Greedy, LocalGLB, LocalGLMRegression, Poisson, RidgeRegression, ThompsonSampling
from torchonline.datasets import health_insurance
from torchonline.diagnostics import NoiseDiagnostic, NoiseScaleWarning
from torchonline.metrics import has_missed
from torchonline.policies.policy import Policy

COLUMNS = ("xage", "child", "female", "linc", "disea", "xghindx")
ARMS, ALPHA = 10, 0.01


class Visits:
    """The data: features with a constant first, visits, and which rows may tell the learners something."""

    def __init__(self) -> None:
        table, plan, *_, family = health_insurance(("mdvis", *COLUMNS)).tensors
        self.visits, context = table[:, 0], table[:, 1:]
        order = torch.randperm(int(family.max()) + 1, generator=torch.Generator().manual_seed(0))
        self.known = torch.isin(family, order[: len(order) // 4])
        context = torch.cat((context, (plan == 0).double().unsqueeze(1)), 1)
        context = (context - context[self.known].mean(0)) / context[self.known].std(0)
        self.features = torch.cat((torch.ones(len(context), 1, dtype=torch.float64), context), 1)
        self.longest = float(self.features.norm(dim=1).max())


def poisson_fit(x: Tensor, counts: Tensor) -> Tensor:
    """Return the maximum likelihood estimate of Poisson regression, by Newton's method."""
    theta = torch.zeros(x.size(1), dtype=torch.float64)
    theta[0] = counts.mean().log()
    for _ in range(30):
        mean = (x @ theta).exp()
        theta = theta - torch.linalg.solve((x * mean.unsqueeze(1)).T @ x, x.T @ (mean - counts))
    return theta


def dispersion(x: Tensor, counts: Tensor, theta: Tensor) -> float:
    mean = (x @ theta).exp()
    return float(((counts - mean).square() / mean).mean())


def extra_variance(x: Tensor, counts: Tensor, theta: Tensor) -> float:
    """Return a of the variance mean + a mean^2, by moments."""
    mean = (x @ theta).exp()
    return float(((counts - mean).square() - mean).sum() / mean.square().sum())


def draw(mean: Tensor, a: float, generator: torch.Generator) -> Tensor:
    """Draw counts of variance mean + a mean^2."""
    if a > 0.0:
        shape = 1.0 / a
        mean = mean * gamma_draws(mean.shape, shape, generator) / shape
    return torch.poisson(mean, generator=generator)


def gamma_draws(size: torch.Size, shape: float, generator: torch.Generator) -> Tensor:
    """Draw from a gamma law by Marsaglia and Tsang's method: shape + 1 by rejection, then a power of a uniform number."""
    d = shape + 1.0 - 1.0 / 3.0
    c = 1.0 / math.sqrt(9.0 * d)
    found = torch.full(size, math.nan, dtype=torch.float64)
    while bool(found.isnan().any()):
        normal = torch.randn(size, generator=generator, dtype=torch.float64)
        uniform = torch.rand(size, generator=generator, dtype=torch.float64)
        v = (1.0 + c * normal).clamp(min=1e-12) ** 3
        accepted = uniform.log() < 0.5 * normal**2 + d - d * v + d * v.log()
        found = torch.where(found.isnan() & accepted, d * v, found)
    return found * torch.rand(size, generator=generator, dtype=torch.float64) ** (1.0 / shape)


def told_by(data: Visits) -> dict[str, float]:
    """Return what the tuning families tell."""
    x, visits = data.features[data.known], data.visits[data.known]
    theta = poisson_fit(x, visits)
    line = torch.linalg.lstsq(x, visits.unsqueeze(1)).solution.squeeze(1)
    return {
        "dispersion": dispersion(x, visits, theta),
        "theta_bound": 1.5 * float(theta.norm()),
        "most": float(visits.max()),
        "sd": float((visits - x @ line).std()),
        "line_bound": 1.5 * float(line.norm()),
    }


Maker = tuple[Callable[[], Policy | None], float]  # a policy, None for uniform choice, and the noise_scale of its steps


def contenders(data: Visits, told: dict[str, float], trials: int) -> dict[str, Maker]:
    dim, shape = data.features.size(1), (trials,)
    glm: dict[str, Any] = {"link": Poisson(), "feature_bound": data.longest, "batch_shape": shape}
    bound = glm | {"theta_bound": told["theta_bound"]}
    linear: dict[str, Any] = {"batch_shape": shape}
    sure: dict[str, Any] = linear | {"noise_scale": told["sd"], "theta_bound": told["line_bound"]}
    root = math.sqrt(told["dispersion"])
    return {
        "uniform": (lambda: None, 0.0),
        "LocalGLB, default": (lambda: LocalGLB(dim, **glm), 1.0),
        "LocalGLB, told theta_bound": (lambda: LocalGLB(dim, **bound), 1.0),
        "LocalGLB, told theta_bound and dispersion": (lambda: LocalGLB(dim, **bound), root),
        "LocalGLB, told theta_bound and most visits": (lambda: LocalGLB(dim, **bound), math.sqrt(told["most"])),
        "Greedy over LocalGLMRegression, default": (lambda: Greedy(LocalGLMRegression(dim, **glm)), 1.0),
        "Thompson over LocalGLMRegression, default": (lambda: ThompsonSampling(LocalGLMRegression(dim, **glm)), 1.0),
        "OFUL, default": (lambda: OFUL(dim, **linear), 0.0),
        "OFUL, told sd and theta_bound": (lambda: OFUL(dim, **sure), 0.0),
        "Greedy over RidgeRegression, default": (lambda: Greedy(RidgeRegression(dim, **linear)), 0.0),
        "Thompson over RidgeRegression, default": (lambda: ThompsonSampling(RidgeRegression(dim, **linear)), 0.0),
    }


def play(make: Maker, data: Visits, rounds: int, trials: int) -> tuple[Tensor, Tensor]:
    """Return the mean visits of the chosen, over all rounds and over the last quarter, by trial."""
    torch.manual_seed(1)
    generator = torch.Generator().manual_seed(1)
    rows = (~data.known).nonzero().squeeze(1)
    policy, scale = make[0](), make[1]
    chosen = torch.zeros(rounds, trials, dtype=torch.float64)
    for t in range(rounds):
        candidates = rows[torch.randint(len(rows), (trials, ARMS), generator=generator)]
        arms = data.features[candidates]
        index = torch.zeros(trials, dtype=torch.int64) if policy is None else policy.select(arms)
        row = candidates.gather(1, index.unsqueeze(1)).squeeze(1)
        chosen[t] = data.visits[row]
        if policy is not None:
            policy.step(
                arms,
                index,
                chosen[t],
                noise_scale=torch.full((trials,), scale).double() if scale > 0.0 else None,
            )
    return chosen.mean(0), chosen[-(-3 * rounds // 4) :].mean(0)


def hindsight(data: Visits, rounds: int, trials: int) -> tuple[Tensor, Tensor]:
    """Return the same of the regression fitted to all rows."""
    theta = poisson_fit(data.features, data.visits)

    class Fitted:
        def select(self, arms: Tensor) -> Tensor:
            return (arms @ theta).argmax(-1)

        def step(self, *_: Any, noise_scale: Any = None) -> None:
            pass

    policy: Any = Fitted()
    return play((lambda: policy, 0.0), data, rounds, trials)


def count_sets(
    a: float | None, scale: float, cut: float, theta: Tensor, data: Visits, rounds: int, trials: int
) -> tuple[str, ...]:
    """Return how often sets lost the truth, and what noticed; a is that of ``draw``, None for the real visits."""
    generator = torch.Generator().manual_seed(2)
    policy = LocalGLB(
        len(theta),
        link=Poisson(),
        theta_bound=1.5 * float(theta.norm()),
        feature_bound=data.longest,
        batch_shape=(trials,),
    )
    estimator: Any = policy.estimator
    diagnostics = [NoiseDiagnostic(2.0, (trials,), ALPHA) for _ in range(2)]
    firsts = [torch.full((trials,), math.inf) for _ in diagnostics]
    missed, flagged = torch.zeros(trials, dtype=torch.bool), torch.zeros(trials, dtype=torch.bool)
    scales = torch.full((trials,), scale, dtype=torch.float64)
    own = torch.zeros(trials, dtype=torch.float64)
    for t in range(rounds):
        rows = torch.randint(len(data.features), (trials, ARMS), generator=generator)
        arms = data.features[rows]
        index = policy.select(arms)
        row = rows.gather(1, index.unsqueeze(1)).squeeze(1)
        x = data.features[row]
        visits = data.visits[row] if a is None else draw((x @ theta).exp(), a, generator).clamp(max=cut)
        low, high = estimator.interval(x)
        mean = estimator(x)
        own += (visits - mean).square() / mean / rounds
        diagnostics[0].update(
            visits - mean, noise_scale=scale * high.sqrt(), error=torch.maximum(high - mean, mean - low)
        )
        diagnostics[1].update(visits - mean, noise_scale=scale * mean.sqrt())
        policy.step(arms, index, visits, noise_scale=scales)
        missed |= has_missed(estimator, theta.expand(trials, -1))
        flagged |= estimator.misspecified
        warned = [diagnostic.compute().noise_scale_is_small for diagnostic in diagnostics]
        firsts = [torch.where(now & first.isinf(), t + 1.0, first) for now, first in zip(warned, firsts, strict=True)]
    lost = "" if a is None else str(int(missed.sum()))
    return (lost, str(int(flagged.sum())), *map(when, firsts), f"{float(own.mean()):.1f}")


def when(first: Tensor) -> str:
    """Return how many runs were warned, and the median round of the first warning."""
    seen = first[~first.isinf()]
    return f"{len(seen)} (round {int(seen.median())})" if len(seen) else "0"


def markdown(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    return "\n".join("| " + " | ".join(line) + " |" for line in (header, ("---",) * len(header), *rows))


def spread(values: Tensor) -> str:
    return f"{float(values.mean()):.2f} ± {float(values.std() / math.sqrt(len(values))):.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("outputs"))
    parser.add_argument("--quick", "--smoke", action="store_true", help="a few rounds, to see that it runs")
    options = parser.parse_args()
    rounds, trials, runs = (20, 3, 3) if options.quick else (2000, 20, 200)
    options.output.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    console = Console(soft_wrap=True)
    data = Visits()
    theta, told = poisson_fit(data.features, data.visits), told_by(data)
    a = extra_variance(data.features, data.visits, theta)
    facts = (
        f"{len(data.visits)} person-years: mean {data.visits.mean():.2f} visits, variance {data.visits.var():.1f}, largest "
        f"{data.visits.max():.0f}. Poisson regression: dispersion {dispersion(data.features, data.visits, theta):.2f} where the "
        f"law has 1; the variance is about mean + {a:.2f} mean^2; the parameter has norm {theta.norm():.2f}. A quarter of the "
        f"families tells: dispersion {told['dispersion']:.2f}, most visits {told['most']:.0f}, theta_bound "
        f"{told['theta_bound']:.2f}; for lines, sd {told['sd']:.2f} and theta_bound {told['line_bound']:.2f}."
    )
    makers = contenders(data, told, trials)
    laws: tuple[tuple[str, float | None], ...] = (("Poisson", 0.0), ("negative binomial", a), ("real visits", None))
    most = float(data.visits.max())
    scales = (("none", 1.0), ("root of the dispersion", math.sqrt(told["dispersion"])), ("root of 77", math.sqrt(most)))
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    chosen: list[tuple[str, ...]] = []
    sets: list[tuple[str, ...]] = []
    with Progress(*columns, console=console) as progress, warnings.catch_warnings():
        warnings.simplefilter("ignore", NoiseScaleWarning)
        task = progress.add_task("learners and laws", total=1 + len(makers) + len(laws) * len(scales))
        chosen.append(("Poisson regression in hindsight", *map(spread, hindsight(data, rounds, trials))))
        progress.advance(task)
        for name, make in makers.items():
            chosen.append((name, *map(spread, play(make, data, rounds, trials))))
            progress.advance(task)
        for law, extra in laws:
            for name, scale in scales:
                cut = most if name == "root of 77" else math.inf
                sets.append((law, name, *count_sets(extra, scale, cut, theta, data, rounds // 2, runs)))
                progress.advance(task)
    texts = (
        facts,
        f"Real visits of the chosen of {ARMS}, mean ± standard error of {trials} runs of {rounds} rounds",
        markdown(("learner", "all rounds", "last quarter"), chosen),
        f"Sets and warnings: of {runs} runs of {rounds // 2} rounds, delta = 0.01 (median round of a first warning)",
        markdown(
            ("visits", "noise_scale", "set lost", "misspecified", "warned", "warned, no error bars", "dispersion"), sets
        ),
    )
    console.print("\n\n".join(texts), markup=False, highlight=False)
    path = options.output / "counts.md"
    path.write_text("\n\n".join(texts) + "\n")
    console.print(f"Written: {path}")


if __name__ == "__main__":
    main()
