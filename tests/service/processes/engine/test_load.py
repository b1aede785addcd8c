"""The load of the shared queue, as an engine process reports it to front ends."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from typing import Any

from engines.fake import Hang
from service.admission.admission import Admission
from service.core.flow import Flow
from service.processes.front_end.board_load import StatusBoardLoad
from tests.service.processes.front_end.test_backend import Faults, later, sample
from tests.serving.waiting import until

BUSY, QUIET = Flow("busy"), Flow("quiet")


async def test_a_front_end_uses_the_cores_that_the_launcher_tells_it_of_until_others_need_them(pair: Any) -> None:
    async with pair(cores_for_pictures=15) as both:
        load = replace(both.front.server_load, idle_cores=lambda: 64)
        assert load.spare_cores == 14
        both.board.front_end(1).in_flight = 5
        assert load.spare_cores == 2
        both.board.front_end(1).large_in_flight = 3
        assert load.spare_cores == 0


async def test_a_front_end_without_requests_predicts_the_wait_behind_those_of_others(pair: Any) -> None:
    faults, release = Faults(), threading.Event()
    async with pair(hang_timeout_s=30, max_batch_size=1) as both, both.engine(fake=faults.engine):
        await until(both.serves_all)
        other = StatusBoardLoad(both.board, 1, both.front.server_load.reservation_store)
        admission = Admission(100, server_load=other)
        with both.front.models.lease("photos") as model:

            async def compute(number: int) -> Any:
                return await both.front.batcher.submit(sample(number), model, later(), flow=BUSY)

            both.front.server_load.publish(9, 0)
            done = await compute(0)
            assert other.sample_s > 0
            assert admission.predicted_wait_s(BUSY) == 0
            faults.waiting.append(Hang(release))
            pending = [asyncio.create_task(compute(number)) for number in range(9)]
            await until(lambda: both.board.engine(0).load == 9)
            assert other.samples_ahead(BUSY) == 9
            assert admission.predicted_wait_s(BUSY) == 9 * other.sample_s
            assert other.samples_ahead(QUIET) == 1
            release.set()
            await asyncio.gather(*pending)
        await until(lambda: both.board.engine(0).load == 0)
        assert other.samples_ahead(BUSY) == 0
        assert done.device_s > 0
