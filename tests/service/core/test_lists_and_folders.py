"""Settings that name a folder or a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from service.core.settings import SettingsInvalid, load_settings


def test_the_home_folder_may_be_written_as_in_a_shell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", "/home/studio")
    (config := tmp_path / "retouch.toml").write_text('results_dir = "~/results"', "utf-8")
    settings = load_settings(environ={"RETOUCH_MODELS_DIR": "~"}, config=config)
    assert (settings.results_dir, settings.models_dir) == (Path("/home/studio/results"), Path("/home/studio"))
    for name in ("models_dir", "keys_file"):
        with pytest.raises(SettingsInvalid, match=f"{name}: ~nobody-here is no user's home on this host"):
            load_settings(environ={f"RETOUCH_{name.upper()}": "~nobody-here/some"})


def test_files_may_be_in_the_home_folder_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "retouch.toml").write_text('keys_file = "~/keys"', "utf-8")
    environ = {"RETOUCH_CONFIG": "~/retouch.toml", "RETOUCH_WEBHOOK_SECRET_FILE": "~/secrets"}
    for settings in (load_settings(environ=environ), load_settings(environ=environ, config=Path("~/retouch.toml"))):
        assert (settings.keys_file, settings.webhook_secret_file) == (f"{tmp_path}/keys", f"{tmp_path}/secrets")
    assert load_settings(environ={}).keys_file == ""
    with pytest.raises(
        SettingsInvalid, match=r"config file ~nobody-here/retouch\.toml: ~nobody-here is no user's home"
    ):
        load_settings(environ={}, config=Path("~nobody-here/retouch.toml"))
