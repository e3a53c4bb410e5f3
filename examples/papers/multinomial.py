"""Outcomes with revenues: a multinomial bandit beside a binary one that sees the revenue alone.

There are 3 features and 20 unit arms, redrawn in each round. An arm has one of three outcomes, whose probabilities are those of
two logits Wx beside 0, with a random W of Frobenius norm 3; "in between" has logits z and -z, too little and too much, and pays
for neither. The regret is that of the expected revenue. LocalGLB learns from the revenue, which lies in [0, 1], as a logistic
reward; its model is wrong. "x 0.1" is ``radius_scale=0.1``, a heuristic. All learners see the same arms and the same random
numbers, know the bound 3, and have delta 0.05. "Failed" counts trials whose confidence set of W ever missed it.

    python examples/papers/multinomial.py    # four minutes; a few seconds with --quick
"""

from typing import Any

import torch
from experiment import Experiment, Job, Results, short, spread, table
from torch import Tensor

from torchonline import Greedy, LocalGLB, LocalGLMRegression
from torchonline.baselines import MultinomialLogisticBandit

DIM, ARMS, BOUND = 3, 20, 3.0
REVENUES = {"0, 0.5, 1": (0.0, 0.5, 1.0), "0.6, 0, 1": (0.6, 0.0, 1.0), "1, 0, 0, in between": (1.0, 0.0, 0.0)}
COMMON: dict[str, Any] = {"theta_bound": BOUND, "delta": 0.05}
LEARNERS = (
    "multinomial",
    "multinomial, the paper's step",
    "multinomial x 0.1",
    "multinomial, greedy",
    "LocalGLB",
    "LocalGLB x 0.1",
    "LocalGLM, greedy",
    "uniform",
)


def make_learner(name: str, revenues: tuple[float, ...], trials: int) -> Any:
    options = COMMON | {"batch_shape": (trials,)} | ({"radius_scale": 0.1} if name.endswith("x 0.1") else {})
    if name == "LocalGLM, greedy":
        return Greedy(LocalGLMRegression(DIM, **options))
    if name.startswith("LocalGLB"):
        return LocalGLB(DIM, **options)
    step_size = "paper" if name.endswith("step") else "tight"
    return MultinomialLogisticBandit(DIM, revenues, step_size=step_size, **options)


def chosen(name: str, learner: Any, arms: Tensor, generator: torch.Generator) -> Tensor:
    if name == "uniform":
        return torch.randint(arms.size(-2), arms.shape[:1], generator=generator)
    return learner(arms).argmax(-1) if name == "multinomial, greedy" else learner.select(arms)


def play(learner: str, revenues: list[float], is_between: bool, rounds: int, trials: int, seed: int) -> dict[str, Any]:
    """Play all trials of one learner; a seed fixes arms, parameters and random numbers."""
    generator, own = torch.Generator().manual_seed(seed), torch.Generator().manual_seed(seed + 1)
    payoff = torch.tensor(revenues, dtype=torch.float64)
    W = torch.randn(trials, len(revenues) - 1, DIM, generator=generator, dtype=torch.float64)
    if is_between:
        W[:, 1] = -W[:, 0]
    W *= BOUND / torch.linalg.matrix_norm(W)[:, None, None]
    bandit = make_learner(learner, tuple(revenues), trials)
    is_ours = isinstance(bandit, MultinomialLogisticBandit)
    each, total, missed = torch.arange(trials), torch.zeros(trials, dtype=torch.float64), torch.zeros(trials).bool()
    for _ in range(rounds):
        arms = torch.randn(trials, ARMS, DIM, generator=generator, dtype=torch.float64)
        arms /= torch.linalg.vector_norm(arms, dim=-1, keepdim=True)
        uniform = torch.rand(trials, 1, generator=generator, dtype=torch.float64)
        p = torch.softmax(torch.nn.functional.pad(arms @ W.mT, (1, 0)), -1)
        index = chosen(learner, bandit, arms, own)
        mean = p @ payoff
        total += mean.amax(-1) - mean[each, index]
        outcome = (uniform > p[each, index].cumsum(-1)[:, :-1]).sum(-1)
        bandit.step(arms, index, outcome if is_ours else payoff[outcome])
        if is_ours:
            error = (bandit.theta_hat - W).flatten(1)
            missed |= torch.einsum("bi,bij,bj->b", error, bandit.V, error) > bandit.radius() ** 2
    return {"regret": total.tolist(), "missed": int(missed.sum()) if is_ours else None}


def jobs(quick: bool) -> dict[str, Job]:
    rounds, trials = (20, 3) if quick else (3000, 40)
    return {
        f"{name}, {learner}": Job(
            play,
            {
                "learner": learner,
                "revenues": list(revenues),
                "is_between": name.endswith("in between"),
                "rounds": rounds,
                "trials": trials,
                "seed": 1,
            },
        )
        for learner in LEARNERS
        for name, revenues in REVENUES.items()
    }


def tables(results: Results) -> dict[str, str]:
    rows = []
    for learner in LEARNERS:
        found = [results[f"{name}, {learner}"] for name in REVENUES]
        row = [learner]
        for one in found:
            row += [spread(one["regret"]), short(max(one["regret"]))]
        failed = [one["missed"] for one in found]
        row.append("" if failed[0] is None or "0.1" in learner else ", ".join(map(str, failed)))
        rows.append(row)
    header = ["learner"]
    for name in REVENUES:
        header += [name, "worst"]
    trials = len(results[f"{next(iter(REVENUES))}, uniform"]["regret"])
    return {"Regret of expected revenue, mean ± standard error": table([*header, f"failed of {trials}"], rows)}


EXPERIMENT = Experiment(__file__, jobs, tables)

if __name__ == "__main__":
    EXPERIMENT.main(__doc__)
