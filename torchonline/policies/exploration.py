"""Randomized policies, whose probabilities follow from the estimated means."""

import math
from typing import Unpack

import torch
from torch import Tensor

from torchonline.core.checks import non_negative, positive, positive_integer, within
from torchonline.core.ops import along
from torchonline.core.options import described
from torchonline.policies.default_estimator import RidgeOptions
from torchonline.policies.policy import E, one_hot
from torchonline.policies.rules import Rule
from torchonline.policies.ties import shares_of_best


class Exploration(Rule[E]):
    """Base of the policies that draw an arm from the estimated mean rewards.

    A subclass implements :meth:`distribution`, the probabilities of the arms. Draws follow torch's global seed. A fork copies
    the seed, so give each forked worker a different one.
    """

    is_random, uses_widths = True, False

    def extra_repr(self) -> str:
        return described(self, vars(self))

    def scores_of(self, predictor: Tensor, width: Tensor) -> Tensor:
        """Return the estimated mean rewards."""
        return self.estimator._response(predictor)


class EpsilonGreedy(Exploration[E]):
    r"""Play a random arm with probability epsilon, else the best estimate.

    .. math:: \epsilon_t = \min(1, \text{epsilon}\cdot t^{-\text{decay}})

    in round t = ``rounds`` + 1. Each available arm has probability at least :math:`\epsilon_t/K`, so its logs support
    off-policy evaluation. With ``decay=0`` the regret is linear, at slope epsilon times the mean gap. With ``decay=1/3`` the
    number of exploration rounds is of order :math:`T^{2/3}`, as in an explore-first policy of regret :math:`\tilde O(T^{2/3})`;
    no bound is proved for it here. Cost of a decision: O(K d).

    Args:
        estimator: any :class:`~torchonline.regression.estimator.Estimator` of one response, with the ``batch_shape`` ``*B``; or
            d, the number of features, for :class:`~torchonline.RidgeRegression`.
        epsilon: in (0, 1], the probability of a uniform draw in the first round.
        decay: at least 0, how fast epsilon falls; 0 keeps it constant.
        dim: d, in place of ``estimator``.
        noise_scale, theta_bound, ridge, delta, radius, radius_scale, restart_every, batch_shape, dtype, device, validate: as in
            :class:`~torchonline.RidgeRegression`, only with a number of features.

    Example:
        >>> policy = EpsilonGreedy(RidgeRegression(2), epsilon=0.1)
        >>> policy.step(torch.eye(2), 1, 1.0)
        >>> policy.probabilities(torch.eye(2))
        tensor([0.0500, 0.9500], dtype=torch.float64)

    Reference:
        Auer, Cesa-Bianchi and Fischer, Finite-time analysis of the multiarmed bandit problem, Machine Learning 47 (2002), for an
        epsilon that falls, with ``decay=1`` and arms without features. Langford and Zhang, The epoch-greedy algorithm for
        contextual multi-armed bandits, NeurIPS 2007, for the rate :math:`T^{2/3}` of exploring first.
    """

    def __init__(
        self,
        estimator: E | int | None = None,
        *,
        epsilon: float = 0.05,
        decay: float = 0.0,
        **options: Unpack[RidgeOptions],
    ) -> None:
        super().__init__(estimator, **options)
        self.epsilon = within("epsilon", epsilon, 0.0, 1.0, closed=True)
        self.decay = non_negative("decay", decay)

    def distribution(self, scores: Tensor, rounds: Tensor) -> Tensor:
        epsilon = (self.epsilon * (1.0 + rounds.to(scores.dtype)) ** -self.decay).clamp(max=1.0)
        epsilon = along(epsilon, scores)
        return (1.0 - epsilon) * shares_of_best(scores) + epsilon * uniform(scores)


