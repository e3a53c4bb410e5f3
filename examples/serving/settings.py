"""What replicas, learner and load test agree on: the policy, the log and the files."""

import os
import sys
from dataclasses import dataclass, field
from pathlib import Path

import torch

from torchonline import AdaptiveRidgeRegression, DisjointArms, EpsilonGreedy, RunningScaler
from torchonline.feedback import DecisionLog, FeedbackLog, SQLDecisionLog

# What one request may weigh, in bytes.
LARGEST_BODY = 1 << 20


def _from(name: str, default: str) -> str:
    return os.environ.get(f"SERVING_{name}", default)


@dataclass(frozen=True)
class Settings:
    """Options of the service, from the environment: SERVING_FOLDER, SERVING_DATABASE, ...

    Attributes:
        folder: where the log and the snapshots are.
        database: URL of a PostgreSQL log; "" for a SQLite file in the folder.
        dim, actions: numbers of features and of actions.
        window: seconds that a decision waits for its reward.
        default_reward: reward of a decision whose window is over.
        every: seconds between two snapshots, and between two looks at them.
        encoder: version of the features, which goes into the log.
        largest: the largest magnitude of a feature. One of 1e50 would spoil the scaler for all who come later.
        lowest, highest: the range of rewards.
    """

    folder: Path = field(default_factory=lambda: Path(_from("FOLDER", "outputs/serving")))
    database: str = field(default_factory=lambda: _from("DATABASE", ""))
    dim: int = field(default_factory=lambda: int(_from("DIM", "16")))
    actions: int = field(default_factory=lambda: int(_from("ACTIONS", "5")))
    window: float = field(default_factory=lambda: float(_from("WINDOW", "60")))
    default_reward: float = field(default_factory=lambda: float(_from("DEFAULT_REWARD", "0")))
    every: float = field(default_factory=lambda: float(_from("EVERY", "0.5")))
    encoder: str = field(default_factory=lambda: _from("ENCODER", "v1"))
    largest: float = 1e6
    lowest: float = 0.0
    highest: float = 1.0

    @property
    def snapshot(self) -> Path:
        """The file that the learner writes and replicas read. Another encoder has another one."""
        return self.folder / f"policy-{self.encoder}.pt"

    def make_policy(self) -> DisjointArms:
        """A model for each action, on scaled features. A twentieth of the decisions is random, for evaluation."""
        scaler = RunningScaler(self.dim, intercept=2.0)
        model = AdaptiveRidgeRegression(scaler.features, ridge=self.dim / 6)
        return DisjointArms(EpsilonGreedy(model, epsilon=0.05), self.actions, scaler=scaler)

    def open_log(self) -> FeedbackLog:
        """Open the log of decisions and rewards."""
        self.folder.mkdir(parents=True, exist_ok=True)
        options = {"window": self.window, "default_reward": self.default_reward}
        if self.database:
            return SQLDecisionLog(self.database, **options)
        return DecisionLog(self.folder / "decisions.db", **options)


def one_thread() -> None:
    """Use one thread for products, which are small, and let Python's own threads take short turns."""
    torch.set_num_threads(1)
    sys.setswitchinterval(5e-4)
