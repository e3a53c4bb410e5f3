"""The multinomial logistic bandit: against NumPy, against its binary case, what its radius promises, and its contract."""

import copy
import functools
import math
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.bad_arguments import BAD_OPTIONS, complaint, no_floats, no_values, with_last, wrong_shapes
from tests.learners import DIM, differences, snapshot
from tests.reference.multinomial import MultinomialReference, law
from torchonline.baselines import MLogBRegression, MultinomialLogisticBandit
from torchonline.baselines.generalized_linear.multinomial import tight_step_size
from torchonline.export import to_torchscript
from torchonline.testing.arguments import no_actions

D = torch.float64
REVENUES = (0.3, -0.5, 1.0)
OPTIONS: dict[str, dict[str, Any]] = {
    "default": {"revenues": REVENUES},
    "four outcomes, often outside": {"revenues": (1.0, 0.0, 0.2, 0.2), "theta_bound": 0.8, "ridge": 0.05, "delta": 0.2},
    "the paper's step": {"revenues": (0.0, 1.0), "theta_bound": 3.0, "ridge": 1.0, "step_size": "paper"},
}


def unit(*shape: int, generator: torch.Generator | None = None) -> Tensor:
    x = torch.randn(*shape, DIM, dtype=D, generator=generator)
    return x / torch.linalg.vector_norm(x, dim=-1, keepdim=True)


def build(batch_shape: tuple[int, ...] = (), revenues: tuple[float, ...] = REVENUES, **options: Any) -> Any:
    return MultinomialLogisticBandit(DIM, revenues, batch_shape=batch_shape, **options)


def learnt(rounds: int = 20, batch_shape: tuple[int, ...] = (), **options: Any) -> Any:
    bandit = build(batch_shape, **options)
    generator = torch.Generator().manual_seed(3)
    for _ in range(rounds):
        outcome = torch.randint(3, batch_shape, generator=generator)
        bandit.step(unit(*batch_shape, 1, generator=generator), torch.zeros_like(outcome), outcome)
    return bandit


