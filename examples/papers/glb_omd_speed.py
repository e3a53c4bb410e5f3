"""Time of a round of each generalized linear bandit, by round.

One learner of each kind plays 3000 rounds of the paper's experiment with logistic rewards, S = 3, on 20 arms in the plane,
redrawn in each round. At rounds 100, 1500 and 3000, rounds (select and step) of all learners are timed in alternation, five
of each at a time, on one thread. OFUGLB is timed three times: with this library's solver, which processes all arms at once;
the same on fixed arms, where it merges equal rounds; and, on redrawn arms, with scipy's SLSQP for the estimate and for the
score of each arm, at an accuracy of 1e-8, as in a first implementation.

Then GLBOMD and LocalGLB are compared with OFUL at d = 32: one learner, a batch of 256, and the exported program.

The script prints median times of a round relative to LocalGLB and to OFUL, and draws the former.

    OMP_NUM_THREADS=1 python examples/papers/glb_omd_speed.py    # ten minutes; seconds with --quick
"""

import copy
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import torch
from experiment import Experiment, Job, Results, listed, table
from scipy.optimize import minimize
from torch import Tensor

from torchonline import GLBOMD, OFUL, UCB, LocalGLB, Logistic
from torchonline.baselines import GLMUCB, GLOC, OFUGLB, ECOLog, OFUGLBRegression, OFULMLogB, OFULogR, RSGLinCB
from torchonline.environments import GeneralizedLinearBandit
from torchonline.export import to_program
from torchonline.policies.policy import Policy

DIM, ARMS, S, HORIZON = 2, 20, 3.0, 3000
LINK = Logistic()
STAY, BY_SCIPY = "OFUGLB, arms that stay", "OFUGLB, scipy"


def make_policies(horizon: int) -> dict[str, Policy]:
    told: dict[str, Any] = {"dim": DIM, "theta_bound": S}
    kept = told | {"horizon": horizon}
    return {
        "LocalGLB": LocalGLB(**told),
        "GLBOMD": GLBOMD(**told),
        "GLOC": GLOC(**told),
        "ECOLog": ECOLog(**told),
        "OFUL-MLogB": OFULMLogB(**told),
        "GLM-UCB": GLMUCB(**kept),
        "RS-GLinCB": RSGLinCB(**kept),
        "OFUGLB-e": UCB(OFUGLBRegression(**kept)),
        "OFULog-r": OFULogR(**kept),
        "OFUGLB": OFUGLB(**kept),
        STAY: OFUGLB(**kept),
    }


def sequential_programming(policy: OFUGLB, arms: Tensor) -> None:
    """Compute the estimate and the score of each arm by scipy, to time it."""
    estimator: Any = policy.estimator
    n = int(estimator.rounds)
    rows, rewards = estimator.history[:n].numpy(), estimator.history_reward[:n].numpy()

    def loss(theta: np.ndarray) -> tuple[float, np.ndarray]:
        z = rows @ theta
        return float(np.logaddexp(0.0, z).sum() - rewards @ z), (
            LINK.mean(torch.from_numpy(z)).numpy() - rewards
        ) @ rows

    ball = {"type": "ineq", "fun": lambda u: S * S - u @ u, "jac": lambda u: -2.0 * u}
    found = minimize(loss, estimator.theta_hat.numpy(), jac=True, method="SLSQP", constraints=[ball], tol=1e-8)
    highest = found.fun + float(estimator.level())
    near = {"type": "ineq", "fun": lambda u: highest - loss(u)[0], "jac": lambda u: -loss(u)[1]}
    for x in arms.numpy():
        minimize(lambda u, x=x: (-x @ u, -x), found.x, jac=True, method="SLSQP", constraints=[ball, near], tol=1e-8)


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def one_round(policy: Policy, arms: Tensor, reward: Tensor) -> None:
    policy.step(arms, policy.select(arms), reward)


