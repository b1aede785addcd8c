"""The faults that are injected into the running service; each ends by itself and is then undone."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import psutil

from benchmarks.harness.processes import Server
from benchmarks.harness.raw_http import Client, encode
from engines.fake import FAULT_FILE
from tests.serving.ports import free_port

Mood = Literal["good", "slow", "failing", "gone"]
Role = Literal["front end", "engine"]


@dataclass(slots=True)
class Target:
    """The service that faults are injected into."""

    server: Server
    folder: Path
    request: bytes
    rng: random.Random
    proxy: Proxy | None = None
    disk: Path | None = None
    """A small file system for the results."""
    workers: int = 0

    @property
    def fault_file(self) -> Path:
        """The file that the fake engine reads faults from; `folder / "cache"` is the server's `engine_cache_dir`."""
        return self.folder / "cache" / FAULT_FILE

    def client(self) -> Client:
        return self.server.client()

    def processes(self, role: Role) -> list[psutil.Process]:
        """Return the processes of a role; front ends are the children that listen on the port."""
        found = []
        for child in psutil.Process(self.server.process.pid).children():
            with contextlib.suppress(psutil.NoSuchProcess):
                listens = any(c.laddr and c.laddr[1] == self.server.port for c in child.net_connections("inet"))
                if listens == (role == "front end"):
                    found.append(child)
        return found


Fault = Callable[[Target], Awaitable[None]]


def engine(word: str) -> Fault:
    """Make the next batch raise, kill its engine, hang, or return NaN."""

    async def inject(target: Target) -> None:
        target.fault_file.parent.mkdir(exist_ok=True)  # the fake engine makes no folder of engines
        replacement = target.fault_file.with_suffix(".new")
        replacement.write_text(word)
        replacement.replace(target.fault_file)

    return inject


def kill(role: Role) -> Fault:
    """Kill a front end or an engine process."""

    async def inject(target: Target) -> None:
        victim = target.rng.choice(target.processes(role))  # raises IndexError if there is no such process
        victim.send_signal(signal.SIGKILL)

    return inject


async def stop_and_continue(target: Target) -> None:
    """Stop an engine process for two seconds."""
    stopped = target.processes("engine")
    for process in stopped:
        process.suspend()
    await asyncio.sleep(2)
    with contextlib.suppress(psutil.NoSuchProcess):  # the supervisor has replaced it as hung
        for process in stopped:
            process.resume()


async def fill_disk(target: Target) -> None:
    """Leave no space on the disk for two seconds."""
    assert target.disk is not None
    ballast = target.disk / "ballast"
    with contextlib.suppress(OSError), ballast.open("wb") as file:
        while True:
            file.write(b"\0" * 65_536)
            file.flush()
    await asyncio.sleep(2)
    ballast.unlink()


def storage(mood: Mood) -> Fault:
    """Make the S3 endpoint slow, failing or unreachable for two seconds."""

    async def inject(target: Target) -> None:
        assert target.proxy is not None
        target.proxy.mood = mood
        target.proxy.drop()
        await asyncio.sleep(2)
        target.proxy.mood = "good"
        target.proxy.drop()

    return inject


