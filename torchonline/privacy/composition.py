"""Accounting of several private learners on one stream."""

from collections.abc import Iterable

from torch import nn

from torchonline.privacy.accounting import Ledger
from torchonline.privacy.learners.base import PrivateLearner


def private_learners(module: nn.Module) -> dict[str, PrivateLearner]:
    """Return the outermost private learners in a module, by name."""
    found: dict[str, PrivateLearner] = {}
    for name, part in module.named_modules():
        # The ledger of a private learner covers its parts.
        is_inside = any(name.startswith(f"{outer}." if outer else "") for outer in found)
        if isinstance(part, PrivateLearner) and not is_inside:
            found[name] = part
    return found


def total_ledger(
    learners: Iterable[PrivateLearner], *, continuations: int | None = None, more_steps: int = 0
) -> Ledger:
    """Return the joint ledger of learners that learn from the same people.

    It holds the events of all learners. The squares of mu add up, and so do the rhos of zCDP, in whatever order the learners
    step: two learners with the same promise spend more than that promise. If the learners serve disjoint groups of people, use
    their separate ledgers: nobody then spends more than the largest epsilon.

    Args:
        learners: private learners of one adjacency.
        continuations: of each learner, see :meth:`~torchonline.privacy.learners.base.PrivateLearner.privacy_spent`.
        more_steps: further steps to count for each learner, up to its horizon.

    Example:
        >>> twins = [DPTOFW(2, horizon=100, epsilon=1.0, delta=1e-3) for _ in range(2)]
        >>> f"{total_ledger(twins, more_steps=100).epsilon(1e-3):.3f}"
        '1.514'
    """
    ledgers = []
    for learner in learners:
        steps = min(learner.horizon, int(learner.rounds) + more_steps)
        ledgers.append(learner.privacy_ledger(continuations, steps=steps or None))
    adjacencies = {ledger.adjacency for ledger in ledgers}
    if len(adjacencies) != 1:
        got = " and ".join(map(repr, sorted(adjacencies))) or "none"
        raise ValueError(f"learners: expected learners of one adjacency, whose epsilons add up, got {got}")
    events = tuple(event for ledger in ledgers for event in ledger.events)
    notes = tuple(dict.fromkeys(note for ledger in ledgers for note in ledger.notes))
    return Ledger(adjacencies.pop(), events, notes)
