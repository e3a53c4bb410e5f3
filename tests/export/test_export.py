"""Exported policies and heads: they agree with the eager module, learn where torchonline is not, and refuse to lie."""

import copy
import functools
import io
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from tests.convex_learners import ConvexCase, play, stream
from tests.convex_toys import Descent
from tests.learners import VARIANTS, differences, snapshot
from torchonline import (
    CAOONS,
    GLBOMD,
    OFUL,
    OONS,
    AnytimeHeavyTailUCB,
    FreeGrad,
    Greedy,
    HeavyTailRegression,
    HvtUCB,
    LocalGLB,
    Poisson,
    RidgeRegression,
    ThompsonSampling,
)
from torchonline.core.ops import along, dot, increase_
from torchonline.export import (
    Runner,
    compile_program,
    files,
    to_archive,
    to_executorch,
    to_onnx,
    to_program,
    to_torchscript,
)
from torchonline.export.compiled import place_in_cache
from torchonline.export.programs import Round
from torchonline.links import Link
from torchonline.models import BanditHead, NeuralLinearBandit
from torchonline.policies.rules import Rule

DOUBLE = torch.float64
POLICIES = {
    "OFUL": lambda **o: OFUL(4, **o),
    "HvtUCB": lambda **o: HvtUCB(4, horizon=1000, theta_bound=0.3, radius_scale=1e-3, **o),
    "AnytimeHeavyTailUCB": lambda **o: AnytimeHeavyTailUCB(4, **o),
    "AnytimeHeavyTailUCB 1.5": lambda **o: AnytimeHeavyTailUCB(4, moment_order=1.5, **o),
    "AnytimeHeavyTailUCB symmetric": lambda **o: AnytimeHeavyTailUCB(4, noise="symmetric", **o),
    "Thompson": lambda **o: ThompsonSampling(RidgeRegression(4, **o)),
    "LocalGLB": lambda **o: LocalGLB(4, theta_bound=2.0, feature_bound=8.0, **o),
    "GLBOMD Poisson": lambda **o: GLBOMD(4, link=Poisson(), feature_bound=8.0, **o),
    "Greedy": lambda **o: Greedy(HeavyTailRegression(4, **o)),
}
OPTIONS = ("AnytimeHeavyTailUCB 1.5", "AnytimeHeavyTailUCB symmetric")
# Run where `import torchonline` fails: plays the rounds of a folder with its two files, and saves what came of them.
FRESH = """
import sys, torch
sys.modules["torchonline"] = None
try:
    import torchonline
    sys.exit("torchonline can be imported")
except ImportError:
    pass
for folder in sys.argv[1:]:
    data = torch.load(f"{folder}/rounds.pt")
    script = torch.jit.load(f"{folder}/policy.pt")
    program = torch.export.load(f"{folder}/policy.pt2").module()
    choices, past, choice, learn = [], data["arms"][0], torch.tensor(0), torch.tensor(False)
    for t, arms in enumerate(data["arms"]):
        torch.manual_seed(t)
        before, choice = choice, script.select(arms)
        torch.manual_seed(t)
        mask = torch.ones(1, len(arms), dtype=torch.bool)
        by_program, _ = program(past, before, data["reward"][t - 1], learn, arms.unsqueeze(0), mask)
        if int(choice) != int(by_program):
            sys.exit(f"{folder}, round {t}: TorchScript chose {int(choice)}, the program {int(by_program)}")
        past, learn = arms, torch.tensor(True)
        script.step(past, choice, data["reward"][t])
        choices.append(choice)
    torch.save({"choices": torch.stack(choices), "state": dict(script.named_buffers())}, f"{folder}/rounds.pt")
"""


@functools.cache
def program_file(name: str, batch: tuple[int, ...]) -> bytes:
    """A fresh policy's program, as a file: made once in a test run, as a rule, whichever of its workers asks first."""
    with tempfile.TemporaryDirectory() as folder:
        path = (kept_folder() or Path(folder)) / f"{name}{batch}.pt2"
        if not path.exists():
            to_program(POLICIES[name](batch_shape=batch), path)
        return path.read_bytes()


