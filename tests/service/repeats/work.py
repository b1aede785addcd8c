"""Work whose answer a key keeps, with results or without, and the process that runs it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from service.core.call import Call, Timings
from service.core.errors import NotReady
from service.core.order import Order
from service.core.pictures import Size
from service.core.reply import Encoded, Reply
from service.core.schemas import GenerateOptions
from service.repeats.attempt import Attempt, ResultsToStore
from service.repeats.earlier_results import EarlierResults
from service.repeats.idempotency import Idempotency
from service.repeats.response_files import StoredResponse
from service.saving.results import StoredResult
from service.saving.sidecar import sidecar_of
from service.saving.storage.disk import ResultFiles
from service.saving.store import ResultStore
from tests.fakes.clock import Clock
from tests.service.repeats.processes import process
from tests.service.saving.store.slow_storage import open_store

THREE = ResultsToStore(3, "me")
ORDER = Order("generate", {}, GenerateOptions(count=3))


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


def reply_with(attempt: Attempt) -> Reply:
    pictures = tuple(Encoded(b"%d" % index, one) for index, one in enumerate(attempt.result_ids))
    facts = (Size(8, 16), "photos/1", "fake/fp32", 2, 0.5, 7)
    return Reply(pictures, "image/png", *facts, Timings({"infer": 0.25}), texture="copied")


@dataclass
class Painter:
    """Work that stores three pictures, or `stored` of them, and then hangs if it is to be killed."""

    store: ResultStore
    hangs: bool = False
    stored: int = 3
    shares: bool = False
    refusal: NotReady | None = None
    """Raised, once, after the pictures were stored."""
    saves: bool = False
    """Whether the results are in the storage before the refusal."""
    attempts: list[Attempt] = field(default_factory=list)
    done: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, attempt: Attempt) -> StoredResponse:
        self.attempts.append(attempt)
        reply = attempt.earlier or self.paint(attempt)
        self.done.set()
        if self.refusal is not None:
            refusal, self.refusal = self.refusal, None
            assert not (self.saves and self.store.flush(20))
            raise refusal
        if self.hangs:
            await asyncio.Event().wait()
        ids = tuple(one.result_id for one in reply.pictures if one.result_id)
        return StoredResponse(200, (), b"".join(one.body for one in reply.pictures), ids)

    def paint(self, attempt: Attempt) -> Reply:
        reply = reply_with(attempt)
        for index, one in list(enumerate(reply.pictures))[: self.stored]:
            sidecar = sidecar_of(reply, index, ORDER, Call("request", 0.0, 1.0))
            result = StoredResult(attempt.result_ids[index], one.body, reply.media_type, sidecar)
            self.store.put(self.store.reserve(1), result)
        return reply


@asynccontextmanager
async def server(
    root: Path, storage: ResultFiles, *, durable: bool = False, clock: Clock | None = None
) -> AsyncIterator[tuple[Idempotency, Painter]]:
    with open_store(storage) as store:
        async with process(root, clock) as plain:
            index, earlier = store.index, EarlierResults(store, durable)
            yield (
                replace(
                    plain,
                    deleted=index.deleted,
                    left_by=earlier.left_by,
                    bury_in=index.bury_in,
                    stored_in=earlier.stored_in,
                ),
                Painter(store),
            )


async def die(root: Path, storage: ResultFiles, **how: object) -> Attempt:
    """Let a process claim the key and store results, and end before it answers."""
    async with server(root, storage) as (keys, ready):
        painter = replace(ready, hangs=True, **how)
        hanging = asyncio.create_task(keys.run_once("key", "print", painter, THREE))
        await painter.done.wait()
        (attempt,) = painter.attempts
        if painter.shares:
            assert await keys.ledger.write(attempt.may_share)
        await keys.close()
    hanging.cancel()
    await asyncio.wait({hanging})
    return attempt
