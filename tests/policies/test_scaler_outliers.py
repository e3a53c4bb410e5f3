"""StandardScaler: no row ruins it, and a change of scale is followed. Everywhere that rows are learnt, they are cut alike."""

import io
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import torchonline
from tests.learners import close, differences, snapshot
from torchonline import StandardScaler
from torchonline.export import to_program
from torchonline.policies.scaler import NEEDED, REACH, WINDOW

D = torch.float64
FAR = [1e6, -1e6, 1e6]


def normal(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((n, 3))


def fed(rows: Any, **options: Any) -> StandardScaler:
    """A scaler that has seen some rows."""
    scaler = StandardScaler(3, **options)
    scaler.step(rows)
    return scaler


def deviation(scaler: StandardScaler) -> np.ndarray:
    return (scaler.squares / (scaler.rounds - 1.0)).sqrt().numpy()


@pytest.mark.parametrize("size", [1e2, 1e6, 1e100])
@pytest.mark.parametrize(("place", "count"), [(0, 1), (0, 3), (20, 1), (1000, 1), (1000, 10), (1030, 11)])
def test_no_row_ruins_a_scaler(place: int, count: int, size: float) -> None:
    """However large it is, and however early."""
    rows = np.insert(normal(2000), [place] * count, size * np.array([1.0, -1.0, 1.0]), axis=0)
    scaler = fed(rows)
    assert abs(scaler.mean).max() < 0.2
    assert np.all((deviation(scaler) > 0.9) & (deviation(scaler) < 1.4))
    # At once, but for the first rows, which have no scale yet.
    if place >= WINDOW:
        assert np.all(deviation(fed(rows[: place + count])) < 1.5)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_huge_first_row_does_not_cost_the_mean(dtype: torch.dtype) -> None:
    """The mean of the first rows is small beside it, and must not be a difference from it."""
    scaler = StandardScaler(1, intercept=False, dtype=dtype)
    for t, row in enumerate(40.0 + normal(2000)[:, :1]):
        scaler.step(torch.tensor([1e12]) if t == 5 else torch.from_numpy(row))
    assert abs(float(scaler.mean) - 40.0) < 0.2
    assert 0.9 < deviation(scaler)[0] < 1.4


def test_one_row_moves_the_moments_by_a_bounded_amount() -> None:
    """As a row at the edge does, whatever its size."""
    rows = normal(500)
    states = [fed(np.vstack([rows, [FAR]])), fed(np.vstack([rows, 1e50 * np.array(FAR)]))]
    before = fed(rows)
    edge = fed(rows)
    edge.step(before.mean + REACH * torch.tensor(deviation(before)) * torch.tensor([1.0, -1.0, 1.0]))
    for scaler in states:
        close(scaler.mean, edge.mean, 1e-12)
        close(scaler.squares, edge.squares, 1e-12)


def test_codes_for_missing_values_cost_little() -> None:
    """999 among ages, in one row of a hundred."""
    random = np.random.default_rng(0)
    ages = 40.0 + 12.0 * random.standard_normal((4000, 3))
    ages[random.random(4000) < 0.01, 0] = 999.0
    scaler = fed(ages)
    assert abs(scaler.mean[0] - 40.0) < 3.0
    assert deviation(scaler)[0] < 1.5 * 12.0
    assert deviation(scaler)[1] == pytest.approx(ages[:, 1].std(ddof=1), rel=1e-12)


@pytest.mark.parametrize("factor", [100.0, 1e6, 1e30])
@pytest.mark.parametrize("before", [100, 1000, 20_000])
def test_a_larger_scale_is_followed_within_tens_of_rows(factor: float, before: int) -> None:
    """However many rows came before."""
    scaler = StandardScaler(3)
    if before > 1000:
        scaler.step(normal(1000))
        scaler.squares *= before / 1000
        scaler.rounds.fill_(before)
    else:
        scaler.step(normal(before))
    rows = factor * normal(3 * WINDOW, 1)
    scaler.step(rows[: 2 * WINDOW])
    assert np.all((deviation(scaler) > 0.2 * factor) & (deviation(scaler) < 2.0 * factor))
    scaler.step(np.vstack([rows[2 * WINDOW :], [FAR]]))
    assert np.all(deviation(scaler) < 2.0 * factor + 1.0)


def test_a_feature_that_begins_to_vary_has_a_scale() -> None:
    """A constant has none to cut at: the first other value enters as it is."""
    scaler = fed(np.ones((100, 3)))
    scaler.step([[2.0, 1.0, 5.0]])
    assert scaler.mean.tolist() == pytest.approx([1.0 + 1.0 / 101, 1.0, 1.0 + 4.0 / 101])
    assert scaler.squares[1] == 0.0
    rare = np.where(np.random.default_rng(0).random((2000, 3)) < 0.3, 1.0, 0.0)
    close(fed(rare).mean, torch.from_numpy(rare.mean(0)), 1e-12)
    poisoned = fed(np.vstack([[FAR], rare]))
    assert np.all(deviation(poisoned) < 0.6)


def test_rows_without_outliers_have_plain_moments() -> None:
    rows = normal(1000)
    scaler = fed(rows)
    close(scaler.mean, torch.from_numpy(rows.mean(0)), 1e-12)
    close(scaler.squares, torch.from_numpy(((rows - rows.mean(0)) ** 2).sum(0)), 1e-10)
    assert int(scaler.rounds) == 1000
    assert scaler.recent.shape == (WINDOW, 3)
    kept = np.vstack([rows[992:], rows[968:992]])  # row t lies at t modulo 32
    assert torch.equal(scaler.recent, torch.from_numpy(kept))


@pytest.mark.parametrize("freeze_after", [20, 32, 50, 64])
def test_frozen_moments_are_a_function_of_the_first_rows(freeze_after: int) -> None:
    rows = normal(200)
    rows[1], rows[40] = FAR, FAR
    first = fed(rows[:freeze_after])
    for others in (rows[freeze_after:], 1e6 * rows[freeze_after:]):
        for scaler in (
            fed(np.vstack([rows[:freeze_after], others]), freeze_after=freeze_after),
            fed(torch.from_numpy(rows[:freeze_after]), freeze_after=freeze_after),
        ):
            for name in ("mean", "squares", "recent"):
                assert torch.equal(getattr(scaler, name), getattr(first, name)), name
    assert (deviation(first) < 4.0).all() == (freeze_after >= WINDOW)


def poisoned(members: int) -> Tensor:
    """Rows of some learners with outliers, codes and a change of scale: ``(members, 150, 3)``."""
    rows = torch.from_numpy(np.stack([normal(150, seed) for seed in range(members)]))
    rows[:, 0] = rows[:, 45] = torch.tensor(FAR, dtype=D)
    rows[0, 70:, 1] *= 1e4
    rows[:, ::9, 2] = 999.0
    return rows


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("freeze_after", [None, 70])
def test_batches_files_and_programs_cut_alike(dtype: torch.dtype, freeze_after: int | None) -> None:
    """And tensors like NumPy views, one row at a time and many."""
    rows, options = poisoned(3).to(dtype), {"dtype": dtype, "freeze_after": freeze_after}
    tolerance = 1e-4 if dtype == torch.float32 else 1e-11
    singles = [fed(each, **options) for each in rows]
    batched, one_by_one = StandardScaler(3, batch_shape=(3,), **options), StandardScaler(3, **options)
    batched.step(rows)
    for row in rows[0]:
        one_by_one.step(row)
    assert differences(snapshot(singles[0]), snapshot(one_by_one)) == []
    buffer = io.BytesIO()
    torch.jit.save(torch.jit.script(StandardScaler(3, **options)), buffer)
    buffer.seek(0)
    file, tensors = torch.jit.load(buffer), StandardScaler(3, **options)
    file.step(rows[0])
    with torch.no_grad():
        for row in rows[0]:
            tensors._observe(row)
    for name, value in snapshot(singles[0]).items():
        close(file.state_dict()[name], value, tolerance)
        close(getattr(tensors, name), value, tolerance)
    for i, single in enumerate(singles):
        for name in ("mean", "squares", "rounds", "recent"):
            close(getattr(batched, name)[i], getattr(single, name), tolerance)


def test_a_program_of_a_policy_cuts_alike() -> None:
    """torch.export follows the cut and the comparison with the last rows."""
    policy = torchonline.bandit(3, "binary", 2)
    program: Any = to_program(policy).module()
    yes, mask = torch.tensor(True), torch.ones(1, 2, dtype=torch.bool)
    for t, row in enumerate(poisoned(1)[0, :75]):
        action, reward = torch.tensor(t % 2), torch.tensor(float(t % 3 == 0), dtype=D)
        policy.step(row, action, reward)
        program(row, action, reward, yes, row.unsqueeze(0), mask)
    state = dict(program.named_buffers())
    for name in ("mean", "squares", "recent", "rounds"):
        (found,) = [value for key, value in state.items() if key.endswith(f"scaler.{name}")]
        close(found, getattr(policy.scaler, name), 1e-9)


def test_learning_a_log_cuts_alike() -> None:
    rows = poisoned(1)[0]
    action, reward = torch.arange(150) % 2, (torch.arange(150) % 3 == 0).double()
    policies = [torchonline.bandit(3, "binary", 2) for _ in range(2)]
    policies[0].learn(rows, action, reward)
    for each in zip(rows, action, reward, strict=True):
        policies[1].step(*each)
    states = [policy.state_dict() for policy in policies]
    for name, value in states[0].items():
        close(states[1][name], value, 1e-9)


def test_a_state_without_recent_rows_loads() -> None:
    """An older version kept none. They count as the mean."""
    scaler = fed(normal(50))
    state = scaler.state_dict()
    del state["recent"]
    loaded = StandardScaler(3)
    loaded.load_state_dict(state)
    assert torch.equal(loaded.mean, scaler.mean)
    assert torch.equal(loaded.recent, scaler.mean.expand(WINDOW, 3))
    loaded.step(normal(100, 1))
    assert np.all(abs(deviation(loaded) - 1.0) < 0.3)


def test_one_context_does_not_ruin_the_default_bandit() -> None:
    """(1e6, -1e6, 1e6) in round 300: the policy goes on to earn what it earned."""
    weights = np.array([[1.0, 0.0, 0.0], [-1.0, 0.5, 0.0], [0.0, -0.5, 1.0]])
    earned = {}
    for is_poisoned in (False, True):
        policy, random = torchonline.bandit(3, "binary", 3), np.random.default_rng(0)
        found = []
        for t, x in enumerate(normal(900, 5)):
            if is_poisoned and t == 300:
                policy.step(FAR, policy.select(FAR), 0.0)
            action = int(policy.select(x))
            mean = 1.0 / (1.0 + math.exp(-2.0 * weights[action] @ x))
            policy.step(x, action, float(random.random() < mean))
            found.append(mean)
        earned[is_poisoned] = np.mean(found[400:])
    assert earned[False] > 0.8
    assert earned[True] > earned[False] - 0.03


def test_the_window_says_what_a_change_is() -> None:
    """Fewer far rows than needed are outliers, more are a change."""
    for count, is_change in ((NEEDED - 1, False), (NEEDED, True)):
        rows = normal(WINDOW * 4)
        rows[WINDOW * 3 : WINDOW * 3 + count] *= 1e6
        assert bool((deviation(fed(rows)) > 1e3).all()) == is_change
