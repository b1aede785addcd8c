"""Downloads one file over HTTPS: from listed hosts only, of limited size, whole or not at all.

While a file arrives, it is called `NAME.partial`; one command at a time writes it. An incomplete file is kept and
resumed only if the file's SHA-256 is known, because only the digest would reveal a mixture of two files.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, NamedTuple

import httpx

from retouch.zoo.errors import DownloadFailed

MAX_BYTES = 2 * 2**30
"""The largest file that is fetched if its size is not known beforehand."""
_MAX_REDIRECTS = 5
_HEADROOM_BYTES = 2**28
_REDIRECTS = (301, 302, 303, 307, 308)


class DownloadSpec(NamedTuple):
    """A file to fetch: its address, the allowed hosts, its size if known, and whether a download may be resumed."""

    url: str
    hosts: Sequence[str]
    size: int | None
    resumable: bool


@dataclass(frozen=True)
class Downloader:
    """Fetches files.

    Args:
        context: the trusted certificates; by default those of the system. Tests give their own authority.
        addresses: for tests: the real (address, port) of each host's server. The certificate must still be the host's,
            and the rules about hosts apply unchanged.
        seconds: time limit to connect, and between two blocks.
        free_bytes: returns the free space of a folder in bytes.
    """

    context: ssl.SSLContext = field(default_factory=ssl.create_default_context)
    addresses: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    seconds: float = 60
    free_bytes: Callable[[Path], int] = lambda folder: shutil.disk_usage(folder).free

    def fetch(self, wanted: DownloadSpec, target: Path, notify: Callable[[str], None]) -> None:
        """Fetch a file to `target`, whose folder exists.

        Raises:
            DownloadFailed: the server, its certificate or a redirect is not acceptable, the file is too large for the
                limit or the disk, or it did not arrive whole. The message says which; the target does not exist.
        """
        partial = target.with_name(f"{target.name}.partial")
        try:
            with _open_part(partial, resumable=wanted.resumable) as file:
                self._fill(file, wanted, target.parent, notify)
                partial.replace(target)
        except (httpx.HTTPError, ssl.SSLError) as error:
            raise DownloadFailed(f"{wanted.url}: {str(error) or type(error).__name__}; {_advice(wanted)}") from error
        except OSError as error:
            raise DownloadFailed(f"{partial}: cannot be written ({error.strerror})") from error

    def _fill(self, file: BinaryIO, wanted: DownloadSpec, folder: Path, notify: Callable[[str], None]) -> None:
        have = file.seek(0, os.SEEK_END)
        with (
            httpx.Client(verify=self.context, timeout=self.seconds, trust_env=not self.addresses) as client,
            self._answer(client, wanted, have) as answer,
        ):
            if answer.status_code == httpx.codes.REQUESTED_RANGE_NOT_SATISFIABLE:
                file.truncate(0)
                raise DownloadFailed(f"{wanted.url}: the part that was here is not of this file; run the command again")
            begin, total = self._place_in_file(answer, wanted, have, folder)
            file.seek(begin)
            file.truncate()
            _copy(answer, file, total, begin, notify)

    @contextmanager
    def _answer(self, client: httpx.Client, wanted: DownloadSpec, have: int) -> Iterator[httpx.Response]:
        """Follow redirects within the listed hosts to the answer that carries the file."""
        url = httpx.URL(wanted.url)
        for _ in range(_MAX_REDIRECTS + 1):
            _check_address(url, wanted.hosts)
            with self._open(client, url, have) as answer:
                if answer.status_code not in _REDIRECTS:
                    yield answer
                    return
                url = url.join(answer.headers.get("Location", ""))
        raise DownloadFailed(f"{wanted.url}: more than {_MAX_REDIRECTS} redirects")

    def _open(self, client: httpx.Client, url: httpx.URL, have: int) -> AbstractContextManager[httpx.Response]:
        headers = {"Accept-Encoding": "identity", "User-Agent": "retouch"} | (
            {"Range": f"bytes={have}-"} if have else {}
        )
        if url.host not in self.addresses:
            return client.stream("GET", url, headers=headers)
        address, port = self.addresses[url.host]
        there = url.copy_with(host=address, port=port)
        return client.stream("GET", there, headers={**headers, "Host": url.host}, extensions={"sni_hostname": url.host})

    def _place_in_file(
        self, answer: httpx.Response, wanted: DownloadSpec, have: int, folder: Path
    ) -> tuple[int, int | None]:
        """Return where the answer's first byte belongs, and the size of the whole file if it is known."""
        if answer.status_code == httpx.codes.PARTIAL_CONTENT:
            begin = have
            total: int | None = _total_of_range(answer, have)
        elif answer.status_code == httpx.codes.OK:
            begin, total = 0, _whole_number(answer.headers.get("Content-Length"))
        else:
            raise DownloadFailed(f"{wanted.url}: answered {answer.status_code}; {_advice(wanted)}")
        if wanted.size is not None and total not in {None, wanted.size}:
            raise DownloadFailed(f"{wanted.url}: has {total} bytes, the published file has {wanted.size}")
        total = total if total is not None else wanted.size
        if (most := total if total is not None else MAX_BYTES) > MAX_BYTES:
            raise DownloadFailed(f"{wanted.url}: has {total} bytes; at most {MAX_BYTES} are fetched")
        needed = most - begin + _HEADROOM_BYTES
        if (free := self.free_bytes(folder)) < needed:
            raise DownloadFailed(
                f"{folder} has {free / 2**20:.0f} MiB free, and {needed / 2**20:.0f} are needed; "
                "make room, or name another folder with --downloads"
            )
        return begin, total


