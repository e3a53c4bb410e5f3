"""Constructor arguments of learners and policies, as scikit-learn's tools ask for them."""

from typing import Any

import pytest
import torch
from sklearn.base import BaseEstimator, clone
from sklearn.model_selection import GridSearchCV
from torch import nn

from tests import convex_learners, private_learners
from tests.learners import CASES, Case
from torchonline import (
    DPTOFW,
    OFUL,
    UCB,
    CatalogueArms,
    DisjointArms,
    EpsilonGreedy,
    FixedArms,
    HybridArms,
    RadiusSelector,
    RidgeRegression,
    ScaledPolicy,
    SharedRadiusSelector,
    StandardScaler,
    bandit,
)
from torchonline.models import BanditHead

pytestmark = pytest.mark.fast


def state_of(learner: nn.Module) -> dict[str, Any]:
    """The state, with its types and devices."""
    return {name: (value.dtype, value.device, value.tolist()) for name, value in learner.state_dict().items()}


def places(module: nn.Module) -> set[int]:
    """Where its parameters and buffers lie."""
    return {tensor.data_ptr() for tensor in (*module.parameters(), *module.buffers()) if tensor.numel()}


@pytest.mark.slow
@pytest.mark.parametrize("case", [*CASES, *convex_learners.CASES, *private_learners.CASES], ids=str)
@pytest.mark.filterwarnings("ignore:meta. 'paper':UserWarning")
def test_a_clone_is_a_new_learner_of_the_same_arguments(case: Case) -> None:
    dtype = torch.float64 if case.cls.__name__ == "DPUCB" else torch.float32
    learner: Any = case.build(batch_shape=(2,), dtype=dtype)
    twin = clone(learner)
    assert type(twin) is type(learner)
    assert twin is not learner
    assert repr(twin) == repr(learner)
    names = [name for name in learner.state_dict() if not name.rpartition(".")[-1].startswith("secret")]
    assert {name: state_of(twin)[name] for name in names} == {name: state_of(learner)[name] for name in names}
    assert places(twin).isdisjoint(places(learner))
    again = type(learner)(**learner.get_params(deep=False))
    assert repr(again) == repr(learner)


COMPOSED: dict[str, Any] = {
    "bandit": lambda: bandit(2, "binary", actions=3),
    "named actions": lambda: bandit(2, actions=["home", "sale"], explore="epsilon"),
    "arms with features": lambda: bandit(2),
    "rule": lambda: bandit(2, scale=False),
    "delta": lambda: DisjointArms(
        EpsilonGreedy(RidgeRegression(2, delta=0.07, dtype=torch.float32)), 3, most_actions=7
    ),
    "hybrid": lambda: HybridArms(EpsilonGreedy(RidgeRegression(2, delta=0.07, dtype=torch.float32)), ["a", "b"]),
    "hybrid with embeddings": lambda: HybridArms(RidgeRegression(2), 2, embeddings=[[1.0, 2.0], [0.0, 1.0]]),
    "selector": lambda: RadiusSelector(RidgeRegression(2), 3, scales=(1.0, 0.5), rule="exp4", reward_range=(0.0, 1.0)),
    "shared selector": lambda: SharedRadiusSelector(RidgeRegression(3), scales=(1.0, 0.5), scaler=StandardScaler(2)),
    "fixed": lambda: FixedArms(OFUL(2), torch.eye(2), names=["a", "b"]),
    "catalogue": lambda: CatalogueArms(OFUL(4), torch.eye(2), combine="outer", per_query=3),
    "head": lambda: BanditHead(nn.Linear(2, 2), OFUL(2), actions=3, scaler=StandardScaler(2, intercept=False)),
    "embeddings": lambda: BanditHead(nn.Linear(2, 2), OFUL(4), actions=torch.eye(2), combine="outer"),
}


@pytest.mark.parametrize("build", COMPOSED.values(), ids=COMPOSED)
def test_a_clone_of_a_composed_policy(build: Any) -> None:
    """Its state is that before the first round; the original keeps what it has learnt; an encoder is copied."""
    policy = build()
    first = state_of(policy)
    inputs = None if isinstance(policy, FixedArms) else torch.eye(2) if policy.item_dims == 2 else torch.ones(2)
    for _ in range(3):
        policy.step(inputs, policy.select(inputs), 1.0)
    learnt = state_of(policy)
    twin = clone(policy)
    assert state_of(twin) == first != learnt == state_of(policy)
    assert repr(twin) == repr(policy)
    shared = {policy.items.data_ptr()} if isinstance(policy, CatalogueArms) else set()
    assert places(twin) & places(policy) <= shared


