"""The hosts of a fleet serve a version once a large enough share of the living hosts has it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass

import pytest

from service.fleet.model_agreement import SharedAgreement
from service.ledger.postgres.address import parse_address
from service.ledger.postgres.node import Node
from service.ledger.postgres.server import PostgresServer
from tests.fakes.clock import Clock
from tests.serving.backing.postgres_server import PostgresCluster
from tests.serving.waiting import until

pytestmark = pytest.mark.slow
_LEASE_S = 1.0
_COUNTS_S = 60.0
"""Seconds for which a host counts after its last heartbeat; on the database's clock, which does not stand."""
ONE, TWO = "photos/1@aa", "photos/2@bb"


@dataclass
class Host:
    """A process that follows a bucket of models."""

    node: Node
    agreement: SharedAgreement

    async def agreed(self, *versions: str) -> set[str]:
        return await asyncio.to_thread(self.agreement.agreed, versions)

    async def leave(self) -> None:
        await asyncio.to_thread(self.node.close)


Join = Callable[..., Awaitable[Host]]


@pytest.fixture
def clock() -> Clock:
    """The monotonic clock of all hosts; while it stands, steady hosts stay steady, also if the machine is busy."""
    return Clock()


async def become_steady(clock: Clock, hosts: Sequence[Host]) -> None:
    """Advance the hosts' clock by more than a lease, with heartbeats."""
    for _ in range(3):
        clock.now += 0.4 * _LEASE_S
        await until(lambda: all(host.node._heartbeat_at == clock.now for host in hosts))
    assert all(host.node.is_steady for host in hosts)


@pytest.fixture
async def join(postgres: PostgresCluster, clock: Clock) -> AsyncIterator[Join]:
    """Add a host: `join(name, share)`."""
    address, joined = parse_address(postgres.new_database()), list[Node]()

    async def host(name: str, share: float = 1.0) -> Host:
        node = Node(PostgresServer(address), lambda: name, clock, _LEASE_S)
        await asyncio.to_thread(node.open, asyncio.get_running_loop())
        joined.append(node)
        agreement = SharedAgreement(node.server, share, name, _COUNTS_S, lambda: node.is_steady)
        return Host(node, agreement)

    yield host
    for node in joined:
        await asyncio.to_thread(node.close)


async def test_a_version_is_served_when_the_last_host_has_it_and_by_all_of_them(join: Join, clock: Clock) -> None:
    hosts = [await join(f"host{n}") for n in range(3)]
    await become_steady(clock, hosts)
    for host in hosts:
        await host.agreed()
    assert await hosts[0].agreed(ONE) == set()
    assert await hosts[1].agreed(ONE) == set()
    assert await hosts[2].agreed(ONE) == {ONE}
    assert await hosts[0].agreed(ONE, TWO) == {ONE}
    late = await join("late")
    assert await late.agreed() == set()
    assert await late.agreed(ONE) == {ONE}, "it was agreed on before"


async def test_a_share_of_the_hosts_is_enough_and_dead_ones_do_not_count(join: Join, clock: Clock) -> None:
    hosts = [await join(f"host{n}", 0.5) for n in range(4)]
    await become_steady(clock, hosts)
    for host in hosts:
        await host.agreed()
    assert await hosts[0].agreed(ONE) == set()
    assert await hosts[1].agreed(ONE) == {ONE}
    assert await hosts[0].agreed(ONE, TWO) == {ONE}
    await hosts[2].leave()
    await hosts[3].leave()
    assert await hosts[0].agreed(ONE, TWO) == {ONE, TWO}


async def test_a_new_host_agrees_on_nothing_and_withdrawn_versions_are_agreed_on_again(
    join: Join, clock: Clock
) -> None:
    host = await join("host")
    assert await host.agreed(ONE) == set()
    await become_steady(clock, [host])
    assert await host.agreed(ONE) == {ONE}
    another = await join("another")
    await become_steady(clock, [host, another])
    assert await host.agreed() == set()
    await another.agreed()
    assert await host.agreed(ONE) == set()