async def tear(target: Target) -> None:
    """Abort connections in the middle of a header, in the middle of a body, and right after the whole request."""
    client = target.client()
    for length in (20, len(target.request) // 2, len(target.request) - 1, len(target.request)) * 8:
        connection = await client.connection(fresh=True)
        connection.transport.write(target.request[:length])
        await asyncio.sleep(0.005)
        connection.transport.abort()


async def hang_up(target: Target) -> None:
    """Disconnect sixty clients at once while they wait."""
    client = target.client()
    connections = [await client.connection(fresh=True) for _ in range(60)]
    for connection in connections:
        connection.transport.write(target.request)
    await asyncio.sleep(0.03)
    for connection in connections:
        connection.transport.abort()


async def stall(target: Target) -> None:
    """Send half of a body and then nothing, for two seconds."""
    client = target.client()
    connections = [await client.connection(fresh=True) for _ in range(30)]
    for connection in connections:
        connection.transport.write(target.request[: len(target.request) // 2])
    await asyncio.sleep(2)
    for connection in connections:
        connection.transport.abort()


async def drip(target: Target) -> None:
    """Send a body in pieces of 100 bytes; it must still be answered."""
    connection = await target.client().connection(fresh=True)
    reply = connection.begin()
    for begin in range(0, len(target.request), 100):
        connection.transport.write(target.request[begin : begin + 100])
        await asyncio.sleep(0.01)
    await asyncio.wait_for(reply, 20)
    connection.transport.abort()


async def garbage(target: Target) -> None:
    """Send invalid HTTP, multipart and pictures."""
    client = target.client()
    for data in (b"\x16\x03\x01" * 50, b"GET / HTTP/9.9\r\n\r\n", encode("/v1/inpaint", "text/plain", b"x" * 1000)):
        connection = await client.connection(fresh=True)
        connection.transport.write(data)
        await asyncio.sleep(0.02)
        connection.transport.abort()


async def reload(target: Target) -> None:
    """Publish the model again, so that its engines are replaced."""
    manifest = target.folder / "models/photos/1/manifest.json"
    text = manifest.read_text()
    replacement = manifest.with_suffix(".new")
    replacement.write_text(text if text.endswith(" ") else text + " ")
    replacement.replace(manifest)


ALWAYS: dict[str, Fault] = {
    "the engine raises": engine("raise"),
    "the engine dies": engine("die"),
    "the engine gives NaN": engine("nan"),
    "the engine hangs": engine("hang"),
    "connections are torn": tear,
    "60 clients hang up": hang_up,
    "30 bodies stall": stall,
    "a body drips": drip,
    "garbage": garbage,
    "the model is replaced": reload,
}
WITH_PROCESSES: dict[str, Fault] = {
    "a front end is killed": kill("front end"),
    "an engine process is killed": kill("engine"),
    "an engine process stands still": stop_and_continue,
}
WITH_DISK: dict[str, Fault] = {"the disk is full": fill_disk}
WITH_STORAGE: dict[str, Fault] = {
    "S3 is slow": storage("slow"),
    "S3 fails": storage("failing"),
    "S3 is gone": storage("gone"),
}


@dataclass(slots=True)
class Proxy:
    """A TCP proxy before the S3 server that can be slow, failing or unreachable."""

    port: int
    upstream: int
    mood: Mood = "good"
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)

    def drop(self) -> None:
        """Close every connection, so that the new behaviour applies to all."""
        for writer in self._writers:
            writer.close()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            if self.mood == "gone":
                return
            if self.mood == "failing":
                await reader.read(65_536)
                writer.write(b"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                await writer.drain()
                return
            up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self.upstream)
            await asyncio.gather(self._pump(reader, up_writer), self._pump(up_reader, writer))
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65_536):
                if self.mood == "slow":
                    await asyncio.sleep(0.3)
                writer.write(data)
                await writer.drain()
        except (OSError, RuntimeError):  # uvloop raises RuntimeError if the other side was closed
            pass
        finally:
            writer.close()


@contextlib.asynccontextmanager
async def s3_server(rclone: str, folder: Path) -> AsyncIterator[Proxy]:
    """Start an S3 server (rclone's) behind a proxy, with a bucket `results`."""
    (folder / "results").mkdir(parents=True)
    proxy = Proxy(free_port(), free_port())
    address = f"127.0.0.1:{proxy.upstream}"
    command = [rclone, "serve", "s3", "--addr", address, "--auth-key", "chaos-key,chaos-secret", str(folder)]
    environ = {**os.environ, "RCLONE_CONFIG": "", "HOME": str(folder)}
    with (folder.parent / "rclone.log").open("wb") as log:
        upstream = subprocess.Popen([*command, "--vfs-cache-mode", "off"], stderr=log, env=environ)  # noqa: ASYNC220
    listener = await asyncio.start_server(proxy.serve, "127.0.0.1", proxy.port)
    try:
        yield proxy
    finally:
        listener.close()
        proxy.drop()
        upstream.terminate()
        upstream.wait()


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[Path | None]:
    """Mount a tmpfs of 256 MB; yields None if that is not allowed."""
    folder.mkdir(parents=True)
    command = ["mount", "-t", "tmpfs", "-o", "size=256m", "tmpfs", str(folder)]
    try:
        mounted = os.geteuid() == 0 and subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        mounted = False
    try:
        yield folder if mounted else None
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(folder)], check=False)
