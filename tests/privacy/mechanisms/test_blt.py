"""BLT matrices: sensitivity and errors against the matrices themselves, the table against what others found, and the bound."""

import json
import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from torchonline.privacy.mechanisms.blt import HORIZONS, TABLE, column_norm, errors, parameters, trace_lower_bound

FITS = json.loads((Path(__file__).parents[2] / "data" / "blt_fits.json").read_text())
DEGREES = list(TABLE)
# Besides those of the table: decays out of order, twice the same, near 0 and 1, and weights so large that C^-1 grows.
ODD = [
    ((0.5,), (1.0,)),
    ((0.1, 0.9), (0.3, 0.2)),
    ((0.4, 0.4), (0.1, 0.2)),
    ((1e-9, 1 - 1e-12), (0.5, 1e-6)),
    ((0.9,), (1.95,)),
]


def encoder_column(decay: Any, weight: Any, n: int) -> np.ndarray:
    """c, from its definition, in extended precision."""
    lam, w = np.array(decay, np.longdouble), np.array(weight, np.longdouble)
    return np.concatenate([np.ones(1, np.longdouble), lam ** np.arange(n - 1)[:, None] @ w])


def noise_column(decay: Any, weight: Any, n: int) -> np.ndarray:
    """The first column of A C^-1: what the streaming recursion makes of (1, 0, 0, ...), in extended precision."""
    lam, w = np.array(decay, np.longdouble), np.array(weight, np.longdouble)
    state, total, column = np.zeros_like(lam), np.longdouble(0), np.empty(n, np.longdouble)
    for t in range(n):
        y = (t == 0) - w @ state
        state = lam * state + y
        total = column[t] = total + y
    return column


def dense(column: np.ndarray) -> np.ndarray:
    """The lower-triangular Toeplitz matrix with that first column."""
    n = len(column)
    place = np.subtract.outer(np.arange(n), np.arange(n))
    return np.where(place >= 0, column[abs(place)], 0.0).astype(float)


def quality(decay: Any, weight: Any, n: int) -> np.ndarray:
    """Rms and max error, times the column norm."""
    return column_norm(decay, weight, n) * np.array(errors(decay, weight, n))


@pytest.mark.parametrize("blt", [*ODD, *(parameters(60, degree) for degree in DEGREES)])
@pytest.mark.parametrize("n", [1, 2, 3, 7, 60])
def test_against_dense_matrices(blt: Any, n: int) -> None:
    """The recursion is A C^-1 z, the sensitivity the largest column norm of C, and the errors are row norms of A C^-1."""
    encoder, ones = dense(encoder_column(*blt, n)), np.tril(np.ones((n, n)))
    decoder = ones @ np.linalg.inv(encoder)
    largest = abs(decoder).max()
    np.testing.assert_allclose(decoder, dense(noise_column(*blt, n)), rtol=0, atol=1e-12 * largest)
    rows = np.square(decoder).sum(1)
    assert column_norm(*blt, n) == pytest.approx(np.linalg.norm(encoder, axis=0).max(), rel=1e-12)
    assert errors(*blt, n) == pytest.approx((math.sqrt(rows.mean()), math.sqrt(rows.max())), rel=1e-12)
    np.testing.assert_allclose(decoder @ encoder, ones, rtol=0, atol=1e-12 * largest)


@pytest.mark.parametrize("degree", DEGREES)
@pytest.mark.parametrize("n", [100, 1023, 20000])
def test_against_direct_sums(degree: int, n: int) -> None:
    blt = parameters(n, degree)
    norm = np.sqrt(np.square(encoder_column(*blt, n)).sum())
    variances = np.cumsum(np.square(noise_column(*blt, n)))
    assert column_norm(*blt, n) == pytest.approx(float(norm), rel=1e-12)
    expected = float(np.sqrt(variances.mean())), float(np.sqrt(variances[-1]))
    assert errors(*blt, n) == pytest.approx(expected, rel=1e-12)


