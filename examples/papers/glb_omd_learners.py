"""Learners of the experiments of the GLB-OMD paper: this library's, the paper's with four radii, and all rivals.

GLB-OMD plays four times:

- "empirical": with the radius of this library, which is proved for any ridge;
- "tight" and "paper": with the paper's radius, sharpened and as printed, and ridge = d, as in the paper's experiments. The
  paper's theorem needs a far larger ridge, so both are heuristics;
- "theorem": with the paper's radius and the ridge of its theorem.

LocalGLB plays twice: unchanged, and "in the ball", with the highest predictor over the part of its ellipsoid inside the ball
of radius S, like OFUGLB.

The rivals are GLOC, ECOLog, OFUL-MLogB, GLM-UCB, RS-GLinCB, OFUGLB-e, OFUGLB and OFULog-r, with the constants of
``torchonline.baselines``. ECOLog, OFUL-MLogB and OFULog-r need logistic rewards. The last five keep all rounds. For Poisson
rewards the radii of GLOC and GLM-UCB are heuristics. We cannot vouch for a confidence set of RS-GLinCB; its scale also
multiplies its warm-up constant. OFUL's linear model is wrong here, and Greedy and Thompson sampling have no theorem.

``VARIANTS`` has more of the rivals, for the simulations: RS-GLinCB and OFULog-r with the constants of their authors' programs
(heuristics), a ridge of d log(1 + t) for GLM-UCB and OFUGLB-e, ada-OFU-ECOLog with its warm-up set, LocalGLB that switches
rarely, and GLB-OMD with the capped scores of its regret theorem.

``BOUNDED`` has GLM-UCB and RS-GLinCB as the paper runs them for Poisson rewards: told that rewards are at most 100. GLM-UCB then
takes 50 for the sub-Gaussian scale of a reward, by Hoeffding's lemma. RS-GLinCB takes 100 for R, here with the constants of its
authors' program. With those of its theory all rounds are warm-up rounds for R = 1, and a larger R asks for a longer warm-up.
"""

import math
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from torchonline import GLBOMD, OFUL, UCB, Greedy, LocalGLB, LocalGLMRegression, Logistic, ThompsonSampling
from torchonline.baselines import (
    GLMUCB,
    GLOC,
    OFUGLB,
    AdaECOLog,
    CappedGLBOMD,
    ECOLog,
    OFUGLBRegression,
    OFULMLogB,
    OFULogR,
    RarelySwitchingGLB,
    RSGLinCB,
)
from torchonline.links import Link
from torchonline.policies.policy import Policy
from torchonline.policies.rules import Rule
from torchonline.regression.estimator import Estimator

DELTA = 0.01
REWARD_BOUND = 100.0  # of Poisson rewards, which have none, in the paper's experiment
# Rounds of OFUGLB and OFULog-r, which take some minutes.
EXACT_ROUNDS = 1000
# Candidates of tuning: radius_scale.
SCALES = (1.0, 0.3, 0.1, 0.03, 0.01, 3e-3, 1e-3, 3e-4, 1e-4, 3e-5)


@dataclass(frozen=True)
class Problem:
    """Options of the learners; ``options`` has all but ``horizon``."""

    dim: int
    link: Link
    theta_bound: float
    trials: tuple[int, ...]
    horizon: int
    radius_scale: float = 1.0

    def options(self) -> dict[str, Any]:
        told = {name: getattr(self, name) for name in ("dim", "link", "theta_bound", "radius_scale")}
        return told | {"batch_shape": self.trials, "delta": DELTA}


