"""Noisy stochastic Frank-Wolfe (Bassily, Guzman and Nandi, COLT 2021), on a stream."""

import math

import torch
from torch import Tensor

from torchonline.baselines.private.private_optimizer import DisjointBatches
from torchonline.convex.domains import LpBall
from torchonline.core.checks import positive_integer, within


class NoisySFW(DisjointBatches):
    r"""Frank-Wolfe with a recursive gradient, one step for each batch, and noise on each batch's part of it.

    A round is that of :class:`~torchonline.DPTOFW`, with gradients at the two points of ``queries()``, this decision and the one
    before, which stay where they are within a batch. The first batch has :math:`b_0 = n/2` records, the others
    :math:`b = \sqrt n/2`, and the last one what is left too. At the end of batch k, over its records,

    .. math::
        u_z &= \frac{\nabla f(w_k; z) - (1-\rho_k)\,\nabla f(w_{k-1}; z)}{\rho_k},\qquad \rho_0 = 1,\quad \rho_k = \eta, \\
        d_k &= (1 - \rho_k)\,d_{k-1} + \frac{\rho_k}{b_k}\Big(\sum_z u_z + Z_k\Big),\qquad
        w_{k+1} = w_k + \eta\,(\arg\min_{\|v\|_p \le R}\langle d_k, v\rangle - w_k),

    each :math:`u_z` clipped to C in the Euclidean norm, :math:`Z_k \sim N(0, (2C/\mu)^2 I)`. Unclipped this is the paper's
    :math:`d_k = (1-\eta)(d_{k-1} + \nabla_k(w_k) - \nabla_k(w_{k-1})) + \eta\nabla_k(w_k)`, with noise; and where gradients have
    norm at most L and are :math:`\beta`-Lipschitz, :math:`\|u_z\| \le L + \beta\|w_k - w_{k-1}\|/\eta \le L + 2\beta R_2` in a
    ball of Euclidean radius :math:`R_2`: about the size of one gradient.

    Guarantee: the sequence of all decisions and of all :math:`d_k` is (epsilon, delta)-differentially private under the
    conditions of :class:`PrivateLearner`. *Proof.* Within batch k all records' gradients are taken
    at :math:`w_k` and :math:`w_{k-1}`, which were released before it. So :math:`u_z` is a function of its own record, and a
    point of a ball: to replace one moves the sum by at most 2C (C under ``zero_out``). Each record is in one batch, and gets the
    whole budget (:class:`~torchonline.baselines.private.private_optimizer.DisjointBatches`); the recursion is post-processing.
    Decisions within the stream, which the paper keeps, are thus public too: :meth:`predict` gives the start for n/2 steps, and
    then moves once for each batch.

    Cost of a step: O(d), and as much memory.

    Args:
        dim: number of features d.
        horizon: n, the number of steps.
        epsilon, delta: of the whole run; epsilon ``inf`` for no noise.
        norm: p, of the ball, from 1 to infinity.
        radius_bound: R, its radius.
        clip: C, for u, which has about the size of one gradient. ``inf`` only where epsilon is.
        step_size: eta, in (0, 1]; None for :math:`\min\{1, \log(n+1)/(2\sqrt n)\}`, an order that we recall and a constant that
            we chose: over the :math:`\sqrt n` batches it forgets the start but for a share of about :math:`1/\sqrt n`.
        noise_source: ``"torch"`` or ``"csprng"``.
        seed, adjacency, max_participations: see :class:`~torchonline.privacy.learners.base.PrivateLearner`.
        batch_shape, dtype, device, validate: as in :class:`~torchonline.DPTOFW`.

    Shape:
        - queries: ``(*B, 2, d)``; gradients: the same; predict: ``(*B, d)``.
        - theta, theta_prev, direction: ``(*B, d)``, public; secret_sum: ``(*B, d)``.

    Example:
        >>> learner = NoisySFW(2, horizon=1000, epsilon=1.0, delta=1e-3)
        >>> target = torch.tensor([0.6, 0.0]).double()
        >>> for _ in range(1000):
        ...     learner.step(learner.queries() - target)  # the gradient of |theta - target|^2 / 2
        >>> len(learner.ends), bool((learner.predict() - target).norm() < 0.6)
        (34, True)

    Reference:
        Bassily, Guzman and Nandi, Non-Euclidean differentially private stochastic convex optimization, COLT 2021. Here increments
        are clipped instead of promised to be short, the noise is calibrated exactly, and it is plain Gaussian for every p.
    """

    theta_prev: Tensor
    direction: Tensor
    secret_sum: Tensor

    decisions: tuple[str, ...] = ("theta", "theta_prev")
    points = 2

    def __init__(
        self,
        dim: int,
        *,
        horizon: int,
        epsilon: float,
        delta: float,
        norm: float = 2.0,
        radius_bound: float = 1.0,
        clip: float = 1.0,
        step_size: float | None = None,
        noise_source: str = "torch",
        seed: int | None = None,
        adjacency: str = "replace_one",
        max_participations: int = 1,
        batch_shape: tuple[int, ...] = (),
        dtype: torch.dtype = torch.float64,
        device: torch.device | str | None = None,
        validate: bool = True,
    ) -> None:
        super().__init__(
            dim,
            ends=batch_ends(positive_integer("horizon", horizon)),
            norm=norm,
            radius_bound=radius_bound,
            clip=clip,
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
        self.domain = LpBall(self.dim, norm=self.norm, radius=self.radius_bound)
        if step_size is None:
            step_size = min(1.0, math.log(self.horizon + 1.0) / (2.0 * math.sqrt(self.horizon)))
        self.step_size = within("step_size", step_size, 0.0, 1.0, closed=True)
        self._create_buffers()

    def queries(self) -> Tensor:
        """The two points at which the next record's gradients are wanted, this decision and the one before: ``(*B, 2, d)``."""
        return torch.stack([self.theta, self.theta_prev], -2)

    def _initial_state(self) -> dict[str, Tensor | None]:
        return dict.fromkeys(("theta", "theta_prev", "direction", "secret_sum"), self.domain.start())

    def _rate(self, step: int) -> float:
        """Rho of the batch that a step is in."""
        return 1.0 if step <= self.ends[0] else self.step_size

    def _combined(self, gradients: Tensor, step: int) -> Tensor:
        rate = self._rate(step)
        now, before = gradients.unbind(-2)
        return now.sub(before, alpha=1.0 - rate) / rate

    def _learn(self, contribution: Tensor, step: int) -> None:
        self.secret_sum += contribution
        if (size := self._sizes.get(step)) is None:
            return
        self.direction.lerp_((self.secret_sum + self._noise(self._moved())) / size, self._rate(step))
        vertex = self.domain.minimizer(self.direction)
        self.theta_prev.copy_(self.theta)
        self.theta.lerp_(vertex.to(self.theta.dtype), self.step_size)
        self.secret_sum.zero_()

    def _parameters_of_noise(self) -> list[tuple[str, float]]:
        return super()._parameters_of_noise() + [("step_size", self.step_size)]


def batch_ends(horizon: int) -> tuple[int, ...]:
    """The last steps of the batches: of n/2 records, then of root n / 2, and of what is left too."""
    first, size = max(1, horizon // 2), max(1, math.isqrt(horizon) // 2)
    return (*(first + size * k for k in range((horizon - first) // size)), horizon)
