"""Tensors and dictionaries that the pickles of torch's files describe, over storages that a caller reads.

The pickles are read as data: nothing is imported or called. `torch_zip` and `torch_legacy` find pickle and storages in
a file.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TypeGuard

import torch
from torch import Tensor

from export.archives.inert_pickle import Name, NotReadable, PersistentId, RecordedCall
from export.errors import CheckpointRefused

SAVE_WEIGHTS = "save the generator's state_dict() alone, torch.save(net.state_dict(), 'weights.pth'), and export that"
"""Advice about a file whose weights cannot be read safely."""
MAX_PICKLE_BYTES = 4 * 2**20
"""Largest pickle of a file in bytes; that of a net of a thousand tensors has 150 kB."""
_MAX_SHARING = 4
"""Largest size of all tensors together, as a multiple of the file's size. Tied weights share a storage, which a hostile
file could use to claim many times its size."""
_MAX_DEPTH, _MAX_AXES = 64, 8
_PATH_SHOWN = 300
"""Characters of a path in a message, its last ones."""
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
_TENSORS = frozenset({"torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_tensor"})
"""Functions of torch that make a tensor; that without a version is of torch before 0.4."""
_PARAMETER, _DICTIONARY = "torch._utils._rebuild_parameter", "collections.OrderedDict"
_COMMON_NAMES = (
    rf"{'|'.join(map(re.escape, _TENSORS))}|collections\.OrderedDict|torch\.(Size|device|{'|'.join(_TYPES)})"
)
SCRIPT_NAMES = re.compile(rf"{_COMMON_NAMES}|__torch__(\.\w+)+|torch\.jit\._pickle\.(build_\w+list|restore_type_tag)")
CHECKPOINT_NAMES = re.compile(
    rf"{_COMMON_NAMES}|{re.escape(_PARAMETER)}|collections\.(defaultdict|Counter)|typing\.\w+"
    r"|argparse\.Namespace|types\.SimpleNamespace|datetime\.(datetime|date|timedelta)"
    r"|(__builtin__|builtins)\.(dict|list|set|tuple|int|float|str|bool)"
    r"|(pytorch_lightning|lightning|lightning_fabric|omegaconf|easydict|yacs|addict|munch)(\.\w+)+"
    r"|numpy\.(_core|core)\.multiarray\.(scalar|_reconstruct)|numpy\.(dtype|ndarray)|_codecs\.encode"
    r"|pathlib(\._local)?\.\w*Path"
)
"""Names accepted besides tensors, for hyperparameters and metrics. NumPy's values are pickled as bytes (`encode`)."""
_ARRAY = re.compile(r"numpy\.(_core|core)\.multiarray\._reconstruct")


def numpy_message(path: Path, found: str) -> str:
    """Return why weights that are arrays of NumPy are refused, and how to make tensors of them."""
    return (
        f"{path}: has values of NumPy ({found}) where export needs tensors; in Python, where you trust the file, make "
        "tensors of its arrays, torch.save({name: torch.from_numpy(array) for name, array in state.items()}, PATH), "
        "leave its other values out, and export that"
    )


def large_pickle_message(path: Path) -> str:
    """Return why a checkpoint whose pickle is larger than `MAX_PICKLE_BYTES` is refused: weights are not in pickles."""
    return numpy_message(path, "kept in its pickle, which is over 4 MiB")


def refusal(path: Path, error: NotReadable) -> CheckpointRefused:
    """Return the error for a file whose pickle cannot be read: it is damaged, or has a name that is not allowed."""
    if error.name is None:
        return CheckpointRefused(f"{path}: {error}; copy it again")
    return CheckpointRefused(unsafe_message(path, error.name.removeprefix("__builtin__.")))


def unsafe_message(path: Path, needed: str) -> str:
    """Return why a file that needs a class or function to be unpickled is refused, and how to save it without that."""
    return (
        f"{path}: needs {needed} to be unpickled, which could run code; in the project that made the file, "
        f"{SAVE_WEIGHTS}; of a dictionary that holds the state_dict() as NAME, torch.save(saved['NAME'], 'weights.pth')"
    )


def is_tensor(value: object) -> bool:
    """Return whether a value of a pickle describes a tensor or a parameter."""
    return (
        isinstance(value, RecordedCall)
        and isinstance(value.of, Name)
        and (value.of.path in _TENSORS or value.of.path == _PARAMETER)
    )


def described_storage(stored: object) -> tuple[str, torch.dtype, int] | None:
    """Return key, type and number of elements of a storage that a pickle refers to; None if torch describes it else."""
    reference = stored.reference if isinstance(stored, PersistentId) else None
    if not isinstance(reference, tuple) or len(reference) not in (5, 6) or any(reference[5:]):  # no view of another
        return None
    if not isinstance(reference[1], Name):
        return None
    kind, key, count = _TYPES.get(reference[1].path.removeprefix("torch.")), reference[2], reference[4]
    if kind is None or not (isinstance(key, str) and re.fullmatch(r"[0-9]{1,20}", key) and _is_size(count)):
        return None
    return key, kind, count


