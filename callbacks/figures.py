"""Figures for loggers that accept them."""

import warnings
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import pytorch_lightning as pl

from torchonline.core.axes import axes_of_figure

# Names of failed figures, by trainer.
_FAILED: WeakKeyDictionary[pl.Trainer, set[str]] = WeakKeyDictionary()


def log_figure(trainer: pl.Trainer, name: str, draw: Callable[[Any], Any], step: int) -> None:
    """Log a figure to all loggers with ``add_figure``, such as TensorBoard's.

    ``draw`` gets matplotlib axes. Without matplotlib this is a no-op. An error in drawing or logging warns once for each name and
    trainer, and the fit continues.
    """
    if not trainer.is_global_zero:
        return
    experiments = [getattr(logger, "experiment", None) for logger in trainer.loggers]
    writers = [getattr(experiment, "add_figure", None) for experiment in experiments]
    for add_figure in filter(None, writers):
        try:
            axes = axes_of_figure()
        except ImportError:
            return
        try:
            draw(axes)
            add_figure(name, axes.figure, global_step=step)
        except Exception as error:
            failed = _FAILED.setdefault(trainer, set())
            if name not in failed:
                failed.add(name)
                warnings.warn(f"{name}: the figure failed, and the fit continues: {error!r}", stacklevel=2)
