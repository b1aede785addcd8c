"""Work on the event loop takes turns, so that the loop sees to everything else in between."""

from __future__ import annotations

import asyncio

import pytest

from service.imaging.pool.loop_turns import Turns


async def test_a_lone_request_does_not_wait() -> None:
    turns = Turns(2)
    taking = turns.take()
    with pytest.raises(StopIteration):
        taking.send(None)


async def test_each_round_of_the_loop_lets_a_few_through_in_the_order_they_came() -> None:
    turns, through = Turns(2), list[int]()

    async def one(number: int) -> None:
        await turns.take()
        through.append(number)

    tasks = [asyncio.create_task(one(number)) for number in range(7)]
    seen = []
    while not all(task.done() for task in tasks):
        await asyncio.sleep(0)
        seen.append(len(through))
    assert through == list(range(7))
    assert all(later - earlier <= 2 for earlier, later in zip([0, *seen], seen, strict=False))


async def test_who_leaves_takes_no_turn_from_others() -> None:
    turns, through = Turns(1), list[int]()

    async def one(number: int) -> None:
        await turns.take()
        through.append(number)

    tasks = [asyncio.create_task(one(number)) for number in range(50)]
    await asyncio.sleep(0)
    for task in tasks[1:-1]:
        task.cancel()
    for _ in range(5):
        await asyncio.sleep(0)
    assert through == [0, 49]
    assert tasks[-1].done()


async def test_a_loop_that_has_nothing_to_do_rests() -> None:
    turns = Turns(1)
    await turns.take()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert turns._next_round is None
