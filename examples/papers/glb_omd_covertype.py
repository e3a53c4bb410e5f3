"""Covertype: the real-data experiment of the GLB-OMD paper with all rivals.

The experiment is Appendix F.3 of Zhang, Xu, Zhao and Sugiyama (Generalized linear bandits: almost optimal regret with one-pass
update, 2025). The ten quantitative columns of the UCI Covertype data are standardised and clustered by k-means into K = 60
arms, the best of ten starts. An arm's features are its standardised centroid and a constant, divided by the norm of the longest.
Its reward is 1 if a random member of the cluster, drawn with replacement, is lodgepole pine, and 0 otherwise. There are 1000
rounds and 10 trials, and the learners are told S = 6.

What k-means finds depends on its start. With the seed 7 and one start, means are from 0.103 to 0.881, as the paper prints. So
all but the slowest learners play with these arms too, by theory and shrunk. There the best fit is longer than S, and its best arm
is not the best arm.

The model is not exact: the best logistic fits miss means by up to 0.31. So no confidence set is promised and none is counted.
The paper says kappa = 200 for S = 6. Here learners that need kappa compute it from S: 1 / slope(6) = 405.

All learners of ``glb_omd_learners.py`` play

- by theory: with the radius that their theory has;
- shrunk: all radii times one factor, as in the paper, which does not state it; here 0.1 and 0.01;
- tuned: with the best of ten factors for each learner, the same ten for all, by the mean regret over five other trials of a
  quarter of the length.

A shrunk or tuned radius is a heuristic: it has nothing to do with a confidence set. Uniform choice is beside them, by its
expected regret.

The tables show the mean regret ± standard error over the trials, and the processor time of one learner's round as a multiple of
LocalGLB's, in turn with it over one more trial.

The arms are in ``glb_omd_covertype_arms.json`` and ``glb_omd_covertype_arms_7.json`` beside this script. ``--covertype PATH``
makes them anew from the file of ``torchonline.datasets.covertype`` and keeps them in OUTPUT.

    python examples/papers/glb_omd_covertype.py --workers 2    # a quarter of an hour; less than a minute with --quick
"""

import argparse
import itertools
import json
import statistics
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import torch
from experiment import Experiment, Job, Results, rounded, short, spread, table
from glb_omd_learners import ALGORITHMS, SCALES, Game, Problem, in_turn
from torch import Tensor

from torchonline import Logistic
from torchonline.datasets import covertype
from torchonline.environments import Outcome

CLUSTERS, S, ROUNDS, TRIALS = 60, 6.0, 1000, 10
LODGEPOLE_PINE = 1
FACTORS = (1.0, 0.1, 0.01)
# The best of ten starts of k-means; and the start of seed 7, whose means are those that the paper prints.
ARMS = Path(__file__).with_name("glb_omd_covertype_arms.json")
ARMS_7 = Path(__file__).with_name("glb_omd_covertype_arms_7.json")
STARTS = {ARMS.name: (10, 0), ARMS_7.name: (1, 7)}
EXACT = ("OFUGLB", "OFULog-r")  # they solve a convex problem for each arm, and do not play with the second arms
POINTS = 20  # of a regret curve
UNIFORM = "uniform choice"


def cluster(path: Path, starts: int, seed: int) -> dict[str, Any]:
    """Return the clusters' sizes, their shares of lodgepole pine and their standardised centroids."""
    from sklearn.cluster import KMeans

    features, label = covertype(path).tensors
    numbers = features[:, :10].double()
    spread = numbers.std(0)
    numbers = (numbers - numbers.mean(0)) / torch.where(spread > 0.0, spread, 1.0)
    found = KMeans(CLUSTERS, n_init=starts, random_state=seed).fit(numbers.numpy())
    members = torch.from_numpy(found.labels_).long()
    sizes = members.bincount(minlength=CLUSTERS)
    means = members.bincount(weights=(label == LODGEPOLE_PINE).double(), minlength=CLUSTERS) / sizes
    return {"sizes": sizes.tolist(), "means": means.tolist(), "centroids": found.cluster_centers_.tolist()}


def load_arms(path: Path) -> tuple[Tensor, Tensor]:
    """Return features (K, 11), the longest of norm 1, and means (K)."""
    data = json.loads(path.read_text())
    centroids = torch.tensor(data["centroids"], dtype=torch.float64)
    features = torch.cat([centroids, torch.ones(len(centroids), 1, dtype=torch.float64)], 1)
    return features / features.norm(dim=1).max(), torch.tensor(data["means"], dtype=torch.float64)


