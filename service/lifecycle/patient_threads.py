"""A pool of threads that goes on with those it has while the process can start no more."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

from service.lifecycle.daemon_call import NoThread


class PatientThreads(ThreadPoolExecutor):
    """A pool whose calls wait for a free thread if no further one can be started.

    `ThreadPoolExecutor` raises RuntimeError to the caller then, although a thread makes the call later. That would end
    the background tasks, such as the one that applies revoked keys, until the next start.
    """

    def _adjust_thread_count(self) -> None:
        try:
            super()._adjust_thread_count()
        except RuntimeError as error:
            if not self._threads:
                raise NoThread(error) from error


def use_patient_threads() -> None:
    """Let `asyncio.to_thread` of the running event loop use such a pool."""
    asyncio.get_running_loop().set_default_executor(PatientThreads(thread_name_prefix="asyncio"))
