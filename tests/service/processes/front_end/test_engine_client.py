"""The client of one engine process, in situations that a pair of processes does not reproduce reliably."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import time
import weakref
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import uvloop

from engines.base import Feed
from engines.errors import EngineFailed
from engines.fake import FakeEngine, Fault, Raise
from engines.manifest import Manifest
from service.core.batch_rows import Sample
from service.core.errors import InferenceFailed
from service.core.pictures import Size
from service.lifecycle.background import run_in_background
from service.processes.front_end.backend import RemoteModels
from service.processes.front_end.engine_client import EngineClient
from service.processes.shared.channel import greet, receive_greeting
from service.processes.shared.messages import Hello, Message, Offer, Readiness, Served, Status, encode
from tests.serving.waiting import until


def test_a_change_is_announced_after_the_connection_is_ready_even_if_the_engine_process_sends_first(
    short_folder: Path,
) -> None:
    """uvloop delivers received data before it wakes the task that awaits the connection."""
    said = encode([Readiness(ready=True, loaded=True)])
    with ExitStack() as stack:
        listener = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        listener.bind(str(short_folder / "engine.sock"))
        listener.listen()

        def greet_one_who_answers_at_once(path: Path, hello: Hello, slots_fd: int) -> socket.socket:
            front_end = greet(path, hello, slots_fd)
            engine = stack.enter_context(listener.accept()[0])
            _, slots = receive_greeting(engine)
            os.close(slots)
            engine.sendall(struct.pack("<I", len(said)) + said)
            return front_end

        seen: list[bool] = []

        async def connect() -> None:
            client = EngineClient(
                short_folder / "engine.sock",
                0,
                2**16,
                lambda: seen.append(client.ready),
                greet_one_who_answers_at_once,
            )
            keeping = asyncio.create_task(client.keep_connected())
            await until(lambda: bool(seen))
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)

        uvloop.run(connect())
    assert seen[0]


async def test_a_lease_that_outlives_its_engine_process_is_not_released_in_the_next(
    short_folder: Path, fake_manifest: Callable[..., Manifest]
) -> None:
    """The next process numbers its models itself: the message would release another model, while it is used."""
    manifest = fake_manifest("photos", "inpaint")
    status = Status("photos", 1, "ready", manifest.model_dump_json(), "", "fake", "fp32", "cpu")

    def send(engine: socket.socket, *messages: Message) -> None:
        said = encode(list(messages))
        engine.sendall(struct.pack("<I", len(said)) + said)

    def accept() -> socket.socket:
        engine = stack.enter_context(listener.accept()[0])
        os.close(receive_greeting(engine)[1])
        return engine

    with ExitStack() as stack:
        listener = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        listener.bind(str(short_folder / "engine.sock"))
        listener.listen()
        client = EngineClient(short_folder / "engine.sock", 0, 2**16, lambda: None)
        async with run_in_background(client.keep_connected()):
            first = await asyncio.to_thread(accept)
            send(first, Served([Offer(1, "photos", 1, "fake", "fp32")], [status]), Readiness(ready=True, loaded=True))
            await until(lambda: client.ready)
            with RemoteModels([client]).lease("photos"):
                send(first, Served([], []))  # another version has replaced the model
                await until(lambda: not client.models[1].offered)
                first.close()
                second = await asyncio.to_thread(accept)
            await asyncio.sleep(0.05)
            second.setblocking(False)
            with pytest.raises(BlockingIOError):
                second.recv(1)
            assert not client.models


@pytest.mark.usefixtures("no_collections")
async def test_a_sample_that_failed_is_freed_without_a_garbage_collection(pair: Callable[..., Any]) -> None:
    def fault(feed: Feed) -> Fault | None:
        return Raise(EngineFailed("no memory")) if feed["image"].any() else None  # the warm-up's pixels are zeros

    async with pair() as both, both.engine(fake=lambda manifest: FakeEngine(manifest, fault=fault)):
        await until(both.serves_all)
        with both.front.models.lease("photos") as model:
            image, mask = np.ones((64, 64, 3), np.uint8), np.eye(64, dtype=np.uint8)
            one = Sample(Size(64, 64), {"image": image, "mask": mask})
            del image
            watched = weakref.ref(one.arrays["image"])
            asked = asyncio.ensure_future(both.front.batcher.submit(one, model, time.monotonic() + 20))
            await asyncio.wait({asked})
            assert isinstance(asked.exception(), InferenceFailed)
            del one, asked
            await until(lambda: watched() is None, 5)
