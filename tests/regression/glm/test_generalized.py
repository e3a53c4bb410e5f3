"""GLBOMD and LocalGLB against independent numbers, a reference, scipy's minima, and what theory says of special cases."""

import functools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

import torchonline
from tests.learners import VARIANTS, differences, same, snapshot
from tests.reference import glm as reference
from torchonline import GLBOMD, GLMRegression, LocalGLB, LocalGLMRegression, RidgeRegression
from torchonline.export import to_program, to_torchscript
from torchonline.links import Binomial, CustomLink, Gaussian, Link, Logistic, Poisson

D = torch.float64
CASES = json.loads((Path(__file__).parents[2] / "data" / "generalized_linear.json").read_text())["cases"]
NAMED = {"logistic": Logistic, "poisson": Poisson, "gaussian": Gaussian}
ESTIMATORS = (GLMRegression, LocalGLMRegression)
LINKS = [Logistic(), *VARIANTS["link"]]


def relative(seen: torch.Tensor, expected: Any) -> float:
    """The largest relative error, of entries that are not 0."""
    wanted = torch.tensor(expected, dtype=D)
    return float(((seen - wanted).abs() / wanted.abs()).max())


@pytest.mark.filterwarnings("ignore:ridge. 2 is below:UserWarning")
@pytest.mark.parametrize("form", ["single", "batch", "script"])
@pytest.mark.parametrize(
    "case", CASES, ids=lambda case: f"{case['learner']}-{case['link']}-{case['options']['ridge']:.1f}"
)
def test_replay(case: dict[str, Any], form: str) -> None:
    batch = (2,) if form == "batch" else ()
    policy = getattr(torchonline, case["learner"])(**case["options"], link=NAMED[case["link"]](), batch_shape=batch)
    estimator = policy.estimator
    if "eta" in case:
        # Theirs is the maximum itself, ours a bound of it.
        assert case["eta"] <= estimator.eta <= 1.001 * case["eta"]
        vars(estimator)["eta"] = case["eta"]  # an option may not be set
        estimator.reset()
    if form == "script":
        policy = torch.jit.script(policy)
        estimator = policy.estimator
    compared = 0
    for t, reward in enumerate(case["reward"]):
        arms = torch.tensor(case["arms"][t], dtype=D).expand(*batch, -1, -1)
        if "radius" in case:
            assert relative(estimator.radius(), case["radius"][t]) <= (1e-12 if "radius" in case["options"] else 1e-8)
            if case.get("gap", [1.0] * (t + 1))[t] > 1e-9:
                compared += 1
                assert policy.select(arms).unique().tolist() == [case["chosen"][t]]
        policy.step(arms, torch.full(batch, case["chosen"][t]), torch.full(batch, reward, dtype=D))
        assert float((estimator.theta_hat - torch.tensor(case["theta"][t], dtype=D)).abs().max()) < 1e-9
        if "squared_radius" in case:
            assert relative(estimator.squared_radius, case["squared_radius"][t]) < 1e-8
        if str(t) in case.get("V", {}):
            assert relative(estimator.V, case["V"][str(t)]) < 1e-10
    assert compared > 100 or "radius" not in case


def of_reference(estimator: Any) -> Any:
    """The reference of a learner, with its options."""
    link = estimator.link
    common = {
        "concordance": estimator.concordance,
        "bound": estimator.theta_bound,
        "ridge": estimator.ridge,
        "delta": estimator.delta,
        "scale": link.noise_scale,
    }
    name = type(link).__name__
    if isinstance(estimator, GLMRegression):
        return reference.GLBOMD(estimator.dim, name, eta=estimator.eta, **common)
    kept = {"unimodal": link.is_unimodal, "corruption": estimator.corruption}
    return reference.LocalGLB(estimator.dim, name, **kept, **common)


