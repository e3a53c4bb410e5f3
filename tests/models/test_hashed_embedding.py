"""``HashedEmbedding``: hashing, features, files, and training with sparse gradients."""

import math
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from torch import Tensor, nn

from torchonline import OFUL, UCB, AdaptiveRidgeRegression, DisjointArms, RidgeRegression
from torchonline.export import to_program, to_torchscript
from torchonline.models import BanditHead, HashedEmbedding, NeuralLinearBandit, RoundLoader
from torchonline.models.refit import fit_encoder

D = torch.float64
MOST = 2.0**32 - 1


def slow_row(code: float, column: int, buckets: int) -> int:
    """The row of a code, in Python's integers."""
    if math.isnan(code):
        return buckets + column
    bits = (int(code) + 2654435769 * (column + 1)) % 2**32
    for _ in range(2):
        bits = (((bits >> 16) ^ bits) * 0x45D9F3B) % 2**32
    return ((bits >> 16) ^ bits) % buckets


def test_rows_are_those_of_exact_integers() -> None:
    encoder = HashedEmbedding(3, buckets=1009)
    codes = torch.randint(0, 2**32, (500, 3)).to(D)
    codes[0], codes[1], codes[2, 1] = 0.0, MOST, torch.nan
    wanted = [[slow_row(code, j, 1009) for j, code in enumerate(row)] for row in codes.tolist()]
    assert encoder.rows(codes).tolist() == wanted
    assert encoder.rows(codes[:0]).shape == (0, 3)
    assert torch.equal(encoder.rows(codes[3:].to(torch.int64)), encoder.rows(codes[3:]))


@pytest.mark.parametrize("codes", [torch.arange(4000), 1000 * torch.arange(4000), torch.randint(0, 2**32, (4000,))])
def test_codes_spread_over_the_rows(codes: Tensor) -> None:
    """As balls thrown at random: the sum of squared deviations has about as many degrees of freedom as rows."""
    encoder = HashedEmbedding(2, buckets=500)
    rows = encoder.rows(torch.stack([codes, codes], -1).to(D))
    for j in range(2):
        counts = torch.bincount(rows[:, j], minlength=500).to(D)
        assert abs(float(((counts - 8.0) ** 2 / 8.0).sum()) - 499.0) < 6.0 * math.sqrt(2 * 499.0)
    # A code has other rows in another column.
    assert (rows[:, 0] == rows[:, 1]).to(D).mean() < 0.01


@pytest.mark.fast
def test_features_are_those_of_a_factorization_machine() -> None:
    encoder = HashedEmbedding(3, buckets=100, dim=2)
    codes = torch.tensor([[1.0, 2.0, torch.nan], [5.0, MOST, 7.0]], dtype=D)
    vectors = encoder.table.weight[encoder.rows(codes)]
    one, two, three = vectors.unbind(1)
    wanted = torch.cat([torch.ones(2, 1, dtype=D), one + two + three, one * two + one * three + two * three], -1)
    torch.testing.assert_close(encoder(codes), wanted)
    assert encoder.features == wanted.size(-1) == 5
    # Gaps of two columns differ.
    gaps = torch.full((1, 3), torch.nan, dtype=D)
    assert encoder.rows(gaps).tolist() == [[100, 101, 102]]


@pytest.mark.parametrize(
    ("codes", "error", "text"),
    [
        (torch.ones(1, 3, dtype=D), ValueError, "expected 2 columns, got 3"),
        (torch.ones(1, 2), TypeError, "expected float64 or int64, which hold all codes, got torch.float32"),
    ],
)
def test_other_codes_are_refused(codes: Tensor, error: type[Exception], text: str) -> None:
    encoder = HashedEmbedding(2)
    with pytest.raises(error, match=f"^codes: {text}"):
        encoder(codes)
    with pytest.raises(ValueError, match=r"^inputs: expected what the encoder takes"):
        BanditHead(encoder, OFUL(encoder.features)).select(codes)


def test_options_are_checked() -> None:
    for name in ("columns", "buckets", "dim"):
        with pytest.raises(ValueError, match=rf"^{name}: expected an integer above 0, got 0"):
            HashedEmbedding(**{"columns": 2} | {name: 0})
    with pytest.raises(ValueError, match=r"^scale: expected a number above 0"):
        HashedEmbedding(2, scale=0.0)
    assert "buckets=20000" in repr(HashedEmbedding(2))


def heads() -> dict[str, Any]:
    """Heads on the encoder: arms with codes, and one context with a model for each action."""
    encoder = HashedEmbedding(2, buckets=300, dim=3)
    return {
        "arms": BanditHead(encoder, UCB(AdaptiveRidgeRegression(encoder.features))),
        "actions": BanditHead(encoder, DisjointArms(RidgeRegression(encoder.features), actions=4)),
    }


