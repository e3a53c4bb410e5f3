"""Metrics of online play as torchmetrics, with states that checkpoints carry."""

from torchonline.metrics.base import ExactMetric
from torchonline.metrics.by_arm import MeanByArm
from torchonline.metrics.by_time import ValueByTime
from torchonline.metrics.coverage import has_missed
from torchonline.metrics.curve import TotalsByRound
from torchonline.metrics.drift import DriftAlarm, DriftWarning
from torchonline.metrics.gradient_variation import GradientVariation
from torchonline.metrics.histogram import LoggedProbabilities, LogHistogram
from torchonline.metrics.privacy import PrivacySpent
from torchonline.metrics.regret import CumulativeRegret
from torchonline.metrics.sample_size import EffectiveSampleSize
from torchonline.metrics.shares import ActionShares
from torchonline.metrics.stream_variation import StreamVariation

__all__ = ["CumulativeRegret", "ExactMetric", "GradientVariation", "PrivacySpent", "StreamVariation", "has_missed"]
__all__ += ["ActionShares", "DriftAlarm", "DriftWarning", "EffectiveSampleSize", "LogHistogram", "LoggedProbabilities"]
__all__ += ["MeanByArm", "TotalsByRound", "ValueByTime"]
