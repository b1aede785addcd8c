"""Reads the tensors of torch's zip files: TorchScript archives, and checkpoints that name foreign classes.

Both are one folder with `data.pkl`, a pickle, and `data/N`, the storages as raw little-endian bytes. TorchScript adds
`code/`, which is not opened, and `constants/`, where a frozen program has its weights without names.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TypeGuard

import torch
from torch import Tensor

from export.archives.inert_pickle import Name, NotReadable, PersistentId, RecordedCall, read_pickle
from export.archives.zip_entries import ZipEntries
from export.errors import CheckpointRefused

_MAX_PICKLE_BYTES = 4 * 2**20
"""Largest `data.pkl` in bytes; that of a net of a thousand tensors has 150 kB."""
_MAX_SHARING = 4
"""Largest size of all tensors together, as a multiple of the file's size. Tied weights share a storage, which a hostile
file could use to claim many times its size."""
_MAX_DEPTH, _MAX_STEPS, _MAX_AXES = 64, 200_000, 8
_TYPES: Mapping[str, torch.dtype] = MappingProxyType(
    {
        "FloatStorage": torch.float32,
        "DoubleStorage": torch.float64,
        "HalfStorage": torch.float16,
        "BFloat16Storage": torch.bfloat16,
        "LongStorage": torch.int64,
        "IntStorage": torch.int32,
        "ShortStorage": torch.int16,
        "CharStorage": torch.int8,
        "ByteStorage": torch.uint8,
        "BoolStorage": torch.bool,
    }
)
_TENSOR, _PARAMETER = "torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_parameter"
_COMMON_NAMES = rf"{re.escape(_TENSOR)}|collections\.OrderedDict|torch\.(Size|device|{'|'.join(_TYPES)})"
_SCRIPT_NAMES = re.compile(rf"{_COMMON_NAMES}|__torch__(\.\w+)+|torch\.jit\._pickle\.(build_\w+list|restore_type_tag)")
_CHECKPOINT_NAMES = re.compile(
    rf"{_COMMON_NAMES}|{re.escape(_PARAMETER)}|collections\.defaultdict|typing\.\w+|argparse\.Namespace"
    r"|(__builtin__|builtins)\.(dict|list|set|tuple|int|float|str|bool)"
    r"|(pytorch_lightning|lightning|lightning_fabric|omegaconf)(\.\w+)+"
    r"|numpy\.(_core|core)\.multiarray\.(scalar|_reconstruct)|numpy\.(dtype|ndarray)|_codecs\.encode"
    r"|pathlib(\._local)?\.\w*Path"
)
"""Names accepted besides tensors, for hyperparameters and metrics. NumPy's values are pickled as bytes (`encode`)."""
_ARRAY = re.compile(r"numpy\.(_core|core)\.multiarray\._reconstruct")


def is_script(entries: ZipEntries) -> bool:
    """Return whether the file is a TorchScript archive, which has a folder `code/`."""
    return any("/code/" in name for name in entries.by_name)


def read_script(entries: ZipEntries) -> Mapping[str, Tensor]:
    """Read the tensors of a TorchScript archive by their dotted attribute path, as `state_dict` would name them.

    Raises:
        CheckpointRefused: the archive is frozen, damaged or not little-endian, or needs more than tensors and modules.
    """
    reader = _Reader(entries)
    if not any(name.startswith(f"{reader.root}/data/") for name in entries.by_name):
        raise CheckpointRefused(
            f"{entries.path}: a frozen TorchScript program (torch.jit.freeze), whose weights are folded and have no "
            "names; export the archive from before it was frozen, or the state_dict"
        )
    found = dict(_attributes(reader, reader.unpickled(_SCRIPT_NAMES)))
    return {path: reader.tensor(made, path) for path, made in found.items()}


def read_foreign_checkpoint(entries: ZipEntries) -> object:
    """Read a checkpoint that names classes of Lightning, OmegaConf or NumPy.

    Returns:
        Nested dictionaries, in which every value that is neither a tensor nor a dictionary is None.

    Raises:
        CheckpointRefused: the file is damaged or not little-endian, names any other class, or has NumPy arrays and no
            tensor.
    """
    reader = _Reader(entries)
    plain = _plain(reader, reader.unpickled(_CHECKPOINT_NAMES), "", {})
    if reader.array and not reader.bytes_returned:
        raise CheckpointRefused(numpy_message(entries.path, reader.array))
    return plain


def numpy_message(path: Path, found: str) -> str:
    """Return why weights that are arrays of NumPy are refused, and how to make tensors of them."""
    return (
        f"{path}: has values of NumPy ({found}) where export needs tensors; in Python, where you trust the file, make "
        "tensors of its arrays, torch.save({name: torch.from_numpy(array) for name, array in state.items()}, PATH), "
        "leave its other values out, and export that"
    )


