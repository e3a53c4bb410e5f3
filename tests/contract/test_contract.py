"""Every public estimator and policy keeps every rule, and so do composed policies, fixed arms and heads."""

from collections.abc import Callable
from typing import Any

import pytest

import torchonline.testing
from tests import composed_policies
from tests.contract.fake_devices import ON_ANOTHER_DEVICE
from tests.contract.matrix import EXEMPTIONS, RULES, Rule, pairs
from tests.learners import CASES, Case, estimator_of, is_plain, public_classes
from torchonline.policies.rules import Rule as PolicyRule
from torchonline.testing import GROUPS

ON_DEVICES = [*CASES, *composed_policies.CASES]
ALL = [*ON_DEVICES, *composed_policies.OTHERS]
PAIRS = pairs(ON_DEVICES, RULES, EXEMPTIONS) + pairs(composed_policies.OTHERS, torchonline.testing.RULES, EXEMPTIONS)


@pytest.mark.any_device
@pytest.mark.parametrize(("case", "rule"), PAIRS)
def test_rule(case: Any, rule: Rule, record_property: Callable[[str, object], None]) -> None:
    record_property("contract", f"{rule.number} {case}")
    rule.check(case.subject)


def test_ten_rules_have_a_check() -> None:
    assert {rule.number for rule in RULES} == set(range(1, 11))
    assert all(any(rule.check.__module__ == group.__name__ for rule in RULES) for group in GROUPS)
    assert ON_ANOTHER_DEVICE in RULES


def test_exemptions_are_named_and_explained() -> None:
    known = {(case.cls.__name__, str(rule)) for case in ALL for rule in RULES}
    assert set(EXEMPTIONS) <= known, "an exemption names a learner or a rule that does not exist"
    assert all(len(reason) > 20 for reason in EXEMPTIONS.values())


def test_every_exported_learner_is_covered() -> None:
    covered = {case.cls.__name__ for case in CASES}
    plain = [cls for cls in public_classes(PolicyRule) if is_plain(cls)]
    assert {type(estimator_of(Case(cls).build())).__name__ for cls in plain} <= covered
    covered |= {cls.__name__ for cls in plain}
    assert covered >= {
        "OFUL",
        "HvtUCB",
        "AnytimeHeavyTailUCB",
        "RidgeRegression",
        "HuberRegression",
        "HeavyTailRegression",
        "UCB",
        "ThompsonSampling",
        "Greedy",
        "HeavyOFUL",
        "CRTM",
        "CRMM",
        "TOFU",
        "MENU",
        "SystemIdentification",
        "GLBOMD",
        "GLMRegression",
        "LocalGLB",
        "LocalGLMRegression",
        "ECOLog",
        "GLOC",
        "OFULMLogB",
        "GLMUCB",
        "RSGLinCB",
        "OFUGLB",
        "OFULogR",
    }
