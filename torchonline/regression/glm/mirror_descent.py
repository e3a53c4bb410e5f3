"""GLB-OMD: one-pass online mirror descent (Zhang, Xu, Zhao and Sugiyama, 2025)."""

import warnings
from typing import Unpack

from torch import Tensor

from torchonline.core.checks import one_of
from torchonline.core.ops import along, assign_, at_least, dot, log, matvec, real, sqrt
from torchonline.linalg import add_diagonal, logdet
from torchonline.links import Link
from torchonline.regression.glm.base import GLMOptions, MixtureEstimator


class GLMRegression(MixtureEstimator):
    r"""One-pass generalized linear regression by mirror descent, as in GLB-OMD.

    A round, from :math:`V = \lambda I`, with the mean :math:`\mu = m'` of the link, the dispersion
    :math:`g = \text{noise\_scale}^2` and :math:`w(\theta) = \mu'(x^\top\theta)/g`:

    .. math:: \tilde V &= V + \eta\,w(\hat\theta)\,xx^\top \\
              \zeta &= \hat\theta - \eta\,\tilde V^{-1}x\,(\mu(x^\top\hat\theta) - r)/g &&\text{(42a)} \\
              \hat\theta &\leftarrow \arg\min_{\|\theta\|\le S}\|\theta-\zeta\|_{\tilde V} &&\text{(42b)} \\
              V &\leftarrow V + w(\hat\theta)\,xx^\top &&\text{(at the new estimate)}

    Widths are :math:`\|x\|_{V^{-1}}`. With ``radius="empirical"``, :math:`\eta` is about the smallest number with
    :math:`\mu'(y)(b-y)^2 \le 2\eta D_m(b, y)` for all predictors b and y in [-SL, SL], with the divergence :math:`D_m` of m;
    with the other radii it is the paper's 1 + R S L, which is larger.

    Guarantee. Under the conditions of :class:`LocalGLMRegression`, with probability at least 1 - ``delta``, for all rounds and
    all x at once, :math:`|x^\top(\hat\theta-\theta^*)| \le \text{radius}\cdot\text{width}(x)`, with the radius

    - "empirical": the sum of the costs of all rounds. Holds for any ``ridge``. Proof: docs/generalized_linear_theory.md.
    - "paper": :math:`\text{radius}^2 = 4\lambda S^2 + 2\eta\log\frac1\delta + 6d\eta^2\log(2 + 2C_\mu L^2t/(\lambda g))` at
      round t (Theorem 1 of the reference). Holds if ``ridge`` is at least :meth:`theory_ridge`, below which there is a warning,
      and no round's ``noise_scale`` is below the link's; ``step`` refuses smaller ones.
    - "tight": :math:`\lambda S^2 + 2\eta\log\frac1\delta + 6\eta^2\log\det(V/\frac\lambda2 - I)`, which the paper's proof gives
      before its last bounds. Holds under the same conditions, and is never larger.

    The paper's theorem covers links that are self-concordant for all predictors, since its proof averages the loss over a normal
    law. ``Gamma`` is not: its loss is infinite from the offset on. ``CustomLink`` promises nothing beyond [-SL, SL]. With these
    two, "paper" and "tight" are heuristics: there is a warning, and ``guarantee`` is "none". The proof of "empirical" stays in
    [-SL, SL], and covers all links.

    UCB over the paper's radius has regret :math:`\tilde O(d\sqrt{T/\kappa_*})` (Theorem 2, whose proof needs more if the slope
    is unbounded: docs/glb_omd.md). For the empirical radius no regret bound is proved.

    Cost of a round: O(d^2) time and ``NODES`` exponentials, the same in every round; O(d^3)
    in a round that leaves the ball, and in each choice with ``radius="tight"``. Two d x d matrices (three in float32).

    Args:
        dim, link, theta_bound, feature_bound, ridge, delta, radius_scale, batch_shape, dtype, device, validate: as in
            :class:`~torchonline.regression.glm.base.GeneralizedEstimator`.
        radius: "empirical", "tight" or "paper".

    Example:
        >>> learner = GLMRegression(2, link=Poisson(), theta_bound=2.0)
        >>> x = torch.tensor([1.0, 0.0])
        >>> for count in [2.0, 4.0, 3.0, 3.0] * 25:
        ...     learner.step(x, torch.tensor(count))
        >>> low, high = learner.interval(x)
        >>> print(f"{learner(x):.1f}, between {low:.1f} and {high:.1f}")
        3.0, between 1.9 and 4.8

    Reference:
        Zhang, Xu, Zhao and Sugiyama, Generalized Linear Bandits: Almost Optimal Regret with One-Pass Update, 2025. What
        differs: the default radius and its smaller :math:`\eta`; the default ridge, which is larger in the paper's theorem but
        not in its experiments; :math:`\tilde V^{-1}` contains the new Hessian once, not twice as in the paper.
    """

    guarantee = "in all rounds"
    statistics_depend_on = ("eta", "theta_bound", "ridge", "delta", "noise_scale")

    def __init__(
        self, dim: int, *, link: Link | None = None, radius: str = "empirical", **options: Unpack[GLMOptions]
    ) -> None:
        super().__init__(dim, link, **options)
        self.radius_kind = one_of("radius", radius, ("empirical", "tight", "paper"))
        if radius == "empirical":
            self.eta = self.link.curvature_ratio(self.predictor_bound)
        else:
            self.eta = 1.0 + self.concordance * self.predictor_bound
            # The paper's bounds are for rounds of one dispersion, and hold for larger ones.
            self.smallest_noise_scale = self.noise_scale
        self.max_weight = self.link.max_slope(self.predictor_bound) / self.noise_scale**2
        reason = None if radius == "empirical" else self._gap_of_theorem()
        if reason is not None:
            self.guarantee = "none"
            warnings.warn(f"{reason}; radius={radius!r} is a heuristic here", stacklevel=2)
        self.start = self._squared_start(self.theta_bound)
        self.paper_start = self._squared_start(2.0 * self.theta_bound)
        self._create_buffers()

    def theory_ridge(self) -> float:
        """Return the smallest ridge of the paper's theorem, for this learner's eta."""
        R, eta, L = self.concordance, self.eta, self.feature_bound
        by_weight = max(3.0 * eta * R * self.predictor_bound, 1.0) * self.max_weight
        return 2.0 * L**2 * max(7.0 * self.dim * eta * R**2, by_weight)

    def _gap_of_theorem(self) -> str | None:
        """Return why the paper's theorem does not cover this learner, or None."""
        if not self.link.is_global:  # its proof averages the loss over a normal law
            return (
                f"link: {type(self.link).__name__} is not self-concordant for all predictors, as the theorem requires"
            )
        if self.ridge < self.theory_ridge():
            return f"ridge: {self.ridge:g} is below {self.theory_ridge():.6g}, from which the theorem holds"
        return None

    def warm_start(self, theta: Tensor, distance: float | None = None) -> None:
        if self.radius_kind == "tight":
            raise ValueError("theta: expected no warm start with radius='tight', whose proof starts at 0, got one")
        super().warm_start(theta, distance)

    def radius(self) -> Tensor:
        if self.radius_kind == "empirical":
            return self.radius_scale * sqrt(at_least(self.squared_radius, 0.0))
        if self.radius_kind == "paper":
            rate = 2.0 * self.max_weight * self.feature_bound**2 / self.ridge
            growth = 6.0 * self.dim * self.eta**2 * log(2.0 + rate * real(self.rounds + 1, self.theta_hat))
            return self.radius_scale * sqrt(growth + self.paper_start)
        # M of Lemma 6, as a multiple of its initial value.
        half = 0.5 * self.ridge
        information = logdet(add_diagonal(self.V, 0.0 * self.squared_radius - half) / half)
        return self.radius_scale * sqrt(6.0 * self.eta**2 * information + self.start)

    def posterior_scale(self) -> Tensor:
        r"""Return the scale of Laplace's approximation for steps of eta: ``(*B)``.

        It is :math:`\eta/\sqrt{2\eta-1}`, the error of the estimate in units of V: 1 for an :math:`\eta` of 1.
        """
        return self._scale_of_steps(self.eta)

    def _observe(self, x: Tensor, reward: Tensor, noise_scale: Tensor) -> None:
        theta_hat, eta = self.theta_hat, self.eta
        weight, square = 1.0 / (noise_scale * noise_scale), dot(x, x)
        self._check_length(square)
        product = matvec(self.V_inv, x)
        q = at_least(dot(x, product), 1e-30)
        z, bound = dot(x, theta_hat), self.theta_bound * sqrt(square)
        theta = self._descend(x, reward, weight, z, product, q)

        # The cost of the round, for any truth in the ball.
        y, move = dot(x, theta), theta - theta_hat
        force = matvec(self.V, move)
        rest = along(weight * (self.link.mean(y) - reward), x) * x + force / eta
        loss = self._regret_of_mixture(z, q, bound, y, reward, weight)
        slack = dot(rest, theta) + self.theta_bound * sqrt(dot(rest, rest))
        cost = 2.0 * eta * (loss + slack) - dot(move, force)
        # The Hessian weight that is kept is at the new estimate.
        self._absorb_(x, product, weight * self.link.slope(y), q, cost)
        assign_(theta_hat, theta)
