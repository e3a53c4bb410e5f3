"""Logs of decisions with their probabilities, and conversions to them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchonline.core import checks
from torchonline.core.action_names import checked_names, ids_of_names
from torchonline.core.checks import check_shape, check_values, positive_integer, shape_text
from torchonline.core.inputs import as_indices, check_mask, check_tensor
from torchonline.core.messages import counted
from torchonline.core.times import as_times
from torchonline.feedback.log import pages
from torchonline.off_policy.columns import Columns, check_columns
from torchonline.policies.arm_ids import by_place
from torchonline.policies.policy import Policy

CPU = torch.device("cpu")
LIKE = torch.zeros((), dtype=torch.float64)
# Tolerance for rounding: of probabilities above 1, of row sums other than 1, and of differences between one arm's probabilities.
TOLERANCE = 1e-5
# A smaller logged probability is taken for a mistake. The bound also keeps squares of weights finite.
LEAST_PROBABILITY = 1e-50


@dataclass(frozen=True, eq=False, kw_only=True)
class BanditLog:
    r"""N logged decisions: contexts, actions, rewards and logging probabilities.

    All values are checked and copied to float64 and int64 on the CPU. Lists and NumPy arrays are accepted. ``log[rows]`` selects
    rounds by a slice, indices or booleans. If arms are added and removed, the column of an arm is its id (``action_ids`` of the
    policy), and K is the number of arms that ever existed.

    Args:
        arms: K, the number of arms.
        action: logged arms, ``(N)``, integers from 0 to K - 1.
        reward: rewards of the logged arms, ``(N)``.
        probability: propensity of the logged arm given its context and the past, ``(N)``, in [1e-50, 1]. Values up to 1e-5 above
            1 count as rounding errors and become 1.
        context: inputs of a policy: ``(N, d)`` for one context, ``(N, K, d)`` for features of each arm. None if no policy or
            regression needs it. NaN is a gap, which only a policy on the columns of a table takes.
        mask: True where an arm was available, ``(N, K)``; None if all were.
        groups: group of each round, ``(N)``, integers. Dependent rounds, such as those of one person, must share a group. None if
            all rounds are independent.
        time: time of the decision, ``(N)``, in any unit; None if unknown. Dates and nanoseconds since 1970 become seconds since
            1970.
        position: position in a list, ``(N)``, integers from 0; None if there is one position. Estimators ignore it.

    Raises:
        TypeError, ValueError: an argument is invalid. The message names the argument.

    Example:
        >>> log = BanditLog(arms=2, action=[0, 1, 1], reward=[1.0, 0.0, 1.0], probability=[0.5, 0.5, 0.5])
        >>> len(log), log[log.action == 1].reward
        (3, tensor([0., 1.], dtype=torch.float64))
    """

    arms: int
    action: Tensor
    reward: Tensor
    probability: Tensor
    context: Tensor | None = None
    mask: Tensor | None = None
    groups: Tensor | None = None
    time: Tensor | None = None
    position: Tensor | None = None

    def __post_init__(self) -> None:
        arms = positive_integer("arms", self.arms)
        action = as_indices("action", self.action, CPU)
        if action.dim() != 1 or len(action) == 0:
            raise ValueError(f"action: expected shape (N) with N above 0, got {shape_text(action.shape)}")
        n = len(action)
        _check_range("action", action, arms - 1)
        found: dict[str, Any] = {"arms": arms, "action": action}
        for name in ("reward", "probability"):
            found[name] = real_numbers(name, getattr(self, name), (n,))
        if self.time is not None:
            found["time"] = real_numbers("time", _times(self.time), (n,))
        low, high = (float(bound) for bound in found["probability"].aminmax())
        if not LEAST_PROBABILITY <= low <= high <= 1.0 + TOLERANCE:
            raise ValueError(f"probability: expected values in [{LEAST_PROBABILITY:g}, 1], got {low!r} to {high!r}")
        found["probability"] = found["probability"].clamp(max=1.0)
        for name in ("groups", "position"):
            value = getattr(self, name)
            if value is not None:
                found[name] = as_indices(name, value, CPU)
                check_shape(name, found[name], (n,))
        if self.position is not None and bool((found["position"] < 0).any()):
            raise ValueError(f"position: expected integers of at least 0, got {int(found['position'].min())}")
        if self.groups is not None:
            found["groups"] = torch.unique(found["groups"], return_inverse=True)[1]
        if self.context is not None:
            context = check_tensor("context", self.context, LIKE)
            right = context.dim() in (2, 3) and len(context) == n and context.size(-1) > 0
            if not right or (context.dim() == 3 and context.size(1) != arms):
                wanted = f"({n}, d) or ({n}, {arms}, d) with d above 0"
                raise ValueError(f"context: expected shape {wanted}, got {shape_text(context.shape)}")
            check_values("context", context[~context.isnan()])
            found["context"] = context
        if self.mask is not None:
            mask = check_mask("mask", self.mask, (n, arms), LIKE, True)
            if not bool(mask.gather(1, action.unsqueeze(1)).all()):
                raise ValueError("mask: expected every logged action to be available, got an unavailable one")
            found["mask"] = mask
        for name, value in found.items():
            # Copy, because the caller's tensors may change.
            object.__setattr__(self, name, value.detach().clone() if isinstance(value, Tensor) else value)

    def __len__(self) -> int:
        return len(self.action)

    def __repr__(self) -> str:
        given = [field.name for field in fields(self) if field.name != "arms" and getattr(self, field.name) is not None]
        return f"BanditLog({counted(len(self), 'round')}, arms={self.arms}: {', '.join(given)})"

    def __getitem__(self, rows: Any) -> "BanditLog":
        index = rows
        if not isinstance(rows, slice):
            index = rows.detach().cpu().numpy() if isinstance(rows, Tensor) else np.asarray(rows)
            if index.ndim != 1 or (index.size and index.dtype.kind not in "biu"):
                got = f"{type(rows).__name__} of {index.dtype} and shape {shape_text(index.shape)}"
                raise TypeError(f"rows: expected a slice, indices or booleans, got {got}")
            index = torch.as_tensor(index if index.dtype.kind == "b" else index.astype(np.int64))
        values: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(self)}
        values |= {name: value[index] for name, value in values.items() if isinstance(value, Tensor)}
        return BanditLog(**values)

    def group_sums(self, values: Tensor) -> Tensor:
        """Sum values over the groups: ``(N, ...)`` to ``(G, ...)``."""
        if self.groups is None:
            return values
        sums = values.new_zeros((int(self.groups.max()) + 1, *values.shape[1:]))
        return sums.index_add_(0, self.groups, values)


def real_numbers(name: str, value: Any, shape: tuple[int, ...]) -> Tensor:
    """Return finite real numbers of the given shape in float64, detached, or raise."""
    found = check_tensor(name, value, LIKE, is_real=True).detach()
    check_shape(name, found, shape)
    check_values(name, found)
    return found


def target_probabilities(log: BanditLog, target: Any) -> Tensor:
    """Return the probability of each arm under a target policy, ``(N, K)``.

    Args:
        log: the log, with ``context`` if ``target`` is a policy.
        target: a tensor ``(N, K)``, whose rows sum to 1 within 1e-5; or an object with ``probabilities(context, mask)``, such as
            a :class:`Policy`, a :class:`DisjointArms` or a :class:`~torchonline.models.BanditHead`. Its present state is used for
            all rounds. Removed arms have probability 0. The probabilities of :class:`ThompsonSampling` are random estimates that
            differ between calls: compute them once.

    Raises:
        TypeError, ValueError: the values are not probabilities, or an unavailable arm has a probability above 0.

    Example:
        >>> log = BanditLog(arms=2, action=[0, 1], reward=[1, 0], probability=[0.5, 0.5], context=torch.eye(2))
        >>> arms = DisjointArms(EpsilonGreedy(RidgeRegression(2), epsilon=0.2), actions=2)
        >>> arms.step(torch.tensor([1.0, 0.0]), 0, 1.0)
        >>> target_probabilities(log, arms)  # of the second context, nothing is known
        tensor([[0.9000, 0.1000],
                [0.5000, 0.5000]], dtype=torch.float64)
    """
    compute: Callable[..., Tensor] | None = getattr(target, "probabilities", None)
    if compute is not None and not isinstance(target, Tensor):
        if log.context is None:
            raise ValueError("log: expected a log with context, which a policy needs, got none")
        like, mask = _first_tensor(target), log.mask
        arms = target.with_ids() if isinstance(target, Policy) else None
        if arms is not None and arms.ids_so_far != log.arms:
            wanted = f"a policy that has had {counted(log.arms, 'arm')}, like the log"
            raise ValueError(f"target: expected {wanted}, got one with {arms.ids_so_far}")
        if mask is not None:
            mask = (mask if arms is None else by_place(mask, arms)).to(like.device)
        target = compute(log.context.to(like.device, like.dtype), mask=mask)
        target = target.detach().to(CPU, torch.float64) if isinstance(target, Tensor) else target
        if arms is not None and len(arms.action_ids) < log.arms:
            full = torch.zeros(len(log), log.arms, dtype=torch.float64)
            target = full.index_copy(1, torch.tensor(arms.action_ids), target)
    found = real_numbers("target", target, (len(log), log.arms))
    sums = found.sum(1)
    if bool((found < 0.0).any()) or bool(((sums - 1.0).abs() > TOLERANCE).any()):
        worst = float(sums[(sums - 1.0).abs().argmax()])
        low = float(found.min())
        raise ValueError(
            f"target: expected probabilities with rows that sum to 1, got a sum of {worst:g} and a smallest of {low:g}"
        )
    if log.mask is not None and bool((found[~log.mask] > 0.0).any()):
        raise ValueError("target: expected probability 0 for unavailable arms, got a probability above 0")
    return found.clamp(max=1.0)  # like the logged ones


def _first_tensor(policy: Any) -> Tensor:
    """Return a tensor with the dtype and device of a policy's inputs."""
    if getattr(policy, "scaler", None) is not None:
        return policy.scaler.mean
    parameters = getattr(policy, "parameters", tuple)
    return next(iter(parameters()), getattr(getattr(policy, "estimator", None), "theta_hat", LIKE))


