"""StandardScaler: NumPy's mean and deviation in any order, what a row becomes, and the rules of the contract."""

import copy
import io
import math
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.bad_arguments import BAD_OPTIONS, NOT_POSITIVE, no_floats, no_values
from tests.core.test_threads import together
from tests.interruption import interrupted
from tests.learners import close, differences, snapshot
from torchonline import DisjointArms, RidgeRegression, ScaledPolicy, StandardScaler
from torchonline.core.options import rebuilt
from torchonline.policies.scaler import factors_of, standardised

pytestmark = pytest.mark.fast

D = torch.float64
SHAPES: list[tuple[int, ...]] = [(), (2,), (2, 3)]


def fed(rows: Any, **options: Any) -> StandardScaler:
    """A scaler that has seen some rows."""
    scaler = StandardScaler(np.shape(rows)[-1], **options)
    scaler.step(rows)
    return scaler


def deviation(scaler: StandardScaler) -> Tensor:
    """The standard deviation of the rows seen."""
    return (scaler.squares / (scaler.rounds - 1)).sqrt()


def with_own_row(rows: Any, x: Any, clip: float = 2.5) -> np.ndarray:
    """What NumPy makes of x, with mean and deviation of the rows and x."""
    both = np.concatenate([rows, [x]])
    return np.clip((x - both.mean(0)) / both.std(0, ddof=1), -clip, clip)


@pytest.mark.parametrize("is_at_once", [True, False])
def test_mean_and_deviation_are_those_of_numpy(is_at_once: bool) -> None:
    """In any order, in blocks or one by one, for features whose sizes differ by 16 decades."""
    random = np.random.default_rng(0)
    rows = random.standard_normal((500, 4)) * [1e-8, 1.0, 1e3, 1e8] + [1e-8, -2.0, 500.0, 3e8]
    for _ in range(3):
        scaler = StandardScaler(4)
        for block in [rows] if is_at_once else rows:
            scaler.step(block)
        np.testing.assert_allclose(scaler.mean, rows.mean(0), rtol=1e-12, atol=1e-12 * abs(rows).max(0).min())
        np.testing.assert_allclose(deviation(scaler), rows.std(0, ddof=1), rtol=1e-12)
        z = scaler(rows[:20])
        expected = [with_own_row(rows, x) for x in rows[:20]]
        np.testing.assert_allclose(z[:, :4], expected, rtol=1e-10, atol=1e-11)
        assert bool((z[:, 4] == 1.0).all())
        random.shuffle(rows)


@pytest.mark.parametrize("offset", [1e6, 1e9, 1e12])
def test_a_huge_offset_costs_its_own_digits_only(offset: float) -> None:
    """float64 holds a feature of offset + deviation 1 to 1e-16 of the offset. A sum of squares would lose the square of that."""
    rows = offset + np.random.default_rng(0).standard_normal((1000, 2))
    scaler = fed(rows)
    precise = rows.astype(np.longdouble)
    assert np.abs(scaler.mean.numpy() - precise.mean(0)).max() < 4e-16 * offset * 10
    np.testing.assert_allclose(deviation(scaler), precise.std(0, ddof=1).astype(float), rtol=1e-12 + 1e-15 * offset)


@pytest.mark.parametrize("batch_shape", SHAPES)
def test_a_row_becomes_what_it_is_after_a_step_with_it(batch_shape: tuple[int, ...]) -> None:
    """So the first rows are never far out: z is at most (n - 1) / sqrt(n) in the n-th row."""
    rows = torch.randn(*batch_shape, 30, 3, dtype=D) ** 3
    scaler = StandardScaler(3, clip=100.0, batch_shape=batch_shape)
    for t in range(30):
        row = rows[..., t, :]
        z = scaler(row)[..., :3]
        scaler.step(row)
        if t < 2:
            assert not z.any()
            continue
        close(z, (row - scaler.mean) / (scaler.squares / t).sqrt(), 1e-12)
        assert float(z.abs().max()) <= t / (t + 1) ** 0.5 + 1e-12
        far = scaler(1e6 + row)[..., :3]
        assert float(far.abs().max()) <= (t + 1) / (t + 2) ** 0.5 + 1e-12


