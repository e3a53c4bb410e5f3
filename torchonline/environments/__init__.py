"""Simulated streams whose best decision is known, so that regret can be counted."""

from torchonline.environments.generalized import GeneralizedLinearBandit
from torchonline.environments.linear import DriftingBandit, LinearBandit
from torchonline.environments.noise import Gaussian, Noise, Pareto, StudentT, TwoPoint
from torchonline.environments.sea import SEAStream
from torchonline.environments.simulated import Outcome

__all__ = [
    "DriftingBandit",
    "Gaussian",
    "GeneralizedLinearBandit",
    "LinearBandit",
    "Noise",
    "Outcome",
    "Pareto",
    "SEAStream",
    "StudentT",
    "TwoPoint",
]
