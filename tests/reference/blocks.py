"""Blocks of rounds that are learnt from one state: the state at the start weighs every row, and sums are summed row by row."""

import copy
import math

import numpy as np

from tests.reference.glm import LocalGLB
from tests.reference.heavy_tail import ROUNDOFF, HeavyTailReference
from tests.reference.system_identification import SystemIdentificationReference


class HeavyTailBlocks(HeavyTailReference):
    """theta solves the normal equations of all pseudo-rewards; the bias is the smaller of its two bounds."""

    def learn(self, x: np.ndarray, reward: np.ndarray, noise_scale: np.ndarray | None = None) -> None:
        start, last = copy.copy(self), self.rounds + len(x)
        start.rounds += 1
        R, near, far = np.linalg.inv(start.A), self.bias**2, self.bias
        for i in range(len(x)):
            if x[i].any():
                own = None if noise_scale is None else noise_scale[i]
                a, target, rho, b = start.weigh(x[i], reward[i], own, 1e-6 * math.sqrt(last))
                near += b**2 / rho if b else 0.0
                far += b * math.sqrt(a @ R @ a + 8.0 * ROUNDOFF * np.trace(R) * (a @ a))
                self.V, self.A = self.V + np.outer(a, a), self.A + rho * np.outer(a, a)
                self.moment = self.moment + (np.outer(a, target) if np.ndim(target) else a * target)
        self.bias, self.rounds = min(math.sqrt(near), far), last


class SystemIdentificationBlocks(SystemIdentificationReference):
    """The same, of several outputs."""

    learn = HeavyTailBlocks.learn


class LocalGLBBlocks(LocalGLB):
    """The minimiser of the block's loss by Newton's method with halved steps, to the last digit; each prior that of the start."""

    def learn(self, x, r, scale=None):
        scale = np.full(len(x), self.scale) if scale is None else scale
        g, G, beta = scale**2, self.V, self.radius()
        inverse = np.linalg.inv(G)
        z, q = x @ self.theta, np.maximum(np.einsum("ni,ij,nj->n", x, inverse, x), 1e-30)
        B, error = self.S * np.linalg.norm(x, axis=-1), (1.0 + 1e-9) * beta * np.sqrt(q)
        low, high = np.clip(z - error, -B, B), np.clip(z + error, -B, B)
        g = self.dispersion(g, q, B)

        def objective(D):
            return self.loss(z + x @ D, r, g).sum() + 0.5 * D @ G @ D

        def gradient(D):
            return x.T @ ((self.mu(z + x @ D) - r) / g) + G @ D

        D = np.zeros(x.shape[1])
        for _ in range(200):
            step = np.linalg.solve((x.T * (self.slope(z + x @ D) / g)) @ x + G, gradient(D))
            share = 1.0
            while objective(D - share * step) > objective(D) and share > 1e-6:
                share /= 2.0
            D = D - share * step
        y, v = z + x @ D, gradient(D)
        # What the minimisation has left, some roundoffs, is paid for.
        self.squared += 2.0 * (v @ D + np.sqrt(v @ inverse @ v) * beta) - D @ G @ D
        for i in range(len(x)):
            mixture = self.mixture(z[i], q[i], B[i], r[i], g[i])
            self.squared += 2.0 * (mixture - self.loss(y[i], r[i], g[i]))
            c = 2.0 * self.slope(y[i]) / (2.0 + self.R * max(abs(low[i] - y[i]), abs(high[i] - y[i])))
            if self.unimodal:
                c = max(c, (1.0 - 1e-6) * min(self.curvature(low[i], y[i]), self.curvature(high[i], y[i])))
            self.V = self.V + c / g[i] * np.outer(x[i], x[i])
        self.theta = self.theta + D
