"""Bandit policies on encoders, and Lightning modules that train them."""

import typing

from torchonline.core.lazy_names import lazy_names
from torchonline.models.bandit_head import BanditHead
from torchonline.models.batches import LoggedRounds
from torchonline.models.builders import mlp, recommended_policy, table_head
from torchonline.models.fitted_transformer import FittedTransformer
from torchonline.models.hashed_embedding import HashedEmbedding
from torchonline.models.hugging_face import HuggingFaceEncoder
from torchonline.models.round_loader import RoundLoader

__all__ = [
    "BanditHead",
    "FittedTransformer",
    "HashedEmbedding",
    "HuggingFaceEncoder",
    "LearnerStrategy",
    "LogDataModule",
]
__all__ += [
    "LoggedRounds",
    "NeuralLinearBandit",
    "OnlinePredictor",
    "RoundLoader",
    "TableDataModule",
    "TensorDictPolicy",
]
__all__ += ["mlp", "recommended_policy", "table_head"]

if typing.TYPE_CHECKING:  # for editors and type checkers
    from torchonline.models.lightning_strategy import LearnerStrategy as LearnerStrategy
    from torchonline.models.log_data import LogDataModule as LogDataModule
    from torchonline.models.neural_linear import NeuralLinearBandit as NeuralLinearBandit
    from torchonline.models.online_predictor import OnlinePredictor as OnlinePredictor
    from torchonline.models.table_data import TableDataModule as TableDataModule
    from torchonline.models.tensordict_policy import TensorDictPolicy as TensorDictPolicy
else:
    # Imported on first access, because they import Lightning or tensordict.
    __getattr__, __dir__ = lazy_names(
        globals(),
        {
            "LearnerStrategy": "lightning_strategy",
            "LogDataModule": "log_data",
            "NeuralLinearBandit": "neural_linear",
            "OnlinePredictor": "online_predictor",
            "TableDataModule": "table_data",
            "TensorDictPolicy": "tensordict_policy",
        },
    )
