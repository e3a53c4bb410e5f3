"""The private learners replay what an independent implementation computed, with the noise that it drew."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.private_tools import KnownNoise, squared_loss
from torchonline import DPPOFW, DPTOFW, gradients
from torchonline.convex.domains import CrossPolytope, LpBall
from torchonline.privacy.mechanisms.base import Mechanism
from torchonline.privacy.mechanisms.toeplitz import BLT, SquareRoot
from torchonline.privacy.mechanisms.trees import Tree

pytestmark = pytest.mark.fast

VECTORS = json.loads((Path(__file__).parents[2] / "data" / "private.json").read_text())
TOLERANCE = 1e-10


def real(values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


X, Y, Z = (real(VECTORS["data"][name]) for name in "XYZ")
RUNS = VECTORS["runs"]


def name(run: dict[str, Any]) -> str:
    return "-".join(str(run.get(word, "")) for word in ("alg", "p", "scheme", "noise", "clip"))


def close(seen: Tensor, expected: Any) -> None:
    torch.testing.assert_close(seen, real(expected), rtol=0.0, atol=TOLERANCE)


def with_noise(mechanism: Mechanism, noise: Any) -> Tensor:
    """All prefixes of the noise that a mechanism makes of known draws."""
    state = {key: value.clone() for key, value in mechanism.initial_state(3).items()}
    vars(mechanism).update(source=KnownNoise(noise))
    prefixes = [mechanism.add(state, torch.zeros(3, dtype=torch.float64), step).clone() for step in range(1, 13)]
    return torch.stack(prefixes)


def test_noise_of_prefix_sums() -> None:
    options: dict[str, Any] = {"sensitivity": 1.0, "noise_scale": 1.0, "source": KnownNoise()}
    data = VECTORS["data"]
    close(with_noise(Tree(12, **options), Z), data["N_tree"])
    close(with_noise(SquareRoot(12, **options), Z), data["N_mf"])
    blt = BLT(12, parameters=(tuple(data["blt"]["lam"]), tuple(data["blt"]["w"])), **options)
    vars(blt)["_share"] = lambda step: 1.0  # theirs has columns as they are
    close(with_noise(blt, Z), data["blt"]["N"])
    assert math.isclose(blt.column_norm(12), data["blt"]["sens"], rel_tol=1e-12)


@pytest.mark.parametrize("case", VECTORS["lmo"], ids=lambda case: case["p"])
def test_linear_minimisation(case: dict[str, Any]) -> None:
    close(LpBall(3, norm=float(case["p"]), radius=case["R"]).minimizer(real(case["g"])), case["v"])
    if case["p"] == "1":
        close(CrossPolytope(3, radius=case["R"]).minimizer(real(case["g"])), case["v"])


@pytest.mark.parametrize("run", [run for run in RUNS if run["alg"] == "tofw"], ids=name)
def test_tofw(run: dict[str, Any]) -> None:
    noisy = run["noise"] != "none"
    learner = DPTOFW(
        3,
        horizon=12,
        epsilon=1.0 if noisy else math.inf,
        delta=1e-3,
        norm=float(run["p"]),
        radius_bound=run["R"],
        clip=run["clip"] or (1e9 if noisy else math.inf),
        mechanism={"none": "blt", "tree": "tree", "mf": "sqrt"}[run["noise"]],
        scheme=run["scheme"],
    )
    if noisy:
        vars(learner.noise).update(noise_scale=1.0, source=KnownNoise(Z))
    offset = 0 if run["scheme"] == "unbiased" else 1
    before = torch.zeros(3, dtype=torch.float64)
    for t, (x, y) in enumerate(zip(X, Y, strict=True)):
        close(learner.predict(), run["theta"][t])
        learner.step(gradients(squared_loss, learner, x, y)[0])
        close(learner.noisy_sum / (t + 1 + offset), run["d"][t])
        if not noisy:
            close(learner.noisy_sum - before, run["g"][t])
        before = learner.noisy_sum.clone()
    close(learner.predict(), run["theta"][12])


# The paper's second algorithm, "alg2", gives the first person's record twice the weight, and is not built.
@pytest.mark.parametrize("run", [run for run in RUNS if run["alg"] == "pofw" and run["scheme"] != "alg2"], ids=name)
def test_pofw(run: dict[str, Any]) -> None:
    learner = DPPOFW(
        3, horizon=12, epsilon=1.0, delta=1e-3, radius_bound=2.0, clip=1e9, scheme=run["scheme"], mechanism="laplace"
    )
    added = real(VECTORS["pofw_score_noise"])
    if run["noise"] == "none":
        added = torch.zeros_like(added)
    # What is drawn is multiplied by scale / sqrt(t), and subtracted.
    draws = (-noise * math.sqrt(t + 1) / learner.noise.scale for t, noise in enumerate(added))
    vars(learner.noise).update(source=KnownNoise(draws))
    for t, (x, y) in enumerate(zip(X, Y, strict=True)):
        close(learner.predict(), run["theta"][t])
        before = learner.predict()
        learner.step(gradients(squared_loss, learner, x, y)[0])
        share = min(1.0, 1.0 / (t + 2))
        vertex = (learner.predict() - before) / share + before
        assert int(learner.domain.scores(vertex).argmax()) == run["idx"][t]
    close(learner.predict(), run["theta"][12])
