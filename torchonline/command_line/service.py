"""The service of a head: one replica in this process, and the learner in another."""

import copy
import errno
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from torchonline.bandits.composed import learner_of
from torchonline.core.checks import one_of, positive
from torchonline.core.messages import counted, install_extra
from torchonline.feedback import load_snapshot
from torchonline.models.encoding import input_type
from torchonline.serving import ServiceSettings, application, run_learner

ROLES = ("all", "replica", "learner")
# The environment's name for the pipe that a learner reads until its parent is gone.
PARENT = "TORCHONLINE_PARENT"
# Connections of a replica at once. What is above gets 503.
MOST_CONNECTIONS = 1000


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
    dtype = input_type(head).dtype
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
    """Serve until SIGTERM or Ctrl-C.

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
    """
    one_of("role", role, ROLES)
    check_settings(settings)
    state = describe_state(settings, state)
    settings.open_log().close()  # a log of another window is refused
    if role == "learner":
        ends_with_parent()
        run_learner(settings)
        return
    try:
        import uvicorn
    except ImportError as error:
        raise ImportError(f"serve: expected uvicorn, got none; {install_extra('serving')}") from error
    from torchonline.serving.protocol import TimedProtocol

    use_all_descriptors()
    with listen(host, port) as listening:
        quiet: dict[str, Any] = {"access_log": False, "log_level": "warning", "server_header": False}
        limits: dict[str, Any] = {"limit_concurrency": MOST_CONNECTIONS, "timeout_keep_alive": 5, "http": TimedProtocol}
        config = uvicorn.Config(application(settings), host, port, timeout_graceful_shutdown=10, **quiet, **limits)
        server = uvicorn.Server(config)

        def stop(*_: Any) -> None:
            server.should_exit = True

        print(f"state: {state}; http://{host}:{port}/docs explains the requests", flush=True)
        # uvicorn handles the signal, ends, and raises it again. A second call of the handler does no harm.
        handler = signal.signal(signal.SIGTERM, stop)
        try:
            if role == "replica":
                server.run([listening])
            else:
                with LearnerProcess([sys.executable, "-m", "torchonline", *words, "--role", "learner"]):
                    server.run([listening])
        except KeyboardInterrupt:  # Ctrl-C ends a service
            pass
        finally:
            signal.signal(signal.SIGTERM, handler)


def host_names(host: str, hosts: Sequence[str] | None) -> tuple[str, ...]:
    """Return the names by which clients call a service that listens at an address."""
    if hosts is not None:
        return tuple(hosts)
    if host in ("0.0.0.0", "::"):
        raise ValueError(
            f'hosts: expected the names by which clients call the service, or "*", with host {host}, got none'
        )
    return tuple(dict.fromkeys(("localhost", "127.0.0.1", host)))


def use_all_descriptors() -> None:
    """Raise the limit of open files as far as this process may: each connection takes one."""
    try:
        import resource
    except ImportError:  # Windows
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 4 * MOST_CONNECTIONS if hard == resource.RLIM_INFINITY else min(hard, 4 * MOST_CONNECTIONS)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))


def check_settings(settings: HeadSettings) -> None:
    """Raise a ValueError that names the option that is out of its range."""
    if not settings.lowest < settings.highest:
        raise ValueError(
            f"reward_range: expected the least reward below the largest one, got {settings.lowest:g} and {settings.highest:g}"
        )
    positive("every", settings.every)
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
    rounds = f"{path}, {counted(snapshot.learnt, 'round')} learnt by the service"
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
    """The process of the learner, as a context. A learner that ends by itself is started again, after a pause.

    It ends with this process, however that ends: it reads a pipe that closes then, see :func:`ends_with_parent`.

    Args:
        words: its command line.
        patience: seconds that the process gets to write its last snapshot before it is killed.
        pauses: seconds before a new start, of the first and the longest pause. A pause is twice the one before, until a learner
            has lived for longer than the longest.
    """

    def __init__(self, words: Sequence[str], patience: float = 60.0, pauses: tuple[float, float] = (0.5, 60.0)) -> None:
        self.words, self.patience, self.pauses = list(words), patience, pauses
        self.stopped = threading.Event()

    def __enter__(self) -> "LearnerProcess":
        self.read, self.write = os.pipe()
        self._start()
        self.watcher = threading.Thread(target=self._watch, daemon=True)
        self.watcher.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stopped.set()
        try:
            self.watcher.join()
        finally:
            self.stop()
            os.close(self.read)
            os.close(self.write)

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

    def _start(self) -> None:
        environment = os.environ | {PARENT: str(self.read)}
        self.process = subprocess.Popen(self.words, pass_fds=[self.read], env=environment)
        self.since = time.monotonic()

    def _watch(self) -> None:
        """Start the process again whenever it ends."""
        pause, longest = self.pauses
        while not self.stopped.is_set():
            try:
                code = self.process.wait(0.1)
            except subprocess.TimeoutExpired:
                continue
            if time.monotonic() - self.since > longest:
                pause = self.pauses[0]
            text = (
                f"learner: the process {self.process.pid} has ended with code {code}; a new one starts in {pause:g} s"
            )
            print(text, file=sys.stderr, flush=True)
            if self.stopped.wait(pause):
                return
            self._start()
            pause = min(2.0 * pause, longest)


def ends_with_parent() -> None:
    """Ask this process to end, by SIGTERM, once the process that started it as a learner is gone."""
    pipe = os.environ.pop(PARENT, None)
    if pipe is None:
        return

    def wait() -> None:
        os.read(int(pipe), 1)  # nobody writes: it returns when the last writer is gone
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, daemon=True).start()
