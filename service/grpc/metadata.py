"""Metadata of a call as header lines, its client's address, and its deadline. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import unquote

from service.intake.request_metadata import MAX_TIMEOUT_MS

_PEER = re.compile(r"ipv[46]:\[?([^\[\]]+?)\]?:\d+")
_MAX_TIMEOUT_S = MAX_TIMEOUT_MS / 1e3


class MetadataLines(Mapping[str, str]):
    """Invocation metadata as header lines; the value of a name is its first line's."""

    def __init__(self, pairs: Iterable[tuple[str, str | bytes]]) -> None:
        self._lines: dict[str, list[str]] = {}
        for name, value in pairs:
            text = value if isinstance(value, str) else value.decode("latin-1")
            self._lines.setdefault(name.lower(), []).append(text)

    def getlist(self, key: str) -> list[str]:
        """Return the values of all lines with that name, which is not case-sensitive."""
        return self._lines.get(key.lower(), [])

    def __getitem__(self, name: str) -> str:
        return self._lines[name.lower()][0]

    def __iter__(self) -> Iterator[str]:
        return iter(self._lines)

    def __len__(self) -> int:
        return len(self._lines)


def address_of(peer: str) -> str:
    """Return the address in a peer such as `ipv4:127.0.0.1:5000` or `ipv6:%5B::1%5D:5000`; `unknown` without one."""
    found = _PEER.fullmatch(unquote(peer))
    return found[1] if found else "unknown"


def allowed_s(remaining_s: float | None, header_s: float | None) -> float | None:
    """Return the seconds that a client allows: the shorter of its grpc-timeout and its X-Request-Timeout-Ms.

    Args:
        remaining_s: seconds until its deadline, from grpc-timeout; over a day counts as a day, because gRPC
            clients without a timeout send very long ones. None without one.
        header_s: seconds from X-Request-Timeout-Ms; None without that header.

    Returns:
        Seconds, or None without a deadline; a very small number if it has passed.
    """
    limits = [header_s] if header_s is not None else []
    if remaining_s is not None and not math.isnan(remaining_s):
        limits.append(min(max(remaining_s, 1e-6), _MAX_TIMEOUT_S))
    return min(limits, default=None)
