"""Base classes of the generalized linear models that refit all rounds, in NumPy."""

import math
from typing import Any, Unpack

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from torchonline.baselines.generalized_linear.solvers import Array, Loss, furthest, inverse, minimise
from torchonline.baselines.stored_rounds import check_room
from torchonline.core.backend import beside, on_arrays
from torchonline.core.checks import positive_integer
from torchonline.core.ops import assign_, dot, log, matvec, real
from torchonline.core.options import LearnerOptions
from torchonline.links import Link
from torchonline.policies.rules import UCB
from torchonline.regression.estimator import on_rows
from torchonline.regression.glm.base import GeneralizedEstimator

HISTORY = ("history", "history_reward", "history_weight")
# Index of a learner in `batch_shape`; () for a single learner.
Member = tuple[int, ...]


class HistoryOptions(LearnerOptions, total=False):
    """Options of the models that keep all rounds: see :class:`LikelihoodEstimator`."""

    theta_bound: float
    feature_bound: float
    ridge: float | str | None
    delta: float
    radius_scale: float


@on_arrays(lambda value: np.asarray(value, dtype=np.float64))
def on_host(value: Tensor) -> Array:
    """Return a value as a float64 NumPy array, sharing memory if possible."""
    return value.to(device="cpu", dtype=torch.float64).numpy()


class LikelihoodEstimator(GeneralizedEstimator):
    r"""Base class of the models that store and refit all rounds by Newton's method.

    A subclass fits one learner of a batch in :meth:`_fit`; the learners take turns. It runs in eager Python only: TorchScript and
    torch.export cannot compile it, and on an accelerator each round copies the history to the host. ``step`` raises ValueError
    after ``horizon`` rounds, and warns if a solver ends before it reaches its optimum.

    With ``ridge="growing"``, :math:`\lambda_t = d\log(2+t)` after t rounds replaces the ridge, in a subclass whose ``can_grow``
    is True. This is :math:`d\log(1+t)` in round t.

    Shape:
        - ``history``, ``(*B, T, d)``; ``history_reward`` and ``history_weight``, ``(*B, T)``; the others as in
          :class:`~torchonline.regression.estimator.Estimator`.
    """

    statistics_depend_on: tuple[str, ...] = ("horizon", "theta_bound", "feature_bound", "ridge")
    later_options: dict[str, bool] = {"grows": False}
    argument_of = {"grows": "ridge", "is_program": "constants"}
    is_exportable = False
    is_scriptable = False
    # Whether the ridge may grow, and whether it grows by default.
    can_grow, grows_by_default = True, False
    history: Tensor
    history_reward: Tensor
    history_weight: Tensor

    def __init__(self, dim: int, horizon: int, link: Link | None = None, **options: Unpack[HistoryOptions]) -> None:
        self.horizon = positive_integer("horizon", horizon)
        own: Any = dict(options)
        ridge = own.get("ridge")
        self.grows = (
            self.grows_by_default if ridge is None else self.can_grow and type(ridge) is str and ridge == "growing"
        )
        if self.grows:
            own["ridge"] = positive_integer("dim", dim) * math.log(2.0)
        super().__init__(dim, link, **own)
        # Fits run on NumPy at any size of the state.
        self.is_small = True

    def _initial_state(self) -> dict[str, Tensor | None]:
        rows = torch.zeros(self.horizon, self.dim, dtype=torch.float64)
        numbers = torch.zeros(self.horizon, dtype=torch.float64)
        return super()._initial_state() | dict(zip(HISTORY, (rows, numbers, numbers), strict=True))

    def ridge_now(self) -> Tensor:
        """Return the ridge after the rounds so far: ``(*B)``."""
        rounds = real(self.rounds, self.theta_hat)
        return self.dim * log(rounds + 2.0) if self.grows else 0.0 * rounds + self.ridge

    def _ridge_of(self, member: Member) -> float:
        """Return one learner's ridge after the rounds so far."""
        rounds = float(self._read("rounds", member))
        return self.dim * math.log(rounds + 2.0) if self.grows else self.ridge

    def _observe(self, x: Tensor, reward: Tensor, noise_scale: Tensor) -> None:
        weight = 1.0 / (noise_scale * noise_scale)
        self._check_length(dot(x, x))
        check_room(self.rounds, self.horizon)
        self._check_growth(x, weight * dot(x, matvec(self.V_inv, x)))
        # Copies, because the arguments may be views of buffers that a fit changes.
        rows = on_host(x).copy()
        rewards, weights = (np.broadcast_to(on_host(value), self.batch_shape).copy() for value in (reward, weight))
        with np.errstate(all="ignore"):
            for member in np.ndindex(self.batch_shape):
                row = int(self._read("rounds", member))
                for name, values in zip(HISTORY, (rows, rewards, weights), strict=True):
                    self._write(name, (*member, row), values[member])
                self._write("rounds", member, row + 1)
                self._fit(member)

    def _fit(self, member: Member) -> None:
        """Fit one learner to its history with the new round, and write its buffers."""
        raise NotImplementedError

    def _loss(self, member: Member, ridge: float, kept: Array = slice(None)) -> Loss:
        """Return one learner's loss over all rounds, or over the ``kept`` rounds."""
        n = int(self._read("rounds", member))
        rows, rewards, weights = (self._read(name, member)[:n][kept] for name in HISTORY)
        return Loss(self.link, self.concordance, rows, rewards, weights, ridge)

    def _read(self, name: str, index: Member) -> Array:
        """Return a part of a buffer on the host."""
        return on_host(getattr(self, name)[(*index, ...)])

    def _write(self, name: str, index: Member, value: Any) -> None:
        """Write over a part of a buffer."""
        part = getattr(self, name)[(*index, ...)]
        assign_(part, beside(np.asarray(value), part))

    def _write_with_inverse(self, name: str, member: Member, matrix: Array, least: float) -> None:
        """Write a matrix and its inverse."""
        self._write(name, member, matrix)
        self._write(f"{name}_inv", member, inverse(matrix, least))


