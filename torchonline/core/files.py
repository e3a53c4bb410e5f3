"""Atomic replacement of files, and seals with their digests."""

import hashlib
import os
from pathlib import Path

# The comment of a sealed zip archive, which torch and all zip tools ignore.
SEAL, SEAL_BYTES = b"sha256:", 7 + 64


def sealed(archive: bytes) -> bytes:
    """Return a zip archive without a comment with its SHA-256 as the comment."""
    data = archive[:-2] + SEAL_BYTES.to_bytes(2, "little")
    return data + _seal_of(data)


def has_seal(data: bytes) -> bool:
    """Return whether an archive is sealed.

    Raises:
        ValueError: it is sealed, but its bytes have changed.
    """
    end = data[-SEAL_BYTES:]
    # The archive says how long its comment is. One changed byte, of the mark or of this record, does not hide a seal.
    record = data.rfind(b"PK\5\6")
    is_cut = record >= 0 and int.from_bytes(data[record + 20 : record + 22], "little") != len(data) - record - 22
    if not is_cut and sum(a == b for a, b in zip(end, SEAL, strict=False)) < len(SEAL) - 1:
        return False
    if end != _seal_of(data[:-SEAL_BYTES]):
        raise ValueError("expected the bytes that were written, got others: their SHA-256 differs")
    return True


def _seal_of(data: bytes) -> bytes:
    return SEAL + hashlib.sha256(data).hexdigest().encode()


def check_path(path: str | Path | None, suffix: str = "") -> None:
    """Raise unless a path, if there is one, can be that of a new file.

    It has the suffix, lies in a folder that exists, and is no folder itself.
    """
    if path is None:
        return
    file = Path(path)
    if suffix and file.suffix != suffix:  # that of ".pt2" is none
        raise ValueError(f"path: expected a file name that ends in {suffix}, got {str(path)!r}")
    if not file.parent.is_dir():
        raise FileNotFoundError(f"path: expected a file in a folder that exists, got {str(path)!r}")
    if file.is_dir():
        raise IsADirectoryError(f"path: expected a file, got the folder {str(path)!r}")


def replace_file(path: str | Path, data: bytes, beside: str | None = None, *, is_secret: bool = False) -> None:
    """Replace a file's bytes atomically: a crash leaves a whole file.

    The bytes are written to a file beside it, forced to the disk and renamed. A link stays a link.

    Args:
        path: the file.
        data: its new bytes.
        beside: name of the file beside it, which nothing else may write meanwhile. None: a name with the process's number.
        is_secret: whether only the owner may read the file, mode 0600.

    Raises:
        OSError: the file could not be written. The old file is unchanged.
    """
    path = Path(os.path.realpath(path))
    part = path.with_name(f".{path.name}.{os.getpid()}" if beside is None else beside)
    try:
        part.unlink(missing_ok=True)
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if is_secret else 0o666), "wb") as file:
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
