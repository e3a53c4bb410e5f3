r"""Gaussian privacy of many small steps.

Let L be a mechanism's log-likelihood ratio between two neighbours, and E the mean over one neighbour's outputs. Assume
:math:`\log E e^{\theta L} \le \theta(\theta-1)\rho` for theta outside of [0, 1], and at least that inside. (The first half is
zCDP, which alone is not enough.) Followed by steps that are :math:`\sqrt s`-GDP together, the mechanism is
:math:`\sqrt{s + v}`-GDP for

.. math:: v = \frac{2\rho}{1 - 2\rho/s},\qquad s \ge 4\rho,\qquad \rho \le 3 .

Many small steps therefore cost little more than Gaussian noise of the same rho. The steps may be chosen adaptively; their rhos
may not. Proof: docs/privacy_proofs.md, "Small steps".
"""

import math
from collections.abc import Iterable, Sequence

import torch

from torchonline.privacy.calibration import from_0, gaussian_mu, zcdp_rho

LARGEST_RHO = 3.0  # the largest rho of a step for which the bound is proved
SHORT = 64  # the number of first steps of a harmonic series that are added one by one


def small_steps_mu(rhos: Iterable[float]) -> float:
    r"""Return mu such that steps in this order are mu-GDP together.

    ``rhos`` holds the rho of each step, from 0 to 3: :math:`\eta^2/8` for a bounded range eta, :math:`\varepsilon^2/2` for pure
    epsilon, :math:`\mu^2/2` for Gaussian noise. The zCDP of a step alone is not enough: see docs/privacy_proofs.md, "Small
    steps". The order matters a little. Cost: O(n).

    Example:
        >>> f"{small_steps_mu([0.001] * 500):.4f}"  # a Gaussian mechanism of the sum has 1
        '1.0080'
    """
    if not isinstance(rhos, Iterable):
        raise TypeError(f"rhos: expected an iterable of numbers, got {type(rhos).__name__}")
    values = [from_0("rhos", rho) for rho in rhos]
    if any(value > LARGEST_RHO for value in values):
        raise ValueError(f"rhos: expected numbers of at most {LARGEST_RHO:g}, got {max(values):g}")
    return math.sqrt(_one_by_one(0.0, values))


def harmonic_mu(rho: float, steps: int) -> float:
    """Return mu such that steps of rho, rho/2, rho/3, ... are mu-GDP together.

    ``rho``, from 0 to 3, is the first step's. Steps after the 64th are bounded in groups, by sums that are at most an integral.
    Cost: O(log ``steps``).
    """
    squared = 0.0
    for first, last in reversed(_ranges(steps)):
        # With 2 rho = a <= top and s >= 4 top, v = a + a^2/(s - a), and the sum of a/(s - a) is at most a logarithm.
        top, total = 2.0 * rho / first, 2.0 * rho * (harmonic(last) - harmonic(first - 1))
        squared = max(squared, 4.0 * top)
        squared += total + top * math.log1p(total / (squared - 2.0 * top))
    return math.sqrt(_one_by_one(squared, [rho / k for k in range(1, min(steps, SHORT) + 1)]))


def largest_rho(epsilon: float, delta: float, mu: float, total: float) -> float:
    """Return the largest rho of the first step that keeps a promise by some bound.

    Steps in fixed proportions, of which the first has a rho of 1, are ``mu``-GDP together and have the sum ``total``.
    """
    of_small_steps = (gaussian_mu(epsilon, delta) / mu) ** 2  # mu is linear in the root of rho
    return max(zcdp_rho(epsilon, delta) / total, min(of_small_steps, LARGEST_RHO))


def harmonic(n: int) -> float:
    """Return ``1 + 1/2 + ... + 1/n``."""
    return float(torch.special.digamma(torch.tensor(n + 1.0, dtype=torch.float64))) + 0.57721566490153286


def _one_by_one(squared: float, rhos: Sequence[float]) -> float:
    """Return mu^2 of steps that are followed by others with a known mu^2."""
    for rho in reversed(rhos):
        if rho > 0.0:
            squared = max(squared, 4.0 * rho)
            squared += 2.0 * rho / (1.0 - 2.0 * rho / squared)
    return squared


def _ranges(steps: int) -> list[tuple[int, int]]:
    """Return the ranges of steps after the first 64: 65 to 128, 129 to 256, ..."""
    starts = [SHORT << k for k in range(max(0, steps.bit_length() - SHORT.bit_length() + 1))]
    return [(start + 1, min(2 * start, steps)) for start in starts if start < steps]
