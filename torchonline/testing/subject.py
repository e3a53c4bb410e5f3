"""Learners under test: how checks build them, and the rounds that they learn."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from torchonline.core.learner import Learner
from torchonline.core.ops import of_chosen
from torchonline.policies.policy import Policy
from torchonline.regression.estimator import Estimator

# The arguments of `step`, by name.
Round = dict[str, Any]
Shape = tuple[int, ...]

BATCH_SHAPES: tuple[Shape, ...] = ((), (2,))


def to_tensor(value: Any) -> Tensor:
    """Return an array as a tensor on torch's default device."""
    return torch.from_numpy(np.asarray(value)).to(torch.get_default_device())


def is_real(value: Any) -> bool:
    """Return whether a value is a floating-point tensor."""
    return isinstance(value, Tensor) and value.is_floating_point()


def mapped(change: Callable[[Tensor], Any], round_: Round) -> Round:
    """Return a round with another value for each tensor."""
    return {name: None if value is None else change(value) for name, value in round_.items()}


def on_reals(change: Callable[[Tensor], Any], round_: Round) -> Round:
    """Return a round with another value for each floating-point tensor."""
    return mapped(lambda value: change(value) if is_real(value) else value, round_)


def with_gradients(x: Tensor) -> Tensor:
    """Return a copy that requires grad."""
    return x.clone().requires_grad_()


def member_of(round_: Round, member: Shape) -> Round:
    """Return the round of one learner of a batch."""
    return mapped(lambda value: value[member], round_)


def some_of(log: Round, at: int, rows: Any) -> Round:
    """Return some rounds of a log, whose rounds are in dimension ``at``."""
    index = torch.as_tensor(rows, dtype=torch.int64)
    return mapped(lambda value: value.index_select(at, index), log)


def the_round_of(log: Round, at: int) -> Round:
    """Return the round of a log of one round."""
    return mapped(lambda value: value.squeeze(at), log)


