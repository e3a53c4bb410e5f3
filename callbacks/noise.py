"""Monitoring of a bandit's assumptions: its noise scale and its model."""

import warnings
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor

from torchonline.callbacks.monitor import Watching
from torchonline.core.checks import within
from torchonline.core.processes import gathered, rank_and_world_size
from torchonline.diagnostics import NoiseDiagnostic


class MisspecifiedWarning(UserWarning):
    """Warning of :class:`NoiseMonitor` that an estimator's ``misspecified`` is True."""


class NoiseMonitor(Watching):
    r"""Callback that warns when the data contradict ``noise_scale`` or the model.

    It checks two assumptions for every learner of a batch, and warns once of each:

    - ``noise_scale``, by a :class:`~torchonline.diagnostics.NoiseDiagnostic` on the residuals, with the confidence interval as
      the error of the prediction: :class:`~torchonline.diagnostics.NoiseScaleWarning`. If the assumption holds, a false warning
      has probability at most ``alpha`` plus the learner's ``delta``. This covers fixed features. With an encoder in training or a
      scaler that moves, the warning is a heuristic. Estimators without an assumption on the noise are not tested: those without
      ``delta``, and heavy-tailed ones with ``noise="symmetric"``.
    - ``misspecified`` of estimators that have it, such as :class:`~torchonline.LocalGLMRegression`:
      :class:`MisspecifiedWarning`.

    After each batch it logs ``noise_evidence``, the logarithm of the wealth of bets against the assumption, and
    ``moment_ratio``, each the largest over a batch of learners. The module is a
    :class:`~torchonline.models.NeuralLinearBandit`, or another module with ``head.policy`` whose ``training_step`` returns
    ``reward``, ``prediction``, ``low`` and ``high``; the callback sets its ``watched`` during a fit.

    *Arms with separate models.* One test covers all arms, round by round in the order in which they are learnt. *Several
    processes.* Each rank tests its own rounds at level ``alpha`` and gives its own warning. A checkpoint holds the tests of all
    ranks. If a run resumes with another number of processes, the tests start again.

    Args:
        alpha: probability of a false warning, in (0, 1).

    Attributes:
        diagnostic: this rank's :class:`~torchonline.diagnostics.NoiseDiagnostic`. None before the first batch, or for an
            estimator that is not tested.

    Example:
        >>> from torchonline import OFUL
        >>> from torchonline.models import BanditHead, NeuralLinearBandit, RoundLoader
        >>> bandit = NeuralLinearBandit(BanditHead(torch.nn.Identity(), OFUL(2, noise_scale=0.5)), feedback="batch")
        >>> monitor = NoiseMonitor()
        >>> quiet = {"accelerator": "cpu", "logger": False, "enable_progress_bar": False}
        >>> quiet |= {"enable_model_summary": False, "enable_checkpointing": False}
        >>> trainer = pl.Trainer(max_epochs=1, callbacks=[monitor], **quiet)
        >>> trainer.fit(bandit, RoundLoader(torch.rand(50, 3, 2), torch.rand(50, 3)))
        >>> monitor.diagnostic.compute().noise_scale_is_small
        tensor(False)
    """

    def __init__(self, alpha: float = 0.01) -> None:
        self.alpha = within("alpha", alpha, 0.0, 1.0)
        self.diagnostic: NoiseDiagnostic | None = None
        self._state: dict[str, Tensor] | None = None
        self._has_warned = False

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if outputs["action"].numel() == 0:  # a rank may have no rounds in its last batch
            return
        module: Any = pl_module
        estimator = module.head.policy.estimator
        self._check_model(estimator)
        scale = _promised_scale(estimator)
        if outputs.get("prediction") is None or scale is None:
            return
        reward, mean, low, high = (
            outputs[name].detach().cpu().double() for name in ("reward", "prediction", "low", "high")
        )
        if self.diagnostic is None:
            order = float(getattr(estimator, "moment_order", 2.0))
            self.diagnostic = NoiseDiagnostic(order, tuple(reward.shape[1:]), self.alpha)
            if self._state is not None:
                self.diagnostic.load_state_dict(self._state)
                self._state = None
        # If the interval contains the mean, the prediction is within this distance of the mean.
        error = torch.maximum(high - mean, mean - low).clamp(min=0.0)
        self.diagnostic.update(reward - mean, noise_scale=scale.expand(reward.shape), error=error)
        report = self.diagnostic.compute()
        values = {"noise_evidence": report.evidence.max(), "moment_ratio": report.moment_ratio.max()}
        pl_module.log_dict(values, on_step=True, on_epoch=False)

    def state_dict(self) -> dict[str, Any]:
        """Return the states of all ranks. Collective."""
        # A loaded state waits for the first batch.
        mine = self._state if self.diagnostic is None else self.diagnostic.state_dict()
        states = gathered(mine) if rank_and_world_size()[1] > 1 else [mine]
        return {"ranks": states, "has_warned": self._has_warned}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        rank, ranks = rank_and_world_size()
        states = state_dict["ranks"]
        self.diagnostic, self._has_warned = None, state_dict["has_warned"]
        self._state = states[rank] if len(states) == ranks else None

    def _check_model(self, estimator: Any) -> None:
        misspecified = getattr(estimator, "misspecified", None)
        if misspecified is None or self._has_warned or not bool(misspecified.any()):
            return
        self._has_warned = True
        which = misspecified.nonzero().tolist() if misspecified.dim() else []
        text = (
            f"{type(estimator).__name__} is misspecified{f' for learners {which}' if which else ''}: no parameter within "
            "theta_bound explains the rewards by its link and noise. The confidence set is void, and so are guarantees "
            "based on it"
        )
        warnings.warn(text, MisspecifiedWarning, stacklevel=2)


def _promised_scale(estimator: Any) -> Tensor | None:
    """Return the noise scale that an estimator's confidence set assumes, or None."""
    if getattr(estimator, "delta", None) is None or getattr(estimator, "noise", None) == "symmetric":
        return None
    scale = torch.as_tensor(estimator.noise_scale, dtype=torch.float64).cpu()
    return scale if bool((scale > 0.0).all()) else None
