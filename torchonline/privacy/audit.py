"""Privacy audit: a lower bound on a mechanism's epsilon, from membership games."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from torchonline.core.checks import (
    check_shape,
    check_values,
    kind,
    non_negative,
    one_of,
    positive_integer,
    shape_text,
    within,
)
from torchonline.privacy.calibration import gaussian_epsilon

CURVES = ("any", "gaussian")
SURELY_DIFFERENT = 10  # games with this many distinct releases do not repeat by chance


@dataclass(frozen=True, repr=False)
class AuditResult:
    """Result of an audit, with its arguments; see :func:`epsilon_lower_bound`.

    Attributes:
        epsilon: the lower bound, at least 0. It is 0 if the games give no evidence.
        limit: the bound that these games would give for a release without noise.
        delta: the argument.
        confidence: the argument.
        pairs: the argument.
        games: number of fresh games in each world.
        statistic: "column 0" and so on, or "discriminant".
        direction: ">=" or "<": the event is a statistic on this side of the threshold.
        threshold: of the statistic.
        likely: the world, 0 or 1, in which the event was likelier in the pilot games.
        hits: numbers of fresh games of world 0 and of world 1 in which the event occurred.
        curve: the argument.
    """

    epsilon: float
    limit: float
    delta: float
    confidence: float
    pairs: int
    games: int
    statistic: str
    direction: str
    threshold: float
    likely: int
    hits: tuple[int, int]
    curve: str = "any"

    def __repr__(self) -> str:
        rare = 1 - self.likely
        of_pairs = f" for {self.pairs} pairs" if self.pairs > 1 else ""
        of_pairs += "" if self.curve == "any" else f", if the curve is {self.curve}"
        return (
            f"AuditResult(epsilon >= {self.epsilon:.4g} at delta = {self.delta:g}, confidence {self.confidence:g}{of_pairs}; "
            f"{self.statistic} {self.direction} {self.threshold:.4g} in {self.hits[self.likely]} of {self.games} games of "
            f"world {self.likely}, {self.hits[rare]} of world {rare}; no result is above {self.limit:.4g})"
        )


def epsilon_lower_bound(
    play: Callable[[int, int], Tensor],
    *,
    delta: float,
    games: int = 4000,
    confidence: float = 0.95,
    pairs: int = 1,
    curve: str = "any",
) -> AuditResult:
    r"""Return a lower bound on a mechanism's epsilon, from games in two worlds.

    The caller fixes two neighbouring streams, one for each world, which differ in one record. A game runs the mechanism on one
    stream and returns statistics of its releases. There are four calls, each for all games of one world::

        pilot = play(0, games), play(1, games)   # choose an event: a statistic, a direction, a threshold
        fresh = play(0, games), play(1, games)   # count it

    The statistics are the columns that ``play`` returns. Several columns get one more statistic, Fisher's linear discriminant. It
    is fitted on the first half of the pilot games, and the event is then chosen on the second half. Let p be the rate of the
    event in the world where it was likelier in the pilot games, and q its rate in the other world. With Clopper-Pearson's bounds
    on the fresh games, each wrong with probability at most (1 - ``confidence``) / (2 ``pairs``),

    .. math:: \hat\varepsilon = \max\Big(0, \log\frac{p_{\text{low}} - \delta}{q_{\text{high}}}\Big).

    With ``curve="gaussian"`` the bound is the epsilon at ``delta`` of :math:`\hat\mu`-Gaussian privacy,
    :math:`\hat\mu = \max(0, \Phi^{-1}(p_{\text{low}}) - \Phi^{-1}(q_{\text{high}}))`, and the event is chosen for this bound. The
    bound is higher, but it refutes only a claim of :math:`\mu`-Gaussian privacy, which Gaussian noise has, not a claim of
    (epsilon, delta) alone.

    Guarantee. If the mechanism is (epsilon, ``delta``)-private for a relation in which the two streams are neighbours, then
    :math:`p \le e^\varepsilon q + \delta`, so the bound exceeds epsilon with probability at most 1 - ``confidence``. Over
    ``pairs`` audits (other streams, other statistics, a second try) this holds for the largest bound. The caller must meet these
    conditions:

    - Streams and ``pairs`` are fixed before any game.
    - The games of a world, including pilot games, are independent and identically distributed: ``play`` must not reseed in each
      call, nor share noise between the learners of a batch. The two worlds may share noise.
    - Statistics depend on releases only: public states and, for joint privacy, actions of other users than the one whose record
      differs.

    A high value refutes a claim. A low value proves nothing: it covers one pair of streams, one event and few games. See
    docs/privacy_measured.md for the values to expect. Cost: 4 ``games`` games, and O(k games log games + k^2 games + k^3) for k
    columns.

    Args:
        play: takes the world, 0 or 1, and the number of games, and returns ``(games,)``, or ``(games, k)`` for k statistics,
            floating point, finite. A batch of learners of batch_shape ``(games,)`` plays them all at once.
        delta: the delta of the bounded epsilon, in [0, 1).
        games: the number of games in each call, at least 2.
        confidence: in (0, 1).
        pairs: the number of audits whose largest bound will be quoted.
        curve: ``"any"``, or ``"gaussian"`` for a mechanism that claims Gaussian privacy.

    Example:
        >>> generator = torch.Generator().manual_seed(0)
        >>> def play(world: int, games: int) -> torch.Tensor:  # a record moves a sum by 1; the noise is far too small
        ...     return world + 0.25 * torch.randn(games, generator=generator, dtype=torch.float64)
        >>> epsilon_lower_bound(play, delta=1e-3, games=1000)
        AuditResult(epsilon >= 4.775 at delta = 0.001, confidence 0.95; column 0 >= 0.708 in 877 of 1000 games of world 1,
        2 of world 0; no result is above 5.6)

    Reference: Jagielski, Ullman and Oprea, Auditing differentially private machine learning, NeurIPS 2020; for the Gaussian curve
    Nasr et al., Tight auditing of differentially private machine learning, USENIX Security 2023. What differs: the caller names
    the statistics, and the event is chosen on separate games.
    """
    if not callable(play):
        raise TypeError(f"play: expected a function of the world and the number of games, got {kind(play)}")
    if non_negative("delta", delta) >= 1.0:
        raise ValueError(f"delta: expected a number in [0, 1), got {delta}")
    if positive_integer("games", games) < 2:
        raise ValueError(f"games: expected an integer above 1, got {games}")
    curve = one_of("curve", curve, CURVES)
    miss = (1.0 - within("confidence", confidence, 0.0, 1.0)) / (2 * positive_integer("pairs", pairs))

    pilot = _played(play, games)
    columns = pilot.size(-1)
    choosing, weights = pilot, torch.ones(1, dtype=torch.float64)
    if columns > 1:
        choosing, weights = pilot[:, games // 2 :], _discriminant(pilot[:, : games // 2])
    number, is_above, likely, threshold = _best_event(_candidates(choosing, weights), delta, curve)

    fresh = _played(play, games)
    check_shape("play", fresh[0], tuple(pilot[0].shape))
    if fresh.equal(pilot) and len(fresh.flatten(0, 1).unique(dim=0)) >= SURELY_DIFFERENT:
        raise ValueError("play: expected fresh noise in each call, got the same games twice")
    values = _candidates(fresh, weights)[..., number]
    hits: list[int] = (values >= threshold if is_above else values < threshold).sum(-1).tolist()
    return AuditResult(
        epsilon=_bound(hits[likely], hits[1 - likely], games, delta, miss, curve),
        limit=_bound(games, 0, games, delta, miss, curve),
        delta=float(delta),
        confidence=float(confidence),
        pairs=pairs,
        games=games,
        statistic=f"column {number}" if number < columns else "discriminant",
        direction=">=" if is_above else "<",
        threshold=threshold,
        likely=likely,
        hits=(hits[0], hits[1]),
        curve=curve,
    )


def clopper_pearson(hits: int, games: int, miss: float) -> tuple[float, float]:
    r"""Return Clopper and Pearson's lower and upper bound on a probability.

    The lower bound is the largest p with :math:`P(\mathrm{Bin}(\text{games}, p) \ge \text{hits}) \le \text{miss}`, by bisection.
    The upper bound is 1 minus the lower bound for the games without a hit. Each is wrong with probability at most ``miss``, in
    (0, 0.5). Cost: O(games) for each of about sixty halvings. (Biometrika 26, 1934.)

    Example:
        >>> [round(bound, 4) for bound in clopper_pearson(5, 100, 0.025)]
        [0.0164, 0.1128]
    """
    positive_integer("games", games)
    if isinstance(hits, bool) or not isinstance(hits, int):
        raise TypeError(f"hits: expected an integer, got {type(hits).__name__}")
    if not 0 <= hits <= games:
        raise ValueError(f"hits: expected an integer from 0 to the number of games, {games}, got {hits}")
    within("miss", miss, 0.0, 0.5)
    return _lower_end(hits, games, miss), 1.0 - _lower_end(games - hits, games, miss)


def _lower_end(hits: int, games: int, miss: float) -> float:
    if hits == 0:
        return 0.0
    count = torch.arange(hits, games + 1, dtype=torch.float64)
    log_ways = math.lgamma(games + 1) - (count + 1).lgamma() - (games - count + 1).lgamma()
    low, high = 0.0, hits / games  # at these ends the tail below is 0, and at least a half
    while low < (middle := (low + high) / 2) < high:
        tail = (log_ways + count * math.log(middle) + (games - count) * math.log1p(-middle)).exp().sum().item()
        low, high = (middle, high) if tail <= miss else (low, middle)
    return low


def _bound(likely_hits: int, rare_hits: int, games: int, delta: float, miss: float, curve: str) -> float:
    """Return the lower bound on epsilon, from the hits in the two worlds."""
    low, high = clopper_pearson(likely_hits, games, miss)[0], clopper_pearson(rare_hits, games, miss)[1]
    if curve == "gaussian":
        ends = torch.special.ndtri(torch.tensor([low, high], dtype=torch.float64))
        mu = float(ends[0] - ends[1])
        return gaussian_epsilon(mu, delta) if mu > 0.0 else 0.0  # if low is 0, mu is minus infinity
    return math.log((low - delta) / high) if low - delta > high else 0.0


def _played(play: Callable[[int, int], Any], games: int) -> Tensor:
    """Play games in both worlds, and return the statistics, ``(2, games, k)``."""
    worlds: list[Tensor] = []
    for value in (play(0, games), play(1, games)):
        if not isinstance(value, Tensor) or not value.is_floating_point():
            raise TypeError(f"play: expected a floating-point tensor, got {kind(value)}")
        if value.dim() not in (1, 2) or len(value) != games or value.numel() == 0:
            raise ValueError(f"play: expected shape ({games},) or ({games}, k), got {shape_text(value.shape)}")
        worlds.append(value.detach().to("cpu", torch.float64).reshape(games, -1))
        check_values("play", worlds[-1])
    check_shape("play", worlds[1], tuple(worlds[0].shape))
    return torch.stack(worlds)


def _discriminant(values: Tensor) -> Tensor:
    """Return Fisher's linear discriminant: ``(2, games, k)`` to weights ``(k)``."""
    means = values.mean(1)
    spread = (values - means.unsqueeze(1)).flatten(0, 1)
    scale = spread.square().mean(0).sqrt()
    scale = scale.where(scale > 0, 1.0)
    spread = spread / scale
    # The small ridge prevents a division by 0 when two columns share their noise.
    correlation = spread.mT @ spread / len(spread) + 1e-8 * torch.eye(len(scale), dtype=torch.float64)
    return torch.linalg.solve(correlation, (means[1] - means[0]) / scale) / scale


