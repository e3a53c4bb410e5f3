"""The clock that measures the windows of a feedback log."""

import json
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Where Linux tells a name of the time since the machine booted.
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
# Of a system that does not tell when it booted: a clock for each process.
PROCESS = secrets.token_hex(8)


class LogClock:
    """Seconds since 1970 that pass evenly, whatever is done to the wall clock.

    The clock begins with the wall clock, when the log is first opened since the machine booted, and goes on by the time since
    the boot. The log keeps where it began, so that all processes of a machine have one clock, also after a restart of them.
    After a boot the clock begins anew. An open decision of a later time, from when the wall clock was ahead, counts as of now
    then.

    Args:
        execute: runs a statement in a transaction that opens the log.
    """

    def __init__(self, execute: Callable[..., list[Any]]) -> None:
        now, name = time.time(), f"clock {_boot()}"
        start = json.dumps(now - time.monotonic())
        look = "SELECT value FROM settings WHERE name = :name"
        rows = execute(look, name=name)
        if not rows:
            execute("INSERT INTO settings (name, value) VALUES (:name, :value)", name=name, value=start)
            execute("UPDATE open_decisions SET time = :now WHERE time > :now", now=now)
            rows = execute(look, name=name)
        self._start = float(json.loads(rows[0][0]))

    def now(self) -> float:
        """Return the time."""
        return self._start + time.monotonic()


def _boot() -> str:
    """Return a name of the time since the machine booted."""
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return PROCESS
