"""The command line: every command on small files, errors in one line, and the page that explains it."""

import dataclasses
import io
import json
import logging
import os
import pickle
import re
import runpy
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.fake_device import environment
from tests.printed import check_printed
from torchonline import OFUL, DisjointArms, RidgeRegression, StandardScaler
from torchonline.command_line import COMMANDS, is_explained, main, warning_printer
from torchonline.command_line.commands import open_log, print_table, read_checkpoint
from torchonline.command_line.evaluation import evaluate_head
from torchonline.command_line.parser import LOGGERS, choose_warnings
from torchonline.command_line.service import (
    LEARNER,
    LearnerProcess,
    describe_state,
    make_settings,
    pickled,
    run_service,
)
from torchonline.feedback import Follower, follow, load_snapshot
from torchonline.models import BanditHead, mlp, recommended_policy
from torchonline.off_policy import BanditLog
from torchonline.serving import Replica

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "command_line.md").read_text()
# Lightning calls jsonargparse in ways that the latest one warns of.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a configuration and the examples, in which commands run. They leave the process as it was."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / "clicks.yaml").write_text(re.findall(r"```yaml\n(# clicks.yaml.*?)```", PAGE, re.DOTALL)[0])
    # uvicorn's configuration shuts down all handlers of logging, and absl's would close the stream that pytest captures.
    monkeypatch.setattr(logging, "shutdown", lambda handlers=(): None)
    before = process()
    yield tmp_path
    assert process() == before


def process() -> list[Any]:
    """What commands set in a process."""
    levels = [logging.getLogger(name).level for name in LOGGERS]
    seeds = [os.environ.get(name) for name in ("PL_GLOBAL_SEED", "PL_SEED_WORKERS")]
    handlers = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    threads = [torch.get_num_threads(), sys.getswitchinterval()]
    return [levels, seeds, handlers, threads, warnings.showwarning, torch.get_rng_state().tolist()]


