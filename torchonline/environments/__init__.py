"""Simulated streams whose best decision is known, so that regret can be counted."""

from torchonline.environments.linear import DriftingBandit, LinearBandit, Outcome
from torchonline.environments.noise import Gaussian, Noise, Pareto, StudentT, TwoPoint

__all__ = ["DriftingBandit", "Gaussian", "LinearBandit", "Noise", "Outcome", "Pareto", "StudentT", "TwoPoint"]
