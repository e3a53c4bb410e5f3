"""The compiled core of small rounds, and when a learner has one.

``_compiled.c`` does what a few methods of the library do on NumPy views, in a tenth of the time. It is optional. The methods are
its reference. Python runs them where there was no compiler, for all other learners and subclasses, and in rare rounds, such as
those before a restart.
"""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from torch import nn

from torchonline.core.precision_matrix import REFINE_EVERY

if TYPE_CHECKING:
    from torchonline.core.learner import Learner

try:
    from torchonline.core import _compiled
except ImportError:  # the package was built without a compiler
    _compiled = None  # type: ignore[assignment]

C = TypeVar("C", bound=type)

# Whether new views get a core. TORCHONLINE_COMPILED=0 in the environment is for comparisons and for the search for an error.
is_on = _compiled is not None and os.environ.get("TORCHONLINE_COMPILED", "1") != "0"

# What a core's `learn` returns: Python has to learn the round; the core has learnt it; and a scaler is due for its review.
LEFT, LEARNT, REVIEW = 0, 1, 2

# BLAS is faster than the core's loops from about so many multiplications in a decision on, and entries of one matrix in a round.
MOST_OF_DECISION, MOST_OF_ROUND = 1 << 16, 1 << 16
# A round that grows V less, in its direction, needs no other check, in either precision.
MOST_GROWTH = 2.0**23

# The classes that a core knows, with their methods as the library wrote them.
KNOWN: dict[type, dict[str, Any]] = {}


def with_core(cls: C) -> C:
    """Decorate a class whose methods, as they are now, ``_compiled.c`` replaces."""
    KNOWN[cls] = methods_of(cls)
    return cls


def methods_of(cls: type) -> dict[str, Any]:
    """Return the methods of a learner's class, without nn.Module's, by name."""
    bases = [base for base in reversed(cls.__mro__) if base not in nn.Module.__mro__]
    return {name: value for base in bases for name, value in vars(base).items() if callable(value)}


def is_known(learner: "Learner") -> bool:
    """Return whether a learner has the library's methods.

    A subclass has not, nor has a learner one of whose methods was replaced, in its class or in itself.
    """
    cls = type(learner)
    methods = KNOWN.get(cls)
    return methods is not None and methods_of(cls) == methods and methods.keys().isdisjoint(learner.__dict__)


def core_of(learner: "Learner", values: dict[str, Any]) -> Any:
    """Return the core of a learner, or None.

    ``values`` are the arrays and options that ``_compiled.c`` names.
    """
    matrix = values["V"]
    if not is_on or matrix.dtype != np.float64 or matrix.shape[-1] ** 2 > MOST_OF_ROUND or not is_known(learner):
        return None
    own = {
        "refine_every": REFINE_EVERY,
        "most_growth": MOST_GROWTH,
        "is_classic": values.get("radius_kind") == "classic",
    }
    return _compiled.Core(values | own)


def scorer(core: Any, arms: int | None, multiplications: int) -> Callable[[Any], Any]:
    """Return a function from the inputs of a decision to its scores.

    It returns None where NumPy is to compute them. ``arms`` is None if the arms have rows of their own. ``multiplications`` are
    those for one arm.
    """

    def scores(x: Any) -> Any:
        count = arms or len(x)
        if x.ndim != (1 if arms else 2) or count * multiplications > MOST_OF_DECISION:
            return None
        out = np.empty(count)
        core.scores(x, out)
        return out

    return scores


def best_of(scores: Any) -> int:
    """Return the index of the largest score of one decision; -1 to ask NumPy."""
    return _compiled.best(scores) if is_on else -1


def sum_of_squares(x: np.ndarray) -> float:
    """Return the sum of an array's squares, which overflows without a warning."""
    found = _compiled.sum_of_squares(x) if is_on else -1.0
    return float(np.vdot(x, x)) if found < 0.0 else found
