"""The site's reference lists every public name, once; the pages of the site are all within reach."""

import ast
import re
import runpy
from collections import Counter
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
REFERENCE = sorted(path for path in (ROOT / "docs" / "reference").glob("*.rst") if path.stem != "index")
PAGES = sorted(path for path in (ROOT / "docs").glob("*.md"))
PUBLIC = (
    "torchonline",
    *(
        f"torchonline.{name}"
        for name in ("baselines", "callbacks", "datasets", "distributed", "environments", "export")
    ),
    *(f"torchonline.{name}" for name in ("feedback", "metrics", "models", "off_policy", "privacy", "serving")),
)


def listed() -> Counter[str]:
    """Return the full names in the lists of the reference, with how often each is there."""
    names: Counter[str] = Counter()
    for path in REFERENCE:
        module = ""
        for line in path.read_text().splitlines():
            if line.startswith(".. currentmodule:: "):
                module = line.split()[-1]
            elif match := re.fullmatch(r"   (\w+)", line):
                names[f"{module}.{match[1]}"] += 1
    return names


@pytest.mark.parametrize("module", PUBLIC)
def test_every_public_name_is_in_the_reference(module: str) -> None:
    names = listed()
    missing = [name for name in import_module(module).__all__ if f"{module}.{name}" not in names]
    # HEALTH_PLANS is a value, which the function that returns it describes.
    assert [name for name in missing if name != "HEALTH_PLANS"] == []


def test_the_reference_lists_names_that_exist_once() -> None:
    names = listed()
    assert [name for name, count in names.items() if count > 1] == []
    for name in names:
        module, _, last = name.rpartition(".")
        assert hasattr(import_module(module), last), name


def test_every_page_is_in_one_contents() -> None:
    entries: Counter[str] = Counter()
    for page in PAGES:
        for block in re.findall(r"```\{toctree\}\n(.*?)```", page.read_text(), re.DOTALL):
            lines = [line for line in block.splitlines() if line and not line.startswith(":")]
            entries.update(re.sub(r".*<(.*)>", r"\1", line) for line in lines)
    pages = {page.stem for page in PAGES} - {"index"}
    assert pages <= set(entries)
    assert {entry: count for entry, count in entries.items() if count > 1} == {}


def test_the_gallery_has_an_order() -> None:
    tree = ast.parse((ROOT / "docs" / "site_parts" / "gallery.py").read_text())
    order = next(ast.literal_eval(node.value) for node in tree.body if isinstance(node, ast.Assign))
    assert sorted(order) == sorted(path.stem for path in (ROOT / "examples" / "gallery").glob("*.py"))


@pytest.mark.parametrize("folder", ["torchonline", "models", "callbacks"])
def test_formulas_of_one_line_are_not_aligned(folder: str) -> None:
    """Sphinx opens an alignment only where a formula has several lines; elsewhere a browser shows an error for ``&``."""
    bad = []
    for path in sorted((ROOT / folder).rglob("*.py")):
        for formula in re.findall(r"^( *)\.\. math:: (.*(?:\n\1 +.*)*)", path.read_text(), re.MULTILINE):
            text = re.sub(r"\\begin\{.*?\\end\{\w+\}", "", formula[1], flags=re.DOTALL)
            if "&" in text and "\\\\" not in text:
                bad.append(f"{path.name}: {text}")
    assert bad == []


def test_the_decision_diagram_says_what_the_list_says() -> None:
    drawn = runpy.run_path(str(ROOT / "docs" / "site_parts" / "decision.py"))["drawn"]
    picture = drawn((ROOT / "docs" / "choose.md").read_text())
    assert picture == (ROOT / "docs" / "choose.svg").read_text(), "run python docs/site_parts/decision.py"
    assert picture.count('class="arrow"') == 11  # six answers, and five noes


def test_links_to_scripts_of_papers_lead_to_their_results(monkeypatch: pytest.MonkeyPatch) -> None:
    """GitHub has the scripts, and the site a page for each that has results."""
    links = runpy.run_path(str(ROOT / "docs" / "site_parts" / "links.py"))
    text = "[a](../examples/papers/glb_omd.py) [b](../examples/papers/experiment.py) [c](../examples/papers/results)"
    made = ("glb_omd", "index")
    monkeypatch.setattr(Path, "exists", lambda path: path.stem in made)
    expected = "[a](results/glb_omd.md) [b](../examples/papers/experiment.py) [c](results/index.md)"
    assert links["to_results"](text) == expected
