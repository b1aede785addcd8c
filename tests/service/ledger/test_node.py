"""The processes of a fleet in one database: leases by the database's clock, and notifications that wake them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from service.ledger.contract import Transaction
from service.ledger.postgres.address import Address, parse_address
from service.ledger.postgres.node import Node
from service.ledger.postgres.server import PostgresServer
from tests.serving.backing.postgres_server import PostgresCluster
from tests.serving.waiting import until

_LEASE_S = 1.0
Join = Callable[..., Awaitable[Node]]


@pytest.fixture
def address(postgres: PostgresCluster) -> Address:
    return parse_address(postgres.new_database())


@pytest.fixture
async def join(address: Address) -> AsyncIterator[Join]:
    """Add a process: `join(name, clock)`."""
    joined: list[Node] = []

    async def process(name: str, clock: Callable[[], float] = time.monotonic) -> Node:
        node = Node(PostgresServer(address), lambda: name, clock, _LEASE_S)
        joined.append(node)
        await asyncio.to_thread(node.open, asyncio.get_running_loop())
        return node

    yield process
    for node in joined:
        await asyncio.to_thread(node.close)


def die(node: Node) -> None:
    """Stop its heartbeats without signing off, as if its host lost power."""
    node._ended.set()
    node._thread.join()


async def test_a_process_without_heartbeats_is_dead_when_its_lease_ends_and_not_before(join: Join) -> None:
    here, there = await join("here"), await join("there")
    await until(lambda: here.is_steady)
    assert here.is_alive("there")
    assert not here.is_alive("never there")
    die(there)
    died = time.monotonic()
    assert here.is_alive("there")
    await until(lambda: not here.is_alive("there"))
    assert time.monotonic() - died > _LEASE_S / 2


async def test_a_process_that_ends_releases_its_lease(join: Join) -> None:
    here, there = await join("here"), await join("there")
    await until(lambda: here.is_steady)
    await asyncio.to_thread(there.close)
    assert not here.is_alive("there")


async def test_a_new_or_paused_process_declares_no_other_dead(join: Join) -> None:
    here = await join("here")
    assert not here.is_steady
    assert here.is_alive("unknown")
    await until(lambda: here.is_steady)
    die(here)
    await until(lambda: not here.is_steady)
    assert here.is_alive("unknown"), "its own heartbeats are missing, too"


async def test_all_processes_have_the_clock_of_the_database(join: Join) -> None:
    behind = await join("behind", lambda: time.monotonic() - 300.0)
    ahead = await join("ahead", lambda: time.monotonic() + 300.0)
    assert abs(behind.now() - ahead.now()) < 0.5
    assert abs(ahead.now() - time.time()) < 0.5


async def test_a_notification_wakes_all_waiters_for_its_topic_in_every_process(join: Join) -> None:
    nodes = [await join("here"), await join("there")]
    await until(lambda: all(node.is_steady for node in nodes))
    waits = [asyncio.create_task(node.changed("jobs", 30.0)) for node in nodes]
    others = [asyncio.create_task(node.changed("keys", 30.0)) for node in nodes]
    await asyncio.sleep(0.2)

    def tell(ledger: Transaction) -> None:
        ledger.notify("jobs")

    await asyncio.to_thread(nodes[0].server.write, tell)
    await asyncio.wait_for(asyncio.gather(*waits), 20)
    assert not any(other.done() for other in others)
    for other in others:
        other.cancel()
    await asyncio.gather(*others, return_exceptions=True)


async def test_without_a_notification_the_wait_times_out(join: Join) -> None:
    node = await join("here")
    await until(lambda: node.is_steady)
    begun = time.monotonic()
    await node.changed("jobs", 0.05)
    assert time.monotonic() - begun >= 0.04

    def fail(ledger: Transaction) -> None:
        ledger.notify("jobs")
        ledger.execute("SELECT nothing")

    waiting = asyncio.create_task(node.changed("jobs", 0.3))
    with pytest.raises(Exception, match="nothing"):
        await asyncio.to_thread(node.server.write, fail)
    await asyncio.sleep(0.1)
    assert not waiting.done(), "a transaction that failed notifies no process"
    await waiting
