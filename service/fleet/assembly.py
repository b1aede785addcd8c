"""Opens the state that processes share: on one host a file and a folder, with `ledger_url` a database and a bucket."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING
from uuid import uuid4

from service.auth.limits import KeyUsage
from service.core.settings import Settings, SettingsInvalid
from service.fleet.key_usage import SharedKeyUsage
from service.fleet.model_agreement import SharedAgreement
from service.fleet.shared_files import SharedOrders, SharedResponses
from service.jobs import jobs_table, webhook_table
from service.jobs.earlier_runs import EarlierRuns
from service.jobs.job_parts import JobRecords
from service.jobs.job_queue import HostQueue
from service.jobs.request_files import LocalOrderFiles
from service.jobs.shared_queue import SharedQueue
from service.ledger.database import Database
from service.ledger.sqlite_file import LEDGER_FILE, SqliteFile
from service.lifecycle.drain import Drain
from service.remote_models.agreement import Agreement
from service.remote_models.assembly import parse_models_url
from service.repeats import cache_table, idempotency_table
from service.repeats.response_files import LocalResponseFiles, ResponseFiles
from service.saving.assembly import open_objects, open_store
from service.saving.results import SaveObserver
from service.saving.spool.process_folder import SpoolOwner
from service.saving.store import ResultStore

if TYPE_CHECKING:
    from service.ledger.postgres.node import Node
    from service.ledger.postgres.server import PostgresServer

_JOBS_PER_BATCH = 2
"""Jobs that a process takes for each row of a batch: one is computed while the other is read, decoded or saved."""
_UNSAVED_POLL_INTERVAL_S = 0.02


@dataclass(frozen=True, slots=True)
class SharedState:
    """The results of this process, and the state that it shares with the other processes of its ledger.

    pause_for_keys: waits for a number of seconds, or until another process has answered a key.
    key_usage: the usage of API keys; None: each process counts its own.
    agreement: the hosts' agreement on the model versions to serve; None: each serves what it has.
    """

    store: ResultStore
    jobs: JobRecords
    responses: ResponseFiles
    pause_for_keys: Callable[[float], Awaitable[None]]
    key_usage: KeyUsage | None = None
    agreement: Agreement | None = None


@asynccontextmanager
async def open_state(
    settings: Settings, observer: SaveObserver, drain: Drain, owner: SpoolOwner
) -> AsyncIterator[SharedState]:
    """Open the ledger and the result store that the settings choose.

    Args:
        settings: the server's configuration.
        observer: counts saves.
        drain: limits how long closing may take.
        owner: identifies this process among those of the host.

    Raises:
        SettingsInvalid: as `make_server` and `open_store`, or the ledger cannot be used.
    """
    async with AsyncExitStack() as stack:
        node = await stack.enter_async_context(_open_node(settings)) if settings.ledger_url else None
        index_ledger = node.server.separate() if node else None
        store = await stack.enter_async_context(open_store(settings, observer, drain, owner, index_ledger))
        if node is None:
            ledger = stack.enter_context(
                make_ledger_file(
                    settings, store.disk.suspect_failure, owner.recreate, lambda: drain.began_at is not None
                )
            )
            yield _state_of_host(settings, ledger, store, owner)
        else:
            ledger = stack.enter_context(Database(node.server.separate()))
            key_usage = SharedKeyUsage(ledger, node.now, node.lease_s)
            stack.push_async_callback(key_usage.close)
            agreement = _make_agreement(settings, ledger, node)
            yield replace(_state_of_hosts(settings, ledger, store, node), key_usage=key_usage, agreement=agreement)


def make_ledger_file(
    settings: Settings,
    on_failed: Callable[[], None] = lambda: None,
    on_replaced: Callable[[], None] = lambda: None,
    ending: Callable[[], bool] = lambda: False,
) -> Database:
    """Return the ledger in `results_dir`, with all tables. `with` opens it; see `Database.__enter__`.

    Args:
        settings: the server's configuration.
        on_failed: called when the file cannot be used, on any thread.
        on_replaced: called, on any thread, before another file at its path is used, where this process owns jobs, too.
        ending: see `Database`.
    """
    schemas = [one.SCHEMA for one in (jobs_table, webhook_table, idempotency_table, cache_table)]
    return Database(SqliteFile(settings.results_dir / LEDGER_FILE, schemas, on_failed, on_replaced), ending=ending)


def check_ledger(settings: Settings) -> None:
    """Check what a `ledger_url` needs, without connecting; the address only if psycopg, which parses it, is installed.

    Raises:
        SettingsInvalid: no bucket is shared by all hosts, or the address is not valid.
    """
    _check_results_are_shared(settings)
    if _has_psycopg():
        from service.ledger.postgres.address import parse_address  # noqa: PLC0415 -- psycopg is an extra

        parse_address(settings.ledger_url)


def _check_results_are_shared(settings: Settings) -> None:
    if not settings.results_url:
        raise SettingsInvalid(
            "ledger_url needs results_url: jobs, answers and results that any host serves must be where all hosts can "
            "read them, and results_dir is on this one; set results_url to s3://BUCKET/PREFIX, or leave ledger_url out"
        )


def _has_psycopg() -> bool:
    return bool(find_spec("psycopg") and find_spec("psycopg_pool"))


def make_server(settings: Settings) -> PostgresServer:
    """The database of `ledger_url`, not yet connected.

    Raises:
        SettingsInvalid: psycopg is not installed, the address is not valid, or no bucket is shared by all hosts.
    """
    if not _has_psycopg():
        raise SettingsInvalid("ledger_url needs psycopg: install the extra, pip install '.[postgres]'")
    _check_results_are_shared(settings)
    from service.ledger.postgres.address import parse_address  # noqa: PLC0415 -- psycopg is an extra
    from service.ledger.postgres.server import PostgresServer  # noqa: PLC0415 -- as above

    return PostgresServer(parse_address(settings.ledger_url))


@asynccontextmanager
async def _open_node(settings: Settings) -> AsyncIterator[Node]:
    from service.ledger.postgres.node import Node  # noqa: PLC0415 -- psycopg is an extra

    node = Node(make_server(settings), lambda: uuid4().hex)
    await asyncio.to_thread(node.open, asyncio.get_running_loop())
    try:
        yield node
    finally:
        await asyncio.to_thread(node.close)


def _make_agreement(settings: Settings, ledger: Database, node: Node) -> Agreement | None:
    """Return the agreement that `models_url` configures; None if versions are served at once.

    Raises:
        SettingsInvalid: as `parse_models_url`.
    """
    share = parse_models_url(settings.models_url)[1] if settings.models_url else 0.0
    if not share:
        return None
    return SharedAgreement(ledger.connections, share, node.id, node.lease_s, lambda: node.is_steady)


def _state_of_host(settings: Settings, ledger: Database, store: ResultStore, owner: SpoolOwner) -> SharedState:
    async def promised(_: list[str]) -> None:
        """Return at once: results in a spool are found by every process of the host."""

    folder = settings.results_dir
    any_unstored = store.spooled_among if settings.promise == "store" else lambda _: False
    earlier = EarlierRuns(store.sidecar, store.index.bury, store.index.bury_in, any_unstored)
    queue = HostQueue(ledger, owner, time.time)
    jobs = JobRecords(ledger, owner, queue, LocalOrderFiles(folder), time.time, promised, earlier)
    return SharedState(store, jobs, LocalResponseFiles(folder), asyncio.sleep)


def _state_of_hosts(settings: Settings, ledger: Database, store: ResultStore, node: Node) -> SharedState:
    async def pause_for_keys(at_most_s: float) -> None:
        await node.changed(idempotency_table.TOPIC, at_most_s)

    async def promised(result_ids: list[str]) -> None:
        while store.unsaved_among(result_ids):  # noqa: ASYNC110 -- threads save them
            await asyncio.sleep(_UNSAVED_POLL_INTERVAL_S)

    def find_in_bucket(result_id: str) -> object | None:
        return None if store.index.deleted([result_id]) else store.storage.read_sidecar(result_id)

    objects = open_objects(settings)
    queue = SharedQueue(ledger, node, node.now, _JOBS_PER_BATCH * settings.max_batch_size)
    earlier = EarlierRuns(find_in_bucket, store.index.bury, store.index.bury_in)
    jobs = JobRecords(ledger, node, queue, SharedOrders(objects), node.now, promised, earlier)
    return SharedState(store, jobs, SharedResponses(objects), pause_for_keys)
