"""Classification played as a contextual bandit."""

import torch
from torch import Tensor
from torch.nn.functional import one_hot
from torch.utils.data import Dataset

from torchonline.core.checks import check_shape, instance_of, positive_integer, seed_number, sizes
from torchonline.core.inputs import check_floats, check_indices
from torchonline.core.options import described
from torchonline.environments.noise import Noise


class ClassificationBandit(Dataset[tuple[Tensor, Tensor, Tensor]]):
    r"""Classification as a contextual bandit: a round is an input, an arm is a label.

    The mean reward is 1 for the correct label and 0 for all others. Noise is added. An item of the dataset is one round: inputs
    ``(*B, ...)``, rewards ``(*B, K)`` and means ``(*B, K)``. A learner may see only the reward of its chosen arm; the means
    serve to measure regret. A ``DataLoader`` adds the rounds of a batch as the first dimension, ``(n, *B, ...)``. The stream
    passes through all inputs in random order until it has ``rounds`` rounds. Each pass and each trial has its own order, and each
    trial its own noise. Memory: O(rounds * K) numbers for each trial.

    Args:
        inputs: ``(N, ...)``, floating point. The rewards have the same type.
        labels: ``(N)``, int64 from 0 to ``arms - 1``.
        arms: number of arms K.
        rounds: length T of the stream.
        noise: law of the noise in the rewards.
        batch_shape: ``*B``, independent trials, for a learner with the same ``batch_shape``.
        seed: seed of all draws.

    Attributes:
        order: index of the input of each round, ``(T, *B)``.

    Example:
        >>> from torch.utils.data import DataLoader
        >>> from torchonline.datasets import digits
        >>> from torchonline.environments import StudentT
        >>> images, labels = digits()[1].tensors
        >>> stream = ClassificationBandit(images, labels, 10, rounds=5000, noise=StudentT(2.1, scale=0.5), batch_shape=(5,))
        >>> inputs, rewards, means = next(iter(DataLoader(stream, batch_size=100)))
        >>> inputs.shape, rewards.shape, means.shape
        (torch.Size([100, 5, 64]), torch.Size([100, 5, 10]), torch.Size([100, 5, 10]))
    """

    def __init__(
        self,
        inputs: Tensor,
        labels: Tensor,
        arms: int,
        *,
        rounds: int,
        noise: Noise,
        batch_shape: tuple[int, ...] = (),
        seed: int = 0,
    ) -> None:
        inputs = check_floats("inputs", inputs)
        self.noise = instance_of("noise", noise, Noise, "a Noise")
        if inputs.dim() == 0 or len(inputs) == 0:
            raise ValueError(f"inputs: expected shape (N, ...) with N > 0, got {tuple(inputs.shape)}")
        self.arms = positive_integer("arms", arms)
        labels = check_indices("labels", labels, self.arms)
        check_shape("labels", labels, (len(inputs),))
        self.batch_shape = sizes("batch_shape", batch_shape)
        self.inputs, self.labels = inputs, labels
        self.seed = seed_number(seed)
        generator = torch.Generator().manual_seed(self.seed)
        self.rounds = positive_integer("rounds", rounds)
        passes = -(-self.rounds // len(inputs))
        keys = torch.rand((passes, *self.batch_shape, len(inputs)), generator=generator, dtype=torch.float64)
        self.order = keys.argsort(-1).movedim(-1, 1).flatten(0, 1)[:rounds].contiguous()
        self._noise = noise.sample((*self.order.shape, arms), generator).to(inputs.dtype)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({described(self, vars(self))})"

    def __len__(self) -> int:
        """Return the number of rounds."""
        return len(self.order)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return the inputs, rewards and means of a round, counted from 0."""
        chosen = self.order[index]
        means = one_hot(self.labels[chosen], self.arms).to(self.inputs.dtype)
        return self.inputs[chosen], means + self._noise[index], means
