"""One learner over several processes: all ways, all learners, errors on one rank, deaths, secrets, copies.

Processes of tests/ranks.py play the scenarios, several to a start of processes, since a start takes seconds.
"""

import copy
import functools
import io
import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from filelock import FileLock

from tests import ranks, shared_learners
from tests.fake_device import environment
from tests.process_groups import CONTEXT
from torchonline import (
    DPHDB,
    DPTOFW,
    OFUL,
    OONS,
    AnytimeHeavyTailUCB,
    DisjointArms,
    FixedArms,
    FreeGrad,
    RidgeRegression,
    ScaledPolicy,
    SharedRadiusSelector,
    StandardScaler,
    SystemIdentification,
    ThompsonSampling,
)
from torchonline.distributed import Ranks, SharedLearner
from torchonline.distributed.ranks import digest, error_from_text, packed, text_of_error, unpacked
from torchonline.distributed.shared_learner import NOTE_BYTES, _Outcome
from torchonline.distributed.sums import shares_of

D = torch.float64
# The longest time of a start of processes, in seconds. On two idle cores they take a tenth of it.
LIMIT = 540
COMPARED = ("estimators", "policies", "single_precision", "batches", "convex")
PLAYED = ("refused", "errors", "strangers", "other_processors", "refused_blocks", "interrupts", "doubts", "private")
PLAYED += ("private_refusals", "private_messages", "warm_up", "followers", "groups", "objects", "copies", "threads")
PLAYED += ("messages", "late", "coverage")
# The scenarios that one start of so many processes plays.
STARTS = {(2, COMPARED), (4, COMPARED[:3]), (2, PLAYED), (4, PLAYED), (3, ("dying",))}
NOTHING = "; no rank has learnt anything, and discard() drops a rank's queued rounds"
WORLDS = pytest.mark.parametrize("world", [2, 4])


@functools.cache
def findings(world: int, scenario: str) -> list[dict[str, Any]]:
    """What each of so many ranks has found in a scenario."""
    (scenarios,) = (names for size, names in STARTS if size == world and scenario in names)
    return [found[scenario] for found in started(world, scenarios)]


@functools.cache
def started(world: int, scenarios: tuple[str, ...]) -> list[dict[str, Any]]:
    """What each rank has found in some scenarios. The workers of a test run play them once, together."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", f"alone-{os.getpid()}")
    place = Path(tempfile.gettempdir()) / f"torchonline-ranks-{run}-{world}-{scenarios[0]}"
    with FileLock(f"{place}.lock", timeout=2 * LIMIT):
        if not place.exists():
            place.write_text(json.dumps(played(world, scenarios)))
        return json.loads(place.read_text())


def played(world: int, scenarios: tuple[str, ...]) -> list[dict[str, Any]]:
    """Start so many ranks, and wait for what they have found. Whoever is late is killed."""
    with tempfile.TemporaryDirectory() as folder:
        store, processes = Path(folder) / "store", []
        for rank in range(world):
            words = [str(rank), str(world), str(store), *scenarios]
            processes.append(CONTEXT.Process(target=play_rank, args=(words, str(Path(folder) / f"log{rank}"))))
            processes[-1].start()
        deadline = time.monotonic() + LIMIT
        try:
            for process in processes:
                process.join(max(deadline - time.monotonic(), 0.1))
        finally:
            for process in processes:
                process.kill()
                process.join()
        found = [Path(f"{store}.{rank}") for rank in range(world)]
        if not all(path.exists() for path in found):
            logs = [(Path(folder) / f"log{rank}").read_text()[-3000:] for rank in range(world)]
            raise RuntimeError("\n".join(f"rank {rank}: {text}" for rank, text in enumerate(logs)))
        return [json.loads(path.read_text()) for path in found]


def play_rank(words: list[str], log: str) -> None:
    """Be ``python -W ignore -m tests.ranks``, in a forked process, with what it says in a file."""
    file = os.open(log, os.O_WRONLY | os.O_CREAT)
    for number in (1, 2):
        os.dup2(file, number)
    warnings.simplefilter("ignore")
    sys.argv = ["ranks", *words]
    ranks.main()


def single_threaded() -> dict[str, str]:
    """This process's environment, for a process with one thread."""
    return environment() | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}


def compared(world: int, scenario: str) -> dict[str, tuple[float, bool]]:
    """For each learner and way: how far it is from that of one process, and whether all ranks have one state."""
    found = findings(world, scenario)
    return {name: (gap, all(each[name][1] for each in found)) for name, (gap, _) in found[0].items()}


