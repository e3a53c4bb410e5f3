"""Archives, ONNX graphs and their runner: functions of a policy that take its state and return the next one."""

import json
import random
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from torch import Tensor, nn

from torchonline import (
    GLBOMD,
    OFUL,
    DisjointArms,
    FixedArms,
    LocalGLB,
    RidgeRegression,
    SquareCB,
    StandardScaler,
    ThompsonSampling,
    bandit,
)
from torchonline.baselines import OFUGLB
from torchonline.export import Runner, check_file, runner, to_archive, to_onnx, to_program, to_torchscript
from torchonline.export.onnx_graphs import ForONNX, mantissa
from torchonline.models import BanditHead

DOUBLE = torch.float64


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=DOUBLE)


def assert_plays_like(file: Runner, policy: Any, shape: tuple[int, ...] | None, rounds: range) -> None:
    """Assert that a file and a policy choose alike, and have equal states up to rounding."""
    for t in rounds:
        inputs = None if shape is None else normal(*shape, seed=t)
        k = policy.select(inputs)
        assert torch.equal(file.select(inputs), k), t
        reward = normal(*k.shape, seed=1000 + t).sigmoid()
        policy.step(inputs, k, reward)
        assert bool(file.step(inputs, k, reward).all())
    for name, value in policy.state_dict().items():
        if name in file.state:
            torch.testing.assert_close(file.state[name], value, rtol=1e-9, atol=1e-9)


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The archive of a policy that has learnt."""
    path = tmp_path_factory.mktemp("archive") / "policy.pt2"
    policy = OFUL(2)
    policy.step(torch.eye(2), 0, 1.0)
    to_archive(policy, path)
    return path


@pytest.fixture
def file(archive: Path) -> Runner:
    return Runner.load(archive)


@pytest.mark.fast
def test_an_archive_goes_on_from_the_policys_state(file: Runner) -> None:
    policy = OFUL(2)
    policy.step(torch.eye(2), 0, 1.0)
    assert_plays_like(file, policy, (3, 2), range(30))
    arms = normal(7, 3, 2)  # 7 decisions
    assert torch.equal(file.select(arms), policy.select(arms))
    torch.testing.assert_close(file(arms), policy(arms))
    torch.testing.assert_close(file.probabilities(arms), policy.probabilities(arms))
    fresh = OFUL(2)
    fresh.load_state_dict(fresh.state_dict() | file.state)
    assert int(fresh.rounds) == 31
    file.state = to_archive(OFUL(2)).runner().state  # and back to the start
    assert int(file.state["estimator.rounds"]) == 0


@pytest.mark.fast
def test_a_refused_round_changes_nothing(file: Runner) -> None:
    arms, before = torch.eye(2), file.state
    for reward in (torch.nan, torch.inf, 1e300):
        assert not file.step(arms, 0, reward)
    assert not file.step(arms, 2, 1.0)  # there is no arm 2
    assert not file.step(torch.nan * arms, 0, 1.0)
    assert all(torch.equal(file.state[name], value) for name, value in before.items())
    assert file.select(torch.nan * arms) == -1
    assert file.select(arms, torch.zeros(2, dtype=torch.bool)) == -1
    assert file.select(torch.zeros(0, 2)) == -1
    assert file.select(torch.zeros(5, 0, 2)).tolist() == [-1] * 5
    assert file.probabilities(torch.zeros(0, 2)).dtype == DOUBLE
    assert not file.probabilities(torch.nan * arms).any()


@pytest.mark.fast
def test_values_of_people_are_converted(file: Runner) -> None:
    arms = [[1.0, 0.0], [0.0, 1.0]]
    assert file.step(torch.tensor(arms), torch.tensor(1, dtype=torch.int32), torch.tensor(1.0, dtype=torch.float32))
    assert file.step(arms, 1, True)
    assert file.step(torch.tensor(arms).numpy(), 0, 0.5)
    assert int(file.state["estimator.rounds"]) == 4
    policy = OFUL(2)  # Python's numbers are not rounded to float32
    policy.load_state_dict(policy.state_dict() | file.state)
    policy.step([[0.1, 0.7]], 0, 0.3)
    assert file.step([[0.1, 0.7]], 0, 0.3)
    torch.testing.assert_close(file.state["estimator.theta_hat"], policy.theta_hat, rtol=1e-12, atol=1e-12)
    assert file.select(arms, [True, False]) == 0


@pytest.mark.fast
def test_numbers_keep_their_precision_and_tensors_no_graph(file: Runner) -> None:
    policy = OFUL(2)
    file.state = policy.state_dict()  # a copy
    reward = torch.tensor(0.1, dtype=DOUBLE, requires_grad=True)
    for arms, outcome in (([[0.1, 0.7], [0.3, 0.2]], 0.1), (torch.eye(2, dtype=DOUBLE).requires_grad_(), reward)):
        policy.step(arms, 0, outcome)
        assert file.step(arms, 0, outcome)
        assert not any(value.requires_grad for value in file.state.values())
    for name, value in file.state.items():
        torch.testing.assert_close(value, policy.state_dict()[name], rtol=1e-12, atol=1e-12)


@pytest.mark.fast
def test_threads_lose_no_step(file: Runner) -> None:
    def play() -> None:
        for _ in range(20):
            file.step(torch.eye(2), 0, 1.0)

    before, threads = int(file.state["estimator.rounds"]), [threading.Thread(target=play) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert int(file.state["estimator.rounds"]) == before + 80


@pytest.mark.fast
def test_nothing_is_drawn_where_there_is_no_arm(file: Runner) -> None:
    for shape in ((0, 2), (3, 0, 2), (0, 3, 2)):
        k, probability = file.select_with_probability(torch.zeros(shape))
        assert k.tolist() == file.select(torch.zeros(shape)).tolist()
        assert k.shape == probability.shape
        assert not probability.any()


@pytest.mark.fast
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda file: file.select(torch.eye(3)), r"inputs: expected shape \(\.\.\., \*, 2\), got \(3, 3\)"),
        (lambda file: file.select(torch.zeros(2)), r"inputs: expected shape"),
        (lambda file: file.step(torch.zeros(2, 2, 2), 0, 1.0), r"inputs: expected shape"),
        (lambda file: file.step(torch.eye(2), [0, 1], 1.0), r"action: expected shape \(\), got \(2,\)"),
        (lambda file: file.step(torch.eye(2), 0.5, 1.0), r"action: expected int64, got torch\.float32"),
        (lambda file: file.step(torch.eye(2), 0, [1.0, 2.0]), r"reward: expected shape \(\), got \(2,\)"),
        (lambda file: file.step(torch.eye(2), 0, 1.0j), r"reward: expected float64, got torch\.complex"),
        (lambda file: file.step(torch.eye(2), 0, "high"), r"reward: expected float64, got str"),
        (lambda file: file.select(torch.eye(2), torch.ones(2)), r"mask: expected a bool tensor, got torch\.float32"),
        (lambda file: file.select(torch.eye(2), [True]), r"mask: expected shape \(1, 2\), got \(1, 1\)"),
        (lambda file: file.step(torch.eye(2), 0, 1.0, 2.0), r"noise_scale: expected None, since the file takes none"),
        (lambda file: file.select(), r"inputs: expected float64, got NoneType"),
        (lambda file: file.step(torch.eye(2), None, 1.0), r"action: expected int64, got NoneType"),
        (lambda file: file.step(torch.eye(2), 0, "a"), r"reward: expected float64, got str"),
        (lambda file: file.step(torch.zeros(0, 2), 0, 1.0), r"inputs: expected at least one arm, got shape \(0, 2\)"),
        (
            lambda file: setattr(file, "state", OFUL(3).state_dict()),
            r"state: expected estimator\.theta_hat of shape \(2,\) and torch\.float64, got \(3,\)",
        ),
        (
            lambda file: setattr(file, "state", OFUL(2, dtype=torch.float32).state_dict()),
            r"state: expected estimator\.theta_hat of shape \(2,\) and torch\.float64, got \(2,\) and torch\.float32",
        ),
        (lambda file: setattr(file, "state", {}), r"state: expected the buffer estimator\.theta_hat, got none"),
    ],
)
def test_wrong_shapes_and_types_are_named(call: Callable[[Runner], Any], message: str, file: Runner) -> None:
    before = file.state
    with pytest.raises((TypeError, ValueError), match=f"^{message}"):
        call(file)
    assert file.state is before


@pytest.mark.fast
def test_archives_of_other_modules_are_refused(tmp_path: Path) -> None:
    to_program(OFUL(2), tmp_path / "program.pt2")
    with pytest.raises(ValueError, match=r"path: expected a file of to_archive, got one without torchonline\.json"):
        Runner.load(tmp_path / "program.pt2")
    (tmp_path / "program.pt2").unlink()
    with pytest.raises(ValueError, match=r"path: expected a file name that ends in \.pt2"):
        to_archive(OFUL(2), tmp_path / "policy.pt")
    with pytest.raises(TypeError, match="module: expected a policy, got Linear"):
        to_archive(nn.Linear(2, 2))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"module: expected learners that torch\.export can trace, got"):
        to_archive(OFUGLB(2, horizon=10))
    with pytest.raises(TypeError, match="noise_scale: expected True or False"):
        to_archive(OFUL(2), noise_scale=1)  # type: ignore[arg-type]
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="path: expected a folder, got the file"):
        to_onnx(OFUL(2), tmp_path / "file")
    (tmp_path / "file").unlink()
    assert list(tmp_path.iterdir()) == []


POLICIES: dict[str, tuple[Callable[[], Any], tuple[int, ...] | None]] = {
    "a batch": (lambda: LocalGLB(3, theta_bound=1.0, feature_bound=9.0, batch_shape=(2,)), (2, 4, 3)),
    "arms with names": (lambda: bandit(3, actions=["a", "b", "c"]), (3,)),
    "fixed arms": (lambda: FixedArms(RidgeRegression(3), normal(5, 3)), None),
}


@pytest.mark.parametrize("name", POLICIES)
def test_archives_of_many_policies(name: str, tmp_path: Path) -> None:
    make, shape = POLICIES[name]
    to_archive(make(), tmp_path / "policy.pt2")
    file = Runner.load(tmp_path / "policy.pt2")
    assert_plays_like(file, make(), shape, range(25))
    if name == "fixed arms":
        with pytest.raises(TypeError, match=r"^inputs: expected None, because the arms are fixed, got Tensor"):
            file.select(torch.ones(3))
    if name == "arms with names":
        assert file.name_of(2) == "c"
        assert file.name_of(9) == ""


def test_ids_and_noise_scales(tmp_path: Path) -> None:
    policy = DisjointArms(RidgeRegression(2), actions=3)
    policy.remove_actions([1])
    file = to_archive(policy, noise_scale=True).runner()
    x = torch.eye(2)[0]
    with pytest.raises(TypeError, match=r"^noise_scale: expected float64, got torch\.complex"):
        file.step(x, 0, 1.0, 1.0j)
    for action, scale in ((2, 0.5), (0, 3.0), (2, 2.0)):
        policy.step(x, action, 1.0, noise_scale=scale)
        assert file.step(x, action, 1.0, scale)
    assert not file.step(x, 1, 1.0, 1.0)  # a removed arm
    assert int(file.select(x)) == int(policy.select(x))
    torch.testing.assert_close(file.state["policy.estimator.theta_hat"], policy.theta_hat)
    with pytest.raises(ValueError, match="noise_scale: expected a number, since the file takes noise scales, got None"):
        file.step(x, 0, 1.0)
    drawn, probability = file.select_with_probability(x.repeat(200, 1))
    assert set(drawn.tolist()) <= {0, 2}
    assert probability.min() > 0.0


class Texts(nn.Module):
    """Encoder of texts of any length: the mean of the embeddings of tokens."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table = nn.Embedding(50, 4)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.table(tokens).mean(-2)


