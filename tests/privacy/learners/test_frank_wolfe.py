"""DPTOFW and DPPOFW: the plain algorithm without noise, noise as promised, and options that do what they say."""

import itertools
import math
import re
from typing import Any

import dp_accounting
import numpy as np
import pytest
import torch
from dp_accounting.pld import PLDAccountant
from dp_accounting.pld import privacy_loss_distribution as losses
from torch import Tensor

from tests.private_tools import KnownNoise, feed, records
from torchonline import DPPOFW, DPTOFW, gradients
from torchonline.baselines import DPFTRL
from torchonline.convex.domains import Box, CrossPolytope, Domain, LpBall, NuclearBall, Polytope, Simplex
from torchonline.privacy import Ledger, SmallStepsEvent, ZCDPEvent
from torchonline.privacy.calibration import gaussian_epsilon, zcdp_epsilon, zcdp_rho
from torchonline.privacy.clipping import MARGIN, clipped
from torchonline.privacy.learners.vertex_choice import NoisyVertex
from torchonline.privacy.mechanisms.generalized_gaussian import GeneralizedGaussianTree
from torchonline.privacy.noise import noise_source
from torchonline.privacy.small_steps import LARGEST_RHO, harmonic, harmonic_mu

pytestmark = pytest.mark.fast

RELATION = dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
PROMISE: dict[str, Any] = {"horizon": 40, "epsilon": 1.0, "delta": 1e-3}


def plain_frank_wolfe(
    rows: list[tuple[Any, Any]], norm: float, radius: float, scheme: str, scale: float, clip: float, clip_norm: float
) -> np.ndarray:
    """The algorithm in NumPy, gradient by gradient: no noise."""
    dim = len(rows[0][0])
    before = now = np.zeros(dim)
    total, decisions = np.zeros(dim), [now]
    for t, (x, y) in enumerate(rows, 1):
        at_now, at_before = (2.0 * (x @ theta - y) * x for theta in (now, before))
        g = t * at_now - (t - 1) * at_before if scheme == "unbiased" else (t + 1) * at_now - t * at_before
        g = g * min(1.0, clip / np.linalg.norm(g, clip_norm))
        total = total + g
        d = total / (t if scheme == "unbiased" else t + 1)
        if norm == 1:
            j = np.abs(d).argmax()
            v = np.zeros(dim)
            v[j] = -radius * np.sign(d[j])
        elif norm == math.inf:
            v = -radius * np.sign(d)
        else:
            q = norm / (norm - 1.0)
            v = -radius * np.sign(d) * np.abs(d) ** (q - 1.0) / np.linalg.norm(d, q) ** (q - 1.0)
        before, now = now, now + min(1.0, scale / (t + 1)) * (v - now)
        decisions.append(now)
    return np.array(decisions)


class HalfBall(Domain):
    """A user's own: the points of the unit ball whose first coordinate is at least 0."""

    def __init__(self, dim: int) -> None:
        self.dim = dim

    def start(self) -> Tensor:
        return torch.zeros(self.dim, dtype=torch.float64)

    def minimizer(self, direction: Tensor) -> Tensor:
        rest = torch.cat([direction[..., :1].clamp(max=0.0), direction[..., 1:]], -1)
        return -torch.nn.functional.normalize(rest, dim=-1)

    def parameters(self) -> list[tuple[str, float]]:
        return []


# Each with a test of membership and, of all <g, v>, the least by SciPy or by theory.
DOMAINS: dict[str, tuple[Domain, Any, Any]] = {
    "simplex": (
        Simplex(6, radius=2.0),
        lambda v: bool((v >= -1e-12).all()) and abs(float(v.sum()) - 2.0) < 1e-12,
        lambda g: 2.0 * float(g.min()),
    ),
    "box": (
        Box(-torch.arange(6.0), torch.ones(6)),
        lambda v: bool((v >= -torch.arange(6.0) - 1e-12).all() and (v <= 1.0 + 1e-12).all()),
        lambda g: float(torch.minimum(-torch.arange(6.0) * g, g).sum()),
    ),
    "nuclear ball": (
        NuclearBall(2, 3, radius=1.5),
        lambda v: float(torch.linalg.svdvals(v.reshape(2, 3)).sum()) < 1.5 + 1e-12,
        lambda g: -1.5 * float(torch.linalg.matrix_norm(g.reshape(2, 3), 2)),
    ),
    "of one's own": (
        HalfBall(6),
        lambda v: float(v.norm()) < 1.0 + 1e-12 and float(v[0]) >= -1e-12,
        lambda g: -float(torch.cat([g[:1].clamp(max=0.0), g[1:]]).norm()),
    ),
}


