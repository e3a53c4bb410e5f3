"""Plots of confidence: the intervals of arms, and confidence sets."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from torchonline.core.axes import GREY, axes_or_new, label_top, next_style, plain_label
from torchonline.core.checks import shape_text
from torchonline.core.inputs import one_of_many
from torchonline.regression.estimator import Estimator

# Most arms that are all named at the axis. Among more arms, only every n-th is named.
MOST_NAMES = 60
# The gid of a policy's arms in axes, and how far below the first policy's arms the second policy's are, in rows.
ARMS, BELOW = "torchonline: arms", 0.4
# With these methods of Estimator, the confidence set is an ellipsoid around theta_hat.
OF_ELLIPSOID = ("predictor", "width", "interval", "_squared_width")


class Knowledge(NamedTuple):
    """The drawn values of one decision: ``(K)`` each, and the index of an arm."""

    estimate: Tensor
    low: Tensor
    high: Tensor
    available: Tensor
    column: Tensor
    marked: Tensor


def draw_confidence(
    policy: Any,
    inputs: Any,
    ax: Any,
    names: Sequence[str] | None,
    mask: Any,
    index: Any,
    label: str | None = None,
    heuristic: str = "",
) -> tuple[Any, Any]:
    """Draw the estimates and intervals of a decision; see ``plot_confidence``.

    ``heuristic`` says why no theorem covers the intervals, if the policy itself cannot know.
    """
    with torch.no_grad():
        known, column, mark = _looked_at(policy, inputs, mask, index)
    count, k = len(known.estimate), int(known.marked)
    if names is not None and (isinstance(names, str) or len(names) != count):
        raise ValueError(f"names: expected {count} names, one for each arm, got {names!r}")
    ids, own = policy.action_ids or range(count), policy.action_names
    labels = [f"arm {k}" for k in ids] if own is None else list(map(plain_label, own))
    labels = labels if names is None else [str(name) for name in names]
    axes = axes_or_new(ax, (6.4, min(16.0, 1.5 + (0.3 if label is None else 0.5) * max(count, 3))))
    first = _label_of_first(axes, count, label)
    below = BELOW if first else 0.0
    _draw_arms(axes, known, mark, below, label)
    shown = sorted({*range(0, count, -(-count // MOST_NAMES)), k})
    axes.set_yticks([0.5 * below + i for i in shown], [labels[i] for i in shown])
    axes.tick_params(axis="y", length=0)
    if label is None:
        axes.get_yticklabels()[shown.index(k)].set_fontweight("bold")
    axes.set_ylim(count - 0.4 + below, -0.9)
    status = _status_of_policy(policy, heuristic)
    if bool((known.low > known.high).any()):
        status = "no parameter within theta_bound is in the set"
    elif bool(((known.estimate < known.low) | (known.estimate > known.high)).any()):
        status = "an estimate is outside its interval: theta_bound seems too small"
    _, _, known_status = axes.get_xlabel().partition("interval: ")
    is_another = bool(first) and known_status != status
    said = f"{first}: {known_status}\n{label}: {status}" if is_another else f"interval: {status}"
    axes.set_xlabel(f"mean reward\n{said}")
    if column and label is None:
        right = axes.secondary_yaxis("right")
        values, is_open = _aligned(known.column, column == "probability"), known.available.tolist()
        right.set_yticks(shown, [values[i] if is_open[i] else "" for i in shown])
        right.tick_params(axis="y", length=0)
        right.set_ylabel(column)
    return axes.figure, axes


def _label_of_first(axes: Any, count: int, label: str | None) -> str:
    """Return the label of the policy already drawn, or "".

    Raise if the next policy cannot be drawn below it.
    """
    others = [line.get_label() for line in axes.lines if line.get_gid() == ARMS]
    if others and (label is None or others[0].startswith("_")):
        raise ValueError("label: expected one in each call of plot_confidence on the same axes, got None")
    if len(others) > 1:
        raise ValueError("ax: expected the arms of at most one other policy, got two; give each policy its own axes")
    if others and axes.get_ylim() != (count - 0.4, -0.9):
        raise ValueError(f"ax: expected the axes of another policy with {count} arms, got others")
    return str(others[0]) if others else ""


def _looked_at(policy: Any, inputs: Any, mask: Any, index: Any) -> tuple[Knowledge, str, str]:
    """Return the values of one decision, the name of its column, and the mark's name."""
    rule = policy._rule
    if not policy.is_deterministic():
        column = policy.probabilities(inputs, mask)
        marked, name, mark = column.argmax(-1), "probability", "likeliest"
    else:
        marked, column, mark = policy._placed(policy.select(inputs, mask)), policy(inputs), "chosen"
        has_link = type(policy.estimator)._response is not Estimator._response
        name = "" if not rule.uses_widths else "score of the predictor" if has_link else "score"
    estimate, (low, high) = policy.predict(inputs), policy.interval(inputs)
    available = torch.ones_like(estimate, dtype=torch.bool)
    if mask is not None:
        available &= torch.as_tensor(mask, device=available.device)
    place = one_of_many("index", index, tuple(marked.shape), "decisions")
    parts = (estimate, low, high, available, column, marked)
    return Knowledge(*(part[place].detach().cpu() for part in parts)), name, mark


