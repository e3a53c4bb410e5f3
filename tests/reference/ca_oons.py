"""Comparator-adaptive optimistic online Newton steps: learners of growing radii under a master."""

import math

import numpy as np

from tests.reference.msmwc import MasterReference
from tests.reference.oons import OONSReference, shrunk


class CAOONSReference:
    """The points, the values there and at the origin, or the one gradient at the decision, as ``meta`` wants.

    A round is :meth:`play`, then :meth:`learn` from gradients at ``points`` (one row for ``"linear"``, at ``x``) and, for
    ``meta="values"``, the loss at the points and at the origin.
    """

    def __init__(
        self,
        dim: int,
        *,
        lipschitz: float,
        horizon: int,
        meta: str = "values",
        preset: str = "default",
        radii: np.ndarray | None = None,
        guard: bool = True,
    ) -> None:
        bases = max(1, math.ceil(math.log2(horizon)))
        self.radii = 2.0 ** np.arange(1, bases + 1) if radii is None else radii
        self.meta, self.clipped = meta, 0
        self.longest = lipschitz if guard else math.inf
        self.bases = [
            OONSReference(dim, z=2.0 * lipschitz, radius=radius, preset=preset, guard=guard) for radius in self.radii
        ]
        self.master = MasterReference(lipschitz * self.radii, horizon, preset=preset)
        self.hints, self.losses = np.zeros((len(self.radii), dim)), np.zeros(len(self.radii))

    def play(self) -> np.ndarray:
        self.points = np.stack([base.play(hint) for base, hint in zip(self.bases, self.hints, strict=True)])
        hint = self.losses if self.meta == "values" else (self.hints * self.points).sum(-1)
        self.weights = self.master.play(hint)
        self.x = self.weights @ self.points
        return self.x

    def learn(self, gradients: np.ndarray, values: np.ndarray | None = None, at_origin: float = 0.0) -> None:
        gradients = np.broadcast_to(gradients, self.points.shape)
        losses = (gradients * self.points).sum(-1) if values is None else values - at_origin
        most = self.longest * self.radii
        self.clipped += bool((np.abs(losses) > most).any())
        self.losses = np.clip(losses, -most, most)
        self.master.learn(self.losses)
        for base, gradient in zip(self.bases, gradients, strict=True):
            base.learn(gradient)
        self.hints = np.stack([shrunk(gradient, self.longest) for gradient in gradients])
