"""Atomic file writes: a reader finds the old content or the new, never a part, also after a loss of power."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path


def write_atomically(path: Path, content: bytes) -> None:
    """Replace a file as `replace_file` does; makes the folder when needed.

    Raises:
        OSError: it cannot be written; the old content is unchanged and no temporary file is left.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, content)


def replace_file(path: Path, content: bytes) -> bool:
    """Replace a file's content atomically; a new file is readable by its owner only.

    It keeps its owner and its permissions where this user may give it away; where it cannot keep its group, the other
    group gets no access.

    No link is followed: another user may own the folder, and must not choose the files that root writes.

    Returns:
        Whether its owner and its group are those that it had.

    Raises:
        OSError: it cannot be written, or there is a link or something else than a file; the old content is unchanged
            and no temporary file is left.
    """
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return _replace_in(folder, path.name, content)
    finally:
        os.close(folder)


def _replace_in(folder: int, name: str, content: bytes) -> bool:
    """Replace a file of an open folder; returns whether its owner and its group are those that it had."""
    before = _state_in(folder, name)
    fresh = f".{secrets.token_hex(8)}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(fresh, flags, 0o600, dir_fd=folder)
    try:
        with os.fdopen(descriptor, "wb") as file:
            kept = before is None or _keep_access(file.fileno(), before)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(fresh, name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:
        with suppress(OSError):
            os.unlink(fresh, dir_fd=folder)
        raise
    return kept


def _state_in(folder: int, name: str) -> os.stat_result | None:
    """The state of a file in an open folder; None if there is none.

    Raises:
        OSError: it is a link, or something else than a file.
    """
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "it is no regular file")
    return found


def _keep_access(descriptor: int, before: os.stat_result) -> bool:
    """Give an open file the owner, the group and the permissions of another, as far as this user may.

    Returns:
        Whether its owner and its group are the other's.
    """
    wanted = (before.st_uid, before.st_gid)
    for owner in (before.st_uid, -1):  # only root may give a file away; others may choose a group of theirs
        found = os.fstat(descriptor)
        if (found.st_uid, found.st_gid) != wanted:
            with suppress(OSError):  # not only EPERM: EINVAL in a user namespace, ENOSYS on some file systems
                os.fchown(descriptor, owner, before.st_gid)
    found = os.fstat(descriptor)
    os.fchmod(descriptor, before.st_mode & (0o777 if found.st_gid == before.st_gid else 0o707))
    return (found.st_uid, found.st_gid) == wanted
