"""GLB-OMD with capped scores, which its regret theorem needs for counts."""

from typing import Any

from torch import Tensor

from torchonline.core.ops import at_least, minimum, roundoff, row_dots, sqrt
from torchonline.policies.rules import UCB, takes_arguments_of
from torchonline.regression.glm.mirror_descent import GLMRegression


class CappedGLBOMD(UCB[GLMRegression]):
    r"""GLB-OMD with scores capped at the largest predictor of the ball.

    .. math:: \text{score}_k = \min\bigl(x_k^\top\hat\theta + \beta\,\|x_k\|_{V^{-1}},\ S\|x_k\|\bigr), \qquad
              S = \text{theta\_bound},

    over :class:`~torchonline.GLMRegression`, with the same arguments. Ties go to the arm with the largest score before the cap.
    For this a capped score exceeds its cap by up to a fraction of 1.5e-8 (3.5e-4 in float32), within which scores count as equal.

    Guarantee. When the estimator's confidence set holds and :math:`\|\theta^*\| \le S`, no score is below its arm's
    :math:`x_k^\top\theta^*`. The proof of the regret theorem of GLB-OMD (Theorem 2, with ``radius="paper"`` and the theorem's
    ridge) bounds slopes of the link between the truth and the score by the largest slope on [-SL, SL]. This is valid for capped
    scores with any link, and for the paper's scores with links whose slope is bounded everywhere, such as ``Logistic`` and
    ``Gaussian``. ``Gamma`` and ``CustomLink`` have no theorem with that radius. **For ``Poisson`` the cap completes the proof.**
    Measured, it is worse on average: while little is known, only the longest arm is played.

    Cost of a decision among K arms: O(K d^2), as for UCB. :class:`~torchonline.FixedArms` does not support it.

    Args:
        dim, link, radius, theta_bound, feature_bound, ridge, delta, radius_scale, batch_shape: as in :class:`GLMRegression`.
        dtype, device, validate: as in :class:`GLMRegression`.

    Example:
        >>> arms = torch.tensor([[0.5, 0.0], [0.0, 0.8]], dtype=torch.float64)
        >>> CappedGLBOMD(2, link=Poisson(), theta_bound=2.0)(arms)
        tensor([1.0000, 1.6000], dtype=torch.float64)

    Reference:
        Zhang, Xu, Zhao and Sugiyama, Generalized Linear Bandits: Almost Optimal Regret with One-Pass Update, 2025, Algorithm 1.
        What differs: the cap.
    """

    @takes_arguments_of(GLMRegression)
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(GLMRegression(*arguments, **options))

    def _scores(self, features: Tensor) -> Tensor:
        """Return the capped bounds: ``(*B, ..., K, d)`` to ``(*B, ..., K)``."""
        estimator = self.estimator
        estimate, error = estimator.estimate_and_bonus(features)
        index = estimate + error
        x = features.to(index.dtype)
        cap = estimator.theta_bound * sqrt(at_least(row_dots(x, x), 1e-38))
        # An increasing function of the amount above the cap, from 0 to 1, breaks ties.
        beyond = at_least(index - cap, 0.0)
        share = beyond / (beyond + cap)
        return minimum(index, cap) * (1.0 + roundoff(index) ** 0.5 * share)
