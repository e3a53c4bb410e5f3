"""Learner of a service: follows the log and writes snapshots."""

import os
import signal
import threading

from torchonline.feedback import follow
from torchonline.serving.settings import ServiceSettings, one_thread


def run_learner(settings: ServiceSettings, parent: int | None = None) -> None:
    """Learn from the log until SIGTERM, Ctrl-C or the end of the parent process.

    A second learner for the same snapshot is refused. The call installs signal handlers, so it must run in the main thread of a
    separate process.

    Args:
        settings: settings of the service.
        parent: file descriptor of a pipe that closes when the parent process ends in any way; None without a parent.

    Raises:
        BlockingIOError: another learner is running.
        DamagedRowError: a row of the log is damaged, and the settings do not skip it. The rows before it are learnt and saved.
    """
    one_thread()
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    if parent is not None:

        def wait() -> None:
            while os.read(parent, 1024):
                pass
            stopped.set()

        threading.Thread(target=wait, daemon=True).start()
    log = settings.open_log()
    print(f"learner: follows {settings.folder}", flush=True)
    # Rounds with the features of another encoder are skipped.
    last = follow(
        settings.make_policy(),
        log,
        settings.snapshot,
        every=settings.every,
        stop=stopped.is_set,
        encoder=settings.encoder,
        skip_damaged=settings.skip_damaged,
    )
    log.close()
    print(f"learner: stopped at position {last.position}, {last.learnt} learnt, {last.refused} refused", flush=True)