@pytest.mark.parametrize("name", DOMAINS)
def test_any_convex_set_with_a_linear_minimizer(name: str) -> None:
    """Decisions stay in the set, the minimizer is one, and a state belongs to its set."""
    domain, has, least = DOMAINS[name]
    generator = torch.Generator().manual_seed(1)
    directions = torch.randn(40, 6, generator=generator, dtype=torch.float64)
    for g, v in zip(directions, domain.minimizer(directions), strict=True):
        assert has(v)
        assert math.isclose(float(g @ v), least(g), rel_tol=1e-9)
    assert has(domain.minimizer(torch.zeros(6, dtype=torch.float64)))
    assert has(domain.start())
    learner = DPTOFW(6, domain=domain, batch_shape=(2,), **PROMISE)
    for step in range(40):
        learner.step(None if step % 9 == 8 else directions[step : step + 1].expand(2, 2, 6))
        assert all(has(point) for point in learner.predict())
    assert 0.99 < learner.privacy_spent(1e-3) <= 1.0
    again = DPTOFW(6, domain=domain, batch_shape=(2,), **PROMISE)
    again.load_state_dict(learner.state_dict())
    if domain.parameters():
        with pytest.raises(RuntimeError):
            DPTOFW(6, batch_shape=(2,), **PROMISE).load_state_dict(learner.state_dict())


@pytest.mark.parametrize("cls", [DPTOFW, DPPOFW, DPFTRL])
@pytest.mark.parametrize("batch_shape", [(), (2,)])
def test_several_records_a_step(cls: Any, batch_shape: tuple[int, ...]) -> None:
    """Their clipped contributions are summed, at the noise of one of them."""
    told: dict[str, Any] = {"clip": 0.5, "batch_shape": batch_shape, **PROMISE}
    many, one = cls(3, records_a_step=4, **told), cls(3, **told)
    assert math.isclose(many.noise.noise_scale, one.noise.noise_scale, rel_tol=1e-9)
    for learner in (many, one):
        vars(learner.noise).update(source=KnownNoise())
    generator = torch.Generator().manual_seed(2)
    rows = torch.randn((*batch_shape, 4, many.points, 3), generator=generator, dtype=torch.float64)
    rows[..., 2, :, :] = math.nan
    many.step(rows)
    expected = torch.zeros(*batch_shape, 3, dtype=torch.float64)
    for i in (0, 1, 3):
        expected += clipped(rows[..., i, 0, :], 0.5, many.clip_norm)
    torch.testing.assert_close(many.noisy_sum, expected, rtol=0.0, atol=1e-12)
    before = many.noisy_sum.clone()
    many.step(None)
    torch.testing.assert_close(many.noisy_sum, before, rtol=0.0, atol=1e-12)
    one.step(None)
    one.step(None)
    assert math.isclose(many.privacy_spent(1e-3), one.privacy_spent(1e-3), rel_tol=1e-6)
    with pytest.raises(ValueError, match="gradients: expected shape"):
        many.step(rows[..., 0, :, :])
    for wrong in (0, 2**15 + 1):
        with pytest.raises(ValueError, match="records_a_step: expected"):
            cls(3, records_a_step=wrong, **told)


@pytest.mark.parametrize("records", [2, 3, 4, 64])
def test_several_records_a_step_are_refused_in_integers(records: int) -> None:
    """The integers' sensitivity is that of one record's summand: with four records it would be booked as 0."""
    with pytest.raises(ValueError, match="records_a_step: expected 1 with noise_source='discrete'"):
        DPTOFW(3, records_a_step=records, mechanism="tree", noise_source="discrete", **PROMISE)