@pytest.mark.parametrize(
    ("world", "scenario"), [(world, name) for world in (2, 4) for name in COMPARED[: 9 - 2 * world]]
)
def test_ranks_learn_what_one_process_learns(world: int, scenario: str) -> None:
    """Bit for bit where rounds travel; to rounding where sums do. The ranks are always equal bit for bit."""
    rounding = 1e-5 if scenario == "single_precision" else 1e-10
    found = compared(world, scenario)
    assert {name for name, (_, are_equal) in found.items() if not are_equal} == set()
    assert {name: gap for name, (gap, _) in found.items() if gap > (rounding if name.endswith("sums") else 0.0)} == {}


def test_all_learners_are_compared() -> None:
    assert {name.rpartition(" ")[2] for name in compared(2, "estimators")} == {"leader", "all", "sums"}
    cases = [*shared_learners.ESTIMATORS, *shared_learners.POLICIES, *shared_learners.COMPOSED, *shared_learners.CONVEX]
    names = {name for scenario in ("estimators", "policies", "convex") for name in compared(2, scenario)}
    assert {case.name for case in cases if f"{case.name} leader" not in names} == set()
    in_sums = {name.removesuffix(" sums") for name in names if name.endswith("sums")}
    with_sums = [*shared_learners.ESTIMATORS, *shared_learners.COMPOSED, *shared_learners.FROZEN]
    assert {case.name for case in with_sums if shared_learners.has_blocks(case.build())} == in_sums
    assert len(in_sums) > 20
    assert set(findings(2, "private")[0]) == {str(case) for case in shared_learners.PRIVATE}


@WORLDS
def test_a_way_that_a_learner_cannot_go_is_refused_by_name(world: int) -> None:
    all_ranks = findings(world, "refused")
    found = all_ranks[0]
    assert all(each == found for each in all_ranks)
    for name, (kind, text) in found.items():
        assert kind == "ValueError", name
        assert text.startswith(("learn_on: expected ", "policy: expected the same ")), text
    assert "for AdaptiveRidgeRegression, which has no sums over rounds to add" in found["AdaptiveRidgeRegression()"][1]
    assert "for ScaledPolicy, whose features move" in found["ScaledPolicy(ridge)"][1]
    assert "for DisjointArms, whose arms restart at different rounds" in found["restarts"][1]
    assert "expected \"leader\" for DPTOFW, whose noise one rank draws once, got 'all'" in found["DPTOFW() all"][1]
    for name in ("class", "size", "option", "link", "way"):
        assert found[name][1].endswith("got others on rank 1 than on rank 0")


BAD = {
    "NaN": ("ValueError", "inputs: expected finite values, got nan"),
    "NaN among others": ("ValueError", "reward: expected finite values, got nan"),
    "shape": ("ValueError", "inputs: expected shape (K, 3) or (n, K, 3) with K > 0, got (1, 2, 4)"),  # one round
    "shape of a reward": ("ValueError", "reward: expected shape (), got (2)"),
    "type": ("TypeError", "reward: expected a torch.Tensor, "),
    "ragged": ("TypeError", "inputs: expected a torch.Tensor, "),
    "no reward": ("TypeError", "reward: expected a torch.Tensor, "),
    "impossible reward": ("ValueError", "reward: expected in [0, 1], as Logistic has it, got 7.0"),
    "long features": ("ValueError", "inputs: expected features of norm at most 1, the feature_bound, got 15.588"),
    "noise": ("ValueError", "noise_scale: expected values of at least "),
    "arm": ("ValueError", "action: expected indices from 0 to 1, got 2"),
    "action": ("ValueError", "action: expected indices from 0 to 1, got 2"),
    "gradient": ("ValueError", "gradients: expected finite values, got nan"),
}


@WORLDS
def test_what_is_wrong_on_one_rank_is_raised_by_all(world: int) -> None:
    """All name the rank and the argument, nothing has changed, and discard() lets them go on."""
    all_ranks = findings(world, "errors")
    assert len(all_ranks[0]) == 3 * len(BAD) - 1
    for name, found in all_ranks[0].items():
        assert all(each[name] == found for each in all_ranks), name
        (kind, text), is_same, learnt, are_equal = found
        expected = BAD[name.rpartition(" ")[0]]
        assert kind == expected[0]
        assert text.startswith(f"rank {world - 1}: {expected[1]}"), text
        assert text.endswith(NOTHING)
        assert is_same
        assert are_equal
        # The other ranks' rounds, which have waited.
        assert learnt == world - 1


@WORLDS
def test_a_state_written_from_outside_is_refused_by_all(world: int) -> None:
    all_ranks = findings(world, "strangers")
    for name, found in all_ranks[0].items():
        assert all(each[name] == found for each in all_ranks), name
        kind, text = found["error"]
        assert kind == "RuntimeError"
        assert text.startswith("state: expected the same on all ranks, got another on rank "), text
        assert "call broadcast() on all ranks" in text
        assert found["is_same"]
        # After broadcast().
        assert found["rounds"] == world
        assert found["equal"]


