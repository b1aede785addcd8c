"""A server of several real processes, and clients that load it."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import psutil

from tests.serving.waiting import wait_until

Files = dict[str, tuple[str, bytes, str]]


@dataclass
class Server:
    """A launcher and its processes."""

    launcher: subprocess.Popen[bytes]
    log: Path
    temporary: Path

    def lines(self, event: str) -> list[dict[str, object]]:
        whole, _, _ = self.log.read_text().rpartition("\n")  # the last line may be half written
        found = [json.loads(line) for line in whole.splitlines() if line.startswith("{")]
        return [line for line in found if line.get("event") == event]

    @property
    def url(self) -> str:
        wait_until(lambda: self.lines("serving") or self.launcher.poll() is not None, 120)
        return str(self.lines("serving")[0]["url"])

    def pid(self, name: str) -> int:
        """Of the process that has that place now."""
        return [int(str(line["pid"])) for line in self.lines("process started") if line["process"] == name][-1]

    def processes(self) -> list[psutil.Process]:
        return psutil.Process(self.launcher.pid).children(recursive=True)

    @property
    def run_directories(self) -> list[Path]:
        return list(self.temporary.glob("retouch-run-*"))


async def ready(server: Server, front_ends: int = 2) -> None:
    """Wait until so many front ends have begun to listen since the start, and fresh connections find them ready."""

    def begun() -> bool:
        assert server.launcher.poll() is None, server.log.read_text()
        return len(server.lines("serving")) >= front_ends

    await asyncio.to_thread(wait_until, begun, 120)
    url, good, end = server.url, 0, time.monotonic() + 40
    while good < 12:
        assert time.monotonic() < end, server.log.read_text()[-3000:]
        try:
            async with aiohttp.ClientSession(url) as session, session.get("/readyz") as response:
                good = good + 1 if response.status == 200 else 0
        except aiohttp.ClientError:
            good = 0
        if not good:
            await asyncio.sleep(0.05)


def form(files: Files) -> aiohttp.FormData:
    data = aiohttp.FormData()
    for name, (filename, body, media_type) in files.items():
        data.add_field(name, body, filename=filename, content_type=media_type)
    return data


def sample_of(metrics: str, pattern: str) -> float:
    return sum(float(value) for value in re.findall(pattern + r" ([0-9.e+-]+)$", metrics, re.MULTILINE))


async def read(url: str, path: str) -> str:
    async with aiohttp.ClientSession(url) as session, session.get(path) as response:
        return await response.text()


async def in_flight(server: Server, count: int) -> str:
    """Wait until so many requests are inside at all front ends; the metrics that say so."""
    end = time.monotonic() + 20
    while sample_of(metrics := await read(server.url, "/metrics"), "retouch_requests_in_flight") != count:
        assert time.monotonic() < end, metrics
        await asyncio.sleep(0.01)
    return metrics
