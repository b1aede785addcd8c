"""Tensors of an inference request, and their conversion to and from image files. Pure.

A picture is either an encoded file, as BYTES of shape [1], or its pixels, as UINT8 of shape [1, H, W, C].
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from service.core.errors import InvalidRequest, TooLarge
from service.core.pictures import Picture
from service.imaging.files import codec

Datatype = Literal["BYTES", "UINT8"]
_FILE_SHAPES = ([1], [1, 1])
_CHANNELS = (1, 3, 4)
_LENGTH = struct.Struct("<I")
"""Length prefix of each element of a BYTES tensor in binary form."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """An input of a request.

    data: for BYTES, the encoded file; for UINT8, the pixels, row by row.
    shape: for UINT8, (H, W, C); for BYTES, empty.
    """

    name: str
    datatype: Datatype
    data: bytes
    shape: tuple[int, ...] = ()

    @property
    def pixels(self) -> int:
        """Height times width; 0 for BYTES."""
        return self.shape[0] * self.shape[1] if self.shape else 0


def file_tensor(name: str, shape: list[int], data: Callable[[], bytes]) -> Tensor:
    """Return a BYTES tensor; `data` returns its file and is called only if the shape is valid.

    Raises:
        InvalidRequest: the shape is neither [1] nor [1, 1], or `data` raised it.
    """
    if shape not in _FILE_SHAPES:
        raise InvalidRequest(f"input {name[:80]!r}: BYTES has the shape [1], one encoded file")
    return Tensor(name, "BYTES", data())


def pixel_tensor(name: str, datatype: str, shape: list[int], data: memoryview | bytes, max_pixels: int) -> Tensor:
    """Return a UINT8 tensor from data of shape [1, H, W, C] or [1, H, W].

    Raises:
        InvalidRequest: the datatype is not UINT8, the shape is invalid, or the data has another size.
        TooLarge: there are more than `max_pixels` pixels.
    """
    if datatype != "UINT8":
        raise InvalidRequest(f"input {name[:80]!r}: datatype {datatype[:40]!r}; send BYTES or UINT8")
    return Tensor(name, "UINT8", bytes(data), _picture_shape(shape, len(data), name, max_pixels))


def refuse_shared_memory(name: str, parameters: Container[str]) -> None:
    """Refuse an input whose data is in shared memory.

    Raises:
        InvalidRequest: the parameters name a shared-memory region.
    """
    if "shared_memory_region" in parameters:
        raise InvalidRequest(f"input {name[:80]!r}: shared memory is not supported; send the data")


def element_of(binary: memoryview, name: str) -> bytes:
    """Return the only element of a BYTES tensor in binary form.

    Raises:
        InvalidRequest: there is no element, several, an empty one, or one whose length prefix is wrong.
    """
    if len(binary) < _LENGTH.size or _LENGTH.unpack_from(binary)[0] != len(binary) - _LENGTH.size:
        raise InvalidRequest(
            f"input {name[:80]!r}: its binary data is not one element of BYTES: <length as u32, little endian><file>"
        )
    if len(binary) == _LENGTH.size:
        raise InvalidRequest(f"input {name[:80]!r} is empty", code="empty_part")
    return bytes(binary[_LENGTH.size :])


def as_file(tensor: Tensor) -> bytes:
    """Return a tensor as an encoded file: BYTES unchanged, UINT8 as PNG.

    Raises:
        InvalidOption: PNG cannot store a picture of that size.
    """
    if tensor.datatype == "BYTES":
        return tensor.data
    pixels = np.frombuffer(tensor.data, np.uint8).reshape(tensor.shape)
    if tensor.shape[2] < 4:
        return codec.encode(Picture(pixels), "png", 90)
    colours, alpha = np.ascontiguousarray(pixels[:, :, :3]), np.ascontiguousarray(pixels[:, :, 3])
    return codec.encode(Picture(colours, alpha), "png", 90)


def as_pixels(files: Sequence[bytes], max_pixels: int) -> tuple[bytes, tuple[int, ...]]:
    """Decode pictures of one size to the data and the shape [N, H, W, C] of a UINT8 tensor."""
    arrays = []
    for file in files:
        picture = codec.decode(file, max_pixels=max_pixels)
        arrays.append(picture.pixels if picture.alpha is None else np.dstack((picture.pixels, picture.alpha)))
    whole = np.stack(arrays)
    return whole.tobytes(), whole.shape


def as_elements(files: Sequence[bytes]) -> bytes:
    """Return files as the binary data of a BYTES tensor."""
    return b"".join(part for file in files for part in (_LENGTH.pack(len(file)), file))


def _picture_shape(shape: list[int], nbytes: int, name: str, max_pixels: int) -> tuple[int, ...]:
    """Return (H, W, C) of a shape [1, H, W, C] or [1, H, W], after checking it against the data's size."""
    height, width, channels = (*shape[1:], 1)[:3] if len(shape) in (3, 4) else (0, 0, 0)
    if shape[:1] != [1] or min(height, width) < 1 or channels not in _CHANNELS:
        raise InvalidRequest(f"input {name[:80]!r}: UINT8 has the shape [1, H, W, C], C = 1, 3 or 4")
    if height * width > max_pixels:
        raise TooLarge(f"input {name[:80]!r} has over {max_pixels} pixels; send a smaller one", code="too_many_pixels")
    if math.prod((height, width, channels)) != nbytes:
        raise InvalidRequest(
            f"input {name[:80]!r}: its shape needs {height * width * channels} bytes; {nbytes} were sent"
        )
    return height, width, channels
