"""Runner of a policy's functions: it keeps the state between calls.

This file imports torch alone. Copy it to where torchonline is not installed.
"""

import hashlib
import json
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

# The entry of an archive that says what its functions take and return.
ABOUT = "torchonline.json"


class Runner:
    """Policy of an archive that chooses and learns.

    A round::

        k = runner.select(inputs)
        learnt = runner.step(inputs, k, reward)

    Nothing raises for the *values* of arguments. A choice is -1 if it cannot be made, and a refused round changes no number.
    Threads may share a runner; steps wait for one another.

    Args:
        functions: ``start()``, which returns the first state, and functions of a state and of tensors: ``select``, ``scores``,
            ``probabilities`` and ``step``, which also returns the next state.
        about: facts about the functions, from the archive.
    """

    def __init__(self, functions: Mapping[str, Callable[..., Any]], about: Mapping[str, Any]) -> None:
        self.functions, self.about = functions, about
        self._state: dict[str, Tensor] = dict(functions["start"]())
        self._lock = threading.Lock()
        self._device = next(iter(self._state.values())).device

    @property
    def state(self) -> dict[str, Tensor]:
        """The present state, by the names of the learner's buffers.

        ``torch.save(runner.state, path)`` writes it. An assignment replaces it by a copy of those buffers, from another runner's
        state or the policy's ``state_dict()``. A ValueError names a buffer that is missing or has another shape or dtype. It also
        names a buffer that the file keeps fixed, such as options, the ids and names of arms or the weights of an encoder, if its
        values differ. A runner's state has no such buffers. ``policy.load_state_dict(policy.state_dict() | runner.state)`` takes
        it back to the learner.
        """
        return self._state

    @state.setter
    def state(self, state: Mapping[str, Tensor]) -> None:
        for name, now in self._state.items():
            if name not in state:
                raise ValueError(f"state: expected the buffer {name}, got none")
            new = state[name]
            if (new.shape, new.dtype) != (now.shape, now.dtype):
                wanted = f"expected {name} of shape {tuple(now.shape)} and {now.dtype}"
                raise ValueError(f"state: {wanted}, got {tuple(new.shape)} and {new.dtype}")
        fixed = dict(state)
        if not state.keys() <= self._state.keys():  # a policy's, which stores no ids that equal the indices
            names = [name for name in self.about["fixed"] if name.rpartition(".")[2] == "ids"]
            fixed |= {name: torch.arange(len(self.about["ids"] or ())) for name in names if name not in state}
        for name, digest in self.about["fixed"].items():
            if name in fixed and digest_of(fixed[name]) != digest:
                raise ValueError(
                    f"state: expected {name} with the values of the file, got others; export the policy again"
                )
        new_state = {name: state[name].detach().clone() for name in self._state}
        with self._lock:  # the end of another thread's step would undo it
            self._state = new_state

    @classmethod
    def load(cls, path: Any) -> "Runner":
        """Return the runner of a file.

        Args:
            path: path of an archive, of programs or compiled, ``.pt2``; of a folder of ONNX graphs; or of an ExecuTorch file,
                ``.pte``.
        """
        if isinstance(path, (str, os.PathLike)) and os.path.isdir(path):
            with open(os.path.join(path, ABOUT), encoding="utf-8") as file:
                about = json.load(file)
            names = [name for name in ("start", *about["arguments"]) if f"{name}.onnx" in about["sha256"]]
            return cls.of_graphs({name: os.path.join(path, f"{name}.onnx") for name in names}, about)
        if str(path).endswith(".pte"):
            with open(path, "rb") as file:
                return cls.of_executorch(file.read())
        from torch.export.pt2_archive._package import load_pt2

        found = load_pt2(path)
        if ABOUT not in found.extra_files:
            raise ValueError(f"path: expected a file of to_archive, got one without {ABOUT}: {path}")
        about = json.loads(found.extra_files[ABOUT])
        functions: dict[str, Any] = {name: program.module() for name, program in found.exported_programs.items()}
        _share_weights(functions.values())
        functions |= {
            name: FlatFunction(name, package.loader.run, about["state"]) for name, package in found.aoti_runners.items()
        }
        return cls(functions, about)

    @classmethod
    def of_graphs(cls, graphs: Mapping[str, Any], about: Mapping[str, Any]) -> "Runner":
        """Return the runner of ONNX graphs, given as paths or bytes."""
        return cls({name: FlatFunction(name, _session(graph), about["state"]) for name, graph in graphs.items()}, about)

    @classmethod
    def of_executorch(cls, data: bytes) -> "Runner":
        """Return the runner of an ExecuTorch file, given as bytes."""
        from executorch.runtime import Runtime

        program = Runtime.get().load_program(data)
        about = json.loads(program.load_method("about").execute([])[0])

        def run(name: str, given: list[Tensor]) -> Any:
            # A method alone would not keep the program's memory; the program keeps its methods.
            return program.load_method(name).execute(given)

        names = ("start", *about["arguments"])
        return cls({name: FlatFunction(name, partial(run, name), about["state"]) for name in names}, about)

    def select(self, inputs: Any = None, mask: Any = None) -> Tensor:
        """Return the chosen arm of each decision: its index or id, or -1.

        Args:
            inputs: as in the policy's ``select``, for one decision or for N; None for fixed arms.
            mask: which arms are available, bool, ``(K)`` or ``(N, K)``. None: all.
        """
        if "select" not in self.functions:
            raise ValueError("select: expected a policy that does not draw its choices; call select_with_probability")
        return self._decided("select", inputs, mask)

    def select_with_probability(self, inputs: Any = None, mask: Any = None) -> tuple[Tensor, Tensor]:
        """Draw an arm for each decision. Return it and its probability, or -1 and 0."""
        probabilities = self.probabilities(inputs, mask)
        possible = probabilities.sum(-1) > 0.0
        if not possible.any():  # there may be no arm at all
            return possible.to(torch.int64) - 1, probabilities.sum(-1)
        rows = torch.where(possible.unsqueeze(-1), probabilities, 1.0).reshape(-1, probabilities.size(-1))
        place = torch.multinomial(rows, 1).reshape(possible.shape)
        probability = probabilities.gather(-1, place.unsqueeze(-1)).squeeze(-1)
        action = place if self.about["ids"] is None else torch.tensor(self.about["ids"])[place]
        return torch.where(possible, action, -1), probability

    def probabilities(self, inputs: Any = None, mask: Any = None) -> Tensor:
        """Return the probability of each arm; zeros for a decision that cannot be made."""
        return self._decided("probabilities", inputs, mask)

    def __call__(self, inputs: Any = None) -> Tensor:
        """Return the score of each arm."""
        return self._decided("scores", inputs)

    def step(self, inputs: Any, action: Any, reward: Any, noise_scale: Any = None) -> Tensor:
        """Learn a round, and return whether it was learnt: bool, ``(*B)``.

        Args:
            inputs: as in :meth:`select`, of one decision; None for fixed arms.
            action: the chosen arm.
            reward: its reward.
            noise_scale: its noise scale, if the archive takes noise scales.
        """
        about = self.about
        given: dict[str, Tensor] = {"action": self._tensor("action", action), "reward": self._tensor("reward", reward)}
        takes_scale = "noise_scale" in about["arguments"]["step"]
        if takes_scale == (noise_scale is None):
            wanted = "a number, since the file takes noise scales" if takes_scale else "None, since the file takes none"
            raise ValueError(f"noise_scale: expected {wanted}, got {noise_scale}")
        if takes_scale:
            given["noise_scale"] = self._tensor("noise_scale", noise_scale)
        for name, value in given.items():
            if list(value.shape) != about["batch_shape"]:
                raise ValueError(f"{name}: expected shape {tuple(about['batch_shape'])}, got {tuple(value.shape)}")
        if "past" in about["arguments"]["step"]:
            given["past"] = past = self._inputs(inputs, len(about["batch_shape"]))
            if about["actions"] is None and not past.size(len(about["batch_shape"])):
                raise ValueError(f"inputs: expected at least one arm, got shape {tuple(past.shape)}")
        else:
            self._no_inputs(inputs)
        arguments = [given[name] for name in about["arguments"]["step"]]
        with self._lock:  # a step of another thread would be lost
            learnt, state = self.functions["step"](self._state, *arguments)
            self._state = dict(state)
        return learnt

    def name_of(self, action: Any) -> str:
        """Return the name of an action, "" if it has none."""
        return self.about["names"].get(str(int(action)), "")

    def _decided(self, name: str, inputs: Any, mask: Any = None) -> Tensor:
        """Return the result of a function for one decision or for N."""
        about = self.about
        lead, count, is_one, given = tuple(about["batch_shape"]), about["actions"], False, {}
        first = len(lead)
        if about["item_shape"] is not None:
            x = self._inputs(inputs, first, first + 1)
            is_one = x.dim() == first + len(about["item_shape"])
            x = x.unsqueeze(first) if is_one else x
            self._check_bounds("decisions", x.size(first))
            lead, given["inputs"] = tuple(x.shape[: first + 1]), x
            count = x.size(first + 1) if count is None else count
        else:
            self._no_inputs(inputs)
        if count == 0:
            options: Any = {"dtype": getattr(torch, about["types"]["reward"]), "device": self._device}
            found = torch.zeros(*lead, 0, **options) if name != "select" else torch.full(lead, -1, device=self._device)
            return found.squeeze(first) if is_one else found
        if "mask" in about["arguments"][name]:
            given["mask"] = self._mask(mask, lead, count, first if is_one else None)
        found = self.functions[name](self._state, *(given[one] for one in about["arguments"][name]))
        return found.squeeze(first) if is_one else found

    def _mask(self, mask: Any, lead: tuple[int, ...], count: int, first: int | None) -> Tensor:
        """Return a mask, ``(*lead, count)``; ``first`` is the axis that it may lack."""
        if mask is None:
            return torch.ones(*lead, count, dtype=torch.bool, device=self._device)
        mask = torch.as_tensor(mask, device=self._device)
        if mask.dtype != torch.bool:
            raise TypeError(f"mask: expected a bool tensor, got {mask.dtype}")
        mask = mask if first is None else mask.unsqueeze(first)
        if mask.shape != (*lead, count):
            raise ValueError(f"mask: expected shape {(*lead, count)}, got {tuple(mask.shape)}")
        return mask

    def _inputs(self, inputs: Any, *leads: int) -> Tensor:
        """Return inputs whose shape is right after as many leading dimensions, or raise."""
        x, item = self._tensor("inputs", inputs), self.about["item_shape"]
        for lead in leads:
            if x.dim() == lead + len(item) and all(
                size in (None, n) for size, n in zip(item, x.shape[lead:], strict=True)
            ):
                if self.about["actions"] is None:
                    self._check_bounds("arms", x.size(lead))
                return x
        shape = ", ".join("*" if size is None else str(size) for size in item)
        raise ValueError(f"inputs: expected shape (..., {shape}), got {tuple(x.shape)}")

    def _check_bounds(self, name: str, count: int) -> None:
        """Refuse more decisions or arms than the file takes."""
        most = self.about.get("most", {}).get(name, count)
        if count > most:
            raise ValueError(f"inputs: expected at most {most} {name}, got {count}")

    def _no_inputs(self, inputs: Any) -> None:
        """Refuse inputs of fixed arms."""
        if inputs is not None:
            raise TypeError(f"inputs: expected None, because the arms are fixed, got {type(inputs).__name__}")

    def _tensor(self, name: str, value: Any) -> Tensor:
        """Return a value as a tensor of its argument's dtype, or raise."""
        wanted = self.about["types"][name]
        dtype = getattr(torch, wanted)
        try:
            found = torch.as_tensor(value)
        except (RuntimeError, TypeError, ValueError) as error:
            raise TypeError(f"{name}: expected {wanted}, got {type(value).__name__}: {error}") from None
        if found.is_complex() or (found.is_floating_point() and not dtype.is_floating_point):
            raise TypeError(f"{name}: expected {wanted}, got {found.dtype}")
        # From the value, because torch would round Python's numbers to single precision first.
        return torch.as_tensor(value, dtype=dtype, device=self._device).detach()


