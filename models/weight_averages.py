"""Check against callbacks that average the weights of an online learner."""

from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.trainer.states import TrainerFn

# WeightAveraging, the base class of EMAWeightAveraging, exists since Lightning 2.6.
_NAMES = ("WeightAveraging", "StochasticWeightAveraging")
AVERAGING = tuple(getattr(pl.callbacks, name) for name in _NAMES if hasattr(pl.callbacks, name))


def refuse_weight_averages(module: pl.LightningModule) -> None:
    """Raise if the trainer of a fit has a callback that averages weights.

    A learner's statistics describe one encoder and all rounds. Such a callback averages them, restores the statistics of its last
    update, or averages the encoder that the statistics belong to.
    """
    trainer: Any = module._trainer
    if trainer is None or trainer.state.fn != TrainerFn.FITTING:
        return
    for callback in trainer.callbacks:
        if isinstance(callback, AVERAGING):
            name = type(module).__name__
            raise RuntimeError(
                f"callbacks: expected no averaging of the weights of a {name}, got {type(callback).__name__}: statistics "
                "cannot be averaged, and belong to the encoder that they were learnt with"
            )
