"""False rewards: what they cost learners for heavy tails, and whether confidence sets survive them.

Two games. "RAND" has the four groups of insurance plans of docs/health_insurance.md as arms. A reward is minus the cost of a
person-year of the group, drawn at random, in hundreds of dollars. "Student-t" has 20 fixed arms in five dimensions, parameters of
norm 1 and noise with 2.1 degrees of freedom. Learners are told the largest standard deviation of an arm, and a bound on the norm
of the parameter, for RAND twice the true one.

An adversary adds a number to 20 rewards: 1000 standard deviations, or 3. It sees the arm before it picks a round, and not the
noise. The promises are the same where it does nothing: at most 20 rounds, or a sum C of the absolute numbers.

The learner of Tani and Futami (UAI 2026) is told C. It is HvtUCB with alpha = 8 and 409 / 107 times the radius, told a noise
scale of at least sqrt(C q) / kappa^(1/4) in each round, where q is the width of the arm.

"x 1" is the radius of theory. The other row of a learner has the best of four multiples, by the mean regret over all columns on
other seeds. It has no guarantee.

    python examples/benchmarks/corrupted.py    # some ten minutes; seconds with --smoke
"""

import argparse
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from private_accuracy import markdown
from torch import Tensor

from torchonline import OFUL, UCB, AnytimeHeavyTailUCB, HvtUCB, RobustRidgeRegression
from torchonline.datasets import health_insurance
from torchonline.environments import LinearBandit, StudentT
from torchonline.metrics import has_missed

TRIALS, CORRUPTED = 8, 20
SCALES = (1.0, 0.1, 0.01, 0.001)
LARGE, SMALL = 1000.0, 3.0  # in standard deviations
# Which rewards are changed: those of the best arm, of the others, or of any at random; from which share of the rounds on; and the
# number in standard deviations.
ATTACKS: dict[str, tuple[str, float, float]] = {
    "none": ("any", 0.0, 0.0),
    "any arm, at random": ("any", 0.0, -LARGE),
    "best arm, at once": ("best", 0.0, -LARGE),
    "best arm, small": ("best", 0.0, -SMALL),
    "best arm, late": ("best", 0.2, -LARGE),
    "other arms, at once": ("others", 0.0, LARGE),
}


class Game(NamedTuple):
    """A game of many trials, with the arms and rewards of all rounds."""

    arms: Tensor  # (trials, arms, d)
    theta: Tensor  # (trials, d)
    rewards: Callable[[], Tensor]  # of a round, (trials, arms)
    deviation: float
    theta_bound: float


def rand(trials: int, seed: int) -> Game:
    """Return the game of the RAND experiment, with one parameter for each group of plans."""
    _, plan, cost, *_ = health_insurance().tensors
    group = torch.tensor([0, 1, 1, 1, 2, 3])[plan]
    rewards = [-cost[group == k] / 100.0 for k in range(4)]
    theta = torch.stack([reward.mean() for reward in rewards])
    generator = torch.Generator().manual_seed(seed)

    def draw() -> Tensor:
        columns = [reward[torch.randint(len(reward), (trials,), generator=generator)] for reward in rewards]
        return torch.stack(columns, -1)

    deviation = max(float(reward.std()) for reward in rewards)
    arms = torch.eye(4, dtype=torch.float64).expand(trials, 4, 4)
    return Game(arms, theta.expand(trials, 4), draw, deviation, 2.0 * float(theta.norm()))


def student_t(trials: int, seed: int) -> Game:
    """Return a linear bandit with noise that has hardly a variance."""
    law = StudentT(2.1)
    environment = LinearBandit(5, 20, noise=law, batch_shape=(trials,), seed=seed)
    means = (environment.arms() @ environment.theta.unsqueeze(-1)).squeeze(-1)
    generator, scale = torch.Generator().manual_seed(seed), 0.5 / law.moment_norm(2.0)
    return Game(
        environment.arms(),
        environment.theta,
        lambda: means + scale * law.sample((trials, 1), generator),
        0.5,
        1.0,
    )


def tani_futami(dim: int, rounds: int, deviation: float, sums: Tensor, scale: float, **options: Any) -> Any:
    """Return the learner of Tani and Futami, and the noise scales of its rounds."""
    options["radius_scale"] = scale * 409.0 / 107.0
    policy = HvtUCB(dim, horizon=rounds, noise_scale=deviation, alpha=8.0, **options)
    estimator = policy.estimator
    kappa = dim * math.log1p(rounds**2 / (estimator.ridge * 8.0 * dim))

    def noise_scale(x: Tensor) -> Tensor:
        return ((sums * estimator.width(x)).sqrt() / kappa**0.25).clamp(min=deviation)

    return policy, noise_scale


LEARNERS = (
    "AnytimeHeavyTailUCB, corrupted_rounds",
    "AnytimeHeavyTailUCB",
    "AnytimeHeavyTailUCB, noise_scale / 10",
    "AnytimeHeavyTailUCB, noise_scale x 10",
    "AnytimeHeavyTailUCB, symmetric",
    "Tani and Futami",
    "HvtUCB",
    "OFUL",
    "bandit, heavy",
)


