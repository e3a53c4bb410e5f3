"""What people pass as numbers: Python numbers, lists, NumPy arrays and tensor subclasses, wherever a learner takes values."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from tests.learners import CASES, DIM, Case, differences, estimator_of, round_of, snapshot
from torchonline import (
    CAOONS,
    OFUL,
    AnytimeHeavyTailUCB,
    FreeGrad,
    LocalGLB,
    MsMwC,
    RidgeRegression,
    SystemIdentification,
    ThompsonSampling,
    bandit,
)
from torchonline.core.inputs import as_plain, as_tensor, plain_array
from torchonline.metrics import CumulativeRegret
from torchonline.models import BanditHead

pytestmark = pytest.mark.fast

D = torch.float64
X = [0.5, -0.25, 1.0]


class Named(Tensor):
    """A subclass without behaviour of its own, as annotated data sets use."""


class Loud(Tensor):
    """A subclass that hears of every operation."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return super().__torch_function__(func, types, args, kwargs or {})


ONES: list[Any] = [1, 1.0, True, np.float64(1.0), np.float32(1.0), np.int64(1), np.int8(1), np.bool_(True), np.ones(())]
ONES += [
    np.array(1),
    torch.tensor(1),
    torch.tensor(True),
    torch.tensor(1, dtype=torch.uint8),
    torch.ones((), dtype=torch.bfloat16),
]
ROWS: list[Any] = [
    X,
    tuple(X),
    np.array(X),
    np.array(X, dtype=np.float32),
    np.array(X, dtype=">f8"),
    np.array(X)[::-1][::-1],
    np.array(X[::-1])[::-1],
    np.array([X, X]).T[:, 0],
    np.broadcast_to(np.array(X), (1, 3))[0],
]
ROWS += [[np.float64(value) for value in X], [torch.tensor(value) for value in X], torch.tensor(X).as_subclass(Named)]
PLAIN = [case for case in CASES if not case.options and case.over is None]


def given(case: Case, row: Any, reward: Any) -> tuple[Any, ...]:
    """What ``step`` gets for a row of any kind, which a policy takes for the only arm."""
    if not case.decides:
        return row, reward
    return row[None] if isinstance(row, (Tensor, np.ndarray)) else [row], 0, reward


@pytest.mark.parametrize("case", PLAIN, ids=str)
def test_rewards_and_features_of_any_kind_do_what_tensors_do(case: Case) -> None:
    """Bit for bit, in every public learner: rewards and noise scales as numbers, features as arrays and lists."""
    for row in ROWS:
        learner, twin = case.build(), case.build()
        one = [1.0] * case.output_shape[0] if case.output_shape else 1.0
        learner.step(*given(case, row, one))
        twin.step(*round_of(twin, torch.tensor(X, dtype=D), torch.tensor(one, dtype=D)))
        assert differences(snapshot(twin), snapshot(learner)) == []
        assert torch.equal(estimator_of(learner).width(row), estimator_of(twin).width(torch.tensor(X, dtype=D)))
    if case.output_shape:
        return
    for one in ONES:
        learner, twin = case.build(), case.build()
        learner.step(*given(case, torch.tensor(X), one), noise_scale=one)
        twin.step(*given(case, torch.tensor(X), torch.tensor(1.0, dtype=D)), noise_scale=torch.tensor(1.0, dtype=D))
        assert differences(snapshot(twin), snapshot(learner)) == [], one
    many, twin = case.build(batch_shape=(2,)), case.build(batch_shape=(2,))
    many.step(*([[X], [X]], [0, 0], [1, 0]) if case.decides else ([X, X], [1, 0]))
    twin.step(*round_of(twin, torch.tensor([X, X]), torch.tensor([1.0, 0.0])))
    assert differences(snapshot(twin), snapshot(many)) == []


