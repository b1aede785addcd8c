"""Dynamic batching: an idle engine is used at once; while it is busy, requests gather per model and tile size.

`BatchPolicy` decides and does nothing else; `Batcher` is the queue between the event loop, which submits, and the
device worker, which takes. A batch is formed at the moment the worker is free, as full as the device wants it, and
holds nobody whose client left or whose deadline passed. No sleeps in the path: a lone request never waits.
Who comes first is decided by `fairness`: clients in turn, higher priorities more often.
"""

from __future__ import annotations

import asyncio
import heapq
import threading
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass

from engines.base import Engine
from engines.repository.versions import ServedModel
from service.admission.fairness import FIRST, FairOrder, Turn
from service.core.errors import DeadlineExceeded, ServiceError, ShuttingDown
from service.core.flow import ANYONE, Flow
from service.core.samples import Computed, Sample

Key = Hashable
Rows = Callable[[Engine, Sample, int, int], int]
"""Of an engine, the sample whose turn it is, the engine's largest batch and how many wait for any: how many to take."""


def all_rows(_engine: Engine, _first: Sample, most: int, _waiting: int) -> int:
    """A full batch."""
    return most


def never() -> bool:
    """Nothing ends the wait."""
    return False


@dataclass(slots=True, eq=False)
class Entry:
    """One sample on its way to the engine; `reply` is answered exactly once, on its own event loop."""

    sample: Sample
    model: ServedModel
    deadline: float
    enqueued_at: float
    loop: asyncio.AbstractEventLoop
    reply: asyncio.Future[Computed]
    on_begun: Callable[[], None] | None = None
    traced: bool = False
    """Whether its batch is to have a span."""
    turn: Turn = FIRST

    def __lt__(self, other: Entry) -> bool:
        return self.turn < other.turn

    @property
    def key(self) -> Key:
        """Entries of one key can share a batch, once they use the same engine."""
        return (self.model.manifest.key, self.model.manifest.onnx_sha256, self.sample.tile, self.sample.samples)


@dataclass(frozen=True, slots=True)
class Waiting:
    """What the policy sees of one queue."""

    key: Key
    turn: Turn
    """Of its first entry."""