@WORLDS
def test_other_rounding_is_refused_and_undone_by_all(world: int) -> None:
    all_ranks = findings(world, "other_processors")
    for name, found in all_ranks[0].items():
        assert all(each[name] == found for each in all_ranks)
        (kind, text), is_same, learnt, are_equal = found
        assert kind == "RuntimeError"
        assert 'processors of different kinds round differently; use learn_on="leader"' in text
        assert text.endswith(NOTHING)
        assert is_same
        assert are_equal
        assert learnt == world


@WORLDS
def test_a_block_that_no_float_resolves_is_refused_by_all(world: int) -> None:
    all_ranks = findings(world, "refused_blocks")
    assert len(all_ranks[0]) == 6
    for name, found in all_ranks[0].items():
        assert all(each[name] == found for each in all_ranks)
        (kind, text), is_same, learnt, are_equal = found
        assert kind == "ValueError"
        assert "expected rounds that torch.float64 can resolve together" in text
        assert text.endswith(NOTHING)
        assert is_same
        assert are_equal
        assert learnt == world


@WORLDS
def test_an_interrupt_on_one_rank_undoes_the_sync_of_all(world: int) -> None:
    """Ctrl-C arrives where it was sent; the others hear of it."""
    all_ranks = findings(world, "interrupts")
    for name in all_ranks[0]:
        victim = int(name[-1])
        for rank, found in enumerate(all_ranks):
            error, is_same, learnt, are_equal = found[name]
            if rank == victim:
                assert error == ["KeyboardInterrupt", ""]
            else:
                assert error == ["RuntimeError", f"rank {victim}: interrupted by KeyboardInterrupt{NOTHING}"]
            assert is_same
            assert are_equal
            assert learnt == world


@WORLDS
def test_rounds_that_may_have_been_learnt_are_not_learnt_again(world: int) -> None:
    for rank, found in enumerate(findings(world, "doubts")):
        for waiting, error, still, learnt, rounds, are_equal in found.values():
            assert waiting == still == (rank == 1)
            assert error[1].startswith(
                "rank 1: queue: expected rounds that wait for a sync, got some that an interrupted "
            )
            assert learnt == 0
            assert rounds == world  # each round once
            assert are_equal


def test_when_a_rank_dies_the_others_raise() -> None:
    """Nothing has changed then. The first group loses its last rank, and the second its first rank."""
    found = findings(3, "dying")
    for rank, name in ((0, "last"), (1, "last"), (1, "first")):
        assert found[rank][name] == {"error": "RuntimeError", "time": True, "is_same": True, "again": True}
    assert "last" not in found[2]


@WORLDS
def test_when_a_rank_does_not_come_the_others_raise_after_the_timeout(world: int) -> None:
    assert findings(world, "late")[0] == {"error": "RuntimeError", "time": True, "state": [0, 1]}


# Private learners.


@WORLDS
def test_private_learners_learn_on_the_first_rank(world: int) -> None:
    """The same noise, ledger and state as in one process; the other ranks have the public state and the same ledger."""
    all_ranks = findings(world, "private")
    for name, first in all_ranks[0].items():
        assert first["difference"] == 0.0
        assert first["rounds"] == world + sum((2, 0, 1, 3)[:world])
        for found in (each[name] for each in all_ranks):
            assert found["spent"] == first["of one process"]
            assert found["ledger"]
            assert found["equal"]
            assert found["rounds"] == first["rounds"]
            assert found["secrets stay"]
            assert found["draws nothing"]
            # Outside of the shared learner, nobody steps.
            assert found["step"][1].startswith(f"step: expected a process group of one rank, got one of {world}")
    assert any(0.0 < found["spent"][0] < 1.0 for found in all_ranks[-1].values())


@WORLDS
def test_refused_private_records_take_their_steps(world: int) -> None:
    all_ranks = findings(world, "private_refusals")
    found = all_ranks[0]
    assert all(each == found for each in all_ranks)
    last = world - 1
    assert found["shape"] == [["ValueError", f"rank {last}: gradients: expected shape (2, 3), got (5)"], 0, world, True]
    kind, text = found["type"][0]
    assert kind == "TypeError"
    assert text.startswith(f"rank {last}: gradients: expected a torch.Tensor")
    assert text.endswith("got str")
    assert found["type"][1:] == [0, 2 * world, True]
    assert found["nan"] == [None, 0, 3 * world, True]
    # One step was left for so many records: it is taken, and all hear of the end.
    spent = ["RuntimeError", f"step: expected at most {3 * world + 1} steps, got one more; the privacy budget is spent"]
    assert found["end"] == found["after the end"] == [spent, 0, 3 * world + 1, True]


