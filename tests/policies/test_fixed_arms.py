"""Fixed arms choose as their policy does among the same arms, whatever has happened to the estimator."""

import copy
import inspect
import io
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from tests import fake_device
from tests.core.test_threads import together
from tests.interruption import interrupted
from tests.learners import REQUIRED, VARIANTS, close, differences, public_classes, required, same, snapshot
from torchonline import (
    GLBOMD,
    OFUL,
    UCB,
    AdaptiveRidgeRegression,
    AnytimeHeavyTailUCB,
    DiagonalRidgeRegression,
    DiscountedHeavyTailRegression,
    DiscountedRidgeRegression,
    DisjointArms,
    EpsilonGreedy,
    FixedArms,
    Greedy,
    HvtUCB,
    LocalGLB,
    LocalGLMRegression,
    RidgeRegression,
    Softmax,
    SquareCB,
    ThompsonSampling,
)
from torchonline.baselines import GLMUCB, BMMRegression, BTCRegression, RobustUCBRegression, RSGLinCB
from torchonline.core import learner as core
from torchonline.export import to_program, to_torchscript
from torchonline.policies import moving_squares
from torchonline.regression.estimator import Estimator

pytestmark = pytest.mark.fast

D = torch.float64
DIM, ARMS = 6, 9
MAKERS: dict[str, Callable[..., Any]] = {
    "OFUL": lambda **o: OFUL(DIM, **o),
    "AnytimeHeavyTailUCB": lambda **o: AnytimeHeavyTailUCB(DIM, **o),
    "LocalGLB": lambda **o: LocalGLB(DIM, **o),
    "GLBOMD": lambda **o: GLBOMD(DIM, **o),
    "HvtUCB in epochs": lambda **o: HvtUCB(DIM, horizon=None, radius_scale=1e-3, **o),
    "restarts": lambda **o: OFUL(DIM, restart_every=13, **o),
    "discounted": lambda **o: UCB(DiscountedRidgeRegression(DIM, discount=0.95, **o)),
    "discounted, heavy tails": lambda **o: UCB(DiscountedHeavyTailRegression(DIM, discount=0.95, **o)),
    "raised": lambda **o: UCB(AdaptiveRidgeRegression(DIM, floor=0.2, **o)),
    "Greedy": lambda **o: Greedy(RidgeRegression(DIM, **o)),
}
RANDOM: dict[str, Callable[..., Any]] = {
    "EpsilonGreedy": lambda **o: EpsilonGreedy(RidgeRegression(DIM, **o), epsilon=0.3),
    "SquareCB": lambda **o: SquareCB(LocalGLMRegression(DIM, **o)),
    "Softmax": lambda **o: Softmax(RidgeRegression(DIM, **o)),
}
every_maker = pytest.mark.parametrize("name", MAKERS)


def some_arms(count: int = ARMS, *batch: int, dim: int = DIM, seed: int = 0) -> Tensor:
    """Arms of different lengths below 1."""
    generator = torch.Generator().manual_seed(seed)
    arms = torch.nn.functional.normalize(torch.randn(*batch, count, dim, generator=generator, dtype=D), dim=-1)
    return arms * (0.5 + 0.5 * torch.rand(*batch, count, 1, generator=generator, dtype=D))


def clicks(count: int, *batch: int, seed: int = 1) -> Tensor:
    """Rewards that every estimator takes."""
    return torch.bernoulli(torch.full((count, *batch), 0.4, dtype=D), generator=torch.Generator().manual_seed(seed))


def play(fixed: FixedArms, rewards: Tensor) -> list[Tensor]:
    """Decide and learn; the decisions."""
    decisions = []
    for reward in rewards:
        decisions.append(fixed.select())
        fixed.step(None, decisions[-1], reward)
    return decisions


def agrees(fixed: FixedArms, tolerance: float = 1e-10) -> None:
    """Scores, and the score of the choice, are those of the policy among the same arms."""
    arms = fixed.arms.expand(*fixed.batch_shape, *fixed.arms.shape[-2:])
    scores = fixed.policy(arms)
    close(fixed(), scores, tolerance)
    place = (fixed.select().unsqueeze(-1) == torch.tensor(fixed.action_ids)).long().argmax(-1, keepdim=True)
    close(scores.gather(-1, place).squeeze(-1), scores.amax(-1), tolerance)


class Fading(RidgeRegression):
    """A user's estimator, whose width matrix moves in all directions."""

    def _learn_round(self, x: Tensor, reward: Tensor, noise_scale: Tensor) -> None:
        self._observe(x, reward, noise_scale)
        V, V_inv = self.V, self.V_inv
        V *= 0.5
        V_inv *= 2.0


