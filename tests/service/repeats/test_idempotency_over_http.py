"""Idempotency keys over HTTP: repeats get the same answer and the same job."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Any
from uuid import uuid4

import pytest

from service.ledger.sqlite_file import LEDGER_FILE

Files = dict[str, tuple[str, bytes, str]]


def test_a_key_is_answered_once_over_http(serve: Any, files: Files) -> None:
    running = serve()
    before = running.executed
    with running.client() as client:
        key = {"Idempotency-Key": '"8e03978e-40d5-43e8-bc93-6894a57f9324"'}
        replies = [client.post("/v1/inpaint", files=files, headers=key) for _ in range(3)]
        assert [reply.status_code for reply in replies] == [200] * 3
        assert len({(reply.content, reply.headers["location"]) for reply in replies}) == 1
        assert len({reply.headers["x-request-id"] for reply in replies}) == 3
        assert running.executed == before + 1
        jobs = [
            client.post("/v1/inpaint", files=files, headers={"Prefer": "respond-async", "Idempotency-Key": "j"})
            for _ in range(2)
        ]
        assert [job.status_code for job in jobs] == [202, 202]
        assert len({job.headers["location"] for job in jobs}) == 1
        other = client.post("/v1/inpaint", files=files, data={"quality": "5"}, headers=key)
        assert (other.status_code, other.json()["code"]) == (422, "idempotency_mismatch")


def test_a_job_whose_server_died_before_it_answered_is_found_by_a_repeat_over_http(serve: Any, files: Files) -> None:
    running = serve()
    file = running.service.settings.results_dir / LEDGER_FILE
    headers = {"Prefer": "respond-async", "Idempotency-Key": str(uuid4())}
    with running.client() as client, closing(sqlite3.connect(file)) as ledger:
        first = client.post("/v1/inpaint", files=files, headers=headers)
        with ledger:
            ledger.execute("DELETE FROM idempotency")
        again = client.post("/v1/inpaint", files=files, headers=headers)
        assert (again.status_code, again.headers["location"]) == (202, first.headers["location"])
        assert "idempotency-replayed" not in again.headers
        with ledger:
            ledger.execute("DELETE FROM idempotency")
        other = client.post("/v1/inpaint", files=files, headers=headers, data={"quality": "5"})
        assert other.headers["location"] != first.headers["location"], "the key is free, and this is another request"


@pytest.mark.parametrize(
    ("first", "again"),
    [
        ({"Accept": ""}, {"Accept": "*/*"}),
        ({"Accept": "*/*"}, {"Accept": "image/png, */*;q=0.5"}),
        ({"Accept": "application/json"}, {"Accept": "application/json, image/png;q=0.1"}),
        ({"Accept": "*/*", "Prefer": "respond-async"}, {"Accept": "image/png", "Prefer": "respond-async, wait=5"}),
    ],
)
def test_headers_that_ask_for_the_same_answer_make_the_same_request(
    serve: Any, files: Files, first: dict[str, str], again: dict[str, str]
) -> None:
    key = {"Idempotency-Key": str(uuid4())}
    with serve().client() as client:
        answered = client.post("/v1/inpaint", files=files, headers={**key, **first})
        replayed = client.post("/v1/inpaint", files=files, headers={**key, **again})
    assert (replayed.status_code, replayed.content) == (answered.status_code, answered.content), replayed.text
    assert replayed.headers["idempotency-replayed"] == "true"


@pytest.mark.parametrize(
    "others", [{"Accept": "application/json"}, {"Accept": "image/jpeg"}, {"Prefer": "respond-async"}]
)
def test_headers_that_ask_for_another_answer_make_another_request(
    serve: Any, files: Files, others: dict[str, str]
) -> None:
    key = {"Idempotency-Key": str(uuid4())}
    with serve().client() as client:
        assert client.post("/v1/inpaint", files=files, headers=key).status_code == 200
        other = client.post("/v1/inpaint", files=files, headers={**key, **others})
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_mismatch")


def test_a_cached_result_is_in_the_answers_to_all_keys_that_got_it(serve: Any, files: Files) -> None:
    running = serve(cache_entries=8)
    file = running.service.settings.results_dir / LEDGER_FILE
    with running.client() as client, closing(sqlite3.connect(file)) as ledger:
        replies = [client.post("/v1/inpaint", files=files, headers={"Idempotency-Key": one}) for one in ("a", "b")]
        assert [reply.headers["cache-status"].split(";")[1].strip() for reply in replies] == ["fwd=uri-miss", "hit"]
        (location,) = {reply.headers["location"] for reply in replies}
        containing = "SELECT count(*) FROM idempotency_results WHERE result_id = ?"
        assert ledger.execute(containing, (location.rpartition("/")[2],)).fetchone() == (2,)
        assert ledger.execute("SELECT shared FROM idempotency ORDER BY shared").fetchall() == [(0,), (1,)]
