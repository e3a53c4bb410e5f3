"""Rank-one updates and projections against dense linear algebra, on tensors, in batches, and on NumPy views."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch import Tensor

from tests.learners import close
from torchonline import linalg
from torchonline.core import precision_matrix

pytestmark = pytest.mark.fast

D = torch.float64
BATCHES = [(), (4,), (2, 3)]
DIMS = [1, 2, 7]
WIDE = 65  # with more entries than precision_matrix.WIDE


def definite(*shape: int, dim: int, condition: float = 1e3) -> Tensor:
    """Random symmetric positive definite matrices with eigenvalues from 1 to ``condition``."""
    vectors = torch.linalg.qr(torch.randn(*shape, dim, dim, dtype=D)).Q
    values = condition ** torch.rand(*shape, 1, dim, dtype=D)
    matrix = (vectors * values) @ vectors.mT
    return (matrix + matrix.mT) / 2


def outer(u: Tensor, v: Tensor) -> Tensor:
    return u.unsqueeze(-1) * v.unsqueeze(-2)


def on_numpy(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call on NumPy views of the tensors' memory."""
    views = [argument.numpy() if isinstance(argument, Tensor) else argument for argument in arguments]
    return function(*[view[()] if isinstance(view, np.ndarray) and view.ndim == 0 else view for view in views])


@pytest.mark.parametrize("dim", [*DIMS, WIDE])
@pytest.mark.parametrize("batch", BATCHES)
def test_outer_products(batch: tuple[int, ...], dim: int) -> None:
    matrix, u, v = definite(*batch, dim=dim), torch.randn(*batch, dim, dtype=D), torch.randn(*batch, dim, dtype=D)
    scalar = torch.randn(batch, dtype=D)
    identity = torch.eye(dim, dtype=D)
    expected = {
        precision_matrix.add_outer_product_: matrix + outer(u, v),
        precision_matrix.subtract_outer_product_: matrix - outer(u, v),
        precision_matrix.subtract_outers_: matrix - outer(u, v) - outer(v, u),
    }
    for function, result in expected.items():
        changed = matrix.clone()
        function(changed, u, v)
        close(changed, result)
        changed = matrix.clone()
        on_numpy(function, changed, u, v)
        close(changed, result)
    close(linalg.add_diagonal(matrix, scalar), matrix + scalar[..., None, None] * identity)
    close(torch.from_numpy(on_numpy(linalg.add_diagonal, matrix, scalar)), matrix + scalar[..., None, None] * identity)


def grow_(V: Any, lost: Any, W: Any, a: Any, product: Any, quadratic: Any) -> None:
    precision_matrix.add_outer_((V, W, lost), a, product, quadratic)


@pytest.mark.parametrize("compensated", [True, False])
@pytest.mark.parametrize("dim", [*DIMS, WIDE])
@pytest.mark.parametrize("batch", BATCHES)
def test_a_matrix_and_its_inverse_grow_together(batch: tuple[int, ...], dim: int, compensated: bool) -> None:
    """Sherman and Morrison: fifty rank-one terms, one of them zero, and the inverse is still the inverse."""
    for numpy in (True, False):
        V = definite(*batch, dim=dim)
        W, lost = torch.linalg.inv(V), torch.zeros_like(V) if compensated else None
        W = (W + W.mT) / 2
        expected = V.clone()
        for t in range(50):
            a = torch.randn(*batch, dim, dtype=D) * (t != 20)
            product = (W @ a.unsqueeze(-1)).squeeze(-1)
            quadratic = (a * product).sum(-1)
            if numpy:
                on_numpy(grow_, V, lost, W, a, product, quadratic)
            else:
                grow_(V, lost, W, a, product, quadratic)
            expected += outer(a, a)
        close(V, expected)
        close(V @ W, torch.eye(dim, dtype=D).expand_as(V))
        assert torch.equal(W, W.mT)
        assert torch.equal(V, V.mT)


def test_compensation_keeps_what_single_precision_drops() -> None:
    """A million small terms on a large one: lost without Kahan's summation, kept with it."""
    for numpy in (True, False):
        plain, kept, lost = torch.full((1, 1), 1e8), torch.full((1, 1), 1e8), torch.zeros(1, 1)
        u = torch.ones(1)
        for _ in range(1000):
            if numpy:
                on_numpy(precision_matrix.add_outer_product_, plain, u, u)
                on_numpy(precision_matrix.add_square_, kept, lost, u)
            else:
                precision_matrix.add_outer_product_(plain, u, u)
                precision_matrix.add_square_(kept, lost, u)
        assert plain.item() == 1e8
        assert kept.double().item() - lost.double().item() == 1e8 + 1000


