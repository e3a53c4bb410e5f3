"""Online learners as PyTorch modules."""

import typing as _typing
from pathlib import Path as _Path

# In a bare checkout, models/ and callbacks/ are beside this folder; in an installed package, inside it.
if not (_Path(__file__).parent / "models").is_dir():
    __path__.append(str(_Path(__file__).parent.parent))

from torchonline.convex.ca_oons import CAOONS
from torchonline.convex.cla_oons import CLAOONS
from torchonline.convex.divergence import DivergenceWarning
from torchonline.convex.experts.master import MsMwCMaster
from torchonline.convex.experts.msmwc import MsMwC
from torchonline.convex.freegrad import FreeGrad
from torchonline.convex.gradients import gradients
from torchonline.convex.oons import OONS
from torchonline.convex.optimizer import ParameterFree
from torchonline.core.citations import cite
from torchonline.core.lazy_names import lazy_names as _lazy_names
from torchonline.core.versions import version as _version
from torchonline.links import Binomial, CustomLink, Gamma, Gaussian, Logistic, Poisson
from torchonline.policies.anytime_heavy_tail_ucb import AnytimeHeavyTailUCB
from torchonline.policies.catalogue_arms import CatalogueArms
from torchonline.policies.disjoint import DisjointArms
from torchonline.policies.exploration import EpsilonGreedy, Softmax, SquareCB
from torchonline.policies.fixed_arms import FixedArms
from torchonline.policies.glb_omd import GLBOMD
from torchonline.policies.hvt_ucb import HvtUCB
from torchonline.policies.hybrid import HybridArms
from torchonline.policies.local_glb import LocalGLB
from torchonline.policies.oful import OFUL
from torchonline.policies.radius_selector import RadiusSelector
from torchonline.policies.recommended import bandit
from torchonline.policies.rules import UCB, Greedy, ThompsonSampling
from torchonline.policies.scaled import ScaledPolicy
from torchonline.policies.scaler import StandardScaler
from torchonline.policies.shared_radius_selector import SharedRadiusSelector
from torchonline.privacy.learners.dphdb import DPHDB
from torchonline.privacy.learners.frank_wolfe import DPPOFW, DPTOFW
from torchonline.regression.adaptive_ridge import AdaptiveRidgeRegression, RobustRidgeRegression
from torchonline.regression.diagonal_ridge import DiagonalRidgeRegression
from torchonline.regression.discounted import DiscountedHeavyTailRegression, DiscountedRidgeRegression
from torchonline.regression.glm.local import LocalGLMRegression
from torchonline.regression.glm.mirror_descent import GLMRegression
from torchonline.regression.heavy_tail import HeavyTailRegression
from torchonline.regression.huber import HuberRegression
from torchonline.regression.normalized_lms import NormalizedLMS
from torchonline.regression.ridge import RidgeRegression
from torchonline.regression.system_identification import SystemIdentification

__version__ = _version()

# The name by which many know it.
LinUCB = OFUL

__all__ = ["GLBOMD", "OFUL", "UCB", "AnytimeHeavyTailUCB", "Greedy", "HvtUCB", "LocalGLB", "ThompsonSampling"]
__all__ += ["CatalogueArms", "DisjointArms", "FixedArms", "HybridArms", "ScaledPolicy", "StandardScaler"]
__all__ += ["RadiusSelector", "SharedRadiusSelector", "bandit"]
__all__ += ["EpsilonGreedy", "Softmax", "SquareCB"]
__all__ += ["AdaptiveRidgeRegression", "DiagonalRidgeRegression", "DiscountedHeavyTailRegression"]
__all__ += [
    "DiscountedRidgeRegression",
    "GLMRegression",
    "HeavyTailRegression",
    "HuberRegression",
    "LocalGLMRegression",
]
__all__ += ["NormalizedLMS", "RidgeRegression", "RobustRidgeRegression", "SystemIdentification"]
__all__ += ["CAOONS", "CLAOONS", "OONS", "DivergenceWarning", "FreeGrad", "MsMwC", "MsMwCMaster", "ParameterFree"]
__all__ += ["DPHDB", "DPPOFW", "DPTOFW", "cite", "gradients"]
__all__ += ["Binomial", "CustomLink", "Gamma", "Gaussian", "Logistic", "Poisson"]

# Imported on first access, because some import Lightning.
_SUBMODULES = frozenset(
    ("baselines", "callbacks", "datasets", "diagnostics", "distributed", "environments", "export", "feedback", "linalg")
    + ("metrics", "models", "off_policy", "privacy", "reporting", "serving")
)
# Functions that need more than torch, each with the submodule that defines it.
_FUNCTIONS = {"report": "reporting"}

if _typing.TYPE_CHECKING:  # for editors and type checkers
    from torchonline import baselines as baselines
    from torchonline import callbacks as callbacks
    from torchonline import convex as convex
    from torchonline import datasets as datasets
    from torchonline import diagnostics as diagnostics
    from torchonline import distributed as distributed
    from torchonline import environments as environments
    from torchonline import export as export
    from torchonline import feedback as feedback
    from torchonline import linalg as linalg
    from torchonline import links as links
    from torchonline import metrics as metrics
    from torchonline import models as models
    from torchonline import off_policy as off_policy
    from torchonline import policies as policies
    from torchonline import privacy as privacy
    from torchonline import regression as regression
    from torchonline import reporting as reporting
    from torchonline import serving as serving
    from torchonline.reporting import report as report
else:
    __getattr__, __dir__ = _lazy_names(globals(), _FUNCTIONS, _SUBMODULES)
