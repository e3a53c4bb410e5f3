"""Service of a head: one replica in this process, and the learner in another."""

import copy
import errno
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from torchonline.core.checks import one_of
from torchonline.core.messages import counted, install_extra
from torchonline.features import ColumnEncoder
from torchonline.feedback import load_snapshot
from torchonline.models.encoding import column_encoder, input_type
from torchonline.serving import ServiceSettings, application, run_learner

# Arms in a request, if each has features of its own.
MOST_ARMS = 1000
ROLES = ("all", "replica", "learner")
# Command line of a learner that gets pickled settings from its standard input.
LEARNER = (sys.executable, "-m", "torchonline.command_line.learner")
# Seconds before a dead learner is restarted: first and longest wait. The wait doubles after each death.
FIRST_WAIT, LONGEST_WAIT = 1.0, 60.0


@dataclass(frozen=True)
class HeadSettings(ServiceSettings):
    """Settings of a service whose policy is a head in its present state."""

    head: Any = field(default=None, repr=False)

    def make_policy(self) -> Any:
        """Return a copy of the head."""
        return copy.deepcopy(self.head)


def make_settings(head: Any, folder: str, **options: Any) -> HeadSettings:
    """Make the settings of a service whose policy is a head.

    Args:
        head: the head. Its inputs must be vectors, or rows of a table.
        folder: folder of the log and the snapshots.
        **options: further fields of ServiceSettings.
    """
    actions, columns = number_of_actions(head), column_encoder(head.encoder)
    if head.feature_dims != 1:
        raise ValueError("model: expected a head whose inputs are vectors, got another head")
    dim = input_width(head) if columns is None else columns.code_count
    if options.get("largest") is None:
        options["largest"] = largest_number(columns)
    options |= {
        "columns": columns,
        "names": tuple(head.action_names or ()),
        "has_arms": actions is None,
        "actions": MOST_ARMS if actions is None else actions,
    }
    return HeadSettings(folder=Path(folder), dim=dim, dtype=input_type(head).dtype, head=head, **options)


def largest_number(columns: ColumnEncoder | None) -> float:
    """Return the largest magnitude of a number that requests may have by default.

    It is 1e6, or a thousand times the largest number that a column is known to have.
    """
    numbers = [] if columns is None else [column for column in columns.columns if column["kind"] == "number"]
    known = [one for column in numbers for one in (column["fill"], *column["edges"])]
    return max([1e6, *(1e3 * abs(one) for one in known)])


def read_secret(file: str) -> str:
    """Return the stripped secret in a file, or "" without a file."""
    if not file:
        return ""
    try:
        secret = Path(file).read_text().strip()
    except OSError as error:
        raise ValueError(f"secret_file: expected a readable file, got {file}: {error.strerror}") from error
    if len(secret) < 16 or not (secret.isascii() and secret.isprintable()):
        raise ValueError(
            f"secret_file: expected at least 16 printable ASCII characters in {file}, got {len(secret)} characters"
        )
    return secret


def number_of_actions(head: Any) -> int | None:
    """Return K of a head with actions, or None if each arm has its own inputs."""
    return None if head.has_arm_inputs else int(head.number_of_actions())


def input_width(head: Any) -> int:
    """Return the number of features of a context."""
    if head.scaler is not None:
        return int(head.scaler.dim)
    if type(head.encoder) is nn.Identity:
        return int(head.policy.dim)
    layers = [part for part in head.encoder.modules() if isinstance(part, nn.Linear)]
    if not layers:
        raise ValueError("model: expected an encoder that is torch.nn.Identity or begins with a torch.nn.Linear")
    return layers[0].in_features


def run_service(settings: HeadSettings, role: str, host: str, port: int, state: str) -> None:
    """Serve until SIGTERM or Ctrl-C.

    All checks run before anything starts. Then the address and the state are printed. A dead learner is restarted, and the
    replica decides in the meantime.

    Args:
        settings: settings of the service.
        role: ``"replica"`` answers requests, ``"learner"`` learns, and ``"all"`` answers requests and starts a learner.
        host: address where the replica listens.
        port: port where the replica listens.
        state: name of the settings' state, before the first snapshot.

    Raises:
        ImportError: uvicorn is not installed.
        ValueError: an option is out of range, the log cannot be opened, the address is not available, a snapshot in the folder
            belongs to another model, or the head cannot be sent to the learner's process.
    """
    one_of("role", role, ROLES)
    if settings.folder.exists() and not settings.folder.is_dir():
        raise ValueError(f"folder: expected a folder, got the file {settings.folder}")
    state = describe_state(settings, state)
    settings.open_log().close()  # raises if the log has another window
    if role == "learner":
        run_learner(settings)
        return
    given = pickled(settings) if role == "all" else b""
    try:
        import uvicorn
    except ImportError as error:
        raise ImportError(f"serve: expected uvicorn, got none; {install_extra('serving')}") from error
    from torchonline.serving.protocol import limited

    with listen(host, port) as listening:
        quiet: dict[str, Any] = {"access_log": False, "log_level": "warning"}
        limits: dict[str, Any] = {"http": limited(settings), "ws": "none", "timeout_graceful_shutdown": 10}
        server = uvicorn.Server(uvicorn.Config(application(settings), host, port, **limits, **quiet))

        def stop(*_: Any) -> None:
            server.should_exit = True

        print(f"state: {state}; http://{host}:{port}/docs explains the requests", flush=True)
        # uvicorn handles the signal, ends and raises it again. A second call of the handler is harmless.
        handler = signal.signal(signal.SIGTERM, stop)
        try:
            if role == "replica":
                server.run([listening])
            else:
                with LearnerProcess(LEARNER, given):
                    server.run([listening])
        except KeyboardInterrupt:  # Ctrl-C ends a service
            pass
        finally:
            signal.signal(signal.SIGTERM, handler)


