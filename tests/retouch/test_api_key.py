from __future__ import annotations

from pathlib import Path

import pytest

from retouch.api_key import KeyFileUnreadable, key_headers
from service.settings import load_settings


def test_the_key_comes_from_the_environment_or_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("rtk_file\n")
    by_file = {"RETOUCH_API_KEY_FILE": str(tmp_path / "key")}
    assert key_headers({}) == {}
    assert key_headers({"RETOUCH_API_KEY": "rtk_1"}) == {"X-API-Key": "rtk_1"}
    assert key_headers(by_file) == {"X-API-Key": "rtk_file"}
    assert key_headers({"RETOUCH_API_KEY": "rtk_1", **by_file}) == {"X-API-Key": "rtk_1"}
    with pytest.raises(KeyFileUnreadable, match="RETOUCH_API_KEY_FILE"):
        key_headers({"RETOUCH_API_KEY_FILE": str(tmp_path / "none")})


def test_a_clients_key_in_the_environment_does_not_stop_a_server() -> None:
    load_settings(environ={"RETOUCH_API_KEY": "rtk_1", "RETOUCH_API_KEY_FILE": "x"})
