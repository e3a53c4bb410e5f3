"""One-pass generalized linear regression by online mirror descent, and GLB-OMD (Zhang, Xu, Zhao and Sugiyama, 2025)."""

import math
import warnings

import torch
from torch import Tensor
from torch.jit import is_scripting

from torchonline.arrays import along, assign_, at_least, dot, log, matvec, real, sqrt
from torchonline.bandits.generalized import MixtureEstimator, checked_link
from torchonline.bandits.policies import UCB
from torchonline.checks import one_of
from torchonline.linalg import add_diagonal, grow_, logdet, project_ball_
from torchonline.links import Link


class GLMRegression(MixtureEstimator):
    statistics_depend_on = ("eta", "theta_bound", "ridge", "delta", "noise_scale")

    def __init__(
        self,
        dim: int,
        *,
        link: Link | None = None,
        theta_bound: float = 1.0,
        feature_bound: float = 1.0,
        ridge: float | None = None,
        delta: float = 0.01,
        radius: str = "empirical",
        radius_scale: float = 1.0,
        batch_shape: tuple[int, ...] = (),
        dtype: torch.dtype = torch.float64,
        device: torch.device | str | None = None,
        validate: bool = True,
    ) -> None:
        link, bound = checked_link(link, theta_bound, feature_bound)
        super().__init__(
            dim,
            link=link,
            theta_bound=theta_bound,
            feature_bound=feature_bound,
            ridge=dim if ridge is None else ridge,
            delta=delta,
            radius_scale=radius_scale,
            batch_shape=batch_shape,
            dtype=dtype,
            device=device,
            validate=validate,
        )
        self.radius_kind = one_of("radius", radius, ("empirical", "tight", "paper"))
        if radius == "empirical":
            self.eta = link.curvature_ratio(bound)
        else:
            self.eta = 1.0 + self.concordance * bound
        self.max_weight = link.max_slope(bound) / self.noise_scale**2
        if radius != "empirical" and self.ridge < self.theory_ridge():
            warnings.warn(
                f"ridge: {self.ridge:g} is below {self.theory_ridge():.6g}, from which the theorem holds; "
                f"radius={radius!r} is a heuristic here",
                stacklevel=2,
            )
        self.start = self._squared_start(self.theta_bound)
        self.paper_start = self._squared_start(2.0 * self.theta_bound)
        self._create_buffers()

    def theory_ridge(self) -> float:
        """The least ridge for which the paper's theorem holds, with this learner's eta."""
        R, eta, L = self.concordance, self.eta, self.feature_bound
        by_weight = max(3.0 * eta * R * self.predictor_bound, 1.0) * self.max_weight
        return 2.0 * L**2 * max(7.0 * self.dim * eta * R**2, by_weight)

    def _squared_start(self, distance: float) -> float:
        return self.ridge * distance**2 - 2.0 * self.eta * math.log(self.delta)

    @torch.jit.export
    def radius(self) -> Tensor:
        if self.radius_kind == "empirical":
            return self.radius_scale * sqrt(at_least(self.squared_radius, 0.0))
        if self.radius_kind == "paper":
            rate = 2.0 * self.max_weight * self.feature_bound**2 / self.ridge
            growth = 6.0 * self.dim * self.eta**2 * log(2.0 + rate * real(self.rounds + 1, self.theta_hat))
            return self.radius_scale * sqrt(growth + self.paper_start)
        # M of Lemma 6, as a multiple of what it starts from.
        half = 0.5 * self.ridge
        information = logdet(add_diagonal(self.V, 0.0 * self.squared_radius - half) / half)
        return self.radius_scale * sqrt(6.0 * self.eta**2 * information + self.start)

    def _observe(self, x: Tensor, reward: Tensor, noise_scale: Tensor) -> None:
        theta_hat, eta = self.theta_hat, self.eta
        weight, square = 1.0 / (noise_scale * noise_scale), dot(x, x)
        if not is_scripting():
            self._check_length(square)
        product = matvec(self.V_inv, x)
        q = at_least(dot(x, product), 1e-30)
        z, bound = dot(x, theta_hat), self.theta_bound * sqrt(square)

        # Eq. (42a), with the Hessian weight at the old estimate.
        slope = eta * weight * self.link.slope(z)
        pull = eta * weight * (self.link.mean(z) - reward) / (1.0 + slope * q)
        theta = theta_hat - along(pull, x) * product
        # Eq. (42b), with the matrix of (42a) in the norm.
        project_ball_(theta, self.V, self.theta_bound, self.validate, along(sqrt(slope), x) * x)

        # What the round costs, wherever in the ball the truth is.
        y, move = dot(x, theta), theta - theta_hat
        force = matvec(self.V, move)
        rest = along(weight * (self.link.mean(y) - reward), x) * x + force / eta
        loss = self._regret_of_mixture(z, q, bound, y, reward, weight)
        slack = dot(rest, theta) + self.theta_bound * sqrt(dot(rest, rest))
        cost = 2.0 * eta * (loss + slack) - dot(move, force)
        # The Hessian weight that is kept is at the new estimate.
        gain = weight * self.link.slope(y)
        root, quadratic = sqrt(gain), gain * q
        a, a_product = along(root, x) * x, along(root, x) * product
        if not is_scripting():
            self._check_quadratic(x, quadratic)

        self._widen_(cost)
        assign_(theta_hat, theta)
        grow_(self.V, self.V_lost, self.V_inv, a, a_product, quadratic)
        if self._count_round():
            self._refine_(self.V_inv, self.V)


class GLBOMD(UCB):
    def __init__(
        self,
        dim: int,
        *,
        link: Link | None = None,
        theta_bound: float = 1.0,
        feature_bound: float = 1.0,
        ridge: float | None = None,
        delta: float = 0.01,
        radius: str = "empirical",
        radius_scale: float = 1.0,
        batch_shape: tuple[int, ...] = (),
        dtype: torch.dtype = torch.float64,
        device: torch.device | str | None = None,
        validate: bool = True,
    ) -> None:
        super().__init__(
            GLMRegression(
                dim,
                link=link,
                theta_bound=theta_bound,
                feature_bound=feature_bound,
                ridge=ridge,
                delta=delta,
                radius=radius,
                radius_scale=radius_scale,
                batch_shape=batch_shape,
                dtype=dtype,
                device=device,
                validate=validate,
            )
        )