@pytest.mark.parametrize("dtype", [torch.float32, D], ids=["float32", "float64"])
@pytest.mark.parametrize("actions", [None, 3], ids=["rows", "arms"])
def test_rounds_of_any_numbers_are_rounds_of_tensors(dtype: torch.dtype, actions: int | None) -> None:
    """Choices and all statistics, bit for bit: the short path of a round rounds as torch does."""
    random = np.random.default_rng(0)
    inputs = random.standard_normal((60, 2) if actions else (60, 3, 2))
    rewards = random.random(60)
    kinds: list[tuple[Callable[[Any], Any], Callable[[float], Any]]] = [
        (lambda x: torch.tensor(x, dtype=dtype), lambda r: torch.tensor(r, dtype=dtype)),
        (lambda x: x, lambda r: r),
        (torch.tensor, np.float64),
        (np.asfortranarray, float),
    ]
    found = []
    for to_input, to_reward in kinds:
        policy, chosen = bandit(2, actions=actions, dtype=dtype), []
        for x, reward in zip(inputs, rewards, strict=True):
            chosen.append(int(policy.select(to_input(x))))
            policy.step(to_input(x), chosen[-1], to_reward(float(reward)))
        policy.step(to_input(x), 1, 1)
        found.append((chosen, snapshot(policy)))
    for chosen, state in found[1:]:
        assert chosen == found[0][0]
        assert differences(found[0][1], state) == []


def test_numbers_at_the_end_of_a_type_are_refused_or_learnt_as_tensors_are() -> None:
    """Without a warning of NumPy."""
    for dtype in (torch.float32, D):
        for value in (1e-46, 1e-39, 1e13, 1e29, 1e31, 1e39, 1e308, math.inf, math.nan):
            for x, reward in ((np.array([value, 1.0]), 0.5), (np.array([1.0, 1.0]), value)):
                results = []
                for given in ((x, reward), (torch.tensor(x), torch.tensor(reward, dtype=D))):
                    learner = RidgeRegression(2, dtype=dtype)
                    try:
                        learner.step(*given)
                    except ValueError as error:
                        results.append(str(error))
                    else:
                        results.append(learner.theta_hat.tolist())
                assert results[0] == results[1], (dtype, value)


def test_an_array_is_copied_before_it_is_checked() -> None:
    """Another thread may write it in between."""
    for dtype in (np.float32, np.float64):
        for state in (torch.zeros(1), torch.zeros(1, dtype=D)):
            x = np.ones(3, dtype)
            assert not np.shares_memory(plain_array(x, state), x)
    with np.errstate(all="raise"):
        assert plain_array(np.array([1e-50, 1e50]), torch.zeros(1)).tolist() == [0.0, math.inf]


def test_fake_tensors_do_not_step_a_learner_of_real_ones() -> None:
    policy, x = bandit(2, actions=3), np.ones(2)
    policy.step(x, 1, 0.5)  # which makes the views
    with FakeTensorMode(), pytest.raises((AssertionError, TypeError, ValueError)):
        policy.step(x, 1, 0.5)
    assert int(policy.rounds) == 1


def test_choices_take_arrays_and_lists() -> None:
    arms = torch.randn(5, DIM, dtype=D)
    for policy in (OFUL(DIM), AnytimeHeavyTailUCB(DIM), LocalGLB(DIM)):
        for value in (arms.numpy(), arms.tolist(), list(arms.numpy()), arms.as_subclass(Named), arms.as_subclass(Loud)):
            assert torch.equal(policy.select(value), policy.select(arms))
            assert torch.equal(policy(value), policy(arms))


def test_convex_learners_take_arrays_and_lists() -> None:
    for learner, twin in ((FreeGrad(3), FreeGrad(3)), (MsMwC(3, rate=0.1), MsMwC(3, rate=0.1))):
        for gradient in (X, np.array(X), torch.tensor(X).as_subclass(Named)):
            learner.step(gradient)
            twin.step(torch.tensor(X, dtype=D))
        assert torch.equal(learner.predict(), twin.predict())
    master = CAOONS(2, lipschitz=1.0, horizon=100)
    values = [0.5] * master.points
    master.step(np.zeros((master.points, 2)), values)
    assert int(master.rounds) == 1


