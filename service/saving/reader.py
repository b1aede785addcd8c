"""Reads results for the event loop on threads of their own, so that a storage that hangs delays nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

from service.lifecycle.patient_threads import PatientThreads
from service.saving.index_table import ResultRow
from service.saving.store import ResultStore

_THREADS = 16


class ResultReader:
    """Asynchronous reads of results by id. Used on the event loop."""

    def __init__(self, store: ResultStore) -> None:
        self._store = store
        self._threads = PatientThreads(_THREADS, "read")

    async def image(self, result_id: str) -> tuple[bytes, str] | None:
        """See `ResultStore.get`."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._store.get, result_id)

    async def sidecar(self, result_id: str) -> dict[str, Any] | None:
        """See `ResultStore.sidecar`."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._store.sidecar, result_id)

    async def deleted(self, result_ids: Collection[str]) -> set[str]:
        """See `ResultIndex.deleted`."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._store.index.deleted, result_ids)

    async def known(self, result_id: str) -> ResultRow | None:
        """See `ResultIndex.find`."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._store.index.find, result_id)

    async def forget(self, result_id: str) -> None:
        """See `ResultIndex.forget`."""
        await asyncio.get_running_loop().run_in_executor(self._threads, self._store.index.forget, (result_id,))

    def close(self) -> None:
        """Stop the threads, without waiting for reads that hang."""
        self._threads.shutdown(wait=False, cancel_futures=True)
