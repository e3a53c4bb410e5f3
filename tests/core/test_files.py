"""Digests of files: no changed bit is loaded in silence; and who may read a file."""

import random
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from torchonline import DPTOFW, OFUL
from torchonline.core.files import has_seal, replace_file
from torchonline.export import check_file, to_archive, to_program, to_torchscript
from torchonline.feedback import Snapshot, load_snapshot, save_snapshot

FLIPS = 600


def flipped(data: bytes, generator: random.Random) -> bytes:
    """Change one bit."""
    place = generator.randrange(8 * len(data))
    changed = bytearray(data)
    changed[place // 8] ^= 1 << place % 8
    return bytes(changed)


WRITERS: dict[str, Callable[[Path], object]] = {
    "snapshot": lambda path: save_snapshot(path, OFUL(3), Snapshot(position=7)),
    "script.pt": lambda path: to_torchscript(OFUL(3), path=path),
    "program.pt2": lambda path: to_program(OFUL(3), path=path),
    "archive.pt2": lambda path: to_archive(OFUL(3), path=path),
}


@pytest.mark.parametrize("name", WRITERS)
def test_no_changed_bit_is_missed(name: str, tmp_path: Path) -> None:
    """600 files with one changed bit each, anywhere in the file."""
    path, generator = tmp_path / name, random.Random(0)
    WRITERS[name](path)
    check_file(path)
    data = path.read_bytes()
    for _ in range(FLIPS):
        path.write_bytes(flipped(data, generator))
        with pytest.raises(ValueError, match=r"^path: expected .*(got other|without)"):
            check_file(path)
        if name == "snapshot":
            policy = OFUL(3)
            with pytest.raises(ValueError, match=r"^path: expected a snapshot"):
                load_snapshot(path, policy)
    path.write_bytes(data)
    check_file(path)


def test_sealed_files_are_those_of_torch(tmp_path: Path) -> None:
    """Torch passes over the digest."""
    for name in ("snapshot", "script.pt", "program.pt2"):
        WRITERS[name](tmp_path / name)
        assert has_seal((tmp_path / name).read_bytes())
    assert load_snapshot(tmp_path / "snapshot", OFUL(3)).position == 7
    arms = torch.eye(3, dtype=torch.float64)
    assert torch.equal(torch.jit.load(tmp_path / "script.pt").select(arms), OFUL(3).select(arms))
    torch.export.load(tmp_path / "program.pt2")


def test_an_older_snapshot_loads_with_a_note(tmp_path: Path) -> None:
    save_snapshot(tmp_path / "new", OFUL(2), Snapshot(position=3))
    with open(tmp_path / "old", "wb") as file:
        torch.save(torch.load(tmp_path / "new", weights_only=True), file)
    with pytest.warns(UserWarning, match="path: expected a snapshot with a SHA-256, got an older one"):
        assert load_snapshot(tmp_path / "old", OFUL(2)).position == 3
    with pytest.raises(ValueError, match="got one without"):
        check_file(tmp_path / "old")


def test_what_is_secret_is_for_its_owner(tmp_path: Path) -> None:
    """A snapshot of a private learner is as secret as its records; also where an older file was open to all."""
    path = tmp_path / "snapshot"
    path.write_bytes(b"")
    path.chmod(0o644)
    save_snapshot(path, DPTOFW(2, horizon=10, epsilon=1.0, delta=1e-3), Snapshot())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    replace_file(tmp_path / "public", b"", ".public")
    assert stat.S_IMODE((tmp_path / "public").stat().st_mode) != 0o600
