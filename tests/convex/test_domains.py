"""Newton steps on boxes, simplices and polytopes: projections against scipy and against all faces, and the bound on regret."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import LinearConstraint, lsq_linear, minimize

from tests.convex.test_oons import STRATEGIES, gradients_of, unit
from tests.reference.domains import by_faces, in_ball
from tests.reference.oons import PRESETS, OONSReference, bound
from torchonline import CAOONS, CLAOONS, OONS, ParameterFree
from torchonline.convex.domains import Box, CrossPolytope, Domain, LpBall, NuclearBall, Polytope, Simplex
from torchonline.convex.projections import project_between, project_hull, project_within
from torchonline.export import to_program, to_torchscript

LOWER, UPPER = torch.tensor([1.0, -2.0, 0.0]).double(), torch.tensor([2.0, 1.0, 0.5]).double()
POINTS = torch.from_numpy(np.random.default_rng(2).standard_normal((6, 3))) + 4.0
DOMAINS: dict[str, Domain] = {
    "box": Box(LOWER, UPPER),
    "simplex": Simplex(3, radius=2.0),
    "polytope": Polytope(POINTS),
    "cross-polytope": CrossPolytope(3, radius=1.5),
    "cube": LpBall(3, norm=math.inf, radius=0.5),
    "ball": LpBall(3, norm=2.0, radius=0.5),
}
EACH = pytest.mark.parametrize("name", list(DOMAINS))


def corners(domain: Domain) -> np.ndarray:
    """The vertices of a polytope."""
    if isinstance(domain, Box):
        return np.array(np.meshgrid(*zip(domain.lower, domain.upper, strict=True))).reshape(domain.dim, -1).T
    if isinstance(domain, LpBall) and domain.norm == math.inf:
        return domain.radius * np.array(np.meshgrid(*[(-1.0, 1.0)] * domain.dim)).reshape(domain.dim, -1).T
    return domain._vertices()  # type: ignore[attr-defined]


def inside(domain: Domain, x: np.ndarray, close: float = 1e-12) -> bool:
    """Whether no linear function is lower at x than in the domain, of a thousand."""
    directions = torch.randn(1000, domain.dim, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    least = (directions * domain.minimizer(directions)).sum(-1).numpy()
    return bool((x @ directions.numpy().T >= least - close).all())


def problems(decades: float, count: int, dims: tuple[int, ...]) -> list[tuple[np.ndarray, np.ndarray, Any]]:
    """Points near and far, matrices of a condition of up to 10^decades, and the generator that drew them."""
    rng, found = np.random.default_rng(int(10 * decades)), []
    for dim in dims:
        for _ in range(count):
            basis = np.linalg.qr(rng.standard_normal((dim, dim)))[0]
            matrix = (basis * 10.0 ** rng.uniform(-decades, 0.0, dim)) @ basis.T
            found.append((10.0 ** rng.uniform(-1.0, 2.0) * rng.standard_normal(dim), 0.5 * (matrix + matrix.T), rng))
    return found


@pytest.mark.parametrize("decades", [0.0, 3.0, 8.0])
def test_projections_satisfy_the_conditions_of_optimality(decades: float) -> None:
    """No vertex lies on the point's side of the plane through x: sufficient, as the problems are convex."""
    for point, matrix, rng in problems(decades, 10, (1, 2, 3, 8, 20, 40)):
        dim = len(point)
        lower, upper, radius = -rng.uniform(size=dim), rng.uniform(size=dim), rng.uniform(0.1, 3.0)
        vertices = rng.standard_normal((2 * dim + 3, dim))
        box = project_between(point, matrix, lower, upper)
        simplex = project_between(point, matrix, np.zeros(dim), np.full(dim, np.inf), radius)
        hull = project_hull(point, matrix, vertices)
        assert (box >= lower).all()
        assert (box <= upper).all()
        assert (simplex >= 0.0).all()
        assert math.isclose(simplex.sum(), radius, rel_tol=1e-9)
        for x, least in (
            (box, lambda slope, a=lower, b=upper: np.minimum(slope * a, slope * b).sum()),
            (simplex, lambda slope, r=radius: r * slope.min()),
            (hull, lambda slope, v=vertices: (v @ slope).min()),
        ):
            slope = matrix @ (x - point)
            size = np.linalg.norm(matrix, 2) * np.linalg.norm(point) * max(radius, 3.0)
            assert slope @ x - least(slope) <= 1e-12 * size * dim


