"""Hvt-UCB: Huber regression by one-pass online mirror descent (Wang, Zhang, Zhao and Zhou, ICML 2025)."""

import math

import torch
from torch import Tensor

from torchonline.arrays import along, at_least, clip, dot, matvec, maximum, real, sqrt
from torchonline.bandits.estimator import Estimator
from torchonline.bandits.policies import UCB
from torchonline.learner import non_negative, one_of, positive, positive_integer, within
from torchonline.linalg import grow_, project_ball_


class HuberRegression(Estimator):
    statistics_depend_on = (
        "horizon",
        "moment_order",
        "theta_bound",
        "feature_bound",
        "ridge",
        "delta",
        "alpha",
        "minimum_scale",
        "radius_scale",
    )

    def __init__(
        self,
        dim: int,
        *,
        horizon: int,
        moment_order: float = 2.0,
        noise_scale: float = 1.0,
        theta_bound: float = 1.0,
        feature_bound: float = 1.0,
        ridge: float | None = None,
        delta: float | None = None,
        alpha: float = 4.0,
        minimum_scale: float | None = None,
        radius: str = "paper",
        radius_scale: float = 1.0,
        batch_shape: tuple[int, ...] = (),
        dtype: torch.dtype = torch.float64,
        device: torch.device | str | None = None,
        validate: bool = True,
    ) -> None:
        super().__init__(
            dim,
            noise_scale=non_negative("noise_scale", noise_scale),
            theta_bound=theta_bound,
            ridge=dim if ridge is None else ridge,
            radius_scale=radius_scale,
            batch_shape=batch_shape,
            dtype=dtype,
            device=device,
            validate=validate,
        )
        self.horizon = positive_integer("horizon", horizon)
        self.moment_order = within("moment_order", moment_order, 1.0, 2.0, closed=True)
        self.feature_bound = positive("feature_bound", feature_bound)
        self.delta = 1.0 / (8.0 * horizon) if delta is None else within("delta", delta, 0.0, 1.0)
        self.alpha = positive("alpha", alpha)
        self.minimum_scale = horizon**-0.5 if minimum_scale is None else positive("minimum_scale", minimum_scale)
        one_of("radius", radius, ("paper",))
        eps, T, lam = self.moment_order - 1.0, float(self.horizon), self.ridge
        self.power = (1.0 - eps) / (2.0 * (1.0 + eps))
        ell = math.log(2.0 * T * T / self.delta)
        kappa = dim * math.log1p(self.feature_bound**2 * T / (self.minimum_scale**2 * lam * self.alpha * dim))
        self.tau0 = math.sqrt(2.0 * kappa) * math.log(3.0 * T) ** self.power / ell ** (1.0 / (1.0 + eps))
        # The radius is slope * t^power + radius_start, and radius_start alone before the first round.
        self.slope = 107.0 * ell * self.tau0
        self.radius_start = math.sqrt(lam * (2.0 + 4.0 * self.theta_bound**2))
        self._create_buffers()

    @torch.jit.export
    def radius(self) -> Tensor:
        rounds = real(self.rounds, self.theta_hat)
        started = rounds / at_least(rounds, 1.0)
        return self.radius_scale * (self.slope * started * rounds**self.power + self.radius_start)

    def width_matrix(self) -> Tensor:
        return self.V_inv

    def _observe(self, x: Tensor, reward: Tensor, noise_scale: Tensor) -> None:
        theta_hat = self.theta_hat
        root_alpha = math.sqrt(self.alpha)
        growth = self.tau0 * real(self.rounds + 1, theta_hat) ** self.power
        product = matvec(self.V_inv, x)
        q = sqrt(at_least(dot(x, product), 0.0))
        # Eq. (11), with the floor 2 sqrt(2) that Lemmas 4 and 5 need.
        scale = q * maximum(sqrt(2.0 * self.radius() / (root_alpha * growth)), 0.0 * q + math.sqrt(8.0))
        scale = maximum(at_least(scale, self.minimum_scale), noise_scale)
        w = q / (root_alpha * scale)
        quadratic = w * w
        if not torch.jit.is_scripting():
            self._check_quadratic(x, quadratic)
        # The gradient of the Huber loss, which is linear beyond tau = growth sqrt(1 + w^2) / w.
        threshold = growth * sqrt(1.0 + quadratic) / at_least(w, 1e-30)
        innovation = clip((reward - dot(x, theta_hat)) / scale, threshold)
        inverse = 1.0 / (root_alpha * scale)
        step = innovation / (scale * (1.0 + quadratic))

        # Write: V first, then theta with the new V.
        grow_(self.V, self.V_lost, self.V_inv, along(inverse, x) * x, along(inverse, x) * product, quadratic)
        theta_hat += along(step, x) * product
        project_ball_(theta_hat, self.V, self.theta_bound, self.validate)
        self._refine_(self.V_inv, self.V)
        rounds = self.rounds
        rounds += 1


class HvtUCB(UCB):
    def __init__(
        self,
        dim: int,
        *,
        horizon: int,
        moment_order: float = 2.0,
        noise_scale: float = 1.0,
        theta_bound: float = 1.0,
        feature_bound: float = 1.0,
        ridge: float | None = None,
        delta: float | None = None,
        alpha: float = 4.0,
        minimum_scale: float | None = None,
        radius: str = "paper",
        radius_scale: float = 1.0,
        batch_shape: tuple[int, ...] = (),
        dtype: torch.dtype = torch.float64,
        device: torch.device | str | None = None,
        validate: bool = True,
    ) -> None:
        super().__init__(
            HuberRegression(
                dim,
                horizon=horizon,
                moment_order=moment_order,
                noise_scale=noise_scale,
                theta_bound=theta_bound,
                feature_bound=feature_bound,
                ridge=ridge,
                delta=delta,
                alpha=alpha,
                minimum_scale=minimum_scale,
                radius=radius,
                radius_scale=radius_scale,
                batch_shape=batch_shape,
                dtype=dtype,
                device=device,
                validate=validate,
            )
        )