class Halved(UCB):
    """A user's policy with scores of its own."""

    def scores_of(self, predictor: Tensor, width: Tensor) -> Tensor:
        return predictor + 0.5 * width


# The same choices.

LONG = {
    "OFUL": lambda: OFUL(8, noise_scale=0.5),
    "LocalGLB": lambda: LocalGLB(8),
    "AnytimeHeavyTailUCB that restarts": lambda: AnytimeHeavyTailUCB(8, restart_every=700),
    "OFUL in float32": lambda: OFUL(8, dtype=torch.float32),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LONG)
def test_choices_are_those_of_the_policy_over_10000_rounds(name: str) -> None:
    """In every round; two arms may change places whose scores are equal to rounding. The estimators stay equal to the bit."""
    policy, twin = LONG[name](), LONG[name]()
    dtype = policy.estimator.theta_hat.dtype
    arms, tolerance = some_arms(40, dim=8).to(dtype), 1e-9 if dtype == D else 1e-4
    fixed = FixedArms(policy, arms)
    theta = torch.linspace(-0.6, 0.6, 8, dtype=D)
    means = torch.sigmoid(3.0 * arms.double() @ theta).tolist()
    uniform = torch.rand(10_000, generator=torch.Generator().manual_seed(0)).tolist()
    ties = 0
    for u in uniform:
        k, other = int(fixed.select()), int(twin.select(arms))
        if k != other:
            ties += 1
            scores = twin(arms)
            assert abs(float(scores[k] - scores[other])) <= tolerance * float(scores.abs().max())
        reward = float(u < means[k])
        fixed.step(None, k, reward)
        twin.step(arms, k, reward)
    assert ties < 100
    assert differences(snapshot(twin.estimator), snapshot(policy.estimator)) == []
    agrees(fixed, tolerance)


@pytest.mark.parametrize(("batch", "has_own"), [((), False), ((3,), False), ((2, 3), True)])
@every_maker
def test_scores_are_those_of_the_policy(name: str, batch: tuple[int, ...], has_own: bool) -> None:
    fixed = FixedArms(MAKERS[name](batch_shape=batch), some_arms(ARMS, *(batch if has_own else ())))
    agrees(fixed)
    for reward in clicks(40, *batch):
        fixed.step(None, fixed.select(), reward)
        agrees(fixed)


# Widths and predictors of their own are refused by name.
OWN = {RobustUCBRegression: "_squared_width", BTCRegression: "predictor", BMMRegression: "predictor"}
OWN |= {DiagonalRidgeRegression: "_squared_width"}
SINGLE = [
    cls for cls in public_classes(Estimator) if "outputs" not in inspect.signature(cls).parameters and cls not in OWN
]


@pytest.mark.parametrize("cls", OWN)
def test_an_estimator_with_a_width_or_predictor_of_its_own_is_refused_by_name(cls: Any) -> None:
    with pytest.raises(TypeError, match=rf"policy: expected .* got {cls.__name__} with its own {OWN[cls]}"):
        FixedArms(UCB(cls(**{name: REQUIRED[name] for name in required(cls)})), torch.eye(3))


@pytest.mark.parametrize("cls", SINGLE)
def test_all_estimators_are_followed(cls: Any) -> None:
    """Widths are those of the estimator, to rounding, in every round and with every option that changes the path."""
    parameters = inspect.signature(cls).parameters
    known = [
        {},
        *({name: VARIANTS[name][0]} for name in ("moment_order", "restart_every", "floor") if name in parameters),
    ]
    for options in known:
        arms = some_arms(5, dim=3)
        fixed = FixedArms(cls(**{name: REQUIRED[name] for name in required(cls)} | options), arms)
        for t, reward in enumerate(clicks(30)):
            fixed.step(None, t * t % 5, reward)
            allowance = fixed.estimator.width_allowance()
            squares = fixed.squares + (0.0 if allowance is None else allowance * fixed.square_lengths)
            close(squares.clamp(min=1e-38).sqrt(), fixed.estimator.width(arms), 1e-7)
            close(fixed(), UCB(fixed.estimator)(arms), 1e-7)


