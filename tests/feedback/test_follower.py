"""Learners that follow a log: what is learnt, refused and skipped, and what a kill leaves."""

import ast
import multiprocessing
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.fake_device import environment
from tests.feedback.logs import ARMS, fill, learnt_from
from torchonline import DPHDB, OFUL, DisjointArms, FixedArms, LocalGLB, RadiusSelector, RidgeRegression, bandit
from torchonline.feedback import (
    DecisionLog,
    Feedback,
    Follower,
    LogStorageError,
    Snapshot,
    follow,
    load_snapshot,
    save_snapshot,
)
from torchonline.models import BanditHead

ROOT = Path(__file__).parents[2]


def same_bits(one: torch.nn.Module, other: torch.nn.Module) -> bool:
    mine, theirs = one.state_dict(), other.state_dict()
    return mine.keys() == theirs.keys() and all(torch.equal(mine[name], theirs[name]) for name in mine)


@pytest.mark.parametrize("kind", ["learner", "blocks", "save", "writer", "private"])
def test_twenty_kills_lose_nothing(kind: str, tmp_path: Path) -> None:
    command = [sys.executable, "-W", "ignore", "-m", "tests.feedback.kills", kind, str(tmp_path), "20"]
    run = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    found = ast.literal_eval(run.stdout.splitlines()[-1])
    assert found["killed"] == 20
    assert (found["lost"], found["learnt twice"]) == (0, 0)
    zero = {"stored calls lost": 0, "joined twice": 0}
    true = {"bits equal": True, "runs never fall": True, "last start booked": True}
    assert {name: found[name] for name in zero | true if name in found}.items() <= (zero | true).items()


@pytest.fixture
def log(tmp_path: Path) -> DecisionLog:
    return DecisionLog(tmp_path / "log.db")


def test_learning_in_parts_is_learning_at_once(log: DecisionLog, tmp_path: Path) -> None:
    fill(log, 60)
    policy = OFUL(2)
    with Follower(policy, log, tmp_path / "policy.pt") as follower:
        while follower.advance(limit=7):
            pass
    state = learnt_from(log)
    assert all(torch.equal(value, state[name]) for name, value in policy.state_dict().items())


def test_a_follower_goes_on_from_its_snapshot(log: DecisionLog, tmp_path: Path) -> None:
    fill(log, 20)
    first = follow(OFUL(2), log, tmp_path / "policy.pt")
    fill(log, 20, start=20)
    policy = OFUL(2)
    with Follower(policy, log, tmp_path / "policy.pt") as follower:
        assert follower.position == first.position == int(policy.estimator.rounds)
        follower.advance()
    state = learnt_from(log)
    assert all(torch.equal(value, state[name]) for name, value in policy.state_dict().items())


