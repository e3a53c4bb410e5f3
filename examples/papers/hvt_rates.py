"""How regret grows with the number of rounds for every rival that the paper of Hvt-UCB compares with.

Table 1 of the paper (Wang, Zhang, Zhao and Zhou, ICML 2025) has bounds of order T^(1/p) for MENU, CRMM, TOFU, CRTM, HEAVY-OFUL
and Hvt-UCB. Its Section 2 adds AdaOFUL (for p = 2), HuberBandit, BTC and BMM, and its introduction Medina and Yang (2016), whose
CRT and MoM have larger exponents. The paper has no experiment on this.

Here all play on 20 unit arms that stay, because MENU, CRMM, BMM and MoM repeat an arm. There are 2 dimensions, a parameter of
norm 1, and 10 trials. The noise is Student-t with p + 0.1 degrees of freedom, of norm 1 in order p, which all are told. p is 1.5
or 2. All but CRT have constants for a horizon, so each T is a run of its own. T ends at 3200, because the
rounds of HEAVY-OFUL, AdaOFUL, HuberBandit, TOFU and BTC become dearer with t.

Each plays with the width of its theory and with a share of it, a heuristic of the size that ``hvt_ucb.py`` and
``hvt_rivals.py`` chose by tuning; there CRMM, MENU and BMM repeat an arm 20 times, and not as often as their theory says. The
constants of CRTM, CRMM and TOFU are this library's: no verdict on their papers' algorithms follows. BTC and BMM are without the
groups of SupBTC and SupBMM. The slope is that of log mean regret against log T, with a 95 % interval from resampled trials. It is
1 while a learner has not begun to learn.

"Late" is the processor time of a round in the last tenth of the longest run at a share of the width, as a multiple of the time in
the second tenth, all trials side by side. It is rough.

    python examples/papers/hvt_rates.py --workers 2    # eleven minutes of processor time; seconds with --quick
"""

import time
from typing import Any

import torch
from experiment import Experiment, Job, Results, Slope, short, spread, table

from torchonline import UCB, HvtUCB
from torchonline.baselines import BMM, BTC, CRMM, CRT, CRTM, MENU, TOFU, AdaOFUL, HeavyOFUL, HuberBandit, MoM
from torchonline.environments import LinearBandit, StudentT

DIM, ARMS, DELTA, SEED = 2, 20, 0.05, 1
ORDERS = (1.5, 2.0)
KINDS: dict[str, Any] = {
    "HvtUCB": HvtUCB,
    "HeavyOFUL": HeavyOFUL,
    "CRTM": CRTM,
    "TOFU": TOFU,
    "CRMM": CRMM,
    "MENU": MENU,
    "AdaOFUL": AdaOFUL,
    "HuberBandit": HuberBandit,
    "BTC": BTC,
    "BMM": BMM,
    "MoM": MoM,
}
# The shares of the width, and what else a practical learner has.
PRACTICAL: dict[str, dict[str, Any]] = {
    "HvtUCB": {"radius_scale": 1e-3},
    "HeavyOFUL": {"radius_scale": 1e-3},
    "CRTM": {"radius_scale": 0.03},
    "TOFU": {"radius_scale": 0.03},
    "CRMM": {"radius_scale": 0.1, "repeats": 20},
    "MENU": {"radius_scale": 0.01, "repeats": 20},
    "AdaOFUL": {"radius_scale": 1e-3},
    "HuberBandit": {"radius_scale": 0.03},
    "BTC": {"radius_scale": 0.03},
    "BMM": {"radius_scale": 0.1, "repeats": 20},
    "CRT": {"radius_scale": 0.03},
    "MoM": {"radius_scale": 0.03},
}


