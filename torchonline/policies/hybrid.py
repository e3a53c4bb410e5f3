"""Hybrid arms: a model shared by all arms, and a separate model of each arm."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from torchonline.core.backend import is_readable, on_arrays
from torchonline.core.checks import check_values, shape_text
from torchonline.core.inputs import ArrayLike, check_tensor
from torchonline.core.learner import Learner
from torchonline.core.ops import (
    along,
    column,
    dot,
    increase_,
    matmul,
    matvec,
    maximum,
    minimum,
    number,
    row_dots,
    sqrt,
    weighted,
)
from torchonline.core.options import rebuilt
from torchonline.core.precision_matrix import add_outer_product_
from torchonline.policies.disjoint import DisjointArms, arms_last, for_each_arm, with_estimator
from torchonline.policies.fixed_arms import check_scores
from torchonline.policies.moving_squares import rows_of
from torchonline.policies.policy import in_turn
from torchonline.policies.rules import Rule, as_rule
from torchonline.policies.scaler import StandardScaler
from torchonline.regression.estimator import Estimator
from torchonline.regression.ridge import RidgeRegression


class OwnRidge(RidgeRegression):
    """Ridge regression of rewards and shared features on an arm's own features.

    These are one arm's statistics in :class:`HybridArms`. All arms hold the ``logdet`` of the joint model.

    Shape:
        - ``slopes``, ``(*B, k, d)``: of the shared features on the own ones.
    """

    pooled = ("logdet",)
    slopes: Tensor

    def __init__(self, dim: int, *, shared_dim: int, **options: Any) -> None:
        self.shared_dim = shared_dim
        super().__init__(dim, **options)

    def _initial_state(self) -> dict[str, Tensor | None]:
        return super()._initial_state() | {"slopes": torch.zeros(self.shared_dim, self.dim, dtype=torch.float64)}

    def residuals(self, x: Tensor, z: Tensor, reward: Tensor, noise_scale: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the round of the shared model: features, reward and noise scale.

        Shapes: ``(*B, d)``, ``(*B, k)``, ``(*B)`` twice to ``(*B, k)``, ``(*B)`` twice.
        """
        a = weighted(x, self.noise_scale / noise_scale)
        quadratic = dot(a, matvec(self.V_inv, a))
        self._check_growth(x, quadratic)
        rest = z - matvec(self.slopes, x)
        return rest, reward - dot(x, self.theta_hat), noise_scale * sqrt(1.0 + quadratic)

    def learn_own_(self, x: Tensor, rest: Tensor, reward: Tensor, noise_scale: Tensor, growth: Tensor) -> None:
        """Learn a round, with the residuals ``(*B, k)`` of its shared features.

        ``growth``, ``(*B)``, is the growth of the shared model's ``logdet``.
        """
        weight = self.noise_scale / noise_scale
        a = weighted(x, weight)
        product = matvec(self.V_inv, a)
        gain = product * along(weight / (1.0 + dot(a, product)), x)
        add_outer_product_(self.slopes, rest, gain)
        self._add_round_(x, reward, noise_scale)
        increase_(self.logdet, growth)


