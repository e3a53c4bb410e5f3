"""Simulated streams with a known best decision, so that regret can be measured."""

import warnings
from typing import Any

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


def __getattr__(name: str) -> Any:
    """Return :class:`GaussianNoise` for its former name ``Gaussian``, with a warning."""
    if name == "Gaussian":
        message = "torchonline.environments.Gaussian is now GaussianNoise; torchonline.Gaussian is a link"
        warnings.warn(message, DeprecationWarning, stacklevel=2)
        return GaussianNoise
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
