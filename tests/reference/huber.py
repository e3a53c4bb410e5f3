"""Hvt-UCB from the paper (Wang, Zhang, Zhao and Zhou, ICML 2025), with the floor 2 sqrt 2 and beta_0 of its proof."""

import math

import numpy as np

from tests.reference.ball import multiplier


def project(point: np.ndarray, V: np.ndarray, bound: float) -> np.ndarray:
    """The nearest point of a ball in the norm of V, by the multiplier of the constraint."""
    if np.linalg.norm(point) <= bound:
        return point

    def at(mu: float) -> np.ndarray:
        return np.linalg.solve(V + mu * np.eye(len(point)), V @ point)

    upper = np.linalg.norm(V, 2) * np.linalg.norm(point) / bound
    return at(multiplier(lambda mu: float(np.linalg.norm(at(mu))), bound, 0.0, upper))


class HuberReference:
    """One-pass mirror descent on the Huber loss, with a dense inverse in each round."""

    def __init__(
        self,
        dim: int,
        *,
        horizon: int,
        moment_order: float = 2.0,
        noise_scale: float = 0.5,
        theta_bound: float = 1.0,
        feature_bound: float = 1.0,
        ridge: float | None = None,
        delta: float | None = None,
        alpha: float = 4.0,
        minimum_scale: float | None = None,
        radius_scale: float = 1.0,
        clip_residuals: bool = True,
        project: bool = True,
        adaptive_scale: bool = True,
    ) -> None:
        self.clips, self.projects, self.adapts = clip_residuals, project, adaptive_scale
        T, eps = horizon, moment_order - 1.0
        self.noise_scale, self.bound, self.alpha, self.radius_scale = noise_scale, theta_bound, alpha, radius_scale
        lam = float(dim) if ridge is None else ridge
        delta = 1.0 / (8.0 * T) if delta is None else delta
        self.sigma_min = 1.0 / math.sqrt(T) if minimum_scale is None else minimum_scale
        self.p = (1.0 - eps) / (2.0 * (1.0 + eps))
        self.ell = math.log(2.0 * T**2 / delta)
        kappa = dim * math.log(1.0 + feature_bound**2 * T / (self.sigma_min**2 * lam * alpha * dim))
        self.tau0 = math.sqrt(2.0 * kappa) * math.log(3.0 * T) ** self.p / self.ell ** (1.0 / (1.0 + eps))
        self.beta0 = math.sqrt(lam * (2.0 + 4.0 * theta_bound**2))
        self.V = lam * np.eye(dim)
        self.theta = np.zeros(dim)
        self.rounds = 0

    def radius(self) -> float:
        growing = 107.0 * self.ell * self.tau0 * self.rounds**self.p if self.rounds else 0.0
        return self.radius_scale * (growing + self.beta0)

    def width(self, x: np.ndarray) -> np.ndarray:
        return np.sqrt(np.einsum("...i,ij,...j->...", x, np.linalg.inv(self.V), x))

    def scores(self, arms: np.ndarray) -> np.ndarray:
        return arms @ self.theta + self.radius() * self.width(arms)

    def step(self, x: np.ndarray, reward: float, noise_scale: float | None = None) -> None:
        nu = self.noise_scale if noise_scale is None else noise_scale
        q, beta = float(self.width(x)), self.radius()
        self.rounds += 1
        if q == 0.0:
            return
        growth = self.tau0 * self.rounds**self.p
        root_alpha = math.sqrt(self.alpha)
        sigma = max(nu, self.sigma_min)
        if self.adapts:
            sigma = max(sigma, 2.0 * math.sqrt(2.0) * q, q * math.sqrt(2.0 * beta / (growth * root_alpha)))
        w = q / (root_alpha * sigma)
        tau = growth * math.sqrt(1.0 + w**2) / w
        psi = float((reward - x @ self.theta) / sigma)
        if self.clips:
            psi = float(np.clip(psi, -tau, tau))
        self.V = self.V + np.outer(x, x) / (self.alpha * sigma**2)
        moved = self.theta + psi / sigma * np.linalg.solve(self.V, x)
        self.theta = project(moved, self.V, self.bound) if self.projects else moved