def of_actions(log: BanditLog, values: Tensor) -> Tensor:
    """Select the entries of the logged actions: ``(N, K)`` to ``(N)``."""
    return values.gather(1, log.action.unsqueeze(1)).squeeze(1)


def from_frame(
    frame: Any,
    *,
    action: str,
    reward: str,
    probability: str,
    context: Sequence[str] = (),
    arms: int | None = None,
    actions: Sequence[str] | None = None,
    groups: str | None = None,
    time: str | None = None,
    position: str | None = None,
) -> BanditLog:
    """Return a log from a table in memory, with one round per row.

    Rows stay in their order. A column of groups may hold any sortable values, such as names. A column of times may hold dates, or
    nanoseconds since 1970, which become seconds since 1970. The sorted values of a column of positions are numbered from 0.

    Args:
        frame: a pandas or polars frame, or an Arrow table or record batch.
        action: column of the logged arms, integers from 0. A smallest action of 1 is refused if the largest is ``arms``, and
            gives a warning if ``arms`` is None: the column may count from 1. With ``actions``, their names.
        reward: column of the rewards.
        probability: column of the logging probabilities.
        context: numeric columns of the context: ``(N, d)``. Encode text as numbers first. The columns of rewards, actions and
            probabilities are refused, and so are duplicates.
        arms: K; None for the largest action plus 1.
        actions: names of the actions in the column, in the order of their numbers: ``policy.action_names``, or the names of all
            arms that the policy ever had. K is their number. None for a column of integers.
        groups: column of the groups, or None.
        time: column of the times, or None.
        position: column of the positions, or None.

    Raises:
        TypeError: a column has the wrong type. The error names all invalid columns.
        ValueError: a column is missing, has missing values, or has values out of range.

    Example:
        >>> import pandas
        >>> frame = pandas.DataFrame({"item": [0, 2], "click": [0, 1], "p": [0.5, 0.1], "age": [31.0, 27.0]})
        >>> from_frame(frame, action="item", reward="click", probability="p", context=["age"])
        BanditLog(2 rounds, arms=3: action, reward, probability, context)
        >>> frame["page"] = ["home", "news"]
        >>> log = from_frame(frame, action="page", actions=["home", "sale", "news"], reward="click", probability="p")
        >>> log.action
        tensor([0, 2])
    """
    if isinstance(context, str):
        raise TypeError("context: expected a list of columns, got str")
    check_columns("context", context, reward=[reward], action=[action], probability=[probability])
    columns = Columns(frame)
    if actions is None:
        values: dict[str, Any] = {"action": columns.actions(action, arms)}
    else:
        names = checked_names("actions", actions)
        if arms not in (None, len(names)):
            raise ValueError(f"arms: expected None or {len(names)}, the number of names in actions, got {arms}")
        found, arms = columns.without_gaps("action", action), len(names)
        ids = {name: k for k, name in enumerate(names)}
        values = {"action": None if found is None else ids_of_names("action", found, ids, names)}
    for name, column in {"reward": reward, "probability": probability}.items():
        values[name] = columns.numbers(name, [column])[:, 0]
    if context:
        values["context"] = columns.numbers("context", context)
    named = {"groups": groups, "position": position, "time": time}
    others: dict[str, Any] = {
        name: columns.without_gaps(name, column) for name, column in named.items() if column is not None
    }
    columns.check()
    for name, values_of in others.items():
        values[name] = (
            _times_of_column(values_of, str(time)) if name == "time" else np.unique(values_of, return_inverse=True)[1]
        )
    return BanditLog(arms=_number_of_arms(arms, values["action"]), **values)


