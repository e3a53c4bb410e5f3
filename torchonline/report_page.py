"""The HTML page of a report on a decision log, and its pictures."""

import base64
import html
import io
import math
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from torchonline.metrics.plots import draw_bands

if TYPE_CHECKING:
    from torchonline.reporting import Summary

# Paul Tol's bright and light schemes, in an order that keeps neighbours apart.
COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#ee8866", "#99ddff", "#44bb99", "#9a6324")
# Matplotlib's settings are those of the whole process.
DRAWING = threading.Lock()

GOOD, BAD, PLAIN = "good", "bad", "plain"

STYLE: dict[str, Any] = {
    "figure.figsize": (5.4, 3.1),
    "figure.constrained_layout.use": True,
    "font.size": 9.5,
    "font.family": "sans-serif",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "0.45",
    "axes.labelcolor": "0.2",
    "xtick.color": "0.35",
    "ytick.color": "0.35",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "0.9",
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "lines.linewidth": 1.6,
    "svg.fonttype": "path",
    "svg.hashsalt": "torchonline",
}

CSS = """
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; color: #1f2933; background: #f4f6f8;
  margin: 0; padding: 28px 16px 60px; }
main { max-width: 1160px; margin: 0 auto; }
h1 { font-size: 26px; margin: 0 0 2px; overflow-wrap: anywhere; }
h2 { font-size: 17px; margin: 30px 0 10px; }
h3 { font-size: 14.5px; margin: 0 0 2px; }
p { margin: 0 0 6px; }
.range, .note, figcaption { color: #5b6875; }
.note, figcaption { font-size: 13px; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(135px, 1fr)); gap: 10px; margin: 18px 0 0; }
.tile, figure, .card { background: #fff; border: 1px solid #dfe4e9; border-radius: 8px; }
.tile { padding: 10px 12px; }
.tile b { display: block; font-size: 22px; line-height: 1.3; font-variant-numeric: tabular-nums; }
.tile span { font-size: 12.5px; color: #5b6875; display: block; line-height: 1.35; }
.tile.bad { border-color: #e3a9a9; background: #fdf3f3; }
ul.findings { list-style: none; margin: 0; padding: 0; }
ul.findings li { background: #fff; border: 1px solid #dfe4e9; border-left: 5px solid #9aa5b1; border-radius: 6px;
  padding: 8px 12px; margin: 0 0 7px; }
ul.findings li.good { border-left-color: #228833; }
ul.findings li.bad { border-left-color: #cc3344; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 480px), 1fr)); gap: 14px; }
figure { margin: 0; padding: 14px 16px 12px; }
figure img { width: 100%; height: auto; display: block; margin: 6px 0 4px; }
.card { padding: 6px 16px 10px; overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; font-size: 14px; }
th, td { text-align: right; padding: 5px 10px; border-bottom: 1px solid #edf0f3; }
th:first-child, td:first-child { text-align: left; overflow-wrap: anywhere; }
th { color: #5b6875; font-weight: 600; font-size: 12.5px; }
tr:last-child td { border-bottom: 0; }
@media print { body { background: #fff; } figure, .card, .tile { break-inside: avoid; } }
"""

# Counts of a log: what they are called, what they say, and whether a number above 0 is bad news.
TILES = {
    "decisions": ("decisions", "logged", False),
    "open": ("open", "wait for a reward", False),
    "known": ("known", "may be learnt", False),
    "defaults": ("defaults", "closed without a reward", False),
    "duplicates": ("duplicates", "delivered again, ignored", False),
    "unknown": ("unknown", "rewards without a decision, when they came", False),
    "strays": ("strays", "rewards that still have no decision", True),
    "repeats": ("repeats", "decisions logged again, ignored", False),
    "late": ("late", "rewards after the window closed", True),
}