def test_projections_are_those_of_scipy() -> None:
    for point, matrix, rng in problems(2.0, 8, (1, 2, 3, 5)):
        dim, root = len(point), np.linalg.cholesky(matrix).T
        lower, upper = -rng.uniform(size=dim), rng.uniform(size=dim)
        vertices = rng.standard_normal((2 * dim + 1, dim))
        found = lsq_linear(root, root @ point, (lower, upper), method="bvls", tol=1e-14)
        np.testing.assert_allclose(project_between(point, matrix, lower, upper), found.x, atol=1e-8)
        for x, rows in (
            (project_between(point, matrix, np.zeros(dim), np.full(dim, np.inf), 1.0), np.eye(dim)),
            (project_hull(point, matrix, vertices), vertices),
        ):
            offsets = (rows - point) @ root.T
            scale = float((offsets**2).sum(-1).max())
            best = minimize(
                lambda w, offsets=offsets, scale=scale: float(((w @ offsets) ** 2).sum()) / scale,
                np.full(len(rows), 1.0 / len(rows)),
                jac=lambda w, offsets=offsets, scale=scale: 2.0 * offsets @ (w @ offsets) / scale,
                method="SLSQP",
                bounds=[(0.0, 1.0)] * len(rows),
                constraints=LinearConstraint(np.ones(len(rows)), 1.0, 1.0),
                options={"ftol": 1e-16, "maxiter": 500},
            )
            ours = float((((x - point) @ root.T) ** 2).sum()) / scale
            assert ours <= best.fun + 1e-10
            assert ours >= best.fun - 1e-6


@pytest.mark.parametrize("decades", [0.0, 3.0, 8.0])
def test_needless_vertices_and_points_on_faces_change_nothing(decades: float) -> None:
    """A cube by active sets, and as the hull of its corners, some of them twice, and of points inside it and on an edge."""
    for point, matrix, rng in problems(decades, 20, (1, 2, 3, 4)):
        dim = len(point)
        cube = np.array(np.meshgrid(*[(-1.0, 1.0)] * dim)).reshape(dim, -1).T
        hull = np.concatenate([cube, cube[:2], np.zeros((1, dim)), 0.5 * (cube[:1] + cube[-1:])])
        place = np.round(point) if rng.random() < 0.5 else point
        ours = project_hull(place, matrix, hull)
        exact = project_between(place, matrix, np.full(dim, -1.0), np.full(dim, 1.0))
        distances = [(x - place) @ matrix @ (x - place) for x in (ours, exact)]
        size = np.linalg.norm(matrix, 2) * (1.0 + place @ place)
        assert abs(distances[0] - distances[1]) <= 1e-13 * size
        assert np.abs(ours).max() <= 1.0 + 1e-9


def test_a_vertex_may_come_with_a_weight_of_zero() -> None:
    """Points on faces, in a norm that is Euclidean but for rounding: the plane's nearest point may need no new vertex."""
    rng = np.random.default_rng(0)
    cube = np.array(np.meshgrid(*[(-1.0, 1.0)] * 3)).reshape(3, -1).T
    hull = np.concatenate([cube, cube[:2], np.zeros((1, 3)), 0.5 * (cube[:1] + cube[-1:])])
    for _ in range(2000):
        turn = np.linalg.qr(rng.standard_normal((3, 3)))[0]
        point = rng.integers(-2, 3, 3).astype(float)
        np.testing.assert_allclose(project_hull(point, turn @ turn.T, hull), point.clip(-1.0, 1.0), rtol=0.0, atol=1e-7)


