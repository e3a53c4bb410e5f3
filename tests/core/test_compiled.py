"""The compiled core does what NumPy views do. They are its reference, in one round after another from the same state."""

import copy
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import torchonline
from tests.interruption import interrupted
from tests.learners import snapshot
from torchonline import (
    OFUL,
    UCB,
    AdaptiveRidgeRegression,
    DisjointArms,
    EpsilonGreedy,
    RidgeRegression,
    RobustRidgeRegression,
    StandardScaler,
)
from torchonline.core import compiled
from torchonline.core.undo_journal import MOST_ROUNDS
from torchonline.regression.estimator import Estimator

pytestmark = pytest.mark.skipif(not compiled.is_on, reason="the core is built where there is a C compiler")

ROOT = Path(__file__).resolve().parent.parent.parent
D = torch.float64
DIM, ARMS = 4, 3


def arms(estimator: Estimator, **scaler: Any) -> DisjointArms:
    return DisjointArms(estimator, ARMS, scaler=StandardScaler(DIM, **scaler) if scaler else None)


POLICIES: dict[str, Callable[[], Any]] = {
    **{kind: lambda kind=kind: torchonline.bandit(DIM, kind, ARMS) for kind in ("unit", "binary", "real", "heavy")},
    "plain features": lambda: torchonline.bandit(DIM, actions=ARMS, scale=False),
    "products": lambda: torchonline.bandit(DIM, actions=ARMS, interactions="all"),
    "products without magnitudes": lambda: torchonline.bandit(DIM, actions=ARMS, interactions=True, magnitudes=False),
    "bins": lambda: torchonline.bandit(DIM, "real", ARMS, bins=4),
    "frozen": lambda: arms(AdaptiveRidgeRegression(DIM + 1), freeze_after=40),
    "restarted": lambda: arms(RobustRidgeRegression(DIM + 1, restart_every=30, window=16), intercept=True),
    "to the mean": lambda: arms(AdaptiveRidgeRegression(DIM + 1, zero_odds=0.0, noise_scale=0.3), clip=3.0),
    "ridge": lambda: arms(RidgeRegression(DIM, restart_every=25)),
    "scaled ridge": lambda: arms(RidgeRegression(DIM, radius="classic"), intercept=False),
    "another rule": lambda: DisjointArms(EpsilonGreedy(AdaptiveRidgeRegression(DIM)), ARMS),
    "OFUL": lambda: OFUL(DIM, noise_scale=0.2),
    "classic OFUL": lambda: OFUL(DIM, radius="classic", radius_scale=0.5, restart_every=50),
    "not validated": lambda: UCB(RidgeRegression(DIM, validate=False)),
}


def streams(rounds: int) -> dict[str, Tensor]:
    """Rows for each arm: ordinary ones, and those that are hard to keep in floating point."""
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(rounds, ARMS, DIM, generator=generator, dtype=D)
    units = torch.tensor([1e6, 1e-6, 1.0, 30.0], dtype=D)
    outliers = x.clone()
    outliers[::7] *= 1e7
    return {
        "ordinary": x,
        "unlike units": x * units + 5.0 * units,
        "nearly parallel": x[..., :1] + 1e-7 * x,
        "outliers": outliers,
        "constant": torch.cat([0.0 * x[..., :2] + 3.0, x[..., 2:]], -1),
        "level that moves": x + torch.arange(rounds, dtype=D)[:, None, None] ** 2 * (x[:1] > 0.0),
    }


