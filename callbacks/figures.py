"""Figures for the loggers that take them."""

from collections.abc import Callable
from typing import Any

import pytorch_lightning as pl

from torchonline.core.figures import axes_of_figure


def log_figure(trainer: pl.Trainer, name: str, draw: Callable[[Any], Any], step: int) -> None:
    """Give a figure to the loggers with ``add_figure``, as TensorBoard's has.

    ``draw`` gets matplotlib axes. Other loggers get nothing, and without matplotlib none does.
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
        draw(axes)
        add_figure(name, axes.figure, global_step=step)
