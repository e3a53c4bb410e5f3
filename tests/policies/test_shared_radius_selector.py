"""The master over arms that share one estimator: RadiusSelector in other features, arms that vary in number, refusals."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.learners import close, differences, snapshot
from torchonline import AdaptiveRidgeRegression, RadiusSelector, RidgeRegression, SharedRadiusSelector, StandardScaler
from torchonline.export import to_program, to_torchscript
from torchonline.models import BanditHead

pytestmark = pytest.mark.fast

D = torch.float64
DIM, ARMS, SCALES = 3, 4, (1.0, 0.3, 0.05)
every_rule = pytest.mark.parametrize("rule", ["ucb", "exp4"])


def blocks(context: Tensor) -> Tensor:
    """The features of arms with a model each, as features of one model: a context in the block of the arm."""
    return torch.einsum("kj,...d->...kjd", torch.eye(ARMS, dtype=D), context).flatten(-2)


def rounds(count: int, *batch: int) -> tuple[Tensor, Tensor]:
    """Contexts, and noise."""
    random = np.random.default_rng(0)
    context, noise = random.standard_normal((count, *batch, DIM)), random.standard_normal((count, *batch))
    return torch.from_numpy(context), torch.from_numpy(noise)


@pytest.mark.parametrize("reward_range", [None, (-1.0, 2.0)], ids=["ranks", "range"])
@pytest.mark.parametrize("batch_shape", [(), (2,)])
@every_rule
def test_on_blocks_it_is_the_master_over_arms_with_a_model_each(
    rule: str, batch_shape: tuple[int, ...], reward_range: Any
) -> None:
    """The blocks of one ridge regression are ridge regressions, and the radius follows the residuals of all arms in both."""
    options: dict[str, Any] = {"ridge": 1.0, "batch_shape": batch_shape, "zero_odds": 0.0}
    same: dict[str, Any] = {"scales": SCALES, "rule": rule, "reward_range": reward_range}
    shared = SharedRadiusSelector(AdaptiveRidgeRegression(ARMS * DIM, **options), **same)
    apart = RadiusSelector(AdaptiveRidgeRegression(DIM, **options), ARMS, **same)
    for t, (x, noise) in enumerate(zip(*rounds(100, *batch_shape), strict=True)):
        arms = blocks(x)
        if t >= ARMS:  # before, arms tie
            close(shared.probabilities(arms), apart.probabilities(x))
            torch.manual_seed(t)
            action = apart.select(x)
            torch.manual_seed(t)
            assert torch.equal(shared.select(arms), action)
        else:
            action = torch.full(batch_shape, t)
        reward = 0.3 * action + x[..., 0] * (action % 2) + 0.2 * noise
        shared.step(arms, action, reward)
        apart.step(x, action, reward)
        if t < ARMS:  # ties are broken by rounding
            for buffer in (b for policy in (shared, apart) for b in (policy.plays, policy.gains, policy.losses)):
                buffer.zero_()
    for name in ("plays", "gains", "losses"):
        close(shared.get_buffer(name), apart.get_buffer(name))
    close(shared.estimator.theta_hat, apart.estimator.theta_hat.flatten(-2))


@every_rule
def test_arms_may_vary_in_number(rule: str) -> None:
    policy = SharedRadiusSelector(RidgeRegression(DIM), rule=rule)
    for count in (1, 7, 2, 5):
        arms = torch.randn(count, DIM, dtype=D)
        policy.step(arms, policy.select(arms), 1.0)
    assert int(policy.rounds) == 4
    assert bool(policy.shares().isfinite().all())


def test_the_rate_does_not_depend_on_the_arms() -> None:
    policy = SharedRadiusSelector(RidgeRegression(DIM), rule="exp4", scales=SCALES)
    close(policy._rate(torch.tensor(8.0, dtype=D)), torch.tensor(math.sqrt(math.log(3.0) / 24.0), dtype=D))


@pytest.mark.slow
@pytest.mark.parametrize("reward_range", [None, (0.0, 1.0)])
@every_rule
def test_files_decide_and_learn(rule: str, reward_range: Any) -> None:
    """Both kinds of files verify themselves over some rounds."""
    policy = SharedRadiusSelector(
        AdaptiveRidgeRegression(DIM + 1), rule=rule, reward_range=reward_range, scaler=StandardScaler(DIM)
    )
    policy.step(torch.randn(9, ARMS, DIM, dtype=D), [0, 1, 2] * 3, [0.5] * 9)
    to_torchscript(policy)
    to_program(policy)


@every_rule
def test_refused_steps_change_nothing(rule: str) -> None:
    """An arm that was not played may be wrong too, and the estimator may refuse while it learns."""
    policy = SharedRadiusSelector(RidgeRegression(DIM), rule=rule)
    arms = torch.ones(ARMS, DIM, dtype=D)
    policy.step(arms, 0, 0.5)
    before, wrong, large = snapshot(policy), arms.clone(), arms.clone()
    wrong[3, 0] = math.nan
    large[1] = 1e20
    many = torch.stack([arms, large])
    for arguments in (
        (wrong, 0, 0.5),
        (arms, ARMS, 0.5),
        (arms, -1, 0.5),
        (arms, 0, math.nan),
        (large, 1, 0.5),
        (many, [0, 1], [0.5, 0.5]),
        (arms[0], 0, 0.5),
        (many[None], [[0, 0]], [[0.5, 0.5]]),
        (arms[:0], 0, 0.5),
    ):
        with pytest.raises((TypeError, ValueError)):
            policy.step(*arguments)
        assert differences(before, snapshot(policy)) == []
    policy.step(large, 0, 0.5)


@pytest.mark.parametrize(
    ("error", "match", "options"),
    [
        (TypeError, "estimator: expected an Estimator", {"estimator": 3}),
        (ValueError, "scales", {"scales": (0.0,)}),
        (ValueError, "rule", {"rule": "exp3"}),
        (ValueError, "reward_range: expected low < high", {"reward_range": (1.0, 1.0)}),
        (ValueError, "scaler: expected 3 features", {"scaler": StandardScaler(DIM)}),
    ],
)
def test_bad_arguments_are_named(error: Any, match: str, options: dict[str, Any]) -> None:
    with pytest.raises(error, match=match):
        SharedRadiusSelector(**({"estimator": RidgeRegression(DIM)} | options))


def test_a_head_refuses_it() -> None:
    with pytest.raises(TypeError, match="policy: expected one that learns from the chosen arm's features"):
        BanditHead(torch.nn.Identity(), SharedRadiusSelector(RidgeRegression(DIM)))