def in_turn(contenders: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Return median times, in alternation so that other load affects all alike."""
    times = [[seconds(work) for work in contenders.values()] for _ in range(repeats)]
    return dict(zip(contenders, np.median(times, axis=0).tolist(), strict=True))


def compare(policies: dict[str, Policy], worlds: dict[str, GeneralizedLinearBandit], repeats: int) -> dict[str, float]:
    """Return times of rounds on copies of the learners, five rounds in a row."""
    copies = {name: copy.deepcopy(policy) for name, policy in policies.items()}
    rewards = torch.rand(repeats, generator=torch.Generator().manual_seed(0), dtype=torch.float64).round()
    times: dict[str, list[float]] = {name: [] for name in (*copies, BY_SCIPY)}
    for turn, some in enumerate(rewards.split(5)):
        for name, policy in copies.items():
            for reward in some:
                times[name].append(seconds(partial(one_round, policy, worlds[name].arms(), reward)))
        if turn % 4 == 0:
            solver: Any = copies["OFUGLB"]
            times[BY_SCIPY].append(seconds(partial(sequential_programming, solver, worlds["OFUGLB"].arms())))
    return {name: float(np.median(each)) for name, each in times.items()}


def beside_oful(repeats: int) -> dict[str, dict[str, float]]:
    """Return times at d = 32 and 20 unit arms: one learner, a batch, and a program."""
    generator = torch.Generator().manual_seed(0)
    rewards = torch.rand(997, generator=generator, dtype=torch.float64).round()
    makers: dict[str, Callable[..., Policy]] = {"OFUL": OFUL, "GLBOMD": GLBOMD, "LocalGLB": LocalGLB}
    found = {}
    for title, batch in (("one learner", ()), ("a batch of 256", (256,)), ("exported program", ())):
        arms = torch.randn(*batch, ARMS, 32, generator=generator, dtype=torch.float64)
        arms = torch.nn.functional.normalize(arms, dim=-1)
        rounds: dict[str, Callable[[], object]] = {}
        for name, make in makers.items():
            policy = make(32, batch_shape=batch)
            count = iter(range(10**9))
            if title == "exported program":
                program: Any = to_program(policy).module()
                mask = torch.ones(1, ARMS, dtype=torch.bool)

                def play(program: Any = program, arms: Tensor = arms, count: Any = count, mask: Tensor = mask) -> None:
                    t = next(count)
                    program(arms, torch.tensor(t % ARMS), rewards[t % 997], torch.tensor(True), arms.unsqueeze(0), mask)
            else:

                def play(policy: Any = policy, arms: Tensor = arms, count: Any = count) -> None:
                    k = policy.select(arms)
                    policy.step(arms, k, rewards[next(count) % 997].expand(k.shape))

            rounds[name] = play
            for _ in range(20):
                play()
        found[title] = in_turn(rounds, repeats)
    return found


def by_round(stops: list[int], repeats: int) -> dict[str, Any]:
    """Return median seconds of a round at some rounds, and LocalGLB's last over its first."""
    policies = make_policies(HORIZON + repeats)
    worlds = {
        name: GeneralizedLinearBandit(DIM, ARMS, link=LINK, theta_norm=S, redraw=name != STAY, seed=1)
        for name in policies
    }
    times: dict[str, dict[str, float]] = {}
    kept: dict[int, Policy] = {}
    for t in range(1, stops[-1] + 1):
        for name, policy in policies.items():
            arms = worlds[name].arms()
            k = policy.select(arms)
            policy.step(arms, k, worlds[name].pull(k).reward)
        if t in stops:
            times[str(t)], kept[t] = compare(policies, worlds, repeats), copy.deepcopy(policies["LocalGLB"])
    arms, reward = worlds["LocalGLB"].arms(), torch.tensor(1.0, dtype=torch.float64)
    pair = in_turn({str(t): partial(one_round, kept[t], arms, reward) for t in (stops[-1], stops[0])}, 10 * repeats)
    late, early = pair.values()
    return {"times": times, "late": late / early}


def jobs(quick: bool) -> dict[str, Job]:
    stops, repeats = ([5, 10, 20], 3) if quick else ([100, 1500, HORIZON], 200)
    return {
        "by round": Job(by_round, {"stops": stops, "repeats": repeats}),
        "d = 32": Job(beside_oful, {"repeats": repeats}),
    }


def tables(results: Results) -> dict[str, str]:
    times, late = results["by round"]["times"], results["by round"]["late"]
    stops, contenders = list(times), list(next(iter(times.values())))
    rows = [(name, *(f"{times[t][name] / times[t]['LocalGLB']:.1f}" for t in stops)) for name in contenders]
    beside = [
        (title, *(f"{row[name] / row['OFUL']:.2f}" for name in ("GLBOMD", "LocalGLB")))
        for title, row in results["d = 32"].items()
    ]
    said = f"LocalGLB: a round at t = {stops[-1]} takes {late:.2f} times as long as one at t = {stops[0]}"
    return {
        "Median time of a round, LocalGLB = 1": table(("learner", *(f"t = {t}" for t in stops)), rows),
        "Late rounds": listed([said]),
        "Median time of a round at d = 32, K = 20, OFUL = 1": table(("", "GLBOMD", "LocalGLB"), beside),
    }


def figures(results: Results, folder: Path) -> list[Path]:
    times = results["by round"]["times"]
    figure, axis = plt.subplots(figsize=(7, 5), layout="constrained")
    for name in next(iter(times.values())):
        axis.plot([int(t) for t in times], [1e6 * row[name] for row in times.values()], marker="o", label=name)
    axis.set(xlabel="round", ylabel="microseconds a round, median", xscale="log", yscale="log")
    axis.grid(alpha=0.3)
    axis.legend(fontsize=7)
    path = folder / "glb_omd_speed.png"
    figure.savefig(path, dpi=120)
    plt.close(figure)
    return [path]


EXPERIMENT = Experiment(__file__, jobs, tables, figures, is_timed=True, seeds="0 and 1")

if __name__ == "__main__":
    EXPERIMENT.main(__doc__)
