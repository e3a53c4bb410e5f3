"""Compiled programs: a fast call, and a cache of compiled packages."""

import hashlib
import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor


@contextmanager
def torch_warns_about_itself() -> Iterator[None]:
    """Hide warnings of torch's compilers about their own code."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


class CompiledProgram:
    """Program compiled to machine code, with its own state.

    Call it like the program: ``choices, learnt = compiled(past, action, reward, learn, inputs, mask)``. torch's own call of a
    package parses the argument specification in each call, which takes as long as a small round.

    Args:
        package: result of ``torch._inductor.aoti_load_package``.
        outputs: the structure of the program's outputs.

    Attributes:
        package: the package, for torch's other methods.
    """

    def __init__(self, package: Any, outputs: torch.utils._pytree.TreeSpec) -> None:
        self.package = package
        self._run = package.loader.run
        self._outputs = None if outputs.is_leaf() else outputs

    def __call__(self, *inputs: Tensor) -> Any:
        # The code reads strides of its own, and checks none.
        found = self._run([x.contiguous() for x in inputs])
        return found[0] if self._outputs is None else torch.utils._pytree.tree_unflatten(found, self._outputs)


def place_in_cache(program: torch.export.ExportedProgram, options: dict[str, Any]) -> Path:
    """Return the path of a program's package in torch's cache.

    The name is a hash of everything that determines the package: the program, torch, the processor, the number of threads and
    the compiler's options.
    """
    from torch._inductor import config
    from torch._inductor.codecache import cache_dir

    file = io.BytesIO()
    torch.export.save(program, file)
    build = f"{torch.__version__} {torch.__config__.show()} {torch.get_num_threads()} {options}"
    key = hashlib.sha256(file.getvalue() + build.encode() + config.get_hash())
    return Path(cache_dir()) / "torchonline" / f"{key.hexdigest()}.pt2"
