"""Generalized linear bandits: mean rewards that a link makes of what is linear in the features of an arm."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from torchonline.core.checks import check_shape, kind, positive, seed_number
from torchonline.environments.simulated import SimulatedBandit
from torchonline.links import Link


class GeneralizedLinearBandit(SimulatedBandit):
    r"""Independent trials of a generalized linear bandit: rewards of mean :math:`\mu(x^\top\theta^*)`, arms in the unit ball.

    A round::

        k = policy.select(environment.arms())
        x, reward, regret = environment.pull(k)
        policy.step(x, reward)

    The regret of a round is :math:`\max_j \mu(x_j^\top\theta^*) - \mu(x_k^\top\theta^*)`. Arms are drawn uniformly from the
    unit ball, and :math:`\theta^*` uniformly from a sphere, anew for each trial. Parameters and arms come from one generator,
    rewards from another, both the environment's own: policies that play environments of one seed meet the same parameters
    and arms, whatever they pull. With :class:`~torchonline.links.Logistic` rewards come from the same uniform numbers too.

    Args:
        dim: number of features d.
        arms: number of arms K.
        link: says the mean, and the law of rewards.
        rewards: another law: a function ``(z, generator)`` that returns rewards, of the shape of z, drawn with that generator;
            say fractions, or counts that vary more than Poisson's. Regret is counted by the link, so their mean should be
            the link's. None for the link's own law; :class:`~torchonline.links.CustomLink` has none.
        theta_norm: the length S of :math:`\theta^*`, above 0.
        redraw: whether each round has new arms; otherwise a trial keeps those of its first round.
        batch_shape: ``*B``, independent trials, to be played by a learner of the same ``batch_shape``.
        seed: of all draws.
        dtype: of all that is returned.

    Attributes:
        theta: :math:`\theta^*`, shape ``(*B, d)``.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: the link cannot be computed up to ``theta_norm``, or nothing says by which law rewards are drawn.

    Example:
        >>> from torchonline.environments import GeneralizedLinearBandit
        >>> environment = GeneralizedLinearBandit(2, 10, link=Logistic(), theta_norm=3.0, batch_shape=(3,))
        >>> policy, total = LocalGLB(2, theta_bound=3.0, batch_shape=(3,)), torch.zeros(3)
        >>> for _ in range(300):
        ...     x, reward, regret = environment.pull(policy.select(environment.arms()))
        ...     policy.step(x, reward)
        ...     total += regret
        >>> bool((total < 50.0).all())
        True
        >>> round(environment.kappa(), 2)
        22.14
    """

    def __init__(
        self,
        dim: int,
        arms: int,
        *,
        link: Link,
        rewards: Callable[[Tensor, torch.Generator], Tensor] | None = None,
        theta_norm: float = 1.0,
        redraw: bool = False,
        batch_shape: tuple[int, ...] = (),
        seed: int = 0,
        dtype: torch.dtype = torch.float64,
    ) -> None:
        if not isinstance(link, Link):
            raise TypeError(f"link: expected a torchonline.links.Link, got {kind(link)}")
        self.theta_norm = positive("theta_norm", theta_norm)
        if self.theta_norm >= link.reach:
            name = type(link).__name__
            raise ValueError(f"theta_norm: expected below {link.reach:g}, the reach of {name}, got {self.theta_norm:g}")
        link.check_bound(self.theta_norm)
        if rewards is None and type(link).sample is Link.sample:
            raise ValueError(f"rewards: expected a law, since {type(link).__name__} has none, got None")
        if rewards is not None and not callable(rewards):
            raise TypeError(f"rewards: expected a function of z and a generator, got {kind(rewards)}")
        self.link = link
        self._law = link.sample if rewards is None else rewards
        # Some laws take more random numbers for some arms than for others.
        self._reward_generator = torch.Generator().manual_seed(seed_number(seed) ^ 0x5DEECE66D)
        self._rounds, self._slopes = 0, torch.zeros((), dtype=torch.float64)
        super().__init__(
            dim,
            arms,
            theta_norm=theta_norm,
            redraw=redraw,
            batch_shape=batch_shape,
            seed=seed,
            dtype=dtype,
        )

    def kappa(self) -> float:
        r""":math:`1/\min\mu'(z)` over :math:`|z| \le S`: by how much the flattest part of the link hides differences.

        For a :class:`~torchonline.links.CustomLink` it may be a little more.
        """
        slope = self.link.min_slope(self.theta_norm)
        return 1.0 / slope if slope > 0.0 else math.inf

    def kappa_star(self) -> Tensor:
        r"""1 over the mean of :math:`\mu'` at the best arms of all rounds so far and of this one: ``(*B)``."""
        return self._rounds / self._slopes

    def _mean(self, predictor: Tensor) -> Tensor:
        return self.link.mean(predictor)

    def _reward(self, predictor: Tensor) -> Tensor:
        reward = self._law(predictor, self._reward_generator)
        if not isinstance(reward, Tensor):
            raise TypeError(f"rewards: expected a function that returns a tensor, got {kind(reward)}")
        check_shape("rewards", reward, self.batch_shape)
        return reward

    def _draw_arms(self) -> None:
        directions = self._directions(self._arms_shape)
        uniform = torch.rand(self._arms_shape[:-1], generator=self._generator, dtype=torch.float64)
        self._arms = directions * (uniform ** (1.0 / self._arms_shape[-1])).unsqueeze(-1).to(self.dtype)
        self._set_means()

    def _set_means(self) -> None:
        super()._set_means()
        self._rounds += 1
        self._slopes = self._slopes + self.link.slope(self._predictors.amax(-1)).double()
