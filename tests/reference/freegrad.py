"""FreeGrad (Mhammedi and Koolen, 2020), with V itself and the printed formula: for gradients whose squares are in range."""

import math
from typing import Any

import numpy as np


def potential(n: np.ndarray, V: np.ndarray, h: np.ndarray, h_1: np.ndarray, *, exponent: float = 2.0) -> np.ndarray:
    """Phi, for epsilon = 1; an ``exponent`` below 2 wagers more than is proved."""
    return h_1 * h_1 / np.sqrt(V) * np.exp(n * n / (exponent * (V + h * n)))


def slope(n: np.ndarray, V: np.ndarray, h: np.ndarray, h_1: np.ndarray, *, exponent: float = 2.0) -> np.ndarray:
    """The derivative of Phi in n over n: the decision is minus that times S."""
    return potential(n, V, h, h_1, exponent=exponent) * (2.0 * V + h * n) / (exponent * (V + h * n) ** 2)


class FreeGradReference:
    """One learner, with the sum of what it has paid."""

    def __init__(
        self,
        dim: int,
        *,
        length_scale: float = 1.0,
        lipschitz: float | None = None,
        restarts: bool = True,
        exponent: float = 2.0,
    ) -> None:
        self.restarts = restarts and lipschitz is None
        self.starts = 0
        self.length_sum = 0.0  # since the last start
        self.scale, self.known, self.exponent = length_scale, lipschitz is not None, exponent
        self.h = self.h_1 = lipschitz or 0.0
        self.V = self.h**2
        self.S = np.zeros(dim)
        self.x = np.zeros(dim)
        self.clipped = 0
        self.paid = 0.0  # the sum of <g~, x> since the last start
        self.regret_of_zero = 0.0  # the sum of <g, x>
        self.sum = np.zeros(dim)  # of g
        self.lost = 0.0  # the sum of |g - g~|
        self.lost_here = 0.0  # the sum of |g - g~| |x|
        self.longest_decision = 0.0

    def step(self, g: np.ndarray) -> None:
        length = math.sqrt(g @ g)
        if length == self.h == 0.0:
            return
        x = self.x
        if self.h == 0.0 or (self.restarts and length >= 2.0 * self.length_sum):
            self.begin(length)
            x = np.zeros_like(x)  # for all that the new start knows
        self.length_sum += length
        self.pay(g)
        self.learn(g, x)

    def begin(self, length: float) -> None:
        self.h = self.h_1 = length
        self.V = length**2
        self.S = np.zeros_like(self.S)
        self.starts += 1
        self.length_sum = self.paid = 0.0

    def pay(self, g: np.ndarray) -> None:
        self.regret_of_zero += g @ self.x
        self.sum = self.sum + g
        self.longest_decision = max(self.longest_decision, math.sqrt(self.x @ self.x))

    def learn(self, g: np.ndarray, x: np.ndarray) -> None:
        length = math.sqrt(g @ g)
        reach = max(self.h, length)
        g_cut = g * (self.h / reach)
        self.clipped += length > self.h
        self.paid += g_cut @ x
        gap = math.sqrt((g - g_cut) @ (g - g_cut))
        self.lost += gap
        self.lost_here += gap * math.sqrt(self.x @ self.x)
        self.S = self.S + g_cut
        self.V += g_cut @ g_cut
        if not self.known:
            self.h = reach
        n = math.sqrt(self.S @ self.S)
        self.x = -self.scale * self.S * slope(n, self.V, self.h, self.h_1, exponent=self.exponent)

    def wealth(self) -> float:
        """What the inequality says is not negative: epsilon h_1 - Phi minus what was paid."""
        if self.h == 0.0:
            return 0.0
        n = math.sqrt(self.S @ self.S)
        phi = self.scale * potential(n, self.V, self.h, self.h_1, exponent=self.exponent)
        return float(self.scale * self.h_1 - phi - self.paid)

    def regret(self, u: np.ndarray) -> float:
        return float(self.regret_of_zero - self.sum @ u)

    def bound(self, length: float) -> float:
        """Of the regret against any comparator of that length."""
        if self.h == 0.0:
            return 0.0
        c = self.scale * self.h_1**2 / math.sqrt(self.V)
        root = 2.0 * math.sqrt(self.V * math.log1p((2.0 * length * math.sqrt(self.V) / c) ** 2))
        tail = 4.0 * self.h * max(0.0, math.log(4.0 * self.h * length / c)) if length > 0.0 else 0.0
        wager = self.scale * self.h_1
        if self.known:
            cut = self.lost_here + self.lost * length
        elif self.starts <= 1:
            cut = (self.longest_decision + length) * (self.h - self.h_1)
        else:
            cut = (2.0 * self.longest_decision + length) * self.h
        return wager + length * max(root, tail) + cut


class CoordinateReference(FreeGradReference):
    """A learner in one dimension, which wagers in units of the loss and waits after each start."""

    def __init__(self, *, initial_wealth: float = 1.0, **options: Any) -> None:
        super().__init__(1, **options)
        self.initial_wealth, self.waits = initial_wealth, not self.known
        self.h_wait = 0.0  # the largest gradient of a wait
        if self.known:
            self.scale = initial_wealth / self.h

    def step_with(self, g: float, share: float) -> None:
        """Learn from a gradient; before the first start, as if it were 1/share times as long."""
        size, gradient = abs(g), np.array([g])
        if size == 0.0:
            return
        self.pay(gradient)
        seen = size / share if self.h_1 == 0.0 else size
        new = self.length_sum == 0.0 or (self.restarts and size > 2.0 * self.length_sum)
        if new and not self.known:
            self.starts += 1
            self.length_sum, self.waits, self.h_wait, self.h_1 = 0.0, True, 0.0, 0.0
            self.x, self.h = np.zeros(1), 0.0
        self.length_sum += seen
        if not self.waits:
            self.learn(gradient, self.x)
            return
        self.h = self.h_wait = max(self.h_wait, seen)
        if self.length_sum >= 3.0 * self.h_wait * (1.0 - 1e-6):
            self.h_1, self.V, self.S, self.paid = self.h, self.h**2, np.zeros(1), 0.0
            self.scale, self.waits = self.initial_wealth / self.h, False

    def bound_of(self, length: float) -> float:
        """Of the regret against a comparator of that size."""
        again = (2.0 * self.longest_decision + length) * self.h if self.starts > 1 else 0.0
        if self.waits:
            return again + 3.0 * self.h * length
        return self.bound(length) + (0.0 if self.known else 4.0 * self.h_1 * length)


class PerCoordinateReference:
    """One learner for each coordinate."""

    def __init__(self, dim: int, **options: Any) -> None:
        self.parts = [CoordinateReference(**options) for _ in range(dim)]
        self.clipped = 0

    @property
    def x(self) -> np.ndarray:
        return np.concatenate([part.x for part in self.parts])

    def step(self, g: np.ndarray) -> None:
        shares = [min(1.0, abs(one) / part.h) for part, one in zip(self.parts, g, strict=True) if part.h > 0.0]
        share = max(shares, default=0.0) or 1.0
        before = [part.clipped for part in self.parts]
        for part, one in zip(self.parts, g, strict=True):
            part.step_with(float(one), share)
        self.clipped += before != [part.clipped for part in self.parts]

    def regret(self, u: np.ndarray) -> float:
        return sum(part.regret(u[i : i + 1]) for i, part in enumerate(self.parts))

    def bound(self, u: np.ndarray) -> float:
        return sum(part.bound_of(abs(one)) for part, one in zip(self.parts, u, strict=True))
