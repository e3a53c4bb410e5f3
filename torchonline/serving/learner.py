"""The one learner of a service: it follows the log and writes snapshots."""

import signal
import threading

from torchonline.feedback import follow
from torchonline.serving.settings import ServiceSettings, one_thread


def run_learner(settings: ServiceSettings) -> None:
    """Learn from the log until SIGTERM or Ctrl-C, and then write a last snapshot.

    Another learner for the same snapshot is refused. The call installs signal handlers, so it is for the main thread of a process
    of its own.

    Args:
        settings: those of the service.

    Raises:
        BlockingIOError: another learner is running.
        DamagedRowError: a row of the log is damaged, and the settings do not skip it. What comes before is learnt and saved.
    """
    one_thread()
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    log = settings.open_log()
    print(f"learner: follows {settings.folder}", flush=True)
    # The logged features are those of this encoder; what another one computed is skipped.
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
