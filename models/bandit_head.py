"""A bandit policy on top of an encoder, as one plain module."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from torchonline.bandits.arguments import as_actions
from torchonline.bandits.composed import ComposedPolicy, as_policy, learner_of
from torchonline.bandits.disjoint import DisjointArms
from torchonline.bandits.estimator import Estimator
from torchonline.bandits.policies import Policy
from torchonline.bandits.scaler import RunningScaler
from torchonline.bandits.shared_radius_master import SharedRadiusMaster
from torchonline.core.backend import in_python, writable
from torchonline.core.checks import check_values, one_of, positive_integer, shape_text
from torchonline.core.citations import Citable
from torchonline.core.delegated import WithDelegated, delegated
from torchonline.core.inputs import ArrayLike, as_tensor, check_tensor
from torchonline.core.loading import load_whole
from torchonline.core.ops import of_chosen
from torchonline.core.options import described
from torchonline.models.encoding import as_inputs, encoded_items, encoder_width, evaluating, typed_like
from torchonline.models.input_scaling import (
    both_or_neither,
    check_inputs,
    check_scalable,
    checked_scaler,
    for_encoder,
    step_together,
)

# Items that the encoder gets in one pass where a log is learnt.
ENCODED_AT_ONCE = 8192


class BanditHead(Citable, WithDelegated):
    r"""Encoder of the arms' features with a policy on top.

    A round::

        k = head.select(inputs)
        head.step(inputs, k, reward)

    *Inputs for each arm* (``actions=None``): the encoder maps each of the K inputs of a decision to the features of an arm,
    :math:`x_k = \phi(z_k)`. K may vary from decision to decision.

    *One context, K actions with a model each* (``actions=K``): the encoder maps the context to :math:`\phi(z)`, and each action
    has an estimator of its own, see :class:`~torchonline.DisjointArms`. Actions may come and go, by ``head.policy.add_actions``
    and ``remove_actions``: what the head returns and takes are their ids, ``head.policy.arm_ids``.

    *One context, K actions with embeddings* (``actions`` of shape (K, e)): :math:`\phi(z)` is combined with the embedding
    :math:`a_k` of each action. ``combine="product"``: :math:`x_k = \phi(z) \odot a_k`, so that the score
    :math:`x_k^\top\theta = \phi(z)^\top \mathrm{diag}(\theta)\, a_k` is bilinear in context and action. ``combine="outer"``:
    :math:`x_k` is the flattened :math:`\phi(z) a_k^\top`.

    :meth:`encode`, :meth:`forward`, :meth:`select` and :meth:`step` run the encoder in evaluation mode, whatever its mode, and
    restore the mode afterwards; a scripted head in training mode raises an error. The encoder gets a copy of the inputs, so that
    it may work in place, as ``x.div_(255)`` does; files keep the copy. :meth:`select` and :meth:`step` compute no gradients. If
    the encoder changes, the policy's statistics must be rebuilt, as :class:`~torchonline.models.NeuralLinearBandit` does.

    Cost of a decision: one pass of the encoder over K inputs, or over one context, plus the policy's cost. A step encodes only
    the chosen arm. If the features are known, call ``head.policy.step`` directly.

    Args:
        encoder: maps a batch ``(n, *feature)`` to ``(n, m)``. m is the policy's dimension d, or d / e for ``combine="outer"``.
        policy: what :func:`torchonline.bandit` returns, to start with; any :class:`~torchonline.bandits.policies.Policy`; an
            estimator, to play by :class:`~torchonline.UCB`; or one with a scaler, :class:`~torchonline.ScaledPolicy` or
            :class:`~torchonline.DisjointArms`. ``*B`` is its ``batch_shape``.
        actions: K, if each action gets an estimator like the policy's; or embeddings ``(K, e)``, a tensor, an array or lists,
            kept as a buffer. None if each arm has its own inputs, or if ``policy`` is a :class:`~torchonline.DisjointArms`.
        combine: ``"product"`` (e = d) or ``"outer"`` (d = m e). Only used with embeddings.
        feature_dims: number of trailing input dimensions that form one item: 1 for vectors, 3 for images.
        scaler: a :class:`~torchonline.RunningScaler` of the raw inputs, for inputs of any units; None if they need none. The
            encoder gets ``scaler(inputs)``, in the type of its parameters; give raw inputs in float64 if float32 would round
            off what differs between them. A step shows the scaler the context, or the chosen arm's inputs, after the policy
            has learnt; deciding never does. Scaler and policy learn both or not at all, for which each step copies their
            states. Inputs must be vectors (``feature_dims=1``), and neither scaler nor policy may have a ``batch_shape``. The
            policy's radius is a heuristic under a scaler, also after the scaler has frozen, because the policy does not forget
            the rounds that it has learnt in other coordinates. For a guarantee after a freeze, give the scaler to
            :class:`~torchonline.DisjointArms` or :class:`~torchonline.ScaledPolicy`.

    Shape:
        - inputs: ``(*B, ..., K, *feature)``, or ``(*B, ..., *feature)`` with actions.
        - action, reward: ``(*B)`` for one round, ``(*B, n)`` for n rounds in order.

    Example:
        >>> from torchonline import bandit
        >>> head = BanditHead(nn.Linear(4, 2), bandit(2, actions=3, scale=False))  # 2 learnt features
        >>> context = torch.rand(4)
        >>> k = head.select(context)
        >>> head.step(context, k, 1.0)
        >>> head.rounds, head.predict(context).shape
        (tensor(1), torch.Size([3]))

    Reference:
        Riquelme, Tucker and Snoek, Deep Bayesian bandits showdown, ICLR 2018, for linear bandits on encoders. Here any policy
        can be on top of the encoder, and arms can have their own inputs.
    """

    if TYPE_CHECKING:  # at run time the annotations would hide the buffer and the policy from TorchScript
        actions: Tensor | None
        policy: Any
        scaler: RunningScaler | None

        def __call__(self, inputs: ArrayLike) -> Tensor: ...

    __constants__ = ("has_models",)
    held_by = "head.policy"

    def __init__(
        self,
        encoder: nn.Module,
        policy: Policy | ComposedPolicy | Estimator,
        *,
        actions: int | Tensor | Sequence[Sequence[float]] | None = None,
        combine: str = "product",
        feature_dims: int = 1,
        scaler: RunningScaler | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(encoder, nn.Module):
            raise TypeError(f"encoder: expected a torch.nn.Module, got {type(encoder).__name__}")
        chosen: Any = policy if isinstance(policy, ComposedPolicy) else as_policy("policy", policy)
        self.encoder = encoder
        self.policy = chosen = _with_models(chosen, actions)
        self.combine = one_of("combine", combine, ("product", "outer"))
        self.feature_dims = positive_integer("feature_dims", feature_dims)
        self.scaler = checked_scaler(scaler, chosen, self.feature_dims)
        # Whether each action has an estimator of its own.
        self.has_models = isinstance(chosen, DisjointArms)
        self.encoder_width = learner_of(chosen).dim
        self.item_dims = self.feature_dims
        embeddings = None
        if not self.has_models and actions is None:
            self.item_dims += 1
        elif not self.has_models:
            embeddings = check_tensor("actions", actions, chosen.estimator.theta_hat).detach().clone()
            check_values("actions", embeddings)
            self.encoder_width = encoder_width(embeddings, self.combine, self.encoder_width)
        self.register_buffer("actions", writable(embeddings))

    def _encode_in_python(self, inputs: Any) -> Tensor:
        inputs = self._checked_inputs(inputs, ())
        with evaluating(self.encoder):
            return self._arms(inputs)

    @torch.jit.export
    @in_python(_encode_in_python)
    def encode(self, inputs: Tensor) -> Tensor:
        """Return the features of all arms of each decision, ``(..., K, d)``.

        Where each action has an estimator of its own, these are the context's features, ``(..., d)``. They are differentiable in
        the inputs and in the encoder's parameters.

        Args:
            inputs: ``(..., K, *feature)``, or ``(..., *feature)`` with ``actions``. NumPy arrays and lists are converted to the
                type of the encoder's parameters; their integers stay integers if the encoder begins with an embedding.

        Raises:
            TypeError: ``inputs`` holds no real numbers.
            ValueError: ``inputs`` has too few dimensions, the encoder cannot take them, or its output is not ``(n, m)``.
        """
        return self._arms(inputs)

    def _chosen_features_in_python(self, inputs: Any, action: Any) -> Tensor:
        inputs = self._checked_inputs(inputs, ())
        return self._chosen(inputs, self._checked_action(action, inputs))

    @torch.jit.export
    @in_python(_chosen_features_in_python)
    def chosen_features(self, inputs: Tensor, action: Tensor) -> Tensor:
        """Return the features of the chosen arms, ``(..., d)``, to train the encoder.

        Where each action has an estimator of its own, these are the context's features. The encoder runs in its current mode.

        Args:
            inputs: as in :meth:`encode`, whose errors are raised.
            action: chosen arm of each decision, int64, ``(...)``.
        """
        return self._chosen(inputs, action)

    # TorchScript compiles none of these, and files have none of them.

    @delegated
    def rounds(self) -> Tensor:
        """The policy's count of rounds, ``(*B)``. Python only."""
        return self.policy.rounds

    @delegated
    def theta_hat(self) -> Tensor:
        """The estimator's parameter. Python only.

        Its shape is ``(*B, d)``; with a model for each arm, ``(*B, K, d)``.
        """
        return self.policy.theta_hat

    def predict(self, inputs: Any) -> Tensor:
        """Return the estimated mean reward of each arm, ``(*B, ..., K)``, differentiable.

        Inputs are raw, as in :meth:`select`. ``head(inputs)`` returns scores instead, by which arms are chosen. Changes no state.
        Python only.
        """
        return self.policy.predict(self._features_of(inputs))

    def interval(self, inputs: Any) -> tuple[Tensor, Tensor]:
        """Return lower and upper confidence bounds of each arm's mean reward.

        Shapes: ``(*B, ..., K)`` twice. Inputs are raw, as in :meth:`select`. The bounds are those of the policy on the encoder's
        features. A theorem behind them asks for an encoder that stays, and with a ``scaler`` they are a heuristic. Changes no
        state. Python only.
        """
        return self.policy.interval(self._features_of(inputs))

    def reset(self) -> None:
        """Put the policy and the scalers back to their first state, in place.

        The encoder stays as it is. An interrupt leaves all as it was. Python only.
        """
        scaler = self.scaler
        if scaler is None:
            self.policy.reset()
            return

        def reset() -> None:
            self.policy.reset()
            scaler.reset()

        both_or_neither(scaler, self.policy, reset)

    def load_state_dict(self, state_dict: Mapping[str, Any], *arguments: Any, **options: Any) -> Any:
        """Load a state.

        One that is refused, or a load that is interrupted, changes nothing.

        Args:
            state_dict: a state of a head of the same modules and options.
            *arguments: as in ``nn.Module.load_state_dict``.
            **options: as there.
        """
        return load_whole(self, super().load_state_dict, state_dict, *arguments, **options)

    def _features_of(self, inputs: Any) -> Tensor:
        """Return the features of raw inputs of decisions, which are checked. Python only."""
        inputs = self._checked_inputs(inputs, learner_of(self.policy).batch_shape)
        check_scalable(self.scaler, inputs)
        return self.encode(inputs)

    def _forward_in_python(self, inputs: Any) -> Tensor:
        return self.policy(self.encode(self._checked_inputs(inputs, learner_of(self.policy).batch_shape)))

    @in_python(_forward_in_python)
    def forward(self, inputs: Tensor) -> Tensor:
        """Return the policy's score of each arm, ``(*B, ..., K)``."""
        return self.policy(self.encode(inputs))

    def _select_in_python(self, inputs: Any, mask: Tensor | None = None) -> Tensor:
        policy: Any = self._modules["policy"]  # a fifth of the time of self.policy
        inputs = self._checked_inputs(inputs, learner_of(policy).batch_shape)
        if self._passes_inputs_on():
            return policy.select(inputs, mask)
        check_scalable(self.scaler, inputs)
        with torch.no_grad(), evaluating(self.encoder):
            arms = self._arms(inputs)
        return policy.select(arms, mask)

    @torch.jit.export
    @in_python(_select_in_python)
    def select(self, inputs: Tensor, mask: Tensor | None = None) -> Tensor:
        """Choose an arm in each decision, ``(*B, ...)``, without changing any state.

        Args:
            inputs: as in :meth:`encode`, with leading dimensions ``(*B, ...)``.
            mask: ``(*B, ..., K)``, True for available arms. None if all are available.
        """
        with torch.no_grad():
            return self.policy.select(self.encode(inputs), mask)

    def _probabilities_in_python(self, inputs: Any, mask: Tensor | None = None) -> Tensor:
        with torch.no_grad():
            return self.policy.probabilities(self._features_of(inputs), mask)

    @torch.jit.export
    @in_python(_probabilities_in_python)
    def probabilities(self, inputs: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the probability with which each arm is chosen, ``(*B, ..., K)``.

        Changes no state. Arguments are those of :meth:`select`.
        """
        with torch.no_grad():
            return self.policy.probabilities(self.encode(inputs), mask)

    def _decide_in_python(self, inputs: Any, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            return self.policy.decide(self._features_of(inputs), mask)

    @torch.jit.export
    @in_python(_decide_in_python)
    def decide(self, inputs: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Choose an arm in each decision, and return its probability too, for a log.

        See :meth:`Policy.decide`. Arguments are those of :meth:`select`.
        """
        with torch.no_grad():
            return self.policy.decide(self.encode(inputs), mask)

    def _step_in_python(self, inputs: Any, action: Any, reward: Any, *, noise_scale: Any = None) -> None:
        policy: Any = self._modules["policy"]
        inputs = self._checked_inputs(inputs, learner_of(policy).batch_shape, 1)
        if self._passes_inputs_on():
            policy.step(inputs, action, reward, noise_scale=noise_scale)
            return
        if self.scaler is not None:
            step_together(self, self.scaler, inputs, action, reward, noise_scale)
            return
        if not self.has_models:  # otherwise the policy checks the action
            action = self._checked_action(action, inputs)
        with torch.no_grad(), evaluating(self.encoder):
            x = self._chosen(inputs, action)
        self._learn(x, action, reward, noise_scale)

    @torch.jit.export
    @in_python(_step_in_python)
    def step(self, inputs: Tensor, action: Tensor, reward: Tensor, noise_scale: Tensor | None = None) -> None:
        """Learn from one or more rewards in order, as the policy's ``step`` does.

        The encoder does not change.

        Args:
            inputs: as in :meth:`encode`, with leading dimensions ``(*B)`` or ``(*B, n)``.
            action: chosen arms, as :meth:`select` returns them, ``(*B)`` or ``(*B, n)``; int64, or integers and lists of them.
            reward: rewards of the chosen arms, shaped like ``action``.
            noise_scale: noise scale of each round if known, shaped like ``action``.
        """
        with torch.no_grad():
            if self.scaler is None:
                self._learn(self._chosen(inputs, action), action, reward, noise_scale)
            else:
                self._learn_in_order(inputs, action, reward, noise_scale)

    def _learn_blocks_in_python(
        self, inputs: Any, action: Any, reward: Any, *, noise_scale: Any = None, block_size: int | None = None
    ) -> None:
        policy: Any = self._modules["policy"]
        inputs = self._checked_inputs(inputs, learner_of(policy).batch_shape, 1)
        if self._passes_inputs_on():
            policy.learn(inputs, action, reward, noise_scale=noise_scale, block_size=block_size)
            return
        if self.scaler is not None:
            if block_size is not None:
                positive_integer("block_size", block_size)
            step_together(self, self.scaler, inputs, action, reward, noise_scale)
            return
        action = self._checked_action(action, inputs)
        rows = inputs.dim() - self.item_dims - 1
        with torch.no_grad(), evaluating(self.encoder):
            if rows < 0 or inputs.size(rows) <= ENCODED_AT_ONCE:
                x = self._chosen(inputs, action)
            else:
                parts = zip(inputs.split(ENCODED_AT_ONCE, rows), action.split(ENCODED_AT_ONCE, rows), strict=True)
                x = torch.cat([self._chosen(*part) for part in parts], rows)
        self._learn_blocks(x, action, reward, noise_scale, block_size)

    @torch.jit.export
    @in_python(_learn_blocks_in_python)
    def learn(
        self,
        inputs: Tensor,
        action: Tensor,
        reward: Tensor,
        noise_scale: Tensor | None = None,
        block_size: int | None = None,
    ) -> None:
        """Learn from many rewards, in blocks: see :meth:`Estimator.learn`.

        Under a scaler of the head, the rounds are learnt in order. Arguments are those of :meth:`step`, and ``block_size``.
        """
        with torch.no_grad():
            if self.scaler is None:
                self._learn_blocks(self._chosen(inputs, action), action, reward, noise_scale, block_size)
            else:
                self._learn_in_order(inputs, action, reward, noise_scale)

    def _learn_in_order(self, inputs: Tensor, action: Tensor, reward: Tensor, noise_scale: Tensor | None) -> None:
        """Let policy and scaler learn from one round, or from n in order."""
        if inputs.dim() == self.item_dims:
            self._learn_and_scale(inputs, action, reward, noise_scale)
        else:
            for i in range(inputs.size(0)):
                scale = None if noise_scale is None else noise_scale[i]
                self._learn_and_scale(inputs[i], action[i], reward[i], scale)

    def _learn_and_scale(self, inputs: Tensor, action: Tensor, reward: Tensor, noise_scale: Tensor | None) -> None:
        """Let the policy learn from a round, and then the scaler."""
        self._learn(self._chosen(inputs, action), action, reward, noise_scale)
        scaler = self.scaler
        if scaler is not None:
            raw = of_chosen(inputs, action) if self.item_dims > self.feature_dims else inputs
            scaler._observe(raw.to(scaler.mean.dtype))

    def _learn(self, x: Tensor, action: Tensor, reward: Tensor, noise_scale: Tensor | None) -> None:
        """Let the policy learn from the features of the chosen arms."""
        if self.has_models:
            self.policy.step(x, action, reward, noise_scale=noise_scale)
        else:
            self.policy.step(x, reward, noise_scale=noise_scale)

    def _learn_blocks(
        self, x: Tensor, action: Tensor, reward: Tensor, noise_scale: Tensor | None, block_size: int | None
    ) -> None:
        """Let the policy learn from the features of the chosen arms, in blocks."""
        if self.has_models:
            self.policy.learn(x, action, reward, noise_scale=noise_scale, block_size=block_size)
        else:
            self.policy.learn(x, reward, noise_scale=noise_scale, block_size=block_size)

    def extra_repr(self) -> str:
        values = {
            "actions": self.policy.actions if self.has_models else self.actions,
            "combine": self.combine,
            "feature_dims": self.feature_dims,
        }
        return described(self, values)

    def _arms(self, inputs: Tensor) -> Tensor:
        encoded = self._encoded(inputs)
        actions = self.actions
        return encoded if actions is None else self._combined(encoded.unsqueeze(-2), actions)

    def _chosen(self, inputs: Tensor, action: Tensor) -> Tensor:
        actions = self.actions
        if self.has_models:
            return self._encoded(inputs)
        if actions is None:
            return self._encoded(of_chosen(inputs, action))
        return self._combined(self._encoded(inputs), nn.functional.embedding(action, actions))

    def _encoded(self, items: Tensor) -> Tensor:
        """Encode each item: ``(..., *feature)`` to ``(..., m)``."""
        self._check_mode()
        if self.scaler is not None:
            items = self._scaled(items)
        lead = items.dim() - self.feature_dims
        encoded = self._encoded_batch(items.flatten(0, lead - 1) if lead > 0 else items.unsqueeze(0))
        self._check_encoded(encoded)
        return encoded.reshape(items.shape[:lead] + encoded.shape[1:])

    def _encoded_batch_in_python(self, items: Tensor) -> Any:
        return encoded_items(self.encoder, items, self.feature_dims)

    @in_python(_encoded_batch_in_python)
    def _encoded_batch(self, items: Tensor) -> Tensor:
        """Encode a copy of a batch, because the encoder may work in place."""
        return self.encoder(items.clone())

    def plot_confidence(
        self,
        inputs: Any,
        ax: Any = None,
        *,
        names: Sequence[str] | None = None,
        mask: Tensor | None = None,
        index: Any = None,
        label: str | None = None,
    ) -> tuple[Any, Any]:
        """Draw each arm's estimated mean reward and its confidence interval.

        See :meth:`torchonline.UCB.plot_confidence`; ``inputs`` are those of :meth:`select`. The intervals are those of the policy
        on the encoder's features. A theorem behind them asks for an encoder that stays, and with a ``scaler`` they are a
        heuristic.
        """
        from torchonline.bandits.pictures import draw_confidence

        with torch.no_grad():
            features = self._features_of(inputs)
        heuristic = "" if self.scaler is None else "the inputs are scaled"
        return draw_confidence(self.policy, (features,), ax, names, mask, index, label, heuristic)

    def _scaled_in_python(self, items: Tensor) -> Tensor:
        scaler: Any = self.scaler
        return for_encoder(scaler, self.encoder, items)

    @in_python(_scaled_in_python)
    def _scaled(self, items: Tensor) -> Tensor:
        """Scale inputs, in the encoder's type; in a script, in the inputs' own."""
        scaler = self.scaler
        return items if scaler is None else scaler._scaled(items).to(items.dtype)

    def _any_mode_in_python(self) -> None:
        return

    @in_python(_any_mode_in_python)
    def _check_mode(self) -> None:
        """Refuse an encoder in training mode, which a scripted head cannot leave."""
        if self.encoder.training:
            raise RuntimeError("encoder: expected evaluation mode, got training mode; call eval() on the head")

    def _check_encoded_in_python(self, encoded: Any) -> None:
        if not isinstance(encoded, Tensor):
            raise TypeError(f"encoder: expected a torch.Tensor as output, got {type(encoded).__name__}")
        if encoded.dim() != 2 or encoded.size(-1) != self.encoder_width:
            raise ValueError(
                f"encoder: expected output of shape (n, {self.encoder_width}) under a policy of dim "
                f"{learner_of(self.policy).dim}, got {shape_text(encoded.shape)}"
            )

    @in_python(_check_encoded_in_python)
    def _check_encoded(self, encoded: Tensor) -> None:
        """Refuse an output of the encoder that is not ``(n, m)``."""
        return

    def _combined(self, encoded: Tensor, embedding: Tensor) -> Tensor:
        """Combine contexts and actions: ``(..., m)`` and ``(..., e)`` to ``(..., d)``."""
        if self.combine == "product":
            return encoded * embedding
        return (encoded.unsqueeze(-1) * embedding.unsqueeze(-2)).flatten(-2)

    # TorchScript does not compile the methods below.

    def _passes_inputs_on(self) -> bool:
        """Return whether contexts are features already: then the policy checks them."""
        if self.feature_dims != 1 or type(self._modules["encoder"]) is not nn.Identity:
            return False
        return self.has_models and self._modules.get("scaler") is None

    def _checked_inputs(self, inputs: Any, batch: tuple[int, ...], most: int | None = None) -> Tensor:
        """Return inputs led by ``batch`` and at most ``most`` dimensions, or raise."""
        if (
            type(inputs) is Tensor
            and inputs.dim() == self.item_dims
            and not batch
            and self._modules.get("scaler") is None
        ):
            return inputs  # the usual, in a third of the time
        if not isinstance(inputs, Tensor):
            state = self.policy.estimator.theta_hat
            if self.scaler is None:
                inputs = as_inputs(inputs, self.encoder, state)
            else:  # it gets all digits of the inputs
                inputs = as_tensor("inputs", inputs, typed_like(self.encoder, state).device)
        if self.scaler is not None:
            check_inputs(self.scaler, inputs)
        lead = inputs.dim() - self.item_dims
        if lead >= len(batch) and inputs.shape[: len(batch)] == batch and (most is None or lead <= len(batch) + most):
            return inputs
        arms = () if self.item_dims == self.feature_dims else ("K",)
        feature = ("feature",) if self.feature_dims == 1 else tuple(f"feature{i}" for i in range(self.feature_dims))
        shape = shape_text((*batch, "..." if most is None else "[n]", *arms, *feature))
        got = f"{shape_text(inputs.shape)} under feature_dims={self.feature_dims}"
        raise ValueError(f"inputs: expected shape {shape}, got {got}")

    def _checked_action(self, action: Any, inputs: Tensor) -> Tensor:
        """Return actions as a tensor, one for each of the inputs, or raise."""
        shape = inputs.shape[: inputs.dim() - self.item_dims]
        validate, count = self.policy.estimator.validate, self._number_of_arms(inputs)
        if not self.has_models:
            return as_actions(action, shape, inputs.device, count, validate)
        return self.policy._named(as_actions(self.policy._placed(action), shape, inputs.device, count, validate))

    def _number_of_arms(self, inputs: Tensor) -> int:
        """Return K of decisions on checked inputs."""
        if self.has_models:
            return int(self.policy.actions)
        return inputs.size(inputs.dim() - self.item_dims) if self.actions is None else self.actions.size(0)


def _with_models(policy: Any, actions: Any) -> Any:
    """Return the policy, with a model for each action if ``actions`` is a number."""
    if isinstance(policy, SharedRadiusMaster):
        raise TypeError("policy: expected one that learns from the chosen arm's features, got a SharedRadiusMaster")
    if isinstance(policy, DisjointArms):
        if actions not in (None, policy.actions):
            raise ValueError(f"actions: expected None or {policy.actions}, the policy's actions, got {actions!r}")
        return policy
    if isinstance(actions, bool) or not isinstance(actions, int):
        return policy
    if isinstance(policy, ComposedPolicy):
        raise TypeError(
            f"actions: expected None under a {type(policy).__name__}, got {actions}; "
            f"give actions={actions} to torchonline.bandit or DisjointArms instead"
        )
    return DisjointArms(policy, actions)