@WORLDS
def test_nothing_secret_travels(world: int) -> None:
    """Records go to the first rank alone, in messages whose sizes do not depend on values; public buffers come back."""
    for rank, found in enumerate(findings(world, "private_messages")):
        assert len(set(found["sizes"])) == 1
        assert found["leaks"] == 0
        assert (found["secrets"] > 0) == (rank == 0)
        assert found["calls"] == ["all_gather", "broadcast"] + ["all_gather", "gather", "broadcast"] * 3
        assert found["broadcast"] == [NOTE_BYTES + found["public"]]


@WORLDS
def test_dphdb_chooses_on_all_ranks(world: int) -> None:
    all_ranks = findings(world, "warm_up")
    assert all(each["chosen"] == all_ranks[0]["chosen"] for each in all_ranks)
    assert all(all(each["alike"]) and each["equal"] and each["released"] is None for each in all_ranks)
    # Two rounds of each arm's block, and then choices that differ.
    assert all_ranks[0]["chosen"][:4] == [[0] * world] * 2 + [[1] * world] * 2
    assert len({arm for row in all_ranks[0]["chosen"][4:] for arm in row}) == 2


@WORLDS
def test_a_follower_has_the_ledger_and_never_steps(world: int) -> None:
    """Not even after the group, as its secret state is another's: it is saved under a tag that no learner loads."""
    for rank, found in enumerate(findings(world, "followers")):
        assert found["spent"]
        assert found["grew"]
        assert found["tag"] == (rank > 0)
        if rank == 0:
            assert found["load"] is found["step"] is found["step of a copy"] is None
        else:
            assert "expected the state of the process that takes the steps" in found["load"][1]
            for name in ("step", "step of a copy"):
                assert found[name][1].startswith(
                    "state: expected a state with its secret part, got the public part of a DPTOFW"
                )
        # One before the group, the others' in it, one of the first rank alone, and those after a load by all.
        assert found["rounds"] == 2 + 2 * world
        assert found["equal"]


# Groups, messages, copies, threads.


def test_groups_learn_apart() -> None:
    for rank, found in enumerate(findings(4, "groups")):
        for name, members in (("first", (0, 1)), ("rest", (2, 3))):
            if rank in members:
                place, rounds = rank - members[0], sum(member + 1 for member in members)
                assert all(found[f"{name} {way}"] == [rounds, place, 2] for way in ("leader", "all", "sums"))
            else:
                assert found[name] == ["ValueError", "group: expected one that this process belongs to, got another"]


@WORLDS
def test_values_travel(world: int) -> None:
    sent = [[rank, list(range(3 + rank))] for rank in range(world)]
    for rank, found in enumerate(findings(world, "objects")):
        assert found["gathered"] == (sent if rank == 0 else None)
        assert found["all_gathered"] == [[*each, "torch.bfloat16"] for each in sent]
        assert found["said"] == [0, [7.0]]
        assert found["agree"] == [None, [[each, -1, -1] for each in range(world)]]
        assert found["wrong"] == ["ValueError: rank 1: wrong", [[5]] * world]


@WORLDS
def test_a_sync_takes_few_messages(world: int) -> None:
    """One if there are no rounds. Sums of d = 8: d^2 + d and 2 d^2 + d + 2 numbers of 8 bytes, whatever the rounds."""
    for found in findings(world, "messages"):
        none = [["all_gather", 32]]
        assert all(calls == none for name, calls in found.items() if name.endswith(" 0"))
        assert [name for name, _ in found["OFUL leader 2"]] == ["all_gather", "gather", "broadcast"]
        assert [name for name, _ in found["OFUL all 2"]] == ["all_gather", "all_gather", "all_gather"]
        assert found["OFUL sums 2"][:2] == [*none, ["all_reduce", 8 * (8**2 + 8)]]
        assert found["AnytimeHeavyTailUCB sums 2"][:2] == [*none, ["all_reduce", 8 * (2 * 8**2 + 8 + 2)]]
        assert all(len(found[f"{name} sums 2"]) == 3 for name in ("OFUL", "AnytimeHeavyTailUCB"))


@WORLDS
def test_copies_and_loaded_states(world: int) -> None:
    all_ranks = findings(world, "copies")
    assert all(each == all_ranks[0] for each in all_ranks)
    found = all_ranks[0]
    assert found["twin"] == [1, world, world, 0]
    assert found["broadcast"][:2] == [world + 1, True]
    assert found["load"] == [world, 2 * world + 1, True]


@WORLDS
def test_threads_choose_and_observe_while_ranks_sync(world: int) -> None:
    for found in findings(world, "threads"):
        for wrong, learnt, waiting, rounds, are_equal in found.values():
            assert wrong == []
            assert learnt == rounds == 30 * world
            assert waiting == 0
            assert are_equal


