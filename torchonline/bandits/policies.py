"""Policies: how an estimator's mean and uncertainty become a choice."""

import functools
import inspect
import math
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Unpack

import numpy as np
import torch
from torch import Tensor

from torchonline.bandits.arguments import OWNER, checked_rows, on_rows, plain_arms
from torchonline.bandits.blocks import has_own_step, learn_by_step
from torchonline.bandits.default_estimator import PolicySignature, RidgeOptions, estimator_or_default
from torchonline.bandits.estimator import Estimator
from torchonline.core.backend import SMALL_PRODUCT, as_array, in_python, is_readable
from torchonline.core.checks import check_array, check_values, positive_integer
from torchonline.core.citations import Citable
from torchonline.core.delegated import WithDelegated, delegated
from torchonline.core.inputs import ArrayLike, check_mask
from torchonline.core.ops import along, matmul, roundoff, trace
from torchonline.core.options import described, differs, is_ours
from torchonline.core.stepping import one_at_a_time
from torchonline.core.views import NumpyView, plain_twin
from torchonline.linalg import add_diagonal

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    E = TypeVar("E", bound=Estimator, default=Estimator, covariant=True)
else:
    from typing import TypeVar

    E = TypeVar("E", bound=Estimator, covariant=True)
P = ParamSpec("P")
F = TypeVar("F", bound=Callable[..., Any])


def takes_arguments_of(
    estimator: Callable[P, Estimator],
) -> Callable[[Callable[..., None]], Callable[Concatenate[Any, P], None]]:
    """Decorate a policy's ``__init__`` that passes its arguments on to an estimator.

    The method gets the signature of the estimator's constructor. The class documents the arguments.
    """
    signature = inspect.signature(estimator)
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)

    def decorate(method: Callable[..., None]) -> Callable[Concatenate[Any, P], None]:
        @functools.wraps(method)
        def construct(self: Any, *arguments: Any, **options: Any) -> None:
            try:
                signature.bind(*arguments, **options)
            except TypeError as error:
                raise TypeError(f"{type(self).__name__}() {error}") from None
            method(self, *arguments, **options)

        construct.__signature__ = signature.replace(parameters=[own, *signature.parameters.values()])  # type: ignore[attr-defined]
        return construct

    return decorate


@cache
def _options_of(cls: Any) -> frozenset[str]:
    """Return the options that a policy of the library passes on to its estimator.

    A user's constructor may pass on other values, and keep its own under the same names.
    """
    names = inspect.signature(cls).parameters if is_ours(cls.__init__) else ()
    return frozenset(names) - {"estimator"}


def on_arms(forward: F) -> F:
    """Decorate a policy's scores: check the arms, and compute without autocast."""
    decorated: Any = on_rows(forward, "arms", OWNER)
    return decorated


