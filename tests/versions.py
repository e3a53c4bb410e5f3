"""What older versions of torch cannot do, as marks of tests: docs/versions.md names it."""

import pytest
import torch

VERSION = tuple(int(part) for part in torch.__version__.split(".")[:2])
# Heads inside checkpoints, programs of heads, compiled programs and ONNX files: docs/limits.md.
needs_torch_2_6 = pytest.mark.skipif(VERSION < (2, 6), reason="needs torch 2.6 or later")
