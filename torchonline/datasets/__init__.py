"""Real data from installed packages or disk, and bandit streams. No downloads."""

from torchonline.datasets.classification import ClassificationBandit
from torchonline.datasets.loaders import HEALTH_PLANS, covertype, digits, health_insurance

__all__ = ["HEALTH_PLANS", "ClassificationBandit", "covertype", "digits", "health_insurance"]
