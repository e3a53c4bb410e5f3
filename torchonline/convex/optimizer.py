"""The convex learners as a ``torch.optim.Optimizer``: parameters that train without a learning rate."""

import copy
import inspect
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from torchonline.convex.ca_oons import CAOONS
from torchonline.convex.cla_oons import CLAOONS
from torchonline.convex.freegrad import FreeGrad
from torchonline.convex.learner import ConvexLearner
from torchonline.convex.oons import OONS
from torchonline.core.checks import check_values, kind, one_of, shape_text

# By name: the learner, what the name says of its options, and the largest group whose matrices it can have. A step of that
# size takes seconds.
LEARNERS: dict[str, tuple[type[ConvexLearner], dict[str, Any], float]] = {
    "freegrad": (FreeGrad, {}, math.inf),
    "oons": (OONS, {}, 2048),
    "cla": (CLAOONS, {}, 2048),
    "ca-linear": (CAOONS, {"meta": "linear"}, 512),
    "ca-values": (CAOONS, {"meta": "values"}, 512),
}
# What a group decides: its number of values, how many learners there are of it, their type and their place.
DECIDED = {"dim", "batch_shape", "dtype", "device"}
# What a group holds besides options.
RESERVED = {"params", "param_names", "learner"}


class ParameterFree(torch.optim.Optimizer):
    r"""Trains small groups of parameters, such as a linear head, by an online learner and without a learning rate.

    An ordinary loop::

        optimizer = ParameterFree(head.parameters())
        for x, y in batches:
            optimizer.zero_grad()
            loss(head(x), y).backward()
            optimizer.step()

    Each group is one learner, of as many coordinates as the group has values, in double precision whatever the parameters
    are. With the centre c, which is what the parameters were when the group was added,

    .. math:: \text{parameters} = c + x_t ,

    and a step shows the learner the gradient there and writes its next decision :math:`x_{t+1}`. So a learner's guarantee
    holds for the group, if the loss is convex in it and the other groups stand still: regret against all parameters, by their
    distance from c. For data drawn at random that makes the average of the parameters over the steps
    (:class:`torch.optim.swa_utils.AveragedModel`) good; of the last ones, which are often better, it says nothing, and nothing of
    a network that is not convex.

    A group in which no parameter has a gradient is left alone; a single one that has none counts as zeros. The parameters
    belong to the optimizer: what else writes to them is undone by the next step. What would be too large for their type
    is written as its largest number. There is no rate to schedule. Gradients are
    the learner's data, which should not be accumulated, scaled or clipped by something else: ``lipschitz`` is for that.

    ``"ca-values"`` compares the values of the loss at several points, and ``step`` needs a closure as :class:`torch.optim.LBFGS`
    does: it zeroes the gradients, computes the loss, calls ``backward`` and returns the loss. It is called for each of the
    learner's queries, the centre among them, with the same random numbers, and once more where the parameters stand, whose loss
    ``step`` returns. Lightning's automatic optimization gives such a closure; it must not accumulate batches, and what
    ``training_step`` logs is logged each time.

    Cost of a step: the learner's. ``"freegrad"``: O(d) for d values, and three vectors. ``"oons"``, ``"cla"``: O(d^3),
    or O(d^2) and less in other forms. ``"ca-linear"``, ``"ca-values"``: as many of those as it has radii.

    Args:
        params: parameters, or groups of them, as all optimizers take them. A group may have its own ``learner`` and options.
        learner: ``"freegrad"``, :class:`FreeGrad`, which needs to know nothing; ``"oons"``, :class:`OONS`; ``"cla"``,
            :class:`CLAOONS`; ``"ca-linear"`` and ``"ca-values"``, :class:`CAOONS` with that ``meta``.
        options: of the learner's constructor, such as ``lipschitz``. The unit of length is ``initial_scale`` of FreeGrad,
            ``initial_radius`` of OONS and CLAOONS, and ``scale0`` of CAOONS; ``initial_scale`` of CLAOONS is that of gradients.

    Attributes:
        learners: of each group.
        centres: c of each group, ``(d)``, float64.

    Raises:
        TypeError: an option that the learner does not have, or that it needs and is not there, or of a wrong type.
        ValueError: an option's value is wrong; or a group is too large for the learner, is empty, or lies on two devices.

    Example:
        >>> head = torch.nn.Linear(3, 1)
        >>> optimizer = ParameterFree(head.parameters())
        >>> x = torch.randn(256, 3, generator=torch.Generator().manual_seed(0))
        >>> y = x @ torch.tensor([[10.0], [-20.0], [0.1]]) + 5.0
        >>> for _ in range(3000):
        ...     optimizer.zero_grad()
        ...     (head(x) - y).square().mean().backward()
        ...     optimizer.step()
        >>> bool((head(x) - y).square().mean() < 1e-3 * y.var())
        True
    """

    def __init__(self, params: Any, *, learner: str = "freegrad", **options: Any) -> None:
        self.learners: list[ConvexLearner] = []
        self.centres: list[Tensor] = []
        super().__init__(params, {"learner": one_of("learner", learner, tuple(LEARNERS)), **options})

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Let a group be learnt from now on, around the values that its parameters have now."""
        super().add_param_group(param_group)
        try:
            centre, learner = _begin(self.param_groups[-1])
        except Exception:
            self.param_groups.pop()
            raise
        self.centres.append(centre)
        self.learners.append(learner)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Learn from the gradients of the parameters, and move these to the next decisions.

        Args:
            closure: computes the loss and its gradients; needed by ``"ca-values"``. What it returns is returned.

        Raises:
            TypeError: a closure is needed, and there is none or it returns no loss.
            ValueError: a gradient or value is not finite, too large to square, or not dense. No learner and no parameter has
                changed.
        """
        self._move()
        asking = [index for index, learner in enumerate(self.learners) if learner.needs_values]
        if asking and closure is None:
            name = self.param_groups[asking[0]]["learner"]
            raise TypeError(f"closure: expected a function that returns the loss, which {name!r} needs, got None")
        rounds: dict[int, tuple[Tensor, Tensor | None]] = {}
        loss = None
        if closure is not None:
            if asking:
                closure = self._repeatable(closure)
            for index in asking:
                rounds |= self._ask(index, closure)
            with torch.enable_grad():
                loss = closure()
        for index in range(len(self.learners)):
            gradient = None if index in asking else self._gradient(index)
            if gradient is not None:
                rounds[index] = gradient, None
        # All that a step may refuse, before the first one.
        for index, (gradients, values) in rounds.items():
            if self.learners[index].validate:
                check_values(f"gradients of group {index}", gradients)
                if values is not None:
                    check_values(f"values of group {index}", values)
        for index, (gradients, values) in rounds.items():
            self.learners[index].step(gradients, values)
            self._write(index, self.learners[index].predict())
        return loss

    def _repeatable(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        """The closure without the gradients, and with the random numbers, of the call before."""
        repeat = _same_random_numbers(self.centres[0].device)

        def call() -> Any:
            self.zero_grad()
            repeat()
            return closure()

        return call

    def _ask(self, index: int, closure: Callable[[], Any]) -> dict[int, tuple[Tensor, Tensor | None]]:
        """The gradients and values of a group at its queries, under its index, while the others stand; nothing if it has none."""
        gradients, values = [], []
        with self._standing(index):
            for point in self.learners[index].queries():
                self._write(index, point)
                with torch.enable_grad():
                    loss = closure()
                if loss is None:
                    raise TypeError("closure: expected a function that returns the loss, got one that returns None")
                if isinstance(loss, Tensor) and loss.numel() != 1:
                    raise ValueError(f"closure: expected the loss as one number, got {kind(loss)}")
                values.append(float(loss.detach() if isinstance(loss, Tensor) else loss))
                gradients.append(self._gradient(index))
        if all(gradient is None for gradient in gradients):
            return {}
        zeros = torch.zeros_like(self.centres[index])
        stacked = torch.stack([zeros if gradient is None else gradient for gradient in gradients])
        return {index: (stacked, stacked.new_tensor(values))}

    @contextmanager
    def _standing(self, index: int) -> Iterator[None]:
        """Put the parameters of a group back, bit for bit, whatever is done to them."""
        params = self.param_groups[index]["params"]
        here = [p.detach().clone() for p in params]
        try:
            yield
        finally:
            with torch.no_grad():
                for p, value in zip(params, here, strict=True):
                    p.copy_(value)

    def _write(self, index: int, decision: Tensor) -> None:
        """Move the parameters of a group to a decision."""
        with torch.no_grad():
            params = self.param_groups[index]["params"]
            rows = (self.centres[index] + decision).split([p.numel() for p in params])
            for p, row in zip(params, rows, strict=True):
                # The largest number of the parameter's type in the place of infinity: the learner itself has room for more.
                largest = torch.finfo(p.dtype).max
                p.copy_(row.view(p.shape).clamp(-largest, largest))

    def _gradient(self, index: int) -> Tensor | None:
        """The gradient of a group, ``(d)``, in the type of its learner; None if there is none at all."""
        params = self.param_groups[index]["params"]
        if all(p.grad is None for p in params):
            return None
        for p in params:
            if p.grad is not None and p.grad.layout != torch.strided:
                raise ValueError(f"gradients of group {index}: expected dense tensors, got one of {p.grad.layout}")
        return _flat([torch.zeros_like(p) if p.grad is None else p.grad for p in params])

    def _move(self) -> None:
        """Follow parameters that have moved to another device since."""
        for index, group in enumerate(self.param_groups):
            device = group["params"][0].device
            if self.centres[index].device != device:
                self.centres[index] = self.centres[index].to(device)
                self.learners[index].to(device)

    def state_dict(self) -> dict[str, Any]:
        """The state of all learners, with their centres, and the groups' options: tensors of its own."""
        learners = [
            {"centre": centre.clone(), "learner": {name: value.clone() for name, value in learner.state_dict().items()}}
            for centre, learner in zip(self.centres, self.learners, strict=True)
        ]
        return super().state_dict() | {"learners": learners}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a state, bit for bit if the parameters are loaded too. All or nothing.

        Raises:
            ValueError: the state is of other groups or options, or of another optimizer.
            RuntimeError: the state of a learner does not fit.
        """
        saved = state_dict.get("learners")
        groups = state_dict.get("param_groups")
        if saved is None or groups is None:
            raise ValueError("state_dict: expected one of ParameterFree, with an entry 'learners', got another")
        if not len(saved) == len(groups) == len(self.param_groups):
            raise ValueError(f"state_dict: expected {len(self.param_groups)} groups, got {len(saved)}")
        for index, (mine, theirs) in enumerate(zip(self.param_groups, groups, strict=True)):
            shape, centre = self.centres[index].shape, saved[index]["centre"]
            if not isinstance(centre, Tensor) or not centre.is_floating_point():
                raise ValueError(f"state_dict: expected the centre of group {index} as a tensor, got {kind(centre)}")
            loaded = centre.shape
            if loaded != shape or len(mine["params"]) != len(theirs["params"]):
                raise ValueError(
                    f"state_dict: expected {len(mine['params'])} parameters, together {shape_text(shape)}, in group {index}, "
                    f"got {len(theirs['params'])}, together {shape_text(loaded)}"
                )
            for name in ("learner", *(name for name in mine if name not in RESERVED | {"validate"})):
                if name not in theirs or not _same(mine[name], theirs[name]):
                    raise ValueError(
                        f"{name}: the state of group {index} was learnt with {theirs.get(name)!r}, this one has {mine[name]!r}"
                    )
            # What does not fit shows on a copy.
            copy.deepcopy(self.learners[index]).load_state_dict(saved[index]["learner"])
        super().load_state_dict({name: value for name, value in state_dict.items() if name != "learners"})
        for learner, centre, theirs in zip(self.learners, self.centres, saved, strict=True):
            learner.load_state_dict(theirs["learner"])
            centre.copy_(theirs["centre"])

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"learners": self.learners, "centres": self.centres}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        # torch puts it there, and a group that is added later would take it for an option.
        self.defaults.pop("differentiable", None)


def _flat(tensors: list[Tensor]) -> Tensor:
    """The values of some tensors in a row, in double precision."""
    return torch.cat([tensor.detach().reshape(-1).to(torch.float64) for tensor in tensors])


def _begin(group: dict[str, Any]) -> tuple[Tensor, ConvexLearner]:
    """The centre and the learner of a group; its options are checked, and completed by those that were not given."""
    chosen = one_of("learner", group["learner"], tuple(LEARNERS))
    cls, settled, largest = LEARNERS[chosen]
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
        raise ValueError(
            f"params: expected at most {largest} values in a group of learner {chosen!r}, which keeps matrices, got {dim}; "
            "'freegrad' is O(d), and so is form='sketch'"
        )
    learner = cls(dim, device=device, **settled, **{option: group[option] for option in known})
    return _flat(group["params"]), learner


def _same_random_numbers(device: torch.device) -> Callable[[], None]:
    """A function that puts torch's generators, on the CPU and on a device, back to where they are now."""
    module = None if device.type == "cpu" else getattr(torch, device.type)
    host = torch.get_rng_state()
    there = None if module is None else module.get_rng_state(device)

    def repeat() -> None:
        torch.set_rng_state(host)
        if module is not None:
            module.set_rng_state(there, device)

    return repeat


def _same(one: Any, other: Any) -> bool:
    """Whether two options are the same; of functions nothing can be said."""
    if isinstance(one, Tensor) or isinstance(other, Tensor):
        return isinstance(one, Tensor) and isinstance(other, Tensor) and torch.equal(one.cpu(), other.cpu())
    return bool(one == other) or (callable(one) and callable(other))
