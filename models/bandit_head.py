"""A bandit policy on top of an encoder, as one plain module."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from torchonline.bandits.policies import Policy
from torchonline.core.backend import is_readable
from torchonline.core.checks import (
    check_shape,
    check_values,
    one_of,
    positive_integer,
    shape_text,
)
from torchonline.core.inputs import check_tensor


class BanditHead(nn.Module):
    r"""An encoder that turns inputs into arms' features, and a policy that chooses among them and learns.

    A round::

        k = head.select(inputs)
        head.step(inputs, k, reward)

    Two shapes of problem:

    - *Inputs for each arm* (``actions=None``): the encoder maps the K inputs of a decision one by one to the arms'
      features :math:`x_k = \phi(z_k)`. K may vary from decision to decision.
    - *One context, K actions*: the encoder maps the context to :math:`\phi(z)`, and each action's embedding :math:`a_k`
      is combined with it. ``combine="product"``: :math:`x_k = \phi(z) \odot a_k`, so that the score
      :math:`x_k^\top\theta = \phi(z)^\top \mathrm{diag}(\theta)\, a_k` is bilinear in context and action.
      ``combine="outer"``: :math:`x_k` is the flattened :math:`\phi(z) a_k^\top`; with ``actions=torch.eye(K)`` that
      is a linear model of its own for each action.

    To the policy the encoder is a fixed map: whatever mode it was left in, :meth:`encode`, :meth:`forward`,
    :meth:`select` and :meth:`step` run it in evaluation mode (no dropout, no batch statistics), and the last two
    without gradients. A scripted head cannot switch modes by itself and refuses instead. When the encoder changes, the
    policy's statistics are of features that no longer exist; :class:`~torchonline.models.NeuralLinearBandit` rebuilds
    them.

    Cost of a decision: one pass of the encoder over K inputs, or over one context, and the policy's. A step encodes the
    chosen arm only. Whoever has the features already calls ``head.policy.step``.

    Args:
        encoder: maps a batch ``(n, *feature)`` to ``(n, m)``. m is the policy's dimension d; or d / e for
            ``combine="outer"``.
        policy: any :class:`~torchonline.bandits.policies.Policy`; ``*B`` is its estimator's ``batch_shape``.
        actions: embeddings ``(K, e)`` of the actions, kept as a buffer; None where the inputs tell arms apart.
        combine: ``"product"`` (e = d) or ``"outer"`` (d = m e); with ``actions`` only.
        feature_dims: how many trailing dimensions of the inputs belong to one item: 1 for vectors, 3 for images.

    Shape:
        - inputs: ``(*B, ..., K, *feature)``, or ``(*B, ..., *feature)`` with ``actions``.
        - action, reward: ``(*B)`` for one round, ``(*B, n)`` for n rounds in order.

    Example:
        >>> from torchonline import OFUL
        >>> head = BanditHead(nn.Linear(4, 2), OFUL(2))
        >>> inputs = torch.eye(4)  # of four arms
        >>> k = head.select(inputs)
        >>> head.step(inputs, k, torch.tensor(1.0))
        >>> head.policy.estimator.rounds
        tensor(1)

    Reference:
        Riquelme, Tucker and Snoek, Deep Bayesian bandits showdown, ICLR 2018, for linear bandits on encoders. Here any
        policy may sit on the encoder, and arms may have inputs of their own.
    """

    if TYPE_CHECKING:  # an annotation of None would hide the buffer from TorchScript
        actions: Tensor | None

    def __init__(
        self,
        encoder: nn.Module,
        policy: Policy,
        *,
        actions: Tensor | None = None,
        combine: str = "product",
        feature_dims: int = 1,
    ) -> None:
        super().__init__()
        if not isinstance(encoder, nn.Module):
            raise TypeError(f"encoder: expected a torch.nn.Module, got {type(encoder).__name__}")
        if not isinstance(policy, Policy):
            raise TypeError(f"policy: expected a Policy, got {type(policy).__name__}")
        self.encoder = encoder
        self.policy = policy
        self.combine = one_of("combine", combine, ("product", "outer"))
        self.feature_dims = positive_integer("feature_dims", feature_dims)
        dim = policy.estimator.dim
        if actions is None:
            self.encoder_width = dim
            self.item_dims = self.feature_dims + 1
        else:
            actions = check_tensor("actions", actions, policy.estimator.theta_hat).detach().clone()
            check_values("actions", actions)
            self.encoder_width = _encoder_width(actions, self.combine, dim)
            self.item_dims = self.feature_dims
        self.register_buffer("actions", actions)

    @torch.jit.export
    def encode(self, inputs: Tensor) -> Tensor:
        """The arms' features of each decision: ``(..., K, *feature)``, or ``(..., *feature)``, to ``(..., K, d)``.

        Differentiable in ``inputs`` and in the encoder's parameters.

        Raises:
            TypeError: ``inputs`` is no tensor.
            ValueError: ``inputs`` has too few dimensions, or the encoder's output is not ``(n, m)``.
        """
        if not torch.jit.is_scripting():
            self._check_inputs(inputs, ())
            with evaluating(self.encoder):
                return self._arms(inputs)
        return self._arms(inputs)

    @torch.jit.export
    def chosen_features(self, inputs: Tensor, action: Tensor) -> Tensor:
        """The features of the chosen arms, ``(..., d)``, by the encoder in its own mode: what to train it through.

        Args:
            inputs: as in :meth:`encode`.
            action: which arm of each decision, int64, ``(...)``.

        Raises:
            TypeError: ``inputs`` is no tensor, or ``action`` no int64 tensor.
            ValueError: a shape is wrong, or ``action`` names no arm.
        """
        if not torch.jit.is_scripting():
            self._check_inputs(inputs, ())
            self._check_action(action, inputs)
        actions = self.actions
        if actions is None:
            return self._encoded(of_chosen(inputs, action))
        return self._combined(self._encoded(inputs), nn.functional.embedding(action, actions))

    def forward(self, inputs: Tensor) -> Tensor:
        """The policy's score of each arm: ``(*B, ..., K)``."""
        if not torch.jit.is_scripting():
            self._check_inputs(inputs, self.policy.estimator.batch_shape)
        return self.policy(self.encode(inputs))

    @torch.jit.export
    def select(self, inputs: Tensor, mask: Tensor | None = None) -> Tensor:
        """The chosen arm of each decision, ``(*B, ...)``; ``mask`` ``(*B, ..., K)`` is True where an arm is available.

        Changes no state. Raises what :meth:`encode` and the policy's ``select`` raise.
        """
        if not torch.jit.is_scripting():
            self._check_inputs(inputs, self.policy.estimator.batch_shape)
        with torch.no_grad():
            return self.policy.select(self.encode(inputs), mask)

    @torch.jit.export
    def step(self, inputs: Tensor, action: Tensor, reward: Tensor, noise_scale: Tensor | None = None) -> None:
        """Learn from the reward of a decision, or from several in order. The encoder does not change.

        Args:
            inputs: what ``select`` saw, with leading dimensions ``(*B)`` or ``(*B, n)``.
            action: the arm that was played, int64, ``(*B)`` or ``(*B, n)``.
            reward: what it paid, shaped like ``action``.
            noise_scale: this round's noise scale where it is known, shaped like ``action``.

        Raises:
            TypeError: an argument is of the wrong type.
            ValueError: a shape, device or value is wrong. No buffer has changed.
        """
        if not torch.jit.is_scripting():
            self._check_inputs(inputs, self.policy.estimator.batch_shape, 1)
            with torch.no_grad(), evaluating(self.encoder):
                x = self.chosen_features(inputs, action)
        else:
            with torch.no_grad():
                x = self.chosen_features(inputs, action)
        self.policy.step(x, reward, noise_scale)

    def _arms(self, inputs: Tensor) -> Tensor:
        encoded = self._encoded(inputs)
        actions = self.actions
        return encoded if actions is None else self._combined(encoded.unsqueeze(-2), actions)

    def _encoded(self, items: Tensor) -> Tensor:
        """Each item through the encoder: ``(..., *feature)`` to ``(..., m)``."""
        if torch.jit.is_scripting() and self.encoder.training:
            raise RuntimeError("encoder: expected evaluation mode, got training mode; call eval() on the head")
        lead = items.dim() - self.feature_dims
        encoded = self.encoder(items.flatten(0, lead - 1) if lead > 0 else items.unsqueeze(0))
        if not torch.jit.is_scripting():
            self._check_encoded(encoded)
        return encoded.reshape(items.shape[:lead] + encoded.shape[1:])

    def _combined(self, encoded: Tensor, embedding: Tensor) -> Tensor:
        """Context and action as one vector: ``(..., m)`` and ``(..., e)`` to ``(..., d)``."""
        if self.combine == "product":
            return encoded * embedding
        return (encoded.unsqueeze(-1) * embedding.unsqueeze(-2)).flatten(-2)

    # What follows is eager Python only: TorchScript never reaches it.

    def _check_inputs(self, inputs: Tensor, batch: tuple[int, ...], most: int | None = None) -> None:
        """Refuse inputs that do not begin with ``batch``, or go on for over ``most`` dimensions before the item's."""
        if not isinstance(inputs, Tensor):
            raise TypeError(f"inputs: expected a torch.Tensor, got {type(inputs).__name__}")
        lead = inputs.dim() - self.item_dims
        if lead >= len(batch) and inputs.shape[: len(batch)] == batch and (most is None or lead <= len(batch) + most):
            return
        arms = () if self.item_dims == self.feature_dims else ("K",)
        feature = ("feature",) if self.feature_dims == 1 else tuple(f"feature{i}" for i in range(self.feature_dims))
        shape = shape_text((*batch, "..." if most is None else "[n]", *arms, *feature))
        raise ValueError(f"inputs: expected shape {shape}, got {shape_text(inputs.shape)}")

    def _check_action(self, action: Tensor, inputs: Tensor) -> None:
        if not isinstance(action, Tensor):
            raise TypeError(f"action: expected a torch.Tensor, got {type(action).__name__}")
        if action.dtype != torch.int64:
            raise TypeError(f"action: expected torch.int64, got {action.dtype}")
        lead = inputs.dim() - self.item_dims
        check_shape("action", action, inputs.shape[:lead])
        arms = inputs.size(lead) if self.actions is None else self.actions.size(0)
        if self.policy.estimator.validate and is_readable(action) and action.numel():
            low, high = (bound.item() for bound in action.aminmax())
            if low < 0 or high >= arms:
                raise ValueError(f"action: expected indices from 0 to {arms - 1}, got {low if low < 0 else high}")

    def _check_encoded(self, encoded: Tensor) -> None:
        if not isinstance(encoded, Tensor):
            raise TypeError(f"encoder: expected a torch.Tensor as output, got {type(encoded).__name__}")
        if encoded.dim() != 2 or encoded.size(-1) != self.encoder_width:
            raise ValueError(
                f"encoder: expected output of shape (n, {self.encoder_width}) under a policy of dim "
                f"{self.policy.estimator.dim}, got {shape_text(encoded.shape)}"
            )


