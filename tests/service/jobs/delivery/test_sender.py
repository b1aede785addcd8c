"""Deliveries to a real receiver on loopback that refuses, redirects and vanishes."""

from __future__ import annotations

import asyncio
import base64
import socket
import sqlite3
import time
from contextlib import closing, suppress
from dataclasses import replace
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from standardwebhooks import Webhook

from service.jobs import jobs_table
from service.jobs.delivery.sender import RETRY_AFTER_S
from service.jobs.webhook_targets import Destinations
from service.ledger.sqlite_file import LEDGER_FILE
from tests.fakes.clock import Clock
from tests.serving.backing.webhook_receiver import (
    KEY,
    Receiver,
    announce,
    deliverer,
    ended,
    on_loopback,
    outcomes,
    webhook_state,
)


async def test_the_webhook_of_a_job_is_signed_and_delivered_once(tmp_path: Path, receiver: Receiver) -> None:
    clock = Clock(1e9)
    async with deliverer(tmp_path, clock) as one:
        await announce(one, ended(receiver.url))
        assert await one.deliver_due() == 1
        assert await one.deliver_due() == 0
        assert outcomes(one) == {"delivered": 1}
    ((headers, body),) = receiver.got
    assert headers["webhook-timestamp"] == str(int(clock.now))
    signature = Webhook(base64.b64encode(KEY).decode()).sign(
        headers["webhook-id"], datetime.fromtimestamp(clock.now, timezone.utc), body
    )
    assert headers["webhook-signature"] == signature


@pytest.mark.parametrize("host", ["127.1", "0x7f.1", "2130706433", "0177.0.0.1", "127.0.0.1."])
async def test_a_receiver_may_be_named_by_any_notation_of_its_address(
    tmp_path: Path, receiver: Receiver, host: str
) -> None:
    async with deliverer(tmp_path, Clock(1e9)) as one:
        await announce(one, ended(receiver.url.replace("127.0.0.1", host)))
        await one.deliver_due()
        assert outcomes(one) == {"delivered": 1}
    assert len(receiver.got) == 1


async def test_only_the_requested_events_are_sent(tmp_path: Path, receiver: Receiver) -> None:
    async with deliverer(tmp_path, Clock(1e9)) as one:
        await announce(one, ended(receiver.url, "succeeded", ["failed"]))
        await announce(one, replace(ended(receiver.url), facts={}))
        assert await one.deliver_due() == 0


async def test_a_receiver_that_fails_is_tried_again_later_with_the_same_id_even_after_a_restart(
    tmp_path: Path, receiver: Receiver
) -> None:
    clock = Clock(1e9)
    receiver.statuses = [500, 307]
    async with deliverer(tmp_path, clock) as one:
        await announce(one, ended(receiver.url))
        assert await one.deliver_due() == 1
        assert await one.deliver_due() == 0, "not at once"
    clock.now += RETRY_AFTER_S[0]
    async with deliverer(tmp_path, clock) as one:
        assert await one.deliver_due() == 1
        clock.now += RETRY_AFTER_S[1]
        assert await one.deliver_due() == 1
        assert outcomes(one) == {"failed": 1, "delivered": 1}
    assert len(receiver.got) == 3, "a redirect is not followed"
    assert len({headers["webhook-id"] for headers, _ in receiver.got}) == 1
    assert len({headers["webhook-timestamp"] for headers, _ in receiver.got}) == 3


async def test_a_delivered_message_is_not_sent_again_even_if_the_ledger_was_unavailable(
    tmp_path: Path, receiver: Receiver
) -> None:
    clock = Clock(1e9)
    with closing(sqlite3.connect(tmp_path / LEDGER_FILE, isolation_level=None)) as other:
        async with deliverer(tmp_path, clock) as one:
            await announce(one, ended(receiver.url))

            def make_unavailable() -> None:
                other.execute("ALTER TABLE deliveries RENAME TO away")
                asyncio.get_running_loop().call_later(0.3, other.execute, "ALTER TABLE away RENAME TO deliveries")

            receiver.before_answering = make_unavailable
            assert await one.deliver_due() == 1
            clock.now += 1e6
            assert await one.deliver_due() == 0
            assert await webhook_state(one) == {"state": "delivered", "tries": 1, "reason": None}
    assert len(receiver.got) == 1


