"""Early rounds of a policy under a running scaler, which are learnt again."""

import copy
from collections.abc import Mapping
from typing import Any, Unpack

import torch
from torch import Tensor

from torchonline.core.learner import Learner
from torchonline.core.ops import along, beside_each_other, joined, number, put_row_, row_at, where
from torchonline.core.options import LearnerOptions

# A power of two.
KEPT = 32
# With two rows, the size of a standardised feature would not depend on the row.
FIRST = 3


class EarlyRounds(Learner):
    r"""The first 32 rounds of a policy, whose features were standardised too early.

    After round n = 2^k + j, from the third to the 63rd, with j from 0 to 2^k - 1, the policy converts round j to the scaler's
    present coordinates: the old features leave the statistics of their estimator, and the new ones enter. So each of these
    rounds is renewed once for each doubling of the number of rounds, and a step renews at most one round.

    Cost: O(d + m) to remember a round of d raw and m standardised features.

    Args:
        dim: d, number of raw features.
        features: m, number of features that the estimator gets.
        batch_shape, dtype, device, validate: options of all learners, see :class:`~torchonline.core.learner.Learner`.

    Shape:
        - ``records``, ``(*B, 32, d + m + 3)``: for each round, the raw features, the weighted features, the weight, the target
          that was learnt, and the arm.
    """

    records: Tensor

    def __init__(self, dim: int, features: int, **options: Unpack[LearnerOptions]) -> None:
        super().__init__(dim, **options)
        self.features = features
        # TorchScript does not see a module's constants.
        self.kept, self.first, self.doublings = KEPT, FIRST, KEPT.bit_length() - 1
        self._create_buffers()

    def _initial_state(self) -> dict[str, Tensor | None]:
        return {"records": torch.zeros((KEPT, self.dim + self.features + 3), dtype=torch.float64)}

    @torch.jit.export
    def are_early(self, rounds: Tensor) -> Tensor:
        """Return whether the next round is kept or followed by a renewal: ``(*B)`` twice."""
        return number(rounds) < 2 * self.kept - 1

    @torch.jit.export
    def is_kept(self, rounds: Tensor) -> Tensor:
        """Return whether the next round is kept: ``(*B)`` twice."""
        return number(rounds) < self.kept

    @torch.jit.export
    def keep_(self, rounds: Tensor, x: Tensor, a: Tensor, weight: Tensor, target: Tensor, arm: Tensor) -> None:
        """Record a round if it is one of the first 32.

        ``rounds`` counts the rounds before it; shapes are ``(*B)``, ``(*B, d)``, ``(*B, m)`` and ``(*B)`` three times.
        """
        count, is_kept = number(rounds), self.is_kept(rounds)
        index = where(is_kept, count, 0 * count)
        new = self._record(x, a, weight, target, arm)
        put_row_(self.records, index, where(along(is_kept, new), new, row_at(self.records, index)))

    def _record(self, x: Tensor, a: Tensor, weight: Tensor, target: Tensor, arm: Tensor) -> Tensor:
        """Return a round as a row of the records: the reverse of :meth:`recall`."""
        return joined(joined(joined(beside_each_other(x, a), weight), target), arm)

    @torch.jit.export
    def is_due(self, rounds: Tensor) -> Tensor:
        """Return whether a round is renewed after ``rounds`` rounds: ``(*B)`` twice."""
        count = number(rounds)
        return (count >= self.first) & (count < 2 * self.kept)

    @torch.jit.export
    def place(self, rounds: Tensor) -> Tensor:
        """Return the index of the round to renew: ``rounds`` without its highest bit."""
        count = number(rounds)
        top = 1 + 0 * count
        for _ in range(self.doublings):
            top = where(count >= 2 * top, 2 * top, top)
        return where(count < 2 * self.kept, count - top, 0 * count)

    @torch.jit.export
    def recall(self, place: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Return a round's raw features, weighted features, weight, target and arm."""
        record, end = row_at(self.records, place), self.dim + self.features
        weight, target, arm = record[..., end], record[..., end + 1], record[..., end + 2]
        return record[..., : self.dim], record[..., self.dim : end], number(weight), number(target), number(arm)

    @torch.jit.export
    def renew_(self, place: Tensor, x: Tensor, a: Tensor, weight: Tensor, target: Tensor, arm: Tensor) -> None:
        """Write back a round from :meth:`recall`, with new features ``a``."""
        put_row_(self.records, place, self._record(x, a, weight, target, arm))

    # TorchScript does not compile the methods below.

    def with_arms(self, kept: list[int]) -> "EarlyRounds":
        """Return a copy for the kept arms, given by their old positions, ascending.

        Rounds of removed arms are not renewed again.
        """
        twin = copy.deepcopy(self)
        numbers, rest = self.records[..., -1], twin.records[..., self.dim :]
        old = torch.tensor(kept, dtype=numbers.dtype, device=numbers.device)
        place = torch.searchsorted(old, numbers.contiguous()).clamp(max=len(kept) - 1)
        rest[..., -1].copy_(place)
        # Features of weight 0 change nothing.
        rest.masked_fill_((old[place] != numbers).unsqueeze(-1), 0.0)
        return twin

    def _load_problems(self, state_dict: Mapping[str, Any], prefix: str) -> list[str]:
        problems = super()._load_problems(state_dict, prefix)
        name = f"{prefix}records"
        if not problems and not bool(torch.isfinite(state_dict[name]).all()):
            problems.append(f"{name}: expected finite numbers, got an infinity")
        return problems