class FlatFunction:
    """Function of a state that takes and returns flat lists of tensors.

    Args:
        name: its name in the archive.
        run: the runtime's call.
        state: names of the state's buffers, in the order of the list.
    """

    def __init__(self, name: str, run: Callable[[list[Tensor]], Any], state: list[str]) -> None:
        self.name, self.run, self.state = name, run, state

    def __call__(self, state: Mapping[str, Tensor] | None = None, *arguments: Tensor) -> Any:
        given = [*(state[name] for name in self.state), *arguments] if state else []
        # Compiled code reads strides of its own, and checks none.
        found = self.run([x.contiguous() for x in given])
        if self.name == "start":
            return dict(zip(self.state, found, strict=True))
        return (found[0], dict(zip(self.state, found[1:], strict=True))) if self.name == "step" else found[0]


def is_plain(x: Any) -> bool:
    """Return whether a value is a dense tensor, of no subclass."""
    return isinstance(x, Tensor) and type(x.data) is Tensor and x.layout is torch.strided


def digest_of(x: Any) -> str | None:
    """Return the SHA-256 of a dense tensor, or None for another value."""
    if not is_plain(x):
        return None
    kind = f"{x.dtype} {tuple(x.shape)} ".encode()
    return hashlib.sha256(kind + _bytes_of(x).cpu().numpy().tobytes()).hexdigest()


def _bytes_of(x: Tensor) -> Tensor:
    return x.detach().contiguous().reshape(-1).view(torch.uint8)


def _share_weights(modules: Iterable[torch.nn.Module]) -> None:
    """Let modules hold equal tensors of one name once."""
    first: dict[Any, Tensor] = {}
    for module in modules:
        for path, part in module.named_modules():
            for held in (part._parameters, part._buffers):
                for name, value in held.items():
                    if not is_plain(value):
                        continue
                    kind = (path, name, value.dtype, value.shape, value.stride(), value.device)
                    one = first.setdefault(kind, value)
                    # As numbers, 0 equals -0, and NaN nothing.
                    if one is not value and torch.equal(_bytes_of(one), _bytes_of(value)):
                        held[name] = one


def _session(graph: Any) -> Callable[[list[Tensor]], list[Tensor]]:
    """Return the call of an ONNX graph, given as a path or bytes, by onnxruntime."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # it warns of what it cannot compute in advance
    session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    names = [one.name for one in session.get_inputs()]

    def run(given: list[Tensor]) -> list[Tensor]:
        arrays = {name: value.numpy() for name, value in zip(names, given, strict=True)}
        return [torch.as_tensor(one) for one in session.run(None, arrays)]

    return run
