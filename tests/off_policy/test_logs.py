"""Logs: what they check, and where they come from."""

import datetime
import importlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

from torchonline import DisjointArms, EpsilonGreedy, Greedy, RidgeRegression
from torchonline.feedback import DecisionLog
from torchonline.models import BanditHead
from torchonline.off_policy import (
    BanditLog,
    at_positions,
    from_decisions,
    from_frame,
    ips,
    target_probabilities,
    to_obp,
)

GOOD: dict[str, Any] = {
    "arms": 3,
    "action": [0, 1, 2, 1],
    "reward": [0.0, 1.0, 1.0, 0.0],
    "probability": [0.5, 0.25, 1.0, 0.1],
    "context": torch.randn(4, 2, generator=torch.Generator().manual_seed(0)),
    "mask": [[True, False, False], [True, True, True], [False, False, True], [True, True, False]],
    "groups": [7, -2, 7, 3],
    "time": [1.0, 2.0, 2.0, 5.0],
    "position": [0, 1, 2, 0],
}


def test_a_log_is_checked_copied_and_cut() -> None:
    context = GOOD["context"].clone()
    log = BanditLog(**(GOOD | {"context": context}))
    context.zero_()
    assert torch.equal(log.context, GOOD["context"].double())
    assert log.context.dtype == log.reward.dtype == torch.float64
    assert log.groups.tolist() == [2, 0, 2, 1]
    assert (
        repr(log) == "BanditLog(4 rounds, arms=3: action, reward, probability, context, mask, groups, time, position)"
    )
    later = log[log.time > 1.5]
    assert (later.action.tolist(), later.groups.tolist(), later.mask.shape) == ([1, 2, 1], [0, 2, 1], (3, 3))
    assert log[1:3].position.tolist() == [1, 2]
    assert log[[3, 0]].action.tolist() == log[torch.tensor([3, 0])].action.tolist() == [1, 0]
    assert torch.equal(log.group_sums(log.time), torch.tensor([2.0, 5.0, 3.0], dtype=torch.float64))
    assert BanditLog(arms=1, action=[0], reward=[True], probability=[1]).reward.tolist() == [1.0]


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"arms": 0}, ValueError),
        ({"arms": 2.0}, TypeError),
        ({"action": [0, 1, 3, 1]}, ValueError),
        ({"action": [0, 1, -1, 1]}, ValueError),
        ({"action": [0.0, 1.0, 2.0, 1.0]}, TypeError),
        ({"action": []}, ValueError),
        ({"action": [[0, 1, 2, 1]]}, ValueError),
        ({"reward": [0.0, 1.0, 1.0]}, ValueError),
        ({"reward": [0.0, 1.0, float("nan"), 0.0]}, ValueError),
        ({"reward": None}, TypeError),
        ({"reward": ["a"] * 4}, TypeError),
        ({"probability": [0.5, 0.25, 1.0, 0.0]}, ValueError),
        ({"probability": [0.5, 0.25, 1.1, 0.5]}, ValueError),
        ({"probability": [0.5, 0.25, 1e-60, 0.5]}, ValueError),
        ({"probability": [0.5, 0.25, float("nan"), 0.5]}, ValueError),
        ({"context": torch.zeros(4)}, ValueError),
        ({"context": torch.zeros(3, 2)}, ValueError),
        ({"context": torch.zeros(4, 2, 2)}, ValueError),
        ({"context": torch.full((4, 2), torch.inf)}, ValueError),
        ({"context": torch.zeros(4, 2, dtype=torch.int64)}, TypeError),
        ({"mask": [[False, True, True]] * 4}, ValueError),
        ({"mask": [[True, True]] * 4}, ValueError),
        ({"mask": [[1, 1, 1]] * 4}, TypeError),
        ({"groups": [0, 1]}, ValueError),
        ({"groups": [0.5] * 4}, TypeError),
        ({"time": [0.0] * 3}, ValueError),
        ({"position": [-1, 0, 0, 0]}, ValueError),
    ],
)
def test_a_log_refuses_by_name(changes: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error, match=f"^{next(iter(changes))}: expected"):
        BanditLog(**(GOOD | changes))


