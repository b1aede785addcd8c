"""Flags that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

Overrides = Annotated[
    list[str] | None, typer.Option("--set", metavar="KNOB=VALUE", help="lay a value over the file's; repeat for more")
]
Device = Annotated[
    str | None, typer.Option(help="cpu, cuda (the first, or the local rank's) or cuda:N; a GPU if there is one")
]