@dataclass(frozen=True)
class Algorithm:
    """Learner with its properties."""

    make: Callable[[Problem], Policy]
    has_set: bool = True  # whether it has a confidence set for the parameter
    poisson: bool = True  # whether it supports Poisson rewards
    cheap: bool = True  # whether it plays the additional trials
    rounds: float = math.inf  # largest number of rounds

    def build(self, problem: Problem) -> Policy:
        """Return the learner, without its warning about heuristic radii."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".* heuristic", UserWarning)
            return self.make(problem)


class InTheBall(Rule):
    """Optimism over the part of an ellipsoid inside the ball; O(d^3) per round.

    If (theta - theta_hat)'V(theta - theta_hat) <= radius^2 and |theta|^2 <= S^2 both hold, so does any weighted mean of the two
    inequalities, which is again an ellipsoid. The score is the least, over 17 weights, of the highest predictors in these
    ellipsoids. With all weights it would be the highest predictor in the intersection.
    """

    def __init__(self, estimator: Estimator) -> None:
        super().__init__(estimator)
        self.weight = torch.linspace(0.0, 1.0, 17, dtype=torch.float64).unsqueeze(-1)

    def _scores(self, features: Tensor) -> Tensor:
        estimator: Any = self.estimator
        values, vectors = torch.linalg.eigh(estimator.V)
        centre = (estimator.theta_hat.unsqueeze(-2) @ vectors).squeeze(-2)
        scaled = values / estimator.radius().square().clamp(min=1e-12).unsqueeze(-1)
        # (*B, weights, d), in the eigenbasis of V: the mean matrix, and its linear term, to which only the first set contributes.
        matrix = (1.0 - self.weight) * scaled.unsqueeze(-2) + self.weight / estimator.theta_bound**2
        force = (1.0 - self.weight) * (scaled * centre).unsqueeze(-2)
        room = 1.0 - (force * centre.unsqueeze(-2)).sum(-1) + (force * force / matrix).sum(-1)
        rows = features @ vectors
        width = (rows * rows @ (1.0 / matrix).mT) * room.clamp(min=0.0).unsqueeze(-2)
        return (rows @ (force / matrix).mT + width.sqrt()).amin(-1)


def glb_omd(radius: str) -> Callable[[Problem], GLBOMD]:
    return lambda problem: GLBOMD(**problem.options(), radius=radius)


def theorem(problem: Problem) -> GLBOMD:
    """Return GLB-OMD with the radius and the ridge of its theorem."""
    ridge = glb_omd("paper")(problem).estimator.theory_ridge()
    return GLBOMD(**problem.options(), radius="paper", ridge=ridge)


def oful(problem: Problem) -> OFUL:
    """Return OFUL, told the largest slope times S and a bound on the noise's sd."""
    options = problem.options()
    slope = options.pop("link").max_slope(problem.theta_bound)
    scale = 0.5 if isinstance(problem.link, Logistic) else math.sqrt(slope)
    return OFUL(**options | {"theta_bound": problem.theta_bound * slope, "noise_scale": scale})


def rival(kind: Callable[..., Policy], *, any_link: bool = True, keeps: bool = False) -> Callable[[Problem], Policy]:
    """Return a maker of a baseline.

    Some baselines support only the logistic link. Those that keep all rounds need the horizon.
    """

    def make(problem: Problem) -> Policy:
        options = problem.options() | ({"horizon": problem.horizon} if keeps else {})
        if not any_link:
            del options["link"]
        return kind(**options)

    return make


def ofuglb_e(**options: Any) -> UCB:
    """Return OFUGLB with an ellipsoidal set."""
    return UCB(OFUGLBRegression(**options))


def rs_glincb(problem: Problem) -> RSGLinCB:
    """Return RS-GLinCB; the scale also multiplies its warm-up constant."""
    factor = 25.0 * problem.radius_scale
    return RSGLinCB(**problem.options(), horizon=problem.horizon, warm_up_factor=factor)


def glm_ucb_bounded(problem: Problem) -> GLMUCB:
    """Return GLM-UCB for rewards in [0, REWARD_BOUND]."""
    policy = GLMUCB(**problem.options(), horizon=problem.horizon)
    policy.estimator.factor = 0.5 * REWARD_BOUND / policy.estimator.slowest
    return policy


