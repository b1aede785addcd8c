"""Compares the two ledgers: the same server with SQLite and with PostgreSQL, loaded alternately in one run.

    .venv/bin/python -m benchmarks.load.ledgers [--rounds 6] [--seconds 8] [--side 256] [--json FILE]

Both servers save to one S3 server on this machine and use the fake engine; PostgreSQL, with fsync on, runs here too.
Three kinds of request: answered at once, answered at once with a new `Idempotency-Key` each, and jobs (to their end).
Reported: the medians over the rounds of p50 and of requests per second, their ratios, and the transactions that
PostgreSQL committed per request, without the heartbeats and polls of an idle server.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

import httpx
import psycopg

from benchmarks.harness.inputs import inpaint_body
from benchmarks.harness.metric_totals import total_in
from benchmarks.harness.raw_http import Client, encode
from tests.serving.backing.postgres_server import PostgresCluster, running_postgres
from tests.serving.backing.s3_server import KEY, SECRET, serving_bucket
from tests.serving.served_process import ServedProcess
from tests.serving.waiting import wait_until

_CONNECTIONS = 8
_STATISTICS_S = 11.0
"""Seconds after which PostgreSQL's statistics are complete: idle connections report theirs after 10 s."""
_HEADERS: dict[str, Callable[[], dict[str, str]]] = {
    "at once": dict,
    "with a key": lambda: {"Idempotency-Key": uuid4().hex},
    "jobs": lambda: {"Prefer": "respond-async"},
}


@dataclass(slots=True)
class Figures:
    """Measurements of one server with one kind of request, a value for each round."""

    p50_ms: list[float] = field(default_factory=list)
    per_s: list[float] = field(default_factory=list)
    transactions: list[float] = field(default_factory=list)


@contextmanager
def servers(folder: Path, postgres: PostgresCluster) -> Iterator[tuple[dict[str, ServedProcess], str]]:
    """Run both servers; yields them by the name of their ledger, and the address of the database."""
    with ExitStack() as stack:
        bucket = stack.enter_context(serving_bucket(folder))
        database = postgres.new_database()
        shared = {"s3_endpoint": f"http://127.0.0.1:{bucket.port}", "log_level": "warning", "spool_max_items": 4096}
        environ = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}
        chosen = {"sqlite": {}, "postgres": {"ledger_url": database}}
        running = {}
        for name, more in chosen.items():
            home = folder / name
            home.mkdir()
            place = {"results_url": f"s3://results/{name}", "log_level": "info"}
            running[name] = stack.enter_context(ServedProcess(home, environ, **{**shared, **more, **place}))
        yield running, database


async def load(url: str, kind: str, body: tuple[str, bytes], seconds: float) -> tuple[list[float], float]:
    """Load a server in a closed loop; returns the latencies of its answers and the whole time, in seconds."""
    host, _, port = url.removeprefix("http://").partition(":")
    client, latencies, started = Client(host, int(port)), [], time.perf_counter()

    async def keep_sending() -> None:
        while time.perf_counter() < started + seconds:
            sent = time.perf_counter()
            reply = await client.send(encode("/v1/inpaint", *body, _HEADERS[kind]()))
            assert reply.status in (200, 202), reply
            while kind == "jobs":
                state = await client.get(reply.headers["location"])
                if b"succeeded" in state.body:
                    break
                await asyncio.sleep(0.005)
            latencies.append(time.perf_counter() - sent)

    await asyncio.gather(*(keep_sending() for _ in range(_CONNECTIONS)))
    client.close()
    return latencies, time.perf_counter() - started


def committed(database: str, url: str) -> int:
    """Wait until the server has saved all results; returns the number of transactions that the database committed."""
    wait_until(lambda: not total_in(httpx.get(f"{url}/metrics").text, "retouch_spool_items"))
    time.sleep(_STATISTICS_S)
    with psycopg.connect(database, autocommit=True) as connection:
        row = connection.execute(
            "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"
        ).fetchone()
    assert row is not None
    return int(row[0])


def measure(options: argparse.Namespace) -> dict[str, dict[str, Figures]]:
    """Load both servers alternately; returns the figures by kind of request and ledger."""
    body = inpaint_body(options.side)
    found = {kind: {name: Figures() for name in ("sqlite", "postgres")} for kind in _HEADERS}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        postgres = stack.enter_context(running_postgres({"fsync": "on"}))
        running, database = stack.enter_context(servers(folder, postgres))
        for kind in _HEADERS:
            for server in running.values():
                asyncio.run(load(server.url, kind, body, 2.0))
        for number in range(options.rounds):
            for kind in _HEADERS:
                for name in ("sqlite", "postgres") if number % 2 else ("postgres", "sqlite"):
                    latencies, lasted_s = asyncio.run(load(running[name].url, kind, body, options.seconds))
                    one = found[kind][name]
                    one.p50_ms.append(statistics.median(latencies) * 1e3)
                    one.per_s.append(len(latencies) / lasted_s)
        url = running["postgres"].url
        before, started = committed(database, url), time.monotonic()
        idle_per_s = (committed(database, url) - before) / (time.monotonic() - started)
        print(f"a server without requests: {idle_per_s:.1f} transactions a second")
        for kind in _HEADERS:
            before, started = committed(database, url), time.monotonic()
            latencies, _ = asyncio.run(load(url, kind, body, options.seconds))
            transactions = committed(database, url) - before - idle_per_s * (time.monotonic() - started)
            found[kind]["postgres"].transactions.append(transactions / len(latencies))
            found[kind]["sqlite"].transactions.append(0.0)
    return found


def main() -> None:
    """Measure, and print a row for each kind of request."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=6, help="number of rounds")
    parser.add_argument("--seconds", type=float, default=8.0, help="length of each measurement in seconds")
    parser.add_argument("--side", type=int, default=256, help="side of the pictures in pixels")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    rows = []
    for kind, both in measure(options).items():
        middle = {
            name: {what: statistics.median(getattr(one, what)) for what in ("p50_ms", "per_s", "transactions")}
            for name, one in both.items()
        }
        old, new = middle["sqlite"], middle["postgres"]
        rows.append({"kind": kind, **middle, "per_s_ratio": new["per_s"] / old["per_s"]})
        print(
            f"{kind:12} SQLite {old['p50_ms']:6.1f} ms {old['per_s']:6.1f}/s   PostgreSQL {new['p50_ms']:6.1f} ms "
            f"{new['per_s']:6.1f}/s   ratio {new['per_s'] / old['per_s']:.3f}   "
            f"{new['transactions']:.1f} transactions a request"
        )
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
