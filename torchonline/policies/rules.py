"""Rules of choice: how an estimator's mean and uncertainty become a choice."""

import functools
import inspect
from collections.abc import Callable
from functools import cache
from typing import Any, Concatenate, ParamSpec, Unpack

import torch
from torch import Tensor

from torchonline.core.checks import one_of, positive_integer
from torchonline.core.compiled import scorer
from torchonline.core.delegated import delegated
from torchonline.core.learner import Learner
from torchonline.core.ops import along, matmul
from torchonline.core.options import described, differs, is_ours
from torchonline.core.views import NumpyView, plain_twin
from torchonline.policies.default_estimator import PolicySignature, RidgeOptions, estimator_or_default, suggestion
from torchonline.policies.policy import E, Policy, drawn
from torchonline.policies.ties import shares_of_best
from torchonline.regression.estimator import Estimator

P = ParamSpec("P")


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


class Rule(Policy[E]):
    """Base of the rules of choice, over one estimator and arms with features.

    A subclass implements :meth:`scores_of`, or ``_scores`` if its scores need the features. A randomized rule also implements
    :meth:`distribution`, the probabilities of the arms, and sets ``is_random``. Any rule works for other arrangements of arms
    too, such as :class:`~torchonline.DisjointArms`.

    Args:
        estimator: any :class:`~torchonline.regression.estimator.Estimator` of one response, with the ``batch_shape`` ``*B``; or
            d, the number of features, for :class:`~torchonline.RidgeRegression`.
        dim: d, in place of ``estimator``.
        noise_scale, theta_bound, ridge, delta, radius, radius_scale, restart_every, batch_shape, dtype, device, validate: as in
            :class:`~torchonline.RidgeRegression`, only with a number of features.
    """

    # Whether `scores_of` uses the widths.
    uses_widths = True
    can_open = True
    __constants__: tuple[str, ...] = (*Policy.__constants__, "uses_widths")
    __signature__ = PolicySignature()

    # Editors show this docstring where any subclass is constructed; without it, that of nn.Module.
    def __init__(self, estimator: E | int | None = None, **options: Unpack[RidgeOptions]) -> None:
        """Build the policy; the docstring of the class explains the arguments."""
        super().__init__()
        self.estimator = estimator_or_default(type(self).__name__, estimator, options)

    def __setattr__(self, name: str, value: Any) -> None:
        cls: Any = type(self)
        # Setting an option that the constructor passed on to the estimator would have no effect.
        estimator = vars(self).get("_modules", {}).get("estimator")
        theirs = {} if estimator is None else vars(estimator)
        if name in theirs and name in _options_of(cls) and differs(value, theirs[name]):
            wanted = f"expected {theirs[name]!r}, the estimator's"
            raise AttributeError(f"{name}: {wanted}, got {value!r}; construct another {cls.__name__}")
        super().__setattr__(name, value)

    def extra_repr(self) -> str:
        return f"# {self.note}" if self.note else ""

    def scores_of(self, predictor: Tensor, width: Tensor) -> Tensor:
        """Return scores, given predictors and widths: ``(*B, ..., K)`` three times."""
        raise NotImplementedError("scores_of: expected a rule that implements it, or _scores")

    def _scores(self, features: Tensor) -> Tensor:
        predictor = self.estimator.predictor(features)
        return self.scores_of(predictor, self.estimator.width(features) if self.uses_widths else predictor)

    def choice(self, scores: Tensor, rounds: Tensor) -> Tensor:
        if self.is_random:
            return drawn(self.distribution(scores, rounds))
        return scores.argmax(-1)

    def distribution(self, scores: Tensor, rounds: Tensor) -> Tensor:
        return shares_of_best(scores)

    def _learn_round(self, x: Tensor, place: Tensor, reward: Tensor, noise_scale: Tensor) -> None:
        self.estimator._learn_round(x, reward, noise_scale)

    def _learn_rounds(
        self,
        x: Tensor,
        place: Tensor,
        reward: Tensor,
        noise_scale: Tensor | None,
        block_size: int | None,
        mask: Tensor | None,
    ) -> None:
        self.estimator._learn_log(self.estimator.theta_hat, x, None, reward, noise_scale, mask, block_size)

    def _like(self) -> Tensor:
        return self.estimator.theta_hat

    def _clock(self) -> Tensor:
        return self.estimator.rounds

    def _dims(self) -> int:
        return self.estimator.batch_dims

    def _own_scale(self, reward: Tensor) -> Tensor:
        return self.estimator._own_scale(reward)

    def _accepts(self, x: Tensor, place: Tensor, reward: Tensor, noise_scale: Tensor | None) -> Tensor:
        return self.estimator._accepts(x, reward, noise_scale)

    # TorchScript does not compile the members below, and exported files lack them.

    @delegated
    def dim(self) -> int:  # type: ignore[override]
        """The estimator's number of features, d. Python only."""
        return self.estimator.dim

    @delegated
    def batch_shape(self) -> tuple[int, ...]:  # type: ignore[override]
        """The estimator's ``*B``: policies in one module. Python only."""
        return self.estimator.batch_shape

    @delegated
    def rounds(self) -> Tensor:  # type: ignore[override]
        """The estimator's count of rounds, ``(*B)``. Python only."""
        return self.estimator.rounds

    @delegated
    def theta_hat(self) -> Tensor:
        """The estimator's parameter, ``(*B, d)``. Python only."""
        return self.estimator.theta_hat

    @delegated
    def learner(self) -> Learner:  # type: ignore[override]
        """The estimator, which holds the state. Python only."""
        return self.estimator

    @delegated
    def _rule(self) -> Any:
        """The rule of choice: the policy itself. Python only."""
        return self

    def _params(self) -> dict[str, Any]:
        found, names = super()._params(), inspect.signature(type(self)).parameters
        if "estimator" in names:
            return found
        return {name: value for name, value in self.estimator._params().items() if name in names} | found

    def _owners(self) -> tuple[Any, Any]:
        estimator = self._modules["estimator"]
        return estimator, estimator

    def _on(self, view: NumpyView) -> Any:
        stand_in: Any = view.policies.get(type(self))
        if stand_in is None:
            stand_in = plain_twin(self)
            core = view.learner.__dict__.get("_core")
            score = None if core is None or not is_ucb(self) else scorer(core, None, view.learner.dim**2)
            stand_in.__dict__.update(estimator=view.learner, is_view=True, _score=score)
            view.policies[type(self)] = stand_in
        return stand_in

    def _is_on_arrays(self) -> bool:
        cls = type(self)
        has_own = cls._scores is Rule._scores and cls.choice is Rule.choice and _runs_on_arrays(cls.scores_of)
        return has_own and "scores_of" not in self.__dict__ and "_scores" not in self.__dict__

    def _learn_block(self, x: Tensor, place: Tensor, reward: Tensor, noise_scale: Tensor, mask: Tensor) -> None:
        self.estimator._learn_block(x, reward, noise_scale, mask)


