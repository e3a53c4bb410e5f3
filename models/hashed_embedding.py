"""Learnt vectors for categories, such as users and items, by hashing."""

import torch
from torch import Tensor, nn

from torchonline.core.backend import in_python
from torchonline.core.checks import positive, positive_integer
from torchonline.core.citations import Citable


class HashedEmbedding(Citable, nn.Module):
    r"""Encoder of categories: a learnt vector for each, in a hashed table.

    The input has a code for each of C categorical columns: a non-negative integer below 2^32, such as the CRC-32 of the
    category's text, or a user's number. NaN stands for a gap, which has its own vector in each column. Other numbers are cut to
    integers, modulo 2^32: values are not checked. With the vectors
    :math:`e_1, \ldots, e_C` of the codes, the output holds three parts,

    .. math:: \Bigl(1,\ \sum_c e_c,\ \sum_{c<c'} e_c \odot e_{c'}\Bigr),

    so that a linear model on it is a factorization machine: an effect of each category, and one of each pair of categories, of
    low rank. For a user and an item, it learns a matrix of users x items.

    The table has ``buckets`` rows for all columns together. Categories with the same row share a vector: of n categories, a share
    of about n / ``buckets`` meets another one. New categories need no new rows.

    Cost: O(C k) for an item with k = ``dim``, and ``buckets`` k numbers. Gradients are sparse, so that a training step costs
    nothing for rows that its minibatch does not use. :class:`~torchonline.models.NeuralLinearBandit` trains such an encoder by
    ``torch.optim.SparseAdam``.

    Args:
        columns: C, the number of categorical columns.
        buckets: number of rows of the table. 20 for each category make collisions rare.
        dim: k, the length of a vector.
        scale: standard deviation of the vectors' entries before training.

    Shape:
        - codes: ``(n, C)``, float64 or int64; float32 does not hold codes above 2^24.
        - output: ``(n, 2 k + 1)``, float64. ``features`` is this width.

    Example:
        >>> from torchonline import bandit
        >>> from torchonline.models import BanditHead
        >>> encoder = HashedEmbedding(2, dim=4)  # a user and an item
        >>> head = BanditHead(encoder, UCB(AdaptiveRidgeRegression(encoder.features)))
        >>> arms = torch.tensor([[7.0, 100.0], [7.0, 101.0], [7.0, float("nan")]], dtype=torch.float64)
        >>> k = head.select(arms)
        >>> head.step(arms, k, 1.0)
        >>> head.rounds
        tensor(1)

    Reference:
        Rendle, Factorization machines, ICDM 2010. Weinberger, Dasgupta, Langford, Smola and Attenberg, Feature hashing for large
        scale multitask learning, ICML 2009. What differs: vectors are hashed, not features, and the readout weights the k
        products.
    """

    def __init__(self, columns: int, *, buckets: int = 20_000, dim: int = 8, scale: float = 0.1) -> None:
        super().__init__()
        self.columns = positive_integer("columns", columns)
        self.buckets = positive_integer("buckets", buckets)
        self.dim = positive_integer("dim", dim)
        self.features = 2 * self.dim + 1
        # The last rows are those of gaps.
        self.table = nn.Embedding(self.buckets + self.columns, self.dim, sparse=True, dtype=torch.float64)
        with torch.no_grad():
            self.table.weight.mul_(positive("scale", scale))

    def extra_repr(self) -> str:
        return f"columns={self.columns}, buckets={self.buckets}, dim={self.dim}"

    def forward(self, codes: Tensor) -> Tensor:
        """Return the features of items: ``(n, C)`` to ``(n, 2 k + 1)``."""
        vectors = self.table(self.rows(codes))
        total = vectors.sum(-2)
        pairs = 0.5 * (total * total - (vectors * vectors).sum(-2))
        return torch.cat([torch.ones_like(total[..., :1]), total, pairs], -1)

    def rows(self, codes: Tensor) -> Tensor:
        """Return the table's row of each code, int64 ``(n, C)``."""
        self._check_codes(codes)
        codes = codes.to(torch.float64)
        is_gap = torch.isnan(codes)
        column = torch.arange(codes.size(-1), device=codes.device)
        # Each product is below 2^60: exact, and without overflow. Each column has its own one-to-one mix of 32 bits.
        bits = (torch.where(is_gap, 0.0, codes).to(torch.int64) + 2654435769 * (column + 1)) & 4294967295
        bits = (((bits >> 16) ^ bits) * 73244475) & 4294967295
        bits = (((bits >> 16) ^ bits) * 73244475) & 4294967295
        bits = (bits >> 16) ^ bits
        return torch.where(is_gap, self.buckets + column, bits % self.buckets)

    def _check_codes_in_python(self, codes: Tensor) -> None:
        if codes.size(-1) != self.columns:
            raise ValueError(f"codes: expected {self.columns} columns, got {codes.size(-1)}")
        if codes.dtype not in (torch.float64, torch.int64):
            raise TypeError(f"codes: expected float64 or int64, which hold all codes, got {codes.dtype}")

    @in_python(_check_codes_in_python)
    def _check_codes(self, codes: Tensor) -> None:
        """Refuse wrong types and shapes in Python."""
        return