def page_of(summary: "Summary", title: str) -> str:
    """Return the page as text."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ImportError("report: expected matplotlib, got none; pip install matplotlib") from error
    parts = [f"<h1>{html.escape(title)}</h1>", f'<p class="range">{_range(summary)}</p>', _tiles(summary)]
    if summary.decisions:
        with DRAWING, style():
            figures = [_figure(picture) for picture in pictures_of(summary)]
        findings = "".join(f'<li class="{kind}">{html.escape(text)}</li>' for kind, text in _findings(summary))
        parts += ["<h2>Findings</h2>", f'<ul class="findings">{findings}</ul>']
        parts += ["<h2>Pictures</h2>", f'<div class="figures">{"".join(figures)}</div>']
        parts += ["<h2>Actions</h2>", _table_of_actions(summary)]
        parts += ["<h2>Encoder versions</h2>", _table_of_versions(summary)]
        parts += ["<h2>Delay of the feedback</h2>", _table_of_delays(summary)] if int(summary.delays.rounds) else []
    else:
        parts += [
            "<h2>Nothing to show</h2>",
            "<p>The log holds no decisions yet. Pictures come with the first one.</p>",
        ]
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>{html.escape(title)}</title>\n'
        f"<style>{CSS}</style>\n</head>\n<body>\n<main>\n" + "\n".join(parts) + "\n</main>\n</body>\n</html>\n"
    )


# Pieces of the page.


def _range(summary: "Summary") -> str:
    if summary.first is None or summary.last is None:
        return "No decisions yet."
    return f"{_date(summary.first)} to {_date(summary.last)} (UTC), {_duration(summary.last - summary.first)}."


def _tiles(summary: "Summary") -> str:
    tiles = []
    for key, value in summary.counts.items():
        name, meaning, is_bad = TILES.get(key, (key, "", False))
        kind = " bad" if is_bad and value else ""
        text = f"<b>{int(value):,}</b><span>{html.escape(str(name))}</span><span>{html.escape(meaning)}</span>"
        tiles.append(f'<div class="tile{kind}">{text}</div>')
    return f'<div class="tiles">{"".join(tiles)}</div>'


def _findings(summary: "Summary") -> list[tuple[str, str]]:
    """Return what an operator should know first: how bad it is, and a sentence."""
    found = []
    drift, alarm = summary.alarm.compute(), summary.alarm
    if int(drift.rounds) < 2 * alarm.window:
        text = f"Drift: not tested. Two windows of {alarm.window:,} rewards are needed, and {int(drift.rounds):,} are known."
        found.append((PLAIN, text))
    elif int(drift.alarms):
        times = _times(summary)
        text = (
            f"Drift: the rewards have changed. Alarms came at reward {times}. The mean of the last complete window is "
            f"{_number(drift.latest)}. With probability at least {1.0 - alarm.alpha:g} no alarm is false. A policy that learns "
            "changes its own rewards: compare with a control group before you look for another cause."
        )
        found.append((BAD, text))
    else:
        windows = int(drift.rounds) // alarm.window - 1
        text = (
            f"Drift: no alarm in {windows:,} comparisons with the first {alarm.window:,} rewards. That is no proof that nothing "
            "changed."
        )
        found.append((GOOD, text))
    size = summary.weights.compute()
    gap = 1.0 - float(size.mean_weight)
    if gap > max(0.05, 4.0 * _finite(float(size.weight_error))):
        text = (
            f"Overlap: the log does not cover all actions. The weights of the uniform policy have mean "
            f"{_number(size.mean_weight)}, where 1 is expected: in about {gap:.0%} of its choices the uniform policy plays what "
            "the log never played. No estimator can tell the value of such a policy from this log."
        )
        found.append((BAD, text))
    else:
        share = float(size.effective) / summary.decisions
        text = (
            f"Overlap: for the uniform policy, the {summary.decisions:,} decisions are worth {float(size.effective):,.0f} of its "
            f"own ({share:.0%}). The smallest logged probability is {_number(summary.probabilities.compute().smallest)}."
        )
        found.append((GOOD if share > 0.05 else BAD, text))
    if summary.has_policy and not int(summary.policy_weights.rounds):
        text = (
            "Policy: the log cannot be compared with the given policy. No decision has inputs of all arms, or of the encoder "
            "version that was named."
        )
        found.append((PLAIN, text))
    for key, text in (
        (
            "late",
            "rewards came after the attribution window had closed, and are not learnt. A longer window would keep them.",
        ),
        ("strays", "rewards have an id that no decision has. Are decisions logged under other ids, or not at all?"),
    ):
        if value := int(summary.counts.get(key, 0)):
            found.append((BAD, f"Feedback: {value:,} {text}"))
    return found


def _table_of_actions(summary: "Summary") -> str:
    shares = summary.shares.compute().reshape(-1)
    count, mean, error = _by_action(summary)
    rows = []
    for i, name in enumerate(_names(summary)):
        error_text = "" if math.isnan(float(error[i])) else _number(error[i])
        mean_text = "" if math.isnan(float(mean[i])) else _number(mean[i])
        share = float(shares[i])
        rows.append(
            [name, f"{share * summary.decisions:,.0f}", f"{share:.1%}", f"{int(count[i]):,}", mean_text, error_text]
        )
    note = (
        "Standard errors describe these rounds. They are no confidence intervals of the arms: different contexts are played with "
        "different arms, and a learner drops an arm after bad luck."
    )
    if summary.has_window and int(summary.counts.get("open", 0)):
        note += " Of recent decisions, rewards are known before defaults are: means are too high where much of the log is recent."
    header = ["action", "decisions", "share", "known rewards", "mean reward", "standard error"]
    return _table(header, rows, note)


def _table_of_versions(summary: "Summary") -> str:
    rows = [
        [version.name or "(none named)", f"{version.decisions:,}", _date(version.first), _date(version.last)]
        for version in summary.versions[:50]
    ]
    left_out = len(summary.versions) - len(rows)
    note = f"{left_out:,} further versions are left out." if left_out else ""
    return _table(["version", "decisions", "first decision (UTC)", "last decision (UTC)"], rows, note)


def _table_of_delays(summary: "Summary") -> str:
    spread = summary.delays.compute()
    values = [spread.smallest, *spread.quantiles, spread.largest]
    header = ["rewards", "smallest", "1 %", "10 %", "median", "90 %", "99 %", "largest"]
    row = [f"{int(summary.delays.rounds):,}", *(_duration(float(value)) for value in values)]
    note = "From decision to reward, without defaults. Quantiles are rounded up by at most 12 %."
    return _table(header, [row], note)


def _table(header: list[str], rows: list[list[str]], note: str) -> str:
    head = "".join(f"<th>{html.escape(cell)}</th>" for cell in header)
    body = "".join(f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    end = f'<p class="note">{html.escape(note)}</p>' if note else ""
    return f'<div class="card"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{end}</div>'


# Pictures. Text that comes from users is in tables only, and never in a picture.


class Picture(NamedTuple):
    """A picture of the page: ``draw`` draws it on matplotlib axes."""

    title: str
    caption: str
    draw: Callable[[Any], None]


def pictures_of(summary: "Summary") -> list[Picture]:
    """Return the pictures of a log, without those that it has no numbers for."""
    return [picture for make in PICTURES if (picture := make(summary)) is not None]


def style() -> AbstractContextManager[None]:
    """Return a context in which matplotlib draws in the style of the page."""
    import matplotlib
    import matplotlib.style

    cycle = matplotlib.rcsetup.cycler(color=COLOURS)
    context: Any = matplotlib.style.context({**STYLE, "axes.prop_cycle": cycle}, after_reset=True)
    return context


def _figure(picture: Picture) -> str:
    """Return a picture as an HTML figure."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    figure = Figure()
    FigureCanvasSVG(figure)
    picture.draw(figure.add_subplot())
    file = io.BytesIO()
    figure.savefig(file, format="svg", metadata={"Date": None})
    data = base64.b64encode(file.getvalue()).decode("ascii")
    title, caption = html.escape(picture.title), html.escape(picture.caption)
    image = f'<img alt="{title}. {caption}" src="data:image/svg+xml;base64,{data}">'
    return f"<figure><h3>{title}</h3>{image}<figcaption>{caption}</figcaption></figure>"


