"""A download is complete, from the hosts of its row, over TLS and within its limits; otherwise no file is left."""

from __future__ import annotations

import fcntl
import os
import ssl
from pathlib import Path

import pytest

from retouch.zoo.download import MAX_BYTES, Downloader, DownloadSpec
from retouch.zoo.errors import DownloadFailed
from tests.retouch.zoo.tls_server import Answer, FileServer

URL = "https://files.example/net.pt"
BODY = os.urandom(3 * 2**20 + 7)


@pytest.fixture
def fetch(server: FileServer, tmp_path: Path):
    """Download `URL` under the rules of a row; returns the target's path."""
    target = tmp_path / "net.pt"

    def fetched(size: int | None = None, resumable: bool = False, **changes) -> Path:
        downloader = Downloader(**{"context": server.context, "addresses": server.addresses, "seconds": 5, **changes})
        wanted = DownloadSpec(URL, ("files.example", "cdn.example"), size, resumable)
        downloader.fetch(wanted, target, lambda step: None)
        return target

    yield fetched
    assert not [path for path in tmp_path.glob("net.pt*") if path not in {target, tmp_path / "net.pt.partial"}]


def test_file_arrives_whole_and_leaves_no_part(server, fetch, tmp_path):
    server.answers[URL] = Answer(BODY)
    assert fetch(len(BODY)).read_bytes() == BODY
    assert not (tmp_path / "net.pt.partial").exists()


def test_redirects_are_followed_within_the_listed_hosts(server, fetch):
    server.answers[URL] = Answer(status=302, headers={"Location": "https://cdn.example/a?token=1"})
    server.answers["https://cdn.example/a?token=1"] = Answer(status=307, headers={"Location": "/b"})
    server.answers["https://cdn.example/b"] = Answer(BODY)
    assert fetch().read_bytes() == BODY


@pytest.mark.parametrize(
    "location",
    [
        "https://stranger.example/net.pt",
        "http://cdn.example/net.pt",
        "https://cdn.example:8443/net.pt",
        "https://user:word@cdn.example/net.pt",
        "https://cdn.example.stranger.example/net.pt",
        "file:///etc/passwd",
        "//stranger.example/net.pt",
        "https://127.0.0.1/net.pt",
    ],
)
def test_redirects_elsewhere_are_refused_before_anything_is_sent_there(server, fetch, location):
    server.answers[URL] = Answer(status=302, headers={"Location": location})
    with pytest.raises(DownloadFailed, match="not among the hosts of this file"):
        fetch()
    assert [url for url, _ in server.requests] == [URL]


def test_endless_redirects_end(server, fetch):
    server.answers[URL] = Answer(status=302, headers={"Location": URL})
    with pytest.raises(DownloadFailed, match="more than 5 redirects"):
        fetch()


def test_certificate_must_be_of_the_host_and_of_a_known_authority(server, fetch, tmp_path):
    server.answers[URL] = Answer(BODY)
    with pytest.raises(DownloadFailed, match="CERTIFICATE_VERIFY_FAILED"):
        fetch(context=ssl.create_default_context())
    downloader = Downloader(context=server.context, addresses=server.addresses)
    wanted = DownloadSpec("https://stranger.example/net.pt", ("stranger.example",), None, resumable=False)
    with pytest.raises(DownloadFailed, match=r"stranger\.example"):
        downloader.fetch(wanted, tmp_path / "net.pt", lambda step: None)
    assert server.requests == []


BROKEN = {
    "another size": (Answer(BODY), 5, "the published file has 5"),
    "too large by its own words": (Answer(b"x", length=MAX_BYTES + 1), None, "at most"),
    "more than published, without a length": (Answer(BODY, length=-1), 1000, "sends more than 1000 bytes"),
    "cut short": (Answer(BODY, stops_at=1000), None, "files.example|peer closed|--file"),
    "cut short without a length": (Answer(BODY, length=-1, stops_at=1000), len(BODY), "ended after 1000"),
    "missing": (Answer(status=404), None, "answered 404"),
    "a server error": (Answer(status=500), None, "answered 500"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_not_whole_is_no_file(server, fetch, tmp_path, name):
    answer, size, reason = BROKEN[name]
    server.answers[URL] = answer
    with pytest.raises(DownloadFailed, match=reason):
        fetch(size)
    assert list(tmp_path.glob("net.pt*")) == []


def test_full_disk_is_noticed_before_the_download(server, fetch):
    server.answers[URL] = Answer(BODY)
    with pytest.raises(DownloadFailed, match=r"has 10 MiB free, and 259 are needed"):
        fetch(free_bytes=lambda folder: 10 * 2**20)


def test_part_is_continued_where_the_digest_would_notice_a_mixture(server, fetch, tmp_path):
    (tmp_path / "net.pt.partial").write_bytes(BODY[:1000])
    server.answers[URL] = Answer(BODY, ranges=True)
    assert fetch(len(BODY), resumable=True).read_bytes() == BODY
    assert server.requests == [(URL, "bytes=1000-")]


def test_part_is_thrown_away_where_nothing_would_notice(server, fetch, tmp_path):
    (tmp_path / "net.pt.partial").write_bytes(b"of another file")
    server.answers[URL] = Answer(BODY, ranges=True)
    assert fetch().read_bytes() == BODY
    assert server.requests == [(URL, None)]


def test_server_that_cannot_continue_starts_again(server, fetch, tmp_path):
    (tmp_path / "net.pt.partial").write_bytes(BODY[:1000])
    server.answers[URL] = Answer(BODY)
    assert fetch(resumable=True).read_bytes() == BODY


def test_continuation_at_another_offset_is_refused(server, fetch, tmp_path):
    (tmp_path / "net.pt.partial").write_bytes(BODY[:1000])
    server.answers[URL] = Answer(BODY, ranges=True, headers={"Content-Range": f"bytes 5-9/{len(BODY)}"})
    with pytest.raises(DownloadFailed, match="continued at another offset"):
        fetch(resumable=True)


def test_part_survives_a_broken_connection_where_it_can_be_continued(server, fetch, tmp_path):
    server.answers[URL] = Answer(BODY, stops_at=1000, ranges=True)
    with pytest.raises(DownloadFailed):
        fetch(len(BODY), resumable=True)
    assert (tmp_path / "net.pt.partial").read_bytes() == BODY[:1000]
    server.answers[URL] = Answer(BODY, ranges=True)
    assert fetch(len(BODY), resumable=True).read_bytes() == BODY


def test_part_longer_than_the_file_is_thrown_away(server, fetch, tmp_path):
    (tmp_path / "net.pt.partial").write_bytes(BODY)
    server.answers[URL] = Answer(status=416)
    with pytest.raises(DownloadFailed, match="is not of this file; run the command again"):
        fetch(resumable=True)
    assert not (tmp_path / "net.pt.partial").exists()


def test_one_command_at_a_time_writes_a_part(server, fetch, tmp_path):
    with (tmp_path / "net.pt.partial").open("wb") as other:
        other.write(BODY[:1000])
        other.flush()
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(DownloadFailed, match="is being written by another command"):
            fetch()
    assert (tmp_path / "net.pt.partial").read_bytes() == BODY[:1000]
    assert server.requests == []


def test_part_that_is_a_link_is_not_followed(server, fetch, tmp_path):
    (tmp_path / "victim").write_bytes(b"mine")
    (tmp_path / "net.pt.partial").symlink_to(tmp_path / "victim")
    with pytest.raises(DownloadFailed, match="cannot be written"):
        fetch()
    assert (tmp_path / "victim").read_bytes() == b"mine"
