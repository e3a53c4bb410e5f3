"""OONS, CA-OONS and CLA-OONS replay what an independent implementation computed: alone, in a batch, and as TorchScript."""

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.reference.ca_oons import CAOONSReference
from torchonline import CAOONS, CLAOONS, OONS

VECTORS = json.loads((Path(__file__).parents[1] / "data" / "parameter_free.json").read_text())
FORMS = ("single", "batch", "script")
DIMS = (1, 3)
TOLERANCE = 1e-9


def real(values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def close(seen: Any, expected: Any) -> None:
    """To the tolerance, relative to numbers above 1; for each learner of a batch."""
    wanted = np.asarray(expected, dtype=float)
    np.testing.assert_allclose(np.asarray(seen), np.broadcast_to(wanted, seen.shape), rtol=TOLERANCE, atol=TOLERANCE)


def made(cls: type, form: str, dim: int, **options: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of meta="paper"
        learner = cls(dim, batch_shape=(2,) if form == "batch" else (), **options)
    return torch.jit.script(learner) if form == "script" else learner


def answer(vectors: dict[str, Any], t: int, points: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients and values of the loss of a round, at points ``(*B, N, d)``."""
    H, b = real(vectors["H"]), real(vectors["b"][t])
    return points @ H - b, ((points @ H) * points).sum(-1) / 2.0 - points @ b


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dim", DIMS)
@pytest.mark.parametrize("preset", ["default", "paper", "scaled", "tight"])
def test_oons(preset: str, dim: int, form: str) -> None:
    vectors = VECTORS[str(dim)]
    run = vectors["runs"][f"oons-{preset}"]
    learner = made(OONS, form, dim, lipschitz=run["z"] / 2.0, radius_bound=run["radius"], preset=preset)
    for t, gradient in enumerate(vectors["g"]):
        close(learner.predict(), run["x"][t])
        close(learner.rate, run["eta"][t])
        more = run["rounds"].get(str(t))
        if more:
            curvature = learner.curvature
            close(curvature.matrix + curvature.identity_multiple[..., None, None] * torch.eye(dim), more["A"])
        learner.step(real(gradient).expand(learner.decision.shape))
        if more:
            close(learner.centre, more["center"])
    assert int(learner.clipped_rounds.sum()) == 0


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dim", DIMS)
@pytest.mark.parametrize("name", ["values-paper", "paper-paper", "linear-paper", "linear-default", "values-default"])
def test_ca_oons(name: str, dim: int, form: str) -> None:
    """The vectors' gradients of one run pass ``lipschitz``, which cuts ours: up to there, and see below."""
    vectors = VECTORS[str(dim)]
    run, (meta, preset) = vectors["runs"][f"ca-{name}"], name.split("-")
    learner = made(CAOONS, form, dim, lipschitz=run["G"], horizon=len(run["x"]), meta=meta, preset=preset)
    for t, x in enumerate(run["x"]):
        close(learner.predict(), x)
        more = run["rounds"].get(str(t))
        if more:
            close(learner.meta.decision, more["weights"])
            close(learner.bases.decision, more["points"])
        gradients, values = answer(vectors, t, learner.queries())
        if float(gradients[..., : len(run["D"]), :].norm(dim=-1).max()) > run["G"]:
            break
        learner.step(gradients, values)
    assert t == {"values-default": {1: 6, 3: 1}[dim]}.get(name, len(run["x"]) - 1)


@pytest.mark.parametrize("dim", DIMS)
def test_ca_oons_with_cuts(dim: int) -> None:
    """The reference replays that run to its end where it does not cut, and we the reference where it does."""
    vectors = VECTORS[str(dim)]
    run = vectors["runs"]["ca-values-default"]
    options: dict[str, Any] = {"lipschitz": run["G"], "horizon": len(run["x"]), "meta": "values", "preset": "default"}
    learner = made(CAOONS, "single", dim, **options)
    uncut, cut = (CAOONSReference(dim, guard=guard, **options) for guard in (False, True))
    assert cut.radii.tolist() == run["D"]
    for t, x in enumerate(run["x"]):
        close(uncut.play(), x)
        close(learner.predict(), cut.play())
        if str(t) in run["rounds"]:
            close(uncut.master.shares, run["rounds"][str(t)]["shares"])
        for reference in (uncut, cut):
            reference.learn(*(each.numpy() for each in answer(vectors, t, torch.from_numpy(reference.points))))
        learner.step(*answer(vectors, t, learner.queries()))
    assert int(learner.meta.clipped_rounds) == cut.clipped
    assert int(learner.bases.clipped_rounds.sum()) == sum(base.clipped for base in cut.bases) > 0


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dim", DIMS)
def test_cla_oons(dim: int, form: str) -> None:
    vectors = VECTORS[str(dim)]
    run = vectors["runs"]["cla-paper"]
    learner = made(CLAOONS, form, dim, gradient_scale=run["B0"], length_scale=run["D1"], preset="paper")
    for t, x in enumerate(run["x"]):
        close(learner.predict(), x)
        close(learner.radius, run["D"][t])
        close(learner.error_bound, run["z"][t])
        close(learner.rate, run["eta"][t])
        starts = int(learner.restart_count.max())
        learner.step(answer(vectors, t, learner.queries())[0])
        close(learner.error_bound, run["B"][t])
        assert int(learner.restart_count.max()) - starts == run["reset"][t]
        if str(t) in run["rounds"]:
            close(learner.centre, run["rounds"][str(t)]["center"])
