"""The multinomial logistic bandit, from its equations, one learner at a time."""

import functools
import itertools
import math

import numpy as np
from scipy.linalg import sqrtm
from scipy.optimize import brentq
from scipy.special import logsumexp
from scipy.stats import norm

from tests.reference.huber import project


def law(z: np.ndarray) -> np.ndarray:
    """The probabilities of all outcomes, of logits beside 0."""
    logits = np.array([0.0, *z])
    return np.exp(logits - logsumexp(logits))


def hessian(z: np.ndarray) -> np.ndarray:
    p = law(z)[1:]
    return np.diag(p) - np.outer(p, p)


@functools.cache
def nodes(K: int, count: int = 128) -> np.ndarray:
    """Normal quantiles of a lattice by the powers of the generalised golden ratio, each with its opposite."""
    g = brentq(lambda x: x ** (K + 1) - x - 1.0, 1.0, 2.0, xtol=1e-15)
    rows = [[norm.ppf((0.5 + i * g**-k) % 1.0) for k in range(1, K + 1)] for i in range(1, count // 2 + 1)]
    return np.array(rows + [[-value for value in row] for row in rows])


class MultinomialReference:
    """V inverted anew in each round, and Kronecker products written out."""

    def __init__(
        self,
        dim: int,
        revenues: tuple[float, ...],
        *,
        eta: float,
        theta_bound: float = 1.0,
        ridge: float | None = None,
        delta: float = 0.01,
    ) -> None:
        self.d, self.K, self.rho, self.S, self.eta = dim, len(revenues) - 1, np.array(revenues), theta_bound, eta
        ridge = dim if ridge is None else ridge
        self.V, self.theta = ridge * np.eye(self.K * dim), np.zeros(self.K * dim)
        self.square = ridge * theta_bound**2 + 2 * eta * math.log(1 / delta)
        self.active = 0

    def rows(self, x: np.ndarray) -> np.ndarray:
        """I (x) x', which maps the flat parameter to logits."""
        return np.kron(np.eye(self.K), x[None])

    def step(self, x: np.ndarray, outcome: int) -> None:
        rows, seen = self.rows(x), np.eye(self.K + 1)[outcome][1:]
        z, G = rows @ self.theta, rows @ np.linalg.inv(self.V) @ rows.T
        gradient = rows.T @ (law(z)[1:] - seen)
        wide = self.V + self.eta * np.kron(hessian(z), np.outer(x, x))
        moved = self.theta - self.eta * np.linalg.solve(wide, gradient)
        self.active += bool(np.linalg.norm(moved) > self.S)
        new = project(moved, wide, self.S)
        y = rows @ new

        def loss(at: np.ndarray) -> float:
            return float(-np.log(law(at)[outcome]))

        prior, bound = [], self.S * np.linalg.norm(x)
        root = np.real(sqrtm(G)) if x.any() else np.zeros_like(G)
        for node in nodes(self.K) @ root:
            point = z + node
            prior.append(point * min(1.0, bound / max(float(np.linalg.norm(point)), 1e-300)))
        mixture = -math.log(np.mean([math.exp(-loss(point)) for point in prior]))
        change = new - self.theta
        v = rows.T @ (law(y)[1:] - seen) + self.V @ change / self.eta
        self.square += (
            2 * self.eta * (mixture - loss(y) + v @ new + self.S * np.linalg.norm(v)) - change @ self.V @ change
        )
        self.V = self.V + np.kron(hessian(y), np.outer(x, x))
        self.theta = new

    def bounds(self, x: np.ndarray) -> tuple[float, float]:
        """The bounds of the expected revenue, the box's from all of its corners."""
        rows, radius = self.rows(x), math.sqrt(max(self.square, 0.0))
        z, G = rows @ self.theta, rows @ np.linalg.inv(self.V) @ rows.T
        slope = hessian(z) @ (self.rho[1:] - self.rho[0])
        points = [np.zeros(self.K), *np.eye(self.K)]
        spread = max((a - b) @ G @ (a - b) for a, b in itertools.combinations(points, 2))
        bonus = radius * math.sqrt(slope @ G @ slope) + radius**2 * np.ptp(self.rho) * spread / 8
        error = radius * np.sqrt(np.diag(G))
        corners = [law(z + np.array(signs) * error) @ self.rho for signs in itertools.product((-1, 1), repeat=self.K)]
        mean = law(z) @ self.rho
        return max(mean - bonus, min(corners)), min(mean + bonus, max(corners))
