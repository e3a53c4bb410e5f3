"""Policies made of parts: what the contract does not check. Cases are in tests/composed_policies.py."""

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.composed_policies import ARMS, CASES, DIM, Case
from tests.core.test_threads import together
from tests.interruption import interrupted, lines_of
from tests.learners import BATCH_SHAPES, close, differences, same, snapshot, snapshot_of_script
from torchonline import DisjointArms, GLMRegression, RidgeRegression, ScaledPolicy, SharedRadiusSelector, StandardScaler
from torchonline.core import learner as core
from torchonline.export import to_program, to_torchscript
from torchonline.policies import disjoint

pytestmark = pytest.mark.fast

D = torch.float64
every_case = pytest.mark.parametrize("case", CASES, ids=str)
FEW = [case for case in CASES if case.name in ("ridge", "heavy tail, frozen", "robust", "ucb")]


def taught(case: Case, count: int = 9, **options: Any) -> Any:
    """A policy that has played some rounds, past the freeze of its scaler."""
    policy = case.build(**options)
    case.play(policy, case.stream(count, batch_shape=options.get("batch_shape", ())))
    return policy


def test_a_round_beyond_the_dtype_blames_the_argument() -> None:
    arms, links = DisjointArms(RidgeRegression(2), 3), DisjointArms(GLMRegression(3, feature_bound=20.0), 2)
    with pytest.raises(ValueError, match=r"^inputs: expected a round that adds less than "):
        arms.step([1e60, 0.0], 1, 1.0)
    with pytest.raises(ValueError, match=r"^inputs: expected features of norm at most 20"):
        links.step([30.0, 0.0, 0.0], 1, 1.0)
    arms.add_actions(1)
    with pytest.raises(ValueError, match=r"^inputs: expected a round that adds less than "):
        arms.step([1e60, 0.0], 3, 1.0)
    assert not arms.estimator.rounds.any()


@pytest.mark.slow
@pytest.mark.parametrize(("batch_shape", "rows"), [((), 1), ((), 4), ((2,), 1)])
@pytest.mark.parametrize("case", FEW, ids=str)
def test_an_interrupted_step_is_all_or_nothing(case: Case, batch_shape: tuple[int, ...], rows: int) -> None:
    """At every line: bit for bit the state before, or that after. Past and in the round that the scaler freezes in."""
    for count in (5, 9):
        policy, done = taught(case, count, batch_shape=batch_shape), taught(case, count, batch_shape=batch_shape)
        start, rounds = snapshot(policy), case.stream(rows, batch_shape=batch_shape, seed=1)
        index = [torch.full(batch_shape, t % 2) for t in range(rows)]
        given = case.arguments(rounds[0], index[0]) if rows == 1 else case.several(rounds, index)
        done.step(**given)
        after, line = snapshot(done), 0
        while interrupted(lambda p=policy, a=given: p.step(**a), line):
            now = snapshot(policy)
            assert differences(start, now) == [] or differences(after, now) == [], f"torn at line {line}"
            policy.load_state_dict(start)
            line += 1 if rows == 1 and batch_shape == () else 7
        assert line > 40
        assert differences(after, snapshot(policy)) == []


@pytest.mark.slow
@pytest.mark.parametrize("batch_shape", [(), (2,)])
@pytest.mark.parametrize("case", [case for case in FEW if case.name != "ridge"], ids=str)
def test_a_large_policy_undoes_an_interrupted_step(
    case: Case, batch_shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core, "SNAPSHOT_BYTES", 0)
    monkeypatch.setattr(disjoint, "SNAPSHOT_BYTES", 0)
    for count in (5, 9):
        policy, done = taught(case, count, batch_shape=batch_shape), taught(case, count, batch_shape=batch_shape)
        start, round_ = snapshot(policy), case.stream(1, batch_shape=batch_shape, seed=1)[0]
        index = torch.zeros(batch_shape, dtype=torch.int64)
        case.learn(done, round_, index)
        after, line = snapshot(done), 0
        while interrupted(lambda p=policy, r=round_, i=index: case.learn(p, r, i), line):
            now = snapshot(policy)
            assert differences(start, now) == [] or differences(after, now) == [], f"torn at {line}"
            policy.load_state_dict(start)
            line += 3
        assert line > 40
        assert differences(after, snapshot(policy)) == []


@every_case
def test_a_policy_may_be_fed_its_own_buffers(case: Case) -> None:
    if case.name in ("local", "floor"):  # which may refuse such rewards
        return
    policy, twin = taught(case), taught(case)
    own, theirs = policy.estimator, twin.estimator
    for arm in range(2):
        x, reward = own.V_inv.reshape(-1, own.dim, own.dim)[0, :, :DIM], own.theta_hat.reshape(-1)[: own.dim]
        copied = (
            theirs.V_inv.reshape(-1, own.dim, own.dim)[0, :, :DIM].clone(),
            theirs.theta_hat.reshape(-1)[: own.dim].clone(),
        )
        first, second = (rows if case.has_models else rows[:, None].expand(-1, ARMS, DIM) for rows in (x, copied[0]))
        policy.step(first, [arm] * own.dim, reward)
        twin.step(second, [arm] * own.dim, copied[1])
        assert differences(snapshot(twin), snapshot(policy)) == []