class _Interim(BaseHTTPRequestHandler):
    """Sends many interim (1xx) answers at once, then the final one."""

    interim = 0

    def do_POST(self) -> None:
        with suppress(OSError):
            for _ in range(self.interim // 1000):
                self.wfile.write(1000 * b"HTTP/1.1 102 Processing\r\n\r\n")
            self.wfile.write(self.interim % 1000 * b"HTTP/1.1 102 Processing\r\n\r\n")
            self.send_response(204)
            self.end_headers()

    def log_message(self, *_: object) -> None:
        """Discard the server's log."""


@pytest.mark.parametrize(
    ("interim", "state", "reason"),
    [(20, "delivered", None), (100_000, "pending", "the receiver's response does not end")],
)
async def test_interim_responses_are_accepted_up_to_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, interim: int, state: str, reason: str | None
) -> None:
    """The HTTP client alone would read any number of them and block the event loop meanwhile."""
    monkeypatch.setattr(_Interim, "interim", interim)
    with HTTPServer(("127.0.0.1", 0), _Interim) as elsewhere:
        Thread(target=elsewhere.handle_request).start()
        async with deliverer(tmp_path, Clock(1e9)) as one:
            await announce(one, ended(f"http://127.0.0.1:{elsewhere.server_port}/"))
            assert await one.deliver_due() == 1
            assert await webhook_state(one) == {"state": state, "tries": 1, "reason": reason}


