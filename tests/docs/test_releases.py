"""Versions, floors, classifiers, workflows and the recipe agree with each other, and builds are the same bytes."""

import importlib.util
import io
import json
import re
import tarfile
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from torchonline.core import citations

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
MATRIX = ROOT / "tests" / "matrix.py"
YAML = [*(ROOT / ".github").rglob("*.yml"), ROOT / "CITATION.cff"]


def script(path: Path) -> ModuleType:
    """Import a script that lies in no package."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def matrix() -> ModuleType:
    return script(MATRIX)


def numbers(version: str) -> tuple[int, ...]:
    """Return a version as numbers, without trailing zeros."""
    return tuple(int(part) for part in re.sub(r"(\.0)+$", "", version).split("."))


def floors(requirements: list[str]) -> dict[str, tuple[int, ...]]:
    """Return the least versions that requirements name."""
    found = (re.fullmatch(r"([\w-]+) ?(?:>=|==)([\d.]+)", requirement) for requirement in requirements)
    return {match[1]: numbers(match[2]) for match in found if match}


def test_versions_agree() -> None:
    """The last version of the changelog, the fallback of builds without tags, CITATION.cff and the recipe."""
    last = re.findall(r"^## (\d+\.\d+\.\d+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[0]
    assert PROJECT["tool"]["setuptools_scm"]["fallback_version"] == last
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == last
    assert f'set version = "{last}"' in (ROOT / "releases" / "conda" / "meta.yaml").read_text()


def test_floors_are_tried(matrix: ModuleType) -> None:
    wanted = floors(PROJECT["project"]["dependencies"])
    tried = floors([*matrix.FLOORS, "torch==" + next(iter(matrix.PAIRS)).partition("-")[2]])
    assert wanted == tried
    recipe = (ROOT / "releases" / "conda" / "meta.yaml").read_text()
    recipe = re.sub(r"\{%.*?%\}", "", re.sub(r"\{\{.*?\}\}", "0", recipe))
    run = [name.replace("pytorch >", "torch >") for name in yaml.safe_load(recipe)["requirements"]["run"]]
    assert floors([name for name in run if not name.startswith("python ")]) == wanted


def test_pairs_cover_versions(matrix: ModuleType) -> None:
    pairs = [pair.split("-") for pair in matrix.PAIRS]
    minors = {".".join(torch.split(".")[:2]) for _, torch in pairs}
    assert minors == {f"2.{minor}" for minor in range(10, 14)}
    assert {python for python, torch in pairs if torch.startswith("2.13.")} == {"3.11", "3.12", "3.13", "3.14"}


def test_the_page_shows_the_outcomes(matrix: ModuleType) -> None:
    results = matrix.read()
    assert matrix.PAGE.read_text() == matrix.page(matrix.PAGE.read_text(), results)
    for pair, found in results.items():
        assert found["failed"] == [], pair
        assert all(argument in matrix.PAGE.read_text() for argument in found["only"])
        assert found["versions"]["torch"].partition("+")[0] == pair.partition("-")[2]
        assert found["versions"]["python"].startswith(pair.partition("-")[0])


def test_classifiers_are_what_passed(matrix: ModuleType) -> None:
    """Each Python has passed the whole quick tier; the page says so if the least versions have not."""
    whole = {pair for pair, found in matrix.read().items() if not found["only"]}
    least = next(iter(matrix.PAIRS))
    says_untried = (
        f"`{least}`, the least versions of all dependencies at once, has not been run" in matrix.PAGE.read_text()
    )
    assert says_untried == (least not in whole)
    # The whole suite runs on Python 3.11 in each change.
    passed = {pair.partition("-")[0] for pair in whole} | {"3.11"}
    named = {name.rpartition(" ")[2] for name in PROJECT["project"]["classifiers"] if re.search(r":: 3\.\d+$", name)}
    assert named == passed
    assert PROJECT["project"]["requires-python"] == f">={min(passed, key=numbers)}"


def test_an_outcome_is_added_to_the_page(matrix: ModuleType) -> None:
    versions = {
        "torch": "2.9.1",
        "python": "3.14.1",
        "numpy": "2.4.0",
        "pytorch-lightning": "2.6",
        "torchmetrics": "1.8",
    }
    found = {
        "versions": versions,
        "platform": "Linux x86_64",
        "passed": 9,
        "failed": ["a"],
        "skipped": 1,
        "only": ["tests/x", "-k", "y"],
    }
    text = matrix.page(f"# A\n\n{matrix.MARK}| old |\n\nAfter.\n", {"3.14-2.9.1": found})
    assert text.startswith(f"# A\n\n{matrix.MARK}| torch | Python |")
    assert "| 2.9.1 | 3.14.1 | 2.4.0 | 2.6 | 1.8 | Linux x86_64 | 9 | 1 | 1 | part |" in text
    assert text.endswith("\n\nAfter.\n")
    assert "old" not in text
    assert matrix.page(f"# A\n\n{matrix.MARK}\nAfter.\n", {}).endswith("|\n\nAfter.\n")


@pytest.mark.parametrize("path", YAML, ids=lambda path: path.name)
def test_yaml_is_read(path: Path) -> None:
    found = yaml.safe_load(path.read_text())
    assert found
    for job in found.get("jobs", {}).values():
        assert job["runs-on"]
        assert all(set(step) & {"uses", "run"} for step in job["steps"])


def test_actions_are_pinned_by_hash() -> None:
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        for line in re.findall(r"^.*\buses:.*$", path.read_text(), re.MULTILINE):
            assert re.search(r"uses: [\w./-]+@[0-9a-f]{40} # v\d+(\.\d+)*$", line), f"{path.name}: {line}"


def test_dependencies_are_audited_each_month() -> None:
    text = (ROOT / ".github" / "workflows" / "audit.yml").read_text()
    assert re.search(r'cron: "\d+ \d+ 1 \* \*"', text)
    assert "pip-audit" in text


def test_workflows_run_what_the_makefile_has() -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    pages = (ROOT / "docs" / name for name in ("releases.md", "versions.md"))
    asked = {name for path in pages for name in re.findall(r"make (\w+)", path.read_text())}
    assert asked - targets <= {"docs"}
    said = "".join(path.read_text() for path in (ROOT / ".github" / "workflows").glob("*.yml"))
    assert {name for name in re.findall(r"\S+\.py\b", said) if not (ROOT / name).is_file()} == set()
    assert "bash .ci/run" in said


def test_workflows_install_and_test_what_the_makefile_does(matrix: ModuleType) -> None:
    """One list of packages, an extra of pyproject.toml; one torch; the build tool of releases; one command for the quick tier."""
    makefile = (ROOT / "Makefile").read_text()
    paths = (ROOT / ".github" / "workflows").glob("*.yml")
    jobs = [job for path in paths for job in yaml.safe_load(path.read_text())["jobs"].values()]
    commands = [step["run"] for job in jobs for step in job["steps"] if "run" in step]
    torch = re.search(r"^TORCH \?= (\S+)$", makefile, re.MULTILINE)
    assert torch
    known = {torch[1], ".[test]", "build", "releases/constraints.txt"}
    for command in commands:
        for words in re.findall(r"pip install (.*)", command):
            packages = {word.strip('"') for word in words.split() if not word.startswith("--")}
            assert packages <= known, command
    (quick,) = [command for command in commands if "-m pytest" in command]
    (fast,) = re.findall(r"^test-fast:.*\n\t.*-m pytest (.*) \$\(PYTEST_ARGS\)", makefile, re.MULTILINE)
    assert quick == f"python -m pytest {fast}"
    assert 'f"{ROOT}[test]"' in MATRIX.read_text()
    assert set(re.findall(r"^(?:env \$\w+ )?make ([\w-]+)", (ROOT / ".ci" / "run").read_text(), re.MULTILINE)) == {
        "lint",
        "wheel",
        "docs",
        "test",
        "test-rest",
    }


def test_citation_names_the_four_papers() -> None:
    found = yaml.safe_load((ROOT / "CITATION.cff").read_text())["references"]
    papers = [dict(re.findall(r"  (\w+) = \{(.+)\},\n", entry)) for entry in citations.entries().values()]
    known = {paper["title"]: paper for paper in papers}
    assert len(found) == 4
    for entry in found:
        paper = known[f"{{{entry['title']}}}"]
        assert paper["year"] == str(entry["year"])
        assert entry["identifiers"][0]["value"] == f"arXiv:{paper['eprint']}"
        assert paper["author"] == " and ".join(f"{a['family-names']}, {a['given-names']}" for a in entry["authors"])
        assert entry.get("collection-title", "") == paper.get("booktitle", "")


def packed(order: list[int], time: int, user: str) -> bytes:
    """Return a .tar.gz of three files in some order, as a build of some user leaves it."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as file:
        for number in order:
            member: Any = tarfile.TarInfo(f"package/{number}.txt")
            member.size, member.mtime, member.uname, member.mode = 3, time + number, user, 0o600 + 0o100 * (number == 2)
            file.addfile(member, io.BytesIO(b"abc"))
    return buffer.getvalue()


