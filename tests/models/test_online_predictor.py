"""The module that predicts and then learns: against the learner alone, its losses, and what it refuses."""

from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from torch import Tensor, nn

from torchonline import CAOONS, DPTOFW, FreeGrad, StandardScaler, gradients
from torchonline.export import released
from torchonline.models import OnlinePredictor, RoundLoader

QUIET: dict[str, Any] = {"accelerator": "cpu", "logger": False, "enable_progress_bar": False}
QUIET |= {"enable_model_summary": False, "enable_checkpointing": False}
LOSSES = {
    "squared": lambda theta, x, y: 0.5 * (x @ theta - y) ** 2,
    "absolute": lambda theta, x, y: (x @ theta - y).abs(),
    "logistic": lambda theta, x, y: torch.log1p((x @ theta).exp()) - y * (x @ theta),
}


def stream(rounds: int = 60) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(rounds, 3, generator=generator, dtype=torch.float64)
    return x, (x @ torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64) > 0.0).double()


def fitted(model: OnlinePredictor, x: Tensor, y: Tensor, batch_size: int = 7) -> pl.Trainer:
    trainer = pl.Trainer(max_epochs=1, **QUIET)
    trainer.fit(model, RoundLoader(x, y, batch_size=batch_size))
    return trainer


@pytest.mark.parametrize("loss", list(LOSSES))
@pytest.mark.parametrize("make", [lambda: FreeGrad(3), lambda: CAOONS(3, horizon=100, lipschitz=10.0)])
def test_it_is_the_learner_on_the_losses(make: Any, loss: str) -> None:
    """The decisions and the losses are those of the loop by hand, with gradients by autograd."""
    x, y = stream()
    model, learner, total = OnlinePredictor(make(), loss=loss), make(), 0.0
    trainer = fitted(model, x, y)
    for row, target in zip(x, y, strict=True):
        total += float(LOSSES[loss](learner.predict(), row, target))
        learner.step(*gradients(LOSSES[loss], learner, row, target))
    torch.testing.assert_close(model.learner.predict(), learner.predict())
    assert int(model.rounds) == 60
    assert float(model.total_loss) == pytest.approx(total)
    assert float(trainer.logged_metrics["mean_loss"]) == pytest.approx(total / 60)
    (found,) = trainer.test(model, RoundLoader(x, y, batch_size=60), verbose=False)
    expected = torch.stack([LOSSES[loss](learner.predict(), *row) for row in zip(x, y, strict=True)]).mean()
    assert found["test_loss"] == pytest.approx(float(expected))
    (margins,) = trainer.predict(model, RoundLoader(x, batch_size=60)) or []
    assert margins.shape == (60,)
    assert bool(((margins >= 0.0) & (margins <= 1.0)).all()) == (loss == "logistic")


@pytest.mark.fast
def test_scaler_and_encoder() -> None:
    """A scaler sees a row after it was predicted; an encoder maps the rows and stays as it is."""
    x, y = stream()
    scaler, learner = StandardScaler(3, intercept=1.0), FreeGrad(4)
    model = OnlinePredictor(FreeGrad(4), loss="logistic", scaler=StandardScaler(3, intercept=1.0))
    fitted(model, 1000.0 * x, y)
    for row, target in zip(1000.0 * x, y, strict=True):
        learner.step(*gradients(LOSSES["logistic"], learner, scaler(row), target))
        scaler.step(row)
    torch.testing.assert_close(model.learner.predict(), learner.predict())
    encoder = nn.Linear(3, 2)
    before = encoder.weight.clone()
    model = OnlinePredictor(FreeGrad(2), encoder=encoder)
    fitted(model, x.float(), y)
    assert torch.equal(encoder.weight, before)
    assert int(model.rounds) == 60


def test_a_private_learner_takes_each_row_as_a_record() -> None:
    x, y = stream()
    model = OnlinePredictor(DPTOFW(3, horizon=60, epsilon=1.0, delta=1e-4), loss="logistic", log_losses=False)
    trainer = fitted(model, x, y)
    assert int(model.learner.rounds) == int(model.rounds) == 60
    assert float(model.total_loss) == 0.0
    assert set(trainer.logged_metrics) == set()
    public = released(model)
    assert torch.equal(public(x), model(x))
    assert not any("secret" in name for name in public.state_dict())


def test_a_checkpoint_goes_on(tmp_path: Path) -> None:
    x, y = stream()
    whole, half, rest = (OnlinePredictor(FreeGrad(3), loss="logistic") for _ in range(3))
    fitted(whole, x, y)
    fitted(half, x[:30], y[:30]).save_checkpoint(tmp_path / "a.ckpt")
    rest.load_state_dict(torch.load(tmp_path / "a.ckpt", weights_only=True)["state_dict"])
    again = OnlinePredictor.load_from_checkpoint(tmp_path / "a.ckpt", learner=FreeGrad(3))
    assert (again.loss, int(again.rounds)) == ("logistic", 30)
    assert torch.equal(again(x), rest(x))
    with pytest.raises(
        TypeError,
        match=r"^learner: expected a learner built as before the fit, got None; call load_from_checkpoint\(path, learner=...\)",
    ):
        OnlinePredictor.load_from_checkpoint(tmp_path / "a.ckpt")
    fitted(rest, x[30:], y[30:])
    assert all(torch.equal(value, rest.state_dict()[name]) for name, value in whole.state_dict().items())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"learner": nn.Linear(3, 1)}, "learner: expected a learner of a point, got Linear"),
        ({"learner": FreeGrad(3, batch_shape=(2,))}, "learner: expected no batch_shape"),
        ({"learner": FreeGrad(3), "loss": "hinge"}, "loss: expected"),
        ({"learner": FreeGrad(3), "encoder": nn.Identity(), "scaler": StandardScaler(3)}, "scaler: expected None"),
        ({"learner": DPTOFW(3, horizon=9, epsilon=1.0, delta=1e-4)}, "log_losses: expected False"),
    ],
)
def test_bad_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        OnlinePredictor(**options)


def test_bad_batches() -> None:
    model = OnlinePredictor(FreeGrad(3))
    with pytest.raises(ValueError, match=r"inputs: expected"):
        fitted(model, torch.rand(4, 2), torch.rand(4))
    with pytest.raises(ValueError, match=r"batch: expected inputs \(N, ...\) and targets \(N\)"):
        fitted(model, torch.rand(4, 3), torch.rand(4, 2))
    assert int(model.rounds) == 0
