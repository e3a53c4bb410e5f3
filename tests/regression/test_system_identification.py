"""SystemIdentification against dense sums, its likeness to HeavyTailRegression, and what it promises on a stable system."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.learners import by_name, close, differences, snapshot
from tests.reference.system_identification import SystemIdentificationReference
from torchonline import UCB, HeavyTailRegression, RidgeRegression, SystemIdentification
from torchonline.environments import GaussianNoise, Noise, StudentT

D = torch.float64
OPTIONS: dict[str, dict[str, Any]] = {
    "default": {},
    "infinite variance": {"moment_order": 1.5},
    "all": {
        "moment_order": 1.1,
        "noise_scale": (0.2, 3.0, 1.0),
        "theta_bound": [0.3, 2.0, 5.0],
        "ridge": 0.1,
        "delta": 0.1,
        "radius_scale": 0.1,
    },
    "unlike outputs": {"noise_scale": (1e-3, 1e3, 1.0), "theta_bound": (1.0, 1e-2, 30.0)},
}


def transitions(dim: int, rounds: int = 300) -> list[tuple[np.ndarray, np.ndarray, np.ndarray | None]]:
    """Features of many sizes, zero rows, three outputs with heavy tails and outliers, noise scales now and then."""
    random = np.random.default_rng(dim)
    data = []
    for t in range(rounds):
        x = random.standard_normal(dim) * 10.0 ** random.uniform(-1.5, 0.5)
        if t % 29 == 7:
            x[:] = 0.0
        y = 0.5 * random.standard_t(2.1, 3)
        if t % 41 == 11:
            y[t % 3] = random.choice([-1e9, 1e9])
        data.append((x, y, random.choice([0.0, 0.1, 1.0, 3.0], 3) if t % 3 == 0 else None))
    return data


@pytest.mark.parametrize("dim", [1, 3, 8])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_agrees_with_reference(dim: int, options: dict[str, Any]) -> None:
    learner, reference = SystemIdentification(dim, 3, **options), SystemIdentificationReference(dim, 3, **options)
    batched = SystemIdentification(dim, 3, batch_shape=(2,), **options)
    probes = np.random.default_rng(0).standard_normal((4, dim))

    def near(seen: Tensor, expected: np.ndarray) -> None:
        # The outputs differ in size by their units.
        size = np.maximum(1.0, np.abs(expected).max(0))
        np.testing.assert_allclose(seen.numpy() / size, expected / size, rtol=1e-9, atol=1e-9)

    for t, (x, y, noise_scale) in enumerate(transitions(dim)):
        arguments = [None if value is None else torch.from_numpy(value) for value in (x, y, noise_scale)]
        by_name(learner.step, *arguments)
        by_name(batched.step, *(None if value is None else value.expand(2, -1) for value in arguments))
        reference.step(x, y, noise_scale)
        np.testing.assert_allclose(learner.radius().numpy(), reference.radius(), rtol=1e-9)
        near(learner.theta_hat, reference.theta)
        if t % 5:
            continue
        seen = torch.from_numpy(probes)
        near(learner(seen), probes @ reference.theta)
        np.testing.assert_allclose(learner.width(seen).numpy(), reference.width(probes), rtol=1e-9)
        for end, expected in zip(learner.interval(seen), reference.interval(probes), strict=True):
            near(end, expected)
        np.testing.assert_allclose(learner.smallest_eigenvalue(), np.linalg.eigvalsh(reference.V)[0], rtol=1e-9)
        bound = reference.radius() * math.sqrt(np.linalg.eigvalsh(reference.P)[-1])
        np.testing.assert_allclose(learner.error_bound(), bound, rtol=1e-9)
    for name, value in snapshot(learner).items():
        close(snapshot(batched)[name] if name == "constants" else snapshot(batched)[name][1], value)


@pytest.mark.parametrize("moment_order", [2.0, 1.5])
@pytest.mark.parametrize("noise_scale", [1.0, 0.3])
def test_one_output_is_heavy_tail_regression(moment_order: float, noise_scale: float) -> None:
    """The same intervals and state; V and A count in noise scales, P and the radius in units of the output."""
    options = {"moment_order": moment_order, "noise_scale": noise_scale, "theta_bound": 0.7}
    system, regression = SystemIdentification(3, 1, **options), HeavyTailRegression(3, **options)
    for _ in range(300):
        x, y = torch.randn(3, dtype=D), torch.randn((), dtype=D) ** 3
        scale = noise_scale * torch.rand((), dtype=D) if noise_scale == 1.0 else None
        system.step(x, y[None], noise_scale=None if scale is None else scale[None])
        regression.step(x, y, noise_scale=scale)
    probes = torch.randn(5, 3, dtype=D)
    close(system(probes)[:, 0], regression(probes), 1e-10)
    for end, expected in zip(system.interval(probes), regression.interval(probes), strict=True):
        close(end[:, 0], expected, 1e-10)
    close(system.radius()[0], noise_scale * regression.radius(), 1e-10)
    for name, unit in {"V": 2, "A": 2, "V_inv": -2, "A_inv": -2, "P": -2, "logdet": 0, "bias": 0}.items():
        close(getattr(system, name), noise_scale**unit * getattr(regression, name), 1e-10)


def learnt(rounds: int = 200, **options: Any) -> SystemIdentification:
    """A learner of two outputs after ordinary rounds."""
    generator = torch.Generator().manual_seed(1)
    learner = SystemIdentification(3, 2, **options)
    scale = torch.tensor(options.get("noise_scale", (1.0, 1.0)), dtype=D)
    x, y = (torch.randn(rounds, size, generator=generator, dtype=D) for size in (3, 2))
    learner.step(x, y * scale)
    return learner


def test_starts_from_the_prior() -> None:
    """Ridge d / max (S / nu)^2; each radius nu sqrt(2 log(n / delta) + ridge S^2 / nu^2); width ||x|| / sqrt(ridge)."""
    learner = SystemIdentification(4, 2, noise_scale=(0.5, 2.0), theta_bound=(1.0, 2.0), delta=0.05)
    assert learner.ridge == 1.0
    log = 2.0 * math.log(2 / 0.05)
    close(learner.radius(), torch.tensor([0.5 * math.sqrt(log + 4.0), 2.0 * math.sqrt(log + 1.0)], dtype=D))
    x = torch.randn(5, 4, dtype=D)
    close(learner.width(x), x.norm(dim=-1))
    assert not learner(x).any()
    assert learner.smallest_eigenvalue() == 1.0
    close(learner.error_bound(), learner.radius())


@pytest.mark.parametrize("moment_order", [2.0, 1.5])
def test_an_output_has_no_unit(moment_order: float) -> None:
    """An output, its noise and its bound c times as large: its column, radius and interval c times, all else as it was."""
    c = torch.tensor([2.0**20, 2.0**-15], dtype=D)
    one = learnt(moment_order=moment_order)
    other = learnt(moment_order=moment_order, noise_scale=tuple(c.tolist()), theta_bound=tuple(c.tolist()))
    for name, value in snapshot(one).items():
        if name == "theta_hat":
            value = c * value
        if name not in ("noise_scale", "theta_bound", "constants"):
            close(snapshot(other)[name], value)
    close(other.radius() / c, one.radius())
    x = torch.randn(4, 3, dtype=D)
    for end, expected in zip(other.interval(x), one.interval(x), strict=True):
        close(end / c, expected)


def test_the_order_of_outputs_does_not_matter() -> None:
    noise_scale, theta_bound = (0.5, 2.0), (1.0, 3.0)
    one = SystemIdentification(3, 2, noise_scale=noise_scale, theta_bound=theta_bound)
    other = SystemIdentification(3, 2, noise_scale=noise_scale[::-1], theta_bound=theta_bound[::-1])
    for _ in range(100):
        x, y = torch.randn(3, dtype=D), torch.randn(2, dtype=D)
        one.step(x, y)
        other.step(x, y.flip(0))
    close(other.theta_hat.flip(-1), one.theta_hat)
    close(other.radius().flip(-1), one.radius())
    close(other.P, one.P)


@pytest.mark.parametrize("moment_order", [2.0, 1.5])
@pytest.mark.parametrize("batch_shape", [(), (2,)])
def test_an_outlier_in_one_output_leaves_the_others_alone(moment_order: float, batch_shape: tuple[int, ...]) -> None:
    """Past the clip level its size no longer matters, and the other columns do not move for it at all."""
    learners = []
    for outlier in (0.0, 1e7, 1e9, 1e100):
        learner = SystemIdentification(3, 2, moment_order=moment_order, batch_shape=batch_shape)
        generator = torch.Generator().manual_seed(1)
        for t in range(200):
            x, y = (torch.randn(*batch_shape, size, generator=generator, dtype=D) for size in (3, 2))
            if t == 150:
                y[..., 0] = outlier
            learner.step(x, y)
            if t == 150:
                learners.append((snapshot(learner), learner.error_bound()))
    (calm, before), *shaken = learners
    for state, bound in shaken:
        for name, value in shaken[0][0].items():
            close(state[name], value)
        assert torch.equal(state["theta_hat"][..., 1], calm["theta_hat"][..., 1])
        assert 1e-3 < (state["theta_hat"] - calm["theta_hat"]).abs().max() < 1.0
        assert bool((bound > before).all())
        close(state["V"] @ state["V_inv"], torch.eye(3, dtype=D).expand_as(state["V"]))


def test_the_radius_never_shrinks_and_the_matrices_belong_together() -> None:
    learner = SystemIdentification(3, 2, noise_scale=(0.1, 5.0))
    last = learner.radius()
    for _ in range(300):
        learner.step(torch.randn(3, dtype=D), torch.randn(2, dtype=D) / torch.rand((), dtype=D))
        radius = learner.radius()
        assert bool((radius >= last).all())
        last = radius
    inverse = torch.linalg.inv(learner.V)
    close(learner.V_inv, inverse)
    close(learner.P, inverse @ learner.A @ inverse)
    close(learner.logdet, (learner.A / learner.ridge).logdet())


def test_the_noisiest_output_of_a_round_counts() -> None:
    """A round's own noise scales: the largest, in units of the constructor's, weighs it."""
    quiet, loud, both = learnt(), learnt(), learnt()
    x, y = torch.ones(3, dtype=D), torch.zeros(2, dtype=D)
    quiet.step(x, y, noise_scale=torch.tensor([1.0, 1.0]))
    loud.step(x, y, noise_scale=torch.tensor([1.0, 9.0]))
    both.step(x, y, noise_scale=torch.tensor([9.0, 9.0]))
    assert quiet.width(x) < loud.width(x)
    assert differences(snapshot(loud), snapshot(both)) == []


# A stable system of four states and one input: A has spectral radius 0.89.
THETA = torch.tensor(
    [
        [0.8, -0.4, 0.1, 0.0, 1.0],
        [0.4, 0.8, 0.0, 0.1, 0.0],
        [0.0, 0.1, 0.5, -0.3, 0.5],
        [0.1, 0.0, 0.3, 0.5, 0.5],
    ],
    dtype=D,
).T
RUNS, DELTA = 500, 0.05


def stream(noise: Noise, rounds: int, runs: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Features, the state with a random input, and the next state, of independent runs."""
    generator = torch.Generator().manual_seed(seed)
    state = torch.zeros(runs, 4, dtype=D)
    for _ in range(rounds):
        x = torch.cat([state, 3.0 * torch.randn(runs, 1, generator=generator, dtype=D)], -1)
        state = x @ THETA + noise.sample((runs, 4), generator)
        yield x, state


