"""Localized mirror descent (Asi, Feldman, Koren and Talwar, ICML 2021), on a stream, with noise for gradients of any kind."""

import math

import torch
from torch import Tensor

from torchonline.baselines.private.private_optimizer import DisjointBatches
from torchonline.core.checks import positive, positive_integer, within


class LocalMD(DisjointBatches):
    r"""Mirror descent in phases: each begins where the last one ended, with noise, and takes steps that are much shorter.

    A round is that of :class:`~torchonline.DPTOFW`, with a gradient at the one point of ``queries()``. That point moves within
    a phase with every record, and is *secret*: nothing that is computed from it (a loss, a regret, a plot) may be
    published. :meth:`predict` gives the centre c of the phase, which is public.

    Phase i has :math:`m = n/2^i` records, the last one what is left too. With :math:`q = p/(p-1)`, gradients clipped to C in the
    norm of order q, and :math:`h(u) = \|u\|_p^2/(2(p-1))`,

    .. math::
        \theta_t = c + \nabla h^*(-\eta_i(g_1 + ... + g_{t-1})),\qquad
        c \leftarrow \Pi\Big(\frac1m\sum_{t=1}^m\theta_t + N(0, (s_i/\mu)^2 I)\Big),\qquad \eta_i = 16^{-(i-1)}\,\eta .

    Gradients are taken at :math:`\Pi(\theta_t)`, where :math:`\Pi` shrinks what lies outside of the ball
    :math:`\|\theta\|_p \le R` to its surface.

    Guarantee: the sequence of all decisions is (epsilon, delta)-differentially private under the conditions of
    :class:`~torchonline.privacy.learners.base.PrivateLearner`, with

    .. math:: s_i = \eta_i\,C\,(m-1), \qquad\text{under zero\_out}\quad s_i = \eta_i\,C\,(m-1)^2/m .

    *Proof.* h is 1-strongly convex in the norm of order p, so that :math:`\nabla h^*` is 1-Lipschitz from the norm of order q to
    that of order p, which is no less than the Euclidean one. Replace the first record of a phase. Its own contribution moves
    by at most 2C, by C under ``zero_out``; the iterates move, and with them *each later contribution in the phase, by up to
    2C*. So :math:`\theta_t` moves by at most :math:`2\eta_i C(t-1)`, or :math:`\eta_i C(2t-3)` for t > 1, and the average over m
    of them by s. A later record moves less. Each is in one phase
    (:class:`~torchonline.baselines.private.private_optimizer.DisjointBatches`).

    *What this costs.* For p = 2, where losses are promised to be convex and smooth, and steps are short, no step brings iterates
    further apart, and :math:`2\eta_iC` would do, some m/2 times less. A learner that sees gradients cannot check such a
    promise, and clipped gradients need not keep it. For gradients of any kind s is the least for p = 2: by gradients that push
    away from a point, it is attained. It is as large as the way that a phase can go, so that signal and noise have one
    size at any n, and *no rate is claimed*: unless epsilon is far above 1, the result is worse than the start. It is here to
    show what a promise is worth; compare with :class:`NoisySFW`, whose queries do not move within a batch.

    Cost of a step: O(d), and as much memory.

    Args:
        dim: number of features d.
        horizon: n, the number of steps.
        epsilon, delta: of the whole run; epsilon ``inf`` for no noise.
        norm: p, of the ball, in (1, 2].
        radius_bound: R, its radius.
        learning_rate: eta, of the first phase; None for :math:`R/(C\sqrt{(p-1)\,m\,(1 + 2(m-1)\,d^{1/p}/\mu)})`, a heuristic that
            balances how far a phase can go with its noise.
        clip: C, in the norm of order q. ``inf`` only where epsilon is, and with a learning rate.
        noise_source: ``"torch"`` or ``"csprng"``.
        seed, adjacency, max_participations: see :class:`~torchonline.privacy.learners.base.PrivateLearner`.
        batch_shape, dtype, device, validate: as in :class:`~torchonline.DPTOFW`.

    Shape:
        - queries: ``(*B, 1, d)``, secret; gradients: the same, or ``(*B, d)``; predict: ``(*B, d)``.
        - theta: ``(*B, d)``, public; secret_gradients, secret_path: ``(*B, d)``, sums over the phase.

    Example:
        >>> learner = LocalMD(2, horizon=1000, epsilon=50.0, delta=1e-3)
        >>> target = torch.tensor([0.6, 0.0]).double()
        >>> for _ in range(1000):
        ...     learner.step(learner.queries() - target)  # the gradient of |theta - target|^2 / 2
        >>> learner.ends
        (500, 750, 875, 937, 968, 983, 990, 993, 1000)

    Reference:
        Asi, Feldman, Koren and Talwar, Private stochastic convex optimization: optimal rates in l1 geometry, ICML 2021,
        Algorithm 6, as we recall it. Here the steps within a phase are those of dual averaging without a constraint, whose
        iterates are Lipschitz in the sum of gradients for every p; and the noise is for gradients of any kind.
    """

    secret_gradients: Tensor
    secret_path: Tensor

    def __init__(
        self,
        dim: int,
        *,
        horizon: int,
        epsilon: float,
        delta: float,
        norm: float = 2.0,
        radius_bound: float = 1.0,
        learning_rate: float | None = None,
        clip: float = 1.0,
        noise_source: str = "torch",
        seed: int | None = None,
        adjacency: str = "replace_one",
        max_participations: int = 1,
        batch_shape: tuple[int, ...] = (),
        dtype: torch.dtype = torch.float64,
        device: torch.device | str | None = None,
        validate: bool = True,
    ) -> None:
        norm = within("norm", norm, 1.0, 2.0, closed=True)
        super().__init__(
            dim,
            ends=phase_ends(positive_integer("horizon", horizon)),
            norm=norm,
            radius_bound=radius_bound,
            clip=clip,
            clip_norm=norm / (norm - 1.0),
            horizon=horizon,
            epsilon=epsilon,
            delta=delta,
            adjacency=adjacency,
            max_participations=max_participations,
            noise_source=noise_source,
            seed=seed,
            batch_shape=batch_shape,
            dtype=dtype,
            device=device,
            validate=validate,
        )
        self.learning_rate = self._balanced() if learning_rate is None else positive("learning_rate", learning_rate)
        self._create_buffers()

    def _balanced(self) -> float:
        """The learning rate of the first phase that balances its reach with its noise."""
        if self.clip == math.inf:
            raise ValueError(
                "learning_rate: expected a number, since none is the best where clip is infinite, got None"
            )
        m = self.ends[0]
        noise = (m - 1) * self.noise_multiplier * self.dim ** (1.0 / self.norm)
        return self.radius_bound / (self.clip * math.sqrt((self.norm - 1.0) * m * (1.0 + 2.0 * noise)))

    def queries(self) -> Tensor:
        """The point at which the next record's gradient is wanted, ``(*B, 1, d)``: secret."""
        with torch.no_grad():
            point = self._shrunk(self.theta.to(torch.float64) + self._offset(self._memory.rounds + 1))
            return point.to(self.theta.dtype).unsqueeze(-2)

    def sensitivity(self, phase: int) -> float:
        """How far one record can move the average of a phase, counted from 1, in the Euclidean norm."""
        m = self._sizes[self.ends[phase - 1]]
        share = 1.0 if self.adjacency == "replace_one" else (m - 1) / m
        return self._rate(phase) * self._longest(self.clip_norm) * (m - 1) * share

    def _initial_state(self) -> dict[str, Tensor | None]:
        zero = torch.zeros(self.dim, dtype=torch.float64)
        return dict.fromkeys(("theta", "secret_gradients", "secret_path"), zero)

    def _phase(self, step: int) -> int:
        """The number of the phase that a step is in, from 1 on; the last one after the end."""
        return min(1 + sum(end < step for end in self.ends), len(self.ends))

    def _rate(self, phase: int) -> float:
        return self.learning_rate * 16.0 ** (1 - phase)

    def _offset(self, step: int) -> Tensor:
        """Where the iterate of a step is, seen from the centre: the gradient of h's conjugate."""
        g = -self._rate(self._phase(step)) * self.secret_gradients
        largest = g.abs().amax(-1, keepdim=True)
        unit = g / torch.where(largest > 0.0, largest, 1.0)
        length = torch.linalg.vector_norm(unit, self.clip_norm, dim=-1, keepdim=True)
        power = unit.sign() * unit.abs() ** (self.clip_norm - 1.0)
        return (self.norm - 1.0) * largest * torch.where(length > 0.0, length, 1.0) ** (2.0 - self.clip_norm) * power

    def _shrunk(self, point: Tensor) -> Tensor:
        """A point of the ball in its direction."""
        length = torch.linalg.vector_norm(point, self.norm, dim=-1, keepdim=True)
        return point * (self.radius_bound / length).clamp(max=1.0)

    def _learn(self, contribution: Tensor, step: int) -> None:
        self.secret_path += self._offset(step)
        self.secret_gradients += contribution
        if (size := self._sizes.get(step)) is None:
            return
        change = self.secret_path / size + self._noise(self.sensitivity(self._phase(step)))
        self.theta.copy_(self._shrunk(self.theta.to(torch.float64) + change))
        self.secret_path.zero_()
        self.secret_gradients.zero_()

    def _parameters_of_noise(self) -> list[tuple[str, float]]:
        return super()._parameters_of_noise() + [("learning_rate", self.learning_rate)]


def phase_ends(horizon: int) -> tuple[int, ...]:
    """The last steps of the phases: of n/2 records, n/4, ..., 1, and of what is left too."""
    phases = max(1, horizon.bit_length() - 1)
    ends, end = [], 0
    for phase in range(1, phases + 1):
        end += horizon >> phase
        ends.append(end)
    return (*ends[:-1], horizon)