def test_gradients_of_several_records_a_step() -> None:
    learner = DPTOFW(3, records_a_step=4, batch_shape=(2,), **PROMISE)
    x, y = torch.randn(2, 4, 3, dtype=torch.float64), torch.randn(2, 4, dtype=torch.float64)
    learner.step(torch.ones(2, 4, 2, 3))
    slopes, values = gradients(lambda theta, x, y: 0.5 * (x @ theta - y) ** 2, learner, x, y)
    assert (slopes.shape, values.shape) == ((2, 4, 2, 3), (2, 4, 2))
    residual = torch.einsum("bmd,bnd->bmn", x, learner.queries()) - y.unsqueeze(-1)
    torch.testing.assert_close(slopes, residual.unsqueeze(-1) * x.unsqueeze(-2))
    learner.step(slopes)


def test_a_domain_is_where_the_minimum_is_looked_for() -> None:
    """Without noise, least squares on the simplex: all on the best coordinate, which the ball would leave."""
    learner = DPTOFW(3, domain=Simplex(3), horizon=2000, epsilon=math.inf, delta=1e-5, clip=math.inf)
    target = torch.tensor([0.7, 0.3, -1.0], dtype=torch.float64)
    for _ in range(2000):
        learner.step(learner.queries() - target)
    torch.testing.assert_close(learner.predict(), torch.tensor([0.7, 0.3, 0.0]).double(), rtol=0.0, atol=2e-3)


def test_bad_domains_are_refused_by_name() -> None:
    for options, error, text in [
        (
            {"domain": Simplex(3), "radius_bound": 2.0},
            ValueError,
            "domain: expected None with norm=2.0 and radius_bound=2.0",
        ),
        ({"domain": Simplex(4)}, ValueError, "domain: expected a domain of dimension 3, got 4"),
        ({"domain": "simplex"}, TypeError, "domain: expected a Domain"),
        ({"domain": Simplex(3), "mechanism": "paper"}, ValueError, "mechanism: expected another for this domain"),
    ]:
        with pytest.raises(error, match=re.escape(text)):
            DPTOFW(3, **PROMISE, **options)
    half = HalfBall(3)
    for name, wrong in {"start": torch.zeros(1).double(), "minimizer": torch.full((2, 3), math.nan).double()}.items():
        bad = type("Bad", (HalfBall,), {name: lambda self, *direction, wrong=wrong: wrong})(3)
        with pytest.raises(ValueError, match=re.escape(f"domain: expected {name}() to return finite float64 values")):
            DPTOFW(3, domain=bad, **PROMISE)
    assert DPTOFW(3, domain=half, **PROMISE).domain is half
    for build, text in [
        (
            lambda: Box(torch.ones(2), torch.zeros(2)),
            "lower and upper: expected lower <= upper",
        ),
        (lambda: Box(torch.zeros(2), torch.ones(3)), "lower and upper: expected equal shapes (d), got (2,) and (3,)"),
        (lambda: Box(torch.zeros(2), torch.tensor([1.0, math.inf])), "lower and upper: expected finite values"),
        (lambda: Simplex(0), "dim: expected"),
        (lambda: NuclearBall(2, 0), "columns: expected"),
        (lambda: NuclearBall(2, 2, radius=0.0), "radius: expected"),
    ]:
        with pytest.raises(ValueError, match=re.escape(text)):
            build()


