"""What the tests of private learners share: noise that is known, and a stream of records."""

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from torchonline.privacy.noise import NoiseSource


class KnownNoise(NoiseSource):
    """A source that draws what it is given, whatever the law is called; for ever 0 if it is given nothing."""

    name = "known"
    is_seeded = True

    def __init__(self, rows: Iterable[Tensor] | None = None) -> None:
        self.rows: Iterator[Tensor] | None = None if rows is None else iter(rows)
        self.asked: list[tuple[int, ...]] = []

    def normal(self, shape: tuple[int, ...]) -> Tensor:
        self.asked.append(tuple(shape))
        if self.rows is None:
            return torch.zeros(shape, dtype=torch.float64)
        return next(self.rows).to(torch.float64).expand(shape).clone()

    laplace = normal
    gumbel = normal

    def add_normal(self, values: Any, scale: float) -> Any:
        """The sum as it is, on no grid."""
        noise = scale * self.normal(tuple(values.shape))
        return values + noise if isinstance(values, Tensor) else values + noise.numpy()

    def highest(self, scores: Tensor, scale: float, law: str) -> Tensor:
        return (scores + scale * self.normal(tuple(scores.shape))).argmax(-1)

    def happens(self, shape: tuple[int, ...], probability: float) -> Tensor:
        return torch.special.ndtr(self.normal(shape)) < probability

    def renew(self) -> None:
        """Known noise stays known."""

    def spawn(self) -> "KnownNoise":
        return KnownNoise()


class Recorded(NoiseSource):
    """A source that remembers what another released: values with noise, and less the values."""

    name = "recorded"

    def __init__(self, source: NoiseSource) -> None:
        self.source = source
        self.released: list[Tensor] = []
        self.added: list[Tensor] = []

    def add_normal(self, values: Any, scale: float) -> Any:
        released = self.source.add_normal(values, scale)
        self.released.append(torch.as_tensor(released).clone())
        self.added.append(torch.as_tensor(released - values))
        return released

    def renew(self) -> None:
        self.source.renew()


def squared_loss(theta: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """The loss of a linear prediction."""
    return (x @ theta - y) ** 2


def records(
    count: int, dim: int, *, batch_shape: tuple[int, ...] = (), seed: int = 0
) -> Iterator[tuple[Tensor, Tensor]]:
    """Features and responses, for each learner of a batch."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn((*batch_shape, *shape), generator=generator, dtype=torch.float64)

    for _ in range(count):
        yield normal(dim), normal()


def feed(learner: Any, rows: Iterable[tuple[Tensor, Tensor]]) -> Tensor:
    """Learn from records by their squared loss; all decisions, the first among them, ``(n + 1, *B, d)``."""
    decisions = [learner.predict()]
    for x, y in rows:
        residual = (queries_of(learner) * x.unsqueeze(-2)).sum(-1, keepdim=True) - y[..., None, None]
        learner.step(2.0 * residual * x.unsqueeze(-2))
        decisions.append(learner.predict())
    return torch.stack(decisions)


def queries_of(learner: Any) -> Tensor:
    """The points at which a learner wants gradients, secret or not."""
    return learner.secret_queries() if hasattr(learner, "secret_queries") else learner.queries()
