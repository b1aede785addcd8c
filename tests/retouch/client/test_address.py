from __future__ import annotations

import pytest

from retouch.client.address import for_messages, id_at_end, validated_url
from retouch.client.connection import Connection, exchanges_with
from retouch.client.errors import AddressInvalid


@pytest.mark.parametrize(
    "url",
    [
        "localhost:8000",
        "ftp://host",
        "http://host:port",
        "http://",
        "http://[broken",
        "http://host?a=b",
        "http://host/#a",
        "http://ho\tst",
        "http://a..b",
        "http://ü..de",
        "http://xn--a",
        f"http://{64 * 'a'}.example",
    ],
)
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(AddressInvalid, match="http://HOST:PORT"):
        validated_url(url)


@pytest.mark.parametrize("end", ["", "//", "?", "/?", "#", "/#", "?#", " "])
def test_a_prefix_is_kept_and_what_means_nothing_at_the_end_is_not(end: str) -> None:
    assert validated_url(f"https://host:8/retouch{end}") == "https://host:8/retouch"


def test_an_id_is_taken_from_a_path_an_address_or_itself() -> None:
    wanted = "0123456789abcdef" * 2
    for text in (wanted, f"/v1/jobs/{wanted}", f"https://elsewhere/v1/results/{wanted}/"):
        assert id_at_end(text) == wanted
    for text in ("", "jobs", f"{wanted}?x", f"{wanted}0", "../../metrics"):
        with pytest.raises(AddressInvalid, match="32 hexadecimal"):
            id_at_end(text)


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1:8000", "http://[::1]:8000", "http://[fe80::1%25eth0]", "https://müller.example", "http://a_b"],
)
def test_an_address_that_requests_can_be_sent_to_is_taken_as_it_is(url: str) -> None:
    assert validated_url(url) == url


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://me:s%40cret@host:8/retouch", "https://host:8/retouch"),
        ("https://token@host", "https://host"),
        ("https://me:p@ss@host", "https://host"),
        ("https://host/a@b", "https://host/a@b"),
        ("http://[::1]:8000", "http://[::1]:8000"),
    ],
)
def test_messages_show_an_address_without_its_password(url: str, shown: str) -> None:
    assert for_messages(url) == shown
    assert exchanges_with(Connection.to(url, "", 1.0), 0).url == shown
