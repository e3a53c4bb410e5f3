"""Files that are replaced whole or not at all."""

import os
from pathlib import Path


def replace_file(path: str | Path, data: bytes, beside: str) -> None:
    """Replace a file by one with other bytes, which a crash leaves whole.

    The bytes are written to a file beside it, forced to the disk and renamed. A link stays one.

    Args:
        path: the file.
        data: its new bytes.
        beside: name of the file beside it, which nobody else may write at the time.

    Raises:
        OSError: the file could not be written. The old one is as it was.
    """
    path = Path(os.path.realpath(path))
    part = path.with_name(beside)
    try:
        with open(part, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    if hasattr(os, "O_DIRECTORY"):  # the rename itself
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
