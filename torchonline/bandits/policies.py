"""Policies: how an estimator's mean and uncertainty become a choice."""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.jit import is_scripting

from torchonline.bandits.estimator import Estimator
from torchonline.core.checks import check_array, check_shape, check_tensor, check_values, shape_text
from torchonline.core.learner import SMALL_PRODUCT, NumpyView
from torchonline.core.ops import along, as_array, autocasts, exactly, is_readable, roundoff, trace
from torchonline.linalg import add_diagonal


class Policy(nn.Module):
    """Base of all policies: an estimator, a score for each arm, and the choice of the highest.

    A round, for the caller::

        k = policy.select(arms)
        policy.step(arms[k], reward)

    A subclass says how arms are scored, in :meth:`forward`.

    Args:
        estimator: holds the statistics, and the ``batch_shape`` ``*B``.
    """

    def __init__(self, estimator: Estimator) -> None:
        super().__init__()
        if not isinstance(estimator, Estimator):
            raise TypeError(f"estimator: expected an Estimator, got {type(estimator).__name__}")
        self.estimator = estimator

    def forward(self, arms: Tensor) -> Tensor:
        """The score of each arm: ``(*B, ..., K, d)`` to ``(*B, ..., K)``."""
        raise NotImplementedError

    @torch.jit.export
    def select(self, arms: Tensor, mask: Tensor | None = None) -> Tensor:
        """The index of the chosen arm of each decision; the lowest among equal scores. Changes no state.

        Rounding may tell the scores of equal arms apart.

        Args:
            arms: features, ``(*B, ..., K, d)``: one decision, or many, made from the same state.
            mask: True where an arm is available, ``(*B, ..., K)``; all are otherwise. What an unavailable arm's features
                hold does not matter as long as they are finite.

        Returns:
            ``(*B, ...)``, int64.

        Raises:
            TypeError: ``arms`` is no floating-point tensor, or ``mask`` no boolean one.
            ValueError: a shape, device or value is wrong, or a decision has no available arm.
        """
        if not is_scripting():
            estimator: Any = self._modules["estimator"]  # a fifth of the time of self.estimator
            arms = self._check_select(estimator, arms, mask)
            # The scores that a subclass, or an instance, has put in the place of ours may call torch.
            if type(self).forward in ON_ARRAYS and "forward" not in self.__dict__:
                view = estimator.view_for(arms)
                if view is not None and arms.numel() * estimator.dim < SMALL_PRODUCT:
                    return self._select_on_numpy(view, arms, mask)
            if estimator.validate and is_readable(arms):
                check_values("arms", arms)
        with torch.no_grad():
            scores = self.forward(arms.detach())
            if mask is not None:
                scores = scores.masked_fill(~mask, -math.inf)
            return scores.argmax(-1)

    @torch.jit.export
    def step(self, x: Tensor, reward: Tensor, noise_scale: Tensor | None = None) -> None:
        """Learn from the reward of a decision, or from several in order: see :meth:`Estimator.step`."""
        if not is_scripting():
            estimator: Any = self._modules["estimator"]
            estimator.step(x, reward, noise_scale)
            return
        self.estimator.step(x, reward, noise_scale)

    # What follows is eager Python only: TorchScript and torch.export never reach it.

    def _check_select(self, estimator: Estimator, arms: Tensor, mask: Tensor | None) -> Tensor:
        state: Any = estimator._buffers["theta_hat"]
        arms = check_tensor("arms", arms, state)
        batch, dims, shape = estimator.batch_shape, estimator.batch_dims, arms.shape
        if len(shape) < dims + 2 or shape[-1] != estimator.dim or shape[-2] == 0 or (dims and shape[:dims] != batch):
            wanted = shape_text((*batch, "...", "K", estimator.dim))
            raise ValueError(f"arms: expected shape {wanted} with K > 0, got {shape_text(shape)}")
        if mask is not None:
            self._check_mask(mask, arms)
        return arms

    def _check_mask(self, mask: Tensor, arms: Tensor) -> None:
        if not isinstance(mask, Tensor):
            raise TypeError(f"mask: expected a torch.Tensor, got {type(mask).__name__}")
        if mask.dtype != torch.bool:
            raise TypeError(f"mask: expected torch.bool, True where an arm is available, got {mask.dtype}")
        if mask.device != arms.device:
            raise ValueError(f"mask: expected a tensor on {arms.device}, got one on {mask.device}")
        check_shape("mask", mask, arms.shape[:-1])
        if self.estimator.validate and is_readable(mask) and not bool(mask.any(-1).all()):
            raise ValueError("mask: expected an available arm in each decision, got one with none")

    def _select_on_numpy(self, view: NumpyView, arms: Tensor, mask: Tensor | None) -> Tensor:
        rows = as_array(arms)
        if view.learner.validate:
            check_array("arms", rows)
        stand_in: Any = object.__new__(type(self))
        stand_in.__dict__["estimator"] = view.learner
        scores = view.run(stand_in.forward, rows)
        if mask is not None:
            scores = np.where(as_array(mask), scores, -math.inf)
        return torch.from_numpy(np.asarray(scores.argmax(-1)))


