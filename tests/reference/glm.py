"""GLB-OMD and LocalGLB in NumPy, from the equations alone: inverses are inverted, minima minimised, sums summed."""

import numpy as np
from scipy.optimize import brentq
from scipy.special import logsumexp

from tests.reference.ball import multiplier
from tests.reference.links import LINKS


class Generalized:
    """What the two share: the matrix, the mixture, and the scores."""

    def __init__(self, dim, link, *, concordance, bound, ridge, delta, scale):
        self.m, self.mu, self.slope = LINKS[link]
        self.R, self.S, self.ridge, self.delta, self.scale = concordance, bound, ridge, delta, scale
        self.theta, self.V = np.zeros(dim), ridge * np.eye(dim)

    def loss(self, z, r, g):
        return (self.m(z) - r * z) / g

    def mixture(self, z, q, B, r, g):
        """The loss of the prior N(z, q), on 32 Gauss-Legendre nodes of the part of it that may be."""
        c = np.clip(z, -B, B)
        low, high = max(-B, c - 6.0 * np.sqrt(q)), min(B, c + 6.0 * np.sqrt(q))
        t, w = np.polynomial.legendre.leggauss(32)
        nodes = 0.5 * (low + high) + 0.5 * (high - low) * t
        p = w * np.exp(-((nodes - c) ** 2) / (2.0 * q))
        return -logsumexp(-self.loss(nodes, r, g), b=p / p.sum())

    def radius(self):
        return np.sqrt(max(self.squared, 0.0))

    def width(self, x):
        return np.sqrt(np.einsum("...i,ij,...j", x, np.linalg.inv(self.V), x))

    def scores(self, arms):
        return arms @ self.theta + self.radius() * self.width(arms)

    def divergence(self, b, y):
        return self.m(b) - self.m(y) - self.mu(y) * (b - y)


class GLBOMD(Generalized):
    """The mirror descent step, with eta given; the radius that adds up what the rounds cost."""

    def __init__(self, dim, link, *, eta, **options):
        super().__init__(dim, link, **options)
        self.eta = eta
        self.squared = self.ridge * self.S**2 - 2.0 * eta * np.log(self.delta)

    def step(self, x, r, scale=None):
        g = (self.scale if scale is None else scale) ** 2
        z, eta = x @ self.theta, self.eta
        q, B = max(x @ np.linalg.solve(self.V, x), 1e-30), self.S * np.linalg.norm(x)
        H = self.V + eta * self.slope(z) / g * np.outer(x, x)
        zeta = self.theta - eta * (self.mu(z) - r) / g * np.linalg.solve(H, x)
        new = zeta
        if np.linalg.norm(zeta) > self.S:

            def at(mu):
                return np.linalg.solve(H + mu * np.eye(len(x)), H @ zeta)

            top = np.linalg.eigvalsh(H)[-1] * (np.linalg.norm(zeta) / self.S - 1.0)
            new = at(multiplier(lambda mu: float(np.linalg.norm(at(mu))), self.S, 0.0, 1.01 * top + 1e-9))
            new *= self.S / np.linalg.norm(new)
        y, move = x @ new, new - self.theta
        v = (self.mu(y) - r) / g * x + self.V @ move / eta
        self.squared += 2.0 * eta * (self.mixture(z, q, B, r, g) - self.loss(y, r, g)) - move @ self.V @ move
        self.squared += 2.0 * eta * (v @ new + self.S * np.linalg.norm(v))
        self.theta, self.V = new, self.V + self.slope(y) / g * np.outer(x, x)


class LocalGLB(Generalized):
    """The proximal step on one number, and the least curvature over the interval of the truth."""

    def __init__(self, dim, link, *, unimodal, corruption=0.0, **options):
        super().__init__(dim, link, **options)
        self.unimodal, self.corruption = unimodal, corruption
        self.start = self.squared = self.ridge * self.S**2 - 2.0 * np.log(self.delta)
        if corruption:
            self.squared = 4.0 * self.start

    def dispersion(self, g, q, B):
        """The dispersion, raised where a changed reward could mislead by more than alpha."""
        if not self.corruption:
            return g
        alpha = 1.5 * self.start / self.corruption
        return np.maximum(g, np.minimum((self.radius() + 6.0) * np.sqrt(q), 2.0 * B) / alpha)

    def curvature(self, b, y):
        if abs(b - y) <= 0.02:
            return 2.0 * self.slope(y) / (2.0 + self.R * abs(b - y))
        return 2.0 * self.divergence(b, y) / (b - y) ** 2

    def step(self, x, r, scale=None):
        g = (self.scale if scale is None else scale) ** 2
        u = np.linalg.solve(self.V, x)
        z, q, B = x @ self.theta, max(x @ u, 1e-30), self.S * np.linalg.norm(x)
        g = self.dispersion(g, q, B)
        error = (1.0 + 1e-9) * self.radius() * np.sqrt(q)
        low, high = np.clip(z - error, -B, B), np.clip(z + error, -B, B)

        def slack(y):
            return y - z + q * (self.mu(y) - r) / g

        y = -B if slack(-B) >= 0.0 else B if slack(B) <= 0.0 else brentq(slack, -B, B, xtol=1e-15, rtol=1e-15)
        a = (z - y) / q
        e = (self.mu(y) - r) / g - a
        self.squared += 2.0 * (self.mixture(z, q, B, r, g) - self.loss(y, r, g)) - a * a * q
        self.squared += 2.0 * max(e * (y - low), e * (y - high))
        c = 2.0 * self.slope(y) / (2.0 + self.R * max(abs(low - y), abs(high - y)))
        if self.unimodal:
            c = max(c, (1.0 - 1e-6) * min(self.curvature(low, y), self.curvature(high, y)))
        self.theta, self.V = self.theta - a * u, self.V + c / g * np.outer(x, x)
