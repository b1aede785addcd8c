"""docs/settings.md is generated from the settings."""

from __future__ import annotations

from pathlib import Path

from retouch.commands.settings_table import settings_page
from service.core.retired_settings import RETIRED
from service.core.settings import Settings

PAGE = Path(__file__).resolve().parents[3] / "docs" / "settings.md"


def test_the_page_in_the_repository_is_up_to_date() -> None:
    assert PAGE.read_text("utf-8") == settings_page(), "run `make settings`"


def test_the_page_has_every_setting_and_those_that_went() -> None:
    page = settings_page()
    assert [name for name in Settings.model_fields if f"`--{name.replace('_', '-')}`" not in page] == []
    assert [name for name in RETIRED if f"| `{name}` |" not in page] == []