def test_a_transformer_takes_texts_of_any_length(tmp_path: Path) -> None:
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    model = BertModel(BertConfig(vocab_size=50, max_position_embeddings=32, **sizes)).eval()
    head = BanditHead(model, DisjointArms(RidgeRegression(8), actions=3), output="mean")

    def text(length: int) -> Tensor:
        return head.encoder.lookup({"input_ids": torch.randint(1, 50, (1, length))})[0]

    to_archive(head, tmp_path / "head.pt2", example=text(6))
    to_onnx(head, tmp_path / "head", example=text(6))
    for path in (tmp_path / "head.pt2", tmp_path / "head"):
        file = Runner.load(path)
        for length in (2, 6, 21):
            tokens = text(length)
            torch.testing.assert_close(file(tokens), head(tokens), rtol=1e-4, atol=1e-4)
        assert file.step(tokens, 1, 0.5)


def test_a_state_of_other_arms_is_refused() -> None:
    policy = DisjointArms(RidgeRegression(2), actions=3)
    file = to_archive(policy).runner()
    policy.step([1.0, 0.0], 2, 1.0)
    file.state = policy.state_dict()
    assert_plays_like(file, policy, (2,), range(5))
    policy.remove_actions([1])
    policy.add_actions()  # three arms again, with the ids 0, 2 and 3
    before = dict(file.state)
    with pytest.raises(ValueError, match="state: expected ids with the values of the file, got others; export"):
        file.state = policy.state_dict()
    assert all(file.state[name] is value for name, value in before.items())
    newer = to_archive(policy).runner()
    newer.state = policy.state_dict()
    assert_plays_like(newer, policy, (2,), range(5))


