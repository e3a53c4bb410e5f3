"""Plot of the privacy that a run spends, step by step."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from torchonline.core.axes import GREY, axes_or_new, label_right
from torchonline.privacy.accounting import Ledger

# Points of the curve.
POINTS = 128


def draw_spending(
    learners: Sequence[Any], ax: Any, delta: float, continuations: int | None, budgets: Mapping[str, float]
) -> tuple[Any, Any]:
    """Draw the epsilon of learners on one stream against steps, with named budgets.

    Past steps are a solid line, future steps a dotted one.
    """
    if any(learner.epsilon == math.inf for learner in learners):
        raise ValueError("epsilon: expected a finite number, got inf; without noise nothing is private")
    now = max(learner.steps_released() for learner in learners)
    horizon = max(max(2 * now, POINTS) if learner._is_endless else learner.horizon for learner in learners)
    steps = sorted({now, *(round(horizon * i / POINTS) for i in range(POINTS + 1))})
    spent = [_epsilon(learners, step, delta, continuations) for step in steps]
    axes, made = axes_or_new(ax), steps.index(now) + 1
    (line,) = axes.plot(steps[:made], spent[:made], "-")
    axes.plot(steps[made - 1 :], spent[made - 1 :], ":", color=line.get_color())
    axes.plot(now, spent[made - 1], "o", color=line.get_color())
    for name, value in budgets.items():
        limit = axes.axhline(value, color=GREY, linestyle="--", linewidth=1.0)
        label_right(axes, value, f"{name}: {value:g}", limit.get_color())
    label_right(axes, spent[made - 1], f"spent: {spent[made - 1]:.3g}", line.get_color())
    axes.set_xlim(0, horizon)
    axes.set_ylim(0.0, 1.1 * max([*spent, *budgets.values()]))
    axes.set_xlabel("step")
    axes.set_ylabel(f"epsilon at delta = {delta:g}, {learners[0].adjacency}")
    if any(learner.privacy_ledger().notes for learner in learners):
        axes.set_title("if nobody knew the seed", fontsize="medium")
    return axes.figure, axes


def _epsilon(learners: Sequence[Any], step: int, delta: float, continuations: int | None) -> float:
    """Return the joint epsilon of all learners' releases up to a step."""
    ledgers = [learner.ledger_after(min(step, learner.horizon), continuations) for learner in learners]
    return Ledger(ledgers[0].adjacency, tuple(event for ledger in ledgers for event in ledger.events)).epsilon(delta)
