"""Large decisions, computed tile by tile."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchonline.core.backend import is_readable

# The entries of a tile's features: 512 KiB in float64. Of larger arrays, the system takes the memory back after each tile.
TILE = 1 << 16
# On an accelerator, a tile costs some 30 launches, and each of its intermediate results takes 64 MiB.
TILE_OF_ACCELERATORS = 1 << 23


def rows_of_tile(policy: Any, x: Tensor, is_by_arm: bool) -> int | None:
    """Return how many decisions make a tile, or how many arms; None for one pass.

    ``is_by_arm`` allows to split the arms of a decision, if they have inputs. Inputs that are traced or need a gradient, and
    those of batches of learners, are computed in one pass.
    """
    is_plain = (
        policy.takes_inputs and is_readable(x) and x.numel() and not (x.requires_grad and torch.is_grad_enabled())
    )
    if not is_plain or policy._dims():
        return None
    is_by_arm = is_by_arm and policy.item_dims == 2
    size = policy.estimator.dim * (1 if is_by_arm else policy._count(x))
    items = x.shape[: x.dim() - policy.item_dims + is_by_arm].numel()
    rows = max((TILE if x.is_cpu else TILE_OF_ACCELERATORS) // size, 1)
    return rows if rows < items else None


def in_tiles(
    ask: Callable[[Tensor, Tensor | None], Any], x: Tensor, mask: Tensor | None, item_dims: int, rows: int
) -> Any:
    """Return the answers to decisions, ``(..., *item)``, and a mask, ``(..., K)``.

    ``ask`` gets ``rows`` decisions at a time, and returns a tensor, an array or a tuple of tensors.
    """
    lead = x.shape[: x.dim() - item_dims]
    items = x.reshape(lead.numel(), *x.shape[x.dim() - item_dims :])
    masks = None if mask is None else mask.reshape(lead.numel(), -1)
    found = []
    for first in range(0, len(items), rows):
        part = slice(first, first + rows)
        found.append(ask(items[part], None if masks is None else masks[part]))
    if isinstance(found[0], tuple):
        return tuple(_joined(list(parts), lead) for parts in zip(*found, strict=True))
    return _joined(found, lead)


def scores_in_tiles(
    ask: Callable[[Tensor], Any], x: Tensor, mask: Tensor | None, rows: int, item_dims: int, is_by_arm: bool
) -> Any:
    """Return the scores of decisions, ``(..., K)``.

    With ``is_by_arm``, each arm is scored alone. Unavailable arms are not scored on the CPU, and get -inf there. On an
    accelerator, the host would have to wait for their number.
    """
    if not (is_by_arm and item_dims == 2):
        return in_tiles(lambda part, mask: ask(part), x, None, item_dims, rows)
    if mask is None or not x.is_cpu:
        return in_tiles(lambda part, mask: ask(part), x, None, 1, rows)
    arms, places = x.flatten(0, -2), mask.flatten().nonzero().squeeze(-1)
    scores = torch.full_like(arms[:, 0], -torch.inf)
    for part in places.split(rows):
        scores[part] = torch.as_tensor(ask(arms[part])).to(scores.dtype)
    return scores.view(mask.shape)


def _joined(parts: list[Any], lead: torch.Size) -> Any:
    if isinstance(parts[0], Tensor):
        return torch.cat(parts).unflatten(0, lead)
    found = np.concatenate(parts)
    return found.reshape(*lead, *found.shape[1:])
