"""The page of all settings, docs/settings.md: `python -m retouch.commands.settings_table > docs/settings.md`."""

from __future__ import annotations

import re
from collections.abc import Iterator

import typer

from retouch.commands.serve import default_of, flag_for
from service.core.retired_settings import RETIRED
from service.core.setting_groups import SETTING_GROUPS
from service.core.settings import Settings

_HEAD = """# Settings

All settings of the server. `make settings` generates this page from `service/core/settings.py` and
`service/core/setting_groups.py`. Which setting to change when: [tuning](tuning.md).

A setting can be given in three places; the first of them that has it counts:

1. a flag of `retouch serve`: `--max-batch-size 4`;
2. an environment variable: `RETOUCH_MAX_BATCH_SIZE=4`;
3. a line in a TOML file, `max_batch_size = 4`, if `--config FILE` or `RETOUCH_CONFIG=FILE` names that file.

An unknown name or a value out of range stops the start. `retouch serve --print-config` checks the settings and prints
all of them as such a TOML file, without the database's password. Defaults are written as in TOML: text in quotation
marks, `""` for none. 1 GiB is 1024 MiB.
"""
_REMOVED = """
## Removed settings

Version 0.3 accepts them with a warning; later versions will refuse them as unknown names.

| setting | instead |
|---|---|
"""


def settings_page() -> str:
    """Return the page as Markdown."""
    groups = "".join(_group_section(title, described) for title, described in SETTING_GROUPS.items())
    removed = "".join(f"| `{name}` | {_escape_cell(advice)} |\n" for name, advice in RETIRED.items())
    return f"{_HEAD}{groups}{_REMOVED}{removed}"


def _group_section(title: str, described: dict[str, str]) -> str:
    return f"\n## {title}\n\n| flag | default | meaning |\n|---|---|---|\n" + "".join(_setting_rows(described))


def _setting_rows(described: dict[str, str]) -> Iterator[str]:
    for name, description in described.items():
        field = Settings.model_fields[name]
        flags = ", ".join(f"`{flag}`" for flag in flag_for(name, field).split("/"))
        yield f"| {flags} | `{default_of(field)}` | {_flags_as_code(_escape_cell(description))} |\n"


def _flags_as_code(text: str) -> str:
    return re.sub(r"(?<!`)--[a-z-]+[a-z]", r"`\g<0>`", text)


def _escape_cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    typer.echo(settings_page(), nl=False)
