"""Ties among the best arms: which arm is chosen, and what the probabilities say."""

import copy
from itertools import permutations
from typing import Any

import pytest
import torch

from tests.learners import differences, snapshot
from torchonline import (
    UCB,
    AdaptiveRidgeRegression,
    DisjointArms,
    EpsilonGreedy,
    FixedArms,
    Greedy,
    RidgeRegression,
    bandit,
)
from torchonline.baselines import CRMM, MENU, MoM
from torchonline.policies import ties
from torchonline.policies.ties import are_best, has_tie, shares_of_best, untied

pytestmark = pytest.mark.fast

D = torch.float64
NAN, INF = float("nan"), float("inf")


def contexts(count: int, dim: int = 4) -> torch.Tensor:
    return torch.randn(count, dim, generator=torch.Generator().manual_seed(0), dtype=D)


def test_each_of_the_best_arms_has_its_share_of_decisions() -> None:
    """In a state in which all arms are alike, before any reward: 3000 contexts, and five standard deviations."""
    policy, x = bandit(4, actions=5), contexts(3000)
    counts = policy.select(x).bincount(minlength=5)
    assert (counts - 600).abs().max() < 5 * (3000 * 0.2 * 0.8) ** 0.5
    assert torch.equal(policy.probabilities(x[0]), torch.full((5,), 0.2, dtype=D))
    # Pairs of neighbours are independent too: the places differ as often as chance says.
    place = policy.select(x)
    assert abs(int((place[1:] == place[:-1]).sum()) - 600) < 5 * (3000 * 0.2 * 0.8) ** 0.5


CONTEXTS = {
    "bits": torch.cartesian_prod(*[torch.arange(2)] * 10),
    "odd integers": torch.cartesian_prod(*[torch.arange(1, 20, 2)] * 3),
    "permutations": torch.tensor(list(permutations([0.0, 0.1, 1.0, 2.0, 2.5, 7.0]))),
    "one-hot": torch.eye(600),
    "counts": torch.arange(600.0).unsqueeze(-1),
    "ratings": torch.cartesian_prod(*[torch.arange(1, 6)] * 4),
    "powers of two": 2.0 ** torch.cartesian_prod(*[torch.arange(-12, 12)] * 2),
    "signs of one number": torch.cartesian_prod(*[torch.tensor([-0.3, 0.3])] * 10),
}


@pytest.mark.parametrize("name", CONTEXTS)
@pytest.mark.parametrize("arms", [2, 3, 10])
def test_simple_contexts_share_the_best_arms_evenly(name: str, arms: int) -> None:
    """Chi-square of the counts, below five standard deviations of its distribution."""
    x = CONTEXTS[name].to(D)
    counts, expected = bandit(x.size(-1), actions=arms).select(x).bincount(minlength=arms), len(x) / arms
    chi_square = float(((counts - expected) ** 2 / expected).sum())
    assert chi_square < arms - 1 + 5 * (2 * (arms - 1)) ** 0.5


@pytest.mark.parametrize("cls", [MoM, CRMM, MENU])
def test_an_epoch_repeats_its_arm_where_arms_are_alike(cls: Any) -> None:
    """Before the end of the first epoch, arms of equal lengths have equal scores."""
    policy, arms = cls(4, horizon=1000), torch.eye(4)
    repeats = policy.estimator.repeats
    for _ in range(repeats):
        assert int(policy.estimator.epochs) == 0
        policy.step(arms, policy.select(arms), 1.0)
    assert int(policy.estimator.epochs) == 1


def test_the_same_decision_has_the_same_arm() -> None:
    policy, x = bandit(4, actions=50), contexts(100)
    before, first = snapshot(policy), policy.select(x)
    assert torch.equal(policy.select(x), first)
    assert torch.equal(torch.stack([policy.select(row) for row in x]), first)
    assert differences(before, snapshot(policy)) == []
    resumed = bandit(4, actions=50)
    resumed.load_state_dict(policy.state_dict())
    assert torch.equal(resumed.select(x), first)


def test_files_and_kinds_of_inputs_draw_the_same_arm() -> None:
    policy = UCB(RidgeRegression(3))
    x = torch.eye(3)[torch.randint(3, (200, 4, 3), generator=torch.Generator().manual_seed(1))[..., 0]]
    chosen = policy.select(x)
    assert chosen.unique().numel() == 4
    script = torch.jit.script(copy.deepcopy(policy))
    for inputs in (x, x.double()):
        assert torch.equal(script.select(inputs), chosen)
        assert torch.equal(policy.select(inputs), chosen)
    assert torch.equal(policy.select(x.numpy()), chosen)
    assert torch.equal(policy.select(x.tolist()), chosen)