@pytest.mark.parametrize(
    "name", ["OFUL", "AnytimeHeavyTailUCB", "LocalGLB", "discounted", "discounted, heavy tails", "raised"]
)
def test_squares_are_seldom_computed_anew(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An estimator that is followed costs a product of all arms with M only now and then."""
    fixed, products = FixedArms(MAKERS[name](), some_arms()), []

    def counted(arms: Any, matrix: Any) -> Any:
        products.append(arms.shape[-2] == ARMS)
        return exact(arms, matrix)

    exact = moving_squares.exact_squares
    monkeypatch.setattr(moving_squares, "exact_squares", counted)
    play(fixed, clicks(400))
    assert sum(products) < 40
    agrees(fixed)


@pytest.mark.parametrize("batch", [(), (2,)])
@pytest.mark.parametrize("count", [ARMS, 2])
def test_errors_are_gone_after_8d_rounds(count: int, batch: tuple[int, ...]) -> None:
    """Every arm gets an exact square in turn, so that what rounding has done to the squares is forgotten."""
    fixed = FixedArms(OFUL(DIM, batch_shape=batch), some_arms(count))
    play(fixed, clicks(11, *batch))
    with torch.no_grad():
        fixed.squares.mul_(1.001)
    before = fixed.policy(fixed.arms.expand(*batch, *fixed.arms.shape))
    assert not torch.allclose(fixed(), before, rtol=1e-6)
    play(fixed, clicks(8 * DIM, *batch))
    agrees(fixed)


@pytest.mark.parametrize("is_one_hot", [False, True])
def test_an_estimator_that_moves_otherwise_is_right_too(is_one_hot: bool) -> None:
    arms = torch.eye(DIM, dtype=D) if is_one_hot else some_arms()
    fixed = FixedArms(Fading(DIM), arms)
    for reward in clicks(20):
        fixed.step(None, fixed.select(), reward)
        agrees(fixed)


def test_squares_shrink_without_the_errors_of_large_ones() -> None:
    """Long features make M small in d rounds. In single precision, errors of the first M would be 1 % of the squares then."""
    arms = torch.nn.functional.normalize(some_arms(40, dim=32), dim=-1)
    for make in (OFUL(32, dtype=torch.float32), DiscountedRidgeRegression(32, discount=0.99, dtype=torch.float32)):
        fixed = FixedArms(make, 100.0 * arms)
        for t, reward in enumerate(clicks(100)):
            fixed.step(None, 7 * t % 40, reward)
            if t > 40:
                exact = moving_squares.exact_squares(fixed.arms.double(), fixed.estimator.width_matrix().double())
                close(fixed.squares.double() / exact, torch.ones(40, dtype=D), 2e-3)


def test_users_policies_have_their_scores() -> None:
    fixed = FixedArms(Halved(AnytimeHeavyTailUCB(DIM).estimator), some_arms())
    play(fixed, clicks(20))
    agrees(fixed)
    assert to_torchscript(fixed).select() == fixed.select()


def test_an_estimator_is_played_by_ucb() -> None:
    fixed = FixedArms(RidgeRegression(DIM), some_arms())
    assert type(fixed.policy) is UCB
    assert fixed.estimator is fixed.policy.estimator


# Masks and probabilities.


@pytest.mark.parametrize("batch", [(), (2,)])
@pytest.mark.parametrize("name", ["AnytimeHeavyTailUCB", "raised", "Greedy", *RANDOM])
def test_masks_and_probabilities_are_those_of_the_policy(name: str, batch: tuple[int, ...]) -> None:
    arms = some_arms(ARMS, *batch)
    fixed = FixedArms((MAKERS | RANDOM)[name](batch_shape=batch), arms)
    mask = torch.rand(*batch, ARMS, generator=torch.Generator().manual_seed(2)) < 0.5
    mask[..., 3] = True
    for reward in clicks(12, *batch):
        fixed.step(None, torch.full(batch, 3), reward)
        for available in (None, mask, mask.numpy(), mask.tolist()):
            close(fixed.probabilities(mask=available), fixed.policy.probabilities(arms, available), 1e-8)
            torch.manual_seed(0)
            index = fixed.select(mask=available)
            torch.manual_seed(0)
            drawn, probability = fixed.select_with_probability(mask=available)
            assert index.shape == drawn.shape == probability.shape == batch
            assert bool((probability > 0.0).all())
            for chosen in (index, drawn):
                assert available is None or bool(mask.gather(-1, chosen.unsqueeze(-1)).all())


# Somebody else moves the estimator.


def step_outside(fixed: FixedArms) -> None:
    fixed.estimator.step(torch.linspace(0.1, 0.4, DIM, dtype=D), 1.0)


def step_tensors(fixed: FixedArms) -> None:
    fixed.estimator.is_small = False
    step_outside(fixed)


def load_another(fixed: FixedArms) -> None:
    """Another state after as many rounds, with the same estimate of 0."""
    other, rounds = copy.deepcopy(fixed.estimator), int(fixed.estimator.rounds)
    fixed.estimator.reset()
    other.reset()
    fixed.estimator.step(torch.tensor([[0.5, 0.5] + [0.0] * 4] * rounds, dtype=D), torch.zeros(rounds))
    other.step(torch.tensor([[0.5, -0.5] + [0.0] * 4] * rounds, dtype=D), torch.zeros(rounds))
    fixed.select()
    fixed.estimator.load_state_dict(other.state_dict())


def write(fixed: FixedArms) -> None:
    with torch.no_grad():
        fixed.estimator.width_matrix().mul_(0.25)


def put_another(fixed: FixedArms) -> None:
    fixed.policy.estimator = copy.deepcopy(fixed.estimator)
    step_outside(fixed)


OUTSIDE = [step_outside, step_tensors, load_another, write, put_another, lambda fixed: fixed.estimator.reset()]
OUTSIDE += [lambda fixed: fixed.policy.step(fixed.arms, 2, 1.0)]


@pytest.mark.parametrize("name", ["OFUL", "AnytimeHeavyTailUCB", "restarts"])
@pytest.mark.parametrize("change", OUTSIDE)
def test_changes_from_outside_are_noticed(change: Callable[[FixedArms], None], name: str) -> None:
    """By a decision, by a step without a decision, and by a copy; and a decision changes no state."""
    for looks in (True, False):
        fixed = FixedArms(MAKERS[name](), some_arms())
        play(fixed, clicks(9))
        change(fixed)
        if looks:
            before = snapshot(fixed)
            agrees(fixed)
            agrees(copy.deepcopy(fixed))
            agrees(fixed)
            assert differences(before, snapshot(fixed)) == []
        fixed.step(None, 1, 1.0)
        agrees(fixed)
        play(fixed, clicks(9))
        agrees(fixed)


def test_two_catalogues_may_share_an_estimator() -> None:
    policy = OFUL(DIM)
    one, other = FixedArms(policy, some_arms()), FixedArms(policy, some_arms(3, seed=5))
    for reward in clicks(20):
        one.step(None, one.select(), reward)
        agrees(other)
        other.step(None, other.select(), 1.0 - reward)
        agrees(one)
    assert int(policy.estimator.rounds) == 40


# States.


@pytest.mark.parametrize("batch", [(), (2,)])
@pytest.mark.parametrize("name", [*MAKERS, *RANDOM])
def test_a_resumed_run_continues_bit_for_bit(name: str, batch: tuple[int, ...]) -> None:
    """From a state dict, a deep copy and a pickle; a load brings the arms."""
    make, rewards = (MAKERS | RANDOM)[name], clicks(60, *batch)
    fixed = FixedArms(make(batch_shape=batch), some_arms())
    play(fixed, rewards[:29])
    file = io.BytesIO()
    torch.save(fixed, file)
    file.seek(0)
    fresh = FixedArms(make(batch_shape=batch), some_arms(seed=7))
    fresh.load_state_dict(fixed.state_dict())
    twins = [fresh, copy.deepcopy(fixed), pickle.loads(pickle.dumps(fixed)), torch.load(file, weights_only=False)]
    for one in (fixed, *twins):
        torch.manual_seed(0)
        one.choices = torch.stack(play(one, rewards[29:]))
    for twin in twins:
        assert torch.equal(twin.choices, fixed.choices)
        assert differences(snapshot(fixed), snapshot(twin)) == []


def test_a_state_of_other_arms_is_refused() -> None:
    fixed, other = FixedArms(OFUL(DIM), some_arms()), FixedArms(OFUL(DIM), some_arms(5))
    before, state = snapshot(fixed), snapshot(fixed)
    with pytest.raises(RuntimeError, match=r"arms: expected shape \(9, 6\), got \(5, 6\)"):
        fixed.load_state_dict(other.state_dict())
    state["arms"][0, 0] = torch.inf
    with pytest.raises(RuntimeError, match=r"arms: expected finite (values|numbers), got infinity"):
        fixed.load_state_dict(state)
    assert differences(before, snapshot(fixed)) == []


def test_reset_forgets_everything_but_the_arms() -> None:
    fixed = FixedArms(AnytimeHeavyTailUCB(DIM), some_arms())
    start = snapshot(fixed)
    play(fixed, clicks(20))
    fixed.reset()
    assert differences(start, snapshot(fixed)) == []
    agrees(fixed)


def test_looking_changes_nothing_and_buffers_stay() -> None:
    fixed = FixedArms(OFUL(DIM), some_arms())
    addresses = {name: buffer.data_ptr() for name, buffer in fixed.named_buffers()}
    play(fixed, clicks(20))
    before = snapshot(fixed)
    fixed()
    fixed.select()
    fixed.select_with_probability()
    fixed.probabilities()
    assert differences(before, snapshot(fixed)) == []
    assert {name: buffer.data_ptr() for name, buffer in fixed.named_buffers()} == addresses
    with pytest.raises(AttributeError, match="arms: expected no assignment, got one; use add_arms"):
        fixed.arms = some_arms(3)
    with pytest.raises(AttributeError, match="policy: expected "):
        fixed.policy = OFUL(DIM)


def test_no_gradient_enters() -> None:
    arms = some_arms().requires_grad_()
    fixed = FixedArms(OFUL(DIM), arms)
    fixed.step(None, 2, torch.tensor(1.0, requires_grad=True), noise_scale=torch.tensor(0.5, requires_grad=True))
    assert not any(buffer.requires_grad for buffer in fixed.buffers())
    with torch.inference_mode():
        play(fixed, clicks(5))
    play(fixed, clicks(5))
    agrees(fixed)
    assert not any(buffer.is_inference() for buffer in fixed.buffers())
    with torch.no_grad():
        arms.zero_()  # a copy was kept
    agrees(fixed)


@pytest.mark.parametrize("move", [lambda f: f.double(), lambda f: f.float(), lambda f: f._apply(torch.clone)])
def test_moving_works(move: Callable[[Any], Any]) -> None:
    fixed = FixedArms(AnytimeHeavyTailUCB(DIM), some_arms())
    play(fixed, clicks(20))
    move(fixed)
    tolerance = 1e-10 if fixed.arms.dtype == D else 1e-4
    agrees(fixed, tolerance)
    play(fixed, clicks(20))
    agrees(fixed, tolerance)


def test_autocast_does_not_reach() -> None:
    fixed, twin = (FixedArms(OFUL(DIM, dtype=torch.float32), some_arms()) for _ in range(2))
    for one in (fixed, twin):
        one.estimator.is_small = one.is_small = False
    with torch.autocast("cpu", dtype=torch.bfloat16):
        other = FixedArms(OFUL(DIM, dtype=torch.float32), some_arms())
        play(fixed, clicks(20))
    play(twin, clicks(20))
    assert differences(snapshot(twin), snapshot(fixed)) == []
    assert same(other.squares, FixedArms(OFUL(DIM, dtype=torch.float32), some_arms()).squares)


# Refused and interrupted steps.


@pytest.mark.parametrize("batch", [(), (2,)])
def test_bad_arguments_are_refused_by_name(batch: tuple[int, ...]) -> None:
    fixed = FixedArms(AnytimeHeavyTailUCB(DIM, batch_shape=batch), some_arms())
    play(fixed, clicks(9, *batch))
    before = snapshot(fixed)
    one, good = torch.zeros(batch, dtype=torch.int64), torch.zeros(batch, dtype=D)
    bad: list[tuple[str, Callable[[], Any]]] = []
    for action in (
        one + ARMS,
        one - 1,
        one.unsqueeze(-1).unsqueeze(-1),
        one.double(),
        "0",
        None,
        True,
        one.bool(),
        [[[0]]],
    ):
        bad.append(("action", lambda action=action: fixed.step(None, action, good)))
    for reward in (
        good + torch.nan,
        good + torch.inf,
        good + 1e200,
        torch.zeros(3),
        "1.0",
        None,
        good.to(torch.cfloat),
    ):
        bad.append(("reward", lambda reward=reward: fixed.step(None, one, reward)))
    for scale in (good + torch.nan, good - 1.0, torch.zeros(3), "1.0"):
        bad.append(("noise_scale", lambda scale=scale: fixed.step(None, one, good, noise_scale=scale)))
    ones = torch.ones((*batch, ARMS), dtype=torch.bool)
    for mask in (~ones, ones[..., 1:], ones.double(), "True", 1):
        bad += [
            ("mask", lambda mask=mask, ask=ask: ask(mask=mask))
            for ask in (fixed.select, fixed.select_with_probability, fixed.probabilities)
        ]
    rows = torch.zeros(*batch, 3, dtype=torch.int64)
    bad.append(
        ("reward", lambda: fixed.step(None, rows, torch.tensor([0.0, torch.nan, 0.0], dtype=D).expand(rows.shape)))
    )
    for name, call in bad:
        with pytest.raises((ValueError, TypeError)) as caught:
            call()
        assert str(caught.value).startswith(f"{name}: expected "), caught.value
        assert caught.type in (ValueError, TypeError)
        assert differences(before, snapshot(fixed)) == []
    agrees(fixed)


def test_bad_arms_are_refused_by_name() -> None:
    policy = OFUL(DIM, batch_shape=(2,))
    good = some_arms()
    nan = good.clone()
    nan[1, 1] = torch.nan
    wrong = (good[:, 1:], good[:0], good[0], good.expand(3, ARMS, DIM), nan, good * 1e200, "arms", good.long(), None)
    for arms in wrong:
        with pytest.raises((ValueError, TypeError), match=r"^arms: expected "):
            FixedArms(policy, arms)
    fixed = FixedArms(policy, good)
    before = snapshot(fixed)
    for features in (*wrong, good.expand(2, ARMS, DIM)):
        with pytest.raises((ValueError, TypeError), match=r"^features: expected "):
            fixed.add_arms(features)
    for ids in (3, "01", [ARMS], [-1], [0, 0], list(range(ARMS)), [0.5], [True]):
        with pytest.raises((ValueError, TypeError), match=r"^ids: expected "):
            fixed.remove_arms(ids)
    fixed.remove_arms([])
    assert differences(before, snapshot(fixed)) == []
    FixedArms(OFUL(DIM, validate=False), nan)


class OwnScores(UCB):
    """A user's policy whose scores are not made of predictors and widths."""

    def _scores(self, features: Tensor) -> Tensor:
        return self.estimator.width(features)


class OwnWidth(RidgeRegression):
    """A user's estimator with a width of its own."""

    def width(self, x: Tensor) -> Tensor:
        return 2.0 * super().width(x)


def test_what_cannot_be_followed_is_refused_by_name() -> None:
    changed = OFUL(DIM)
    changed.__dict__["_scores"] = changed._scores
    policies: list[Any] = [
        ThompsonSampling(RidgeRegression(DIM)),
        OwnScores(RidgeRegression(DIM)),
        UCB(OwnWidth(DIM)),
        changed,
    ]
    policies += [
        GLMUCB(DIM, horizon=9),
        RSGLinCB(DIM, horizon=9),
        DisjointArms(RidgeRegression(DIM), actions=2),
        "OFUL",
    ]
    for policy in policies:
        with pytest.raises(TypeError, match=rf"^policy: expected .*, got (a )?{type(policy).__name__}|OwnWidth|str"):
            FixedArms(policy, some_arms())


def test_a_round_that_the_estimator_refuses_blames_the_inputs() -> None:
    arms = some_arms()
    arms[3] *= 1e40
    fixed = FixedArms(OFUL(DIM), arms)
    play(fixed, clicks(5)) if False else fixed.step(None, 1, 1.0)
    before = snapshot(fixed)
    for action, reward in ((3, 1.0), ([1, 3], [1.0, 0.0]), ([1, 2, 3], [1.0] * 3)):
        with pytest.raises(ValueError, match=r"^inputs: expected a round that adds less than") as caught:
            fixed.step(None, action, reward)
        assert caught.type is ValueError
        assert differences(before, snapshot(fixed)) == []
    fixed.step(None, 1, 1.0)
    long = FixedArms(LocalGLB(DIM), 2.0 * some_arms())
    before = snapshot(long)
    with pytest.raises(ValueError, match=r"^inputs: expected features of norm at most 1, "):
        long.step(None, 0, 1.0)
    assert differences(before, snapshot(long)) == []


def assert_never_torn(fixed: FixedArms, step: Callable[[], None], after: dict[str, Any]) -> None:
    """Interrupt a step at each line: the state is that of before it or that after it."""
    start, line = snapshot(fixed), 0
    while interrupted(step, line, at_with=False):
        now = snapshot(fixed)
        assert differences(start, now) == [] or differences(after, now) == [], f"torn at line {line}"
        agrees(fixed)
        fixed.load_state_dict(start)
        line += 1
    assert line > 50
    assert differences(after, snapshot(fixed)) == []


@pytest.mark.slow
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("name", ["OFUL", "AnytimeHeavyTailUCB"])
def test_an_interrupted_step_is_all_or_nothing(name: str, rows: int) -> None:
    """At every line: bit for bit the state before, or that after. Then it goes on."""
    fixed, done = (FixedArms(MAKERS[name](), some_arms()) for _ in range(2))
    play(fixed, clicks(7))
    start = snapshot(fixed)
    done.load_state_dict(start)
    action, reward = (1, 1.0) if rows == 1 else ([1, 0, 1], [1.0, 0.0, 1.0])
    done.step(None, action, reward)
    assert_never_torn(fixed, lambda: fixed.step(None, action, reward), snapshot(done))


@pytest.mark.slow
def test_large_fixed_arms_undo_an_interrupted_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core, "SNAPSHOT_BYTES", 0)
    fixed, done = (FixedArms(AnytimeHeavyTailUCB(DIM), some_arms()) for _ in range(2))
    play(fixed, clicks(7))
    done.load_state_dict(snapshot(fixed))
    done.step(None, 1, 1.0)
    assert_never_torn(fixed, lambda: fixed.step(None, 1, 1.0), snapshot(done))