def test_a_constant_feature_becomes_0() -> None:
    """Whatever its value, in both precisions; and so does every feature before two rows have been seen."""
    for dtype in (torch.float64, torch.float32):
        for value in (0.1, 1e12 / 3.0, -7.7e-30, 0.0):
            scaler = StandardScaler(2, dtype=dtype)
            assert scaler([value, 5.0]).tolist() == [0.0, 0.0, 1.0]
            for t in range(100):
                scaler.step([value, float(t)])
                assert scaler([value, 2.0 * t])[0] == 0.0
                assert (scaler([2.0 * value + 1.0, 2.0 * t])[0] > 0.0) == (t > 0)
            assert bool(torch.isfinite(scaler([value, 3.0])).all())


def test_one_row_and_none() -> None:
    scaler = fed([[3.0, -1.0]])
    assert scaler.mean.tolist() == [3.0, -1.0]
    assert scaler([9.0, 9.0]).tolist() == [0.0, 0.0, 1.0]
    before = snapshot(scaler)
    scaler.step(torch.zeros(0, 2))
    assert differences(before, snapshot(scaler)) == []
    close(fed([[3.0, -1.0], [5.0, -1.0]])([7.0, -1.0]), torch.tensor([1.0, 0.0, 1.0], dtype=D), 1e-14)


def test_options_shape_the_features() -> None:
    rows = torch.randn(50, 3, dtype=D)
    plain, clipped = fed(rows, intercept=False, clip=1e6), fed(rows, clip=0.5)
    assert (plain.features, clipped.features) == (3, 4)
    z = torch.from_numpy(np.stack([with_own_row(rows.numpy(), x, 1e6) for x in rows.numpy()]))
    close(plain(rows), z, 1e-12)
    close(clipped(rows), torch.cat([z.clamp(-0.5, 0.5), torch.ones(50, 1, dtype=D)], -1), 1e-12)
    for intercept in (False, True, 2.5):
        folded = fed(rows, magnitudes=True, intercept=intercept, clip=1.5)
        constant = torch.full((50, 1), float(intercept), dtype=D)
        expected = [z.clamp(-1.5, 1.5), 0.7 * (z.clamp(-1.5, 1.5).abs() - 0.8), constant]
        close(folded(rows), torch.cat(expected if intercept else expected[:2], -1), 1e-12)
        assert folded.features == 6 + (intercept > 0)
    assert plain(rows.reshape(5, 2, 5, 3)).shape == (5, 2, 5, 3)
    assert plain(1e100 * rows).isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("magnitudes", [False, True])
@pytest.mark.parametrize("interactions", [False, "all"])
@pytest.mark.parametrize("steps", [0, 3])
@pytest.mark.parametrize("intercept", [0.0, 3.0])
def test_arrays_are_standardised_like_tensors(
    dtype: torch.dtype, magnitudes: bool, interactions: Any, steps: int, intercept: float
) -> None:
    rows, mean, squares = torch.randn(20, 3, dtype=dtype), torch.randn(3, dtype=dtype), torch.rand(3, dtype=dtype)
    squares[0] = 0.0
    pairs = torch.tensor(factors_of(interactions, 3, magnitudes), dtype=torch.int64).view(2, -1)
    for share in (0.0, 0.9):
        options = (1.0, magnitudes)
        tensors = (rows, mean, squares, torch.tensor(share, dtype=dtype), torch.tensor(2.0, dtype=dtype))
        edges = torch.randn(3, steps, dtype=dtype)
        found = standardised(*tensors, *options, pairs, edges, intercept)
        arrays: Any = [value.numpy() for value in tensors[:3]]
        of_arrays = (pairs.numpy(), edges.numpy(), intercept)
        arrays = standardised(*arrays, share, 2.0, *options, *of_arrays)  # type: ignore[arg-type]
        assert found.dtype == dtype
        assert bool((found[:, 0] == 0.0).all()) == (not share)
        close(torch.from_numpy(arrays), found, 1e-6 if dtype == torch.float32 else 1e-14)


