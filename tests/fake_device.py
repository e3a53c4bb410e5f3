"""Runs learners on a device that does not exist, in a process of its own: ``python -m tests.fake_device``.

Under FakeTensorMode a tensor has a shape, a type and a device, but no values. An operation on tensors of two devices
raises, and so does asking for a value, which on an accelerator would make the host wait.
"""

import functools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from tests.learners import CASES, DIM, estimator_of

DEVICE = "imaginary"


def environment() -> dict[str, str]:
    """This process's environment, for another that imports ``tests`` too."""
    root = str(Path(__file__).parent.parent)
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), root]))}


@functools.cache
def failures() -> dict[str, list[str]]:
    """For each learner, what went wrong on the device; computed once, in a new process, for all workers of a test run."""
    shared = os.environ.get("PYTEST_XDIST_TESTRUNUID")
    if shared is None:
        return run_on_device()
    result = Path(tempfile.gettempdir()) / f"torchonline-device-{shared}.json"
    try:
        result.with_suffix(".lock").touch(exist_ok=False)
    except FileExistsError:  # another worker is at it
        for _ in range(3000):
            if result.exists():
                return json.loads(result.read_text())
            time.sleep(0.1)
        raise TimeoutError(f"no other worker has written {result}") from None
    found = run_on_device()
    result.with_suffix(".part").write_text(json.dumps(found))
    result.with_suffix(".part").rename(result)
    return found


def run_on_device() -> dict[str, list[str]]:
    """Run this file."""
    command = [sys.executable, "-m", "tests.fake_device"]
    run = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=300)
    if run.returncode != 0:
        raise RuntimeError(run.stderr)
    return json.loads(run.stdout)


def install() -> None:
    """Register the device. It is not available, so that torch keeps all memory on the host."""
    from torch.utils import backend_registration

    class Absent(backend_registration._DummyBackendModule):
        def is_available(self) -> bool:
            return False

    backend_registration._setup_privateuseone_for_python_backend(DEVICE, Absent())


def pretend_to_be_real() -> int:
    """Make the library take fake tensors for real ones, as it would the tensors of a real accelerator."""
    modules = [module for name, module in sys.modules.items() if name.startswith("torchonline.")]
    patched = [module for module in modules if hasattr(module, "is_readable")]
    for module in patched:
        module.is_readable = lambda tensor: True  # type: ignore[attr-defined]
    return len(patched)


def use(learner: Any, batch_shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """Ask a learner everything and teach it, with tensors of the device."""
    like = {"device": DEVICE, "dtype": dtype}
    arms, outputs = torch.randn(*batch_shape, 5, DIM, **like), estimator_of(learner).output_shape
    learner.step(arms[..., 0, :], torch.zeros((*batch_shape, *outputs), **like))
    seen = [learner(arms)]
    if hasattr(learner, "select"):
        mask = torch.ones(arms.shape[:-1], dtype=torch.bool, device=DEVICE)
        seen += [learner.select(arms, mask), learner.select(arms.unsqueeze(-3).expand(*batch_shape, 4, 5, DIM))]
    else:
        several = (*batch_shape, 2, *outputs)
        learner.step(arms[..., :2, :], torch.zeros(several, **like), torch.ones(several, **like))
        half = {"device": DEVICE, "dtype": torch.bfloat16}
        learner.step(arms[..., 0, :].bfloat16(), torch.zeros((*batch_shape, *outputs), **half))
        seen += [learner.width(arms), learner.radius(), *learner.interval(arms)]
        learner.reset()
    strangers = {str(tensor.device) for tensor in [*seen, *learner.buffers()]} - {f"{DEVICE}:0"}
    if strangers:
        raise RuntimeError(f"found tensors on {sorted(strangers)}")


def problems(build: Any) -> Iterator[str]:
    """What goes wrong with a learner that is alone, in single precision and moved there, or in a fleet made on the device."""
    for batch_shape, dtype in (((), torch.float32), ((3,), torch.float64)):
        options = {"batch_shape": batch_shape, "dtype": dtype, "validate": False}
        try:
            # A policy has no memory of its own to move.
            moved = batch_shape == () and not hasattr(build(**options), "select")
            use(build(**options).to(DEVICE) if moved else build(**options, device=DEVICE), batch_shape, dtype)
        except Exception as error:
            yield f"{batch_shape} {dtype}: {type(error).__name__}: {str(error).splitlines()[0]}"


def main() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    install()
    if pretend_to_be_real() == 0:
        raise RuntimeError("the library no longer asks is_readable: say here how it knows a tensor with values")
    with FakeTensorMode():
        found = {str(case): list(problems(case.build)) for case in CASES}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
