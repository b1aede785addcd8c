"""The real command as a subprocess, and requests to it."""

from __future__ import annotations

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


async def in_flight(session: aiohttp.ClientSession, wanted: int) -> None:
    """Wait until this number of requests is in flight."""

    async def answers() -> bool:
        async with session.get("/metrics") as response:
            return bool(re.search(rf"^retouch_requests_in_flight {wanted}\b", await response.text(), re.MULTILINE))

    await until_it_answers(answers)


async def post(session: aiohttp.ClientSession, files: Files) -> Answer:
    data = aiohttp.FormData()
    for name, (filename, body, media_type) in files.items():
        data.add_field(name, body, filename=filename, content_type=media_type)
    async with session.post("/v1/inpaint", data=data) as response:
        await response.read()
        if response.status == 200:
            return 200, response.headers["Location"]
        return response.status, (await response.json())["code"]
