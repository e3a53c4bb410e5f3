"""Settings shared by the replicas and the learner of a service."""

import math
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from torchonline.core.checks import LARGEST, positive, positive_integer
from torchonline.feedback import DecisionLog, FeedbackLog, SQLDecisionLog
from torchonline.feedback.records import integer_from_0


@dataclass(frozen=True)
class ServiceSettings:
    """Options of a service. A subclass makes the policy.

    Args:
        folder: folder of the log and the snapshots.
        database: URL of a PostgreSQL log; "" for a SQLite file in the folder.
        dim, actions: numbers of features and of actions.
        columns: the :class:`~torchonline.features.ColumnEncoder` of the policy. Contexts are then values by name, and ``dim`` is
            its number of codes. None for contexts of ``dim`` numbers.
        names: names of the actions, if they have names. A request may list the available ones.
        has_arms: whether each request lists its arms, up to ``actions`` of them, each with its own features.
        window: seconds that a decision waits for its reward; None for no limit.
        default_reward: reward of a decision whose window is over.
        every: seconds between two snapshots. Replicas check for a new snapshot more often.
        encoder: version of the features, which is stored in the log.
        largest: largest accepted magnitude of a number; a request with a larger one is refused.
        lowest, highest: range of the rewards.
        dtype: dtype of the policy's features.
        skip_damaged: whether the learner skips damaged rows of the log and counts them as refused. If False, it ends with an
            error that names the position.
        hosts: names that clients may send in the header Host. Others get status 400, against DNS rebinding. ``"*"`` allows all.
        secret: secret that clients must send as ``Authorization: Bearer SECRET``; "" disables the check.
        undecided: number of rewards of unknown ids that are kept until their decision is logged; 0 refuses them.
        export: whether ``/export`` returns the policy as a file.
        personalizer: whether the service also answers the requests of Azure Personalizer (docs/personalizer.md). The policy
            must have columns, and names of actions or arms in each request.
        ignored: names of Personalizer's features that are not columns and are left out.
        most_waiting: maximum number of waiting decisions and rewards. Further requests get status 503.
        request_seconds: maximum time for a request's header to arrive, and then for its body.

    Raises:
        ValueError: an option is out of range.

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
    columns: Any = field(default=None, repr=False)
    names: tuple[str, ...] = ()
    has_arms: bool = False
    window: float | None = 60.0
    default_reward: float | None = 0.0
    every: float = 0.5
    encoder: str = "v1"
    largest: float = 1e6
    lowest: float = 0.0
    highest: float = 1.0
    dtype: torch.dtype = torch.float64
    skip_damaged: bool = False
    hosts: tuple[str, ...] = ("localhost", "127.0.0.1", "::1", "[::1]")
    secret: str = field(default="", repr=False)
    undecided: int = 10_000
    export: bool = False
    personalizer: bool = False
    ignored: tuple[str, ...] = ()
    most_waiting: int = 1000
    request_seconds: float = 10.0

    def __post_init__(self) -> None:
        if not self.lowest < self.highest:
            raise ValueError(f"lowest: expected a reward below highest, got {self.lowest:g} and {self.highest:g}")
        for name in ("every", "largest", "request_seconds"):
            positive(name, getattr(self, name))
        most = LARGEST.get(self.dtype, math.inf)  # a policy refuses a batch with a larger value
        if self.largest > most:
            raise ValueError(f"largest: expected at most {most:.1e} for {self.dtype}, got {self.largest:g}")
        for name in ("dim", "actions"):
            positive_integer(name, getattr(self, name))
        for name in ("undecided", "most_waiting"):
            integer_from_0(name, getattr(self, name))
        if self.encoder in ("", ".", "..") or Path(self.encoder).name != self.encoder:
            raise ValueError(f"encoder: expected a version that can be part of a file name, got {self.encoder!r}")
        if self.personalizer and (self.columns is None or not (self.names or self.has_arms)):
            got = "numbers" if self.columns is None else "actions without names"
            raise ValueError(
                f"personalizer: expected a policy on columns, with names of actions or arms in requests, got {got}"
            )

    @property
    def largest_body(self) -> int:
        """Return the maximum number of bytes of a context, arms, a mask and an id.

        Personalizer's requests may also have features that are not used, up to 128 KiB.
        """
        context = row = 64 * self.dim
        if self.columns is not None:
            kinds = zip(self.columns.column_names, self.columns.column_kinds, strict=True)
            row = sum(2 * len(name.encode()) + (4096 if kind == "text" else 128) for name, kind in kinds)
            context = 6 * row  # JSON may write six bytes for a character
        unused = 131_072 * self.personalizer
        return 16_384 + context + row * self.has_arms * self.actions + 32 * self.actions + unused

    @property
    def bounded(self) -> torch.Tensor | slice:
        """Return the places of the inputs that ``largest`` bounds: the numbers."""
        return slice(None) if self.columns is None else self.columns.number_places()

    @property
    def snapshot(self) -> Path:
        """Return the path of the snapshots, one for each encoder version."""
        return self.folder / f"policy-{self.encoder}.pt"

    def make_policy(self) -> Any:
        """Return a policy or head for contexts ``(dim)``, before the first snapshot."""
        raise NotImplementedError("make_policy: expected a subclass that makes the policy")

    def open_log(self) -> FeedbackLog:
        """Open the log of decisions and rewards."""
        self.folder.mkdir(parents=True, exist_ok=True)
        options: dict[str, Any] = {
            "window": self.window,
            "default_reward": self.default_reward,
            "undecided": self.undecided,
        }
        if self.database:
            return SQLDecisionLog(self.database, **options)
        return DecisionLog(self.folder / "decisions.db", **options)


def one_thread() -> None:
    """Use one torch thread, and a short switch interval for Python's threads."""
    torch.set_num_threads(1)
    sys.setswitchinterval(5e-4)