CONTEXT = torch.tensor([0.3, 0.7], dtype=torch.float64)
KINDS: dict[str, tuple[Any, torch.Tensor]] = {
    "arms with a model each": (lambda: DisjointArms(RidgeRegression(2), 3), CONTEXT),
    "the recommended policy": (lambda: bandit(2, actions=3), CONTEXT),
    "radius master": (lambda: RadiusSelector(RidgeRegression(2), actions=3), CONTEXT),
    "arms that stay": (lambda: FixedArms(OFUL(2), ARMS), torch.zeros(0)),
    "head on a context": (
        lambda: BanditHead(torch.nn.Linear(2, 2), bandit(2, actions=3, scale=False)),
        CONTEXT.float(),
    ),
    "head on arms": (lambda: BanditHead(torch.nn.Linear(2, 4), OFUL(4)), ARMS.float()),
    "the chosen arm alone": (lambda: OFUL(2), CONTEXT[None]),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_policy_follows(kind: str, log: DecisionLog, tmp_path: Path) -> None:
    make, inputs = KINDS[kind]
    arms = 1 if kind == "the chosen arm alone" else 3
    for i in range(6):
        log.decide(f"{i}", inputs, i % arms, 1 / 3)
        log.reward(f"{i}", 0.1 * i)
    torch.manual_seed(0)
    policy = make()
    snapshot = follow(policy, log, tmp_path / "policy.pt")
    assert (snapshot.learnt, snapshot.refused, snapshot.refusals) == (6, 0, ())
    torch.manual_seed(0)
    twin = make()
    for i in range(6):
        action, reward = torch.tensor(i % arms), torch.tensor(0.1 * i, dtype=torch.float64)
        twin.step(None if kind == "arms that stay" else inputs, action, reward)
    assert same_bits(policy, twin)
    if hasattr(policy, "learn"):
        torch.manual_seed(0)
        assert follow(make(), log, tmp_path / "blocks.pt", blocks=True).learnt == 6


def test_refused_rounds_are_left_out_and_counted(log: DecisionLog, tmp_path: Path) -> None:
    for i, (action, reward) in enumerate([(0, 1.0), (1, 7.0), (9, 1.0), (2, 0.0)]):
        log.decide(f"{i}", ARMS, action, 1.0)
        log.reward(f"{i}", reward)
    log.decide("wide", torch.ones(3, 5), 0, 1.0)
    log.reward("wide", 1.0)
    for blocks in (False, True):
        policy = LocalGLB(2)
        snapshot = follow(policy, log, tmp_path / f"{blocks}.pt", blocks=blocks)
        assert (snapshot.position, snapshot.learnt, snapshot.refused) == (5, 2, 3)
        assert [position for position, _ in snapshot.refusals] == [2, 3, 5]
        reasons = [reason for _, reason in snapshot.refusals]
        assert "reward" in reasons[0]
        assert reasons[1] == "action: expected one of 3 arms, got 9"
        assert int(policy.estimator.rounds) == 2
        assert load_snapshot(tmp_path / f"{blocks}.pt", LocalGLB(2)).refusals == snapshot.refusals


def test_features_of_another_encoder_are_skipped(log: DecisionLog, tmp_path: Path) -> None:
    for i in range(6):
        log.decide(f"{i}", ARMS, 0, 1.0, encoder=f"v{i % 3}")
        log.reward(f"{i}", 1.0)
    policy = OFUL(2)
    snapshot = follow(policy, log, tmp_path / "policy.pt", encoder="v1")
    assert (snapshot.learnt, snapshot.skipped, int(policy.estimator.rounds)) == (2, 4, 2)
    for other in ("v2", None):
        with pytest.raises(ValueError, match="encoder: expected 'v1', as in the snapshot, got"):
            Follower(OFUL(2), log, tmp_path / "policy.pt", encoder=other)
    save_snapshot(tmp_path / "start.pt", policy, Snapshot(log=log.name))  # a start from another state
    assert follow(OFUL(2), log, tmp_path / "start.pt", encoder="v1").encoder == "v1"


def test_a_new_log_goes_on_from_what_the_old_one_taught(log: DecisionLog, tmp_path: Path) -> None:
    fill(log, 20)
    learnt, through = follow(OFUL(2), log, tmp_path / "old.pt").learnt, OFUL(2)
    load_snapshot(tmp_path / "old.pt", through)
    new = DecisionLog(tmp_path / "new.db")
    save_snapshot(tmp_path / "new.pt", through, Snapshot(log=new.name, learnt=learnt))
    for each in (log, new):
        fill(each, 10, seed=1, start=20)
    policies = OFUL(2), OFUL(2)
    old = follow(policies[0], log, tmp_path / "old.pt")
    snapshot = follow(policies[1], new, tmp_path / "new.pt")
    assert (snapshot.learnt, snapshot.position) == (old.learnt, old.learnt - learnt)
    assert snapshot.position > 0
    assert same_bits(*policies)


def test_a_running_follower_learns_what_comes(log: DecisionLog, tmp_path: Path) -> None:
    saved: list[int] = []

    def save(follower: Follower) -> None:
        saved.append(follower.position)
        fill(log, 5, seed=len(saved), start=5 * len(saved))

    policy = OFUL(2)
    fill(log, 5)
    snapshot = follow(policy, log, tmp_path / "p.pt", every=1e-3, poll=1e-3, stop=lambda: len(saved) > 3, on_save=save)
    assert saved == sorted(set(saved))
    assert snapshot.position == saved[-1] == int(policy.estimator.rounds)


def test_a_full_disk_is_tried_again(log: DecisionLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(log, 10)
    tries: list[int] = []

    def save(self: Follower) -> None:
        tries.append(self.position)
        if len(tries) < 3:
            raise OSError(28, "No space left on device")
        save_snapshot(self.path, self.policy, self.snapshot)

    monkeypatch.setattr(Follower, "save", save)
    follow(OFUL(2), log, tmp_path / "p.pt", every=1e-3, poll=1e-3, stop=lambda: len(tries) >= 3)
    assert load_snapshot(tmp_path / "p.pt", OFUL(2)).position == log.counts()["known"]
    tries.clear()
    with pytest.raises(OSError, match="No space"):
        follow(OFUL(2), log, tmp_path / "q.pt")


def test_a_log_that_is_away_is_tried_again(log: DecisionLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(log, 10)
    looks: list[int] = []
    read = log.read

    def away(after: int = 0, limit: int = 1000) -> list[Feedback]:
        looks.append(after)
        if len(looks) < 3:
            raise LogStorageError("the server restarts")
        return read(after, limit)

    monkeypatch.setattr(log, "read", away)
    snapshot = follow(OFUL(2), log, tmp_path / "p.pt", poll=1e-3, stop=lambda: len(looks) >= 3)
    assert snapshot.learnt == log.counts()["known"]
    looks.clear()
    with pytest.raises(LogStorageError, match="restarts"):
        follow(OFUL(2), log, tmp_path / "q.pt")


def test_one_follower_at_a_time(log: DecisionLog, tmp_path: Path) -> None:
    with Follower(OFUL(2), log, tmp_path / "p.pt"):
        with pytest.raises(BlockingIOError, match="path: expected no other follower"):
            Follower(OFUL(2), log, tmp_path / "p.pt")
        Follower(OFUL(2), log, tmp_path / "q.pt").close()
    Follower(OFUL(2), log, tmp_path / "p.pt").close()


def test_a_snapshot_belongs_to_its_log(log: DecisionLog, tmp_path: Path) -> None:
    fill(log, 5)
    follow(OFUL(2), log, tmp_path / "p.pt")
    with pytest.raises(ValueError, match="log: expected the log"):
        Follower(OFUL(2), DecisionLog(tmp_path / "other.db"), tmp_path / "p.pt")
    save_snapshot(tmp_path / "p.pt", OFUL(2), Snapshot(position=99, log=log.name))
    with pytest.raises(ValueError, match="log: expected at least 99 known rounds"):
        Follower(OFUL(2), log, tmp_path / "p.pt")
    Follower(OFUL(2), log, tmp_path / "new.pt").close()  # the lock was let go


def test_an_older_copy_of_the_log_is_refused(log: DecisionLog, tmp_path: Path) -> None:
    fill(log, 10)
    log.close()
    old = (tmp_path / "log.db").read_bytes()
    fill(log, 10, start=10)
    follow(OFUL(2), log, tmp_path / "p.pt")
    log.close()
    (tmp_path / "log.db").write_bytes(old)  # as from a backup
    fill(log, 40, start=100)
    with pytest.raises(ValueError, match="log: expected 'decision 19' at position 20, as in the snapshot, got"):
        Follower(OFUL(2), log, tmp_path / "p.pt")
    assert follow(OFUL(2), log, tmp_path / "new.pt").last == log.read(log.counts()["known"] - 1)[0].id


def test_links_to_one_snapshot(log: DecisionLog, tmp_path: Path) -> None:
    fill(log, 5)
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "link.pt"
    link.symlink_to(tmp_path / "elsewhere" / "p.pt")
    follow(OFUL(2), log, link)
    assert link.is_symlink()
    refused = pytest.raises(BlockingIOError, match="path: expected no other follower")
    with Follower(OFUL(2), log, tmp_path / "elsewhere" / "p.pt"), refused:
        Follower(OFUL(2), log, link)


def test_wrong_arguments(log: DecisionLog, tmp_path: Path) -> None:
    path = tmp_path / "p.pt"
    with pytest.raises(ValueError, match=r"policy: expected no batch shape, got \(2,\)"):
        Follower(OFUL(2, batch_shape=(2,)), log, path)
    private = DPHDB(2, arms=3, horizon=9, warmup=2, epsilon=1.0, delta=1e-3)
    with pytest.raises(ValueError, match="blocks: expected False for DPHDB, which has no learn"):
        Follower(private, log, path, blocks=True)
    with pytest.raises(TypeError, match="log: expected a FeedbackLog, got str"):
        Follower(OFUL(2), "log.db", path)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="every: expected a number above 0"):
        follow(OFUL(2), log, path, every=0.0)
    with pytest.raises(TypeError, match="encoder: expected a string or None"):
        Follower(OFUL(2), log, path, encoder=7)  # type: ignore[arg-type]


def test_a_private_learner_books_its_run_before_it_steps(log: DecisionLog, tmp_path: Path) -> None:
    def learner() -> DPHDB:
        return DPHDB(2, arms=3, horizon=30, warmup=1, epsilon=1.0, delta=1e-6)

    for i in range(4):
        log.decide(f"{i}", CONTEXT, i % 3, 1 / 3)
        log.reward(f"{i}", 0.5)
    follow(learner(), log, tmp_path / "p.pt")
    Follower(learner(), log, tmp_path / "p.pt").close()  # as a crash would
    assert int(torch.load(tmp_path / "p.pt")["state"]["continuations"]) == 2


def test_an_interrupted_follower_saves_nothing(log: DecisionLog, tmp_path: Path) -> None:
    fill(log, 10)
    policy = OFUL(2)
    with Follower(policy, log, tmp_path / "p.pt") as follower:
        follower.advance(limit=4)
        follower.save()
        step, calls = policy.step, iter(range(3))

        def interrupted(*arguments: torch.Tensor) -> None:
            step(*arguments)
            if next(calls) == 2:
                raise KeyboardInterrupt

        policy.step = interrupted  # type: ignore[method-assign]
        with pytest.raises(KeyboardInterrupt):
            follower.advance()
        with pytest.raises(RuntimeError, match="save: expected a follower whose advance"):
            follower.save()
    assert load_snapshot(tmp_path / "p.pt", OFUL(2)).position == 4


def test_an_error_keeps_what_was_learnt_before(log: DecisionLog, tmp_path: Path) -> None:
    for i in range(5):
        log.decide(f"{i}", CONTEXT, i % 3, 1 / 3)
        log.reward(f"{i}", 0.5)
    learner = DPHDB(2, arms=3, horizon=3, warmup=1, epsilon=1.0, delta=1e-6)
    with Follower(learner, log, tmp_path / "p.pt") as follower:
        with pytest.raises(RuntimeError, match="budget is spent") as caught:
            follower.advance()
        assert caught.value.__notes__ == ["log: while learning positions 4 to 4"]
        assert (follower.position, int(learner.rounds)) == (3, 3)
        follower.save()
    with pytest.raises(RuntimeError, match="budget is spent"):
        follow(DPHDB(2, arms=3, horizon=3, warmup=1, epsilon=1.0, delta=1e-6), log, tmp_path / "q.pt")
    assert torch.load(tmp_path / "q.pt")["snapshot"]["position"] == 3


def test_spawned_processes_share_a_log(log: DecisionLog, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="by its path"):
        multiprocessing.get_context("spawn").Process(target=fill, args=(log, 1)).start()
