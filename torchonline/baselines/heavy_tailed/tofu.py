"""TOFU: truncation based on historical information (Shao et al., NeurIPS 2018)."""

from typing import Any, Unpack

import torch
from torch import Tensor

from torchonline.baselines.heavy_tailed.base import HorizonEstimator, HorizonOptions
from torchonline.baselines.stored_rounds import append_, check_room, count_filled, nonzero_norm
from torchonline.core.backend import may_hold
from torchonline.core.checks import positive
from torchonline.core.ops import dot, matmul, matvec, real
from torchonline.core.precision_matrix import add_outer_
from torchonline.policies.rules import UCB, takes_arguments_of


class TOFURegression(HorizonEstimator):
    r"""Ridge regression that truncates the terms of all rounds again in each round.

    Round t, with p = ``moment_order`` :math:`= 1+\varepsilon`, :math:`e = (1-\varepsilon)/(2(1+\varepsilon))` and
    :math:`u = (LS + \nu)^p`, which bounds the p-th absolute moment of the reward:

    .. math:: V \leftarrow V + xx^\top, \qquad U = V^{-1/2}[x_1 \dots x_t], \qquad
              \hat\theta = V^{-1/2}\Bigl(\sum_{s\le t} U_{is}r_s\,1\{|U_{is}r_s| \le b_t\}\Bigr)_{i\le d}, \qquad
              b_t = (u/\log(2T/\delta))^{1/p}\,t^e.

    The radius after t >= 1 rounds is :math:`c\sqrt d\,u^{1/p}\log(2dT/\delta)^{\varepsilon/p}\,t^e + \sqrt\lambda S`, and its
    second term before. The ``noise_scale`` of ``step`` is not used.

    Guarantee, recalled: the confidence set holds with probability 1 - ``delta``.

    Cost of round t: O(d^3) time in most rounds; O(t d^2) if a row of :math:`V^{-1/2}/b_t` has moved further than
    ``checked_radius`` since the last check of all terms, and on an accelerator always. Memory O(T d). ``step`` raises ValueError
    after ``horizon`` rounds. TorchScript and an exported program raise RuntimeError, and the program can then no longer choose.
    ``export`` runs a dozen rounds on a copy, which needs room for them.

    Args:
        dim, horizon, moment_order, noise_scale, theta_bound, ridge, delta, radius_scale, batch_shape, dtype, device, validate:
            as in :class:`HorizonEstimator`.
        feature_bound: L > 0, a bound on the norm of features.
        radius_factor: c > 0.

    Shape:
        - ``history`` of :math:`rx`, ``(*B, T, d)``; ``checked_rows``, the rows of :math:`V^{-1/2}/b_t` at the last check, and
          ``kept_sums``, for each row the sum of the :math:`rx` that it keeps, ``(*B, d, d)``; ``checked_radius``, ``(*B, d)``.

    Example:
        >>> learner = TOFURegression(2, horizon=100)
        >>> learner.step(torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([0.5, 1e9]))
        >>> learner.theta_hat
        tensor([0.1667, 0.0000], dtype=torch.float64)

    Reference:
        Shao, Yu, King and Lyu, Almost Optimal Algorithms for Linear Stochastic Bandits with Heavy-Tailed Payoffs, NeurIPS 2018
        (arXiv:1810.10895). Not checked against its proofs. :math:`b_t`, c and the logarithms are checked against published code
        for Zhong, Huang, Yang and Wang, Breaking the Moments Condition Barrier, NeurIPS 2021, where u is the moment of the
        noise alone and :math:`b_t` has the power 1/2 instead of 1/p. That code uses a fifth of the radius.
    """

    statistics_depend_on = ("horizon", "moment_order", "noise_scale", "theta_bound", "feature_bound", "ridge", "delta")
    runs_on_arrays = False  # passes over the history
    renamed = {"centre": "checked_rows", "kept": "kept_sums", "room": "checked_radius"}
    history: Tensor
    checked_rows: Tensor
    kept_sums: Tensor
    checked_radius: Tensor

    def __init__(
        self,
        dim: int,
        *,
        horizon: int,
        feature_bound: float = 1.0,
        radius_factor: float = 4.0,
        **options: Unpack[HorizonOptions],
    ) -> None:
        super().__init__(dim, horizon, **options)
        self.feature_bound = positive("feature_bound", feature_bound)
        self._set_truncation(self.feature_bound * self.theta_bound, radius_factor)
        self.threshold = self.moment_norm * self.log_factor
        self._create_buffers()

    def _initial_state(self) -> dict[str, Tensor | None]:
        zeros = torch.zeros(self.dim, self.dim, dtype=torch.float64)
        return super()._initial_state() | {
            "history": torch.zeros(self.horizon, self.dim, dtype=torch.float64),
            "checked_rows": zeros,
            "kept_sums": zeros,
            "checked_radius": zeros[0],
        }

    def _observe(self, x: Tensor, reward: Tensor, noise_scale: Tensor) -> None:
        check_room(self.rounds, self.horizon)
        product = matvec(self.V_inv, x)
        quadratic = dot(x, product)
        self._check_growth(x, quadratic)
        m = reward.unsqueeze(-1) * x
        # The first write, because TorchScript fails here if the history is full.
        append_(self.history, self.rounds, m)
        add_outer_(self._precision(), x.clone(), product, quadratic)
        values, vectors = torch.linalg.eigh(self.V)
        root = matmul(vectors * values.clamp(min=self.ridge).rsqrt().unsqueeze(-2), vectors.mT)
        threshold = self.threshold * real(self.rounds + 1, m) ** self.power
        rows = root / threshold.unsqueeze(-1).unsqueeze(-1)
        # A row keeps a term m if |row m| <= 1. The new term is checked against the same rows as all other terms.
        size = matvec(self.checked_rows, m).abs()
        self.kept_sums += (size <= 1.0).unsqueeze(-1) * m.unsqueeze(-2)
        distance = (size - 1.0).abs() / nonzero_norm(m).unsqueeze(-1)
        self.checked_radius.copy_(torch.minimum(self.checked_radius, distance))
        is_outdated = (nonzero_norm(rows - self.checked_rows) > self.checked_radius).any(-1)
        if may_hold(is_outdated):
            self._check_all_terms(rows, is_outdated)
        self.theta_hat.copy_(matvec(root, (root * self.kept_sums).sum(-1)))
        self._end_round_()

    def _check_all_terms(self, rows: Tensor, is_outdated: Tensor) -> None:
        """Recompute which terms each row keeps, where the last check is outdated."""
        history = self.history[..., : count_filled(self.rounds, self.horizon), :]
        size = matmul(history, rows.mT).abs()
        kept_sums = matmul((size <= 1.0).to(history.dtype).mT, history)
        radius = ((size - 1.0).abs() / nonzero_norm(history).unsqueeze(-1)).amin(-2)
        of_matrix = is_outdated.unsqueeze(-1).unsqueeze(-1)
        self.kept_sums.copy_(torch.where(of_matrix, kept_sums, self.kept_sums))
        self.checked_rows.copy_(torch.where(of_matrix, rows, self.checked_rows))
        self.checked_radius.copy_(torch.where(is_outdated.unsqueeze(-1), radius, self.checked_radius))


class TOFU(UCB[TOFURegression]):
    r"""TOFU: optimism over :class:`TOFURegression`, with the same arguments.

    Args:
        dim, horizon, feature_bound, radius_factor, moment_order, noise_scale, theta_bound: as in :class:`TOFURegression`.
        ridge, delta, radius_scale, batch_shape, dtype, device, validate: as in :class:`TOFURegression`.

    Example:
        >>> TOFU(2, horizon=1000).select(torch.tensor([[1.0, 0.0], [0.0, 0.5]]))
        tensor(0)
    """

    @takes_arguments_of(TOFURegression)
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(TOFURegression(*arguments, **options))
