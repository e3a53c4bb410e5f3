"""ParameterFree: the convex learners as a ``torch.optim.Optimizer``."""

import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchonline.convex.ca_oons import CAOONS
from torchonline.convex.cla_oons import CLAOONS
from torchonline.convex.freegrad import FreeGrad
from torchonline.convex.learner import ConvexLearner
from torchonline.convex.oons import OONS
from torchonline.core.all_or_nothing import SNAPSHOT_BYTES, all_or_nothing, copied, torn_error
from torchonline.core.backend import as_array, is_readable
from torchonline.core.checks import check_array, check_values, kind, non_negative, one_of, shape_text
from torchonline.core.citations import Citable
from torchonline.core.options import former_names, renamed_option

ARRAY_DTYPES = (torch.float64, torch.float32, torch.float16)  # types of parameters that NumPy has

# By name: the learner, the options that the name fixes, and the largest group, whose step takes seconds.
LEARNERS: dict[str, tuple[type[ConvexLearner], dict[str, Any], float]] = {
    "freegrad": (FreeGrad, {}, math.inf),
    "oons": (OONS, {}, 2048),
    "cla": (CLAOONS, {}, 2048),
    "ca-linear": (CAOONS, {"meta": "linear"}, 512),
    "ca-values": (CAOONS, {"meta": "values"}, 512),
}
DECIDED = {"dim", "batch_shape", "dtype", "device"}  # arguments of a learner that follow from its group
NOT_OFFERED = {"domain"}  # a set of moves, which a state dict of numbers could not hold
# Entries of a group that are not options of its learner.
RESERVED = {"params", "param_names", "learner", "lr", "initial_lr"}


