"""LocalMD with the noise that it needs if all losses are convex and smooth.

A module of ``private_oco_rates.py``, and an experiment: the library has no such option, because a learner that sees gradients
cannot check the condition.
"""

import math
from typing import Any

import torch
from torch import Tensor

from torchonline.baselines import LocalMD
from torchonline.core.checks import positive


class ConditionalLocalMD(LocalMD):
    r"""LocalMD for p = 2, private *only if* all losses are convex and smooth.

    Within a phase it is projected gradient descent,

    .. math:: x_{t+1} = \Pi(x_t - \eta_i g_t),\qquad x_1 = c,

    with :math:`g_t` the gradient at :math:`x_t`, the point of ``secret_queries()``, and the Euclidean projection :math:`\Pi`
    onto the ball. The noisy average of :math:`x_1, ..., x_m` is the next centre. The rates are :math:`\eta_i = 4^{-(i-1)}\eta`.

    Guarantee: as that of :class:`~torchonline.baselines.LocalMD`, with :math:`s_i = 2\eta_i C (m-1)/m`, half of that under
    ``"zero_out"``, in real numbers and under three conditions. As a function of theta each record's loss is convex,
    ``smoothness``-smooth, and has gradients no longer than C. *There is no privacy without them, and nothing is checked.*
    Proof: the docstring of private_oco_rates.py.

    Args:
        smoothness: beta, the Lipschitz constant of the gradients in the Euclidean norm.
        learning_rate: eta, at most 2/beta. None for :math:`\min\{2/\beta, R/(C\sqrt{4m/3 + 64d/\mu^2})\}`, a heuristic that
            balances the three parts of the error: of the start, of the gradients and of the noise of the phases after the first.
        dim, options: as for LocalMD, without ``norm``.

    Reference: Feldman, Koren and Talwar, Private stochastic convex optimization: optimal rates in linear time, STOC 2020,
    as we recall it: the phases and their rates. Hardt, Recht and Singer, Train faster, generalize better, ICML 2016, Lemma 3.7.
    """

    statistics_depend_on = (*LocalMD.statistics_depend_on, "smoothness")

    def __init__(self, dim: int, *, smoothness: float, **options: Any) -> None:
        vars(self)["smoothness"] = positive("smoothness", smoothness)  # the default rate needs it
        super().__init__(dim, norm=2.0, **options)
        if not self.learning_rate <= 2.0 / smoothness:
            raise ValueError(f"learning_rate: expected at most 2 / smoothness, got {self.learning_rate}")

    def sensitivity(self, phase: int) -> float:
        """Return the l_2 sensitivity of a phase's average, if the conditions hold."""
        m = self._sizes[self.ends[phase - 1]]
        return self._moved() * self._rate(phase) * (m - 1) / m

    def _best_rate(self) -> float:
        noise = 64.0 * self.dim * self.noise_multiplier**2
        balanced = self.radius_bound / (self.clip * math.sqrt(4.0 * self.ends[0] / 3.0 + noise))
        return min(2.0 / self.smoothness, balanced)

    def _rate(self, phase: int) -> float:
        return self.learning_rate * 4.0 ** (1 - phase)

    def _learn(self, contribution: Tensor, step: int) -> None:
        # For p = 2 an iterate is the centre minus the rate times the sum: a projected step is added as a step without projection.
        rate = self._rate(self._phase(step))
        point = self.theta.to(torch.float64) + self._offset(step)
        super()._learn((point - self._shrunk(point - rate * contribution)) / rate, step)