class _Reader:
    """The storages and tensors of one file."""

    def __init__(self, entries: ZipEntries) -> None:
        self.entries = entries
        roots = [name.removesuffix("/data.pkl") for name in entries.by_name if re.fullmatch(r"[^/]+/data\.pkl", name)]
        if len(roots) != 1:
            raise CheckpointRefused(
                f"{entries.path}: truncated or not a torch checkpoint: a zip with {len(roots)} nets"
            )
        self.root = roots[0]
        order = f"{self.root}/byteorder"
        if order in entries.by_name and entries.read(order, 16) != b"little":
            raise CheckpointRefused(
                f"{entries.path}: its tensors are not little-endian; save it again on a little-endian machine"
            )
        self.storages: dict[str, bytearray] = {}
        self.bytes_returned = 0
        self.array = ""
        """Path of the first NumPy array that was met, as in `model/conv.weight`; empty if none was."""

    def unpickled(self, allowed: re.Pattern[str]) -> object:
        """Return what `data.pkl` describes."""
        name = f"{self.root}/data.pkl"
        if self.entries.by_name[name].file_size > _MAX_PICKLE_BYTES and allowed is _CHECKPOINT_NAMES:
            raise CheckpointRefused(numpy_message(self.entries.path, "kept in its pickle, which is over 4 MiB"))
        data = self.entries.read(name, _MAX_PICKLE_BYTES)
        try:
            return read_pickle(data, lambda name: bool(allowed.fullmatch(name)))
        except NotReadable as error:
            if error.name is None:
                raise CheckpointRefused(f"{self.entries.path}: {error}; copy it again") from error
            needed = error.name.removeprefix("__builtin__.")
            raise CheckpointRefused(
                f"{self.entries.path}: needs {needed} to be unpickled, which could run code; "
                "save the generator's state_dict() alone with torch.save and export that"
            ) from error

    def tensor(self, made: RecordedCall, name: str) -> Tensor:
        """Return the tensor that a call of torch describes: a view of a storage, inside its bounds.

        Raises:
            CheckpointRefused: the view exceeds its storage, or is not described as torch describes tensors.
        """
        if isinstance(made.of, Name) and made.of.path == _PARAMETER and isinstance(made.arguments[0], RecordedCall):
            made = made.arguments[0]
        storage, *view = (*made.arguments[:4], None, None, None, None)[:4]
        offset, shape, strides = view
        if not (_is_tensor(made) and _is_size(offset) and _are_sizes(shape) and _are_sizes(strides)):
            raise CheckpointRefused(f"{self.entries.path}: {name} is not described as torch describes a tensor")
        if len(shape) != len(strides):
            raise CheckpointRefused(f"{self.entries.path}: {name} has {len(shape)} sizes and {len(strides)} strides")
        flat = self._storage(storage, name)
        values = math.prod(shape)
        last = offset + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
        if values > flat.numel() or (values and last >= flat.numel()):
            raise CheckpointRefused(f"{self.entries.path}: {name} claims shape {shape} but holds fewer values")
        self.bytes_returned += values * flat.element_size()
        if self.bytes_returned > _MAX_SHARING * self.entries.size:
            raise CheckpointRefused(f"{self.entries.path}: its tensors share storages more often than those of a net")
        return torch.as_strided(flat, shape, strides, offset) if values else torch.empty(shape, dtype=flat.dtype)

    def _storage(self, stored: object, name: str) -> Tensor:
        reference = stored.reference if isinstance(stored, PersistentId) else None
        if not isinstance(reference, tuple) or len(reference) != 5 or not isinstance(reference[1], Name):
            raise CheckpointRefused(f"{self.entries.path}: {name} has no storage as torch describes it")
        kind, key, count = _TYPES.get(reference[1].path.removeprefix("torch.")), reference[2], reference[4]
        if kind is None or not (isinstance(key, str) and re.fullmatch(r"[0-9]+", key) and _is_size(count)):
            raise CheckpointRefused(f"{self.entries.path}: {name} has no storage as torch describes it")
        if key not in self.storages:
            self.storages[key] = bytearray(self.entries.read(f"{self.root}/data/{key}", self.entries.size))
        if count * kind.itemsize > len(self.storages[key]):
            raise CheckpointRefused(f"{self.entries.path}: {name} claims {count} values but holds fewer values")
        return torch.frombuffer(self.storages[key], dtype=kind, count=count) if count else torch.empty(0, dtype=kind)


def _is_tensor(value: object) -> bool:
    return isinstance(value, RecordedCall) and isinstance(value.of, Name) and value.of.path in (_TENSOR, _PARAMETER)


def _is_size(value: object) -> TypeGuard[int]:
    return type(value) is int and 0 <= value < 2**48


def _are_sizes(value: object) -> TypeGuard[tuple[int, ...]]:
    return isinstance(value, tuple) and len(value) <= _MAX_AXES and all(map(_is_size, value))


def _attributes(reader: _Reader, value: object) -> Iterator[tuple[str, RecordedCall]]:
    """Yield the tensors of a program's modules with their dotted paths."""
    steps = 0
    waiting: list[tuple[tuple[str, ...], object]] = [((), value)]
    while waiting:
        path, found = waiting.pop()
        steps += 1
        if len(path) > _MAX_DEPTH or steps > _MAX_STEPS:
            raise CheckpointRefused(f"{reader.entries.path}: its modules are nested more deeply than those of a net")
        if isinstance(found, RecordedCall) and _is_tensor(found):
            yield ".".join(path), found
        elif isinstance(found, RecordedCall) and isinstance(found.state, dict):
            waiting += [((*path, name), inner) for name, inner in reversed(found.state.items())]


def _plain(reader: _Reader, value: object, path: str, seen: dict[int, object]) -> object:
    """Return nested dictionaries of tensors. `seen` maps the id of each dictionary to its copy, against cycles."""
    if isinstance(value, RecordedCall) and _is_tensor(value):
        return reader.tensor(value, path)
    if isinstance(value, RecordedCall) and isinstance(value.of, Name) and _ARRAY.fullmatch(value.of.path):
        reader.array = reader.array or path.lstrip("/")
        return None
    entries = value.items if isinstance(value, RecordedCall) else value
    if not isinstance(entries, dict) or path.count("/") > _MAX_DEPTH:
        return None
    if id(entries) not in seen:
        plain: dict[str, object] = {}
        seen[id(entries)] = plain
        plain.update((name, _plain(reader, inner, f"{path}/{name}", seen)) for name, inner in entries.items())
    return seen[id(entries)]
