"""Logging of regret."""

from typing import Any

import pytorch_lightning as pl
from torch import Tensor

from torchonline.callbacks.figures import log_figure
from torchonline.core.checks import instance_of, positive_integer
from torchonline.core.processes import gathered, rank_and_world_size
from torchonline.metrics import CumulativeRegret
from torchonline.metrics.plots import draw_curve


class RegretLogger(pl.Callback):
    """Callback that logs regret to the trainer's loggers and progress bar.

    After each batch it logs ``regret``, the total since the first round, and ``regret_per_round``, the mean over the batch. Both
    are averaged over a batch of learners. The x axis of the logs, and ``step`` in the names of checkpoints, count rounds.
    A resumed run continues from the total of its checkpoint.

    The module's ``training_step`` returns ``outputs["regret"]``, shape ``(N, *B)``, like
    :class:`~torchonline.models.NeuralLinearBandit`. Nothing is logged if it is missing, as for logged rounds, or if N = 0.

    *Several processes.* Each rank counts the rounds that it has played itself, in any number of batches. Ranks exchange nothing
    after a batch: ``regret`` and ``regret_per_round`` then describe this rank's rounds, loggers show rank 0, and the x axis
    counts the trainer's steps, which all ranks share. At the end of each epoch all ranks synchronize, and the callback logs
    ``regret_all_ranks`` and ``rounds_all_ranks``, the total and the number of the rounds of all ranks. A checkpoint holds the
    states of all ranks, so all ranks must take part in saving it, as under Lightning. It can be resumed with any number of
    processes, see :class:`~torchonline.metrics.CumulativeRegret`.

    *Figures.* A logger whose experiment has ``add_figure``, such as TensorBoard's, also gets the curve as a figure,
    ``regret_curve``. This needs matplotlib. With several processes, one figure is logged at the end of the fit.

    Args:
        figure: whether to log the figure at the end of the fit.
        figure_every: also log the figure each time this many rounds have passed; None for never.

    Attributes:
        regret: a :class:`~torchonline.metrics.CumulativeRegret` with the totals and the curve of each learner. ``compute()``,
            ``curve()`` and ``plot()`` cover all ranks, and must be called on all of them. Its states, such as ``total``, cover
            this rank. None before the first batch.
        last_curve: ``regret.curve()`` of all ranks at the end of the last epoch, readable on one rank alone. None before.

    Example:
        >>> import torch
        >>> from torchonline import OFUL
        >>> from torchonline.models import BanditHead, NeuralLinearBandit, RoundLoader
        >>> bandit = NeuralLinearBandit(BanditHead(torch.nn.Linear(4, 2), OFUL(2)))
        >>> logger = RegretLogger()
        >>> quiet = {"accelerator": "cpu", "logger": False, "enable_progress_bar": False}
        >>> quiet |= {"enable_model_summary": False, "enable_checkpointing": False}
        >>> trainer = pl.Trainer(max_epochs=1, callbacks=[logger], **quiet)
        >>> trainer.fit(bandit, RoundLoader(torch.zeros(20, 5, 4), torch.eye(5)[1].repeat(20, 1)))
        >>> logger.regret.compute()  # all arms look alike, so the first is chosen, which is never the best
        tensor(20., dtype=torch.float64)
    """

    def __init__(self, *, figure: bool = True, figure_every: int | None = None) -> None:
        self.figure = instance_of("figure", figure, bool, "True or False")
        self.figure_every = None if figure_every is None else positive_integer("figure_every", figure_every)
        self.regret: CumulativeRegret | None = None
        self.last_curve: tuple[Tensor, Tensor] | None = None

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        # A rank's last batch may be empty. Logged rounds have no regret: only the chosen arm's reward is known.
        if "regret" not in outputs or len(outputs["regret"]) == 0:
            return
        regret = outputs["regret"].detach().cpu()
        if self.regret is None:
            self.regret = CumulativeRegret(tuple(regret.shape[1:]))
        self.regret.update(regret)
        # Not `compute`, which waits for all ranks: they may have different numbers of batches.
        values = {"regret": self.regret.total.mean(), "regret_per_round": regret.mean()}
        pl_module.log_dict(values, prog_bar=True, on_step=True, on_epoch=False)
        # Lightning reads the x axis and the names of checkpoints from the value named "step". Ranks must agree on names.
        if rank_and_world_size()[1] == 1:
            pl_module.log("step", self.regret.rounds.double(), on_step=True, on_epoch=False)
            rounds = int(self.regret.rounds)
            if self.figure and self.figure_every and rounds % self.figure_every < len(regret):
                self._log_figure(trainer, self.regret.curve())

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._meet()
        if self.regret is None:
            return
        self.last_curve = rounds, totals = self.regret.curve()
        if len(rounds) and rank_and_world_size()[1] > 1:
            values = {"regret_all_ranks": totals[-1].mean(), "rounds_all_ranks": rounds[-1].double()}
            values = {name: value.to(pl_module.device) for name, value in values.items()}
            # All ranks have the same values, and unlike a mean the maximum is exact.
            pl_module.log_dict(values, prog_bar=True, on_step=False, on_epoch=True, sync_dist=True, reduce_fx="max")

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        # last_curve covers all ranks, which synchronized at the end of the epoch.
        if self.figure and self.last_curve is not None and len(self.last_curve[0]):
            self._log_figure(trainer, self.last_curve)

    def _log_figure(self, trainer: pl.Trainer, curve: tuple[Tensor, Tensor]) -> None:
        log_figure(
            trainer, "regret_curve", lambda axes: draw_curve(axes, *curve, CumulativeRegret.named), int(curve[0][-1])
        )

    def state_dict(self) -> dict[str, Tensor]:
        """Return the states of all ranks. Collective."""
        self._meet()
        if self.regret is None:
            return {}
        with self.regret.sync_context():
            return self.regret.state_dict()

    def load_state_dict(self, state_dict: dict[str, Tensor]) -> None:
        self.regret = self.last_curve = None
        if state_dict:
            if state_dict["rounds"].dim() == 0:  # saved by one process
                state_dict = {name: state.unsqueeze(0) for name, state in state_dict.items()}
            points, *batch_shape = state_dict["history"].shape[1:]
            self.regret = CumulativeRegret(tuple(batch_shape), points=points)
            self.regret.load_state_dict(state_dict)

    def _meet(self) -> None:
        """Create a metric on ranks without rounds, so that all ranks can gather."""
        if rank_and_world_size()[1] > 1:
            shapes = gathered(None if self.regret is None else self.regret.batch_shape)
            known = next((shape for shape in shapes if shape is not None), None)
            if self.regret is None and known is not None:
                self.regret = CumulativeRegret(known)