@WORLDS
def test_confidence_sets_hold_in_sums(world: int) -> None:
    """At most as many misses as delta = 0.1 and three deviations allow; and half a radius is seen to be too little."""
    found = findings(world, "coverage")[0]
    for name, (misses, rounds, are_equal) in found.items():
        assert are_equal
        assert rounds == 30 * sum(range(1, world + 1))
        limit = 200 * (0.1 + 3.0 * (0.1 * 0.9 / 200) ** 0.5)
        assert (misses > limit) == (name == "OFUL, half the radius"), (name, misses)


# One process, with and without a group.


ONES = torch.ones(3, dtype=D)
ARMS = ONES[None]  # as the only arm
ALONE = {
    "OFUL": (lambda: OFUL(3), (ARMS, 0, 1.0)),
    "a batch": (lambda: AnytimeHeavyTailUCB(3, batch_shape=(2,)), (ONES.expand(2, 4, 3), [3, 0], [0.0, 1.0])),
    "Thompson": (lambda: ThompsonSampling(RidgeRegression(3)), (ARMS, 0, torch.tensor(1.0))),
    "several outputs": (lambda: SystemIdentification(3, outputs=2), (ONES, [1.0, 2.0])),
    "arms": (lambda: DisjointArms(RidgeRegression(3), 2), (ONES, 1, 1.0)),
    "a master": (lambda: SharedRadiusSelector(RidgeRegression(3)), (torch.eye(3, dtype=D), 1, 1.0)),
    "scaled": (lambda: ScaledPolicy(RidgeRegression(4), StandardScaler(3)), (ARMS, 0, 1.0)),
    "a scaler": (lambda: StandardScaler(3), (ONES,)),
    "convex": (lambda: FreeGrad(3), (ONES,)),
    "private": (lambda: DPTOFW(3, horizon=99, epsilon=1.0, delta=1e-3), (torch.ones(2, 3),)),
    "private arms": (lambda: DPHDB(3, arms=2, horizon=99, warmup=2, epsilon=1.0, delta=1e-3), (ONES, 1, 1.0)),
}


@pytest.mark.fast
@pytest.mark.parametrize("name", ALONE)
def test_one_process_needs_no_group(name: str) -> None:
    build, round_ = ALONE[name]
    shared = SharedLearner(build())
    assert (shared.ranks.rank, shared.ranks.size) == (0, 1)
    assert shared.sync() == 0
    for _ in range(3):
        shared.observe(*round_)
    assert shared.pending == 3
    assert shared.sync() == 3
    assert int(shared.learner.rounds.max()) == 3
    assert "pending=0" in repr(shared)
    shared.observe(*round_)
    assert shared.discard() == 1
    assert shared.sync() == shared.pending == 0


@pytest.mark.fast
def test_decisions_take_the_arguments_of_the_policy() -> None:
    """Arms that stay are no argument."""
    shared = SharedLearner(FixedArms(OFUL(2), torch.eye(2)))
    shared.observe(None, 0, 1.0)
    assert shared.sync() == 1
    policy = shared.policy
    assert torch.equal(shared.select(), policy.select())
    assert int(shared.select(mask=[False, True])) == int(shared.select(None, [False, True])) == 1
    assert shared.select_with_probability() == policy.select_with_probability()
    arms = torch.eye(2)
    assert int(SharedLearner(OFUL(2)).select(arms, mask=[False, True])) == 1


@pytest.mark.fast
def test_several_rounds_at_once_are_counted() -> None:
    arms = torch.eye(3, dtype=D)
    for policy, arguments in {
        OFUL(3): (arms[:, None], torch.zeros(3, dtype=torch.int64), torch.ones(3)),
        AnytimeHeavyTailUCB(3, batch_shape=(2,)): (
            torch.ones(2, 3, 4, 3, dtype=D),
            torch.arange(3).expand(2, 3),
            torch.ones(2, 3),
        ),
        DisjointArms(RidgeRegression(3), 2): (arms.numpy(), [0, 1, 0], [1.0, 2.0, 3.0]),
        SharedRadiusSelector(RidgeRegression(3)): (arms.expand(3, 3, 3), [0, 1, 2], torch.ones(3)),
        FixedArms(OFUL(3), arms): (None, [0, 1, 2], torch.ones(3)),
        FixedArms(OFUL(3, batch_shape=(2,)), arms): (None, torch.ones(2, 3, dtype=torch.int64), torch.ones(2, 3)),
        SystemIdentification(3, outputs=2): (arms.tolist(), torch.ones(3, 2)),
        StandardScaler(3): (arms,),
    }.items():
        shared = SharedLearner(policy)
        shared.observe(*arguments)
        assert shared.pending == 3
        assert shared.sync() == 3
        counts = policy.estimator.rounds if isinstance(policy, FixedArms) else shared.learner.rounds
        assert int(counts.max()) >= 2  # of one of the arms


