"""Files that a user names are never unpickled: a checkpoint with code in it is refused by name, wherever it lies."""

import functools
import http.server
import io
import os
import pickle
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch

import torchonline
from torchonline import FreeGrad
from torchonline.command_line import main
from torchonline.feedback import load_snapshot
from torchonline.models import BanditHead, LogDataModule, NeuralLinearBandit, OnlinePredictor
from torchonline.models.checkpoints import read_checkpoint

CONFIG = """\
model:
  head:
    encoder: torch.nn.Identity
    policy:
      class_path: torchonline.models.recommended_policy
      init_args: {dim: 1, rewards: binary, actions: 2}
data: {files: log.csv, context: [age], action: item, reward: click, probability: p, batch_size: 4}
trainer: {logger: false, accelerator: cpu}
"""
TABLE = "data: {class_path: TableDataModule, init_args: {files: log.csv, inputs: [age], targets: [item, click]}}"


class Code:
    """What runs code when it is unpickled."""

    def __reduce__(self) -> Any:
        return os.mkdir, ("ran",)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a log, a configuration and files with code, in which commands run."""
    monkeypatch.chdir(tmp_path)
    # A cache of torch.hub, where Lightning would put what it downloads.
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "hub"))
    monkeypatch.delenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", raising=False)
    Path("log.csv").write_text("age,item,click,p\n31,0,0,0.5\n27,1,1,0.5\n44,1,0,0.5\n38,0,1,0.5\n")
    Path("log.yaml").write_text(CONFIG)
    Path("table.yaml").write_text(
        "\n".join(TABLE if line.startswith("data:") else line for line in CONFIG.splitlines())
    )
    torch.save({"state_dict": {}, "code": Code()}, "bad.ckpt")
    Path("bad.pkl").write_bytes(pickle.dumps({"state_dict": {}, "code": Code()}))
    yield tmp_path
    assert not Path("ran").exists()


@pytest.fixture
def address(folder: Path) -> Iterator[str]:
    """The URL of a server on this machine with the files of the folder, and the requests that it got."""
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def bandit() -> NeuralLinearBandit:
    return NeuralLinearBandit(BanditHead(torch.nn.Identity(), torchonline.bandit(1, actions=2)), feedback="batch")


LOADS: dict[str, Callable[[Any], Any]] = {
    "read_checkpoint": read_checkpoint,
    "NeuralLinearBandit": NeuralLinearBandit.load_from_checkpoint,
    "OnlinePredictor": lambda path: OnlinePredictor.load_from_checkpoint(path, learner=FreeGrad(1)),
}


@pytest.mark.parametrize("load", list(LOADS))
@pytest.mark.parametrize("name", ["bad.ckpt", "bad.pkl"])
def test_a_file_with_code_is_refused(load: str, name: str) -> None:
    for source in (name, Path(name), io.BytesIO(Path(name).read_bytes())):
        with pytest.raises(ValueError, match=r"^\w+: expected a checkpoint, as fit writes, got .*(mkdir|cannot read)"):
            LOADS[load](source)


@pytest.mark.parametrize("load", list(LOADS))
@pytest.mark.parametrize("scheme", ["http", "https", "s3", "gs", "hf", "file", "simplecache::http"])
def test_a_url_is_refused(load: str, scheme: str) -> None:
    with pytest.raises(ValueError, match=r"^\w+: expected the path of a file, got the URL "):
        LOADS[load](f"{scheme}://127.0.0.1:1/bad.ckpt")


@pytest.mark.parametrize("command", ["fit", "test", "evaluate", "replay", "export", "serve", "report --log log.db"])
def test_commands_run_no_code(command: str, address: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither of a file, nor of what a server sends; nor of a file whose name begins like a URL."""
    Path("http:").mkdir()
    Path("http:", "bad.ckpt").write_bytes(Path("bad.ckpt").read_bytes())
    for path in ("bad.ckpt", "bad.pkl", "http:/bad.ckpt", f"{address}/bad.ckpt", "hf://a/bad.ckpt"):
        config = "table.yaml" if command == "test" else "log.yaml"
        assert main([*command.split(), "--config", config, "--ckpt_path", path]) == 2
        err = capsys.readouterr().err
        assert "ckpt_path: expected" in err
        assert err.count("\n") == 1
    assert not Path("hub").exists()


def test_names_that_lightning_resolves_are_files_here(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("last", "best", "hpc", "registry:model"):
        assert main(["fit", "--config", "log.yaml", "--ckpt_path", name]) == 2
        assert f"expected a checkpoint, as fit writes, got none at {name};" in capsys.readouterr().err


def test_snapshots_run_no_code() -> None:
    with pytest.raises(Exception, match=r"(?i)bad\.ckpt|mkdir|weights only"):
        load_snapshot("bad.ckpt", torchonline.bandit(1, actions=2))


def test_a_fit_is_told_to_unpickle_no_code(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Also where the environment asks for less: of the command line, and of what is loaded in Python."""
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    seen: list[Any] = []
    load = torch.load

    def spy(*arguments: Any, **options: Any) -> Any:
        seen.append(options.get("weights_only"))
        return load(*arguments, **options)

    monkeypatch.setattr(torch, "load", spy)
    words = ["fit", "--config", "log.yaml"]
    assert main(words) == 0
    assert main([*words, "--ckpt_path", "outputs/last.ckpt", "--trainer.max_epochs", "2"]) == 0, capsys.readouterr().err
    assert int(NeuralLinearBandit.load_from_checkpoint("outputs/last.ckpt").rounds) == 8
    assert len(seen) >= 4
    assert set(seen) == {True}


def test_our_own_checkpoint_loads(folder: Path) -> None:
    """From a path, an open file, and a name that begins like a URL."""
    quiet: dict[str, Any] = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = pl.Trainer(max_epochs=1, accelerator="cpu", enable_checkpointing=False, **quiet)
    data = LogDataModule("log.csv", context=["age"], action="item", reward="click", batch_size=4)
    trainer.fit(bandit(), datamodule=data)
    trainer.save_checkpoint("http.ckpt")
    for source in ("http.ckpt", Path("http.ckpt"), io.BytesIO(Path("http.ckpt").read_bytes())):
        assert int(NeuralLinearBandit.load_from_checkpoint(source).rounds) == 4
    with pytest.raises(ValueError, match="weights_only: expected True"):
        NeuralLinearBandit.load_from_checkpoint("http.ckpt", weights_only=False)
