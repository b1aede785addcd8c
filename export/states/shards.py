"""Finds the files of a net that was saved in several, as Hugging Face's libraries do: shards and their index.

`NAME-00001-of-00003.safetensors` (or `.bin`) is a shard, `NAME.safetensors.index.json` tells which key is in which.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path

from export.errors import CheckpointRefused

_SHARD = re.compile(r"(?P<stem>.+)-(?P<number>\d{4,6})-of-(?P<count>\d{4,6})(?P<suffix>\.\w+)")
_INDEX = ".index.json"
_MAX_SHARDS = 1000
_MAX_INDEX_BYTES = 64 * 2**20
_MAX_NAME_LENGTH = 255
_NAMES_SHOWN = 4


def files_of_nets(paths: Iterable[Path]) -> list[tuple[Path, tuple[Path, ...]]]:
    """Return the files of each net: the path as given, and all its shards, or the path alone.

    A shard or an index stands for all shards, which are looked for beside it; given several of them, the set is
    returned once.

    Raises:
        CheckpointRefused: shards are missing, or the index is not one, or names files elsewhere.
    """
    found: list[tuple[Path, tuple[Path, ...]]] = []
    for path in paths:
        files = _files(path)
        if len(files) == 1 or not any(set(files) == set(others) for _, others in found):
            found.append((path, files))
    return found


def _files(path: Path) -> tuple[Path, ...]:
    if path.name.endswith(_INDEX):
        return _present(path, _listed(path))
    shard = _SHARD.fullmatch(path.name)
    if shard is None or not 0 < (count := int(shard["count"])) <= _MAX_SHARDS:
        return (path,)
    digits = len(shard["number"])
    names = [
        f"{shard['stem']}-{number:0{digits}}-of-{shard['count']}{shard['suffix']}" for number in range(1, count + 1)
    ]
    return _present(path, names)


def _present(path: Path, names: list[str]) -> tuple[Path, ...]:
    missing = [name for name in names if not _is_file(path.parent / name)]
    if missing:
        more = f" and {len(missing) - _NAMES_SHOWN} more" if len(missing) > _NAMES_SHOWN else ""
        raise CheckpointRefused(
            f"{path}: belongs to a net in {len(names)} files, of which {', '.join(missing[:_NAMES_SHOWN])}{more} "
            "are missing; put all of them in its folder"
        )
    return tuple(path.parent / name for name in names)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # the name is too long, or the folder may not be searched
        return False


def _listed(path: Path) -> list[str]:
    """Return the names of the files in an index, sorted."""
    try:
        if path.stat().st_size > _MAX_INDEX_BYTES:
            raise CheckpointRefused(f"{path}: an index of over {_MAX_INDEX_BYTES >> 20} MiB; is it one?")
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise CheckpointRefused(f"{path}: cannot be read ({error.strerror}); is the path right?") from error
    except (ValueError, RecursionError) as error:
        raise CheckpointRefused(f"{path}: not JSON; copy it again") from error
    locations = content.get("weight_map") if isinstance(content, dict) else None
    if not isinstance(locations, dict) or not locations:
        raise CheckpointRefused(f"{path}: an index without a weight_map; give the files of the net instead")
    names = {name for name in locations.values() if isinstance(name, str)}
    strange = [ascii(name)[:_MAX_NAME_LENGTH] for name in locations.values() if not _is_name(name)]
    if strange or len(names) > _MAX_SHARDS:
        raise CheckpointRefused(
            f"{path}: names {strange[0] if strange else len(names)}, and not a few files of its own folder"
        )
    return sorted(names)


def _is_name(value: object) -> bool:
    """Return whether a value can name a file of a folder, and can be printed."""
    if not isinstance(value, str) or len(value) > _MAX_NAME_LENGTH or value in {"", ".."}:
        return False
    return value.isprintable() and Path(value).name == value