def _candidates(values: Tensor, weights: Tensor) -> Tensor:
    """Return the columns of ``(2, games, k)``; append the weighted sum of several."""
    return torch.cat([values, (values * weights).sum(-1, keepdim=True)], -1) if len(weights) > 1 else values


def _best_event(values: Tensor, delta: float, curve: str) -> tuple[int, bool, int, float]:
    """Return the event with the largest bound: column, is above, world, threshold."""
    # Wilson's approximate bounds, at three standard errors to guard against luck in the tails.
    games = values.size(1)
    best, event = -math.inf, (0, True, 1, 0.0)
    for number, column in enumerate(values.unbind(-1)):
        ordered, distinct = column.sort(-1).values, column.unique()
        if len(distinct) == 1:
            continue
        thresholds = (distinct[1:] + distinct[:-1]) / 2
        below = torch.searchsorted(ordered, thresholds.expand(2, -1).contiguous()).double()
        hits = torch.stack([below, games - below])  # (direction, world, threshold)
        centre, spread = hits + 4.5, 3.0 * (hits * (1.0 - hits / games) + 2.25).sqrt()
        low, high = (centre - spread) / (games + 9), (centre + spread) / (games + 9)
        if curve == "gaussian":
            scores = torch.special.ndtri(low.clamp(min=0.0)) - torch.special.ndtri(high.flip(1).clamp(max=1.0))
        else:
            scores = ((low - delta).clamp(min=0.0) / high.flip(1)).log()
        if scores.max() > best:
            best = scores.max().item()
            is_above, likely, at = torch.unravel_index(scores.argmax(), scores.shape)
            event = number, bool(is_above), int(likely), thresholds[at].item()
    return event
