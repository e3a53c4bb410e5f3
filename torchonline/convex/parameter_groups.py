"""Groups of parameters of ParameterFree: their options and learners."""

import inspect
import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from torchonline.convex.ca_oons import CAOONS
from torchonline.convex.cla_oons import CLAOONS
from torchonline.convex.freegrad import FreeGrad
from torchonline.convex.learner import ConvexLearner
from torchonline.convex.oons import OONS
from torchonline.core.checks import one_of
from torchonline.core.options import former_names, renamed_option

# By name: the learner, the options that the name fixes, and the largest group whose matrices it can hold. A step of that size
# takes seconds.
LEARNERS: dict[str, tuple[type[ConvexLearner], dict[str, Any], float]] = {
    "freegrad": (FreeGrad, {}, math.inf),
    "oons": (OONS, {}, 2048),
    "cla": (CLAOONS, {}, 2048),
    "ca-linear": (CAOONS, {"meta": "linear"}, 512),
    "ca-values": (CAOONS, {"meta": "values"}, 512),
}
# Arguments of a learner that follow from its group.
DECIDED = {"dim", "batch_shape", "dtype", "device"}
# Entries of a group that are no options of its learner.
RESERVED = {"params", "param_names", "learner"}


def begin(group: dict[str, Any]) -> tuple[Tensor, ConvexLearner]:
    """Return the centre and the learner of a group. Check its options, and add the defaults of the others."""
    chosen = one_of("learner", group["learner"], tuple(LEARNERS))
    cls, settled, largest = LEARNERS[chosen]
    for old, new in former_names(cls).items():
        renamed_option(group, old, new, stacklevel=6)  # the caller of ParameterFree
    parameters = inspect.signature(cls).parameters
    known = {name: parameter.default for name, parameter in parameters.items() if name not in DECIDED | settled.keys()}
    for option in group:
        if option not in known and option not in RESERVED:
            raise TypeError(f"{option}: expected an option of learner {chosen!r} ({', '.join(known)}), got another")
    for option, default in known.items():
        if option not in group and default is inspect.Parameter.empty:
            raise TypeError(f"{option}: expected a value, which learner {chosen!r} needs, got none")
        group.setdefault(option, default)
    device = group["params"][0].device if group["params"] else None
    for p in group["params"]:
        if not p.is_floating_point():
            raise TypeError(f"params: expected real floating-point tensors, got {p.dtype}")
        if p.device != device:
            raise ValueError(f"params: expected the tensors of a group on one device, got {device} and {p.device}")
        if not bool(torch.isfinite(p).all()):
            raise ValueError("params: expected finite values, which the learner is centred at, got NaN or infinity")
    dim = sum(p.numel() for p in group["params"])
    if dim == 0:
        raise ValueError("params: expected at least one value in a group, got none")
    if dim > largest and group.get("form") != "sketch":
        wanted = f"at most {largest} values in a group of learner {chosen!r}, which keeps matrices"
        raise ValueError(f"params: expected {wanted}, got {dim}; 'freegrad' is O(d), and so is form='sketch'")
    learner = cls(dim, device=device, **settled, **{option: group[option] for option in known})
    return flat(group["params"]), learner


def flat(tensors: list[Tensor]) -> Tensor:
    """Return the values of tensors as one vector, in double precision."""
    return torch.cat([tensor.detach().reshape(-1).to(torch.float64) for tensor in tensors])


def with_new_names(group: Mapping[str, Any]) -> dict[str, Any]:
    """Return a saved group with the names that its options have now."""
    known = LEARNERS.get(str(group.get("learner")))
    names = former_names(known[0]) if known else {}
    return {names.get(name, name): value for name, value in group.items()}


def is_same(one: Any, other: Any) -> bool:
    """Return whether two options are the same. Two functions count as the same."""
    if isinstance(one, Tensor) or isinstance(other, Tensor):
        return isinstance(one, Tensor) and isinstance(other, Tensor) and torch.equal(one.cpu(), other.cpu())
    return bool(one == other) or (callable(one) and callable(other))
