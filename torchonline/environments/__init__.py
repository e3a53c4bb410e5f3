"""Simulated streams with a known best decision, and environments from tables."""

import typing
import warnings
from typing import Any

from torchonline.core.lazy_names import lazy_names
from torchonline.environments.corrupted import CorruptedStream
from torchonline.environments.generalized import GeneralizedLinearBandit
from torchonline.environments.linear import DriftingBandit, LinearBandit, VaryingNoiseBandit
from torchonline.environments.noise import GaussianNoise, Noise, Pareto, StudentT, TwoPoint
from torchonline.environments.random_order import RandomOrderStream
from torchonline.environments.sea import SEAStream
from torchonline.environments.simulated import Outcome

__all__ = ["DriftingBandit", "GeneralizedLinearBandit", "LinearBandit", "Outcome", "VaryingNoiseBandit"]
__all__ += ["CorruptedStream", "RandomOrderStream", "SEAStream"]
__all__ += ["GaussianNoise", "Noise", "Pareto", "StudentT", "TwoPoint"]
__all__ += ["TableBandit", "play"]

if typing.TYPE_CHECKING:  # for editors and type checkers
    from torchonline.environments.table_bandit import TableBandit as TableBandit
    from torchonline.environments.table_bandit import play as play

# Imported on first access, because they import gymnasium.
_get, __dir__ = lazy_names(globals(), {"TableBandit": "table_bandit", "play": "table_bandit"})


def __getattr__(name: str) -> Any:
    """Return :class:`GaussianNoise` for its former name ``Gaussian``, with a warning."""
    if name == "Gaussian":
        message = "torchonline.environments.Gaussian is now GaussianNoise; torchonline.Gaussian is a link"
        warnings.warn(message, DeprecationWarning, stacklevel=2)
        return GaussianNoise
    return _get(name)
