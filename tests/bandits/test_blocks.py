"""Blocks of rounds against independent numbers, slow references, single steps, and what they promise."""

import copy
import json
import math
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import torchonline
from tests.core.test_threads import together
from tests.fake_device import environment
from tests.interruption import interrupted, lines_of
from tests.learners import MODELS, VARIANTS, close, differences, estimator_of, public_classes, snapshot
from tests.reference.blocks import HeavyTailBlocks, LocalGLBBlocks, SystemIdentificationBlocks
from tests.reference.ridge import RidgeReference
from torchonline import (
    UCB,
    AdaptiveRidgeRegression,
    HeavyTailRegression,
    LocalGLMRegression,
    RidgeRegression,
    SystemIdentification,
)
from torchonline.bandits.blocks import rows_of_block
from torchonline.bandits.estimator import Estimator
from torchonline.links import Binomial, CustomLink, Gamma, Gaussian, Link, Logistic, Poisson

pytestmark = pytest.mark.fast

D = torch.float64
# Sizes of the blocks of the tests: one round, fewer than features, and many.
SIZES = (1, 4, 3, 10, 32, 50)
LINKS = {"logistic": Logistic(), "poisson": Poisson(), "binomial": Binomial(5), "gaussian": Gaussian(0.5)}
VECTORS = json.loads((Path(__file__).parents[1] / "data" / "blocks.json").read_text())["cases"]
NAMES = {"theta": "theta_hat", "V": "V", "G": "V", "A": "A", "bias": "bias", "beta2": "squared_radius"}


def tensor(value: Any) -> Any:
    return None if value is None else torch.tensor(value, dtype=D)


# What independent implementations say.


def of_vectors(case: dict[str, Any], batch_shape: tuple[int, ...]) -> Any:
    """A learner with the options of a case. The vectors have the classic radius of ridge regression."""
    options = case["options"] | ({"radius": "classic"} if case["learner"] == "RidgeRegression" else {})
    if "link" in case:
        options |= {"link": LINKS[case["link"]], "feature_bound": 10.0}
    return getattr(torchonline, case["learner"])(case["dim"], batch_shape=batch_shape, **options)


def errors(learner: Any, block: dict[str, Any]) -> Iterator[float]:
    """How far a learner is from what a block of the vectors leaves, relative to what is above 1."""
    for name in (*NAMES, "radius"):
        if name in block:
            seen, wanted = learner.radius() if name == "radius" else getattr(learner, NAMES[name]), tensor(block[name])
            yield float(((seen - wanted).abs() / wanted.abs().clamp(min=1.0)).max())


@pytest.mark.parametrize("form", ["single", "fleet", "script"])
@pytest.mark.parametrize("case", VECTORS, ids=lambda case: f"{case['learner']}-{case.get('link', '')}")
def test_replay(case: dict[str, Any], form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """To 1e-9; links to 1e-7, without the millionth by which `Link.curvature` lowers its quotient, for rounding."""
    tolerance, curvature = 1e-9, Link.curvature
    if "link" in case:
        tolerance = 1e-7 if form != "script" else 3e-6
        monkeypatch.setattr(Link, "curvature", lambda *arguments: curvature(*arguments) / (1.0 - 1e-6))
    if form == "script":
        monkeypatch.undo()
    batch_shape = (2,) if form == "fleet" else ()
    learner = of_vectors(case, batch_shape)
    if form == "script":
        learner = torch.jit.script(learner)
    for block in case["blocks"]:
        values = [tensor(block["x"]), tensor(block["reward"]), tensor(block.get("noise_scale"))]
        given = [None if value is None else value.expand(*batch_shape, *value.shape) for value in values]
        learner.learn(*given, block_size=len(block["x"]))
        assert max(errors(learner, block)) < tolerance
    assert [len(block["x"]) for block in case["blocks"]] == list(SIZES)


HEAVY: dict[str, dict[str, Any]] = {
    "order 2": {},
    "order 1.5": {"moment_order": 1.5},
    "order 1.3": {"moment_order": 1.3, "theta_bound": 0.3, "ridge": 0.1, "delta": 0.1, "radius_scale": 0.5},
    "no noise": {"moment_order": 1.9, "noise_scale": 0.0, "theta_bound": 10.0},
    "symmetric": {"noise": "symmetric", "theta_bound": 2.0},
}
Block = tuple[np.ndarray, np.ndarray, np.ndarray | None]


def blocks_of(dim: int, *, outputs: int = 0, outlier: float = 1e9, seed: int = 0) -> list[Block]:
    """Features of many sizes, zero rows, heavy tails, outliers; in every other block noise scales, of which some are 0."""
    random, blocks = np.random.default_rng(seed), []
    for t, rows in enumerate(SIZES):
        x = random.standard_normal((rows, dim)) * 10.0 ** random.uniform(-1.5, 0.5, (rows, 1))
        x[3::7] = 0.0
        shape = (rows, outputs) if outputs else (rows,)
        reward = 0.5 * random.standard_t(2.1, shape)
        reward[5::11] = outlier
        blocks.append((x, reward, None if t % 2 else random.choice([0.0, 0.1, 1.0, 3.0], shape)))
    return blocks


def given(*values: np.ndarray | None) -> list[Any]:
    return [None if value is None else torch.from_numpy(value) for value in values]


def fleet_of(blocks: tuple[Block, ...]) -> list[Any]:
    """The blocks of two learners, as one of a fleet."""
    return [None if values[0] is None else torch.from_numpy(np.stack(values)) for values in zip(*blocks, strict=True)]


def assert_near(seen: Any, expected: Any, tolerance: float = 1e-9) -> None:
    """Equal to a tolerance, relative to the largest entry where that is above 1."""
    size = max(1.0, float(np.abs(expected).max()))
    np.testing.assert_allclose(np.asarray(seen) / size, np.asarray(expected) / size, rtol=tolerance, atol=tolerance)


def follow(learner: Any, references: list[Any], streams: list[list[Block]], names: dict[str, str]) -> None:
    """Teach a fleet of two learners, and a reference for each, block by block."""
    for blocks in zip(*streams, strict=True):
        learner.learn(*fleet_of(blocks), block_size=len(blocks[0][0]))
        for i, (reference, block) in enumerate(zip(references, blocks, strict=True)):
            reference.learn(*block)
            for mine, theirs in names.items():
                assert_near(getattr(learner, mine)[i], getattr(reference, theirs))
            assert_near(learner.radius()[i], reference.radius())
            probes = np.random.default_rng(0).standard_normal((4, learner.dim))
            both = torch.from_numpy(np.stack([probes, probes]))
            np.testing.assert_allclose(learner.width(both)[i].numpy(), reference.width(probes), rtol=1e-9)


@pytest.mark.parametrize("dim", [1, 3, 8])
@pytest.mark.parametrize("options", HEAVY.values(), ids=HEAVY)
def test_heavy_tails_agree_with_reference(dim: int, options: dict[str, Any]) -> None:
    """A fleet of two learners with data of their own, and a single learner."""
    # Symmetric noise is not clipped: an outlier enters A with its square.
    outlier = 1e2 if options.get("noise") == "symmetric" else 1e9
    streams = [blocks_of(dim, outlier=outlier, seed=seed) for seed in (0, 1)]
    if options.get("noise_scale") == 0.0:
        streams = [[(x, reward, None) for x, reward, _ in blocks] for blocks in streams]
    fleet, references = HeavyTailRegression(dim, batch_shape=(2,), **options), [HeavyTailBlocks(dim, **options)] * 2
    references = [HeavyTailBlocks(dim, **options) for _ in streams]
    follow(fleet, references, streams, {"theta_hat": "theta", "V": "V", "A": "A", "bias": "bias", "P": "P"})
    single = HeavyTailRegression(dim, **options)
    for block in streams[1]:
        single.learn(*given(*block), block_size=len(block[0]))
    for name, value in snapshot(single).items():
        whole = snapshot(fleet)[name]
        close(value, whole[1] if whole.dim() > value.dim() else whole)


@pytest.mark.parametrize("dim", [1, 3, 8])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"moment_order": 1.5},
        {"moment_order": 1.1, "noise_scale": (0.2, 3.0, 1.0), "theta_bound": (0.3, 2.0, 5.0), "ridge": 0.1},
    ],
    ids=str,
)
def test_systems_agree_with_reference(dim: int, options: dict[str, Any]) -> None:
    streams = [blocks_of(dim, outputs=3, seed=seed) for seed in (0, 1)]
    references = [SystemIdentificationBlocks(dim, 3, **options) for _ in streams]
    names = {"theta_hat": "theta", "V": "V", "A": "A", "bias": "bias", "P": "P"}
    follow(SystemIdentification(dim, 3, batch_shape=(2,), **options), references, streams, names)