class HybridArms(DisjointArms):
    r"""Hybrid arms: a model shared by all arms, plus a separate model of each arm.

    Rounds are as in :class:`DisjointArms`. With the context's features x, :math:`\text{dim} = d`, and the embedding :math:`e_k`
    of arm k, the shared features are the products :math:`z_k = x\otimes e_k`, and the mean reward is

    .. math:: z_k^\top\beta + x^\top\theta_k

    Without ``embeddings``, :math:`e_k = 1`, so :math:`z_k = x`: each arm's parameter is :math:`\beta + \theta_k`. A reward of one
    arm changes the predictions of all arms, and a new arm starts at the shared model.

    The estimates equal ridge regression in the joint parameter :math:`(\beta, \theta_1, \ldots, \theta_K)`, exactly and in one
    pass. With :math:`V_k`, :math:`c_k` the arm's own ridge regression, :math:`M_k` that of z on x, and S that of the shared
    model, a round of arm k is

    .. math:: w = x^\top V_k^{-1}x,\quad u = z - M_k^\top x,\quad \epsilon = r - x^\top c_k

    after which the shared model learns :math:`(u, \epsilon)` with the noise scale :math:`R\sqrt{1+w}`, and the arm learns
    (x, r) and (x, z). An arm's prediction is :math:`u^\top\hat\beta + x^\top c_k`, and its squared width is
    :math:`u^\top S^{-1}u + w` (proof: docs/disjoint_arms_theory.md).

    Guarantee: as for :class:`RidgeRegression`, in the joint parameter of dimension k + K d. If rewards are as assumed there and
    the norm of the joint parameter, :math:`(\|\beta\|^2 + \sum_k\|\theta_k\|^2)^{1/2}`, is at most ``theta_bound``, then with
    probability at least 1 - ``delta`` the intervals of all arms hold in all rounds, with arms that come and go too: ``delta`` is
    not divided. The radius grows with the number of arms like :math:`\sqrt{Kd}`, the radius of one arm of :class:`DisjointArms`
    like :math:`\sqrt d`. Smaller multiples, ``radius_scale`` below 1, are a heuristic, and usually better (docs/hybrid.md). While
    a ``scaler`` moves, the set is a heuristic too.

    Cost, for k = d e shared features: O(K (d + k)^2) for a decision, and O((d + k)^2 + K) for a step; two matrices (k, k), and
    for each arm two (d, d) and one (k, d). Rounds of a log are learnt in order.

    Args:
        policy: the rule of choice over a :class:`RidgeRegression` of d features, one that scores by ``scores_of``, such as
            :class:`UCB`, :class:`Greedy` or :class:`EpsilonGreedy`; or that estimator, for :class:`UCB`. It serves as a
            template: the shared model and each arm's own have its options.
        actions: K, the number of arms at first, or their names.
        embeddings: features of the arms, ``(K, e)``, of which a copy is kept; None for a 1 for each arm. With a column of ones,
            the shared model has both x and its products.
        scaler: a :class:`StandardScaler` of the context with d outputs, shared by the arms; None to use the contexts as
            features.

    Shape:
        - as for :class:`DisjointArms`; ``embeddings``, ``(K, e)``, which a load replaces.
        - ``shared``: the ridge regression of the shared model, :math:`\hat\beta` is ``shared.theta_hat``, ``(*B, k)``.

    Example:
        >>> arms = HybridArms(RidgeRegression(2), actions=2)
        >>> arms.step(torch.eye(2), [0, 1], [1.0, 0.5])
        >>> k = arms.add_actions()
        >>> arms.predict(torch.eye(2))[:, k]  # the shared model's
        tensor([[0.3333],
                [0.1667]], dtype=torch.float64)

    Reference:
        Li, Chu, Langford and Schapire, A contextual-bandit approach to personalized news article recommendation, WWW 2010
        (hybrid LinUCB). What differs: the radius, the noise scales, arms without embeddings, and the update of S by one rank-one
        term instead of two of rank d.
    """

    # TorchScript reads only the annotations of the class itself.
    copied: list[str]
    pooled: list[str]
    gathered: list[tuple[Tensor, dict[str, Tensor]]]
    is_noting: bool
    embeddings: Tensor
    if TYPE_CHECKING:
        arm: OwnRidge
        shared: RidgeRegression

    has_joint_set, of_arms = True, ("embeddings",)
    # Columns of the own features are columns of the products too, but of other numbers.
    _in_columns: Any = None

    def __init__(
        self,
        policy: Rule | Estimator,
        actions: int | Sequence[str],
        *,
        embeddings: ArrayLike | None = None,
        scaler: StandardScaler | None = None,
    ) -> None:
        rule = as_rule("policy", policy)
        check_scores(rule)
        one: Any = rule.estimator
        if type(one) is not RidgeRegression:
            wanted = "expected RidgeRegression, or a rule over it, because the shared model needs its update"
            raise TypeError(f"policy: {wanted}, got {type(one).__name__}")
        if one.restart_every is not None:
            raise ValueError(f"restart_every: expected None, because arms share a model, got {one.restart_every}")
        if embeddings is None:
            rows = one.theta_hat.new_ones(1, 1)
        else:
            rows = check_tensor("embeddings", embeddings, one.theta_hat)
            if rows.dim() != 2 or not rows.size(-1):
                raise ValueError(f"embeddings: expected shape {shape_text(('K', 'e'))}, got {shape_text(rows.shape)}")
        shared_dim = one.dim * rows.size(-1)
        # A template may have been moved.
        place = {"dtype": one.theta_hat.dtype, "device": one.theta_hat.device, "validate": one.validate}
        own = OwnRidge(**{**one._arguments, **place}, shared_dim=shared_dim)
        super().__init__(with_estimator(rule, own), actions, scaler=scaler)
        self.shared = rebuilt(one, dim=shared_dim, **place)
        self.learns_alone = False
        self.has_embeddings = embeddings is not None
        self.register_buffer("embeddings", self._rows_for("embeddings", embeddings, self.actions, rows.size(-1)))
        self.unchanging = (*self.unchanging, "embeddings")  # by steps
        self.multiplications *= 1 + shared_dim // one.dim + (shared_dim // one.dim) ** 2

    def _rest(self, rows: Tensor) -> Tensor:
        """Return the residuals of the shared features on the own ones.

        Shapes: ``(*B, K, ..., 1, d)`` to ``(*B, K, n, k)``; or ``(d)``, one row for all arms, to ``(K, k)``.
        """
        slopes: Tensor = self.policy.estimator.slopes  # type: ignore[assignment]
        if len(rows.shape) == 1:  # on NumPy views
            return products(rows, self.embeddings) - matvec(slopes, rows)
        x = self.policy.estimator.grouped(rows)
        return products(x, self.embeddings[:, None]) - matmul(x, slopes.mT)

    def _joint(self, features: Tensor, with_widths: bool) -> tuple[Tensor, Tensor]:
        """Return predictors and widths: ``(*B, ..., m)`` to ``(*B, K, ..., 1)`` twice."""
        own = self.policy.estimator
        rows = for_each_arm(features, self.batch_dims, own.rounds.shape[-1], self.takes_one_row)
        rest, predictor = self._rest(rows), own.predictor(rows)
        predictor = predictor + self.shared.predictor(rest).reshape(predictor.shape)
        if not with_widths:
            return predictor, predictor
        width, more = own.width(rows), self.shared.width(rest).reshape(predictor.shape)
        return predictor, sqrt(width * width + more * more)

    def _scores(self, features: Tensor) -> Tensor:
        predictor, width = self._joint(features, self.policy.uses_widths)
        return arms_last(self.policy.scores_of(predictor, width), self.batch_dims)

    def _learn_chosen_(self, x: Tensor, place: Tensor, reward: Tensor, noise_scale: Tensor) -> None:
        # Both models may refuse the round, so nothing is written before they have checked it.
        z = products(x, rows_of(self.embeddings, place))
        rest, residual, scale = self.arm.residuals(x, z, reward, noise_scale)
        before = 1.0 * number(self.shared.logdet)
        self.shared._learn_round(rest, residual, scale)
        self.arm.learn_own_(x, rest, reward, noise_scale, number(self.shared.logdet) - before)

    def _start_anew_(self, due: Tensor) -> None:
        self.policy.estimator._forget_(column(due))
        self.shared._forget_(due)

    # TorchScript does not compile the methods below.

    def _template(self) -> Rule:
        options = self.shared._params() | {"dim": self.arm.dim, "validate": self.arm.validate}
        return with_estimator(self.policy, RidgeRegression(**options))

    def _params(self) -> dict[str, Any]:
        found = super()._params()
        del found["most_actions"]  # of separate models
        return found if self.has_embeddings else found | {"embeddings": None}

    def parts(self) -> dict[str, Learner]:
        return super().parts() | {"shared": self.shared}

    @in_turn
    def add_actions(  # type: ignore[override]
        self, actions: int | Sequence[str] = 1, *, embeddings: ArrayLike | None = None
    ) -> list[int]:
        """Add arms at the end, which start at the shared model, and return their ids.

        Args:
            actions: number of new arms; or their names, if the other arms have names. A name is never given twice, not even
                after a removal.
            embeddings: of the new arms, ``(n, e)``, if the other arms have embeddings.

        Raises:
            TypeError, ValueError: an argument is invalid. Nothing has changed.

        Example:
            >>> arms = HybridArms(RidgeRegression(2), actions=2, embeddings=[[1.0, 0.0], [1.0, 2.0]])
            >>> arms.add_actions(embeddings=[[1.0, 1.0]])
            [2]
        """
        added, names = self._added("actions", actions)
        rows = self._rows_for("embeddings", embeddings, added, self.embeddings.size(-1))
        return self._append(added, names, {"embeddings": rows}, {})

    def _means(self, x: Tensor) -> Tensor:
        return arms_last(self._joint(self._features(x), False)[0], self.batch_dims)

    def _bounds(self, x: Tensor) -> tuple[Tensor, Tensor]:
        features, own = self._features(x), self.policy.estimator
        predictor, width = self._joint(features, True)
        middle, error = (arms_last(each, self.batch_dims) for each in (predictor, along(own.radius(), width) * width))
        lengths = torch.linalg.vector_norm(features, dim=-1, keepdim=True)
        bound = own.theta_bound * lengths * sqrt(1.0 + row_dots(self.embeddings, self.embeddings))
        return maximum(middle - error, -bound), minimum(middle + error, bound)

    def _rows_for(self, name: str, embeddings: Any, count: int, size: int) -> Tensor:
        """Return the embeddings of ``count`` arms, ``(count, size)``, or raise."""
        state = self._state()
        if not self.has_embeddings:
            if embeddings is not None:
                raise TypeError(f"{name}: expected None, because the other arms have no embeddings, got a value")
            return state.new_ones(count, 1)
        if embeddings is None:
            raise TypeError(f"{name}: expected those of the new arms, because the others have embeddings, got None")
        rows = check_tensor(name, embeddings, state)
        if rows.shape != (count, size):
            raise ValueError(f"{name}: expected shape {shape_text((count, size))}, got {shape_text(rows.shape)}")
        if self.validate and is_readable(rows):
            check_values(name, rows)
        return rows.detach().clone(memory_format=torch.contiguous_format)


def _products_of_arrays(x: Any, rows: Any) -> Any:
    found = x[..., :, None] * rows[..., None, :]
    return found.reshape(*found.shape[:-2], -1)


@on_arrays(_products_of_arrays)
def products(x: Tensor, rows: Tensor) -> Tensor:
    """Return all products: ``(..., d)`` and ``(..., e)`` to ``(..., d e)``."""
    return (x.unsqueeze(-1) * rows.unsqueeze(-2)).flatten(-2)
