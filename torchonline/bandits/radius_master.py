"""Arms with a model each, and a master that learns which radius pays."""

import math

import torch
from torch import Tensor

from torchonline.bandits.disjoint import DisjointArms, arms_last, for_each_arm
from torchonline.bandits.estimator import Estimator
from torchonline.bandits.policies import UCB, drawn, one_hot
from torchonline.bandits.scaler import RunningScaler
from torchonline.core.checks import finite_number, one_of, positive
from torchonline.core.ops import (
    along,
    argmax,
    assign_,
    at_least,
    at_most,
    column,
    exp,
    log,
    logsumexp,
    or_one,
    real,
    row_dots,
    sqrt,
    where,
)

RULES = ("balancing", "exp4")


class RadiusMaster(DisjointArms):
    r"""UCB at several multiples of the radius, of which a master learns the best.

    All multiples share the estimators. In a round, each multiple s names the arm
    :math:`a_s = \arg\max_k x^\top\hat\theta_k + s\cdot\text{radius}_k\cdot\text{width}_k(x)`. The master plays the arm of one
    multiple, and credits every multiple that named the played arm. ``rule`` says how:

    - ``"balancing"``: with the count :math:`n_s` and the mean reward :math:`\bar r_s` of the rounds in which s named the played
      arm, play the multiple with the largest :math:`\bar r_s + 0.3\,\text{range}\sqrt{\log(1+t)/n_s}`. A heuristic. On real data
      it had 4 to 6 % more errors than the best multiple in hindsight (docs/radius_master.md).
    - ``"exp4"``: EXP4-IX draws the multiple with probability :math:`p_s \propto \exp(-\eta_t\hat L_s)`, where

      .. math:: \hat L_s \leftarrow \hat L_s + \frac{\text{loss}\cdot 1[a_s = a]}{\sum_u p_u 1[a_u = a] + \eta_t/2},\qquad
                \eta_t = \sqrt{\frac{\log M}{\min(K, M)\,t}}

      after the played arm a. A loss is 1 - the reward, scaled to [0, 1] by ``reward_range``. Guarantee: over T rounds, the sum of
      the played losses exceeds the sum of the losses of the arms that the best multiple named, on the same history, by at most
      :math:`4\sqrt{T\min(K, M)\log M}` in expectation, for any statistics (docs/radius_master.md). This is not the
      regret against that multiple played alone, whose statistics would be others. Conditions: the master chooses the arms,
      without a mask; each reward is learnt before the next decision; K does not change.

    The confidence sets of :class:`DisjointArms` hold under every rule, since they do not depend on how arms are chosen. The
    regret bound of UCB at multiple 1 does not carry over. Rewards outside of ``reward_range`` are cut for the master, not for the
    estimators. :meth:`step` recomputes the named arms and the probabilities from the present state. So credits are off if other
    rounds were learnt since the decision, and where a mask had left out a named arm.

    Cost: that of :class:`DisjointArms`, O(K M) more for a decision, and a decision more for a step.

    Args:
        estimator: as the policy of :class:`DisjointArms`; its radius is what the multiples multiply.
        actions, most_actions, scaler: as in :class:`DisjointArms`.
        scales: the M multiples, above 0. Keep 1, so that the estimator's own choice is never out of reach.
        rule: "balancing" or "exp4".
        reward_range: lowest and highest reward.

    Shape:
        - ``plays``, ``gains``, ``losses``: ``(*B, M)``.

    Example:
        >>> policy = RadiusMaster(RidgeRegression(2), actions=3)
        >>> policy.step(torch.eye(2), torch.tensor([0, 1]), torch.tensor([0.0, 1.0]))
        >>> policy.plays.shape
        torch.Size([5])

    Reference:
        Neu, Explore no more: improved high-probability regret bounds for non-stochastic bandits, NeurIPS 2015, for EXP4-IX.
    """

    # TorchScript reads the annotations of the class itself alone.
    copied: list[str]
    pooled: list[str]
    plays: Tensor
    gains: Tensor
    losses: Tensor
    multiples: Tensor
    slots: Tensor

    # A checkpoint of a master with other values of these is refused.
    statistics_depend_on = ("is_balancing", "scales", "reward_range")
    argument_of = {"is_balancing": "rule"}

    def __init__(
        self,
        estimator: Estimator,
        actions: int,
        *,
        scales: tuple[float, ...] = (1.0, 0.3, 0.1, 0.03, 0.01),
        rule: str = "balancing",
        reward_range: tuple[float, float] = (0.0, 1.0),
        most_actions: int | None = None,
        scaler: RunningScaler | None = None,
    ) -> None:
        if not isinstance(estimator, Estimator):
            raise TypeError(f"estimator: expected an Estimator, got {type(estimator).__name__}")
        if not isinstance(scales, (tuple, list)) or not scales:
            raise TypeError(f"scales: expected a tuple of numbers above 0, got {scales!r}")
        if not isinstance(reward_range, (tuple, list)) or len(reward_range) != 2:
            raise TypeError(f"reward_range: expected a tuple of two numbers, got {reward_range!r}")
        low, high = (finite_number("reward_range", value) for value in reward_range)
        if low >= high:
            raise ValueError(f"reward_range: expected low < high, got {reward_range}")
        # Set before the base class makes the buffers.
        self.scales = tuple(positive("scales", value) for value in scales)
        self.rule = one_of("rule", rule, RULES)
        self.is_balancing = self.rule == "balancing"
        self.reward_range = (low, high)
        super().__init__(UCB(estimator), actions, most_actions=most_actions, scaler=scaler)

    def _initial_state(self) -> dict[str, Tensor | None]:
        zeros = torch.zeros(len(self.scales), dtype=torch.float64)
        return super()._initial_state() | {"plays": zeros, "gains": zeros.clone(), "losses": zeros.clone()}

    def _tables(self) -> dict[str, Tensor]:
        multiples = torch.tensor(self.scales, dtype=torch.float64)
        return {"multiples": multiples, "slots": torch.arange(len(self.scales), dtype=torch.float64)}

    def shares(self) -> Tensor:
        """Return the probability with which each multiple is played, ``(*B, M)``."""
        count = real(self.rounds, self.plays) + 1.0
        if self.is_balancing:
            plays = or_one(self.plays)
            value = self.gains / plays + 0.3 * sqrt(column(log(1.0 + count)) / plays)
            best = argmax(where(self.plays == 0.0, value + math.inf, value))
            return real(self.slots == column(best), self.plays)
        exponent = -column(self._rate(count)) * self.losses
        return exp(exponent - column(logsumexp(exponent)))

    def _rate(self, count: Tensor) -> Tensor:
        """Return the rate of EXP4-IX in a round: ``(*B)`` twice."""
        multiples, arms = len(self.scales), self.policy.estimator.rounds.shape[-1]
        # A single multiple needs no rate, but one above 0 keeps the estimates finite.
        return sqrt(math.log(max(multiples, 2)) / (min(multiples, arms) * count))

    def _estimates(self, context: Tensor) -> tuple[Tensor, Tensor]:
        """Return the mean of each arm and its error at multiple 1, ``(*B, ..., K)``."""
        estimator, dims = self.policy.estimator, self.batch_dims
        x = for_each_arm(self._features(context), dims, estimator.rounds.shape[-1])
        mean = estimator.predictor(x)
        error = along(estimator.radius(), mean) * estimator.width(x)
        return arms_last(mean, dims), arms_last(error, dims)

    def _bounds(self, context: Tensor) -> Tensor:
        """Return the scores of the arms at each multiple, ``(*B, ..., M, K)``."""
        mean, error = self._estimates(context)
        return mean[..., None, :] + self.multiples[:, None] * error[..., None, :]

    def _scores(self, context: Tensor) -> Tensor:
        mean, error = self._estimates(context)
        shares = self.shares()
        if self.is_balancing:
            return mean + along(row_dots(shares, self.multiples), mean) * error
        # A multiple of its own for each decision.
        shares = shares.reshape(list(shares.shape[:-1]) + [1] * (mean.dim() - shares.dim()) + [shares.size(-1)])
        index = drawn(shares.expand(list(mean.shape[:-1]) + [shares.size(-1)]))
        return mean + self.multiples.take(index).unsqueeze(-1) * error

    def _mixture(self, context: Tensor, mask: Tensor | None) -> Tensor:
        bounds = self._bounds(context)
        if mask is not None:
            bounds = bounds.masked_fill(~mask.unsqueeze(-2), -math.inf)
        named = one_hot(bounds)
        shares = self.shares()
        shares = shares.reshape(list(shares.shape[:-1]) + [1] * (named.dim() - shares.dim() - 1) + [shares.size(-1), 1])
        return (shares * named).sum(-2)

    def _learn_round(self, context: Tensor, action: Tensor, reward: Tensor, noise_scale: Tensor) -> None:
        agree = real(argmax(self._bounds(context)) == column(1.0 * action), self.plays)
        low, high = self.reward_range
        gain = at_most(at_least((reward - low) / (high - low), 0.0), 1.0)
        # The arm may refuse the round, so it learns before anything is written.
        self._learn_arm(self._features(context), action, reward, noise_scale)
        if self.is_balancing:
            assign_(self.plays, self.plays + agree)
            assign_(self.gains, self.gains + column(gain) * agree)
        else:
            floor = 0.5 * self._rate(real(self.rounds, self.plays) + 1.0)
            played = row_dots(self.shares(), agree)
            assign_(self.losses, self.losses + column((1.0 - gain) / (played + floor)) * agree)
        self._end_round_(context)

    def _is_on_arrays(self) -> bool:
        return self.is_balancing  # the other rule draws
