"""Reads checkpoints in torch's format before 1.6 that name foreign classes, such as `argparse.Namespace`.

The file is five pickles and the storages: a magic number, a version, the byte order, the value, the keys of the
storages; then in the order of these keys, for each the number of its elements (8 bytes) and its raw bytes.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

from export.archives.inert_pickle import NotReadable, PersistentId, read_pickle
from export.archives.torch_tensors import (
    CHECKPOINT_NAMES,
    MAX_PICKLE_BYTES,
    SAVE_WEIGHTS,
    TensorReader,
    described_storage,
    large_pickle_message,
    refusal,
)
from export.errors import CheckpointRefused

MAGIC_PICKLE = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
"""Begin of a file: the format's magic number as a pickle."""
_COUNT = struct.Struct("<q")


def read_legacy_checkpoint(path: Path) -> object:
    """Read a checkpoint that begins with `MAGIC_PICKLE`; returns what `torch_zip.read_foreign_checkpoint` does.

    Raises:
        CheckpointRefused: the file is damaged or not little-endian, names a class that is not known to be harmless, or
            has NumPy arrays and no tensor.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        pickles = io.BytesIO(file.read(MAX_PICKLE_BYTES))
        references: list[PersistentId] = []
        try:
            version, system, value, keys = [_unpickled(pickles, references) for _ in range(5)][1:]
        except NotReadable as error:
            if size > MAX_PICKLE_BYTES and error.name is None:
                raise CheckpointRefused(large_pickle_message(path)) from error
            raise refusal(path, error) from error
        if version != 1001 or not isinstance(system, dict) or system.get("little_endian") is not True:
            raise CheckpointRefused(f"{path}: its tensors are not little-endian; save it again on another machine")
        places = _places(path, file, pickles.tell(), keys, references)

        def read(key: str) -> bytes:
            if key not in places:
                raise CheckpointRefused(f"{path}: has no storage {key}; copy it again")
            start, count = places[key]
            file.seek(start)
            return file.read(count)

        return TensorReader(path, size, read).plain(value)


def _unpickled(pickles: BinaryIO, references: list[PersistentId]) -> object:
    return read_pickle(pickles, lambda name: bool(CHECKPOINT_NAMES.fullmatch(name)), references.append)


def _places(
    path: Path, file: BinaryIO, start: int, keys: object, references: list[PersistentId]
) -> Mapping[str, tuple[int, int]]:
    """Return where each storage begins in the file, and its number of bytes.

    Raises:
        CheckpointRefused: the file ends before the last storage, or the pickle does not say what a storage holds.
    """
    widths = {found[0]: found[1].itemsize for each in references if (found := described_storage(each)) is not None}
    places: dict[str, tuple[int, int]] = {}
    for key in keys if isinstance(keys, list) else [keys]:
        if not isinstance(key, str) or key not in widths or key in places:
            raise CheckpointRefused(f"{path}: a storage is not described as torch does; {SAVE_WEIGHTS}")
        file.seek(start)
        head = file.read(_COUNT.size)
        start += _COUNT.size
        places[key] = start, _COUNT.unpack(head)[0] * widths[key] if len(head) == _COUNT.size else -1
        start += places[key][1]
        if places[key][1] < 0 or start > path.stat().st_size:
            raise CheckpointRefused(f"{path}: truncated or not a torch checkpoint; copy it again")
    return places
