"""Off-policy estimates against a known truth, and on the logs of a shop.

**Simulation.** Logs of 500 rounds are drawn 1000 times. A context is a constant and two uniform numbers, an arm's mean reward is
linear in it, and a reward is 0 or 1. The target is a softmax policy, whose value is known. Logging is

- good overlap: every arm has a probability of at least 0.1;
- bad overlap: the logging policy prefers the arms that the target avoids, and arms have at least 0.004;
- logging learns: greedy by the means so far, without contexts, but for a share of random arms that falls from 1 to 0.15.

The reward model of the direct method and of doubly robust (DR) estimates is a ridge regression for each arm. It is right if it
gets the context, and wrong if it gets the constant alone. Predictions are cross-fitted in 5 folds. Those of "DR in order"
are made before a round is learnt, so that a confidence sequence holds. All are those of `predicted_rewards`, computed for all
logs at once, and the script compares the two on the first log. Clipped and switch estimates change at a weight of 10.

Intervals are for delta = 0.05: normal, bootstrap with 400 resamples, and a confidence sequence ("anytime") at the end and in all
rounds at once. It is told the largest weight that logging makes possible, except for clipped IPS and for "IPS, no bound".

**Heavy tails.** Logs of 2000 rounds are drawn 1000 times in worlds of two arms, of which the target plays the second. The old
system plays that arm with a probability that differs by round or is small. The tail index is that of the weighted rewards.
Intervals are normal and the default (`confidence_interval`, with the range of the rewards), of the IPS estimate of the target's
value and of that minus the mean logged reward. "Switched" is the share of logs in which the default is not normal; "at 20 %" is
the default with that threshold in place of 10 %. The logs of the worlds "good overlap" and "bad overlap" are those above, of 500
rounds.

**Open Bandit Dataset.** Its sample comes with the package obp: 10,000 impressions for each of three campaigns and two logging
policies, which are uniform items ("random"), and Bernoulli Thompson sampling that learnt all the time ("bts"). Two targets are
estimated. Thompson sampling as it was at the start, by obp's prior and simulation of its ranks, is estimated from the random log.
Uniform items are estimated from the bts log, and the plain mean of the random log tells their value.

    python examples/off_policy.py    # ten minutes, needs `pip install obp`; seconds with --quick
"""

import argparse
import math
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import torch
from rich.console import Console
from rich.progress import track
from torch import Tensor

from torchonline import DisjointArms, RidgeRegression
from torchonline.off_policy import (
    BanditLog,
    Estimate,
    Interval,
    OverlapWarning,
    PredictedRewards,
    TailWarning,
    at_positions,
    bootstrap_interval,
    clipped_ips,
    confidence_interval,
    confidence_sequence,
    direct_method,
    doubly_robust,
    from_obp,
    improvement,
    ips,
    normal_interval,
    predicted_rewards,
    sndr,
    snips,
    switch_doubly_robust,
)

ARMS, DELTA, CAP = 5, 0.05, 10.0
RIDGE, FOLDS, BLOCK = 0.1, 5, 50
# How many numbers of the context a reward model gets.
MODELS = {"right": 3, "wrong": 1}
FLOAT = torch.float64
# Mean rewards: a level, and what the two numbers of the context add.
LEVELS = torch.tensor([0.15, 0.3, 0.4, 0.5, 0.6], dtype=FLOAT)
SLOPES = torch.tensor([[0.6, 0.0], [0.3, 0.3], [0.0, 0.0], [-0.3, 0.3], [-0.1, -0.4]], dtype=FLOAT)
LEAST = {"good overlap": 0.1, "bad overlap": 0.004, "logging learns": 0.15 / ARMS}


def means_of(x: Tensor) -> Tensor:
    """Return the mean reward of each arm: contexts (..., 3) to (..., K)."""
    return LEVELS + x[..., 1:] @ SLOPES.T


def target_of(x: Tensor) -> Tensor:
    return torch.softmax(6.0 * means_of(x), -1)


