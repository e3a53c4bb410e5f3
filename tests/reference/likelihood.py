"""Generalized linear bandits that keep all rounds, by scipy's solvers of general convex programs."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize, minimize_scalar, root
from scipy.special import expit
from scipy.stats import chi2


@dataclass
class Family:
    """The log-partition of a family, and its first two derivatives."""

    partition: Callable
    mean: Callable
    slope: Callable


LOGISTIC = Family(lambda z: np.logaddexp(0.0, z), expit, lambda z: expit(z) * expit(-z))
POISSON = Family(np.exp, np.exp, np.exp)


@dataclass
class History:
    """The loss of rounds that are kept in lists."""

    family: Family
    dim: int
    ridge: float = 0.0

    def __post_init__(self) -> None:
        self.x, self.r, self.w = np.zeros((0, self.dim)), np.zeros(0), np.zeros(0)

    def add(self, x: np.ndarray, r: float, w: float) -> None:
        self.x, self.r, self.w = np.vstack([self.x, x]), np.append(self.r, r), np.append(self.w, w)

    def loss(self, theta: np.ndarray) -> float:
        z = self.x @ theta
        return float(self.w @ (self.family.partition(z) - self.r * z)) + 0.5 * self.ridge * float(theta @ theta)

    def gradient(self, theta: np.ndarray) -> np.ndarray:
        return self.x.T @ (self.w * (self.family.mean(self.x @ theta) - self.r)) + self.ridge * theta

    def hessian(self, theta: np.ndarray) -> np.ndarray:
        return self.gram(self.w * self.family.slope(self.x @ theta)) + self.ridge * np.eye(self.dim)

    def gram(self, weights: np.ndarray) -> np.ndarray:
        return np.einsum("n,ni,nj->ij", weights, self.x, self.x)

    def minimum(self, bound: float) -> np.ndarray:
        """Over a ball: sequential quadratic programming, then the equations of Karush, Kuhn and Tucker from there."""
        ball = {"type": "ineq", "fun": lambda u: 1.0 - u @ u / bound**2, "jac": lambda u: -2.0 * u / bound**2}
        found = minimize(
            self.loss,
            np.zeros(self.dim),
            jac=self.gradient,
            method="SLSQP",
            constraints=[ball] if math.isfinite(bound) else [],
            options={"ftol": 1e-15, "maxiter": 1000},
        ).x
        if np.linalg.norm(found) < bound * (1.0 - 1e-6):
            return root(self.gradient, found, jac=self.hessian, tol=1e-13).x

        def conditions(point: np.ndarray) -> np.ndarray:
            theta, multiplier = point[:-1], point[-1]
            return np.append(self.gradient(theta) + multiplier * theta, theta @ theta - bound**2)

        start = np.append(found, -(self.gradient(found) @ found) / (found @ found))
        return root(conditions, start, tol=1e-13).x[:-1]

    def furthest(self, x: np.ndarray, level: float, bound: float, centre: np.ndarray) -> float:
        """The largest x'theta in the ball and at a loss of at most ``level`` more than at ``centre``."""
        least = self.loss(centre)
        constraints = [
            {
                "type": "ineq",
                "fun": lambda u: 1.0 - (self.loss(u) - least) / level,
                "jac": lambda u: -self.gradient(u) / level,
            },
            {"type": "ineq", "fun": lambda u: 1.0 - u @ u / bound**2, "jac": lambda u: -2.0 * u / bound**2},
        ]
        found = minimize(
            lambda u: -(x @ u) / bound,
            0.9 * centre,
            jac=lambda u: -x / bound,
            method="SLSQP",
            constraints=constraints,
            options={"ftol": 1e-14, "maxiter": 1000},
        )
        return float(x @ found.x)