def make_policy(name: str, order: float, horizon: int, trials: int, **options: Any) -> UCB:
    common: dict[str, Any] = {"noise_scale": 1.0, "batch_shape": (trials,), **options}
    order_of = {} if name == "AdaOFUL" else {"moment_order": order}
    if name == "CRT":
        return CRT(DIM, delta=DELTA, **order_of, **common)
    delta = {} if name in ("HvtUCB", "HeavyOFUL") else {"delta": DELTA / ARMS if name in ("BTC", "BMM") else DELTA}
    return KINDS[name](DIM, horizon=horizon, **delta, **order_of, **common)


def play(learner: str, order: float, rounds: int, trials: int, seed: int, **options: Any) -> dict[str, Any]:
    """Play all trials of one learner; a seed fixes arms, parameters and noise."""
    law = StudentT(order + 0.1)
    law = StudentT(law.df, scale=1.0 / law.moment_norm(order))
    environment = LinearBandit(DIM, ARMS, noise=law, batch_shape=(trials,), seed=seed)
    policy, total, seconds = make_policy(learner, order, rounds, trials, **options), 0.0, []
    for _ in range(rounds):
        start = time.process_time()
        arms = environment.arms()
        index = policy.select(arms)
        _, reward, regret = environment.pull(index)
        policy.step(arms, index, reward)
        seconds.append(time.process_time() - start)
        total = total + regret
    tenth = rounds // 10
    late, early = sum(seconds[-tenth:]), sum(seconds[tenth : 2 * tenth])
    return {"regret": torch.as_tensor(total).tolist(), "late": late / early}


def key(learner: str, order: float, practical: bool, horizon: int) -> str:
    return f"{learner}, order {order:g}, {'practical' if practical else 'theory'}, T = {horizon}"


def jobs(quick: bool) -> dict[str, Job]:
    lengths, trials = ([10, 20], 2) if quick else ([200, 800, 3200], 10)
    found = {}
    for T in reversed(lengths):
        for learner, practical in PRACTICAL.items():
            for order in ORDERS:
                if learner == "AdaOFUL" and order != 2.0:
                    continue
                for options in (practical, {}):
                    given = {"learner": learner, "order": order, "rounds": T, "trials": trials, "seed": SEED}
                    found[key(learner, order, bool(options), T)] = Job(play, given | options)
    return found


def regrets(results: Results, learner: str, order: float, practical: bool) -> dict[int, list[float]]:
    """Return the regrets of one learner by T, in order; nothing if it did not play."""
    start = key(learner, order, practical, 0).removesuffix("0")
    found = {int(name.removeprefix(start)): one["regret"] for name, one in results.items() if name.startswith(start)}
    return dict(sorted(found.items()))


def slope(results: Results, learner: str, order: float, practical: bool) -> Slope:
    by_length = regrets(results, learner, order, practical)
    return Slope.fit(list(by_length), by_length.values())


def late(results: Results, learner: str, order: float) -> float:
    longest = max(regrets(results, learner, order, True))
    return results[key(learner, order, True, longest)]["late"]


def tables(results: Results) -> dict[str, str]:
    found = {}
    for order in ORDERS:
        for practical in (False, True):
            rows, points = [], []
            for learner in PRACTICAL:
                by_length = regrets(results, learner, order, practical)
                if by_length:
                    points = list(by_length)
                    rows.append(
                        [learner, *map(spread, by_length.values()), str(slope(results, learner, order, practical))]
                    )
                    if practical:
                        options = ", ".join(f"{name} {value:g}" for name, value in PRACTICAL[learner].items())
                        rows[-1] += [short(late(results, learner, order)), options.removeprefix("radius_scale ")]
            header = [
                "learner",
                *(f"T = {T}" for T in points),
                "slope",
                *(("late", "radius_scale") if practical else ()),
            ]
            width = "shares of the widths" if practical else "widths of theory"
            found[f"Order {order:g}, bound T^{1.0 / order:.2f}, {width}: regret, mean ± standard error"] = table(
                header, rows
            )
    return found


EXPERIMENT = Experiment(__file__, jobs, tables)

if __name__ == "__main__":
    EXPERIMENT.main(__doc__)
