r"""Accuracy of private logistic regression with several passes: DP-FTRL beside DP-SGD, banded noise and phased SGD.

The sets, features, promise and seeds are those of ``private_accuracy.py``. All contenders have 1, 4 or 16 passes. A step has 32,
128 or 512 records, so that all have about as many steps.

- *DP-SGD*: each record is in each batch with a probability of its own, in secret. dp-accounting computes its noise.
- *DP-FTRL*: ``DPFTRL`` of the library. Batches come in an order that everybody may know, and each decision may be published.
- *banded*: the same with a banded square root, which has as many bands as a pass has steps (Kalinin and Lampert, NeurIPS 2024).
- *banded, sampled*: with b bands, records are cut into b groups. Step t draws from group t mod b, in secret, each record with b
  times DP-SGD's probability. A record's steps are b apart, so their columns have no row in common. The noise is that of 1/b of
  the steps, times the norm of a column (Choquette-Choo et al., NeurIPS 2023). b is 2, 4, 8 or 16, with the least noise.
- *noise at the end*: SGD in one order, and noise on its last iterate or its average (Wu et al., SIGMOD 2017). The clipped
  logistic loss is convex and smooth, and steps are short, so that no step brings two points further apart. So k passes move
  the result by at most 2kC times the step of a record.
- *phased SGD*: one pass in phases of a half, a quarter, ... of the records. Each has noise at its end, and a quarter of the step
  of the phase before (Feldman, Koren and Talwar, STOC 2020).

Tuning. Each contender has nine settings, three clips and three rates, and publishes the last decision or the average with weights
t^3. The best final accuracy on eight other seeds decides, for each cell. No epsilon covers the choice.

    python examples/benchmarks/private_epochs.py    # about fifteen minutes on a core; seconds with --smoke
    pip install ".[privacy,benchmarks]"    # dp-accounting, and the sets
"""

import argparse
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import data
import numpy as np
import torch
from private_accuracy import (
    CLIPS,
    DELTA,
    SEEDS,
    SETS,
    TUNING,
    People,
    Promise,
    draw,
    grid,
    markdown,
    multiplier,
    percent,
    slopes,
)
from torch import Tensor

from torchonline.baselines import DPFTRL
from torchonline.baselines.private.projections import projected
from torchonline.privacy import gaussian_mu, noise_source
from torchonline.privacy.mechanisms import blt
from torchonline.privacy.mechanisms.toeplitz import BLT

# Noise from a seed is for experiments; the learners say so.
warnings.filterwarnings("ignore", message="seed: expected None")

EPSILONS = (0.5, 1.0, 4.0, 8.0)
RADIUS = 30.0
SIZE = 32  # records a step and a pass
# Of the step of a record, times the clip, by passes.
RATES = {1: (0.1, 0.3, 1.0), 4: (0.03, 0.1, 0.3), 16: (0.01, 0.03, 0.1)}
BANDS = (2, 4, 8, 16)
SMOOTHNESS = 0.25  # of the logistic loss, for features of norm 1

Accuracies = dict[
    str, Tensor
]  # final accuracies of the last and of the averaged decisions, by setting and seed: (K, S)
Settings = Sequence[Mapping[str, float]]  # each with a clip and a rate
Batch = tuple[Tensor, Tensor, Tensor]  # features, labels, and 1 or 0 for records that count or do not


def columns(settings: Settings) -> tuple[Tensor, Tensor]:
    """Return the clips and the rates, ``(K)`` each."""
    clips, rates = zip(*((setting["clip"], setting["rate"]) for setting in settings), strict=True)
    return torch.tensor(clips, dtype=torch.float64), torch.tensor(rates, dtype=torch.float64)


def averaged(average: Tensor, theta: Tensor, step: int) -> Tensor:
    return average + 4.0 / (step + 3.0) * (theta - average)


def final(people: People, theta: Tensor, average: Tensor) -> Accuracies:
    """Return the accuracies of points ``(S, K, d)``."""
    points = {"last": theta, "averaged": average}
    return {which: torch.stack([people.final(each) for each in point.unbind(1)]) for which, point in points.items()}


def gradient(theta: Tensor, batch: Batch, clip: Tensor) -> Tensor:
    """Return the sums of a batch's clipped gradients at ``(S, K, d)``. A gradient is a number times features of norm 1."""
    x, y, weight = (values.unsqueeze(-1) if values.dim() == 2 else values for values in batch)
    numbers = -y * torch.sigmoid(-y * (x @ theta.mT))
    return (weight * torch.clamp(numbers, -clip, clip)).mT @ x


