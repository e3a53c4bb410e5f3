"""The old path of :mod:`torchonline.bandits.estimator`."""

from torchonline.bandits.estimator import Estimator, default_ridge, on_rows

LinearModel = Estimator

__all__ = ["LinearModel", "default_ridge", "on_rows"]