def test_a_system_takes_lists() -> None:
    learner = SystemIdentification(2, 2)
    learner.step([1.0, 0.0], [0.5, -1])
    assert int(learner.rounds) == 1


def test_a_head_takes_arrays_and_integers() -> None:
    head = BanditHead(torch.nn.Linear(4, DIM), OFUL(DIM))
    inputs = np.random.default_rng(0).standard_normal((5, 4))
    choice = head.select(inputs)
    head.step(inputs, int(choice), 1)
    head.step(inputs.tolist(), np.int64(2), True)
    head.step([inputs, inputs], [1, 2], [0.5, 1])
    assert int(head.policy.estimator.rounds) == 4
    for action in (1.0, True, None):
        named = type(action).__name__
        with pytest.raises(TypeError, match=f"^action: expected an int64 tensor or integers, got {named}"):
            head.step(inputs, action, 1.0)


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (2**53 + 1, ValueError, "integers of magnitude at most 2^53"),
        (np.array([2**53 + 1, 0, 0]), ValueError, "integers of magnitude at most 2^53"),
        ([2**60, 0, 0], ValueError, "integers of magnitude at most 2^53"),
        ([10**30, 0, 0], TypeError, "real numbers"),
        (1j, TypeError, "real numbers"),
        (np.array([1j, 0, 0]), TypeError, "real numbers, got ndarray of complex128"),
        (np.array([1, 2, 3], dtype=np.longdouble), TypeError, "real numbers"),
        (["a", "b", "c"], TypeError, "real numbers"),
        ([1.0, None, 2.0], TypeError, "real numbers"),
        ([[1.0], [1.0, 2.0]], TypeError, "real numbers"),
        ("abc", TypeError, "got str"),
        (None, TypeError, "got NoneType"),
        ({}, TypeError, "real numbers"),
        (np.array(["2020-01-01"], dtype="datetime64[D]"), TypeError, "real numbers"),
        (bytearray(b"abc"), TypeError, "got bytearray"),
        (memoryview(b"abc"), TypeError, "got memoryview"),
        (np.ma.masked_array([1.0, 2.0, 3.0], mask=[False, True, False]), ValueError, "masked entries"),
        ([2**60 + 1, 0.5, 0.5], ValueError, "at most 2^53, which float64 holds exactly, got 1152921504606846977"),
        ([2**63 + 1, -1, 0], ValueError, "at most 2^53, which float64 holds exactly, got 9223372036854775809"),
        ([[0.5, -1.0, (2**53 + 1,)[0]]], ValueError, "at most 2^53"),
        ([np.int64(2**60 + 1), 0.5, 0.5], ValueError, "at most 2^53"),
        ([torch.tensor(2**60 + 1), torch.tensor(0.5), 0.5], ValueError, "at most 2^53"),
    ],
)
def test_what_is_no_number_is_refused_by_name(value: Any, error: type[Exception], text: str) -> None:
    learner, policy = RidgeRegression(3), OFUL(3)
    before = snapshot(learner), snapshot(policy)
    for name, call in (
        ("x", lambda: learner.step(value, 1.0)),
        ("reward", lambda: learner.step(X, value)),
        ("inputs", lambda: policy.step(value, 0, 1.0)),
        ("reward", lambda: policy.step([X], 0, value)),
        ("inputs", lambda: policy.select(value)),
    ):
        with pytest.raises(error) as caught:
            call()
        assert str(caught.value).startswith(f"{name}: expected "), caught.value
        assert text in str(caught.value)
    assert differences(before[0], snapshot(learner)) == differences(before[1], snapshot(policy)) == []


