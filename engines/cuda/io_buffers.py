"""GPU memory for an engine's inputs and output, allocated once for the largest batch."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, closing

import numpy as np

from engines.base import Array, BatchShape, Feed
from engines.cuda.api import Cuda, DeviceBuffer, PinnedBuffer, Stream
from engines.errors import EngineFailed
from engines.manifest import Manifest, TensorSpec
from engines.tensors import tensor_shape


class IoBuffers:
    """Device buffers at fixed addresses for the inputs and the output, and page-locked host buffers for copies.

    Args:
        cuda: the device.
        manifest: the model's manifest.
        max_shape: the shape of the largest batch.

    Raises:
        EngineOutOfMemory: the device has too little free memory.
    """

    def __init__(self, cuda: Cuda, manifest: Manifest, max_shape: BatchShape) -> None:
        self._cuda = cuda
        self._manifest = manifest
        self._resources = ExitStack()
        try:
            self._buffers: dict[str, tuple[DeviceBuffer, PinnedBuffer]] = {
                spec.name: self._allocate(spec, max_shape) for spec in (*manifest.inputs, manifest.output)
            }
        except BaseException:
            self.close()
            raise
        self.addresses: dict[str, int] = {name: device.address for name, (device, _) in self._buffers.items()}

    def infer(self, feed: Feed, shape: BatchShape, stream: Stream, enqueue: Callable[[], None]) -> Array:
        """Copy a batch in, compute it, copy it out and wait for it.

        Args:
            feed: host arrays that obey the manifest.
            shape: the shape of the feed.
            stream: the stream for the copies.
            enqueue: queues the computation on the same stream, between the copies.

        Returns:
            The output in page-locked memory, which the next batch overwrites.

        Raises:
            EngineFailed: the batch does not fit into the buffers.
        """
        self._cuda.make_current()  # an engine is loaded by another thread than the one that runs it
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
        """Free the memory; a second call does nothing."""
        self._resources.close()

    def _require_fit(self, name: str, shape: tuple[int, ...], dtype: str) -> None:
        nbytes, room = int(np.prod(shape)) * np.dtype(dtype).itemsize, self._buffers[name][0].nbytes
        if nbytes > room:
            raise EngineFailed(
                f"{self._manifest.key}: {name} of {shape} takes {nbytes} bytes, the engine was opened for {room}"
            )

    def _allocate(self, spec: TensorSpec, max_shape: BatchShape) -> tuple[DeviceBuffer, PinnedBuffer]:
        nbytes = int(np.prod(tensor_shape(spec, max_shape))) * np.dtype(spec.dtype).itemsize
        device = self._resources.enter_context(closing(self._cuda.device_buffer(nbytes)))
        return device, self._resources.enter_context(closing(self._cuda.pinned_buffer(nbytes)))
