"""Generalized linear bandits: a link maps linear predictors to mean rewards."""

import math
from collections.abc import Callable
from typing import Unpack

import torch
from torch import Tensor

from torchonline.core.checks import check_shape, instance_of, kind, positive, seed_number
from torchonline.core.inputs import as_dense
from torchonline.environments.simulated import BanditOptions, SimulatedBandit
from torchonline.links import Link

Law = Callable[[Tensor, torch.Generator], Tensor]


class GeneralizedLinearBandit(SimulatedBandit):
    r"""Independent trials of a generalized linear bandit with arms in the unit ball.

    The mean reward of an arm x is :math:`\mu(x^\top\theta^*)`. The arms are drawn uniformly from the unit ball and
    :math:`\theta^*` uniformly from a sphere, independently for each trial. Environments with the same seed have the same
    parameters and arms for any pulls of a policy. With :class:`~torchonline.Logistic` the random numbers behind the rewards are
    also the same.

    Args:
        link: link function :math:`\mu`, which also gives the default law of the rewards.
        rewards: a different law of the rewards, such as fractions or overdispersed counts: a function ``(z, generator)`` that
            returns rewards shaped like z, drawn with that generator. Its mean should be :math:`\mu(z)`, because regret is
            computed from the link. None: the link's law, which a :class:`~torchonline.CustomLink` lacks.
        theta_norm: norm S of :math:`\theta^*`, above 0, in the range on which the link can be computed.
        dim, arms, redraw, batch_shape, seed, dtype: as in :class:`~torchonline.environments.simulated.SimulatedBandit`, which
            shows a round.

    Example:
        >>> from torchonline.environments import GeneralizedLinearBandit
        >>> environment, policy = GeneralizedLinearBandit(2, 10, link=Logistic(), theta_norm=3.0), LocalGLB(2, theta_bound=3.0)
        >>> arms = environment.arms()
        >>> k = policy.select(arms)
        >>> x, reward, regret = environment.pull(k)
        >>> policy.step(arms, k, reward)
        >>> round(environment.kappa(), 2)
        22.14
    """

    def __init__(
        self, dim: int, arms: int, *, link: Link, rewards: Law | None = None, **options: Unpack[BanditOptions]
    ) -> None:
        self.link: Link = instance_of("link", link, Link, "a torchonline.links.Link")
        norm = positive("theta_norm", options.get("theta_norm", 1.0))
        if norm >= link.reach:
            name = type(link).__name__
            raise ValueError(f"theta_norm: expected below {link.reach:g}, the reach of {name}, got {norm:g}")
        link.check_bound(norm)
        if rewards is None and type(link).sample is Link.sample:
            raise ValueError(f"rewards: expected a law, since {type(link).__name__} has none, got None")
        if rewards is not None and not callable(rewards):
            raise TypeError(f"rewards: expected a function of z and a generator, got {kind(rewards)}")
        self.rewards = rewards
        self._law = link.sample if rewards is None else rewards
        # Separate from the arms' generator, because the number of random numbers that a reward consumes may depend on the arm.
        self._reward_generator = torch.Generator().manual_seed(seed_number(options.get("seed", 0)) ^ 0x5DEECE66D)
        self._rounds, self._slopes = 0, torch.zeros((), dtype=torch.float64)
        super().__init__(dim, arms, **options)

    def kappa(self) -> float:
        r"""Return :math:`1/\min_{|z| \le S}\mu'(z)`, or slightly more for a custom link."""
        slope = self.link.min_slope(self.theta_norm)
        return 1.0 / slope if slope > 0.0 else math.inf

    def kappa_star(self) -> Tensor:
        """Return the inverse mean slope at the best arms, this round included: ``(*B)``."""
        return self._rounds / self._slopes

    def _mean(self, predictor: Tensor) -> Tensor:
        return self.link.mean(predictor)

    def _reward(self, predictor: Tensor) -> Tensor:
        reward = self._law(predictor, self._reward_generator)
        reward = as_dense("rewards", instance_of("rewards", reward, Tensor, "a function that returns a tensor"))
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
