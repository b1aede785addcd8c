"""Reads the encoded pictures of a source: files of a folder, or blobs of a git repository's newest commit."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from random import Random
from typing import IO, NamedTuple, cast

from training.errors import DataMissing
from training.gather.recipe import Source


class EncodedPicture(NamedTuple):
    """A file's path inside the source, and its bytes; empty if a partial clone lacks them."""

    path: str
    data: bytes


def read_pictures(source: Source, root: Path, seed: int) -> Iterator[EncodedPicture]:
    """Yield at most `limit` of the source's pictures in a random order fixed by the seed and the source's name.

    Raises:
        DataMissing: there is no such folder, git cannot read it, or nothing in it matches.
    """
    directory = root / source.path
    if not directory.is_dir():
        raise DataMissing(f"{directory}: source {source.name} is missing; put it there, or remove it from the recipe")
    git_directory = _git_directory(directory)
    names = _list_committed_files(git_directory) if git_directory else _list_files(directory)
    chosen = [name for name in names if any(fnmatchcase(name.lower(), glob.lower()) for glob in source.include)]
    if not chosen:
        raise DataMissing(f"{directory}: nothing matches {', '.join(source.include)} of source {source.name}")
    Random(f"{seed} {source.name}").shuffle(chosen)  # noqa: S311 -- an order, not a secret
    chosen = chosen[: source.limit]
    if git_directory:
        yield from _read_blobs(git_directory, chosen)
    else:
        yield from (EncodedPicture(name, (directory / name).read_bytes()) for name in chosen)


def _git_directory(directory: Path) -> Path | None:
    if (directory / ".git").is_dir():
        return directory / ".git"
    return directory if (directory / "HEAD").is_file() and (directory / "objects").is_dir() else None


def _list_files(directory: Path) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file())


def _git_command(git_directory: Path) -> list[str]:
    """Build a git command for an untrusted repository: features of its config that could run programs are disabled."""
    disabled = ("core.fsmonitor=false", "core.hooksPath=/dev/null", "protocol.allow=never")
    settings = [part for setting in disabled for part in ("-c", setting)]
    return ["git", "--no-pager", "--git-dir", str(git_directory), *settings]


def _environment_without_fetch() -> dict[str, str]:
    """Return an environment in which git fetches nothing: a partial clone's remote could run a command.

    No protocol is named "none"; the variable overrides `protocol.ext.allow` of the repository's config.
    """
    return os.environ | {"GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": "none", "GIT_TERMINAL_PROMPT": "0"}


def _list_committed_files(git_directory: Path) -> list[str]:
    command = [*_git_command(git_directory), "ls-tree", "-r", "-z", "--name-only", "HEAD"]
    done = subprocess.run(command, capture_output=True, check=False, env=_environment_without_fetch())  # noqa: S603 -- no shell, our arguments
    if done.returncode:
        raise DataMissing(f"{git_directory}: git cannot list it: {done.stderr.decode(errors='replace').strip()}")
    return sorted(done.stdout.decode("utf-8", "surrogateescape").split("\0")[:-1])


def _read_blobs(git_directory: Path, names: list[str]) -> Iterator[EncodedPicture]:
    """Read blobs with a single `git cat-file`, so that a bare repository does not cost a process per picture."""
    command = [*_git_command(git_directory), "cat-file", "--batch"]
    with subprocess.Popen(  # noqa: S603 -- no shell, our arguments
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=_environment_without_fetch(),
    ) as process:
        questions, answers = cast("IO[bytes]", process.stdin), cast("IO[bytes]", process.stdout)
        for name in names:
            questions.write(f"HEAD:{name}\n".encode("utf-8", "surrogateescape"))
            questions.flush()
            header = answers.readline().split()
            found = len(header) == 3 and header[1] == b"blob"
            yield EncodedPicture(name, answers.read(int(header[2]) + 1)[:-1] if found else b"")
