"""A process that has imported what scripts import, and forks for each: a script begins at once, in a process of its own.

``python forked.py`` reads a line of JSON for each script, and answers with its exit status. The forked process ends as the
interpreter ends, so that tracebacks, exit handlers and exit statuses are those of ``python script``.
"""

import importlib
import json
import os
import runpy
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

# What most examples import, or their imports do. A module with threads is not here: a forked process would lose them.
IMPORTED = ("torch", "numpy", "rich.console", "rich.progress", "matplotlib.pyplot", "torchmetrics", "torchonline")
LIMIT = 540  # seconds


class ForkServer:
    """Runs scripts in forked processes, one after another."""

    def __init__(self, environment: dict[str, str]) -> None:
        command = [sys.executable, __file__]
        self.process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )

    def run(self, command: list[str], cwd: Path) -> subprocess.CompletedProcess[str]:
        """Run a script with its arguments in a folder, and return what it has printed and its status."""
        said = [cwd.parent / f"{cwd.name}.{name}" for name in ("stdout", "stderr")]
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        job = {"command": command, "cwd": str(cwd), "said": [str(path) for path in said]}
        self.process.stdin.write(json.dumps(job) + "\n")
        status = self.process.stdout.readline()
        assert status, "the process that forks has ended"
        return subprocess.CompletedProcess(command, int(status), *(path.read_text() for path in said))

    def close(self) -> None:
        """End the process."""
        with self.process:  # closes both pipes, and waits
            pass


def status_of(child: int) -> int:
    """Return the exit status of a process; it is killed when it is late."""
    deadline = time.monotonic() + LIMIT
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > deadline:
            os.kill(child, 9)
        time.sleep(0.01)


def become(job: dict[str, Any]) -> None:
    """Run a script in this process, with the arguments, folder, path and files of a process of its own."""
    for number, path in enumerate(job["said"], 1):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, number)
        os.close(file)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.chdir(job["cwd"])
    sys.argv = job["command"]
    sys.path[0] = str(Path(sys.argv[0]).parent)
    runpy.run_path(sys.argv[0], run_name="__main__")


def main() -> None:
    for name in IMPORTED:
        importlib.import_module(name)
    threads = os.listdir("/proc/self/task")
    assert len(threads) == 1, "a process with threads cannot fork"
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.set_inheritable(answers.fileno(), False)
    for line in iter(sys.stdin.readline, ""):
        child = os.fork()
        if child == 0:
            become(json.loads(line))
            return
        answers.write(f"{status_of(child)}\n")


if __name__ == "__main__":
    main()
