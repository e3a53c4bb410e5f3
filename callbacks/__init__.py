"""Lightning callbacks that log, watch and export online learners.

No callback changes a learner or draws a random number.
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
