"""The rivals against NumPy versions of their equations, scipy, and what they are for."""

import inspect
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import minimize, root
from scipy.stats import binom

import torchonline
from tests.learners import differences, public_classes, round_of, snapshot
from tests.reference.bmm import BMMReference
from tests.reference.btc import BTCReference
from tests.reference.crmm import CRMMReference
from tests.reference.crtm import CRTMReference
from tests.reference.follow import data, follow
from tests.reference.heavy_oful import HeavyOFULReference, Loss
from tests.reference.menu import MENUReference
from tests.reference.tofu import TOFUReference
from torchonline.baselines import (
    BMM,
    BTC,
    CRMM,
    CRTM,
    MENU,
    TOFU,
    BMMRegression,
    BTCRegression,
    CRMMRegression,
    CRTMRegression,
    HeavyOFUL,
    HeavyOFULRegression,
    MENURegression,
    TOFURegression,
)
from torchonline.baselines.heavy_tailed.base import EpochEstimator
from torchonline.environments import LinearBandit, Noise, Pareto, StudentT
from torchonline.export import to_program
from torchonline.export.programs import only_where
from torchonline.links import Gamma, Gaussian, Link, Logistic
from torchonline.regression.estimator import Estimator

D = torch.float64
OPTIONS: dict[str, dict[str, Any]] = {
    "default": {},
    "infinite variance": {"moment_order": 1.5},
    "all": {
        "moment_order": 1.2,
        "noise_scale": 0.5,
        "theta_bound": 0.3,
        "feature_bound": 5.0,
        "ridge": 0.1,
        "delta": 0.1,
        "radius_scale": 1e-2,
    },
}
ONE_BY_ONE = {
    "CRTM": (CRTM, CRTMReference, {"truncation": 8.0, "radius_factor": 0.5}),
    "TOFU": (TOFU, TOFUReference, {"radius_factor": 0.5}),
    "BTC": (BTC, BTCReference, {"moment_order": 1.3, "truncation": 0.2, "noise_scale": 0.1}),
    "HeavyOFUL": (
        HeavyOFUL,
        HeavyOFULReference,
        {
            "scale_factor": 1e-4,
            "linear_factor": 1e-3,
            "ridge_factor": 1.0,
            "radius_factor": 0.1,
            "minimum_scale": 0.03,
            "noise_scale": 0.03,
        },
    ),
}


@pytest.mark.parametrize("dim", [1, 4])
@pytest.mark.parametrize("options", [*OPTIONS, "own"])
@pytest.mark.parametrize("name", ONE_BY_ONE)
def test_agrees_with_reference(name: str, dim: int, options: str) -> None:
    cls, reference, own = ONE_BY_ONE[name]
    chosen = OPTIONS.get(options, own)
    rounds = data(dim, seed=dim, noise=(0.1, 1.0, 3.0) if name != "TOFU" else None, outlier=1e6)
    follow(cls(dim, horizon=300, **chosen), reference(dim, horizon=300, **chosen), rounds)


IN_EPOCHS = {"CRMM": (CRMM, CRMMReference), "MENU": (MENU, MENUReference), "BMM": (BMM, BMMReference)}
OF_EPOCHS: dict[str, dict[str, float]] = {
    "CRMM": {},
    "MENU": {"moment_factor": 2.0, "radius_factor": 0.5},
    "BMM": {"moment_factor": 2.0},
}


@pytest.mark.parametrize("repeats", [1, 2, 5])
@pytest.mark.parametrize("options", ["default", "infinite variance", "own"])
@pytest.mark.parametrize("name", IN_EPOCHS)
def test_agrees_with_reference_epoch_by_epoch(name: str, repeats: int, options: str) -> None:
    """On arms that stay, where a policy keeps to its arm by itself; now and then other arms interrupt an epoch."""
    cls, reference = IN_EPOCHS[name]
    own = {"noise_scale": 0.5, "theta_bound": 0.3, "ridge": 0.1, "delta": 0.1, "radius_scale": 1e-2}
    own |= {"moment_order": 1.2} | OF_EPOCHS[name]
    chosen = {**OPTIONS.get(options, own), "horizon": 400, "repeats": repeats}
    # Of two regressions, BMM takes the mean, in which large outliers cancel and leave what rounding did to them.
    rounds = data(3, seed=repeats, noise=None, outlier=1e3 if name == "BMM" else 1e6)
    arms = rounds[0][0]
    policy, other = cls(3, **chosen), reference(3, **chosen)
    follow(
        policy, other, [(moved if t % 37 == 5 else arms, reward, None) for t, (moved, reward, _) in enumerate(rounds)]
    )
    epochs = int(policy.estimator.epochs)
    assert len(rounds) // repeats - 12 <= epochs <= len(rounds) // repeats


