"""Build the sdist and the wheel of a commit twice, and keep them if the bytes are the same: ``make release``.

Each build starts from a fresh clone of HEAD, in a folder of its own, with build tools of the versions in releases/constraints.txt
and the time of the commit. The wheel is built from the sdist. dist/ gets both, ``SHA256SUMS``, and ``provenance.json`` with the
commit, the time and the tools, and ``meta.yaml``, the recipe of releases/conda for this sdist. docs/releases.md says how somebody
else checks a release.

    python releases/build.py                   # HEAD of a clean checkout
    python releases/build.py --outdir there
    python releases/build.py --tagged          # refuse a commit without a tag such as v0.1.0
"""

import argparse
import gzip
import hashlib
import io
import json
import os
import platform
import re
import subprocess
import sys
import tarfile
import tempfile
import zlib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CONSTRAINTS = ROOT / "releases" / "constraints.txt"
RECIPE = ROOT / "releases" / "conda" / "meta.yaml"


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    """Run a command and return what it printed, or stop with it."""
    done = subprocess.run(
        command, cwd=cwd, env=os.environ | environment, capture_output=True, text=True, errors="replace", check=False
    )
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout.strip()


def normalized(archive: bytes, epoch: int) -> bytes:
    """Return a .tar.gz with its members sorted, of one time, one owner and two modes."""
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as source:
        members = sorted(source.getmembers(), key=lambda member: member.name)
        contents = {member.name: source.extractfile(member) for member in members if member.isfile()}
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as target:
            for member in members:
                fresh = tarfile.TarInfo(member.name)
                fresh.type, fresh.size, fresh.mtime = member.type, member.size, epoch
                fresh.linkname = member.linkname
                fresh.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
                target.addfile(fresh, contents.get(member.name))
    zipped = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", compresslevel=9, fileobj=zipped, mtime=epoch) as file:
        file.write(packed.getvalue())
    return zipped.getvalue()


def build(epoch: int, seed: str) -> dict[str, bytes]:
    """Clone, build and return the files by name. Hashes of strings differ between seeds, and must not matter."""
    environment = {"SOURCE_DATE_EPOCH": str(epoch), "PYTHONHASHSEED": seed, "TZ": "UTC", "LC_ALL": "C.UTF-8"}
    environment["TORCHONLINE_COMPILED"] = "0"  # one wheel for all systems; the sdist has the source of the core
    environment |= {"PIP_CONSTRAINT": str(CONSTRAINTS), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    with tempfile.TemporaryDirectory(prefix=f"torchonline-{seed}-") as folder:
        clone, out = Path(folder) / "clone", Path(folder) / "out"
        old = os.umask(0o022)
        run("git", "clone", "--quiet", ROOT, clone, cwd=ROOT)
        run("git", "checkout", "--quiet", run("git", "rev-parse", "HEAD", cwd=ROOT), cwd=clone)
        run(sys.executable, "-m", "build", "--sdist", "--outdir", out, clone, cwd=Path(folder), **environment)
        (sdist,) = out.glob("*.tar.gz")
        sdist.write_bytes(normalized(sdist.read_bytes(), epoch))
        with tarfile.open(sdist) as file:
            file.extractall(folder, filter="data")
        unpacked = Path(folder) / sdist.name.removesuffix(".tar.gz")
        run(sys.executable, "-m", "build", "--wheel", "--outdir", out, unpacked, cwd=Path(folder), **environment)
        os.umask(old)
        return {path.name: path.read_bytes() for path in sorted(out.iterdir())}


def recipe(template: str, version: str, digest: str) -> str:
    """Return the recipe for conda with the version and the sha256 of an sdist."""
    text, versions = re.subn(r'(set version = )"[^"]*"', rf'\1"{version}"', template)
    text, digests = re.subn(r"(sha256: )0{64}", rf"\g<1>{digest}", text)
    if (versions, digests) != (1, 1):
        sys.exit("releases/conda/meta.yaml: expected one `set version` and one sha256 of zeros")
    return re.sub(r"\A(#.*\n)+", "", text)  # without the note that this is a template


def main() -> None:
    """Build twice, compare and write."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--outdir", type=Path, default=ROOT / "dist")
    parser.add_argument("--tagged", action="store_true", help="refuse a commit without a tag of a version")
    options = parser.parse_args()
    if changed := run("git", "status", "--porcelain", cwd=ROOT):
        sys.exit(f"expected a checkout without changes, got\n{changed}")
    commit, epoch = run("git", "log", "-1", "--format=%H %ct", cwd=ROOT).split()
    tags = run("git", "tag", "--points-at", commit, cwd=ROOT).split()
    if options.tagged and not any(re.fullmatch(r"v\d+\.\d+\.\d+((a|b|rc)\d+)?", tag) for tag in tags):
        sys.exit(f"expected a tag such as v0.1.0 at {commit}, got {tags}")
    first, second = (build(int(epoch), seed) for seed in ("0", "1"))
    if first != second:
        differing = [name for name in sorted(first.keys() | second.keys()) if first.get(name) != second.get(name)]
        sys.exit(f"expected the same bytes twice, got other ones of {', '.join(differing)}")
    options.outdir.mkdir(parents=True, exist_ok=True)
    sums = {name: hashlib.sha256(content).hexdigest() for name, content in first.items()}
    for name, content in first.items():
        (options.outdir / name).write_bytes(content)
    (options.outdir / "SHA256SUMS").write_text("".join(f"{digest}  {name}\n" for name, digest in sums.items()))
    (sdist,) = [name for name in sums if name.endswith(".tar.gz")]
    version = sdist.removeprefix("torchonline-").removesuffix(".tar.gz")
    (options.outdir / "meta.yaml").write_text(recipe(RECIPE.read_text(), version, sums[sdist]))
    made = {"commit": commit, "tags": tags, "SOURCE_DATE_EPOCH": int(epoch), "sha256": sums}
    made |= {"python": platform.python_version(), "zlib": zlib.ZLIB_RUNTIME_VERSION, "platform": platform.platform()}
    made |= {"constraints": [line for line in CONSTRAINTS.read_text().splitlines() if not line.startswith("#")]}
    (options.outdir / "provenance.json").write_text(json.dumps(made, indent=1) + "\n")
    for name, digest in sums.items():
        print(f"{digest}  {name}  {len(first[name])} bytes, twice the same")


if __name__ == "__main__":
    main()
