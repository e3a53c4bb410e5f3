"""A catalogue of arms that stay, whose widths are kept from round to round."""

import math
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.compiler import is_compiling

from torchonline.bandits.arguments import as_reward, checked_actions, checked_responses
from torchonline.bandits.composed import as_policy
from torchonline.bandits.estimator import Estimator
from torchonline.bandits.policies import Policy, drawn_with_probability
from torchonline.core.backend import autocasts, exactly, in_python, is_readable
from torchonline.core.checks import check_values, refusal, shape_text
from torchonline.core.inputs import ArrayLike, as_indices, check_mask, check_tensor, integer_at_hand
from torchonline.core.learner import Learner
from torchonline.core.ops import along, at_least, matvec, norms, roundoff, row_dots, rows_times, sqrt
from torchonline.core.precision_matrix import REFINE_EVERY, is_time_to_refine
from torchonline.core.stepping import SNAPSHOT_BYTES, all_or_nothing_with, in_order, one_at_a_time

# The methods of an estimator whose results are computed here in another way.
OF_ROWS = ("predictor", "width", "forward", "estimate_and_bonus", "_squared_width")
with_estimator = partial(one_at_a_time, owner='self._modules["policy"]._modules["estimator"]')


class FixedArms(Learner):
    r"""A policy for a fixed catalogue of arms: widths are followed, not computed anew.

    A round::

        k = fixed.select()
        fixed.step(k, reward)

    The choices are those of ``policy.select(arms)``, up to rounding. The squares :math:`x_k^\top Mx_k` of all arms are kept,
    where M is the estimator's :meth:`~torchonline.bandits.estimator.Estimator.width_matrix`. In a step, M moves within the span
    of a few vectors, such as :math:`V^{-1}x`. With an orthonormal basis Q of it,

    .. math:: M \leftarrow M + QCQ^\top,\quad C = Q^\top(M_\text{new}Q - M_\text{old}Q),\qquad
              x_k^\top Mx_k \leftarrow x_k^\top Mx_k + (Q^\top x_k)^\top C\,(Q^\top x_k).

    Three things keep the squares right (docs/fixed_arms.md):

    - A step compares the new :math:`Mz` of one random vector z with what follows from the old one. If they differ by more than
      rounding, M has moved otherwise, by a restart, by an estimator of another kind, or by someone who stepped, loaded or reset
      the estimator itself. Then all squares are computed anew. A decision makes the same comparison if M was written in between.
    - In every eighth round, the next arms get exact squares, so that each arm is exact again after d rounds.
    - A block of many rounds ends with exact squares.

    Cost: O(K d) for a decision, and O(K d + d^2) for a step, where a policy has O(K d^2) for a decision. Squares that are
    computed anew cost O(K d^2). With an estimator whose M moves in other directions, that is every step
    (:meth:`~torchonline.bandits.estimator.Estimator.moves_of_width`).

    Args:
        policy: a :class:`UCB`, :class:`Greedy`, :class:`EpsilonGreedy`, :class:`SquareCB` or :class:`Softmax`, or a policy of
            your own with ``scores_of``; or an estimator, to play by :class:`UCB`. It is not copied.
        arms: features of the K arms, ``(K, d)``; or ``(*B, K, d)``, for learners of a fleet that have arms of their own. A copy
            is kept.

    Shape:
        - ``arms``, as above; scores ``(*B, K)``; action and reward ``(*B)``, or ``(*B, n)`` for n rounds.
        - ``squares``, ``(*B, K)``, and ``image``, Mz, ``(*B, d)``; None if the policy uses no widths.

    The state dict holds arms, squares and image. Squares are derived from the estimator, but other last bits could break a tie
    otherwise: with them, a run that is resumed continues bit for bit. A load brings the arms of the saved policy, whose number
    must be that of these.

    Example:
        >>> fixed = FixedArms(OFUL(2), [[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]])
        >>> for _ in range(50):
        ...     k = fixed.select()
        ...     fixed.step(k, 1.0 if k == 1 else 0.0)
        >>> fixed.select(), fixed.select(mask=[True, False, True])
        (tensor(1), tensor(2))
    """

    if TYPE_CHECKING:  # an annotation of None would hide the buffers from TorchScript
        squares: Tensor | None
        image: Tensor | None
        policy: Policy
    arms: Tensor
    square_lengths: Tensor
    probe: Tensor

    # TorchScript compiles no property.
    __jit_unused_properties__ = ("estimator",)

    def __init__(self, policy: Policy | Estimator, arms: ArrayLike) -> None:
        chosen = as_policy("policy", policy)
        _check_can_be_followed(chosen)
        one = chosen.estimator
        options: Any = {"dtype": one.theta_hat.dtype, "device": one.theta_hat.device, "validate": one.validate}
        super().__init__(one.dim, batch_shape=one.batch_shape, **options)
        # A file would hold the parts twice.
        self.__dict__["_arguments"] = {}
        self.__dict__["_known"] = None
        self.policy = chosen
        self._create_with(self._checked_arms("arms", arms))

    @property
    def estimator(self) -> Estimator:
        """The policy's estimator. Python only."""
        return self.policy.estimator

    def extra_repr(self) -> str:
        return f"arms={self.arms.size(-2)}, dim={self.dim}, batch_shape={self.batch_shape}"

    def parts(self) -> dict[str, Learner]:
        return {"policy.estimator": self.policy.estimator}

    def _initial_state(self) -> dict[str, Tensor | None]:
        if not self.policy.uses_widths:
            return {"squares": None, "image": None}
        sizes = {"squares": self.arms.size(-2), "image": self.dim}
        return {name: torch.zeros(size, dtype=torch.float64) for name, size in sizes.items()}

    def _tables(self) -> dict[str, Tensor]:
        # Normal numbers: whatever M - M_old is, it hides from almost no such vector.
        probe = torch.from_numpy(np.random.default_rng(0).standard_normal(self.dim))
        return {"probe": probe, "square_lengths": row_dots(self.arms, self.arms)}

    @with_estimator
    @one_at_a_time
    def _forward_in_python(self) -> Tensor:
        return self._scores_now()

    @in_python(_forward_in_python)
    def forward(self) -> Tensor:
        """Return the policy's score of each arm, ``(*B, K)``. Changes no state."""
        with torch.no_grad():
            return self._scores(self._squares_of_now())

    @with_estimator
    @one_at_a_time
    def _select_in_python(self, mask: ArrayLike | None = None) -> Tensor:
        scores = _masked(self._scores_now(), self._checked_mask(mask))
        return self.policy.choice(scores, self.policy.estimator.rounds)

    @torch.jit.export
    @in_python(_select_in_python)
    def select(self, mask: Tensor | None = None) -> Tensor:
        """Return the index of the chosen arm: int64, ``(*B)``.

        Changes no state.

        Args:
            mask: True where an arm is available, ``(*B, K)``; None if all are.

        Raises:
            TypeError: ``mask`` holds no booleans.
            ValueError: its shape or device is wrong, or no arm is available.
        """
        with torch.no_grad():
            scores = _masked(self._scores(self._squares_of_now()), mask)
            return self.policy.choice(scores, self.policy.estimator.rounds)

    @with_estimator
    @one_at_a_time
    def _probabilities_in_python(self, mask: ArrayLike | None = None) -> Tensor:
        scores = _masked(self._scores_now(), self._checked_mask(mask))
        return self.policy.distribution(scores, self.policy.estimator.rounds)

    @torch.jit.export
    @in_python(_probabilities_in_python)
    def probabilities(self, mask: Tensor | None = None) -> Tensor:
        """Return the probability with which each arm is chosen, ``(*B, K)``.

        See :meth:`Policy.probabilities`; argument and errors are those of :meth:`select`.
        """
        with torch.no_grad():
            scores = _masked(self._scores(self._squares_of_now()), mask)
            return self.policy.distribution(scores, self.policy.estimator.rounds)

    def _decide_in_python(self, mask: ArrayLike | None = None) -> tuple[Tensor, Tensor]:
        return drawn_with_probability(self.probabilities(mask))

    @torch.jit.export
    @in_python(_decide_in_python)
    def decide(self, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Choose an arm, and return its probability too, for a log: ``(*B)`` twice.

        See :meth:`Policy.decide`; argument and errors are those of :meth:`select`.
        """
        return drawn_with_probability(self.probabilities(mask))

    @one_at_a_time
    def _step_in_python(self, action: ArrayLike, reward: ArrayLike, noise_scale: ArrayLike | None = None) -> None:
        x, rows = self._rows_of(action), self.batch_dims
        if x.dim() == rows + 1:
            self._learn_whole(self._learn_one, x, reward, noise_scale)
            return
        reward, noise_scale = checked_responses("reward", reward, noise_scale, self.arms, x.shape[:-1])
        if 8 * x.size(rows) >= self.dim or self.squares is None:
            self._learn_block(x, reward, noise_scale)
            return
        scales = [None] * x.size(rows) if noise_scale is None else noise_scale.unbind(rows)
        rounds = list(zip(x.unbind(rows), as_reward(reward).unbind(rows), scales, strict=True))
        self._learn_whole(in_order, self._learn_one, rounds, is_block=True)

    @torch.jit.export
    @in_python(_step_in_python)
    def step(self, action: Tensor, reward: Tensor, noise_scale: Tensor | None = None) -> None:
        """Learn from the rewards of decisions, in order.

        Args:
            action: the chosen arm, ``(*B)`` or ``(*B, n)``; an integer, a list or an int64 tensor.
            reward: shaped like ``action``, in the units of the estimator's ``noise_scale``.
            noise_scale: see :meth:`Estimator.step`; shaped like ``action``.

        Raises:
            TypeError: ``action`` holds no integers, or another argument no real numbers.
            ValueError: a shape, device or value is wrong, or the features of the arm are refused (``arms: ...``). No buffer has
                changed.
        """
        with torch.no_grad():
            estimator, rows = self.policy.estimator, self.batch_dims
            reward = reward.detach().to(estimator.theta_hat.dtype)
            scale = estimator._own_scale(reward) if noise_scale is None else noise_scale.detach().to(reward.dtype)
            if action.dim() == rows:
                self._learn_round(self._rows(action.unsqueeze(-1)).squeeze(-2), reward, scale)
            else:
                x = self._rows(action)
                for i in range(action.size(rows)):
                    self._learn_round(x.select(rows, i), reward.select(rows, i), scale.select(rows, i))

    def _learn_round(self, x: Tensor, reward: Tensor, noise_scale: Tensor) -> None:
        """Learn from a round in TorchScript; Python has :meth:`_learn_one`."""
        if self.squares is None:
            self.policy.estimator._learn_round(x, reward, noise_scale)
        else:
            basis, before = self._moves(x)
            self.policy.estimator._learn_round(x, reward, noise_scale)
            self._follow_(basis, before)

    def _scores(self, squares: Tensor | None) -> Tensor:
        """Return the scores that go with some squares, ``(*B, K)`` twice."""
        estimator = self.policy.estimator
        predictor = matvec(self.arms, estimator.theta_hat)
        if squares is None:  # a policy that uses no widths
            return self.policy.scores_of(predictor, predictor)
        allowance = estimator.width_allowance()
        if allowance is not None:
            squares = squares + along(allowance, squares) * self.square_lengths
        return self.policy.scores_of(predictor, sqrt(at_least(squares, 1e-38)))

    def _squares_of_now(self) -> Tensor | None:
        """Return the kept squares, or others if M has been moved by someone else."""
        squares, image = self.squares, self.image
        if squares is None or image is None:
            return None
        matrix = self.policy.estimator.width_matrix()
        is_off = _is_off(matvec(matrix, self.probe.expand_as(image)), image)
        return squares_or_exact(is_off, squares, self.arms, matrix, self.validate)

    def _moves(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return a basis Q of the moves of M in a round at x, and MQ: ``(*B, d, r)`` twice."""
        estimator = self.policy.estimator
        basis, _ = torch.linalg.qr(torch.stack(estimator.moves_of_width(x), -1))
        return basis, _times_columns(estimator.width_matrix(), basis)

    def _follow_(self, basis: Tensor, before: Tensor) -> None:
        """Move the squares after a step, given what :meth:`_moves` returned before it."""
        squares, image = self.squares, self.image
        if squares is not None and image is not None:
            rounds, matrix = self.policy.estimator.rounds, self.policy.estimator.width_matrix()
            C = torch.matmul(basis.mT, _times_columns(matrix, basis) - before)
            rows = _times_columns(self.arms, basis)
            new = squares + row_dots(torch.matmul(rows, C), rows)
            expected = image + matvec(basis, matvec(C, torch.matmul(basis.mT, self.probe)))
            seen = matvec(matrix, self.probe.expand_as(image))
            new = squares_or_exact(_is_off(seen, expected), new, self.arms, matrix, self.validate)
            if is_time_to_refine(rounds):
                new = self._with_some_exact(new, matrix, rounds)
            # In this order: an image of another M says that the squares are of another M too.
            squares.copy_(new)
            image.copy_(seen)

    def _with_some_exact(self, squares: Tensor, matrix: Tensor, rounds: Tensor) -> Tensor:
        """Return squares of which the next arms' are exact, each once in d rounds."""
        arms = squares.size(-1)
        count = min(arms, (REFINE_EVERY * arms + self.dim - 1) // self.dim)
        first = (rounds // REFINE_EVERY * count).unsqueeze(-1)
        index = (first + torch.arange(count, device=rounds.device)) % arms
        return squares.scatter(-1, index, exact_squares(self._rows(index), matrix))

    def _rows(self, action: Tensor) -> Tensor:
        """Return the features of some arms: ``(*B, n)`` to ``(*B, n, d)``."""
        arms = self.arms
        if arms.dim() == 2:
            return arms.index_select(0, action.reshape(-1)).reshape(action.shape + (arms.size(-1),))
        return arms.gather(-2, action.unsqueeze(-1).expand(action.shape + (arms.size(-1),)))

    # TorchScript does not compile the methods below.

    def add_arms(self, features: ArrayLike) -> None:
        """Add arms at the end, ``(n, d)`` or ``(*B, n, d)``, as the constructor's ``arms``.

        O(n d^2). The other arms keep their squares.

        Raises:
            TypeError, ValueError: ``features`` is something else. Nothing has changed.
        """
        rows = self._checked_arms("features", features)
        if rows.dim() != self.arms.dim():
            wanted = shape_text((*self.arms.shape[:-2], "n", self.dim))
            raise ValueError(f"features: expected shape {wanted}, got {shape_text(rows.shape)}")
        self._rearrange(range(self.arms.size(-2)), rows)

    def remove_arms(self, indices: Iterable[int]) -> None:
        """Remove arms. The others move up and keep their squares.

        Args:
            indices: of the arms to remove, from 0 to K - 1, without repetition and not all of them.

        Raises:
            TypeError, ValueError: ``indices`` is something else. Nothing has changed.
        """
        if not isinstance(indices, Iterable):
            raise TypeError(f"indices: expected indices of arms, got {type(indices).__name__}")
        listed = as_indices("indices", indices if isinstance(indices, Tensor) else list(indices), torch.device("cpu"))
        removed, count = listed.reshape(-1).tolist(), self.arms.size(-2)
        if not set(removed) <= set(range(count)) or len(set(removed)) < len(removed) or len(removed) >= count:
            raise ValueError(f"indices: expected some of the indices 0 to {count - 1}, each once, got {removed}")
        self._rearrange([k for k in range(count) if k not in removed], self.arms.narrow(-2, 0, 0))

    def reset(self) -> None:
        """Put the estimator back to its state before the first round, in place."""
        estimator = self._one()
        with estimator._lock:
            super().reset()
            estimator.__dict__["_is_torn"] = False

    def _reset(self) -> None:
        super()._reset()
        self._renew_()

    def _create_with(self, arms: Tensor) -> None:
        """Create the buffers for some arms, and compute their squares."""
        self.register_buffer("arms", arms)
        self._create_buffers()
        self.unchanging = (*self.unchanging, "arms")  # by steps
        with torch.no_grad():
            self._renew_()

    def _renew_(self) -> None:
        """Compute all squares anew."""
        if self.squares is not None and self.image is not None:
            matrix = self._one().width_matrix()
            self.squares.copy_(exact_squares(self.arms, matrix))
            self.image.copy_(matvec(matrix, self.probe.expand_as(self.image)))

    def _scores_now(self) -> Tensor:
        """Return the scores. The comparison of M is left out if M was not written since the last."""
        with torch.no_grad(), self._exactly():
            if self.squares is None:
                return self._scores(None)
            known, matrix = self.__dict__["_known"], self._one().width_matrix()
            if known is not None and known.is_of(matrix):
                return self._scores(known.squares)
            squares: Any = self._squares_of_now()
            self._remember(matrix, squares)
            return self._scores(squares)

    def _remember(self, matrix: Tensor, squares: Any) -> None:
        """Note that some squares are those of M as it is."""
        is_versioned = is_readable(matrix) and not matrix.is_inference()
        self.__dict__["_known"] = _Known(matrix, squares) if is_versioned else None

    def _learn_whole(self, method: Any, *arguments: Any, is_block: bool = False) -> None:
        """Call a method that learns, all or nothing where :mod:`torchonline.core.stepping` takes snapshots.

        Elsewhere the estimator guards its own state. Squares that an interrupt has left behind are noticed.
        """
        estimator = self._one()
        with estimator._lock:
            is_small = self.dim * self.dim * 4 < SNAPSHOT_BYTES and self.arms.is_cpu and is_readable(self.arms)
            state = list(self.state().values()) if is_small or is_block else []
            if is_block or (is_small and sum(buffer.nbytes for buffer in state) <= SNAPSHOT_BYTES):
                all_or_nothing_with(estimator, self, state, method, *arguments)
            else:
                method(*arguments)

    def _learn_one(self, x: Tensor, reward: Any, noise_scale: Any) -> None:
        """Learn from one round of checked features."""
        if self.squares is None:
            self._step_estimator(x, reward, noise_scale)
            return
        with torch.no_grad(), self._exactly():
            basis, before = self._moves(x)
        self._step_estimator(x, reward, noise_scale)
        with torch.no_grad(), self._exactly():
            self._follow_(basis, before)
            self._remember(self._one().width_matrix(), self.squares)

    def _learn_block(self, x: Tensor, reward: Tensor, noise_scale: Tensor | None) -> None:
        """Learn from many rounds, and compute the squares after the last."""
        with self._one()._lock:
            self._step_estimator(x, reward, noise_scale)
            if x.size(self.batch_dims) > 0:
                with torch.no_grad(), self._exactly():
                    self._renew_()

    def _step_estimator(self, x: Tensor, reward: Any, noise_scale: Any) -> None:
        """Call the estimator's step. Its errors call the features ``arms``."""
        try:
            self._one().step(x, reward, noise_scale)
        except ValueError as error:
            name, colon, rest = str(error).partition(": ")
            if name != "x" or not colon:
                raise
            raise refusal(f"arms: {rest}") from error

    def _checked_arms(self, name: str, arms: Any) -> Tensor:
        """Return a copy of the features of arms, or raise."""
        state = self._one().theta_hat
        rows = check_tensor(name, arms, state)
        own = (*self.batch_shape, rows.size(-2), self.dim) if rows.dim() > 1 else ()
        if rows.shape not in (own, own[self.batch_dims :]) or not rows.numel():
            shapes = [(*self.batch_shape, "K", self.dim)]
            shapes = [("K", self.dim), *shapes] if self.batch_dims else shapes
            wanted = " or ".join(map(shape_text, shapes))
            raise ValueError(f"{name}: expected shape {wanted} with K > 0, got {shape_text(rows.shape)}")
        if self.validate and is_readable(rows) and not rows.is_meta:
            check_values(name, rows)
        return rows.detach().clone(memory_format=torch.contiguous_format)

    def _checked_mask(self, mask: Any) -> Tensor | None:
        """Return a mask as a tensor, or raise."""
        if mask is None:
            return None
        return check_mask("mask", mask, (*self.batch_shape, self.arms.size(-2)), self.arms, self.validate)

    def _rows_of(self, action: Any) -> Tensor:
        """Return the features of the chosen arms, ``(*B, d)`` or ``(*B, n, d)``, or raise."""
        arms, dims = self.arms, self.batch_dims
        one = integer_at_hand(action) if not dims and arms.is_cpu else None
        index = action if one is not None else as_indices("action", action, arms.device)
        shape = torch.Size() if one is not None else index.shape
        if shape[:dims] != self.batch_shape or len(shape) > dims + 1:
            wanted = f"{shape_text(self.batch_shape)} or {shape_text((*self.batch_shape, 'n'))}"
            raise ValueError(f"action: expected shape {wanted}, got {shape_text(shape)}")
        checked_actions(index, shape, arms.device, arms.size(-2), self.validate)
        if one is not None:
            return arms[one]
        return self._rows(index) if len(shape) > dims else self._rows(index.unsqueeze(-1)).squeeze(-2)

    @with_estimator
    @one_at_a_time
    def _rearrange(self, kept: Iterable[int], added: Tensor) -> None:
        """Replace the arms by some of them, and new ones."""
        old = torch.tensor(list(kept), device=self.arms.device)
        with torch.no_grad(), self._exactly():
            buffers: dict[str, Any] = {"arms": torch.cat([self.arms.index_select(-2, old), added], -2)}
            buffers["square_lengths"] = row_dots(buffers["arms"], buffers["arms"])
            squares: Any = self._squares_of_now()
            if squares is not None:
                matrix = self._one().width_matrix()
                exact = exact_squares(added, matrix)
                buffers["squares"] = torch.cat([squares.index_select(-1, old), exact], -1)
                buffers["image"] = matvec(matrix, self.probe.expand_as(self._buffers["image"]))
        # At once: an exception in between would leave squares of other arms.
        self.__dict__["_known"] = None
        self._buffers.update(buffers)

    def _exactly(self) -> AbstractContextManager[Any]:
        """Return a context without automatic mixed precision."""
        return exactly(self.arms) if autocasts(self.arms) else nullcontext()

    def _one(self) -> Any:
        """Return the estimator, in a fifth of the time of ``self.policy.estimator``."""
        return self._modules["policy"]._modules["estimator"]  # type: ignore[union-attr]

    def _refuse_change(self, cls: Any, name: str, value: Any) -> None:
        if name in self._buffers and "constants" in self._buffers:
            raise AttributeError(f"{name}: expected no assignment, got one; use add_arms and remove_arms")
        super()._refuse_change(cls, name, value)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.__dict__["_known"] = None


class _Known:
    """The squares of an M that has not been written since."""

    def __init__(self, matrix: Tensor, squares: Tensor) -> None:
        self.matrix, self.version, self.address, self.squares = matrix, matrix._version, matrix.data_ptr(), squares

    def is_of(self, matrix: Tensor) -> bool:
        """Return whether a tensor is this M, as it was."""
        return matrix is self.matrix and matrix._version == self.version and matrix.data_ptr() == self.address

    def __reduce__(self) -> tuple[Any, ...]:  # copies and files do without
        return (type(None), ())


def exact_squares(arms: Tensor, matrix: Tensor) -> Tensor:
    """Return ``x'Mx`` of rows: ``(K, d)`` or ``(*B, K, d)``, ``(*B, d, d)`` to ``(*B, K)``."""
    return row_dots(rows_times(arms, matrix), arms)


def _squares_or_exact_in_python(
    is_off: Tensor, squares: Tensor, arms: Tensor, matrix: Tensor, may_wait: bool
) -> Tensor:
    if is_compiling():
        return torch.cond(is_off.any(), _exact, lambda s, x, m: s.clone(), (squares, arms, matrix))
    if is_readable(is_off) and (is_off.is_cpu or may_wait) and not bool(is_off.any()):
        return squares
    return exact_squares(arms, matrix)


@in_python(_squares_or_exact_in_python)
def squares_or_exact(is_off: Tensor, squares: Tensor, arms: Tensor, matrix: Tensor, may_wait: bool) -> Tensor:
    """Return the squares, or exact ones if any learner's may be off, ``(*B)``.

    The host waits for an accelerator's ``is_off`` only with ``may_wait``; otherwise the squares are exact there.
    """
    if bool(is_off.any()):
        return exact_squares(arms, matrix)
    return squares


def _exact(squares: Tensor, arms: Tensor, matrix: Tensor) -> Tensor:
    return exact_squares(arms, matrix)


def _is_off(seen: Tensor, expected: Tensor) -> Tensor:
    """Return whether two images Mz differ by more than rounding, ``(*B)``; True for NaN."""
    limit = 64.0 * math.sqrt(seen.size(-1)) * roundoff(seen)
    gap, size = norms(seen - expected, math.inf), norms(seen, math.inf)
    return torch.logical_not(gap <= limit * size).squeeze(-1)


def _times_columns(matrix: Tensor, columns: Tensor) -> Tensor:
    """Return ``matrix @ columns``: ``(*B, m, d)`` and ``(*B, d, r)`` to ``(*B, m, r)``."""
    # A few products with vectors take a fraction of the time of one with few columns.
    return torch.stack([matvec(matrix, column) for column in columns.unbind(-1)], -1)


def _masked(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Return scores that are -inf where a mask is False."""
    return scores if mask is None else scores.masked_fill(~mask, -math.inf)


def _check_can_be_followed(policy: Policy) -> None:
    """Refuse a policy whose scores do not come of predictors and widths alone."""
    cls, one = type(policy), type(policy.estimator)
    owners = {_owner(cls, name) for name in ("forward", "scores_of")}
    if len(owners) > 1 or cls.scores_of is Policy.scores_of or "forward" in vars(policy):
        wanted = "a policy whose class has scores_of() beside forward(), as UCB, Greedy and EpsilonGreedy"
        raise TypeError(f"policy: expected {wanted}, got {cls.__name__}")
    own = [name for name in OF_ROWS if getattr(one, name) is not getattr(Estimator, name)]
    if own:
        wanted = "an estimator with the predictor, forward and width of Estimator"
        raise TypeError(f"policy: expected {wanted}, got {one.__name__} with its own {', '.join(own)}")


def _owner(cls: type, name: str) -> type:
    """Return the class that a method is inherited from."""
    return next(base for base in cls.__mro__ if name in vars(base))
