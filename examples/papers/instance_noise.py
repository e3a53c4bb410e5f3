"""Noise that varies by round: what a learner gains from being told each round's scale.

The paper of Hvt-UCB (Wang, Zhang, Zhao and Zhou, ICML 2025) bounds the regret by the sum of the squared noise scales nu_t
instead of T times the largest one, and has no experiment in which nu_t varies. Here it does. There are 3 dimensions, 20 unit
arms, redrawn in each round or fixed, and 3000 rounds. In each round nu_t is 0.02 with probability 0.9, else 1, independently
in each trial. The noise is nu_t times Gaussian noise, or times Student-t noise with 2.1 degrees of freedom and standard
deviation 1.

Each learner plays twice on the same arms, parameters and noise: told nu_t before each reward, or told the largest, 1, in
every round. Learners have the width of their theory, or a thousandth of it (HvtUCB, HeavyOFUL, AdaOFUL). "Tuned" is the best
of seven values of ``radius_scale``, chosen for each way of being told on 20 other trials; that is a heuristic. AdaOFUL is not
tuned, to save time. OFUL that is told nu_t is weighted least squares; under Student-t noise it has no theorem,
since a sub-Gaussian scale does not exist. HvtUCB and HeavyOFUL have their papers' delta, 1 / (8 T), the others 0.05. "Failed"
counts trials whose confidence set ever missed the truth. Pairs are in the order of the columns.

    python examples/papers/instance_noise.py --workers 2    # ten minutes; half a minute with --quick
"""

import statistics
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import torch
from experiment import Experiment, Job, Results, best_of, short, spread, table
from torch import Tensor

from torchonline import OFUL, UCB, AnytimeHeavyTailUCB, HvtUCB
from torchonline.baselines import AdaOFUL, HeavyOFUL
from torchonline.environments import GaussianNoise, Noise, StudentT, VaryingNoiseBandit
from torchonline.metrics import has_missed

DIM, ARMS, DELTA = 3, 20, 0.05
SMALL, LARGE, SHARE = 0.02, 1.0, 0.9
# Laws of standard deviation 1, so that a round's scale is its moment norm.
LAWS: dict[str, Noise] = {
    "Gaussian": GaussianNoise(),
    "Student-t 2.1": StudentT(2.1, scale=1.0 / StudentT(2.1).moment_norm(2.0)),
}
TOLD = {True: "told each round's", False: "told the largest"}
ARMS_ARE = {True: "redrawn arms", False: "fixed arms"}
SCALES = (1.0, 0.3, 0.1, 0.03, 0.01, 1e-3, 1e-4)
LEARNERS = ("AnytimeHeavyTailUCB", "OFUL", "HvtUCB", "HeavyOFUL", "AdaOFUL")
THOUSANDTH = LEARNERS[2:]
SHORTLIST = ("OFUL", "AnytimeHeavyTailUCB", "HvtUCB x 0.001", "HvtUCB")
QUICK = LEARNERS[:4]  # AdaOFUL goes over all rounds in each


def make_policy(name: str, rounds: int, trials: int, radius_scale: float) -> UCB:
    common: dict[str, Any] = {"noise_scale": LARGE, "radius_scale": radius_scale, "batch_shape": (trials,)}
    match name:
        case "AnytimeHeavyTailUCB":
            return AnytimeHeavyTailUCB(DIM, delta=DELTA, **common)
        case "OFUL":
            return OFUL(DIM, delta=DELTA, ridge=DIM, **common)
        case "HvtUCB":
            return HvtUCB(DIM, horizon=rounds, **common)
        case "HeavyOFUL":
            return HeavyOFUL(DIM, horizon=rounds, **common)
        case "AdaOFUL":
            return AdaOFUL(DIM, horizon=rounds, delta=DELTA, **common)
        case _:
            raise ValueError(f"no learner is called {name}")


