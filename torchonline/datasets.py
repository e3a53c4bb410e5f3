"""Real data as bandit streams, read from installed packages: nothing is downloaded."""

import torch
from torch import Tensor
from torch.nn.functional import one_hot
from torch.utils.data import Dataset, TensorDataset

from torchonline.environments.noise import Noise
from torchonline.learner import check_shape, positive_integer


def digits(labelled: int = 300) -> tuple[TensorDataset, TensorDataset]:
    """Scikit-learn's 1797 handwritten digits, split into a few to train an encoder on and the rest to serve.

    The data are the test set of Alpaydin and Kaynak, Optical recognition of handwritten digits (UCI, 1998), in the
    order in which scikit-learn keeps them.

    Args:
        labelled: how many go into the first part, from 1 to 1796.

    Returns:
        Two datasets of images, 8 x 8 pixels in a row, ``(N, 64)``, float32 in [0, 1]; and labels, ``(N)``, int64 from 0
        to 9. ``dataset.tensors`` is the pair.

    Raises:
        ImportError: scikit-learn is not installed.

    Example:
        >>> labelled, rest = digits()
        >>> len(labelled), len(rest)
        (300, 1497)
        >>> images, labels = rest.tensors
        >>> images.shape, labels[:5]
        (torch.Size([1497, 64]), tensor([7, 3, 5, 1, 0]))
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise ImportError("digits needs scikit-learn: pip install torchonline[examples]") from error
    data = load_digits()
    images = torch.from_numpy(data.data / data.data.max()).float()
    labels = torch.from_numpy(data.target).long()
    if positive_integer("labelled", labelled) >= len(labels):
        raise ValueError(f"labelled: expected at most {len(labels) - 1}, got {labelled}")
    return TensorDataset(images[:labelled], labels[:labelled]), TensorDataset(images[labelled:], labels[labelled:])


class ClassificationBandit(Dataset[tuple[Tensor, Tensor, Tensor]]):
    r"""A classification problem played as a contextual bandit: one round is one input, one arm is one label.

    The mean reward is 1 for the right label and 0 for all others, and noise is added. An item is one round,

        ``inputs (*B, ...)``, ``rewards (*B, K)``, ``means (*B, K)``,

    where a learner may see the reward of the arm that it chooses and of no other; ``means`` are there to count regret.
    A ``DataLoader`` puts the rounds of a batch in front: ``(n, *B, ...)``.

    Every input comes once in random order, then again in another order, until the rounds are over. Each of the ``*B``
    trials has an order and noise of its own. All draws come from a generator of its own.

    Memory: O(rounds * K) numbers for each trial.

    Args:
        inputs: ``(N, ...)``, floating point; their type is the type of the rewards too.
        labels: ``(N)``, int64 from 0 to ``arms - 1``.
        arms: number of arms K.
        rounds: length of the stream, T.
        noise: law of what is added to the means.
        batch_shape: ``*B``, independent trials, to be played by a learner of the same ``batch_shape``.
        seed: of all draws.

    Attributes:
        order: which input comes in which round, ``(T, *B)``.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: shapes do not fit, or there is a label without an arm.

    Example:
        >>> from torch.utils.data import DataLoader
        >>> from torchonline.environments import StudentT
        >>> _, rest = digits()
        >>> noise = StudentT(2.1, scale=0.5)
        >>> stream = ClassificationBandit(*rest.tensors, 10, rounds=5000, noise=noise, batch_shape=(5,))
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
        if not isinstance(inputs, Tensor) or not inputs.is_floating_point():
            raise TypeError(f"inputs: expected a floating-point tensor, got {_kind(inputs)}")
        if not isinstance(labels, Tensor) or labels.dtype != torch.int64:
            raise TypeError(f"labels: expected a tensor of int64, got {_kind(labels)}")
        if not isinstance(noise, Noise):
            raise TypeError(f"noise: expected a Noise, got {type(noise).__name__}")
        if inputs.dim() == 0 or len(inputs) == 0:
            raise ValueError(f"inputs: expected shape (N, ...) with N > 0, got {tuple(inputs.shape)}")
        check_shape("labels", labels, (len(inputs),))
        self.arms = positive_integer("arms", arms)
        if not 0 <= int(labels.min()) <= int(labels.max()) < arms:
            raise ValueError(f"labels: expected 0 to {arms - 1}, got {int(labels.min())} to {int(labels.max())}")
        batch_shape = tuple(positive_integer("batch_shape", size) for size in batch_shape)
        self.inputs = inputs
        self.labels = labels
        generator = torch.Generator().manual_seed(seed)
        passes = -(-positive_integer("rounds", rounds) // len(inputs))
        keys = torch.rand((passes, *batch_shape, len(inputs)), generator=generator, dtype=torch.float64)
        self.order = keys.argsort(-1).movedim(-1, 1).flatten(0, 1)[:rounds].contiguous()
        self._noise = noise.sample((*self.order.shape, arms), generator).to(inputs.dtype)

    def __len__(self) -> int:
        return len(self.order)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor, Tensor]:
        """The round of this number, from 0."""
        chosen = self.order[index]
        means = one_hot(self.labels[chosen], self.arms).to(self.inputs.dtype)
        return self.inputs[chosen], means + self._noise[index], means


def _kind(value: object) -> str:
    return str(value.dtype) if isinstance(value, Tensor) else type(value).__name__
