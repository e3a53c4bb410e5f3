"""Stochastic convex losses, some of them changed by an adversary."""

from typing import Any

import torch
from torch import Tensor

from torchonline.core import checks
from torchonline.environments.sea import SEAStream


class CorruptedStream(SEAStream):
    r"""Stream of independent losses, some of them corrupted by an adversary.

    In rounds ``spacing``, 2 ``spacing``, ... the adversary adds :math:`\pm\text{corruption}\cdot\langle u/U, x\rangle` to the
    loss, with alternating signs, so that losses point away from the comparator u and back:

    .. math:: F_t(x) = h(x) + \langle a_t, x\rangle,\qquad f_t(x) = F_t(x) + \langle\xi_t, x\rangle,\qquad
              \textstyle\sum_{t \le T}\|a_t\| = C = \text{corruption}\,\lfloor T/\text{spacing}\rfloor .

    :math:`\sigma_t` = ``sigma`` in every round, and :math:`\Sigma_t` = ``corruption`` in each corrupted round and in the round
    after it, else 0, so that :math:`\Sigma^2_{1:T}` is at most 2C ``corruption``. For a spacing of 1 it is twice
    ``corruption`` from the second round on. After an even number of corruptions, u minimises the sum of the expected losses, in
    the sense of :class:`~torchonline.environments.SEAStream`. Regret is measured on the corrupted losses. The attributes are
    as in SEAStream. Cost of a round: O(d) per point.

    Args:
        dim: number of coordinates d.
        corruption: length of the vector that the adversary adds to a gradient, at least 0.
        spacing: rounds from one corruption to the next, at least 1.
        loss, sigma, comparator_norm, scale, cells: as for :class:`~torchonline.environments.SEAStream`.
        batch_shape, seed, dtype: as for :class:`~torchonline.environments.simulated.SimulatedBandit`.

    Example:
        >>> stream = CorruptedStream(3, corruption=2.0, spacing=3, loss="huber", sigma=0.0)
        >>> lengths = []
        >>> for _ in range(7):
        ...     lengths.append(round(float(stream.shift.norm()), 6))
        ...     stream.advance()
        >>> lengths
        [0.0, 0.0, 2.0, 0.0, 0.0, 2.0, 0.0]

    Reference:
        Sachs, Hadiji, van Erven and Guzman, Between stochastic and adversarial online convex optimization: improved regret bounds
        via smoothness, NeurIPS 2022, Section 4.2: :math:`\Sigma^2_{1:T} \le 4GC`. The adversary is our own.
    """

    def __init__(
        self,
        dim: int,
        *,
        corruption: float,
        spacing: int,
        loss: str = "huber",
        sigma: float | Tensor = 1.0,
        comparator_norm: float | Tensor = 1.0,
        scale: float = 1.0,
        cells: int = 1,
        batch_shape: tuple[int, ...] = (),
        seed: int = 0,
        dtype: torch.dtype = torch.float64,
    ) -> None:
        self.corruption = checks.non_negative("corruption", corruption)
        self.spacing = checks.positive_integer("spacing", spacing)
        shared: Any = {"loss": loss, "sigma": sigma, "comparator_norm": comparator_norm, "scale": scale, "cells": cells}
        super().__init__(dim, **shared, batch_shape=batch_shape, seed=seed, dtype=dtype)

    def _largest_gradient(self, radius: float) -> float:
        return super()._largest_gradient(radius) + self.corruption

    def _shift_of(self, number: int) -> Tensor:
        corruptions, since = divmod(number + 1, self.spacing)
        if since or number < 0:
            return torch.zeros_like(self.comparator)
        sign = 1.0 if corruptions % 2 else -1.0
        away = self.comparator.double() / self.comparator_norm.unsqueeze(-1)
        return (sign * self.corruption * away).to(self.dtype)