def test_a_state_of_other_ids_names_or_options_is_refused() -> None:
    policy = DisjointArms(RidgeRegression(2), actions=4)
    policy.remove_actions([1])
    file = to_archive(policy).runner()
    file.state = policy.state_dict()
    file.state = file.state
    for other in (DisjointArms(RidgeRegression(2), actions=3), DisjointArms(RidgeRegression(2, ridge=2.0), actions=3)):
        with pytest.raises(ValueError, match=r"state: expected (ids|policy.estimator.constants) with the values"):
            file.state = other.state_dict()
    file = to_archive(DisjointArms(RidgeRegression(2), actions=["a", "b"])).runner()
    file.state = DisjointArms(RidgeRegression(2), actions=["a", "b"]).state_dict()
    with pytest.raises(ValueError, match=r"state: expected name_bytes with the values"):
        file.state = DisjointArms(RidgeRegression(2), actions=["b", "a"]).state_dict()


@pytest.mark.fast
def test_digests_tell_dtypes_and_shapes_apart() -> None:
    zeros = [
        torch.zeros(2, 3),
        torch.zeros(3, 2),
        torch.zeros(2, 3, dtype=torch.int32),
        torch.zeros(6),
        -torch.zeros(6),
    ]
    assert len({runner.digest_of(x) for x in zeros}) == len(zeros)
    weights = torch.randn(3, 2)
    assert runner.digest_of(weights) == runner.digest_of(weights.T.contiguous().T)
    odd = [torch.zeros(0, 3), torch.tensor(1.0), torch.ones(3, dtype=torch.bfloat16), torch.ones(3, dtype=torch.bool)]
    assert None not in map(runner.digest_of, odd)
    assert runner.digest_of({"version": 1}) is runner.digest_of(torch.eye(2).to_sparse()) is None


