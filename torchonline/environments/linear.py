"""Linear bandits: the mean reward is linear in the features of the arm."""

import math
from typing import Unpack

import torch
from torch import Tensor

from torchonline.core.checks import finite_number, instance_of, positive_integer
from torchonline.environments.noise import Noise
from torchonline.environments.simulated import BanditOptions, SimulatedBandit


class LinearBandit(SimulatedBandit):
    r"""Independent trials of a linear bandit with unit-norm arms.

    The reward is :math:`r = x^\top\theta^* + \eta`, with :math:`E\eta = 0`. :math:`\theta^*` and the arms are drawn uniformly
    from spheres, independently for each trial. No draw depends on the pulled arms: two policies on environments with the same
    seed meet the same parameters, arms and noise.

    Args:
        noise: law of :math:`\eta`. Its ``moment_norm(order)`` is the exact ``noise_scale`` for a learner.
        dim, arms, options: those of :class:`~torchonline.environments.simulated.SimulatedBandit`, which shows a round.

    Example:
        >>> from torchonline import OFUL
        >>> from torchonline.environments import GaussianNoise
        >>> environment = LinearBandit(2, 10, noise=GaussianNoise(scale=0.1), batch_shape=(3,))
        >>> policy, total = OFUL(2, noise_scale=0.1, batch_shape=(3,)), torch.zeros(3)
        >>> for _ in range(200):
        ...     x, reward, regret = environment.pull(policy.select(environment.arms()))
        ...     policy.step(x, reward)
        ...     total += regret
        >>> bool((total < 20.0).all())
        True
    """

    def __init__(self, dim: int, arms: int, *, noise: Noise, **options: Unpack[BanditOptions]) -> None:
        self.noise = instance_of("noise", noise, Noise, "a Noise")
        super().__init__(dim, arms, **options)

    def _mean(self, predictor: Tensor) -> Tensor:
        return predictor

    def _reward(self, predictor: Tensor) -> Tensor:
        return predictor + self.noise.sample(self.batch_shape, self._generator).to(self.dtype)


class DriftingBandit(LinearBandit):
    r"""Linear bandit whose parameter turns by a fixed angle, again and again.

    .. math:: \theta^*_t = \cos(\varphi_t)\,\theta^*_1 + \sin(\varphi_t)\,\|\theta^*_1\|\,u,\qquad
              \varphi_t = \text{angle}\cdot\lfloor (t-1)/\text{every}\rfloor

    The unit vector :math:`u`, orthogonal to :math:`\theta^*_1`, is drawn once for each trial. Regret is measured against the
    best arm of each round.

    Args:
        dim: number of features d, at least 2.
        angle: angle of one turn, in radians. An angle of pi flips the sign of the parameter.
        every: rounds between two turns. 1 is steady drift.
        arms, noise, options: those of :class:`LinearBandit`.

    Example:
        >>> from torchonline.environments import GaussianNoise
        >>> environment = DriftingBandit(2, 10, noise=GaussianNoise(), angle=torch.pi, every=3)
        >>> before = environment.theta
        >>> for _ in range(3):
        ...     outcome = environment.pull(torch.tensor(0))
        >>> torch.allclose(environment.theta, -before)
        True
    """

    def __init__(
        self, dim: int, arms: int, *, noise: Noise, angle: float, every: int = 1, **options: Unpack[BanditOptions]
    ) -> None:
        if positive_integer("dim", dim) < 2:
            raise ValueError(f"dim: expected at least 2, because the parameter turns in a plane, got {dim}")
        self.angle, self.every = finite_number("angle", angle), positive_integer("every", every)
        self._rounds = 0
        super().__init__(dim, arms, noise=noise, **options)
        direction = self._directions(self.theta.shape)
        along = (direction * self.theta).sum(-1, keepdim=True) / self.theta_norm**2
        u = torch.nn.functional.normalize(direction - along * self.theta, dim=-1)
        self._plane = self.theta, self.theta_norm * u

    def _end_round(self) -> None:
        super()._end_round()
        self._rounds += 1
        if self._rounds % self.every == 0:
            turned = self.angle * (self._rounds // self.every)
            self.theta = math.cos(turned) * self._plane[0] + math.sin(turned) * self._plane[1]
            self._set_means()
