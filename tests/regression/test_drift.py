"""A hundred thousand rounds of features over six decades: the inverses stay inverses, at the cost of the first round."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from torchonline import HeavyTailRegression, HuberRegression, RidgeRegression
from torchonline.testing.gradients_and_cost import calls

ROUNDS = 100_000
CHUNK = 2_000
SCALES = {"1e-3 to 1e3": np.logspace(-3, 3, 5), "1e-6 to 1": np.logspace(-6, 0, 8)}
LIMIT = {torch.float64: 1e-8, torch.float32: 1e-3}


def chunks(scales: np.ndarray, dtype: torch.dtype, rounds: int = ROUNDS) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Features whose coordinates differ in size by six decades, and heavy-tailed rewards."""
    random = np.random.default_rng(0)
    for _ in range(rounds // CHUNK):
        x = random.standard_normal((CHUNK, len(scales))) * scales
        yield torch.from_numpy(x).to(dtype), torch.from_numpy(random.standard_t(2.1, CHUNK)).to(dtype)


def residual(matrix: torch.Tensor, inverse: torch.Tensor) -> float:
    """The largest entry of ``|matrix inverse - I|``, in float64."""
    product = matrix.double() @ inverse.double()
    return float((product - torch.eye(len(matrix), dtype=torch.float64)).abs().max())


def scaled_residual(matrix: torch.Tensor, inverse: torch.Tensor) -> float:
    """The same in units in which the diagonal of ``matrix`` is 1, for one whose rounds differ in weight as well."""
    units = matrix.double().diagonal().sqrt()
    return residual(matrix.double() / units / units[:, None], inverse.double() * units * units[:, None])


def cost_of_a_window(estimator: Any, scales: np.ndarray) -> Any:
    """What 64 steps call, once the first has made the views that all share."""
    x, reward = next(chunks(scales, estimator.theta_hat.dtype))
    estimator.step(x[0], reward[0])

    def steps() -> None:
        for t in range(64):
            estimator.step(x[t], reward[t])

    return calls(steps)


@pytest.mark.parametrize("dtype", LIMIT, ids=str)
@pytest.mark.parametrize(("name", "rounds"), [("1e-3 to 1e3", ROUNDS), ("1e-6 to 1", 30_000)])
def test_ridge_inverse_follows_the_sum(name: str, rounds: int, dtype: torch.dtype) -> None:
    """V is summed here, in float64, from the features as the learner saw them; V_inv is the learner's."""
    scales = SCALES[name]
    estimator = RidgeRegression(len(scales), dtype=dtype)
    V = estimator.ridge * torch.eye(len(scales), dtype=torch.float64)
    shapes = {name: buffer.shape for name, buffer in estimator.named_buffers()}
    worst = 0.0
    early = cost_of_a_window(estimator, scales)
    estimator.reset()
    for x, reward in chunks(scales, dtype, rounds):
        estimator.step(x, reward)
        V += x.double().T @ x.double()
        worst = max(worst, residual(V, estimator.V_inv))
    assert 0.0 < worst < LIMIT[dtype]
    assert estimator.rounds == rounds
    assert cost_of_a_window(estimator, scales) == early
    assert {name: buffer.shape for name, buffer in estimator.named_buffers()} == shapes


@pytest.mark.parametrize(
    ("scales", "dtype"), list(zip(SCALES.values(), LIMIT, strict=True)), ids=["float64", "float32"]
)
def test_heavy_tail_inverses_follow_their_sums(scales: np.ndarray, dtype: torch.dtype) -> None:
    """V and A, both inverses, and P = V^-1 A V^-1 still belong together."""
    estimator = HeavyTailRegression(len(scales), dtype=dtype)
    worst = 0.0
    early = cost_of_a_window(estimator, scales)
    estimator.reset()
    for x, reward in chunks(scales, dtype, 30_000):
        estimator.step(x, reward)
        worst = max(worst, residual(estimator.V, estimator.V_inv), scaled_residual(estimator.A, estimator.A_inv))
    assert 0.0 < worst < LIMIT[dtype]
    inverse, P = torch.linalg.inv(estimator.V.double()), estimator.P.double()
    assert float((inverse @ estimator.A.double() @ inverse - P).abs().max()) < 10 * LIMIT[dtype] * float(P.max())
    assert bool((torch.linalg.eigvalsh(P) > 0).all())
    assert cost_of_a_window(estimator, scales) == early


@pytest.mark.parametrize("dtype", LIMIT, ids=str)
def test_huber_inverse_follows_the_sum(dtype: torch.dtype) -> None:
    scales = SCALES["1e-3 to 1e3"]
    estimator = HuberRegression(len(scales), horizon=ROUNDS, radius_scale=1e-3, dtype=dtype)
    worst = 0.0
    for x, reward in chunks(scales, dtype, 10_000):
        estimator.step(x, reward)
        worst = max(worst, residual(estimator.V, estimator.V_inv))
    assert 0.0 < worst < LIMIT[dtype]


@pytest.mark.parametrize("dtype", LIMIT, ids=str)
def test_sizes_that_change_from_round_to_round(dtype: torch.dtype) -> None:
    """Rounds, rather than coordinates, over six decades: a large one after many small ones and the reverse."""
    random = np.random.default_rng(1)
    estimator = RidgeRegression(5, dtype=dtype)
    V = torch.eye(5, dtype=torch.float64)
    for _ in range(6):
        x = random.standard_normal((CHUNK, 5)) * 10.0 ** random.uniform(-3, 3, (CHUNK, 1))
        seen = torch.from_numpy(x).to(dtype)
        estimator.step(seen, torch.zeros(CHUNK))
        V += seen.double().T @ seen.double()
        assert residual(V, estimator.V_inv) < LIMIT[dtype]


@pytest.mark.parametrize("dtype", LIMIT, ids=str)
def test_a_batch_does_not_drift_either(dtype: torch.dtype) -> None:
    """The same on tensors, where the arithmetic is torch's."""
    scales = SCALES["1e-3 to 1e3"]
    estimator = RidgeRegression(5, dtype=dtype, batch_shape=(2,))
    V = torch.eye(5, dtype=torch.float64)
    for x, reward in chunks(scales, dtype, 4_000):
        estimator.step(x.expand(2, -1, -1), reward.expand(2, -1))
        V += x.double().T @ x.double()
    assert residual(V, estimator.V_inv[0]) < LIMIT[dtype]
    assert residual(V, estimator.V_inv[1]) < LIMIT[dtype]
