"""Permanent ids of arms that come and go."""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from torchonline.core.action_names import (
    NameTable,
    holds_text,
    ids_of_names,
    names_in_script,
    number_and_names,
    packed_names,
    refuse_names,
    unpacked_names,
)
from torchonline.core.backend import in_python, is_readable
from torchonline.core.checks import integer
from torchonline.core.inputs import as_indices, integer_at_hand
from torchonline.core.messages import counted, listed

CPU = torch.device("cpu")
# The buffers of the mixin.
BUFFERS = ("ids", "ids_given", "name_bytes")


def ids_at(ids: Tensor, place: Tensor) -> Tensor:
    """Return the ids at given positions, of any shape."""
    # ids[place] and ids.take(place) would make a traced program read a number.
    return ids.index_select(0, place.flatten()).view_as(place)


class WithArmIds:
    """Mixin for learners whose arms come and go: each arm has a permanent id.

    The first K arms have the ids 0 to K - 1, and each new arm gets the next id. No id is given twice. ``select`` returns ids;
    ``step``, ``learn`` and removals take ids. Scores, probabilities, means and masks have an entry for each arm, in the order
    of :attr:`action_ids`. Until an arm is removed, an arm's id is its position in that order.

    Arms may also have names. Every method that takes an id also takes a name. A name belongs to one id for ever.

    Shape:
        - ``ids``, ``(K)``, int64, ascending; ``ids_given``, ``()``, the id of the next arm. They are None while ids equal
          positions. They are part of the state dict, and a load takes them from the saved learner.
        - ``name_bytes``, uint8: the names by id, as JSON in UTF-8 with spaces at the end; None without names. It is part of the
          state dict. A load takes the names of the saved learner, and keeps the present names if the state has none.
    """

    if TYPE_CHECKING:  # an annotation of None would hide the buffers from TorchScript
        ids: Tensor | None
        ids_given: Tensor | None
        name_bytes: Tensor | None
        unchanging: tuple[str, ...]
        validate: bool
        _buffers: dict[str, Tensor | None]
        register_buffer: Any

    def _arm_count(self) -> int:
        """Return K. Python only."""
        raise NotImplementedError

    @property
    def action_ids(self) -> list[int]:
        """The ids of the arms, in the order of scores and masks. Python only."""
        ids = self._buffers["ids"]
        return list(range(self._arm_count())) if ids is None else ids.tolist()

    @property
    def ids_so_far(self) -> int:
        """The number of arms ever added, which is the next id. Python only."""
        given = self._buffers["ids_given"]
        return self._arm_count() if given is None else int(given)

    @property
    def action_names(self) -> list[str] | None:
        """The names of the arms, in the order of ids; or None. Python only."""
        names = self.names_by_id()
        return [names[one] for one in self.action_ids] if names else None

    def names_by_id(self) -> dict[int, str]:
        """Return the name of each id, of removed arms too. Python only.

        The result is empty if the arms have no names.
        """
        table = self._name_table()
        return {} if table is None else table.names

    def with_ids(self) -> Any:
        """Return this policy, whose arms have ids. Python only."""
        return self

    def was_removed(self, action: int | str) -> bool:
        """Return whether ``action`` is the id or the name of a removed arm. Python only."""
        if isinstance(action, str) and (table := self._name_table()) is not None and action not in table.ids:
            return False
        one = integer("action", self._ids_of("action", action) if isinstance(action, str) else action)
        return 0 <= one < self.ids_so_far and one not in self.action_ids

    def _named_in_python(self, place: Tensor) -> Tensor:
        ids = self._buffers["ids"]
        return place if ids is None else ids_at(ids, place)

    @in_python(_named_in_python)
    def _named(self, place: Tensor) -> Tensor:
        """Return the ids of the arms at given positions."""
        ids = self.ids
        return place if ids is None else ids_at(ids, place)

    def _placed_in_python(self, action: Any) -> Any:
        if not isinstance(action, (int, Tensor)):
            action = self._ids_of("action", action)
        ids = self._buffers["ids"]
        if ids is None:  # the caller checks the positions
            return action
        one = integer_at_hand(action)
        if one is not None and ids.is_cpu and is_readable(ids):
            known = ids.tolist()
            place = bisect_left(known, one)
            if place == len(known) or known[place] != one:
                raise self._unknown("action", one)
            return torch.tensor(place) if isinstance(action, Tensor) else place
        index = as_indices("action", action, ids.device)
        if index.device != ids.device:
            return index  # the caller refuses the device
        places = torch.searchsorted(ids, index.contiguous()).clamp(max=ids.size(0) - 1)
        if (self.validate or ids.is_cpu) and is_readable(index):
            is_bad = ids_at(ids, places) != index
            if bool(is_bad.any()):
                raise self._unknown("action", int(index[is_bad][0]))
        return places

    @in_python(_placed_in_python)
    def _placed(self, action: Tensor) -> Tensor:
        """Return the positions of arms by id; any position for an unknown id."""
        ids = self.ids
        return action if ids is None else torch.searchsorted(ids, action.contiguous()).clamp(max=ids.size(0) - 1)

    def _found(self, action: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """Return which numbers are ids of the ``count`` arms, and valid positions."""
        ids = self.ids
        if ids is None:
            return found_places(action, count)
        # ONNX has no searchsorted.
        places = (ids < action.unsqueeze(-1)).sum(-1).clamp(max=ids.size(0) - 1)
        return ids_at(ids, places) == action, places

    def _named_if_any(self, place: Tensor) -> Tensor:
        """Return the ids of the arms at given positions; -1, for no arm, stays."""
        ids = self.ids
        return place if ids is None else torch.where(place < 0, place, ids_at(ids, place.clamp(min=0)))

    def _names_now(self) -> list[str]:
        """Return the names of the arms in the order of ids, in TorchScript."""
        names, ids = names_in_script(self.name_bytes), self.ids
        found: list[str] = []
        if len(names) > 0:
            known: list[int] = [] if ids is None else ids.tolist()
            for one in known:
                found.append(names.get(one, ""))
        return found

    def _name_of_each(self, action: Tensor) -> list[str]:
        """Return the names of ids, removed ones too, in TorchScript; "" for other ids."""
        names = names_in_script(self.name_bytes)
        found: list[str] = []
        ids: list[int] = action.reshape(-1).tolist()
        for one in ids:
            found.append(names.get(one, ""))
        return found

    # TorchScript does not compile the methods below.

    def _create_ids(self, names: list[str] | None = None) -> None:
        """Create the buffers. The first arms have their positions as ids."""
        for name in BUFFERS:
            self.register_buffer(name, None)
        self.unchanging = (*self.unchanging, *BUFFERS)  # by steps
        if names is not None:
            self._buffers["name_bytes"] = packed_names(dict(enumerate(names))).to(self._place())

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[misc]
        if "name_bytes" not in self._buffers:  # in a pickle from before there were names
            self._buffers["name_bytes"] = None
            self.__dict__["unchanging"] = (*self.unchanging, "name_bytes")

    def _name_table(self) -> NameTable | None:
        """Return the names, read again only after a change; None without names."""
        buffer = self._buffers["name_bytes"]
        if buffer is None or not is_readable(buffer):
            return None
        table: NameTable | None = self.__dict__.get("_names")
        if table is None or not table.is_of(buffer):
            table = self.__dict__["_names"] = NameTable(buffer)
        return table

    def _ids_of(self, name: str, value: Any) -> Any:
        """Return the ids of names. Return anything else as it is.

        ``name`` is the argument's name in errors.
        """
        table = self._name_table()
        if table is None:
            refuse_names(name, value)
            return value
        return ids_of_names(name, value, table.ids, self.action_names or ()) if holds_text(value) else value

    def _named_actions(self, action: Any) -> Any:
        """Return the names of ids: a string, or nested lists."""
        names = self.names_by_id()

        def named(one: Any) -> Any:
            if isinstance(one, list):
                return [named(each) for each in one]
            if one not in names:
                raise self._unknown("action", one)
            return names[one]

        return named(as_indices("action", action, CPU).tolist())

    def _write_ids_out(self) -> None:
        """Store the ids as buffers even while they equal positions.

        An exported file loads the ids of a newer state by the names of these buffers.
        """
        if self._buffers["ids"] is None:
            values = {"ids": torch.arange(self._arm_count()), "ids_given": torch.tensor(self._arm_count())}
            self._buffers.update({name: value.to(self._place()) for name, value in values.items()})

    def _added(self, name: str, value: Any) -> tuple[int, list[str] | None]:
        """Return the number of arms to add, and their names if arms have names; or raise.

        ``name`` is the argument's name in errors.
        """
        count, names = number_and_names(name, value)
        self._check_new_names(name, count, names)
        return count, names

    def _check_new_names(self, name: str, count: int, names: list[str] | None) -> None:
        """Refuse names that are taken, and names for a part of the arms."""
        known = self._name_table()
        if names is None and known is not None:
            got = counted(count, "arm") + " without"
            raise TypeError(f"{name}: expected names of the new arms, because the others have names, got {got}")
        if names is not None and known is None:
            raise TypeError(f"{name}: expected no names, because the other arms have none, got {listed(names)}")
        for one in names or []:
            if known is not None and one in known.ids:
                was = ", which was removed" if self.was_removed(known.ids[one]) else ""
                raise ValueError(f"{name}: expected new names, got {one!r}, the name of arm {known.ids[one]}{was}")

    def _ids_after(self, kept: Sequence[int], added: int, names: list[str] | None = None) -> dict[str, Tensor | None]:
        """Return the buffers after some arms were kept and others were added."""
        given = self.ids_so_far
        if self._buffers["ids"] is None and len(kept) == self._arm_count():
            found: dict[str, Tensor | None] = {"ids": None, "ids_given": None}
        else:
            own = self.action_ids
            ids = [own[k] for k in kept] + list(range(given, given + added))
            found = _buffers(ids, given + added, self._place())
        if names is not None:
            all_names = self.names_by_id() | dict(enumerate(names, given))
            found["name_bytes"] = packed_names(all_names).to(self._place())
        return found

    def _place(self) -> torch.device:
        """Return the device of the buffers."""
        return self._buffers["constants"].device  # type: ignore[union-attr]

    def _staying(self, name: str, removed: Any) -> list[int]:
        """Return the positions of the arms that stay, or raise.

        ``name`` is the argument's name in errors.
        """
        if isinstance(removed, (str, bytes)) or not isinstance(removed, Iterable):
            raise TypeError(f"{name}: expected a list of ids or names of arms, got {type(removed).__name__}")
        given = removed if isinstance(removed, (Tensor, np.ndarray)) else list(removed)
        given = self._ids_of(name, given)
        gone = as_indices(name, given, CPU).reshape(-1).tolist()
        known, out = self.action_ids, set(gone)
        for one in out.difference(known):
            raise self._unknown(name, one)
        if len(out) < len(gone) or len(gone) >= len(known):
            raise ValueError(f"{name}: expected some of the arms {listed(known)}, each once and not all, got {gone}")
        return [k for k, one in enumerate(known) if one not in out]

    def _unknown(self, name: str, one: int) -> ValueError:
        """Return the error for an unknown id."""
        why = ", which was removed" if self.was_removed(one) else ""
        names = self.names_by_id()
        got = f"{one} ({names[one]!r})" if one in names else f"{one}"
        return ValueError(f"{name}: expected the id of an arm, one of {listed(self.action_ids)}, got {got}{why}")

    def _load_problems(self, state_dict: Mapping[str, Any], prefix: str) -> list[str]:
        problems: list[str] = super()._load_problems(self._without_ids(state_dict, prefix), prefix)  # type: ignore[misc]
        if problems:
            return problems
        if not self._ids_in(state_dict, prefix):
            return [self._wrong_ids(state_dict, prefix)]
        try:
            self._names_in(state_dict, prefix)
        except ValueError as error:
            return [f"{prefix}name_bytes: {error}"]
        return []

    def _load_own(self, state_dict: Mapping[str, Any], prefix: str, *arguments: Any) -> None:
        super()._load_own(self._without_ids(state_dict, prefix), prefix, *arguments)  # type: ignore[misc]
        # Last, on the device of the loaded buffers.
        self._buffers.update(self._ids_in(state_dict, prefix) | self._names_in(state_dict, prefix))

    def _without_ids(self, state_dict: Mapping[str, Any], prefix: str) -> dict[str, Any]:
        """Return the state with the present ids and names.

        They stay until the rest is loaded.
        """
        own = {prefix + name: self._buffers[name] for name in BUFFERS}
        rest = {name: value for name, value in state_dict.items() if name not in own}
        return rest | {name: value for name, value in own.items() if value is not None}

    def _names_in(self, state_dict: Mapping[str, Any], prefix: str) -> dict[str, Tensor | None]:
        """Return the buffer of names after a load of valid ids, or raise a ValueError."""
        saved, ids = state_dict.get(f"{prefix}name_bytes"), self._ids_in(state_dict, prefix)
        known = list(range(self._arm_count())) if ids["ids"] is None else ids["ids"].tolist()
        given = len(known) if ids["ids_given"] is None else int(ids["ids_given"])
        if saved is not None:
            names = unpacked_names(saved) if isinstance(saved, Tensor) else {}
            if not names.keys() >= set(known) or max(names) >= given:
                raise ValueError(f"expected names of the ids {listed(known)} and of earlier ones, got {listed(names)}")
        elif self._buffers["name_bytes"] is None:
            return {"name_bytes": None}
        else:  # the arms at the same places keep their names
            names = {one: name for one, name in self.names_by_id().items() if one < given}
            if known != self.action_ids:
                names = dict(zip(known, self.action_names or [], strict=True))
        return {"name_bytes": packed_names(names).to(self._place())}

    def _ids_in(self, state_dict: Mapping[str, Any], prefix: str) -> dict[str, Tensor | None]:
        """Return the id buffers of a state; empty if they are invalid."""
        count = self._arm_count()
        ids: Any = state_dict.get(f"{prefix}ids")
        given: Any = state_dict.get(f"{prefix}ids_given")
        if ids is None and given is None:
            return _buffers(list(range(count)), count, self._place())
        is_right = isinstance(ids, Tensor) and isinstance(given, Tensor) and ids.dtype == given.dtype == torch.int64
        if is_right and ids.shape == (count,) and given.shape == ():
            known, after = ids.tolist(), int(given)
            if known[0] >= 0 and all(low < high for low, high in pairwise([*known, after])):
                return _buffers(known, after, self._place())
        return {}

    def _wrong_ids(self, state_dict: Mapping[str, Any], prefix: str) -> str:
        wanted = f"{self._arm_count()} ascending integers from 0, and a larger one for ids_given"
        ids, given = (state_dict.get(prefix + name) for name in ("ids", "ids_given"))
        return f"{prefix}ids: expected {wanted}, got {ids} and {given}"


def _buffers(ids: list[int], given: int, device: torch.device) -> dict[str, Tensor | None]:
    if len(ids) == given and ids == list(range(given)):  # the length first: a file may hold a huge `ids_given`
        return {"ids": None, "ids_given": None}
    return {name: torch.tensor(value, device=device) for name, value in {"ids": ids, "ids_given": given}.items()}


def found_places(action: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return which numbers are positions of ``count`` arms, and valid positions."""
    is_arm = (action >= 0) & (action < count)
    return is_arm, torch.where(is_arm, action, 0)


def by_place(mask: Tensor, policy: WithArmIds) -> Tensor:
    """Reorder a mask with an entry for each id to the order of the policy's arms.

    Shapes: ``(..., N)`` to ``(..., K)``. An arm added after the mask was made counts as unavailable.
    """
    if mask.size(-1) > policy.ids_so_far:
        return mask  # too long for this policy, which refuses the shape
    ids = torch.tensor(policy.action_ids, device=mask.device)
    was_there = ids < mask.size(-1)
    return mask[..., torch.where(was_there, ids, 0)] & was_there


def with_ids(module: nn.Module) -> nn.Module:
    """Return a module that stores the ids of its arms, in place.

    It stores them even if they equal the indices. A file can then load the ids of a newer state.
    """
    for part in module.modules():
        if isinstance(part, WithArmIds):
            part._write_ids_out()
    return module
