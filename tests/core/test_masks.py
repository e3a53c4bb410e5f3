"""A mask of one row counts for all decisions, in Python and in TorchScript."""

from typing import Any

import pytest
import torch

from tests import composed_policies
from torchonline import OFUL, UCB, EpsilonGreedy, Greedy, LocalGLB, RidgeRegression, SquareCB
from torchonline.models import BanditHead

D = torch.float64
MASK = torch.tensor([False, True, False])


def agree(policy: Any, decisions: torch.Tensor) -> None:
    scripted = torch.jit.script(policy)
    for each in (policy, scripted):
        assert each.select(decisions, mask=MASK).tolist() == [1] * len(decisions)
        probabilities = each.probabilities(decisions, mask=MASK)
        assert torch.equal(probabilities.to(D), MASK.to(D).expand(len(decisions), 3))


@pytest.mark.parametrize("build", [OFUL, EpsilonGreedy, Greedy, LocalGLB, SquareCB, UCB])
def test_a_policy_takes_one_mask_for_all_decisions(build: Any) -> None:
    agree(build(2), torch.randn(4, 3, 2, dtype=D))
    agree(BanditHead(torch.nn.Identity(), build(2)).eval(), torch.randn(4, 3, 2, dtype=D))


@pytest.mark.parametrize("case", composed_policies.CASES, ids=str)
def test_a_composed_policy_takes_one_mask_for_all_decisions(case: Any) -> None:
    policy = case.build()
    rows = torch.randn(4, *((3, 3) if policy.item_dims > 1 else (3,)), dtype=D)
    arms = policy.number_of_actions(rows)
    mask = torch.arange(arms) == 1
    scripted = torch.jit.script(policy)
    for each in (policy, scripted):
        assert each.select(rows, mask=mask).tolist() == [1] * 4


def test_a_mask_of_other_arms_is_refused() -> None:
    policy, decisions = UCB(RidgeRegression(2)), torch.randn(4, 3, 2, dtype=D)
    for shape in ((4,), (1,), (4, 1), (2, 3), (1, 4, 3), (5, 4, 3)):
        with pytest.raises(ValueError, match=r"^mask: expected shape \(4, 3\), got "):
            policy.select(decisions, mask=torch.ones(shape, dtype=torch.bool))
