"""What a policy says of its estimator, in Python alone: dim, batch_shape, rounds, theta_hat, predict, interval and reset."""

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.learners import close, same
from torchonline import (
    OFUL,
    UCB,
    DisjointArms,
    EpsilonGreedy,
    FixedArms,
    Greedy,
    LocalGLB,
    LocalGLMRegression,
    RadiusSelector,
    RidgeRegression,
    ScaledPolicy,
    SharedRadiusSelector,
    StandardScaler,
    ThompsonSampling,
)
from torchonline.models import BanditHead
from torchonline.policies.chosen import predicted

D = torch.float64
ARMS = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]], dtype=D)
NAMES = ("dim", "batch_shape", "rounds", "theta_hat", "predict", "interval", "reset")
BUFFERS = RidgeRegression(2).state_dict().keys()


def learnt(policy: Any) -> Any:
    policy.step(ARMS.expand(3, 3, 2), torch.arange(3), torch.tensor([1.0, 0.0, 1.0]))
    return policy


@pytest.mark.parametrize("build", [OFUL, LocalGLB, Greedy, ThompsonSampling, EpsilonGreedy])
def test_a_policy_says_what_its_estimator_says(build: Any) -> None:
    policy = learnt(build(2))
    estimator = policy.estimator
    assert (policy.dim, policy.batch_shape, build(2, batch_shape=(3,)).batch_shape) == (2, (), (3,))
    assert policy.rounds is estimator.rounds
    assert policy.theta_hat is estimator.theta_hat
    arms = ARMS.clone().requires_grad_()
    assert same(policy.predict(arms), estimator(arms))
    assert all(map(same, policy.interval(arms), estimator.interval(arms)))
    policy.predict(arms).sum().backward()
    assert arms.grad is not None
    close(policy.predict(ARMS.tolist()), estimator(ARMS))
    with pytest.raises(ValueError, match=r"^inputs: expected shape"):
        policy.predict(torch.eye(3))
    policy.reset()
    assert int(policy.rounds) == 0
    assert not policy.theta_hat.any()


def test_nothing_is_kept_in_the_policy() -> None:
    """So its state, its copies and its pickles are what they were."""
    policy = learnt(OFUL(2))
    for twin in (policy, copy.deepcopy(policy), pickle.loads(pickle.dumps(policy))):
        assert not vars(twin).keys() & set(NAMES)
        assert {name.partition(".")[0] for name in twin.state_dict()} == {"estimator"}
        assert twin.theta_hat is twin.estimator.theta_hat
    assert torch.equal(twin.theta_hat, policy.theta_hat)


@pytest.mark.parametrize("build", [lambda: OFUL(2), lambda: DisjointArms(OFUL(2), 3), lambda: FixedArms(OFUL(2), ARMS)])
def test_files_have_nothing_of_it(build: Any) -> None:
    """TorchScript compiles properties, and reads them wrong from Python; it does not see these."""
    policy = build()
    own = {*policy._modules, *policy._buffers, *vars(policy)}
    scripted = torch.jit.script(policy)
    assert [name for name in NAMES if name not in own and hasattr(scripted, name)] == []


def test_compiled_code_may_read_it() -> None:
    policy = learnt(OFUL(2))
    read = torch.compile(lambda x: x + policy.theta_hat * policy.dim, backend="eager", fullgraph=True)
    close(read(ARMS), ARMS + 2.0 * policy.theta_hat)


class Own(UCB):
    """A policy that has an attribute, a buffer or a parameter of its own under each of these names."""

    def __init__(self) -> None:
        super().__init__(RidgeRegression(2))
        self.dim = "mine"  # type: ignore[assignment]
        self.register_buffer("rounds", torch.tensor(7))
        self.theta_hat = torch.nn.Parameter(torch.ones(2, dtype=D))

    def _scores(self, features: Tensor) -> Tensor:
        return self.rounds * self.estimator.predictor(features) + features @ self.theta_hat


class OwnLayer(DisjointArms):
    """A learner made of a policy that has a module of its own under such a name."""

    def __init__(self) -> None:
        super().__init__(OFUL(2), 3)
        with pytest.raises(TypeError, match="cannot assign"):  # and leaves no trace
            self.register_parameter("theta_hat", 5)  # type: ignore[arg-type]
        assert self.theta_hat is self.estimator.theta_hat
        self.add_module("theta_hat", torch.nn.Linear(2, 1))


