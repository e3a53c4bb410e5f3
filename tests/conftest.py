"""One thread, a fixed seed for each test, and the contract suite's table of learners and rules at the end of a run."""

import gc
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

# `tests.learners` and its like are imported by name, wherever pytest was started.
sys.path.append(str(Path(__file__).parent.parent))
pytest.register_assert_rewrite("tests.learners", "tests.contract")

torch.set_num_threads(1)


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--device cuda`` runs the contract, and what else has the mark ``any_device``, on an accelerator.

    ``--optimize-scripts`` leaves TorchScript's optimizer on. It takes four times as long as running the scripts.
    """
    parser.addoption("--device", default="cpu", help="device of the learners in tests that run on any, such as cuda")
    parser.addoption("--share", default="1/1", help="the share of the cases of long tests to run, such as 2/7")
    help_text = "let TorchScript optimize the scripts of all tests, not only those that tests/long_tests.py names"
    parser.addoption("--optimize-scripts", action="store_true", help=help_text)


def pytest_configure(config: pytest.Config) -> None:
    """Make learners and tensors on the device that was asked for, and refuse one that is not there."""
    device = torch.device(config.getoption("--device"))
    if device.type != "cpu":
        torch.zeros((), device=device)
        torch.set_default_device(device)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def _scripts_as_written(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run scripts without TorchScript's optimizer, but for one script of each family of classes.

    Other threads, and processes that a test starts, have the optimizer. A script with the optimizer is compiled anew: torch 2.13
    may raise "Expected Tensor but got None" where the optimizer runs what ran without it.
    """
    from tests.long_tests import OPTIMIZED, SMOKE

    optimize = request.config.getoption("--optimize-scripts") or request.node.nodeid in SMOKE | OPTIMIZED
    if optimize:
        compiled = torch.jit._recursive.ConcreteTypeStore()
        monkeypatch.setattr(torch.jit._recursive, "concrete_type_store", compiled)
        monkeypatch.setattr(torch.jit._state, "_jit_caching_layer", weakref.WeakKeyDictionary())
    with torch.jit.optimized_execution(optimize):
        yield


@pytest.fixture(autouse=True)
def _no_figures_left() -> Iterator[None]:
    """Close the figures of a test: matplotlib warns of more than twenty."""
    yield
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is not None:
        pyplot.close("all")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import no file without tests of the quick tier where only that tier is asked for."""
    if collection_path.suffix != ".py" or not config.option.markexpr.startswith("fast"):
        return None
    text = collection_path.read_text()
    return not ("mark.fast" in text or "quick_params" in text or "pairs(" in text) or None


@pytest.hookimpl(tryfirst=True)  # before cases are chosen by their marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the long tests, and keep a share of them. On an accelerator, keep the tests that can run there. Put the longest first.

    A long test that begins last would leave the other workers of a run with nothing to do. Rules of the quick tier are
    not long.
    """
    from tests.long_tests import SMOKE, in_share, long_tests, name_of

    names = long_tests()
    for item in items:
        is_quick_rule = getattr(item, "originalname", "") == "test_rule" and item.get_closest_marker("fast")
        if name_of(item) in names and item.nodeid not in SMOKE and not is_quick_rule:
            item.add_marker("long")
    share = config.getoption("--share")
    items[:] = [item for item in items if not item.get_closest_marker("long") or in_share(item, share)]
    if config.getoption("--device") == "cpu":
        items[:] = [item for item in items if item.path.name != "test_accelerators.py"]
    else:
        items[:] = [item for item in items if item.get_closest_marker("any_device")]
    first = ("test_distributed.py", "test_typing.py", "test_examples.py", "test_export.py")
    items.sort(key=lambda item: item.path.name not in first)


def pytest_collection_finish() -> None:
    """Leave what was imported out of every later garbage collection: some tests ask for many."""
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print which rule of the contract each public learner has passed or failed."""
    from tests.contract.matrix import table

    outcomes: dict[str, bool] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            key = dict(getattr(report, "user_properties", ())).get("contract")
            if key is not None:
                outcomes[key] = outcomes.get(key, True) and report.passed
    if outcomes:
        terminalreporter.section("contract: learners x rules")
        for line in table(outcomes):
            terminalreporter.write_line(line)