@pytest.mark.parametrize("norm", [1.0, 1.2, 1.5, 2.0, 4.0, math.inf])
@pytest.mark.parametrize("scheme", ["unbiased", "paper"])
@pytest.mark.parametrize(("scale", "clip"), [(1.0, math.inf), (0.5, 0.8), (3.0, 2.5)])
def test_without_noise_it_is_the_plain_algorithm(norm: float, scheme: str, scale: float, clip: float) -> None:
    rows = list(records(40, 4))
    options: dict[str, Any] = {"horizon": 40, "epsilon": math.inf, "delta": 0.5, "clip": clip, "radius_bound": 1.7}
    learner = DPTOFW(4, norm=norm, scheme=scheme, step_scale=scale, **options)
    plain = plain_frank_wolfe([(x.numpy(), y.numpy()) for x, y in rows], norm, 1.7, scheme, scale, clip, 2)
    np.testing.assert_allclose(feed(learner, rows).numpy(), plain, rtol=0.0, atol=1e-10)
    assert learner.privacy_spent(1e-3) == math.inf


@pytest.mark.parametrize("mechanism", ["auto", "gumbel", "laplace"])
def test_the_polytope_without_noise(mechanism: str) -> None:
    rows = list(records(40, 4))
    options: dict[str, Any] = {"horizon": 40, "epsilon": math.inf, "delta": 0.5, "clip": 0.9, "mechanism": mechanism}
    learner = DPPOFW(4, radius_bound=1.7, **options)
    plain = plain_frank_wolfe([(x.numpy(), y.numpy()) for x, y in rows], 1.0, 1.7, "unbiased", 1.0, 0.9, np.inf)
    np.testing.assert_allclose(feed(learner, rows).numpy(), plain, rtol=0.0, atol=1e-10)
    corners = 1.7 * torch.cat([torch.eye(4), -torch.eye(4)])
    given = DPPOFW(4, vertices=corners, **options)
    np.testing.assert_allclose(feed(given, rows).numpy(), plain, rtol=0.0, atol=1e-6)


@pytest.mark.parametrize("norm", [1.0, 1.05, 1.5, 2.0, 3.0, 50.0, math.inf])
def test_the_oracle_minimises(norm: float) -> None:
    """The value is -R times the dual norm, the point is on the sphere, and no random point of the ball is better."""
    domain = LpBall(5, norm=norm, radius=2.0)
    q = math.inf if norm == 1.0 else 1.0 if norm == math.inf else norm / (norm - 1.0)
    generator = torch.Generator().manual_seed(0)
    directions = torch.randn(200, 5, generator=generator, dtype=torch.float64) ** 3
    directions *= 10.0 ** torch.randint(-200, 200, (200, 1), generator=generator).double()
    v = domain.minimizer(directions)
    values = (directions * v).sum(-1)
    largest = directions.abs().amax(-1)
    dual = largest * torch.linalg.vector_norm(directions / largest.unsqueeze(-1), q, dim=-1)
    torch.testing.assert_close(values / dual, torch.full((200,), -2.0).double(), rtol=1e-10, atol=0.0)
    torch.testing.assert_close(torch.linalg.vector_norm(v, norm, dim=-1), torch.full((200,), 2.0).double())
    assert torch.equal(domain.minimizer(torch.zeros(5).double()).abs(), torch.zeros(5).double())


def test_ties_go_to_the_lowest_vertex() -> None:
    tied = torch.tensor([1.0, -1.0, 1.0]).double()
    assert LpBall(3, norm=1.0).minimizer(tied).tolist() == [-1.0, 0.0, 0.0]
    assert CrossPolytope(3).minimizer(tied).tolist() == [-1.0, 0.0, 0.0]
    assert Polytope(torch.tensor([[2.0], [-1.0], [-1.0]])).minimizer(torch.ones(1).double()).tolist() == [-1.0]


def largest_move(clip: float, clip_norm: float, order: float, dim: int) -> float:
    """How far two clipped contributions are apart in some norm, at the worst of signs, coordinates and random vectors."""
    generator = torch.Generator().manual_seed(0)
    vectors = torch.cat([torch.randn(500, dim, generator=generator), torch.eye(dim), torch.ones(1, dim)]) * 100.0
    g = clipped(vectors, clip, clip_norm)
    return 2.0 * float(torch.linalg.vector_norm(g, order, dim=-1).max())


