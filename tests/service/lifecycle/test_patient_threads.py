"""Blocking calls of the event loop, while the process has as many threads as it may have."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from service.lifecycle.daemon_call import NoThread
from service.lifecycle.patient_threads import PatientThreads


@contextmanager
def no_threads_left() -> Iterator[None]:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        yield


def test_calls_wait_for_a_thread_that_is_there() -> None:
    go_on = threading.Event()
    with PatientThreads(2) as threads:
        first = threads.submit(go_on.wait, 20)
        with no_threads_left():
            second = threads.submit(lambda: 7)
        assert not second.done()
        go_on.set()
        assert first.result(20)
        assert second.result(20) == 7


def test_without_any_thread_a_call_fails_with_what_to_do() -> None:
    with PatientThreads(2) as threads, no_threads_left(), pytest.raises(NoThread, match="raise its limit of threads"):
        threads.submit(lambda: 7)


def test_the_blocking_calls_of_a_server_wait_for_a_thread(serve: Callable[[], Any]) -> None:
    loop: asyncio.AbstractEventLoop = serve().service.drain.begun.get_loop()
    go_on = threading.Event()
    asyncio.run_coroutine_threadsafe(asyncio.to_thread(str), loop).result(20)  # there is a thread

    async def wait_on_thread() -> bool:
        return await asyncio.to_thread(go_on.wait, 20)

    with no_threads_left():
        calls = [asyncio.run_coroutine_threadsafe(wait_on_thread(), loop) for _ in range(40)]
        asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loop).result(20)  # all calls are made
    go_on.set()
    assert all(call.result(20) for call in calls)
