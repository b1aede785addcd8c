"""The interface of the two makers of pictures for the commands: a server, and this process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from engines.errors import RetouchError
from retouch.client.options import Task


class FillFailed(RetouchError):
    """A server did not deliver the pictures."""


@dataclass(frozen=True, slots=True)
class FillResult:
    """The finished, encoded pictures of one request, and the model and engine that made them."""

    bodies: tuple[bytes, ...]
    model: str
    engine: str


class Filler(Protocol):
    """An object that makes pictures, on a server (server.py) or in this process (embedded.py)."""

    async def fill(self, task: Task, parts: Mapping[str, bytes], options: Mapping[str, str]) -> FillResult:
        """Fill or translate one picture, or generate pictures.

        Args:
            task: inpaint, translate or generate.
            parts: encoded files by form field: `image`, `mask` to inpaint, `instance` or `reference` for some models.
            options: the text fields of the endpoint.

        Raises:
            RetouchError: the picture cannot be made; the message says why.
        """
