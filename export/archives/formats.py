"""Loads a checkpoint of any format as data, without executing code from it.

`torch.load(weights_only=True)` and safetensors create nothing but tensors and plain containers. Two kinds of file that
the former refuses, TorchScript archives and checkpoints of Lightning, are read by `torch_zip`.
"""

from __future__ import annotations

import pickle
import re
import zipfile
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file as load_tensors

from export.archives.bundle import bundled_checkpoint, unpacked
from export.archives.torch_zip import is_script, numpy_message, read_foreign_checkpoint, read_script
from export.archives.zip_entries import ZipEntries, open_zip
from export.errors import CheckpointRefused

SAVE_WEIGHTS = "save the generator's state_dict() alone with torch.save and export that"
"""What to do about a file whose weights cannot be read safely."""


def load_file(path: Path, *, bundled: bool = False) -> object:
    """Return what a file holds: tensors in containers.

    Args:
        path: a .pth, .pt, .ckpt, .pickle or .bin (zip or legacy format) or .safetensors file, or a zip that has one.
        bundled: whether the file was in a zip, in which no further one is opened.

    Raises:
        CheckpointRefused: the file is not a checkpoint, or cannot be read safely; the message says which.
    """
    if path.suffix == ".safetensors":
        return _load_safetensors(path)
    if not zipfile.is_zipfile(path):
        return _load_torch(path)
    with open_zip(path) as entries:
        if is_script(entries):
            return read_script(entries)
        if not bundled and (name := bundled_checkpoint(entries)) is not None:
            return _load_bundled(entries, name)
        _refuse_packed(entries)
        try:
            return _load_torch(path)
        except _UnsafePickle:
            return read_foreign_checkpoint(entries)


def _load_bundled(entries: ZipEntries, name: str) -> object:
    with unpacked(entries, name) as inner:
        try:
            return load_file(inner, bundled=True)
        except CheckpointRefused as error:
            raise CheckpointRefused(str(error).replace(str(inner), f"{entries.path}, {name}")) from error


class _UnsafePickle(CheckpointRefused):
    """torch's safe loader met a name that it does not know."""


def _load_torch(path: Path) -> object:
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        if (found := re.search(r"(?:GLOBAL|global) ([\w.]+)", str(error))) is None:
            raise CheckpointRefused(_unreadable_message(path)) from error
        message = f"{path}: needs {found[1]} to be unpickled, which could run code; {SAVE_WEIGHTS}"
        raise _UnsafePickle(numpy_message(path, found[1]) if found[1].startswith("numpy.") else message) from error
    except Exception as error:  # a hostile file can fail anywhere inside the reader, with any error
        raise CheckpointRefused(_unreadable_message(path)) from error


def _load_safetensors(path: Path) -> object:
    try:
        return load_tensors(path)
    except (SafetensorError, OSError, ValueError) as error:
        raise CheckpointRefused(f"{path}: truncated or not a safetensors file; copy it again") from error


def _refuse_packed(entries: ZipEntries) -> None:
    """Refuse compressed zip entries, which could unpack to any size; torch stores its entries uncompressed."""
    packed = [name for name, entry in entries.by_name.items() if entry.compress_type != zipfile.ZIP_STORED]
    if packed:
        raise CheckpointRefused(
            f"{entries.path}: entry {packed[0]} is compressed; torch.save never does that, unpack it first"
        )


def _unreadable_message(path: Path) -> str:
    """Return why torch cannot read a file. Torch's own message is not shown: it suggests loading the file unsafely."""
    with path.open("rb") as file:
        head = file.read(9)
    if head[8:] == b"{" and int.from_bytes(head[:8], "little") < path.stat().st_size:
        renamed = path.with_suffix(".safetensors").name
        return f"{path}: a safetensors file under another name; rename it to {renamed}"
    if head.startswith(b"\x1f\x8b"):
        return f"{path}: compressed with gzip; unpack it first (gunzip, or tar -xzf)"
    if path.suffix.lower() == ".onnx":
        return f"{path}: not a torch checkpoint; an ONNX graph becomes a model by retouch import {path}"
    return (
        f"{path}: truncated or not a torch checkpoint; copy it again, or give the .pth, .pt or .safetensors file that "
        "the training wrote"
    )
