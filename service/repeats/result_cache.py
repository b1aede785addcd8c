"""Exact result cache: identical requests are computed once, at the same time or one after the other.

Identical: the bytes of all files, the model's version and the digest of its ONNX, the options, the seed. What is cached
is where the stored result is, so the results folder (or bucket) is the cache, its retention the cache's, and every
process that shares the ledger finds it. What is not saved is not cached, but still computed once for all who wait for
it at the same time in one process. A request of a model that draws, without a seed, wants a new result and gets one.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

import structlog

from engines.manifest import Manifest
from service.core.call import Call, Timings
from service.core.errors import DeadlineExceeded, ServiceError
from service.core.order import Order
from service.core.pictures import Size
from service.core.reply import CacheOutcome, Encoded, Reply
from service.ledger.database import Database
from service.pipeline import Pipeline
from service.repeats import cache_table
from service.repeats.idempotency import fingerprint_of
from service.repeats.single_flight import Flights
from service.saving.reader import ResultReader

_log = structlog.get_logger(__name__)
_TRIM_EVERY = 256
"""Results remembered."""
_FACTS = ("media_type", "size", "model", "engine", "batch_size", "coverage", "seed")


class CacheObserver(Protocol):
    """Told about every request that could be cached, on the event loop."""

    def cache_looked_up(self, outcome: CacheOutcome) -> None:
        """Where its result came from."""


@dataclass(slots=True)
class ResultCache:
    """Runs orders through the pipeline, unless their result is known. Used on the event loop."""

    pipeline: Pipeline
    ledger: Database
    results: ResultReader
    observer: CacheObserver
    entries: int
    now: Callable[[], float]
    """Seconds since the epoch."""
    _flights: Flights[Reply] = field(default_factory=Flights)
    _unwritten: dict[str, Reply] = field(default_factory=dict)
    """Finished, and not in the ledger yet: who asks now would not find them there."""
    _remembered: int = 0

    @property
    def waiting(self) -> int:
        """Requests that wait for a result that is looked up or computed, their own or another's."""
        return self._flights.waiting

    async def run(self, order: Order, call: Call) -> Reply:
        """The finished pictures. Raises as `Pipeline.run`."""
        manifest = self._manifest(order)
        if manifest is None or (manifest.diverse and order.options.seed is None):
            return await self.pipeline.run(order, call)
        saved = order.is_saved(self.pipeline.settings.save)
        wishes = (manifest.key, manifest.onnx_sha256, str(saved))
        key = await asyncio.to_thread(fingerprint_of, order, *wishes)
        while True:
            if (just_now := self._unwritten.get(key)) is not None:
                return self._told(just_now, "hit")
            leads = key not in self._flights
            try:
                work = partial(self._found_or_computed, order, call, key, manifest, saved)
                reply = await self._flights.join(key, work)
                return self._told(reply, reply.cache or ("miss" if leads else "coalesced"))
            except DeadlineExceeded:
                if leads:
                    raise
                # that was the deadline of the one who began it; this request's own is watched by its caller

    def _manifest(self, order: Order) -> Manifest | None:
        """Of the model that would be used now; None where that fails: the pipeline says why."""
        name, _, version = self.pipeline.model_of(order).partition("/")
        ready = [one for one in self.pipeline.models.statuses() if one.name == name and one.state == "ready"]
        wanted = [one for one in ready if version in ("", str(one.version))]
        return max(wanted, key=lambda one: one.version).manifest if wanted else None

    async def _found_or_computed(self, order: Order, call: Call, key: str, manifest: Manifest, saved: bool) -> Reply:
        """Looked up within the flight: between a look before it and its start another could come and go."""
        if saved and (found := await self._find(key)) is not None:
            return replace(found, cache="hit")
        reply = await self.pipeline.run(order, call)
        if reply.model == manifest.key and all(picture.result_id for picture in reply.pictures):
            remember = partial(cache_table.remember, fingerprint=key, about=_about(reply), now=self.now())
            self._unwritten[key] = reply
            self._write(remember).add_done_callback(lambda _: self._unwritten.pop(key, None))
            self._remembered += 1
            if self._remembered % _TRIM_EVERY == 0:
                self._write(partial(cache_table.trim, most=self.entries))
        return reply

    async def _find(self, key: str) -> Reply | None:
        try:
            about = await self.ledger.read(partial(cache_table.find, fingerprint=key))
            if about is None:
                return None
            reply = await self._loaded(json.loads(about))
        except ServiceError as error:  # a cache that cannot be read costs time and nothing else
            _log.warning("the result cache cannot be read", error=str(error))
            return None
        if reply is None:  # retention removed it
            self._write(partial(cache_table.forget, fingerprint=key))
        else:
            self._write(partial(cache_table.use, fingerprint=key, now=self.now()))
        return reply

    async def _loaded(self, about: dict[str, object]) -> Reply | None:
        pictures: list[Encoded] = []
        ids = about.pop("result_ids")
        for result_id in ids if isinstance(ids, list) else []:
            found = await self.results.image(result_id)
            if found is None:
                return None
            pictures.append(Encoded(found[0], result_id))
        return Reply(pictures=tuple(pictures), timings=Timings(), **{**about, "size": Size(*about["size"])})  # type: ignore[arg-type,misc] # as `_about` wrote it

    def _told(self, reply: Reply, outcome: CacheOutcome) -> Reply:
        self.observer.cache_looked_up(outcome)
        return replace(reply, cache=outcome)

    def _write(self, work: Callable[..., None]) -> asyncio.Future[None]:
        """Behind the reply; a ledger that does not take it costs the next request its hit."""
        written = self.ledger.write(work)
        written.add_done_callback(lambda done: done.exception())
        return written


def _about(reply: Reply) -> str:
    facts = {name: getattr(reply, name) for name in _FACTS}
    return json.dumps({**facts, "result_ids": [picture.result_id for picture in reply.pictures]})