# Several rounds, other values, other arms.


@pytest.mark.slow
@pytest.mark.parametrize("batch", [(), (2,)])
@pytest.mark.parametrize("rows", [0, 1, 3, 40])
@every_maker
def test_several_rounds_equal_one_by_one(name: str, rows: int, batch: tuple[int, ...]) -> None:
    one, other = (FixedArms(MAKERS[name](batch_shape=batch), some_arms()) for _ in range(2))
    generator = torch.Generator().manual_seed(0)
    actions = torch.randint(0, ARMS, (*batch, rows), generator=generator)
    rewards, scales = clicks(rows, *batch).movedim(0, -1), 0.5 + torch.rand(*batch, rows, generator=generator, dtype=D)
    one.step(None, actions, rewards, noise_scale=scales)
    for t in range(rows):
        other.step(None, actions[..., t], rewards[..., t], noise_scale=scales[..., t])
    for key, value in snapshot(other).items():
        if key == "largest_image":  # since the squares were exact, as they are after a block
            continue
        close(snapshot(one)[key], value, 1e-11)
    agrees(one)


def test_a_block_in_many_dimensions_is_followed_or_ends_exact() -> None:
    arms, generator = some_arms(7, dim=40), torch.Generator().manual_seed(0)
    for rows in (3, 5, 60):
        fixed = FixedArms(AnytimeHeavyTailUCB(40), arms)
        fixed.step(None, torch.randint(0, 7, (rows,), generator=generator), clicks(rows))
        assert int(fixed.estimator.rounds) == rows
        agrees(fixed)


