"""Base classes of the baselines that minimise a robust loss over all rounds."""

import math
import warnings

import torch
from torch import Tensor

from torchonline.baselines.heavy_tailed.base import HorizonEstimator
from torchonline.baselines.stored_rounds import append_, count_filled, nonzero_norm
from torchonline.core.checks import positive
from torchonline.core.ops import along, clip, dot, matmul, matvec
from torchonline.core.precision_matrix import add_outer_
from torchonline.linalg import project_ball_


class HistoryEstimator(HorizonEstimator):
    r"""Base class of the baselines that store all rounds and minimise a robust loss.

    Over the ball :math:`\|\theta\| \le S`, they minimise

    .. math:: \tfrac\lambda2\|\theta\|^2 + \sum_s \rho_{\tau_s}(\tilde r_s - a_s^\top\theta),

    where :math:`a_s` and :math:`\tilde r_s` are features and reward, times the round's weight. The loss :math:`\rho` is Huber's
    unless a subclass overrides :meth:`_pull`, :meth:`_hessian`, :meth:`_arrives` and :meth:`_share`. Newton's method minimises
    the loss's quadratic model over the ball exactly, then follows that step as long as the loss decreases. For Huber's loss,
    which is piecewise quadratic, this is the semismooth Newton method: it ends after finitely many steps, up to rounding.

    The host decides when to stop, so it waits for an accelerator. torch.export cannot trace a step; TorchScript can compile it.

    Shape:
        - ``history`` of a, ``(*B, T, d)``; ``history_reward``, ``(*B, T)``.
    """

    runs_on_arrays = False  # passes over the history
    is_exportable = False
    history: Tensor
    history_reward: Tensor
    newton_steps: int
    resolution: float

    def _set_solver(self) -> None:
        self.newton_steps = 40  # at most; two or three are usual
        # A shorter step is rounding.
        self.resolution = 4.0 * torch.finfo(self._initial_options["dtype"]).eps * self.theta_bound

    def _initial_state(self) -> dict[str, Tensor | None]:
        return super()._initial_state() | {
            "history": torch.zeros(self.horizon, self.dim, dtype=torch.float64),
            "history_reward": torch.zeros(self.horizon, dtype=torch.float64),
        }

    def _thresholds(self, n: int) -> Tensor:
        """Return the thresholds of the first n rounds, ``(*B, n)``."""
        raise NotImplementedError

    def _store_(self, a: Tensor, g: Tensor, quadratic: Tensor, scaled_reward: Tensor) -> None:
        """Write a round to the history and to V, given ``V^-1 a`` and ``a'V^-1 a``."""
        # The first write, because TorchScript fails here if the history is full.
        append_(self.history, self.rounds, a)
        add_outer_(self._precision(), a, g, quadratic)
        append_(self.history_reward, self.rounds, scaled_reward)

    def _minimise(self, is_due: Tensor) -> None:
        """Move to the minimum over the ball where due, ``(*B)``."""
        n, ridge, theta = count_filled(self.rounds, self.horizon), self.ridge, self.theta_hat.clone()
        rows, thresholds = self.history[..., :n, :], self._thresholds(n)
        z = self.history_reward[..., :n] - matvec(rows, theta)
        done = ~is_due
        for _ in range(self.newton_steps):
            gradient = ridge * theta - matvec(rows.mT, self._pull(z, thresholds))
            hessian = self._hessian(rows, z, thresholds)
            # The minimum over the ball of the loss's local quadratic.
            target = (theta - self._solve(hessian, gradient)).contiguous()
            project_ball_(target, hessian, self.theta_bound, self.validate)
            direction = torch.where(done.unsqueeze(-1), 0.0 * theta, target - theta)
            change = matvec(rows, direction)
            # If the loss stays that quadratic, the step ends at the minimum. If not, it may be too long.
            arrives = self._arrives(z, change, thresholds, direction)
            share = self._share(z, change, thresholds, theta, direction, arrives)
            theta = theta + share.unsqueeze(-1) * direction
            z = z - share.unsqueeze(-1) * change
            done = done | arrives | theta.isnan().any(-1)  # NaN, from unchecked values, has no minimum
            if bool(done.all()):
                break
        if not bool(done.all()):
            warnings.warn(f"theta_hat: not at the minimum after {self.newton_steps} Newton steps", stacklevel=2)
        self.theta_hat.copy_(theta)
        self._arrived_(is_due, theta, z, rows, thresholds)

    def _arrived_(self, is_due: Tensor, theta: Tensor, z: Tensor, rows: Tensor, thresholds: Tensor) -> None:
        """Write the subclass's state at a minimum, besides ``theta_hat``."""
        return

    def _pull(self, z: Tensor, thresholds: Tensor) -> Tensor:
        """Return the derivative of the loss at residuals z."""
        return clip(z, thresholds)

    def _arrives(self, z: Tensor, change: Tensor, thresholds: Tensor, direction: Tensor) -> Tensor:
        """Return whether a whole step ends at the minimum, ``(*B)``."""
        # It does if linear rounds stay linear, and quadratic ones quadratic.
        same = (side(z - change, thresholds) == side(z, thresholds)).all(-1)
        return same | (nonzero_norm(direction) <= self.resolution)

    def _share(
        self, z: Tensor, change: Tensor, thresholds: Tensor, theta: Tensor, direction: Tensor, arrives: Tensor
    ) -> Tensor:
        """Return the fraction of a step, at most 1, with the lowest loss: ``(*B)``."""
        # The slope of the loss along the step is increasing, and bends where a round becomes quadratic or ceases to be.
        end_slope = self.ridge * dot(theta + direction, direction) - dot(clip(z - change, thresholds), change)
        too_far = (end_slope > 0.0) & ~arrives
        if not bool(too_far.any()):
            return torch.ones_like(end_slope)
        slope = self.ridge * dot(theta, direction) - dot(clip(z, thresholds), change)
        # A round is quadratic while |z - s change| <= threshold, between two shares s of the step.
        size = torch.where(change == 0.0, torch.ones_like(change), change)
        ends = torch.stack([(z - thresholds) / size, (z + thresholds) / size], -1).sort(-1).values.clamp(0.0, 1.0)
        square = change * change
        at = torch.cat([ends[..., 0], ends[..., 1], torch.ones_like(slope).unsqueeze(-1)], -1)
        bend = torch.cat([square, -square, torch.zeros_like(slope).unsqueeze(-1)], -1)
        at, order = at.sort(-1)
        # Before a bend, the slope grows at the rate of the ridge and of all earlier bends.
        growth = (self.ridge * dot(direction, direction)).unsqueeze(-1)
        before = growth + torch.cat([torch.zeros_like(growth), bend.gather(-1, order).cumsum(-1)[..., :-1]], -1)
        gaps = torch.cat([at[..., :1], at[..., 1:] - at[..., :-1]], -1)
        slopes = slope.unsqueeze(-1) + (before * gaps).cumsum(-1)
        first = (slopes >= 0.0).to(torch.int64).argmax(-1, keepdim=True)
        root = at.gather(-1, first) - slopes.gather(-1, first) / before.gather(-1, first).clamp(min=1e-300)
        return torch.where(too_far, root.squeeze(-1).clamp(0.0, 1.0), torch.ones_like(slope))

    def _solve(self, hessian: Tensor, vector: Tensor) -> Tensor:
        """Return ``hessian^-1 vector``. No eigenvalue is below ridge, except by rounding."""
        broken = hessian.isnan().any(-1).any(-1)  # from unchecked values: eigh would raise
        values, vectors = torch.linalg.eigh(hessian.masked_fill(broken[..., None, None], self.ridge))
        solution = matvec(vectors, matvec(vectors.mT, vector) / values.clamp(min=self.ridge))
        return solution.masked_fill(broken.unsqueeze(-1), math.nan)

    def _hessian(self, rows: Tensor, z: Tensor, thresholds: Tensor) -> Tensor:
        """Return the Hessian of the loss. Linear rounds do not contribute to Huber's."""
        is_linear = z.abs() > thresholds
        if not bool(is_linear.any()):
            return self.V
        kept = rows * (~is_linear).unsqueeze(-1)
        return matmul(kept.mT, kept) + torch.diag_embed(torch.full_like(kept[..., 0, :], self.ridge))


