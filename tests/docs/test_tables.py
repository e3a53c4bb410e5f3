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
    page = " ".join((ROOT / "docs" / "privacy.md").read_text().split())
    assert "1, 10, 100 and 1,000 steps spend 0.54, 0.74, 0.90 and 1.00" in page


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
    """docs/privacy.md and docs/privacy_lightning.md: epsilons of Gaussian noise."""

    def spent(epsilon: float, delta: float, times: float) -> float:
        return round(gaussian_epsilon(times * gaussian_mu(epsilon, delta), delta), 2)

    page = " ".join((ROOT / "docs" / "privacy.md").read_text().split())
    assert [spent(epsilon, 1e-5, 2.0) for epsilon in (1.0, 4.0, 8.0)] == [2.15, 9.08, 19.12]
    assert 'under `"zero_out"` (Gaussian noise, δ = 1e-5) are 2.15, 9.08 or 19.12 under `"replace_one"`' in page
    assert [spent(1.0, 1e-5, math.sqrt(runs)) for runs in (2, 10)] == [1.47, 3.62]
    assert "becomes 1.47 for two runs and 3.62 for ten" in page
    assert round(spent(1.0, 2.1e-5, 4.0), 1) == 4.8
    assert spent(1.0, 1e-4, math.sqrt(2.0)) == 1.48


def test_what_copies_of_one_state_know() -> None:
    """docs/privacy_lightning.md: each of three loads counts two runs; a stop chosen by data spends what all steps spend."""
    first = DPTOFW(3, radius_bound=1.0, horizon=1000, epsilon=1.0, delta=1e-4)
    first.step(None)
    for _ in range(3):
        copy = DPTOFW(3, radius_bound=1.0, horizon=1000, epsilon=1.0, delta=1e-4)
        copy.load_state_dict(first.state_dict())
        copy.step(None)
        assert round(copy.privacy_ledger(steps=1000).epsilon(1e-4), 2) == 1.48
        assert round(copy.privacy_ledger(3, steps=1000).epsilon(1e-4), 2) == 1.87
    assert round(first.privacy_ledger(steps=1000).epsilon(1e-4), 2) == 1.0