class LevelSetEstimator(LikelihoodEstimator):
    """Base class of the models whose confidence set is a level set of the loss.

    ``radius`` and ``width`` describe an ellipsoid around this set; :meth:`upper_bound` is exact.
    """

    def level(self) -> Tensor:
        """Return the level, scaled by the square of ``radius_scale``: ``(*B)``."""
        raise NotImplementedError

    def _penalty(self, member: Member) -> float:
        """Return the ridge of one learner's loss."""
        return 0.0

    @on_rows
    def upper_bound(self, x: Tensor) -> Tensor:
        r"""Return the largest predictors of the set: ``(*B, ..., d)`` to ``(*B, ...)``.

        The largest :math:`x^\top\theta` is exact to 1e-7 :math:`\|x\|S`. The gradient in x is the maximiser :math:`\theta`. Cost
        for each row of x: about thirty passes over all distinct features of the rounds, at most O(t d^2) each.
        """
        value: Tensor = UpperBound.apply(x, self)
        return value

    @on_rows
    def ends(self, x: Tensor) -> Tensor:
        """Return the maximisers that :meth:`upper_bound` finds, shaped like x."""
        with torch.no_grad():
            rows = self.grouped(x).reshape(self.rounds.numel(), -1, self.dim)
            levels, members = on_host(self.level()).reshape(-1), list(np.ndindex(self.batch_shape))
            # One pass serves all rounds with the same features, as with fixed arms.
            losses = [self._loss(member, self._penalty(member)).merged() for member in members]
            centres, rises = zip(*map(self._centre, members, losses), strict=True)
            found = furthest(losses, np.stack(centres), levels - np.array(rises), self.theta_bound, on_host(rows))
            return torch.from_numpy(found).to(self.theta_hat).reshape(x.shape)

    def _centre(self, member: Member, loss: Loss) -> tuple[Array, float]:
        """Return the loss's minimum over the ball, and its loss minus that of theta_hat."""
        estimate = self._read("theta_hat", member)
        norm = float(np.linalg.norm(estimate))
        if not norm > self.theta_bound:
            return estimate, 0.0
        centre = minimise(loss, estimate * (self.theta_bound / norm), self.theta_bound)
        partition = loss.link.log_partition(loss.predictors(estimate))
        return centre, float(loss.rise(loss.predictors(centre), centre, partition, estimate))


class LevelSetUCB(UCB[LevelSetEstimator]):
    """Base class of the policies that score arms by the upper bound of a level set.

    Cost of a decision among K arms: K upper bounds.
    """

    def _scores(self, features: Tensor) -> Tensor:
        """Return upper bounds of the predictors: ``(*B, ..., K, d)`` to ``(*B, ..., K)``."""
        return self.estimator.upper_bound(features)


class UpperBound(torch.autograd.Function):
    """Maximum of x'theta over a confidence set; its gradient is the maximiser."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, estimator: LevelSetEstimator) -> Tensor:
        ends = estimator.ends(x)
        ctx.save_for_backward(ends)
        return (x.to(ends.dtype) * ends).sum(-1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        # By the envelope theorem.
        (ends,) = ctx.saved_tensors
        return gradient.unsqueeze(-1) * ends, None
