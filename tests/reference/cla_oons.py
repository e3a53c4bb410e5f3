"""Optimistic online Newton steps that know neither how long the comparator is nor how long gradients are."""

import math

import numpy as np

from tests.reference.oons import OONSReference

PRESETS = {"paper": "paper", "default": "tight"}


class CLAOONSReference:
    """``B`` is the largest error of a hint so far, ``D`` the radius, which doubles past the progress of the sum."""

    def __init__(
        self,
        dim: int,
        *,
        initial_scale: float = 1.0,
        initial_radius: float = 1.0,
        preset: str = "default",
        gmax: float = 1.0,
    ) -> None:
        self.dim, self.B, self.D, self.first = dim, initial_scale, initial_radius, initial_radius
        self.learner = OONSReference(dim, z=self.B, radius=self.D, length=self.first, preset=PRESETS[preset])
        self.hint, self.progress, self.gmax = np.zeros(dim), 0.0, gmax

    def play(self) -> np.ndarray:
        self.learner.z = self.B
        self.x = self.learner.play(self.hint)
        return self.x

    def learn(self, gradient: np.ndarray) -> None:
        error = gradient - self.hint
        before, self.B = self.B, max(self.B, float(np.linalg.norm(error)))
        self.learner.learn(self.hint + before / self.B * error)
        self.hint = gradient
        length = float(np.linalg.norm(gradient))
        self.gmax = max(self.gmax, length)
        self.progress += length / self.gmax
        reached = self.first * math.sqrt(self.progress)
        self.reset = reached > self.D
        if self.reset:
            self.D = 2.0 * reached
            self.learner.radius = self.D
            self.learner.restart(self.dim, self.B)
