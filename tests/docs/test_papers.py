"""The pages of the papers say what the saved results say, and the experiments go on where they stopped."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from docs.site_parts import results
from tests.docs.script_modules import EXAMPLES, script_modules
from tests.docs.test_docs import broken_links

PAPERS = EXAMPLES / "papers"
PAGES = sorted((EXAMPLES.parent / "docs").glob("*.md"))
SAVED = sorted(path.stem for path in (PAPERS / "results").glob("*.json"))
CLAIMS = ("claims_glb_omd", "claims_hvt_ucb", "claims_oons", "claims_private_oco")


@pytest.fixture(scope="module")
def pages() -> Iterator[SimpleNamespace]:
    with script_modules("papers", "pages") as modules:
        yield modules.pages


def test_tables_of_a_page_are_those_of_the_saved_results(pages: SimpleNamespace) -> None:
    """A page is compared by itself, so that a failure shows where it differs."""
    differ = [page for page in PAGES if page.read_text() != pages.filled(page.read_text())]
    for page in differ:
        assert page.read_text() == pages.filled(page.read_text()), f"pages that differ: {[p.stem for p in differ]}"


@pytest.fixture(scope="module")
def site(pages: SimpleNamespace, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the pages of docs as they are, and with docs/results as a build of the site writes them."""
    root = tmp_path_factory.mktemp("site")
    (root / "docs").mkdir()
    for path in EXAMPLES.parent.iterdir():
        if path.name != "docs" and not path.name.startswith("."):
            (root / path.name).symlink_to(path)
    for path in EXAMPLES.parent.joinpath("docs").iterdir():
        if path.name != "results":
            (root / "docs" / path.name).symlink_to(path)
    results.update(root / "docs" / "results", pages.result_pages())
    return root


def unlinked(text: str) -> str:
    """Return a text with the words of its links alone: a link has another target where the page is another."""
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)


@pytest.mark.parametrize("script", [*SAVED, *CLAIMS, "claims"])
def test_the_site_has_every_table_of_the_saved_results(script: str, pages: SimpleNamespace, site: Path) -> None:
    page, made = (site / "docs" / "results" / f"{script}.md").read_text(), pages.tables_of(script)
    assert made
    about, proofs = pages.docstring(script)
    assert page.startswith(f"# `{script}.py`\n\n{about}\n\n")
    assert re.findall("^## (.+)$", page, re.MULTILINE) == list(made) + ["Proofs"] * bool(proofs)
    assert page.endswith(f"\n\n## Proofs\n\n{proofs}\n") is bool(proofs)
    for title, text in made.items():
        assert f"\n\n## {title}\n\n{unlinked(text)}\n" in unlinked(page)
    assert f"python examples/papers {script} --tables" in page
    assert script not in SAVED or f"python examples/papers/{script}.py" in page
    (contents,) = re.findall(
        r"```\{toctree\}\n(.*?)```", (site / "docs" / "results" / "index.md").read_text(), re.DOTALL
    )
    assert script in contents.splitlines()


