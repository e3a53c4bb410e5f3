"""Convex losses between stochastic and adversarial, with a known best point."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torchonline.core import checks
from torchonline.core.inputs import check_tensor
from torchonline.core.options import described
from torchonline.environments.simulated import unit_vectors


class Profile(NamedTuple):
    """Common part h of a stream's losses: convex in the distance r to the comparator."""

    value: Callable[[Tensor], Tensor]  # 0 at r = 0
    slope: Callable[[Tensor], Tensor]  # derivative of `value`, nondecreasing
    smoothness: float  # Lipschitz constant of the gradient in d dimensions
    tilt: float = 0.0  # length of an additional constant gradient


LOSSES = {
    "linear": Profile(torch.zeros_like, torch.zeros_like, smoothness=0.0, tilt=1.0),
    "quadratic": Profile(lambda r: 0.5 * r * r, lambda r: r, smoothness=1.0),
    "huber": Profile(
        lambda r: r.clamp(max=1.0) * (r - 0.5 * r.clamp(max=1.0)), lambda r: r.clamp(max=1.0), smoothness=1.0
    ),
    # log(1 + e^r) + log(1 + e^-r) - 2 log 2 without cancellation
    "logistic": Profile(lambda r: r + 2.0 * (0.5 * (-r).expm1()).log1p(), lambda r: (0.5 * r).tanh(), smoothness=0.5),
}