PAIRS: dict[str, tuple[Any, list[tuple[int, int]]]] = {
    "none": (False, []),
    "features": ("features", [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]),
    "pairs": ([(3, 0), (1, 2), (0, 3)], [(0, 3), (1, 2)]),
    "groups": ({"user": [0, 3], "page": (1,), "hour": [2]}, [(0, 1), (0, 2), (1, 2), (1, 3), (2, 3)]),
}


@pytest.mark.parametrize("magnitudes", [False, True])
@pytest.mark.parametrize(("interactions", "pairs"), PAIRS.values(), ids=PAIRS)
def test_interactions_are_products_of_columns(
    interactions: Any, pairs: list[tuple[int, int]], magnitudes: bool
) -> None:
    scaler = StandardScaler(4, magnitudes=magnitudes, interactions=interactions, intercept=3.0)
    rows = torch.randn(40, 4, dtype=D)
    scaler.step(rows)
    plain = StandardScaler(4, magnitudes=magnitudes, intercept=3.0)
    plain.step(rows)
    columns = plain(rows)
    expected = [columns[:, i] * columns[:, j] for i, j in pairs]
    if magnitudes and interactions != "features":
        magnitude = columns[:, 4:8]
        expected += [columns[:, i] * magnitude[:, j] for i, j in pairs]
        expected += [magnitude[:, i] * columns[:, j] for i, j in pairs]
        expected += [magnitude[:, i] * magnitude[:, j] for i, j in pairs]
    found = scaler(rows)
    assert found.shape[-1] == scaler.features == plain.features + len(expected)
    close(torch.cat([found[:, : plain.features - 1], found[:, -1:]], -1), columns, 1e-14)
    if expected:
        close(found[:, plain.features - 1 : -1], 0.1 * torch.stack(expected, -1), 1e-14)
    assert float(scaler(1e9 * torch.randn(100, 4, dtype=D)).norm(dim=-1).max()) <= scaler.bound
    script = torch.jit.script(scaler)
    close(script(rows), found, 1e-14)


