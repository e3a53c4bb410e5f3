"""Metrics of online play, as torchmetrics: what a checkpoint carries and a logger reads."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torchmetrics import Metric

from torchonline.core.backend import without_cast
from torchonline.core.checks import mismatch, positive_integer, shape_text, sizes, within
from torchonline.privacy.accounting import ADJACENCIES, GaussianAccountant, PureAccountant, ZCDPAccountant
from torchonline.privacy.composition import total_ledger
from torchonline.privacy.learners.base import PrivateLearner

ACCOUNTANTS = (GaussianAccountant, ZCDPAccountant, PureAccountant)


def check_floats(name: str, value: Any) -> None:
    """Refuse what is no floating-point tensor, NaN and infinity."""
    if not isinstance(value, Tensor):
        raise TypeError(f"{name}: expected a torch.Tensor, got {type(value).__name__}")
    if not value.is_floating_point():
        raise TypeError(f"{name}: expected a floating-point tensor, got {value.dtype}")
    if not bool(torch.isfinite(value).all()):
        raise ValueError(f"{name}: expected finite values, got {value[~torch.isfinite(value)][0].item()}")


def check_rounds(name: str, value: Tensor, batch_shape: tuple[int, ...]) -> None:
    """Refuse what is neither one round of each learner, ``(*B)``, nor several in order, ``(n, *B)``."""
    if value.shape != batch_shape and (value.dim() == 0 or value.shape[1:] != batch_shape):
        one, several = shape_text(batch_shape), shape_text(("n", *batch_shape))
        raise ValueError(f"{name}: expected shape {one} or {several}, got {shape_text(value.shape)}")


def has_missed(estimator: Any, theta: Tensor) -> Tensor:
    r"""Whether a confidence set leaves out the true parameter.

    That is, whether :math:`|x^\top(\hat\theta-\theta)| > \text{radius}\cdot\text{width}(x)` for some x.

    Args:
        estimator: what has ``theta_hat``, ``radius()`` and ``width_matrix()``.
        theta: the parameter, ``(*B, d)``, which is known in simulations.

    Returns:
        ``(*B)``, boolean; True where a number is NaN.

    Example:
        >>> has_missed(OFUL(2).estimator, torch.tensor([0.6, 0.8]).double())
        tensor(False)
    """
    difference = (estimator.theta_hat - theta).unsqueeze(-1)
    square = difference.mT @ torch.linalg.solve(estimator.width_matrix(), difference)
    return ~(square.squeeze((-2, -1)).sqrt() <= estimator.radius())


class ExactMetric(Metric):
    """A metric whose states keep their types: what was counted in int64 or float64 is not rounded by a change of precision.

    A checkpoint of another shape or type is refused as a whole. One of the states is ``rounds``.
    """

    rounds: Tensor

    def _apply(self, fn: Callable[[Tensor], Tensor], *args: Any, **kwargs: Any) -> nn.Module:
        """A move, and never a cast, which would round what was counted."""
        return super()._apply(without_cast(fn), *args, **kwargs)

    def _problems(self, loaded: Mapping[str, Any]) -> list[str]:
        """Why what was loaded, some of the states by name, cannot become the state."""
        return [why for name in self._defaults if (why := _mismatch(name, getattr(self, name), loaded))]

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *args: Any) -> None:
        loaded = {name: state_dict[prefix + name] for name in self._defaults if prefix + name in state_dict}
        problems = self._problems(loaded) if loaded else []  # none of the states is no checkpoint of this metric
        if problems:
            error_msgs = args[-1]
            error_msgs.extend(prefix + problem for problem in problems)
            return
        super()._load_from_state_dict(state_dict, prefix, *args)  # type: ignore[arg-type]
        # torchmetrics would answer with what it computed before, or warn that nothing was ever added.
        self._computed = None
        self._update_count = int(self.rounds)


def _mismatch(name: str, here: Tensor, loaded: Mapping[str, Any]) -> str | None:
    """Why a loaded value cannot become the state of that name."""
    if (why := mismatch(name, here, loaded)) is not None:
        return why
    if loaded[name].dtype is not here.dtype:
        return f"{name}: expected {here.dtype}, got {loaded[name].dtype}"
    return None


class CumulativeRegret(ExactMetric):
    r"""What the decisions so far have cost against the best ones: :math:`R_T = \sum_{t \le T} r_t`.

    The regret of a round is the caller's to compute: :math:`r_t = \max_k \mu_{t,k} - \mu_{t,k_t}` of a bandit; of convex losses
    against a comparator u, :math:`r_t = f_t(x_t) - f_t(u)`, which may be below 0
    (:meth:`SEAStream.regret <torchonline.environments.SEAStream.regret>`). The metric keeps the sum and its curve. The curve has
    at most ``points`` points, equally spaced in rounds: when they are used up, every second one is dropped and the spacing
    doubles, so memory does not grow. The numbers do not depend on how the rounds were cut into updates. All states are in
    ``state_dict``, so a resumed run goes on from the total it had.

    Cost of n rounds: O(n + points) for each learner.

    Args:
        batch_shape: ``*B``, of the learners that are measured.
        points: of the curve; an even number.

    Shape:
        - ``update(regret)``: one round ``(*B)``, or n rounds in order ``(n, *B)``; floating point.
        - ``compute()``: the totals ``(*B)``, float64, in the units of the rewards.

    Raises:
        TypeError: ``regret`` is no floating-point tensor.
        ValueError: its shape is wrong, or a value is NaN or infinite. No state has changed.

    Example:
        >>> metric = CumulativeRegret()
        >>> metric.update(torch.tensor([0.5, 0.0, 0.25]))
        >>> metric.compute()
        tensor(0.7500, dtype=torch.float64)
        >>> metric.curve()
        (tensor([1, 2, 3]), tensor([0.5000, 0.5000, 0.7500], dtype=torch.float64))
    """

    is_differentiable = False
    higher_is_better = False
    full_state_update = True

    total: Tensor
    spacing: Tensor
    history: Tensor

    def __init__(self, batch_shape: tuple[int, ...] = (), *, points: int = 512) -> None:
        super().__init__()
        self.batch_shape = sizes("batch_shape", batch_shape)
        self.points = positive_integer("points", points)
        if points % 2:
            raise ValueError(f"points: expected an even number, got {points}")
        total = torch.zeros(self.batch_shape, dtype=torch.float64)
        count = torch.zeros((), dtype=torch.int64)
        self.add_state("total", total, dist_reduce_fx="sum", persistent=True)
        self.add_state("rounds", count, dist_reduce_fx="sum", persistent=True)
        # The curve: history[i] is the total after (i + 1) * spacing rounds.
        self.add_state("spacing", count + 1, dist_reduce_fx="max", persistent=True)
        history = torch.zeros((points, *self.batch_shape), dtype=torch.float64)
        self.add_state("history", history, dist_reduce_fx="sum", persistent=True)

    def update(self, regret: Tensor) -> None:
        """Add one round or several."""
        regret = self._checked(regret)
        # Summed round by round from the old total, so that the cut into updates does not matter.
        totals = torch.cat([self.total.unsqueeze(0), regret]).cumsum(0)
        before, after, spacing = int(self.rounds), int(self.rounds) + len(regret), int(self.spacing)
        history = self.history.clone()
        while after > self.points * spacing:
            history = torch.cat([history[1::2], torch.zeros_like(history[1::2])])
            spacing *= 2
        first, last = before // spacing, after // spacing
        rounds = spacing * torch.arange(first + 1, last + 1, device=regret.device)
        history[first:last] = totals[rounds - before]
        self.total, self.history = totals[-1].clone(), history
        self.rounds = self.rounds + len(regret)
        self.spacing = torch.full_like(self.spacing, spacing)

    def compute(self) -> Tensor:
        """The cumulative regret of each learner."""
        return self.total.clone()

    def curve(self) -> tuple[Tensor, Tensor]:
        """The rounds at which the curve is known, ``(p,)``, and the totals after them, ``(p, *B)``."""
        spacing, rounds = int(self.spacing), int(self.rounds)
        known = rounds // spacing
        at = spacing * torch.arange(1, known + 1, device=self.total.device)
        totals = self.history[:known]
        if rounds > known * spacing:
            at = torch.cat([at, self.rounds.unsqueeze(0)])
            totals = torch.cat([totals, self.total.unsqueeze(0)])
        return at, totals.clone()

    def plot(self, axes: Any = None, label: str | None = None) -> tuple[Any, Any]:
        """Draw the curve: the mean over the learners, and a band from the best of them to the worst.

        Args:
            axes: matplotlib axes to draw on; new ones if None.
            label: for the legend.

        Returns:
            The figure and the axes.
        """
        import matplotlib.pyplot as plt

        axes = plt.subplots()[1] if axes is None else axes
        rounds, totals = (values.cpu().numpy() for values in self.curve())
        totals = totals.reshape(len(totals), -1)
        (line,) = axes.plot(rounds, totals.mean(1), label=label)
        if totals.shape[1] > 1:
            axes.fill_between(rounds, totals.min(1), totals.max(1), color=line.get_color(), alpha=0.2, linewidth=0)
        axes.set_xlabel("round")
        axes.set_ylabel("cumulative regret")
        return axes.figure, axes

    def _checked(self, regret: Tensor) -> Tensor:
        """``(n, *B)``, float64."""
        check_floats("regret", regret)
        check_rounds("regret", regret, self.batch_shape)
        return regret.detach().to(self.total).reshape(-1, *self.batch_shape)


class GradientVariation(ExactMetric):
    r"""By how much one gradient has differed from another so far: :math:`\sum_{t \le T} \max_x \|g_t(x) - g'_t(x)\|^2`.

    The x are the points at which the caller has evaluated both. On simulated streams, where expected losses :math:`F_t` are
    known, two of these follow the quantities that the regret in the stochastically extended adversarial model depends on::

        stochastic.update(stream.gradients(x), stream.expected_gradients(x))                 # sigma^2_{1:T}
        adversarial.update(stream.expected_gradients(x), stream.expected_gradients(x, lag=1))  # Sigma^2_{1:T}

    with

    .. math:: \sigma^2_{1:T} = \sum_{t \le T} E\sup_x\|\nabla f_t(x) - \nabla F_t(x)\|^2,\qquad
              \Sigma^2_{1:T} = \sum_{t \le T} \sup_x\|\nabla F_t(x) - \nabla F_{t-1}(x)\|^2 .

    The supremum is over the domain, so finitely many points give a lower bound of it; and the first sum has an expectation,
    of which the metric adds up one draw. On :class:`~torchonline.environments.SEAStream` the differences do not depend on x,
    nor their lengths on the draw: there one point is enough, and both sums are exact. A third use is the sum
    :math:`\sum_t \|g_t - m_t\|^2` of an optimistic learner's gradients and hints.

    Cost of a round: O(nd) for n points. All states are in ``state_dict``.

    Args:
        batch_shape: ``*B``, of the streams or learners that are measured.

    Shape:
        - ``update(gradients, reference)``: one round, ``(*B, ..., d)`` each, at the same points; floating point.
        - ``compute()``: the sums ``(*B)``, float64, in squared units of the gradients.

    Raises:
        TypeError: an argument of ``update`` is no floating-point tensor.
        ValueError: a shape is wrong, or a value is NaN or infinite. No state has changed.

    Example:
        >>> from torchonline.environments import SEAStream
        >>> stream = SEAStream(3, loss="logistic", sigma=0.5, drift=0.1)
        >>> stochastic, adversarial, x = GradientVariation(), GradientVariation(), torch.zeros(3)
        >>> for _ in range(100):
        ...     stochastic.update(stream.gradients(x), stream.expected_gradients(x))
        ...     adversarial.update(stream.expected_gradients(x), stream.expected_gradients(x, lag=1))
        ...     stream.advance()
        >>> f"{stochastic.compute():.6f} {adversarial.compute():.6f}"  # 100 sigma^2 and 100 drift^2
        '25.000000 1.000000'
    """

    is_differentiable = False
    higher_is_better = None
    full_state_update = True

    total: Tensor

    def __init__(self, batch_shape: tuple[int, ...] = ()) -> None:
        super().__init__()
        self.batch_shape = sizes("batch_shape", batch_shape)
        total = torch.zeros(self.batch_shape, dtype=torch.float64)
        self.add_state("total", total, dist_reduce_fx="sum", persistent=True)
        self.add_state("rounds", torch.zeros((), dtype=torch.int64), dist_reduce_fx="sum", persistent=True)

    def update(self, gradients: Tensor, reference: Tensor) -> None:
        """Add one round."""
        dims = len(self.batch_shape)
        for name, value in (("gradients", gradients), ("reference", reference)):
            check_floats(name, value)
            if value.dim() <= dims or value.shape[:dims] != self.batch_shape or value.numel() == 0:
                wanted = shape_text((*self.batch_shape, "...", "d"))
                raise ValueError(f"{name}: expected shape {wanted}, got {shape_text(value.shape)}")
        if reference.shape != gradients.shape:
            mine, theirs = shape_text(gradients.shape), shape_text(reference.shape)
            raise ValueError(f"reference: expected the shape of gradients, {mine}, got {theirs}")
        difference = gradients.detach().to(self.total) - reference.detach().to(self.total)
        squares = difference.square().sum(-1).reshape(*self.batch_shape, -1)
        self.total = self.total + squares.amax(-1)
        self.rounds = self.rounds + 1

    def compute(self) -> Tensor:
        """The sum of each stream or learner."""
        return self.total.clone()


class PrivacySpent(ExactMetric):
    r"""What private learners have spent of their people's privacy: the epsilon of everything they have released, at some delta.

    It reads clocks and ledgers, never a record. What it holds is the cost of one run, for each accountant that knows it, and the
    number m of runs; together they cost m times as much. It never falls: a metric that is loaded has the
    larger of what it had and what it gets; and if either had seen a step, m grows by one, as that of a learner that is loaded
    with it does, since the run that goes on releases everybody before once more. :meth:`reset` does nothing.

    It holds after a number of steps that was fixed in advance: see
    :meth:`~torchonline.privacy.learners.base.PrivateLearner.privacy_spent`.

    Cost of an update or of reading: that of a ledger, independent of the number of steps for most mechanisms.

    Args:
        delta: in (0, 1).
        continuations: m, if you know better than the counts of loads.

    Shape:
        - ``update(*learners)``: all that are fed with one stream of people, in each call: their costs add up. Of learners in
          different calls, the largest counts.
        - ``compute()``: epsilon, a float64 number; 0 before the first step, infinity without noise.

    Raises:
        TypeError: an argument of ``update`` is no private learner.
        ValueError: learners are of different adjacency, now or since the last update. No state has changed.

    Example:
        >>> learner, metric = DPTOFW(2, horizon=100, epsilon=1.0, delta=1e-3), PrivacySpent(delta=1e-3)
        >>> for _ in range(100):
        ...     learner.step(None)
        >>> metric.update(learner)
        >>> f"{metric.compute():.3f}"
        '1.000'
        >>> resumed = PrivacySpent(delta=1e-3)
        >>> resumed.load_state_dict(metric.state_dict())
        <All keys matched successfully>
        >>> f"{resumed.compute():.3f}"  # of two runs
        '1.514'
    """

    is_differentiable = False
    higher_is_better = False
    full_state_update = True

    runs: Tensor
    relation: Tensor
    cost: Tensor

    def __init__(self, delta: float, *, continuations: int | None = None) -> None:
        super().__init__()
        self.delta = within("delta", delta, 0.0, 1.0)
        self.continuations = None if continuations is None else positive_integer("continuations", continuations)
        zero = torch.zeros((), dtype=torch.int64)
        self.add_state("rounds", zero, dist_reduce_fx="max", persistent=True)
        self.add_state("runs", zero + 1, dist_reduce_fx="max", persistent=True)
        # Of the adjacency; -1 before it is known.
        self.add_state("relation", zero - 1, dist_reduce_fx="max", persistent=True)
        # Of one run, in the order of ACCOUNTANTS; infinite where an accountant cannot tell.
        self.add_state("cost", torch.zeros(3, dtype=torch.float64), dist_reduce_fx="max", persistent=True)

    def update(self, *learners: PrivateLearner) -> None:
        """Look at all learners of the stream."""
        for learner in learners:
            if not isinstance(learner, PrivateLearner):
                raise TypeError(f"learners: expected private learners, got {type(learner).__name__}")
        ledger = total_ledger(learners, continuations=1)
        relation = ADJACENCIES.index(ledger.adjacency)
        if int(self.relation) not in (-1, relation):
            before = ADJACENCIES[int(self.relation)]
            raise ValueError(f"learners: expected adjacency {before!r}, as before, got {ledger.adjacency!r}")
        costs = [event.costs() for event in ledger.events]
        cost = [math.fsum(each.get(accountant.cost, math.inf) for each in costs) for accountant in ACCOUNTANTS]
        self._raise_to(
            {
                "rounds": max(max(int(learner.rounds), int(learner.furthest)) for learner in learners),
                "runs": max(int(learner.continuations) for learner in learners),
                "relation": relation,
                "cost": cost,
            }
        )

    def compute(self) -> Tensor:
        """Epsilon."""
        runs, found = self.continuations or int(self.runs), [math.inf]
        for kind, cost in zip(ACCOUNTANTS, self.cost.tolist(), strict=True):
            if cost < math.inf:
                accountant = kind(ADJACENCIES[max(0, int(self.relation))])
                accountant.total = runs * cost
                found.append(accountant.epsilon(self.delta))
        return self.cost.new_tensor(min(found))

    def reset(self) -> None:
        """Nothing: what was released cannot be taken back."""

    def _raise_to(self, values: Mapping[str, Any]) -> None:
        """Let each state be at least this."""
        for name, value in values.items():
            state = getattr(self, name)
            setattr(self, name, torch.maximum(state, torch.as_tensor(value, dtype=state.dtype, device=state.device)))

    def _problems(self, loaded: Mapping[str, Any]) -> list[str]:
        if problems := super()._problems(loaded):
            return problems
        least = {"rounds": 0, "runs": 1, "relation": -1, "cost": 0.0}
        problems = [
            f"{name}: expected at least {low}, got {loaded[name].tolist()}"
            for name, low in least.items()
            if not bool((loaded[name] >= low).all())
        ]
        theirs, mine = int(loaded["relation"]), int(self.relation)
        if theirs >= len(ADJACENCIES) or (mine != theirs and -1 not in (mine, theirs)):
            problems.append(f"relation: expected the adjacency of this metric, {mine}, got {theirs}")
        return problems

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *args: Any) -> None:
        before, errors = {name: getattr(self, name) for name in self._defaults}, len(args[-1])
        is_there = f"{prefix}rounds" in state_dict
        super()._load_from_state_dict(state_dict, prefix, *args)
        if is_there and len(args[-1]) == errors:
            self._raise_to(before)
            self.runs = self.runs + int(self.rounds > 0)
            self._update_count = int(self.rounds)
