"""Every server of a fleet knows the jobs, results and idempotency keys that another has accepted."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from uuid import uuid4

import httpx
import psycopg
import pytest

from tests.service.fleet.conftest import StartFleet
from tests.service.fleet.nodes import ASYNC, PATH, Files, Fleet, ended
from tests.serving.waiting import until, until_it_answers

pytestmark = pytest.mark.slow


async def test_a_job_is_found_polled_and_its_result_fetched_at_every_server(
    fleet: Fleet, files: Files, http: httpx.AsyncClient
) -> None:
    for number in range(6):
        accepted = await http.post(f"{fleet.url(number)}{PATH}", files=files, headers=ASYNC)
        assert accepted.status_code == 202, accepted.text
        job = await ended(http, fleet, accepted.headers["location"], number + 1)
        assert job["status"] == "succeeded", job
        bodies = [await http.get(f"{fleet.url(other)}{job['result_url']}") for other in range(3)]
        assert {body.status_code for body in bodies} == {200}
        assert len({body.content for body in bodies}) == 1
    # a finished job leaves no request behind; it is removed after the job's end is in the ledger
    await until(lambda: not [name for name in fleet.bucket.names if "/.jobs/" in f"/{name}"])


async def test_a_job_is_cancelled_at_a_server_that_does_not_run_it(
    start_fleet: StartFleet, files: Files, http: httpx.AsyncClient
) -> None:
    fleet = start_fleet(3, fake_batch_ms=500, max_batch_size=1)
    obstacles = [fleet.bucket.folder / f"fleet/{start:02x}" for start in range(256)]
    for path in obstacles:
        path.touch()  # a file in place of a folder of results: no job ends before one is cancelled
    waiting = [http.post(f"{fleet.url(0)}{PATH}", files=files, headers=ASYNC) for _ in range(20)]
    jobs = [reply.headers["location"] for reply in await asyncio.gather(*waiting)]
    cancelled = await http.delete(f"{fleet.url(1)}{jobs[-1]}")
    assert cancelled.status_code == 200, cancelled.text
    assert cancelled.json()["status"] == "cancelled"
    assert (await http.get(f"{fleet.url(2)}{jobs[-1]}")).json()["status"] == "cancelled"
    for path in obstacles:
        path.unlink()
    states = [await ended(http, fleet, job) for job in jobs]
    assert Counter(state["status"] for state in states) == {"succeeded": 19, "cancelled": 1}


async def test_jobs_that_one_server_accepts_are_run_by_all(
    start_fleet: StartFleet, files: Files, http: httpx.AsyncClient
) -> None:
    fleet = start_fleet(2, fake_batch_ms=100, max_batch_size=1)

    def ran() -> list[int]:
        return [len(node.lines("job ended")) for node in fleet.nodes]

    async def run_thirty() -> list[int]:
        """Send thirty jobs to one server, and return how many of them each has run."""
        before = ran()
        sent = [http.post(f"{fleet.url(0)}{PATH}", files=files, headers=ASYNC) for _ in range(30)]
        for reply in await asyncio.gather(*sent):
            assert (await ended(http, fleet, reply.headers["location"]))["status"] == "succeeded"
        await until(lambda: sum(ran()) >= sum(before) + 30)  # the log line follows the job's end in the ledger
        after = ran()
        assert sum(after) == sum(before) + 30
        return [now - then for now, then in zip(after, before, strict=True)]

    shares = [await run_thirty()]
    while min(shares[-1]) < 5:  # a server that pauses for seconds leaves the others its share
        assert len(shares) < 4, shares
        shares.append(await run_thirty())


async def test_the_same_key_at_all_servers_at_once_is_computed_once(
    fleet: Fleet, files: Files, http: httpx.AsyncClient
) -> None:
    for _ in range(5):
        before, key = fleet.computed(), str(uuid4())
        sent = [http.post(f"{fleet.url(n)}{PATH}", files=files, headers={"Idempotency-Key": key}) for n in range(12)]
        replies = await asyncio.gather(*sent)
        assert {reply.status_code for reply in replies} == {200}, [reply.text for reply in replies]
        assert len({reply.content for reply in replies}) == 1
        assert len({reply.headers["location"] for reply in replies}) == 1
        assert sum("idempotency-replayed" not in reply.headers for reply in replies) == 1
        assert fleet.computed() == before + 1


async def test_a_job_whose_server_died_before_it_answered_is_what_a_repeat_gets_at_every_server(
    fleet: Fleet, files: Files, http: httpx.AsyncClient
) -> None:
    headers = {"Idempotency-Key": str(uuid4()), **ASYNC}
    places = []
    for number in range(3):
        reply = await http.post(f"{fleet.url(number)}{PATH}", files=files, headers=headers)
        assert reply.status_code == 202, reply.text
        places.append(reply.headers["location"])
        with psycopg.connect(fleet.database) as ledger:  # as if the server had failed before it recorded the answer
            ledger.execute("DELETE FROM idempotency")
    assert places == [places[0]] * 3
    assert (await ended(http, fleet, places[0]))["status"] == "succeeded"


async def test_a_key_with_another_request_is_refused_by_every_server(
    fleet: Fleet, files: Files, http: httpx.AsyncClient
) -> None:
    headers = {"Idempotency-Key": str(uuid4())}
    assert (await http.post(f"{fleet.url(0)}{PATH}", files=files, headers=headers)).status_code == 200
    other = await http.post(f"{fleet.url(1)}{PATH}", files=files, data={"quality": "7"}, headers=headers)
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_mismatch")


@pytest.mark.parametrize("bucket", ["refuses", "is away"])
async def test_the_cache_keeps_a_result_that_another_server_has_not_uploaded_yet(
    start_fleet: StartFleet, files: Files, http: httpx.AsyncClient, tmp_path: Path, bucket: str
) -> None:
    fleet = start_fleet(2, cache_entries=100)
    if bucket == "is away":
        fleet.bucket.stop()
    else:  # a file in place of the folder: writes fail, and no object is found
        (fleet.bucket.folder / "fleet").rename(tmp_path / "aside")
        (fleet.bucket.folder / "fleet").touch()

    async def ask(node: int) -> tuple[str, str]:
        reply = await http.post(f"{fleet.url(node)}{PATH}", files=files)
        return reply.headers["location"], reply.headers["cache-status"]

    first, status = await ask(0)
    assert status == "retouch; fwd=uri-miss; stored"
    await until(lambda: entered(fleet) == 1)
    assert await ask(0) == (first, "retouch; hit")
    for _ in range(2):
        other, status = await ask(1)
        assert (other != first, status) == (True, "retouch; fwd=uri-miss; stored")
        assert await ask(0) == (first, "retouch; hit")
    if bucket == "is away":
        fleet.bucket.start()
    else:
        (fleet.bucket.folder / "fleet").unlink()
        (tmp_path / "aside").rename(fleet.bucket.folder / "fleet")
    await until_it_answers(lambda: _is_found(http, f"{fleet.url(1)}{first}"))
    assert await ask(1) == (first, "retouch; hit")


def entered(fleet: Fleet) -> int:
    """Return the number of results in the index of the result cache."""
    with psycopg.connect(fleet.database) as database:
        row = database.execute("SELECT count(*) FROM known_results").fetchone()
    return int(row[0]) if row else 0


async def _is_found(http: httpx.AsyncClient, url: str) -> bool:
    return (await http.get(url)).status_code == 200


async def test_a_result_is_listed_by_every_server_and_deleted_by_any(
    fleet: Fleet, files: Files, http: httpx.AsyncClient
) -> None:
    made = await http.post(f"{fleet.url(0)}{PATH}", files=files)
    location = made.headers["location"]
    for _ in range(200):
        listed = await http.get(f"{fleet.url(1)}/v1/results", params={"status": "saved"})
        if location in [result["url"] for result in listed.json()["results"]]:
            break
        await asyncio.sleep(0.05)
    else:
        raise AssertionError(listed.text)
    assert (await http.delete(f"{fleet.url(2)}{location}")).status_code in (202, 204)
    assert [(await http.get(f"{fleet.url(node)}{location}")).status_code for node in range(3)] == [410, 410, 410]


@pytest.mark.parametrize("job", ["0" * 32, "nothing", "%00", "a" * 5000])
async def test_a_job_that_there_is_not_is_not_found(fleet: Fleet, http: httpx.AsyncClient, job: str) -> None:
    assert (await http.get(f"{fleet.url(0)}/v1/jobs/{job}")).status_code == 404
