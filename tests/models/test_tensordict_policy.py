"""Policies that read and write a TensorDict."""

from typing import Any

import pytest
import torch
from sklearn.datasets import load_iris
from tensordict import TensorDict
from tensordict.nn import TensorDictModule, TensorDictSequential
from torch import nn

from torchonline import OFUL, bandit
from torchonline.models import TensorDictPolicy

pytestmark = pytest.mark.fast


def test_it_decides_and_learns_among_the_modules_of_tensordict() -> None:
    """It learns iris from its own decisions, and the log-probabilities are those of its choices."""
    contexts, labels = map(torch.from_numpy, load_iris(return_X_y=True))
    torch.manual_seed(0)
    module = TensorDictPolicy(bandit(4, "binary", actions=3, explore="squarecb"))
    first = TensorDictModule(nn.Identity(), in_keys=["raw"], out_keys=["observation"])
    together = TensorDictSequential(first, module)
    for rows in torch.randperm(150).split(25) * 6:
        before = module.policy.state_dict()
        data = together(TensorDict({"raw": contexts[rows]}, batch_size=25))
        assert all(torch.equal(value, before[name]) for name, value in module.policy.state_dict().items())
        chances = module.policy.probabilities(contexts[rows])
        chosen = chances.gather(1, data["action"].unsqueeze(1)).squeeze(1)
        torch.testing.assert_close(data["action_log_prob"].exp(), chosen)
        data["next", "reward"] = (data["action"] == labels[rows]).double().unsqueeze(-1)
        module.learn(data)
    assert int(module.policy.rounds) == 900
    assert (module.policy.probabilities(contexts).argmax(-1) == labels).double().mean() > 0.9


@pytest.mark.parametrize("size", [(), (4,), (2, 3)])
def test_rounds_of_any_batch_size_are_learnt_in_order(size: tuple[int, ...]) -> None:
    module, twin = TensorDictPolicy(bandit(2, actions=3)), bandit(2, actions=3)
    data = module(TensorDict({"observation": torch.rand(*size, 2)}, batch_size=size))
    data["next", "reward"] = torch.rand(*size, 1)
    module.learn(data)
    rounds = (data["observation"].reshape(-1, 2), data["action"].reshape(-1), data["next", "reward"].reshape(-1))
    twin.learn(*rounds)
    for name, value in twin.state_dict().items():
        torch.testing.assert_close(module.policy.state_dict()[name], value)


def test_a_mask_and_other_keys() -> None:
    keys: Any = {"in_keys": ["arms", "action_mask"], "out_keys": ["k", ("more", "log_prob")], "reward_key": "reward"}
    module = TensorDictPolicy(OFUL(2), **keys)
    inputs = {"arms": torch.rand(5, 3, 2), "action_mask": torch.tensor([False, True, False]).expand(5, 3)}
    data = module(TensorDict(inputs, batch_size=5))
    assert data["k"].tolist() == [1] * 5
    assert data["more", "log_prob"].tolist() == [0.0] * 5
    data["reward"] = torch.ones(5)
    module.learn(data)
    assert int(module.policy.rounds) == 5


def test_wrong_arguments_are_refused_by_name() -> None:
    policy: Any = OFUL(2)
    with pytest.raises(TypeError, match=r"^policy: expected a policy, got Linear"):
        TensorDictPolicy(nn.Linear(2, 2))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^policy: expected no batch_shape"):
        TensorDictPolicy(OFUL(2, batch_shape=(3,)))
    with pytest.raises(ValueError, match=r"^in_keys: expected"):
        TensorDictPolicy(policy, in_keys=())
    with pytest.raises(ValueError, match=r"^out_keys: expected"):
        TensorDictPolicy(policy, out_keys=("action",))
    module = TensorDictPolicy(policy)
    with pytest.raises(KeyError, match="observation"):
        module(TensorDict({"other": torch.rand(1, 3, 2)}, batch_size=1))
    data = module(TensorDict({"observation": torch.rand(1, 3, 2)}, batch_size=1))
    data["next", "reward"] = torch.full((1, 1), torch.nan)
    with pytest.raises(ValueError, match=r"^reward: expected"):
        module.learn(data)
    assert int(policy.rounds) == 0
