"""Calls of estimators on sparse rows.

An estimator with ``has_own_columns`` keeps a parameter and a variance for each column, and a row concerns only the columns in
which it is not 0. For such an estimator, a part of the rows is moved to the columns in use, where it is small and dense. A
stand-in for the estimator with these columns predicts and learns, and its columns are written back. All other estimators get
dense copies of a bounded number of rows.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from torchonline.core.all_or_nothing import undone
from torchonline.core.backend import SMALL_STEP, is_eager, is_readable
from torchonline.core.checks import is_ordinary, positive_integer, shape_text
from torchonline.core.inputs import as_tensor, plain_number
from torchonline.core.sparse import SparseRows
from torchonline.core.undo_journal import copies_of, restore_
from torchonline.core.views import plain_twin, with_attributes

# The buffers with a number for each column.
WIDE = ("theta_hat", "variances")


def in_columns(estimator: Any, columns: Tensor) -> Any:
    """Return a stand-in for an estimator with some columns.

    It has copies of these columns, and the other buffers themselves.
    """
    wide = {name: estimator._buffers[name].index_select(-1, columns) for name in WIDE}
    return stand_in(estimator, len(columns), _buffers=estimator._buffers | wide)


def stand_in(learner: Any, dim: int, **attributes: Any) -> Any:
    """Return a learner with the attributes of another one, except for those given.

    They share the lock.
    """
    twin = object.__new__(type(learner))
    twin.__dict__.update(learner.__dict__, dim=dim, multiplications=dim, _view=None, _journal=None, **attributes)
    twin.__dict__.update(features_shape=(*learner.batch_shape, dim), _plain_class=plain_class(learner, learner))
    twin.__dict__["is_small"] = dim * twin.__dict__["_modules"].get("policy", twin).rounds.numel() < SMALL_STEP
    return twin


def plain_class(module: Any, keeper: Any) -> Any:
    """Return the class of a module's stand-ins on NumPy views.

    The learner ``keeper`` keeps it, because making it takes long.
    """
    known = keeper.__dict__.setdefault("_plain_classes", {})
    found = known.get(type(module))
    if found is None:
        found = known[type(module)] = type(plain_twin(module))
    return found


def answers_on_rows(estimator: Any, method: Callable[..., Any], x: Any) -> Any:
    """Call a method on sparse rows, part by part: ``(*B, ..., d)`` to ``(*B, ...)``."""
    rows = SparseRows("x", x, estimator._buffers["theta_hat"])
    shape, dims = rows.shape, estimator.batch_dims
    if len(shape) <= dims or shape[-1] != estimator.dim or (dims and shape[:dims] != estimator.batch_shape):
        wanted = shape_text((*estimator.batch_shape, "...", estimator.dim))
        raise ValueError(f"x: expected shape {wanted}, got {shape_text(shape)}")
    if dims:
        return method(estimator, _tensor(rows, 0, rows.rows).reshape(shape))
    found = []
    for first, count in rows.parts(1, estimator.has_own_columns) or [(0, 0)]:
        if estimator.has_own_columns:
            columns, part = rows.compact(first, count)
            found.append(method(in_columns(estimator, columns), part))
        else:
            found.append(method(estimator, _tensor(rows, first, count)))
    return joined_parts(found, shape[:-1])


def joined_parts(found: list[Any], lead: tuple[int, ...]) -> Any:
    """Join the answers to parts of n decisions, and give them a leading shape.

    An answer is a tensor, ``(n, ...)``, or a tuple of tensors.
    """
    if isinstance(found[0], tuple):
        return tuple(joined_parts(list(part), lead) for part in zip(*found, strict=True))
    one = found[0] if len(found) == 1 else torch.cat(found)
    return one.reshape(lead + one.shape[1:])


def step_on_rows(estimator: Any, x: Any, reward: Any, noise_scale: Any) -> None:
    """Learn from sparse rows, ``(n, d)`` or ``(d)``, in order, all or nothing.

    A batch of learners gets a dense copy.
    """
    rows = SparseRows("x", x, estimator._buffers["theta_hat"])
    if estimator.batch_dims:
        estimator.step(_tensor(rows, 0, rows.rows).reshape(rows.shape), reward, noise_scale=noise_scale)
        return
    if len(rows.shape) > 2 or rows.shape[-1] != estimator.dim:
        wanted = f"{shape_text((estimator.dim,))} or {shape_text(('n', estimator.dim))}"
        raise ValueError(f"x: expected shape {wanted} for sparse rows, got {shape_text(rows.shape)}")
    learn_chosen_rows(estimator, rows, reward, noise_scale)


def learn_chosen_rows(estimator: Any, rows: SparseRows, reward: Any, noise_scale: Any) -> None:
    """Learn from checked rows, ``(n, d)``, in order, all or nothing."""
    if rows.rows == 1 and noise_scale is None and estimator.has_own_columns:
        view = view_of(estimator, estimator._buffers["theta_hat"])
        if view is not None and learn_on_view(view, view.learner, estimator, rows, reward, view.learner):
            return
    learn_rows(estimator, estimator, rows, in_columns, [reward], noise_scale)


def view_of(learner: Any, state: Tensor) -> Any:
    """Return a learner on NumPy views, whatever its size; or None."""
    return learner.numpy_view() if state.is_cpu and is_readable(state) and is_eager() else None


def view_in_columns(twin: Any, columns: Any) -> Any:
    """Return a copy of a policy or an estimator on NumPy views, with some columns."""
    own = twin.__dict__
    changed = {name: own[name][..., columns] for name in WIDE if name in own}
    changed |= {
        name: view_in_columns(own[name], columns) for name in ("policy", "rule_of_scores", "estimator") if name in own
    }
    return with_attributes(twin, **changed, **({"dim": len(columns)} if "dim" in own else {}))


def learn_on_view(
    view: Any,
    learner: Any,
    estimator: Any,
    rows: SparseRows,
    reward: Any,
    holder: Any,
    end: Callable[[], None] | None = None,
) -> bool:
    """Learn one row on NumPy views, all or nothing.

    Return False, and learn nothing, unless the round is sure to pass all checks. ``learner`` is an estimator on views, or one of
    the arms of ``holder``. ``end`` is called after the round.
    """
    pay = plain_number(of_one(reward), rows.state)
    columns, part = (value.numpy() for value in rows.compact(0, 1))
    if pay is None or (estimator.validate and not (is_ordinary(part) and estimator._is_ordinary(pay))):
        return False
    twin, wide = view_in_columns(learner, columns), [holder.__dict__[name] for name in WIDE]
    kept = [array for array in view.state if not any(array is one for one in wide)]
    before, copies = [getattr(twin, name).copy() for name in WIDE], copies_of(kept)

    def undo() -> None:
        restore_(kept, copies)
        for name, values in zip(WIDE, before, strict=True):
            getattr(learner, name)[columns] = values

    view.journal.forget()
    with undone(undo):
        twin._learn_round(part[0], pay, twin.noise_scale)
        for name in WIDE:
            getattr(learner, name)[columns] = getattr(twin, name)
        if end is not None:
            end()
    view.mark_written()
    return True


def learn_rows(
    owner: Any,
    estimator: Any,
    rows: SparseRows,
    narrowed: Callable[[Any, Tensor], Any],
    arguments: list[Any],
    noise_scale: Any,
) -> None:
    """Learn from sparse rows in order, all or nothing.

    ``narrowed`` returns a stand-in for ``owner`` with some columns. ``arguments`` of ``step``, beside the rows, have an entry for
    each row; for a single row, they may be numbers.
    """
    is_one = rows.rows == 1
    given = [of_one(value) if is_one else value for value in arguments]
    options = {} if noise_scale is None else {"noise_scale": of_one(noise_scale) if is_one else noise_scale}
    parts = rows.parts(1, estimator.has_own_columns)
    # One part writes few columns, which are kept by themselves.
    is_whole = len(parts) != 1 or not estimator.has_own_columns
    wide = () if is_whole else tuple(id(estimator._buffers[name]) for name in WIDE)
    kept = [value for value in owner.state().values() if id(value) not in wide]
    copies = copies_of(kept)
    before: list[tuple[Tensor, Tensor, Tensor]] = []

    def undo() -> None:
        restore_(kept, copies)
        if not is_whole:
            for buffer, columns, values in before:
                buffer.index_copy_(-1, columns, values)

    with torch.no_grad(), undone(undo):
        for first, count in parts:
            some, own = given, options
            if len(parts) > 1:
                some = [value[first : first + count] for value in given]
                own = {name: value[first : first + count] for name, value in options.items()}
            if not estimator.has_own_columns:
                part = rows.dense(first, count)
                owner.step(part[0] if is_one else part, *some, **own)
                continue
            columns, part = rows.compact(first, count)
            part = part[0] if is_one else part
            twin = narrowed(owner, columns)
            one = twin if twin.__dict__.get("_buffers", {}).get("theta_hat") is not None else twin.estimator
            if not is_whole:
                before += [(estimator._buffers[name], columns, one._buffers[name].clone()) for name in WIDE]
            twin.step(part, *some, **own)
            for name in WIDE:
                estimator._buffers[name].index_copy_(-1, columns, one._buffers[name])


def of_one(value: Any) -> Any:
    """Return the argument of a single round as a number."""
    return value[0] if getattr(value, "ndim", int(isinstance(value, (list, tuple)))) == 1 and len(value) == 1 else value


def _tensor(rows: SparseRows, first: int, count: int) -> Tensor:
    """Return some rows as a dense tensor of the state's type and device."""
    return as_tensor(rows.name, rows.dense(first, count), rows.state.device).to(rows.state.dtype)


def check_block_size(block_size: Any) -> None:
    """Refuse a wrong size of blocks, which rounds in order do not have."""
    if block_size is not None:
        positive_integer("block_size", block_size)