def test_people_s_values_are_welcome() -> None:
    arms = some_arms()
    fixed = FixedArms(OFUL(DIM), arms.tolist())
    assert same(fixed.arms, FixedArms(OFUL(DIM), arms.numpy()).arms)
    twins = [copy.deepcopy(fixed) for _ in range(5)]
    for twin, (action, reward) in zip(
        twins,
        [(2, 1), (torch.tensor(2), torch.tensor(1.0)), (torch.tensor([2]).numpy()[0], True), ([2], [1.0]), (2, 1.0)],
        strict=True,
    ):
        twin.step(None, action, reward)
        close(twin(), twins[0](), 1e-12)
    fixed.step(None, [1, 2], torch.tensor([0.5, 1.0]).numpy(), noise_scale=[1.0, 2])
    assert repr(fixed).startswith("FixedArms(\n  arms=9, dim=6, batch_shape=()\n")


@pytest.mark.parametrize("batch", [(), (2,)])
@pytest.mark.parametrize("name", ["OFUL", "AnytimeHeavyTailUCB", "Greedy"])
def test_arms_come_and_go(name: str, batch: tuple[int, ...]) -> None:
    """The others keep their squares to the bit, and all scores are right."""
    own = some_arms(ARMS, *batch)
    fixed = FixedArms(MAKERS[name](batch_shape=batch), own)
    play(fixed, clicks(11, *batch))
    before = snapshot(fixed)
    fixed.add_arms(some_arms(3, *batch, seed=3))
    fixed.remove_arms([0, ARMS + 1])
    kept = [*range(1, ARMS + 1), ARMS + 2]
    assert same(fixed.arms, torch.cat([own, some_arms(3, *batch, seed=3)], -2)[..., kept, :])
    if fixed.squares is not None:
        assert same(fixed.squares[..., : ARMS - 1], before["squares"][..., 1:])
    agrees(fixed)
    play(fixed, clicks(20, *batch))
    agrees(fixed)
    twin = FixedArms(MAKERS[name](batch_shape=batch), fixed.arms)
    twin.load_state_dict(fixed.state_dict())
    assert differences(snapshot(fixed), snapshot(twin)) == []
    fixed.estimator.reset()
    fixed.remove_arms(torch.tensor([1]))
    agrees(fixed)
    assert fixed.select().shape == batch