def test_a_docstring_becomes_markdown(pages: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Formulas, names of scripts and links hold on a page of the results."""
    text = r'''r"""Regret :math:`\|u\|`, as of ``hvt_box.py`` with ``x=1``: docs/oons.md.

    python some.py

## Proofs

By [the lemma](ridge.md#lemma):

```text
a  =  b
```
"""
'''
    (tmp_path / "some.py").write_text(text)
    monkeypatch.setattr(pages, "FOLDER", tmp_path)
    about, proofs = pages.docstring("some")
    first = r"Regret {math}`\|u\|`, as of [`hvt_box.py`](hvt_box.md) with `x=1`: [docs/oons.md](../oons.md)."
    assert about == f"{first}\n\n    python some.py"
    assert proofs == "By [the lemma](../ridge.md#lemma):\n\n```text\na  =  b\n```"
    assert pages.first_line("some") == first


def test_a_table_missing_on_the_site_is_found(pages: SimpleNamespace, site: Path) -> None:
    """Pages of scripts that are gone are removed, and a page that has lost a row is written again."""
    folder = site / "docs" / "results"
    page = folder / "hvt_box.md"
    before = page.read_text()
    page.write_text(before[:-20])
    (folder / "gone.md").write_text("# Gone\n")
    results.update(folder, pages.result_pages())
    assert page.read_text() == before
    assert not (folder / "gone.md").exists()


def test_links_from_the_pages_of_results_hold(site: Path) -> None:
    written = sorted((site / "docs" / "results").glob("*.md"))
    found = {path.name: broken_links(path) for path in written}
    assert {name: broken for name, broken in found.items() if broken} == {}


def test_tables_are_printed_without_a_run() -> None:
    command = [sys.executable, str(PAPERS), "hvt_box", "--tables"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env=os.environ | {"OMP_NUM_THREADS": "1"}
    )
    assert done.stdout.startswith("Student-t 2.1 noise: regret, mean ± standard error\n\n| ")
    assert "\n\nGaussian noise: regret, mean ± standard error\n\n| " in done.stdout
    for names, expected in ((["none"], "some of claims, "), ([], "--all or some of claims, ")):
        done = subprocess.run([*command[:2], *names, "--tables"], capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert f"--tables: expected {expected}" in done.stderr


def test_claims_have_no_empty_cell(pages: SimpleNamespace) -> None:
    assert sorted(path.stem for path in PAPERS.glob("claims_*.py")) == sorted(CLAIMS)
    for script in CLAIMS:
        for line in pages.tables_of(script)["Every claim"].splitlines():
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
    texts = {name: (EXAMPLES.parent / "docs" / f"{name}.md").read_text() for name in names}
    texts |= {script: pages.tables_of(script)["Every claim"] for script in CLAIMS}
    for name, text in texts.items():
        assert not re.search(r"not tried|not known to us|want of time|do not know which", text), name


def test_a_page_is_filled_up_to_the_next_empty_line(pages: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = "| new |\n|---|\n| 1 |"
    monkeypatch.setattr(pages, "tables_of", lambda script: {"One: two": whole, "Last": "- new"})
    mark = "<!-- printed by examples/papers/some.py as {} -->"
    page = f"Before\n\n{mark.format('One: two')}\nold\n\nBetween\n\n{mark.format('Last')}\n- old\n- older\n"
    assert pages.filled(page) == page.replace("- old\n- older", "- new").replace("\nold\n", f"\n{whole}\n")
    assert pages.filled(pages.filled(page)) == pages.filled(page)
    with pytest.raises(KeyError, match="Lost"):
        pages.filled(mark.format("Lost") + "\n- old\n")


def test_a_page_may_leave_out_rows_and_columns(pages: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every cell that is left is compared: another number is filled, another label is an error."""
    made = "| d | form | T = 1 | T = 2 |\n|---|---|---|---|\n| 2 | a | 1 | 2 |\n| 2 | b | 3 |  |\n| 8 | a | 5 | 6 |"
    monkeypatch.setattr(pages, "tables_of", lambda script: {"All": made})
    mark = "<!-- printed by examples/papers/some.py as All -->\n"
    part = "| d | form | T = 2 |\n|---|---|---|\n| 2 | b |  |\n| 8 | a | 6 |"
    assert pages.filled(mark + part) == mark + part
    assert pages.filled(mark + part.replace("6", "7").replace("b |  ", "b | 4 ")) == mark + part
    for wrong in (
        part.replace("T = 2", "T = 3"),
        part.replace("| 2 | b |  |", "| 2 | c |  |"),
        "| form | d |\n|---|---|\n| b | 2 |",
        "| d | form | T = 2 |\n|---|---|---|\n| 8 | a | 6 |\n| 2 | b |  |",
    ):
        with pytest.raises(KeyError, match="in their order"):
            pages.filled(mark + wrong)


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
