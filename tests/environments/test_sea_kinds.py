"""Streams with noise that depends on the point, in random order, and corrupted; and the metric that measures them."""

import copy
import io
import math
from typing import Any

import numpy as np
import pytest
import torch

from torchonline.environments import CorruptedStream, RandomOrderStream, SEAStream
from torchonline.metrics import StreamVariation

D = torch.float64


def line(stream: SEAStream, count: int = 401, reach: float = 3.0) -> torch.Tensor:
    """Points along the direction of the noise of this round, in the first trial, ``(count, d)``."""
    return torch.linspace(-reach, reach, count, dtype=D).unsqueeze(-1) * stream._across


@pytest.mark.fast
def test_noise_by_cells_is_that_of_proposition_a1() -> None:
    """At every point its mean square is sigma^2, while the mean of its largest square is n (1 - (1 - 1/n)^n) times that."""
    trials, rounds, cells, sigma = 400, 30, 8, 0.7
    stream = SEAStream(2, loss="huber", sigma=sigma, cells=cells, batch_shape=(trials,), seed=3)
    points = torch.tensor([[0.0, 0.0], [1.5, -0.3], [-0.2, 0.9]], dtype=D).expand(trials, 3, 2)
    squares, largest = torch.zeros(3, dtype=D), []
    for _ in range(rounds):
        noise = stream.gradients(points) - stream.expected_gradients(points)
        squares += noise.square().sum(-1).mean(0) / rounds
        along = torch.linspace(-3.0, 3.0, 201, dtype=D)[:, None, None] * stream._across
        everywhere = stream.gradients(along.movedim(0, 1)) - stream.expected_gradients(along.movedim(0, 1))
        largest.append(everywhere.square().sum(-1).amax(-1))
        stream.advance()
    spread = sigma**2 * math.sqrt(cells / (trials * rounds))  # of a square that is n sigma^2 once in n times
    assert (squares - sigma**2).abs().max() < 4.5 * spread
    found, expected = torch.cat(largest), float(stream.largest_variance()[0])
    assert math.isclose(expected, sigma**2 * cells * (1.0 - (1.0 - 1.0 / cells) ** cells))
    assert abs(float(found.mean()) - expected) < 4.5 * float(found.std()) / math.sqrt(len(found))
    assert math.isclose(float(stream.deviation()[0]), sigma / math.sqrt(cells))
    assert math.isclose(float(stream.variance()[0]), sigma**2)


@pytest.mark.parametrize("dim", [1, 3])
def test_noise_by_cells_has_the_gradient_that_it_says(dim: int) -> None:
    """Values and regret are integrals of the gradients: along a line their differences are those of the trapezoidal rule."""
    stream = SEAStream(dim, loss="logistic", sigma=2.0, cells=5, comparator_norm=1.5, seed=1)
    seen = 0
    for _ in range(6):
        points = line(stream, 20001, 4.0)
        slope = (stream.gradients(points) * stream._across).sum(-1)
        rises = 0.5 * (slope[1:] + slope[:-1]) * (8.0 / 20000)
        for values in (stream.values(points), stream.regret(points)):
            np.testing.assert_allclose(values - values[0], torch.cat([torch.zeros(1), rises.cumsum(0)]), atol=5e-3)
        noise = stream.values(points) - stream.expected_values(points)
        assert abs(float(noise[10000])) < 1e-12, "the noise is 0 at 0"
        assert abs(float(stream.regret(stream.comparator))) < 1e-12
        at_zero = (stream.gradients(points) - stream.expected_gradients(points))[10000]
        torch.testing.assert_close(stream.noise, at_zero, rtol=0.0, atol=1e-12)
        seen += len(
            torch.unique(
                ((stream.gradients(points) - stream.expected_gradients(points)).norm(dim=-1)).round(decimals=6)
            )
        )
        assert stream.gradients(points).norm(dim=-1).max() <= stream.lipschitz
        stream.advance()
    assert seen > 6, "some rounds have quiet and noisy cells"


def test_one_cell_is_the_stream_without_cells() -> None:
    one, other = SEAStream(3, cells=1, batch_shape=(2,)), SEAStream(3, batch_shape=(2,))
    for _ in range(5):
        assert torch.equal(one.noise, other.noise)
        assert torch.equal(one.gradients(one.comparator), other.gradients(one.comparator))
        one.advance()
        other.advance()
    assert repr(SEAStream(3, cells=4)) == "SEAStream(dim=3, cells=4)"


@pytest.mark.fast
def test_random_order_has_each_loss_once_a_pass_and_knows_what_is_left() -> None:
    count, trials = 6, 3
    stream = RandomOrderStream(2, losses=count, sigma=0.5, batch_shape=(trials,))
    before, x = torch.zeros(trials, 2, dtype=D), torch.randn(trials, 2, dtype=D)
    for _ in range(3):
        drawn, expected, variances = [], [], []
        for _ in range(count):
            drawn.append(stream.shift + stream.noise)
            expected.append(stream.shift)
            variances.append(stream.variance())
            step = stream.expected_gradients(x) - stream.expected_gradients(x, lag=1)
            torch.testing.assert_close(step, stream.shift - before, rtol=0.0, atol=1e-12)
            before = stream.shift
            stream.advance()
        rows = torch.stack(drawn)
        assert rows.sum(0).norm() < 1e-12
        torch.testing.assert_close(rows.norm(dim=-1), torch.full((count, trials), 0.5, dtype=D))
        for t in range(count):
            torch.testing.assert_close(expected[t], rows[t:].mean(0), rtol=0.0, atol=1e-12)
            spread = (rows[t:] - rows[t:].mean(0)).square().sum(-1).mean(0)
            torch.testing.assert_close(variances[t], spread, rtol=0.0, atol=1e-12)
    assert float(stream.expected_regret(stream.comparator).abs().max()) == 0.0


