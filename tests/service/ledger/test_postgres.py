"""What is special to PostgreSQL: secret passwords, two versions at once, and a database that fails and returns."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

import pytest

from service.core.errors import NotReady
from service.core.settings import SettingsInvalid
from service.jobs import jobs_table
from service.jobs.jobs_table import Job
from service.ledger.contract import Transaction
from service.ledger.postgres import migrating
from service.ledger.postgres.address import parse_address
from service.ledger.postgres.migrating import migrations
from service.ledger.postgres.server import PostgresServer
from tests.serving.backing.postgres_server import PASSWORD, WRITTEN, PostgresCluster, running_postgres
from tests.serving.waiting import wait_until

JOB = Job("1" * 32, "queued", "me", 1.0, {})
WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"


@pytest.fixture(scope="module")
def own_cluster() -> Iterator[PostgresCluster]:
    """A PostgreSQL server that these tests may stop."""
    with running_postgres() as cluster:
        yield cluster


@pytest.fixture
def server(own_cluster: PostgresCluster) -> Iterator[PostgresServer]:
    one = PostgresServer(parse_address(own_cluster.new_database()))
    one.open()
    yield one
    one.close()


def found_again(server: PostgresServer, within_s: float) -> Job | None:
    """Ask for `JOB` until the database answers; None if it does not within `within_s` seconds."""
    ends = time.monotonic() + within_s
    while time.monotonic() < ends:
        with suppress(NotReady):
            return server.read(partial(jobs_table.find, job_id=JOB.id))
    return None


@pytest.mark.parametrize(
    ("url", "secret"),
    [
        ("postgresql://u:sec#ret@h:5432/db", "sec"),
        ("postgresql://u:sec?ret@h/db", "sec"),
        ("postgresql://u:sec%23ret@h/db", "sec"),
        ("postgresql://h/db?user=u&password=secret", "secret"),
        ("postgresql://u:secret@h1:1,h2:2/db", "secret"),
    ],
)
def test_the_shown_address_has_no_password(url: str, secret: str) -> None:
    address = parse_address(url)
    assert secret not in address.shown + repr(address)
    assert secret not in address.without_secrets(f"connection to {url} failed\nsecond line")


def test_each_host_of_an_address_is_shown_with_its_port() -> None:
    assert parse_address("postgresql://u:secret@h1:1,h2:2/db").shown == "postgresql://u@h1:1,h2:2/db"
    assert parse_address("postgresql://h1,h2/db").shown == "postgresql://h1,h2/db"


@pytest.mark.parametrize(
    "url",
    [
        "mysql://u:secret@h/db",
        "postgresql://u:sec/ret@h/db",
        "postgresql://u:12/secret@h/db",
        "postgresql://u:p@secret@h/db",
        "postgresql://u:secret%zz@h/db",
        "postgresql://u:a?b/secret@h/db",
        "postgresql://h:secret/db",
        "postgresql://h/db?secret=1",
        "secret",
    ],
)
def test_an_invalid_address_is_refused_without_being_quoted(url: str) -> None:
    with pytest.raises(SettingsInvalid, match="write / as %2F") as refused:
        parse_address(url)
    assert "secret" not in str(refused.value)


def test_a_wrong_password_stops_the_start_and_shows_no_part_of_it(postgres: PostgresCluster) -> None:
    url = postgres.new_database().replace(WRITTEN, "wr%23ng-p%3Fss")
    with pytest.raises(SettingsInvalid, match=r"postgresql://retouch@127\.0\.0\.1.*password authentication") as refused:
        PostgresServer(parse_address(url)).open()
    assert "wr" not in str(refused.value).replace("wrong", "")
    assert PASSWORD not in str(refused.value)


def test_a_missing_database_stops_the_start(free_port: int) -> None:
    with pytest.raises(SettingsInvalid, match="check ledger_url"):
        PostgresServer(parse_address(f"postgresql://u:{WRITTEN}@127.0.0.1:{free_port}/db")).open()


def test_a_read_only_database_is_not_used(own_cluster: PostgresCluster) -> None:
    url = own_cluster.new_database()
    own_cluster.query(f"ALTER DATABASE {url.rpartition('/')[2]} SET default_transaction_read_only = on")
    with pytest.raises(SettingsInvalid, match="session is read-only"):
        PostgresServer(parse_address(url)).open()


def refuse_writes(server: PostgresServer, connections: int) -> None:
    """Make `connections` connections of the pool read-only; each is taken while the ones before it are held."""

    def work(one: Transaction) -> None:
        one.execute("SET default_transaction_read_only = on")
        if connections > 1:
            refuse_writes(server, connections - 1)

    server.read(work)


def test_a_connection_that_became_read_only_is_replaced(server: PostgresServer) -> None:
    refuse_writes(server, connections=8)  # the pool's maximum: it opens some in advance
    with pytest.raises(NotReady, match="read-only"):
        server.write(partial(jobs_table.insert, job=JOB, max_unfinished=1))
    back, entered = time.monotonic(), None
    while entered is None and time.monotonic() - back < 5.0:
        with suppress(NotReady):
            entered = server.write(partial(jobs_table.insert, job=JOB, max_unfinished=1))
    assert entered == JOB


def test_servers_of_an_older_and_a_newer_version_run_side_by_side(
    postgres: PostgresCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = parse_address(postgres.new_database())
    older, newer, older_again = (PostgresServer(address) for _ in range(3))
    older.open()
    older.write(partial(jobs_table.insert, job=JOB, max_unfinished=1))
    for _ in range(20):  # psycopg prepares a statement that is run often
        assert older.read(partial(jobs_table.find, job_id=JOB.id)) == JOB
    newest = migrations()[-1][0]
    added = "ALTER TABLE jobs ADD COLUMN colour TEXT NOT NULL DEFAULT 'grey'; CREATE TABLE newer (one INTEGER)"
    with monkeypatch.context() as patch:
        patch.setattr(migrating, "migrations", lambda: [*migrations(), (newest + 1, added)])
        newer.open()
    assert older.read(partial(jobs_table.find, job_id=JOB.id)) == JOB
    colour = newer.read(lambda one: one.execute("SELECT colour FROM jobs").fetchone())
    assert colour == {"colour": "grey"}
    older_again.open()
    assert older_again.read(partial(jobs_table.find, job_id=JOB.id)) == JOB
    for one in (older, newer, older_again):
        one.close()


def test_many_servers_that_start_at_once_migrate_once(postgres: PostgresCluster) -> None:
    address = parse_address(postgres.new_database())
    servers = [PostgresServer(address) for _ in range(8)]
    with ThreadPoolExecutor(len(servers)) as threads:
        list(threads.map(PostgresServer.open, servers))
    applied = servers[0].read(lambda one: one.execute("SELECT count(*) AS n FROM ledger_versions").fetchone())
    assert applied == {"n": len(migrations())}
    for one in servers:
        one.close()


def undo_migrations(ledger: Transaction) -> None:
    ledger.execute("DROP TABLE jobs_since")
    ledger.execute("DROP INDEX deliveries_in_turn")
    ledger.execute("ALTER TABLE jobs DROP COLUMN request_key")
    ledger.execute("ALTER TABLE jobs DROP COLUMN shared_runs, DROP COLUMN given_back")
    ledger.execute("ALTER TABLE idempotency DROP COLUMN shared")
    ledger.execute("DELETE FROM ledger_versions WHERE version >= 3")


def test_a_migration_waits_for_a_long_transaction_and_holds_up_no_other(own_cluster: PostgresCluster) -> None:
    url = own_cluster.new_database()
    older, newer = (PostgresServer(parse_address(address)) for address in (url, f"{url}?options=-clock_timeout%3D200"))
    older.open()
    older.write(undo_migrations)
    holding, go_on = threading.Event(), threading.Event()

    def hold(one: Transaction) -> None:
        one.execute("SELECT count(*) FROM jobs")
        holding.set()
        assert go_on.wait(20)

    with ThreadPoolExecutor(2) as threads:
        held = threads.submit(older.write, hold)
        try:
            assert holding.wait(20)
            opening = threads.submit(newer.open)
            wait_until(lambda: opening.done() or own_cluster.query(WAITING) == "1")
            assert older.read(partial(jobs_table.find, job_id=JOB.id)) is None
            assert not opening.done()
        finally:
            go_on.set()
        held.result()
        opening.result()
    assert newer.write(partial(jobs_table.insert, job=JOB, max_unfinished=1, request_key="key")) == JOB
    for one in (older, newer):
        one.close()


def test_a_restart_of_the_database_fails_no_later_transaction(
    own_cluster: PostgresCluster, server: PostgresServer
) -> None:
    assert server.write(partial(jobs_table.insert, job=JOB, max_unfinished=1)) == JOB
    own_cluster.stop()
    own_cluster.start()
    assert server.read(partial(jobs_table.find, job_id=JOB.id)) == JOB


def hold_all_connections(server: PostgresServer, most: int, held: threading.Event, let_go: threading.Event) -> None:
    """Hold `most` connections of the pool until `let_go`; sets `held` when it has them."""

    def work(_: Transaction) -> None:
        if most > 1:
            hold_all_connections(server, most - 1, held, let_go)
        else:
            held.set()
            assert let_go.wait(60)

    server.read(work)


@pytest.mark.parametrize(("jump_s", "found"), [(0.0, False), (60.0, True)])
def test_a_pool_timeout_caused_by_a_pause_of_this_process_is_retried(
    own_cluster: PostgresCluster, jump_s: float, found: bool
) -> None:
    jumps, looks, held, let_go = [0.0], list[str](), threading.Event(), threading.Event()

    def clock() -> float:
        looks.append(threading.current_thread().name)
        return time.monotonic() + jumps[0]

    server = PostgresServer(parse_address(own_cluster.new_database()), clock)
    server.open()
    with ThreadPoolExecutor(1, "ask") as one, ThreadPoolExecutor(1) as other:
        holding = other.submit(hold_all_connections, server, 8, held, let_go)
        assert held.wait(60)
        asked = one.submit(server.read, partial(jobs_table.find, job_id=JOB.id))
        wait_until(lambda: looks.count("ask_0") == 2)  # from now on it waits for a connection
        jumps[0] = jump_s
        wait_until(lambda: looks.count("ask_0") > 2)  # the pool's timeout has passed
        if found:
            let_go.set()
        assert isinstance(asked.exception(), NotReady) is not found
        let_go.set()
        holding.result()
    server.close()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT])
def test_an_unreachable_database_fails_fast_and_is_used_again_within_seconds(
    own_cluster: PostgresCluster, server: PostgresServer, how: signal.Signals
) -> None:
    assert server.write(partial(jobs_table.insert, job=JOB, max_unfinished=1)) == JOB
    own_cluster.stop(how)
    try:
        for longest_s in (6.0, 1.0):  # waiting for a connection takes 2 s
            asked = time.monotonic()
            with pytest.raises(NotReady) as refused:
                server.read(partial(jobs_table.find, job_id=JOB.id))
            assert refused.value.code == "ledger_unavailable"
            assert PASSWORD not in str(refused.value)
            assert time.monotonic() - asked < longest_s
    finally:
        own_cluster.start()
    assert found_again(server, within_s=5.0) == JOB


def test_a_hung_database_fails_and_is_used_again_when_it_recovers(own_cluster: PostgresCluster) -> None:
    server = PostgresServer(parse_address(own_cluster.new_database()), overdue_s=1.0)
    server.open()
    assert server.write(partial(jobs_table.insert, job=JOB, max_unfinished=1)) == JOB
    own_cluster.freeze()
    try:
        for _ in range(3):
            asked = time.monotonic()
            with pytest.raises(NotReady) as refused:
                server.read(partial(jobs_table.find, job_id=JOB.id))
            assert refused.value.code == "ledger_unavailable"
            assert time.monotonic() - asked < 8.0
            time.sleep(0.6)
    finally:
        own_cluster.thaw()
    assert found_again(server, within_s=10.0) == JOB
    server.close()


def test_a_failed_statement_does_not_mark_the_database_unreachable(server: PostgresServer) -> None:
    with pytest.raises(NotReady, match="nowhere"):
        server.read(lambda one: one.execute("SELECT * FROM nowhere"))
    server.read(lambda one: one.execute("SELECT 1"))
