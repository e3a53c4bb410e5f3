"""Markdown tables of the benchmark."""

import math
import re
import statistics
from collections.abc import Container, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import data
from learners import GREEDY, KNOWN, LEARNERS, NEURAL, OURS_BY_DEFAULT, WITH_MAGNITUDES, Options, setting

if TYPE_CHECKING:
    from run import Benchmark

NOISE_TITLES = {"none": "without noise", "pareto": "with Pareto-1.5 noise"}
# An error that is 0 in all runs counts as this.
LEAST = 1e-3
TIMES = "Processor time"
Times = dict[str, dict[str, float]]


def cell(errors: Sequence[float]) -> str:
    """Return mean ± standard error, without the leading zero."""
    if not errors:
        return ""
    mean = f"{statistics.mean(errors):.3f}"
    if len(errors) > 1:
        mean += f" ± {statistics.stdev(errors) / math.sqrt(len(errors)):.3f}"
    return mean.replace("0.", ".")


def mean_ratio(ratios: Sequence[float]) -> str:
    """Return the geometric mean of ratios, and its standard error over the sets."""
    logs = [math.log(ratio) for ratio in ratios]
    mean = math.exp(statistics.mean(logs)) if logs else math.nan
    return f"{mean:.3f}" + (f" ± {mean * statistics.stdev(logs) / len(logs) ** 0.5:.3f}" if len(logs) > 1 else "")


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def rivals(benchmark: "Benchmark") -> list[str]:
    """Return the learners with a grid that are not torchonline's."""
    return [name for name in benchmark.learners if LEARNERS[name].grid and LEARNERS[name].package != "torchonline"]


def ours(benchmark: "Benchmark") -> str | None:
    return OURS_BY_DEFAULT if OURS_BY_DEFAULT in benchmark.learners else None


def best_linear(benchmark: "Benchmark", name: str, noise: str) -> tuple[str, float] | None:
    """Return the tuned linear rival with the least mean error on the test seeds, and that error."""
    linear = [learner for learner in rivals(benchmark) if LEARNERS[learner].is_linear_rival]
    means = {
        learner: statistics.mean(benchmark.errors(name, noise, learner, benchmark.tuned(name, noise, learner)))
        for learner in linear
    }
    return min(means.items(), key=lambda item: item[1]) if means else None


def ratio(benchmark: "Benchmark", name: str, noise: str, learner: str = OURS_BY_DEFAULT) -> float | None:
    """Return a learner's mean error, untuned, over that of the best tuned linear rival."""
    best = best_linear(benchmark, name, noise)
    if learner not in benchmark.learners or best is None:
        return None
    return statistics.mean(benchmark.errors(name, noise, learner, LEARNERS[learner].default)) / best[1]


def ratio_to_greedy(benchmark: "Benchmark", name: str, noise: str) -> str:
    """Return our mean error over that of the same estimators without exploration."""
    mine = ours(benchmark)
    if mine is None or GREEDY not in benchmark.learners:
        return ""
    mean, greedy = (
        statistics.mean(benchmark.errors(name, noise, learner, LEARNERS[learner].default)) for learner in (mine, GREEDY)
    )
    return f"{mean / greedy:.2f}"


def mean_and_worst(ratios: Sequence[float | None]) -> str:
    """Return the geometric mean and the largest of the ratios that are known."""
    known = [value for value in ratios if value]
    return f"{statistics.geometric_mean(known):.2f}, {max(known):.2f}" if known else ""


def against_tuned(benchmark: "Benchmark", noise: str) -> str:
    """Return the main table: torchonline by default against all rivals tuned."""
    names, mine = rivals(benchmark), ours(benchmark)
    header = ["set", f"{mine}, default", "ratio to best linear", "to Greedy", "ratio, scales known"]
    ratios = {
        learner: {name: ratio(benchmark, name, noise, learner) for name in benchmark.sets}
        for learner in (OURS_BY_DEFAULT, KNOWN)
    }
    rows = []
    for name in benchmark.sets:
        our_errors = benchmark.errors(name, noise, mine, LEARNERS[mine].default) if mine else []
        default, known = (f"{values[name]:.2f}" if values[name] else "" for values in ratios.values())
        tuned = [cell(benchmark.errors(name, noise, rival, benchmark.tuned(name, noise, rival))) for rival in names]
        rows.append([name, cell(our_errors), default, ratio_to_greedy(benchmark, name, noise), known, *tuned])
    for role in data.ROLES:
        sets = [name for name in benchmark.sets if data.SETS[name].role == role]
        if sets:
            default, known = (mean_and_worst([values[name] for name in sets]) for values in ratios.values())
            rows.append([f"{role}: mean, worst ratio", "", default, "", known, *[""] * len(names)])
    return markdown([*header, *(f"{name}, tuned" for name in names)], rows)


