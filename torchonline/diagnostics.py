"""Does the noise look like what the learner was told? A diagnostic, not a guarantee: see docs/noise_scale.md."""

import math
import sys
import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torchonline.core.checks import positive, positive_integer, shape_text, sizes, within
from torchonline.metrics.base import ExactMetric, check_floats, check_rounds

# The fixed bets against the promise, from one that is quick to win and to lose to one that waits for rare large noise.
BETS = 2.0 ** -torch.arange(1.0, 17.0, dtype=torch.float64)

# Below this many values Hill's standard error means little.
FEWEST = 10

# A warning points at the first line outside of these.
WITHIN = ("torchonline", "torchmetrics", "torch")


class NoiseScaleWarning(UserWarning):
    """``noise_scale`` looks too small; :class:`NoiseDiagnostic` says how often that is wrong."""


class NoiseReport(NamedTuple):
    r"""What the residuals so far say about the noise, for each learner.

    Attributes:
        rounds: how many rounds there were, ``()``, int64.
        evidence: the natural logarithm of the largest wealth so far, ``(*B)``, at least 0. Under a promise that holds
            it ever reaches log(1 / a) with probability at most a.
        noise_scale_is_small: whether that is at least log(1 / alpha), ``(*B)``, bool. It stays so.
        moment_ratio: :math:`(\text{mean}\,(|\text{residual}|/\nu)^p)^{1/p}`, ``(*B)``. No estimate to set ``noise_scale``
            by: under heavy tails most samples show less than the truth. NaN before the first round.
        tail_index: Hill's estimate from the k largest :math:`|\text{residual}|/\nu`, ``(*B)``. Moments of a smaller order
            than the true index exist. NaN where there are too few values above 0, infinite where the largest are equal.
        tail_index_error: its asymptotic standard error, ``tail_index`` / sqrt(k), ``(*B)``.
        moment_seems_infinite: whether the index plus two standard errors is below ``moment_order``, ``(*B)``, bool. A
            heuristic.
    """

    rounds: Tensor
    evidence: Tensor
    noise_scale_is_small: Tensor
    moment_ratio: Tensor
    tail_index: Tensor
    tail_index_error: Tensor
    moment_seems_infinite: Tensor


