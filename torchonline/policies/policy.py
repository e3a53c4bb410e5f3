"""Base class of the policies."""

import inspect
import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.compiler import is_dynamo_compiling

from torchonline.core.action_names import refuse_names
from torchonline.core.all_or_nothing import torn_error
from torchonline.core.backend import (
    MISSING,
    SMALL_PRODUCT,
    as_array,
    autocasts,
    exactly,
    in_python,
    is_readable,
    with_body,
    with_keywords,
)
from torchonline.core.checks import (
    check_array,
    check_values,
    is_ordinary,
    passes,
    positive_integer,
    refusal,
    shape_text,
)
from torchonline.core.citations import Citable
from torchonline.core.delegated import WithDelegated
from torchonline.core.inputs import ArrayLike, check_mask, check_tensor, integer_at_hand, plain_array, plain_number
from torchonline.core.learner import Learner
from torchonline.core.ops import in_type_of, of_chosen
from torchonline.core.options import is_ours
from torchonline.core.params import WithParams
from torchonline.core.sparse import is_sparse
from torchonline.core.views import NumpyView
from torchonline.policies.arm_ids import found_places
from torchonline.policies.open_decisions import close_decisions, opened_decisions
from torchonline.policies.sparse_inputs import answers_to_decisions, has_own_columns, learn_sparse_decisions
from torchonline.policies.ties import best_of_arrays, has_tie, untied
from torchonline.policies.tiles import in_tiles, rows_of_tile, scores_in_tiles
from torchonline.regression.arguments import (
    as_actions,
    checked_responses,
    depth,
    learn_on_tensors,
    places_of_arrays,
    rounds_of_arrays,
    with_places,
)
from torchonline.regression.blocks import Log, has_own_step, learn_blocks, learn_by_step
from torchonline.regression.estimator import Estimator
from torchonline.regression.sparse_rows import check_block_size

if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault

    E = TypeVarWithDefault("E", bound=Estimator, default=Estimator, covariant=True)
else:
    E = TypeVar("E", bound=Estimator, covariant=True)
F = TypeVar("F", bound=Callable[..., Any])

IN_TURN = """\
if self.is_view or _is_traced():
    return _method({all})
learner, estimator = self._owners()
if learner is not estimator:
    with learner._lock:
        if learner._is_torn:
            raise _torn(learner)
        with estimator._lock:
            if estimator._is_torn:
                raise _torn(estimator)
            return _method({all})
with estimator._lock:
    if estimator._is_torn:
        raise _torn(estimator)
    return _method({all})"""


def in_turn(method: F) -> F:
    """Decorate a policy's method so that threads run it one at a time."""
    return with_body(method, IN_TURN, _method=method, _is_traced=is_dynamo_compiling, _torn=torn_error)