def test_rows_are_no_number() -> None:
    with pytest.raises(TypeError, match=r"^rows: expected a slice, indices or booleans, got int"):
        BanditLog(**GOOD)[0]
    for rows in (None, [0.0], torch.tensor(0), torch.zeros(1, 1, dtype=torch.int64), torch.zeros(4)):
        with pytest.raises(TypeError, match=r"^rows: expected a slice, indices or booleans, got"):
            BanditLog(**GOOD)[rows]
    with pytest.raises(ValueError, match=r"^action: expected shape \(N\) with N above 0"):
        BanditLog(**GOOD)[[]]
    for dtype in (torch.int32, torch.uint8):
        assert BanditLog(**GOOD)[torch.tensor([2, 0], dtype=dtype)].action.tolist() == [2, 0]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_the_probabilities_of_a_policy(dtype: torch.dtype) -> None:
    context = torch.randn(50, 3, 2, generator=torch.Generator().manual_seed(0))
    policy = EpsilonGreedy(RidgeRegression(2, dtype=dtype), epsilon=0.3)
    policy.step(torch.tensor([[1.0, -1.0]]), 0, 1.0)
    mask = torch.ones(50, 3, dtype=torch.bool)
    mask[:, 2] = False
    log = BanditLog(arms=3, action=[0, 1] * 25, reward=[1.0] * 50, probability=[0.5] * 50, context=context, mask=mask)
    found = target_probabilities(log, policy)
    assert found.dtype == torch.float64
    torch.testing.assert_close(found, policy.probabilities(context.to(dtype), mask=mask).double())
    assert ips(log, policy).value == pytest.approx(float((2.0 * found[torch.arange(50), log.action]).mean()), rel=1e-12)
    arms = DisjointArms(Greedy(RidgeRegression(2)), actions=3)
    arms.step(context[:, 0].double(), torch.zeros(50, dtype=torch.int64), context[:, 0, 0].abs().double())
    positive = arms.predict(context[:, 0].double())[:, 0] > 0.0
    one = BanditLog(arms=3, action=[0] * 50, reward=[1.0] * 50, probability=[0.5] * 50, context=context[:, 0])
    assert torch.equal(target_probabilities(one, arms)[:, 0] == 1.0, positive)
    without = BanditLog(arms=3, action=[0], reward=[1.0], probability=[0.5])
    with pytest.raises(ValueError, match=r"^log: expected a log with context"):
        target_probabilities(without, arms)
    with pytest.raises(ValueError, match=r"^target: expected probability 0 for unavailable arms"):
        target_probabilities(log, torch.full((50, 3), 1.0 / 3.0))


def test_the_probabilities_of_any_object_and_of_a_tensor_with_a_gradient() -> None:
    class Uniform:
        def probabilities(self, context: Tensor, mask: Tensor | None = None) -> np.ndarray:
            return np.full((len(context), 3), 1.0 / 3.0)

    log = BanditLog(**(GOOD | {"context": torch.zeros(4, 2), "mask": None}))
    assert target_probabilities(log, Uniform()).tolist() == [[1.0 / 3.0] * 3] * 4
    assert not target_probabilities(log, torch.full((4, 3), 1.0 / 3.0, requires_grad=True)).requires_grad


def test_the_probabilities_of_a_head_on_an_encoder() -> None:
    context = torch.randn(20, 4, generator=torch.Generator().manual_seed(0))
    arms = DisjointArms(EpsilonGreedy(RidgeRegression(3), epsilon=0.3), actions=2)
    log = BanditLog(arms=2, action=[0, 1] * 10, reward=[1.0] * 20, probability=[0.5] * 20, context=context)
    for encoder, head_context in ((torch.nn.Linear(4, 3), context), (torch.nn.Identity(), context[:, :3].double())):
        head = BanditHead(encoder, arms)
        part = BanditLog(
            arms=2, action=log.action, reward=log.reward, probability=log.probability, context=head_context
        )
        expected = head.probabilities(head_context).detach().double()
        torch.testing.assert_close(target_probabilities(part, head), expected)


@pytest.fixture(params=["pandas", "polars"])
def library(request: pytest.FixtureRequest) -> Any:
    return importlib.import_module(request.param)


