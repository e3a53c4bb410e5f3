"""The HTTP service of the example, for uvicorn.

    python examples/serving/learner.py &
    uvicorn --app-dir examples/serving app:create_app --factory --workers 2 --no-access-log --timeout-graceful-shutdown 10

Decisions and rewards are answered after they are on the disk. An id that is sent twice gets the first answer.
"""

from typing import Any

from settings import Settings

from torchonline.serving import application


def create_app() -> Any:
    """Return the application of one replica."""
    return application(Settings())
