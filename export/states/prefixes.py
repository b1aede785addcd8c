"""Cuts nets out of state dicts by prefixes of keys that are none of the names under which scripts keep nets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile

from export.states.finding import StateDict

_MAX_PREFIXES, _MAX_DEPTH = 32, 4
"""Most prefixes of a state dict that are tried, and most names in one; a file with several nets has about four."""


def without_common_prefixes(parts: Sequence[StateDict]) -> list[StateDict]:
    """Return the parts whose keys all begin alike, without that: `enc.weight` for `my.net.enc.weight`.

    The fewest names are removed first, because the keys of a net may begin alike, too.
    """
    return [net for part in parts for net in _without_common_prefix(part)]


def _without_common_prefix(part: StateDict) -> Iterator[StateDict]:
    names = [key.split(".") for key in part.state]
    shared = takewhile(lambda each: len(set(each)) == 1, zip(*names, strict=False))
    first = [each[0] for each in shared] if len(names) > 1 else []
    yield from (_cut(part, first[:count]) for count in range(1, min(len(first), _MAX_DEPTH) + 1))


def nets_under(path: str, parts: Sequence[StateDict]) -> list[StateDict]:
    """Return the nets at a path whose last components are a prefix of keys: `drawer` in `drawer.enc.weight`."""
    outer = [part for part in parts if path.startswith(f"{part.path}/" if part.path else "")]
    nets = [_cut(part, path.removeprefix(part.path).strip("/").split("/")) for part in outer]
    return [net for net in nets if net.state]


def by_first_name(part: StateDict) -> Iterator[StateDict]:
    """Yield the nets under the first components of a part's keys."""
    firsts = dict.fromkeys(key.partition(".")[0] for key in part.state if "." in key)
    yield from (_cut(part, [first]) for first in list(firsts)[:_MAX_PREFIXES])


def _cut(part: StateDict, names: Sequence[str]) -> StateDict:
    prefix = f"{'.'.join(names)}."
    state = {key.removeprefix(prefix): tensor for key, tensor in part.state.items() if key.startswith(prefix)}
    return StateDict("/".join([part.path, *names]).lstrip("/"), state, (part,))
