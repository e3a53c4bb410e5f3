"""The decision diagram of docs/choose.md, drawn from the numbered list of that page.

    python docs/site_parts/decision.py     # writes docs/choose.svg

A test compares the file with what this draws, so the diagram says what the list says.
"""

import re
import textwrap
from html import escape
from pathlib import Path

DOCS = Path(__file__).resolve().parent.parent
# Of the picture, its two columns, a line of text and an arrow: a phone shows the picture at its full size.
WIDTH, LEFT, RIGHT, LINE, ROOM = 366, 168, 158, 19, 26
LETTERS = {"question": 20, "answer": 19}  # in a line


def steps(page: str) -> list[tuple[str, list[str]]]:
    """Return the questions of the page, each with the learners that its answer names."""
    items = re.findall(r"^\d+\. \*\*(.*?)\*\*(.*?)(?=^\d+\. |\n\n)", page, re.DOTALL | re.MULTILINE)
    return [(" ".join(question.split()).rstrip(",:?"), re.findall(r"`([^`]+)`", answer)) for question, answer in items]


def box(x: float, y: float, width: float, height: float, lines: list[str], kind: str) -> str:
    """Return a box with lines of text in its middle."""
    top = y + height / 2 - LINE * (len(lines) - 1) / 2
    text = "".join(
        f'<tspan x="{x + width / 2}" y="{top + LINE * i:g}">{escape(line)}</tspan>' for i, line in enumerate(lines)
    )
    return (
        f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{height}" rx="6"/>'
        f'<text class="{kind}" dominant-baseline="central" text-anchor="middle">{text}</text>'
    )


def arrow(x: float, y: float, dx: float, dy: float, word: str) -> str:
    """Return an arrow with a word beside it."""
    at = (x + dx / 2, y - 10) if dx else (x + 14, y + dy / 2)
    return (
        f'<path class="arrow" d="M{x} {y}l{dx} {dy}" marker-end="url(#head)"/>'
        f'<text class="word" x="{at[0]}" y="{at[1]}" dominant-baseline="central" text-anchor="middle">{word}</text>'
    )


def drawn(page: str) -> str:
    """Return the diagram of a page as SVG."""
    parts, y, found = [], 1.0, steps(page)
    for number, (question, names) in enumerate(found):
        named = textwrap.wrap(", ".join(names), LETTERS["answer"])
        is_last = number == len(found) - 1
        asked = textwrap.wrap(question if is_last else f"{question}?", LETTERS["question"])
        height = LINE * max(2, len(asked), len(named)) + 12.0
        parts.append(box(1, y, LEFT, height, asked, "question"))
        parts.append(box(WIDTH - RIGHT - 1, y, RIGHT, height, named, "answer"))
        parts.append(arrow(LEFT + 3, y + height / 2, WIDTH - LEFT - RIGHT - 14, 0, "" if is_last else "yes"))
        if not is_last:
            parts.append(arrow(LEFT / 2, y + height + 2, 0, ROOM - 10, "no"))
        y += height + (0 if is_last else ROOM)
    style = (
        "text{font:15px sans-serif;fill:#1a1a1a}text.answer{font:13px monospace}.word{font-size:13px;fill:#555}"
        "rect{fill:#fff;stroke:#888}rect.answer{fill:#e6f0f8;stroke:#0072b2}.arrow{stroke:#555;stroke-width:1.5}"
    )
    tip = '<path d="M0 0L8 4L0 8z" fill="#555"/>'
    head = f'<marker id="head" markerWidth="8" markerHeight="8" refX="6" refY="4" orient="auto">{tip}</marker>'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y + 1:g}" width="{WIDTH}" role="img">'
        f"<style>{style}</style><defs>{head}</defs>" + "\n".join(["", *parts]) + "\n</svg>\n"
    )


if __name__ == "__main__":
    (DOCS / "choose.svg").write_text(drawn((DOCS / "choose.md").read_text()))
