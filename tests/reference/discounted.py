"""The discounted heuristic as sums: each round fades them and adds a reward of 0 along the coordinate whose turn it is."""

import math

import numpy as np

from tests.reference.heavy_tail import HeavyTailReference


class DiscountedReference(HeavyTailReference):
    """V, A and the moments are scaled and added to; theta solves the normal equations."""

    def __init__(self, dim: int, *, discount: float, **options: object) -> None:
        super().__init__(dim, **options)  # type: ignore[arg-type]
        self.dim, self.discount = dim, discount

    @property
    def logdet(self) -> float:
        """The bound of the determinant by the trace."""
        return self.dim * math.log(float(np.trace(self.A)) / (self.lam * self.dim))

    def step(self, x: np.ndarray, reward: float, noise_scale: float | None = None) -> None:
        super().step(x, reward, noise_scale)
        g = self.discount
        turn = np.zeros((self.dim, self.dim))
        turn[self.rounds % self.dim, self.rounds % self.dim] = self.dim * self.lam
        self.V = g * self.V + (1.0 - g) * turn
        self.A = g**2 * self.A + (1.0 - g**2) * turn
        self.moment = g * self.moment
        self.bias = g * self.bias
