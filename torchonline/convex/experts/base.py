"""Base class of the learners that weight experts, and functions of log-weights."""

import math
from typing import Any, Unpack

import torch
from torch import Tensor

from torchonline.convex.learner import HintedLearner
from torchonline.core.backend import in_python, may_hold
from torchonline.core.checks import one_for_each, one_of
from torchonline.core.inputs import check_mask
from torchonline.core.ops import assign_, count_, exp, increase_, largest, logsumexp, nonzero, where
from torchonline.core.options import LearnerOptions
from torchonline.linalg import entropy_prox

# kappa of the corrections. The proof needs at least 4.
KAPPAS = {"default": 6.0, "paper": 32.0}


class Experts(HintedLearner):
    """Base class of the learners that weight N experts.

    The decision is the experts' weights, and the gradients are their losses. A subclass defines how it learns (:meth:`_learn_`),
    how it decides (:meth:`_decide_`) and how large losses may be (:meth:`_cut`).
    """

    rates: Tensor
    available: Tensor
    clipped_rounds: Tensor

    renamed = {"clipped": "clipped_rounds"}
    argument_of = {"kappa": "preset"}

    def __init__(self, experts: int, *, preset: str, **options: Unpack[LearnerOptions]) -> None:
        super().__init__(experts, **options)
        self.preset = one_of("preset", preset, tuple(KAPPAS))
        self.kappa = KAPPAS[preset]

    def _of_each(self, name: str, value: Any) -> tuple[float, ...]:
        """Return a positive number for each expert, from one for all or one for each."""
        return tuple(one_for_each(name, value, (self.dim,), self._size).tolist())

    def _initial_state(self) -> dict[str, Tensor | None]:
        state, available = super()._initial_state(), torch.ones(self.dim, dtype=torch.bool)
        return state | {"hint": state["decision"], "available": available, "clipped_rounds": state["rounds"]}

    def _learn_(self, losses: Tensor) -> None:
        """Learn from losses, ``(*B, N)``."""
        raise NotImplementedError

    def _cut(self, losses: Tensor) -> Tensor:
        """Return losses, ``(*B, N)``, clipped to where the guarantee holds."""
        raise NotImplementedError

    def _set_available_in_python(self, mask: Any) -> None:
        mask = check_mask("mask", mask, tuple(self.available.shape), self.available, self.validate)
        self._tell(self._set_available_, mask)

    @torch.jit.export
    @in_python(_set_available_in_python)
    def set_available(self, mask: Tensor) -> None:
        """Set which experts are available from now on, and update the weights.

        An unavailable expert has weight 0 for any losses. It returns with the share of the total weight that it left with.
        ``mask`` is ``(*B, N)``, True where an expert is available, with at least one True. A wrong mask raises TypeError or
        ValueError, and changes no buffer.
        """
        self._set_available_(mask)

    def _set_available_(self, mask: Tensor) -> None:
        with torch.no_grad():
            assign_(self.available, mask)
            self._decide_()

    def _observe(self, gradients: Tensor, values: Tensor | None) -> None:
        self._observe_and_expect(gradients, None, None)

    def _observe_and_expect(self, losses: Tensor, hint: Tensor | None, available: Tensor | None) -> None:
        """Learn from losses, and write the next weights from a hint and a mask."""
        cut = self._cut(losses)
        if may_hold(cut != losses):
            far = abs(losses - cut) > 1e-6 * (abs(losses) + abs(self.hint))
            increase_(self.clipped_rounds, (far & self.available).any(-1))
        self._learn_(cut)
        assign_(self.hint, cut if hint is None else hint)
        if available is not None:
            assign_(self.available, available)
        count_(self.rounds)
        self._decide_()

    def _mask(self) -> Tensor | None:
        """Return the availability mask, or None if the host knows that it is all True."""
        return self.available if may_hold(~self.available) else None


def masked(logs: Tensor, mask: Tensor) -> Tensor:
    """Replace logarithms by minus infinity where a mask is False."""
    return where(mask, logs, logs - math.inf)


def shares(logs: Tensor, mask: Tensor | None) -> Tensor:
    """Return weights ``(..., N)``: of sum 1 over the masked experts, 0 elsewhere."""
    # Relative to the largest, because far below 0 the logarithm of a sum would lose its digits.
    if mask is None:
        weights = exp(logs - largest(logs)[..., None])
        return weights / weights.sum(-1)[..., None]
    some = masked(logs, mask)
    found = (some > -math.inf).any(-1)[..., None]
    weights = exp(some - largest(where(found, some, 0.0 * found))[..., None])
    return weights / nonzero(weights.sum(-1)[..., None])


def among(before: Tensor, logs: Tensor, mask: Tensor | None) -> Tensor:
    """Renormalize the masked experts to their former total weight. Keep the others."""
    if mask is None:
        return logs - logsumexp(logs)[..., None]
    then, now = masked(before, mask), masked(logs, mask)
    return where(now > -math.inf, now - log_share(now) + log_share(then), before)


def log_share(logs: Tensor) -> Tensor:
    """Return ``logsumexp(logs)``, ``(..., 1)``; 0 if all are minus infinity."""
    some = (logs > -math.inf).any(-1)[..., None]
    return logsumexp(where(some, logs, 0.0 * some))[..., None]


def prox_among(log_weights: Tensor, cost: Tensor, rates: Tensor, mask: Tensor | None) -> Tensor:
    """Apply ``entropy_prox`` to the masked experts, which keep their total weight."""
    if mask is None:
        return entropy_prox(log_weights, cost, rates)
    some = masked(log_weights, mask)
    share = log_share(some)
    return where(mask, share + entropy_prox(some - share, cost, rates), log_weights)
