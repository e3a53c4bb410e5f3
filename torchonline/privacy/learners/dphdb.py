"""Private contextual bandits: what everybody else sees tells little of one person's context and rewards."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from torchonline.convex.domains import CrossPolytope
from torchonline.core.checks import (
    check_shape,
    one_of,
    positive,
    positive_integer,
    shape_text,
)
from torchonline.core.inputs import check_tensor
from torchonline.links import Gaussian, Link
from torchonline.privacy.accounting import Event
from torchonline.privacy.clipping import clipped
from torchonline.privacy.learners.base import PrivateLearner
from torchonline.privacy.learners.frank_wolfe_base import PrivateVertexFrankWolfe
from torchonline.privacy.mechanisms.prefix_sums import MECHANISMS


class PrivateBandit(PrivateLearner):
    r"""Base of the private bandits: K arms, one context for all of them, one person in a round.

    A round, for the caller::

        k = bandit.select(x)
        bandit.step(x, k, reward)    # or bandit.step(None), if no reward has come

    *Joint differential privacy.* Two worlds differ in what person i is: her context, and the function that says what each arm
    would pay her. In both, all later persons may be chosen by somebody who sees the public states. The joint law of all public
    states and of all actions :math:`a_j,\ j \ne i`, is (epsilon, delta)-private in it, even for all others together.

    *Not covered* is her own action :math:`a_i`, which has to depend on her. If it is published, or her reward, or a log of
    :math:`(x_i, a_i, r_i)`, there is no guarantee. Besides what :class:`PrivateLearner` needs, the
    reward of person j must depend on her, on :math:`a_j` and on public states, never on the action or the reward of another (no
    shared stock, no interference); and each person has one round and one reward, and which round does not depend on any data.

    *Late rewards.* A step takes all rewards that arrived in its round, each with its context and action, and sums what they
    contribute, each clipped by itself, at the state of now. The clock is the round, never an arrival: one step for each arrived
    reward would shift everybody after it, and is not private. A person still moves one summand, even if how late she answers
    depends on her data. (Rows of an estimator's ``step`` are rounds in order; rows of this one are of one round.)

    Values are never refused, for an error would tell of them. A context with NaN or infinity is acted on as 0, and its
    record, as any with a reward that is no finite number, contributes 0; so does an action that is no arm, which pads the rows
    of a fleet's learners to one length. A decision without an available arm is 0.

    Args:
        dim: number of features d.
        arms: K.
        feature_clip, feature_norm: contexts are scaled down to this length in the norm of this order.
        reward_clip: rewards are cut to this size.
        options: those of :class:`~torchonline.privacy.learners.base.PrivateLearner`.
    """

    def __init__(
        self, dim: int, *, arms: int, feature_clip: float, feature_norm: float, reward_clip: float, **options: Any
    ) -> None:
        super().__init__(dim, **options)
        if self.source.name == "discrete":
            raise ValueError(
                "noise_source: expected 'torch' or 'csprng', since contributions are not integers, got 'discrete'"
            )
        self.arm_count = positive_integer("arms", arms)
        self.feature_clip = positive("feature_clip", feature_clip)
        self.feature_norm = feature_norm
        self.reward_clip = self._clip_bound("reward_clip", reward_clip)

    def released(self) -> "ReleasedBandit":
        """A module with ``forward`` and ``select`` that holds nothing but what is public, and decides by it: for TorchScript."""
        raise NotImplementedError

    def _learn(self, x: Tensor, action: Tensor, reward: Tensor, step: int) -> None:
        """Take the step that begins, on clipped contexts ``(*B, m, d)``, with actions and rewards ``(*B, m)``."""
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        """The score of each arm: ``(*B, ..., d)`` to ``(*B, ..., K)``, float64."""
        self._refuse_tracing()
        x = self._checked_context(x, None)
        with torch.no_grad():
            return self.released()(x)

    def select(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """The arm of each decision; the lowest among equals. Changes no state, and is for the person decided upon alone.

        Args:
            x: contexts, ``(*B, ..., d)``: one decision, or many, made from the same state.
            mask: True where an arm is available, ``(*B, ..., K)``; all are otherwise.

        Returns:
            ``(*B, ...)``, int64.

        Raises:
            TypeError: ``x`` is no floating-point tensor, or ``mask`` no boolean one.
            ValueError: a shape or device is wrong.
        """
        self._refuse_tracing()
        x = self._checked_context(x, None)
        if mask is not None:
            if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
                raise TypeError("mask: expected a tensor of torch.bool, True where an arm is available")
            if mask.device != x.device:
                raise ValueError(f"mask: expected a tensor on {x.device}, got one on {mask.device}")
            check_shape("mask", mask, (*x.shape[:-1], self.arm_count))
        with torch.no_grad():
            return self._select(x, mask)

    def step(self, x: Tensor | None, action: Tensor | None = None, reward: Tensor | None = None) -> None:
        """End a round: learn from the rewards that have arrived in it, and publish the next state.

        Args:
            x: the context that was decided upon, ``(*B, d)``; or those of all rewards that arrived, ``(*B, m, d)``, m >= 0.
                None if none has.
            action: which arm each of them got, int64, ``(*B)`` or ``(*B, m)``.
            reward: what it paid, shaped like ``action``.

        Raises:
            RuntimeError: the horizon is over, and the budget spent.
            TypeError: an argument is of the wrong type.
            ValueError: a shape or device is wrong. No buffer has changed.
        """
        step = self._next_step()
        with torch.no_grad(), np.errstate(all="ignore"):  # a small arm's step runs on arrays
            arrived = self._arrived(x, action, reward)
            self._begin(step)
            self._learn(*arrived, step)

    def _select(self, x: Tensor, mask: Tensor | None) -> Tensor:
        return self.released().select(x, mask)

    def _checked_context(self, x: Tensor, most: int | None) -> Tensor:
        """Contexts as float64, ``(*B, ..., d)``, with at most so many dimensions between."""
        x = check_tensor("x", x, self.constants).detach()
        between = x.dim() - self.batch_dims - 1
        fits = between >= 0 and x.shape[: self.batch_dims] == self.batch_shape and x.size(-1) == self.dim
        if not fits or (most is not None and between > most):
            wanted = shape_text((*self.batch_shape, "..." if most is None else "[m]", self.dim))
            raise ValueError(f"x: expected shape {wanted}, got {shape_text(x.shape)}")
        return x

    def _arrived(self, x: Tensor | None, action: Any, reward: Any) -> tuple[Tensor, Tensor, Tensor]:
        """What has arrived in a round, clipped: ``(*B, m, d)``, ``(*B, m)``, ``(*B, m)``."""
        if x is None:
            if action is not None or reward is not None:
                raise ValueError("x: expected the context of the reward, got None")
            # A context of 0, which contributes nothing whatever it is paid.
            x = self.constants.new_zeros((*self.batch_shape, 1, self.dim))
            return x, x[..., 0].to(torch.int64), x[..., 0]
        x = self._checked_context(x, 1)
        if not isinstance(action, Tensor) or action.dtype != torch.int64:
            raise TypeError("action: expected a tensor of torch.int64")
        if action.device != x.device:
            raise ValueError(f"action: expected a tensor on {x.device}, got one on {action.device}")
        check_shape("action", action, x.shape[:-1])
        reward = check_tensor("reward", reward, self.constants).detach()
        check_shape("reward", reward, x.shape[:-1])
        if x.dim() == self.batch_dims + 1:
            x, action, reward = x.unsqueeze(-2), action.unsqueeze(-1), reward.unsqueeze(-1)
        counts = reward.isfinite() & x.isfinite().all(-1)
        x = torch.where(counts.unsqueeze(-1), x, 0.0)
        reward = torch.where(counts, reward.clamp(-self.reward_clip, self.reward_clip), 0.0)
        return clipped(x, self.feature_clip, self.feature_norm), action, reward

    def _parameters_of_noise(self) -> list[tuple[str, float]]:
        own = [("arms", float(self.arm_count)), ("feature_clip", self.feature_clip), ("reward_clip", self.reward_clip)]
        return own + super()._parameters_of_noise()


class ReleasedBandit(nn.Module):
    """Base of what private bandits release: decisions by public values, and nothing else in the file.

    Args:
        theta: of all arms, ``(*B, K, d)``.
        feature_clip, feature_norm: see :class:`PrivateBandit`.
    """

    theta: Tensor

    def __init__(self, theta: Tensor, *, feature_clip: float, feature_norm: float) -> None:
        super().__init__()
        self.feature_clip = feature_clip
        self.feature_norm = feature_norm
        self.register_buffer("theta", theta.detach().to(torch.float64, copy=True))

    def forward(self, x: Tensor) -> Tensor:
        """The score of each arm: ``(*B, ..., d)`` to ``(*B, ..., K)``."""
        raise NotImplementedError

    def admitted(self, x: Tensor, mask: Tensor | None = None) -> Tensor | None:
        """The arms to choose from, ``(*B, ..., K)``; None for all."""
        return mask

    @torch.jit.export
    def select(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """The arm with the highest score of those that are available, the lowest among equals: ``(*B, ...)``."""
        return highest(self.forward(x), self.admitted(x, mask))

    def example(self) -> tuple[Tensor, ...]:
        """Arguments to export it with: the contexts of three decisions."""
        theta = self.theta
        x = torch.linspace(-1.0, 1.0, 3 * theta.size(-1), dtype=theta.dtype, device=theta.device)
        return (x.reshape(3, -1).expand(theta.shape[:-2] + (3, theta.size(-1))),)

    def context(self, x: Tensor) -> Tensor:
        """Clipped contexts, in a row: ``(*B, ..., d)`` to ``(*B, n, d)``."""
        x = clipped(x, self.feature_clip, self.feature_norm)
        return x.reshape(list(self.theta.shape[:-2]) + [-1, x.size(-1)])

    def of_arms(self, values: Tensor, x: Tensor) -> Tensor:
        """The values ``(*B, n, K)`` of contexts in a row, shaped as they were given: ``(*B, ..., K)``."""
        return values.reshape(list(x.shape[:-1]) + [values.size(-1)])


def highest(scores: Tensor, mask: Tensor | None) -> Tensor:
    """The index of the highest score where a mask is True, the first among equals: ``(..., K)`` to ``(...)``."""
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    return scores.argmax(-1)


class DPHDB(PrivateBandit):
    r"""Private high-dimensional contextual bandit: a private Frank-Wolfe learner for each arm, on the :math:`\ell_1` ball.

    Arm k pays :math:`\mu(x^\top\theta_k)` on average, :math:`\|\theta_k\|_1 \le R`, with a known link :math:`\mu`. A round::

        k = bandit.select(x)
        bandit.step(x, k, reward)    # all rewards that arrived in this round; bandit.step(None) if none has

    1. *Warm-up*: the first :math:`t_0` rounds are the block of arm 0, the next that of arm 1, and so on. Its arm is pulled
       whatever the context, and its learner alone takes steps. At its end ``theta_warm`` keeps the arm's decision, for good.
       Where the block's arm is masked out, the lowest available one is pulled. Rewards of other arms than the block's are
       lost, those that come late too: a zero record takes their step.
    2. *After it*: the arms with :math:`\mu(x^\top\theta^w_k) > \max_j \mu(x^\top\theta^w_j) - h/2` are kept, the maximum over
       those available, and of them the one with the highest :math:`\mu(x^\top\theta_k)` is pulled. The learner of every arm
       takes a step in every round: on the record (x, r) if that arm was pulled, else on (0, :math:`\mu(0)`).

    The learners are those of :mod:`torchonline.privacy.learners.frank_wolfe_base`. The gradient of the loss
    :math:`m(x^\top\theta) - r\,x^\top\theta`, :math:`m' = \mu`, is

    .. math:: \nabla f(\theta; x, r) = (\mu(x^\top\theta) - r)\,x,

    which is 0 at x = 0 for every link, reward and :math:`\theta`, since :math:`\mu(0)` is finite: an arm that was not pulled
    adds exactly 0, and noise. A learner's own clock is s = t - (K - 1) :math:`t_0` after the warm-up. It weighs gradients by s
    and s - 1; by the round's number t, the records of the warm-up would weigh up to K times as much as the noise is made for.

    Guarantee: joint differential privacy, see :class:`PrivateBandit`, at the (epsilon, delta) of *one* arm's learner over its
    horizon n = T - (K - 1) :math:`t_0`, with no factor K or 2. Replace person i. If both worlds pull the same arm for her, one
    learner gets another contribution, at most 2C away. If they pull two arms, one loses its contribution and the other gets
    one: C and C, :math:`\sqrt2\,C` together, because the noises of the arms are independent. If the rounds in which her reward
    arrives differ, a column of the encoder E takes the place of another:
    :math:`\|E_{\cdot a}g - E_{\cdot b}g'\| \le 2C\max_j\|E_{\cdot j}\|`. All are covered by the sensitivity 2C of one learner.
    (With Gumbel noise, two arms have half the range each, and half the cost together.) Blocks follow the clock, ``theta_warm``
    and all later choices are functions of public states, and the actions of others are functions of those and of their own
    contexts. Of regret nothing is promised: contributions are clipped.

    Cost of a round: K learners' steps, O(5 K d), and O(K m d) for m rewards; a decision, O(K d).

    Args:
        dim: number of features d.
        arms: K.
        horizon: T, number of rounds.
        warmup: :math:`t_0`, number of rounds in the block of each arm; K :math:`t_0 \le` T.
        epsilon, delta: of the whole run; epsilon ``inf`` for no noise.
        link: of the means; see :mod:`torchonline.links`.
        feature_clip: M; contexts are scaled down to :math:`\|x\|_\infty \le M`.
        reward_clip: B; rewards are cut to [-B, B]. ``inf`` only where epsilon is.
        gap: h, of the preselection, in units of the mean reward; ``inf`` to keep all arms. A small one locks in wrong arms, for
            :math:`\theta^w` is of few rounds and much noise.
        radius_bound: R, of the ball :math:`\|\theta\|_1 \le R`.
        clip: C, for the combined gradient of a record, Euclidean; in the maximum norm for ``"gumbel"`` and ``"laplace"``.
        mechanism: ``"blt"``, ``"honaker"``, ``"tree"`` or ``"sqrt"``; ``"gumbel"`` or ``"laplace"`` for noise on the choice of a
            vertex, with more features than rounds. See :class:`~torchonline.DPPOFW`.
        scheme, step_scale: as in :class:`~torchonline.DPTOFW`.
        noise_source: ``"torch"`` or ``"csprng"``; each arm has noise of its own.
        seed: for tests; whoever knows it can remove the noise.
        adjacency: ``"replace_one"``; or ``"zero_out"``, a person in the place of a round without a reward.
        max_participations: 1: in how many rounds a person is.
        batch_shape: ``*B``, independent bandits with other people each.
        dtype: of the decisions; sums and noise are float64.
        device: where the state lives. Noise is drawn on the CPU.
        validate: of no effect, see :class:`~torchonline.privacy.learners.base.PrivateLearner`.

    Shape:
        - x: ``(*B, ..., d)`` to decide, ``(*B, d)`` or ``(*B, m, d)`` to learn; scores: ``(*B, ..., K)``.
        - theta_warm: ``(*B, K, d)``, public; ``arms[k]`` has the state of an arm's learner.

    Example:
        >>> bandit = DPHDB(2, arms=2, horizon=500, warmup=50, epsilon=10.0, delta=1e-4)
        >>> theta = torch.tensor([[1.0, 0.0], [0.0, 1.0]]).double()
        >>> for x in torch.rand(500, 2).double():
        ...     k = bandit.select(x)
        ...     bandit.step(x, k, theta[k] @ x)
        >>> bandit.select(torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
        tensor([0, 1])
        >>> bandit.privacy_spent(1e-4) <= 10.0
        True

    Reference:
        Han, Liang, Liang, Wang, Yao and Zhang, On private online convex optimization: optimal algorithms in lp-geometry and high
        dimensional contextual bandits, 2022, Algorithm 4. Here the clock of an arm's learner is its own, without which its
        Theorem 4.1 does not hold; contributions are clipped; noise is a BLT's by default; rewards may be late; and no arm is
        discarded by default.
    """

    theta_warm: Tensor

    decisions = ("theta_warm",)

    def __init__(
        self,
        dim: int,
        *,
        arms: int,
        horizon: int,
        warmup: int,
        epsilon: float,
        delta: float,
        link: Link | None = None,
        feature_clip: float = 1.0,
        reward_clip: float = 1.0,
        gap: float = math.inf,
        radius_bound: float = 1.0,
        clip: float = 1.0,
        mechanism: str = "blt",
        scheme: str = "unbiased",
        step_scale: float = 0.5,
        noise_source: str = "torch",
        seed: int | None = None,
        adjacency: str = "replace_one",
        max_participations: int = 1,
        batch_shape: tuple[int, ...] = (),
        dtype: torch.dtype = torch.float64,
        device: torch.device | str | None = None,
        validate: bool = True,
    ) -> None:
        super().__init__(
            dim,
            arms=arms,
            feature_clip=feature_clip,
            feature_norm=math.inf,
            reward_clip=reward_clip,
            horizon=horizon,
            epsilon=epsilon,
            delta=delta,
            adjacency=adjacency,
            max_participations=max_participations,
            noise_source=noise_source,
            seed=seed,
            batch_shape=batch_shape,
            dtype=dtype,
            device=device,
            validate=validate,
        )
        self.warmup = positive_integer("warmup", warmup)
        if self.arm_count * self.warmup > self.horizon:
            raise ValueError(
                f"warmup: expected at most {self.horizon // self.arm_count} rounds for each of {self.arm_count} arms within "
                f"a horizon of {self.horizon}, got {self.warmup}"
            )
        self.gap = math.inf if gap == math.inf else positive("gap", gap)
        self.link = Gaussian() if link is None else link
        if not isinstance(self.link, Link):
            raise TypeError(f"link: expected a Link, got {type(link).__name__}")
        self.link.check_bound(self.feature_clip * positive("radius_bound", radius_bound))
        self.mechanism = one_of("mechanism", mechanism, (*MECHANISMS, "gumbel", "laplace"))
        self.arms: Any = nn.ModuleList(
            PrivateVertexFrankWolfe(
                dim,
                domain=CrossPolytope(dim, radius=radius_bound),
                clip=clip,
                clip_norm=math.inf if mechanism in ("gumbel", "laplace") else 2.0,
                mechanism=mechanism,
                scheme=scheme,
                step_scale=step_scale,
                horizon=self._local(self.horizon),
                epsilon=epsilon,
                delta=delta,
                adjacency=adjacency,
                noise_source=self.source.spawn(),
                batch_shape=batch_shape,
                dtype=dtype,
                device=device,
            )
            for _ in range(self.arm_count)
        )
        self._create_buffers()

    def _initial_state(self) -> dict[str, Tensor | None]:
        return {"theta_warm": torch.zeros((self.arm_count, self.dim), dtype=torch.float64)}

    def _local(self, rounds: int) -> int:
        """The steps, after so many rounds, of the arm that has taken the most."""
        return max(min(rounds, self.warmup), rounds - (self.arm_count - 1) * self.warmup)

    def _block(self, step: int) -> int | None:
        """The arm whose block of the warm-up a round is in; None after it."""
        arm = (step - 1) // self.warmup
        return arm if arm < self.arm_count else None

    def _select(self, x: Tensor, mask: Tensor | None) -> Tensor:
        arm = self._block(int(self.rounds) + 1)
        if arm is None:
            return super()._select(x, mask)
        preference = x.new_zeros((*x.shape[:-1], self.arm_count))
        preference[..., arm] = 1.0
        return highest(preference, mask)

    def _learn(self, x: Tensor, action: Tensor, reward: Tensor, step: int) -> None:
        block = self._block(step)
        for k, arm in enumerate(self.arms):
            if block is None or k == block:
                self._learn_arm(arm, torch.where((action == k).unsqueeze(-1), x, 0.0), reward)
        if block is not None and step % self.warmup == 0:
            self.theta_warm[..., block, :] = self.arms[block].theta

    def _learn_arm(self, arm: PrivateVertexFrankWolfe, x: Tensor, reward: Tensor) -> None:
        """One step of an arm's learner, on records of which those of other arms have x = 0."""
        slope = self.link.mean(x @ arm.queries().to(x.dtype).mT) - reward.unsqueeze(-1)
        gradients = slope.unsqueeze(-1) * x.unsqueeze(-2)
        arm.step_together(gradients)

    def released(self) -> "ReleasedDPHDB":
        """Decides greedily by the learners' decisions of now, in the warm-up too: for TorchScript."""
        theta = torch.stack([arm.theta for arm in self.arms], -2)
        return ReleasedDPHDB(
            theta,
            self.theta_warm,
            link=self.link,
            gap=self.gap,
            feature_clip=self.feature_clip,
            feature_norm=self.feature_norm,
        )

    def public_state(self) -> dict[str, Tensor]:
        """What has been released, of the arms' learners too: copies of the buffers that are not secret."""
        arms = {
            f"arms.{k}.{name}": value for k, arm in enumerate(self.arms) for name, value in arm.public_state().items()
        }
        return super().public_state() | arms

    def _event(self, steps: int) -> Event:
        return self.arms[0]._event(self._local(steps))

    def _parameters_of_noise(self) -> list[tuple[str, float]]:
        own = [("warmup", float(self.warmup)), ("gap", self.gap), *self.link.signature()]
        return super()._parameters_of_noise() + own + self.arms[0]._parameters_of_noise()

    def _load_problems(self, state_dict: Mapping[str, Any], prefix: str) -> list[str]:
        problems = super()._load_problems(state_dict, prefix)
        parts = [prefix, *(f"{prefix}arms.{k}." for k in range(self.arm_count))]
        for part, arm in zip(parts[1:], self.arms, strict=True):
            problems += arm._load_problems(state_dict, part)
        if any(name.startswith(prefix) for name in state_dict):
            absent = [part for part in parts if f"{part}constants" not in state_dict]
            problems += [f"{part}constants: expected an entry, got none" for part in absent]
        return problems

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *arguments: Any) -> None:
        # All arms or none: nn.Module would go on to load those that fit.
        if problems := self._load_problems(state_dict, prefix):
            raise RuntimeError(
                "\n\t".join(["load_state_dict: expected a state of this learner, got another", *problems])
            )
        super()._load_from_state_dict(state_dict, prefix, *arguments)


class ReleasedDPHDB(ReleasedBandit):
    """The thetas that a :class:`DPHDB` has published, and its rule after the warm-up.

    Args:
        theta, theta_warm: ``(*B, K, d)``.
        link, gap, feature_clip, feature_norm: those of the learner.
    """

    theta_warm: Tensor

    def __init__(
        self, theta: Tensor, theta_warm: Tensor, *, link: Link, gap: float, feature_clip: float, feature_norm: float
    ) -> None:
        super().__init__(theta, feature_clip=feature_clip, feature_norm=feature_norm)
        self.link = link
        self.gap = gap
        self.register_buffer("theta_warm", theta_warm.detach().to(torch.float64, copy=True))

    def forward(self, x: Tensor) -> Tensor:
        """The mean reward of each arm, as learnt: ``(*B, ..., d)`` to ``(*B, ..., K)``."""
        return self.means(x, self.theta)

    def means(self, x: Tensor, theta: Tensor) -> Tensor:
        """The mean reward of each arm at some parameters: ``(*B, ..., d)`` and ``(*B, K, d)`` to ``(*B, ..., K)``."""
        return self.of_arms(self.link.mean(self.context(x) @ theta.mT), x)

    def admitted(self, x: Tensor, mask: Tensor | None = None) -> Tensor | None:
        """The available arms that come near the best of them by the end of the warm-up, ``(*B, ..., K)``."""
        warm = self.means(x, self.theta_warm)
        if mask is not None:
            warm = warm.masked_fill(~mask, -math.inf)
        return warm.amax(-1, keepdim=True) - warm < 0.5 * self.gap
