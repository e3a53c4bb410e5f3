"""Streams of records for ``private_oco_rates.py``: settings, records, gradients and excess risks.

``private_oco.py`` has the noise of responses, the seeds and the form of numbers from here.
"""

import math
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from torch import Tensor

NOISE = 0.05  # of a response, its standard deviation


@dataclass(frozen=True)
class Setting:
    """Linear regression on a stream, and a promise."""

    norm: float  # p
    rounds: int  # n
    dim: int  # d
    epsilon: float
    radius: float = 2.0
    sparsity: int = field(default=0, repr=False)  # entries of theta* that are not 0; 0 for all

    @property
    def dual(self) -> float:
        """Return the order q of the norm of features and gradients."""
        return {1.0: math.inf, math.inf: 1.0}.get(self.norm) or self.norm / (self.norm - 1.0)

    def __str__(self) -> str:
        few = f", {self.sparsity} entries" if self.sparsity else ""
        numbers = f"p = {self.norm:g}, n = {self.rounds}, d = {self.dim}, epsilon = {self.epsilon:g}"
        return f"{numbers}, radius {self.radius:g}{few}"

    def promise(self) -> dict[str, Any]:
        return {"horizon": self.rounds, "epsilon": self.epsilon, "delta": 0.1 / self.rounds}

    def ball(self) -> dict[str, Any]:
        return {"norm": self.norm, "radius_bound": self.radius}


