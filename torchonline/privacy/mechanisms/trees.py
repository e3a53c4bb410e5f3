"""Binary trees for prefix sums: simple, two to three times the Toeplitz noise."""

import math
from typing import Any

import torch
from torch import Tensor

from torchonline.privacy.mechanisms.base import Mechanism, State, factors, summary


class Tree(Mechanism):
    """Binary tree of noisy partial sums.

    The prefix sum of step t adds up as many nodes as t has binary ones. Node e covers the records from e - lowbit(e) + 1 to e,
    where lowbit(e) is the largest power of two that divides e. Record i is in the nodes i, i + lowbit(i), ..., at most
    ``n.bit_length()`` of them. Each step releases one node. (Chan, Shi and Song, ICALP 2010; Dwork, Naor, Pitassi and Rothblum,
    STOC 2010.)
    """

    name = "tree"

    def initial_state(self, dim: int) -> dict[str, Tensor]:
        # Level k holds the sum of the node of size 2^k in use. There is one if bit k of the step is 1.
        nodes = torch.zeros((self.horizon.bit_length(), dim), dtype=torch.float64)
        return super().initial_state(dim) | {"secret_nodes": nodes, "noisy_nodes": nodes}

    def _encode(self, state: State, summand: Tensor, step: int) -> Tensor:
        return _merged_(state["secret_nodes"], summand, _lowest_bit(step))

    def _decode(self, state: State, row: Tensor, step: int) -> Tensor:
        level, nodes = _lowest_bit(step), state["noisy_nodes"]
        nodes[..., level, :] = row
        return _used(nodes, step)

    def column_norm(self, steps: int) -> float:
        return math.sqrt(steps.bit_length())

    def _norm_of_several(self, steps: int, count: int) -> float:
        # A row of height k covers 2^k records, of which at most ceil(2^k / b) belong to one person.
        in_a_row = [min(count, -(-(2**k) // self.min_separation)) for k in range(steps.bit_length())]
        return math.sqrt(count * sum(self._largest_weight(k) ** 2 * most for k, most in enumerate(in_a_row)))

    def _largest_weight(self, height: int) -> float:
        """Return the largest weight of a record in a row of this height."""
        return 1.0

    def rounding(self, steps: int) -> float:
        # A summand passes at most k + 1 nodes on its way into one of height k, and at most k + 1 additions in each.
        heights = range(steps.bit_length())
        return math.sqrt(sum((steps / 2.0**k + 1.0) * (2.0**k * (k + 2.0) ** 2) ** 2 for k in heights))

    def materialize(self, n: int) -> tuple[Tensor, Tensor]:
        step = torch.arange(1, n + 1)
        age = step.unsqueeze(-1) - step
        return factors(((age >= 0) & (age < (step & -step).unsqueeze(-1))).to(torch.float64))

    def errors(self, n: int) -> tuple[float, float]:
        return summary(_over_bits(n, torch.ones(n.bit_length(), dtype=torch.float64)))


class HonakerTree(Tree):
    r"""Binary tree with noise in right children too: a second estimate of each sum.

    The estimate of a full subtree of height k is

    .. math:: E_k = (2^k (D_k + z_k) + (2^k - 1)(E'_{k-1} + E_{k-1}))/(2^{k+1} - 1)

    with the subtree's sum :math:`D_k`, noise :math:`z_k`, and the estimates of its left and its right half. It has the variance
    :math:`\sigma^2\,2^k/(2^{k+1}-1)`, half of the tree's. (Honaker, Efficient use of differentially private binary trees, TPDP
    2015: the estimate from below.)

    What differs: each step releases a prefix sum only. Estimates of left halves have been released before, and estimates of right
    halves never are. Each step therefore adds one new row with one noise, of variance :math:`\sigma^2 v_k` for

    .. math:: v_0 = 1,\qquad v_k = \frac{4^k + (2^k - 1)^2 v_{k-1}}{(2^{k+1} - 1)^2} .

    These rows, divided by :math:`\sqrt{v_k}`, are the encoder. Its columns are shorter than the columns of an encoder of all
    nodes, so less noise keeps the same promise.
    """

    name = "honaker"

    def __init__(self, horizon: int, **options: Any) -> None:
        super().__init__(horizon, **options)
        variances = [1.0]
        for k in range(1, horizon.bit_length()):
            variances.append((4.0**k + (2.0**k - 1.0) ** 2 * variances[-1]) / (2.0 ** (k + 1) - 1.0) ** 2)
        self._deviations = [math.sqrt(value) for value in variances]

    def _encode(self, state: State, summand: Tensor, step: int) -> Tensor:
        nodes = state["secret_nodes"]
        # The new part of E_k, without noise. `total` is D_k.
        total, new = summand + 0.0, summand + 0.0
        for height in range(1, _lowest_bit(step) + 1):
            below = 2.0**height - 1.0
            total += nodes[..., height - 1, :]
            new = (2.0**height * total + below * new) / (2.0 ** (height + 1) - 1.0)
        nodes[..., _lowest_bit(step), :] = total
        return new / self._deviations[_lowest_bit(step)]

    def _decode(self, state: State, row: Tensor, step: int) -> Tensor:
        level, nodes = _lowest_bit(step), state["noisy_nodes"]
        # The released part of E_k.
        old = 0.0 * row
        for height in range(1, level + 1):
            below = 2.0**height - 1.0
            old = below * (nodes[..., height - 1, :] + old) / (2.0 ** (height + 1) - 1.0)
        nodes[..., level, :] = old + self._deviations[level] * row
        return _used(nodes, step)

    def column_norm(self, steps: int) -> float:
        # A record is in a row of each height at which its subtree is a left half. Its weight there depends on the last such
        # height below, because the record is in right halves from there on. The largest subtree has records of all patterns.
        squares = [0.0]  # the largest sums of squares, by the number of heights up to the last left half
        for k in range(steps.bit_length()):
            squares.append(max(squares[low] + self._weight(k, low) ** 2 for low in range(k + 1)))
        return math.sqrt(max(squares))

    def _largest_weight(self, height: int) -> float:
        return max(self._weight(height, low) for low in range(height + 1))

    def _weight(self, height: int, low: int) -> float:
        """Return a record's weight in a row, if it is in right halves from ``low`` on."""
        weight = 0.0 if low else 1.0
        for k in range(max(low, 1), height + 1):
            weight = (2.0**k + (2.0**k - 1.0) * weight) / (2.0 ** (k + 1) - 1.0)
        return weight / self._deviations[height]

    def rounding(self, steps: int) -> float:
        return 6.0 * super().rounding(steps)

    def materialize(self, n: int) -> tuple[Tensor, Tensor]:
        encoder = torch.zeros((n, n), dtype=torch.float64)
        for step in range(1, n + 1):
            weights = torch.zeros(n, dtype=torch.float64)
            weights[step - 1] = 1.0
            for height in range(1, _lowest_bit(step) + 1):
                weights *= 2.0**height - 1.0
                weights[step - 2**height : step] += 2.0**height
                weights /= 2.0 ** (height + 1) - 1.0
            encoder[step - 1] = weights / self._deviations[_lowest_bit(step)]
        return factors(encoder)

    def errors(self, n: int) -> tuple[float, float]:
        size = 2.0 ** torch.arange(n.bit_length(), dtype=torch.float64)
        return summary(_over_bits(n, size / (2.0 * size - 1.0)))


def _merged_(nodes: Tensor, summand: Tensor, level: int) -> Tensor:
    """Merge a summand and all smaller nodes into a level's node; return its sum."""
    total = nodes[..., :level, :].sum(-2) + summand
    nodes[..., level, :] = total
    return total


def _used(nodes: Tensor, step: int) -> Tensor:
    """Return the sum of the nodes in use after a step."""
    return sum(nodes[..., level, :] for level in range(step.bit_length()) if step >> level & 1) + 0.0  # type: ignore[return-value]


def _lowest_bit(step: int) -> int:
    """Return the number of trailing zeros of a step in binary."""
    return (step & -step).bit_length() - 1


def _over_bits(n: int, values: Tensor) -> Tensor:
    """Return the sums of ``values`` at the binary ones of t = 1, ..., n."""
    steps = torch.arange(1, n + 1).unsqueeze(-1)
    return ((steps >> torch.arange(len(values))) & 1).to(torch.float64) @ values
