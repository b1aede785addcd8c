"""TorchScript archives assembled byte by byte, including ones that torch would never write."""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Mapping

CODE = b"class M(Module):\n  def forward(self: __torch__.M, x: Tensor) -> Tensor:\n    return x\n"


def integer(value: int) -> bytes:
    """Pickle a 64-bit integer."""
    return b"\x8a\x08" + struct.pack("<q", value)


def text(value: str) -> bytes:
    """Pickle a string."""
    return b"X" + struct.pack("<I", len(value)) + value.encode()


def imported(module: str, name: str) -> bytes:
    """Pickle an imported name."""
    return f"c{module}\n{name}\n".encode()


def row(*values: bytes) -> bytes:
    """Pickle a tuple."""
    return b"(" + b"".join(values) + b"t"


def called(function: bytes, *values: bytes) -> bytes:
    """Pickle a call of a function, as an attacker would."""
    return function + row(*values) + b"R"


def sizes(values: tuple[int, ...]) -> bytes:
    return row(*map(integer, values))


def tensor(
    key: str = "0",
    count: int = 4,
    shape: tuple[int, ...] = (4,),
    strides: tuple[int, ...] = (1,),
    offset: int = 0,
    kind: str = "FloatStorage",
) -> bytes:
    """Pickle a tensor over a storage as torch does."""
    storage = row(text("storage"), imported("torch", kind), text(key), text("cpu"), integer(count)) + b"Q"
    hooks = called(imported("collections", "OrderedDict"))
    return called(
        imported("torch._utils", "_rebuild_tensor_v2"),
        storage,
        integer(offset),
        sizes(shape),
        sizes(strides),
        b"\x89",
        hooks,
    )


def module(attributes: Mapping[str, bytes], name: str = "M") -> bytes:
    """Pickle a module of a TorchScript program with its attributes."""
    entries = b"".join(text(key) + value for key, value in attributes.items())
    return imported("__torch__", name) + b")\x81}(" + entries + b"ub"


def archive(value: bytes, storages: Mapping[str, bytes] | None = None, **others: bytes) -> bytes:
    """Zip a program whose data.pkl holds `value`; `others` are further entries of its folder, with `_` for `/`."""
    held = {"0": struct.pack("<4f", 1, 2, 3, 4)} if storages is None else storages
    entries = {
        "net/data.pkl": b"\x80\x02" + value + b".",
        **{f"net/data/{key}": data for key, data in held.items()},
        "net/code/__torch__.py": CODE,
        "net/constants.pkl": b"\x80\x02).",
        "net/version": b"3\n",
        **{f"net/{name.replace('_', '/')}": data for name, data in others.items()},
    }
    return zipped(entries)


def zipped(entries: Mapping[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    """Return a zip archive of the entries."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as file:
        for name, data in entries.items():
            file.writestr(name, data)
    return buffer.getvalue()
