"""A connection to a database that does not answer is cut, but not because this process was suspended."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from service.ledger.postgres.address import parse_address
from service.ledger.postgres.overdue import ConnectionHung, OverdueWatch
from tests.fakes.clock import Clock
from tests.serving.backing.postgres_server import PostgresCluster

LIMIT_S = 12.0


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def connection(postgres: PostgresCluster) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(parse_address(postgres.new_database()).conninfo, autocommit=True) as one:
        yield one


def look_until(watch: OverdueWatch, clock: Clock, end_s: float) -> None:
    """Advance the clock to `end_s` in steps of 0.5 s, with a look at each, as the watching thread does."""
    while clock.now < end_s:
        clock.now += 0.5
        watch.check()


def test_a_connection_in_use_for_too_long_is_closed(clock: Clock, connection: psycopg.Connection[Any]) -> None:
    watch = OverdueWatch(LIMIT_S, clock)
    with pytest.raises(ConnectionHung, match="has not answered for 12 s"), watch.over(connection):
        look_until(watch, clock, clock.now + LIMIT_S + 1.0)


def test_a_pause_before_the_first_check_does_not_count(clock: Clock, connection: psycopg.Connection[Any]) -> None:
    watch = OverdueWatch(LIMIT_S, clock)
    watch.start()
    with watch.over(connection):
        clock.now += 100.0
        watch.check()
        assert connection.execute("SELECT 1").fetchone() == (1,)
    watch.close()


def test_time_in_which_this_process_was_paused_does_not_count(
    clock: Clock, connection: psycopg.Connection[Any]
) -> None:
    watch = OverdueWatch(LIMIT_S, clock)
    with watch.over(connection):
        look_until(watch, clock, clock.now + 1.0)
        clock.now += 100.0
        watch.check()
        assert connection.execute("SELECT 1").fetchone() == (1,)
    with pytest.raises(ConnectionHung), watch.over(connection):
        look_until(watch, clock, clock.now + LIMIT_S + 1.0)