def two_scales(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    uniform = torch.rand(shape, generator=generator, dtype=torch.float64)
    return torch.where(uniform < SHARE, torch.tensor(SMALL).double(), torch.tensor(LARGE).double())


def play_once(policy: UCB, law: str, told: bool, redraw: bool, rounds: int, trials: int, seed: int) -> dict[str, Any]:
    """Play all trials of one learner; a seed fixes arms, parameters, scales and noise."""
    environment = VaryingNoiseBandit(
        DIM, ARMS, noise=LAWS[law], noise_scales=two_scales, redraw=redraw, batch_shape=(trials,), seed=seed
    )
    total, missed = torch.zeros(trials, dtype=torch.float64), torch.zeros(trials, dtype=torch.bool)
    curve = []
    for t in range(1, rounds + 1):
        scale = environment.noise_scale if told else None
        arms = environment.arms()
        k = policy.select(arms)
        _, reward, regret = environment.pull(k)
        policy.step(arms, k, reward, noise_scale=scale)
        total += regret
        missed |= has_missed(policy.estimator, environment.theta)
        if t % max(1, rounds // 50) == 0:
            curve.append(float(total.mean()))
    return {"regret": total.tolist(), "missed": int(missed.sum()), "curve": curve}


def play(
    learner: str,
    law: str,
    told: bool,
    radius_scale: float | None,
    rounds: int,
    trials: int,
    seed: int,
    redraw: bool = True,
) -> dict[str, Any]:
    """Tune if no radius scale is given, then play."""

    def played(scale: float, trials: int, seed: int) -> dict[str, Any]:
        return play_once(make_policy(learner, rounds, trials, scale), law, told, redraw, rounds, trials, seed)

    tried: list[float] = []
    if radius_scale is None:
        radius_scale, tried = best_of(SCALES, lambda scale: played(scale, trials // 2, seed + 1)["regret"])
    return played(radius_scale, trials, seed) | {"radius_scale": radius_scale, "tried": tried}


def contenders() -> dict[str, tuple[str, float | None]]:
    """Return the learners and their radius scales, by name; None is tuned."""
    found: dict[str, tuple[str, float | None]] = {f"{name}, tuned": (name, None) for name in reversed(QUICK)}
    found |= {f"{name} x 0.001": (name, 1e-3) for name in THOUSANDTH}
    return found | {name: (name, 1.0) for name in LEARNERS}


def key(law: str, name: str, told: bool, redraw: bool = True) -> str:
    return f"{law}, {name}, {TOLD[told]}" + ("" if redraw else f", {ARMS_ARE[False]}")


def jobs(quick: bool) -> dict[str, Job]:
    rounds, trials = (40, 4) if quick else (3000, 40)
    found = {}
    for redraw in ARMS_ARE:
        for name, (learner, scale) in contenders().items():
            if scale is None and not redraw:
                continue  # all are tuned on redrawn arms only
            for law in LAWS:
                for told in TOLD:
                    options = {"learner": learner, "law": law, "told": told, "radius_scale": scale}
                    options |= {"rounds": rounds, "trials": trials, "seed": 1} | ({} if redraw else {"redraw": False})
                    found[key(law, name, told, redraw)] = Job(play, options)
    return found


def pairs_of(results: Results, law: str, tuned: bool, redraw: bool) -> dict[str, list[dict[str, Any]]]:
    """Return each contender's two results, in the order of its regret when told each round's scale."""
    names = [name for name in contenders() if name.endswith(", tuned") is tuned]
    pairs = {name: [results[key(law, name, told, redraw)] for told in TOLD] for name in names}
    return dict(sorted(pairs.items(), key=lambda item: statistics.fmean(item[1][0]["regret"])))


def regret_table(pairs: dict[str, list[dict[str, Any]]], tuned: bool) -> str:
    rows = []
    for name, (each, largest) in pairs.items():
        gain = statistics.fmean(largest["regret"]) / statistics.fmean(each["regret"])
        row = [name.removesuffix(", tuned"), spread(each["regret"]), spread(largest["regret"]), short(gain)]
        row += [f"{short(max(each['regret']))}, {short(max(largest['regret']))}"]
        row += [f"{each['missed']}, {largest['missed']} of {len(each['regret'])}"]
        row += [f"{each['radius_scale']:g}, {largest['radius_scale']:g}"] if tuned else []
        rows.append(row)
    header = ["learner", *TOLD.values(), "ratio", "worst trials", "failed", *(["radius_scale"] if tuned else [])]
    return table(header, rows)


def gain_table(results: Results, law: str) -> str:
    """Return the regret at fixed widths on both kinds of arms, told each round's scale and told the largest."""
    cases = [(redraw, told) for redraw in ARMS_ARE for told in TOLD]
    rows = [
        (name, *(spread(results[key(law, name, told, redraw)]["regret"]) for redraw, told in cases))
        for name in SHORTLIST
    ]
    return table(("learner", *(f"{ARMS_ARE[redraw]}, {TOLD[told]}" for redraw, told in cases)), rows)


def tables(results: Results) -> dict[str, str]:
    found = {f"{law} noise of varying scale, in short": gain_table(results, law) for law in LAWS}
    for tuned, redraw in ((False, True), (False, False), (True, True)):
        for law in LAWS:
            kind = "tuned" if tuned else f"fixed widths, {ARMS_ARE[redraw]}"
            title = f"{law} noise of varying scale, {kind}: regret, mean ± standard error"
            found[title] = regret_table(pairs_of(results, law, tuned, redraw), tuned)
    return found


def figures(results: Results, folder: Path) -> list[Path]:
    """Draw the regret on redrawn arms."""
    figure, axes = plt.subplots(1, len(LAWS), figsize=(12, 4.5), sharey=True, layout="constrained")
    colours = plt.get_cmap("tab10").colors  # type: ignore[attr-defined]
    for axis, law in zip(axes, LAWS, strict=True):
        for i, name in enumerate(name for name in contenders() if not name.endswith(", tuned")):
            for told, style in ((True, "-"), (False, "--")):
                curve = results[key(law, name, told)]["curve"]
                at = [(k + 1) / len(curve) for k in range(len(curve))]
                axis.plot(at, curve, style, color=colours[i], label=f"{name}, {TOLD[told]}" if told else None)
        axis.set(title=f"{law} noise", xlabel="share of the rounds", yscale="log")
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("mean regret; dashed: told the largest scale")
    axes[0].legend(fontsize=7)
    path = folder / "instance_noise.png"
    figure.savefig(path, dpi=120)
    plt.close(figure)
    return [path]


EXPERIMENT = Experiment(__file__, jobs, tables, figures)

if __name__ == "__main__":
    EXPERIMENT.main(__doc__)
