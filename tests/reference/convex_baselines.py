"""The rivals of parameter-free online learning, as their papers write them: each decision from all gradients so far."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.optimize import brentq

from tests.reference.ball import multiplier
from tests.reference.msmwc import MasterReference

Decide = Callable[[list[np.ndarray], list[np.ndarray]], np.ndarray]


def trajectory(gradients: np.ndarray, decide: Decide) -> np.ndarray:
    """All decisions, the first and the one after the last gradient too: ``(T + 1, d)``."""
    decisions: list[np.ndarray] = []
    for t in range(len(gradients) + 1):
        decisions.append(decide(list(gradients[:t]), decisions))
    return np.array(decisions)


def on_ball(point: np.ndarray, radius: float) -> np.ndarray:
    length = float(np.linalg.norm(point))
    return point if length <= radius else point / length * radius


def on_ball_in_norm(point: np.ndarray, weights: np.ndarray, radius: float) -> np.ndarray:
    """The nearest point in a weighted norm, from the condition of Karush, Kuhn and Tucker; by the multiplier's logarithm."""
    if np.linalg.norm(point) <= radius:
        return point

    def moved(log: float) -> np.ndarray:
        return weights * point / (weights + math.exp(log))

    return moved(multiplier(lambda log: float(np.linalg.norm(moved(log))), radius, -80.0, 80.0))


def ogd(step_size: float = 1.0, schedule: str = "sqrt", radius_bound: float = math.inf) -> Decide:
    """Zinkevich (2003)."""

    def decide(past: list[np.ndarray], decisions: list[np.ndarray]) -> np.ndarray:
        t = len(past)
        rate = step_size / math.sqrt(t) if schedule == "sqrt" else step_size
        return on_ball(decisions[-1] - rate * past[-1], radius_bound)

    return after_the_first(decide)


def after_the_first(decide: Decide) -> Decide:
    """What begins at 0; the tests' gradients have three coordinates."""
    return lambda past, decisions: decide(past, decisions) if past else np.zeros(3)


def adagrad(step_size: float = 1.0, form: str = "norm", radius_bound: float = math.inf) -> Decide:
    """McMahan and Streeter (2010); Duchi, Hazan and Singer (2011), Figure 1, the mirror descent."""

    def decide(past: list[np.ndarray], decisions: list[np.ndarray]) -> np.ndarray:
        if form == "norm":
            size = math.sqrt(sum(float(g @ g) for g in past))
            return on_ball(decisions[-1] - (step_size * past[-1] / size if size > 0.0 else 0.0), radius_bound)
        sizes = np.sqrt(np.sum(np.square(past), axis=0))
        step = np.divide(past[-1], sizes, out=np.zeros(3), where=sizes > 0.0)
        return on_ball_in_norm(decisions[-1] - step_size * step, sizes, radius_bound)

    return after_the_first(decide)


def cut(past: list[np.ndarray], lipschitz: float) -> list[np.ndarray]:
    return [on_ball(g, lipschitz) for g in past]


def coin_betting(lipschitz: float = 1.0, length_scale: float = 1.0) -> Decide:
    """Orabona and Pal (2016), Algorithm 1, for gradients no longer than 1."""

    def decide(past: list[np.ndarray], decisions: list[np.ndarray]) -> np.ndarray:
        coins = [-g / lipschitz for g in cut(past, lipschitz)]
        won = sum(float(c @ x) for c, x in zip(coins, decisions, strict=True))
        t = len(past) + 1
        return sum(coins) / t * (length_scale + won)

    return after_the_first(decide)


def errors(past: list[np.ndarray]) -> list[float]:
    """The squared lengths of the differences of gradients, the first from 0."""
    return [float((g - m) @ (g - m)) for g, m in zip(past, [np.zeros_like(past[0]), *past[:-1]], strict=True)]


def optimistic_omd(radius_bound: float, lipschitz: float = 1.0, smoothness: float = 0.0) -> Decide:
    """Chen et al. (2024): both sequences from the start."""

    def decide(past: list[np.ndarray], decisions: list[np.ndarray]) -> np.ndarray:
        D = 2.0 * radius_bound
        delta = 10.0 * D**2 * smoothness**2
        V = np.concatenate([[0.0], np.cumsum(errors(past))])  # V[t] of the first t rounds
        eta = D / np.sqrt(delta + 4.0 * lipschitz**2 + V)
        x_prime = np.zeros(3)
        for t, g in enumerate(past):
            x_prime = on_ball(x_prime - eta[t] * g, radius_bound)
        return on_ball(x_prime - eta[len(past)] * past[-1], radius_bound)

    return after_the_first(decide)


