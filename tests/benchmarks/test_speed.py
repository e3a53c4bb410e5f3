"""A round's select and step against plain NumPy, bare BLAS calls and other libraries: ``make bench``.

Sizes are (d, K). Every row of a group plays the same arms in the same run on one thread, so only ratios within a group mean
anything: the last lines of the report print the ratios to plain NumPy. Batch rows count one round of one learner.
Libraries that are not installed are left out.
"""

import importlib.util
import math
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.docs.script_modules import script_modules
from torchonline import (
    GLBOMD,
    OFUL,
    AnytimeHeavyTailUCB,
    FixedArms,
    Greedy,
    HvtUCB,
    LocalGLB,
    RidgeRegression,
    ThompsonSampling,
)
from torchonline.export import compile_program, to_program, to_torchscript
from torchonline.policies.rules import Rule

SIZES = [(2, 50), (8, 20), (32, 20), (128, 100), (512, 1000)]
BATCHED = 64
REWARD = 0.1

Round = Callable[[], Any]


# The baseline, the arms and the clock are those of the table of rivals.
with script_modules("benchmarks", "speed") as modules:
    numpy_oful, unit_rows, timed = modules.speed.numpy_oful, modules.speed.unit_rows, modules.speed.timed


def arms(dim: int, count: int, *batch: int) -> np.ndarray:
    """Unit-norm arms."""
    rows: np.ndarray = unit_rows(count, dim, *batch)
    return rows


def blas(dim: int, count: int) -> Round:
    """The matrix products of a round and nothing else: gemm, gemv, gemv, ger."""
    from scipy.linalg import blas as call

    x, V_inv, theta = np.asfortranarray(arms(dim, count)), np.asfortranarray(np.eye(dim)), np.zeros(dim)
    chosen, out = x[0].copy(), np.zeros((count, dim), order="F")

    def play() -> None:
        call.dgemm(1.0, x, V_inv, c=out, overwrite_c=True)
        call.dgemv(1.0, x, theta)
        product = call.dgemv(1.0, V_inv, chosen)
        call.dger(-1e-9, product, product, a=V_inv, overwrite_a=True)

    return play


def single(policy: Any, dim: int, count: int) -> Round:
    """One learner through its public methods."""
    x, reward = torch.from_numpy(arms(dim, count)), torch.tensor(REWARD, dtype=torch.float64)

    def play() -> None:
        policy.step(x, policy.select(x), reward)

    return play


def fixed(policy: Rule, count: int) -> Round:
    """A learner that keeps the widths of its arms."""
    policy_on_arms = FixedArms(policy, arms(policy.estimator.dim, count))

    def play() -> None:
        policy_on_arms.step(None, policy_on_arms.select(), REWARD)

    return play


def calls_alone(policy: Rule, dim: int, count: int) -> Round:
    """The two calls of a round, for an arm that is known before."""
    x, reward = torch.from_numpy(arms(dim, count)), torch.tensor(REWARD, dtype=torch.float64)

    def play() -> None:
        policy.select(x)
        policy.step(x, 0, reward)

    return play


def batched(policy: Rule, count: int) -> Round:
    """A round of 64 learners in one module."""
    dim = policy.estimator.dim
    x = torch.from_numpy(arms(dim, count, BATCHED))
    reward = torch.full((BATCHED,), REWARD, dtype=torch.float64)

    def play() -> None:
        policy.step(x, policy.select(x), reward)

    return play


def compiled(policy: Rule, count: int) -> Round:
    """The exported round, compiled to machine code ahead of time."""
    folder = tempfile.mkdtemp()
    program = compile_program(to_program(policy), Path(folder) / "round.pt2")
    x = torch.from_numpy(arms(policy.estimator.dim, count))
    reward = torch.tensor(REWARD, dtype=torch.float64)
    learn, decision, mask = torch.tensor(True), x.unsqueeze(0), torch.ones(1, count, dtype=torch.bool)
    action = torch.tensor(0)

    def play() -> None:
        nonlocal action
        action = program(x, action, reward, learn, decision, mask)[0][0]

    return play


def mabwiser(dim: int, count: int) -> Round:
    """MABWiser's LinUCB: a model for each arm, fed with one context."""
    from mabwiser.mab import MAB, LearningPolicy

    context = arms(dim, 1)
    names = list(range(count))
    mab = MAB(names, LearningPolicy.LinUCB(alpha=1.0))
    mab.fit(names, [0.0] * count, np.repeat(context, count, axis=0))

    def play() -> None:
        mab.partial_fit([mab.predict(context)], [REWARD], context)

    return play


def contextualbandits(dim: int, count: int) -> Round:
    """Contextualbandits' LinUCB: a model for each arm, fed with one context."""
    from contextualbandits.online import LinUCB

    context = arms(dim, 1)
    model = LinUCB(count, ucb_from_empty=True, fit_intercept=False)
    reward = np.array([REWARD])

    def play() -> None:
        model.partial_fit(context, model.predict(context), reward)

    return play