def run_script(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a script of the examples as its command line does."""
    program, script, *words = shlex.split(line)
    assert program == "python"
    with monkeypatch.context() as patch:
        patch.setattr("sys.argv", [script, *words])
        runpy.run_path(script, run_name="__main__")


class Pipe(io.BytesIO):
    """Standard input of a process. What it was given can be read after it is closed."""

    def close(self) -> None: ...


class Service:
    """What stands for uvicorn's server and for the learner's process: it asks the application, and notes how a learner starts."""

    def __init__(self, requests: list[str]) -> None:
        self.stdin = Pipe()
        self.requests, self.answers, self.learner = requests, list[Any](), list[str]()
        self.ended = threading.Event()

    def run(self, server: Any) -> None:
        from fastapi.testclient import TestClient

        with TestClient(server.config.app, base_url="http://localhost") as client:
            for line in self.requests:
                words = shlex.split(line)
                path, body = words[3].partition("/")[2], json.loads(words[words.index("-d") + 1])
                for visitor in ("visitor 1", "visitor 2"):
                    self.answers.append(client.post(f"/{path}", json=body | {"id": visitor}))
            assert client.get("/health").status_code == 200

    def start(self, words: list[str], **_: Any) -> "Service":
        self.learner = words
        return self

    def poll(self) -> None: ...

    def terminate(self) -> None:
        self.ended.set()

    kill = terminate

    def wait(self, timeout: float | None = None) -> None:
        assert self.ended.wait(60.0)


def test_the_page_runs(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """All commands of the page, in order, in one folder."""
    lines = [line for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()]
    assert {line.split()[3] for line in lines if " -m torchonline " in line} == set(COMMANDS)
    service = Service([line for line in lines if line.startswith("curl")])
    monkeypatch.setattr("uvicorn.Server.run", lambda server, sockets: service.run(server))
    run_script("python examples/configs/data.py --output .", monkeypatch)
    for line in lines:
        if line.startswith("curl"):
            continue
        if line.startswith("python examples"):
            run_script(f"{line} --rounds 300", monkeypatch)
            continue
        words = shlex.split(re.sub(r"^(python -m )?torchonline ", "", line).removesuffix("&"))
        with monkeypatch.context() as patch:
            if words[0] == "serve":
                patch.setattr(subprocess, "Popen", service.start)
                words[-1] = str(free_port())
            assert main(words) == 0, capsys.readouterr().err
    captured = capsys.readouterr()
    assert "has not learnt" not in captured.err
    # The export above has made a class of the same name, which jsonargparse must not find.
    assert main(shlex.split("fit --config clicks.yaml --model.head BanditHead --print_config")) == 0
    assert [answer.status_code for answer in service.answers] == [200] * 4
    assert service.answers[-1].json() == {"outcome": "joined"}
    assert service.learner == list(LEARNER)
    settings = pickle.loads(service.stdin.getvalue())
    assert settings.snapshot.name == "policy-v1.pt"
    assert settings.make_policy().number_of_actions() == settings.actions
    out = captured.out
    assert out.count("learnt 300 rounds; checkpoint: ") == 2  # online, private
    assert out.count("learnt 3000 rounds; checkpoint: ") == 1
    for row in (
        "regret: ",
        "mean_loss: ",
        "privacy_spent: ",
        "as logged",
        "IPS",
        "SNIPS",
        "doubly robust",
        "IPS, at all times",
        "test_regret",
    ):
        assert row in out
    replayed = out[out.index("choices were the logged actions") :]
    assert len(re.findall(r"^S?N?IPS .* to [\d.]+   heuristic: the policy learns$", replayed, re.MULTILINE)) == 2
    assert re.search(r"^IPS, at all times .* to [\d.]+$", replayed, re.MULTILINE)
    # The table of the page, but for the last digits.
    (shown,) = re.findall(r"```text\nstate: .*?\n(log: .*?)```", PAGE, re.DOTALL)
    start = out.index("log: 1500 rounds")
    check_printed(shown, "\n".join(out[start:].splitlines()[: len(shown.splitlines())]))
    file = torch.jit.load(folder / "banners.pt")
    assert int(file.select(torch.tensor([35.0, 18.5, 2.0]))) in range(3)
    (metrics,) = (folder / "outputs/private/lightning_logs/version_0").glob("metrics.csv")
    assert metrics.read_text().startswith("privacy_spent,step")
    assert re.search(r"^regret: \S+ \(all rounds\)$", out, re.MULTILINE)
    assert re.search(r"^regret_per_round: \S+ \(mean over the last batch\)$", out, re.MULTILINE)
    modes = [(folder / f"outputs/{name}/last.ckpt").stat().st_mode & 0o077 for name in ("online", "private")]
    assert modes[1] == 0 != modes[0]
    assert (folder / "report.html").stat().st_size > 1000


def test_clicks_with_a_model_for_each_action(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The example with a link: learnt in two parts it is what it is in one; then evaluated and served on."""
    run_script("python examples/configs/data.py --smoke", monkeypatch)
    config = "--config examples/configs/clicks.yaml"
    log = torch.load
    states = []
    for words in (
        "fit --data.batch_size 50",
        "fit --data.part [0,0.5] --data.batch_size 50",
        "fit --data.part [0.5,1] --data.batch_size 50 --trainer.max_epochs 2 --ckpt_path outputs/clicks/last.ckpt",
    ):
        command, rest = words.split(" ", 1)
        assert main(shlex.split(f"{command} {config} {rest}")) == 0, capsys.readouterr().err
        states.append(log("outputs/clicks/last.ckpt", weights_only=True)["state_dict"])
    assert int(states[1]["rounds"]) == 100
    name = "head.policy.policy.estimator.theta_hat"
    torch.testing.assert_close(states[2][name], states[0][name])
    again = f"fit {config} --data.part [0.5,1] --data.batch_size 50 --ckpt_path outputs/clicks/last.ckpt"
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        assert main(shlex.split(f"{again} --trainer.max_epochs 2")) == 0
        assert main(shlex.split(f"evaluate {config} --data.part [0.4,1]")) == 0
    captured = capsys.readouterr()
    for line in (
        "learnt 100 rounds; checkpoint",
        "learnt 100 new rounds, 200 in all",
        "learnt 0 new rounds, 200 in all",
    ):
        assert line in captured.out
    assert "fit: expected new rounds, got none: 200 were learnt before" in captured.err
    assert "--trainer.max_epochs 3 makes one more" in captured.err
    assert "IPS" in captured.out
    # Both fits of the checkpoint are known, and so are their rounds.
    assert "got some that it has, part [0.4,0.5], [0.5,1] of the files" in captured.err


WRONG = {
    "fit --config none.yaml": "config: File does not exist",
    "fit": "data: the following arguments are required: files, action, reward",
    "fit --config clicks.yaml": "files: expected files that exist, got 'clicks.csv'",
    "fit --config clicks.yaml --data.batch_size many": "data.batch_size: Expected a <class 'int'>, got many",
    "fit --config clicks.yaml --data.batch_size 0": "torchonline fit: error: batch_size: expected an integer above 0, got 0\n",
    "fit --config clicks.yaml --data.part [1,0]": "fit: error: part: expected 0 <= first < last <= 1, got 1 and 0\n",
    "fit --config clicks.yaml --data.context [age,click]": "fit: error: context: expected no column of the reward, ",
    "fit --config clicks.yaml --model.head.policy.rewards bin": "model.head.policy.rewards: Expected a typing.Literal['binary', ",
    "fit --config clicks.yaml --ckpt_path no.ckpt": "ckpt_path: expected a checkpoint, as fit writes, got none at no.ckpt",
    "fit --config clicks.yaml --model.head.policy.dimm 3": "model.head.policy: Option 'dimm' is not accepted",
    "fit --config clicks.yaml --model.head.policy Nothing": "model.head.policy: expected a class, got Nothing",
    "fit --config clicks.yaml --trainer.callbacks Nothing": "trainer.callbacks: expected a class, got Nothing",
    "fit --config clicks.yaml --trainer.callbacks [torch.nn.Identity]": "torch.nn.Identity does not correspond to a subclass",
    "fit --config clicks.yaml --trainer.max_epochs a": "trainer.max_epochs: Expected <class 'int'>, got a",
    "fit --config clicks.yaml --bogus 1": "unrecognized arguments: --bogus 1",
    "test --config clicks.yaml --ckpt_path new": "data: expected the rewards of all arms",
    "evaluate --config clicks.yaml": "ckpt_path: expected a checkpoint, as fit writes, got none at outputs/last.ckpt",
    "report": "the following arguments are required: --log",
    "report --log clicks.yaml": "log: expected a service's log, such as decisions.db, or the URL of its database, got",
    "report --log none.db": "log: expected a log of decisions, got none at none.db",
    "export --config clicks.yaml --ckpt_path clicks.yaml": "ckpt_path: expected a checkpoint",
    "learn --config clicks.yaml": "expected one of fit, test",
}


@pytest.mark.parametrize("words", list(WRONG))
def test_errors_are_one_line(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(shlex.split(words)) == 2
    err = capsys.readouterr().err
    assert WRONG[words] in err
    assert err.count("\n") == 1
    assert err.startswith("torchonline")


def test_what_is_no_checkpoint(folder: Path) -> None:
    (folder / "log.csv").write_text("age,hour\n")
    (folder / "empty.ckpt").touch()
    torch.save([1.0], folder / "list.ckpt")
    for name in ("log.csv", "empty.ckpt", "list.ckpt"):
        with pytest.raises(ValueError, match=rf"^ckpt_path: expected a checkpoint, as fit writes, got .*{name}, which"):
            read_checkpoint(str(folder / name))
    with pytest.raises(ValueError, match=r"^url: expected a URL such as postgresql"):
        open_log("unknown://user:secret@host")


@pytest.mark.parametrize(
    "error", [RuntimeError("a mistake"), ValueError("too many values to unpack"), TypeError(), OSError()]
)
def test_mistakes_of_the_program_keep_their_traceback(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(words: list[str]) -> None:
        raise error

    monkeypatch.setattr("torchonline.command_line.parser.run_command", fail)
    with pytest.raises(type(error)):
        main(["fit"])


def test_what_explains_itself_is_shown_with_its_traceback_if_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    for error in (
        ValueError("dim: expected 1, got 2"),
        ModuleNotFoundError("No module named 'a'"),
        OSError(28, "no space"),
    ):
        assert is_explained(error)
    monkeypatch.setenv("TORCHONLINE_TRACEBACK", "1")
    with pytest.raises(ValueError, match="files: expected files that exist"):
        main(["fit", "--config", "clicks.yaml"])


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(["fit"]) == 2
    assert 'pip install ".[cli]" in a clone' in capsys.readouterr().err


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert main(["--help"]) == 0
    overview = capsys.readouterr().out
    for name, text in COMMANDS.items():
        assert overview.count(f"  {name:<10} {text}\n") == 2
    for name in COMMANDS:
        assert main([name, "--help"]) == 0
        text = capsys.readouterr().out
        assert text.startswith(f"usage: python -m torchonline {name}")
        assert len(text.splitlines()) < 50
    assert main(["evaluate", "--help"]) == 0
    assert "--decisions" in capsys.readouterr().out


@torch.random.fork_rng()
def test_a_head_on_an_encoder_is_served(folder: Path) -> None:
    """Decided from single precision, logged, learnt by the follower, and read back by another replica."""
    head = BanditHead(mlp([3, 4]), recommended_policy(4, actions=2, scale=False))
    settings = make_settings(head, str(folder / "serving"), window=None, default_reward=None)
    assert (settings.dim, settings.actions, settings.dtype) == (3, 2, torch.float32)
    with settings.open_log() as log:
        replica = Replica(settings, log)
        for name in ("a", "b"):
            decision, outcome = replica.answer([replica.checked(name, [1.0, 2.0, 3.0], None), (name, 1.0)])
            assert (decision.inputs.dtype, outcome) == (torch.float32, "joined")
        last = follow(settings.make_policy(), log, settings.snapshot, encoder=settings.encoder)
        assert (last.learnt, last.refused) == (2, 0)
        replica.refresh()
        assert int(replica.policy.policy.rounds) == 2
    assert int(head.policy.rounds) == 0
    assert describe_state(settings, "new") == f"{settings.snapshot}, 2 rounds learnt by the service"
    assert describe_state(settings, "last.ckpt").endswith("; not last.ckpt, because the snapshot takes precedence")
    assert describe_state(dataclasses.replace(settings, encoder="v2"), "last.ckpt") == "last.ckpt"
    other = dataclasses.replace(settings, head=BanditHead(mlp([3, 5]), recommended_policy(5, actions=2, scale=False)))
    with pytest.raises(ValueError, match="folder: expected snapshots of this model, or none"):
        describe_state(other, "new")
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(ValueError, match="port: expected a free port"),
    ):
        run_service(settings, "all", "127.0.0.1", taken.getsockname()[1], "new")
    # All of it is refused before a service begins.
    for field, value, wrong in (
        ("lowest", 1.0, "lowest: expected a reward below highest, got 1 and 1"),
        ("every", 0.0, "every: expected a number above 0, got 0.0"),
        ("largest", 0.0, "largest: expected a number above 0, got 0.0"),
        ("encoder", "../x", "encoder: expected a version that can be part of a file name"),
        ("window", 60.0, "window: expected None, as the log was created, got 60.0"),
        ("folder", folder / "clicks.yaml", "folder: expected a folder, got the file"),
        ("database", "unknown://x", "url: expected a URL such as"),
    ):
        with pytest.raises(ValueError, match=wrong):
            run_service(dataclasses.replace(settings, **{field: value}), "learner", "127.0.0.1", 8000, "new")
    with pytest.raises(ValueError, match="host: expected an address of this machine, got 'no host'"):
        run_service(settings, "all", "no host", 8000, "new")
    for role, port, wrong in (
        ("both", 8000, "role: expected one of"),
        ("all", 70_000, "port: expected an integer from 1 to 65535"),
    ):
        with pytest.raises(ValueError, match=wrong):
            run_service(settings, role, "127.0.0.1", port, "new")
    for unfit in (
        BanditHead(torch.nn.Flatten(), OFUL(4), actions=2, feature_dims=2),
        BanditHead(torch.nn.Tanh(), OFUL(3), actions=2),
    ):
        with pytest.raises(ValueError, match="model: expected"):
            make_settings(unfit, str(folder))


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def test_a_fit_says_that_its_budget_ended_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run_script("python examples/configs/data.py --smoke", monkeypatch)
    private = "fit --config examples/configs/private.yaml --model.init_args.learner.init_args.horizon 200"
    assert main(shlex.split(f"{private} --data.init_args.batch_size 120")) == 0, capsys.readouterr().err
    out = capsys.readouterr().out
    assert "the privacy budget, stop_at 1, ended the fit after 1 of 2 batches: one more might exceed it" in out
    assert "learnt 120 rounds; " in out


def test_an_estimator_that_fails_has_a_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    values: dict[str, Any] = {"reward": [0.0, 1.0, 0.0, 1.0], "probability": [0.5] * 4, "context": torch.eye(4)}
    log = BanditLog(arms=2, action=[0, 1, 0, 1], **values)
    head = BanditHead(torch.nn.Identity(), recommended_policy(4, actions=2, scale=False))

    def fail(*_: Any, **options: Any) -> None:
        raise torch.linalg.LinAlgError("the matrix\nis singular")

    monkeypatch.setattr("torchonline.command_line.evaluation.predicted_rewards", fail)
    table = evaluate_head(head, log, 0.05, (0.0, 0.5))
    with pytest.raises(
        ValueError, match="estimators: expected a value from each, got none from doubly robust, IPS, at all times"
    ):
        print_table(table)
    out = capsys.readouterr().out
    assert "doubly robust      failed: the matrix is singular\n" in out
    assert "IPS, at all times  failed: " in out
    assert re.search(r"SNIPS +\d", out)
    with pytest.raises(ValueError, match="log: expected at least 2 rounds, to estimate a spread, got 1"):
        evaluate_head(head, log[:1], 0.05, None)


def python(text: str) -> list[str]:
    return [sys.executable, "-S", "-c", text]


def test_a_learner_that_dies_is_started_again_with_back_off(capfd: pytest.CaptureFixture[str]) -> None:
    with LearnerProcess(python("raise SystemExit(3)"), first_wait=0.01, longest_wait=600.0):
        err = ""
        while err.count("ended with code 3") < 4:
            err += capfd.readouterr().err
            time.sleep(0.01)
    waits = re.findall(r"learner: process \d+ ended with code 3; .* in (\S+) s", err)
    assert waits[:4] == ["0.01", "0.02", "0.04", "0.08"]


def test_a_learner_ends_with_its_parent_whichever_way_that_ends() -> None:
    """The parent is killed by signal 9; the learner, which waits for the end of its standard input, ends."""
    learner = "import os; print(os.getpid(), flush=True); os.read(0, 1); print('ended', flush=True)"
    service = f"""
import sys, time
from torchonline.command_line.service import LearnerProcess
with LearnerProcess([sys.executable, "-S", "-c", {learner!r}]):
    time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", service], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert int(process.stdout.readline()) != process.pid
        process.kill()
        assert process.stdout.readline() == "ended\n"


def test_a_learner_begins_with_the_settings_of_its_service(tmp_path: Path) -> None:
    """The process learns with what it reads from its standard input, and ends with it; a second one is refused."""
    head = BanditHead(torch.nn.Identity(), DisjointArms(RidgeRegression(100), 2))
    settings = make_settings(head, str(tmp_path))
    assert len(pickled(settings)) > 1 << 16  # more than a pipe holds
    with settings.open_log() as log:
        log.decide("a", torch.ones(100, dtype=torch.float64), 1, 0.5, encoder=settings.encoder)
        log.reward("a", 1.0)

    def run(given: bytes) -> tuple[int, list[str], str]:
        done = subprocess.run(LEARNER, input=given, capture_output=True, env=environment(), check=False)
        return done.returncode, done.stdout.decode().splitlines(), done.stderr.decode()

    code, out, error = run(pickled(settings))
    assert (code, error, out[-1]) == (0, "", "learner: stopped at position 1, 1 learnt, 0 refused")
    expected, found = settings.make_policy(), settings.make_policy()
    expected.step(torch.ones(100, dtype=torch.float64), 1, 1.0)
    load_snapshot(settings.snapshot, found)
    assert all(torch.equal(value, found.state_dict()[name]) for name, value in expected.state_dict().items())
    with Follower(settings.make_policy(), settings.open_log(), settings.snapshot, encoder=settings.encoder):
        code, _, error = run(pickled(settings))
    assert code == 2
    assert re.fullmatch(r"torchonline serve: error: path: expected no other follower, got .*\n", error)
    assert run(pickled(settings)[:-9]) == (0, [], "")  # the service was killed while it wrote


def test_a_head_that_cannot_be_pickled_needs_two_commands(tmp_path: Path) -> None:
    class Own(torch.nn.Identity): ...

    settings = make_settings(BanditHead(Own(), OFUL(3), scaler=StandardScaler(3)), str(tmp_path))
    with pytest.raises(ValueError, match=r"^model: expected a head that can be pickled, .* --role replica and --role"):
        run_service(settings, "all", "127.0.0.1", 8000, "new")


def test_a_learner_that_does_not_stop_is_killed(capfd: pytest.CaptureFixture[str]) -> None:
    deaf = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
    with LearnerProcess(python(deaf), patience=0.05) as learner:
        while "up" not in capfd.readouterr().out:
            time.sleep(0.01)
    assert learner.process.returncode == -9
    assert "learner: killed, after 0.05 s without a last snapshot" in capfd.readouterr().err


def test_a_warning_is_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):  # a command each
        show = warning_printer()
        for text in ("a\n b", "a b", "c"):
            show(UserWarning(text), UserWarning, "file.py", 1)
    assert capsys.readouterr().err == "torchonline: warning: a b\ntorchonline: warning: c\n" * 2


def test_deprecations_of_lightning_and_torch_alone_are_left_out() -> None:
    with warnings.catch_warnings(record=True) as shown:
        warnings.resetwarnings()
        warnings.simplefilter("ignore", DeprecationWarning)  # as Python begins
        choose_warnings()
        for module in ("torch.jit", "pytorch_lightning.cli", "torchonline.core.options", "jsonargparse._core"):
            for category in (DeprecationWarning, FutureWarning):
                warnings.warn_explicit("old", category, "file.py", 1, module)
    assert len(shown) == 4