@pytest.mark.fast
@pytest.mark.parametrize("decades", [0.0, 4.0])
def test_projections_are_those_by_all_faces(decades: float) -> None:
    for name, domain in DOMAINS.items():
        if name == "ball":
            continue
        reference = by_faces(corners(domain))
        for point, matrix, _ in problems(decades, 8, (3,)):
            np.testing.assert_allclose(domain.project(point, matrix), reference(matrix, point), rtol=0.0, atol=1e-9)


def test_projections_onto_what_is_in_a_ball() -> None:
    moved = 0
    for point, matrix, rng in problems(3.0, 12, (2,)):
        vertices = rng.standard_normal((5, 2))
        centre, radius = vertices.mean(0), float(rng.uniform(0.05, 1.5))

        def project(y: np.ndarray, A: np.ndarray, vertices: np.ndarray = vertices) -> np.ndarray:
            return project_hull(y, A, vertices)

        found = project_within(project, point, matrix, centre, radius)
        expected = in_ball(by_faces(vertices), centre, radius)(matrix, point)
        np.testing.assert_allclose(found, expected, rtol=0.0, atol=1e-8)
        assert np.linalg.norm(found - centre) <= radius * (1.0 + 1e-12)
        moved += bool(np.abs(found - project(point, matrix)).max() > 1e-6)
    assert moved >= 5


def test_a_diagonal_matrix_clips() -> None:
    point, matrix = np.array([3.0, -0.2, -7.0]), np.diag([1.0, 1e-6, 1e6])
    clipped = project_between(point, matrix, np.full(3, -1.0), np.full(3, 1.0))
    assert clipped.tolist() == [1.0, -0.2, -1.0]


@EACH
def test_extent_is_the_distance_of_the_farthest_point(name: str) -> None:
    domain = DOMAINS[name]
    start = domain.start().numpy()
    assert inside(domain, start)
    if name == "ball":
        assert domain.extent() == 0.5
    else:
        assert math.isclose(domain.extent(), np.linalg.norm(corners(domain) - start, axis=-1).max(), rel_tol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["eigen", "frozen", "sketch"])
@pytest.mark.parametrize("name", ["box", "simplex", "polytope"])
def test_trajectories_on_a_domain(form: str, name: str) -> None:
    """Hints of the user's among them, and a ball around the start."""
    domain, held = DOMAINS[name], "frozen" if form == "frozen" else "eigen"
    start, onto = domain.start().numpy(), by_faces(corners(domain))
    for preset, radius in (("default", math.inf), ("paper", 0.3)):
        share = min(radius, domain.extent())
        learner = OONS(3, lipschitz=1.0, domain=domain, radius_bound=radius, form=form, sketch_size=3, preset=preset)
        within = onto if math.isinf(radius) else in_ball(onto, start, radius)
        reference = OONSReference(3, z=2.0, radius=share, preset=preset, form=held, onto=within, begin=start)
        hint, rng = np.zeros(3), np.random.default_rng(0)
        for t, gradient in enumerate(gradients_of(40 if math.isinf(radius) else 12, 3)):
            if t % 5 == 4:
                hint = 0.5 * rng.standard_normal(3) / math.sqrt(3.0)
                hint = hint / max(1.0, float(np.linalg.norm(hint)))
                learner.set_hint(torch.from_numpy(hint))
            close = (1e-6 if form == "sketch" else 1e-8) * share
            np.testing.assert_allclose(learner.predict().numpy(), reference.play(hint), rtol=0.0, atol=close)
            learner.step(torch.from_numpy(gradient))
            reference.learn(gradient)
            np.testing.assert_allclose(learner.centre.numpy(), reference.centre, rtol=0.0, atol=close)
            hint = gradient


