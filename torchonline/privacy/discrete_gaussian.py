"""Exact sampler of the discrete Gaussian: Karney's Algorithm D on int64 arrays."""

import secrets

import numpy as np

# A probability, or a factor of one: numerators from 0 to the denominators, and the denominators.
Fraction = tuple[np.ndarray, np.ndarray]


def draws(count: int, sigma: int) -> np.ndarray:
    """Return independent discrete Gaussian draws, int64, for sigma from 1 to 2^40."""
    z = np.empty(0, dtype=np.int64)
    while z.size < count:
        # About half of the proposals are accepted.
        z = np.concatenate([z, proposals(2 * (count - z.size) + 8, sigma)])
    return z[:count]


def proposals(count: int, sigma: int) -> np.ndarray:
    r"""Return the accepted ones of ``count`` proposals: exact, independent draws.

    The absolute value is k sigma + j, 0 <= j < sigma. With x = j / sigma its weight is

    .. math:: e^{-(k+x)^2/2} = e^{-k/2}\,e^{-k(k-1)/2}\,e^{-x(2k+x)/2} .

    The first factor makes k geometric, j is uniform, and the other factors are acceptance probabilities.
    """
    one, two = np.ones(count, dtype=np.int64), np.full(count, 2)
    k, alive = np.zeros(count, dtype=np.int64), np.arange(count)
    while alive.size:
        alive = alive[with_probability_exp((one[alive], two[alive]))]
        k[alive] += 1
    k = k[all_succeed(k * (k - 1), (one, two))]
    scale = np.full(k.size, sigma)
    j = below(scale)
    # x (2k + x) / 2 is k + 1 times the product of j / sigma and (2k + x) / (2k + 2).
    kept = all_succeed(k + 1, (j, scale), (2 * k * sigma + j, (2 * k + 2) * sigma))
    z = (k * sigma + j)[kept]
    negative = below(np.full(z.size, 2)) == 1
    # Zero is accepted with one sign only.
    return np.where(negative, -z, z)[(z > 0) | ~negative]


def all_succeed(trials: np.ndarray, *factors: Fraction) -> np.ndarray:
    """Return whether all ``trials`` trials of :func:`with_probability_exp` succeed."""
    which = np.repeat(np.arange(trials.size), trials)
    succeeds = with_probability_exp(*((num[which], den[which]) for num, den in factors))
    kept = np.ones(trials.size, dtype=bool)
    kept[which[~succeeds]] = False
    return kept


def with_probability_exp(first: Fraction, *others: Fraction) -> np.ndarray:
    """Return True with probability exp(-p), p the product of the factors, at most 1.

    In trials of probability p, p/2, p/3, ..., the first failure has an odd number with this probability.
    """
    kept, alive, i = np.zeros(first[0].size, dtype=bool), np.arange(first[0].size), 0
    while alive.size:
        i += 1
        hit = below(first[1][alive] * i) < first[0][alive]
        for num, den in others:
            hit &= below(den[alive]) < num[alive]
        kept[alive[~hit]] = i % 2 == 1
        alive = alive[hit]
    return kept


def below(bounds: np.ndarray) -> np.ndarray:
    """Return uniform integers from 0 to each bound - 1."""
    # 63 random bits modulo the bound. Words below 2^63 mod bound are rejected and redrawn, so that all remainders are equally
    # likely.
    words, again = np.empty_like(bounds), np.arange(bounds.size)
    refused = ((2**63 - 1) % bounds + 1) % bounds
    while again.size:
        words[again] = np.frombuffer(secrets.token_bytes(8 * again.size), dtype=np.int64) & (2**63 - 1)
        again = again[words[again] < refused[again]]
    return words % bounds