def make(name: str, game: Game, rounds: int, sums: Tensor, scale: float) -> tuple[Any, Callable[[Tensor], Any]]:
    """Return a policy, and the noise scale of a round with given features."""
    dim, told = game.theta.size(-1), game.deviation
    options: dict[str, Any] = {"batch_shape": tuple(sums.shape)}
    if name == "bandit, heavy":
        # bandit(dim, "heavy", scale=False) at multiple 1.
        estimator = RobustRidgeRegression(dim, ridge=2.0, quantile=0.9, radius_scale=0.5 * scale, **options)
        return UCB(estimator), lambda x: None
    options["theta_bound"] = game.theta_bound
    if name == "Tani and Futami":
        return tani_futami(dim, rounds, told, sums, scale, **options)
    options["radius_scale"] = scale
    if name == "HvtUCB":
        return HvtUCB(dim, horizon=rounds, noise_scale=told, **options), lambda x: None
    if name == "OFUL":
        return OFUL(dim, noise_scale=told, **options), lambda x: None
    variant = name.removeprefix("AnytimeHeavyTailUCB").removeprefix(", ")
    changes: dict[str, dict[str, Any]] = {
        "corrupted_rounds": {"corrupted_rounds": CORRUPTED},
        "noise_scale / 10": {"noise_scale": told / 10.0},
        "noise_scale x 10": {"noise_scale": told * 10.0},
        "symmetric": {"noise": "symmetric"},
    }
    return AnytimeHeavyTailUCB(dim, **{"noise_scale": told} | options | changes.get(variant, {})), lambda x: None


def play(name: str, game: Game, rounds: int, scale: float, seed: int) -> tuple[Tensor, Tensor]:
    """Return the regret, and whether the set was ever lost, ``(attacks, trials)``."""
    trials, attacks = len(game.theta), len(ATTACKS)
    means = (game.arms @ game.theta.unsqueeze(-1)).squeeze(-1)
    arms, theta = game.arms.expand(attacks, *game.arms.shape), game.theta.expand(attacks, *game.theta.shape)
    amount = game.deviation * torch.tensor([[size] for _, _, size in ATTACKS.values()], dtype=torch.float64)
    start = torch.tensor([[share * rounds] for _, share, _ in ATTACKS.values()])
    # Without corruption, the promise is that of small numbers.
    sums = (CORRUPTED * torch.where(amount == 0.0, SMALL * game.deviation, amount.abs())).expand(attacks, trials)
    policy, noise_scale = make(name, game, rounds, sums, scale)
    left, generator = torch.full((attacks, trials), CORRUPTED), torch.Generator().manual_seed(seed)
    regret = torch.zeros(attacks, trials, dtype=torch.float64)
    is_lost = torch.zeros(attacks, trials, dtype=torch.bool)
    for t in range(rounds):
        k, rewards = policy.select(arms), game.rewards().expand(attacks, trials, -1)
        is_best, is_drawn = k == means.argmax(-1), torch.rand(trials, generator=generator) < CORRUPTED / rounds
        wanted = {"best": is_best, "others": ~is_best, "any": is_drawn.expand_as(is_best)}
        is_wanted = torch.stack([wanted[kind][i] for i, (kind, _, _) in enumerate(ATTACKS.values())])
        is_false = (left > 0) & (t >= start) & is_wanted
        left -= is_false.long()
        reward = rewards.gather(-1, k.unsqueeze(-1)).squeeze(-1) + torch.where(is_false, amount, 0.0)
        x = torch.take_along_dim(arms, k[..., None, None], dim=-2).squeeze(-2)
        policy.step(arms, k, reward, noise_scale=noise_scale(x))
        regret += means.amax(-1) - means.expand(attacks, -1, -1).gather(-1, k.unsqueeze(-1)).squeeze(-1)
        is_lost |= has_missed(policy.estimator, theta)
    return regret, is_lost


def main() -> None:
    """Print a table for each game."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("outputs"), help="folder of the tables")
    parser.add_argument("--smoke", action="store_true", help="20 rounds, 2 trials, two multiples")
    options = parser.parse_args()
    torch.set_num_threads(1)
    trials, scales = (2, SCALES[:2]) if options.smoke else (TRIALS, SCALES)
    page = []
    for title, (draw, full) in {"RAND": (rand, 10000), "Student-t": (student_t, 4000)}.items():
        rows, rounds = [], 20 if options.smoke else full
        for name in LEARNERS:
            tried = {scale: float(play(name, draw(trials, 100), rounds, scale, 100)[0].mean()) for scale in scales}
            for scale in sorted({1.0, min(tried, key=lambda scale: tried[scale])}, reverse=True):
                regret, is_lost = play(name, draw(trials, 0), rounds, scale, 0)
                errors = regret.std(-1) / math.sqrt(trials)
                cells = zip(regret.mean(-1).tolist(), errors.tolist(), is_lost.sum(-1).tolist(), strict=True)
                rows.append(
                    [f"{name} x {scale:g}", *(f"{mean:.0f} ± {error:.0f}, {lost}" for mean, error, lost in cells)]
                )
                print(title, *rows[-1], sep=" | ", flush=True)
        columns = ["learner", *ATTACKS]
        page.append(
            f"{title}: regret, mean ± standard error, and sets of {trials} that were lost\n\n" + markdown(columns, rows)
        )
    print("\n".join(page))
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "corrupted.md").write_text("\n".join(page))


if __name__ == "__main__":
    main()
