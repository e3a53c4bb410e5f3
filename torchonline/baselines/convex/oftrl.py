"""Optimistic follow the regularised leader (Sachs, Hadiji, van Erven and Guzman, NeurIPS 2022)."""

import torch
from torch import Tensor

from torchonline.convex.learner import ConvexLearner
from torchonline.core.checks import positive_size
from torchonline.core.ops import along, assign_, count_, dot, increase_
from torchonline.linalg import in_ball


class OFTRL(ConvexLearner):
    r"""Optimistic follow the regularised leader on a ball, for losses between stochastic and adversarial: convex and smooth.

    A round::

        gradients, _ = torchonline.gradients(loss, learner, x, y)
        learner.step(gradients)

    With the last gradient for a hint, :math:`m_t = g_{t-1}`, :math:`m_1 = 0`,

    .. math:: x_t = \arg\min_{\|x\|\le R}\Big\langle\sum_{s<t}g_s + m_t, x\Big\rangle + \frac{\|x\|^2}{\eta_t},\qquad
              \eta_t = \frac{R^2}{\nu + \sum_{s<t}\eta_s\|g_s - m_s\|^2},

    where :math:`\nu = 2GR + LR^2`, G = ``lipschitz`` and L = ``smoothness``.

    Guarantee, for any gradients, with :math:`Z = \max_t\|g_t - m_t\|`, at most 2G if none is longer than G, and each u in the
    ball:

    .. math:: \sum_{t\le T}\langle g_t, x_t - u\rangle
              \le \frac3{\sqrt2}R\Big(\sum_{t\le T}\|g_t - m_t\|^2\Big)^{1/2} + \nu + \frac{3R^2Z^2}{2\nu}.

    If the losses are convex and the expected losses L-smooth, the expected regret is
    :math:`O(R\sqrt{\sigma_{1:T}^2} + R\sqrt{\Sigma_{1:T}^2} + RG + LR^2)`, with the sums of the variances of gradients and of
    the squared changes of their means (Theorem 5 of the reference). G and L are guesses of scale: wrong ones cost what
    :math:`\nu` says.

    Cost of a round: O(d).

    Args:
        dim: d, number of coordinates.
        radius_bound: R > 0.
        lipschitz: G > 0, about the length of gradients.
        smoothness: L, about a Lipschitz constant of the mean gradients; 0 where none is known.
        batch_shape: ``*B``, independent learners in one module.
        dtype: torch.float64 or torch.float32, of the state.
        device: where the state lives.
        validate: whether values are checked in each call.

    Shape:
        - gradients: ``(*B, d)`` or ``(*B, 1, d)``; decision; total, the sum of gradients; hint, m: ``(*B, d)``.
        - penalty, :math:`R^2/\eta_t`; rounds: ``(*B)``.

    Example:
        >>> learner = OFTRL(2, radius_bound=10.0, lipschitz=1.0)
        >>> for _ in range(500):
        ...     learner.step(learner.predict() - torch.tensor([3.0, 4.0]))  # the gradient of |x - (3, 4)|^2 / 2
        >>> bool((learner.predict() - torch.tensor([3.0, 4.0])).norm() < 0.01)
        True

    Reference:
        Sachs, Hadiji, van Erven and Guzman, Between stochastic and adversarial online convex optimization: improved regret
        bounds via smoothness, NeurIPS 2022, Theorem 5. What differs: R stands for the paper's diameter, since all that its proof
        asks is :math:`\|u\| \le R`; :math:`\nu` has 2GR, from its case without smoothness, in place of its :math:`RG^2`, which
        has other units; and the last term of the bound, of which it prints :math:`4R^2G^2/\nu`, is what its proof gives.
    """

    statistics_depend_on = ("radius_bound", "lipschitz", "smoothness")

    total: Tensor
    hint: Tensor
    penalty: Tensor

    def __init__(
        self,
        dim: int,
        *,
        radius_bound: float,
        lipschitz: float,
        smoothness: float = 0.0,
        batch_shape: tuple[int, ...] = (),
        dtype: torch.dtype = torch.float64,
        device: torch.device | str | None = None,
        validate: bool = True,
    ) -> None:
        super().__init__(dim, batch_shape=batch_shape, dtype=dtype, device=device, validate=validate)
        self.radius_bound = positive_size("radius_bound", radius_bound, dtype)
        self.lipschitz = positive_size("lipschitz", lipschitz, dtype)
        self.smoothness = positive_size("smoothness", smoothness, dtype, besides=(0.0,))
        self.square = self.radius_bound**2
        self._create_buffers()

    def _initial_state(self) -> dict[str, Tensor | None]:
        offset = 2.0 * self.lipschitz * self.radius_bound + self.smoothness * self.radius_bound**2
        return super()._initial_state() | {
            "total": torch.zeros(self.dim, dtype=torch.float64),
            "hint": torch.zeros(self.dim, dtype=torch.float64),
            "penalty": torch.tensor(offset, dtype=torch.float64),
        }

    def _observe(self, gradients: Tensor, values: Tensor | None) -> None:
        total = self.total
        count_(self.rounds)
        total += gradients
        error = gradients - self.hint
        increase_(self.penalty, self.square / self.penalty * dot(error, error))
        assign_(self.hint, gradients)
        lowest = along(self.square / self.penalty, total) * (total + gradients) * -0.5
        assign_(self.decision, in_ball(lowest, self.radius_bound))
