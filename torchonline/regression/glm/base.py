"""Bases of the generalized linear estimators: links, and radii by mixtures."""

import math
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
import torch
from torch import Tensor

from torchonline.core import checks
from torchonline.core.backend import in_python
from torchonline.core.inputs import check_tensor
from torchonline.core.ops import (
    along,
    at_least,
    at_most,
    clip,
    column,
    logsumexp,
    maximum,
    minimum,
    row_dots,
    sqrt,
)
from torchonline.core.options import LearnerOptions
from torchonline.core.precision_matrix import increase_compensated_
from torchonline.linalg import project_ball_
from torchonline.links import Link, Logistic
from torchonline.regression.blocks import refuse_block
from torchonline.regression.estimator import Estimator

# Number of Gauss-Legendre nodes that carry the prior of a round's predictor.
NODES = 32


def checked_link(link: Any, theta_bound: Any, feature_bound: Any) -> tuple[Link, float]:
    """Check a link up to the largest predictor; return both. None means logistic."""
    bound = 1.0
    for name, value in (("theta_bound", theta_bound), ("feature_bound", feature_bound)):
        number = checks.positive(name, value)
        if not 1e-12 <= number <= 1e12:
            raise ValueError(f"{name}: expected from 1e-12 to 1e12, got {value}")
        bound *= number
    link = checks.instance_of("link", Logistic() if link is None else link, Link, "a torchonline.links.Link")
    link.check_bound(bound)
    if not link.is_global:  # norms of features are compared with their bound to six digits
        Link.check_bound(link, bound * (1.0 + 1e-5))
    return link, bound


def checked_min_slope(link: Link, theta_bound: float, bound: float) -> float:
    """Return a link's smallest slope. Refuse ``theta_bound`` if it is below 1e-12."""
    slope = link.min_slope(bound)
    if slope < 1e-12:
        expected = "one within which the link has slopes of at least 1e-12"
        raise ValueError(f"theta_bound: expected {expected}, got {theta_bound}, and a slope of {slope:.2g}")
    return slope


class GLMOptions(LearnerOptions, total=False):
    """Options of all generalized linear models: see :class:`GeneralizedEstimator`."""

    theta_bound: float
    feature_bound: float
    ridge: float | None
    delta: float
    radius_scale: float


