"""OFUL-MLogB for several outcomes: a multinomial logistic bandit."""

import math
from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
import torch
from torch import Tensor

from torchonline.core import checks
from torchonline.core.all_or_nothing import one_at_a_time
from torchonline.core.backend import autocasts, exactly, is_readable
from torchonline.core.checks import check_shape, check_values, shape_text
from torchonline.core.inputs import ArrayLike, array_of, as_indices, check_mask, check_tensor
from torchonline.core.learner import Learner
from torchonline.core.ops import assign_, dot, matvec, of_chosen
from torchonline.core.options import LearnerOptions
from torchonline.core.precision_matrix import (
    add_outer_,
    increase_compensated_,
    is_time_to_refine,
    outer,
    refine_,
    start_of,
)
from torchonline.linalg import no_longer, project_ball_
from torchonline.regression.arguments import as_actions

# Number of nodes of a round's prior over the logits, even.
NODES = 128

# The exponential of a larger number would overflow in float32.
LARGEST_LOGIT = 80.0


class MultinomialLogisticBandit(Learner):
    r"""OFUL-MLogB: optimism about the revenue of one of several outcomes.

    Action x has the outcome k of 0, ..., K with probability :math:`\mu_k(z) = e^{z_k}/\sum_j e^{z_j}`, where :math:`z_0 = 0` and
    :math:`(z_1, \dots, z_K) = W^*x`. Outcome k pays ``revenues[k]``, :math:`\rho_k`. A round, from :math:`V = \lambda I` on
    matrices of the shape of W, with :math:`A(z) = \text{diag}(\mu) - \mu\mu^\top` over the outcomes from 1 on, and the coordinate
    vector :math:`e_y` of the outcome (0 for y = 0):

    .. math:: \tilde V &= V + \eta\,A(\hat Wx)\otimes xx^\top \\
              \hat W &\leftarrow \Pi_{\|W\|_F\le S}\bigl(\hat W - \eta\,\tilde V^{-1}(\mu(\hat Wx) - e_y)\otimes x\bigr) \\
              V &\leftarrow V + A(\hat Wx)\otimes xx^\top \qquad\text{(at the new estimate)}

    with the projection in the norm of :math:`\tilde V`. With ``step_size="paper"``, :math:`\eta = \tfrac12\log(K+1) + LS + 1`;
    with "tight" it is the smaller number that the proof requires. ``select`` plays the action with the largest upper bound of its
    expected revenue :math:`\rho^\top\mu(W^*x)`. With :math:`\beta` = ``radius()``,
    :math:`G = (I\otimes x^\top)V^{-1}(I\otimes x)` and :math:`z = \hat Wx`, the bound is the smaller of two:

    .. math:: \rho^\top\mu(z) + \beta\,\|A(z)(\rho_{1..K}-\rho_0)\|_G + \tfrac18\beta^2(\max\rho-\min\rho)
              \max_{j<k}\,(e_j - e_k)^\top G(e_j - e_k), \qquad e_0 = 0,

    and the largest :math:`\rho^\top\mu(z')` with :math:`|z'_k - z_k| \le \beta\sqrt{G_{kk}}`. The first has the shape of the
    paper's bonus of second order, and its constants are smaller. The second keeps the bound within the revenues.

    Guarantee. If outcomes have these probabilities given the past, :math:`\|x\| \le L` and :math:`\|W^*\|_F \le S`, then with
    probability at least 1 - ``delta``, for all rounds at once, :math:`\|\hat W - W^*\|_V \le` ``radius()``; and then all bounds
    in ``select`` and ``interval`` hold. The guarantee covers any ``ridge``, and any choice of actions that depends on the past.
    Proof: docs/generalized_linear_theory.md. No regret bound is proved for this radius.

    ``misspecified`` becomes True when the squared radius falls below 0, which has probability ``delta`` at most if the
    assumptions hold.

    This learner is not an :class:`~torchonline.regression.estimator.Estimator`: its matrix covers K d parameters, its width is
    not one number, and its rounds have outcomes instead of rewards. The policies over estimators therefore do not accept it. It
    runs in eager Python only.

    Cost of a round: O(K^3 d^2) time, two matrices of K d x K d (three in float32), ``NODES`` exponentials for each outcome;
    O(K^3 d^3) in a round that leaves the ball. A choice costs O(K^2 d^2 + K^2) for each action.

    Args:
        dim: d, number of features.
        revenues: the payment of each outcome, K + 1 numbers with K > 0, the first for outcome 0.
        theta_bound: S > 0, a bound on the Frobenius norm of :math:`W^*`. Too large costs regret; too small voids the guarantee.
        feature_bound: L > 0, a bound on the norm of features. ``step`` refuses longer ones.
        ridge: :math:`\lambda`, at least a millionth of L^2; None for d.
        delta: probability in (0, 1) that the confidence set ever fails.
        step_size: "tight" or "paper", for :math:`\eta`. The same proof covers both.
        radius_scale: multiplies the radius. Other than 1 it is a heuristic.
        batch_shape, dtype, device, validate: options of all learners, see :class:`~torchonline.core.learner.Learner`. The proof
            is for float64.

    Shape:
        - ``theta_hat``, ``(*B, K, d)``; ``V``, ``V_inv``, ``(*B, K d, K d)``, in the order of ``theta_hat.flatten()``;
          ``squared_radius``, ``misspecified`` (bool), ``rounds``, ``(*B)``.

    Example:
        >>> bandit = MultinomialLogisticBandit(2, revenues=(0.0, 0.5, 1.0))  # leaves, clicks, buys
        >>> arms = torch.eye(2)
        >>> for _ in range(50):
        ...     bandit.step(arms, 0, 2)  # the first sells
        ...     bandit.step(arms, 1, 1)  # the second is clicked
        >>> bandit.select(arms)
        tensor(0)

    Reference:
        Zhang and Sugiyama, Online (Multinomial) Logistic Bandit: Improved Regret and Constant Computation Cost, NeurIPS 2023.
        What differs: the radius, which sums the costs of the rounds, as in :class:`~torchonline.GLMRegression`, and was not
        compared with the paper's; the smaller bonus; the default :math:`\eta` and ridge; features of any length. Recalled: the
        paper's :math:`\eta`, which the proof covers, and the update. The program OFUL_MLogB.py of
        tanmaygoyal258/MNL_Limited_Adaptivity (GitHub), of other authors, has the same update except for its projection, and the
        same bonus except for a factor of 3 in the second order and its norms. Its constants differ; one of them is twice our
        recalled :math:`\eta`.
    """

    if TYPE_CHECKING:  # an annotation of None would hide the buffers
        V_lost: Tensor | None
        squared_radius_lost: Tensor | None
    theta_hat: Tensor
    V: Tensor
    V_inv: Tensor
    squared_radius: Tensor
    misspecified: Tensor
    rounds: Tensor
    payoff: Tensor
    nodes: Tensor
    threshold_signs: Tensor

    is_exportable, is_scriptable = False, False
    statistics_depend_on = ("theta_bound", "eta", "ridge", "delta")
    argument_of = {"eta": "step_size"}
    positive_definite = ("V", "V_inv")
    inverses = (("V", "V_inv"),)

    def __init__(
        self,
        dim: int,
        revenues: Sequence[float],
        *,
        theta_bound: float = 1.0,
        feature_bound: float = 1.0,
        ridge: float | None = None,
        delta: float = 0.01,
        step_size: str = "tight",
        radius_scale: float = 1.0,
        **options: Unpack[LearnerOptions],
    ) -> None:
        super().__init__(dim, **options)
        self.revenues = _checked_revenues(revenues)
        self.outcomes = len(self.revenues)
        dtype = self._initial_options["dtype"]
        self.theta_bound = checks.positive_size("theta_bound", theta_bound, dtype)
        self.feature_bound = checks.positive_size("feature_bound", feature_bound, dtype)
        self.ridge = checks.positive_size("ridge", self.dim if ridge is None else ridge, dtype)
        bound, least = self.theta_bound * self.feature_bound, 1e-6 * self.feature_bound**2
        if bound > LARGEST_LOGIT:
            most = LARGEST_LOGIT / self.feature_bound
            raise ValueError(f"theta_bound: expected at most {most:g}, a logit of {LARGEST_LOGIT:g}, got {theta_bound}")
        if self.ridge < least:
            raise ValueError(f"ridge: expected at least 1e-6 times feature_bound^2, {least:g}, got {self.ridge:g}")
        self.delta = checks.within("delta", delta, 0.0, 1.0)
        self.radius_scale = checks.positive("radius_scale", radius_scale)
        self.step_size = checks.one_of("step_size", step_size, ("tight", "paper"))
        is_tight = step_size == "tight"
        self.eta = tight_step_size(self.outcomes, bound) if is_tight else 0.5 * math.log(self.outcomes) + bound + 1.0
        self.compensated = dtype == torch.float32
        self._create_buffers()

    def _initial_state(self) -> dict[str, Tensor | None]:
        zero = torch.zeros((), dtype=torch.float64)
        start = self.ridge * self.theta_bound**2 - 2.0 * self.eta * math.log(self.delta)
        logits = self.outcomes - 1
        theta_hat = torch.zeros((logits, self.dim), dtype=torch.float64)
        V = start_of(logits * self.dim, self.ridge, "V", self.compensated)
        return (
            {"theta_hat": theta_hat}
            | V
            | {
                "squared_radius": zero + start,
                "squared_radius_lost": zero if self.compensated else None,
                "misspecified": torch.tensor(False),
                "rounds": torch.zeros((), dtype=torch.int64),
            }
        )

    def _tables(self) -> dict[str, Tensor]:
        payoff = torch.tensor(self.revenues, dtype=torch.float64)
        # For each j, the logits of the j most lucrative outcomes are at their upper ends.
        place = payoff.argsort(descending=True).argsort()
        is_high = place < torch.arange(self.outcomes + 1).unsqueeze(-1)
        return {
            "payoff": payoff,
            "nodes": torch.from_numpy(normal_nodes(self.outcomes - 1)),
            "threshold_signs": torch.where(is_high, 1.0, -1.0).to(torch.float64),
        }

    def radius(self) -> Tensor:
        """Return the confidence radius times ``radius_scale``: ``(*B)``."""
        return self.radius_scale * self.squared_radius.clamp(min=0.0).sqrt()

    @one_at_a_time
    def outcome_probabilities(self, inputs: ArrayLike) -> Tensor:
        """Estimate all probabilities: ``(*B, ..., d)`` to ``(*B, ..., K + 1)``."""
        x = self._checked_rows("inputs", inputs, 1)
        with exactly(x) if autocasts(x) else nullcontext():
            return _probabilities(self._logits(x)).reshape(x.shape[:-1] + (self.outcomes,))

    @one_at_a_time
    def forward(self, inputs: ArrayLike) -> Tensor:
        """Return the estimated expected revenue: ``(*B, ..., d)`` to ``(*B, ...)``."""
        x = self._checked_rows("inputs", inputs, 1)
        with exactly(x) if autocasts(x) else nullcontext():
            return (_probabilities(self._logits(x)) @ self.payoff).reshape(x.shape[:-1])

    @one_at_a_time
    def interval(self, inputs: ArrayLike) -> tuple[Tensor, Tensor]:
        """Bound the expected revenue: ``(*B, ..., d)`` to ``(*B, ...)`` twice."""
        x = self._checked_rows("inputs", inputs, 1)
        with torch.no_grad(), exactly(x) if autocasts(x) else nullcontext():
            low, high = self._bounds(x.detach())
            return low.reshape(x.shape[:-1]), high.reshape(x.shape[:-1])

    @one_at_a_time
    def select(self, inputs: ArrayLike, mask: ArrayLike | None = None) -> Tensor:
        """Return the action with the largest upper bound: an index, int64, ``(*B, ...)``.

        The state does not change. Ties go to the lowest index.

        Args:
            inputs: the actions' features, ``(*B, ..., n, d)``: one decision among n actions, or many, made from the same state.
            mask: True where an action is available, ``(*B, ..., n)``.
        """
        x = self._checked_rows("inputs", inputs, 2)
        if mask is not None:
            mask = check_mask("mask", mask, x.shape[:-1], x, self.validate)
        if self.validate and is_readable(x):
            check_values("inputs", x)
        with torch.no_grad(), exactly(x) if autocasts(x) else nullcontext():
            scores = self._bounds(x.detach())[1].reshape(x.shape[:-1])
            return (scores if mask is None else scores.masked_fill(~mask, -math.inf)).argmax(-1)

    @one_at_a_time
    def step(self, inputs: ArrayLike, action: ArrayLike, outcome: ArrayLike) -> None:
        """Learn from the outcomes of decisions, in order.

        Args:
            inputs: the actions' features, ``(*B, n, d)`` as :meth:`select` takes them; or ``(*B, N, n, d)`` for N rounds.
            action: the chosen action, int64, ``(*B)`` or ``(*B, N)``.
            outcome: index from 0 to K, int64, shaped like ``action``.

        Raises:
            TypeError: ``inputs`` does not hold real numbers, or ``action`` or ``outcome`` no integers.
            ValueError: a shape, device or value is wrong. No buffer has changed.
        """
        features = self._checked_rows("inputs", inputs, 2)
        if features.dim() > self.batch_dims + 3:
            wanted = [shape_text((*self.batch_shape, *more, "n", self.dim)) for more in ((), ("N",))]
            raise ValueError(f"inputs: expected shape {' or '.join(wanted)}, got {shape_text(features.shape)}")
        is_one, count = features.dim() == self.batch_dims + 2, features.size(-2)
        x = of_chosen(features, as_actions(action, features.shape[:-2], features.device, count, self.validate))
        index = as_indices("outcome", outcome, self.theta_hat.device)
        check_shape("outcome", index, x.shape[:-1])
        if index.device != x.device:
            raise ValueError(f"outcome: expected a tensor on {x.device}, got one on {index.device}")
        if self.validate and is_readable(x) and x.numel():
            check_values("inputs", x)
            longest = float(torch.linalg.vector_norm(x.detach(), dim=-1).max())
            if longest > self.feature_bound * (1.0 + 1e-6):
                allowed = f"{self.feature_bound:g}, the feature_bound"
                raise ValueError(
                    f"inputs: expected features of norm at most {allowed}, got {longest:.9g}; scale the features"
                )
            is_bad = (index < 0) | (index >= self.outcomes)
            if bool(is_bad.any()):
                worst = int(index[is_bad][0])
                raise ValueError(f"outcome: expected indices from 0 to {self.outcomes - 1}, got {worst}")
        # Copies, because the rows may share memory with buffers that learning changes.
        x, index, rows = x.detach().clone(), index.clone(), self.batch_dims
        rounds = [(x, index)] if is_one else list(zip(x.unbind(rows), index.unbind(rows), strict=True))
        with torch.no_grad(), exactly(x) if autocasts(x) else nullcontext():
            self._run(None, self._learn_round, rounds)

    def _learn_round(self, x: Tensor, outcome: Tensor) -> None:
        """Learn from one outcome of each learner: ``(*B, d)`` and ``(*B)``."""
        eta, batch, V = self.eta, list(x.shape[:-1]), self.V
        logits = self.outcomes - 1
        theta = self.theta_hat.reshape([*batch, -1])
        seen = torch.nn.functional.one_hot(outcome, self.outcomes)[..., 1:].to(x.dtype)
        identity = torch.eye(logits, dtype=x.dtype, device=x.device)

        # The logits, and their law N(z, G) according to the statistics.
        z = matvec(self.theta_hat, x)
        blocks = self.V_inv.reshape([*batch, logits, self.dim, logits, self.dim])
        product = torch.einsum("...kdle,...e->...kdl", blocks, x)
        G = torch.einsum("...kdl,...d->...kl", product, x)
        product = product.reshape([*batch, logits * self.dim, logits])

        # Eq. (42) of GLB-OMD with a Hessian of K x K numbers, at the old estimate.
        before = _probabilities(z)[..., 1:]
        curvature = eta * _curvature(before)
        pull = torch.linalg.solve(identity + curvature @ G, (before - seen).unsqueeze(-1)).squeeze(-1)
        moved = (theta - eta * matvec(product, pull)).contiguous()
        square = outer(x, x)
        norm = torch.einsum("...kl,...de->...kdle", curvature, square).reshape(V.shape) + V
        project_ball_(moved, norm, self.theta_bound, self.validate)

        # The cost of the round, for any true parameter in the ball.
        y = matvec(moved.reshape(self.theta_hat.shape), x)
        after = _probabilities(y)
        move = moved - theta
        force = matvec(V, move)
        rest = outer(after[..., 1:] - seen, x).reshape(theta.shape) + force / eta
        slack = dot(rest, moved) + self.theta_bound * dot(rest, rest).sqrt()
        cost = 2.0 * eta * (self._regret_of_mixture(z, G, y, x, outcome) + slack) - dot(move, force)

        # A(y) is the sum of p_k (e_k - p)(e_k - p)' over all outcomes.
        full = torch.eye(self.outcomes, dtype=x.dtype, device=x.device)[:, 1:]
        for k in range(self.outcomes):
            centred = after[..., k : k + 1].sqrt() * (full[k] - after[..., 1:])
            a = outer(centred, x).reshape(theta.shape)
            product = matvec(self.V_inv, a)
            add_outer_((V, self.V_inv, self.V_lost), a, product, dot(a, product))
        self.rounds += 1
        if is_time_to_refine(self.rounds):
            refine_((V, self.V_inv, self.V_lost), self.rounds)
        assign_(self.theta_hat, moved.reshape(self.theta_hat.shape))
        increase_compensated_(self.squared_radius, self.squared_radius_lost, cost)
        self.misspecified |= self.squared_radius < 0.0

    def _regret_of_mixture(self, z: Tensor, G: Tensor, y: Tensor, x: Tensor, outcome: Tensor) -> Tensor:
        """Return the loss under the prior N(z, G), on nodes, minus the loss at y."""
        values, vectors = torch.linalg.eigh(G)
        root = (vectors * values.clamp(min=0.0).sqrt().unsqueeze(-2)) @ vectors.mT
        node = z.unsqueeze(-2) + self.nodes @ root
        bound = self.theta_bound * dot(x, x).sqrt().unsqueeze(-1)
        at_nodes = _of_outcome(
            _log_probabilities(no_longer(node, bound)), outcome.unsqueeze(-1).expand(node.shape[:-1])
        )
        at_y = _of_outcome(_log_probabilities(y), outcome)
        return at_y - (torch.logsumexp(at_nodes, -1) - math.log(NODES))

    def _checked_rows(self, name: str, x: Any, item_dims: int) -> Tensor:
        """Return features ``(*B, ..., d)``, or actions ``(*B, ..., n, d)``, as a tensor."""
        x = check_tensor(name, x, self.theta_hat)
        rows = self.batch_dims
        is_short = x.dim() < rows + item_dims or (item_dims == 2 and x.size(-2) == 0)
        if is_short or x.size(-1) != self.dim or x.shape[:rows] != self.batch_shape:
            wanted = shape_text((*self.batch_shape, "...", *["n"] * (item_dims - 1), self.dim))
            raise ValueError(f"{name}: expected shape {wanted}, got {shape_text(x.shape)}")
        return x

    def _grouped(self, x: Tensor) -> Tensor:
        return x.reshape([*self.batch_shape, -1, self.dim])

    def _logits(self, x: Tensor) -> Tensor:
        """Return the estimated logits: ``(*B, ..., d)`` to ``(*B, n, K)``."""
        return self._grouped(x) @ self.theta_hat.mT

    def _bounds(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Bound the expected revenue: ``(*B, ..., d)`` to ``(*B, n)`` twice."""
        rows, z, logits = self._grouped(x), self._logits(x), self.outcomes - 1
        blocks = self.V_inv.reshape([*self.batch_shape, logits, self.dim, logits, self.dim])
        G = torch.einsum("...nd,...kdle,...ne->...nkl", rows, blocks, rows)
        radius = self.radius()[..., None]
        p = _probabilities(z)
        mean = p @ self.payoff

        # The second-order bound. For outcome 0, whose logit is 0, G has a row and a column of zeros.
        slope = p[..., 1:] * (self.payoff[1:] - mean.unsqueeze(-1))  # A(z)(rho - rho_0)
        first = radius * dot(matvec(G, slope), slope).clamp(min=0.0).sqrt()
        G = torch.nn.functional.pad(G, (1, 0, 1, 0))
        square = G.diagonal(dim1=-2, dim2=-1)
        spread = (square.unsqueeze(-1) + square.unsqueeze(-2) - G - G.mT).flatten(-2).amax(-1)
        span = max(self.revenues) - min(self.revenues)
        bonus = first + 0.125 * span * radius * radius * spread

        # The extremes over a box of logits have the most lucrative outcomes at one end, and the others at the other.
        error = (radius.unsqueeze(-1) * square.clamp(min=0.0).sqrt()).unsqueeze(-2)
        centre = torch.nn.functional.pad(z, (1, 0)).unsqueeze(-2)
        highest = (torch.softmax(centre + self.threshold_signs * error, -1) @ self.payoff).amax(-1)
        lowest = (torch.softmax(centre - self.threshold_signs * error, -1) @ self.payoff).amin(-1)
        return torch.maximum(mean - bonus, lowest), torch.minimum(mean + bonus, highest)


def tight_step_size(outcomes: int, bound: float) -> float:
    r"""Return a step size that is large enough for logits of a norm up to ``bound``.

    It is :math:`\eta` with :math:`\|b - y\|^2_{A(y)} \le 2\eta D(b, y)` for all such logits b and y, where D is the divergence of
    the log-partition. With a bound B of :math:`\log(\mu_k(y)/\mu_k(b))` it is :math:`B^2/(2(e^{-B} - 1 + B))`. Proof:
    docs/generalized_linear_theory.md.
    """
    logits = outcomes - 1
    norm = math.sqrt(1.0 + (logits - 1.0) / logits**2)
    least = math.log1p(logits * math.exp(-bound * norm))
    if logits == 1:
        most = math.log1p(math.exp(bound))
    else:
        step = 0.5 * math.pi / 4000.0
        angle = step * np.arange(4001)
        of_k, of_others = bound * np.cos(angle), bound * np.sin(angle)
        total = np.exp(of_k) * (1.0 + _largest_sum(logits - 1, of_others))
        most = max(float(np.log1p(total).max()), float(np.log1p(_largest_sum(logits, np.float64(bound)))))
        most += math.sqrt(0.5) * bound * step  # half a step of the grid
    ratio = most - least
    return 1.0 + 0.5 * ratio if ratio < 0.01 else 0.5 * ratio**2 / (math.expm1(-ratio) + ratio)


def _largest_sum(count: int, norm: Any) -> Any:
    """Bound the sum of ``count`` exponentials of a vector of this norm."""
    return count + math.sqrt(count) * norm + np.expm1(norm) - norm


def normal_nodes(dim: int) -> np.ndarray:
    """Return points of about a normal law, ``(NODES, dim)``, in opposite pairs.

    They are a lattice of the generalised golden ratio g, :math:`g^{dim+1} = g + 1`, through the quantiles of the law.
    """
    ratio = 1.5
    for _ in range(64):
        ratio = (1.0 + ratio) ** (1.0 / (dim + 1.0))
    count = np.arange(1.0, NODES // 2 + 1.0)[:, None]
    lattice = (0.5 + count * ratio ** -np.arange(1.0, dim + 1.0)) % 1.0
    half = math.sqrt(2.0) * torch.erfinv(torch.from_numpy(2.0 * lattice - 1.0)).numpy()
    return np.concatenate([half, -half])


def _checked_revenues(revenues: Any) -> tuple[float, ...]:
    """Return at least two finite numbers as floats, or raise."""
    wanted = "a sequence of at least two numbers, one for each outcome"
    if isinstance(revenues, (str, bytes)) or not isinstance(revenues, (Sequence, np.ndarray, Tensor)):
        raise TypeError(f"revenues: expected {wanted}, got {type(revenues).__name__}")
    array = array_of("revenues", revenues.tolist() if isinstance(revenues, Tensor) else revenues, wanted)
    if array.ndim != 1 or len(array) < 2:
        raise ValueError(f"revenues: expected {wanted}, got shape {shape_text(array.shape)}")
    return tuple(checks.finite_number("revenues", value) for value in array.tolist())


def _log_probabilities(z: Tensor) -> Tensor:
    """Return log-probabilities of all outcomes: ``(..., K)`` to ``(..., K + 1)``."""
    return torch.log_softmax(torch.nn.functional.pad(z, (1, 0)), -1)


def _probabilities(z: Tensor) -> Tensor:
    """Return probabilities of all outcomes: logits ``(..., K)`` to ``(..., K + 1)``."""
    return torch.softmax(torch.nn.functional.pad(z, (1, 0)), -1)


def _curvature(p: Tensor) -> Tensor:
    """Return ``diag(p) - pp'``: ``(..., K)`` to ``(..., K, K)``."""
    return torch.diag_embed(p) - outer(p, p)


def _of_outcome(values: Tensor, outcome: Tensor) -> Tensor:
    """Return the entries of outcomes: ``(..., K + 1)`` and ``(...)`` to ``(...)``."""
    return values.gather(-1, outcome.unsqueeze(-1)).squeeze(-1)
