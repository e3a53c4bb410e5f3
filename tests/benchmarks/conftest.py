"""Ratios to plain NumPy at the end of a benchmark run."""

from typing import Any

import pytest


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print what :func:`tests.benchmarks.test_speed.test_round` measured."""
    session = getattr(config, "_benchmarksession", None)
    if session is None or not session.benchmarks:
        return
    terminalreporter.section("one round against plain NumPy OFUL, in one run on one thread")
    group = ""
    for run in session.benchmarks:
        if run.group != group:
            group = run.group
            terminalreporter.write_line(group)
        name = run.name.split("-", 1)[1].rstrip("]")
        micros, ratio = run.extra_info["microseconds"], run.extra_info["ratio to NumPy"]
        terminalreporter.write_line(f"  {name:<28}{micros:>12.1f} us{ratio:>10.2f} x NumPy")