class Frame:
    """What NumPy takes for an array, like the tables of other libraries."""

    def __init__(self) -> None:
        self.values = np.ones((1, 3))

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return self.values if dtype is None else self.values.astype(dtype)

    def __setitem__(self, key: Any, value: float) -> None:
        self.values[key] = value


@pytest.mark.fast
@pytest.mark.parametrize("way", ["leader", "all", "sums"])
def test_observed_rounds_are_copied(way: str) -> None:
    """Tensors, arrays, lists and tables: what is written into them later is not learnt."""
    shared, single = SharedLearner(OFUL(3), learn_on=way), OFUL(3)
    lists = [[1.0, 1.0, 1.0]], [[torch.tensor(1.0, requires_grad=True)] * 3]
    for value in (ARMS.clone(), ARMS.numpy().copy(), *lists, Frame()):
        shared.observe(value, 0, 1.0)
        single.step(ARMS, 0, 1.0)
        if isinstance(value, list):
            value[0][0] = 7.0
        else:
            value[:] = 7.0
    shared.sync()
    torch.testing.assert_close(shared.learner.theta_hat, single.estimator.theta_hat)


@pytest.mark.fast
def test_block_sizes_are_passed_on() -> None:
    rounds = torch.randn(40, 1, 3, dtype=D), torch.zeros(40, dtype=torch.int64), torch.randn(40, dtype=D)
    for way in ("leader", "all", "sums"):
        shared, single = SharedLearner(AnytimeHeavyTailUCB(3), learn_on=way, block_size=7), AnytimeHeavyTailUCB(3)
        shared.observe(*rounds)
        shared.sync()
        single.learn(*rounds, block_size=7)
        assert digest([shared.learner.P]) == digest([single.estimator.P])


@pytest.mark.fast
def test_a_policy_with_a_step_of_its_own_takes_it() -> None:
    class Doubtful(OFUL):
        def step(self, inputs: Any, action: Any, reward: Any, noise_scale: Any = None) -> None:  # type: ignore[override]
            super().step(inputs, action, 0.5 * reward, noise_scale=noise_scale)

    shared, single = SharedLearner(Doubtful(3)), Doubtful(3)
    for _ in range(20):
        shared.observe(ARMS, 0, torch.tensor(1.0))
        single.step(ARMS, 0, torch.tensor(1.0))
    shared.sync()
    assert digest([shared.learner.theta_hat]) == digest([single.estimator.theta_hat])
    with pytest.raises(ValueError, match=r"for RidgeRegression, which has no sums over rounds to add"):
        SharedLearner(Doubtful(3), learn_on="sums")


@pytest.mark.fast
def test_bad_arguments_are_refused_by_name() -> None:
    with pytest.raises(TypeError, match=r"^policy: expected a policy or another learner, got Linear$"):
        SharedLearner(torch.nn.Linear(2, 2))
    for way in ("Leader", "", "mean"):
        with pytest.raises(ValueError, match=r"^learn_on: expected one of 'leader', 'all', 'sums', got "):
            SharedLearner(OFUL(2), learn_on=way)
    for wrong in (None, 1, True):
        with pytest.raises(TypeError, match=r"^learn_on: expected one of "):
            SharedLearner(OFUL(2), learn_on=wrong)
    for size, kind in ((0, ValueError), (-1, ValueError), (1.5, TypeError), ("8", TypeError), (True, TypeError)):
        with pytest.raises(kind, match=r"^block_size: expected an integer"):
            SharedLearner(OFUL(2), block_size=size)
    with pytest.raises(ValueError, match=r"^group: expected None without torch.distributed.init_process_group"):
        SharedLearner(OFUL(2), group=object())
    shared = SharedLearner(OFUL(2))
    with pytest.raises(TypeError, match=r"^observe\(\) missing a required argument: 'reward'$"):
        shared.observe(ARMS, 0)
    with pytest.raises(TypeError, match=r"^observe\(\) got an unexpected keyword argument 'weight'$"):
        shared.observe(ARMS, 0, 1.0, weight=2.0)
    assert shared.pending == 0


@pytest.mark.fast
def test_wrong_rounds_change_nothing() -> None:
    """In one process too, bit for bit; discard() drops them."""
    for name, (policy, spoil) in ranks.bad_rounds().items():
        shared = SharedLearner(policy)
        before = digest(shared._shared_state())
        ranks.good_round(shared)
        spoil(shared)
        waiting = shared.pending
        with pytest.raises((ValueError, TypeError), match=r"^rank 0: \w+: expected "):
            shared.sync()
        assert digest(shared._shared_state()) == before, name
        assert shared.pending == shared.discard() == waiting
        ranks.good_round(shared)
        assert shared.sync() == 1