@pytest.mark.parametrize("batch_shape", [(), (2,), (2, 3)])
@pytest.mark.parametrize("cls", [UCB, Greedy])
def test_a_mask_leaves_only_its_arms(cls: Any, batch_shape: tuple[int, ...]) -> None:
    policy = cls(RidgeRegression(3, batch_shape=batch_shape))
    twins = torch.tensor([0.0, 0.7, 0.0], dtype=D).expand(*batch_shape, 5, 3)
    mask = torch.tensor([False, False, True, True, False]).expand(*batch_shape, 5)
    assert bool(((policy.select(twins, mask) == 2) | (policy.select(twins, mask) == 3)).all())
    expected = torch.tensor([0.0, 0.0, 0.5, 0.5, 0.0], dtype=D).expand(*batch_shape, 5)
    assert torch.equal(policy.probabilities(twins, mask), expected)


def test_nothing_changes_where_there_is_no_tie() -> None:
    policy, arms = UCB(RidgeRegression(3)), torch.randn(200, 6, 3, dtype=D)
    scores = policy(arms)
    assert not has_tie(scores)
    assert untied(scores, arms) is scores
    assert torch.equal(policy.select(arms), scores.argmax(-1))


def test_ties_are_found_up_to_rounding() -> None:
    for dtype in (D, torch.float32):
        one = torch.tensor(1000.0, dtype=dtype)
        near, far = one * (1.0 - torch.finfo(dtype).eps), one * (1.0 - 100.0 * torch.finfo(dtype).eps)
        scores = torch.stack([one, near, far, -one])
        for form in (scores, scores.numpy()):
            assert has_tie(form)
        assert are_best(scores).tolist() == [True, True, False, False]
        assert shares_of_best(scores).tolist() == [0.5, 0.5, 0.0, 0.0]
        assert not has_tie(scores[1:])
        assert not has_tie(scores[1:].numpy())


def test_infinite_scores_do_not_break_a_choice() -> None:
    cases = {(INF, 1.0, INF): {0, 2}, (-INF, 2.0, -INF): {1}, (NAN, 1.0, 1.0): {0}, (-INF, -INF, -INF): {0, 1, 2}}
    for row, allowed in cases.items():
        scores = torch.tensor(row, dtype=D).expand(100, 3)
        assert has_tie(scores) == has_tie(scores.numpy()) == (len(allowed) > 1)
        chosen = untied(scores, contexts(100)).argmax(-1)
        assert set(chosen.tolist()) <= allowed


def test_fixed_arms_draw_as_the_policy_does() -> None:
    arms = torch.eye(6, dtype=D)
    fixed, policy = FixedArms(UCB(RidgeRegression(6)), arms), UCB(RidgeRegression(6))
    seen = set()
    for _ in range(4):
        k = fixed.select()
        assert torch.equal(k, policy.select(arms))
        seen.add(int(k))
        fixed.step(None, k, 0.0)
        policy.step(arms, k, 0.0)
    assert len(seen) == 4  # a played arm is no longer among the best


def test_randomized_policies_share_the_best_arm_too() -> None:
    policy = EpsilonGreedy(RidgeRegression(2), epsilon=0.4)
    assert torch.equal(policy.probabilities(torch.eye(2)), torch.full((2,), 0.5, dtype=D))


def test_rewards_that_come_in_batches_are_learnt_as_well_as_single_ones() -> None:
    """200 decisions from one state. With ties to the first arm, 0.1 of the first 200 decisions would be right."""
    labels = torch.arange(400) % 10
    x = torch.eye(10, dtype=D)[labels] + 0.1 * contexts(400, 10)
    arms = DisjointArms(AdaptiveRidgeRegression(10), 10)
    for block in range(2):
        part = slice(200 * block, 200 * (block + 1))
        k = torch.stack([arms.select(row) for row in x[part]])
        right = (k == labels[part]).double()
        arms.step(x[part], k, right)
    assert float(right.mean()) > 0.5


@pytest.mark.parametrize("shape", [(50,), (7, 5), (2, 3, 5), (3, 50)])
def test_hashes_of_parts_add_up(monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...]) -> None:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=D)
    wanted = ties.hashes(x, 0)
    assert wanted.shape == (*shape[:-1], 1)
    monkeypatch.setattr(ties, "MOST_AT_ONCE", 12)
    assert torch.equal(ties.hashes(x, 0), wanted)
