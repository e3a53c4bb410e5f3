"""Generalized linear bandits that keep all rounds, against scipy's solvers, their equations, and what their sets promise."""

import math
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.learners import differences, round_of, snapshot
from tests.reference.likelihood import (
    LOGISTIC,
    POISSON,
    Family,
    History,
    RSGLinCBProgram,
    RSGLinCBReference,
    glm_ucb,
    growing,
    ofuglb,
    ofulog_r,
    ofulog_r_of_program,
    width,
)
from torchonline import UCB, Binomial, CustomLink, Gamma, Gaussian, Logistic, Poisson
from torchonline.baselines import (
    GLMUCB,
    OFUGLB,
    GLMUCBRegression,
    OFUGLBRegression,
    OFULogR,
    OFULogRRegression,
    RSGLinCB,
    RSGLinCBRegression,
)
from torchonline.baselines.generalized_linear import solvers
from torchonline.baselines.generalized_linear.likelihood import LikelihoodEstimator
from torchonline.baselines.generalized_linear.solvers import Loss, furthest, minimise
from torchonline.environments import GeneralizedLinearBandit
from torchonline.export import to_onnx, to_program, to_torchscript
from torchonline.export.programs import only_where
from torchonline.links import Link

D = torch.float64
FAMILIES: dict[str, tuple[Link, Family]] = {"logistic": (Logistic(), LOGISTIC), "poisson": (Poisson(), POISSON)}


def unit_rows(random: np.random.Generator, count: int, dim: int) -> np.ndarray:
    """Features in the unit ball."""
    rows = random.standard_normal((count, dim))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True) * random.uniform(0.2, 1.0, (count, 1))


def draw(link: Link, z: Any, seed: int) -> np.ndarray:
    """Rewards of a link."""
    return link.sample(torch.as_tensor(z), torch.Generator().manual_seed(seed)).numpy()


def problem(seed: int, name: str) -> tuple[Loss, History, float]:
    """A loss in both tongues and the radius of a ball, of all sizes; few rounds or many, all features known or not."""
    random = np.random.default_rng(seed)
    link, family = FAMILIES[name]
    dim, count = int(random.integers(1, 6)), int(random.choice([1, 3, 20, 60]))
    bound, ridge = float(random.choice([0.5, 1.0, 3.0])), float(random.choice([0.0, 0.3]))
    rows, truth = unit_rows(random, count, dim), random.standard_normal(dim)
    truth *= bound / np.linalg.norm(truth)
    rewards, weights = draw(link, rows @ truth, seed), random.uniform(0.3, 3.0, count)
    history = History(family, dim, ridge)
    history.x, history.r, history.w = rows, rewards, weights
    return Loss(link, 1.0, rows, rewards, weights, ridge), history, bound


def optimality(history: History, theta: np.ndarray, bound: float) -> float:
    """How far the conditions of Karush, Kuhn and Tucker are from holding."""
    gradient, norm = history.gradient(theta), float(np.linalg.norm(theta))
    multiplier = max(0.0, -float(gradient @ theta) / norm**2) if norm >= bound * (1.0 - 1e-12) else 0.0
    return float(np.linalg.norm(gradient + multiplier * theta)) + max(0.0, norm - bound)


@pytest.mark.parametrize("name", FAMILIES)
def test_the_estimate_is_the_constrained_minimum(name: str) -> None:
    """On 40 histories, from 0 and from a bad start: scipy's minimum to 1e-7, and the conditions of optimality."""
    on_the_ball = 0
    for seed in range(40):
        loss, history, bound = problem(seed, name)
        bad = np.random.default_rng(seed).standard_normal(history.dim)
        found = [minimise(loss, start, bound) for start in (0.0 * bad, bad * (bound / np.linalg.norm(bad)))]
        assert max(optimality(history, theta, bound) for theta in found) <= 1e-9, seed
        expected = history.minimum(bound)
        # Where the minimum is no point, the loss is the same at both.
        unique = np.linalg.eigvalsh(history.hessian(expected))[0] > 1e-6 or optimality(history, expected, bound) > 1e-9
        for theta in found if unique else []:
            np.testing.assert_allclose(theta, expected, rtol=0.0, atol=1e-7, err_msg=f"seed {seed}")
        assert max(map(history.loss, found)) <= history.loss(expected) + 1e-10
        on_the_ball += np.linalg.norm(found[0]) > bound * (1.0 - 1e-9)
    assert 8 <= on_the_ball <= 32


@pytest.mark.parametrize("name", FAMILIES)
def test_the_ends_of_a_level_set_are_scipys(name: str) -> None:
    """On 40 histories: SLSQP's maximum to 1e-6, inside the set, whether the ball, the loss or both hold it back."""
    held = set()
    for seed in range(40):
        loss, history, bound = problem(seed, name)
        centre = minimise(loss, np.zeros(history.dim), bound)
        level = float(np.random.default_rng(seed).choice([0.1, 1.0, 10.0]))
        directions = 3.0 * np.random.default_rng(seed).standard_normal((3, history.dim))
        (ends,) = furthest([loss], centre[None], np.array([level]), bound, directions[None])
        for x, theta in zip(directions, ends, strict=True):
            rise, length = history.loss(theta) - history.loss(centre), float(np.linalg.norm(theta))
            assert rise <= level + 1e-9
            assert length <= bound * (1.0 + 1e-12)
            size = float(np.linalg.norm(x)) * bound
            np.testing.assert_allclose(x @ theta, history.furthest(x, level, bound, centre), rtol=0, atol=1e-6 * size)
            held.add((rise > level * (1.0 - 1e-4), length > bound * (1.0 - 1e-4)))
    assert held == {(True, False), (False, True), (True, True)}


