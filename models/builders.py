"""Encoders and policies from plain values, for configuration files."""

import itertools
from collections.abc import Sequence
from typing import Any

from torch import nn

from torchonline.core.checks import one_of, sizes
from torchonline.features import ColumnEncoder
from torchonline.features.schema import MISSING, Kinds
from torchonline.models.bandit_head import BanditHead
from torchonline.policies.policy import Policy
from torchonline.policies.recommended import Explore, Rewards, bandit
from torchonline.policies.scaler import Interactions

ACTIVATIONS: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "tanh": nn.Tanh, "gelu": nn.GELU}


def mlp(widths: Sequence[int], *, activation: str = "relu") -> nn.Sequential:
    """Return a network of linear layers, each followed by an activation.

    It is meant for configuration files, which cannot express the layers of a ``torch.nn.Sequential``.

    Args:
        widths: widths of the input and of each layer: ``[20, 64, 8]`` maps 20 numbers to 8 features, with 64 hidden units.
        activation: ``"relu"``, ``"tanh"`` or ``"gelu"``.

    Example:
        >>> mlp([20, 8])
        Sequential(
          (0): Linear(in_features=20, out_features=8, bias=True)
          (1): ReLU()
        )
    """
    layer = ACTIVATIONS[one_of("activation", activation, tuple(ACTIVATIONS))]
    numbers = sizes("widths", widths)
    if len(numbers) < 2:
        raise ValueError(f"widths: expected the width of the input and of at least one layer, got {list(numbers)}")
    parts: list[nn.Module] = []
    for width, wider in itertools.pairwise(numbers):
        parts += [nn.Linear(width, wider), layer()]
    return nn.Sequential(*parts)


def recommended_policy(
    dim: int,
    rewards: Rewards = "unit",
    actions: int | Sequence[str] | None = None,
    *,
    scale: bool = True,
    magnitudes: bool | None = None,
    interactions: Interactions | None = None,
    bins: int | None = None,
    explore: Explore | None = None,
) -> Policy:
    """Call :func:`torchonline.bandit` with the arguments, for configuration files.

    Command lines need one type as the return annotation, and ``bandit`` returns one of two types.

    Example:
        >>> recommended_policy(3, actions=2).actions
        2
        >>> recommended_policy(3, actions=["home", "sale"]).action_names
        ['home', 'sale']
    """
    return bandit(
        dim,
        rewards,
        actions,
        scale=scale,
        magnitudes=magnitudes,
        interactions=interactions,
        bins=bins,
        explore=explore,
    )


def table_head(
    columns: Kinds | ColumnEncoder | None = None,
    rewards: Rewards | None = None,
    actions: int | list[str] | None = None,
    *,
    products: dict[str, list[str]] | None = None,
    magnitudes: bool | None = None,
    bins: int | None = None,
    explore: Explore | None = None,
    missing: list[str] | None = None,
) -> BanditHead:
    """Return the recommended bandit on the columns of a table, as a head.

    It is :func:`torchonline.bandit` on the features of a :class:`~torchonline.features.ColumnEncoder`.

    Args:
        columns: kinds or options of columns by name, as in a ColumnEncoder; or a ColumnEncoder. The command line proposes
            columns, rewards and actions that are None, from the log.
        rewards: as in :func:`torchonline.bandit`; None for "unit".
        actions: as in :func:`torchonline.bandit`: names, or K, or None if each arm has its own row.
        products: groups of columns by name. The features of two columns from different groups get products, so that the effect
            of one can depend on the other. None for the default of :func:`torchonline.bandit`.
        magnitudes: as in :func:`torchonline.bandit`.
        bins: as in :func:`torchonline.bandit`. They are separate from the encoder's bins, the ``edges`` of numbers.
        explore: as in :func:`torchonline.bandit`.
        missing: words for a gap, as in a ColumnEncoder; None for its own.

    Raises:
        TypeError, ValueError: an argument is wrong; the error names it.

    Example:
        >>> head = table_head({"age": "number", "country": "category"}, "binary", actions=2)
        >>> k = head.select({"age": 31, "country": "CH"})
        >>> head.step({"age": 31, "country": "CH"}, k, 1.0)
    """
    words = MISSING if missing is None else missing
    encoder = columns if isinstance(columns, ColumnEncoder) else ColumnEncoder(columns, missing=words)
    groups = None if products is None else {name: encoder.places(*group) for name, group in products.items()}
    options: Any = {"magnitudes": magnitudes, "bins": bins, "explore": explore}
    policy: Any = bandit(encoder.dim, rewards or "unit", actions, interactions=groups, **options)
    return BanditHead(encoder, policy)