def oftrl(radius_bound: float, lipschitz: float = 1.0, smoothness: float = 0.0, schedule: str = "recursive") -> Decide:
    """Sachs et al. (2022), equation (2) with the step sizes of Theorem 5, or with the least of two."""

    def decide(past: list[np.ndarray], decisions: list[np.ndarray]) -> np.ndarray:
        nu = 2.0 * lipschitz * radius_bound + smoothness * radius_bound**2
        spent, eta = 0.0, radius_bound**2 / nu
        for error in errors(past):
            spent += eta * error
            eta = radius_bound**2 / (nu + spent)
        if schedule == "minimum":
            root = math.sqrt(sum(errors(past)))
            eta = min(radius_bound**2 / nu, radius_bound / root if root > 0.0 else math.inf)
        # The stationary point of <linear, x> + |x|^2 / eta; all directions weigh the same, so the ball's is below it.
        return on_ball(-eta / 2.0 * (sum(past) + past[-1]), radius_bound)

    return after_the_first(decide)


def slope(r: float, V: float, alpha: float, Z: float) -> float:
    """The derivative of psi of Jacobsen and Cutkosky (2022), with its minimum over eta <= 1/Z."""
    depth = math.log1p(r / alpha)
    eta = min(math.sqrt(depth / V), 1.0 / Z)
    return 3.0 * (depth / eta + eta * V) if eta > 0.0 else 0.0


def parameter_free_mirror_descent(
    length_scale: float = 1.0, lipschitz: float = 1.0, hint: str = "last", radius_bound: float = math.inf
) -> Decide:
    """Jacobsen and Cutkosky (2022), by the equation of the minimiser: its slope is the length of the linear part."""

    def decide(past: list[np.ndarray], decisions: list[np.ndarray]) -> np.ndarray:
        past = cut(past, lipschitz)
        Z = 2.0 * lipschitz if hint == "last" else lipschitz
        V = 4.0 * Z**2 + (sum(errors(past)) if hint == "last" else sum(float(g @ g) for g in past))
        alpha = length_scale * Z / (math.sqrt(V) * math.log(V / Z**2) ** 2)
        linear = sum(past) + (past[-1] if hint == "last" else 0.0)
        length = float(np.linalg.norm(linear))
        if length == 0.0:
            return np.zeros(3)
        depth = brentq(
            lambda a: slope(alpha * math.expm1(a), V, alpha, Z) - length, 0.0, 600.0, xtol=1e-300, rtol=1e-15
        )
        return -min(alpha * math.expm1(depth), radius_bound) * linear / length

    return after_the_first(decide)


def solo_ftrl(length_scale: float = 1.0, radius_bound: float = math.inf) -> Decide:
    """Orabona and Pal (2018), with a squared norm, from the condition that the slope is 0."""

    def decide(past: list[np.ndarray], decisions: list[np.ndarray]) -> np.ndarray:
        weight = math.sqrt(sum(float(g @ g) for g in past)) / length_scale
        return on_ball(-sum(past) / weight if weight > 0.0 else np.zeros(3), radius_bound)

    return after_the_first(decide)


def dog(initial_distance: float = 1e-6, step_scale: float = 1.0) -> Decide:
    """Ivgi, Hinder and Carmon (2023)."""

    def decide(past: list[np.ndarray], decisions: list[np.ndarray]) -> np.ndarray:
        r = max([initial_distance, *(float(np.linalg.norm(x)) for x in decisions)])
        G = sum(float(g @ g) for g in past)
        return decisions[-1] - (step_scale * r / math.sqrt(G) * past[-1] if G > 0.0 else 0.0)

    return after_the_first(decide)


def dowg(initial_distance: float = 0.01, step_scale: float = 1.0) -> Decide:
    """Khaled, Mishchenko and Jin (2023)."""

    def decide(past: list[np.ndarray], decisions: list[np.ndarray]) -> np.ndarray:
        lengths = np.maximum.accumulate([initial_distance, *(float(np.linalg.norm(x)) for x in decisions)])[1:]
        V = sum(float(r**2 * (g @ g)) for r, g in zip(lengths, past, strict=True))
        return decisions[-1] - (step_scale * lengths[-1] ** 2 / math.sqrt(V) * past[-1] if V > 0.0 else 0.0)

    return after_the_first(decide)


def d_adaptation(initial_distance: float = 1e-6, step_scale: float = 1.0) -> Decide:
    """Defazio and Mishchenko (2023), for gradient descent: all estimates from the start."""

    def decide(past: list[np.ndarray], decisions: list[np.ndarray]) -> np.ndarray:
        first = next((float(np.linalg.norm(g)) for g in past if g.any()), 1.0)
        d, lost, x = initial_distance, 0.0, np.zeros(3)
        for g, before in zip(past, decisions, strict=True):
            rate = step_scale * d / first
            lost += rate * float(g @ before)
            x = before - rate * g
            d = max(d, -2.0 * lost / float(np.linalg.norm(x))) if x.any() else d
        return x

    return after_the_first(decide)