@pytest.mark.parametrize("batch_shape", [(), (2,)])
@pytest.mark.parametrize("bins", [2, 8, 32])
def test_steps_are_at_the_quantiles_of_the_first_rows(bins: int, batch_shape: tuple[int, ...]) -> None:
    rows = torch.randn(*batch_shape, 70, 3, dtype=D)
    scaler, plain = (StandardScaler(3, bins=b, magnitudes=True, batch_shape=batch_shape) for b in (bins, 1))
    scaler.step(rows[..., :31, :])
    assert bool((scaler(rows)[..., 6:-1] == 0.0).all())  # no edge is set
    scaler.step(rows[..., 31:, :])
    plain.step(rows)
    found = scaler(rows)
    assert found.shape[-1] == scaler.features == 7 + 3 * (bins - 1)
    assert torch.equal(torch.cat([found[..., :6], found[..., -1:]], -1), plain(rows))
    ordered = rows[..., :32, :].sort(-2).values
    assert torch.equal(scaler.edges, ordered[..., 32 // bins - 1 : -1 : 32 // bins, :].mT)
    above = (rows.unsqueeze(-1) > scaler.edges.unsqueeze(-3)).to(D)
    assert torch.equal(found[..., 6:-1], 0.3 * above.flatten(-2))
    # The bins hold the same number of the first rows.
    assert bool((above[..., :32, :, :].sum((-1, -3)) == sum(range(bins)) * 32 // bins).all())
    close(torch.jit.script(scaler)(rows), found, 1e-14)
    assert float(scaler(1e9 * rows).norm(dim=-1).max()) <= scaler.bound


def test_edges_follow_a_large_change_of_scale() -> None:
    rows = torch.randn(96, 2, dtype=D)
    scaler = fed(torch.cat([rows[:32], torch.stack([rows[32:, 0], 1e9 * rows[32:, 1]], -1)]), bins=4)
    assert torch.equal(scaler.edges[0], rows[:32, 0].sort().values[7:-1:8])
    assert float(scaler.edges[1].abs().max()) > 1e7


@pytest.mark.parametrize("bins", [0, 3, 64, 2.0, True])
def test_wrong_numbers_of_bins_are_refused(bins: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=r"^bins: expected"):
        StandardScaler(2, bins=bins)
    with pytest.raises(ValueError, match=r"^freeze_after: expected at least 32 with bins"):
        StandardScaler(2, bins=4, freeze_after=20)


def test_states_without_bins_are_as_before() -> None:
    scaler = fed(torch.randn(40, 2, dtype=D))
    state = scaler.state_dict()
    assert state.pop("edges").shape == (2, 0)
    twin = StandardScaler(2)
    twin.load_state_dict(state)
    assert differences(snapshot(scaler), snapshot(twin)) == []
    with pytest.raises(RuntimeError, match="bins"):
        StandardScaler(2, bins=4).load_state_dict(scaler.state_dict())


def test_true_means_all_interactions() -> None:
    one, other = (StandardScaler(3, magnitudes=True, interactions=both) for both in (True, "all"))
    assert one.factors == other.factors


def test_interactions_are_kept_as_they_were() -> None:
    """The caller's lists are copied. The repr and copies of the scaler have the same pairs."""
    pairs = [[0, 2], [1, 3]]
    scaler = StandardScaler(4, interactions=pairs)
    pairs.append([0, 3])
    pairs[0][0] = 1
    assert scaler.interactions == ((0, 2), (1, 3))
    assert "interactions=((0, 2), (1, 3))" in repr(scaler)
    assert rebuilt(scaler).factors == pickle.loads(pickle.dumps(scaler)).factors == scaler.factors
    assert "interactions" not in repr(StandardScaler(4))


def test_states_with_other_interactions_are_refused() -> None:
    made = {name: StandardScaler(4, interactions=interactions) for name, (interactions, _) in PAIRS.items()}
    for name, scaler in made.items():
        for other, its in made.items():
            if name == other:
                scaler.load_state_dict(its.state_dict())
            else:
                with pytest.raises(RuntimeError, match="interactions"):
                    scaler.load_state_dict(its.state_dict())


@pytest.mark.parametrize(
    ("interactions", "message"),
    [
        ("pairs", r'expected True, False, "features", "all", a list of pairs of features, or a dict .* got \'pairs\''),
        (3, "expected True, False"),
        ([(0, 1), (2, 2)], r"expected pairs of two different features, got \(2, 2\)"),
        ([(0, 1, 2)], "expected pairs of two different features"),
        (["01"], "expected a list of features in each pair or group, got '01'"),
        ([0, 1], "expected a list of features in each pair or group, got 0"),
        ({"a": 0}, "expected a list of features in each pair or group, got 0"),
        (np.array([[0, 1]]), "expected True, False"),
        ([(0, 4)], "expected features from 0 to 3, got 4"),
        ([(0, -1)], "expected features from 0 to 3, got -1"),
        ({"a": [0, 1], "b": [True]}, "expected features from 0 to 3, got True"),
        ({"a": [0, 1], "b": [1]}, "expected groups without a feature in common"),
        ({"a": [0, 1], "b": []}, "expected at least two groups with features, got {'a'"),
        ({}, "expected at least two groups"),
        ([], "expected at least one pair, or False for no products, got none"),
    ],
)
def test_wrong_interactions_are_named(interactions: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=rf"^interactions: {message}"):
        StandardScaler(4, interactions=interactions)


@pytest.mark.parametrize(
    ("dtype", "unit"),
    [
        (D, 1e-160),
        (D, 1e-20),
        (D, 1.0),
        (D, 1e100),
        (D, 1e200),
        *((torch.float32, 10.0**n) for n in (-21, -18, 0, 18, 25)),
    ],
)
@pytest.mark.filterwarnings("error")
def test_one_row_is_standardised_on_arrays_like_on_tensors(dtype: torch.dtype, unit: float) -> None:
    """Also where squares are subnormal, or overflow."""
    scaler, is_small = StandardScaler(3, dtype=dtype, validate=False, magnitudes=True), dtype == torch.float32
    for row in torch.randn(20, 3, dtype=dtype):
        view: Any = scaler.numpy_view()
        arrays = view.learner._scaled((unit * row).numpy())
        close(torch.from_numpy(arrays.copy()), scaler(unit * row), 1e-5 if is_small else 1e-13)
        scaler.step(row if unit > (1e18 if is_small else 1e100) else unit * row)


@pytest.mark.parametrize("magnitudes", [False, True])
@pytest.mark.parametrize("intercept", [False, True, 2.5])
@pytest.mark.parametrize("clip", [0.3, 1.0, 2.5])
def test_no_output_is_longer_than_bound(magnitudes: bool, intercept: bool | float, clip: float) -> None:
    """And one reaches it."""
    rows = torch.randn(50, 3, dtype=D)
    scaler = fed(rows, magnitudes=magnitudes, intercept=intercept, clip=clip)
    ends = scaler.mean.expand(2, 3) + torch.tensor([[0.0], [1e6]], dtype=D)
    longest = scaler(torch.cat([rows, 5.0 * rows, ends])).norm(dim=-1).max()
    assert float(longest) == pytest.approx(scaler.bound, rel=1e-12)


def test_the_output_is_differentiable() -> None:
    scaler = fed(torch.randn(50, 3, dtype=D), clip=100.0, magnitudes=True)
    x = torch.randn(4, 3, dtype=D, requires_grad=True)
    assert torch.autograd.gradcheck(scaler, (x,))
    scaler.step(x)
    assert not any(buffer.requires_grad for buffer in scaler.buffers())


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("batch_shape", SHAPES)
@pytest.mark.parametrize("freeze_after", [None, 4])
def test_a_constant_feature_has_no_slope(
    batch_shape: tuple[int, ...], dtype: torch.dtype, freeze_after: int | None
) -> None:
    """An encoder behind it goes on to train."""
    scaler = StandardScaler(3, magnitudes=True, batch_shape=batch_shape, dtype=dtype, freeze_after=freeze_after)
    rows = torch.randn(*batch_shape, 5, 3, dtype=dtype)
    rows[..., 1] = 0.3
    scaler.step(rows)
    x = rows[..., 2, :].clone().requires_grad_()
    scaler(x).sum().backward()
    assert x.grad is not None
    assert not x.grad[..., 1].any()
    assert bool(x.grad[..., 0].all())


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_row_beyond_all_squares_is_far_out(dtype: torch.dtype) -> None:
    """Files and validate=False check no values; the largest number may stand for a missing one."""
    largest = torch.finfo(dtype).max
    for batch_shape in ((), (2,)):
        scaler = StandardScaler(2, batch_shape=batch_shape, dtype=dtype, intercept=False, validate=False)
        scaler.step(torch.randn(*batch_shape, 9, 2, dtype=dtype))
        far = torch.tensor([largest, -0.1 * largest], dtype=dtype).expand(*batch_shape, 2)
        for found in (scaler(far), torch.jit.script(scaler)(far)):
            assert found.tolist() == torch.tensor([2.5, -2.5]).expand(*batch_shape, 2).tolist()
    view = scaler.numpy_view()
    assert view is not None
    assert view.learner._scaled(far.numpy()).tolist() == found.tolist()


@pytest.mark.parametrize("is_small", [True, False])
def test_statistics_freeze_after_so_many_rows(is_small: bool) -> None:
    """Rows go on to be counted. On arrays, on tensors, one by one and at once."""
    rows = torch.randn(30, 3, dtype=D) ** 3
    scaler, first = StandardScaler(3, freeze_after=10), fed(rows[:10])
    for row in rows:
        scaler.step(row if is_small else torch.nn.Parameter(row))
    for each in (scaler, fed(rows, freeze_after=10)):
        for name in ("mean", "squares"):
            assert torch.equal(getattr(each, name), getattr(first, name))
        assert int(each.rounds) == 30
        # A row has no part in it any more.
        z = (rows - rows[:10].mean(0)) / rows[:10].std(0)
        close(each(rows)[:, :3], z.clamp(-2.5, 2.5), 1e-12)
    batched = StandardScaler(3, freeze_after=10, batch_shape=(2,))
    batched.rounds.copy_(torch.tensor([10, 0]))
    batched.step(torch.ones(2, 3))
    assert batched.mean.tolist() == [[0.0] * 3, [1.0] * 3]
    once = fed(rows, freeze_after=1)
    assert torch.equal(once.mean, rows[0])
    assert not once(rows)[:, :3].any()


@pytest.mark.parametrize("freeze_after", [None, 6])
def test_members_of_a_batch_may_be_at_different_rounds(freeze_after: int | None) -> None:
    """Each member standardises by its own rows: none, one, two, those at the freeze and those after it."""
    counts, rows, x = (0, 1, 2, 5, 6, 9), torch.randn(6, 9, 3, dtype=D) ** 3, torch.randn(6, 4, 3, dtype=D)
    batched = StandardScaler(3, batch_shape=(6,), freeze_after=freeze_after)
    for i, count in enumerate(counts):
        if count:
            single = fed(rows[i, :count], freeze_after=freeze_after)
            for name, buffer in single.state().items():
                getattr(batched, name)[i] = buffer
    for i, count in enumerate(counts):
        known = rows[i, : min(count, freeze_after or count)].numpy()
        wanted = np.zeros((4, 3))
        if freeze_after is not None and count >= freeze_after:
            wanted = np.clip((x[i].numpy() - known.mean(0)) / known.std(0, ddof=1), -2.5, 2.5)
        elif count > 1:
            wanted = np.stack([with_own_row(known, row) for row in x[i].numpy()])
        np.testing.assert_allclose(batched(x)[i, :, :3].numpy(), wanted, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("batch_shape", SHAPES)
def test_a_batch_equals_singles_and_script_equals_eager(batch_shape: tuple[int, ...], dtype: torch.dtype) -> None:
    options: dict[str, Any] = {"dtype": dtype, "freeze_after": 15, "magnitudes": True}
    batched = StandardScaler(3, batch_shape=batch_shape, **options)
    file = io.BytesIO()
    torch.jit.save(torch.jit.script(batched), file)
    file.seek(0)
    script = torch.jit.load(file)
    rows = 100.0 + torch.randn(*batch_shape, 20, 3, dtype=dtype)
    for scaler in (batched, script):
        scaler.step(rows[..., :9, :])
        for t in range(9, 20):
            scaler.step(rows[..., t, :])
    tolerance = 1e-5 if dtype == torch.float32 else 1e-12
    for name, value in snapshot(batched).items():
        close(script.state_dict()[name], value, tolerance)
    probes = 100.0 + torch.randn(*batch_shape, 2, 7, 3, dtype=dtype)
    close(script(probes), batched(probes), tolerance)
    for member in np.ndindex(*batch_shape):
        single = fed(rows[member], **options)
        close(single(probes[member]), batched(probes)[member], tolerance)
        for name in ("mean", "squares", "rounds"):
            close(getattr(single, name), getattr(batched, name)[member], tolerance)


def test_single_precision_follows_double() -> None:
    rows = (1000.0 + torch.randn(300, 2)).float()
    single, double = fed(rows, dtype=torch.float32), fed(rows)
    assert single(rows).dtype == torch.float32
    torch.testing.assert_close(single(rows).double(), double(rows), rtol=1e-2, atol=1e-2)


def test_a_state_dict_and_copies_continue_bit_for_bit() -> None:
    for batch_shape in SHAPES:
        rows = torch.randn(*batch_shape, 30, 3, dtype=D)
        scaler = StandardScaler(3, batch_shape=batch_shape)
        scaler.step(rows[..., :20, :])
        file = io.BytesIO()
        torch.save(scaler.state_dict(), file)
        file.seek(0)
        loaded = StandardScaler(3, batch_shape=batch_shape)
        loaded.load_state_dict(torch.load(file, weights_only=True))
        copies = [loaded, copy.deepcopy(scaler), pickle.loads(pickle.dumps(scaler))]
        before = snapshot(scaler)
        for each in copies:
            each.step(rows[..., 20:, :])
        assert differences(before, snapshot(scaler)) == []
        scaler.step(rows[..., 20:, :])
        assert all(differences(snapshot(scaler), snapshot(each)) == [] for each in copies)
        scaler.reset()
        assert differences(snapshot(StandardScaler(3, batch_shape=batch_shape)), snapshot(scaler)) == []


def test_a_state_of_other_options_is_refused() -> None:
    scaler = fed(torch.randn(5, 3))
    before = snapshot(scaler)
    for blamed, state in (
        ("freeze_after: the state was learnt with 7", StandardScaler(3, freeze_after=7).state_dict()),
        ("clip: the state was learnt with 5", StandardScaler(3, clip=5.0).state_dict()),
        ("magnitudes: the state was learnt with", StandardScaler(3, magnitudes=True).state_dict()),
        ("mean: expected shape", StandardScaler(4).state_dict()),
        ("mean: expected numbers, got NaN", before | {"mean": torch.full((3,), torch.nan, dtype=D)}),
    ):
        with pytest.raises(RuntimeError, match=blamed):
            scaler.load_state_dict(state)
        assert differences(before, snapshot(scaler)) == []


@pytest.mark.parametrize("batch_shape", SHAPES)
def test_wrong_rows_are_refused_by_name_and_change_nothing(batch_shape: tuple[int, ...]) -> None:
    scaler = StandardScaler(3, batch_shape=batch_shape)
    scaler.step(torch.randn(*batch_shape, 4, 3))
    before = snapshot(scaler)
    good = torch.randn(*batch_shape, 2, 3, dtype=D)
    bad: dict[str, Any] = no_floats(good) | no_values(good) | {"None": None, "too few": good[..., 1:]}
    bad |= {"no dimension": good.sum(), "too many dimensions": good.unsqueeze(-2), "a scalar": 1.0}
    for kind, value in bad.items():
        with pytest.raises((ValueError, TypeError), match=r"^x: expected ") as caught:
            scaler.step(value)
        assert caught.type in (ValueError, TypeError), kind
        assert differences(before, snapshot(scaler)) == [], kind
    for kind in ("None", "too few", "no dimension", "a string", "integers", "on another device"):
        with pytest.raises((ValueError, TypeError), match=r"^x: expected "):
            scaler(bad[kind])


def test_wrong_options_are_refused_by_name() -> None:
    bad: dict[str, list[Any]] = {
        "clip": NOT_POSITIVE,
        "magnitudes": [1, 0, None, "yes"],
        "intercept": [0, -1.0, math.nan, math.inf, None, "yes"],
        "freeze_after": [0, -1, 1.5, True, "3"],
        **{name: BAD_OPTIONS[name] for name in ("dim", "batch_shape", "dtype", "device", "validate")},
    }
    for name, values in bad.items():
        for value in values:
            if name != "device" or value is not None:
                with pytest.raises((ValueError, TypeError), match=f"^{name}: expected "):
                    StandardScaler(**{"dim": 3} | {name: value})
    scaler = StandardScaler(3)
    for name in ("clip", "magnitudes", "intercept", "freeze_after"):
        with pytest.raises(AttributeError, match=f"^{name}: expected "):
            setattr(scaler, name, 7)


def test_rows_may_be_lists_arrays_and_other_types() -> None:
    rows = [[1.0, 2.0], [3.0, 5.0], [2.0, 2.0]]
    wanted = snapshot(fed(torch.tensor(rows, dtype=D)))
    for given in (
        rows,
        np.array(rows),
        np.array(rows, dtype=np.float32),
        torch.tensor(rows),
        torch.tensor(rows).half(),
    ):
        assert differences(wanted, snapshot(fed(given))) == []
    scaler = fed(rows)
    for given in ([2.0, 2.0], np.array([2, 2]), torch.tensor([2.0, 2.0])):
        close(scaler(given), scaler(torch.tensor([2.0, 2.0], dtype=D)))


def test_a_row_may_lie_in_the_scalers_own_memory() -> None:
    scaler = fed(torch.randn(5, 3))
    twin = copy.deepcopy(scaler)
    scaler.step(scaler.mean)
    twin.step(twin.mean.clone())
    assert differences(snapshot(twin), snapshot(scaler)) == []
    scaler = StandardScaler(3, batch_shape=(3,))
    scaler.step(torch.randn(3, 4, 3))
    twin = copy.deepcopy(scaler)
    scaler.step(scaler.squares)
    twin.step(twin.squares.clone())
    assert differences(snapshot(twin), snapshot(scaler)) == []


@pytest.mark.parametrize("batch_shape", [(), (2,)])
def test_an_interrupted_step_is_all_or_nothing(batch_shape: tuple[int, ...]) -> None:
    scaler, done = (StandardScaler(3, batch_shape=batch_shape, freeze_after=5) for _ in range(2))
    rows = torch.randn(*batch_shape, 6, 3, dtype=D)
    for each in (scaler, done):
        each.step(rows[..., :2, :])
    start = snapshot(scaler)
    for x in (rows[..., 3, :], rows[..., 2:, :]):
        done.load_state_dict(start)
        done.step(x)
        after, line = snapshot(done), 0
        while interrupted(lambda x=x: scaler.step(x), line):
            now = snapshot(scaler)
            assert differences(start, now) == [] or differences(after, now) == [], line
            scaler.load_state_dict(start)
            line += 1
        assert line > 30
        assert differences(after, snapshot(scaler)) == []
        scaler.load_state_dict(start)


def test_deciding_never_changes_it() -> None:
    policy = ScaledPolicy(RidgeRegression(4), StandardScaler(3))
    policy.step(torch.randn(9, 1, 3), [0] * 9, torch.randn(9))
    before = snapshot(policy)
    for _ in range(5):
        arms = torch.randn(4, 5, 3)
        policy.select(arms)
        policy.probabilities(arms)
        policy.select_with_probability(arms)
        policy(arms)
        policy.scaler(arms)
    assert differences(before, snapshot(policy)) == []


def test_a_row_is_standardised_once_in_a_round_and_anew_when_the_state_has_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[object] = []
    counted = StandardScaler._standardised
    monkeypatch.setattr(StandardScaler, "_standardised", lambda self, x: calls.append(x) or counted(self, x))
    scaler = StandardScaler(3)
    arms = DisjointArms(RidgeRegression(4), actions=2, scaler=scaler)
    rows = torch.randn(6, 3, dtype=torch.float64)
    for count, row in enumerate(rows, 1):
        arms.step(row, int(arms.select(row)), 1.0)
        assert len(calls) == count
    arms.select(rows[0])
    view = arms.numpy_view()
    assert view is not None
    for buffer in (scaler.mean, scaler.squares, scaler.rounds, rows[0]):
        buffer += 1  # in place, unseen by anything
        found = view.learner.scaler._scaled(rows[0].numpy())
        np.testing.assert_allclose(found, scaler(rows[0]).numpy(), rtol=1e-12)
    assert not found.flags.writeable


def test_threads_lose_no_row() -> None:
    scaler = StandardScaler(4)
    rows = np.random.default_rng(0).standard_normal((4, 200, 4))

    def learn(number: int) -> None:
        for row in rows[number]:
            scaler.step(row)
            scaler(row)

    together(*(lambda number=number: learn(number) for number in range(4)))
    assert int(scaler.rounds) == 800
    np.testing.assert_allclose(deviation(scaler), rows.reshape(-1, 4).std(0, ddof=1), rtol=1e-12)


def test_a_torn_scaler_refuses_to_look() -> None:
    scaler = StandardScaler(2)
    scaler.__dict__["_is_torn"] = True
    for call in (lambda: scaler([1.0, 2.0]), lambda: scaler.step([1.0, 2.0]), scaler.state_dict):
        with pytest.raises(RuntimeError, match=r"^state: expected the whole state of StandardScaler"):
            call()


def test_without_value_checks_shapes_still_are_checked() -> None:
    scaler = StandardScaler(2, validate=False)
    with pytest.raises(ValueError, match=r"^x: expected shape"):
        scaler.step([1.0])
    scaler.step([torch.nan, 1.0])
    assert bool(scaler.mean.isnan().any())