class Policy(Citable, WithDelegated, Generic[E]):
    """Base of all policies: play the arm that scores highest by an estimator.

    A subclass says how arms are scored, in :meth:`forward`, decorated with ``on_arms``. One that draws its choices from the
    scores says with which probabilities, in :meth:`distribution`, and sets ``is_random``.

    Args:
        estimator: any :class:`~torchonline.bandits.estimator.Estimator` of one response, with the ``batch_shape`` ``*B``; or d,
            the number of features, for :class:`~torchonline.RidgeRegression`.
        dim: d, in place of ``estimator``.
        noise_scale, theta_bound, ridge, delta, radius, radius_scale, restart_every, batch_shape, dtype, device, validate: as in
            :class:`~torchonline.RidgeRegression`, beside a number of features only.
    """

    if TYPE_CHECKING:  # TorchScript knows no such annotation
        estimator: E

        def __call__(self, arms: ArrayLike) -> Tensor: ...

    # True in the stand-ins that compute on NumPy arrays.
    is_view = False
    # Whether choices are drawn from `distribution`, not the arms with the highest scores.
    is_random = False
    # Whether `scores_of` uses the widths.
    uses_widths = True
    # Draws of the scores that `probabilities` averages over, where scores are random.
    draws = 1
    # Whether a subclass has a step of its own, which `learn` then calls.
    has_own_step = False
    # Why it was recommended, for its repr.
    note = ""
    __constants__ = ("is_random", "draws")
    __signature__ = PolicySignature()

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.has_own_step = has_own_step(cls)

    # Editors show this for every subclass, where a constructor is called; without it, that of nn.Module.
    def __init__(self, estimator: E | int | None = None, **options: Unpack[RidgeOptions]) -> None:
        """Build it; the docstring of the class explains the arguments."""
        super().__init__()
        self.estimator = estimator_or_default(type(self).__name__, estimator, options)

    def __setattr__(self, name: str, value: Any) -> None:
        cls: Any = type(self)
        # An option that the constructor has passed on to the estimator would have no effect on the policy.
        estimator = vars(self).get("_modules", {}).get("estimator")
        theirs = {} if estimator is None else vars(estimator)
        if name in theirs and name in _options_of(cls) and differs(value, theirs[name]):
            wanted = f"expected {theirs[name]!r}, the estimator's"
            raise AttributeError(f"{name}: {wanted}, got {value!r}; construct another {cls.__name__}")
        super().__setattr__(name, value)

    def extra_repr(self) -> str:
        return f"# {self.note}" if self.note else ""

    def forward(self, arms: Tensor) -> Tensor:
        """Return the score of each arm: ``(*B, ..., K, d)`` to ``(*B, ..., K)``."""
        raise NotImplementedError

    # TorchScript compiles none of these, and files have none of them.

    @delegated
    def dim(self) -> int:
        """The estimator's number of features, d. Python only."""
        return self.estimator.dim

    @delegated
    def batch_shape(self) -> tuple[int, ...]:
        """The estimator's ``*B``: policies in one module. Python only."""
        return self.estimator.batch_shape

    @delegated
    def rounds(self) -> Tensor:
        """The estimator's count of rounds, ``(*B)``. Python only."""
        return self.estimator.rounds

    @delegated
    def theta_hat(self) -> Tensor:
        """The estimator's parameter, ``(*B, d)``. Python only."""
        return self.estimator.theta_hat

    def predict(self, arms: ArrayLike) -> Tensor:
        """Return the estimated mean reward of each arm.

        Shapes: ``(*B, ..., K, d)`` to ``(*B, ..., K)``. This is ``policy.estimator(arms)``, differentiable in the arms.
        ``policy(arms)`` returns scores instead, by which arms are chosen: they may hold a bonus for uncertainty or a random draw,
        and with a link they may be predictors instead of means. Python only.
        """
        return self.estimator(checked_rows(self.estimator, arms, "arms"))

    def interval(self, arms: ArrayLike) -> tuple[Tensor, Tensor]:
        """Return lower and upper confidence bounds of each arm's mean reward.

        Shapes: ``(*B, ..., K, d)`` to ``(*B, ..., K)`` twice. This is ``policy.estimator.interval(arms)``, cut to what
        ``theta_bound`` allows. The label of :meth:`plot_confidence` says whether a theorem covers the bounds. Python only.
        """
        return self.estimator.interval(checked_rows(self.estimator, arms, "arms"))

    def reset(self) -> None:
        """Put the estimator back to its first state, in place. Python only."""
        self.estimator.reset()

    def scores_of(self, predictor: Tensor, width: Tensor) -> Tensor:
        """Return the scores of arms with known predictors and widths: ``(*B, K)`` thrice.

        They are those of :meth:`forward`. :class:`~torchonline.bandits.fixed_arms.FixedArms` needs this method.
        """
        raise NotImplementedError

    def distribution(self, scores: Tensor, rounds: Tensor) -> Tensor:
        """Return the probability of each arm, given the scores: ``(*B, ..., K)`` twice.

        The scores of unavailable arms are -inf. ``rounds``, ``(*B)``, counts the rounds before the decision.
        """
        return one_hot(scores)

    def choice(self, scores: Tensor, rounds: Tensor) -> Tensor:
        """Return the chosen arm of each decision: ``(*B, ..., K)`` to ``(*B, ...)``."""
        if self.is_random:
            return drawn(self.distribution(scores, rounds))
        return scores.argmax(-1)

    @partial(one_at_a_time, owner=OWNER)
    def _select_in_python(self, arms: ArrayLike, mask: ArrayLike | None = None) -> Tensor:
        estimator: Any = self._modules["estimator"]
        forward: Any = type(self).forward if "forward" not in self.__dict__ else None
        # The scores of a subclass or an instance may call torch.
        is_on_arrays = forward in ON_ARRAYS
        view = estimator.view_for(arms) if is_on_arrays else None
        if view is not None and mask is None:
            rows = plain_arms(view.learner, arms)
            if rows is not None and rows.size * estimator.dim < SMALL_PRODUCT:
                return self._choice_of_arrays(view, rows, None)
        arms = checked_rows(estimator, arms, "arms", True)
        if mask is not None:
            mask = check_mask("mask", mask, arms.shape[:-1], arms, estimator.validate)
        if view is None and is_on_arrays:
            view = estimator.view_for(arms)
        if view is not None and arms.numel() * estimator.dim < SMALL_PRODUCT:
            rows = as_array(arms)
            if estimator.validate:
                check_array("arms", rows)
            return self._choice_of_arrays(view, rows, mask)
        if estimator.validate and is_readable(arms):
            check_values("arms", arms)
        with torch.no_grad():
            arms = arms.detach() if mask is None else self._arms_to_score(arms.detach(), mask)
            of_checked = getattr(forward, "of_checked", None)
            scores = of_checked(self, arms) if of_checked else self.forward(arms)
            return self.choice(scores if mask is None else scores.masked_fill(~mask, -math.inf), estimator.rounds)

    @torch.jit.export
    @in_python(_select_in_python)
    def select(self, arms: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the index of the chosen arm of each decision: int64, ``(*B, ...)``.

        Changes no state. Of equal scores the lowest index is chosen, but rounding may tell the scores of equal arms apart. So
        until a first reward is learnt, a policy that does not draw may choose index 0 in all decisions of a batch.

        Args:
            arms: features, ``(*B, ..., K, d)``: one decision, or many, made from the same state.
            mask: True where an arm is available, ``(*B, ..., K)``, or ``(K)`` for all decisions. The features of an unavailable
                arm must be finite too.

        Raises:
            TypeError: ``arms`` holds no real numbers or is a tensor of integers, or ``mask`` holds no booleans.
            ValueError: a shape, device or value is wrong, or a decision has no available arm.
        """
        with torch.no_grad():
            scores = self.forward(arms.detach())
            if mask is not None:
                scores = scores.masked_fill(~mask, -math.inf)
            return self.choice(scores, self.estimator.rounds)

    @partial(one_at_a_time, owner=OWNER)
    def _probabilities_in_python(self, arms: ArrayLike, mask: ArrayLike | None = None) -> Tensor:
        estimator: Any = self._modules["estimator"]
        arms = checked_rows(estimator, arms, "arms", True)
        if estimator.validate and is_readable(arms):
            check_values("arms", arms)
        if mask is not None:
            mask = check_mask("mask", mask, arms.shape[:-1], arms, estimator.validate)
            arms = self._arms_to_score(arms, mask)
        with torch.no_grad():
            return self._mixture(arms.detach(), mask)

    @torch.jit.export
    @in_python(_probabilities_in_python)
    def probabilities(self, arms: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the probability with which each arm is chosen, ``(*B, ..., K)``.

        Changes no state. A policy without random draws has probabilities of 0 and 1. Where the scores are random
        (:class:`ThompsonSampling`), the probabilities are estimates. Arguments and errors are those of :meth:`select`.
        """
        with torch.no_grad():
            return self._mixture(arms.detach(), mask)

    def _decide_in_python(self, arms: ArrayLike, mask: ArrayLike | None = None) -> tuple[Tensor, Tensor]:
        return drawn_with_probability(self.probabilities(arms, mask))

    @torch.jit.export
    @in_python(_decide_in_python)
    def decide(self, arms: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Choose an arm in each decision, and return its probability too, for a log.

        Changes no state. The index, int64 ``(*B, ...)``, is drawn from :meth:`probabilities`. So the probability,
        ``(*B, ...)``, is that of this very draw, also where it is an estimate of :meth:`select`'s: weighting by its inverse is
        unbiased. Arguments and errors are those of :meth:`select`.
        """
        return drawn_with_probability(self.probabilities(arms, mask))

    def plot_confidence(
        self,
        arms: ArrayLike,
        ax: Any = None,
        *,
        names: Sequence[str] | None = None,
        mask: ArrayLike | None = None,
        index: Any = None,
        label: str | None = None,
    ) -> tuple[Any, Any]:
        """Draw each arm's estimated mean reward and its confidence interval.

        The intervals are those of the estimator, :meth:`Estimator.interval`, which are cut to what ``theta_bound`` allows; a
        policy such as :class:`Greedy` does not use them. The chosen arm is marked by a diamond. On the right stands what decides:
        the scores, which are not cut; for a policy that draws, the probabilities, and the diamond marks the likeliest arm. The
        label of the axis says whether a theorem covers the intervals, or whether they are a heuristic. Unavailable arms are grey.
        Needs matplotlib. Changes no state.

        Args:
            arms: features of the arms of one decision, ``(K, d)``; or of many, ``(*B, ..., K, d)``, of which ``index`` names one.
            ax: matplotlib axes; None for a new figure of pyplot.
            names: of the K arms; None for "arm 0" and so on.
            mask: as in :meth:`select`.
            index: which decision of ``(*B, ...)``, an integer or a tuple. None for a single one.
            label: of the policy, to compare two of them on the same arms in the same axes: both calls have a label, which stands
                at the chosen arm. The second policy is drawn a little below the first, and no scores on the right.

        Returns:
            The figure and the axes.

        Raises:
            ImportError: there is no matplotlib.
            TypeError, ValueError: as :meth:`select`; also for a wrong number of names, an ``index`` of no decision, or axes with
                arms where a ``label`` is missing or that hold other arms or two policies.

        Example:
            >>> policy = UCB(RidgeRegression(2))
            >>> policy.step(torch.tensor([1.0, 0.0]), 1.0)
            >>> figure, axes = policy.plot_confidence(torch.eye(2), names=["red", "blue"])
            >>> print(axes.get_xlabel())
            mean reward
            interval: proved in all rounds if theta_bound = 1
            and noise_scale = 0.5 hold, delta = 0.01
        """
        from torchonline.bandits.pictures import draw_confidence

        return draw_confidence(self, (arms,), ax, names, mask, index, label)

    def _mixture(self, arms: Tensor, mask: Tensor | None) -> Tensor:
        """Return the probabilities of arms, the mean over draws of the scores."""
        arms = arms.unsqueeze(-3)
        scores = self.forward(arms.expand(list(arms.shape[:-3]) + [self.draws] + list(arms.shape[-2:])))
        if mask is not None:
            scores = scores.masked_fill(~mask.unsqueeze(-2), -math.inf)
        return self.distribution(scores, self.estimator.rounds).mean(-2)

    def _arms_to_score(self, arms: Tensor, mask: Tensor) -> Tensor:
        """Return what :meth:`forward` gets where some arms are unavailable. Python only."""
        return arms

    def _step_in_python(self, x: ArrayLike, reward: ArrayLike, *, noise_scale: ArrayLike | None = None) -> None:
        estimator: Any = self._modules["estimator"]
        estimator.step(x, reward, noise_scale=noise_scale)

    @torch.jit.export
    @in_python(_step_in_python)
    def step(self, x: Tensor, reward: Tensor, noise_scale: Tensor | None = None) -> None:
        """Learn from the rewards of decisions, in order: see :meth:`Estimator.step`."""
        self.estimator.step(x, reward, noise_scale=noise_scale)

    def _learn_in_python(
        self,
        x: ArrayLike,
        reward: ArrayLike,
        *,
        noise_scale: ArrayLike | None = None,
        block_size: int | None = None,
        mask: ArrayLike | None = None,
    ) -> None:
        if self.has_own_step:
            learn_by_step(self, block_size, mask, x, reward, noise_scale=noise_scale)
            return
        estimator: Any = self._modules["estimator"]
        estimator.learn(x, reward, noise_scale=noise_scale, block_size=block_size, mask=mask)

    @torch.jit.export
    @in_python(_learn_in_python)
    def learn(
        self,
        x: Tensor,
        reward: Tensor,
        noise_scale: Tensor | None = None,
        block_size: int | None = None,
        mask: Tensor | None = None,
    ) -> None:
        """Learn from many rewards, in blocks: see :meth:`Estimator.learn`."""
        self.estimator.learn(x, reward, noise_scale=noise_scale, block_size=block_size, mask=mask)

    def _choice_of_arrays(self, view: NumpyView, rows: Any, mask: Tensor | None) -> Tensor:
        """Return the chosen arm of each decision, on NumPy arrays of arms."""
        stand_in: Any = view.policies.get(type(self))
        if stand_in is None:
            stand_in = plain_twin(self)
            stand_in.__dict__.update(estimator=view.learner, is_view=True)
            view.policies[type(self)] = stand_in
        scores = view.run(stand_in.forward, rows)
        if mask is not None:
            scores = np.where(as_array(mask), scores, -math.inf)
        if not self.is_random:
            return best_of(scores)
        return self.choice(torch.from_numpy(scores), self.estimator.rounds)


def best_of(scores: Any) -> Tensor:
    """Return the index of the largest score of each row of an array."""
    return torch.from_numpy(scores.argmax(-1, keepdims=True)[..., 0])


def one_hot(scores: Tensor) -> Tensor:
    """Return 1 for the largest score of each row and 0 for the others: ``(..., K)``."""
    best = scores.argmax(-1, keepdim=True)
    return torch.zeros_like(scores).scatter_(-1, best, 1.0)


def drawn(probabilities: Tensor) -> Tensor:
    """Draw an index from each row of probabilities: ``(..., K)`` to ``(...)``, int64."""
    up_to = probabilities.to(torch.float64).cumsum(-1)
    # Below 1 by more than rounding, so that the last arm with a probability is the last that may be drawn.
    u = (1.0 - 1e-15) * torch.rand(probabilities.shape[:-1] + (1,), dtype=torch.float64, device=probabilities.device)
    return (u * up_to[..., -1:] >= up_to).sum(-1)


def drawn_with_probability(probabilities: Tensor) -> tuple[Tensor, Tensor]:
    """Draw an index from each row, and return its probability too: ``(...)`` twice."""
    index = drawn(probabilities)
    return index, probabilities.gather(-1, index.unsqueeze(-1)).squeeze(-1)


class UCB(Policy[E]):
    r"""Optimism: play the arm whose upper confidence bound is largest.

    .. math:: \text{score}_k = x_k^\top\hat\theta + \beta\,\|x_k\|_M

    with the estimator's ``radius`` :math:`\beta` and ``width``; an estimator may raise :math:`x_k^\top\hat\theta`. When the
    estimator's confidence set holds, no score is below its arm's :math:`x_k^\top\theta^*`; and if no estimate is raised, the
    :math:`x_k^\top\theta^*` of the chosen arm is at most twice its :math:`\beta\|x_k\|_M` below the best. Without a link,
    :math:`x_k^\top\theta^*` is the mean reward, and this is the regret of the round. Cost of a decision among K arms: O(K d^2),
    one matrix product.

    Args:
        estimator: any :class:`~torchonline.bandits.estimator.Estimator` of one response, with the ``batch_shape`` ``*B``; or d,
            the number of features, for :class:`~torchonline.RidgeRegression`.
        dim: d, in place of ``estimator``.
        noise_scale, theta_bound, ridge, delta, radius, radius_scale, restart_every, batch_shape, dtype, device, validate: as in
            :class:`~torchonline.RidgeRegression`, beside a number of features only.

    Example:
        >>> policy, arms = UCB(RidgeRegression(2)), torch.eye(2, dtype=torch.float64)
        >>> policy.step(arms[0], torch.tensor(1.0))
        >>> policy(arms), policy.select(arms)
        (tensor([1.8183, 1.8644], dtype=torch.float64), tensor(1))
    """

    @on_arms
    def forward(self, arms: Tensor) -> Tensor:
        """Return the upper confidence bounds: ``(*B, ..., K, d)`` to ``(*B, ..., K)``."""
        estimate, error = self.estimator.estimate_and_bonus(arms)
        return estimate + error

    def scores_of(self, predictor: Tensor, width: Tensor) -> Tensor:
        estimate = self.estimator.raised(predictor)
        return estimate + along(self.estimator.radius(), estimate) * width


class ThompsonSampling(Policy[E]):
    r"""Posterior sampling: draw a parameter from the ellipsoid and play its best arm.

    .. math:: \tilde\theta = \hat\theta + \beta M^{1/2}\eta,\quad \eta \sim N(0, I),\qquad
              \text{score}_k = x_k^\top\tilde\theta

    with the estimator's ``radius`` :math:`\beta`. Each decision has one draw for all of its arms. Draws follow torch's global
    seed, which a fork copies: give each forked worker a seed of its own. Over ridge regression, under sub-Gaussian noise, the
    regret is :math:`\tilde O(d^{3/2}\sqrt T)` (Abeille and Lazaric, Linear Thompson sampling revisited, AISTATS 2017); over other
    estimators no theorem holds. Cost of a decision: O(d^3) for a Cholesky factor, then O(K d).

    :meth:`probabilities` averages over ``draws`` parameters: an estimate of a probability p has a standard error of
    :math:`\sqrt{p(1-p)/\text{draws}}`, and costs O(K d) for each draw. :meth:`decide` chooses by one of these draws.

    Args:
        estimator: any :class:`~torchonline.bandits.estimator.Estimator` of one response, with the ``batch_shape`` ``*B``; or d,
            the number of features, for :class:`~torchonline.RidgeRegression`.
        draws: number of parameters drawn for :meth:`probabilities`.
        dim: d, in place of ``estimator``.
        noise_scale, theta_bound, ridge, delta, radius, radius_scale, restart_every, batch_shape, dtype, device, validate: as in
            :class:`~torchonline.RidgeRegression`, beside a number of features only.

    Example:
        >>> _ = torch.manual_seed(0)
        >>> policy = ThompsonSampling(RidgeRegression(2))
        >>> policy.select(torch.eye(2, dtype=torch.float64))
        tensor(0)
    """

    def __init__(self, estimator: E | int | None = None, *, draws: int = 1000, **options: Unpack[RidgeOptions]) -> None:
        super().__init__(estimator, **options)
        self.draws = positive_integer("draws", draws)

    def extra_repr(self) -> str:
        return described(self, vars(self))

    @on_arms
    def forward(self, arms: Tensor) -> Tensor:
        """Return the scores of a fresh draw: ``(*B, ..., K, d)`` to ``(*B, ..., K)``."""
        estimator = self.estimator
        is_one_row = arms.dim() == estimator.theta_hat.dim()
        arms = arms.to(estimator.theta_hat.dtype)
        if is_one_row:
            arms = arms.unsqueeze(-2)
        matrix = estimator.width_matrix()
        factor, _ = torch.linalg.cholesky_ex(add_diagonal(matrix, 8.0 * roundoff(matrix) * trace(matrix)))
        noise = estimator.grouped(torch.randn_like(arms[..., 0, :]))
        noise = along(estimator.radius(), noise) * matmul(noise, factor.mT)
        theta = (estimator.theta_hat.unsqueeze(-2) + noise).reshape(arms.shape[:-2] + (arms.size(-1), 1))
        scores = matmul(arms, theta).squeeze(-1)
        return scores.squeeze(-1) if is_one_row else scores


class Greedy(Policy[E]):
    """No exploration: play the arm with the largest estimated mean.

    A baseline, at O(K d) for a decision; no regret bound holds.

    Args:
        estimator: any :class:`~torchonline.bandits.estimator.Estimator` of one response, with the ``batch_shape`` ``*B``; or d,
            the number of features, for :class:`~torchonline.RidgeRegression`.
        dim: d, in place of ``estimator``.
        noise_scale, theta_bound, ridge, delta, radius, radius_scale, restart_every, batch_shape, dtype, device, validate: as in
            :class:`~torchonline.RidgeRegression`, beside a number of features only.

    Example:
        >>> policy = Greedy(2)  # over RidgeRegression(2)
        >>> policy.step(torch.tensor([0.0, 1.0]), torch.tensor(1.0))
        >>> policy.select(torch.eye(2, dtype=torch.float64))
        tensor(1)
    """

    uses_widths = False

    @on_arms
    def forward(self, arms: Tensor) -> Tensor:
        """Return the predictors, which rank arms as the estimated means do.

        Shapes: ``(*B, ..., K, d)`` to ``(*B, ..., K)``.
        """
        return self.estimator.predictor(arms)

    def scores_of(self, predictor: Tensor, width: Tensor) -> Tensor:
        return predictor


# The scores that are written against torchonline.core.ops, and so run on NumPy views.
ON_ARRAYS = (UCB.forward, Greedy.forward)
