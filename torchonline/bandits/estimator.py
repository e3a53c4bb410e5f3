"""The bandit contract: an estimator holds the statistics of a linear reward model and knows how uncertain it is."""

import math

import torch
from torch import Tensor
from torch.jit import is_scripting

from torchonline.bandits.linear_model import LinearModel
from torchonline.core.checks import positive
from torchonline.core.ops import along, converted, exactly, maximum, minimum, row_dots, rows_times, sqrt


class Estimator(LinearModel):
    """Base of all bandit estimators: a linear model of the reward.

    A round, for the caller::

        k = policy.select(arms)             # a policy reads mean, width and radius
        estimator.step(arms[k], reward)     # the estimator learns

    A subclass says what :class:`LinearModel` asks for.
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
        batch_shape: tuple[int, ...],
        dtype: torch.dtype,
        device: torch.device | str | None,
        validate: bool,
    ) -> None:
        super().__init__(
            dim,
            ridge=ridge,
            radius_scale=radius_scale,
            restart_every=restart_every,
            batch_shape=batch_shape,
            dtype=dtype,
            device=device,
            validate=validate,
        )
        # The longest features that may be learnt from.
        self.longest = math.inf
        self.noise_scale = noise_scale
        self.theta_bound = positive("theta_bound", theta_bound)

    def forward(self, x: Tensor) -> Tensor:
        """Estimated mean reward: ``(*B, ..., d)`` to ``(*B, ...)``. Differentiable in ``x``."""
        return self._response(self.predictor(x))

    def predictor(self, x: Tensor) -> Tensor:
        """The linear predictor ``x'theta_hat``, which orders arms as their means do: ``(*B, ..., d)`` to ``(*B, ...)``."""
        if not is_scripting():
            if self._check_rows(x):
                with exactly(x):
                    return self.predictor(x)
        x = converted(x, self.theta_hat)
        if self.batch_dims == 0:
            return rows_times(x, self.theta_hat)
        return rows_times(self.grouped(x), self.theta_hat[..., None]).reshape(x.shape[:-1])

    @torch.jit.export
    def interval(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Lower and upper confidence bounds of the mean reward, cut to what ``theta_bound`` allows, as ``(*B, ...)``."""
        if not is_scripting():
            self._check_rows(x)
        x = converted(x, self.theta_hat)
        predictor = self.predictor(x)
        error = along(self.radius(), predictor) * self.width(x)
        bound = self.theta_bound * sqrt(row_dots(x, x))
        low, high = maximum(predictor - error, -bound), minimum(predictor + error, bound)
        return self._response(low), self._response(high)

    @torch.jit.export
    def step(self, x: Tensor, reward: Tensor, noise_scale: Tensor | None = None) -> None:
        """Learn from the reward of a decision, or from several in order.

        Args:
            x: features of what was chosen, ``(*B, d)``; or ``(*B, n, d)`` for n rounds.
            reward: what came of it, ``(*B)`` or ``(*B, n)``, in the units of ``noise_scale``.
            noise_scale: this round's noise scale where it is known before the reward, shaped like ``reward``; the
                constructor's otherwise.

        Raises:
            TypeError: an argument is no floating-point tensor.
            ValueError: a shape, device or value is wrong. No buffer has changed.
        """
        if not is_scripting():
            self._step_eagerly(x, reward, noise_scale)
            return
        self._learn(x, reward, noise_scale)

    def _response(self, predictor: Tensor) -> Tensor:
        """The mean reward where the linear predictor has some values: the predictor itself, unless a subclass has a link."""
        return predictor

    def possible_reward(self, values: Tensor) -> Tensor:
        """The rewards nearest to any numbers: the numbers, unless a subclass knows better. Eager Python only."""
        return values

    def _own_scale(self, reward: Tensor) -> Tensor:
        return torch.full_like(reward, self.noise_scale)
