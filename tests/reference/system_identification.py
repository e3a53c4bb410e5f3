"""Several outputs on shared matrices, each in units of its own noise scale, solved densely in each round."""

import math

import numpy as np

ROUNDOFF = float(np.finfo(np.float64).eps)


class SystemIdentificationReference:
    """Output i is kept as y_i / nu_i, with noise of norm 1 and a parameter of norm at most S_i / nu_i."""

    def __init__(
        self,
        dim: int,
        outputs: int,
        *,
        moment_order: float = 2.0,
        noise_scale: float | tuple[float, ...] = 1.0,
        theta_bound: float | tuple[float, ...] = 1.0,
        ridge: float | None = None,
        delta: float = 0.01,
        radius_scale: float = 1.0,
    ) -> None:
        self.nu = np.broadcast_to(np.asarray(noise_scale, float), (outputs,))
        self.S = np.broadcast_to(np.asarray(theta_bound, float), (outputs,)) / self.nu
        self.p, self.eps = moment_order, moment_order - 1.0
        self.C = self.eps**self.eps / (1.0 + self.eps) ** (1.0 + self.eps)
        self.K = 3.0
        self.tau0 = 3.0 if self.eps == 1.0 else min(3.0, 1.75 * self.C * self.eps / (1.0 - self.eps))
        self.lam = dim / self.S.max() ** 2 if ridge is None else ridge
        self.delta, self.radius_scale, self.outputs = delta, radius_scale, outputs
        self.V = self.lam * np.eye(dim)
        self.A = self.lam * np.eye(dim)
        self.moment = np.zeros((dim, outputs))
        self.bias = 0.0
        self.rounds = 0

    @property
    def scaled_theta(self) -> np.ndarray:
        return np.linalg.solve(self.V, self.moment)

    @property
    def theta(self) -> np.ndarray:
        return self.scaled_theta * self.nu

    @property
    def P(self) -> np.ndarray:
        inverse = np.linalg.inv(self.V)
        return inverse @ self.A @ inverse

    def scaled_radius(self) -> np.ndarray:
        logdet = np.linalg.slogdet(self.A / self.lam)[1]
        root = np.sqrt(2.0 * math.log(self.outputs / self.delta) + logdet + self.lam * self.S**2)
        return self.radius_scale * (root + self.bias)

    def radius(self) -> np.ndarray:
        return self.nu * self.scaled_radius()

    def width(self, x: np.ndarray) -> np.ndarray:
        P = self.P
        square = np.einsum("...i,ij,...j->...", x, P, x)
        return np.sqrt(np.maximum(square, 0.0) + 8.0 * ROUNDOFF * np.trace(P) * (x**2).sum(-1))

    def interval(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        mean, error = x @ self.theta, self.radius() * self.width(x)[..., None]
        bound = self.nu * self.S * np.linalg.norm(x, axis=-1)[..., None]
        return np.maximum(mean - error, -bound), np.minimum(mean + error, bound)

    def step(self, x: np.ndarray, next_state: np.ndarray, noise_scale: np.ndarray | None = None) -> None:
        y = next_state / self.nu
        nu = 1.0 if noise_scale is None else float((noise_scale / self.nu).max())
        t = self.rounds + 1
        self.rounds = t
        if not x.any():
            return
        mean, w = x @ self.scaled_theta, self.scaled_radius() * float(self.width(x))
        B = self.S * float(np.linalg.norm(x))
        z = np.clip((np.maximum(mean - w, -B) + np.minimum(mean + w, B)) / 2.0, -B, B)
        c = float(np.minimum(w, B).max())
        nu = max(nu, math.sqrt(45.0 * ROUNDOFF) * float(B.max()) * math.sqrt(t))
        q = math.sqrt(x @ np.linalg.solve(self.V, x))
        eps, tau0, K = self.eps, self.tau0, self.K
        if eps == 1.0:
            sigma = math.sqrt(nu**2 + c**2)
        else:
            s1 = (nu**self.p * (tau0 / q) ** (1.0 - eps)) ** (1.0 / eps)
            s2 = nu**2 * (tau0 * K * math.sqrt(t)) ** (2.0 * (1.0 - eps) / self.p)
            s = max(min(s1, s2), nu**self.p * (2.0 * c) ** (1.0 - eps), c**2)
            reach = tau0 * min(s / q, math.sqrt(s) * K * math.sqrt(t))
            sigma = math.sqrt(nu**self.p * (reach + 2.0 * c) ** (1.0 - eps) + c**2)
        k, c = nu / sigma, c / sigma
        m = tau0 * min(sigma / q, K * math.sqrt(t))
        tau = m + c
        if eps == 1.0:
            v, b = k**2 + c**2, k**2 / (2.0 * (m + math.sqrt(m**2 + k**2)))
        else:
            v = (m + 2.0 * c) ** (1.0 - eps) * k**self.p + c**2
            b = min(self.C * k**self.p / m**eps, k / 2.0)
        psi = np.clip((y - z) / sigma, -tau, tau)
        rho = max(each**2 / 3.0 + 2.0 * min(v, tau**2) / 3.0 for each in psi)
        a = x / sigma
        qA = float(a @ np.linalg.solve(self.A, a))
        if b <= rho * self.bias * math.sqrt(qA):
            self.bias = math.sqrt(self.bias**2 + b**2 / rho) if b else self.bias
        else:
            self.bias = (self.bias + b * math.sqrt(qA)) / math.sqrt(1.0 + rho * qA)
        self.V = self.V + np.outer(a, a)
        self.A = self.A + rho * np.outer(a, a)
        self.moment = self.moment + np.outer(a, psi + z / sigma)
