"""models/NAME/VERSION appears whole or not at all."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable
from pathlib import Path

from engines.manifest import CARD_FILE, MANIFEST_FILE, ONNX_FILE, Manifest
from export.card import card_text


def next_version(repository: Path, name: str) -> int:
    """The lowest version above all that exist; 1 if none."""
    taken = (repository / name).glob("*")
    return 1 + max((int(path.name) for path in taken if path.name.isdecimal()), default=0)


def publish(graph: Path, repository: Path, manifest_of: Callable[[int], Manifest]) -> tuple[Path, Manifest]:
    """Put a graph with its manifest and card under the next free version.

    Args:
        graph: the ONNX file, on the repository's file system; it is moved.
        repository: the models folder.
        manifest_of: makes the manifest of a version.

    Returns:
        The version's directory and its manifest.
    """
    version = next_version(repository, manifest_of(1).name)
    while True:
        manifest = manifest_of(version)
        staged = graph.parent / f"version-{version}"
        staged.mkdir()
        graph = graph.rename(staged / ONNX_FILE)
        (staged / MANIFEST_FILE).write_text(manifest.model_dump_json(indent=2) + "\n", "utf-8")
        (staged / CARD_FILE).write_text(card_text(manifest), "utf-8")
        target = repository / manifest.name / str(version)
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            return staged.rename(target), manifest
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            graph = (staged / ONNX_FILE).rename(staged.parent / ONNX_FILE)  # another export took the version meanwhile
            shutil.rmtree(staged)
            version += 1
