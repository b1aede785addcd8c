"""Dynamic batching: an idle engine is used at once; while it is busy, requests gather per model and tile size.

`BatchPolicy` decides; `Batcher` is the queue between the event loop, which submits samples, and the device worker,
which takes batches. A batch is formed when the worker is free, as large as the device wants it, without samples whose
client left or whose deadline passed. Nothing sleeps on purpose: a lone request never waits for a fuller batch.
The order among clients and priorities is that of request_order.py.
"""

from __future__ import annotations

import asyncio
import heapq
import threading
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass

from engines.base import Engine
from engines.repository.versions import ServedModel
from service.admission.request_order import FIRST_POSITION, FairScheduler, QueuePosition
from service.core.batch_rows import ComputedSample, Sample
from service.core.errors import DeadlineExceeded, ServiceError, ShuttingDown
from service.core.flow import ANYONE, Flow

QueueKey = Hashable
BatchRows = Callable[[Engine, Sample, int, int], int]
"""`Device.batch_rows`: (engine, next sample, engine's largest batch, samples queued in total) to a batch size."""


def full_batch(_engine: Engine, _first: Sample, max_size: int, _waiting: int) -> int:
    """Take a full batch, whatever the engine."""
    return max_size


def never_interrupted() -> bool:
    """Never end the wait of `Batcher.take` early."""
    return False


@dataclass(slots=True, eq=False)
class Entry:
    """A sample in the queue or in a batch; `reply` is answered exactly once, on its own event loop."""

    sample: Sample
    model: ServedModel
    deadline: float
    enqueued_at: float
    loop: asyncio.AbstractEventLoop
    reply: asyncio.Future[ComputedSample]
    on_begun: Callable[[], None] | None = None
    traced: bool = False
    """Whether its batch gets a trace span."""
    position: QueuePosition = FIRST_POSITION

    def __lt__(self, other: Entry) -> bool:
        return self.position < other.position

    @property
    def queue_key(self) -> QueueKey:
        """Name of its queue: entries of one key can share a batch if they use the same engine."""
        return (self.model.manifest.key, self.model.manifest.onnx_sha256, self.sample.tile, self.sample.samples)


@dataclass(frozen=True, slots=True)
class QueueHead:
    """A queue as `BatchPolicy` sees it."""

    key: QueueKey
    position: QueuePosition
    """Position of the queue's first entry."""


