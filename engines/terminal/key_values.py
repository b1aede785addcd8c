"""Flags of the form KEY=VALUE."""

from __future__ import annotations

from collections.abc import Sequence

import typer


def parse_key_values(pairs: Sequence[str], example: str) -> dict[str, str]:
    """Parse pairs such as `["levels=7"]` into `{"levels": "7"}`; of a repeated key the last value counts.

    Args:
        pairs: the flag's values.
        example: the flag with a correct pair, for the message.

    Raises:
        typer.BadParameter: a pair has no `=`, or no key before it.
    """
    values = {}
    for pair in pairs:
        key, separator, value = pair.partition("=")
        if not (key and separator):
            raise typer.BadParameter(f"{pair!r}: write KEY=VALUE, as in {example}")
        values[key] = value
    return values