class Subject:
    """A kind of learner under test.

    Args:
        make: builds a learner; takes ``batch_shape``, ``dtype``, ``device`` and ``validate``. Two calls build equal learners.
        name: for messages.
    """

    decides = False
    # The name of the first argument of `step`.
    features = "x"
    response = "reward"
    output_shape: Shape = ()
    # Whether a round has features, and whether the learner reads them itself, without an encoder.
    takes_inputs, checks_inputs = True, True
    # The number of features and the dimensions of one round's; a policy's arms.
    dim, item_dims, arms = 3, 1, 0
    # Of a policy: whether `learn` takes a mask, whether it is deterministic, and what draws inputs in place of the subject.
    takes_mask, is_deterministic = True, True
    inputs: Callable[..., Tensor] | None = None

    # What `make` returns.
    kind: type[nn.Module] = Estimator
    kind_name = "an Estimator"
    other = "check_decider checks policies"

    def __init__(self, make: Callable[..., Any], name: str = "") -> None:
        self.make = make
        self.one = self._first()
        self.name = name or type(self.one).__name__
        self.estimator = self.one.estimator if self.decides else self.one
        # The norm of the longest features that the learner takes.
        self.longest = float(self.estimator.longest)

    def _first(self) -> Any:
        """Return a learner with all options, or raise with what ``make`` must do."""
        wanted = (
            f"make: expected a callable that takes batch_shape, dtype, device and validate and returns {self.kind_name}"
        )
        if isinstance(self.make, nn.Module) or not callable(self.make):
            raise TypeError(f"{wanted}, got {type(self.make).__name__}; pass functools.partial(YourClass, 3), say")
        try:
            made = self.make(batch_shape=(1,), dtype=torch.float32, device="cpu", validate=False)
        except TypeError as error:
            raise TypeError(f"{wanted}, and it raised {error}") from error
        if not isinstance(made, self.kind):
            raise TypeError(f"{wanted}, got {type(made).__name__}; {self.other}")
        learner: Any = made
        if tuple(learner.batch_shape) != (1,) or not any(
            v.dtype == torch.float32 for v in learner.state_dict().values()
        ):
            raise ValueError(f"{wanted}, got one that ignores batch_shape=(1,) or dtype=torch.float32")
        return self.make()

    def build(self, **options: Any) -> Any:
        """Return a new learner."""
        return self.make(**options)

    def possible(self, values: Tensor) -> Tensor:
        """Return responses that the learner accepts, made from any numbers."""
        return values if self.output_shape else self.estimator.possible_reward(values)

    def short(self, x: Tensor) -> Tensor:
        """Return features that the learner accepts: long ones are shortened."""
        return x * (0.9 * self.longest / x.norm(dim=-1, keepdim=True).clamp(min=1e-9)).clamp(max=1.0)

    def rounds_after(self, rounds: int) -> int:
        """Return a learner's expected count after some rounds; some restart."""
        return rounds % (self.estimator.restart_every or rounds + 1)

    def features_of(self, random: np.random.Generator, batch_shape: Shape, t: int) -> Tensor | None:
        """Return the features of round t; zeros now and then."""
        raise NotImplementedError

    def example(self) -> Tensor | None:
        """Return the features of a round."""
        return self.features_of(np.random.default_rng(0), (), 2)

    def stream(self, count: int, batch_shape: Shape = (), seed: int = 0) -> list[Round]:
        """Return rounds with heavy-tailed responses and varying noise scales."""
        random, rounds = np.random.default_rng(seed), []
        torch.manual_seed(seed)
        shape = (*batch_shape, *self.output_shape)
        for t in range(count):
            x = self.features_of(random, batch_shape, t)
            response, scale = random.standard_t(1.5, shape), random.uniform(0.2, 2.0, shape)
            round_: Round = {self.response: self.possible(to_tensor(response)), "noise_scale": to_tensor(scale)}
            rounds.append({self.features: x} | round_)
        return rounds

    def decide(self, learner: Any, round_: Round) -> Tensor:
        """Return what a learner answers in a round."""
        raise NotImplementedError

    def arguments(self, round_: Round, decision: Tensor) -> Round:
        """Return the arguments of ``step`` after a decision."""
        raise NotImplementedError

    def stack(self, rounds: list[Round], decisions: list[Tensor]) -> Round:
        """Return the arguments of ``step`` for some rounds at once."""
        each = [self.arguments(*both) for both in zip(rounds, decisions, strict=True)]
        at = rounds[0][self.response].dim() - len(self.output_shape)
        return {
            name: None if each[0][name] is None else torch.stack([one[name] for one in each], at) for name in each[0]
        }

    def log(self, count: int, batch_shape: Shape = (), seed: int = 0) -> Round:
        """Return the arguments of ``learn``: rounds in which the actions are given."""
        rounds = self.stream(count, batch_shape, seed)
        return self.stack(rounds, [torch.full(batch_shape, t % 2) for t in range(count)])

    def ask(self, learner: Any, round_: Round) -> list[Tensor]:
        """Return the answers to all questions; the random ones under one seed."""
        raise NotImplementedError

    def play(self, learner: Any, rounds: list[Round]) -> list[Tensor]:
        """Decide and learn, round by round; return the decisions."""
        decisions = []
        for t, round_ in enumerate(rounds):
            torch.manual_seed(t)
            decisions.append(self.decide(learner, round_))
            learner.step(**self.arguments(round_, decisions[-1]))
        return decisions

    def typed(self, round_: Round, dtype: torch.dtype) -> Round:
        """Return a round with its floating-point values in another type.

        Raw inputs of an encoder keep the type that the encoder needs.
        """
        kept = {} if self.checks_inputs else {self.features: round_[self.features]}
        return on_reals(lambda value: value.to(dtype), round_) | kept

    def taught(self, count: int = 12, **options: Any) -> Any:
        """Return a learner that has played some rounds."""
        learner = self.build(**options)
        self.play(learner, self.stream(count, options.get("batch_shape", ())))
        return learner

    def __str__(self) -> str:
        return self.name


class EstimatorSubject(Subject):
    """A regression under test, which learns from features and responses."""

    def __init__(self, make: Callable[..., Any], name: str = "") -> None:
        super().__init__(make, name)
        one = self.one
        self.dim, self.output_shape, self.response = one.dim, tuple(one.output_shape), one.response

    def features_of(self, random: np.random.Generator, batch_shape: Shape, t: int) -> Tensor:
        return self.short(to_tensor(random.standard_normal((*batch_shape, self.dim)) * (t % 17 != 5)))

    def decide(self, learner: Any, round_: Round) -> Tensor:
        return learner(round_["x"]).detach()

    def arguments(self, round_: Round, decision: Tensor) -> Round:
        return dict(round_)

    def ask(self, learner: Any, round_: Round) -> list[Tensor]:
        x = round_["x"]
        many = x.unsqueeze(-2).expand(*x.shape[:-1], 6, x.size(-1))
        seen = [learner(x), learner.width(x), learner.radius(), learner.posterior_scale(), *learner.interval(x)]
        return seen + [learner(many), learner.width(many), *learner.interval(many)]


