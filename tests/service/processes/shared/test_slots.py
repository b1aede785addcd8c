"""Slots: the same layout on both sides, allocated in order, free again when no reference is left."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import threading
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from engines.manifest import Manifest
from service.core.errors import ServiceError
from service.processes.shared.slots import PAGE, Arena, FreeList, Memory, SlotLayouts
from tests.serving.waiting import until


def test_the_free_list_gives_back_what_was_taken_whatever_the_order() -> None:
    rng, free, taken = random.Random(1), FreeList(1 << 20), dict[int, int]()
    for _ in range(3000):
        if taken and rng.random() < 0.5:
            start = rng.choice(list(taken))
            free.free(start, taken.pop(start))
        else:
            nbytes = rng.randrange(1, 40) * PAGE
            start = free.allocate(nbytes)  # type: ignore[assignment]
            if start is not None:
                ranges = sorted([*taken.items(), (start, nbytes)])
                assert all(a + n <= b for (a, n), (b, _) in pairwise(ranges)), "two overlap"
                assert start + nbytes <= 1 << 20
                taken[start] = nbytes
        assert free.nbytes == (1 << 20) - sum(taken.values())
    for start, nbytes in taken.items():
        free.free(start, nbytes)
    assert free.allocate(1 << 20) == 0


def test_a_slot_holds_every_input_and_the_tile_apart(fake_manifest: Callable[..., Manifest]) -> None:
    layout = SlotLayouts(fake_manifest("photos", "inpaint")).of(64, 96, 1)
    assert [(part.name, part.shape, part.dtype) for part in layout.inputs] == [
        ("image", (64, 96, 3), "uint8"),
        ("mask", (64, 96), "uint8"),
    ]
    assert (layout.output.shape, layout.output.dtype) == ((64, 96, 3), "uint8")
    parts = sorted((*layout.inputs, layout.output), key=lambda part: part.offset)
    assert all(a.offset + a.nbytes <= b.offset for a, b in pairwise(parts))
    assert parts[-1].offset + parts[-1].nbytes <= layout.nbytes
    assert layout.nbytes % PAGE == 0


def test_a_slot_of_a_model_with_several_latents_a_row_has_room_for_all_tiles(
    fake_manifest: Callable[..., Manifest],
) -> None:
    pixels = ["batch", "samples", 3, "height", "width"]
    latent = {"name": "latent", "dtype": "float32", "shape": ["batch", "samples", 16]}
    image = {"name": "image", "dtype": "float32", "shape": ["batch", 3, "height", "width"]}
    output = {"name": "output", "dtype": "float32", "shape": pixels}
    manifest = fake_manifest("many", "inpaint", inputs=[image, latent], output=output)
    layout = SlotLayouts(manifest).of(32, 32, 5)
    assert layout.inputs[1].shape == (5, 16)
    assert layout.output.shape == (5, 32, 32, 3)


@pytest.fixture
def layout(fake_manifest: Callable[..., Manifest]) -> Any:
    return SlotLayouts(fake_manifest("photos", "inpaint")).of(64, 64, 1)


async def settled() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_what_one_side_writes_the_other_reads_without_a_copy(layout: Any) -> None:
    arena = Arena(1 << 20)
    theirs = Memory(os.dup(arena.descriptor), 1 << 20)
    arena.close_descriptor()
    slot = await arena.allocate(layout.nbytes)
    image = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    slot.write(layout, {"image": image, "mask": np.ones((64, 64), np.uint8)})
    sample = theirs.sample(slot.offset, layout, (64, 64, 1), locked=False)
    assert (sample.arrays["image"] == image).all()
    assert sample.arrays["mask"].all()
    assert sample.into is not None
    sample.into[...] = 255 - image
    assert (slot.read(layout.output) == 255 - image).all()


async def test_a_slot_is_free_when_the_last_view_of_it_is_gone_on_any_thread(layout: Any) -> None:
    arena = Arena(1 << 20)
    arena.close_descriptor()
    slot = await arena.allocate(layout.nbytes)
    view = slot.read(layout.output)[10:20, :, 0]
    del slot
    gc.collect()
    await settled()
    assert arena.free_bytes == (1 << 20) - layout.nbytes
    kept = [view]
    del view
    thread = threading.Thread(target=kept.clear)
    thread.start()
    thread.join()
    await until(lambda: arena.free_bytes == 1 << 20)


async def test_waiting_allocations_are_served_in_order(layout: Any) -> None:
    arena = Arena(2 * layout.nbytes)
    arena.close_descriptor()
    held = [await arena.allocate(layout.nbytes) for _ in range(2)]
    order: list[str] = []

    async def wait(name: str, nbytes: int) -> None:
        slot = await arena.allocate(nbytes)
        order.append(name)
        del slot

    large = asyncio.create_task(wait("large", 2 * layout.nbytes))
    small = asyncio.create_task(wait("small", layout.nbytes))
    leaver = asyncio.create_task(wait("leaver", layout.nbytes))
    await settled()
    held.pop()
    await settled()
    assert order == [], "the small one may not pass the large one, which would never have its turn"
    leaver.cancel()
    held.clear()
    await asyncio.wait({large, small, leaver})
    assert order == ["large", "small"]
    await settled()
    assert arena.free_bytes == 2 * layout.nbytes


async def test_a_tile_that_no_arena_could_hold_is_refused_at_once() -> None:
    arena = Arena(PAGE)
    arena.close_descriptor()
    with pytest.raises(ServiceError, match="too large for --workers"):
        await arena.allocate(2 * PAGE)


async def test_a_slot_outside_the_memory_is_refused(layout: Any) -> None:
    arena = Arena(layout.nbytes)
    memory = Memory(arena.descriptor, layout.nbytes)
    arena.close_descriptor()
    for offset in (-PAGE, PAGE):
        with pytest.raises(ValueError, match="not within"):
            memory.sample(offset, layout, (64, 64, 1), locked=False)