def _status_of_policy(policy: Any, heuristic: str) -> str:
    """Return whether a theorem covers the intervals of a policy."""
    one, scaler = policy.estimator, getattr(policy, "scaler", None)
    if scaler is not None and (scaler.freeze_after is None or bool((scaler.rounds < scaler.freeze_after).any())):
        heuristic = heuristic or "the scaler moves"
    delta: Any = getattr(one, "delta", None)
    # Disjoint arms share delta.
    return status_of(one, delta * getattr(policy, "most_actions", 1) if delta else delta, heuristic)


def status_of(estimator: Any, delta: Any, heuristic: str = "") -> str:
    """Return whether a theorem covers the confidence set of an estimator, in words."""
    name = type(estimator).__name__
    if estimator.guarantee == "none":
        heuristic = f"{name} has no theorem here"
    elif estimator.radius_scale != 1.0:
        heuristic = f"radius_scale = {estimator.radius_scale:g}"
    if heuristic:
        return f"a heuristic ({heuristic})"
    if not estimator.guarantee:
        return f"see the guarantee of {name}"
    promises = f"{_promised(estimator, 'theta_bound')}\nand {_noise_of(estimator)}"
    return f"proved {estimator.guarantee} if {promises} hold" + (f", delta = {delta:.3g}" if delta else "")


def _promised(estimator: Any, name: str) -> str:
    """Return an option of an estimator, with its value if it is one number."""
    value = getattr(estimator, name)  # a tensor if there are several outputs
    return f"{name} = {value:g}" if isinstance(value, float) else name


def _noise_of(estimator: Any) -> str:
    """Return the assumption on the rewards' law in an estimator's theorem."""
    link = getattr(estimator, "link", None)
    if link is not None:
        return f"link = {type(link).__name__}"
    return "symmetric noise" if getattr(estimator, "is_symmetric", False) else _promised(estimator, "noise_scale")


def _draw_arms(axes: Any, known: Knowledge, mark: str, below: float, label: str | None) -> None:
    heights = below + np.arange(len(known.estimate))
    estimate, low, high, available = (part.double().numpy() for part in known[:4])
    is_open = available > 0.0
    (line,) = axes.plot([], [])  # with the next colour of the style
    colour = line.get_color()
    line.remove()
    for shown, tone, style, filled in ((is_open, colour, "-", colour), (~is_open, GREY, ":", "none")):
        if not shown.any():
            continue
        at = heights[shown]
        axes.hlines(at, low[shown], high[shown], color=tone, linestyle=style, linewidth=1.5)
        for ends in (low, high):
            axes.plot(ends[shown], at, "|", color=tone, markersize=8, markeredgewidth=1.5)
        axes.plot(estimate[shown], at, "o", color=tone, markerfacecolor=filled, markersize=5)
    k = int(known.marked)
    axes.plot(estimate[k], heights[k], "D", color=colour, markersize=9, gid=ARMS, label=label)
    text: dict[str, Any] = {"textcoords": "offset points", "annotation_clip": False}
    if label is None:
        axes.annotate(mark, (estimate[k], k), xytext=(0.0, 7.0), ha="center", va="bottom", **text)
    else:
        first, last = float(low.min()), float(high.max())
        axes.update_datalim([(last + 0.35 * (last - first), heights[k])])  # room for the label
        axes.autoscale_view(scaley=False)
        place = (max(high[k], estimate[k]), heights[k])
        axes.annotate(f"{label}: {mark}", place, xytext=(7.0, 0.0), va="center", color=colour, **text)


