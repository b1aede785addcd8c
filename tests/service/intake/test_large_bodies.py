from __future__ import annotations

import threading

from service.intake.large_bodies import off_loop


async def test_work_on_many_bytes_runs_on_a_thread_and_work_on_few_on_the_event_loop() -> None:
    assert await off_loop(2**20 + 1, threading.get_ident) != threading.get_ident()
    assert await off_loop(2**20, threading.get_ident) == threading.get_ident()
