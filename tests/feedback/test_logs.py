"""Every log on every database: what is stored, joined, closed and read."""

import math
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from tests.feedback.logs import ARMS, fill
from torchonline import OFUL
from torchonline.feedback import ConflictError, Decision, DecisionLog, FeedbackLog

Open = Callable[..., FeedbackLog]


def test_a_decision_comes_back_as_it_was(open_log: Open) -> None:
    mask = torch.tensor([True, False, True])
    with open_log() as log:
        stored = log.decide("one", ARMS, 2, 0.25, mask=mask, encoder="v7", time=12.5)
        assert log.reward("one", -0.5, time=13.0) == "joined"
    (entry,), (decision,) = open_log().read(), open_log().decisions()
    assert (entry.position, entry.id, entry.action, entry.probability, entry.encoder) == (1, "one", 2, 0.25, "v7")
    assert (entry.time, entry.known_at, entry.reward, entry.is_default, entry.number) == (12.5, 13.0, -0.5, False, 1)
    for found in (entry, decision, stored):
        assert torch.equal(found.inputs, ARMS)
        assert found.inputs.dtype == ARMS.dtype
        assert found.mask is not None
        assert torch.equal(found.mask, mask)
    assert decision._replace(inputs=ARMS, mask=None) == Decision("one", ARMS, 2, 0.25, None, "v7", 12.5, 1)


@pytest.mark.parametrize(
    "inputs",
    [
        torch.zeros(2, 3, 4, dtype=torch.uint8),
        torch.tensor([1.5, math.nan, math.inf, -0.0]),
        torch.tensor(3),
        torch.randn(3, 2).to(torch.float16),
        torch.randn(4, 4)[:, 1:3].mT,
        torch.zeros(0, 2),
        torch.tensor([1.0 + 2.0j]).conj(),
        torch.tensor([1.0 + 2.0j]).conj().imag,
    ],
)
def test_inputs_of_any_type_and_shape(inputs: torch.Tensor) -> None:
    log = DecisionLog(":memory:")
    log.decide("x", inputs, 0, 1.0)
    (found,) = log.decisions()
    assert found.inputs.dtype == inputs.dtype
    assert torch.equal(found.inputs, inputs) or torch.equal(found.inputs.isnan(), inputs.isnan())


def test_inputs_of_bfloat16_and_lists(open_log: Open) -> None:
    log = open_log()
    log.decide(
        "half", torch.tensor([1.5], dtype=torch.bfloat16, requires_grad=True), torch.tensor(0), torch.tensor(0.5)
    )
    log.decide("list", [[1, 2], [3, 4]], 1, 0.5, mask=[True, True])
    half, plain = log.decisions()
    assert half.inputs.dtype == torch.float32
    assert half.inputs.tolist() == [1.5]
    assert plain.inputs.tolist() == [[1.0, 2.0], [3.0, 4.0]]


def test_a_probability_that_float32_rounds_above_1() -> None:
    log = DecisionLog(":memory:")
    above = torch.nextafter(torch.tensor(1.0), torch.tensor(2.0))
    assert log.decide("a", ARMS, 0, above).probability == 1.0
    with pytest.raises(ValueError, match="probability: expected a number in"):
        log.decide("b", ARMS, 0, 1.00001)


def test_a_reward_is_joined_once(open_log: Open) -> None:
    log = open_log()
    log.decide("a", ARMS, 0, 1.0)
    assert [log.reward("a", value) for value in (1.0, 2.0, 1.0)] == ["joined", "duplicate", "duplicate"]
    assert [entry.reward for entry in log.read()] == [1.0]
    counts = log.counts()
    assert (counts["known"], counts["duplicates"], counts["open"], counts["decisions"]) == (1, 2, 0, 1)


def test_a_reward_without_a_decision_waits_for_it(open_log: Open) -> None:
    log = open_log()
    assert [log.reward("late to log", 0.5), log.reward("late to log", 0.7)] == ["unknown", "duplicate"]
    assert log.read() == []
    log.decide("late to log", ARMS, 1, 0.5)
    assert [entry.reward for entry in log.read()] == [0.5]
    counts = log.counts()
    assert (counts["unknown"], counts["strays"], counts["known"]) == (1, 0, 1)


def test_a_repeated_call_gets_the_first_decision(open_log: Open) -> None:
    log = open_log()
    log.decide("a", ARMS, 0, 0.3, time=1.0)
    again = log.decide("a", ARMS, 2, 0.7, time=2.0)
    assert (again.action, again.probability, again.time, again.number) == (0, 0.3, 1.0, 1)
    with pytest.raises(ConflictError, match="id: expected a new id, got 'a'"):
        log.decide("a", ARMS + 1.0, 0, 0.3)
    with pytest.raises(ConflictError, match="id: "):
        log.decide("a", ARMS, 0, 0.3, mask=[True, True, True])
    assert (log.counts()["decisions"], log.counts()["repeats"]) == (1, 1)


