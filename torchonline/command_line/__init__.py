"""Command line: ``python -m torchonline``, or ``torchonline``.

The page "The command line" of the documentation is the guide. It needs the extra ``cli``.
"""

import importlib.util
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["COMMANDS", "main"]

# Each command with one line of help.
COMMANDS = {
    "fit": "learn from a log or a table, and write a checkpoint",
    "test": "play a table of all arms' rewards, or predict targets, without learning",
    "evaluate": "estimate what a policy would have earned on another policy's log",
    "replay": "let a new policy learn from a log as if it had made the decisions",
    "export": "write the learnt policy as a file that runs without torchonline",
    "serve": "answer requests for decisions over HTTP, and learn from their rewards",
    "report": "write an HTML page about a log of decisions",
}
EXAMPLE = """\
a first run, on your own CSV file: learn its first half, and evaluate on the second
  python -m torchonline fit --config clicks.yaml --data.part "[0,0.5]"
  python -m torchonline evaluate --config clicks.yaml --data.part "[0.5,1]"

Each command explains itself: python -m torchonline fit --help.
The page "The command line" of the documentation has the configurations."""
# If this variable is set, errors show a traceback.
TRACEBACK = "TORCHONLINE_TRACEBACK"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command. Return its exit code: 0, or 2 if the input is wrong.

    The call restores the process's warnings, log levels, threads and random state.

    Args:
        arguments: words of the command line, without the program's name. None: the arguments of the process.

    Raises:
        Exception: an error that is not self-explanatory, see :func:`is_explained`; with ``TORCHONLINE_TRACEBACK`` in the
            environment, any error.

    Example:
        >>> main(["learn"])  # an unknown command: the error goes to the standard error
        2
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] in ("-h", "--help"):
        print(overview())
        return 0
    if words[0] == "--version":
        from torchonline import __version__

        print(__version__)
        return 0
    if words[0] not in COMMANDS:
        return print_error(f"expected one of {', '.join(COMMANDS)}, got {words[0]!r}")
    if importlib.util.find_spec("jsonargparse") is None:
        from torchonline.core.messages import install_extra

        return print_error(f"the command line needs jsonargparse: {install_extra('cli')}")

    def run() -> None:
        from torchonline.command_line.parser import run_command

        run_command(words)

    return run_explained(words[0], run)


def run_explained(command: str, run: Callable[[], None]) -> int:
    """Run a command. Return its exit code, after an error or an interrupt too.

    Args:
        command: name of the command, for the message of an error.
        run: runs it.

    Raises:
        Exception: as in :func:`main`.
    """
    try:
        with warnings.catch_warnings():
            warnings.showwarning = warning_printer()
            run()
            return 0
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader of our output has ended, like head
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        if TRACEBACK in os.environ or not is_explained(error):
            raise
        from torchonline.command_line.messages import one_line

        return print_error(one_line(str(error)), command)


def is_explained(error: Exception) -> bool:
    """Return whether an error's message explains itself without a traceback.

    Such errors are: the library's refusals of the form "expected ..., got ..."; files and addresses that the system refuses;
    missing packages; refusals of Lightning's trainer; and logs that cannot be read. Other errors may be bugs.
    """
    is_of_system = isinstance(error, OSError) and error.strerror is not None
    has_reason = type(error).__name__ in ("MisconfigurationException", "LogStorageError")
    return ": expected " in str(error) or is_of_system or isinstance(error, ModuleNotFoundError) or has_reason


def overview() -> str:
    """Return the list of commands, one per line."""
    lines = [f"  {name:<10} {text}" for name, text in COMMANDS.items()]
    return "\n".join(["usage: python -m torchonline COMMAND [--config FILE] ...", "", *lines, "", EXAMPLE])


def print_error(message: str, command: str = "") -> int:
    """Print an error in one line. Return the exit code for wrong input."""
    program = " ".join(filter(None, ("torchonline", command)))
    print(f"{program}: error: {' '.join(message.split())}", file=sys.stderr)
    return 2


def warning_printer() -> Any:
    """Return a function that prints each warning once, without its location."""
    printed: set[str] = set()

    def print_warning(message: Warning | str, *where: Any, **options: Any) -> None:
        text = " ".join(str(message).split())
        if text not in printed:
            printed.add(text)
            print(f"torchonline: warning: {text}", file=sys.stderr)

    return print_warning