def kept_folder() -> Path | None:
    """A folder of this test run, for all of its workers; None without workers."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID")
    if run is None:
        return None
    kept = Path(tempfile.gettempdir()) / f"torchonline-{run}"
    kept.mkdir(exist_ok=True)
    return kept


def rounds(count: int, dim: int = 4) -> list[tuple[Tensor, Tensor]]:
    """Arms, in varying number, and rewards with outliers."""
    generator = torch.Generator().manual_seed(3)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=DOUBLE)

    return [(normal(2 + t % 5, dim), normal() ** 3) for t in range(count)]


def test_files_of_every_policy_learn_in_a_process_without_torchonline(tmp_path: Path) -> None:
    stream = rounds(100)
    arms = [arms for arms, _ in stream]
    # An option of a class changes its numbers, not whether they stand alone.
    policies = {name: make for name, make in POLICIES.items() if name not in OPTIONS}
    rewards = {
        name: make().estimator.possible_reward(torch.stack([reward for _, reward in stream]))
        for name, make in policies.items()
    }
    for name, make in policies.items():
        (tmp_path / name).mkdir()
        to_torchscript(make(), tmp_path / name / "policy.pt")
        (tmp_path / name / "policy.pt2").write_bytes(program_file(name, ()))
        torch.save({"arms": arms, "reward": rewards[name]}, tmp_path / name / "rounds.pt")
    folders = [str(tmp_path / name) for name in policies]
    done = subprocess.run([sys.executable, "-c", FRESH, *folders], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for name, make in policies.items():
        policy, theirs, choices = make(), torch.load(tmp_path / name / "rounds.pt"), []
        for t, arms_ in enumerate(arms):
            torch.manual_seed(t)
            choice = policy.select(arms_)
            policy.step(arms_, choice, rewards[name][t])
            choices.append(choice)
        assert torch.equal(torch.stack(choices), theirs["choices"])
        assert len(set(map(int, choices))) > 1
        for key, buffer in policy.named_buffers():
            torch.testing.assert_close(theirs["state"][key], buffer, rtol=1e-9, atol=1e-9)


# An option of a class says nothing of a batch that the class does not.
BATCHES = [name for name in POLICIES if name not in OPTIONS]


@pytest.mark.parametrize(("name", "batch"), [*((name, ()) for name in POLICIES), *((name, (3,)) for name in BATCHES)])
def test_program_agrees_over_100_rounds_and_may_only_look(name: str, batch: tuple[int, ...]) -> None:
    policy = POLICIES[name](batch_shape=batch)
    program = torch.export.load(io.BytesIO(program_file(name, batch))).module()

    def normal(*shape: int) -> Tensor:
        return torch.randn((*batch, *shape), dtype=DOUBLE)

    learn = torch.ones(batch, dtype=torch.bool)
    for t in range(100):
        n, k = 1 + t % 4, 1 + t % 6
        past, action = normal(1 + t % 3, 4), torch.randint(1 + t % 3, batch)
        reward, arms, mask = normal() ** 3, normal(n, k, 4), torch.rand(*batch, n, k) < 0.7
        mask[..., 0] = True
        reward = policy.estimator.possible_reward(reward)
        torch.manual_seed(t)
        theirs, learnt = program(past, action, reward, learn, arms, mask)
        assert torch.equal(learnt, learn)
        policy.step(past, action, reward)
        torch.manual_seed(t)
        assert torch.equal(policy.select(arms, mask), theirs)
    state = dict(program.named_buffers())
    for key, buffer in policy.estimator.state().items():
        torch.testing.assert_close(state[f"policy.estimator.{key}"], buffer, rtol=1e-9, atol=1e-9)

    # What is not learnt may be anything, and leaves every buffer equal.
    before = {key: buffer.clone() for key, buffer in state.items()}
    program(torch.full_like(past, torch.nan), action + 99, torch.full_like(reward, torch.inf), ~learn, arms, mask)
    assert all(torch.equal(before[key], buffer) for key, buffer in program.named_buffers())
    program(past, action, reward, learn, arms, mask)
    assert not all(torch.equal(before[key], buffer) for key, buffer in program.named_buffers())


def test_an_eager_round_refuses_nothing_of_what_is_not_learnt() -> None:
    """One of three learners hears NaN and infinity, and forgets them; the others learn as without it."""
    policy, others = AnytimeHeavyTailUCB(2, batch_shape=(3,)), AnytimeHeavyTailUCB(2, batch_shape=(2,))
    past, action, reward = torch.randn(3, 4, 2, dtype=DOUBLE), torch.tensor([3, 1, 0]), torch.randn(3, dtype=DOUBLE)
    others.step(past[:2], action[:2], reward[:2])
    past[2], reward[2] = torch.nan, torch.inf
    arms, mask = torch.randn(3, 4, 5, 2, dtype=DOUBLE), torch.ones(3, 4, 5, dtype=torch.bool)
    choices, learnt = Round(policy)(past, action, reward, torch.tensor([True, True, False]), arms, mask)
    assert learnt.tolist() == [True, True, False]
    assert torch.equal(choices[:2], others.select(arms[:2]))
    for name, buffer in policy.estimator.state().items():
        torch.testing.assert_close(buffer[:2], others.estimator.get_buffer(name), rtol=1e-12, atol=1e-12)
        assert torch.equal(buffer[2:], AnytimeHeavyTailUCB(2, batch_shape=(1,)).estimator.get_buffer(name))


def test_a_program_learns_for_some_of_a_batch_only() -> None:
    policy, program = OFUL(2, batch_shape=(2,)), to_program(OFUL(2, batch_shape=(2,))).module()
    past, reward = (torch.ones(2, 1, 2, dtype=DOUBLE), torch.tensor([0, 0])), torch.ones(2, dtype=DOUBLE)
    arms, mask = torch.ones(2, 1, 1, 2, dtype=DOUBLE), torch.ones(2, 1, 1, dtype=torch.bool)
    program(*past, reward, torch.tensor([True, False]), arms, mask)
    policy.step(*past, reward)
    state = dict(program.named_buffers())
    assert state["policy.estimator.rounds"].tolist() == [1, 0]
    torch.testing.assert_close(state["policy.estimator.V_inv"][0], policy.estimator.V_inv[0])
    assert torch.equal(state["policy.estimator.V_inv"][1], torch.eye(2, dtype=DOUBLE))


@pytest.mark.parametrize("export", [to_torchscript, to_program])
@pytest.mark.parametrize("name", ["AnytimeHeavyTailUCB", "Thompson"])
def test_exporting_changes_neither_module_nor_random_numbers(name: str, export) -> None:
    policy = POLICIES[name]()
    policy.step(torch.ones(1, 4), 0, torch.tensor(1.0))
    before = {key: buffer.clone() for key, buffer in policy.named_buffers()}
    random = torch.random.get_rng_state()
    training = policy.training
    exported = export(policy)
    assert torch.equal(random, torch.random.get_rng_state())
    assert policy.training == training
    assert all(torch.equal(before[key], buffer) for key, buffer in policy.named_buffers())
    # ... and the exported module is as it was when it was exported, not as its check has left it.
    module = exported if export is to_torchscript else exported.module()
    for key, buffer in module.named_buffers():
        torch.testing.assert_close(buffer, before[key.removeprefix("policy.")], rtol=0, atol=0)


def test_an_exported_state_is_a_learnt_one() -> None:
    policy = AnytimeHeavyTailUCB(4)
    for arms, reward in rounds(30):
        policy.step(arms, 0, reward)
    arms = rounds(1)[0][0]
    torch.testing.assert_close(to_torchscript(policy)(arms), policy(arms))
    program = to_program(policy).module()
    no = (torch.zeros(1, 4, dtype=DOUBLE), torch.tensor(0), torch.tensor(0.0, dtype=DOUBLE), torch.tensor(False))
    mask = torch.ones(1, len(arms), dtype=torch.bool)
    assert program(*no, arms.unsqueeze(0), mask)[0].item() == policy.select(arms).item()


class Encoder(nn.Module):
    """Pixels to features."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(), nn.Linear(8, width))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