def from_obp(feedback: Mapping[str, Any]) -> BanditLog:
    """Return a log from the ``bandit_feedback`` of Open Bandit Pipeline.

    Each round is an impression at one position of a list of ``len_list`` items. The position is kept in ``log.position``. An
    estimate is then the mean reward of an impression, and intervals treat impressions as independent. To evaluate one position,
    use ``log[log.position == 0]``. Whole lists (slates) are out of scope.

    Args:
        feedback: a mapping with ``n_actions``, ``action``, ``reward`` and ``pscore``, and optionally ``context`` and
            ``position``. Other entries, such as ``action_context``, are ignored.

    Raises:
        TypeError, ValueError: an entry is missing or invalid. ``pscore`` must be given.

    Example:
        >>> feedback = {"n_rounds": 2, "n_actions": 3, "action": [0, 2], "reward": [0, 1], "pscore": [0.5, 0.1]}
        >>> from_obp(feedback)
        BanditLog(2 rounds, arms=3: action, reward, probability)
    """
    checks.instance_of("feedback", feedback, Mapping, "a mapping")
    for name in ("n_actions", "action", "reward", "pscore"):
        if feedback.get(name) is None:
            raise ValueError(f"feedback: expected an entry {name}, got none")
    context = feedback.get("context")
    return BanditLog(
        arms=feedback["n_actions"],
        action=feedback["action"],
        reward=feedback["reward"],
        probability=feedback["pscore"],
        context=None if context is None else torch.as_tensor(np.asarray(context, dtype=np.float64)),
        position=feedback.get("position"),
    )