@cache
def _runs_on_arrays(scores_of: Any) -> bool:
    """Return whether a rule's ``scores_of`` is the library's, written for arrays too."""
    return scores_of is not Rule.scores_of and is_ours(scores_of)


class UCB(Rule[E]):
    r"""Optimism: play the arm whose upper confidence bound is largest.

    .. math:: \text{score}_k = x_k^\top\hat\theta + \beta\,\|x_k\|_M

    with the estimator's ``radius`` :math:`\beta` and ``width``; an estimator may raise :math:`x_k^\top\hat\theta`. When the
    estimator's confidence set holds, no score is below its arm's :math:`x_k^\top\theta^*`; and if no estimate is raised, the
    :math:`x_k^\top\theta^*` of the chosen arm is at most twice its :math:`\beta\|x_k\|_M` below the best. Without a link,
    :math:`x_k^\top\theta^*` is the mean reward, and this gap is the regret of the round. Cost of a decision among K arms:
    O(K d^2), one matrix product.

    Args:
        estimator: any :class:`~torchonline.regression.estimator.Estimator` of one response, with the ``batch_shape`` ``*B``; or
            d, the number of features, for :class:`~torchonline.RidgeRegression`.
        dim: d, in place of ``estimator``.
        noise_scale, theta_bound, ridge, delta, radius, radius_scale, restart_every, batch_shape, dtype, device, validate: as in
            :class:`~torchonline.RidgeRegression`, only with a number of features.

    Example:
        >>> policy, arms = UCB(RidgeRegression(2)), torch.eye(2, dtype=torch.float64)
        >>> policy.step(arms, 0, 1.0)
        >>> policy(arms), policy.select(arms)
        (tensor([1.8183, 1.8644], dtype=torch.float64), tensor(1))
    """

    def scores_of(self, predictor: Tensor, width: Tensor) -> Tensor:
        estimate = self.estimator.raised(predictor)
        return estimate + along(self.estimator.radius(), estimate) * width