@pytest.mark.parametrize(("cls", "norm"), list(itertools.product([DPTOFW], [1.5, 2.0, math.inf])) + [(DPPOFW, None)])
def test_sensitivity_is_that_of_the_clipping(cls: Any, norm: float | None) -> None:
    """What the mechanism is calibrated to is what two records can differ by, but for the margin."""
    options = PROMISE | ({} if norm is None else {"norm": norm}) | {"clip": 0.7, "mechanism": "blt"}
    learner = cls(6, **options)
    worst = largest_move(0.7, learner.clip_norm, 2.0, 6)
    assert worst <= learner.noise.sensitivity <= worst * (1.0 + 2.0 * MARGIN)
    halved = cls(6, adjacency="zero_out", **options)
    assert math.isclose(halved.noise.noise_scale, 0.5 * learner.noise.noise_scale, rel_tol=1e-12)
    assert learner.privacy_ledger().adjacency == "replace_one"
    assert halved.privacy_ledger().adjacency == "zero_out"


@pytest.mark.parametrize("law", ["gumbel", "laplace"])
def test_score_noise_is_enough_and_two_thirds_of_it_is_not(law: str) -> None:
    """The worst laws of each step, from the scales that are drawn, composed by another library."""
    n, epsilon, delta, clip, radius = 200, 0.8, 1e-4, 0.6, 1.3
    learner = DPPOFW(500, horizon=n, epsilon=epsilon, delta=delta, clip=clip, radius_bound=radius, mechanism=law)
    steps = np.arange(1, n + 1)
    ranges = 2.0 * radius * 2.0 * clip / steps  # l1 diameter times the move in the maximum norm, over t

    def oracle(factor: float) -> float:
        """Log-ratios of two values, which lie an interval apart: that of the exponential mechanism, or of Laplace noise."""
        total = losses.identity(value_discretization_interval=1e-4)
        for ratio in ranges / (factor * learner.noise.scale / np.sqrt(steps)):
            p = 1.0 / (1.0 + math.exp(-ratio * (0.5 if law == "gumbel" else 1.0)))
            lower, upper = {0: math.log(p), 1: math.log1p(-p)}, {0: math.log1p(-p), 1: math.log(p)}
            step = losses.from_two_probability_mass_functions(lower, upper, value_discretization_interval=1e-4)
            total = total.compose(step)
        return total.get_epsilon_for_delta(delta)

    assert 0.9 * epsilon < oracle(1.0) <= epsilon + 0.01  # its laws are rounded up to a grid, 200 times
    assert oracle(2.0 / 3.0) > 1.2 * epsilon
    first = learner.noise.rho
    for step in (1, 50, 200):
        of_zcdp = zcdp_epsilon(first * harmonic(step), delta)
        of_small_steps = gaussian_epsilon(harmonic_mu(first, step), delta)
        while int(learner.rounds) < step:
            learner.step(None)
        assert learner.privacy_spent(delta) == min(of_zcdp, of_small_steps)
    # Early, the bound by small steps is the larger one; in the end it is the smaller one, and leads to less noise.
    assert of_small_steps < of_zcdp
    assert first > zcdp_rho(epsilon, delta) / harmonic(n)
    assert epsilon * (1.0 - 1e-6) < learner.privacy_spent(delta) <= epsilon


@pytest.mark.parametrize(("epsilon", "first", "bound"), [(1.0, 45, False), (50.0, 561, True)])
def test_small_steps_count_from_a_number_of_steps_on(epsilon: float, first: int, bound: bool) -> None:
    """Without a jump in the noise, also where the lemma's bound on a step's rho decides."""
    horizons = list(range(first - 3, first + 200, 3))
    noises = [DPPOFW(3, horizon=n, epsilon=epsilon, delta=1e-5, mechanism="gumbel").noise for n in horizons]
    # How much larger the cost of a first step may be than by zCDP.
    gains = [noise.rho * harmonic(n) / zcdp_rho(epsilon, 1e-5) for noise, n in zip(noises, horizons, strict=True)]
    assert gains[0] == pytest.approx(1.0, rel=1e-12)
    assert gains[1] > 1.0 + 1e-6
    assert gains[1:] == sorted(gains[1:])
    assert max(later - former for former, later in itertools.pairwise(gains)) < 0.01
    assert (noises[1].rho == LARGEST_RHO) == bound
    for noise, n in zip(noises, horizons, strict=True):
        assert Ledger("replace_one", [noise.event(n)]).epsilon(1e-5) <= epsilon


