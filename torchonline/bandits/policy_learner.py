"""Base of the learners made of a policy."""

import math
from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor

from torchonline.bandits.arguments import as_reward, rounds_of_tensors
from torchonline.bandits.estimator import Estimator
from torchonline.bandits.policies import Policy
from torchonline.core.backend import SMALL_STEP, autocasts, exactly, is_readable
from torchonline.core.checks import check_values
from torchonline.core.delegated import WithDelegated, delegated
from torchonline.core.learner import Learner
from torchonline.core.stepping import one_at_a_time

F = TypeVar("F", bound=Callable[..., Any])


def in_turn(method: F) -> F:
    """Decorate a method so that threads call it and the estimator's methods in turn."""
    return one_at_a_time(one_at_a_time(method, owner='self._modules["policy"]._modules["estimator"]'))


class PolicyLearner(WithDelegated, Learner):
    """Base of the learners made of a policy, which learn what its estimator learns.

    The estimator and what a subclass keeps beside it change together or not at all. A subclass learns from a round in
    ``_learn_round``.
    """

    if TYPE_CHECKING:
        _learn_round: Any  # of a subclass: learns from a round of each learner
        policy: Policy

    response, output_shape = "reward", ()
    held_by = "policy.policy.estimator"

    def __init__(self, policy: Policy, batch_shape: tuple[int, ...], dim: int) -> None:
        state, estimator = policy.estimator.theta_hat, policy.estimator
        options: Any = {"dtype": state.dtype, "device": state.device, "validate": estimator.validate}
        super().__init__(dim, batch_shape=batch_shape, **options)
        self.policy = policy
        # A file would hold the parts twice.
        self.__dict__["_arguments"] = {}
        self.noise_scale = estimator.noise_scale
        self.features_shape, self.response_shape = (*batch_shape, dim), batch_shape
        self.is_small = estimator.runs_on_arrays and math.prod(batch_shape) * estimator.dim**2 < SMALL_STEP

    # TorchScript compiles no property.
    __jit_unused_properties__: tuple[str, ...] = ("estimator",)

    @property
    def estimator(self) -> Estimator:
        """The policy's estimator. Python only."""
        return self.policy.estimator

    @delegated
    def theta_hat(self) -> Tensor:
        """The estimator's parameter. Python only.

        Its shape is ``(*B, d)``; with a model for each arm, ``(*B, K, d)``.
        """
        return self.policy.estimator.theta_hat

    def parts(self) -> dict[str, Learner]:
        return {"policy.estimator": self.policy.estimator}

    def _own_scale(self, reward: Tensor) -> Tensor:
        """Return the estimator's noise scale, shaped as rewards."""
        return torch.full_like(reward, self.noise_scale)

    # TorchScript does not compile the methods below.

    def _learn_tensors(self, name: str, rounds: tuple[Any, ...], action: Tensor | None = None) -> None:
        """Learn from the results of ``checked_rounds``, and the actions if there are any."""
        x, reward, noise_scale, is_one = rounds
        reward = as_reward(reward)
        if is_readable(reward):
            self._check_rewards(reward, noise_scale)
            if self.validate:
                check_values(name, x)
        with torch.no_grad(), exactly(x) if autocasts(x) else nullcontext():
            arguments = rounds_of_tensors(self, x, reward, noise_scale, is_one)
            if action is not None:
                actions = [action] if is_one else action.unbind(self.batch_dims)
                arguments = [(x, k, *rest) for (x, *rest), k in zip(arguments, actions, strict=True)]
            self._run(None, self._learn_round, arguments)

    def _one(self) -> Any:
        """Return the estimator, in a fifth of the time of ``self.policy.estimator``."""
        return self._modules["policy"]._modules["estimator"]  # type: ignore[union-attr]

    def _state(self) -> Any:
        """Return a tensor of the state's type and device."""
        return self._one()._buffers["theta_hat"]

    def _is_ordinary(self, reward: Any) -> bool:
        return self._one()._is_ordinary(reward)

    def _check_rewards(self, reward: Tensor, noise_scale: Tensor | None) -> None:
        self.policy.estimator._check_rewards(reward, noise_scale)
