"""The curve of privacy: its points, its budget, and what it refuses."""

import math
from typing import Any

import numpy as np
import pytest

from torchonline import DPPOFW, DPTOFW


def after(steps: int, **options: Any) -> DPTOFW:
    learner = DPTOFW(2, horizon=50, epsilon=1.0, delta=1e-3, **options)
    for _ in range(steps):
        learner.step(None)
    return learner


def test_the_curve_is_what_was_spent_and_what_will_be() -> None:
    learner = after(20)
    figure, axes = learner.plot_privacy()
    made, planned, now, budget = axes.lines
    assert list(made.get_xdata()) == list(range(21))
    assert list(planned.get_xdata()) == list(range(20, 51))
    for step, epsilon in zip((1, 7, 20), np.array(made.get_ydata())[[1, 7, 20]], strict=True):
        assert epsilon == after(step).privacy_spent(1e-3)
    assert made.get_ydata()[0] == 0.0
    assert planned.get_ydata()[-1] == learner.privacy_ledger(steps=50).epsilon(1e-3)
    assert (now.get_xdata()[0], now.get_ydata()[0]) == (20, learner.privacy_spent(1e-3))
    assert list(budget.get_ydata()) == [1.0, 1.0]
    assert [text.get_text() for text in axes.texts] == ["budget: 1", f"spent: {learner.privacy_spent(1e-3):.3g}"]
    assert axes.get_ylabel() == "epsilon at delta = 0.001, replace_one"
    assert axes.get_title() == ""
    assert axes.figure is figure
    assert int(learner.rounds) == 20


def test_without_a_horizon_the_future_is_as_long_as_the_past() -> None:
    learner = DPTOFW(2, horizon=None, epsilon=1.0, delta=1e-3)
    assert learner.plot_privacy()[1].get_xlim() == (0.0, 128.0)
    for _ in range(100):
        learner.step(None)
    axes = learner.plot_privacy()[1]
    assert axes.get_xlim() == (0.0, 200.0)
    assert axes.lines[1].get_ydata()[-1] == learner.privacy_ledger(steps=200).epsilon(1e-3)


def test_another_delta_has_no_budget_and_runs_that_go_on_cost_more() -> None:
    learner = after(20)
    axes = learner.plot_privacy(delta=1e-5, continuations=2)[1]
    assert [text.get_text() for text in axes.texts] == [f"spent: {learner.privacy_spent(1e-5, continuations=2):.3g}"]


def test_a_seed_is_named_and_no_noise_refused() -> None:
    axes = after(20, seed=1).plot_privacy()[1]
    assert axes.get_title() == "if nobody knew the seed"
    assert math.isfinite(axes.lines[0].get_ydata()[-1])
    with pytest.raises(ValueError, match=r"^epsilon: expected a finite number, got inf"):
        DPPOFW(2, horizon=50, epsilon=math.inf, delta=1e-3).plot_privacy()
    with pytest.raises(ValueError, match=r"^delta: expected"):
        after(1).plot_privacy(delta=2.0)
    with pytest.raises(TypeError, match=r"^ax: expected .*, got 1e-05; if it is delta, plot_privacy\(delta=1e-05\)"):
        after(1).plot_privacy(1e-5)