class ParameterFree(Citable, torch.optim.Optimizer):
    r"""Optimizer without a learning rate, for small groups such as a linear head.

    Each group has one online learner, with a coordinate for each value of the group, in double precision. The parameters are
    :math:`c + x_t`, where the centre c is their value when the group was added, and :math:`x_t` is the learner's decision. A step
    passes the gradient at the parameters to the learner and writes its next decision. Cost of a step: the learner's step.

    ``learner="freegrad", per_coordinate=True`` is for linear models of features in any units: predictions do not depend on the
    features' scales.

    Learning-rate schedulers. A group's ``lr`` multiplies each move: a step adds :math:`\text{lr}\,(x_{t+1} - x_t)`. A constant
    ``lr`` has the same effect as this factor of ``length_scale``, ``initial_wealth`` or ``radius_bound``, and keeps the guarantee
    with the multiplied option. With a schedule there is no guarantee.

    Guarantee. The learner's guarantee holds for the group if the loss is convex in it and the other groups do not move. It bounds
    regret by the distance from c. For independent data, it also bounds the expected loss of the parameters averaged over the
    steps (:class:`torch.optim.swa_utils.AveragedModel`). It says nothing about the last parameters or about a nonconvex loss.

    Limits. A group without any gradient is skipped; in another group, a missing gradient counts as zeros. The next step
    overwrites outside changes of the parameters. A decision too large for the parameters' type is written as the largest number
    of that type. Do not accumulate, scale or clip gradients, because they are the learner's data; use ``lipschitz`` instead.
    Sparse gradients, as of ``torch.nn.Embedding(sparse=True)``, are made dense: a step costs as much as with dense gradients.
    With ``per_coordinate=True``, a parameter whose gradient is 0 keeps its value, bit for bit. With ``"ca-values"``, ``step``
    needs a closure that zeroes the gradients, computes the loss, calls ``backward`` and returns the loss. ``step`` calls the
    closure several times (docs/parameter_free.md). The same holds for every learner that needs gradients at other points than its
    decision.

    Args:
        params: parameters, or groups of them, as in all optimizers. A group may have its own ``learner`` and options.
        learner: ``"freegrad"``, :class:`FreeGrad`, which needs no prior knowledge; ``"oons"``, :class:`OONS`; ``"cla"``,
            :class:`CLAOONS`; ``"ca-linear"`` and ``"ca-values"``, :class:`CAOONS` with that ``meta``. Or a subclass of
            :class:`~torchonline.convex.learner.ConvexLearner` whose first argument is ``dim`` and whose first decision is 0, such
            as ``torchonline.baselines.DoG``.
        lr: factor of the moves, at least 0, which schedulers may change. Leave it at 1 without a scheduler.
        options: options of the learner's constructor, such as ``lipschitz`` or ``length_scale``, the unit of length.

    Attributes:
        learners: a learner for each group.
        centres: c, ``(d)``, float64, for each group. A change of ``lr`` moves c, so that the parameters stay where they are.

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

    remedy_of_torn = "load a state dict, and the parameters that were saved with it"
    _is_torn = False

    def __init__(
        self, params: Any, *, learner: str | type[ConvexLearner] = "freegrad", lr: float = 1.0, **options: Any
    ) -> None:
        self.learners: list[ConvexLearner] = []
        self.centres: list[Tensor] = []
        self.rates: list[Tensor] = []  # the lr of each group's last step, (), float64, on the CPU
        self._vectors: dict[int, GroupVector] = {}  # by group, on demand
        learner_of(learner)
        super().__init__(params, {"learner": learner, "lr": lr, **options})

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a parameter group, centred at the parameters' current values.

        Raises:
            TypeError, ValueError: an option or a parameter is wrong. No group is added.
        """
        count = len(self.learners)
        try:
            super().add_param_group(param_group)
            centre, learner = begin(self.param_groups[-1])
            self.rates.append(torch.tensor(rate_of(self.param_groups[-1]), dtype=torch.float64))
            self.centres.append(centre)
            self.learners.append(learner)
        except BaseException:
            del self.param_groups[count:], self.centres[count:], self.learners[count:], self.rates[count:]
            raise

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Learn from the gradients, and move the parameters to the next decisions.

        Return the result of ``closure``, which computes the loss and its gradients and returns the loss. ``"ca-values"`` needs a
        closure. After an error no learner and no parameter has changed.

        Raises:
            RuntimeError: an earlier step of large groups, or on another device, was interrupted, and no state was loaded since.
        """
        self._refuse_torn()
        self._move()
        asking = [index for index, learner in enumerate(self.learners) if needs_closure(learner)]
        if asking and closure is None:
            name = name_of(self.param_groups[asking[0]]["learner"])
            raise TypeError(f"closure: expected a function that returns the loss, which {name!r} needs, got None")
        rounds: dict[int, tuple[Tensor, Tensor | None]] = {}
        loss = None
        if closure is not None:
            for index in asking:
                rounds |= self._ask(index, closure)
            if asking:
                self.zero_grad()
            with torch.enable_grad():
                loss = closure()
        for index in range(len(self.learners)):
            if index not in asking and (gradient := self._gradient(index)) is not None:
                rounds[index] = gradient, None
        # All checks come before the first step.
        for index, (gradients, values) in rounds.items():
            rate_of(self.param_groups[index])
            if self.learners[index].validate:
                check_any(f"gradients of group {index}", gradients)
                if values is not None:
                    check_any(f"values of group {index}", values)
        if rounds:
            arrays = self._arrays(rounds)
            try:
                all_or_nothing(self, copied(arrays) if arrays else None, self._learn, rounds)
            except BaseException:
                if not self._is_torn:  # no learner has changed
                    for index in rounds:
                        self.learners[index].__dict__["_is_torn"] = False
                raise
        return loss

    def _learn(self, rounds: Mapping[int, tuple[Tensor, Tensor | None]]) -> None:
        """Learn from the rounds of the groups, and move their parameters."""
        for number, (index, (gradients, values)) in enumerate(rounds.items()):
            learner, rate, before = self.learners[index], rate_of(self.param_groups[index]), float(self.rates[index])
            shift = None if rate == before else (before - rate) * learner.decision
            try:
                learner._learn_checked(gradients, values)
            except ValueError as error:
                if number:  # earlier groups have moved
                    error.is_refusal = False  # type: ignore[attr-defined]
                raise
            if shift is not None:  # the last decision stays where it was
                self.centres[index] += shift
                self.rates[index].fill_(rate)
            self._write(index, learner.decision)

    def _arrays(self, indices: Iterable[int]) -> list[np.ndarray]:
        """Return the arrays that a step writes; none if copies would slow the step."""
        arrays = []
        for index in indices:
            learner = self.learners[index]
            view = learner.view_for(self.centres[index]) if learner.is_small else None
            if view is None or view.bytes > SNAPSHOT_BYTES:
                return []
            arrays += [*view.state, self.centres[index].numpy(), self.rates[index].numpy()]
            for p in self.param_groups[index]["params"]:
                if p.dtype not in ARRAY_DTYPES or not is_readable(p):
                    return []
                arrays.append(p.detach().numpy())
        return arrays

    def _ask(self, index: int, closure: Callable[[], Any]) -> dict[int, tuple[Tensor, Tensor | None]]:
        """Return a group's gradients and values at its queries, by index; empty if none."""
        params = self.param_groups[index]["params"]
        here = [p.detach().clone() for p in params]
        device = self.centres[0].device
        devices = [] if device.type == "cpu" else [device]
        gradients, values = [], []
        try:
            for point in self.learners[index].queries():
                self._write(index, point)
                self.zero_grad()
                # All calls see the same random numbers, including the last one in `step`.
                with torch.enable_grad(), torch.random.fork_rng(devices, device_type=device.type):
                    loss = closure()
                if loss is None:
                    raise TypeError("closure: expected a function that returns the loss, got one that returns None")
                if isinstance(loss, Tensor) and loss.numel() != 1:
                    raise ValueError(f"closure: expected the loss as one number, got {kind(loss)}")
                values.append(float(loss.detach() if isinstance(loss, Tensor) else loss))
                gradient = self._gradient(index)
                gradients.append(None if gradient is None else gradient.clone())
        finally:
            with torch.no_grad():
                for p, value in zip(params, here, strict=True):
                    p.copy_(value)
        if all(gradient is None for gradient in gradients):
            return {}
        zeros = torch.zeros_like(self.centres[index])
        stacked = torch.stack([zeros if gradient is None else gradient for gradient in gradients])
        shape = self.learners[index].gradients_shape
        return {index: (stacked.view(shape), stacked.new_tensor(values).view(shape[:-1]))}

    def _write(self, index: int, decision: Tensor) -> None:
        """Move the parameters of a group to a decision."""
        self._vector(index).write(self.centres[index], float(self.rates[index]), decision)

    def _gradient(self, index: int) -> Tensor | None:
        """Return the gradient of a group, ``(d)``, float64; None if no parameter has one.

        The group's next gradient and the next write of its parameters overwrite it.
        """
        gradients = [p.grad for p in self.param_groups[index]["params"]]
        if all(gradient is None for gradient in gradients):
            return None
        return self._vector(index).read(gradients)

    def _vector(self, index: int) -> "GroupVector":
        """Return the vector of a group, a new one if its parameters have changed."""
        params, vector = self.param_groups[index]["params"], self._vectors.get(index)
        if vector is None or vector.params is not params or vector.dtypes != [p.dtype for p in params]:
            vector = self._vectors[index] = GroupVector(params)
        return vector

    def _refuse_torn(self) -> None:
        """Raise if an interrupted step has moved some groups and not others."""
        if self._is_torn or any(learner._is_torn for learner in self.learners):
            raise torn_error(self)  # type: ignore[arg-type]

    def _move(self) -> None:
        """Follow parameters that have moved to another device."""
        for index, group in enumerate(self.param_groups):
            device = group["params"][0].device
            if self.centres[index].device != device:
                self.centres[index] = self.centres[index].to(device)
                self.learners[index].to(device)
                self._vectors.pop(index, None)

    def state_dict(self) -> dict[str, Any]:
        """Return copies of the learners' states, the centres and the groups' options."""
        self._refuse_torn()
        triples = zip(self.centres, self.rates, self.learners, strict=True)
        learners = [
            {"centre": centre.clone(), "rate": float(rate), "learner": dict(learner.state_dict())}
            for centre, rate, learner in triples
        ]
        state = super().state_dict()
        # A name, because files of weights hold no classes.
        groups = [group | {"learner": name_of(group["learner"])} for group in state["param_groups"]]
        return state | {"param_groups": groups, "learners": learners}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a state, all or nothing.

        If the parameters are loaded too, training continues bit for bit. A state of other groups or options, or of another
        optimizer, raises ValueError. A state that does not fit raises RuntimeError.
        """
        saved, groups = state_dict.get("learners"), state_dict.get("param_groups")
        if not isinstance(saved, list) or not isinstance(groups, list) or "state" not in state_dict:
            raise ValueError("state_dict: expected a state of ParameterFree, with an entry 'learners', got another")
        if not len(saved) == len(groups) == len(self.param_groups):
            raise ValueError(f"state_dict: expected {len(self.param_groups)} groups, got {len(saved)}")
        for index, (theirs, group) in enumerate(zip(saved, groups, strict=True)):
            _check_saved(index, theirs, group)
        groups = [self._checked_group(index, group, saved[index]["centre"]) for index, group in enumerate(groups)]
        own = {name: value for name, value in state_dict.items() if name != "learners"} | {"param_groups": groups}
        load_own = super().load_state_dict

        def load() -> None:
            for index, theirs in enumerate(saved):
                self.learners[index].load_state_dict(theirs["learner"])
                self.centres[index].copy_(theirs["centre"])
                self.rates[index].fill_(theirs.get("rate", 1.0))  # older states have none
            load_own(own)

        state = [buffer for learner in self.learners for buffer in learner.state().values()]
        all_or_nothing(self, copied(state + self.centres + self.rates), load)

    def _checked_group(self, index: int, theirs: Mapping[str, Any], centre: Any) -> dict[str, Any]:
        """Return a saved group under its options' present names, or raise if it differs."""
        names = former_names(type(self.learners[index]))
        theirs = {names.get(name, name): value for name, value in theirs.items()}
        mine, shape = self.param_groups[index], self.centres[index].shape
        if not isinstance(centre, Tensor) or not centre.is_floating_point():
            raise ValueError(f"state_dict: expected the centre of group {index} as a tensor, got {kind(centre)}")
        if centre.shape != shape or len(mine["params"]) != len(theirs["params"]):
            wanted = f"{len(mine['params'])} parameters, together {shape_text(shape)}, in group {index}"
            got = f"{len(theirs['params'])}, together {shape_text(centre.shape)}"
            raise ValueError(f"state_dict: expected {wanted}, got {got}")
        # A state from before an option or `lr` existed has the default. Schedulers add their own entries.
        parameters = inspect.signature(type(self.learners[index])).parameters
        defaults = {"lr": 1.0} | {name: parameters[name].default for name in mine if name in parameters}
        theirs = defaults | theirs
        named = {**mine, "learner": name_of(mine["learner"])}
        for name in ("learner", *(name for name in defaults if name not in ("lr", "validate"))):
            if not is_same(named[name], theirs.get(name)):
                learnt = f"{name}: the state of group {index} was learnt with {theirs.get(name)!r}"
                raise ValueError(f"{learnt}, this one has {named[name]!r}")
        rate_of(theirs)
        return {**theirs, "learner": mine["learner"]}

    def __getstate__(self) -> dict[str, Any]:
        own = {"learners": self.learners, "centres": self.centres, "rates": self.rates, "_is_torn": self._is_torn}
        return super().__getstate__() | own

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._vectors = {}
        # torch adds this default. A group that is added later would treat it as an option.
        self.defaults.pop("differentiable", None)
        if not hasattr(self, "rates"):  # pickled before they existed
            self.rates = [torch.ones((), dtype=torch.float64) for _ in self.learners]
        self.defaults.setdefault("lr", 1.0)
        for group in self.param_groups:
            group.setdefault("lr", 1.0)