def test_sdists_are_normalized() -> None:
    build = script(ROOT / "releases" / "build.py")
    one = build.normalized(packed([0, 1, 2], 1000, "ada"), 500)
    assert one == build.normalized(packed([2, 0, 1], 2000, "eve"), 500)
    assert one != build.normalized(packed([0, 1, 2], 1000, "ada"), 501)
    with tarfile.open(fileobj=io.BytesIO(one)) as file:
        assert [(m.name, m.mtime, m.uname, m.mode) for m in file] == [
            ("package/0.txt", 500, "", 0o644),
            ("package/1.txt", 500, "", 0o644),
            ("package/2.txt", 500, "", 0o755),
        ]


def test_the_recipe_is_filled_in() -> None:
    template = (ROOT / "releases" / "conda" / "meta.yaml").read_text()
    filled = script(ROOT / "releases" / "build.py").recipe(template, "0.3.0", "ab" * 32)
    assert '{% set version = "0.3.0" %}' in filled
    assert f"  sha256: {'ab' * 32}\n" in filled
    assert filled.startswith("{% set name")


def test_outcomes_are_sorted(matrix: ModuleType) -> None:
    assert sorted(["3.13-2.10.0", "3.12-2.9.1", "3.11-2.10.0"], key=matrix.order) == [
        "3.12-2.9.1",
        "3.11-2.10.0",
        "3.13-2.10.0",
    ]
    assert json.loads(matrix.RESULTS.read_text()) == matrix.read()
