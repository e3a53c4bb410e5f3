"""The old path of :mod:`torchonline.bandits.estimator`."""

from torchonline.bandits.arguments import on_rows
from torchonline.bandits.estimator import Estimator, default_ridge

LinearModel = Estimator

__all__ = ["LinearModel", "default_ridge", "on_rows"]
