"""Work whose answer a key keeps."""

from __future__ import annotations

import asyncio

from service.repeats.attempt import Attempt
from service.repeats.response_files import StoredResponse


class Work:
    """Work that counts its runs, and that a test can hold up."""

    def __init__(self, error: Exception | None = None, *, blocked: bool = False) -> None:
        self.done = 0
        self.error = error
        self.gate, self.begun = asyncio.Event(), asyncio.Event()
        if not blocked:
            self.gate.set()

    async def __call__(self, _: Attempt) -> StoredResponse:
        self.begun.set()
        await self.gate.wait()
        self.done += 1
        if self.error:
            raise self.error
        headers = (("x-model", "photos/1"), ("content-type", "image/png"))
        return StoredResponse(200, headers, b"\x00\n" * 100 + b"%d" % self.done)
