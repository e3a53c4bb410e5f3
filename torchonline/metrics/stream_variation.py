"""Noise, drift and gradients of a stream whose expected gradients are known."""

from typing import Any

import torch
from torch import Tensor

from torchonline.core.checks import check_shape, instance_of, positive_integer, shape_text, sizes
from torchonline.metrics.base import ExactMetric, check_finite


class StreamVariation(ExactMetric):
    r"""Sums of the noise, the drift and the expected gradients along a run.

    Bounds in the stochastically extended adversarial model consist of these numbers. ``compute`` returns, by name,

    .. math::
        \texttt{variance} &= \sigma^2_{1:T} = \sum_t\sup_xE\|\nabla f_t(x) - \nabla F_t(x)\|^2, \qquad
        \texttt{largest\_variance} = \tilde\sigma^2_{1:T} = \sum_tE\sup_x\|\nabla f_t(x) - \nabla F_t(x)\|^2, \\
        \texttt{deviation} &= \sigma_{1:T} = \sum_t\sup_xE\|\nabla f_t(x) - \nabla F_t(x)\|, \\
        \texttt{drift} &= \Sigma^2_{1:T} = E\sum_t\sup_x\|\nabla F_t(x) - \nabla F_{t-1}(x)\|^2, \qquad
        \texttt{gradients} = G_{1:T} = E\sum_t\sup_x\|\nabla F_t(x)\| .

    The suprema are over the caller's points, some of which may move, such as a learner's decision. If they are attained
    elsewhere, the numbers are too small. An expectation of noise is a mean over trials at each point, taken before the maximum
    over points: with few trials and many points ``variance`` and ``deviation`` are too large. Both assume that the supremum is
    attained at the same point in all rounds. The stream defines :math:`F_0`.

    Over several processes the sums are over the rounds of all ranks. Cost of a round: three gradient calls.

    Args:
        batch_shape: ``*B``, batch shape of the stream, whose trials are averaged.
        points: number n of points.

    Shape:
        - ``update(stream, points)``: one round, at ``(*B, n, d)``, or ``(*B, d)`` for n = 1. The stream has ``gradients(points)``
          and ``expected_gradients(points, lag)``, as :class:`~torchonline.environments.SEAStream` has.
        - ``compute()``: five numbers by name, float64, in units of gradients, or their squares.

    Example:
        >>> from torchonline.environments import SEAStream
        >>> stream = SEAStream(3, loss="logistic", sigma=0.5, drift=0.1, batch_shape=(4,))
        >>> metric = StreamVariation((4,))
        >>> for _ in range(100):
        ...     metric.update(stream, torch.zeros(4, 3))
        ...     stream.advance()
        >>> {name: round(float(value), 6) for name, value in metric.compute().items() if name != "gradients"}
        {'variance': 25.0, 'largest_variance': 25.0, 'deviation': 50.0, 'drift': 1.0}
    """

    higher_is_better = None
    named = "sum over the rounds"

    noise_squares: Tensor
    noise_lengths: Tensor
    largest_noise_squares: Tensor
    drift_squares: Tensor
    gradient_lengths: Tensor

    def __init__(self, batch_shape: tuple[int, ...] = (), *, points: int = 1) -> None:
        super().__init__()
        self.batch_shape = sizes("batch_shape", batch_shape)
        self.points = positive_integer("points", points)
        each = torch.zeros((*self.batch_shape, self.points), dtype=torch.float64)
        total = torch.zeros(self.batch_shape, dtype=torch.float64)
        self._add_states(
            "sum",
            noise_squares=each,
            noise_lengths=each.clone(),
            largest_noise_squares=total,
            drift_squares=total.clone(),
            gradient_lengths=total.clone(),
            rounds=torch.zeros((), dtype=torch.int64),
        )

    def update(self, stream: Any, points: Tensor) -> None:
        """Add the present round of a stream."""
        self._refuse_synced()
        if not all(callable(getattr(stream, name, None)) for name in ("gradients", "expected_gradients")):
            got = type(stream).__name__
            raise TypeError(f"stream: expected an object with gradients() and expected_gradients(), got {got}")
        points = check_finite("points", points).detach()
        if points.dim() == len(self.batch_shape) + 1 and self.points == 1:
            points = points.unsqueeze(-2)
        wanted = (*self.batch_shape, self.points)
        if points.dim() != len(wanted) + 1 or points.shape[:-1] != wanted:
            shape = (*wanted, points.size(-1) if points.dim() else "d")
            raise ValueError(f"points: expected shape {shape_text(shape)}, got {shape_text(points.shape)}")
        found = [
            check_finite(
                "gradients of the stream", instance_of("gradients of the stream", gradients, Tensor, "a tensor")
            )
            for gradients in (
                stream.gradients(points),
                stream.expected_gradients(points),
                stream.expected_gradients(points, lag=1),
            )
        ]
        for gradients in found:
            check_shape("gradients of the stream", gradients, tuple(points.shape))
        drawn, expected, before = (gradients.detach().to(self.drift_squares) for gradients in found)
        noise = (drawn - expected).square().sum(-1)
        drift = (expected - before).square().sum(-1).amax(-1)
        length = torch.linalg.vector_norm(expected, dim=-1).amax(-1)
        self.noise_squares = self.noise_squares + noise
        self.noise_lengths = self.noise_lengths + noise.sqrt()
        self.largest_noise_squares = self.largest_noise_squares + noise.amax(-1)
        self.drift_squares = self.drift_squares + drift
        self.gradient_lengths = self.gradient_lengths + length
        self.rounds = self.rounds + 1

    def compute(self) -> dict[str, Tensor]:
        """Return the five sums by name, means over trials."""

        def at_most(sums: Tensor) -> Tensor:
            return sums.reshape(-1, self.points).mean(0).amax()

        return {
            "variance": at_most(self.noise_squares),
            "largest_variance": self.largest_noise_squares.mean(),
            "deviation": at_most(self.noise_lengths),
            "drift": self.drift_squares.mean(),
            "gradients": self.gradient_lengths.mean(),
        }