def steps_of(count: int, passes: int) -> int:
    return passes * math.ceil(count / (SIZE * passes))


def in_order(people: People, size: int, passes: int) -> Iterator[Batch]:
    for _ in range(passes):
        for x, y in zip(people.x.split(size, 1), people.y.split(size, 1), strict=True):
            yield x, y, torch.ones_like(y)


def drawn(people: People, size: int, steps: int, bands: int, seed: int) -> Iterator[Batch]:
    """Draw from group t mod b, each record with the probability b m/n, for m records in the mean."""
    runs, count, _ = people.x.shape
    source = noise_source("torch", seed)
    for t in range(steps):
        group = torch.arange(t % bands, count, bands)
        is_in = source.happens((runs, len(group)), bands * size / count)
        # Padded to one length by records that count for 0.
        weight, places = is_in.double().topk(max(1, int(is_in.sum(1).max())))
        index = group[places]
        yield people.x.take_along_dim(index.unsqueeze(-1), 1), people.y.take_along_dim(index, 1), weight


def descend(people: People, batches: Iterable[Batch], noise: Tensor, settings: Settings) -> Accuracies:
    """Play dual averaging on sums with noise, ``(T, S, d)``, of standard deviations in units of the clip."""
    clip, rate = columns(settings)
    total, average = torch.zeros(2, noise.shape[1], len(settings), noise.shape[2], dtype=torch.float64)
    theta = total
    for step, (batch, added) in enumerate(zip(batches, noise, strict=True), 1):
        total = total + gradient(theta, batch, clip)
        theta = projected(-(rate / clip)[:, None] * (total + clip[:, None] * added.unsqueeze(1)), 2.0, RADIUS)
        average = averaged(average, theta, step)
    return final(people, theta, average)


@lru_cache
def factors(steps: int, bands: int) -> tuple[Tensor, Tensor]:
    """Return B and C, n x n, of the square root with so many bands: BC is the lower-triangular matrix of ones."""
    k = torch.arange(1, bands, dtype=torch.float64)
    column = torch.cat([torch.ones(1, dtype=torch.float64), ((2.0 * k - 1.0) / (2.0 * k)).cumprod(0)])
    age = torch.arange(steps).unsqueeze(-1) - torch.arange(steps)
    encoder = torch.where((age >= 0) & (age < bands), column[age.clamp(0, bands - 1)], 0.0)
    ones = torch.ones(steps, steps, dtype=torch.float64).tril()
    return torch.linalg.solve_triangular(encoder, ones, upper=False, left=False), encoder


def rms(decoder: Tensor) -> float:
    """Return the root mean square, over all steps, of the noise of sums."""
    return math.sqrt(float(decoder.square().sum(1).mean()))


def person_norm(encoder: Tensor, apart: int) -> float:
    """Return the norm of the sum of the columns of a record that is in every step of that distance."""
    return float(encoder[:, ::apart].sum(1).norm())


def correlated(decoder: Tensor, scale: float, people: People, seed: int) -> Tensor:
    """Return the noise of all sums, ``(T, S, d)``."""
    shape = (len(decoder), people.x.shape[0], people.x.shape[2])
    z = torch.from_numpy(np.random.default_rng([11, seed]).standard_normal(shape))
    return scale * torch.tensordot(decoder, z, 1)


def least_noise(promise: Promise, count: int, passes: int, several: Sequence[int]) -> tuple[float, int, float]:
    """Return the least noise of the sums, root mean square, its number of bands, and the scale of the noise over the clip.

    The scale is that of a record's share of the steps, times the norm of a column.
    """
    size = SIZE * passes
    steps = steps_of(count, passes)
    found = []
    for bands in (bands for bands in several if bands * size <= count):
        decoder, encoder = factors(steps, bands)
        scale = multiplier(promise, bands * size / count, math.ceil(steps / bands)) * float(encoder[:, 0].norm())
        found.append((scale * rms(decoder), bands, scale))
    return min(found)


def sampled(
    people: People, promise: Promise, seed: int, settings: Settings, *, passes: int, several: tuple[int, ...] = (1,)
) -> Accuracies:
    """Play DP-SGD, or with several bands: of the numbers of bands that fit, the one with the least noise."""
    steps = steps_of(people.x.shape[1], passes)
    _, bands, scale = least_noise(promise, people.x.shape[1], passes, several)
    noise = correlated(factors(steps, bands)[0], scale, people, seed)
    return descend(people, drawn(people, SIZE * passes, steps, bands, seed), noise, settings)


