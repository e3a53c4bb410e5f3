"""Runs learners on a device that does not exist, in a process of its own: ``python -m tests.fake_device`` reads their names.

Under FakeTensorMode a tensor has a shape, a type and a device, but no values. An operation on tensors of two devices
raises, and so does asking for a value, which on an accelerator would make the host wait.
"""

import atexit
import functools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch

from tests import composed_policies, convex_learners, learners
from tests.learners import DIM, estimator_of, round_of
from torchonline import OFUL, AnytimeHeavyTailUCB, EpsilonGreedy, FixedArms, RidgeRegression
from torchonline.convex.learner import ConvexLearner
from torchonline.policies.composed import ComposedPolicy

DEVICE = "imaginary"


def environment() -> dict[str, str]:
    """This process's environment, for another that imports ``tests`` too."""
    root = str(Path(__file__).parent.parent)
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), root]))}


@functools.cache
def process_with_device() -> subprocess.Popen[str]:
    """This file, run until there is nobody to ask it: it answers the name of a learner with what went wrong."""
    command = [sys.executable, "-m", "tests.fake_device"]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1, env=environment()
    )
    atexit.register(process.communicate)
    return process


def failures(name: str) -> list[str]:
    """What goes wrong with a learner on the device."""
    process: Any = process_with_device()
    try:
        process.stdin.write(f"{name}\n")
        answer = process.stdout.readline()
    except BrokenPipeError:
        answer = ""
    if not answer:
        raise RuntimeError(f"python -m tests.fake_device has ended with code {process.wait()}")
    return json.loads(answer)


def install() -> None:
    """Register the device. It is not available, so that torch keeps all memory on the host."""
    from torch.utils import backend_registration

    class Absent(backend_registration._DummyBackendModule):
        def is_available(self) -> bool:
            return False

    backend_registration._setup_privateuseone_for_python_backend(DEVICE, Absent())


