"""An exception at any line that the library runs, as a signal handler or another thread may raise one."""

import linecache
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch

import torchonline
import torchonline.models

PACKAGES = tuple(str(Path(str(package.__file__)).parent) for package in (torchonline, torchonline.models))


class Interrupt(BaseException):
    """What a signal handler raises."""


class _Tracer:
    """Counts the lines of the library, and raises at one of them."""

    def __init__(self, line: int, at_with: bool) -> None:
        self.line, self.at_with, self.seen = line, at_with, 0

    def on_call(self, frame: FrameType, event: str, argument: Any) -> Any:
        return self.on_line if frame.f_code.co_filename.startswith(PACKAGES) else None

    def on_line(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line" and (self.at_with or not _is_with(frame)):
            self.seen += 1
            if self.seen == self.line + 1:
                raise Interrupt
        return self.on_line

    def during(self, call: Callable[[], object]) -> bool:
        before, has_grad, numpy_state = sys.gettrace(), torch.is_grad_enabled(), np.geterr()
        sys.settrace(self.on_call)
        try:
            call()
        except Interrupt:
            return True
        finally:
            sys.settrace(before)
            if self.at_with:
                torch.set_grad_enabled(has_grad)
                np.seterr(**numpy_state)
        return False


def _is_with(frame: FrameType) -> bool:
    return linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip().startswith("with ")


def interrupted(call: Callable[[], object], line: int, *, at_with: bool = True) -> bool:
    """Run a call and raise at one of the library's lines, counted from 0; return whether it had so many lines.

    Args:
        call: what to run.
        line: where to raise.
        at_with: whether a line with ``with`` counts. Tracing visits such a line once more before the block is left, where Python
            itself raises nothing; ``torch.no_grad()`` and ``np.errstate()`` are then put right here.
    """
    return _Tracer(line, at_with).during(call)


def lines_of(call: Callable[[], object]) -> int:
    """Return how many lines of the library a call runs, without those of ``with``."""
    tracer = _Tracer(-1, at_with=False)
    tracer.during(call)
    return tracer.seen


def is_free(lock: Any) -> bool:
    """Return whether another thread can take a lock."""
    seen: list[bool] = []

    def take() -> None:
        seen.append(lock.acquire(timeout=5.0))
        if seen[0]:
            lock.release()

    thread = threading.Thread(target=take)
    thread.start()
    thread.join()
    return seen[0]