def in_short(benchmark: "Benchmark") -> str:
    """Return counts of sets, and errors of the default over those of rivals and variants."""
    columns = [short_column(benchmark, noise) for noise in data.NOISES]
    rows = [[name, *(column[name] for column in columns)] for name in columns[0]]
    return markdown(["", *(NOISE_TITLES[noise] for noise in data.NOISES)], rows)


def short_column(benchmark: "Benchmark", noise: str) -> dict[str, str]:
    """Return the cells of :func:`in_short` for a noise."""

    def means(learner: str, options: Options | None, features: str = "") -> list[float]:
        if learner not in benchmark.learners:
            return []
        return [statistics.mean(benchmark.errors(name, noise, learner, options, features)) for name in benchmark.sets]

    def tuned(learner: str) -> list[float]:
        return [
            statistics.mean(benchmark.errors(name, noise, learner, benchmark.tuned(name, noise, learner)))
            for name in benchmark.sets
        ]

    mine, every = means(OURS_BY_DEFAULT, {}), rivals(benchmark)
    linear = [name for name in every if LEARNERS[name].is_linear_rival]
    tuned_linear, tuned_all = [tuned(name) for name in linear], [tuned(name) for name in every]
    on_raw = [means(name, LEARNERS[name].default, "raw") for name in linear] if noise == "none" else []
    others = {
        "of the best tuned linear rival": least(tuned_linear),
        "of the best tuned rival": least(tuned_all),
        "of tuned LinUCB with magnitudes": tuned(WITH_MAGNITUDES) if WITH_MAGNITUDES in benchmark.learners else [],
        "of tuned neural-linear": tuned(NEURAL) if NEURAL in benchmark.learners else [],
        "without exploration": means(GREEDY, {}),
        "without magnitudes": means(OURS_BY_DEFAULT, {"magnitudes": False}),
        'of `rewards="real"`': means(OURS_BY_DEFAULT, {"kind": "real"}),
    }
    found = {
        "sets with a lower error than the best tuned linear rival, with at most 1.10 times its error, with more": counts(
            mine, tuned_linear
        ),
        "the same, if these rivals may have raw features at their defaults too": counts(mine, tuned_linear + on_raw)
        if on_raw
        else "",
        "the same, against all tuned rivals": counts(mine, tuned_all),
    }
    return found | {
        f"errors over those {name}: geometric mean, median, least, largest": over(mine, other)
        for name, other in others.items()
    }


def least(errors: Sequence[Sequence[float]]) -> list[float]:
    """Return the least error on each set."""
    return [min(of_set) for of_set in zip(*errors, strict=True)]


def counts(mine: Sequence[float], rivals_errors: Sequence[Sequence[float]]) -> str:
    """Return on how many sets we are below the best of the rivals, at most at 1.10 times, and above."""
    if not mine or not rivals_errors:
        return ""
    ratios = all_ratios(mine, least(rivals_errors))
    below, near = sum(value < 1.0 for value in ratios), sum(1.0 <= value <= 1.1 for value in ratios)
    return f"{below}, {near}, {len(ratios) - below - near} of {len(ratios)}"


def all_ratios(mine: Sequence[float], others: Sequence[float]) -> list[float]:
    """Return the ratio of errors on each set."""
    return [max(own, LEAST) / max(other, LEAST) for own, other in zip(mine, others, strict=True)]


def over(mine: Sequence[float], others: Sequence[float]) -> str:
    """Return the geometric mean, the median, the least and the largest of the ratios."""
    if not others or not mine:
        return ""
    ratios = all_ratios(mine, others)
    found = (statistics.geometric_mean(ratios), statistics.median(ratios), min(ratios), max(ratios))
    return ", ".join(f"{value:.2f}" for value in found)


def by_setting(benchmark: "Benchmark", noise: str, role: str) -> str:
    """Return errors of the default, shown and tuned settings of each learner."""
    sets = [name for name in benchmark.sets if data.SETS[name].role == role]
    rows = []
    for learner in benchmark.learners:
        entry = LEARNERS[learner]
        for options in (entry.default, *entry.shown):
            label = "default" if options == entry.default else setting(options)
            label += f" ({setting(options)})" if options == entry.default and learner == "VW" else ""
            errors = [cell(benchmark.errors(name, noise, learner, options)) for name in sets]
            rows.append([f"{learner}: {label}", *errors])
        if entry.grid:
            tuned = [
                cell(benchmark.errors(name, noise, learner, benchmark.tuned(name, noise, learner))) for name in sets
            ]
            rows.append([f"{learner}: tuned", *tuned])
    return markdown(["learner: setting", *sets], [row for row in rows if any(row[1:])])


