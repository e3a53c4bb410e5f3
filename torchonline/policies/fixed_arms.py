"""A policy for a fixed catalogue of arms, which keeps their widths up to date."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from torchonline.core.action_names import checked_names
from torchonline.core.backend import PLAIN, in_python, is_readable, writable
from torchonline.core.checks import check_state_dtype, check_values, shape_text
from torchonline.core.delegated import delegated
from torchonline.core.inputs import ArrayLike, as_indices, check_mask, check_tensor, integer_at_hand
from torchonline.core.messages import listed
from torchonline.core.ops import (
    along,
    assign_,
    at_least,
    matvec,
    maximum,
    norms,
    number,
    row_dots,
    rows_times,
    sqrt,
    where,
)
from torchonline.core.precision_matrix import is_time_to_refine
from torchonline.core.views import NumpyView
from torchonline.policies.arm_ids import WithArmIds
from torchonline.policies.moving_squares import (
    are_off,
    exact_squares,
    moved,
    orthonormal,
    rows_of,
    squares_or_exact,
    with_some_exact,
)
from torchonline.policies.policy import in_turn, masked
from torchonline.policies.policy_learner import PolicyLearner
from torchonline.policies.rules import Rule, as_rule
from torchonline.policies.ties import untied
from torchonline.regression.arguments import as_actions, checked_responses
from torchonline.regression.blocks import learn_by_step
from torchonline.regression.estimator import Estimator

# Estimator methods whose results are computed here in another way.
OF_ROWS = ("predictor", "width", "forward", "estimate_and_bonus", "_squared_width")
# After a block of at least d / 8 rounds, computing exact squares costs less than updating them each round.
BLOCK = 8


class FixedArms(WithArmIds, PolicyLearner):
    r"""A policy for fixed arms, whose widths are updated in each step.

    A round::

        k = fixed.select()  # the id of an arm
        fixed.step(None, k, reward)

    Each arm has a permanent id: the first K arms have 0 to K - 1, and :meth:`add_arms` returns the ids of new arms. ``select``
    returns ids, and ``step`` takes them and refuses rewards of removed arms. Scores, means, probabilities and masks have an
    entry for each arm, in the order of :attr:`action_ids`. Until an arm is removed, an arm's id is its position in that order.

    The choices equal those of ``policy.select(arms)``, up to rounding. The squares :math:`x_k^\top Mx_k` of all arms are kept,
    where M is the estimator's ``width_matrix()``. A step changes M only within the span of a few vectors, such as
    :math:`V^{-1}x`. With an orthonormal basis Q of this span,

    .. math:: x_k^\top Mx_k \leftarrow x_k^\top Mx_k + (Q^\top x_k)^\top C\,(Q^\top x_k),\qquad
              C = Q^\top(M_\text{new} - M_\text{old})\,Q.

    Two things keep the squares right (proofs: docs/fixed_arms.md):

    - A step compares the new :math:`Mz`, for a random vector z, with its prediction from the old one. If they differ by more
      than rounding, M was changed by something other than this step: a restart, an estimator of another kind, or a direct step,
      load or reset of the estimator. Then all squares are recomputed. A decision makes the same comparison if M was written
      since the last comparison.
    - In every eighth round, the squares of the next K / d arms are recomputed. When M has shrunk to an eighth, all squares are
      recomputed.

    Cost: O(K d) for a decision and O(K d + d^2) for a step; without :class:`FixedArms`, a decision costs O(K d^2). Recomputing
    all squares costs O(K d^2). If the estimator's M changes outside its ``moves_of_width``, every step recomputes them.

    Args:
        policy: a :class:`UCB`, :class:`Greedy`, :class:`EpsilonGreedy`, :class:`SquareCB` or :class:`Softmax`, or your own rule
            with ``scores_of``; or an estimator, for :class:`UCB`. It is not copied.
        arms: features of the K arms, ``(K, d)``; or ``(*B, K, d)``, if each learner of a batch has its own arms. A copy is
            kept.
        names: of the K arms, distinct texts of 1 to 200 characters; None for no names. What takes an id then also takes a name.

    Shape:
        - inputs are None; ``arms``, as above; scores, ``(*B, K)``; action and reward, ``(*B)``, or ``(*B, n)`` for n rounds.
        - ``squares``, ``(*B, K)``; ``image``, Mz, ``(*B, d)``; ``largest_image``, its largest component since all squares were
          last recomputed, ``(*B)``. They are None if the policy uses no widths.
        - After a removal, ``ids``, ``(K)``, and ``ids_given``, ``()``: the ids, and the next id.
        - With names, ``name_bytes``, uint8: the names by id, as JSON.

    The state dict holds all of these. Squares recomputed from the estimator would differ in their last bits, which may break a
    tie. With the saved squares, a resumed run continues bit for bit. A load takes the arms of the saved policy; their number
    must be the same.

    Example:
        >>> fixed = FixedArms(OFUL(2), [[1.0, 0.0], [0.8, 0.8], [0.0, 1.0]])
        >>> for _ in range(100):
        ...     k = fixed.select()
        ...     fixed.step(None, k, 1.0 if k == 1 else 0.0)
        >>> fixed.select(), fixed.select(mask=[False, False, True])
        (tensor(1), tensor(2))
    """

    if TYPE_CHECKING:  # an annotation of None would hide the buffers from TorchScript
        squares: Tensor | None
        image: Tensor | None
        largest_image: Tensor | None

    arms: Tensor
    square_lengths: Tensor
    probe: Tensor

    has_arm_inputs, learns_rows, takes_inputs = False, False, False

    def __init__(self, policy: Rule | Estimator, arms: ArrayLike, *, names: Sequence[str] | None = None) -> None:
        chosen = as_rule("policy", policy)
        check_scores(chosen)
        one = chosen.estimator
        super().__init__(chosen, one.batch_shape, one.dim)
        # NumPy computes products with vectors faster at any size.
        self.is_small |= one.runs_on_arrays and not one.batch_shape
        self.__dict__["_known"] = None
        self.register_buffer("arms", self._checked_arms("arms", arms))
        self._create_buffers()
        self.unchanging = (*self.unchanging, "arms")  # by steps
        self._create_ids(None if names is None else self._names_for("names", names, self._arm_count()))
        with torch.no_grad(), self._exactly(self.arms):
            self._renew_()

    # TorchScript does not compile properties.
    __jit_unused_properties__ = ("action_ids", "action_names", "ids_so_far")

    def _arm_count(self) -> int:
        return self.arms.size(-2)

    @delegated
    def rounds(self) -> Tensor:  # type: ignore[override]
        """The estimator's count of rounds, ``(*B)``. Python only."""
        return self.policy.estimator.rounds

    def extra_repr(self) -> str:
        named = "" if (names := self.action_names) is None else f" ({listed(names)})"
        return f"arms={self.arms.size(-2)}{named}, dim={self.dim}, batch_shape={self.batch_shape}"

    def _initial_state(self) -> dict[str, Tensor | None]:
        if not self.policy.uses_widths:
            return dict.fromkeys(("squares", "image", "largest_image"))
        sizes: dict[str, tuple[int, ...]] = {
            "squares": (self.arms.size(-2),),
            "image": (self.dim,),
            "largest_image": (),
        }
        return {name: torch.zeros(size, dtype=torch.float64) for name, size in sizes.items()}

    def _tables(self) -> dict[str, Tensor]:
        probe = torch.from_numpy(np.random.default_rng(0).standard_normal(self.dim))
        return {"probe": probe, "square_lengths": row_dots(self.arms, self.arms)}

    def _given(self, inputs: Tensor | None) -> Tensor:
        return self.arms

    def _untied(self, scores: Tensor, inputs: Tensor) -> Tensor:
        if self.is_random:
            return scores
        # As if the arms were given with the decision.
        return untied(scores, self.arms.expand(list(scores.shape[:-1]) + list(self.arms.shape[-2:])))

    def _count(self, inputs: Tensor) -> int:
        return self.arms.size(-2)

    def _clock(self) -> Tensor:
        return self.policy.estimator.rounds

    def _accepts(self, x: Tensor, place: Tensor, reward: Tensor, noise_scale: Tensor | None) -> Tensor:
        return self.policy.estimator._accepts(x, reward, noise_scale)

    def _scores(self, features: Tensor) -> Tensor:
        return self._scores_at(self._right_squares())

    def _mixture_in_python(self, x: Tensor, mask: Tensor | None) -> Tensor:
        return self.distribution(masked(torch.as_tensor(self._scores_of_arms()), mask), self._clock())

    @in_python(_mixture_in_python)
    def _mixture(self, x: Tensor, mask: Tensor | None) -> Tensor:
        return self.distribution(masked(self._scores(x), mask), self._clock())

    def _can_score(self, inputs: Tensor, x: Tensor) -> Tensor:
        return torch.ones_like(self._clock(), dtype=torch.bool)

    def _chosen(self, inputs: Tensor, place: Tensor) -> Tensor:
        if place.dim() == self.batch_dims:
            return rows_of(self.arms, place.unsqueeze(-1)).squeeze(-2)
        return rows_of(self.arms, place)

    def _learn_round(self, x: Tensor, place: Tensor, reward: Tensor, noise_scale: Tensor) -> None:
        """Learn a round of each learner, and update the squares."""
        estimator = self.policy.estimator
        if self.squares is None:
            estimator._learn_round(x, reward, noise_scale)
        else:
            basis = orthonormal(estimator.moves_of_width(x))
            before = [matvec(estimator.width_matrix(), q) for q in basis]
            estimator._learn_round(x, reward, noise_scale)
            self._follow_(basis, before)

    def _learn_rounds(
        self,
        x: Tensor,
        place: Tensor,
        reward: Tensor,
        noise_scale: Tensor | None,
        block_size: int | None,
        mask: Tensor | None,
    ) -> None:
        self.step(None, place, reward, noise_scale=noise_scale)

    def _follow_(self, basis: list[Tensor], before: list[Tensor]) -> None:
        """Update the squares after a step, given the columns of Q and of the old MQ."""
        squares, image, largest = self.squares, self.image, self.largest_image
        if squares is not None and image is not None and largest is not None:
            rounds, matrix = self.policy.estimator.rounds, self.policy.estimator.width_matrix()
            new, expected = moved(squares, image, self.arms, self.probe, matrix, basis, before)
            seen = rows_times(matrix, self.probe)
            size = norms(seen, math.inf)[..., 0]
            # Beside a much smaller M, the earlier rounding errors would be too large.
            is_off = are_off(seen, expected) | (8.0 * size < largest)
            new = squares_or_exact(is_off, new, self.arms, matrix, self.validate)
            if is_time_to_refine(rounds):
                new = with_some_exact(new, self.arms, matrix, rounds)
            assign_(squares, new)
            assign_(image, seen)
            assign_(largest, where(is_off, size, maximum(size, number(largest))))

    def _renew_(self) -> None:
        """Recompute all squares."""
        squares, image, largest = self.squares, self.image, self.largest_image
        if squares is not None and image is not None and largest is not None:
            matrix = self.policy.estimator.width_matrix()
            assign_(squares, exact_squares(self.arms, matrix))
            assign_(image, rows_times(matrix, self.probe))
            assign_(largest, norms(image, math.inf)[..., 0])

    def _right_squares(self) -> Tensor | None:
        """Return the kept squares, or exact ones if M was changed elsewhere."""
        squares, image = self.squares, self.image
        if squares is None or image is None:
            return None
        matrix = self.policy.estimator.width_matrix()
        is_off = are_off(rows_times(matrix, self.probe), image)
        return squares_or_exact(is_off, squares, self.arms, matrix, self.validate)

    def _scores_at(self, squares: Tensor | None) -> Tensor:
        """Return the scores for given squares: ``(*B, K)`` twice."""
        estimator = self.policy.estimator
        theta, offset = estimator.affine()
        predictor = matvec(self.arms, theta)
        if offset is not None:
            predictor = predictor + along(offset, predictor)
        if squares is None:  # the policy uses no widths
            return self.policy.scores_of(predictor, predictor)
        allowance = estimator.width_allowance()
        if allowance is not None:
            squares = squares + along(allowance, squares) * self.square_lengths
        return self.policy.scores_of(predictor, sqrt(at_least(squares, 1e-38)))

    # TorchScript does not compile the methods below.

    def predict(self, inputs: None = None) -> Tensor:  # type: ignore[override]
        """Return the estimated mean reward of each arm, ``(*B, K)``. Changes no state.

        ``fixed()`` returns scores instead, by which arms are chosen. Python only.
        """
        with torch.no_grad():
            return super().predict(inputs)

    def _means(self, x: Tensor) -> Tensor:
        return self.policy._means(self.arms.expand(*self.batch_shape, *self.arms.shape[-2:]))

    def _bounds(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.policy._bounds(self.arms.expand(*self.batch_shape, *self.arms.shape[-2:]))

    @in_turn
    def add_arms(self, features: ArrayLike, *, names: Sequence[str] | None = None) -> list[int]:
        """Add arms at the end, and return their ids.

        The other arms keep their squares. Cost: O(d^2) for each new arm.

        Args:
            features: ``(n, d)``, or ``(*B, n, d)`` if each learner of a batch has its own arms.
            names: of the n arms, if the other arms have names. A name is never given twice, not even after a removal.

        Raises:
            TypeError, ValueError: an argument is invalid. Nothing has changed.
        """
        rows = self._checked_arms("features", features)
        if rows.dim() != self.arms.dim():
            wanted = shape_text((*self.arms.shape[:-2], "n", self.dim))
            raise ValueError(f"features: expected shape {wanted}, got {shape_text(rows.shape)}")
        count = rows.size(-2)
        found = None if names is None else self._names_for("names", names, count)
        self._check_new_names("names", count, found)
        self._rearrange(range(self.arms.size(-2)), rows, found)
        return self.action_ids[-rows.size(-2) :]

    @in_turn
    def remove_arms(self, ids: Iterable[int] | Iterable[str]) -> None:
        """Remove arms. The other arms keep their ids and squares.

        Scores and masks lose the entries of removed arms. :meth:`step` refuses a late reward of a removed arm.

        Args:
            ids: ids or names of the arms to remove, without repetition and not all of them. ``fixed.action_ids[k]`` is the id of
                the arm whose score is the k-th.

        Raises:
            TypeError, ValueError: ``ids`` is invalid. Nothing has changed.
        """
        self._rearrange(self._staying("ids", ids), self.arms.narrow(-2, 0, 0))

    def _params(self) -> dict[str, Any]:
        return super()._params() | {"names": self.action_names}

    def reset(self) -> None:
        """Reset the estimator to its state before the first round, in place."""
        with self._lock, self._owners()[1]._lock:
            super().reset()
            self._owners()[1].__dict__["_is_torn"] = False

    def _reset(self) -> None:
        super()._reset()
        self._renew_()

    def _learn_last(self, x: Tensor, place: Tensor, reward: Tensor, noise_scale: Tensor, is_last: bool) -> None:
        """Learn a round of a block, and recompute the squares after the last one."""
        self.policy.estimator._learn_round(x, reward, noise_scale)
        if is_last:
            self._renew_()

    def _scores_in_python(self, inputs: Any) -> Tensor:
        self._checked(inputs, None)
        return self._scores_of_arms_in_turn()

    def _scores_now(self, inputs: Any, mask: Any) -> tuple[Any, Tensor | None]:
        available = self._checked(inputs, mask)[1]
        return self._scores_of_arms(), available

    @in_turn
    def _scores_of_arms_in_turn(self) -> Tensor:
        return torch.as_tensor(self._scores_of_arms())

    def _scores_of_arms(self) -> Any:
        """Return the scores, as an array if the rule allows NumPy to compute them."""
        with torch.no_grad(), self._exactly(self.arms):
            squares = self._known_squares()
            view = self._small_view() if self._is_on_arrays() else None
            if view is None:
                return self._scores_at(squares)
            return np.asarray(view.run(view.learner._scores_at, None if squares is None else squares.numpy()))

    def _learn_on_arrays(self, view: NumpyView, rounds: list[tuple[Any, ...]]) -> None:
        is_block = len(rounds) > 1 and BLOCK * len(rounds) >= self.dim
        learn = view.learner._learn_last if is_block else view.learner._learn_round
        self._run(view, learn, with_last(rounds) if is_block else rounds)

    @in_turn
    def _learn_decisions(self, inputs: Any, action: Any, reward: Any, noise_scale: Any) -> None:
        self.__dict__["_known"] = None
        try:
            super()._learn_decisions(inputs, action, reward, noise_scale)
        finally:
            # An interrupted step tears the estimator too.
            self._owners()[1].__dict__["_is_torn"] |= self._is_torn
        self._remember(self._owners()[1].width_matrix(), self.squares)

    def _learn_log_of_decisions(
        self, inputs: Any, action: Any, reward: Any, noise_scale: Any, block_size: Any, mask: Any
    ) -> None:
        self._check_none(inputs, self._call("learn"))
        learn_by_step(self, block_size, mask, inputs, action, reward, noise_scale=noise_scale)

    def _check_none(self, inputs: Any, hint: str) -> None:
        """Refuse inputs: fixed arms have none."""
        if inputs is not None:
            raise TypeError(f"inputs: expected None, because the arms are fixed, got {type(inputs).__name__}; {hint}")

    def _checked(self, inputs: Any, mask: Any) -> tuple[Tensor, Tensor | None]:
        self._check_none(inputs, "pass a mask by name: mask=...")
        check_state_dtype(self.arms.dtype)
        if mask is not None:
            mask = check_mask("mask", mask, (*self.batch_shape, self.arms.size(-2)), self.arms, self.validate)
        return self.arms, mask

    def _call(self, name: str = "step") -> str:
        return f"call {name}(None, action, reward)"

    def _checked_rounds(
        self, inputs: Any, action: Any, reward: Any, noise_scale: Any
    ) -> tuple[Tensor, Any, Any, Tensor | None, bool]:
        self._check_none(inputs, self._call())
        arms, dims, action = self.arms, self.batch_dims, self._placed(action)
        one = integer_at_hand(action) if not dims and arms.is_cpu else None
        index = action if one is not None else as_indices("action", action, arms.device)
        shape = torch.Size() if one is not None else index.shape
        if shape[:dims] != self.batch_shape or len(shape) > dims + 1:
            wanted = f"{shape_text(self.batch_shape)} or {shape_text((*self.batch_shape, 'n'))}"
            raise ValueError(f"action: expected shape {wanted}, got {shape_text(shape)}")
        if one is None or not 0 <= one < arms.size(-2):
            index = as_actions(index, shape, arms.device, arms.size(-2), self.validate or arms.is_cpu)
            one = None
        reward, noise_scale = checked_responses("reward", reward, noise_scale, arms, shape)
        x = arms[one] if one is not None else self._chosen(arms, index)
        return x, index if one is None else one, reward, noise_scale, len(shape) == dims

    def _small_view(self) -> Any:
        """Return the NumPy view if the learner is small and on the CPU; or None."""
        return self.view_for(self.arms) if self.is_small else None

    def _known_squares(self) -> Tensor | None:
        """Return :meth:`_right_squares`, cached until M is written."""
        if self.squares is None:
            return None
        known, matrix = self.__dict__["_known"], self._owners()[1].width_matrix()
        if known is not None and known.is_of(matrix):
            return known.squares
        squares = self._right_squares()
        self._remember(matrix, squares)
        return squares

    def _remember(self, matrix: Tensor, squares: Tensor | None) -> None:
        """Cache the squares of the present M."""
        is_counted = squares is not None and type(matrix) in PLAIN and is_readable(matrix) and not matrix.is_inference()
        self.__dict__["_known"] = _Known(matrix, squares) if is_counted else None

    def _checked_arms(self, name: str, arms: Any) -> Tensor:
        """Return a copy of the features of arms, or raise."""
        rows = check_tensor(name, arms, self._state())
        is_own = self.batch_dims > 0 and rows.dim() > 2
        lead = rows.shape[:-2] if rows.dim() > 1 else None
        if lead != (self.batch_shape if is_own else ()) or rows.size(-1) != self.dim or rows.size(-2) == 0:
            own = f" or {shape_text((*self.batch_shape, 'K', self.dim))}" if self.batch_dims else ""
            wanted = f"{shape_text(('K', self.dim))}{own} with K > 0"
            raise ValueError(f"{name}: expected shape {wanted}, got {shape_text(rows.shape)}")
        if self.validate and is_readable(rows):
            check_values(name, rows)
        return rows.detach().clone(memory_format=torch.contiguous_format)

    def _names_for(self, name: str, names: Any, count: int) -> list[str]:
        """Return the names of ``count`` arms as a list, or raise."""
        found = checked_names(name, names)
        if len(found) != count:
            raise ValueError(f"{name}: expected {count} names, one for each arm, got {len(found)}")
        return found

    def _rearrange(self, kept: Iterable[int], added: Tensor, names: list[str] | None = None) -> None:
        """Replace the arms by the kept arms and ``added`` ones."""
        places = list(kept)
        old = torch.tensor(places, device=self.arms.device)
        with torch.no_grad(), self._exactly(self.arms):
            arms = torch.cat([self.arms.index_select(-2, old), added], -2)
            buffers: dict[str, Any] = {"arms": arms, "square_lengths": row_dots(arms, arms)}
            squares = self._right_squares()
            if squares is not None:
                matrix = self._owners()[1].width_matrix()
                squares = torch.cat([squares.index_select(-1, old), exact_squares(added, matrix)], -1)
                buffers |= {"squares": squares, "image": rows_times(matrix, self.probe)}
            buffers |= self._ids_after(places, added.size(-2), names)
        # In this order, an exception in between leaves no view of the old arms.
        self.__dict__.update(_known=None, _view=None)
        self._buffers.update({name: writable(buffer) for name, buffer in buffers.items()})

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *arguments: Any) -> None:
        with self._lock, self._owners()[1]._lock:
            super()._load_from_state_dict(state_dict, prefix, *arguments)

    def _load_problems(self, state_dict: Mapping[str, Any], prefix: str) -> list[str]:
        problems = super()._load_problems(state_dict, prefix)
        arms = state_dict.get(f"{prefix}arms")
        if not problems and arms is not None and is_readable(arms):
            if not bool(torch.isfinite(arms).all()):
                problems.append(f"{prefix}arms: expected finite values, got infinity")
        return problems

    def _refuse_change(self, cls: Any, name: str, value: Any) -> None:
        if name in self._buffers and "constants" in self._buffers:
            raise AttributeError(f"{name}: expected no assignment, got one; use add_arms and remove_arms")
        super()._refuse_change(cls, name, value)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.__dict__["_known"] = None


