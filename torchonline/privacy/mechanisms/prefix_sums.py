"""Matrix mechanisms for prefix sums, published at every step.

Proofs: docs/privacy_proofs.md.
"""

import math
from typing import Any

import torch
from torch import Tensor

from torchonline.core.all_or_nothing import one_at_a_time
from torchonline.core.checks import check_shape, one_of, positive_integer, sizes
from torchonline.core.inputs import ArrayLike
from torchonline.privacy.calibration import gaussian_mu
from torchonline.privacy.clipping import MARGIN, clipped
from torchonline.privacy.learners.base import PrivateLearner
from torchonline.privacy.learners.released import Released
from torchonline.privacy.mechanisms.base import Mechanism, NoNoise
from torchonline.privacy.mechanisms.discrete import DiscreteTree
from torchonline.privacy.mechanisms.endless import EndlessBLT
from torchonline.privacy.mechanisms.toeplitz import BLT, SquareRoot
from torchonline.privacy.mechanisms.trees import HonakerTree, Tree
from torchonline.privacy.records import record_values

MOST_PARTICIPATIONS = 10**6  # without a horizon
MECHANISMS: dict[str, type[Mechanism]] = {cls.name: cls for cls in (BLT, Tree, HonakerTree, SquareRoot)}


def calibrated(name: str, learner: PrivateLearner, sensitivity: float, longest: float) -> Mechanism:
    """Return the mechanism with the least noise for a learner's promise.

    ``name`` is a key of ``MECHANISMS``. For ``sensitivity`` and ``longest`` see
    :class:`~torchonline.privacy.mechanisms.base.Mechanism`.
    """
    cls = MECHANISMS[one_of("mechanism", name, tuple(MECHANISMS))]
    horizon = learner.horizon
    if learner.epsilon == math.inf:
        return NoNoise(horizon)
    if name != BLT.name:
        learner._refuse_endless(f"mechanism={name!r}")
    told: dict[str, Any] = {"sensitivity": sensitivity, "longest": longest}
    if learner.source.name == "discrete":
        if cls is not Tree:
            raise ValueError(f"noise_source: expected 'discrete' only with mechanism='tree', got mechanism={name!r}")
        # The sum is rounded as a whole, so it may move by more than the length of one contribution.
        if learner.records_a_step > 1:
            raise ValueError(f"records_a_step: expected 1 with noise_source='discrete', got {learner.records_a_step}")
        learner._refuse_several("noise_source='discrete'")
        return DiscreteTree(horizon, **told, **learner._promise())
    told |= {
        "participations": learner.participations,
        "min_separation": learner.min_separation,
        "source": learner.source,
    }
    if learner._is_endless:
        if learner.participations > MOST_PARTICIPATIONS:
            raise ValueError(
                f"participations: expected at most {MOST_PARTICIPATIONS} without a horizon, got {learner.participations}"
            )
        cls, told["dim"] = EndlessBLT, learner.dim
    scale = cls(horizon, **told, noise_scale=1.0).scale_for(gaussian_mu(learner.epsilon, learner.delta))
    if scale == math.inf:
        raise ValueError(
            f"epsilon: expected a larger number without a horizon, where rounding {learner.dim} coordinates spends more, "
            f"got {learner.epsilon:g}"
        )
    return cls(horizon, **told, noise_scale=scale)


