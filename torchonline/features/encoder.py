"""Encoder of the columns of a table, as a module."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from torchonline.core.backend import in_python
from torchonline.core.checks import check_state_dtype
from torchonline.core.messages import counted, listed
from torchonline.core.ops import matmul
from torchonline.features.proposal import MOST_VALUES, proposed
from torchonline.features.reader import (
    LAST_SECOND,
    hashed,
    parsed_boolean,
    parsed_date,
    parsed_number,
    stripped,
    without_point,
)
from torchonline.features.rows import RowReader
from torchonline.features.schema import MISSING, make_schema, to_json

DAY = 86400.0
# Each cycle of a date: seconds, and seconds from its start to 1970-01-01. A week starts on Monday.
CYCLES = {"day": (DAY, 0.0), "week": (7 * DAY, 3 * DAY), "year": (365.2425 * DAY, 0.0)}
# The sine and cosine of a cycle are read from a table, so that all machines have the same bits.
PHASES = 1440
# The polynomial of CRC-32, bits reversed.
POLYNOMIAL = 0xEDB88320


class ColumnEncoder(nn.Module):
    r"""Encoder of the columns of a table, of numbers, text and dates with gaps.

    It has two parts. :meth:`lookup` reads rows, and turns each value into a number, its code. It is exact, and does not depend on
    data. :meth:`forward` turns codes into features, by tensor operations only. It also takes rows.

    - A *number* is its own code, also as a text such as "$1,234.50". Its features are the number, and a 0/1 column for each of
      ``edges`` that it exceeds.
    - A *boolean* has the code 0 or 1, also as "yes", "F" and the like, which is its feature.
    - A *category* has the CRC-32 of its text as its code. Its features are a column of 0 and 1 for each of ``values``; all others
      are hashed to ``buckets`` columns.
    - A *date* has the seconds since 1970 in UTC as its code. Its features are the days since ``fill``, and sine and cosine of the
      time of day, of the week and of the year.
    - A *text* has a code for each bucket, the number of its tokens there, which are its features.

    A gap (None, NaN, an empty text, or one of ``missing``) has the code NaN. A number, boolean or date is replaced by ``fill``,
    and a category has no value. With ``gaps``, a column of 0 and 1 marks the gap. The gaps of all other columns are counted in
    one last feature, ``gaps``, so that none is filled without a trace. A text has no tokens.

    A new category falls into one of ``buckets`` columns, and the learner learns its effect as rewards come. Nothing in the
    encoder changes while it is used. Use it as the encoder of a :class:`~torchonline.models.BanditHead`, whose inputs are then
    rows or codes::

        encoder = ColumnEncoder.from_frame(frame)
        head = BanditHead(encoder, torchonline.bandit(encoder.dim, "binary", actions=3))
        k = head.select({"age": 31, "country": "CH"})

    The features are not standardised: :func:`torchonline.bandit` does it.

    Files. A TorchScript file has ``encoder.lookup_row(numbers, texts)``, with the values of one row in two dictionaries, in
    Python and C++. A program takes codes; ``torchonline.features.reader`` computes them and needs only Python. The buffer
    ``schema`` has the schema as JSON. All give the same bits.

    Cost: O(columns) for a row, and O(features) for its codes.

    Args:
        columns: kinds by name, ``{"age": "number", "country": "category"}``, without data; or options by name, ``{"age":
            {"kind": "number", "fill": 40.0}}``; or the ``columns`` of another encoder. Options are ``gaps`` for all kinds
            but text; ``fill`` for numbers, booleans and dates; for numbers also ``edges``, ascending, ``decimal``, the
            decimal mark, and ``unit``, the currency or unit that may stand at the number; for dates also ``order``,
            "ymd", "dmy" or "mdy", and ``parts``, some of "age", "day", "week" and "year"; for categories ``values`` and
            ``buckets``; for texts ``buckets``.
        missing: words for a gap in columns of numbers, booleans and dates, in any case.
        dtype: dtype of the features, torch.float64, or torch.float32 before layers of single precision.

    Shape:
        - codes: ``(..., C)``, float64; features: ``(..., dim)``.

    Raises:
        TypeError, ValueError: a column is wrong. The error names all wrong columns.

    Example:
        >>> encoder = ColumnEncoder({"age": "number", "country": {"kind": "category", "values": ["CH", "DE"], "buckets": 1}})
        >>> encoder.names
        ['age', 'age missing', 'country missing', 'country = CH', 'country = DE', 'country other']
        >>> encoder([{"age": 31, "country": "CH"}, {"age": None, "country": "AT"}])
        tensor([[31.,  0.,  0.,  1.,  0.,  0.],
                [ 0.,  1.,  0.,  0.,  0.,  1.]], dtype=torch.float64)

    Reference:
        Weinberger, Dasgupta, Langford, Smola and Attenberg, Feature hashing for large scale multitask learning, ICML 2009. Here
        the hashes have no signs.
    """

    if TYPE_CHECKING:

        def __call__(self, rows: Any) -> Tensor: ...

        schema: Tensor
        value_places: Tensor
        fill: Tensor
        centre: Tensor
        unit: Tensor
        step_values: Tensor
        edges: Tensor
        flag_places: Tensor
        value_hashes: Tensor
        hash_places: Tensor
        known: Tensor
        bucket_places: Tensor
        bucket_known: Tensor
        bucket_numbers: Tensor
        bucket_counts: Tensor
        cycle_places: Tensor
        cycle_fill: Tensor
        period: Tensor
        shift: Tensor
        waves: Tensor
        text_places: Tensor
        plain_places: Tensor

    __jit_unused_properties__: tuple[str, ...] = ("columns", "reader")

    def __init__(self, columns: Any, *, missing: Sequence[str] = MISSING, dtype: torch.dtype = torch.float64) -> None:
        super().__init__()
        check_state_dtype(dtype)
        self.dtype = dtype
        self.register_buffer("schema", torch.empty(0, dtype=torch.uint8))
        self.dropped = dict[str, str]()
        self._set_schema(make_schema(columns, missing))

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        columns: Sequence[str] | None = None,
        *,
        kinds: Mapping[str, Any] | None = None,
        missing: Sequence[str] = MISSING,
        most_values: int = MOST_VALUES,
        bins: int | None = None,
    ) -> "ColumnEncoder":
        """Return an encoder whose columns are proposed from a table.

        Print it to see the proposal. Change it with ``kinds``.

        - Numbers, booleans and dates are recognized also if they are text. ``fill`` is the median, and ``edges`` are quantiles.
        - A date has the parts that repeat within its range: the week from two weeks on, the year from two years on. Dates that
          ascend from row to row have no age, because all later ones would lie outside the learnt range.
        - Other text is a category. The most frequent values get a column each; new and rare values are hashed. Text of many
          different values, of four words on average, is a text.
        - A column without any value, with one value only, or with a different text in each row, is dropped. ``dropped`` names the
          reason.

        Args:
            frame: a pandas or polars frame, an Arrow table, or a list of dicts.
            columns: names of the columns to encode; None for all.
            kinds: kinds or options of columns by name, which replace the proposal; ``{"zip": "category"}``. None instead of a
                kind drops the column.
            missing: words for a gap, see the class.
            most_values: number of values of a category with a column each.
            bins: number of bins of a number, between ``bins`` - 1 edges. 1 for no edges; None for 8, or 1 if that makes more than
                128 features.

        Raises:
            ImportError: narwhals is not installed, which reads frames.
            ValueError: a column has values that its kind does not take. The error names all such columns.
        """
        found, dropped = proposed(frame, columns, kinds or {}, missing, most_values, bins)
        encoder = cls(found, missing=missing)
        encoder.dropped = dropped
        return encoder

    @property
    def columns(self) -> list[dict[str, Any]]:
        """The columns with all options, as a new list. Python only."""
        found: list[dict[str, Any]] = json.loads(self.schema_text)["columns"]
        return found

    @property
    def reader(self) -> RowReader:
        """The reader of rows. Python only."""
        found: RowReader | None = self.__dict__.get("_reader")
        if found is None:
            found = self.__dict__["_reader"] = RowReader(json.loads(self.schema_text))
        return found

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes but the reader: plain values and tensors."""
        return {name: value for name, value in self.__dict__.items() if name != "_reader"}

    def places(self, *columns: str) -> list[int]:
        """Return the indices of the features of columns, as for ``interactions``.

        ``torchonline.bandit(encoder.dim, interactions={"visitor": encoder.places("age", "country"), "page":
        encoder.places("price")})`` has the products of all features of the visitor with all features of the page.
        """
        names = [column["name"] for column in self.columns]
        if unknown := [column for column in columns if column not in names]:
            raise ValueError(f"columns: expected some of {listed(names)}, got {listed(unknown)}")
        return [place for place, owner in enumerate(self.owners) if owner in columns]

    def number_places(self) -> Tensor:
        """Return the indices of the codes of numbers."""
        starts = zip(self.column_kinds, self.reader.starts, strict=True)
        return torch.tensor([start for kind, start in starts if kind == "number"], dtype=torch.int64)

    def lookup(self, rows: Any) -> Tensor:
        """Return the codes of rows, float64: ``(C)`` of one row, ``(..., C)`` of many.

        Python only.

        Args:
            rows: a dict of values by name; a list of dicts, or of such lists; or a table, whose other columns are ignored. A name
                that a dict lacks is a gap.

        Raises:
            ImportError: narwhals is not installed, which reads tables.
            TypeError, ValueError: a column is missing in a table, a dict has an unknown name, or a column does not take a value.
                The error names all such columns.
        """
        return torch.from_numpy(self.reader.codes(rows)).to(self.schema.device)

    def _forward_in_python(self, codes: Any) -> Tensor:
        return self._features(codes if isinstance(codes, Tensor) else self.lookup(codes))

    @in_python(_forward_in_python)
    def forward(self, codes: Tensor) -> Tensor:
        """Return the features of rows or of their codes, ``(..., dim)``.

        Args:
            codes: codes, as :meth:`lookup` returns them; or rows, as it takes them.

        Raises:
            TypeError: codes are not float64, which hashes need.
            ValueError: as :meth:`lookup`; or the last dimension is wrong.
        """
        return self._features(codes)

    def _features(self, codes: Tensor) -> Tensor:
        if codes.dtype != torch.float64:
            raise TypeError(f"codes: expected torch.float64, as lookup returns them, got {codes.dtype}")
        if codes.dim() == 0 or codes.size(-1) != self.code_count:
            raise ValueError(f"codes: expected {self.code_count} in the last dimension, got shape {codes.shape}")
        is_gap = codes.isnan()
        found: list[Tensor] = []
        if self.has_values:
            values = codes.index_select(-1, self.value_places)
            values = torch.where(is_gap.index_select(-1, self.value_places), self.fill, values)
            found.append((values - self.centre) / self.unit)
            if self.has_steps:
                found.append((values.index_select(-1, self.step_values) > self.edges).to(codes.dtype))
        if self.has_flags:
            found.append(is_gap.index_select(-1, self.flag_places).to(codes.dtype))
        if self.has_categories:
            is_value = (codes.index_select(-1, self.hash_places) == self.value_hashes).to(codes.dtype)
            found.append(is_value)
            if self.has_buckets:
                # Multiplicative hashing as in bucket_of: all products are integers below 2^53.
                mixed = codes.index_select(-1, self.bucket_places) * 1296111.0
                mixed = mixed - (mixed / 4294967296.0).floor() * 4294967296.0
                is_here = (mixed * self.bucket_counts / 4294967296.0).floor() == self.bucket_numbers
                is_known = matmul(is_value, self.known).index_select(-1, self.bucket_known)
                found.append(is_here.to(codes.dtype) * (1.0 - is_known))
        if self.has_cycles:
            is_lost = is_gap.index_select(-1, self.cycle_places)
            turns = torch.where(is_lost, 0.0, codes.index_select(-1, self.cycle_places))
            turns = (turns + self.shift) / self.period
            phase = ((turns - turns.floor()) * self.phases).to(torch.int64).clamp(0, self.phases - 1)
            waves = nn.functional.embedding(phase, self.waves) * (~is_lost).to(codes.dtype).unsqueeze(-1)
            found.append(waves.flatten(-2))
        if self.has_text:
            found.append(codes.index_select(-1, self.text_places))
        if self.has_plain:
            found.append(is_gap.index_select(-1, self.plain_places).to(codes.dtype).sum(-1, keepdim=True))
        # Infinity marks a value that was not read. It must not become a category or a phase.
        bad = torch.where(is_gap, 0.0, codes - codes).sum(-1, keepdim=True)
        return (torch.cat(found, -1) + bad).to(self.dtype)

    def _lookup_row_in_python(self, numbers: Mapping[str, float], texts: Mapping[str, str]) -> Tensor:
        if shared := sorted(numbers.keys() & texts.keys()):
            raise ValueError(f"texts: expected no name of numbers, got {listed(shared)}")
        return self.lookup({**numbers, **texts})

    @torch.jit.export
    @in_python(_lookup_row_in_python)
    def lookup_row(self, numbers: dict[str, float], texts: dict[str, str]) -> Tensor:
        """Return the codes of one row, ``(C)``. For files, which have no other reader.

        A name in neither dictionary is a gap. A file gives a value that its column does not take the code infinity, with which
        it neither decides nor learns.

        Args:
            numbers: values by name. Booleans are 0 and 1, and dates seconds since 1970.
            texts: the other values by name.

        Raises:
            ValueError: a name is not a column, or is in both dictionaries.
        """
        for name in numbers:
            if name not in self.column_places or name in texts:
                raise ValueError(f"numbers: expected names of columns, each in one dictionary, got {name}")
        for name in texts:
            if name not in self.column_places:
                raise ValueError(f"texts: expected names of columns, got {name}")
        codes: list[float] = []
        for name in self.column_names:
            i = self.column_places[name]
            kind = self.column_kinds[i]
            if kind == "text":
                codes += self._counts(name, texts, numbers, self.column_buckets[i])
            elif name in numbers:
                codes.append(self._code_of_float(kind, numbers[name]))
            elif name in texts:
                codes.append(self._code_of_text(i, kind, texts[name]))
            else:
                codes.append(math.nan)
        # torch.tensor rounds to single precision in TorchScript.
        found = torch.empty(len(codes), dtype=torch.float64)
        for i in range(len(codes)):
            found.select(0, i).fill_(codes[i])
        return found

    def _code_of_float(self, kind: str, value: float) -> float:
        """Return the code of a number, in TorchScript."""
        # TorchScript's optimizer takes a number for equal to itself, also NaN.
        if math.isnan(value) or kind == "number":
            return value
        if kind == "date":
            return value if abs(value) <= self.last_second else math.inf
        if kind == "boolean":
            return value if value == 0.0 or value == 1.0 else math.inf
        return float(self._hash(str(int(value)))) if self._is_integer(value) else math.inf

    def _is_integer(self, value: float) -> bool:
        """Return whether a number has a text, in TorchScript."""
        return abs(value) <= 9007199254740992.0 and value == math.floor(value)

    def _code_of_text(self, i: int, kind: str, text: str) -> float:
        """Return the code of a text, in TorchScript."""
        if kind == "number":
            return parsed_number(text, self.column_decimals[i], self.column_units[i], self.missing)
        if kind == "boolean":
            return parsed_boolean(text, self.missing)
        if kind == "date":
            return parsed_date(text, self.column_orders[i], self.missing)
        text = without_point(stripped(text))
        return float(self._hash(text)) if len(text) > 0 else math.nan

    def _hash(self, text: str) -> int:
        """Return the CRC-32 of a text, in TorchScript, where it is a string of bytes."""
        crc = 0xFFFFFFFF
        for i in range(len(text)):
            crc = self.crc_table[(crc ^ ord(text[i])) & 255] ^ (crc >> 8)
        return crc ^ 0xFFFFFFFF

    def _counts(self, name: str, texts: dict[str, str], numbers: dict[str, float], buckets: int) -> list[float]:
        """Return the number of tokens in each bucket, in TorchScript."""
        text = texts.get(name, "")
        each = 0.0
        if name in numbers and not math.isnan(numbers[name]):
            if self._is_integer(numbers[name]):
                text = str(int(numbers[name]))
            else:
                each = math.inf
        counts: list[float] = []
        for _ in range(buckets):
            counts.append(each)
        if len(text) > 0:
            crc = 0xFFFFFFFF
            size = 0
            for i in range(len(text) + 1):
                c = 32 if i == len(text) else ord(text[i])
                c = c + 32 if c >= 65 and c <= 90 else c
                if (c >= 48 and c <= 57) or (c >= 97 and c <= 122) or c >= 128:
                    crc = self.crc_table[(crc ^ c) & 255] ^ (crc >> 8)
                    size += 1
                elif size > 0:
                    counts[((((crc ^ 0xFFFFFFFF) * 1296111) & 0xFFFFFFFF) * buckets) >> 32] += 1.0
                    crc = 0xFFFFFFFF
                    size = 0
        return counts

    # TorchScript does not compile the methods below.

    def _set_schema(self, schema: Mapping[str, Any]) -> None:
        """Make the tables of a schema."""
        columns = schema["columns"]
        self.schema_text: str = to_json(schema)
        data = np.frombuffer(self.schema_text.encode("utf-8", "surrogatepass"), dtype=np.uint8).copy()
        self._buffers["schema"] = torch.from_numpy(data).to(self.schema.device)
        self.__dict__.pop("_reader", None)
        self.code_count = self.reader.width
        # For TorchScript, which reads a text with them.
        self.missing: str = schema["missing"]
        self.column_names: list[str] = [column["name"] for column in columns]
        self.column_places: dict[str, int] = {name: i for i, name in enumerate(self.column_names)}
        self.column_kinds: list[str] = [column["kind"] for column in columns]
        self.column_decimals: list[str] = [column.get("decimal", ".") for column in columns]
        self.column_units: list[str] = [column.get("unit", "") for column in columns]
        self.column_orders: list[str] = [column.get("order", "ymd") for column in columns]
        self.column_buckets: list[int] = [column.get("buckets", 0) for column in columns]
        self.crc_table: list[int] = _crc_table()
        self.phases, self.last_second = PHASES, LAST_SECOND
        self.names: list[str] = []
        self.owners: list[str] = []
        self._make_tables(list(zip(columns, self.reader.starts, strict=True)))
        self.dim = len(self.names)

    def _make_tables(self, columns: list[tuple[dict[str, Any], int]]) -> None:
        """Make the buffers of :meth:`forward`, and the names of its features."""

        def name(text: str, column: dict[str, Any]) -> None:
            self.names.append(text)
            self.owners.append(column["name"])

        values: list[tuple[int, float, float, float]] = []
        steps: list[tuple[int, float]] = []
        for column, start in columns:
            if column["kind"] in ("number", "boolean"):
                steps += [(len(values), edge) for edge in column.get("edges", ())]
                values.append((start, column["fill"], 0.0, 1.0))
                name(column["name"], column)
            elif column["kind"] == "date" and "age" in column["parts"]:
                values.append((start, column["fill"], column["fill"], DAY))
                name(f"{column['name']} days", column)
        for column, _ in columns:
            for edge in column.get("edges", ()):
                name(f"{column['name']} > {edge:g}", column)
        flags = [(column, start) for column, start in columns if column.get("gaps")]
        for column, _ in flags:
            name(f"{column['name']} missing", column)
        categories = [(column, start) for column, start in columns if column["kind"] == "category"]
        hashes: list[tuple[int, int, int]] = []
        for i, (column, start) in enumerate(categories):
            for value in column["values"]:
                hashes.append((start, hashed(value), i))
                name(f"{column['name']} = {value}", column)
        buckets: list[tuple[int, int, int, int]] = []
        for i, (column, start) in enumerate(categories):
            for bucket in range(column["buckets"]):
                buckets.append((start, bucket, column["buckets"], i))
                name(f"{column['name']} other" + (f" {bucket}" if column["buckets"] > 1 else ""), column)
        cycles: list[tuple[int, float, float]] = []
        for column, start in columns:
            for part in column.get("parts", ()):
                if part != "age":
                    cycles.append((start, *CYCLES[part]))
                    name(f"{column['name']} {part} sine", column)
                    name(f"{column['name']} {part} cosine", column)
        texts: list[int] = []
        for column, start in columns:
            if column["kind"] == "text":
                texts += range(start, start + column["buckets"])
                for bucket in range(column["buckets"]):
                    name(f"{column['name']} words {bucket}", column)
        plain = [start for column, start in columns if not column.get("gaps", True)]
        if plain:
            name("gaps", {"name": ""})
        known = torch.zeros(len(hashes), len(categories), dtype=torch.float64)
        for row, (_, _, i) in enumerate(hashes):
            known[row, i] = 1.0
        turn = 2.0 * math.pi / PHASES
        # Rounded far above the last bit, where libraries of sines differ.
        waves = [[round(math.sin(turn * i), 12), round(math.cos(turn * i), 12)] for i in range(PHASES)]
        self.has_values, self.has_steps, self.has_flags = bool(values), bool(steps), bool(flags)
        self.has_categories = bool(categories)
        self.has_buckets, self.has_cycles, self.has_text, self.has_plain = map(bool, (buckets, cycles, texts, plain))
        integers = {
            "value_places": [row[0] for row in values],
            "step_values": [i for i, _ in steps],
            "flag_places": [start for _, start in flags],
            "hash_places": [row[0] for row in hashes],
            "bucket_places": [row[0] for row in buckets],
            "bucket_known": [row[3] for row in buckets],
            "cycle_places": [row[0] for row in cycles],
            "text_places": texts,
            "plain_places": plain,
        }
        numbers = {
            "fill": [row[1] for row in values],
            "centre": [row[2] for row in values],
            "unit": [row[3] for row in values],
            "edges": [edge for _, edge in steps],
            "value_hashes": [row[1] for row in hashes],
            "bucket_numbers": [row[1] for row in buckets],
            "bucket_counts": [row[2] for row in buckets],
            "period": [row[1] for row in cycles],
            "shift": [row[2] for row in cycles],
            "waves": waves,
        }
        tables = {key: torch.tensor(table, dtype=torch.int64) for key, table in integers.items()}
        tables |= {key: torch.tensor(table, dtype=torch.float64) for key, table in numbers.items()}
        for key, table in (tables | {"known": known}).items():
            self.register_buffer(key, table.to(self.schema.device), persistent=False)

    def _load_from_state_dict(
        self,
        state_dict: Mapping[str, Any],
        prefix: str,
        local_metadata: Any,
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        key = f"{prefix}schema"
        unknown = [name for name in state_dict if name.startswith(prefix) and name != key]
        if strict:
            unexpected_keys += unknown
            missing_keys += [] if key in state_dict else [key]
        if key not in state_dict or (strict and unknown):
            return
        try:
            found = json.loads(bytes(state_dict[key].tolist()))
            schema = make_schema(found["columns"], found["missing"].strip(",").split(","))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            error_msgs.append(f"{key}: expected the schema of a ColumnEncoder, got another tensor: {error}")
            return
        if to_json(schema) != self.schema_text:
            self._set_schema(schema)
            self.dropped = {}

    def _apply(self, function: Any, recurse: bool = True) -> Any:
        """Move the buffers to a device. They stay float64, because a hash needs its bits."""
        return super()._apply(lambda tensor: _moved(tensor, function(tensor)), recurse)

    def extra_repr(self) -> str:
        lines = [f"{counted(len(self.column_names), 'column')}, {counted(self.dim, 'feature')}"]
        width = max(map(len, [*self.column_names, *self.dropped]))
        lines += [f"{column['name']:<{width}}  {_described(column)}" for column in self.columns]
        lines += [f"{name:<{width}}  dropped: {why}" for name, why in self.dropped.items()]
        return "\n".join(lines)


def _moved(tensor: Tensor, like: Tensor) -> Tensor:
    return like if like.dtype == tensor.dtype else tensor.to(like.device)


def _described(column: Mapping[str, Any]) -> str:
    """Return the kind and the options of a column as text."""
    kind, words = column["kind"], []
    if kind == "category":
        words = [counted(len(column["values"]), "value"), f"{counted(column['buckets'], 'bucket')} for others"]
    elif kind == "text":
        words = [counted(column["buckets"], "bucket")]
    elif kind == "date":
        words = [column["order"], "+".join(column["parts"])]
    else:
        words = [f"fill={column['fill']:g}"]
        words += [counted(len(column["edges"]), "edge")] if column.get("edges") else []
        words += [f"unit={column['unit']!r}"] if column.get("unit") else []
        words += ["decimal=','"] if column.get("decimal") == "," else []
    return f"{kind:<8}  {', '.join([*words, *(['gaps'] if column.get('gaps') else [])])}"


def _crc_table() -> list[int]:
    """Return the table of CRC-32, one entry for each byte."""
    table = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (POLYNOMIAL if crc & 1 else 0)
        table.append(crc)
    return table