class OfBuffer(nn.Module):
    def __init__(self, x: Tensor) -> None:
        super().__init__()
        self.register_buffer("x", x)


@pytest.mark.fast
def test_modules_share_tensors_of_equal_bits_and_strides() -> None:
    nan, wide = torch.tensor(torch.nan), torch.ones(2, 3)
    for one, other, is_shared in [
        (nan, nan.clone(), True),
        (wide, wide.clone(), True),
        (wide, torch.ones(3, 2).T, False),  # code may depend on strides
        (torch.tensor(0.0), torch.tensor(-0.0), False),
        (wide, wide.int(), False),
    ]:
        modules = OfBuffer(one), OfBuffer(other)
        runner._share_weights(modules)
        assert (modules[1].x is one) == is_shared
        assert modules[1].x is (one if is_shared else other)


class WithVersion(nn.Linear):
    """Has a state that is no tensor."""

    def get_extra_state(self) -> dict[str, int]:
        return {"version": 1}

    def set_extra_state(self, state: dict[str, int]) -> None:
        pass


def test_an_encoder_may_have_a_state_that_is_no_tensor() -> None:
    head = BanditHead(WithVersion(3, 2), OFUL(2), actions=[[1.0, 0.0], [0.0, 1.0]])
    file = to_archive(head, example=torch.ones(3)).runner()
    file.state = head.state_dict()
    assert "encoder.weight" in file.about["fixed"]


