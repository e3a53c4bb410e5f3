"""Late rewards of arms that came and went, through logs, learners, services, reports and evaluation."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from torchonline import OFUL, DisjointArms, EpsilonGreedy, FixedArms, RidgeRegression
from torchonline.feedback import DecisionLog, Follower, follow
from torchonline.metrics import MeanByArm
from torchonline.models import BanditHead, LoggedRounds, NeuralLinearBandit
from torchonline.off_policy import BanditLog, from_decisions, predicted_rewards, target_probabilities
from torchonline.reporting import report
from torchonline.serving import Replica, ServiceSettings

X = torch.ones(1, dtype=torch.float64)


def disjoint() -> DisjointArms:
    return DisjointArms(EpsilonGreedy(RidgeRegression(1), epsilon=0.3), 4)


def log_of(policy: Any, path: Path | str = ":memory:") -> DecisionLog:
    """Two decisions for each of four arms, with the reward that each earns."""
    log = DecisionLog(path)
    for i in range(8):
        log.decide(f"{i}", X, i % 4, 0.25, action_ids=policy.action_ids)
    return log


@pytest.mark.parametrize("blocks", [False, True], ids=["rounds", "blocks"])
def test_a_learner_gives_late_rewards_to_their_arms(tmp_path: Path, blocks: bool) -> None:
    """Also after a restart, from a snapshot. Rewards of removed arms are refused, by name and position."""
    policy, log = disjoint(), log_of(disjoint())
    log.reward("1", 0.1)
    follow(policy, log, tmp_path / "policy.pt", blocks=blocks)
    with Follower(policy, log, tmp_path / "policy.pt", blocks=blocks) as follower:
        policy.remove_actions([0])
        follower.save()
        for i in (0, 2, 3, 6):
            log.reward(f"{i}", 0.1 * (i % 4))
        follower.advance()
        snapshot = follower.snapshot
    assert policy.estimator.rounds.tolist() == [1, 2, 1]
    assert (snapshot.learnt, snapshot.refused) == (4, 1)
    assert snapshot.refusals == ((2, "action: expected the id of an arm, one of 1, 2, 3, got 0, which was removed"),)
    again = DisjointArms(EpsilonGreedy(RidgeRegression(1), epsilon=0.3), 3)
    follow(again, log, tmp_path / "policy.pt", blocks=blocks)
    assert again.action_ids == [1, 2, 3]
    assert again.estimator.rounds.tolist() == [1, 2, 1]


def test_a_learner_of_fixed_arms_does_so_too(tmp_path: Path) -> None:
    fixed, log = FixedArms(OFUL(3), torch.eye(3)), DecisionLog(":memory:")
    for i in range(3):
        log.decide(f"{i}", fixed.arms, i, 1.0)
    fixed.remove_arms([0])
    for i in range(3):
        log.reward(f"{i}", 1.0)
    snapshot = follow(fixed, log, tmp_path / "policy.pt")
    assert (snapshot.learnt, snapshot.refused) == (2, 1)
    assert (fixed.predict() > 0.3).tolist() == [True, True]


def test_a_log_keeps_masks_by_id() -> None:
    policy, log = disjoint(), DecisionLog(":memory:")
    policy.remove_actions([1])
    mask = [False, True, True]
    k, probability = policy.select_with_probability(X, mask)
    stored = log.decide("a", X, k, probability, mask=mask, action_ids=policy.action_ids)
    assert stored.mask.tolist() == [False, False, True, True]
    assert log.decide("b", X, 3, 0.5, action_ids=policy.action_ids).mask.tolist() == [True, False, True, True]
    with pytest.raises(ValueError, match="action: expected an available arm, got 1 with mask"):
        log.decide("c", X, 1, 0.5, action_ids=policy.action_ids)
    with pytest.raises(ValueError, match=r"action: .*; after a removal of arms, give action_ids"):
        log.decide("c", X, 3, 0.5, mask=[True, True, True])
    for bad in ([], [1, 1], [-1], ["a"], [0, 2]):
        with pytest.raises((ValueError, TypeError), match=r"action_ids: |mask: "):
            log.decide("c", X, 3, 0.5, mask=[True, True, True], action_ids=bad)  # type: ignore[arg-type]


def test_an_evaluation_knows_arms_by_their_ids() -> None:
    """The column of an arm is its id. A policy without an arm gives it probability 0."""
    policy, log = disjoint(), log_of(disjoint())
    for i in range(8):
        log.reward(f"{i}", 0.1 * (i % 4))
    bandit_log = from_decisions(log)
    assert bandit_log.arms == 4
    policy.learn(X.expand(20, 1), [3] * 20, [1.0] * 20)
    policy.remove_actions([0])
    found = target_probabilities(bandit_log, policy)
    assert found[0].tolist() == pytest.approx([0.0, 0.1, 0.1, 0.8])
    assert target_probabilities(bandit_log, BanditHead(nn.Identity(), policy))[0].tolist() == found[0].tolist()
    some = BanditLog(
        arms=4, action=[2], reward=[1.0], probability=[0.5], context=[[1.0]], mask=[[True, True, True, False]]
    )
    assert target_probabilities(some, policy)[0].tolist() == pytest.approx([0.0, 0.5, 0.5, 0.0], abs=0.4)
    assert float(target_probabilities(some, policy)[0, [0, 3]].sum()) == 0.0
    with pytest.raises(ValueError, match="target: expected a policy that has had 4 arms, like the log, got one with 3"):
        target_probabilities(bandit_log, DisjointArms(RidgeRegression(1), 3))
    model = DisjointArms(RidgeRegression(1), 5)
    model.remove_actions([0])
    with pytest.raises(ValueError, match="model: expected the arms 0 to 3, as in the log"):
        predicted_rewards(model, bandit_log)


def test_a_report_leaves_removed_arms_out_of_the_policy(tmp_path: Path) -> None:
    policy, log = disjoint(), log_of(disjoint())
    for i in range(8):
        log.reward(f"{i}", 0.1 * (i % 4))
    policy.remove_actions([0])
    report(log, tmp_path / "page.html", policy=policy)
    assert "<h2>Actions</h2>" in (tmp_path / "page.html").read_text()
    with pytest.raises(ValueError, match="policy: expected a policy that takes the inputs and actions of the log"):
        report(log, tmp_path / "page.html", policy=DisjointArms(RidgeRegression(1), 2))


def test_a_metric_counts_an_arm_by_its_id() -> None:
    policy, metric = disjoint(), MeanByArm(4)
    policy.remove_actions([0])
    metric.update(policy.select(X.expand(5, 1), torch.tensor([False, False, True]).expand(5, 3)), torch.ones(5))
    assert metric.compute().rounds.tolist() == [0, 0, 0, 5]


def test_a_service_decides_and_learns_by_ids(tmp_path: Path) -> None:
    policy = disjoint()
    policy.remove_actions([0])

    class Settings(ServiceSettings):
        def make_policy(self) -> DisjointArms:
            made = disjoint()
            made.remove_actions([0])
            return made

    settings = Settings(folder=tmp_path, dim=1, actions=3, encoder="v1")
    log = settings.open_log()
    replica = Replica(settings, log)
    requests = [replica.checked(f"{k}", [1.0], [k == place for place in range(3)]) for k in range(3)]
    found = replica.answer(requests)
    assert [decision.action for decision in found] == [1, 2, 3]
    assert found[0].mask.tolist() == [False, True, False, False]
    log.decide("before", X, 0, 1.0, encoder="v1")
    assert replica.answer([("2", 1.0), ("before", 1.0)]) == ["joined", "joined"]
    made = settings.make_policy()
    snapshot = follow(made, log, settings.snapshot, encoder="v1")
    assert (snapshot.learnt, snapshot.refused) == (1, 1)
    assert made.estimator.rounds.tolist() == [0, 0, 1]
    replica.refresh()
    assert replica.policy.action_ids == [1, 2, 3]
    assert replica.policy.estimator.rounds.tolist() == [0, 0, 1]


def test_a_module_relearns_by_ids_and_resumes_them() -> None:
    """Rounds of a log come late, and those in the replay stay those of their arms. A load brings ids and readout."""

    def module() -> NeuralLinearBandit:
        head = BanditHead(nn.Linear(2, 2), DisjointArms(RidgeRegression(2), 3))
        bandit = NeuralLinearBandit(head, train_encoder_every=8, encoder_steps=2)
        bandit.configure_optimizers()
        bandit.log = lambda *_, **__: None  # type: ignore[method-assign]
        return bandit

    def logged(*actions: int) -> LoggedRounds:
        generator = torch.Generator().manual_seed(len(actions))
        return LoggedRounds(
            torch.randn(len(actions), 2, generator=generator), torch.tensor(actions), torch.ones(len(actions))
        )

    bandit, twin = module(), module()
    bandit.training_step(logged(0, 1, 2, 2), 0)
    bandit.head.policy.remove_actions([0])
    bandit.training_step(logged(1, 1, 2, 2, 2), 1)  # trains the encoder, and relearns
    assert bandit.head.policy.estimator.rounds.tolist() == [3, 5]
    with pytest.raises(ValueError, match="got 0, which was removed"):
        bandit.training_step(logged(0), 2)
    table = torch.randn(3, 2), torch.tensor([[0.0, 1.0]] * 3)
    outputs = bandit.training_step(table, 3)
    assert torch.equal(outputs["reward"], (outputs["action"] == 2).float())
    played = bandit.predict_step(torch.randn(4, 2))
    assert set(played["action"].tolist()) <= {1, 2}
    twin.head.policy.remove_actions([1])
    twin.load_state_dict(bandit.state_dict())
    for each in (bandit, twin):
        each.training_step(logged(1, 2, 2, 1, 1, 2, 1, 2, 1), 4)
    assert bandit.state_dict().keys() == twin.state_dict().keys()
    assert all(torch.equal(value, twin.state_dict()[name]) for name, value in bandit.state_dict().items())