class NoiseDiagnostic(ExactMetric):
    r"""Warns when the rewards speak against the ``noise_scale`` that a learner was told.

    A round, for the caller, with a prediction from before the reward is learnt::

        error = estimator.radius() * estimator.width(x)
        diagnostic.update(reward - estimator(x), noise_scale, error)
        estimator.step(x, reward)

    The promise is :math:`E[|\eta_t|^p \mid \text{past}, x_t] \le \nu_t^p`. What a residual shows beyond the error bar of its
    prediction is bet against it, with sixteen fixed stakes :math:`\lambda = 2^{-1}, \dots, 2^{-16}`:

    .. math:: X_t = \Big(\frac{\max(|\text{residual}_t| - \text{error}_t, 0)}{\nu_t}\Big)^p,\qquad
              \text{wealth}_t = \frac{1}{16}\sum_\lambda \prod_{s \le t} \big(1 + \lambda (X_s - 1)\big).

    A :class:`NoiseScaleWarning` comes, once for each learner, when its wealth reaches 1 / ``alpha``. In a fleet it names the
    learner's index.

    Guarantee, of a warning. As long as the learner's confidence set holds, :math:`X_t \le (|\eta_t|/\nu_t)^p`, and the wealth is
    at most that of the same bets on the right-hand side. Where the promise holds that has a conditional mean of at most 1, so
    that their wealth is a nonnegative supermartingale that starts at 1, and by Ville's inequality ever reaches 1 / ``alpha``
    with probability at most ``alpha``. So a learner whose promise holds is warned of with
    probability at most ``alpha`` plus the learner's ``delta``, over all rounds and however often one looks. Without
    ``error`` the residual holds the error of the prediction too, and the rule is only approximate. In a fleet each
    learner has its own ``alpha``. What a warning refutes is the promise together with all that the confidence set rests
    on: rewards that are not linear in the features, or a ``theta_bound`` that is too small, can be the reason.

    Silence promises nothing. A ``noise_scale`` that is too small need not show in any number of rounds one can wait for:
    all of the moment may sit in a jump that has not come yet. Nor is the tail index more than a heuristic: Hill's
    estimator is asymptotic, and a bounded law with a rare jump fools it.

    Memory does not grow, and the numbers do not depend on how the rounds were cut into updates. All states are in
    ``state_dict``; they stay in float64, or int64, whatever type the metric is converted to. Calling the metric updates it
    and reports on all rounds so far, never on a batch alone, which would be a new wager in each batch. It watches the rounds
    of one process.

    Cost of n rounds: O(n + ``largest``) for each learner.

    Args:
        moment_order: p > 0, as the learner was told; 2 for a sub-Gaussian ``noise_scale``.
        batch_shape: ``*B``, of the learners that are watched.
        alpha: probability in (0, 1) of a wrong warning.
        largest: how many of the largest :math:`|\text{residual}|/\nu` are kept, at least 2. Hill's k is
            floor(sqrt(rounds)), at most ``largest`` - 1.

    Shape:
        - ``update(residual, noise_scale, error)``: one round ``(*B)``, or n rounds in order ``(n, *B)``; ``noise_scale``
          and ``error`` are shaped like ``residual``, or ``noise_scale`` is a number.
        - ``compute()``: a :class:`NoiseReport`.

    Raises:
        TypeError: an argument of ``update`` is no floating-point tensor.
        ValueError: a shape is wrong, a value is NaN or infinite, ``noise_scale`` is not above 0, or ``error`` is below 0.
            No state has changed.
        RuntimeError: a state dict was made with another ``moment_order``, ``alpha`` or shape. No state has changed.

    Example:
        >>> import warnings
        >>> diagnostic = NoiseDiagnostic()
        >>> noise = 3.0 * torch.randn(100, generator=torch.Generator().manual_seed(0))
        >>> with warnings.catch_warnings(record=True) as seen:
        ...     warnings.simplefilter("always")
        ...     diagnostic.update(noise, noise_scale=3.0)
        ...     print(len(seen), bool(diagnostic.compute().noise_scale_is_small))
        ...     diagnostic.update(noise, noise_scale=1.0)
        ...     print(seen[0].category.__name__, bool(diagnostic.compute().noise_scale_is_small))
        0 False
        NoiseScaleWarning True

    Reference:
        Testing by betting: Shafer, Journal of the Royal Statistical Society A 184, 2021; Waudby-Smith and Ramdas,
        Estimating means of bounded random variables by betting, same journal B 86, 2024. The index: Hill, Annals of
        Statistics 3, 1975.
    """

    is_differentiable = False
    higher_is_better = None
    full_state_update = True

    constants: Tensor
    log_wealth: Tensor
    evidence: Tensor
    log_moment: Tensor
    largest_logs: Tensor

    def __init__(
        self,
        moment_order: float = 2.0,
        batch_shape: tuple[int, ...] = (),
        alpha: float = 0.01,
        largest: int = 256,
    ) -> None:
        super().__init__(sync_on_compute=False)
        self.moment_order = positive("moment_order", moment_order)
        self.batch_shape = sizes("batch_shape", batch_shape)
        self.alpha = within("alpha", alpha, 0.0, 1.0)
        if positive_integer("largest", largest) < 2:
            raise ValueError(f"largest: expected an integer above 1, got {largest}")
        self.largest = largest
        zero = torch.zeros(self.batch_shape, dtype=torch.float64)
        nothing = torch.full((largest, *self.batch_shape), -math.inf, dtype=torch.float64)
        states = {
            # The options that the other states depend on, for checkpoints.
            "constants": torch.tensor([self.moment_order, self.alpha], dtype=torch.float64),
            "rounds": torch.zeros((), dtype=torch.int64),
            "log_wealth": zero.expand(len(BETS), *self.batch_shape).clone(),  # of each bet
            "evidence": zero,
            "log_moment": nothing[0].clone(),  # the logarithm of the sum of (|residual| / nu)^p
            "largest_logs": nothing,  # of |residual| / nu, in falling order
        }
        for name, value in states.items():
            self.add_state(name, value, persistent=True)

    def update(self, residual: Tensor, noise_scale: Tensor | float, error: Tensor | None = None) -> None:
        """Look at one round or several."""
        size, scale, error = self._checked(residual, noise_scale, error)
        log_ratio = size.log() - scale.log()
        log_x = self.moment_order * ((size - error).clamp(min=0.0).log() - scale.log())
        bets = BETS.to(size).reshape(-1, *[1] * len(self.batch_shape))
        # log(1 + bet (X - 1)), in logarithms: X may be larger than any number.
        gains = torch.logaddexp(torch.log1p(-bets), bets.log() + log_x.unsqueeze(1))
        # Summed round by round from the old state, so that the cut into updates does not matter.
        log_wealth = torch.cat([self.log_wealth.unsqueeze(0), gains]).cumsum(0)
        evidence = self.evidence.maximum((log_wealth.logsumexp(1) - math.log(len(BETS))).amax(0))
        moments = torch.cat([self.log_moment.unsqueeze(0), self.moment_order * log_ratio])
        is_news = self._is_small(evidence) & ~self._is_small(self.evidence)
        self.log_wealth, self.evidence = log_wealth[-1].clone(), evidence
        self.log_moment = moments.logcumsumexp(0)[-1].clone()
        self.largest_logs = torch.cat([self.largest_logs, log_ratio]).topk(self.largest, dim=0).values
        self.rounds = self.rounds + len(size)
        for index in is_news.nonzero().tolist():  # the only index of a single learner is []
            warnings.warn(
                f"noise_scale looks too small{f' for learner {index}' if index else ''}: within {int(self.rounds)} rounds the "
                f"wealth of bets against it reached exp({evidence[tuple(index)]:.1f}); a promise that holds comes to 1 / alpha "
                f"= {1.0 / self.alpha:g} with probability at most {self.alpha:g}. The learner's guarantee is void where "
                "noise_scale is too small",
                NoiseScaleWarning,
                stacklevel=_level_of_caller(),
            )

    def compute(self) -> NoiseReport:
        """What is known of the noise after the rounds so far."""
        rounds = int(self.rounds)
        k = min(math.isqrt(rounds), rounds - 1, self.largest - 1)
        index = _hill(self.largest_logs, k) if k > 0 else torch.full_like(self.evidence, math.nan)
        error = index / math.sqrt(max(k, 1))
        # Too few values have no say.
        is_infinite = (index + 2.0 * error < self.moment_order) & (k >= FEWEST)
        moment_ratio = ((self.log_moment - self.rounds.to(self.log_moment).log()) / self.moment_order).exp()
        is_small = self._is_small(self.evidence)
        return NoiseReport(
            self.rounds.clone(), self.evidence.clone(), is_small, moment_ratio, index, error, is_infinite
        )

    def forward(self, residual: Tensor, noise_scale: Tensor | float, error: Tensor | None = None) -> NoiseReport:
        """Look at one round or several, and report on all so far."""
        self.update(residual, noise_scale, error)
        return self.compute()

    def _is_small(self, evidence: Tensor) -> Tensor:
        return evidence >= -math.log(self.alpha)

    def _checked(
        self, residual: Tensor, noise_scale: Tensor | float, error: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """|residual|, the noise scale and the error: ``(n, *B)``, float64."""
        check_floats("residual", residual)
        check_rounds("residual", residual, self.batch_shape)
        if not isinstance(noise_scale, Tensor):
            noise_scale = torch.full_like(residual, positive("noise_scale", noise_scale), dtype=torch.float64)
        error = torch.zeros_like(residual) if error is None else error
        for name, value in (("noise_scale", noise_scale), ("error", error)):
            check_floats(name, value)
            if value.shape != residual.shape:
                raise ValueError(
                    f"{name}: expected the shape of residual, {shape_text(residual.shape)}, got {shape_text(value.shape)}"
                )
        if not bool((noise_scale > 0.0).all()):
            raise ValueError(f"noise_scale: expected values above 0, got {noise_scale.min().item():g}")
        if not bool((error >= 0.0).all()):
            raise ValueError(f"error: expected values of at least 0, got {error.min().item():g}")
        size, scale, bar = (
            value.detach().to(self.evidence).reshape(-1, *self.batch_shape)
            for value in (residual.abs(), noise_scale, error)
        )
        return size, scale, bar

    def _problems(self, loaded: Mapping[str, Any]) -> list[str]:
        return super()._problems(loaded) or [
            f"{name}: the state was made with {theirs:g}, this metric has {mine:g}"
            for name, mine, theirs in zip(
                ("moment_order", "alpha"), self.constants.tolist(), loaded["constants"].tolist(), strict=True
            )
            if not math.isclose(mine, theirs, rel_tol=1e-6)
        ]


def hill_index(values: Tensor, k: int) -> Tensor:
    r"""Hill's estimator of the tail index a of :math:`P(X > x) \approx c\,x^{-a}`, from the k largest values.

    .. math:: \hat a = \Big(\frac1k \sum_{i=1}^k \log\frac{X_{(i)}}{X_{(k+1)}}\Big)^{-1},\qquad X_{(1)} \ge X_{(2)} \ge \dots

    For independent values of an exact Pareto law :math:`k a / \hat a` is Gamma(k) distributed; for others the standard
    error :math:`\hat a/\sqrt k` is asymptotic, and the bias depends on how soon the power law sets in.

    Args:
        values: ``(n, *B)``, at least 0, floating point.
        k: from 1 to n - 1.

    Returns:
        ``(*B)``, float64; infinite where the k + 1 largest are equal, NaN where the k + 1 largest are not all above 0.

    Raises:
        TypeError: ``values`` is no floating-point tensor, or ``k`` no integer.
        ValueError: a value is NaN, infinite or below 0, or ``k`` is out of range.

    Example:
        >>> hill_index(torch.tensor([1.0, 2.0, 4.0, 8.0]), k=2)  # (log 2 + log 4) / 2 above 2
        tensor(0.9618, dtype=torch.float64)
    """
    check_floats("values", values)
    if values.dim() == 0:
        raise ValueError("values: expected shape (n, ...), got ()")
    if not bool((values >= 0.0).all()):
        raise ValueError(f"values: expected values of at least 0, got {values.min().item():g}")
    if positive_integer("k", k) >= len(values):
        raise ValueError(f"k: expected an integer below the number of values, {len(values)}, got {k}")
    return _hill(values.detach().to(torch.float64).topk(k + 1, dim=0).values.log(), k)


def _hill(logs: Tensor, k: int) -> Tensor:
    """Hill's estimator from logarithms in falling order, ``(k + 1 or more, *B)``."""
    index = 1.0 / (logs[:k] - logs[k]).mean(0)
    return torch.where(logs[k] > -math.inf, index, math.nan)


def _level_of_caller() -> int:
    """The ``stacklevel``, for who calls this, of the first frame that is neither of this library nor of torch's."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals["__name__"].split(".")[0] in WITHIN:
        frame, level = frame.f_back, level + 1
    return level