def banded(people: People, promise: Promise, seed: int, settings: Settings, *, passes: int) -> Accuracies:
    size = SIZE * passes
    apart = math.ceil(people.x.shape[1] / size)
    decoder, encoder = factors(passes * apart, apart)
    scale = promise.moved * person_norm(encoder, apart) / gaussian_mu(promise.epsilon, DELTA)
    return descend(people, in_order(people, size, passes), correlated(decoder, scale, people, seed), settings)


def dp_ftrl(people: People, promise: Promise, seed: int, settings: Settings, *, passes: int) -> Accuracies:
    """Play the library's learner, for one setting after the other."""
    runs, count, dim = people.x.shape
    size = SIZE * passes
    apart = math.ceil(count / size)
    thetas, averages = [], []
    for setting in settings:
        learner = DPFTRL(
            dim,
            horizon=passes * apart,
            participations=passes,
            min_separation=apart,
            records_a_step=size,
            clip=setting["clip"],
            learning_rate=setting["rate"] / setting["clip"],
            radius_bound=RADIUS,
            batch_shape=(runs,),
            epsilon=promise.epsilon,
            delta=DELTA,
            adjacency=promise.adjacency,
            seed=seed,
        )
        average = torch.zeros(runs, dim, dtype=torch.float64)
        for step, (x, y, _) in enumerate(in_order(people, size, passes), 1):
            rows = slopes(learner.queries(), x, y)
            missing = torch.zeros(runs, size - rows.shape[1], 1, dim, dtype=torch.float64)
            learner.step(torch.cat([rows, missing], 1))
            average = averaged(average, learner.predict(), step)
        thetas.append(learner.predict())
        averages.append(average)
    return final(people, torch.stack(thetas, 1), torch.stack(averages, 1))


def phased(
    people: People, promise: Promise, seed: int, settings: Settings, *, passes: int, size: int, halve: bool
) -> Accuracies:
    """Play SGD with noise at the end of each phase, on its last iterate or on its average."""
    runs, count, dim = people.x.shape
    source = noise_source("torch", seed)
    clip, rate = columns(settings)
    length = (rate / clip).clamp(max=2.0 / (SMOOTHNESS * size))
    ends = [count - (count >> i) for i in range(1, count.bit_length())] if halve else []
    start, theta, average = 0, *torch.zeros(2, runs, len(settings), dim, dtype=torch.float64)
    for end in [*ends, count]:
        part = People(people.x[:, start:end], people.y[:, start:end], people.held_x, people.held_y)
        for step, batch in enumerate(in_order(part, size, passes), 1):
            theta = projected(theta - length[:, None] * gradient(theta, batch, clip), 2.0, RADIUS)
            average = averaged(average, theta, step)
        # In units of what a record moves.
        scale, moved = promise.moved / gaussian_mu(promise.epsilon, DELTA), (passes * clip * length)[:, None]
        theta, average = (moved * source.add_normal(point / moved, scale) for point in (theta, average))
        start, length = end, length / 4.0
    return final(people, theta, average)


PLAYERS: dict[str, Callable[..., Accuracies]] = {
    "DP-SGD": sampled,
    "DP-FTRL": dp_ftrl,
    "banded": banded,
    "banded, sampled": partial(sampled, several=BANDS),
    "noise at the end": partial(phased, size=SIZE, halve=False),
}


def tuned(
    run: Callable[..., Accuracies], people: People, others: People, promise: Promise, passes: int
) -> tuple[Tensor, str]:
    """Return the accuracies by seed, and the setting that the other seeds chose."""
    settings = grid(clip=CLIPS, rate=RATES[passes])
    tried = run(others, promise, 50, settings, passes=passes)
    which = max(tried, key=lambda name: float(tried[name].mean(1).max()))
    best = settings[int(tried[which].mean(1).argmax())]
    chosen = " ".join(f"{value:g}" for value in best.values())
    return run(people, promise, 60, [best], passes=passes)[which][0], f"{chosen} {which}"


