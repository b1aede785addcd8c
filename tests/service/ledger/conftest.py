"""An empty ledger of each kind: SQLite and PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from service.jobs import jobs_table, webhook_table
from service.ledger.contract import Connections
from service.ledger.postgres.address import parse_address
from service.ledger.postgres.server import PostgresServer
from service.ledger.sqlite_file import SqliteFile
from service.repeats import cache_table, idempotency_table
from service.saving import index_table
from tests.serving.backing.postgres_server import PostgresCluster

TABLES = (jobs_table, webhook_table, idempotency_table, cache_table, index_table)
Connect = Callable[[], Connections]


@pytest.fixture(params=["sqlite", "postgres"])
def connect(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Connect]:
    """Open another connection to the same ledger, as another process would: `connect()`; closed after the test."""
    opened: list[Connections] = []
    if request.param == "postgres":
        cluster: PostgresCluster = request.getfixturevalue("postgres")
        address = parse_address(cluster.new_database())

    def process() -> Connections:
        if request.param == "postgres":
            one: Connections = PostgresServer(address)
        else:
            one = SqliteFile(tmp_path / "ledger", [table.SCHEMA for table in TABLES])
        opened.append(one)
        one.open()
        return one

    yield process
    for one in opened:
        one.close()


@pytest.fixture
def ledger(connect: Connect) -> Connections:
    return connect()
