"""Tests of the metrics in real process groups: any number of rounds on each rank, and states that belong together."""

import copy
import math
from typing import Any

import pytest
import torch
from torch import Tensor, distributed

from tests.process_groups import on_ranks
from torchonline import DPTOFW
from torchonline.diagnostics import NoiseDiagnostic
from torchonline.environments import SEAStream
from torchonline.metrics import CumulativeRegret, ExactMetric, GradientVariation, PrivacySpent, StreamVariation

pytestmark = pytest.mark.fast

POINTS = 8

# Rounds of each rank: equal, unequal, none, and so many that spacings differ.
COUNTS: dict[int, list[tuple[int, ...]]] = {
    1: [(5,), (100,)],
    2: [(4, 4), (3, 5), (0, 6), (6, 0), (0, 0), (1, 200), (8, 9), (100, 33)],
    4: [(4, 4, 4, 4), (0, 3, 7, 50), (9, 0, 0, 1), (16, 17, 64, 65)],
}
BATCHES: list[tuple[int, ...]] = [(), (3,), (2, 2)]


def regrets(counts: tuple[int, ...], batch: tuple[int, ...] = ()) -> list[Tensor]:
    """The regret of each round of each rank. Sums of multiples of 1/256 are exact."""
    generator = torch.Generator().manual_seed(0)
    return [torch.randint(-64, 256, (n, *batch), generator=generator).double() / 256 for n in counts]


def after_lap(rounds: list[Tensor], k: int) -> tuple[int, Tensor]:
    """Rounds and total of all ranks after lap k, from the definition."""
    return sum(min(k, len(one)) for one in rounds), torch.stack([one[:k].sum(0) for one in rounds]).sum(0)


def fed(regret: Tensor, cut: int = 1000) -> CumulativeRegret:
    metric = CumulativeRegret(tuple(regret.shape[1:]), points=POINTS)
    for part in regret.split(cut) if len(regret) else ():
        metric.update(part)
    return metric


def states(metric: ExactMetric) -> dict[str, Tensor]:
    return {name: state.clone() for name, state in metric.metric_state.items()}


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def mine(values: list[Any]) -> Any:
    return values[distributed.get_rank()]


def read(cases: list[tuple[tuple[int, ...], tuple[int, ...]]]) -> list[tuple[Tensor, Tensor, Tensor]]:
    """The total and the curve of all ranks, in each case."""
    found = []
    for counts, batch in cases:
        metric = fed(mine(regrets(counts, batch)))
        before = states(metric)
        found.append((metric.compute(), *metric.curve()))
        assert same(states(metric), before)
        metric.sync()
        assert all(torch.equal(a, b) for a, b in zip(metric.curve(), found[-1][1:], strict=True))
        metric.unsync()
        assert same(states(metric), before)
    return found


@pytest.mark.parametrize("world", COUNTS)
def test_total_and_curve_of_all_ranks(world: int) -> None:
    """The points of the curve are whole laps, exactly, and as dense as those of the rank with the most rounds."""
    cases = [(counts, batch) for counts in COUNTS[world] for batch in BATCHES]
    of_ranks = on_ranks(world, read, cases)
    for (counts, batch), *results in zip(cases, *of_ranks, strict=True):
        for other in results[1:]:
            assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))
        total, at, totals = results[0]
        rounds, most = regrets(counts, batch), max(counts)
        assert torch.equal(total, after_lap(rounds, most)[1])
        step = int(fed(rounds[counts.index(most)]).spacing)
        expected = [after_lap(rounds, k) for k in sorted({*range(step, most + 1, step), most} - {0})]
        assert at.tolist() == [n for n, _ in expected]
        assert totals.shape == (len(expected), *batch)
        assert all(torch.equal(a, b) for a, (_, b) in zip(totals, expected, strict=True))


def test_one_rank_is_one_process() -> None:
    """Bit for bit, for regrets whose sums are rounded."""
    alone = fed(torch.rand(77, generator=torch.Generator().manual_seed(1)), 7)
    (together,) = on_ranks(1, _alone)
    assert all(torch.equal(a, b) for a, b in zip(together, (alone.compute(), *alone.curve()), strict=True))


def _alone() -> Any:
    metric = fed(torch.rand(77, generator=torch.Generator().manual_seed(1)), 7)
    return metric.compute(), *metric.curve()


