"""The state that processes share, from the settings."""

from __future__ import annotations

import pytest

from service.core.settings import SettingsInvalid, load_settings
from service.fleet.assembly import make_server
from service.ledger.postgres import address

LEDGER = "postgresql://u:secret@127.0.0.1:1/db"


def test_the_address_of_the_ledger_is_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed, parse = list[str](), address.parse_address

    def counted(url: str) -> address.Address:
        parsed.append(url)
        return parse(url)

    monkeypatch.setattr(address, "parse_address", counted)
    server = make_server(load_settings({"ledger_url": LEDGER, "results_url": "s3://results/a"}, {}))
    assert server.address.shown == "postgresql://u@127.0.0.1:1/db"
    assert parsed == [LEDGER]


def test_a_ledger_without_a_bucket_is_refused() -> None:
    with pytest.raises(SettingsInvalid, match="ledger_url needs results_url"):
        make_server(load_settings({"ledger_url": LEDGER}, {}))
