"""The pages of the papers say what the saved results say, and the experiments go on where they stopped."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.docs.script_modules import EXAMPLES, script_modules

PAPERS = EXAMPLES / "papers"
PAGES = sorted((EXAMPLES.parent / "docs").glob("*.md"))
SAVED = sorted(path.stem for path in (PAPERS / "results").glob("*.json"))


def printed(script: str) -> list[tuple[str, str]]:
    """Return the page and the text of each table or list that a page says a script has printed."""
    found = []
    for page in PAGES:
        pattern = rf"^<!-- printed by examples/papers/{script}\.py -->\n(.*?)(?:\n\n|\Z)"
        texts = re.findall(pattern, page.read_text(), re.DOTALL | re.MULTILINE)
        found += [(page.name, text.strip()) for text in texts]
    return found


@pytest.mark.parametrize("script", SAVED)
def test_pages_say_what_was_saved(script: str) -> None:
    """Each table of a page is one that its script makes of the saved results."""
    with script_modules("papers", script) as modules:
        experiment = vars(modules)[script].EXPERIMENT
        made = {text.strip() for text in experiment.tables(experiment.saved()).values()}
    on_pages = printed(script)
    assert on_pages, f"no page shows a table of {script}"
    for page, text in on_pages:
        assert text in made, f"{page} has a table that {script} does not make of its results:\n{text}"


@pytest.mark.parametrize("script", SAVED)
def test_saved_results_are_of_a_full_run(script: str) -> None:
    """The saved jobs are those that the script names now, with the same options."""
    with script_modules("papers", "experiment", script) as modules:
        jobs = vars(modules)[script].EXPERIMENT.jobs(False)
        wanted = {name: json.loads(json.dumps(modules.experiment.rounded(job.options))) for name, job in jobs.items()}
        saved = modules.experiment.load(script)
    assert {name: run["options"] for name, run in saved["runs"].items()} == wanted
    assert saved["script"] == f"examples/papers/{script}.py"
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
    assert "| jobs |\n| --- |\n| 2 |" in capsys.readouterr().out
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
