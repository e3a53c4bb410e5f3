"""Base of the policies with a rule of choice and their own state."""

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from torchonline.core.backend import SMALL_STEP
from torchonline.core.delegated import delegated
from torchonline.core.learner import Learner
from torchonline.policies.policy import Policy
from torchonline.policies.rules import Rule
from torchonline.regression.estimator import Estimator


class PolicyLearner(Policy, Learner):
    """Base of the policies with a rule of choice and their own state.

    The estimator and the subclass's own buffers change together or not at all.
    """

    if TYPE_CHECKING:
        policy: Rule

    response, output_shape, takes_mask = "reward", (), False
    held_by = "policy.policy.estimator"

    def __init__(self, policy: Rule, batch_shape: tuple[int, ...], dim: int) -> None:
        state, estimator = policy.estimator.theta_hat, policy.estimator
        options: Any = {"dtype": state.dtype, "device": state.device, "validate": estimator.validate}
        Learner.__init__(self, dim, batch_shape=batch_shape, **options)
        self.policy, self.is_random = policy, policy.is_random
        # Otherwise a file would hold the parts twice.
        self.__dict__["_arguments"] = {}
        self.noise_scale = estimator.noise_scale
        self.is_small = estimator.runs_on_arrays and math.prod(batch_shape) * estimator.dim**2 < SMALL_STEP

    @delegated
    def estimator(self) -> Estimator:  # type: ignore[override]
        """The rule's estimator. Python only."""
        return self.policy.estimator

    @delegated
    def theta_hat(self) -> Tensor:
        """The estimator's parameter. Python only.

        Its shape is ``(*B, d)``; with a model for each arm, ``(*B, K, d)``.
        """
        return self.policy.estimator.theta_hat

    @delegated
    def learner(self) -> Learner:  # type: ignore[override]
        """The policy itself, which holds the state. Python only."""
        return self

    @delegated
    def _rule(self) -> Rule:
        """The rule of choice. Python only."""
        return self.policy

    def parts(self) -> dict[str, Learner]:
        return {"policy.estimator": self.policy.estimator}

    def choice(self, scores: Tensor, rounds: Tensor) -> Tensor:
        return self.policy.choice(scores, rounds)

    def distribution(self, scores: Tensor, rounds: Tensor) -> Tensor:
        return self.policy.distribution(scores, rounds)

    def _draws(self) -> int:
        return self.policy.draws

    def _like(self) -> Tensor:
        return self.policy.estimator.theta_hat

    def _dims(self) -> int:
        return self.batch_dims

    def _own_scale(self, reward: Tensor) -> Tensor:
        return torch.full_like(reward, self.noise_scale)

    # TorchScript does not compile the methods below.

    def _template(self) -> Rule:
        """Return the rule that the constructor takes."""
        return self.policy

    def _params(self) -> dict[str, Any]:
        found = super()._params()
        if "policy" in found:
            found["policy"] = self._template()
        return found

    def __setstate__(self, state: dict[str, Any]) -> None:
        # Checkpoints of version 0.1 lack this attribute.
        Learner.__setstate__(self, {"is_random": state["_modules"]["policy"].is_random} | state)

    reset = Learner.reset

    def _owners(self) -> tuple[Any, Any]:
        return self, self._modules["policy"]._modules["estimator"]  # type: ignore[union-attr]

    def _is_on_arrays(self) -> bool:
        return self._modules["policy"]._is_on_arrays()  # type: ignore[union-attr, operator]

    def _is_ordinary(self, reward: Any) -> bool:
        return self._owners()[1]._is_ordinary(reward)

    def _check_rewards(self, reward: Tensor, noise_scale: Tensor | None) -> None:
        self.policy.estimator._check_rewards(reward, noise_scale)