def slack(domain: Domain, rounds: int, preset: str, form: str = "eigen", cap: float = 1.0) -> np.ndarray:
    """The bound of Theorem 1 minus the regret, at the worst u of the domain, of 50 sequences."""
    dim, extent, each = domain.dim, domain.extent(), 5
    rng, start, batched = np.random.default_rng(dim), domain.start().numpy(), each * len(STRATEGIES)
    learner = OONS(dim, lipschitz=2.0, domain=domain, preset=preset, form=form, batch_shape=(batched,))
    vars(learner)["cap"] = learner.cap * cap
    axis, plays, gradients, hints = unit(rng.standard_normal((each, dim))), [], [], []
    first = learner.curvature.identity_multiple.clone()
    ridge = learner._ridge(learner.error_bound, learner.length_unit)
    for _ in range(rounds):
        plays.append(learner.predict().numpy() - start)
        hints.append(learner.hint.numpy().copy())
        blocks = zip(
            STRATEGIES, np.split(plays[-1] / extent, len(STRATEGIES)), np.split(hints[-1], len(STRATEGIES)), strict=True
        )
        gradients.append(2.0 * np.concatenate([play(rng, len(plays), x, hint, axis) for play, x, hint in blocks]))
        c, last = learner.curvature.identity_multiple.clone(), learner._ridge(learner.error_bound, learner.length_unit)
        learner.step(torch.from_numpy(gradients[-1]))
    drift = 0.0 if form == "eigen" else ((c - first) - (last - ridge)).clamp(min=0.0).numpy()
    x, g, m = (np.stack(rows) for rows in (plays, gradients, hints))
    free, curvature = bound(x, g, m, z=4.0, radius=extent, preset=preset, drift=drift)
    total = g.sum(0)
    worst = np.stack(
        [domain.project(start - np.linalg.solve(C, t), C) - start for C, t in zip(curvature, total, strict=True)]
    )
    quadratic = np.einsum("ni,nij,nj->n", worst, curvature, worst) / 2.0
    return (free + quadratic + (total * worst).sum(-1) - (g * x).sum((0, 2))) / (2.0 * extent)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["box", "simplex", "polytope", "cross-polytope"])
def test_regret_on_a_domain_is_within_the_bound(name: str) -> None:
    for preset in PRESETS:
        assert slack(DOMAINS[name], 30, preset).min() > 0.0
    assert slack(DOMAINS[name], 30, "default", form="frozen").min() > 0.0


@pytest.mark.slow
def test_a_rate_too_large_leaves_the_bound() -> None:
    interval = Box(torch.tensor([3.0]).double(), torch.tensor([5.0]).double())
    assert slack(interval, 100, "default").min() > 0.0
    assert slack(interval, 100, "default", cap=1.0 / 16.0).min() < -10.0


LEARNERS: dict[str, Callable[..., Any]] = {
    "OONS": lambda **options: OONS(3, lipschitz=1.0, radius_bound=0.7, **options),
    "CLAOONS": lambda **options: CLAOONS(3, length_scale=0.1, **options),
    "CAOONS, linear": lambda **options: CAOONS(
        3, lipschitz=1.0, horizon=64, meta="linear", length_scale=0.1, **options
    ),
    "CAOONS, values": lambda **options: CAOONS(3, lipschitz=1.0, horizon=None, length_scale=0.1, **options),
}


def played(learner: Any, shift: torch.Tensor | float = 0.0, rounds: int = 60) -> np.ndarray:
    """Decisions less a shift, where losses are shifted too."""
    target, plays = torch.tensor([0.4, -0.3, 0.1]).double(), []
    generator = torch.Generator().manual_seed(3)
    for _ in range(rounds):
        plays.append((learner.predict() - shift).numpy())
        noise = 0.3 * torch.randn(3, generator=generator, dtype=torch.float64)
        offset = learner.queries() - shift - target
        distance = (1.0 + offset.square().sum(-1)).sqrt()
        learner.step(offset / distance.unsqueeze(-1) + noise, distance + (offset * noise).sum(-1))
    return np.stack(plays)


@pytest.mark.fast
@pytest.mark.parametrize("name", list(LEARNERS))
def test_a_large_domain_changes_nothing_and_a_shifted_one_shifts(name: str) -> None:
    """The ball of the radius is then all that matters: by the secular equation alone, and with a box around it."""
    make, ends = LEARNERS[name], torch.full((3,), 1e4, dtype=torch.float64)
    np.testing.assert_allclose(played(make(domain=Box(-ends, ends))), played(make()), rtol=0.0, atol=1e-8)
    small, middle = torch.tensor([0.2, 0.1, 0.4]).double(), torch.tensor([5.0, -3.0, 1.0]).double()
    here, there = make(domain=Box(-small, small)), make(domain=Box(middle - small, middle + small))
    at_home = played(here)
    assert (np.abs(at_home) <= small.numpy() + 1e-12).all()
    assert (np.abs(at_home) >= small.numpy() - 1e-9).any(), "the box is felt"
    np.testing.assert_allclose(played(there, middle), at_home, rtol=0.0, atol=1e-8)


