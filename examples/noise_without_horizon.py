r"""Noise of private sums that never end, beside that of mechanisms that are told the number of steps.

The script prints

- the fit of ``torchonline.privacy.mechanisms.endless``. The decays are 1 - 2^-s with s = 32, 27, ..., 2. The weights minimise the
  largest ratio of the noise to the lower bound of all matrix mechanisms for n steps, over n = 2^4, 2^5, ..., 2^34. The noise is
  rms^(3/4) max^(1/4), as in examples/fit_blt.py;
- the root mean square and the largest noise of rivals, over the lower bound. *BLT* and *tree* are told n. *Restarts*: a BLT for
  1, 2, 4, ... steps in turn, each with the whole budget, because nobody is in two of them; the errors of their ends add up.
  *Hybrid*: the same with a share p of the budget (of mu squared), and a BLT for 64 steps, with the rest, on the sums of the
  finished blocks (Chan, Shi and Song, 2011). *Logarithmic*: the matrices of Jacobsen and Fawaz (NeurIPS 2025), with the powers
  gamma and delta of a logarithm and an iterated logarithm; in the paper's setting, and in the best of 91 settings;
- the squared norm of the columns of their encoder: by the integral, and by adaptive quadrature over the circle (QUADPACK). With
  gamma = -0.51 nearly all of it belongs to lags above e^30, which the quadrature does not see;
- what steps spend without a horizon, and what rounding adds there;
- the noise of learners without a horizon over that of learners that are told n, whose rounding errors grow with n.

    python examples/noise_without_horizon.py    # some minutes; seconds with --smoke

## Logarithmic matrices

Jacobsen and Fawaz (NeurIPS 2025) calibrate to an infinite column, too: the square root of the sums times powers of a
logarithm, ln(1/(1 - z))^γ, and of an iterated one, with the exponent δ. Its rate is better. But near γ = -1/2 nearly all of
the norm belongs to lags that no stream reaches. For δ = 0 and angles θ = e^-u of the unit circle,

‖c‖² ≥ (1/π) ∫_30^∞ (u² + π²/4)^γ du, about 30^(1 + 2γ)/(-π(1 + 2γ)) = 14.9 at γ = -0.51,

which is nine tenths of it. The paper proposes γ = -0.51 and δ = 0.612, and reports less than 1.5 times the variance of the
square root for 2^24 steps. By our computation the squared norm is 4,986, of which 5.84 come from angles above e^-30: with
5.84 the ratio is 1.52 at 2^20, with 4,986 about 1,300. Quadrature over the circle does not converge; the script prints what
it finds.

Noise for the smaller number keeps the promise while the stream is short, and not for ever. The best of 91 settings, γ = -1.80
and δ = 2.340, has up to 9 % less noise than a BLT without a horizon between 2^8 and 2^20 steps, and more outside, with a
memory of all noise so far.
"""

import argparse
import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fit_blt import differences
from rich.console import Console
from rich.table import Table
from scipy.integrate import quad
from scipy.optimize import minimize
from torch import Tensor

from torchonline import DPHDB, DPTOFW
from torchonline.privacy import gaussian_mu, noise_source
from torchonline.privacy.mechanisms import blt
from torchonline.privacy.mechanisms.endless import DECAY, EXPONENTS, SHIFTS, WEIGHT
from torchonline.privacy.mechanisms.toeplitz import BLT
from torchonline.privacy.mechanisms.trees import Tree

FITTED = range(4, 35)  # exponents of the numbers of steps
SHOWN = (4, 8, 12, 16, 20, 24, 28)
EXACT = 18  # up to 2^18 steps the bound and coefficients are computed one by one
NODES, SHARES = np.polynomial.legendre.leggauss(400)
PAPER = (-0.51, 0.612)
Noise = tuple[float, float]  # root mean square and largest, over sensitivity / mu


def bound(exponent: int) -> float:
    """Return the least root mean square of 2^exponent steps; above 2^18 it grows by log(2) / pi a doubling, to 1e-6."""
    exact = blt.trace_lower_bound(2 ** min(exponent, EXACT))
    return exact + max(0, exponent - EXACT) * math.log(2.0) / math.pi


# The fit.