class DeciderSubject(Subject):
    """A policy under test, with its kind of inputs.

    Args:
        make: see :class:`Subject`.
        inputs: takes a shape ``*S``, as several integers, and returns inputs of decisions ``(*S, ...)``. None for the features of
            arms, the context or the fixed arms that the policy asks for; an encoder needs inputs from here.
        name: for messages.
    """

    decides = True
    features = "inputs"
    kind, kind_name, other = Policy, "a Policy", "check_estimator checks regressions"

    def __init__(self, make: Callable[..., Any], inputs: Callable[..., Tensor] | None = None, name: str = "") -> None:
        super().__init__(make, name)
        policy = self.one
        if policy.has_encoder and inputs is None:
            raise TypeError("inputs: expected a function of a shape that returns raw inputs of the encoder, got None")
        self.inputs, self.takes_inputs, self.takes_mask = inputs, policy.takes_inputs, policy.takes_mask
        self.is_deterministic = policy.is_deterministic()
        self.checks_inputs = self.takes_inputs and not policy.has_encoder
        # The number of arms varies where each decision brings its own arms.
        self.varies = inputs is None and self.takes_inputs and policy.has_arm_inputs and policy.learns_rows
        if inputs is not None:
            self.item_dims, self.dim = inputs().dim(), inputs().size(-1)
        elif self.takes_inputs:
            self.item_dims, self.dim = policy.item_dims, policy._learner().dim
        self.arms = 4 if self.varies else policy.number_of_actions(self.example())
        if policy.action_ids not in (None, list(range(self.arms))) or self.arms < 2:
            raise ValueError("make: expected a policy with at least two arms, whose ids are 0, 1, ... if they have any")

    def features_of(self, random: np.random.Generator, batch_shape: Shape, t: int) -> Tensor | None:
        if not self.takes_inputs:
            return None
        if self.inputs is not None:
            return self.inputs(*batch_shape)
        item: Shape = (self.dim,)
        if self.item_dims == 2:
            item = (2 + t % 4 if self.varies else 4, self.dim)
        return self.short(to_tensor(random.standard_normal((*batch_shape, *item)) * (t % 17 != 5)))

    def decide(self, learner: Any, round_: Round) -> Tensor:
        return learner.select(round_["inputs"])

    def arguments(self, round_: Round, decision: Tensor) -> Round:
        return {"inputs": round_["inputs"], "action": decision, **{k: v for k, v in round_.items() if k != "inputs"}}

    def stack(self, rounds: list[Round], decisions: list[Tensor]) -> Round:
        if self.varies:
            first = [of_chosen(r["inputs"], index).unsqueeze(-2) for r, index in zip(rounds, decisions, strict=True)]
            rounds = [r | {"inputs": x} for r, x in zip(rounds, first, strict=True)]
            decisions = [torch.zeros_like(index) for index in decisions]
        return super().stack(rounds, decisions)

    def many(self, x: Tensor | None, count: int = 6) -> Tensor | None:
        """Return the inputs of a decision as those of many decisions."""
        if x is None:
            return None
        first = x.dim() - self.item_dims
        return x.unsqueeze(first).expand(*x.shape[:first], count, *x.shape[first:])

    def ask(self, learner: Any, round_: Round) -> list[Tensor]:
        x = round_["inputs"]
        torch.manual_seed(0)
        seen = [learner(x)]
        mask = torch.ones(seen[0].shape, dtype=torch.bool)
        mask[..., 0] = False
        for given in (None, mask):
            seen += [learner.select(x, mask=given), learner.probabilities(x, mask=given)]
            seen += learner.select_with_probability(x, mask=given)
        if self.takes_inputs:
            seen += [learner.select(self.many(x)), learner.probabilities(self.many(x))]
        if not isinstance(learner, torch.jit.ScriptModule):
            seen += [learner.predict(x), *learner.interval(x), torch.tensor(learner.number_of_actions(x))]
        return seen


def numbers_of(learner: nn.Module) -> dict[str, object]:
    """Return the plain attributes of a learner and its parts.

    Of the copies that compute on NumPy views, they are numbers alone: an entry of a cache may be a tuple.
    """
    found: dict[str, object] = {}
    for path, module in learner.named_modules():
        plain = {name: value for name, value in vars(module).items() if isinstance(value, (int, float, str, tuple))}
        found |= {f"{path}.{name}": value for name, value in plain.items()}
        view = module.numpy_view() if isinstance(module, Learner) else None
        space = {} if view is None else vars(view.learner)
        numbers = {name: value for name, value in space.items() if isinstance(value, (int, float))}
        found |= {f"{path}.{name} on NumPy views": value for name, value in numbers.items()}
    return found