@EACH
@pytest.mark.parametrize("learner", list(LEARNERS))
def test_decisions_stay_in_the_domain(learner: str, name: str) -> None:
    domain = DOMAINS[name]
    for dtype, close in ((torch.float64, 1e-9), (torch.float32, 1e-4)):
        plays = played(LEARNERS[learner](domain=domain, dtype=dtype), rounds=25)
        assert all(inside(domain, x, close) for x in plays)
        assert np.abs(np.diff(plays, axis=0)).max() > 1e-3


def test_the_radius_stops_growing_where_it_holds_the_domain() -> None:
    learner = CLAOONS(2, length_scale=0.5, domain=Simplex(2))
    for t in range(300):
        learner.step(torch.tensor([1.0, -1.0 - t % 2]))
    assert int(learner.restart_count) == 1
    assert math.isclose(float(learner.radius), math.sqrt(0.5))
    assert learner.predict().tolist() == pytest.approx([0.0, 1.0])


def test_learners_whose_balls_hold_the_domain_are_not_doubled() -> None:
    learner = CAOONS(3, lipschitz=1.0, horizon=10**6, length_scale=0.1, domain=Simplex(3))
    assert learner.levels == 4  # 0.2, 0.4, 0.8 and one of the simplex's extent, 0.816
    assert learner.bases.length_unit.tolist() == pytest.approx([0.2, 0.4, 0.8, math.sqrt(2.0 / 3.0)])


@pytest.mark.parametrize("name", list(LEARNERS))
def test_a_domain_is_for_python_only(name: str) -> None:
    learner = LEARNERS[name](domain=Simplex(3))
    with pytest.raises(ValueError, match="module: expected learners that can be compiled"):
        to_torchscript(learner)
    with pytest.raises(ValueError, match=r"module: expected learners that torch.export can trace"):
        to_program(learner)
    for module in (learner, torch.nn.Sequential(learner)):
        with pytest.raises(ValueError, match=r"torch.jit.script: expected learners that can be compiled, got \w*OONS"):
            torch.jit.script(module)


def test_a_state_belongs_to_its_domain() -> None:
    state = OONS(3, lipschitz=1.0, domain=Simplex(3)).state_dict()
    OONS(3, lipschitz=1.0, domain=Simplex(3)).load_state_dict(state)
    for other in (None, Simplex(3, radius=2.0), DOMAINS["box"]):
        with pytest.raises(RuntimeError, match=r"domain|radius"):
            OONS(3, lipschitz=1.0, domain=other).load_state_dict(state)
    state = OONS(3, lipschitz=1.0, domain=DOMAINS["box"]).state_dict()
    with pytest.raises(RuntimeError) as caught:
        OONS(3, lipschitz=1.0, domain=Box(LOWER, UPPER + 1.0)).load_state_dict(state)
    assert str(caught.value).count("digest of the box") == 1
    zero, low = torch.zeros(3).double(), torch.full((3,), -1.0).double()
    OONS(3, lipschitz=1.0, domain=Box(low, zero)).load_state_dict(
        OONS(3, lipschitz=1.0, domain=Box(low, -zero)).state_dict()
    )
    assert "domain=Simplex(dim=3)" in repr(OONS(3, lipschitz=1.0, domain=Simplex(3)))


class Interval(Domain):
    """A domain of one's own: all but one coordinate are 1."""

    def __init__(self) -> None:
        self.dim = 2

    def start(self) -> torch.Tensor:
        return torch.ones(2, dtype=torch.float64)

    def parameters(self) -> list[tuple[str, float]]:
        return []

    def project(self, point: np.ndarray, matrix: np.ndarray) -> np.ndarray:
        along = point[0] + matrix[0, 1] / matrix[0, 0] * (point[1] - 1.0)
        return np.array([min(max(along, 0.0), 2.0), 1.0])

    def extent(self) -> float:
        return 1.0