class ClusterBandit:
    """Bernoulli bandit with known features, in independent trials."""

    def __init__(self, arms: Tensor, means: Tensor, trials: tuple[int, ...], seed: int) -> None:
        self._arms, self._means = arms.expand(*trials, *arms.shape), means
        self._generator = torch.Generator().manual_seed(seed)

    def arms(self) -> Tensor:
        return self._arms

    def pull(self, index: Tensor) -> Outcome:
        x = torch.take_along_dim(self._arms, index[..., None, None], dim=-2).squeeze(-2)
        mean = self._means[index]
        uniform = torch.rand(index.shape, generator=self._generator, dtype=torch.float64)
        return Outcome(x, (uniform < mean).double(), self._means.max() - mean)


def describe(arms: str) -> dict[str, Any]:
    """Return what the arms are like, and the best logistic fit to their means."""
    from sklearn.linear_model import LogisticRegression

    features, means = load_arms(ARMS.parent / arms)
    count = len(means)
    # Each cluster enters the fit as a success of weight p and a failure of weight 1 - p.
    fit = LogisticRegression(C=1e8, fit_intercept=False, solver="newton-cholesky", tol=1e-9)
    fit.fit(features.repeat(2, 1).numpy(), [1] * count + [0] * count, torch.cat([means, 1.0 - means]).numpy())
    theta = torch.from_numpy(fit.coef_[0])
    predictor = features @ theta
    sizes = json.loads((ARMS.parent / arms).read_text())["sizes"]
    return {
        "rows": sum(sizes),
        "sizes": [min(sizes), max(sizes)],
        "means": [float(means.min()), float(means.max())],
        "second": float(means.topk(2).values[1]),
        "norm": float(theta.norm()),
        "error": float((torch.sigmoid(predictor) - means).abs().max()),
        "regret_of_fit": float(means.max() - means[predictor.argmax()]),
        "uniform": float(means.max() - means.mean()),
    }


def make_game(learner: str, scale: float, rounds: int, trials: tuple[int, ...], seed: int, arms: str) -> Game:
    features, means = load_arms(ARMS.parent / arms)
    problem = Problem(features.size(-1), Logistic(), S, trials, rounds, scale)
    return Game(ALGORITHMS[learner].build(problem), ClusterBandit(features, means, trials, seed))