def prodigy(initial_distance: float = 1e-6, step_scale: float = 1.0) -> Decide:
    """Mishchenko and Defazio (2024), in the form of Adam: each mean as a sum over the past."""

    def decide(past: list[np.ndarray], decisions: list[np.ndarray]) -> np.ndarray:
        beta_1, beta_2, epsilon = 0.9, 0.999, 1e-8
        d = [initial_distance]
        rows, points = np.array(past), np.array(decisions)
        for t in range(1, len(past) + 1):
            decay = beta_2 ** (0.5 * np.arange(t - 1, -1, -1)) * np.square(d)
            weight = float(np.abs(decay @ rows[:t]).sum())
            won = -float(decay @ (rows[:t] * points[:t]).sum(1))
            d.append(max(d[-1], step_scale * won / weight if weight > 0.0 else 0.0))
        age, known = np.arange(len(past) - 1, -1, -1), np.array(d[:-1])
        m = (1.0 - beta_1) * (beta_1**age * known) @ rows
        v = (1.0 - beta_2) * (beta_2**age * known**2) @ rows**2
        return points[-1] - d[-2] * m / (np.sqrt(v) + d[-1] * epsilon)

    return after_the_first(decide)


def schedule_free(step_size: float = 1.0, momentum: float = 0.9) -> Decide:
    """Defazio et al. (2024): the mean of the points of gradient descent after the first."""

    def decide(past: list[np.ndarray], decisions: list[np.ndarray]) -> np.ndarray:
        return -step_size * np.cumsum(past, 0).mean(0)

    return after_the_first(decide)


class Bets:
    """Cutkosky and Orabona (2018) and Cutkosky (2019), in the units of the loss, with all that was learnt from."""

    def __init__(
        self, length_scale: float = 1.0, lipschitz: float | None = None, radius_bound: float = math.inf
    ) -> None:
        self.h, self.grows, self.length_scale, self.radius = lipschitz or 0.0, lipschitz is None, length_scale, 0.0
        self.radius = 0.0 if self.grows else radius_bound
        self.W, self.A, self.b, self.square, self.ratios = length_scale * self.h, self.h**2, 0.0, 0.0, 0.0
        self.first, self.y, self.w, self.x = self.h, np.zeros(3), np.zeros(3), np.zeros(3)
        self.radii: list[float] = []
        self.cut: list[np.ndarray] = []
        self.learnt: list[np.ndarray] = []

    def learn(self, gradient: np.ndarray) -> None:
        beta, length = (2.0 - math.log(3.0)) / 2.0, float(np.linalg.norm(gradient))
        self.radii.append(self.radius)
        if self.h == 0.0:
            self.first = self.h = length
            self.W, self.A = self.length_scale * length, length**2
        g = on_ball(gradient, self.h)
        self.cut.append(g)
        if np.linalg.norm(self.w) > self.radius:
            n = self.w / np.linalg.norm(self.w)
            g = g - min(float(g @ n), 0.0) * n
        self.learnt.append(g)
        s = float(g @ self.y)
        zeta = s / (1.0 - s * self.b)
        self.W *= 1.0 - s * self.b
        self.A += zeta**2
        self.square += float(g @ g)
        if self.grows:
            self.h = max(self.h, length)
        if self.h > 0.0:
            self.b = float(np.clip(self.b - zeta / (beta * self.A), -0.5 / self.h, 0.5 / self.h))
            self.ratios += length / self.h
        if self.square > 0.0:
            self.y = on_ball(self.y - math.sqrt(2.0 / self.square) * g, 1.0)
        if self.grows:
            self.radius = self.length_scale * math.sqrt(self.ratios)
        self.w = self.b * self.W * self.y
        self.x = on_ball(self.w, self.radius)


def scale_free_coin_betting(**options: Any) -> Decide:
    """One round more in each call."""
    bets = Bets(**options)

    def decide(past: list[np.ndarray], decisions: list[np.ndarray]) -> np.ndarray:
        if past:
            bets.learn(past[-1])
        return bets.x

    return decide


def expert_ensemble(lipschitz: float = 1.0, horizon: int = 256, length_scale: float = 1.0) -> Decide:
    """Chen, Luo and Wei (2021): the learners from the start, weighed by the reference of the master."""
    radii = [length_scale]
    while radii[-1] < length_scale * horizon:
        radii.append(2.0 * radii[-1])

    sizes, z = np.array(radii), [np.zeros(3)] * len(radii)
    master = MasterReference(lipschitz * sizes, horizon)
    rows = np.zeros((len(radii), 3))
    V, m = 0.0, np.zeros(3)

    def steps() -> list[float]:
        return [2.0 * R / math.sqrt(4.0 * lipschitz**2 + V) for R in radii]

    def decide(past: list[np.ndarray], decisions: list[np.ndarray]) -> np.ndarray:
        """One round more than before; the state is that of the rounds so far."""
        nonlocal rows, z, V, m
        if past:
            g = on_ball(past[-1], lipschitz)
            master.learn(rows @ g)
            z = [on_ball(point - eta * g, R) for point, eta, R in zip(z, steps(), radii, strict=True)]
            V, m = V + float((g - m) @ (g - m)), g
            rows = np.array([on_ball(point - eta * g, R) for point, eta, R in zip(z, steps(), radii, strict=True)])
        return master.play(rows @ m) @ rows

    return decide
