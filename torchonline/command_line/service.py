"""The service of a head: one replica in this process, and the learner in another."""

import copy
import errno
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from torchonline.bandits.composed import learner_of
from torchonline.core.checks import one_of, positive
from torchonline.feedback import load_snapshot
from torchonline.models.encoding import typed_like
from torchonline.serving import ServiceSettings, application, run_learner

ROLES = ("all", "replica", "learner")


@dataclass(frozen=True)
class HeadSettings(ServiceSettings):
    """Settings of a service whose policy is a head, in the state that it has now."""

    head: Any = field(default=None, repr=False)

    def make_policy(self) -> Any:
        """Return a copy of the head."""
        return copy.deepcopy(self.head)


def make_settings(head: Any, folder: str, **options: Any) -> HeadSettings:
    """Make the settings of a service whose policy is a head with actions.

    Args:
        head: the head. Its contexts are vectors.
        folder: of the log and the snapshots.
        **options: further fields of ServiceSettings.
    """
    actions = number_of_actions(head)
    if head.feature_dims != 1 or actions is None:
        raise ValueError(
            "model: expected a head with actions, whose contexts are vectors, got one with an input for each arm"
        )
    dtype = typed_like(head.encoder, head.policy.estimator.theta_hat).dtype
    return HeadSettings(folder=Path(folder), dim=input_width(head), actions=actions, dtype=dtype, head=head, **options)


def number_of_actions(head: Any) -> int | None:
    """Return K of a head with actions; None if each arm has its own inputs."""
    if head.has_models:
        return int(head.policy.actions)
    return None if head.actions is None else len(head.actions)


def input_width(head: Any) -> int:
    """Return the number of features of a context."""
    if head.scaler is not None:
        return int(head.scaler.dim)
    if type(head.encoder) is nn.Identity:
        return int(learner_of(head.policy).dim)
    layers = [part for part in head.encoder.modules() if isinstance(part, nn.Linear)]
    if not layers:
        raise ValueError("model: expected an encoder that is torch.nn.Identity or begins with a torch.nn.Linear")
    return layers[0].in_features


def run_service(settings: HeadSettings, role: str, host: str, port: int, words: Sequence[str], state: str) -> None:
    """Serve until SIGTERM or Ctrl-C, or until the learner's process ends.

    All is checked before anything starts, and then the address and the state are printed.

    Args:
        settings: of the service.
        role: ``"replica"`` answers requests, ``"learner"`` learns, and ``"all"`` answers requests and starts a learner.
        host: address where the replica listens.
        port: port where the replica listens.
        words: the command line, by which the learner is started.
        state: name of the settings' state, before the first snapshot.

    Raises:
        ImportError: uvicorn is not installed.
        ValueError: an option is out of its range, the log cannot be opened, nobody can listen at the address, or a snapshot in
            the folder is of another model.
        RuntimeError: the learner's process has ended by itself.
    """
    one_of("role", role, ROLES)
    check_settings(settings)
    state = describe_state(settings, state)
    settings.open_log().close()  # a log of another window is refused
    if role == "learner":
        run_learner(settings)
        return
    try:
        import uvicorn
    except ImportError as error:
        raise ImportError("serve: expected uvicorn, got none; pip install torchonline[serving]") from error
    with listen(host, port) as listening:
        quiet: dict[str, Any] = {"access_log": False, "log_level": "warning"}
        config = uvicorn.Config(application(settings), host, port, timeout_graceful_shutdown=10, **quiet)
        server, asked = uvicorn.Server(config), threading.Event()

        def stop(*_: Any) -> None:
            asked.set()
            server.should_exit = True

        print(f"state: {state}; http://{host}:{port}/docs explains the requests", flush=True)
        # uvicorn handles the signal, ends, and raises it again. A second call of the handler does no harm.
        handler = signal.signal(signal.SIGTERM, stop)
        try:
            if role == "replica":
                server.run([listening])
            else:
                with LearnerProcess([sys.executable, "-m", "torchonline", *words, "--role", "learner"], server, asked):
                    server.run([listening])
        except KeyboardInterrupt:  # Ctrl-C ends a service
            pass
        finally:
            signal.signal(signal.SIGTERM, handler)