@pytest.mark.parametrize("dim", DIMS)
@pytest.mark.parametrize("batch", BATCHES)
def test_an_inverse_is_refined_column_by_column(batch: tuple[int, ...], dim: int) -> None:
    """One call makes W V e_j = e_j; rounds over all columns bring a wrong inverse back, definite all the way."""
    for numpy in (True, False):
        V = definite(*batch, dim=dim, condition=10.0)
        exact = torch.linalg.inv(V)
        noise = 0.05 * torch.randn(V.shape, dtype=D) * exact.diagonal(dim1=-2, dim2=-1).amin(-1)[..., None, None]
        W = exact + noise + noise.mT
        error = [(W - exact).abs().max().item()]
        for count in range(40 * dim):
            if numpy:
                on_numpy(precision_matrix.refine_inverse_, W, V, torch.full(batch, count))
            else:
                precision_matrix.refine_inverse_(
                    W, V, torch.tensor(count).expand(batch) if batch else torch.tensor(count)
                )
            j = count % dim
            close((W @ V)[..., j], torch.eye(dim, dtype=D)[j].expand(*batch, dim))
            assert bool((torch.linalg.eigvalsh(W) > 0).all())
            error.append((W - exact).abs().max().item())
        assert error[-1] < 1e-9 < error[0]
        close(W, W.mT, tolerance=1e-12)


def test_refining_changes_nothing_that_is_right() -> None:
    V = definite(dim=5)
    W = torch.linalg.inv(V)
    before = W.clone()
    for count in range(20):
        precision_matrix.refine_inverse_(W, V, torch.tensor(count))
    close(W, before, tolerance=1e-12)


def distance(u: Tensor, point: Tensor, V: Tensor) -> Tensor:
    """Half the squared distance in the norm of V."""
    return 0.5 * ((u - point).unsqueeze(-2) @ V @ (u - point).unsqueeze(-1)).squeeze(-1).squeeze(-1)


@pytest.mark.parametrize("length", [0.5, 1.0, 1.0001, 3.0, 1e3, 1e9])
@pytest.mark.parametrize("condition", [1.0, 1e3, 1e8])
@pytest.mark.parametrize("dim", [1, 2, 7, 19])
def test_projection_is_optimal(dim: int, condition: float, length: float) -> None:
    """Inside: unchanged. Outside: on the sphere, and the gradient V(u - p) points against u (Karush, Kuhn and Tucker)."""
    V = definite(50, dim=dim, condition=condition)
    direction = torch.nn.functional.normalize(torch.randn(50, dim, dtype=D), dim=-1)
    for bound in (0.1, 1.0, 20.0):
        point = length * bound * direction
        u = linalg.project_ball(point, V, bound)
        if length < 1.0:
            assert torch.equal(u, point)
            continue
        assert bool((u.norm(dim=-1) <= bound * (1 + 1e-12)).all())
        if length > 1.0:
            close(u.norm(dim=-1) / bound, torch.ones(50, dtype=D))
        # V(p - u) = mu u for a mu >= 0: parallel to u, and outward.
        force = (V @ (point - u).unsqueeze(-1)).squeeze(-1)
        multiplier = (force * u).sum(-1) / bound**2
        assert bool((multiplier >= -1e-12 * condition).all())
        residual = (force - multiplier.unsqueeze(-1) * u).norm(dim=-1)
        assert bool((residual <= 1e-9 * condition * point.norm(dim=-1)).all())


@pytest.mark.parametrize("dtype", [D, torch.float32])
def test_projection_where_one_direction_is_all_that_is_known(dtype: torch.dtype) -> None:
    """Rounds of huge features along few directions: next to them computed eigenvalues may be 0 or less. No NaN, no escape."""
    rows = torch.randn(200, 2, 4, dtype=D, generator=torch.Generator().manual_seed(0)) * torch.tensor([[1e10], [1e-3]])
    V = (rows.mT @ rows + torch.eye(4)).to(dtype)
    assert bool((torch.linalg.eigvalsh(V)[:, 0] <= 0.0).any())
    point = (1e3 * torch.nn.functional.normalize(torch.randn(200, 4, dtype=D), dim=-1)).to(dtype)
    u = linalg.project_ball(point, V, 1.0)
    torch.testing.assert_close(u.norm(dim=-1), torch.ones(200, dtype=dtype))
    # What is known of the point stays: along the direction of weight as near as the ball allows.
    axis = torch.nn.functional.normalize(rows[:, 0], dim=-1).to(dtype)
    wanted = (point * axis).sum(-1).clamp(-1.0, 1.0)
    torch.testing.assert_close((u * axis).sum(-1), wanted, atol=1e-2, rtol=0.0)


