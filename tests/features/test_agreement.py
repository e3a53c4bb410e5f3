"""The same bits from dicts, tables, TorchScript, programs and the reader that needs only Python, on 10,000 messy rows."""

import importlib
import io
import json
import pickle
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.features import tables
from tests.features.texts import bits
from torchonline.export import to_program, to_torchscript
from torchonline.features import ColumnEncoder, reader
from torchonline.models import BanditHead, table_head

ROWS = 10_000


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    return tables.messy_rows(ROWS)


@pytest.fixture(scope="module")
def encoder() -> ColumnEncoder:
    return tables.encoder()


@pytest.fixture(scope="module")
def codes(encoder: ColumnEncoder, rows: list[dict[str, Any]]) -> Tensor:
    found = encoder.lookup(rows)
    assert not found.isinf().any()
    return found


@pytest.fixture(scope="module")
def head() -> BanditHead:
    """A head that has learnt from some rows."""
    made = table_head(tables.COLUMNS, "binary", actions=["stay", "call", "write"])
    some = tables.messy_rows(200, seed=1)
    made.learn(some, torch.arange(200) % 3, (torch.arange(200) % 7 < 3).double())
    return made.eval()


def same(one: Tensor, other: Tensor) -> bool:
    """Return whether tensors have the same bits, with one NaN."""
    return one.dtype == other.dtype and one.shape == other.shape and bits(one) == bits(other)


def scripted(encoder: ColumnEncoder) -> Any:
    """Return a file of an encoder, read from its bytes."""
    file = io.BytesIO()
    torch.jit.save(torch.jit.script(encoder), file)
    file.seek(0)
    return torch.jit.load(file)


def scripted_codes(script: Any, rows: list[dict[str, Any]]) -> Tensor:
    """Return the codes of rows from a file."""
    return torch.stack([script.lookup_row(*tables.as_dictionaries(row)) for row in rows])


def test_rows_are_messy(encoder: ColumnEncoder, codes: Tensor) -> None:
    features = encoder(codes)
    assert features.shape == (ROWS, encoder.dim)
    assert features.isfinite().all()
    varied = (features != features[0]).any(0)
    lost = [name for name, is_varied in zip(encoder.names, varied.tolist(), strict=True) if not is_varied]
    assert lost == []
    assert bool((codes.isnan().sum(0) > 100).tolist()[0])


def test_single_rows_have_the_bits_of_batches(
    encoder: ColumnEncoder, rows: list[dict[str, Any]], codes: Tensor
) -> None:
    features = encoder(codes)
    for i in range(0, ROWS, 97):
        assert same(encoder.lookup(rows[i]), codes[i])
        assert same(encoder(rows[i]), features[i])
    assert same(encoder(codes.reshape(100, 100, -1)), features.reshape(100, 100, -1))
    assert same(torch.cat([encoder(part) for part in codes.split(999)]), features)
    assert same(encoder([rows[:3], rows[3:6]]), features[:6].reshape(2, 3, -1))


def test_a_pandas_frame_of_objects(rows: list[dict[str, Any]], codes: Tensor, encoder: ColumnEncoder) -> None:
    pandas = importlib.import_module("pandas")
    frame = pandas.DataFrame(tables.frame_of(rows), dtype=object)
    assert same(encoder.lookup(frame), codes)
    assert same(encoder.lookup(frame.iloc[5]), codes[5])


@pytest.mark.parametrize("kind", ["pandas", "pandas types", "polars", "pyarrow"])
def test_typed_tables(kind: str, encoder: ColumnEncoder) -> None:
    some = tables.typed_rows(ROWS)
    wanted = encoder.lookup(some)
    columns = tables.frame_of(some)
    frame: Any
    if kind == "polars":
        frame = importlib.import_module("polars").DataFrame(columns)
    elif kind == "pyarrow":
        frame = importlib.import_module("pyarrow").table(columns)
    else:
        frame = importlib.import_module("pandas").DataFrame(columns)
        frame = frame.convert_dtypes() if kind == "pandas types" else frame
    assert same(encoder.lookup(frame), wanted)
    assert same(encoder(frame), encoder(wanted))


@pytest.mark.parametrize("mode", ["as written", "optimized"])
def test_torchscript(mode: str, encoder: ColumnEncoder, rows: list[dict[str, Any]], codes: Tensor) -> None:
    """Also with TorchScript's optimizer, which users have: tests/long_tests.py names the second case."""
    script = scripted(encoder)
    found = scripted_codes(script, rows)
    assert same(found, codes)
    assert same(script(found), encoder(codes))


def test_a_program(encoder: ColumnEncoder, codes: Tensor, tmp_path: Path) -> None:
    size = torch.export.Dim("rows")
    program = torch.export.export(encoder, (codes[:5],), dynamic_shapes=({0: size},))
    torch.export.save(program, tmp_path / "encoder.pt2")
    loaded = torch.export.load(tmp_path / "encoder.pt2")
    assert same(loaded.module()(codes), encoder(codes))
    assert reader.read_schema(loaded.state_dict["schema"]) == encoder.reader.schema


