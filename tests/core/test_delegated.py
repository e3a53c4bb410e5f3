"""What a policy says of its estimator, in Python alone: dim, rounds, theta_hat, predict and reset."""

import copy
import pickle
from typing import Any

import pytest
import torch

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
    RadiusMaster,
    RidgeRegression,
    RunningScaler,
    ScaledPolicy,
    SharedRadiusMaster,
    ThompsonSampling,
)
from torchonline.bandits.chosen import predicted

D = torch.float64
ARMS = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]], dtype=D)
NAMES = ("dim", "rounds", "theta_hat", "predict", "reset")


def learnt(policy: Any) -> Any:
    policy.step(ARMS, torch.tensor([1.0, 0.0, 1.0]))
    return policy


@pytest.mark.parametrize("build", [OFUL, LocalGLB, Greedy, ThompsonSampling, EpsilonGreedy])
def test_a_policy_says_what_its_estimator_says(build: Any) -> None:
    policy = learnt(build(2))
    estimator = policy.estimator
    assert policy.dim == 2
    assert policy.rounds is estimator.rounds
    assert policy.theta_hat is estimator.theta_hat
    arms = ARMS.clone().requires_grad_()
    assert same(policy.predict(arms), estimator(arms))
    policy.predict(arms).sum().backward()
    assert arms.grad is not None
    close(policy.predict(ARMS.tolist()), estimator(ARMS))
    with pytest.raises(ValueError, match=r"^arms: expected shape"):
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
    """A policy that has attributes of its own under these names, as before there were any here."""

    def __init__(self, dim: int) -> None:
        super().__init__(RidgeRegression(dim))
        self.dim, self.rounds = "mine", 7  # type: ignore[assignment]


def test_an_attribute_of_ones_own_comes_first() -> None:
    policy = copy.deepcopy(Own(2))
    assert (policy.dim, policy.rounds) == ("mine", 7)
    assert int(policy.select(ARMS)) in range(3)


def test_an_option_of_the_estimator_is_not_set() -> None:
    with pytest.raises(AttributeError, match=r"^dim: expected 2, the estimator's, got 3; construct another OFUL"):
        OFUL(2).dim = 3


def test_composed_policies_predict_the_mean_of_each_arm() -> None:
    """On scaled features, by the arm's own model, and for arms that stay; the same as is said of a chosen arm."""
    scaled = learnt(ScaledPolicy(LocalGLMRegression(2, feature_bound=9.0), RunningScaler(2, intercept=False)))
    shared = SharedRadiusMaster(RidgeRegression(2))
    shared.step(ARMS, 1, 0.5)
    each = [DisjointArms(LocalGLMRegression(2), 3), RadiusMaster(RidgeRegression(2, batch_shape=(2,)), 3)]
    each[0].step(ARMS, [0, 1, 2], [1.0, 0.0, 1.0])
    each[1].step(ARMS[:2], [0, 1], [1.0, 0.5])
    for policy, x in ((scaled, ARMS), (shared, ARMS), (each[0], ARMS[0]), (each[1], ARMS[:2])):
        means = policy.predict(x)
        assert means.shape == policy(x).shape
        for k in range(3):
            action = torch.full(means.shape[:-1], k)
            close(means[..., k], predicted(policy, x, action)[0])
        assert policy.theta_hat is policy.estimator.theta_hat
    fixed = FixedArms(OFUL(2, batch_shape=(4,)), ARMS)
    assert fixed.predict().shape == (4, 3)
    close(fixed.predict(), fixed.estimator(ARMS.expand(4, 3, 2)))
