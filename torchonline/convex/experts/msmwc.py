r"""Multi-scale multiplicative weights with correction: how to follow the best of experts whose losses differ in size.

The weights :math:`w_t` of N experts are taken before their losses :math:`\ell_t` are known, by a hint :math:`h_t` of these.
With :math:`\varphi(w) = \sum_jw_j\ln w_j/\beta_j`, :math:`D_\varphi` its Bregman divergence and the rates :math:`\beta`,

.. math::
    w_t = \arg\min_w\langle w, h_t\rangle + D_\varphi(w, w'_t),\qquad
    w'_{t+1} = \arg\min_w\langle w, \ell_t + a_t\rangle + D_\varphi(w, w'_t),\qquad
    a_{t,j} = \text{kappa}\,\beta_j(\ell_{t,j} - h_{t,j})^2 .

Weights are kept as logarithms. Those of experts that are not available keep their share in the sum, and wait.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from torchonline.convex.learner import ConvexLearner, checked_hint
from torchonline.core.backend import in_python, may_hold
from torchonline.core.checks import (
    check_state_dtype,
    one_of,
    positive_integer,
    positive_size,
    rounds_at_most,
)
from torchonline.core.inputs import check_mask
from torchonline.core.ops import (
    assign_,
    clip,
    count_,
    exp,
    increase_,
    largest,
    logsumexp,
    matvec,
    nonzero,
    where,
)
from torchonline.linalg import entropy_prox

# kappa of the corrections: the proof needs 4.
KAPPAS = {"default": 6.0, "paper": 32.0}


class Experts(ConvexLearner):
    """Base of the learners whose decision is a weight for each of N experts, and whose gradients are the experts' losses.

    A subclass says how it learns, :meth:`_learn_`, and how it decides, :meth:`_decide_`.

    Args:
        experts: N.
        preset: of the constant kappa.
        options: those of :class:`~torchonline.convex.learner.ConvexLearner`.
    """

    argument_of = {"kappa": "preset"}

    hint: Tensor
    available: Tensor
    clipped: Tensor

    def __init__(self, experts: int, *, preset: str, **options: Any) -> None:
        self.preset = one_of("preset", preset, tuple(KAPPAS))
        super().__init__(experts, **options)
        self.kappa = KAPPAS[preset]

    def _initial_state(self) -> dict[str, Tensor | None]:
        return super()._initial_state() | {
            "hint": torch.zeros(self.dim, dtype=torch.float64),
            "available": torch.ones(self.dim, dtype=torch.bool),
            "clipped": torch.zeros((), dtype=torch.int64),
        }

    def _learn_(self, losses: Tensor) -> None:
        """Learn from losses, ``(*B, N)``."""
        raise NotImplementedError

    def _decide_(self) -> None:
        """Weigh the experts that are available by the hint: write ``decision``."""
        raise NotImplementedError

    def _set_hint_in_python(self, hint: Any) -> None:
        self._tell(self._set_hint_, checked_hint(hint, self.decision, self.validate))

    @torch.jit.export
    @in_python(_set_hint_in_python)
    def set_hint(self, hint: Tensor) -> None:
        """Say what the next losses are expected to be, in place of the last ones. The weights follow it.

        Args:
            hint: ``(*B, N)``.

        Raises:
            TypeError: ``hint`` is no floating-point tensor.
            ValueError: its shape, device or values are wrong. No buffer has changed.
        """
        self._set_hint_(hint)

    def _set_hint_(self, hint: Tensor) -> None:
        with torch.no_grad():
            assign_(self.hint, hint.detach().to(self.decision.dtype))
            self._decide_()

    def _set_available_in_python(self, mask: Any) -> None:
        mask = check_mask("mask", mask, tuple(self.available.shape), self.available, self.validate)
        self._tell(self._set_available_, mask)

    @torch.jit.export
    @in_python(_set_available_in_python)
    def set_available(self, mask: Tensor) -> None:
        """Say which experts are available, from now on. The weights follow it.

        One that is not has weight 0, whatever it loses, and comes back with the share of the sum that it left with.

        Args:
            mask: ``(*B, N)``, True where an expert is available; at least one is.

        Raises:
            TypeError: ``mask`` is no boolean tensor.
            ValueError: its shape or device is wrong, or no expert is available. No buffer has changed.
        """
        self._set_available_(mask)

    def _set_available_(self, mask: Tensor) -> None:
        with torch.no_grad():
            assign_(self.available, mask)
            self._decide_()

    def _observe(self, gradients: Tensor, values: Tensor | None) -> None:
        self._observe_and_expect(gradients, None, None)

    def _observe_and_expect(self, losses: Tensor, hint: Tensor | None, available: Tensor | None) -> None:
        """Learn from losses, and weigh those who will be there by what the next ones are expected to be, all ``(*B, N)``.

        None for a hint is the losses, and for who is there, those that were.
        """
        cut = self._cut(losses)
        if may_hold(cut != losses):
            far = abs(losses - cut) > 1e-6 * (abs(losses) + abs(self.hint))
            increase_(self.clipped, (far & self.available).any(-1))
        self._learn_(cut)
        assign_(self.hint, cut if hint is None else hint)
        if available is not None:
            assign_(self.available, available)
        count_(self.rounds)
        self._decide_()

    def _cut(self, losses: Tensor) -> Tensor:
        """Losses, as far as they may go."""
        raise NotImplementedError

    def _mask(self) -> Tensor | None:
        """Who is available, ``(*B, N)``; None where everyone is, if that is at hand."""
        return self.available if may_hold(~self.available) else None


def masked(logs: Tensor, mask: Tensor) -> Tensor:
    """Minus infinity where a mask is False."""
    return where(mask, logs, logs - math.inf)


def shares(logs: Tensor, mask: Tensor | None) -> Tensor:
    """Weights that sum to 1 over the last axis, by their logarithms, among those that a mask has; 0 where it has none."""
    # From the largest one, which may be far below 0: next to it, the logarithm of a sum would lose its digits.
    if mask is None:
        weights = exp(logs - largest(logs)[..., None])
        return weights / weights.sum(-1)[..., None]
    some = masked(logs, mask)
    found = (some > -math.inf).any(-1)[..., None]
    weights = exp(some - largest(where(found, some, 0.0 * found))[..., None])
    return weights / nonzero(weights.sum(-1)[..., None])


def among(before: Tensor, logs: Tensor, mask: Tensor | None) -> Tensor:
    """New logarithms for those that a mask has, such that their share of the sum is what it was before; the others' stay."""
    if mask is None:
        return logs - logsumexp(logs)[..., None]
    then, now = masked(before, mask), masked(logs, mask)
    return where(now > -math.inf, now - log_share(now) + log_share(then), before)