class _SlowAnswer(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        time.sleep(0.3)
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Discard the server's log."""


async def test_an_answer_that_arrived_while_the_process_was_paused_counts(tmp_path: Path) -> None:
    with HTTPServer(("127.0.0.1", 0), _SlowAnswer) as elsewhere:
        Thread(target=elsewhere.handle_request).start()
        async with deliverer(tmp_path, Clock(1e9)) as one:
            await announce(one, ended(f"http://127.0.0.1:{elsewhere.server_port}/"))
            asyncio.get_running_loop().call_later(0.15, time.sleep, 1.0)
            assert await replace(one, timeout_s=0.5).deliver_due() == 1
            assert outcomes(one) == {"delivered": 1}


async def test_a_receiver_that_does_not_answer_in_time_is_tried_again(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        async with deliverer(tmp_path, Clock(1e9)) as one:
            await announce(one, ended(f"http://127.0.0.1:{silent.getsockname()[1]}/"))
            assert await replace(one, timeout_s=0.1).deliver_due() == 1
            assert outcomes(one) == {"failed": 1}
            assert (await webhook_state(one) or {})["reason"] == "the receiver did not answer in time"


async def test_delivery_is_given_up_after_410_or_the_last_attempt(tmp_path: Path, receiver: Receiver) -> None:
    clock = Clock(1e9)
    async with deliverer(tmp_path, clock) as one:
        receiver.statuses = [410]
        await announce(one, ended(receiver.url))
        await one.deliver_due()
        assert outcomes(one) == {"given_up": 1}
        receiver.statuses = [503] * 20
        await announce(one, ended(receiver.url))
        for pause_s in (*RETRY_AFTER_S, 1e6, 1e6):
            await one.deliver_due()
            clock.now += pause_s
        assert outcomes(one) == {"given_up": 2, "failed": len(RETRY_AFTER_S)}


async def test_nothing_is_sent_to_internal_addresses_even_if_they_were_allowed_before(
    tmp_path: Path, receiver: Receiver
) -> None:
    async with deliverer(tmp_path, Clock(1e9), Destinations(), on_loopback) as one:
        https = receiver.url.replace("http:", "https:")
        urls = (receiver.url, https, https.replace("127.0.0.1", "localhost"), https.replace("127.0.0.1", "inside.test"))
        for index, url in enumerate(urls):
            await announce(one, replace(ended(url), id=f"j{index}"))
        assert await one.deliver_due() == len(urls)
        assert outcomes(one) == {"given_up": len(urls)}, "the job shows it at once"
        for index in range(len(urls)):
            reason = "this server does not send webhooks to that address"
            assert await webhook_state(one, f"j{index}") == {"state": "failed", "tries": 1, "reason": reason}
    assert receiver.got == []


async def test_a_name_is_resolved_once_for_each_attempt(tmp_path: Path, receiver: Receiver) -> None:
    """The address that was checked is the one that is connected to: the HTTP client resolves no name itself."""
    asked: list[str] = []

    async def rebinding(host: str, port: int, _family: int) -> list[Any]:
        asked.append(host)
        address = "127.0.0.1" if len(asked) == 1 else "127.0.0.2"  # an address without a listener
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", (address, port))]

    async with deliverer(tmp_path, Clock(1e9), resolve=rebinding) as one:
        await announce(one, ended(receiver.url.replace("127.0.0.1", "hooks.test")))
        await one.deliver_due()
        assert outcomes(one) == {"delivered": 1}
    assert (asked, len(receiver.got)) == (["hooks.test"], 1)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_not_followed_and_the_job_shows_it(tmp_path: Path, receiver: Receiver, status: int) -> None:
    receiver.statuses = [status]
    async with deliverer(tmp_path, Clock(1e9)) as one:
        await announce(one, ended(receiver.url))
        await one.deliver_due()
        reason = f"the receiver answered with status {status}; redirects are not followed"
        assert await webhook_state(one) == {"state": "pending", "tries": 1, "reason": reason}
    assert len(receiver.got) == 1


async def test_the_job_shows_the_state_of_its_webhook(tmp_path: Path, receiver: Receiver) -> None:
    clock = Clock(1e9)
    async with deliverer(tmp_path, clock) as one:
        await announce(one, ended(receiver.url))
        assert await webhook_state(one) == {"state": "pending", "tries": 0, "reason": None}
        receiver.statuses = [500]
        await one.deliver_due()
        assert await webhook_state(one) == {
            "state": "pending",
            "tries": 1,
            "reason": "the receiver answered with status 500",
        }
        clock.now += RETRY_AFTER_S[0]
        await one.deliver_due()
        assert await webhook_state(one) == {"state": "delivered", "tries": 2, "reason": None}
        receiver.statuses = [410]
        await announce(one, replace(ended(receiver.url), id="j2"))
        await one.deliver_due()
        assert await webhook_state(one, "j2") == {
            "state": "failed",
            "tries": 1,
            "reason": "the receiver answered with status 410",
        }
        await announce(one, replace(ended(receiver.url, "succeeded", ["failed"]), id="j3"))
        assert await webhook_state(one, "j3") == {"state": "skipped", "tries": 0, "reason": None}
        await announce(one, replace(ended(receiver.url), id="j4", facts={}))
        assert await webhook_state(one, "j4") is None
        await one.ledger.write(lambda ledger: jobs_table.forget(ledger, finished_before=2.0))
        left = await one.ledger.read(lambda ledger: ledger.execute("SELECT count(*) FROM webhook_states").fetchone()[0])
        assert left == 0


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        (socket.gaierror(socket.EAI_NONAME, "unknown"), "the receiver's host name cannot be resolved"),
        (None, "the receiver refused the connection or is unreachable"),
    ],
)
async def test_the_job_shows_why_there_was_no_answer_without_network_details(
    tmp_path: Path, free_port: int, failure: OSError | None, reason: str
) -> None:
    async def resolve(host: str, port: int, family: int) -> list[Any]:
        if failure is not None:
            raise failure
        return await on_loopback(host, port, family)

    async with deliverer(tmp_path, Clock(1e9), resolve=resolve) as one:
        await announce(one, ended(f"http://hooks.test:{free_port}/"))
        await one.deliver_due()
        assert await webhook_state(one) == {"state": "pending", "tries": 1, "reason": reason}
