"""Policies that read and write a TensorDict."""

from collections.abc import Sequence
from typing import Any

import torch  # noqa: F401, for the example
from torch import Tensor

from torchonline.core.checks import instance_of
from torchonline.core.messages import install_extra
from torchonline.policies.policy import Policy

try:
    from tensordict.nn import TensorDictModuleBase
except ImportError as error:
    raise ImportError(f"TensorDictPolicy: expected tensordict, got none; {install_extra('tensordict')}") from error


class TensorDictPolicy(TensorDictModuleBase):
    """Policy on a TensorDict: observations in, actions and probabilities out.

    For the collectors, environments and ``TensorDictSequential`` of TorchRL and tensordict. A round::

        module(data)  # writes "action" and "action_log_prob"
        data["next", "reward"] = ...
        module.learn(data)

    Actions are drawn from ``policy.probabilities``, as :meth:`~torchonline.policies.policy.Policy.select_with_probability` does,
    and are integers, for a ``Categorical`` action space. The rounds of a TensorDict are learnt in order, with :meth:`learn`, and
    never by a forward pass.

    Args:
        policy: without a ``batch_shape``.
        in_keys: key of the policy's inputs; and of a mask, True where an arm is available, if there is a second key.
        out_keys: keys of the actions, int64, and of the logarithms of their probabilities.
        reward_key: of the rewards, ``(*N)`` or ``(*N, 1)`` for a batch size ``*N``.

    Example:
        >>> from tensordict import TensorDict
        >>> from torchonline import bandit
        >>> module = TensorDictPolicy(bandit(2, actions=3))
        >>> data = module(TensorDict({"observation": torch.rand(5, 2)}, batch_size=5))
        >>> data["next", "reward"] = torch.ones(5, 1)
        >>> module.learn(data)
        >>> data["action"].shape, module.policy.rounds
        (torch.Size([5]), tensor(5))
    """

    def __init__(
        self,
        policy: Policy,
        *,
        in_keys: Sequence[Any] = ("observation",),
        out_keys: Sequence[Any] = ("action", "action_log_prob"),
        reward_key: Any = ("next", "reward"),
    ) -> None:
        super().__init__()
        self.policy = instance_of("policy", policy, Policy, "a policy")
        if policy.batch_shape:
            raise ValueError(f"policy: expected no batch_shape, got {policy.batch_shape}")
        # The names and types are tensordict's.
        self.in_keys, self.out_keys = list(in_keys), list(out_keys)
        if len(self.in_keys) not in (1, 2):
            raise ValueError(f"in_keys: expected the key of the inputs, and of a mask or none, got {self.in_keys}")
        if len(self.out_keys) != 2:
            raise ValueError(f"out_keys: expected the keys of actions and of log-probabilities, got {self.out_keys}")
        self.reward_key = reward_key

    def forward(self, tensordict: Any) -> Any:
        """Write actions and log-probabilities to a TensorDict, and return it.

        Changes no state of the policy.

        Raises:
            KeyError: a key is missing.
            TypeError, ValueError: the policy refuses the inputs.
        """
        inputs, *mask = (tensordict[key] for key in self.in_keys)
        action, probability = self.policy.select_with_probability(inputs, *mask)
        tensordict[self.out_keys[0]], tensordict[self.out_keys[1]] = action, probability.log()
        return tensordict

    def learn(self, tensordict: Any) -> None:
        """Learn the rounds of a TensorDict, in order, all or nothing.

        Raises:
            KeyError: a key is missing.
            TypeError, ValueError: the policy refuses a round; the message names it as ``policy.learn`` does.
        """
        inputs, action = (tensordict[key] for key in (self.in_keys[0], self.out_keys[0]))
        reward = tensordict[self.reward_key]
        if reward.dim() == action.dim() + 1 and reward.size(-1) == 1:
            reward = reward.squeeze(-1)
        self.policy.learn(
            _in_order(inputs, action.dim()), _in_order(action, action.dim()), _in_order(reward, action.dim())
        )


def _in_order(value: Tensor, dims: int) -> Tensor:
    """Flatten the batch size to one dimension: ``(*N, ...)`` to ``(n, ...)``."""
    return value.unsqueeze(0) if dims == 0 else value.flatten(0, dims - 1)