@pytest.mark.fast
@pytest.mark.parametrize("name", OPTIONS)
def test_equals_its_equations(name: str) -> None:
    """To 1e-9: bounds, choices, estimate, matrix, inverse and squared radius, over rounds inside and outside of the ball."""
    options = OPTIONS[name]
    bandit = MultinomialLogisticBandit(DIM, **options)
    given = {key: value for key, value in options.items() if key != "step_size"}
    reference = MultinomialReference(DIM, eta=bandit.eta, **given)
    random = np.random.default_rng(1)
    for t in range(60):
        arms = random.standard_normal((5, DIM))
        arms /= np.linalg.norm(arms, axis=-1, keepdims=True) * random.uniform(1.0, 3.0, (5, 1))
        if t == 7:
            arms[:] = 0.0
        expected = np.array([reference.bounds(x) for x in arms])
        np.testing.assert_allclose(np.stack(bandit.interval(arms), -1), expected, rtol=1e-9, atol=1e-9)
        index = int(bandit.select(arms))
        assert expected[:, 1].max() - expected[index, 1] <= 1e-9
        # Mostly one outcome, so that the estimate is driven out of the ball.
        outcome = int(random.integers(bandit.outcomes)) if t % 3 else 1
        bandit.step(arms, index, outcome)
        reference.step(arms[index], outcome)
        np.testing.assert_allclose(bandit.theta_hat.flatten(), reference.theta, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(bandit.V, reference.V, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(bandit.V_inv, np.linalg.inv(reference.V), rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(bandit.squared_radius, reference.square, rtol=1e-9)
        p = law(reference.theta.reshape(-1, DIM) @ arms[0])
        np.testing.assert_allclose(bandit.outcome_probabilities(arms[0]), p, rtol=1e-9)
        np.testing.assert_allclose(bandit(arms[0]), p @ np.array(options["revenues"]), rtol=1e-9)
    if "outside" in name:
        assert 5 < reference.active < 60


@pytest.mark.fast
def test_two_outcomes_are_the_binary_bandit() -> None:
    """The update is that of MLogBRegression, and the bound that of optimism over the predictor."""
    bandit = build(revenues=(0.0, 1.0), theta_bound=2.0, ridge=0.5, step_size="paper", radius_scale=0.3)
    binary = MLogBRegression(DIM, theta_bound=2.0, ridge=0.5)
    assert bandit.eta == pytest.approx(binary.eta, rel=1e-14)
    generator = torch.Generator().manual_seed(0)
    for _ in range(300):
        x, outcome = unit(generator=generator), torch.randint(2, (), generator=generator)
        bandit.step(x.unsqueeze(-2), 0, outcome)
        binary.step(x, outcome.to(D))
    torch.testing.assert_close(bandit.theta_hat[0], binary.theta_hat, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(bandit.V, binary.V, rtol=1e-9, atol=1e-9)
    arms = unit(7, generator=generator)
    expected = torch.sigmoid(binary.predictor(arms) + bandit.radius() * binary.width(arms))
    torch.testing.assert_close(bandit.interval(arms)[1], expected, rtol=1e-9, atol=1e-9)


@pytest.mark.fast
@pytest.mark.parametrize("K", [1, 2, 5])
def test_the_tight_step_is_large_enough(K: int) -> None:
    """No two logits in the ball have a larger ratio of curvature to divergence; and it is below the paper's step."""
    random = np.random.default_rng(K)
    for bound in (0.1, 1.0, 4.0):
        eta = tight_step_size(K + 1, bound)
        assert 1.0 <= eta < 0.5 * math.log(K + 1) + bound + 1.0
        # Points with one or two large entries are the worst.
        points = random.standard_normal((2, 20000, K)) * random.choice([0.1, 3.0], (2, 20000, K))
        points *= bound * random.choice([1.0, 0.8], (2, 20000, 1)) / np.linalg.norm(points, axis=-1, keepdims=True)
        logits = np.concatenate([np.zeros((2, 20000, 1)), points], -1)
        logs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        p, gap = np.exp(logs[1]), logs[1] - logs[0]
        divergence = (p * gap).sum(-1)
        variance = (p * gap**2).sum(-1) - divergence**2
        assert bool((variance <= 2.0 * eta * divergence + 1e-12).all())


def coverage(fixed: Callable[..., Tensor], rounds: int, trials: int, delta: float, shrink: float) -> int:
    """In how many trials the set failed at any time, or a bound of a revenue; ``shrink`` makes radii wrong."""
    generator = torch.Generator().manual_seed(5)
    bandit = build((trials,), theta_bound=2.0, ridge=1.0, delta=delta, radius_scale=shrink)
    payoff = torch.tensor(REVENUES, dtype=D)
    W = torch.randn(trials, 2, DIM, dtype=D, generator=generator)
    W *= 2.0 / torch.linalg.matrix_norm(W)[:, None, None]
    failed = torch.zeros(trials, dtype=torch.bool)
    for _ in range(rounds):
        arms = unit(trials, 6, generator=generator)
        p = torch.softmax(torch.nn.functional.pad(arms @ W.mT, (1, 0)), -1)
        low, high = bandit.interval(arms)
        failed |= ((p @ payoff < low - 1e-12) | (p @ payoff > high + 1e-12)).any(-1)
        index = fixed(bandit, arms, W)
        outcome = torch.multinomial(p[torch.arange(trials), index], 1, generator=generator)[:, 0]
        bandit.step(arms, index, outcome)
        error = (bandit.theta_hat - W).flatten(1)
        failed |= torch.einsum("bi,bij,bj->b", error, bandit.V, error) > bandit.radius() ** 2
    if shrink == 1.0:
        assert not bool(bandit.misspecified.any())
    return int(failed.sum())


def by_policy(bandit: Any, arms: Tensor, W: Tensor) -> Tensor:
    return bandit.select(arms)


def by_adversary(bandit: Any, arms: Tensor, W: Tensor) -> Tensor:
    """Where the estimate is too low already."""
    return ((bandit.theta_hat - W) @ arms.mT).sum(1).argmin(-1)


@pytest.mark.slow
@pytest.mark.parametrize("chooses", [by_policy, by_adversary])
def test_confidence_sets_hold(chooses: Callable[..., Tensor]) -> None:
    """At delta = 0.05 no more than 5 + 3 sigma percent of 300 sets ever fail; radii a fifth as large fail often."""
    assert coverage(chooses, 400, 300, 0.05, 1.0) <= 26
    assert coverage(chooses, 400, 100, 0.05, 0.2) >= 50


@pytest.mark.fast
def test_the_mixture_is_a_supermartingale() -> None:
    """E exp(loss of the truth - loss of the mixture) = 1, since the nodes are a law that is fixed before the outcome."""
    bandit = learnt()
    x, W = unit(), torch.randn(2, DIM, dtype=D)
    blocks = bandit.V_inv.reshape(2, DIM, 2, DIM)
    G = torch.einsum("d,kdle,e->kl", x, blocks, x)
    z, y, truth = bandit.theta_hat @ x, torch.zeros(2, dtype=D), law((W @ x).numpy())
    total = 0.0
    for outcome in range(3):
        regret = float(bandit._regret_of_mixture(z, G, y, x, torch.tensor(outcome)))
        loss_of_mixture = regret + math.log(3.0)  # the loss at logits of 0
        total += truth[outcome] * math.exp(-math.log(truth[outcome]) - loss_of_mixture)
    assert total == pytest.approx(1.0, abs=1e-12)


@pytest.mark.fast
def test_a_batch_is_its_learners_and_rounds_come_in_order() -> None:
    generator = torch.Generator().manual_seed(1)
    x, outcome = unit(2, 9, generator=generator), torch.randint(3, (2, 9), generator=generator)
    batched, singles = build((2,)), [build(), build()]
    batched.step(x.unsqueeze(-2), torch.zeros_like(outcome), outcome)
    arms = unit(2, 4, 5, generator=generator)
    mask = torch.rand(2, 4, 5, generator=generator) < 0.7
    mask[..., 0] = True
    for i, single in enumerate(singles):
        for t in range(9):
            single.step(x[i, t, None], 0, outcome[i, t])
        for name, value in snapshot(single).items():
            if name != "constants":
                torch.testing.assert_close(value, getattr(batched, name)[i], rtol=1e-12, atol=1e-12)
        assert single.select(arms[i], mask[i]).tolist() == batched.select(arms, mask)[i].tolist()
        torch.testing.assert_close(single(arms[i]), batched(arms)[i])


@pytest.mark.fast
def test_looking_changes_nothing_and_has_a_gradient() -> None:
    bandit = learnt()
    before, arms = snapshot(bandit), unit(4).requires_grad_()
    assert torch.autograd.gradcheck(bandit, (arms,))
    for look in (bandit.select, bandit.interval, bandit.outcome_probabilities):
        look(arms)
    bandit.radius()
    assert differences(before, snapshot(bandit)) == []
    low, high = bandit.interval(arms)
    assert bool(((low <= bandit(arms)) & (bandit(arms) <= high)).all())
    assert float(low.min()) >= min(REVENUES)
    assert float(high.max()) <= max(REVENUES)


@pytest.mark.fast
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_loaded_or_copied_state_continues(dtype: torch.dtype) -> None:
    for batch_shape in ((), (2,)):
        bandit = learnt(batch_shape=batch_shape, dtype=dtype)
        fresh = build(batch_shape, dtype=dtype)
        fresh.load_state_dict(bandit.state_dict())
        copies = [fresh, copy.deepcopy(bandit), pickle.loads(pickle.dumps(bandit))]
        rounds = unit(*batch_shape, 12, 4), torch.randint(4, (*batch_shape, 12)), torch.randint(3, (*batch_shape, 12))
        bandit.step(*rounds)
        for each in copies:
            each.step(*rounds)
            assert differences(snapshot(bandit), snapshot(each)) == []
        bandit.reset()
        assert differences(snapshot(build(batch_shape, dtype=dtype)), snapshot(bandit)) == []


@pytest.mark.fast
def test_single_precision_follows_double() -> None:
    single, double = learnt(200, dtype=torch.float32), learnt(200)
    torch.testing.assert_close(single.theta_hat.double(), double.theta_hat, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(single.V_inv.double(), double.V_inv, rtol=1e-3, atol=1e-5)
    torch.testing.assert_close(single.radius().double(), double.radius(), rtol=1e-3, atol=1e-4)


@pytest.mark.fast
def test_a_state_of_other_options_is_refused() -> None:
    bandit = learnt()
    others = {"theta_bound": {"theta_bound": 2.0}, "eta": {"step_size": "paper"}, "ridge": {"ridge": 1.0}}
    for name, options in others.items():
        with pytest.raises(RuntimeError, match=name):
            build(**options).load_state_dict(bandit.state_dict())
    with pytest.raises(RuntimeError, match="theta_hat: expected shape"):
        build(revenues=(0.0, 1.0)).load_state_dict(bandit.state_dict())
    with pytest.raises(AttributeError, match="delta"):
        bandit.delta = 0.5


@pytest.mark.fast
def test_wrong_rounds_are_refused_and_change_nothing() -> None:
    for batch_shape, rows in (((), ()), ((), (3,)), ((2,), (3,))):
        bandit = learnt(batch_shape=batch_shape)
        before = snapshot(bandit)
        shape = (*batch_shape, *rows)
        good = {"inputs": unit(*shape, 4), "action": torch.full(shape, 3), "outcome": torch.randint(3, shape)}
        x, outcome = good["inputs"], good["outcome"]
        features = no_floats(x) | no_values(x) | wrong_shapes(x, len(batch_shape), features=True, item_dims=2)
        features |= {"too long": 3.0 * x, "None": None}
        outcomes = wrong_shapes(outcome, len(batch_shape), features=False)
        outcomes |= {"too large": with_last(outcome, 3), "negative": with_last(outcome, -1), "None": None}
        outcomes |= {"numbers": outcome.double(), "booleans": outcome.bool(), "on another device": outcome.to("meta")}
        actions = no_actions(good["action"], 4) | {"None": None}
        if not rows:  # a single round is a round of several
            features.pop("a dimension too many", None)
        found = []
        for name, kinds in (("inputs", features), ("action", actions), ("outcome", outcomes)):
            for kind, bad in kinds.items():
                found += complaint(f"{kind} {name}", name, functools.partial(bandit.step, **good | {name: bad}))
        assert found == []
        assert differences(before, snapshot(bandit)) == []


@pytest.mark.fast
def test_wrong_options_and_arms_are_refused() -> None:
    bad = {
        name: BAD_OPTIONS[name] for name in ("dim", "theta_bound", "feature_bound", "delta", "radius_scale", "dtype")
    }
    bad |= {name: BAD_OPTIONS[name] for name in ("batch_shape", "validate")}
    bad["ridge"] = [value for value in BAD_OPTIONS["ridge"] if value is not None] + [1e-9]
    bad["theta_bound"] = [*bad["theta_bound"], 1e3]
    bad["step_size"] = ["theory", "", None, 1.0]
    bad["revenues"] = [(), (1.0,), 1.0, None, "01", (0.0, math.nan), (0.0, "1"), ((0.0, 1.0),), torch.ones(2, 2)]
    good = {"dim": DIM, "revenues": REVENUES}
    found = [
        line
        for name, values in bad.items()
        for value in values
        for line in complaint(
            f"{value!r}", name, lambda value=value, name=name: MultinomialLogisticBandit(**good | {name: value})
        )
    ]
    assert found == []
    bandit = build()
    arms = unit(4)
    kinds = no_floats(arms) | no_values(arms) | {"no arm": arms[:0], "one row": arms[0], "a feature less": arms[:, 1:]}
    for kind, value in kinds.items():
        found += complaint(kind, "inputs", lambda value=value: bandit.select(value))
    found += complaint("nothing available", "mask", lambda: bandit.select(arms, torch.zeros(4, dtype=torch.bool)))
    assert found == []


@pytest.mark.fast
def test_it_is_python_alone() -> None:
    with pytest.raises((TypeError, ValueError), match="MultinomialLogisticBandit"):
        to_torchscript(build())
    assert "revenues=(0.3, -0.5, 1)" in repr(build())
