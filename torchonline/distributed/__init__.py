"""One learner over several processes, on ``torch.distributed``."""

from torchonline.distributed.ranks import Ranks
from torchonline.distributed.shared_learner import SharedLearner

__all__ = ["Ranks", "SharedLearner"]
