"""The history of estimators that revisit all rounds.

A history is a buffer of fixed size. Each round fills one row. A round beyond the horizon is refused. Memory is O(horizon d),
and a round costs O(t d) or more.
"""

import torch
from torch import Tensor

from torchonline.core.backend import in_python, is_at_hand
from torchonline.core.checks import refusal


def _check_room_in_python(rounds: Tensor, horizon: int) -> None:
    if is_at_hand(rounds) and int(rounds.max()) >= horizon:
        raise refusal(f"horizon: expected at most {horizon} rounds, as many as the history holds, got more")


@in_python(_check_room_in_python)
def check_room(rounds: Tensor, horizon: int) -> None:
    """Refuse a round for which the history has no room.

    In TorchScript, :func:`append_` fails instead.
    """
    return


def append_(history: Tensor, rounds: Tensor, value: Tensor) -> None:
    """Write a row or a number of this round into a history.

    Args:
        history: ``(*B, T, d)``, or ``(*B, T)``.
        rounds: how many rounds the history has, ``(*B)``.
        value: ``(*B, d)``, or ``(*B)``.
    """
    at = rounds.unsqueeze(-1)
    if history.dim() > at.dim():
        at = at.unsqueeze(-1).expand_as(value.unsqueeze(-2))
        history.scatter_(-2, at, value.unsqueeze(-2))
    else:
        history.scatter_(-1, at, value.unsqueeze(-1))


def count_filled(rounds: Tensor, horizon: int) -> int:
    """Return how many rows of the history are filled, this round's included.

    It is ``horizon`` where the host cannot tell.
    """
    if is_at_hand(rounds):
        return int(rounds.max()) + 1
    return horizon


def nonzero_norm(x: Tensor) -> Tensor:
    """Return Euclidean norms, at least 1e-30, as divisors: ``(..., d)`` to ``(...)``."""
    return torch.linalg.vector_norm(x, dim=-1).clamp(min=1e-30)
