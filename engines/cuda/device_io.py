"""An engine's own memory on a GPU: every input and the output, once, for the largest batch that it takes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, closing

import numpy as np

from engines.base import Array, BatchShape, Feed
from engines.cuda.api import Cuda, DeviceBuffer, PinnedBuffer, Stream
from engines.errors import EngineFailed
from engines.manifest import Manifest, TensorSpec
from engines.tensors import tensor_shape


class DeviceIo:
    """Device memory at addresses that stay, dense, and page-locked memory to fill and read it through.

    Args:
        cuda: the device.
        manifest: of the model.
        most: the largest batch.

    Raises:
        EngineOutOfMemory: there is no room for it.
    """

    def __init__(self, cuda: Cuda, manifest: Manifest, most: BatchShape) -> None:
        self._cuda = cuda
        self._manifest = manifest
        self._resources = ExitStack()
        try:
            self._buffers: dict[str, tuple[DeviceBuffer, PinnedBuffer]] = {
                spec.name: self._allocate(spec, most) for spec in (*manifest.inputs, manifest.output)
            }
        except BaseException:
            self.close()
            raise
        self.addresses: dict[str, int] = {name: device.address for name, (device, _) in self._buffers.items()}

    def infer(self, feed: Feed, shape: BatchShape, stream: Stream, enqueue: Callable[[], None]) -> Array:
        """Copy a batch in, compute it, copy it out and wait for it.

        Args:
            feed: host arrays that obey the manifest.
            shape: of the feed.
            stream: where the copies are queued.
            enqueue: queues the work between them on the same stream.

        Returns:
            The output in page-locked memory, which the next batch overwrites.

        Raises:
            EngineFailed: the batch is larger than the memory.
        """
        self._cuda.use()  # the thread that loads an engine is not the one that runs it
        output_shape = tensor_shape(self._manifest.output, shape)
        self._require_fit("output", output_shape, self._manifest.output.dtype)
        for name, array in feed.items():
            self._require_fit(name, array.shape, str(array.dtype))
            device, pinned = self._buffers[name]
            np.copyto(pinned.array(array.shape, str(array.dtype)), array)
            self._cuda.copy_in(device, pinned, array.nbytes, stream)
        enqueue()
        device, pinned = self._buffers["output"]
        output = pinned.array(output_shape, self._manifest.output.dtype)
        self._cuda.copy_out(pinned, device, output.nbytes, stream)
        stream.synchronise()
        return output

    def close(self) -> None:
        """Free the memory; twice is allowed."""
        self._resources.close()

    def _require_fit(self, name: str, shape: tuple[int, ...], dtype: str) -> None:
        nbytes, room = int(np.prod(shape)) * np.dtype(dtype).itemsize, self._buffers[name][0].nbytes
        if nbytes > room:
            raise EngineFailed(
                f"{self._manifest.key}: {name} of {shape} takes {nbytes} bytes, the engine was opened for {room}"
            )

    def _allocate(self, spec: TensorSpec, most: BatchShape) -> tuple[DeviceBuffer, PinnedBuffer]:
        nbytes = int(np.prod(tensor_shape(spec, most))) * np.dtype(spec.dtype).itemsize
        device = self._resources.enter_context(closing(self._cuda.device_buffer(nbytes)))
        return device, self._resources.enter_context(closing(self._cuda.pinned_buffer(nbytes)))
