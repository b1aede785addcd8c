"""Sandboxes the process that reads a foreign file; nothing here needs a privilege.

Enforced wherever Python runs on Linux: address space, processor time, size of written files, no core dump, death with
the parent. Enforced where the kernel allows it, and reported either way: no network (a namespace of its own, or
Landlock for TCP), no writing outside the scratch folder and no reading outside the listed folders (Landlock).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import sys
from collections.abc import Iterable
from pathlib import Path

from export.foreign.messages import Enforced, Limits

_SYSTEM_FOLDERS = ("/usr", "/lib", "/lib64", "/etc", "/proc", "/sys", "/dev")
_MAX_FILE_BYTES = 2**31
_CLONE_NEWNET, _CLONE_NEWUSER = 0x40000000, 0x10000000
_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS = 1, 38
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_READ = 1 << 2 | 1 << 3
_RIGHTS_OF_ABI = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1, 5: (1 << 16) - 1}
"""The access rights to files that each version of Landlock knows, as a bit mask; later versions are used as 5."""


class _Ruleset(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = (("allowed", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


def isolate(limits: Limits, scratch: Path, readable: Iterable[Path]) -> Enforced:
    """Restrict this process until it ends. Call it before any thread starts: a user namespace requires that.

    Args:
        limits: memory and time.
        scratch: the only folder that stays writable.
        readable: folders to read from besides those of Python and the system.

    Returns:
        The protections in force from now on, in words.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    _limit_resources(limits)
    alone = libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNET) == 0 or libc.unshare(_CLONE_NEWNET) == 0
    abi = _restrict_files(libc, scratch, [*_python_folders(), *map(Path, _SYSTEM_FOLDERS), *readable])
    return Enforced(
        memory=f"{limits.memory_bytes / 2**30:g} GiB of address space",
        time=f"{limits.seconds:g} s, then it is killed",
        network=_network_in_words(alone, abi),
        files="Landlock: writes to a scratch folder only, reads the file's and the pictures' folders and the system's"
        if abi
        else "not enforced: this kernel has no Landlock; the child writes as this user may",
    )


def _network_in_words(alone: bool, abi: int) -> str:
    if alone:
        return "none: a network namespace of its own"
    return "Landlock: no TCP; other protocols are not enforced" if abi >= 4 else "not enforced: no namespace is allowed"


def _limit_resources(limits: Limits) -> None:
    seconds = max(1, int(limits.seconds) * (os.cpu_count() or 1))
    for kind, most in (
        (resource.RLIMIT_AS, limits.memory_bytes),
        (resource.RLIMIT_CPU, seconds),
        (resource.RLIMIT_FSIZE, _MAX_FILE_BYTES),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, 256),
    ):
        _, hard = resource.getrlimit(kind)
        value = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (value, value))


def _python_folders() -> list[Path]:
    project = Path(__file__).resolve().parents[2]  # an editable installation is found by a hook, not on sys.path
    return [Path(entry) for entry in (sys.prefix, sys.base_prefix, sys.exec_prefix, *sys.path) if entry] + [project]


def _restrict_files(libc: ctypes.CDLL, scratch: Path, readable: Iterable[Path]) -> int:
    """Allow reading below some folders and writing below one; returns Landlock's version, 0 if there is none."""
    abi = max(0, int(libc.syscall(_CREATE_RULESET, None, 0, 1)))
    if not abi:
        return 0
    handled = _RIGHTS_OF_ABI[min(abi, 5)]
    rules = _Ruleset(handled, 0b11 if abi >= 4 else 0, 0b11 if abi >= 6 else 0)
    ruleset = libc.syscall(_CREATE_RULESET, ctypes.byref(rules), ctypes.sizeof(rules), 0)
    if ruleset < 0:
        return 0
    for folder, rights in [*((folder, _READ) for folder in readable), (scratch, handled & ~1)]:  # bit 0: execute
        with contextlib.suppress(OSError):  # a folder that does not exist needs no rule
            descriptor = os.open(folder, os.O_PATH | os.O_CLOEXEC)
            is_folder = folder.is_dir()
            rule = _PathBeneath(rights if is_folder else rights & 0b110, descriptor)
            libc.syscall(_ADD_RULE, ruleset, 1, ctypes.byref(rule), 0)
            os.close(descriptor)
    done = libc.syscall(_RESTRICT_SELF, ruleset, 0) == 0
    os.close(ruleset)
    return abi if done else 0