@contextmanager
def _open_part(partial: Path, *, resumable: bool) -> Iterator[BinaryIO]:
    """Open an incomplete file for this command alone; at the end it is removed if empty or not resumable."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(partial, flags, 0o644), "r+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise DownloadFailed(f"{partial} is being written by another command; wait for it") from error
        if not _is_at(file, partial):  # another command has finished it and given it its final name
            raise DownloadFailed(f"{partial} was finished by another command just now; run this one again")
        if not resumable:
            file.truncate(0)
        try:
            yield file
        finally:
            file.flush()
            if _is_at(file, partial) and (not resumable or os.fstat(file.fileno()).st_size == 0):
                partial.unlink()


def _is_at(file: BinaryIO, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.lstat())
    except FileNotFoundError:
        return False


def _check_address(url: httpx.URL, hosts: Sequence[str]) -> None:
    if url.scheme != "https" or url.port is not None or url.userinfo or url.host not in hosts:
        raise DownloadFailed(
            f"the download leads to {url.scheme}://{url.host}, which is not among the hosts of this file "
            f"({', '.join(hosts)}); fetch the file yourself and give it with --file"
        )


def _copy(answer: httpx.Response, file: BinaryIO, total: int | None, begin: int, notify: Callable[[str], None]) -> None:
    size, shown = begin, -1
    for block in answer.iter_raw():
        size += len(block)
        if size > (total if total is not None else MAX_BYTES):
            raise DownloadFailed(
                f"{answer.url.host}: sends more than {total if total is not None else MAX_BYTES} bytes"
            )
        file.write(block)
        if total and (percent := size * 10 // total * 10) != shown:
            shown = percent
            notify(f"downloading: {percent} % of {total / 2**20:.0f} MiB")
    if total is not None and size != total:
        raise DownloadFailed(f"{answer.url.host}: ended after {size} of {total} bytes; run the command again")
    file.flush()
    os.fsync(file.fileno())


def _total_of_range(answer: httpx.Response, have: int) -> int:
    unit, _, rest = answer.headers.get("Content-Range", "").partition(" ")
    span, _, total = rest.partition("/")
    if unit != "bytes" or span.partition("-")[0] != str(have) or (size := _whole_number(total)) is None:
        raise DownloadFailed(f"{answer.url.host}: continued at another offset than requested; run it again")
    return size


def _whole_number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 16 else None


def _advice(wanted: DownloadSpec) -> str:
    return f"if its host is out of reach here, fetch {wanted.url.rpartition('/')[2]} elsewhere and give it with --file"
