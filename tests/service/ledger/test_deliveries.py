"""The contract of ledgers for webhook deliveries: on an SQLite file and on a real PostgreSQL."""

from __future__ import annotations

import re
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from service.jobs import webhook_table
from service.jobs.webhook_table import Delivery
from service.ledger.contract import Connections, Transaction
from service.ledger.postgres.address import parse_address
from service.ledger.postgres.server import PostgresServer
from service.ledger.sqlite_file import SqliteFile
from tests.serving.backing.postgres_server import PostgresCluster

Connect = Callable[[], Connections]


def test_concurrent_claims_of_a_message_succeed_once(connect: Connect) -> None:
    processes = [connect() for _ in range(4)]
    messages = {f"msg_{number:03}" for number in range(200)}

    def add(ledger: Transaction) -> None:
        for name in messages:
            webhook_table.add(ledger, Delivery(name, "http://a", "{}", next_at=1.0))

    processes[0].write(add)
    start = threading.Barrier(len(processes))

    def claim_all(process: Connections) -> list[str]:
        start.wait()
        claimed: list[str] = []
        while due := process.read(partial(webhook_table.due_in_turn, now=1.0, max_per_origin=7, limit=300)):
            ids = [name for name, _ in due]
            taken = process.write(partial(webhook_table.claim, ids=ids, now=1.0, again_at=9.0))
            claimed += [message.id for message in taken]
            assert {message.tries for message in taken} <= {1}
        return claimed

    with ThreadPoolExecutor(len(processes)) as threads:
        claims = [name for claimed in threads.map(claim_all, processes) for name in claimed]
    assert sorted(claims) == sorted(messages)
    claimed = Delivery("msg_001", "http://a", "{}", next_at=9.0)
    assert processes[0].write(partial(webhook_table.postpone, claimed=claimed, next_at=0.5))
    assert not processes[0].write(partial(webhook_table.postpone, claimed=claimed, next_at=0.5)), "it was given back"
    processes[0].write(partial(webhook_table.remove, delivery_id="msg_002"))
    again = processes[0].write(partial(webhook_table.claim, ids=sorted(messages), now=9.0, again_at=10.0))
    assert {message.id for message in again} == messages - {"msg_002"}


def test_hosts_come_in_turn_whatever_the_paths_of_their_urls(ledger: Connections) -> None:
    urls = [
        *(f"https://one.test/jobs/{number:03}?from=https://two.test" for number in range(300)),
        *("https://one.test:8443", "HTTPS://Two.test?job=1", "https://two.test/", "https://two.test#1", "http://b"),
    ]

    def add(transaction: Transaction) -> None:
        for number, url in enumerate(urls):
            webhook_table.add(transaction, Delivery(f"msg_{number:03}", url, "{}", next_at=float(number)))

    ledger.write(add)
    due = partial(webhook_table.due_in_turn, max_per_origin=2, limit=7)
    assert [url for _, url in ledger.read(partial(due, now=304.0))] == [
        *(urls[number] for number in (0, 304, 300, 301)),
        *(urls[number] for number in (1, 302)),
    ]
    assert [name for name, _ in ledger.read(partial(due, now=303.0, limit=3))] == ["msg_000", "msg_301", "msg_300"]
    assert ledger.read(partial(due, now=-1.0)) == []


def test_messages_tried_before_do_not_hide_new_ones(ledger: Connections) -> None:
    failed = [f"msg_{number}" for number in range(30)]

    def add(transaction: Transaction) -> None:
        add_to_hosts(transaction, hosts=30, numbers=range(30))
        for claimed in webhook_table.claim(transaction, failed, now=100.0, again_at=200.0):
            webhook_table.postpone(transaction, claimed, next_at=150.0)
        webhook_table.add(transaction, Delivery("msg_new", "https://new.test", "{}", next_at=300.0))

    ledger.write(add)
    due = ledger.read(partial(webhook_table.due_in_turn, now=300.0, max_per_origin=2, limit=10))
    assert due[0] == ("msg_new", "https://new.test")
    assert len(due) == 10


def test_a_new_message_is_found_despite_many_older_untried_ones(
    ledger: Connections,
) -> None:
    def add(transaction: Transaction) -> None:
        add_to_hosts(transaction, hosts=60, numbers=range(60))
        webhook_table.add(transaction, Delivery("msg_new", "https://new.test", "{}", next_at=300.0))

    ledger.write(add)
    due = ledger.read(partial(webhook_table.due_in_turn, now=300.0, max_per_origin=2, limit=10))
    assert ("msg_new", "https://new.test") in due[:2]
    assert {name for name, _ in due} == {"msg_new", *(f"msg_{number}" for number in (*range(5), *range(56, 60)))}


