"""Tables of the docs are compared by their numbers, and some numbers in sentences are computed again."""

import importlib.util
import math
import re
from pathlib import Path
from statistics import NormalDist
from types import ModuleType

import pytest
import torch

from torchonline import DPTOFW
from torchonline.privacy.calibration import gaussian_epsilon, gaussian_mu

ROOT = Path(__file__).parents[2]


def words(page: str) -> str:
    """Return the text of a page of docs in one line."""
    return " ".join((ROOT / "docs" / f"{page}.md").read_text().split())


@pytest.fixture(scope="module")
def tables() -> ModuleType:
    spec = importlib.util.spec_from_file_location("doc_tables", ROOT / "releases" / "tables.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_all_tables_are_found(tables: ModuleType) -> None:
    found = list(tables.tables())
    assert len(found) > 100
    assert {table.script for table in found if not (ROOT / table.script).is_file()} == set()
    assert [table for table in found if not table.title and not table.text.startswith(("|", "    "))] == []


def test_rows_are_compared_by_their_numbers(tables: ModuleType) -> None:
    """Words are edited by hand, columns may be left out or moved, digits rounded; a number that was not printed is found."""
    lines = [
        "┃ learner ┃ mean ┃ s.e. ┃ worst ┃",
        "┡━━━╇━━━┩",
        "│ OFUL, told 2 │ 1252.46 │ 3.0 │ inf │",
        "│ Greedy │ 7 │ 1 │ 9 │",
    ]
    page = "| learner | told | worst | mean |\n|---|---|---|---|\n| OFUL | two | infinite | 1,252 ± 3 |\n| greedy | - | 9 | 7 |"
    table = tables.Table("docs/x.md", "examples/x.py", (), "", page)
    assert tables.missing(table, lines) == []
    assert tables.missing(table, [lines[3], lines[2]]) == ["greedy | - | 9 | 7"]
    assert tables.missing(table._replace(text=page.replace("1,252", "1,253")), lines) == [
        "OFUL | two | infinite | 1,253 ± 3"
    ]
    timed = tables.Table(
        "docs/x.md", "examples/demo.py", (), "", "| a | regret | time of a round |\n|-|-|-|\n| b | 4 | 5 |"
    )
    assert tables.missing(timed, ["| a | regret | time of a round |", "|---|", "| b | 4 | 6 |"]) == []
    assert tables.missing(timed, ["| a | regret | time of a round |", "|---|", "| b | 5 | 5 |"]) == ["b | 4"]


def test_quick_scripts_print_a_table(tables: ModuleType) -> None:
    assert set(tables.QUICK) <= {table.script for table in tables.tables() if not table.title}


def test_the_first_page_shows_the_demo(tables: ModuleType) -> None:
    """The caption of README's picture says what the rows of docs/demo.md have earned."""
    (table,) = [
        table for table in tables.tables() if table.script == "examples/demo.py" and table.options == ("--all",)
    ]
    earned = {cells[1].strip(): cells[3].strip() for cells in (row.split("|") for row in table.text.splitlines())}
    caption = (ROOT / "README.md").read_text().partition("demo.png)")[2].partition("##")[0]
    shown = re.findall(r"\d+ %", caption)
    rows = ("torchonline.bandit", "LinUCB on log(1 + reward)", 'torchonline.bandit, rewards="real"')
    assert shown == [earned[row] for row in rows]
    assert rows[1] == next(name for name in list(earned)[2:] if "torchonline" not in name)


def test_what_is_spent_of_an_epsilon() -> None:
    """docs/privacy.md: 1, 10, 100 and 1,000 of 1,000 steps."""
    learner, spent = DPTOFW(3, radius_bound=1.0, horizon=1000, epsilon=1.0, delta=1e-5), {}
    for step in range(1, 1001):
        learner.step(torch.zeros(2, 3))
        if step in (1, 10, 100, 1000):
            spent[step] = round(learner.privacy_spent(1e-5), 2)
    assert spent == {1: 0.54, 10: 0.74, 100: 0.9, 1000: 1.0}
    assert "1, 10, 100 and 1,000 steps spend 0.54, 0.74, 0.90 and 1.00" in words("privacy")


def test_what_a_reader_can_guess() -> None:
    """docs/privacy.md: the share of right guesses of one of two equally likely records, rounded up."""
    delta, budgets = 1e-5, (0.5, 1.0, 4.0, 8.0)
    anyone = [(math.exp(epsilon) + delta) / (math.exp(epsilon) + 1.0) for epsilon in budgets]
    normal = [NormalDist().cdf(gaussian_mu(epsilon, delta) / 2.0) for epsilon in budgets]
    rows = re.findall(
        r"^\| (?:right guesses|the same for Gaussian noise).*", (ROOT / "docs" / "privacy.md").read_text(), re.M
    )
    for row, exact in zip(rows, (anyone, normal), strict=True):
        shown = [float(cell) / 100.0 for cell in re.findall(r"([\d.]+) %", row)]
        assert all(0.0 <= cell - value < 1e-3 for cell, value in zip(shown, exact, strict=True)), row


def test_what_forks_families_and_other_neighbours_cost() -> None:
    """docs/privacy.md and docs/health_insurance_private.md: epsilons of Gaussian noise."""

    def spent(epsilon: float, delta: float, times: float) -> float:
        return gaussian_epsilon(times * gaussian_mu(epsilon, delta), delta)

    page, family = words("privacy"), words("health_insurance_private")
    replaced = [f"{spent(epsilon, 1e-5, 2.0):.2f}" for epsilon in (1.0, 4.0, 8.0)]
    text = 'under `"zero_out"` (Gaussian noise, δ = 1e-5) are {}, {} or {} under `"replace_one"`'
    assert text.format(*replaced) in page
    two, ten = (f"{spent(1.0, 1e-5, math.sqrt(runs)):.2f}" for runs in (2, 10))
    assert f"becomes {two} for two runs and {ten} for ten" in page
    of_two, of_four, of_eight = (f"{spent(1.0, 2.1e-5, records):.1f}" for records in (2.0, 4.0, 8.0))
    assert f"for each of four records (Gaussian noise, δ = 2.1e-5), all four together have {of_four}" in page
    assert f"a family of two has {of_two}, one of four {of_four}, one of eight {of_eight}" in family


def test_what_a_replay_spends() -> None:
    """docs/privacy_lightning.md: a load counts two runs; only the learner that has loaded knows of it."""
    first, loaded = (DPTOFW(3, radius_bound=1.0, horizon=1000, epsilon=1.0, delta=1e-4) for _ in range(2))
    first.step(None)
    loaded.load_state_dict(first.state_dict())
    loaded.step(None)
    spent = loaded.privacy_ledger(steps=1000).epsilon(1e-4)
    assert f"one crash and replay at an epsilon of 1 (δ = 1e-4) this is {spent:.2f}." in words("privacy_lightning")
    assert first.privacy_ledger(steps=1000).epsilon(1e-4) == pytest.approx(1.0, abs=0.005)
    assert "A learner counts the loads and copies in its own past only" in words("privacy")
