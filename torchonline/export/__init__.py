"""Export of learners to files that decide and learn without torchonline."""

from torchonline.export.executorch import load_executorch, to_executorch
from torchonline.export.files import check_file, compile_program, released, to_archive, to_onnx, to_program, to_torchscript

__all__ = ["check_file", "compile_program", "load_executorch", "released", "to_archive", "to_executorch", "to_onnx"]
__all__ += ["to_program", "to_torchscript"]
