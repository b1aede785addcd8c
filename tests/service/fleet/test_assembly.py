"""The state that processes share, from the settings."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from service.core.settings import Settings, SettingsInvalid, load_settings
from service.fleet.assembly import SharedState, make_server, open_state
from service.ledger.postgres import address
from service.lifecycle.drain import Drain
from service.repeats.idempotency_table import Claim
from service.repeats.response_files import StoredResponse
from service.saving.results import Unobserved
from service.saving.spool.process_folder import SpoolOwner
from tests.service.saving.store.slow_storage import put, result
from tests.serving.backing.postgres_server import PostgresCluster
from tests.serving.backing.s3_server import KEY, SECRET, serving_bucket

LEDGER = "postgresql://u:secret@127.0.0.1:1/db"


@pytest.fixture
def shared(tmp_path: Path, postgres: PostgresCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """Settings of hosts that share a database and a bucket."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    with serving_bucket(tmp_path) as bucket:
        bucket.keep_folders("fleet")
        yield {
            "ledger_url": postgres.new_database(),
            "results_url": "s3://results/fleet",
            "models_url": "s3://results/models?share=1",
            "s3_endpoint": bucket.endpoint,
        }


@asynccontextmanager
async def opened(settings: Settings) -> AsyncIterator[SharedState]:
    """Open the state of a host whose own folder is `results_dir`."""
    owner = SpoolOwner(settings.results_dir, lambda: settings.results_dir.name)
    async with open_state(settings, Unobserved(), Drain(5.0, time.monotonic), owner) as state:
        yield state


async def test_hosts_find_each_others_results_and_answers_and_agree_on_versions(
    shared: dict[str, str], tmp_path: Path
) -> None:
    claim, answer = Claim("ab" * 32, "first", "host0", 1.5), StoredResponse(200, (("location", "/there"),), b"filled")
    hosts = [load_settings({**shared, "results_dir": str(tmp_path / f"host{number}")}, {}) for number in range(2)]
    async with AsyncExitStack() as stack:
        first, second = [await stack.enter_async_context(opened(host)) for host in hosts]
        stored = result(1)
        await asyncio.to_thread(put, first.store, stored)
        await first.jobs.promised([stored.id])
        assert await asyncio.to_thread(second.store.get, stored.id) is not None
        await asyncio.to_thread(first.responses.keep, claim, answer)
        assert await asyncio.to_thread(second.responses.find, claim) == answer
        assert first.key_usage is not None
        assert first.agreement is not None


def test_the_address_of_the_ledger_is_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed, parse = list[str](), address.parse_address

    def counted(url: str) -> address.Address:
        parsed.append(url)
        return parse(url)

    monkeypatch.setattr(address, "parse_address", counted)
    server = make_server(load_settings({"ledger_url": LEDGER, "results_url": "s3://results/a"}, {}))
    assert server.address.shown == "postgresql://u@127.0.0.1:1/db"
    assert parsed == [LEDGER]


def test_a_ledger_without_a_bucket_is_refused() -> None:
    with pytest.raises(SettingsInvalid, match="ledger_url needs results_url"):
        make_server(load_settings({"ledger_url": LEDGER}, {}))
