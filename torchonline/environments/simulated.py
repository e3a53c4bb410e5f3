"""Base class of the simulated bandits."""

from typing import NamedTuple, TypedDict

import torch
from torch import Tensor

from torchonline.core import checks
from torchonline.core.inputs import check_indices
from torchonline.core.options import WithOptions, described


def unit_vectors(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Draw uniformly from the unit sphere of the last dimension: float64."""
    return torch.nn.functional.normalize(torch.randn(shape, generator=generator, dtype=torch.float64), dim=-1)


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


class BanditOptions(TypedDict, total=False):
    """Options of all simulated bandits, which :class:`SimulatedBandit` explains."""

    theta_norm: float
    redraw: bool
    batch_shape: tuple[int, ...]
    seed: int
    dtype: torch.dtype


class SimulatedBandit(WithOptions):
    r"""Base class of the simulated bandits: arms, a parameter per trial, exact regret.

    A round::

        arms = environment.arms()
        k = policy.select(arms)
        x, reward, regret = environment.pull(k)  # x, the features of the chosen arm
        policy.step(arms, k, reward)

    The mean reward depends on an arm's features x through :math:`x^\top\theta^*`. A subclass defines the mean reward,
    :meth:`_mean`, and the draw of a reward, :meth:`_reward`. All draws come from the environment's own generators.

    Args:
        dim: number of features d.
        arms: number of arms K.
        theta_norm: norm S of :math:`\theta^*`, above 0.
        redraw: whether to draw new arms in each round. If False, the arms of the first round stay.
        batch_shape: ``*B``, independent trials, for a learner with the same ``batch_shape``.
        seed: seed of all draws.
        dtype: type of all returned tensors.

    Attributes:
        theta: :math:`\theta^*` of the current round, ``(*B, d)``.
    """

    def __init__(
        self,
        dim: int,
        arms: int,
        *,
        theta_norm: float = 1.0,
        redraw: bool = False,
        batch_shape: tuple[int, ...] = (),
        seed: int = 0,
        dtype: torch.dtype = torch.float64,
    ) -> None:
        self.redraw = checks.instance_of("redraw", redraw, bool, "True or False")
        self.batch_shape = checks.sizes("batch_shape", batch_shape)
        checks.check_state_dtype(dtype)
        self.dtype = dtype
        counts = checks.positive_integer("arms", arms), checks.positive_integer("dim", dim)
        self._arms_shape = (*self.batch_shape, *counts)
        self.seed = checks.seed_number(seed)
        self._generator = torch.Generator().manual_seed(self.seed)
        self.theta_norm = checks.positive("theta_norm", theta_norm)
        self.theta = self.theta_norm * self._directions((*self.batch_shape, dim))
        self._draw_arms()

    def __repr__(self) -> str:
        *_, arms, dim = self._arms_shape
        present = {**self._arguments, **vars(self), "dim": dim, "arms": arms}
        return f"{type(self).__name__}({described(self, present)})"

    def arms(self) -> Tensor:
        """Return this round's arms, ``(*B, K, d)``, the same until :meth:`pull`."""
        return self._arms

    def pull(self, index: Tensor) -> Outcome:
        """Pull one arm in each trial, given as ``(*B)``, int64, and end the round."""
        index = check_indices("index", index, self._arms_shape[-2])
        checks.check_shape("index", index, self.batch_shape)
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
        return unit_vectors(shape, self._generator).to(self.dtype)
