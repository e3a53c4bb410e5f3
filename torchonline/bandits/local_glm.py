"""Generalized linear regression with local curvature, and LocalGLB, the bandit on it."""

import math

import torch
from torch import Tensor
from torch.jit import is_scripting

from torchonline.arrays import along, at_least, clip, column, dot, matvec, maximum, pair, smallest, sqrt, where
from torchonline.bandits.generalized import MixtureEstimator, checked_link
from torchonline.bandits.policies import UCB
from torchonline.checks import positive_integer
from torchonline.linalg import grow_
from torchonline.links import Link


class LocalGLMRegression(MixtureEstimator):
    statistics_depend_on = ("theta_bound", "ridge", "delta", "noise_scale")

    def __init__(
        self,
        dim: int,
        *,
        link: Link | None = None,
        theta_bound: float = 1.0,
        feature_bound: float = 1.0,
        ridge: float | None = None,
        delta: float = 0.01,
        radius_scale: float = 1.0,
        batch_shape: tuple[int, ...] = (),
        dtype: torch.dtype = torch.float64,
        device: torch.device | str | None = None,
        validate: bool = True,
    ) -> None:
        link, bound = checked_link(link, theta_bound, feature_bound)
        usual = positive_integer("dim", dim) / (1.0 + link.self_concordance(bound) * bound)
        super().__init__(
            dim,
            link=link,
            theta_bound=theta_bound,
            feature_bound=feature_bound,
            ridge=usual if ridge is None else ridge,
            delta=delta,
            radius_scale=radius_scale,
            batch_shape=batch_shape,
            dtype=dtype,
            device=device,
            validate=validate,
        )
        # Constants that hold everywhere leave no more to ask of features than that predictors can be computed.
        if link.is_global:
            self.longest = link.reach / self.theta_bound
        self.is_unimodal = link.is_unimodal
        self.newton_steps = 8
        self._create_buffers()

    def _squared_start(self, distance: float) -> float:
        return self.ridge * distance**2 - 2.0 * math.log(self.delta)

    def _observe(self, x: Tensor, reward: Tensor, noise_scale: Tensor) -> None:
        theta_hat = self.theta_hat
        weight, square = 1.0 / (noise_scale * noise_scale), dot(x, x)
        if not is_scripting():
            self._check_length(square)
        product = matvec(self.V_inv, x)
        q = at_least(dot(x, product), 1e-30)
        z, bound = dot(x, theta_hat), self.theta_bound * sqrt(square)
        # The interval in which the confidence set has the true predictor; a little more, for rounding.
        error = (1.0 + 1e-9) * sqrt(at_least(self.squared_radius, 0.0) * q)
        low, high = clip(z - error, bound), clip(z + error, bound)

        move = self._move(z, q * weight, bound, reward)
        y, pull = z + move, -move / q
        excess = weight * (self.link.mean(y) - reward) - pull
        cost = 2.0 * self._regret_of_mixture(z, q, bound, y, reward, weight) - pull * pull * q
        cost = cost + 2.0 * maximum(excess * (y - low), excess * (y - high))
        gain = weight * self._curvature(y, low, high)
        root, quadratic = sqrt(gain), gain * q
        a, a_product = along(root, x) * x, along(root, x) * product
        if not is_scripting():
            self._check_quadratic(x, quadratic)

        self._widen_(cost)
        theta_hat -= along(pull, x) * product
        grow_(self.V, self.V_lost, self.V_inv, a, a_product, quadratic)
        if self._count_round():
            self._refine_(self.V_inv, self.V)

    def _move(self, z: Tensor, s: Tensor, bound: Tensor, reward: Tensor) -> Tensor:
        """The root u of ``u + s (mean(z + u) - reward)`` for which ``z + u`` is within the bound, by Newton's method.

        A step that would leave what is known to hold the root goes to its middle instead.
        """
        low, high = -bound - z, bound - z
        u = clip(z, bound) - z
        for _ in range(self.newton_steps):
            y = z + u
            value = u + s * (self.link.mean(y) - reward)
            above = value > 0.0
            low, high = where(above, low, u), where(above, u, high)
            u = u - value / (1.0 + s * self.link.slope(y))
            u = where((u - low) * (high - u) >= 0.0, u, 0.5 * (low + high))
        return u

    def _curvature(self, y: Tensor, low: Tensor, high: Tensor) -> Tensor:
        """The largest weight that the loss is sure to have, wherever between ``low`` and ``high`` the truth is."""
        distance = maximum(abs(low - y), abs(high - y))
        curvature = 2.0 * self.link.slope(y) / (2.0 + self.concordance * distance)
        if self.is_unimodal:
            at_ends = self.link.curvature(pair(low, high), column(y), self.concordance)
            curvature = maximum(curvature, smallest(at_ends))
        return curvature


class LocalGLB(UCB):
    def __init__(
        self,
        dim: int,
        *,
        link: Link | None = None,
        theta_bound: float = 1.0,
        feature_bound: float = 1.0,
        ridge: float | None = None,
        delta: float = 0.01,
        radius_scale: float = 1.0,
        batch_shape: tuple[int, ...] = (),
        dtype: torch.dtype = torch.float64,
        device: torch.device | str | None = None,
        validate: bool = True,
    ) -> None:
        super().__init__(
            LocalGLMRegression(
                dim,
                link=link,
                theta_bound=theta_bound,
                feature_bound=feature_bound,
                ridge=ridge,
                delta=delta,
                radius_scale=radius_scale,
                batch_shape=batch_shape,
                dtype=dtype,
                device=device,
                validate=validate,
            )
        )