def shares_picture(summary: "Summary") -> Picture:
    """Draw the shares of actions over time."""

    def draw(axes: Any) -> None:
        rounds, shares = summary.shares.means()
        draw_bands(axes, rounds, shares.T, _names(summary), _colours(summary))
        axes.grid(False)
        _percent(axes)
        _thousands(axes)
        _legend(axes, "action")

    more = (
        f" The {summary.actions_seen - len(summary.actions):,} others are shown together." if summary.has_others else ""
    )
    return Picture("Shares of actions", f"In the order of the decisions.{more}", draw)


def probabilities_picture(summary: "Summary") -> Picture:
    """Draw the histogram of the logged probabilities."""

    def draw(axes: Any) -> None:
        summary.probabilities.draw_bars(axes)
        axes.set_xlim(max(1e-6, 0.8 * float(summary.probabilities.smallest)), 1.3)
        axes.set_ylabel("decisions")
        _thousands(axes, "y")

    spread = summary.probabilities.compute()
    weight = 1.0 / float(spread.smallest)
    caption = f"Of the chosen actions. The smallest, {_number(spread.smallest)}, gives weights up to {_number(weight)}."
    return Picture("Logged probabilities", caption, draw)


def probability_picture(summary: "Summary") -> Picture:
    """Draw mean and smallest logged probability over time."""

    def draw(axes: Any) -> None:
        found = summary.probability_by_time.by_time()
        axes.plot(found.rounds.numpy(), found.mean.numpy(), label="mean")
        axes.plot(found.rounds.numpy(), found.least.numpy(), label="smallest")
        axes.set_yscale("log")
        axes.set_ylim(top=1.3)
        axes.set_xlabel("decision")
        axes.set_ylabel("logged probability")
        _thousands(axes)
        axes.legend()

    return Picture("Exploration over time", "Small probabilities make a log hard to learn other policies from.", draw)


