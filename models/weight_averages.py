"""Refusal of callbacks that average the weights of a module that learns online."""

from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.trainer.states import TrainerFn

# WeightAveraging, of which EMAWeightAveraging is one, came with Lightning 2.6.
_NAMES = ("WeightAveraging", "StochasticWeightAveraging")
AVERAGING = tuple(getattr(pl.callbacks, name) for name in _NAMES if hasattr(pl.callbacks, name))


def refuse_weight_averages(module: pl.LightningModule) -> None:
    """Raise if the trainer of a fit has a callback that averages weights.

    Statistics are those of one encoder and of all rounds. Such a callback averages them, or puts back those of its last update,
    or averages the encoder that the statistics have seen.
    """
    trainer: Any = module._trainer
    if trainer is None or trainer.state.fn != TrainerFn.FITTING:
        return
    for callback in trainer.callbacks:
        if isinstance(callback, AVERAGING):
            name = type(module).__name__
            raise RuntimeError(
                f"callbacks: expected none that averages the weights of a {name}, got {type(callback).__name__}: statistics "
                "have no average, and belong to the encoder that they were learnt with"
            )