def test_features_that_move_again_are_refused_before_a_sync() -> None:
    """A reset lets a frozen scaler move again, and sums have no meaning then."""
    policy = ScaledPolicy(RidgeRegression(4), StandardScaler(3, freeze_after=4))
    rounds = torch.randn(5, 1, 3, dtype=D), [0] * 5, torch.randn(5)
    policy.step(*rounds)
    shared = SharedLearner(policy, learn_on="sums")
    shared.observe(*rounds)
    assert shared.sync() == 5
    policy.reset()
    shared.observe(*rounds)
    with pytest.raises(ValueError, match=r"for ScaledPolicy, whose features move, got 'sums'"):
        shared.sync()
    assert shared.pending == 5


@pytest.mark.fast
def test_a_torn_learner_is_refused() -> None:
    shared = SharedLearner(OFUL(3))
    shared.observe(ARMS, 0, 1.0)
    shared.learner.__dict__["_is_torn"] = True
    with pytest.raises(RuntimeError, match=r"state: expected the whole state of RidgeRegression"):
        shared.sync()
    with pytest.raises(RuntimeError, match=r"state: expected the whole state of RidgeRegression"):
        shared.broadcast()
    shared.learner.reset()
    assert shared.sync() == 1


def test_steps_that_do_not_join_are_all_or_nothing() -> None:
    """A wrong gradient among good ones, after some were learnt; on NumPy views and, as large states do, on tensors."""
    for dim in (3, 120):
        shared = SharedLearner(OONS(dim, lipschitz=1.0))
        good = torch.full((dim,), 0.01, dtype=D)
        shared.observe(good)
        shared.sync()
        before = digest(shared._shared_state())
        for gradient in (good, good, torch.nan * good, good):
            shared.observe(gradient)
        with pytest.raises(
            ValueError, match=r"^rank 0: gradients: expected finite values, got nan; no rank has learnt"
        ):
            shared.sync()
        assert digest(shared._shared_state()) == before
        assert shared.pending == 4
        shared.discard()
        shared.observe(good)
        assert shared.sync() == 1


@pytest.mark.fast
def test_a_process_group_is_not_pickled() -> None:
    shared = SharedLearner(OFUL(3))
    for save in (pickle.dumps, lambda value: torch.save(value, io.BytesIO())):
        with pytest.raises(TypeError, match=r"^pickle: expected a learner without a process group, .* save state_dict"):
            save(shared)
    assert copy.deepcopy(shared).ranks is shared.ranks
    loaded = SharedLearner(OFUL(3))
    shared.observe(ARMS, 0, 1.0)
    shared.sync()
    loaded.load_state_dict(shared.state_dict())
    assert digest(loaded._shared_state()) == digest(shared._shared_state())


@pytest.mark.fast
def test_a_budget_ends_in_one_process_too() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        shared = SharedLearner(DPTOFW(3, horizon=2, epsilon=1.0, delta=1e-3))
    for _ in range(3):
        shared.observe(torch.zeros(2, 3))
    with pytest.raises(RuntimeError, match=r"the privacy budget is spent$"):
        shared.sync()
    assert int(shared.learner.rounds) == 2
    assert shared.pending == 0


def test_a_private_step_that_fails_halfway_counts_and_its_state_stays() -> None:
    shared = SharedLearner(DPTOFW(3, horizon=9, epsilon=1.0, delta=1e-3))
    for _ in range(3):
        shared.observe(torch.zeros(2, 3))
    calls, own = [], shared.learner._move

    def learn(*arguments: Any) -> None:
        calls.append(1)
        if len(calls) == 2:
            raise MemoryError("no room")
        own(*arguments)

    shared.learner.__dict__["_move"] = learn
    heard: list[Any] = []
    shared.ranks.broadcast = lambda tensors: heard.append(tensors) or list(tensors)  # type: ignore[method-assign,func-returns-value]
    with pytest.raises(RuntimeError, match=r"no room"):
        shared.sync()
    assert int(shared.learner.rounds) == 2
    # Both records may be released, and are not asked for again; what is half written does not travel.
    assert shared.pending == 0
    assert not any(bool(tensor.any()) for tensor in heard[0][1:])
    with pytest.raises(RuntimeError, match=r"state: expected the whole state of DPTOFW"):
        shared.sync()


@pytest.mark.fast
def test_shares_are_in_proportion() -> None:
    generator = torch.Generator().manual_seed(0)
    for _ in range(200):
        left = torch.randint(0, 9, (5,), generator=generator).tolist()
        for size in range(1, sum(left) + 1):
            shares = shares_of(left, size)
            assert sum(shares) == size
            for share, rest in zip(shares, left, strict=True):
                assert 0 <= share <= rest
                assert abs(share - size * rest / sum(left)) <= 1.0
    assert shares_of([0, 10, 30], 4) == [0, 1, 3]


