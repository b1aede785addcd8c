"""The page of all settings, docs/settings.md: `python -m retouch.commands.settings_table > docs/settings.md`."""

from __future__ import annotations

from collections.abc import Iterator

import typer

from retouch.commands.serve import default_of, flag_for
from service.core.retired_settings import RETIRED
from service.core.setting_groups import SETTING_GROUPS
from service.core.settings import Settings

_HEAD = """# Settings

Made by `make settings` from `service/core/settings.py`; a test says when it is out of date.

Each setting has a flag of `retouch serve` (below), an environment variable (`--max-batch-size` is
`RETOUCH_MAX_BATCH_SIZE`) and a line in the TOML file that `--config` or `RETOUCH_CONFIG` names (`max_batch_size = 8`).
Flags win over the environment, which wins over the file. `retouch serve --print-config` prints the result as such a
file. An unknown name stops the start. When to change which: [tuning.md](tuning.md).
"""
_REMOVED = """
## Removed settings

They are accepted in 0.2 and 0.3, with a warning, and will be unknown names after that.

| setting | instead |
|---|---|
"""


def settings_page() -> str:
    """Return the page as Markdown."""
    groups = "".join(_group_section(title, names) for title, names in SETTING_GROUPS.items())
    removed = "".join(f"| `{name}` | {_escape_cell(advice)} |\n" for name, advice in RETIRED.items())
    return f"{_HEAD}{groups}{_REMOVED}{removed}"


def _group_section(title: str, names: tuple[str, ...]) -> str:
    return f"\n## {title}\n\n| flag | default | meaning |\n|---|---|---|\n" + "".join(_setting_rows(names))


def _setting_rows(names: tuple[str, ...]) -> Iterator[str]:
    for name in names:
        field = Settings.model_fields[name]
        flags = ", ".join(f"`{flag}`" for flag in flag_for(name, field).split("/"))
        yield f"| {flags} | `{default_of(field)}` | {_escape_cell(field.description or '')} |\n"


def _escape_cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    typer.echo(settings_page(), nl=False)
