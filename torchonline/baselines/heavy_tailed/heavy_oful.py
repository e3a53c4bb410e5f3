"""HEAVY-OFUL: adaptive Huber regression over all rounds, solved exactly (Huang, Zhong, Wang and Yang, NeurIPS 2023)."""

import math
import warnings

import torch
from torch import Tensor

from torchonline.bandits.linear_model import default_ridge
from torchonline.bandits.policies import UCB
from torchonline.baselines.stored_rounds import HistoryEstimator, nonzero_norm
from torchonline.core.checks import non_negative, positive, within
from torchonline.core.ops import along, clip, dot, matvec, real, started_power
from torchonline.core.precision_matrix import add_outer_
from torchonline.linalg import project_ball_


class HeavyOFULRegression(HistoryEstimator):
    r"""Huber regression over all rounds so far, with the scales and the radius of HEAVY-OFUL.

    Round t, with :math:`q = \|x\|_{V^{-1}}`, p = ``moment_order`` :math:`= 1+\varepsilon` and
    :math:`e = (1-\varepsilon)/(2(1+\varepsilon))`:

    .. math:: \sigma_t &= \max\Bigl(\nu_t,\ \sigma_{\min},\ q/c_0,\ \sqrt{LSq}/(c_1\,2\kappa)^{1/4}\Bigr), \qquad
              w_t = q/\sigma_t,\qquad \tau_t = \tau_0 t^e\sqrt{1+w_t^2}/w_t \\
              V &\leftarrow V + xx^\top/\sigma_t^2,\qquad
              \hat\theta = \arg\min_{\|\theta\|\le S} \tfrac\lambda2\|\theta\|^2
              + \sum_{s\le t} h_{\tau_s}\Bigl(\frac{r_s - x_s^\top\theta}{\sigma_s}\Bigr)

    where :math:`h_\tau` is the Huber loss, quadratic up to :math:`\tau` and linear beyond. Widths are
    :math:`\|x\|_{V^{-1}}`; the radius after t >= 1 rounds is :math:`b_1\sqrt\lambda S + b_2 t^e \sqrt{2\kappa}(\log 3T)^e
    \ell^{\varepsilon/p}`, and its first term before.

    The minimum is found to rounding, by Newton's method with a line search. The last solution comes with a ball around it,
    ``room`` wide, in which no round changes between quadratic and linear; while the minimum stays in it, the loss is one
    known quadratic and a round costs O(d^3). Only where it leaves that ball are all rounds gone over, a few times each.

    Guarantee. As we recall it, the paper states that the confidence set holds with probability 1 - 3 ``delta``. The constants of
    the defaults are recalled too, and neither has been checked against its text: 23 in :math:`c_0 = (23\,\ell)^{-1/2}`, 48 in
    :math:`c_1 = (\log 3T)^{2e}/(48\,\ell^{2/p})`, :math:`b_1 = 3` and :math:`b_2 = 24`.

    Cost of round t: O(d^3) time in most rounds, O(t d^2) in those that leave the room. Memory O(T d). The host asks which it is,
    so an accelerator's host waits, and torch.export cannot follow; TorchScript can.

    Raises, from ``step`` besides what the contract says: ValueError after ``horizon`` rounds, when the history of a learner is
    full; in TorchScript RuntimeError. ``export`` tries out a dozen rounds on a copy, for which there must be room. A
    UserWarning says so should Newton's method end short of the minimum.

    Args:
        dim: d, number of features.
        horizon: T, number of rounds that the radius and the history are for.
        moment_order: p in (1, 2].
        noise_scale: :math:`\nu \ge 0`, the p-norm of the noise, in units of the reward; ``step`` takes each round's own.
        theta_bound: S > 0, a bound on the norm of the true parameter.
        feature_bound: L > 0, a bound on the norm of features.
        ridge: :math:`\lambda > 0`; None for d / S^2.
        delta: in (0, 1); None for 1 / (8 T), as in :class:`~torchonline.HvtUCB`.
        minimum_scale: :math:`\sigma_{\min} > 0`; None for 1 / sqrt(T).
        scale_factor: 23 in :math:`c_0`, recalled.
        linear_factor: 48 in :math:`c_1`, recalled.
        ridge_factor: :math:`b_1`, recalled.
        radius_factor: :math:`b_2`, recalled.
        radius_scale: multiplies the radius.
        batch_shape: ``*B``, independent learners in one module.
        dtype: torch.float64 or torch.float32, of the state.
        device: where the state lives.
        validate: whether values are checked in each call.

    Shape:
        - ``theta_hat``, ``(*B, d)``; ``V``, ``V_inv``, ``(*B, d, d)``; ``rounds``, ``(*B)``; ``history`` of :math:`x/\sigma`,
          ``(*B, T, d)``; ``history_reward`` of :math:`r/\sigma` and ``history_threshold`` of :math:`\tau`, ``(*B, T)``;
          ``centre`` and ``pull``, ``(*B, d)``, ``hessian``, ``(*B, d, d)``, and ``room``, ``(*B)``, of the quadratic
          :math:`\tfrac12u^\top Hu - u^\top\text{pull}` that the loss is, but for a constant, around ``centre``.

    Example:
        >>> learner = HeavyOFULRegression(2, horizon=100)
        >>> learner.step(torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([1.0, 1e9]))
        >>> int(learner.rounds), bool(learner.theta_hat.norm() <= 1.0)
        (2, True)

    Reference:
        Huang, Zhong, Wang and Yang, Tackling Heavy-Tailed Rewards in Reinforcement Learning with Function Approximation:
        Minimax Optimal and Instance-Dependent Regret Bounds, NeurIPS 2023 (arXiv:2306.06836). What differs: the minimum is
        found to rounding; papers that time it use gradient descent over all rounds.
    """

    statistics_depend_on = (
        "horizon",
        "moment_order",
        "theta_bound",
        "feature_bound",
        "ridge",
        "delta",
        "minimum_scale",
        "scale_factor",
        "linear_factor",
    )

    is_exportable = False

    history_reward: Tensor
    history_threshold: Tensor
    hessian: Tensor
    pull: Tensor
    centre: Tensor
    room: Tensor

    def __init__(
        self,
        dim: int,
        *,
        horizon: int,
        moment_order: float = 2.0,
        noise_scale: float = 1.0,
        theta_bound: float = 1.0,
        feature_bound: float = 1.0,
        ridge: float | None = None,
        delta: float | None = None,
        minimum_scale: float | None = None,
        scale_factor: float = 23.0,
        linear_factor: float = 48.0,
        ridge_factor: float = 3.0,
        radius_factor: float = 24.0,
        radius_scale: float = 1.0,
        batch_shape: tuple[int, ...] = (),
        dtype: torch.dtype = torch.float64,
        device: torch.device | str | None = None,
        validate: bool = True,
    ) -> None:
        super().__init__(
            dim,
            noise_scale=non_negative("noise_scale", noise_scale),
            theta_bound=theta_bound,
            ridge=default_ridge(dim, theta_bound) if ridge is None else ridge,
            radius_scale=radius_scale,
            batch_shape=batch_shape,
            dtype=dtype,
            device=device,
            validate=validate,
        )
        self._keep(horizon)
        self.moment_order = within("moment_order", moment_order, 1.0, 2.0, closed=True)
        self.feature_bound = positive("feature_bound", feature_bound)
        self.delta = 1.0 / (8.0 * horizon) if delta is None else within("delta", delta, 0.0, 1.0)
        self.minimum_scale = horizon**-0.5 if minimum_scale is None else positive("minimum_scale", minimum_scale)
        self.scale_factor = positive("scale_factor", scale_factor)
        self.linear_factor = positive("linear_factor", linear_factor)
        self.ridge_factor = positive("ridge_factor", ridge_factor)
        self.radius_factor = positive("radius_factor", radius_factor)
        p, eps, T = self.moment_order, self.moment_order - 1.0, float(self.horizon)
        self.power = (1.0 - eps) / (2.0 * p)
        ell, log_3t = math.log(2.0 * T * T / self.delta), math.log(3.0 * T)
        kappa = dim * math.log1p(self.feature_bound**2 * T / (dim * self.ridge * self.minimum_scale**2))
        self.tau0 = math.sqrt(2.0 * kappa) * log_3t**self.power / ell ** (1.0 / p)
        self.inverse_c0 = math.sqrt(self.scale_factor * ell)
        c1 = log_3t ** (2.0 * self.power) / (self.linear_factor * ell ** (2.0 / p))
        self.root_factor = math.sqrt(self.feature_bound * self.theta_bound) / (c1 * 2.0 * kappa) ** 0.25
        self.slope = self.radius_factor * math.sqrt(2.0 * kappa) * log_3t**self.power * ell ** (eps / p)
        self.radius_start = self.ridge_factor * math.sqrt(self.ridge) * self.theta_bound
        # At most; two or three are usual.
        self.newton_steps = 40
        # A step this short is rounding: of a round on its threshold, which is linear in one step and quadratic in the next.
        self.resolution = 4.0 * torch.finfo(dtype).eps * self.theta_bound
        self._create_buffers()

    def _initial_state(self) -> dict[str, Tensor | None]:
        zeros = torch.zeros(self.dim, dtype=torch.float64)
        return super()._initial_state() | {
            "history_reward": torch.zeros(self.horizon, dtype=torch.float64),
            "history_threshold": torch.zeros(self.horizon, dtype=torch.float64),
            "hessian": self.ridge * torch.eye(self.dim, dtype=torch.float64),
            "pull": zeros,
            "centre": zeros,
            # No two points of the ball are further apart.
            "room": torch.full((), 4.0 * self.theta_bound, dtype=torch.float64),
        }

    @torch.jit.export
    def radius(self) -> Tensor:
        rounds = real(self.rounds, self.theta_hat)
        return self.radius_scale * (self.slope * started_power(rounds, self.power) + self.radius_start)

    def _observe(self, x: Tensor, reward: Tensor, noise_scale: Tensor) -> None:
        product = matvec(self.V_inv, x)
        q = dot(x, product).clamp(min=0.0).sqrt()
        sigma = torch.maximum(self.inverse_c0 * q, self.root_factor * q.sqrt())
        sigma = torch.maximum(sigma.clamp(min=self.minimum_scale), noise_scale)
        w = q / sigma
        quadratic = w * w
        self._check_room()
        self._check_growth(x, quadratic)
        growth = self.tau0 * real(self.rounds + 1, self.theta_hat) ** self.power
        threshold = growth * (1.0 + quadratic).sqrt() / w.clamp(min=1e-30)
        inverse = 1.0 / sigma
        a, scaled_reward = along(inverse, x) * x, inverse * reward
        g = along(inverse, x) * product
        # First of all writes: it fails, in TorchScript, where there is no room.
        self._append(self.history, a)
        add_outer_(self._precision(), a, g, quadratic)
        self._append(self.history_reward, scaled_reward)
        self._append(self.history_threshold, threshold)
        # The quadratic that the loss is near `centre`, with the new round as it is there.
        z = scaled_reward - dot(a, self.centre)
        is_quadratic = (z.abs() <= threshold).to(a.dtype)
        self.hessian += (is_quadratic.unsqueeze(-1) * a).unsqueeze(-1) * a.unsqueeze(-2)
        self.pull += torch.where(z.abs() <= threshold, scaled_reward, clip(z, threshold)).unsqueeze(-1) * a
        self.room.copy_(torch.minimum(self.room, (z.abs() - threshold).abs() / nonzero_norm(a)))
        self.theta_hat.copy_(self._solve(self.hessian, self.pull))
        project_ball_(self.theta_hat, self.hessian, self.theta_bound, self.validate)
        is_lost = nonzero_norm(self.theta_hat - self.centre) > self.room
        if bool(is_lost.any()):
            self._minimise(is_lost)
        self._end_round_()

    def _minimise(self, is_lost: Tensor) -> None:
        """Move theta_hat to the minimum of the loss over the ball, going over all rounds, in the learners that lost it."""
        n, ridge, theta = self._filled(), self.ridge, self.theta_hat.clone()
        rows, thresholds = self.history[..., :n, :], self.history_threshold[..., :n]
        z = self.history_reward[..., :n] - matvec(rows, theta)
        done = ~is_lost
        for _ in range(self.newton_steps):
            # To the minimum that the loss would have if linear rounds stayed linear, and quadratic ones quadratic.
            gradient = ridge * theta - matvec(rows.mT, clip(z, thresholds))
            hessian = self._hessian(rows, z.abs() > thresholds)
            target = (theta - self._solve(hessian, gradient)).contiguous()
            project_ball_(target, hessian, self.theta_bound, self.validate)
            direction = torch.where(done.unsqueeze(-1), 0.0 * theta, target - theta)
            change = matvec(rows, direction)
            # If they do, it is the minimum; if not, it may be too far.
            arrives = (side(z - change, thresholds) == side(z, thresholds)).all(-1)
            arrives = arrives | (nonzero_norm(direction) <= self.resolution)
            share = self._share(z, change, thresholds, theta, direction, arrives)
            theta = theta + share.unsqueeze(-1) * direction
            z = z - share.unsqueeze(-1) * change
            done = done | arrives
            if bool(done.all()):
                break
        if not bool(done.all()):
            warnings.warn(f"theta_hat: not at the minimum after {self.newton_steps} Newton steps", stacklevel=2)
        self.theta_hat.copy_(theta)
        # What the next rounds may take for granted: the quadratic, and how far from here it is the loss.
        hessian = self._hessian(rows, z.abs() > thresholds)
        pull = matvec(hessian, theta) - ridge * theta + matvec(rows.mT, clip(z, thresholds))
        distance = (z.abs() - thresholds).abs() / nonzero_norm(rows)
        # A learner that is behind the others has empty rows, which have no threshold.
        room = torch.where(thresholds > 0.0, distance, torch.full_like(distance, math.inf)).amin(-1)
        room = room.clamp(max=4.0 * self.theta_bound)
        of_vector, of_matrix = is_lost.unsqueeze(-1), is_lost.unsqueeze(-1).unsqueeze(-1)
        self.centre.copy_(torch.where(of_vector, theta, self.centre))
        self.pull.copy_(torch.where(of_vector, pull, self.pull))
        self.hessian.copy_(torch.where(of_matrix, hessian, self.hessian))
        self.room.copy_(torch.where(is_lost, room, self.room))

    def _share(
        self, z: Tensor, change: Tensor, thresholds: Tensor, theta: Tensor, direction: Tensor, arrives: Tensor
    ) -> Tensor:
        """How much of a step, up to all of it, takes the loss to its minimum along the step: ``(*B)``.

        The slope of the loss along the step is piecewise linear and grows: it bends where a round becomes quadratic, and
        where it ceases to be. Its root is found by sorting the bends.
        """
        end_slope = self.ridge * dot(theta + direction, direction) - dot(clip(z - change, thresholds), change)
        too_far = (end_slope > 0.0) & ~arrives
        if not bool(too_far.any()):
            return torch.ones_like(end_slope)
        slope = self.ridge * dot(theta, direction) - dot(clip(z, thresholds), change)
        # Round i is quadratic while |z - s change| <= threshold, between two shares s of the step.
        size = torch.where(change == 0.0, torch.ones_like(change), change)
        ends = torch.stack([(z - thresholds) / size, (z + thresholds) / size], -1).sort(-1).values.clamp(0.0, 1.0)
        square = change * change
        at = torch.cat([ends[..., 0], ends[..., 1], torch.ones_like(slope).unsqueeze(-1)], -1)
        bend = torch.cat([square, -square, torch.zeros_like(slope).unsqueeze(-1)], -1)
        at, order = at.sort(-1)
        # The slope of the slope up to a bend is what came of all before it, and of the ridge.
        growth = (self.ridge * dot(direction, direction)).unsqueeze(-1)
        before = growth + torch.cat([torch.zeros_like(growth), bend.gather(-1, order).cumsum(-1)[..., :-1]], -1)
        gaps = torch.cat([at[..., :1], at[..., 1:] - at[..., :-1]], -1)
        slopes = slope.unsqueeze(-1) + (before * gaps).cumsum(-1)
        first = (slopes >= 0.0).to(torch.int64).argmax(-1, keepdim=True)
        root = at.gather(-1, first) - slopes.gather(-1, first) / before.gather(-1, first).clamp(min=1e-300)
        return torch.where(too_far, root.squeeze(-1).clamp(0.0, 1.0), torch.ones_like(slope))

    def _solve(self, hessian: Tensor, vector: Tensor) -> Tensor:
        """``hessian^-1 vector``; no eigenvalue is below ridge, but for rounding."""
        values, vectors = torch.linalg.eigh(hessian)
        return matvec(vectors, matvec(vectors.mT, vector) / values.clamp(min=self.ridge))

    def _hessian(self, rows: Tensor, linear: Tensor) -> Tensor:
        """Of the loss, in which the linear rounds have no part."""
        if not bool(linear.any()):
            return self.V
        kept = rows * (~linear).unsqueeze(-1)
        return torch.matmul(kept.mT, kept) + torch.diag_embed(torch.full_like(kept[..., 0, :], self.ridge))


