"""Variation of gradients: the noise and the drift of a stream of losses."""

import torch
from torch import Tensor

from torchonline.core.checks import check_shape, shape_text, sizes
from torchonline.metrics.base import ExactMetric, check_finite


class GradientVariation(ExactMetric):
    r"""Sum of squared differences between two gradients.

    .. math:: \sum_{t \le T} \max_x \|g_t(x) - g'_t(x)\|^2

    The maximum is over the points x at which the caller evaluates both gradients. On simulated streams two such metrics measure
    the sums of :math:`\sigma_t^2` and :math:`\Sigma_t^2` of the stochastically extended adversarial model, as in the example.
    Finitely many points give a lower bound on a supremum, and one draw replaces an expectation; on
    :class:`~torchonline.environments.SEAStream`, which defines the two, both sums are exact with a single point. The metric also
    sums an optimistic learner's :math:`\|g_t - m_t\|^2`, of gradients and hints. Over several processes ``compute`` returns the
    sum over the rounds of all ranks.

    Cost of a round: O(nd) for n points.

    Args:
        batch_shape: ``*B``, batch shape of the measured streams or learners.

    Shape:
        - ``update(gradients, reference)``: one round, ``(*B, ..., d)`` each, at the same points; floating point.
        - ``compute()``: the sums ``(*B)``, float64, in squared units of the gradients.

    Example:
        >>> from torchonline.environments import SEAStream
        >>> stream = SEAStream(3, loss="logistic", sigma=0.5, drift=0.1)
        >>> stochastic, adversarial, x = GradientVariation(), GradientVariation(), torch.zeros(3)
        >>> for _ in range(100):
        ...     stochastic.update(stream.gradients(x), stream.expected_gradients(x))
        ...     adversarial.update(stream.expected_gradients(x), stream.expected_gradients(x, lag=1))
        ...     stream.advance()
        >>> f"{stochastic.compute():.6f} {adversarial.compute():.6f}"  # 100 sigma^2 and 100 drift^2
        '25.000000 1.000000'
    """

    higher_is_better = None
    named = "sum of squared differences"

    total: Tensor

    def __init__(self, batch_shape: tuple[int, ...] = ()) -> None:
        super().__init__()
        self.batch_shape = sizes("batch_shape", batch_shape)
        total = torch.zeros(self.batch_shape, dtype=torch.float64)
        self._add_states("sum", total=total, rounds=torch.zeros((), dtype=torch.int64))

    def update(self, gradients: Tensor, reference: Tensor) -> None:
        """Add one round."""
        self._refuse_synced()
        dims = len(self.batch_shape)
        gradients, reference = check_finite("gradients", gradients), check_finite("reference", reference)
        for name, value in (("gradients", gradients), ("reference", reference)):
            if value.dim() <= dims or value.shape[:dims] != self.batch_shape or value.numel() == 0:
                wanted = shape_text((*self.batch_shape, "...", "d"))
                raise ValueError(f"{name}: expected shape {wanted}, got {shape_text(value.shape)}")
        check_shape("reference", reference, tuple(gradients.shape))
        difference = gradients.detach().to(self.total) - reference.detach().to(self.total)
        squares = difference.square().sum(-1).reshape(*self.batch_shape, -1)
        self.total = self.total + squares.amax(-1)
        self.rounds = self.rounds + 1

    def compute(self) -> Tensor:
        """Return the sum of each stream or learner, ``(*B)``."""
        return self.total.clone()
