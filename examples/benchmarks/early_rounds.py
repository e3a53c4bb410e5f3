"""What it saves to put the first rounds into the scaler's new coordinates: the default with and without it, on all sets.

    python examples/benchmarks/early_rounds.py --seeds 4    # three quarters of an hour on a core; seconds with --smoke

The error of a set is the mean over seeds. The table holds the geometric mean over sets of the ratio of errors, with its standard
error, the median ratio, and on how many sets the default has fewer errors with it.
"""

import argparse
import math
import statistics
from pathlib import Path

import data
import torch
from play import one_thread, rewards_of

import torchonline
from torchonline.regression.adaptive_ridge import AdaptiveRidgeRegression, RobustRidgeRegression


def error(rounds: data.Stream, rewards: str, renews: bool) -> float:
    """Return the share of rounds that the default loses, with or without the renewal of early rounds."""
    for cls in (AdaptiveRidgeRegression, RobustRidgeRegression):
        cls.can_replace = renews
    policy = torchonline.bandit(rounds.contexts.shape[1], rewards, actions=rounds.actions)
    lost = 0.0
    for context, payoffs, noise in zip(rounds.contexts, rounds.payoffs, rounds.noise, strict=True):
        k = int(policy.select(torch.from_numpy(context)))
        policy.step(torch.from_numpy(context), k, float(payoffs[k] + noise))
        lost += 1.0 - payoffs[k]
    return lost / len(rounds.contexts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("outputs/benchmarks"))
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=1500)
    parser.add_argument("--smoke", action="store_true", help="100 rounds of digits and one seed, to see that it runs")
    options = parser.parse_args()
    if options.smoke:
        options.seeds, options.rounds = 1, 100
    one_thread()
    names = data.installed(["digits"] if options.smoke else data.chosen_sets(["all"]))
    lines = ["| noise | sets | ratio of errors | median | sets with fewer errors |", "|---|---|---|---|---|"]
    for noise in ("none", "pareto"):
        ratios = []
        for name in names:
            streams = [data.stream(name, s, options.rounds, noise, "raw", False) for s in range(options.seeds)]
            kept, lost = (sum(error(s, rewards_of(noise), renews) for s in streams) for renews in (True, False))
            if kept > 0.0 and lost > 0.0:
                ratios.append(kept / lost)
        logs = list(map(math.log, ratios))
        spread = statistics.stdev(logs) / len(logs) ** 0.5 if len(logs) > 1 else math.nan
        mean, median = math.exp(statistics.mean(logs)), statistics.median(ratios)
        fewer = sum(ratio < 1.0 for ratio in ratios)
        lines.append(f"| {noise} | {len(ratios)} | {mean:.3f} ± {mean * spread:.3f} | {median:.3f} | {fewer} |")
    print(*lines, sep="\n")
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "early_rounds.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
