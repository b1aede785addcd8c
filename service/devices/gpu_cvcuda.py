"""CV-CUDA operators on our own device memory: every call names its stream and output, so CV-CUDA allocates nothing.

CV-CUDA wraps raw device memory through `__cuda_array_interface__`. Wrapped tensors are cached, because wrapping takes
longer than most kernels.
"""

from __future__ import annotations

import importlib
from collections import OrderedDict
from typing import Any, NamedTuple

from engines.cuda.api import Stream
from engines.errors import EngineUnavailable

_TYPES = {"uint8": "|u1", "float32": "<f4", "int32": "<i4"}
_NO_SYNCHRONISATION = -1
"""Value of `stream` in the array interface: the consumer must not synchronise; the caller orders streams."""


class TensorView(NamedTuple):
    """Dense device memory seen as a tensor; `layout` as in `NHWC`."""

    address: int
    shape: tuple[int, ...]
    dtype: str
    layout: str = "NHWC"


class _CudaArrayInterface:
    """A view in the form that CV-CUDA wraps: an object with `__cuda_array_interface__`."""

    def __init__(self, view: TensorView) -> None:
        self.__cuda_array_interface__ = {
            "shape": view.shape,
            "typestr": _TYPES[view.dtype],
            "data": (view.address, False),
            "strides": None,
            "version": 3,
            "stream": _NO_SYNCHRONISATION,
        }


class GpuPixels:
    """Conversions of pixels on a GPU.

    Args:
        library: the module `cvcuda`, or an object with the same functions.
    """

    max_tensors = 2048
    """Size of the cache of wrapped tensors (LRU). An entry is an address and a shape; it holds no device memory."""

    def __init__(self, library: Any) -> None:
        self._library = library
        self._tensors: OrderedDict[TensorView, Any] = OrderedDict()
        self._streams: dict[int, Any] = {}

    def convert(
        self, target: TensorView, source: TensorView, stream: Stream, scale: float = 1.0, offset: float = 0.0
    ) -> None:
        """Start `target = source × scale + offset`; integers are rounded to even and saturated."""
        self._library.convertto_into(
            self._tensor(target), self._tensor(source), scale, offset, stream=self._stream(stream)
        )

    def reformat(self, target: TensorView, source: TensorView, stream: Stream) -> None:
        """Start copying between NHWC and NCHW."""
        self._library.reformat_into(self._tensor(target), self._tensor(source), stream=self._stream(stream))

    def histogram(self, target: TensorView, source: TensorView, stream: Stream) -> None:
        """Start a histogram of each one-channel picture: N×H×W×1 to N×256×1; `target` must be zeroed before."""
        self._library.histogram_into(self._tensor(target), self._tensor(source), stream=self._stream(stream))

    def _tensor(self, view: TensorView) -> Any:
        tensor = self._tensors.get(view)
        if tensor is None:
            tensor = self._tensors[view] = self._library.as_tensor(_CudaArrayInterface(view), view.layout)
            if len(self._tensors) > self.max_tensors:
                self._tensors.popitem(last=False)
        else:
            self._tensors.move_to_end(view)
        return tensor

    def _stream(self, stream: Stream) -> Any:
        handle = int(stream.handle)
        wrapped = self._streams.get(handle)
        if wrapped is None:
            wrapped = self._streams[handle] = self._library.as_stream(handle)
        return wrapped


def load_cvcuda() -> Any:
    """Import the module `cvcuda`.

    Raises:
        EngineUnavailable: the module is not installed, or cannot be loaded.
    """
    try:
        return importlib.import_module("cvcuda")
    except ImportError as error:
        raise EngineUnavailable(f"CV-CUDA does not load ({error}); retouch install-gpu") from error
