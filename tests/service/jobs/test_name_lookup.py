"""DNS lookups run in their own threads, a limited number at once, and no other work waits for a slow one."""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import Any

import pytest

from service.jobs.name_lookup import NameLookup, TooManyLookups
from tests.serving.waiting import until

FOUND = [(socket.AF_INET, 0, 0, "", ("93.184.215.14", 443))]


async def test_results_and_errors_of_the_resolver_are_returned() -> None:
    assert await NameLookup(lambda *_: FOUND)("example.com", 443, 0) == FOUND

    def fail(*_: Any) -> list[Any]:
        raise socket.gaierror(socket.EAI_NONAME, "unknown")

    with pytest.raises(socket.gaierror):
        await NameLookup(fail)("example.com", 443, 0)


async def test_an_invalid_label_is_an_ordinary_error() -> None:
    with pytest.raises(OSError, match="label"):
        await NameLookup()("a" * 64 + ".example.com", 443, 0)


async def test_slow_look_ups_are_limited_and_block_nothing_else() -> None:
    go = threading.Event()

    def slow(*_: Any) -> list[Any]:
        go.wait()
        return FOUND

    names = NameLookup(slow, max_concurrent=2)
    waiting = [asyncio.create_task(names("slow.example", 443, 0)) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(TooManyLookups):
        await names("slow.example", 443, 0)
    waiting[0].cancel()  # its thread still counts against the limit
    assert await asyncio.to_thread(lambda: 7) == 7
    go.set()
    assert await waiting[1] == FOUND
    await until(lambda: not [thread for thread in threading.enumerate() if thread.name == "names"])
    assert await names("example.com", 443, 0) == FOUND


async def test_a_look_up_for_which_no_thread_can_be_started_is_an_ordinary_error_and_takes_no_slot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    names = NameLookup(lambda *_: FOUND, max_concurrent=1)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(OSError, match="thread"):
            await names("example.com", 443, 0)
    assert await names("example.com", 443, 0) == FOUND
