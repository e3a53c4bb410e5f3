"""The one learner of the service: it follows the log and writes a snapshot twice a second.

    python examples/serving/learner.py

It stops at SIGTERM or Ctrl-C, after a last snapshot. Another learner for the same snapshot is refused.
"""

import signal
import threading

from settings import Settings, one_thread

from torchonline.feedback import follow


def main() -> None:
    one_thread()
    settings, stopped = Settings(), threading.Event()
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
    )
    log.close()
    print(f"learner: stopped at position {last.position}, {last.learnt} learnt, {last.refused} refused", flush=True)


if __name__ == "__main__":
    main()
