"""Durable logs of decisions and rewards, and learners that follow them.

A service logs decisions and rewards, one process learns from the log, and replicas decide from its snapshots. docs/service.md is
the guide.
"""

from torchonline.feedback.follower import Follower, follow
from torchonline.feedback.log import ConflictError, FeedbackLog, LogStorageError
from torchonline.feedback.records import DamagedRowError, Decision, Feedback
from torchonline.feedback.snapshots import Snapshot, load_snapshot, save_snapshot
from torchonline.feedback.sqlalchemy_log import SQLDecisionLog
from torchonline.feedback.sqlite_log import DecisionLog

__all__ = ["ConflictError", "DamagedRowError", "Decision", "DecisionLog", "Feedback", "FeedbackLog", "Follower"]
__all__ += ["LogStorageError", "SQLDecisionLog", "Snapshot", "follow", "load_snapshot", "save_snapshot"]
