"""MsMwC: multiplicative weights with correction, for losses of different sizes."""

from collections.abc import Sequence
from typing import Unpack

import numpy as np
import torch
from torch import Tensor

from torchonline.convex.experts.base import Experts, prox_among, shares
from torchonline.core.checks import positive_integer
from torchonline.core.ops import assign_, clip
from torchonline.core.options import LearnerOptions


class MsMwC(Experts):
    r"""MsMwC: multiplicative weights with correction, at a rate for each expert.

    ``predict`` returns the weights, and ``step`` takes the losses of all experts, ``(*B, N)``.

    The weights :math:`w_t` of N experts are chosen before their losses :math:`\ell_t` are known, from a hint :math:`h_t` of the
    losses: the last losses, or the hint of :meth:`set_hint`. With :math:`\varphi(w) = \sum_jw_j\ln w_j/\beta_j` and its Bregman
    divergence :math:`D_\varphi`,

    .. math::
        w_t = \arg\min_w\langle w, h_t\rangle + D_\varphi(w, w'_t),\qquad
        w'_{t+1} = \arg\min_w\langle w, \ell_t + a_t\rangle + D_\varphi(w, w'_t),\qquad
        a_{t,j} = \text{kappa}\,\beta_j(\ell_{t,j} - h_{t,j})^2 .

    The weights of unavailable experts do not change and keep their share of the sum (:meth:`set_available`).

    Guarantee. As long as :math:`\text{kappa}\,\beta_j|\ell_{t,j} - h_{t,j}| \le 1`, against each expert i, on every sequence,

    .. math::
        \sum_t\langle w_t, \ell_t\rangle - \ell_{t,i} \le \frac{1}{\beta_i}\Big(\ln\frac{1}{w'_{1,i}} - 1\Big)
        + \sum_j\frac{w'_{1,j}}{\beta_j} + \text{kappa}\,\beta_i\sum_t(\ell_{t,i} - h_{t,i})^2
        - \frac{\text{kappa}}{2}\sum_t\sum_j\beta_jw_{t,j}(\ell_{t,j} - h_{t,j})^2 .

    A loss further from its hint is moved towards the hint, and ``clipped_rounds`` counts the round. If all rates are equal, the
    bound holds with any missing experts, over the rounds in which i is available, with :math:`\ln(1/w'_{1,i})/\beta` as the first
    two terms. If rates differ, nothing is proved for rounds with missing experts. Cost of a round: O(N), times the few steps of a
    root search if rates differ.

    Args:
        experts: number of experts N.
        rate: :math:`\beta > 0`, in units of one over a loss: a number, or one for each expert.
        prior: :math:`w'_1`, N positive numbers, which are normalized to sum 1; None for equal weights.
        preset: ``"default"``, kappa = 6; ``"paper"``, kappa = 32.
        batch_shape, dtype, device, validate: options of all learners, see :class:`~torchonline.core.learner.Learner`.

    Shape:
        - ``decision`` :math:`w_t`, ``log_weights`` :math:`\ln w'_t`, ``hint``, ``available``: ``(*B, N)``.

    Example:
        >>> learner = MsMwC(3, rate=0.1)
        >>> for _ in range(100):
        ...     learner.step(torch.tensor([1.0, 0.5, 0.0]))
        >>> learner.predict().argmax()
        tensor(2)

    Reference:
        Chen, Luo and Wei, Impossible Tuning Made Possible, COLT 2021, as Algorithm 5 of the paper of :class:`~torchonline.OONS`.
        The bound follows from Lemma 1 of Chen, Luo and Wei; their Theorem 6, Lemma D.1 of that paper, is for
        :class:`~torchonline.MsMwCMaster`. What differs: kappa; missing experts.
    """

    statistics_depend_on = ("rate", "prior", "kappa")

    log_weights: Tensor

    def __init__(
        self,
        experts: int,
        *,
        rate: float | Sequence[float] | Tensor,
        prior: Sequence[float] | Tensor | None = None,
        preset: str = "default",
        **options: Unpack[LearnerOptions],
    ) -> None:
        super().__init__(positive_integer("experts", experts), preset=preset, **options)
        if prior is not None and not isinstance(prior, (Tensor, np.ndarray, tuple, list)):
            raise TypeError(f"prior: expected {experts} numbers above 0, got {prior!r}")
        self.rate = self._of_each("rate", rate)
        numbers = self._of_each("prior", 1.0 if prior is None else prior)
        self.prior = tuple(share / sum(numbers) for share in numbers)
        self._create_buffers()

    def _initial_state(self) -> dict[str, Tensor | None]:
        prior = torch.tensor(self.prior, dtype=torch.float64)
        return super()._initial_state() | {"decision": prior, "log_weights": prior.log()}

    def _tables(self) -> dict[str, Tensor]:
        return {"rates": torch.tensor(self.rate, dtype=torch.float64)}

    def _cut(self, losses: Tensor) -> Tensor:
        return self.hint + clip(losses - self.hint, 1.0 / (self.kappa * self.rates))

    def _learn_(self, losses: Tensor) -> None:
        surprise = losses - self.hint
        cost = losses + self.kappa * self.rates * surprise * surprise
        assign_(self.log_weights, prox_among(self.log_weights, cost, self.rates, self._mask()))

    def _decide_(self) -> None:
        mask = self._mask()
        assign_(self.decision, shares(prox_among(self.log_weights, self.hint, self.rates, mask), mask))