def test_positions_follow_the_order_of_rewards(open_log: Open) -> None:
    log = open_log()
    for name in "abcd":
        log.decide(name, ARMS, 0, 1.0)
    for name in "cab":
        log.reward(name, 1.0)
    assert [(entry.position, entry.id) for entry in log.read()] == [(1, "c"), (2, "a"), (3, "b")]
    assert [entry.id for entry in log.read(after=1, limit=1)] == ["a"]
    assert [decision.id for decision in log.decisions(after=2)] == ["c", "d"]


def test_a_window_closes_at_the_default(open_log: Open) -> None:
    log = open_log(window=10.0, default_reward=-1.0)
    for moment, name in enumerate("abc"):
        log.decide(name, ARMS, 0, 1.0, time=float(moment))
    log.reward("b", 5.0, time=3.0)
    assert log.close_due(now=9.9) == 0
    assert log.close_due(now=10.5) == 1  # a
    assert [(entry.id, entry.reward, entry.is_default) for entry in log.read()] == [
        ("b", 5.0, False),
        ("a", -1.0, True),
    ]
    assert log.reward("a", 1.0, time=10.6) == "late"
    assert log.reward("c", 1.0, time=12.1) == "late"  # over, although nobody had closed it
    assert [entry.reward for entry in log.read()] == [5.0, -1.0, -1.0]
    counts = log.counts()
    assert (counts["late"], counts["defaults"], counts["open"]) == (2, 2, 0)


def test_held_rewards_wait_for_the_window(open_log: Open) -> None:
    log = open_log(window=10.0, hold=True)
    for moment, name in enumerate("abc"):
        log.decide(name, ARMS, 0, 1.0, time=float(moment))
    assert [log.reward("c", 3.0, time=4.0), log.reward("c", 4.0, time=4.0)] == ["joined", "duplicate"]
    assert log.reward("a", 1.0, time=5.0) == "joined"
    assert log.read() == []
    assert log.close_due(now=11.0, limit=1) == 1
    assert log.close_due(now=13.0) == 2
    found = [(entry.id, entry.reward, entry.is_default, entry.known_at) for entry in log.read()]
    assert found == [("a", 1.0, False, 5.0), ("b", 0.0, True, 13.0), ("c", 3.0, False, 4.0)]


def test_a_stray_reward_may_come_after_the_window(open_log: Open) -> None:
    log = open_log(window=1.0)
    log.reward("a", 1.0, time=50.0)
    log.decide("a", ARMS, 0, 1.0, time=2.0)
    assert [(entry.reward, entry.is_default) for entry in log.read()] == [(0.0, True)]
    assert log.counts()["late"] == 1


def test_a_log_keeps_its_settings(open_log: Open) -> None:
    first = open_log(window=5.0, default_reward=2.0)
    second = open_log()
    assert (second.window, second.default_reward, second.hold, second.name) == (5.0, 2.0, False, first.name)
    with pytest.raises(ValueError, match=r"window: expected 5\.0, as the log was created, got 6\.0"):
        open_log(window=6.0)
    with pytest.raises(ValueError, match="hold: expected False"):
        open_log(hold=True)


def test_a_log_refuses_features_above_its_largest(open_log: Open) -> None:
    """All decisions of a call, or none; another object may have another limit."""
    log = open_log(largest=100.0)
    with pytest.raises(ValueError, match=r"inputs: expected magnitudes up to largest=100, got 102"):
        log.decide_many([Decision("a", ARMS, 0, 1.0), Decision("b", ARMS - 102.0, 0, 1.0)])
    assert log.counts()["decisions"] == 0
    log.decide("a", 100.0 * ARMS, 0, 1.0)
    open_log().decide("b", 1e9 * ARMS, 0, 1.0)
    assert [entry.id for entry in log.decisions()] == ["a", "b"]
    for bad in (0.0, -1.0, float("nan"), "1"):
        with pytest.raises((TypeError, ValueError), match="largest: expected"):
            open_log(largest=bad)