def to_obp(log: BanditLog, target: Any) -> tuple[dict[str, Any], np.ndarray]:
    """Return the arguments of Open Bandit Pipeline's estimators.

    These are ``bandit_feedback`` and ``action_dist``, as copies. Each round is one impression at the only position, 0:
    ``action_dist`` has shape (N, K, 1). Masks and features of each arm are left out.

    Args:
        log: the log.
        target: see :func:`target_probabilities`.

    Example:
        >>> log = BanditLog(arms=2, action=[0, 1], reward=[1, 0], probability=[0.5, 0.5])
        >>> feedback, action_dist = to_obp(log, torch.full((2, 2), 0.5))
        >>> sorted(feedback), action_dist.shape
        (['action', 'context', 'n_actions', 'n_rounds', 'position', 'pscore', 'reward'], (2, 2, 1))
    """
    context = log.context if log.context is not None and log.context.dim() == 2 else torch.zeros(len(log), 1)
    feedback = {
        "n_rounds": len(log),
        "n_actions": log.arms,
        "context": context.numpy().copy(),
        "action": log.action.numpy().copy(),
        "position": np.zeros(len(log), dtype=int),
        "reward": log.reward.numpy().copy(),
        "pscore": log.probability.numpy().copy(),
    }
    return feedback, target_probabilities(log, target).unsqueeze(-1).numpy().copy()


