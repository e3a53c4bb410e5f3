"""The algorithms that papers on heavy-tailed and on generalized linear bandits compare with, under the bandit contract; those
that private online Frank-Wolfe is compared with, of which :class:`NoisySGD` alone is no online learner; and those that
parameter-free online learning is compared with, under the convex contract: :class:`OGD`, :class:`AdaGrad`,
:class:`CoinBetting`, :class:`OptimisticOMD`, :class:`OFTRL` and :class:`ParameterFreeMirrorDescent`.

They are here to be compared with. Constants that we know from memory or have inferred, because a paper leaves them open or
we have not its text, are named in the docstrings; those that are worth a try with other values are arguments.
"""

from torchonline.baselines.adagrad import AdaGrad
from torchonline.baselines.coin_betting import CoinBetting
from torchonline.baselines.crmm import CRMM, CRMMRegression
from torchonline.baselines.crtm import CRTM, CRTMRegression
from torchonline.baselines.dp_ftrl import DPFTRL
from torchonline.baselines.dp_ucb import DPUCB
from torchonline.baselines.ecolog import ECOLog, ECOLogRegression
from torchonline.baselines.glm_ucb import GLMUCB, GLMUCBRegression
from torchonline.baselines.gloc import GLOC, GLOCRegression
from torchonline.baselines.heavy_oful import HeavyOFUL, HeavyOFULRegression
from torchonline.baselines.local_md import LocalMD
from torchonline.baselines.menu import MENU, MENURegression
from torchonline.baselines.noisy_sfw import NoisySFW
from torchonline.baselines.noisy_sgd import NoisySGD
from torchonline.baselines.oftrl import OFTRL
from torchonline.baselines.ofuglb import OFUGLB, OFUGLBRegression
from torchonline.baselines.oful_mlogb import MLogBRegression, OFULMLogB
from torchonline.baselines.ofulog_r import OFULogR, OFULogRRegression
from torchonline.baselines.ogd import OGD
from torchonline.baselines.optimistic_omd import OptimisticOMD
from torchonline.baselines.parameter_free_md import ParameterFreeMirrorDescent
from torchonline.baselines.rs_glincb import RSGLinCB, RSGLinCBRegression
from torchonline.baselines.tofu import TOFU, TOFURegression

__all__ = [
    "CRMM",
    "CRTM",
    "DPFTRL",
    "DPUCB",
    "GLMUCB",
    "GLOC",
    "MENU",
    "OFTRL",
    "OFUGLB",
    "OGD",
    "TOFU",
    "AdaGrad",
    "CRMMRegression",
    "CRTMRegression",
    "CoinBetting",
    "ECOLog",
    "ECOLogRegression",
    "GLMUCBRegression",
    "GLOCRegression",
    "HeavyOFUL",
    "HeavyOFULRegression",
    "LocalMD",
    "MENURegression",
    "MLogBRegression",
    "NoisySFW",
    "NoisySGD",
    "OFUGLBRegression",
    "OFULMLogB",
    "OFULogR",
    "OFULogRRegression",
    "OptimisticOMD",
    "ParameterFreeMirrorDescent",
    "RSGLinCB",
    "RSGLinCBRegression",
    "TOFURegression",
]
