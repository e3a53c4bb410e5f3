"""Large decisions are computed in tiles: the answers are those of one pass."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from torchonline import OFUL, UCB, EpsilonGreedy, LocalGLB, RidgeRegression, ScaledPolicy, StandardScaler, bandit
from torchonline.baselines import RSGLinCB
from torchonline.policies import tiles
from torchonline.policies.policy import Policy

pytestmark = pytest.mark.fast

DIM, MANY = 3, 240


def taught(policy: Any) -> Any:
    """A policy after twenty rounds."""
    generator = torch.Generator().manual_seed(0)
    for t in range(20):
        x = torch.rand((5, DIM) if policy.item_dims == 2 else (DIM,), generator=generator, dtype=torch.float64) / 2
        policy.step(x, t % 5, float(torch.rand((), generator=generator)))
    return policy


MAKERS: dict[str, Callable[[], Policy]] = {
    "oful": lambda: OFUL(DIM),
    "float32": lambda: OFUL(DIM, dtype=torch.float32),
    "link": lambda: LocalGLB(DIM),
    "scaled": lambda: bandit(DIM),
    "contexts": lambda: bandit(DIM, actions=5),
    "random": lambda: EpsilonGreedy(RidgeRegression(DIM)),
    "frozen": lambda: ScaledPolicy(UCB(RidgeRegression(DIM + 1)), StandardScaler(DIM, freeze_after=30)),
}


def inputs(policy: Any, lead: tuple[int, ...]) -> Tensor:
    shape = (*lead, 7, DIM) if policy.item_dims == 2 else (*lead, DIM)
    return torch.rand(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64) / 2


def answers(policy: Any, x: Tensor, mask: Tensor | None) -> dict[str, Any]:
    torch.manual_seed(0)
    low, high = policy.interval(x)
    return {
        "scores": policy(x).detach(),
        "chosen": policy.select(x, mask) if not policy.is_random else None,
        "probabilities": policy.probabilities(x, mask),
        "means": policy.predict(x).detach(),
        "low": low.detach(),
        "high": high.detach(),
    }


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("lead", [(), (MANY,), (6, 40)])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("tile", [64, 1000])
def test_tiles_answer_like_one_pass(
    monkeypatch: pytest.MonkeyPatch, name: str, lead: tuple[int, ...], masked: bool, tile: int
) -> None:
    policy = taught(MAKERS[name]())
    x = inputs(policy, lead)
    mask = None
    if masked:
        mask = torch.rand(policy(x).shape, generator=torch.Generator().manual_seed(2)) < 0.4
        mask[..., 0] = True
    wanted = answers(policy, x, mask)
    monkeypatch.setattr(tiles, "TILE", tile)
    for key, value in answers(policy, x, mask).items():
        torch.testing.assert_close(value, wanted[key], rtol=1e-5 if name == "float32" else 1e-12, atol=1e-14)


def test_ties_go_where_they_go_in_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """All arms of a new bandit tie."""
    policy = bandit(DIM, actions=5)
    x = inputs(policy, (MANY,))
    wanted = policy.select(x)
    monkeypatch.setattr(tiles, "TILE", 64)
    assert torch.equal(policy.select(x), wanted)
    assert len(set(wanted.tolist())) == 5


@pytest.mark.parametrize("is_available", [True, False])
def test_a_bad_value_in_the_last_tile_is_refused(monkeypatch: pytest.MonkeyPatch, is_available: bool) -> None:
    monkeypatch.setattr(tiles, "TILE", 64)
    policy = taught(OFUL(DIM))
    x, mask = inputs(policy, (MANY,)), torch.ones(MANY, 7, dtype=torch.bool)
    x[-1, -1, 0] = float("nan")
    mask[-1, -1] = is_available
    with pytest.raises(ValueError, match="inputs: expected finite values, got nan"):
        policy.select(x, None if is_available else mask)


def test_unavailable_arms_are_not_scored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiles, "TILE", 64)
    policy = taught(OFUL(DIM))
    x, mask = inputs(policy, (MANY,)), torch.zeros(MANY, 7, dtype=torch.bool)
    mask[:, 3] = True
    seen = []
    wanted = tiles.scores_in_tiles

    def counted(ask: Any, *arguments: Any) -> Any:
        def count(part: Tensor) -> Any:
            seen.append(len(part))
            return ask(part)

        return wanted(count, *arguments)

    monkeypatch.setattr("torchonline.policies.policy.scores_in_tiles", counted)
    assert (policy.select(x, mask) == 3).all()
    assert sum(seen) == MANY


def test_scores_that_need_a_gradient_are_computed_in_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = taught(OFUL(DIM))
    x = inputs(policy, (MANY,)).requires_grad_()
    policy(x).sum().backward()
    wanted, x.grad = x.grad, None
    assert wanted is not None
    monkeypatch.setattr(tiles, "TILE", 64)
    policy(x).sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad, wanted)


def test_arms_whose_features_depend_on_other_arms_are_scored_together(monkeypatch: pytest.MonkeyPatch) -> None:
    class Centred(UCB):
        def _features(self, x: Any) -> Any:
            return x - x.mean(-2)[..., None, :]

    policy = taught(Centred(RidgeRegression(DIM)))
    x, mask = inputs(policy, (MANY,)), torch.rand(MANY, 7, generator=torch.Generator().manual_seed(2)) < 0.4
    mask[:, 0] = True
    wanted = policy.select(x, mask)
    monkeypatch.setattr(tiles, "TILE", 64)
    assert torch.equal(policy.select(x, mask), wanted)


@pytest.mark.parametrize("tile", [64, 1 << 16])
def test_an_unavailable_arm_does_not_change_the_scores_of_others(monkeypatch: pytest.MonkeyPatch, tile: int) -> None:
    """RS-GLinCB scores an arm by the other ones too: one that is out starts no warm-up."""
    policy = taught(RSGLinCB(DIM, horizon=1000))
    x = inputs(policy, (MANY,)) * torch.rand(MANY, 1, 1, generator=torch.Generator().manual_seed(2)) ** 3
    x[:, -1] /= x[:, -1].norm(dim=-1, keepdim=True)
    mask = torch.arange(7) < 6
    monkeypatch.setattr(tiles, "TILE", tile)
    assert torch.equal(policy.select(x, mask), policy.select(x[:, :6]))
    assert torch.equal(policy.probabilities(x, mask)[:, :6], policy.probabilities(x[:, :6]))