def test_random_order_is_random_and_its_drift_does_not_grow_with_a_pass() -> None:
    sums = []
    for count in (64, 1024):
        stream = RandomOrderStream(3, losses=count, sigma=1.0, batch_shape=(20,))
        metric = StreamVariation((20,))
        for _ in range(count):
            metric.update(stream, torch.zeros(20, 3))
            stream.advance()
        sums.append(metric.compute())
    assert all(float(found["drift"]) < 8.0 for found in sums)
    assert float(sums[1]["drift"]) < 1.2 * float(sums[0]["drift"]) + 0.5
    assert 0.95 * 1024 < float(sums[1]["variance"]) < 1024


@pytest.mark.fast
def test_corruptions_come_when_they_should_and_cancel() -> None:
    stream, metric = CorruptedStream(2, corruption=0.8, spacing=4, sigma=0.3, comparator_norm=2.0), StreamVariation()
    total, x = torch.zeros(2, dtype=D), torch.zeros(2, dtype=D)
    for t in range(16):
        corrupted = t % 4 == 3
        assert math.isclose(float(stream.shift.norm()), 0.8 if corrupted else 0.0)
        total += stream.shift
        metric.update(stream, x)
        if t == 3:
            assert float(stream.shift @ stream.comparator) > 0.0, "the loss falls away from the comparator"
        assert float(stream.gradients(x).norm()) <= stream.lipschitz
        stream.advance()
    assert total.norm() < 1e-12
    found = metric.compute()
    assert math.isclose(float(found["drift"]), 7 * 0.64)  # the round after the last one has not come
    assert math.isclose(float(found["variance"]), 16 * 0.09)


@pytest.mark.fast
def test_variation_of_a_stream_against_numpy() -> None:
    stream = SEAStream(3, loss="quadratic", sigma=0.4, drift=0.2, cells=3, batch_shape=(4,), period=5)
    metric, rng, rows = StreamVariation((4,), points=6), np.random.default_rng(0), []
    for _ in range(12):
        points = torch.from_numpy(rng.standard_normal((4, 6, 3)))
        g, F, old = (
            np.asarray(each)
            for each in (
                stream.gradients(points),
                stream.expected_gradients(points),
                stream.expected_gradients(points, 1),
            )
        )
        rows.append((np.linalg.norm(g - F, axis=-1), np.linalg.norm(F - old, axis=-1), np.linalg.norm(F, axis=-1)))
        metric.update(stream, points.requires_grad_())
        stream.advance()
    noise, drift, length = (np.stack(each) for each in zip(*rows, strict=True))
    expected = {
        "variance": (noise**2).sum(0).mean(0).max(),
        "largest_variance": (noise**2).max(-1).sum(0).mean(),
        "deviation": noise.sum(0).mean(0).max(),
        "drift": (drift**2).max(-1).sum(0).mean(),
        "gradients": length.max(-1).sum(0).mean(),
    }
    found = metric.compute()
    assert list(found) == list(expected)
    for name, value in expected.items():
        assert math.isclose(float(found[name]), value, rel_tol=1e-12), name
    file = io.BytesIO()
    torch.save(metric.state_dict(), file)
    file.seek(0)
    other = StreamVariation((4,), points=6)
    other.load_state_dict(torch.load(file))
    assert all(torch.equal(other.compute()[name], found[name]) for name in found)
    other.reset()
    assert not any(bool(state.any()) for state in other.metric_state.values())
    assert repr(other) == "StreamVariation(batch_shape=(4,), points=6)"


def test_bad_points_and_options_are_refused_by_name() -> None:
    stream, metric = SEAStream(3, batch_shape=(2,)), StreamVariation((2,), points=4)
    before = copy.deepcopy(metric.metric_state)
    for points, error, text in [
        (torch.zeros(2, 3), ValueError, r"points: expected shape \(2, 4, 3\), got \(2, 3\)"),
        (torch.zeros(2, 5, 3), ValueError, r"points: expected shape \(2, 4, 3\), got \(2, 5, 3\)"),
        (torch.full((2, 4, 3), torch.nan), ValueError, "points: expected finite values, got nan"),
        (torch.zeros(2, 4, 3).long(), TypeError, "points: expected a floating-point tensor"),
    ]:
        with pytest.raises(error, match=text):
            metric.update(stream, points)
    stream.gradients = lambda points: torch.zeros(2, 4, 1)  # type: ignore[method-assign]
    with pytest.raises(ValueError, match=r"gradients of the stream: expected shape \(2, 4, 3\), got \(2, 4, 1\)"):
        metric.update(stream, torch.zeros(2, 4, 3))
    assert all(torch.equal(before[name], value) for name, value in metric.metric_state.items())
    assert bool(SEAStream(3, cells=4).gradients(torch.full((3,), torch.nan).double()).isnan().all())
    bad: list[tuple[Any, dict[str, Any], str]] = [
        (SEAStream, {"cells": 0}, "cells: expected"),
        (RandomOrderStream, {"losses": 3}, "losses: expected an even number, got 3"),
        (CorruptedStream, {"corruption": -1.0, "spacing": 2}, "corruption: expected"),
        (CorruptedStream, {"corruption": 1.0, "spacing": 0}, "spacing: expected"),
    ]
    for cls, options, text in bad:
        with pytest.raises(ValueError, match=text):
            cls(3, **options)
    with pytest.raises(ValueError, match="points: expected"):
        StreamVariation(points=0)