class ThompsonSampling(Rule[E]):
    r"""Posterior sampling: draw a parameter from its posterior and play its best arm.

    .. math:: \tilde\theta = \hat\theta + s M^{1/2}\eta,\quad \eta \sim N(0, I),\qquad
              \text{score}_k = x_k^\top\tilde\theta

    with the M of the estimator's ``width``. Each decision uses one draw for all its arms. The scale s is one of two:

    - ``scale="posterior"``: the estimator's ``posterior_scale``. Over :class:`~torchonline.RidgeRegression` s is the noise scale
      R. If the parameter has the prior :math:`N(0, R^2/\lambda\,I)` and the noise is Gaussian with standard deviation R
      (:math:`R_t` in a round that has its own), the draw has exactly the law of the parameter given the past. Then the regret
      among K arms of bounded length, averaged over this prior, is :math:`\tilde O(\sqrt{dT\log K})` (Russo and Van Roy). No
      theorem covers each single parameter. The other estimators approximate a posterior:

      - ridge regressions whose radius follows their residuals: s is ``spread``, an estimate of the noise scale;
      - generalized linear models: s is 1, Laplace's approximation. M is the inverse of the prior's precision
        :math:`\lambda I` plus the Fisher information. :class:`~torchonline.LocalGLMRegression` counts less than this
        information in early rounds, so its draws are wider then. :class:`~torchonline.GLMRegression` has the larger error of
        its steps, :math:`s = \eta/\sqrt{2\eta-1}`;
      - heavy-tailed and Huber regressions: s is 1, because M is in units of the noise;
      - all others: s is the noise scale.

    - ``scale="theorem"``: the estimator's ``radius``, which ``radius_scale`` multiplies. Over ridge regression, under
      sub-Gaussian noise, the regret is :math:`\tilde O(d^{3/2}\sqrt T)` for every parameter within ``theta_bound`` (Abeille and
      Lazaric); over other estimators no theorem holds. These draws are several times wider, and the regret is usually much
      larger.

    ``radius_scale`` does not multiply the posterior's scale. Over ridge regression, a smaller ``noise_scale`` makes the
    posterior's draws narrower; ``delta``, ``theta_bound`` and ``radius`` do not change them.

    Draws follow torch's global seed. A fork copies the seed, so give each forked worker a different one. Cost of a decision:
    O(d^3) for a Cholesky factor, then O(K d).

    :meth:`probabilities` averages over ``draws`` parameters: an estimate of a probability p has a standard error of
    :math:`\sqrt{p(1-p)/\text{draws}}`, and costs O(K d) for each draw. :meth:`select_with_probability` chooses by one of these
    draws.

    Args:
        estimator: any :class:`~torchonline.regression.estimator.Estimator` of one response, with the ``batch_shape`` ``*B``; or
            d, the number of features, for :class:`~torchonline.RidgeRegression`.
        scale: "posterior" or "theorem", the scale of the draws.
        draws: number of parameters drawn for :meth:`probabilities`.
        dim: d, in place of ``estimator``.
        noise_scale, theta_bound, ridge, delta, radius, radius_scale, restart_every, batch_shape, dtype, device, validate: as in
            :class:`~torchonline.RidgeRegression`, only with a number of features.

    Example:
        >>> _ = torch.manual_seed(0)
        >>> policy = ThompsonSampling(RidgeRegression(2))
        >>> policy.select(torch.eye(2, dtype=torch.float64))
        tensor(0)

    Reference:
        Russo and Van Roy, Learning to optimize via posterior sampling, Mathematics of Operations Research 39 (2014). Abeille and
        Lazaric, Linear Thompson sampling revisited, AISTATS 2017.
    """

    __constants__ = (*Rule.__constants__, "scale")

    def __init__(
        self,
        estimator: E | int | None = None,
        *,
        scale: str = "posterior",
        draws: int = 1000,
        **options: Unpack[RidgeOptions],
    ) -> None:
        super().__init__(estimator, **options)
        self.scale = one_of("scale", scale, ("posterior", "theorem"))
        self.draws = positive_integer("draws", draws)

    def extra_repr(self) -> str:
        return described(self, vars(self))

    def __setstate__(self, state: dict[str, Any]) -> None:
        # Modules pickled by version 0.1 drew at the theorem's scale.
        super().__setstate__({"scale": "theorem"} | state)

    def _scores(self, features: Tensor) -> Tensor:
        """Return the scores of a fresh draw: ``(*B, ..., K, d)`` to ``(*B, ..., K)``."""
        arms = features.to(self.estimator.theta_hat.dtype)
        scores = matmul(arms, self._drawn_parameter(arms[..., 0, :]).unsqueeze(-1)).squeeze(-1)
        offset = self.estimator.affine()[1]
        return scores if offset is None else scores + along(offset, scores)

    def _drawn_parameter(self, like: Tensor) -> Tensor:
        """Draw a parameter from the posterior for each decision: ``(*B, ..., d)``."""
        estimator = self.estimator
        scale = estimator.posterior_scale() if self.scale == "posterior" else estimator.radius()
        noise = estimator.grouped(torch.randn_like(like))
        noise = along(scale, noise) * estimator._of_posterior(noise)
        return (estimator.affine()[0].unsqueeze(-2) + noise).reshape(like.shape)


