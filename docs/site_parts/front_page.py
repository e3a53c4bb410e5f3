"""Pictures of the first page, which a script of the gallery draws."""

import runpy
from pathlib import Path

import matplotlib
from PIL import Image

SCRIPT = Path(__file__).parents[2] / "examples" / "gallery" / "confidence_ellipses.py"


def drawn(folder: Path) -> str:
    """Write the animation and its last picture into a folder, unless they are newer than the script; return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    animated, still = folder / "exploration.gif", folder / "exploration.png"
    if not still.exists() or still.stat().st_mtime < SCRIPT.stat().st_mtime:
        matplotlib.use("Agg")
        from matplotlib import pyplot as plt

        with plt.rc_context():
            runpy.run_path(str(SCRIPT))["animation"].save(animated, writer="pillow", dpi=100)
            plt.close("all")
        with Image.open(animated) as picture:
            picture.seek(picture.n_frames - 1)
            picture.save(still)
    return str(folder)