def test_several_losses_at_once_are_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of several lengths, one whose set is empty, one that is no number; and in pieces, of losses and of directions."""
    random = np.random.default_rng(0)
    found = [problem(seed, "logistic") for seed in range(60)]
    losses = [loss for loss, history, bound in found if history.dim == 3 and bound == 3.0][:4]
    assert len({len(loss.rows) for loss in losses}) > 1
    losses = [*losses, losses[0], losses[1]]
    centres = np.stack([minimise(loss, np.zeros(3), 3.0) for loss in losses])
    levels = np.array([0.1, 1.0, 10.0, 1.0, -1.0, math.nan])
    directions = random.standard_normal((len(losses), 5, 3))
    directions[0, 0] = 0.0
    alone = [
        furthest([loss], centres[i : i + 1], levels[i : i + 1], 3.0, directions[i : i + 1])[0]
        for i, loss in enumerate(losses)
    ]
    np.testing.assert_array_equal(alone[4], np.repeat(centres[4:5], 5, 0))
    for chunk in (solvers.CHUNK, 9 * 5 * 60 * 2, 60 * 2):
        monkeypatch.setattr(solvers, "CHUNK", chunk)
        together = furthest(losses, centres, levels, 3.0, directions)
        np.testing.assert_allclose(together, np.stack(alone), rtol=0.0, atol=1e-6)


def test_ends_of_sets_that_are_thin_and_of_directions_that_are_none() -> None:
    loss, _, bound = problem(2, "logistic")
    centre = minimise(loss, np.zeros(loss.rows.shape[1]), bound)
    directions = np.vstack([np.zeros_like(centre), np.ones_like(centre)])
    for level in (1e-8, 1e-6, 1e6):
        (ends,) = furthest([loss], centre[None], np.array([level]), bound, directions[None])
        np.testing.assert_array_equal(ends[0], centre)
        assert (np.linalg.norm(ends[1] - centre) < 1e-2) == (level < 1.0)
    none = furthest([loss], centre[None], np.ones(1), bound, directions[None, :0])
    assert none.shape == (1, 0, len(centre))
    assert np.isnan(furthest([loss], centre[None], np.array([math.nan]), bound, directions[None])).all()


def test_a_score_whose_maximum_is_no_single_point() -> None:
    """A history of one direction, asked along it: the solver ends, without a warning, at the largest predictor of the set."""
    policy = OFUGLB(2, horizon=8, theta_bound=3.0)
    x = torch.tensor([-0.6761025810358913, 0.7366355936256044], dtype=D)
    rewards = torch.tensor([1.0, 0.0, 0.0, 0.0, 0.0, 0.0], dtype=D)
    policy.step(x.expand(6, 1, 2), [0] * 6, rewards)
    level, length = float(policy.estimator.level()), float(x.norm())

    def rise(z: Tensor) -> Tensor:
        return 6.0 * torch.nn.functional.softplus(z) - z

    z = torch.linspace(-3.0 * length, 3.0 * length, 2_000_001, dtype=D)
    inside = z[rise(z) - rise(z).min() <= level]
    assert float(policy.estimator.upper_bound(x[None])) == pytest.approx(float(inside.max()), abs=1e-5)


@pytest.mark.parametrize("name", FAMILIES)
def test_scores_of_a_whole_run_arrive(name: str) -> None:
    """150 rounds on 20 arms that stay: no score ends short, which would be a warning, and none is below the estimate's."""
    link = FAMILIES[name][0]
    environment = GeneralizedLinearBandit(2, 20, link=link, theta_norm=3.0, seed=2)
    policy, arms = OFUGLB(2, horizon=150, link=link, theta_bound=3.0), environment.arms()
    for _ in range(150):
        scores = policy(arms)
        assert bool((scores >= arms @ policy.estimator.theta_hat - 1e-6).all())
        assert bool((scores <= 3.0 * arms.norm(dim=-1) + 1e-12).all())
        index = scores.argmax()
        policy.step(arms, index, environment.pull(index)[1])


def test_a_solver_says_where_it_did_not_arrive(monkeypatch: pytest.MonkeyPatch) -> None:
    loss, _, bound = problem(2, "logistic")
    centre = minimise(loss, np.zeros(loss.rows.shape[1]), bound)
    monkeypatch.setattr(solvers, "NEWTON_STEPS", 1)
    with pytest.warns(UserWarning, match="^theta_hat: not at the minimum after 1 Newton steps$"):
        minimise(loss, 0.0 * centre, bound)
    with pytest.warns(UserWarning, match="^score: not at the maximum after 1 Newton steps$"):
        furthest([loss], centre[None], np.array([0.1]), bound, np.ones_like(centre)[None, None])