class GeneralizedEstimator(Estimator):
    r"""Base of all generalized linear models.

    The mean reward is :math:`\mu(x^\top\theta^*)`, with the mean of a link. Confidence sets and policies work on the predictor
    :math:`x^\top\theta`, which orders the arms as their means do; ``forward`` and ``interval`` return mean rewards. A round's
    ``noise_scale`` is the square root of its dispersion: the mean of n trials has 1 / sqrt(n) times the scale of one trial.

    Args:
        dim, batch_shape, device, validate: as in :class:`~torchonline.regression.estimator.Estimator`.
        dtype: torch.float64 or torch.float32, of the state. The proofs are for float64.
        link: how the mean reward depends on the predictor: one of :mod:`torchonline.links`; None for ``Logistic()``. ``step``
            refuses rewards that are impossible under the link.
        theta_bound: S > 0, a bound on the norm of the true parameter. Too large costs regret; too small voids the guarantee
            (docs/promises.md).
        feature_bound: L > 0, a bound on the norm of features. ``step`` refuses longer ones. Too large costs
            :class:`GLMRegression` regret (docs/promises.md).
        ridge: :math:`\lambda > 0`; None for d.
        delta: probability in (0, 1) that the confidence set ever fails.
        radius_scale: multiplies the radius of choices; the update uses the radius of the proof. Other than 1 it is a heuristic.
    """

    eta: float
    statistics_depend_on: tuple[str, ...] = ("theta_bound", "feature_bound", "ridge", "noise_scale")

    def __init__(
        self,
        dim: int,
        link: Link | None = None,
        theta_bound: float = 1.0,
        feature_bound: float = 1.0,
        ridge: float | None = None,
        delta: float = 0.01,
        radius_scale: float = 1.0,
        **options: Unpack[LearnerOptions],
    ) -> None:
        link, bound = checked_link(link, theta_bound, feature_bound)
        # Set before the base class sets the ridge, which may derive from them.
        self.dim, self.delta = checks.positive_integer("dim", dim), checks.within("delta", delta, 0.0, 1.0)
        self.theta_bound, self.feature_bound, self.predictor_bound = float(theta_bound), float(feature_bound), bound
        self.concordance = link.self_concordance(bound)
        ridge = self._usual_ridge() if ridge is None else ridge
        super().__init__(dim, ridge, radius_scale, link.noise_scale, theta_bound, **options)
        self.link = link
        # A round without noise would outweigh all others forever.
        self.smallest_noise_scale = 1e-20 * self.noise_scale
        # Beyond this predictor, where the mean cannot be computed, the mean at this end is used.
        self.end = link.reach if link.is_global or math.isinf(link.reach) else self.predictor_bound
        self.longest = self.feature_bound

    def _usual_ridge(self) -> float:
        """Return the default ridge."""
        return self.dim

    def posterior_scale(self) -> Tensor:
        r"""Return 1, the scale of Laplace's approximation: ``(*B)``.

        V is the prior's precision :math:`\lambda I` plus the Fisher information, the sum of :math:`\mu'(x^\top\theta)\,xx^\top/g`
        near the estimate. So :math:`N(\hat\theta, V^{-1})` is Laplace's approximation of the posterior under the prior
        :math:`N(0, I/\lambda)`; it is exact for ``Gaussian`` rewards.
        """
        return self._for_each(1.0)

    def _scale_of_steps(self, rate: float) -> Tensor:
        r"""Return the posterior scale for steps of ``rate`` times Newton's: ``(*B)``.

        For a rate :math:`\eta \ge 1`, the error of the estimate has the covariance :math:`\eta^2/(2\eta-1)\,V^{-1}` after many
        rounds, which is :math:`V^{-1}` at 1. The posterior given this estimate alone is as wide.
        """
        return self._for_each(rate / math.sqrt(2.0 * rate - 1.0))

    def _options(self) -> list[tuple[str, float]]:
        return super()._options() + self.link.signature()

    def possible_reward(self, values: Tensor) -> Tensor:
        return self.link.possible(values)

    def _response(self, predictor: Tensor) -> Tensor:
        return self.link.mean(at_least(at_most(predictor, self.end), -self.end))

    def _descend(self, x: Tensor, reward: Tensor, weight: Tensor, z: Tensor, product: Tensor, q: Tensor) -> Tensor:
        """Return the next estimate, for z = x'theta_hat, product = V^-1 x, q = x'V^-1 x."""
        # Eq. (42a) of GLB-OMD, with the Hessian weight at the old estimate.
        slope = self.eta * weight * self.link.slope(z)
        pull = self.eta * weight * (self.link.mean(z) - reward) / (1.0 + slope * q)
        theta = self.theta_hat - along(pull, x) * product
        # Eq. (42b), with the matrix of (42a) in the norm.
        project_ball_(theta, self.V, self.theta_bound, self.validate, along(sqrt(slope), x) * x)
        return theta

    def _count_curvature_(self, x: Tensor, product: Tensor, curvature: Tensor, quadratic: Tensor) -> None:
        """Add ``curvature x x'`` to V and count the round."""
        # Written first, because x may be a view of any buffer.
        root = along(sqrt(curvature), x)
        self._add_outer_(root * x, root * product, quadratic)

    def _check_cost_in_python(self, cost: Any) -> None:
        most = self._largest(abs(cost))
        if not most < math.inf:
            text = f"reward: expected one whose cost the state's dtype can hold, got one of {most:g}"
            refuse_block(self, checks.refusal(text))

    @in_python(_check_cost_in_python)
    def _check_cost(self, cost: Tensor) -> None:
        """Refuse a round if its cost in radius, or another addition, is not finite."""
        return

    def _check_length_in_python(self, square: Any) -> None:
        largest = self._largest(square)
        if largest > (self.longest * (1.0 + 1e-6)) ** 2:
            allowed, way_out = f"{self.longest:g}, the feature_bound", "scale the features or raise feature_bound"
            got = f"got {math.sqrt(largest):.9g}"
            text = f"x: expected features of norm at most {allowed}, {got}; {way_out}"
            refuse_block(self, checks.refusal(text))

    @in_python(_check_length_in_python)
    def _check_length(self, square: Tensor) -> None:
        """Refuse features, with squared norm ``square``, that exceed the bound."""
        return

    def _check_features(self, name: str, x: Tensor) -> None:
        super()._check_features(name, x)
        if x.numel():
            self._check_length(row_dots(x, x))

    def _accepts_features(self, x: Tensor) -> Tensor:
        return checks.passes(x).all(-1) & (row_dots(x, x) <= (self.longest * (1.0 + 1e-6)) ** 2)

    def _accepts_rewards(self, reward: Tensor) -> Tensor:
        return checks.passes(reward) & (self.link.possible(reward) == reward)

    def _is_ordinary(self, reward: Any) -> bool:
        is_sure = (reward == 0.0) | (reward == 1.0)  # which every link accepts
        if self.link.takes_fractions:
            is_sure = (reward >= 0.0) & (reward <= 1.0)
        return is_sure if isinstance(is_sure, bool) else bool(is_sure.all())

    def _check_rewards(self, reward: Tensor, noise_scale: Tensor | None) -> None:
        super()._check_rewards(reward, noise_scale)
        if self.validate:
            impossible = self.link.possible(reward) != reward
            if bool(impossible.any()):
                expected = f"{self.link.rewards()}, as {type(self.link).__name__} has it"
                raise ValueError(f"reward: expected {expected}, got {reward[impossible][0].item()}")


