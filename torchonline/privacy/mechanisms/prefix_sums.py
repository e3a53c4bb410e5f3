"""Matrix mechanisms for prefix sums, published at every step (docs/privacy.md)."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from torchonline.core.checks import one_of, positive, positive_integer, sizes
from torchonline.core.stepping import one_at_a_time
from torchonline.privacy.accounting import Event
from torchonline.privacy.calibration import gaussian_mu
from torchonline.privacy.learners.base import PrivateLearner
from torchonline.privacy.mechanisms.base import Mechanism, NoNoise
from torchonline.privacy.mechanisms.discrete import DiscreteTree
from torchonline.privacy.mechanisms.toeplitz import BLT, SquareRoot
from torchonline.privacy.mechanisms.trees import HonakerTree, Tree

MECHANISMS: dict[str, type[Mechanism]] = {cls.name: cls for cls in (BLT, Tree, HonakerTree, SquareRoot)}


def calibrated(name: str, learner: PrivateLearner, sensitivity: float, radius: float | None = None) -> Mechanism:
    """Return the mechanism with the least noise for a learner's promise.

    ``name`` is a key of :data:`MECHANISMS`, and ``sensitivity`` is that of :func:`prefix_sum`. ``radius``, for a discrete
    source, is the length of the longest summand: the sensitivity or half of it, None for the sensitivity.
    """
    cls = MECHANISMS[one_of("mechanism", name, tuple(MECHANISMS))]
    horizon, source = learner.horizon, learner.source
    if learner.epsilon == math.inf:
        return NoNoise(horizon)
    if source.name == "discrete":
        if cls is not Tree:
            raise ValueError(f"noise_source: expected another than 'discrete' without the tree, got mechanism={name!r}")
        return DiscreteTree(horizon, sensitivity=sensitivity, radius=radius or sensitivity, **learner._promise())
    scale = sensitivity * cls(horizon, sensitivity=1.0, noise_scale=1.0, source=source).column_norm(horizon)
    scale /= gaussian_mu(learner.epsilon, learner.delta)
    return cls(horizon, sensitivity=sensitivity, noise_scale=scale, source=source)


class PrefixSum(PrivateLearner):
    """Noise for one prefix after another of a sum that is kept elsewhere.

    The arguments are those of :func:`prefix_sum`. All of ``state_dict()`` is secret, but for the counts.
    """

    secret_noise: Tensor
    statistics_depend_on = ("sensitivity",)

    def __init__(
        self, mechanism: str, horizon: int, shape: tuple[int, ...], *, sensitivity: float, **options: Any
    ) -> None:
        shape = sizes("shape", shape)
        super().__init__(shape[-1] if shape else 1, horizon=horizon, batch_shape=shape[:-1], **options)
        self.shape = shape
        self.sensitivity = positive("sensitivity", sensitivity)
        self.mechanism = calibrated(mechanism, self, self.sensitivity)
        self._create_buffers()

    def _initial_state(self) -> dict[str, Tensor | None]:
        state = self.mechanism.initial_state(self.dim)
        return {"secret_noise": state.pop("noisy_sum"), **state}

    @one_at_a_time
    def next(self) -> Tensor:
        """Return the noise of the next prefix, of ``shape``, float64.

        After ``horizon`` calls it raises a RuntimeError.
        """
        step = self._next_step()
        with torch.no_grad():
            self._take(step, self._add_noise, step)
            return self.mechanism.value(self.secret_noise).reshape(self.shape).clone()

    def _add_noise(self, step: int) -> None:
        noise = self.secret_noise
        noise += self.mechanism.change(self._buffers, torch.zeros_like(noise), step)

    def forward(self) -> Tensor:
        """Raise a TypeError, because this is noise and no decision."""
        raise TypeError("prefix_sum: expected a learner that decides, got noise, which next() draws")

    def released(self) -> nn.Module:
        """Raise a TypeError, because all of the noise is secret."""
        raise TypeError("prefix_sum: expected a learner that has released something, got noise, all of which is secret")

    def materialize(self, n: int) -> tuple[Tensor, Tensor]:
        """Return the factors B and C for n steps as dense matrices, for tests."""
        return self.mechanism.materialize(positive_integer("n", n))

    def rms(self, n: int) -> float:
        """Return the root mean square, over n steps, of a coordinate's noise."""
        return self.mechanism.noise_scale * self.mechanism.errors(positive_integer("n", n))[0]

    def largest(self, n: int) -> float:
        """Return the largest standard deviation, over n steps, of a coordinate's noise."""
        return self.mechanism.noise_scale * self.mechanism.errors(positive_integer("n", n))[1]

    def _event(self, steps: int) -> Event:
        return self.mechanism.event(steps)

    def _parameters_of_noise(self) -> list[tuple[str, float]]:
        return self.mechanism.parameters()


def prefix_sum(
    mechanism: str,
    horizon: int,
    shape: tuple[int, ...],
    *,
    sensitivity: float,
    epsilon: float,
    delta: float,
    noise_source: str = "torch",
    seed: int | None = None,
    adjacency: str = "replace_one",
) -> PrefixSum:
    r"""Return noise for all prefixes of a sum, one after another.

    It makes the sequence of all prefixes (epsilon, delta)-differentially private. The caller keeps the sum, adds each record's
    summand once, in its own step, and releases ``sum + noise.next()``. The caller must enforce that one record moves its
    summand by at most ``sensitivity``, with :func:`~torchonline.privacy.clipping.clipped`. Under replace-one the sensitivity is
    twice the bound of the clipping. Memory and noise: docs/privacy.md.

    Args:
        mechanism: ``"blt"``, ``"sqrt"``, ``"honaker"`` or ``"tree"``.
        horizon: n, the number of steps.
        shape: of a summand, ``(*B, d)`` or ``()``. ``*B`` is that of a fleet: sums over other people each,
            and each sum has the sensitivity.
        sensitivity: s_2, in the Euclidean norm.
        epsilon: of all steps; ``inf`` for no noise.
        delta: of all steps, in (0, 1).
        noise_source: ``"torch"`` or ``"csprng"``; or ``"discrete"``, for the tree and for summands that are multiples of
            ``mechanism.grid``, rounded before their sensitivity is measured.
        seed: for tests. Whoever knows it can remove the noise.
        adjacency: the relation under which ``sensitivity`` was measured, for the ledger.

    Example:
        >>> noise = prefix_sum("blt", 1000, (5,), sensitivity=1.0, epsilon=1.0, delta=1e-3)
        >>> released = torch.full((5,), 0.2) + noise.next()
        >>> round(noise.rms(1000), 2), noise.privacy_spent(1e-3) < 1.0
        (7.87, True)
    """
    promise: dict[str, Any] = {"sensitivity": sensitivity, "epsilon": epsilon, "delta": delta, "adjacency": adjacency}
    return PrefixSum(mechanism, horizon, shape, noise_source=noise_source, seed=seed, **promise)
