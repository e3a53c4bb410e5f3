"""Safe reading of checkpoints, and packing of bandit heads into them.

A head is stored as bytes in a checkpoint and as hyper-parameters in a logger.
"""

import enum
import inspect
import io
import os
import pickletools
import re
import sys
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn

import torchonline
from torchonline.core.learner import Learner
from torchonline.export.copies import uncompiled, uncompiled_copy
from torchonline.models.bandit_head import BanditHead
from torchonline.models.encoding import hugging_face_encoder

# Where the functions of torch.nn.functional are, those in C++ too.
FUNCTIONAL = ("torch.nn.functional", "torch._C._nn")
# This function of torch calls its first argument.
REBUILDS = "torch._tensor._rebuild_from_type_v2"

# Classes that had another name in version 0.1.
FORMER_NAMES = {
    "HeavyTailUCB": "AnytimeHeavyTailUCB",
    "RadiusMaster": "RadiusSelector",
    "RunningScaler": "StandardScaler",
    "SharedRadiusMaster": "SharedRadiusSelector",
}


def read_checkpoint(source: Any, name: str = "ckpt_path") -> dict[str, Any]:
    """Return the contents of a checkpoint, or raise if the file is not one.

    No code in the file runs.

    Args:
        source: path of a file, or an open file, whose position is restored after reading. A URL is refused.
        name: name of the argument, with which the error begins.

    Raises:
        ValueError: the file is not a checkpoint, or names code; or ``source`` is a URL.
    """
    is_path = isinstance(source, (str, os.PathLike))
    wanted = f"{name}: expected a checkpoint, as fit writes, got {source if is_path else type(source).__name__}"
    if is_path and "://" in str(source):
        raise ValueError(
            f"{name}: expected the path of a file, got the URL {source}; download it from a source you trust and pass its path"
        )
    place = 0 if is_path else source.tell()
    try:
        found = torch.load(source, map_location="cpu", weights_only=True)
    except OSError:  # its message is clear
        raise
    except Exception as error:  # any type: the file may hold anything
        reason = " ".join(str(error).split())
        if refused := re.search(r"(?:GLOBAL|[Uu]nsupported class|function) ([\w.]+\.\w+)", reason):
            raise ValueError(f"{wanted}, which names {refused[1]}: code, which is never run") from error
        raise ValueError(f"{wanted}, which torch.load cannot read: {reason[:200] or type(error).__name__}") from error
    finally:
        if not is_path:
            source.seek(place)
    if not isinstance(found, dict) or "state_dict" not in found:
        raise ValueError(f"{wanted}, which has no state of a model")
    return found


def data_only(method: Any) -> dict[str, Any]:
    """Return the option with which a Lightning method unpickles no code.

    Lightning has the option from version 2.6 on.
    """
    return {"weights_only": True} if "weights_only" in inspect.signature(method).parameters else {}


def load_module(load: Any, source: Any, options: dict[str, Any]) -> Any:
    """Load a module from a checkpoint by Lightning's method, without running code.

    Args:
        load: Lightning's ``load_from_checkpoint`` of a class.
        source: see :func:`read_checkpoint`.
        options: options of Lightning's method. ``weights_only=False`` is refused.
    """
    if options.pop("weights_only", None) is False:
        raise ValueError("weights_only: expected True, with which nothing in a file runs, got False")
    read_checkpoint(source, "checkpoint_path")
    # Lightning takes a path that begins with http for a URL.
    source = os.path.abspath(source) if isinstance(source, (str, os.PathLike)) else source
    return load(source, **data_only(load), **options)


def packed(head: BanditHead) -> bytes | str:
    """Return a head as bytes, or the reason why it cannot be packed as text.

    The bytes hold neither code nor the values of the encoder's parameters and persistent buffers. A head that contains a user's
    function, or a class that cannot be imported, cannot be packed. The processor of a Hugging Face encoder is left out.
    """
    memo: dict[int, Any] = {id(one): _without_values(one) for one in head.encoder.state_dict(keep_vars=True).values()}
    if (reader := hugging_face_encoder(head.encoder)) is not None and reader.processor is not None:
        memo[id(reader.processor)] = None
    file = io.BytesIO()
    try:
        torch.save(uncompiled_copy(head, memo), file)
        _classes_in(file.getvalue())
    except Exception as error:  # pickle raises errors of many types
        return f"{type(error).__name__}: {error}"
    return file.getvalue()


