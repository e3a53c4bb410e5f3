"""``ParameterFree`` under learning-rate schedulers, with sparse gradients, and per coordinate."""

import copy
import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import LearningRateMonitor
from pytorch_lightning.loggers import CSVLogger
from torch import Tensor, nn
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader, TensorDataset

from tests.convex.test_optimizer import BATCH, EACH, LEARNERS, bits, head_of, loss_of, problem, train
from tests.learners import close
from torchonline import ParameterFree

D = torch.float64


def displacement(head: nn.Module, optimizer: ParameterFree, start: Tensor) -> Tensor:
    return torch.cat([p.detach().flatten() for p in head.parameters()]) - start


def learn(optimizer: ParameterFree, parameter: nn.Parameter, gradients: Tensor, rates: list[float]) -> list[Tensor]:
    """Steps from given gradients, each at a rate of its own; the parameters after each."""
    seen = []
    for g, rate in zip(gradients, rates, strict=True):
        optimizer.param_groups[0]["lr"] = rate
        parameter.grad = g.clone()
        optimizer.step()
        seen.append(parameter.detach().clone())
    return seen


def test_a_rate_multiplies_each_move() -> None:
    """Whatever the schedule: with gradients that do not depend on the parameters, the decisions stay."""
    gradients = torch.randn(30, 3, generator=torch.Generator().manual_seed(0), dtype=D)
    rates = [(1.0, 0.3, 0.0, 2.0)[t // 4 % 4] for t in range(30)]
    plain, scaled = nn.Parameter(torch.ones(3, dtype=D)), nn.Parameter(torch.ones(3, dtype=D))
    one = learn(ParameterFree([plain]), plain, gradients, [1.0] * 30)
    other = learn(ParameterFree([scaled]), scaled, gradients, rates)
    before = torch.ones(3, dtype=D)
    for t, rate in enumerate(rates):
        start = one[t - 1] if t else torch.ones(3, dtype=D)
        close(other[t] - before, rate * (one[t] - start), tolerance=1e-12)
        before = other[t]


def test_a_constant_rate_is_one_in_the_unit_of_length() -> None:
    """On losses too, whose gradients depend on the parameters."""
    for by_rate, by_unit in (
        ({"lr": 0.5}, {"length_scale": 0.5}),
        ({"lr": 0.5, "per_coordinate": True}, {"per_coordinate": True, "initial_wealth": 0.5}),
    ):
        heads = [head_of(), head_of()]
        for head, options in zip(heads, (by_rate, by_unit), strict=True):
            train(head, ParameterFree(head.parameters(), **options), 20)
        close(heads[0].weight, heads[1].weight, tolerance=1e-10)


def test_a_rate_of_1_changes_no_bit() -> None:
    """A change to another rate and back between two steps neither."""
    head, twin = head_of(), head_of()
    optimizer, other = ParameterFree(head.parameters()), ParameterFree(twin.parameters())
    for _ in range(5):
        other.param_groups[0]["lr"] = 0.1
        other.param_groups[0]["lr"] = 1.0
        train(head, optimizer, 1)
        train(twin, other, 1)
    assert torch.equal(head.weight, twin.weight)


@EACH
def test_a_saved_state_under_a_schedule_goes_on_bit_for_bit(learner: str) -> None:
    def build(seed: int) -> tuple[nn.Linear, ParameterFree, Any]:
        head = head_of(seed=seed)
        optimizer = ParameterFree(head.parameters(), learner=learner, **LEARNERS[learner])
        return head, optimizer, lr_scheduler.CosineAnnealingLR(optimizer, 12)

    def run(head: nn.Linear, optimizer: ParameterFree, schedule: Any, start: int) -> None:
        for t in range(start, start + 6):
            train(head, optimizer, 1, start=t)
            schedule.step()

    whole, again = build(0), build(1)
    run(*whole, 0)
    for one, other in zip(whole, again, strict=True):
        other.load_state_dict(copy.deepcopy(one.state_dict()))
    run(*whole, 6)
    run(*again, 6)
    for name, value in bits(*whole[:2]).items():
        assert torch.equal(value, bits(*again[:2])[name]), name
    assert whole[1].param_groups[0]["lr"] < 0.1


def test_a_state_from_before_there_was_a_rate_loads() -> None:
    """Without ``lr``, ``rate`` and the options that came with them."""
    head, optimizer = head_of(), None
    optimizer = ParameterFree(head.parameters())
    train(head, optimizer, 5)
    state = copy.deepcopy(optimizer.state_dict())
    for group, learner in zip(state["param_groups"], state["learners"], strict=True):
        del group["lr"], group["per_coordinate"], group["initial_wealth"], learner["rate"]
    twin_head = copy.deepcopy(head)
    twin = ParameterFree(twin_head.parameters(), lr=0.5)
    twin.load_state_dict(state)
    assert twin.param_groups[0]["lr"] == 1.0
    for one, its in ((head, optimizer), (twin_head, twin)):
        train(one, its, 5, start=5)
    assert torch.equal(head.weight, twin_head.weight)


SCHEDULES: dict[str, Callable[[ParameterFree], Any]] = {
    "step": lambda optimizer: lr_scheduler.StepLR(optimizer, 2),
    "lambda": lambda optimizer: lr_scheduler.LambdaLR(optimizer, lambda t: 1.0 / (1 + t)),
    "cosine": lambda optimizer: lr_scheduler.CosineAnnealingLR(optimizer, 10),
    "warm-up": lambda optimizer: lr_scheduler.LinearLR(optimizer, 0.1, total_iters=5),
    "one cycle": lambda optimizer: lr_scheduler.OneCycleLR(optimizer, 2.0, total_steps=20, cycle_momentum=False),
    "plateau": lambda optimizer: lr_scheduler.ReduceLROnPlateau(optimizer, patience=1),
    "in turn": lambda optimizer: lr_scheduler.SequentialLR(
        optimizer, [lr_scheduler.LinearLR(optimizer), lr_scheduler.ExponentialLR(optimizer, 0.9)], milestones=[3]
    ),
}


@pytest.mark.parametrize("name", list(SCHEDULES))
def test_the_schedulers_of_torch_work(name: str) -> None:
    head = head_of()
    optimizer = ParameterFree(head.parameters())
    schedule, x_y = SCHEDULES[name](optimizer), problem()[:2]
    for t in range(10):
        train(head, optimizer, 1, start=t)
        schedule.step(*([loss_of(head, *x_y).item()] if name == "plateau" else []))
    copied = copy.deepcopy(optimizer)
    copied.load_state_dict(optimizer.state_dict())
    again = ParameterFree(head.parameters())
    again.load_state_dict(optimizer.state_dict())
    assert again.param_groups[0]["lr"] == optimizer.param_groups[0]["lr"]


def test_a_rate_that_is_no_number_changes_nothing() -> None:
    head = head_of()
    optimizer = ParameterFree([{"params": [head.weight]}, {"params": [head.bias]}])
    train(head, optimizer, 3)
    before = bits(head, optimizer)
    for bad, error in ((float("nan"), ValueError), (-1.0, ValueError), ("1", TypeError), (True, TypeError)):
        optimizer.param_groups[1]["lr"] = bad
        with pytest.raises(error, match="lr: expected"):
            train(head, optimizer, 1)
        assert all(torch.equal(value, before[name]) for name, value in bits(head, optimizer).items())
    optimizer.param_groups[1]["lr"] = torch.tensor(0.5)
    train(head, optimizer, 1)
    state = optimizer.state_dict()
    state["param_groups"][1]["lr"] = float("inf")
    with pytest.raises(ValueError, match="lr: expected a finite number"):
        optimizer.load_state_dict(state)


class Scheduled(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.head = head_of(torch.float32)

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        return loss_of(self.head, *batch)

    def configure_optimizers(self) -> Any:
        optimizer = ParameterFree(self.head.parameters())
        schedule = lr_scheduler.CosineAnnealingLR(optimizer, 16)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def test_lightning_schedules_and_monitors_the_rate(tmp_path: Path) -> None:
    x, y, _ = problem(torch.float32)
    trainer = pl.Trainer(
        max_epochs=1,
        accelerator="cpu",
        logger=CSVLogger(tmp_path),
        log_every_n_steps=1,
        callbacks=[LearningRateMonitor("step")],
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Scheduled(), DataLoader(TensorDataset(x, y), batch_size=BATCH))
    with (Path(trainer.logger.log_dir) / "metrics.csv").open() as file:
        rates = [float(row["lr-ParameterFree"]) for row in csv.DictReader(file)]
    assert rates[0] == 1.0
    assert rates[-1] < 0.05
    assert len(rates) == 16


@pytest.mark.parametrize("options", [{}, {"per_coordinate": True}, {"learner": "cla"}])
def test_sparse_gradients_are_as_dense_ones(options: dict[str, Any]) -> None:
    """Of rows that come twice in a batch, too; and a dense layer beside them."""
    models = []
    for sparse in (True, False):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Embedding(6, 2, sparse=sparse), nn.Linear(2, 1))
        optimizer, random = ParameterFree(model.parameters(), **options), torch.Generator().manual_seed(1)
        for _ in range(10):
            rows = torch.randint(0, 5, (4,), generator=random)
            before = model[0].weight.detach().clone()
            optimizer.zero_grad()
            (model(rows) - rows[:, None]).square().mean().backward()
            assert model[0].weight.grad.is_sparse == sparse
            optimizer.step()
            if options.get("per_coordinate"):
                others = [row for row in range(6) if row not in rows.tolist()]
                assert torch.equal(model[0].weight[others], before[others])
        models.append(model)
    assert torch.equal(models[0][0].weight, models[1][0].weight)
    assert torch.equal(models[0][1].weight, models[1][1].weight)


def test_a_sparse_gradient_that_is_no_number_changes_nothing() -> None:
    embedding, other = nn.Embedding(4, 2, sparse=True), nn.Parameter(torch.ones(2))
    optimizer = ParameterFree([{"params": [other]}, {"params": embedding.parameters()}], per_coordinate=True)
    model = nn.ModuleDict({"embedding": embedding, "other": nn.ParameterList([other])})
    other.grad = torch.ones(2)
    embedding(torch.tensor([1, 2])).sum().backward()
    optimizer.step()
    before = bits(model, optimizer)
    bad = torch.zeros(4, 2)
    bad[1, 1] = torch.nan
    embedding.weight.grad = bad.to_sparse()
    with pytest.raises(ValueError, match="gradients of group 1: expected finite values, got nan"):
        optimizer.step()
    assert all(torch.equal(value, before[name]) for name, value in bits(model, optimizer).items())


def test_per_coordinate_predictions_do_not_depend_on_the_features_scales() -> None:
    x, y, _ = problem()
    scales = torch.tensor([1e-3, 10.0, 1.0, 5e4], dtype=D)
    outputs = []
    for c in (torch.ones_like(scales), scales):
        head = nn.Linear(4, 1, dtype=D)
        nn.init.zeros_(head.weight)
        nn.init.zeros_(head.bias)
        optimizer = ParameterFree(head.parameters(), per_coordinate=True)
        for row, target in zip(c * x, y, strict=True):
            optimizer.zero_grad()
            loss_of(head, row, target).backward()
            optimizer.step()
        outputs.append(head(c * x).detach())
    close(outputs[1], outputs[0], tolerance=1e-9)
