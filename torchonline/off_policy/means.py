"""Self-normalised means, effective sample sizes, and a bootstrap of groups."""

from typing import Any

import torch
from torch import Tensor

from torchonline.core import checks
from torchonline.core.checks import check_shape, check_values, positive_integer, shape_text
from torchonline.core.inputs import check_floats, check_indices


def self_normalised_mean(values: Tensor, weights: Tensor) -> Tensor:
    r"""Return :math:`\sum w_i v_i / \sum w_i` over the last dimension.

    With importance weights, this mean is consistent if the plain mean of :math:`w_i v_i` is unbiased. Values are ``(N)``, of
    magnitude up to 5.6e102; weights are ``(..., N)``, from 0 to 5.6e102 and not all 0. The result is ``(...)``, float64.

    Example:
        >>> self_normalised_mean(torch.tensor([1.0, 2.0, 6.0]), torch.tensor([1.0, 1.0, 2.0]))
        tensor(3.7500, dtype=torch.float64)
    """
    values, weights = _checked(values, weights)
    return (weights * values).sum(-1) / weights.sum(-1)


def effective_sample_size(weights: Tensor) -> Tensor:
    r"""Return the effective sample size :math:`(\sum w_i)^2 / \sum w_i^2`.

    Weights are ``(..., N)``, from 0 to 5.6e102 and not all 0. The result is ``(...)``, float64, from 1 to N.

    Example:
        >>> effective_sample_size(torch.tensor([1.0, 1.0, 0.0, 4.0]))
        tensor(2., dtype=torch.float64)
    """
    weights = _checked_weights(weights)
    return weights.sum(-1) ** 2 / (weights**2).sum(-1)


def bootstrap_means(values: Tensor, weights: Tensor, groups: Tensor, *, draws: int = 2000, seed: int = 0) -> Tensor:
    """Return self-normalised means of bootstrap resamples of whole groups.

    A resample draws G of the G groups with replacement. All rows of ``weights`` get the same resamples, so their differences can
    be computed draw by draw. If the values have infinite variance, the bootstrap of a mean is not consistent (Athreya, Annals of
    Statistics 1987). Its quantiles are then not a confidence interval for any number of draws.

    A resample without a weight above 0 has no mean, and dropping it would change the distribution of the draws, so it raises a
    ValueError. If m of G groups have a weight above 0, each draw is such a resample with probability
    :math:`(1 - m/G)^G < e^{-m}`.

    Args:
        values: ``(N)``, of magnitude up to 5.6e102.
        weights: ``(..., N)``, from 0 to 5.6e102 and not all 0.
        groups: group of each value, ``(N)``, int64 from 0 to N - 1.
        draws: number of resamples.
        seed: seed of the draws, which have their own generator.

    Returns:
        ``(draws, ...)``, float64.

    Example:
        >>> values, groups = torch.tensor([0.0, 1.0, 2.0, 3.0], dtype=torch.float64), torch.tensor([0, 0, 1, 1])
        >>> bootstrap_means(values, torch.ones(4, dtype=torch.float64), groups, draws=1000).unique()
        tensor([0.5000, 1.5000, 2.5000], dtype=torch.float64)
    """
    values, weights = _checked(values, weights)
    groups = check_indices("groups", groups, len(values))
    check_shape("groups", groups, values.shape)
    positive_integer("draws", draws)
    generator = torch.Generator().manual_seed(checks.seed_number(seed))
    _, group = torch.unique(groups, return_inverse=True)
    count = int(group.max()) + 1
    total = weights.new_zeros(*weights.shape[:-1], count).index_add_(-1, group, weights)
    weighted = torch.zeros_like(total).index_add_(-1, group, weights * values)
    sums, sizes = [], []
    for _ in range(draws):
        times = torch.randint(count, (count,), generator=generator).bincount(minlength=count).to(weights)
        sums.append(weighted @ times)
        sizes.append(total @ times)
    size = torch.stack(sizes)
    if not bool((size > 0).all()):
        few = int((total > 0).sum(-1).min())
        raise ValueError(
            f"weights: expected a weight above 0 in every resample, got none for {int((size == 0).sum())} of {size.numel()} "
            f"means; in one row only {few} of {count} groups have a weight above 0"
        )
    return torch.stack(sums) / size


def _checked(values: Any, weights: Any) -> tuple[Tensor, Tensor]:
    """Return the checked values in float64 and the scaled weights."""
    weights, values = _checked_weights(weights), check_floats("values", values).double()
    check_shape("values", values, tuple(weights.shape[-1:]))
    check_values("values", values)
    return values, weights


def _checked_weights(weights: Any) -> Tensor:
    """Return the checked weights in float64, divided by the largest of their row."""
    weights = check_floats("weights", weights).double()
    if weights.dim() == 0 or weights.size(-1) == 0:
        raise ValueError(f"weights: expected shape (..., N) with N above 0, got {shape_text(weights.shape)}")
    check_values("weights", weights, 0.0)
    largest = weights.amax(-1, keepdim=True)
    if not bool((largest > 0).all()):
        raise ValueError("weights: expected a weight above 0 in each row, got a row of zeros")
    return weights / largest  # sums and squares do not overflow
