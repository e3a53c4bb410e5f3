"""Reading of tables from files, with errors that name the likely cause."""

import codecs
import gzip
import warnings
import zlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from torchonline.core.checks import instance_of
from torchonline.core.messages import listed

SUFFIXES = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet")
SEPARATORS = (";", "\t", "|", ",")


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

    # From version 3.1 on, pandas rounds correctly by default and warns about the option.
    version = tuple(map(int, pandas.__version__.split(".")[:2]))
    exact: Any = {"float_precision": "round_trip"} if version < (3, 1) else {}
    kind = f"files: expected files that pandas can read, got {str(path)!r}"
    try:
        if suffix_of(path) == ".parquet":
            return pandas.read_parquet(path)
        # index_col=False: by default pandas takes the first column as index if each row ends in a separator.
        options: Any = {"index_col": False, "sep": separator_of(path, separator), "encoding": encoding}
        options |= {"skipinitialspace": True}
        names = (
            pandas.read_csv(path, header=None, nrows=1, dtype=str, keep_default_na=False, **options).iloc[0].tolist()
        )
        with warnings.catch_warnings():
            warnings.simplefilter("error", pandas.errors.ParserWarning)
            frame = pandas.read_csv(path, low_memory=False, **options, **exact)
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
        raise ValueError(f"{kind}: {error}") from error
    if twice := [name for name, count in Counter(names).items() if name and count > 1]:
        raise ValueError(f"files: expected unique column names, got {listed(twice)} more than once in {path.name}")
    return frame


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
