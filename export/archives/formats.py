"""Loads a checkpoint of any format as data, without executing code from it.

`torch.load(weights_only=True)` and safetensors create nothing but tensors and plain containers. Two kinds of file that
the former refuses are read by `torch_zip` and `torch_legacy`: TorchScript archives, and checkpoints with objects of
other libraries, such as Lightning or argparse, beside the weights.
"""

from __future__ import annotations

import pickle
import re
import warnings
import zipfile
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file as load_tensors

from export.archives.bundle import bundled_checkpoint, unpacked
from export.archives.torch_legacy import MAGIC_PICKLE, read_legacy_checkpoint
from export.archives.torch_tensors import SAVE_WEIGHTS, numpy_message, unsafe_message
from export.archives.torch_zip import is_script, read_foreign_checkpoint, read_script
from export.archives.zip_entries import ZipEntries, open_zip
from export.errors import CheckpointRefused

_NEWER_PICKLE = "Unsupported operand 149"
"""Torch's words on FRAME, with which pickles of protocol 4 and 5 begin."""
_LONGEST_MAGIC = 32
"""Bytes that the pickled magic number has at most: with protocol 4 it is in a frame."""
_TAR_BLOCK = 512
"""Bytes of a tar archive's first header, which has `ustar` at byte 257."""


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
        return _load_unzipped(path)
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


def _load_unzipped(path: Path) -> object:
    try:
        return _load_torch(path)
    except _UnsafePickle:
        with path.open("rb") as file:
            if file.read(len(MAGIC_PICKLE)) != MAGIC_PICKLE:
                raise
        return read_legacy_checkpoint(path)


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
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # on newer pickles, about which the message below says more
            return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        if _NEWER_PICKLE in str(error) and _is_of_torch(path):
            raise CheckpointRefused(
                f"{path}: pickled with protocol 4 or later, which torch does not read safely; load it in torch where "
                f"you trust it, and {SAVE_WEIGHTS}, without pickle_protocol"
            ) from error
        if (found := re.search(r"(?:GLOBAL|global) ([\w.]+)", str(error))) is None:
            raise CheckpointRefused(_unreadable_message(path)) from error
        message = numpy_message if found[1].startswith("numpy.") else unsafe_message
        raise _UnsafePickle(message(path, found[1])) from error
    except Exception as error:  # a hostile file can fail anywhere inside the reader, with any error
        raise CheckpointRefused(_unreadable_message(path)) from error


def _is_of_torch(path: Path) -> bool:
    """Return whether a file is a zip, or begins with the magic number of torch's old format in any pickle protocol."""
    with path.open("rb") as file:
        return MAGIC_PICKLE[2:] in file.read(_LONGEST_MAGIC) or zipfile.is_zipfile(path)


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
        head = file.read(_TAR_BLOCK)
    renamed, tar = path.with_suffix(".safetensors").name, head[257:262] == b"ustar"
    kinds = (
        (
            head[8:9] == b"{" and int.from_bytes(head[:8], "little") < path.stat().st_size,
            f"a safetensors file under another name; rename it to {renamed}",
        ),
        (head.startswith(b"\x1f\x8b"), "compressed with gzip; unpack it first (gunzip, or tar -xzf)"),
        (
            tar and head.startswith(b"sys_info\0"),
            f"in the format of torch before 0.2; load it in torch where you trust it, and {SAVE_WEIGHTS}",
        ),
        (tar, "a tar archive; unpack it first (tar -xf)"),
        (
            head[:1] == b"\x80" and not head.startswith(MAGIC_PICKLE),
            (
                "truncated or not a torch checkpoint, but a pickle of another program, which could run code; in "
                "Python, where you trust it, load it, make a dictionary of names with tensors "
                "(torch.from_numpy for NumPy's arrays), save that with torch.save and export it"
            ),
        ),
        (
            path.suffix.lower() == ".distcp",
            (
                "a part of a distributed checkpoint; make one file of its folder: python -m "
                "torch.distributed.checkpoint.format_utils dcp_to_torch FOLDER net.pth"
            ),
        ),
        (
            path.suffix.lower() == ".onnx",
            f"not a torch checkpoint; an ONNX graph becomes a model by retouch import {path}",
        ),
        (
            True,
            (
                "truncated or not a torch checkpoint; copy it again, or give the .pth, .pt or .safetensors file that "
                "the training wrote"
            ),
        ),
    )
    return f"{path}: {next(message for found, message in kinds if found)}"
