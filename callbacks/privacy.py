"""Logging and limiting of the privacy that a fit spends."""

import math
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.utilities import rank_zero_info

from torchonline.callbacks.figures import log_figure
from torchonline.core.checks import instance_of, positive, positive_integer, within
from torchonline.core.messages import counted
from torchonline.models.pass_guard import PassGuard, clocks
from torchonline.privacy.composition import private_learners, total_ledger
from torchonline.privacy.learners.base import PrivateLearner
from torchonline.privacy.learners.clock import NO_END
from torchonline.privacy.plots import draw_spending


class PrivacySpendLogger(PassGuard):
    r"""Callback that logs the privacy spent by a module and enforces a budget.

    After each batch it logs ``privacy_spent``, the epsilon at ``delta`` of everything released so far. The x axis of the logs
    counts steps of the learner. The epsilon does not cover losses or regrets that are also logged. docs/privacy_lightning.md
    states the callback's assumptions about people, and what it cannot detect.

    *Several learners* are assumed to get the same people: the logged value is the epsilon of the sum of their ledgers
    (:func:`~torchonline.privacy.composition.total_ledger`). Learners of different adjacency have no common total.

    *Budget.* With ``stop_at`` the fit ends after the last batch within the budget, at step
    :math:`t^* = \max\{t \le n : \varepsilon_t(\delta) \le \text{stop\_at}\}`, computed before the first batch. This step does
    not depend on the data, so the epsilon logged there is valid. If a batch makes several steps, the fit ends when one more
    batch, as large as the largest so far, would exceed :math:`t^*`. Most privacy is spent early: a stop at 0.8 of an epsilon of 1
    may exclude nearly all people. To spend at most 0.8, build the learner with ``epsilon=0.8``.

    *Passes.* Only learners without steps may begin a pass through the loader. Learners with ``participations=k`` allow k passes
    in one fit, if each pass has at least ``min_separation`` steps. If ``min_separation`` is above 1, all passes must have the
    same order, like a ``DataLoader`` without ``shuffle`` or a :class:`~torchonline.models.RoundLoader`. A fit resumed in the
    middle of its epoch may finish the epoch if its loader continues, like a :class:`~torchonline.models.RoundLoader`. A loader
    that draws with replacement, or is longer than its data, is refused. :class:`~torchonline.models.OnlinePredictor` makes these
    checks by itself. In your own module, return the callback from ``configure_callbacks``, so that no fit forgets it.

    *Figure.* At the end of the fit, a logger whose experiment has ``add_figure``, such as TensorBoard's, gets the figure
    ``privacy_curve``: epsilon against steps, with ``stop_at`` as a line. It needs matplotlib.

    Cost of a batch: computing an epsilon, about a millisecond.

    Args:
        delta: delta of the logged epsilon, in (0, 1).
        stop_at: largest epsilon, above 0. None never stops the fit.
        learner: name of the learner to watch, such as ``"head.learner"``, logged as ``privacy_spent/head.learner``. None watches
            all.
        continuations: number of runs that have published states, if the learners' count of loads is wrong; see
            :meth:`~torchonline.privacy.learners.base.PrivateLearner.privacy_spent`.
        figure: whether to log the figure.

    Attributes:
        last_step: :math:`t^*`, counted in the learner's steps. None before a fit, or without ``stop_at``.
        has_stopped: whether the budget has ended the last fit.

    Raises:
        RuntimeError: people would be released again; the fit of a checkpoint has ended; there is more than one process; a batch
            larger than all earlier ones exceeded the budget; or ``min_steps`` or ``min_epochs`` keep the trainer from stopping
            within the budget.
        ValueError: the module has no private learner, or none with that name; the learners have different adjacencies; or
            ``stop_at`` is less than the epsilon after one more step.

    Example:
        >>> class Regression(pl.LightningModule):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.automatic_optimization = False
        ...         self.learner = DPTOFW(2, horizon=40, epsilon=1.0, delta=1e-3)
        ...
        ...     def configure_optimizers(self):  # by which Lightning counts batches
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
        figure: bool = True,
    ) -> None:
        self.figure = instance_of("figure", figure, bool, "True or False")
        self.delta = within("delta", delta, 0.0, 1.0)
        self.stop_at = None if stop_at is None else positive("stop_at", stop_at)
        if learner is not None and not isinstance(learner, str):
            raise TypeError(f"learner: expected a name or None, got {type(learner).__name__}")
        self.learner = learner
        self.continuations = None if continuations is None else positive_integer("continuations", continuations)
        self.last_step: int | None = None
        self.has_stopped = False
        super().__init__()

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        super().setup(trainer, pl_module, stage)
        self.has_stopped = False

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        super().on_train_start(trainer, pl_module)
        self._start = clocks(self._learners)
        self._taken, self._largest_batch = 0, 1
        self._left = self._steps_left()
        self.last_step = None if self._left is None else max(self._start) + self._left
        if self._is_over():
            self.has_stopped = trainer.should_stop = True

    @property
    def state_key(self) -> str:
        return self._generate_state_key(learner=self.learner, delta=self.delta, stop_at=self.stop_at)

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        super().on_train_batch_start(trainer, pl_module, batch, batch_idx)
        if self._is_over():
            raise RuntimeError(
                f"PrivacySpendLogger: expected the fit to stop at {counted(self.last_step, 'step')}, for "
                f"stop_at={self.stop_at:g}, got another "
                "batch; min_steps and min_epochs keep a trainer from stopping"
            )

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        now = clocks(self._learners)
        taken = max(clock - start for clock, start in zip(now, self._start, strict=True))
        self._largest_batch = max(self._largest_batch, taken - self._taken)
        self._taken = taken
        key = "privacy_spent" if self.learner is None else f"privacy_spent/{self.learner}"
        spent = torch.tensor(self._epsilon(), dtype=torch.float64)
        pl_module.log(key, spent, prog_bar=True, on_step=True, on_epoch=False)
        # Lightning reads the x axis from the value named "step".
        pl_module.log("step", torch.tensor(max(now), dtype=torch.float64), on_step=True, on_epoch=False)
        if self._left is not None and taken > self._left:
            raise RuntimeError(
                f"PrivacySpendLogger: expected at most {counted(self.last_step, 'step')}, for "
                f"stop_at={self.stop_at:g}, got {max(now)} "
                "after a batch larger than all earlier ones; make the first batch the largest, and smaller than the budget"
            )
        if self._is_over():
            self.has_stopped = trainer.should_stop = True

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self.has_stopped:
            taken, horizon = max(clocks(self._learners)), max(learner.horizon for learner in self._learners)
            of_all = "" if horizon == NO_END else f" of {horizon}"
            rank_zero_info(
                f"PrivacySpendLogger: the privacy budget, stop_at={self.stop_at:g}, ended the fit at step {taken}{of_all}"
            )
        is_private = all(learner.epsilon < math.inf for learner in self._learners)
        if self.figure and is_private and self._have_stepped():
            budgets = {} if self.stop_at is None else {"stop_at": self.stop_at}
            steps, key = max(clocks(self._learners)), "privacy_curve"
            name = key if self.learner is None else f"{key}/{self.learner}"
            log_figure(
                trainer,
                name,
                lambda axes: draw_spending(self._learners, axes, self.delta, self.continuations, budgets),
                steps,
            )

    def _watched(self, pl_module: pl.LightningModule) -> list[PrivateLearner]:
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

    def _epsilon(self, more_steps: int = 0) -> float:
        """Return the epsilon after more steps, from counters and options only."""
        ledger = total_ledger(self._learners, continuations=self.continuations, more_steps=more_steps)
        return ledger.epsilon(self.delta)

    def _steps_left(self) -> int | None:
        """Return the number of steps within the budget, or None without a budget."""
        after_one = self._epsilon(1)
        if self.stop_at is None:
            return None
        if after_one > self.stop_at:
            message = (
                f"stop_at: expected at least {after_one:.6g}, the epsilon after one more step, got {self.stop_at:g}"
            )
            runs = max(int(learner.continuations) for learner in self._learners) if self.continuations is None else 1
            if runs > 1:
                message += f"; loads count as {runs} runs: pass continuations=1 if no other run has published anything"
            raise ValueError(message)
        # Bisection: low steps are within the budget, high steps are not.
        low, high = 0, 1 + max(learner.horizon - int(learner.rounds) for learner in self._learners)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._epsilon(middle) <= self.stop_at else (low, middle)
        return low

    def _is_over(self) -> bool:
        """Return whether another batch of the largest size would exceed the budget."""
        return self._left is not None and self._taken + self._largest_batch > self._left
