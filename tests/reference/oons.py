"""Optimistic online Newton steps, in plain matrices, and the explicit bound on their regret."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.reference.ball import multiplier

# kappa of the correction, cap of the rate, look ahead of the curvature, and the ridge.
PRESETS = {
    "default": (9.0, 18.0, 2.25, "adaptive"),
    "paper": (32.0, 64.0, 4.0, "paper"),
    "scaled": (32.0, 64.0, 4.0, "scaled"),
    "tight": (9.0, 18.0, 2.25, "scaled"),
}
# Of z in the first round, the unit of length, and the energy of the rounds before.
RIDGES: dict[str, Callable[[float, float, float], float]] = {
    "adaptive": lambda z, length, energy: math.sqrt(z**2 + energy) / length,
    "paper": lambda z, length, energy: 4.0 * z**2,
    "scaled": lambda z, length, energy: z / length,
}


def shrunk(vector: np.ndarray, length: float) -> np.ndarray:
    """The vector itself, or the one of that length in its direction."""
    norm = float(np.linalg.norm(vector))
    return vector if norm <= length else vector * (length / norm)


def project(A: np.ndarray, y: np.ndarray, radius: float) -> np.ndarray:
    """The x with ``||x|| <= radius`` that minimises ``(x - y)' A (x - y)``: a root of the secular equation."""
    if np.linalg.norm(y) <= radius:
        return y
    a, Q = np.linalg.eigh(A)
    turned = Q.T @ y

    def moved(mu: float) -> np.ndarray:
        return a / (a + mu) * turned

    low, high = (value * (float(np.linalg.norm(y)) / radius - 1.0) for value in (a[0], a[-1]))
    mu = multiplier(lambda mu: float(np.linalg.norm(moved(mu))), radius, 0.5 * low, 2.0 * high)
    return Q @ moved(mu)


class OONSReference:
    """One learner: :meth:`play` with a hint, then :meth:`learn` from the gradient.

    ``form="frozen"`` keeps the multiple of the identity at its running maximum, rounded up to a power of two times the first.
    With a domain, ``onto`` projects onto it, in the norm of a matrix, and ``begin`` is where the learner begins.
    """

    def __init__(
        self,
        dim: int,
        *,
        z: float,
        radius: float = math.inf,
        length: float | None = None,
        preset: str = "default",
        form: str = "eigen",
        guard: bool = True,
        onto: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None,
        begin: np.ndarray | None = None,
    ) -> None:
        self.onto, self.begin = onto, np.zeros(dim) if begin is None else begin
        self.kappa, self.cap, self.look, self.ridge = PRESETS[preset]
        # Whether an error longer than z is cut to it.
        self.guard = guard
        self.radius, self.form, self.clipped = radius, form, 0
        # The unit of length: of the rate's second term and of the ridge. Without a ball, decisions reach further and further.
        self.length = self.reach = radius if length is None else length
        self.restart(dim, z)

    def restart(self, dim: int, z: float) -> None:
        self.z = self.first = z
        self.centre, self.M, self.energy = self.begin, np.zeros((dim, dim)), 0.0
        self.start, self.doublings = 0.0, 0

    def play(self, hint: np.ndarray) -> np.ndarray:
        ridge = RIDGES[self.ridge](self.first, self.length, self.energy)
        if math.isinf(self.radius):
            self.reach = max(self.reach, float(np.linalg.norm(self.centre) + np.linalg.norm(hint) / ridge))
        else:
            self.reach = self.radius
        capped = 1.0 / (self.cap * self.reach * self.z)
        self.eta = min(capped, 1.0 / (self.length * math.sqrt(self.energy))) if self.energy > 0.0 else capped
        multiple = self.held(ridge + self.look * self.eta * self.z**2)
        self.hint, self.A = hint, multiple * np.eye(len(hint)) + self.M
        self.x = self.argmin(hint)
        return self.x

    def held(self, multiple: float) -> float:
        """The running maximum, rounded up to a power of two times the first, of which only growth beyond rounding counts."""
        if self.form == "eigen":
            return multiple
        self.start = self.start or multiple
        self.doublings = max(self.doublings, math.ceil(math.log2(multiple / self.start) - 1e-9))
        return self.start * 2.0**self.doublings

    def argmin(self, linear: np.ndarray) -> np.ndarray:
        """Of ``<x, linear> + ||x - centre||_A^2 / 2`` over the ball."""
        free = self.centre - np.linalg.solve(self.A, linear)
        return project(self.A, free, self.radius) if self.onto is None else self.onto(self.A, free)

    def learn(self, gradient: np.ndarray) -> None:
        e = shrunk(gradient - self.hint, self.z if self.guard else math.inf)
        self.clipped += bool(np.linalg.norm(gradient - self.hint) > self.z)
        v = (1.0 + self.kappa * self.eta * ((self.x - self.begin) @ e)) * e
        self.centre = self.argmin(self.hint + v)
        self.M = self.M + self.eta * np.outer(v, v)
        self.energy += float(e @ e)