class SEAStream:
    r"""Stochastically extended adversarial (SEA) stream with exact noise and drift.

    In each round an adversary chooses an expected loss :math:`F_t`. The loss of the round is :math:`F_t` plus linear noise:

    .. math:: F_t(x) = h(x) + \langle a_t, x\rangle,\qquad f_t(x) = F_t(x) + \langle\xi_t, x\rangle .

    The noise :math:`\xi_t` is uniform on a sphere. The adversary walks round a regular polygon centred at 0. Hence the two
    quantities of the model are options, exact in every round, including the first, and at every point x (for ``cells`` = 1):

    .. math:: \sigma_t^2 = E\sup_x\|\nabla f_t(x) - \nabla F_t(x)\|^2 = \text{sigma}^2,\qquad
              \Sigma_t = \sup_x\|\nabla F_t(x) - \nabla F_{t-1}(x)\| = \text{drift} .

    The comparator u has length U and a random direction in each trial. With :math:`r = \|x - u\|` the losses are

    =============  ====================================================================  ===================
    loss           h(x) / scale                                                          length of gradient
    =============  ====================================================================  ===================
    ``linear``     :math:`-\langle u, x\rangle/U`                                        1
    ``quadratic``  :math:`r^2/2`                                                         r
    ``huber``      :math:`r^2/2` up to r = 1, then :math:`r - 1/2`                       at most 1
    ``logistic``   :math:`\log(1 + e^r) + \log(1 + e^{-r}) - 2\log 2` (both labels)      at most 1
    =============  ====================================================================  ===================

    *Noise that depends on the point* (``cells`` = n > 1). In each round a direction :math:`\nu_t` is drawn. Across it, the space
    is divided into n parallel cells; the two end cells are unbounded. Each cell is noisy with probability 1/n, independently. In
    a noisy cell the gradient of the noise is :math:`\pm\text{sigma}\sqrt n\,\nu_t`, elsewhere 0. Hence ``sigma``^2 is
    :math:`\sigma_t^2 = \sup_xE\|\cdot\|^2`, attained at every x, but
    :math:`\tilde\sigma_t^2 = E\sup_x\|\cdot\|^2 = n(1 - (1 - 1/n)^n)\sigma_t^2` is larger, and the mean length
    :math:`\sup_xE\|\cdot\|` is ``sigma`` / sqrt(n). These losses :math:`f_t` are not convex; their expectations are.

    After every whole cycle of the adversary, u minimises the sum of the expected losses so far: for linear losses over the
    ball of radius U, for the others over the whole space. Between whole cycles, no x in that set is better than u by more
    than :math:`\text{drift}\,\|x-u\|/(2\sin^2(\pi/\text{period}))`. No draw depends on the decisions, on ``sigma`` or on
    ``drift``: two learners on streams with the same seed get the same losses. Cost of a round: O(d) for each point.

    Args:
        dim: number of coordinates d.
        loss: ``"linear"``, ``"quadratic"``, ``"huber"`` or ``"logistic"``.
        sigma: length of the noise, at least 0: a number, or a tensor that broadcasts to ``batch_shape``.
        drift: length of the adversary's steps, at least 0: a number or a tensor, as for ``sigma``.
        comparator_norm: U, above 0: a number or a tensor, as for ``sigma``.
        scale: factor of h, above 0. Over T rounds of linear losses u is hardest to find at a scale of about ``sigma`` / sqrt(T).
        period: rounds of a cycle, which is the number of corners of the polygon, at a distance of ``drift`` /
            (2 sin(pi / ``period``)) from 0. With 2, the only choice in one dimension, the adversary alternates between two
            points.
        cells: n, the number of cells of noise that depends on the point, within a distance of 2U of 0; 1 for the same noise
            everywhere.
        batch_shape, seed, dtype: as for :class:`~torchonline.environments.simulated.SimulatedBandit`.

    Attributes:
        comparator: u, ``(*B, d)``. A learner must not see it.
        shift: :math:`a_t` of this round, ``(*B, d)``, a corner of the polygon.
        noise: :math:`\xi_t` of this round, ``(*B, d)``; with several cells, the gradient of the noise at 0.
        lipschitz: bound on the length of every gradient in all trials; infinite for quadratic losses (:meth:`lipschitz_on`).
        smoothness: Lipschitz constant of every expected gradient, and with one cell of every gradient.
        rounds: number of rounds that have ended.

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
        regret bounds via smoothness, NeurIPS 2022. The streams are our own. :math:`F_0` is the corner of the polygon before the
        first one; papers that set :math:`F_0 = 0`, or that sum :math:`\Sigma_t^2` from t = 2 on, differ in the first round. The
        cells are from Proposition A.1 of the paper of :class:`~torchonline.OONS`, on a line that rotates.
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
        cells: int = 1,
        batch_shape: tuple[int, ...] = (),
        seed: int = 0,
        dtype: torch.dtype = torch.float64,
    ) -> None:
        self.dim = checks.positive_integer("dim", dim)
        self.loss = checks.one_of("loss", loss, tuple(LOSSES))
        self.batch_shape = checks.sizes("batch_shape", batch_shape)
        self.sigma = self._in_each("sigma", sigma, checks.non_negative)
        self.drift = self._in_each("drift", drift, checks.non_negative)
        self.comparator_norm = self._in_each("comparator_norm", comparator_norm, checks.positive)
        self.scale, self.period = checks.positive("scale", scale), checks.positive_integer("period", period)
        self.cells = checks.positive_integer("cells", cells)
        if self.period < 2 or (self.period > 2 and self.dim == 1):
            wanted = "2, in one dimension" if self.dim == 1 else "at least 2"
            raise ValueError(f"period: expected {wanted}, got {period}")
        checks.check_state_dtype(dtype)
        self.dtype = dtype
        self._profile = LOSSES[self.loss]
        self._reach = self.drift / (2.0 * math.sin(math.pi / self.period))  # distance of the polygon's corners from 0
        self.seed = checks.seed_number(seed)
        self._generator = torch.Generator().manual_seed(self.seed)
        towards = self._directions()
        self._tilt = (-self.scale * self._profile.tilt * towards).to(dtype)
        self._plane = self._orthonormal_pair()
        self.comparator = (self.comparator_norm.unsqueeze(-1) * towards).to(dtype)
        self.lipschitz = self._largest_gradient(math.inf)
        self.smoothness = self.scale * self._profile.smoothness
        self.rounds = 0
        self._prepare()
        self._begin_round()

    def __repr__(self) -> str:
        values = dict(vars(self))
        for name in ("sigma", "drift", "comparator_norm"):
            first = values[name].flatten()[0]
            if bool((values[name] == first).all()):
                values[name] = first.item()
        return f"{type(self).__name__}({described(self, values)})"

    def advance(self) -> None:
        """End the round: move the adversary one step and draw the next loss."""
        self.rounds += 1
        self._begin_round()

    def values(self, points: Tensor) -> Tensor:
        """Return this round's losses :math:`f_t(x)`: ``(*B, ..., d)`` to ``(*B, ...)``."""
        if self.cells > 1:
            return self._value(points, self.shift) + self._cell_values(points)
        return self._value(points, self.shift + self.noise)

    def gradients(self, points: Tensor) -> Tensor:
        """Return the gradients of :math:`f_t`: ``(*B, ..., d)`` to the same shape."""
        if self.cells > 1:
            return self._gradient(points, self.shift) + self._cell_gradients(points)
        return self._gradient(points, self.shift + self.noise)

    def expected_values(self, points: Tensor) -> Tensor:
        """Return the expected losses :math:`F_t(x)`: ``(*B, ..., d)`` to ``(*B, ...)``."""
        return self._value(points, self.shift)

    def expected_gradients(self, points: Tensor, lag: int = 0) -> Tensor:
        """Return the gradients of :math:`F_t`, or of :math:`F_{t-1}` with ``lag=1``."""
        if lag not in (0, 1):
            raise ValueError(f"lag: expected 0 or 1, got {lag!r}")
        return self._gradient(points, self._shift_of(self.rounds - lag))

    def regret(self, decision: Tensor) -> Tensor:
        """Return :math:`f_t(x) - f_t(u)`: ``(*B, ..., d)`` to ``(*B, ...)``."""
        if self.cells > 1:
            expected, noise = self.expected_regret(decision), self._cell_values(self.comparator)
            along = (*self.batch_shape, *[1] * (decision.dim() - len(self.batch_shape) - 1))
            return expected + self._cell_values(decision) - noise.reshape(along)
        return self._value(decision, self.shift + self.noise, is_regret=True)

    def expected_regret(self, decision: Tensor) -> Tensor:
        """Return :math:`F_t(x) - F_t(u)`: ``(*B, ..., d)`` to ``(*B, ...)``."""
        return self._value(decision, self.shift, is_regret=True)

    def lipschitz_on(self, radius: float) -> float:
        """Return a bound on all gradients' lengths in a ball around 0, for all trials."""
        return self._largest_gradient(checks.non_negative("radius", radius))

    def variance(self) -> Tensor:
        r"""Return :math:`\sigma_t^2` of this round, given the past, ``(*B)``."""
        return self.sigma.square()

    def largest_variance(self) -> Tensor:
        r"""Return the mean of the largest square, :math:`\tilde\sigma_t^2`, ``(*B)``."""
        return self.variance() * (self.cells * (1.0 - (1.0 - 1.0 / self.cells) ** self.cells))

    def deviation(self) -> Tensor:
        """Return the largest mean length of the noise at a point, ``(*B)``."""
        return self.sigma / math.sqrt(self.cells)

    def _largest_gradient(self, radius: float) -> float:
        slope = self._profile.slope(radius + self.comparator_norm)
        noise = math.sqrt(self.cells) * self.sigma
        return float((self.scale * (self._profile.tilt + slope) + self._reach + noise).max())

    def _prepare(self) -> None:
        """Draw the parts of the stream that all rounds share."""

    def _begin_round(self) -> None:
        self.shift = self._shift_of(self.rounds)
        direction = self._directions()
        if self.cells == 1:
            self.noise = (self.sigma.unsqueeze(-1) * direction).to(self.dtype)
            return
        # Slopes of the noise along the direction, by cell. The direction's own sign plays no role.
        shape = (*self.batch_shape, self.cells)
        draws = torch.rand((2, *shape), generator=self._generator, dtype=torch.float64)
        sizes = (math.sqrt(self.cells) * self.sigma).unsqueeze(-1) * (draws[0] * self.cells < 1.0)
        self._slopes, self._across = sizes * torch.where(draws[1] < 0.5, -1.0, 1.0), direction
        self.noise = self._cell_gradients(torch.zeros_like(self.comparator))

    def _cell_of(self, points: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return positions along the direction, cells, their slopes, and a cell's width."""
        along = (*self.batch_shape, *[1] * (points.dim() - len(self.batch_shape) - 1))
        width = (4.0 * self.comparator_norm / self.cells).reshape(along)
        left = (-2.0 * self.comparator_norm).reshape(along)
        place = (points.double() * self._across.reshape(*along, self.dim)).sum(-1) - left
        # A NaN point gets a cell, and its value is NaN.
        cell = (place / width).nan_to_num(0.0).floor().clamp(0, self.cells - 1).long()
        slopes = self._slopes.reshape(*along, self.cells).expand(*cell.shape, self.cells)
        return place, cell, slopes, width

    def _cell_gradients(self, points: Tensor) -> Tensor:
        """Return the gradients of the noise: ``(*B, ..., d)`` to the same shape."""
        _, cell, slopes, _ = self._cell_of(points)
        slope = slopes.gather(-1, cell.unsqueeze(-1))
        along = (*self.batch_shape, *[1] * (points.dim() - len(self.batch_shape) - 1), self.dim)
        return (slope * self._across.reshape(along)).to(self.dtype)

    def _cell_values(self, points: Tensor) -> Tensor:
        """Return the noise, which is 0 at 0: ``(*B, ..., d)`` to ``(*B, ...)``."""

        def climbed(where: Tensor) -> Tensor:
            place, cell, slopes, width = self._cell_of(where)
            before = torch.cat([torch.zeros_like(slopes[..., :1]), slopes.cumsum(-1)], -1) * width.unsqueeze(-1)
            slope, height = (each.gather(-1, cell.unsqueeze(-1)).squeeze(-1) for each in (slopes, before))
            return height + slope * (place - cell * width)

        return (climbed(points) - climbed(torch.zeros_like(points))).to(self.dtype)

    def _shift_of(self, number: int) -> Tensor:
        """Return the corner :math:`a_t` after ``number`` rounds."""
        angle = 2.0 * math.pi * (number % self.period) / self.period
        corner = math.cos(angle) * self._plane[0] + math.sin(angle) * self._plane[1]
        return (self._reach.unsqueeze(-1) * corner).to(self.dtype)

    def _value(self, points: Tensor, linear: Tensor, is_regret: bool = False) -> Tensor:
        """Return the loss with a linear part, minus the comparator's for the regret."""
        points, comparator, linear = self._along("decision" if is_regret else "points", points, linear)
        offset = points - comparator
        common = self.scale * self._profile.value(torch.linalg.vector_norm(offset, dim=-1))
        return common + (linear * (offset if is_regret else points)).sum(-1)

    def _gradient(self, points: Tensor, linear: Tensor) -> Tensor:
        points, comparator, linear = self._along("points", points, linear)
        offset = points - comparator
        distance = torch.linalg.vector_norm(offset, dim=-1, keepdim=True)
        outwards = offset / distance.clamp(min=torch.finfo(self.dtype).tiny)
        return self.scale * self._profile.slope(distance) * outwards + linear

    def _along(self, name: str, points: Tensor, linear: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return broadcastable points, comparators and linear parts, including that of h."""
        points = check_tensor(name, points, self.comparator)
        dims = len(self.batch_shape)
        if points.dim() <= dims or points.shape[:dims] != self.batch_shape or points.shape[-1] != self.dim:
            wanted = checks.shape_text((*self.batch_shape, "...", self.dim))
            raise ValueError(f"{name}: expected shape {wanted}, got {checks.shape_text(points.shape)}")
        shape = (*self.batch_shape, *[1] * (points.dim() - dims - 1), self.dim)
        return points, self.comparator.reshape(shape), (self._tilt + linear).reshape(shape)

    def _in_each(self, name: str, value: Any, check: Callable[[str, Any], float]) -> Tensor:
        """Return an option's values for all trials, ``(*B)``, float64."""
        number = value if isinstance(value, Tensor) else check(name, value)
        return checks.one_for_each(name, number, self.batch_shape, check, broadcasts=True)

    def _directions(self) -> Tensor:
        """Draw uniformly from the unit sphere, ``(*B, d)``, float64."""
        return unit_vectors((*self.batch_shape, self.dim), self._generator)

    def _orthonormal_pair(self) -> tuple[Tensor, Tensor]:
        """Draw an orthonormal basis of the polygon's plane; if d = 1, a vector and a 0."""
        first, second = self._directions(), self._directions()
        if self.dim == 1:
            return first, torch.zeros_like(second)
        for _ in range(2):  # twice, because almost parallel vectors lose digits in the first pass
            second = second - (first * second).sum(-1, keepdim=True) * first
            second = torch.nn.functional.normalize(second, dim=-1)
        return first, second
