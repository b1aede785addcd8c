"""Reads untrusted checkpoints without executing code from them.

`torch.load(weights_only=True)` and safetensors create nothing but tensors and plain containers. Two kinds of file that
the former refuses, TorchScript archives and checkpoints of Lightning, are read as data by `export.archives`. The loaded
value is searched for state dicts by `export.states.finding`.
"""

from __future__ import annotations

import hashlib
import pickle
import re
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from export.archives.bundle import bundled_checkpoint, unpacked
from export.archives.torch_zip import is_script, numpy_message, read_foreign_checkpoint, read_script
from export.archives.zip_entries import ZipEntries, open_zip
from export.errors import CheckpointRefused, LayoutMismatch
from export.generators.family import State
from export.states.finding import StateDict, state_dicts
from export.states.folding import unfolded_message

_COUNTER = ".num_batches_tracked"
"""Suffix of batch norms' counters. Nothing reads them after training, so converted files may lack or overflow them."""
_NAMES_SHOWN = 8
_SAVE_WEIGHTS = "save the generator's state_dict() alone with torch.save and export that"
_SIGNED = (torch.int8, torch.int16, torch.int32, torch.int64)
_UNSIGNED = (torch.bool, torch.uint8, torch.uint16, torch.uint32, torch.uint64)
_INTEGERS = frozenset(_SIGNED + _UNSIGNED)


@dataclass(frozen=True)
class Checkpoint:
    """All state dicts of a file, and the file's digest."""

    sha256: str
    parts: tuple[StateDict, ...]


def read_checkpoint(path: Path) -> Checkpoint:
    """Read every state dict of a .pth, .pt, .pickle (zip or legacy format) or .safetensors file.

    Raises:
        CheckpointRefused: the file is missing, truncated or not a checkpoint, needs unsafe unpickling, would unpack to
            more than it holds, has a weight that is not dense, or has no state dict whose values are all real and
            finite; the message says which. Values beside a usable state dict, such as the best loss so far, may be
            infinite.
    """
    digest = sha256_of(path)
    parts = tuple(state_dicts(_load_file(path), partial(_checked_tensor, path)))
    if not parts:
        raise CheckpointRefused(f"{path}: holds no state dict (names with tensors); export needs a generator's weights")
    if all(faults := [_unusable(part.state) for part in parts]):
        raise CheckpointRefused(f"{path}: {faults[0]}")
    return Checkpoint(digest, parts)


def refuse_unusable(part: StateDict) -> None:
    """Refuse a state dict that was chosen for loading if its weights are not real and finite.

    Raises:
        CheckpointRefused: a tensor is complex, or has NaN or infinity; the message names it.
    """
    if (fault := _unusable(part.state)) is not None:
        raise CheckpointRefused(f"{part.path}: {fault}" if part.path else fault)


def sha256_of(path: Path) -> str:
    """Compute the file's SHA-256 digest in hexadecimal.

    Raises:
        CheckpointRefused: the file cannot be read.
    """
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    except OSError as error:
        raise CheckpointRefused(f"{path}: cannot be read ({error.strerror}); is the path right?") from error
    return digest.hexdigest()


def _load_file(path: Path, *, bundled: bool = False) -> object:
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
            return _load_file(inner, bundled=True)
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
        message = f"{path}: needs {found[1]} to be unpickled, which could run code; {_SAVE_WEIGHTS}"
        raise _UnsafePickle(numpy_message(path, found[1]) if found[1].startswith("numpy.") else message) from error
    except Exception as error:  # a hostile file can fail anywhere inside the reader, with any error
        raise CheckpointRefused(_unreadable_message(path)) from error


def _load_safetensors(path: Path) -> object:
    try:
        return load_file(path)
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


def _checked_tensor(path: Path, tensor: Tensor, name: str) -> Tensor:
    if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_nested:
        raise CheckpointRefused(f"{path}: {name} is sparse, nested or quantised; export needs dense weights")
    if tensor.is_meta:
        raise CheckpointRefused(f"{path}: {name} has a shape and no values; {_SAVE_WEIGHTS}")
    if not (tensor.is_floating_point() or tensor.is_complex() or tensor.dtype in _INTEGERS):
        raise CheckpointRefused(f"{path}: {name} {_not_real(tensor)}")
    if tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
        raise CheckpointRefused(f"{path}: {name} claims shape {tuple(tensor.shape)} but holds fewer values")
    return tensor.detach().float().contiguous() if tensor.is_floating_point() else tensor.detach()


def _unusable(state: State) -> str | None:
    """Return why the first tensor that cannot be a weight (complex, NaN, infinite) cannot be one; None if all can.

    Tensors on the meta device, which have a shape and no values, are skipped.
    """
    for name, tensor in state.items():
        if tensor.is_meta:
            continue
        if tensor.is_complex():
            return f"{name} {_not_real(tensor)}"
        if not name.endswith(_COUNTER) and not bool(torch.isfinite(tensor).all()):
            return f"{name} holds NaN or infinity; the training had diverged, take an earlier file"
    return None


def _not_real(tensor: Tensor) -> str:
    return f"holds {str(tensor.dtype).removeprefix('torch.')} values; export needs real numbers"


def load_strictly(net: torch.nn.Module, state: State) -> None:
    """Load `state` into `net`, whose parameters may be on the meta device, and put it into eval mode.

    Only the counters of batch norms may be missing.

    Raises:
        LayoutMismatch: a key is missing or unexpected, or its tensor has another shape, or integers in place of a
            weight; the message names it.
    """
    state = _with_counters(net, state)
    if faults := layout_faults(net, state):
        raise LayoutMismatch(f"keys {'; '.join(faults)}{unfolded_message(state)}")
    net.load_state_dict(state, strict=True, assign=True)
    net.requires_grad_(requires_grad=False).eval()


def layout_faults(net: torch.nn.Module, state: State) -> list[str]:
    """Return what keeps `load_strictly` from loading `state` into `net`: missing keys, unexpected ones, and so on."""
    state = _with_counters(net, state)
    weights = {key for key, tensor in net.state_dict().items() if tensor.is_floating_point()}
    wanted = {key: tuple(tensor.shape) for key, tensor in net.state_dict().items()}
    found = {key: tuple(tensor.shape) for key, tensor in state.items()}
    faults = [
        _list_keys("missing", [key for key in wanted if key not in found]),
        _list_keys("unexpected", [key for key in found if key not in wanted]),
        _list_keys(
            "of another shape",
            [
                f"{key} {found[key]} instead of {wanted[key]}"
                for key in wanted
                if found.get(key, wanted[key]) != wanted[key]
            ],
        ),
        _list_keys("of integers", [key for key in state if key in weights and not state[key].is_floating_point()]),
    ]
    return [fault for fault in faults if fault]


def _with_counters(net: torch.nn.Module, state: State) -> State:
    return {**{key: torch.tensor(0) for key in net.state_dict() if key.endswith(_COUNTER)}, **state}


def _list_keys(what: str, names: list[str]) -> str:
    shown = ", ".join(names[:_NAMES_SHOWN])
    more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
    return f"{what}: {shown}{more}" if names else ""


def joint_digest(checkpoints: Sequence[Checkpoint]) -> str:
    """Return the digest of a single file; for several, the digest of their digests in the order given."""
    if len(checkpoints) == 1:
        return checkpoints[0].sha256
    return hashlib.sha256("".join(file.sha256 for file in checkpoints).encode()).hexdigest()