def test_rounds_of_the_same_features_may_be_gone_over_as_one() -> None:
    random = np.random.default_rng(0)
    rows = unit_rows(random, 4, 3)[random.integers(0, 4, 50)]
    loss = Loss(Logistic(), 1.0, rows, random.integers(0, 2, 50) * 1.0, random.uniform(0.5, 2.0, 50), 0.1)
    merged, theta = loss.merged(), random.standard_normal(3)
    assert len(merged.rows) == 4
    for one, other in zip(
        (loss.gradient(loss.rows @ theta, theta), loss.hessian(loss.rows @ theta)),
        (merged.gradient(merged.rows @ theta, theta), merged.hessian(merged.rows @ theta)),
        strict=True,
    ):
        np.testing.assert_allclose(one, other, rtol=1e-12)


def stream(link: Link, bound: float, rounds: int, dim: int, seed: int) -> list[tuple[np.ndarray, float, float]]:
    """Arms in the unit ball, the reward of the first of them, and a noise scale."""
    random = np.random.default_rng(seed)
    truth = random.standard_normal(dim)
    truth *= bound / np.linalg.norm(truth)
    arms = [unit_rows(random, 4, dim) for _ in range(rounds)]
    rewards = draw(link, np.array([each[0] @ truth for each in arms]), seed)
    return [(each, float(r), float(random.choice([0.7, 1.0, 1.5]))) for each, r in zip(arms, rewards, strict=True)]


def learn(learner: Any, x: np.ndarray, reward: float, scale: float) -> None:
    round_ = round_of(learner, torch.from_numpy(x), torch.tensor(reward, dtype=D))
    learner.step(*round_, noise_scale=torch.tensor(scale, dtype=D))


@pytest.mark.parametrize("name", FAMILIES)
def test_glm_ucb_agrees_with_reference(name: str) -> None:
    link, family = FAMILIES[name]
    options = {"theta_bound": 1.5, "ridge": 0.4, "delta": 0.1}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        policy = GLMUCB(3, horizon=30, link=link, **options)
    history, steepest = History(family, 3), float(max(family.slope(np.linspace(-1.5, 1.5, 3))))
    for arms, reward, scale in stream(link, 1.5, 30, 3, seed=1):
        learn(policy, arms[0], reward, scale)
        history.add(arms[0], reward, scale**-2)
    theta, V, radius = glm_ucb(history, 1.5, 1.0, 0.4, 0.1, math.sqrt(steepest))
    np.testing.assert_allclose(policy.estimator.theta_hat.numpy(), theta, atol=1e-7)
    np.testing.assert_allclose(policy.estimator.radius().item(), radius, rtol=1e-9)
    scores = family.mean(arms @ theta) + steepest * radius * width(arms, V)
    np.testing.assert_allclose(policy(torch.from_numpy(arms)).numpy(), scores, rtol=1e-6)


def test_a_growing_ridge_is_that_of_the_rounds_so_far() -> None:
    """GLM-UCB and OFUGLB-e with d log(1 + t) in round t, at two times; OFULog-r, whose ridge is this one anyway."""
    options: dict[str, Any] = {"theta_bound": 1.5, "ridge": "growing", "delta": 0.1}
    likelihood, level = GLMUCB(3, horizon=30, **options), OFUGLBRegression(3, horizon=30, **options)
    penalised = [OFULogRRegression(3, horizon=30, theta_bound=1.5, delta=0.1, ridge=name) for name in ("growing", None)]
    history = History(LOGISTIC, 3)
    assert likelihood.estimator.V[0, 0].item() == pytest.approx(growing(history))
    for t, (arms, reward, scale) in enumerate(stream(Logistic(), 1.5, 30, 3, seed=1)):
        for each in (likelihood, level, *penalised):
            learn(each, arms[0], reward, scale)
        history.add(arms[0], reward, scale**-2)
        if t in (4, 29):
            lam = growing(history)
            theta, V, radius = glm_ucb(history, 1.5, 1.0, lam, 0.1, 0.5)
            np.testing.assert_allclose(likelihood.estimator.theta_hat.numpy(), theta, atol=1e-7)
            np.testing.assert_allclose(likelihood.estimator.V.numpy(), V, rtol=1e-9, atol=1e-12)
            np.testing.assert_allclose(likelihood.estimator.radius().item(), radius, rtol=1e-9)
            theta, squared = ofuglb(history, 1.5, 0.1)
            np.testing.assert_allclose(level.theta_hat.numpy(), theta, atol=1e-7)
            np.testing.assert_allclose(level.V.numpy(), history.hessian(theta) + lam * np.eye(3), atol=1e-6)
            radius = math.sqrt(2.0 * (1.0 + 1.5) * squared + 4.0 * lam * 1.5**2)
            np.testing.assert_allclose(level.radius().item(), radius, rtol=1e-9)
    for name, value in penalised[0].state().items():
        assert torch.equal(value, penalised[1].get_buffer(name))


@pytest.mark.parametrize("cls", [GLMUCB, OFUGLB, OFULogR, RSGLinCB])
def test_a_ridge_of_another_name_is_none(cls: Any) -> None:
    for ridge in ("grows", "growing")[: 1 + (cls is RSGLinCB)]:
        with pytest.raises(TypeError, match=r"^ridge: expected a number, got str"):
            cls(2, horizon=5, ridge=ridge)