def test_hold_needs_a_window(open_log: Open) -> None:
    with pytest.raises(ValueError, match="hold: expected False, because there is no window"):
        open_log(hold=True)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"id": ""}, ValueError, "id: expected 1 to 512 bytes"),
        ({"id": "x" * 513}, ValueError, "id: expected 1 to 512"),
        ({"id": "a\0b"}, ValueError, "id: expected 1 to 512 bytes of UTF-8 without NUL"),
        ({"id": "\ud800"}, ValueError, "id: expected a string that UTF-8 can encode"),
        ({"id": 7}, TypeError, "id: expected a string, got int"),
        ({"inputs": "text"}, TypeError, "inputs: expected"),
        ({"inputs": None}, TypeError, "inputs: expected"),
        ({"action": -1}, ValueError, "action: expected an integer of at least 0, got -1"),
        ({"action": 1.0}, TypeError, "action: expected an integer, got float"),
        ({"action": True}, TypeError, "action: expected an integer, got bool"),
        ({"action": 3, "mask": [True, True, True]}, ValueError, "action: expected an available arm, got 3"),
        ({"action": 1, "mask": [True, False, True]}, ValueError, "action: expected an available arm, got 1"),
        ({"mask": [1, 0, 1]}, ValueError, r"mask: expected booleans of shape \(K\)"),
        ({"probability": 0.0}, ValueError, "probability: expected a number in"),
        ({"probability": 1.1}, ValueError, "probability: expected a number in"),
        ({"probability": math.nan}, ValueError, "probability: expected a finite number"),
        ({"probability": torch.ones(2)}, TypeError, "probability: expected one number, got torch.float32 of shape"),
        ({"action": torch.tensor([1, 2])}, TypeError, "action: expected one number, got torch.int64 of shape"),
        ({"inputs": torch.ones(2, device="meta")}, TypeError, "inputs: expected a tensor that NumPy can hold"),
        ({"inputs": torch.ones(2).to(torch.float8_e5m2)}, TypeError, "inputs: expected a tensor that NumPy can hold"),
        ({"encoder": None}, TypeError, "encoder: expected a string"),
        ({"encoder": "a\0b"}, ValueError, "encoder: expected 0 to 512 bytes of UTF-8 without NUL"),
        ({"encoder": "\ud800"}, ValueError, "encoder: expected a string that UTF-8 can encode"),
        ({"time": math.inf}, ValueError, "time: expected a finite number"),
    ],
)
def test_bad_decisions_are_refused(change: dict[str, Any], error: type[Exception], message: str) -> None:
    log = DecisionLog(":memory:")
    arguments: dict[str, Any] = {"id": "a", "inputs": ARMS, "action": 0, "probability": 1.0}
    with pytest.raises(error, match=message):
        log.decide(**arguments | change)
    assert log.counts()["decisions"] == 0


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 10**400])
def test_rewards_must_be_finite(value: float) -> None:
    log = DecisionLog(":memory:")
    log.decide("a", ARMS, 0, 1.0)
    with pytest.raises(ValueError, match="value: expected a finite number"):
        log.reward("a", value)
    with pytest.raises(TypeError, match="value: expected a number"):
        log.reward("a", "one")  # type: ignore[arg-type]
    for wrong in (torch.ones(2), torch.ones(0), torch.ones((), device="meta"), np.ones(2)):
        with pytest.raises(TypeError, match="value: expected one number"):
            log.reward("a", wrong)  # type: ignore[arg-type]
    assert log.counts()["open"] == 1
    assert [log.reward("a", np.float32(0.5))] == ["joined"]


@pytest.mark.parametrize(
    ("decisions", "rewards", "message"),
    [
        (5, (), "decisions: expected an iterable, got int"),
        (["a"], (), "decisions: expected Decisions, got str"),
        ((), 5, "rewards: expected an iterable, got int"),
        ((), "ab", "rewards: expected an iterable, got str"),
        ((), [5], r"rewards: expected pairs \(id, value\), got int"),
        ((), ["ab"], r"rewards: expected pairs \(id, value\), got str"),
        ((), [("a", 1.0), ("a", 1.0, 2.0)], r"rewards: expected pairs \(id, value\), got tuple"),
        ((), {"a": 1.0}, r"rewards: expected pairs \(id, value\), got str"),
    ],
)
def test_entries_that_are_no_decisions_or_pairs_are_refused(decisions: Any, rewards: Any, message: str) -> None:
    log = DecisionLog(":memory:")
    log.decide("a", ARMS, 0, 1.0)
    with pytest.raises(TypeError, match=message):
        log.write(decisions, rewards)
    assert log.counts()["open"] == 1


def test_pairs_are_whatever_unpacks_into_two() -> None:
    log = DecisionLog(":memory:")
    for id in "abcd":
        log.decide(id, ARMS, 0, 1.0)
    rewards = [np.array(["a", 1.0], dtype=object), ["b", 1.0], iter(("c", 1.0)), ("d", torch.tensor(1.0))]
    assert log.reward_many(iter(rewards)) == ["joined"] * 4  # type: ignore[arg-type]


