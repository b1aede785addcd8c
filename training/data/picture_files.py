"""Files of pictures in a folder: found by their suffix, decoded one at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from training.data.rgb import to_rgb
from training.errors import DataMissing

SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".webp"})
_MAX_PIXELS = 100_000_000


def picture_paths(folder: Path, *, below: bool = True) -> list[Path]:
    """Return the sorted paths of all pictures in a folder and its subfolders, broken links too; empty if it is missing.

    Hidden files and hidden folders, such as macOS's ._a.jpg or .thumbnails, are skipped, and pipes and sockets, because
    reading them would wait for a writer.

    Args:
        folder: the folder.
        below: whether to search subfolders.
    """
    named = (path for path in folder.glob("**/*" if below else "*") if path.suffix.lower() in SUFFIXES)
    shown = (path for path in named if not any(part.startswith(".") for part in path.relative_to(folder).parts))
    return sorted(path for path in shown if path.is_file() or not path.exists())


def shard_paths(folder: Path) -> list[Path]:
    """Return the tar files in a folder, sorted; hidden ones are skipped."""
    return sorted(path for path in folder.glob("*.tar") if not path.name.startswith("."))


def read_picture(path: Path) -> NDArray[np.uint8]:
    """Decode a picture to H×W×3, RGB.

    Raises:
        DataMissing: it cannot be decoded, or its header states more than 100 megapixels.
    """
    with _opened(path) as image:
        return to_rgb(image)


def picture_size(path: Path) -> tuple[int, int]:
    """Read width and height of a picture from its header; they are those of the stored pixels, before any rotation.

    Raises:
        DataMissing: the header cannot be read, or states more than 100 megapixels.
    """
    with _opened(path) as image:
        return image.size


@contextmanager
def _opened(path: Path) -> Iterator[Image.Image]:
    try:
        with Image.open(path) as image:
            if image.width * image.height > _MAX_PIXELS:
                raise DataMissing(f"{path}: {image.width}×{image.height} is too large; scale it down")
            yield image
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise DataMissing(f"{path}: not a picture that can be decoded ({error}); remove it") from error
