"""Reads results for the event loop on threads of its own, so that a storage that hangs delays nothing else."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from service.saving.store import ResultStore

_THREADS = 16


class ResultReader:
    """Asynchronous reads of results by id. Used on the event loop."""

    def __init__(self, store: ResultStore) -> None:
        self._store = store
        self._threads = ThreadPoolExecutor(_THREADS, "read")

    async def image(self, result_id: str) -> tuple[bytes, str] | None:
        """See `ResultStore.get`."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._store.get, result_id)

    async def sidecar(self, result_id: str) -> dict[str, Any] | None:
        """See `ResultStore.sidecar`."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._store.sidecar, result_id)

    def close(self) -> None:
        """Stop the threads, without waiting for reads that hang."""
        self._threads.shutdown(wait=False, cancel_futures=True)