def draw_confidence_set(
    estimator: Any,
    ax: Any,
    coordinates: tuple[int, int],
    index: Any,
    truth: Any,
    label: str | None,
    style: dict[str, Any],
) -> tuple[Any, Any]:
    """Draw the projection of a confidence ellipsoid; see ``plot_confidence_set``."""
    center, radius, block = _shadow(estimator, tuple(coordinates), index)
    point = None
    if truth is not None:
        point = torch.as_tensor(truth, dtype=torch.float64).detach().cpu()
        if point.shape != (estimator.dim,):
            raise ValueError(f"truth: expected shape ({estimator.dim}), got {shape_text(point.shape)}")
        point = point[list(coordinates)]
    axes = axes_or_new(ax, (5.0, 4.6))
    angles = np.linspace(0.0, 2.0 * math.pi, 201)
    circle = np.stack([np.cos(angles), np.sin(angles)])
    boundary = np.array(center)[:, None] + radius * np.linalg.cholesky(block) @ circle
    (line,) = axes.plot(*boundary, **{"linestyle": next_style(axes), **style})
    colour = line.get_color()
    axes.fill(*boundary, color=colour, alpha=0.08, linewidth=0)
    axes.plot(*center, "o", color=colour, markersize=5)
    if label is not None:
        line.set_label(label)
        label_top(axes, boundary[:, boundary[1].argmax()], label, colour)
    if point is not None:
        axes.plot(*point.tolist(), "X", color=GREY, markersize=9)
        text = {"xytext": (0.0, -8.0), "textcoords": "offset points", "ha": "center", "va": "top"}
        axes.annotate("truth", point.tolist(), annotation_clip=False, **text)
    axes.set_aspect("equal", adjustable="datalim")
    axes.margins(0.1)
    for name, i in zip("xy", coordinates, strict=True):
        getattr(axes, f"set_{name}label")(f"coordinate {i} of the parameter")
    axes.set_title(f"confidence set\n{status_of(estimator, getattr(estimator, 'delta', None))}", fontsize="small")
    return axes.figure, axes


def _shadow(estimator: Any, coordinates: tuple[Any, ...], index: Any) -> tuple[list[float], float, Any]:
    """Return the center, radius and matrix of a projection, or raise."""
    cls = type(estimator)
    own = [name for name in OF_ELLIPSOID if getattr(cls, name) is not getattr(Estimator, name)]
    if own and not estimator.output_shape:
        raise TypeError(
            f"{cls.__name__}: expected a learner whose confidence set is an ellipsoid around theta_hat, got one with its own "
            f"{' and '.join(own)}"
        )
    dim = estimator.dim
    is_right = len(coordinates) == 2 and all(type(i) is int and 0 <= i < dim for i in coordinates)
    if not is_right or coordinates[0] == coordinates[1]:
        raise ValueError(f"coordinates: expected two different ones from 0 to {dim - 1}, got {coordinates}")
    sizes = (*estimator.batch_shape, *estimator.output_shape)
    place = one_of_many("index", index, sizes, "learners")
    with torch.no_grad(), estimator._lock:
        theta = estimator.theta_hat
        if estimator.output_shape:
            theta = theta.transpose(-1, -2)
        center, radius = theta[place].double().cpu(), float(estimator.radius()[place])
        matrix = estimator.width_matrix()[place[: estimator.batch_dims]].double().cpu()
    if not math.isfinite(radius):
        raise ValueError(f"radius: expected a finite number, got {radius}; the set has no projection")
    pair = list(coordinates)
    return center[pair].tolist(), radius, matrix[pair][:, pair].numpy()


def _aligned(values: Tensor, are_shares: bool) -> list[str]:
    """Return numbers as text with equally many digits after the point."""
    if are_shares:
        return [f"{100.0 * value:.1f} %" for value in values.tolist()]
    largest = float(values[values.isfinite()].abs().max()) if bool(values.isfinite().any()) else 0.0
    return [f"{value:.3g}" if largest >= 1e4 or largest < 0.01 else f"{value:.2f}" for value in values.tolist()]
