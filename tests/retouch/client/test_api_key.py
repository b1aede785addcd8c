from __future__ import annotations

from pathlib import Path

import pytest

from retouch.client.api_key import KEY_VARIABLES, key_headers
from retouch.client.errors import KeyFileUnreadable, KeyUnusable
from service.core.settings import CLIENT_VARIABLES, load_settings


def test_the_key_comes_from_the_environment_or_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("rtk_file\n")
    by_file = {"RETOUCH_API_KEY_FILE": str(tmp_path / "key")}
    assert key_headers(environ={}) == {}
    assert key_headers(environ={"RETOUCH_API_KEY": "rtk_1"}) == {"X-API-Key": "rtk_1"}
    assert key_headers(environ=by_file) == {"X-API-Key": "rtk_file"}
    assert key_headers(environ={"RETOUCH_API_KEY": "rtk_1", **by_file}) == {"X-API-Key": "rtk_1"}
    with pytest.raises(KeyFileUnreadable, match="RETOUCH_API_KEY_FILE"):
        key_headers(environ={"RETOUCH_API_KEY_FILE": str(tmp_path / "none")})


def test_a_key_that_is_passed_wins_and_an_empty_one_sends_none() -> None:
    assert key_headers("rtk_2", environ={"RETOUCH_API_KEY": "rtk_1"}) == {"X-API-Key": "rtk_2"}
    assert key_headers("", environ={"RETOUCH_API_KEY": "rtk_1"}) == {}
    with pytest.raises(KeyUnusable, match="api_key contains"):
        key_headers("rtk_1\nrtk_2")


@pytest.mark.parametrize("key", ["schlüssel", "rtk_1\nrtk_2", "rtk_\udcff"])
def test_a_key_that_no_header_can_carry_is_refused_without_being_shown(tmp_path: Path, key: str) -> None:
    with pytest.raises(
        KeyUnusable, match=r"RETOUCH_API_KEY contains .* as `retouch keys create` printed it"
    ) as refused:
        key_headers(environ={"RETOUCH_API_KEY": key})
    assert key not in str(refused.value)
    (tmp_path / "key").write_bytes(key.encode("utf-8", "replace") + b"\x00")
    with pytest.raises(KeyUnusable, match="RETOUCH_API_KEY_FILE contains"):
        key_headers(environ={"RETOUCH_API_KEY_FILE": str(tmp_path / "key")})


def test_a_clients_key_in_the_environment_does_not_stop_a_server() -> None:
    assert KEY_VARIABLES == CLIENT_VARIABLES
    load_settings(environ={"RETOUCH_API_KEY": "rtk_1", "RETOUCH_API_KEY_FILE": "x"})
