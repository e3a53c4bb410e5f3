"""The pages of the papers say what the saved results say, and the experiments go on where they stopped."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.docs.script_modules import EXAMPLES, script_modules

PAPERS = EXAMPLES / "papers"
PAGES = sorted((EXAMPLES.parent / "docs").glob("*.md"))
SAVED = sorted(path.stem for path in (PAPERS / "results").glob("*.json"))


@pytest.fixture(scope="module")
def pages() -> Iterator[SimpleNamespace]:
    with script_modules("papers", "pages") as modules:
        yield modules.pages


def test_tables_of_a_page_are_those_of_the_saved_results(pages: SimpleNamespace) -> None:
    """A page is compared by itself, so that a failure shows where it differs."""
    differ = [page for page in PAGES if page.read_text() != pages.filled(page.read_text())]
    for page in differ:
        assert page.read_text() == pages.filled(page.read_text()), f"pages that differ: {[p.stem for p in differ]}"


def test_all_saved_results_are_on_a_page(pages: SimpleNamespace) -> None:
    shown = {script for page in PAGES for script, _, _ in pages.places(page.read_text())}
    assert set(SAVED) <= shown


def test_claims_have_no_empty_cell(pages: SimpleNamespace) -> None:
    found = [place for page in PAGES for place in pages.places(page.read_text()) if place[1] == "Every claim"]
    assert found
    for script, _, text in found:
        for line in text.splitlines():
            cells = [cell.strip() for cell in line.strip("|").split(" | ")]
            assert len(cells) == 7 or set(line) <= set("|-"), f"{script}: {line}"
            assert all(cells), f"{script}: {line}"


def test_no_claim_is_left_open(pages: SimpleNamespace) -> None:
    """Every claim has a verdict of the list, and no page says that something was not tried or is not known."""
    counts = pages.tables_of("claims")["Claims by verdict"].splitlines()[2:]
    *papers, total = [[int(cell) for cell in line.strip("|").split("|")[1:]] for line in counts]
    assert [sum(column) for column in zip(*papers, strict=True)] == total
    with script_modules("papers", "claim") as modules:
        row = modules.claim.Claim("Theorem 1", "says", "here", "unknown: why", "none", "none")
    with pytest.raises(ValueError, match="Theorem 1: expected a cell that begins with one of"):
        _ = row.verdict
    names = ("papers", "hvt_ucb", "glb_omd", "oons", "private_oco", "private_oco_theory", "generalized_linear_theory")
    for name in names:
        text = (EXAMPLES.parent / "docs" / f"{name}.md").read_text()
        assert not re.search(r"not tried|not known to us|want of time|do not know which", text), name


def test_a_page_is_filled_up_to_the_next_empty_line(pages: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "tables_of", lambda script: {"One: two": "| new |", "Last": "- new"})
    mark = "<!-- printed by examples/papers/some.py as {} -->"
    page = f"Before\n\n{mark.format('One: two')}\n| old |\n| older |\n\nBetween\n\n{mark.format('Last')}\n- old\n"
    assert pages.filled(page) == page.replace("| old |\n| older |", "| new |").replace("- old", "- new")
    with pytest.raises(KeyError, match="Lost"):
        pages.filled(mark.format("Lost") + "\n- old\n")


@pytest.mark.parametrize("script", SAVED)
def test_saved_results_are_of_a_full_run(script: str) -> None:
    """The saved jobs are those that the script names now, with the same options."""
    with script_modules("papers", "experiment", script) as modules:
        jobs = vars(modules)[script].EXPERIMENT.jobs(False)
        wanted = {name: json.loads(json.dumps(modules.experiment.rounded(job.options))) for name, job in jobs.items()}
        saved, seeds = modules.experiment.load(script), vars(modules)[script].EXPERIMENT.seeds
    assert {name: run["options"] for name, run in saved["runs"].items()} == wanted
    assert saved["script"] == f"examples/papers/{script}.py"
    assert saved["seeds"] == seeds
    assert seeds != "those of the options" or all("seed" in options for options in wanted.values())
    assert {"python", "torch", "numpy", "torchonline"} <= set(saved["versions"])


@pytest.fixture
def experiment() -> Iterator[SimpleNamespace]:
    with script_modules("papers", "experiment") as modules:
        yield modules.experiment


def count(log: str, name: str) -> dict[str, float]:
    """Play a job that leaves a line behind."""
    with Path(log).open("a") as file:
        file.write(f"{name}\n")
    if name == "fails":
        raise RuntimeError("no luck")
    return {"third": 1.0 / 3.0}


def counting(experiment: SimpleNamespace, log: Path, *names: str) -> "SimpleNamespace":
    jobs = {name: experiment.Job(count, {"log": str(log), "name": name}) for name in names}
    return experiment.Experiment(
        "counting.py", lambda quick: jobs, lambda results: {"Counts": experiment.table(["jobs"], [[len(results)]])}
    )


def test_a_run_goes_on_where_it_stopped(
    experiment: SimpleNamespace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log, arguments = tmp_path / "log", ["--output", str(tmp_path)]
    with pytest.raises(RuntimeError, match="no luck"):
        counting(experiment, log, "a", "fails", "b").main(None, arguments)
    counting(experiment, log, "a", "b").main(None, arguments)
    assert log.read_text().split() == ["a", "fails", "b"]
    assert "| jobs |\n|---|\n| 2 |" in capsys.readouterr().out
    written = json.loads((tmp_path / "counting.json").read_text())
    assert {name: run["result"] for name, run in written["runs"].items()} == {
        name: {"third": 0.3333333} for name in "ab"
    }


def test_other_options_are_another_job(experiment: SimpleNamespace, tmp_path: Path) -> None:
    log = tmp_path / "log"
    for name in ("a", "b", "b"):
        experiment.kept("one", experiment.Job(count, {"log": str(log), "name": name}), tmp_path)
    assert log.read_text().split() == ["a", "b"]


def test_bad_arguments_are_refused(experiment: SimpleNamespace, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["--workers", "0"], ["--save", "--quick"]):
        with pytest.raises(SystemExit):
            counting(experiment, Path("log"), "a").main(None, arguments)
    said = capsys.readouterr().err
    assert "--workers: expected at least 1, got 0" in said
    assert "--save: expected a full run, got --quick" in said


def test_saving_replaces_the_figures_that_docs_show(
    experiment: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    output, docs, results = (tmp_path / name for name in ("output", "docs", "results"))
    for folder in (output, docs, results):
        folder.mkdir()
    (docs / "shown.png").write_text("old")
    monkeypatch.setattr(experiment, "DOCS", docs)
    monkeypatch.setattr(experiment, "RESULTS", results)

    def figures(found: Any, folder: Path) -> list[Path]:
        paths = [folder / "shown.png", folder / "other.png"]
        for path in paths:
            path.write_text("new")
        return paths

    jobs = {"a": experiment.Job(count, {"log": str(tmp_path / "log"), "name": "a"})}
    run = experiment.Experiment("counting.py", lambda quick: jobs, lambda found: {}, figures)
    run.main(None, ["--output", str(output)])
    assert (docs / "shown.png").read_text() == "old"
    run.main(None, ["--output", str(output), "--save"])
    assert (docs / "shown.png").read_text() == "new"
    assert not (docs / "other.png").exists()
    assert f"Written: {docs / 'shown.png'}" in capsys.readouterr().out.replace("\n", "")
