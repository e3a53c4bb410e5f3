"""The rivals of parameter-free online learning, as their papers write them: each decision from all gradients so far."""

import math
from collections.abc import Callable

import numpy as np
from scipy.optimize import brentq

from tests.reference.ball import multiplier

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


def oftrl(radius_bound: float, lipschitz: float = 1.0, smoothness: float = 0.0) -> Decide:
    """Sachs et al. (2022), equation (2) with the step sizes of Theorem 5."""

    def decide(past: list[np.ndarray], decisions: list[np.ndarray]) -> np.ndarray:
        nu = 2.0 * lipschitz * radius_bound + smoothness * radius_bound**2
        spent, eta = 0.0, radius_bound**2 / nu
        for error in errors(past):
            spent += eta * error
            eta = radius_bound**2 / (nu + spent)
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