def test_the_reader_alone(encoder: ColumnEncoder, rows: list[dict[str, Any]], codes: Tensor, tmp_path: Path) -> None:
    """A copy of the file, in a Python without any package."""
    shutil.copy(reader.__file__, tmp_path / "reader.py")
    (tmp_path / "schema.json").write_bytes(bytes(encoder.schema.tolist()))
    with open(tmp_path / "rows.pickle", "wb") as file:
        pickle.dump(rows, file)
    program = """
import json, pickle, sys
sys.path[:] = [path for path in sys.path if "site-packages" not in path] + [sys.argv[1]]
import reader
schema = reader.read_schema(open(f"{sys.argv[1]}/schema.json", "rb").read())
rows = pickle.load(open(f"{sys.argv[1]}/rows.pickle", "rb"))
print(json.dumps([reader.codes_of(row, schema) for row in rows]))
assert not {"torch", "numpy", "torchonline"} & set(sys.modules)
try:
    import torchonline
except ImportError:
    sys.exit(0)
"""
    words = [sys.executable, "-I", "-S", "-c", program, str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert same(torch.tensor(json.loads(done.stdout), dtype=torch.float64), codes)


def test_a_head_in_a_script(head: BanditHead, rows: list[dict[str, Any]], codes: Tensor, tmp_path: Path) -> None:
    to_torchscript(head, tmp_path / "head.pt", example=codes[0])
    script = torch.jit.load(tmp_path / "head.pt")
    found = scripted_codes(script.encoder, rows[:2000])
    assert same(found, codes[:2000])
    assert torch.equal(script.select(codes), head.select(codes))
    chosen = head.select(rows[:500])
    assert torch.equal(script.select(found[:500]), chosen)
    assert len(set(chosen.tolist())) > 1
    # A value that its column does not take: no decision, and nothing is learnt.
    state = {name: value.clone() for name, value in script.state_dict().items()}
    bad = script.encoder.lookup_row({"zip": 1.5}, {"age": "old"})
    assert bad.isinf().sum() == 2
    assert script.select(bad) == -1
    assert not script.step(bad, torch.tensor(1), torch.tensor(1.0))
    assert all(torch.equal(value, state[name]) for name, value in script.state_dict().items())
    assert script.step(found[0], torch.tensor(1), torch.tensor(1.0))


def test_a_head_in_a_program(head: BanditHead, codes: Tensor) -> None:
    program = to_program(head, example=codes[0])
    module = program.module()
    learn, mask = torch.tensor(False), torch.ones(50, 3, dtype=torch.bool)
    action, reward = torch.tensor(0), torch.tensor(1.0, dtype=torch.float64)
    choice = module(codes[0], action, reward, learn, codes[:50], mask)[0]
    assert torch.equal(choice, head.select(codes[:50]))
    schemas = [value for name, value in program.state_dict.items() if name.endswith("schema")]
    assert [reader.read_schema(one) for one in schemas] == [head.encoder.reader.schema]  # type: ignore[union-attr]


@pytest.mark.parametrize("mode", ["as written", "optimized"])
@pytest.mark.parametrize("name", tables.COLUMNS)
def test_numbers_for_each_kind_in_a_script(name: str, mode: str, encoder: ColumnEncoder) -> None:
    """A number is read, or refused, as in Python."""
    script = torch.jit.script(encoder)
    for value in (
        0.0,
        -0.0,
        1.0,
        2.0,
        -7.0,
        0.5,
        2.0**53,
        2.0**53 + 2,
        1e300,
        float("inf"),
        -float("inf"),
        float("nan"),
    ):
        wanted = reader.codes_of({name: value}, encoder.reader.schema)
        for _ in range(3):  # the optimizer begins with the third call
            assert bits(script.lookup_row({name: value}, {})) == bits(wanted), value


def test_names_of_a_script_are_checked(encoder: ColumnEncoder) -> None:
    script = torch.jit.script(encoder)
    for numbers, texts in (({"aeg": 1.0}, {}), ({}, {"aeg": ""}), ({"age": 1.0}, {"age": "1"})):
        with pytest.raises(torch.jit.Error, match="expected names of columns"):
            script.lookup_row(numbers, texts)
        with pytest.raises(ValueError, match="expected"):
            encoder.lookup_row(numbers, texts)
    assert same(script.lookup_row({}, {}), encoder.lookup({}))


def test_cpp(head: BanditHead, rows: list[dict[str, Any]], codes: Tensor, tmp_path: Path) -> None:
    """The program of the examples reads all rows."""
    torch_at, source = Path(torch.__file__).parent, Path(__file__).parents[2] / "examples" / "files" / "columns.cpp"
    command = ["g++", "-std=c++20", "-O0", f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"]
    command += [f"-I{torch_at}/include", f"-I{torch_at}/include/torch/csrc/api/include", str(source), "-o", "columns"]
    command += [f"-L{torch_at}/lib", "-ltorch", "-ltorch_cpu", "-lc10", f"-Wl,-rpath,{torch_at}/lib"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    to_torchscript(head, tmp_path / "head.pt", example=codes[0])
    lines: list[str] = []
    for row in rows:
        numbers, texts = tables.as_dictionaries(row)
        lines += [f"n {name} {value!r}" for name, value in numbers.items()]
        escaped = {
            name: text.replace("\\", "\\\\").replace("\n", "\\n").replace("\0", "\\0") for name, text in texts.items()
        }
        lines += [*(f"t {name} {text}" for name, text in escaped.items()), ""]
    given = "".join(f"{line}\n" for line in lines).encode()
    result = subprocess.run(["./columns", "head.pt"], cwd=tmp_path, input=given, capture_output=True, check=False)
    assert result.returncode == 0, result.stderr[-3000:]
    table = [line.split() for line in result.stdout.decode().splitlines()]
    found = [[int(code, 16) for code in line[:-1]] for line in table]
    assert same(torch.from_numpy(np.array(found, dtype=np.uint64).view(np.float64)), codes)
    assert [int(line[-1]) for line in table] == head.select(codes).tolist()