def river(dim: int, count: int) -> Round:
    """River's LinUCBDisjoint: a model for each arm, fed with one context."""
    from river.bandit import LinUCBDisjoint

    context = dict(enumerate(arms(dim, 1)[0].tolist()))
    policy, names = LinUCBDisjoint(alpha=1.0, seed=0), list(range(count))

    def play() -> None:
        policy.update(policy.pull(names, context=context), context, REWARD)

    return play


LIBRARY: dict[str, Callable[[int, int], Round]] = {
    "NumPy": numpy_oful,
    "BLAS calls": blas,
    "OFUL": lambda d, k: single(OFUL(d), d, k),
    "OFUL, calls alone": lambda d, k: calls_alone(OFUL(d), d, k),
    "OFUL float32": lambda d, k: single(OFUL(d, dtype=torch.float32), d, k),
    "OFUL TorchScript": lambda d, k: single(to_torchscript(OFUL(d)), d, k),
    "AnytimeHeavyTailUCB": lambda d, k: single(AnytimeHeavyTailUCB(d), d, k),
    "GLBOMD": lambda d, k: single(GLBOMD(d), d, k),
    "LocalGLB": lambda d, k: single(LocalGLB(d), d, k),
    "HvtUCB": lambda d, k: single(HvtUCB(d, horizon=10**5, radius_scale=1e-3), d, k),
    "Thompson": lambda d, k: single(ThompsonSampling(RidgeRegression(d)), d, k),
    "Greedy": lambda d, k: single(Greedy(RidgeRegression(d)), d, k),
    "OFUL, fixed arms": lambda d, k: fixed(OFUL(d), k),
    "AnytimeHeavyTailUCB, fixed arms": lambda d, k: fixed(AnytimeHeavyTailUCB(d), k),
    "LocalGLB, fixed arms": lambda d, k: fixed(LocalGLB(d), k),
    "OFUL, batch of 64": lambda d, k: batched(OFUL(d, batch_shape=(BATCHED,)), k),
    "LocalGLB, batch of 64": lambda d, k: batched(LocalGLB(d, batch_shape=(BATCHED,)), k),
    "AnytimeHeavyTailUCB, batch of 64": lambda d, k: batched(AnytimeHeavyTailUCB(d, batch_shape=(BATCHED,)), k),
}
# Compiling takes half a minute or more each, so only where calls and not products cost the time.
COMPILED: dict[str, Callable[[int, int], Round]] = {
    "OFUL compiled": lambda d, k: compiled(OFUL(d), k),
    "AnytimeHeavyTailUCB compiled": lambda d, k: compiled(AnytimeHeavyTailUCB(d), k),
}
PEERS = {"mabwiser": mabwiser, "contextualbandits": contextualbandits, "river": river}
INSTALLED = {name: make for name, make in PEERS.items() if importlib.util.find_spec(name) is not None}
CASES = [
    (size, name, make)
    for size in SIZES
    for rows, sizes in ((LIBRARY, SIZES), (COMPILED, SIZES[:3]), (INSTALLED, SIZES[:4]))
    if size in sizes
    for name, make in rows.items()
]


@pytest.mark.parametrize(("size", "name", "make"), CASES, ids=[f"{d}x{k}-{name}" for (d, k), name, _ in CASES])
def test_round(benchmark: Any, size: tuple[int, int], name: str, make: Callable[[int, int], Round]) -> None:
    """Time a round, in turn with plain NumPy's, and report the ratio."""
    play, baseline = make(*size), numpy_oful(*size)
    benchmark.group = f"plain NumPy OFUL, d={size[0]}, K={size[1]}"
    learners = BATCHED if "batch" in name else 1
    ours, theirs = in_turn(play, baseline)
    benchmark.extra_info["microseconds"] = 1e6 * ours / learners
    benchmark.extra_info["ratio"] = ours / learners / theirs
    benchmark.pedantic(play, rounds=5)


def in_turn(first: Round, second: Round, blocks: int = 400, seconds: float = 0.001) -> tuple[float, float]:
    """The best time of each over many blocks that take turns, so short that some meet a machine that does nothing else.

    Both have blocks of the same length, so that a fast round is one of a loop, and does not find the other's data in the cache.
    """
    plays = (first, second)
    once = [min(timed(play, 1) for _ in range(9)) for play in plays]
    counts = [max(1, int(max(seconds, *once) / one)) for one in once]
    best = [math.inf, math.inf]
    for _ in range(blocks):
        for i, play in enumerate(plays):
            best[i] = min(best[i], timed(play, counts[i]))
    return best[0], best[1]
