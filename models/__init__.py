"""Bandit policies on encoders, and Lightning modules that train them."""

from torchonline.models.bandit_head import BanditHead
from torchonline.models.batches import LoggedRounds
from torchonline.models.builders import mlp, recommended_policy, table_head
from torchonline.models.hashed_embedding import HashedEmbedding
from torchonline.models.lightning_strategy import LearnerStrategy
from torchonline.models.log_data import LogDataModule
from torchonline.models.neural_linear import NeuralLinearBandit
from torchonline.models.online_predictor import OnlinePredictor
from torchonline.models.round_loader import RoundLoader
from torchonline.models.table_data import TableDataModule

__all__ = ["BanditHead", "HashedEmbedding", "LearnerStrategy", "LogDataModule", "LoggedRounds", "NeuralLinearBandit"]
__all__ += ["OnlinePredictor", "RoundLoader", "TableDataModule", "mlp", "recommended_policy", "table_head"]
