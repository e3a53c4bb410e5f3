"""Estimators that keep all rounds, and so cost more with each of them."""

import torch
from torch import Tensor

from torchonline.bandits.estimator import Estimator
from torchonline.core.backend import is_at_hand
from torchonline.core.checks import positive_integer


class HistoryEstimator(Estimator):
    """Base of estimators that go over all rounds again: memory is O(horizon d), and a round costs O(t d) or more.

    The history has a fixed size, so that it is a buffer like all else; a round beyond ``horizon`` is refused.
    """

    history: Tensor

    def _keep(self, horizon: int) -> None:
        """Set the size of the history, before the buffers are made."""
        self.horizon = positive_integer("horizon", horizon)
        # The passes over the history run on tensors.
        self.is_small = False

    def _initial_state(self) -> dict[str, Tensor | None]:
        return super()._initial_state() | {"history": torch.zeros(self.horizon, self.dim, dtype=torch.float64)}

    def _check_room(self) -> None:
        """Refuse a round for which there is no room. Eager Python only."""
        if is_at_hand(self.rounds) and int(self.rounds.max()) >= self.horizon:
            raise ValueError(f"horizon: expected at most {self.horizon} rounds, as many as the history holds, got more")

    def _append(self, buffer: Tensor, value: Tensor) -> None:
        """Write a row, or a number, of this round into a history: ``(*B, T, d)`` and ``(*B, d)``, or without d."""
        at = self.rounds.unsqueeze(-1)
        if buffer.dim() > at.dim():
            at = at.unsqueeze(-1).expand_as(value.unsqueeze(-2))
            buffer.scatter_(-2, at, value.unsqueeze(-2))
        else:
            buffer.scatter_(-1, at, value.unsqueeze(-1))

    def _filled(self) -> int:
        """How many rows of the history to go over, once this round is in it: all of it where counting would stall."""
        if is_at_hand(self.rounds):
            return int(self.rounds.max()) + 1
        return self.horizon


def nonzero_norm(x: Tensor) -> Tensor:
    """The Euclidean norm, and not 0: it is divided by."""
    return torch.linalg.vector_norm(x, dim=-1).clamp(min=1e-30)
