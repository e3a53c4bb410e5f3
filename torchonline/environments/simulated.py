"""What simulated bandits share: arms, a parameter for each trial, and a regret that is known."""

from typing import NamedTuple

import torch
from torch import Tensor

from torchonline.core.checks import (
    check_indices,
    check_shape,
    check_state_dtype,
    positive,
    positive_integer,
    seed_number,
    sizes,
)


class Outcome(NamedTuple):
    """What came of a round, for each trial.

    Attributes:
        x: features of the chosen arm, ``(*B, d)``.
        reward: its mean reward plus noise, ``(*B)``.
        regret: how far its mean reward is below the best arm's, ``(*B)``. A learner must not see it.
    """

    x: Tensor
    reward: Tensor
    regret: Tensor


class SimulatedBandit:
    r"""Base of the bandits whose mean reward depends on an arm's features x through :math:`x^\top\theta^*`.

    A subclass says what the mean is, :meth:`_mean`, and how rewards are drawn, :meth:`_reward`.
    """

    def __init__(
        self,
        dim: int,
        arms: int,
        *,
        theta_norm: float,
        redraw: bool,
        batch_shape: tuple[int, ...],
        seed: int,
        dtype: torch.dtype,
    ) -> None:
        if not isinstance(redraw, bool):
            raise TypeError(f"redraw: expected True or False, got {type(redraw).__name__}")
        self.redraw = redraw
        self.batch_shape = sizes("batch_shape", batch_shape)
        check_state_dtype(dtype)
        self.dtype = dtype
        self._arms_shape = (*self.batch_shape, positive_integer("arms", arms), positive_integer("dim", dim))
        self._generator = torch.Generator().manual_seed(seed_number(seed))
        self.theta = positive("theta_norm", theta_norm) * self._directions((*self.batch_shape, dim))
        self._draw_arms()

    def arms(self) -> Tensor:
        """The features to choose from in this round, ``(*B, K, d)``. Looking twice shows the same."""
        return self._arms

    def pull(self, index: Tensor) -> Outcome:
        """Choose one arm in each trial, which ends the round.

        Args:
            index: ``(*B)``, int64.

        Raises:
            TypeError: ``index`` is no int64 tensor.
            ValueError: it has another shape, or names an arm that is not there.
        """
        check_indices("index", index, self._arms_shape[-2])
        check_shape("index", index, self.batch_shape)
        x = torch.take_along_dim(self._arms, index[..., None, None], dim=-2).squeeze(-2)
        predictor = torch.take_along_dim(self._predictors, index[..., None], dim=-1).squeeze(-1)
        outcome = Outcome(x, self._reward(predictor).to(self.dtype), self._best - self._mean(predictor))
        self._end_round()
        return outcome

    def _mean(self, predictor: Tensor) -> Tensor:
        """The mean reward, of any shape."""
        raise NotImplementedError

    def _reward(self, predictor: Tensor) -> Tensor:
        """A reward for each trial, ``(*B)``."""
        raise NotImplementedError

    def _end_round(self) -> None:
        if self.redraw:
            self._draw_arms()

    def _draw_arms(self) -> None:
        self._arms = self._directions(self._arms_shape)
        self._set_means()

    def _set_means(self) -> None:
        self._predictors = (self._arms @ self.theta.unsqueeze(-1)).squeeze(-1)
        self._best = self._mean(self._predictors).amax(-1)

    def _directions(self, shape: tuple[int, ...]) -> Tensor:
        """Uniform draws from the unit sphere."""
        normal = torch.randn(shape, generator=self._generator, dtype=torch.float64)
        return torch.nn.functional.normalize(normal, dim=-1).to(self.dtype)