class GroupVector:
    """A vector, float64, of the gradients or values of a group's parameters.

    torch reads and writes it in single calls.
    """

    def __init__(self, params: list[Tensor]) -> None:
        self.params = params
        self.vector = torch.empty(sum(p.numel() for p in params), dtype=torch.float64, device=params[0].device)
        rows = self.vector.split([p.numel() for p in params])
        self.views = [row.view(p.shape) for row, p in zip(rows, params, strict=True)]
        self.dtypes = [p.dtype for p in params]
        largest = [torch.finfo(dtype).max for dtype in self.dtypes]
        is_uniform = len(set(largest)) == 1
        # Where one call clamps the whole vector, it does.
        self.ranges = [(self.vector, largest[0])] if is_uniform else list(zip(self.views, largest, strict=True))

    def read(self, gradients: list[Tensor | None]) -> Tensor:
        """Return the vector of gradients; None and missing entries are zeros."""
        given = [each.to_dense() for each in gradients if each is not None]
        views = [view for view, each in zip(self.views, gradients, strict=True) if each is not None]
        with torch.no_grad():
            if len(given) < len(gradients):
                self.vector.zero_()
            torch._foreach_copy_(views, given)
        return self.vector

    def write(self, centre: Tensor, rate: float, decision: Tensor) -> None:
        """Write ``centre + rate * decision``, in the range of the types."""
        with torch.no_grad():
            torch.add(centre, decision, alpha=rate, out=self.vector)
            for values, largest in self.ranges:
                values.clamp_(-largest, largest)
            torch._foreach_copy_(self.params, self.views)