class TensorReader:
    """Makes the tensors of one file of `size` bytes; `read` returns the bytes of the storage with a key."""

    def __init__(self, path: Path, size: int, read: Callable[[str], bytes]) -> None:
        self.path = path
        self.size = size
        self.read = read
        self.storages: dict[str, bytearray] = {}
        self.bytes_returned = 0
        self.array = ""
        """Path of the first NumPy array that was met, as in `model/conv.weight`; empty if none was."""

    def tensor(self, made: RecordedCall, path: Sequence[str]) -> Tensor:
        """Return the tensor that a call of torch describes: a view of a storage, inside its bounds.

        Args:
            made: the call.
            path: the names that lead to the tensor, for messages.

        Raises:
            CheckpointRefused: the view exceeds its storage, or is not described as torch describes tensors.
        """
        if isinstance(made.of, Name) and made.of.path == _PARAMETER and isinstance(made.arguments[0], RecordedCall):
            made = made.arguments[0]
        storage, *view = (*made.arguments[:4], None, None, None, None)[:4]
        offset, shape, strides = view
        if not (is_tensor(made) and _is_size(offset) and _are_sizes(shape) and _are_sizes(strides)):
            raise self._refusal(path, "is not described as torch describes a tensor")
        if len(shape) != len(strides):
            raise self._refusal(path, f"has {len(shape)} sizes and {len(strides)} strides")
        flat = self._storage(storage, path)
        values = math.prod(shape)
        last = offset + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
        if values > flat.numel() or (values and last >= flat.numel()):
            raise self._refusal(path, f"claims shape {shape} but holds fewer values")
        self.bytes_returned += values * flat.element_size()
        if self.bytes_returned > _MAX_SHARING * self.size:
            raise CheckpointRefused(f"{self.path}: its tensors share storages more often than those of a net")
        return torch.as_strided(flat, shape, strides, offset) if values else torch.empty(shape, dtype=flat.dtype)

    def plain(self, value: object) -> object:
        """Return a checkpoint's dictionaries, lists and tensors; None in place of every other value.

        Raises:
            CheckpointRefused: a tensor is not as `tensor` needs it, or there are NumPy arrays and no tensor.
        """
        plain = self._plain(value, (), {})
        if self.array and not self.bytes_returned:
            raise CheckpointRefused(numpy_message(self.path, self.array))
        return plain

    def _plain(self, value: object, path: tuple[str, ...], seen: dict[int, object]) -> object:
        """Return a plain value; `seen` maps the id of each container to its copy, against cycles and repeated work.

        `path`: names that lead to the value. They are joined for messages only, as a hostile name can be very long.
        """
        if isinstance(value, RecordedCall) and is_tensor(value):
            return self.tensor(value, path)
        if isinstance(value, RecordedCall) and isinstance(value.of, Name) and _ARRAY.fullmatch(value.of.path):
            self.array = self.array or _joined(path)
            return None
        if id(value) in seen:
            return seen[id(value)]
        inside = _entries(value)
        if inside is None or len(path) > _MAX_DEPTH:
            return None
        plain: dict[str, object] | list[object] = {} if isinstance(inside, dict) else []
        seen[id(value)] = plain
        if isinstance(plain, dict) and isinstance(inside, dict):
            plain.update((name, self._plain(inner, (*path, name), seen)) for name, inner in inside.items())
        elif isinstance(plain, list):
            plain.extend(self._plain(inner, (*path, str(number)), seen) for number, inner in enumerate(inside))
        return plain

    def _storage(self, stored: object, path: Sequence[str]) -> Tensor:
        if (described := described_storage(stored)) is None:
            raise self._refusal(path, "has no storage as torch describes it")
        key, kind, count = described
        if key not in self.storages:
            self.storages[key] = bytearray(self.read(key))
        if count * kind.itemsize > len(self.storages[key]):
            raise self._refusal(path, f"claims {count} values but holds fewer values")
        return torch.frombuffer(self.storages[key], dtype=kind, count=count) if count else torch.empty(0, dtype=kind)

    def _refusal(self, path: Sequence[str], why: str) -> CheckpointRefused:
        return CheckpointRefused(f"{self.path}: {_joined(path)} {why}")


def _joined(path: Sequence[str]) -> str:
    return "/".join(path)[-_PATH_SHOWN:]


def _entries(value: object) -> dict[str, object] | Sequence[object] | None:
    """Return the entries of a dictionary, list or tuple; None for another value."""
    if not isinstance(value, RecordedCall):
        return value if isinstance(value, dict | list | tuple) else None
    if isinstance(value.of, Name) and value.of.path == _DICTIONARY and value.arguments:
        (pairs,) = value.arguments[:1]  # written by Python 2
        if isinstance(pairs, list) and all(isinstance(pair, list | tuple) and len(pair) == 2 for pair in pairs):
            value.items.update((key, inner) for key, inner in pairs if isinstance(key, str))
    return value.items


def _is_size(value: object) -> TypeGuard[int]:
    return type(value) is int and 0 <= value < 2**48


def _are_sizes(value: object) -> TypeGuard[tuple[int, ...]]:
    return isinstance(value, tuple) and len(value) <= _MAX_AXES and all(map(_is_size, value))
