"""Off-policy evaluation: what would another policy have earned on a log?"""

from torchonline.off_policy.means import bootstrap_means, effective_sample_size, self_normalised_mean
from torchonline.off_policy.replay import propensities, replay

__all__ = ["bootstrap_means", "effective_sample_size", "propensities", "replay", "self_normalised_mean"]