def log_share(logs: Tensor) -> Tensor:
    """``log(sum(exp(logs)))`` over the last axis, which stays as one of length 1; 0 where none is there to be summed."""
    some = (logs > -math.inf).any(-1)[..., None]
    return logsumexp(where(some, logs, 0.0 * some))[..., None]


def prox_among(log_weights: Tensor, cost: Tensor, rates: Tensor, mask: Tensor | None) -> Tensor:
    """:func:`~torchonline.linalg.entropy_prox` of those that a mask has, who share what they had before; others stay."""
    if mask is None:
        return entropy_prox(log_weights, cost, rates)
    some = masked(log_weights, mask)
    share = log_share(some)
    return where(mask, share + entropy_prox(some - share, cost, rates), log_weights)


class MsMwC(Experts):
    r"""MsMwC: multiplicative weights with correction, at a rate for each expert.

    A round, for the caller::

        weights = learner.predict()    # or learner.set_available(mask), then this
        learner.step(losses)           # of all experts

    The update is that of :mod:`torchonline.convex.experts.msmwc`, with the losses before for a hint.

    Guarantee. As long as :math:`\text{kappa}\,\beta_j|\ell_{t,j} - h_{t,j}| \le 1`, against each expert i, on every sequence,

    .. math::
        \sum_t\langle w_t, \ell_t\rangle - \ell_{t,i} \le \frac{1}{\beta_i}\Big(\ln\frac{1}{w'_{1,i}} - 1\Big)
        + \sum_j\frac{w'_{1,j}}{\beta_j} + \text{kappa}\,\beta_i\sum_t(\ell_{t,i} - h_{t,i})^2
        - \frac{\text{kappa}}{2}\sum_t\sum_j\beta_jw_{t,j}(\ell_{t,j} - h_{t,j})^2 .

    A loss further from its hint than that is moved towards it, and the round counted in ``clipped``. Where all rates are
    equal, it holds with any experts missing: over the rounds in which i is available, with :math:`\ln(1/w'_{1,i})/\beta` for
    the first two terms. Where they differ, nothing is proved of rounds in which some are missing.

    Cost of a round: O(N), times the few steps of a root search where rates differ.

    Args:
        experts: N.
        rate: :math:`\beta > 0`, in units of one over a loss; a number, or one for each expert.
        prior: :math:`w'_1`, N positive numbers, of which the sum is made 1; None for equal ones.
        preset: ``"default"``, kappa = 6; ``"paper"``, 32.
        batch_shape: ``*B``, independent learners in one module.
        dtype: torch.float64 or torch.float32, of the state.
        device: where the state lives.
        validate: whether values are checked in each call.

    Shape:
        - ``decision`` :math:`w_t`, ``log_weights`` :math:`\ln w'_t`, ``hint``, ``available``: ``(*B, N)``; ``rounds``,
          ``clipped``: ``(*B)``.

    Example:
        >>> learner = MsMwC(3, rate=0.1)
        >>> for _ in range(100):
        ...     learner.step(torch.tensor([1.0, 0.5, 0.0]))
        >>> learner.predict().argmax()
        tensor(2)

    Reference:
        Chen, Luo and Wei, Impossible Tuning Made Possible, COLT 2021, as Algorithm 5 of Wang, Barik, Zhao and Tan,
        Parameter-free algorithms for the Stochastically Extended Adversarial model. What differs: kappa; missing experts.
    """

    statistics_depend_on = ("rate", "prior", "kappa")

    rates: Tensor
    log_weights: Tensor

    def __init__(
        self,
        experts: int,
        *,
        rate: float | Sequence[float] | Tensor,
        prior: Sequence[float] | Tensor | None = None,
        preset: str = "default",
        batch_shape: tuple[int, ...] = (),
        dtype: torch.dtype = torch.float64,
        device: torch.device | str | None = None,
        validate: bool = True,
    ) -> None:
        super().__init__(
            positive_integer("experts", experts),
            preset=preset,
            batch_shape=batch_shape,
            dtype=dtype,
            device=device,
            validate=validate,
        )
        is_list = isinstance(rate, (tuple, list)) or (isinstance(rate, Tensor) and rate.dim() > 0)
        self.rate = positive_numbers("rate", rate if is_list else (rate,) * experts, experts, dtype)
        numbers = positive_numbers("prior", (1.0,) * experts if prior is None else prior, experts, dtype)
        self.prior = tuple(share / sum(numbers) for share in numbers)
        self._create_buffers()

    def _initial_state(self) -> dict[str, Tensor | None]:
        prior = torch.tensor(self.prior, dtype=torch.float64)
        return super()._initial_state() | {"decision": prior, "log_weights": prior.log()}

    def _tables(self) -> dict[str, Tensor]:
        return {"rates": torch.tensor(self.rate, dtype=torch.float64)}

    def _cut(self, losses: Tensor) -> Tensor:
        return self.hint + clip(losses - self.hint, 1.0 / (self.kappa * self.rates))

    def _learn_(self, losses: Tensor) -> None:
        surprise = losses - self.hint
        cost = losses + self.kappa * self.rates * surprise * surprise
        assign_(self.log_weights, prox_among(self.log_weights, cost, self.rates, self._mask()))

    def _decide_(self) -> None:
        mask = self._mask()
        assign_(self.decision, shares(prox_among(self.log_weights, self.hint, self.rates, mask), mask))