def test_a_sum_of_long_integers_is_exact_up_to_its_limit() -> None:
    learner = OFUL(1, validate=False)
    assert float(learner.estimator.predictor([2**53])) == 0.0
    for value in (2**53 + 2, 2**63 - 1, -(2**53) - 1, -(2**63)):
        for same in (torch.tensor(value), np.array(value), value):
            with pytest.raises(ValueError, match=rf"^reward: expected .* at most 2\^53, .* got {abs(value)}$"):
                learner.step([[1.0]], 0, same)
    for value in (2**53 + 1, 2**63, 2**64 - 1):
        for same in (torch.tensor(value, dtype=torch.uint64), np.array(value, dtype=np.uint64)):
            with pytest.raises(ValueError, match=rf"^reward: expected .* at most 2\^53, .* got {value}$"):
                learner.step([[1.0]], 0, same)
    for dtype in (torch.uint64, torch.uint32, torch.int64, torch.uint16):
        learner.step([[1.0]], 0, torch.tensor(7, dtype=dtype))
    # Floats may be large, also beside small integers, and a masked array in which nothing is masked is an array.
    learner.step(np.ma.masked_array([[1.0]], mask=[[False]]), 0, 2**53)
    assert torch.equal(as_tensor("x", [2.0**60, 1, True], torch.device("cpu")), torch.tensor([2.0**60, 1, 1], dtype=D))
    assert int(learner.estimator.rounds) == 5


@pytest.mark.filterwarnings("ignore:.*nested tensors", "ignore:torch.quantize_per_tensor")
def test_nested_sparse_and_quantized_tensors_are_refused_by_name() -> None:
    one = torch.ones(2, dtype=D)
    refused = {
        "nested": torch.nested.nested_tensor([one, one]),
        "jagged": torch.nested.nested_tensor([one, one], layout=torch.jagged),
        "sparse": one.to_sparse(),
        "quantized": torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8),
    }
    policy, learner, metric = OFUL(2), FreeGrad(2), CumulativeRegret()
    for kind, value in refused.items():
        for name, call in (
            ("x", lambda value=value: policy.estimator.step(value, 1.0)),
            ("inputs", lambda value=value: policy.step(value, 0, 1.0)),
            ("reward", lambda value=value: policy.step([[1.0, 0.0]], 0, value)),
            ("inputs", lambda value=value: policy.select(value)),
            ("gradients", lambda value=value: learner.step(value)),
            ("regret", lambda value=value: metric.update(value)),
        ):
            if kind == "sparse" and name in ("x", "inputs", "gradients"):  # rows, and those of an embedding
                continue
            with pytest.raises(TypeError, match=f"^{name}: expected "):
                call()


BAD: list[tuple[str, Callable[[Any, Tensor], Any]]] = [
    ("step", lambda policy, bad: policy.step(bad.expand(1, 2), 0, torch.tensor(0.0))),
    ("step of a regression", lambda policy, bad: policy.estimator.step(bad, torch.tensor(0.0))),
    (
        "several steps",
        lambda policy, bad: policy.step(bad.expand(3, 1, 2).clone().as_subclass(type(bad)), [0] * 3, torch.zeros(3)),
    ),
    ("reward", lambda policy, bad: policy.step(torch.ones(1, 2), 0, bad[0])),
    ("noise scale", lambda policy, bad: policy.step(torch.ones(1, 2), 0, torch.tensor(0.0), noise_scale=bad[0])),
    ("select", lambda policy, bad: policy.select(bad.expand(3, 2))),
]


