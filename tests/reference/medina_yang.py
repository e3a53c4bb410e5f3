"""CRT and MoM: ridge regression on truncated rewards, and on medians of means."""

import math

import numpy as np

from tests.reference.constants import Optimist, absolute_moment


class CRTReference(Optimist):
    """Sums of squares and products, solved anew."""

    def __init__(
        self,
        dim: int,
        *,
        moment_order: float = 2.0,
        noise_scale: float = 0.5,
        theta_bound: float = 1.0,
        feature_bound: float = 1.0,
        ridge: float = 1.0,
        delta: float = 0.01,
        truncation: float = 1.0,
        radius_factor: float = 2.0,
        radius_scale: float = 1.0,
    ) -> None:
        self.p, self.g, self.c, self.scale, self.delta = moment_order, truncation, radius_factor, radius_scale, delta
        self.u = absolute_moment(moment_order, noise_scale, theta_bound, feature_bound)
        self.start, self.ridge, self.rounds = math.sqrt(ridge) * theta_bound, ridge, 0
        self.V, self.moment, self.theta = ridge * np.eye(dim), np.zeros(dim), np.zeros(dim)

    def alpha(self) -> float:
        return self.g * self.rounds ** (1.0 / (2.0 * self.p))

    def radius(self) -> float:
        if self.rounds == 0:
            return self.scale * self.start
        logdet = float(np.linalg.slogdet(self.V / self.ridge)[1])
        chance = self.c * math.sqrt(2.0 * self.alpha() ** 2 * (0.5 * logdet + math.log(1.0 / self.delta)))
        bias = self.u / self.g ** (self.p - 1.0) * math.sqrt(self.p * self.rounds ** (1.0 / self.p))
        return self.scale * (chance + bias + self.start)

    def step(self, x: np.ndarray, reward: float, noise_scale: float | None = None) -> None:
        self.rounds += 1
        self.V = self.V + np.outer(x, x)
        self.moment = self.moment + x * (0.0 if abs(reward) > self.alpha() else reward)
        self.theta = np.linalg.solve(self.V, self.moment)


class MoMReference(Optimist):
    """Takes an epoch when its rewards are in; another arm drops what has come."""

    def __init__(
        self,
        dim: int,
        *,
        horizon: int,
        repeats: int,
        groups: int,
        moment_order: float = 2.0,
        noise_scale: float = 0.5,
        theta_bound: float = 1.0,
        ridge: float | None = None,
        delta: float = 0.01,
        radius_scale: float = 1.0,
    ) -> None:
        self.repeats, self.groups, self.size, self.scale = repeats, groups, repeats // groups, radius_scale
        self.ridge = float(dim) if ridge is None else ridge
        eps = moment_order - 1.0
        self.eta = (12.0 * noise_scale**moment_order / self.size**eps) ** (1.0 / moment_order)
        self.log = math.log(math.ceil(horizon / repeats) / delta)
        self.start = math.sqrt(self.ridge) * theta_bound
        self.V, self.moment, self.theta = self.ridge * np.eye(dim), np.zeros(dim), np.zeros(dim)
        self.arm, self.rewards, self.epochs = np.zeros(dim), [], 0

    def radius(self) -> float:
        if self.epochs == 0:
            return self.scale * self.start
        logdet = float(np.linalg.slogdet(self.V / self.ridge)[1])
        return self.scale * (self.eta * (math.sqrt(2.0 * self.log + logdet) + math.sqrt(self.epochs)) + self.start)

    def step(self, x: np.ndarray, reward: float, noise_scale: float | None = None) -> None:
        if (x != self.arm).any():
            self.rewards = []
        self.arm = x
        self.rewards.append(reward)
        if len(self.rewards) < self.repeats:
            return
        means = [np.mean(self.rewards[i * self.size : (i + 1) * self.size]) for i in range(self.groups)]
        self.rewards = []
        self.epochs += 1
        self.V = self.V + np.outer(x, x)
        self.moment = self.moment + x * np.median(means)
        self.theta = np.linalg.solve(self.V, self.moment)
