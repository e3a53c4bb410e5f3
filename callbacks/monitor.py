"""Monitoring of a bandit's actions, rewards and uncertainty."""

from collections.abc import Sequence
from typing import Any

import pytorch_lightning as pl
from torch import Tensor

from torchonline.core.action_names import number_and_names
from torchonline.core.checks import instance_of
from torchonline.core.processes import rank_and_world_size
from torchonline.metrics import (
    ActionShares,
    DriftAlarm,
    EffectiveSampleSize,
    LoggedProbabilities,
    MeanByArm,
    ValueByTime,
)


class Watching(pl.Callback):
    """Base class of callbacks that set a module's ``watched`` during a fit."""

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        self._watch(pl_module, stage == "fit")

    def teardown(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        self._watch(pl_module, False)

    def _watch(self, module: Any, watched: bool) -> None:
        if hasattr(module, "watched"):
            module.watched = watched


class BanditMonitor(Watching):
    """Callback that logs the operational metrics of a bandit.

    After each batch it logs, over all rounds so far:

    - ``share/k``, ``reward/k`` and ``regret/k``: share, mean reward and mean regret of action k; NaN before its first round.
    - ``effective_sample_size``: of the rounds as a sample of the uniform policy; and ``mean_weight``, whose expectation is 1 if
      every action has a probability above 0 (:class:`~torchonline.metrics.EffectiveSampleSize`).

    Over the batch it logs:

    - ``probability_min`` and ``probability_mean``: of the chosen actions.
    - ``width_mean`` and ``width_max``: widths of the confidence intervals of the chosen actions, in units of the reward.

    The x axis of the logs counts rounds. The module's ``training_step`` must return ``action`` and ``reward``, ``(N, *B)``, and
    may return ``regret``, ``probability``, ``low`` and ``high``. Metrics of a missing value are left out.
    :class:`~torchonline.models.NeuralLinearBandit` returns them because the callback sets the module's ``watched`` during a fit.

    *Several processes.* Each rank counts the rounds that it has played itself. Ranks exchange nothing after a batch: the values
    describe this rank, loggers show rank 0, and the x axis counts the trainer's steps. ``compute()`` of a metric covers all
    ranks, and must be called on all. A checkpoint holds the states of all ranks, and can be resumed with any number of
    processes. ``drift`` needs a single process.

    Args:
        actions: K, number of actions; if arms are added or removed, the number of arms that will ever exist. The row of an arm is
            its id. Or the names of the K actions, ``policy.action_names``: the logs then have ``share/home`` for ``share/0``.
        drift: a :class:`~torchonline.metrics.DriftAlarm` with the learners' ``batch_shape``, or None. It gets
            ``reward - prediction`` of each round, and warns.
        points: largest number of points of a curve over time, even.

    Attributes:
        shares: an :class:`~torchonline.metrics.ActionShares`. All metrics here have a ``plot()``.
        rewards: a :class:`~torchonline.metrics.MeanByArm` of rewards.
        regrets: a :class:`~torchonline.metrics.MeanByArm` of regrets.
        probabilities: a :class:`~torchonline.metrics.LoggedProbabilities`.
        weights: an :class:`~torchonline.metrics.EffectiveSampleSize`.
        widths: a :class:`~torchonline.metrics.ValueByTime` of the intervals' widths.

    Raises:
        ValueError: an action is not in 0 to K - 1, or the ``batch_shape`` of ``drift`` is not the learners'.
        RuntimeError: ``drift`` is given and there are several processes.

    Example:
        >>> import torch
        >>> from torchonline import EpsilonGreedy, RidgeRegression
        >>> from torchonline.models import BanditHead, NeuralLinearBandit, RoundLoader
        >>> bandit = NeuralLinearBandit(BanditHead(torch.nn.Linear(4, 2), EpsilonGreedy(RidgeRegression(2), epsilon=0.2)))
        >>> monitor = BanditMonitor(actions=5)
        >>> quiet = {"accelerator": "cpu", "logger": False, "enable_progress_bar": False}
        >>> quiet |= {"enable_model_summary": False, "enable_checkpointing": False}
        >>> trainer = pl.Trainer(max_epochs=1, callbacks=[monitor], **quiet)
        >>> trainer.fit(bandit, RoundLoader(torch.rand(20, 5, 4), torch.rand(20, 5)))
        >>> monitor.probabilities.compute().smallest  # epsilon / 5
        tensor(0.0400, dtype=torch.float64)
    """

    def __init__(self, actions: int | Sequence[str], *, drift: DriftAlarm | None = None, points: int = 512) -> None:
        (self.actions, self.names), self.points = number_and_names("actions", actions), points
        if drift is not None:
            instance_of("drift", drift, DriftAlarm, "a DriftAlarm or None")
        self.drift = drift
        self._start()

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        if self.drift is not None and trainer.world_size > 1:
            raise RuntimeError(f"drift: expected one process, got {trainer.world_size}, each with separate rounds")
        super().setup(trainer, pl_module, stage)

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        action = outputs["action"]
        if action.numel() == 0:  # a rank may have no rounds in its last batch
            return
        values = self._updated(action.cpu(), {name: _flat(outputs.get(name)) for name in WATCHED})
        pl_module.log_dict(values, on_step=True, on_epoch=False)
        # Lightning reads the x axis from the value named "step".
        if rank_and_world_size()[1] == 1:
            rounds = self.shares.rounds.double() / action[0].numel()
            pl_module.log("step", rounds, on_step=True, on_epoch=False)
        if self.drift is not None and outputs.get("prediction") is not None:
            residual = (outputs["reward"].double() - outputs["prediction"]).cpu()
            if residual.shape[1:] != (shape := self.drift.batch_shape):
                wanted = f"the learners' batch_shape {tuple(residual.shape[1:])}"
                raise ValueError(f"drift: expected a DriftAlarm with {wanted}, got {shape}")
            self.drift.update(residual)

    @property
    def metrics(self) -> dict[str, Any]:
        """Return the metrics by name."""
        names = ("shares", "rewards", "regrets", "probabilities", "weights", "widths")
        return {name: getattr(self, name) for name in (*names, *(("drift",) if self.drift else ()))}

    def state_dict(self) -> dict[str, Any]:
        """Return the states of all ranks. Collective."""
        found = {}
        for name, metric in self.metrics.items():
            with metric.sync_context():
                found[name] = metric.state_dict()
        return found

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._start()
        for name, state in state_dict.items():
            metric = self.metrics.get(name)
            if metric is None:
                continue
            if "spacing" in state:  # a curve: each rank loads its own part
                is_one = state["rounds"].dim() == 0
                state = {key: value.unsqueeze(0) for key, value in state.items()} if is_one else state
            elif rank_and_world_size()[0] > 0:  # sums over all ranks: the first rank continues them
                continue
            metric.load_state_dict(state)

    def _start(self) -> None:
        """Create the metrics."""
        actions = self.actions if self.names is None else self.names
        self.shares = ActionShares(actions, points=self.points)
        self.rewards, self.regrets = MeanByArm(actions, "reward"), MeanByArm(actions, "regret")
        self.probabilities = LoggedProbabilities()
        self.weights = EffectiveSampleSize(points=self.points)
        self.widths = ValueByTime("width of the interval", points=self.points)

    def _updated(self, action: Tensor, seen: dict[str, Tensor | None]) -> dict[str, Tensor]:
        """Update the metrics with a batch. Return the values to log."""
        values: dict[str, Tensor] = {}
        self.shares.update(action)
        # Not `compute`, which waits for all ranks: they may have different numbers of batches.
        share = self.shares.total / self.shares.rounds
        names = range(self.actions) if self.names is None else self.names
        values |= {f"share/{name}": share[k] for k, name in enumerate(names)}
        for name, metric in (("reward", self.rewards), ("regret", self.regrets)):
            if (value := seen[name]) is not None:
                metric.update(action.reshape(-1), value)
                mean = metric.means()
                values |= {f"{name}/{of}": mean[k] for k, of in enumerate(names)}
        if (probability := seen["probability"]) is not None:
            # Rounding may break a tie between arms differently than in the choice, so a probability may be 0.
            probability = probability[probability > 0.0]
            self.probabilities.update(probability)
            self.weights.update(1.0 / (self.actions * probability))
            if len(probability):
                values |= {"probability_min": probability.min(), "probability_mean": probability.mean()}
            size = self.weights.of_this_rank()
            values |= {"effective_sample_size": size.effective, "mean_weight": size.mean_weight}
        if (low := seen["low"]) is not None and (high := seen["high"]) is not None:
            width = high - low
            self.widths.update(width)
            values |= {"width_mean": width.mean(), "width_max": width.max()}
        return values


WATCHED = ("reward", "regret", "probability", "low", "high")


def _flat(value: Tensor | None) -> Tensor | None:
    """Flatten the values of a batch of learners to float64 on the CPU."""
    return None if value is None else value.detach().cpu().double().reshape(-1)