def clicks_of(link: Link, seed: int) -> list[Block]:
    """Features of all lengths up to 2, zero rows, rewards of the link that are now and then far from expected."""
    random, generator, blocks = np.random.default_rng(seed), torch.Generator().manual_seed(seed), []
    theta = np.array([0.5, -0.6, 0.4])
    for t, rows in enumerate(SIZES):
        x = random.standard_normal((rows, 3))
        x *= random.uniform(0.0, 2.0, (rows, 1)) / np.linalg.norm(x, axis=-1, keepdims=True)
        x[3::7] = 0.0
        rewards = link.sample(torch.from_numpy(x @ theta), generator)
        rewards[5::11] = link.possible(tensor(8.0))
        scales = link.noise_scale * random.uniform(0.5, 2.0, rows)
        blocks.append((x, rewards.numpy(), None if t % 2 else scales))
    return blocks


@pytest.mark.parametrize("ridge", [None, 0.2])
@pytest.mark.parametrize("theta_bound", [1.0, 4.0])
@pytest.mark.parametrize("name", LINKS)
def test_links_agree_with_reference(name: str, theta_bound: float, ridge: float | None) -> None:
    link = LINKS[name]
    options: dict[str, Any] = {"link": link, "theta_bound": theta_bound, "feature_bound": 2.0, "ridge": ridge}
    fleet = LocalGLMRegression(3, batch_shape=(2,), **options)
    references = [
        LocalGLBBlocks(
            3,
            type(link).__name__,
            unimodal=link.is_unimodal,
            concordance=fleet.concordance,
            bound=theta_bound,
            ridge=fleet.ridge,
            delta=fleet.delta,
            scale=link.noise_scale,
        )
        for _ in range(2)
    ]
    streams = [clicks_of(link, seed) for seed in (0, 1)]
    follow(fleet, references, streams, {"theta_hat": "theta", "V": "V", "squared_radius": "squared"})


@pytest.mark.parametrize("kind", ["mixture", "classic"])
def test_ridge_agrees_with_reference(kind: str) -> None:
    learner, reference = RidgeRegression(3, radius=kind), RidgeReference(3, radius=kind)
    for x, reward, noise_scale in blocks_of(3, outlier=30.0):
        scales = None if noise_scale is None else np.maximum(noise_scale, 0.05)
        learner.learn(*given(x, reward, scales), block_size=len(x))
        for i in range(len(x)):
            reference.step(x[i], reward[i], None if scales is None else scales[i])
        assert_near(learner.theta_hat, reference.theta)
        assert_near(learner.V, reference.V)
        assert_near(learner.radius(), reference.radius())
