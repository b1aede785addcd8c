"""Reads a foreign ONNX file and its external data; no value is interpreted before its location and size are checked.

External data lies in files beside the graph, named without a folder. No link is followed, no two tensors share bytes,
and nothing is read past a file's end. Afterwards the model holds all its data itself.
"""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path
from typing import NamedTuple

import onnx
from onnx import TensorProto

from export.errors import GraphRefused
from export.foreign.guard.tensors import MAX_BYTES, claimed_bytes, graphs_of, tensors_of

MAX_GRAPH_DEPTH = 3
_MAX_FILES = 64


class _Slice(NamedTuple):
    """The bytes of one tensor in an external file."""

    first: int
    size: int
    tensor: TensorProto


def read_model(path: Path) -> tuple[onnx.ModelProto, str]:
    """Read a model with all its data.

    Returns:
        The model, and a SHA-256 digest in hexadecimal: that of the graph's file or, with external data, that of the
        digests of all files, the graph's first.

    Raises:
        GraphRefused: a file cannot be read, is not ONNX, or its external data breaks a rule; the message says which.
    """
    content = _read_file(path.parent, path.name, follow=True)
    try:
        model = onnx.ModelProto.FromString(content)
    except Exception as error:  # protobuf has an error class of its own for each implementation
        why = f"{path.name}: damaged or not an ONNX file; copy it again, or give torch's checkpoint to retouch export"
        raise GraphRefused(why) from error
    if not model.graph.node:
        raise GraphRefused(f"{path.name}: holds no graph; is it an ONNX file?")
    _drop_unused_domains(model)
    digests = [hashlib.sha256(content).hexdigest()]
    digests += _take_in_external_data(model, path.parent, len(content))
    return model, digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()


def _drop_unused_domains(model: onnx.ModelProto) -> None:
    """Drop domains that no node uses: ONNX Runtime writes every domain that it knows into each graph that it saves."""
    used = {node.domain for graph in graphs_of(model, MAX_GRAPH_DEPTH) for node in graph.node}
    kept = [entry for entry in model.opset_import if entry.domain in {"", "ai.onnx", *used}]
    del model.opset_import[:]
    model.opset_import.extend(kept)


def _take_in_external_data(model: onnx.ModelProto, folder: Path, bytes_so_far: int) -> list[str]:
    files: dict[str, list[_Slice]] = {}
    for graph in graphs_of(model, MAX_GRAPH_DEPTH):
        for tensor in tensors_of(graph):
            if tensor.data_location == TensorProto.EXTERNAL:
                name, part = _external_slice(tensor)
                files.setdefault(name, []).append(part)
    if len(files) > _MAX_FILES:
        raise GraphRefused(f"the data is spread over {len(files)} files; at most {_MAX_FILES} are read")
    claimed = bytes_so_far + sum(part.size for parts in files.values() for part in parts)
    if claimed > MAX_BYTES:
        raise GraphRefused(f"graph and external data claim {claimed} bytes; at most {MAX_BYTES} are read")
    return [_fill_tensors(folder, name, files[name]) for name in sorted(files)]


def _external_slice(tensor: TensorProto) -> tuple[str, _Slice]:
    facts = {entry.key: entry.value for entry in tensor.external_data}
    location, size = facts.get("location", ""), claimed_bytes(tensor)
    if not location or location in {".", ".."} or any(c in location for c in "/\\\0"):
        raise GraphRefused(
            f"constant {tensor.name!r} is stored in {location!r}; data is read from beside the graph only"
        )
    first, length = (
        _whole_number(facts.get(key, default)) for key, default in (("offset", "0"), ("length", str(size)))
    )
    if first is None or length != size:
        raise GraphRefused(
            f"constant {tensor.name!r} claims {size} bytes, and its position is offset {facts.get('offset')}, "
            f"length {facts.get('length')}"
        )
    return location, _Slice(first, size, tensor)


def _whole_number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None


def _fill_tensors(folder: Path, name: str, parts: list[_Slice]) -> str:
    parts.sort(key=lambda part: part.first)
    end = 0
    for part in parts:
        if part.first < end:
            raise GraphRefused(f"{name}: constant {part.tensor.name!r} overlaps the one before; each has its own bytes")
        end = part.first + part.size
    content = _read_file(folder, name, follow=False)
    if end > len(content):
        raise GraphRefused(f"{name} ends after {len(content)} bytes, and the graph reads {end}; copy it again")
    for part in parts:
        part.tensor.raw_data = content[part.first : part.first + part.size]
        part.tensor.ClearField("data_location")
        del part.tensor.external_data[:]
    return hashlib.sha256(content).hexdigest()


def _read_file(folder: Path, name: str, *, follow: bool) -> bytes:
    """Read a regular file of limited size; `follow` allows a link, for the graph itself, which the user named."""
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
    try:
        with os.fdopen(os.open(folder / name, flags), "rb") as file:
            facts = os.fstat(file.fileno())
            if not stat.S_ISREG(facts.st_mode):
                raise GraphRefused(f"{name}: it is not a regular file")
            if facts.st_size > MAX_BYTES:
                raise GraphRefused(f"{name}: {facts.st_size} bytes; at most {MAX_BYTES} are read")
            return file.read(facts.st_size)
    except OSError as error:
        why = "it is a link; put the file itself beside the graph" if error.errno == 40 else error.strerror
        raise GraphRefused(f"{name}: cannot be read ({why})") from error
