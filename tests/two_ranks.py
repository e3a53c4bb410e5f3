"""One rank of two: what a private learner says in a DistributedDataParallel module, for a test.

python -m tests.two_ranks RANK FILE
"""

import os
import sys

import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel

from torchonline import DPTOFW


class Module(nn.Module):
    """An encoder and a private learner, which steps in each forward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Linear(3, 2)
        self.learner = DPTOFW(2, horizon=10, epsilon=1.0, delta=1e-3)

    def forward(self, x: Tensor) -> Tensor:
        features: Tensor = self.encoder(x)
        self.learner.step(features.detach().double().expand(2, 2))
        return features


def main() -> None:
    rank, file = int(sys.argv[1]), sys.argv[2]
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    before = Module()
    before(torch.ones(3))
    distributed.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=2)
    module = DistributedDataParallel(Module())  # broadcast_buffers is True by default
    for step in (module, before):
        try:
            step(torch.ones(3))
        except RuntimeError as error:
            print(error)
    print("rounds", int(module.module.learner.rounds), int(before.learner.rounds))
    distributed.destroy_process_group()
    before(torch.ones(3))
    print("rounds", int(before.learner.rounds))


if __name__ == "__main__":
    main()
