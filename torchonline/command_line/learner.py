"""Learner process of ``torchonline serve``.

The service sends its settings in a pickle to the standard input, and keeps the pipe open while it runs. So the learner begins
with the policy of the service, and loads neither Lightning nor the configuration.
"""

import pickle
import sys

from torchonline.command_line import run_explained


def learn() -> None:
    """Learn until the pipe closes."""
    from torchonline.serving import run_learner

    try:
        settings = pickle.load(sys.stdin.buffer)
    except (EOFError, pickle.UnpicklingError):  # the service has ended
        return
    run_learner(settings, sys.stdin.fileno())


if __name__ == "__main__":
    sys.exit(run_explained("serve", learn))