def true_value(policy: Callable[[Tensor], Tensor] = target_of) -> float:
    """Return a policy's value, by the midpoint rule on a grid of contexts."""
    grid = (torch.arange(400, dtype=FLOAT) + 0.5) / 400
    x = torch.stack(torch.meshgrid(grid, grid, indexing="ij"), -1)
    x = torch.cat([torch.ones_like(x[..., :1]), x], -1)
    return float((policy(x) * means_of(x)).sum(-1).mean())


def logging_of(world: str, x: Tensor) -> Tensor:
    """Return the old system's probabilities, if they do not depend on earlier rounds, (..., K)."""
    slope = {"good overlap": 3.0, "bad overlap": -6.0, "logging learns": 0.0}[world]
    return LEAST[world] + (1.0 - ARMS * LEAST[world]) * torch.softmax(slope * means_of(x), -1)


def draw(world: str, logs: int, rounds: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return contexts, actions, rewards and probabilities of independent logs, (L, N, 3) and (L, N)."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(logs, rounds, 3, generator=generator, dtype=FLOAT)
    x[..., 0] = 1.0
    means, least, fixed = means_of(x), LEAST[world], logging_of(world, x)
    # Of the rounds so far: sums of rewards and counts of arms, each as if it had paid 1 once.
    paid, counts = (torch.ones(logs, ARMS, dtype=FLOAT) for _ in range(2))
    parts = []
    for t in range(rounds):
        p = fixed[:, t]
        if world == "logging learns":
            explore = max(ARMS * least, 1.0 / (1.0 + 0.02 * t))
            best = (paid / counts).argmax(-1, keepdim=True)
            p = torch.full_like(p, explore / ARMS).scatter_add_(
                -1, best, torch.full((logs, 1), 1.0 - explore, dtype=FLOAT)
            )
        action = torch.multinomial(p, 1, generator=generator)
        reward = torch.bernoulli(means[:, t].gather(-1, action), generator=generator)
        paid.scatter_add_(-1, action, reward)
        counts.scatter_add_(-1, action, torch.ones_like(reward))
        parts.append((action, reward, p.gather(-1, action)))
    action, reward, probability = (torch.cat(part, -1) for part in zip(*parts, strict=True))
    return x, action, reward, probability


def ridge_predictions(x: Tensor, action: Tensor, reward: Tensor, part: Tensor, *, in_order: bool) -> Tensor:
    """Return predictions of all arms in all logs, (L, N, K), from rounds of other parts, or of earlier ones.

    ``part`` numbers the part of each round, (N).
    """
    chosen = torch.nn.functional.one_hot(action, ARMS).to(FLOAT)
    q = torch.zeros_like(chosen)
    for number in range(int(part.max()) + 1):
        learnt = chosen * ((part < number) if in_order else (part != number)).unsqueeze(-1)
        squares = torch.einsum("lnk,lni,lnj->lkij", learnt, x, x) + RIDGE * torch.eye(x.size(-1), dtype=FLOAT)
        theta = torch.linalg.solve(squares, torch.einsum("lnk,lni,ln->lki", learnt, x, reward))
        rows = part == number
        q[:, rows] = x[:, rows] @ theta.transpose(-1, -2)
    return q


def predictions(x: Tensor, action: Tensor, reward: Tensor) -> dict[str, Tensor]:
    """Return cross-fitted predictions and those in order, by the model's name."""
    n = action.size(1)
    fold = torch.randperm(n, generator=torch.Generator().manual_seed(0)) % FOLDS
    found = {}
    for model, dim in MODELS.items():
        seen = x[..., :dim]
        found[model] = ridge_predictions(seen, action, reward, fold, in_order=False)
        found[f"{model}, in order"] = ridge_predictions(seen, action, reward, torch.arange(n) // BLOCK, in_order=True)
        # The library's predictions of the first log are the same.
        log = BanditLog(arms=ARMS, action=action[0], reward=reward[0], probability=torch.ones(n), context=seen[0])
        arms = DisjointArms(RidgeRegression(dim, ridge=RIDGE), actions=ARMS)
        theirs = predicted_rewards(arms, log, folds=FOLDS), predicted_rewards(arms, log, folds=None, block_size=BLOCK)
        torch.testing.assert_close(found[model][0], theirs[0].values)
        torch.testing.assert_close(found[f"{model}, in order"][0], theirs[1].values)
    return found


def estimates_of(log: BanditLog, target: Tensor, q: dict[str, Tensor]) -> dict[str, Estimate]:
    """Return all estimates from a log, by name."""
    found = {"IPS": ips(log, target), "IPS, no bound": ips(log, target), "SNIPS": snips(log, target)}
    found["clipped IPS"] = clipped_ips(log, target, CAP)
    for model in MODELS:
        past = PredictedRewards(q[f"{model}, in order"].clamp(0.0, 1.0), from_past=True)
        found |= {
            f"direct method, {model}": direct_method(log, target, q[model]),
            f"DR, {model}": doubly_robust(log, target, q[model]),
            f"SNDR, {model}": sndr(log, target, q[model]),
            f"switch DR, {model}": switch_doubly_robust(log, target, q[model], CAP),
            f"DR in order, {model}": doubly_robust(log, target, past),
        }
    return found


def simulate(world: str, logs: int, rounds: int, draws: int, console: Console) -> list[tuple[str, ...]]:
    """Return a row of the table for each estimator."""
    truth, largest = true_value(), 1.0 / LEAST[world]
    values: dict[str, list[float]] = {}
    hits: dict[str, list[tuple[float, ...]]] = {}
    sizes = []
    x, action, reward, probability = draw(world, logs, rounds)
    q = predictions(x, action, reward)
    for k in track(range(logs), world, console=console):
        log = BanditLog(arms=ARMS, action=action[k], reward=reward[k], probability=probability[k], context=x[k])
        of_log = {model: values[k] for model, values in q.items()}
        for name, estimate in estimates_of(log, target_of(x[k]), of_log).items():
            values.setdefault(name, []).append(estimate.value)
            normal = normal_interval(estimate, delta=DELTA)
            resampled = bootstrap_interval(estimate, delta=DELTA, draws=draws)
            row = [normal.lower <= truth <= normal.upper, resampled.lower <= truth <= resampled.upper]
            row += [normal.upper - normal.lower]
            bound = None if name in ("IPS, no bound", "clipped IPS") else largest
            if estimate.method in ("ips", "clipped_ips") or "in order" in name:
                anytime = confidence_sequence(estimate, reward_range=(0.0, 1.0), largest_weight=bound, delta=DELTA)
                held = (anytime.lower <= truth) & (truth <= anytime.upper)
                row += [bool(held[-1]), bool(held.all()), float(anytime.upper[-1] - anytime.lower[-1])]
            hits.setdefault(name, []).append(tuple(map(float, row)))
            if name == "IPS":
                sizes.append(estimate.effective_sample_size)
    console.print(
        f"{world}: the target's value is {truth:.4f}, the mean effective sample size {sum(sizes) / logs:.0f} of {rounds} rounds",
        highlight=False,
    )
    rows = []
    for name, found in values.items():
        error = torch.tensor(found, dtype=FLOAT) - truth
        mean = torch.tensor(hits[name], dtype=FLOAT).mean(0).tolist()
        bias = f"{1e3 * float(error.mean()):+.1f} ± {1e3 * float(error.std()) / math.sqrt(logs):.1f}"
        root = f"{1e3 * float(error.pow(2).mean().sqrt()):.1f}"
        cells = [f"{100 * mean[0]:.1f}", f"{100 * mean[1]:.1f}", f"{1e3 * mean[2]:.0f}", "", "", ""]
        if len(mean) > 3:
            cells[3:] = [f"{100 * mean[3]:.1f}", f"{100 * mean[4]:.1f}", f"{1e3 * mean[5]:.0f}"]
        rows.append((name, bias, root, *cells))
    return rows


class TailWorld(NamedTuple):
    """World of two arms, of which the target plays the second.

    The old system plays it with probability p, which is u to the power ``shape`` for a uniform u, or ``share`` if that is given.
    Its reward is the function ``reward`` of p and another uniform number; the first arm's is the function ``other``.
    """

    shape: float
    share: float | None
    reward: Callable[[Tensor, Tensor], Tensor]
    other: Callable[[Tensor, Tensor], Tensor]
    value: float
    logged: float
    reward_range: tuple[float, float] | None
    largest_weight: float | None = None


def nothing(p: Tensor, u: Tensor) -> Tensor:
    return 0.0 * p


def growing(p: Tensor, u: Tensor) -> Tensor:
    """Return a reward from 0 to 1 that grows with the weight 1 / p."""
    return 1.0 - p


def click(probability: float) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda p, u: (u < probability).to(FLOAT)


def bounded_tail(index: float) -> TailWorld:
    """Return a world with rewards from 0 to 1 whose weighted rewards have this tail index, from 1 to 2."""
    a = index - 1.0  # p has the density a p^(a - 1), so its k-th moment is a / (a + k)
    first, second = a / (a + 1.0), a / (a + 2.0)
    return TailWorld(1.0 / a, None, growing, nothing, 1.0 - first, first - second, (0.0, 1.0))


def unbounded_tail(index: float) -> TailWorld:
    """Return a world with rewards p^-b for uniform p whose weighted rewards have this tail index, from 1 to 2."""
    b = 2.0 / index - 1.0
    return TailWorld(1.0, None, lambda p, u: p**-b, nothing, 1.0 / (1.0 - b), 1.0 / (2.0 - b), None)


def rare_arm(share: float, largest_weight: float | None) -> TailWorld:
    """Return a world in which the target's arm is rare, and 1 % of the visitors click on either arm."""
    return TailWorld(1.0, share, click(0.01), click(0.01), 0.01, 0.01, (0.0, 1.0), largest_weight)


TAILS = {
    "rewards grow with weights, index 1.3": bounded_tail(1.3),
    "the same, index 1.8": bounded_tail(1.8),
    "unbounded rewards, index 1.3": unbounded_tail(1.3),
    "rare arm, 1 % clicks": rare_arm(0.1, None),
    "the same, W = 10": rare_arm(0.1, 10.0),
    "light tails, half of the rounds": TailWorld(1.0, 0.5, click(0.5), click(0.3), 0.5, 0.4, (0.0, 1.0)),
    "light tails, a tenth of the rounds": TailWorld(
        1.0, 0.1, lambda p, u: u, lambda p, u: 0.5 * u, 0.5, 0.275, (0.0, 1.0)
    ),
}


def draw_tail(world: TailWorld, rounds: int, generator: torch.Generator) -> BanditLog:
    u, v, coin = torch.rand(3, rounds, generator=generator, dtype=FLOAT)
    p = u**world.shape if world.share is None else torch.full_like(u, world.share)
    played = coin < p
    return BanditLog(
        arms=2,
        action=played.long(),
        reward=torch.where(played, world.reward(p, v), world.other(p, v)),
        probability=torch.where(played, p, 1.0 - p),
    )


def with_tails(logs: int, rounds: int) -> Iterator[tuple[str, Iterator[Estimate], float, float, dict[str, Any]]]:
    """Yield name, IPS estimates, value, logged value and options of the default interval of each world."""
    target = torch.tensor([[0.0, 1.0]], dtype=FLOAT).expand(rounds, 2)
    for name, world in TAILS.items():
        generator = torch.Generator().manual_seed(0)
        estimates = (ips(draw_tail(world, rounds, generator), target) for _ in range(logs))
        options = {"reward_range": world.reward_range, "largest_weight": world.largest_weight}
        yield name, estimates, world.value, world.logged, options
    for name in ("good overlap", "bad overlap"):
        x, *parts = draw(name, logs, rounds // 4)
        estimates = (
            ips(BanditLog(arms=ARMS, action=action, reward=reward, probability=probability), target_of(context))
            for context, action, reward, probability in zip(x, *parts, strict=True)
        )
        logged = true_value(partial(logging_of, name))
        yield name, estimates, true_value(), logged, {"reward_range": (0.0, 1.0)}


def tails(logs: int, rounds: int) -> list[tuple[str, ...]]:
    """Return a row of the table of heavy tails for each world, and for the value and the improvement."""
    rows = []

    def facts(bounds: Interval, truth: float) -> tuple[float, float]:
        return float(bounds.lower <= truth <= bounds.upper), bounds.upper - bounds.lower

    for name, estimates, value, logged, options in with_tails(logs, rounds):
        found: dict[str, list[tuple[float, ...]]] = {"value": [], "new minus old": []}
        for estimate in estimates:
            for what, subject, truth in (
                ("value", estimate, value),
                ("new minus old", improvement(estimate), value - logged),
            ):
                default = confidence_interval(subject, delta=DELTA, **options)
                normal, share = normal_interval(subject, delta=DELTA), subject.tail_share
                late = facts(normal if share <= 0.2 else default, truth)[0]
                row = (*facts(normal, truth), *facts(default, truth), float(default.method != "normal"), share, late)
                found[what].append(row)
        for what, values in found.items():
            columns = torch.tensor(values, dtype=FLOAT)
            mean, middle = (100.0 * columns.mean(0)).tolist(), columns.median(0).values.tolist()
            shares = f"{mean[4]:.1f}", f"{100 * middle[5]:.1f}"
            widths = f"{middle[1]:.3f}", "infinite" if math.isinf(middle[3]) else f"{middle[3]:.3f}"
            rows.append((name, what, *shares, *(f"{mean[k]:.1f}" for k in (0, 2, 6)), *widths))
    return rows


def shop(policy: str, campaign: str, folder: Path) -> BanditLog:
    """Return a log of the Open Bandit Dataset's sample. obp's own loader does not run with pandas 2."""
    import pandas

    frame = pandas.read_csv(folder / policy / campaign / f"{campaign}.csv", index_col=0)
    frame = frame.sort_values("timestamp", kind="stable")
    place = torch.from_numpy(frame["position"].to_numpy() - 1)
    return from_obp(
        {
            "n_actions": int(frame["item_id"].max()) + 1,
            "action": frame["item_id"].to_numpy(),
            "reward": frame["click"].to_numpy(),
            "pscore": frame["propensity_score"].to_numpy(),
            "position": place.numpy(),
            "context": torch.nn.functional.one_hot(place, 3).double().numpy(),
        }
    )


def thompson(log: BanditLog, campaign: str, simulations: int) -> Tensor:
    """Return the probabilities of Thompson sampling at the start, at each round's position, (N, K)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from obp.policy import BernoulliTS
    policy = BernoulliTS(n_actions=log.arms, len_list=3, is_zozotown_prior=True, campaign=campaign, random_state=0)
    by_position = torch.from_numpy(policy.compute_batch_action_dist(n_rounds=1, n_sim=simulations))
    return at_positions(log, by_position.expand(len(log), -1, -1))


def per_mille(value: float, bounds: Any = None) -> str:
    text = f"{1e3 * value:.2f}"
    return text if bounds is None else f"{text} [{1e3 * float(bounds[0]):.2f}, {1e3 * float(bounds[1]):.2f}]"


def evaluate_shop(campaigns: tuple[str, ...], simulations: int, draws: int, folder: Path) -> list[tuple[str, ...]]:
    """Return a row of the table for each campaign and each direction."""
    rows = []
    for campaign in campaigns:
        uniform, learning = (shop(policy, campaign, folder) for policy in ("random", "bts"))
        start = thompson(uniform, campaign, simulations)
        same = torch.full((len(learning), learning.arms), 1.0 / learning.arms, dtype=FLOAT)
        # Uniform logging makes the largest weight known. Thompson sampling has no least probability.
        known = uniform.arms * float(start.max())
        for log, other, target, names, largest in (
            (uniform, learning, start, ("random", "bts at the start"), known),
            (learning, uniform, same, ("bts", "uniform items"), None),
        ):
            estimate = ips(log, target)
            bounds = confidence_sequence(estimate, reward_range=(0.0, 1.0), largest_weight=largest, delta=DELTA)
            model = predicted_rewards(DisjointArms(RidgeRegression(3), actions=log.arms), log)
            plain = ips(other, other_weights(other))
            cells = [
                per_mille(estimate.value, bootstrap_interval(estimate, delta=DELTA, draws=draws)),
                per_mille(snips(log, target).value),
                per_mille(doubly_robust(log, target, model).value),
                f"[{1e3 * float(bounds.lower[-1]):.2f}, {1e3 * float(bounds.upper[-1]):.0f}]",
                per_mille(plain.value, normal_interval(plain, delta=DELTA)),
            ]
            clicks, size = int(log.reward.sum()), f"{estimate.effective_sample_size:.0f}"
            rows.append((campaign, *names, str(clicks), size, *cells))
    return rows


def other_weights(log: BanditLog) -> Tensor:
    """Return a target that has the logged probabilities for the logged actions: its estimate is the plain mean."""
    rest = (1.0 - log.probability) / (log.arms - 1)
    return rest.unsqueeze(1).expand(-1, log.arms).scatter(1, log.action.unsqueeze(1), log.probability.unsqueeze(1))


def data_folder(given: Path | None) -> Path:
    """Return the folder of the Open Bandit Dataset's sample."""
    found = find_spec("obp")
    places = [Path(place, "dataset", "obd") for place in (found.submodule_search_locations or [] if found else [])]
    if given is None and not places:
        raise SystemExit("obp: expected the package with the Open Bandit Dataset's sample, found none: pip install obp")
    return given or places[0]


def markdown(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    return "\n".join("| " + " | ".join(line) + " |" for line in (header, ("---",) * len(header), *rows))


SIMULATED = (
    "estimator",
    "bias",
    "RMSE",
    "normal",
    "bootstrap",
    "width",
    "anytime, end",
    "anytime, always",
    "width, anytime",
)
OF_TAILS = (
    "world",
    "interval of",
    "switched",
    "tail share",
    "normal",
    "default",
    "at 20 %",
    "width, normal",
    "width, default",
)
OF_SHOP = ("campaign", "log", "target", "clicks", "ESS", "IPS", "SNIPS", "DR", "anytime", "mean of the other log")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="the folder obp/dataset/obd")
    parser.add_argument("--output", type=Path, default=Path("outputs"))
    parser.add_argument("--quick", "--smoke", action="store_true", help="a few logs, to see that it runs")
    options = parser.parse_args()
    logs, rounds, draws, simulations = (4, 100, 50, 500) if options.quick else (1000, 500, 400, 100_000)
    campaigns = ("men",) if options.quick else ("all", "men", "women")
    options.output.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    for warning in (OverlapWarning, TailWarning):  # the tables say so
        warnings.simplefilter("ignore", warning)
    console = Console(soft_wrap=True)
    folder = data_folder(options.data)
    texts = []
    for world in LEAST:
        table = markdown(SIMULATED, simulate(world, logs, rounds, draws, console))
        texts.append(
            f"{world}, {logs} logs of {rounds} rounds: errors and widths in thousandths, coverage in percent\n\n{table}"
        )
    long = 4 * rounds
    texts.append(
        f"heavy tails, {logs} logs of {long} rounds: coverage in percent, medians of shares (in percent) and of widths\n\n"
        + markdown(OF_TAILS, tails(logs, long))
    )
    table = markdown(OF_SHOP, evaluate_shop(campaigns, simulations, draws, folder))
    texts.append(f"Open Bandit Dataset, sample: clicks in a thousand impressions\n\n{table}")
    console.print("\n\n".join(texts), markup=False, highlight=False)
    path = options.output / "off_policy.md"
    path.write_text("\n\n".join(texts) + "\n")
    console.print(f"Written: {path}")


if __name__ == "__main__":
    main()
