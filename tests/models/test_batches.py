"""Tests of rewards and encoders of any type under Lightning, and of torch's default type."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from torch import Tensor, nn

import torchonline
from torchonline import OFUL, FreeGrad, StandardScaler
from torchonline.callbacks import BanditMonitor, NoiseMonitor, RegretLogger
from torchonline.models import BanditHead, LoggedRounds, NeuralLinearBandit, OnlinePredictor, RoundLoader
from torchonline.models.batches import payoffs, unpacked

logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
pytestmark = [
    # Lightning 2.6 itself uses what torch 2.13 has deprecated.
    pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec.` is deprecated:FutureWarning"),
]

FEATURES, DIM, ARMS, ROUNDS = 4, 8, 3, 40
QUIET: dict[str, Any] = {"accelerator": "cpu", "logger": False, "enable_progress_bar": False, "max_epochs": 1}
QUIET |= {"enable_model_summary": False, "enable_checkpointing": False}
DEFAULTS = [torch.float16, torch.bfloat16]
# torch's default type, and that of rewards.
TYPES = [(torch.float16, kind) for kind in (torch.bool, torch.int64, torch.float16)] + [(torch.bfloat16, torch.bool)]
TYPES += [(torch.float32, kind) for kind in (torch.bool, torch.uint8, torch.int64, torch.bfloat16)]


@contextmanager
def default_type(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@pytest.fixture(params=DEFAULTS, ids=str)
def default(request: pytest.FixtureRequest) -> Iterator[torch.dtype]:
    with default_type(request.param):
        yield request.param


def table() -> tuple[Tensor, Tensor]:
    """Return inputs in torch's default type, and rewards of 0 and 1."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(ROUNDS, FEATURES, generator=generator, dtype=torch.float64)
    return inputs.to(torch.get_default_dtype()), torch.rand(
        ROUNDS, ARMS, generator=generator, dtype=torch.float64
    ) < 0.5


def played(*parts: Any, callbacks: Any = (), every: int | None = 10, feedback: str = "round") -> NeuralLinearBandit:
    """Return a bandit that has played a table or learnt a log."""
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Linear(FEATURES, DIM), nn.ReLU())
    head = BanditHead(encoder, torchonline.bandit(DIM, actions=ARMS, scale=False))
    bandit = NeuralLinearBandit(head, train_encoder_every=every, encoder_steps=3, feedback=feedback)
    bandit.seed.fill_(1)
    trainer = pl.Trainer(**QUIET, callbacks=list(callbacks))
    trainer.fit(bandit, RoundLoader(*parts, batch_size=8))
    trainer.validate(bandit, RoundLoader(*parts, batch_size=8), verbose=False)
    return bandit


def same_state(one: nn.Module, other: nn.Module) -> bool:
    states = one.state_dict(), other.state_dict()
    return states[0].keys() == states[1].keys() and all(
        torch.equal(value.double(), states[1][name].double()) for name, value in states[0].items()
    )


@pytest.mark.parametrize(("default", "kind"), TYPES, ids=str)
def test_rewards_of_any_type_teach_the_same(default: torch.dtype, kind: torch.dtype) -> None:
    wanted, got = RegretLogger(), RegretLogger()
    with default_type(default):
        inputs, rewards = table()
        expected = played(inputs, rewards.double(), callbacks=[wanted])
        bandit = played(inputs, rewards.to(kind), callbacks=[got, BanditMonitor(ARMS), NoiseMonitor()])
    assert same_state(bandit, expected)
    assert all(bool(value.isfinite().all()) for value in bandit.parameters())
    assert got.regret is not None
    assert wanted.regret is not None
    assert torch.equal(got.regret.total, wanted.regret.total)


def test_logs_too(default: torch.dtype) -> None:
    inputs, rewards = table()
    action = torch.arange(ROUNDS) % ARMS
    states = [
        played(LoggedRounds(inputs, action, rewards[:, 0].to(kind)), feedback="batch")
        for kind in (torch.float64, torch.bool, torch.uint8)
    ]
    assert all(same_state(states[0], other) for other in states[1:])


def test_regrets_of_small_integers_do_not_overflow() -> None:
    rewards = torch.tensor([127, -128], dtype=torch.int8).expand(6, 2)
    action = torch.tensor([0, 1, 0, 1, 1, 0])
    outputs = payoffs(unpacked((torch.zeros(6, FEATURES), rewards)), action, action)
    assert outputs["regret"].tolist() == [0.0, 255.0, 0.0, 255.0, 255.0, 0.0]
    assert outputs["reward"].tolist() == [127.0, -128.0, 127.0, -128.0, -128.0, 127.0]


def test_an_encoder_of_half_precision_is_trained(default: torch.dtype) -> None:
    """Adam itself would divide by squares that are 0 there."""
    inputs, rewards = table()
    before = played(inputs, rewards, every=None).head.encoder.state_dict()
    after = played(inputs, rewards, every=10).head.encoder.state_dict()
    for name, value in after.items():
        assert value.dtype is default
        assert bool(value.isfinite().all())
        assert not torch.equal(value, before[name])


def test_other_modules_work_in_it(default: torch.dtype) -> None:
    inputs, rewards = table()
    model = OnlinePredictor(FreeGrad(DIM), encoder=nn.Linear(FEATURES, DIM))
    trainer = pl.Trainer(**QUIET)
    trainer.fit(model, RoundLoader(inputs, rewards[:, 0], batch_size=8))
    trainer.test(model, RoundLoader(inputs, rewards[:, 0], batch_size=8), verbose=False)
    assert bool(model(inputs).isfinite().all())
    head = BanditHead(
        nn.Linear(FEATURES, DIM), OFUL(DIM), actions=ARMS, scaler=StandardScaler(FEATURES, intercept=False)
    )
    head.step(inputs, torch.zeros(ROUNDS, dtype=torch.int64), rewards[:, 0])
    assert head.select([1, 2, 3, 4]).shape == ()
