"""Algorithms of other papers, for comparison.

They are heavy-tailed and generalized linear bandits, private learners (all online except :class:`NoisySGD`) and parameter-free
online learners. If a paper leaves a constant open, or we do not have its text, the constant is recalled or inferred. The
docstrings name these constants. Constants worth tuning are arguments.

They promise less than the other learners: the numbers of their papers, checked against independent references; all-or-nothing
steps; state dicts that continue bit for bit; and seeds. Files, programs, NumPy views, batches of learners and accelerators may
work, but are not tested.
"""

from torchonline.baselines.convex.adagrad import AdaGrad
from torchonline.baselines.convex.coin_betting import CoinBetting
from torchonline.baselines.convex.d_adaptation import DAdaptation
from torchonline.baselines.convex.dog import DoG
from torchonline.baselines.convex.dowg import DoWG
from torchonline.baselines.convex.expert_ensemble import ExpertEnsemble
from torchonline.baselines.convex.oftrl import OFTRL
from torchonline.baselines.convex.ogd import OGD
from torchonline.baselines.convex.optimistic_omd import OptimisticOMD
from torchonline.baselines.convex.parameter_free_md import ParameterFreeMirrorDescent
from torchonline.baselines.convex.prodigy import Prodigy
from torchonline.baselines.convex.scale_free_coin_betting import ScaleFreeCoinBetting
from torchonline.baselines.convex.schedule_free import ScheduleFree
from torchonline.baselines.convex.solo_ftrl import SOLOFTRL
from torchonline.baselines.generalized_linear.ada_ofu_ecolog import AdaECOLog, AdaECOLogRegression
from torchonline.baselines.generalized_linear.capped_glb_omd import CappedGLBOMD
from torchonline.baselines.generalized_linear.discounted_glm import DiscountedGLB, DiscountedGLMRegression
from torchonline.baselines.generalized_linear.ecolog import ECOLog, ECOLogRegression
from torchonline.baselines.generalized_linear.glm_ucb import GLMUCB, GLMUCBRegression
from torchonline.baselines.generalized_linear.gloc import GLOC, GLOCRegression
from torchonline.baselines.generalized_linear.multinomial import MultinomialLogisticBandit
from torchonline.baselines.generalized_linear.ofuglb import OFUGLB, OFUGLBRegression
from torchonline.baselines.generalized_linear.oful_mlogb import MLogBRegression, OFULMLogB
from torchonline.baselines.generalized_linear.ofulog_r import OFULogR, OFULogRRegression
from torchonline.baselines.generalized_linear.rarely_switching import RarelySwitchingGLB, RarelySwitchingRegression
from torchonline.baselines.generalized_linear.rs_glincb import RSGLinCB, RSGLinCBRegression
from torchonline.baselines.heavy_tailed.adaoful import AdaOFUL, AdaOFULRegression
from torchonline.baselines.heavy_tailed.bmm import BMM, BMMRegression
from torchonline.baselines.heavy_tailed.btc import BTC, BTCRegression
from torchonline.baselines.heavy_tailed.crmm import CRMM, CRMMRegression
from torchonline.baselines.heavy_tailed.crt import CRT, CRTRegression
from torchonline.baselines.heavy_tailed.crtm import CRTM, CRTMRegression
from torchonline.baselines.heavy_tailed.heavy_oful import HeavyOFUL, HeavyOFULRegression
from torchonline.baselines.heavy_tailed.huber_bandit import HuberBandit, HuberBanditRegression
from torchonline.baselines.heavy_tailed.menu import MENU, MENURegression
from torchonline.baselines.heavy_tailed.mom import MoM, MoMRegression
from torchonline.baselines.heavy_tailed.robust_ucb import RobustUCB, RobustUCBRegression
from torchonline.baselines.heavy_tailed.tofu import TOFU, TOFURegression
from torchonline.baselines.private.dp_ftrl import DPFTRL
from torchonline.baselines.private.dp_ucb import DPUCB
from torchonline.baselines.private.fliphat import FLIPHAT
from torchonline.baselines.private.local_md import LocalMD
from torchonline.baselines.private.noisy_sfw import NoisySFW
from torchonline.baselines.private.noisy_sgd import NoisySGD

__all__ = ["OFTRL", "OGD", "AdaGrad", "CoinBetting", "OptimisticOMD", "ParameterFreeMirrorDescent"]
__all__ += [
    "SOLOFTRL",
    "DAdaptation",
    "DoG",
    "DoWG",
    "ExpertEnsemble",
    "Prodigy",
    "ScaleFreeCoinBetting",
    "ScheduleFree",
]
__all__ += ["GLMUCB", "GLOC", "OFUGLB", "AdaECOLog", "ECOLog", "OFULMLogB", "OFULogR", "RSGLinCB"]
__all__ += ["AdaECOLogRegression", "ECOLogRegression", "GLMUCBRegression", "GLOCRegression", "MLogBRegression"]
__all__ += ["CappedGLBOMD", "DiscountedGLB", "MultinomialLogisticBandit", "RarelySwitchingGLB"]
__all__ += ["DiscountedGLMRegression", "RarelySwitchingRegression"]
__all__ += ["OFUGLBRegression", "OFULogRRegression", "RSGLinCBRegression"]
__all__ += [
    "BMM",
    "BTC",
    "CRMM",
    "CRT",
    "CRTM",
    "MENU",
    "TOFU",
    "AdaOFUL",
    "HeavyOFUL",
    "HuberBandit",
    "MoM",
    "RobustUCB",
]
__all__ += ["AdaOFULRegression", "BMMRegression", "BTCRegression", "CRMMRegression", "CRTMRegression", "CRTRegression"]
__all__ += [
    "HeavyOFULRegression",
    "HuberBanditRegression",
    "MENURegression",
    "MoMRegression",
    "RobustUCBRegression",
    "TOFURegression",
]
__all__ += ["DPFTRL", "DPUCB", "FLIPHAT", "LocalMD", "NoisySFW", "NoisySGD"]
