"""Logging of regret."""

from typing import Any

import pytorch_lightning as pl
from torch import Tensor

from torchonline.metrics import CumulativeRegret


class RegretLogger(pl.Callback):
    """Callback that logs regret to the trainer's loggers and its progress bar.

    After each batch it logs ``regret``, the total since the first round, and ``regret_per_round``, the mean over the batch. Both
    are averaged over a fleet. The x axis of the logs counts rounds. A resumed run continues from the total of its checkpoint.

    The module's ``training_step`` returns ``outputs["regret"]``, shape ``(N, *B)``, as that of
    :class:`~torchonline.models.NeuralLinearBandit` does. Nothing is logged where it returns none, as for logged rounds.

    Attributes:
        regret: a :class:`~torchonline.metrics.CumulativeRegret` with the totals and the curve of each learner. None before the
            first batch.

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

    def __init__(self) -> None:
        self.regret: CumulativeRegret | None = None

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if "regret" not in outputs:  # logged rounds, where only the chosen arm's reward is known
            return
        regret = outputs["regret"].detach().cpu()
        if self.regret is None:
            self.regret = CumulativeRegret(tuple(regret.shape[1:]))
        self.regret.update(regret)
        values = {"regret": self.regret.compute().mean(), "regret_per_round": regret.mean()}
        pl_module.log_dict(values, prog_bar=True, on_step=True, on_epoch=False)
        # Lightning takes the x axis from the value named "step".
        pl_module.log("step", self.regret.rounds.double(), on_step=True, on_epoch=False)

    def state_dict(self) -> dict[str, Tensor]:
        return {} if self.regret is None else self.regret.state_dict()

    def load_state_dict(self, state_dict: dict[str, Tensor]) -> None:
        self.regret = None
        if state_dict:
            points, *batch_shape = state_dict["history"].shape
            self.regret = CumulativeRegret(tuple(batch_shape), points=points)
            self.regret.load_state_dict(state_dict)
