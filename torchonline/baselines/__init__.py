"""The algorithms that papers on heavy-tailed linear bandits compare with, under the bandit contract.

They are here to be compared with. Constants that we know from memory or have inferred, because a paper leaves them open or
we have not its text, are arguments, and the docstrings name them.
"""

from torchonline.baselines.crmm import CRMM, CRMMRegression
from torchonline.baselines.crtm import CRTM, CRTMRegression
from torchonline.baselines.heavy_oful import HeavyOFUL, HeavyOFULRegression
from torchonline.baselines.menu import MENU, MENURegression
from torchonline.baselines.tofu import TOFU, TOFURegression

__all__ = [
    "CRMM",
    "CRTM",
    "MENU",
    "TOFU",
    "CRMMRegression",
    "CRTMRegression",
    "HeavyOFUL",
    "HeavyOFULRegression",
    "MENURegression",
    "TOFURegression",
]
