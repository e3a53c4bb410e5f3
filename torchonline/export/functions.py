"""Pure functions of a policy: they take its state, and return the next one.

:func:`functions_of` makes one set of programs for archives, compiled packages, ONNX graphs and ExecuTorch files. No program holds
a state, so that ``select``, ``step``, ``probabilities`` and ``scores`` can be programs of their own. A
:class:`~torchonline.export.Runner` keeps the state between calls.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from torchonline.core.generators import generators_left_alone
from torchonline.export.guard import chosen, shares
from torchonline.export.programs import learn_round
from torchonline.export.verification import FixedTrial, PolicyTrial
from torchonline.policies.policy import Policy

State = dict[str, Tensor]


def scores(policy: Policy, inputs: Tensor | None) -> Tensor:
    """Return the scores of all arms, available or not."""
    return policy(inputs)


def step(policy: Policy, inputs: Tensor | None, action: Tensor, reward: Tensor, noise_scale: Tensor | None) -> Tensor:
    """Learn a round. Return whether it was learnt; a refused round changes nothing."""
    return learn_round(policy, inputs, action, reward, torch.ones_like(reward, dtype=torch.bool), noise_scale)


class Function(NamedTuple):
    """Function of a policy.

    Attributes:
        call: the function.
        arguments: names of its arguments after the policy, as in :class:`~torchonline.export.programs.Round`.
        result: name of its result.
        changes: whether it changes the policy's state.
    """

    call: Callable[..., Any]
    arguments: tuple[str, ...]
    result: str
    changes: bool = False


FUNCTIONS = {
    "select": Function(chosen, ("inputs", "mask"), "choices"),
    "probabilities": Function(shares, ("inputs", "mask"), "probabilities"),
    "scores": Function(scores, ("inputs",), "scores"),
    "step": Function(step, ("past", "action", "reward", "noise_scale"), "learnt", changes=True),
}


class Call(nn.Module):
    """Call of a function of a policy, as a module whose buffers can be replaced."""

    def __init__(self, policy: Policy, call: Callable[..., Any]) -> None:
        super().__init__()
        self.policy, self._call = policy, call

    def forward(self, *arguments: Any) -> Any:
        return self._call(self.policy, *arguments)


class Pure(nn.Module):
    """Function of a state and of arguments, as a module.

    If it changes the state, it returns the next one, too.

    Args:
        policy: the policy.
        function: the function.
        given: names of the arguments; the others are None.
    """

    def __init__(self, policy: Policy, function: Function, given: tuple[str, ...]) -> None:
        super().__init__()
        self._call, self._function, self._given = Call(policy, function.call), function, given

    def forward(self, state: State, *arguments: Tensor) -> Any:
        policy = self._call.policy
        # A function must not write its arguments, nor the program's own buffers.
        written = state | {name: policy.get_buffer(name) for name in _names(policy, policy._learner().scratch())}
        now = {f"policy.{name}": value.clone() for name, value in written.items()}
        named = dict(zip(self._given, arguments, strict=True))
        with torch.no_grad():
            result = torch.func.functional_call(self._call, now, tuple(map(named.get, self._function.arguments)))
        return (result, {name: now[f"policy.{name}"] for name in state}) if self._function.changes else result


class Start(nn.Module):
    """Function without arguments that returns the first state."""

    def __init__(self, state: State) -> None:
        super().__init__()
        self._state = state

    def forward(self) -> State:
        return {name: value.clone() for name, value in self._state.items()}


def state_of(policy: Policy) -> State:
    """Return copies of the buffers that evolve, by their paths in the policy."""
    buffers = [buffer for learner in policy._learners() for buffer in learner.state().values()]
    return {name: policy.get_buffer(name).clone() for name in _names(policy, buffers)}


def given_to(function: Function, trial: PolicyTrial | FixedTrial) -> tuple[str, ...]:
    """Return the names of the arguments that a function of a trial's policy takes."""
    known = trial.named(trial.round_arguments())
    return tuple(name for name in function.arguments if name in known)


def shapes_for(state: Iterable[str], given: tuple[str, ...], shapes: dict[str, Any]) -> tuple[Any, ...]:
    """Return the dimensions of state and arguments that vary between calls."""
    # A function without arguments has no entry for them.
    return {name: {} for name in state}, *([tuple(shapes[one] for one in given)] if given else [])


def functions_of(
    policy: Policy, trial: PolicyTrial | FixedTrial, shapes: tuple[dict[int, Any], ...] | None = None
) -> dict[str, ExportedProgram]:
    """Return the functions of a policy as programs, ``start`` first.

    Args:
        policy: a copy in evaluation mode.
        trial: its trial, which has examples of the arguments.
        shapes: the dimensions that vary, as of ``trial.dynamic_shapes()``, which is the default.
    """
    varies = trial.named(shapes or trial.dynamic_shapes())
    state, programs, examples = state_of(policy), {}, trial.named(trial.round_arguments())
    with torch.no_grad(), generators_left_alone():
        programs["start"] = torch.export.export(Start(state), (), strict=False)
        for name, function in FUNCTIONS.items():
            given = given_to(function, trial)
            programs[name] = torch.export.export(
                Pure(policy, function, given),
                (state, *(examples[one] for one in given)),
                dynamic_shapes=shapes_for(state, given, varies),
                strict=False,
            )
    return programs


def _names(policy: Policy, buffers: list[Tensor]) -> list[str]:
    """Return the paths of buffers in a policy."""
    wanted = {id(buffer) for buffer in buffers}
    return [name for name, buffer in policy.named_buffers() if id(buffer) in wanted]
