"""The confidence sets of generalized linear learners hold as often as they say, whoever chooses the arms; wrong ones do not."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor

from torchonline import GLBOMD, Binomial, Gaussian, LocalGLB, Logistic, Poisson
from torchonline.links import Link
from torchonline.policies.rules import UCB

RUNS, ROUNDS, DELTA, DIM, ARMS = 250, 200, 0.05, 2, 10
# Three standard errors above delta.
LIMIT = DELTA + 3.0 * (DELTA * (1.0 - DELTA) / RUNS) ** 0.5
D = torch.float64


def unit_ball(generator: torch.Generator, *shape: int) -> Tensor:
    """Uniform draws from the unit ball in the plane."""
    x = torch.nn.functional.normalize(torch.randn(*shape, DIM, generator=generator, dtype=D), dim=-1)
    return x * torch.rand(*shape, 1, generator=generator, dtype=D).sqrt()


def misses(
    make: Callable[..., UCB],
    link: Link,
    bound: float,
    sample: Callable[[Tensor, torch.Generator], Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """Shares of runs in which the set, and a fifth of it, ever lost the truth: ``(2,)`` each.

    In the first half of the batch the policy chooses; in the second an adversary who knows the truth and plays the arm along
    which the estimate is furthest from it, relative to its width, in every other round, and the one it knows least of in between.
    """
    generator = torch.Generator().manual_seed(0)
    policy = make(DIM, link=link, theta_bound=bound, delta=DELTA, batch_shape=(2, RUNS))
    estimator = policy.estimator
    theta = bound * torch.nn.functional.normalize(torch.randn(2, RUNS, DIM, generator=generator, dtype=D), dim=-1)
    arms = unit_ball(generator, 2, RUNS, ARMS)
    missed = torch.zeros(2, 2, RUNS, dtype=torch.bool)
    for t in range(ROUNDS):
        index = policy.select(arms)
        width = estimator.width(arms[1:].expand_as(arms))[1]
        error = (arms[1] @ (estimator.theta_hat - theta)[1].unsqueeze(-1)).squeeze(-1).abs()
        index[1] = (error / width if t % 2 else width).argmax(-1)
        x = arms.gather(-2, index[..., None, None].expand(2, RUNS, 1, DIM)).squeeze(-2)
        reward = (sample or link.sample)((x * theta).sum(-1), generator)
        policy.step(arms, index, reward)
        gap = estimator.theta_hat - theta
        distance = ((gap.unsqueeze(-2) @ estimator.V).squeeze(-2) * gap).sum(-1).sqrt()
        missed[0] |= distance > estimator.radius()
        missed[1] |= distance > 0.2 * estimator.radius()
    shares = missed.double().mean(-1)
    return shares[0], shares[1]


LAWS = [(Logistic(), 3.0), (Logistic(), 8.0), (Poisson(), 2.0), (Gaussian(0.5), 1.0), (Binomial(10), 2.0)]


@pytest.mark.parametrize("make", [GLBOMD, LocalGLB])
@pytest.mark.parametrize(("link", "bound"), LAWS, ids=str)
def test_sets_hold_and_a_fifth_of_them_do_not(make: Callable[..., UCB], link: Link, bound: float) -> None:
    whole, fifth = misses(make, link, bound)
    assert (whole <= LIMIT).all(), whole
    assert (fifth > LIMIT).all(), fifth


def overdispersed(z: Tensor, generator: torch.Generator) -> Tensor:
    """Counts of the mean exp(z) that come all at once, in one round of ten."""
    high = torch.rand(z.shape, generator=generator, dtype=D) < 0.1
    return torch.poisson(z.exp() * torch.where(high, 10.0, 0.0), generator=generator)


def together(z: Tensor, generator: torch.Generator) -> Tensor:
    """Ten tries that succeed or fail together."""
    return 10.0 * torch.bernoulli(z.sigmoid(), generator=generator)


@pytest.mark.parametrize("make", [GLBOMD, LocalGLB])
@pytest.mark.parametrize(("link", "bound", "law"), [(Poisson(), 2.0, overdispersed), (Binomial(10), 2.0, together)])
def test_rewards_that_spread_wider_are_seen_to_break_them(
    make: Callable[..., UCB], link: Link, bound: float, law: Callable[[Tensor, torch.Generator], Tensor]
) -> None:
    whole, _ = misses(make, link, bound, law)
    assert (whole > LIMIT).any(), whole


class Fraud:
    """An adversary who turns clicks against the truth, a number of times in each run."""

    def __init__(self, clicks: int) -> None:
        self.left = torch.full((2, RUNS), clicks)

    def __call__(self, z: Tensor, generator: torch.Generator) -> Tensor:
        click, wanted = torch.bernoulli(z.sigmoid(), generator=generator), (z < 0.0).double()
        change = torch.where(self.left > 0, wanted - click, 0.0)
        self.left -= change.abs().long()
        return click + change


def test_the_set_holds_under_corruption() -> None:
    """With a quarter of all clicks changed it does; without the budget it does not."""
    whole, _ = misses(partial(LocalGLB, corruption=50.0), Logistic(), 3.0, Fraud(50))
    assert (whole <= LIMIT).all(), whole
    trusting, _ = misses(LocalGLB, Logistic(), 3.0, Fraud(50))
    assert (trusting > 0.9).all(), trusting