def _check_saved(index: int, saved: Any, group: Any) -> None:
    """Raise unless ``saved`` is the state of a group and its learner."""
    if not isinstance(group, Mapping) or not isinstance(group.get("params"), list):
        raise ValueError(f"state_dict: expected group {index} with an entry 'params', got {kind(group)}")
    wanted = f"state_dict: expected the state of the learner of group {index}"
    if not isinstance(saved, Mapping) or "centre" not in saved or not isinstance(saved.get("learner"), Mapping):
        raise ValueError(f"{wanted}, with entries 'centre' and 'learner', got {kind(saved)}")
    centre, rate = saved["centre"], saved.get("rate", 1.0)
    if isinstance(centre, Tensor) and not bool(torch.isfinite(centre).all()):
        raise ValueError(f"{wanted}, got a centre that is not finite")
    if not isinstance(rate, (int, float)) or not 0.0 <= rate < math.inf:
        raise ValueError(f"{wanted}, with a rate of at least 0, got {rate!r}")


def begin(group: dict[str, Any]) -> tuple[Tensor, ConvexLearner]:
    """Check a group's options, add the defaults, and return its centre and learner."""
    cls, settled, largest = learner_of(group["learner"])
    chosen = name_of(group["learner"])
    for old, new in former_names(cls).items():
        renamed_option(group, old, new, stacklevel=6)  # the caller of ParameterFree
    parameters = inspect.signature(cls).parameters
    known = {
        name: parameter.default
        for name, parameter in parameters.items()
        if name not in DECIDED | NOT_OFFERED | settled.keys()
    }
    rate_of(group)
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
    if bool(learner.decision.any()):
        raise ValueError(f"learner: expected a learner whose first decision is 0, got {chosen!r}")
    return flat(group["params"]), learner


