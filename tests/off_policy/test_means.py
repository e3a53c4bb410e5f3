"""Tests of weighted means and of their bootstrap against NumPy."""

import re

import numpy as np
import pytest
import torch

from torchonline.off_policy import bootstrap_means, effective_sample_size, self_normalised_mean


def test_weighted_means() -> None:
    rng = np.random.default_rng(0)
    values, weights = rng.normal(size=50), rng.exponential(size=(2, 3, 50))
    ours = self_normalised_mean(torch.from_numpy(values), torch.from_numpy(weights))
    np.testing.assert_allclose(ours, [[np.average(values, weights=w) for w in row] for row in weights], rtol=1e-12)
    sizes = effective_sample_size(torch.from_numpy(weights))
    np.testing.assert_allclose(sizes, weights.sum(-1) ** 2 / (weights**2).sum(-1), rtol=1e-12)


def test_the_bootstrap_draws_whole_groups() -> None:
    """The standard deviation is that of a mean of groups, not of a mean of rows."""
    generator = torch.Generator().manual_seed(0)
    groups = torch.arange(400).repeat_interleave(5)
    values = torch.randn(400, generator=generator, dtype=torch.float64)[groups]
    weights = torch.ones(2, len(values), dtype=torch.float64)
    before = torch.get_rng_state()
    draws = bootstrap_means(values, weights, groups, draws=2000)
    assert torch.equal(torch.get_rng_state(), before)
    assert draws.shape == (2000, 2)
    # All rows of weights get the same resamples, up to the rounding of a matrix product.
    torch.testing.assert_close(draws[:, 0], draws[:, 1], rtol=0.0, atol=1e-12)
    assert abs(draws[:, 0].std().item() * 20.0 / values[::5].std().item() - 1.0) < 0.08
    rows = bootstrap_means(values, weights, torch.arange(len(values)), draws=2000)
    assert rows[:, 0].std() < 0.6 * draws[:, 0].std()
    assert torch.equal(draws, bootstrap_means(values, weights, groups, draws=2000))
    assert not torch.equal(draws, bootstrap_means(values, weights, groups, draws=2000, seed=1))


def test_each_resample_is_normalised_by_its_own_weights() -> None:
    """Two groups give three resamples, each divided by its own weight."""
    values, weights = torch.tensor([0.0, 1.0, 1.0], dtype=torch.float64), torch.tensor([1.0, 1.0, 2.0])
    groups = torch.tensor([0, 1, 1])
    draws = bootstrap_means(values, weights, groups)
    assert draws.unique().tolist() == [0.0, 0.75, 1.0]
    torch.testing.assert_close(bootstrap_means(values + 5.0, weights, groups), draws + 5.0)


def test_a_resample_without_weight_is_refused() -> None:
    """With weight in one of ten groups, about a third of the resamples have no mean."""
    values, groups = torch.arange(10.0), torch.arange(10)
    one = torch.zeros(10).index_fill(0, torch.tensor(0), 1.0)
    with pytest.raises(
        ValueError, match=r"^weights: expected a weight above 0 in every resample, got none for"
    ) as refusal:
        bootstrap_means(values, torch.stack([torch.ones(10), one]), groups)
    empty, means, few, count = (int(number) for number in re.findall(r"[1-9]\d*", str(refusal.value)))
    assert (means, few, count) == (4000, 1, 10)
    assert abs(empty - 2000 * 0.9**10) < 3.0 * (2000 * 0.9**10 * (1.0 - 0.9**10)) ** 0.5
    # No error if all groups have weight, or if there is only one group.
    assert torch.isfinite(bootstrap_means(values, torch.ones(10), groups)).all()
    assert (bootstrap_means(values, one, torch.zeros(10, dtype=torch.int64)) == 0.0).all()


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_weights_of_any_size(scale: float) -> None:
    """In float32 squares of small weights vanish and those of large ones overflow."""
    values, weights = torch.tensor([1.0, 2.0, 6.0]), scale * torch.tensor([1.0, 1.0, 2.0])
    torch.testing.assert_close(effective_sample_size(weights).item(), 16.0 / 6.0, rtol=1e-6, atol=0.0)
    torch.testing.assert_close(self_normalised_mean(values * 1e30, weights).item(), 3.75e30, rtol=1e-6, atol=0.0)
    torch.testing.assert_close(
        bootstrap_means(values, weights, torch.arange(3)),
        bootstrap_means(values, weights / scale, torch.arange(3)),
        rtol=1e-6,
        atol=0.0,
    )
    tiny = torch.tensor([1e-200, 1e-200], dtype=torch.float64)
    assert effective_sample_size(tiny) == 2.0


