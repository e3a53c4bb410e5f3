"""Runner of a policy's functions: it keeps the state between calls.

This file imports torch alone. Copy it to where torchonline is not installed.
"""

import json
import os
from collections.abc import Callable, Mapping
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

    Args:
        functions: ``start()``, which returns the first state, and functions of a state and of tensors: ``select``, ``scores``,
            ``probabilities`` and ``step``, which also returns the next state.
        about: what the archive says of them.

    Attributes:
        state: the present state, by the names of the learner's buffers. ``torch.save(runner.state, path)`` writes it, and an
            assignment replaces it. ``policy.load_state_dict(policy.state_dict() | runner.state)`` takes it back to the learner.
    """

    state: dict[str, Tensor]

    def __init__(self, functions: Mapping[str, Callable[..., Any]], about: Mapping[str, Any]) -> None:
        self.functions, self.about = functions, about
        self.state = dict(functions["start"]())

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
        about = json.loads(found.extra_files[ABOUT])
        functions: dict[str, Any] = {name: program.module() for name, program in found.exported_programs.items()}
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
            return program.load_method(name).execute([x.contiguous() for x in given])

        names = ("start", *about["arguments"])
        return cls({name: FlatFunction(name, partial(run, name), about["state"]) for name in names}, about)

    def select(self, inputs: Any = None, mask: Any = None) -> Tensor:
        """Return the chosen arm of each decision: its index or id, or -1.

        Args:
            inputs: what the policy's ``select`` takes, for one decision or for N; None for fixed arms.
            mask: which arms are available, bool, ``(K)`` or ``(N, K)``. None: all.
        """
        if "select" not in self.functions:
            raise ValueError("select: expected a policy that does not draw its choices; call select_with_probability")
        return self._decided("select", inputs, mask)

    def select_with_probability(self, inputs: Any = None, mask: Any = None) -> tuple[Tensor, Tensor]:
        """Draw an arm for each decision. Return it and its probability, or -1 and 0."""
        probabilities = self.probabilities(inputs, mask)
        possible = probabilities.sum(-1) > 0.0
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
        about, state = self.about, self.state
        given = {"action": self._tensor("action", action), "reward": self._tensor("reward", reward)}
        takes_scale = "noise_scale" in about["arguments"]["step"]
        if takes_scale == (noise_scale is None):
            wanted = "a number, since the file takes noise scales" if takes_scale else "None, since the file takes none"
            raise ValueError(f"noise_scale: expected {wanted}, got {noise_scale}")
        if takes_scale:
            given["noise_scale"] = self._tensor("reward", noise_scale)
        for name, value in given.items():
            if list(value.shape) != about["batch_shape"]:
                raise ValueError(f"{name}: expected shape {tuple(about['batch_shape'])}, got {tuple(value.shape)}")
        if "past" in about["arguments"]["step"]:
            given["past"] = self._inputs(inputs, len(about["batch_shape"]))
        learnt, state = self.functions["step"](state, *(given[name] for name in about["arguments"]["step"]))
        self.state = dict(state)
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
            lead, given["inputs"] = tuple(x.shape[: first + 1]), x
            count = x.size(first + 1) if count is None else count
        if "mask" in about["arguments"][name]:
            given["mask"] = self._mask(mask, lead, count, first if is_one else None)
        found = self.functions[name](self.state, *(given[one] for one in about["arguments"][name]))
        return found.squeeze(first) if is_one else found

    def _mask(self, mask: Any, lead: tuple[int, ...], count: int, first: int | None) -> Tensor:
        """Return a mask, ``(*lead, count)``; ``first`` is the axis that it may lack."""
        device = next(iter(self.state.values())).device
        if mask is None:
            return torch.ones(*lead, count, dtype=torch.bool, device=device)
        mask = torch.as_tensor(mask, device=device)
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
                return x
        shape = ", ".join("*" if size is None else str(size) for size in item)
        raise ValueError(f"inputs: expected shape (..., {shape}), got {tuple(x.shape)}")

    def _tensor(self, name: str, value: Any) -> Tensor:
        """Return a value as a tensor of its argument's dtype, or raise."""
        wanted = self.about["types"][name]
        dtype, device = getattr(torch, wanted), next(iter(self.state.values())).device
        try:
            # Otherwise torch rounds Python's numbers to float32.
            double = torch.float64 if dtype.is_floating_point and not isinstance(value, Tensor) else None
            tensor = torch.as_tensor(value, dtype=double).detach()
        except (TypeError, ValueError, RuntimeError) as error:
            raise TypeError(f"{name}: expected {wanted}, got {type(value).__name__}: {error}") from None
        if tensor.is_complex() or (tensor.is_floating_point() and not dtype.is_floating_point):
            raise TypeError(f"{name}: expected {wanted}, got {tensor.dtype}")
        return tensor.to(device, dtype)


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
        found = self.run([*((state or {})[name] for name in self.state), *arguments] if state else [])
        if self.name == "start":
            return dict(zip(self.state, found, strict=True))
        return (found[0], dict(zip(self.state, found[1:], strict=True))) if self.name == "step" else found[0]


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
