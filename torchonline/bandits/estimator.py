"""The bandit contract: an estimator holds the statistics of a reward model and knows how uncertain it is."""

import math
from typing import Any, Unpack

import torch
from torch import Tensor

from torchonline.bandits.linear_model import LinearModel, on_rows
from torchonline.core.backend import in_python
from torchonline.core.checks import positive
from torchonline.core.ops import along, converted, maximum, minimum, row_dots, rows_times, sqrt
from torchonline.core.options import LearnerOptions


class Estimator(LinearModel):
    """Base of all bandit estimators: a linear model of the reward.

    A round, for the caller::

        k = policy.select(arms)             # a policy reads mean, width and radius
        estimator.step(arms[k], reward)     # the estimator learns

    A subclass implements what :class:`LinearModel` asks for.
    """

    def __init__(
        self,
        dim: int,
        *,
        noise_scale: float,
        theta_bound: float,
        ridge: float,
        radius_scale: float,
        restart_every: int | None = None,
        **options: Unpack[LearnerOptions],
    ) -> None:
        super().__init__(dim, ridge=ridge, radius_scale=radius_scale, restart_every=restart_every, **options)
        # The longest features that a round may have.
        self.longest = math.inf
        self.noise_scale = noise_scale
        self.theta_bound = positive("theta_bound", theta_bound)

    def forward(self, x: Tensor) -> Tensor:
        """Return the estimated mean reward: ``(*B, ..., d)`` to ``(*B, ...)``. Differentiable in ``x``."""
        return self._response(self.predictor(x))

    @on_rows
    def predictor(self, x: Tensor) -> Tensor:
        """Return the linear predictor ``x'theta_hat``, which orders arms as their means do: ``(*B, ..., d)`` to ``(*B, ...)``."""
        x = converted(x, self.theta_hat)
        if self.batch_dims == 0:
            return rows_times(x, self.theta_hat)
        return rows_times(self.grouped(x), self.theta_hat[..., None]).reshape(x.shape[:-1])

    @torch.jit.export
    @on_rows
    def interval(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return confidence bounds of the mean reward, cut to what ``theta_bound`` allows: lower and upper, ``(*B, ...)``."""
        x = converted(x, self.theta_hat)
        predictor = self.predictor(x)
        error = along(self.radius(), predictor) * self.width(x)
        bound = self.theta_bound * sqrt(row_dots(x, x))
        low, high = maximum(predictor - error, -bound), minimum(predictor + error, bound)
        return self._response(low), self._response(high)

    def _step_in_python(self, x: Any, reward: Any, noise_scale: Any = None) -> None:
        self._learn_in_python(x, reward, noise_scale)

    @torch.jit.export
    @in_python(_step_in_python)
    def step(self, x: Tensor, reward: Tensor, noise_scale: Tensor | None = None) -> None:
        """Learn from the reward of a decision, or from several in order.

        Tensors are used as they are. NumPy arrays, lists and Python numbers are converted once, exactly.

        Args:
            x: features of what was chosen, ``(*B, d)``; or ``(*B, n, d)`` for n rounds.
            reward: what came of it, ``(*B)`` or ``(*B, n)``, in the units of ``noise_scale``.
            noise_scale: this round's noise scale where it is known before the reward, shaped like ``reward``; the
                constructor's otherwise.

        Raises:
            TypeError: an argument holds no real numbers, or ``x`` is a tensor of integers.
            ValueError: a shape, device or value is wrong. No buffer has changed.
        """
        self._learn(x, reward, noise_scale)

    def _response(self, predictor: Tensor) -> Tensor:
        """Return the mean reward at a predictor: the predictor itself, unless a subclass has a link."""
        return predictor

    def possible_reward(self, values: Tensor) -> Tensor:
        """Return the possible rewards nearest to any numbers: the numbers, unless a subclass has a link. Python only."""
        return values

    def _own_scale(self, reward: Tensor) -> Tensor:
        return torch.full_like(reward, self.noise_scale)
