"""The old name of :mod:`torchonline.off_policy`."""

from torchonline.off_policy import bootstrap_means, effective_sample_size, propensities, replay, self_normalised_mean

__all__ = ["bootstrap_means", "effective_sample_size", "propensities", "replay", "self_normalised_mean"]
