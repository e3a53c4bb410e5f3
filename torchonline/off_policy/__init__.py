"""Off-policy evaluation: what would another policy have earned on a log?"""

from torchonline.off_policy.estimators import (
    Estimate,
    clipped_ips,
    direct_method,
    doubly_robust,
    importance_weights,
    improvement,
    ips,
    sndr,
    snips,
    switch,
    switch_doubly_robust,
)
from torchonline.off_policy.intervals import (
    Interval,
    TailWarning,
    bootstrap_interval,
    bootstrap_values,
    confidence_interval,
    confidence_sequence,
    normal_interval,
)
from torchonline.off_policy.log_replay import propensities, replay
from torchonline.off_policy.logs import (
    BanditLog,
    at_positions,
    from_decisions,
    from_frame,
    from_obp,
    target_probabilities,
    to_obp,
)
from torchonline.off_policy.means import bootstrap_means, effective_sample_size, self_normalised_mean
from torchonline.off_policy.regression import PredictedRewards, predicted_rewards
from torchonline.off_policy.support import Overlap, OverlapWarning, overlap

__all__ = ["BanditLog", "at_positions", "from_decisions", "from_frame", "from_obp", "target_probabilities", "to_obp"]
__all__ += ["Estimate", "clipped_ips", "direct_method", "doubly_robust", "importance_weights"]
__all__ += ["improvement", "ips", "sndr", "snips"]
__all__ += ["switch", "switch_doubly_robust"]
__all__ += ["Interval", "TailWarning", "bootstrap_interval", "bootstrap_values", "confidence_interval"]
__all__ += ["confidence_sequence", "normal_interval"]
__all__ += ["Overlap", "OverlapWarning", "PredictedRewards", "overlap", "predicted_rewards"]
__all__ += ["bootstrap_means", "effective_sample_size", "propensities", "replay", "self_normalised_mean"]
