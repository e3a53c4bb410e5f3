r"""Gaussian privacy of many small steps.

Let a mechanism's log-likelihood ratio L between two neighbours have :math:`\log E e^{\theta L} \le \theta(\theta-1)\rho` for
theta outside of [0, 1], and at least that inside, the mean being over one neighbour's outputs. (The first half is zCDP; a rho of
zCDP alone is not enough.) Followed by steps that are :math:`\sqrt s`-GDP together, it is :math:`\sqrt{s + v}`-GDP for

.. math:: v = \frac{2\rho}{1 - 2\rho/s},\qquad s \ge 4\rho,\qquad \rho \le 3 .

So many small steps cost little more than Gaussian noise of the same rho. The steps may be chosen adaptively; their rho may not.
Proof: docs/privacy_proofs.md, "Small steps".
"""

import math
from collections.abc import Iterable, Sequence

import torch

from torchonline.privacy.calibration import from_0

LARGEST_RHO = 3.0  # of one step, for which the bound is proved
SHORT = 64  # so many first steps of a harmonic series are added one by one


def small_steps_mu(rhos: Iterable[float]) -> float:
    r"""Return mu such that steps in this order are mu-GDP together.

    ``rhos`` are their rho, each from 0 to 3: :math:`\eta^2/8` for a bounded range eta, :math:`\varepsilon^2/2` for pure epsilon,
    :math:`\mu^2/2` for Gaussian noise. A rho of zCDP alone is not enough: see docs/privacy_proofs.md, "Small steps". The order
    matters a little. Cost: O(n).

    Example:
        >>> f"{small_steps_mu([0.001] * 500):.4f}"  # a Gaussian mechanism of the sum has 1
        '1.0080'
    """
    if not isinstance(rhos, Iterable):
        raise TypeError(f"rhos: expected several numbers, got {type(rhos).__name__}")
    values = [from_0("rhos", rho) for rho in rhos]
    if any(value > LARGEST_RHO for value in values):
        raise ValueError(f"rhos: expected numbers of at most {LARGEST_RHO:g}, got {max(values):g}")
    return math.sqrt(_one_by_one(0.0, values))


def harmonic_mu(rho: float, steps: int) -> float:
    """Return mu such that steps of rho, rho/2, rho/3, ... are mu-GDP together.

    ``rho`` is that of the first step, from 0 to 3. After the 64th, steps are bounded together, by a sum that is at most an
    integral, so the cost grows with the logarithm of ``steps`` only.
    """
    squared = 0.0
    for first, last in reversed(_ranges(steps)):
        # With 2 rho = a <= top and s >= 4 top, v = a + a^2/(s - a), and the sum of a/(s - a) is at most a logarithm.
        top, total = 2.0 * rho / first, 2.0 * rho * (harmonic(last) - harmonic(first - 1))
        squared = max(squared, 4.0 * top)
        squared += total + top * math.log1p(total / (squared - 2.0 * top))
    return math.sqrt(_one_by_one(squared, [rho / k for k in range(1, min(steps, SHORT) + 1)]))


def harmonic(n: int) -> float:
    """Return ``1 + 1/2 + ... + 1/n``."""
    return float(torch.special.digamma(torch.tensor(n + 1.0, dtype=torch.float64))) + 0.57721566490153286


def _one_by_one(squared: float, rhos: Sequence[float]) -> float:
    """Return mu^2 of steps that are followed by others of a known mu^2."""
    for rho in reversed(rhos):
        if rho > 0.0:
            squared = max(squared, 4.0 * rho)
            squared += 2.0 * rho / (1.0 - 2.0 * rho / squared)
    return squared


def _ranges(steps: int) -> list[tuple[int, int]]:
    """Return the ranges of steps after the first 64: 65 to 128, 129 to 256, ..."""
    starts = [SHORT << k for k in range(max(0, steps.bit_length() - SHORT.bit_length() + 1))]
    return [(start + 1, min(2 * start, steps)) for start in starts if start < steps]
