"""Base classes of the heavy-tailed baselines: horizons, epochs of repeated arms."""

import math
from typing import Any, Unpack

import numpy as np
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import unset_fake_temporarily

from torchonline.core.backend import may_hold
from torchonline.core.checks import positive, positive_integer, within
from torchonline.core.ops import along, ascending, at_least, at_most, dot, matvec, real, started_power
from torchonline.core.options import LearnerOptions
from torchonline.core.precision_matrix import add_outer_
from torchonline.linalg import project_ball_
from torchonline.links import Gaussian, Link
from torchonline.regression.estimator import NOISE_OF_UNIT_REWARDS, Estimator
from torchonline.regression.glm.base import checked_link, checked_min_slope


class HorizonOptions(LearnerOptions, total=False):
    """Options of the heavy-tailed baselines: see :class:`HorizonEstimator`."""

    moment_order: float
    noise_scale: float
    theta_bound: float
    ridge: float | None
    delta: float
    radius_scale: float


class HorizonEstimator(Estimator):
    r"""Base class of the baselines whose constants depend on a horizon.

    The radius after t >= 1 rounds is ``slope`` :math:`t^e` + ``radius_start``, and ``radius_start`` before, with
    :math:`e = (2-p)/(2p)` = ``power``. A subclass sets ``slope`` and ``radius_start``, or overrides the radius. A statement that
    a subclass calls recalled was checked against neither the paper's text nor code. Widths are those of
    :class:`~torchonline.regression.estimator.Estimator`, which defines when the confidence set holds.

    Args:
        dim, theta_bound, radius_scale, batch_shape, dtype, device, validate: as in
            :class:`~torchonline.regression.estimator.Estimator`.
        horizon: T, number of rounds that the constants are for.
        moment_order: p in (1, 2].
        noise_scale: :math:`\nu \ge 0`, the p-norm of the noise, in units of the reward. 1/2 holds for rewards in [0, 1]; larger
            noise needs a larger number.
        ridge: :math:`\lambda > 0`; None for d.
        delta: in (0, 1).
    """

    slope: float
    radius_start: float

    def __init__(
        self,
        dim: int,
        horizon: int,
        moment_order: float = 2.0,
        noise_scale: float = NOISE_OF_UNIT_REWARDS,
        theta_bound: float = 1.0,
        ridge: float | None = None,
        delta: float = 0.01,
        radius_scale: float = 1.0,
        **options: Unpack[LearnerOptions],
    ) -> None:
        super().__init__(dim, dim if ridge is None else ridge, radius_scale, noise_scale, theta_bound, **options)
        self.horizon = positive_integer("horizon", horizon)
        self.moment_order = within("moment_order", moment_order, 1.0, 2.0, closed=True)
        self.delta = within("delta", delta, 0.0, 1.0)
        self.power = (2.0 - self.moment_order) / (2.0 * self.moment_order)

    def _set_truncation(self, largest_mean: float, radius_factor: float) -> None:
        """Set the parts of TOFU and CRTM: radius, norm of rewards, log(2T/delta)^(-1/p)."""
        self.radius_factor = positive("radius_factor", radius_factor)
        p, eps = self.moment_order, self.moment_order - 1.0
        self.moment_norm = largest_mean + self.noise_scale
        self.log_factor = math.log(2.0 * self.horizon / self.delta) ** (-1.0 / p)
        log_term = math.log(2.0 * self.dim * self.horizon / self.delta)
        self.slope = self.radius_factor * math.sqrt(self.dim) * self.moment_norm * log_term ** (eps / p)
        self.radius_start = math.sqrt(self.ridge) * self.theta_bound

    def radius(self) -> Tensor:
        observations = real(self._observations(), self.theta_hat)
        return self.radius_scale * (self.slope * started_power(observations, self.power) + self.radius_start)

    def _observations(self) -> Tensor:
        """Return the number of observations learnt from, ``(*B)``."""
        return self.rounds