def learner_of(chosen: Any) -> tuple[type[ConvexLearner], dict[str, Any], float]:
    """Return the class of a choice, the options that it fixes and its largest group."""
    if isinstance(chosen, str):
        return LEARNERS[one_of("learner", chosen, tuple(LEARNERS))]
    if not (isinstance(chosen, type) and issubclass(chosen, ConvexLearner)) or chosen is ConvexLearner:
        got = chosen.__name__ if isinstance(chosen, type) else kind(chosen)
        raise TypeError(f"learner: expected one of {', '.join(LEARNERS)} or a class of ConvexLearner, got {got}")
    if next(iter(inspect.signature(chosen).parameters), None) != "dim":
        raise ValueError(f"learner: expected a class whose first argument is dim, got {name_of(chosen)!r}")
    return chosen, {}, min((largest for cls, _, largest in LEARNERS.values() if cls is chosen), default=math.inf)


def name_of(chosen: str | type) -> str:
    """Return the name of a choice of learner: its own, or the path of its class."""
    return chosen if isinstance(chosen, str) else f"{chosen.__module__}.{chosen.__qualname__}"


def needs_closure(learner: ConvexLearner) -> bool:
    """Return whether a learner needs more than the gradient at its decision."""
    return learner.needs_values or learner.points > 1 or learner.asks_elsewhere


def flat(tensors: list[Tensor]) -> Tensor:
    """Return the values of tensors as one vector, in double precision."""
    return torch.cat([tensor.detach().reshape(-1).to(torch.float64) for tensor in tensors])


def check_any(name: str, value: Tensor) -> None:
    """Refuse NaN, infinity and values too large to square."""
    if value.is_cpu:
        check_array(name, as_array(value))
    else:
        check_values(name, value)


def rate_of(group: Mapping[str, Any]) -> float:
    """Return a group's ``lr``."""
    rate = group["lr"]
    rate = rate.item() if isinstance(rate, Tensor) and rate.numel() == 1 else rate
    # A schedule may fall below the range of options.
    return rate if isinstance(rate, float) and 0.0 <= rate <= 1.0 else non_negative("lr", rate)


def is_same(one: Any, other: Any) -> bool:
    """Return whether two options are the same. Two functions count as the same."""
    if isinstance(one, Tensor) or isinstance(other, Tensor):
        return isinstance(one, Tensor) and isinstance(other, Tensor) and torch.equal(one.cpu(), other.cpu())
    return bool(one == other) or (callable(one) and callable(other))