def misses(noise: Noise, order: float, rounds: int = 1000, **options: Any) -> Tensor:
    """Which columns' sets ever lost the truth, in each of 500 runs: ``(500, 4)``."""
    options = {"noise_scale": noise.moment_norm(order), "theta_bound": 1.5, "delta": DELTA} | options
    learner = SystemIdentification(5, 4, moment_order=order, batch_shape=(RUNS,), **options)
    # The set holds before the first round, or what follows would prove nothing.
    assert bool((THETA.norm(dim=0) <= learner.error_bound()).all())
    missed = torch.zeros(RUNS, 4, dtype=torch.bool)
    for t, (x, state) in enumerate(stream(noise, rounds, RUNS, seed=1)):
        learner.step(x, state)
        difference = learner.theta_hat - THETA
        # The norm of V (theta_hat - theta) in A^-1, which the theorem bounds by the radius.
        moved = learner.V @ difference
        inside = (moved * (learner.A_inv @ moved)).sum(-2).sqrt() <= learner.radius()
        missed |= ~inside
        if t % 100 == 0:
            # What error_bound says holds wherever the set does.
            assert bool((difference.norm(dim=-2) <= learner.error_bound())[inside].all())
    return missed


def limit(delta: float) -> float:
    """Three standard deviations above ``delta``, as a share of the runs."""
    return delta + 3.0 * math.sqrt(delta * (1.0 - delta) / RUNS)