def test_a_frame_becomes_a_log(library: Any) -> None:
    days = [datetime.datetime(2024, 1, 1 + k, tzinfo=None) for k in range(3)]
    columns = {
        "arm": [0, 2, 1],
        "paid": [0, 1, 1],
        "p": [0.5, 0.25, 0.25],
        "age": [31, 40, 22],
        "rich": [1.5, 0.5, 1.0],
    }
    frame = library.DataFrame(columns | {"person": ["b", "a", "b"], "day": days, "place": [1, 2, 3]})
    log = from_frame(
        frame,
        action="arm",
        reward="paid",
        probability="p",
        context=["age", "rich"],
        groups="person",
        time="day",
        position="place",
    )
    assert (log.arms, log.action.tolist(), log.reward.tolist()) == (3, [0, 2, 1], [0.0, 1.0, 1.0])
    assert log.context.tolist() == [[31.0, 1.5], [40.0, 0.5], [22.0, 1.0]]
    assert (log.groups.tolist(), log.position.tolist()) == ([1, 0, 1], [0, 1, 2])
    assert log.time.diff().tolist() == [86400.0, 86400.0]
    assert log.time[0].item() == datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC).timestamp()
    plain = {"action": "arm", "reward": "paid", "probability": "p"}
    assert from_frame(frame, arms=7, **plain).arms == 7
    with pytest.raises(ValueError, match=r"^reward: expected a column of the frame, got 'pay'; it has 'arm', 'paid'"):
        from_frame(frame, **(plain | {"reward": "pay"}))
    with pytest.raises(TypeError, match=r"^context: expected a column of finite numbers, got 'person' with text"):
        from_frame(frame, context=["person"], **plain)
    with pytest.raises(ValueError, match=r"^context: expected no column of the reward, .* got \['paid'\]"):
        from_frame(frame, context=["age", "paid"], **plain)
    with pytest.raises(TypeError, match=r"^context: expected a list of columns, got str"):
        from_frame(frame, context="age", **plain)
    with pytest.raises(TypeError, match=r"^time: expected a column of numbers or dates, got 'person' of"):
        from_frame(frame, time="person", **plain)
    with pytest.raises(TypeError, match=r"^action: expected"):
        from_frame(frame, **(plain | {"action": "rich"}))
    text = library.DataFrame({"page": ["sale", "home", "sale"], "paid": [0, 1, 1], "p": [0.5, 0.5, 0.5]})
    by_name = plain | {"action": "page"}
    log = from_frame(text, actions=["home", "sale", "news"], **by_name)
    assert (log.arms, log.action.tolist()) == (3, [1, 0, 1])
    with pytest.raises(
        ValueError, match=r"^action: expected one of 'home', 'sales', got 'sale'; did you mean 'sales'\?$"
    ):
        from_frame(text, actions=["home", "sales"], **by_name)
    with pytest.raises(ValueError, match=r"^arms: expected None or 2, the number of names in actions, got 3$"):
        from_frame(text, arms=3, actions=["home", "sale"], **by_name)
    with pytest.raises(TypeError, match=r"^action: expected names of actions only, got 0 among them$"):
        from_frame(frame, actions=["home", "sale"], **plain)
    gaps = library.DataFrame({"arm": [0, 1], "paid": [1.0, None], "p": [0.5, 0.5]})
    with pytest.raises(ValueError, match=r"^reward: expected a column of finite numbers, got 'paid' with 1 gap"):
        from_frame(gaps, **plain)


def test_a_gap_is_no_date_group_or_position(library: Any) -> None:
    day = datetime.datetime(2024, 1, 1, tzinfo=None)
    columns = {"arm": [0, 1], "paid": [1.0, 0.0], "p": [0.5, 0.5], "day": [day, None], "name": ["b", None]}
    frame = library.DataFrame(columns | {"number": [1.0, float("nan")]})
    plain = {"action": "arm", "reward": "paid", "probability": "p"}
    for name, column in [("time", "day"), ("time", "number"), ("groups", "name"), ("groups", "number")]:
        with pytest.raises(ValueError, match=rf"^{name}: expected a column without gaps, got '{column}' with 1$"):
            from_frame(frame, **plain, **{name: column})
    with pytest.raises(ValueError, match=r"^position: expected a column without gaps, got 'number' with 1$"):
        from_frame(frame, **plain, position="number")