class MsMwCMaster(Experts):
    r"""MsMwC-Master: many :class:`MsMwC` at rates of their own, and one over them; no rate to choose.

    A round is that of :class:`MsMwC`, for experts whose losses are known to lie within ranges :math:`\pm r_j` that may differ
    by much. With :math:`r_1` the least of them, the grid :math:`\beta_q = 1/(4\,\text{kappa}\,r_12^q)` has one rate for each
    q such that :math:`r_j \le r_12^q \le r_j\sqrt T` for some j, and the least q with :math:`r_j \le r_12^q` for each j. For
    each there is an MsMwC over the experts with :math:`r_j \le r_12^q`, all at the rate :math:`2\beta_q`. An MsMwC over
    these, at the rates :math:`\beta_q`, has the last word.

    Guarantee. While losses stay in their ranges, the regret against each expert i is of order

    .. math:: r_i\Gamma_i + \sqrt{\Gamma_i\textstyle\sum_t(\ell_{t,i} - h_{t,i})^2} + Kr_1,\qquad
              \Gamma_i = \ln\big(\sqrt N\max\{2, \sqrt T\}\,r_i/r_1\big),

    (Lemma 1 of the reference; docs/parameter_free.md has the constants). It scales with the range of that expert, not with
    the largest. The constants of the default are five times smaller than the paper's, and allowed by the same proof. A loss
    out of its range is cut, and the round counted in ``clipped``. Of experts that are not always available it is proved for
    one that appears in round s and stays, if that of the least range is always there: from then on, with :math:`3(s - 1)`
    times the largest range of those there before more. Otherwise nothing is.

    Cost of a round: O(NK) for K = O(ln(max r / min r) + ln T) rates.

    Args:
        ranges: r, a positive number for each expert.
        horizon: T, of the grid; the guarantee holds in each round up to it.
        preset: ``"default"``: kappa = 6, and the rates for a prior of the MsMwC; ``"paper"``: 32, their squares, and a grid of
            whole powers of 2, with which weights change when all losses and ranges are multiplied by a number that is none.
        batch_shape: ``*B``, independent learners in one module.
        dtype: torch.float64 or torch.float32, of the state.
        device: where the state lives.
        validate: whether values are checked in each call.

    Shape:
        - ``decision``, ``hint``, ``available``: ``(*B, N)``; ``rounds``, ``clipped``: ``(*B)``.
        - ``middle``, ``(*B, K, N)``, and ``top``, ``(*B, K)``: logarithms of all weights; ``inner``: the middle ones as played.

    Example:
        >>> learner = MsMwCMaster((1.0, 10.0, 100.0), horizon=1000)
        >>> for _ in range(300):
        ...     learner.step(torch.tensor([0.0, -5.0, 50.0]))
        >>> learner.predict().argmax()
        tensor(1)

    Reference:
        Chen, Luo and Wei, Impossible Tuning Made Possible, COLT 2021, as Algorithm 3 of Wang, Barik, Zhao and Tan,
        Parameter-free algorithms for the Stochastically Extended Adversarial model. What differs: the square in the correction,
        which the paper's line 7 misses; the rates :math:`2\beta_q`, which it does not define; kappa; a grid that scales.
    """

    statistics_depend_on = ("ranges", "horizon", "kappa")

    rates: Tensor
    spans: Tensor
    twice: Tensor
    middle: Tensor
    inner: Tensor
    top: Tensor

    def __init__(
        self,
        ranges: Sequence[float] | Tensor,
        *,
        horizon: int,
        preset: str = "default",
        batch_shape: tuple[int, ...] = (),
        dtype: torch.dtype = torch.float64,
        device: torch.device | str | None = None,
        validate: bool = True,
    ) -> None:
        listed = ranges.tolist() if isinstance(ranges, Tensor) else ranges
        if not isinstance(listed, (tuple, list)) or len(listed) == 0:
            raise TypeError(f"ranges: expected a number above 0 for each expert, got {ranges!r}")
        check_state_dtype(dtype)
        numbers = positive_numbers("ranges", listed, len(listed), dtype)
        one_of("preset", preset, tuple(KAPPAS))
        unit = 1.0 if preset == "paper" else min(numbers)
        levels = grid(numbers, rounds_at_most("horizon", horizon), unit)
        super().__init__(
            len(numbers),
            preset=preset,
            entries=len(numbers) * len(levels),
            batch_shape=batch_shape,
            dtype=dtype,
            device=device,
            validate=validate,
        )
        self.ranges, self.grid, self.horizon = numbers, levels, int(horizon)
        self._create_buffers()

    def _initial_state(self) -> dict[str, Tensor | None]:
        spans, levels = (torch.tensor(numbers, dtype=torch.float64) for numbers in (self.ranges, self.grid))
        within = spans <= levels[:, None] * (1.0 + 1e-12)
        middle = torch.where(within, -within.sum(-1, keepdim=True).double().log(), -math.inf)
        prior = (-2.0 if self.preset == "paper" else -1.0) * levels.log()
        return super()._initial_state() | {
            "middle": middle,
            "inner": middle.exp(),
            "top": torch.log_softmax(prior, -1),
            "decision": torch.softmax(prior, -1) @ middle.exp(),
        }

    def _tables(self) -> dict[str, Tensor]:
        levels = torch.tensor(self.grid, dtype=torch.float64)
        rates = 1.0 / (4.0 * self.kappa * levels)
        return {"rates": rates, "twice": 2.0 * rates[:, None], "spans": torch.tensor(self.ranges, dtype=torch.float64)}

    def _cut(self, losses: Tensor) -> Tensor:
        return clip(losses, self.spans)

    def _learn_(self, losses: Tensor) -> None:
        surprise = losses - self._cut(self.hint)
        # The weights over the rates answer to what each of them has lost.
        own, missed = matvec(self.inner, losses), matvec(self.inner, surprise)
        cost = own + self.kappa * self.rates * missed * missed
        square = self.kappa * surprise * surprise
        moved = self.middle - self.twice * (losses[..., None, :] + self.twice * square[..., None, :])
        mask = self._mask()
        rows = None if mask is None else mask[..., None, :]
        assign_(self.top, prox_among(self.top, cost, self.rates, self._usable(rows)))
        assign_(self.middle, among(self.middle, moved, rows))

    def _decide_(self) -> None:
        hint, mask = self._cut(self.hint), self._mask()
        rows = None if mask is None else mask[..., None, :]
        usable = self._usable(rows)
        assign_(self.inner, shares(self.middle - self.twice * hint[..., None, :], rows))
        top = prox_among(self.top, matvec(self.inner, hint), self.rates, usable)
        assign_(self.decision, matvec(self.inner.mT, shares(top, usable)))

    def _usable(self, rows: Tensor | None) -> Tensor | None:
        """Which rates have an expert that a mask has, ``(*B, K)``."""
        return None if rows is None else (masked(self.middle, rows) > -math.inf).any(-1)


def grid(ranges: Sequence[float], horizon: int, unit: float) -> tuple[float, ...]:
    """The scales of losses that some rate is made for: ``unit`` times powers of 2, ascending."""
    first = [math.ceil(math.log2(r / unit) - 1e-9) for r in ranges]
    last = [math.floor(math.log2(r * math.sqrt(horizon) / unit) + 1e-9) for r in ranges]
    powers = {q for low, high in zip(first, last, strict=True) for q in range(low, max(low, high) + 1)}
    return tuple(unit * 2.0**q for q in sorted(powers))


def positive_numbers(name: str, value: Any, count: int, dtype: torch.dtype) -> tuple[float, ...]:
    """So many numbers above 0."""
    numbers = value.tolist() if isinstance(value, Tensor) else value
    if not isinstance(numbers, (list, tuple)):
        raise TypeError(f"{name}: expected {count} numbers above 0, got {value!r}")
    if len(numbers) != count:
        raise ValueError(f"{name}: expected {count} numbers above 0, got {len(numbers)}")
    return tuple(positive_size(name, number, dtype) for number in numbers)
