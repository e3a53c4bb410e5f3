"""Random draws from separate generators."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode


class OwnDraws(TorchDispatchMode):
    """Context in which this thread's operators draw from separate generators.

    It covers the random operators of eager modules, TorchScript and programs. Other threads keep drawing from the global
    generators, whose states do not change. Seeding or restoring a global generator for a while would instead repeat draws in
    other threads.

    Attributes:
        count: number of random operators so far.

    Example:
        >>> state = torch.get_rng_state()
        >>> with OwnDraws(seed=0):
        ...     one = torch.rand(2)
        >>> with OwnDraws(seed=0):
        ...     other = torch.rand(2)
        >>> torch.equal(one, other), torch.equal(state, torch.get_rng_state())
        (True, True)
    """

    # Programs have branches (torch.cond) and the like, which call graphs.
    supports_higher_order_operators = True

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self.seed, self.count = seed, 0
        self.generators: dict[torch.device, torch.Generator] = {}

    def __torch_dispatch__(self, operator: Any, types: Any, arguments: Any = (), named: Any = None) -> Any:
        """Call an operator, a random one with the block's generator."""
        named = dict(named or {})
        if not isinstance(operator, torch._ops.OpOverload):
            return operator(*map(self._within, arguments), **named)
        if torch.Tag.nondeterministic_seeded not in operator.tags:
            return operator(*arguments, **named)
        self.count += 1
        tensors = [value for value in arguments if isinstance(value, Tensor)]
        device = torch.device(named.get("device") or (tensors[0].device if tensors else "cpu"))
        overload = _with_generator(operator)
        if overload is None:  # it takes only global generators, as dropout on an accelerator does
            return operator(*arguments, **named)
        return overload(*arguments, **named | {"generator": self._generator(device)})

    def _within(self, argument: Any) -> Any:
        """Return a graph that draws from the block's generators too; others unchanged."""
        if not isinstance(argument, nn.Module):
            return argument

        def call(*arguments: Any) -> Any:
            with self:
                return argument(*arguments)

        return call

    def _generator(self, device: torch.device) -> torch.Generator:
        if device not in self.generators:
            self.generators[device] = torch.Generator(device).manual_seed(self.seed)
        return self.generators[device]


def _with_generator(operator: Any) -> Any:
    """Return the overload of a random operator that takes a generator, or None."""
    packet, wanted = operator.overloadpacket, _names(operator) - {"generator"}
    for overload in [operator, *(getattr(packet, name) for name in packet.overloads())]:
        names = _names(overload)
        if "generator" in names and names - {"generator"} == wanted:
            return overload
    return None


def _names(operator: Any) -> set[str]:
    return {argument.name for argument in operator._schema.arguments}


# Two threads that restore each other's functions would leave a replacement forever.
_PUTTING_BACK = threading.RLock()


@contextmanager
def generators_left_alone() -> Iterator[None]:
    """Keep torch's compilers in this thread from restoring the global generators.

    The compilers save the generators' state before they trace, draw nothing, and restore the state. Draws of other threads in
    between would be repeated. Other threads may set the state as usual. Only one thread compiles at a time.

    Example:
        >>> before = torch.get_rng_state()
        >>> with generators_left_alone():
        ...     drawn = torch.rand(2)
        ...     torch.random.set_rng_state(before)
        >>> torch.equal(before, torch.get_rng_state())
        False
    """
    here = threading.get_ident()
    places: tuple[Any, ...] = (torch.random, torch.cuda)

    def except_here(function: Any) -> Any:
        return lambda *given, **named: None if threading.get_ident() == here else function(*given, **named)

    with _PUTTING_BACK:
        own = [place.set_rng_state for place in places]
        try:
            for place, function in zip(places, own, strict=True):
                place.set_rng_state = except_here(function)
            yield
        finally:
            for place, function in zip(places, own, strict=True):
                place.set_rng_state = function
