"""The clock that measures the windows of a feedback log."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Where Linux tells a name of the time since the machine booted.
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def since_boot() -> float:
    """Return seconds since the machine booted.

    On Linux, the time of its sleep counts too.
    """
    boottime = getattr(time, "CLOCK_BOOTTIME", None)  # of Linux, where time.monotonic stands still in a sleep
    return time.monotonic() if boottime is None else time.clock_gettime(boottime)


# Where the clock of this process begins, on a system without a name for its boot.
START_OF_PROCESS = time.time() - since_boot()


class LogClock:
    """Seconds since 1970 that pass evenly, whatever is done to the wall clock.

    The clock begins with the wall clock, when the log is first opened since the machine booted, and goes on by the time since
    the boot. The log keeps where it began, so that all processes of a machine have one clock, also after a restart of them.
    After a boot the clock begins anew. An open decision of a later time, from when the wall clock was ahead, counts as of now
    then. Where a system has no name for its boot, each process has a clock of its own.

    Args:
        execute: runs a statement in a transaction that opens the log.
    """

    def __init__(self, execute: Callable[..., list[Any]]) -> None:
        now, name = time.time(), _boot()
        self._start = now - since_boot() if name else START_OF_PROCESS
        stored = execute("SELECT value FROM settings WHERE name = :name", name=f"clock {name}") if name else []
        if stored:
            self._start = float(json.loads(stored[0][0]))
            return
        if name:
            value = json.dumps(self._start)
            execute("INSERT INTO settings (name, value) VALUES (:name, :value)", name=f"clock {name}", value=value)
        execute("UPDATE open_decisions SET time = :now WHERE time > :now", now=now)

    def now(self) -> float:
        """Return the time."""
        return self._start + since_boot()


def _boot() -> str:
    """Return a name of the time since the machine booted, empty if there is none."""
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return ""
