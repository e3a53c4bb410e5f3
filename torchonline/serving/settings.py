"""What the replicas and the learner of a service agree on."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from torchonline.feedback import DecisionLog, FeedbackLog, SQLDecisionLog

# What one request may weigh, in bytes.
LARGEST_BODY = 1 << 20


@dataclass(frozen=True)
class ServiceSettings:
    """Options of a service. A subclass makes the policy.

    Args:
        folder: where the log and the snapshots are.
        database: URL of a PostgreSQL log; "" for a SQLite file in the folder.
        dim, actions: numbers of features and of actions.
        window: seconds that a decision waits for its reward; None waits for ever.
        default_reward: reward of a decision whose window is over.
        every: seconds between two snapshots, and between two looks at them.
        encoder: version of the features, which goes into the log.
        largest: the largest magnitude of a feature that is accepted; a request with a larger one is refused.
        lowest, highest: the range of rewards.
        dtype: of the features, as the policy takes them.
        skip_damaged: whether the learner goes on after damaged rows of the log, which count as refused then. Otherwise it ends
            with an error that names the position.

    Example:
        >>> from torchonline import DisjointArms, RidgeRegression
        >>> class Settings(ServiceSettings):
        ...     def make_policy(self):
        ...         return DisjointArms(RidgeRegression(self.dim), self.actions)
        >>> Settings(folder=folder, dim=3, actions=2).snapshot.name
        'policy-v1.pt'
    """

    folder: Path = Path("outputs/serving")
    database: str = ""
    dim: int = 16
    actions: int = 5
    window: float | None = 60.0
    default_reward: float | None = 0.0
    every: float = 0.5
    encoder: str = "v1"
    largest: float = 1e6
    lowest: float = 0.0
    highest: float = 1.0
    dtype: torch.dtype = torch.float64
    skip_damaged: bool = False

    @property
    def snapshot(self) -> Path:
        """Return the path of the snapshots, one for each encoder version."""
        return self.folder / f"policy-{self.encoder}.pt"

    def make_policy(self) -> Any:
        """Return a policy or a head for contexts ``(dim)``, as before the first snapshot."""
        raise NotImplementedError("make_policy: expected a subclass that makes the policy")

    def open_log(self) -> FeedbackLog:
        """Open the log of decisions and rewards."""
        self.folder.mkdir(parents=True, exist_ok=True)
        options: dict[str, Any] = {"window": self.window, "default_reward": self.default_reward}
        if self.database:
            return SQLDecisionLog(self.database, **options)
        return DecisionLog(self.folder / "decisions.db", **options)


def one_thread() -> None:
    """Use one thread for the small products, and short turns of Python's threads."""
    torch.set_num_threads(1)
    sys.setswitchinterval(5e-4)