@pytest.mark.parametrize(("horizon", "epsilon"), [(3, 1.0), (1000, 300.0)])
def test_few_steps_and_large_ones_are_booked_as_zcdp(horizon: int, epsilon: float) -> None:
    learner = DPPOFW(3, horizon=horizon, epsilon=epsilon, delta=1e-5, mechanism="gumbel")
    assert learner.noise.rho == zcdp_rho(epsilon, 1e-5) / harmonic(horizon)
    learner.step(None)
    is_large = learner.noise.rho > LARGEST_RHO
    assert is_large == (epsilon == 300.0)
    [once] = learner.privacy_ledger().events
    assert isinstance(once.event, ZCDPEvent if is_large else SmallStepsEvent)


def test_scores_get_noise_of_their_law() -> None:
    """Draws are as the formula says: the scale of step t is that of step 1 over the square root of t."""
    learner = DPPOFW(3, mechanism="gumbel", **PROMISE)
    assert isinstance(learner.noise, NoisyVertex)
    range_ = 2.0 * 2.0 * (1.0 + MARGIN)
    assert math.isclose(learner.noise.scale, range_ / math.sqrt(8.0 * learner.noise.rho), rel_tol=1e-12)
    laplace = DPPOFW(3, mechanism="laplace", **PROMISE)
    assert math.isclose(laplace.noise.scale, 2.0 * learner.noise.scale, rel_tol=1e-12)
    # One unit of noise on vertex 4, -e_2, makes it win until the scores differ by the scale.
    vars(learner.noise).update(source=KnownNoise(torch.eye(6, dtype=torch.float64)[[4]]))
    learner.step(torch.zeros(2, 3))
    assert learner.predict().tolist() == [0.0, -0.5, 0.0]


@pytest.mark.parametrize(("dim", "horizon", "kind"), [(300, 100, "blt"), (301, 100, "gumbel"), (4, 1, "gumbel")])
def test_auto_reads_sizes_only(dim: int, horizon: int, kind: str) -> None:
    assert DPPOFW(dim, horizon=horizon, epsilon=1.0, delta=1e-3).mechanism == kind
    assert DPPOFW(dim, horizon=horizon, epsilon=1.0, delta=1e-3, participations=2).mechanism == "blt"


@pytest.mark.parametrize("norm", [1.2, 1.5, 2.0, 3.0, math.inf])
def test_the_papers_noise_is_booked_as_what_it_is(norm: float) -> None:
    """(3.2) with a correct sampler: an epsilon of 1 is claimed, some 0.1 is spent, and the booked zCDP covers the move."""
    learner = DPTOFW(5, horizon=1000, epsilon=1.0, delta=1e-3, norm=norm, mechanism="paper")
    tree = learner.noise
    q = norm / (norm - 1.0) if norm < math.inf else 1.0
    kappa = 5.0 ** (1.0 - 2.0 / q) if q > 2.0 else 1.0
    height = math.ceil(math.log2(1000)) + 1
    assert math.isclose(tree.noise_scale**2, 2.0 * height**2 * kappa * math.log(height / 1e-3) * 4.0, rel_tol=1e-5)
    assert tree.order == 2.0  # because log 5 is below 2
    assert math.isclose(tree.kappa, kappa, rel_tol=1e-12)
    for _ in range(1000):
        learner.step(None)
    rho = 10 * kappa * (2.0 * (1.0 + MARGIN)) ** 2 / (2.0 * tree.noise_scale**2)
    assert math.isclose(learner.privacy_spent(1e-3), zcdp_epsilon(rho, 1e-3), rel_tol=1e-9)
    assert 0.05 < learner.privacy_spent(1e-3) < 0.2


