"""Work on the event loop is divided into turns, so that the loop handles everything else in between."""

from __future__ import annotations

import asyncio

import pytest

from service.imaging.pool.loop_shares import LoopShares


async def test_a_single_request_does_not_wait() -> None:
    shares = LoopShares(2)
    taking = shares.take()
    with pytest.raises(StopIteration):
        taking.send(None)


async def test_each_iteration_of_the_loop_admits_a_few_in_order_of_arrival() -> None:
    shares, through = LoopShares(2), list[int]()

    async def one(number: int) -> None:
        await shares.take()
        through.append(number)

    tasks = [asyncio.create_task(one(number)) for number in range(7)]
    seen = []
    while not all(task.done() for task in tasks):
        await asyncio.sleep(0)
        seen.append(len(through))
    assert through == list(range(7))
    assert all(later - earlier <= 2 for earlier, later in zip([0, *seen], seen, strict=False))


async def test_a_cancelled_waiter_takes_no_share_from_others() -> None:
    shares, through = LoopShares(1), list[int]()

    async def one(number: int) -> None:
        await shares.take()
        through.append(number)

    tasks = [asyncio.create_task(one(number)) for number in range(50)]
    await asyncio.sleep(0)
    for task in tasks[1:-1]:
        task.cancel()
    for _ in range(5):
        await asyncio.sleep(0)
    assert through == [0, 49]
    assert tasks[-1].done()


async def test_an_idle_loop_schedules_no_iterations() -> None:
    shares = LoopShares(1)
    await shares.take()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert shares._next_iteration is None
