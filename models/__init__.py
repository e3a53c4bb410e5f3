"""Bandit policies on encoders, and Lightning modules that train them."""

from torchonline.models.bandit_head import BanditHead
from torchonline.models.batches import LoggedRounds
from torchonline.models.log_data import LogDataModule
from torchonline.models.neural_linear import NeuralLinearBandit
from torchonline.models.round_loader import RoundLoader
from torchonline.models.strategy import LearnerStrategy

__all__ = ["BanditHead", "LearnerStrategy", "LogDataModule", "LoggedRounds", "NeuralLinearBandit", "RoundLoader"]
