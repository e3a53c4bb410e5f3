"""What older versions of torch cannot do, as marks of tests: docs/versions.md names it."""

import inspect
import sys
from typing import Any

import pytest
import torch

VERSION = tuple(int(part) for part in torch.__version__.split(".")[:2])
# Heads inside checkpoints, programs of heads, compiled programs and ONNX files: docs/limits.md.
needs_torch_2_6 = pytest.mark.skipif(VERSION < (2, 6), reason="needs torch 2.6 or later")
# torch 2.9 is the first one for Python 3.14, and has no torch.compile there.
needs_compiler = pytest.mark.skipif(VERSION < (2, 10) and sys.version_info >= (3, 14), reason="needs torch.compile")


def weights_only() -> dict[str, Any]:
    """Return how a fit is told to load weights only, where Lightning can be told: from 2.6 on."""
    import pytorch_lightning as pl

    return {"weights_only": True} if "weights_only" in inspect.signature(pl.Trainer.fit).parameters else {}
