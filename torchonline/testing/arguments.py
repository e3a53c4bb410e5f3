"""Rule 9: a wrong argument is refused by name, and changes nothing."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from torchonline.testing.rules import rule
from torchonline.testing.subject import BATCH_SHAPES, DeciderSubject, EstimatorSubject, Round, Shape, Subject
from torchonline.testing.tools import complaint, require, require_state, snapshot

# A kind of wrong argument, the argument's name, and all arguments.
Bad = tuple[str, str, dict[str, Any]]


class Named(Tensor):
    """A subclass of a tensor."""


def with_last(good: Tensor, value: float) -> Tensor:
    """Return a copy with another last number."""
    bad = good.clone()
    bad.view(-1)[-1] = value
    return bad


def no_floats(good: Tensor, is_real: bool = False) -> dict[str, Any]:
    """Return values that are not floats on the learner's device.

    Tensors of integers and booleans are welcome where ``is_real``, as rewards are; sparse tensors are not.
    """
    ragged = [*good.reshape(-1).tolist(), [0.0, 1.0]]
    return {
        "a string": "features",
        "a list of strings": [str(value) for value in good.reshape(-1).tolist()],
        "a ragged list": ragged,
        "a list with None": [*good.reshape(-1).tolist(), None],
        "a complex number": 1j,
        "a complex NumPy array": good.cpu().numpy().astype(np.complex128),
        "a NumPy array of objects": np.array(good.cpu().numpy(), dtype=object),
        "long integers": np.full(tuple(good.shape), 2**53 + 1, dtype=np.int64),
        "a long integer": 2**53 + 1,
        "complex numbers": good.to(torch.complex128),
        "on another device": good.to("meta"),
    } | (
        {"a sparse tensor": good.to_sparse()}
        if is_real
        else {
            "integers": good.to(torch.int64),
            "booleans": good.to(torch.bool),
            "a sparse tensor of integers": good.to(torch.int64).to_sparse(),
        }
    )


def no_values(good: Tensor) -> dict[str, Any]:
    """Return arguments with a value that no feature and no reward may have."""
    return {
        "NaN": with_last(good, torch.nan),
        "infinity": with_last(good, torch.inf),
        "minus infinity": with_last(good, -torch.inf),
        "too large": with_last(good, 1e200),
        "too small": with_last(good, -1e200),
        "NaN that requires grad": with_last(good, torch.nan).requires_grad_(),
        "NaN in a parameter": nn.Parameter(with_last(good, torch.nan)),
        "NaN in a subclass": with_last(good, torch.nan).as_subclass(Named),
        "NaN in a NumPy array": with_last(good, torch.nan).cpu().numpy(),
        "infinity in a list": with_last(good, torch.inf).tolist(),
        "NaN of half precision": with_last(good, torch.nan).half(),
        "infinity of single precision": with_last(good, torch.inf).float(),
    }


def wrong_shapes(good: Tensor, batch_dims: int, features: bool, item_dims: int = 1) -> dict[str, Tensor]:
    """Return tensors whose sizes fit neither the learner nor the other arguments.

    A round has features of ``item_dims`` dimensions.
    """
    shapes = {"a dimension too many": good.unsqueeze(0), "two dimensions too many": good[None, None]}
    if good.dim() > 0:
        shapes |= {"no dimension": good.reshape(-1)[0], "a dimension too few": good.select(0, 0)}
    if features:
        shapes |= {"a feature too few": good[..., 1:], "a feature too many": torch.cat([good, good[..., :1]], -1)}
        shapes |= {"no feature": good[..., :0]}
        # One learner takes (d,) as one round and (n, d) as n rounds: each alone is right.
        if batch_dims == 0:
            del shapes["a dimension too many" if good.dim() == item_dims else "a dimension too few"]
    if batch_dims > 0:
        shapes |= {"of a smaller batch": good[:1], "of a larger batch": torch.cat([good, good[:1]])}
    return shapes


def no_actions(good: Tensor, arms: int) -> dict[str, Any]:
    """Return invalid actions among so many arms."""
    return {
        "a string": "all",
        "a number": 1.5,
        "True": True,
        "numbers": good.double(),
        "complex numbers": good.to(torch.complex128),
        "booleans": good.bool(),
        "32 bits": good.int(),
        "negative": with_last(good, -1),
        "too large": with_last(good, arms),
        "on another device": good.to("meta"),
    }


def no_masks(mask: Tensor, features: int) -> dict[str, Any]:
    """Return invalid masks of the shape of ``mask``."""
    return {
        "a string": "all",
        "a list of integers": mask.int().tolist(),
        "a NumPy array of bytes": mask.byte().cpu().numpy(),
        "integers": mask.to(torch.int64),
        "numbers": mask.to(torch.float64),
        "bytes": mask.to(torch.uint8),
        "on another device": mask.to("meta"),
        "an entry too few": mask[..., 1:],
        "an entry too many": torch.cat([mask, mask[..., :1]], -1),
        "with the features": mask.unsqueeze(-1).expand(*mask.shape, features),
        "no dimension": mask.reshape(-1)[0],
    }


def good_steps(subject: Subject, batch_shape: Shape, rows: Shape) -> Round:
    """Return arguments that ``step`` accepts, as float64 tensors."""
    shape = (*batch_shape, *rows, *subject.output_shape)
    good: Round = {}
    if subject.decides:
        given = subject.example()
        if given is not None:
            given = given.expand(*batch_shape, *rows, *given.shape).clone()
        # The last arm, whose features end with the value that is spoilt.
        good = {"inputs": given, "action": torch.full((*batch_shape, *rows), subject.arms - 1)}
    else:
        good = {"x": subject.short(torch.randn(*batch_shape, *rows, subject.dim, dtype=torch.float64))}
    good[subject.response] = subject.possible(torch.randn(shape, dtype=torch.float64))
    return good | {"noise_scale": torch.rand(shape, dtype=torch.float64) + 0.5}


def bad_steps(subject: Subject, batch_shape: Shape, rows: Shape) -> Iterator[Bad]:
    """Yield bad inputs of ``step``: the kind, the argument to blame, all arguments."""
    good, at, outputs = good_steps(subject, batch_shape, rows), len(batch_shape), subject.output_shape
    for name, value in good.items():
        is_features = name == subject.features
        if value is None or (is_features and subject.decides and not subject.checks_inputs):
            continue
        is_action = name == "action"
        # Without inputs, the shape of the actions tells how many rounds there are.
        has_shape = not is_action or subject.takes_inputs
        kinds = no_actions(value, subject.arms) if is_action else no_floats(value, not is_features) | no_values(value)
        kinds |= wrong_shapes(value, at, is_features, subject.item_dims) if has_shape else {}
        if name == "noise_scale":
            kinds["negative"] = with_last(value, -0.1)
        else:
            kinds["None"] = None
        if rows and not is_features and has_shape:
            row = value.narrow(at, 0, 1)
            kinds |= {"a row too few": value.narrow(at, 1, rows[0] - 1), "a row too many": torch.cat([value, row], at)}
        if outputs and not is_features:
            kinds |= {"an output too few": value[..., 1:], "an output too many": torch.cat([value, value[..., :1]], -1)}
        for kind, bad in kinds.items():
            yield kind, name, good | {name: bad}


def bad_logs(log: Round, rounds: Shape, features: int, takes_mask: bool = True) -> Iterator[Bad]:
    """Yield bad block sizes and masks of ``learn``, for rounds of shape ``(*B, n)``."""
    for size in (0, -1, True, 2.5, "3", np.float64(2.0), torch.tensor(3), [3]):
        yield repr(size), "block_size", log | {"block_size": size}
    masks = no_masks(torch.ones(rounds, dtype=torch.bool), features) | {"a number": 1.0, "True": True}
    for kind, bad in masks.items() if takes_mask else ():
        yield kind, "mask", log | {"mask": bad}


@rule(9, quick=True)
def bad_steps_are_refused_by_name(subject: Subject) -> None:
    """A bad step raises an error that names the argument, and changes nothing."""
    for batch_shape in BATCH_SHAPES:
        learner = subject.taught(7, batch_shape=batch_shape)
        before, wrong = snapshot(learner), []
        for rows in ((), (3,)):
            learner.step(**good_steps(subject, batch_shape, rows))
            learner.load_state_dict(before)
            for kind, name, arguments in bad_steps(subject, batch_shape, rows):
                label = f"{name} {kind} {batch_shape} {rows}"
                wrong += complaint(label, name, learner.step, **arguments)
        require(not wrong, "\n".join(wrong))
        require_state(before, learner, "after refused steps")


@rule(9)
def bad_logs_are_refused_by_name(subject: Subject) -> None:
    """A log is refused for what ``step`` refuses, and for bad block sizes and masks."""
    for batch_shape in BATCH_SHAPES:
        learner = subject.taught(7, batch_shape=batch_shape)
        log = subject.log(13, batch_shape)
        before, wrong = snapshot(learner), []
        logs = bad_logs(log, (*batch_shape, 13), subject.dim, subject.takes_mask)
        steps = [bad_steps(subject, batch_shape, rows) for rows in ((), (3,))]
        for kind, name, arguments in itertools.chain(*steps, logs):
            bad = {"block_size": 2} | arguments
            wrong += complaint(f"{name} {kind} {batch_shape}", name, learner.learn, **bad)
        require(not wrong, "\n".join(wrong))
        require_state(before, learner, "after refused logs")


@rule(9, "estimators")
def bad_looks_are_refused_by_name(subject: EstimatorSubject) -> None:
    """The mean, width and interval of wrong features raise an error that names ``x``."""
    for batch_shape in BATCH_SHAPES:
        estimator, wrong = subject.taught(7, batch_shape=batch_shape), []
        good = torch.randn(*batch_shape, 4, subject.dim, dtype=torch.float64)
        # Any number of dimensions may stand between those of the batch and the features.
        shapes = wrong_shapes(good, len(batch_shape), features=True)
        if not batch_shape:
            for kind in ("a dimension too many", "two dimensions too many", "a dimension too few"):
                shapes.pop(kind, None)
        for look in (estimator.forward, estimator.width, estimator.interval):
            for kind, bad in ({"None": None} | no_floats(good) | shapes).items():
                wrong += complaint(f"{look.__name__} {kind} {batch_shape}", "x", look, bad)
        require(not wrong, "\n".join(wrong))


@rule(9, "deciders")
def bad_questions_are_refused_by_name(subject: DeciderSubject) -> None:
    """Choices and probabilities of wrong inputs or masks raise an error by name."""
    for batch_shape in BATCH_SHAPES:
        policy, wrong = subject.taught(7, batch_shape=batch_shape), []
        before, good = snapshot(policy), good_steps(subject, batch_shape, ())["inputs"]
        mask = torch.ones(*batch_shape, subject.arms, dtype=torch.bool)
        one_without = mask.clone()
        one_without.view(-1, subject.arms)[-1] = False
        masks = no_masks(mask, 3) | {
            "nothing available": torch.zeros_like(mask),
            "nothing in one decision": one_without,
        }
        asks: tuple[Callable[..., Any], ...] = (policy.select, policy.probabilities, policy.select_with_probability)
        for ask in asks:
            for kind, bad in masks.items():
                wrong += complaint(f"{ask.__name__} mask {kind}", "mask", ask, good, mask=bad)
            for kind, bad in bad_inputs(subject, good, len(batch_shape)).items():
                wrong += complaint(f"{ask.__name__} {kind}", "inputs", ask, bad)
                if isinstance(bad, Tensor) and bad.dim() > 1 and bad.is_cpu and bad.layout == torch.strided:
                    sizes = bad.shape[:-1] if subject.item_dims == 2 else (*bad.shape[:-1], subject.arms)
                    available = torch.ones(sizes, dtype=torch.bool)
                    wrong += complaint(
                        f"{ask.__name__} {kind}, with a mask",
                        "inputs",
                        ask,
                        bad,
                        mask=available,
                    )
        require(not wrong, "\n".join(wrong))
        require_state(before, policy, "after refused questions")


def bad_inputs(subject: DeciderSubject, good: Any, batch_dims: int) -> dict[str, Any]:
    """Return inputs of decisions that no policy may accept."""
    if not subject.checks_inputs:
        return {}
    kinds = no_floats(good) | no_values(good) | {"None": None}
    kinds |= wrong_shapes(good, batch_dims, features=True, item_dims=subject.item_dims)
    if subject.item_dims == 2:
        kinds["no arm"] = good[..., :0, :]
    # A single learner that is given (N, K, d) is given N decisions.
    if not batch_dims:
        for kind in ("a dimension too many", "two dimensions too many"):
            kinds.pop(kind, None)
    return kinds
