"""Tables of the docs: made again of the saved results, and written into the pages.

A page names a script and the title of one of its tables or lists, and has the text up to the next empty line::

    <!-- printed by examples/papers/hvt_ucb.py as Norms of the noise -->

A test compares all pages with what the scripts make now. After a new run:

    python examples/papers/hvt_ucb.py --save && python examples/papers/pages.py
"""

import argparse
import importlib
import re
from collections.abc import Iterator
from functools import cache

from experiment import DOCS, RESULTS, saved

MARK = re.compile(
    r"^(<!-- printed by examples/papers/(\w+)\.py as ([^\n]+) -->)\n(.*?)(?=\n\n|\n*\Z)", re.DOTALL | re.MULTILINE
)


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


def filled(page: str) -> str:
    """Return a page with the tables of the saved results; a title that no script makes is a KeyError."""

    def text(match: re.Match[str]) -> str:
        made = tables_of(match[2])
        if match[3] not in made:
            raise KeyError(f"{match[2]}: expected one of {sorted(made)}, got {match[3]}")
        return f"{match[1]}\n{made[match[3]]}"

    return MARK.sub(text, page)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args()
    for path in sorted(DOCS.glob("*.md")):
        before = path.read_text()
        after = filled(before)
        if after != before:
            path.write_text(after)
            print(f"Written: {path}")


if __name__ == "__main__":
    main()