def test_gaps_that_only_pandas_has_and_columns_of_one_name() -> None:
    pandas = importlib.import_module("pandas")
    frame = pandas.DataFrame({"arm": [0, 1], "paid": [1, 0], "p": [0.5, 0.5]})
    plain = {"action": "arm", "reward": "paid", "probability": "p"}
    numbers = pandas.array([1, None], dtype="Int64")
    times = pandas.to_datetime(["2024-01-01", None]).tz_localize("Europe/Berlin")
    for name, values in [("groups", numbers.astype(object)), ("time", times)]:
        with pytest.raises(ValueError, match=rf"^{name}: expected a column without gaps, got 'gap' with 1$"):
            from_frame(frame.assign(gap=values), **plain, **{name: "gap"})
    with pytest.raises(ValueError, match=r"^reward: expected one column of the name 'paid', got several"):
        from_frame(pandas.concat([frame, frame[["paid"]]], axis=1), **plain)
    with pytest.raises(
        TypeError, match=r"^frame: expected a pandas or polars frame or an Arrow table in memory, got dict"
    ):
        from_frame({"arm": [0]}, **plain)


def test_dates_with_a_time_zone_are_seconds_too() -> None:
    pandas = importlib.import_module("pandas")
    times = pandas.to_datetime(["2019-11-24 00:00:17.5+00:00", "2019-11-24 01:00:17.5+00:00"])
    frame = pandas.DataFrame({"arm": [0, 1], "paid": [1, 0], "p": [0.5, 0.5], "at": times})
    log = from_frame(frame, action="arm", reward="paid", probability="p", time="at")
    assert log.time.tolist() == [1574553617.5, 1574557217.5]


def test_positions_pick_their_columns() -> None:
    log = BanditLog(**GOOD)
    values = np.arange(36.0).reshape(4, 3, 3)
    assert at_positions(log, values).tolist() == [values[i, :, p].tolist() for i, p in enumerate([0, 1, 2, 0])]
    alone = BanditLog(**(GOOD | {"position": None}))
    assert torch.equal(at_positions(alone, values[:, :, :1]), torch.from_numpy(values[:, :, 0]))
    for wrong in (values[:, :, 0], values[:3], values[:, :2]):
        with pytest.raises(ValueError, match=r"^values: expected shape \(4, 3, positions\)"):
            at_positions(log, wrong)
    with pytest.raises(ValueError, match=r"^position: expected integers from 0 to 1, got 0 to 2"):
        at_positions(log, values[:, :, :2])
    feedback, _ = to_obp(BanditLog(**(GOOD | {"mask": None})), np.full((4, 3), 1.0 / 3.0))
    assert feedback["context"].shape == (4, 2)


class Row(NamedTuple):
    """A decision, or what became known of it."""

    number: int
    position: int
    id: str
    time: float
    inputs: Tensor
    mask: Tensor | None
    action: int
    probability: float
    encoder: str
    reward: float


class Stored:
    """A decision log in memory, read in pages. Rewards become known in any order."""

    def __init__(self, rows: list[Row], known: list[int]) -> None:
        self.rows, self.known, self.pages = rows, known, 0

    def decisions(self, after: int = 0, limit: int = 1000) -> list[Row]:
        self.pages += 1
        return [row for row in self.rows if row.number > after][:limit]

    def read(self, after: int = 0, limit: int = 1000) -> list[Row]:
        rows = [self.rows[k]._replace(position=p) for p, k in enumerate(self.known, 1)]
        return [row for row in rows if row.position > after][:limit]


def stored(sizes: list[int | None], known: list[int], masks: dict[int, list[bool]] | None = None) -> Stored:
    """Return a log of contexts (None) or of so many arms."""
    generator = torch.Generator().manual_seed(0)
    rows = []
    for k, size in enumerate(sizes):
        inputs = torch.randn(*([] if size is None else [size]), 2, generator=generator)
        mask = torch.tensor((masks or {})[k]) if k in (masks or {}) else None
        rows.append(Row(k + 1, 0, f"id{k}", float(k), inputs, mask, k % 2, 0.5, "", float(k)))
    return Stored(rows, known)


