"""Blocks of rounds against independent numbers, slow references, single steps, and what they promise."""

import copy
import json
import math
import sys
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import torchonline
from tests.core.test_threads import together
from tests.interruption import interrupted, lines_of
from tests.learners import MODELS, by_name, close, differences, public_classes, round_of, snapshot
from tests.reference.blocks import HeavyTailBlocks, LocalGLBBlocks, SystemIdentificationBlocks
from tests.reference.ridge import RidgeReference
from torchonline import (
    UCB,
    AdaptiveRidgeRegression,
    DisjointArms,
    HeavyTailRegression,
    LocalGLMRegression,
    RidgeRegression,
    SystemIdentification,
)
from torchonline.links import Binomial, CustomLink, Gamma, Gaussian, Link, Logistic, Poisson
from torchonline.models import BanditHead
from torchonline.regression.blocks import rows_of_block
from torchonline.regression.estimator import Estimator
from torchonline.testing.gradients_and_cost import collect

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


@pytest.mark.parametrize("form", ["single", "batch", pytest.param("script", marks=pytest.mark.slow)])
@pytest.mark.parametrize("case", VECTORS, ids=lambda case: f"{case['learner']}-{case.get('link', '')}")
def test_replay(case: dict[str, Any], form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """To 1e-9; links to 1e-7, without the millionth by which `Link.curvature` lowers its quotient, for rounding."""
    tolerance, curvature = 1e-9, Link.curvature
    if "link" in case:
        tolerance = 1e-7 if form != "script" else 3e-6
        monkeypatch.setattr(Link, "curvature", lambda *arguments: curvature(*arguments) / (1.0 - 1e-6))
    if form == "script":
        monkeypatch.undo()
    batch_shape = (2,) if form == "batch" else ()
    learner = of_vectors(case, batch_shape)
    if form == "script":
        learner = torch.jit.script(learner)
    for block in case["blocks"]:
        values = [tensor(block["x"]), tensor(block["reward"]), tensor(block.get("noise_scale"))]
        given = [None if value is None else value.expand(*batch_shape, *value.shape) for value in values]
        by_name(learner.learn, *given, block_size=len(block["x"]))
        assert max(errors(learner, block)) < tolerance
    assert [len(block["x"]) for block in case["blocks"]] == list(SIZES)


HEAVY: dict[str, dict[str, Any]] = {
    "order 2": {},
    "order 1.5": {"moment_order": 1.5},
    "order 1.3": {"moment_order": 1.3, "theta_bound": 0.3, "ridge": 0.1, "delta": 0.1, "radius_scale": 0.5},
    "no noise": {"moment_order": 1.9, "noise_scale": 0.0, "theta_bound": 10.0},
    "symmetric": {"noise": "symmetric", "theta_bound": 2.0},
    "corrupted": {"corrupted_rounds": 5},
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


def batch_of(blocks: tuple[Block, ...]) -> list[Any]:
    """The blocks of two learners, as one of a batch."""
    return [None if values[0] is None else torch.from_numpy(np.stack(values)) for values in zip(*blocks, strict=True)]


def assert_near(seen: Any, expected: Any, tolerance: float = 1e-9) -> None:
    """Equal to a tolerance, relative to the largest entry where that is above 1."""
    size = max(1.0, float(np.abs(expected).max()))
    np.testing.assert_allclose(np.asarray(seen) / size, np.asarray(expected) / size, rtol=tolerance, atol=tolerance)


def follow(
    learner: Any, references: list[Any], streams: list[list[Block]], names: dict[str, str], tolerance: float = 1e-9
) -> None:
    """Teach a batch of two learners, and a reference for each, block by block."""
    for blocks in zip(*streams, strict=True):
        by_name(learner.learn, *batch_of(blocks), block_size=len(blocks[0][0]))
        for i, (reference, block) in enumerate(zip(references, blocks, strict=True)):
            reference.learn(*block)
            for mine, theirs in names.items():
                assert_near(getattr(learner, mine)[i], getattr(reference, theirs), tolerance)
            assert_near(learner.radius()[i], reference.radius(), tolerance)
            probes = np.random.default_rng(0).standard_normal((4, learner.dim))
            both = torch.from_numpy(np.stack([probes, probes]))
            np.testing.assert_allclose(learner.width(both)[i].numpy(), reference.width(probes), rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("dim", [1, 3, 8])
@pytest.mark.parametrize("options", HEAVY.values(), ids=HEAVY)
def test_heavy_tails_agree_with_reference(dim: int, options: dict[str, Any]) -> None:
    """A batch of two learners with data of their own, and a single learner."""
    # Symmetric noise is not clipped: an outlier enters A with its square.
    outlier = 1e2 if options.get("noise") == "symmetric" else 1e9
    streams = [blocks_of(dim, outlier=outlier, seed=seed) for seed in (0, 1)]
    if options.get("noise_scale") == 0.0:
        streams = [[(x, reward, None) for x, reward, _ in blocks] for blocks in streams]
    batched, references = HeavyTailRegression(dim, batch_shape=(2,), **options), [HeavyTailBlocks(dim, **options)] * 2
    references = [HeavyTailBlocks(dim, **options) for _ in streams]
    follow(batched, references, streams, {"theta_hat": "theta", "V": "V", "A": "A", "bias": "bias", "P": "P"})
    single = HeavyTailRegression(dim, **options)
    for block in streams[1]:
        by_name(single.learn, *given(*block), block_size=len(block[0]))
    for name, value in snapshot(single).items():
        whole = snapshot(batched)[name]
        close(value, whole[1] if whole.dim() > value.dim() else whole)


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.parametrize(("ridge", "corruption"), [(None, 0.0), (0.2, 0.0), (None, 5.0)])
@pytest.mark.parametrize("theta_bound", [1.0, 4.0])
@pytest.mark.parametrize("name", LINKS)
def test_links_agree_with_reference(name: str, theta_bound: float, ridge: float | None, corruption: float) -> None:
    link = LINKS[name]
    options: dict[str, Any] = {"link": link, "theta_bound": theta_bound, "feature_bound": 2.0, "ridge": ridge}
    options |= {"corruption": corruption}
    batched = LocalGLMRegression(3, batch_shape=(2,), **options)
    references = [
        LocalGLBBlocks(
            3,
            type(link).__name__,
            unimodal=link.is_unimodal,
            corruption=corruption,
            concordance=batched.concordance,
            bound=theta_bound,
            ridge=batched.ridge,
            delta=batched.delta,
            scale=link.noise_scale,
        )
        for _ in range(2)
    ]
    streams = [clicks_of(link, seed) for seed in (0, 1)]
    # Both stop within 1e-12 of a point on the ball; exp(8), the slope of a link there, is a factor on that.
    follow(batched, references, streams, {"theta_hat": "theta", "V": "V", "squared_radius": "squared"}, tolerance=1e-7)


@pytest.mark.parametrize("kind", ["mixture", "classic"])
def test_ridge_agrees_with_reference(kind: str) -> None:
    learner, reference = RidgeRegression(3, radius=kind), RidgeReference(3, radius=kind)
    for x, reward, noise_scale in blocks_of(3, outlier=30.0):
        scales = None if noise_scale is None else np.maximum(noise_scale, 0.05)
        by_name(learner.learn, *given(x, reward, scales), block_size=len(x))
        for i in range(len(x)):
            reference.step(x[i], reward[i], None if scales is None else scales[i])
        assert_near(learner.theta_hat, reference.theta)
        assert_near(learner.V, reference.V)
        assert_near(learner.radius(), reference.radius())


# Blocks and single steps.


def rounds_of(learner: Any, count: int, seed: int = 0) -> list[Tensor]:
    """Ordinary features, responses that the learner may be given, and noise scales."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn((*learner.batch_shape, *shape), generator=generator, dtype=D)

    x, response = normal(count, learner.dim), normal(count, *learner.output_shape)
    scales = 0.5 + torch.rand(response.shape, generator=generator, dtype=D)
    return [0.5 * x, learner.possible_reward(response), scales]


def assert_close_state(one: Any, other: Any, tolerance: float = 1e-9, but: tuple[str, ...] = ()) -> None:
    theirs = snapshot(other)
    for name, value in snapshot(one).items():
        if name not in but:
            close(value, theirs[name], tolerance)


@pytest.mark.parametrize("block_size", [None, 1, 2, 7, 40, 1000])
@pytest.mark.parametrize("options", [{}, {"batch_shape": (2, 3)}, {"restart_every": 9}, {"radius": "classic"}], ids=str)
def test_ridge_regression_is_the_same_in_blocks_of_any_size(block_size: int | None, options: dict[str, Any]) -> None:
    learner, twin = RidgeRegression(4, **options), RidgeRegression(4, **options)
    for seed in (0, 1):
        log = rounds_of(learner, 40, seed)
        by_name(learner.learn, *log, block_size=block_size)
        by_name(twin.step, *log)
        assert_close_state(learner, twin)


ONE_ROUND = [
    HeavyTailRegression(3),
    HeavyTailRegression(3, moment_order=1.5),
    HeavyTailRegression(3, noise="symmetric"),
    SystemIdentification(3, 2),
    *(LocalGLMRegression(3, link=link, theta_bound=5.0, feature_bound=6.0) for link in LINKS.values()),
]


@pytest.mark.slow
@pytest.mark.parametrize("learner", ONE_ROUND, ids=lambda learner: f"{type(learner).__name__}-{learner.extra_repr()}")
def test_a_block_of_one_round_is_a_step(learner: Any) -> None:
    """But for the bias, of which a block keeps the smaller of two bounds, and a step a bound between them."""
    learner = copy.deepcopy(learner)
    by_name(learner.step, *rounds_of(learner, 30))
    for x, response, scale in zip(*rounds_of(learner, 20, seed=1), strict=True):
        stepped = copy.deepcopy(learner)
        stepped.step(0.2 * x, response, noise_scale=scale)
        learner.learn(0.2 * x, response, noise_scale=scale)
        assert_close_state(learner, stepped, 1e-8, but=("bias",))
        if hasattr(learner, "bias"):
            assert stepped.bias - 1e-12 <= learner.bias <= stepped.bias + 0.1
            learner.bias.copy_(stepped.bias)


def test_a_block_goes_where_a_step_is_cut() -> None:
    """A count of 8 where predictors are at most 1: a step ends at the bound, a block's minimum is beyond."""
    stepped, learner = (LocalGLMRegression(1, link=Poisson(), ridge=0.5) for _ in range(2))
    stepped.step(torch.ones(1), 8.0)
    learner.learn(torch.ones(1), 8.0)
    assert float(stepped.theta_hat) == pytest.approx(1.0)
    minimum = float(learner.theta_hat)
    assert math.exp(minimum) + 0.5 * minimum == pytest.approx(8.0, abs=1e-9)


# Which learners have blocks, and of which sizes.


def test_blocks_are_those_of_the_update_itself() -> None:
    """A subclass with rounds of its own learns in order, and one without keeps the blocks."""

    class Twice(RidgeRegression):
        def _observe(self, x: Tensor, reward: Tensor, noise_scale: Tensor) -> None:
            super()._observe(x, 2.0 * reward, noise_scale)

    class Counting(RidgeRegression):
        def _learn_round(self, x: Tensor, reward: Tensor, noise_scale: Tensor) -> None:
            self._observe(x, reward, noise_scale)

    class Wider(RidgeRegression):
        def radius(self) -> Tensor:
            return 2.0 * self.theta_bound + self.logdet

    class WithBlocks(Twice):
        def _observe_block(self, x: Tensor, reward: Tensor, noise_scale: Tensor, count: Tensor) -> None:
            super()._observe_block(x, 2.0 * reward, noise_scale, count)

    kinds = {Twice: False, Counting: False, Wider: True, WithBlocks: True}
    assert {cls: cls(2).has_blocks for cls in kinds} == kinds
    for cls in kinds:
        learner, twin = cls(2), cls(2)
        log = rounds_of(learner, 20)
        by_name(learner.learn, *log, block_size=6)
        by_name(twin.step, *log)
        assert_close_state(learner, twin)


class Halving(RidgeRegression):
    def step(self, x: Any, reward: Any, noise_scale: Any = None) -> None:
        super().step(x, 0.5 * torch.as_tensor(reward), noise_scale=noise_scale)


class HalvingUCB(UCB):
    def step(self, inputs: Any, action: Any, reward: Any, noise_scale: Any = None) -> None:
        super().step(inputs, action, 0.5 * torch.as_tensor(reward), noise_scale=noise_scale)


class HalvingArms(DisjointArms):
    def step(self, inputs: Any, action: Any, reward: Any, noise_scale: Any = None) -> None:
        super().step(inputs, action, 0.5 * torch.as_tensor(reward), noise_scale=noise_scale)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Halving(2),
        lambda: HalvingUCB(RidgeRegression(2)),
        lambda: HalvingArms(RidgeRegression(2), 3),
        lambda: BanditHead(torch.nn.Identity(), HalvingUCB(RidgeRegression(2))),
    ],
    ids=["estimator", "policy", "arms", "head"],
)
def test_a_subclass_with_a_step_of_its_own_learns_by_it(make: Callable[[], Any]) -> None:
    learner, twin = make(), make()
    x, reward = torch.randn(40, 2, dtype=torch.float64), torch.randn(40, dtype=torch.float64)
    arguments: tuple[Any, ...] = round_of(learner, x, reward)
    if isinstance(learner, DisjointArms):
        assert not learner.has_blocks
        arguments = (x, torch.arange(40) % 3, reward)
    by_name(learner.learn, *arguments, block_size=8)
    by_name(twin.step, *arguments)
    assert differences(twin.state_dict(), learner.state_dict()) == []
    if not isinstance(learner, (DisjointArms, BanditHead)):
        before = copy.deepcopy(learner.state_dict())
        with pytest.raises(TypeError, match=f"mask: expected None for {type(learner).__name__}"):
            by_name(learner.learn, *arguments, mask=torch.ones(40, dtype=torch.bool))
        assert differences(before, learner.state_dict()) == []


def test_few_rounds_for_an_arm_are_learnt_in_order() -> None:
    """Bit for bit: below d / 8 rounds to an arm a block takes more time. A size of blocks is kept."""
    arms, twin, sized = (DisjointArms(HeavyTailRegression(32), 10) for _ in range(3))
    log = torch.randn(39, 32, dtype=torch.float64), torch.arange(39) % 10, torch.randn(39, dtype=torch.float64)
    by_name(arms.learn, *log)
    by_name(twin.step, *log)
    assert differences(snapshot(twin), snapshot(arms)) == []
    by_name(sized.learn, *log, block_size=39)
    assert differences(snapshot(twin), snapshot(sized)) != []


def test_lists_may_be_empty() -> None:
    arms, learner = DisjointArms(RidgeRegression(2), 4), RidgeRegression(2)
    before = snapshot(arms), snapshot(learner)
    arms.learn(np.zeros((0, 2)), [], [])
    arms.remove_actions(np.zeros(0, dtype=np.int64))
    learner.learn(np.zeros((0, 2)), [], mask=[])
    assert differences(before[0], snapshot(arms)) == differences(before[1], snapshot(learner)) == []


def test_these_learners_have_blocks() -> None:
    found = {cls.__name__ for case in MODELS if case.build().has_blocks for cls in [case.cls]}
    assert found == {"RidgeRegression", "HeavyTailRegression", "SystemIdentification", "LocalGLMRegression"}
    assert {cls.__name__ for cls in public_classes(Estimator)} > found
    # A step of a block may leave the interval that such a link is defined on.
    own = CustomLink(torch.cosh, torch.sinh, torch.cosh, R=1.0, C_mu=12.0)
    assert not any(LocalGLMRegression(2, link=link).has_blocks for link in (Gamma(12.0), own))


def sizes_of(learner: Any, learn: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The rows of the blocks that a learner makes."""
    sizes, observe = [], type(learner)._observe_block

    def counted(self: Any, x: Tensor, *rest: Tensor) -> None:
        sizes.append(x.size(-2))
        observe(self, x, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(type(learner), "_observe_block", counted)
        learn()
    return sizes


def test_blocks_grow_with_what_is_learnt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of d rows, then of an eighth of the rounds, of 8192 rows at most; and none that is longer than an epoch."""
    learner, log = RidgeRegression(3), rounds_of(RidgeRegression(3), 100)
    sizes = sizes_of(learner, lambda: by_name(learner.learn, *log), monkeypatch)
    expected: list[int] = []
    while sum(expected) < 100:
        expected.append(min(max(3, sum(expected) // 8), 100 - sum(expected)))
    assert sizes == expected
    assert sizes_of(learner, lambda: by_name(learner.learn, *log), monkeypatch)[0] == 100 // 8
    assert sizes_of(learner, lambda: by_name(learner.learn, *log, block_size=40), monkeypatch) == [40, 40, 20]
    assert [rows_of_block(learnt, 3) for learnt in (0, 24, 32, 2**16, 10**9)] == [3, 3, 4, 8192, 8192]
    # The rows that a learner has still to learn decide.
    batched = RidgeRegression(3, batch_shape=(2,))
    rows, mask = rounds_of(batched, 100), torch.ones(2, 100, dtype=torch.bool)
    mask[1, 6:] = False
    by_name(batched.learn, *rows, mask=mask)
    mask[1] = False
    assert sizes_of(batched, lambda: by_name(batched.learn, *rows, mask=mask), monkeypatch)[0] == 100 // 8
    # Restarts split blocks, and the blocks after them are short again.
    every = RidgeRegression(3, restart_every=40)
    assert max(sizes_of(every, lambda: by_name(every.learn, *log), monkeypatch)) <= 5
    assert max(sizes_of(every, lambda: by_name(every.learn, *log, block_size=99), monkeypatch)) <= 40


@pytest.mark.parametrize(
    "make", [RidgeRegression, HeavyTailRegression, lambda dim: LocalGLMRegression(dim, feature_bound=9.0)]
)
def test_a_log_is_its_blocks_one_after_another(make: Callable[[int], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Bit for bit: a log in one call, its blocks in a call each, and the log of a policy."""
    learner, twin, policy = make(3), make(3), UCB(make(3))
    log = rounds_of(learner, 100)
    sizes = sizes_of(learner, lambda: by_name(learner.learn, *log), monkeypatch)
    for block in zip(*(values.split(sizes) for values in log), strict=True):
        by_name(twin.learn, *block, block_size=len(block[0]))
    x, reward, scales = log
    policy.learn(x.unsqueeze(-2), torch.zeros(100, dtype=torch.int64), reward, noise_scale=scales)
    assert differences(snapshot(twin), snapshot(learner)) == []
    assert differences(snapshot(policy.estimator), snapshot(learner)) == []


@pytest.mark.slow
def test_a_host_that_may_not_wait_goes_by_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on an accelerator without checks of values: what the call has learnt decides, and Newton's method makes all steps."""
    monkeypatch.setattr(Estimator, "_can_ask", lambda self, value: False)
    learner = LocalGLMRegression(3, feature_bound=9.0)
    log = rounds_of(learner, 60)
    by_name(learner.learn, *log)
    assert sizes_of(learner, lambda: by_name(learner.learn, *log), monkeypatch)[:2] == [3, 3]
    monkeypatch.undo()
    twin = LocalGLMRegression(3, feature_bound=9.0)
    by_name(twin.learn, *log)
    by_name(twin.learn, *log, block_size=3)
    masked = torch.ones(60, dtype=torch.bool)
    assert int(learner.rounds) == int(twin.rounds) == 120
    learner, blind = LocalGLMRegression(3, feature_bound=9.0), LocalGLMRegression(3, feature_bound=9.0)
    by_name(learner.learn, *log, block_size=7, mask=masked)
    monkeypatch.setattr(Estimator, "_can_ask", lambda self, value: False)
    by_name(blind.learn, *log, block_size=7)
    assert_close_state(learner, blind)


# What blocks promise.


@pytest.mark.slow
@pytest.mark.parametrize("steps", [20, 2, 1, 0])
@pytest.mark.parametrize("name", LINKS)
def test_no_parameter_in_the_set_is_lost_but_by_its_rewards(name: str, steps: int) -> None:
    """The inequality of the proof, at random parameters: also where Newton's method stops early, and pays.

    |theta+ - theta|_V+^2 <= |theta_hat - theta|_V^2 + (growth of the squared radius)
                             - 2 sum (loss of the mixture - loss at theta).
    """
    link = LINKS[name]
    learner = LocalGLMRegression(3, link=link, theta_bound=2.0, feature_bound=2.0)
    vars(learner)["block_steps"] = steps
    theirs = LocalGLBBlocks(
        3,
        type(link).__name__,
        unimodal=link.is_unimodal,
        concordance=learner.concordance,
        bound=2.0,
        ridge=learner.ridge,
        delta=learner.delta,
        scale=link.noise_scale,
    )
    random, tried, tightest = np.random.default_rng(0), 0, math.inf
    for x, r, scale in clicks_of(link, 3):
        scale = np.full(len(x), link.noise_scale) if scale is None else scale
        before, beta = copy.deepcopy(learner), float(learner.squared_radius)
        by_name(learner.learn, *given(x, r, scale), block_size=len(x))
        V, V_after, theta_hat, after = (
            each.numpy() for each in (before.V, learner.V, before.theta_hat, learner.theta_hat)
        )
        z, q = x @ theta_hat, np.maximum(np.einsum("ni,ij,nj->n", x, np.linalg.inv(V), x), 1e-30)
        bounds = 2.0 * np.linalg.norm(x, axis=-1)
        mixture = [theirs.mixture(*each) for each in zip(z, q, bounds, r, scale**2, strict=True)]
        root = np.linalg.cholesky(np.linalg.inv(V))
        for _ in range(50):
            direction = root @ random.standard_normal(3)
            direction *= math.sqrt(max(beta, 0.0)) / math.sqrt(direction @ V @ direction) * random.uniform() ** 0.2
            theta = theta_hat + direction
            if np.linalg.norm(theta) > 2.0:
                theta *= random.uniform(0.5, 1.0) * 2.0 / np.linalg.norm(theta)
                if (theta - theta_hat) @ V @ (theta - theta_hat) > beta:
                    continue
            tried += 1
            excess = 2.0 * (np.array(mixture) - theirs.loss(x @ theta, r, scale**2)).sum()
            left = (after - theta) @ V_after @ (after - theta)
            right = (theta_hat - theta) @ V @ (theta_hat - theta) + float(learner.squared_radius) - beta - excess
            assert left <= right + 1e-9 * (1.0 + abs(excess))
            tightest = min(tightest, right - left)
    assert tried > 100
    assert tightest < 5.0 or steps < 20


def misses(learner: Any, link: Link | None, noise: Callable[[tuple[int, ...]], Tensor], blocks: tuple[int, ...]) -> int:
    """How many learners of a batch miss the truth after some block, on features along their errors."""
    truth = torch.tensor([0.6, -0.3], dtype=D)
    (count,) = learner.batch_shape
    generator = torch.Generator().manual_seed(1)
    missed = torch.zeros(count, dtype=torch.bool)
    for rows in blocks:
        along_error = (learner.theta_hat - truth).unsqueeze(-2)
        x = along_error + 0.3 * torch.randn(count, rows, 2, generator=generator, dtype=D)
        x = torch.nn.functional.normalize(x, dim=-1)
        reward = x @ truth + noise((count, rows)) if link is None else link.sample(x @ truth, generator)
        learner.learn(x, reward, block_size=rows)
        error = learner.theta_hat - truth
        square = (error * torch.linalg.solve(learner.width_matrix(), error)).sum(-1)
        missed |= square > learner.radius() ** 2
    return int(missed.sum())


BLOCKS = (2, 2, 4, 8, 16, 32, 64, 64, 64, 64)


def noise_of(name: str, scale: float = 1.0) -> Callable[[tuple[int, ...]], Tensor]:
    """Noise of standard deviation 1, times a scale: normal, with two moments only, and rare large jumps."""
    random = np.random.default_rng(2)

    def draw(shape: tuple[int, ...]) -> Tensor:
        if name == "normal":
            values = random.standard_normal(shape)
        elif name == "student":
            values = random.standard_t(2.1, shape) / math.sqrt(21.0)
        else:
            jumps = random.uniform(size=shape) < 0.02
            values = np.where(jumps, 7.0, -1.0 / 7.0)
        return torch.from_numpy(scale * values)

    return draw


SET: dict[str, Any] = {"delta": 0.5, "batch_shape": (500,)}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["normal", "student", "jumps"])
def test_heavy_tails_miss_as_seldom_as_they_claim(name: str) -> None:
    """500 learners with a delta of 1/2."""
    assert misses(HeavyTailRegression(2, noise_scale=1.0, **SET), None, noise_of(name), BLOCKS) < 125


@pytest.mark.slow
@pytest.mark.parametrize("name", LINKS)
def test_links_miss_as_seldom_as_they_claim(name: str) -> None:
    link = LINKS[name]
    assert misses(LocalGLMRegression(2, link=link, **SET), link, noise_of("normal"), BLOCKS) < 165


@pytest.mark.slow
def test_the_count_of_misses_sees_what_is_wrong() -> None:
    """Noise of another scale than claimed, and a shock that the rounds of a block have in common."""
    normal = noise_of("normal")
    assert misses(HeavyTailRegression(2, noise_scale=1.0, **SET), None, noise_of("normal", 30.0), BLOCKS) > 250
    assert misses(LocalGLMRegression(2, link=Gaussian(0.25), **SET), None, noise_of("normal", 0.5), BLOCKS) > 250
    shocks = misses(
        HeavyTailRegression(2, noise_scale=1.0, **SET), None, lambda shape: normal((500, 1)).expand(shape), BLOCKS
    )
    assert shocks > 250


# Learners of a batch that learn some of the rounds, and epochs.


MAKERS: dict[str, Callable[..., Any]] = {
    "ridge": RidgeRegression,
    "heavy": HeavyTailRegression,
    "symmetric": lambda dim, **options: HeavyTailRegression(dim, noise="symmetric", **options),
    "system": lambda dim, **options: SystemIdentification(dim, 2, **options),
    "local": lambda dim, **options: LocalGLMRegression(dim, feature_bound=9.0, **options),
    "adaptive": AdaptiveRidgeRegression,
}


def of_member(values: list[Tensor], member: int, rows: Tensor) -> list[Tensor]:
    return [each[member][rows] for each in values]


@pytest.mark.slow
@pytest.mark.parametrize("restart_every", [None, 7, 1])
@pytest.mark.parametrize("block_size", [1, 5, 40])
@pytest.mark.parametrize("name", MAKERS)
def test_a_mask_says_who_learns(name: str, block_size: int, restart_every: int | None) -> None:
    """Three learners: one learns all rounds, one some of them, one none. They do as they would alone."""
    if restart_every is not None and name in ("local", "system"):
        return
    options = {} if restart_every is None else {"restart_every": restart_every}
    batched = MAKERS[name](3, batch_shape=(3,), **options)
    singles = [MAKERS[name](3, **options) for _ in range(3)]
    rows_at_once = min(block_size, restart_every or block_size)  # no block is longer than an epoch
    generator = torch.Generator().manual_seed(5)
    for seed in (0, 1):
        log, mask = rounds_of(batched, 23, seed), torch.rand(3, 23, generator=generator) < 0.6
        mask[0], mask[2] = True, False
        by_name(batched.learn, *log, block_size=block_size, mask=mask)
        for i, single in enumerate(singles):
            for first in range(0, 23, rows_at_once):
                rows = torch.arange(23)[first : first + rows_at_once]
                by_name(single.learn, *of_member(log, i, rows[mask[i, rows]]), block_size=block_size)
            for key, value in snapshot(single).items():
                whole = snapshot(batched)[key]
                # One that learns nothing keeps every bit.
                close(whole[i] if whole.dim() > value.dim() else whole, value, 1e-9 if i < 2 else 0.0)
    assert batched.rounds[2] == 0


@pytest.mark.parametrize("name", MAKERS)
def test_a_mask_of_one_learner(name: str) -> None:
    """It picks rows; a mask of nothing, or of no rows, leaves every bit."""
    learner, twin = MAKERS[name](3), MAKERS[name](3)
    log, mask = rounds_of(learner, 20), torch.arange(20) % 3 == 0
    by_name(learner.learn, *log, mask=mask.tolist(), block_size=20)
    by_name(twin.learn, *(values[mask] for values in log), block_size=20)
    assert_close_state(learner, twin)
    before = snapshot(learner)
    with pytest.raises(TypeError, match=r"^mask: expected booleans, True where a round is learnt, got list of int64$"):
        by_name(learner.learn, *log, mask=mask.int().tolist())
    by_name(learner.learn, *log, mask=torch.zeros(20, dtype=torch.bool))
    by_name(learner.learn, *(values[:0] for values in log), mask=torch.zeros(0, dtype=torch.bool))
    by_name(learner.learn, *(values[0] for values in log), mask=np.zeros((), dtype=bool))
    assert differences(before, snapshot(learner)) == []
    by_name(learner.learn, *(values[0] for values in log), mask=np.ones((), dtype=bool))
    by_name(twin.learn, *(values[:1] for values in log))
    assert_close_state(learner, twin)


@pytest.mark.slow
@pytest.mark.parametrize("block_size", [1, 4, 9, 100])
@pytest.mark.parametrize("name", ["ridge", "heavy", "symmetric", "adaptive"])
def test_epochs_end_where_they_should(name: str, block_size: int) -> None:
    """A learner that starts anew after nine rounds does as one that is reset then: blocks are split there."""
    for count in (8, 9, 10, 27, 31):
        learner, twin = MAKERS[name](3, restart_every=9), MAKERS[name](3)
        log = rounds_of(learner, count)
        by_name(learner.learn, *log, block_size=block_size)
        edges = sorted({*range(0, count, min(block_size, 9)), *range(0, count, 9), count})
        for first, last in pairwise(edges):
            by_name(twin.learn, *(values[first:last] for values in log), block_size=9)
            if last % 9 == 0:
                twin.reset()
        assert_close_state(learner, twin, but=("constants",))
        assert int(learner.rounds) == count % 9


# Corners.


def assert_whole(learner: Any, tolerance: float = 1e-3) -> None:
    """All is finite, matrices are symmetric, and inverses are inverses, in units in which matrices have a diagonal of 1."""
    assert all(bool(torch.isfinite(value).all()) for value in snapshot(learner).values())
    for name in ("V", "A"):
        if hasattr(learner, name):
            matrix, inverse = getattr(learner, name), getattr(learner, f"{name}_inv")
            assert torch.equal(matrix, matrix.mT)
            assert torch.equal(inverse, inverse.mT)
            size = matrix.double().diagonal(dim1=-2, dim2=-1).sqrt()
            outer = size.unsqueeze(-1) * size.unsqueeze(-2)
            close((matrix / outer) @ (inverse * outer), torch.eye(learner.dim, dtype=D).expand_as(outer), tolerance)


def corner(name: str, dim: int, generator: torch.Generator) -> dict[str, Any]:
    """Features, responses and noise scales at the end of what a learner may be given, and options."""
    x, r = (torch.randn(30, *shape, generator=generator, dtype=D) for shape in ((dim,), ()))
    unlike = torch.logspace(-6, 6, dim, dtype=D)
    return {
        "no features": {"x": 0.0 * x},
        "huge rewards": {"reward": 1e12 * r},
        "huge features": {"x": 1e6 * x},
        "tiny features": {"x": 1e-100 * x},
        "features of unlike scales": {"x": unlike * x},
        "almost no ridge": {"ridge": 1e-12},
        "a large ridge": {"ridge": 1e12},
        "hardly any noise": {"noise_scale": torch.full((30,), 1e-6, dtype=D)},
        "much noise": {"noise_scale": torch.full((30,), 1e12, dtype=D)},
        "a small bound": {"theta_bound": 1e-12},
        "a large bound": {"theta_bound": 1e12},
        "one row many times": {"x": x[:1].expand(30, dim)},
        "almost one row": {"x": x[:1] + 1e-7 * x},
        "one round": {"x": x[:1], "reward": r[:1]},
        "a small delta": {"delta": 1e-40},
    }[name]


CORNERS = (
    "no features",
    "huge rewards",
    "huge features",
    "tiny features",
    "features of unlike scales",
    "almost no ridge",
    "a large ridge",
    "hardly any noise",
    "much noise",
    "a small bound",
    "a large bound",
    "one row many times",
    "almost one row",
    "one round",
    "a small delta",
)


@pytest.mark.slow
@pytest.mark.parametrize("dim", [1, 4])
@pytest.mark.parametrize("where", CORNERS)
@pytest.mark.parametrize("name", ["ridge", "heavy", "symmetric", "local"])
def test_corners_give_a_whole_state_or_are_refused_by_name(name: str, where: str, dim: int) -> None:
    """Bit for bit the state before where they are refused; and ridge regression has solved its problem where it takes them."""
    generator = torch.Generator().manual_seed(3)
    odd = {"x": None, "reward": None, "noise_scale": None} | corner(where, dim, generator)
    options = {key: odd.pop(key) for key in list(odd) if key not in ("x", "reward", "noise_scale")}
    if name == "local" and where in ("huge features", "features of unlike scales"):
        odd["x"] = None  # which feature_bound excludes
    if name == "local" and where == "a large bound":
        options["theta_bound"] = 1e6
    for block_size in (None, 1, 30):
        learner = MAKERS[name](dim, **options)
        usual = dict(zip(("x", "reward", "noise_scale"), rounds_of(learner, 30), strict=True))
        values = {key: usual[key] if value is None else value for key, value in odd.items()}
        if values["x"].size(0) == 1:
            values = {key: value[:1] for key, value in values.items()}
        values["reward"] = learner.possible_reward(values["reward"])
        before = snapshot(learner)
        refused = refusal(lambda on=learner, given=values, n=block_size: on.learn(**given, block_size=n))
        if refused is not None:
            assert refused.startswith(("x: expected ", "reward: expected "))
            assert differences(before, snapshot(learner)) == []
            continue
        assert_whole(learner)
        assert int(learner.rounds) == len(values["x"])
        if name == "ridge":
            assert_solves(learner, **values)


def refusal(learn: Callable[[], None]) -> str | None:
    """Why a log is refused, if it is."""
    try:
        learn()
    except ValueError as error:
        return str(error)
    return None


def assert_solves(learner: Any, x: Tensor, reward: Tensor, noise_scale: Tensor) -> None:
    """Means and widths are those of a least squares problem that is solved without squares, from its rows."""
    weight = (learner.noise_scale / noise_scale).unsqueeze(-1)
    rows = torch.cat([weight * x, math.sqrt(learner.ridge) * torch.eye(learner.dim, dtype=D)]).numpy()
    targets = np.concatenate([(weight.squeeze(-1) * reward).numpy(), np.zeros(learner.dim)])
    unit = np.linalg.norm(rows, axis=0)
    theta = np.linalg.lstsq(rows / unit, targets, rcond=None)[0] / unit
    R = np.linalg.qr(rows / unit)[1]
    probes = np.random.default_rng(0).standard_normal((5, learner.dim)) / unit
    width = np.linalg.norm(np.linalg.solve(R.T, (probes / unit).T), axis=0)
    seen = torch.from_numpy(probes)
    np.testing.assert_allclose(learner.width(seen).numpy(), width, rtol=1e-3)
    error = np.abs(learner(seen).numpy() - probes @ theta)
    assert bool((error <= 1e-3 * float(learner.radius()) * width + 1e-7 * np.abs(probes @ theta)).all())
    logdet = 2.0 * np.log(np.abs(np.diag(R)) * unit).sum() - learner.dim * math.log(learner.ridge)
    assert float(learner.logdet) == pytest.approx(logdet, rel=1e-3, abs=1e-9)


@pytest.mark.parametrize("name", ["ridge", "heavy", "symmetric"])
def test_what_a_factor_cannot_resolve_is_refused(name: str) -> None:
    """Where V is no longer positive definite, or nearly so, a learner says what to do, and has learnt nothing of the log."""
    learner = MAKERS[name](3, ridge=1e-14)
    before = snapshot(learner)
    good, x = torch.randn(20, 3, dtype=D), torch.tensor([[1.0, 2.0, 3.0]], dtype=D)
    for log in (x.expand(50, 3), torch.cat([x.expand(50, 3), good])):
        with pytest.raises(
            ValueError, match=r"^x: expected rounds that torch.float64 can resolve together, with .*step\(\)$"
        ):
            learner.learn(log, torch.zeros(len(log)), block_size=10)
        assert differences(before, snapshot(learner)) == []
    learner.learn(torch.cat([good, x.expand(50, 3)]), torch.zeros(70), block_size=10)
    assert_whole(learner)


def test_an_outlier_of_symmetric_noise_blames_the_reward() -> None:
    learner = HeavyTailRegression(3, noise="symmetric")
    x, reward, _ = rounds_of(learner, 20)
    reward[3] = 1e9
    with pytest.raises(ValueError, match=r"^reward: expected rounds that torch.float64 can resolve together"):
        learner.learn(x, reward)
    assert not learner.rounds


def test_single_precision_refuses_earlier() -> None:
    """A feature that hardly varies, beside a constant: float32 keeps few digits of what tells them apart."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(300, 2, generator=generator)
    x[:, 1] = 1.0
    for offset, is_refused in ((0.0, False), (100.0, False), (1e4, True)):
        learner = RidgeRegression(2, dtype=torch.float32, ridge=1e-6)
        rows = x + torch.tensor([offset, 0.0])
        before = snapshot(learner)
        if not is_refused:
            learner.learn(rows, x[:, 0])
            continue
        RidgeRegression(2, ridge=1e-6).learn(rows, x[:, 0])
        with pytest.raises(ValueError, match=r"^x: expected rounds that torch.float32 can resolve together"):
            learner.learn(rows, x[:, 0])
        assert differences(before, snapshot(learner)) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ridge", "heavy", "symmetric", "local"])
def test_single_precision_stays_exact_over_many_blocks(name: str) -> None:
    """100 000 rounds in directions of which one has a hundredth of the length of another."""
    generator = torch.Generator().manual_seed(0)
    turn = torch.linalg.qr(torch.randn(6, 6, generator=generator, dtype=D))[0]
    x = 0.5 * (torch.randn(100_000, 6, generator=generator, dtype=D) * torch.logspace(0, -2, 6, dtype=D)) @ turn
    x, reward = x.float(), MAKERS[name](6).possible_reward(torch.randn(100_000, generator=generator)).float()
    single, double = MAKERS[name](6, dtype=torch.float32), MAKERS[name](6)
    for learner in (single, double):
        learner.learn(x, reward)
    assert single.theta_hat.dtype == torch.float32
    identity = torch.eye(6, dtype=D)
    assert float((single.V.double() @ single.V_inv.double() - identity).abs().max()) < 1e-3
    assert float((double.V @ double.V_inv - identity).abs().max()) < 1e-10
    assert torch.equal(single.V, single.V.mT)
    assert torch.equal(single.V_inv, single.V_inv.mT)
    if name != "heavy":  # whose floor of the noise scale is much higher in single precision, as in a step
        torch.testing.assert_close(single.V.double(), double.V, rtol=1e-3, atol=1e-3)
        torch.testing.assert_close(single.radius().double(), double.radius(), rtol=1e-3, atol=0.0)
        error = (single(x[:500]).double() - double(x[:500])).abs()
        assert float((error / (double.radius() * double.width(x[:500]))).max()) < 1e-2


# Interrupts, threads and memory.


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["blocks", "mask", "epochs"])
@pytest.mark.parametrize("name", MAKERS)
def test_an_interrupted_log_is_all_or_nothing(name: str, kind: str) -> None:
    """At lines of all blocks: bit for bit the state before, or that after. Then the learner goes on."""
    if kind == "epochs" and name in ("local", "system"):
        return
    options: dict[str, Any] = {"epochs": {"restart_every": 4}, "mask": {"batch_shape": (2,)}}.get(kind, {})
    learner, done = MAKERS[name](3, **options), MAKERS[name](3, **options)
    given: dict[str, Any] = {"block_size": 3}
    if kind == "mask":
        given["mask"] = torch.tensor([[True] * 7, [False, True] * 3 + [False]])
    for each in (learner, done):
        by_name(each.learn, *rounds_of(learner, 7, seed=1))
    start, log = snapshot(learner), rounds_of(learner, 7)
    by_name(done.learn, *log, **given)
    after, line = snapshot(done), 0
    step = max(1, lines_of(lambda: by_name(copy.deepcopy(learner).learn, *log, **given)) // 60)
    while interrupted(lambda: by_name(learner.learn, *log, **given), line):
        now = snapshot(learner)
        assert differences(start, now) == [] or differences(after, now) == [], f"torn at line {line}"
        learner.load_state_dict(start)
        line += step
    assert line > 50
    assert differences(after, snapshot(learner)) == []


def test_threads_lose_no_round_of_a_log() -> None:
    """Logs, single steps and choices of four threads follow one another."""
    policy = UCB(RidgeRegression(4))
    twin = RidgeRegression(4)
    logs = [rounds_of(policy.estimator, 60, seed) for seed in range(4)]

    def learn(log: list[Tensor]) -> Callable[[], None]:
        def run() -> None:
            x, reward, scale = (values[:30] for values in log)
            policy.learn(*round_of(policy, x, reward), noise_scale=scale)
            for x, reward, scale in zip(*(values[30:] for values in log), strict=True):
                arms = torch.stack([x, -x])
                policy.select(arms)
                policy.step(arms, 0, reward, noise_scale=scale)

        return run

    together(*map(learn, logs))
    for log in logs:
        by_name(twin.step, *log)
    assert_close_state(policy.estimator, twin)


def test_a_log_waits_for_a_thread_that_learns() -> None:
    learner, log = RidgeRegression(3), rounds_of(RidgeRegression(3), 10)
    thread = threading.Thread(target=lambda: by_name(learner.learn, *log))
    with learner._lock:
        thread.start()
        thread.join(0.2)
        assert thread.is_alive()
        assert int(learner.rounds) == 0
    thread.join()
    assert int(learner.rounds) == 10


@pytest.mark.slow
def test_blocks_leave_nothing_behind() -> None:
    """A hundred logs leave no more of Python's memory behind than its own free lists."""
    for name, make in MAKERS.items():
        learner = make(3)
        log = [values.requires_grad_() for values in rounds_of(learner, 6)]

        def logs(count: int, learner: Any = learner, log: Any = log) -> int:
            for _ in range(count):
                by_name(learner.learn, *(1.0 * values for values in log), block_size=3)
            collect()
            return sys.getallocatedblocks()

        before = logs(30)
        assert logs(150) - before < 75, name


class Allocations(TorchDispatchMode):
    """Counts the bytes of tensors that live at once, of storages that operations make."""

    def __init__(self, known: list[Tensor]) -> None:
        super().__init__()
        self.known = {each.untyped_storage().data_ptr() for each in known}
        self.users: Counter[int] = Counter()
        self.bytes, self.most = 0, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for each in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(each, Tensor) and (place := each.untyped_storage().data_ptr()) not in self.known:
                size = each.untyped_storage().nbytes()
                self.bytes += 0 if self.users[place] else size
                self.users[place] += 1
                self.most = max(self.most, self.bytes)
                weakref.finalize(each, self.release, place, size)
        return result

    def release(self, place: int, size: int) -> None:
        self.users[place] -= 1
        self.bytes -= 0 if self.users[place] else size


ARMS = {"arms": (3, 3), "arms of which few play": (100, 2), "arms of which many play": (100, 100)}


@pytest.mark.slow
@pytest.mark.parametrize("name", [*MAKERS, *ARMS])
def test_memory_is_that_of_a_few_blocks(name: str) -> None:
    """A log in single precision, for a state in double: no copy of it is made, but some arrays of 8192 rows at most."""
    dim, count = 32, 100_000 if name != "adaptive" else 10_000
    arms, played = ARMS.get(name, (0, 1))
    learner = DisjointArms(RidgeRegression(dim), arms) if arms else MAKERS[name](dim)
    generator = torch.Generator().manual_seed(0)
    x = 0.2 * torch.randn(count, dim, generator=generator)
    response = (torch.rand(count, *learner.output_shape, generator=generator) < 0.5).to(torch.uint8)
    arguments = [x, *([torch.randint(played, (count,), generator=generator)] if arms else []), response]
    by_name(learner.learn, *(values[:9] for values in arguments))
    with Allocations([*arguments, *learner.buffers()]) as allocations:
        by_name(learner.learn, *arguments)
    block = 8192 * dim * 8
    assert allocations.most > 0
    assert allocations.most < 10 * block
    assert 10 * block < count * dim * 8 or name == "adaptive"
