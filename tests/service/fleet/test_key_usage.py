"""Keys' limits, taken in blocks from a real PostgreSQL while no request waits for it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from service.core.errors import NotReady
from service.fleet.key_usage import SharedKeyUsage
from service.ledger.database import Database
from service.ledger.postgres.address import parse_address
from service.ledger.postgres.server import PostgresServer
from tests.serving.backing.postgres_server import PostgresCluster, running_postgres
from tests.serving.waiting import until

LEASE_S = 10.0


@pytest.fixture(scope="module")
def own_cluster() -> Iterator[PostgresCluster]:
    """A PostgreSQL server that the tests of this module may stop."""
    with running_postgres() as cluster:
        yield cluster


@pytest.fixture
def usages(own_cluster: PostgresCluster) -> Iterator[list[SharedKeyUsage]]:
    """Two processes' views of the use of keys in one ledger."""
    url = own_cluster.new_database()
    with ExitStack() as stack:
        ledgers = [stack.enter_context(Database(PostgresServer(parse_address(url)))) for _ in range(2)]
        yield [SharedKeyUsage(ledger, time.time, LEASE_S) for ledger in ledgers]


async def admitted(usage: SharedKeyUsage, times: int, allowed: int) -> int:
    """Ask `times` times, waiting for blocks to arrive; returns the number of admitted requests."""
    count = 0
    for _ in range(times):
        count += usage.take_request("key", allowed) == 0.0
        await block_arrived(usage)
    return count


async def block_arrived(usage: SharedKeyUsage) -> None:
    """Let other tasks run, and wait until no block is being fetched."""
    await asyncio.sleep(0)
    await until(lambda: usage._keys["key"].fetching is None)


async def test_two_processes_admit_a_keys_requests_of_a_day_and_hardly_more(usages: list[SharedKeyUsage]) -> None:
    counts = await asyncio.gather(*(admitted(usage, 80, 100) for usage in usages))
    assert all(counts)
    assert 95 <= sum(counts) <= 105
    for usage in usages:
        assert usage.take_request("key", 100) > 1.0
        await usage.close()


async def test_a_burst_is_one_for_all_processes_and_then_the_rate_holds(usages: list[SharedKeyUsage]) -> None:
    waits, begun = [], time.monotonic()
    for turn in range(60):
        waits.append(usages[turn % 2].take_token("key", 0.1, 20))
        await block_arrived(usages[turn % 2])
    assert 18 <= waits.count(0.0) <= 23 + 0.1 * (time.monotonic() - begun)
    assert 0.5 < waits[-1] < 60
    usages[0].keep_only([])
    for usage in usages:
        await usage.close()


async def test_without_the_database_a_block_in_hand_is_used_and_then_requests_are_refused(
    usages: list[SharedKeyUsage], own_cluster: PostgresCluster
) -> None:
    usage = usages[0]
    assert await admitted(usage, 3, 1000) == 3
    own_cluster.stop()
    try:
        with pytest.raises(NotReady, match="the limits of this key cannot be checked now") as refused:
            await admitted(usage, 400, 1000)
        assert refused.value.code == "ledger_unavailable"
    finally:
        own_cluster.start()
    await usage.close()
