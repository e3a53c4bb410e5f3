"""The one learner of the service: it follows the log and writes a snapshot twice a second.

    python examples/serving/learner.py

It stops at SIGTERM or Ctrl-C, after a last snapshot. Another learner for the same snapshot is refused.
"""

from settings import Settings

from torchonline.serving import run_learner

if __name__ == "__main__":
    run_learner(Settings())
