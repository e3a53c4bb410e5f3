"""A policy over a large catalogue, which scores a few candidates in a decision."""

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from torchonline.core.backend import is_readable
from torchonline.core.checks import check_values, one_of, positive_integer, shape_text
from torchonline.core.delegated import delegated
from torchonline.core.inputs import ArrayLike, as_indices, as_tensor
from torchonline.core.learner import Learner
from torchonline.core.ops import along, at_least, matmul, matvec, row_dots, sqrt
from torchonline.core.options import described
from torchonline.core.sparse import is_sparse
from torchonline.linalg import add_diagonal
from torchonline.policies.fixed_arms import check_scores
from torchonline.policies.policy import Policy, drawn, in_turn
from torchonline.policies.rules import Rule, ThompsonSampling, as_rule
from torchonline.policies.tiles import TILE
from torchonline.regression.arguments import as_actions
from torchonline.regression.estimator import Estimator


class CatalogueArms(Policy):
    r"""A policy over a large catalogue of items, with a context and an index.

    A round::

        k = policy.select(context)  # the row of an item
        policy.step(context, k, reward)

    The features of item k are linear in its embedding :math:`a_k`, ``items[k]``. ``combine="product"``:
    :math:`x_k = c \odot a_k`, for a context c in the space of the items, such as the user's vector of a two-tower model; with
    theta of ones, :math:`x_k^\top\theta` is that model's score :math:`c^\top a_k`. ``combine="outer"``: :math:`x_k` is the
    flattened :math:`c\,a_k^\top`, for any context. Under an encoder of contexts, :class:`~torchonline.models.BanditHead`, it is
    a user tower. Without a context, :class:`FixedArms` is the exact answer.

    Given the context, the score of an item is a function of :math:`a^\top g` and its width :math:`\sqrt{a^\top B a}`. A decision
    asks the index for the items with the largest inner products with a few queries, and plays the candidate with the highest
    score. The queries are:

    - g, which suffices for rules without widths, and for :class:`ThompsonSampling`, whose draw is in g;
    - :math:`g \pm \beta\sqrt{\lambda_i}\,v_i`, the ends of the longest axes of the confidence set, with the ``directions``
      largest eigenvalues :math:`\lambda_i` of B, their eigenvectors :math:`v_i`, and the rule's factor :math:`\beta` of the
      widths.

    Guarantee: with ``candidates=None``, which scores all items, the guarantee of the policy. With an index, the choice is a
    heuristic: it may miss the highest score. For an exact index and ``directions`` = e, docs/catalogues.md proves how much score
    a choice of :class:`UCB` may lose.

    Cost of a decision: one call of the index with 2 ``directions`` + 1 queries, O(e^3) for eigenvectors, and O(e^2) for each
    candidate, where e is the size of an embedding. With ``candidates=None``, O(n e^2), in tiles of some MiB. A step costs as much
    as a step of the policy. Only methods that return n numbers allocate a vector of n.

    Python only. Where there is no Python, export ``policy.policy`` and give it the candidates' features as arms.

    Args:
        policy: a :class:`UCB`, :class:`ThompsonSampling`, :class:`Greedy`, :class:`EpsilonGreedy`, :class:`SquareCB` or
            :class:`Softmax`, or your own rule with ``scores_of``; or an estimator, for :class:`UCB`. It is not copied. It has e
            features; with ``combine="outer"``, e times the size of a context. A randomized rule draws from the candidates only.
        items: the embeddings, ``(n, e)``: a tensor or an array of floats, also a memory map. They are not copied, stay on their
            device and in their dtype, and are not in the state dict. They must not change.
        candidates: the index, a callable ``candidates(queries, k)``. It gets m queries, a tensor ``(m, e)`` with the dtype and
            device of ``items``, and returns the rows of the k items with the largest inner products with each: integers
            ``(m, k)``, -1 for none. With faiss: ``lambda queries, k: index.search(queries, k)[1]``. None: all items are scored.
        combine: "product" or "outer".
        per_query: k. With ``candidates=None``, the number of best items that are the candidates.
        directions: number of eigenvectors; e if it is larger.

    Shape:
        - inputs: contexts, ``(*B, ..., e)``, or ``(*B, ..., d / e)`` with ``combine="outer"``; action and reward, ``(*B)``, or
          ``(*B, n)`` for n rounds.
        - scores, means, probabilities and masks have an entry for each item, ``(*B, ..., n)``. The probability of an item that is
          not a candidate is 0.

    A mask hides items after the index has answered. If no candidate is left, all items are scored. An index with its own filter
    avoids this.

    Example:
        >>> items = torch.randn(1000, 8, generator=torch.Generator().manual_seed(0))
        >>> policy = CatalogueArms(OFUL(8), items, lambda queries, k: (queries @ items.T).topk(k).indices)
        >>> user = torch.ones(8)
        >>> k = policy.select(user)
        >>> policy.step(user, k, 1.0)
        >>> policy.rounds
        tensor(1)

    Reference:
        Of this library. Jun, Bhargava, Nowak and Willett, Scalable generalized linear bandits: online computation and hashing,
        NeurIPS 2017, choose by one query of e^2 numbers, for squared widths. Dani, Hayes and Kakade, Stochastic linear
        optimization under bandit feedback, COLT 2008, bound the regret of optimism over the ends of axes.
    """

    if TYPE_CHECKING:
        policy: Rule

    item_dims, has_arm_inputs, held_by = 1, False, "policy.policy.estimator"
    # TorchScript cannot call an index.
    is_exportable = is_scriptable = False

    def __init__(
        self,
        policy: Rule | Estimator,
        items: ArrayLike,
        candidates: Callable[[Tensor, int], Any] | None = None,
        *,
        combine: str = "product",
        per_query: int = 64,
        directions: int = 8,
    ) -> None:
        super().__init__()
        self.policy = chosen = as_rule("policy", policy)
        if not isinstance(chosen, ThompsonSampling):
            check_scores(chosen)
        if candidates is not None and not callable(candidates):
            raise TypeError(f"candidates: expected a callable or None, got {type(candidates).__name__}")
        self.combine = one_of("combine", combine, ("product", "outer"))
        rows = _embeddings(items, chosen.estimator)
        size, features = rows.size(-1), chosen.estimator.dim
        if features % size if combine == "outer" else features != size:
            wanted = f"a divisor of {features}" if combine == "outer" else f"{features}"
            raise ValueError(f"items: expected shape (n, e) with e {wanted}, got {shape_text(rows.shape)}")
        self._catalogue = _Catalogue(rows, candidates)
        self.dim = features // size if combine == "outer" else size
        self.is_random, self.draws = chosen.is_random, chosen.draws
        self.per_query = positive_integer("per_query", per_query)
        self.directions = positive_integer("directions", directions)

    @property
    def items(self) -> Tensor:
        """The embeddings, ``(n, e)``."""
        return self._catalogue.items

    @property
    def candidates(self) -> Callable[[Tensor, int], Any] | None:
        """The index, or None."""
        return self._catalogue.candidates

    def extra_repr(self) -> str:
        return described(self, vars(self) | {"items": self.items, "candidates": self.candidates})

    def _params(self) -> dict[str, Any]:
        return super()._params() | {"items": self.items, "candidates": self.candidates}

    def chosen_features(self, inputs: ArrayLike, action: ArrayLike) -> Tensor:
        """Return the features of the chosen items: ``(*B, [n], d)``.

        Inputs and action are as in :meth:`step`. ``policy.policy`` learns from these features, and a log may keep them.
        """
        return self._round_of(inputs, action)[0].squeeze(-2)

    def select_with_probability(
        self, inputs: ArrayLike | None = None, mask: ArrayLike | None = None
    ) -> tuple[Tensor, Tensor]:
        """Choose an item in each decision, and return its propensity for the log.

        See :meth:`Policy.select_with_probability`. :class:`ThompsonSampling` asks the index for each of its ``draws``.
        """
        ids, shares = self._shares_now(inputs, mask)
        item = ids.gather(-1, drawn(shares).unsqueeze(-1))
        return item.squeeze(-1), (shares * (ids == item)).sum(-1)

    def __prepare_scriptable__(self) -> Any:
        instead = "which asks an index; compile its policy and give it the features of candidates"
        raise ValueError(f"torch.jit.script: expected learners that can be compiled, got CatalogueArms, {instead}")

    # The hooks of a policy.

    def _count(self, inputs: Tensor) -> int:
        return self.items.size(0)

    def _scored(self, x: Tensor) -> Tensor:
        scorer = _Scorer(self, x)
        return torch.cat([scorer.scores(tile) for tile in self._tiles(x)], -1)

    def choice(self, scores: Tensor, rounds: Tensor) -> Tensor:
        return self.policy.choice(scores, rounds)

    def distribution(self, scores: Tensor, rounds: Tensor) -> Tensor:
        return self.policy.distribution(scores, rounds)

    def _draws(self) -> int:
        return self.draws

    def _like(self) -> Tensor:
        return self.policy._like()

    def _clock(self) -> Tensor:
        return self.policy._clock()

    def _dims(self) -> int:
        return self.policy._dims()

    def _own_scale(self, reward: Tensor) -> Tensor:
        return self.policy._own_scale(reward)

    def _owners(self) -> tuple[Any, Any]:
        return self.policy._owners()

    @delegated
    def estimator(self) -> Estimator:  # type: ignore[override]
        """The rule's estimator."""
        return self.policy.estimator

    @delegated
    def batch_shape(self) -> tuple[int, ...]:  # type: ignore[override]
        """The estimator's ``*B``: policies in one module."""
        return self.policy.estimator.batch_shape

    @delegated
    def rounds(self) -> Tensor:  # type: ignore[override]
        """The estimator's count of rounds, ``(*B)``."""
        return self.policy.estimator.rounds

    @delegated
    def theta_hat(self) -> Tensor:
        """The estimator's parameter, ``(*B, d)``."""
        return self.policy.estimator.theta_hat

    @delegated
    def learner(self) -> Learner:  # type: ignore[override]
        """The estimator, which holds the state."""
        return self.policy.estimator

    @delegated
    def _rule(self) -> Rule:
        """The rule of choice."""
        return self.policy

    def _are_inputs(self, learner: Any, shape: tuple[int, ...]) -> bool:
        lead = len(learner.batch_shape)
        return len(shape) > lead and shape[-1] == self.dim and shape[:lead] == learner.batch_shape

    def _wrong_shape(self, shape: Any, lead: tuple[str, ...], name: str = "step") -> ValueError:
        wanted = shape_text((*self.batch_shape, *lead, self.dim))
        return ValueError(f"inputs: expected contexts of shape {wanted}, got {shape_text(shape)}")

    def _means(self, x: Tensor) -> Tensor:
        return torch.cat([self.estimator.forward(self._combined(x, tile)) for tile in self._tiles(x)], -1)

    def _bounds(self, x: Tensor) -> tuple[Tensor, Tensor]:
        tiles = [self.estimator.interval(self._combined(x, tile)) for tile in self._tiles(x)]
        low, high = (torch.cat(column, -1) for column in zip(*tiles, strict=True))
        return low, high

    # Decisions.

    def _given_choices(self, inputs: Any, mask: Any) -> tuple[Tensor, Tensor | None]:
        x, available = self._checked(inputs, mask)
        if self._learner().validate:
            check_values("inputs", x)
        return x.detach(), available

    @in_turn
    def _choice_now(self, inputs: Any, mask: Any, given: Tensor | None = None) -> Tensor:
        x, available = self._given_choices(inputs, mask)
        with torch.no_grad(), self._exactly(x):
            ids, scores = self._candidates_of(x, available)
            place = self._choice_of(scores, None, lambda: x if given is None else given)
            return ids.gather(-1, place.unsqueeze(-1)).squeeze(-1)

    @in_turn
    def _shares_now(self, inputs: Any, mask: Any) -> tuple[Tensor, Tensor]:
        """Return the candidates of all draws and their probabilities.

        Shapes: ``(*B, ..., m)`` twice. An item may be a candidate in several draws.
        """
        x, available = self._given_choices(inputs, mask)
        with torch.no_grad(), self._exactly(x):
            x = x.unsqueeze(-2).expand(*x.shape[:-1], self._draws(), self.dim)
            ids, scores = self._candidates_of(x, None if available is None else available.unsqueeze(-2))
            shares = self.distribution(scores, self._clock()) / self._draws()
            return ids.flatten(-2), shares.flatten(-2)

    def _probabilities_now(self, inputs: Any, mask: Any) -> Tensor:
        ids, shares = self._shares_now(inputs, mask)
        found = shares.new_zeros((*ids.shape[:-1], self.items.size(0)))
        return found.scatter_add_(-1, ids, shares)

    def _candidates_of(self, x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return candidates in ascending order, and their scores.

        Shapes: ``(*B, ..., m)`` twice. An entry that repeats another, or is not available, has the score -inf.
        """
        scorer = _Scorer(self, x)
        if self.candidates is not None and x.numel():
            ids, scores = self._asked(scorer, scorer.queries(self.directions), mask)
            ids, order = ids.sort(-1)
            is_repeated = torch.zeros_like(ids, dtype=torch.bool)
            is_repeated[..., 1:] = ids[..., 1:] == ids[..., :-1]
            scores = scores.gather(-1, order).masked_fill(is_repeated, -torch.inf)
            if bool((scores > -torch.inf).any(-1).all()):
                return ids.clamp(min=0), scores
        return self._best_of_all(scorer, x, mask)

    def _best_of_all(self, scorer: "_Scorer", x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Score all items; return the best ones as :meth:`_candidates_of` does."""
        ids, scores, start = torch.empty(0, dtype=torch.int64, device=x.device), x.new_empty(0), 0
        for tile in self._tiles(x):
            found = scorer.scores(tile)
            if mask is not None:
                found = found.masked_fill(~mask[..., start : start + len(tile)], -torch.inf)
            best = found.topk(min(self.per_query, len(tile)), -1)
            shape = (*best.values.shape[:-1], ids.size(-1))
            ids = torch.cat([ids.expand(shape), best.indices + start], -1)
            best = torch.cat([scores.expand(shape), best.values], -1).topk(min(self.per_query, ids.size(-1)), -1)
            ids, scores, start = ids.gather(-1, best.indices), best.values, start + len(tile)
        order = ids.sort(-1)
        return order.values, scores.gather(-1, order.indices)

    def _asked(self, scorer: "_Scorer", queries: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the ids that the index finds for queries, and their scores.

        Shapes: ``(*B, ..., s, e)`` to ``(*B, ..., s k)`` twice. The score of -1, and of an item that is not available, is -inf.
        """
        items, count = self.items, self.items.size(0)
        rows = queries.reshape(-1, items.size(-1)).to(items.device, items.dtype)
        index: Any = self.candidates
        ids = as_indices("candidates", index(rows, min(self.per_query, count)), items.device)
        if ids.dim() != 2 or len(ids) != len(rows) or not ids.size(1):
            wanted = f"indices of shape {shape_text((len(rows), 'k'))}"
            raise ValueError(f"candidates: expected {wanted} for {len(rows)} queries, got {shape_text(ids.shape)}")
        low, high = (int(bound) for bound in ids.aminmax())
        if low < -1 or high >= count:
            raise ValueError(f"candidates: expected indices from -1 to {count - 1}, got {low} to {high}")
        ids = ids.to(queries.device).reshape(*queries.shape[:-2], -1)
        is_out, scores = ids < 0, scorer.scores(self._rows(ids))
        if mask is not None:
            is_out = is_out | ~mask.expand(*ids.shape[:-1], -1).gather(-1, ids.clamp(min=0))
        return ids, scores.masked_fill(is_out, -torch.inf)

    def _rows(self, ids: Tensor) -> Tensor:
        """Return embeddings in the type of the state: ``(...)`` to ``(..., e)``.

        For -1, return any.
        """
        rows = self.items[ids.clamp(min=0).to(self.items.device)]
        return rows.to(self._like().device, self._like().dtype)

    def _tiles(self, x: Tensor) -> Any:
        """Yield all embeddings in the type of the state, ``(m, e)`` at a time."""
        like, decisions = self._like(), x[..., 0].numel()
        for tile in self.items.split(max(TILE // (max(decisions, 1) * self.items.size(-1)), 64)):
            yield tile.to(like.device, like.dtype)

    def _combined(self, x: Tensor, rows: Tensor) -> Tensor:
        """Return the features of items.

        Shapes: contexts ``(..., c)`` and embeddings ``(..., K, e)`` to ``(..., K, d)``.
        """
        if self.combine == "product":
            return x.unsqueeze(-2) * rows
        return (x[..., None, :, None] * rows.unsqueeze(-2)).flatten(-2)

    # Rounds.

    def _round_of(self, inputs: Any, action: Any) -> tuple[Tensor, Tensor]:
        """Return the arguments of the rule's step: the chosen item as the only arm."""
        x = self._checked_inputs(inputs, ("n",))
        if x.dim() > self._dims() + 2:
            raise self._wrong_shape(x.shape, ("n",))
        place = as_actions(action, x.shape[:-1], x.device, self.items.size(0), True)
        return self._combined(x, self._rows(place).unsqueeze(-2)), torch.zeros_like(place)

    def _learn_decisions(self, inputs: Any, action: Any, reward: Any, noise_scale: Any) -> None:
        x, place = self._round_of(inputs, action)
        self.policy.step(x, place, reward, noise_scale=noise_scale)

    def _learn_log_of_decisions(
        self, inputs: Any, action: Any, reward: Any, noise_scale: Any, block_size: Any, mask: Any
    ) -> None:
        if is_sparse(inputs):
            self._learn_sparse(inputs, action, reward, noise_scale, {"mask": mask, "block_size": block_size})
            return
        x, place = self._round_of(inputs, action)
        self.policy.learn(x, place, reward, noise_scale=noise_scale, block_size=block_size, mask=mask)


class _Catalogue:
    """The embeddings and their index, which copies of a policy share."""

    def __init__(self, items: Tensor, candidates: Callable[[Tensor, int], Any] | None) -> None:
        self.items, self.candidates = items, candidates

    def __deepcopy__(self, memo: Any) -> "_Catalogue":
        return self


class _Scorer:
    """The scores of decisions as a function of embeddings.

    ``linear`` is g, ``(*B, ..., e)``; ``squares`` is B, ``(*B, ..., e, e)``, or None for scores without widths.
    """

    def __init__(self, policy: CatalogueArms, x: Tensor) -> None:
        rule, estimator = policy.policy, policy.estimator
        self.rule, self.is_sampled = rule, isinstance(rule, ThompsonSampling)
        theta, self.offset = estimator.affine()
        if isinstance(rule, ThompsonSampling):
            theta = rule._drawn_parameter(x.new_empty((*x.shape[:-1], estimator.dim)))
        else:
            theta = _for_each(theta, x, 1)
        is_outer = policy.combine == "outer"
        sizes = (x.size(-1), estimator.dim // x.size(-1))
        self.linear = matvec(theta.unflatten(-1, sizes).mT, x) if is_outer else x * theta
        self.squares: Tensor | None = None
        if rule.uses_widths and not self.is_sampled:
            matrix, allowance = estimator.width_matrix(), estimator.width_allowance()
            matrix = _for_each(matrix if allowance is None else add_diagonal(matrix, allowance), x, 2)
            if is_outer:
                half = matvec(matrix.unflatten(-1, sizes).mT, x[..., None, :]).unflatten(-2, sizes)
                self.squares = matvec(half.movedim(-3, -1), x[..., None, :])
            else:
                self.squares = x.unsqueeze(-1) * matrix * x.unsqueeze(-2)

    def scores(self, rows: Tensor) -> Tensor:
        """Return scores: ``(K, e)`` or ``(*B, ..., K, e)`` to ``(*B, ..., K)``."""
        predictor = matmul(rows, self.linear.unsqueeze(-1)).squeeze(-1)
        if self.offset is not None:
            predictor = predictor + along(self.offset, predictor)
        if self.is_sampled:
            return predictor
        if self.squares is None:  # the rule uses no widths
            return self.rule.scores_of(predictor, predictor)
        return self.rule.scores_of(predictor, sqrt(at_least(row_dots(matmul(rows, self.squares), rows), 1e-38)))

    def queries(self, directions: int) -> Tensor:
        """Return the queries of each decision, ``(*B, ..., s, e)``."""
        linear = self.linear.unsqueeze(-2)
        if self.squares is None:
            return linear
        values, vectors = torch.linalg.eigh(self.squares)
        none = torch.zeros_like(values[..., :1])
        factor = self.rule.scores_of(none, none + 1.0) - self.rule.scores_of(none, none)
        lengths = factor * sqrt(at_least(values[..., -directions:], 0.0))
        ends = lengths.unsqueeze(-1) * vectors[..., -directions:].mT
        return torch.cat([linear, linear + ends, linear - ends], -2)


def _for_each(value: Tensor, x: Tensor, dims: int) -> Tensor:
    """Shape each learner's value for its decisions.

    Shapes: ``(*B, *V)`` to ``(*B, 1, ..., 1, *V)``, where V has ``dims`` dimensions.
    """
    lead = value.dim() - dims
    return value.reshape(value.shape[:lead] + (1,) * (x.dim() - 1 - lead) + value.shape[lead:])


def _embeddings(value: Any, estimator: Estimator) -> Tensor:
    """Return the embeddings as a tensor on the same memory, or raise."""
    if isinstance(value, np.ndarray) and value.dtype.kind == "f" and value.dtype.isnative:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The given NumPy array is not writable")
            value = torch.from_numpy(value)
    items = as_tensor("items", value, torch.device("cpu"))
    items = items.detach() if items.requires_grad else items
    if not items.is_floating_point():
        raise TypeError(f"items: expected floats, got {items.dtype}")
    if items.dim() != 2 or not items.numel():
        raise ValueError(f"items: expected shape (n, e) with n > 0, got {shape_text(items.shape)}")
    if estimator.validate and is_readable(items):
        for tile in items.split(max(TILE // items.size(1), 1)):
            check_values("items", tile.to(estimator.theta_hat.dtype))
    return items
