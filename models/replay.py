"""Ring buffer of the last rounds of a stream."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from torchonline.core.backend import writable
from torchonline.core.checks import kind, positive_integer, shape_text
from torchonline.core.options import described


def same_length(parts: list[Tensor]) -> list[Tensor]:
    """Pad the last dimension of tensors with zeros to the longest of them."""
    longest = max(part.size(-1) for part in parts)
    return [part if part.size(-1) == longest else functional.pad(part, (0, longest - part.size(-1))) for part in parts]


class Replay(nn.Module):
    """Ring buffer of decisions: inputs, id of the chosen arm and reward.

    The first round, or a loaded state, sets shapes and dtypes and allocates the memory. The memory does not grow, except with
    ``pads``: all rounds then take the memory of the longest.

    Args:
        size: number of rounds to keep. When the buffer is full, each new round overwrites the oldest.
        pads: whether the last dimension of inputs may vary. Shorter inputs get zeros at the end.

    Shape:
        inputs ``(n, ...)``, action and reward ``(n, *B)``: n rounds in order.
    """

    rounds: Tensor
    inputs: Tensor
    action: Tensor
    reward: Tensor

    def __init__(self, size: int, pads: bool = False) -> None:
        super().__init__()
        self.size = positive_integer("replay_size", size)
        self.pads = pads
        self.register_buffer("rounds", writable(torch.zeros((), dtype=torch.int64)))
        for name in ("inputs", "action", "reward"):
            self.register_buffer(name, None)

    def extra_repr(self) -> str:
        """Return the size and, once known, the inputs' shape and dtype."""
        return described(self, vars(self)) + ("" if self.inputs is None else f", inputs=<{kind(self.inputs)}>")

    def push(self, inputs: Tensor, action: Tensor, reward: Tensor) -> None:
        """Add n rounds."""
        if self.pads and self.inputs is not None:
            padded, inputs = same_length([self.inputs, inputs])
            if padded is not self.inputs:
                self.register_buffer("inputs", writable(padded))
        new = {"inputs": inputs, "action": action, "reward": reward}
        n = len(reward)
        slots = (self.rounds + torch.arange(n, device=reward.device)) % self.size
        for name, values in new.items():
            if getattr(self, name) is None:
                setattr(self, name, writable(values.new_zeros((self.size, *values.shape[1:]))))
            kept = getattr(self, name)
            # If more rounds come than fit, keep only the last ones.
            kept[slots[-self.size :]] = values[-self.size :].to(kept.dtype)
        self.rounds += n

    def in_order(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return inputs, actions and rewards of the kept rounds, oldest first."""
        rounds = int(self.rounds)
        slots = torch.arange(max(0, rounds - self.size), rounds, device=self.rounds.device) % self.size
        return self.inputs[slots], self.action[slots], self.reward[slots]

    def check_inputs(self, inputs: Tensor, feature_dims: int) -> None:
        """Raise unless inputs, ``(n, ..., *feature)``, match the kept shape and dtype."""
        if self.inputs is None:
            return
        wanted, got = (tuple(one.shape[one.dim() - feature_dims :]) for one in (self.inputs, inputs))
        if self.pads:
            got = (*got[:-1], wanted[-1])
        is_kind = inputs.dtype == self.inputs.dtype or (inputs.is_floating_point() and self.inputs.is_floating_point())
        if wanted != got or not is_kind:
            expected = f"features of shape {shape_text(wanted)} and {self.inputs.dtype}, as in earlier rounds"
            raise ValueError(f"inputs: expected {expected}, got {shape_text(got)} and {inputs.dtype}")

    def keep_arms(self, action_ids: list[int]) -> None:
        """Drop the rounds of all other arms."""
        if self.inputs is None:
            return
        inputs, action, reward = self.in_order()
        stays = torch.isin(action, torch.tensor(action_ids, device=action.device))
        stays = stays.flatten(1).all(-1) if stays.dim() > 1 else stays
        self.rounds.zero_()
        self.push(inputs[stays], action[stays], reward[stays])

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *args: Any) -> None:
        for name in ("inputs", "action", "reward") if prefix + "rounds" in state_dict else ():
            loaded = state_dict.get(prefix + name)  # None if the replay was empty
            setattr(self, name, None if loaded is None else loaded.new_zeros(loaded.shape, device=self.rounds.device))
        super()._load_from_state_dict(state_dict, prefix, *args)