def at_positions(log: BanditLog, values: Any) -> Tensor:
    """Select values at each round's position: ``(N, K, positions)`` to ``(N, K)``.

    This converts ``action_dist`` and ``estimated_rewards_by_reg_model`` of Open Bandit Pipeline. A log without positions takes
    ``(N, K, 1)``.

    Args:
        log: the log.
        values: real numbers, ``(N, K, positions)``.

    Example:
        >>> log = BanditLog(arms=2, action=[0, 1], reward=[1, 0], probability=[0.5, 0.5], position=[1, 0])
        >>> at_positions(log, [[[0.1, 0.2], [0.9, 0.8]]] * 2)
        tensor([[0.2000, 0.8000],
                [0.1000, 0.9000]], dtype=torch.float64)
    """
    found = check_tensor("values", values, LIKE, is_real=True)
    if found.dim() != 3 or found.shape[:2] != (len(log), log.arms):
        raise ValueError(f"values: expected shape ({len(log)}, {log.arms}, positions), got {shape_text(found.shape)}")
    position = torch.zeros_like(log.action) if log.position is None else log.position
    _check_range("position", position, found.size(2) - 1)
    return found[torch.arange(len(log)), :, position]


def from_decisions(
    decisions: Any, *, arms: int | None = None, context: bool = True, encoder: str | None = None, page: int = 1000
) -> BanditLog:
    """Return the part of a decision log before the first open decision.

    Decisions are in the order in which they were made. An open decision has no reward yet. Later decisions are left out, because
    early rewards may differ from late ones. ``close_due()`` of a log with a window closes decisions whose window is over, at the
    default reward. Decisions with fewer arms than others are padded with arms of zeros, which the mask makes unavailable. The
    whole log is held in memory.

    Args:
        decisions: a :class:`~torchonline.feedback.DecisionLog`, or an object with its methods ``decisions(after, limit)`` and
            ``read(after, limit)``.
        arms: K. None takes it from the features of the arms or from the masks.
        context: whether the result holds the inputs. Use False for raw inputs of other shapes, or of several encoders.
        encoder: version of the encoder whose decisions are taken, because features of two versions cannot be the context of one
            policy. None takes all decisions, for example if logged inputs are raw.
        page: rows to read at a time.

    Raises:
        ValueError: the first decision is still open, K is unknown, or contexts differ in size, as after a change of the encoder.

    Example:
        >>> from torchonline.feedback import DecisionLog
        >>> with DecisionLog(folder / "decisions.db") as decisions:
        ...     for name in ("first", "second", "third"):
        ...         _ = decisions.decide(name, torch.eye(2), 0, 0.5)
        ...     replies = [decisions.reward(name, 1.0) for name in ("third", "first")]
        ...     log = from_decisions(decisions)
        >>> log  # the second is open
        BanditLog(1 round, arms=2: action, reward, probability, context)
    """
    positive_integer("page", page)
    rewards = {row.id: row.reward for row in chain.from_iterable(pages(decisions.read, "position", page))}
    rows = []
    if encoder is not None:
        checks.instance_of("encoder", encoder, str, "a string or None")
    for row in chain.from_iterable(pages(decisions.decisions, "number", page)):
        if encoder is not None and row.encoder != encoder:
            continue
        if row.id not in rewards:
            break
        rows.append(row)
    if not rows:
        of_version = "" if encoder is None else f" of encoder {encoder!r}"
        raise ValueError(f"decisions: expected the reward of the first decision{of_version}, got none")
    dims = {row.inputs.dim() if context else 0 for row in rows}
    if context and (len(dims) > 1 or not dims <= {1, 2} or len({row.inputs.size(-1) for row in rows}) > 1):
        wanted = "inputs of shape (d) or (K, d), with one d, or an encoder version, or context=False"
        raise ValueError(f"decisions: expected {wanted}, got {sorted({tuple(row.inputs.shape) for row in rows})}")
    has_arms = dims == {2}
    sizes = [len(row.inputs) if has_arms else None if row.mask is None else len(row.mask) for row in rows]
    known = [size for size in sizes if size is not None]
    if arms is None and not known:
        raise ValueError("arms: expected the number of arms, because neither inputs nor masks contain it, got None")
    count = positive_integer("arms", max(known) if arms is None else arms)
    if known and max(known) > count:
        raise ValueError(f"arms: expected at least {max(known)}, the arms of a decision, got {count}")
    mask = torch.zeros(len(rows), count, dtype=torch.bool)
    for i, (row, size) in enumerate(zip(rows, sizes, strict=True)):
        mask[i, :size] = True if row.mask is None else row.mask
    inputs = None
    if context:
        inputs = torch.zeros(len(rows), *((count,) if has_arms else ()), rows[0].inputs.size(-1), dtype=torch.float64)
        for i, row in enumerate(rows):
            inputs[(i, slice(len(row.inputs))) if has_arms else i] = row.inputs.to(torch.float64)
    return BanditLog(
        arms=count,
        action=torch.tensor([row.action for row in rows]),
        reward=torch.tensor([rewards[row.id] for row in rows], dtype=torch.float64),
        probability=torch.tensor([row.probability for row in rows], dtype=torch.float64),
        context=inputs,
        mask=None if bool(mask.all()) else mask,
    )


def _times_of_column(times: np.ndarray, column: str) -> np.ndarray:
    """Return a column of times as numbers, or raise."""
    try:
        return as_times("time", times)
    except TypeError as error:
        wanted = f"expected a column of numbers or dates, got {column!r} of {times.dtype}"
        raise TypeError(f"time: {wanted}") from error


def _times(value: Any) -> Any:
    """Return times as numbers. Dates and nanoseconds become seconds."""
    if isinstance(value, Tensor):
        is_plain = value.is_floating_point() or value.dtype == torch.int64
        return torch.from_numpy(as_times("time", value.detach().cpu().numpy())) if is_plain else value
    array = np.asarray(value)
    return as_times("time", array) if array.dtype.kind in "iufMO" else value


def _number_of_arms(arms: int | None, action: np.ndarray) -> int:
    if arms is not None or action.dtype.kind not in "iu" or not action.size:
        return 1 if arms is None else arms
    return max(int(action.max()) + 1, 1)


def _check_range(name: str, index: Tensor, largest: int) -> None:
    low, high = (int(bound) for bound in index.aminmax())
    if low < 0 or high > largest:
        raise ValueError(f"{name}: expected integers from 0 to {largest}, got {low} to {high}")
