"""The command in a process of its own, and requests to it."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import aiohttp

Files = dict[str, tuple[str, bytes, str]]


Answer = tuple[int, str]
"""Status; where the result is, or the problem's code."""


@contextmanager
def process(
    models_dir: Path,
    tmp_path: Path,
    command: Sequence[str] = (sys.executable, "-m", "retouch", "serve"),
    **settings: str,
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    environ = {
        **os.environ,
        "RETOUCH_PORT": "0",
        "RETOUCH_ENGINE": "fake",
        "RETOUCH_MODELS_DIR": str(models_dir),
        "RETOUCH_RESULTS_DIR": str(tmp_path / "results"),
        "RETOUCH_ENGINE_CACHE_DIR": str(tmp_path / "cache"),
        **{f"RETOUCH_{name.upper()}": value for name, value in settings.items()},
    }
    server = subprocess.Popen(command, env=environ, stderr=subprocess.PIPE, text=True)
    try:
        assert server.stderr is not None
        url = next(found[1] for line in server.stderr if (found := re.search(r'"url": "(http[^"]+)"', line)))
        yield server, url
    finally:
        server.kill()
        server.wait(10)
        assert server.stderr is not None
        server.stderr.close()


async def ready(session: aiohttp.ClientSession, wanted: int = 200) -> None:
    """Return when /readyz answers with that status."""
    end = time.monotonic() + 20
    while True:
        async with session.get("/readyz") as response:
            if response.status == wanted:
                return
        assert time.monotonic() < end
        await asyncio.sleep(0.02)


async def post(session: aiohttp.ClientSession, files: Files) -> Answer:
    data = aiohttp.FormData()
    for name, (filename, body, media_type) in files.items():
        data.add_field(name, body, filename=filename, content_type=media_type)
    async with session.post("/v1/inpaint", data=data) as response:
        await response.read()
        if response.status == 200:
            return 200, response.headers["Location"]
        return response.status, (await response.json())["code"]
