"""Steps of a head whose inputs pass a scaler before the encoder."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.compiler import is_dynamo_compiling

from torchonline.core.all_or_nothing import all_or_nothing_with, in_order, torn_error
from torchonline.core.backend import is_readable
from torchonline.core.checks import check_values, shape_text
from torchonline.core.ops import in_type_of
from torchonline.models.encoding import evaluating, typed_like
from torchonline.policies.scaler import StandardScaler
from torchonline.regression.arguments import as_reward, checked_responses


def checked_scaler(scaler: Any, policy: Any, feature_dims: int) -> StandardScaler | None:
    """Return a head's scaler, or raise."""
    if scaler is None:
        return None
    if not isinstance(scaler, StandardScaler):
        raise TypeError(f"scaler: expected None or a StandardScaler, got {type(scaler).__name__}")
    if feature_dims != 1:
        raise ValueError(f"scaler: expected None with feature_dims={feature_dims}, got a scaler, which takes vectors")
    batch_shape = policy.batch_shape
    if scaler.batch_shape or batch_shape:
        sizes = f"{shape_text(scaler.batch_shape)} and {shape_text(batch_shape)}"
        raise ValueError(f"scaler: expected scaler and policy without batch_shape, got {sizes}")
    return scaler


def check_inputs(scaler: StandardScaler, inputs: Tensor) -> None:
    """Raise if a scaler is torn, or does not take inputs of this shape and dtype."""
    if not is_dynamo_compiling():  # a traced program has no threads
        with scaler._lock:
            if scaler._is_torn:
                raise torn_error(scaler)
    if not inputs.is_floating_point():
        raise TypeError(f"inputs: expected floating-point numbers for the scaler, got {inputs.dtype}")
    if inputs.dim() == 0 or inputs.size(-1) != scaler.dim:
        wanted = shape_text(("...", scaler.dim))
        raise ValueError(f"inputs: expected shape {wanted} for the scaler, got {shape_text(inputs.shape)}")


def check_scalable(scaler: StandardScaler | None, inputs: Tensor) -> None:
    """Raise unless inputs are finite in the scaler's dtype: it would clip infinity."""
    if scaler is not None and scaler.validate and is_readable(inputs):
        check_values("inputs", inputs.to(scaler.mean.dtype))


def for_encoder(scaler: StandardScaler, encoder: nn.Module, inputs: Tensor) -> Tensor:
    """Scale inputs for an encoder, in its dtype, while no other thread steps.

    For an encoder without floating-point parameters, return the dtype of the inputs.
    """
    with nullcontext() if is_dynamo_compiling() else scaler._lock:
        return scaler._scaled(inputs).to(typed_like(encoder, inputs).dtype)


def step_together(
    head: Any, scaler: StandardScaler, inputs: Tensor, action: Any, reward: Any, noise_scale: Any
) -> None:
    """Step a head's policy and its scaler, both or neither."""
    place = head._checked_action(action, inputs)
    reward, noise_scale = checked_responses("reward", reward, noise_scale, head._like(), place.shape)
    with torch.no_grad(), evaluating(head.encoder):
        x, reward = head._chosen(inputs.detach(), place), as_reward(reward)
        scale = head._own_scale(reward) if noise_scale is None else noise_scale
        rounds = [(x, place, reward, scale)] if place.dim() == 0 else list(zip(x, place, reward, scale, strict=True))
        if not is_readable(inputs):  # a traced step
            in_order(head._learn_round, rounds)
            return
        check_scalable(scaler, x)
        together(scaler, head.policy, _learn_checked, head, rounds)


def _learn_checked(head: Any, rounds: list[Any]) -> None:
    """Learn from rounds in order, with steps of the policy."""
    for x, place, reward, noise_scale in rounds:
        features, action = head.policy._as_round(head._combined_choice(head._encoded(x), place), place)
        head.policy.step(features, action, reward, noise_scale=noise_scale)
        head.scaler._observe(in_type_of(x, head.scaler.mean))


def together(scaler: StandardScaler, policy: Any, learn: Callable[..., None], *arguments: Any) -> None:
    """Update a scaler and a policy, both or neither, one thread at a time."""
    with scaler._lock:
        if scaler._is_torn:
            raise torn_error(scaler)
        both_or_neither(scaler, policy, learn, *arguments)


def both_or_neither(scaler: StandardScaler, policy: Any, write: Callable[..., None], *arguments: Any) -> None:
    """Call ``write`` on a scaler and a policy. Undo both changes if it raises."""
    learner = policy.learner
    state = [*scaler.state().values(), *learner.state().values()]
    with scaler._lock, learner._lock:
        all_or_nothing_with(learner, scaler, state, write, *arguments)