def test_parameters_have_the_names_of_the_parts() -> None:
    policy = bandit(2, "binary", actions=["home", "sale"])
    found = policy.get_params()
    assert found["actions"] == ["home", "sale"]
    assert found["scaler__dim"] == 2
    assert found["policy__estimator__floor"] == 0.15
    assert "scaler__dim" not in policy.get_params(deep=False)
    assert OFUL(3, ridge=2.0).get_params()["ridge"] == 2.0
    assert OFUL(3).float().get_params()["dtype"] == torch.float32


def test_parameters_are_set_in_place_and_the_state_starts_anew() -> None:
    policy = bandit(2, "binary", actions=3)
    policy.step([1.0, 2.0], 1, 1.0)
    assert policy.set_params(policy__estimator__radius_scale=0.1, actions=2) is policy
    assert (policy.actions, policy.estimator.radius_scale, int(policy.rounds)) == (2, 0.1, 0)
    policy.step([1.0, 2.0], 1, 1.0)
    learner = RidgeRegression(3).float()
    learner.step(torch.ones(3), 1.0)
    learner.set_params(dim=2)
    assert learner.V.shape == (2, 2)
    assert learner.V.dtype == torch.float32
    learner.step(torch.ones(2), 1.0)
    assert int(learner.rounds) == 1


def test_the_number_of_actions_is_set_alone() -> None:
    """Without ``most_actions``, the arms that there are share delta."""
    for count in (2, 5):
        policy = DisjointArms(RidgeRegression(2, delta=0.1), 3).set_params(actions=count)
        assert policy.estimator.delta == DisjointArms(RidgeRegression(2, delta=0.1), count).estimator.delta


def test_an_encoder_stays() -> None:
    encoder = nn.Linear(2, 3)
    head = BanditHead(encoder, OFUL(3)).set_params(policy__ridge=2.0)
    assert head.encoder is encoder
    assert head.estimator.ridge == 2.0


@pytest.mark.parametrize(
    ("params", "error"),
    [
        ({"rigde": 2.0}, "rigde: expected arguments of ScaledPolicy, policy, scaler, got another name"),
        ({"policy__rigde": 2.0}, "rigde: expected arguments of UCB, estimator, got another name"),
        ({"policy__estimator__": 1}, ": expected arguments of RidgeRegression, .*, got another name"),
        ({"policy__estimator__ridge": -1.0}, "ridge: expected"),
        ({"policy__estimator__ridge__x": 2.0}, "ridge__x: expected ridge to have arguments that can be set, got float"),
    ],
)
def test_a_refused_change_changes_nothing(params: dict[str, Any], error: str) -> None:
    policy = ScaledPolicy(UCB(RidgeRegression(3)), StandardScaler(2))
    policy.step(torch.eye(2), 1, 1.0)
    estimator, before = policy.estimator, state_of(policy)
    with pytest.raises(ValueError, match=error):
        policy.set_params(scaler__clip=1.0, **params)
    assert policy.estimator is estimator
    assert state_of(policy) == before
    assert policy.scaler.clip == 2.5


def test_a_private_learner_is_set_before_its_first_release() -> None:
    learner = DPTOFW(2, horizon=5, epsilon=1.0, delta=0.001).set_params(epsilon=2.0)
    assert learner.epsilon == 2.0
    learner.step(torch.ones(2, 2))
    with pytest.raises(
        RuntimeError, match="set_params: expected a new learner instead, because a release cannot be undone"
    ):
        learner.set_params(epsilon=3.0)
    assert learner.epsilon == 2.0
    assert clone(learner).steps_released() == 0


class Reward(BaseEstimator):
    """A regression of rewards on features, as scikit-learn knows them."""

    def __init__(self, learner: Any) -> None:
        self.learner = learner

    def fit(self, X: Any, y: Any) -> "Reward":
        """Learn from a log."""
        self.learner_ = clone(self.learner)
        self.learner_.learn(X, y)
        return self

    def score(self, X: Any, y: Any) -> float:
        """Minus the mean squared error."""
        return -float((self.learner_(X) - torch.as_tensor(y)).square().mean())


def test_a_grid_search_finds_the_ridge() -> None:
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(60, 3, generator=generator, dtype=torch.float64)
    y = X @ torch.tensor([1.0, -1.0, 0.5], dtype=torch.float64)
    learner = RidgeRegression(3)
    search = GridSearchCV(Reward(learner), {"learner__ridge": [0.01, 100.0]}, cv=3).fit(X.numpy(), y.numpy())
    assert search.best_params_ == {"learner__ridge": 0.01}
    assert int(learner.rounds) == 0