def sample_size_picture(summary: "Summary") -> Picture:
    """Draw the effective sample sizes over the decisions."""

    def draw(axes: Any) -> None:
        axes.plot(
            [0, summary.decisions], [0, summary.decisions], color="0.6", linestyle="--", linewidth=1.0, label="all"
        )
        summary.weights.plot(ax=axes)
        axes.lines[-1].set_label("uniform policy")
        if int(summary.policy_weights.rounds):
            summary.policy_weights.plot(ax=axes)
            axes.lines[-1].set_label("given policy")
        _thousands(axes)
        _thousands(axes, "y")
        axes.legend()

    size = summary.weights.compute()
    caption = f"Mean weight {_number(size.mean_weight)} for the uniform policy"
    if int(summary.policy_weights.rounds):
        caption += f", {_number(summary.policy_weights.compute().mean_weight)} for the given policy"
    caption += "; clearly below 1, actions of that policy are missing in the log."
    return Picture("Effective sample size", caption, draw)


def rewards_picture(summary: "Summary") -> Picture | None:
    """Draw mean rewards by arm with standard errors."""
    if not int(summary.rewards.rounds):
        return None

    def draw(axes: Any) -> None:
        count, mean, error = _by_action(summary)
        names = _names(summary)
        shown = count.nonzero().squeeze(-1).tolist()
        for x, i in enumerate(shown):
            colour = _colours(summary)[i]
            bar = _finite(float(error[i]))
            axes.errorbar([x], [float(mean[i])], [bar], fmt="o", color=colour, capsize=4, markersize=7)
        overall = float((count * mean.nan_to_num(0.0)).sum() / count.sum())  # arms without rounds have no mean
        axes.axhline(overall, color="0.5", linestyle="--", linewidth=1.0, label=f"all: {_number(overall)}")
        axes.set_xticks(range(len(shown)), [names[i] for i in shown])
        axes.set_xlim(-0.6, len(shown) - 0.4)
        axes.grid(False, axis="x")
        axes.set_xlabel("action")
        axes.set_ylabel("mean reward")
        axes.legend()

    caption = "With one standard error. Not a comparison of the arms: they were played in different contexts."
    return Picture("Reward by action", caption, draw)


def reward_picture(summary: "Summary") -> Picture | None:
    """Draw the reward over time, with the alarm's windows."""
    if not int(summary.alarm.rounds):
        return None

    def draw(axes: Any) -> None:
        rounds, mean, error = _means_and_errors(summary.rewards_by_time)
        axes.plot(rounds, mean, marker=".", label="mean")
        axes.fill_between(
            rounds, mean - 2.0 * error, mean + 2.0 * error, alpha=0.2, linewidth=0, label="2 standard errors"
        )
        for i, time in enumerate(_alarms(summary)):
            axes.axvline(time, color=COLOURS[1], label="" if i else "drift alarm")
        axes.set_xlim(left=0)
        axes.set_xlabel(_order(summary))
        axes.set_ylabel("reward")
        _thousands(axes)
        axes.legend()

    verdict = "not tested yet"
    if int(summary.alarm.rounds) >= 2 * summary.alarm.window:
        verdict = f"alarms at reward {_times(summary)}" if int(summary.alarm.epoch) else "no alarm"
    caption = f"Drift: {verdict}. Any false alarm has probability at most {summary.alarm.alpha:g}."
    if left := int(summary.rewards.rounds) - int(summary.alarm.rounds):
        caption += f" {left:,} rewards of decisions after the first open one are left out."
    return Picture("Reward over time", caption, draw)


