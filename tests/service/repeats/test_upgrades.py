"""Idempotency keys and cached results after an upgrade that adds an option, and after a return to the old version."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from service.core.order import Order
from service.core.schemas import InpaintOptions
from service.ledger.sqlite_file import LEDGER_FILE
from service.repeats.request_digests import fingerprint_of
from tests.serving.waiting import wait_until

FILES = {"image": b"one", "mask": b"two"}
BEFORE_TEXTURE = "9fd51f574b12ad5413123702e97b53e853ac38a4f5db61553588c6461c21cc07"
"""Fingerprint computed at commit 53f4c639, before `texture` existed."""


def test_a_plain_order_has_the_fingerprint_that_it_had_before_the_option() -> None:
    assert fingerprint_of(Order("inpaint", FILES, InpaintOptions(seed=7)), "photos/5") == BEFORE_TEXTURE
    asked_for_default = InpaintOptions.model_validate({"seed": 7, "texture": "none"})
    assert fingerprint_of(Order("inpaint", FILES, asked_for_default), "photos/5") == BEFORE_TEXTURE


def test_an_order_that_uses_the_option_has_another_one() -> None:
    order = Order("inpaint", FILES, InpaintOptions(seed=7, texture="copied"))
    assert fingerprint_of(order, "photos/5") != BEFORE_TEXTURE


def entries(results: Path) -> list[dict[str, Any]]:
    with closing(sqlite3.connect(results / LEDGER_FILE)) as ledger:
        return [json.loads(about) for (about,) in ledger.execute("SELECT about FROM known_results")]


@pytest.mark.parametrize("change", ["json_set(about, '$.glow', 'blue')", "json_remove(about, '$.seed')"])
def test_a_cached_result_that_another_version_recorded_in_another_form_is_computed_again(
    serve: Any, files: Any, tmp_path: Path, change: str
) -> None:
    with serve(cache_entries=100).client() as client:
        client.post("/v1/inpaint", files=files)
        wait_until(lambda: entries(tmp_path / "results"))
        with closing(sqlite3.connect(tmp_path / "results" / LEDGER_FILE, isolation_level=None)) as ledger:
            ledger.execute(f"UPDATE known_results SET about = {change}")
        replies = [client.post("/v1/inpaint", files=files) for _ in range(2)]
    statuses = [(reply.status_code, reply.headers["cache-status"]) for reply in replies]
    assert statuses == [(200, "retouch; fwd=uri-miss; stored"), (200, "retouch; hit")]


@pytest.mark.parametrize(("texture", "recorded"), [("none", False), ("copied", True)])
def test_a_cached_result_without_new_options_can_be_read_by_an_earlier_version(
    serve: Any, files: Any, tmp_path: Path, texture: str, recorded: bool
) -> None:
    with serve(cache_entries=100).client() as client:
        client.post("/v1/inpaint", files=files, data={"texture": texture})
        wait_until(lambda: entries(tmp_path / "results"))
        (about,) = entries(tmp_path / "results")
        again = client.post("/v1/inpaint", files=files, data={"texture": texture})
    assert ("texture" in about) == recorded
    assert again.headers["cache-status"] == "retouch; hit"
