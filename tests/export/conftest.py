"""Programs that several tests of this folder read."""

import copy
import functools
from collections.abc import Callable

import pytest
from torch.export import ExportedProgram

from torchonline import OFUL
from torchonline.export import to_program


@pytest.fixture(scope="session")
def oful_program() -> Callable[..., ExportedProgram]:
    """A copy of the program of OFUL(2), which is exported once: a call of a program changes its state."""
    exported = functools.cache(lambda noise_scale: to_program(OFUL(2), noise_scale=noise_scale))
    return lambda noise_scale=False: copy.deepcopy(exported(noise_scale))
