"""The certified heavy-tail learner as ridge regression on pseudo-rewards, with a dense P = V^-1 A V^-1 in each round."""

import math

import numpy as np

ROUNDOFF = float(np.finfo(np.float64).eps)


class HeavyTailReference:
    """V and A are sums, theta solves the normal equations; nothing is updated by a formula for inverses."""

    def __init__(
        self,
        dim: int,
        *,
        noise: str = "moment",
        moment_order: float = 2.0,
        noise_scale: float = 0.5,
        theta_bound: float = 1.0,
        ridge: float | None = None,
        delta: float = 0.01,
        corrupted_rounds: int = 0,
        radius_scale: float = 1.0,
    ) -> None:
        self.noise, self.order, self.noise_scale = noise, moment_order, noise_scale
        self.S, self.delta, self.radius_scale = theta_bound, delta, radius_scale
        self.lam = dim / theta_bound**2 if ridge is None else ridge
        self.eps = moment_order - 1.0
        self.C = self.eps**self.eps / (1.0 + self.eps) ** (1.0 + self.eps)
        self.K = 3.0
        self.tau0 = 3.0 if self.eps == 1.0 else min(3.0, 1.75 * self.C * self.eps / (1.0 - self.eps))
        self.tau0 /= math.sqrt(1.0 + 4.0 * corrupted_rounds)
        self.V = self.lam * np.eye(dim)
        self.A = self.lam * np.eye(dim)
        self.moment = np.zeros(dim)
        self.bias = math.sqrt((1.0 if noise == "symmetric" else 4.5) * corrupted_rounds)
        self.rounds = 0

    @property
    def theta(self) -> np.ndarray:
        return np.linalg.solve(self.V, self.moment)

    @property
    def P(self) -> np.ndarray:
        inverse = np.linalg.inv(self.V)
        return inverse @ self.A @ inverse

    @property
    def logdet(self) -> float:
        return float(np.linalg.slogdet(self.A / self.lam)[1])

    def radius(self) -> float:
        root = math.sqrt(2.0 * math.log(1.0 / self.delta) + self.logdet + self.lam * self.S**2)
        return self.radius_scale * (root + self.bias)

    def width(self, x: np.ndarray) -> np.ndarray:
        P = self.P
        square = np.einsum("...i,ij,...j->...", x, P, x)
        return np.sqrt(np.maximum(square, 0.0) + 8.0 * ROUNDOFF * np.trace(P) * (x**2).sum(-1))

    def scores(self, arms: np.ndarray) -> np.ndarray:
        return arms @ self.theta + self.radius() * self.width(arms)

    def step(self, x: np.ndarray, reward: float, noise_scale: float | None = None) -> None:
        self.rounds += 1
        if not x.any():
            return
        a, target, rho, b = self.weigh(x, reward, noise_scale)
        self._absorb(a, rho, b)
        self.moment = self.moment + a * target

    def weigh(self, x: np.ndarray, reward: float, noise_scale: float | None, least: float = 0.0) -> tuple:
        """Return x / sigma, what it is to predict, rho and b of a round that is counted already; nu is at least ``least`` B."""
        nu = self.noise_scale if noise_scale is None else noise_scale
        mean, w = float(x @ self.theta), self.radius() * float(self.width(x))
        B = self.S * float(np.linalg.norm(x))
        z = float(np.clip((max(mean - w, -B) + min(mean + w, B)) / 2.0, -B, B))
        c = min(w, B)

        if self.noise == "symmetric":
            sigma, psi, b = 1.0, reward - z, 0.0
            rho = (abs(psi) + c) ** 2
        else:
            sigma, tau, v, b = self._clip_level(x, max(nu, least * B), B, c)
            psi = float(np.clip((reward - z) / sigma, -tau, tau))
            rho = psi**2 / 3.0 + 2.0 * v / 3.0
        return x / sigma, psi + z / sigma, rho, b

    def _clip_level(self, x: np.ndarray, nu: float, B: float, c: float) -> tuple[float, float, float, float]:
        """sigma, tau, and the bounds v and b of what is left when it is clipped."""
        t = self.rounds
        nu = max(nu, math.sqrt(45.0 * ROUNDOFF) * B * math.sqrt(t))
        q = math.sqrt(x @ np.linalg.solve(self.V, x))
        sigma = self._scale(nu, q, c, t)
        k, c = nu / sigma, c / sigma
        m = self.tau0 * min(sigma / q, self.K * math.sqrt(t))
        tau = m + c
        if self.eps == 1.0:
            v, b = k**2 + c**2, k**2 / (2.0 * (m + math.sqrt(m**2 + k**2)))
        else:
            v = (m + 2.0 * c) ** (1.0 - self.eps) * k**self.order + c**2
            b = min(self.C * k**self.order / m**self.eps, k / 2.0)
        return sigma, tau, min(v, tau**2), b

    def _absorb(self, a: np.ndarray, rho: float, b: float) -> None:
        """The matrices, and the bias, which is measured in the A from before."""
        qA = float(a @ np.linalg.solve(self.A, a))
        if b <= rho * self.bias * math.sqrt(qA):
            self.bias = math.sqrt(self.bias**2 + b**2 / rho) if b else self.bias
        else:
            self.bias = (self.bias + b * math.sqrt(qA)) / math.sqrt(1.0 + rho * qA)
        self.V = self.V + np.outer(a, a)
        self.A = self.A + rho * np.outer(a, a)

    def _scale(self, nu: float, q: float, c: float, t: int) -> float:
        if self.eps == 1.0:
            return math.sqrt(nu**2 + c**2)
        eps, p, tau0, K, moment = self.eps, self.order, self.tau0, self.K, nu**self.order
        s1 = (moment * (tau0 / q) ** (1.0 - eps)) ** (1.0 / eps)
        s2 = nu**2 * (tau0 * K * math.sqrt(t)) ** (2.0 * (1.0 - eps) / p)
        s3 = moment * (2.0 * c) ** (1.0 - eps)
        s = max(min(s1, s2), s3, c**2)
        reach = tau0 * min(s / q, math.sqrt(s) * K * math.sqrt(t))
        return math.sqrt(moment * (reach + 2.0 * c) ** (1.0 - eps) + c**2)
