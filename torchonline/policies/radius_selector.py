"""Disjoint arms, and a selector that learns the best multiple of the radius."""

from collections.abc import Sequence

from torch import Tensor

from torchonline.policies.disjoint import DisjointArms, arms_last, for_each_arm
from torchonline.policies.radius_multiples import RadiusMultiples
from torchonline.policies.rules import UCB
from torchonline.policies.scaler import StandardScaler
from torchonline.regression.estimator import Estimator


class RadiusSelector(RadiusMultiples, DisjointArms):
    r"""UCB at several multiples of the radius; a selector learns the best one.

    All multiples share the estimators. In a round, each multiple s names the arm
    :math:`a_s = \arg\max_k x^\top\hat\theta_k + s\cdot\text{radius}_k\cdot\text{width}_k(x)`. The selector plays the arm of one
    multiple, and credits every multiple that named the played arm. ``rule`` says how:

    - ``"ucb"``: with the count :math:`n_s` and the mean gain :math:`\bar g_s` of the rounds in which s named the played
      arm, play the multiple with the largest :math:`\bar g_s + 0.3\sqrt{\log(1+t)/n_s}`. A heuristic. On real data it had 2 to
      5 % more errors than the best multiple in hindsight (docs/radius_selector_measured.md).
    - ``"exp4"``: EXP4-IX draws the multiple with probability :math:`p_s \propto \exp(-\eta_t\hat L_s)`, where

      .. math:: \hat L_s \leftarrow \hat L_s + \frac{\text{loss}\cdot 1[a_s = a]}{\sum_u p_u 1[a_u = a] + \eta_t/2},\qquad
                \eta_t = \sqrt{\frac{\log M}{\min(K, M)\,t}}

      after the played arm a. A loss is 1 minus the gain. Guarantee: over T rounds, the sum of the played losses exceeds the sum
      of the losses of the arms that the best multiple named, on the same history, by at most :math:`4\sqrt{T\min(K, M)\log M}`
      in expectation, for any statistics (docs/radius_selector_theory.md). This is not the regret against that multiple played
      alone, whose statistics would differ. Conditions: the selector chooses the arms, without a mask; each reward is learnt
      before the next decision; K does not change.

    A gain is the rank of the reward: the share of the last 256 rewards, this one included, that are below it; equal rewards
    count half. So the selector ignores the unit, the origin, the range and the tails of rewards, and also how much one reward
    exceeds another: a multiple that wins rarely but by a lot looks bad. The guarantee holds for ranks. With a ``reward_range``,
    gains are rewards, scaled and clipped to [0, 1].

    The confidence sets of :class:`DisjointArms` hold under every rule, since they do not depend on how arms are chosen. The
    regret bound of UCB at multiple 1 does not carry over. The estimators learn the rewards themselves. :meth:`step` recomputes
    the named arms and the probabilities from the present state. So credits are wrong if other rounds were learnt since the
    decision, or if a mask had excluded a named arm. :class:`SharedRadiusSelector` is for arms that share one estimator.

    Cost: as for :class:`DisjointArms`, plus O(K M) for a decision, and plus one decision for a step.

    Args:
        estimator: of one arm, with m features. It serves as a template: every arm gets a new estimator with the same options.
            The multiples multiply its radius.
        actions: K, the number of arms at first, or their names.
        scales: the M multiples, above 0. Include 1, so that the estimator's own radius stays available.
        rule: "ucb" or "exp4".
        reward_range: lowest and highest reward; None for gains by rank.
        most_actions: number of arms that share ``delta``; None for ``actions``. Give a larger number if arms will be added.
        scaler: a :class:`StandardScaler` of the context with m outputs, shared by the arms; None to use the contexts as
            features.

    Shape:
        - ``plays``, ``gains``, ``losses``: ``(*B, M)``; ``recent``, rewards: ``(*B, 256)``, or None with a ``reward_range``.

    Example:
        >>> policy = RadiusSelector(RidgeRegression(2), actions=3)
        >>> policy.step(torch.eye(2), torch.tensor([0, 1]), torch.tensor([0.0, 1.0]))
        >>> policy.plays.shape
        torch.Size([5])

    Reference:
        Neu, Explore no more: improved high-probability regret bounds for non-stochastic bandits, NeurIPS 2015, for EXP4-IX.
    """

    # TorchScript reads only the annotations of the class itself.
    copied: list[str]
    pooled: list[str]

    def __init__(
        self,
        estimator: Estimator,
        actions: int | Sequence[str],
        *,
        scales: tuple[float, ...] = (1.0, 0.3, 0.1, 0.03, 0.01),
        rule: str = "ucb",
        reward_range: tuple[float, float] | None = None,
        most_actions: int | None = None,
        scaler: StandardScaler | None = None,
    ) -> None:
        self._set_options(estimator, scales, rule, reward_range)
        super().__init__(UCB(estimator), actions, most_actions=most_actions, scaler=scaler)

    def _most_named(self) -> int:
        return min(len(self.scales), self.policy.estimator.rounds.shape[-1])

    def _estimates(self, features: Tensor) -> tuple[Tensor, Tensor]:
        dims, arms = self.batch_dims, self.policy.estimator.rounds.shape[-1]
        x = for_each_arm(features, dims, arms, self.takes_one_row)
        estimate, error = self.policy.estimator.estimate_and_bonus(x)
        return arms_last(estimate, dims), arms_last(error, dims)

    def _learn_round(self, x: Tensor, place: Tensor, reward: Tensor, noise_scale: Tensor) -> None:
        agree = self._agreement(x, place)
        # The arm may refuse the round, so it learns before anything else is written.
        features = self._features(x)
        self._learn_arm(features, place, reward, noise_scale)
        self._credit_(agree, reward)
        self._end_round_(x, features, place, noise_scale)
