"""Tables of the docs: made again of the saved results, and written into the pages.

A page names a script and the title of one of its tables or lists, and has the text up to the next empty line::

    <!-- printed by examples/papers/hvt_ucb.py as Norms of the noise -->

A table of a page may leave out rows and columns: those that stand there are filled. If another line stands there, all are. A test
compares all pages with what the scripts make now. After a new run:

    python examples/papers/hvt_ucb.py --save && python examples/papers/pages.py

The site also has every table of every script with saved results: ``--results`` prints these pages as JSON, one a script, and
docs/site_parts/results.py writes them. A page begins with the script's docstring. If the docstring has a heading "## Proofs", the
page ends with that part, which is Markdown; its links are relative to docs.
"""

import argparse
import ast
import importlib
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from experiment import DOCS, PROOFS, RESULTS, load, saved, table

MARK = re.compile(
    r"^(<!-- printed by examples/papers/(\w+)\.py as ([^\n]+) -->)\n(.*?)(?=\n\n|\n*\Z)", re.DOTALL | re.MULTILINE
)
FOLDER = Path(__file__).parent
SAVED = sorted(path.stem for path in RESULTS.glob("*.json"))
# Claims of the papers: ``claims_hvt_ucb`` is of docs/hvt_ucb.md.
CLAIMS = ["claims", *sorted(path.stem for path in FOLDER.glob("claims_*.py"))]


@cache
def tables_of(script: str) -> dict[str, str]:
    """Return what a script makes of its saved results, by title."""
    module = importlib.import_module(script)
    if not hasattr(module, "EXPERIMENT"):
        return module.tables()
    return module.EXPERIMENT.tables(saved(script)) if (RESULTS / f"{script}.json").exists() else {}


def places(page: str) -> Iterator[tuple[str, str, str]]:
    """Yield the script, the title and the text of each place of a page."""
    for match in MARK.finditer(page):
        yield match[2], match[3], match[4]


def cells(text: str) -> list[list[str]]:
    """Return the cells of a table by row, without the line under the header."""
    header, _, *rows = text.splitlines()
    return [line.removeprefix("| ").removesuffix(" |").split(" | ") for line in (header, *rows)]


def part_of(made: str, shown: str) -> str:
    """Return the rows and columns of a table that a page shows, with the cells that they have now.

    Columns are found by the header. Rows are found by the first column shown, or by the first few if it has a label twice. A row
    or a column that is not made any more, or stands in another order, is a KeyError.
    """
    (header, *rows), (shown_header, *shown_rows) = cells(made), cells(shown)
    places: list[int] = []
    for name in shown_header:
        if name not in header[places[-1] + 1 if places else 0 :]:
            raise KeyError(f"expected columns among {header}, in their order, got {shown_header}")
        places.append(header.index(name, places[-1] + 1 if places else 0))
    kept = [[row[place] for place in places] for row in rows]
    count = next((n for n in range(1, len(places)) if len({tuple(row[:n]) for row in kept}) == len(kept)), len(places))
    labels, wanted = [row[:count] for row in kept], [row[:count] for row in shown_rows]
    if [label for label in labels if label in wanted] != wanted:
        raise KeyError(f"expected rows among {labels}, in their order, got {wanted}")
    return table(shown_header, [row for row in kept if row[:count] in wanted])


def filled(page: str) -> str:
    """Return a page with the tables of the saved results; a title, row or column that no script makes is a KeyError."""

    def text(match: re.Match[str]) -> str:
        made = tables_of(match[2])
        if match[3] not in made:
            raise KeyError(f"{match[2]}: expected one of {sorted(made)}, got {match[3]}")
        now = made[match[3]]
        if now.startswith("|") and match[4].startswith("|"):
            now = part_of(now, match[4])
        return f"{match[1]}\n{now}"

    return MARK.sub(text, page)


@cache
def docstring(script: str) -> tuple[str, str]:
    """Return a script's docstring as Markdown: what it measures, and its proofs."""
    text = ast.get_docstring(ast.parse((FOLDER / f"{script}.py").read_text())) or ""
    text = re.sub(r":math:`([^`]+)`", r"{math}`\1`", text)
    text = re.sub(r"(?<!`)``([^`]+)``(?!`)", r"`\1`", text)
    text = re.sub(r"(?<![\w/`])docs/(\w+\.md)", r"[docs/\1](\1)", text)
    about, _, proofs = from_results(text, script).partition(PROOFS)
    return about.strip(), proofs.strip()


def first_line(script: str) -> str:
    return docstring(script)[0].splitlines()[0]


def from_results(text: str, script: str) -> str:
    """Return a text with links that hold in docs/results, where it stood on a page of docs; names of scripts are linked."""
    page = f"{script.removeprefix('claims_')}.md"
    text = re.sub(r"\]\(#", f"](../{page}#", text)
    text = re.sub(r"\]\((?!https?://|mailto:|\.\./\w+\.md#)", "](../", text)
    names = "|".join(sorted([*CLAIMS, *SAVED], reverse=True))
    text = re.sub(rf"\]\(\.\./\.\./examples/papers/({names})\.py\)", r"](\1.md)", text)
    return re.sub(rf"(?<!\[)`({names})\.py`", r"[`\1.py`](\1.md)", text)


def result_page(script: str) -> str:
    """Return a page with a script's docstring and every table, and the command that prints them."""
    about, proofs = docstring(script)
    print_all = f"python examples/papers {script} --tables    # prints these tables from the saved results, in seconds"
    lines = [f"# `{script}.py`", about, f"```sh\n{print_all}\n```"]
    if script in SAVED:
        head = load(script)
        versions = ", ".join(f"{name} {version}" for name, version in head["versions"].items())
        lines.append(f"Saved run: {head['seconds']} seconds of processor time; seeds: {head['seeds']}; {versions}.")
    if proofs:
        lines.append("[Proofs](#proofs) are below the tables.")
    for title, text in tables_of(script).items():
        lines += [f"## {title}", from_results(text, script)]
    if proofs:
        lines += ["## Proofs", proofs]
    return "\n\n".join(lines) + "\n"


def result_pages() -> dict[str, str]:
    """Return the pages of docs/results by name: one a script, and an index of them."""
    scripts = [*CLAIMS, *SAVED]
    rows = [(f"[`{script}.py`]({script}.md)", len(tables_of(script)), first_line(script)) for script in scripts]
    index = [
        "# Complete results",
        "Every table of every experiment of the papers, made of the saved results by the site's build. "
        "`python examples/papers NAME --tables` prints those of one script. "
        "[Papers](../papers.md) says what reproduces.",
        table(("Script", "Tables", "What it measures"), rows),
    ]
    return {"index": "\n\n".join(index) + "\n"} | {script: result_page(script) for script in scripts}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", action="store_true", help="print pages of all tables as JSON, and write none")
    options = parser.parse_args()
    if options.results:
        print(json.dumps(result_pages()))
        return
    for path in sorted(DOCS.glob("*.md")):
        before = path.read_text()
        after = filled(before)
        if after != before:
            path.write_text(after)
            print(f"Written: {path}")


if __name__ == "__main__":
    main()
