"""Chooses among the state dicts of a file by their paths, and says what was chosen and left out."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

import torch

from export.errors import OptionInvalid
from export.states.finding import AVERAGE, StateDict
from export.states.prefixes import nets_under

_PREFERRED = (AVERAGE.pattern, r"gen|net_?g\b|\bg\b", r"model|net|state_dict")
_PATHS_SHOWN = 8


def chosen_parts(parts: Sequence[StateDict], path: str | None) -> list[StateDict]:
    """Return the parts at `path` and inside it, or the nets whose keys begin with its end; all if it is None.

    Raises:
        OptionInvalid: there is none; the message lists the paths that there are.
    """
    if path is None:
        return list(parts)
    chosen = [part for part in parts if path and part.path and _holds(path, part.path)]
    if path and not chosen:
        chosen = nets_under(path, parts)
    if not chosen:
        paths = list(dict.fromkeys(part.path for part in parts if part.path and _has_weights(part)))
        known = (
            f"the file has {_flags(paths)}" if paths else "the file has one state dict, without a path: leave it out"
        )
        raise OptionInvalid(f"no weights at --weights {shlex.quote(path)}; {known}")
    return chosen


def by_preference(parts: Sequence[StateDict]) -> list[StateDict]:
    """Return averages first, then generators, then models."""
    return sorted(parts, key=_preference)


def rivals_of(own: StateDict, parts: Sequence[StateDict]) -> list[StateDict]:
    """Return the parts that nothing makes a worse choice than `own`: other weights, as preferred, at another path."""
    return [part for part in parts if _preference(part) == _preference(own) and _are_apart(part, own)]


def several_message(parts: Sequence[StateDict]) -> str:
    """Return how to choose one of several nets."""
    flags = _flags([part.path for part in parts])
    return f"there are {len(parts)} generators to choose from; name one to retouch export: {flags}"


def _flags(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - _PATHS_SHOWN} more" if len(paths) > _PATHS_SHOWN else ""
    return ", ".join(f"--weights {shlex.quote(path)}" for path in paths[:_PATHS_SHOWN]) + more


def _are_apart(one: StateDict, other: StateDict) -> bool:
    """Return whether neither part contains the other and their weights differ; a net may have two names in a file."""
    if _contain_each_other(one.path, other.path):
        return False
    pairs = ((tensor, other.state.get(key)) for key, tensor in one.state.items())
    return not all(twin is not None and (twin is tensor or torch.equal(tensor, twin)) for tensor, twin in pairs)


def _preference(part: StateDict) -> int:
    return next((i for i, name in enumerate(_PREFERRED) if re.search(name, part.path, re.IGNORECASE)), len(_PREFERRED))


def _has_weights(part: StateDict) -> bool:
    """Return whether a part has more than scores."""
    return any(tensor.ndim for tensor in part.state.values())


def notes_on_choice(chosen: StateDict, parts: Sequence[StateDict]) -> list[str]:
    """Return a note on the part that was used and one on those left out, for the report."""
    others = [part.path for part in parts if _has_weights(part) and not _contain_each_other(part.path, chosen.path)]
    others = [path for path in others if not any(_holds(other, path) for other in others if other != path)]
    others = list(dict.fromkeys([*others, *_beside(chosen, parts)]))
    notes = [f"used the weights of {chosen.path}"] if chosen.path else []
    return [*notes, f"left out: {', '.join(others)}"] if others else notes


def _beside(chosen: StateDict, parts: Sequence[StateDict]) -> list[str]:
    """Return the first components of the keys beside a part, in the state dict that it was cut out of."""
    outer, _, prefix = chosen.path.rpartition("/")
    weight = next(iter(chosen.state.values()), None)
    for whole in parts:
        keys = [key for key in whole.state if "." in key] if whole.path == outer else []
        if any(whole.state[key] is weight for key in keys if key.startswith(f"{prefix}.")):
            firsts = dict.fromkeys(key.partition(".")[0] for key in keys)
            return [f"{outer}/{first}".lstrip("/") for first in firsts if first != prefix]
    return []


def _contain_each_other(one: str, other: str) -> bool:
    """Return whether the part at one path contains that at the other."""
    return _holds(one, other) or _holds(other, one)


def _holds(outer: str, inner: str) -> bool:
    """Return whether the part at one path contains the one at the other; the file itself contains all."""
    return not outer or f"{inner}/".startswith(f"{outer}/")