def _synced_regret() -> None:
    """What a metric does before, in and after the context in which it has the states of all ranks."""
    rank, regret = distributed.get_rank(), regrets((3, 20), (2,))
    metric, twin = fed(mine(regret)), fed(mine(regret))
    before = states(metric)
    with metric.sync_context():
        assert {name: tuple(state.shape) for name, state in metric.state_dict().items()} == {
            "total": (2, 2),
            "rounds": (2,),
            "spacing": (2,),
            "history": (2, POINTS, 2),
        }
        gathered = metric.state_dict()
        for change, text in (
            (lambda: metric.update(torch.ones(2)), "^update: expected the states of this rank"),
            (lambda: metric.load_state_dict(before), "sync: expected the states of this rank"),
        ):
            with pytest.raises(RuntimeError, match=text):
                change()
            assert same(states(metric), gathered)
        assert metric.curve()[0].tolist() == [7, 11, 15, 19, 23]
        copied = copy.deepcopy(metric)
        copied.reset()
        assert same(states(copied), states(CumulativeRegret((2,), points=POINTS)))
    assert same(states(metric), before)
    assert same({name: state[rank] for name, state in gathered.items()}, before)
    # A batch is that of this rank, without a gather.
    if rank == 0:
        value = metric(torch.tensor([[1.0, 0.5]]))
        assert torch.equal(value, torch.tensor([1.0, 0.5], dtype=torch.float64))
        twin.update(torch.tensor([[1.0, 0.5]]))
        assert same(states(metric), states(twin))
    # Rank 0 alone has new rounds; a result that rank 1 had kept would be old, and rank 0 would wait for it.
    total = metric.compute()
    assert torch.equal(total, sum(one.sum(0) for one in regret) + torch.tensor([1.0, 0.5]))
    metric.reset()
    assert metric.compute().tolist() == [0.0, 0.0]


def _other_shapes() -> str:
    metric = CumulativeRegret(points=(8, 16)[distributed.get_rank()])
    metric.update(torch.ones(5))
    before = states(metric)
    with pytest.raises(ValueError, match=r"^sync: expected states of one shape on all ranks") as error:
        metric.compute()
    assert same(states(metric), before)
    assert not metric._is_synced
    metric.update(torch.ones(1))
    return str(error.value)


def _other_metrics(ledgers: list[dict[str, Tensor]]) -> dict[str, Any]:
    """Sums, costs in one or two adjacencies, and bets that have no sum."""
    rank = distributed.get_rank()
    variation = GradientVariation()
    for _ in range((0, 3)[rank]):
        variation.update(torch.ones(2), torch.zeros(2))
    found: dict[str, Any] = {"variation": float(variation.compute())}
    with variation.sync_context(), pytest.raises(RuntimeError, match=r"^update: expected the states of this rank"):
        variation.update(torch.ones(2), torch.zeros(2))
    measured, stream = StreamVariation(), SEAStream(2, drift=0.5)
    for _ in range((0, 3)[rank]):
        measured.update(stream, torch.zeros(2))
        stream.advance()
    found["drift"] = round(float(measured.compute()["drift"]), 9)
    spent = PrivacySpent(1e-3)
    if rank == 1:
        spent.load_state_dict(ledgers[0])
    found["one"] = float(spent.compute())
    spent = PrivacySpent(1e-3)
    spent.load_state_dict(ledgers[rank])
    before = states(spent)
    with pytest.raises(ValueError, match=r"^sync: expected learners of one adjacency on all ranks"):
        spent.compute()
    assert same(states(spent), before)
    noise = NoiseDiagnostic()
    noise.update(torch.randn((5, 9)[rank]), noise_scale=1.0)
    before = states(noise)
    found["noise"] = int(noise.compute().rounds)
    with pytest.raises(RuntimeError, match=r"^sync: expected the rounds of one process, got the rounds of 2"):
        noise.sync()
    assert same(states(noise), before)
    noise.update(torch.randn(1), noise_scale=1.0)
    return found


def _all_checks(ledgers: list[dict[str, Tensor]]) -> Any:
    _synced_regret()
    return _other_shapes(), _other_metrics(ledgers)


def test_contexts_shapes_and_other_metrics() -> None:
    learner = DPTOFW(2, horizon=10, epsilon=1.0, delta=1e-3)
    learner.step(None)
    spent = PrivacySpent(1e-3)
    spent.update(learner)
    other = spent.state_dict()
    other["relation"] = 1 - other["relation"]
    results = on_ranks(2, _all_checks, [spent.state_dict(), other])
    assert results[0][0] == results[1][0]
    assert results[0][0].endswith("got (8), (16)")
    fresh = PrivacySpent(1e-3)
    fresh.load_state_dict(spent.state_dict())
    for rank, (_, found) in enumerate(results):
        assert found == {"variation": 6.0, "drift": 0.75, "one": float(fresh.compute()), "noise": (5, 9)[rank]}


