"""The service of a head: one replica in this process, and the learner in another."""

import copy
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from torchonline.bandits.composed import learner_of
from torchonline.core.checks import one_of, positive_integer
from torchonline.models.encoding import typed_like
from torchonline.serving import ServiceSettings, application, run_learner

ROLES = ("all", "replica", "learner")


@dataclass(frozen=True)
class HeadSettings(ServiceSettings):
    """Settings of a service whose policy is a head, in the state that it has now."""

    head: Any = field(default=None, repr=False)

    def make_policy(self) -> Any:
        """Return a copy of the head."""
        return copy.deepcopy(self.head)


def settings_of(head: Any, folder: str, **options: Any) -> HeadSettings:
    """Return the settings of a head with actions, for one context a decision."""
    actions = number_of_actions(head)
    if head.feature_dims != 1 or actions is None:
        raise ValueError(
            "model: expected a head with actions, whose contexts are vectors, got one with an input for each arm"
        )
    dtype = typed_like(head.encoder, head.policy.estimator.theta_hat).dtype
    return HeadSettings(folder=Path(folder), dim=input_width(head), actions=actions, dtype=dtype, head=head, **options)


def number_of_actions(head: Any) -> int | None:
    """Return K of a head with actions; None if each arm has its own inputs."""
    if head.has_models:
        return int(head.policy.actions)
    return None if head.actions is None else len(head.actions)


def input_width(head: Any) -> int:
    """Return the number of features of a context."""
    if head.scaler is not None:
        return int(head.scaler.dim)
    if type(head.encoder) is nn.Identity:
        return int(learner_of(head.policy).dim)
    layers = [part for part in head.encoder.modules() if isinstance(part, nn.Linear)]
    if not layers:
        raise ValueError("model: expected an encoder that is torch.nn.Identity or begins with a torch.nn.Linear")
    return layers[0].in_features


def run_service(settings: HeadSettings, role: str, host: str, port: int, words: Sequence[str]) -> None:
    """Serve until SIGTERM or Ctrl-C.

    Args:
        settings: of the service.
        role: ``"replica"`` answers requests, ``"learner"`` learns, and ``"all"`` answers requests and starts a learner.
        host: address where the replica listens.
        port: port where the replica listens.
        words: the command line, by which the learner is started.
    """
    one_of("role", role, ROLES)
    positive_integer("port", port)
    if role == "learner":
        run_learner(settings)
        return
    try:
        import uvicorn
    except ImportError as error:
        raise ImportError("serve: expected uvicorn, got none; pip install torchonline[serving]") from error
    app = application(settings)
    learner = None
    if role == "all":
        learner = subprocess.Popen([sys.executable, "-m", "torchonline", *words, "--role", "learner"])
    # uvicorn handles the signal, ends, and raises it again: then the learner is to be stopped, too.
    signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        uvicorn.run(app, host=host, port=port, access_log=False, log_level="warning", timeout_graceful_shutdown=10)
    finally:
        if learner is not None:
            learner.terminate()
            learner.wait(timeout=60)
