"""A memory budget that requests share; test_large_and_small_shares.py tests the division."""

from __future__ import annotations

import asyncio

import pytest

from service.admission.large_and_small_shares import Claim
from service.admission.memory_budget import MemoryBudget
from service.core.errors import DeadlineExceeded, Overloaded
from service.core.flow import Flow
from tests.fakes.clock import Clock


def budget_of(total: int) -> MemoryBudget:
    return MemoryBudget(total, Clock())


async def hold(budget: MemoryBudget, wanted: int, log: list[str], name: str, release: asyncio.Event) -> None:
    async with budget.share(Claim(wanted)):
        log.append(name)
        await release.wait()


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_shares_that_fit_are_granted_at_once_and_released() -> None:
    budget, log, release = budget_of(10), list[str](), asyncio.Event()
    tasks = [asyncio.create_task(hold(budget, 5, log, name, release)) for name in "ab"]
    await settle()
    assert (log, budget.granted_bytes) == (["a", "b"], 10)
    release.set()
    await asyncio.gather(*tasks)
    assert budget.granted_bytes == 0


async def test_a_share_that_does_not_fit_waits_and_a_later_small_one_does_not_overtake_it() -> None:
    budget, log, first, others = budget_of(10), list[str](), asyncio.Event(), asyncio.Event()
    tasks = [
        asyncio.create_task(hold(budget, 8, log, "a", first)),
        asyncio.create_task(hold(budget, 8, log, "b", others)),
        asyncio.create_task(hold(budget, 1, log, "c", others)),
    ]
    await settle()
    assert log == ["a"]
    first.set()
    await settle()
    assert log == ["a", "b", "c"]
    others.set()
    await asyncio.gather(*tasks)


async def test_a_claim_above_the_budget_is_granted_alone() -> None:
    budget, log, release = budget_of(10), list[str](), asyncio.Event()
    tasks = [asyncio.create_task(hold(budget, n, log, str(n), release)) for n in (99, 1)]
    await settle()
    assert (log, budget.granted_bytes) == (["99"], 10)
    release.set()
    await asyncio.gather(*tasks)
    assert budget.granted_bytes == 0


async def test_a_cancelled_claim_lets_the_next_one_be_granted() -> None:
    budget, log, release = budget_of(10), list[str](), asyncio.Event()
    holder = asyncio.create_task(hold(budget, 5, log, "a", release))
    await settle()
    large = asyncio.create_task(hold(budget, 9, log, "large", release))
    small = asyncio.create_task(hold(budget, 5, log, "small", release))
    await settle()
    large.cancel()
    await settle()
    assert log == ["a", "small"]
    release.set()
    await asyncio.gather(holder, small, large, return_exceptions=True)
    assert budget.granted_bytes == 0


async def test_a_share_granted_during_its_cancellation_is_released() -> None:
    budget, log = budget_of(10), list[str]()
    async with budget.share(Claim(10)):
        waiting = asyncio.create_task(hold(budget, 10, log, "b", asyncio.Event()))
        await settle()
    assert budget.granted_bytes == 10  # the waiting one's, whose task has not run since
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert (log, budget.granted_bytes) == ([], 0)


async def test_shares_and_claims_cancelled_at_once_leave_nothing_granted() -> None:
    budget, log, release = budget_of(10), list[str](), asyncio.Event()
    tasks = [asyncio.create_task(hold(budget, 5, log, name, release)) for name in "abcdef"]
    await settle()
    for task in tasks:
        task.cancel()
    ends = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(end) for end in ends] == [asyncio.CancelledError] * len(tasks)
    assert budget.granted_bytes == 0
    release.set()
    await asyncio.wait_for(hold(budget, 10, log, "next", release), 5)
    assert log[-1] == "next"


@pytest.mark.parametrize(("deadline_from_client", "error"), [(True, DeadlineExceeded), (False, Overloaded)])
async def test_a_claim_that_would_be_late_is_refused_with_a_retry_after(
    deadline_from_client: bool, error: type[DeadlineExceeded | Overloaded]
) -> None:
    clock = Clock()
    budget = MemoryBudget(10, clock)
    claims = [Claim(8, Flow("busy"), large=True, deadline=clock.now + 60.0, allowed_s=45.0) for _ in range(3)]
    releases = [asyncio.Event() for _ in claims]
    refused: list[DeadlineExceeded | Overloaded] = []

    async def one(claim: Claim, release: asyncio.Event) -> None:
        try:
            async with budget.share(claim, deadline_from_client=deadline_from_client):
                await release.wait()
        except (DeadlineExceeded, Overloaded) as failure:
            refused.append(failure)

    tasks = [asyncio.create_task(one(*each)) for each in zip(claims, releases, strict=True)]
    await settle()
    assert (budget.waiting_requests, refused) == (2, []), "nothing is known of how long it takes"
    clock.now += 25.0
    releases[0].set()
    await settle()
    (failure,) = refused
    assert type(failure) is error
    assert failure.retry_after_s == 5, "it would take 50 s from now, and has 45 when it comes again"
    assert (budget.granted_bytes, budget.waiting_requests) == (8, 0)
    releases[1].set()
    await asyncio.gather(*tasks)
    assert budget.granted_bytes == 0


async def test_a_claim_of_no_bytes_never_waits() -> None:
    budget, log, release = budget_of(10), list[str](), asyncio.Event()
    tasks = [asyncio.create_task(hold(budget, n, log, str(n), release)) for n in (10, 10, 0)]
    await settle()
    assert log == ["10", "0"]
    release.set()
    await asyncio.gather(*tasks)
