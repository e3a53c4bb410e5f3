"""Clock that measures the windows of a feedback log."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Linux's unique name of the present boot.
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def since_boot() -> float:
    """Return seconds since the machine booted.

    On Linux, this includes sleep.
    """
    boottime = getattr(time, "CLOCK_BOOTTIME", None)  # on Linux, time.monotonic stops during sleep
    return time.monotonic() if boottime is None else time.clock_gettime(boottime)


# Start of this process's clock, on a system without a name for its boot.
START_OF_PROCESS = time.time() - since_boot()


class LogClock:
    """Monotonic clock in seconds since 1970, unaffected by changes of the wall clock.

    The clock is set from the wall clock when the log is first opened after a boot, and advances by the time since the boot. The
    log stores its start, so that all processes of a machine share one clock, also after they restart. After a boot the clock is
    set anew. If the wall clock was ahead before, an open decision may then lie in the future; its time is set to now. On a system
    without a name for its boot, each process has its own clock.

    Args:
        execute: runs a statement in the transaction that opens the log.
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
        """Return the present time."""
        return self._start + since_boot()


def _boot() -> str:
    """Return the name of the present boot, or an empty string if the system has none."""
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return ""
