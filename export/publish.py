"""Publishes models/NAME/VERSION atomically."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from engines.manifest import CARD_FILE, MANIFEST_FILE, ONNX_FILE, Manifest, ModelName
from export.card import card_text
from export.errors import ExportError, OptionInvalid


def check_name(name: str) -> None:
    """Check the name of a model to publish.

    Raises:
        OptionInvalid: it is empty or too long, or has characters that names may not have.
    """
    try:
        TypeAdapter(ModelName).validate_python(name)
    except ValidationError as error:
        raise OptionInvalid(f"--name {name!r}: lower-case letters, digits, - and _ only, at most 64") from error


def next_version(repository: Path, name: str) -> int:
    """Return the version above the highest that exists; 1 if there is none."""
    taken = (repository / name).glob("*")
    return 1 + max((int(path.name) for path in taken if path.name.isdecimal()), default=0)


PUBLISHING = "publishing"
"""The last step of an export, as it is shown to users."""


def publish(
    files: Mapping[str, Path],
    repository: Path,
    manifest_of: Callable[[int], Manifest],
    card_of: Callable[[Manifest], str] = card_text,
) -> tuple[Path, Manifest]:
    """Publish a graph and its other files as the next free version, with manifest and card.

    Args:
        files: the files by their new name (model.onnx, …), on the repository's file system; they are moved.
        repository: the models folder.
        manifest_of: makes the manifest of a version.
        card_of: makes the card of a manifest.

    Returns:
        The version's directory and its manifest.
    """
    staged = files[ONNX_FILE].parent / "version"
    staged.mkdir()
    for name, path in files.items():
        path.rename(staged / name)
    version = next_version(repository, manifest_of(1).name)
    while True:
        manifest = manifest_of(version)
        (staged / MANIFEST_FILE).write_text(manifest.model_dump_json(indent=2) + "\n", "utf-8")
        (staged / CARD_FILE).write_text(card_of(manifest), "utf-8")
        target = repository / manifest.name / str(version)
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            return staged.rename(target), manifest
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            version += 1  # another export took that version


@contextmanager
def report_write_errors(output: Path) -> Iterator[None]:
    """Turn errors of the file system in the repository's folder, or of its name, into an ExportError with advice."""
    try:
        yield
    except (OSError, UnicodeEncodeError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        room = (
            "make room there, or " if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
        )
        raise ExportError(f"{output} cannot be written: {reason}; {room}name another folder with --output") from error
