"""What privacy a fit has spent, and an end to it."""

from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.utilities.combined_loader import CombinedLoader

from torchonline.core.checks import positive, positive_integer, within
from torchonline.privacy.composition import private_learners, total_ledger
from torchonline.privacy.learners.base import PrivateLearner

ANOTHER_PASS = (
    "PrivacySpendLogger: expected one pass through the loader, got the start of another by a learner that has learnt; the same "
    "people would be released again, which no ledger here accounts for"
)


class PrivacySpendLogger(pl.Callback):
    r"""Logs what the private learners of a module have spent, stops at a budget, and lets nobody be released unaccounted.

    After each batch: ``privacy_spent``, the epsilon at ``delta`` of everything that was released so far, in the logs and on
    the progress bar. The x axis of the logs counts steps of the learner. Only clocks and ledgers are looked at, never a
    record or what is computed from one.

    *Several learners* in a module are taken to be fed with the same people, who are released by each of them. What is
    logged is the total of their ledgers (:func:`~torchonline.privacy.composition.total_ledger`), which is more than any one of
    them has spent; learners of different adjacency have no total, and are refused. To look at one, name it. A learner that
    is made of others speaks for them. A fleet counts as one learner: each of its streams must have people of its own.

    *The budget.* With ``stop_at`` the fit ends after the last batch that keeps within it, which is at the step

    .. math:: t^* = \max\{t \le n : \varepsilon_t(\delta) \le \text{stop\_at}\},

    computed before the first batch from the clocks and the ledgers. It is the same for all data, so the epsilon that is logged
    there holds. If a batch is several steps, the fit ends where one more, as large as the largest so far, would go past
    :math:`t^*`. The sizes of the batches must be chosen without looking at the data, and so must every other rule that stops
    a fit: with ``EarlyStopping`` on a loss, quote the epsilon and delta of the constructor.

    *One pass.* A person is in one step. So a pass through the loader may only begin with learners that have not seen a
    step. It raises a RuntimeError

    - in a second epoch, before its first batch;
    - in another fit of a learner that has learnt: with the same trainer, with a new one, after ``load_from_checkpoint``, or
      resumed from a checkpoint whose epoch was over. For further people chain their loader to the first;
    - in a fit that is resumed in the middle of an epoch with a loader that begins again, as a plain ``DataLoader`` does and
      :class:`~torchonline.models.RoundLoader` does not;
    - when a learner has made a step in validation, test or prediction, also in the sanity check before the fit: these loops
      come again.

    A fit that is resumed in the middle with a loader that goes on may finish its epoch. The learner has been loaded, so the
    total is then that of two runs: see ``continuations``. ``max_steps``, ``limit_train_batches`` and validation that only
    looks change nothing.

    What it cannot see: a loader that hands out a person twice (sampling with replacement, ``RoundLoader(rounds=...)`` beyond
    the length of its tensors, the shorter of two loaders, which Lightning repeats); another run on the same people from a
    new learner; an encoder or a learning rate that was fitted to them. Losses and regrets that are logged beside it are
    not covered by what it logs, and checkpoints are as secret as the records.

    Cost of a batch: that of an epsilon, about a millisecond.

    Args:
        delta: in (0, 1).
        stop_at: epsilon, above 0; None never stops.
        learner: name of the one to watch, such as ``"head.learner"``, which is logged as ``privacy_spent/head.learner``; None
            watches all.
        continuations: number of runs that have published states, if you know better than the learners' count of loads: 1
            if a run was resumed from the very last state that it had published. See
            :meth:`~torchonline.privacy.learners.base.PrivateLearner.privacy_spent`.

    Attributes:
        last_step: :math:`t^*`, a number of the learner's steps; None before a fit, or without ``stop_at``.

    Raises:
        RuntimeError: people would be released again, see above; there is more than one process; or a batch went past the
            budget, because it had more steps than all before, or would have, because ``min_steps`` or ``min_epochs`` does not
            let the trainer stop.
        ValueError: there is no learner of that name, or none at all; they have different adjacencies; or ``stop_at`` is less
            than what one more step would have spent.

    Example:
        >>> class Regression(pl.LightningModule):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.automatic_optimization = False
        ...         self.learner = DPTOFW(2, horizon=40, epsilon=1.0, delta=1e-3)
        ...
        ...     def configure_optimizers(self):  # the clock that Lightning counts batches by
        ...         return torch.optim.SGD([torch.zeros((), requires_grad=True)], lr=1.0)
        ...
        ...     def training_step(self, batch, batch_idx):
        ...         for x, y in zip(*batch):
        ...             self.learner.step((self.learner.queries() @ x - y).unsqueeze(-1) * x)
        ...         self.optimizers().step()
        >>> from torchonline.models import RoundLoader
        >>> model, logger = Regression(), PrivacySpendLogger(delta=1e-3, stop_at=0.9)
        >>> quiet = {"accelerator": "cpu", "logger": False, "enable_progress_bar": False}
        >>> quiet |= {"enable_model_summary": False, "enable_checkpointing": False}
        >>> trainer = pl.Trainer(max_epochs=1, callbacks=[logger], **quiet)
        >>> trainer.fit(model, RoundLoader(torch.rand(40, 2).double(), torch.rand(40).double()))
        >>> model.learner.rounds, logger.last_step
        (tensor(7), 7)
        >>> model.learner.privacy_spent(1e-3) <= 0.9
        True
    """

    def __init__(
        self,
        delta: float,
        *,
        stop_at: float | None = None,
        learner: str | None = None,
        continuations: int | None = None,
    ) -> None:
        self.delta = within("delta", delta, 0.0, 1.0)
        self.stop_at = None if stop_at is None else positive("stop_at", stop_at)
        if learner is not None and not isinstance(learner, str):
            raise TypeError(f"learner: expected a name or None, got {type(learner).__name__}")
        self.learner = learner
        self.continuations = None if continuations is None else positive_integer("continuations", continuations)
        self.last_step: int | None = None
        self._loader_was_saved, self._pass_was_over = False, False

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Refuse to run in several processes."""
        if trainer.world_size > 1:
            raise RuntimeError(
                f"PrivacySpendLogger: expected one process, got {trainer.world_size}: each would release its own people, "
                "and the counts of all would be overwritten"
            )
        self._loader_was_saved, self._pass_was_over = False, False

    def on_load_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Look where a checkpoint says that the loader stood."""
        loops = checkpoint["loops"]["fit_loop"]
        self._loader_was_saved = bool(loops["state_dict"].get("combined_loader"))
        self._pass_was_over = loops["epoch_loop.batch_progress"]["is_last_batch"]

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Find the learners, and the step to stop after."""
        self._learners = self._watched(pl_module)
        self._start = clocks(self._learners)
        self._taken, self._largest_batch, self._is_first_batch = 0, 1, True
        self._left = self._steps_left()
        self.last_step = None if self._left is None else max(self._start) + self._left
        if self._is_over():
            trainer.should_stop = True

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Refuse a second epoch."""
        if not self._is_first_batch and self._have_learnt():
            raise RuntimeError(ANOTHER_PASS)

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Refuse what would release people again, or too much of them."""
        if self._is_first_batch and self._have_learnt():
            # max_steps lets Lightning go on with an epoch that was over.
            if batch_idx == 0 or self._pass_was_over:
                raise RuntimeError(ANOTHER_PASS)
            if not (self._loader_was_saved and _goes_on(trainer.train_dataloader)):
                raise RuntimeError(
                    "PrivacySpendLogger: expected a loader that goes on where the checkpoint left it, with state_dict and "
                    "load_state_dict then and now, as RoundLoader is, got one that begins again with the same people"
                )
        if self._is_over():
            raise RuntimeError(
                f"PrivacySpendLogger: expected the fit to stop at {self.last_step} steps, for stop_at={self.stop_at:g}, got a "
                "further batch; min_steps and min_epochs keep a trainer from stopping"
            )
        self._is_first_batch = False

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Log, and stop when it is time."""
        now = clocks(self._learners)
        taken = max(clock - start for clock, start in zip(now, self._start, strict=True))
        self._largest_batch = max(self._largest_batch, taken - self._taken)
        self._taken = taken
        key = "privacy_spent" if self.learner is None else f"privacy_spent/{self.learner}"
        pl_module.log(
            key, torch.tensor(self._epsilon(), dtype=torch.float64), prog_bar=True, on_step=True, on_epoch=False
        )
        # Lightning takes the x axis from a value of this name.
        pl_module.log("step", torch.tensor(max(now), dtype=torch.float64), on_step=True, on_epoch=False)
        if self._left is not None and taken > self._left:
            raise RuntimeError(
                f"PrivacySpendLogger: expected at most {self.last_step} steps, for stop_at={self.stop_at:g}, got {max(now)} "
                "after a batch larger than those before it; let the first batch be the largest, and smaller than the budget"
            )
        if self._is_over():
            trainer.should_stop = True

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Remember the clocks."""
        self._before = clocks(self._watched(pl_module))

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Refuse steps in a loop that comes again."""
        now = clocks(self._watched(pl_module))
        if now != self._before:
            raise RuntimeError(
                "PrivacySpendLogger: expected no step but in training, since other loops come again with the same people, got "
                f"clocks of {now} after {self._before}"
            )

    on_test_start = on_predict_start = on_validation_start
    on_test_end = on_predict_end = on_validation_end

    def _watched(self, pl_module: pl.LightningModule) -> list[PrivateLearner]:
        """The learners whose spending is logged."""
        found = private_learners(pl_module)
        if self.learner is not None:
            named = dict(pl_module.named_modules(remove_duplicate=False)).get(self.learner)
            if not isinstance(named, PrivateLearner):
                raise ValueError(
                    f"learner: expected the name of a private learner, such as {list(found)}, got {self.learner!r}"
                )
            return [named]
        if not found:
            raise ValueError(
                f"PrivacySpendLogger: expected a module with a PrivateLearner, got {type(pl_module).__name__}"
            )
        return list(found.values())

    def _have_learnt(self) -> bool:
        """Whether anybody has been released, be it by a state that is no longer here."""
        return any(max(int(learner.rounds), int(learner.furthest)) for learner in self._learners)

    def _epsilon(self, more_steps: int = 0) -> float:
        """What is spent after so many more steps of each learner: of clocks and constructors alone."""
        ledger = total_ledger(self._learners, continuations=self.continuations, more_steps=more_steps)
        return ledger.epsilon(self.delta)

    def _steps_left(self) -> int | None:
        """How many steps of each learner the budget has room for; None without one."""
        after_one = self._epsilon(1)
        if self.stop_at is None:
            return None
        if after_one > self.stop_at:
            raise ValueError(
                f"stop_at: expected at least {after_one:.6g}, what one more step will have spent, got {self.stop_at:g}"
            )
        # Bisection: the budget has room for low, and none for high.
        low, high = 0, 1 + max(learner.horizon - int(learner.rounds) for learner in self._learners)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._epsilon(middle) <= self.stop_at else (low, middle)
        return low

    def _is_over(self) -> bool:
        """Whether another batch as large as the largest would go past the budget."""
        return self._left is not None and self._taken + self._largest_batch > self._left


def clocks(learners: list[PrivateLearner]) -> list[int]:
    """How many steps each has made."""
    return [int(learner.rounds) for learner in learners]


def _goes_on(loaders: Any) -> bool:
    """Whether Lightning can resume all loaders where they stood."""
    return all(
        hasattr(loader, "state_dict") and hasattr(loader, "load_state_dict")
        for loader in CombinedLoader(loaders).flattened
    )