def partial_fractions(decay: Any, weight: Any, n: int) -> tuple[float, float]:
    """Both errors from b_k = r_0 + sum_j r_j p_j^k, with p_j the decays of the inverse, to fifty digits."""
    lam, w = [mpmath.mpf(value) for value in decay], [mpmath.mpf(value) for value in weight]

    def encoder(z: Any) -> Any:
        return 1 + sum(b / (z - a) for a, b in zip(lam, w, strict=True))

    # From below each decay the function falls from infinity, or 1, to minus infinity: a root between two neighbours.
    ends = [mpmath.mpf(-100), *sorted(lam)]
    poles, shares = [mpmath.mpf(1)], [1 / encoder(mpmath.mpf(1))]
    for low, high in pairwise(ends):
        for _ in range(170):
            middle = (low + high) / 2
            low, high = (middle, high) if encoder(middle) > 0 else (low, middle)
        slope = -sum(b / (low - a) ** 2 for a, b in zip(lam, w, strict=True))
        poles.append(low)
        shares.append(1 / ((low - 1) * slope))
    total = largest = mpmath.mpf(0)
    for p, r in zip(poles, shares, strict=True):
        for q, s in zip(poles, shares, strict=True):
            x = p * q
            sums = n if x == 1 else (1 - x**n) / (1 - x)
            largest += r * s * sums
            total += r * s * (mpmath.mpf(n) * (n + 1) / 2 if x == 1 else (n - x * sums) / (1 - x))
    return float(mpmath.sqrt(total / n)), float(mpmath.sqrt(largest))


@pytest.mark.parametrize("degree", DEGREES)
@pytest.mark.parametrize(("n", "accuracy"), [(50, 1e-13), (10**5, 1e-11), (10**6, 1e-10), (10**9, 1e-7)])
def test_rounding_in_long_streams(degree: int, n: int, accuracy: float) -> None:
    blt = parameters(n, degree)
    with mpmath.workdps(50):
        assert errors(*blt, n) == pytest.approx(partial_fractions(*blt, n), rel=accuracy)


def test_sensitivity_of_very_long_streams() -> None:
    """A slow decay that a naive 1 - lam^2 would lose: 1 + w^2 (1 - lam^2m)/(1 - lam^2), in integers."""
    lam, w, m = 1.0 - 2.0**-50, 2.0**-10, 2**30
    # (1 - e)^(2m) = 1 - 2me + m(2m - 1)e^2 - ..., e = 2^-50; the third term is below 1e-18 of the first.
    exact = 1.0 + w * w * m * (1.0 - (m - 1) * 2.0**-50)
    assert column_norm((lam,), (w,), m + 1) == pytest.approx(math.sqrt(exact), rel=1e-12)


@pytest.mark.parametrize("n", [1, 2, 3, 10, 200])
def test_bound_is_the_nuclear_norm(n: int) -> None:
    singular = np.linalg.svd(np.tril(np.ones((n, n))), compute_uv=False)
    assert trace_lower_bound(n) == pytest.approx(singular.sum() / n, rel=1e-12)


def test_bound_of_many_rounds() -> None:
    """The sum goes by parts of 2^20 terms. It is (N (log(8N/pi) + Euler's constant)/pi - 1/2)/(2n), N = 2n + 1, but for 1/n^2."""
    for n in (2**20 - 1, 2**20, 2**20 + 1, 3 * 2**20 + 5):
        whole = (2 * n + 1) / math.pi * (math.log(8 * (2 * n + 1) / math.pi) + np.euler_gamma)
        assert trace_lower_bound(n) == pytest.approx((whole - 0.5) / (2 * n), rel=1e-10)


GRID = sorted({round(1.1**k) for k in range(146)} | {10**k for k in range(7)})


def test_close_to_the_least_noise() -> None:
    """Degree 5, on and off the table's horizons: at most 7 % above the bound from 100 rounds on."""
    assert GRID[0] == 1
    assert GRID[-1] >= 10**6
    assert len(GRID) > 120
    ratios = {n: quality(*parameters(n), n)[0] / trace_lower_bound(n) for n in GRID}
    assert min(ratios.values()) >= 1.0 - 1e-12
    assert all(ratio <= 1.07 for n, ratio in ratios.items() if n <= 2 or n >= 100)
    assert all(ratio <= 1.081 for ratio in ratios.values())


@pytest.mark.parametrize(("n", "reached"), [(5, True), (6, False), (12, False), (47, False), (48, True)])
def test_what_toeplitz_matrices_can_do(n: int, reached: bool) -> None:
    """Where 7 % is missed, no Toeplitz encoder has it, and the best of all is at most 1.5 % better than ours."""
    place = torch.arange(n).unsqueeze(1) - torch.arange(n)

    def objective(tail: np.ndarray) -> tuple[float, np.ndarray]:
        variable = torch.tensor(tail, requires_grad=True)
        column = torch.cat([torch.ones(1, dtype=torch.float64), variable])
        encoder = torch.where(place >= 0, column[place.abs()], torch.zeros_like(column))
        noise = torch.linalg.solve_triangular(encoder, torch.ones(n, 1, dtype=torch.float64), upper=False)
        value = (column.square().sum().log() + noise.square().cumsum(0).mean().log()) / 2.0
        value.backward()
        return value.item(), variable.grad.numpy()

    k = np.arange(1, n)
    best = math.exp(minimize(objective, np.cumprod((2 * k - 1) / (2 * k)), jac=True, method="BFGS").fun)
    assert (best <= 1.07 * trace_lower_bound(n)) == reached
    assert best - 1e-9 <= quality(*parameters(n), n)[0] <= 1.015 * best