@dataclass(frozen=True, slots=True)
class BatchPolicy:
    """Which queue is served next, and how much of it."""

    max_batch_size: int

    def order(self, waiting: Sequence[Waiting]) -> list[Key]:
        """The queues in the order of their first entries' turns: no tile size starves another."""
        return [queue.key for queue in sorted(waiting, key=lambda queue: queue.turn)]

    def size(self, model_max_batch: int, samples: int = 1) -> int:
        """Most rows in one batch of a model; each of `samples` pictures, which take memory like rows."""
        return max(1, min(self.max_batch_size, model_max_batch) // samples)


class Batcher:
    """The queue before the device worker. `submit` is called on the event loop, `take` on the worker's thread."""

    def __init__(self, policy: BatchPolicy, clock: Callable[[], float]) -> None:
        self._policy = policy
        self._clock = clock
        self._order = FairOrder()
        self._queues: dict[Key, list[Entry]] = {}
        """Heaps: the next turn is first."""
        self._changed = threading.Condition()
        self._closed = False

    def __repr__(self) -> str:
        return f"<Batcher [{len(self)} queued in {len(self._queues)} queues{', closed' if self._closed else ''}]>"

    def __len__(self) -> int:
        with self._changed:
            return sum(len(queue) for queue in self._queues.values())

    async def submit(
        self,
        sample: Sample,
        model: ServedModel,
        deadline: float,
        on_begun: Callable[[], None] | None = None,
        flow: Flow = ANYONE,
        *,
        traced: bool = False,
    ) -> Computed:
        """Queue one sample and wait for its tile. Cancelling the caller withdraws it before the engine sees it.

        Args:
            sample: one row of a batch.
            model: leased by the caller until this returns.
            deadline: on the batcher's clock, in seconds.
            on_begun: called on the event loop when the sample is taken into a batch.
            flow: whose turn it takes.
            traced: whether its batch is to have a span.

        Raises:
            DeadlineExceeded: the deadline passed while it was queued; it was not computed.
            InferenceFailed, NotReady: the batch failed, or the worker was lost.
            ShuttingDown: the batcher is closed.
        """
        entry = self.enqueue(sample, model, deadline, on_begun, flow, traced=traced)
        try:
            return await entry.reply
        except asyncio.CancelledError:
            self.withdraw(entry)
            raise

    def enqueue(
        self,
        sample: Sample,
        model: ServedModel,
        deadline: float,
        on_begun: Callable[[], None] | None = None,
        flow: Flow = ANYONE,
        *,
        traced: bool = False,
    ) -> Entry:
        """As `submit`, for whoever waits in its own way: the answer comes to `Entry.reply`.

        Raises:
            ShuttingDown: the batcher is closed.
        """
        loop = asyncio.get_running_loop()
        entry = Entry(sample, model, deadline, self._clock(), loop, loop.create_future(), on_begun, traced)
        with self._changed:
            if self._closed:
                raise ShuttingDown("the server is shutting down; ask another replica")
            entry.turn = self._order.next(flow)
            heapq.heappush(self._queues.setdefault(entry.key, []), entry)
            self._changed.notify()
        return entry

    def withdraw(self, entry: Entry) -> bool:
        """Take an entry out of the queue; False when it is not there any more: computed, or about to be."""
        with self._changed:
            queue = self._queues.get(entry.key)
            if not queue or entry not in queue:
                return False
            queue.remove(entry)
            heapq.heapify(queue)
            if not queue:
                del self._queues[entry.key]
            return True

    def take(
        self, timeout_s: float | None = None, rows: Rows = all_rows, until: Callable[[], bool] = never
    ) -> list[Entry] | None:
        """The next batch, waiting for one; None when closed (or nothing came in time). For the worker's thread.

        The batch retains its model, so that the engine outlives clients that leave while it computes: whoever took the
        batch releases `batch[0].model` when nothing of it is on the device any more.

        Args:
            timeout_s: how long to wait.
            rows: how many to take; 0 where their device cannot take them now.
            until: ends the wait once it is true. Asked first, and after each `wake`.
        """
        with self._changed:
            while True:
                batch = self._form(rows)
                if batch:
                    return batch
                if self._closed or until() or not self._changed.wait(timeout_s):
                    return None

    def wake(self) -> None:
        """Let `take` look again; from any thread."""
        with self._changed:
            self._changed.notify()

    @property
    def closed(self) -> bool:
        """Whether nobody comes any more."""
        return self._closed

    def close(self) -> None:
        """Refuse new entries and answer those that still wait; the worker's `take` then returns None."""
        with self._changed:
            self._closed = True
            left = [entry for queue in self._queues.values() for entry in queue]
            self._queues.clear()
            self._changed.notify_all()
        fail(left, ShuttingDown("the server shut down before this request was computed; ask another replica"))

    def _form(self, rows: Rows) -> list[Entry]:
        key, size = self._pick(rows)
        if not size:
            return []
        queue, now = self._queues[key], self._clock()
        batch: list[Entry] = []
        while queue and len(batch) < size:
            entry = heapq.heappop(queue)
            if not _is_wanted(entry, now):
                continue
            model = entry.model.current  # its engine may have died and been replaced while it waited
            if batch and model.engine is not batch[0].model.engine:
                heapq.heappush(queue, entry)
                break
            if not batch and not model.retain():  # the client left just now, and took the last lease along
                continue
            self._order.begin(entry.turn)
            entry.model = model
            batch.append(entry)
            if entry.on_begun is not None:
                entry.loop.call_soon_threadsafe(entry.on_begun)
        if not queue:
            del self._queues[key]
        return batch or self._form(rows)

    def _pick(self, rows: Rows) -> tuple[Key, int]:
        """Whose turn it is, and how many of them.

        Who waits for a device is passed by those of others, keeps the turn, and is overtaken by nobody of its own.
        """
        waited_for: set[str] = set()
        waiting = sum(map(len, self._queues.values()))
        for key in self._policy.order([Waiting(key, queue[0].turn) for key, queue in self._queues.items()]):
            first = self._queues[key][0]
            engine = first.model.current.engine
            if engine.device in waited_for:
                continue
            most = self._policy.size(first.model.manifest.max_batch, first.sample.samples)
            if size := rows(engine, first.sample, most, waiting):
                return key, size
            waited_for.add(engine.device)
        return None, 0


def _is_wanted(entry: Entry, now: float) -> bool:
    """Whether somebody still waits for it; whose deadline passed is told so."""
    if entry.reply.done():  # the client left while it waited
        return False
    if now < entry.deadline:
        return True
    waited_ms = (now - entry.enqueued_at) * 1e3
    fail([entry], DeadlineExceeded(f"the deadline passed after {waited_ms:.0f} ms in the queue; allow more"))
    return False


def answer_all(answers: Iterable[tuple[Entry, Computed | ServiceError]]) -> None:
    """Answer the entries of one batch, from any thread, with one wake-up for each event loop."""
    by_loop: dict[asyncio.AbstractEventLoop, list[tuple[Entry, Computed | ServiceError]]] = {}
    for entry, answer in answers:
        by_loop.setdefault(entry.loop, []).append((entry, answer))
    for loop, group in by_loop.items():
        if not loop.is_closed():
            loop.call_soon_threadsafe(_answer, group)


def fail(entries: Iterable[Entry], error: ServiceError) -> None:
    """Answer every entry with the same error, from any thread."""
    answer_all((entry, error) for entry in entries)


def _answer(group: Iterable[tuple[Entry, Computed | ServiceError]]) -> None:
    for entry, answer in group:
        if entry.reply.done():  # the client left, or the worker was given up and answered for
            continue
        if isinstance(answer, ServiceError):
            entry.reply.set_exception(answer)
        else:
            entry.reply.set_result(answer)
