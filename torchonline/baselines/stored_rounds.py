"""Fixed-size histories, one row per round, of estimators that revisit rounds."""

import torch
from torch import Tensor

from torchonline.core.backend import in_python, is_at_hand
from torchonline.core.checks import refusal


def _check_room_in_python(rounds: Tensor, horizon: int) -> None:
    if is_at_hand(rounds) and int(rounds.max()) >= horizon:
        raise refusal(f"horizon: expected at most {horizon} rounds, as many as the history holds, got more")


@in_python(_check_room_in_python)
def check_room(rounds: Tensor, horizon: int) -> None:
    """Raise if the history is full; in TorchScript, :func:`append_` fails instead."""
    return


def append_(history: Tensor, rounds: Tensor, value: Tensor) -> None:
    """Write ``(*B, d)`` or ``(*B)`` to row ``rounds`` of a history ``(*B, T, ...)``."""
    if value.dim() > rounds.dim():
        history.scatter_(-2, rounds.unsqueeze(-1).unsqueeze(-1).expand_as(value.unsqueeze(-2)), value.unsqueeze(-2))
    else:
        history.scatter_(-1, rounds.unsqueeze(-1), value.unsqueeze(-1))


def count_filled(rounds: Tensor, horizon: int) -> int:
    """Count the filled rows, with this round's; ``horizon`` if the host cannot tell."""
    return int(rounds.max()) + 1 if is_at_hand(rounds) else horizon


def nonzero_norm(x: Tensor) -> Tensor:
    """Return Euclidean norms, at least 1e-30, as divisors: ``(..., d)`` to ``(...)``."""
    return torch.linalg.vector_norm(x, dim=-1).clamp(min=1e-30)
