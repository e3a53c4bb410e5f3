"""Pictures of the first page, which a script of the gallery has drawn."""

import re
from base64 import b64decode
from io import BytesIO
from pathlib import Path
from typing import Any

from PIL import Image

DOCS = Path(__file__).parents[1]
FOLDER = DOCS / "_build" / "front"
PAGE = DOCS / "gallery" / "confidence_ellipses.rst"
MILLISECONDS = 200


def folder() -> str:
    """Return the folder of the pictures, which Sphinx wants to exist from the start."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    return str(FOLDER)


def draw(app: Any) -> None:
    """Write the animation of a page of the gallery, and its last picture, as files."""
    found = re.findall(r'"data:image/png;base64,([^"]*)"', PAGE.read_text())
    frames = [Image.open(BytesIO(b64decode(frame))).convert("RGB") for frame in found]
    options = {"save_all": True, "append_images": frames[1:], "duration": MILLISECONDS, "loop": 0}
    frames[0].save(FOLDER / "exploration.gif", **options)
    frames[-1].save(FOLDER / "exploration.png")