class SquareCB(Exploration[E]):
    r"""Inverse gap weighting: play worse arms with probability inverse to their gap.

    With the largest estimated mean :math:`\hat m` of K available arms, and :math:`\gamma_t = \text{gamma}\cdot
    t^{\text{exponent}}` in round t = ``rounds`` + 1,

    .. math:: p_k = \frac1{K + \gamma_t\,(\hat m - \hat m_k)}\quad\text{for all but the best arm, which gets the rest.}

    Guarantee, for a constant gamma (``exponent=0``) of :meth:`theorem_gamma`: if some parameter predicts the mean rewards, if
    rewards and predictions are in [0, 1], and if the estimator's squared loss is at most ``regret`` above that parameter's over
    the horizon T, then with probability at least 1 - ``delta`` the regret is at most
    :math:`4\sqrt{KT\,\text{regret}} + 8\sqrt{KT\log(2/\delta)}` (Foster and Rakhlin, Theorem 1). The predictions of ridge
    regressions may leave [0, 1], where nothing is proved. The default, a gamma that grows as :math:`10\sqrt t`, is a heuristic
    (Vowpal Wabbit's), for rewards in [0, 1]. For other rewards, divide gamma by their range. Cost of a decision: O(K d).

    Args:
        estimator: any :class:`~torchonline.regression.estimator.Estimator` of one response, with the ``batch_shape`` ``*B``; or
            d, the number of features, for :class:`~torchonline.RidgeRegression`.
        gamma: above 0, in units of 1 / reward.
        exponent: at least 0.
        dim: d, in place of ``estimator``.
        noise_scale, theta_bound, ridge, delta, radius, radius_scale, restart_every, batch_shape, dtype, device, validate: as in
            :class:`~torchonline.RidgeRegression`, only with a number of features.

    Example:
        >>> policy = SquareCB(RidgeRegression(2))
        >>> policy.step(torch.eye(2), 1, 1.0)
        >>> policy.probabilities(torch.eye(2))
        tensor([0.1102, 0.8898], dtype=torch.float64)

    Reference:
        Foster and Rakhlin, Beyond UCB: optimal and efficient contextual bandits with regression oracles, ICML 2020.
    """

    def __init__(
        self,
        estimator: E | int | None = None,
        *,
        gamma: float = 10.0,
        exponent: float = 0.5,
        **options: Unpack[RidgeOptions],
    ) -> None:
        super().__init__(estimator, **options)
        self.gamma = positive("gamma", gamma)
        self.exponent = non_negative("exponent", exponent)

    @staticmethod
    def theorem_gamma(actions: int, horizon: int, regret: float, delta: float = 0.01) -> float:
        """Return the gamma of the theorem, for ``exponent=0``.

        It is sqrt(K T / (regret + log(2 / delta))).

        Args:
            actions: K, the largest number of arms.
            horizon: T, number of rounds.
            regret: a bound on the estimator's sum of squared losses above the best parameter's.
            delta: in (0, 1).
        """
        arms, rounds = positive_integer("actions", actions), positive_integer("horizon", horizon)
        excess = non_negative("regret", regret) + math.log(2.0 / within("delta", delta, 0.0, 1.0))
        return math.sqrt(arms * rounds / excess)

    def distribution(self, scores: Tensor, rounds: Tensor) -> Tensor:
        gamma = self.gamma * (1.0 + rounds.to(scores.dtype)) ** self.exponent
        # Infinity times the best arm's gap of 0 is NaN. float32 and bfloat16 hold 1e38.
        gamma = along(gamma.clamp(max=1e38), scores)
        best = one_hot(scores)
        arms = (scores > -math.inf).sum(-1, keepdim=True)
        others = (1.0 - best) / (arms + gamma * (scores.amax(-1, keepdim=True) - scores))
        return others + best * (1.0 - others.sum(-1, keepdim=True))


class Softmax(Exploration[E]):
    r"""Boltzmann exploration: probabilities that grow exponentially in the mean.

    .. math:: p_k \propto \exp(\hat m_k / \text{temperature})

    No regret bound holds for a constant temperature. Cost of a decision: O(K d).

    Args:
        estimator: any :class:`~torchonline.regression.estimator.Estimator` of one response, with the ``batch_shape`` ``*B``; or
            d, the number of features, for :class:`~torchonline.RidgeRegression`.
        temperature: above 0, in units of the reward.
        dim: d, in place of ``estimator``.
        noise_scale, theta_bound, ridge, delta, radius, radius_scale, restart_every, batch_shape, dtype, device, validate: as in
            :class:`~torchonline.RidgeRegression`, only with a number of features.

    Example:
        >>> policy = Softmax(RidgeRegression(2), temperature=0.25)
        >>> policy.step(torch.eye(2), 1, 1.0)
        >>> policy.probabilities(torch.eye(2))
        tensor([0.1192, 0.8808], dtype=torch.float64)
    """

    def __init__(
        self, estimator: E | int | None = None, *, temperature: float = 0.1, **options: Unpack[RidgeOptions]
    ) -> None:
        super().__init__(estimator, **options)
        self.temperature = positive("temperature", temperature)

    def distribution(self, scores: Tensor, rounds: Tensor) -> Tensor:
        # Differences of scores can overflow only to -inf.
        # A temperature below the range of float32 would become 0.
        return torch.softmax((scores - scores.amax(-1, keepdim=True)) / max(self.temperature, 1e-37), -1)


def uniform(scores: Tensor) -> Tensor:
    """Return equal probabilities of the available arms, whose scores are above -inf."""
    available = (scores > -math.inf).to(scores.dtype)
    return available / available.sum(-1, keepdim=True)
