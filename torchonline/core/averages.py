"""Refusal of averages of statistics, which torch computes from buffers."""

import sys
from types import FrameType

from torch.optim.swa_utils import AveragedModel

_CONSTRUCTOR = AveragedModel.__init__.__code__


def refuse_averages() -> None:
    """Raise if an ``AveragedModel`` with ``use_buffers=True`` copies the learner.

    The copy in its constructor is the only sign: later it writes into the buffers of the copy.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code is _CONSTRUCTOR and frame.f_locals.get("use_buffers"):
            raise RuntimeError(
                "use_buffers: expected False for an average of a module with learners, got True: averages of statistics belong "
                "to no rounds, and V_inv would not be the inverse of V; with False it has the statistics of the last model"
            )
        frame = frame.f_back
