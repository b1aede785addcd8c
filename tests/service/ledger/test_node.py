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
from tests.fakes.clock import Clock
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


async def become_steady(node: Node, clock: Clock) -> None:
    """Advance the node's clock by more than a lease, with heartbeats; while its clock stands it stays steady."""
    for _ in range(3):
        clock.now += 0.4 * _LEASE_S
        await until(lambda: node._heartbeat_at == clock.now)
    assert node.is_steady


async def test_a_process_without_heartbeats_is_dead_when_its_lease_ends_and_not_before(join: Join) -> None:
    clock = Clock()
    here, there = await join("here", clock), await join("there")
    await become_steady(here, clock)
    await until(lambda: here.is_alive("there"))
    assert not here.is_alive("never there")
    die(there)
    last_seen_at = there._heartbeat_at + there._offset
    await until(lambda: not here.is_alive("there"))
    assert time.time() - last_seen_at > _LEASE_S / 2


async def test_a_process_that_ends_releases_its_lease(join: Join) -> None:
    clock = Clock()
    here, there = await join("here", clock), await join("there")
    await become_steady(here, clock)
    await asyncio.to_thread(there.close)
    assert not here.is_alive("there")


async def test_a_new_or_paused_process_declares_no_other_dead(join: Join) -> None:
    clock = Clock()
    here = await join("here", clock)
    assert not here.is_steady
    assert here.is_alive("unknown")
    await become_steady(here, clock)
    assert not here.is_alive("unknown")
    die(here)
    clock.now += 0.6 * _LEASE_S
    assert not here.is_steady
    assert here.is_alive("unknown"), "its own heartbeats are missing, too"


async def test_all_processes_have_the_clock_of_the_database(join: Join) -> None:
    behind = await join("behind", lambda: time.monotonic() - 300.0)
    ahead = await join("ahead", lambda: time.monotonic() + 300.0)
    for one in (behind, ahead):  # heartbeats correct a comparison during which this process was paused
        await until(lambda one=one: abs(one.now() - time.time()) < 0.5)  # type: ignore[misc]


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

    waiting, later = (asyncio.create_task(node.changed(topic, 60.0)) for topic in ("jobs", "keys"))
    await asyncio.sleep(0)
    with pytest.raises(Exception, match="nothing"):
        await asyncio.to_thread(node.server.write, fail)
    await asyncio.to_thread(node.server.write, lambda ledger: ledger.notify("keys"))
    await later
    assert not waiting.done(), "a transaction that failed notifies no process"
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
