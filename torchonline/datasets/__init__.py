"""Real data from installed packages or the user's disk, and bandit streams on it. Nothing is downloaded."""

from torchonline.datasets.classification import ClassificationBandit
from torchonline.datasets.loaders import HEALTH_PLANS, covertype, digits, health_insurance

__all__ = ["HEALTH_PLANS", "ClassificationBandit", "covertype", "digits", "health_insurance"]
