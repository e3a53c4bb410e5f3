"""How policies choose: optimism, posterior draws at the right scale, masks, ties, and many decisions at once."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.learners import BATCH_SHAPES, close, differences, snapshot
from torchonline import OFUL, UCB, Greedy, HeavyTailRegression, HuberRegression, RidgeRegression, ThompsonSampling
from torchonline.baselines import MENU

pytestmark = pytest.mark.fast

D = torch.float64
DRAWS = 40_000


def learnt(cls: Any = RidgeRegression, rounds: int = 20, **options: Any) -> Any:
    """An estimator that has seen some directions more than others."""
    batch_shape = options.get("batch_shape", ())
    estimator = cls(3, **options)
    x = torch.randn(*batch_shape, rounds, 3, dtype=D) * torch.tensor([1.0, 0.3, 2.0], dtype=D)
    estimator.step(x, torch.randn(*batch_shape, rounds, dtype=D))
    return estimator


ESTIMATORS = {
    "ridge": lambda **options: learnt(RidgeRegression, **options),
    "huber": lambda **options: learnt(HuberRegression, horizon=100, radius_scale=1e-3, **options),
    "heavy tail": lambda **options: learnt(HeavyTailRegression, **options),
}


@pytest.mark.parametrize("build", ESTIMATORS.values(), ids=ESTIMATORS)
def test_scores_are_what_they_say(build: Any) -> None:
    """UCB: mean + radius * width. Greedy: the mean."""
    for batch_shape in BATCH_SHAPES:
        estimator = build(batch_shape=batch_shape)
        arms = torch.randn(*batch_shape, 7, 3, dtype=D)
        radius = estimator.radius().unsqueeze(-1)
        close(UCB(estimator)(arms), estimator(arms) + radius * estimator.width(arms))
        close(Greedy(estimator)(arms), estimator(arms))
        for policy in (UCB(estimator), Greedy(estimator)):
            assert torch.equal(policy.select(arms), policy(arms).argmax(-1))


# Thompson sampling: for any features X of an arm set, the scores of one decision are N(X theta, s^2 X M X'), where s is
# the posterior's scale or the radius.


def draws(policy: ThompsonSampling, arms: Tensor) -> Tensor:
    """Scores of many decisions among the same arms: ``(*B, DRAWS, K)``."""
    return policy(arms.unsqueeze(-3).expand(*arms.shape[:-2], DRAWS, *arms.shape[-2:]))


def law_is_right(scores: Tensor, mean: Tensor, covariance: Tensor) -> bool:
    """Whether draws fit a Gaussian law: all means and covariances within five standard errors."""
    spread = covariance.diagonal(dim1=-2, dim2=-1)
    centred = scores - scores.mean(-2, keepdim=True)
    sample = centred.mT @ centred / (DRAWS - 1)
    error_of_mean = (spread / DRAWS).sqrt()
    error_of_covariance = ((spread.unsqueeze(-1) * spread.unsqueeze(-2) + covariance**2) / DRAWS).sqrt()
    right_mean = ((scores.mean(-2) - mean).abs() < 5.0 * error_of_mean).all()
    return bool(right_mean and ((sample - covariance).abs() < 5.0 * error_of_covariance).all())


@pytest.mark.parametrize("scale", ["posterior", "theorem"])
@pytest.mark.parametrize("build", ESTIMATORS.values(), ids=ESTIMATORS)
def test_draws_have_the_law_of_the_ellipsoid(build: Any, scale: str) -> None:
    """Accepted at the right scale and centre, rejected at 2/3 and 3/2 of it and off centre."""
    for batch_shape in BATCH_SHAPES:
        estimator = build(batch_shape=batch_shape)
        arms = torch.randn(*batch_shape, 4, 3, dtype=D)
        # x'My from the public width, by polarisation: no need to know which matrix it comes from.
        pairs = arms.unsqueeze(-2) + arms.unsqueeze(-3), arms.unsqueeze(-2) - arms.unsqueeze(-3)
        inner = (estimator.width(pairs[0]) ** 2 - estimator.width(pairs[1]) ** 2) / 4.0
        radius = (estimator.radius() if scale == "theorem" else estimator.posterior_scale())[..., None, None]
        scores = draws(ThompsonSampling(estimator, scale=scale), arms)
        mean = estimator(arms)
        assert law_is_right(scores, mean, radius**2 * inner)
        for factor in (2 / 3, 3 / 2):
            assert not law_is_right(scores, mean, factor * radius**2 * inner)
            assert not law_is_right(scores, mean, (factor * radius) ** 2 * inner)
        assert not law_is_right(scores, mean + 0.1 * radius.squeeze(-1) * estimator.width(arms), radius**2 * inner)


def test_one_draw_serves_all_arms_of_a_decision() -> None:
    """Scores are linear in the features: what arm by arm draws would never be."""
    policy = ThompsonSampling(learnt())
    one, other = torch.randn(2, 3, dtype=D)
    scores = policy(torch.stack([one, other, one + other, 2.0 * one, one]))
    close(scores[2], scores[0] + scores[1])
    close(scores[3], 2.0 * scores[0])
    close(scores[4], scores[0])


def test_each_decision_has_a_draw_of_its_own() -> None:
    for batch_shape in BATCH_SHAPES:
        policy = ThompsonSampling(learnt(batch_shape=batch_shape))
        arms = torch.randn(3, dtype=D).expand(*batch_shape, 50, 2, 3)
        scores = policy(arms)
        # A product of matrices may round two equal rows differently.
        torch.testing.assert_close(scores[..., 0], scores[..., 1], rtol=1e-12, atol=1e-12)
        assert scores[..., 0].unique().numel() == scores[..., 0].numel()


def test_draws_follow_the_global_seed() -> None:
    policy, arms = ThompsonSampling(learnt()), torch.randn(6, 3, dtype=D)
    seen = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        seen.append(policy(arms))
    assert torch.equal(seen[0], seen[1])
    assert not torch.equal(seen[0], seen[2])


def test_draws_stay_finite_where_the_ellipsoid_is_flat() -> None:
    """After 10^5 rounds in one direction out of three, at a scale of 10^6, the factor of M still exists."""
    for dtype in (torch.float64, torch.float32):
        estimator = RidgeRegression(3, dtype=dtype)
        scale = 1e5 if dtype == torch.float64 else 1e2
        for _ in range(100):
            estimator.step(scale * torch.ones(10, 3) / math.sqrt(3), torch.randn(10))
        assert bool(torch.isfinite(ThompsonSampling(estimator)(torch.eye(3, dtype=dtype))).all())


POLICIES = {"UCB": UCB, "Greedy": Greedy, "ThompsonSampling": ThompsonSampling}


@pytest.mark.parametrize("cls", POLICIES.values(), ids=POLICIES)
def test_a_masked_arm_is_never_chosen(cls: Any) -> None:
    for batch_shape in BATCH_SHAPES:
        policy = cls(learnt(batch_shape=batch_shape))
        for _ in range(50):
            arms = torch.randn(*batch_shape, 4, 6, 3, dtype=D)
            mask = torch.rand(arms.shape[:-1]) < 0.3
            mask.scatter_(-1, torch.randint(6, (*mask.shape[:-1], 1)), True)
            assert bool(mask.gather(-1, policy.select(arms, mask).unsqueeze(-1)).all())


@pytest.mark.parametrize("cls", [UCB, Greedy])
def test_a_mask_means_the_best_of_the_rest(cls: Any) -> None:
    policy, arms = cls(learnt()), torch.randn(6, 3, dtype=D)
    order = policy(arms).argsort(descending=True)
    mask = torch.ones(6, dtype=torch.bool)
    for best in order:
        assert policy.select(arms, mask) == best
        mask[best] = False
    only = torch.zeros(6, dtype=torch.bool)
    only[order[-1]] = True
    assert policy.select(arms, only) == order[-1]
    assert torch.equal(policy.select(arms, torch.ones(6, dtype=torch.bool)), policy.select(arms))


@pytest.mark.parametrize("build", ESTIMATORS.values(), ids=ESTIMATORS)
@pytest.mark.parametrize("cls", [UCB, Greedy])
def test_many_decisions_equal_a_loop(cls: Any, build: Any) -> None:
    """Contexts (*B, N, K, d), with and without a mask, choose what N calls would."""
    for batch_shape in ((), (2,), (2, 3)):
        policy = cls(build(batch_shape=batch_shape))
        arms = torch.randn(*batch_shape, 9, 5, 3, dtype=D)
        mask = torch.rand(arms.shape[:-1]) < 0.6
        mask[..., 0] = True
        seen = policy.select(arms), policy.select(arms, mask), policy(arms)
        assert seen[0].dtype == torch.int64
        assert seen[0].shape == (*batch_shape, 9)
        for n in range(9):
            one = arms[..., n, :, :]
            assert torch.equal(policy.select(one), seen[0][..., n])
            assert torch.equal(policy.select(one, mask[..., n, :]), seen[1][..., n])
            close(policy(one), seen[2][..., n, :])
        grid = arms.reshape(*batch_shape, 3, 3, 5, 3)
        assert torch.equal(policy.select(grid).reshape(*batch_shape, 9), seen[0])


def test_a_policy_wants_an_estimator() -> None:
    for cls in POLICIES.values():
        with pytest.raises(TypeError, match="estimator: expected "):
            cls(torch.nn.Linear(3, 1))
        estimator = RidgeRegression(3)
        policy = cls(estimator)
        assert policy.estimator is estimator
        policy.step(torch.ones(1, 3), 0, torch.tensor(1.0))
        assert estimator.rounds == 1


# What was seen to go wrong in other libraries.


@pytest.mark.parametrize("ridge", [0.01, 1.0, 10.0])
def test_an_unseen_arm_is_as_uncertain_as_theory_says(ridge: float) -> None:
    """Cold widths are ||x|| / sqrt(ridge): neither 0, which stops exploration, nor ||x|| sqrt(ridge)."""
    x = torch.randn(5, 3, dtype=D)
    for estimator in (RidgeRegression(3, ridge=ridge), HuberRegression(3, horizon=9, ridge=ridge)):
        close(estimator.width(x), x.norm(dim=-1) / math.sqrt(ridge))
    close(HeavyTailRegression(3, ridge=ridge).width(x), x.norm(dim=-1) / math.sqrt(ridge))
    close(RidgeRegression(3, ridge=10.0).width(torch.eye(3, dtype=D)[0]), torch.tensor(0.31622776601683794, dtype=D))


@pytest.mark.parametrize("build", ESTIMATORS.values(), ids=ESTIMATORS)
def test_an_unseen_direction_stays_unseen(build: Any) -> None:
    """3000 rounds elsewhere add nothing to V there, and take nothing from its width."""
    estimator = build(rounds=0)
    fresh = estimator.width(torch.eye(3, dtype=D)[2])
    x = torch.randn(3000, 3, dtype=D) * torch.tensor([1.0, 1.0, 0.0], dtype=D)
    estimator.step(x, torch.randn(3000, dtype=D))
    assert estimator.V[2, 2].item() == estimator.ridge
    assert estimator.width(torch.eye(3, dtype=D)[2]).item() == pytest.approx(fresh.item(), rel=1e-9)


def test_theta_has_no_bias_beyond_the_ridge() -> None:
    """Without noise, theta_hat is theta less ridge V^-1 theta, and no more."""
    theta = torch.tensor([0.5, -1.0, 2.0], dtype=D)
    estimator = RidgeRegression(3)
    x = torch.randn(500, 3, dtype=D)
    estimator.step(x, x @ theta)
    close(estimator.theta_hat, theta - estimator.V_inv @ theta)
    assert (estimator.theta_hat - theta).norm() < 0.01


def test_a_loaded_mean_survives_an_empty_round() -> None:
    """A round of zeros does not reset what is known."""
    estimator = RidgeRegression(2)
    estimator.theta_hat.copy_(torch.tensor([1.0, 2.0]))
    estimator.step(torch.zeros(2), torch.tensor(0.0))
    assert estimator.theta_hat.tolist() == [1.0, 2.0]


def test_scoring_does_not_count_as_learning() -> None:
    policy = OFUL(3)
    before = snapshot(policy)
    for _ in range(100):
        policy(torch.randn(5, 3, dtype=D))
        policy.select(torch.randn(5, 3))
    assert differences(before, snapshot(policy)) == []


def test_optimism_finds_the_best_of_two_arms() -> None:
    """No policy sticks to arm 0: with arm 1 better by 1, UCB and Thompson play it in most of 300 rounds."""
    arms = torch.eye(2, dtype=D)
    for cls in (UCB, ThompsonSampling):
        policy = cls(RidgeRegression(2, theta_bound=1.0, noise_scale=0.3))
        played = torch.zeros(2)
        for _ in range(300):
            index = policy.select(arms)
            policy.step(arms, index, index.double() + 0.3 * torch.randn((), dtype=D))
            played[index] += 1
        assert played[0] > 0
        assert played[1] > 250


class Banded(RidgeRegression):
    """An estimator whose interval does without the radius."""

    def interval(self, x: Tensor) -> tuple[Tensor, Tensor]:
        mean = self.predictor(x)
        return mean - 1.0, mean + 1.0


def test_a_file_has_the_radius_whatever_calls_it() -> None:
    learner = Banded(3)
    script = torch.jit.script(learner)
    close(script.radius(), learner.radius())
    close(script.posterior_scale(), learner.posterior_scale())


class Logged(UCB):
    """A mix-in with a constructor of its own."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.log: list[int] = []


class LoggedMENU(MENU, Logged):
    pass


def test_named_baselines_cooperate_with_mix_ins() -> None:
    assert LoggedMENU(3, horizon=30).log == []
