"""Linear bandits: the mean reward is linear in the features of the arm."""

import math
from collections.abc import Callable
from typing import Unpack

import torch
from torch import Tensor

from torchonline.core.checks import check_shape, finite_number, instance_of, kind, positive_integer, seed_number
from torchonline.core.inputs import as_dense
from torchonline.environments.noise import Noise
from torchonline.environments.simulated import BanditOptions, SimulatedBandit

Scales = Callable[[tuple[int, ...], torch.Generator], Tensor]


class LinearBandit(SimulatedBandit):
    r"""Independent trials of a linear bandit with unit-norm arms.

    The reward is :math:`r = x^\top\theta^* + \eta`, with :math:`E\eta = 0`. :math:`\theta^*` and the arms are drawn uniformly
    from spheres, independently for each trial. No draw depends on the pulled arms: two policies on environments with the same
    seed get the same parameters, arms and noise.

    Args:
        noise: law of :math:`\eta`. Its ``moment_norm(order)`` is the exact ``noise_scale`` for a learner.
        dim, arms, theta_norm, redraw, batch_shape, seed, dtype: as in
            :class:`~torchonline.environments.simulated.SimulatedBandit`, which shows a round.

    Example:
        >>> from torchonline import OFUL
        >>> from torchonline.environments import GaussianNoise
        >>> environment = LinearBandit(2, 10, noise=GaussianNoise(scale=0.1), batch_shape=(3,))
        >>> policy, total = OFUL(2, noise_scale=0.1, batch_shape=(3,)), torch.zeros(3)
        >>> for _ in range(200):
        ...     arms = environment.arms()
        ...     k = policy.select(arms)
        ...     x, reward, regret = environment.pull(k)
        ...     policy.step(arms, k, reward)
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
        return predictor + self._noise().to(self.dtype)

    def _noise(self) -> Tensor:
        """Draw the noise of a round: ``(*B)``, float64."""
        return self.noise.sample(self.batch_shape, self._generator)


class VaryingNoiseBandit(LinearBandit):
    r"""Linear bandit with a known noise scale in each round.

    The reward is :math:`r_t = x_t^\top\theta^* + s_t\,\eta_t`, with :math:`\eta_t` of the law ``noise`` and :math:`s_t` the
    attribute ``noise_scale``. The norm of order p of the round's noise is ``noise_scale * noise.moment_norm(p)``, which a
    learner's ``step`` takes as its ``noise_scale``. For a law of norm 1, such as ``StudentT(3.0, scale=3**-0.5)`` for p = 2, the
    two are equal.

    The scales have their own generator. Environments with the same seed have the same parameters, arms and :math:`\eta_t`, for
    any pulls and any scales, and so has a :class:`LinearBandit`.

    Args:
        noise_scales: law of the scales: a function ``(batch_shape, generator)`` that returns numbers of at least 0, ``(*B)``,
            drawn with that generator. It is called once for each round. A scale of 0 is a round without noise.
        dim, arms, noise, theta_norm, redraw, batch_shape, seed, dtype: as in :class:`LinearBandit`.

    Attributes:
        noise_scale: :math:`s_t` of this round, ``(*B)``, the same until :meth:`pull`.

    Example:
        >>> from torchonline import AnytimeHeavyTailUCB
        >>> from torchonline.environments import GaussianNoise
        >>> def scales(shape, generator):
        ...     return torch.where(torch.rand(shape, generator=generator) < 0.9, 0.02, 1.0)
        >>> environment = VaryingNoiseBandit(2, 10, noise=GaussianNoise(), noise_scales=scales)
        >>> policy, total = AnytimeHeavyTailUCB(2, noise_scale=1.0), 0.0
        >>> for _ in range(200):
        ...     arms, told = environment.arms(), environment.noise_scale
        ...     k = policy.select(arms)
        ...     x, reward, regret = environment.pull(k)
        ...     policy.step(arms, k, reward, noise_scale=told)
        ...     total += float(regret)
        >>> total < 20.0
        True
    """

    def __init__(
        self, dim: int, arms: int, *, noise: Noise, noise_scales: Scales, **options: Unpack[BanditOptions]
    ) -> None:
        if not callable(noise_scales):
            raise TypeError(f"noise_scales: expected a function of a shape and a generator, got {kind(noise_scales)}")
        self.noise_scales = noise_scales
        self._scale_generator = torch.Generator().manual_seed(seed_number(options.get("seed", 0)) ^ 0x2545F491)
        super().__init__(dim, arms, noise=noise, **options)
        self._draw_scale()

    def _noise(self) -> Tensor:
        return self.noise_scale.double() * super()._noise()

    def _end_round(self) -> None:
        super()._end_round()
        self._draw_scale()

    def _draw_scale(self) -> None:
        scale = self.noise_scales(self.batch_shape, self._scale_generator)
        scale = as_dense("noise_scales", instance_of("noise_scales", scale, Tensor, "a function that returns a tensor"))
        check_shape("noise_scales", scale, self.batch_shape)
        if not bool((scale.isfinite() & (scale >= 0.0)).all()):
            raise ValueError("noise_scales: expected finite numbers of at least 0, got others")
        self.noise_scale = scale.to(self.dtype)


class DriftingBandit(LinearBandit):
    r"""Linear bandit whose parameter rotates by a fixed angle at regular intervals.

    .. math:: \theta^*_t = \cos(\varphi_t)\,\theta^*_1 + \sin(\varphi_t)\,\|\theta^*_1\|\,u,\qquad
              \varphi_t = \text{angle}\cdot\lfloor (t-1)/\text{every}\rfloor

    The unit vector :math:`u`, orthogonal to :math:`\theta^*_1`, is drawn once for each trial. Regret is measured against the
    best arm of each round.

    Args:
        dim: number of features d, at least 2.
        angle: angle of one turn, in radians. An angle of pi flips the sign of the parameter.
        every: rounds between two turns. 1 is steady drift.
        arms, noise, theta_norm, redraw, batch_shape, seed, dtype: as in :class:`LinearBandit`.

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
