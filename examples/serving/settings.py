"""What replicas, learner and load test agree on: the policy, the log and the files."""

import os
from dataclasses import dataclass, field
from pathlib import Path

from torchonline import AdaptiveRidgeRegression, DisjointArms, EpsilonGreedy, StandardScaler
from torchonline.serving import ServiceSettings
from torchonline.serving.settings import one_thread

__all__ = ["Settings", "one_thread"]


def _from(name: str, default: str) -> str:
    return os.environ.get(f"SERVING_{name}", default)


@dataclass(frozen=True)
class Settings(ServiceSettings):
    """Options of the service, from the environment: SERVING_FOLDER, SERVING_DATABASE, ..."""

    folder: Path = field(default_factory=lambda: Path(_from("FOLDER", "outputs/serving")))
    database: str = field(default_factory=lambda: _from("DATABASE", ""))
    dim: int = field(default_factory=lambda: int(_from("DIM", "16")))
    actions: int = field(default_factory=lambda: int(_from("ACTIONS", "5")))
    window: float | None = field(default_factory=lambda: float(_from("WINDOW", "60")))
    default_reward: float | None = field(default_factory=lambda: float(_from("DEFAULT_REWARD", "0")))
    every: float = field(default_factory=lambda: float(_from("EVERY", "0.5")))
    encoder: str = field(default_factory=lambda: _from("ENCODER", "v1"))
    secret: str = field(default_factory=lambda: _from("SECRET", ""), repr=False)
    undecided: int = field(default_factory=lambda: int(_from("UNDECIDED", "10000")))
    export: bool = field(default_factory=lambda: _from("EXPORT", "0") == "1")

    def make_policy(self) -> DisjointArms:
        """A model for each action, on scaled features. A twentieth of the decisions is random, for evaluation."""
        scaler = StandardScaler(self.dim, intercept=2.0)
        model = AdaptiveRidgeRegression(scaler.features, ridge=self.dim / 6)
        return DisjointArms(EpsilonGreedy(model, epsilon=0.05), self.actions, scaler=scaler)
