"""Averages of weights, as torch and Lightning make them: statistics are never averaged."""

import copy
import logging
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_avg_fn, get_ema_multi_avg_fn, get_swa_multi_avg_fn
from torch.utils.data import DataLoader

from torchonline import OFUL, UCB, DisjointArms, FixedArms, FreeGrad, RidgeRegression, StandardScaler
from torchonline.models import BanditHead, NeuralLinearBandit, OnlinePredictor, RoundLoader

logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
    # Lightning 2.6 itself uses what torch 2.13 has deprecated.
    pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec.` is deprecated:FutureWarning"),
]

DIM = 3
AVERAGES: dict[str, dict[str, Any]] = {
    "equal": {},
    "equal, together": {"multi_avg_fn": get_swa_multi_avg_fn()},
    "exponential": {"avg_fn": get_ema_avg_fn(0.9)},
    "exponential, together": {"multi_avg_fn": get_ema_multi_avg_fn(0.9)},
}
MODULES = {
    "policy": lambda: OFUL(DIM),
    "arms": lambda: DisjointArms(UCB(RidgeRegression(DIM)), 2),
    "fixed arms": lambda: FixedArms(OFUL(DIM), torch.eye(DIM)),
    "scaler": lambda: StandardScaler(DIM),
    "convex": lambda: FreeGrad(DIM),
    "head": lambda: head(),
    "deep inside": lambda: nn.Sequential(nn.Linear(2, 2), nn.ModuleList([head()])),
}


def head() -> BanditHead:
    torch.manual_seed(0)
    return BanditHead(nn.Linear(4, DIM), OFUL(DIM), actions=2)


class Derived(AveragedModel):
    """An average as others derive one."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model, use_buffers=True)


@pytest.mark.parametrize("kind", MODULES)
def test_an_average_of_buffers_is_refused(kind: str) -> None:
    module = MODULES[kind]()
    for make in (lambda: AveragedModel(module, use_buffers=True), lambda: Derived(module)):
        with pytest.raises(
            RuntimeError, match=r"^use_buffers: expected False for an average of a module with learners"
        ):
            make()
    copy.deepcopy(module)


@pytest.mark.parametrize("kind", AVERAGES)
def test_an_average_of_parameters_has_the_last_statistics(kind: str) -> None:
    module = head()
    average = AveragedModel(module, **AVERAGES[kind])
    for t in range(12):
        module.step(torch.randn(4), t % 2, 1.0)
        with torch.no_grad():
            module.encoder.weight += 1.0
        average.update_parameters(module)
    own, last = average.module.policy.state_dict(), module.policy.state_dict()
    assert all(torch.equal(own[name], last[name]) for name in last)
    assert not torch.equal(average.module.encoder.weight, module.encoder.weight)
    average.module.step(torch.randn(4), 0, 1.0)
    assert (int(average.module.rounds), int(module.rounds)) == (13, 12)


class Hybrid(pl.LightningModule):
    """A network that gradients train, with a head beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.head, self.net = head(), nn.Linear(4, 1)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        for x in batch:
            self.head.step(x, 0, 1.0)
        return self.net(batch).square().mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.net.parameters(), lr=0.1)


def trainer(callback: pl.Callback) -> pl.Trainer:
    quiet: dict[str, Any] = {"accelerator": "cpu", "logger": False, "enable_progress_bar": False, "max_epochs": 2}
    return pl.Trainer(**quiet, enable_model_summary=False, enable_checkpointing=False, callbacks=[callback])


def callbacks_that_average() -> list[pl.Callback]:
    """Return those that this version of Lightning has."""
    found: list[pl.Callback] = [pl.callbacks.StochasticWeightAveraging(swa_lrs=1e-2)]
    for name in ("WeightAveraging", "EMAWeightAveraging"):
        if kind := getattr(pl.callbacks, name, None):
            found += [kind(), kind(use_buffers=False)]
    return found


def test_modules_that_learn_online_refuse_callbacks_that_average() -> None:
    rows, rewards = torch.rand(8, 4), torch.rand(8, 2)
    for callback in callbacks_that_average():
        bandit, predictor = NeuralLinearBandit(head()), OnlinePredictor(FreeGrad(4))
        for module, data in ((bandit, (rows, rewards)), (predictor, (rows, rewards[:, 0]))):
            message = f"no averaging of the weights of a {type(module).__name__}, got {type(callback).__name__}"
            with pytest.raises(RuntimeError, match=message):
                trainer(callback).fit(module, RoundLoader(*data))
            assert int(module.rounds) == 0


def test_a_module_of_ones_own_cannot_average_statistics() -> None:
    rows = DataLoader(torch.rand(8, 4), batch_size=2)
    for callback in callbacks_that_average():
        module = Hybrid()
        if getattr(callback, "_use_buffers", False):
            with pytest.raises(RuntimeError, match=r"^use_buffers: expected False"):
                trainer(callback).fit(module, rows)
            assert int(module.head.rounds) == 0
        else:
            trainer(callback).fit(module, rows)
            assert int(module.head.rounds) == 16
            policy: Any = module.head.policy.policy.estimator
            torch.testing.assert_close(policy.V @ policy.V_inv, torch.eye(DIM).double().expand(2, DIM, DIM))


def test_a_trainer_that_averages_may_test_and_predict() -> None:
    for callback in callbacks_that_average():
        trainer(callback).predict(NeuralLinearBandit(head()), RoundLoader(torch.rand(8, 4)))