# Files, devices, threads.


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "batch"), [*((name, ()) for name in MAKERS | RANDOM), ("OFUL", (2,)), ("SquareCB", (2,))]
)
def test_files_go_on_learning(name: str, batch: tuple[int, ...]) -> None:
    fixed = FixedArms((MAKERS | RANDOM)[name](batch_shape=batch), some_arms())
    play(fixed, clicks(9, *batch))
    before, script = snapshot(fixed), to_torchscript(fixed)
    assert differences(before, snapshot(fixed)) == []
    mask = torch.ones(*batch, ARMS, dtype=torch.bool)
    mask[..., 2] = False
    for reward in clicks(25, *batch):
        torch.manual_seed(0)
        k = fixed.select(mask=mask)
        torch.manual_seed(0)
        theirs = script.select(None, mask)
        scores = fixed()
        # Rounding may tell equal scores apart.
        close(scores.gather(-1, k.unsqueeze(-1)), scores.gather(-1, theirs.unsqueeze(-1)), 1e-9)
        close(script.probabilities(), fixed.probabilities(), 1e-8) if name in RANDOM else None
        fixed.step(None, k, reward)
        script.step(None, k, reward)
        close(script(), fixed(), 1e-9)
    # Whoever steps the estimator in the file is noticed there too.
    x = fixed.arms[3].expand(*batch, DIM)
    for module in (fixed, script):
        module.policy.step(x.unsqueeze(-2), torch.zeros(batch, dtype=torch.int64), torch.ones(batch, dtype=D))
    close(script(), fixed(), 1e-9)
    scripted_rows = torch.zeros(*batch, 2, dtype=torch.int64)
    for module in (fixed, script):
        module.step(None, scripted_rows, torch.ones(*batch, 2, dtype=D), noise_scale=torch.ones(*batch, 2, dtype=D))
    close(script(), fixed(), 1e-9)
    script.load_state_dict(before, strict=False)
    fixed.load_state_dict(before)
    close(script(), fixed(), 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "batch"), [("OFUL", ()), ("AnytimeHeavyTailUCB", (2,)), ("restarts", ()), ("Greedy", ())]
)
def test_programs_agree_over_100_rounds(name: str, batch: tuple[int, ...]) -> None:
    fixed = FixedArms(MAKERS[name](batch_shape=batch), some_arms())
    play(fixed, clicks(5, *batch))
    program = to_program(fixed).module()
    mask, k = torch.ones(*batch, ARMS, dtype=torch.bool), fixed.select()
    for t, reward in enumerate(clicks(100, *batch)):
        learn = torch.full(batch, t % 4 != 3)
        theirs, learnt = program(k, reward, learn, mask)
        assert torch.equal(learnt, learn)
        if t % 4 != 3:
            fixed.step(None, k, reward)
        k, scores = fixed.select(), fixed()
        close(scores.gather(-1, theirs.unsqueeze(-1)), scores.gather(-1, k.unsqueeze(-1)), 1e-9)