def alarm_picture(summary: "Summary") -> Picture | None:
    """Draw the statistics of the drift alarm."""
    if int(summary.alarm.rounds) < 2 * summary.alarm.window:
        return None

    def draw(axes: Any) -> None:
        summary.alarm.plot(ax=axes)
        axes.set_ylim(top=max(1.2, 1.1 * axes.dataLim.y1))
        axes.set_xlim(left=0)
        axes.set_xlabel(_order(summary))
        _thousands(axes)

    windows = f"Windows of {summary.alarm.window:,} rewards"
    caption = f"{windows} against the first one, or against the one after the last alarm. An alarm comes at 1."
    return Picture("Drift test", caption, draw)


def delays_picture(summary: "Summary") -> Picture | None:
    """Draw the histogram of the delays."""
    if not int(summary.delays.rounds):
        return None

    def draw(axes: Any) -> None:
        summary.delays.draw_bars(axes)
        low, high = axes.get_xlim()
        ticks = [(s, name) for s, name in TICKS if low <= s <= high]
        axes.set_xticks([s for s, _ in ticks], [name for _, name in ticks])
        axes.minorticks_off()
        axes.set_xlabel("time from decision to reward")
        axes.set_ylabel("rewards")
        _thousands(axes, "y")

    spread = summary.delays.compute()
    caption = f"Median {_duration(float(spread.quantiles[2]))}, 99 % within {_duration(float(spread.quantiles[4]))}."
    if summary.defaults:
        caption += f" {summary.defaults:,} decisions were closed without a reward, and are not shown."
    return Picture("Delay of the feedback", caption, draw)


def versions_picture(summary: "Summary") -> Picture | None:
    """Draw the shares of encoder versions over time, if there are several."""
    if len(summary.versions) < 2:
        return None

    def draw(axes: Any) -> None:
        shown = summary.version_shares.actions
        names, colours = [f"{i + 1}" for i in range(shown)], [*COLOURS[:shown]]
        if shown < len(summary.versions):
            names[-1] = "later"
        rounds, shares = summary.version_shares.means()
        draw_bands(axes, rounds, shares.T, names, [*colours, "0.75"][:shown])
        axes.grid(False)
        _percent(axes)
        _thousands(axes)
        _legend(axes, "version")

    return Picture("Encoder versions", "Numbered in the order of their first decision, as in the table below.", draw)


def widths_picture(summary: "Summary") -> Picture | None:
    """Draw the widths of the policy's confidence intervals."""
    if not int(summary.widths.rounds):
        return None

    def draw(axes: Any) -> None:
        summary.widths.plot(ax=axes)
        axes.lines[-1].set_label("mean, and range")
        axes.set_ylim(bottom=min(0.0, axes.dataLim.y0))
        axes.set_xlabel("reward, in the order known")
        axes.set_ylabel("width, in units of the reward")
        _thousands(axes)
        axes.legend()

    return Picture("Confidence intervals", "Of the chosen actions, by the given policy in its present state.", draw)


def calibration_picture(summary: "Summary") -> Picture | None:
    """Draw mean rewards against predictions."""
    if summary.calibration is None:
        return None
    predictions, rewards = (metric.compute() for metric in summary.calibration)
    used = predictions.rounds.nonzero().squeeze(-1)

    def draw(axes: Any) -> None:
        x, y = predictions.mean[used], rewards.mean[used]
        error = rewards.standard_error[used].nan_to_num(0.0)
        both = torch.cat([x, y])
        ends = [float(both.min()), float(both.max())]
        axes.plot(ends, ends, color="0.5", linestyle="--", linewidth=1.0, label="perfect")
        axes.errorbar(x.numpy(), y.numpy(), 2.0 * error.numpy(), fmt="o", capsize=3, label="2 standard errors")
        axes.set_xlabel("prediction")
        axes.set_ylabel("mean reward")
        axes.legend()

    caption = f"{len(used)} groups of like predictions. Too good if the policy has learnt these rewards."
    return Picture("Predictions beside rewards", caption, draw)


