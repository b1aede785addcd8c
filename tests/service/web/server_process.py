"""The real command as a subprocess, and requests to it."""

from __future__ import annotations

import asyncio
import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import aiohttp

from tests.serving.served_process import SERVE, ServedProcess
from tests.serving.waiting import until_it_answers

Files = dict[str, tuple[str, bytes, str]]


Answer = tuple[int, str]
"""The status code, and the result's address or the problem's code."""


@contextmanager
def process(
    models_dir: Path, folder: Path, command: Sequence[str] = SERVE, **settings: str
) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """Yield a listening server and its address; it is killed at the end of the block if it still runs."""
    served = ServedProcess(folder, command=command, models_dir=models_dir, **settings)
    try:
        served.start(ready=False)
        yield served.process, served.url
    finally:
        served.__exit__()


async def ready(session: aiohttp.ClientSession, wanted: int = 200) -> None:
    """Wait until /readyz answers with `status`."""

    async def answers() -> bool:
        async with session.get("/readyz") as response:
            return response.status == wanted

    await until_it_answers(answers)


async def are_in_flight(session: aiohttp.ClientSession, wanted: int) -> bool:
    """Return whether this number of requests is in flight."""
    async with session.get("/metrics") as response:
        return bool(re.search(rf"^retouch_requests_in_flight {wanted}\b", await response.text(), re.MULTILINE))


async def keep_in_flight(session: aiohttp.ClientSession, files: Files, wanted: int) -> list[asyncio.Task[Answer]]:
    """Send requests until `wanted` are in flight at once; a busy machine may answer some before the last arrives."""
    tasks: list[asyncio.Task[Answer]] = []

    async def inside() -> bool:
        missing = wanted - sum(not task.done() for task in tasks)
        tasks.extend(asyncio.create_task(post(session, files)) for _ in range(missing))
        return await are_in_flight(session, wanted)

    await until_it_answers(inside)
    return tasks


async def post(session: aiohttp.ClientSession, files: Files) -> Answer:
    data = aiohttp.FormData()
    for name, (filename, body, media_type) in files.items():
        data.add_field(name, body, filename=filename, content_type=media_type)
    async with session.post("/v1/inpaint", data=data) as response:
        await response.read()
        if response.status == 200:
            return 200, response.headers["Location"]
        return response.status, (await response.json())["code"]
