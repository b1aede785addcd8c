"""The start of a fleet's server: settings that could break its promises are refused, and passwords stay hidden."""

from __future__ import annotations

import subprocess
import sys

import pytest

from retouch.commands.serve import to_toml
from service.core.settings import load_settings
from tests.serving.served_process import SERVE


def refused(*options: str) -> str:
    command = [*SERVE, "--engine", "fake", "--port", "0", *options]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 2, ran.stderr
    return ran.stderr


@pytest.mark.parametrize("workers", ["0", "2"])
def test_hosts_that_share_a_ledger_need_a_bucket(tmp_path: object, workers: str) -> None:
    said = refused(
        "--ledger-url", "postgresql://u:secret@127.0.0.1:1/db", "--results-dir", str(tmp_path), "--workers", workers
    )
    assert "ledger_url needs results_url" in said
    assert "secret" not in said


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("postgresql://u:sec#ret@127.0.0.1:1/db", "cannot be used"),
        ("postgresql://u:sec?ret@127.0.0.1:1/db", "cannot be used"),
        ("postgresql://u:sec/ret@127.0.0.1:1/db", "is not postgresql://"),
        ("sqlite:///sec/ret", "is not postgresql://"),
    ],
)
def test_a_database_that_cannot_be_used_stops_the_start_without_its_password(
    tmp_path: object, url: str, reason: str
) -> None:
    bucket = ("--results-url", "s3://results/a", "--s3-endpoint", "http://127.0.0.1:1")
    said = refused("--ledger-url", url, "--results-dir", str(tmp_path), *bucket)
    assert reason in said
    assert "sec" not in said.replace("secrets", "")


def test_help_shows_no_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RETOUCH_LEDGER_URL", "postgresql://u:hunter2@h/db")
    shown = subprocess.run(
        [sys.executable, "-m", "retouch", "serve", "--help"], capture_output=True, text=True, check=True
    )
    assert "--ledger-url" in shown.stdout
    assert "hunter2" not in shown.stdout + shown.stderr


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://u:hunter2@h/db", "postgresql://h/db"),
        ("postgresql://u:hun#t?er/2@h/db", "postgresql://h/db"),
        ("postgresql://u:hunter2@x@h/db?user=a", "postgresql://h/db?user=a"),
        ("postgresql://h/db?password=hunter2&user=u", "postgresql://h/db?user=u"),
        ("postgresql://h:5432/db", "postgresql://h:5432/db"),
    ],
)
def test_the_printed_configuration_has_no_password(url: str, shown: str) -> None:
    assert f'ledger_url = "{shown}"\n' in to_toml(load_settings({"ledger_url": url}, {}))
