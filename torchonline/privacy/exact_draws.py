"""Exact decisions of the few draws that floating-point arithmetic leaves open.

A uniform random number is known by its first bits. More bits are drawn until the comparison is decided, so the result has the law
of the real number, to the last bit.
"""

from collections.abc import Callable, Sequence
from decimal import Context, Decimal, localcontext

PI = Decimal(
    "3.14159265358979323846264338327950288419716939937510582097494459230781640628620899862803482534211706798214808651328230664709384460"
    "955058223172535940812848111745028410270193852110555964462294895493038196"
)
# Comparisons that are still open after this many bits have a probability below 2^-180. They are decided as if the next bits were
# 0.
MOST_BITS = 256
DIGITS = 120  # 43 more than these bits need


class Probability:
    """A uniform number in (0, 1/2], known by its first bits.

    Args:
        number: the first 64 bits, as an integer: the probability is between ``number`` and ``number + 1``, in units of 2^-64.
        more: draws an integer from 0 to 2^64 - 1.
    """

    def __init__(self, number: int, more: Callable[[], int]) -> None:
        self.number, self.bits, self._more = number, 64, more

    def extend(self) -> None:
        """Draw 64 more bits."""
        self.number, self.bits = self.number << 64 | self._more(), self.bits + 64

    def ends(self) -> tuple[Decimal, Decimal]:
        """Return the ends of the interval that contains the probability."""
        unit = Decimal(2) ** -self.bits
        return self.number * unit, (self.number + 1) * unit


def rounded_normal(offset: float, ratio: float, start: int, tail: Probability) -> int:
    """Return the integer nearest to offset + ratio z, for a normal z.

    ``start`` is an integer near the result. ``tail`` is the lower tail probability of z.
    """
    with localcontext(Context(prec=DIGITS)):

        def is_below(k: int) -> bool:
            """Return whether the sum is below k + 1/2."""
            limit = normal_probability((Decimal(k) + Decimal("0.5") - Decimal(offset)) / Decimal(ratio))
            while True:
                low, high = tail.ends()
                if high <= limit:
                    return True
                if low >= limit or tail.bits >= MOST_BITS:
                    return False
                tail.extend()

        k = start
        while not is_below(k):
            k += 1
        while is_below(k - 1):
            k -= 1
        return k


def normal_probability(x: Decimal) -> Decimal:
    """Return the standard normal distribution function at x, to 110 digits."""
    if abs(x) > 30:
        return Decimal(int(x > 0))
    # 1/2 + phi(x) (x + x^3/3 + x^5/15 + ...). The sum is as large as exp(x^2 / 2) before it is multiplied by phi.
    with localcontext(Context(prec=DIGITS + 5 + int(x * x / 4))):
        square, term, total, k = x * x, x, x, 1
        while abs(term) > Decimal(10) ** -DIGITS:
            k += 2
            term = term * square / k
            total += term
        return Decimal("0.5") + total * (-square / 2).exp() / (2 * PI).sqrt()


def highest(scores: Sequence[float], scale: float, law: str, tails: Sequence[tuple[Probability, bool]]) -> int:
    """Return the index of the highest of scores plus scale times noise.

    Args:
        scores: numbers.
        scale: above 0.
        law: ``"gumbel"`` or ``"laplace"``.
        tails: the tail probability of each score's noise, and whether it is the upper tail.
    """
    quantile = QUANTILES[law]
    with localcontext(Context(prec=DIGITS)):
        while True:
            ends = []
            for score, (tail, is_upper) in zip(scores, tails, strict=True):
                noisy = [Decimal(score) + Decimal(scale) * quantile(end, is_upper) for end in tail.ends()]
                ends.append((min(noisy), max(noisy)))
            best = max(range(len(ends)), key=lambda i: ends[i][0])
            others = (high for i, (_, high) in enumerate(ends) if i != best)
            if all(high < ends[best][0] for high in others) or tails[0][0].bits >= MOST_BITS:
                return best
            for tail, _ in tails:
                tail.extend()


def _gumbel(tail: Decimal, is_upper: bool) -> Decimal:
    if tail == 0:
        return Decimal("inf") if is_upper else Decimal("-inf")
    return -(-(1 - tail if is_upper else tail).ln()).ln()


def _laplace(tail: Decimal, is_upper: bool) -> Decimal:
    size = (2 * tail).ln()  # minus infinity for 0
    return -size if is_upper else size


QUANTILES: dict[str, Callable[[Decimal, bool], Decimal]] = {"gumbel": _gumbel, "laplace": _laplace}
