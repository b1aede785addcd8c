"""Builds the gallery, and finishes deletions while the server runs."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count

import structlog

from service.core.errors import ServiceError
from service.gallery.deletion import Deletion
from service.gallery.listing import Listing
from service.gallery.older_results import index_older_results
from service.gallery.thumbnails import ThumbnailFiles, Thumbnails
from service.lifecycle.background import run_in_background
from service.pipeline import Pipeline
from service.saving.reader import ResultReader

_log = structlog.get_logger(__name__)
_FINISH_INTERVAL_S = 2.0
_TIDY_EVERY_RUNS = 1800
"""Runs of `Deletion.finish` between removals of old tombstones and thumbnails: about an hour."""
_LATE_WRITE_S = 60.0
"""Time that a storage may take, beyond two attempts to send, to complete a write whose client has given up."""


@dataclass(frozen=True, slots=True)
class Gallery:
    """Operations of clients on results beyond fetching them."""

    listing: Listing
    thumbnails: Thumbnails
    deletion: Deletion


@asynccontextmanager
async def open_gallery(
    pipeline: Pipeline, results: ResultReader, forget: Sequence[Callable[[str], Awaitable[None]]]
) -> AsyncIterator[Gallery]:
    """Open the gallery of the pipeline's results.

    Args:
        pipeline: its store, memory and codec threads are used.
        results: reads results.
        forget: each removes the copies of a deleted result that another room keeps.
    """
    settings, store = pipeline.settings, pipeline.store
    files = ThumbnailFiles(settings.results_dir, store.index)
    thumbnails = Thumbnails(
        files, results, pipeline.codec_work, pipeline.memory, pipeline.clock, settings.request_timeout_s
    )
    late_write_s = 2 * settings.upload_timeout_s + _LATE_WRITE_S
    gallery = Gallery(Listing(store.index), thumbnails, Deletion(store, files, forget, time.time, late_write_s))
    stop = threading.Event()
    gallery.listing.open()
    try:
        async with run_in_background(_finish(gallery.deletion), _index_older_results(pipeline, stop)):
            yield gallery
            stop.set()
    finally:
        stop.set()
        gallery.listing.close()


async def _finish(deletion: Deletion) -> None:
    for run in count(1):
        try:
            await deletion.finish()
            if run % _TIDY_EVERY_RUNS == 0:
                await deletion.tidy()
        except (ServiceError, OSError) as error:
            _log.warning("copies of deleted results cannot be removed; retrying", error=str(error))
        await asyncio.sleep(_FINISH_INTERVAL_S)


async def _index_older_results(pipeline: Pipeline, stop: threading.Event) -> None:
    """Enter older results of a results folder; a bucket is not read, as each sidecar would cost a request."""
    settings, store = pipeline.settings, pipeline.store
    if settings.results_url:
        return
    try:
        await asyncio.to_thread(index_older_results, store.storage, store.index, settings.results_dir, stop)
    except (ServiceError, OSError) as error:
        _log.warning("older results cannot be indexed; the next start retries", error=str(error))
