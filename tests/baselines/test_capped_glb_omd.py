"""GLB-OMD with capped scores: the formula, which of equal arms is played, and what the cap is good for."""

import pytest
import torch
from torch import Tensor

from tests.learners import round_of
from torchonline import GLBOMD, FixedArms, Logistic, Poisson
from torchonline.baselines import CappedGLBOMD
from torchonline.environments import GeneralizedLinearBandit
from torchonline.links import Link

D = torch.float64


def pair(link: Link, bound: float, dtype: torch.dtype = D) -> tuple[CappedGLBOMD, GLBOMD]:
    options = {"link": link, "theta_bound": bound, "dtype": dtype}
    return CappedGLBOMD(2, **options), GLBOMD(2, **options)


def right_choices(index: Tensor, cap: Tensor) -> Tensor:
    """The largest capped score, and of equal ones the largest index; any of the arms of which both are equal but for rounding."""
    capped = torch.minimum(index, cap)
    best = capped >= capped.amax() - 1e-12
    return best & (index >= index[best].amax() - 1e-4)


@pytest.mark.parametrize("is_unit", [True, False])
@pytest.mark.parametrize(("link", "bound"), [(Logistic(), 3.0), (Poisson(), 2.0)])
def test_scores_are_capped_and_ties_go_to_the_larger_index(link: Link, bound: float, is_unit: bool) -> None:
    """Among unit arms all are capped for long, and the choices are those of the scores without a cap."""
    capped, plain = pair(link, bound)
    generator = torch.Generator().manual_seed(0)
    theta, cut, tied = torch.tensor([bound, 0.0], dtype=D), 0, 0
    for _ in range(200):
        arms = torch.randn(6, 2, generator=generator, dtype=D)
        arms /= arms.norm(dim=-1, keepdim=True) * (1.0 if is_unit else 1.0 + torch.rand(6, 1, generator=generator))
        index, cap = plain(arms), bound * arms.norm(dim=-1)
        torch.testing.assert_close(capped(arms), torch.minimum(index, cap), rtol=2e-8, atol=0.0)
        k = capped.select(arms)
        assert right_choices(index, cap)[k]
        cut += int((index > cap).sum())
        tied += is_unit and bool((index > cap).sum() > 1)
        reward = link.sample(arms[k] @ theta, generator)
        for policy in (capped, plain):
            policy.step(arms, k, reward)
    assert cut > 100
    assert tied > 20 or not is_unit


@pytest.mark.parametrize("dtype", [D, torch.float32])
def test_an_index_below_its_cap_stays_as_it_is(dtype: torch.dtype) -> None:
    capped, plain = pair(Logistic(), 3.0, dtype)
    x = torch.tensor([[0.6, 0.8]], dtype=dtype)
    for policy in (capped, plain):
        policy.step(x.expand(3000, 1, 2), [0] * 3000, torch.tensor([1.0, 0.0] * 1500))
    assert torch.equal(capped(x), plain(x))
    across = torch.tensor([[0.8, -0.6]], dtype=dtype)
    assert float(capped(across)) == pytest.approx(3.0, rel=1e-3)


def test_no_score_is_below_the_truth() -> None:
    """A batch of 200 runs on counts, 150 rounds: optimism fails in at most delta of them, and three standard errors."""
    environment = GeneralizedLinearBandit(2, 10, link=Poisson(), theta_norm=2.0, batch_shape=(200,), seed=3)
    policy = CappedGLBOMD(2, link=Poisson(), theta_bound=2.0, delta=0.05, batch_shape=(200,))
    arms, failed = environment.arms(), torch.zeros(200, dtype=torch.bool)
    for _ in range(150):
        truth = (arms @ environment.theta.unsqueeze(-1)).squeeze(-1)
        failed |= (policy(arms) < truth - 1e-9).any(-1)
        x, reward, _ = environment.pull(policy.select(arms))
        policy.step(*round_of(policy, x, reward))
    assert int(failed.sum()) <= 200 * 0.05 + 3.0 * (200 * 0.05 * 0.95) ** 0.5


def test_scores_of_predictors_and_widths_alone_are_refused() -> None:
    with pytest.raises(TypeError, match=r"^policy: expected one that scores arms by scores_of"):
        FixedArms(CappedGLBOMD(2), torch.eye(2))