def pickled(settings: HeadSettings) -> bytes:
    """Return pickled settings, or raise a ValueError if the head cannot be pickled."""
    try:
        return pickle.dumps(settings)
    except (pickle.PicklingError, AttributeError, TypeError, RuntimeError) as error:
        raise ValueError(
            "model: expected a head that can be pickled, for the learner's process, got one that cannot; "
            f"start --role replica and --role learner instead: {error}"
        ) from error


def describe_state(settings: HeadSettings, state: str) -> str:
    """Describe the initial state of the service.

    Args:
        settings: settings of the service. A snapshot in their folder takes precedence over the state of their policy.
        state: name of the policy's state.

    Raises:
        ValueError: the snapshot belongs to another model.
    """
    path = settings.snapshot
    if not path.is_file():
        return state
    try:
        snapshot = load_snapshot(path, settings.make_policy())
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:200]
        wanted = "snapshots of this model, or none (choose another --folder or --version)"
        raise ValueError(f"folder: expected {wanted}, got {path}: {reason}") from error
    rounds = f"{path}, {counted(snapshot.learnt, 'round')} learnt by the service"
    return rounds if state == "new" else f"{rounds}; not {state}, because the snapshot takes precedence"


def listen(host: str, port: int) -> socket.socket:
    """Open a socket that listens at an address, or raise."""
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
        raise ValueError(f"port: expected a free port at {host}, got {port}: {error.strerror}") from error


class LearnerProcess:
    """Process of the learner, as a context manager that restarts it if it dies.

    The learner's standard input is a pipe. The pipe closes when this process ends, even by signal 9, and then the learner ends.

    Args:
        words: command line of the learner.
        given: bytes that the learner reads from the pipe first.
        patience: seconds for the process to write its last snapshot before it is killed.
        first_wait, longest_wait: seconds before a dead process is restarted. The wait doubles after each death. It is reset after
            a process that lived longer than the longest wait.
    """

    def __init__(
        self,
        words: Sequence[str],
        given: bytes = b"",
        patience: float = 60.0,
        first_wait: float = FIRST_WAIT,
        longest_wait: float = LONGEST_WAIT,
    ) -> None:
        self.words, self.given, self.patience = list(words), given, patience
        self.first_wait, self.longest_wait = first_wait, longest_wait
        self.asked, self.starting = threading.Event(), threading.Lock()

    def __enter__(self) -> "LearnerProcess":
        self._start()
        self.watcher = threading.Thread(target=self._watch, daemon=True)
        self.watcher.start()
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self.stop()

    def stop(self) -> None:
        """Let the process write its last snapshot. Kill it if that takes too long."""
        self.asked.set()
        with self.starting:  # no other process starts after this
            process = self.process
        process.terminate()
        try:
            process.wait(self.patience)
        except subprocess.TimeoutExpired:
            print(f"learner: killed, after {self.patience:g} s without a last snapshot", file=sys.stderr)
        finally:  # after a second Ctrl-C, too
            process.kill()
            process.wait()
            self._close()

    def _start(self) -> None:
        self.process = subprocess.Popen(self.words, stdin=subprocess.PIPE)
        # A pipe holds little, and the learner reads it after its imports.
        threading.Thread(target=self._give, args=(self.process.stdin,), daemon=True).start()

    def _give(self, pipe: Any) -> None:
        with suppress(OSError, ValueError):  # the learner has died, or the pipe is closed
            pipe.write(self.given)
            pipe.flush()

    def _close(self) -> None:
        if self.process.stdin is not None:
            with suppress(BrokenPipeError):  # bytes that the learner has not read
                self.process.stdin.close()

    def _watch(self) -> None:
        """Restart the process whenever it has ended without a call of stop()."""
        wait = self.first_wait
        while True:
            start, process = time.monotonic(), self.process
            code = process.wait()
            if time.monotonic() - start > self.longest_wait:
                wait = self.first_wait
            if not self.asked.is_set():
                print(
                    f"learner: process {process.pid} ended with code {code}; the service keeps deciding, and restarts it in "
                    f"{wait:g} s",
                    file=sys.stderr,
                    flush=True,
                )
            if self.asked.wait(wait):
                return
            wait = min(2.0 * wait, self.longest_wait)
            with self.starting:
                if self.asked.is_set():
                    return
                self._close()
                try:
                    self._start()
                except OSError as error:  # for example out of memory; the next wait is longer
                    print(f"learner: cannot be started: {error}", file=sys.stderr, flush=True)
