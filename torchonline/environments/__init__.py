"""Simulated streams whose best decision is known, so that regret can be counted."""

from torchonline.environments.linear import LinearBandit, Outcome
from torchonline.environments.noise import Gaussian, Noise, Pareto, StudentT, TwoPoint

__all__ = ["Gaussian", "LinearBandit", "Noise", "Outcome", "Pareto", "StudentT", "TwoPoint"]
