"""A fleet on one machine: real server processes with separate folders, one PostgreSQL, one bucket."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from tests.serving.backing.postgres_server import PostgresCluster
from tests.serving.backing.s3_server import KEY, SECRET, Bucket, serving_bucket
from tests.serving.served_process import ServedProcess

Files = dict[str, tuple[str, bytes, str]]
ASYNC = {"Prefer": "respond-async"}
PATH = "/v1/inpaint"


@dataclass
class Fleet:
    """The servers, and the bucket and database that they share."""

    nodes: list[ServedProcess]
    bucket: Bucket
    database: str
    killed: set[int] = field(default_factory=set)

    def url(self, number: int) -> str:
        return self.nodes[number % len(self.nodes)].url

    def kill(self, number: int) -> None:
        """Kill a server, as if its host lost power."""
        self.nodes[number].kill()
        self.killed.add(number)

    def freeze(self, number: int) -> None:
        self.nodes[number].process.send_signal(signal.SIGSTOP)

    def thaw(self, number: int) -> None:
        self.nodes[number].process.send_signal(signal.SIGCONT)

    def computed(self) -> int:
        """Number of samples that the engines of all living nodes have computed."""
        alive = [node for number, node in enumerate(self.nodes) if number not in self.killed]
        return sum(_computed(httpx.get(f"{node.url}/metrics").text) for node in alive)


def _computed(metrics: str) -> int:
    lines = [line for line in metrics.splitlines() if line.startswith("retouch_batch_size_sum")]
    return round(sum(float(line.rpartition(" ")[2]) for line in lines))


@contextmanager
def running_fleet(folder: Path, postgres: PostgresCluster, count: int, **settings: Any) -> Iterator[Fleet]:
    """Run `count` servers until the block ends."""
    with ExitStack() as stack:
        bucket = stack.enter_context(serving_bucket(folder))
        bucket.keep_folders("fleet")
        database = postgres.new_database()
        chosen = {
            "ledger_url": database,
            "results_url": "s3://results/fleet",
            "s3_endpoint": f"http://127.0.0.1:{bucket.port}",
            **settings,
        }
        environ = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}
        nodes = []
        for number in range(count):
            home = folder / f"node{number}"
            home.mkdir()
            nodes.append(ServedProcess(home, environ, **chosen))
            nodes[-1].launch()
        for node in nodes:
            stack.push(node.__exit__)
            node.wait()
        yield Fleet(nodes, bucket, database)


async def ended(http: httpx.AsyncClient, fleet: Fleet, job: str, first_node: int = 0) -> dict[str, Any]:
    """Poll the nodes in turn, without killed ones, until the job has ended; returns its document.

    A GET whose connection breaks is repeated while its node runs; AssertionError with the log if the node has ended.
    """
    for look in range(6000):
        number = (first_node + look) % len(fleet.nodes)
        if number in fleet.killed:
            continue
        try:
            reply = await http.get(f"{fleet.url(number)}{job}")
        except httpx.TransportError:
            assert fleet.nodes[number].process.poll() is None, fleet.nodes[number].log
            continue
        if reply.status_code == 200 and reply.json()["status"] not in ("queued", "running"):
            return dict(reply.json())
        assert reply.status_code in (200, 503), reply.text
        await asyncio.sleep(0.02)
    raise AssertionError(f"{job} did not end")