def test_many_decisions_and_rewards_in_one_transaction(open_log: Open) -> None:
    log = open_log()
    found = log.decide_many([Decision(f"{i % 4}", ARMS + i // 4, 0, 1.0) for i in range(5)])
    assert [getattr(decision, "number", None) for decision in found] == [1, 2, 3, 4, None]
    assert isinstance(found[4], ConflictError)
    assert log.reward_many([("0", 1.0), ("0", 1.0), ("9", 2.0), ("3", 3.0)]) == [
        "joined",
        "duplicate",
        "unknown",
        "joined",
    ]
    with pytest.raises(ValueError, match="value: "):
        log.reward_many([("1", 1.0), ("2", math.nan)])
    assert [entry.id for entry in log.read()] == ["0", "3"]


def test_a_decision_without_a_time_is_of_now(open_log: Open) -> None:
    log = open_log(window=1000.0)
    before = time.time()
    log.decide_many([Decision("a", ARMS, 0, 1.0)])
    assert log.reward("a", 1.0) == "joined"  # its window is not over
    assert before <= log.read()[0].time <= time.time()


def test_sixteen_threads_lose_nothing(open_log: Open) -> None:
    log, policy = open_log(), OFUL(2)

    def serve(name: int) -> None:
        for i in range(20):
            k, probability = policy.select_with_probability(ARMS)
            log.decide(f"{name}/{i}", ARMS, k, probability)
            assert log.reward(f"{name}/{i}", 0.5) == "joined"

    threads = [threading.Thread(target=serve, args=(name,)) for name in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    entries = log.read()
    assert [entry.position for entry in entries] == list(range(1, 321))
    assert {entry.id for entry in entries} == {f"{name}/{i}" for name in range(16) for i in range(20)}
    assert (log.counts()["decisions"], log.counts()["known"]) == (320, 320)


def test_two_writers_get_positions_without_gaps(open_log: Open) -> None:
    logs = [open_log(), open_log()]

    def serve(log: FeedbackLog, name: int) -> None:
        for i in range(40):
            log.decide(f"{name}/{i}", ARMS, 0, 1.0)
            log.reward(f"{name}/{i}", 0.5)

    threads = [threading.Thread(target=serve, args=(log, name)) for name, log in enumerate(logs)]
    seen, reader = [0], open_log()
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads) or len(seen) < 81:
        seen += [entry.position for entry in reader.read(after=seen[-1])]
    assert seen == list(range(81))  # a reader that goes on from the last position misses none


def test_blocks_are_remembered(open_log: Open) -> None:
    log = open_log()
    fill(log, 20)
    known = log.counts()["known"]
    assert log.block_end("one", 0, 8) == 8
    assert log.block_end("one", 8, 100) == known
    fill(log, 20, start=20)
    again = open_log()
    assert [again.block_end("one", after, 100) for after in (0, 8)] == [8, known]
    assert again.block_end("two", 0, 100) == log.counts()["known"]
    assert again.block_end("two", log.counts()["known"], 100) == log.counts()["known"]


def test_learners_of_one_name_learn_the_same_blocks(open_log: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    log, other = open_log(), open_log()
    fill(log, 20)
    write = log._write  # type: ignore[attr-defined]

    def late(call: Any) -> Any:
        other.block_end("one", 0, 5)
        return write(call)

    monkeypatch.setattr(log, "_write", late)
    assert log.block_end("one", 0, 8) == 5


def test_reading_is_checked() -> None:
    log = DecisionLog(":memory:")
    with pytest.raises(ValueError, match=r"limit: expected an integer from 1 to 2\^53"):
        log.read(limit=10**30)
    with pytest.raises(ValueError, match="learner: expected a string that UTF-8 can encode"):
        log.block_end("\ud800", 0, 1)
    with pytest.raises(TypeError, match="decisions: expected Decisions, got tuple"):
        log.decide_many([("a", ARMS, 0, 1.0)])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="after: expected an integer of at least 0, got -1"):
        log.read(-1)
    with pytest.raises(ValueError, match="limit: expected an integer above 0, got 0"):
        log.read(0, 0)


def test_waiting_decisions_are_those_that_are_not_learnt(open_log: Open) -> None:
    log = open_log()
    for i in range(6):
        log.decide(str(i), ARMS, 0, 1.0)
    for i in (4, 0, 2):
        log.reward(str(i), 1.0)

    def ids(*arguments: int) -> list[str]:
        return [one.id for one in log.waiting(*arguments)]

    assert ids(3) == ids(9) == ["1", "3", "5"]
    assert ids() == ["0", "1", "2", "3", "4", "5"]
    assert ids(1) == ["0", "1", "2", "3", "5"]
    assert ids(3, 2) == ["3", "5"]
    assert log.waiting(3)[0].number == 2
    with pytest.raises(ValueError, match="after"):
        log.waiting(-1)


def test_decisions_wait_until_the_window_is_over(open_log: Open) -> None:
    log = open_log(window=10.0, hold=True)
    for i in range(3):
        log.decide(str(i), ARMS, 0, 1.0, time=100.0 + i)
    log.reward("1", 1.0, time=103.0)
    assert len(log.waiting()) == 3
    log.close_due(now=111.5)
    assert [one.id for one in log.waiting(2)] == ["2"]