@pytest.mark.parametrize(("df", "order"), [(2.1, 2.0), (1.5, 1.4)])
def test_every_column_is_covered(df: float, order: float) -> None:
    """Each column is lost in at most delta / 4 of the runs, and any column in at most delta of them."""
    missed = misses(StudentT(df), order)
    assert bool((missed.double().mean(0) <= limit(DELTA / 4)).all()), missed.sum(0)
    assert missed.any(-1).double().mean() <= limit(DELTA), missed.sum(0)


def test_a_third_of_the_radius_is_seen_to_be_too_little() -> None:
    missed = misses(GaussianNoise(), 2.0, radius_scale=1.0 / 3.0, theta_bound=3.0)
    assert missed.any(-1).double().mean() > limit(DELTA), missed.sum(0)


def test_least_squares_is_seen_to_break_its_promise() -> None:
    """The same streams, the standard deviation for a sub-Gaussian scale, delta / 4 for each column."""
    noise = StudentT(2.1)
    learner = RidgeRegression(
        5, noise_scale=noise.moment_norm(2.0), theta_bound=1.5, delta=DELTA / 4, batch_shape=(RUNS, 4)
    )
    missed = torch.zeros(RUNS, 4, dtype=torch.bool)
    for x, state in stream(noise, 300, RUNS, seed=1):
        learner.step(x.unsqueeze(-2).expand(RUNS, 4, 5), state)
        difference = (learner.theta_hat - THETA.T).unsqueeze(-1)
        missed |= ~((difference.mT @ learner.V @ difference).squeeze((-2, -1)).sqrt() <= learner.radius())
    assert missed.any(-1).double().mean() > limit(DELTA), missed.sum(0)


