"""The parts of the GPU checks that need no GPU."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.gpu.checks import fill
from engines.errors import EngineOutOfMemory

MIB = 2**20


class Buffer:
    def __init__(self, gpu: PiecemealGpu, nbytes: int) -> None:
        self.gpu, self.nbytes = gpu, nbytes

    def close(self) -> None:
        self.gpu.pieces.append(self.nbytes)


class PiecemealGpu:
    """A GPU with fragmented memory: an allocation must fit into one free piece."""

    def __init__(self, *pieces: int) -> None:
        self.pieces = list(pieces)

    @property
    def free(self) -> int:
        return sum(self.pieces)

    def call_runtime(self, name: str) -> tuple[int, int]:
        assert name == "cudaMemGetInfo"
        return self.free, 1 << 40

    def device_buffer(self, nbytes: int) -> Any:
        piece = next((piece for piece in self.pieces if piece >= nbytes), None)
        if piece is None:
            raise EngineOutOfMemory("full")
        self.pieces.remove(piece)
        self.pieces.append(piece - nbytes)
        return Buffer(self, nbytes)


@pytest.mark.parametrize("pieces", [[4096], [3000, 1096], [2048, 1024, 512, 512]])
def test_memory_is_filled_up_to_the_room_that_is_left_though_it_is_not_to_be_had_at_once(pieces: list[int]) -> None:
    gpu = PiecemealGpu(*(piece * MIB for piece in pieces))
    with fill(gpu, 96 * MIB):
        assert 96 * MIB <= gpu.free < 104 * MIB
    assert gpu.free == 4096 * MIB
