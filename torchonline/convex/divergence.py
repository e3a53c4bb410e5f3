"""Warning about learners whose decisions lose in nearly all rounds."""

import warnings
from typing import Any

import numpy as np

from torchonline.core.backend import as_array, is_readable, may_hold
from torchonline.core.messages import counted
from torchonline.core.ops import at_least, at_most, dot

# A warning needs this many rounds, and wins below this share of the losses.
ROUNDS, SHARE = 100, 0.005


class DivergenceWarning(UserWarning):
    """Warning: decisions have cost more than the origin, in nearly all rounds.

    Most often the features are far from the learner's unit of length, or losses always turn against the decision. The warning is
    issued once per learner, in Python, on the CPU, and not with ``validate=False``.
    """


class DivergenceWatch:
    r"""Sums of a module's wins and losses against the origin.

    A round adds :math:`\langle g_t, x_t\rangle` to one of the two sums. If losses are convex,
    :math:`f_t(x_t) - f_t(0) \le \langle g_t, x_t\rangle`. If features are in units far too large, a decision costs much more than
    the origin in nearly every round. On well-scaled streams a learner soon wins too. The ratio of the sums does not depend on the
    unit of the loss. The sums are not buffers, because no decision depends on them, and copies and files do not have them.
    """

    def __init__(self) -> None:
        self.rounds, self.is_done = 0, False
        self.won: Any = 0.0
        self.lost: Any = 0.0

    def __getstate__(self) -> dict[str, Any]:
        return {"is_done": self.is_done}  # copies count from 0

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__()  # type: ignore[misc]
        self.is_done = state["is_done"]

    def product(self, decision: Any, gradients: Any) -> Any:
        r"""Return :math:`\langle g_t, x_t\rangle`, ``(*B)``; None off the CPU.

        Both are tensors, or both are arrays.
        """
        if self.is_done:
            return None
        if type(gradients) is not np.ndarray:
            if not gradients.is_cpu or not is_readable(gradients):
                return None
            decision, gradients = as_array(decision), as_array(gradients)
        return dot(decision, gradients)

    def count(self, product: Any) -> None:
        """Add a round, after the learner has learnt from it."""
        if product is not None:
            self.rounds += 1
            self.lost = self.lost + at_least(product, 0.0)
            self.won = self.won - at_most(product, 0.0)

    def warn(self, name: str, stacklevel: int) -> None:
        """Warn once, if any learner has won next to nothing."""
        if self.is_done or self.rounds < ROUNDS or not may_hold(self.won < SHARE * self.lost):
            return
        self.is_done = True
        text = (
            f"{name}: in {counted(self.rounds, 'round')} the decisions cost {np.max(self.lost):.3g} more than the "
            f"origin, and next to "
            "never less; scale the features (StandardScaler), take FreeGrad(per_coordinate=True), which needs no scales, or "
            "lower radius_bound or length_scale"
        )
        warnings.warn(text, DivergenceWarning, stacklevel=stacklevel)
