"""FLIPHAT: private sparse linear bandit (Chakraborty, Roy and Basu, 2024)."""

import math
from typing import Unpack

import torch
from torch import Tensor

from torchonline.core.all_or_nothing import one_at_a_time
from torchonline.core.checks import positive_integer
from torchonline.core.ops import matmul
from torchonline.privacy.accounting import Event, SmallStepsEvent, ZCDPEvent
from torchonline.privacy.clipping import MARGIN, REWARDS_A_ROUND, sum_rounding
from torchonline.privacy.learners.bandit import PrivateBandit
from torchonline.privacy.learners.base import PrivateOptions
from torchonline.privacy.learners.released import ReleasedBandit
from torchonline.privacy.small_steps import LARGEST_RHO, largest_rho, small_steps_mu

TAKEN = -1e300  # the score of an entry that has been chosen, below all others


class FLIPHAT(PrivateBandit):
    r"""Private sparse bandit: greedy on the few largest noisy correlations.

    Rounds are as in :class:`~torchonline.privacy.learners.bandit.PrivateBandit`. The first two thirds of the T rounds are E
    episodes, each twice as long as the one before. An estimate is made at the end of each, from its own n rounds only:

    .. math:: u_k = \sum_s r_s x_s\,1\{a_s = k\},\qquad \hat\theta = \tfrac1n\,\mathrm{peel}(u_1, ..., u_K).

    *Peeling* chooses S of the K d entries one after another. It adds fresh Gumbel noise of scale :math:`\sigma` to the magnitudes
    of the entries that are left, and takes the largest. The chosen entries are published with :math:`N(0, \sigma^2)` noise. All
    others are 0. The first episode pulls the arms in turn. Later rounds pull the arm with the largest
    :math:`x^\top\hat\theta_k`, a score that ranks arms and does not estimate rewards.

    With ``arms=1`` it is the paper's bandit, where each arm has a context and all share one parameter: see the example.

    The noise of an entry does not grow with d; by rounding it grows with T, from some millions of rounds on. That pays if
    contexts have *many entries of one size, hardly correlated, of which few matter*. On other contexts, and on all real sets
    tried, :class:`~torchonline.DPHDB` is better (docs/private_oco.md).

    Guarantee: joint differential privacy, see ``PrivateBandit``. Proof: docs/private_baselines_theory.md. The regret has no
    guarantee. The score ranks arms rightly if features are uncorrelated and of one size. No arm is explored after the first
    episode, and an arm without a chosen entry scores 0, so the rewards' mean should be near 0.
    Cost of a round: O(m K d) for m rewards, and O(S K d) at the end of an episode. Memory: O(K d).

    Args:
        dim: number of features d.
        arms, horizon: K and T, the numbers of arms and of rounds.
        nonzeros: S, the number of entries of all arms' parameters that are estimated, at most K d; None for 10, or for K d.
        episodes: E, the number of estimates; None for 4, or fewer in a short run. The first episode has a round for each arm.
            More episodes start earlier, with more noise.
        feature_clip: M; contexts are scaled down to :math:`\|x\|_\infty \le M`. Where few entries are large, cut them instead, by
            ``x.clamp(-M, M)``, before the bandit sees them.
        reward_clip: B; rewards are clipped to [-B, B]. ``inf`` only if epsilon is. The noise grows with M B.
        epsilon, delta, adjacency, noise_source, seed: as in :class:`~torchonline.DPHDB`.
        participations, min_separation, batch_shape, dtype, device, validate: see
            :class:`~torchonline.privacy.learners.base.PrivateLearner`. A person takes part once.

    Shape: theta ``(*B, K, d)``, public; secret_sum ``(*B, K, d)``, over the episode.

    Example:
        >>> bandit = FLIPHAT(100, arms=1, horizon=2000, nonzeros=2, epsilon=5.0, delta=1e-4)
        >>> draws = torch.Generator().manual_seed(0)
        >>> for contexts in torch.rand(2000, 3, 100, generator=draws).double() * 2 - 1:  # those of three arms
        ...     x = contexts[bandit(contexts).squeeze(-1).argmax(-1)]
        ...     bandit.step(x, 0, x[7])
        >>> int(bandit.released().theta.abs().argmax())
        7

    Reference: Chakraborty, Roy and Basu, FLIPHAT: joint differential privacy for high dimensional sparse linear bandits, 2024.
    What differs: one step of hard thresholding instead of log n, because further steps cost more noise than they gain, and hence
    neither step size nor projection; Gumbel and Gaussian noise instead of Laplace noise, and tighter accounting; contexts are
    clipped, without which nothing bounds what a person moves; and episodes do not start with one round.
    """

    theta: Tensor
    secret_sum: Tensor
    decisions = ("theta",)
    statistics_depend_on = (*PrivateBandit.statistics_depend_on, "nonzeros", "episodes")

    def __init__(
        self,
        dim: int,
        *,
        arms: int,
        nonzeros: int | None = None,
        episodes: int | None = None,
        feature_clip: float = 1.0,
        reward_clip: float = 1.0,
        **options: Unpack[PrivateOptions],
    ) -> None:
        super().__init__(dim, arms=arms, feature_clip=feature_clip, reward_clip=reward_clip, **options)
        self._refuse_several(type(self).__name__)
        self._refuse_endless(type(self).__name__)
        self.source.require("highest")
        self.feature_norm = math.inf
        entries = self.arm_count * self.dim
        self.nonzeros = min(10, entries) if nonzeros is None else positive_integer("nonzeros", nonzeros)
        if self.nonzeros > entries:
            raise ValueError(f"nonzeros: expected at most {entries}, the number of entries, got {nonzeros}")
        if self.arm_count > self._ends(1)[0]:
            raise ValueError(f"arms: expected at most {self._ends(1)[0]} in {self.horizon} rounds, got {arms}")
        most = max(1, (2 * self.horizon // (3 * self.arm_count) + 1).bit_length() - 1)
        self.episodes = min(4, most) if episodes is None else positive_integer("episodes", episodes)
        if self.episodes > most:
            raise ValueError(
                f"episodes: expected at most {most} in {self.horizon} rounds, so that the first pulls each arm, got {episodes}"
            )
        self.ends = self._ends(self.episodes)
        self.longest = self.feature_clip * self.reward_clip * (1.0 + MARGIN)
        self.rho, self.noise_scale = math.inf, 0.0
        if self.epsilon < math.inf:
            # An entry moves by at most this much, and the scores of two by twice as much.
            rounds = max(end - start for start, end in zip((0, *self.ends), self.ends, strict=False))
            moved = self.longest * (self._records_moved() + sum_rounding(rounds) * REWARDS_A_ROUND)
            self.rho = largest_rho(self.epsilon, self.delta, self._mu(1.0), 2.0 * self.nonzeros)
            self.noise_scale = moved / math.sqrt(2.0 * self.rho)
        self._create_buffers()

    def _ends(self, episodes: int) -> tuple[int, ...]:
        """Return the last rounds of the episodes."""
        thirds = 3 * (2**episodes - 1)
        return tuple(-(-2 * self.horizon * (2**k - 1) // thirds) for k in range(1, episodes + 1))

    def _initial_state(self) -> dict[str, Tensor | None]:
        return dict.fromkeys(("theta", "secret_sum"), torch.zeros((self.arm_count, self.dim), dtype=torch.float64))

    def _arm_by_clock(self, step: int) -> int | None:
        return (step - 1) % self.arm_count if step <= self.ends[0] else None

    def _learn(self, x: Tensor, action: Tensor, reward: Tensor, step: int) -> None:
        pulled = action.unsqueeze(-1) == torch.arange(self.arm_count, device=action.device)
        summand = matmul((reward.unsqueeze(-1) * pulled).mT, x)
        most = REWARDS_A_ROUND * self.longest
        total = self.secret_sum
        total += summand.clip(-most, most)
        if step not in self.ends:
            return
        size = step - max((end for end in self.ends if end < step), default=0)
        self.theta.copy_(self._peeled(total.flatten(-2)).reshape(total.shape) / size)
        total.zero_()

    def _peeled(self, total: Tensor) -> Tensor:
        """Release the largest entries of secret sums with noise, ``(*B, K d)``."""
        scores = total.abs()
        places: list[Tensor] = []
        for _ in range(self.nonzeros):
            place = self.source.highest(scores, self.noise_scale, "gumbel") if self.noise_scale else scores.argmax(-1)
            places.append(place.unsqueeze(-1))
            scores.scatter_(-1, places[-1], TAKEN)
        place = torch.cat(places, -1)
        values = total.gather(-1, place)
        if self.noise_scale:
            values = self.source.add_normal(values, self.noise_scale)
        return torch.zeros_like(total).scatter_(-1, place, values)

    @one_at_a_time
    def released(self) -> "ReleasedFLIPHAT":
        """Return a module that decides by the estimate, even in the first episode."""
        return ReleasedFLIPHAT(self, theta=self.theta)

    def _event(self, steps: int) -> Event | None:
        if steps < self.ends[0]:
            return None
        total = 2.0 * self.nonzeros * self.rho
        return SmallStepsEvent(self._mu(self.rho), total) if self.rho <= LARGEST_RHO else ZCDPEvent(total)

    def _mu(self, rho: float) -> float:
        """Return mu of the 2 S steps of a peeling, each of the same rho."""
        return small_steps_mu([rho] * (2 * self.nonzeros))

    def _parameters_of_noise(self) -> list[tuple[str, float]]:
        return [("noise_scale", self.noise_scale)]


class ReleasedFLIPHAT(ReleasedBandit):
    """Released :class:`FLIPHAT`: its published estimate."""

    def forward(self, x: Tensor) -> Tensor:
        """Return the scores of the arms: ``(*B, ..., d)`` to ``(*B, ..., K)``."""
        return self.of_arms(matmul(self.context(x), self.theta.mT), x)