def unpacked_head(data: bytes) -> BanditHead:
    """Return the head that :func:`packed` has packed.

    The missing values are 0. torch's restricted unpickler creates the instances, without their constructors. It accepts module
    classes and configurations of transformers and peft that are already imported, and functions of ``torch.nn.functional``. It
    refuses anything else, and torch's modules outside ``torch.nn``, because some of them run programs.

    Raises:
        ValueError: ``data`` is not a packed head, or names a class that is not imported.
    """
    with torch.serialization.safe_globals(_classes_in(data)):
        head = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    if not isinstance(head, BanditHead):
        raise ValueError(f"head: expected a packed BanditHead, got {type(head).__name__}")
    made: dict[int, Tensor] = {}  # parts may share a tensor
    for part in head.encoder.modules():
        for tensors in cast(list[dict[str, Any]], [part._parameters, part._buffers]):
            for name, tensor in list(tensors.items()):
                if tensor is not None and tensor.is_meta:
                    tensors[name] = made.setdefault(id(tensor), _on_cpu(tensor))
    return head


def as_head(head: Any) -> BanditHead:
    """Return a head, unpacked if it is bytes from a checkpoint, or raise."""
    if isinstance(head, bytes):
        return unpacked_head(head)
    if isinstance(head, str):
        raise TypeError(f"head: expected a BanditHead, which the checkpoint could not hold ({head}); pass head=...")
    if not isinstance(head, BanditHead):
        raise TypeError(f"head: expected a BanditHead, got {type(head).__name__}")
    return head


def plain_name(name: str) -> str:
    """Return the name of a state's entry without the prefix of ``torch.compile``."""
    return name.replace("_orig_mod.", "")


def facts(head: BanditHead) -> dict[str, Any]:
    """Return a head's parts and its policy's options as a flat dict, for loggers."""
    policy: Any = head.policy
    found: dict[str, Any] = {"encoder": type(uncompiled(head.encoder)).__name__}
    parameters = sum(parameter.numel() for parameter in head.encoder.parameters())
    if (reader := hugging_face_encoder(head.encoder)) is not None:
        found |= {"encoder_model": type(uncompiled(reader.model)).__name__, "encoder_output": _plain(reader.output)}
    found |= {"encoder_parameters": parameters, "combine": head.combine, "feature_dims": head.feature_dims}
    if not head.has_arm_inputs:
        found["actions"] = head.number_of_actions()
    if (names := head.action_names) is not None:
        found["action_names"] = ", ".join(names)
    if head.actions is not None:
        found["embedding_width"] = head.actions.size(1)
    if head.scaler is not None:
        found |= {"input_scaler": type(head.scaler).__name__} | _options(head.scaler, "input_scaler_")
    if policy._rule is not policy:
        scaler: Any = policy.scaler
        found |= {"scaler": type(scaler).__name__} | ({} if scaler is None else _options(scaler, "scaler_"))
        found |= {"composition": type(policy).__name__}
    return found | _own(policy._rule) | {"estimator": type(policy.estimator).__name__} | _options(policy.estimator)


def _own(policy: Any) -> dict[str, Any]:
    """Return a policy's class and its options, without the estimator's."""
    names = inspect.signature(type(policy)).parameters.keys() - {"estimator", "arguments", "options"}
    return {"policy": type(policy).__name__} | {
        name: _plain(vars(policy)[name]) for name in names & vars(policy).keys()
    }


def _options(learner: Learner, prefix: str = "") -> dict[str, Any]:
    """Return a learner's constructor arguments, defaults included."""
    found = {}
    for name, parameter in inspect.signature(type(learner)).parameters.items():
        if parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
            found[prefix + name] = _plain(learner._arguments.get(name, parameter.default))
    return found