def of_chosen(values: Tensor, action: Tensor) -> Tensor:
    """What belongs to the chosen arms: ``(..., K, *rest)`` and ``(...)`` to ``(..., *rest)``."""
    lead = action.dim()
    index = action.reshape(list(action.shape) + [1] * (values.dim() - lead))
    return values.gather(lead, index.expand_as(values.narrow(lead, 0, 1))).squeeze(lead)


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Run a module in evaluation mode, then put each part back into the mode it was in."""
    training = [part for part in module.modules() if part.training]
    for part in training:
        part.training = False
    try:
        yield
    finally:
        for part in training:
            part.training = True


def _encoder_width(actions: Tensor, combine: str, dim: int) -> int:
    """How many features the encoder has to give for the policy to get ``dim``."""
    if actions.dim() != 2 or actions.size(0) == 0:
        raise ValueError(f"actions: expected shape (K, e) with K > 0, got {shape_text(actions.shape)}")
    width = actions.size(1)
    if combine == "product":
        if width != dim:
            raise ValueError(
                f'actions: expected shape (K, {dim}), the policy\'s dim, for combine="product", got (K, {width})'
            )
        return dim
    if width == 0 or dim % width != 0:
        raise ValueError(
            f'actions: expected a width that divides the policy\'s dim {dim} for combine="outer", got (K, {width})'
        )
    return dim // width