def test_a_checkpoint_of_another_kind_of_ridge_or_constants_is_refused() -> None:
    fixed = 2 * math.log(2.0)
    for cls, here, there in (
        (GLMUCBRegression, {"ridge": fixed}, {"ridge": "growing"}),
        (RSGLinCBRegression, {"ridge": 1.0, "warm_up_factor": 1.0}, {"ridge": 1.0, "constants": "program"}),
        (OFULogRRegression, {}, {"constants": "program"}),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            one, other = cls(2, horizon=5, **here), cls(2, horizon=5, **there)
        with pytest.raises((ValueError, RuntimeError), match=r"grows|is_program"):
            one.load_state_dict(other.state_dict())


def test_glm_ucb_says_where_its_radius_is_a_heuristic() -> None:
    for link in (Poisson(), Gamma(2.0), CustomLink(torch.cosh, torch.sinh, torch.cosh, 1.0)):
        with pytest.warns(
            UserWarning, match=f"^link: expected a link with sub-Gaussian rewards, got {type(link).__name__}"
        ):
            GLMUCB(2, horizon=10, link=link)
    for link, scale in ((Gaussian(0.3), 1.0), (Logistic(), 0.5), (Binomial(9), 1.5)):
        learner = GLMUCBRegression(2, horizon=10, link=link)
        assert learner.factor == pytest.approx(scale / link.min_slope(1.0))


@pytest.mark.parametrize("name", FAMILIES)
def test_ofuglb_agrees_with_reference(name: str) -> None:
    link, family = FAMILIES[name]
    exact = OFUGLB(3, horizon=30, link=link, theta_bound=1.5, delta=0.3, radius_scale=0.5)
    ellipsoid, history = UCB(exact.estimator), History(family, 3)
    for t, (arms, reward, scale) in enumerate(stream(link, 1.5, 30, 3, seed=2)):
        learn(exact, arms[0], reward, scale)
        history.add(arms[0], reward, scale**-2)
        if t % 10 == 9:
            theta, squared = ofuglb(history, 1.5, 0.3)
            np.testing.assert_allclose(exact.estimator.theta_hat.numpy(), theta, atol=1e-7)
            np.testing.assert_allclose(exact.estimator.level().item(), 0.25 * squared, rtol=1e-9)
            scores = [history.furthest(x, 0.25 * squared, 1.5, theta) for x in arms]
            np.testing.assert_allclose(exact(torch.from_numpy(arms)).numpy(), scores, atol=1e-6)
            ridge = (1.0 + 1.5) / (2.0 * 1.5**2)
            V = history.hessian(theta) + ridge * np.eye(3)
            radius = 0.5 * math.sqrt(2.0 * (1.0 + 1.5) * (squared + 1.0))
            np.testing.assert_allclose(exact.estimator.radius().item(), radius, rtol=1e-9)
            scores = arms @ theta + radius * width(arms, V)
            np.testing.assert_allclose(ellipsoid(torch.from_numpy(arms)).numpy(), scores, rtol=1e-6)


def test_ofuglbs_set_is_within_the_papers_and_its_ellipsoid_around_it() -> None:
    """The Lipschitz constant that has been seen is below the paper's, and no upper bound is above the ellipsoid's."""
    S, dim, delta = 2.0, 3, 0.05
    learner = OFUGLBRegression(dim, horizon=60, theta_bound=S, delta=delta)
    for t, (arms, reward, _) in enumerate(stream(Logistic(), S, 60, dim, seed=3)):
        learn(learner, arms[0], reward, 1.0)
        papers = dim * math.log(max(math.e, 2.0 * math.e * S * (1.0 + S / 2.0) * (t + 1) / dim))
        assert learner.level().item() <= papers - math.log(delta)
    x = torch.from_numpy(unit_rows(np.random.default_rng(0), 30, dim))
    above = learner.predictor(x) + learner.radius() * learner.width(x)
    assert bool((learner.upper_bound(x) <= above).all())
    assert bool((learner.predictor(x) <= learner.upper_bound(x)).all())


@pytest.mark.parametrize("ridge", [None, 2.5])
def test_ofulog_r_agrees_with_reference(ridge: float | None) -> None:
    policy = OFULogR(3, horizon=30, theta_bound=1.5, delta=0.3, ridge=ridge, radius_scale=0.1)
    history, growth = History(LOGISTIC, 3), []
    for t, (arms, reward, scale) in enumerate(stream(Logistic(), 1.5, 30, 3, seed=4)):
        learn(policy, arms[0], reward, scale)
        history.add(arms[0], reward, scale**-2)
        growth.append(policy.estimator.logdet.item())
        if t % 10 == 9:
            theta, squared = ofulog_r(history, 1.5, 1.0, 0.3, ridge)
            np.testing.assert_allclose(policy.estimator.theta_hat.numpy(), theta, atol=1e-7)
            np.testing.assert_allclose(policy.estimator.level().item(), 0.01 * squared, rtol=1e-6)
            level = 0.01 * squared
            centre = theta if np.linalg.norm(theta) <= 1.5 else history.minimum(1.5)
            level -= history.loss(centre) - history.loss(theta)
            scores = [history.furthest(x, level, 1.5, centre) for x in arms]
            np.testing.assert_allclose(policy(torch.from_numpy(arms)).numpy(), scores, atol=1e-5)
            b, far = math.sqrt(squared), 1.5 + np.linalg.norm(theta)
            radius = 0.1 * b * math.sqrt(1.0 + min(b / math.sqrt(history.ridge), far))
            np.testing.assert_allclose(policy.estimator.radius().item(), radius, rtol=1e-6)
    # A program that never updates the matrix of this determinant has it at 0, or below.
    assert min(growth) > 0.0
    assert growth[-1] > growth[9] > growth[0]
    if ridge is not None:
        assert growth == sorted(growth)


@pytest.mark.parametrize("bound", [1.0, 2.0])
def test_ofulog_r_of_the_authors_program(bound: float) -> None:
    with pytest.warns(
        UserWarning, match=r"^constants: 'program' has the authors' constants; the radius is a heuristic here"
    ):
        learner = OFULogRRegression(3, horizon=40, theta_bound=1.5, feature_bound=bound, delta=0.3, constants="program")
    history = History(LOGISTIC, 3)
    for t, (arms, reward, scale) in enumerate(stream(Logistic(), 1.5, 40, 3, seed=4)):
        learn(learner, bound * arms[0], reward, scale)
        history.add(bound * arms[0], reward, scale**-2)
        if t % 10 == 9:
            theta, squared = ofulog_r_of_program(history, 1.5, bound, 0.3)
            np.testing.assert_allclose(learner.theta_hat.numpy(), theta, atol=1e-7)
            np.testing.assert_allclose(learner.level().item(), squared, rtol=1e-6)
            assert abs(squared / ofulog_r(history, 1.5, bound, 0.3, None)[1] - 1.0) > 0.1


def test_ofulog_r_with_an_estimate_out_of_the_ball() -> None:
    """The estimate has no bound, the set has; where no parameter of the ball is likely enough, the nearest is played."""
    x, one = torch.tensor([1.0, 0.0], dtype=D), torch.tensor(1.0, dtype=D)
    for scale, is_empty in ((0.3, False), (1e-3, True)):
        learner = OFULogRRegression(2, horizon=200, ridge=0.5, radius_scale=scale, theta_bound=0.5)
        learner.step(x.expand(200, 2), one.expand(200))
        assert float(learner.theta_hat.norm()) > 3.0
        ends = learner.ends(torch.eye(2, dtype=D))
        assert float(ends.norm(dim=-1).max()) <= 0.5 * (1.0 + 1e-12)
        torch.testing.assert_close(ends[0], 0.5 * x, rtol=0.0, atol=1e-6)
        assert (float(ends[1, 1]) < 1e-6) == is_empty


RS = {"warm_up_factor": 0.1, "radius_factor": 0.05}


def play_rs(policy: RSGLinCB, reference: Any, rounds: int) -> tuple[int, int]:
    """Side by side, each with its own choice, which has to be the same; how often arms were ruled out, and fits."""
    random, generator = np.random.default_rng(0), torch.Generator().manual_seed(0)
    truth, ruled_out = np.array([2.5, -2.0]), 0
    for t in range(rounds):
        arms = unit_rows(random, 6, 2)
        index = reference.choose(arms)
        assert int(policy.select(torch.from_numpy(arms))) == index, t
        if reference.kinds[-1] != "warm-up":
            ruled_out += reference.ruled_out
            np.testing.assert_allclose(policy.estimator.theta_hat.numpy(), reference.theta, atol=1e-7)
            np.testing.assert_allclose(policy.estimator.V.numpy(), reference.H_tau, rtol=1e-9)
        reward = float(Logistic().sample(torch.tensor(arms[index] @ truth), generator))
        scale = 0.5 + 0.5 * (t % 2)
        learn(policy, arms[index], reward, scale)
        reference.learn(arms[index], reward, scale**-2)
        np.testing.assert_allclose(policy.estimator.warm_up_theta.numpy(), reference.theta_o, atol=1e-7)
        np.testing.assert_allclose(policy.estimator.next_V.numpy(), reference.H, rtol=1e-7)
    return ruled_out, reference.kinds.count("fit")


def rs_pair() -> tuple[RSGLinCB, RSGLinCBReference]:
    policy = RSGLinCB(2, horizon=400, theta_bound=3.5, delta=0.1, **RS)
    return policy, RSGLinCBReference(LOGISTIC, 2, 400, 3.5, 1.0, 0.1, *RS.values())


def test_rs_glincb_agrees_with_reference() -> None:
    policy, reference = rs_pair()
    ruled_out, fits = play_rs(policy, reference, 400)
    assert ruled_out > 50
    assert fits >= 2
    assert reference.kinds.count("warm-up") == int(policy.estimator.is_warm_up.sum()) >= 10
    assert int(policy.estimator.fits) - fits in (0, 1)  # one that is due may not have been asked for yet


def test_a_matrix_that_is_only_another_name_would_be_noticed() -> None:
    """In a program where H_tau is the same array as H, the determinant never doubles again."""

    class Aliased(RSGLinCBReference):
        def learn(self, x: np.ndarray, r: float, w: float) -> None:
            same = self.H_tau is self.H
            super().learn(x, r, w)
            if same:
                self.H_tau = self.H

    policy, _ = rs_pair()
    with pytest.raises(AssertionError):
        play_rs(policy, Aliased(LOGISTIC, 2, 400, 3.5, 1.0, 0.1, *RS.values()), 400)


def rs_program_pair() -> tuple[RSGLinCB, RSGLinCBProgram]:
    text = (
        "^constants: 'program' has the constants of the paper's experiments; the warm-up and the radius are heuristics"
    )
    with pytest.warns(UserWarning, match=text):
        policy = RSGLinCB(2, horizon=400, theta_bound=3.5, delta=0.1, constants="program")
    return policy, RSGLinCBProgram(LOGISTIC, 2, 400, 3.5, 0.1)


def test_rs_glincb_of_the_papers_program() -> None:
    """Which has few warm-up rounds, where the constants of the theory would have nothing else."""
    policy, reference = rs_program_pair()
    assert policy.estimator.warm_up_from == pytest.approx(reference.threshold)
    assert policy.estimator.warm_up_radius == pytest.approx(reference.gamma * reference.kappa**0.5)
    assert policy.estimator.constant_radius == pytest.approx(reference.beta)
    _, fits = play_rs(policy, reference, 400)
    assert fits >= 5
    assert 5 <= reference.kinds.count("warm-up") == int(policy.estimator.is_warm_up.sum()) <= 40
    theory = RSGLinCB(2, horizon=400, theta_bound=3.5, delta=0.1)
    arms = torch.from_numpy(unit_rows(np.random.default_rng(0), 400, 2))
    theory.step(*round_of(theory, arms, torch.ones(400, dtype=D)))
    assert bool(theory.estimator.is_warm_up.all())


def test_rs_glincb_scales_its_program_with_the_length_of_features() -> None:
    """Features twice as long and a parameter half as long are the same round."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        one = RSGLinCBRegression(2, horizon=60, theta_bound=3.0, constants="program")
        other = RSGLinCBRegression(2, horizon=60, theta_bound=1.5, feature_bound=2.0, constants="program")
    assert one.warm_up_from == pytest.approx(other.warm_up_from)
    for arms, reward, scale in stream(Logistic(), 3.0, 60, 2, seed=1):
        learn(one, arms[0], reward, scale)
        learn(other, 2.0 * arms[0], reward, scale)
    assert torch.equal(one.is_warm_up, other.is_warm_up)
    torch.testing.assert_close(2.0 * other.theta_hat, one.theta_hat, rtol=1e-7, atol=1e-7)


def test_rs_glincb_fits_when_the_determinant_doubles() -> None:
    learner = RSGLinCBRegression(2, horizon=500, ridge=1.0, warm_up_factor=1e-3)
    generator, fits = torch.Generator().manual_seed(1), 0
    for _ in range(300):
        before, last = learner.V.clone(), learner.theta_hat.clone()
        learner.step(
            torch.randn(2, generator=generator).clamp(-0.7, 0.7), torch.randint(2, (), generator=generator).double()
        )
        doubled = float(torch.linalg.det(learner.next_V)) > 2.0 * float(torch.linalg.det(before))
        fits += doubled
        assert int(learner.fits) == fits
        assert torch.equal(learner.V, learner.next_V if doubled else before)
        assert torch.equal(learner.theta_hat, last) != doubled
    assert fits >= 4


def test_an_arm_that_is_not_available_rules_out_no_other() -> None:
    """RS-GLinCB's scores compare arms: neither a warm-up nor an elimination may come of one that cannot be played."""
    policy, reference = rs_pair()
    play_rs(policy, reference, 200)
    random = np.random.default_rng(5)
    changed = 0
    for _ in range(60):
        arms = torch.from_numpy(unit_rows(random, 8, 2))
        arms[0] *= 2.0  # needs a warm-up, or rules out the rest
        mask = torch.tensor([False] + [True] * 3 + [False] * 4)
        assert int(policy.select(arms, mask)) == 1 + int(policy.select(arms[1:4]))
        naive = policy(arms).masked_fill(~mask, -math.inf)
        changed += int(naive.argmax()) != int(policy.select(arms, mask))
    assert changed > 5
    with pytest.raises(ValueError, match=r"^mask: expected an available entry in each row"):
        policy.select(arms, torch.zeros(8, dtype=torch.bool))
    arms[0, 0] = torch.nan
    with pytest.raises(ValueError, match=r"^inputs: expected finite"):
        policy.select(arms, mask)


def misses(learner: Any, link: Link, bound: float, rounds: int, seed: int, off: float = 1.0) -> dict[str, Tensor]:
    """Which runs of a batch, on arms that it chooses, ever had the truth outside its set, its ellipsoid, or a tenth of that."""
    generator, runs = torch.Generator().manual_seed(seed), learner.batch_shape[0]
    truth = torch.randn(runs, 2, generator=generator, dtype=D)
    truth *= bound / truth.norm(dim=-1, keepdim=True)
    arms = torch.nn.functional.normalize(torch.randn(12, 2, generator=generator, dtype=D), dim=-1)
    policy, found = UCB(learner), {name: torch.zeros(runs, dtype=torch.bool) for name in ("set", "ellipsoid", "tenth")}
    for _ in range(rounds):
        x = arms[policy.select(arms.expand(runs, 12, 2))]
        policy.step(*round_of(policy, x, link.sample(off * (x * truth).sum(-1), generator)))
        error = (truth - learner.theta_hat).unsqueeze(-1)
        distance = (error.mT @ learner.V @ error).squeeze((-1, -2)).sqrt()
        found["ellipsoid"] |= distance > learner.radius()
        found["tenth"] |= distance > 0.1 * learner.radius()
        if hasattr(learner, "level"):
            for i in range(runs):
                loss, theta = learner._loss((i,), learner._penalty((i,))), learner._read("theta_hat", (i,))
                before = loss.link.log_partition(loss.predictors(theta))
                rise = loss.rise(loss.predictors(truth[i].numpy()), truth[i].numpy(), before, theta)
                found["set"][i] |= bool(rise > learner.level()[i])
    return found


RUNS = {"horizon": 60, "batch_shape": (30,), "theta_bound": 2.0, "delta": 0.1}
COVERED: dict[str, tuple[Any, Link, dict[str, Any]]] = {
    "OFUGLB logistic": (OFUGLBRegression, Logistic(), {"link": Logistic()}),
    "OFUGLB poisson": (OFUGLBRegression, Poisson(), {"link": Poisson()}),
    "GLM-UCB": (GLMUCBRegression, Logistic(), {"ridge": 0.1}),
    "OFULog-r": (OFULogRRegression, Logistic(), {"ridge": 2.0}),
}


@pytest.mark.parametrize("name", COVERED)
def test_sets_hold_the_truth(name: str) -> None:
    """30 runs of 40 rounds: at most delta of them, and three standard deviations, ever have the truth outside."""
    cls, link, options = COVERED[name]
    found = misses(cls(2, **RUNS | options), link, 2.0, 40, seed=6)
    allowed = 30 * 0.1 + 3.0 * (30 * 0.1 * 0.9) ** 0.5
    assert int(found["set"].sum()) <= allowed
    assert int(found["ellipsoid"].sum()) <= allowed
    # The control.
    assert int(found["tenth"].sum()) >= 25


def test_rewards_of_another_parameter_are_seen_to_leave_it_outside() -> None:
    found = misses(OFUGLBRegression(2, **RUNS), Logistic(), 2.0, 30, seed=6, off=-1.0)
    assert int(found["set"].sum()) >= 10


@pytest.mark.parametrize(
    "link",
    [Gaussian(0.5), Binomial(5), Gamma(4.0, shape=2.0), CustomLink(torch.cosh, torch.sinh, torch.cosh, 1.0, 6.0)],
)
@pytest.mark.parametrize("cls", [GLMUCB, RSGLinCB, OFUGLB])
@pytest.mark.filterwarnings("ignore:link. expected a link with sub-Gaussian rewards")
def test_any_link_will_do(cls: Any, link: Link) -> None:
    """Fitted to its own rewards, which a custom link takes from a normal law: at a minimum, and with an upper bound above it."""
    policy = cls(2, horizon=40, link=link, theta_bound=2.0, **(RS if cls is RSGLinCB else {}))
    estimator, random = policy.estimator, np.random.default_rng(7)
    for x in unit_rows(random, 40, 2):
        z = float(x @ np.array([1.0, -1.0]))
        reward = math.sinh(z) + random.normal() if isinstance(link, CustomLink) else float(draw(link, z, len(x)))
        learn(policy, x, reward, float(link.noise_scale))
    arms = torch.from_numpy(unit_rows(random, 5, 2))
    assert bool(torch.isfinite(policy(arms)).all()) or cls is RSGLinCB
    if cls is not RSGLinCB:
        ridge = estimator.slowest * estimator.ridge if cls is GLMUCB else 0.0
        loss, theta = estimator._loss((), ridge), estimator.theta_hat.numpy()
        gradient = loss.gradient(loss.rows @ theta, theta)
        inward = max(0.0, -float(gradient @ theta)) / 4.0 if np.linalg.norm(theta) > 2.0 - 1e-9 else 0.0
        np.testing.assert_allclose(gradient + inward * theta, 0.0, atol=1e-8)
        assert bool((policy(arms) >= (estimator(arms) if cls is GLMUCB else estimator.predictor(arms))).all())


LEARNERS: tuple[type[LikelihoodEstimator], ...] = (
    GLMUCBRegression,
    RSGLinCBRegression,
    OFUGLBRegression,
    OFULogRRegression,
)


@pytest.mark.parametrize("cls", LEARNERS)
def test_a_full_history_refuses_and_keeps_what_it_has(cls: Any) -> None:
    learner, x = cls(2, horizon=3), torch.tensor([0.6, 0.3], dtype=D)
    learner.step(x.expand(3, 2), torch.ones(3, dtype=D))
    before = snapshot(learner)
    with pytest.raises(ValueError, match=r"^horizon: expected at most 3 rounds"):
        learner.step(x, torch.tensor(1.0))
    with pytest.raises(ValueError, match=r"^x: expected features of norm at most 1"):
        cls(2, horizon=3).step(2.0 * x, torch.tensor(1.0))
    assert differences(before, snapshot(learner)) == []


@pytest.mark.parametrize("cls", LEARNERS)
def test_a_member_that_is_behind_is_as_it_would_be_alone(cls: Any) -> None:
    batched, alone = cls(2, horizon=20, batch_shape=(2,)), cls(2, horizon=20)
    generator = torch.Generator().manual_seed(0)
    for t in range(12):
        x = 0.5 * torch.rand(2, 2, generator=generator, dtype=D)
        reward = torch.randint(2, (2,), generator=generator).double()
        if t % 3:
            alone.step(x[1], reward[1])
            batched.step(x, reward)
        else:
            with only_where(torch.tensor([True, False]), batched):
                batched.step(x, reward)
    assert batched.rounds.tolist() == [12, 8]
    torch.testing.assert_close(batched.theta_hat[1], alone.theta_hat, rtol=0.0, atol=1e-9)
    torch.testing.assert_close(batched.radius()[1], alone.radius(), rtol=1e-9, atol=0.0)


@pytest.mark.parametrize("cls", LEARNERS)
@pytest.mark.parametrize("dtype", [D, torch.float32])
def test_on_tensors_as_on_arrays(cls: Any, dtype: torch.dtype) -> None:
    """Where the buffers are not NumPy's memory, as on an accelerator, a round reads and writes them as tensors."""
    options = {"horizon": 20, "batch_shape": (2,), "dtype": dtype} | ({} if cls is not RSGLinCBRegression else RS)
    learners = cls(2, **options), cls(2, **options)
    learners[1].is_small = False
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        x, reward = torch.rand(2, 2, generator=generator), torch.randint(2, (2,), generator=generator).double()
        for learner in learners:
            learner.step(0.5 * x, reward)
    for name, value in learners[0].state().items():
        torch.testing.assert_close(learners[1].get_buffer(name), value, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("cls", [GLMUCB, OFUGLB, OFULogR])
def test_without_checks_a_nan_stays_one(cls: Any) -> None:
    policy = cls(2, horizon=10, validate=False)
    policy.step(torch.tensor([[0.5, 0.5]]), 0, torch.tensor(math.nan))
    assert bool(policy.estimator.theta_hat.isnan().all())
    assert bool(policy(torch.eye(2)).isnan().all())


def test_the_gradient_of_an_upper_bound_is_where_it_is_taken() -> None:
    policy = OFUGLB(2, horizon=10)
    policy.step(torch.tensor([[[0.5, 0.5]], [[0.1, -0.9]]]), [0, 0], torch.tensor([1.0, 0.0]))
    arms = torch.randn(3, 2, dtype=torch.float32, requires_grad=True)
    policy(arms).sum().backward()
    torch.testing.assert_close(arms.grad, policy.estimator.ends(arms).float())


@pytest.mark.parametrize("door", [to_torchscript, to_program, lambda policy: to_onnx(policy, "scores.onnx")])
def test_no_door_leads_out_of_python(door: Any) -> None:
    for cls in (OFUGLB, GLMUCB):
        with pytest.raises(ValueError, match=r"expected learners that .*, got \w+Regression.*Python only$"):
            door(cls(2, horizon=20))


def test_sets_too_thin_to_be_resolved_are_said_to_be() -> None:
    estimator = OFUGLBRegression(1, horizon=5, link=Gaussian(1e-3), theta_bound=3.0)
    x = torch.tensor([0.7], dtype=D)
    for row, reward in ((x, 1e12), (-x, 1.01e12), (x, 1e12 / 7.0)):
        estimator.step(row, torch.tensor(reward, dtype=D))
    with pytest.warns(UserWarning, match="^score: the confidence set is too thin"):
        assert bool(estimator.upper_bound(torch.tensor([[-1.0]], dtype=D)).isfinite().all())


def test_features_whose_squares_underflow() -> None:
    estimator = OFUGLBRegression(2, horizon=5)
    for size in (1e-160, 1e-155, 1e-150, 1e-100):
        estimator.step(torch.tensor([size, 0.5 * size], dtype=D), torch.tensor(0.66, dtype=D))
    assert all(bool(buffer.isfinite().all()) for buffer in estimator.state().values())


@pytest.mark.parametrize("make", [GLMUCBRegression, RSGLinCBRegression])
def test_links_that_are_flat_within_the_bound_are_refused(make: Any) -> None:
    with pytest.raises(ValueError, match=r"^theta_bound: expected one within which the link has slopes"):
        make(2, horizon=10, theta_bound=800.0)


def test_directions_of_any_length_and_sets_without_a_level() -> None:
    """The score of a multiple is the multiple of the score; of a set that leaves nothing out, the ball's."""
    policy = OFUGLB(2, horizon=10, theta_bound=2.0)
    policy.step(torch.tensor([[0.6, 0.8]]), 0, torch.tensor(1.0))
    x = torch.tensor([0.8, -0.6], dtype=D)
    score = policy.estimator.upper_bound(x)
    for factor in (1e-300, 1e-170, 1e170, 1e300):
        torch.testing.assert_close(policy.estimator.upper_bound(factor * x) / factor, score, rtol=1e-7, atol=0.0)
    wide = OFULogRRegression(100, horizon=10, feature_bound=1e4)
    x = torch.nn.functional.one_hot(torch.tensor(3), 100).to(D)
    wide.step(x, torch.tensor(1.0))
    assert wide.level().isinf()
    assert float(wide.upper_bound(x)) == 1.0
