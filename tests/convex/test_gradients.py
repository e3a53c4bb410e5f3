"""``torchonline.gradients``: those of a loss at each query point of each learner, and nothing mixed up between them."""

from typing import Any

import pytest
import torch
from torch import Tensor

from torchonline import DPTOFW, FreeGrad, gradients

pytestmark = pytest.mark.fast

SHAPES = [(), (3,), (2, 3)]


def learner_of(batch_shape: tuple[int, ...]) -> DPTOFW:
    learner = DPTOFW(4, horizon=9, epsilon=1.0, delta=0.01, batch_shape=batch_shape, seed=0)
    for _ in range(2):
        learner.step(learner.queries() - 1.0)
    return learner


def loss(theta: Tensor, x: Tensor, y: Tensor) -> Tensor:
    return (x @ theta - y) ** 2


@pytest.mark.parametrize("batch_shape", SHAPES)
def test_they_are_the_formula(batch_shape: tuple[int, ...]) -> None:
    learner = learner_of(batch_shape)
    x, y = torch.randn(*batch_shape, 4, dtype=torch.float64), torch.randn(batch_shape, dtype=torch.float64)
    slopes, values = gradients(loss, learner, x, y)
    residual = (learner.queries() * x.unsqueeze(-2)).sum(-1) - y.unsqueeze(-1)
    torch.testing.assert_close(values, residual**2, rtol=0.0, atol=1e-12)
    torch.testing.assert_close(slopes, 2.0 * residual.unsqueeze(-1) * x.unsqueeze(-2), rtol=0.0, atol=1e-12)
    assert not slopes.requires_grad
    assert not values.requires_grad
    with torch.no_grad():
        assert torch.equal(gradients(loss, learner, x, y)[0], slopes)


def test_a_record_that_is_no_number_spoils_its_own_learner_only() -> None:
    learner = learner_of((3,))
    x, y = torch.ones(3, 4, dtype=torch.float64), torch.tensor([1.0, torch.nan, 1.0], dtype=torch.float64)
    slopes, _ = gradients(loss, learner, x, y)
    assert slopes.isnan().all(-1).all(-1).tolist() == [False, True, False]


def test_a_loss_without_the_point_is_flat() -> None:
    learner = learner_of(())
    slopes, values = gradients(lambda theta, y: 2.0 * y, learner, torch.tensor(3.0).double())
    assert torch.equal(slopes, torch.zeros(2, 4).double())
    assert values.tolist() == [6.0, 6.0]


def test_wrong_shapes_are_refused_by_name() -> None:
    learner = learner_of((3,))
    x, y = torch.ones(3, 4).double(), torch.ones(3).double()
    with pytest.raises(ValueError, match=r"data: expected tensors of shape \(3, ...\), got \(2\)"):
        gradients(loss, learner, x, y[:2])
    with pytest.raises(ValueError, match=r"loss: expected one number for each point, got shape \(4\)"):
        gradients(lambda theta, x, y: theta * x - y, learner, x, y)


def test_what_is_no_tensor_is_refused_by_name() -> None:
    learner = learner_of(())
    with pytest.raises(TypeError, match="data: expected tensors, got float"):
        gradients(lambda theta, y: theta.sum() * y, learner, 3.0)
    with pytest.raises(TypeError, match="loss: expected one number for each point, as a tensor, got tuple"):
        gradients(lambda theta: (theta.sum(), theta), learner)


@pytest.mark.parametrize("make", [lambda: FreeGrad(4, batch_shape=(3,)), lambda: learner_of((3,))])
def test_a_loss_that_works_in_place_leaves_its_data_alone(make: Any) -> None:
    """Each query gets the data as they came."""
    learner, x, y = make(), torch.ones(3, 4).double(), torch.arange(3.0).double()
    slopes = gradients(lambda theta, x, y: loss(theta, x.mul_(2.0), y.sub_(1.0)), learner, x, y)[0]
    assert torch.equal(x, torch.ones(3, 4).double())
    assert torch.equal(y, torch.arange(3.0).double())
    torch.testing.assert_close(slopes, gradients(loss, learner, 2.0 * x, y - 1.0)[0])
