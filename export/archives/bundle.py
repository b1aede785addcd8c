"""Opens a zip file that holds one checkpoint beside other files, as `big-lama.zip` does with its configuration."""

from __future__ import annotations

import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from export.archives.zip_entries import DAMAGED, ZipEntries
from export.errors import CheckpointRefused

_SUFFIXES = (".ckpt", ".pth", ".pt", ".safetensors")
_MAX_RATIO = 4
"""Largest accepted compression ratio of a checkpoint in a zip: weights have about 1.1, zeros a thousand."""


def bundled_checkpoint(entries: ZipEntries) -> str | None:
    """Return the name of the zip's entry that is a checkpoint; None if the zip itself is a torch checkpoint.

    Raises:
        CheckpointRefused: the zip holds several checkpoints, or none, such as arrays of NumPy.
    """
    if any(name.endswith("/data.pkl") for name in entries.by_name):
        return None
    found = [name for name in entries.by_name if name.endswith(_SUFFIXES) and not name.startswith("__MACOSX/")]
    if entries.by_name and all(name.endswith(".npy") for name in entries.by_name):
        raise CheckpointRefused(
            f"{entries.path}: arrays of NumPy (.npz) where export needs tensors; in Python make a checkpoint of them, "
            "torch.save({name: torch.from_numpy(array) for name, array in numpy.load(FILE).items()}, PATH), and export "
            "that"
        )
    if not found:
        raise CheckpointRefused(
            f"{entries.path}: not a torch checkpoint, and a zip file without one ({', '.join(_SUFFIXES)})"
        )
    if len(found) > 1:
        raise CheckpointRefused(f"{entries.path}: holds {', '.join(found[:4])}; unpack it and give the right one")
    return found[0]


@contextmanager
def unpacked(entries: ZipEntries, name: str) -> Iterator[Path]:
    """Unpack one entry into a temporary file and yield its path; the file is removed afterwards.

    Raises:
        CheckpointRefused: the entry is damaged, or compressed more strongly than weights can be.
    """
    entry = entries.by_name[name]
    if entry.file_size > _MAX_RATIO * entry.compress_size:
        raise CheckpointRefused(
            f"{entries.path}: {name} would unpack to {entry.file_size} bytes from {entry.compress_size}; weights do not"
        )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "net").with_suffix(Path(name).suffix)
        try:
            with zipfile.ZipFile(entries.path) as archive, archive.open(entry) as packed, path.open("wb") as file:
                shutil.copyfileobj(packed, file)
        except DAMAGED as error:
            raise CheckpointRefused(f"{entries.path}: {name} cannot be unpacked ({error}); copy it again") from error
        yield path
