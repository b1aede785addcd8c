from __future__ import annotations

import asyncio
import threading

import pytest

from service.lifecycle.daemon_call import NoThread, call_in_daemon_thread
from tests.serving.waiting import until


async def test_what_the_function_returns_or_raises_comes_back() -> None:
    assert await call_in_daemon_thread(lambda: threading.current_thread().name, "own") == "own"
    with pytest.raises(ZeroDivisionError):
        await call_in_daemon_thread(lambda: 1 / 0, "own")


async def test_a_thread_whose_caller_was_cancelled_ends_without_an_error() -> None:
    go, errors = threading.Event(), list[object]()
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: errors.append(context))
    waiting = asyncio.create_task(call_in_daemon_thread(go.wait, "left"))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    go.set()
    await until(lambda: not [thread for thread in threading.enumerate() if thread.name == "left"])
    await asyncio.sleep(0)
    assert errors == []


def test_a_call_that_blocks_does_not_keep_a_loop_from_ending_and_ends_after_it() -> None:
    go = threading.Event()
    with pytest.raises(asyncio.TimeoutError):
        asyncio.run(asyncio.wait_for(call_in_daemon_thread(go.wait, "blocked"), 0.05))
    (blocked,) = [thread for thread in threading.enumerate() if thread.name == "blocked"]
    go.set()
    blocked.join(5)
    assert not blocked.is_alive()


async def test_without_a_thread_the_function_is_not_called(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    called = list[int]()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(NoThread, match="can't start new thread"):
            await call_in_daemon_thread(lambda: called.append(1), "none")
    assert called == []
