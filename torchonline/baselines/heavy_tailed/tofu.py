"""TOFU: truncation based on historical information (Shao, Yu, King and Lyu, NeurIPS 2018)."""

import math

import torch
from torch import Tensor

from torchonline.bandits.policies import UCB
from torchonline.baselines.stored_rounds import HistoryEstimator, nonzero_norm
from torchonline.core.backend import may_hold
from torchonline.core.checks import non_negative, positive, within
from torchonline.core.ops import (
    dot,
    matvec,
    real,
    started_power,
)
from torchonline.core.precision_matrix import add_outer_


class TOFURegression(HistoryEstimator):
    r"""Ridge regression with the terms of all rounds truncated anew in each round, as in TOFU.

    Round t, with p = ``moment_order`` :math:`= 1+\varepsilon`, :math:`e = (1-\varepsilon)/(2(1+\varepsilon))` and
    :math:`u = (LS + \nu)^p`, which bounds the p-th absolute moment of the reward:

    .. math:: V \leftarrow V + xx^\top, \qquad U = V^{-1/2}[x_1 \dots x_t], \qquad
              \hat\theta = V^{-1/2}\Bigl(\sum_{s\le t} U_{is}r_s\,1\{|U_{is}r_s| \le b_t\}\Bigr)_{i\le d}, \qquad
              b_t = (u/\log(2T/\delta))^{1/p}\,t^e.

    Widths are :math:`\|x\|_{V^{-1}}`; the radius after t >= 1 rounds is
    :math:`c\sqrt d\,u^{1/p}\log(2dT/\delta)^{\varepsilon/p}\,t^e + \sqrt\lambda S`, and its second term before.

    Which terms are truncated is known, for rows of :math:`V^{-1/2}/b_t` that are at most ``room`` from those at which all were
    looked at; only where a row has moved further are all terms looked at again. The result is that of looking always.

    Guarantee. As we recall it, the paper states that the confidence set holds with probability 1 - ``delta``. Its constants (c =
    ``radius_factor`` = 4, the two logarithms) are recalled too; neither has been checked against its text.

    Cost of round t: O(d^3) time in most rounds, O(t d^2) in those in which a row leaves its room, and in all on an accelerator.
    Memory O(T d).

    Raises, from ``step`` besides what the contract says: ValueError after ``horizon`` rounds, when the history of a learner is
    full; in TorchScript and in an exported program RuntimeError, and such a program then cannot choose either. ``export`` tries
    out a dozen rounds on a copy, for which there must be room.

    Args:
        dim: d, number of features.
        horizon: T, number of rounds that the constants and the history are for.
        moment_order: p in (1, 2].
        noise_scale: :math:`\nu \ge 0`, the p-norm of the noise, in units of the reward. One for all rounds: what ``step`` is
            given is not used.
        theta_bound: S > 0, a bound on the norm of the true parameter.
        feature_bound: L > 0, a bound on the norm of features.
        ridge: :math:`\lambda > 0`; None for d.
        delta: in (0, 1).
        radius_factor: c > 0, recalled.
        radius_scale: multiplies the radius.
        batch_shape: ``*B``, independent learners in one module.
        dtype: torch.float64 or torch.float32, of the state.
        device: where the state lives.
        validate: whether values are checked in each call.

    Shape:
        - ``theta_hat``, ``(*B, d)``; ``V``, ``V_inv``, ``(*B, d, d)``; ``rounds``, ``(*B)``; ``history`` of
          :math:`rx`, ``(*B, T, d)``; ``centre``, the rows of :math:`V^{-1/2}/b_t` when all terms were looked at, and
          ``kept``, for each of them the sum of :math:`rx` that are kept, ``(*B, d, d)``; ``room``, ``(*B, d)``.

    Example:
        >>> learner = TOFURegression(2, horizon=100)
        >>> learner.step(torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([0.5, 1e9]))
        >>> learner.theta_hat
        tensor([0.1667, 0.0000], dtype=torch.float64)

    Reference:
        Shao, Yu, King and Lyu, Almost Optimal Algorithms for Linear Stochastic Bandits with Heavy-Tailed Payoffs, NeurIPS
        2018 (arXiv:1810.10895).
    """

    statistics_depend_on = (
        "horizon",
        "moment_order",
        "noise_scale",
        "theta_bound",
        "feature_bound",
        "ridge",
        "delta",
    )

    centre: Tensor
    kept: Tensor
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
        delta: float = 0.01,
        radius_factor: float = 4.0,
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
            ridge=dim if ridge is None else ridge,
            radius_scale=radius_scale,
            batch_shape=batch_shape,
            dtype=dtype,
            device=device,
            validate=validate,
        )
        self._keep(horizon)
        self.moment_order = within("moment_order", moment_order, 1.0, 2.0, closed=True)
        self.feature_bound = positive("feature_bound", feature_bound)
        self.delta = within("delta", delta, 0.0, 1.0)
        self.radius_factor = positive("radius_factor", radius_factor)
        p, eps = self.moment_order, self.moment_order - 1.0
        self.power = (1.0 - eps) / (2.0 * p)
        moment_norm = self.feature_bound * self.theta_bound + self.noise_scale
        self.threshold = moment_norm * math.log(2.0 * self.horizon / self.delta) ** (-1.0 / p)
        log_term = math.log(2.0 * dim * self.horizon / self.delta)
        self.slope = self.radius_factor * math.sqrt(dim) * moment_norm * log_term ** (eps / p)
        self.radius_start = math.sqrt(self.ridge) * self.theta_bound
        self._create_buffers()

    def _initial_state(self) -> dict[str, Tensor | None]:
        zeros = torch.zeros(self.dim, self.dim, dtype=torch.float64)
        return super()._initial_state() | {"centre": zeros, "kept": zeros, "room": zeros[0]}

    @torch.jit.export
    def radius(self) -> Tensor:
        rounds = real(self.rounds, self.theta_hat)
        return self.radius_scale * (self.slope * started_power(rounds, self.power) + self.radius_start)

    def _observe(self, x: Tensor, reward: Tensor, noise_scale: Tensor) -> None:
        product = matvec(self.V_inv, x)
        quadratic = dot(x, product)
        self._check_room()
        self._check_growth(x, quadratic)
        m = reward.unsqueeze(-1) * x
        self._append(self.history, m)
        add_outer_(self._precision(), x.clone(), product, quadratic)
        values, vectors = torch.linalg.eigh(self.V)
        # No eigenvalue is below ridge, but for rounding.
        root = torch.matmul(vectors * values.clamp(min=self.ridge).rsqrt().unsqueeze(-2), vectors.mT)
        threshold = self.threshold * real(self.rounds + 1, m) ** self.power
        rows = root / threshold.unsqueeze(-1).unsqueeze(-1)
        # A term is kept where |row m| <= 1. The new one, by the rows for which all others are known.
        size = matvec(self.centre, m).abs()
        self.kept += (size <= 1.0).unsqueeze(-1) * m.unsqueeze(-2)
        self.room.copy_(torch.minimum(self.room, (size - 1.0).abs() / nonzero_norm(m).unsqueeze(-1)))
        is_lost = (nonzero_norm(rows - self.centre) > self.room).any(-1)
        if may_hold(is_lost):
            self._go_over_all(rows, is_lost)
        self.theta_hat.copy_(matvec(root, (root * self.kept).sum(-1)))
        self._end_round_()

    def _go_over_all(self, rows: Tensor, is_lost: Tensor) -> None:
        """Find out anew which terms of which rows are kept, in the learners that have lost count."""
        history = self.history[..., : self._filled(), :]
        size = torch.matmul(history, rows.mT).abs()
        kept = torch.matmul((size <= 1.0).to(history.dtype).mT, history)
        room = ((size - 1.0).abs() / nonzero_norm(history).unsqueeze(-1)).amin(-2)
        of_matrix = is_lost.unsqueeze(-1).unsqueeze(-1)
        self.kept.copy_(torch.where(of_matrix, kept, self.kept))
        self.centre.copy_(torch.where(of_matrix, rows, self.centre))
        self.room.copy_(torch.where(is_lost.unsqueeze(-1), room, self.room))


class TOFU(UCB):
    """TOFU: optimism over :class:`TOFURegression`.

    The arguments, what is known of them and the cost are the estimator's.

    Example:
        >>> policy = TOFU(2, horizon=1000, noise_scale=0.5)
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
        delta: float = 0.01,
        radius_factor: float = 4.0,
        radius_scale: float = 1.0,
        batch_shape: tuple[int, ...] = (),
        dtype: torch.dtype = torch.float64,
        device: torch.device | str | None = None,
        validate: bool = True,
    ) -> None:
        super().__init__(
            TOFURegression(
                dim,
                horizon=horizon,
                moment_order=moment_order,
                noise_scale=noise_scale,
                theta_bound=theta_bound,
                feature_bound=feature_bound,
                ridge=ridge,
                delta=delta,
                radius_factor=radius_factor,
                radius_scale=radius_scale,
                batch_shape=batch_shape,
                dtype=dtype,
                device=device,
                validate=validate,
            )
        )