def play(learner: str, scale: float, rounds: int, trials: int, seed: int, arms: str) -> dict[str, Any]:
    """Play all trials of one learner."""
    torch.manual_seed(seed)
    game = make_game(learner, scale, rounds, (trials,), seed, arms)
    total, curve = torch.zeros(trials, dtype=torch.float64), []
    for t in range(1, rounds + 1):
        total += game.round()
        if t % max(1, rounds // POINTS) == 0:
            curve.append(float(total.mean()))
    return {
        "scale": scale,
        "regret": total.tolist(),
        "curve": curve,
        "radius": float(game.policy.estimator.radius().mean()),
    }


def tune(learner: str, scales: list[float], rounds: int, trials: int, arms: str) -> dict[str, Any]:
    """Play with the scale that has the least mean regret over other trials."""
    tried = {scale: play(learner, scale, rounds // 4, -(-trials // 2), 2, arms)["regret"] for scale in scales}
    best = min(scales, key=lambda scale: statistics.fmean(tried[scale]))
    return play(learner, best, rounds, trials, 1, arms) | {"tried": [[*pair] for pair in tried.items()]}


def time_rounds(learner: str, rounds: int, arms: str) -> float:
    """Return a round's time relative to LocalGLB, in turn with it over one more trial."""
    return in_turn([make_game(each, 1.0, rounds, (), 3, arms) for each in (learner, "LocalGLB")], rounds)[0]


def jobs(quick: bool, folder: str = "") -> dict[str, Job]:
    arms, arms_7 = folder + ARMS.name, folder + ARMS_7.name
    rounds, trials, scales = (8, 2, (1.0, 0.01)) if quick else (ROUNDS, TRIALS, SCALES)
    common = {"rounds": rounds, "trials": trials, "arms": arms}
    found = {"arms": Job(describe, {"arms": arms}), "arms of seed 7": Job(describe, {"arms": arms_7})}
    for name in ALGORITHMS:
        found[f"{name}, tuned"] = Job(tune, {"learner": name, "scales": list(scales), **common})
        for factor in FACTORS:
            found[f"{name}, times {factor:g}"] = Job(play, {"learner": name, "scale": factor, "seed": 1, **common})
        found[f"{name}, time"] = Job(time_rounds, {"learner": name, "rounds": rounds, "arms": arms})
    for name, factor in itertools.product(ALGORITHMS, FACTORS):
        if name not in EXACT:
            options = {"learner": name, "scale": factor, "seed": 1, **common, "arms": arms_7}
            found[f"{name}, seed 7, times {factor:g}"] = Job(play, options)
    return found


def tables(results: Results) -> dict[str, str]:
    arms = results["arms"]
    runs = {name: [results[f"{name}, {kind}"] for kind in KINDS] for name in ALGORITHMS}
    trials = len(runs["LocalGLB"][0]["regret"])
    rounds = ROUNDS if trials == TRIALS else 8
    rows = [
        (
            name,
            *(spread(run["regret"]) for run in runs[name]),
            f"{runs[name][-1]['scale']:g}",
            short(runs[name][0]["radius"]),
            f"{results[f'{name}, time']:.1f}",
        )
        for name in sorted(runs, key=lambda name: statistics.fmean(runs[name][0]["regret"]))
    ]
    uniform = short(rounds * arms["uniform"])
    rows.append((UNIFORM, uniform, *["" for _ in range(len(KINDS) + 2)]))
    header = ("learner", "theory", "all times 0.1", "all times 0.01", "tuned", "its factor", "radius, theory", "time")
    return {
        "Covertype, the arms": facts(arms),
        f"Covertype: regret after {rounds} rounds, mean ± standard error of {trials} trials": table(header, rows),
        "Covertype, the arms of seed 7": facts(results["arms of seed 7"]),
        "Covertype, the arms of seed 7: regret": table(header[:4], rows_7(results, rounds)),
    }


def facts(arms: dict[str, Any]) -> str:
    """Say what the arms are like."""
    sizes, means = arms["sizes"], arms["means"]
    return (
        f"{arms['rows']} rows in clusters of {sizes[0]} to {sizes[1]}. Means are {means[0]:.3f} to {means[1]:.3f}, the second "
        f"highest {arms['second']:.3f}. The best logistic fit has norm {arms['norm']:.2f}, where S = {S:g}; it misses means by "
        f"up to {arms['error']:.3f}, and its best arm is {arms['regret_of_fit']:.3f} below the best."
    )


def rows_7(results: Results, rounds: int) -> list[tuple[str, ...]]:
    runs = {
        name: [results[f"{name}, seed 7, times {factor:g}"]["regret"] for factor in FACTORS]
        for name in ALGORITHMS
        if name not in EXACT
    }
    names = sorted(runs, key=lambda name: statistics.fmean(runs[name][0]))
    uniform = short(rounds * results["arms of seed 7"]["uniform"])
    return [*((name, *map(spread, runs[name])) for name in names), (UNIFORM, uniform, "", "")]


KINDS = (*(f"times {factor:g}" for factor in FACTORS), "tuned")


def figures(results: Results, folder: Path) -> list[Path]:
    """Draw the regret curves of the four ways to play."""
    titles = ("by theory", "all radii times 0.1", "all radii times 0.01", "tuned")
    figure, axes = plt.subplots(2, 2, figsize=(11, 8), layout="constrained")
    colours = plt.get_cmap("tab20").colors  # type: ignore[attr-defined]
    for axis, kind, title in zip(axes.flat, KINDS, titles, strict=True):
        for colour, name in zip(colours, ALGORITHMS, strict=False):
            curve = results[f"{name}, {kind}"]["curve"]
            at = [ROUNDS * (i + 1) / len(curve) for i in range(len(curve))]
            axis.plot(at, curve, label=name, color=colour)
        axis.axline((0.0, 0.0), slope=results["arms"]["uniform"], color="black", linestyle=":", label=UNIFORM)
        axis.set(title=title, xlabel="round", ylabel="regret, mean")
        axis.grid(alpha=0.3)
    figure.legend(*axes.flat[0].get_legend_handles_labels(), fontsize=8, loc="outside right center")
    path = folder / "glb_omd_covertype.png"
    figure.savefig(path, dpi=110)
    plt.close(figure)
    return [path]


def main() -> None:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--covertype", type=Path)
    parser.add_argument("--output", type=Path, default=Path("outputs"))
    options, others = parser.parse_known_args()
    make_jobs: Callable[[bool], dict[str, Job]] = jobs
    if options.covertype is not None:
        if not options.covertype.is_file():
            sys.exit(f"--covertype: expected a file, found none at {options.covertype}")
        options.output.mkdir(parents=True, exist_ok=True)
        for name, start in STARTS.items():
            made = (options.output / name).resolve()
            made.write_text(json.dumps(rounded(cluster(options.covertype, *start))) + "\n")
            print(f"Arms: {made}")
        make_jobs = partial(jobs, folder=f"{options.output.resolve()}/")
    experiment = Experiment(__file__, make_jobs, tables, figures)
    experiment.main(__doc__, [*others, "--output", str(options.output)])


EXPERIMENT = Experiment(__file__, jobs, tables, figures, seeds="7 for the second arms, and those of the options")

if __name__ == "__main__":
    main()
