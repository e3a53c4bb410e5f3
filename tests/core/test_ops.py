"""The functions that learners are written in mean the same on tensors and on NumPy arrays."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.learners import close
from torchonline.core import backend, ops

pytestmark = pytest.mark.fast

D = torch.float64
NUMBERS = torch.tensor([-2.0, -0.5, 0.0, 0.3, 1.0, 7.0, 1e-300, 1e100], dtype=D)


def same_on_both(function: Any, *arguments: Any) -> Tensor:
    """The result on tensors, after a look at that on arrays (numbers of NumPy where a tensor has no dimension)."""
    views = [argument.numpy()[()] if isinstance(argument, Tensor) else argument for argument in arguments]
    result = function(*arguments)
    on_arrays = function(*views)
    assert not isinstance(on_arrays, Tensor)
    torch.testing.assert_close(
        torch.as_tensor(on_arrays, dtype=result.dtype), result, rtol=1e-13, atol=1e-13, equal_nan=True
    )
    return result


@pytest.mark.parametrize("name", ["sqrt", "log", "exp", "log1p"])
@pytest.mark.parametrize("value", NUMBERS[2:7].tolist())
def test_functions_of_one_number(name: str, value: float) -> None:
    number = torch.tensor(value, dtype=D)
    with np.errstate(divide="ignore"):
        assert torch.equal(same_on_both(getattr(ops, name), number), getattr(torch, name)(number))


@pytest.mark.parametrize("dtype", [torch.float32, D])
def test_divisors(dtype: torch.dtype) -> None:
    """Of numbers from 0 on: something tiny, or 1, in place of 0, and all others that are not tiny as they are."""
    for x in (torch.tensor(0.0, dtype=dtype), torch.tensor([0.0, 1e-36, 0.3, 7.0], dtype=dtype)):
        assert torch.equal(same_on_both(ops.or_one, x), torch.where(x > 0.0, x, 1.0))
        assert torch.equal(same_on_both(ops.nonzero, x), torch.where(x > 0.0, x, 1e-37))


@pytest.mark.parametrize("y", NUMBERS.tolist())
@pytest.mark.parametrize("x", NUMBERS.tolist())
def test_functions_of_two_numbers(x: float, y: float) -> None:
    one, other = torch.tensor(x, dtype=D), torch.tensor(y, dtype=D)
    assert same_on_both(ops.minimum, one, other) == min(x, y)
    assert same_on_both(ops.maximum, one, other) == max(x, y)
    assert same_on_both(ops.at_least, one, y) == max(x, y)
    assert same_on_both(ops.where, one > other, one, other) == max(x, y)
    assert same_on_both(ops.clip, one, other.abs()) == min(max(x, -abs(y)), abs(y))


@pytest.mark.parametrize(("x", "y"), [(math.nan, 1.0), (1.0, math.nan), (math.nan, math.nan)])
def test_nan_stays(x: float, y: float) -> None:
    one, other = torch.tensor(x, dtype=D), torch.tensor(y, dtype=D)
    for function in (ops.minimum, ops.maximum, ops.clip):
        assert same_on_both(function, one, other).isnan()
    for function in (ops.at_least, ops.at_most):
        assert same_on_both(function, one, 1.0).isnan() == one.isnan()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_bounds_of_rows(dtype: torch.dtype) -> None:
    """On arrays entry by entry, NaN included, and in their type."""
    row = torch.tensor([-1.0, 0.5, math.nan, 2.0], dtype=dtype)
    for function in (ops.minimum, ops.maximum, ops.clip):
        assert same_on_both(function, row, row.flip(0).abs()).dtype == dtype
    for function in (ops.at_least, ops.at_most):
        assert same_on_both(function, row, 0.75).dtype == dtype
        assert function(row.numpy(), 0.75).dtype == row.numpy().dtype


def test_increase() -> None:
    total = torch.tensor(0.5, dtype=D)
    view = total.numpy()
    ops.increase_(total, torch.tensor(0.25, dtype=D))
    assert total == 0.75
    ops.increase_(view, np.float64(0.25))
    assert total == 1.0


@pytest.mark.parametrize("batch_shape", [(), (2, 3)])
def test_entries(batch_shape: tuple[int, ...]) -> None:
    numbers, value = torch.randn(*batch_shape, 5, dtype=D), torch.randn(batch_shape, dtype=D)
    index = torch.randint(5, batch_shape)
    wanted = numbers.clone().scatter_(-1, index.unsqueeze(-1), value.unsqueeze(-1))
    array = numbers.numpy().copy()
    ops.put_(array, index.numpy()[()], value.numpy()[()])
    ops.put_(numbers, index, value)
    assert torch.equal(numbers, wanted)
    assert torch.equal(torch.from_numpy(array), wanted)
    assert torch.equal(same_on_both(ops.entry, numbers, index.to(D)), value)


@pytest.mark.parametrize("dim", [1, 2, 9])
def test_products(dim: int) -> None:
    matrix, x, y = torch.randn(dim, dim, dtype=D), torch.randn(dim, dtype=D), torch.randn(dim, dtype=D)
    rows = torch.randn(4, 5, dim, dtype=D)
    close(same_on_both(ops.matvec, matrix, x), matrix @ x)
    close(same_on_both(ops.dot, x, y), x @ y)
    close(same_on_both(ops.rows_times, rows, matrix), rows @ matrix)
    close(same_on_both(ops.rows_times, rows, x), rows @ x)
    close(same_on_both(ops.row_dots, rows, 2.0 * rows), 2.0 * (rows**2).sum(-1))
    close(same_on_both(ops.trace, matrix), matrix.trace())
    assert same_on_both(ops.largest, x) == max(x.tolist())


def test_products_of_batches() -> None:
    matrix, x, y = torch.randn(2, 3, 4, 4, dtype=D), torch.randn(2, 3, 4, dtype=D), torch.randn(2, 3, 4, dtype=D)
    close(ops.matvec(matrix, x), torch.einsum("abij,abj->abi", matrix, x))
    close(ops.dot(x, y), torch.einsum("abi,abi->ab", x, y))
    close(ops.trace(matrix), torch.einsum("abii->ab", matrix))
    assert torch.equal(same_on_both(ops.largest, x), x.max(-1).values)
    scalar = torch.randn(2, 3, dtype=D)
    close(ops.along(scalar, x) * x, torch.einsum("ab,abi->abi", scalar, x))
    assert ops.along(scalar, matrix).shape == (2, 3, 1, 1)
    number = scalar[0, 0].numpy()[()]
    assert ops.along(number, x[0, 0].numpy()) is number


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_types(dtype: torch.dtype) -> None:
    like = torch.zeros(2, dtype=dtype)
    count = torch.tensor(7)
    assert same_on_both(ops.real, count, like) == 7.0
    assert ops.real(count, like).dtype == dtype
    assert np.result_type(ops.real(count.numpy()[()], like.numpy()), like.numpy()) == like.numpy().dtype
    assert ops.roundoff(like) == ops.roundoff(like.numpy()) == torch.finfo(dtype).eps
    assert ops.converted(torch.ones(2, dtype=torch.bfloat16), like).dtype == dtype
    number = like.numpy()[0]
    assert ops.converted(number, like.numpy()) is number


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_tensors_become_arrays(dtype: torch.dtype) -> None:
    """With the tensor's values and no copy, from a graph or not, and where only a flag says that they are negative."""
    x = torch.tensor([[0.5, -1.25, 3.0]], dtype=dtype).mT
    for tensor in (x, x.clone().requires_grad_()):
        array = backend.as_array(tensor)
        assert torch.equal(torch.from_numpy(array), x)
        assert array.__array_interface__["data"][0] == tensor.data_ptr()
    flagged = torch._neg_view(x)
    assert flagged.is_neg()
    assert torch.equal(torch.from_numpy(backend.as_array(flagged)), -x)