ALGORITHMS: dict[str, Algorithm] = {
    "LocalGLB": Algorithm(lambda problem: LocalGLB(**problem.options())),
    "LocalGLB, in the ball": Algorithm(lambda problem: InTheBall(LocalGLMRegression(**problem.options()))),
    "GLB-OMD, empirical": Algorithm(glb_omd("empirical")),
    "GLB-OMD, tight": Algorithm(glb_omd("tight")),
    "GLB-OMD, paper": Algorithm(glb_omd("paper")),
    "GLB-OMD, theorem": Algorithm(theorem),
    "Thompson": Algorithm(lambda problem: ThompsonSampling(LocalGLMRegression(**problem.options()), scale="theorem")),
    "Greedy": Algorithm(lambda problem: Greedy(LocalGLMRegression(**problem.options())), has_set=False),
    "OFUL": Algorithm(oful, has_set=False),
    "GLOC": Algorithm(rival(GLOC)),
    "ECOLog": Algorithm(rival(ECOLog, any_link=False), poisson=False),
    "OFUL-MLogB": Algorithm(rival(OFULMLogB, any_link=False), poisson=False),
    "GLM-UCB": Algorithm(rival(GLMUCB, keeps=True), cheap=False),
    "RS-GLinCB": Algorithm(rs_glincb, has_set=False, cheap=False),
    "OFUGLB-e": Algorithm(rival(ofuglb_e, keeps=True), cheap=False),
    "OFUGLB": Algorithm(rival(OFUGLB, keeps=True), cheap=False, rounds=EXACT_ROUNDS),
    "OFULog-r": Algorithm(rival(OFULogR, any_link=False, keeps=True), poisson=False, cheap=False, rounds=EXACT_ROUNDS),
}

PROGRAM, GROWING = {"constants": "program"}, {"ridge": "growing"}
# OFU-ECOLog's paper asks for a warm-up of the order of kappa S^6 d^2 log(T)^2: millions of rounds at S = 3.
WARM_UP = {"warm_up_rounds": 100}
VARIANTS: dict[str, Algorithm] = {
    "Rarely switching": Algorithm(rival(RarelySwitchingGLB), has_set=False),
    "GLB-OMD, capped": Algorithm(rival(CappedGLBOMD)),
    "ada-OFU-ECOLog": Algorithm(rival(AdaECOLog, any_link=False, keeps=True), poisson=False),
    "OFU-ECOLog, 100 rounds": Algorithm(
        rival(partial(AdaECOLog, **WARM_UP), any_link=False, keeps=True), poisson=False
    ),
    "RS-GLinCB, program": Algorithm(rival(partial(RSGLinCB, **PROGRAM), keeps=True), has_set=False, cheap=False),
    "GLM-UCB, growing": Algorithm(rival(partial(GLMUCB, **GROWING), keeps=True), cheap=False),
    "OFUGLB-e, growing": Algorithm(rival(partial(ofuglb_e, **GROWING), keeps=True), cheap=False),
    "OFULog-r, program": Algorithm(
        rival(partial(OFULogR, **PROGRAM), any_link=False, keeps=True), poisson=False, cheap=False, rounds=EXACT_ROUNDS
    ),
}
# The bound for warm-up rounds has R to the power -4, and the square of the factor.
R_100 = PROGRAM | {"warm_up_factor": REWARD_BOUND**2}
BOUNDED: dict[str, Algorithm] = {
    "GLM-UCB, rewards to 100": Algorithm(glm_ucb_bounded, cheap=False),
    "RS-GLinCB, program, rewards to 100": Algorithm(
        rival(partial(RSGLinCB, **R_100), keeps=True), has_set=False, cheap=False
    ),
}


class Game:
    """Learner in an environment, and the processor time that its choices and its learning take."""

    def __init__(self, policy: Policy, environment: Any) -> None:
        self.policy, self.environment, self.seconds = policy, environment, 0.0

    def round(self) -> Tensor:
        """Play a round and return its regret."""
        arms = self.environment.arms()
        start = time.process_time()
        index = self.policy.select(arms)
        self.seconds += time.process_time() - start
        _, reward, regret = self.environment.pull(index)
        start = time.process_time()
        self.policy.step(arms, index, reward)
        self.seconds += time.process_time() - start
        return regret


def in_turn(games: list[Game], rounds: int) -> list[float]:
    """Return each game's processor time as a multiple of the last one's, over rounds in turn."""
    for _ in range(rounds):
        for game in games:
            game.round()
    return [game.seconds / games[-1].seconds for game in games]
