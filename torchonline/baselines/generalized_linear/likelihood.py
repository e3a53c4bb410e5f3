"""Generalized linear models that are fitted to all rounds anew in each: maximum likelihood estimates, and sets around them."""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from torchonline.bandits.glm.base import GeneralizedEstimator
from torchonline.baselines.generalized_linear.solvers import Array, Loss, furthest, inverse, minimise
from torchonline.baselines.stored_rounds import HistoryEstimator
from torchonline.core.ops import dot, matvec


def on_host(value: Any) -> Array:
    """A tensor, an array or a number in double precision, for NumPy: the same memory, where that can be."""
    if isinstance(value, Tensor):
        return value.to(device="cpu", dtype=torch.float64).numpy()
    return np.asarray(value, dtype=np.float64)


class LikelihoodEstimator(HistoryEstimator, GeneralizedEstimator):
    """Base of generalized linear models that keep all rounds and are fitted to them by Newton's method, in NumPy.

    A subclass says how one member of a fleet is fitted, in :meth:`_fit`; members take turns. This is eager Python only: there
    is no TorchScript and no exported program of it, and on an accelerator the history goes to the host in each round.
    """

    is_exportable = False
    is_scriptable = False

    history_reward: Tensor
    history_weight: Tensor

    def _initial_state(self) -> dict[str, Tensor | None]:
        numbers = torch.zeros(self.horizon, dtype=torch.float64)
        return super()._initial_state() | {"history_reward": numbers, "history_weight": numbers}

    def _keep(self, horizon: int) -> None:
        super()._keep(horizon)
        # All of a round is NumPy's.
        self.is_small = True

    def _observe(self, x: Tensor, reward: Tensor, noise_scale: Tensor) -> None:
        weight = 1.0 / (noise_scale * noise_scale)
        self._check_length(dot(x, x))
        self._check_room()
        self._check_growth(x, weight * dot(x, matvec(self.V_inv, x)))
        count = math.prod(self.batch_shape)
        # Copies: they may lie in the very buffers that a fit changes.
        rows = on_host(x).reshape(count, -1).copy()
        rewards, weights = (
            np.broadcast_to(on_host(value), self.batch_shape).reshape(count).copy() for value in (reward, weight)
        )
        with np.errstate(all="ignore"):
            for member in range(count):
                row = int(self._member(self.rounds, member))
                self._write("history", member, rows[member], row)
                self._write("history_reward", member, rewards[member], row)
                self._write("history_weight", member, weights[member], row)
                self._write("rounds", member, row + 1)
                self._fit(member)

    def _fit(self, member: int) -> None:
        """Put the buffers of one learner of the fleet to what follows from its history, the new round being in it."""
        raise NotImplementedError

    def _loss(self, member: int, ridge: float, kept: Array = slice(None)) -> Loss:
        """The loss of all rounds of one learner, or of those that are ``kept``."""
        n = int(self._member(self.rounds, member))
        rows, rewards, weights = (
            self._read(name, member, n)[kept] for name in ("history", "history_reward", "history_weight")
        )
        return Loss(self.link, self.concordance, rows, rewards, weights, ridge)

    def _read(self, name: str, member: int, rows: int | None = None) -> Array:
        """A buffer of one learner of the fleet, or its first rows, in double precision: its own memory, where that can be."""
        value = self._member(getattr(self, name), member)
        return on_host(value if rows is None else value[:rows])

    def _write(self, name: str, member: int, value: Array, row: int | None = None) -> None:
        """Write over a buffer of one learner of the fleet, or one row of it."""
        buffer = self._member(getattr(self, name), member)
        if row is not None:
            buffer = buffer[row : row + 1]
        if isinstance(buffer, Tensor):
            buffer.copy_(torch.from_numpy(np.asarray(value)))
        else:
            buffer[...] = value

    def _member(self, buffer: Any, member: int) -> Any:
        """What one learner of the fleet has of a buffer, as a view: a tensor or an array, as the buffer is."""
        shape = (-1, *buffer.shape[self.batch_dims :])
        return (buffer.view(shape) if isinstance(buffer, Tensor) else buffer.reshape(shape))[member, ...]

    def _write_with_inverse(self, name: str, member: int, matrix: Array, least: float) -> None:
        """A matrix of which no eigenvalue is below ``least``, but for rounding, and its inverse."""
        self._write(name, member, matrix)
        self._write(f"{name}_inv", member, inverse(matrix, least))


class LevelSetEstimator(LikelihoodEstimator):
    r"""Base of models with the confidence set :math:`\{\|\theta\| \le S,\ L(\theta) - L(\hat\theta) \le \text{level}\}`.

    ``radius`` and ``width`` are those of an ellipsoid around that set; :meth:`upper_bound` is exact.
    """

    def level(self) -> Tensor:
        """How far above its minimum the loss may be, times the square of ``radius_scale``: ``(*B)``."""
        raise NotImplementedError

    def _penalty(self, member: int) -> float:
        """The ridge that is part of the loss."""
        raise NotImplementedError

    def upper_bound(self, x: Tensor) -> Tensor:
        r"""The largest :math:`x^\top\theta` of the confidence set, to 1e-7 :math:`\|x\|S`: ``(*B, ..., d)`` to ``(*B, ...)``.

        The gradient in x is the parameter at which it is taken. Cost: some thirty passes over all different features
        of the rounds for each row, O(t d^2) each at most.
        """
        x = self._checked_rows(x)
        value: Tensor = UpperBound.apply(x, self)
        return value

    def ends(self, x: Tensor) -> Tensor:
        """The parameters of the confidence set at which :meth:`upper_bound` is taken: ``(*B, ..., d)`` to the same."""
        with torch.no_grad():
            rows = self.grouped(x).reshape(self.rounds.numel(), -1, self.dim)
            levels = on_host(self.level()).reshape(-1)
            # Rounds of the same features, as of arms that stay, are gone over as one.
            losses = [self._loss(member, self._penalty(member)).merged() for member in range(len(levels))]
            centres, risen = zip(*(self._centre(member, loss) for member, loss in enumerate(losses)), strict=True)
            found = furthest(losses, np.stack(centres), levels - np.array(risen), self.theta_bound, on_host(rows))
            return torch.from_numpy(found).to(self.theta_hat).reshape(x.shape)

    def _centre(self, member: int, loss: Loss) -> tuple[Array, float]:
        """The minimum of a learner's loss over the ball, and how far above the one from which levels are counted it is."""
        estimate = self._read("theta_hat", member)
        norm = float(np.linalg.norm(estimate))
        if not norm > self.theta_bound:
            return estimate, 0.0
        centre = minimise(loss, estimate * (self.theta_bound / norm), self.theta_bound)
        # As much as the level or more where the model is wrong, or delta has come true.
        partition = loss.link.log_partition(loss.predictors(estimate))
        return centre, float(loss.rise(loss.predictors(centre), centre, partition, estimate))


class UpperBound(torch.autograd.Function):
    """The maximum of x'theta over a confidence set; by the envelope theorem its gradient in x is the maximiser."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, estimator: LevelSetEstimator) -> Tensor:
        ends = estimator.ends(x)
        ctx.save_for_backward(ends)
        return (x.to(ends.dtype) * ends).sum(-1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (ends,) = ctx.saved_tensors
        return gradient.unsqueeze(-1) * ends, None
