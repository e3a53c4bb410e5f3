"""Several outputs on shared matrices, each in units of its own noise scale, solved densely in each round."""

import math

import numpy as np

from tests.reference.heavy_tail import HeavyTailReference


class SystemIdentificationReference(HeavyTailReference):
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
        bounds = np.broadcast_to(np.asarray(theta_bound, float), (outputs,)) / self.nu
        super().__init__(
            dim,
            moment_order=moment_order,
            theta_bound=bounds.max(),
            ridge=ridge,
            delta=delta / outputs,
            radius_scale=radius_scale,
        )
        self.S = bounds
        self.moment = np.zeros((dim, outputs))

    @property
    def scaled_theta(self) -> np.ndarray:
        return np.linalg.solve(self.V, self.moment)

    @property
    def theta(self) -> np.ndarray:
        return self.scaled_theta * self.nu

    def scaled_radius(self) -> np.ndarray:
        root = np.sqrt(2.0 * math.log(1.0 / self.delta) + self.logdet + self.lam * self.S**2)
        return self.radius_scale * (root + self.bias)

    def radius(self) -> np.ndarray:
        return self.nu * self.scaled_radius()

    def interval(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        mean, error = x @ self.theta, self.radius() * self.width(x)[..., None]
        bound = self.nu * self.S * np.linalg.norm(x, axis=-1)[..., None]
        return np.maximum(mean - error, -bound), np.minimum(mean + error, bound)

    def step(self, x: np.ndarray, next_state: np.ndarray, noise_scale: np.ndarray | None = None) -> None:
        self.rounds += 1
        if not x.any():
            return
        a, target, rho, b = self.weigh(x, next_state, noise_scale)
        self._absorb(a, rho, b)
        self.moment = self.moment + np.outer(a, target)

    def weigh(self, x: np.ndarray, next_state: np.ndarray, noise_scale: np.ndarray | None, least: float = 0.0) -> tuple:
        """As in one output, with the largest of the outputs' numbers where one counts for all."""
        y = next_state / self.nu
        nu = 1.0 if noise_scale is None else float((noise_scale / self.nu).max())
        mean, w = x @ self.scaled_theta, self.scaled_radius() * float(self.width(x))
        B = self.S * float(np.linalg.norm(x))
        z = np.clip((np.maximum(mean - w, -B) + np.minimum(mean + w, B)) / 2.0, -B, B)
        most, c = float(B.max()), float(np.minimum(w, B).max())
        sigma, tau, v, b = self._clip_level(x, max(nu, least * most), most, c)
        psi = np.clip((y - z) / sigma, -tau, tau)
        return x / sigma, psi + z / sigma, max(each**2 / 3.0 + 2.0 * v / 3.0 for each in psi), b
