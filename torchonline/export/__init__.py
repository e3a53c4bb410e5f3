"""Export of learners to files that decide and learn without torchonline."""

from torchonline.export.archives import Archive
from torchonline.export.executorch import to_executorch
from torchonline.export.files import (
    check_file,
    compile_program,
    released,
    to_archive,
    to_onnx,
    to_program,
    to_torchscript,
)
from torchonline.export.runner import Runner

__all__ = ["Archive", "Runner", "check_file", "compile_program", "released", "to_archive", "to_executorch", "to_onnx"]
__all__ += ["to_program", "to_torchscript"]