@pytest.mark.parametrize("batch", [(), (2,)])
@pytest.mark.parametrize("shape", ["per arm", "context"])
def test_encoder_and_head_are_one_artifact(shape: str, batch: tuple[int, ...], tmp_path: Path) -> None:
    actions = torch.randn(5, 3) if shape == "context" else None
    head = BanditHead(Encoder(3), AnytimeHeavyTailUCB(3, batch_shape=batch), actions=actions)
    item = (6,) if shape == "context" else (5, 6)
    example = torch.randn(*batch, *item)
    to_torchscript(head, tmp_path / "head.pt", example=example)
    to_program(head, tmp_path / "head.pt2", example=example)
    script, program = torch.jit.load(tmp_path / "head.pt"), torch.export.load(tmp_path / "head.pt2").module()
    no_action, no_reward = torch.zeros(batch, dtype=torch.int64), torch.zeros(batch, dtype=DOUBLE)
    past = (torch.zeros_like(example), no_action, no_reward, torch.zeros(batch, dtype=torch.bool))
    for t in range(40):
        count = 1 + t % 3
        inputs = torch.randn(*batch, count, *((3 + t % 4, 6) if shape == "per arm" else (6,)))
        arms = 5 if shape == "context" else inputs.size(-2)
        mask = torch.ones(*batch, count, arms, dtype=torch.bool)
        choice = head.select(inputs, mask)
        assert torch.equal(script.select(inputs, mask), choice)
        assert torch.equal(program(*past, inputs, mask)[0], choice)
        first, action = inputs.select(len(batch), 0), choice.select(len(batch), 0)
        reward = torch.randn(batch, dtype=DOUBLE)
        head.step(first, action, reward)
        script.step(first, action, reward)
        past = (first, action, reward, torch.ones(batch, dtype=torch.bool))
    torch.testing.assert_close(script.policy.estimator.theta_hat, head.policy.estimator.theta_hat, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("make", [GLBOMD, LocalGLB])
@pytest.mark.parametrize("link", VARIANTS["link"], ids=str)
def test_programs_of_every_link(make, link: Link) -> None:
    """An export plays a dozen rounds against the eager learner before it returns."""
    to_program(make(3, link=link))


@pytest.fixture(scope="module")
def compiled_oful(tmp_path_factory: pytest.TempPathFactory, oful_program: Callable[[], ExportedProgram]) -> Path:
    """A folder with the packages of OFUL(2): `round.pt2`, `archive.pt2`, and torch's cache of them."""
    folder = kept_folder() or tmp_path_factory.mktemp("compiled")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(folder / "cache"))
        compile_program(oful_program(), folder / "round.pt2")
        compile_program(to_archive(OFUL(2)), folder / "archive.pt2")
    return folder


