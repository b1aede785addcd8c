"""A fleet across hosts: servers, a database, its standby and a bucket, each on its own host."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.service.fleet.nodes import Fleet
from tests.serving.backing.postgres_server import PostgresPair, running_pair
from tests.serving.backing.s3_server import KEY, SECRET, Bucket, serving_bucket
from tests.serving.hosts.clock import HostClock, host_clock
from tests.serving.hosts.network import Host, HostNetwork, host_network
from tests.serving.served_process import SERVE, ServedProcess

_DATABASE = "retouch"


@dataclass
class FleetOfHosts:
    """The hosts and their servers; host `n` runs node `n`."""

    fleet: Fleet
    network: HostNetwork
    hosts: list[Host]
    databases: PostgresPair
    bucket: Bucket
    clocks: list[HostClock]
    """The clock of each host."""

    def cut_from_database(self, number: int) -> None:
        """Drop every packet between a node and the database and its standby."""
        for server in (self.databases.primary, self.databases.standby):
            assert server.host is not None
            self.network.cut(self.hosts[number], server.host)

    def mend(self, number: int) -> None:
        """Undo `cut_from_database`."""
        for server in (self.databases.primary, self.databases.standby):
            assert server.host is not None
            self.network.mend(self.hosts[number], server.host)


@contextmanager
def running_hosts(folder: Path, count: int, **settings: Any) -> Iterator[FleetOfHosts]:
    """Run `count` nodes until the block ends; skips the test where namespaces or PostgreSQL are missing."""
    with ExitStack() as stack:
        network = stack.enter_context(host_network())
        databases = stack.enter_context(running_pair(network.add_host(), network.add_host()))
        bucket = stack.enter_context(serving_bucket(folder, network.add_host()))
        bucket.keep_folders("fleet")
        databases.primary.query(f"CREATE DATABASE {_DATABASE}")
        chosen = {
            "ledger_url": databases.url(_DATABASE),
            "results_url": "s3://results/fleet",
            "s3_endpoint": bucket.endpoint,
            "allow_anonymous": True,
            **settings,
        }
        hosts, clocks, nodes = [network.add_host() for _ in range(count)], [], []
        for number, host in enumerate(hosts):
            home = folder / f"node{number}"
            home.mkdir()
            clocks.append(host_clock(home))
            environ = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, **clocks[-1].environ}
            nodes.append(ServedProcess(home, environ, host.command(*SERVE), host=host.address, **chosen))
            stack.push(nodes[-1].__exit__)
            nodes[-1].launch()
        for node in nodes:
            node.wait()
        fleet = Fleet(nodes, bucket, chosen["ledger_url"])
        yield FleetOfHosts(fleet, network, hosts, databases, bucket, clocks)