class Stream:
    """Records of a setting, for some trials, drawn one after another."""

    def __init__(self, setting: Setting, trials: int) -> None:
        self.setting, self.trials = setting, trials
        # One stream for all epsilons and radii.
        self.generator = torch.Generator().manual_seed(seed_of(setting.norm, setting.rounds, setting.dim))
        self.theta = self._theta()
        self.moment = second_moment(setting)

    def _normal(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self.generator, dtype=torch.float64)

    def _theta(self) -> Tensor:
        setting, shape = self.setting, (self.trials, self.setting.dim)
        theta = self._normal(*shape)
        if setting.sparsity:
            where = torch.rand(*shape, generator=self.generator).argsort(-1) < setting.sparsity
            theta = torch.where(where, theta, 0.0)
        theta = theta.sign() if setting.norm == math.inf else theta
        return theta / torch.linalg.vector_norm(theta, setting.norm, dim=-1, keepdim=True)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for _ in range(self.setting.rounds):
            x = features(self.setting, self.trials, self.generator)
            yield x, (x * self.theta).sum(-1) + NOISE * self._normal(self.trials)

    def gradients(self, points: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """Return gradients of the squared loss at points, ``(*B, N, d)``."""
        residual = (points * x.unsqueeze(-2)).sum(-1) - y.unsqueeze(-1)
        return 2.0 * residual.unsqueeze(-1) * x.unsqueeze(-2)

    def excess(self, theta: Tensor) -> Tensor:
        """Return E<x, theta - theta*>^2; E xx' is a multiple of the identity."""
        return self.moment * (theta - self.theta).square().sum(-1)


class HardStream(Stream):
    """Linear losses -<theta, z>, with a mean of z that the noise of z can hide.

    For p <= 2 the entries of z are independent, and +1 or -1 over d^(1/q). For p > 2 one entry is +1 or -1, which entry is by
    chance, and all others are 0. So |z|_q = 1. An entry has its sign with probability (1 + bias)/2, with signs by chance. A batch
    has all trials for each bias.
    """

    def __init__(self, setting: Setting, trials: int, biases: Sequence[float]) -> None:
        super().__init__(setting, trials)
        self.size, self.share = entries(setting)
        self.bias = torch.tensor(biases, dtype=torch.float64)[:, None, None]
        self.signs = 2.0 * torch.randint(2, (trials, setting.dim), generator=self.generator).double() - 1.0
        self.mean = (self.share * self.size * self.bias * self.signs).flatten(0, 1)

    def __iter__(self) -> Iterator[tuple[Tensor, ...]]:
        shape = (self.trials, self.setting.dim)
        for _ in range(self.setting.rounds):
            luck = torch.rand(*shape, generator=self.generator, dtype=torch.float64)
            z = torch.where(luck < 0.5 * (1.0 + self.bias), self.size, -self.size) * self.signs
            if self.share < 1.0:
                where = torch.randint(shape[1], shape[:1], generator=self.generator)
                z = z * torch.nn.functional.one_hot(where, shape[1])
            yield (z.flatten(0, 1),)

    def gradients(self, points: Tensor, *record: Tensor) -> Tensor:
        """Return -z, the gradient at all points."""
        return -record[0].unsqueeze(-2).expand_as(points)

    def excess(self, theta: Tensor) -> Tensor:
        """Return the maximum of <u, E z> over the ball, minus <theta, E z>."""
        best = self.setting.radius * torch.linalg.vector_norm(self.mean, self.setting.dual, dim=-1)
        return best - (theta * self.mean).sum(-1)


class OneEntry(HardStream):
    """Linear losses -<theta, z>, with z of signs, of which one entry has a mean: the hard case for p = 1."""

    def __init__(self, setting: Setting, trials: int, biases: Sequence[float]) -> None:
        super().__init__(setting, trials, biases)
        where = torch.randint(setting.dim, (trials,), generator=self.generator)
        self.bias = self.bias * torch.nn.functional.one_hot(where, setting.dim)
        self.mean = (self.bias * self.signs).flatten(0, 1)


def sparse_parameters(shape: tuple[int, ...], sparsity: int, generator: torch.Generator) -> Tensor:
    """Return parameters of l1 norm 1 with some normal entries at places by chance, and zeros."""
    where = torch.rand(*shape, generator=generator).argsort(-1) < sparsity
    theta = torch.where(where, torch.randn(*shape, generator=generator, dtype=torch.float64), 0.0)
    return theta / theta.abs().sum(-1, keepdim=True)


def seed_of(*key: Any) -> int:
    return zlib.crc32(repr(key).encode())


def features(setting: Setting, count: int, generator: torch.Generator) -> Tensor:
    """Return features of norm 1 in the dual norm: signs for p = 1, else Gaussian."""
    if setting.norm == 1.0:
        return 2.0 * torch.randint(2, (count, setting.dim), generator=generator).double() - 1.0
    x = torch.randn(count, setting.dim, generator=generator, dtype=torch.float64)
    return x / torch.linalg.vector_norm(x, setting.dual, dim=-1, keepdim=True)


def second_moment(setting: Setting) -> float:
    """Return E x_1^2, for p other than 1 and 2 by 20,000 draws of x."""
    return {1.0: 1.0, 2.0: 1.0 / setting.dim}.get(setting.norm) or drawn_moment(setting.norm, setting.dim)


@cache
def drawn_moment(norm: float, dim: int) -> float:
    x = features(Setting(norm, 1, dim, 1.0), 20_000, torch.Generator().manual_seed(0))
    return float(x.square().mean())


class LogisticStream(Stream):
    """Responses 0 and 1, and the logistic loss; theta* is half of the radius long.

    The loss is convex, 1/4-smooth, and has gradients no longer than 1, if p = 2.
    """

    longest, smoothness = 1.0, 0.25

    def _theta(self) -> Tensor:
        self.x = features(self.setting, 4000, torch.Generator().manual_seed(0))
        return 0.5 * self.setting.radius * super()._theta()

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for _ in range(self.setting.rounds):
            x = features(self.setting, self.trials, self.generator)
            luck = torch.rand(self.trials, generator=self.generator, dtype=torch.float64)
            yield x, (luck < (x * self.theta).sum(-1).sigmoid()).double()

    def gradients(self, points: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """Return gradients of the logistic loss at points, ``(*B, N, d)``."""
        residual = (points * x.unsqueeze(-2)).sum(-1).sigmoid() - y.unsqueeze(-1)
        return residual.unsqueeze(-1) * x.unsqueeze(-2)

    def excess(self, theta: Tensor) -> Tensor:
        """Return the expected loss above that of theta*, by 4000 draws of x."""
        right, other = self.theta @ self.x.T, theta @ self.x.T
        loss = torch.nn.functional.softplus
        return (loss(other) - loss(right) - right.sigmoid() * (other - right)).mean(-1)


class BoundedStream(Stream):
    """Linear regression with noise of +0.05 or -0.05, so that gradients are bounded.

    In the ball of radius 2 the squared loss is convex, 2-smooth, and has gradients no longer than 2 (2 + 1.05), if p = 2.
    """

    longest, smoothness = 2.0 * (2.0 + 1.0 + NOISE), 2.0

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for _ in range(self.setting.rounds):
            x = features(self.setting, self.trials, self.generator)
            sign = 2.0 * torch.randint(2, (self.trials,), generator=self.generator).double() - 1.0
            yield x, (x * self.theta).sum(-1) + NOISE * sign


def entries(setting: Setting) -> tuple[float, float]:
    """Return the size of a hard record's entries that are not 0, and their share."""
    if setting.norm == 1.0:
        return 1.0, 1.0
    return (1.0, 1.0 / setting.dim) if setting.norm > 2.0 else (setting.dim ** (-1.0 / setting.dual), 1.0)