class ScaledHistoryEstimator(HistoryEstimator):
    r"""Base class of HEAVY-OFUL and AdaOFUL, whose rounds have scales and thresholds.

    With :math:`q = \|x\|_{V^{-1}}` and :math:`w = q/\sigma`, a round of scale :math:`\sigma` has :math:`a = x/\sigma` and
    :math:`\tilde r = r/\sigma`, adds :math:`aa^\top` to V, and has the threshold :math:`\tau_0 t^e\sqrt{1+w^2}/w`.

    Shape:
        - ``history_threshold``, ``(*B, T)``.
    """

    history_threshold: Tensor

    def _initial_state(self) -> dict[str, Tensor | None]:
        return super()._initial_state() | {"history_threshold": torch.zeros(self.horizon, dtype=torch.float64)}

    def posterior_scale(self) -> Tensor:
        """Return 1, because V is in units of the noise: ``(*B)``."""
        return self._for_each(1.0)

    def _set_scales(self, feature_bound: float, minimum_scale: float | None) -> None:
        """Set the bounds of features and scales, log(2 T^2 / delta) and kappa."""
        T = float(self.horizon)
        self.feature_bound = positive("feature_bound", feature_bound)
        self.minimum_scale = self.horizon**-0.5 if minimum_scale is None else positive("minimum_scale", minimum_scale)
        self.log_term = math.log(2.0 * T * T / self.delta)
        growth = self.feature_bound**2 * T / (self.dim * self.ridge * self.minimum_scale**2)
        self.kappa = self.dim * math.log1p(growth)

    def _thresholds(self, n: int) -> Tensor:
        return self.history_threshold[..., :n]

    def _learn_scaled_(
        self, x: Tensor, reward: Tensor, product: Tensor, q: Tensor, sigma: Tensor, growth: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Store a round; return its features, reward and threshold."""
        w = q / sigma
        quadratic = w * w
        self._check_growth(x, quadratic)
        threshold = growth * (1.0 + quadratic).sqrt() / w.clamp(min=1e-30)
        inverse = 1.0 / sigma
        a, scaled_reward = along(inverse, x) * x, inverse * reward
        self._store_(a, along(inverse, x) * product, quadratic, scaled_reward)
        append_(self.history_threshold, self.rounds, threshold)
        return a, scaled_reward, threshold


def side(z: Tensor, threshold: Tensor) -> Tensor:
    """Return the sign of z where the Huber loss is linear, 0 where it is quadratic."""
    return (z > threshold).to(torch.int8) - (z < -threshold).to(torch.int8)
