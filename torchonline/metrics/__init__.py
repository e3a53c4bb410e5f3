"""Metrics of online play as torchmetrics, with states that checkpoints carry."""

from torchonline.metrics.base import ExactMetric
from torchonline.metrics.coverage import has_missed
from torchonline.metrics.gradient_variation import GradientVariation
from torchonline.metrics.privacy import PrivacySpent
from torchonline.metrics.regret import CumulativeRegret
from torchonline.metrics.stream_variation import StreamVariation

__all__ = ["CumulativeRegret", "ExactMetric", "GradientVariation", "PrivacySpent", "StreamVariation", "has_missed"]