def loss(theta: Tensor, shifts: tuple[int, ...], sharpness: float) -> tuple[Tensor, Tensor]:
    """Return a smooth maximum of the logarithms of the ratios, and the weights."""
    encoder = 2.0 ** -torch.tensor(shifts, dtype=torch.float64)
    # The decays of the inverse interlace.
    low, high = encoder.log(), torch.cat([encoder[1:].log(), torch.zeros(1, dtype=torch.float64)])
    inverse = (low + (high - low) * torch.sigmoid(theta)).exp()
    weight = (inverse - encoder.unsqueeze(1)).prod(1) / differences(encoder)
    share = -(encoder - inverse.unsqueeze(1)).prod(1) / (inverse * differences(inverse))
    limit = (encoder.log() - inverse.log()).sum().exp()

    def away(gap: Tensor) -> Tensor:
        return gap.unsqueeze(1) + gap - gap.unsqueeze(1) * gap

    norm = 1.0 + weight @ (1.0 / away(encoder)) @ weight
    log, between = torch.log1p(-inverse), away(inverse)
    ratios = []
    for exponent in FITTED:
        n = 2**exponent
        sums = -torch.expm1(n * (log.unsqueeze(1) + log)) / between
        single = -torch.expm1(n * log) / inverse
        largest = n * limit**2 + 2.0 * limit * share @ single + share @ sums @ share
        mean = limit**2 * (n + 1) / 2.0 + 2.0 * limit * share @ ((1.0 - (1.0 - inverse) * single / n) / inverse)
        mean = mean + share @ ((1.0 - (1.0 - between) * sums / n) / between) @ share
        ratios.append((norm.log() + 0.75 * mean.log() + 0.25 * largest.log()) / 2.0 - math.log(bound(exponent)))
    return torch.logsumexp(sharpness * torch.stack(ratios), 0) / sharpness, weight


def fit(shifts: tuple[int, ...]) -> list[float]:
    """Return log2(weight) + shift / 2 of the best weights."""
    theta = np.zeros(len(shifts))
    for sharpness in (20.0, 100.0, 400.0):

        def objective(point: np.ndarray, sharpness: float = sharpness) -> tuple[float, np.ndarray]:
            variable = torch.tensor(point, requires_grad=True)
            value = loss(variable, shifts, sharpness)[0]
            value.backward()
            return value.item(), variable.grad.numpy()

        theta = minimize(objective, theta, method="BFGS", jac=True, options={"gtol": 1e-8, "maxiter": 2000}).x
    weight = loss(torch.from_numpy(theta), shifts, 400.0)[1]
    return [math.log2(value) + shift / 2 for value, shift in zip(weight.tolist(), shifts, strict=True)]


# The rivals.


def known(kind: type[BLT] | type[Tree], n: int) -> Noise:
    """Return the noise of a mechanism for n steps, without what its rounding adds."""
    made = kind(n, sensitivity=1.0, noise_scale=1.0, source=noise_source("torch"))
    norm = made.column_norm(n)
    # Above a million steps, without the scaling of columns, which saves a thousandth there.
    errors = blt.errors(made.decay, made.weight, n) if isinstance(made, BLT) and n > 2**20 else made.errors(n)
    return norm * errors[0], norm * errors[1]


def endless(n: int) -> Noise:
    norm = blt.column_norm(DECAY, WEIGHT, 2**62)
    rms, largest = blt.errors(DECAY, WEIGHT, n)
    return norm * rms, norm * largest


def blocks(exponent: int, share: float = 1.0) -> Noise:
    """Return the noise of 2^exponent - 1 steps in blocks of 1, 2, 4, ...

    Restarts have all of the budget, and the hybrid that share.
    """
    inner = BLT(64, sensitivity=1.0, noise_scale=1.0, source=noise_source("torch"))
    total = largest = finished = 0.0
    for k in range(exponent):
        rms, last = known(BLT, 2**k)
        if share < 1.0:
            finished = (inner.column_norm(64) * inner.errors(k)[1]) ** 2 / (1.0 - share) if k else 0.0
        total += 2**k * (finished + rms**2 / share)
        largest = max(largest, finished + last**2 / share)
        finished += last**2
    return math.sqrt(total / (2**exponent - 1)), math.sqrt(largest)


def logarithm_of(z: np.ndarray, gamma: float, delta: float) -> np.ndarray:
    """Return the logarithm of the generating function at points of the disc."""
    inner = -np.log(1.0 - z) / z
    return -0.5 * np.log(1.0 - z) + gamma * np.log(inner) + delta * np.log(2.0 / z * np.log(inner))


