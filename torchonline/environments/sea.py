"""Convex losses between stochastic and adversarial: their noise and their drift are set apart, and the best point is known."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torchonline.core.checks import (
    check_state_dtype,
    non_negative,
    one_of,
    positive,
    positive_integer,
    seed_number,
    shape_text,
    sizes,
)
from torchonline.core.inputs import check_tensor


class Profile(NamedTuple):
    """A convex function of the distance to the comparator: what all losses of a stream have in common.

    Attributes:
        value: at a distance r, 0 at 0.
        slope: its derivative, which rises.
        smoothness: a Lipschitz constant of the gradient in d dimensions.
        tilt: the length of a constant gradient, besides.
    """

    value: Callable[[Tensor], Tensor]
    slope: Callable[[Tensor], Tensor]
    smoothness: float
    tilt: float = 0.0


def _huber(r: Tensor) -> Tensor:
    near = r.clamp(max=1.0)
    return near * (r - 0.5 * near)


def _logistic(r: Tensor) -> Tensor:
    """``log(1 + exp(r)) + log(1 + exp(-r)) - 2 log 2``, without cancellation where r is small."""
    return r + 2.0 * torch.log1p(0.5 * torch.expm1(-r))


LOSSES = {
    "linear": Profile(torch.zeros_like, torch.zeros_like, smoothness=0.0, tilt=1.0),
    "quadratic": Profile(lambda r: 0.5 * r * r, lambda r: r, smoothness=1.0),
    "huber": Profile(_huber, lambda r: r.clamp(max=1.0), smoothness=1.0),
    "logistic": Profile(_logistic, lambda r: torch.tanh(0.5 * r), smoothness=0.5),
}


class SEAStream:
    r"""Streams of the stochastically extended adversarial (SEA) model, of which all that a regret bound speaks of is known.

    A round::

        gradients = stream.gradients(learner.queries())
        regret = stream.regret(learner.predict())
        learner.step(gradients)
        stream.advance()

    In each round an adversary chooses an expected loss :math:`F_t`, and the loss is drawn around it:

    .. math:: F_t(x) = h(x) + \langle a_t, x\rangle,\qquad f_t(x) = F_t(x) + \langle\xi_t, x\rangle .

    The noise :math:`\xi_t` is uniform on a sphere and the adversary walks round a regular polygon that has 0 in its centre. So
    the two quantities of the model are set independently of each other, and are exact in every round, at every point x:

    .. math:: \sigma_t^2 = E\sup_x\|\nabla f_t(x) - \nabla F_t(x)\|^2 = \text{sigma}^2,\qquad
              \Sigma_t = \sup_x\|\nabla F_t(x) - \nabla F_{t-1}(x)\| = \text{drift} .

    :math:`F_0` is where the walk comes from, so this holds for t = 1, too. With the comparator u, of length U and a direction
    that is drawn for each trial, and the distance :math:`r = \|x - u\|`, the losses are

    =============  ====================================================================  ===================
    loss           h(x) / scale                                                          its gradient
    =============  ====================================================================  ===================
    ``linear``     :math:`-\langle u, x\rangle/U`                                        of length 1
    ``quadratic``  :math:`r^2/2`                                                         of length r
    ``huber``      :math:`r^2/2`, and :math:`r - 1/2` from r = 1 on                      at most 1
    ``logistic``   :math:`\log(1 + e^r) + \log(1 + e^{-r}) - 2\log 2`: of either label   at most 1
    =============  ====================================================================  ===================

    After every whole cycle of the adversary, u minimises the sum of the expected losses so far: over all of space, and linear
    losses over the ball of radius U. In between, no x there is better than u by more than
    :math:`\text{drift}\,\|x-u\|/(2\sin^2(\pi/\text{period}))`.

    Draws come from a generator of the stream's own, and none depends on what is played: learners that play streams of one seed
    meet the same losses. Another ``sigma`` leaves comparator and adversary as they are, another ``drift`` comparator and noise.

    Cost of a round: O(d) for each point.

    Args:
        dim: number of coordinates d.
        loss: ``"linear"``, ``"quadratic"``, ``"huber"`` or ``"logistic"``.
        sigma: the length of the noise, at least 0: a number, or a tensor that broadcasts to ``batch_shape``.
        drift: the length of the adversary's steps, likewise.
        comparator_norm: U, above 0, likewise.
        scale: of h, above 0. The smaller it is against ``sigma``, the harder is u to find: among linear losses the hardest of T
            rounds are those at about ``sigma`` / sqrt(T).
        period: rounds of a cycle, the corners of the polygon. At 2 the adversary goes to and fro, in one dimension it cannot do
            otherwise; a longer period takes it as far as ``drift`` / (2 sin(pi / ``period``)) from the centre.
        batch_shape: ``*B``, independent trials, to be played by a learner of the same ``batch_shape``.
        seed: of all draws.
        dtype: of all that is returned.

    Attributes:
        comparator: u, ``(*B, d)``. A learner must not see it.
        shift: :math:`a_t` of this round, ``(*B, d)``, a corner of the polygon.
        noise: :math:`\xi_t` of this round, ``(*B, d)``.
        lipschitz: a bound on the length of every gradient of every :math:`f_t`, in all trials; infinite for quadratic losses,
            see :meth:`lipschitz_on`.
        smoothness: a Lipschitz constant of every gradient.
        rounds: how many have ended.

    Shape:
        - points: ``(*B, ..., d)``, any number of them; values and regret: ``(*B, ...)``; gradients: ``(*B, ..., d)``.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: an argument is out of range or of another shape.

    Example:
        >>> from torchonline.environments import SEAStream
        >>> from torchonline.metrics import CumulativeRegret
        >>> stream = SEAStream(2, loss="huber", sigma=0.5, drift=0.1, batch_shape=(3,))
        >>> learner = DPTOFW(2, horizon=1000, epsilon=torch.inf, delta=0.1, clip=torch.inf, radius_bound=3.0, batch_shape=(3,))
        >>> regret = CumulativeRegret((3,))
        >>> for _ in range(1000):
        ...     regret.update(stream.regret(learner.predict()))
        ...     learner.step(stream.gradients(learner.queries()))
        ...     stream.advance()
        >>> bool((regret.compute() < 10.0).all())  # 500 without learning
        True
        >>> f"{stream.lipschitz:.2f}"  # scale + drift / 2 + sigma
        '1.55'

    Reference:
        The model: Sachs, Hadiji, van Erven and Guzman, Between stochastic and adversarial online convex optimization: improved
        regret bounds via smoothness, NeurIPS 2022. The streams are our own. Papers that set :math:`F_0 = 0`, or sum
        :math:`\Sigma_t^2` from t = 2 on, differ in the term of the first round.
    """

    def __init__(
        self,
        dim: int,
        *,
        loss: str = "linear",
        sigma: float | Tensor = 1.0,
        drift: float | Tensor = 0.0,
        comparator_norm: float | Tensor = 1.0,
        scale: float = 1.0,
        period: int = 2,
        batch_shape: tuple[int, ...] = (),
        seed: int = 0,
        dtype: torch.dtype = torch.float64,
    ) -> None:
        self.dim = positive_integer("dim", dim)
        self.loss = one_of("loss", loss, tuple(LOSSES))
        self.batch_shape = sizes("batch_shape", batch_shape)
        self.sigma = self._in_each("sigma", sigma, non_negative)
        self.drift = self._in_each("drift", drift, non_negative)
        self.comparator_norm = self._in_each("comparator_norm", comparator_norm, positive)
        self.scale = positive("scale", scale)
        self.period = positive_integer("period", period)
        if self.period < 2 or (self.period > 2 and self.dim == 1):
            raise ValueError(
                f"period: expected {'2, in one dimension' if self.dim == 1 else 'at least 2'}, got {period}"
            )
        check_state_dtype(dtype)
        self.dtype = dtype
        self._profile = LOSSES[self.loss]
        self._reach = self.drift / (2.0 * math.sin(math.pi / self.period))  # of the polygon, from its centre
        self._generator = torch.Generator().manual_seed(seed_number(seed))
        towards = self._directions()
        self._tilt = (-self.scale * self._profile.tilt * towards).to(dtype)
        self._plane = self._orthonormal_pair()
        self.comparator = (self.comparator_norm.unsqueeze(-1) * towards).to(dtype)
        self.lipschitz = self._largest_gradient(math.inf)
        self.smoothness = self.scale * self._profile.smoothness
        self.rounds = 0
        self._begin_round()

    def advance(self) -> None:
        """End the round: the adversary takes a step, and the next loss is drawn."""
        self.rounds += 1
        self._begin_round()

    def values(self, points: Tensor) -> Tensor:
        """Of this round's loss :math:`f_t`: ``(*B, ..., d)`` to ``(*B, ...)``."""
        return self._value(points, self.shift + self.noise)

    def gradients(self, points: Tensor) -> Tensor:
        """Of this round's loss :math:`f_t`: ``(*B, ..., d)`` to the same shape."""
        return self._gradient(points, self.shift + self.noise)

    def expected_values(self, points: Tensor) -> Tensor:
        """Of this round's expected loss :math:`F_t`."""
        return self._value(points, self.shift)

    def expected_gradients(self, points: Tensor, lag: int = 0) -> Tensor:
        """Of the expected loss of this round, :math:`F_t`, or with ``lag=1`` of the round before, :math:`F_{t-1}`."""
        if lag not in (0, 1):
            raise ValueError(f"lag: expected 0 or 1, got {lag!r}")
        return self._gradient(points, self._shift_of(self.rounds - lag))

    def regret(self, decision: Tensor) -> Tensor:
        """This round's :math:`f_t(x) - f_t(u)`, ``(*B)``, for a decision x, ``(*B, d)``; or for several."""
        return self._regret(decision, self.shift + self.noise)

    def expected_regret(self, decision: Tensor) -> Tensor:
        """The same of the expected loss, :math:`F_t(x) - F_t(u)`."""
        return self._regret(decision, self.shift)

    def lipschitz_on(self, radius: float) -> float:
        """A bound on the length of every gradient in the ball of that radius around 0, in all trials."""
        return self._largest_gradient(non_negative("radius", radius))

    def _largest_gradient(self, radius: float) -> float:
        slope = self._profile.slope(radius + self.comparator_norm)
        return float((self.scale * (self._profile.tilt + slope) + self._reach + self.sigma).max())

    def _begin_round(self) -> None:
        self.shift = self._shift_of(self.rounds)
        self.noise = (self.sigma.unsqueeze(-1) * self._directions()).to(self.dtype)

    def _shift_of(self, number: int) -> Tensor:
        """The corner where the adversary is after that many rounds."""
        angle = 2.0 * math.pi * (number % self.period) / self.period
        corner = math.cos(angle) * self._plane[0] + math.sin(angle) * self._plane[1]
        return (self._reach.unsqueeze(-1) * corner).to(self.dtype)

    def _value(self, points: Tensor, linear: Tensor) -> Tensor:
        points, comparator, linear = self._along("points", points, linear)
        distance = torch.linalg.vector_norm(points - comparator, dim=-1)
        return self.scale * self._profile.value(distance) + (linear * points).sum(-1)

    def _gradient(self, points: Tensor, linear: Tensor) -> Tensor:
        points, comparator, linear = self._along("points", points, linear)
        offset = points - comparator
        distance = torch.linalg.vector_norm(offset, dim=-1, keepdim=True)
        outwards = offset / distance.clamp(min=torch.finfo(self.dtype).tiny)
        return self.scale * self._profile.slope(distance) * outwards + linear

    def _regret(self, decision: Tensor, linear: Tensor) -> Tensor:
        decision, comparator, linear = self._along("decision", decision, linear)
        offset = decision - comparator
        return self.scale * self._profile.value(torch.linalg.vector_norm(offset, dim=-1)) + (linear * offset).sum(-1)

    def _along(self, name: str, points: Tensor, linear: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The points, in the type of the stream; and comparators and linear parts, that of h added, with axes for the points."""
        points = check_tensor(name, points, self.comparator)
        dims = len(self.batch_shape)
        if points.dim() <= dims or points.shape[:dims] != self.batch_shape or points.shape[-1] != self.dim:
            wanted = shape_text((*self.batch_shape, "...", self.dim))
            raise ValueError(f"{name}: expected shape {wanted}, got {shape_text(points.shape)}")
        shape = (*self.batch_shape, *[1] * (points.dim() - dims - 1), self.dim)
        return points, self.comparator.reshape(shape), (self._tilt + linear).reshape(shape)

    def _in_each(self, name: str, value: Any, check: Callable[[str, Any], float]) -> Tensor:
        """An option as a number for each trial, ``(*B)``, float64."""
        if not isinstance(value, Tensor):
            return torch.full(self.batch_shape, check(name, value), dtype=torch.float64)
        for number in value.flatten().tolist():
            check(name, number)
        try:
            return value.detach().to("cpu", torch.float64).expand(self.batch_shape).clone()
        except RuntimeError:
            raise ValueError(
                f"{name}: expected a shape that broadcasts to {shape_text(self.batch_shape)}, got {shape_text(value.shape)}"
            ) from None

    def _directions(self) -> Tensor:
        """Uniform draws from the unit sphere, ``(*B, d)``, float64."""
        normal = torch.randn((*self.batch_shape, self.dim), generator=self._generator, dtype=torch.float64)
        return torch.nn.functional.normalize(normal, dim=-1)

    def _orthonormal_pair(self) -> tuple[Tensor, Tensor]:
        """Two orthonormal vectors that span the plane of the polygon; in one dimension the second is 0."""
        first, second = self._directions(), self._directions()
        if self.dim == 1:
            return first, torch.zeros_like(second)
        for _ in range(2):  # once more, for the digits that are lost where the two are almost parallel
            second = second - (first * second).sum(-1, keepdim=True) * first
            second = torch.nn.functional.normalize(second, dim=-1)
        return first, second
