"""What versions of Lightning differ in."""

import inspect
from typing import Any


def weights_only() -> dict[str, Any]:
    """Return how a fit is told to load weights only, where Lightning can be told: from 2.6 on."""
    import pytorch_lightning as pl

    return {"weights_only": True} if "weights_only" in inspect.signature(pl.Trainer.fit).parameters else {}
