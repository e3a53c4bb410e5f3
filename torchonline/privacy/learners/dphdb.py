"""DPHDB, a private high-dimensional contextual bandit."""

import math
from typing import Any, Unpack

import torch
from torch import Tensor

from torchonline.convex.domains import CrossPolytope
from torchonline.core.all_or_nothing import one_at_a_time
from torchonline.core.checks import instance_of, one_of, positive, positive_integer
from torchonline.core.ops import matmul
from torchonline.core.write_once import FixedList
from torchonline.links import Gaussian, Link
from torchonline.privacy.accounting import Event
from torchonline.privacy.learners.bandit import PrivateBandit
from torchonline.privacy.learners.base import PrivateOptions
from torchonline.privacy.learners.frank_wolfe_base import BanditArm
from torchonline.privacy.learners.released import ReleasedDPHDB
from torchonline.privacy.mechanisms.base import VERTEX_LAWS
from torchonline.privacy.mechanisms.prefix_sums import MECHANISMS


class DPHDB(PrivateBandit):
    r"""Private high-dimensional contextual bandit, a Frank-Wolfe learner for each arm.

    Arm k pays :math:`\mu(x^\top\theta_k)` on average, :math:`\|\theta_k\|_1 \le R`, with a known link :math:`\mu`. Rounds are as
    in :class:`~torchonline.privacy.learners.bandit.PrivateBandit`.

    1. *Warm-up*: the first :math:`t_0` rounds are the block of arm 0, the next :math:`t_0` the block of arm 1, and so on. Every
       context pulls the block's arm, or the lowest available arm if the block's arm is masked out. Only the block's learner takes
       steps. At the end of a block the arm's decision is stored in ``theta_warm`` for good. Rewards of other arms, including late
       ones, count as zero records.
    2. *After it*: of the available arms with :math:`\mu(x^\top\theta^w_k) > \max_j \mu(x^\top\theta^w_j) - h/2` (the
       maximum is over available arms too), the arm with the highest :math:`\mu(x^\top\theta_k)` is pulled. The learner of every
       arm takes a step in every round: on the record (x, r) if its arm was pulled, else on (0, :math:`\mu(0)`).

    Each arm's learner is a :class:`~torchonline.DPPOFW`. The gradient of the loss is :math:`(\mu(x^\top\theta) - r)\,x`, so an
    arm that was not pulled adds exactly 0, plus noise. A learner's own clock after the warm-up is s = t - (K - 1) :math:`t_0`,
    and the learner weights gradients by s and s - 1.

    Guarantee: joint differential privacy, see ``PrivateBandit``, at the (epsilon, delta) of *one* arm's learner over its horizon
    n = T - (K - 1) :math:`t_0`, without a factor K or 2. There is no guarantee for the regret, because contributions are clipped.
    Proof: docs/privacy_proofs.md.
    Cost of a round: K learners' steps, O(5 K d), and O(K m d) for m rewards. Cost of a decision: O(K d).

    Args:
        dim: number of features d.
        arms, horizon: K and T, the numbers of arms and of rounds. A horizon of None for no end, with the mechanism ``"blt"``.
        warmup: :math:`t_0`, the number of rounds in the block of each arm; K :math:`t_0 \le` T.
        epsilon: of the whole run, above 0; ``inf`` for no privacy and no noise.
        delta: of the whole run, in (0, 1). Choose it much smaller than one over the number of people; a delta of 1 / n or more
            warns, if there is a horizon.
        link: :math:`\mu`, see :mod:`torchonline.links`; None for the identity.
        feature_clip: M; contexts are scaled down to :math:`\|x\|_\infty \le M`.
        reward_clip: B; rewards are clipped to [-B, B]. ``inf`` only if epsilon is.
        gap: h, of the preselection, in units of the mean reward; ``inf`` keeps all arms. A small gap locks in wrong arms,
            because :math:`\theta^w` is estimated from few rounds with much noise.
        radius_bound: R, of the ball :math:`\|\theta\|_1 \le R`.
        clip: C, the bound of a record's combined gradient: Euclidean, or the maximum norm for ``"gumbel"`` and ``"laplace"``.
        mechanism: ``"gumbel"``, ``"laplace"``, ``"blt"``, ``"honaker"``, ``"tree"`` or ``"sqrt"``, as in
            :class:`~torchonline.DPPOFW`.
        scheme: ``"unbiased"``, or ``"paper"``: :math:`g_t = (t+1)\nabla f(\theta_t) - t\nabla f(\theta_{t-1})` over t + 1,
            which is biased by :math:`-\nabla F(\theta_0)/(t+1)`.
        step_scale: c of the steps :math:`\min\{1, c/(t+1)\}`.
        adjacency: ``"replace_one"``; or ``"zero_out"``, where a person replaces a round without a reward.
        participations, min_separation: k and b. A person takes part in at most k steps, of which any two are at least b apart.
            For E passes over N records in one order: k = E, b = N, ``horizon`` = E N. If each pass has a different order, b is 1.
            For real-valued prefix-sum mechanisms only.
        noise_source: ``"torch"`` or ``"csprng"``. Each arm has independent noise.
        seed: of the source "torch", for tests. Anybody who guesses it can remove the noise, so :meth:`privacy_spent` is infinite.
        batch_shape: ``*B``, independent learners with one clock, each for a stream of different people.
        dtype: of the decisions.
        device: where the state lives. Noise is drawn on the CPU. Each step reads the clock, so the host waits for the device.
        validate: no effect. Shapes, types and devices are always checked, values never.

    Shape: theta_warm ``(*B, K, d)``, public. ``arms[k]`` has the state of an arm's learner.

    Example:
        >>> bandit = DPHDB(2, arms=2, horizon=500, warmup=50, epsilon=10.0, delta=1e-4)
        >>> for x in torch.rand(500, 2).double():
        ...     k = bandit.select(x)
        ...     bandit.step(x, k, x[k])
        >>> bandit.select(torch.eye(2))
        tensor([0, 1])

    Reference: Algorithm 3 of the paper of :class:`~torchonline.DPTOFW`. What differs: each arm's learner has its own clock,
    without which the paper's Theorem 4.1 does not hold; contributions are clipped; the default noise is a BLT's; rewards may be
    late; and no arm is discarded by default.
    """

    theta_warm: Tensor
    decisions = ("theta_warm",)
    statistics_depend_on = (*PrivateBandit.statistics_depend_on, "warmup", "gap")

    def __init__(
        self,
        dim: int,
        *,
        arms: int,
        warmup: int,
        link: Link | None = None,
        feature_clip: float = 1.0,
        reward_clip: float = 1.0,
        gap: float = math.inf,
        radius_bound: float = 1.0,
        clip: float = 1.0,
        mechanism: str = "blt",
        scheme: str = "unbiased",
        step_scale: float = 0.5,
        **options: Unpack[PrivateOptions],
    ) -> None:
        super().__init__(dim, arms=arms, feature_clip=feature_clip, reward_clip=reward_clip, **options)
        self.feature_norm = math.inf
        self.warmup = positive_integer("warmup", warmup)
        if self.arm_count * self.warmup > self.horizon:
            most = self.horizon // self.arm_count
            raise ValueError(f"warmup: expected at most {most} rounds for each arm, got {self.warmup}")
        self.gap = math.inf if gap == math.inf else positive("gap", gap)
        self.link: Link = instance_of("link", Gaussian() if link is None else link, Link, "a Link")
        self.link.check_bound(self.feature_clip * positive("radius_bound", radius_bound))
        self.mechanism = one_of("mechanism", mechanism, (*MECHANISMS, *VERTEX_LAWS))
        # On an arm's own clock two rounds are closer, by the blocks of the other arms.
        apart = max(1, self.min_separation - (self.arm_count - 1) * self.warmup)
        horizon = None if options["horizon"] is None else self._local(self.horizon)
        told: Any = options | {"horizon": horizon, "min_separation": apart, "seed": None}
        self.arms: Any = FixedList(
            BanditArm(
                dim,
                domain=CrossPolytope(dim, radius=radius_bound),
                clip=clip,
                clip_norm=math.inf if mechanism in VERTEX_LAWS else 2.0,
                mechanism=mechanism,
                scheme=scheme,
                step_scale=step_scale,
                **(told | {"noise_source": self.source.spawn()}),
            )
            for _ in range(self.arm_count)
        )
        self._create_buffers()

    def _initial_state(self) -> dict[str, Tensor | None]:
        return {"theta_warm": torch.zeros((self.arm_count, self.dim), dtype=torch.float64)}

    def _local(self, rounds: int) -> int:
        """Return the largest number of steps of an arm's learner after ``rounds`` rounds."""
        return max(min(rounds, self.warmup), rounds - (self.arm_count - 1) * self.warmup)

    def _check_parts(self, step: int) -> None:
        for k, arm in enumerate(self.arms):
            in_block = min(max(step - 1 - k * self.warmup, 0), self.warmup)
            expected = in_block + max(0, step - 1 - self.arm_count * self.warmup)
            if (found := arm._memory.rounds) != expected:
                raise RuntimeError(f"state: expected {expected} steps of arms.{k}, got {found}; load a whole state")

    def _arm_by_clock(self, step: int) -> int | None:
        arm = (step - 1) // self.warmup
        return arm if arm < self.arm_count else None

    def _learn(self, x: Tensor, action: Tensor, reward: Tensor, step: int) -> None:
        block = self._arm_by_clock(step)
        for k, arm in enumerate(self.arms):
            if block is None or k == block:
                own = torch.where((action == k).unsqueeze(-1), x, 0.0)  # 0 if another arm was pulled
                slope = self.link.mean(matmul(own, arm.queries().to(own.dtype).mT)) - reward.unsqueeze(-1)
                arm._step_together(slope.unsqueeze(-1) * own.unsqueeze(-2))
        if block is not None and step % self.warmup == 0:
            self.theta_warm[..., block, :] = self.arms[block].theta

    @one_at_a_time
    def released(self) -> ReleasedDPHDB:
        """Return a module that decides greedily by present values, even in the warm-up."""
        theta = torch.stack([arm.theta for arm in self.arms], -2)
        return ReleasedDPHDB(self, theta=theta, theta_warm=self.theta_warm)

    def _event(self, steps: int) -> Event:
        return self.arms[0]._event(self._local(steps))

    def _parameters_of_noise(self) -> list[tuple[str, float]]:
        return [*self.link.signature(), *self.arms[0]._parameters_of_noise()]
