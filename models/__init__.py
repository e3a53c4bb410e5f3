"""Encoders with learners on them, and Lightning modules that drive them."""

from torchonline.models.bandit_head import BanditHead
from torchonline.models.neural_linear import NeuralLinearBandit
from torchonline.models.round_loader import RoundLoader

__all__ = ["BanditHead", "NeuralLinearBandit", "RoundLoader"]
