"""Modules of released values only, for export and serving."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from torchonline.core.ops import matmul
from torchonline.privacy.clipping import clipped


class Released(nn.Module):
    """A published decision, ``(*B, d)``, and nothing else."""

    theta: Tensor

    def __init__(self, theta: Tensor) -> None:
        super().__init__()
        self.register_buffer("theta", theta.detach().clone())

    def forward(self) -> Tensor:
        """Return the decision, ``(*B, d)``."""
        return self.theta

    @torch.jit.export
    def predict(self) -> Tensor:
        """Return the decision, ``(*B, d)``."""
        return self.theta

    def example(self) -> tuple[Tensor, ...]:
        """Return the arguments for an export: none."""
        return ()


class ReleasedBandit(nn.Module):
    """Base class of released bandits: ``forward`` scores arms by public values only."""

    theta: Tensor  # parameters of all arms, (*B, K, d)

    def __init__(self, bandit: Any, **public: Tensor) -> None:
        super().__init__()
        self.feature_clip, self.feature_norm = bandit.feature_clip, bandit.feature_norm
        for name, value in public.items():
            self.register_buffer(name, value.detach().to(torch.float64, copy=True))

    def admitted(self, x: Tensor, mask: Tensor | None = None) -> Tensor | None:
        """Return the mask of the arms to choose from, ``(*B, ..., K)``; None for all."""
        return mask

    @torch.jit.export
    def select(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the best available arm, the lowest of equals, ``(*B, ...)``."""
        return highest(self.forward(x), self.admitted(x, mask))

    def example(self) -> tuple[Tensor, ...]:
        """Return the arguments for an export: the contexts of three decisions."""
        theta = self.theta
        x = torch.linspace(-1.0, 1.0, 3 * theta.size(-1), dtype=theta.dtype, device=theta.device)
        return (x.reshape(3, -1).expand(theta.shape[:-2] + (3, theta.size(-1))),)

    def context(self, x: Tensor) -> Tensor:
        """Clip and flatten contexts: ``(*B, ..., d)`` to ``(*B, n, d)``."""
        x = clipped(x, self.feature_clip, self.feature_norm)
        return x.reshape(list(self.theta.shape[:-2]) + [-1, x.size(-1)])

    def of_arms(self, values: Tensor, x: Tensor) -> Tensor:
        """Undo :meth:`context` for values of arms: ``(*B, n, K)`` to ``(*B, ..., K)``."""
        return values.reshape(list(x.shape[:-1]) + [values.size(-1)])


class ReleasedDPHDB(ReleasedBandit):
    """Released :class:`~torchonline.DPHDB`, with the rule after the warm-up."""

    theta_warm: Tensor  # parameters at the end of the warm-up, (*B, K, d)

    def __init__(self, bandit: Any, **public: Tensor) -> None:
        super().__init__(bandit, **public)
        self.link, self.gap = bandit.link, bandit.gap

    def forward(self, x: Tensor) -> Tensor:
        """Return the estimated mean rewards: ``(*B, ..., d)`` to ``(*B, ..., K)``."""
        return self.means(x, self.theta)

    def means(self, x: Tensor, theta: Tensor) -> Tensor:
        """Return the mean rewards at parameters ``(*B, K, d)``, ``(*B, ..., K)``."""
        return self.of_arms(self.link.mean(matmul(self.context(x), theta.mT)), x)

    def admitted(self, x: Tensor, mask: Tensor | None = None) -> Tensor | None:
        """Return the mask of the available arms that the preselection keeps."""
        warm = self.means(x, self.theta_warm)
        if mask is not None:
            warm = warm.masked_fill(~mask, -math.inf)
        return warm.amax(-1, keepdim=True) - warm < 0.5 * self.gap


def highest(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Return the index, ``(...)``, of the highest available score, the first of ties."""
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    return scores.argmax(-1)
