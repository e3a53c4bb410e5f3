"""Decisions of policies on sparse inputs.

See :mod:`torchonline.regression.sparse_rows`.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchonline.core.all_or_nothing import undone
from torchonline.core.checks import check_array, shape_text
from torchonline.core.inputs import as_indices, check_mask, integer_at_hand
from torchonline.core.ops import count_
from torchonline.core.options import is_ours
from torchonline.core.sparse import SparseRows
from torchonline.core.undo_journal import copies_of, restore_
from torchonline.regression.sparse_rows import (
    in_columns,
    joined_parts,
    learn_chosen_rows,
    learn_on_view,
    learn_rows,
    of_one,
    plain_class,
    view_in_columns,
    view_of,
)


def has_own_columns(policy: Any) -> bool:
    """Return whether a stand-in with the columns in use can decide and learn."""
    if policy.has_encoder or policy._dims() or not policy.estimator.has_own_columns:
        return False
    rule, own = policy._rule, type(policy)
    if policy is not rule and (own._in_columns is None or policy.scaler is not None):
        return False
    # A user's class may keep numbers for all columns.
    methods = [type(rule)._scores, type(rule).scores_of, own._features, own._scores, own._chosen, own._learn_round]
    return all(map(is_ours, methods)) and is_ours(own._learn_arm if policy is not rule else own._learn_round)


def in_columns_of_policy(policy: Any, columns: Tensor) -> Any:
    """Return a stand-in for a policy with some columns of its features."""
    if policy is not policy._rule:
        return policy._in_columns(columns)
    return rule_over(policy, in_columns(policy.estimator, columns))


def rule_over(rule: Any, estimator: Any) -> Any:
    """Return a stand-in for a rule of choice, over a stand-in for its estimator."""
    twin = object.__new__(type(rule))
    known = plain_class(rule, rule.estimator)
    twin.__dict__.update(rule.__dict__, _modules=rule._modules | {"estimator": estimator}, _plain_class=known)
    return twin


def answers_to_decisions(
    policy: Any,
    inputs: Any,
    mask: Any,
    ask: Callable[[Any, Any, Any], Any],
    ask_narrowed: Callable[[Any, Tensor, Any, Tensor], Any],
    chooses: bool,
) -> Any:
    """Answer sparse inputs part by part.

    ``ask`` gets the policy, a dense part and its mask. ``ask_narrowed`` gets a stand-in, a part in the columns in use, the mask,
    and a number for each decision by which ties are broken. ``chooses`` says that the answers are the chosen arms.
    """
    rows = SparseRows("inputs", inputs, policy._state())
    unit, lead, item = _units(policy, rows)
    is_own = has_own_columns(policy)
    if is_own and rows.shape[-1] != policy._learner().dim:
        raise policy._wrong_shape(rows.shape, ("...",))
    is_whole = policy._dims() or len(lead) != 1
    if is_whole and not is_own:
        return ask(policy, rows.dense(0, rows.rows).reshape(rows.shape), mask)
    found = []
    for first, count in rows.parts(unit, is_own) or [(0, 0)]:
        some, decisions = mask, count // unit
        if mask is not None and getattr(mask, "ndim", depth_of_list(mask)) > 1 and lead:
            some = mask[first // unit : first // unit + decisions]
        if is_own:
            columns, part = rows.compact(first, count)
            ties = partial(rows.hashes, first, count, unit)
            if decisions != 1:
                part, twin = part.reshape(decisions, *item[:-1], len(columns)), in_columns_of_policy(policy, columns)
                found.append(ask_narrowed(twin, part, some, ties()[:, None]))
                continue
            # Without a leading dimension, in less time.
            some, part = some[0] if some is not mask else some, part.reshape(*item[:-1], len(columns))
            scores = scores_on_arrays(policy, columns, part) if chooses else None
            if scores is not None:
                found.append(policy._choice_of(scores, available(policy, some, scores), ties)[None])
            else:
                twin = in_columns_of_policy(policy, columns)
                found.append(as_many(ask_narrowed(twin, part, some, ties())))
        else:
            found.append(ask(policy, rows.dense(first, count).reshape(decisions, *item), some))
    return joined_parts(found, lead)


def scores_on_arrays(policy: Any, columns: Tensor, part: Tensor) -> Any:
    """Return the scores of one decision, computed on NumPy views; or None.

    It takes a third of the time of a stand-in with buffers.
    """
    view = view_of(policy._learner(), policy._state()) if policy._is_on_arrays() else None
    if view is None:
        return None
    values = part.numpy()
    if policy._learner().validate:
        check_array("inputs", values)
    return view.run(view_in_columns(policy._on(view), columns.numpy())._scored, values)


def available(policy: Any, mask: Any, scores: Any) -> Tensor | None:
    """Return the mask of one decision as a tensor, or raise."""
    return None if mask is None else check_mask("mask", mask, scores.shape, policy._state(), policy._learner().validate)


def learn_sparse_decisions(
    policy: Any, inputs: Any, action: Any, reward: Any, noise_scale: Any, log: dict[str, Any] | None
) -> None:
    """Learn from the rewards of sparse decisions in order, all or nothing.

    ``log`` holds the options of ``learn``, which then learns the dense parts; None for ``step``.
    """
    learn = policy.step if log is None else partial(policy.learn, block_size=log["block_size"])
    options = {"noise_scale": noise_scale} | ({} if log is None else {"mask": log["mask"]})
    options = {name: value for name, value in options.items() if value is not None}
    rows = SparseRows("inputs", inputs, policy._state())
    unit, lead, item = _units(policy, rows)
    if policy._dims():
        dense = torch.from_numpy(rows.dense(0, rows.rows)).reshape(rows.shape).to(rows.state.device)
        learn(dense, action, reward, **options)
        return
    if len(lead) > 1:
        raise policy._wrong_shape(rows.shape, ("n",))
    count = rows.rows // unit
    if has_own_columns(policy):
        if rows.shape[-1] != policy._learner().dim:
            raise policy._wrong_shape(rows.shape, ("n",))
        if policy is not policy._rule:
            if count != 1 or noise_scale is not None or not _learn_one_arm(policy, rows, action, reward):
                narrowed = type(policy)._in_columns
                learn_rows(policy, policy.estimator, rows, narrowed, [action, reward], noise_scale)
            return
        # Of a decision among arms with features, the chosen row is learnt.
        place = as_indices("action", action, torch.device("cpu")).reshape(-1).numpy()
        if len(place) != count or bool(((place < 0) | (place >= unit)).any()):
            wanted = f"{count} indices from 0 to {unit - 1}"
            raise ValueError(f"action: expected {wanted}, got {place.tolist()[:5]} of shape {shape_text(place.shape)}")
        chosen = rows.taken(unit * np.arange(count) + place)
        learn_chosen_rows(policy.estimator, chosen, reward, noise_scale)
        return
    parts = rows.parts(unit, False)
    if len(parts) == 1 and (not lead or count != 1):
        learn(rows.dense(0, rows.rows).reshape(rows.shape), action, reward, **options)
        return
    given = [_entries(value, count) for value in (action, reward)]
    options = {name: _entries(value, count) for name, value in options.items()}
    state = [value for learner in policy._learners() for value in learner.state().values()]
    copies = copies_of(state)
    with undone(lambda: restore_(state, copies)):
        for first, size in parts:
            part = slice(first // unit, (first + size) // unit)
            dense = rows.dense(first, size).reshape(size // unit, *item)
            own = {name: value[part] for name, value in options.items()}
            learn(dense, *(value[part] for value in given), **own)


def as_many(found: Any) -> Any:
    """Return the answer to one decision, a tensor or a tuple, as that to several."""
    return tuple(one[None] for one in found) if isinstance(found, tuple) else found[None]


def depth_of_list(value: Any) -> int:
    """Return 2 for a list of lists, and 1 for another one."""
    return 1 + (isinstance(value, (list, tuple)) and len(value) > 0 and isinstance(value[0], (list, tuple)))


def _learn_one_arm(policy: Any, rows: SparseRows, action: Any, reward: Any) -> bool:
    """Learn one round by its arm's estimator, on NumPy views, without the other arms.

    Return False, and learn nothing, unless the round is sure to pass all checks.
    """
    k, view = integer_at_hand(policy._placed(of_one(action))), view_of(policy, policy._state())
    if view is None or k is None or not 0 <= k < policy.actions:
        return False
    arm = view.learner.of_arm[k]

    def end() -> None:
        for buffer, own in arm.pooled:
            buffer[...] = own
        count_(view.learner.rounds)

    return learn_on_view(view, arm.learner, policy.estimator, rows, reward, view.learner.policy.estimator, end)


def _units(policy: Any, rows: SparseRows) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    """Return the rows of a decision, the leading shape, and the shape of a decision."""
    dims = policy.item_dims
    if len(rows.shape) < dims or 0 in rows.shape[len(rows.shape) - dims :]:
        raise policy._wrong_shape(rows.shape, ("...",))
    lead, item = rows.shape[: len(rows.shape) - dims], rows.shape[len(rows.shape) - dims :]
    return math.prod(item[:-1]), lead, item


def _entries(value: Any, count: int) -> Any:
    """Return an argument with an entry for each round; one round may have a number."""
    is_number = not getattr(value, "ndim", int(isinstance(value, (list, tuple))))
    if count != 1 or not is_number:
        return value
    return value.reshape(1) if hasattr(value, "reshape") else [value]