def test_an_encoder_may_have_a_buffer_of_nan() -> None:
    encoder = nn.Linear(3, 2)
    encoder.register_buffer("unset", torch.full((2,), torch.nan))
    head = BanditHead(encoder, OFUL(2), actions=[[1.0, 0.0], [0.0, 1.0]])
    file = to_archive(head, example=torch.ones(3)).runner()
    file.state = head.state_dict()
    to_program(head, example=torch.ones(3))
    to_torchscript(head, example=torch.ones(3))


class Counting(nn.Linear):
    """Counts its calls."""

    def __init__(self) -> None:
        super().__init__(3, 2)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1.0
        return super().forward(x)


def test_an_encoder_with_a_state_of_its_own_is_refused(tmp_path: Path) -> None:
    head = BanditHead(Counting(), OFUL(2), actions=[[1.0, 0.0], [0.0, 1.0]])
    with pytest.raises(
        ValueError, match="module: expected an encoder that writes no buffer, got one that writes calls"
    ):
        to_archive(head, tmp_path / "head.pt2", example=torch.ones(3))
    assert [*tmp_path.iterdir()] == []


@pytest.mark.fast
def test_a_step_does_not_undo_the_state_that_another_thread_assigns() -> None:
    threads = []

    def step(state: dict[str, Tensor], *_: Tensor) -> Any:
        threads.append(threading.Thread(target=setattr, args=(file, "state", {"x": torch.tensor(5.0)})))
        threads[0].start()
        threads[0].join(0.2)  # it waits for the step
        return torch.tensor(True), state

    about = {
        "fixed": {},
        "batch_shape": [],
        "types": {"action": "int64", "reward": "float64"},
        "arguments": {"step": ["action", "reward"]},
    }
    file = Runner({"start": lambda: {"x": torch.tensor(0.0)}, "step": step}, about)
    file.step(None, 0, 1.0)
    threads[0].join()
    assert file.state["x"] == 5.0


def test_a_state_of_another_encoder_is_refused() -> None:
    head = BanditHead(nn.Linear(3, 2), OFUL(2), actions=[[1.0, 0.0], [0.0, 1.0]])
    file = to_archive(head, example=torch.ones(3)).runner()
    file.state = head.state_dict()
    nn.init.zeros_(head.encoder.weight)
    with pytest.raises(ValueError, match=r"state: expected encoder.weight with the values of the file"):
        file.state = head.state_dict()


def test_an_archive_has_the_weights_of_an_encoder_once(tmp_path: Path) -> None:
    encoder = nn.Sequential(*(nn.Linear(300, 300) for _ in range(4)), nn.Linear(300, 2)).double()
    for part in encoder[:2]:
        for parameter in part.parameters():
            nn.init.zeros_(parameter)  # the same in both parts
    head, weights = BanditHead(encoder, bandit(2, actions=3)), sum(p.nbytes for p in encoder.parameters())
    to_archive(head, tmp_path / "head.pt2", example=normal(300))
    assert (tmp_path / "head.pt2").stat().st_size < 2 * weights  # with graphs and states
    file = Runner.load(tmp_path / "head.pt2")
    assert_plays_like(file, head, (300,), range(20))
    # Programs share tensors of one name, and only those.
    of = {name: dict(function.named_parameters()) for name, function in file.functions.items()}
    at = {path: weight.data_ptr() for path, weight in of["step"].items()}
    assert len(set(at.values())) == len(at) > 0
    for name in ("select", "probabilities", "scores"):
        assert {path: weight.data_ptr() for path, weight in of[name].items()} == at


