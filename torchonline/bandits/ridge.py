"""Ridge regression and OFUL (Abbasi-Yadkori, Pal and Szepesvari, NeurIPS 2011)."""

import math

import torch
from torch import Tensor

from torchonline.arrays import along, dot, log1p, matvec, sqrt
from torchonline.bandits.estimator import Estimator
from torchonline.bandits.policies import UCB
from torchonline.learner import positive, within
from torchonline.linalg import grow_


class RidgeRegression(Estimator):
    statistics_depend_on = ("noise_scale", "ridge")

    logdet: Tensor

    def __init__(
        self,
        dim: int,
        *,
        noise_scale: float = 1.0,
        theta_bound: float = 1.0,
        ridge: float = 1.0,
        delta: float = 0.01,
        radius_scale: float = 1.0,
        batch_shape: tuple[int, ...] = (),
        dtype: torch.dtype = torch.float64,
        device: torch.device | str | None = None,
        validate: bool = True,
    ) -> None:
        super().__init__(
            dim,
            noise_scale=positive("noise_scale", noise_scale),
            theta_bound=theta_bound,
            ridge=ridge,
            radius_scale=radius_scale,
            batch_shape=batch_shape,
            dtype=dtype,
            device=device,
            validate=validate,
        )
        self.delta = within("delta", delta, 0.0, 1.0)
        self.log_term = -2.0 * math.log(self.delta)
        self.bias_term = math.sqrt(self.ridge) * self.theta_bound
        self._create_buffers()

    def _initial_state(self) -> dict[str, Tensor | None]:
        return super()._initial_state() | {"logdet": torch.zeros((), dtype=torch.float64)}

    @torch.jit.export
    def radius(self) -> Tensor:
        return self.radius_scale * (self.noise_scale * sqrt(self.logdet + self.log_term) + self.bias_term)

    def width_matrix(self) -> Tensor:
        return self.V_inv

    def _observe(self, x: Tensor, reward: Tensor, noise_scale: Tensor) -> None:
        weight = self.noise_scale / noise_scale
        a = along(weight, x) * x
        product = matvec(self.V_inv, a)
        quadratic = dot(a, product)
        residual = weight * reward - dot(a, self.theta_hat)
        if not torch.jit.is_scripting():
            self._check_quadratic(x, quadratic)
        theta_hat = self.theta_hat
        theta_hat += product * along(residual / (1.0 + quadratic), x)
        logdet = self.logdet
        logdet += log1p(quadratic)
        grow_(self.V, self.V_lost, self.V_inv, a, product, quadratic)
        self._refine_(self.V_inv, self.V)
        rounds = self.rounds
        rounds += 1


class OFUL(UCB):
    def __init__(
        self,
        dim: int,
        *,
        noise_scale: float = 1.0,
        theta_bound: float = 1.0,
        ridge: float = 1.0,
        delta: float = 0.01,
        radius_scale: float = 1.0,
        batch_shape: tuple[int, ...] = (),
        dtype: torch.dtype = torch.float64,
        device: torch.device | str | None = None,
        validate: bool = True,
    ) -> None:
        super().__init__(
            RidgeRegression(
                dim,
                noise_scale=noise_scale,
                theta_bound=theta_bound,
                ridge=ridge,
                delta=delta,
                radius_scale=radius_scale,
                batch_shape=batch_shape,
                dtype=dtype,
                device=device,
                validate=validate,
            )
        )