def codes_of(*shape: int) -> Tensor:
    """Codes, some of them gaps."""
    codes = torch.randint(0, 2**32, (*shape, 2)).to(D)
    return torch.where(torch.rand(codes.shape) < 0.1, torch.nan, codes)


@pytest.mark.parametrize("kind", ["arms", "actions"])
def test_files_decide_and_learn_as_the_head(kind: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    head = heads()[kind].eval()
    shape = (4,) if kind == "arms" else ()
    example = codes_of(*shape)
    script = to_torchscript(head, tmp_path / "head.pt", example=example)
    program = to_program(head, example=example).module()
    past, reward, learns = (example, torch.tensor(0)), torch.tensor(0.0, dtype=D), torch.tensor(False)
    for t in range(20):
        codes = codes_of(*shape)
        mask = torch.tensor([t % 2 == 0, True, True, True])
        k = head.select(codes, mask)
        assert torch.equal(program(*past, reward, learns, codes[None], mask[None])[0].squeeze(-1), k)
        assert torch.equal(script.select(codes, mask), k)
        past, reward, learns = (codes, k), torch.tensor(0.1 * (t % 7), dtype=D), torch.tensor(True)
        head.step(*past, reward)
        script.step(*past, reward)
        torch.testing.assert_close(script(codes), head(codes))
    loaded = torch.jit.load(tmp_path / "head.pt")
    assert loaded.select(codes).shape == ()


def test_sparse_rows_are_trained_and_no_others() -> None:
    torch.manual_seed(0)
    encoder = HashedEmbedding(2, buckets=1000, dim=3)
    head = BanditHead(encoder, OFUL(encoder.features))
    codes = torch.randint(0, 20, (50, 5, 2)).to(D)
    before = encoder.table.weight.detach().clone()
    readout = torch.ones(encoder.features, dtype=D)
    rounds = (codes, torch.zeros(50, dtype=torch.int64), torch.rand(50, dtype=D))
    fit_encoder(head, readout, rounds, steps=3, batch_size=8, learning_rate=0.01)
    used = torch.zeros(1002, dtype=torch.bool)
    used[encoder.rows(codes[:, 0]).unique()] = True
    moved = (encoder.table.weight != before).any(-1)
    assert moved.any()
    assert not moved[~used].any()
    assert (readout != 1.0).any()
    assert encoder.table.weight.grad is None


@pytest.mark.parametrize("sparse", [True, False])
def test_an_embedding_trains_beside_dense_layers(sparse: bool) -> None:
    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bag = nn.EmbeddingBag(30, 4, sparse=sparse, mode="sum", dtype=D)
            self.layer = nn.Linear(4, 3, dtype=D)

        def forward(self, codes: Tensor) -> Tensor:
            return self.layer(self.bag(codes.long()))

    torch.manual_seed(0)
    encoder = Encoder()
    head = BanditHead(encoder, OFUL(3))
    codes, before = torch.randint(0, 30, (40, 5, 2)).to(D), {k: v.clone() for k, v in encoder.state_dict().items()}
    rounds = (codes, torch.zeros(40, dtype=torch.int64), torch.rand(40, dtype=D))
    fit_encoder(head, torch.ones(3, dtype=D), rounds, steps=3, batch_size=8, learning_rate=0.01)
    assert all((value != before[name]).any() for name, value in encoder.state_dict().items())


def test_a_bandit_learns_a_matrix_of_low_rank() -> None:
    """Of rank 1 with means of 0 in each row and column: without the products, there is nothing to learn."""
    torch.manual_seed(0)
    signs = torch.where(torch.arange(30) % 2 == 0, 1.0, -1.0).to(D)
    users, items = torch.randint(0, 30, (3000,)), torch.stack([torch.randperm(30)[:6] for _ in range(3000)])
    means = 0.5 + 0.4 * signs[users].unsqueeze(-1) * signs[items]
    codes = torch.stack([users.unsqueeze(-1).expand_as(items), items], -1).to(D)
    encoder = HashedEmbedding(2, buckets=2000, dim=4)
    bandit = NeuralLinearBandit(
        BanditHead(encoder, OFUL(encoder.features, radius_scale=0.1)),
        feedback="batch",
        train_encoder_every=300,
        replay_size=3000,
        encoder_steps=60,
        encoder_learning_rate=0.05,
    )
    found: list[Tensor] = []

    class Keep(pl.Callback):
        def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, *rest: Any) -> None:
            found.append(outputs["regret"])

    quiet: dict[str, Any] = {"accelerator": "cpu", "logger": False, "enable_progress_bar": False}
    quiet |= {"enable_model_summary": False, "enable_checkpointing": False}
    rewards = (torch.rand_like(means) < means).to(D)
    pl.Trainer(max_epochs=1, callbacks=[Keep()], **quiet).fit(bandit, RoundLoader(codes, rewards, means, batch_size=50))
    regret = torch.cat(found)
    assert regret[:300].mean() > 0.3
    assert regret[-1000:].mean() < 0.08
