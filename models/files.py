"""Reading of tables from files, with errors that name the likely cause."""

import codecs
import gzip
import warnings
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from torchonline.core.checks import instance_of
from torchonline.core.messages import listed

SUFFIXES = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet")
SEPARATORS = (";", "\t", "|", ",")
# Texts that are a gap in a column of numbers: pandas' own, without its "-nan" and the like.
WORDS_OF_GAPS = ["", "NA", "N/A", "n/a", "NaN", "nan", "null", "NULL", "None", "?", "-", "."]


def suffix_of(path: Path) -> str:
    """Return which of SUFFIXES a file's name has, ignoring case, or ""."""
    return next((suffix for suffix in SUFFIXES if path.name.lower().endswith(suffix)), "")


def checked_encoding(encoding: Any) -> str:
    """Return the name of an encoding known to Python, or raise."""
    try:
        codecs.lookup(instance_of("encoding", encoding, str, "the name of an encoding"))
    except LookupError:
        raise ValueError(
            f"encoding: expected an encoding that Python knows, such as 'cp1252', got {encoding!r}"
        ) from None
    return str(encoding)


def checked_separator(separator: Any) -> str | None:
    """Return a separator of one character, or None. Raise for anything else."""
    if (
        instance_of("separator", separator, (str, type(None)), "one character or None") is not None
        and len(separator) != 1
    ):
        raise ValueError(f"separator: expected one character or None, got {separator!r}")
    return cast("str | None", separator)


def read_file(path: Path, separator: str | None, encoding: str) -> Any:
    """Read one file with pandas, or raise a ValueError that names it."""
    import pandas

    with explained(path, encoding):
        if suffix_of(path) == ".parquet":
            return pandas.read_parquet(path)
        frame = pandas.read_csv(path, low_memory=False, **csv_options(path, separator, encoding))
    return frame


def read_chunks(
    files: Sequence[Path],
    separator: str | None,
    encoding: str,
    columns: Sequence[str] | None,
    texts: Sequence[str] | None,
    rows: int,
) -> Iterator[Any]:
    """Yield the rows of files as pandas frames of at most ``rows`` rows.

    Args:
        files: the files.
        separator: of text files, see :func:`separator_of`.
        encoding: of text files.
        columns: names of the columns to read; None for all of the file.
        texts: columns of text files to read as text; None for all. Only empty texts are gaps there.
        rows: number of rows in a frame.
    """
    for path in files:
        chunks = _chunks(path, separator, encoding, columns, texts, rows)
        while True:
            with explained(path, encoding):
                chunk = next(chunks, None)
            if chunk is None:
                break
            yield chunk


def _chunks(
    path: Path,
    separator: str | None,
    encoding: str,
    columns: Sequence[str] | None,
    texts: Sequence[str] | None,
    rows: int,
) -> Iterator[Any]:
    """Yield the rows of one file, with pandas' errors."""
    import pandas

    if suffix_of(path) == ".parquet":
        from pyarrow import parquet

        with parquet.ParquetFile(path) as file:
            check_names(list(file.schema_arrow.names), columns or (), path, None)
            for batch in file.iter_batches(rows, columns=None if columns is None else list(dict.fromkeys(columns))):
                yield batch.to_pandas()
        return
    options = csv_options(path, separator, encoding)
    names = list(pandas.read_csv(path, nrows=0, **options).columns)
    check_names(names, columns or (), path, separator)
    as_text = names if texts is None else list(dict.fromkeys(texts))
    options["dtype"] = dict.fromkeys(as_text, str)
    # Words such as NA are a gap in numbers only.
    options["na_values"] = {name: [""] if name in as_text else WORDS_OF_GAPS for name in names}
    options["usecols"] = None if columns is None else list(dict.fromkeys(columns))
    with pandas.read_csv(path, keep_default_na=False, chunksize=rows, **options) as found:
        yield from found


def check_names(names: Sequence[str], columns: Sequence[str], path: Path, separator: str | None) -> None:
    """Raise unless a file has all columns."""
    if missing := [column for column in columns if column not in names]:
        guess = guessed_separator(list(names), missing, separator_of(path, separator))
        hint = f"; the separator seems to be {guess!r}: pass separator={guess!r}" if guess else ""
        raise ValueError(
            f"files: expected the columns {listed(dict.fromkeys(columns))}, got none of {listed(missing)} in {path.name}, which "
            f"has {listed(names)}{hint}"
        )


def csv_options(path: Path, separator: str | None, encoding: str) -> dict[str, Any]:
    """Return pandas' options for a text file. Column names must be unique."""
    import pandas

    # index_col=False: by default pandas takes the first column as index if each row ends in a separator.
    options: dict[str, Any] = {"index_col": False, "sep": separator_of(path, separator), "encoding": encoding}
    options |= {"skipinitialspace": True}
    names = pandas.read_csv(path, header=None, nrows=1, dtype=str, keep_default_na=False, **options).iloc[0].tolist()
    if twice := [name for name, count in Counter(names).items() if name and count > 1]:
        raise DuplicateError(f"files: expected unique column names, got {listed(twice)} more than once in {path.name}")
    # From version 3.1 on, pandas rounds correctly by default and warns about the option.
    version = tuple(map(int, pandas.__version__.split(".")[:2]))
    return options | ({"float_precision": "round_trip"} if version < (3, 1) else {})


class DuplicateError(Exception):
    """Two columns of a file have one name."""


@contextmanager
def explained(path: Path, encoding: str) -> Iterator[None]:
    """Turn the errors of reading a file into a ValueError that names it."""
    import pandas

    kind = f"files: expected files that pandas can read, got {str(path)!r}"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pandas.errors.ParserWarning)
            yield
    except DuplicateError as error:
        raise ValueError(str(error)) from None
    except FileNotFoundError:
        raise ValueError(f"files: expected files that exist, got {str(path)!r}") from None
    except pandas.errors.ParserWarning as error:
        raise ValueError(
            f"files: expected as many names as values in a row, got more values in {str(path)!r}: name all columns"
        ) from error
    except UnicodeError as error:
        guess = guessed_encoding(path)
        hint = "" if codecs.lookup(guess) == codecs.lookup(encoding) else f": pass encoding={guess!r}"
        raise ValueError(f"{kind}, which is not {encoding}{hint}") from error
    except (ValueError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        if ": expected " in str(error):
            raise
        raise ValueError(f"{kind}: {error}") from error


def separator_of(path: Path, separator: str | None) -> str:
    """Return the character between the values of a line in a file."""
    return separator or ("\t" if suffix_of(path).startswith(".tsv") else ",")


def guessed_separator(columns: list[str], missing: Sequence[str], used: str) -> str | None:
    """Return a separator under which the missing names exist, or None."""
    for guess in SEPARATORS:
        parts = {part.strip() for column in columns for part in str(column).split(guess)}
        if guess != used and set(missing) <= parts:
            return guess
    return None


def guessed_encoding(path: Path) -> str:
    """Return the likely encoding of a file that is not UTF-8."""
    opened: Any = gzip.open if path.name.lower().endswith(".gz") else open
    with opened(path, "rb") as file:
        start = file.read(2)
    return "utf-16" if start in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) else "cp1252"