class Policy(WithParams, Citable, WithDelegated, Generic[E]):
    r"""Base of all policies.

    A round::

        k = policy.select(inputs)
        policy.step(inputs, k, reward)

    ``inputs`` depend on the policy. If arms have features, they are the features of all arms, ``(*B, ..., K, d)``, and K may
    vary. If each arm has a model, they are the context, ``(*B, ..., d)``. If the arms are fixed, they are None. Under an
    encoder, they are the encoder's inputs.

    A subclass implements hooks, which TorchScript compiles too: ``_features`` of the inputs, ``_scores`` of the features,
    :meth:`choice` and :meth:`distribution` of the scores, the ``_chosen`` rows to learn from, and ``_learn_round``.
    """

    if TYPE_CHECKING:  # TorchScript does not know these annotations
        estimator: E
        dim: int
        batch_shape: tuple[int, ...]
        rounds: Tensor
        learner: Learner
        _rule: Any

        def __call__(self, inputs: ArrayLike | None = None) -> Tensor: ...

    # True in the stand-ins that compute on NumPy arrays.
    is_view = False
    # The number of trailing dimensions of a decision's inputs: (K, d), or (d) of a context.
    item_dims = 2
    # Whether each arm has its own inputs. False for one context for all arms, and for fixed arms.
    has_arm_inputs = True
    # Whether a round is learnt only from the chosen arm's inputs.
    learns_rows = True
    # Whether a decision has inputs, and whether an encoder reads them.
    takes_inputs, has_encoder = True, False
    # Whether `learn` takes a mask, which says for each learner of a batch which rounds it learns.
    takes_mask = True
    # Whether choices are drawn from `distribution`. If not, the highest score is chosen.
    is_random = False
    # Whether small batches of learners learn on NumPy views too; and if not, whether each of the learners does.
    has_batch_views, learns_alone = True, False
    # Number of draws of random scores that `probabilities` averages over.
    draws = 1
    # Whether a subclass overrides `step` but not `learn`, so that `learn` must call its `step`.
    has_own_step = False
    # Returns a stand-in with some columns of the features, for sparse inputs; None if there is none.
    _in_columns: Any = None
    # Whether `open` and `close` learn what `step` does.
    can_open = False
    # Why this policy was recommended, for its repr.
    note = ""
    __constants__: tuple[str, ...] = ("item_dims", "is_random", "draws", "takes_mask")
    # TorchScript does not compile properties.
    __jit_unused_properties__: tuple[str, ...] = ("action_ids", "action_names")

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.has_own_step = has_own_step(cls)
        if (
            not cls.__dict__.keys().isdisjoint(("step", "_learn_round", "_learn_arm"))
            and "can_open" not in cls.__dict__
        ):
            cls.can_open = False

    # Hooks. TorchScript compiles them, and NumPy views run `_features` and `_scores`.

    def _read(self, inputs: Tensor) -> Tensor:
        """Return the encoded inputs: by default, the inputs."""
        return inputs

    def _features(self, x: Tensor) -> Tensor:
        """Return the features to score: by default, the encoded inputs."""
        return x

    def _scores(self, features: Tensor) -> Tensor:
        """Return each arm's score, ``(*B, ..., K)``, from which arms are chosen."""
        raise NotImplementedError

    def choice(self, scores: Tensor, rounds: Tensor) -> Tensor:
        """Return the position of the chosen arm: ``(*B, ..., K)`` to ``(*B, ...)``.

        The scores of unavailable arms are -inf. ``rounds``, ``(*B)``, counts the rounds before the decision.
        """
        raise NotImplementedError

    def distribution(self, scores: Tensor, rounds: Tensor) -> Tensor:
        """Return the probability of each arm, ``(*B, ..., K)``; see :meth:`choice`."""
        raise NotImplementedError

    def _chosen(self, inputs: Tensor, place: Tensor) -> Tensor:
        """Return the rows to learn from: by default, the chosen arm's features."""
        return in_type_of(of_chosen(inputs, place), self._like())

    def _learn_round(self, x: Tensor, place: Tensor, reward: Tensor, noise_scale: Tensor) -> None:
        """Learn from a round of each learner: ``(*B, d)``, and ``(*B)`` three times."""
        raise NotImplementedError

    def _learn_rounds(
        self,
        x: Tensor,
        place: Tensor,
        reward: Tensor,
        noise_scale: Tensor | None,
        block_size: int | None,
        mask: Tensor | None,
    ) -> None:
        """Learn from many rounds, in blocks, in TorchScript."""
        raise NotImplementedError

    def _count(self, inputs: Tensor) -> int:
        """Return K, the number of arms of a decision."""
        return inputs.size(-2)

    def _given(self, inputs: Tensor | None) -> Tensor:
        """Return the inputs. Only fixed arms allow None."""
        if inputs is None:
            raise TypeError("inputs: expected a tensor, got None")
        return inputs

    def _named(self, place: Tensor) -> Tensor:
        """Return the actions at given positions: see :class:`WithArmIds`."""
        return place

    def _named_if_any(self, place: Tensor) -> Tensor:
        """Return the actions at given positions; -1, for no arm, stays."""
        return place

    def _placed_in_python(self, action: Any) -> Any:
        return action if isinstance(action, (int, Tensor)) else self._ids_of("action", action)

    @in_python(_placed_in_python)
    def _placed(self, action: Tensor) -> Tensor:
        """Return the positions of actions: see :class:`WithArmIds`."""
        return action

    def _names_now(self) -> list[str]:
        """Return the names of the arms, or none: see :class:`WithArmIds`."""
        names: list[str] = []
        return names

    def _name_of_each(self, action: Tensor) -> list[str]:
        """Return the names of actions, or "" for each: see :class:`WithArmIds`."""
        return [""] * action.numel()

    def _found(self, action: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """Return which actions belong to ``count`` arms, and valid positions."""
        return found_places(action, count)

    def _like(self) -> Tensor:
        """Return a tensor with the dtype of the statistics."""
        raise NotImplementedError

    def _clock(self) -> Tensor:
        """Return the number of rounds learnt from, ``(*B)``."""
        raise NotImplementedError

    def _dims(self) -> int:
        """Return the number of dimensions of ``*B``."""
        raise NotImplementedError

    def _as_round(self, x: Tensor, place: Tensor) -> tuple[Tensor, Tensor]:
        """Return inputs and actions with which :meth:`step` learns the chosen rows ``x``."""
        return x.unsqueeze(-2), torch.zeros_like(place)

    def _check_mask_of_log(self, mask: Tensor | None) -> None:
        """Refuse a mask of rounds in TorchScript if :meth:`learn` takes none."""
        if mask is not None and not self.takes_mask:
            raise TypeError("mask: expected None, because this policy's learn() takes no mask, got a mask")

    def _can_score(self, inputs: Tensor, x: Tensor) -> Tensor:
        """Return whether :meth:`select` takes these inputs, ``(*B, ...)``."""
        return passes(in_type_of(inputs, self._like())).flatten(inputs.dim() - self.item_dims).all(-1)

    def _own_scale(self, reward: Tensor) -> Tensor:
        """Return the constructor's noise scale, in the shape of the rewards."""
        raise NotImplementedError

    def _accepts(self, x: Tensor, place: Tensor, reward: Tensor, noise_scale: Tensor | None) -> Tensor:
        """Return whether :meth:`step` takes such rounds. For files, which cannot raise."""
        raise NotImplementedError

    # The protocol, once for TorchScript and once for Python.

    @in_turn
    def _scores_in_python(self, inputs: ArrayLike | None) -> Tensor:
        x = self._checked(inputs, None)[0]
        with self._exactly(x):
            return self._in_tiles(lambda x, mask: self._scored(x), x)

    def _forward_in_python(self, inputs: ArrayLike | None = None) -> Tensor:
        if is_sparse(inputs):
            return self._of_sparse(inputs, None, Policy.forward, lambda p, x, mask, given: p._scores_in_python(x))
        policy, x = self._decider(inputs)
        return policy._scores_in_python(x)

    @in_python(_forward_in_python)
    def forward(self, inputs: Tensor | None = None) -> Tensor:
        """Return each arm's score, ``(*B, ..., K)``, from which arms are chosen.

        A score may include a bonus for uncertainty or a random draw. With a link it may be a predictor instead of a mean.
        Scores are differentiable in the inputs.
        """
        return self._scored(self._read(self._given(inputs)))

    def _select_in_python(self, inputs: ArrayLike | None = None, mask: ArrayLike | None = None) -> Tensor:
        if is_sparse(inputs):
            return self._of_sparse(inputs, mask, Policy.select, Policy._choice_now, True)
        if not self.has_encoder:
            return self._choice_now(inputs, mask)
        policy, x = self._decider(inputs, False)
        return policy._choice_now(x, mask, self._given_tensor(inputs))

    @torch.jit.export
    @in_python(_select_in_python)
    def select(self, inputs: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        """Return the chosen arm of each decision: int64, ``(*B, ...)``.

        The arm is an index, or an id if arms may come and go. Changes no state. A deterministic policy breaks ties (equal scores,
        up to rounding) by a hash of the inputs and the arm. So equal inputs in the same state get the same arm, but decisions on
        different inputs do not all get the first of the tied arms. :meth:`probabilities` gives tied arms equal probabilities.

        Args:
            inputs: of one decision, or of many made from the same state; see the class.
            mask: True where an arm is available, ``(*B, ..., K)``, or ``(K)`` for all decisions. The features of an unavailable
                arm must be finite too.

        Raises:
            TypeError: ``inputs`` does not hold real numbers or is a tensor of integers, or ``mask`` does not hold booleans.
            ValueError: a shape, device or value is wrong, or a decision has no available arm.
        """
        with torch.no_grad():
            given = self._given(inputs).detach()
            scores = self._untied(masked(self._scored(self._read(given)), mask), given)
            return self._named(self.choice(scores, self._clock()))

    def _probabilities_in_python(self, inputs: ArrayLike | None = None, mask: ArrayLike | None = None) -> Tensor:
        if is_sparse(inputs):
            return self._of_sparse(
                inputs, mask, Policy.probabilities, lambda p, x, mask, given: p._probabilities_now(x, mask)
            )
        if not self.has_encoder:
            return self._probabilities_now(inputs, mask)
        policy, x = self._decider(inputs, False)
        return policy.probabilities(x, mask)

    @torch.jit.export
    @in_python(_probabilities_in_python)
    def probabilities(self, inputs: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        """Return the probability with which each arm is chosen, ``(*B, ..., K)``.

        Changes no state. A deterministic policy has probabilities of 0 and 1, and equal ones for tied arms. :meth:`select` breaks
        ties by a hash, not by a draw, so log the propensities of :meth:`select_with_probability`. If the scores are random
        (:class:`ThompsonSampling`), the probabilities are estimates. Arguments and errors are as in :meth:`select`.
        """
        with torch.no_grad():
            return self._mixture(self._read(self._given(inputs).detach()), mask)

    def _draw_in_python(self, inputs: ArrayLike | None = None, mask: ArrayLike | None = None) -> tuple[Tensor, Tensor]:
        place, probability = drawn_with_probability(self.probabilities(inputs, mask))
        return self._named(place), probability

    @torch.jit.export
    @in_python(_draw_in_python)
    def select_with_probability(
        self, inputs: Tensor | None = None, mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Choose an arm in each decision, and return its propensity for the log.

        Changes no state. The arm, int64 ``(*B, ...)``, is drawn from :meth:`probabilities`. So the propensity, ``(*B, ...)``, is
        the exact probability of this draw, even if :meth:`probabilities` are estimates, and inverse propensity weighting is
        unbiased. Arguments and errors are as in :meth:`select`.
        """
        place, probability = drawn_with_probability(self.probabilities(inputs, mask))
        return self._named(place), probability

    def _step_in_python(
        self,
        inputs: ArrayLike | None,
        action: ArrayLike = MISSING,
        reward: ArrayLike = MISSING,
        *,
        noise_scale: Any = None,
    ) -> None:
        if action is MISSING or reward is MISSING:
            raise self._missing("step", action is MISSING)
        if is_sparse(inputs):
            self._learn_sparse(inputs, action, reward, noise_scale)
            return
        self._learn_decisions(inputs, action, reward, noise_scale)

    @torch.jit.export
    @in_python(_step_in_python)
    def step(self, inputs: Tensor | None, action: Tensor, reward: Tensor, noise_scale: Tensor | None = None) -> None:
        """Learn from the rewards of decisions, in order.

        Non-tensor arguments are converted once, without rounding. If you kept only the chosen arm's features, pass them as the
        only arm: ``policy.step(x.unsqueeze(-2), 0, reward)``.

        Args:
            inputs: of the decision, as :meth:`select` takes them; or of n rounds, with a dimension n after ``*B``. Only the
                learnt part, such as the chosen arm's row, is checked for NaN and infinity.
            action: the chosen arm, as :meth:`select` returns it, ``(*B)`` or ``(*B, n)``; an integer, a list or an int64 tensor.
                If the arms have names, also a name, or names in a list, an array or a column of a frame.
            reward: shaped like ``action``, in the units of the estimator's ``noise_scale``.
            noise_scale: see :meth:`Estimator.step`; shaped like ``action``.

        Raises:
            TypeError: an argument does not hold real numbers, or ``action`` does not hold integers.
            ValueError: a shape, device or value is wrong, an arm does not exist, or a round outweighs the others beyond what
                the state's dtype can resolve. No buffer has changed.
        """
        with torch.no_grad():
            given, place, rows = self._given(inputs), self._placed(action), self._dims()
            x, like = self._chosen(given, place).detach(), self._like()
            reward = reward.detach().to(like.dtype)
            scale = self._own_scale(reward) if noise_scale is None else noise_scale.detach().to(like.dtype)
            if action.dim() == rows:
                self._learn_round(x, place, reward, scale)
            else:
                for i in range(action.size(rows)):
                    self._learn_round(
                        x.select(rows, i), place.select(rows, i), reward.select(rows, i), scale.select(rows, i)
                    )

    def _learn_in_python(
        self,
        inputs: ArrayLike | None,
        action: ArrayLike = MISSING,
        reward: ArrayLike = MISSING,
        *,
        noise_scale: ArrayLike | None = None,
        block_size: int | None = None,
        mask: ArrayLike | None = None,
    ) -> None:
        if action is MISSING or reward is MISSING:
            raise self._missing("learn", action is MISSING)
        if mask is not None and not self.takes_mask:
            raise TypeError(
                f"mask: expected None for {type(self).__name__}, which cannot leave out rounds, got a mask; select the rounds "
                "first: learn(inputs[mask], action[mask], reward[mask])"
            )
        if self.has_own_step:
            learn_by_step(self, block_size, mask, inputs, action, reward, noise_scale=noise_scale)
        elif is_sparse(inputs) and (self.has_encoder or (mask is None and has_own_columns(self))):
            check_block_size(block_size)
            self._learn_sparse(inputs, action, reward, noise_scale, {"mask": mask, "block_size": block_size})
        else:
            self._learn_log_of_decisions(inputs, action, reward, noise_scale, block_size, mask)

    @torch.jit.export
    @in_python(_learn_in_python)
    def learn(
        self,
        inputs: Tensor | None,
        action: Tensor,
        reward: Tensor,
        noise_scale: Tensor | None = None,
        block_size: int | None = None,
        mask: Tensor | None = None,
    ) -> None:
        """Learn from many rewards, in blocks: see :meth:`Estimator.learn`.

        With a model for each arm, each arm learns its own rounds in blocks, and ``block_size`` counts the rounds of all arms.
        Without a block form, the rounds are learnt in order, as by :meth:`step`; docs/blocks.md lists the forms. For a log of
        only the chosen arms' features, call ``policy.learn(rows.unsqueeze(-2), zeros, rewards)``, which makes no copy. Arguments
        and errors are as in :meth:`step`; ``block_size`` and ``mask`` are as in :meth:`Estimator.learn`.
        """
        self._check_mask_of_log(mask)
        place = self._placed(action)
        self._learn_rounds(self._chosen(self._given(inputs), place), place, reward, noise_scale, block_size, mask)

    def _untied(self, scores: Tensor, inputs: Tensor) -> Tensor:
        """Return scores without ties, unless a choice is drawn: see :func:`untied`."""
        return scores if self.is_random else untied(scores, inputs)

    def _scored_in_python(self, x: Any) -> Any:
        score = self.__dict__.get("_score")  # of a compiled core, on NumPy views alone
        scores = None if score is None else score(x)
        return self._scores(self._features(x)) if scores is None else scores

    @in_python(_scored_in_python)
    def _scored(self, x: Tensor) -> Tensor:
        """Return the scores of encoded inputs."""
        return self._scores(self._features(x))

    def _mixture(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Return the probabilities of the arms, averaged over draws of the scores."""
        x = self._features(x)
        first = x.dim() - self.item_dims
        sizes = list(x.shape[:first]) + [self._draws()] + list(x.shape[first:])
        scores = self._scores(x.unsqueeze(first).expand(sizes))
        if mask is not None:
            scores = scores.masked_fill(~mask.unsqueeze(-2), -math.inf)
        return self.distribution(scores, self._clock()).mean(-2)

    def _draws(self) -> int:
        """Return the number of draws of random scores to average over."""
        return self.draws

    # Python only from here on.

    @with_keywords
    def open(self, inputs: ArrayLike | None, action: ArrayLike, *, noise_scale: ArrayLike | None = None) -> Tensor:
        r"""Add a decision to the statistics before its reward is known; return its record.

        Without this, an optimistic policy repeats its choice while rewards are pending. An open decision counts at once, with its
        own prediction as the response. For the chosen features x,

        .. math:: V \leftarrow V + xx^\top,\qquad \text{response } x^\top\hat\theta

        So :math:`\hat\theta` does not move, and the widths shrink. When the reward comes, :meth:`close` takes the decision out
        again and learns the reward by :meth:`step`. At any time :math:`\hat\theta` is ridge regression on the known rewards and
        on the predictions that stand for the others. The fit of 1, ``ones_hat``, moves at the opening: its response is known.

        ``select`` opens no decision. Open decisions do not count as rounds. The policy keeps no list of them: keep the record, an
        ordinary tensor, with the state. The record is valid for this state and later ones, not for a reset policy or an earlier
        state. A decision that is neither closed nor dropped stays in V.

        Guarantee: none. No proof of a radius covers widths that count open decisions. So the estimator must be one with a
        heuristic radius, :class:`AdaptiveRidgeRegression` or :class:`RobustRidgeRegression`, as in :func:`torchonline.bandit`.
        Python only.

        Cost: O(d^2) to open or drop a decision; the same and a step to close it. In float32, O(d^3) to drop or to close.

        Args:
            inputs: of the decision, as in :meth:`step`; or of n decisions, which are opened in order.
            action: the chosen arm, ``(*B)`` or ``(*B, n)``, as in :meth:`step`.
            noise_scale: as in :meth:`step`.

        Returns:
            The record, float64: ``(*B, size)``, or ``(*B, n, size)`` of n decisions.

        Raises:
            TypeError: the estimator is of another class or restarts, the scaler freezes, the arms are fixed, or the policy has
                its own step; or an argument is wrong, as in :meth:`step`.
            ValueError: an argument is wrong, as in :meth:`step`; or a decision has nearly all information in its direction, so
                that rounding would prevent its removal. No buffer has changed.

        Example:
            >>> policy = bandit(2, actions=3)
            >>> context = torch.tensor([0.5, 2.0])
            >>> k = policy.select(context)
            >>> opened = policy.open(context, k)
            >>> policy.close(opened, 1.0)  # later
            >>> policy.rounds
            tensor(1)

        Reference:
            Desautels, Krause and Burdick, Parallelizing exploration-exploitation tradeoffs in Gaussian process bandit
            optimization, JMLR 15 (2014). Their radius is larger by a constant, which keeps a regret bound; here the radius is a
            heuristic, and is not enlarged.
        """
        self._check_can_open("open")
        return self._open_now(inputs, action, noise_scale)

    def close(self, opened: ArrayLike, reward: ArrayLike) -> None:
        """Learn the rewards of open decisions, in order: see :meth:`open`.

        Each decision is removed from the statistics, and :meth:`step` learns its reward with the raw inputs of the opening. So
        opening and closing at once equals :meth:`step`, up to rounding. Close each record once: a second time would count the
        reward twice, and remove more than was added. Python only.

        Args:
            opened: a record of :meth:`open`, or records of n decisions, ``(*B, n, size)``.
            reward: ``(*B)`` or ``(*B, n)``.

        Raises:
            TypeError: as in :meth:`open`.
            ValueError: ``opened`` is not a record of this policy, its arm was removed, or its decision cannot be in the
                statistics; or the reward is wrong. No buffer has changed.
        """
        self._check_can_open("close")
        self._close_now(opened, reward)

    def drop(self, opened: ArrayLike) -> None:
        """Remove open decisions whose rewards are lost: see :meth:`open`.

        The statistics are then as if the decision had not been opened, up to rounding. Python only. Argument and errors are as in
        :meth:`close`.
        """
        self._check_can_open("drop")
        self._close_now(opened, MISSING)

    def _why_not_open(self) -> str | None:
        """Return why decisions cannot be opened before their rewards, or None."""
        if not self.can_open:
            return f"policy: expected a rule, ScaledPolicy or DisjointArms with the library's step, got {type(self).__name__}"
        estimator: Any = self.estimator
        if not estimator.can_open:
            return (
                "estimator: expected AdaptiveRidgeRegression or RobustRidgeRegression, because the widths of open decisions "
                f"may not enter a radius that is proved, got {type(estimator).__name__}"
            )
        if estimator.restart_every is not None:
            return (
                f"restart_every: expected None, because a restart forgets open decisions, got {estimator.restart_every}"
            )
        return None

    def _check_can_open(self, name: str) -> None:
        why = self._why_not_open()
        if why is not None:
            raise TypeError(f"{name}: {why}")

    @in_turn
    def _open_now(self, inputs: Any, action: Any, noise_scale: Any) -> Tensor:
        try:
            return opened_decisions(self, inputs, action, noise_scale)
        except ValueError as error:
            raise of_inputs(error) from error.__cause__

    @in_turn
    def _close_now(self, opened: Any, reward: Any) -> None:
        """Close decisions, or drop them if the reward is ``MISSING``."""
        try:
            close_decisions(self, opened, reward)
        except ValueError as error:
            raise of_inputs(error, "opened") from error.__cause__

    def predict(self, inputs: ArrayLike | None = None) -> Tensor:
        """Return the estimated mean reward of each arm, ``(*B, ..., K)``, differentiable.

        ``policy(inputs)`` returns scores instead. Changes no state. Python only.
        """
        if is_sparse(inputs):
            return self._of_sparse(inputs, None, Policy.predict, lambda p, x, mask, given: p._means_now(x))
        policy, x = self._decider(inputs)
        return policy._means_now(x)

    def interval(self, inputs: ArrayLike | None = None) -> tuple[Tensor, Tensor]:
        """Return lower and upper confidence bounds of each arm's mean reward.

        Shapes: ``(*B, ..., K)`` twice. They are clipped to the range that ``theta_bound`` allows; see
        :meth:`Estimator.interval`. The label of :meth:`plot_confidence` says whether a theorem covers the bounds. They are a
        heuristic while a scaler moves, and a theorem needs a fixed encoder. With a model for each arm, the estimator's
        guarantee covers the bounds of all arms at once. Changes no state. Python only.
        """
        if is_sparse(inputs):
            return self._of_sparse(inputs, None, Policy.interval, lambda p, x, mask, given: p._bounds_now(x))
        policy, x = self._decider(inputs)
        return policy._bounds_now(x)

    def plot_confidence(
        self,
        inputs: ArrayLike | None = None,
        ax: Any = None,
        *,
        names: Sequence[str] | None = None,
        mask: ArrayLike | None = None,
        index: Any = None,
        label: str | None = None,
    ) -> tuple[Any, Any]:
        """Draw each arm's estimated mean reward and its confidence interval.

        It draws the intervals of :meth:`interval`, also for a policy that does not use them, such as :class:`Greedy`. A diamond
        marks the chosen arm. The right axis shows the scores, which are not clipped. For a randomized policy it shows the
        probabilities, and the diamond marks the likeliest arm. The axis label says whether a theorem covers the intervals or they
        are a heuristic. Unavailable arms are grey. Needs matplotlib. Changes no state.

        Args:
            inputs: of one decision, as in :meth:`select`; or of many, one of which ``index`` selects.
            ax: matplotlib axes; None for a new figure of pyplot.
            names: of the K arms; None for the policy's own names, or "arm 0" and so on.
            mask: as in :meth:`select`.
            index: which decision of ``(*B, ...)``, an integer or a tuple. None for a single one.
            label: name of the policy, to compare two policies on the same arms in the same axes. Both calls need a label, which
                is written at the chosen arm. The second policy is drawn a little below the first, and the right axis is left
                out.

        Returns:
            The figure and the axes.

        Raises:
            ImportError: matplotlib is not installed.
            TypeError, ValueError: as :meth:`select`; also for a wrong number of names, an ``index`` out of range, a missing
                ``label`` on axes with arms, or axes that hold other arms or two policies.

        Example:
            >>> policy, arms = UCB(RidgeRegression(2)), torch.eye(2)
            >>> policy.step(arms, 0, 1.0)
            >>> figure, axes = policy.plot_confidence(arms, names=["red", "blue"])
            >>> print(axes.get_xlabel())
            mean reward
            interval: proved in all rounds if theta_bound = 1
            and noise_scale = 0.5 hold, delta = 0.01
        """
        from torchonline.regression.plots import draw_confidence

        policy, x = self._decider(inputs, False)
        return draw_confidence(policy, x, ax, names, mask, index, label, self._why_heuristic())

    def number_of_actions(self, inputs: ArrayLike | None = None) -> int:
        """Return K, the number of arms of a decision.

        If each arm has its own inputs, K is the number of arms in ``inputs``.
        """
        if not self.has_arm_inputs:
            return self._count(self._like())
        policy, x = self._decider(inputs, False)
        return policy._count(policy._checked(x, None)[0])

    @property
    def action_ids(self) -> list[int] | None:
        """The ids of arms that may come and go, in the order of scores; or None."""
        return None

    @property
    def action_names(self) -> list[str] | None:
        """The names of the actions, in the order of scores; or None."""
        return None

    def select_name(self, inputs: ArrayLike | None = None, mask: ArrayLike | None = None) -> Any:
        """Choose an action by :meth:`select`, and return its name.

        Changes no state. Arguments and errors are as in :meth:`select`. Python only.

        Returns:
            The name, a string; or nested lists of names for several decisions.

        Raises:
            TypeError: the actions have no names.

        Example:
            >>> policy = bandit(2, actions=["home", "sale"])
            >>> context = torch.tensor([0.5, 2.0])
            >>> name = policy.select_name(context)
            >>> policy.step(context, name, 1.0)
            >>> policy.name_of(1), policy.action_names
            ('sale', ['home', 'sale'])
        """
        self._check_named()
        return self.name_of(self.select(inputs, mask))

    def name_of(self, action: ArrayLike) -> Any:
        """Return the names of actions that :meth:`select` has returned. Python only.

        Args:
            action: an id, or ids in a tensor, an array or lists; of removed actions, too.

        Returns:
            A string for one id, or nested lists of strings.

        Raises:
            TypeError: the actions have no names, or ``action`` does not hold integers.
            ValueError: no action has had this id.
        """
        self._check_named()
        return self.with_ids()._named_actions(action)

    def _ids_of(self, name: str, value: Any) -> Any:
        """Return the ids of names of actions, and anything else as it is.

        ``name`` is the argument's name in errors.
        """
        refuse_names(name, value)
        return value

    def _check_named(self) -> None:
        if self.action_names is None:
            raise TypeError(
                'actions: expected a policy whose actions have names, such as bandit(dim, actions=["home", "sale"]), got a '
                f"{type(self).__name__} without names"
            )

    def reset(self) -> None:
        """Reset the policy to its state before the first round, in place. Python only."""
        self.learner.reset()

    def _params(self) -> dict[str, Any]:
        """Return the constructor's arguments, from the attributes of the same names."""
        own = self.__dict__ | self._buffers | self._modules
        return {name: own[name] for name in inspect.signature(type(self)).parameters if name in own}

    def __sklearn_clone__(self) -> Self:
        twin = super().__sklearn_clone__()
        if self.note:
            twin.note = self.note
        return twin

    def _means(self, x: Tensor) -> Tensor:
        """Return the estimated mean reward of each arm: ``(*B, ..., K)``."""
        return self.estimator.forward(self._features(x))

    def _bounds(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the bounds of the mean rewards: ``(*B, ..., K)`` twice."""
        return self.estimator.interval(self._features(x))

    def _known_of_chosen(self, x: Tensor, place: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the predicted mean rewards of the chosen arms, and their bounds."""
        features = self._features(of_chosen(x, place))
        return self.estimator(features), *self.estimator.interval(features)

    def _learn_block(self, x: Tensor, place: Tensor, reward: Tensor, noise_scale: Tensor, mask: Tensor) -> None:
        """Learn the rounds in a mask, ``(*B, n)``, at once, in an exported program."""
        raise NotImplementedError

    def _why_no_blocks(self) -> str | None:
        """Return why exported programs cannot learn blocks, or None if they can."""
        if self.has_own_step:
            return f"{type(self).__name__} has its own step"
        learner: Any = self.learner
        for part in (self.estimator, learner):
            if not getattr(part, "has_blocks", False):
                return f"{type(part).__name__} has no block form"
        moves = "the scaler has not frozen, and until then rounds are learnt in order"
        return None if learner._learns_blocks_now() else moves

    def _alone(self, inputs: Tensor, place: Tensor) -> tuple[Tensor, Tensor]:
        """Return rounds with the chosen arm as the only arm, where that suffices."""
        if not (self.has_arm_inputs and self.learns_rows):
            return inputs, self._named(place)
        return of_chosen(inputs, place).unsqueeze(place.dim()), torch.zeros_like(place)

    def _learners(self) -> list[Learner]:
        """Return all learners that a round changes, without their parts."""
        return [self._learner()]

    def with_ids(self) -> Any:
        """Return the policy whose arms have ids, this one or a nested one; or None."""
        return None

    def _why_heuristic(self) -> str:
        """Return why no theorem covers the intervals, if the policy knows a reason."""
        return ""

    def _missing(self, name: str, is_action: bool) -> TypeError:
        """Return the error for a step or a learn with too few arguments."""
        lost = "action" if is_action else "reward"
        return TypeError(f"{name}() takes (inputs, action, reward), got no {lost}; {self._call(name)}")

    def _call(self, name: str = "step") -> str:
        """Return how to call :meth:`step`, for errors."""
        if not self.has_arm_inputs:
            return f"call {name}(context, action, reward)"
        if name == "learn":
            return (
                "call learn(arms, action, reward) with all arms of each decision, or pass the chosen arms' features as the "
                f"only arms: learn(rows.unsqueeze(-{self.item_dims}), zeros, rewards)"
            )
        return (
            "call step(arms, action, reward) with all arms of the decision, or pass the chosen arm's features as the only "
            f"arm: step(x.unsqueeze(-{self.item_dims}), 0, reward)"
        )

    def _decider(self, inputs: Any, with_gradients: bool = True) -> "tuple[Policy, Any]":
        """Return the policy that decides, and its inputs: under an encoder, both change."""
        return self, inputs

    def _owners(self) -> tuple[Any, Any]:
        """Return the learner that holds the state, and the estimator."""
        raise NotImplementedError

    def _learner(self) -> Any:
        """Return the learner that holds the state, faster than ``self.learner``."""
        return self._owners()[0]

    def _state(self) -> Any:
        """Return a tensor of the state's type and device."""
        return self._owners()[1]._buffers["theta_hat"]

    def _on(self, view: NumpyView) -> Any:
        """Return this policy on NumPy views."""
        return view.learner

    def _is_on_arrays(self) -> bool:
        """Return whether NumPy can compute the scores: a user's subclass may call torch."""
        return False

    def _to_score(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Return the input of :meth:`_features` when some arms are unavailable."""
        return x

    def _exactly(self, x: Any) -> AbstractContextManager[Any]:
        """Return a context without automatic mixed precision."""
        return exactly(x) if autocasts(x) else nullcontext()

    @in_turn
    def _choice_now(self, inputs: Any, mask: Any, given: Tensor | None = None) -> Tensor:
        """Return the choices, on NumPy views where that is faster.

        ``given`` are the inputs before an encoder, if there is one.
        """
        scores, mask = self._scores_now(inputs, mask)
        return self._choice_of(scores, mask, lambda: self._given_tensor(inputs) if given is None else given)

    def _choice_of(self, scores: Any, mask: Tensor | None, given: Callable[[], Tensor]) -> Tensor:
        """Return the choices, given scores of tensors or NumPy and a checked mask.

        ``given`` returns what breaks ties. It is not called without a tie.
        """
        if not isinstance(scores, Tensor):
            if mask is not None:
                scores = np.where(as_array(mask), scores, -math.inf)
            best = None if self.is_random else best_of_arrays(scores)
            if best is not None:
                return self._named(torch.from_numpy(best))
            scores, mask = torch.from_numpy(scores), None
        with torch.no_grad():
            scores = masked(scores, mask)
            if not self.is_random and has_tie(scores):
                scores = self._untied(scores, given())
            return self._named(self.choice(scores, self._clock()))

    def _given_tensor(self, inputs: Any) -> Tensor:
        """Return the inputs before an encoder as a tensor, of checked arguments."""
        return check_tensor("inputs", inputs, self._state()) if self.takes_inputs else self._given(None)

    def is_deterministic(self) -> bool:
        """Return whether equal inputs and statistics give equal choices. Python only."""
        return not (self.is_random or self._rule.draws > 1)

    def _scores_now(self, inputs: Any, mask: Any) -> tuple[Any, Tensor | None]:
        """Return the scores, as an array if NumPy has computed them, and the mask."""
        (learner, estimator), is_on_arrays = self._owners(), self._is_on_arrays()
        view = learner.view_for(inputs) if is_on_arrays else None
        if view is not None and mask is None:
            rows = plain_array(inputs, estimator._buffers["theta_hat"])  # certain to pass all checks
            if rows is not None and rows.size * learner.multiplications < SMALL_PRODUCT:
                if self._are_inputs(learner, rows.shape) and (not learner.validate or is_ordinary(rows)):
                    return view.run(self._on(view)._scored, rows), None
        x, available = self._checked(inputs, mask)
        if view is None and is_on_arrays:
            view = learner.view_for(x)
        # A user's features of an arm may depend on the other arms.
        is_by_arm = is_on_arrays and is_ours(self._features)
        rows = rows_of_tile(self, x, is_by_arm)
        is_small = rows is not None or x.numel() * learner.multiplications < SMALL_PRODUCT
        stand_in = self._on(view) if view is not None and is_small else None
        checks_tiles = rows is not None and available is None
        if not checks_tiles:  # unavailable arms, which are not in the tiles, must be finite too
            self._check_finite(x)

        def ask(part: Tensor) -> Any:
            if checks_tiles:
                self._check_finite(part)
            if view is None or stand_in is None:
                return self._scored(part)
            return view.run(stand_in._scored, as_array(part))

        with torch.no_grad(), self._exactly(x):
            x = self._to_score(x.detach(), available)
            if rows is None:
                return ask(x), available
            return scores_in_tiles(ask, x, available, rows, self.item_dims, is_by_arm), available

    def _check_finite(self, x: Tensor) -> None:
        """Refuse NaN, infinity and values too large to square."""
        if self._learner().validate and is_readable(x):
            if x.is_cpu:
                check_array("inputs", as_array(x))
            else:
                check_values("inputs", x)

    def _in_tiles(self, ask: Callable[..., Any], x: Tensor, mask: Tensor | None = None) -> Any:
        """Return the answers to decisions and a mask, tile by tile if they are many."""
        rows = rows_of_tile(self, x, False)
        return ask(x, mask) if rows is None else in_tiles(ask, x, mask, self.item_dims, rows)

    @in_turn
    def _probabilities_now(self, inputs: Any, mask: Any) -> Tensor:
        if self.takes_inputs and self._is_on_arrays() and type(self)._mixture is Policy._mixture:
            scores, available = self._scores_now(inputs, mask)
            scores = torch.as_tensor(scores)
            with torch.no_grad(), self._exactly(scores):
                return self.distribution(masked(scores, available), self._clock())
        x, available = self._checked(inputs, mask)
        self._check_finite(x)
        with torch.no_grad(), self._exactly(x):
            return self._in_tiles(self._mixture, self._to_score(x.detach(), available), available)

    @in_turn
    def _means_now(self, inputs: Any) -> Tensor:
        return self._in_tiles(lambda x, mask: self._means(x), self._checked(inputs, None)[0])

    @in_turn
    def _bounds_now(self, inputs: Any) -> tuple[Tensor, Tensor]:
        return self._in_tiles(lambda x, mask: self._bounds(x), self._checked(inputs, None)[0])

    def _are_inputs(self, learner: Any, shape: tuple[int, ...]) -> bool:
        """Return whether a shape is valid for the inputs of decisions."""
        n, dims = self.item_dims, learner.batch_dims
        is_short = len(shape) < dims + n or (n == 2 and shape[-2] == 0)
        return not is_short and shape[-1] == learner.dim and (not dims or shape[:dims] == learner.batch_shape)

    def _checked(self, inputs: Any, mask: Any) -> tuple[Tensor, Tensor | None]:
        """Return the inputs of decisions and the mask as tensors, or raise."""
        x = self._checked_inputs(inputs)
        if mask is not None:
            sizes = (*x.shape[: x.dim() - self.item_dims], self._count(x))
            mask = check_mask("mask", mask, sizes, x, self._learner().validate)
        return x, mask

    def _checked_inputs(self, inputs: Any, lead: tuple[str, ...] = ("...",)) -> Tensor:
        """Return the inputs of decisions as a tensor, or raise."""
        x = check_tensor("inputs", inputs, self._state())
        if not self._are_inputs(self._learner(), x.shape):
            raise self._wrong_shape(x.shape, lead)
        return x

    def _wrong_shape(self, shape: Any, lead: tuple[str, ...], name: str = "step") -> ValueError:
        """Return the error for inputs of a wrong shape."""
        learner, more, how = self._learner(), "", ""
        sizes = [(*learner.batch_shape, *lead, *("K",) * (self.item_dims - 1), learner.dim)]
        if self.item_dims == 2:
            more = " with K > 0"
        if lead == ("n",):
            sizes.insert(0, sizes[0][: len(learner.batch_shape)] + sizes[0][len(learner.batch_shape) + 1 :])
            if len(shape) < learner.batch_dims + self.item_dims:
                how = f"; {self._call(name)}"
        wanted = " or ".join(map(shape_text, sizes))
        return ValueError(f"inputs: expected shape {wanted}{more}, got {shape_text(shape)}{how}")

    def _one_round(self, shape: Any, name: str) -> ValueError:
        """Return the error for inputs of one decision beside several actions."""
        sizes = (*self._learner().batch_shape, "n", *("K",) * (self.item_dims - 1), self._learner().dim)
        wanted = f"{shape_text(sizes)} for n actions and rewards"
        return ValueError(f"inputs: expected shape {wanted}, got {shape_text(shape)}; {self._call(name)}")

    @in_turn
    def _of_sparse(self, inputs: Any, mask: Any, ask: Any, ask_narrowed: Any, chooses: bool = False) -> Any:
        """Answer sparse inputs by a method of the protocol, or by one of a stand-in."""

        def ask_dense(policy: Any, x: Any, mask: Any) -> Any:
            return ask(policy, x) if mask is None else ask(policy, x, mask)

        return answers_to_decisions(self, inputs, mask, ask_dense, ask_narrowed, chooses)

    @in_turn
    def _learn_sparse(self, inputs: Any, action: Any, reward: Any, noise_scale: Any, log: Any = None) -> None:
        """Learn sparse rounds in order, or as a log if its options are given."""
        try:
            learn_sparse_decisions(self, inputs, action, reward, noise_scale, log)
        except ValueError as error:
            raise of_inputs(error) from error.__cause__

    @in_turn
    def _learn_decisions(self, inputs: Any, action: Any, reward: Any, noise_scale: Any) -> None:
        """Check a step's arguments, then learn, on NumPy views where that is faster."""
        learner, estimator = self._owners()
        is_small = learner.__dict__["is_small"] and self._learns_on_views(learner)
        try:
            view = learner.view_for(inputs) if is_small and self.takes_inputs else None
            if view is not None and noise_scale is None:
                one = self._plain_round(learner, estimator, inputs, action, reward)
                if one is not None:
                    self._learn_on_arrays(view, [one])
                    return
            x, place, reward, noise_scale, is_one = self._checked_rounds(inputs, action, reward, noise_scale)
            if view is None and is_small:
                view = learner.view_for(x)
            if view is not None:
                rounds = rounds_of_arrays(learner, view.learner, x, reward, noise_scale, is_one, "inputs")
                if learner is self:
                    rounds = with_places(rounds, places_of_arrays(place, self._dims()))
                self._learn_on_arrays(view, rounds)
            else:
                place = place if learner is self else None
                learn_on_tensors(learner, x, reward, noise_scale, is_one, "inputs", place)
        except ValueError as error:
            raise of_inputs(error) from error.__cause__

    def _learns_on_views(self, learner: Any) -> bool:
        """Return whether ``learner``, if it is small, learns rounds on NumPy views."""
        return not learner.batch_dims or self.has_batch_views or self.learns_alone

    def _plain_round(
        self, learner: Any, estimator: Any, inputs: Any, action: Any, reward: Any
    ) -> tuple[Any, ...] | None:
        """Return the arguments of a round that is sure to pass all checks; or None.

        All other rounds, including wrong ones, take the slow path.
        """
        state = estimator._buffers["theta_hat"]
        number = plain_number(reward, state)
        rows: Any = None if number is None else plain_array(inputs, state)
        k = None if rows is None or learner.batch_dims else integer_at_hand(action)
        if k is None or k < 0 or rows.ndim != self.item_dims or rows.shape[-1] != learner.dim:
            return None
        x = self._plain_row(rows, k)
        if x is None or (learner.validate and not (is_ordinary(x) and estimator._is_ordinary(number))):
            return None
        return (x, k, number, learner.noise_scale) if learner is self else (x, number, learner.noise_scale)

    def _plain_row(self, rows: Any, k: int) -> Any:
        """Return the row to learn from, as an array; or None."""
        return rows[k] if k < len(rows) else None

    def _learn_on_arrays(self, view: NumpyView, rounds: list[tuple[Any, ...]]) -> None:
        """Learn from rounds in order on NumPy views, all or nothing."""
        self._learner()._run(view, view.learner._learn_round, rounds)

    def _checked_rounds(
        self, inputs: Any, action: Any, reward: Any, noise_scale: Any
    ) -> tuple[Tensor, Any, Any, Tensor | None, bool]:
        """Return checked rows, positions, rewards, noise scales, and whether one round."""
        x, dims = self._checked_inputs(inputs, ("n",)), self._learner().batch_dims
        extra = x.dim() - self.item_dims - dims
        if extra > 1:
            raise self._wrong_shape(x.shape, ("n",))
        if extra == 0 and depth(action) == depth(reward) == dims + 1:
            raise self._one_round(x.shape, "step")
        shape = x.shape[: dims + extra]
        reward, noise_scale = checked_responses("reward", reward, noise_scale, self._state(), shape)
        place = self._checked_places(action, shape, x.device, self._count(x))
        return self._chosen_of_checked(x, place), place, reward, noise_scale, extra == 0

    def _chosen_of_checked(self, x: Tensor, place: Any) -> Tensor:
        """Return the rows to learn from. A single position may be an integer."""
        return x[place] if type(place) is int and self.item_dims == 2 else self._chosen(x, place)

    def _checked_places(self, action: Any, shape: tuple[int, ...], device: torch.device, count: int) -> Any:
        """Return the positions of actions, a single one as an integer; or raise."""
        action = self._placed(action)
        one = integer_at_hand(action) if not shape and device.type == "cpu" else None
        if one is not None and 0 <= one < count:
            return one
        return as_actions(action, shape, device, count, self._learner().validate or device.type == "cpu")

    @in_turn
    def _learn_log_of_decisions(
        self, inputs: Any, action: Any, reward: Any, noise_scale: Any, block_size: Any, mask: Any
    ) -> None:
        """Check the arguments of :meth:`learn`, then learn all blocks or nothing."""
        try:
            size = None if block_size is None else positive_integer("block_size", block_size)
            learn_blocks(Log(self._learner(), inputs, reward, noise_scale, mask, self, action), size)
        except ValueError as error:
            raise of_inputs(error) from error.__cause__


def of_inputs(error: ValueError, argument: str = "inputs") -> ValueError:
    """Return an estimator's error about ``x`` as one about a policy's argument."""
    name, _, rest = str(error).partition(": ")
    return refusal(f"{argument}: {rest}") if name == "x" else error


def masked(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Return scores that are -inf where a mask is False."""
    return scores if mask is None else scores.masked_fill(~mask, -math.inf)


def one_hot(scores: Tensor) -> Tensor:
    """Return 1 for the largest score of each row and 0 for the others: ``(..., K)``."""
    best = scores.argmax(-1, keepdim=True)
    return torch.zeros_like(scores).scatter_(-1, best, 1.0)


def drawn(probabilities: Tensor) -> Tensor:
    """Draw an index from each row of probabilities: ``(..., K)`` to ``(...)``, int64."""
    up_to = probabilities.to(torch.float64).cumsum(-1)
    # Below 1 by more than rounding, so that no arm after the last one with a positive probability is drawn.
    u = (1.0 - 1e-15) * torch.rand(probabilities.shape[:-1] + (1,), dtype=torch.float64, device=probabilities.device)
    return (u * up_to[..., -1:] >= up_to).sum(-1)


def drawn_with_probability(probabilities: Tensor) -> tuple[Tensor, Tensor]:
    """Draw an index from each row, and return its probability too: ``(...)`` twice."""
    index = drawn(probabilities)
    return index, probabilities.gather(-1, index.unsqueeze(-1)).squeeze(-1)
