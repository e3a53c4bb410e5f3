"""Lightning callbacks that log, monitor and export online learners.

Callbacks neither change a learner nor draw random numbers.
"""

from torchonline.callbacks.artifact import ArtifactExporter
from torchonline.callbacks.monitor import BanditMonitor
from torchonline.callbacks.noise import MisspecifiedWarning, NoiseMonitor
from torchonline.callbacks.privacy import PrivacySpendLogger
from torchonline.callbacks.regret import RegretLogger

__all__ = [
    "ArtifactExporter",
    "BanditMonitor",
    "MisspecifiedWarning",
    "NoiseMonitor",
    "PrivacySpendLogger",
    "RegretLogger",
]