@dataclass(frozen=True, slots=True)
class BatchPolicy:
    """Rules for which queue is served next, and with how large a batch."""

    max_batch_size: int

    def queue_order(self, waiting: Sequence[QueueHead]) -> list[QueueKey]:
        """Sort the queues by the positions of their first entries, so that no tile size starves another."""
        return [queue.key for queue in sorted(waiting, key=lambda queue: queue.position)]

    def largest_batch(self, model_max_batch: int, samples: int = 1) -> int:
        """Largest number of rows in one batch; a row of `samples` results takes the memory of as many rows."""
        return max(1, min(self.max_batch_size, model_max_batch) // samples)


class Batcher:
    """The queue before the device worker. `submit` is called on the event loop, `take` on the worker's thread."""

    def __init__(self, policy: BatchPolicy, clock: Callable[[], float]) -> None:
        self._policy = policy
        self._clock = clock
        self._scheduler = FairScheduler()
        self._queues: dict[QueueKey, list[Entry]] = {}  # heaps, ordered by position
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
    ) -> ComputedSample:
        """Queue one sample and wait for its tile. Cancelling the caller withdraws a sample that still waits.

        Args:
            sample: one row of a batch.
            model: leased by the caller until this returns.
            deadline: seconds on the batcher's clock.
            on_begun: called on the event loop when the sample is taken into a batch.
            flow: client and priority, for the order of service.
            traced: whether its batch gets a trace span.

        Raises:
            DeadlineExceeded: the deadline passed in the queue; the sample was not computed.
            InferenceFailed, NotReady: the batch failed, or the worker died or hung.
            ShuttingDown: the batcher is closed.
        """
        entry = self.enqueue(sample, model, deadline, on_begun, flow, traced=traced)
        try:
            return await entry.reply
        except asyncio.CancelledError:
            self.withdraw(entry)
            raise
        finally:
            del entry  # breaks a reference cycle through the error's traceback that would keep the sample in memory

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
        """Queue one sample without waiting, with the arguments of `submit`; the result is set on `Entry.reply`.

        Raises:
            ShuttingDown: the batcher is closed.
        """
        loop = asyncio.get_running_loop()
        entry = Entry(sample, model, deadline, self._clock(), loop, loop.create_future(), on_begun, traced)
        with self._changed:
            if self._closed:
                raise ShuttingDown("the server is shutting down; ask another replica")
            entry.position = self._scheduler.assign(flow)
            heapq.heappush(self._queues.setdefault(entry.queue_key, []), entry)
            self._changed.notify()
        return entry

    def withdraw(self, entry: Entry) -> bool:
        """Remove an entry from the queue; False if it is in a batch already, or computed."""
        with self._changed:
            queue = self._queues.get(entry.queue_key)
            if not queue or entry not in queue:
                return False
            queue.remove(entry)
            heapq.heapify(queue)
            if not queue:
                del self._queues[entry.queue_key]
            return True

    def take(
        self,
        timeout_s: float | None = None,
        rows: BatchRows = full_batch,
        interrupted: Callable[[], bool] = never_interrupted,
    ) -> list[Entry] | None:
        """Wait for the next batch and take it; None when closed, interrupted or timed out. For the worker's thread.

        The batch retains its model, so that the engine is not unloaded while it computes, even if all clients leave;
        the caller releases `batch[0].model` when the device has finished the batch.

        Args:
            timeout_s: how long to wait at most.
            rows: gives the size of a batch; 0 where its device cannot take one now.
            interrupted: ends the wait when it returns True; called first, and after each `wake`.
        """
        with self._changed:
            while True:
                batch = self._form_batch(rows)
                if batch:
                    return batch
                if self._closed or interrupted() or not self._changed.wait(timeout_s):
                    return None

    def wake(self) -> None:
        """Make a waiting `take` check its conditions again; from any thread."""
        with self._changed:
            self._changed.notify()

    @property
    def closed(self) -> bool:
        """Whether new entries are refused."""
        return self._closed

    def close(self) -> None:
        """Refuse new entries and fail those that wait; the worker's `take` then returns None."""
        with self._changed:
            self._closed = True
            left = [entry for queue in self._queues.values() for entry in queue]
            self._queues.clear()
            self._changed.notify_all()
        fail_entries(left, ShuttingDown("the server shut down before this request was computed; ask another replica"))

    def _form_batch(self, rows: BatchRows) -> list[Entry]:
        while (found := self._next_queue(rows)) is not None:  # no recursion: a thousand queues may be late
            if batch := self._take_from(*found):
                return batch
        return []

    def _take_from(self, key: QueueKey, size: int) -> list[Entry]:
        """Take a batch from a queue; an empty list, and no queue any more, if nobody waits for its entries."""
        queue, now = self._queues[key], self._clock()
        batch: list[Entry] = []
        while queue and len(batch) < size:
            entry = heapq.heappop(queue)
            if not _is_still_wanted(entry, now):
                continue
            model = entry.model.current  # its engine may have died and been replaced while it waited
            if batch and model.engine is not batch[0].model.engine:
                heapq.heappush(queue, entry)
                break
            if not batch and not model.retain():  # the client left just now, and its lease was the model's last
                continue
            self._scheduler.start(entry.position)
            entry.model = model
            batch.append(entry)
            if entry.on_begun is not None:
                entry.loop.call_soon_threadsafe(entry.on_begun)
        if not queue:
            del self._queues[key]
        return batch

    def _next_queue(self, rows: BatchRows) -> tuple[QueueKey, int] | None:
        """The queue to serve next, and the size of its batch; None if no device can take one.

        If the device of a queue cannot take a batch, later queues of that device are skipped too: their order is kept.
        """
        waited_for: set[str] = set()
        waiting = sum(map(len, self._queues.values()))
        for key in self._policy.queue_order([QueueHead(key, queue[0].position) for key, queue in self._queues.items()]):
            first = self._queues[key][0]
            engine = first.model.current.engine
            if engine.device in waited_for:
                continue
            max_size = self._policy.largest_batch(first.model.manifest.max_batch, first.sample.samples)
            if size := rows(engine, first.sample, max_size, waiting):
                return key, size
            waited_for.add(engine.device)
        return None


def _is_still_wanted(entry: Entry, now: float) -> bool:
    """Whether a client still waits for the entry; if its deadline has passed, it is failed with DeadlineExceeded."""
    if entry.reply.done():  # the client left
        return False
    if now < entry.deadline:
        return True
    waited_ms = f"{(now - entry.enqueued_at) * 1e3:.0f} ms"
    fail_entries([entry], DeadlineExceeded(f"the deadline passed after {waited_ms} in the queue; allow more time"))
    return False


def answer_entries(answers: Iterable[tuple[Entry, ComputedSample | ServiceError]]) -> None:
    """Answer the entries of one batch, from any thread, with one wake-up for each event loop."""
    by_loop: dict[asyncio.AbstractEventLoop, list[tuple[Entry, ComputedSample | ServiceError]]] = {}
    for entry, answer in answers:
        by_loop.setdefault(entry.loop, []).append((entry, answer))
    for loop, group in by_loop.items():
        if not loop.is_closed():
            loop.call_soon_threadsafe(_set_replies, group)


def fail_entries(entries: Iterable[Entry], error: ServiceError) -> None:
    """Answer every entry with the same error, from any thread."""
    answer_entries((entry, error) for entry in entries)


def _set_replies(group: Iterable[tuple[Entry, ComputedSample | ServiceError]]) -> None:
    for entry, answer in group:
        if entry.reply.done():  # the client left, or the supervisor has replaced the worker and failed the entry
            continue
        if isinstance(answer, ServiceError):
            entry.reply.set_exception(answer)
        else:
            entry.reply.set_result(answer)
