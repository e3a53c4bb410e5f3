"""Discounted generalized linear regression with dense matrices: what is forgotten is taken off, inverses are inverted."""

import math

import numpy as np
from scipy.optimize import brentq

from tests.reference.links import LINKS


class DiscountedGLMReference:
    """The proximal step by bisection; both discounted matrices as such."""

    def __init__(
        self, dim: int, link: str, *, discount: float, theta_bound: float, ridge: float, delta: float, scale: float
    ) -> None:
        _, self.mu, self.slope = LINKS[link]
        self.gamma, self.S, self.lam, self.delta, self.scale = discount, theta_bound, ridge, delta, scale
        self.dim, self.t, self.theta = dim, 0, np.zeros(dim)
        self.V, self.W = ridge * np.eye(dim), ridge * np.eye(dim)
        self.prior, self.squared_prior = ridge * np.ones(dim), ridge * np.ones(dim)

    def radius(self) -> float:
        growth = np.trace(self.W) / (self.dim * self.squared_prior.min())
        bias = self.S * (self.prior / np.sqrt(self.squared_prior)).max()
        return math.sqrt(self.dim * math.log(growth) + 2.0 * math.log(1.0 / self.delta)) + bias

    def scores(self, arms: np.ndarray) -> np.ndarray:
        inverse = np.linalg.inv(self.V)
        width = np.sqrt(np.einsum("ki,ij,kj->k", arms, inverse @ self.W @ inverse, arms))
        return arms @ self.theta + self.radius() * width

    def step(self, x: np.ndarray, r: float, scale: float | None = None) -> None:
        g, gamma, d = (self.scale if scale is None else scale) ** 2, self.gamma, self.dim
        e = np.eye(d)[self.t % d]
        renewed, squared = (1 - gamma) * self.lam * d * e, (1 - gamma**2) * self.lam * d * e
        self.V, self.W = gamma * self.V + np.diag(renewed), gamma**2 * self.W + np.diag(squared)
        self.prior, self.squared_prior = gamma * self.prior + renewed, gamma**2 * self.squared_prior + squared
        self.theta = self.theta - np.linalg.solve(self.V, renewed * self.theta)
        u = np.linalg.solve(self.V, x)
        z, q, bound = x @ self.theta, max(x @ u, 1e-30), self.S * np.linalg.norm(x)

        def slack(y: float) -> float:
            return y - z + q * (self.mu(y) - r) / g

        y = z
        if bound > 0.0:
            is_end = slack(-bound) >= 0.0 or slack(bound) <= 0.0
            ends = -bound if slack(-bound) >= 0.0 else bound
            y = ends if is_end else brentq(slack, -bound, bound, xtol=1e-15, rtol=1e-15)
        grown = self.slope(y) / g * np.outer(x, x)
        self.theta, self.V, self.W = self.theta + (y - z) / q * u, self.V + grown, self.W + grown
        self.t += 1