def test_what_a_users_class_has_of_its_own_comes_first() -> None:
    policy = Own()
    policy.step([[1.0, 0.0]], 0, 1.0)
    scripted = torch.jit.script(policy)
    for twin in (policy, copy.deepcopy(policy), pickle.loads(pickle.dumps(policy)), scripted):
        assert int(twin.rounds) == 7
        assert same(twin.theta_hat.detach(), torch.ones(2, dtype=D))
        assert twin.state_dict().keys() == {"rounds", "theta_hat", *(f"estimator.{name}" for name in BUFFERS)}
        close(twin(ARMS), 7.0 * policy.estimator(ARMS) + ARMS.sum(-1))
    assert policy.dim == "mine"
    assert isinstance(OwnLayer().theta_hat, torch.nn.Linear)


@pytest.mark.parametrize("name", ["rounds", "theta_hat"])
def test_it_is_not_set_on_a_policy_of_the_library(name: str) -> None:
    """It would hide the estimator's, which stays as it is."""
    policy = Greedy(2)
    wanted = (
        rf"^{name}: expected an assignment to policy\.estimator\.{name}, got one to the Greedy, which only reads it$"
    )
    for value in (5, torch.zeros(2), torch.nn.Parameter(torch.zeros(2)), torch.nn.Linear(2, 1)):
        with pytest.raises(AttributeError, match=wanted):
            setattr(policy, name, value)
    with pytest.raises(AttributeError, match=wanted):
        policy.register_buffer(name, torch.zeros(2))
    with pytest.raises(
        AttributeError, match=r"^theta_hat: expected an assignment to policy\.policy\.estimator\.theta_hat"
    ):
        DisjointArms(OFUL(2), 3).theta_hat = torch.zeros(3, 2)
    assert policy.state_dict().keys() == {f"estimator.{key}" for key in BUFFERS}


def test_an_option_of_the_estimator_is_not_set() -> None:
    for build in (OFUL, Greedy):
        with pytest.raises(AttributeError, match=r"^dim: expected 2, the estimator's, got 3; construct another "):
            build(2).dim = 3


def test_composed_policies_predict_the_mean_of_each_arm() -> None:
    """On scaled features, by the arm's own model, and for arms that stay; the same as is said of a chosen arm."""
    scaled = learnt(ScaledPolicy(LocalGLMRegression(2, feature_bound=9.0), StandardScaler(2, intercept=False)))
    shared = SharedRadiusSelector(RidgeRegression(2))
    shared.step(ARMS, 1, 0.5)
    each = [DisjointArms(LocalGLMRegression(2), 3), RadiusSelector(RidgeRegression(2, batch_shape=(2,)), 3)]
    each[0].step(ARMS, [0, 1, 2], [1.0, 0.0, 1.0])
    each[1].step(ARMS[:2], [0, 1], [1.0, 0.5])
    for policy, x in ((scaled, ARMS), (shared, ARMS), (each[0], ARMS[0]), (each[1], ARMS[:2])):
        means = policy.predict(x)
        assert means.shape == policy(x).shape
        for k in range(3):
            action = torch.full(means.shape[:-1], k)
            found = predicted(policy, x, action)
            for part, wanted in zip((means, *policy.interval(x)), found, strict=True):
                close(part[..., k], wanted)
        assert policy.theta_hat is policy.estimator.theta_hat
    fixed = FixedArms(OFUL(2, batch_shape=(4,)), ARMS)
    assert fixed.rounds is fixed.estimator.rounds
    assert fixed.predict().shape == (4, 3)
    close(fixed.predict(), fixed.estimator(ARMS.expand(4, 3, 2)))
    close(fixed.interval()[1], fixed.estimator.interval(ARMS.expand(4, 3, 2))[1])


@pytest.mark.parametrize("policy", [OFUL(2), DisjointArms(OFUL(2), 3)])
def test_a_head_predicts_from_raw_inputs(policy: Any) -> None:
    layer = torch.nn.Linear(4, 2, dtype=D)
    head = BanditHead(layer, policy, scaler=StandardScaler(4, intercept=False))
    inputs = torch.arange(12.0, dtype=D).reshape(3, 4)
    context = inputs if isinstance(policy, OFUL) else inputs[0]
    state = {name: value.clone() for name, value in head.state_dict().items()}
    head.step(context, 1, 0.5)
    assert int(head.rounds) == 1
    assert head.theta_hat is policy.estimator.theta_hat
    close(head.predict(context.tolist()), policy.predict(head.encode(context)))
    assert all(map(same, head.interval(context), policy.interval(head.encode(context))))
    head.predict(context).sum().backward()
    assert layer.weight.grad is not None
    with pytest.raises(
        AttributeError, match=r"^rounds: expected an assignment to head\.policy\.rounds, got one to the BanditH"
    ):
        head.rounds = torch.tensor(3)
    head.reset()
    assert all(map(same, head.state_dict().values(), state.values()))
    scripted = torch.jit.script(head.eval())
    assert not any(hasattr(scripted, name) for name in NAMES)
