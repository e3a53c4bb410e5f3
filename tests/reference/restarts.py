"""A learner that starts anew: a fresh reference for each epoch, and nothing handed on."""

from collections.abc import Callable
from typing import Any

import numpy as np


class RestartedReference:
    """Asks for the reference of epoch k = 0, 1, ... and the number of rounds that it lives."""

    def __init__(self, epoch: Callable[[int], tuple[Any, int]]) -> None:
        self._epoch = epoch
        self.starts = 0
        self._start()

    def _start(self) -> None:
        self.now, self.length = self._epoch(self.starts)
        self.starts += 1
        self.since_start = 0

    @property
    def theta(self) -> np.ndarray:
        return self.now.theta

    @property
    def V(self) -> np.ndarray:
        return self.now.V

    def radius(self) -> float:
        return self.now.radius()

    def width(self, x: np.ndarray) -> np.ndarray:
        return self.now.width(x)

    def scores(self, arms: np.ndarray) -> np.ndarray:
        return self.now.scores(arms)

    def step(self, x: np.ndarray, reward: float, noise_scale: float | None = None) -> None:
        self.now.step(x, reward, noise_scale)
        self.since_start += 1
        if self.since_start == self.length:
            self._start()
