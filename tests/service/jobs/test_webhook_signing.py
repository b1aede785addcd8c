"""Webhook signatures, verified with the library of the Standard Webhooks specification."""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from service.core.settings import SettingsInvalid
from service.jobs import webhook_signing
from service.jobs.jobs_table import Job
from service.jobs.webhook_signing import read_secrets

SAVING = Path(__file__).parents[3] / "docs/saving.md"
SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()
OLDER = base64.b64encode(bytes(range(40, 72))).decode()
JOB = Job("j1", "succeeded", "owner", 1000.0, {}, finished_at=1001.5, result_urls=["/v1/results/r1"])


def secret_file(folder: Path, text: str) -> Path:
    path = folder / "secrets"
    path.write_text(text)
    return path


def test_a_receiver_verifies_the_signature_with_either_secret_and_with_no_other(tmp_path: Path) -> None:
    secrets = read_secrets(secret_file(tmp_path, f"{SECRET}\n{OLDER}\n"))
    body = webhook_signing.event_payload(JOB)
    headers = webhook_signing.signature_headers(secrets, "msg_1", int(time.time()), body)
    for secret in (SECRET, OLDER):
        assert Webhook(secret).verify(body, headers)["type"] == "job.succeeded"
    with pytest.raises(WebhookVerificationError):
        Webhook(base64.b64encode(bytes(32)).decode()).verify(body, headers)
    with pytest.raises(WebhookVerificationError):
        Webhook(SECRET).verify(body.replace("r1", "r2"), headers)


def test_the_check_in_the_documentation_accepts_what_the_server_signs_and_nothing_else(tmp_path: Path) -> None:
    section = SAVING.read_text("utf-8").partition("## Webhooks")[2]
    found: dict[str, Any] = {}
    exec(section.partition("```python\n")[2].partition("```")[0], found)  # trusted: from our own documentation
    is_signed = found["is_signed"]
    secrets = read_secrets(secret_file(tmp_path, f"{OLDER}\n{SECRET}\n"))
    body = webhook_signing.event_payload(JOB)
    headers = {k.lower(): v for k, v in webhook_signing.signature_headers(secrets, "msg_1", 7, body).items()}
    assert is_signed(headers, body.encode(), SECRET)
    assert not is_signed(headers, body.replace("r1", "r2").encode(), SECRET)
    assert not is_signed({**headers, "webhook-timestamp": "8"}, body.encode(), SECRET)


def test_the_body_equals_the_polled_job_without_the_webhook() -> None:
    event = json.loads(webhook_signing.event_payload(JOB))
    assert event["timestamp"] == "1970-01-01T00:16:41.500000+00:00"
    assert event["data"] == JOB.reply().model_dump(mode="json", exclude={"webhook"})


@pytest.mark.parametrize("text", ["", "whsec_", "whsec_c2hvcnQ=", "not base64 at all!", "\xe9"])
def test_an_invalid_secret_file_stops_the_start_and_is_not_quoted(tmp_path: Path, text: str) -> None:
    with pytest.raises(SettingsInvalid, match="webhook_secret_file") as refused:
        read_secrets(secret_file(tmp_path, text))
    assert not text or text not in str(refused.value)
    with pytest.raises(
        SettingsInvalid, match=r"webhook_secret_file .*cannot be read \(No such file or directory\); name a file"
    ):
        read_secrets(tmp_path / "missing")


def test_the_repr_of_secrets_shows_none(tmp_path: Path) -> None:
    assert repr(read_secrets(secret_file(tmp_path, SECRET))) == "<Secrets [1]>"