def coefficients(n: int, gamma: float, delta: float) -> np.ndarray:
    """Return the first n coefficients, from values on a circle inside the disc."""
    points, radius = 4 * n, 10.0 ** (-9.0 / (4 * n))
    values = np.exp(logarithm_of(radius * np.exp(2j * math.pi * np.arange(points // 2 + 1) / points), gamma, delta))
    return np.fft.irfft(values.conj(), points)[:n] * radius ** -np.arange(n)


def late_coefficient(k: float, gamma: float, delta: float) -> float:
    """Return coefficient k, from the jump across the cut above 1."""
    y = 0.5 * (NODES + 1.0) * (math.log(60.0) + 60.0) - 60.0
    s = np.exp(y) / (k + 1.0)
    inner = (-np.log(s) + 1j * math.pi) / (1.0 + s)
    value = 0.5 * (-np.log(s) + 1j * math.pi) + gamma * np.log(inner) + delta * np.log(2.0 / (1.0 + s) * np.log(inner))
    jump = (np.exp(value - (k + 1.0) * np.log1p(s))).imag * s
    return abs(float(SHARES @ jump)) * 0.5 * (math.log(60.0) + 60.0) / math.pi


def squared_norm(gamma: float, delta: float) -> tuple[float, float]:
    """Return the mean of |f|^2 over the circle: up to an angle of e^-30, and all of it.

    With the angle e^-u, |f|^2 e^-u is the size of u^(2 gamma) (2 log u)^(2 delta), and u = e^v.
    """

    def over(low: float, high: float, integrand: Callable[[np.ndarray], np.ndarray]) -> float:
        return float(SHARES @ integrand(0.5 * (NODES + 1.0) * (high - low) + low)) * 0.5 * (high - low)

    def by_angle(angle: np.ndarray) -> np.ndarray:
        return np.exp(2.0 * logarithm_of(np.exp(1j * angle), gamma, delta).real)

    def by_u(u: np.ndarray) -> np.ndarray:
        angle = np.exp(-u)
        away, z = -np.expm1(1j * angle), np.exp(1j * angle)
        inner = -np.log(away) / z
        value = -0.5 * np.log(away) + gamma * np.log(inner) + delta * np.log(2.0 / z * np.log(inner))
        return np.exp(2.0 * value.real) * angle

    def by_v(v: np.ndarray) -> np.ndarray:
        turn = 0.5 * math.pi * np.exp(-v)
        size = v + 0.5 * np.log1p(turn**2)
        outer = math.log(2.0) + 0.5 * np.log(size**2 + np.arctan(turn) ** 2)
        return np.exp(2.0 * gamma * size + 2.0 * delta * outer + v)

    near = over(0.1, math.pi, by_angle) + over(math.log(10.0), 30.0, by_u)
    edges = [math.log(30.0), *np.linspace(math.log(30.0) + 1.0, 30.0 / (-1.0 - 2.0 * gamma) + 30.0, 200)]
    far = sum(over(low, high, by_v) for low, high in itertools.pairwise(edges))
    return near / math.pi, (near + far) / math.pi


class Logarithmic:
    """Noise of the logarithmic matrices for 2^4, 2^8, ... steps."""

    def __init__(self, gamma: float, delta: float, last: int) -> None:
        norm = squared_norm(gamma, delta)[1]
        exact = np.cumsum(coefficients(2**EXACT, -gamma, -delta) ** 2)
        steps, squares, sums = float(2**EXACT), float(exact[-1]), float(exact.sum())
        self.noise = {
            e: (math.sqrt(norm * exact[: 2**e].mean()), math.sqrt(norm * exact[2**e - 1])) for e in range(4, EXACT + 1)
        }
        before = late_coefficient(steps, -gamma, -delta) ** 2 * steps
        for quarter in range(4 * EXACT + 1, 4 * last + 1):  # trapezoids in the logarithm of the step
            now = 2.0 ** (quarter / 4)
            after = late_coefficient(now, -gamma, -delta) ** 2 * now
            grown = squares + 0.5 * (before + after) * math.log(2.0) / 4.0
            sums += 0.5 * (squares + grown) * (now - steps)
            steps, squares, before = now, grown, after
            if quarter % 4 == 0:
                self.noise[quarter // 4] = math.sqrt(norm * sums / now), math.sqrt(norm * squares)

    def worst(self) -> float:
        return max(noise[0] / bound(exponent) for exponent, noise in self.noise.items())


def noise_table(last: int, tried: list[tuple[float, float]]) -> tuple[Table, tuple[float, float]]:
    """Return the table of rivals, and the best setting of the logarithmic matrices."""
    made = {setting: Logarithmic(*setting, last) for setting in tried}
    best = min(made, key=lambda setting: made[setting].worst())
    shown = [e for e in SHOWN if e <= last]
    rivals: dict[str, Callable[[int], Noise]] = {
        "BLT, told n": lambda e: known(BLT, 2**e),
        "tree, told n": lambda e: known(Tree, 2**e) if e <= 20 else (math.nan, math.nan),
        "BLT without a horizon": lambda e: endless(2**e),
        "restarts": lambda e: blocks(e),
        "hybrid, p = 0.6": lambda e: blocks(e, 0.6),
        "hybrid, p = 0.75": lambda e: blocks(e, 0.75),
        "logarithmic, paper": lambda e: made[PAPER].noise[e],
        f"logarithmic, {best[0]:.1f}, {best[1]:.2f}": lambda e: made[best].noise[e],
    }
    table = Table(title="Root mean square and largest noise over the lower bound, n steps")
    for header in ("mechanism", *(f"2^{e}" for e in shown)):
        table.add_column(header, justify="left" if header == "mechanism" else "right")
    for name, noise in rivals.items():
        cells = (tuple(value / bound(e) for value in noise(e)) for e in shown)
        table.add_row(name, *("" if math.isnan(rms) else f"{rms:.2f}, {largest:.2f}" for rms, largest in cells))
    return table, best


def norm_table(settings: list[tuple[float, float]]) -> Table:
    table = Table(title="Squared norm of the columns of the logarithmic matrices")
    for header in ("gamma, delta", "integral", "up to lags of about e^30", "quadrature over the circle"):
        table.add_column(header, justify="right")
    for gamma, delta in settings:

        def square(angle: float, gamma: float = gamma, delta: float = delta) -> float:
            return math.exp(2.0 * float(logarithm_of(np.exp(1j * np.array(angle)), gamma, delta).real)) / math.pi

        near, whole = squared_norm(gamma, delta)
        told = quad(square, 0.0, math.pi, limit=200, full_output=1)[0]  # it does not converge
        table.add_row(f"{gamma:.2f}, {delta:.3f}", f"{whole:.1f}", f"{near:.2f}", f"{told:.2f}")
    return table


def learners_table(exponents: range) -> Table:
    """Return a table of the noise of learners without a horizon over that of learners told n, rounding included."""
    table = Table(title="Root mean square noise without a horizon over that of a learner told n, n steps")
    for header in ("learner", *(f"2^{e}" for e in exponents)):
        table.add_column(header, justify="left" if header == "learner" else "right")
    promise: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-11}
    learners: dict[str, Callable[[int | None], Any]] = {
        "DPTOFW": lambda n: DPTOFW(5, horizon=n, **promise),
        "DPTOFW, 64 records a step": lambda n: DPTOFW(5, horizon=n, records_a_step=64, **promise),
        "DPHDB": lambda n: DPHDB(5, arms=1, warmup=1, horizon=n, **promise).arms[0],
    }

    def noise(learner: Any, n: int) -> float:
        made = learner.noise
        return made.noise_scale * blt.errors(made.decay, made.weight, n)[0]

    for name, build in learners.items():
        table.add_row(name, *(f"{noise(build(None), 2**e) / noise(build(2**e), 2**e):.2f}" for e in exponents))
    return table


def spending() -> str:
    """Return what steps spend without a horizon, and what rounding adds to the noise."""
    few = DPTOFW(5, horizon=None, epsilon=1.0, delta=1e-4)
    many = DPTOFW(10_000, horizon=None, epsilon=1.0, delta=1e-5)
    made, mu = many.noise, gaussian_mu(many.epsilon, many.delta)
    added = made.noise_scale * mu / (made.sensitivity * made.column_norm(many.horizon)) - 1.0
    spent = ", ".join(f"{few.ledger_after(n).epsilon(1e-4):.2f} after {n}" for n in (1, 1000, 10**6))
    return f"Spent of an epsilon of 1, delta 1e-4, by steps: {spent}. Rounding of 10,000 numbers adds {added:.1e} to the noise."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("outputs"))
    parser.add_argument("--smoke", action="store_true", help="a fit of three decays, and fewer settings and steps")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    shifts, last = ((32, 17, 2), 12) if options.smoke else (SHIFTS, SHOWN[-1])
    console = Console(width=140)
    fitted = fit(shifts)
    console.print(spending())
    console.print("exponents:", " ".join(f"{value:.2f}" for value in fitted))
    if not options.smoke:
        away = max(abs(value - shipped) for value, shipped in zip(fitted, EXPONENTS, strict=True))
        console.print(f"Largest difference from the exponents that are shipped: {away:.3f}")
    gammas, ratios = (
        ([-1.4], [1.2]) if options.smoke else (np.arange(-0.8, -2.05, -0.1), (0.5, 0.75, 1.0, 1.1, 1.2, 1.3, 1.4))
    )
    # At a whole delta the coefficients are limits.
    tried = [PAPER, *((float(g), float(-r * g) + 1e-6) for g in gammas for r in ratios)]
    table, best = noise_table(last, tried)
    shown = range(4, 25, 10) if options.smoke else range(16, 29, 2)
    tables = [table, norm_table([(-0.51, 0.0), (-0.51, 0.51), PAPER, best]), learners_table(shown)]
    for each in tables:
        console.print(each)
    with (options.output / "noise_without_horizon.txt").open("w") as file:
        for each in tables:
            Console(file=file, width=140).print(each)


if __name__ == "__main__":
    main()
