"""Faults of a fleet's hosts, its database, its bucket and its clocks; each is undone at its end."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.service.fleet.hosts import FleetOfHosts

_PAUSE_S = 3.0
RESTART_AFTER_S = 3.0
KILL = "kill_a_node"
_STUTTER_S = (0.2, 0.05)
"""Seconds for which a slow process alternately stops and runs."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault, with its start and end on the monotonic clock. address: that of the affected node; empty if none is."""

    kind: str
    address: str
    begun: float
    ended: float


@dataclass(slots=True)
class Faults:
    """Faults one after the other, while clients send; each fault restores the earlier state at its end."""

    hosts: FleetOfHosts
    chance: random.Random
    done: list[Fault] = field(default_factory=list)
    _address: str = ""

    async def run(self, stop: asyncio.Event) -> None:
        """Cause faults until the event is set."""
        kinds = (
            self.kill_a_node,
            self.freeze_a_node,
            self.restart_the_database,
            self.fail_over_the_database,
            self.freeze_the_database,
            self.slow_the_database,
            self.cut_a_node_from_the_database,
            self.slow_the_store,
            self.take_the_store_away,
            self.set_a_clock,
        )
        while not stop.is_set():
            for kind in self.chance.sample(kinds, len(kinds)):
                await asyncio.sleep(_PAUSE_S)
                if stop.is_set():
                    return
                self._address, begun = "", time.monotonic()
                await kind()
                self.done.append(Fault(kind.__name__, self._address, begun, time.monotonic()))

    async def kill_a_node(self) -> None:
        """SIGKILL a node; it is started again later with the same folder."""
        node = self.hosts.fleet.nodes[self._node()]
        await asyncio.to_thread(node.kill)
        await asyncio.sleep(RESTART_AFTER_S)
        await asyncio.to_thread(node.start)

    async def freeze_a_node(self) -> None:
        """SIGSTOP a node for 15 s, longer than a lease."""
        number = self._node()
        self.hosts.fleet.freeze(number)
        await asyncio.sleep(15.0)
        self.hosts.fleet.thaw(number)

    async def restart_the_database(self) -> None:
        """Restart the database at once; all connections end."""
        await asyncio.to_thread(self.hosts.databases.primary.stop)
        await asyncio.to_thread(self.hosts.databases.primary.start)

    async def fail_over_the_database(self) -> None:
        """SIGQUIT the database; its standby is promoted after 2 s, and gets a new standby."""
        await asyncio.to_thread(self.hosts.databases.primary.stop, signal.SIGQUIT)
        await asyncio.sleep(2.0)
        await asyncio.to_thread(self.hosts.databases.fail_over)
        await asyncio.sleep(2.0)
        await asyncio.to_thread(self.hosts.databases.restore)

    async def freeze_the_database(self) -> None:
        """SIGSTOP the database for 8 s: connections stay open, and nothing answers."""
        primary = self.hosts.databases.primary
        primary.freeze()
        await asyncio.sleep(8.0)
        primary.thaw()

    async def slow_the_database(self) -> None:
        """Slow the database to a fifth of its speed for 10 s."""
        primary = self.hosts.databases.primary
        await _stutter(primary.freeze, primary.thaw)

    async def cut_a_node_from_the_database(self) -> None:
        """Lose all packets between a node and the database for 20 s, longer than a lease; clients reach the node."""
        number = self._node()
        self.hosts.cut_from_database(number)
        await asyncio.sleep(20.0)
        self.hosts.mend(number)

    async def slow_the_store(self) -> None:
        """Slow the S3 server to a fifth of its speed for 10 s."""
        await _stutter(self.hosts.bucket.freeze, self.hosts.bucket.thaw)

    async def take_the_store_away(self) -> None:
        """SIGKILL the S3 server; it is started again after 8 s."""
        self.hosts.bucket.stop()
        await asyncio.sleep(8.0)
        await asyncio.to_thread(self.hosts.bucket.start)

    async def set_a_clock(self) -> None:
        """Set a host's clock wrong by up to ten minutes; it stays wrong."""
        self.hosts.clocks[self._node()].shift(self.chance.randint(-600, 600))

    def _node(self) -> int:
        number = self.chance.randrange(len(self.hosts.fleet.nodes))
        self._address = self.hosts.hosts[number].address
        return number


async def _stutter(freeze: Callable[[], None], thaw: Callable[[], None]) -> None:
    """Freeze and thaw processes alternately for 10 s, so that they run a fifth of the time."""
    still_s, runs_s = _STUTTER_S
    for _ in range(round(10.0 / (still_s + runs_s))):
        freeze()
        await asyncio.sleep(still_s)
        thaw()
        await asyncio.sleep(runs_s)
