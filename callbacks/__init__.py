"""Lightning callbacks that log and export online learners.

No callback changes a learner or draws a random number.
"""

from torchonline.callbacks.artifact import ArtifactExporter
from torchonline.callbacks.privacy import PrivacySpendLogger
from torchonline.callbacks.regret import RegretLogger

__all__ = ["ArtifactExporter", "PrivacySpendLogger", "RegretLogger"]
