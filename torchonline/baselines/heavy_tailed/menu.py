"""MENU: median of means under a well-designed allocation of decisions (Shao, Yu, King and Lyu, NeurIPS 2018)."""

import math

import torch
from torch import Tensor

from torchonline.bandits.policies import UCB
from torchonline.baselines.heavy_tailed.repeated_arms import EpochEstimator
from torchonline.core.checks import non_negative, positive, positive_integer, within
from torchonline.core.ops import along, dot, matvec, real, started_power
from torchonline.core.precision_matrix import add_outer_


class MENURegression(EpochEstimator):
    r"""Many ridge regressions side by side, and the one that is nearest to most others, as in MENU.

    An epoch is ``repeats`` = k rewards of one arm x (an epoch that another arm interrupts is dropped). At its end the j-th
    reward goes to the j-th regression, :math:`\hat\theta_j`, all of which share V:

    .. math:: V \leftarrow V + xx^\top,\qquad
              \hat\theta_j \leftarrow \hat\theta_j + V^{-1}x\,(r_j - x^\top\hat\theta_j),\qquad
              \hat\theta = \hat\theta_{j^*},\quad j^* = \arg\min_j\,\text{median}_s\,\|\hat\theta_j-\hat\theta_s\|_V,

    where the median, the lower of two, is over all s, j among them. Widths are :math:`\|x\|_{V^{-1}}`; with p =
    ``moment_order`` :math:`= 1+\varepsilon`, the radius after n >= 1 epochs is
    :math:`c\,\bigl((m\,d)^{1/p}\,\nu\,n^{(1-\varepsilon)/(2(1+\varepsilon))} + \sqrt\lambda S\bigr)`, and
    :math:`c\sqrt\lambda S` before.

    Guarantee. As we recall it, the paper states that the confidence set holds with probability 1 - ``delta`` for noise that is
    independent given the arms, and knows no interruptions: one that depends on the rewards of its epoch biases what is
    learnt. Its constants (c = ``radius_factor`` = 3, m = ``moment_factor`` = 9, k) are recalled too; neither has been checked
    against its text.

    Cost: O(d^2) to check a round, O(d) with ``validate=False``; O(d^3 + k d^2 + k^2 d) when an epoch ends. Memory
    O(k d + d^2 + k^2).

    Args:
        dim: d, number of features.
        horizon: T, number of rounds that the default of ``repeats`` is for.
        moment_order: p in (1, 2].
        noise_scale: :math:`\nu \ge 0`, the p-norm of the noise, in units of the reward. One for all rounds: what ``step`` is
            given is not used.
        theta_bound: S > 0, a bound on the norm of the true parameter.
        ridge: :math:`\lambda > 0`; None for d.
        delta: in (0, 1).
        repeats: k, rewards in an epoch and regressions; None for :math:`\lceil 24\log(eT/\delta)\rceil`, recalled.
        moment_factor: m > 0, recalled.
        radius_factor: c > 0, recalled.
        radius_scale: multiplies the radius.
        batch_shape: ``*B``, independent learners in one module.
        dtype: torch.float64 or torch.float32, of the state.
        device: where the state lives.
        validate: whether values are checked in each call.

    Shape:
        - ``theta_hat``, ``epoch_x``, ``(*B, d)``; ``theta_each``, ``(*B, k, d)``; ``V``, ``V_inv``, ``(*B, d, d)``;
          ``epoch_reward``, ``(*B, k)``; ``rounds``, ``epochs``, ``pulls`` (in this epoch), ``(*B)``.

    Example:
        >>> learner = MENURegression(2, horizon=1000, repeats=3)
        >>> for reward in (0.3, 1e9, 0.1):
        ...     learner.step(torch.tensor([1.0, 0.0]), torch.tensor(reward))
        >>> learner.theta_hat
        tensor([0.1000, 0.0000], dtype=torch.float64)

    Reference:
        Shao, Yu, King and Lyu, Almost Optimal Algorithms for Linear Stochastic Bandits with Heavy-Tailed Payoffs, NeurIPS
        2018 (arXiv:1810.10895).
    """

    statistics_depend_on = ("ridge", "repeats")

    theta_each: Tensor

    def __init__(
        self,
        dim: int,
        *,
        horizon: int,
        moment_order: float = 2.0,
        noise_scale: float = 1.0,
        theta_bound: float = 1.0,
        ridge: float | None = None,
        delta: float = 0.01,
        repeats: int | None = None,
        moment_factor: float = 9.0,
        radius_factor: float = 3.0,
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
        self.horizon = positive_integer("horizon", horizon)
        self.moment_order = within("moment_order", moment_order, 1.0, 2.0, closed=True)
        self.delta = within("delta", delta, 0.0, 1.0)
        self._wait_for(math.ceil(24.0 * math.log(math.e * self.horizon / self.delta)) if repeats is None else repeats)
        self.moment_factor = positive("moment_factor", moment_factor)
        self.radius_factor = positive("radius_factor", radius_factor)
        p, eps = self.moment_order, self.moment_order - 1.0
        self.power = (1.0 - eps) / (2.0 * p)
        self.slope = self.radius_factor * (self.moment_factor * dim) ** (1.0 / p) * self.noise_scale
        self.radius_start = self.radius_factor * math.sqrt(self.ridge) * self.theta_bound
        self._create_buffers()

    def _initial_state(self) -> dict[str, Tensor | None]:
        return super()._initial_state() | {"theta_each": torch.zeros(self.repeats, self.dim, dtype=torch.float64)}

    @torch.jit.export
    def radius(self) -> Tensor:
        epochs = real(self.epochs, self.theta_hat)
        return self.radius_scale * (self.slope * started_power(epochs, self.power) + self.radius_start)

    def _learn_epoch(self, x: Tensor, rewards: Tensor, ends: Tensor) -> None:
        # Where no epoch ends, nothing is added.
        x = along(ends, x) * x
        product = matvec(self.V_inv, x)
        quadratic = dot(x, product)
        residuals = rewards - matvec(self.theta_each, x)
        add_outer_(self._precision(), x, product, quadratic)
        step = product / (1.0 + quadratic).unsqueeze(-1)
        self.theta_each += residuals.unsqueeze(-1) * step.unsqueeze(-2)
        # All distances in the norm of V: from differences, so that those of a pair are equal to the last bit.
        # No eigenvalue is below ridge, but for rounding.
        values, vectors = torch.linalg.eigh(self.V)
        points = torch.matmul(self.theta_each, vectors * values.clamp(min=self.ridge).sqrt().unsqueeze(-2))
        distances = torch.cdist(points, points, compute_mode="donot_use_mm_for_euclid_dist")
        nearest = distances.median(-1).values.argmin(-1)
        index = nearest.unsqueeze(-1).unsqueeze(-1).expand(self.theta_hat.unsqueeze(-2).shape)
        self.theta_hat.copy_(self.theta_each.gather(-2, index).squeeze(-2))


class MENU(UCB):
    """MENU: optimism over :class:`MENURegression`, for arms that stay.

    The arguments, what is known of them and the cost are the estimator's.

    Example:
        >>> policy = MENU(2, horizon=1000, repeats=3)
        >>> arms = torch.eye(2)
        >>> choices = []
        >>> for _ in range(6):
        ...     choice = policy.select(arms)
        ...     policy.step(arms[choice], torch.tensor(0.7))
        ...     choices.append(int(choice))
        >>> choices
        [0, 0, 0, 1, 1, 1]
    """

    def __init__(
        self,
        dim: int,
        *,
        horizon: int,
        moment_order: float = 2.0,
        noise_scale: float = 1.0,
        theta_bound: float = 1.0,
        ridge: float | None = None,
        delta: float = 0.01,
        repeats: int | None = None,
        moment_factor: float = 9.0,
        radius_factor: float = 3.0,
        radius_scale: float = 1.0,
        batch_shape: tuple[int, ...] = (),
        dtype: torch.dtype = torch.float64,
        device: torch.device | str | None = None,
        validate: bool = True,
    ) -> None:
        super().__init__(
            MENURegression(
                dim,
                horizon=horizon,
                moment_order=moment_order,
                noise_scale=noise_scale,
                theta_bound=theta_bound,
                ridge=ridge,
                delta=delta,
                repeats=repeats,
                moment_factor=moment_factor,
                radius_factor=radius_factor,
                radius_scale=radius_scale,
                batch_shape=batch_shape,
                dtype=dtype,
                device=device,
                validate=validate,
            )
        )