def _plain(value: Any) -> Any:
    """Convert a value to a type that every logger accepts."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Tensor):
        return str(value.tolist())
    return type(value).__name__ if isinstance(value, nn.Module) else str(value)


def _without_values(tensor: Tensor) -> Tensor:
    empty = torch.empty_like(tensor, device="meta")
    return nn.Parameter(empty, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else empty


def _on_cpu(tensor: Tensor) -> Tensor:
    zeros = torch.zeros_like(tensor, device="cpu")
    return nn.Parameter(zeros, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else zeros


def _classes_in(data: bytes) -> list[Any]:
    """Return (class, name) for each name in packed bytes.

    Refuse other names, calls of a class or function, and classes as values, which a method of an instance might call. The layers
    of torch.nn may be values, as in torchvision's ResNet: their constructors make parameters only.
    """
    try:
        names = torch.serialization.get_unsafe_globals_in_checkpoint(io.BytesIO(data))
        calls, values = _uses_in(torch._C.PyTorchFileReader(io.BytesIO(data)).get_record("data.pkl"))
    except Exception as error:  # any type: the bytes may be anything
        raise ValueError(f"head: expected a packed BanditHead, got other bytes: {error}") from error
    found = {name: _allowed(_place_now(name)) for name in names}
    for name in calls:
        cls = found.get(name)
        is_harmless = cls is partial or (inspect.isclass(cls) and issubclass(cls, enum.Enum))
        if name == "?" or (name in found and not is_harmless):
            raise ValueError(f"head: expected instances of classes only, got a call of {name}")
    for name in values:
        if inspect.isclass(cls := found.get(name)) and not cls.__module__.startswith("torch.nn.modules."):
            raise ValueError(f"head: expected instances of classes only, got the class {name}")
    return [(value, name) for name, value in found.items()]


def _uses_in(pickled: bytes) -> tuple[set[str], set[str]]:
    """Return the names that a pickle calls, and those that are values in it.

    The pickle does not run. "?" stands for a call of anything but a name.
    """
    stack: list[Any] = []
    marks: list[int] = []
    memo: dict[int, Any] = {}
    calls: set[str] = set()
    values: set[str] = set()
    for code, argument, _ in pickletools.genops(pickled):
        if code.name == "GLOBAL":
            stack.append(str(argument).replace(" ", "."))
        elif code.name == "MARK":
            marks.append(len(stack))
        elif code.name in ("BINPUT", "LONG_BINPUT"):
            memo[cast(int, argument)] = stack[-1]
        elif code.name in ("BINGET", "LONG_BINGET"):
            stack.append(memo[cast(int, argument)])
        else:
            has_mark = pickletools.markobject in code.stack_before
            below = code.stack_before.index(pickletools.markobject) if has_mark else 0
            start = marks.pop() if has_mark else len(stack) - len(code.stack_before)
            top = stack[start:]
            del stack[start - below :]
            stack += [tuple(top) if "TUPLE" in code.name else None] * len(code.stack_after)
            if code.name == "REDUCE":
                called, arguments = top
                if called == REBUILDS:
                    called = arguments[0] if arguments and arguments[0] != REBUILDS else None
                calls.add(called if isinstance(called, str) else "?")
            # The first operand of these two is called, or the class of the instance.
            values |= {one for one in top[int(code.name in ("REDUCE", "NEWOBJ")) :] if isinstance(one, str)}
    return calls, values


def _place_now(path: str) -> str:
    """Return the current path of a class from its path in version 0.1."""
    if not path.startswith("torchonline.bandits."):
        return path
    name = path.rpartition(".")[2]
    found: Any = getattr(torchonline, FORMER_NAMES.get(name, name), None)
    if found is None:  # a class that is not exported
        found = next((vars(module)[name] for module in _rooms() if name in vars(module)), None)
    return path if found is None else f"{found.__module__}.{found.__qualname__}"


def _rooms() -> list[Any]:
    """Return the imported modules of estimators and policies."""
    rooms = ("torchonline.policies.", "torchonline.regression.")
    return [module for name, module in list(sys.modules.items()) if name.startswith(rooms)]


def _allowed(path: str) -> Any:
    """Return an imported class, or function of torch.nn.functional, or raise.

    Classes are those of modules, and of configurations of transformers and peft. torch's modules outside of torch.nn are
    refused: ``torch.export.unflatten.InterpreterModule`` calls any method that its attributes name.
    """
    place, _, name = path.rpartition(".")
    found: Any = vars(sys.modules[place]).get(name) if place in sys.modules else None  # getattr would import lazy names
    is_function = inspect.isfunction(found) or inspect.isbuiltin(found)
    if found is partial or (is_function and place == found.__module__ and place in FUNCTIONAL):
        return found
    is_plain = inspect.isclass(found) and (name.endswith("Config") or issubclass(found, enum.Enum))
    is_configuration = is_plain and path.startswith(("transformers.", "peft."))
    is_module = inspect.isclass(found) and issubclass(found, nn.Module)
    is_internal = is_module and any(re.match(r"torch\.(?!nn\.)", base.__module__) for base in found.__mro__)
    if not is_configuration and (not is_module or is_internal):
        raise ValueError(
            f"head: expected classes of modules that are imported, got {path}; import it, or pass head=..."
        )
    return found
