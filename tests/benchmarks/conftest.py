"""Ratios to the rivals at the end of a benchmark run."""

from typing import Any

import pytest


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print what the tests of this folder measured."""
    session = getattr(config, "_benchmarksession", None)
    if session is None or not session.benchmarks:
        return
    terminalreporter.section("one round against a rival, in one run on one thread")
    group = ""
    for run in session.benchmarks:
        if run.group != group:
            group = run.group
            terminalreporter.write_line(group)
        micros, ratio = run.extra_info["microseconds"], run.extra_info["ratio"]
        terminalreporter.write_line(f"  {run.params['name']:<32}{micros:>12.1f} us{ratio:>10.2f} x rival")