def test_the_papers_formula_is_refused_where_it_is_false() -> None:
    with pytest.raises(ValueError, match="epsilon: expected at most 1"):
        DPTOFW(5, horizon=100, epsilon=140.0, delta=0.01, mechanism="paper")
    DPTOFW(5, horizon=100, epsilon=136.0, delta=0.01, mechanism="paper")


def test_a_source_that_cannot_draw_the_law_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="noise_source: expected 'torch' to draw generalized_gaussian, got 'csprng'"):
        DPTOFW(20, norm=1.2, mechanism="paper", noise_source="csprng", **PROMISE)
    DPTOFW(3, norm=1.2, mechanism="paper", noise_source="csprng", **PROMISE)  # of so few features it is normal noise


def test_indices_and_factors_of_the_papers_norm() -> None:
    """R is in [2, q], and kappa bounds (r-1) |x|_r^2 / |x|_q^2 over vectors."""
    for q, dim in itertools.product((2.0, 3.0, 11.0, math.inf), (2, 5, 20, 1000)):
        options: dict[str, Any] = {"sensitivity": 1.0, "epsilon": 1.0, "delta": 1e-3, "source": noise_source("torch")}
        tree = GeneralizedGaussianTree(1000, order=q, dim=dim, **options)
        r, kappa = tree.order, tree.kappa
        assert 2.0 <= r <= max(q, 2.0)
        ones = torch.ones(dim, dtype=torch.float64)
        ratio = float(torch.linalg.vector_norm(ones, r) / torch.linalg.vector_norm(ones, q))
        assert kappa >= (r - 1.0) * ratio**2 * (1.0 - 1e-12)


def test_gaussian_spending_agrees_with_another_accountant() -> None:
    """From the noise in use and the largest column of the dense encoder, with a record's move of 2C."""
    learner = DPTOFW(3, horizon=300, epsilon=2.0, delta=1e-4, clip=0.4)
    mechanism = learner.noise
    column = float(mechanism.materialize(300)[1].norm(dim=0).max())
    event = dp_accounting.GaussianDpEvent(mechanism.noise_scale / (0.8 * column))
    assert abs(PLDAccountant(RELATION).compose(event).get_epsilon(1e-4) - 2.0) < 1e-3
    # Under replace-one that library doubles a sensitivity of its own.
    replace = PLDAccountant(dp_accounting.NeighboringRelation.REPLACE_ONE)
    event = dp_accounting.GaussianDpEvent(mechanism.noise_scale / (0.4 * column))
    assert abs(replace.compose(event).get_epsilon(1e-4) - 2.0) < 1e-3


def test_float32_decisions_follow_float64_ones() -> None:
    rows = list(records(40, 4))
    learners = [DPTOFW(4, dtype=dtype, seed=5, **PROMISE) for dtype in (torch.float64, torch.float32)]
    exact, single = (feed(learner, rows) for learner in learners)
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), exact, rtol=0.0, atol=1e-4)
    assert learners[1].noisy_sum.dtype == torch.float64


def test_stronger_noise_where_more_is_promised() -> None:
    """A smaller epsilon costs: over a batch the error at 0.1 is above that at 1, and that above none."""
    errors = []
    for epsilon in (0.1, 1.0, math.inf):
        told = {"horizon": 400, "delta": 1e-3, "batch_shape": (50,), "seed": 2}
        learner = DPTOFW(3, radius_bound=1.0, epsilon=epsilon, **told)
        target = torch.tensor([0.5, -0.3, 0.1]).double()
        for _ in range(400):
            learner.step(learner.queries() - target)
        errors.append(float((learner.predict() - target).norm(dim=-1).mean()))
    assert errors[0] > 1.5 * errors[1] > 2.0 * errors[2]


