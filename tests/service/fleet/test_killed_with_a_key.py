"""A server of a fleet is killed after it stored a keyed request's result and before it recorded the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import psycopg
import pytest

from tests.service.fleet.conftest import StartFleet
from tests.service.fleet.nodes import PATH, Files, Fleet
from tests.serving.waiting import until

pytestmark = pytest.mark.slow
KEY = {"Idempotency-Key": "one"}


@contextmanager
def keys_held(fleet: Fleet) -> Iterator[None]:
    """Let no server change a key until the block ends."""
    with psycopg.connect(fleet.database) as held:
        held.execute("LOCK TABLE idempotency IN SHARE MODE")
        yield


def is_claimed(fleet: Fleet) -> bool:
    with psycopg.connect(fleet.database) as ledger:
        return ledger.execute("SELECT 1 FROM idempotency").fetchone() is not None


async def kill_before_the_record(fleet: Fleet, http: httpx.AsyncClient, files: Files) -> str:
    """Kill the first server once its result is in the bucket; returns the result's id."""
    fleet.bucket.freeze()  # the answer is put there before it is recorded
    asked = asyncio.create_task(http.post(f"{fleet.url(0)}{PATH}", files=files, headers=KEY))
    await until(lambda: is_claimed(fleet))
    with keys_held(fleet):
        fleet.bucket.thaw()
        await until(lambda: any(name.endswith(".json") for name in fleet.bucket.names))
        fleet.kill(0)
    with pytest.raises(httpx.TransportError):
        await asked
    (stored,) = [name for name in fleet.bucket.names if name.endswith(".json")]
    return stored.rpartition("/")[2].removesuffix(".json")


async def test_another_server_answers_the_repeat_with_the_stored_result(
    start_fleet: StartFleet, files: Files, http: httpx.AsyncClient
) -> None:
    fleet = start_fleet(2)
    stored = await kill_before_the_record(fleet, http, files)
    reply = await http.post(f"{fleet.url(1)}{PATH}", files=files, headers=KEY)
    assert (reply.status_code, reply.headers.get("location")) == (200, f"/v1/results/{stored}"), reply.text
    listed = (await http.get(f"{fleet.url(1)}/v1/results")).json()["results"]
    assert [one["id"] for one in listed] == [stored]