@pytest.mark.parametrize("name", ["script", "package"])
def test_files_choose_and_learn_in_cpp(name: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """The programs of docs/cpp.md. A reward in ten is NaN."""
    torch_at, source = Path(torch.__file__).parent, Path(__file__).parents[2] / "examples" / "files" / f"{name}.cpp"
    # Without optimisation, which takes half of the time.
    command = ["g++", "-std=c++20", "-O0", f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"]
    command += [f"-I{torch_at}/include", f"-I{torch_at}/include/torch/csrc/api/include", str(source), "-o", name]
    command += [f"-L{torch_at}/lib", "-ltorch", "-ltorch_cpu", "-lc10", f"-Wl,-rpath,{torch_at}/lib"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    arms = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]], dtype=DOUBLE)
    rewards = torch.stack([arms[:, 1] + 0.1 * math.sin(t) for t in range(200)])
    rewards[9::10] = math.nan
    words = []
    if name == "script":
        file = tmp_path / "oful.pt"
        to_torchscript(OFUL(2), file)
    else:
        file = request.getfixturevalue("compiled_oful") / "archive.pt2"
        torch.save({"inputs": arms.repeat(200, 1, 1), "rewards": rewards}, tmp_path / "rounds.pt")
        words = ["rounds.pt"]
    done = subprocess.run([f"./{name}", str(file), *words], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    # What an eager policy does, which hears the good rounds alone.
    policy, choices = OFUL(2), []
    for t in range(200):
        k = int(policy.select(arms))
        choices.append(k)
        if t % 10 < 9:
            policy.step(arms, k, float(rewards[t, k]))
    if name == "script":
        best = choices.count(2)
        assert done.stdout == f"learnt 180 of 200, the best arm {best} times, without an arm -1\n"
        assert int(torch.jit.load(f"{file}.learnt").estimator.rounds) == 180
    else:
        assert done.stdout == "".join(f"{k} {int(t % 10 < 9)}\n" for t, k in enumerate(choices))


def test_compiled_program_agrees(
    compiled_oful: Path,
    oful_program: Callable[[], ExportedProgram],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """So does the package of the same program that comes from the cache, and it has a state of its own."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(compiled_oful / "cache"))
    policy = OFUL(2)
    program = oful_program()
    monkeypatch.setattr(torch._inductor, "aoti_compile_and_package", None)
    compiled = compile_program(program, tmp_path / "round.pt2")
    again = compile_program(program, tmp_path / "again.pt2")
    runner = Runner.load(compiled_oful / "archive.pt2")
    learn, action = torch.tensor(True), torch.tensor(1)
    for arms, reward in rounds(50, dim=2):
        decision, mask = arms.unsqueeze(0), torch.ones(1, len(arms), dtype=torch.bool)
        choice, _ = compiled(arms, action, reward, learn, decision, mask)
        columns = arms.T.contiguous().T  # in another order of memory
        assert torch.equal(again(columns, action, reward, learn, columns.unsqueeze(0), mask)[0], choice)
        policy.step(arms, action, reward)
        runner.step(columns, action, reward)
        torch.testing.assert_close(runner(columns), policy(arms))
        assert choice.item() == policy.select(arms).item()


def test_another_state_or_number_of_threads_is_compiled_anew(oful_program: Callable[[], ExportedProgram]) -> None:
    policy = OFUL(2)
    places = [place_in_cache(to_program(policy), {})]
    assert place_in_cache(oful_program(), {}) == places[0]
    policy.step(torch.ones(1, 2), 0, 1.0)
    program = to_program(policy)
    places.append(place_in_cache(program, {}))
    places.append(place_in_cache(program, {"joint_graph_constant_folding": False}))
    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    try:
        places.append(place_in_cache(program, {}))
    finally:
        torch.set_num_threads(threads)
    assert len(set(places)) == 4


def test_a_package_has_the_suffix_that_torch_reads(oful_program: Callable[[], ExportedProgram], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"path: expected a file name that ends in .pt2"):
        compile_program(oful_program(), tmp_path / "round.pt")


def test_a_missing_folder_is_named_before_the_export(tmp_path: Path) -> None:
    calls: dict[str, Callable[..., Any]] = {".pt": to_torchscript, ".pt2": to_program, ".pte": to_executorch}
    for suffix, call in (*calls.items(), (".pt2", to_archive), (".pt2", compile_program)):
        with pytest.raises(FileNotFoundError, match=r"path: expected a file in a folder that exists"):
            call(None, tmp_path / "missing" / f"policy{suffix}")
        folder = tmp_path / f"folder{suffix}"
        folder.mkdir(exist_ok=True)
        with pytest.raises(IsADirectoryError, match=r"path: expected a file, got the folder"):
            call(None, folder)
        if suffix != ".pt":
            with pytest.raises(
                ValueError, match=rf"path: expected a file name that ends in \{suffix}, got '\{suffix}'"
            ):
                call(None, suffix)
    with pytest.raises(IsADirectoryError, match=r"path: expected a file, got the folder ''"):
        to_torchscript(OFUL(2), "")


class Slowed(Descent):
    """Divides by a buffer of one number, as it is before the round."""

    def _observe(self, gradients: Tensor, values: Tensor | None) -> None:
        decision = self.decision
        decision -= gradients / along(self.energy, gradients)
        increase_(self.energy, dot(gradients, gradients))


def test_compiled_program_of_a_convex_learner_agrees(tmp_path: Path) -> None:
    """A number that evolves is not taken for a constant."""
    learner = Slowed(3)
    program = compile_program(to_program(learner), tmp_path / "round.pt2")
    for loss in stream(20, (), 3, 0):
        gradients, values = loss.gradients(learner.queries())
        learner.step(gradients)
        decision, _, _ = program(gradients, values, torch.tensor(True))
        torch.testing.assert_close(decision, learner.predict(), rtol=1e-12, atol=1e-12)


class Drifting(Rule):
    """A rule whose compiled form is another."""

    def scores_of(self, predictor: Tensor, width: Tensor) -> Tensor:
        if torch.jit.is_scripting() or torch.compiler.is_compiling():
            return -predictor
        return predictor


CONVEX = {
    "CAOONS": ConvexCase(CAOONS, (("meta", "values"), ("horizon", 16))),
    "OONS": ConvexCase(OONS),
    "FreeGrad": ConvexCase(FreeGrad),
}
# Plays losses with a file, where torchonline is not, and saves the decisions.
FRESH_CONVEX = """
import sys, torch
sys.modules["torchonline"] = None
for path in sys.argv[1:]:
    is_script = path.endswith(".pt")
    learner = torch.jit.load(path) if is_script else torch.export.load(path).module()
    queries, losses = torch.load(path + ".losses")
    decisions = []
    for a, b in losses:
        residual = queries @ a - b
        root = torch.sqrt(1.0 + residual**2)
        gradients, values = (residual / root).unsqueeze(-1) * a, root - 1.0
        if is_script:
            learner.step(gradients, values)
            decision, queries = learner.predict(), learner.queries()
        else:
            decision, queries, _ = learner(gradients, values, torch.tensor(True))
        decisions.append(decision)
    torch.save((torch.stack(decisions), dict(learner.named_buffers())), path + ".learnt")
"""


def test_files_of_convex_learners_go_on_learning_in_a_process_without_torchonline(tmp_path: Path) -> None:
    learners = {}
    for name, case in CONVEX.items():
        learner, losses = case.build(), case.stream(60)
        play(learner, losses[:20])
        to_torchscript(learner, tmp_path / f"{name}.pt")
        learners[f"{name}.pt"] = learner
        if name != "CAOONS":  # which takes long, and is another part of the same
            to_program(learner, tmp_path / f"{name}.pt2")
            learners[f"{name}.pt2"] = copy.deepcopy(learner)
    for name, learner in learners.items():
        losses = [(loss.a, loss.b) for loss in CONVEX[name.split(".")[0]].stream(60)[20:]]
        torch.save((learner.queries(), losses), tmp_path / f"{name}.losses")
    paths = [str(tmp_path / name) for name in learners]
    command = [sys.executable, "-I", "-W", "ignore", "-c", FRESH_CONVEX, *paths]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    for name, learner in learners.items():
        decisions, state = torch.load(tmp_path / f"{name}.learnt")
        for decision, loss in zip(decisions, CONVEX[name.split(".")[0]].stream(60)[20:], strict=True):
            learner.step(*loss.gradients(learner.queries()))
            torch.testing.assert_close(decision, learner.predict(), rtol=1e-9, atol=1e-9)
        assert int(state["rounds" if name.endswith(".pt") else "learner.rounds"]) == 60


@pytest.mark.parametrize("export", [to_torchscript, to_program])
def test_exporting_a_convex_learner_takes_its_state_and_changes_nothing(export, tmp_path: Path) -> None:
    """With a hint said and learnt in both precisions; the file starts where the learner is."""
    for dtype in (torch.float64, torch.float32):
        learner = OONS(3, lipschitz=1.0, batch_shape=(2,), dtype=dtype)
        play(learner, CONVEX["OONS"].stream(12, (2,)))
        learner.set_hint(torch.full((2, 3), 0.1))
        before = snapshot(learner)
        exported = export(learner, tmp_path / "learner.pt2")
        assert differences(before, snapshot(learner)) == []
        if export is to_torchscript:
            assert torch.equal(exported.predict(), learner.predict())
            assert torch.equal(torch.jit.load(tmp_path / "learner.pt2").queries(), learner.queries())
            continue
        nothing = torch.zeros(2, 1, 3, dtype=dtype), torch.zeros(2, 1, dtype=dtype), torch.tensor([False, False])
        for program in (exported.module(), torch.export.load(tmp_path / "learner.pt2").module()):
            decision, queries, _ = program(*nothing)
            assert torch.equal(decision, learner.predict())
            assert torch.equal(queries, learner.queries())


class DriftingDescent(Descent):
    """A convex learner whose compiled form learns at another rate."""

    def _observe(self, gradients: Tensor, values: Tensor | None) -> None:
        rate = 0.5
        if torch.jit.is_scripting() or torch.compiler.is_compiling():
            rate = 0.6
        decision = self.decision
        decision -= rate * gradients


@pytest.mark.parametrize("export", [to_torchscript, to_program])
def test_a_convex_learner_that_compiles_to_something_else_is_refused(export, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="a decision differs"):
        export(DriftingDescent(3), tmp_path / "learner.pt2")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("export", [to_torchscript, to_program])
def test_a_module_that_compiles_to_something_else_is_refused(export, tmp_path: Path) -> None:
    path = tmp_path / "policy.pt2"
    with pytest.raises(RuntimeError, match="differs"):
        export(Drifting(RidgeRegression(4)), path)
    assert list(tmp_path.iterdir()) == []


def test_bad_arguments_name_what_is_wrong(tmp_path: Path) -> None:
    head = BanditHead(Encoder(3), OFUL(3))
    with pytest.raises(TypeError, match="module: expected a Policy"):
        to_torchscript(nn.Linear(2, 2))
    module = NeuralLinearBandit(head)
    for export in (to_torchscript, to_program, torch.jit.script):
        with pytest.raises(TypeError, match=r"^module: expected .*, got NeuralLinearBandit; give its \.head$"):
            export(module)
    with pytest.raises(ValueError, match="example: expected"):
        to_program(head)
    with pytest.raises(ValueError, match="example: expected"):
        to_program(head, example=torch.zeros(6))
    with pytest.raises(ValueError, match=r"path: .*\.pt2"):
        to_program(OFUL(2), tmp_path / "policy.pt")
    with pytest.raises(ValueError, match="module: expected a policy with deterministic scores, got ThompsonSampling"):
        to_onnx(ThompsonSampling(RidgeRegression(2)), tmp_path / "graphs")
    assert list(tmp_path.iterdir()) == []


def test_a_learner_that_learns_meanwhile_is_exported_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """An export in one thread does not see the steps of another."""
    policy, script = OFUL(2), files._as_script

    def slowly(module: nn.Module) -> Any:
        found = script(module)
        policy.step(torch.ones(1, 2), 0, 1.0)
        return found

    monkeypatch.setattr(files, "_as_script", slowly)
    assert int(to_torchscript(policy).estimator.rounds) == 0
    assert int(policy.estimator.rounds) == 1