def test_a_decision_log_is_read_up_to_the_first_open_decision() -> None:
    """In the order of decisions, whatever the order of rewards."""
    source = stored([None] * 6, known=[3, 0, 5, 1, 2])
    log = from_decisions(source, arms=2, page=2)
    assert source.pages >= 3
    assert (log.reward.tolist(), log.action.tolist()) == ([0.0, 1.0, 2.0, 3.0], [0, 1, 0, 1])
    assert torch.equal(log.context, torch.stack([row.inputs for row in source.rows[:4]]).double())
    assert (log.arms, log.mask, log.probability.tolist()) == (2, None, [0.5] * 4)
    with pytest.raises(ValueError, match=r"^decisions: expected the reward of the first decision, got none"):
        from_decisions(stored([None] * 3, known=[1, 2]), arms=2)
    with pytest.raises(ValueError, match=r"^arms: expected the number of arms"):
        from_decisions(source)


def test_decisions_with_different_arms_are_masked() -> None:
    source = stored([3, 2, 4], known=[0, 1, 2], masks={0: [True, False, True]})
    log = from_decisions(source)
    assert (log.arms, log.context.shape) == (4, (3, 4, 2))
    assert log.mask.tolist() == [[True, False, True, False], [True, True, False, False], [True] * 4]
    assert torch.equal(log.context[1, 2:], torch.zeros(2, 2, dtype=torch.float64))
    assert torch.equal(log.context[2], source.rows[2].inputs.double())
    assert from_decisions(source, arms=5).mask.shape == (3, 5)
    with pytest.raises(ValueError, match=r"^arms: expected at least 4, the arms of a decision, got 3"):
        from_decisions(source, arms=3)
    with pytest.raises(ValueError, match=r"^decisions: expected inputs of shape \(d\) or \(K, d\), with one d"):
        from_decisions(stored([None, 2], known=[0, 1]), arms=2)
    without = from_decisions(stored([None, 2], known=[0, 1]), arms=2, context=False)
    assert (without.context, without.reward.tolist()) == (None, [0.0, 1.0])
    masked = from_decisions(stored([None, None], known=[0, 1], masks={0: [True, False], 1: [True, True]}))
    assert (masked.arms, masked.mask.tolist()) == (2, [[True, False], [True, True]])


def test_the_decision_log_of_the_library_is_read(tmp_path: Path) -> None:
    """Rewards that come in another order, one that is late, and one that never comes."""
    policy = EpsilonGreedy(RidgeRegression(2), epsilon=0.5)
    arms = torch.randn(6, 3, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    with DecisionLog(tmp_path / "decisions.db", window=10.0, default_reward=-1.0) as decisions:
        made = []
        for k in range(6):
            action, probability = policy.select_with_probability(arms[k])
            made.append((int(action), float(probability)))
            decisions.decide(f"name{k}", arms[k], int(action), float(probability), time=100.0 + k)
        for k in (4, 0, 2):
            decisions.reward(f"name{k}", 0.5 * k, time=106.0)
        assert len(from_decisions(decisions)) == 1
        decisions.close_due(now=111.5)
        log = from_decisions(decisions, page=2)
        assert log.reward.tolist() == [0.0, -1.0, 1.0]
        assert torch.equal(log.context, arms[:3])
        decisions.close_due(now=120.0)
        log = from_decisions(decisions)
    assert log.reward.tolist() == [0.0, -1.0, 1.0, -1.0, 2.0, -1.0]
    assert [(int(a), float(p)) for a, p in zip(log.action, log.probability, strict=True)] == made


def test_decisions_of_one_encoder_are_taken() -> None:
    with DecisionLog(":memory:") as decisions:
        for k in range(6):
            decisions.decide(f"name{k}", torch.full((2,), float(k)), 0, 0.5, encoder=f"v{k % 2}")
        for k in (0, 2, 3, 4):
            decisions.reward(f"name{k}", float(k))
        assert from_decisions(decisions, arms=2).reward.tolist() == [0.0]
        assert from_decisions(decisions, arms=2, encoder="v0").reward.tolist() == [0.0, 2.0, 4.0]
        for encoder in ("v1", "v2"):  # an open decision is first, or none is there
            with pytest.raises(
                ValueError, match=rf"^decisions: expected the reward of the first decision of encoder '{encoder}'"
            ):
                from_decisions(decisions, arms=2, encoder=encoder)
        with pytest.raises(TypeError, match=r"^encoder: expected a string or None, got int"):
            from_decisions(decisions, arms=2, encoder=1)
