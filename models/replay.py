"""The last rounds of a stream, in buffers of fixed size."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from torchonline.core.checks import positive_integer


class Replay(nn.Module):
    """A ring buffer of decisions: what was seen, which arm was played, and what it paid.

    Memory is taken at the first round, when the shapes are known, and does not grow. All of it is in ``state_dict``,
    and a new replay takes the shapes that it loads.

    Args:
        size: rounds kept; from then on each round overwrites the oldest.

    Shape:
        inputs ``(n, ...)``, action and reward ``(n, *B)``: n rounds in order.
    """

    rounds: Tensor
    inputs: Tensor
    action: Tensor
    reward: Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = positive_integer("replay_size", size)
        self.register_buffer("rounds", torch.zeros((), dtype=torch.int64))
        for name in ("inputs", "action", "reward"):
            self.register_buffer(name, None)

    def push(self, inputs: Tensor, action: Tensor, reward: Tensor) -> None:
        """Keep n more rounds."""
        new = {"inputs": inputs, "action": action, "reward": reward}
        n = len(reward)
        slots = (self.rounds + torch.arange(n, device=reward.device)) % self.size
        for name, values in new.items():
            if getattr(self, name) is None:
                setattr(self, name, values.new_zeros((self.size, *values.shape[1:])))
            # Of more rounds than fit only the last have a slot of their own.
            getattr(self, name)[slots[-self.size :]] = values[-self.size :]
        self.rounds += n

    def in_order(self) -> tuple[Tensor, Tensor, Tensor]:
        """Inputs, actions and rewards of the rounds kept, the oldest first."""
        rounds = int(self.rounds)
        slots = torch.arange(max(0, rounds - self.size), rounds, device=self.rounds.device) % self.size
        return self.inputs[slots], self.action[slots], self.reward[slots]

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *args: Any) -> None:
        for name in ("inputs", "action", "reward"):
            loaded = state_dict.get(prefix + name)
            if loaded is not None:
                setattr(self, name, loaded.new_zeros(loaded.shape, device=self.rounds.device))
        super()._load_from_state_dict(state_dict, prefix, *args)
