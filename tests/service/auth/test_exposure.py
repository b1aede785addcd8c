"""The settings with which a server lists and deletes results."""

from __future__ import annotations

from typing import Any

import pytest

from service.auth.exposure import keeps_gallery
from service.core.settings import Settings


def test_a_server_on_loopback_keeps_a_gallery_without_keys() -> None:
    assert keeps_gallery(Settings(host="127.0.0.1"))
    assert keeps_gallery(Settings(host="127.0.0.1", public_url="http://localhost:8000"))


@pytest.mark.parametrize(
    "options",
    [
        {"host": "0.0.0.0"},
        {"host": "192.0.2.7"},
        {"host": "127.0.0.1", "allow_anonymous": True},
        {"host": "127.0.0.1", "public_host": "retouch.example"},
        {"host": "127.0.0.1", "public_url": "https://retouch.example"},
        {"host": "127.0.0.1", "public_url": "http://192.0.2.7:8000"},
    ],
    ids=str,
)
def test_a_server_that_others_can_reach_keeps_one_only_with_keys(options: dict[str, Any]) -> None:
    assert not keeps_gallery(Settings(**options))
    assert keeps_gallery(Settings(**options, keys_file="keys.json"))