class Greedy(Rule[E]):
    """No exploration: play the arm with the largest estimated mean.

    A baseline without a regret bound. Cost of a decision: O(K d).

    Args:
        estimator: any :class:`~torchonline.regression.estimator.Estimator` of one response, with the ``batch_shape`` ``*B``; or
            d, the number of features, for :class:`~torchonline.RidgeRegression`.
        dim: d, in place of ``estimator``.
        noise_scale, theta_bound, ridge, delta, radius, radius_scale, restart_every, batch_shape, dtype, device, validate: as in
            :class:`~torchonline.RidgeRegression`, only with a number of features.

    Example:
        >>> policy, arms = Greedy(2), torch.eye(2)  # over RidgeRegression(2)
        >>> policy.step(arms, 1, 1.0)
        >>> policy.select(arms)
        tensor(1)
    """

    uses_widths = False

    def scores_of(self, predictor: Tensor, width: Tensor) -> Tensor:
        """Return the predictors, which rank arms as the estimated means do."""
        return predictor


# What UCB computes scores by.
OF_UCB: dict[str, Any] = {name: getattr(UCB, name) for name in ("scores_of", "_scores", "_scored", "_features")}


def is_ucb(rule: Rule) -> bool:
    """Return whether a rule scores as :class:`UCB` does, as :class:`OFUL`, say."""
    return all(name not in rule.__dict__ and getattr(type(rule), name) is method for name, method in OF_UCB.items())


def as_rule(name: str, value: Any) -> Rule:
    """Return a rule of choice, or UCB over an estimator; or raise."""
    if isinstance(value, Estimator) and not value.output_shape:
        return UCB(value)
    if not isinstance(value, Rule):
        wanted = f"expected a rule of choice, such as UCB, or an Estimator{suggestion(value)}"
        raise TypeError(f"{name}: {wanted}, got {type(value).__name__}")
    return value