@pytest.mark.parametrize("corruption", [None, 0.0, 5.0])
@pytest.mark.parametrize("link", LINKS, ids=str)
def test_agrees_with_reference(link: Link, corruption: float | None) -> None:
    """Features of all lengths, zero rows, predictors at the end of their range, a dispersion of its own for every round."""
    random = np.random.default_rng(0)
    generator = torch.Generator().manual_seed(0)
    options: dict[str, Any] = {"link": link, "theta_bound": 1.0, "feature_bound": 2.0, "ridge": 0.5, "delta": 0.05}
    is_descent = corruption is None
    estimator: Any = (
        GLMRegression(3, **options) if is_descent else LocalGLMRegression(3, corruption=corruption, **options)
    )
    theirs = of_reference(estimator)
    theta = random.standard_normal(3)
    theta *= 0.95 / np.linalg.norm(theta)
    probes = random.standard_normal((5, 3))
    projected, was_negative = 0, False
    for t in range(150):
        x = random.standard_normal(3)
        x *= random.uniform(0.0, 2.0) ** (1 + t % 3) / np.linalg.norm(x) / 2.0 ** (t % 3)
        if t % 29 == 7:
            x[:] = 0.0
        z = torch.tensor(x @ theta)
        # Now and then what is far from expected.
        reward = link.possible(3.0 * torch.randn((), generator=generator, dtype=D) if t % 4 == 0 else link.mean(z))
        scale = None if t % 2 else link.noise_scale * random.uniform(0.5, 2.0)
        estimator.step(torch.from_numpy(x), reward, noise_scale=None if scale is None else torch.tensor(scale, dtype=D))
        theirs.step(x, float(reward), scale)
        projected += float(estimator.theta_hat.norm()) > 1.0 - 1e-9
        was_negative |= theirs.squared < 0.0
        assert bool(estimator.misspecified) == was_negative
        np.testing.assert_allclose(estimator.theta_hat.numpy(), theirs.theta, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(float(estimator.squared_radius), theirs.squared, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(estimator.radius().item(), theirs.radius(), rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(estimator.V.numpy(), theirs.V, rtol=1e-9, atol=1e-9)
        if t % 10 == 0:
            seen = estimator.width(torch.from_numpy(probes)).numpy()
            np.testing.assert_allclose(seen, theirs.width(probes), rtol=1e-9)
            np.testing.assert_allclose(
                estimator(torch.from_numpy(probes)).numpy(),
                theirs.mu(np.clip(probes @ theirs.theta, -estimator.end, estimator.end)),
                rtol=1e-8,
            )
    if is_descent and isinstance(link, (Binomial, Poisson, Gaussian)):
        assert projected > 3


@pytest.mark.parametrize("reward", [3.0, -3.0])
def test_a_step_to_the_end_of_the_ball_beyond_the_confidence_set(reward: float) -> None:
    """There the last term of LocalGLB's radius, which is 0 otherwise, takes from it: what no truth in the set explains."""
    estimator = LocalGLMRegression(1, link=Gaussian(0.1), theta_bound=0.5, ridge=1.0)
    theirs, one = of_reference(estimator), torch.ones(1, dtype=D)
    estimator.step(one.expand(50, 1), torch.zeros(50))
    for _ in range(50):
        theirs.step(one.numpy(), 0.0)
    assert estimator.interval(one)[1] < 0.1
    estimator.step(one, torch.tensor(reward), noise_scale=torch.tensor(0.03))
    theirs.step(one.numpy(), reward, 0.03)
    assert float(estimator.theta_hat) == pytest.approx(math.copysign(0.5, reward), rel=1e-12)
    assert float(estimator.squared_radius) == pytest.approx(theirs.squared, rel=1e-7)


def test_a_step_is_the_constrained_minimum() -> None:
    """Update (3) of the paper: a quadratic model of the loss and the distance in V, over the ball."""
    random = np.random.default_rng(1)
    worst, active = 0.0, 0
    for number in range(200):
        dim = int(random.integers(1, 6))
        link = (Logistic(), Poisson())[number % 2]
        S = float(random.uniform(0.5, 3.0))
        estimator = GLMRegression(dim, link=link, theta_bound=S, ridge=float(random.uniform(0.2, 5.0)))
        rounds = random.standard_normal((int(random.integers(1, 8)), dim))
        rounds /= np.maximum(1.0, np.linalg.norm(rounds, axis=-1, keepdims=True))
        rewards = random.integers(0, 2 + 3 * (number % 2), len(rounds)).astype(float)
        estimator.step(torch.from_numpy(rounds[:-1]), torch.from_numpy(rewards[:-1]))
        x, r, eta = rounds[-1], rewards[-1], estimator.eta
        theta, V = estimator.theta_hat.numpy().copy(), estimator.V.numpy().copy()
        z = torch.tensor(x @ theta)
        rho, w = float(link.mean(z)) - r, float(link.slope(z))

        def objective(u: np.ndarray, x=x, theta=theta, V=V, rho=rho, w=w, eta=eta) -> float:
            move = u - theta
            return rho * (x @ move) + 0.5 * w * (x @ move) ** 2 + 0.5 / eta * move @ V @ move

        def slope(u: np.ndarray, x=x, theta=theta, V=V, rho=rho, w=w, eta=eta) -> np.ndarray:
            move = u - theta
            return rho * x + w * (x @ move) * x + V @ move / eta

        ball = {"type": "ineq", "fun": lambda u, S=S: S * S - u @ u, "jac": lambda u: -2.0 * u}
        options = {"ftol": 1e-16, "maxiter": 500}
        found = minimize(objective, theta * 0.9, jac=slope, constraints=[ball], method="SLSQP", options=options).x
        estimator.step(torch.from_numpy(x), torch.tensor(r))
        worst = max(worst, float(np.abs(estimator.theta_hat.numpy() - found).max()))
        active += float(np.linalg.norm(found)) > S * (1.0 - 1e-6)
    assert worst < 1e-7
    assert 20 <= active <= 180


@pytest.mark.parametrize(
    ("link", "told", "S"),
    [
        *((Logistic(), S, S) for S in (3.0, 10.0, 40.0)),
        *((Poisson(), S, S) for S in (3.0, 8.0, 20.0)),
        (Binomial(100), 4.0, 4.0),
        (torchonline.Gamma(12.0), 10.0, 10.0),
        # Of features that are longer than they are said to be.
        (Logistic(), 1.0, 8.0),
        (Poisson(), 1.0, 8.0),
    ],
)
def test_proximal_steps_arrive(link: Link, told: float, S: float) -> None:
    """From far away, on rounds of great weight, at the bound: as bisection has it. With three steps less it would not arrive."""
    generator = torch.Generator().manual_seed(0)
    estimator, size = LocalGLMRegression(1, link=link, theta_bound=told), 5000
    z = S * (2.4 * torch.rand(size, generator=generator, dtype=D) - 1.2)
    reward = link.sample(0.9 * S * (2.0 * torch.rand(size, generator=generator, dtype=D) - 1.0), generator)
    s = 10.0 ** (8.0 * torch.rand(size, generator=generator, dtype=D) - 4.0)
    bound = torch.full((size,), S, dtype=D)
    low, high = -bound, bound
    for _ in range(80):
        middle = 0.5 * (low + high)
        above = middle - z + s * (link.mean(middle) - reward) > 0.0
        low, high = torch.where(above, low, middle), torch.where(above, middle, high)
    found = z + estimator._move(z, s, bound, reward)
    assert float((found - low).abs().max()) < 1e-9
    assert 0 < int((found.abs() == S).sum()) < size
    estimator.newton_steps -= 3
    assert float((z + estimator._move(z, s, bound, reward) - low).abs().max()) > 1e-9


def test_on_a_line_the_model_is_ridge_regression() -> None:
    """Gaussian link: theta while the ball is inactive, and both radii, by what is known of linear regression."""
    generator = torch.Generator().manual_seed(0)
    S, ridge, delta, sigma = 50.0, 2.0, 0.05, 0.5
    link = Gaussian(sigma)
    theta = torch.tensor([0.5, -1.0, 0.3], dtype=D)
    mirror, local = (
        cls(3, link=link, theta_bound=S, ridge=ridge, delta=delta) for cls in (GLMRegression, LocalGLMRegression)
    )
    exact = RidgeRegression(3, noise_scale=1.0, ridge=ridge)
    for _ in range(300):
        x = torch.randn(3, generator=generator, dtype=D)
        x = x / x.norm()
        reward = x @ theta + sigma * torch.randn((), generator=generator, dtype=D)
        for learner in (mirror, local):
            learner.step(x, reward)
        exact.step(x / sigma, reward / sigma)
        determinant = float(torch.linalg.slogdet(mirror.V / ridge)[1])
        expected = ridge * S**2 - 2.0 * math.log(delta) + determinant
        assert float((mirror.theta_hat - exact.theta_hat).abs().max()) < 1e-12
        for learner in (mirror, local):
            assert float((learner.V - exact.V).abs().max()) < 1e-12 * float(exact.V.abs().max())
            assert abs(float(learner.squared_radius) - expected) < 1e-6
    assert float((local.theta_hat - exact.theta_hat).abs().max()) < 1e-12


@pytest.mark.parametrize("batch", [(), (1,)])
@pytest.mark.parametrize("cls", ESTIMATORS)
def test_small_costs_add_up_in_single_precision(cls: Any, batch: tuple[int, ...]) -> None:
    """Next to a squared radius whose last digit is far above them: plain sums are a hundred times further off."""
    make = functools.partial(cls, 2, link=Gaussian(), theta_bound=1000.0, ridge=1.0, batch_shape=batch)
    single, double = make(dtype=torch.float32), make(dtype=D)
    x = torch.tensor([0.25, 0.5]).expand(*batch, 500, 2)
    start = double.squared_radius.clone()
    for learner in (single, double):
        learner.step(x, torch.zeros(*batch, 500))
    assert float(double.squared_radius - start) > 4.0
    exact = single.squared_radius.double() - single.squared_radius_lost.double()
    assert float((exact - double.squared_radius).abs().max()) < 0.1


@pytest.mark.parametrize("make", [GLBOMD, LocalGLB, *(functools.partial(GLBOMD, radius=r) for r in ("tight", "paper"))])
def test_a_radius_scale_changes_choices_and_nothing_else(make: Any) -> None:
    """The update goes by the radius of the proof."""
    generator = torch.Generator().manual_seed(0)
    whole, part = (make(2, theta_bound=3.0, ridge=112.0, radius_scale=scale).estimator for scale in (1.0, 0.25))
    x = torch.nn.functional.normalize(torch.randn(50, 2, generator=generator, dtype=D), dim=-1)
    reward = Logistic().sample(3.0 * x[:, 0], generator)
    for learner in (whole, part):
        learner.step(x, reward)
    assert differences(snapshot(whole), snapshot(part)) == []
    assert float(part.radius()) == pytest.approx(0.25 * float(whole.radius()), rel=1e-12)


@pytest.mark.parametrize(
    ("link", "S", "dim", "ridge"),
    [
        (Logistic(), 3.0, 2, 112.0),
        (Logistic(), 3.0, 5, 280.0),
        (Poisson(), 3.0, 2, 72.0 * math.exp(3.0)),
        (Gaussian(0.5), 3.0, 2, 8.0),
    ],
)
def test_the_ridge_of_theory(link: Link, S: float, dim: int, ridge: float) -> None:
    """By dimension and by the largest slope; below it the paper's radii come with a warning, and the other does not."""
    assert GLMRegression(dim, link=link, theta_bound=S, radius="paper", ridge=ridge).theory_ridge() == pytest.approx(
        ridge
    )
    for radius in ("paper", "tight"):
        with pytest.warns(UserWarning, match=rf"^ridge: {dim} is below {ridge:g}, .* is a heuristic here$"):
            GLBOMD(dim, link=link, theta_bound=S, radius=radius)
    GLBOMD(dim, link=link, theta_bound=S)
    # The same problem in other units of the features.
    scaled = GLMRegression(dim, link=link, theta_bound=S / 4.0, feature_bound=4.0, radius="paper", ridge=ridge * 16.0)
    assert scaled.theory_ridge() == pytest.approx(ridge * 16.0)


@pytest.mark.parametrize("cls", [GLBOMD, torchonline.baselines.CappedGLBOMD])
@pytest.mark.parametrize("radius", ["paper", "tight"])
def test_the_papers_theorem_needs_self_concordance_for_all_predictors(cls: Any, radius: str) -> None:
    """Its proof averages the loss over a normal law; that of the empirical radius stays in [-SL, SL]."""
    custom = torchonline.CustomLink(torch.cosh, torch.sinh, torch.cosh, R=1.0)
    for link in (torchonline.Gamma(3.0), custom):
        name = type(link).__name__
        with pytest.warns(UserWarning, match=rf"^link: {name} is not self-concordant .* is a heuristic here$"):
            assert cls(2, link=link, radius=radius, ridge=1e6).estimator.guarantee == "none"
        assert cls(2, link=link).estimator.guarantee == "in all rounds"
    for link in (Logistic(), Poisson(), Gaussian(), torchonline.Binomial(10)):
        assert cls(2, link=link, radius=radius, ridge=1e6).estimator.guarantee == "in all rounds"


def test_the_loss_of_gamma_rewards_is_infinite_within_reach_of_the_papers_normal_law() -> None:
    """At the offset the log-partition is infinite, and beyond it there is none: the mean over a normal law is not finite."""
    partition = torchonline.Gamma(3.0).log_partition(torch.tensor([3.0, 3.5], dtype=D))
    assert partition[0] == math.inf
    assert bool(partition[1].isnan())


def test_the_tight_radius_is_below_the_papers_and_above_what_rounds_cost() -> None:
    generator = torch.Generator().manual_seed(0)
    learners = [GLMRegression(2, theta_bound=3.0, ridge=112.0, radius=radius) for radius in ("paper", "tight")]
    for _ in range(200):
        x = torch.randn(2, generator=generator, dtype=D)
        x = x / x.norm()
        reward = Logistic().sample(3.0 * x[0], generator)
        for learner in learners:
            learner.step(x, reward)
        paper, tight = (float(learner.radius()) for learner in learners)
        eigenvalues = np.linalg.eigvalsh(learners[1].V.numpy())
        expected = 112.0 * 9.0 - 8.0 * math.log(0.01) + 6.0 * 16.0 * np.log(eigenvalues / 56.0 - 1.0).sum()
        assert tight**2 == pytest.approx(expected, rel=1e-12)
        assert float(learners[1].squared_radius) ** 0.5 <= tight <= paper


@pytest.mark.parametrize(
    ("radius", "export"), [("paper", to_torchscript), ("tight", to_torchscript), ("tight", to_program)]
)
def test_radii_of_theory_are_exported(radius: str, export: Any) -> None:
    """An export compares what it makes with the eager learner over a dozen rounds."""
    export(GLBOMD(2, theta_bound=1.0, ridge=60.0, radius=radius))


@pytest.mark.parametrize("make", [GLBOMD, LocalGLB])
def test_a_warm_start(make: Any) -> None:
    """At the truth, with a trust radius: the set holds the truth and is smaller; refused where it proves nothing."""
    truth = torch.tensor([2.0, 1.0])
    cold, warm, close = (make(2, theta_bound=3.0).estimator for _ in range(3))
    warm.warm_start(truth)
    close.warm_start(truth, distance=0.1)
    assert same(warm.theta_hat, truth.double())
    start = cold.squared_radius - cold.ridge * 9.0
    assert float(warm.squared_radius - start) == pytest.approx(cold.ridge * (3.0 + 5.0**0.5) ** 2)
    assert float(close.squared_radius - start) == pytest.approx(cold.ridge * 0.01)
    generator = torch.Generator().manual_seed(0)
    for _ in range(300):
        x = torch.randn(2, generator=generator)
        x = x / x.norm()
        reward = Logistic().sample(x @ truth, generator)
        for learner in (cold, warm, close):
            learner.step(x, reward)
    for learner in (cold, warm, close):
        gap = learner.theta_hat - truth
        assert float(gap @ learner.V @ gap) <= float(learner.squared_radius)
    assert float(close.radius()) < float(cold.radius())
    before = snapshot(close)
    with pytest.raises(ValueError, match=r"^theta: expected before the first round, got after 300"):
        close.warm_start(truth)
    for bad, error, why in (
        (torch.tensor([3.0, 3.0]), ValueError, "expected a norm of at most theta_bound = 3"),
        (torch.tensor([1.0]), ValueError, "expected shape"),
        (torch.tensor([torch.nan, 0.0]), ValueError, "expected finite"),
        ("guess", TypeError, "expected a torch.Tensor"),
    ):
        with pytest.raises(error, match=f"^theta: {why}"):
            make(2, theta_bound=3.0).estimator.warm_start(bad)
    with pytest.raises(ValueError, match=r"^theta: expected no warm start with radius='tight'"):
        GLMRegression(2, radius="tight", ridge=100.0).warm_start(torch.zeros(2))
    with pytest.raises(ValueError, match=r"^distance: expected a number above 0"):
        make(2, theta_bound=3.0).estimator.warm_start(truth, distance=-1.0)
    assert differences(before, snapshot(close)) == []


@pytest.mark.parametrize("cls", ESTIMATORS)
@pytest.mark.parametrize(
    ("link", "bad", "what"),
    [
        (Logistic(), (1.2, -0.1), r"in \[0, 1\], as Logistic has it, got"),
        (Poisson(), (-1.0, 0.5), "whole numbers from 0 on, as Poisson has it, got"),
        (Binomial(5), (6.0, 2.5, -1.0), "whole numbers from 0 to 5, as Binomial has it, got"),
        (torchonline.Gamma(3.0), (-0.1,), "at least 0, as Gamma has it, got"),
    ],
)
def test_rewards_that_cannot_be_are_refused(cls: Any, link: Link, bad: tuple[float, ...], what: str) -> None:
    x = torch.full((2,), 0.5)
    for batch in ((), (2,)):
        learner = cls(2, link=link, batch_shape=batch)
        learner.step(x.expand(*batch, 2), torch.ones(batch))
        before = snapshot(learner)
        for value in bad:
            good = torch.ones(*batch, 3)
            good.view(-1)[-1] = value
            for features, reward in (
                (x.expand(*batch, 2), torch.full(batch, value)),
                (x.expand(*batch, 3, 2), good),
            ):
                with pytest.raises(ValueError, match=f"^reward: expected {what}"):
                    learner.step(features, reward)
            assert differences(before, snapshot(learner)) == []


def test_what_is_hardly_beyond_a_bound_is_told_as_it_is() -> None:
    for bad in (1.0 + 1e-12, -1e-12):
        with pytest.raises(ValueError, match=rf"^reward: expected in \[0, 1\], as Logistic has it, got {bad}$"):
            LocalGLMRegression(1).step(torch.ones(1), torch.tensor(bad, dtype=D))
    with pytest.raises(ValueError, match=r"^x: expected features of norm at most 1, .*, got 1\.000002; scale"):
        GLMRegression(1).step(torch.tensor([1.000002], dtype=D), torch.tensor(1.0))
    # Lengths are told apart to six digits, which must not be enough for a predictor to reach the offset.
    with pytest.raises(ValueError, match=r"^theta_bound: expected \|x'theta\| below 1, the reach of Gamma, got up to"):
        LocalGLMRegression(2, link=torchonline.Gamma(1.0), theta_bound=1.0 - 1e-7)


def test_features_beyond_the_bounds_of_the_constants_are_refused() -> None:
    long, reward = torch.tensor([1.5, 0.0]), torch.tensor(1.0)
    custom = CustomLink(torch.cosh, torch.sinh, torch.cosh, R=1.0)
    for learner in (
        GLMRegression(2),
        GLMRegression(2, batch_shape=(2,)),
        LocalGLMRegression(2, link=torchonline.Gamma(3.0)),
        LocalGLMRegression(2, link=custom),
        LocalGLMRegression(2, link=Poisson(), theta_bound=34.0),
        LocalGLMRegression(2),
        LocalGLMRegression(2, batch_shape=(2,)),
    ):
        before = snapshot(learner)
        with pytest.raises(ValueError, match=r"^x: expected features of norm at most 1"):
            learner.step(long.expand(*learner.batch_shape, 2), reward.expand(learner.batch_shape))
        assert differences(before, snapshot(learner)) == []
    for cls in (GLMRegression, LocalGLMRegression):
        cls(2, feature_bound=1.5).step(long, reward)
    for make, name in (
        (lambda: GLMRegression(2, link=Poisson(), theta_bound=90.0), "theta_bound"),
        (lambda: LocalGLMRegression(2, link=torchonline.Gamma(3.0), theta_bound=3.0), "theta_bound"),
        (lambda: GLMRegression(2, link=torchonline.Gamma(3.0), theta_bound=1.0, feature_bound=3.0), "theta_bound"),
    ):
        with pytest.raises(ValueError, match=rf"^{name}: expected \|x'theta\| below"):
            make()


@pytest.mark.parametrize("cls", ESTIMATORS)
def test_other_links_checkpoints_are_refused(cls: Any) -> None:
    learner = cls(2, link=Poisson())
    learner.step(torch.tensor([1.0, 0.0]), torch.tensor(2.0))
    before = snapshot(learner)
    with pytest.raises(RuntimeError, match=r"the link's mean at -0.5: the state was learnt with 0.37754"):
        learner.load_state_dict(cls(2).state_dict())
    assert differences(before, snapshot(learner)) == []


OTHERS = ({"theta_bound": 2.0}, {"ridge": 3.0}, {"delta": 0.1}, {"link": Gaussian(0.5)})


@pytest.mark.parametrize(
    ("cls", "changed"),
    [*((cls, other) for cls in ESTIMATORS for other in OTHERS), (GLMRegression, {"radius": "paper"})],
)
def test_a_sum_of_costs_is_refused_under_other_options(cls: Any, changed: dict[str, Any]) -> None:
    options = {"link": Poisson() if "radius" in changed else Gaussian(), "ridge": 1e4}
    with pytest.raises(RuntimeError, match="the state was learnt with"):
        cls(2, **options | changed).load_state_dict(cls(2, **options).state_dict())


@pytest.mark.parametrize("cls", ESTIMATORS)
def test_a_round_that_would_outweigh_all_others_is_refused(cls: Any) -> None:
    learner, x = cls(2), torch.tensor([1.0, 0.0])
    before = snapshot(learner)
    with pytest.raises(ValueError, match=r"^noise_scale: expected"):
        learner.step(x, torch.tensor(1.0), noise_scale=torch.tensor(1e-21, dtype=D))
    assert differences(before, snapshot(learner)) == []


@pytest.mark.parametrize("link", LINKS, ids=str)
def test_0_and_1_are_rewards_of_every_link(link: Link) -> None:
    """The fast path of one learner asks no further."""
    rewards = torch.tensor([0.0, 1.0])
    assert torch.equal(link.possible(rewards), rewards)


def test_the_usual_ridge() -> None:
    assert GLMRegression(3, theta_bound=2.0).ridge == 3.0
    for feature_bound in (1.0, 100.0):  # room for longer features changes nothing
        assert LocalGLMRegression(3, theta_bound=2.0, feature_bound=feature_bound).ridge == 1.0
    assert LocalGLMRegression(3, link=Gaussian(), theta_bound=2.0).ridge == 3.0


@pytest.mark.parametrize("cls", ESTIMATORS)
def test_what_contradicts_the_model_is_flagged(cls: Any) -> None:
    """Noise of thirty times the scale that is told: the flag rises in many runs, in none if it is right, and stays up."""
    generator = torch.Generator().manual_seed(0)
    learners = {factor: cls(3, link=Gaussian(0.1), delta=0.5, batch_shape=(100,)) for factor in (1.0, 30.0)}
    raised = torch.zeros(100, dtype=torch.bool)
    for _ in range(100):
        x = torch.nn.functional.normalize(torch.randn(100, 3, generator=generator, dtype=D), dim=-1)
        noise = torch.randn(100, generator=generator, dtype=D)
        for factor, learner in learners.items():
            learner.step(x, 0.5 * x[:, 0] + 0.1 * factor * noise)
        raised |= learners[30.0].squared_radius < 0.0
    wrong, right = learners[30.0], learners[1.0]
    assert int(wrong.misspecified.sum()) > 30
    assert torch.equal(wrong.misspecified, raised)
    assert bool((wrong.squared_radius[raised] > 0.0).any())
    assert bool((wrong.radius() >= 0.0).all())
    assert not bool(right.misspecified.any())
    wrong.reset()
    assert not bool(wrong.misspecified.any())


@pytest.mark.parametrize("form", ["eager", "script"])
def test_a_misspecified_set_does_not_keep_blocks_from_moving_the_estimate(form: str) -> None:
    """At radius 0 the confidence set pays nothing for staying, but the minimum of a block is elsewhere."""
    learner = LocalGLMRegression(2, feature_bound=10.0)
    learner.squared_radius.fill_(-1.0)
    compiled: Any = torch.jit.script(learner) if form == "script" else learner
    x, reward = torch.randn(40, 2, dtype=D), torch.ones(40, dtype=D)
    reward[x[:, 0] < 0.0] = 0.0
    compiled.learn(x, reward, block_size=40)
    theta = learner.theta_hat
    gradient = (torch.sigmoid(x @ theta) - reward) @ x + learner.ridge * theta
    assert float(gradient.norm()) < 1e-9 < 0.1 < float(theta.norm())


def test_costs_that_are_no_numbers_are_refused() -> None:
    """In single precision a count of a trillion in a round of great weight; and a guess too far away to be squared."""
    learner = GLMRegression(1, link=Poisson(), dtype=torch.float32, ridge=1e4, batch_shape=(1,))
    before = snapshot(learner)
    with pytest.raises(ValueError, match=r"^reward: expected one whose cost"):
        learner.step(torch.tensor([[1.0]]), torch.tensor([1e12]), noise_scale=torch.tensor([1e-4]))
    assert differences(before, snapshot(learner)) == []
    with pytest.raises(ValueError, match=r"^distance: expected from"):
        LocalGLMRegression(2, dtype=torch.float32).warm_start(torch.zeros(2), distance=1e30)


def test_means_beyond_what_a_link_has() -> None:
    """Gamma has no mean from its offset on: a row that is too long to be learnt from has that of the end of the range."""
    learner = LocalGLMRegression(1, link=torchonline.Gamma(2.0), theta_bound=1.5)
    for _ in range(50):
        learner.step(torch.tensor([1.0]), torch.tensor(1.5))
    low, high = learner.interval(torch.tensor([[1.0], [1.4], [3.0]]))
    assert bool((low <= high).all())
    assert bool((high <= 2.0 + 1e-9).all())


def test_the_papers_radii_refuse_a_smaller_dispersion() -> None:
    x, reward = torch.tensor([1.0, 0.0]), torch.tensor(0.5)
    for radius in ("paper", "tight"):
        learner = GLMRegression(2, radius=radius, ridge=200.0)
        learner.step(x, reward, noise_scale=torch.tensor(2.0))
        with pytest.raises(ValueError, match=r"^noise_scale: expected values of at least 1"):
            learner.step(x, reward, noise_scale=torch.tensor(0.5))
    GLMRegression(2).step(x, reward, noise_scale=torch.tensor(0.5))
