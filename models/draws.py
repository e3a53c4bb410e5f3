"""Random draws from a local seed."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def seeded_draws(seed: int, device: torch.device) -> Iterator[None]:
    """Seed the generators of the CPU and of ``device``, then restore them."""
    devices = [] if device.type == "cpu" else [device]
    with torch.random.fork_rng(devices, device_type=device.type):
        # torch.manual_seed visits all accelerator types, which takes longer than a round.
        torch.default_generator.manual_seed(seed)
        for one in devices:
            torch.get_device_module(one).manual_seed(seed)
        yield