def test_a_file_holds_the_statistics_once() -> None:
    policy = ScaledPolicy(RidgeRegression(201), StandardScaler(200))
    alone = len(pickle.dumps(policy.estimator)) + len(pickle.dumps(policy.scaler))
    assert len(pickle.dumps(policy)) < 1.1 * alone
    arms = DisjointArms(RidgeRegression(100), 8)
    assert len(pickle.dumps(arms)) < 1.1 * (9 / 8) * len(pickle.dumps(arms.estimator))


# Rule 8: files.


@pytest.mark.slow
@pytest.mark.parametrize(("case", "batch_shape"), [(FEW[1], ()), (FEW[3], (2,)), (FEW[6], (2,))])
def test_programs_agree_over_100_rounds(case: Case, batch_shape: tuple[int, ...]) -> None:
    """`to_program` verifies 60 rounds or so itself; here a hundred more, of other features."""
    policy = case.build(batch_shape=batch_shape)
    program = to_program(policy).module()
    rounds = case.stream(100, batch_shape=batch_shape)
    learn, choice, past = torch.zeros(batch_shape, dtype=torch.bool), None, rounds[0]
    for t, round_ in enumerate(rounds):
        sizes = (policy(round_.context).shape[-1],)
        mask = torch.ones(*batch_shape, 1, *sizes, dtype=torch.bool)
        many = round_.context.unsqueeze(len(batch_shape))
        index = torch.zeros(batch_shape, dtype=torch.int64) if choice is None else choice
        given = (past.context, index, past.reward, learn, many, mask)
        if t:
            case.learn(
                policy, type(past)(past.context, past.reward, torch.full_like(past.reward, policy.noise_scale)), index
            )
        chosen, learnt = program(*given)
        assert torch.equal(learnt, learn)
        chosen = chosen.squeeze(-1)
        choice = policy.select(round_.context)
        assert torch.equal(chosen, choice), t
        learn, past = torch.ones(batch_shape, dtype=torch.bool), round_


@pytest.mark.slow
def test_files_verify_themselves() -> None:
    for case in FEW[1:4:2]:
        policy = taught(case)
        before = snapshot(policy)
        file: Any = to_torchscript(policy)
        assert differences(before, snapshot_of_script(file, policy)) == []
        assert differences(before, snapshot(policy)) == []


# Rules 10 to 12: devices, people's values, threads.


def test_threads_lose_no_round() -> None:
    for case in FEW:
        policy, rounds = case.build(), case.stream(50)

        def learn(policy: Any = policy, rounds: Any = rounds, case: Case = case) -> None:
            for round_ in rounds:
                case.learn(policy, round_, policy.select(round_.context))
                policy(round_.context)

        def copies(policy: Any = policy) -> None:
            for _ in range(20):
                twin = copy.deepcopy(policy)
                frozen = 0 if twin.scaler is None or twin.scaler.freeze_after is None else 6
                assert int(twin.estimator.rounds.sum()) in (int(twin.rounds), int(twin.rounds) - frozen)

        together(learn, learn, learn, copies)
        assert int(policy.rounds) == 150


def test_moving_works() -> None:
    """Types and back; views follow the new memory."""
    for case in FEW:
        policy, twin = taught(case), taught(case)
        policy.to(torch.float32)
        case.play(policy, case.stream(3))
        assert all(v.dtype in (torch.float32, torch.int64) for n, v in snapshot(policy).items() if "constants" not in n)
        policy.to(torch.float64).load_state_dict(twin.state_dict())
        rounds = case.stream(5, seed=1)
        assert all(map(same, case.play(policy, rounds), case.play(twin, rounds)))
        assert differences(snapshot(twin), snapshot(policy)) == []


def test_wrong_parts_are_named() -> None:
    scaler, ridge = StandardScaler(3), RidgeRegression(4)
    wrong: list[tuple[str, Any]] = [
        ("policy", lambda: ScaledPolicy(None, scaler)),
        ("policy", lambda: ScaledPolicy(nn.Linear(3, 1), scaler)),
        ("policy", lambda: ScaledPolicy(ScaledPolicy(ridge, scaler), scaler)),
        ("scaler", lambda: ScaledPolicy(ridge, None)),
        ("scaler", lambda: ScaledPolicy(ridge, StandardScaler(4))),
        ("scaler", lambda: ScaledPolicy(ridge, StandardScaler(3, batch_shape=(2,)))),
        ("scaler", lambda: ScaledPolicy(ridge, StandardScaler(3, dtype=torch.float32))),
        ("scaler", lambda: ScaledPolicy(ridge, StandardScaler(3, device="meta"))),
        ("policy", lambda: DisjointArms(None, 3)),
        ("policy", lambda: DisjointArms("OFUL", 3)),
        ("scaler", lambda: DisjointArms(ridge, 3, scaler=nn.Linear(3, 4))),
        ("scaler", lambda: DisjointArms(ridge, 3, scaler=StandardScaler(4))),
        *(("actions", lambda k=k: DisjointArms(ridge, k)) for k in (0, -1, 1.5, True, "3", None, torch.tensor(3))),
        *(("most_actions", lambda k=k: DisjointArms(ridge, 3, most_actions=k)) for k in (0, 2, 2.5, True, "3")),
    ]
    for name, make in wrong:
        with pytest.raises((TypeError, ValueError), match=f"^{name}: expected "):
            make()
    policy = ScaledPolicy(ridge, scaler)
    for name in ("policy", "scaler"):
        with pytest.raises(AttributeError, match=f"^{name}: expected "):
            setattr(policy, name, None)