@pytest.mark.parametrize("dim", [2, 5])
def test_projection_agrees_with_a_general_solver(dim: int) -> None:
    """No point that SciPy finds is closer, but for how far its own may lie outside the ball."""
    for _ in range(5):
        V, point = definite(dim=dim), 4.0 * torch.randn(dim, dtype=D)
        u = linalg.project_ball(point, V, 1.0)

        def objective(z: np.ndarray, point: Tensor = point, V: Tensor = V) -> tuple[float, np.ndarray]:
            gap = z - point.numpy()
            return float(0.5 * gap @ V.numpy() @ gap), V.numpy() @ gap

        ball = {"type": "ineq", "fun": lambda z: 1.0 - z @ z, "jac": lambda z: -2.0 * z}
        solution = minimize(
            objective, np.zeros(dim), jac=True, constraints=ball, method="SLSQP", options={"ftol": 1e-15}
        )
        assert distance(u, point, V).item() <= solution.fun * (1 + 1e-7)
        np.testing.assert_allclose(u.numpy(), solution.x, atol=1e-4)


@pytest.mark.parametrize("batch", [(), (5,), (2, 3)])
def test_weighted_projection(batch: tuple[int, ...]) -> None:
    """On views and tensors; inside unchanged; outside on the sphere, with the residual of Karush, Kuhn and Tucker."""
    generator = torch.Generator().manual_seed(0)
    for spread in (0.0, 3.0, 15.0):
        for length in (0.5, 1.0001, 3.0, 1e6):
            weights = 10.0 ** (-spread * torch.rand(*batch, 4, dtype=D, generator=generator))
            direction = torch.randn(*batch, 4, dtype=D, generator=generator)
            point = 2.0 * length * direction / direction.norm(dim=-1, keepdim=True)
            u = linalg.project_ball_weighted(point, weights, 2.0)
            on_views: Any = linalg.project_ball_weighted
            np.testing.assert_allclose(on_views(point.numpy(), weights.numpy(), 2.0), u.numpy(), rtol=1e-12, atol=1e-15)
            if length < 1.0:
                assert torch.equal(u, point)
                continue
            torch.testing.assert_close(u.norm(dim=-1), torch.full(batch, 2.0, dtype=D), rtol=1e-12, atol=0.0)
            multiplier = weights * (point / u - 1.0)
            spread_of = multiplier.amax(-1) - multiplier.amin(-1)
            assert bool((spread_of <= 1e-9 * (multiplier.amax(-1) + weights.amax(-1))).all())


def test_weighted_projection_without_weights() -> None:
    """Coordinates that weigh nothing give way first; where none weighs, all give way alike."""
    point = torch.tensor([3.0, 4.0], dtype=D)
    assert linalg.project_ball_weighted(point, torch.zeros(2, dtype=D), 1.0).tolist() == pytest.approx([0.6, 0.8])
    assert linalg.project_ball_weighted(point, torch.tensor([1.0, 0.0]).double(), 3.5)[0].item() == pytest.approx(3.0)
    assert not linalg.project_ball_weighted(Tensor([0.0, 0.0]).double(), torch.zeros(2, dtype=D), 1.0).any()


@pytest.mark.parametrize("may_wait", [True, False])
@pytest.mark.parametrize("batch", BATCHES)
def test_projection_in_place_touches_what_is_outside(batch: tuple[int, ...], may_wait: bool) -> None:
    V, point = definite(*batch, dim=3), torch.randn(*batch, 3, dtype=D)
    inside = point.norm(dim=-1, keepdim=True) <= 1.5
    expected = torch.where(inside, point, linalg.project_ball(point, V, 1.5))
    written, on_views = point.clone(), point.clone()
    linalg.project_ball_(written, V, 1.5, may_wait)
    close(written, expected)
    assert torch.equal(written[inside.squeeze(-1)], point[inside.squeeze(-1)])
    on_numpy(linalg.project_ball_, on_views, V, 1.5, may_wait)
    close(on_views, expected)