class LinkedEstimator(HorizonEstimator):
    r"""Base class of CRTM and CRMM: online Newton steps, with a link.

    The mean reward is :math:`\mu(x^\top\theta^*)`, with :math:`\mu` the mean of a link. Nothing else of the link is used:
    ``noise_scale`` describes the noise, and rewards may be any numbers. :math:`\kappa` is the least slope of :math:`\mu` where
    :math:`|z| \le LS`, 1 for the identity. Confidence sets and policies work on the predictor :math:`x^\top\theta`, which has the
    same order of arms as their means; ``forward`` and ``interval`` return mean rewards. With a link other than the identity,
    predictors are clipped to :math:`\pm LS`.
    """

    sized_options = ("link",)

    def _set_link(self, link: Link | None, feature_bound: float) -> None:
        """Set link, kappa and L."""
        self.feature_bound, bound = positive("feature_bound", feature_bound), feature_bound * self.theta_bound
        link = Gaussian() if link is None else checked_link(link, self.theta_bound, feature_bound)[0]
        is_identity = isinstance(link, Gaussian)
        self.smallest_slope = 1.0 if is_identity else checked_min_slope(link, self.theta_bound, bound)
        ends: Any = np.array([-bound, bound])
        # The number is read on the host, also under torch.device("meta") and in fake mode.
        with torch.device("cpu"), unset_fake_temporarily():
            self.largest_mean = bound if is_identity else float(abs(link.mean(ends)).max())
        self.end = math.inf if is_identity else bound
        self.link = link

    def _options(self) -> list[tuple[str, float]]:
        # The identity adds nothing, so that older files load.
        is_identity = isinstance(self.link, Gaussian)
        return super()._options() + (
            [] if is_identity else [("feature_bound", self.feature_bound), *self.link.signature()]
        )

    def _response(self, predictor: Tensor) -> Tensor:
        return self.link.mean(at_least(at_most(predictor, self.end), -self.end))

    def posterior_scale(self) -> Tensor:
        r"""Return the largest error of the steps, in units of V: ``(*B)``.

        Steps over :math:`\tfrac\kappa2xx^\top` are at least twice Newton's. Under noise of variance :math:`\nu^2` the error of
        the estimate has a covariance of at most :math:`2\nu^2/(3\kappa)\,V^{-1}`, after many rounds.
        """
        return self._for_each(self.noise_scale * math.sqrt(2.0 / (3.0 * self.smallest_slope)))

    def _newton_step_(self, x: Tensor, product: Tensor, quadratic: Tensor, residual: Tensor) -> None:
        """Take an online Newton step, given ``V^-1 x`` and kappa/2 times ``x'V^-1 x``."""
        theta_hat, root = self.theta_hat, math.sqrt(0.5 * self.smallest_slope)
        add_outer_(self._precision(), root * x, root * product, quadratic)
        theta_hat += along(residual / (1.0 + quadratic), x) * product
        project_ball_(theta_hat, self.V, self.theta_bound, self.validate)


def medians(values: Tensor) -> Tensor:
    """Return the medians of rows: ``(..., r)`` to ``(...)``."""
    values, count = ascending(values), values.shape[-1]
    return 0.5 * (values[..., (count - 1) // 2] + values[..., count // 2])


class EpochEstimator(HorizonEstimator):
    """Base class of the baselines that learn from one epoch of rewards at a time.

    An epoch is ``repeats`` rewards of one arm. The statistics stay constant during an epoch, so a UCB or greedy policy on fixed
    arms plays the same arm. If another arm interrupts an epoch, the learner drops the epoch: with new arms in every round it
    never learns, and a caller who leaves epochs because of their rewards biases the other epochs. ``epochs`` counts the completed
    epochs, ``epoch_pulls`` the rewards in this one. The ``noise_scale`` of ``step`` is not used.
    """

    runs_on_arrays = False  # sorting, medians and distances
    renamed = {"epoch_reward": "epoch_rewards", "pulls": "epoch_pulls"}
    epoch_x: Tensor
    epoch_rewards: Tensor
    epoch_pulls: Tensor
    epochs: Tensor

    def _set_repeats(self, repeats: int | None, usual: float) -> None:
        """Set the length of an epoch; ``usual``, rounded up, for None."""
        self.repeats = math.ceil(usual) if repeats is None else positive_integer("repeats", repeats)

    def _initial_state(self) -> dict[str, Tensor | None]:
        return super()._initial_state() | {
            "epoch_x": torch.zeros(self.dim, dtype=torch.float64),
            "epoch_rewards": torch.zeros(self.repeats, dtype=torch.float64),
            "epochs": torch.zeros((), dtype=torch.int64),
            "epoch_pulls": torch.zeros((), dtype=torch.int64),
        }

    def _observations(self) -> Tensor:
        return self.epochs

    def _learn_epoch(self, x: Tensor, rewards: Tensor) -> None:
        """Learn from rewards ``(*B, repeats)`` of x ``(*B, d)``, 0 where no epoch ends."""
        raise NotImplementedError

    def _observe(self, x: Tensor, reward: Tensor, noise_scale: Tensor) -> None:
        self._check_growth(x, dot(x, matvec(self.V_inv, x)))
        goes_on = (x == self.epoch_x).all(-1)
        pulls = self.epoch_pulls * goes_on + 1
        ends = pulls == self.repeats
        x = x.clone()
        rewards = self.epoch_rewards.scatter(-1, pulls.unsqueeze(-1) - 1, reward.unsqueeze(-1))
        if may_hold(ends):
            self._learn_epoch(along(ends.to(x.dtype), x) * x, rewards)
        self.epoch_x.copy_(x)
        self.epoch_rewards.copy_(rewards)
        self.epoch_pulls.copy_(pulls * ~ends)
        self.epochs += ends
        self._end_round_()