def noises(count: int) -> list[list[str]]:
    """Return rows on the noise of the sums of several passes in one order."""
    rows = []
    told: dict[str, Any] = {"sensitivity": 1.0, "noise_scale": 1.0, "source": noise_source("torch")}
    for passes in RATES:
        apart = math.ceil(count / (SIZE * passes))
        steps = passes * apart
        told |= {"participations": passes, "min_separation": apart}
        blts = BLT(steps, **told), BLT(steps, parameters=blt.parameters(steps), **told)
        values = [mechanism.errors(steps)[0] * mechanism.person_norm(steps) for mechanism in blts]
        for decoder, encoder in (factors(steps, steps), factors(steps, apart)):
            values.append(rms(decoder) * person_norm(encoder, apart))
        rows.append([f"{passes}", f"{steps}", *(f"{value:.2f}" for value in values)])
    return rows


def ratios(count: int, adjacency: str, all_passes: Sequence[int], epsilons: Sequence[float]) -> list[list[str]]:
    """Return rows on the noise of several sampled bands, over that of DP-SGD."""
    rows = []
    for passes in all_passes:
        row = [adjacency, f"{passes}"]
        for promise in (Promise(epsilon, adjacency) for epsilon in epsilons):
            noise, bands, _ = least_noise(promise, count, passes, BANDS)
            row.append(f"{noise / least_noise(promise, count, passes, (1,))[0]:.2f}, {bands} bands")
        rows.append(row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--sets", nargs="+", choices=[*SETS, "breast cancer"], default=list(SETS))
    parser.add_argument("--output", type=Path, default=Path("outputs"), help="folder of the tables")
    parser.add_argument("--smoke", action="store_true", help="a small set of scikit-learn, two seeds, one epsilon")
    options = parser.parse_args()
    seeds, tuning = (2, 1) if options.smoke else (options.seeds, TUNING)
    sets = data.installed(["breast cancer"] if options.smoke else options.sets)
    if not sets:
        parser.error("no set is left: install a package that is named above")
    epsilons = (1.0,) if options.smoke else EPSILONS
    all_passes = (4,) if options.smoke else tuple(RATES)
    torch.set_num_threads(1)
    accuracy, settings, noise, random = [], [], [], []
    for name in sets:
        people, others = draw(name, range(seeds)), draw(name, range(1000, 1000 + tuning))
        noise += [[name, *row] for row in noises(people.x.shape[1])]
        for adjacency in ("zero_out", "replace_one"):
            random += [[name, *row] for row in ratios(people.x.shape[1], adjacency, all_passes, epsilons)]
            rivals: dict[float, Tensor] = {}
            for passes in all_passes:
                one_pass = {"phased SGD": partial(phased, size=8, halve=True)} if passes == 1 else {}
                for title, run in (PLAYERS | one_pass).items():
                    found = [tuned(run, people, others, Promise(e, adjacency), passes) for e in epsilons]
                    if title == "DP-SGD":
                        rivals = {e: values for e, (values, _) in zip(epsilons, found, strict=True)}
                        cells = [percent(values) for values, _ in found]
                    else:
                        cells = [
                            percent(values - rivals[e], "+") for e, (values, _) in zip(epsilons, found, strict=True)
                        ]
                    row = [name, adjacency, f"{passes}", title]
                    accuracy.append([*row, *cells])
                    settings.append([*row, *(setting for _, setting in found)])
                    print(" | ".join(accuracy[-1]), flush=True)
    header = ["set", "neighbours", "passes", "learner", *(f"{epsilon:g}" for epsilon in epsilons)]
    mechanisms = ["BLT", "BLT fitted to the horizon", "square root", "banded square root"]
    tables = {
        "Final accuracy of DP-SGD in percent; of the others less that of DP-SGD with the same passes, paired by seed: "
        f"mean ± standard error of {seeds} seeds, by epsilon": (header, accuracy),
        "Noise of the sums, root mean square for one contribution and mu of 1": (
            ["set", "passes", "steps", *mechanisms],
            noise,
        ),
        "Noise of the sums of banded, sampled, over that of DP-SGD": (
            ["set", "neighbours", "passes", *(f"{epsilon:g}" for epsilon in epsilons)],
            random,
        ),
        "Chosen on other seeds: clip, rate, decision": (header, settings),
    }
    page = f"delta {DELTA:g}\n"
    for title, (columns, rows) in tables.items():
        page += f"\n{title}\n\n{markdown(columns, rows)}"
    print(page)
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "private_epochs.md").write_text(page)


if __name__ == "__main__":
    main()
