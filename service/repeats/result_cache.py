"""Exact result cache: identical requests are computed once, whether concurrent or later.

Requests are identical if the bytes of all files, the model's version, the digest of its ONNX file, the options, the
seed and the owner are equal. The owner is included because only the owner may find and delete a result. The cache
stores ids of saved results; the images are in the results folder or bucket, whose retention applies. All processes that
share the ledger use the cache. A result that another host has not uploaded yet is computed again, but its entry stays.
Unsaved results are not cached, but concurrent identical requests in one process are still computed once. A request
without a seed to a model with latents always gets a new result.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

import structlog

from engines.manifest import Manifest
from service.core.call import Call, Timings
from service.core.errors import DeadlineExceeded, NotReady, ServiceError
from service.core.order import Order
from service.core.pictures import Size
from service.core.reply import CacheOutcome, Encoded, Reply
from service.ledger.contract import Transaction
from service.ledger.database import Database
from service.pipeline import Pipeline
from service.repeats import cache_table
from service.repeats.request_digests import fingerprint_of
from service.repeats.single_flight import SingleFlight
from service.saving.reader import ResultReader

T = TypeVar("T")
_log = structlog.get_logger(__name__)
_TRIM_EVERY = 256
"""Number of inserted results between trims of the table."""
_ELSEWHERE_S = 60.0
"""Seconds after an entry's last use in which its result, if not readable here, may still be on another host."""
_FACTS = ("media_type", "size", "model", "engine", "batch_size", "coverage", "seed")


@dataclass(frozen=True, slots=True)
class _CacheResult:
    """A reply, and whether it may also answer other requests.

    removable: whether the results may be deleted unless the entry was inserted (`Call.may_share`).
    entered: future of the insertion in the ledger; its result is False if the entry must not be inserted. None: there
        will be no entry.
    """

    reply: Reply
    removable: bool = False
    entered: asyncio.Future[bool] | None = None

    async def may_be_shared(self) -> bool:
        if not self.removable or self.entered is None:
            return not self.removable
        try:
            return await asyncio.shield(self.entered)
        except ServiceError:  # without the ledger each request computes its own result
            return False


