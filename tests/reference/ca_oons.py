"""Comparator-adaptive optimistic online Newton steps: learners of growing radii under a master."""

import math

import numpy as np

from tests.reference.msmwc import MasterReference
from tests.reference.oons import OONSReference, shrunk


class CAOONSReference:
    """Without a horizon, thirty learners, of which the j-th sleeps until round 2^(j - 1).

    A round is :meth:`play`, then :meth:`learn` from gradients at ``points`` (one row for ``"linear"``, at ``x``) and, for
    ``meta="values"``, the loss at the points and at the origin.
    """

    def __init__(
        self,
        dim: int,
        *,
        lipschitz: float,
        horizon: int | None,
        meta: str = "values",
        preset: str = "default",
        length_scale: float = 1.0,
        guard: bool = True,
    ) -> None:
        bases = 30 if horizon is None else max(1, math.ceil(math.log2(horizon / min(1.0, length_scale))))
        self.radii = length_scale * 2.0 ** np.arange(1, bases + 1)
        self.meta, self.clipped = meta, 0
        # From this round on, the first of which is 1, a learner is awake.
        self.wakes = 2.0 ** np.arange(bases) if horizon is None else np.zeros(bases)
        self.round = 1
        self.longest = lipschitz if guard else math.inf
        self.bases = [
            OONSReference(dim, z=2.0 * lipschitz, radius=radius, preset=preset, guard=guard) for radius in self.radii
        ]
        self.master = MasterReference(lipschitz * self.radii, horizon or 2**30, preset=preset)
        self.hints, self.losses = np.zeros((len(self.radii), dim)), np.zeros(len(self.radii))

    def play(self) -> np.ndarray:
        self.points = np.stack([base.play(hint) for base, hint in zip(self.bases, self.hints, strict=True)])
        hint = self.losses if self.meta == "values" else (self.hints * self.points).sum(-1)
        self.awake = self.wakes <= self.round
        self.weights = self.master.play(hint, self.awake)
        self.x = self.weights @ self.points
        return self.x

    def learn(self, gradients: np.ndarray, values: np.ndarray | None = None, at_origin: float = 0.0) -> None:
        gradients = np.where(self.awake[:, None], gradients, 0.0)
        losses = (gradients * self.points).sum(-1) if values is None else np.where(self.awake, values - at_origin, 0.0)
        most = self.longest * self.radii
        self.clipped += bool((np.abs(losses) > most).any())
        self.losses = np.clip(losses, -most, most)
        self.master.learn(self.losses)
        for base, gradient in zip(self.bases, gradients, strict=True):
            base.learn(gradient)
        self.hints = np.stack([shrunk(gradient, self.longest) for gradient in gradients])
        self.round += 1