def raw_features(benchmark: "Benchmark", role: str) -> str:
    """Return errors of the defaults on raw features, and in brackets on standardised ones."""
    sets = [name for name in benchmark.sets if data.SETS[name].role == role]
    rows = []
    for learner in benchmark.learners:
        entry = LEARNERS[learner]
        if entry.by_theory or entry.standard_only:
            continue
        row = [f"{learner}: default"]
        for name in sets:
            raw, standard = (
                benchmark.errors(name, "none", learner, entry.default, features) for features in ("raw", "standard")
            )
            row.append(f"{cell(raw)} ({cell(standard).split()[0]})")
        rows.append(row)
    return markdown(["learner", *sets], rows)


def choices(benchmark: "Benchmark") -> str:
    """Return the setting that tuning chose for each set and noise."""
    names = [name for name in benchmark.learners if LEARNERS[name].grid]
    rows = []
    for name in benchmark.sets:
        for noise in data.NOISES:
            tuned = [benchmark.tuned(name, noise, learner) for learner in names]
            rows.append([name, noise, *(setting(options) if options else "" for options in tuned)])
    return markdown(["set", "noise", *names], rows)


def processor_times(times: Times) -> str:
    """Return processor times of a round at default settings, as ratios to VW, or to the first learner without it."""
    learners = list(next(iter(times.values())))
    unit = "VW" if "VW" in learners else learners[0]
    rows = [[learner, *(f"{times[name][learner] / times[name][unit]:.1f}" for name in times)] for learner in learners]
    micros = [f"{1e6 * times[name][unit]:.0f} us" for name in times]
    sizes = [f"{name}, {data.table(name).features.shape[1]} x {data.table(name).actions}" for name in times]
    return markdown([f"a round, in rounds of {unit}", *sizes], [*rows, [f"a round of {unit}", *micros]])


def described(benchmark: "Benchmark") -> str:
    """Return a table of the sets."""
    header = ["set", "used as", "package", "rows", "features", "arms", "error of the best single arm", "rounds"]
    return markdown(header, []) + "".join(data.describe(name, benchmark.rounds) + "\n" for name in benchmark.sets)


def all_tables(benchmark: "Benchmark", times: Times) -> dict[str, str]:
    """Return all tables by their titles: that of the sets if they are installed, and that of times if there are any."""
    used = {data.SETS[name].role for name in benchmark.sets}
    roles = [role for role in data.ROLES if role in used]
    is_installed = all(data.SETS[name].is_installed() for name in benchmark.sets)
    found = {"Sets": described(benchmark)} if is_installed else {}
    found["In short"] = in_short(benchmark)
    for noise in data.NOISES:
        found[f"Errors {NOISE_TITLES[noise]}: default against tuned"] = against_tuned(benchmark, noise)
    for noise in data.NOISES:
        found |= {f"All settings {NOISE_TITLES[noise]}: {role}": by_setting(benchmark, noise, role) for role in roles}
    found |= {f"Raw features, without noise: {role}": raw_features(benchmark, role) for role in roles}
    found["What tuning chose"] = choices(benchmark)
    if times:
        found[TIMES] = processor_times(times)
    return found


MARK = "<!-- printed by examples/benchmarks/run.py -->\n"


def publish(
    found: dict[str, str], file: Path, page: Path | None = None, mark: str = MARK, others: Container[str] = ()
) -> None:
    """Print tables, keep them in a file, and renew those of a page, as :func:`renewed` does."""
    file.parent.mkdir(parents=True, exist_ok=True)
    text = as_page(found, mark)
    file.write_text(text)
    print(text)
    if page:
        page.write_text(renewed(page.read_text(), found, mark, others))


def as_page(found: dict[str, str], mark: str = MARK) -> str:
    return "\n".join(f"## {title}\n\n{mark}{table}" for title, table in found.items())


def renewed(page: str, found: dict[str, str], mark: str = MARK, others: Container[str] = ()) -> str:
    """Return a page with the tables renewed that stand under headings of the same titles. Other tables are not added.

    ``others`` are titles of tables that stay, because this run did not make them. A KeyError is raised if a mark of the script
    stands under any other heading, has other options or is the second one under its heading, and if there is none.
    """

    def text(match: re.Match[str]) -> str:
        title = match[2]
        if title not in found and title not in others:
            raise KeyError(f"expected a heading among {list(found)} above the mark, got {title}")
        return match[1] + found[title] if title in found else match[0]

    pattern = rf"(^#+ (.+)\n(?:(?!#).*\n)*?{re.escape(mark)})(?:\|.*\n)*"
    new, count = re.subn(pattern, text, page, flags=re.MULTILINE)
    marks = page.count(mark.removesuffix(" -->\n"))
    if count != marks or not marks:
        raise KeyError(
            f"expected the mark {mark.strip()} under headings of their own, got {count} of {marks} such marks"
        )
    return new
