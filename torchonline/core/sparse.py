"""Rows of sparse matrices: SciPy's, and torch's sparse tensors."""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchonline.core.checks import kind, shape_text

# Dense copies of sparse rows have at most so many entries: 64 MiB in float64.
MOST_ENTRIES = 1 << 23

# Columns are gathered for so many entries of compact rows at a time.
COMPACT_ENTRIES = 1 << 18


def is_sparse(value: Any) -> bool:
    """Return whether a value is a sparse tensor, or a sparse matrix of SciPy's kind."""
    if isinstance(value, Tensor):
        return value.layout is not torch.strided and not value.is_nested and not value.is_mkldnn
    return not isinstance(value, (np.ndarray, list, tuple, float, int)) and hasattr(value, "tocsr")


class SparseRows:
    """Rows of a sparse matrix, ``(*lead, d)``, on the host.

    Args:
        name: the argument's name in errors.
        value: a sparse matrix or array with ``tocsr()``, ``(n, d)`` or ``(d)``; or a sparse tensor, ``(..., d)``.
        state: a tensor of the learner's, whose type and device the dense rows get.
    """

    def __init__(self, name: str, value: Any, state: Tensor) -> None:
        self.name, self.state = name, state
        self.shape = tuple(int(size) for size in value.shape)
        found = _of_tensor(name, value, state) if isinstance(value, Tensor) else _of_matrix(name, value)
        self.starts, self.columns, values = found
        self.values = values if values.dtype in (np.float64, np.float32) else values.astype(np.float64)
        self.rows = len(self.starts) - 1
        if len(self.columns) and not 0 <= int(self.columns.min()) <= int(self.columns.max()) < self.shape[-1]:
            raise ValueError(f"{name}: expected column indices from 0 to {self.shape[-1] - 1}, got others")

    def entries(self, first: int, count: int) -> tuple[Any, Any, Any]:
        """Return the rows (from 0), columns and values of the entries of some rows."""
        starts = self.starts[first : first + count + 1]
        if count == 1 and self.rows == 1:
            return np.zeros(len(self.columns), np.int64), self.columns, self.values
        part = slice(int(starts[0]), int(starts[-1]))
        rows = np.repeat(np.arange(count), np.diff(starts))
        return rows, self.columns[part], self.values[part]

    def dense(self, first: int, count: int) -> Any:
        """Return some rows as a dense array, ``(count, d)``."""
        rows, columns, values = self.entries(first, count)
        found = np.zeros((count, self.shape[-1]), self.values.dtype)
        found[rows, columns] = values
        return found

    def taken(self, rows: Any) -> "SparseRows":
        """Return the rows at some indices, ``(n, d)``."""
        found: SparseRows = object.__new__(SparseRows)
        lengths = np.diff(self.starts)[rows]
        starts = np.concatenate([[0], np.cumsum(lengths)])
        # The place of each entry: that of its row's first entry, and its number in the row.
        place = np.repeat(self.starts[:-1][rows] - starts[:-1], lengths) + np.arange(starts[-1])
        found.name, found.state, found.shape = self.name, self.state, (len(rows), self.shape[-1])
        found.starts, found.columns, found.values, found.rows = (
            starts,
            self.columns[place],
            self.values[place],
            len(rows),
        )
        return found

    def compact(self, first: int, count: int) -> tuple[Tensor, Tensor]:
        """Return the columns in use, ``(m)``, and some rows in them, ``(count, m)``."""
        rows, columns, values = self.entries(first, count)
        values = values.astype(np.float64 if self.state.dtype == torch.float64 else np.float32)
        used, place = (columns, None) if count == 1 else np.unique(columns, return_inverse=True)
        if not len(used):  # a learner has at least one feature
            used = np.zeros(1, np.int64)
            found = np.zeros((count, 1), values.dtype)
        elif place is None:
            found = values[None]
        else:
            found = np.zeros((count, len(used)), values.dtype)
            found[rows, place] = values
        device = self.state.device
        return torch.from_numpy(used.astype(np.int64)).to(device), torch.from_numpy(found).to(device)

    def hashes(self, first: int, count: int, unit: int) -> Tensor:
        """Return a number in [0, 1) for each ``unit`` of rows, by which ties are broken."""
        rows, columns, values = self.entries(first, count)
        with np.errstate(over="ignore"):
            bits = (values.astype(np.float64) + 0.0).view(np.uint64)
            bits = _mixed(bits ^ _mixed(columns.astype(np.uint64) * np.uint64(unit) + (rows % unit).astype(np.uint64)))
            found = np.zeros(count // unit, np.uint64)
            np.add.at(found, rows // unit, bits)
            found = _mixed(found) >> np.uint64(11)
        return torch.from_numpy(found.astype(np.float64) * 2.0**-53).to(self.state.device)

    def parts(self, unit: int, is_compact: bool) -> list[tuple[int, int]]:
        """Return pairs (first, count): parts of whole units of rows, with bounded copies."""
        units, d = self.rows // unit, self.shape[-1]
        if units == 1:
            return [(0, unit)]
        if not is_compact:
            size = max(1, MOST_ENTRIES // (unit * d))
            return [(unit * i, unit * min(size, units - i)) for i in range(0, units, size)]
        found, i = [], 0
        lengths = np.diff(self.starts[::unit])
        while i < units:
            # At most one column for each entry, and rows x columns entries in all.
            ahead = np.arange(1, min(units - i, 512) + 1) * unit * np.cumsum(lengths[i : i + 512])
            size = max(1, int(np.searchsorted(ahead, COMPACT_ENTRIES, "right")))
            found.append((unit * i, unit * size))
            i += size
        return found


def _mixed(bits: Any) -> Any:
    """Return integers each of whose bits depends on all bits of the given ones.

    The generator SplitMix64, as in :func:`torchonline.policies.ties.mixed`, on unsigned integers.
    """
    bits = bits + np.uint64(0x9E3779B97F4A7C15)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


def _of_matrix(name: str, value: Any) -> tuple[Any, Any, Any]:
    """Return starts, columns and values of a sparse matrix, without duplicates."""
    matrix = value.tocsr()
    if not getattr(matrix, "has_canonical_format", True):
        matrix = matrix.copy()
        matrix.sum_duplicates()
    values = np.asarray(matrix.data)
    if values.dtype.kind not in "biuf" or values.dtype.itemsize > 8:
        raise TypeError(f"{name}: expected real numbers, got a sparse matrix of {values.dtype}")
    return np.asarray(matrix.indptr), np.asarray(matrix.indices), values


def _of_tensor(name: str, value: Tensor, state: Tensor) -> tuple[Any, Any, Any]:
    """Return starts, columns and values of a sparse tensor, without duplicates."""
    if not value.is_floating_point():
        raise TypeError(f"{name}: expected a floating-point tensor, got {kind(value)}")
    if value.device != state.device:
        raise ValueError(f"{name}: expected a tensor on {state.device}, got one on {value.device}")
    if value.dim() == 0:
        raise ValueError(f"{name}: expected shape (..., d), got {shape_text(value.shape)}")
    value = value.detach()
    if value.layout is torch.sparse_csr and value.dim() == 2 and value.values().dim() == 1:
        starts, columns, values = value.crow_indices(), value.col_indices(), value.values()
        # Rows may list a place twice, or columns in any order: both are rare, and checked.
        if bool(((columns[1:] > columns[:-1]) | _begins_row(starts, columns)).all()):
            return starts.cpu().numpy(), columns.cpu().numpy(), values.cpu().numpy()
    found: Any = value
    if value.layout is torch.sparse_csr and value.dim() == 2 and value.values().dim() == 1:
        numbers = torch.arange(len(starts) - 1, device=value.device).repeat_interleave(starts.diff())
        found = torch.sparse_coo_tensor(torch.stack([numbers, columns]), values, value.shape, check_invariants=False)
    elif value.layout is not torch.sparse_coo:
        found = value.to_sparse_coo()
    if found.dense_dim():
        raise TypeError(f"{name}: expected a sparse tensor without dense dimensions, got {found.dense_dim()} of them")
    found = found.coalesce()
    indices, lead = found.indices().cpu().numpy(), tuple(value.shape[:-1])
    row = np.ravel_multi_index(tuple(indices[:-1]), lead) if lead else np.zeros(indices.shape[1], np.int64)
    counts = np.bincount(row, minlength=math.prod(lead)) if math.prod(lead) else np.zeros(0, np.int64)
    return np.concatenate([[0], np.cumsum(counts)]), indices[-1], found.values().cpu().numpy()


def _begins_row(starts: Tensor, columns: Tensor) -> Tensor:
    """Return which entries but the first begin a row."""
    begins = torch.zeros(len(columns) + 1, dtype=torch.bool, device=columns.device)
    begins[starts] = True
    return begins[1 : len(columns)]