def test_messages_to_some_origins_are_found_however_many_others_are_due(ledger: Connections) -> None:
    def add(transaction: Transaction) -> None:
        add_to_hosts(transaction, hosts=60, numbers=range(60))
        for number, at in enumerate((30.0, 31.0, 32.0, 999.0)):
            url = f"HTTPS://Known.test:8443?{number}"
            webhook_table.add(transaction, Delivery(f"msg_known{number}", url, "{}", next_at=at))

    ledger.write(add)
    always = [webhook_table.origin_of("https://known.test:8443/"), "https://not.there"]
    query = partial(webhook_table.due_in_turn, now=300.0, max_per_origin=2)
    due = dict(ledger.read(partial(query, limit=10, always=always)))
    assert [name for name in due if "known" in name] == ["msg_known0", "msg_known1"]
    assert len(due) == 12
    assert len(ledger.read(partial(query, limit=10))) == 10
    assert len(ledger.read(partial(query, limit=100, always=always))) == 62


@pytest.mark.parametrize(
    "url",
    ["https://a.test", "HTTPS://A.test:8443/B?c", "http://b", "http://[::1]:80/", "https://a.test#x", "no URL"],
)
def test_the_origin_of_a_url_is_the_same_in_the_ledger(ledger: Connections, url: str) -> None:
    ledger.write(lambda transaction: webhook_table.add(transaction, Delivery("msg", url, "{}", next_at=1.0)))
    ledger.write(partial(add_to_hosts, hosts=5, numbers=range(5)))
    query = partial(
        webhook_table.due_in_turn, now=9.0, max_per_origin=1, limit=1, always=[webhook_table.origin_of(url)]
    )
    assert ("msg", url) in ledger.read(query)


@pytest.mark.parametrize("hosts", [1, 30])
def test_a_backlog_of_thousands_costs_no_more_than_one_of_dozens(tmp_path: Path, hosts: int) -> None:
    with opened(tmp_path) as ledger:
        ledger.write(partial(add_to_hosts, hosts=hosts, numbers=range(300)))
        few = steps(ledger, expected=min(4 * hosts, 100))
        ledger.write(partial(add_to_hosts, hosts=hosts, numbers=range(300, 10_000)))
        assert steps(ledger, expected=min(4 * hosts, 100)) <= 1.1 * few
        ledger.write(lambda transaction: transaction.execute("ANALYZE"))
        assert steps(ledger, expected=min(4 * hosts, 100)) <= 2 * few, "SQLite's other plan, with statistics"


def test_thousands_of_receivers_cost_nothing_while_no_message_to_them_is_due(tmp_path: Path) -> None:
    with opened(tmp_path) as ledger:
        ledger.write(partial(add_to_hosts, hosts=3000, numbers=range(3000), due_at=2e9))
        assert steps(ledger, expected=0) < 100


def test_postgresql_finds_a_message_without_reading_another_receivers_backlog(
    postgres: PostgresCluster,
) -> None:
    def add(ledger: Transaction, host: str, messages: int) -> None:
        values = ((f"{host}{number}", f"https://{host}.test", "{}" * 400, float(number)) for number in range(messages))
        ledger.executemany("INSERT INTO deliveries (id, url, body, next_at) VALUES (?, ?, ?, ?)", values)

    class Explained:
        skip_locked, notify = "", None

        def __init__(self, ledger: Transaction) -> None:
            self.ledger = ledger

        def execute(self, statement: str, values: Sequence[Any]) -> Any:
            plans.append(self.ledger.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}", values).fetchone())
            return self.ledger.execute("SELECT 1 WHERE false")

    server, plans = PostgresServer(parse_address(postgres.new_database())), list[Any]()
    server.open()
    server.write(partial(add, host="busy", messages=5000))
    server.write(lambda ledger: ledger.execute("ANALYZE deliveries"))  # the planner's statistics know only one receiver
    for number in range(5):
        server.write(partial(add, host=f"quiet{number}", messages=1))
    query = partial(webhook_table.due_in_turn, now=1e9, max_per_origin=16, limit=1000)
    assert len(server.read(query)) == 16 + 5
    server.read(lambda ledger: query(cast("Transaction", Explained(ledger))))
    server.close()
    assert len(plans) == 1
    assert all(int(rows) < 10 for rows in re.findall("'Rows Removed by Filter': ([0-9]+)", str(plans)))
    assert "Seq Scan" not in str(plans)


@contextmanager
def opened(folder: Path) -> Iterator[SqliteFile]:
    ledger = SqliteFile(folder / "ledger", [webhook_table.SCHEMA])
    ledger.open()
    yield ledger
    ledger.close()


def add_to_hosts(transaction: Transaction, hosts: int, numbers: range, due_at: float = 0.0) -> None:
    for number in numbers:
        url = f"https://{number % hosts}.test"
        webhook_table.add(transaction, Delivery(f"msg_{number}", url, "{}", next_at=due_at + number))


def steps(ledger: SqliteFile, expected: int) -> int:
    """Return the virtual machine steps of `due_in_turn`, in tens; other reads wait while it runs."""
    counted: list[None] = []

    def query(transaction: Transaction) -> None:
        assert isinstance(transaction, sqlite3.Connection)
        transaction.set_progress_handler(lambda: counted.append(None), 10)
        assert len(webhook_table.due_in_turn(transaction, now=1e9, max_per_origin=4, limit=100)) == expected
        transaction.set_progress_handler(None, 0)

    ledger.read(query)
    return len(counted)
