"""Atomic file writes: a reader finds the old content or the new, never a part, also after a loss of power."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path

_ACCESS_LIST = "system.posix_acl_access"


def write_atomically(path: Path, content: bytes) -> None:
    """Replace a file as `replace_file` does, or the file that a link leads to; makes the folder when needed.

    Raises:
        OSError: it cannot be written; the old content is unchanged and no temporary file is left.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(Path(os.path.realpath(path)), content)


def replace_file(path: Path, content: bytes) -> bool:
    """Replace a file's content atomically; a new file is readable by its owner only.

    It keeps its owner, its permissions and its access control list, as far as this user may set them. If it cannot keep
    its group or that list, the group gets no access.

    No link is followed: another user may own the folder, and must not choose the files that root writes.

    Returns:
        Whether its owner, group and access control list are unchanged.

    Raises:
        OSError: it cannot be written, or there is a link or something other than a file; the old content is unchanged
            and no temporary file is left.
    """
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return _replace_in(folder, path.name, content)
    finally:
        os.close(folder)


def _replace_in(folder: int, name: str, content: bytes) -> bool:
    """Replace a file of an open folder; returns whether the same users have access as before."""
    before = _state_in(folder, name)
    fresh = f".{secrets.token_hex(8)}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(fresh, flags, 0o600, dir_fd=folder)
    try:
        with os.fdopen(descriptor, "wb") as file:
            kept = before is None or _keep_access(file.fileno(), before, _access_list(folder, name))
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(fresh, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:  # also on Ctrl-C no temporary file is left
        with suppress(OSError):
            os.unlink(fresh, dir_fd=folder)
        raise
    return kept


def _state_in(folder: int, name: str) -> os.stat_result | None:
    """Return the state of a file in an open folder; None if there is none.

    Raises:
        OSError: it is a link, or something other than a file.
    """
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file")
    return found


def _access_list(folder: int, name: str) -> bytes | None:
    """Return the POSIX access control list of a file in a folder; None if there is none, or the system has none."""
    with suppress(OSError, AttributeError):  # AttributeError: no such call outside Linux
        return os.getxattr(f"/proc/self/fd/{folder}/{name}", _ACCESS_LIST, follow_symlinks=False)
    return None


def _keep_access(descriptor: int, before: os.stat_result, access_list: bytes | None) -> bool:
    """Give an open file the owner, the group and the permissions of another, as far as this user may.

    The owner comes last, because a user who has given a file away may no longer change its mode. If there is a list,
    the mode's bits for the group are the list's mask, not the group's permissions.

    Returns:
        Whether owner, group and list are now those of the other file.
    """
    with suppress(OSError):  # not only EPERM: EINVAL in a user namespace, ENOSYS on some file systems
        os.fchown(descriptor, -1, before.st_gid)
    same_group = os.fstat(descriptor).st_gid == before.st_gid
    os.fchmod(descriptor, before.st_mode & (0o777 if same_group and access_list is None else 0o707))
    kept = access_list is None
    if access_list is not None and same_group:
        with suppress(OSError):
            os.setxattr(descriptor, _ACCESS_LIST, access_list)
            kept = True
    with suppress(OSError):  # only root may give a file away
        os.fchown(descriptor, before.st_uid, -1)
    found = os.fstat(descriptor)
    return kept and (found.st_uid, found.st_gid) == (before.st_uid, before.st_gid)
