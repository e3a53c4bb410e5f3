"""Snapshots: whole or not at all, and refused where they are something else."""

import errno
import os
from pathlib import Path

import pytest
import torch

from torchonline import OFUL, bandit
from torchonline.feedback import Snapshot, load_snapshot, save_snapshot
from torchonline.models import BanditHead


def learnt(rounds: int) -> OFUL:
    policy = OFUL(2)
    for i in range(rounds):
        policy.step(torch.tensor([[1.0, 0.1 * i]]), 0, 0.3)
    return policy


def test_state_and_facts_come_back(tmp_path: Path) -> None:
    facts = Snapshot(7, "word", 5, 1, 1, ((3, "reward: expected"),))
    save_snapshot(tmp_path / "p.pt", learnt(5), facts)
    policy = OFUL(2)
    found = load_snapshot(tmp_path / "p.pt", policy)
    assert found._replace(time=0.0) == facts
    assert found.time > 1.7e9
    for name, value in learnt(5).state_dict().items():
        assert torch.equal(value, policy.state_dict()[name])
    assert sorted(os.listdir(tmp_path)) == ["p.pt"]


def test_names_of_actions_come_back(tmp_path: Path) -> None:
    save_snapshot(tmp_path / "p.pt", bandit(2, actions=["home", "sale"]), Snapshot(1))
    policy = bandit(2, actions=2)
    load_snapshot(tmp_path / "p.pt", policy)
    assert policy.action_names == ["home", "sale"]


@pytest.mark.parametrize("stage", ["write", "fsync", "replace"])
def test_a_failed_save_leaves_the_old_file(tmp_path: Path, stage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    save_snapshot(tmp_path / "p.pt", learnt(1), Snapshot(1))

    def fail(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    if stage == "write":
        monkeypatch.setattr("builtins.open", fail)
    else:
        monkeypatch.setattr(os, stage, fail)
    with pytest.raises(OSError, match="No space left"):
        save_snapshot(tmp_path / "p.pt", learnt(2), Snapshot(2))
    monkeypatch.undo()
    assert sorted(os.listdir(tmp_path)) == ["p.pt"]
    policy = OFUL(2)
    assert load_snapshot(tmp_path / "p.pt", policy).position == 1
    assert int(policy.estimator.rounds) == 1


def test_other_files_are_refused(tmp_path: Path) -> None:
    policy, path = learnt(3), tmp_path / "p.pt"
    before = policy.state_dict()
    save_snapshot(path, learnt(1), Snapshot(1))
    whole = path.read_bytes()
    with pytest.raises(FileNotFoundError):
        load_snapshot(tmp_path / "none.pt", policy)
    for data in (b"", b"text", whole[: len(whole) // 2], whole[:-1]):
        path.write_bytes(data)
        with pytest.raises(ValueError, match="path: expected a snapshot, got"):
            load_snapshot(path, policy)
    torch.save(policy.state_dict(), path)
    with pytest.raises(ValueError, match="path: expected a snapshot"):
        load_snapshot(path, policy)
    facts = {"position": 1, "refusals": []}
    for data in (
        {"format": 2, "snapshot": facts, "state": policy.state_dict()},
        {"format": 1, "snapshot": facts, "state": [1]},
        {"format": 1, "snapshot": facts | {"position": "1"}, "state": policy.state_dict()},
        {"format": 1, "snapshot": facts | {"position": -1}, "state": policy.state_dict()},
    ):
        torch.save(data, path)
        with pytest.raises(ValueError, match="path: expected a snapshot"):
            load_snapshot(path, policy)
    save_snapshot(path, OFUL(3), Snapshot())
    with pytest.raises(RuntimeError, match="theta_hat"):
        load_snapshot(path, policy)
    for name, value in policy.state_dict().items():
        assert torch.equal(value, before[name])


def test_a_module_of_several_parts_loads_all_or_nothing(tmp_path: Path) -> None:
    torch.manual_seed(0)
    save_snapshot(tmp_path / "p.pt", BanditHead(torch.nn.Linear(2, 3), OFUL(3, ridge=2.0)), Snapshot())
    policy = BanditHead(torch.nn.Linear(2, 3), OFUL(3))
    before = {name: value.clone() for name, value in policy.state_dict().items()}
    with pytest.raises(RuntimeError, match="ridge"):
        load_snapshot(tmp_path / "p.pt", policy)
    assert all(torch.equal(value, before[name]) for name, value in policy.state_dict().items())