@pytest.mark.parametrize("cls", [Named, Loud])
@pytest.mark.parametrize("kind", ["single", "batch on tensors"])
@pytest.mark.parametrize("value", [torch.nan, torch.inf, 1e200])
@pytest.mark.parametrize("where", [name for name, _ in BAD])
def test_a_subclass_does_not_bypass_the_checks(where: str, value: float, kind: str, cls: type[Tensor]) -> None:
    """A NaN in a subclass of a tensor is refused by name like any other, and changes nothing."""
    policy: Any
    for policy in (OFUL(2), AnytimeHeavyTailUCB(2), LocalGLB(2)):
        if kind != "single":
            policy.estimator.is_small = False
        before = snapshot(policy)
        with pytest.raises(ValueError, match=r"^(x|inputs|reward|noise_scale): expected "):
            dict(BAD)[where](policy, torch.full((2,), value, dtype=D).as_subclass(cls))
        assert differences(before, snapshot(policy)) == []


def test_masks_may_be_arrays_and_lists() -> None:
    policy, batched = OFUL(2), OFUL(2, batch_shape=(2,))
    arms, mask = torch.randn(3, 2), [False, True, False]
    for same in (mask, tuple(mask), np.array(mask), torch.tensor(mask)):
        assert int(policy.select(arms, same)) == 1
        assert batched.select(
            arms.expand(2, 3, 2), [same, same] if isinstance(same, list) else np.stack([same] * 2)
        ).tolist() == [1, 1]
    experts = MsMwC(3, rate=0.1)
    experts.set_available(mask)
    assert experts.predict().tolist() == [0.0, 1.0, 0.0]
    for bad in ([0, 1, 0], np.array([0.0, 1.0, 0.0]), "all", [[True], [False, True]]):
        with pytest.raises(TypeError, match=r"^mask: expected booleans, True where available, got "):
            policy.select(arms, bad)
    with pytest.raises(ValueError, match=r"^mask: expected .* masked entries"):
        policy.select(arms, np.ma.masked_array(mask, mask=mask))
    with pytest.raises(ValueError, match=r"^mask: expected shape \(3\)"):
        policy.select(arms, mask[1:])
    with pytest.raises(ValueError, match=r"^mask: expected an available entry"):
        policy.select(arms, [False] * 3)


def test_masks_and_loads_see_through_subclasses() -> None:
    policy = OFUL(2)
    arms, nobody = torch.randn(3, 2), torch.zeros(3, dtype=torch.bool).as_subclass(Named)
    with pytest.raises(ValueError, match=r"^mask: expected an available entry"):
        policy.select(arms, nobody)
    only = torch.tensor([False, False, True]).as_subclass(Named)
    assert int(policy.select(arms, only)) == 2
    state = policy.state_dict()
    state["estimator.V"] = torch.full((2, 2), torch.nan, dtype=D).as_subclass(Named)
    with pytest.raises(RuntimeError, match="V: expected numbers, got NaN"):
        policy.load_state_dict(state)


def test_fake_tensors_stay_fake_and_wrappers_are_refused() -> None:
    from torch.testing._internal.two_tensor import TwoTensor

    with FakeTensorMode() as mode:
        fake = mode.from_tensor(torch.ones(2))
        assert as_plain("x", fake) is fake
    with pytest.raises(TypeError, match=r"^x: expected a torch.Tensor with its own values, got TwoTensor"):
        RidgeRegression(2).step(TwoTensor(torch.ones(2), torch.ones(2)), 1.0)
    with pytest.raises(TypeError, match=r"^inputs: expected a torch.Tensor with its own values, got TwoTensor"):
        OFUL(2).step(TwoTensor(torch.ones(1, 2), torch.ones(1, 2)), 0, 1.0)


@pytest.mark.parametrize(
    "bad", [torch.ones(3, 2, dtype=torch.complex64), torch.ones(3, 2, dtype=torch.int8), torch.ones(3)]
)
def test_scores_of_all_policies_check_alike(bad: Tensor) -> None:
    """Thompson sampling, whose scores are drawn, refuses what UCB refuses."""
    estimator = OFUL(2).estimator
    for policy in (OFUL(2), ThompsonSampling(estimator)):
        with pytest.raises((TypeError, ValueError), match=r"^inputs: expected "):
            policy(bad)