class PrefixSum(PrivateLearner):
    """Prefix sums of a stream, each published with noise.

    Args:
        mechanism, horizon, shape, clip, options: as in :func:`prefix_sum`, which makes these.
    """

    noisy_sum: Tensor
    statistics_depend_on = ("clip",)

    def __init__(
        self, mechanism: str, horizon: int | None, shape: tuple[int, ...], *, clip: float, **options: Any
    ) -> None:
        shape = sizes("shape", shape)
        super().__init__(shape[-1] if shape else 1, horizon=horizon, batch_shape=shape[:-1], **options)
        self.shape = shape
        self.clip = self._clip_bound("clip", clip)
        longest = self.clip * (1.0 + MARGIN)
        self.noise = calibrated(mechanism, self, self._records_moved() * longest, longest)
        self._create_buffers()

    def _initial_state(self) -> dict[str, Tensor | None]:
        return dict(self.noise.initial_state(self.dim))

    @one_at_a_time
    def step(self, summand: ArrayLike | None) -> None:
        """Add a record's summand, of ``shape``, or nothing for None, and publish the sum.

        NaN, infinite and long summands are clipped, not refused. A step after the last raises a RuntimeError.
        """
        step = self._next_step()
        # In every step, so that a missing record takes as long as any other.
        none = self.constants.new_zeros(self.shape)
        rows = record_values("summand", none if summand is None else summand, self.constants)
        check_shape("summand", rows, self.shape)
        with torch.no_grad():
            rows = rows.reshape(*self.batch_shape, self.dim)
            self._take(step, self.noise.add, self._buffers, clipped(rows, self.clip), step)

    @one_at_a_time
    def predict(self) -> Tensor:
        """Return the noisy sum so far, of ``shape``, float64. It is public."""
        self._refuse_tracing()
        return self.noise.value(self.noisy_sum).reshape(self.shape).clone()

    forward = predict

    @one_at_a_time
    def released(self) -> Released:
        """Return a module with the noisy sum only, for export."""
        return Released(self.noise.value(self.noisy_sum).reshape(self.shape))

    def materialize(self, n: int) -> tuple[Tensor, Tensor]:
        """Return the factors B and C for n steps as dense matrices, for tests."""
        return self.noise.materialize(positive_integer("n", n))

    def rms(self, n: int) -> float:
        """Return the root mean square, over n steps, of a coordinate's noise."""
        return self.noise.noise_scale * self.noise.errors(positive_integer("n", n))[0]

    def largest(self, n: int) -> float:
        """Return the largest standard deviation, over n steps, of a coordinate's noise."""
        return self.noise.noise_scale * self.noise.errors(positive_integer("n", n))[1]

    def _parameters_of_noise(self) -> list[tuple[str, float]]:
        return self.noise.parameters()


def prefix_sum(
    mechanism: str,
    horizon: int | None,
    shape: tuple[int, ...],
    *,
    clip: float,
    epsilon: float,
    delta: float,
    noise_source: str = "torch",
    seed: int | None = None,
    adjacency: str = "replace_one",
    participations: int = 1,
    min_separation: int = 1,
) -> PrefixSum:
    r"""Return a learner that publishes all prefix sums of a stream with noise.

    The sequence of all sums is (epsilon, delta)-differentially private, under the conditions of
    :class:`~torchonline.privacy.learners.base.PrivateLearner`. Each record's summand is clipped and added in its own step. Sums
    that leave the learner in any other way are not private. Memory and noise: docs/privacy.md.

    Args:
        mechanism: ``"blt"``, ``"sqrt"``, ``"honaker"`` or ``"tree"``.
        horizon: n, the number of steps; None for no end, with ``"blt"``.
        shape: of a summand, ``(*B, d)`` or ``()``. ``*B`` is a batch of sums over different people, each clipped separately.
        clip: the Euclidean norm that summands are clipped to; ``inf`` only if epsilon is.
        epsilon: of all steps; ``inf`` for no noise.
        delta: of all steps, in (0, 1).
        noise_source: ``"torch"`` or ``"csprng"``; or ``"discrete"``, in integers, for the tree.
        seed: for tests. Anybody who knows the seed can remove the noise.
        participations: k, the most steps that a person takes part in.
        min_separation: b, the least distance between any two of these steps.
        adjacency: ``"replace_one"``, or ``"zero_out"`` for half the noise. Never compare epsilons of the two.

    Example:
        >>> sums = prefix_sum("blt", 1000, (5,), clip=0.5, epsilon=1.0, delta=1e-4)
        >>> sums.step(torch.full((5,), 0.2))
        >>> published = sums.predict()
        >>> round(sums.rms(1000), 2), sums.privacy_spent(1e-4) < 1.0
        (9.51, True)
    """
    promise: dict[str, Any] = {"clip": clip, "epsilon": epsilon, "delta": delta, "adjacency": adjacency}
    promise |= {"participations": participations, "min_separation": min_separation}
    return PrefixSum(mechanism, horizon, shape, noise_source=noise_source, seed=seed, **promise)
