"""The body of a webhook and its signature (Standard Webhooks 1.0: github.com/standard-webhooks). Pure.

The signature is the HMAC-SHA256 of `ID.TIMESTAMP.BODY`. With several secrets, as during a rotation, there is one
signature per secret, and a receiver accepts any of them.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from service.core.settings import SettingsInvalid
from service.jobs.jobs_table import Job

_PREFIX = "whsec_"
_EXPECTED = "name a file with a line whsec_BASE64 for each secret, or leave the setting out"
_MIN_SECRET_BYTES = 24
"""Shortest secret in bytes; the specification requires 24 to 64."""


@dataclass(frozen=True, slots=True)
class Secrets:
    """The keys for signing; `repr` hides them."""

    keys: Sequence[bytes]

    def __repr__(self) -> str:
        return f"<Secrets [{len(self.keys)}]>"


def read_secrets(path: Path) -> Secrets:
    """Read the secrets in a file, one a line: `whsec_` and base64.

    Raises:
        SettingsInvalid: the file cannot be read, or a line is not a secret; the message does not quote it.
    """
    try:
        lines = path.read_text("ascii").split()
        keys = [base64.b64decode(line.removeprefix(_PREFIX), validate=True) for line in lines]
    except OSError as error:
        raise SettingsInvalid(f"webhook_secret_file {path} cannot be read ({error.strerror}); {_EXPECTED}") from None
    except (UnicodeDecodeError, binascii.Error):
        raise SettingsInvalid(f"webhook_secret_file {path} must have one whsec_BASE64 secret per line") from None
    if not keys or any(len(key) < _MIN_SECRET_BYTES for key in keys):
        raise SettingsInvalid(f"webhook_secret_file {path} needs secrets of at least {_MIN_SECRET_BYTES} bytes")
    return Secrets(keys)


def event_payload(job: Job) -> str:
    """Return the JSON body of the event that a job has ended."""
    ended = datetime.fromtimestamp(job.finished_at or 0.0, timezone.utc).isoformat()
    data = job.reply().model_dump(mode="json", exclude={"webhook"})  # the delivery of this event is not known yet
    return json.dumps({"type": f"job.{job.status}", "timestamp": ended, "data": data})


def signature_headers(secrets: Secrets, message_id: str, timestamp: int, body: str) -> dict[str, str]:
    """Return the headers of one delivery attempt; `timestamp`: of the attempt, in seconds since the epoch.

    All attempts of a message have the same id, so that receivers can detect repeats.
    """
    signed = f"{message_id}.{timestamp}.{body}".encode()
    digests = [hmac.new(key, signed, hashlib.sha256).digest() for key in secrets.keys]
    return {
        "Content-Type": "application/json",
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(f"v1,{base64.b64encode(digest).decode()}" for digest in digests),
    }