@pytest.mark.fast
def test_notes_and_errors_arrive() -> None:
    for outcome in (
        _Outcome(),
        _Outcome("ValueError: x: expected é, got ü", False, False),
        _Outcome("a: b", True, True),
    ):
        note = outcome.as_note()
        assert note.numel() == NOTE_BYTES
        assert _Outcome.of_note(note) == outcome
    long = _Outcome.of_note(_Outcome("ValueError: " + "é" * NOTE_BYTES, False, False).as_note())
    assert long.error is not None
    assert long.error.startswith("ValueError: é")
    for error in (ValueError("x: 1"), TypeError("y"), RuntimeError("z"), torch.linalg.LinAlgError("w")):
        back = error_from_text(text_of_error(error, 3))
        assert str(back) == f"rank 3: {error}"
        assert type(back) is (type(error) if isinstance(error, (ValueError, TypeError)) else RuntimeError)
    assert str(error_from_text(text_of_error(KeyboardInterrupt()))) == "interrupted by KeyboardInterrupt"


@pytest.mark.fast
def test_a_digest_tells_every_bit() -> None:
    tensors = [
        torch.zeros(()),
        torch.zeros(3, 2, dtype=D),
        torch.zeros(5, dtype=torch.bool),
        torch.zeros((), dtype=torch.int64),
    ]
    seen = {digest(tensors)}
    for i, tensor in enumerate(tensors):
        for place in range(tensor.numel()):
            changed = [each.clone() for each in tensors]
            changed[i].view(-1)[place] = -0.0 if tensor.is_floating_point() else 1
            seen.add(digest(changed))
    assert len(seen) == 1 + sum(tensor.numel() for tensor in tensors)
    assert digest([torch.eye(3).T, torch.ones(2, 3).T]) == digest([torch.eye(3), torch.ones(3, 2)])


@pytest.mark.fast
def test_messages_keep_types_and_values() -> None:
    value = {
        "x": torch.randn(3, 2, dtype=D).T,
        "half": torch.ones(3, dtype=torch.bfloat16),
        "bool": torch.tensor([True, False]),
        "empty": torch.empty(0, 3),
        "grad": torch.ones(2, requires_grad=True),
        "rest": [1, 2.5, "word", None],
    }
    back = unpacked(packed(value))
    assert back["rest"] == value["rest"]
    for name in ("x", "half", "bool", "empty", "grad"):
        assert torch.equal(back[name], value[name])
        assert back[name].dtype is value[name].dtype
        assert not back[name].is_shared()
    back["x"][0] = 0.0  # memory of its own, to write


@pytest.mark.fast
def test_one_rank_says_what_it_is_told() -> None:
    ones = Ranks()
    assert ones.gather(5) == ones.all_gather(5) == [5]
    assert ones.broadcast_object("word") == "word"
    assert ones.agree("ValueError: x", 2**64 - 1) == ("ValueError: x", [[-1]])
    assert torch.equal(ones.sum(ONES), ONES)
    assert torch.equal(ones.largest(ONES), ONES)


def test_a_group_of_one_rank_learns_alone(tmp_path: Path) -> None:
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        for way in ("leader", "all", "sums"):
            shared = SharedLearner(OFUL(3), learn_on=way)
            shared.observe(ARMS, 0, 1.0)
            assert shared.sync() == 1
        private = SharedLearner(DPTOFW(3, horizon=9, epsilon=1.0, delta=1e-3))
        private.observe(torch.zeros(2, 3))
        assert private.sync() == 1
    finally:
        torch.distributed.destroy_process_group()


@pytest.mark.parametrize("way", ["leader", "sums"])
def test_the_example_runs_under_torchrun(way: str, tmp_path: Path) -> None:
    example = Path(__file__).parents[1] / "examples" / "distributed" / "bandit.py"
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(example)]
    command = [sys.executable, *launch, "--smoke", "--learn-on", way, "--output", str(tmp_path)]
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=single_threaded(), start_new_session=True)
    try:
        code = process.wait(LIMIT)
    finally:
        if process.poll() is None:  # with the ranks that it has started
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    said = (tmp_path / "log").read_text()
    assert code == 0, said[-3000:]
    assert f"2 processes, 200 rounds each, learn_on={way!r}: 400 learnt" in said
    assert "one state on all processes: True; the confidence set holds the truth: True" in said
    assert set(torch.load(tmp_path / "bandit.pt")) == set(AnytimeHeavyTailUCB(16).state_dict())


def test_threads_choose_while_a_process_syncs() -> None:
    shared, wrong, is_over = SharedLearner(AnytimeHeavyTailUCB(3)), [], threading.Event()

    def choose() -> None:
        while not is_over.is_set():
            try:
                shared.select(torch.eye(3, dtype=D))
            except Exception as error:
                wrong.append(error)

    thread = threading.Thread(target=choose)
    thread.start()
    for _ in range(50):
        shared.observe(ARMS, 0, 1.0)
        shared.sync()
    is_over.set()
    thread.join()
    assert wrong == []
