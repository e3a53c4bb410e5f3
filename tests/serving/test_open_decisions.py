"""Replicas open the decisions whose rewards are out, on their copies of the policy; the learner's state stays as it is."""

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from torchonline import DisjointArms, RidgeRegression, bandit
from torchonline.feedback import Follower
from torchonline.serving import ServiceSettings
from torchonline.serving.replica import Replica

pytestmark = pytest.mark.fast

DIM, ARMS = 3, 4


@dataclass(frozen=True)
class Settings(ServiceSettings):
    def make_policy(self) -> Any:
        return bandit(self.dim, actions=self.actions)


class WithTheorem(Settings):
    def make_policy(self) -> Any:
        return DisjointArms(RidgeRegression(self.dim), self.actions)


def settings_of(folder: Path, cls: Any = Settings) -> Any:
    return cls(folder=folder, dim=DIM, actions=ARMS, window=None, default_reward=None)


def decide(replica: Replica, count: int, seed: int = 0) -> list[str]:
    contexts = torch.rand((count, DIM), generator=torch.Generator().manual_seed(seed)).tolist()
    requests = [replica.checked(f"{seed}-{i}", context, None) for i, context in enumerate(contexts)]
    return [one.id for request in requests for one in replica.answer([request])]


def is_equal(one: Any, other: Any) -> bool:
    return all(torch.equal(value, other.state_dict()[name]) for name, value in one.state_dict().items())


def test_a_replica_opens_what_waits_and_the_learner_does_not(tmp_path: Path) -> None:
    settings = settings_of(tmp_path)
    with settings.open_log() as log:
        replica = Replica(settings, log)
        replica.refresh()
        ids = decide(replica, 30)
        assert not is_equal(replica.policy, settings.make_policy())
        assert torch.equal(replica.policy.theta_hat, settings.make_policy().theta_hat)
        log.reward_many([(one, 1.0) for one in ids[:20]])
        learner, stepped = settings.make_policy(), settings.make_policy()
        with Follower(learner, log, settings.snapshot) as follower:
            follower.advance()
            follower.save()
            for one in log.read():
                stepped.step(one.inputs, one.action, 1.0)
            assert is_equal(learner, stepped)
            replica.refresh()
            for one in log.waiting(20):
                stepped.open(one.inputs, one.action)
            assert is_equal(replica.policy, stepped)
            assert not is_equal(replica.policy, learner)
            log.reward_many([(one, 1.0) for one in ids[20:25]])  # known, and not learnt yet
            again = Replica(settings, log)  # a restart rebuilds the state from snapshot and log
            again.refresh()
            assert is_equal(again.policy, replica.policy)
            log.reward_many([(one, 0.0) for one in ids[25:]])
            follower.advance()
            follower.save()
        replica.refresh()
        assert is_equal(replica.policy, learner)


def test_a_repeated_call_opens_nothing(tmp_path: Path) -> None:
    settings = settings_of(tmp_path)
    with settings.open_log() as log:
        replica = Replica(settings, log)
        replica.refresh()
        decide(replica, 5)
        state = replica.policy.state_dict()
        decide(replica, 5)
        assert all(torch.equal(value, state[name]) for name, value in replica.policy.state_dict().items())


def test_a_decision_that_cannot_be_opened_is_left_out(tmp_path: Path) -> None:
    settings = settings_of(tmp_path)
    with settings.open_log() as log:
        replica = Replica(settings, log)
        decide(replica, 8)
        gone = log.decisions()[0].action
        replica.policy.remove_actions([gone])
        replica.policy.reset()
        replica._open_waiting()
        kept = sum(one.action != gone for one in log.decisions())
        added = replica.policy.estimator.V - bandit(DIM, actions=ARMS - 1).estimator.V
        # Before the first round, a standardised context is the constant, 3.
        assert float(added[:, -1, -1].sum()) == pytest.approx(9.0 * kept)


def test_a_policy_with_a_theorem_is_served_as_before(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, WithTheorem)
    with settings.open_log() as log:
        replica = Replica(settings, log)
        replica.refresh()
        decide(replica, 5)
        assert is_equal(replica.policy, settings.make_policy())


def test_an_exported_policy_has_no_open_decision(tmp_path: Path) -> None:
    settings = settings_of(tmp_path)
    with settings.open_log() as log:
        replica = Replica(settings, log)
        replica.refresh()
        decide(replica, 5)
        file = torch.jit.load(io.BytesIO(replica.exported()))
    new = settings.make_policy().state_dict()
    assert all(torch.equal(value, new[name]) for name, value in file.state_dict().items() if name in new)
    assert not torch.equal(replica.policy.estimator.V, new["policy.estimator.V"])
