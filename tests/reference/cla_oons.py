"""Optimistic online Newton steps that know neither how long the comparator is nor how long gradients are."""

import math

import numpy as np

from tests.reference.oons import OONSReference

PRESETS = {"paper": "paper", "default": "tight"}


class CLAOONSReference:
    """``B`` is the largest error of a hint so far, ``D`` the radius, which doubles when the sum of progress passes it.

    Without an initial scale, the first gradient that is not 0 gives it, and no more.
    """

    def __init__(
        self, dim: int, *, gradient_scale: float | None = None, length_scale: float = 1.0, preset: str = "default"
    ) -> None:
        self.dim, self.B, self.D, self.first = dim, gradient_scale or 0.0, length_scale, length_scale
        self.learner = OONSReference(dim, z=self.B, radius=self.D, length=self.first, preset=PRESETS[preset])
        self.hint, self.progress, self.resets = np.zeros(dim), 0.0, 0
        # The paper takes the longest gradient for no shorter than 1.
        self.longest = 1.0 if preset == "paper" else self.B

    def play(self) -> np.ndarray:
        self.x = np.zeros(self.dim)
        if self.B > 0.0:
            self.learner.z = self.B
            self.x = self.learner.play(self.hint)
        return self.x

    def learn(self, gradient: np.ndarray) -> None:
        error, length = gradient - self.hint, float(np.linalg.norm(gradient))
        before, self.B = self.B, max(self.B, float(np.linalg.norm(error)))
        if before > 0.0:
            self.learner.learn(self.hint + before / self.B * error)
        elif self.B > 0.0:
            self.learner.restart(self.dim, self.B)
        self.hint, self.longest = gradient, max(self.longest, length)
        self.progress += length / (self.longest or 1.0)
        reached = self.first * math.sqrt(self.progress)
        if reached > self.D:
            self.D = 2.0 * reached
            self.resets += 1
            self.learner.radius = self.D
            self.learner.restart(self.dim, self.B)
