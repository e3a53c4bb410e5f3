"""Gymnasium environment of a table of rewards or of a log."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchonline.core.checks import check_shape, check_values, positive_integer, shape_text
from torchonline.core.inputs import ArrayLike, as_indices, as_tensor, check_indices
from torchonline.core.messages import install_extra

try:
    import gymnasium
except ImportError as error:
    raise ImportError(f"TableBandit: expected gymnasium, got none; {install_extra('gymnasium')}") from error

CPU = torch.device("cpu")


class TableBandit(gymnasium.Env[np.ndarray, np.int64]):
    """Gymnasium environment of a contextual bandit, from a table or a log.

    An episode is one decision. :meth:`reset` draws a row without replacement and returns its context. :meth:`step` returns the
    reward of the chosen arm, and ends the episode: ``terminated`` is True. After the last row a new pass begins, in a new order.

    A log knows the reward of one arm in each row. If another arm is chosen, the episode goes on with the next row, the reward is
    0 and ``info["is_known"]`` is False: do not learn or count such steps. If rows are independent and actions were drawn
    uniformly, the other steps are distributed as in a live run. For logs of other actions, see
    :func:`torchonline.off_policy.replay`, which weights them.

    Args:
        contexts: ``(T, ...)``: contexts ``(T, d)``, or the arms' features ``(T, K, d)``.
        rewards: ``(T, K)``; NaN where the reward is not known.

    Attributes:
        observation_space: a ``Box`` from the smallest to the largest contexts, float64.
        action_space: ``Discrete(K)``.

    Raises:
        ImportError: gymnasium is not installed.
        TypeError, ValueError: an array has a wrong type or shape, a context is not finite, or a reward is infinite.

    Example:
        >>> from torchonline import bandit
        >>> environment = TableBandit(torch.rand(100, 2), torch.eye(3)[torch.arange(100) % 3])
        >>> observation, info = environment.reset(seed=0)
        >>> observation, reward, terminated, truncated, info = environment.step(1)
        >>> rewards = play(bandit(2, actions=3), environment, 50)
        >>> rewards.shape
        torch.Size([50])

    Reference:
        Li, Chu, Langford and Wang, Unbiased offline evaluation of contextual-bandit-based news article recommendation algorithms,
        WSDM 2011, for logs.
    """

    def __init__(self, contexts: ArrayLike, rewards: ArrayLike) -> None:
        self.contexts = as_tensor("contexts", contexts, CPU).double().numpy().copy()
        self.rewards = as_tensor("rewards", rewards, CPU).double().numpy().copy()
        if self.rewards.ndim != 2 or 0 in self.rewards.shape:
            raise ValueError(f"rewards: expected shape (T, K) with T and K above 0, got {self.rewards.shape}")
        if self.contexts.ndim < 2 or len(self.contexts) != len(self.rewards):
            raise ValueError(f"contexts: expected shape ({len(self.rewards)}, ...), got {self.contexts.shape}")
        if not np.isfinite(self.contexts).all():
            raise ValueError("contexts: expected finite numbers, got NaN or infinity")
        if np.isinf(self.rewards).any():
            raise ValueError("rewards: expected finite numbers, or NaN where a reward is not known, got infinity")
        low, high = self.contexts.min(0), self.contexts.max(0)
        self.observation_space = gymnasium.spaces.Box(low, high, dtype=np.float64)
        self.action_space = gymnasium.spaces.Discrete(self.rewards.shape[1])
        self._left: list[int] = []
        self._row: int | None = None

    @classmethod
    def from_log(cls, contexts: ArrayLike, actions: ArrayLike, rewards: ArrayLike, arms: int) -> "TableBandit":
        """Return the environment of a log.

        Args:
            contexts: as above.
            actions: chosen arms, ``(T)``, integers from 0 to ``arms`` - 1.
            rewards: of these arms, ``(T)``.
            arms: K.
        """
        places = check_indices("actions", as_indices("actions", actions, CPU), positive_integer("arms", arms))
        known = as_tensor("rewards", rewards, CPU).double()
        if places.dim() != 1:
            raise ValueError(f"actions: expected shape (T), got {shape_text(places.shape)}")
        check_shape("rewards", known, (len(places),))
        check_values("rewards", known)
        table = torch.full((len(places), arms), torch.nan, dtype=torch.float64)
        return cls(contexts, table.scatter(1, places.unsqueeze(1), known.unsqueeze(1)))

    def __len__(self) -> int:
        """Return T, the number of rows."""
        return len(self.rewards)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Draw a row, and return its context. With a seed, a new pass begins.

        ``info["row"]`` is the row's number.
        """
        super().reset(seed=seed)
        if seed is not None:
            self._left = []
        return self._draw(), {"row": self._row}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Return a context, the reward of an arm, and whether the episode is over.

        The context is the next row's if the reward is unknown; if it is known, the same context again.
        """
        if self._row is None:
            raise RuntimeError("step: expected a call of reset() before each episode, got none")
        if isinstance(action, bool) or not self.action_space.contains(action):
            raise ValueError(f"action: expected an integer from 0 to {self.rewards.shape[1] - 1}, got {action!r}")
        row, reward = self._row, float(self.rewards[self._row, action])
        if np.isnan(reward):
            return self._draw(), 0.0, False, False, {"row": row, "is_known": False}
        self._row = None
        return self.contexts[row].copy(), reward, True, False, {"row": row, "is_known": True}

    def _draw(self) -> np.ndarray:
        """Draw the next row, and return its context."""
        if not self._left:
            self._left = self.np_random.permutation(len(self.rewards)).tolist()
        self._row = self._left.pop()
        return self.contexts[self._row].copy()


def play(policy: Any, environment: Any, decisions: int, *, seed: int | None = None) -> Tensor:
    """Let a policy decide and learn in a Gymnasium environment.

    The policy learns each known reward before the next decision. For :class:`TableBandit`, and for any environment with a
    ``Discrete`` action space whose rewards depend on the observation and the action only.

    Args:
        policy: any :class:`~torchonline.policies.policy.Policy` whose inputs are the observations.
        environment: a Gymnasium environment.
        decisions: number of decisions.
        seed: of the environment's first reset.

    Returns:
        The known rewards, float64.

    Raises:
        TypeError, ValueError: an argument is wrong, or the policy or the environment refuses an observation or an action.
    """
    observation, _ = environment.reset(seed=seed)
    rewards: list[float] = []
    for _ in range(positive_integer("decisions", decisions)):
        action = int(policy.select(observation))
        following, reward, terminated, truncated, info = environment.step(action)
        if info.get("is_known", True):
            policy.step(observation, action, reward)
            rewards.append(float(reward))
        observation = environment.reset()[0] if terminated or truncated else following
    return torch.tensor(rewards, dtype=torch.float64)