def test_the_error_falls_as_one_over_root_t() -> None:
    """From 2500 to 10000 rounds, mean over 64 runs: a slope of -1/2 to within 0.1, and the proved bound falls with it."""
    noise = StudentT(2.1)
    learner = SystemIdentification(5, 4, noise_scale=noise.moment_norm(2.0), theta_bound=1.5, batch_shape=(64,))
    errors, bounds, eigenvalues = [], [], []
    for t, (x, state) in enumerate(stream(noise, 10_000, 64, seed=2), start=1):
        learner.step(x, state)
        if t in (2500, 10_000):
            errors.append((learner.theta_hat - THETA).square().sum((-2, -1)).sqrt().mean())
            bounds.append(learner.error_bound().mean())
            eigenvalues.append(learner.smallest_eigenvalue().mean())
    slopes = [math.log(late / early) / math.log(4.0) for early, late in (errors, bounds, eigenvalues)]
    assert slopes[0] == pytest.approx(-0.5, abs=0.1)
    assert slopes[1] == pytest.approx(-0.5, abs=0.15)
    # The noise and the input excite every direction, and rounds weigh more as the predictions improve.
    assert 0.9 < slopes[2] < 1.5, slopes


def test_torch_export_learns_and_predicts() -> None:
    """A program that learns from one transition and predicts from many: the same as eager."""

    class Step(nn.Module):
        def __init__(self, learner: SystemIdentification) -> None:
            super().__init__()
            self.learner = learner

        def forward(self, x: Tensor, next_state: Tensor, ahead: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            with torch.no_grad():
                self.learner.step(x, next_state)
                lower, upper = self.learner.interval(ahead)
                return self.learner(ahead), lower, upper

    for batch_shape in ((), (2,)):

        def build(batch_shape: tuple[int, ...] = batch_shape) -> SystemIdentification:
            return SystemIdentification(3, 2, noise_scale=(0.5, 2.0), batch_shape=batch_shape)

        def round_(batch_shape: tuple[int, ...] = batch_shape) -> tuple[Tensor, ...]:
            return tuple(torch.randn(*batch_shape, *shape, dtype=D) for shape in ((3,), (2,), (5, 3)))

        program = torch.export.export(Step(build()), round_(), strict=False).module()
        eager = Step(build())
        for _ in range(50):
            arguments = round_()
            for theirs, ours in zip(program(*arguments), eager(*arguments), strict=True):
                close(theirs, ours)


@pytest.mark.parametrize("batch_shape", [(), (2,)])
def test_script_has_all_methods(batch_shape: tuple[int, ...]) -> None:
    learner = learnt()
    if batch_shape:
        learner = SystemIdentification(3, 2, batch_shape=batch_shape)
        learner.step(torch.randn(2, 50, 3, dtype=D), torch.randn(2, 50, 2, dtype=D))
    scripted = torch.jit.script(learner)
    for name in ("radius", "error_bound", "smallest_eigenvalue"):
        close(getattr(scripted, name)(), getattr(learner, name)())


def test_options_of_one_number_or_one_for_each() -> None:
    one, each = SystemIdentification(2, 3, noise_scale=2), SystemIdentification(2, 3, noise_scale=[2, 2.0, 2])
    assert differences(snapshot(one), snapshot(each)) == []
    for name in ("noise_scale", "theta_bound"):
        for bad, error in (
            ((1.0, 2.0), ValueError),
            ((1.0, 2.0, 0.0), ValueError),
            ((1.0, 2.0, -1.0), ValueError),
            ((1.0, 2.0, math.nan), ValueError),
            ((1.0, 2.0, "3"), TypeError),
            ("123", TypeError),
            (torch.ones(3), TypeError),
            (0.0, ValueError),
        ):
            with pytest.raises(error, match=f"^{name}: expected "):
                SystemIdentification(2, 3, **{name: bad})
    with pytest.raises(ValueError, match=r"^theta_bound / noise_scale: expected a magnitude"):
        SystemIdentification(2, 1, noise_scale=1e-30, theta_bound=1e30)
    with pytest.raises(ValueError, match=r"^noise_scale: expected from .* for torch.float32, got 1e-20"):
        SystemIdentification(2, 1, noise_scale=1e-20, theta_bound=1e-20, dtype=torch.float32)


def test_a_state_certified_otherwise_is_refused() -> None:
    """Each output's noise scale and bound have shaped every weight."""
    state = learnt(noise_scale=(1.0, 2.0)).state_dict()
    for name, value in {"noise_scale": (1.0, 2.5), "theta_bound": (1.0, 0.5), "delta": 0.5, "ridge": 1.0}.items():
        other = SystemIdentification(3, 2, **{"noise_scale": (1.0, 2.0)} | {name: value})
        before = snapshot(other)
        with pytest.raises(RuntimeError, match=name):
            other.load_state_dict(state)
        assert differences(before, snapshot(other)) == []


def test_single_precision_follows_double_on_the_system() -> None:
    noise = StudentT(2.1)
    single, double = (
        SystemIdentification(5, 4, noise_scale=noise.moment_norm(2.0), theta_bound=1.5, dtype=dtype)
        for dtype in (torch.float32, D)
    )
    for x, state in stream(noise, 2000, 1, seed=3):
        for learner in (single, double):
            learner.step(x[0], state[0])
    for name in ("theta_hat", "P", "V_inv"):
        expected = getattr(double, name)
        assert (getattr(single, name).double() - expected).abs().max() < 5e-3 * expected.abs().max(), name
    close(single.error_bound().double(), double.error_bound(), 5e-3)


def test_no_policy_stands_on_several_outputs() -> None:
    with pytest.raises(
        TypeError, match="estimator: expected an Estimator or a number of features, got SystemIdentification"
    ):
        UCB(SystemIdentification(2, 2))