def _saved(counts: tuple[int, ...], batch: tuple[int, ...]) -> dict[str, Tensor]:
    metric = fed(mine(regrets(counts, batch)))
    with metric.sync_context():
        return metric.state_dict()


def _continued(saved: list[dict[str, Tensor]], more: list[Tensor]) -> list[Any]:
    """The curve of all ranks after a load, and after a few further rounds."""
    found = []
    for state in saved:
        metric = CumulativeRegret(tuple(state["total"].shape[1:]), points=POINTS)
        metric.load_state_dict(state)
        loaded = metric.curve()
        batch = tuple(state["total"].shape[1:])
        metric.update(mine(more).reshape(-1, *[1] * len(batch)).expand(-1, *batch))
        found.append((loaded, metric.curve(), int(metric.rounds)))
    return found


CASES = [(counts, batch) for counts in [(3, 5), (0, 6), (0, 0), (1, 200), (100, 33)] for batch in BATCHES[:2]]


def _saved_and_continued(more: list[Tensor]) -> tuple[list[dict[str, Tensor]], list[Any]]:
    saved = [_saved(*case) for case in CASES]
    return saved, _continued(saved, more)


def test_states_of_two_ranks_go_on_in_any_number_of_ranks() -> None:
    """In two: the same trajectory. In one or four: the same total, the same curve at its points, and later rounds after it."""
    more = [torch.full((n,), 0.25) for n in (4, 2)]
    (saved, in_two), (again, _) = on_ranks(2, _saved_and_continued, more)
    assert all(same(one, other) for one, other in zip(saved, again, strict=True))
    for (counts, batch), (_, curve, _) in zip(CASES, in_two, strict=True):
        rounds = regrets(counts, batch)
        whole = [
            torch.cat([one, x.double().reshape(-1, *[1] * len(batch)).expand(-1, *batch)])
            for one, x in zip(rounds, more, strict=True)
        ]
        n, total = after_lap(whole, 1000)
        assert curve[0][-1] == n
        assert torch.equal(curve[1][-1], total)
        assert all(torch.equal(b, a) for a, b in zip(_curve_of(whole), curve, strict=True))
    for world in (1, 4):
        further = [torch.full((4,), 0.25)] * world
        results = on_ranks(world, _continued, saved, further)
        for (counts, batch), *of_ranks in zip(CASES, *results, strict=True):
            at, totals = _curve_of(regrets(counts, batch))
            loaded, later, _ = of_ranks[0]
            n = int(at[-1]) if len(at) else 0
            assert sum(rounds for _, _, rounds in of_ranks) == n + 4 * world
            known = dict(zip(at.tolist(), totals, strict=True)) | {0: torch.zeros(batch, dtype=torch.float64)}
            for curve, end in ((loaded, n), (later, n + 4 * world)):
                assert int(curve[0][-1]) == end if end else len(curve[0]) == 0
                for t, value in zip(*curve, strict=True):
                    if int(t) > n:  # a quarter in each round
                        torch.testing.assert_close(value, known[n] + 0.25 * (int(t) - n))
                    else:
                        left, right = max(k for k in known if k <= t), min(k for k in known if k >= t)
                        share = (int(t) - left) / max(1, right - left)
                        torch.testing.assert_close(value, known[left] + share * (known[right] - known[left]))


def _curve_of(rounds: list[Tensor]) -> tuple[Tensor, Tensor]:
    """The curve of some ranks, from their states alone, in this process."""
    metrics = [fed(one) for one in rounds]
    stacked = {name: torch.stack([states(metric)[name] for metric in metrics]) for name in states(metrics[0])}
    metric = fed(rounds[0][:0])
    for name, state in stacked.items():
        setattr(metric, name, state)
    return metric.curve()


def test_loads_of_impossible_states() -> None:
    metric = fed(torch.ones(20))
    state = metric.state_dict()
    for change, text in (
        ({"spacing": torch.tensor(3)}, r"spacing: expected powers of 2, got 3"),
        ({"rounds": torch.tensor(33)}, r"rounds: expected at most 8 times the spacing 4, got 33"),
        ({"rounds": torch.tensor([20, 0])}, r"total: expected shape \(2\), got \(\)"),
        ({"rounds": torch.tensor([], dtype=torch.int64)}, r"rounds: expected shape \(\), got \(0\)"),
    ):
        with pytest.raises(RuntimeError, match=text):
            metric.load_state_dict(state | change)
        assert same(states(metric), dict(state))
    assert math.isclose(metric.compute(), 20.0)
