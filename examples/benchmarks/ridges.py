"""LinUCB in NumPy: a ridge regression for each arm, for many seeds and settings at once."""

from collections.abc import Sequence

import numpy as np

from torchonline.policies.scaler import magnitude

Options = dict[str, float | str]


def random_argmax(scores: np.ndarray, ties: np.ndarray) -> np.ndarray:
    """Return the index of the largest score (B, K), ties broken by the largest of ``ties`` (B, K)."""
    return np.where(scores == scores.max(-1, keepdims=True), ties, -1.0).argmax(-1)


class Ties:
    """Random numbers to break ties: one generator a member, so that no member's choices depend on the others."""

    def __init__(self, seeds: Sequence[int], actions: int) -> None:
        self.generators, self.actions = [np.random.default_rng([seed, 2]) for seed in seeds], actions

    def draw(self) -> np.ndarray:
        return np.stack([generator.random(self.actions) for generator in self.generators])


class ArmRidges:
    """A ridge regression for each of K arms, in B members: O(K m^2) to predict and O(m^2) to learn, for each member."""

    def __init__(self, ridge: np.ndarray, actions: int, dim: int) -> None:
        self.inverse = (np.eye(dim) / ridge[:, None, None])[:, None].repeat(actions, axis=1)
        self.theta = np.zeros((len(ridge), actions, dim))
        self.members = np.arange(len(ridge))

    def predict(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the estimate and the width sqrt(x' A^-1 x) of each arm, (B, K), for contexts (B, m)."""
        column = x[:, None, :, None]
        width = np.sqrt((self.inverse @ column * column).sum((-2, -1)).clip(0.0))
        return (self.theta @ x[:, :, None])[..., 0], width

    def learn(self, x: np.ndarray, arm: np.ndarray, target: np.ndarray, weight: float = 1.0) -> None:
        """Learn targets (B) of the chosen arms (B) at contexts (B, m), or unlearn them with weight -1."""
        chosen = (self.members, arm)
        direction = (self.inverse[chosen] @ x[:, :, None])[..., 0]
        denominator = 1.0 / weight + (direction * x).sum(-1)
        residual = target - (self.theta[chosen] * x).sum(-1)
        self.theta[chosen] += direction * (residual / denominator)[:, None]
        self.inverse[chosen] -= direction[:, :, None] * (direction / denominator[:, None])[:, None, :]


class LinUCB:
    """Optimism over :class:`ArmRidges`: the largest estimate + alpha width.

    Options of a member: ``alpha`` (1) and ``ridge`` (1).
    """

    def __init__(self, dim: int, actions: int, rewards: str, seeds: Sequence[int], options: Sequence[Options]) -> None:
        self.alpha = np.array([float(o.get("alpha", 1.0)) for o in options])[:, None]
        self.ridges = ArmRidges(np.array([float(o.get("ridge", 1.0)) for o in options]), actions, dim)
        self.ties = Ties(seeds, actions)

    def select(self, contexts: np.ndarray) -> np.ndarray:
        estimate, width = self.ridges.predict(contexts)
        return random_argmax(estimate + self.alpha * width, self.ties.draw())

    def step(self, contexts: np.ndarray, arms: np.ndarray, rewards: np.ndarray) -> None:
        self.ridges.learn(contexts, arms, rewards)


class MagnitudesLinUCB(LinUCB):
    """:class:`LinUCB` on standardised features, the magnitude of each as in ``StandardScaler``, and the constant.

    Nothing is clipped, and there are magnitudes however many features there are.
    """

    def __init__(self, dim: int, actions: int, rewards: str, seeds: Sequence[int], options: Sequence[Options]) -> None:
        super().__init__(2 * dim - 1, actions, rewards, seeds, options)

    def select(self, contexts: np.ndarray) -> np.ndarray:
        return super().select(self.with_magnitudes(contexts))

    def step(self, contexts: np.ndarray, arms: np.ndarray, rewards: np.ndarray) -> None:
        super().step(self.with_magnitudes(contexts), arms, rewards)

    @staticmethod
    def with_magnitudes(contexts: np.ndarray) -> np.ndarray:
        """Return (B, 2 m - 1) for contexts (B, m) that end in a constant."""
        return np.concatenate([magnitude(contexts[:, :-1]), contexts], axis=1)
