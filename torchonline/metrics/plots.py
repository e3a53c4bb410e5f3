"""Matplotlib, imported when a plot asks for it."""

from typing import Any


def axes_or_new(axes: Any = None) -> Any:
    """Return matplotlib axes, new ones for None, or raise without matplotlib."""
    if axes is not None:
        return axes
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("plot: expected matplotlib, got none; pip install matplotlib") from error
    return plt.subplots()[1]
