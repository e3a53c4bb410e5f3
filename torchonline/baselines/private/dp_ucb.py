"""DP-UCB: private linear bandit (Shariff and Sheffet, NeurIPS 2018)."""

import math
from typing import Any, Unpack

import torch
from torch import Tensor

from torchonline.core.all_or_nothing import one_at_a_time
from torchonline.core.checks import non_negative, one_of, positive, within
from torchonline.core.ops import matmul
from torchonline.privacy.clipping import MARGIN, REWARDS_A_ROUND, clipped
from torchonline.privacy.learners.bandit import PrivateBandit
from torchonline.privacy.learners.base import PrivateOptions
from torchonline.privacy.learners.released import ReleasedBandit
from torchonline.privacy.mechanisms.prefix_sums import calibrated
from torchonline.privacy.mechanisms.trees import Tree


class DPUCB(PrivateBandit):
    r"""Private LinUCB: ridge regression on noisy statistics, with a bonus for noise.

    Arm k pays :math:`x^\top\theta_k` on average, :math:`\|\theta_k\| \le S`. With v = (x, r), contexts in units of L and rewards
    in units of B, each arm has a sum of matrices and, in these units, a radius

    .. math:: M_t &= \sum_{s \le t} v_s v_s^\top\,1\{a_s = k\} + N_t = \begin{pmatrix} G & u \\ u^\top & \cdot \end{pmatrix},
              \qquad V = G + (2\Upsilon + \lambda) I,\quad \hat\theta = V^{-1}u, \\
              \beta_t &= R\sqrt{2\log\tfrac{2K}\alpha + d\log\Bigl(\frac{\rho_+}{\rho_-} + \frac t{d\rho_-}\Bigr)} +
              S\sqrt{\rho_+} + \frac\tau{\sqrt{\rho_-}}\Bigl(\sqrt d + \sqrt{2\log\tfrac{6nK}\alpha}\Bigr),

    and the arm with the largest :math:`x^\top\hat\theta + \beta_t\|x\|_{V^{-1}}` is pulled. :math:`N_t` is the noise of a tree
    (:class:`~torchonline.privacy.mechanisms.trees.Tree`) of height h on the upper triangles, mirrored. There are n rounds and K
    arms; :math:`\sigma` is the scale of a node's noise, :math:`\tau = \sigma\sqrt h`, :math:`\Upsilon` a bound of the noise's
    spectral norm, :math:`\rho_- = \Upsilon + \lambda` and :math:`\rho_+ = 3\Upsilon + \lambda`. *Every* arm's tree takes a step
    in *every* round, on a zero matrix if the arm was not pulled. Eigenvalues of V below :math:`\rho_-` are raised to
    :math:`\rho_-`. There are none if the bound of the norm holds.

    Guarantee, privacy: joint differential privacy, see :class:`~torchonline.privacy.learners.bandit.PrivateBandit`. A person
    moves the sums of all :math:`x_s x_s^\top` and :math:`r_s x_s` by at most :math:`\sqrt{4.5}`. Late rewards are covered too.
    Guarantee, confidence set: with probability :math:`1 - \alpha`, at all times
    :math:`|x^\top(\theta_k - \hat\theta_k)| \le \beta_t\|x\|_{V^{-1}}`, if no context or reward is clipped and the noise of the
    rewards is R-sub-Gaussian (Shariff and Sheffet, Proposition 4, and a union over arms). Proofs:
    docs/private_baselines_theory.md.
    Cost of a round: O(K (d^2 log n + m d^2)) for m rewards. Cost of a call of ``select``: O(K d^3), for any number of decisions.

    Args:
        arms: K, the number of arms.
        constants: ``"exact"``, the least noise that exact Gaussian accounting allows for this sensitivity,
            :math:`\sigma = \sqrt{4.5\,h}/\mu(\epsilon, \delta)`, h = ``n.bit_length()``, and
            :math:`\Upsilon = 2\tau(\sqrt d + \sqrt{\log(6nK/\alpha)})`. ``"original"``, the paper's
            :math:`\sigma = 8\sqrt h\log(4/\delta)/\epsilon`, h = ceil(log2 n) + 1, and
            :math:`\Upsilon = \sqrt{2h}\,\sigma(4\sqrt d + 2\log(2n/\alpha))`.
        feature_clip: L; contexts are scaled down to :math:`\|x\|_2 \le L`. An L below the contexts' norms reduces the effect of
            the noise. It does not change which arm is best, but the confidence set is then a heuristic.
        reward_clip: B; rewards are clipped to [-B, B].
        theta_bound: S, a bound on the norm of each arm's parameter.
        noise_scale: R, in units of the reward; B is always enough.
        ridge: :math:`\lambda > 0`.
        alpha: in (0, 1), the probability that a confidence set misses.
        noise_source, adjacency: as in :class:`~torchonline.DPHDB`.
        dtype: ``torch.float64`` only, because all state is float64.
        dim, horizon, epsilon, delta, participations, min_separation, seed, batch_shape, device, validate: see
            :class:`~torchonline.privacy.learners.base.PrivateLearner`. An infinite epsilon gives LinUCB.

    Shape: noisy_sum ``(*B, K, d (d + 3) / 2)``, noisy_nodes ``(*B, K, h, d (d + 3) / 2)``, public; secret_nodes like these.

    Example:
        >>> bandit = DPUCB(2, arms=2, horizon=1000, epsilon=1.0, delta=1e-4)
        >>> x = torch.tensor([0.6, 0.8])
        >>> bandit.step(x, bandit.select(x), torch.tensor(0.5))
        >>> bandit.privacy_spent(1e-4) < 1.0
        True

    Reference: Shariff and Sheffet, Differentially private contextual linear bandits, NeurIPS 2018. What differs: each arm has its
    own parameter; the noise is one upper triangle of normal numbers, mirrored, instead of the average of two; the squares of
    rewards, which are not needed, are not released; and a ridge is added.
    """

    noisy_sum: Tensor

    def __init__(
        self,
        dim: int,
        *,
        arms: int,
        constants: str = "exact",
        feature_clip: float = 1.0,
        reward_clip: float = 1.0,
        theta_bound: float = 1.0,
        noise_scale: float = 1.0,
        ridge: float = 1.0,
        alpha: float = 0.01,
        **options: Unpack[PrivateOptions],
    ) -> None:
        if options.get("dtype", torch.float64) is not torch.float64:
            raise ValueError(f"dtype: expected torch.float64, because all state is float64, got {options['dtype']}")
        reward_clip = positive("reward_clip", reward_clip)
        super().__init__(dim, arms=arms, feature_clip=feature_clip, reward_clip=reward_clip, **options)
        self._refuse_endless(type(self).__name__)
        self.feature_norm = 2.0
        self.is_original = one_of("constants", constants, ("exact", "original")) == "original"
        self.theta_bound = positive("theta_bound", theta_bound)
        self.noise_scale = non_negative("noise_scale", noise_scale)
        self.ridge = positive("ridge", ridge)
        self.alpha = within("alpha", alpha, 0.0, 1.0)
        self.upper = torch.triu_indices(dim + 1, dim + 1)[:, :-1]  # without the square of the reward
        # Twice the length of a record if a person takes part several times, for which no less is proved.
        of_two = 4.5 if self.participations == 1 else 8.0
        sensitivity = math.sqrt(of_two if self.adjacency == "replace_one" else 2.0) * (1.0 + MARGIN)
        self.longest = REWARDS_A_ROUND * math.sqrt(2.0) * (1.0 + MARGIN)
        self.noise = calibrated("tree", self, sensitivity, self.longest)
        height = (self.horizon - 1).bit_length() + 1 if self.is_original else self.horizon.bit_length()
        if self.is_original and self.epsilon < math.inf:
            scale = 8.0 * math.sqrt(height) * math.log(4.0 / self.delta) / self.epsilon
            if scale < self.noise.noise_scale:
                raise ValueError(
                    f"epsilon: expected a smaller number, for the original constants, got {self.epsilon:g}"
                )
            told: dict[str, Any] = {"sensitivity": sensitivity, "longest": self.longest, "source": self.source}
            told |= {"participations": self.participations, "min_separation": self.min_separation}
            self.noise = Tree(self.horizon, noise_scale=scale, **told)
        # The largest standard deviation of a prefix's noise, and a bound on the spectral norm of all d x d noise matrices.
        self.deviation = self.noise.noise_scale * math.sqrt(height)
        self.log_rounds = math.log(6.0 * self.horizon * self.arm_count / self.alpha)
        if self.is_original:
            of_rounds = 2.0 * math.log(2.0 * self.horizon / self.alpha)
            self.noise_norm = math.sqrt(2.0) * self.deviation * (4.0 * math.sqrt(dim) + of_rounds)
        else:
            self.noise_norm = 2.0 * self.deviation * (math.sqrt(dim) + math.sqrt(self.log_rounds))
        self._create_buffers()

    def _initial_state(self) -> dict[str, Tensor | None]:
        size = self.upper.size(1)
        state = self.noise.initial_state(size).items()
        return {name: value.expand(self.arm_count, *value.shape) for name, value in state}

    def radius(self) -> float:
        r"""Return :math:`\beta`, for contexts and rewards in units of their bounds."""
        low, high = self.noise_norm + self.ridge, 3.0 * self.noise_norm + self.ridge
        growth = self.dim * math.log(high / low + self._memory.rounds / (self.dim * low))
        width = math.sqrt(2.0 * math.log(2.0 * self.arm_count / self.alpha) + growth)
        of_rewards = self.noise_scale / self.reward_clip * width
        of_theta = self.theta_bound * self.feature_clip / self.reward_clip * math.sqrt(high)
        of_noise = self.deviation / math.sqrt(low) * (math.sqrt(self.dim) + math.sqrt(2.0 * self.log_rounds))
        return of_rewards + of_theta + of_noise

    def _learn(self, x: Tensor, action: Tensor, reward: Tensor, step: int) -> None:
        v = torch.cat([x / self.feature_clip, reward.unsqueeze(-1) / self.reward_clip], -1)
        products = v[..., self.upper[0]] * v[..., self.upper[1]]
        pulled = action.unsqueeze(-1) == torch.arange(self.arm_count, device=action.device)
        summand = matmul(pulled.to(v.dtype).mT, products)
        self.noise.add(self._buffers, clipped(summand, self.longest), step)

    @one_at_a_time
    def released(self) -> "ReleasedDPUCB":
        """Return a module that decides by the present parameters and bonuses, for export."""
        matrix = self.noisy_sum.new_zeros((*self.noisy_sum.shape[:-1], self.dim + 1, self.dim + 1))
        matrix[..., self.upper[0], self.upper[1]] = self.noisy_sum
        matrix[..., self.upper[1], self.upper[0]] = self.noisy_sum
        values, vectors = torch.linalg.eigh(matrix[..., :-1, :-1])
        values = (values + 2.0 * self.noise_norm + self.ridge).clamp(min=self.noise_norm + self.ridge)
        inverse = matmul(vectors / values.unsqueeze(-2), vectors.mT)
        theta = matmul(inverse, matrix[..., :-1, -1:]).squeeze(-1)
        # In the caller's units.
        unit = self.reward_clip / self.feature_clip
        bonus = (unit * self.radius()) ** 2 * inverse
        return ReleasedDPUCB(self, theta=unit * theta, bonus=bonus)

    def _parameters_of_noise(self) -> list[tuple[str, float]]:
        return self.noise.parameters()


class ReleasedDPUCB(ReleasedBandit):
    """Released :class:`DPUCB`: its published upper confidence bounds."""

    bonus: Tensor  # (*B, K, d, d). The square of an arm's bonus is x' bonus x.

    def forward(self, x: Tensor) -> Tensor:
        """Return the upper confidence bounds: ``(*B, ..., d)`` to ``(*B, ..., K)``."""
        row = self.context(x)
        arms = row.unsqueeze(-3)
        squares = (matmul(arms, self.bonus) * arms).sum(-1).mT
        # Rounding may leave a square a little below 0.
        return self.of_arms(matmul(row, self.theta.mT) + squares.clamp(min=0.0).sqrt(), x)
