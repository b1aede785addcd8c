"""Reads the tensors of torch's zip files: TorchScript archives, and checkpoints that name foreign classes.

Both are one folder with `data.pkl`, a pickle, and `data/N`, the storages as raw little-endian bytes. TorchScript adds
`code/`, which is not opened, and `constants/`, where a frozen program has its weights without names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from torch import Tensor

from export.archives.inert_pickle import NotReadable, RecordedCall, read_pickle
from export.archives.torch_tensors import (
    CHECKPOINT_NAMES,
    MAX_PICKLE_BYTES,
    SCRIPT_NAMES,
    TensorReader,
    is_tensor,
    large_pickle_message,
    refusal,
)
from export.archives.zip_entries import ZipEntries
from export.errors import CheckpointRefused

_MAX_DEPTH, _MAX_STEPS = 64, 200_000


def is_script(entries: ZipEntries) -> bool:
    """Return whether the file is a TorchScript archive, which has a folder `code/`."""
    return any("/code/" in name for name in entries.by_name)


def read_script(entries: ZipEntries) -> Mapping[str, Tensor]:
    """Read the tensors of a TorchScript archive by their dotted attribute path, as `state_dict` would name them.

    Raises:
        CheckpointRefused: the archive is frozen, damaged or not little-endian, or needs more than tensors and modules.
    """
    root = _root(entries)
    if not any(name.startswith(f"{root}/data/") for name in entries.by_name):
        raise CheckpointRefused(
            f"{entries.path}: a frozen TorchScript program (torch.jit.freeze), whose weights are folded and have no "
            "names; export the archive from before it was frozen, or the state_dict"
        )
    reader = _tensor_reader(entries, root)
    found = dict(_attributes(entries, _unpickled(entries, root, SCRIPT_NAMES)))
    return {path: reader.tensor(made, (path,)) for path, made in found.items()}


def read_foreign_checkpoint(entries: ZipEntries) -> object:
    """Read a checkpoint that names classes of Lightning, OmegaConf or NumPy.

    Returns:
        Nested dictionaries and lists, in which every value that is none of these and no tensor is None.

    Raises:
        CheckpointRefused: the file is damaged or not little-endian, names any other class, or has NumPy arrays and no
            tensor.
    """
    root = _root(entries)
    if entries.by_name[f"{root}/data.pkl"].file_size > MAX_PICKLE_BYTES:
        raise CheckpointRefused(large_pickle_message(entries.path))
    return _tensor_reader(entries, root).plain(_unpickled(entries, root, CHECKPOINT_NAMES))


def _root(entries: ZipEntries) -> str:
    """Return the name of the archive's folder."""
    roots = [name.removesuffix("/data.pkl") for name in entries.by_name if re.fullmatch(r"[^/]+/data\.pkl", name)]
    if len(roots) != 1:
        raise CheckpointRefused(f"{entries.path}: truncated or not a torch checkpoint: a zip with {len(roots)} nets")
    order = f"{roots[0]}/byteorder"
    if order in entries.by_name and entries.read(order, 16) != b"little":
        raise CheckpointRefused(
            f"{entries.path}: its tensors are not little-endian; save it again on a little-endian machine"
        )
    return roots[0]


def _tensor_reader(entries: ZipEntries, root: str) -> TensorReader:
    return TensorReader(entries.path, entries.size, lambda key: entries.read(f"{root}/data/{key}", entries.size))


def _unpickled(entries: ZipEntries, root: str, allowed: re.Pattern[str]) -> object:
    """Return what `data.pkl` describes."""
    data = entries.read(f"{root}/data.pkl", MAX_PICKLE_BYTES)
    try:
        return read_pickle(data, lambda name: bool(allowed.fullmatch(name)))
    except NotReadable as error:
        raise refusal(entries.path, error) from error


def _attributes(entries: ZipEntries, value: object) -> Iterator[tuple[str, RecordedCall]]:
    """Yield the tensors of a program's modules with their dotted paths."""
    steps = 0
    waiting: list[tuple[tuple[str, ...], object]] = [((), value)]
    while waiting:
        path, found = waiting.pop()
        steps += 1
        if len(path) > _MAX_DEPTH or steps > _MAX_STEPS:
            raise CheckpointRefused(f"{entries.path}: its modules are nested more deeply than those of a net")
        if isinstance(found, RecordedCall) and is_tensor(found):
            yield ".".join(path), found
        elif isinstance(found, RecordedCall) and isinstance(found.state, dict):
            waiting += [((*path, name), inner) for name, inner in reversed(found.state.items())]
