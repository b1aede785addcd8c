"""API keys for tests, made as `retouch keys` makes them, with fields of the test's choice."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from service.auth.keys import KeyRecord, key_digest, new_key, read_keys, write_keys

CREATED = datetime(2026, 1, 1, tzinfo=timezone.utc)


def record_of(key: str, key_id: str, **fields: Any) -> KeyRecord:
    values = {"id": key_id, "name": "tester", "sha256": key_digest(key), "scopes": ["inference"], "created_at": CREATED}
    return KeyRecord.model_validate({**values, **fields})


def add_key(path: Path, **fields: Any) -> str:
    """Add a new key to the file and return the key."""
    key_id, key = new_key()
    write_keys(path, (*(read_keys(path) if path.exists() else ()), record_of(key, key_id, **fields)))
    return key