def check_settings(settings: HeadSettings) -> None:
    """Raise a ValueError that names the option that is out of its range."""
    if not settings.lowest < settings.highest:
        raise ValueError(
            f"reward_range: expected the least reward below the largest one, got {settings.lowest:g} and {settings.highest:g}"
        )
    positive("every", settings.every)
    positive("largest", settings.largest)
    if settings.encoder in ("", ".", "..") or Path(settings.encoder).name != settings.encoder:
        raise ValueError(f"version: expected a name that can be part of the name of a file, got {settings.encoder!r}")
    if settings.folder.exists() and not settings.folder.is_dir():
        raise ValueError(f"folder: expected a folder, got the file {settings.folder}")


def describe_state(settings: HeadSettings, state: str) -> str:
    """Describe the state that the service begins with.

    Args:
        settings: of the service. A snapshot in their folder goes before the state of their policy.
        state: name of the policy's state.

    Raises:
        ValueError: the snapshot is of another model.
    """
    path = settings.snapshot
    if not path.is_file():
        return state
    try:
        snapshot = load_snapshot(path, settings.make_policy())
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:200]
        wanted = "snapshots of this model, or none; take another --folder or --version"
        raise ValueError(f"folder: expected {wanted}, got {path}: {reason}") from error
    rounds = f"{path}, {snapshot.learnt} rounds learnt by the service"
    return rounds if state == "new" else f"{rounds}; not {state}, which the snapshot goes before"


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens at an address, or raise."""
    if not 0 < port <= 65535:
        raise ValueError(f"port: expected an integer from 1 to 65535, got {port}")
    try:
        socket.getaddrinfo(host, port)
    except OSError as error:
        raise ValueError(f"host: expected an address of this machine, got {host!r}: {error.strerror}") from error
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        if error.errno == errno.EADDRNOTAVAIL:
            raise ValueError(f"host: expected an address of this machine, got {host!r}: {error.strerror}") from error
        raise ValueError(f"port: expected one that is free at {host}, got {port}: {error.strerror}") from error


class LearnerProcess:
    """The process of the learner, as a context. The server ends if this process does.

    Args:
        words: its command line.
        server: uvicorn's server, which ends after ``should_exit`` is set.
        asked: set when the service is asked to end.
        patience: seconds that the process gets to write its last snapshot before it is killed.

    Raises:
        RuntimeError: at the end of the context, if the process has ended although nobody asked.
    """

    def __init__(self, words: Sequence[str], server: Any, asked: threading.Event, patience: float = 60.0) -> None:
        self.words, self.server, self.asked, self.patience = list(words), server, asked, patience

    def __enter__(self) -> "LearnerProcess":
        self.process = subprocess.Popen(self.words)
        threading.Thread(target=self._watch, daemon=True).start()
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        code = self.process.poll()
        self.stop()
        if code is not None and error is None and not self.asked.is_set():
            raise RuntimeError(
                f"learner: expected a process as long as the service, got one that ended with code {code}, so that nothing is "
                "learnt; the service has ended, too"
            )

    def stop(self) -> None:
        """Let the process write its last snapshot, and kill it if that takes too long."""
        self.process.terminate()
        try:
            self.process.wait(self.patience)
        except subprocess.TimeoutExpired:
            print(f"learner: killed, after {self.patience:g} s without a last snapshot", file=sys.stderr)
        finally:  # after a second Ctrl-C, too
            self.process.kill()
            self.process.wait()

    def _watch(self) -> None:
        """End the server after the process."""
        self.process.wait()
        self.server.should_exit = True