@pytest.mark.parametrize("case", FITS)
def test_as_good_as_fits_of_the_largest_error(case: str) -> None:
    """BLTs that others fitted to the largest error alone: ours have less rms, and less rms times max; max within 1.5 %."""
    n, degree = map(int, case.split(","))
    rms, largest = quality(*parameters(n, degree), n)
    assert trace_lower_bound(n) == pytest.approx(FITS[case]["bound"], rel=1e-13)
    assert rms <= FITS[case]["rms"]
    assert rms * largest <= FITS[case]["rms"] * FITS[case]["max"] * (1 + 1e-3)
    assert largest <= 1.015 * FITS[case]["max"]


@pytest.mark.parametrize("degree", DEGREES)
def test_table_holds_minima(degree: int) -> None:
    """No decays and weights nearby are better by more than 0.01 %, though some are worse by more than that."""
    generator = np.random.default_rng(0)

    def loss(point: np.ndarray, n: int) -> float:
        rms, largest = quality(1.0 / (1.0 + np.exp(-point[:degree])), np.exp(point[degree:]), n)
        return 0.75 * math.log(rms) + 0.25 * math.log(largest)

    for n in (HORIZONS[3], HORIZONS[6], HORIZONS[8]):
        decay, weight = map(np.array, parameters(n, degree))
        found = np.concatenate([np.log(decay / (1.0 - decay)), np.log(weight)])
        steps = generator.normal(size=(100, 2 * degree)) * generator.choice([0.01, 0.1], (100, 1))
        nearby = [loss(found + step, n) for step in steps]
        assert min(nearby) >= loss(found, n) - 1e-4
        assert max(nearby) > loss(found, n) + 1e-4


@pytest.mark.parametrize("degree", DEGREES)
def test_any_horizon(degree: int) -> None:
    """Valid and ordered everywhere, smooth between horizons, and constant outside the table."""
    grid = [*range(1, 40), *(round(2 ** (e / 3)) for e in range(16, 95))]
    found = [parameters(n, degree) for n in grid]
    for decay, weight in found:
        assert len(decay) == len(weight) == degree
        assert all(0.0 < low < high < 1.0 for high, low in pairwise(decay))
        assert min(decay) > 0.0
        assert max(decay) < 1.0
        assert min(weight) > 0.0
    assert parameters(1, degree) == parameters(8, degree) != parameters(9, degree)
    assert parameters(2**30, degree) == parameters(10**12, degree) != parameters(2**29, degree)
    for n in (10**7, 10**9):
        rms, largest = errors(*parameters(n, degree), n)
        assert 0.0 < rms < largest < math.inf


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: parameters(0), "horizon: expected an integer above 0, got 0"),
        (lambda: parameters(10, 0), "degree: expected an integer above 0, got 0"),
        (lambda: parameters(10, 7), "degree: expected an integer from 1 to 6, got 7"),
        (lambda: column_norm((0.5,), (0.5,), 0), "rounds: expected an integer above 0"),
        (lambda: column_norm((1.0,), (0.5,), 5), "decay: expected a number in"),
        (lambda: column_norm((math.nan,), (0.5,), 5), "decay: expected a finite number"),
        (lambda: column_norm((0.5,), (0.0,), 5), "weight: expected a number above 0"),
        (lambda: column_norm((0.5, 0.6), (0.5,), 5), "decay and weight: expected as many"),
        (lambda: errors((), (), 5), "decay and weight: expected"),
        (lambda: errors((0.5,), (-0.1,), 5), "weight: expected a number above 0"),
        (lambda: trace_lower_bound(0), "rounds: expected an integer above 0"),
    ],
)
def test_bad_arguments_are_refused_by_name(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("call", [lambda: parameters(1.5), lambda: errors((0.5,), (0.5,), True)])
def test_bad_types_are_refused(call: Any) -> None:
    with pytest.raises(TypeError, match="expected an integer"):
        call()
