from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from service.core.batch_rows import Crop
from service.core.picture_work import JpegPlanes, PastePart, PictureWork
from service.core.pictures import Box, Size
from service.devices.memory_layout import ArrayRegion
from service.processes.shared.messages import PictureFacts
from service.processes.shared.picture_slots import facts_of, lay_out_picture, read_picture, write_picture


class PlainMemory:
    """Memory of this process."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self._bytes = bytearray(nbytes)

    def array(self, offset: int, part: ArrayRegion) -> NDArray[Any]:
        array: NDArray[Any] = np.ndarray(part.shape, part.dtype, self._bytes, offset + part.offset)
        return array


@pytest.fixture
def work() -> PictureWork:
    draw = np.random.default_rng(1)
    mask = draw.integers(0, 2, (40, 60), np.uint8)
    box = Box(5, 6, 25, 36)
    crops = (Crop(box, Size(20, 30), Size(32, 32), None, 1, 2), Crop(Box(0, 0, 40, 60), Size(64, 64), Size(64, 64)))
    hole = draw.integers(0, 2, box.size).astype(np.bool_)
    return PictureWork(b"\xff\xd8file", JpegPlanes(60, 40, 2, 2), 6, mask, crops, (PastePart(box, hole, 4), None), True)


def sent(facts: PictureFacts) -> PictureFacts:
    return msgspec.msgpack.decode(msgspec.msgpack.encode(facts), type=PictureFacts)


def test_a_picture_is_read_as_it_was_written_beside_others(work: PictureWork) -> None:
    facts = facts_of(work)
    layout = lay_out_picture(facts)
    memory = PlainMemory(2 * layout.nbytes)
    write_picture(memory, layout.nbytes, layout, work)
    read, arrays = read_picture(memory, layout.nbytes, sent(facts), locked=True)
    assert bytes(np.asarray(read.file)) == work.file
    assert (read.planes, read.orientation, read.crops, read.symmetric) == (
        work.planes,
        work.orientation,
        work.crops,
        work.symmetric,
    )
    np.testing.assert_array_equal(read.mask, work.mask)
    (ours, nothing), (theirs, _) = read.parts, work.parts
    assert ours is not None
    assert theirs is not None
    assert nothing is None
    assert (ours.part, ours.seam) == (theirs.part, theirs.seam)
    np.testing.assert_array_equal(ours.hole, theirs.hole)
    assert [tile.shape for tile in (*arrays.tiles, *arrays.fills)] == [(32, 32, 3), (64, 64, 3)] * 2
    assert [mask.shape for mask in arrays.masks] == [(32, 32), (64, 64)]
    assert (arrays.result.shape, arrays.locked) == ((40, 60, 3), True)


def test_arrays_of_a_slot_do_not_overlap(work: PictureWork) -> None:
    facts = facts_of(work)
    layout = lay_out_picture(facts)
    memory = PlainMemory(layout.nbytes)
    write_picture(memory, 0, layout, work)
    read, arrays = read_picture(memory, 0, facts, locked=False)
    written = [*arrays.tiles, *arrays.masks, *arrays.fills, arrays.result]
    for number, array in enumerate(written):
        array[...] = number
    assert all((array == number).all() for number, array in enumerate(written))
    assert bytes(np.asarray(read.file)) == work.file
    np.testing.assert_array_equal(read.mask, work.mask)


def test_a_slot_outside_the_memory_is_refused(work: PictureWork) -> None:
    facts = facts_of(work)
    memory = PlainMemory(lay_out_picture(facts).nbytes)
    with pytest.raises(ValueError, match="is not within"):
        read_picture(memory, 4096, facts, locked=False)
