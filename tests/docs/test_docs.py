"""Python blocks in docs/ run, and every relative link and anchor of the Markdown pages resolves."""

import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from markdown_it import MarkdownIt
from threadpoolctl import ThreadpoolController

from tests.printed import blocks_of, check_comments, check_printed

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted((ROOT / "docs").glob("*.md"))
PAGES = [*sorted(ROOT.glob("*.md")), *DOCUMENTS]
# Pages whose blocks run in order, as one program.
TUTORIALS = (
    "start",
    "encoders",
    "off_policy",
    "personalizer",
    "from_vowpal_wabbit",
    "from_mabwiser",
    "from_bayesianbandits",
)
# Pages that the site's build makes, and that it checks links to.
BUILT = ("gallery/", "reference/")
# Pages of the site that hold its contents, or show a file of the repository.
OF_THE_SITE = ("index", "guide", "theory", "benchmarks", "project", "contributing", "changelog")


def programs(path: Path) -> list[tuple[str, str]]:
    """Return the Python code of a page, as programs that run by themselves, each with what the page says that it prints."""
    blocks = blocks_of(path.read_text())
    if path.stem in TUTORIALS and blocks:
        return [("\n".join(code for code, _ in blocks), "".join(shown for _, shown in blocks))]
    return blocks


BLOCKS = [
    pytest.param(*program, id=f"{path.stem}-{number}")
    for path in DOCUMENTS
    for number, program in enumerate(programs(path))
]


def prose(path: Path) -> str:
    """Return a page without its fenced code blocks, in which brackets and # mean other things."""
    return re.sub(r"^```.*?^```", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)


@functools.cache
def anchors(path: Path) -> set[str]:
    """Return the anchors that GitHub gives to a page's headings."""
    found: list[str] = []
    for title in re.findall(r"^#+ +(.+?) *$", prose(path), re.MULTILINE):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).replace("`", "").replace("*", "")
        slug = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
        found.append(slug if slug not in found else f"{slug}-{sum(name.startswith(slug) for name in found)}")
    return set(found)


def broken_links(path: Path) -> list[str]:
    """Return the relative links of a page that lead to no file, or to no heading of a Markdown page."""
    text = re.sub(r"`[^`\n]*`", "", prose(path))
    broken = []
    for link in re.findall(r"\]\((?!https?://|mailto:)([^)\s]+)\)", text):
        target, _, anchor = link.partition("#")
        if target.startswith(BUILT):
            continue
        file = (path.parent / target).resolve() if target else path
        is_known = file.suffix == ".md" and file.is_file() and anchor in anchors(file)
        if not file.exists() or (anchor and not is_known):
            broken.append(link)
    return broken


def test_there_are_code_blocks() -> None:
    assert len(BLOCKS) >= 16


@pytest.fixture
def same_threads() -> Iterator[None]:
    """Undo what a block sets: the numbers of threads are the whole process's."""
    torch_threads, libraries = torch.get_num_threads(), ThreadpoolController().lib_controllers
    counts = [library.num_threads for library in libraries]
    yield
    torch.set_num_threads(torch_threads)
    for library, count in zip(libraries, counts, strict=True):
        library.set_num_threads(count)


@pytest.mark.parametrize(("code", "shown"), BLOCKS)
@pytest.mark.usefixtures("same_threads")
def test_code_block_runs_and_prints_what_the_page_shows(
    code: str, shown: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "docs", "exec"), {})
    printed = capsys.readouterr().out
    check_comments(code, printed)
    if shown and "print(" in code:
        check_printed(shown, printed)


def test_stale_output_is_found() -> None:
    """In a block below the code, and in a comment beside it."""
    assert blocks_of("```python\nprint(1)\n```\n\n```text\n1\n```\n\n```text\nno output\n```\n") == [
        ("print(1)\n", "1\n")
    ]
    assert blocks_of("```python\nx = 1\n```\n\nWords.\n\n```text\n2\n```\n") == [("x = 1\n", "")]
    check_printed("mean 0.556, from 0.518\n\n2 rounds\n", "mean 0.557,  from 0.518\n\n2 rounds\n")
    for stale in (
        "mean 0.564, from 0.518",
        "mean 0.556 from 0.518",
        "mean 0.556, from 0.518, to 1",
        "mean nan, from 0.518",
    ):
        with pytest.raises(AssertionError):
            check_printed(stale, "mean 0.556, from 0.518\n")
    code = "print(bandit.rounds)  # 200\nprint(learnt)  # tensor(True): learnt\nprint(a)  # the score\n"
    check_comments(code, "200\ntensor(True)\n0.5\n")
    for printed in ("201\ntensor(True)\n", "200\ntensor(False)\n"):
        with pytest.raises(AssertionError):
            check_comments(code, printed)


def test_programs_in_cpp_are_those_of_the_repository() -> None:
    """A test of exports compiles and runs them."""
    page, folder = (ROOT / "docs" / "cpp.md").read_text(), ROOT / "examples" / "files"
    blocks = re.findall(r"```cpp\n(.*?)```", page, re.DOTALL)
    # The files begin with comments, which the page has in words.
    files = [(folder / f"{name}.cpp").read_text() for name in ("script", "package")]
    assert blocks == [text[text.index("#include") :] for text in files]


def test_links_and_anchors_resolve() -> None:
    found = {path.name: broken_links(path) for path in PAGES}
    assert {name: broken for name, broken in found.items() if broken} == {}


def test_broken_links_are_found(tmp_path: Path) -> None:
    page, other = tmp_path / "page.md", tmp_path / "other.md"
    other.write_text("# A title: `x` and [y](z.md)\n\n```text\n# No title\n```\n")
    good = "[a](other.md) [b](other.md#a-title-x-and-y) [c](https://example.org/none) `[d](none.md)`"
    page.write_text(f"# Here\n\n{good} [e](#here) [f](none.md) [g](other.md#no-title) [h](#there)\n")
    assert broken_links(page) == ["none.md", "other.md#no-title", "#there"]


def test_formulas_keep_their_underscores() -> None:
    """An underscore beside a bracket or a bar opens emphasis, and is gone from the page: such a formula needs backticks."""
    wrong = []
    for path in PAGES:
        tokens = [token for block in MarkdownIt().parse(path.read_text()) for token in block.children or ()]
        if any(token.type.endswith("_open") and token.markup.startswith("_") for token in tokens):
            wrong.append(path.name)
    assert wrong == []


def test_every_page_is_reachable() -> None:
    texts = {page: page.read_text() for page in PAGES if page != ROOT / "CHANGELOG.md"}
    lost = [
        path.name
        for path in DOCUMENTS
        if path.stem not in OF_THE_SITE
        and not any(
            re.search(rf"\]\([^)]*\b{re.escape(path.name)}[#)]", text) for page, text in texts.items() if page != path
        )
    ]
    assert lost == []


def test_scripts_exist() -> None:
    found = [
        (path, script[0] or script[1])
        for path in DOCUMENTS
        for script in re.findall(r"<!-- printed by (\S+)|python (examples/\S+\.py)", path.read_text())
    ]
    assert found
    assert [f"{path.name}: {name}" for path, name in found if not (ROOT / name).is_file()] == []
