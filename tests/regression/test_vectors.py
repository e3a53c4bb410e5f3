"""The learners replay what an independent implementation computed: alone, in a batch, and as TorchScript."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import torchonline

pytestmark = pytest.mark.fast

DATA = Path(__file__).parents[1] / "data"
CASES = [
    case
    for name in ("heavy_tailed", "heavy_tailed_radius")
    for case in json.loads((DATA / f"{name}.json").read_text())["cases"]
]
FORMS = ("single", "batch", "script")
TOLERANCE = 1e-9


def name(case: dict[str, Any]) -> str:
    options = case["options"]
    words = [options.get("noise", ""), options.get("moment_order", ""), options.get("radius_scale", "")]
    return "-".join([case["learner"], *(str(word) for word in words if word != "")])


def options_of(case: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a case's learner. OFUL's vectors have the radius of its paper."""
    return case["options"] | ({"radius": "classic"} if case["learner"] == "OFUL" else {})


def near(seen: Tensor, expected: Any, relative_to: float | None = None) -> bool:
    """Within the tolerance of the expected number, or of the largest of several, for each learner of a batch."""
    wanted = torch.tensor(expected, dtype=torch.float64)
    size = float(wanted.abs().max()) if relative_to is None else relative_to
    return bool(((seen - wanted).abs() <= TOLERANCE * size).all())


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("case", CASES, ids=name)
def test_replay(case: dict[str, Any], form: str) -> None:
    batch_shape = (2,) if form == "batch" else ()
    policy = getattr(torchonline, case["learner"])(**options_of(case), batch_shape=batch_shape)
    if form == "script":
        policy = torch.jit.script(policy)
    estimator = policy.estimator
    compared = 0
    for t, reward in enumerate(case["reward"]):
        assert near(estimator.radius(), case["radius"][t])
        arms = torch.tensor(case["arms"][t], dtype=torch.float64).expand(*batch_shape, -1, -1)
        if case["gap"][t] > TOLERANCE:
            compared += 1
            assert policy.select(arms).unique().tolist() == [case["best"][t]]
        scale = None
        if case["noise_scale"] is not None:
            scale = torch.full(batch_shape, case["noise_scale"][t], dtype=torch.float64)
        index, paid = torch.full(batch_shape, case["chosen"][t]), torch.full(batch_shape, reward, dtype=torch.float64)
        policy.step(arms, index, paid, noise_scale=scale)
        assert near(estimator.theta_hat, case["theta"][t], relative_to=1.0)
        for buffer in ("V", "P"):
            if str(t) in case.get(buffer, {}):
                assert near(getattr(estimator, buffer), case[buffer][str(t)])
        for buffer in ("logdet", "bias"):
            if buffer in case:
                assert near(getattr(estimator, buffer), case[buffer][t], relative_to=1.0)
    assert near(estimator.radius(), case["radius"][-1])
    assert compared > 0.9 * len(case["reward"])


def test_the_vectors_reach_every_branch() -> None:
    assert [len(case["reward"]) for case in CASES] == [200] * 5 + [160] * 3
    assert {case["learner"] for case in CASES} == {"OFUL", "HvtUCB", "AnytimeHeavyTailUCB"}
    assert {case["options"].get("moment_order") for case in CASES} == {None, 1.4, 1.5, 2.0}
    assert any(not any(map(any, case["arms"][t])) or case["gap"][t] == 0.0 for case in CASES for t in range(160))
