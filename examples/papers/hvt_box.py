"""The paper's arms, drawn from a box, beside arms drawn from a sphere: Hvt-UCB, OFUL and HEAVY-OFUL.

Section 6 of the paper of Hvt-UCB (Wang, Zhang, Zhao and Zhou, ICML 2025) draws each coordinate of an arm and of the parameter
uniformly from [-1, 1], and rescales them to L = 1 and S = 1. It does not say how arms are rescaled, so they are drawn in three
ways: uniformly from the unit sphere, which are results of ``hvt_ucb.py``; from the box, each arm divided by its norm; from the
box, all arms divided by the largest norm among them. The parameter is drawn from the box too, and has norm 1.

The rest is the paper's: 2 dimensions, 50 arms that stay, 18,000 rounds, Student-t noise with 2.1 degrees of freedom or Gaussian
noise, 40 trials, and HEAVY-OFUL under Student-t noise only. The learners are told the exact norm of order 1.99 (OFUL: the
standard deviation). They play with the width of their theory, and with the share of it that ``hvt_ucb.py`` chose on arms of the
sphere, a heuristic.

    python examples/papers/hvt_box.py --workers 2    # ten minutes of processor time; seconds with --quick
"""

from typing import Any

import torch
from experiment import Experiment, Job, Results, saved, spread, table
from torch import Tensor

from torchonline import OFUL, UCB, HvtUCB
from torchonline.baselines import HeavyOFUL
from torchonline.environments import GaussianNoise, LinearBandit, Noise, StudentT

DIM, ARMS, DELTA = 2, 50, 0.05
LAWS: dict[str, Noise] = {"Student-t 2.1": StudentT(2.1), "Gaussian": GaussianNoise()}
DRAWS = ("box, each arm scaled", "box, all arms scaled")
# The scales that hvt_ucb.py chose on arms that stay.
TUNED = {
    "Student-t 2.1": {"HvtUCB": 1e-4, "OFUL": 3e-3, "HeavyOFUL": 1e-3},
    "Gaussian": {"HvtUCB": 3e-4, "OFUL": 0.3},
}


class BoxBandit(LinearBandit):
    """Linear bandit with arms and a parameter from the box [-1, 1]^d, rescaled to norms of at most 1."""

    def __init__(self, *arguments: Any, is_each: bool, **options: Any) -> None:
        self.is_each = is_each
        super().__init__(*arguments, **options)

    def _directions(self, shape: tuple[int, ...]) -> Tensor:
        drawn = 2.0 * torch.rand(shape, generator=self._generator, dtype=torch.float64) - 1.0
        norms = drawn.norm(dim=-1, keepdim=True)
        is_arms = len(shape) > len(self.batch_shape) + 1
        return drawn / (norms.amax(-2, keepdim=True) if is_arms and not self.is_each else norms)


def make_policy(name: str, law: str, rounds: int, trials: int, radius_scale: float) -> UCB:
    order = 1.99 if law == "Student-t 2.1" else 2.0
    common: dict[str, Any] = {"radius_scale": radius_scale, "ridge": DIM, "batch_shape": (trials,)}
    if name == "OFUL":
        return OFUL(DIM, noise_scale=LAWS[law].moment_norm(2.0), delta=DELTA, **common)
    kind = HvtUCB if name == "HvtUCB" else HeavyOFUL
    return kind(DIM, horizon=rounds, moment_order=order, noise_scale=LAWS[law].moment_norm(order), **common)


def play(learner: str, law: str, draw: str, radius_scale: float, rounds: int, trials: int, seed: int) -> dict[str, Any]:
    """Play all trials of one learner; a seed fixes arms, parameters and noise."""
    policy = make_policy(learner, law, rounds, trials, radius_scale)
    environment = BoxBandit(DIM, ARMS, is_each=draw == DRAWS[0], noise=LAWS[law], batch_shape=(trials,), seed=seed)
    total = torch.zeros(trials, dtype=torch.float64)
    for _ in range(rounds):
        arms = environment.arms()
        k = policy.select(arms)
        _, reward, regret = environment.pull(k)
        policy.step(arms, k, reward)
        total += regret
    return {"regret": total.tolist()}


def key(learner: str, law: str, draw: str, tuned: bool) -> str:
    return f"{learner}, {law} noise, {draw}, {'tuned' if tuned else 'theory'}"


def jobs(quick: bool) -> dict[str, Job]:
    rounds, trials = (40, 3) if quick else (18000, 40)
    found = {}
    for law, scales in TUNED.items():
        for learner in scales:
            for draw in DRAWS:
                for tuned in (True, False):
                    options: dict[str, Any] = {"learner": learner, "law": law, "draw": draw}
                    options |= {"radius_scale": scales[learner] if tuned else 1.0}
                    options |= {"rounds": rounds, "trials": trials, "seed": 1}
                    found[key(learner, law, draw, tuned)] = Job(play, options)
    return found


def regrets(results: Results, learner: str, law: str, tuned: bool) -> list[list[float]]:
    """Return the regrets on arms of the sphere and of the box."""
    sphere = saved("hvt_ucb")[f"{learner}, {law} noise, fixed arms, {'tuned' if tuned else 'theory'}"]
    return [sphere["regret"], *(results[key(learner, law, draw, tuned)]["regret"] for draw in DRAWS)]


def tables(results: Results) -> dict[str, str]:
    found = {}
    for law, scales in TUNED.items():
        rows = [
            [learner, f"{scales[learner]:g}" if tuned else "1", *map(spread, regrets(results, learner, law, tuned))]
            for tuned in (False, True)
            for learner in scales
        ]
        header = ("learner", "radius_scale", "sphere", *DRAWS)
        found[f"{law} noise: regret, mean ± standard error"] = table(header, rows)
    return found


EXPERIMENT = Experiment(__file__, jobs, tables)

if __name__ == "__main__":
    EXPERIMENT.main(__doc__)
