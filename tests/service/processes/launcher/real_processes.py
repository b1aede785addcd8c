"""A server of several real processes, and clients for it."""

from __future__ import annotations

import asyncio
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import psutil

from tests.serving.served_process import ServedProcess
from tests.serving.waiting import until_it_answers, wait_until

Files = dict[str, tuple[str, bytes, str]]


@dataclass
class Server:
    """A launcher and its processes."""

    served: ServedProcess
    temporary: Path

    @property
    def launcher(self) -> subprocess.Popen[bytes]:
        return self.served.process

    @property
    def log(self) -> str:
        return self.served.log

    def lines(self, event: str) -> list[dict[str, object]]:
        return self.served.lines(event)

    @property
    def url(self) -> str:
        wait_until(lambda: self.lines("serving") or self.launcher.poll() is not None, 120)
        return str(self.lines("serving")[0]["url"])

    def pid(self, name: str) -> int:
        """Process id of the latest process with this name."""
        return [int(str(line["pid"])) for line in self.lines("process started") if line["process"] == name][-1]

    def processes(self) -> list[psutil.Process]:
        return psutil.Process(self.launcher.pid).children(recursive=True)

    @property
    def run_directories(self) -> list[Path]:
        return list(self.temporary.glob("retouch-run-*"))


async def ready(server: Server, front_ends: int = 2) -> None:
    """Wait until `front_ends` front ends have begun to listen, and twelve new connections in a row find them ready."""

    def begun() -> bool:
        assert server.launcher.poll() is None, server.log
        return len(server.lines("serving")) >= front_ends

    await asyncio.to_thread(wait_until, begun, 120)
    url, good = server.url, 0

    async def answers() -> bool:
        nonlocal good
        try:
            async with aiohttp.ClientSession(url) as session, session.get("/readyz") as response:
                good = good + 1 if response.status == 200 else 0
        except aiohttp.ClientError:
            good = 0
        return good >= 12

    await until_it_answers(answers)


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
    """Wait until `count` requests are in flight at all front ends together; returns the metrics that show it."""
    metrics = ""

    async def inside() -> bool:
        nonlocal metrics
        metrics = await read(server.url, "/metrics")
        return sample_of(metrics, "retouch_requests_in_flight") == count

    await until_it_answers(inside)
    return metrics
