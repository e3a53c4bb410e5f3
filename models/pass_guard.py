"""Guard against fits that would release people of a private learner twice."""

from collections.abc import Sized
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.utilities.combined_loader import CombinedLoader
from torch.utils.data import BatchSampler, SequentialSampler

from torchonline.core.messages import counted
from torchonline.models.round_loader import RoundLoader
from torchonline.privacy.composition import private_learners
from torchonline.privacy.learners.base import PrivateLearner

ANOTHER_PASS = (
    "expected one pass through the loader, or one fit of as many passes as participations, got the start of another pass by a "
    "learner that has made steps; the same people would be released again, which no ledger here accounts for"
)
FINISHED = (
    "expected a checkpoint of an unfinished fit, got a checkpoint whose fit has ended: nothing was learnt. Loading it counts as "
    "one more run, unless continuations=1 says that no other run has published anything"
)


class PassGuard(pl.Callback):
    """Callback that refuses to release the same people twice.

    :class:`~torchonline.models.OnlinePredictor` adds one if its learner is private, and
    :class:`~torchonline.callbacks.PrivacySpendLogger` is a subclass. The guard reads step counters and the type of the loader,
    never a record. docs/privacy_lightning.md lists what it refuses and what it cannot detect.

    Raises:
        RuntimeError: people would be released again; the fit of a checkpoint has ended; or there are several processes.
    """

    def __init__(self) -> None:
        self._loader_was_saved, self._pass_was_over, self._may_have_ended = False, False, False
        self._pass_start: list[int] = []

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        self._owner = type(pl_module).__name__
        if trainer.world_size > 1:
            raise self._refusal(
                f"expected one process, got {trainer.world_size}: each would release its own people, and Lightning would "
                "overwrite the counts of all with those of the first"
            )
        self._loader_was_saved, self._pass_was_over, self._may_have_ended = False, False, False

    def on_load_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        loops = checkpoint["loops"]["fit_loop"]
        self._loader_was_saved = bool(loops["state_dict"].get("combined_loader"))
        self._pass_was_over = loops["epoch_loop.batch_progress"]["is_last_batch"]
        self._may_have_ended = True

    def on_fit_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self._may_have_ended:
            raise self._refusal(FINISHED)

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._learners = self._watched(pl_module)
        self._is_first_batch = True
        self._pass_start = self._pass_start or clocks(
            self._learners
        )  # a checkpoint in the middle of a pass holds the start of the pass

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._check_loader(trainer)
        if not self._is_first_batch and self._have_stepped():
            self._check_pass(trainer)
        self._pass_start = clocks(self._learners)

    def state_dict(self) -> dict[str, Any]:
        return {"pass_start": self._pass_start}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._pass_start = state_dict.get("pass_start", [])

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        self._may_have_ended = False
        if self._is_first_batch and self._have_stepped():
            # With max_steps Lightning may resume a finished epoch.
            if batch_idx == 0 or self._pass_was_over:
                raise self._refusal(ANOTHER_PASS)
            if not (self._loader_was_saved and _goes_on(trainer.train_dataloader)):
                raise self._refusal(
                    "expected a loader that resumes from the checkpoint, with state_dict and load_state_dict in both fits, like "
                    "RoundLoader, got a loader that starts again with the same people"
                )
        if self._is_first_batch:
            self._check_loader(trainer)
        self._is_first_batch = False

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._before = clocks(self._watched(pl_module))

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        now = clocks(self._watched(pl_module))
        if now != self._before:
            raise self._refusal(
                "expected steps in training only, because other loops repeat the same people, got step counters of "
                f"{now} after {self._before}"
            )

    on_test_start = on_predict_start = on_validation_start
    on_test_end = on_predict_end = on_validation_end

    def _watched(self, pl_module: pl.LightningModule) -> list[PrivateLearner]:
        """Return the learners whose passes are counted."""
        return list(private_learners(pl_module).values())

    def _refusal(self, text: str) -> RuntimeError:
        return RuntimeError(f"{self._owner}: {text}")

    def _check_pass(self, trainer: pl.Trainer) -> None:
        """Raise if the learners' participations do not allow another pass."""
        if trainer.current_epoch + 1 > min(learner.participations for learner in self._learners):
            raise self._refusal(ANOTHER_PASS)
        for learner, now, start in zip(self._learners, clocks(self._learners), self._pass_start, strict=True):
            if now - start < learner.min_separation:
                raise self._refusal(
                    f"expected passes of at least {counted(learner.min_separation, 'step')}, for min_separation, "
                    f"got {now - start}"
                )

    def _check_loader(self, trainer: pl.Trainer) -> None:
        """Raise if a loader repeats people, or may break the order for min_separation."""
        loaders = CombinedLoader(trainer.train_dataloader).flattened
        if any(map(_repeats, loaders)):
            raise self._refusal(
                "expected a loader that returns each person once in a pass, got a loader that draws with replacement or is "
                "longer than its data; for several passes, see participations and max_epochs"
            )
        apart = max(learner.min_separation if learner.participations > 1 else 1 for learner in self._learners)
        if apart > 1 and not all(map(_keeps_its_order, loaders)):
            raise self._refusal(f"expected a loader with a fixed order, for min_separation={apart}, got another loader")

    def _have_stepped(self) -> bool:
        """Return whether a learner has made a step, even if it has been rewound since."""
        return any(max(int(learner.rounds), int(learner.furthest)) for learner in self._learners)


def clocks(learners: list[PrivateLearner]) -> list[int]:
    """Return each learner's number of steps."""
    return [int(learner.rounds) for learner in learners]


def _sampler(loader: Any) -> Any:
    return getattr(getattr(loader, "batch_sampler", None) or loader, "sampler", None)


def _repeats(loader: Any) -> bool:
    """Return whether a loader certainly repeats rows in a pass."""
    if isinstance(loader, RoundLoader):
        return loader.rounds > len(loader.tensors[0])
    sampler, rows = _sampler(loader), getattr(loader, "dataset", None)
    is_longer = isinstance(sampler, Sized) and isinstance(rows, Sized) and len(sampler) > len(rows)
    return is_longer or bool(getattr(sampler, "replacement", False))


def _keeps_its_order(loader: Any) -> bool:
    """Return whether a loader certainly has the same order in each pass."""
    if isinstance(loader, RoundLoader):
        return True
    batches = getattr(loader, "batch_sampler", None)
    return (batches is None or type(batches) is BatchSampler) and type(_sampler(loader)) is SequentialSampler


def _goes_on(loaders: Any) -> bool:
    """Return whether Lightning can resume all loaders from their positions."""
    return all(
        hasattr(loader, "state_dict") and hasattr(loader, "load_state_dict")
        for loader in CombinedLoader(loaders).flattened
    )