@pytest.mark.parametrize("kind", ["archive", "onnx"])
def test_the_length_of_a_text_may_vary(kind: str, tmp_path: Path) -> None:
    head = BanditHead(Texts(), DisjointArms(RidgeRegression(4), actions=3))
    example = torch.randint(50, (6,))
    if kind == "archive":
        to_archive(head, tmp_path / "head.pt2", example=example)
    else:
        to_onnx(head, tmp_path / "head.pt2", example=example)
    file = Runner.load(tmp_path / "head.pt2")
    for length in (1, 3, 6, 11):
        for t in range(3):
            tokens = torch.randint(50, (length,), generator=torch.Generator().manual_seed(t))
            k = head.select(tokens)
            assert file.select(tokens) == k
            head.step(tokens, k, float(t))
            assert file.step(tokens, k, float(t))
    with pytest.raises(TypeError, match=r"inputs: expected int64, got torch\.float32"):
        file.select(torch.zeros(3))


PROGRAM = """
import sys
sys.modules["torchonline"] = None
sys.path.insert(0, sys.argv[1])
import torch
from runner import Runner

file = Runner.load(f"{sys.argv[1]}/{sys.argv[2]}")
choices = []
for x, rewards in torch.load(f"{sys.argv[1]}/rounds.pt"):
    k = file.select(x)
    choices.append(int(k))
    file.step(x, k, rewards[k])
torch.save((choices, file.state), f"{sys.argv[1]}/learnt.pt")
"""


