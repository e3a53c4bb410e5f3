"""The order of the gallery, and when to draw it anew."""

import ast
import hashlib
import shutil
from pathlib import Path

# From what can be seen to what is shipped.
ORDER = [
    "confidence_ellipses",
    "one_outlier",
    "click_rates",
    "doctor_visits",
    "model_per_arm",
    "neural_linear_images",
    "radius_finds_itself",
    "drift_and_restarts",
    "off_policy_intervals",
    "privacy_utility",
    "no_learning_rate",
    "thousand_learners",
    "million_rows",
    "export_to_cpp",
]
ROOT = Path(__file__).parents[2]
LIBRARY = ("torchonline", "models", "callbacks")


class InReadingOrder:
    """Key of a script: its place in ORDER. A script without a place is an error."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def __call__(self, name: str) -> int:
        return ORDER.index(Path(name).stem)

    def __repr__(self) -> str:
        return "InReadingOrder"


def digest_of_library() -> str:
    """Return a digest of the code of the library and of conf.py, without comments and docstrings."""
    digest = hashlib.sha256()
    files = sorted(path for folder in LIBRARY for path in (ROOT / folder).rglob("*.py"))
    for path in [*files, ROOT / "docs" / "conf.py"]:
        tree = ast.parse(path.read_bytes())
        for node in ast.walk(tree):
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                node.value.value = None
        digest.update(f"{path.relative_to(ROOT)}: {ast.dump(tree)}".encode())
    return digest.hexdigest()


def remove_if_stale(folder: Path) -> None:
    """Remove what another library or configuration has drawn: sphinx-gallery looks at its scripts alone."""
    stamp, digest = folder / "library.sha256", digest_of_library()
    if not stamp.exists() or stamp.read_text() != digest:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        stamp.write_text(digest)