@pytest.mark.parametrize(
    ("cls", "changes", "error", "message"),
    [
        (DPTOFW, {"norm": 0.5}, ValueError, "norm: expected an order"),
        (DPTOFW, {"norm": math.nan}, ValueError, "norm: expected a finite number"),
        (DPTOFW, {"clip": math.inf}, ValueError, "clip: expected a finite number"),
        (DPTOFW, {"clip": 0.0}, ValueError, "clip: expected a number above 0"),
        (DPTOFW, {"mechanism": "gumbel"}, ValueError, "mechanism: expected one of"),
        (DPTOFW, {"scheme": "biased"}, ValueError, "scheme: expected one of"),
        (DPTOFW, {"step_scale": -1.0}, ValueError, "step_scale: expected a number above 0"),
        (DPTOFW, {"participations": 0}, ValueError, "participations: expected an integer above 0"),
        (DPTOFW, {"adjacency": "add_remove"}, ValueError, "adjacency: expected one of"),
        (DPTOFW, {"noise_source": "discrete"}, ValueError, "noise_source: expected 'discrete' only"),
        (DPTOFW, {"radius_bound": 0.0}, ValueError, "radius_bound: expected"),
        (DPTOFW, {"epsilon": -1.0}, ValueError, "epsilon: expected"),
        (DPTOFW, {"delta": 0.0}, ValueError, "delta: expected"),
        (DPTOFW, {"horizon": 0}, ValueError, "horizon: expected"),
        (DPPOFW, {"mechanism": "paper"}, ValueError, "mechanism: expected one of"),
        (DPPOFW, {"vertices": torch.eye(4)}, ValueError, "vertices: expected shape"),
        (DPPOFW, {"vertices": torch.full((2, 3), torch.nan)}, ValueError, "vertices: expected finite"),
        (DPPOFW, {"vertices": [[1.0, 2.0, 3.0]]}, TypeError, "vertices: expected a torch.Tensor, got list"),
        (
            DPPOFW,
            {"vertices": torch.eye(3).long()},
            TypeError,
            "vertices: expected a floating-point tensor, got torch.int64",
        ),
        (DPPOFW, {"noise_source": "discrete", "mechanism": "gumbel"}, ValueError, "noise_source: expected"),
    ],
)
def test_bad_options_are_refused_by_name(
    cls: Any, changes: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        cls(3, **(PROMISE | changes))


def test_a_norm_of_contributions_is_the_clip_at_most() -> None:
    generator = torch.Generator().manual_seed(0)
    for order in (1.0, 2.0, 12.0, 200.0, math.inf):
        g = torch.randn(300, 7, generator=generator, dtype=torch.float64)
        g = g * 10.0 ** torch.randint(-300, 300, (300, 1), generator=generator).double()
        h = clipped(g, 0.02, order)
        size = torch.linalg.vector_norm(h / 0.02, order, dim=-1)
        assert float(size.max()) <= 1.0 + 1e-12
        short = torch.linalg.vector_norm(g.clamp(-1e3, 1e3), math.inf, dim=-1) * 7.0 < 0.02
        torch.testing.assert_close(h[short], g[short], rtol=1e-12, atol=0.0)


def test_small_entries_of_a_high_norm_are_clipped() -> None:
    """Where the powers underflow without scaling, nothing would be."""
    for values, order in ((torch.full((100,), 0.02).double(), 200.0), (torch.full((10**5,), 1e-4), 12.0)):
        size = float(values[0]) * len(values) ** (1.0 / order)
        clip = 0.5 * size
        h = clipped(values, clip, order)
        assert math.isclose(float(h[0]), 0.5 * float(values[0]), rel_tol=1e-6)


def naive(g: Tensor, bound: float, order: float) -> Tensor:
    return g * min(1.0, bound / max(float((g.abs() ** order).sum() ** (1.0 / order)), 1e-300))


def test_without_the_scaling_they_would_not_be() -> None:
    values = torch.full((100,), 0.02).double()
    assert torch.equal(naive(values, 0.01, 200.0), values)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_what_is_no_number_counts_as_nothing(bad: float) -> None:
    g = torch.ones(3, 4)
    g[1, 2] = bad
    h = clipped(g, 1.0)
    assert torch.equal(h[1], torch.zeros(4).double())
    torch.testing.assert_close(h[[0, 2]], torch.full((2, 4), 0.5).double())
