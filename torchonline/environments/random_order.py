"""Fixed set of convex losses in random order, pass after pass."""

from typing import Any

import torch
from torch import Tensor

from torchonline.core import checks
from torchonline.environments.sea import SEAStream


class RandomOrderStream(SEAStream):
    r"""Stream of K losses without replacement, in passes of random order.

    The losses are :math:`h(x) + \langle b_k, x\rangle`, with the :math:`b_k` in pairs of opposite vectors of length ``sigma`` and
    random direction, so that a pass sums to K h. The order of a pass is drawn for each trial. In the stochastically extended
    adversarial model, :math:`F_t` is the expectation given the past:

    .. math:: \nabla F_t(x) = \nabla h(x) + a_t,\qquad a_t = \text{the mean of the } b_k \text{ that the pass has left},\qquad
              \xi_t = b_{k_t} - a_t,

    with :math:`\sigma_t^2 = \text{sigma}^2 - \|a_t\|^2` at every x, and :math:`\Sigma_t = \|a_t - a_{t-1}\|`, which is small
    except at the end of a pass. Over a pass :math:`\Sigma^2_{1:T}` has a bound that does not grow with K (Lemma 11 of the
    reference: :math:`8G^2`), and :math:`\sigma^2_{1:T}` is at most :math:`K\sigma^2`. The comparator u minimises the sum of a
    pass. Everything else, including the attributes, is as for :class:`~torchonline.environments.SEAStream`, except that the
    ``noise`` depends on the past. Cost of a round: O(d) per point; O(Kd) memory per trial.

    Args:
        dim: number of coordinates d.
        losses: K, even.
        loss, sigma, comparator_norm, scale: as for :class:`~torchonline.environments.SEAStream`.
        batch_shape, seed, dtype: as for :class:`~torchonline.environments.simulated.SimulatedBandit`.

    Example:
        >>> stream = RandomOrderStream(3, losses=4, loss="huber", sigma=0.5)
        >>> total = torch.zeros(3, dtype=torch.float64)
        >>> for _ in range(4):
        ...     total += stream.shift + stream.noise
        ...     stream.advance()
        >>> bool(total.norm() < 1e-12)
        True

    Reference:
        Sachs, Hadiji, van Erven and Guzman, Between stochastic and adversarial online convex optimization: improved regret bounds
        via smoothness, NeurIPS 2022, Section 4.3: single-pass and multi-pass random order models. The losses are our own.
    """

    def __init__(
        self,
        dim: int,
        *,
        losses: int,
        loss: str = "huber",
        sigma: float | Tensor = 1.0,
        comparator_norm: float | Tensor = 1.0,
        scale: float = 1.0,
        batch_shape: tuple[int, ...] = (),
        seed: int = 0,
        dtype: torch.dtype = torch.float64,
    ) -> None:
        self.losses = checks.positive_integer("losses", losses)
        if self.losses % 2:
            raise ValueError(f"losses: expected an even number, got {losses}")
        shared: Any = {"loss": loss, "sigma": sigma, "comparator_norm": comparator_norm, "scale": scale}
        super().__init__(dim, **shared, batch_shape=batch_shape, seed=seed, dtype=dtype)

    def variance(self) -> Tensor:
        return (self.sigma.square() - self.shift.double().square().sum(-1)).clamp(min=0.0)

    def deviation(self) -> Tensor:
        r"""Return :math:`E\|\xi_t\|` of this round, given the past, ``(*B)``, float64."""
        lengths = torch.linalg.vector_norm(self._drawn[..., self._at :, :] - self.shift.double().unsqueeze(-2), dim=-1)
        return lengths.mean(-1)

    def _prepare(self) -> None:
        half = torch.stack([self._directions() for _ in range(self.losses // 2)], -2)
        self._parts = self.sigma.unsqueeze(-1).unsqueeze(-1) * torch.cat([half, -half], -2)
        self._previous = torch.zeros_like(self.comparator)  # a_0 of the pass before the first

    def _begin_round(self) -> None:
        self._at = self.rounds % self.losses
        if self.rounds:
            self._previous = self.shift
        if self._at == 0:
            order = torch.rand((*self.batch_shape, self.losses), generator=self._generator).argsort(-1)
            self._drawn = self._parts.gather(-2, order.unsqueeze(-1).expand_as(self._parts))
        mean = self._drawn[..., self._at :, :].mean(-2)
        self.shift = mean.to(self.dtype)
        self.noise = (self._drawn[..., self._at, :] - mean).to(self.dtype)

    def _shift_of(self, number: int) -> Tensor:
        return self.shift if number == self.rounds else self._previous
