"""Bandit policies on encoders, and Lightning modules that train them."""

from torchonline.models.bandit_head import BanditHead
from torchonline.models.batches import LoggedRounds
from torchonline.models.neural_linear import NeuralLinearBandit
from torchonline.models.round_loader import RoundLoader

__all__ = ["BanditHead", "LoggedRounds", "NeuralLinearBandit", "RoundLoader"]