@functools.cache
def fakes() -> Any:
    """The mode in which tensors have no values. Constants of the host, which options may be, are taken for fakes of the host."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    return FakeTensorMode(allow_non_fake_inputs=True)


def pretend_to_be_real() -> int:
    """Make the library take fake tensors for real ones, as it would the tensors of a real accelerator."""
    modules = [module for name, module in sys.modules.items() if name.startswith("torchonline.")]
    patched = [module for module in modules if hasattr(module, "is_readable")]
    for module in patched:
        module.is_readable = lambda tensor: True  # type: ignore[attr-defined]
    return len(patched)


def use_bandit(learner: Any, batch_shape: tuple[int, ...], dtype: torch.dtype) -> list[torch.Tensor]:
    """Ask a bandit everything and teach it, with tensors of the device; the answers."""
    like = {"device": DEVICE, "dtype": dtype}
    arms, outputs = torch.randn(*batch_shape, 5, DIM, **like), estimator_of(learner).output_shape
    one, rows = arms[..., 0, :], arms[..., :2, :]
    learner.step(*round_of(learner, one, torch.zeros((*batch_shape, *outputs), **like)))
    log, learnt = torch.zeros(*batch_shape, 2, *outputs, **like), torch.ones(*batch_shape, 2, device=DEVICE) > 0.0
    learner.learn(*round_of(learner, rows, log))
    learner.learn(*round_of(learner, rows, log), noise_scale=log + 1.0, block_size=1, mask=learnt)
    seen = [learner(arms)]
    if hasattr(learner, "select"):
        mask = torch.ones(arms.shape[:-1], dtype=torch.bool, device=DEVICE)
        seen += [learner.select(arms, mask), learner.select(arms.unsqueeze(-3).expand(*batch_shape, 4, 5, DIM))]
    else:
        several = (*batch_shape, 2, *outputs)
        learner.step(rows, torch.zeros(several, **like), noise_scale=torch.ones(several, **like))
        half = {"device": DEVICE, "dtype": torch.bfloat16}
        learner.step(one.bfloat16(), torch.zeros((*batch_shape, *outputs), **half))
        seen += [learner.width(arms), learner.radius(), *learner.interval(arms)]
        learner.reset()
    return seen


def use_fixed(learner: Any, batch_shape: tuple[int, ...], dtype: torch.dtype) -> list[torch.Tensor]:
    """Ask fixed arms everything and teach them, with tensors of the device; the answers."""
    like = {"device": DEVICE, "dtype": dtype}
    action = torch.zeros(batch_shape, dtype=torch.int64, device=DEVICE)
    learner.step(None, action, torch.zeros(batch_shape, **like))
    several = action.unsqueeze(-1).expand(*batch_shape, 2)
    learner.step(None, several, torch.zeros(several.shape, **like), noise_scale=torch.ones(several.shape, **like))
    mask = torch.ones(*batch_shape, 5, dtype=torch.bool, device=DEVICE)
    seen = [learner(), learner.select(), learner.select(mask=mask), learner.probabilities(mask=mask)]
    seen += learner.select_with_probability()
    learner.add_arms(torch.randn(2, DIM, **like))
    learner.reset()
    return seen


def use_convex(learner: Any, batch_shape: tuple[int, ...], dtype: torch.dtype) -> list[torch.Tensor]:
    """Ask a convex learner everything and teach it, with tensors of the device; the answers."""
    for kind in (dtype, torch.bfloat16):
        gradients = torch.randn(*batch_shape, learner.points, learner.dim, device=DEVICE, dtype=kind)
        if hasattr(learner, "set_hint"):
            learner.set_hint(gradients[..., 0, :])
        if hasattr(learner, "set_available"):
            learner.set_available(torch.ones(*batch_shape, learner.dim, device=DEVICE, dtype=torch.bool))
        learner.step(gradients, gradients[..., 0])
    seen = [learner.predict(), learner(), learner.queries()]
    learner.reset()
    return seen


def use(learner: Any, batch_shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """Ask a learner everything and teach it: its answers and its buffers are on the device."""
    ask = use_convex if isinstance(learner, ConvexLearner) else use_bandit
    if isinstance(learner, ComposedPolicy):
        ask = functools.partial(composed_policies.use, device=DEVICE)
    if isinstance(learner, FixedArms):
        ask = use_fixed
    seen = ask(learner, batch_shape, dtype)
    strangers = {str(tensor.device) for tensor in [*seen, *learner.buffers()]} - {f"{DEVICE}:0"}
    if strangers:
        raise RuntimeError(f"found tensors on {sorted(strangers)}")


def placed(build: Any, **options: Any) -> Any:
    """A learner on the device: made on the host, where a constructor may look at its arguments, and moved there."""
    learner, elsewhere = build(**options), build(**options, device="meta")
    strangers = [name for name, buffer in elsewhere.named_buffers() if buffer.device.type != "meta"]
    if strangers:
        raise RuntimeError(f"device: expected it to hold for all buffers, found others: {strangers}")
    with fakes() as mode:
        for module in learner.modules():
            for name, buffer in module.named_buffers(recurse=False):
                module.register_buffer(name, mode.from_tensor(buffer))
        return learner.to(DEVICE)


def problems(build: Any) -> Iterator[str]:
    """What goes wrong with a learner that is alone, in single precision, or in a batch."""
    for batch_shape, dtype in (((), torch.float32), ((3,), torch.float64)):
        try:
            learner = placed(build, batch_shape=batch_shape, dtype=dtype, validate=False)
            with fakes():
                use(learner, batch_shape, dtype)
        except Exception as error:
            yield f"{batch_shape} {dtype}: {type(error).__name__}: {str(error).splitlines()[0]}"


def fixed_arms(over: Any) -> Any:
    """What builds fixed arms over a policy."""
    return lambda **options: FixedArms(over(**options), np.random.default_rng(0).standard_normal((5, DIM)))


# Policies under fixed arms, by the name that tests ask for.
UNDER_FIXED_ARMS = {
    "FixedArms(OFUL)": lambda **options: OFUL(DIM, **options),
    "FixedArms(AnytimeHeavyTailUCB)": lambda **options: AnytimeHeavyTailUCB(DIM, restart_every=3, **options),
    "FixedArms(EpsilonGreedy)": lambda **options: EpsilonGreedy(RidgeRegression(DIM, **options)),
}


def class_of(place: str) -> Any:
    """The class at ``path/to/file.py:Class``."""
    path, name = place.rsplit(":", 1)
    module: Any = ModuleType(Path(path).stem)
    sys.modules[module.__name__] = module
    module.__file__ = path
    exec(compile(Path(path).read_text(), path, "exec"), module.__dict__)
    return getattr(module, name)


def main() -> None:
    install()
    if pretend_to_be_real() == 0:
        raise RuntimeError("the library no longer asks is_readable: say here how it knows a tensor with values")
    cases = {str(case): case for case in (*learners.CASES, *convex_learners.CASES, *composed_policies.CASES)}
    for line in sys.stdin:
        name = line.rstrip()
        if name in UNDER_FIXED_ARMS:
            print(json.dumps(list(problems(fixed_arms(UNDER_FIXED_ARMS[name])))), flush=True)
            continue
        case = learners.Case(class_of(name)) if ".py:" in name else cases[name]
        print(json.dumps(list(problems(case.build))), flush=True)


if __name__ == "__main__":
    main()
