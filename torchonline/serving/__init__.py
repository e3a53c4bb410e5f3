"""Service that decides over HTTP and learns from the rewards.

docs/service.md is the guide. It needs the extra ``serving``.
"""

from typing import Any

from torchonline.core.messages import install_extra
from torchonline.serving.learner import run_learner
from torchonline.serving.replica import Replica
from torchonline.serving.settings import ServiceSettings

__all__ = ["Replica", "ServiceSettings", "application", "run_learner"]


def application(settings: ServiceSettings) -> Any:
    """Return the FastAPI application of one replica.

    Args:
        settings: settings of the service, the same for all replicas and the learner.

    Raises:
        ImportError: FastAPI or prometheus_client is not installed.
    """
    try:
        from torchonline.serving.app import create_app
    except ImportError as error:
        raise ImportError(
            f"serving: expected FastAPI and prometheus_client, got none; {install_extra('serving')}"
        ) from error
    return create_app(settings)
