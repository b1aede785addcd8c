"""Puts a net together whose keys are divided among several state dicts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from export.generators.family import State
from export.states.finding import StateDict


@dataclass(frozen=True)
class Joined:
    """A state dict made of one or several parts."""

    path: str
    state: State
    origins: tuple[StateDict, ...]

    def note(self) -> str:
        """Return a sentence on the parts, for the report."""
        return f"used {_count_apart(self.origins)} nets as one model"


def join_parts(parts: Sequence[StateDict]) -> list[Joined]:
    """Return joined parts: those with the same path, for a net in several files; and all, for families of several nets.

    For equal keys the first part wins.
    """
    paths = Counter(part.path for part in parts)
    groups = [[part for part in parts if part.path == path] for path, times in paths.items() if times > 1]
    if len(parts) > 1:
        groups.append(list(parts))
    return [
        Joined("", {key: tensor for part in reversed(group) for key, tensor in part.state.items()}, tuple(group))
        for group in groups
    ]


def _count_apart(parts: Sequence[StateDict]) -> int:
    """Count the parts that were not cut out of another."""
    seen, count = set[int](), 0
    for part in sorted(parts, key=lambda one: len(one.state), reverse=True):
        count += not any(id(tensor) in seen for tensor in part.state.values())
        seen |= {id(tensor) for tensor in part.state.values()}
    return count
