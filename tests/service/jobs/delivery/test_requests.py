"""Webhooks over HTTP: the end of a job is announced; a URL that is not allowed is refused at once."""

from __future__ import annotations

import asyncio
import base64
import socket
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks import Webhook

from service.jobs.name_lookup import NameLookup
from tests.serving.backing.webhook_receiver import KEY, Receiver
from tests.serving.waiting import until


async def test_a_job_sends_its_webhook_over_http(serve: Any, files: Any, receiver: Receiver, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("whsec_" + base64.b64encode(KEY).decode())
    running = serve(webhook_secret_file=str(tmp_path / "secret"), webhook_private=True)
    data, later = {"webhook": receiver.url}, {"Prefer": "respond-async"}
    async with running.async_client() as client:
        job = await client.post("/v1/inpaint", files=files, data=data, headers=later)
        assert job.status_code == 202
        for _ in range(1000):
            if receiver.got:
                break
            await asyncio.sleep(0.02)
        headers, body = receiver.got[0]
        event = Webhook(base64.b64encode(KEY).decode()).verify(body, headers)

        registry = running.service.metrics.registry
        await until(lambda: registry.get_sample_value("retouch_webhooks_total", {"outcome": "delivered"}))
        now = (await client.get(job.headers["location"])).json()
        assert now.pop("webhook") == {"state": "delivered", "tries": 1, "reason": None}
        assert event["data"] == now
        sidecar = await client.get(event["data"]["result_url"], headers={"Accept": "application/json"})
        assert "hook" not in sidecar.text
        at_once = await client.post("/v1/inpaint", files=files, data=data)
        assert (at_once.status_code, at_once.json()["code"]) == (422, "webhook_needs_job")


@pytest.mark.parametrize(
    "url", ["https://localhost/", "https://a.localhost./x", "https://hooks.test/", "https://127.1/"]
)
async def test_a_webhook_to_an_internal_address_is_refused_before_the_job_is_accepted(
    serve: Any, files: Any, tmp_path: Path, url: str
) -> None:
    (tmp_path / "secret").write_text("whsec_" + base64.b64encode(KEY).decode())
    running = serve(webhook_secret_file=str(tmp_path / "secret"))
    running.service.names = NameLookup(lambda host, port, _: [(socket.AF_INET, 0, 0, "", ("10.0.0.7", port))])
    async with running.async_client() as client:
        later = {"Prefer": "respond-async"}
        refused = await client.post("/v1/inpaint", files=files, data={"webhook": url}, headers=later)
        assert (refused.status_code, refused.json()["code"]) == (422, "webhook_refused")
    assert "10.0.0.7" not in refused.text


async def test_a_server_without_a_secret_refuses_webhooks(serve: Any, files: Any) -> None:
    async with serve().async_client() as client:
        data, later = {"webhook": "https://example.com/"}, {"Prefer": "respond-async"}
        refused = await client.post("/v1/inpaint", files=files, data=data, headers=later)
        assert (refused.status_code, refused.json()["code"]) == (422, "webhooks_off")
        assert refused.json()["detail"].endswith("poll the job, or start it with --webhook-secret-file")