@pytest.mark.parametrize("name", IN_EPOCHS)
def test_members_of_a_batch_end_their_epochs_at_different_rounds(name: str) -> None:
    cls, reference = IN_EPOCHS[name]
    options = {"horizon": 100, "repeats": 4, "radius_scale": 0.01}
    batched, others = cls(2, batch_shape=(3,), **options), [reference(2, **options) for _ in range(3)]
    random = np.random.default_rng(0)
    arms = random.standard_normal((3, 2))
    for t in range(80):
        x = np.stack([arms[(t // 4) % 3], arms[(t // 5) % 3], arms[t % 3]])
        reward = random.standard_t(1.5, 3)
        batched.step(*round_of(batched, torch.from_numpy(x), torch.from_numpy(reward)))
        for i, other in enumerate(others):
            other.step(x[i], reward[i])
            np.testing.assert_allclose(batched.estimator.theta_hat[i].numpy(), other.theta, rtol=1e-9, atol=1e-9)
            np.testing.assert_allclose(batched.estimator.radius()[i].item(), other.radius(), rtol=1e-9)
    assert batched.estimator.epochs.tolist() == [20, 16, 0]


@pytest.mark.parametrize("cls", [BMMRegression, CRMMRegression, MENURegression])
def test_an_arm_that_differs_in_one_coordinate_interrupts_an_epoch(cls: Any) -> None:
    learner, arms = cls(3, horizon=100, repeats=2), torch.tensor([[1.0, 0.0, 0.0], [1.0, 0.0, 0.5]])
    for arm, epochs, pulls in ((0, 0, 1), (1, 0, 1), (0, 0, 1), (0, 1, 0), (0, 1, 1), (1, 1, 1), (1, 2, 0)):
        learner.step(arms[arm], torch.tensor(1.0))
        assert (int(learner.epochs), int(learner.epoch_pulls)) == (epochs, pulls)


LINKS: dict[str, tuple[Link, Callable[[float], float], Callable[[float], float]]] = {
    "logistic": (Logistic(), lambda z: 1.0 / (1.0 + math.exp(-z)), lambda b: math.exp(-b) / (1.0 + math.exp(-b)) ** 2),
    "gamma": (Gamma(3.0), lambda z: 1.0 / (3.0 - z), lambda b: 1.0 / (3.0 + b) ** 2),
}


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("name", ["CRTM", "CRMM"])
def test_links_agree_with_reference(name: str, link: str) -> None:
    """Means of the link, kappa, and features no longer than L; outliers now and then."""
    cls, reference = {"CRTM": (CRTMRegression, CRTMReference), "CRMM": (CRMMRegression, CRMMReference)}[name]
    given, mean, slope = LINKS[link]
    options: dict[str, Any] = {"horizon": 300, "moment_order": 1.6, "theta_bound": 1.3}
    options |= {"truncation": 8.0} if name == "CRTM" else {"repeats": 3}
    learner = cls(3, link=given, feature_bound=2.0, **options)
    extra = {"feature_bound": 2.0} if name == "CRTM" else {}
    other = reference(3, mean=mean, kappa=slope(2.6), **extra, **options)
    random = np.random.default_rng(0)
    arms = random.standard_normal((5, 3))
    arms *= random.uniform(0.1, 2.0, (5, 1)) / np.linalg.norm(arms, axis=-1, keepdims=True)
    for t in range(300):
        x = arms[(t // 4) % 5]
        reward = mean(x @ [0.7, -0.8, 0.5]) + 0.3 * random.standard_t(1.7) + (1e6 if t % 41 == 7 else 0.0)
        scale = float(random.choice([0.1, 1.0]))
        learner.step(torch.from_numpy(x), torch.tensor(reward, dtype=D), noise_scale=torch.tensor(scale, dtype=D))
        other.step(x, reward, scale)
        np.testing.assert_allclose(learner.theta_hat.numpy(), other.theta, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(float(learner.radius()), other.radius(), rtol=1e-9)
        np.testing.assert_allclose(learner.width(torch.from_numpy(arms)).numpy(), other.width(arms), rtol=1e-9)
        expected = [mean(z) for z in arms @ other.theta]
        np.testing.assert_allclose(learner(torch.from_numpy(arms)).numpy(), expected, rtol=1e-9)


@pytest.mark.parametrize("cls", [CRTMRegression, CRMMRegression])
def test_no_link_is_the_identity(cls: Any) -> None:
    """Bit for bit; and files of one load into the other, but not where the means differ."""
    one, other = cls(2, horizon=50), cls(2, horizon=50, link=Gaussian(7.0), feature_bound=1.0)
    x, reward = torch.randn(30, 2, dtype=D), torch.randn(30, dtype=D)
    for learner in (one, other):
        learner.step(x, reward)
    assert differences(snapshot(one), snapshot(other)) == []
    one.load_state_dict(other.state_dict())
    with pytest.raises(RuntimeError, match="link: the state was learnt with another value"):
        cls(2, horizon=50, link=Logistic()).load_state_dict(one.state_dict())


def test_a_link_without_slope_is_refused() -> None:
    for cls in (CRTM, CRMM):
        with pytest.raises(ValueError, match=r"^theta_bound: expected one within which the link has slopes"):
            cls(2, horizon=10, link=Logistic(), theta_bound=30.0)


@pytest.mark.slow
def test_crmm_keeps_the_promise_of_its_radius_with_a_link() -> None:
    """Logistic means and symmetric noise, 300 runs on arms that it chooses; the error comes to a tenth of the radius."""
    runs, rounds, delta, law = 300, 3000, 0.05, StudentT(2.1)
    options: dict[str, Any] = {"noise_scale": 0.1 * law.moment_norm(2.0), "delta": delta, "batch_shape": (runs,)}
    policy = CRMM(2, horizon=rounds, link=Logistic(), theta_bound=2.0, ridge=0.2, **options)
    generator = torch.Generator().manual_seed(5)
    arms = torch.nn.functional.normalize(torch.randn(runs, 8, 2, generator=generator, dtype=D), dim=-1)
    theta = 2.0 * torch.nn.functional.normalize(torch.randn(runs, 2, generator=generator, dtype=D), dim=-1)
    estimator, missed = policy.estimator, torch.zeros(runs, dtype=torch.bool)
    closest = 0.0
    for _ in range(rounds):
        index = policy.select(arms)
        x = arms[torch.arange(runs), index]
        policy.step(arms, index, torch.sigmoid((x * theta).sum(-1)) + 0.1 * law.sample((runs,), generator))
        difference = (estimator.theta_hat - theta).unsqueeze(-1)
        ratio = (difference.mT @ estimator.V @ difference).squeeze((-2, -1)).sqrt() / estimator.radius()
        missed |= ratio > 1.0
        closest = max(closest, float(ratio.max()))
    assert float(missed.double().mean()) <= delta + 3.0 * (delta * (1.0 - delta) / runs) ** 0.5
    assert closest > 0.1


def history(seed: int) -> tuple[HeavyOFULRegression, Loss]:
    """A learner after some rounds, and the loss that it should have minimised; all kinds of thresholds, bounds, outliers."""
    random = np.random.default_rng(seed)
    dim, rounds = int(random.integers(1, 7)), int(random.integers(5, 120))
    bound, ridge = 10.0 ** random.uniform(-1.0, 0.5), 10.0 ** random.uniform(-1.0, 1.0)
    learner = HeavyOFULRegression(
        dim,
        horizon=150,
        moment_order=float(random.uniform(1.2, 2.0)),
        theta_bound=bound,
        ridge=ridge,
        noise_scale=10.0 ** random.uniform(-2.0, 0.5),
        minimum_scale=0.01,
        scale_factor=10.0 ** random.uniform(-3.0, 1.5),
        linear_factor=10.0 ** random.uniform(-3.0, 1.7),
    )
    truth = random.standard_normal(dim)
    for _ in range(rounds):
        x = random.standard_normal(dim)
        reward = x @ truth + random.standard_t(1.2) * 10.0 ** random.uniform(-2.0, 2.0)
        learner.step(torch.from_numpy(x), torch.tensor(reward, dtype=D))
    stored = (learner.history, learner.history_reward, learner.history_threshold)
    return learner, Loss(*(value[:rounds].numpy() for value in stored), ridge)


def optimality(loss: Loss, theta: np.ndarray, bound: float) -> float:
    """How far the conditions of Karush, Kuhn and Tucker are from holding, as a bound on the distance to the minimum."""
    gradient, norm = loss.gradient(theta), float(np.linalg.norm(theta))
    multiplier = max(0.0, -(gradient @ theta) / norm**2) if norm >= bound * (1.0 - 1e-12) else 0.0
    return float(np.linalg.norm(gradient + multiplier * theta)) / loss.ridge + max(0.0, norm - bound)


def scipy_minimum(loss: Loss, dim: int, bound: float) -> np.ndarray:
    """Over the ball: sequential quadratic programming, then the equations of Karush, Kuhn and Tucker from there."""
    inside = {"type": "ineq", "fun": lambda u: bound**2 - u @ u, "jac": lambda u: -2.0 * u}
    options = {"ftol": 1e-16, "maxiter": 2000}
    found = minimize(
        loss.value, np.zeros(dim), jac=loss.gradient, method="SLSQP", constraints=[inside], options=options
    )
    active = np.linalg.norm(found.x) >= bound * (1.0 - 1e-6)

    def conditions(point: np.ndarray) -> np.ndarray:
        theta, multiplier = point[:-1], point[-1]
        return np.append(loss.gradient(theta) + multiplier * theta, theta @ theta - bound**2 if active else multiplier)

    multiplier = -(loss.gradient(found.x) @ found.x) / (found.x @ found.x) if active else 0.0
    return root(conditions, np.append(found.x, multiplier), tol=1e-14).x[:-1]


def test_heavy_oful_is_the_constrained_minimum() -> None:
    """On 100 histories: scipy's minimum to 1e-7, a second solver's to 1e-9, and the conditions of optimality."""
    on_the_ball = linear = 0
    for seed in range(100):
        learner, loss = history(seed)
        theta, bound = learner.theta_hat.numpy(), learner.theta_bound
        assert optimality(loss, theta, bound) <= 1e-9 * max(1.0, float(np.abs(loss.rewards).max()))
        np.testing.assert_allclose(theta, loss.minimum(bound, np.zeros_like(theta)), rtol=0.0, atol=1e-9)
        expected = scipy_minimum(loss, learner.dim, bound)
        np.testing.assert_allclose(theta, expected, rtol=0.0, atol=1e-7, err_msg=f"seed {seed}")
        on_the_ball += np.linalg.norm(theta) > bound * (1.0 - 1e-9)
        linear += bool((np.abs(loss.rewards - loss.rows @ theta) > loss.thresholds).any())
    assert 20 <= on_the_ball <= 80
    assert linear >= 50


@pytest.mark.parametrize("dtype", [D, torch.float32])
def test_heavy_oful_where_one_direction_outweighs_ridge(dtype: torch.dtype) -> None:
    """Rounds along (1, 1) alone, next to which ridge is lost in rounding: the estimate stays on the diagonal."""
    learner = HeavyOFULRegression(2, horizon=100, scale_factor=0.01, linear_factor=0.01, dtype=dtype)
    x = torch.full((2,), 1e8 if dtype == D else 1e3, dtype=dtype)
    noise = torch.randn(100, generator=torch.Generator().manual_seed(0)).to(dtype)
    for eta in noise:
        learner.step(x, 0.7 * x[0] + eta)
    torch.testing.assert_close(learner.theta_hat, torch.full((2,), 0.35, dtype=dtype), rtol=1e-3, atol=0.0)


@pytest.mark.filterwarnings("ignore:theta_hat. not at the minimum")
@pytest.mark.parametrize(("decades", "dtype"), [(60.0, D), (11.0, torch.float32)])
def test_heavy_oful_over_many_decades_leaves_no_nan(decades: float, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    learner = HeavyOFULRegression(3, horizon=100, scale_factor=1e-4, linear_factor=1e-3, dtype=dtype)
    for _ in range(100):
        power = decades * (2.0 * torch.rand(4, generator=generator, dtype=D) - 1.0)
        value = (torch.randn(4, generator=generator).sign() * 10.0**power).to(dtype)
        learner.step(value[:3], value[3])
        assert all(bool(buffer.isfinite().all()) for buffer in learner.buffers())
        assert float(learner.theta_hat.norm()) <= 1.0 + 1e-6


def test_heavy_oful_from_a_bad_start() -> None:
    """From anywhere in the ball and with thresholds that make most rounds linear, Newton's method still arrives."""
    for seed in range(40):
        learner, loss = history(seed)
        n = int(learner.rounds)
        random = np.random.default_rng(seed)
        learner.history_threshold[:n] *= 10.0 ** float(random.uniform(-4.0, 0.0))
        loss.thresholds = learner.history_threshold[:n].numpy()
        start = random.standard_normal(learner.dim)
        learner.theta_hat.copy_(torch.from_numpy(start / np.linalg.norm(start) * learner.theta_bound))
        learner.rounds -= 1
        learner._minimise(torch.tensor(True))
        theta = learner.theta_hat.numpy()
        assert optimality(loss, theta, learner.theta_bound) <= 1e-8 * max(1.0, float(np.abs(loss.rewards).max())), seed


def test_heavy_oful_says_where_it_did_not_arrive() -> None:
    learner, loss = history(5)
    learner.history_threshold[: int(learner.rounds)] *= 1e-3
    loss.thresholds = learner.history_threshold[: int(learner.rounds)].numpy()
    learner.rounds -= 1
    learner.newton_steps = 1
    learner.theta_hat.zero_()
    with pytest.warns(UserWarning, match="^theta_hat: not at the minimum after 1 Newton steps$"):
        learner._minimise(torch.tensor(True))
    assert optimality(loss, learner.theta_hat.numpy(), learner.theta_bound) > 1.0


@pytest.mark.parametrize("cls", [TOFURegression, MENURegression, BTCRegression, BMMRegression])
@pytest.mark.parametrize(("size", "spread", "dtype"), [(1000.0, 1e-5, torch.float32), (1e7, 1e-9, D)])
def test_nearly_parallel_features_leave_no_nan(cls: Any, size: float, spread: float, dtype: torch.dtype) -> None:
    """V is so ill-conditioned that its computed eigenvalues may be negative."""
    generator = torch.Generator().manual_seed(1)
    learner = cls(3, horizon=2000, dtype=dtype, **({"repeats": 1} if issubclass(cls, EpochEstimator) else {}))
    direction = torch.nn.functional.normalize(torch.ones(3, dtype=D), dim=0)
    for _ in range(400):
        x = size * (direction + spread * torch.randn(3, generator=generator, dtype=D))
        learner.step(x, torch.randn((), generator=generator, dtype=D))
    assert bool(learner.theta_hat.isfinite().all())


@pytest.mark.parametrize("name", ["HeavyOFUL", "TOFU"])
def test_members_that_are_behind_look_at_all_rounds_as_rarely_as_others(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where one member misses the first rounds, its empty history makes nobody go over all rounds again and again."""
    cls, method = {
        "HeavyOFUL": (HeavyOFULRegression, "_minimise"),
        "TOFU": (TOFURegression, "_check_all_terms"),
    }[name]
    options = {"horizon": 600, "noise_scale": 0.3}
    options |= {"scale_factor": 1.0, "linear_factor": 1e-3} if name == "HeavyOFUL" else {}
    passes = []
    look = getattr(cls, method)
    monkeypatch.setattr(cls, method, lambda self, *rest: (passes.append(int(self.rounds.max())), look(self, *rest))[1])
    counts = []
    for behind in (0, 1):
        learner = cls(2, batch_shape=(3,), **options)
        generator = torch.Generator().manual_seed(0)
        passes.clear()
        for t in range(400):
            x = torch.randn(3, 2, generator=generator, dtype=D)
            reward = x[:, 0] + 0.3 * StudentT(1.5).sample((3,), generator)
            if t < behind:
                with only_where(torch.tensor([True, True, False]), learner):
                    learner.step(x, reward)
            else:
                learner.step(x, reward)
        assert learner.rounds.tolist() == [400, 400, 400 - behind]
        counts.append(sum(t >= 200 for t in passes))
    assert counts[1] <= 2 * counts[0] + 10
    assert counts[0] < 100


def test_a_full_history_refuses_and_keeps_what_it_has() -> None:
    for cls in (HeavyOFULRegression, TOFURegression, BTCRegression):
        for learner in (cls(2, horizon=3), torch.jit.script(cls(2, horizon=3))):
            for _ in range(3):
                learner.step(torch.randn(2, dtype=D), torch.randn((), dtype=D))
            before = snapshot(learner)
            with pytest.raises((ValueError, RuntimeError), match=r"horizon: expected at most 3 rounds|out of bounds"):
                learner.step(torch.randn(2, dtype=D), torch.randn((), dtype=D))
            assert differences(before, snapshot(learner)) == []


RENAMED: list[Any] = [cls for cls in public_classes(Estimator, packages=(torchonline.baselines,)) if cls.renamed]


@pytest.mark.parametrize("cls", RENAMED)
def test_a_state_dict_of_version_0_1_0_loads(cls: Any) -> None:
    """Its buffers had other names."""
    horizon = {"horizon": 20} if "horizon" in inspect.signature(cls).parameters else {}
    learner, other = cls(2, **horizon), cls(2, **horizon)
    learner.step(torch.tensor([[0.6, 0.3], [0.1, -0.2]]), torch.tensor([1.0, 0.0]))
    old_names = {new: old for old, new in cls.renamed.items()}
    state = {old_names.get(name, name): value for name, value in learner.state_dict().items()}
    assert set(cls.renamed) <= set(state)
    other.load_state_dict(state)
    assert differences(snapshot(learner), snapshot(other)) == []


def test_heavy_oful_says_that_it_is_no_program() -> None:
    with pytest.raises(ValueError, match=r"^module: expected learners that torch.export can trace, got HeavyOFULR"):
        to_program(HeavyOFUL(2, horizon=10))


@pytest.mark.parametrize("law", [StudentT(2.1), Pareto(2.5, symmetric=True)])
def test_crmm_keeps_the_promise_of_its_radius(law: Noise) -> None:
    """Symmetric noise, 300 runs on arms that it chooses: misses of the confidence set, after each epoch."""
    runs, rounds, delta = 300, 4000, 0.05
    policy = CRMM(2, horizon=rounds, noise_scale=law.moment_norm(2.0), delta=delta, batch_shape=(runs,))
    environment = LinearBandit(2, 10, noise=law, batch_shape=(runs,), seed=3)
    estimator = policy.estimator
    missed = torch.zeros(runs, dtype=torch.bool)
    for _ in range(rounds):
        x, reward, _ = environment.pull(policy.select(environment.arms()))
        policy.step(*round_of(policy, x, reward))
        difference = (estimator.theta_hat - environment.theta).unsqueeze(-1)
        missed |= (difference.mT @ estimator.V @ difference).squeeze((-2, -1)).sqrt() > estimator.radius()
    assert int(estimator.epochs.min()) == rounds // estimator.repeats
    assert float(missed.double().mean()) <= delta + 3.0 * (delta * (1.0 - delta) / runs) ** 0.5


@pytest.mark.parametrize(("horizon", "delta"), [(100, 0.5), (4000, 0.05), (18_000, 1.0 / 144_000.0)])
def test_epochs_are_long_enough_for_their_medians(horizon: int, delta: float) -> None:
    """CRMM's by Hoeffding's inequality, at delta / (4 T) and not longer; MENU's as recalled."""
    repeats = CRMMRegression(2, horizon=horizon, delta=delta).repeats
    allowed = delta / (4.0 * horizon)
    assert math.exp(-repeats / 8.0) <= allowed < math.exp(-(repeats - 1) / 8.0)
    # The chance itself that half of so many rewards are further out than one in four is.
    assert binom.sf((repeats - 1) // 2, repeats, 0.25) <= allowed
    each = MENURegression(2, horizon=horizon, delta=delta).repeats
    assert math.exp(-each / 24.0) <= delta / (math.e * horizon) < math.exp(-(each - 1) / 24.0)


def test_crmm_breaks_where_epochs_are_left_because_of_their_rewards() -> None:
    """The condition of the guarantee that a caller may not see: fair coins, and an epoch is left where they fall low."""
    learner = CRMMRegression(2, horizon=40_000, delta=0.05)
    x, other = torch.tensor([1.0, 0.0], dtype=D), torch.tensor([0.0, 1e-3], dtype=D)
    rewards = torch.randint(2, (40_000,), generator=torch.Generator().manual_seed(0)).to(D) * 2.0 - 1.0
    total, pulls = 0.0, 0
    for reward in rewards:
        leaves = pulls == learner.repeats - 1 and total <= 0.0
        learner.step(other if leaves else x, reward)
        total, pulls = (0.0, 0) if leaves or pulls == learner.repeats - 1 else (total + float(reward), pulls + 1)
    assert float(learner(x)) > 1.5 * float(learner.radius() * learner.width(x))