def width(x: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """Norms in the inverse of a matrix."""
    return np.sqrt(np.einsum("...i,ij,...j->...", x, np.linalg.inv(matrix), x))


def glm_ucb(history: History, S: float, L: float, ridge: float, delta: float, scale: float) -> tuple:
    """The estimate, the matrix and the radius; ``scale`` is the sub-Gaussian one of a reward."""
    least = min(history.family.slope(S * L), history.family.slope(-S * L))
    history.ridge = least * ridge
    V = ridge * np.eye(history.dim) + history.gram(history.w)
    grown = np.linalg.slogdet(V)[1] - history.dim * math.log(ridge)
    return (
        history.minimum(S),
        V,
        scale / least * math.sqrt(2.0 * math.log(1.0 / delta) + grown) + math.sqrt(ridge) * S,
    )


def growing(history: History) -> float:
    """The ridge d log(1 + t) that round t + 1 finds, after t rounds: d log(2 + t)."""
    return history.dim * math.log(2 + len(history.r))


def ofuglb(history: History, S: float, delta: float) -> tuple[np.ndarray, float]:
    """The estimate, and what the loss may be above its own; the best c is looked for."""
    history.ridge = 0.0
    ends = S * np.linalg.norm(history.x, axis=1)
    most = np.maximum(abs(history.family.mean(ends) - history.r), abs(history.family.mean(-ends) - history.r))
    lipschitz = float((history.w * np.linalg.norm(history.x, axis=1) * most).sum())

    def price(log_c: float) -> float:
        return -history.dim * log_c + 2.0 * S * lipschitz * math.exp(log_c)

    inner = minimize_scalar(price, bounds=(-60.0, 0.0), method="bounded", options={"xatol": 1e-10})
    return history.minimum(S), math.log(1.0 / delta) + min(price(0.0), float(inner.fun))


def ofulog_r(history: History, S: float, L: float, delta: float, ridge: float | None) -> tuple[np.ndarray, float]:
    """The estimate, and what the loss may be above its own; each of the two minima in it is looked for."""
    d = history.dim
    lam = history.ridge = d * math.log(2.0 + len(history.r)) if ridge is None else ridge
    theta = history.minimum(math.inf)
    steepest = lam * np.eye(d) + 0.25 * history.gram(history.w)
    iota = math.log(1.0 / delta) + 0.5 * (np.linalg.slogdet(steepest)[1] - d * math.log(lam))
    iota += math.log(chi2(d).cdf(2.0 * lam / L**2) / chi2(d).cdf(0.5 * lam / L**2))
    betas = np.geomspace(1e-6, math.sqrt(lam) / (2.0 * L), 200_001)
    gamma = math.sqrt(lam) * S + float((betas + iota / betas).min())
    b = 0.0
    for _ in range(500):  # to the one root above 0, from below
        b = gamma * math.sqrt(1.0 + min(L * b / math.sqrt(lam), L * (S + float(np.linalg.norm(theta)))))
    return theta, b * b


def ofulog_r_of_program(history: History, S: float, L: float, delta: float) -> tuple[np.ndarray, float]:
    """The authors' program, which has L = 1: its features are x / L and its parameter is L theta."""
    d, scaled = history.dim, History(history.family, history.dim, growing(history) / L**2)
    scaled.x, scaled.r, scaled.w = history.x / L, history.r, history.w
    theta, lam, S = scaled.minimum(math.inf), scaled.ridge, S * L
    half = 0.5 * np.linalg.slogdet(scaled.hessian(theta))[1]
    ratio = math.log(chi2(d).cdf(2 * lam) / chi2(d).cdf(lam))
    gamma_1 = math.sqrt(lam) * (0.5 + S) + 2 / math.sqrt(lam) * (
        math.log(1 / delta) + half - 0.5 * d * math.log(lam) + ratio
    )
    gamma_2 = math.sqrt(lam) * S + math.log(1 / delta) + ratio + half - 0.5 * d * math.log(lam)
    gamma = min(gamma_1, gamma_2)
    return theta / L, (gamma + gamma**2 / lam) ** 2


class RSGLinCBReference:
    """The paper's rounds in the paper's order: which arm, then the reward; what is due is fitted before the choice."""

    def __init__(
        self, family: Family, dim: int, horizon: int, S: float, L: float, delta: float, warm: float, factor: float
    ) -> None:
        ell = dim * math.log(horizon / delta)
        self.S, self.ridge = S, ell * L**2
        kappa = 1.0 / min(family.slope(S * L), family.slope(-S * L))
        gamma = warm * S * L * math.sqrt(ell)
        self.threshold, self.spread, self.radius = 1.0 / (gamma**2 * kappa), gamma * kappa**0.5, factor * ell**0.5
        self.warm, self.rest = History(family, dim, self.ridge), History(family, dim, self.ridge)
        self.V = self.H = self.H_tau = self.ridge * np.eye(dim)
        self.theta_o = self.theta = np.zeros(dim)
        self.kinds: list[str] = []

    def choose(self, arms: np.ndarray) -> int:
        uncertainty = width(arms, self.V)
        if uncertainty.max() ** 2 >= self.threshold:
            self.kinds.append("warm-up")
            return int(uncertainty.argmax())
        kind = "play"
        if np.linalg.det(self.H) > 2.0 * np.linalg.det(self.H_tau):
            self.H_tau = self.H
            self.theta = self.rest.minimum(self.S)
            kind = "fit"
        self.kinds.append(kind)
        upper, lower = (arms @ self.theta_o + sign * self.spread * uncertainty for sign in (1.0, -1.0))
        left = np.flatnonzero(upper >= lower.max())
        self.ruled_out = len(arms) - len(left)
        return int(left[(arms[left] @ self.theta + self.radius * width(arms[left], self.H_tau)).argmax()])

    def learn(self, x: np.ndarray, r: float, w: float) -> None:
        if self.kinds[-1] == "warm-up":
            self.warm.add(x, r, w)
            self.V = self.V + w * np.outer(x, x)
            self.theta_o = self.warm.minimum(self.S)
        else:
            self.rest.add(x, r, w)
            self.H = self.H + w * self.rest.family.slope(x @ self.theta_o) / math.e * np.outer(x, x)


class RSGLinCBProgram:
    """The program of the paper's experiments for R = L = 1, but for a matrix H that has no second name; with dispersions."""

    def __init__(self, family: Family, dim: int, horizon: int, S: float, delta: float) -> None:
        ell = dim * math.log(horizon / delta)
        self.S, self.ridge = S, 0.5
        self.kappa = 1.0 / min(family.slope(S), family.slope(-S))
        self.gamma, self.beta = S * math.sqrt(ell), 4.0 * math.sqrt(ell)
        self.threshold = 1.0 / (0.01 * self.kappa * S**2 * dim)
        self.warm, self.all = History(family, dim, 0.5), History(family, dim, 0.5)
        self.V, self.H, self.H_tau = 0.5 * np.eye(dim), 0.5 * np.eye(dim), 0.0 * np.eye(dim)
        self.theta_o = self.theta = np.zeros(dim)
        self.kinds: list[str] = []

    def choose(self, arms: np.ndarray) -> int:
        uncertainty = width(arms, self.V)
        if uncertainty.max() ** 2 > self.threshold:
            self.kinds.append("warm-up")
            return int(uncertainty.argmax())
        kind = "play"
        if np.linalg.det(self.H) >= 1.5 * np.linalg.det(self.H_tau):
            self.H_tau, self.theta, kind = self.H, self.all.minimum(self.S), "fit"
        self.kinds.append(kind)
        spread = self.gamma * math.sqrt(self.kappa) * uncertainty
        upper, lower = arms @ self.theta_o + spread, arms @ self.theta_o - spread
        left = np.flatnonzero(upper >= lower.max())
        self.ruled_out = len(arms) - len(left)
        index = arms[left] @ ((self.theta_o + self.theta) / 2) + self.beta * width(arms[left], self.H_tau)
        return int(left[index.argmax()])

    def learn(self, x: np.ndarray, r: float, w: float) -> None:
        self.all.add(x, r, w)
        if self.kinds[-1] == "warm-up":
            self.warm.add(x, r, w)
            self.V = self.V + w * np.outer(x, x)
            self.theta_o = self.warm.minimum(self.S)
        else:
            self.H = self.H + w * self.all.family.slope(x @ self.theta_o) * np.outer(x, x)
