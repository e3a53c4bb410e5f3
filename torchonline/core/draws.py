"""Random draws from a generator of their own."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode


class OwnDraws(TorchDispatchMode):
    """Let the operators of a block draw from generators of its own, in this thread.

    Random operators of eager modules, TorchScript and programs all come by. Other threads go on drawing from the global
    generators, whose states do not change: a generator that is seeded or restored for a while would repeat its draws for them.

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
        if overload is None:  # it knows global generators alone, as dropout on an accelerator does
            return operator(*arguments, **named)
        return overload(*arguments, **named | {"generator": self._generator(device)})

    def _within(self, argument: Any) -> Any:
        """Return a graph that draws from the block's generators too; others as they are."""
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


# Two threads that put back each other's functions would leave one of them for ever.
_PUTTING_BACK = threading.RLock()


@contextmanager
def generators_left_alone() -> Iterator[None]:
    """Keep torch's compilers in this thread from restoring the global generators.

    They save the state of the generators before they trace, draw nothing, and put it back. What other threads have drawn
    meanwhile would be drawn once more. Other threads may set the state as always. One thread at a time compiles.

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