def test_a_domain_of_ones_own() -> None:
    own = played_in(OONS(2, lipschitz=2.0, domain=Interval()))
    box = played_in(OONS(2, lipschitz=2.0, domain=Box(torch.tensor([0.0, 1.0]), torch.tensor([2.0, 1.0]))))
    np.testing.assert_allclose(own, box, rtol=0.0, atol=1e-12)


class Broken(Interval):
    """A domain whose projection fails once the learner moves."""

    def __init__(self, found: Any) -> None:
        super().__init__()
        self.found = found

    def project(self, point: np.ndarray, matrix: np.ndarray) -> Any:
        return point if (point == 1.0).all() else self.found


@pytest.mark.parametrize("found", [np.full(2, np.nan), np.ones(3), 0.3, None])
def test_a_bad_projection_is_refused_and_nothing_is_learnt(found: Any) -> None:
    for learner in (OONS(2, lipschitz=1.0, domain=Broken(found)), CLAOONS(2, gradient_scale=1.0, domain=Broken(found))):
        before = {name: value.clone() for name, value in learner.state().items()}
        with pytest.raises(ValueError, match="domain: expected project\\(\\) to return finite values"):
            learner.step(torch.tensor([0.5, 0.5]).double())
        for name, value in learner.state().items():
            assert torch.equal(value, before[name]), name


def test_a_domain_that_the_type_cannot_hold_is_refused() -> None:
    far = Box(torch.tensor([1e5, 0.0]).double(), torch.tensor([1e5 + 1.0, 1.0]).double())
    OONS(2, lipschitz=1.0, domain=far)
    for make in (OONS, CAOONS):
        with pytest.raises(
            ValueError, match=r"domain: expected a domain nearer to 0, or wider, got an extent of 0.707 .*float32"
        ):
            make(2, lipschitz=1.0, domain=far, dtype=torch.float32, **({} if make is OONS else {"horizon": 10}))


def test_small_simplices_and_points_far_off_keep_the_sum() -> None:
    numbers = np.random.default_rng(3)
    for size in (1e-12, 1e-3, 1.0, 1e8):
        for distance in (1.0, 1e8):
            matrix = np.diag(numbers.uniform(0.5, 2.0, 4))
            found = project_between(
                distance * numbers.standard_normal(4), matrix, np.zeros(4), np.full(4, np.inf), size
            )
            assert found.min() >= 0.0
            assert found.sum() == pytest.approx(size, rel=1e-14)
    learner = CLAOONS(2, domain=Simplex(2, radius=1e-17))
    for _ in range(5):
        learner.step(torch.tensor([1.0, -0.5]).double())
    assert float(learner.predict().sum()) == pytest.approx(1e-17, rel=1e-12)


def played_in(learner: OONS) -> np.ndarray:
    plays = []
    for gradient in torch.from_numpy(gradients_of(40, 2)):
        plays.append(learner.predict().numpy())
        learner.step(gradient)
    return np.stack(plays)


def test_bad_domains_are_refused_by_name() -> None:
    for domain, text in [
        ("simplex", "domain: expected None or a Domain, got str"),
        (Simplex(2), "domain: expected a domain of dimension 3, got 2"),
        (NuclearBall(1, 3), "domain: expected a Box, a Simplex, a polytope"),
        (LpBall(3, norm=1.5), "domain: expected a Box, a Simplex, a polytope"),
        (Box(LOWER, LOWER), "domain: expected a bounded domain with more than one point, got extent 0.0"),
    ]:
        for make in LEARNERS.values():
            with pytest.raises((TypeError, ValueError), match=text):
                make(domain=domain)
    with pytest.raises(TypeError, match="domain: expected an option of learner 'oons'"):
        ParameterFree([torch.nn.Parameter(torch.zeros(3))], learner="oons", lipschitz=1.0, domain=Simplex(3))