def side(z: Tensor, threshold: Tensor) -> Tensor:
    """Where the Huber loss is linear, 1 on the right and -1 on the left; 0 where it is quadratic."""
    return (z > threshold).to(torch.int8) - (z < -threshold).to(torch.int8)


class HeavyOFUL(UCB):
    """HEAVY-OFUL: optimism over :class:`HeavyOFULRegression`.

    The arguments, what is known of them and the cost are the estimator's.

    Example:
        >>> policy = HeavyOFUL(2, horizon=1000, noise_scale=0.5)
        >>> arms = torch.eye(2)
        >>> choice = policy.select(arms)
        >>> policy.step(arms[choice], torch.tensor(0.7))
        >>> int(policy.estimator.rounds)
        1
    """

    def __init__(
        self,
        dim: int,
        *,
        horizon: int,
        moment_order: float = 2.0,
        noise_scale: float = 1.0,
        theta_bound: float = 1.0,
        feature_bound: float = 1.0,
        ridge: float | None = None,
        delta: float | None = None,
        minimum_scale: float | None = None,
        scale_factor: float = 23.0,
        linear_factor: float = 48.0,
        ridge_factor: float = 3.0,
        radius_factor: float = 24.0,
        radius_scale: float = 1.0,
        batch_shape: tuple[int, ...] = (),
        dtype: torch.dtype = torch.float64,
        device: torch.device | str | None = None,
        validate: bool = True,
    ) -> None:
        super().__init__(
            HeavyOFULRegression(
                dim,
                horizon=horizon,
                moment_order=moment_order,
                noise_scale=noise_scale,
                theta_bound=theta_bound,
                feature_bound=feature_bound,
                ridge=ridge,
                delta=delta,
                minimum_scale=minimum_scale,
                scale_factor=scale_factor,
                linear_factor=linear_factor,
                ridge_factor=ridge_factor,
                radius_factor=radius_factor,
                radius_scale=radius_scale,
                batch_shape=batch_shape,
                dtype=dtype,
                device=device,
                validate=validate,
            )
        )
