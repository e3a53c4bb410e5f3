"""Refusal of fits that would release people to a private learner twice."""

from collections.abc import Sized
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.utilities.combined_loader import CombinedLoader
from torch.utils.data import BatchSampler, SequentialSampler

from torchonline.models.round_loader import RoundLoader
from torchonline.privacy.composition import private_learners
from torchonline.privacy.learners.base import PrivateLearner

ANOTHER_PASS = (
    "expected one pass through the loader, or as many as participations says in one fit, got the start of another by a learner "
    "that has made steps; the same people would be released again, which no ledger here accounts for"
)
FINISHED = (
    "expected a checkpoint of a fit that goes on, got one whose fit has ended: nothing was learnt. Loading it counts as one more "
    "run, unless continuations=1 says that no other run has published anything"
)


class PassGuard(pl.Callback):
    """Callback that refuses to release the same people twice.

    :class:`~torchonline.models.OnlinePredictor` brings one along if its learner is private, and
    :class:`~torchonline.callbacks.PrivacySpendLogger` is one. It reads step counters and the type of the loader, never a record.
    docs/privacy_lightning.md lists what it refuses and what it cannot detect.

    Raises:
        RuntimeError: people would be released again; a checkpoint is of a fit that has ended; or there are several processes.
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
        )  # a checkpoint in the middle of a pass knows its start

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
            # With max_steps Lightning may resume an epoch that was finished.
            if batch_idx == 0 or self._pass_was_over:
                raise self._refusal(ANOTHER_PASS)
            if not (self._loader_was_saved and _goes_on(trainer.train_dataloader)):
                raise self._refusal(
                    "expected a loader that goes on where the checkpoint left it, with state_dict and load_state_dict in both "
                    "fits, like RoundLoader, got one that begins again with the same people"
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
                "expected no step but in training, because other loops repeat the same people, got step counters of "
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
        """Raise if another pass is not what the learners' participations are booked for."""
        if trainer.current_epoch + 1 > min(learner.participations for learner in self._learners):
            raise self._refusal(ANOTHER_PASS)
        for learner, now, start in zip(self._learners, clocks(self._learners), self._pass_start, strict=True):
            if now - start < learner.min_separation:
                raise self._refusal(
                    f"expected passes of at least {learner.min_separation} steps, for min_separation, got {now - start}"
                )

    def _check_loader(self, trainer: pl.Trainer) -> None:
        """Raise if a loader repeats people, or may change an order that is booked."""
        loaders = CombinedLoader(trainer.train_dataloader).flattened
        if any(map(_repeats, loaders)):
            raise self._refusal(
                "expected a loader that returns each person once in a pass, got one that draws with replacement or is longer "
                "than its data; for several passes, see participations and max_epochs"
            )
        apart = max(learner.min_separation if learner.participations > 1 else 1 for learner in self._learners)
        if apart > 1 and not all(map(_keeps_its_order, loaders)):
            raise self._refusal(f"expected a loader that keeps its order, for min_separation={apart}, got another")

    def _have_stepped(self) -> bool:
        """Return whether a learner has made a step, even if it was rewound since."""
        return any(max(int(learner.rounds), int(learner.furthest)) for learner in self._learners)


def clocks(learners: list[PrivateLearner]) -> list[int]:
    """Return the number of steps of each learner."""
    return [int(learner.rounds) for learner in learners]


def _sampler(loader: Any) -> Any:
    return getattr(getattr(loader, "batch_sampler", None) or loader, "sampler", None)


def _repeats(loader: Any) -> bool:
    """Return whether a loader is known to return some rows twice in a pass."""
    if isinstance(loader, RoundLoader):
        return loader.rounds > len(loader.tensors[0])
    sampler, rows = _sampler(loader), getattr(loader, "dataset", None)
    is_longer = isinstance(sampler, Sized) and isinstance(rows, Sized) and len(sampler) > len(rows)
    return is_longer or bool(getattr(sampler, "replacement", False))


def _keeps_its_order(loader: Any) -> bool:
    """Return whether a loader is known to have the same order in each pass."""
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
