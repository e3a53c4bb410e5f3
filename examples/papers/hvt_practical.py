"""HvtUCB at practical widths, in the setting of its paper: regret, and the confidence sets that fail.

The paper (Wang, Zhang, Zhao and Zhou, ICML 2025) has 2 dimensions, 50 unit arms, Student-t noise with 2.1 degrees of freedom
and 18,000 rounds. With the width of its theory, about 5000, HvtUCB learns slowly. Here it plays with 0.001 and
0.0003 of that width, on fixed and on redrawn arms, in 40 trials. It is told the moment norm of order 1.99, 4.388.

OFUL plays at the same two scales, and at 1 and 0.3 of its own width, which is about 21 and not 5000. It is told the standard
deviation, 4.583. All scales but 1 are heuristics, and OFUL has no theorem for this noise. "Failed" counts trials whose
confidence set ever missed the truth: |x'(theta_hat - theta)| > radius * width(x) for some x. The radius is that of the last
round.

    python examples/papers/hvt_practical.py --workers 2    # a few minutes; seconds with --quick
"""

from typing import Any

import torch
from experiment import Experiment, Job, Results, short, spread, table

from torchonline import OFUL, UCB, HvtUCB
from torchonline.environments import LinearBandit, StudentT
from torchonline.metrics import has_missed

DIM, ARMS, DELTA, ORDER = 2, 50, 0.05, 1.99
NOISE = StudentT(2.1)
SCALES = {"HvtUCB": (1e-3, 3e-4), "OFUL": (1.0, 0.3, 1e-3, 3e-4)}
ARMS_ARE = {False: "fixed arms", True: "redrawn arms"}


def make_policy(name: str, rounds: int, trials: int, radius_scale: float) -> UCB:
    common: dict[str, Any] = {"radius_scale": radius_scale, "ridge": DIM, "batch_shape": (trials,)}
    if name == "HvtUCB":
        return HvtUCB(DIM, horizon=rounds, moment_order=ORDER, noise_scale=NOISE.moment_norm(ORDER), **common)
    return OFUL(DIM, noise_scale=NOISE.moment_norm(2.0), delta=DELTA, **common)


def play(learner: str, radius_scale: float, redrawn: bool, rounds: int, trials: int, seed: int) -> dict[str, Any]:
    """Play all trials of one learner; a seed fixes arms, parameters and noise."""
    policy = make_policy(learner, rounds, trials, radius_scale)
    environment = LinearBandit(DIM, ARMS, noise=NOISE, redraw=redrawn, batch_shape=(trials,), seed=seed)
    total, missed = torch.zeros(trials, dtype=torch.float64), torch.zeros(trials, dtype=torch.bool)
    for _ in range(rounds):
        arms = environment.arms()
        k = policy.select(arms)
        _, reward, regret = environment.pull(k)
        policy.step(arms, k, reward)
        total += regret
        missed |= has_missed(policy.estimator, environment.theta)
    radius = float(policy.estimator.radius().mean())
    return {"regret": total.tolist(), "missed": int(missed.sum()), "radius": radius}


def jobs(quick: bool) -> dict[str, Job]:
    rounds, trials = (60, 4) if quick else (18000, 40)
    return {
        f"{name} x {scale:g}, {ARMS_ARE[redrawn]}": Job(
            play,
            {
                "learner": name,
                "radius_scale": scale,
                "redrawn": redrawn,
                "rounds": rounds,
                "trials": trials,
                "seed": 1,
            },
        )
        for name, scales in SCALES.items()
        for scale in scales
        for redrawn in ARMS_ARE
    }


def tables(results: Results) -> dict[str, str]:
    found = {}
    for arms in ARMS_ARE.values():
        rows = []
        for name, one in results.items():
            if not name.endswith(arms):
                continue
            regret = torch.tensor(one["regret"], dtype=torch.float64)
            row = [name.removesuffix(f", {arms}"), spread(one["regret"])]
            row += [short(float(number)) for number in (regret.std(), regret.median(), regret.max())]
            rows.append([*row, f"{one['radius']:.3g}", f"{one['missed']} of {len(regret)}"])
        header = ("learner", "regret", "sd", "median", "worst", "radius", "failed")
        found[f"Student-t 2.1 noise, {arms}: regret, mean ± standard error"] = table(header, rows)
    return found


EXPERIMENT = Experiment(__file__, jobs, tables)

if __name__ == "__main__":
    EXPERIMENT.main(__doc__)
