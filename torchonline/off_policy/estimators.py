"""Estimators of a policy's value from a log of another policy."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from torchonline.core import checks
from torchonline.core.checks import positive
from torchonline.off_policy.logs import TOLERANCE, BanditLog, of_actions, real_numbers, target_probabilities
from torchonline.off_policy.means import effective_sample_size
from torchonline.off_policy.regression import PredictedRewards
from torchonline.off_policy.support import warn_of_overlap

# Terms that differ by less than this share of the largest are taken for equal.
SAME = 1e-12


@dataclass(frozen=True, eq=False, repr=False)
class Estimate:
    r"""Estimated value of a policy, with the parts from which intervals are computed.

    .. math:: \hat v = \frac1N\sum_i b_i + \frac{\sum_i w_i e_i}{D}

    D is N, or :math:`\sum_i w_i` if the estimator is self-normalised.

    Args:
        method: name of the estimator.
        log: the log.
        base: b, the reward model's predictions, ``(N)``; 0 without a model.
        weights: w, importance weights, possibly clipped, ``(N)``.
        residuals: e, rewards minus their predictions, ``(N)``.
        self_normalised: whether D is the sum of the weights.
        from_past: whether each round's base and residual were predicted from earlier rounds only.
        predicted_range: smallest and largest predicted reward of any arm; None without a model.
        minus_logged: whether the logged rewards are subtracted, see :func:`improvement`.

    Attributes:
        value: the estimate, a float.
        terms: the rounds' contributions, ``(N)``, float64. The value is their mean.
        effective_sample_size: effective sample size of the weights; 0 if all are 0, and N for the direct method, which has no
            weights.
        tail_share: share of the largest term in the variance, from 0 to 1, a diagnostic of heavy tails:

            .. math:: \max_g d_g^2 \Big/ \sum_g d_g^2

            :math:`d_g` sums the deviations of the terms from their mean over the rounds of group g. For a self-normalised
            estimate, the terms come from its linear approximation. The share tends to 0 as the log grows if the terms have a
            finite variance, and does not if their tail index is below 2. K equal terms among zeros have a share of about 1 / K.
            It is 1 if all terms are equal, because the log then does not show their variance. For an :func:`improvement` it is
            the larger of this share and the value's share, because the many rewards of the log would hide the few of the target.
            :func:`~torchonline.off_policy.confidence_interval` treats a share above 0.1 as a heavy tail
            (docs/off_policy_measured.md has the coverage on either side).

    Reference:
        The ratio of the maximum to the sum: O'Brien, A limit theorem for sample maxima and heavy branches in Galton-Watson
        trees, Journal of Applied Probability 1980. Embrechts, Kluppelberg and Mikosch, Modelling Extremal Events, 1997, Section
        6.2.6, use it to tell which moments are finite.
    """

    method: str
    log: BanditLog
    base: Tensor
    weights: Tensor
    residuals: Tensor
    self_normalised: bool = False
    from_past: bool = True
    predicted_range: tuple[float, float] | None = None
    minus_logged: bool = False

    def __repr__(self) -> str:
        size = f"effective_sample_size={self.effective_sample_size:.4g}"
        name = f"{self.method} minus logged" if self.minus_logged else self.method
        return f"Estimate({name}: {self.value:.6g}, rounds={len(self.log)}, {size})"

    @property
    def value(self) -> float:
        return float(self.terms.mean())

    @property
    def terms(self) -> Tensor:
        divisor = self.weights.mean() if self.self_normalised else 1.0
        return self.base + self.weights * self.residuals / divisor

    @property
    def effective_sample_size(self) -> float:
        if self.method == "direct_method":
            return float(len(self.log))
        return float(effective_sample_size(self.weights)) if bool((self.weights > 0.0).any()) else 0.0

    @property
    def tail_share(self) -> float:
        squares = deviations(self) ** 2
        largest = float(squares.max())
        # Deviations of equal terms are rounding errors.
        rounding = SAME * float(self.terms.abs().max())
        share = largest / float(squares.sum()) if largest > rounding**2 else 1.0
        if not self.minus_logged:
            return share
        return max(share, replace(self, base=self.base + self.log.reward, minus_logged=False).tail_share)


def deviations(estimate: Estimate) -> Tensor:
    """Return the sums over groups of the terms' deviations from their mean, ``(G)``.

    The terms of a self-normalised estimate come from its linear approximation (delta method).
    """
    terms = estimate.terms
    if estimate.self_normalised:
        ratio = estimate.weights / estimate.weights.mean()
        corrected = (estimate.weights * estimate.residuals).mean() / estimate.weights.mean()
        terms = estimate.base + ratio * (estimate.residuals - corrected)
    return estimate.log.group_sums(terms - terms.mean())


def improvement(estimate: Estimate) -> Estimate:
    """Return the estimated improvement on the logging policy.

    It is the value minus the mean logged reward. Both are means over the same rounds, and intervals take the differences round by
    round. So they allow for the dependence of the two means, and are narrower if the target often agrees with the log. Every
    interval accepts an improvement; :func:`~torchonline.off_policy.confidence_sequence` only one by :func:`ips` or
    :func:`clipped_ips`.

    Args:
        estimate: an estimated value.

    Example:
        >>> log = BanditLog(arms=2, action=[0, 1, 1, 0], reward=[1, 0, 1, 1], probability=[0.5] * 4)
        >>> improvement(ips(log, torch.tensor([[0.9, 0.1]]).expand(4, 2)))
        Estimate(ips minus logged: 0.2, rounds=4, effective_sample_size=2.439)
    """
    if checks.instance_of("estimate", estimate, Estimate, "an Estimate").minus_logged:
        raise ValueError("estimate: expected an estimated value, got an improvement")
    return replace(estimate, base=estimate.base - estimate.log.reward, minus_logged=True)


def importance_weights(log: BanditLog, target: Any) -> Tensor:
    r"""Return target over logging probability of the logged actions, ``(N)``.

    .. math:: w_i = \frac{\pi(a_i \mid x_i)}{p_i}

    Args:
        log: the log.
        target: see :func:`target_probabilities`.

    Example:
        >>> log = BanditLog(arms=2, action=[0, 1], reward=[1, 0], probability=[0.5, 0.25])
        >>> importance_weights(log, torch.full((2, 2), 0.5))
        tensor([1., 2.], dtype=torch.float64)
    """
    return _weights(log, target_probabilities(log, target))


def ips(log: BanditLog, target: Any) -> Estimate:
    r"""Estimate by inverse propensity scoring: :math:`\frac1N\sum_i w_i r_i`.

    Unbiased for the mean over the rounds of the target's expected reward, if

    - the logging probabilities are correct, and above 0 wherever the target's are;
    - the target was fixed before the log, or depends in each round on earlier rounds only.

    The logging policy may learn. All estimators weight rounds by :func:`importance_weights`, and give an
    :class:`OverlapWarning` under the rule of :func:`overlap`.

    Args:
        log: the log.
        target: probabilities ``(N, K)`` or a policy, see :func:`target_probabilities`.

    Example:
        >>> log = BanditLog(arms=2, action=[0, 1, 1, 0], reward=[1, 0, 1, 1], probability=[0.5] * 4)
        >>> ips(log, torch.tensor([[0.9, 0.1]]).expand(4, 2))
        Estimate(ips: 0.95, rounds=4, effective_sample_size=2.439)

    Reference:
        Horvitz and Thompson, JASA 1952. Strehl, Langford, Li and Kakade, Learning from logged implicit exploration data, NeurIPS
        2010.
    """
    return Estimate("ips", log, torch.zeros_like(log.reward), _checked_weights(log, target), log.reward)


def snips(log: BanditLog, target: Any) -> Estimate:
    r"""Estimate by self-normalised IPS: :math:`\sum_i w_i r_i / \sum_i w_i`.

    Consistent but biased, and always within the range of the rewards. It has no anytime-valid interval. The arguments are as in
    :func:`ips`.

    Raises:
        ValueError: the target would have chosen none of the logged actions.

    Example:
        >>> log = BanditLog(arms=2, action=[0, 1, 1, 0], reward=[1, 0, 1, 1], probability=[0.5] * 4)
        >>> target = torch.tensor([[0.9, 0.1]]).expand(4, 2)
        >>> round(snips(log, target).value, 4)
        0.95

    Reference:
        Swaminathan and Joachims, The self-normalized estimator for counterfactual learning, NeurIPS 2015.
    """
    return Estimate(
        "snips", log, torch.zeros_like(log.reward), _with_sum(_checked_weights(log, target)), log.reward, True
    )


def clipped_ips(log: BanditLog, target: Any, largest: float) -> Estimate:
    r"""Estimate by clipped IPS: :math:`\frac1N\sum_i \min(w_i, \tau)\,r_i`.

    The bias is minus the mean of :math:`(w_i - \tau)_+ r_i`: for non-negative rewards the estimate is too low.

    Args:
        log: the log.
        target: see :func:`ips`.
        largest: the largest weight tau, above 0.

    Example:
        >>> log = BanditLog(arms=2, action=[0, 1, 1, 0], reward=[1, 0, 1, 1], probability=[0.5] * 4)
        >>> target = torch.tensor([[0.9, 0.1]]).expand(4, 2)
        >>> round(clipped_ips(log, target, 1.5).value, 4)
        0.8

    Reference:
        Ionides, Truncated importance sampling, Journal of Computational and Graphical Statistics 2008.
    """
    largest = positive("largest", largest)
    weights = _checked_weights(log, target).clamp(max=largest)
    return Estimate("clipped_ips", log, torch.zeros_like(log.reward), weights, log.reward)


def direct_method(log: BanditLog, target: Any, predicted: Any) -> Estimate:
    r"""Estimate by a reward model alone.

    .. math:: \frac1N\sum_i\sum_a \pi(a \mid x_i)\,\hat q(x_i, a)

    It uses no weights and has the bias of the model. Its intervals ignore that bias.

    Args:
        log: the log.
        target: see :func:`ips`.
        predicted: predicted rewards of all arms, ``(N, K)``: from :func:`predicted_rewards`, or a tensor.

    Example:
        >>> log = BanditLog(arms=2, action=[0, 1, 1, 0], reward=[1, 0, 1, 1], probability=[0.5] * 4)
        >>> target = torch.tensor([[0.9, 0.1]]).expand(4, 2)
        >>> q = torch.tensor([[1.0, 0.5]]).expand(4, 2)
        >>> round(direct_method(log, target, q).value, 4)
        0.95

    Reference:
        Dudik, Erhan, Langford and Li, Doubly robust policy evaluation and optimization, Statistical Science 2014.
    """
    q = _predictions(log, predicted)
    base = (target_probabilities(log, target) * q.values).sum(1)
    nothing = torch.zeros_like(base)
    return Estimate(
        "direct_method", log, base, nothing, nothing, from_past=q.from_past, predicted_range=_range(q.values)
    )


def doubly_robust(log: BanditLog, target: Any, predicted: Any) -> Estimate:
    r"""Estimate by a reward model plus weighted residuals.

    .. math:: \frac1N\sum_i\Bigl(\sum_a \pi(a \mid x_i)\,\hat q(x_i, a) + w_i\,(r_i - \hat q(x_i, a_i))\Bigr)

    Unbiased under the conditions of :func:`ips`, if the prediction of a round uses earlier rounds only, or if groups are
    independent of each other and the prediction uses other groups only (cross-fitting). The variance is smaller than with IPS if
    the model explains the rewards. Arguments and reference are as in :func:`direct_method`.

    Example:
        >>> log = BanditLog(arms=2, action=[0, 1, 1, 0], reward=[1, 0, 1, 1], probability=[0.5] * 4)
        >>> doubly_robust(log, torch.tensor([[0.9, 0.1]]).expand(4, 2), torch.tensor([[1.0, 0.5]]).expand(4, 2))
        Estimate(doubly_robust: 0.95, rounds=4, effective_sample_size=2.439)
    """
    return _doubly_robust("doubly_robust", log, target, predicted)


def sndr(log: BanditLog, target: Any, predicted: Any) -> Estimate:
    r"""Estimate by the self-normalised doubly robust estimator.

    .. math:: \frac1N\sum_i\sum_a \pi(a \mid x_i)\,\hat q(x_i, a) + \frac{\sum_i w_i\,(r_i - \hat q(x_i, a_i))}{\sum_i w_i}

    Consistent but biased. It has no anytime-valid interval. Arguments are as in :func:`direct_method`.

    Raises:
        ValueError: the target would have chosen none of the logged actions.

    Example:
        >>> log = BanditLog(arms=2, action=[0, 1, 1, 0], reward=[1, 0, 1, 1], probability=[0.5] * 4)
        >>> target = torch.tensor([[0.9, 0.1]]).expand(4, 2)
        >>> q = torch.tensor([[1.0, 0.5]]).expand(4, 2)
        >>> round(sndr(log, target, q).value, 4)
        0.95
    """
    return _doubly_robust("sndr", log, target, predicted, self_normalised=True)


def switch(log: BanditLog, target: Any, predicted: Any, threshold: float, *, logging: Any) -> Estimate:
    r"""Estimate by IPS where weights are small, and by a reward model elsewhere.

    .. math:: \frac1N\sum_i\Bigl(w_i r_i 1[w_i \le \tau] + \sum_a \pi(a \mid x_i)\,\hat q(x_i, a)\,1[w(x_i, a) > \tau]\Bigr)

    The bias is the model's bias where weights are large. Other arguments are as in :func:`direct_method`.

    Args:
        log: the log.
        target: see :func:`ips`.
        predicted: see :func:`direct_method`.
        threshold: tau, at least 0.
        logging: logging probabilities of all arms, ``(N, K)``, which must agree with ``log.probability`` within 1e-5.

    Example:
        >>> log = BanditLog(arms=2, action=[0, 1, 1, 0], reward=[1, 0, 1, 1], probability=[0.5] * 4)
        >>> target = torch.tensor([[0.9, 0.1]]).expand(4, 2)
        >>> q = torch.tensor([[1.0, 0.5]]).expand(4, 2)
        >>> round(switch(log, target, q, 1.5, logging=torch.full((4, 2), 0.5)).value, 4)
        0.95

    Reference:
        Wang, Agarwal and Dudik, Optimal and adaptive off-policy evaluation in contextual bandits, ICML 2017.
    """
    threshold, probability = checks.non_negative("threshold", threshold), target_probabilities(log, target)
    logged = real_numbers("logging", logging, (len(log), log.arms))
    difference = float((of_actions(log, logged) - log.probability).abs().max())
    if bool((logged < 0.0).any()) or difference > TOLERANCE:
        raise ValueError(
            f"logging: expected probabilities that agree with log.probability, got a smallest of {float(logged.min()):g} and a "
            f"largest difference of {difference:g}"
        )
    weights, q = _weights(log, probability), _predictions(log, predicted)
    warn_of_overlap(log, probability, weights)
    # Compare products, because the ratio is 0 / 0 if both probabilities are 0.
    is_large = probability > threshold * logged
    is_large.scatter_(1, log.action.unsqueeze(1), (weights > threshold).unsqueeze(1))
    base = (probability * q.values * is_large).sum(1)
    weights = weights.where(weights <= threshold, 0.0)
    return Estimate(
        "switch",
        log,
        base,
        weights,
        log.reward,
        from_past=q.from_past,
        predicted_range=_range(q.values),
    )


def switch_doubly_robust(log: BanditLog, target: Any, predicted: Any, threshold: float) -> Estimate:
    r"""Estimate doubly robustly where weights are small, and by the model elsewhere.

    It is :func:`doubly_robust` with :math:`w_i\,1[w_i \le \tau]` in place of :math:`w_i`, and does not need logging probabilities
    of other arms. The bias is the model's bias where weights are above ``threshold``, tau, which is at least 0. Other arguments
    are as in :func:`direct_method`, the reference is as in :func:`switch`.

    Example:
        >>> log = BanditLog(arms=2, action=[0, 1, 1, 0], reward=[1, 0, 1, 1], probability=[0.5] * 4)
        >>> target = torch.tensor([[0.9, 0.1]]).expand(4, 2)
        >>> q = torch.tensor([[1.0, 0.5]]).expand(4, 2)
        >>> round(switch_doubly_robust(log, target, q, 1.5).value, 4)
        0.95
    """
    return _doubly_robust(
        "switch_doubly_robust", log, target, predicted, threshold=checks.non_negative("threshold", threshold)
    )


def _doubly_robust(
    method: str,
    log: BanditLog,
    target: Any,
    predicted: Any,
    *,
    self_normalised: bool = False,
    threshold: float | None = None,
) -> Estimate:
    probability, q = target_probabilities(log, target), _predictions(log, predicted)
    weights = _weights(log, probability)
    warn_of_overlap(log, probability, weights)
    if self_normalised:
        weights = _with_sum(weights)
    if threshold is not None:
        weights = weights.where(weights <= threshold, 0.0)
    base, residuals = (probability * q.values).sum(1), log.reward - of_actions(log, q.values)
    return Estimate(method, log, base, weights, residuals, self_normalised, q.from_past, _range(q.values))


def _weights(log: BanditLog, probability: Tensor) -> Tensor:
    return of_actions(log, probability) / log.probability


def _checked_weights(log: BanditLog, target: Any) -> Tensor:
    """Return the weights. Warn if the overlap is too small."""
    probability = target_probabilities(log, target)
    weights = _weights(log, probability)
    warn_of_overlap(log, probability, weights)
    return weights


def _with_sum(weights: Tensor) -> Tensor:
    if not bool((weights > 0.0).any()):
        raise ValueError("target: expected a probability above 0 for some logged action, got none")
    return weights


def _range(values: Tensor) -> tuple[float, float]:
    low, high = values.aminmax()
    return float(low), float(high)


def _predictions(log: BanditLog, predicted: Any) -> PredictedRewards:
    """Return checked predictions. A plain tensor does not count as from the past."""
    values, from_past = predicted if isinstance(predicted, PredictedRewards) else (predicted, False)
    return PredictedRewards(real_numbers("predicted", values, (len(log), log.arms)), from_past)