def pair(make: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    """Return a policy with a core, and one on views."""
    found = []
    for is_on in (True, False):
        monkeypatch.setattr(compiled, "is_on", is_on)
        policy = make()
        assert (policy.learner.numpy_view().learner.__dict__.get("_core") is not None) is is_on
        found.append(policy)
    return found[0], found[1]


def scores(policy: Any, inputs: Tensor) -> Any:
    """Return the scores as `select` computes them."""
    view = policy.learner.numpy_view()
    return policy._on(view)._scored(inputs.numpy())


def rounding(policy: Any, inputs: Tensor) -> Any:
    """What rounding may change in scores of rows that are long in directions where V is large: x'V^-1 x then cancels."""
    if not policy.has_arm_inputs:
        return 0.0
    one, x = policy.estimator, abs(inputs)
    error = 1e-14 * torch.linalg.vecdot(x @ abs(one.V_inv), x)
    return (one.radius() * torch.minimum(error.sqrt(), error / one.width(inputs))).numpy()


def require_close(one: Any, other: Any, name: str, allowed: Any = 0.0) -> None:
    """Require that no entry differs by more than 1e-12 of the largest one, and what is allowed."""
    one, other = np.asarray(one, dtype=float), np.asarray(other, dtype=float)
    assert one.shape == other.shape, name
    assert (np.isfinite(one) == np.isfinite(other)).all(), name
    known = np.isfinite(one)
    size = 1e-12 * np.abs(other[known]).max(initial=1e-300)
    allowed = np.broadcast_to(size + allowed, known.shape)[known]
    assert (np.abs(one[known] - other[known]) <= allowed).all(), name


def compare(with_core: Any, on_views: Any, rows: Tensor, rewards: Tensor, scales: Any = None) -> None:
    """Learn the same rounds from the same states, and compare each."""
    rows = rows if with_core.has_arm_inputs else rows[:, 0]
    for n, (x, reward) in enumerate(zip(rows, rewards, strict=True)):
        require_close(scores(with_core, x), scores(on_views, x), f"scores of round {n}", rounding(on_views, x))
        options = {} if scales is None else {"noise_scale": scales[n]}
        before = {key: abs(value[value.isfinite()].double()).sum() for key, value in on_views.learner.state().items()}
        for policy in (with_core, on_views):
            policy.step(x, n % ARMS if n % 11 else 0, reward, **options)
        for name, value in on_views.learner.state().items():
            mine = with_core.learner.state()[name]
            # A round may bring a number close to 0.
            require_close(mine, value, f"{name} of round {n}", 1e-12 * float(before.get(name, 0.0)))
            mine.copy_(value)  # in place, so that the views stay


@pytest.mark.parametrize("stream", streams(1))
@pytest.mark.parametrize("name", POLICIES)
def test_rounds_are_those_of_views(name: str, stream: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = streams(150)[stream]
    rewards = (rows[:, 0].sum(-1) > rows[:, 0, 1]).to(D)
    compare(*pair(POLICIES[name], monkeypatch), rows, rewards)


@pytest.mark.parametrize("name", ["real", "heavy", "OFUL", "bins"])
def test_rewards_of_any_size_and_noise_scales(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(1)
    rewards = torch.randn(400, generator=generator, dtype=D).pow(5) * 10.0 ** (torch.arange(400) % 7)
    scales = torch.rand(400, generator=generator, dtype=D) + 0.5
    compare(*pair(POLICIES[name], monkeypatch), streams(400)["ordinary"], rewards, scales)


@pytest.mark.parametrize("name", POLICIES)
def test_a_run_stays_close_to_that_on_views(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = pair(POLICIES[name], monkeypatch)
    rows = streams(300)["ordinary"] if one.has_arm_inputs else streams(300)["ordinary"][:, 0]
    actions, rewards = torch.arange(300) % ARMS, (rows.reshape(300, -1)[:, 0] > 0.0).to(D)
    for policy in (one, other):
        policy.step(rows, actions, rewards)  # in one call
    for key, value in other.learner.state().items():
        torch.testing.assert_close(one.learner.state()[key], value, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["unit", "real", "OFUL"])
def test_choices_and_ties_are_those_of_views(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = pair(POLICIES[name], monkeypatch)
    rows = streams(60)["ordinary"] if one.has_arm_inputs else streams(60)["ordinary"][:, 0]
    for x in rows:  # at first, all arms tie
        assert one.select(x) == other.select(x)
        for policy in (one, other):
            policy.step(x, policy.select(x), 0.5)
    mask = torch.tensor([False, True, True])
    assert one.select(rows[0], mask) == other.select(rows[0], mask)
    assert torch.equal(one.select(rows), other.select(rows))


@pytest.mark.parametrize(
    "best", [[1.0, 3.0, 2.0], [-1.0, -3.0, -1.0], [5.0], [1.0, 1.0 + 1e-15], [np.nan, 2.0], [-np.inf, 1.0]]
)
def test_the_best_of_scores(best: list[float]) -> None:
    x = np.array(best)
    is_clear = sum(value >= max(best) - 1e-12 for value in best) == 1 and not np.isnan(best[0])
    assert compiled.best_of(x) == (x.argmax() if is_clear else -1)
    assert compiled.best_of(np.repeat(x, 2)[::2]) == (compiled.best_of(x) if len(x) == 1 else -1)
    assert compiled.best_of(x.astype(np.float32)) == -1


@pytest.mark.parametrize("name", ["unit", "real", "scaled ridge", "OFUL"])
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 1e200])
def test_wrong_values_are_refused_as_on_views(name: str, bad: float, monkeypatch: pytest.MonkeyPatch) -> None:
    both = pair(POLICIES[name], monkeypatch)
    rows = streams(80)["ordinary"] if both[0].has_arm_inputs else streams(80)["ordinary"][:, 0]
    wrong = rows[0].clone()
    wrong[..., 1] = bad
    said = []
    for policy in both:
        for x in rows:
            policy.step(x, 1, 0.5)
        before = snapshot(policy)
        for arguments in ((wrong, 1, 0.5), (rows[0], 1, bad)):
            with pytest.raises(
                ValueError, match=r"expected finite values|magnitude at most|at most the ceiling"
            ) as error:
                policy.step(*arguments)
            said.append(str(error.value))
        with pytest.raises(ValueError, match=r"^inputs: expected"):
            policy.select(wrong)
        assert all(torch.equal(value, before[key]) for key, value in snapshot(policy).items())
    assert said[:2] == said[2:]


def test_a_round_that_outweighs_the_others_is_refused_as_on_views(monkeypatch: pytest.MonkeyPatch) -> None:
    said = []
    for policy in pair(lambda: OFUL(DIM, ridge=1e-12), monkeypatch):
        before = snapshot(policy)
        with pytest.raises(ValueError, match=r"^inputs: expected a round that adds less than 4.5e\+15") as error:
            policy.step(torch.full((1, DIM), 1e5, dtype=D), 0, 1.0)
        assert all(torch.equal(value, before[key]) for key, value in snapshot(policy).items())
        policy.step(torch.full((1, DIM), 1.0, dtype=D), 0, 1.0)  # 4e12, which Python checks and learns
        said.append(str(error.value))
    assert said[0] == said[1]


def test_nan_that_is_not_checked_stays_nan(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds: list[Callable[..., Estimator]] = [AdaptiveRidgeRegression, RobustRidgeRegression, RidgeRegression]
    for kind in kinds:
        both = pair(lambda kind=kind: arms(kind(DIM, validate=False)), monkeypatch)
        for x, reward in ((1.0, 0.5), (0.3, float("nan")), (0.2, 0.1), (float("nan"), 1.0), (0.4, 0.2)):
            for policy in both:
                policy.step(torch.tensor([x, 1.0, 0.0, 2.0], dtype=D), 1, reward)
            for key, value in both[1].state().items():
                torch.testing.assert_close(both[0].state()[key], value, rtol=1e-12, atol=1e-12, equal_nan=True)


@pytest.mark.parametrize("make", [lambda: torchonline.bandit(2, actions=2), lambda: UCB(RidgeRegression(128))])
def test_an_interrupted_step_has_not_happened(make: Callable[[], Any]) -> None:
    """A small state is copied; the large one, with a journal, learns its rounds again."""
    policy = make()
    generator = torch.Generator().manual_seed(0)
    for x in torch.randn(MOST_ROUNDS + 10, policy.dim, generator=generator, dtype=D):
        inputs = x[None] if policy.has_arm_inputs else x
        policy.step(inputs, 0, 0.5)
    line = 0
    while True:
        twin, before = copy.deepcopy(policy), snapshot(policy)
        twin.step(inputs, 0, 0.25)
        happened = not interrupted(lambda: policy.step(inputs, 0, 0.25), line)
        after = snapshot(policy)
        assert all(torch.equal(after[key], before[key]) for key in after) or all(
            torch.equal(after[key], snapshot(twin)[key]) for key in after
        ), line
        if happened:
            break
        policy.load_state_dict(before)
        line += 7


def test_counts_below_zero_are_no_indices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing but a user's hand writes them; views then learn the round."""
    for name in ("real", "OFUL"):
        one, other = pair(POLICIES[name], monkeypatch)
        for policy in (one, other):
            policy.estimator.rounds.fill_(-9)
        compare(one, other, streams(3)["ordinary"], torch.ones(3))


@pytest.mark.parametrize("wrong", [-1, 2 * DIM, 1 << 50])
def test_pairs_outside_the_features_are_no_indices(wrong: int) -> None:
    """`to_empty` leaves any numbers in them, until a state is loaded."""
    policy, x = torchonline.bandit(DIM, actions=ARMS, interactions="all"), torch.ones(DIM, dtype=D)
    policy.step(x, 0, 1.0)
    before = snapshot(policy)
    policy.scaler.pairs[1, 2] = wrong
    for ask in (lambda: policy.select(x), lambda: policy.step(x, 0, 1.0)):
        with pytest.raises(IndexError, match=r"^pairs: expected indices of features"):
            ask()
    policy.load_state_dict(before)
    policy.step(x, policy.select(x), 1.0)


def test_arms_come_and_go(monkeypatch: pytest.MonkeyPatch) -> None:
    both, rows = pair(POLICIES["real"], monkeypatch), streams(240)["ordinary"]
    for n in range(3):
        compare(*both, rows[80 * n : 80 * n + 80], rows[80 * n : 80 * n + 80, 0, 0])
        for is_on, policy in zip((True, False), both, strict=True):
            monkeypatch.setattr(compiled, "is_on", is_on)
            if n == 0:
                policy.add_actions(2)
            else:
                policy.remove_actions([4 if n == 1 else 1])
            assert (policy.numpy_view().learner.__dict__.get("_core") is not None) is is_on


def test_who_has_no_core(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other types and shapes, subclasses, and learners of which a method was replaced: their own methods have the last word."""

    class Careful(RidgeRegression):
        def radius(self) -> Tensor:
            return 2.0 * super().radius()

    class Proud(UCB):
        def scores_of(self, predictor: Tensor, width: Tensor) -> Tensor:
            return predictor + 3.0 * width

    def core(learner: Any) -> Any:
        return learner.learner.numpy_view().learner.__dict__.get("_core")

    assert core(UCB(Careful(DIM))) is None
    assert core(OFUL(DIM, dtype=torch.float32)) is None
    assert core(OFUL(DIM, batch_shape=(2,))) is None
    assert core(OFUL(257)) is None
    assert core(torchonline.bandit(DIM, actions=ARMS, batch_shape=(2,))) is None
    assert core(arms(RobustRidgeRegression(DIM, window=2000))) is None
    estimator = RidgeRegression(DIM)
    estimator.__dict__["radius"] = lambda: torch.tensor(7.0)
    assert core(UCB(estimator)) is None
    monkeypatch.setattr(StandardScaler, "_observe", lambda self, x: None)
    assert core(torchonline.bandit(DIM, actions=ARMS)) is None

    x, policy = streams(1)["ordinary"][0], Proud(RidgeRegression(DIM))
    assert core(policy) is not None  # it learns as UCB does
    assert np.allclose(scores(policy, x), policy(x))


def test_the_core_refuses_what_would_not_fit() -> None:
    policy = torchonline.bandit(DIM, actions=ARMS)
    core = policy.numpy_view().learner.__dict__.get("_core")
    x, out = np.ones(DIM), np.empty(ARMS)
    core.scores(x, out)
    for wrong in (x[:2], x[None], x.astype(np.float32), x.astype(complex), [1.0] * DIM, None):
        with pytest.raises((TypeError, BufferError)):
            core.scores(wrong, out)
        with pytest.raises((TypeError, BufferError)):
            core.learn(wrong, 0, 1.0, 1.0)
    for arguments in ((x,), (x, out[:1]), (x, out, 0)):
        with pytest.raises(TypeError, match="expected"):
            core.scores(*arguments)
    for arm in (-1, ARMS):
        with pytest.raises(IndexError, match="expected an arm below 3"):
            core.learn(x, arm, 1.0, 1.0)
    with pytest.raises(TypeError):
        core.learn(x, 0, "1", 1.0)
    values = vars(RidgeRegression(DIM).numpy_view().learner)  # type: ignore[union-attr]
    for name in ("V", "rounds", "logdet", "theta_hat"):
        for array in (None, np.ones((5, 5))):
            changed = {key: value for key, value in values.items() if key != name}
            changed |= {} if array is None else {name: array}
            with pytest.raises(TypeError, match="expected the arrays of one learner"):
                compiled._compiled.Core(changed | {"refine_every": 8})  # type: ignore[union-attr]
    with pytest.raises(TypeError):
        compiled._compiled.Core([])  # type: ignore[union-attr, arg-type]


def test_the_core_can_be_left_out() -> None:
    """By the environment; and where it was not built, all works without it."""
    lines = (
        "import torch, torchonline as to; from torchonline.core import compiled",
        "p = to.bandit(2, actions=2); p.step(torch.ones(2), p.select(torch.ones(2)), 1.0); print(compiled.is_on)",
    )
    code = "\n".join(lines)
    absent = f"import sys; sys.modules['torchonline.core._compiled'] = None\n{code}"
    for source, environment in ((code, {"TORCHONLINE_COMPILED": "0"}), (absent, {})):
        done = subprocess.run(
            [sys.executable, "-c", source], env=os.environ | environment, capture_output=True, text=True, check=True
        )
        assert done.stdout == "False\n"


# The sanitized core takes the place of the other before the library is imported.
SANITIZED = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("torchonline.core._compiled", {path!r})
sys.modules[spec.name] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sys.modules[spec.name])
import pytest
from torchonline.core import compiled
assert compiled._compiled.__file__ == {path!r}
sys.exit(pytest.main(["-q", "-x", "-s", "-p", "no:cacheprovider", {tests!r}, "-k", "not left_out and not sanitizers"]))
"""


def test_with_sanitizers(tmp_path: Path) -> None:
    """All tests of this file, with a core that reports accesses out of bounds and undefined arithmetic."""
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs gcc")
    path = tmp_path / "_compiled.abi3.so"
    flags = ["-std=c11", "-O1", "-g", "-fPIC", "-shared", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    source = ROOT / "torchonline" / "core" / "_compiled.c"
    include = f"-I{sysconfig.get_paths()['include']}"
    built = subprocess.run(
        [compiler, *flags, include, str(source), "-o", str(path), "-lm"], capture_output=True, text=True
    )
    if built.returncode:
        pytest.skip(f"gcc cannot build it with sanitizers: {built.stderr[:200]}")
    library = subprocess.run([compiler, "-print-file-name=libasan.so"], capture_output=True, text=True, check=True)
    environment = {
        "LD_PRELOAD": f"{library.stdout.strip()} libstdc++.so.6",  # whose exceptions the first one wraps
        "ASAN_OPTIONS": "detect_leaks=0",
        "UBSAN_OPTIONS": "print_stacktrace=1",
    }
    done = subprocess.run(
        [sys.executable, "-c", SANITIZED.format(path=str(path), tests=__file__)],
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
