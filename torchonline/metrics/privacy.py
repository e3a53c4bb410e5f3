"""Privacy that learners have spent."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from torchonline.core.checks import instance_of, positive_integer, within
from torchonline.metrics.base import ExactMetric
from torchonline.privacy.accounting import ADJACENCIES, GaussianAccountant, PureAccountant, ZCDPAccountant
from torchonline.privacy.composition import total_ledger
from torchonline.privacy.learners.base import PrivateLearner

ACCOUNTANTS = (GaussianAccountant, ZCDPAccountant, PureAccountant)


class PrivacySpent(ExactMetric):
    r"""Epsilon, at a given delta, of everything that private learners have released.

    The metric reads the learners' step counters and ledgers, never a record. Its value is the cost of one run times the number m
    of runs. It never decreases, and :meth:`reset` does nothing. Loading a state keeps the larger of the old and the loaded
    values. If either has counted a step, loading also adds one to m, as loading a learner does: the run releases earlier people
    once more.

    Over several processes ``compute`` takes the largest costs and number of runs of all ranks, as if one process had been
    updated with the learners of each rank in turn. All ranks must have one adjacency.

    The epsilon is valid after a number of steps that was fixed in advance: see
    :meth:`~torchonline.privacy.learners.base.PrivateLearner.privacy_spent`. Cost of ``update`` or ``compute``: one evaluation
    of a ledger, for most mechanisms independent of the number of steps.

    Args:
        delta: in (0, 1).
        continuations: number m of runs, if the count of loads is wrong; None uses the count.

    Shape:
        - ``update(*learners)``: all learners of one stream of people. Costs add up within a call. Across calls the largest
          cost counts.
        - ``compute()``: epsilon, a float64 number; 0 before the first step, infinity without noise.

    Raises:
        TypeError, ValueError: an argument of ``update`` is not a private learner, or adjacencies differ, also between ranks. No
            state has changed.

    Example:
        >>> learner, metric = DPTOFW(2, horizon=100, epsilon=1.0, delta=1e-3), PrivacySpent(delta=1e-3)
        >>> for _ in range(100):
        ...     learner.step(None)
        >>> metric.update(learner)
        >>> f"{metric.compute():.3f}"
        '1.000'
    """

    higher_is_better = False
    least = {"rounds": 0, "runs": 1, "relation": -1, "cost": 0.0}

    runs: Tensor
    relation: Tensor
    cost: Tensor

    def __init__(self, delta: float, *, continuations: int | None = None) -> None:
        super().__init__()
        self.delta = within("delta", delta, 0.0, 1.0)
        self.named = f"epsilon at delta = {self.delta:g}"
        self.continuations = None if continuations is None else positive_integer("continuations", continuations)
        zero = torch.zeros((), dtype=torch.int64)
        # Relation: index of the adjacency, -1 before the first update. Cost: of one run, in the order of ACCOUNTANTS, infinite
        # where an accountant cannot compute it.
        self._add_states("max", rounds=zero, runs=zero + 1, cost=torch.zeros(3, dtype=torch.float64))
        self._add_states(_one_relation, relation=zero - 1)

    def update(self, *learners: PrivateLearner) -> None:
        """Record the cost of all learners of one stream."""
        self._refuse_synced()
        for learner in learners:
            instance_of("learners", learner, PrivateLearner, "private learners")
        ledger = total_ledger(learners, continuations=1)
        relation = ADJACENCIES.index(ledger.adjacency)
        if int(self.relation) not in (-1, relation):
            before = ADJACENCIES[int(self.relation)]
            raise ValueError(f"learners: expected adjacency {before!r}, as before, got {ledger.adjacency!r}")
        costs = [event.costs() for event in ledger.events]
        cost = [math.fsum(each.get(accountant.cost, math.inf) for each in costs) for accountant in ACCOUNTANTS]
        rounds = max(max(int(learner.rounds), int(learner.furthest)) for learner in learners)
        runs = max(int(learner.continuations) for learner in learners)
        self._raise_to({"rounds": rounds, "runs": runs, "relation": relation, "cost": cost})

    def compute(self) -> Tensor:
        """Return epsilon, the smallest over the accountants."""
        runs, found = self.continuations or int(self.runs), [math.inf]
        for kind, cost in zip(ACCOUNTANTS, self.cost.tolist(), strict=True):
            if cost < math.inf:
                accountant = kind(ADJACENCIES[max(0, int(self.relation))])
                accountant.total = runs * cost
                found.append(accountant.epsilon(self.delta))
        return self.cost.new_tensor(min(found))

    def reset(self) -> None:
        """Do nothing: a release cannot be undone."""

    def _raise_to(self, values: Mapping[str, Any]) -> None:
        """Raise each state to at least the given value."""
        for name, value in values.items():
            state = getattr(self, name)
            setattr(self, name, torch.maximum(state, torch.as_tensor(value, dtype=state.dtype, device=state.device)))

    def _problems(self, loaded: Mapping[str, Any]) -> list[str]:
        if problems := super()._problems(loaded):
            return problems
        theirs, mine = int(loaded["relation"]), int(self.relation)
        if theirs >= len(ADJACENCIES) or (mine != theirs and -1 not in (mine, theirs)):
            return [f"relation: expected the adjacency of this metric, {mine}, got {theirs}"]
        return []

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *args: Any) -> None:
        before, errors = {name: getattr(self, name) for name in self._defaults}, len(args[-1])
        is_there = f"{prefix}rounds" in state_dict
        super()._load_from_state_dict(state_dict, prefix, *args)
        if is_there and len(args[-1]) == errors:
            self._raise_to(before)
            self.runs = self.runs + int(self.rounds > 0)
            self._update_count = int(self.rounds)


def _one_relation(relations: Tensor) -> Tensor:
    """Return the adjacency of all ranks, or raise if there are two.

    Costs in different adjacencies have no maximum.
    """
    known = [ADJACENCIES[i] for i in relations.unique().tolist() if i >= 0]
    if len(known) > 1:
        raise ValueError(f"sync: expected learners of one adjacency on all ranks, got {' and '.join(map(repr, known))}")
    return relations.max()
