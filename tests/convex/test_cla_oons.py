"""CLA-OONS: trajectories and new starts as the reference's, where neither the comparator nor gradients are bounded by much."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tests.reference.cla_oons import CLAOONSReference
from torchonline import CLAOONS, ParameterFree
from torchonline.environments import SEAStream


def slopes(x: np.ndarray, t: int, size: float) -> np.ndarray:
    """Of losses that are lowest at (6, -8), and a hundred times as large from the fiftieth round on."""
    rng = np.random.default_rng(t)
    off = x - np.array([6.0, -8.0]) + rng.standard_normal(2)
    return size * (1.0 if t < 50 else 100.0) * off / np.sqrt(1.0 + off @ off)


@pytest.mark.parametrize("gradient_scale", [1.0, 1e-3, 50.0, None])
@pytest.mark.parametrize("preset", ["default", "paper"])
def test_trajectories(preset: str, gradient_scale: float | None) -> None:
    for length_scale, size in ((1.0, 1.0), (0.3, 2.0)):
        options: dict[str, Any] = {"gradient_scale": gradient_scale, "length_scale": length_scale, "preset": preset}
        learner, sketch = CLAOONS(2, **options), CLAOONS(2, form="sketch", sketch_size=2, **options)
        reference, cut = CLAOONSReference(2, **options), 0
        for t in range(150):
            x = reference.play()
            for each, rounding in ((learner, 1e-9), (sketch, 1e-7)):
                np.testing.assert_allclose(each.predict().numpy(), x, rtol=rounding, atol=rounding)
                assert float(each.predict().norm()) <= float(each.radius) * (1.0 + 1e-12)
            gradient = slopes(x, t, size) if t > 2 else np.zeros(2)
            known = reference.B
            reference.learn(gradient)
            cut += known < reference.B
            learner.step(torch.from_numpy(gradient))
            sketch.step(torch.from_numpy(gradient))
            assert int(learner.restart_count) == reference.resets
            np.testing.assert_allclose(
                [float(learner.radius), float(learner.error_bound)], [reference.D, reference.B], rtol=1e-12
            )
        assert int(learner.clipped_rounds) == cut
        assert reference.resets >= 2
        assert cut >= 1 or gradient_scale == 50.0


def test_radius_follows_the_progress() -> None:
    """``D_T <= max(D_1, 2 D_1 sqrt(S_T))``, with S at most T."""
    learner = CLAOONS(1)
    for t in range(400):
        learner.step(torch.tensor([-1.0 - t % 3]))
        total, radius = float(learner.relative_norm_sum), float(learner.radius)
        assert total <= (t + 1) * (1.0 + 1e-12)
        # Where the radius has just been set, it is one of the two but for rounding.
        assert total**0.5 <= radius * (1.0 + 1e-12)
        assert radius <= max(1.0, 2.0 * total**0.5) * (1.0 + 1e-12)
    assert int(learner.restart_count) == 4


def test_without_a_scale_nothing_is_played_until_there_is_one() -> None:
    learner = CLAOONS(2, gradient_scale=None, batch_shape=(2,))
    for _ in range(3):
        learner.step(torch.zeros(2, 2))
        assert not learner.predict().any()
    learner.step(torch.tensor([[0.0, 0.0], [3e-5, 4e-5]]))
    assert learner.error_bound.tolist() == pytest.approx([0.0, 5e-5])
    assert not learner.centre.any()  # that gradient is a hint, and not learnt from
    assert not learner.predict()[0].any()
    assert learner.predict()[1].any()


def test_scale_of_the_losses() -> None:
    """Of no matter without a scale, or with one that follows, but to the paper's ridge; the first radius is a unit of length."""

    def played(preset: str, scale: float | None, size: float, unit: float) -> np.ndarray:
        learner, rows = CLAOONS(2, gradient_scale=scale, length_scale=unit, preset=preset), []
        for t in range(100):
            rows.append(learner.predict().numpy() / unit)
            learner.step(torch.from_numpy(slopes(rows[-1], t, size / unit)))
        return np.stack(rows)

    for size, unit in ((3.0, 1.0), (1e-5, 1.0), (1.0, 7.0)):
        for scale in (None, 1.0):
            follows = None if scale is None else scale * size / unit
            change = np.abs(played("default", follows, size, unit) - played("default", scale, 1.0, 1.0)).max()
            assert change < 1e-10
        assert np.abs(played("paper", None, size, unit) - played("paper", None, 1.0, 1.0)).max() > 1e-2


def test_a_scale_that_is_told_wrong_costs_much_and_the_default_does_not() -> None:
    """With gradients of a ten-thousandth, a learner told 1 stays nearly still; the default cannot tell."""

    def regret(factor: float, **options: Any) -> float:
        stream, learner = SEAStream(3, loss="huber", sigma=0.3, comparator_norm=5.0, seed=2), CLAOONS(3, **options)
        total = 0.0
        for _ in range(300):
            total += float(stream.expected_regret(learner.predict()))
            learner.step(factor * stream.gradients(learner.predict()))
            stream.advance()
        return total

    usual = regret(1.0)
    assert regret(1e-4) == pytest.approx(usual, rel=1e-6)
    assert regret(1e-60) == pytest.approx(usual, rel=1e-6)
    assert regret(1e-4, gradient_scale=1.0) > 3.0 * usual
    assert regret(1e-4, gradient_scale=1e-4) < 1.5 * usual


def test_a_state_of_the_former_default_is_refused_by_name() -> None:
    """It loads where the scale is told as it was."""
    learner = CLAOONS(2, gradient_scale=1.0)
    learner.step(torch.ones(2))
    assert CLAOONS(2).gradient_scale is None
    CLAOONS(2, gradient_scale=1.0).load_state_dict(learner.state_dict())
    with pytest.raises(RuntimeError, match=r"gradient_scale: the state was learnt with 1, this learner has None"):
        CLAOONS(2).load_state_dict(learner.state_dict())
    former = ParameterFree([nn.Parameter(torch.zeros(2))], learner="cla", gradient_scale=1.0)
    ParameterFree([nn.Parameter(torch.zeros(2))], learner="cla", gradient_scale=1.0).load_state_dict(
        former.state_dict()
    )
    with pytest.raises(
        ValueError, match=r"gradient_scale: the state of group 0 was learnt with 1.0, this one has None"
    ):
        ParameterFree([nn.Parameter(torch.zeros(2))], learner="cla").load_state_dict(former.state_dict())


def test_radius_is_within_the_form_of_the_paper() -> None:
    """Of each trial: ``D_T <= l max{1, 2 sqrt(sum |g_t| / z_1)}``, whose mean equation (9) bounds."""
    stream, learner = (
        SEAStream(3, loss="huber", sigma=0.8, batch_shape=(50,)),
        CLAOONS(3, length_scale=0.5, batch_shape=(50,)),
    )
    first, total = None, torch.zeros(50, dtype=torch.float64)
    for _ in range(200):
        gradients = stream.gradients(learner.predict())
        first = gradients.norm(dim=-1) if first is None else first
        total += gradients.norm(dim=-1)
        learner.step(gradients)
        stream.advance()
    assert (learner.radius <= 0.5 * (2.0 * (total / first).sqrt()).clamp(min=1.0) * (1.0 + 1e-12)).all()
    # The noise is 0.8 long and an expected gradient at most 1.
    bound = 0.5 * (1.0 + 2.0 * (200 * 1.8 / first).sqrt())
    assert float(learner.radius.mean()) <= float(bound.mean())