class _Known:
    """Cached squares, valid until M is written."""

    def __init__(self, matrix: Tensor, squares: Any) -> None:
        self.matrix, self.version, self.address, self.squares = matrix, matrix._version, matrix.data_ptr(), squares

    def is_of(self, matrix: Tensor) -> bool:
        """Return whether ``matrix`` is the same M, not written since."""
        return matrix is self.matrix and matrix._version == self.version and matrix.data_ptr() == self.address

    def __reduce__(self) -> tuple[Any, ...]:  # copies and files drop the cache
        return (type(None), ())


def check_scores(policy: Rule) -> None:
    """Refuse a rule whose scores depend on more than predictors and widths."""
    cls, one = type(policy), type(policy.estimator)
    if cls.scores_of is Rule.scores_of or cls._scores is not Rule._scores or "_scores" in vars(policy):
        wanted = "one that scores arms by scores_of(), such as UCB, Greedy or EpsilonGreedy"
        raise TypeError(f"policy: expected {wanted}, got {cls.__name__}")
    own = [name for name in OF_ROWS if getattr(one, name) is not getattr(Estimator, name)]
    if own:
        wanted = "an estimator that takes these methods from Estimator"
        raise TypeError(f"policy: expected {wanted}, got {one.__name__} with its own {', '.join(own)}")


def with_last(rounds: list[Any]) -> list[Any]:
    """Append to each round's arguments whether it is the last round."""
    return [(*arguments, i == len(rounds) - 1) for i, arguments in enumerate(rounds)]
