"""``torchonline.testing`` catches faulty learners, and says what is wrong with a bad ``make``."""

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from torchonline import UCB, DisjointArms, RidgeRegression
from torchonline.models import BanditHead
from torchonline.policies.composed import ComposedPolicy
from torchonline.testing import check_estimator, decider_checks, estimator_checks


class Counts(RidgeRegression):
    """Counts rounds in an attribute, which a state dict loses."""

    def _observe(self, x: Tensor, reward: Tensor, noise_scale: Tensor) -> None:
        self.seen = getattr(self, "seen", 0) + 1
        super()._observe(x, reward, noise_scale)


class Moves(RidgeRegression):
    """Changes its estimate when it is asked."""

    def forward(self, x: Any) -> Tensor:
        self.theta_hat.mul_(0.5)
        return super().forward(x)


class Keeps(RidgeRegression):
    """Forgets nothing."""

    def reset(self) -> None:
        pass


class Takes(RidgeRegression):
    """Writes before it refuses."""

    def step(self, x: Any, reward: Any, *, noise_scale: Any = None) -> None:
        self.theta_hat.add_(1.0)
        super().step(x, reward, noise_scale=noise_scale)


class Leaks(RidgeRegression):
    """Keeps the graphs of its features."""

    def step(self, x: Any, reward: Any, *, noise_scale: Any = None) -> None:
        self.__dict__.setdefault("past", []).append(x)
        super().step(x, reward, noise_scale=noise_scale)


class Reversed(RidgeRegression):
    """Learns the opposite of the rewards."""

    def _observe(self, x: Tensor, reward: Tensor, noise_scale: Tensor) -> None:
        super()._observe(x, -reward, noise_scale)


class Grudging(ComposedPolicy):
    """Learns the opposite of the rewards."""

    def __init__(self, policy: Any) -> None:
        super().__init__(policy, None, policy.batch_shape, policy.dim)
        self._create_buffers()

    def _learn_round(self, x: Tensor, place: Tensor, reward: Tensor, noise_scale: Tensor) -> None:
        super()._learn_round(x, place, -reward, noise_scale)


class Swapped(Grudging):
    """Returns the ends of an interval in the wrong order."""

    def _bounds(self, x: Tensor) -> tuple[Tensor, Tensor]:
        low, high = super()._bounds(x)
        return high, low


class Worst(UCB):
    """Plays the arm with the lowest score, against the scores."""

    def choice(self, scores: Tensor, rounds: Tensor) -> Tensor:
        return scores.argmin(-1)


class Blind(UCB):
    """Does not see masks."""

    def select(self, inputs: Any = None, mask: Any = None) -> Tensor:
        return super().select(inputs)


class Hopeful(UCB):
    """Predicts more than its estimator."""

    def predict(self, inputs: Any = None) -> Tensor:
        return super().predict(inputs) + 0.1


class Certain(UCB):
    """Reports a propensity of one half."""

    def select_with_probability(self, inputs: Any = None, mask: Any = None) -> tuple[Tensor, Tensor]:
        action, chance = super().select_with_probability(inputs, mask)
        return action, 0.5 * chance


ESTIMATORS = {
    Counts: "nothing_but_buffers_evolves",
    Moves: "looking_changes_nothing",
    Keeps: "reset_forgets_everything",
    Takes: "a_refused_step_changes_nothing",
    Leaks: "no_gradient_enters",
    Reversed: "predictions_follow_rewards",
}
DECIDERS = {Worst: "choices_are_the_best_available", Blind: "choices_are_the_best_available"}
DECIDERS |= {Grudging: "predictions_follow_rewards", Swapped: "predictions_follow_rewards"}
DECIDERS |= {Certain: "choices_are_the_best_available", Hopeful: "choices_are_the_best_available"}


def built(cls: Any, **options: Any) -> Any:
    """Return a faulty policy: a rule, or an arrangement of one."""
    estimator = RidgeRegression(3, **options)
    return cls(UCB(estimator) if issubclass(cls, ComposedPolicy) else estimator)


def failing(checks: list[Any], name: str) -> str:
    """Return the message of a check that fails."""
    (check,) = (each for each in checks if str(each) == name)
    with pytest.raises(AssertionError) as caught:
        check()
    return str(caught.value)


@pytest.mark.parametrize("cls", ESTIMATORS)
def test_faulty_estimators_are_caught(cls: Any) -> None:
    assert failing(estimator_checks(functools.partial(cls, 3)), ESTIMATORS[cls])


@pytest.mark.parametrize("cls", DECIDERS)
def test_faulty_deciders_are_caught(cls: Any) -> None:
    assert failing(decider_checks(lambda **options: built(cls, **options)), DECIDERS[cls])


BAD_MAKERS: dict[str, Callable[[], Any]] = {
    "got RidgeRegression; pass functools.partial": lambda: estimator_checks(RidgeRegression(3)),  # type: ignore[arg-type]
    "got UCB; check_decider checks policies": lambda: estimator_checks(lambda **o: UCB(RidgeRegression(3, **o))),
    "got RidgeRegression; check_estimator": lambda: decider_checks(functools.partial(RidgeRegression, 3)),
    "it raised .* unexpected keyword argument": lambda: estimator_checks(lambda: RidgeRegression(3)),
    "ignores batch_shape": lambda: estimator_checks(lambda **o: RidgeRegression(3)),
    "missing a required argument: 'dim'": lambda: estimator_checks(RidgeRegression),
}


@pytest.mark.parametrize("message", BAD_MAKERS)
def test_a_bad_make_is_named(message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=rf"^make: expected .*{message}"):
        BAD_MAKERS[message]()


def test_an_encoder_needs_inputs() -> None:
    def make(**options: Any) -> BanditHead:
        return BanditHead(torch.nn.Linear(3, 3).double(), UCB(RidgeRegression(3, **options)))

    with pytest.raises(TypeError, match=r"^inputs: expected a function"):
        decider_checks(make)


def test_an_unknown_rule_is_no_skip() -> None:
    with pytest.raises(ValueError, match=r"^skip: expected names among .*, got ..memory"):
        check_estimator(functools.partial(RidgeRegression, 3), skip={"memory": "flaky"})


def test_all_broken_rules_are_listed() -> None:
    names = {str(check) for check in estimator_checks(functools.partial(Keeps, 3))}
    kept = {"reset_forgets_everything", "buffers_are_written_in_place"}
    with pytest.raises(
        AssertionError, match=r"^Keeps breaks 1 of \d+ rules:\nreset_forgets_everything \(rule 3\): "
    ) as caught:
        check_estimator(functools.partial(Keeps, 3), skip=dict.fromkeys(names - kept, "not of interest"))
    assert isinstance(caught.value.__cause__, AssertionError)


def test_a_rule_may_choose_otherwise_on_small_rounds_too() -> None:
    arms, policy = torch.eye(2, dtype=torch.float64), Worst(RidgeRegression(2))
    policy.step(arms, 0, 1.0)
    scores = policy(arms)
    assert int(policy.select(arms)) == int(scores.argmin())


def test_a_round_of_a_log_has_its_place() -> None:
    class Sums(DisjointArms):
        """Adds up the places that it learns."""

        total = 0.0

        def _learn_round(self, x: Tensor, place: Tensor, reward: Tensor, noise_scale: Tensor) -> None:
            Sums.total += float(place)
            super()._learn_round(x, place, reward, noise_scale)

    arms = Sums(RidgeRegression(2), 3)
    arms.is_small = arms.has_blocks = False
    arms.learn(torch.ones(3, 2), torch.tensor([0, 1, 2]), torch.full((3,), 0.25))
    assert Sums.total == 3.0
