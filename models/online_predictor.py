"""Lightning module of a convex learner that predicts before it learns."""

from collections.abc import Callable
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from torchonline.convex.learner import ConvexLearner
from torchonline.core.backend import writable
from torchonline.core.checks import check_shape, instance_of, one_of, shape_text
from torchonline.core.options import described
from torchonline.models.checkpoints import load_module
from torchonline.models.encoding import encoded_copy, evaluating, typed_inputs
from torchonline.models.pass_guard import PassGuard
from torchonline.models.weight_averages import refuse_weight_averages
from torchonline.policies.scaler import StandardScaler
from torchonline.privacy.composition import private_learners
from torchonline.privacy.learners.point import PrivatePoint

# The value of each loss, and its derivative in the margin.
LOSSES: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], Callable[[Tensor, Tensor], Tensor]]] = {
    "squared": (lambda margin, target: 0.5 * (margin - target).square(), lambda margin, target: margin - target),
    "absolute": (lambda margin, target: (margin - target).abs(), lambda margin, target: (margin - target).sign()),
    "logistic": (lambda margin, target: softplus(margin) - target * margin, lambda m, target: m.sigmoid() - target),
}


class OnlinePredictor(pl.LightningModule):
    r"""Lightning module of a linear model that predicts, then learns each target.

    The weights :math:`\theta` are the decision of a convex learner, so no learning rate has to be tuned. A round, with the
    features :math:`z = \phi(x)` of an encoder or a scaler::

        margin = z @ learner.predict()       # the loss of this prediction is logged; its target is not seen yet
        learner.step(gradients of the loss at learner.queries())

    With :math:`m = z^\top\theta` the losses are ``"squared"``, :math:`(m - y)^2/2`; ``"absolute"``, :math:`|m - y|`; and
    ``"logistic"``, :math:`\ln(1 + e^m) - ym` for targets in [0, 1]. All are convex in :math:`\theta`, so the learner's regret
    guarantee holds against every fixed :math:`\theta` under the learner's conditions. In particular, its ``lipschitz`` must bound
    the norm of the gradients, :math:`|\ell'(m)|\,\|z\|`. The encoder is not trained. A scaler changes the features while it
    learns, so the guarantee does not cover a fixed :math:`\theta` on raw features.

    *Private learners*, such as :class:`~torchonline.DPTOFW`, learn each row as one record. Their privacy guarantee covers the
    learner's decisions but not logged losses, so ``log_losses`` must be False. A scaler is refused, because it would hold
    unprotected statistics of the records. A fit that would release people twice is also refused: a second epoch, unless
    ``participations`` allows it, a second fit, and a loader that draws with replacement (docs/privacy_lightning.md has the list).
    :class:`~torchonline.callbacks.PrivacySpendLogger` logs the privacy spent. Checkpoints of private learners are secret.
    ``torchonline.export.released(model)`` returns a copy that predicts and holds published weights only.

    *Files.* A checkpoint holds the states of learner, encoder and scaler, but not the objects. Construct them again with the same
    arguments, and call ``OnlinePredictor.load_from_checkpoint(path, learner=..., encoder=..., scaler=...)``. The functions of
    :mod:`torchonline.export` write the ``learner``, whose ``predict()`` returns the weights. To predict with such a file, compute
    the features and the product yourself, and for ``"logistic"`` the sigmoid.

    Cost: one encoder pass over each batch, and for each round the learner's cost and a few vector operations.

    Args:
        learner: a convex learner, or a private learner of a point with one record per step, without ``batch_shape``. Its ``dim``
            is the number of features.
        loss: ``"squared"``, ``"absolute"`` or ``"logistic"``.
        encoder: maps inputs ``(n, *feature)`` to features ``(n, d)``, in evaluation mode; None uses the inputs as features.
        scaler: a :class:`~torchonline.StandardScaler` of the inputs, which sees each row after its prediction; or None. Must be
            None with an encoder.
        log_losses: whether to log ``loss``, the mean over the batch, and ``mean_loss``, the mean over all rounds so far.

    Shape:
        - A batch is ``(inputs, targets)``: ``(N, *feature)`` and ``(N)``.
        - ``forward`` maps inputs to predictions ``(N)``: means, or probabilities for ``"logistic"``.
        - The buffer ``rounds`` counts rounds and ``total_loss`` sums the losses.

    Raises:
        TypeError, ValueError: an argument or a batch is invalid. The rows of a batch before the refused row are learnt.
        RuntimeError: a fit would release people of a private learner twice.

    Example:
        >>> from torchonline.models import RoundLoader
        >>> model = OnlinePredictor(FreeGrad(2, per_coordinate=True), loss="squared")
        >>> x = torch.rand(500, 2)
        >>> loader = RoundLoader(x, x @ torch.tensor([1.0, -2.0]), batch_size=100)
        >>> quiet = {"accelerator": "cpu", "logger": False, "enable_progress_bar": False}
        >>> quiet |= {"enable_model_summary": False, "enable_checkpointing": False}
        >>> pl.Trainer(max_epochs=1, **quiet).fit(model, loader)
        >>> model.rounds, bool(model.total_loss / 500 < 0.05)
        (tensor(500), True)

    Reference:
        Zinkevich, Online convex programming and generalized infinitesimal gradient ascent, ICML 2003, for the protocol.
    """

    rounds: Tensor
    total_loss: Tensor

    def __init__(
        self,
        learner: ConvexLearner | PrivatePoint,
        *,
        loss: str = "squared",
        encoder: nn.Module | None = None,
        scaler: StandardScaler | None = None,
        log_losses: bool = True,
    ) -> None:
        super().__init__()
        self.save_hyperparameters("loss", "log_losses")
        self.learner: Any = instance_of("learner", learner, (ConvexLearner, PrivatePoint), "a learner of a point")
        if learner.batch_shape or getattr(learner, "records_a_step", 1) != 1:
            raise ValueError(f"learner: expected no batch_shape and one record per step, got {learner}")
        self.dim, self.is_private = self.learner.dim, bool(private_learners(learner))
        self.loss = one_of("loss", loss, tuple(LOSSES))
        self.encoder = None if encoder is None else instance_of("encoder", encoder, nn.Module, "a torch.nn.Module")
        self.scaler = None if scaler is None else instance_of("scaler", scaler, StandardScaler, "a StandardScaler")
        if scaler is not None and (encoder is not None or self.is_private):
            raise ValueError("scaler: expected None with an encoder or a private learner, got a scaler")
        self.log_losses: bool = instance_of("log_losses", log_losses, bool, "True or False")
        if self.log_losses and self.is_private:
            raise ValueError(
                "log_losses: expected False with a private learner, whose guarantee does not cover losses, got True"
            )
        self.register_buffer("rounds", writable(torch.zeros((), dtype=torch.int64)))
        self.register_buffer("total_loss", writable(torch.zeros((), dtype=torch.float64)))

    @classmethod
    def load_from_checkpoint(  # type: ignore[override]
        cls, checkpoint_path: Any, map_location: Any = None, **options: Any
    ) -> "OnlinePredictor":
        """Build a model and load a checkpoint's state into it.

        Args:
            checkpoint_path: file of a trainer.
            map_location: device of the state.
            **options: arguments of the constructor: ``learner``, and ``encoder`` and ``scaler`` if the model had them. ``loss``
                and ``log_losses`` are in the file. Other options go to Lightning's method.

        Raises:
            TypeError: ``learner`` is missing.
            ValueError: the file is not a checkpoint, or might run code; or it is a URL.
            RuntimeError: the state does not fit the parts.
        """
        if options.get("learner") is None:
            raise TypeError(
                "learner: expected a learner built as before the fit, got None; call load_from_checkpoint(path, learner=...), "
                "because a checkpoint of an OnlinePredictor holds only the learner's state"
            )
        found: OnlinePredictor = load_module(
            super().load_from_checkpoint, checkpoint_path, {"map_location": map_location, **options}
        )
        return found

    def extra_repr(self) -> str:
        return described(self, vars(self))

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the prediction for each input: a probability with the logistic loss."""
        with torch.no_grad():
            margin = self._features(inputs) @ self.learner.predict()
        return margin.sigmoid() if self.loss == "logistic" else margin

    def configure_callbacks(self) -> list[pl.Callback]:
        """Return a guard against releasing people twice if the learner is private.

        Refuse a trainer callback that averages weights.
        """
        refuse_weight_averages(self)
        return [PassGuard()] if private_learners(self.learner) else []

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return an optimizer of a dummy tensor, so that Lightning counts batches."""
        self._clock = torch.zeros((), device=self.device, requires_grad=True)
        return torch.optim.SGD([self._clock], lr=1.0)

    def training_step(self, batch: Any, batch_idx: int) -> dict[str, Tensor]:
        """Predict and learn the rows of a batch in order.

        Returns:
            ``loss``, a zero so that Lightning counts batches; and ``losses``, ``(N)``, of predictions made before their targets
            were seen. Private learners return no ``losses``.
        """
        inputs, targets = _checked(batch)
        with torch.no_grad():
            features = None if self.scaler is not None else self._features(inputs)
            losses = []
            for i, target in enumerate(targets.to(self._state_dtype)):
                z = self._features(inputs[i : i + 1])[0] if features is None else features[i]
                losses.append(self._learn(z, target))
                if self.scaler is not None:
                    self.scaler.step(inputs[i])
        outputs = {"loss": 0.0 * self._clock}
        if self.log_losses and losses:
            outputs["losses"] = torch.stack(losses)
            means = {"loss": outputs["losses"].mean(), "mean_loss": self.total_loss / self.rounds}
            self.log_dict(means, prog_bar=True, on_step=True, on_epoch=False)
        return outputs

    def test_step(self, batch: Any, batch_idx: int) -> None:
        """Predict without learning; log ``test_loss``, the mean over rounds."""
        inputs, targets = _checked(batch)
        with torch.no_grad():
            losses = LOSSES[self.loss][0](
                self._features(inputs) @ self.learner.predict(), targets.to(self._state_dtype)
            )
        self.log("test_loss", losses.mean(), on_step=False, on_epoch=True, batch_size=len(targets))

    def predict_step(self, batch: Any, batch_idx: int = 0) -> Tensor:
        """Return the predictions of a batch, ``(N)``, without learning."""
        return self(batch if isinstance(batch, Tensor) else batch[0])

    @property
    def _state_dtype(self) -> torch.dtype:
        return self.learner.predict().dtype

    def _features(self, inputs: Tensor) -> Tensor:
        """Return the features of inputs, ``(N, d)``, in the learner's dtype."""
        found = inputs
        if self.scaler is not None:
            found = self.scaler(inputs)
        elif self.encoder is not None:
            with evaluating(self.encoder):
                found = encoded_copy(self.encoder, typed_inputs(self.encoder, inputs))
        check_shape("inputs", found, (len(inputs), self.dim))
        return found.to(self._state_dtype)

    def _learn(self, z: Tensor, target: Tensor) -> Tensor:
        """Learn one row and return the loss of its prediction."""
        value, slope = LOSSES[self.loss]
        loss = value(z @ self.learner.predict(), target)
        # Some private learners query points that must not be published; they name the method secret_queries.
        margins = getattr(self.learner, "secret_queries", self.learner.queries)() @ z
        values = value(margins, target)
        self.learner.step(slope(margins, target).unsqueeze(-1) * z, None if self.is_private else values)
        self.rounds += 1
        if not self.is_private:
            self.total_loss += loss
        return loss


def _checked(batch: Any) -> tuple[Tensor, Tensor]:
    """Return inputs and targets of a batch, or raise."""
    if not isinstance(batch, (tuple, list)) or len(batch) != 2 or not all(isinstance(one, Tensor) for one in batch):
        raise TypeError(f"batch: expected (inputs, targets), got {type(batch).__name__}")
    inputs, targets = batch
    if targets.dim() != 1 or inputs.dim() == 0 or len(inputs) != len(targets):
        got = f"{shape_text(inputs.shape)} and {shape_text(targets.shape)}"
        raise ValueError(f"batch: expected inputs (N, ...) and targets (N), got {got}")
    return inputs, targets