# Logs: all of the rules, for `learn`.


def log_of(case: Case, count: int = 13, batch_shape: tuple[int, ...] = (), seed: int = 0) -> dict[str, Tensor]:
    """What `learn` gets: rounds of the usual stream, of arms that are drawn."""
    rounds = case.stream(count, batch_shape=batch_shape, seed=seed)
    return case.several(rounds, [torch.randint(2, batch_shape) for _ in rounds])


def part(log: dict[str, Tensor], at: int, first: int, last: int | None) -> dict[str, Tensor]:
    return {name: value.movedim(at, 0)[first:last].movedim(0, at) for name, value in log.items()}


@every_case
def test_logs_are_learnt_in_order_while_features_move(case: Case) -> None:
    """Bit for bit what `step` learns: without blocks, while a scaler moves, and by masters, which credit each round."""
    for batch_shape in BATCH_SHAPES:
        for size in (None, 4):
            policy, twin = case.build(batch_shape=batch_shape), case.build(batch_shape=batch_shape)
            log, at = log_of(case, batch_shape=batch_shape), len(batch_shape)
            frozen = None if policy.scaler is None else policy.scaler.freeze_after
            in_order = 13 if not policy.has_blocks or (policy.scaler is not None and frozen is None) else frozen or 0
            policy.learn(**part(log, at, 0, in_order), block_size=size)
            twin.step(**part(log, at, 0, in_order))
            assert differences(snapshot(twin), snapshot(policy)) == []
            # From the freeze on, one call does what calls from there on do.
            whole = case.build(batch_shape=batch_shape)
            whole.learn(**log, block_size=size)
            policy.learn(**part(log, at, in_order, None), block_size=size)
            for name, value in snapshot(whole).items():
                close(value, snapshot(policy)[name], 1e-12)
            assert bool((whole.rounds == 13).all())
            assert whole.scaler is None or bool((whole.scaler.rounds == 13).all())
            before = snapshot(whole)
            whole.learn(**part(log, at, 0, 0), block_size=size)
            assert differences(before, snapshot(whole)) == []


@pytest.mark.slow
@every_case
def test_logs_may_lie_in_a_policy_s_own_memory(case: Case) -> None:
    """Also the counts of rounds, which are integers as indices of arms are."""
    if case.name in ("local", "floor"):  # which may refuse such rewards
        return
    policy, twin = taught(case), taught(case)
    if isinstance(policy, SharedRadiusSelector):  # a row has all arms of a decision
        return
    rows = len(policy.estimator.theta_hat.reshape(-1)[:DIM])
    for each, copied in ((policy, Tensor.detach), (twin, Tensor.clone)):
        own = each.estimator
        x = copied(own.V_inv.reshape(-1, own.dim, own.dim)[0, :rows, :DIM])
        reward = copied(own.theta_hat.reshape(-1)[:rows])
        counts = own.rounds.reshape(-1)[:rows]
        counts.clamp_(0, ARMS - 1)
        if case.has_models:
            each.learn(x, copied(counts), reward, block_size=1)
        else:
            each.learn(x.unsqueeze(-2), [0] * rows, reward, block_size=1)
    assert differences(snapshot(twin), snapshot(policy)) == []


@pytest.mark.slow
@pytest.mark.parametrize("batch_shape", [(), (2,)])
@pytest.mark.parametrize("case", FEW, ids=str)
def test_an_interrupted_log_is_all_or_nothing(case: Case, batch_shape: tuple[int, ...]) -> None:
    """Across the freeze of the scaler, and in blocks."""
    policy, done = taught(case, 4, batch_shape=batch_shape), taught(case, 4, batch_shape=batch_shape)
    start, log = snapshot(policy), log_of(case, 9, batch_shape, 1)
    done.learn(**log, block_size=3)
    after, line = snapshot(done), 0
    step = max(1, lines_of(lambda: copy.deepcopy(policy).learn(**log, block_size=3)) // 80)
    while interrupted(lambda: policy.learn(**log, block_size=3), line):
        now = snapshot(policy)
        assert differences(start, now) == [] or differences(after, now) == [], f"torn at line {line}"
        policy.load_state_dict(start)
        line += step
    assert line > 60
    assert differences(after, snapshot(policy)) == []