PICTURES: tuple[Callable[["Summary"], Picture | None], ...] = (
    shares_picture,
    rewards_picture,
    reward_picture,
    alarm_picture,
    probabilities_picture,
    probability_picture,
    sample_size_picture,
    delays_picture,
    versions_picture,
    widths_picture,
    calibration_picture,
)

TICKS = (
    (1e-3, "1 ms"),
    (1e-2, "10 ms"),
    (0.1, "0.1 s"),
    (1.0, "1 s"),
    (10.0, "10 s"),
    (60.0, "1 min"),
    (600.0, "10 min"),
    (3600.0, "1 h"),
    (36000.0, "10 h"),
    (86400.0, "1 d"),
    (864000.0, "10 d"),
    (8640000.0, "100 d"),
)


# Numbers and axes.


def _order(summary: "Summary") -> str:
    return "reward, in the order of the decisions" if summary.has_window else "reward, in the order known"


def _names(summary: "Summary") -> list[str]:
    return [*map(str, summary.actions), *(["others"] if summary.has_others else [])] or ["none"]


def _alarms(summary: "Summary") -> list[int]:
    """Return the numbers of rewards at which alarms came, in the last 256 windows."""
    rounds, ratios = summary.alarm.recent()
    return rounds[ratios >= 1.0].tolist()


def _times(summary: "Summary") -> str:
    """Return the first alarm and the last five as text."""
    first, *others = sorted({int(summary.alarm.first_at), *_alarms(summary)})
    shown = [f"{time:,}" for time in [first, *others[-5:]]]
    gap = " ... " if len(others) > 5 else ""
    return f"{shown[0]}{',' if others else ''}{gap} {', '.join(shown[1:])}".strip()


def _by_action(summary: "Summary") -> list[Any]:
    """Return counts, means and standard errors of the rewards of each action."""
    return [value.reshape(-1) for value in summary.rewards.compute()]  # torchmetrics squeezes those of one action


def _colours(summary: "Summary") -> list[str]:
    """Return a colour for each action, the same in all pictures."""
    return [*COLOURS[: len(summary.actions)], "0.75"]


def _means_and_errors(metric: Any) -> tuple[Any, Any, Any]:
    """Return rounds, means and standard errors of a value kept beside its square."""
    rounds, means = metric.means()
    counts = rounds.diff(prepend=rounds.new_zeros(1))
    mean, square = means.unbind(-1)
    error = ((square - mean.square()).clamp(min=0.0) / counts).sqrt()
    return rounds.numpy(), mean.numpy(), error.numpy()


def _legend(axes: Any, title: str) -> None:
    axes.legend(title=title, loc="center left", bbox_to_anchor=(1.0, 0.5), handlelength=1.0)


def _percent(axes: Any) -> None:
    from matplotlib.ticker import PercentFormatter

    axes.yaxis.set_major_formatter(PercentFormatter(1.0, 0))


def _thousands(axes: Any, which: str = "x") -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_locator(MaxNLocator(6, integer=True))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))


def _number(value: Any) -> str:
    number = float(value)
    return f"{number:,.0f}" if abs(number) >= 1000.0 else f"{number:.3g}"


def _finite(value: float) -> float:
    """Return a standard error, or 0 where there is none."""
    return value if math.isfinite(value) else 0.0


def _date(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):  # no date of the calendar
        return f"{seconds:g} s"


def _duration(seconds: float) -> str:
    """Return a duration in the unit that suits it."""
    size = abs(seconds)
    for limit, unit, name in ((1.0, 1e-3, "ms"), (120.0, 1.0, "s"), (7200.0, 60.0, "min"), (172800.0, 3600.0, "h")):
        if size < limit:
            return f"{seconds / unit:.3g} {name}"
    return f"{seconds / 86400.0:,.3g} d" if size < 86400000.0 else f"{seconds / 86400.0:,.0f} d"
