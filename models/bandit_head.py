"""Bandit policy on top of an encoder, as one module."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from torchonline.core.action_names import holds_text
from torchonline.core.backend import in_python, is_readable, writable
from torchonline.core.checks import check_values, one_of, passes, positive_integer, shape_text
from torchonline.core.delegated import delegated
from torchonline.core.inputs import ArrayLike, as_tensor, check_tensor
from torchonline.core.learner import Learner
from torchonline.core.messages import listed
from torchonline.core.ops import in_type_of, of_chosen
from torchonline.core.options import described
from torchonline.core.state_dict_checks import load_whole
from torchonline.models.encoding import (
    as_inputs,
    encoded_items,
    encoder_width,
    evaluating,
    hugging_face_encoder,
    typed_like,
)
from torchonline.models.hugging_face import HuggingFaceEncoder
from torchonline.models.input_scaling import (
    both_or_neither,
    check_inputs,
    check_scalable,
    checked_scaler,
    for_encoder,
    step_together,
)
from torchonline.policies.disjoint import DisjointArms
from torchonline.policies.policy import Policy, in_turn
from torchonline.policies.rules import as_rule
from torchonline.policies.scaler import StandardScaler
from torchonline.regression.arguments import as_actions
from torchonline.regression.estimator import Estimator

# Number of items per encoder pass when a log is learnt.
ENCODED_AT_ONCE = 8192


class BanditHead(Policy):
    r"""Encoder of the arms' features with a policy on top.

    A round::

        k = head.select(inputs)
        head.step(inputs, k, reward)

    *Inputs for each arm* (``actions=None``): the encoder maps each of the K inputs of a decision to the features of an arm,
    :math:`x_k = \phi(z_k)`. K may vary from decision to decision.

    *One context, K actions with separate models* (``actions=K``): the encoder maps the context to :math:`\phi(z)`, and each
    action has its own estimator, see :class:`~torchonline.DisjointArms`. :meth:`add_actions` and :meth:`remove_actions` change
    the set of actions. The head takes and returns action ids, ``head.policy.action_ids``, and takes the actions' names if
    they have any: ``actions=["home", "sale"]``.

    *One context, K actions with embeddings* (``actions`` of shape (K, e)): :math:`\phi(z)` is combined with the embedding
    :math:`a_k` of each action. ``combine="product"``: :math:`x_k = \phi(z) \odot a_k`, so that the score
    :math:`x_k^\top\theta = \phi(z)^\top \mathrm{diag}(\theta)\, a_k` is bilinear in context and action. ``combine="outer"``:
    :math:`x_k` is the flattened :math:`\phi(z) a_k^\top`. :meth:`add_actions` adds embeddings at the end. A state loads only into
    a head with as many embeddings.

    :meth:`encode`, :meth:`forward`, :meth:`select` and :meth:`step` run the encoder in evaluation mode and restore its mode
    afterwards. A scripted head in training mode raises an error. The encoder gets a copy of the inputs, so it may work in place,
    like ``x.div_(255)``. Exported files also copy. :meth:`select` and :meth:`step` compute no gradients. If the encoder changes,
    the policy's statistics must be rebuilt, as :class:`~torchonline.models.NeuralLinearBandit` does.

    Cost of a decision: one encoder pass over K inputs, or over one context, plus the policy's cost. A step encodes only the
    chosen arm. If the features are known, call ``head.policy.step``.

    Args:
        encoder: maps a batch ``(n, *feature)`` to ``(n, m)``. m is the policy's dimension d, or d / e for ``combine="outer"``.
        policy: any :class:`~torchonline.policies.policy.Policy`, for example the one that :func:`torchonline.bandit` returns; an
            estimator, for :class:`~torchonline.UCB` over it; or a policy with a scaler, :class:`~torchonline.ScaledPolicy` or
            :class:`~torchonline.DisjointArms`. ``*B`` is its ``batch_shape``.
        actions: K, or the names of K actions, to give each action an estimator like the policy's; or embeddings ``(K, e)``, a
            tensor, an array or lists of numbers, kept as a buffer. None if each arm has its own inputs, or if ``policy`` is a
            :class:`~torchonline.DisjointArms`.
        combine: ``"product"`` (e = d) or ``"outer"`` (d = m e). Only used with embeddings.
        feature_dims: number of trailing input dimensions that form one item: 1 for vectors, 3 for images. A
            :class:`~torchonline.models.HuggingFaceEncoder` has its own.
        scaler: a :class:`~torchonline.StandardScaler` of the raw inputs, for inputs in any units; or None. The encoder gets
            ``scaler(inputs)`` in the dtype of its parameters. Give raw inputs in float64 if float32 would round away their
            differences. A step updates the scaler with the context, or with the chosen arm's inputs, after the policy has
            learnt. Decisions do not update it. A step updates both scaler and policy or neither; to that end it copies their
            states. Inputs must be vectors (``feature_dims=1``), and neither scaler nor policy may have a ``batch_shape``. Under
            a scaler the policy's radius is a heuristic, even after the scaler has frozen, because the policy keeps the rounds
            that it learnt in other coordinates. For a guarantee after a freeze, give the scaler to
            :class:`~torchonline.DisjointArms` or :class:`~torchonline.ScaledPolicy`.
        output: for a Hugging Face model as ``encoder``: the part of its output to use as features, such as ``"mean"`` or
            ``"pooler_output"``; see :class:`~torchonline.models.HuggingFaceEncoder`. Inputs may then be mappings of tensors.
        processor: for a Hugging Face model: its tokenizer or image processor. Inputs may then be texts or images.

    Shape:
        - inputs: ``(*B, ..., K, *feature)``, or ``(*B, ..., *feature)`` with actions.
        - action, reward: ``(*B)`` for one round, ``(*B, n)`` for n rounds in order.

    Example:
        >>> from torchonline import bandit
        >>> head = BanditHead(nn.Linear(4, 2), bandit(2, actions=3))  # 2 learnt features
        >>> context = torch.rand(4)
        >>> k = head.select(context)
        >>> head.step(context, k, 1.0)
        >>> head.rounds, head.predict(context).shape
        (tensor(1), torch.Size([3]))

    Reference:
        Riquelme, Tucker and Snoek, Deep Bayesian bandits showdown, ICLR 2018, for linear bandits on encoders. Here the encoder
        can carry any policy, and arms can have their own inputs.
    """

    if TYPE_CHECKING:  # at run time the annotations would hide the buffer and the policy from TorchScript
        actions: Tensor | None
        policy: Any
        scaler: StandardScaler | None

        def __call__(self, inputs: ArrayLike | None = None) -> Tensor: ...

    __constants__: tuple[str, ...] = (*Policy.__constants__, "has_arm_inputs")
    held_by, has_encoder, can_open = "head.policy", True, True
    pads = False  # whether inputs may end in padding: zeros

    def __init__(
        self,
        encoder: nn.Module,
        policy: Policy | Estimator,
        *,
        actions: int | Tensor | Sequence[Sequence[float]] | Sequence[str] | None = None,
        combine: str = "product",
        feature_dims: int = 1,
        scaler: StandardScaler | None = None,
        output: str | Callable[..., Tensor] | None = None,
        processor: Callable[..., Any] | None = None,
    ) -> None:
        super().__init__()
        if output is not None:
            encoder = HuggingFaceEncoder(encoder, output, processor)
        elif processor is not None:
            raise ValueError('output: expected "mean" or another output of the model, with a processor, got None')
        if not isinstance(encoder, nn.Module):
            raise TypeError(f"encoder: expected a torch.nn.Module, got {type(encoder).__name__}")
        self.encoder = encoder
        self.policy = chosen = _with_models(policy, actions)
        self.combine = one_of("combine", combine, ("product", "outer"))
        reader = hugging_face_encoder(encoder)
        self.pads = reader is not None and reader.pads
        self.feature_dims = positive_integer("feature_dims", reader.feature_dims if reader else feature_dims)
        self.scaler = checked_scaler(scaler, chosen, self.feature_dims)
        self.takes_mask = self.scaler is None and chosen.takes_mask
        self.encoder_width = chosen.dim
        embeddings = None
        is_of_arms = chosen.item_dims == 2
        # Whether each arm has its own inputs.
        self.has_arm_inputs = is_of_arms and actions is None
        self.item_dims = self.feature_dims + self.has_arm_inputs
        if is_of_arms and actions is not None:
            embeddings = check_tensor("actions", actions, chosen.estimator.theta_hat).detach().clone()
            if is_readable(embeddings):
                check_values("actions", embeddings)
            self.encoder_width = encoder_width(embeddings, self.combine, self.encoder_width)
        self.register_buffer("actions", writable(embeddings))

    def _encode_in_python(self, inputs: Any) -> Tensor:
        inputs = self._checked_items(inputs, ())
        with evaluating(self.encoder):
            return self._arms(inputs)

    @torch.jit.export
    @in_python(_encode_in_python)
    def encode(self, inputs: Tensor) -> Tensor:
        """Return the features of all arms of each decision, ``(..., K, d)``.

        If each action has its own estimator, return the context's features, ``(..., d)``. The result is differentiable in the
        inputs and in the encoder's parameters.

        Args:
            inputs: ``(..., K, *feature)``, or ``(..., *feature)`` with ``actions``. NumPy arrays and lists are converted to the
                dtype of the encoder's parameters. Integers stay integers if the encoder begins with an embedding.

        Raises:
            TypeError: ``inputs`` does not hold real numbers.
            ValueError: ``inputs`` has too few dimensions, the encoder raises an error, or its output is not ``(n, m)``.
        """
        return self._arms(inputs)

    def _chosen_features_in_python(self, inputs: Any, action: Any) -> Tensor:
        inputs = self._checked_items(inputs, ())
        return self._encoded_choice(inputs, self._checked_action(action, inputs))

    @torch.jit.export
    @in_python(_chosen_features_in_python)
    def chosen_features(self, inputs: Tensor, action: Tensor) -> Tensor:
        """Return the features of the chosen arms, ``(..., d)``, to train the encoder.

        If each action has its own estimator, return the context's features. The encoder runs in its current mode.

        Args:
            inputs: as in :meth:`encode`, with the same errors.
            action: chosen arm of each decision, int64, ``(...)``.
        """
        return self._encoded_choice(inputs, self._placed(action))

    # Hooks of a policy.

    def _read(self, inputs: Tensor) -> Tensor:
        return self._arms(inputs)

    def _features(self, x: Tensor) -> Tensor:
        return self.policy._features(x)

    def _scores(self, features: Tensor) -> Tensor:
        return self.policy._scores(features)

    def choice(self, scores: Tensor, rounds: Tensor) -> Tensor:
        return self.policy.choice(scores, rounds)

    def distribution(self, scores: Tensor, rounds: Tensor) -> Tensor:
        return self.policy.distribution(scores, rounds)

    def _mixture(self, x: Tensor, mask: Tensor | None) -> Tensor:
        return self.policy._mixture(x, mask)

    def _chosen(self, inputs: Tensor, place: Tensor) -> Tensor:
        """Return the chosen arms' encoded features, or raw inputs under a scaler."""
        if self.scaler is None:
            return self._encoded_rows(self._chosen_inputs(inputs, place), place)
        return self._chosen_inputs(inputs, place)

    def _learn_round(self, x: Tensor, place: Tensor, reward: Tensor, noise_scale: Tensor) -> None:
        scaler = self.scaler
        if scaler is None:
            self.policy._learn_round(x, place, reward, noise_scale)
        else:
            features = self._encoded_rows(x, place)
            self.policy._learn_round(features, place, reward, noise_scale)
            scaler._observe(in_type_of(x, scaler.mean))

    def _learn_rounds(
        self,
        x: Tensor,
        place: Tensor,
        reward: Tensor,
        noise_scale: Tensor | None,
        block_size: int | None,
        mask: Tensor | None,
    ) -> None:
        if self.scaler is None:
            self.policy._learn_rounds(x, place, reward, noise_scale, block_size, mask)
        else:
            like = self.policy._like()
            pay = reward.detach().to(like.dtype)
            scale = self._own_scale(pay) if noise_scale is None else noise_scale.detach().to(like.dtype)
            for i in range(place.size(0)):
                self._learn_round(x[i], place[i], pay[i], scale[i])

    def _accepts(self, x: Tensor, place: Tensor, reward: Tensor, noise_scale: Tensor | None) -> Tensor:
        if self.scaler is None:
            return self.policy._accepts(x, place, reward, noise_scale)
        features = self._encoded_rows(x, place)
        is_finite = passes(in_type_of(x, features)).all(-1)  # the scaler would clip infinity
        return is_finite & self.policy._accepts(features, place, reward, noise_scale)

    def _can_score(self, inputs: Tensor, x: Tensor) -> Tensor:
        possible, scaler = self.policy._can_score(x, x), self.scaler
        if scaler is not None:  # which would clip infinity
            possible = possible & passes(in_type_of(inputs, scaler.mean)).flatten(inputs.dim() - self.item_dims).all(-1)
        return possible

    def _as_round(self, x: Tensor, place: Tensor) -> tuple[Tensor, Tensor]:
        raise TypeError("_as_round: expected a policy without an encoder, got a head")

    def _count(self, inputs: Tensor) -> int:
        actions = self.actions
        if actions is not None:
            return actions.size(0)
        if self.has_arm_inputs:
            return inputs.size(inputs.dim() - self.item_dims)
        return self.policy._count(inputs)

    def _named(self, place: Tensor) -> Tensor:
        return self.policy._named(place)

    def _named_if_any(self, place: Tensor) -> Tensor:
        return self.policy._named_if_any(place)

    def _placed(self, action: Tensor) -> Tensor:
        return self.policy._placed(action)

    def _names_now(self) -> list[str]:
        return self.policy._names_now()

    def _name_of_each(self, action: Tensor) -> list[str]:
        return self.policy._name_of_each(action)

    def _found(self, action: Tensor, count: int) -> tuple[Tensor, Tensor]:
        return self.policy._found(action, count)

    def _like(self) -> Tensor:
        return self.policy._like()

    def _clock(self) -> Tensor:
        return self.policy._clock()

    def _dims(self) -> int:
        return self.policy._dims()

    def _own_scale(self, reward: Tensor) -> Tensor:
        return self.policy._own_scale(reward)

    # TorchScript does not compile these, and exported files lack them.

    @delegated
    def estimator(self) -> Estimator:  # type: ignore[override]
        """The policy's estimator. Python only."""
        return self.policy.estimator

    @delegated
    def rounds(self) -> Tensor:  # type: ignore[override]
        """The policy's count of rounds, ``(*B)``. Python only."""
        return self.policy.rounds

    @delegated
    def batch_shape(self) -> tuple[int, ...]:  # type: ignore[override]
        """The policy's ``*B``. Python only."""
        return self.policy.batch_shape

    @delegated
    def theta_hat(self) -> Tensor:
        """The estimator's parameter. Python only.

        Its shape is ``(*B, d)``, or ``(*B, K, d)`` with a model for each arm.
        """
        return self.policy.theta_hat

    @delegated
    def learner(self) -> Learner:  # type: ignore[override]
        """The learner that holds the policy's state. Python only."""
        return self.policy.learner

    @delegated
    def _rule(self) -> Policy:
        """The rule of choice. Python only."""
        return self.policy._rule

    @property
    def action_ids(self) -> list[int] | None:
        """The arms' ids in the order of scores, or None if the set of arms is fixed."""
        return self.policy.action_ids

    @property
    def action_names(self) -> list[str] | None:
        """The actions' names in the order of scores, or None without names."""
        return self.policy.action_names

    @in_turn
    def add_actions(
        self, actions: Any = 1, *, prior: Any = None, rounds: float | None = None, embeddings: Any = None
    ) -> list[int]:
        """Add actions at the end, and return their ids. Python only.

        The policy keeps what it has learnt. With embeddings, an id is an index, and a new action is scored by the shared model.

        Args:
            actions: embeddings of the new actions, ``(n, e)``, if the head has embeddings; else a number or names, as in
                ``head.policy.add_actions``.
            prior: as in ``head.policy.add_actions``, with a model for each action.
            rounds: the same.
            embeddings: the same, under a :class:`~torchonline.HybridArms` with embeddings.

        Raises:
            TypeError, ValueError: an argument is invalid, or each action has its own inputs. Nothing has changed.

        Example:
            >>> head = BanditHead(nn.Identity(), OFUL(2), actions=[[1.0, 0.0], [0.0, 1.0]])
            >>> head.add_actions([[1.0, 1.0]]), head.number_of_actions()
            ([2], 3)
        """
        known, named = self.actions, {"prior": prior, "rounds": rounds, "embeddings": embeddings}
        options = {name: value for name, value in named.items() if value is not None}
        if known is None:
            return self._policy_with("add_actions").add_actions(actions, **options)
        if options:
            raise TypeError(f"{next(iter(options))}: expected None, because the head has embeddings, got a value")
        rows = check_tensor("actions", actions, known).detach()
        if rows.dim() != 2 or rows.size(-1) != known.size(-1) or not rows.size(0):
            wanted = f"{shape_text(('n', known.size(-1)))} with n > 0"
            raise ValueError(f"actions: expected embeddings of shape {wanted}, got {shape_text(rows.shape)}")
        if is_readable(rows):
            check_values("actions", rows)
        self._buffers["actions"] = writable(torch.cat([known, rows]))
        return list(range(known.size(0), known.size(0) + rows.size(0)))

    def remove_actions(self, actions: Any) -> None:
        """Remove actions by their ids or names. Python only.

        Args:
            actions: as in ``head.policy.remove_actions``. Embeddings cannot be removed, because indices would change: pass a
                mask to :meth:`select`.

        Raises:
            TypeError: the head has embeddings, or each action has its own inputs; or as in ``head.policy.remove_actions``.
            ValueError: as in ``head.policy.remove_actions``.
        """
        self._policy_with("remove_actions").remove_actions(actions)

    def _policy_with(self, name: str) -> Any:
        """Return the policy with a model for each action, or raise."""
        if not hasattr(self.policy, name):
            has = "each action has its own inputs" if self.actions is None else "its actions have embeddings"
            raise TypeError(f"{name}: expected a head with a model for each action, got one in which {has}")
        return self.policy

    def _ids_of(self, name: str, value: Any) -> Any:
        return self.policy._ids_of(name, value)

    def _owners(self) -> tuple[Any, Any]:
        return self.policy._owners()

    def _decider(self, inputs: Any, with_gradients: bool = True) -> tuple[Policy, Any]:
        inputs = self._checked_items(inputs, self._learner().batch_shape)
        if self._passes_inputs_on():
            return self.policy, inputs
        check_scalable(self.scaler, inputs)
        with nullcontext() if with_gradients else torch.no_grad(), evaluating(self.encoder):
            return self.policy, self._arms(inputs)

    def _given_tensor(self, inputs: Any) -> Tensor:
        return self._checked_items(inputs, self._learner().batch_shape)

    def _learners(self) -> list[Learner]:
        return [self._learner(), *([] if self.scaler is None else [self.scaler])]

    def with_ids(self) -> Any:
        """Return the policy whose arms have ids, or None."""
        return self.policy.with_ids()

    def _learn_block(self, x: Tensor, place: Tensor, reward: Tensor, noise_scale: Tensor, mask: Tensor) -> None:
        self.policy._learn_block(x, place, reward, noise_scale, mask)

    def _why_no_blocks(self) -> str | None:
        if self.scaler is not None:
            return "a head with a scaler learns rounds in order"
        return self.policy._why_no_blocks()

    def _why_heuristic(self) -> str:
        return "" if self.scaler is None else "the inputs are scaled"

    def number_of_actions(self, inputs: Any = None) -> int:
        """Return K, the number of arms of a decision, without encoding ``inputs``."""
        if not self.has_arm_inputs:
            return super().number_of_actions()
        return self._count(self._checked_items(inputs, self._learner().batch_shape))

    def reset(self) -> None:
        """Reset the policy and the scalers to their initial state, in place.

        The encoder does not change. An interrupted reset changes nothing. Python only.
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

        A refused state or an interrupted load changes nothing.

        Args:
            state_dict: the state of a head with the same modules and options.
            *arguments: as in ``nn.Module.load_state_dict``.
            **options: as in ``nn.Module.load_state_dict``.
        """
        return load_whole(self, super().load_state_dict, state_dict, *arguments, **options)

    def _learn_decisions(self, inputs: Any, action: Any, reward: Any, noise_scale: Any) -> None:
        inputs = self._checked_items(inputs, self._learner().batch_shape, 1)
        if self._passes_inputs_on():
            self.policy.step(inputs, action, reward, noise_scale=noise_scale)
        elif self.scaler is not None:
            step_together(self, self.scaler, inputs, action, reward, noise_scale)
        else:
            with torch.no_grad(), evaluating(self.encoder):
                x, action = self._round_of(inputs, action)
            self.policy.step(x, action, reward, noise_scale=noise_scale)

    def _why_not_open(self) -> str | None:
        if self.can_open and self.scaler is not None:
            return "scaler: expected None, because the scaler of the inputs learns with the reward, got a scaler"
        return self.policy._why_not_open() if self.can_open else super()._why_not_open()

    def _open_now(self, inputs: Any, action: Any, noise_scale: Any) -> Tensor:
        inputs = self._checked_items(inputs, self._learner().batch_shape, 1)
        if not self._passes_inputs_on():
            with torch.no_grad(), evaluating(self.encoder):
                inputs, action = self._round_of(inputs, action)
        return self.policy.open(inputs, action, noise_scale=noise_scale)

    def _close_now(self, opened: Any, reward: Any) -> None:
        self.policy._close_now(opened, reward)

    def _learn_log_of_decisions(
        self, inputs: Any, action: Any, reward: Any, noise_scale: Any, block_size: Any, mask: Any
    ) -> None:
        inputs = self._checked_items(inputs, self._learner().batch_shape, 1)
        options: dict[str, Any] = {"noise_scale": noise_scale, "block_size": block_size, "mask": mask}
        if self._passes_inputs_on():
            self.policy.learn(inputs, action, reward, **options)
            return
        if self.scaler is not None:
            if block_size is not None:
                positive_integer("block_size", block_size)
            step_together(self, self.scaler, inputs, action, reward, noise_scale)
            return
        place = self._checked_action(action, inputs)
        self.policy.learn(*self._encoded_log(inputs, place, ENCODED_AT_ONCE), reward, **options)

    def _encoded_log(self, inputs: Tensor, place: Tensor, at_once: int) -> tuple[Tensor, Tensor]:
        """Return :meth:`_round_at` of a log.

        ``at_once`` is the most rounds in a pass of the encoder.
        """
        if (reader := hugging_face_encoder(self.encoder)) is not None:
            at_once = min(at_once, reader.items_at_once)
        rows = inputs.dim() - self.item_dims - 1
        with torch.no_grad(), evaluating(self.encoder):
            if rows < 0 or inputs.size(rows) <= at_once:
                return self._round_at(inputs, place)
            parts = zip(inputs.split(at_once, rows), place.split(at_once, rows), strict=True)
            x, action = zip(*(self._round_at(*part) for part in parts), strict=True)
        return torch.cat(x, rows), torch.cat(action, rows)

    def _round_of(self, inputs: Tensor, action: Any) -> tuple[Tensor, Any]:
        """Return the arguments of the policy's step: features and action.

        Only the chosen arm is encoded. The encoder runs in its current mode.
        """
        if not self.has_arm_inputs and self.actions is None:  # the policy checks the action
            return self._encoded(inputs), action
        return self._round_at(inputs, self._checked_action(action, inputs))

    def _round_at(self, inputs: Tensor, place: Tensor) -> tuple[Tensor, Tensor]:
        """Return :meth:`_round_of` for checked arm indices."""
        return self.policy._as_round(self._encoded_choice(inputs, place), place)

    def __setstate__(self, state: dict[str, Any]) -> None:
        # A head in a checkpoint of version 0.1 has no such attribute.
        super().__setstate__({"has_arm_inputs": state["item_dims"] > state["feature_dims"]} | state)

    def extra_repr(self) -> str:
        values = {
            "actions": getattr(self.policy, "actions", None) if self.actions is None else self.actions,
            "combine": self.combine,
            "feature_dims": self.feature_dims,
        }
        return described(self, values)

    def _arms(self, inputs: Tensor) -> Tensor:
        encoded = self._encoded(inputs)
        actions = self.actions
        return encoded if actions is None else self._combined(encoded.unsqueeze(-2), actions)

    def _encoded_choice(self, inputs: Tensor, place: Tensor) -> Tensor:
        """Return the encoded features of the chosen arms."""
        return self._combined_choice(self._encoded(self._chosen_inputs(inputs, place)), place)

    def _chosen_inputs(self, inputs: Tensor, place: Tensor) -> Tensor:
        """Return the inputs of the chosen arms, or the contexts."""
        return of_chosen(inputs, place) if self.has_arm_inputs else inputs

    def _encoded_rows(self, x: Tensor, place: Tensor) -> Tensor:
        """Return chosen inputs as features, in the policy's type."""
        return in_type_of(self._combined_choice(self._encoded(x), place), self.policy._like())

    def _combined_choice(self, encoded: Tensor, place: Tensor) -> Tensor:
        """Combine encoded contexts with the chosen actions' embeddings, if there are any."""
        actions = self.actions
        return encoded if actions is None else self._combined(encoded, nn.functional.embedding(place, actions))

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

    def _scaled_in_python(self, items: Tensor) -> Tensor:
        scaler: Any = self.scaler
        return for_encoder(scaler, self.encoder, items)

    @in_python(_scaled_in_python)
    def _scaled(self, items: Tensor) -> Tensor:
        """Scale inputs, in the encoder's dtype; in a script, in the inputs' dtype."""
        scaler = self.scaler
        return items if scaler is None else scaler._scaled(items).to(items.dtype)

    def _any_mode_in_python(self) -> None:
        return

    @in_python(_any_mode_in_python)
    def _check_mode(self) -> None:
        """Refuse an encoder in training mode: a scripted head cannot switch modes."""
        if self.encoder.training:
            raise RuntimeError("encoder: expected evaluation mode, got training mode; call eval() on the head")

    def _check_encoded_in_python(self, encoded: Any) -> None:
        if not isinstance(encoded, Tensor):
            hint = "; give output=... for a Hugging Face model" if isinstance(encoded, Mapping) else ""
            raise TypeError(f"encoder: expected a torch.Tensor as output, got {type(encoded).__name__}{hint}")
        if encoded.dim() != 2 or encoded.size(-1) != self.encoder_width:
            raise ValueError(
                f"encoder: expected output of shape (n, {self.encoder_width}) under a policy of dim "
                f"{self.policy.dim}, got {shape_text(encoded.shape)}"
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
        """Return whether the contexts are the features. If so, the policy checks them."""
        if self.feature_dims != 1 or type(self._modules["encoder"]) is not nn.Identity:
            return False
        return not self.has_arm_inputs and self.actions is None and self._modules.get("scaler") is None

    def _checked_items(self, inputs: Any, batch: tuple[int, ...], most: int | None = None) -> Tensor:
        """Return checked inputs, or raise.

        Their leading shape is ``batch``, followed by at most ``most`` further dimensions before the items.
        """
        if (
            type(inputs) is Tensor
            and inputs.dim() == self.item_dims
            and not batch
            and not inputs.is_meta
            and self._modules.get("scaler") is None
        ):
            return inputs  # fast path: a third of the time
        if not isinstance(inputs, Tensor):
            state = self.policy.estimator.theta_hat
            if self.scaler is None:
                inputs = as_inputs(inputs, self.encoder, state)
            else:  # the scaler gets the inputs unrounded
                inputs = as_tensor("inputs", inputs, typed_like(self.encoder, state).device)
        if inputs.is_meta and not self._like().is_meta:
            raise ValueError(f"inputs: expected a tensor on {self._like().device}, got one on meta")
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
        """Return the actions' indices as a tensor, one for each input, or raise."""
        shape = inputs.shape[: inputs.dim() - self.item_dims]
        return as_actions(
            self._placed(action), shape, inputs.device, self._count(inputs), self.policy.estimator.validate
        )


def _with_models(policy: Any, actions: Any) -> Any:
    """Return the policy, with one model per action if ``actions`` is a number."""
    chosen: Any = policy if isinstance(policy, Policy) else as_rule("policy", policy)
    if isinstance(chosen, BanditHead) or not chosen.learns_rows:
        wanted = "expected one that learns from the chosen arm's features"
        raise TypeError(f"policy: {wanted}, got {type(chosen).__name__}")
    are_names = holds_text(actions) or (isinstance(actions, (list, tuple)) and not actions)
    if chosen.item_dims == 1:
        own = chosen.action_names
        is_number = not isinstance(actions, (list, tuple)) and getattr(actions, "ndim", 0) == 0
        if actions is not None and (list(actions) != own if are_names else not is_number or actions != chosen.actions):
            wanted = f"{chosen.actions}, the policy's actions" if own is None else f"the policy's actions {listed(own)}"
            got = repr(actions) if are_names or is_number else "embeddings, which need a policy without actions"
            raise ValueError(f"actions: expected None or {wanted}, got {got}")
        return chosen
    if not are_names and (isinstance(actions, bool) or not isinstance(actions, int)):
        return chosen
    if chosen._rule is not chosen:
        raise TypeError(
            f"actions: expected None under a {type(chosen).__name__}, got {actions}; "
            f"give actions={actions} to torchonline.bandit or DisjointArms instead"
        )
    return DisjointArms(chosen, actions)
