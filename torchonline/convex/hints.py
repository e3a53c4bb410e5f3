"""Base class of the learners that take a hint of the next round by ``set_hint``."""

from typing import Any

import torch
from torch import Tensor

from torchonline.convex.learner import ConvexLearner
from torchonline.core.backend import in_python, is_readable
from torchonline.core.checks import check_shape, check_values
from torchonline.core.inputs import check_tensor
from torchonline.core.ops import assign_


class HintedLearner(ConvexLearner):
    """Base class of the learners that take a hint: a guess of the next gradient, or of the experts' next losses.

    A subclass has a buffer ``hint``, shaped like ``decision``, and says how the decision follows it (:meth:`_decide_`).
    """

    hint: Tensor

    def _decide_(self) -> None:
        """Write the next decision, by ``hint`` and all other buffers."""
        raise NotImplementedError

    def _cut_hint(self, hint: Tensor) -> Tensor:
        """Return a hint, ``(*B, d)``, scaled down to where the guarantee holds."""
        return hint

    def _set_hint_in_python(self, hint: Any) -> None:
        self._tell(self._set_hint_, checked_hint(hint, self.decision, self.validate))

    @torch.jit.export
    @in_python(_set_hint_in_python)
    def set_hint(self, hint: Tensor) -> None:
        """Replace the hint of the next round. The decision follows it.

        The hint may depend on all that is known before the round. How long it is used, and whether it is scaled down, is in
        the description of the class.

        Args:
            hint: guess of the next gradient, or of the next losses, ``(*B, d)``.

        Raises:
            TypeError: ``hint`` holds no real numbers, or is a tensor of integers.
            ValueError: its shape, device or values are wrong. No buffer has changed.
        """
        self._set_hint_(hint)

    def _set_hint_(self, hint: Tensor) -> None:
        with torch.no_grad():
            assign_(self.hint, self._cut_hint(hint.detach().to(self.decision.dtype)))
            self._decide_()


def checked_hint(hint: Any, like: Tensor, validate: bool) -> Tensor:
    """Return a hint in the type and shape of a decision or of gradients, or raise."""
    hint = check_tensor("hint", hint, like)
    check_shape("hint", hint, like.shape)
    if validate and is_readable(hint):
        check_values("hint", hint)
    return hint