class UCB(Policy):
    r"""Optimism: play the arm whose upper confidence bound is largest.

    .. math:: \text{score}_k = x_k^\top\hat\theta + \beta\,\|x_k\|_M

    with the estimator's ``radius`` :math:`\beta` and ``width``. When the estimator's confidence set holds, no score is
    below its arm's mean reward, and the regret of a round is at most twice the chosen arm's :math:`\beta\|x_k\|_M`.

    Cost of a decision among K arms: O(K d^2), one matrix product.

    Args:
        estimator: any :class:`~torchonline.bandits.estimator.Estimator`.

    Example:
        >>> policy = UCB(RidgeRegression(2))
        >>> arms = torch.eye(2, dtype=torch.float64)
        >>> policy.step(arms[0], torch.tensor(1.0))
        >>> policy(arms)
        tensor([3.4324, 4.1470], dtype=torch.float64)
        >>> policy.select(arms)
        tensor(1)
    """

    def forward(self, arms: Tensor) -> Tensor:
        """Upper confidence bounds: ``(*B, ..., K, d)`` to ``(*B, ..., K)``."""
        predictor = self.estimator.predictor(arms)
        return predictor + along(self.estimator.radius(), predictor) * self.estimator.width(arms)


class ThompsonSampling(Policy):
    r"""Posterior sampling: draw one parameter from the confidence ellipsoid, and play its best arm.

    .. math:: \tilde\theta = \hat\theta + \beta M^{1/2}\eta,\quad \eta \sim N(0, I),\qquad
              \text{score}_k = x_k^\top\tilde\theta

    One draw serves all arms of a decision; the decisions of a batch get one each. The draw is as wide as the
    estimator's ``radius``, which is what the regret bound :math:`\tilde O(d^{3/2}\sqrt T)` of Abeille and Lazaric
    (Linear Thompson sampling revisited, AISTATS 2017) asks for under sub-Gaussian noise and ridge regression. Over other
    estimators it is the same recipe without that theorem. Draws follow torch's global seed.

    Cost of a decision: O(d^3) for a Cholesky factor, then O(K d).

    Args:
        estimator: any :class:`~torchonline.bandits.estimator.Estimator`.

    Example:
        >>> _ = torch.manual_seed(0)
        >>> policy = ThompsonSampling(RidgeRegression(2))
        >>> policy.select(torch.eye(2, dtype=torch.float64))
        tensor(0)
    """

    def forward(self, arms: Tensor) -> Tensor:
        """Scores under one fresh draw for each decision: ``(*B, ..., K, d)`` to ``(*B, ..., K)``."""
        if not is_scripting():
            if autocasts(arms):
                with exactly(arms):
                    return self.forward(arms)
        estimator = self.estimator
        arms = arms.to(estimator.theta_hat.dtype)
        matrix = estimator.width_matrix()
        factor, _ = torch.linalg.cholesky_ex(add_diagonal(matrix, 8.0 * roundoff(matrix) * trace(matrix)))
        noise = estimator.grouped(torch.randn_like(arms[..., 0, :]))
        noise = along(estimator.radius(), noise) * (noise @ factor.mT)
        theta = (estimator.theta_hat.unsqueeze(-2) + noise).reshape(arms.shape[:-2] + (arms.size(-1), 1))
        return (arms @ theta).squeeze(-1)


class Greedy(Policy):
    """No exploration: play the arm with the largest estimated mean. A baseline; no regret bound holds.

    Cost of a decision among K arms: O(K d).

    Args:
        estimator: any :class:`~torchonline.bandits.estimator.Estimator`.

    Example:
        >>> policy = Greedy(RidgeRegression(2))
        >>> policy.step(torch.tensor([0.0, 1.0]), torch.tensor(1.0))
        >>> policy.select(torch.eye(2, dtype=torch.float64))
        tensor(1)
    """

    def forward(self, arms: Tensor) -> Tensor:
        """Estimated means: ``(*B, ..., K, d)`` to ``(*B, ..., K)``."""
        return self.estimator.predictor(arms)


# The scores that are written against torchonline.core.ops, and so run on NumPy views.
ON_ARRAYS = (UCB.forward, Greedy.forward)
