"""Every public learner keeps every rule."""

from collections.abc import Callable

import pytest

from tests.contract import arguments, batches, blocks, cost, devices, gradients, looking, script, state, types
from tests.contract.matrix import EXEMPTIONS, RULES, Rule, pairs
from tests.learners import CASES, Case, estimator_of, is_plain, public_classes
from torchonline.policies.rules import Rule as PolicyRule

GROUPS = (looking, state, gradients, cost, types, batches, script, arguments, devices, blocks)


@pytest.mark.any_device
@pytest.mark.parametrize(("case", "rule"), pairs(CASES, RULES, EXEMPTIONS))
def test_rule(case: Case, rule: Rule, record_property: Callable[[str, object], None]) -> None:
    record_property("contract", f"{rule.number} {case}")
    rule.check(case)


def test_ten_rules_have_a_check() -> None:
    assert {rule.number for rule in RULES} == set(range(1, 11))
    assert all(any(rule.check.__module__ == group.__name__ for rule in RULES) for group in GROUPS)


def test_exemptions_are_named_and_explained() -> None:
    known = {(case.cls.__name__, str(rule)) for case in CASES for rule in RULES}
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
