"""Base class of the simulated bandits."""

from typing import NamedTuple

import torch
from torch import Tensor

from torchonline.core.checks import (
    check_shape,
    check_state_dtype,
    positive,
    positive_integer,
    seed_number,
    sizes,
)
from torchonline.core.inputs import check_indices
from torchonline.core.options import described


class Outcome(NamedTuple):
    """Outcome of a round, for each trial.

    Attributes:
        x: features of the chosen arm, ``(*B, d)``.
        reward: reward drawn for the chosen arm, ``(*B)``.
        regret: mean reward of the best arm minus that of the chosen arm, ``(*B)``. A learner must not see it.
    """

    x: Tensor
    reward: Tensor
    regret: Tensor


class SimulatedBandit:
    r"""Base of the simulated bandits: arms, one parameter per trial, and exact regret.

    The mean reward depends on an arm's features x through :math:`x^\top\theta^*`. A subclass
    defines the mean reward, :meth:`_mean`, and the draw of a reward, :meth:`_reward`.
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
        self.seed = seed_number(seed)
        self._generator = torch.Generator().manual_seed(self.seed)
        self.theta_norm = positive("theta_norm", theta_norm)
        self.theta = self.theta_norm * self._directions((*self.batch_shape, dim))
        self._draw_arms()

    def __repr__(self) -> str:
        *_, arms, dim = self._arms_shape
        return f"{type(self).__name__}({described(self, vars(self) | {'dim': dim, 'arms': arms})})"

    def arms(self) -> Tensor:
        """Return the features of this round's arms, ``(*B, K, d)``.

        Until :meth:`pull` ends the round, every call returns the same arms.
        """
        return self._arms

    def pull(self, index: Tensor) -> Outcome:
        """Pull one arm in each trial and end the round.

        Args:
            index: ``(*B)``, int64.

        Raises:
            TypeError: ``index`` is not an int64 tensor.
            ValueError: ``index`` has the wrong shape or is out of range.
        """
        index = check_indices("index", index, self._arms_shape[-2])
        check_shape("index", index, self.batch_shape)
        x = torch.take_along_dim(self._arms, index[..., None, None], dim=-2).squeeze(-2)
        predictor = torch.take_along_dim(self._predictors, index[..., None], dim=-1).squeeze(-1)
        outcome = Outcome(x, self._reward(predictor).to(self.dtype), self._best - self._mean(predictor))
        self._end_round()
        return outcome

    def _mean(self, predictor: Tensor) -> Tensor:
        """Return the mean rewards for linear predictors of any shape."""
        raise NotImplementedError

    def _reward(self, predictor: Tensor) -> Tensor:
        """Draw a reward for each trial: ``(*B)`` to ``(*B)``."""
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
        """Draw uniformly from the unit sphere."""
        normal = torch.randn(shape, generator=self._generator, dtype=torch.float64)
        return torch.nn.functional.normalize(normal, dim=-1).to(self.dtype)