class MixtureEstimator(GeneralizedEstimator):
    r"""Base of the models with a radius of summed costs, by the method of mixtures.

    The loss of a round is :math:`l(z) = (m(z) - rz)/g`. Let P be a prior on the round's predictor that is fixed before the
    reward. Then with probability at least 1 - ``delta``, the losses of the truth never exceed those of the mixture,
    :math:`-\log\int e^{-l}dP`, by more than :math:`\log(1/\delta)` in all (docs/generalized_linear_theory.md). P is the normal
    law that the statistics suggest, on ``NODES`` Gauss-Legendre nodes within 6 standard deviations and :math:`\pm S\|x\|`.
    The nodes are a prior themselves, so there is no quadrature error.

    ``misspecified`` becomes True, and stays True, when the squared radius falls below 0. If the assumptions hold, this happens
    with probability at most ``delta``. If they do not hold, it still happens rarely.

    Shape:
        - ``squared_radius``, ``misspecified`` (bool), ``(*B)``.
    """

    if TYPE_CHECKING:  # an annotation of None would hide the buffer from TorchScript
        squared_radius_lost: Tensor | None
    squared_radius: Tensor
    misspecified: Tensor
    nodes: Tensor
    node_log_weights: Tensor
    dropped = ("log_weights",)

    def _initial_state(self) -> dict[str, Tensor | None]:
        zero = torch.zeros((), dtype=torch.float64)
        return super()._initial_state() | {
            "squared_radius": zero + self._squared_start(self.theta_bound),
            "squared_radius_lost": zero if self.compensated else None,
            "misspecified": torch.tensor(False),
        }

    def _tables(self) -> dict[str, Tensor]:
        nodes, weights = np.polynomial.legendre.leggauss(NODES)
        return {"nodes": torch.from_numpy(nodes), "node_log_weights": torch.from_numpy(weights).log()}

    def _squared_start(self, distance: float) -> float:
        """Return the first squared radius, for a truth within ``distance`` of the start."""
        return self.ridge * distance**2 - 2.0 * self.eta * math.log(self.delta)

    def radius(self) -> Tensor:
        return self.radius_scale * sqrt(at_least(self.squared_radius, 0.0))

    def _regret_of_mixture(
        self, z: Tensor, quadratic: Tensor, bound: Tensor, y: Tensor, reward: Tensor, weight: Tensor
    ) -> Tensor:
        """Return the loss under a prior N(z, quadratic) on +-bound minus the loss at y."""
        centre, reach = clip(z, bound), 6.0 * sqrt(quadratic)
        low, high = maximum(centre - reach, -bound), minimum(centre + reach, bound)
        node = column(0.5 * (low + high)) + column(0.5 * (high - low)) * self.nodes
        distance = node - column(centre)
        prior = self.node_log_weights - distance * distance * column(0.5 / quadratic)
        loss = self.link.log_partition(node) - column(self.link.log_partition(y)) - column(reward) * (node - column(y))
        return logsumexp(prior) - logsumexp(prior - column(weight) * loss)

    def _absorb_(self, x: Tensor, product: Tensor, curvature: Tensor, q: Tensor, cost: Tensor) -> None:
        """Check and count a round, and add its cost to the squared radius."""
        quadratic = curvature * q
        self._check_growth(x, quadratic)
        self._check_cost(cost)
        self._count_curvature_(x, product, curvature, quadratic)
        self._count_cost_(cost)

    def _count_cost_(self, cost: Tensor) -> None:
        """Add a cost to the squared radius."""
        increase_compensated_(self.squared_radius, self.squared_radius_lost, cost)
        self.misspecified[...] = self.misspecified | (self.squared_radius < 0.0)

    def warm_start(self, theta: Tensor, distance: float | None = None) -> None:
        r"""Start from a guess of the parameter, before the first round. Eager Python only.

        Args:
            theta: the guess, ``(*B, d)``, with norm at most ``theta_bound``. :meth:`reset` forgets it.
            distance: a bound on the distance from the guess to the true parameter, which the confidence sets rely on; None for
                :math:`S + \|\theta\|`, which needs no knowledge.
        """
        theta = check_tensor("theta", theta, self.theta_hat)
        checks.check_shape("theta", theta, self.features_shape)
        checks.check_values("theta", theta)
        length = torch.linalg.vector_norm(theta.detach(), dim=-1)
        longest = float(length.max())
        if longest > self.theta_bound * (1.0 + 1e-6):
            raise ValueError(f"theta: expected a norm of at most theta_bound = {self.theta_bound:g}, got {longest:g}")
        if bool((self.rounds > 0).any()):
            raise ValueError(f"theta: expected before the first round, got after {int(self.rounds.max())}")
        known = self.theta_bound + length
        if distance is not None:
            known = torch.full_like(length, checks.positive_size("distance", distance, theta.dtype))
        with self._lock, torch.no_grad():
            self.theta_hat.copy_(theta)
            start = self._squared_start(0.0)
            self.squared_radius.copy_(start + (self._squared_start(1.0) - start) * known**2)