@dataclass(slots=True)
class ResultCache:
    """Runs orders through the pipeline, unless their result is cached. Used on the event loop."""

    pipeline: Pipeline
    ledger: Database
    results: ResultReader
    entries: int
    now: Callable[[], float]
    """The ledger's clock, in seconds since the epoch."""
    has_hosts: bool = False
    """Whether other hosts may have results that cannot be read here yet."""
    _flights: SingleFlight[_CacheResult] = field(default_factory=SingleFlight)
    _unwritten: dict[str, _CacheResult] = field(default_factory=dict)
    """Finished results that are not in the ledger yet, by key."""
    _remembered: int = 0

    @property
    def waiting(self) -> int:
        """Number of requests that wait for a look-up or a computation, their own or another request's."""
        return self._flights.waiting

    async def run(self, order: Order, call: Call) -> Reply:
        """Return the reply to an order, from the cache or computed. Raises as `Pipeline.run` does."""
        manifest = self._current_manifest(order)
        if manifest is None or (manifest.has_latent and order.options.seed is None):
            return replace(await self.pipeline.run(order, call), cache="bypass")
        call.on_model(manifest.key)  # here, as a request that joins another one does not reach the pipeline
        saved = order.is_saved(self.pipeline.settings.save)
        varies_with = (manifest.key, manifest.onnx_sha256, str(saved), call.flow.owner)
        key = await asyncio.to_thread(fingerprint_of, _without_names(order, manifest), *varies_with)
        while True:
            pending = self._unwritten.get(key)
            if pending is not None and await pending.may_be_shared() and await self._is_available(pending.reply):
                return self._count_outcome(pending.reply, "hit")
            is_leader = key not in self._flights
            try:
                work = partial(self._look_up_or_compute, order, call, key, manifest, saved)
                found = await self._flights.run_or_join(key, work, lambda: call.deadline - self.pipeline.clock())
                if is_leader or await found.may_be_shared():
                    computed: CacheOutcome = "miss" if saved else "bypass"
                    outcome = found.reply.cache or (computed if is_leader else "coalesced")
                    return self._count_outcome(found.reply, outcome)
            except (DeadlineExceeded, NotReady) as error:
                if is_leader or (isinstance(error, NotReady) and error.code != "storage_unavailable"):
                    raise
                # the request that started the computation had an earlier deadline; try again within this one's

    async def forget_result(self, result_id: str) -> None:
        """Remove every entry with a deleted result.

        Raises:
            NotReady: code `ledger_unavailable`.
        """
        await self.ledger.write(partial(cache_table.forget_result, result_id=result_id))

    async def _is_available(self, reply: Reply) -> bool:
        """Return whether no result of a reply was deleted."""
        ids = [picture.result_id for picture in reply.pictures if picture.result_id]
        return not await self.results.deleted(ids)

    def _current_manifest(self, order: Order) -> Manifest | None:
        """Return the manifest of the model that would be used now; None without one, which the pipeline reports."""
        name, _, version = self.pipeline.model_of(order).partition("/")
        ready = [one for one in self.pipeline.models.statuses() if one.name == name and one.state == "ready"]
        wanted = [one for one in ready if version in ("", str(one.version))]
        return max(wanted, key=lambda one: one.version).manifest if wanted else None

    async def _look_up_or_compute(
        self, order: Order, call: Call, key: str, manifest: Manifest, saved: bool
    ) -> _CacheResult:
        """Look up the result or compute it. Both are one flight: a look-up before it could miss one that just ended."""
        hit, elsewhere = await self._look_up(key) if saved else (None, False)
        if hit is not None:
            return _CacheResult(replace(hit, cache="hit"))
        # other requests may have joined, possibly with repeats of their own: do not stop if this client leaves
        joined = replace(call, raise_if_disconnected=lambda: None, repeat_key=call.repeat_key or key)
        reply = await self.pipeline.run(order, joined)
        stored = all(picture.result_id for picture in reply.pictures)
        removable = stored and call.may_share is not None
        if reply.model != manifest.key or not stored or elsewhere:
            return _CacheResult(reply, removable)
        enter = partial(cache_table.insert_result, fingerprint=key, about=_facts_as_json(reply), now=self.now())
        entered = self._write_in_background(partial(_enter, may_share=call.may_share, enter=enter))
        self._unwritten[key] = found = _CacheResult(reply, removable, entered)
        entered.add_done_callback(lambda _: self._unwritten.pop(key, None))
        self._remembered += 1
        if self._remembered % _TRIM_EVERY == 0:
            self._write_in_background(partial(cache_table.keep_most_recent, limit=self.entries))
        return found

    async def _look_up(self, key: str) -> tuple[Reply | None, bool]:
        """Return the cached reply or None, and whether another host may have the result, so that its entry must stay.

        If the other host has died with the result, its entry may be replaced a minute after its last use.
        """
        entry = None
        try:
            if (entry := await self.ledger.read(partial(cache_table.find, fingerprint=key))) is None:
                return None, False
            if (reply := await self._load_reply(entry.about)) is not None:
                self._write_in_background(partial(cache_table.record_hit, fingerprint=key, now=self.now()))
                return reply, False
        except ServiceError as error:  # an unreadable cache only costs time
            _log.warning("the result cache cannot be read", error=str(error))
        return None, self.has_hosts and entry is not None and self.now() - entry.used_at < _ELSEWHERE_S

    async def _load_reply(self, about: str) -> Reply | None:
        if (reply := _reply_from_json(about)) is None:
            return None
        pictures: list[Encoded] = []
        for result_id in filter(None, (picture.result_id for picture in reply.pictures)):
            found = await self.results.image(result_id)
            if found is None:
                return None
            pictures.append(Encoded(found[0], result_id))
        return replace(reply, pictures=tuple(pictures))

    def _count_outcome(self, reply: Reply, outcome: CacheOutcome) -> Reply:
        if outcome != "bypass":
            self.pipeline.metrics.cache_looked_up(outcome)
        return replace(reply, cache=outcome)

    def _write_in_background(self, work: Callable[..., T]) -> asyncio.Future[T]:
        """Write to the ledger in the background; a failed write only costs the next request its hit."""
        written = self.ledger.write(work)
        written.add_done_callback(lambda done: done.exception())
        return written


def _without_names(order: Order, manifest: Manifest) -> Order:
    """Return an order without options that are in the cache key in another form, or that the model does not use."""
    unused = {"model": None, "save": None, **({} if manifest.has_latent else {"seed": None})}
    return replace(order, options=order.options.model_copy(update=unused))


def _enter(ledger: Transaction, may_share: Callable[[Any], bool] | None, enter: Callable[[Transaction], None]) -> bool:
    """Insert an entry and return True, unless the results may be deleted (`may_share`)."""
    if may_share is not None and not may_share(ledger):
        return False
    enter(ledger)
    return True


def _facts_as_json(reply: Reply) -> str:
    facts = {name: getattr(reply, name) for name in _FACTS}
    added = {"texture": reply.texture} if reply.texture else {}  # 0.2 fails at a fact that it does not know
    return json.dumps({**facts, **added, "result_ids": [picture.result_id for picture in reply.pictures]})


def _reply_from_json(about: str) -> Reply | None:
    """Return a reply whose pictures have no bytes yet; None if another version wrote the entry in another form."""
    try:
        facts = json.loads(about)
        pictures = tuple(Encoded(b"", result_id) for result_id in facts.pop("result_ids"))
        return Reply(pictures=pictures, timings=Timings(), **{**facts, "size": Size(*facts["size"])})
    except (KeyError, TypeError):
        return None