@pytest.mark.parametrize("kind", ["archive", "onnx"])
def test_a_copy_of_the_runner_needs_no_torchonline(kind: str, tmp_path: Path) -> None:
    policy = bandit(3, actions=3)
    if kind == "archive":
        to_archive(policy, tmp_path / "policy.pt2")
    else:
        to_onnx(policy, tmp_path / "policy.pt2")
    shutil.copy(runner.__file__, tmp_path)
    rounds = [(normal(3, seed=t), normal(3, seed=500 + t).sigmoid()) for t in range(60)]
    torch.save(rounds, tmp_path / "rounds.pt")
    command = [sys.executable, "-I", "-W", "ignore", "-c", PROGRAM, str(tmp_path), "policy.pt2"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    choices, state = torch.load(tmp_path / "learnt.pt")
    for choice, (x, rewards) in zip(choices, rounds, strict=True):
        assert choice == int(policy.select(x))
        policy.step(x, choice, rewards[choice])
    torch.testing.assert_close(state["policy.estimator.theta_hat"], policy.theta_hat)


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("onnx") / "policy"
    to_onnx(OFUL(2), folder)
    return folder


def test_onnx_graphs_by_onnxruntime_alone(graphs: Path) -> None:
    """The lines of docs/files.md."""
    from onnxruntime import InferenceSession

    start, select, step = (InferenceSession(graphs / f"{name}.onnx") for name in ("start", "select", "step"))
    names = [one.name for one in start.get_outputs()]
    state = dict(zip(names, start.run(None, {}), strict=True))
    policy, arms = OFUL(2), normal(4, 2)
    for t in range(200):
        offered = {"inputs": arms[None].numpy(), "mask": torch.ones(1, 4, dtype=torch.bool).numpy()}
        k = select.run(None, state | offered)[0][0]
        assert k == int(policy.select(arms))
        reward = torch.tensor(float(arms[k, 1]) if t % 10 else torch.nan, dtype=DOUBLE)
        past = {"past": arms.numpy(), "action": numpy.asarray(k), "reward": reward.numpy()}
        learnt, *following = step.run(None, state | past)
        assert bool(learnt) == (t % 10 > 0)
        state = dict(zip(names, following, strict=True))
        if learnt:
            policy.step(arms, int(k), float(reward))
    assert int(state["estimator.rounds"]) == 180


def test_a_scaler_freezes_in_onnx_graphs(tmp_path: Path) -> None:
    """The arms start anew, which writes diagonals."""

    def make() -> DisjointArms:
        return DisjointArms(RidgeRegression(3), 3, scaler=StandardScaler(2, freeze_after=20))

    to_onnx(make(), tmp_path)
    assert_plays_like(Runner.load(tmp_path), make(), (2,), range(40))


def test_changed_bits_of_a_folder_are_found(graphs: Path) -> None:
    check_file(graphs)
    generator = random.Random(0)
    for path in sorted(graphs.iterdir()):
        data = path.read_bytes()
        for _ in range(20):
            place = generator.randrange(len(data))
            path.write_bytes(data[:place] + bytes([data[place] ^ 1 << generator.randrange(8)]) + data[place + 1 :])
            with pytest.raises(ValueError, match=r"^path: expected"):
                check_file(graphs)
        path.write_bytes(data)
    check_file(graphs)


def test_a_rule_that_draws_has_no_select_in_onnx(tmp_path: Path) -> None:
    policy = SquareCB(2)
    to_onnx(policy, tmp_path)
    assert not (tmp_path / "select.onnx").exists()
    file = Runner.load(tmp_path)
    with pytest.raises(ValueError, match="select: expected a policy that does not draw its choices"):
        file.select(torch.eye(2))
    k, probability = file.select_with_probability(torch.eye(2))
    torch.testing.assert_close(probability, policy.probabilities(torch.eye(2))[k].squeeze())
    assert file.step(torch.eye(2), k, 1.0)
    with pytest.raises(ValueError, match="got ThompsonSampling"):
        to_onnx(ThompsonSampling(RidgeRegression(2)), tmp_path / "no")
    with pytest.raises(ValueError, match=r"operations that ONNX has, got a GLBOMD, which needs aten\._linalg_solve_ex"):
        to_onnx(GLBOMD(2), tmp_path / "no")
    assert not (tmp_path / "no").exists()


def test_a_second_call_leaves_no_graph_of_the_first(graphs: Path, tmp_path: Path) -> None:
    shutil.copytree(graphs, tmp_path / "policy")
    (tmp_path / "policy" / "encoder.onnx").write_bytes(b"of someone else")
    to_onnx(SquareCB(2), tmp_path / "policy")
    assert not (tmp_path / "policy" / "select.onnx").exists()
    assert (tmp_path / "policy" / "encoder.onnx").exists()
    check_file(tmp_path / "policy")
    assert json.loads((tmp_path / "policy" / "torchonline.json").read_text())["learner"] == "SquareCB"


def test_the_mantissa_is_exact() -> None:
    x = torch.cat(
        [normal(20_000) * 10.0 ** torch.randint(-320, 300, (20_000,)), 2.0 ** torch.arange(-1074, 1024).double()]
    )
    x = torch.cat([x, torch.tensor([0.0, -0.0, 5e-324, 1.7976931348623157e308, 0.9999999999999999], dtype=DOUBLE)])
    assert torch.equal(mantissa(x), torch.frexp(x)[0])


def test_a_graph_for_onnx_computes_the_same() -> None:
    """Numbers, conditions, hashes and empty sums."""

    class Module(nn.Module):
        def forward(self, x: Tensor, flags: Tensor, number: Tensor) -> list[Tensor]:
            chosen = torch.cond(x.sum() > 0.1, lambda x: x * 0.3, lambda x: x.clone(), (x,))
            sums = (number * 0x7FFFFFFFFFFFFFF).sum(-1)
            filled = [torch.full_like(x, 0.1), x.new_full((2,), 5.6e102), torch.zeros_like(x).scatter(0, number, 0.7)]
            return [
                chosen,
                sums,
                flags.any(-1),
                torch.where(flags[:2], flags[1:3], flags[:2]),
                *filled,
                x.clamp(0.1, 0.7),
                torch.diagonal_scatter(x.new_ones(3, 4, 4), x.expand(3, 4), dim1=-2, dim2=-1),
                torch.diagonal_scatter(x.new_ones(5, 4), x, offset=-1),
            ]

    arguments = (normal(4), torch.tensor([True, False, True]), torch.tensor([0, 1, 3]))
    program = torch.export.export(Module(), arguments, strict=False).run_decompositions()
    for one, other in zip(ForONNX(program.module()).run(*arguments), Module()(*arguments), strict=True):
        assert torch.equal(one, other)