@pytest.mark.parametrize("of_values", [torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("of_weights", [torch.bfloat16, torch.float32, torch.float64])
def test_floating_types_may_differ(of_values: torch.dtype, of_weights: torch.dtype) -> None:
    rng, groups = np.random.default_rng(0), torch.arange(10)
    values, weights = torch.from_numpy(rng.normal(size=10)), torch.from_numpy(rng.exponential(size=(2, 10)))
    values, weights = values.to(of_values), weights.to(of_weights)
    for ours, exact in (
        (self_normalised_mean(values, weights), self_normalised_mean(values.double(), weights.double())),
        (effective_sample_size(weights), effective_sample_size(weights.double())),
        (bootstrap_means(values, weights, groups), bootstrap_means(values.double(), weights.double(), groups)),
    ):
        assert ours.dtype == torch.float64
        assert torch.equal(ours, exact)


ONES = torch.ones(4, dtype=torch.int64)


@pytest.mark.parametrize(
    ("call", "error", "name"),
    [
        (lambda: self_normalised_mean(ONES, ONES.double()), TypeError, "values"),
        (lambda: self_normalised_mean(torch.ones(4), torch.ones(3)), ValueError, "values"),
        (lambda: self_normalised_mean(torch.ones(4), -torch.ones(4)), ValueError, "weights"),
        (lambda: self_normalised_mean(torch.ones(4), torch.full((4,), torch.nan)), ValueError, "weights"),
        (lambda: self_normalised_mean(torch.ones(4), torch.zeros(4)), ValueError, "weights"),
        (lambda: self_normalised_mean(torch.ones(4), torch.full((4,), torch.inf)), ValueError, "weights"),
        (lambda: self_normalised_mean(torch.tensor([1.0, torch.nan]), torch.ones(2)), ValueError, "values"),
        (lambda: self_normalised_mean(torch.tensor([1.0, -torch.inf]), torch.tensor([1.0, 0.0])), ValueError, "values"),
        (lambda: self_normalised_mean(torch.ones(0), torch.ones(0)), ValueError, "weights"),
        (lambda: effective_sample_size(torch.tensor(1.0)), ValueError, "weights"),
        (lambda: effective_sample_size(torch.tensor([torch.inf, 1.0])), ValueError, "weights"),
        (lambda: effective_sample_size(torch.tensor([[1.0, 2.0], [0.0, 0.0]])), ValueError, "weights"),
        (lambda: effective_sample_size(torch.zeros(2, 4)), ValueError, "weights"),
        (lambda: effective_sample_size(ONES), TypeError, "weights"),
        (lambda: bootstrap_means(torch.ones(4), torch.ones(4), ONES[:3]), ValueError, "groups"),
        (lambda: bootstrap_means(torch.ones(4), torch.ones(4), ONES, draws=0), ValueError, "draws"),
        (lambda: bootstrap_means(torch.full((4,), torch.nan), torch.ones(4), ONES), ValueError, "values"),
        (lambda: bootstrap_means(torch.ones(4), torch.full((4,), torch.inf), ONES), ValueError, "weights"),
        (lambda: bootstrap_means(torch.ones(4), torch.ones(4), ONES, seed=None), TypeError, "seed"),
        (lambda: bootstrap_means(torch.ones(4), torch.ones(4), ONES, seed=2**64), ValueError, "seed"),
    ],
)
def test_estimates_refuse_what_is_none(call, error: type[Exception], name: str) -> None:
    with pytest.raises(error, match=f"^{name}: expected"):
        call()
