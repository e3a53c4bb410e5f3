"""Which tests are long: ``make test`` leaves them to ``make test-rest``.

It keeps one script and one program of each family of classes, and the rules of the contract that the quick tier checks.
``make test-rest SHARE=2/7`` runs a seventh of the cases of the long tests; seven shares make the whole.

``python -m tests.long_tests .venv/results.xml .venv/results_rest.xml`` lists, in long_tests.txt, the tests whose cases take .15
seconds or more on average in the reports of pytest. Tests that the reports lack stay as they are. A rule of a contract counts
as a test. Unlisted tests are not long.
"""

import re
import sys
import zlib
from collections import defaultdict
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

ROOT = Path(__file__).parent.parent
FILE = Path(__file__).with_suffix(".txt")
LIMIT = 0.15  # seconds
# Cases of long tests that `make test` runs all the same: a script and a program of each family of classes.
SMOKE = {
    "tests/contract/test_contract.py::test_rule[OFUL()-script_agrees_with_eager]",
    "tests/contract/test_contract.py::test_rule[LocalGLB()-script_agrees_with_eager]",
    "tests/contract/test_contract.py::test_rule[AnytimeHeavyTailUCB()-script_agrees_with_eager]",
    "tests/contract/test_contract.py::test_rule[DisjointArms(ridge)-script_agrees_with_eager]",
    "tests/contract/test_contract.py::test_rule[BanditHead(arms)-script_agrees_with_eager]",
    "tests/convex/test_convex_learners.py::test_rule[OONS()-script_agrees_with_eager]",
    "tests/convex/test_convex_learners.py::test_rule[OONS()-a_program_agrees_with_eager]",
    "tests/export/test_export.py::test_program_agrees_over_100_rounds_and_may_only_look[OFUL-batch0]",
    "tests/export/test_export.py::test_program_agrees_over_100_rounds_and_may_only_look[AnytimeHeavyTailUCB-batch2]",
    "tests/export/test_export.py::test_program_agrees_over_100_rounds_and_may_only_look[LocalGLB-batch6]",
    "tests/export/test_blocks.py::test_a_program_of_arms_learns_blocks_as_learn_does[arms-batch0]",
    "tests/export/test_export.py::test_encoder_and_head_are_one_artifact[per arm-batch0]",
}
# Further cases that run in each share, and as the smoke tests with TorchScript's optimizer, as users' files do.
OPTIMIZED = {
    "tests/contract/test_contract.py::test_rule[GLBOMD()-script_agrees_with_eager]",
    "tests/contract/test_contract.py::test_rule[RadiusSelector(ucb)-script_agrees_with_eager]",
    "tests/contract/test_contract.py::test_rule[ScaledPolicy(ridge)-script_agrees_with_eager]",
    "tests/features/test_agreement.py::test_torchscript[optimized]",
    *(
        f"tests/features/test_agreement.py::test_numbers_for_each_kind_in_a_script[{name}-optimized]"
        for name in ("age", "member", "country", "since", "note")
    ),
    "tests/export/test_guard.py::test_500_poisoned_rounds_leave_no_trace[arms]",
    "tests/policies/test_fixed_arms.py::test_files_go_on_learning[OFUL-batch0]",
}


def long_tests() -> frozenset[str]:
    """Return the names of the tests that are long."""
    return frozenset(FILE.read_text().splitlines())


def in_share(item: Any, share: str) -> bool:
    """Return whether a case is in a share of the long ones, such as ``"2/7"``."""
    match = re.fullmatch(r"(\d+)/(\d+)", share)
    number, shares = (int(match[1]), int(match[2])) if match else (0, 0)
    if not 1 <= number <= shares:
        raise ValueError(f"share: expected k/n with k from 1 to n, such as 2/7, got {share!r}")
    return item.nodeid in OPTIMIZED or zlib.crc32(item.nodeid.encode()) % shares == number % shares


def name_of(item: Any) -> str:
    """Return the name of a case's test in the list."""
    params = item.callspec.params if hasattr(item, "callspec") else {}
    rule = f"[{params['rule']}]" if item.originalname == "test_rule" else ""
    return f"{item.path.relative_to(ROOT).as_posix()}::{item.originalname}{rule}"


def measured(report: Path) -> dict[str, list[float]]:
    """Return the seconds of the cases of each test in a report."""
    seconds = defaultdict(list)
    for case in ElementTree.parse(report).iter("testcase"):
        words, (test, _, ids) = case.attrib["classname"].split("."), case.attrib["name"].partition("[")
        while words and not (ROOT / "/".join(words)).with_suffix(".py").is_file():
            words.pop()  # a class
        rule = f"[{ids.rstrip(']').rpartition('-')[2]}]" if test == "test_rule" else ""
        seconds[f"{'/'.join(words)}.py::{test}{rule}"].append(float(case.attrib["time"]))
    return seconds


def main() -> None:
    seconds = defaultdict(list)
    for report in sys.argv[1:]:
        for name, each in measured(Path(report)).items():
            seconds[name] += each
    names = {name for name, each in seconds.items() if sum(each) / len(each) >= LIMIT}
    names |= {name for name in long_tests() if name not in seconds}
    FILE.write_text("".join(f"{name}\n" for name in sorted(names)))
    rest = [value for name, each in seconds.items() if name not in names for value in each]
    print(f"{len(names)} tests are long; {len(rest)} cases of others take {sum(rest):.0f} seconds")


if __name__ == "__main__":
    main()
