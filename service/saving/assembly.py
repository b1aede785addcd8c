"""Builds the result store from the settings, runs its background tasks, and flushes it at the end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import structlog

from service.core.errors import ServiceError
from service.core.settings import Settings, SettingsInvalid
from service.ledger.contract import Connections
from service.lifecycle.background import run_in_background, run_to_completion_on_thread
from service.lifecycle.drain import Drain
from service.saving.promise import StorePromise
from service.saving.results import SaveObserver
from service.saving.retention import Retention, RetentionLimits
from service.saving.spool.capacity import SpoolLimits
from service.saving.spool.files import SpoolFiles
from service.saving.spool.process_folder import SpoolOwner
from service.saving.spool_safeguard import UnsavedCounts
from service.saving.storage.contract import Storage
from service.saving.storage.disk import ResultFiles, unusable_folder
from service.saving.storage.s3 import ObjectLocation, ObjectStorage, check_bucket, open_object_storage
from service.saving.store import ResultStore

_log = structlog.get_logger(__name__)
RETENTION_LOCK = ".retention.lock"
_DISK_THREADS = 2
"""Number of writers to a disk: one writes while the other syncs; more would wait for the same device."""
_UPLOAD_THREADS = 16
"""Number of concurrent uploads, which wait for the network and not for a core."""
_MAX_GROUP_SIZE = 64
"""Largest number of results that a thread makes durable with the same syncs."""
_SWEEP_INTERVAL_S = 60.0
_PROBE_INTERVAL_S = 1.0
"""Interval in seconds at which a failed disk is probed."""
_INDEX_INTERVAL_S = 0.25
"""Interval in seconds at which results that are not durable yet are inserted in the index, so that other processes list
them."""
_FAILING_FLUSH_S = 2.0
"""Seconds for which a flush at the end waits for failing saves that the next start can repeat."""
_INHERIT_INTERVAL_S = 2.0
"""Interval in seconds of the search for results of dead processes."""


@asynccontextmanager
async def open_store(
    settings: Settings, observer: SaveObserver, drain: Drain, owner: SpoolOwner, ledger: Connections | None = None
) -> AsyncIterator[ResultStore]:
    """Open the result store that the settings choose, and flush it at the end, within the rest of the drain.

    Args:
        settings: the server's configuration.
        observer: counts saves.
        drain: gives the time left for the flush.
        owner: this process as owner of a spool folder.
        ledger: connections for the index of results; None: a file in `results_dir`.

    Raises:
        SettingsInvalid: results cannot be saved where the settings say.
    """
    limits = SpoolLimits(settings.spool_max_items, int(settings.spool_max_mb * 2**20))
    spool_files = SpoolFiles(owner)
    threads = _UPLOAD_THREADS if settings.results_url else _DISK_THREADS
    storage = open_storage(settings)
    store = ResultStore(storage, spool_files, limits, ledger, threads=threads, observer=observer)
    try:
        await run_to_completion_on_thread(store.start)  # an interrupted command removes the folder at once
    except OSError as error:  # such as a spool that another user made
        raise unusable_folder(settings.results_dir, error) from error
    try:
        async with run_in_background(
            _probe_disk_periodically(store),
            _inherit_from_dead_processes(store),
            _enter(store),
            _delete_old_results(settings, storage, store),
        ):
            yield store
    finally:
        await _flush_and_close_store(store, drain)


def check_storage_settings(settings: Settings) -> None:
    """Check the address of the bucket of results, without opening anything.

    Raises:
        SettingsInvalid: the URL is wrong, or `promise=store` is set without `results_url`.
    """
    if settings.promise == "store" and not settings.results_url:
        raise SettingsInvalid(
            "promise=store needs results_url: replies wait until their results are in that bucket; set results_url to "
            "s3://BUCKET/PREFIX, or leave promise out"
        )
    if settings.results_url:
        check_bucket(settings.results_url)


def open_storage(settings: Settings) -> Storage:
    """Open the durable storage; the results directory is created and probed in any case, because it holds the spool.

    Raises:
        SettingsInvalid: the directory cannot be written to, or as raised by `check_storage_settings`.
    """
    check_storage_settings(settings)
    files = ResultFiles(settings.results_dir, max_group_size=_MAX_GROUP_SIZE)
    files.prepare()
    if not settings.results_url:
        return files
    return open_objects(settings)


def open_objects(settings: Settings) -> ObjectStorage:
    """Open the bucket of `results_url`.

    Raises:
        SettingsInvalid: the URL is wrong, or the client is not installed.
    """
    return open_object_storage(
        ObjectLocation(settings.results_url, settings.s3_endpoint, timeout_s=settings.upload_timeout_s)
    )


def make_promise(settings: Settings, store: ResultStore, clock: Callable[[], float]) -> StorePromise | None:
    """Return the `StorePromise` that delays replies until their results are in the storage; None if not set."""
    return StorePromise(store, clock) if settings.promise == "store" else None


async def _probe_disk_periodically(store: ResultStore) -> None:
    while True:
        await asyncio.sleep(_PROBE_INTERVAL_S)
        await asyncio.to_thread(store.probe_disk)


async def _inherit_from_dead_processes(store: ResultStore) -> None:
    while True:
        await asyncio.sleep(_INHERIT_INTERVAL_S)
        await asyncio.to_thread(store.inherit)


async def _enter(store: ResultStore) -> None:
    while True:
        await asyncio.sleep(_INDEX_INTERVAL_S)
        if store.index.pending:
            await asyncio.to_thread(store.index.flush)


async def _delete_old_results(settings: Settings, storage: Storage, store: ResultStore) -> None:
    limits = RetentionLimits(settings.results_max_age_h * 3600, int(settings.results_max_gb * 2**30))
    lock, index = settings.results_dir / RETENTION_LOCK, store.index
    retention = Retention(storage, lock, limits, time.time, store.spooled_ids, index.forget)
    while limits.is_limited:
        try:
            await asyncio.to_thread(retention.delete_excess)
        except (OSError, ServiceError) as error:
            _log.warning("old results cannot be deleted; retrying", error=str(error))
        await asyncio.sleep(_SWEEP_INTERVAL_S)


def flush_at_end(store: ResultStore, flush_s: float) -> UnsavedCounts:
    """Flush the store and count the results that are left. Blocks.

    If saves fail but the spool, on the disk of the results, holds all of them for the next start, it waits only
    briefly. With a bucket it uses all of `flush_s`, because the spool's disk may not outlive this process.
    """
    failing_flush_s = min(_FAILING_FLUSH_S, flush_s)
    if not store.flush(failing_flush_s):
        return store.count_unsaved()
    left = store.count_unsaved()
    if store.failing_s:
        if store.storage.shares_spool_disk and left.total == left.spooled:
            return left
        further_s = round(flush_s - failing_flush_s, 1)
        _log.warning("waiting to save results", left=left.total, at_most_s=further_s, why=store.why_failing)
    store.flush(flush_s - failing_flush_s)
    return store.count_unsaved()


async def _flush_and_close_store(store: ResultStore, drain: Drain) -> None:
    began, flush_s = time.monotonic(), drain.flush_s
    left = await asyncio.to_thread(flush_at_end, store, flush_s)
    await asyncio.to_thread(store.close)
    if left.spooled or left.unsure:
        _log.error(
            "results were not saved in time; the next start saves them",
            left=left.spooled + left.unsure,
            unsure=left.unsure,
            waited_s=round(time.monotonic() - began, 1),
            why=store.why_failing,
        )
    if left.lost:
        _log.error("promised results are lost", lost=left.lost)
    drain.unsaved = left.total
