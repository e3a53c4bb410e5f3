"""Binary trees for prefix sums: simple, two to three times the Toeplitz noise."""

import math

import torch
from torch import Tensor

from torchonline.privacy.mechanisms.base import Mechanism, State, factors, summary


class Tree(Mechanism):
    """Binary tree of noisy partial sums.

    A prefix adds up as many nodes as its number has binary ones. Node e covers the records after e - lowbit(e) up to e, where
    lowbit(e) is the largest power of two that divides e. Record i is in the nodes i, i + lowbit(i), ..., at most
    ``n.bit_length()`` of them. Each step draws one node's noise. (Chan, Shi and Song, ICALP 2010; Dwork, Naor, Pitassi and
    Rothblum, STOC 2010.)
    """

    name = "tree"
    memory = "secret_nodes"

    def initial_state(self, dim: int) -> dict[str, Tensor]:
        # Level k holds the noise of the node of size 2^k that is in use, which is so if bit k of the step is 1; else 0.
        nodes = torch.zeros((self.horizon.bit_length(), dim), dtype=torch.float64)
        return super().initial_state(dim) | {self.memory: nodes}

    def _increment(self, state: State, step: int) -> Tensor:
        nodes: Tensor = state[self.memory]
        return _replace_(nodes, _lowest_bit(step), self._draw(nodes))

    def column_norm(self, steps: int) -> float:
        return math.sqrt(steps.bit_length())

    def materialize(self, n: int) -> tuple[Tensor, Tensor]:
        step = torch.arange(1, n + 1)
        age = step.unsqueeze(-1) - step
        return factors(((age >= 0) & (age < (step & -step).unsqueeze(-1))).to(torch.float64))

    def errors(self, n: int) -> tuple[float, float]:
        return summary(_over_bits(n, torch.ones(n.bit_length(), dtype=torch.float64)))


class HonakerTree(Tree):
    r"""Binary tree with noise in right children too: a second estimate of each sum.

    A full subtree of height k is estimated by :math:`\sum_j w_j` (the sum of its nodes of height j), with
    :math:`w_j = 2^j/(2^{k+1}-1)` and the variance :math:`\sigma^2\,2^k/(2^{k+1}-1)`, half of the tree's. A step draws two numbers
    on average. (Honaker, Efficient use of differentially private binary trees, TPDP 2015: the estimate from below.)
    """

    name = "honaker"
    memory = "secret_subtrees"

    def _increment(self, state: State, step: int) -> Tensor:
        subtrees: Tensor = state[self.memory]
        noise = self._draw(subtrees)
        for height in range(1, _lowest_bit(step) + 1):
            # Two subtrees of the height below become one: (2^(k+1) - 1) N_k = 2^k z + (2^k - 1)(N_left + N_right).
            below = 2.0**height - 1.0
            noise = 2.0**height * self._draw(subtrees) + below * (noise + subtrees[..., height - 1, :])
            noise /= 2.0 ** (height + 1) - 1.0
        return _replace_(subtrees, _lowest_bit(step), noise)

    def materialize(self, n: int) -> tuple[Tensor, Tensor]:
        nodes = [(t - (1 << height), t) for t in range(1, n + 1) for height in range(_lowest_bit(t) + 1)]
        start, end = torch.tensor(nodes).mT
        step, record = torch.arange(1, n + 1).unsqueeze(-1), torch.arange(n)
        encoder = ((start.unsqueeze(-1) <= record) & (record < end.unsqueeze(-1))).to(torch.float64)
        decoder = torch.zeros((n, len(nodes)), dtype=torch.float64)
        for height in range(n.bit_length()):
            # A prefix whose number has this bit ends with a subtree of this height, but for smaller ones.
            top = step >> height << height
            is_inside = (top - (1 << height) <= start) & (end <= top) & (step >> height & 1 == 1)
            decoder += is_inside * (end - start).to(torch.float64) / (2.0 ** (height + 1) - 1.0)
        return decoder, encoder

    def errors(self, n: int) -> tuple[float, float]:
        size = 2.0 ** torch.arange(n.bit_length(), dtype=torch.float64)
        return summary(_over_bits(n, size / (2.0 * size - 1.0)))


def _lowest_bit(step: int) -> int:
    """Return the number of zeros at the end of a number's binary form."""
    return (step & -step).bit_length() - 1


def _replace_(nodes: Tensor, level: int, noise: Tensor) -> Tensor:
    """Replace all smaller nodes by one node, and return the change of the total."""
    change = noise - nodes[..., :level, :].sum(-2)
    nodes[..., :level, :] = 0
    nodes[..., level, :] = noise
    return change


def _over_bits(n: int, values: Tensor) -> Tensor:
    """Return the sums of ``values`` at the binary ones of t = 1, ..., n."""
    steps = torch.arange(1, n + 1).unsqueeze(-1)
    return ((steps >> torch.arange(len(values))) & 1).to(torch.float64) @ values