def bound(
    plays: np.ndarray,
    gradients: np.ndarray,
    hints: np.ndarray,
    *,
    z: float,
    radius: float,
    preset: str,
    drift: np.ndarray | float = 0.0,
) -> tuple[np.ndarray, np.ndarray]:
    """Of the regret of n learners over T rounds ``(T, n, d)`` to u: ``a + u' C u / 2``, with a ``(n)`` and C ``(n, d, d)``.

    With the energy of the rounds before, ``delta = kappa / cap``, and the corrected errors ``v = (1 + s) e``::

        (1 + 2 delta (1 + delta) / kappa) ln det(I + sum_t eta_t v_t v_t' / rho_1) / eta_T
            + (rho_1 + look eta_1 z^2) |u|^2 / 2 + 2 R^2 (rho_T - rho_1)
            + kappa^2 / (4 (kappa - (1 + delta)^2)) sum_t eta_t <u, e_t>^2 - sum_t rho_(t-1) |x_t - x_(t-1)|^2 / 4

    ``drift`` is by how much more than the ridge a form has raised the multiple of the identity.
    """
    kappa, cap, look, ridge = PRESETS[preset]
    delta = kappa / cap
    e = gradients - hints
    squares = (e**2).sum(-1)
    energy = np.maximum(np.cumsum(squares, axis=0) - squares, 0.0)
    with np.errstate(divide="ignore"):
        eta = np.minimum(1.0 / (cap * radius * z), 1.0 / (radius * np.sqrt(energy)))
    rho = np.vectorize(RIDGES[ridge])(z, radius, energy)
    v = (1.0 + kappa * eta * (plays * e).sum(-1))[..., None] * e
    eye = np.eye(plays.shape[-1])
    corrected = np.einsum("tn,tni,tnj->nij", eta, v, v)
    errors = np.einsum("tn,tni,tnj->nij", eta, e, e)
    logdet = np.linalg.slogdet(eye + corrected / rho[0][:, None, None])[1]
    moves = (rho[:-1] * ((plays[1:] - plays[:-1]) ** 2).sum(-1)).sum(0)
    free = (1.0 + 2.0 * delta * (1.0 + delta) / kappa) * logdet / eta[-1] - moves / 4.0
    first = (rho[0] + look * eta[0] * z**2)[:, None, None] * eye
    curvature = first + kappa**2 / (2.0 * (kappa - (1.0 + delta) ** 2)) * errors
    return free + 2.0 * radius**2 * (rho[-1] - rho[0] + drift), curvature


def least_slack(
    plays: np.ndarray, gradients: np.ndarray, hints: np.ndarray, *, radius: float, **options: Any
) -> np.ndarray:
    """That bound minus the regret, ``(n)``, at the comparator of the ball where it is least."""
    free, curvature = bound(plays, gradients, hints, radius=radius, **options)
    total = gradients.sum(0)
    worst = np.stack([project(C, -np.linalg.solve(C, g), radius) for C, g in zip(curvature, total, strict=True)])
    quadratic = np.einsum("ni,nij,nj->n", worst, curvature, worst) / 2.0
    return free + quadratic + (total * worst).sum(-1) - (gradients * plays).sum((0, 2))