def test_a_file_holds_the_statistics_once() -> None:
    fixed = FixedArms(OFUL(64), some_arms(3, dim=64))
    fixed.select()
    assert len(pickle.dumps(fixed)) < 2.3 * 64 * 64 * 8
    file = io.BytesIO()
    torch.jit.save(to_torchscript(fixed), file)
    assert len(file.getvalue()) < 2.5 * 64 * 64 * 8 + 200_000


@pytest.mark.slow
def test_runs_on_a_device_of_its_own() -> None:
    for name in ("FixedArms(OFUL)", "FixedArms(AnytimeHeavyTailUCB)", "FixedArms(EpsilonGreedy)"):
        assert fake_device.failures(name) == []


def test_is_made_without_values() -> None:
    for place in (torch.device("meta"), FakeTensorMode()):
        with place:
            made = FixedArms(OFUL(DIM), torch.ones(3, DIM))
        assert made.squares.shape == (3,)


def test_threads_lose_no_round() -> None:
    """Also those who step the estimator themselves."""
    fixed = FixedArms(AnytimeHeavyTailUCB(DIM), some_arms())

    def learn() -> None:
        for number in range(60):
            fixed.step(None, int(fixed.select()), float(number % 2))

    def outside() -> None:
        for number in range(60):
            fixed.estimator.step(fixed.arms[number % ARMS], 1.0)

    def look() -> None:
        for _ in range(60):
            copy.deepcopy(fixed)
            fixed.state_dict()

    together(learn, outside, learn, look)
    assert int(fixed.estimator.rounds) == 180
    agrees(fixed)
